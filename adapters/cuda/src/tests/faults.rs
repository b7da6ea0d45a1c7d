//! Every call of the driver fails once, one after the other, while the workload runs.

use ur::abi::*;

use super::fake_driver::{FakeDriver, alone, ur};
use super::test_context::TestContext;
use super::workload;

/// Functions whose failure nobody has to report, and why.
#[rustfmt::skip]
const SILENT: &[(&str, &str)] = &[
    ("cuThreadExchangeStreamCaptureMode", "a call that a capture of another thread forbids then fails itself"),
    ("cuStreamQuery", "a stream counts as busy then, and is asked again"),
    ("cuEventQuery", "a marker counts as pending then, and is asked again"),
    ("cuEventCreate", "the engine asks for its own markers again"),
    ("cuEventRecord", "the engine asks for its own markers again"),
    ("cuEventSynchronize", "the engine's threads wait for what nobody asks for"),
    ("cuMemAddressReserve", "fewer addresses are then asked for"),
    ("cuMemExportToShareableHandle", "a device's memory is then not for other processes"),
    ("cuMemCreate", "memory is then not for other processes, or it is tried again once pools are trimmed"),
    ("cuMemMap", "pools are trimmed, and it is tried again"),
    ("cuMemSetAccess", "pools are trimmed, and it is tried again"),
    ("cuMemAllocManaged", "pools are trimmed, and it is tried again"),
    ("cuMemHostAlloc", "pools are trimmed, and it is tried again"),
    ("cuMemHostRegister", "an import is a hint"),
    ("cuMemPrefetchAsync", "a hint"),
    ("cuOccupancyMaxPotentialBlockSize", "a group size is then chosen without it"),
];

/// Each call of the workload fails in turn.
fn each_call_fails_with(name: &str, code: u32) {
    alone(name, || {
        let play = || {
            let steps = workload::play(&|_| {});
            (steps.failed(), steps.right)
        };
        FakeDriver::open().fail_each_call(code, (50, 10), SILENT, play);
    });
}

#[test]
fn each_call_runs_out_of_memory() {
    each_call_fails_with("tests::faults::each_call_runs_out_of_memory", 2);
}

#[test]
fn each_call_loses_the_device() {
    each_call_fails_with("tests::faults::each_call_loses_the_device", 700);
}

/// A code that no version of the driver knows.
#[test]
fn each_call_fails_with_an_unknown_code() {
    each_call_fails_with(
        "tests::faults::each_call_fails_with_an_unknown_code",
        98_765,
    );
}

/// If the driver refuses a command while another context is current, which may be the cause, the adapter
/// tries again.
///
/// If the right context is current, the refusal is final.
#[test]
fn a_refused_command_is_retried_in_its_own_context() {
    let name = "tests::faults::a_refused_command_is_retried_in_its_own_context";
    alone(name, || {
        let driver = FakeDriver::open();
        driver.anywhere(true);
        let test_context = TestContext::new(4);
        let (queue, to) = (test_context.queue(ur_queue_flags_t(0)), test_context.memory);
        // The cache of address attributes has few slots, and these two addresses, 32 bytes apart, share at
        // most one with `to`.
        let words = [7_u32; 9];
        let froms = [0, 8].map(|at| (&raw const words[at]).cast());
        let none = (0, std::ptr::null(), std::ptr::null_mut());
        let fill = || ur!(Enqueue.pfnUSMFill(queue, to, 4, froms[0], 4, none.0, none.1, none.2));
        let copy = |from| ur!(Enqueue.pfnUSMMemcpy(queue, 0, to, from, 4, none.0, none.1, none.2));
        let calls = |call: &str, run: &dyn Fn() -> ur_result_t| {
            driver.fail_nth(call, 1, 2);
            let answer = run();
            let calls = driver.query().calls;
            driver.reset();
            (answer, calls)
        };
        let refused = (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, 1);
        let served = (UR_RESULT_SUCCESS, 2);
        let mut copies = Vec::new();
        for from in froms {
            // The first commands learn where the memory lies.
            assert_eq!((fill(), copy(from)), (UR_RESULT_SUCCESS, UR_RESULT_SUCCESS));
            driver.make_current(0x1000);
            assert_eq!(calls("cuMemsetD32Async", &fill), refused);
            assert_eq!(calls("cuMemcpyAsync", &|| copy(from)), refused);
            driver.make_current(0xabc0);
            assert_eq!(calls("cuMemsetD32Async", &fill), served);
            copies.push(calls("cuMemcpyAsync", &|| copy(from)));
        }
        assert!(copies.contains(&served), "{copies:?}");
        assert_eq!(ur!(Queue.pfnFinish(queue)), UR_RESULT_SUCCESS);
        assert_eq!(ur!(Queue.pfnRelease(queue)), UR_RESULT_SUCCESS);
        test_context.end(&driver);
    });
}

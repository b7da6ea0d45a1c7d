//! Every call of OpenCL fails once, one after the other, while the workload runs.

use opencl_sys::{CL_INVALID_VALUE, CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES, cl_int};

use super::fake_driver::{FakeDriver, adapter, alone, device};
use super::workload;

/// Functions whose failure nobody has to report, and why.
#[rustfmt::skip]
const SILENT: &[(&str, &str)] = &[
    ("clGetEventInfo", "an event counts as pending then, and is asked again"),
    ("clEnqueueMarkerWithWaitList", "the engine asks for its own markers again"),
    ("clSetEventCallback", "the engine's threads ask for the state instead"),
    ("clFlush", "queries and waits flush too"),
    ("clDeviceMemAllocINTEL", "pools are trimmed, and it is tried again"),
    ("clHostMemAllocINTEL", "pools are trimmed, and it is tried again"),
    ("clSharedMemAllocINTEL", "pools are trimmed, and it is tried again"),
    ("clGetDeviceInfo", "a property that a driver may lack has a value without it"),
    ("clGetKernelInfo", "a property that a driver may lack has a value without it"),
];

/// Runs the workload without a failure, then once for each call with that call failing. No failure may
/// leak an object, use a released one or return a wrong result as a success. Nobody may keep it silent but as
/// [`SILENT`] says.
fn each_call_fails_with(name: &str, code: cl_int) {
    alone(name, &[], || {
        let driver = FakeDriver::open();
        let device = device(adapter().expect("an adapter"));
        driver.reset();
        let whole = workload::play(device);
        assert_eq!(whole.failed(), []);
        assert!(whole.right, "what was read back");
        driver.check_end("a scene");
        let calls = driver.query().calls;
        assert!(calls > 70, "{calls} calls that could fail");
        let mut met = 0;
        for nth in 1..=calls + 20 {
            driver.fail(nth, code);
            let steps = workload::play(device);
            let when = format!("call {nth} failed with {code}: {:?}", steps.failed());
            driver.check_end(&when);
            let hit = driver.query().met;
            met += u64::from(hit);
            let silent = steps.failed().is_empty();
            assert!(!silent || steps.right, "{when}: {}", driver.report());
            assert!(hit || silent, "nothing failed, but {when}");
            let reported = !hit || !silent || driver.failed_one_of(SILENT);
            assert!(reported, "nobody reported: {}", driver.report());
        }
        assert!(met >= calls - 10, "{met} of {calls} faults were met");
    });
}

#[test]
fn each_call_runs_out_of_resources() {
    let name = "tests::faults::each_call_runs_out_of_resources";
    each_call_fails_with(name, CL_OUT_OF_RESOURCES);
}

#[test]
fn each_call_runs_out_of_memory() {
    let name = "tests::faults::each_call_runs_out_of_memory";
    each_call_fails_with(name, CL_OUT_OF_HOST_MEMORY);
}

#[test]
fn each_call_fails_for_no_reason() {
    let name = "tests::faults::each_call_fails_for_no_reason";
    each_call_fails_with(name, CL_INVALID_VALUE);
}

/// A code that no version of OpenCL knows.
#[test]
fn each_call_fails_with_an_unknown_code() {
    let name = "tests::faults::each_call_fails_with_an_unknown_code";
    each_call_fails_with(name, -9876);
}

//! Every call of OpenCL fails once, one after the other, while the workload runs.

use opencl_sys::{CL_INVALID_VALUE, CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES, cl_int};

use super::fake_driver::{FakeDriver, adapter, alone, device};
use super::workload;

/// Runs the workload without a failure, then once for each call with that call failing. No failure may
/// leak an object, use a released one or return a wrong result as a success.
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
        let (mut met, mut reported) = (0, 0);
        for nth in 1..=calls + 20 {
            driver.fail(nth, code);
            let steps = workload::play(device);
            let when = format!("call {nth} failed with {code}: {:?}", steps.failed());
            driver.check_end(&when);
            let hit = driver.query().met;
            (met, reported) = (
                met + u64::from(hit),
                reported + u64::from(!steps.failed().is_empty()),
            );
            assert!(
                !steps.failed().is_empty() || steps.right,
                "{when}: {}",
                driver.report()
            );
            assert!(
                hit || steps.failed().is_empty(),
                "nothing failed, but {when}"
            );
        }
        assert!(met >= calls - 10, "{met} of {calls} faults were met");
        assert!(reported > met / 2, "{reported} of {met} faults were told");
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

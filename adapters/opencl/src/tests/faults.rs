//! Every call of OpenCL's fails once, one after the other, while a scene is played.

use opencl_sys::{CL_INVALID_VALUE, CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES, cl_int};

use super::scene;
use super::stage::{Stage, adapter, alone, device};

/// A scene in which nothing fails, and then ones in which one call after the other does. Whatever
/// fails, nothing is lost, nothing is used that is gone, and what nobody complained about is right.
fn each_call_fails_with(name: &str, code: cl_int) {
    alone(name, &[], || {
        let stage = Stage::open();
        let device = device(adapter().expect("an adapter"));
        stage.calm();
        let whole = scene::play(device);
        assert_eq!(whole.failed(), []);
        assert!(whole.right, "what was read back");
        stage.check_end("a scene");
        let calls = stage.look().calls;
        assert!(calls > 70, "{calls} calls that could fail");
        let (mut met, mut told) = (0, 0);
        for nth in 1..=calls + 20 {
            stage.fail(nth, code);
            let steps = scene::play(device);
            let when = format!("call {nth} failed with {code}: {:?}", steps.failed());
            stage.check_end(&when);
            let hit = stage.look().met;
            (met, told) = (
                met + u64::from(hit),
                told + u64::from(!steps.failed().is_empty()),
            );
            assert!(
                !steps.failed().is_empty() || steps.right,
                "{when}: {}",
                stage.tell()
            );
            assert!(
                hit || steps.failed().is_empty(),
                "nothing failed, but {when}"
            );
        }
        assert!(met >= calls - 10, "{met} of {calls} faults were met");
        assert!(told > met / 2, "{told} of {met} faults were told");
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

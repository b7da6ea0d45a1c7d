//! Every call of the driver's fails once, one after the other, while a scene is played.

use super::scene;
use super::stage::{Stage, alone};

/// A scene in which nothing fails, and then ones in which one call after the other does. Whatever
/// fails, nothing is lost, nothing is used that is gone, and what nobody complained about is right.
fn each_call_fails_with(name: &str, code: u32) {
    alone(name, || {
        let stage = Stage::open();
        stage.calm();
        let whole = scene::play(&|_| {});
        assert_eq!(whole.failed(), []);
        assert!(whole.right, "what was read back");
        stage.check_end("a scene");
        let calls = stage.look().calls;
        assert!(calls > 50, "{calls} calls that could fail");
        let (mut met, mut told) = (0, 0);
        for nth in 1..=calls + 10 {
            stage.fail(nth, code);
            let steps = scene::play(&|_| {});
            let when = format!("call {nth} failed with {code}: {:?}", steps.failed());
            stage.check_end(&when);
            let hit = stage.look().met;
            met += u64::from(hit);
            told += u64::from(!steps.failed().is_empty());
            let silent = steps.failed().is_empty();
            assert!(!silent || steps.right, "{when}: {}", stage.tell());
            assert!(hit || silent, "nothing failed, but {when}");
        }
        assert!(met >= calls - 10, "{met} of {calls} faults were met");
        assert!(told > met / 2, "{told} of {met} faults were told");
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

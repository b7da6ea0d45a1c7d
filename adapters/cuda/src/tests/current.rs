//! The caller's current context is its own: what it was before a call, it is after it.

use super::scene;
use super::stage::{Stage, alone};

/// After every call of a scene, and with whatever was current before.
#[test]
fn no_call_changes_it() {
    alone("tests::current::no_call_changes_it", || {
        let stage = Stage::open();
        stage.calm();
        for own in [0, 0xabc0, 0x1000] {
            if own != 0 {
                stage.make_current(own);
            }
            let look = |name| assert_eq!(stage.current(), own, "after {name}");
            let steps = scene::play(&look);
            assert_eq!(steps.failed(), []);
            assert!(steps.right, "what was read back");
            stage.check_end("a scene");
        }
    });
}

/// Nor do calls that fail.
#[test]
fn no_failed_call_changes_it() {
    alone("tests::current::no_failed_call_changes_it", || {
        let stage = Stage::open();
        stage.make_current(0xabc0);
        for call in [
            "cuEventRecord",
            "cuMemcpyAsync",
            "cuEventCreate",
            "cuMemCreate",
        ] {
            stage.fail_each(call, 1);
            let look = |name| assert_eq!(stage.current(), 0xabc0, "{name} without {call}");
            let steps = scene::play(&look);
            assert_ne!(steps.failed(), [], "{call}");
            stage.check_end(call);
        }
    });
}

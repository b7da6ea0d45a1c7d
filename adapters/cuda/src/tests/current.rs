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

/// On either of two devices and in contexts of both, from threads which each have another context
/// current, or none: one of ours, which is right there for some of the calls, among them.
#[test]
fn no_call_changes_it_on_any_thread_or_device() {
    let name = "tests::current::no_call_changes_it_on_any_thread_or_device";
    alone(name, || {
        let stage = Stage::open();
        stage.devices(2);
        stage.calm();
        let stage = &stage;
        std::thread::scope(|scope| {
            for own in [0, 0xabc0, 0x1000, 0x1010] {
                scope.spawn(move || {
                    if own != 0 {
                        stage.make_current(own);
                    }
                    let look = |name| assert_eq!(stage.current(), own, "after {name}");
                    for places in [&[0][..], &[1], &[0, 1], &[1, 0]] {
                        let steps = scene::play_on(&look, places);
                        assert_eq!(steps.failed(), [], "on {places:?}");
                        assert!(steps.right, "what was read back on {places:?}");
                    }
                });
            }
        });
        stage.check_end("the scenes");
    });
}

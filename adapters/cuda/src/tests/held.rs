//! A device that waits for foreign code, which goes on once a call of the adapter has returned.
//!
//! The driver may wait for the device in calls that free something, and lets no other call return meanwhile.

use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use ur::abi::*;

use super::fake_driver::{FakeDriver, alone_with, ur};
use super::foreign::Foreign;
use super::test_context::{TestContext, stream_of};

/// Time after which a call counts as one that does not return.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Calls `run` while a stream is held back until `word`, which is 0, changes. Whether it returned by itself. The device
/// reads the word until the stream goes on, which may be later.
fn returns_while_held(
    foreign: &Foreign,
    (stream, word): (usize, &AtomicU32),
    run: impl FnOnce(),
) -> bool {
    let late = AtomicBool::new(false);
    let (returned, returns) = channel::<()>();
    std::thread::scope(|scope| {
        let late = &late;
        scope.spawn(move || {
            late.store(returns.recv_timeout(TIMEOUT).is_err(), Ordering::Relaxed);
            word.store(1, Ordering::Release);
        });
        foreign.hold(stream, word);
        run();
        // The other end is gone after the timeout.
        let _ = returned.send(());
    });
    !late.into_inner()
}

/// Nothing of an idle queue is left to a thread, which would free it at any time after the release. The native handle of
/// every second queue was given out, and nobody has waited for its last command.
#[test]
fn a_released_queue_frees_nothing_later() {
    let name = "tests::held::a_released_queue_frees_nothing_later";
    let strict = [("SCRIPTED_CUDA_STRICT", "2")];
    alone_with(name, &strict, || {
        let driver = FakeDriver::open();
        let test_context = TestContext::new(64);
        let foreign = Foreign::new();
        let flags = ur_queue_flags_t(0);
        let queue = test_context.queue(flags);
        let stream = stream_of(queue);
        let word = AtomicU32::new(0);
        for round in 0..20 {
            let released = test_context.queue(flags);
            if round % 2 == 0 {
                stream_of(released);
            }
            let (to, byte) = (test_context.memory, 7_u8);
            let pattern = (&raw const byte).cast();
            let (list, none) = (null(), null_mut());
            let code = ur!(Enqueue.pfnUSMFill(released, to, 1, pattern, 64, 0, list, none));
            assert_eq!(code, UR_RESULT_SUCCESS);
            assert_eq!(ur!(Queue.pfnRelease(released)), UR_RESULT_SUCCESS);
            let mut event = null_mut();
            let returned = returns_while_held(&foreign, (stream, &word), || {
                // A thread that frees something gets the time to begin.
                std::thread::sleep(Duration::from_millis(2));
                let code = ur!(Enqueue.pfnEventsWait(queue, 0, list, &mut event));
                assert_eq!(code, UR_RESULT_SUCCESS);
            });
            assert!(returned, "round {round}");
            assert_eq!(ur!(Queue.pfnFinish(queue)), UR_RESULT_SUCCESS);
            word.store(0, Ordering::Relaxed);
            assert_eq!(ur!(Event.pfnRelease(event)), UR_RESULT_SUCCESS);
        }
        foreign.end_use();
        assert_eq!(ur!(Queue.pfnRelease(queue)), UR_RESULT_SUCCESS);
        test_context.end(&driver);
    });
}

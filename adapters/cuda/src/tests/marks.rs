//! Records of streams: their number in a program that never waits, and the queries about them during a
//! foreign capture.

use std::ptr::{null, null_mut};

use ur::abi::*;

use super::fake_driver::{FakeDriver, alone, ur};
use super::test_context::{TestContext, stream_of};

/// Queues whose commands wait for each other.
const QUEUES: usize = 3;
const TIMES: usize = 1000;

const OWN_STREAM: ur_queue_flags_t = ur_queue_flags_t(0);

/// A stream of foreign code.
const OTHER: Option<usize> = Some(1);

struct Fixture {
    test_context: TestContext,
    queues: [ur_queue_handle_t; QUEUES],
}

impl Fixture {
    fn new(flags: ur_queue_flags_t) -> Self {
        let test_context = TestContext::new(4);
        let queues = [(); QUEUES].map(|()| test_context.queue(flags));
        Self {
            test_context,
            queues,
        }
    }

    /// Enqueues a command, after an event if there is one, and returns its event.
    fn enqueue(&self, index: usize, after: ur_event_handle_t) -> ur_event_handle_t {
        let (count, waits) = match after.is_null() {
            true => (0, null()),
            false => (1, &raw const after),
        };
        let mut event = null_mut();
        let (queue, to, word) = (self.queues[index], self.test_context.memory, 7_u32);
        let from = (&raw const word).cast();
        let code = ur!(Enqueue.pfnUSMFill(queue, to, 4, from, 4, count, waits, &mut event));
        assert_eq!(code, UR_RESULT_SUCCESS);
        event
    }

    /// Each command waits for the one before, on another queue.
    fn pass_on(&self, times: usize) {
        let mut last = null_mut();
        for turn in 0..times {
            let next = self.enqueue(turn % QUEUES, last);
            release(last);
            last = next;
        }
        release(last);
    }

    /// Commands of one queue, whose events are released at once.
    fn enqueue_released(&self, index: usize, times: usize) {
        (0..times).for_each(|_| release(self.enqueue(index, null_mut())));
    }

    fn end(self, driver: &FakeDriver) {
        for queue in self.queues {
            assert_eq!(ur!(Queue.pfnFinish(queue)), UR_RESULT_SUCCESS);
            assert_eq!(ur!(Queue.pfnRelease(queue)), UR_RESULT_SUCCESS);
        }
        self.test_context.end(driver);
    }
}

fn release(event: ur_event_handle_t) {
    if !event.is_null() {
        assert_eq!(ur!(Event.pfnRelease(event)), UR_RESULT_SUCCESS);
    }
}

#[test]
fn queues_that_follow_each_other_need_few_events() {
    alone(
        "tests::marks::queues_that_follow_each_other_need_few_events",
        || {
            let driver = FakeDriver::open();
            for flags in [OWN_STREAM, UR_QUEUE_FLAG_USE_DEFAULT_STREAM] {
                let fixture = Fixture::new(flags);
                let made = driver.calls("cuEventCreate", || fixture.pass_on(TIMES));
                assert!((3..=40 * QUEUES as u64).contains(&made), "{made}");
                let calls = driver.calls("cuEventQuery", || fixture.pass_on(TIMES));
                assert!((1..=TIMES as u64 / 10).contains(&calls), "{calls}");
                fixture.end(&driver);
            }
        },
    );
}

/// Completion is seen beside a capture by foreign code, which continues.
#[test]
fn foreign_captures_continue() {
    alone("tests::marks::foreign_captures_continue", || {
        let driver = FakeDriver::open();
        let fixture = Fixture::new(OWN_STREAM);
        driver.capture(OTHER);
        let made = driver.calls("cuEventCreate", || fixture.pass_on(TIMES));
        assert!((3..=40 * QUEUES as u64).contains(&made), "{made}");
        driver.capture(None);
        fixture.end(&driver);
    });
}

/// A stream whose native handle was given out is recorded for each event.
///
/// While foreign code captures it, the adapter makes no query.
#[test]
fn a_foreign_stream_is_queried_unless_captured() {
    alone(
        "tests::marks::a_foreign_stream_is_queried_unless_captured",
        || {
            let driver = FakeDriver::open();
            let fixture = Fixture::new(OWN_STREAM);
            let stream = stream_of(fixture.queues[0]);
            let made = driver.calls("cuEventCreate", || fixture.enqueue_released(0, TIMES));
            assert!((1..=40).contains(&made), "{made}");
            driver.capture(Some(stream));
            let calls = driver.calls("cuEventQuery", || fixture.enqueue_released(0, TIMES));
            assert_eq!(calls, 0);
            driver.capture(None);
            let calls = driver.calls("cuEventQuery", || fixture.enqueue_released(0, 3 * TIMES));
            assert!(calls > 0);
            fixture.end(&driver);
        },
    );
}

/// The status of an event as a number.
fn reported(event: ur_event_handle_t, what: ur_event_info_t) -> u32 {
    let mut reported = u32::MAX;
    let to = (&raw mut reported).cast();
    let code = ur!(Event.pfnGetInfo(event, what, 4, to, null_mut()));
    assert_eq!(code, UR_RESULT_SUCCESS);
    reported
}

/// The native handle 0 stands for a complete event, and the driver gives a handle for it as for any complete
/// event.
#[test]
fn complete_events_have_a_handle() {
    alone("tests::marks::complete_events_have_a_handle", || {
        let driver = FakeDriver::open();
        let fixture = Fixture::new(OWN_STREAM);
        let context = fixture.test_context.context;
        let adopt = |native| {
            let mut event = null_mut();
            let code = ur!(Event.pfnCreateWithNativeHandle(native, context, null(), &mut event));
            assert_eq!(code, UR_RESULT_SUCCESS);
            event
        };
        let filled = fixture.enqueue(0, null_mut());
        assert_eq!(ur!(Event.pfnWait(1, &filled)), UR_RESULT_SUCCESS);
        for event in [adopt(0), filled] {
            let status = reported(event, UR_EVENT_INFO_COMMAND_EXECUTION_STATUS);
            assert_eq!(status, UR_EVENT_STATUS_COMPLETE.0);
            assert_eq!(ur!(Event.pfnWait(1, &event)), UR_RESULT_SUCCESS);
            release(fixture.enqueue(0, event));
            let (mut native, mut again) = (0, 0);
            for native in [&mut native, &mut again] {
                let code = ur!(Event.pfnGetNativeHandle(event, native));
                assert_eq!(code, UR_RESULT_SUCCESS);
            }
            assert_ne!(native, 0);
            assert_eq!(native, again);
            let adopted = adopt(native);
            let status = reported(adopted, UR_EVENT_INFO_COMMAND_EXECUTION_STATUS);
            assert_eq!(status, UR_EVENT_STATUS_COMPLETE.0);
            release(adopted);
            release(event);
        }
        fixture.end(&driver);
    });
}

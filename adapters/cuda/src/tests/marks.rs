//! Records of streams: how many a program needs that never waits, and what is asked about them while
//! somebody captures a stream.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use ur::abi::*;

use super::stage::{Stage, adapter, alone, device, ur};

/// Queues whose commands wait for each other.
const QUEUES: usize = 3;
const TIMES: usize = 1000;

const OWN_STREAM: ur_queue_flags_t = ur_queue_flags_t(0);

/// A stream of nobody's here.
const OTHER: Option<usize> = Some(1);

struct Place {
    adapter: ur_adapter_handle_t,
    context: ur_context_handle_t,
    queues: [ur_queue_handle_t; QUEUES],
    memory: *mut c_void,
}

impl Place {
    fn new(flags: ur_queue_flags_t) -> Self {
        let adapter = adapter();
        let device = device(adapter);
        let (mut context, mut memory) = (null_mut(), null_mut());
        let code = ur!(Context.pfnCreate(1, &device, null(), &mut context));
        assert_eq!(code, UR_RESULT_SUCCESS);
        let code = ur!(USM.pfnHostAlloc(context, null(), null_mut(), 4, &mut memory));
        assert_eq!(code, UR_RESULT_SUCCESS);
        let mut queues = [null_mut(); QUEUES];
        let what = ur_queue_properties_t {
            flags,
            ..Default::default()
        };
        for queue in &mut queues {
            let code = ur!(Queue.pfnCreate(context, device, &what, queue));
            assert_eq!(code, UR_RESULT_SUCCESS);
        }
        #[rustfmt::skip]
        let place = Self { adapter, context, queues, memory };
        place
    }

    /// The stream of a queue, which from now on others may use.
    fn stream(&self, index: usize) -> usize {
        let mut native = 0;
        let code = ur!(Queue.pfnGetNativeHandle(self.queues[index], null_mut(), &mut native));
        assert_eq!(code, UR_RESULT_SUCCESS);
        native
    }

    /// A command after an event, if there is one; and one of its own.
    fn enqueue(&self, index: usize, after: ur_event_handle_t) -> ur_event_handle_t {
        let (count, waits) = match after.is_null() {
            true => (0, null()),
            false => (1, &raw const after),
        };
        let mut event = null_mut();
        let (queue, to, word) = (self.queues[index], self.memory, 7_u32);
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

    /// Commands of one queue, whose events are gone at once.
    fn enqueue_told(&self, index: usize, times: usize) {
        (0..times).for_each(|_| release(self.enqueue(index, null_mut())));
    }

    fn end(self, stage: &Stage) {
        for queue in self.queues {
            assert_eq!(ur!(Queue.pfnFinish(queue)), UR_RESULT_SUCCESS);
            assert_eq!(ur!(Queue.pfnRelease(queue)), UR_RESULT_SUCCESS);
        }
        assert_eq!(
            ur!(USM.pfnFree(self.context, self.memory)),
            UR_RESULT_SUCCESS
        );
        assert_eq!(ur!(Context.pfnRelease(self.context)), UR_RESULT_SUCCESS);
        assert_eq!(ur!(Adapter.pfnRelease(self.adapter)), UR_RESULT_SUCCESS);
        stage.check_end("the end");
    }
}

fn release(event: ur_event_handle_t) {
    if !event.is_null() {
        assert_eq!(ur!(Event.pfnRelease(event)), UR_RESULT_SUCCESS);
    }
}

/// How many times the driver is asked for something while `run` runs.
fn calls(stage: &Stage, name: &str, run: impl FnOnce()) -> u64 {
    stage.count(name);
    run();
    let seen = stage.look();
    assert_eq!(seen.broken, 0, "{}", stage.tell());
    stage.calm();
    seen.calls
}

#[test]
fn queues_that_follow_each_other_need_few_events() {
    alone(
        "tests::marks::queues_that_follow_each_other_need_few_events",
        || {
            let stage = Stage::open();
            for flags in [OWN_STREAM, UR_QUEUE_FLAG_USE_DEFAULT_STREAM] {
                let place = Place::new(flags);
                let made = calls(&stage, "cuEventCreate", || place.pass_on(TIMES));
                assert!((3..=40 * QUEUES as u64).contains(&made), "{made}");
                let asked = calls(&stage, "cuEventQuery", || place.pass_on(TIMES));
                assert!((1..=TIMES as u64 / 10).contains(&asked), "{asked}");
                place.end(&stage);
            }
        },
    );
}

/// What is done is seen to be beside a capture of others', which goes on.
#[test]
fn captures_of_others_go_on() {
    alone("tests::marks::captures_of_others_go_on", || {
        let stage = Stage::open();
        let place = Place::new(OWN_STREAM);
        stage.capture(OTHER);
        let made = calls(&stage, "cuEventCreate", || place.pass_on(TIMES));
        assert!((3..=40 * QUEUES as u64).contains(&made), "{made}");
        stage.capture(None);
        place.end(&stage);
    });
}

/// A stream that others use is recorded for each event. While they capture it, nothing is asked.
#[test]
fn a_stream_of_others_is_asked_unless_it_is_captured() {
    alone(
        "tests::marks::a_stream_of_others_is_asked_unless_it_is_captured",
        || {
            let stage = Stage::open();
            let place = Place::new(OWN_STREAM);
            let stream = place.stream(0);
            let made = calls(&stage, "cuEventCreate", || place.enqueue_told(0, TIMES));
            assert!((1..=40).contains(&made), "{made}");
            stage.capture(Some(stream));
            let asked = calls(&stage, "cuEventQuery", || place.enqueue_told(0, TIMES));
            assert_eq!(asked, 0);
            stage.capture(None);
            let asked = calls(&stage, "cuEventQuery", || place.enqueue_told(0, 3 * TIMES));
            assert!(asked > 0);
            place.end(&stage);
        },
    );
}

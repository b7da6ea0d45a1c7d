//! Small fills that follow each other: how many launches they are, and in which order they are done.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use ur::abi::*;

use super::ground::{Ground, stream_of};
use super::stage::{Stage, alone, ur};

const BYTES: usize = 4096;
const WORDS: usize = BYTES / 8;

/// A queue with memory, in a context of its own.
struct Place {
    ground: Ground,
    queue: ur_queue_handle_t,
}

impl Place {
    fn new(flags: ur_queue_flags_t) -> Self {
        let ground = Ground::new(BYTES);
        let queue = ground.queue(flags);
        let place = Self { ground, queue };
        // Kernels are loaded by whoever is first.
        place.fill(0, 0, WORDS);
        place.memset();
        place.finish();
        place
    }

    fn try_fill(&self, tag: u64, first: usize, words: usize) -> ur_result_t {
        let pattern = [tag | 1 << 40, tag | 2 << 40];
        let to = self.ground.at(8 * first);
        let from = pattern.as_ptr().cast();
        let none = null_mut();
        ur!(Enqueue.pfnUSMFill(self.queue, to, 16, from, 8 * words, 0, null(), none))
    }

    fn fill(&self, tag: u64, first: usize, words: usize) {
        assert_eq!(self.try_fill(tag, first, words), UR_RESULT_SUCCESS);
    }

    /// Something else, over all of it.
    fn memset(&self) {
        let byte = 0_u8;
        let (from, none) = ((&raw const byte).cast(), null_mut());
        let code = ur!(Enqueue.pfnUSMFill(
            self.queue,
            self.ground.memory,
            1,
            from,
            BYTES,
            0,
            null(),
            none
        ));
        assert_eq!(code, UR_RESULT_SUCCESS);
    }

    fn finish(&self) {
        assert_eq!(ur!(Queue.pfnFinish(self.queue)), UR_RESULT_SUCCESS);
    }

    fn words(&self) -> &[u64] {
        // SAFETY: host memory of that size; its own thread alone looks, with nothing pending.
        unsafe { std::slice::from_raw_parts(self.ground.memory.cast(), WORDS) }
    }

    /// What a fill with a tag leaves at a word, by how far that is into it.
    fn is(&self, word: usize, tag: u64, at: usize) -> bool {
        self.words()[word] == (tag | (1 + at as u64 % 2) << 40)
    }

    fn end(self, stage: &Stage) {
        assert_eq!(ur!(Queue.pfnRelease(self.queue)), UR_RESULT_SUCCESS);
        self.ground.end(stage);
    }
}

/// A stream of the driver's that waits until it is let go, and so do those that wait for it.
struct Gate {
    queue: ur_queue_handle_t,
    event: ur_event_handle_t,
    task: ur_event_handle_t,
    open: Box<AtomicBool>,
}

unsafe extern "C" fn wait_at(data: *mut c_void) {
    // SAFETY: the gate's, which stays until the task has ended.
    let open = unsafe { &*data.cast::<AtomicBool>() };
    while !open.load(Ordering::Acquire) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

impl Gate {
    /// Before `place`'s queue.
    fn new(place: &Place) -> Self {
        let queue = place.ground.queue(IN_ORDER);
        // Shown to others, its stream waits by itself.
        stream_of(queue);
        let open = Box::new(AtomicBool::new(false));
        let data = std::ptr::from_ref(&*open).cast_mut().cast();
        let (mut task, mut event) = (null_mut(), null_mut());
        let (none, to) = (null(), &raw mut task);
        let code = ur!(EnqueueExp.pfnHostTaskExp(queue, Some(wait_at), data, null(), 0, none, to));
        assert_eq!(code, UR_RESULT_SUCCESS);
        let code = ur!(Enqueue.pfnEventsWait(queue, 1, &task, &mut event));
        assert_eq!(code, UR_RESULT_SUCCESS);
        let code = ur!(Enqueue.pfnEventsWait(place.queue, 1, &event, null_mut()));
        assert_eq!(code, UR_RESULT_SUCCESS);
        #[rustfmt::skip]
        let gate = Self { queue, event, task, open };
        gate
    }

    fn open(self) {
        self.open.store(true, Ordering::Release);
        assert_eq!(ur!(Queue.pfnFinish(self.queue)), UR_RESULT_SUCCESS);
        for event in [self.event, self.task] {
            assert_eq!(ur!(Event.pfnRelease(event)), UR_RESULT_SUCCESS);
        }
        assert_eq!(ur!(Queue.pfnRelease(self.queue)), UR_RESULT_SUCCESS);
    }
}

const IN_ORDER: ur_queue_flags_t = ur_queue_flags_t(0);

#[test]
fn fills_that_wait_together_are_two_launches() {
    alone(
        "tests::posts::fills_that_wait_together_are_two_launches",
        || {
            let stage = Stage::open();
            let place = Place::new(IN_ORDER);
            for count in [1, 2, 3, 100] {
                let gate = Gate::new(&place);
                let launches = stage.calls("cuLaunchKernelEx", || {
                    (0..count).for_each(|tag| place.fill(tag, tag as usize, 64));
                });
                assert_eq!(launches, count.min(2), "{count} fills");
                assert!(
                    place.words().iter().all(|word| *word == 0),
                    "before its time"
                );
                gate.open();
                place.finish();
                for word in 0..count as usize + 63 {
                    // The last that was put over it.
                    let tag = word.min(count as usize - 1);
                    assert!(
                        place.is(word, tag as u64, word - tag),
                        "word {word} of {count}"
                    );
                }
                place.memset();
                place.finish();
            }
            place.end(&stage);
        },
    );
}

/// A launch that is still to come takes nothing that comes after something else.
#[test]
fn what_comes_between_stays_between() {
    alone("tests::posts::what_comes_between_stays_between", || {
        let stage = Stage::open();
        let place = Place::new(IN_ORDER);
        let gate = Gate::new(&place);
        for tag in 0..6 {
            place.fill(tag, 0, WORDS);
        }
        place.memset();
        for tag in 6..12 {
            place.fill(tag, 10 * (tag as usize - 6), 4);
        }
        // A wait is something else, too.
        let mut event = null_mut();
        let code = ur!(Enqueue.pfnEventsWaitWithBarrier(gate.queue, 0, null(), &mut event));
        assert_eq!(code, UR_RESULT_SUCCESS);
        let code = ur!(Enqueue.pfnEventsWait(place.queue, 1, &event, null_mut()));
        assert_eq!(code, UR_RESULT_SUCCESS);
        for tag in 12..15 {
            place.fill(tag, 300, 8);
        }
        gate.open();
        place.finish();
        assert_eq!(ur!(Event.pfnRelease(event)), UR_RESULT_SUCCESS);
        for (word, found) in place.words().iter().enumerate() {
            let right = match word {
                300..308 => place.is(word, 14, word - 300),
                0..60 if word % 10 < 4 => place.is(word, 6 + word as u64 / 10, word % 10),
                _ => *found == 0,
            };
            assert!(right, "word {word} is {found:x}");
        }
        place.end(&stage);
    });
}

/// Where there is no room for more, they go by themselves, and none is lost.
#[test]
fn more_than_there_is_room_for() {
    alone("tests::posts::more_than_there_is_room_for", || {
        let stage = Stage::open();
        let place = Place::new(IN_ORDER);
        let gate = Gate::new(&place);
        let launches = stage.calls("cuLaunchKernelEx", || {
            (0..300).for_each(|tag| place.fill(tag, tag as usize, 2));
        });
        // The first, the 128 that are posted as one, the rest.
        assert_eq!(launches, 1 + 1 + 171);
        gate.open();
        place.finish();
        let right = |tag: usize| place.is(tag, tag as u64, 0);
        assert!((0..300).all(right));
        // There is room again.
        let again = stage.calls("cuMemHostAlloc", || place.fill(7, 0, WORDS));
        assert_eq!(again, 0);
        place.finish();
        assert!((0..WORDS).all(|word| place.is(word, 7, word)));
        place.end(&stage);
    });
}

/// Where others may put work in between, or wait for the default stream, each is a launch.
#[test]
fn streams_that_others_use_get_each_by_itself() {
    alone(
        "tests::posts::streams_that_others_use_get_each_by_itself",
        || {
            let stage = Stage::open();
            for flags in [
                UR_QUEUE_FLAG_USE_DEFAULT_STREAM,
                UR_QUEUE_FLAG_SYNC_WITH_DEFAULT_STREAM,
                IN_ORDER,
            ] {
                let place = Place::new(flags);
                if flags == IN_ORDER {
                    (0..4).for_each(|tag| place.fill(tag, 0, WORDS));
                    stream_of(place.queue);
                }
                let launches = stage.calls("cuLaunchKernelEx", || {
                    (0..10).for_each(|tag| place.fill(tag, 0, WORDS));
                });
                assert_eq!(launches, 10, "{flags:?}");
                place.finish();
                assert!((0..WORDS).all(|word| place.is(word, 9, word)));
                place.end(&stage);
            }
        },
    );
}

/// One that is refused is never done, and those after it are.
#[test]
fn a_launch_that_fails_takes_its_fill_with_it() {
    alone(
        "tests::posts::a_launch_that_fails_takes_its_fill_with_it",
        || {
            let stage = Stage::open();
            let place = Place::new(IN_ORDER);
            for nth in 1..=2 {
                let gate = Gate::new(&place);
                stage.fail_nth("cuLaunchKernelEx", nth, 2);
                let codes = [0, 1].map(|tag| place.try_fill(tag, 16 * tag as usize, 16));
                stage.calm();
                let refused = UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
                assert_eq!(codes[nth as usize - 1], refused, "{codes:?}");
                assert_eq!(codes[2 - nth as usize], UR_RESULT_SUCCESS);
                (2..9).for_each(|tag| place.fill(tag, 16 * tag as usize, 16));
                gate.open();
                place.finish();
                for tag in 0..9 {
                    let done = (0..16).all(|at| place.is(16 * tag as usize + at, tag, at));
                    assert_eq!(done, tag != nth - 1, "fill {tag}, when the {nth}. failed");
                }
                place.memset();
                place.finish();
            }
            // Without memory to post in each goes by itself.
            let before = place.queue;
            let fresh = Place {
                queue: place.ground.queue(IN_ORDER),
                ..place
            };
            stage.fail_each("cuMemHostAlloc", 2);
            (0..20).for_each(|tag| fresh.fill(tag, 0, WORDS));
            stage.calm();
            fresh.finish();
            assert!((0..WORDS).all(|word| fresh.is(word, 19, word)));
            assert_eq!(ur!(Queue.pfnRelease(before)), UR_RESULT_SUCCESS);
            fresh.end(&stage);
        },
    );
}

//! Small fills in succession: their number of launches and their order.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use ur::abi::*;

use super::fake_driver::{FakeDriver, alone, ur};
use super::test_context::{TestContext, stream_of};

const BYTES: usize = 4096;
const WORDS: usize = BYTES / 8;

/// A queue with memory, in a context of its own.
struct Fixture {
    test_context: TestContext,
    queue: ur_queue_handle_t,
}

impl Fixture {
    fn new(flags: ur_queue_flags_t) -> Self {
        let test_context = TestContext::new(BYTES);
        let queue = test_context.queue(flags);
        let fixture = Self {
            test_context,
            queue,
        };
        // The first fill loads the kernels.
        fixture.fill(0, 0, WORDS);
        fixture.memset();
        fixture.finish();
        fixture
    }

    fn try_fill(&self, tag: u64, first: usize, words: usize) -> ur_result_t {
        let pattern = [tag | 1 << 40, tag | 2 << 40];
        let to = self.test_context.at(8 * first);
        let from = pattern.as_ptr().cast();
        let none = null_mut();
        ur!(Enqueue.pfnUSMFill(self.queue, to, 16, from, 8 * words, 0, null(), none))
    }

    fn fill(&self, tag: u64, first: usize, words: usize) {
        assert_eq!(self.try_fill(tag, first, words), UR_RESULT_SUCCESS);
    }

    /// Another command over all of the memory.
    fn memset(&self) {
        let byte = 0_u8;
        let (from, none) = ((&raw const byte).cast(), null_mut());
        let code = ur!(Enqueue.pfnUSMFill(
            self.queue,
            self.test_context.memory,
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
        // SAFETY: host memory of that size, accessed by its own thread alone, with no command pending.
        unsafe { std::slice::from_raw_parts(self.test_context.memory.cast(), WORDS) }
    }

    /// The value of a word after a fill with a tag, by the word's index in the fill.
    fn is(&self, word: usize, tag: u64, at: usize) -> bool {
        self.words()[word] == (tag | (1 + at as u64 % 2) << 40)
    }

    fn end(self, driver: &FakeDriver) {
        assert_eq!(ur!(Queue.pfnRelease(self.queue)), UR_RESULT_SUCCESS);
        self.test_context.end(driver);
    }
}

/// A stream of the driver that waits until the test releases it. Streams that depend on it wait, too.
struct Gate {
    queue: ur_queue_handle_t,
    event: ur_event_handle_t,
    task: ur_event_handle_t,
    open: Box<AtomicBool>,
}

unsafe extern "C" fn wait_at(data: *mut c_void) {
    // SAFETY: the gate outlives the task.
    let open = unsafe { &*data.cast::<AtomicBool>() };
    while !open.load(Ordering::Acquire) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

impl Gate {
    /// Blocks `fixture`'s queue.
    fn new(fixture: &Fixture) -> Self {
        let queue = fixture.test_context.queue(IN_ORDER);
        // The stream of a queue whose native handle was given out waits by itself.
        stream_of(queue);
        let open = Box::new(AtomicBool::new(false));
        let data = std::ptr::from_ref(&*open).cast_mut().cast();
        let (mut task, mut event) = (null_mut(), null_mut());
        let (none, to) = (null(), &raw mut task);
        let code = ur!(EnqueueExp.pfnHostTaskExp(queue, Some(wait_at), data, null(), 0, none, to));
        assert_eq!(code, UR_RESULT_SUCCESS);
        let code = ur!(Enqueue.pfnEventsWait(queue, 1, &task, &mut event));
        assert_eq!(code, UR_RESULT_SUCCESS);
        let code = ur!(Enqueue.pfnEventsWait(fixture.queue, 1, &event, null_mut()));
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
fn pending_fills_are_two_launches() {
    alone("tests::mailbox::pending_fills_are_two_launches", || {
        let driver = FakeDriver::open();
        let fixture = Fixture::new(IN_ORDER);
        for count in [1, 2, 3, 100] {
            let gate = Gate::new(&fixture);
            let launches = driver.calls("cuLaunchKernelEx", || {
                (0..count).for_each(|tag| fixture.fill(tag, tag as usize, 64));
            });
            assert_eq!(launches, count.min(2), "{count} fills");
            assert!(
                fixture.words().iter().all(|word| *word == 0),
                "before its time"
            );
            gate.open();
            fixture.finish();
            for word in 0..count as usize + 63 {
                // The tag of the last fill over the word.
                let tag = word.min(count as usize - 1);
                assert!(
                    fixture.is(word, tag as u64, word - tag),
                    "word {word} of {count}"
                );
            }
            fixture.memset();
            fixture.finish();
        }
        fixture.end(&driver);
    });
}

/// A pending launch takes no fills that come after another command.
#[test]
fn commands_between_fills_stay_between() {
    alone(
        "tests::mailbox::commands_between_fills_stay_between",
        || {
            let driver = FakeDriver::open();
            let fixture = Fixture::new(IN_ORDER);
            let gate = Gate::new(&fixture);
            for tag in 0..6 {
                fixture.fill(tag, 0, WORDS);
            }
            fixture.memset();
            for tag in 6..12 {
                fixture.fill(tag, 10 * (tag as usize - 6), 4);
            }
            // A wait counts as another command, too.
            let mut event = null_mut();
            let code = ur!(Enqueue.pfnEventsWaitWithBarrier(gate.queue, 0, null(), &mut event));
            assert_eq!(code, UR_RESULT_SUCCESS);
            let code = ur!(Enqueue.pfnEventsWait(fixture.queue, 1, &event, null_mut()));
            assert_eq!(code, UR_RESULT_SUCCESS);
            for tag in 12..15 {
                fixture.fill(tag, 300, 8);
            }
            gate.open();
            fixture.finish();
            assert_eq!(ur!(Event.pfnRelease(event)), UR_RESULT_SUCCESS);
            for (word, found) in fixture.words().iter().enumerate() {
                let right = match word {
                    300..308 => fixture.is(word, 14, word - 300),
                    0..60 if word % 10 < 4 => fixture.is(word, 6 + word as u64 / 10, word % 10),
                    _ => *found == 0,
                };
                assert!(right, "word {word} is {found:x}");
            }
            fixture.end(&driver);
        },
    );
}

/// Fills that the mailbox has no room for are launched by themselves, and none is lost.
#[test]
fn more_fills_than_the_mailbox_holds() {
    alone("tests::mailbox::more_fills_than_the_mailbox_holds", || {
        let driver = FakeDriver::open();
        let fixture = Fixture::new(IN_ORDER);
        let gate = Gate::new(&fixture);
        let launches = driver.calls("cuLaunchKernelEx", || {
            (0..300).for_each(|tag| fixture.fill(tag, tag as usize, 2));
        });
        // The first fill, the 128 in one mailbox, and the rest.
        assert_eq!(launches, 1 + 1 + 171);
        gate.open();
        fixture.finish();
        let right = |tag: usize| fixture.is(tag, tag as u64, 0);
        assert!((0..300).all(right));
        // The mailbox has room again.
        let again = driver.calls("cuMemHostAlloc", || fixture.fill(7, 0, WORDS));
        assert_eq!(again, 0);
        fixture.finish();
        assert!((0..WORDS).all(|word| fixture.is(word, 7, word)));
        fixture.end(&driver);
    });
}

/// Where foreign work may come between fills, or wait for the default stream, each fill is a launch.
#[test]
fn foreign_streams_get_each_fill_by_itself() {
    alone(
        "tests::mailbox::foreign_streams_get_each_fill_by_itself",
        || {
            let driver = FakeDriver::open();
            for flags in [
                UR_QUEUE_FLAG_USE_DEFAULT_STREAM,
                UR_QUEUE_FLAG_SYNC_WITH_DEFAULT_STREAM,
                IN_ORDER,
            ] {
                let fixture = Fixture::new(flags);
                if flags == IN_ORDER {
                    (0..4).for_each(|tag| fixture.fill(tag, 0, WORDS));
                    stream_of(fixture.queue);
                }
                let launches = driver.calls("cuLaunchKernelEx", || {
                    (0..10).for_each(|tag| fixture.fill(tag, 0, WORDS));
                });
                assert_eq!(launches, 10, "{flags:?}");
                fixture.finish();
                assert!((0..WORDS).all(|word| fixture.is(word, 9, word)));
                fixture.end(&driver);
            }
        },
    );
}

/// A refused fill never runs, and those after it do.
#[test]
fn a_failed_launch_cancels_its_fills() {
    alone("tests::mailbox::a_failed_launch_cancels_its_fills", || {
        let driver = FakeDriver::open();
        let fixture = Fixture::new(IN_ORDER);
        for nth in 1..=2 {
            let gate = Gate::new(&fixture);
            driver.fail_nth("cuLaunchKernelEx", nth, 2);
            let codes = [0, 1].map(|tag| fixture.try_fill(tag, 16 * tag as usize, 16));
            driver.reset();
            let refused = UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
            assert_eq!(codes[nth as usize - 1], refused, "{codes:?}");
            assert_eq!(codes[2 - nth as usize], UR_RESULT_SUCCESS);
            (2..9).for_each(|tag| fixture.fill(tag, 16 * tag as usize, 16));
            gate.open();
            fixture.finish();
            for tag in 0..9 {
                let done = (0..16).all(|at| fixture.is(16 * tag as usize + at, tag, at));
                assert_eq!(done, tag != nth - 1, "fill {tag}, when the {nth}. failed");
            }
            fixture.memset();
            fixture.finish();
        }
        // Without memory for a mailbox each fill is launched by itself.
        let before = fixture.queue;
        let fresh = Fixture {
            queue: fixture.test_context.queue(IN_ORDER),
            ..fixture
        };
        driver.fail_each("cuMemHostAlloc", 2);
        (0..20).for_each(|tag| fresh.fill(tag, 0, WORDS));
        driver.reset();
        fresh.finish();
        assert!((0..WORDS).all(|word| fresh.is(word, 19, word)));
        assert_eq!(ur!(Queue.pfnRelease(before)), UR_RESULT_SUCCESS);
        fresh.end(&driver);
    });
}

/// With `UR_CUDA_MAILBOX_FILLS=0` each fill is a launch, and no memory is shared with the device.
#[test]
fn the_variable_turns_mailboxes_off() {
    alone("tests::mailbox::the_variable_turns_mailboxes_off", || {
        // SAFETY: no other thread of this process runs yet.
        unsafe { std::env::set_var("UR_CUDA_MAILBOX_FILLS", "0") };
        let driver = FakeDriver::open();
        let fixture = Fixture::new(IN_ORDER);
        let gate = Gate::new(&fixture);
        let allocations = driver.calls("cuMemHostAlloc", || {
            let launches = driver.calls("cuLaunchKernelEx", || {
                (0..10).for_each(|tag| fixture.fill(tag, 0, WORDS));
            });
            assert_eq!(launches, 10);
        });
        assert_eq!(allocations, 0);
        gate.open();
        fixture.finish();
        assert!((0..WORDS).all(|word| fixture.is(word, 9, word)));
        fixture.end(&driver);
    });
}

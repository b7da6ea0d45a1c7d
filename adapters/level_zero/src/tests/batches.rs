//! Batches: what submits one and what does not, and what becomes of one whose submission fails.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use ur::abi::*;

use super::fake_driver::{alone, alone_with, case, ur};
use super::faults::{MEMORY, UNKNOWN};
use super::reported::{Own, ok};
use super::workload::{SIZE, Steps, arguments, host, iota, read};

/// Commands of a full batch in these tests.
const FULL: usize = 8;
const SIZES: &[(&str, &str)] = &[("UR_L0_BATCH_SIZE", "8")];

const USUAL: ur_queue_flags_t = ur_queue_flags_t(0);
const BATCHED: ur_queue_flags_t = UR_QUEUE_FLAG_SUBMISSION_BATCHED;

const APPEND: &str = "zeCommandListImmediateAppendCommandListsExp";

/// A batched queue, and memory that its commands write.
struct Batched {
    own: Own,
    queue: ur_queue_handle_t,
    memory: *mut c_void,
}

impl Batched {
    fn new(flags: ur_queue_flags_t) -> Self {
        let own = Own::new();
        let queue = own.queue(0, flags);
        let (mut memory, device) = (null_mut(), own.devices[0]);
        let pool = null_mut();
        ok(ur!(USM.pfnSharedAlloc(
            own.context,
            device,
            null(),
            pool,
            SIZE,
            &mut memory
        )));
        own.driver.reset();
        Self { own, queue, memory }
    }

    fn fill(&self, byte: u8, event: *mut ur_event_handle_t) -> ur_result_t {
        let from = (&raw const byte).cast();
        ur!(Enqueue.pfnUSMFill(self.queue, self.memory, 1, from, SIZE, 0, null(), event))
    }

    /// Fills the memory with 1 to this number, one after the other.
    fn fills(&self, count: usize) {
        (1..=count).for_each(|byte| ok(self.fill(byte as u8, null_mut())));
    }

    /// Batches submitted since the last script.
    fn submitted(&self) -> u64 {
        self.count(APPEND)
    }

    fn count(&self, function: &str) -> u64 {
        self.own.driver.counts().get(function).copied().unwrap_or(0)
    }

    fn holds(&self, byte: u8) {
        ok(ur!(Queue.pfnFinish(self.queue)));
        assert_eq!(read(self.memory, SIZE), [byte; SIZE]);
    }

    fn end(self) {
        self.own.free(&[self.memory]);
        self.own.end(&[self.queue]);
    }
}

fn release(event: ur_event_handle_t) {
    ok(ur!(Event.pfnRelease(event)));
}

#[test]
fn a_full_batch_is_submitted() {
    let name = "tests::batches::a_full_batch_is_submitted";
    alone_with(name, SIZES, || {
        for flags in [BATCHED, BATCHED | UR_QUEUE_FLAG_PROFILING_ENABLE] {
            let all = Batched::new(flags);
            all.fills(FULL - 1);
            assert_eq!(all.submitted(), 0, "before the batch is full");
            all.fills(1);
            assert_eq!(all.submitted(), 1);
            all.fills(2 * FULL - 1);
            assert_eq!(all.submitted(), 2);
            all.holds((2 * FULL - 1) as u8);
            assert_eq!(all.submitted(), 3);
            all.end();
        }
    });
}

/// What somebody does with the event of a batched command.
type Use = fn(&Batched, ur_event_handle_t);

fn query(_: &Batched, event: ur_event_handle_t) {
    let mut status = UR_EVENT_STATUS_QUEUED;
    let (bytes, what) = (size_of_val(&status), UR_EVENT_INFO_COMMAND_EXECUTION_STATUS);
    let out = (&raw mut status).cast();
    ok(ur!(Event.pfnGetInfo(event, what, bytes, out, null_mut())));
}

fn wait(_: &Batched, event: ur_event_handle_t) {
    ok(ur!(Event.pfnWait(1, &event)));
}

fn flush(all: &Batched, _: ur_event_handle_t) {
    ok(ur!(Queue.pfnFlush(all.queue)));
}

fn finish(all: &Batched, _: ur_event_handle_t) {
    ok(ur!(Queue.pfnFinish(all.queue)));
}

fn is_empty(all: &Batched, _: ur_event_handle_t) {
    let (mut empty, what) = (0_u8, UR_QUEUE_INFO_EMPTY);
    let out = (&raw mut empty).cast();
    ok(ur!(Queue.pfnGetInfo(all.queue, what, 1, out, null_mut())));
}

fn wait_elsewhere(all: &Batched, event: ur_event_handle_t) {
    let other = all.own.queue(0, USUAL);
    let mut end = null_mut();
    ok(ur!(Enqueue.pfnEventsWait(other, 1, &event, &mut end)));
    assert_eq!(all.submitted(), 1, "the other queue's list may wait for it");
    ok(ur!(Queue.pfnFinish(other)));
    release(end);
    ok(ur!(Queue.pfnRelease(other)));
}

fn native_queue(all: &Batched, _: ur_event_handle_t) {
    let mut native = 0;
    ok(ur!(Queue.pfnGetNativeHandle(
        all.queue,
        null_mut(),
        &mut native
    )));
}

fn native_event(_: &Batched, event: ur_event_handle_t) {
    let mut native = 0;
    ok(ur!(Event.pfnGetNativeHandle(event, &mut native)));
}

/// A command with memory that no list can hold.
fn copy_to_host(all: &Batched, _: ur_event_handle_t) {
    let (to, from) = (host(3).cast(), all.memory);
    let none = null_mut();
    ok(ur!(Enqueue.pfnUSMMemcpy(
        all.queue,
        false as _,
        to,
        from,
        SIZE,
        0,
        null(),
        none
    )));
}

fn wait_in_the_queue(all: &Batched, _: ur_event_handle_t) {
    let other = all.own.queue(1, USUAL);
    let mut before = null_mut();
    let none = null_mut();
    let memory = all.own.device_memory(1, SIZE);
    let byte = 1_u8;
    let from = (&raw const byte).cast();
    ok(ur!(Enqueue.pfnUSMFill(
        other,
        memory,
        1,
        from,
        SIZE,
        0,
        null(),
        &mut before
    )));
    ok(ur!(Enqueue.pfnEventsWait(all.queue, 1, &before, none)));
    ok(ur!(Queue.pfnFinish(other)));
    release(before);
    all.own.free(&[memory]);
    ok(ur!(Queue.pfnRelease(other)));
}

/// What needs the commands of a batch submits it, and is what did so.
#[test]
fn a_batch_is_submitted_when_it_is_needed() {
    let uses: &[(&str, Use)] = &[
        ("a query", query),
        ("a wait", wait),
        ("a flush", flush),
        ("a finish", finish),
        ("a question of the queue", is_empty),
        ("a wait of another queue", wait_elsewhere),
        ("the queue's native handle", native_queue),
        ("the event's native handle", native_event),
        ("a command of its own", copy_to_host),
    ];
    alone(
        "tests::batches::a_batch_is_submitted_when_it_is_needed",
        || {
            for (name, use_it) in uses {
                case(name);
                let all = Batched::new(BATCHED);
                let mut event = null_mut();
                all.fills(2);
                ok(all.fill(3, &mut event));
                assert_eq!(all.submitted(), 0, "before {name}");
                use_it(&all, event);
                assert_eq!(all.submitted(), 1, "{name}");
                all.holds(3);
                assert_eq!(all.submitted(), 1, "{name} submitted everything");
                release(event);
                all.end();
            }
        },
    );
}

#[test]
fn a_wait_of_the_queue_parts_a_batch() {
    alone("tests::batches::a_wait_of_the_queue_parts_a_batch", || {
        let all = Batched::new(BATCHED);
        all.fills(3);
        wait_in_the_queue(&all, null_mut());
        all.holds(3);
        all.end();
    });
}

/// A queue that goes with a batch runs it.
#[test]
fn a_released_queue_submits_its_batch() {
    alone("tests::batches::a_released_queue_submits_its_batch", || {
        let Batched { own, queue, memory } = Batched::new(BATCHED);
        let byte = 7_u8;
        let from = (&raw const byte).cast();
        let mut event = null_mut();
        ok(ur!(Enqueue.pfnUSMFill(
            queue,
            memory,
            1,
            from,
            SIZE,
            0,
            null(),
            &mut event
        )));
        release(event);
        ok(ur!(Queue.pfnRelease(queue)));
        // Of everything in the context.
        ok(ur!(DeviceExp.pfnWaitExp(own.devices[0])));
        assert_eq!(read(memory, SIZE), [7; SIZE]);
        assert_eq!(own.driver.counts().get(APPEND), Some(&1));
        own.free(&[memory]);
        own.end(&[]);
    });
}

/// Once foreign code has the list, it may add commands at any time.
#[test]
fn a_queue_with_a_native_handle_batches_nothing() {
    alone(
        "tests::batches::a_queue_with_a_native_handle_batches_nothing",
        || {
            let all = Batched::new(BATCHED);
            native_queue(&all, null_mut());
            all.fills(3);
            all.holds(3);
            assert_eq!((all.submitted(), all.count("zeCommandListCreate")), (0, 0));
            all.end();
        },
    );
}

#[test]
fn events_and_allocations_submit_nothing() {
    alone(
        "tests::batches::events_and_allocations_submit_nothing",
        || {
            let all = Batched::new(BATCHED);
            for byte in 1..=40 {
                let mut event = null_mut();
                ok(all.fill(byte, &mut event));
                let other = all.own.device_memory(0, SIZE);
                all.own.free(&[other]);
                release(event);
            }
            assert_eq!(all.submitted(), 0);
            all.holds(40);
            assert_eq!(all.submitted(), 1);
            all.end();
        },
    );
}

/// A list is used again once its batch is complete.
#[test]
fn batches_share_their_lists() {
    alone_with("tests::batches::batches_share_their_lists", SIZES, || {
        let all = Batched::new(BATCHED);
        for _ in 0..50 {
            all.fills(FULL);
            all.holds(FULL as u8);
        }
        assert_eq!((all.submitted(), all.count("zeCommandListCreate")), (50, 1));
        all.end();
    });
}

/// The driver uses a kernel of a list that is not complete.
#[test]
fn a_batch_keeps_its_kernels() {
    alone("tests::batches::a_batch_keeps_its_kernels", || {
        let all = Batched::new(BATCHED);
        let (program, kernel) = iota(&mut Steps::default(), all.own.context);
        let (first, zero, global, local) = (3_u32, 0_usize, 100_usize, 10_usize);
        let args = arguments(all.memory, &first);
        for _ in 0..2 {
            ok(ur!(EnqueueExp.pfnKernelLaunchWithArgsExp(
                all.queue,
                kernel,
                1,
                &zero,
                &global,
                &local,
                2,
                args.as_ptr(),
                null(),
                0,
                null(),
                null_mut()
            )));
        }
        assert_eq!(all.count("zeCommandListAppendLaunchKernel"), 2);
        assert_eq!(all.submitted(), 0);
        all.own.driver.reset();
        ok(ur!(Kernel.pfnRelease(kernel)));
        ok(ur!(Program.pfnRelease(program)));
        // Time for a thread of the engine's, which must not submit the batch.
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!((all.count("zeKernelDestroy"), all.submitted()), (0, 0));
        ok(ur!(Queue.pfnFinish(all.queue)));
        // That of the other device.
        assert_eq!(all.count("zeKernelDestroy"), 1);
        all.fills(1);
        all.holds(1);
        assert_eq!(all.count("zeKernelDestroy"), 2);
        all.end();
    });
}

/// The step of a submission that fails is tried again, and nothing is lost.
#[test]
fn a_failed_submission_is_tried_again() {
    alone_with(
        "tests::batches::a_failed_submission_is_tried_again",
        SIZES,
        || {
            let steps = [
                "zeCommandListClose",
                APPEND,
                "zeCommandListAppendSignalEvent",
            ];
            for (native, code) in [MEMORY, UNKNOWN] {
                for step in steps {
                    case(step);
                    let all = Batched::new(BATCHED);
                    let mut event = null_mut();
                    all.fills(2);
                    ok(all.fill(3, &mut event));
                    all.own.driver.fail_nth(step, 1, native);
                    assert_eq!(ur!(Queue.pfnFlush(all.queue)), code, "{step}");
                    // A closed list takes no further command.
                    all.fills(4);
                    wait(&all, event);
                    all.holds(4);
                    release(event);
                    all.own.driver.fail_nth(step, 1, native);
                    all.fills(FULL - 1);
                    assert_eq!(all.fill(9, null_mut()), code, "{step} of a full batch");
                    all.holds(9);
                    all.end();
                }
            }
        },
    );
}

/// A failed submission is tried again even if the queue is released meanwhile.
#[test]
fn a_failed_submission_of_a_released_queue_is_tried_again() {
    let name = "tests::batches::a_failed_submission_of_a_released_queue_is_tried_again";
    alone(name, || {
        let steps = [
            "zeCommandListClose",
            APPEND,
            "zeCommandListAppendSignalEvent",
        ];
        for step in steps {
            case(step);
            let Batched { own, queue, memory } = Batched::new(BATCHED);
            let byte = 7_u8;
            let from = (&raw const byte).cast();
            ok(ur!(Enqueue.pfnUSMFill(
                queue,
                memory,
                1,
                from,
                SIZE,
                0,
                null(),
                null_mut()
            )));
            own.driver.fail_nth(step, 1, MEMORY.0);
            ok(ur!(Queue.pfnRelease(queue)));
            // SAFETY: the test's memory, which the host can read.
            while unsafe { memory.cast::<u8>().read_volatile() } != 7 {
                std::thread::yield_now();
            }
            own.free(&[memory]);
            own.end(&[]);
        }
    });
}

/// Whether a usual queue, a batched one and an immediate one batch, as the child process finds it here.
const EXPECTED: &str = "BATCHES_EXPECTED";

/// Which queues batch by the variables.
#[test]
fn variables_choose_the_queues() {
    let cases: [(&[(&str, &str)], &str); 4] = [
        (&[], "010"),
        (&[("UR_L0_USE_IMMEDIATE_COMMANDLISTS", "0")], "110"),
        (&[("UR_L0_V2_FORCE_BATCHED", "1")], "111"),
        // Each command is complete when its call returns.
        (
            &[("UR_L0_SERIALIZE", "2"), ("UR_L0_V2_FORCE_BATCHED", "1")],
            "000",
        ),
    ];
    for (variables, expected) in cases {
        let variables = [variables, &[(EXPECTED, expected)]].concat();
        let name = "tests::batches::variables_choose_the_queues";
        alone_with(name, &variables, || {
            let flags = [USUAL, BATCHED, UR_QUEUE_FLAG_SUBMISSION_IMMEDIATE];
            let found = flags.map(|flags| {
                let all = Batched::new(flags);
                all.fills(2);
                all.holds(2);
                let submitted = all.submitted();
                all.end();
                submitted.to_string()
            });
            assert_eq!(std::env::var(EXPECTED), Ok(found.concat()));
        });
    }
}

//! A device that waits for foreign code, which goes on once a call of the adapter has returned.
//!
//! The driver may wait for the device in calls that free something, and lets no other call return meanwhile.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use ur::abi::*;

use super::fake_driver::{FakeDriver, alone_with, ur};
use super::foreign::Foreign;
use super::launching::launch;
use super::test_context::{TestContext, stream_of};
use super::workload::{SIZE, task};

/// Time after which a call counts as one that does not return.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Calls `run` while a stream is held back until `word`, which is 0, changes. Whether it returned by itself. The device
/// reads the word until the stream goes on, which may be later.
fn returns_while_held(
    foreign: &Foreign,
    (stream, word): (usize, &AtomicU32),
    run: impl FnOnce(),
) -> bool {
    returns_within(word, || {
        foreign.hold(stream, word);
        run();
    })
}

/// Whether `run` returns within the time limit. Then, or at its end, the word becomes 1.
fn returns_within(word: &AtomicU32, run: impl FnOnce()) -> bool {
    let late = AtomicBool::new(false);
    let (returned, returns) = channel::<()>();
    std::thread::scope(|scope| {
        let late = &late;
        scope.spawn(move || {
            late.store(returns.recv_timeout(TIMEOUT).is_err(), Ordering::Relaxed);
            word.store(1, Ordering::Release);
        });
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

/// The data of a native command that makes its queue's stream wait for the word.
struct Hold<'a> {
    foreign: &'a Foreign,
    word: &'a AtomicU32,
}

unsafe extern "C" fn hold(queue: ur_queue_handle_t, data: *mut c_void) {
    // SAFETY: the data of `beside_native_work`, which outlives the call.
    let hold = unsafe { &*data.cast::<Hold>() };
    hold.foreign.hold(stream_of(queue), hold.word);
}

/// A command by its name: it is enqueued on a queue.
type Command<'a> = (
    &'static str,
    Box<dyn Fn(ur_queue_handle_t) -> ur_result_t + 'a>,
);

/// No command waits for native work of its own out-of-order queue or of another queue, in its call, once each has run
/// before.
#[test]
fn commands_return_beside_native_work() {
    let name = "tests::held::commands_return_beside_native_work";
    let strict = [("SCRIPTED_CUDA_STRICT", "2")];
    alone_with(name, &strict, || {
        let driver = FakeDriver::open();
        let test_context = TestContext::new(2 * SIZE);
        let foreign = Foreign::new();
        beside_native_work(&test_context, &foreign);
        foreign.end_use();
        test_context.end(&driver);
    });
}

fn beside_native_work(test_context: &TestContext, foreign: &Foreign) {
    let (context, device) = (test_context.context, test_context.device);
    let (list, none) = (null(), null_mut());
    let (mut memory, mut buffer) = (null_mut(), null_mut());
    let made = ur!(USM.pfnDeviceAlloc(context, device, null(), null_mut(), SIZE, &mut memory));
    assert_eq!(made, UR_RESULT_SUCCESS);
    let flags = UR_MEM_FLAG_READ_WRITE;
    let made = ur!(Mem.pfnBufferCreate(context, flags, SIZE, null(), &mut buffer));
    assert_eq!(made, UR_RESULT_SUCCESS);
    let (program, kernel) = test_context.kernel(c"nothing");
    let bytes = [3_u8; 64];
    let from: *const c_void = bytes.as_ptr().cast();
    let (near, far) = (test_context.memory, test_context.at(SIZE));
    let count = AtomicU32::new(0);
    let counter: *mut c_void = (&raw const count).cast_mut().cast();
    let mut commands: Vec<Command<'_>> = vec![
        (
            "copy",
            Box::new(|q| {
                ur!(Enqueue.pfnUSMMemcpy(q, false as _, near, memory, SIZE, 0, list, none))
            }),
        ),
        (
            "copy of the host",
            Box::new(
                |q| ur!(Enqueue.pfnUSMMemcpy(q, false as _, memory, far, SIZE, 0, list, none)),
            ),
        ),
        (
            "rows filled",
            Box::new(|q| ur!(Enqueue.pfnUSMFill2D(q, memory, 16, 1, from, 8, 2, 0, list, none))),
        ),
        (
            "rows copied",
            Box::new(|q| {
                ur!(Enqueue
                    .pfnUSMMemcpy2D(q, false as _, near, 16, memory, 16, 8, 2, 0, list, none))
            }),
        ),
        (
            "fill of a buffer",
            Box::new(|q| ur!(Enqueue.pfnMemBufferFill(q, buffer, from, 4, 0, SIZE, 0, list, none))),
        ),
        (
            "write",
            Box::new(|q| {
                ur!(Enqueue.pfnMemBufferWrite(q, buffer, false as _, 0, 64, from, 0, list, none))
            }),
        ),
        (
            "read",
            Box::new(|q| {
                ur!(Enqueue.pfnMemBufferRead(q, buffer, false as _, 0, SIZE, near, 0, list, none))
            }),
        ),
        (
            "wait",
            Box::new(|q| ur!(Enqueue.pfnEventsWait(q, 0, list, none))),
        ),
        (
            "task",
            Box::new(|q| {
                ur!(EnqueueExp.pfnHostTaskExp(q, Some(task), counter, null(), 0, list, none))
            }),
        ),
        (
            "launch",
            Box::new(|q| launch(q, kernel, 1000, &[], &[], null_mut())),
        ),
        (
            "time",
            Box::new(|q| {
                with_event(|event| {
                    ur!(EnqueueExp.pfnTimestampRecordingExp(q, false as _, 0, list, event))
                })
            }),
        ),
        (
            "prefetch",
            Box::new(|q| {
                ur!(Enqueue.pfnUSMPrefetch(
                    q,
                    memory,
                    SIZE,
                    ur_usm_migration_flags_t(0),
                    0,
                    list,
                    none
                ))
            }),
        ),
        ("block", Box::new(block)),
        (
            "event",
            Box::new(|q| {
                with_event(
                    |event| ur!(Enqueue.pfnUSMFill(q, memory, 1, from, SIZE, 0, list, event)),
                )
            }),
        ),
        ("flush", Box::new(|q| ur!(Queue.pfnFlush(q)))),
        (
            "native command",
            Box::new(|q| {
                ur!(EnqueueExp.pfnNativeCommandExp(
                    q,
                    Some(nothing),
                    null_mut(),
                    0,
                    null(),
                    null(),
                    0,
                    list,
                    none
                ))
            }),
        ),
    ];
    for width in [1, 2, 3, 4, 8, 16, 32] {
        let fill =
            move |q| ur!(Enqueue.pfnUSMFill(q, memory, width, from, width * 32, 0, list, none));
        commands.push(("fill", Box::new(fill)));
    }
    let plain = ur_queue_flags_t(0);
    let out_of_order = UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE;
    let queues = [plain, out_of_order, out_of_order].map(|flags| test_context.queue(flags));
    let [in_order, other, holder] = queues;
    let word = AtomicU32::new(1);
    let held = Hold {
        foreign,
        word: &word,
    };
    let holding = || {
        let data = (&raw const held).cast_mut().cast();
        let code = ur!(EnqueueExp.pfnNativeCommandExp(
            holder,
            Some(hold),
            data,
            0,
            null(),
            null(),
            0,
            list,
            none
        ));
        assert_eq!(code, UR_RESULT_SUCCESS);
    };
    holding();
    let finish = || {
        for queue in queues {
            assert_eq!(ur!(Queue.pfnFinish(queue)), UR_RESULT_SUCCESS);
        }
    };
    let on = [in_order, other, holder];
    for queue in on {
        for (name, command) in &commands {
            assert_eq!(command(queue), UR_RESULT_SUCCESS, "{name}, before");
            // A stream may wait for the host task of an earlier command, and the driver for that stream.
            finish();
        }
    }
    for (at, queue) in on.into_iter().enumerate() {
        for (name, command) in &commands {
            word.store(0, Ordering::Relaxed);
            let returned = returns_within(&word, || {
                holding();
                assert_eq!(command(queue), UR_RESULT_SUCCESS, "{name}");
            });
            assert!(returned, "{name} on queue {at}");
            finish();
        }
    }
    for queue in queues {
        assert_eq!(ur!(Queue.pfnRelease(queue)), UR_RESULT_SUCCESS);
    }
    assert_eq!(ur!(Kernel.pfnRelease(kernel)), UR_RESULT_SUCCESS);
    assert_eq!(ur!(Program.pfnRelease(program)), UR_RESULT_SUCCESS);
    assert_eq!(ur!(Mem.pfnRelease(buffer)), UR_RESULT_SUCCESS);
    assert_eq!(ur!(USM.pfnFree(context, memory)), UR_RESULT_SUCCESS);
}

unsafe extern "C" fn nothing(_: ur_queue_handle_t, _: *mut c_void) {}

/// A command's event, which is released at once.
fn with_event(enqueue: impl FnOnce(*mut ur_event_handle_t) -> ur_result_t) -> ur_result_t {
    let mut event = null_mut();
    let code = enqueue(&mut event);
    match code == UR_RESULT_SUCCESS {
        true => ur!(Event.pfnRelease(event)),
        false => code,
    }
}

/// Allocates a block and frees it.
fn block(queue: ur_queue_handle_t) -> ur_result_t {
    let (mut at, pool, none) = (null_mut(), null_mut(), null_mut());
    let code =
        ur!(EnqueueExp.pfnUSMDeviceAllocExp(queue, pool, SIZE, null(), 0, null(), &mut at, none));
    match code == UR_RESULT_SUCCESS {
        true => ur!(EnqueueExp.pfnUSMFreeExp(queue, pool, at, 0, null(), none)),
        false => code,
    }
}

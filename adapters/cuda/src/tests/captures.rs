//! Captures of streams: by foreign code, and of foreign work by a queue.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use ur::abi::*;

use super::fake_driver::{FakeDriver, alone, ur};
use super::foreign::Foreign;
use super::launching::{launch, number, pointer};
use super::test_context::{TestContext, stream_of};
use super::workload::task;

const SIZE: usize = 64;
const UNSUPPORTED: ur_result_t = UR_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED;
const LIVE: ur_queue_flags_t = ur_queue_flags_t(0);

fn ok(code: ur_result_t) {
    assert_eq!(code, UR_RESULT_SUCCESS);
}

fn adopt(test: &TestContext, stream: usize) -> ur_queue_handle_t {
    let (context, device, mut queue) = (test.context, test.device, null_mut());
    ok(ur!(Queue.pfnCreateWithNativeHandle(
        stream,
        context,
        device,
        null(),
        &mut queue
    )));
    queue
}

fn release(queue: ur_queue_handle_t) {
    ok(ur!(Queue.pfnRelease(queue)));
}

fn fill_after(
    queue: ur_queue_handle_t,
    at: *mut c_void,
    byte: u8,
    waits: &[ur_event_handle_t],
    event: *mut ur_event_handle_t,
) -> ur_result_t {
    let (from, list) = ((&raw const byte).cast(), waits.as_ptr());
    let list = if waits.is_empty() { null() } else { list };
    let count = waits.len() as u32;
    ur!(Enqueue.pfnUSMFill(queue, at, 1, from, SIZE, count, list, event))
}

fn fill(queue: ur_queue_handle_t, at: *mut c_void, byte: u8) {
    ok(fill_after(queue, at, byte, &[], null_mut()));
}

fn copy(queue: ur_queue_handle_t, dst: *mut c_void, src: *mut c_void) {
    let (list, event) = (null(), null_mut());
    ok(ur!(
        Enqueue.pfnUSMMemcpy(queue, 0, dst, src, SIZE, 0, list, event)
    ));
}

/// The first byte at an address, if all of them are equal.
fn byte(at: *mut c_void) -> Option<u8> {
    // SAFETY: the context's host memory, which no pending command writes.
    let bytes = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), SIZE) };
    bytes.iter().all(|own| *own == bytes[0]).then(|| bytes[0])
}

fn status(event: ur_event_handle_t) -> ur_event_status_t {
    let mut status = ur_event_status_t(u32::MAX);
    let (what, to) = (
        UR_EVENT_INFO_COMMAND_EXECUTION_STATUS,
        (&raw mut status).cast(),
    );
    ok(ur!(Event.pfnGetInfo(event, what, 4, to, null_mut())));
    status
}

unsafe extern "C" fn fills_third(queue: ur_queue_handle_t, data: *mut c_void) {
    // SAFETY: `native_fill` passes these.
    let (foreign, at) = unsafe { &*data.cast::<(&Foreign, *mut c_void)>() };
    foreign.fill(stream_of(queue), *at, 7, SIZE);
}

/// A native command that fills memory with sevens.
fn native_fill(
    foreign: &Foreign,
    queue: ur_queue_handle_t,
    at: *mut c_void,
    waits: &[ur_event_handle_t],
    event: *mut ur_event_handle_t,
) -> ur_result_t {
    let mut data = (foreign, at);
    let (run, data) = (Some(fills_third as _), (&raw mut data).cast());
    let list = if waits.is_empty() {
        null()
    } else {
        waits.as_ptr()
    };
    let count = waits.len() as u32;
    ur!(EnqueueExp.pfnNativeCommandExp(queue, run, data, 0, null(), null(), count, list, event))
}

fn task_on(queue: ur_queue_handle_t, count: &AtomicU32) -> ur_result_t {
    let data = std::ptr::from_ref(count).cast_mut().cast();
    let (list, event) = (null(), null_mut());
    ur!(EnqueueExp.pfnHostTaskExp(queue, Some(task), data, null(), 0, list, event))
}

/// Each command on a captured stream is recorded, and runs with each launch of the foreign graph.
#[test]
fn a_foreign_capture_records_commands() {
    alone(
        "tests::captures::a_foreign_capture_records_commands",
        || {
            let driver = FakeDriver::open();
            let test = TestContext::new(4096);
            let foreign = Foreign::new();
            let (program, kernel) = test.kernel(c"iota");
            let count = AtomicU32::new(0);
            // Of a queue made from the stream, and of a queue whose own stream was given out.
            let own = foreign.stream();
            let shown = test.queue(LIVE);
            let loose = test.queue(UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE);
            for queue in [adopt(&test, own), shown, loose] {
                let stream = stream_of(queue);
                let [first, second, third, fourth] = [0, 1, 2, 3].map(|at| test.at(at * SIZE));
                fill(queue, first, 1);
                ok(ur!(Queue.pfnFinish(queue)));
                foreign.begin(stream);
                fill(queue, first, 2);
                copy(queue, second, first);
                ok(native_fill(&foreign, queue, third, &[], null_mut()));
                let args = [pointer(0, fourth), number(1, &5)];
                ok(launch(queue, kernel, SIZE / 4, &args, &[], null_mut()));
                ok(ur!(Enqueue.pfnEventsWaitWithBarrier(
                    queue,
                    0,
                    null(),
                    null_mut()
                )));
                ok(task_on(queue, &count));
                ok(ur!(Enqueue.pfnUSMPrefetch(
                    queue,
                    first,
                    SIZE,
                    ur_usm_migration_flags_t(0),
                    0,
                    null(),
                    null_mut()
                )));
                assert_eq!(foreign.status(stream), 1);
                assert_eq!(byte(first), Some(1), "a captured command ran");
                let graph = foreign.end(stream);
                for round in 1..=2 {
                    fill(queue, second, 9);
                    ok(ur!(Queue.pfnFinish(queue)));
                    foreign.run(graph, stream);
                    let read = [byte(first), byte(second), byte(third)];
                    assert_eq!(read, [Some(2), Some(2), Some(7)]);
                    // SAFETY: the launch has ended.
                    assert_eq!(unsafe { fourth.cast::<[u32; 2]>().read() }, [5, 6]);
                    assert_eq!(count.swap(0, Ordering::Relaxed), 1, "round {round}");
                }
                foreign.destroy_graph(graph);
                // The queue goes on.
                fill(queue, first, 3);
                ok(ur!(Queue.pfnFinish(queue)));
                assert_eq!(byte(first), Some(3));
                release(queue);
            }
            foreign.destroy(own);
            ok(ur!(Kernel.pfnRelease(kernel)));
            ok(ur!(Program.pfnRelease(program)));
            foreign.end_use();
            test.end(&driver);
        },
    );
}

/// What cannot be recorded is refused, and the capture stays valid.
#[test]
fn a_foreign_capture_survives_what_it_refuses() {
    let name = "tests::captures::a_foreign_capture_survives_what_it_refuses";
    alone(name, || {
        let driver = FakeDriver::open();
        let test = TestContext::new(4096);
        let foreign = Foreign::new();
        let stream = foreign.stream();
        let (queue, other) = (adopt(&test, stream), test.queue(LIVE));
        let (none, list) = (null_mut(), null());
        let (mut before, mut block) = (null_mut(), null_mut());
        ok(ur!(EnqueueExp.pfnUSMDeviceAllocExp(
            queue,
            null_mut(),
            SIZE,
            null(),
            0,
            list,
            &mut block,
            none
        )));
        ok(fill_after(queue, test.memory, 1, &[], &mut before));
        let count = AtomicU32::new(0);
        let (gate, mut pending) = (Gate::close(other), null_mut());
        ok(fill_after(other, test.at(SIZE), 1, &[], &mut pending));

        foreign.begin(stream);
        let (dst, src) = (test.at(2 * SIZE), test.memory);
        let (mut memory, mut event, mut mapped) = (null_mut(), null_mut(), null_mut());
        let mut buffer = null_mut();
        let flags = UR_MEM_FLAG_READ_WRITE;
        ok(ur!(Mem.pfnBufferCreate(
            test.context,
            flags,
            SIZE,
            null(),
            &mut buffer
        )));
        let refused = [
            ur!(Enqueue.pfnUSMMemcpy(queue, 1, dst, src, SIZE, 0, list, none)),
            ur!(EnqueueExp.pfnUSMDeviceAllocExp(
                queue,
                null_mut(),
                SIZE,
                null(),
                0,
                list,
                &mut memory,
                none
            )),
            ur!(EnqueueExp.pfnUSMFreeExp(queue, null_mut(), block, 0, list, none)),
            ur!(EnqueueExp.pfnTimestampRecordingExp(queue, 0, 0, list, &mut event)),
            ur!(Enqueue.pfnMemBufferMap(
                queue,
                buffer,
                0,
                UR_MAP_FLAG_READ,
                0,
                SIZE,
                0,
                list,
                none,
                &mut mapped
            )),
            ur!(Queue.pfnFinish(queue)),
            // A command that is pending elsewhere: each launch of the graph would have to wait for it.
            ur!(Enqueue.pfnEventsWait(queue, 1, &pending, none)),
            fill_after(queue, dst, 1, &[pending], none),
        ];
        assert_eq!(refused, [UNSUPPORTED; 8]);
        let merges = ur!(QueueExp.pfnBeginGraphCaptureExp(queue));
        assert_eq!(merges, UR_RESULT_ERROR_GRAPH_CAPTURE_MERGE_ATTEMPT);
        assert!(memory.is_null() && event.is_null() && mapped.is_null());
        assert_eq!(
            foreign.status(stream),
            1,
            "a refusal invalidated the capture"
        );

        // Other queues go on, and so does what was enqueued before.
        ok(ur!(Event.pfnWait(1, &before)));
        assert_eq!(status(before), UR_EVENT_STATUS_COMPLETE);
        gate.open();
        ok(ur!(Event.pfnWait(1, &pending)));
        ok(task_on(other, &count));
        ok(ur!(Queue.pfnFinish(other)));
        assert_eq!(count.load(Ordering::Relaxed), 1);
        ok(ur!(EnqueueExp.pfnUSMDeviceAllocExp(
            other,
            null_mut(),
            1 << 20,
            null(),
            0,
            list,
            &mut memory,
            none
        )));
        ok(ur!(EnqueueExp.pfnUSMFreeExp(
            other,
            null_mut(),
            memory,
            0,
            list,
            none
        )));
        ok(ur!(Queue.pfnFinish(other)));
        // What has ended needs no wait.
        ok(fill_after(queue, dst, 4, &[pending, before], none));
        assert_eq!(foreign.status(stream), 1);
        let graph = foreign.end(stream);
        foreign.run(graph, stream);
        assert_eq!(byte(dst), Some(4));
        foreign.destroy_graph(graph);

        ok(ur!(EnqueueExp.pfnUSMFreeExp(
            queue,
            null_mut(),
            block,
            0,
            list,
            none
        )));
        ok(ur!(Queue.pfnFinish(queue)));
        ok(ur!(Mem.pfnRelease(buffer)));
        for event in [before, pending] {
            ok(ur!(Event.pfnRelease(event)));
        }
        for queue in [queue, other] {
            release(queue);
        }
        foreign.destroy(stream);
        foreign.end_use();
        test.end(&driver);
    });
}

/// A host task that keeps a queue until it is opened.
struct Gate(Box<AtomicU32>);

extern "C" fn until_open(data: *mut c_void) {
    // SAFETY: the gate passes its word, which it keeps until the task has ended.
    let word = unsafe { &*data.cast::<AtomicU32>() };
    while word.load(Ordering::Acquire) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    word.store(2, Ordering::Release);
}

impl Gate {
    fn close(queue: ur_queue_handle_t) -> Self {
        let word = Box::new(AtomicU32::new(0));
        let data = std::ptr::from_ref(&*word).cast_mut().cast();
        let (list, event) = (null(), null_mut());
        ok(ur!(EnqueueExp.pfnHostTaskExp(
            queue,
            Some(until_open),
            data,
            null(),
            0,
            list,
            event
        )));
        Self(word)
    }

    fn open(self) {
        self.0.store(1, Ordering::Release);
        while self.0.load(Ordering::Acquire) == 1 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

/// Events of a captured stream join other queues to the capture, and mean nothing outside it.
#[test]
fn queues_join_a_foreign_capture() {
    alone("tests::captures::queues_join_a_foreign_capture", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(4096);
        let foreign = Foreign::new();
        let stream = foreign.stream();
        let (queue, far) = (adopt(&test, stream), test.queue(LIVE));
        let (one, two, three) = (test.memory, test.at(SIZE), test.at(2 * SIZE));
        let mut earlier = null_mut();
        ok(fill_after(far, two, 9, &[], &mut earlier));
        for round in 0..2_u8 {
            foreign.begin(stream);
            let (mut forked, mut joined) = (null_mut(), null_mut());
            ok(fill_after(queue, one, 1 + round, &[], &mut forked));
            assert_eq!(status(forked), UR_EVENT_STATUS_QUEUED);
            let inside = UR_RESULT_ERROR_GRAPH_INTERNAL_EVENT;
            assert_eq!(ur!(Event.pfnWait(1, &forked)), inside);
            ok(fill_after(far, two, 3, &[forked], &mut joined));
            assert_eq!(foreign.status(stream_of(far)), 1);
            // What the joined queue did before is seen to end.
            ok(ur!(Event.pfnWait(1, &earlier)));
            assert_eq!(ur!(Queue.pfnFinish(far)), UNSUPPORTED);
            // Foreign code waits for the native handle of an event, and a queue for the event.
            let mut native = 0;
            ok(ur!(Event.pfnGetNativeHandle(joined, &mut native)));
            foreign.wait(stream, native);
            ok(ur!(Enqueue.pfnEventsWaitWithBarrier(
                queue,
                1,
                &joined,
                null_mut()
            )));
            copy(queue, three, two);
            let graph = foreign.end(stream);
            foreign.run(graph, stream);
            assert_eq!([byte(one), byte(three)], [Some(1 + round), Some(3)]);
            foreign.destroy_graph(graph);
            for event in [forked, joined] {
                assert_eq!(ur!(Event.pfnWait(1, &event)), inside);
                let late = ur!(Enqueue.pfnEventsWait(queue, 1, &event, null_mut()));
                assert_ne!(late, UR_RESULT_SUCCESS);
                ok(ur!(Event.pfnRelease(event)));
            }
            fill(far, two, 5);
            ok(ur!(Queue.pfnFinish(far)));
            assert_eq!(byte(two), Some(5));
        }
        ok(ur!(Event.pfnRelease(earlier)));
        // An unjoined queue is the program's mistake, which the driver reports.
        foreign.begin(stream);
        let mut forked = null_mut();
        ok(fill_after(queue, one, 1, &[], &mut forked));
        ok(fill_after(far, two, 3, &[forked], null_mut()));
        assert_eq!(foreign.try_end(stream), Err(904));
        ok(ur!(Event.pfnRelease(forked)));
        fill(far, two, 6);
        ok(ur!(Queue.pfnFinish(far)));
        for queue in [queue, far] {
            release(queue);
        }
        foreign.destroy(stream);
        foreign.end_use();
        test.end(&driver);
    });
}

/// Foreign code adds a stream of its own to the capture, and joins it through an event that a queue waits for.
#[test]
fn queues_wait_for_foreign_events_of_a_capture() {
    let name = "tests::captures::queues_wait_for_foreign_events_of_a_capture";
    alone(name, || {
        let driver = FakeDriver::open();
        let test = TestContext::new(4096);
        let foreign = Foreign::new();
        let [main, side] = [foreign.stream(), foreign.stream()];
        let queue = adopt(&test, main);
        let (one, two) = (test.memory, test.at(SIZE));
        let adopted = |native| {
            let (context, mut event) = (test.context, null_mut());
            let code = ur!(Event.pfnCreateWithNativeHandle(native, context, null(), &mut event));
            assert_eq!(code, UR_RESULT_SUCCESS);
            event
        };
        let outside = foreign.event(side);
        foreign.begin(main);
        fill(queue, one, 1);
        let forked = foreign.event(main);
        foreign.wait(side, forked);
        foreign.fill(side, one, 2, SIZE);
        let joined = foreign.event(side);
        let event = adopted(joined);
        ok(ur!(Enqueue.pfnEventsWaitWithBarrier(
            queue,
            1,
            &event,
            null_mut()
        )));
        copy(queue, two, one);
        assert_eq!(foreign.status(main), 1);
        let graph = foreign.end(main);
        foreign.run(graph, main);
        assert_eq!(byte(two), Some(2));
        foreign.destroy_graph(graph);
        ok(ur!(Event.pfnRelease(event)));
        // CUDA's answer to any other event.
        foreign.begin(main);
        let event = adopted(outside);
        let refused = ur!(Enqueue.pfnEventsWait(queue, 1, &event, null_mut()));
        assert_eq!(refused, UNSUPPORTED);
        assert_eq!(foreign.try_end(main), Err(901));
        ok(ur!(Event.pfnWait(1, &event)));
        ok(ur!(Event.pfnRelease(event)));
        fill(queue, one, 3);
        ok(ur!(Queue.pfnFinish(queue)));
        assert_eq!(byte(one), Some(3));
        release(queue);
        for event in [outside, forked, joined] {
            foreign.destroy_event(event);
        }
        foreign.destroy(main);
        foreign.destroy(side);
        foreign.end_use();
        test.end(&driver);
    });
}

/// A stream may end after the release of its queue, which events keep: nothing asks for it from then on.
#[test]
fn a_stream_ends_before_the_events_of_its_queue() {
    let name = "tests::captures::a_stream_ends_before_the_events_of_its_queue";
    alone(name, || {
        let driver = FakeDriver::open();
        let test = TestContext::new(4096);
        let foreign = Foreign::new();
        let stream = foreign.stream();
        let (queue, other) = (adopt(&test, stream), test.queue(LIVE));
        let (mut first, mut memory) = (null_mut(), null_mut());
        ok(fill_after(queue, test.memory, 1, &[], &mut first));
        fill(queue, test.at(SIZE), 2);
        foreign.fill(stream, test.at(SIZE), 3, SIZE);
        release(queue);
        foreign.destroy(stream);
        let (context, device) = (test.context, test.device);
        for _ in 0..3 {
            let pool = null_mut();
            ok(ur!(USM.pfnDeviceAlloc(
                context,
                device,
                null(),
                pool,
                SIZE,
                &mut memory
            )));
            ok(ur!(USM.pfnFree(context, memory)));
            ok(fill_after(other, test.memory, 4, &[first], null_mut()));
            ok(ur!(Queue.pfnFinish(other)));
        }
        ok(ur!(Event.pfnWait(1, &first)));
        ok(ur!(Event.pfnRelease(first)));
        assert_eq!([byte(test.memory), byte(test.at(SIZE))], [Some(4), Some(3)]);
        release(other);
        foreign.end_use();
        test.end(&driver);
    });
}

/// A capture of a queue, as an executable graph.
struct Captured {
    graph: ur_exp_graph_handle_t,
    executable: ur_exp_executable_graph_handle_t,
}

impl Captured {
    fn end(queue: ur_queue_handle_t) -> Self {
        let (mut graph, mut executable) = (null_mut(), null_mut());
        ok(ur!(QueueExp.pfnEndGraphCaptureExp(queue, &mut graph)));
        ok(ur!(GraphExp.pfnInstantiateGraphExp(graph, &mut executable)));
        Self { graph, executable }
    }

    fn run(&self, queue: ur_queue_handle_t) {
        let (executable, list, event) = (self.executable, null(), null_mut());
        ok(ur!(
            EnqueueExp.pfnGraphExp(queue, executable, 0, list, event)
        ));
        ok(ur!(Queue.pfnFinish(queue)));
    }

    fn destroy(self) {
        ok(ur!(GraphExp.pfnExecutableGraphDestroyExp(self.executable)));
        ok(ur!(GraphExp.pfnDestroyExp(self.graph)));
    }
}

/// Foreign work on a capturing queue is recorded in its place, and runs with each execution.
#[test]
fn a_capture_records_foreign_work() {
    alone("tests::captures::a_capture_records_foreign_work", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(4096);
        let foreign = Foreign::new();
        let stream = foreign.stream();
        let [one, two, three] = [0, 1, 2].map(|at| test.at(at * SIZE));
        let shown = test.queue(LIVE);
        let early = stream_of(shown);
        let queues = [adopt(&test, stream), shown, test.queue(LIVE)];
        for queue in queues {
            let mut before = null_mut();
            ok(fill_after(queue, one, 1, &[], &mut before));
            ok(ur!(QueueExp.pfnBeginGraphCaptureExp(queue)));
            // The third queue's stream is given out now.
            let at = stream_of(queue);
            assert!(queue != shown || at == early);
            fill(queue, one, 2);
            foreign.fill(at, two, 3, SIZE);
            copy(queue, three, two);
            foreign.fill(at, two, 4, SIZE);
            ok(native_fill(&foreign, queue, one, &[], null_mut()));
            ok(ur!(Event.pfnWait(1, &before)));
            ok(ur!(Event.pfnRelease(before)));
            assert_eq!(byte(one), Some(1), "captured work ran");
            let captured = Captured::end(queue);
            assert_eq!(foreign.status(at), 0);
            for _ in 0..2 {
                for memory in [one, two, three] {
                    fill(queue, memory, 9);
                }
                captured.run(queue);
                let read = [one, two, three].map(byte);
                assert_eq!(read, [Some(7), Some(4), Some(3)]);
            }
            captured.destroy();
            foreign.fill(at, one, 8, SIZE);
            ok(ur!(Queue.pfnFinish(queue)));
            assert_eq!(byte(one), Some(8), "foreign work after the capture");
            release(queue);
        }
        foreign.destroy(stream);
        foreign.end_use();
        test.end(&driver);
    });
}

/// A native command is a command of the graph: it follows its wait list, and its event stands for it.
#[test]
fn a_capture_records_native_commands() {
    alone("tests::captures::a_capture_records_native_commands", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(4096);
        let foreign = Foreign::new();
        let [one, two, three] = [0, 1, 2].map(|at| test.at(at * SIZE));
        for flags in [LIVE, UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE] {
            let (queue, other) = (test.queue(flags), test.queue(LIVE));
            ok(ur!(QueueExp.pfnBeginGraphCaptureExp(queue)));
            let [mut first, mut native, mut far] = [null_mut(); 3];
            ok(fill_after(queue, one, 1, &[], &mut first));
            ok(native_fill(&foreign, queue, one, &[first], &mut native));
            // A queue that joins the capture.
            let (list, count) = ([native], 1);
            ok(ur!(Enqueue.pfnUSMMemcpy(
                other,
                0,
                two,
                one,
                SIZE,
                count,
                list.as_ptr(),
                &mut far
            )));
            ok(native_fill(&foreign, other, three, &[], null_mut()));
            ok(ur!(Enqueue.pfnEventsWait(queue, 1, &far, null_mut())));
            let captured = Captured::end(queue);
            for _ in 0..2 {
                for memory in [one, two, three] {
                    fill(other, memory, 9);
                    ok(ur!(Queue.pfnFinish(other)));
                }
                captured.run(queue);
                assert_eq!([one, two, three].map(byte), [Some(7); 3]);
            }
            captured.destroy();
            for event in [first, native, far] {
                ok(ur!(Event.pfnRelease(event)));
            }
            for queue in [queue, other] {
                release(queue);
            }
        }
        foreign.end_use();
        test.end(&driver);
    });
}

/// The data of a native command that may fail, and whether it has filled the memory.
type Try<'a> = (&'a Foreign, *mut c_void, Cell<bool>);

unsafe extern "C" fn tries_to_fill(queue: ur_queue_handle_t, data: *mut c_void) {
    // SAFETY: `workload` passes these.
    let (foreign, at, filled) = unsafe { &*data.cast::<Try<'_>>() };
    let mut native = 0;
    if ur!(Queue.pfnGetNativeHandle(queue, null_mut(), &mut native)) == UR_RESULT_SUCCESS {
        filled.set(foreign.try_fill(native, *at, 7, SIZE));
    }
}

/// Captures of both kinds, whatever fails. Returns whether the graph has run rightly, if nothing has failed.
fn workload(driver: &FakeDriver, foreign: &Foreign, code: Option<(u64, u32)>) -> Option<bool> {
    let test = TestContext::new(4096);
    let (queue, other) = (test.queue(LIVE), test.queue(LIVE));
    let (one, two) = (test.memory, test.at(SIZE));
    let stream = stream_of(other);
    match code {
        Some((nth, code)) => driver.fail(nth, code),
        None => driver.reset(),
    }
    let (mut whole, mut event, mut graph) = (true, null_mut(), null_mut());
    let mut all = |code| whole &= code == UR_RESULT_SUCCESS;
    let begun = ur!(QueueExp.pfnBeginGraphCaptureExp(queue));
    all(begun);
    if begun == UR_RESULT_SUCCESS {
        let mut data: Try<'_> = (foreign, one, Cell::new(false));
        let (run, to) = (Some(tries_to_fill as _), (&raw mut data).cast());
        let (list, none) = (null(), null_mut());
        all(ur!(EnqueueExp.pfnNativeCommandExp(
            queue,
            run,
            to,
            0,
            null(),
            null(),
            0,
            list,
            &mut event
        )));
        all(match data.2.get() {
            true => UR_RESULT_SUCCESS,
            false => UR_RESULT_ERROR_UNKNOWN,
        });
        all(ur!(
            Enqueue.pfnUSMMemcpy(queue, 0, two, one, SIZE, 0, list, none)
        ));
        all(ur!(QueueExp.pfnEndGraphCaptureExp(queue, &mut graph)));
    }
    if !event.is_null() {
        ur!(Event.pfnRelease(event));
    }
    // A capture by foreign code.
    let mut foreign_graph = None;
    if foreign.try_begin(stream) {
        let mut filled = null_mut();
        all(fill_after(other, test.at(2 * SIZE), 3, &[], &mut filled));
        if !filled.is_null() {
            all(fill_after(
                other,
                test.at(2 * SIZE),
                4,
                &[filled],
                null_mut(),
            ));
            ur!(Event.pfnRelease(filled));
        }
        foreign_graph = foreign.try_end(stream).ok();
    }
    all(match foreign_graph {
        Some(_) => UR_RESULT_SUCCESS,
        None => UR_RESULT_ERROR_UNKNOWN,
    });
    driver.reset();
    if let Some(graph) = foreign_graph {
        foreign.destroy_graph(graph);
    }
    let mut right = None;
    if !graph.is_null() {
        let mut executable = null_mut();
        if ur!(GraphExp.pfnInstantiateGraphExp(graph, &mut executable)) == UR_RESULT_SUCCESS {
            let captured = Captured { graph, executable };
            fill(queue, one, 1);
            captured.run(queue);
            right = whole.then(|| [one, two].map(byte) == [Some(7); 2]);
            captured.destroy();
        }
    }
    // The queues work on.
    for queue in [queue, other] {
        fill(queue, one, 5);
        ok(ur!(Queue.pfnFinish(queue)));
        release(queue);
    }
    test.release();
    right
}

#[test]
fn each_call_of_a_capture_fails() {
    alone("tests::captures::each_call_of_a_capture_fails", || {
        let driver = FakeDriver::open();
        let foreign = Foreign::new();
        driver.count("none");
        assert_eq!(workload(&driver, &foreign, None), Some(true));
        for code in [1, 2, 900] {
            for nth in 1..60 {
                let right = workload(&driver, &foreign, Some((nth, code)));
                let seen = driver.query();
                let when = format!("call {nth} failed with {code}");
                assert_eq!(seen.broken, 0, "{when}: {}", driver.report());
                assert_ne!(right, Some(false), "{when}: a graph without its work");
            }
        }
        foreign.end_use();
        driver.check_end("the end");
    });
}

/// The default stream has no captures: native commands on it are refused, and a queue that is released ends its
/// capture.
#[test]
fn captures_end_with_their_queue() {
    alone("tests::captures::captures_end_with_their_queue", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(4096);
        let foreign = Foreign::new();
        let queue = test.queue(UR_QUEUE_FLAG_USE_DEFAULT_STREAM);
        ok(ur!(QueueExp.pfnBeginGraphCaptureExp(queue)));
        fill(queue, test.memory, 1);
        let refused = native_fill(&foreign, queue, test.memory, &[], null_mut());
        assert_eq!(refused, UNSUPPORTED);
        let captured = Captured::end(queue);
        captured.run(queue);
        assert_eq!(byte(test.memory), Some(1));
        captured.destroy();
        release(queue);
        let stream = foreign.stream();
        let queue = adopt(&test, stream);
        ok(ur!(QueueExp.pfnBeginGraphCaptureExp(queue)));
        foreign.fill(stream, test.memory, 5, SIZE);
        assert_eq!(foreign.status(stream), 1);
        release(queue);
        assert_eq!(foreign.status(stream), 0);
        assert_eq!(byte(test.memory), Some(1));
        foreign.destroy(stream);
        foreign.end_use();
        test.end(&driver);
    });
}

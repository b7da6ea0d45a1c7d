//! Work that the backend gets past the interface: by native commands, on queues whose native handle
//! was taken, on queues and events made of native handles. It is ordered like the queue's own.

use super::enqueue::{LONG, pending};
use crate::fixture::Fixture;
use crate::foreign::{Command, Fill, Foreign, provider};
use crate::objects::{Block, Context, Event, Gate, Kind, Pool, Queue, Usm};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::status::Status;
use crate::{check, check_eq};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests!["native_command";
        runs_once_and_at_once, in_order, out_of_order, waits_for_its_list, shows_its_own_queue,
        keeps_memory_objects, without_event, times, command_type, refused, keeps_freed_memory,
        of_two_threads,
    ];
    tests.extend(crate::tests!["shown_queue";
        later_commands_wait, markers_cover, barriers_and_finish_cover, out_of_order_finish_covers,
        earlier_waits_hold_back, freed_memory_waits, own_memory_is_reused, allocations_stay_whole,
        a_second_queue_over_it, an_event_of_the_backend, an_event_for_the_backend,
    ]);
    tests
}

const SIZE: usize = 64 << 10;

/// A context, its memory, and who puts work past the interface.
struct Bench<'a> {
    fixture: &'a Fixture,
    foreign: &'static dyn Foreign,
    /// Visible to the host.
    memory: Usm,
    context: Context,
}

impl<'a> Bench<'a> {
    fn new(fixture: &'a Fixture) -> Result<Self, Stop> {
        let foreign = provider(fixture.backend)
            .ok_or_else(|| Stop::skipped("nobody puts foreign work on this backend's queues"))?;
        let context = Context::new(fixture)?;
        let memory = context.usm(fixture, Kind::Host, SIZE)?;
        Ok(Self {
            fixture,
            context,
            foreign,
            memory,
        })
    }

    fn in_order(&self) -> Result<Queue, Stop> {
        self.context.in_order(self.fixture)
    }

    fn out_of_order(&self) -> Result<Queue, Stop> {
        self.context.out_of_order(self.fixture)
    }

    /// Sets the bench's memory on a native queue.
    fn fill(
        &self,
        queue: ur_native_handle_t,
        byte: u8,
        waits: &[ur_native_handle_t],
        held: bool,
    ) -> Result<Box<dyn Command + Send>, Stop> {
        self.fill_at(queue, (self.memory.ptr, SIZE), byte, waits, held)
    }

    fn fill_at(
        &self,
        queue: ur_native_handle_t,
        (memory, bytes): (*mut c_void, usize),
        byte: u8,
        waits: &[ur_native_handle_t],
        held: bool,
    ) -> Result<Box<dyn Command + Send>, Stop> {
        let fill = Fill {
            queue,
            memory,
            byte,
            bytes,
            waits,
            held,
        };
        self.foreign.fill(&fill).map_err(Stop::failed)
    }

    fn holds(&self, byte: u8, what: &str) -> Done {
        let wrong = self
            .memory
            .host::<u8>()
            .iter()
            .find(|found| **found != byte);
        check!(wrong.is_none(), "{what}: {wrong:?} where {byte} should be");
        Ok(())
    }
}

fn native(queue: &Queue) -> Result<ur_native_handle_t, Stop> {
    let mut native = 0;
    queue
        .ur
        .urQueueGetNativeHandle(queue.raw, null_mut(), &mut native)
        .ok()?;
    Ok(native)
}

/// What a native command's function gets: a closure, and whether it ran.
struct Task<'a> {
    run: Box<dyn FnMut(ur_queue_handle_t) -> Done + 'a>,
    ran: u32,
    ended: Done,
}

unsafe extern "C" fn call(queue: ur_queue_handle_t, data: *mut c_void) {
    // SAFETY: `command` passes a task that it keeps until its call has returned.
    let task = unsafe { &mut *data.cast::<Task>() };
    task.ran += 1;
    task.ended = (task.run)(queue);
}

/// A native command that runs a closure; with its event if that is wanted.
fn command<'a>(
    queue: &Queue,
    wait: &[&Event],
    event: *mut ur_event_handle_t,
    run: impl FnMut(ur_queue_handle_t) -> Done + 'a,
) -> Done {
    let list: Vec<_> = wait.iter().map(|event| event.raw).collect();
    let first = match list.is_empty() {
        true => null(),
        false => list.as_ptr(),
    };
    let mut task = Task {
        run: Box::new(run),
        ran: 0,
        ended: Ok(()),
    };
    let status = queue.ur.urEnqueueNativeCommandExp(
        queue.raw,
        Some(call),
        (&raw mut task).cast(),
        0,
        null(),
        null(),
        list.len() as u32,
        first,
        event,
    );
    status.ok()?;
    check_eq!(
        task.ran,
        1,
        "times that the function ran before the call returned"
    );
    task.ended
}

fn command_event<'a>(
    queue: &Queue,
    wait: &[&Event],
    run: impl FnMut(ur_queue_handle_t) -> Done + 'a,
) -> Result<Event, Stop> {
    let mut raw = null_mut();
    command(queue, wait, &mut raw, run)?;
    check!(!raw.is_null(), "a native command gave no event");
    Ok(Event::adopt(queue.ur, raw))
}

/// Goes on only if the device takes native commands.
fn need_commands(fixture: &Fixture) -> Done {
    let queue = Context::new(fixture)?.in_order(fixture)?;
    fixture.require(UR_DEVICE_INFO_ENQUEUE_NATIVE_COMMAND_SUPPORT_EXP, || {
        nothing(&queue, Some(ignore))
    })
}

unsafe extern "C" fn ignore(_: ur_queue_handle_t, _: *mut c_void) {}

fn nothing(queue: &Queue, run: ur_exp_enqueue_native_command_function_t) -> Status {
    let (none, event) = (null_mut(), null_mut());
    queue
        .ur
        .urEnqueueNativeCommandExp(queue.raw, run, none, 0, null(), null(), 0, null(), event)
}

fn command_bench(fixture: &Fixture) -> Result<Bench<'_>, Stop> {
    need_commands(fixture)?;
    Bench::new(fixture)
}

fn runs_once_and_at_once(fixture: &Fixture) -> Done {
    need_commands(fixture)?;
    let context = Context::new(fixture)?;
    for queue in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
        let here = std::thread::current().id();
        let event = command_event(&queue, &[], |given| {
            check_eq!(given, queue.raw, "queue that the function got");
            check_eq!(std::thread::current().id(), here, "its thread");
            Ok(())
        })?;
        event.wait()?;
        queue.finish()?;
    }
    Ok(())
}

/// Between what was enqueued before and what is enqueued later.
fn in_order(fixture: &Fixture) -> Done {
    let bench = command_bench(fixture)?;
    let queue = bench.in_order()?;
    let gate = Gate::close(fixture, &queue)?;
    queue.fill(bench.memory.ptr, 1_u8, SIZE, &[])?;
    let copy = bench.context.usm(fixture, Kind::Host, SIZE)?;
    let mut foreign = None;
    let event = command_event(&queue, &[], |_| {
        foreign = Some(bench.fill(native(&queue)?, 2, &[], true)?);
        Ok(())
    })?;
    let later = queue.copy(copy.ptr, bench.memory.ptr, SIZE, &[])?;
    pending(&event, "a native command overtook what comes before it")?;
    gate.open();
    pending(&event, "a native command ended before its work had")?;
    pending(&later, "a command overtook native work of its queue")?;
    bench.holds(1, "what came before a native command")?;
    drop(foreign);
    later.wait()?;
    check!(
        event.is_complete()?,
        "a native command before a complete one"
    );
    let right = copy.host::<u8>().iter().all(|byte| *byte == 2);
    check!(
        right,
        "what came after a native command saw another's bytes"
    );
    queue.finish()
}

/// Native work on an out-of-order queue orders only what waits for it.
fn out_of_order(fixture: &Fixture) -> Done {
    let bench = command_bench(fixture)?;
    let queue = bench.out_of_order()?;
    let other = bench.context.usm(fixture, Kind::Device, SIZE)?;
    let mut foreign = None;
    let event = command_event(&queue, &[], |_| {
        foreign = Some(bench.fill(native(&queue)?, 2, &[], true)?);
        Ok(())
    })?;
    for _ in 0..8 {
        let independent = queue.fill(other.ptr, 1_u8, SIZE, &[])?;
        check!(
            independent.completes_within(LONG)?,
            "native work held back what does not depend on it"
        );
    }
    let dependent = queue.fill(other.ptr, 1_u8, SIZE, &[&event])?;
    let marker = queue.marker(&[])?;
    pending(&event, "a native command ended before its work had")?;
    pending(&dependent, "a command overtook the native work in its list")?;
    pending(&marker, "a marker did not cover native work")?;
    drop(foreign);
    queue.finish()?;
    bench.holds(2, "native work on an out-of-order queue")
}

fn waits_for_its_list(fixture: &Fixture) -> Done {
    let bench = command_bench(fixture)?;
    for queue in [bench.in_order()?, bench.out_of_order()?] {
        let other = bench.in_order()?;
        let gate = Gate::close(fixture, &other)?;
        let before = other.fill(bench.memory.ptr, 7_u8, SIZE, &[])?;
        let event = command_event(&queue, &[&before], |_| {
            bench.fill(native(&queue)?, 8, &[], false).map(drop)
        })?;
        pending(&event, "a native command did not wait for its list")?;
        gate.open();
        event.wait()?;
        bench.holds(8, "native work after a wait list")?;
    }
    Ok(())
}

/// Within a command the native handle is the stream that has its wait list, each time it is asked.
fn shows_its_own_queue(fixture: &Fixture) -> Done {
    let bench = command_bench(fixture)?;
    for queue in [bench.in_order()?, bench.out_of_order()?] {
        let mut outer = 0;
        command(&queue, &[], null_mut(), |_| {
            outer = native(&queue)?;
            command(&queue, &[], null_mut(), |_| native(&queue).map(drop))?;
            check_eq!(native(&queue)?, outer, "native queue within one command");
            Ok(())
        })?;
        check!(outer != 0, "no native queue within a command");
        queue.finish()?;
    }
    Ok(())
}

fn keeps_memory_objects(fixture: &Fixture) -> Done {
    need_commands(fixture)?;
    let context = Context::new(fixture)?;
    let mut data = vec![5_u8; SIZE];
    let buffer = crate::objects::Buffer::copied(&context, &mut data)?;
    let queue = context.in_order(fixture)?;
    let (none, mut raw) = (null_mut(), null_mut());
    fixture
        .ur
        .urEnqueueNativeCommandExp(
            queue.raw,
            Some(ignore),
            none,
            1,
            &buffer.raw,
            null(),
            0,
            null(),
            &mut raw,
        )
        .ok()?;
    let event = Event::adopt(fixture.ur, raw);
    let read = buffer.read::<u8>(&queue, 0, SIZE)?;
    check!(read == data, "a buffer that a native command named");
    event.wait()
}

fn without_event(fixture: &Fixture) -> Done {
    let bench = command_bench(fixture)?;
    for (byte, queue) in (1..).zip([bench.in_order()?, bench.out_of_order()?]) {
        command(&queue, &[], null_mut(), |_| {
            bench.fill(native(&queue)?, byte, &[], false).map(drop)
        })?;
        queue.finish()?;
        bench.holds(byte, "native work without an event, after a finish")?;
    }
    Ok(())
}

fn times(fixture: &Fixture) -> Done {
    let bench = command_bench(fixture)?;
    let flags = UR_QUEUE_FLAG_PROFILING_ENABLE;
    let queue = Queue::new(&bench.context, fixture.device, flags)?;
    let event = command_event(&queue, &[], |_| {
        bench.fill(native(&queue)?, 1, &[], false).map(drop)
    })?;
    event.wait()?;
    let [queued, start, end] = [
        UR_PROFILING_INFO_COMMAND_QUEUED,
        UR_PROFILING_INFO_COMMAND_START,
        UR_PROFILING_INFO_COMMAND_END,
    ]
    .map(|what| event.time(what));
    let (queued, start, end) = (queued?, start?, end?);
    check!(
        queued > 0 && queued <= start && start <= end,
        "a native command was queued at {queued}, ran from {start} to {end}"
    );
    Ok(())
}

fn command_type(fixture: &Fixture) -> Done {
    need_commands(fixture)?;
    let queue = Context::new(fixture)?.in_order(fixture)?;
    let event = command_event(&queue, &[], |_| Ok(()))?;
    check_eq!(
        event.get::<ur_command_t>(UR_EVENT_INFO_COMMAND_TYPE)?,
        UR_COMMAND_ENQUEUE_NATIVE_EXP,
        "command type"
    );
    event.wait()
}

fn refused(fixture: &Fixture) -> Done {
    need_commands(fixture)?;
    let queue = Context::new(fixture)?.in_order(fixture)?;
    nothing(&queue, None).fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)
}

fn need_async(fixture: &Fixture) -> Done {
    match fixture.supports(UR_DEVICE_INFO_ASYNC_USM_ALLOCATIONS_SUPPORT_EXP)? {
        true => Ok(()),
        false => Err(Stop::skipped("the device does not allocate in queue order")),
    }
}

/// Memory that native work uses is nobody else's before that has ended, freed or not.
fn keeps_freed_memory(fixture: &Fixture) -> Done {
    let bench = command_bench(fixture)?;
    need_async(fixture)?;
    let queue = bench.in_order()?;
    let mut foreign = None;
    freed_while(&bench, &queue, |block| {
        command(&queue, &[], null_mut(), |_| {
            let at = (block.ptr, block.size);
            foreign = Some(bench.fill_at(native(&queue)?, at, 9, &[], true)?);
            Ok(())
        })?;
        foreign
            .take()
            .ok_or_else(|| Stop::failed("no foreign work"))
    })
}

/// Frees a block that `used` has foreign work pending on: other queues get it only when that is done.
fn freed_while(
    bench: &Bench,
    queue: &Queue,
    used: impl FnOnce(Block) -> Result<Box<dyn Command + Send>, Stop>,
) -> Done {
    let pool = Pool::new(bench.fixture, &bench.context)?;
    let other = bench.in_order()?;
    let (block, ready) = queue.alloc_event(Kind::Shared, &pool, 1 << 20, &[])?;
    ready.wait()?;
    let foreign = used(block)?;
    let freed = queue.free_event(block, &[])?;
    pending(&freed, "a free ended before native work on its block had")?;
    let early = other.alloc(Kind::Shared, &pool, 1 << 20, &[])?;
    check!(
        !early.overlaps(&block),
        "a block was handed out while native work was using it"
    );
    drop(foreign);
    freed.wait()?;
    let late = other.alloc(Kind::Shared, &pool, 1 << 20, &[])?;
    check!(
        late.overlaps(&block),
        "a free block was not handed out once native work had ended"
    );
    other.free(early, &[])?;
    other.free(late, &[])?;
    other.finish()?;
    queue.finish()
}

/// Native commands of one queue from two threads see lanes of their own or take turns.
fn of_two_threads(fixture: &Fixture) -> Done {
    let bench = command_bench(fixture)?;
    for queue in [bench.in_order()?, bench.out_of_order()?] {
        let half = SIZE / 2;
        let work = |place: usize, byte: u8| -> Done {
            for _ in 0..50 {
                let at = (bench.memory.ptr.wrapping_byte_add(place), half);
                let event = command_event(&queue, &[], |_| {
                    bench
                        .fill_at(native(&queue)?, at, byte, &[], false)
                        .map(drop)
                })?;
                event.wait()?;
            }
            Ok(())
        };
        let (one, two) = std::thread::scope(|scope| {
            let other = scope.spawn(|| work(half, 2));
            let own = work(0, 1);
            let panicked = |_| Err(Stop::failed("a thread panicked"));
            (own, other.join().unwrap_or_else(panicked))
        });
        one.and(two)?;
        queue.finish()?;
        let bytes = bench.memory.host::<u8>();
        let right = bytes[..half].iter().all(|byte| *byte == 1)
            && bytes[half..].iter().all(|byte| *byte == 2);
        check!(right, "what two threads' native commands left");
    }
    Ok(())
}

/// A bench for queues whose native handle is taken.
fn shown(fixture: &Fixture) -> Result<(Bench<'_>, Queue), Stop> {
    let bench = Bench::new(fixture)?;
    let queue = bench.in_order()?;
    Ok((bench, queue))
}

fn later_commands_wait(fixture: &Fixture) -> Done {
    let (bench, queue) = shown(fixture)?;
    let foreign = bench.fill(native(&queue)?, 4, &[], true)?;
    let copy = bench.context.usm(fixture, Kind::Host, SIZE)?;
    let copied = queue.copy(copy.ptr, bench.memory.ptr, SIZE, &[])?;
    pending(&copied, "a command overtook foreign work of its queue")?;
    drop(foreign);
    copied.wait()?;
    let right = copy.host::<u8>().iter().all(|byte| *byte == 4);
    check!(right, "what a command after foreign work saw");
    queue.finish()
}

/// The event of a marker covers foreign work; one asked for before does not.
fn markers_cover(fixture: &Fixture) -> Done {
    let (bench, queue) = shown(fixture)?;
    let early = queue.marker(&[])?;
    let foreign = bench.fill(native(&queue)?, 4, &[], true)?;
    let marker = queue.marker(&[])?;
    check!(
        early.completes_within(LONG)?,
        "an earlier event waits for later foreign work"
    );
    pending(&marker, "a marker did not cover foreign work")?;
    let other = bench.in_order()?;
    let far = other.marker(&[&marker])?;
    pending(&far, "another queue did not wait for foreign work")?;
    drop(foreign);
    far.wait()?;
    bench.holds(4, "foreign work after a marker behind it")
}

fn barriers_and_finish_cover(fixture: &Fixture) -> Done {
    let (bench, queue) = shown(fixture)?;
    let mut foreign = bench.fill(native(&queue)?, 4, &[], true)?;
    let barrier = queue.barrier(&[])?;
    pending(&barrier, "a barrier did not cover foreign work")?;
    check!(
        queue.get::<ur_bool_t>(UR_QUEUE_INFO_EMPTY)? == 0,
        "a queue with foreign work on it says that it is empty"
    );
    let opener = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(30));
        foreign.let_go();
        foreign
    });
    queue.finish()?;
    bench.holds(4, "foreign work after a finish")?;
    check!(opener.join().is_ok(), "the thread that lets it go");
    Ok(())
}

fn out_of_order_finish_covers(fixture: &Fixture) -> Done {
    let bench = Bench::new(fixture)?;
    let queue = bench.out_of_order()?;
    queue.fill(bench.memory.ptr, 1_u8, SIZE, &[])?.wait()?;
    let handle = native(&queue)?;
    check_eq!(native(&queue)?, handle, "native handle asked for again");
    let mut foreign = bench.fill(handle, 4, &[], true)?;
    let marker = queue.marker(&[])?;
    pending(&marker, "a marker did not cover foreign work")?;
    let opener = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(30));
        foreign.let_go();
        foreign
    });
    queue.finish()?;
    bench.holds(4, "foreign work after a finish")?;
    check!(opener.join().is_ok(), "the thread that lets it go");
    marker.wait()
}

/// What the queue waits for already holds foreign work back too.
fn earlier_waits_hold_back(fixture: &Fixture) -> Done {
    let (bench, queue) = shown(fixture)?;
    let other = bench.in_order()?;
    let gate = Gate::close(fixture, &other)?;
    let before = other.fill(bench.memory.ptr, 1_u8, SIZE, &[])?;
    queue.marker(&[&before])?;
    let foreign = bench.fill(native(&queue)?, 2, &[], false)?;
    let marker = queue.marker(&[])?;
    pending(&marker, "foreign work overtook a wait of its queue")?;
    gate.open();
    marker.wait()?;
    drop(foreign);
    bench.holds(2, "foreign work after a wait")
}

fn freed_memory_waits(fixture: &Fixture) -> Done {
    need_async(fixture)?;
    let (bench, queue) = shown(fixture)?;
    let handle = native(&queue)?;
    freed_while(&bench, &queue, |block| {
        bench.fill_at(handle, (block.ptr, block.size), 9, &[], true)
    })
}

/// The queue's own allocations may take a block at once: they come after the foreign work on it.
fn own_memory_is_reused(fixture: &Fixture) -> Done {
    need_async(fixture)?;
    let (bench, queue) = shown(fixture)?;
    let handle = native(&queue)?;
    let pool = Pool::new(fixture, &bench.context)?;
    let block = queue.alloc(Kind::Shared, &pool, SIZE, &[])?;
    let foreign = bench.fill_at(handle, (block.ptr, SIZE), 9, &[], true)?;
    queue.free(block, &[])?;
    let again = queue.alloc(Kind::Shared, &pool, SIZE, &[])?;
    let filled = queue.fill(again.ptr, 3_u8, SIZE, &[])?;
    let copied = queue.copy(bench.memory.ptr, again.ptr, SIZE, &[])?;
    if again.overlaps(&block) {
        pending(&filled, "a block was used before foreign work on it ended")?;
    }
    drop(foreign);
    copied.wait()?;
    bench.holds(3, "a block that foreign work had before")?;
    queue.free(again, &[])?;
    queue.finish()
}

/// Blocks that come and go while foreign work is put between: each keeps the bytes of its owner.
fn allocations_stay_whole(fixture: &Fixture) -> Done {
    need_async(fixture)?;
    let bench = Bench::new(fixture)?;
    let pool = Pool::new(fixture, &bench.context)?;
    let queues = [bench.in_order()?, bench.in_order()?];
    let handles = [native(&queues[0])?, native(&queues[1])?];
    const ROUNDS: usize = 200;
    let results = bench.context.usm(fixture, Kind::Host, ROUNDS * 64)?;
    let mut foreign = Vec::new();
    for round in 0..ROUNDS {
        let (queue, handle) = (&queues[round % 2], handles[round % 2]);
        let (byte, size) = (round as u8, [256, 4096, 200_000][round % 3]);
        let block = queue.alloc(Kind::Shared, &pool, size, &[])?;
        queue.fill(block.ptr, !byte, size, &[])?;
        foreign.push(bench.fill_at(handle, (block.ptr, size), byte, &[], false)?);
        let place = results.ptr.wrapping_byte_add(round * 64);
        queue.copy(place, block.ptr.wrapping_byte_add(size - 64), 64, &[])?;
        queue.free(block, &[])?;
    }
    queues.iter().try_for_each(Queue::finish)?;
    for (round, bytes) in results.host::<u8>().chunks(64).enumerate() {
        let right = bytes.iter().all(|byte| *byte == round as u8);
        check!(right, "round {round} of foreign work found {bytes:?}");
    }
    check_eq!(pool.used()?, 0, "used bytes at the end");
    Ok(())
}

/// Two queues over one native queue: each orders its commands behind the other's.
fn a_second_queue_over_it(fixture: &Fixture) -> Done {
    let (bench, queue) = shown(fixture)?;
    let mut raw = null_mut();
    let made = fixture.ur.urQueueCreateWithNativeHandle(
        native(&queue)?,
        bench.context.raw,
        fixture.device,
        null(),
        &mut raw,
    );
    made.ok()?;
    let second = Queue::adopt(fixture.ur, raw);
    let gate = Gate::close(fixture, &queue)?;
    queue.fill(bench.memory.ptr, 1_u8, SIZE, &[])?;
    let after = second.fill(bench.memory.ptr, 2_u8, SIZE, &[])?;
    let last = queue.fill(bench.memory.ptr, 3_u8, SIZE, &[])?;
    gate.open();
    after.wait()?;
    last.wait()?;
    bench.holds(3, "three fills over one native queue")?;
    second.finish()?;
    queue.finish()
}

/// A wait list may name an event that the backend itself made.
fn an_event_of_the_backend(fixture: &Fixture) -> Done {
    let bench = Bench::new(fixture)?;
    let source = bench.in_order()?;
    let foreign = bench.fill(native(&source)?, 6, &[], true)?;
    let mut raw = null_mut();
    fixture
        .ur
        .urEventCreateWithNativeHandle(foreign.event(), bench.context.raw, null(), &mut raw)
        .ok()?;
    let event = Event::adopt(fixture.ur, raw);
    let waiting = [bench.in_order()?, bench.out_of_order()?]
        .iter()
        .map(|queue| queue.marker(&[&event]))
        .collect::<Result<Vec<_>, Stop>>()?;
    for marker in &waiting {
        pending(marker, "a command did not wait for the backend's event")?;
    }
    drop(foreign);
    waiting.iter().try_for_each(Event::wait)?;
    event.wait()?;
    bench.holds(6, "what the backend's event stands for")
}

/// The backend's own commands may wait for an event of the interface.
fn an_event_for_the_backend(fixture: &Fixture) -> Done {
    let bench = Bench::new(fixture)?;
    let (queue, source) = (bench.in_order()?, bench.in_order()?);
    let gate = Gate::close(fixture, &source)?;
    let before = source.fill(bench.memory.ptr, 1_u8, SIZE, &[])?;
    let mut event = 0;
    fixture
        .ur
        .urEventGetNativeHandle(before.raw, &mut event)
        .ok()?;
    let foreign = bench.fill(native(&queue)?, 2, &[event], false)?;
    let marker = queue.marker(&[])?;
    pending(
        &marker,
        "the backend did not wait for an event of the interface",
    )?;
    gate.open();
    marker.wait()?;
    drop(foreign);
    bench.holds(2, "what the backend did after an event")
}

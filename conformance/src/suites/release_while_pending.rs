//! Commands that are pending when every handle is released: objects of all kinds, the queue, its context and
//! the events.
//!
//! An enqueued command still runs once, on the objects that it was enqueued with.

use crate::check;
use crate::fixture::Fixture;
use crate::kernels::{ADD, IOTA};
use crate::objects::{
    Arg, Buffer, CommandBuffer, Context, Event, Graph, Kind, Pool, Program, Queue, Shape, WaitList,
    With,
};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["release_while_pending";
        copies, launches, launches_on_buffers, sub_buffers, maps, asynchronous_memory,
        command_buffers, graphs, host_tasks, callbacks, dependent_queues, dependent_contexts,
    ]
}

const WORDS: usize = 64;
const BYTES: usize = WORDS * size_of::<u32>();
/// The first word of the data that each test's commands produce.
const BASE: u32 = 1000;
const TIMEOUT: Duration = Duration::from_secs(20);

/// Host memory in which the last command of a test writes `BASE + i` to word `i`.
struct Destination(Arc<[AtomicU32]>);

impl Destination {
    fn new() -> Self {
        Self((0..WORDS).map(|_| AtomicU32::new(0)).collect())
    }

    fn at(&self) -> *mut c_void {
        self.0.as_ptr().cast_mut().cast()
    }

    fn write(&self) {
        for (word, value) in self.0.iter().zip(BASE..) {
            word.store(value, Ordering::SeqCst);
        }
    }

    fn is_written(&self) -> bool {
        let mut words = self.0.iter().zip(BASE..);
        words.all(|(word, value)| word.load(Ordering::SeqCst) == value)
    }

    fn is_untouched(&self) -> bool {
        self.0.iter().all(|word| word.load(Ordering::SeqCst) == 0)
    }

    /// Waits for the words. Memory that may still be written is leaked.
    fn expect_data(self, what: &str) -> Done {
        let end = Instant::now() + TIMEOUT;
        while !self.is_written() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        let words: Vec<u32> = self.0.iter().map(|w| w.load(Ordering::SeqCst)).collect();
        let arrived = self.is_written();
        if !arrived {
            std::mem::forget(self);
        }
        check!(arrived, "{what}: the pending commands left {words:?}");
        Ok(())
    }
}

struct Setup<'a> {
    fixture: &'a Fixture,
    context: Context,
    queue: Queue,
    destination: Destination,
}

impl Setup<'_> {
    /// Copies memory of any kind to the destination, after an event.
    fn copy_to_destination(&self, from: *const c_void, after: &Event) -> Done {
        let (queue, to) = (self.queue.raw, self.destination.at());
        let wait = WaitList::new(&[after]);
        self.fixture
            .ur
            .urEnqueueUSMMemcpy(
                queue,
                0,
                to,
                from,
                BYTES,
                wait.count(),
                wait.pointer(),
                null_mut(),
            )
            .ok()
    }

    fn read_to_destination(&self, from: &Buffer, after: &Event) -> Done {
        let (queue, to) = (self.queue.raw, self.destination.at());
        let wait = WaitList::new(&[after]);
        self.fixture
            .ur
            .urEnqueueMemBufferRead(
                queue,
                from.raw,
                0,
                0,
                BYTES,
                to,
                wait.count(),
                wait.pointer(),
                null_mut(),
            )
            .ok()
    }

    /// Fills a buffer with one word, after an event.
    fn fill(&self, buffer: &Buffer, word: u32, after: &Event) -> Result<Event, Stop> {
        let wait = WaitList::new(&[after]);
        let from = (&raw const word).cast();
        self.queue.event(|event| {
            self.fixture.ur.urEnqueueMemBufferFill(
                self.queue.raw,
                buffer.raw,
                from,
                size_of_val(&word),
                0,
                BYTES,
                wait.count(),
                wait.pointer(),
                event,
            )
        })
    }
}

/// A host task that ends when the sender is dropped, or after a time limit.
fn blocking_task(queue: &Queue, opened: Receiver<()>) -> Result<Event, Stop> {
    let task = move || {
        let _ = opened.recv_timeout(TIMEOUT);
    };
    queue.host_task(task, &[])
}

/// Enqueues commands after a blocked event on queues of both orders, and checks their data.
///
/// All objects are released before the event completes.
fn check_release(fixture: &Fixture, enqueue: fn(&Setup<'_>, &Event) -> Done) -> Done {
    if !fixture.supports(UR_DEVICE_INFO_ENQUEUE_HOST_TASK_SUPPORT_EXP)? {
        return Err(Stop::skipped(
            "the device has no host tasks to block a queue with",
        ));
    }
    for in_order in [true, false] {
        let context = Context::new(fixture)?;
        let queue = match in_order {
            true => context.in_order(fixture)?,
            false => context.out_of_order(fixture)?,
        };
        let (open, opened) = channel();
        let gate = blocking_task(&queue, opened)?;
        let setup = Setup {
            fixture,
            context,
            queue,
            destination: Destination::new(),
        };
        enqueue(&setup, &gate)?;
        drop(gate);
        let Setup {
            context,
            queue,
            destination,
            ..
        } = setup;
        drop(queue);
        drop(context);
        check!(
            destination.is_untouched(),
            "a command ran before the gate opened"
        );
        drop(open);
        destination.expect_data(if in_order { "in order" } else { "out of order" })?;
    }
    Ok(())
}

/// A pending copy completes after its memory's queue and context were released.
fn copies(fixture: &Fixture) -> Done {
    check_release(fixture, |setup, gate| {
        let memory = setup.context.usm(setup.fixture, Kind::Device, BYTES)?;
        let words: Vec<u32> = (BASE..).take(WORDS).collect();
        // The other queue does not wait for the gate.
        let other = setup.context.in_order(setup.fixture)?;
        other.write(memory.ptr, &words)?;
        setup.copy_to_destination(memory.ptr, gate)
    })
}

/// A pending launch completes after its kernel, program, queue and context were released.
fn launches(fixture: &Fixture) -> Done {
    check_release(fixture, |setup, gate| {
        let memory = setup.context.usm(setup.fixture, Kind::Device, BYTES)?;
        let kernel = Program::new(setup.fixture, &setup.context)?.kernel(IOTA)?;
        let args = [Arg::Pointer(memory.ptr), Arg::of(&BASE)];
        let done = setup.queue.launch(&kernel, WORDS, &args, &[gate])?;
        drop(kernel);
        setup.copy_to_destination(memory.ptr, &done)
    })
}

/// Pending launches on buffers complete after the buffers were released.
fn launches_on_buffers(fixture: &Fixture) -> Done {
    check_release(fixture, |setup, gate| {
        let (buffer, more) = (setup.context.buffer(BYTES)?, setup.context.buffer(BYTES)?);
        let program = Program::new(setup.fixture, &setup.context)?;
        let (iota, add) = (program.kernel(IOTA)?, program.kernel(ADD)?);
        drop(program);
        let (base, rest) = (BASE - 5, 5_u32);
        let filled = setup.fill(&more, 1, gate)?;
        let args = [Arg::Buffer(&buffer), Arg::of(&base)];
        let begun = setup.queue.launch(&iota, WORDS, &args, &[&filled])?;
        let args = [Arg::Buffer(&buffer), Arg::of(&rest)];
        let done = setup.queue.launch(&add, WORDS, &args, &[&begun])?;
        setup.read_to_destination(&buffer, &done)
    })
}

/// A pending launch on a sub-buffer completes after it and its buffer were released.
fn sub_buffers(fixture: &Fixture) -> Done {
    check_release(fixture, |setup, gate| {
        let bits: u32 = setup
            .fixture
            .device_info(UR_DEVICE_INFO_MEM_BASE_ADDR_ALIGN)?;
        let origin = (bits as usize / 8).max(BYTES);
        let whole = setup.context.buffer(origin + BYTES)?;
        let part = whole.part(origin, BYTES)?;
        let kernel = Program::new(setup.fixture, &setup.context)?.kernel(IOTA)?;
        let args = [Arg::Buffer(&part), Arg::of(&BASE)];
        let done = setup.queue.launch(&kernel, WORDS, &args, &[gate])?;
        drop(whole);
        setup.read_to_destination(&part, &done)
    })
}

/// A pending map, host write and unmap complete after the buffer was released.
fn maps(fixture: &Fixture) -> Done {
    check_release(fixture, |setup, gate| {
        let ur = setup.fixture.ur;
        let buffer = setup.context.buffer(BYTES)?;
        let mut mapped: *mut c_void = null_mut();
        let wait = WaitList::new(&[gate]);
        let ready = setup.queue.event(|event| {
            ur.urEnqueueMemBufferMap(
                setup.queue.raw,
                buffer.raw,
                0,
                UR_MAP_FLAG_WRITE_INVALIDATE_REGION,
                0,
                BYTES,
                wait.count(),
                wait.pointer(),
                event,
                &mut mapped,
            )
        })?;
        let address = mapped.expose_provenance();
        let write = move || {
            for (index, value) in (BASE..).take(WORDS).enumerate() {
                let word = std::ptr::with_exposed_provenance_mut::<u32>(address);
                // SAFETY: the buffer is mapped there, and this lies within it.
                unsafe { word.add(index).write(value) };
            }
        };
        let written = setup.queue.host_task(write, &[&ready])?;
        let wait = WaitList::new(&[&written]);
        let done = setup.queue.event(|event| {
            ur.urEnqueueMemUnmap(
                setup.queue.raw,
                buffer.raw,
                mapped,
                wait.count(),
                wait.pointer(),
                event,
            )
        })?;
        setup.read_to_destination(&buffer, &done)
    })
}

/// A pending allocation, its use and its free complete after the pool was released.
fn asynchronous_memory(fixture: &Fixture) -> Done {
    check_release(fixture, |setup, gate| {
        Kind::Device.need(setup.fixture)?;
        let queue = &setup.queue;
        let pool = Pool::new(setup.fixture, &setup.context)?;
        let (block, begun) = queue.alloc_event(Kind::Device, &pool, BYTES, &[gate])?;
        let kernel = Program::new(setup.fixture, &setup.context)?.kernel(IOTA)?;
        let args = [Arg::Pointer(block.ptr), Arg::of(&BASE)];
        let done = queue.launch(&kernel, WORDS, &args, &[&begun])?;
        setup.copy_to_destination(block.ptr, &done)?;
        let all = queue.marker(&[])?;
        queue.free(block, &[&all])
    })
}

/// A pending command buffer completes after it was released.
fn command_buffers(fixture: &Fixture) -> Done {
    check_release(fixture, |setup, gate| {
        CommandBuffer::need(setup.fixture, &setup.context)?;
        let memory = setup.context.usm(setup.fixture, Kind::Device, BYTES)?;
        let kernel = Program::new(setup.fixture, &setup.context)?.kernel(IOTA)?;
        let shape = Shape {
            in_order: true,
            ..Shape::default()
        };
        let buffer = CommandBuffer::new(setup.fixture, &setup.context, shape)?;
        buffer.fill(memory.ptr, 0_u8, BYTES, With::default())?;
        let args = [Arg::Pointer(memory.ptr), Arg::of(&BASE)];
        buffer.launch(&kernel, WORDS, &args, With::default())?;
        buffer.finalize()?;
        let done = buffer.enqueue(&setup.queue, &[gate])?;
        drop(buffer);
        setup.copy_to_destination(memory.ptr, &done)
    })
}

/// A pending graph completes after it and its executable were released.
fn graphs(fixture: &Fixture) -> Done {
    check_release(fixture, |setup, gate| {
        Graph::need(setup.fixture, &setup.context)?;
        let memory = setup.context.usm(setup.fixture, Kind::Device, BYTES)?;
        let kernel = Program::new(setup.fixture, &setup.context)?.kernel(IOTA)?;
        let args = [Arg::Pointer(memory.ptr), Arg::of(&BASE)];
        let other = setup.context.in_order(setup.fixture)?;
        let graph = Graph::capture(&other, || {
            other.launch(&kernel, WORDS, &args, &[]).map(drop)
        })?;
        let executable = graph.instantiate()?;
        drop((graph, kernel, other));
        let done = executable.enqueue(&setup.queue, &[gate])?;
        drop(executable);
        setup.copy_to_destination(memory.ptr, &done)
    })
}

/// A pending host task runs after its queue and context were released.
fn host_tasks(fixture: &Fixture) -> Done {
    check_release(fixture, |setup, gate| {
        let destination = Destination(Arc::clone(&setup.destination.0));
        let task = move || destination.write();
        setup.queue.host_task(task, &[gate]).map(drop)
    })
}

extern "C" fn write(_: ur_event_handle_t, _: ur_execution_info_t, data: *mut c_void) {
    // SAFETY: the test passes this box to one callback.
    unsafe { Box::from_raw(data.cast::<Destination>()) }.write();
}

/// A callback runs after its event, queue and context were released.
fn callbacks(fixture: &Fixture) -> Done {
    check_release(fixture, |setup, gate| {
        let done = setup.queue.marker(&[gate])?;
        let destination = Destination(Arc::clone(&setup.destination.0));
        let data = Box::into_raw(Box::new(destination)).cast();
        setup
            .fixture
            .ur
            .urEventSetCallback(done.raw, UR_EXECUTION_INFO_COMPLETE, Some(write), data)
            .ok()
    })
}

/// Commands of released queues complete in the order that released events give them.
fn dependent_queues(fixture: &Fixture) -> Done {
    check_release(fixture, |setup, gate| {
        let memory = setup.context.usm(setup.fixture, Kind::Device, BYTES)?;
        let kernel = Program::new(setup.fixture, &setup.context)?.kernel(IOTA)?;
        let args = [Arg::Pointer(memory.ptr), Arg::of(&BASE)];
        let mut last = setup.queue.marker(&[gate])?;
        for round in 0..8 {
            let queue = match round % 2 {
                0 => setup.context.in_order(setup.fixture)?,
                _ => setup.context.out_of_order(setup.fixture)?,
            };
            last = queue.launch(&kernel, WORDS, &args, &[&last])?;
        }
        setup.copy_to_destination(memory.ptr, &last)
    })
}

/// A queue of another context runs its commands after those of a released queue.
fn dependent_contexts(fixture: &Fixture) -> Done {
    check_release(fixture, |setup, gate| {
        let begun = setup.queue.marker(&[gate])?;
        let other = Context::new(setup.fixture)?;
        let queue = other.in_order(setup.fixture)?;
        let memory = other.usm(setup.fixture, Kind::Device, BYTES)?;
        let kernel = Program::new(setup.fixture, &other)?.kernel(IOTA)?;
        let args = [Arg::Pointer(memory.ptr), Arg::of(&BASE)];
        queue.launch(&kernel, WORDS, &args, &[&begun])?;
        let to = setup.destination.at();
        setup
            .fixture
            .ur
            .urEnqueueUSMMemcpy(queue.raw, 0, to, memory.ptr, BYTES, 0, null(), null_mut())
            .ok()
    })
}

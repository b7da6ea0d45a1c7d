//! Native work: commands that a test submits to the backend itself.
//!
//! It does so in native commands, on queues whose native handle was given out, and on queues and events made
//! of native handles. Native work is ordered like the queue's own commands.

mod native_capture;
mod native_command;
mod native_queue;

use crate::fixture::Fixture;
use crate::native_work::{Command, Fill, NativeWork, provider};
use crate::objects::{Block, Context, Kind, Pool, Queue, Usm, failed_elsewhere};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::suites::enqueue::pending;
use crate::{api, check, in_progress};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let holding = [native_command::all, native_queue::all];
    let holding = holding.into_iter().flat_map(|suite| suite());
    // A test may release objects whose commands are pending, which the adapter frees later. A driver may wait for the
    // device meanwhile and let no other call return. While native work is held that would be for good.
    let holding = holding.map(Test::apart);
    native_capture::all().into_iter().chain(holding).collect()
}

const SIZE: usize = 64 << 10;
/// Most commands that one test blocks.
const MAX_BLOCKED_COMMANDS: usize = 16;

/// A context, its memory, and the provider of native work.
struct Setup<'a> {
    fixture: &'a Fixture,
    backend: &'static dyn NativeWork,
    /// Host memory.
    memory: Usm,
    /// One word for each blocked native command. They are allocated ahead, since a driver may not allocate
    /// while a queue waits.
    words: Usm,
    used: AtomicUsize,
    context: Context,
    /// The backend's context.
    native: ur_native_handle_t,
}

impl<'a> Setup<'a> {
    fn new(fixture: &'a Fixture) -> Result<Self, Stop> {
        let backend = provider(fixture.backend)
            .ok_or_else(|| Stop::skipped("no provider submits native work on this backend"))?;
        let context = Context::new(fixture)?;
        let memory = context.usm(fixture, Kind::Host, SIZE)?;
        let mut words =
            context.usm(fixture, Kind::Host, MAX_BLOCKED_COMMANDS * size_of::<u32>())?;
        words.host_mut::<u32>().fill(0);
        let mut native = 0;
        let status = fixture
            .ur
            .urContextGetNativeHandle(context.raw, &mut native);
        status.ok()?;
        let setup = Self {
            native,
            words,
            used: AtomicUsize::new(0),
            fixture,
            context,
            backend,
            memory,
        };
        setup.load()?;
        Ok(setup)
    }

    /// Runs native work and a fill of the queue once. A driver may load their code at the first use, and wait for the
    /// device to do so, which would never end while native work is held.
    fn load(&self) -> Done {
        let queue = self.in_order()?;
        queue.fill(self.memory.ptr, 1_u8, SIZE, &[])?;
        drop(self.fill(native(&queue)?, 0, &[], false)?);
        queue.finish()
    }

    fn in_order(&self) -> Result<Queue, Stop> {
        self.context.in_order(self.fixture)
    }

    fn out_of_order(&self) -> Result<Queue, Stop> {
        self.context.out_of_order(self.fixture)
    }

    /// Submits a fill of the setup's memory to a native queue.
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
        let held = held.then(|| self.word()).transpose()?;
        let fill = Fill {
            queue,
            context: self.native,
            memory,
            byte,
            bytes,
            waits,
            held,
        };
        let command = self.backend.fill(&fill).map_err(Stop::failed)?;
        Ok(match held {
            Some(_) => Box::new(Held::new(command)),
            None => command,
        })
    }

    /// A word that no command waits for yet.
    fn word(&self) -> Result<*mut u32, Stop> {
        let at = self.used.fetch_add(1, Ordering::Relaxed);
        check!(
            at < MAX_BLOCKED_COMMANDS,
            "a test blocks more than {MAX_BLOCKED_COMMANDS} native commands"
        );
        Ok(self.words.ptr.cast::<u32>().wrapping_add(at))
    }

    /// Sets every byte of the setup's memory, and waits.
    fn memory_is(&self, queue: &Queue, byte: u8) -> Done {
        queue.fill(self.memory.ptr, byte, SIZE, &[])?.wait()
    }

    /// Fails unless every byte of the setup's memory is `byte`.
    fn holds(&self, byte: u8, what: &str) -> Done {
        are_all(self.memory.host(), byte, what)
    }
}

/// Longest time that a test holds native work back, as a gate stays closed.
const HELD_TIMEOUT: Duration = Duration::from_secs(20);

/// Native work that is held back.
///
/// After a time limit it is released and the test fails, so that a call that waits for it does not hang.
struct Held {
    command: Arc<Mutex<Box<dyn Command + Send>>>,
    /// Dropping it ends the thread that releases the work in time.
    limit: Option<Sender<()>>,
}

impl Held {
    fn new(command: Box<dyn Command + Send>) -> Self {
        let command = Arc::new(Mutex::new(command));
        let (limit, ends) = channel::<()>();
        // The command ends on the thread of the test.
        let late = Arc::downgrade(&command);
        std::thread::spawn(move || {
            if ends.recv_timeout(HELD_TIMEOUT) == Err(RecvTimeoutError::Timeout)
                && let Some(command) = late.upgrade()
            {
                let seconds = HELD_TIMEOUT.as_secs();
                let threads = in_progress::report(api::FUNCTIONS);
                let threads = threads.trim_end().replace('\n', "; ");
                failed_elsewhere(format!("native work was held for {seconds} s: {threads}"));
                let mut command = command.lock().unwrap_or_else(PoisonError::into_inner);
                command.release();
            }
        });
        Self {
            command,
            limit: Some(limit),
        }
    }

    fn command(&self) -> MutexGuard<'_, Box<dyn Command + Send>> {
        self.command.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Command for Held {
    fn release(&mut self) {
        self.command().release();
        self.limit = None;
    }

    fn event(&self) -> ur_native_handle_t {
        self.command().event()
    }
}

/// Fails unless every byte is `byte`.
fn are_all(bytes: &[u8], byte: u8, what: &str) -> Done {
    let wrong = bytes.iter().find(|found| **found != byte);
    check!(wrong.is_none(), "{what}: got {wrong:?}, expected {byte}");
    Ok(())
}

fn native(queue: &Queue) -> Result<ur_native_handle_t, Stop> {
    let mut native = 0;
    queue
        .ur
        .urQueueGetNativeHandle(queue.raw, null_mut(), &mut native)
        .ok()?;
    Ok(native)
}

fn need_async(fixture: &Fixture) -> Done {
    match fixture.supports(UR_DEVICE_INFO_ASYNC_USM_ALLOCATIONS_SUPPORT_EXP)? {
        true => Ok(()),
        false => Err(Stop::skipped("the device has no asynchronous allocation")),
    }
}

/// Frees a block with pending native work, which `used` submits.
///
/// Another queue may get the block only when that work has completed.
fn freed_while(
    setup: &Setup,
    queue: &Queue,
    used: impl FnOnce(Block) -> Result<Box<dyn Command + Send>, Stop>,
) -> Done {
    let pool = Pool::new(setup.fixture, &setup.context)?;
    let other = setup.in_order()?;
    let (block, ready) = queue.alloc_event(Kind::Shared, &pool, 1 << 20, &[])?;
    ready.wait()?;
    let native_fill = used(block)?;
    let freed = queue.free_event(block, &[])?;
    pending(&freed, "a free completed before native work on its block")?;
    let early = other.alloc(Kind::Shared, &pool, 1 << 20, &[])?;
    check!(
        !early.overlaps(&block),
        "a block was reused while native work used it"
    );
    drop(native_fill);
    freed.wait()?;
    let late = other.alloc(Kind::Shared, &pool, 1 << 20, &[])?;
    check!(
        late.overlaps(&block),
        "a free block was not reused after the native work completed"
    );
    other.free(early, &[])?;
    other.free(late, &[])?;
    other.finish()?;
    queue.finish()
}

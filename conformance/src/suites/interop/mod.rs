//! Work that the backend gets past the interface: by native commands, on queues whose native handle
//! was taken, on queues and events made of native handles. It is ordered like the queue's own.

mod native_command;
mod native_queue;

use crate::check;
use crate::fixture::Fixture;
use crate::foreign::{Command, Fill, Foreign, provider};
use crate::objects::{Block, Context, Kind, Pool, Queue, Usm};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::suites::enqueue::pending;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let suites = [native_command::all, native_queue::all];
    suites.into_iter().flat_map(|suite| suite()).collect()
}

const SIZE: usize = 64 << 10;
/// Most commands that one test holds back.
const HELD: usize = 16;

/// A context, its memory, and who puts work past the interface.
struct Setup<'a> {
    fixture: &'a Fixture,
    foreign: &'static dyn Foreign,
    /// Visible to the host.
    memory: Usm,
    /// What held work waits for, a word each: made ahead, since a driver may not allocate while a queue
    /// waits.
    words: Usm,
    used: AtomicUsize,
    context: Context,
}

impl<'a> Setup<'a> {
    fn new(fixture: &'a Fixture) -> Result<Self, Stop> {
        let foreign = provider(fixture.backend)
            .ok_or_else(|| Stop::skipped("nobody puts foreign work on this backend's queues"))?;
        let context = Context::new(fixture)?;
        let memory = context.usm(fixture, Kind::Host, SIZE)?;
        let mut words = context.usm(fixture, Kind::Host, HELD * size_of::<u32>())?;
        words.host_mut::<u32>().fill(0);
        Ok(Self {
            words,
            used: AtomicUsize::new(0),
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

    /// Fills the setup's memory on a native queue.
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
            memory,
            byte,
            bytes,
            waits,
            held,
        };
        self.foreign.fill(&fill).map_err(Stop::failed)
    }

    /// A word that no command waits for yet.
    fn word(&self) -> Result<*mut u32, Stop> {
        let at = self.used.fetch_add(1, Ordering::Relaxed);
        check!(
            at < HELD,
            "a test that holds back more than {HELD} commands"
        );
        Ok(self.words.ptr.cast::<u32>().wrapping_add(at))
    }

    /// Fails unless the setup's memory is full of this byte.
    fn holds(&self, byte: u8, what: &str) -> Done {
        are_all(self.memory.host(), byte, what)
    }
}

/// Goes on only if all are this byte.
fn are_all(bytes: &[u8], byte: u8, what: &str) -> Done {
    let wrong = bytes.iter().find(|found| **found != byte);
    check!(wrong.is_none(), "{what}: {wrong:?} where {byte} should be");
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
        false => Err(Stop::skipped("the device does not allocate in queue order")),
    }
}

/// Frees a block that `used` has foreign work pending on: other queues get it only when that is done.
fn freed_while(
    setup: &Setup,
    queue: &Queue,
    used: impl FnOnce(Block) -> Result<Box<dyn Command + Send>, Stop>,
) -> Done {
    let pool = Pool::new(setup.fixture, &setup.context)?;
    let other = setup.in_order()?;
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

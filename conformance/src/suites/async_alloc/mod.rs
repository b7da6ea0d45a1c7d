//! Asynchronous allocation: order, reuse, limits, thresholds, statistics and pools, for every kind of USM.
//!
//! Statistics and pointers show that memory is reused. Data shows that it is not reused too early. A gate
//! blocks a queue, so that commands stay pending for as long as the test wants.

mod basic;
mod endurance;
mod errors;
mod fixtures;
mod iterations;
mod limits;
mod no_reuse;
mod order;
mod out_of_order;
mod pools;
mod random;
mod reuse;
mod statistics;
mod synchronous;
mod threads;
mod thresholds;
mod user_memory;

use crate::check;
use crate::fixture::Fixture;
use crate::objects::{Block, Context, Event, Gate, Kind, Pool, Queue, Usm};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::time::Duration;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let suites = [
        basic::all,
        errors::all,
        order::all,
        reuse::all,
        no_reuse::all,
        out_of_order::all,
        limits::all,
        thresholds::all,
        statistics::all,
        pools::all,
        user_memory::all,
        synchronous::all,
        iterations::all,
        random::all,
        threads::all,
        endurance::all,
    ];
    suites.into_iter().flat_map(|suite| suite()).collect()
}

type KindTest = fn(&Setup, Kind) -> Done;
type PlainTest = fn(&Setup) -> Done;

/// One test for each kind of USM, named `KIND_NAME`.
fn by_kind(suite: &'static str, list: &[(&str, KindTest)]) -> Vec<Test> {
    let mut tests = Vec::new();
    for &(name, test) in list {
        for kind in Kind::ALL {
            tests.push(Test::new(suite, format!("{kind}_{name}"), move |fixture| {
                let setup = Setup::new(fixture)?;
                kind.need(fixture)?;
                test(&setup, kind)
            }));
        }
    }
    tests
}

fn plain(suite: &'static str, list: &[(&'static str, PlainTest)]) -> Vec<Test> {
    let test = |&(name, test): &(&'static str, PlainTest)| {
        Test::new(suite, name, move |fixture| test(&Setup::new(fixture)?))
    };
    list.iter().map(test).collect()
}

/// A device that can allocate asynchronously, and a context on it.
struct Setup<'a> {
    fixture: &'a Fixture,
    context: Context,
}

/// A short time in which a command that does not wait would have completed.
const MOMENT: Duration = Duration::from_millis(25);
/// A time in which any command that is not blocked completes.
const LONG: Duration = Duration::from_secs(10);
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

impl<'a> Setup<'a> {
    /// Stops the test on a device without asynchronous allocation. Such a device must refuse the call.
    fn new(fixture: &'a Fixture) -> Result<Self, Stop> {
        let context = Context::new(fixture)?;
        let queue = context.in_order(fixture)?;
        let mut out = null_mut();
        fixture.require(UR_DEVICE_INFO_ASYNC_USM_ALLOCATIONS_SUPPORT_EXP, || {
            Kind::Device.enqueue(
                &queue,
                null_mut(),
                64,
                null(),
                (0, null()),
                &mut out,
                null_mut(),
            )
        })?;
        Ok(Self { fixture, context })
    }

    fn in_order(&self) -> Result<Queue, Stop> {
        self.context.in_order(self.fixture)
    }

    fn out_of_order(&self) -> Result<Queue, Stop> {
        self.context.out_of_order(self.fixture)
    }

    fn pool(&self) -> Result<Pool, Stop> {
        Pool::new(self.fixture, &self.context)
    }

    fn default_pool(&self) -> Result<Pool, Stop> {
        Pool::default_of(self.fixture, &self.context)
    }

    fn gate(&self, queue: &Queue) -> Result<Gate, Stop> {
        Gate::close(self.fixture, queue)
    }

    /// Host memory for results. It is kept until the queue that writes it has finished.
    fn result(&self, size: usize) -> Result<Usm, Stop> {
        self.context.usm(self.fixture, Kind::Host, size)
    }

    /// Allocates, fills, reads and frees a block.
    fn exercise(&self, queue: &Queue, kind: Kind, pool: &Pool, size: usize) -> Done {
        let block = queue.alloc(kind, pool, size, &[])?;
        queue.fill(block.ptr, 0x5a_u8, size, &[])?;
        all_bytes(queue, block, 0x5a)?;
        queue.free(block, &[])
    }
}

/// Compares `found`, `each` bytes for each block in the order of the frees, with the blocks' tags.
fn all_tagged(found: &[u8], each: usize, tags: &[u8]) -> Done {
    for (nth, (found, tag)) in found.chunks(each).zip(tags).enumerate() {
        let right = same_bytes(found, *tag);
        check!(
            right.is_ok(),
            "freed block {nth} differs from its tag: {right:?}"
        );
    }
    Ok(())
}

/// Reads a block on an in-order queue and compares every byte.
#[track_caller]
fn all_bytes(queue: &Queue, block: Block, want: u8) -> Done {
    same_bytes(&queue.read::<u8>(block.ptr, block.size, &[])?, want)
}

#[track_caller]
fn same_bytes(data: &[u8], want: u8) -> Done {
    // The usual case, in which all bytes are right, compares slices for speed.
    if data.first() == Some(&want) && data[1..] == data[..data.len() - 1] {
        return Ok(());
    }
    match data.iter().position(|byte| *byte != want) {
        None => Ok(()),
        Some(at) => Err(Stop::failed(format!(
            "byte {at} of {} is {:#x}, expected {want:#x}",
            data.len(),
            data[at]
        ))),
    }
}

/// Fails with `what` if the event completes although its queue is blocked.
#[track_caller]
fn pending(event: &Event, what: &str) -> Done {
    match event.completes_within(MOMENT)? {
        true => Err(Stop::failed(what)),
        false => Ok(()),
    }
}

#[track_caller]
fn completes(event: &Event, what: &str) -> Done {
    match event.completes_within(LONG)? {
        true => Ok(()),
        false => Err(Stop::failed(what)),
    }
}

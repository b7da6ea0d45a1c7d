//! Endurance: threads that use blocks of many queues at random, and memory that must not grow with the number
//! of commands.
//!
//! `UR_LONG=1` raises 8,000 commands a test to 4 * 10^6, and the commands of the memory test from 10^5 to
//! 10^7. The time limit of a test rises with it.

use super::threads::{Checker, THREADS, on_threads};
use super::*;
use crate::fresh::Fresh;
use crate::{check, check_eq};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

const SUITE: &str = "async_endurance";

pub fn all() -> Vec<Test> {
    let mut tests = plain(
        SUITE,
        &[
            ("in_order_queues", in_order_queues),
            ("out_of_order_queues", out_of_order_queues),
            ("all_queues", all_queues),
            ("under_a_maximum", under_a_maximum),
        ],
    );
    tests.push(Test::process(
        SUITE,
        "memory_stays_bounded",
        memory_stays_bounded,
    ));
    tests
}

fn commands(few: usize, many: usize) -> usize {
    match std::env::var_os("UR_LONG") {
        Some(_) => many,
        None => few,
    }
}

/// A queue and whether it is in order.
struct TestQueue {
    queue: Queue,
    in_order: bool,
}

/// Eight threads that share blocks of eight in-order queues find no wrong word.
fn in_order_queues(setup: &Setup) -> Done {
    run_threads(setup, &[true; THREADS], &WIDE)
}

/// Eight threads that share blocks of three out-of-order queues find no wrong word.
fn out_of_order_queues(setup: &Setup) -> Done {
    run_threads(setup, &[false; 3], &WIDE)
}

/// Eight threads that share blocks of queues of both orders find no wrong word.
fn all_queues(setup: &Setup) -> Done {
    run_threads(setup, &[true, true, true, true, false, false], &WIDE)
}

/// Eight threads that share blocks of a pool with a tight maximum find no wrong word.
fn under_a_maximum(setup: &Setup) -> Done {
    run_threads(
        setup,
        &[true, true, true, true, true, true, false, false],
        &TIGHT,
    )
}

/// The parameters of a run.
struct Parameters {
    sizes: &'static [usize],
    kinds: &'static [Kind],
    /// Maximum size of the pool in bytes; 0 for no limit.
    maximum: usize,
}

const WIDE: Parameters = Parameters {
    sizes: &[256, 3 * KIB, 20 * KIB, 72 * KIB],
    kinds: &Kind::ALL,
    maximum: 0,
};

/// Slightly more than all threads hold at once, so that allocations need pending frees.
const TIGHT: Parameters = Parameters {
    sizes: &[64 * KIB],
    kinds: &[Kind::Device],
    maximum: (THREADS * (MAX_LIVE_BLOCKS + 2)).next_multiple_of(32) * 64 * KIB,
};

/// A pool that may use the backend's own pool if the user asks for that.
fn pool(setup: &Setup, maximum: usize) -> Result<Pool, Stop> {
    let limits = ur_usm_pool_limits_desc_t {
        maxPoolableSize: maximum,
        minDriverAllocSize: usize::MAX,
        ..Default::default()
    };
    let mut desc = ur_usm_pool_desc_t {
        flags: UR_USM_POOL_FLAG_USE_NATIVE_MEMORY_POOL_EXP,
        pNext: match maximum {
            0 => std::ptr::null(),
            _ => (&raw const limits).cast(),
        },
        ..Default::default()
    };
    Pool::create(setup.fixture, &setup.context, &mut desc)
}

/// Runs all threads on all queues, with one pool and one table for blocks that threads exchange.
fn run_threads(setup: &Setup, in_order: &[bool], parameters: &Parameters) -> Done {
    let (pool, checker) = (pool(setup, parameters.maximum)?, Checker::new(setup)?);
    let test_queue = |&in_order: &bool| -> Result<TestQueue, Stop> {
        let queue = match in_order {
            true => setup.in_order()?,
            false => setup.out_of_order()?,
        };
        Ok(TestQueue { queue, in_order })
    };
    let test_queues = in_order
        .iter()
        .map(test_queue)
        .collect::<Result<Vec<_>, _>>()?;
    let table = Mutex::new(Vec::new());
    let share = commands(8_000, 4_000_000) / THREADS;
    let enqueued = AtomicUsize::new(0);
    on_threads(|thread| {
        let random = (thread as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let worker = Worker {
            pool: &pool,
            checker: &checker,
            test_queues: &test_queues,
            table: &table,
            host: setup.result(parameters.sizes.iter().copied().max().unwrap_or(0))?,
            parameters,
            live: Vec::new(),
            frees: Vec::new(),
            random,
            enqueued: 0,
        };
        enqueued.fetch_add(worker.run(share)?, Ordering::Relaxed);
        Ok(())
    })?;
    let left = table.into_inner().unwrap_or_else(PoisonError::into_inner);
    for held in left {
        let test_queue = &test_queues[0];
        test_queue.queue.free(held.block, &[&held.last])?;
    }
    test_queues
        .iter()
        .try_for_each(|test_queue| test_queue.queue.finish())?;
    checker.no_word_was_wrong()?;
    check_eq!(pool.used()?, 0, "used bytes");
    report(&format!(
        "{} commands by {THREADS} threads on {} queues, no word wrong",
        enqueued.into_inner(),
        test_queues.len()
    ));
    Ok(())
}

/// Writes a line to standard error. A passing test does not show it, but `--json` contains it.
fn report(what: &str) {
    eprintln!("{what}");
}

/// Most blocks that a thread holds.
const MAX_LIVE_BLOCKS: usize = 12;
/// A thread waits after this many commands, which bounds the number of pending ones.
const PAUSE: usize = 200;

/// A block whose words count up from `base` once `last`, a command of the queue at index `at`, has completed.
struct LiveBlock {
    block: Block,
    base: u32,
    last: Event,
    at: usize,
}

struct Worker<'a> {
    pool: &'a Pool,
    checker: &'a Checker,
    test_queues: &'a [TestQueue],
    table: &'a Mutex<Vec<LiveBlock>>,
    parameters: &'a Parameters,
    host: Usm,
    live: Vec<LiveBlock>,
    frees: Vec<Event>,
    random: u64,
    enqueued: usize,
}

impl Worker<'_> {
    /// Runs the thread and returns the number of commands it enqueued.
    fn run(mut self, share: usize) -> Result<usize, Stop> {
        let mut pause = PAUSE;
        while self.enqueued < share {
            match self.below(16) {
                0..=3 if self.live.len() < MAX_LIVE_BLOCKS => self.allocate()?,
                4..=6 => self.verify()?,
                7..=8 => self.copy()?,
                9 => self.read()?,
                10..=11 => self.swap(),
                _ => self.free()?,
            }
            if self.enqueued > pause {
                pause += PAUSE;
                self.pause()?;
            }
        }
        while !self.live.is_empty() {
            self.free()?;
        }
        Ok(self.enqueued)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as usize % bound
    }

    /// A random index of a live block.
    fn pick(&mut self) -> Option<usize> {
        let count = self.live.len();
        (count > 0).then(|| self.below(count))
    }

    /// Whether a command of that queue needs no event of the block, since the queue's order suffices.
    ///
    /// A quarter of such commands name the event all the same.
    fn follows(&mut self, at: usize, held: usize) -> bool {
        self.test_queues[at].in_order && self.live[held].at == at && self.below(4) > 0
    }

    fn allocate(&mut self) -> Done {
        let (sizes, kinds) = (self.parameters.sizes, self.parameters.kinds);
        let (at, size) = (
            self.below(self.test_queues.len()),
            sizes[self.below(sizes.len())],
        );
        let kind = kinds[self.below(kinds.len())];
        let before = match self.below(2) {
            0 => self.frees.pop(),
            _ => None,
        };
        let wait: Vec<&Event> = before.iter().collect();
        let test_queue = &self.test_queues[at];
        let base = (self.random as u32) | 1;
        let (block, last) = match test_queue.in_order {
            true => {
                let block = test_queue.queue.alloc(kind, self.pool, size, &wait)?;
                (
                    block,
                    self.checker.write(&test_queue.queue, block, base, &[])?,
                )
            }
            false => {
                let (block, made) = test_queue.queue.alloc_event(kind, self.pool, size, &wait)?;
                (
                    block,
                    self.checker
                        .write(&test_queue.queue, block, base, &[&made])?,
                )
            }
        };
        self.enqueued += 2;
        let overlaps = self.live.iter().any(|other| other.block.overlaps(&block));
        check!(!overlaps, "a live block was handed out again");
        self.live.push(LiveBlock {
            block,
            base,
            last,
            at,
        });
        Ok(())
    }

    fn verify(&mut self) -> Done {
        let Some(held) = self.pick() else {
            return Ok(());
        };
        let at = self.below(self.test_queues.len());
        let follows = self.follows(at, held);
        let LiveBlock {
            block, base, last, ..
        } = &self.live[held];
        let wait: &[&Event] = if follows { &[] } else { &[last] };
        let verified = self
            .checker
            .verify(&self.test_queues[at].queue, *block, *base, wait)?;
        (self.live[held].last, self.live[held].at) = (verified, at);
        self.enqueued += 1;
        Ok(())
    }

    /// Copies a block to another one of the same size.
    fn copy(&mut self) -> Done {
        let Some(from) = self.pick() else {
            return Ok(());
        };
        let size = self.live[from].block.size;
        let fits = |(index, held): &(usize, &LiveBlock)| *index != from && held.block.size == size;
        let Some((to, _)) = self.live.iter().enumerate().find(fits) else {
            return Ok(());
        };
        let at = self.below(self.test_queues.len());
        let follows = self.follows(at, from) && self.follows(at, to);
        let (source, target) = (&self.live[from], &self.live[to]);
        let wait: &[&Event] = match follows {
            true => &[],
            false => &[&source.last, &target.last],
        };
        let queue = &self.test_queues[at].queue;
        let copied = queue.copy(target.block.ptr, source.block.ptr, size, wait)?;
        let shared = copied.share()?;
        self.live[to].base = self.live[from].base;
        (self.live[to].last, self.live[to].at) = (copied, at);
        (self.live[from].last, self.live[from].at) = (shared, at);
        self.enqueued += 1;
        Ok(())
    }

    /// Reads a block and compares every word on the host.
    fn read(&mut self) -> Done {
        let Some(held) = self.pick() else {
            return Ok(());
        };
        let at = self.below(self.test_queues.len());
        let LiveBlock {
            block, base, last, ..
        } = &self.live[held];
        let queue = &self.test_queues[at].queue;
        queue
            .copy(self.host.ptr, block.ptr, block.size, &[last])?
            .wait()?;
        let words = &self.host.host::<u32>()[..block.size / 4];
        let right = |(index, word): (usize, &u32)| *word == base.wrapping_add(index as u32);
        check!(
            words.iter().enumerate().all(right),
            "a copy differs from its block"
        );
        self.enqueued += 1;
        Ok(())
    }

    /// Exchanges a block with another thread.
    fn swap(&mut self) {
        let Some(held) = self.pick() else { return };
        let shared = self.live.swap_remove(held);
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.push(shared);
        if table.len() > THREADS {
            let oldest = table.remove(0);
            drop(table);
            self.live.push(oldest);
        }
    }

    fn free(&mut self) -> Done {
        let Some(held) = self.pick() else {
            return Ok(());
        };
        let at = self.below(self.test_queues.len());
        let follows = self.follows(at, held);
        let wants_event = self.below(2) == 0;
        let LiveBlock { block, last, .. } = self.live.swap_remove(held);
        let wait: &[&Event] = if follows { &[] } else { &[&last] };
        let queue = &self.test_queues[at].queue;
        if wants_event {
            let freed = queue.free_event(block, wait)?;
            if self.frees.len() < MAX_LIVE_BLOCKS {
                self.frees.push(freed);
            }
        } else {
            queue.free(block, wait)?;
        }
        self.enqueued += 1;
        Ok(())
    }

    fn pause(&mut self) -> Done {
        match self.live.last() {
            Some(held) if self.random.is_multiple_of(2) => held.last.wait(),
            _ => {
                let at = self.below(self.test_queues.len());
                self.test_queues[at].queue.finish()
            }
        }
    }
}

/// Allowed growth of the process in bytes, for memory that the C allocator caches.
const SLACK: usize = 2 * MIB;

/// Completed commands, events and released queues leave no memory behind.
fn memory_stays_bounded(fresh: &Fresh) -> Done {
    // A sanitizer (scripts/sanitize.sh) quarantines freed memory.
    let set = |name: &str| std::env::var_os(name).is_some();
    if set("ASAN_OPTIONS") || set("TSAN_OPTIONS") {
        return Err(Stop::skipped("a sanitizer's own memory grows"));
    }
    let fixture = fresh.fixture()?;
    let setup = Setup::new(&fixture)?;
    let pool = setup.pool()?;
    let (mut first, second) = (setup.out_of_order()?, setup.out_of_order()?);
    let in_order = setup.in_order()?;
    let rounds = commands(100_000, 10_000_000) / 4;
    let mut begin = 0;
    let mut last_free: Option<Event> = None;
    for round in 0..rounds {
        let wait: Vec<&Event> = last_free.iter().collect();
        let (block, made) = first.alloc_event(Kind::Device, &pool, 4 * KIB, &wait)?;
        let filled = first.fill(block.ptr, round as u32, 4 * KIB, &[&made])?;
        let moved = block.ptr.wrapping_byte_add(2 * KIB);
        let copied = second.copy(block.ptr, moved, 2 * KIB, &[&filled])?;
        let freed = second.free_event(block, &[&copied])?;
        if round % 16 == 0 {
            in_order.marker(&[&freed])?;
        }
        if round % 64 == 0 {
            freed.wait()?;
        }
        if round % 1000 == 0 {
            first = setup.out_of_order()?;
        }
        last_free = Some(freed);
        if round == rounds / 5 {
            begin = resident()?;
        }
    }
    [first, second, in_order]
        .iter()
        .try_for_each(Queue::finish)?;
    let end = resident()?;
    let what = format!(
        "{begin} bytes resident after {} commands, {end} after {}",
        rounds / 5 * 4,
        rounds * 4
    );
    report(&what);
    check!(end <= begin + SLACK, "{what}");
    Ok(())
}

/// The resident memory of this process in bytes.
fn resident() -> Result<usize, Stop> {
    let text = std::fs::read_to_string("/proc/self/statm")
        .map_err(|error| Stop::skipped(format!("/proc/self/statm: {error}")))?;
    let pages = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    let pages: usize = pages.ok_or_else(|| Stop::skipped("/proc/self/statm has changed"))?;
    // SAFETY: `sysconf` has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Ok(pages * usize::try_from(page).unwrap_or(0))
}

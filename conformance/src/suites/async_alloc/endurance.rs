//! Endurance: threads that play at random with the blocks of many queues, and memory that must not
//! grow with the number of commands.
//!
//! `UR_LONG=1` raises 8,000 commands a test to 4 * 10^6, and those whose memory is watched from
//! 10^5 to 10^7; tests then have longer before they count as hung.

use super::threads::{THREADS, Tools, on_threads};
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

/// A queue, and whether it keeps commands in order by itself.
struct Line {
    queue: Queue,
    in_order: bool,
}

/// Eight threads that share blocks of eight in-order queues find no wrong word.
fn in_order_queues(setup: &Setup) -> Done {
    play(setup, &[true; THREADS], &WIDE)
}

/// Eight threads that share blocks of three out-of-order queues find no wrong word.
fn out_of_order_queues(setup: &Setup) -> Done {
    play(setup, &[false; 3], &WIDE)
}

/// Eight threads that share blocks of queues of both orders find no wrong word.
fn all_queues(setup: &Setup) -> Done {
    play(setup, &[true, true, true, true, false, false], &WIDE)
}

/// Eight threads that share blocks of a pool with a tight maximum find no wrong word.
fn under_a_maximum(setup: &Setup) -> Done {
    play(
        setup,
        &[true, true, true, true, true, true, false, false],
        &TIGHT,
    )
}

/// What is played with.
struct Game {
    sizes: &'static [usize],
    kinds: &'static [Kind],
    /// Most bytes of the pool; 0 for no limit.
    maximum: usize,
}

const WIDE: Game = Game {
    sizes: &[256, 3 * KIB, 20 * KIB, 72 * KIB],
    kinds: &Kind::ALL,
    maximum: 0,
};

/// Little more than all may hold at once: what is freed and pending must be waited for.
const TIGHT: Game = Game {
    sizes: &[64 * KIB],
    kinds: &[Kind::Device],
    maximum: (THREADS * (MAX_LIVE_BLOCKS + 2)).next_multiple_of(32) * 64 * KIB,
};

/// A pool that a backend's own may serve, where the user asks for that.
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

/// Has all threads play on all of the queues, with one pool and a table to pass blocks over.
fn play(setup: &Setup, in_order: &[bool], game: &Game) -> Done {
    let (pool, tools) = (pool(setup, game.maximum)?, Tools::new(setup)?);
    let line = |&in_order: &bool| -> Result<Line, Stop> {
        let queue = match in_order {
            true => setup.in_order()?,
            false => setup.out_of_order()?,
        };
        Ok(Line { queue, in_order })
    };
    let lines = in_order.iter().map(line).collect::<Result<Vec<_>, _>>()?;
    let table = Mutex::new(Vec::new());
    let share = commands(8_000, 4_000_000) / THREADS;
    let enqueued = AtomicUsize::new(0);
    on_threads(|thread| {
        let random = (thread as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let player = Player {
            pool: &pool,
            tools: &tools,
            lines: &lines,
            table: &table,
            host: setup.result(game.sizes.iter().copied().max().unwrap_or(0))?,
            game,
            live: Vec::new(),
            deaths: Vec::new(),
            random,
            enqueued: 0,
        };
        enqueued.fetch_add(player.run(share)?, Ordering::Relaxed);
        Ok(())
    })?;
    let left = table.into_inner().unwrap_or_else(PoisonError::into_inner);
    for held in left {
        let line = &lines[0];
        line.queue.free(held.block, &[&held.last])?;
    }
    lines.iter().try_for_each(|line| line.queue.finish())?;
    tools.no_word_was_wrong()?;
    check_eq!(pool.used()?, 0, "used bytes");
    report(&format!(
        "{} commands by {THREADS} threads on {} queues, no word wrong",
        enqueued.into_inner(),
        lines.len()
    ));
    Ok(())
}

/// What a passing test writes is not shown, but stands in what `--json` writes.
fn report(what: &str) {
    eprintln!("{what}");
}

/// Most blocks that a thread holds.
const MAX_LIVE_BLOCKS: usize = 12;
/// Commands after which a thread waits, so that not all of them are pending at once.
const PAUSE: usize = 200;

/// A block whose words count up from `base` once `last`, on the line `at`, has completed.
struct LiveBlock {
    block: Block,
    base: u32,
    last: Event,
    at: usize,
}

struct Player<'a> {
    pool: &'a Pool,
    tools: &'a Tools,
    lines: &'a [Line],
    table: &'a Mutex<Vec<LiveBlock>>,
    game: &'a Game,
    host: Usm,
    live: Vec<LiveBlock>,
    deaths: Vec<Event>,
    random: u64,
    enqueued: usize,
}

impl Player<'_> {
    /// Returns how many commands it has enqueued.
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

    /// Which of the live blocks to do something with.
    fn pick(&mut self) -> Option<usize> {
        let count = self.live.len();
        (count > 0).then(|| self.below(count))
    }

    /// Whether a command there comes after what a block went through without saying so; chance has
    /// some of them say it all the same.
    fn follows(&mut self, at: usize, held: usize) -> bool {
        self.lines[at].in_order && self.live[held].at == at && self.below(4) > 0
    }

    fn allocate(&mut self) -> Done {
        let (sizes, kinds) = (self.game.sizes, self.game.kinds);
        let (at, size) = (self.below(self.lines.len()), sizes[self.below(sizes.len())]);
        let kind = kinds[self.below(kinds.len())];
        let before = match self.below(2) {
            0 => self.deaths.pop(),
            _ => None,
        };
        let wait: Vec<&Event> = before.iter().collect();
        let line = &self.lines[at];
        let base = (self.random as u32) | 1;
        let (block, last) = match line.in_order {
            true => {
                let block = line.queue.alloc(kind, self.pool, size, &wait)?;
                (block, self.tools.write(&line.queue, block, base, &[])?)
            }
            false => {
                let (block, made) = line.queue.alloc_event(kind, self.pool, size, &wait)?;
                (block, self.tools.write(&line.queue, block, base, &[&made])?)
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
        let at = self.below(self.lines.len());
        let follows = self.follows(at, held);
        let LiveBlock {
            block, base, last, ..
        } = &self.live[held];
        let wait: &[&Event] = if follows { &[] } else { &[last] };
        let verified = self
            .tools
            .verify(&self.lines[at].queue, *block, *base, wait)?;
        (self.live[held].last, self.live[held].at) = (verified, at);
        self.enqueued += 1;
        Ok(())
    }

    /// Copies a block over another one of its size.
    fn copy(&mut self) -> Done {
        let Some(from) = self.pick() else {
            return Ok(());
        };
        let size = self.live[from].block.size;
        let fits = |(index, held): &(usize, &LiveBlock)| *index != from && held.block.size == size;
        let Some((to, _)) = self.live.iter().enumerate().find(fits) else {
            return Ok(());
        };
        let at = self.below(self.lines.len());
        let follows = self.follows(at, from) && self.follows(at, to);
        let (source, target) = (&self.live[from], &self.live[to]);
        let wait: &[&Event] = match follows {
            true => &[],
            false => &[&source.last, &target.last],
        };
        let queue = &self.lines[at].queue;
        let copied = queue.copy(target.block.ptr, source.block.ptr, size, wait)?;
        let shared = copied.share()?;
        self.live[to].base = self.live[from].base;
        (self.live[to].last, self.live[to].at) = (copied, at);
        (self.live[from].last, self.live[from].at) = (shared, at);
        self.enqueued += 1;
        Ok(())
    }

    /// Reads a block and looks at every word on the host.
    fn read(&mut self) -> Done {
        let Some(held) = self.pick() else {
            return Ok(());
        };
        let at = self.below(self.lines.len());
        let LiveBlock {
            block, base, last, ..
        } = &self.live[held];
        let queue = &self.lines[at].queue;
        queue
            .copy(self.host.ptr, block.ptr, block.size, &[last])?
            .wait()?;
        let words = &self.host.host::<u32>()[..block.size / 4];
        let right = |(index, word): (usize, &u32)| *word == base.wrapping_add(index as u32);
        check!(
            words.iter().enumerate().all(right),
            "a copy holds something else than its block's words"
        );
        self.enqueued += 1;
        Ok(())
    }

    /// Leaves a block to the other threads and takes one of theirs.
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
        let at = self.below(self.lines.len());
        let follows = self.follows(at, held);
        let wants_event = self.below(2) == 0;
        let LiveBlock { block, last, .. } = self.live.swap_remove(held);
        let wait: &[&Event] = if follows { &[] } else { &[&last] };
        let queue = &self.lines[at].queue;
        if wants_event {
            let death = queue.free_event(block, wait)?;
            if self.deaths.len() < MAX_LIVE_BLOCKS {
                self.deaths.push(death);
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
                let at = self.below(self.lines.len());
                self.lines[at].queue.finish()
            }
        }
    }
}

/// Growth of the process that is no growth with the number of commands: what the allocator keeps.
const SLACK: usize = 2 * MIB;

/// Completed commands, events and released queues leave no memory behind.
fn memory_stays_bounded(fresh: &Fresh) -> Done {
    // scripts/sanitize.sh: a sanitizer keeps what was freed, to know it again.
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
    let mut death: Option<Event> = None;
    for round in 0..rounds {
        let wait: Vec<&Event> = death.iter().collect();
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
        death = Some(freed);
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

/// Bytes of this process in memory.
fn resident() -> Result<usize, Stop> {
    let text = std::fs::read_to_string("/proc/self/statm")
        .map_err(|error| Stop::skipped(format!("/proc/self/statm: {error}")))?;
    let pages = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    let pages: usize = pages.ok_or_else(|| Stop::skipped("/proc/self/statm has changed"))?;
    // SAFETY: a plain query.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Ok(pages * usize::try_from(page).unwrap_or(0))
}

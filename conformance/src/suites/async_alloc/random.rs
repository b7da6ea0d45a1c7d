//! Random programs over in-order and out-of-order queues: allocations, fills, copies and frees with random
//! dependencies while gates block queues.
//!
//! Each block is filled with its own tag, and its ends are copied out before its free. Memory that was reused
//! too early shows as a wrong tag.

use super::*;
use crate::check_eq;
use crate::objects::Limits;

const SUITE: &str = "async_random";
const STEPS: usize = 700;
/// Bytes copied from each end of a block.
const END: usize = 64;

pub fn all() -> Vec<Test> {
    let mut tests = by_kind(SUITE, &[("programs", programs)]);
    tests.extend(plain(
        SUITE,
        &[
            ("mixed_kinds", mixed_kinds),
            ("with_threshold_0", with_threshold_0),
        ],
    ));
    tests
}

/// Blocks of one kind keep their data in random programs over four queues.
fn programs(setup: &Setup, kind: Kind) -> Done {
    (1..=4).try_for_each(|seed| Program::new(setup, setup.pool()?, seed, vec![kind])?.run())
}

/// Blocks of all kinds keep their data in random programs over four queues.
fn mixed_kinds(setup: &Setup) -> Done {
    (11..=14)
        .try_for_each(|seed| Program::new(setup, setup.pool()?, seed, Kind::ALL.to_vec())?.run())
}

/// Blocks keep their data when each wait of a random program releases memory.
fn with_threshold_0(setup: &Setup) -> Done {
    let limits = Limits {
        maximum: 0,
        threshold: 0,
    };
    (21..=24).try_for_each(|seed| {
        let pool = Pool::with_limits(setup.fixture, &setup.context, limits)?;
        Program::new(setup, pool, seed, vec![Kind::Device])?.run()
    })
}

/// A block that holds its tag once `ready` has completed.
struct Tagged {
    block: Block,
    ready: Event,
    tag: u8,
}

struct Program<'a> {
    setup: &'a Setup<'a>,
    pool: Pool,
    kinds: Vec<Kind>,
    queues: Vec<Queue>,
    gates: Vec<Gate>,
    live: Vec<Tagged>,
    frees: Vec<Event>,
    /// Both ends of each block freed so far, in the order of the frees.
    tags_read: Usm,
    tags: Vec<u8>,
    random: u64,
}

impl<'a> Program<'a> {
    fn new(setup: &'a Setup<'a>, pool: Pool, seed: u64, kinds: Vec<Kind>) -> Result<Self, Stop> {
        let queues = vec![
            setup.in_order()?,
            setup.in_order()?,
            setup.out_of_order()?,
            setup.out_of_order()?,
        ];
        let tags_read = setup.result(2 * END * STEPS)?;
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Ok(Self {
            setup,
            pool,
            kinds,
            queues,
            gates: Vec::new(),
            live: Vec::new(),
            frees: Vec::new(),
            tags_read,
            tags: Vec::new(),
            random,
        })
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as usize % bound
    }

    fn run(mut self) -> Done {
        for step in 0..STEPS {
            match self.below(20) {
                0..=9 if self.live.len() < 24 => self.allocate(step as u8)?,
                0..=16 if !self.live.is_empty() => self.free()?,
                17 => self.hold()?,
                18 => self.observe()?,
                _ => self.wait()?,
            }
        }
        while !self.live.is_empty() {
            self.free()?;
        }
        self.gates.iter().for_each(Gate::open);
        self.queues.iter().try_for_each(Queue::finish)?;
        all_tagged(self.tags_read.host(), 2 * END, &self.tags)?;
        check_eq!(self.pool.used()?, 0, "used bytes at the end");
        Ok(())
    }

    fn allocate(&mut self, tag: u8) -> Done {
        let size = [256, 3000, 20 * KIB, 130 * KIB, 700 * KIB][self.below(5)] + 2 * END;
        let (queue, kind) = (self.below(self.queues.len()), self.below(self.kinds.len()));
        let mut wait = Vec::new();
        for _ in 0..self.below(3).min(self.frees.len()) {
            let index = self.below(self.frees.len());
            wait.push(self.frees.swap_remove(index));
        }
        let wait: Vec<&Event> = wait.iter().collect();
        let queue = &self.queues[queue];
        let (block, allocated) = queue.alloc_event(self.kinds[kind], &self.pool, size, &wait)?;
        check!(
            self.live.iter().all(|other| !other.block.overlaps(&block)),
            "a live block was handed out again"
        );
        let ready = queue.fill(block.ptr, tag, size, &[&allocated])?;
        self.live.push(Tagged { block, ready, tag });
        Ok(())
    }

    fn free(&mut self) -> Done {
        let index = self.below(self.live.len());
        let Tagged { block, ready, tag } = self.live.swap_remove(index);
        let (user, owner) = (self.below(self.queues.len()), self.below(self.queues.len()));
        let target = self
            .tags_read
            .ptr
            .wrapping_byte_add(2 * END * self.tags.len());
        let tail = block.ptr.wrapping_byte_add(block.size - END);
        let user = &self.queues[user];
        let head = user.copy(target, block.ptr, END, &[&ready])?;
        let tail = user.copy(target.wrapping_byte_add(END), tail, END, &[&ready])?;
        self.tags.push(tag);
        self.frees
            .push(self.queues[owner].free_event(block, &[&head, &tail])?);
        Ok(())
    }

    /// Blocks an in-order queue, or opens one of the gates.
    fn hold(&mut self) -> Done {
        if self.gates.len() < 2 {
            let queue = self.below(2);
            self.gates.push(self.setup.gate(&self.queues[queue])?);
        } else {
            let gate = self.below(self.gates.len());
            self.gates.swap_remove(gate).open();
        }
        Ok(())
    }

    /// Queries an event, by which the pool may learn that memory is free.
    fn observe(&mut self) -> Done {
        if !self.frees.is_empty() {
            let index = self.below(self.frees.len());
            self.frees[index].status()?;
        }
        Ok(())
    }

    /// Waits on the host, after it opened all gates.
    fn wait(&mut self) -> Done {
        self.gates.drain(..).for_each(|gate| gate.open());
        let queue = self.below(self.queues.len());
        match self.frees.pop() {
            Some(freed) if queue == 0 => freed.wait(),
            _ => self.queues[queue].finish(),
        }
    }
}

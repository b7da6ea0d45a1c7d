//! Programs that repeat an iteration, and sometimes differ in it.
//!
//! An implementation that replays recorded iterations must not mix up their memory. Blocks have a few hundred
//! bytes to several pages. Each holds a tag at both ends and in the middle, which is copied out before its
//! free.

use super::*;
use crate::check_eq;

const SUITE: &str = "async_iterations";
const ITERATIONS: usize = 8;
const BLOCKS: usize = 60;
/// Size of a tag in bytes.
const TAG: usize = 64;
/// Most blocks that are live at once.
const LIVE: usize = 6;

pub fn all() -> Vec<Test> {
    by_kind(
        SUITE,
        &[
            ("identical", identical),
            ("interrupted", interrupted),
            ("two_queues", two_queues),
        ],
    )
}

/// Blocks keep their data over identical iterations.
fn identical(setup: &Setup, kind: Kind) -> Done {
    let mut iterations = Iterations::new(setup, kind, 1)?;
    for _ in 0..ITERATIONS {
        iterations.run(0, &[])?;
    }
    iterations.right()
}

/// Blocks keep their data when an iteration differs in the middle.
fn interrupted(setup: &Setup, kind: Kind) -> Done {
    let mut iterations = Iterations::new(setup, kind, 1)?;
    for nth in 0..ITERATIONS {
        // Every third iteration differs in the middle.
        let odd = [nth * 11 % BLOCKS];
        iterations.run(0, if nth % 3 == 2 { &odd } else { &[] })?;
        if nth % 2 == 0 {
            iterations.queues[0].finish()?;
        }
    }
    iterations.right()
}

/// Blocks keep their data when iterations alternate between two queues.
fn two_queues(setup: &Setup, kind: Kind) -> Done {
    let mut iterations = Iterations::new(setup, kind, 2)?;
    for nth in 0..ITERATIONS {
        iterations.run(nth % 2, &[])?;
        if nth == ITERATIONS / 2 {
            // Now the other queue finds all memory free.
            iterations.queues.iter().try_for_each(Queue::finish)?;
            iterations.run(nth % 2, &[7])?;
        }
    }
    iterations.right()
}

struct Iterations {
    kind: Kind,
    pool: Pool,
    queues: Vec<Queue>,
    /// The tags read from each block freed so far.
    found: Usm,
    tags: Vec<u8>,
}

impl Iterations {
    fn new(setup: &Setup, kind: Kind, queues: usize) -> Result<Self, Stop> {
        let queues = (0..queues).map(|_| setup.in_order());
        Ok(Self {
            kind,
            pool: setup.pool()?,
            queues: queues.collect::<Result<_, Stop>>()?,
            found: setup.result(3 * TAG * (ITERATIONS + 1) * (BLOCKS + 1))?,
            tags: Vec::new(),
        })
    }

    /// One iteration: the same blocks each time, and an additional one before each index in `odd`.
    fn run(&mut self, queue: usize, odd: &[usize]) -> Done {
        let mut live = Vec::new();
        for nth in 0..BLOCKS {
            if odd.contains(&nth) {
                let other = self.tagged(queue, 333 * KIB, &live)?;
                self.free(queue, other)?;
            }
            let size = [900, 70 * KIB, 500 * KIB, 1700 * KIB, 2600 * KIB, 4300 * KIB];
            let size = size[nth * nth % 29 % 6] + 256 * (nth % 7);
            let block = self.tagged(queue, size, &live)?;
            live.push(block);
            if live.len() == LIVE {
                let next = live.swap_remove(nth * 7 % LIVE);
                self.free(queue, next)?;
            }
        }
        live.into_iter()
            .try_for_each(|block| self.free(queue, block))
    }

    fn tagged(&self, queue: usize, size: usize, live: &[(Block, u8)]) -> Result<(Block, u8), Stop> {
        let queue = &self.queues[queue];
        let block = queue.alloc(self.kind, &self.pool, size, &[])?;
        check!(
            live.iter().all(|(other, _)| !other.overlaps(&block)),
            "a live block was handed out again"
        );
        // Live blocks have distinct tags.
        let tag = (self.tags.len() + 31 * live.len()) as u8;
        for target in places(&block) {
            queue.fill(target, tag, TAG, &[])?;
        }
        Ok((block, tag))
    }

    fn free(&mut self, queue: usize, (block, tag): (Block, u8)) -> Done {
        let queue = &self.queues[queue];
        for (part, target) in places(&block).into_iter().enumerate() {
            let to = TAG * (3 * self.tags.len() + part);
            queue.copy(self.found.ptr.wrapping_byte_add(to), target, TAG, &[])?;
        }
        self.tags.push(tag);
        queue.free(block, &[])
    }

    fn right(self) -> Done {
        self.queues.iter().try_for_each(Queue::finish)?;
        all_tagged(self.found.host(), 3 * TAG, &self.tags)?;
        check_eq!(self.pool.used()?, 0, "used bytes at the end");
        Ok(())
    }
}

/// The ends and the middle of a block.
fn places(block: &Block) -> [*mut c_void; 3] {
    let last = block.size - TAG;
    [0, last / 2, last].map(|at| block.ptr.wrapping_byte_add(at))
}

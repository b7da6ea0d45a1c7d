//! Shared starting states: a pool without a free block, and a block whose use is pending.

use super::*;
use crate::check_eq;

/// A pool filled up to the last block, so that another of the size would make it grow.
pub struct Full {
    pub pool: Pool,
    pub reserved: usize,
    pub filler: Vec<Block>,
}

impl Full {
    pub fn new(setup: &Setup, kind: Kind, size: usize) -> Result<Self, Stop> {
        let pool = setup.pool()?;
        let queue = setup.in_order()?;
        let mut filler = vec![queue.alloc(kind, &pool, size, &[])?];
        // A pool takes memory in larger pieces: use up what the first of them holds.
        loop {
            let before = pool.reserved()?;
            let block = queue.alloc(kind, &pool, size, &[])?;
            if pool.reserved()? > before || filler.len() > 4096 {
                // This one made it grow: give all of it back, so that the rest is full.
                queue.free(block, &[])?;
                queue.finish()?;
                pool.trim(0)?;
                break;
            }
            filler.push(block);
        }
        queue.finish()?;
        let reserved = pool.reserved()?;
        Ok(Self {
            pool,
            reserved,
            filler,
        })
    }

    /// One of the blocks, to be freed by the test.
    pub fn take(&mut self) -> Result<Block, Stop> {
        self.filler
            .pop()
            .ok_or_else(|| Stop::failed("the pool has no block"))
    }

    /// The pool has not grown since.
    #[track_caller]
    pub fn no_growth(&self) -> Done {
        let (before, now) = (self.reserved, self.pool.reserved()?);
        match now == before {
            true => Ok(()),
            false => Err(Stop::failed(format!(
                "the pool grew from {before} to {now} bytes, though a free block was in order"
            ))),
        }
    }

    /// Frees what is left, on any queue.
    pub fn empty(self, queue: &Queue) -> Done {
        for block in self.filler {
            queue.free(block, &[])?;
        }
        queue.finish()?;
        check_eq!(self.pool.used()?, 0, "used bytes at the end");
        Ok(())
    }
}

/// Fills a block with `A`, then closes a gate on the queue, and behind it fills half of the block
/// again and copies all of it to `result`: whoever writes into the block too early changes the
/// copy, and whoever gets it too early is written over. Returns the event of the copy.
pub fn use_later(
    setup: &Setup,
    queue: &Queue,
    block: Block,
    result: &Usm,
) -> Result<(Gate, Event), Stop> {
    let half = block.size / 2;
    queue.fill(block.ptr, A, block.size, &[])?.wait()?;
    let gate = setup.gate(queue)?;
    let behind: Vec<&Event> = vec![&gate.event];
    let filled = queue.fill(
        block.ptr.wrapping_byte_add(half),
        A,
        block.size - half,
        &behind,
    )?;
    let copied = queue.copy(result.ptr, block.ptr, block.size, &[&filled])?;
    Ok((gate, copied))
}

/// A block that stays in use until the gate opens, and is to be freed then, on a queue that is held
/// back.
pub struct Doomed {
    pub gate: Gate,
    pub block: Block,
    pub result: Usm,
    /// Completes with the free: the block's death.
    pub death: Event,
}

pub const A: u8 = 0xa1;
pub const B: u8 = 0xb2;

impl Doomed {
    /// Dooms a block: its queue holds it back from now on.
    pub fn new(setup: &Setup, queue: &Queue, block: Block) -> Result<Self, Stop> {
        let size = block.size;
        let result = setup.result(size)?;
        let (gate, _) = use_later(setup, queue, block, &result)?;
        let death = queue.free_event(block, &[])?;
        Ok(Self {
            gate,
            block,
            result,
            death,
        })
    }

    /// Opens the gate and sees that nobody wrote into the block before its death.
    pub fn check_untouched(&self, queue: &Queue) -> Done {
        self.gate.open();
        queue.finish()?;
        let intact = same_bytes(self.result.host(), A).is_ok();
        check!(
            intact,
            "memory whose use was pending was given to another allocation"
        );
        Ok(())
    }
}

//! Shared starting states: a pool without a free block, and a block whose use is pending.

use super::*;
use crate::check_eq;

/// A pool without free memory for another block of the size: the next one makes it grow.
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
        // A pool reserves memory in larger pieces. The loop uses up the first of them.
        loop {
            let before = pool.reserved()?;
            let block = queue.alloc(kind, &pool, size, &[])?;
            if pool.reserved()? > before || filler.len() > 4096 {
                // This block made the pool grow. It and its memory are released, so that the pool is full.
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

    /// Takes one of the blocks, which the test frees.
    pub fn take(&mut self) -> Result<Block, Stop> {
        self.filler
            .pop()
            .ok_or_else(|| Stop::failed("the pool has no block"))
    }

    /// Fails if the pool has grown.
    #[track_caller]
    pub fn has_not_grown(&self) -> Done {
        let (before, now) = (self.reserved, self.pool.reserved()?);
        match now == before {
            true => Ok(()),
            false => Err(Stop::failed(format!(
                "the pool grew from {before} to {now} bytes, though a free block was in order"
            ))),
        }
    }

    /// Frees the remaining blocks on any queue.
    pub fn empty(self, queue: &Queue) -> Done {
        for block in self.filler {
            queue.free(block, &[])?;
        }
        queue.finish()?;
        check_eq!(self.pool.used()?, 0, "used bytes at the end");
        Ok(())
    }
}

/// Blocks a queue and enqueues a use of a block behind the gate. Returns the event of the last command.
///
/// The block holds `A` first. The pending commands fill its second half with `A` again and copy the block to
/// `result`. A write into the block before the copy shows in `result`. A use of the block before the gate
/// opens is overwritten.
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

/// A block with a pending use and a pending free on a blocked queue.
pub struct PendingFree {
    pub gate: Gate,
    pub block: Block,
    pub result: Usm,
    /// The event of the free.
    pub freed: Event,
}

pub const A: u8 = 0xa1;
pub const B: u8 = 0xb2;

impl PendingFree {
    /// Enqueues the use and the free of a block. The queue is blocked from now on.
    pub fn new(setup: &Setup, queue: &Queue, block: Block) -> Result<Self, Stop> {
        let size = block.size;
        let result = setup.result(size)?;
        let (gate, _) = use_later(setup, queue, block, &result)?;
        let freed = queue.free_event(block, &[])?;
        Ok(Self {
            gate,
            block,
            result,
            freed,
        })
    }

    /// Opens the gate and checks that no other command wrote into the block before its free completed.
    pub fn open_and_check(&self, queue: &Queue) -> Done {
        self.gate.open();
        queue.finish()?;
        let intact = same_bytes(self.result.host(), A).is_ok();
        check!(
            intact,
            "a block with a pending use was given to another allocation"
        );
        Ok(())
    }
}

//! Asynchronous allocation: bookkeeping in queue order.
//!
//! On an in-order queue without a wait list neither allocation nor free calls the driver; mostly they
//! take the lock of the lane's stash and nothing else. A pool may
//! call it to grow, which happens under the lane's lock: the pool has to see the lane's order.

use super::engine::enter;
use super::event::Event;
use super::queue::Shape;
use super::reach::Reach;
use super::{Context, Driver, Kind, Queue, UsmPool};
use crate::abi::*;
use crate::object::{Error, Handles, Object, OutHandle, Result, ensure};
use crate::pool::{Acquired, Block, Order, Request};
use std::ffi::c_void;

impl<D: Driver> Queue<D> {
    pub(crate) fn alloc(
        this: &Object<Self>,
        kind: Kind,
        pool: Option<&Object<UsmPool<D>>>,
        size: usize,
        waits: Handles<'_, Event<D>>,
        event: OutHandle<'_, Event<D>>,
    ) -> Result<*mut c_void> {
        this.live(waits)?;
        if waits.is_empty()
            && !event.wanted()
            && let Some(block) = this.cached(kind, pool, size)
        {
            return Ok(std::ptr::with_exposed_provenance_mut(block.addr as usize));
        }
        let pool = match pool {
            Some(pool) => {
                this.context().check_pool(pool)?;
                pool.arc()
            }
            None => Context::current_pool(this.context(), this.home())?,
        };
        let part = pool.core().part(kind, this.home());
        let part = part.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
        let waits = Event::join(this.context(), waits.iter())?;
        let (block, reach) = match &this.shape {
            Shape::InOrder(_) => this.alloc_in_order(&pool, part, size, &waits, event.wanted())?,
            Shape::OutOfOrder(_) => {
                this.alloc_out_of_order(&pool, part, size, &waits, event.wanted())?
            }
        };
        let command = match kind {
            Kind::Host => UR_COMMAND_ENQUEUE_USM_HOST_ALLOC_EXP,
            Kind::Device => UR_COMMAND_ENQUEUE_USM_DEVICE_ALLOC_EXP,
            Kind::Shared => UR_COMMAND_ENQUEUE_USM_SHARED_ALLOC_EXP,
        };
        if let Some(reach) = reach.filter(|_| event.wanted()) {
            let (reach, times) = this.timed(&reach).inspect_err(|_| {
                // Nobody gets to know the block.
                pool.core().release(part, block.addr, reach.done.clone());
            })?;
            Self::deliver(this, command, Some(reach), times, event, false)?;
        }
        Ok(std::ptr::with_exposed_provenance_mut(block.addr as usize))
    }

    /// A block that died on this in-order queue, from its lane's own store.
    #[inline]
    fn cached(&self, kind: Kind, pool: Option<&Object<UsmPool<D>>>, size: usize) -> Option<Block> {
        let Shape::InOrder(lane) = &self.shape else {
            return None;
        };
        let key = match pool {
            None => self.context().current_key(self.home_at(), kind)?,
            Some(pool) => {
                self.context().check_pool(pool).ok()?;
                pool.core().key(kind, self.home())?
            }
        };
        lane.stash.alloc(key, size as u64)
    }

    fn alloc_in_order(
        &self,
        pool: &UsmPool<D>,
        part: usize,
        size: usize,
        waits: &Reach,
        wanted: bool,
    ) -> Result<(Block, Option<Reach>)> {
        let Shape::InOrder(lane) = &self.shape else {
            return Err(Error::unsupported());
        };
        let mut state = lane.after(waits)?;
        let request = Request {
            bytes: size as u64,
            align: 0,
            order: Order::Lane(&state.order),
            may_wait: true,
        };
        let acquired = pool.core().acquire(part, &request, Some(&lane.stash))?;
        let block = acquired.block();
        if let Acquired::After(_, frontier) = acquired {
            drop(state);
            let mut death = Reach::default();
            death.join_frontier(&frontier);
            match lane.after(&death) {
                Ok(again) => state = again,
                Err(error) => {
                    pool.core().release(part, block.addr, frontier);
                    return Err(error);
                }
            }
        }
        Ok((block, wanted.then(|| lane.reach(&mut state))))
    }

    /// Without an event nothing could wait for a block's death, so it must be ordered or complete.
    fn alloc_out_of_order(
        &self,
        pool: &UsmPool<D>,
        part: usize,
        size: usize,
        waits: &Reach,
        wanted: bool,
    ) -> Result<(Block, Option<Reach>)> {
        let Shape::OutOfOrder(lanes) = &self.shape else {
            return Err(Error::unsupported());
        };
        let mut lanes = enter(lanes);
        let mut reach = lanes.with_barrier(waits).into_owned();
        let order = Order::Frontier(&reach.order);
        let request = Request {
            bytes: size as u64,
            align: 0,
            order,
            may_wait: wanted,
        };
        let acquired = pool.core().acquire(part, &request, None)?;
        if let Acquired::After(_, frontier) = &acquired {
            reach.join_frontier(frontier);
        }
        lanes.add_loose(&reach);
        Ok((acquired.block(), wanted.then_some(reach)))
    }

    pub(crate) fn free(
        this: &Object<Self>,
        addr: usize,
        waits: Handles<'_, Event<D>>,
        event: OutHandle<'_, Event<D>>,
    ) -> Result<()> {
        this.live(waits)?;
        let memory = &this.context().domain().memory;
        let unknown = UR_RESULT_ERROR_INVALID_MEM_OBJECT;
        if waits.is_empty()
            && !event.wanted()
            && let Shape::InOrder(lane) = &this.shape
            && memory.is_flat()
            && lane.free(addr)
        {
            return Ok(());
        }
        let waits = Event::join(this.context(), waits.iter())?;
        // A refused free must not have made the queue wait.
        ensure(waits.done.is_empty() || memory.is_start(addr), unknown)?;
        let reach = match &this.shape {
            Shape::InOrder(lane) => {
                let mut state = lane.after(&waits)?;
                lane.cover(&mut state)?;
                let freed = memory.is_flat() && lane.free(addr);
                ensure(freed || memory.free(addr, &state.tip()), unknown)?;
                event.wanted().then(|| lane.reach(&mut state))
            }
            Shape::OutOfOrder(lanes) => {
                let mut lanes = enter(lanes);
                let reach = lanes.with_barrier(&waits).into_owned();
                ensure(memory.free(addr, &reach.done), unknown)?;
                lanes.add_loose(&reach);
                Some(reach)
            }
        };
        let Some(reach) = reach.filter(|_| event.wanted()) else {
            return Ok(());
        };
        // The block is free, whatever becomes of the event's times.
        let (reach, times) = this.timed(&reach).unwrap_or((reach, None));
        let command = UR_COMMAND_ENQUEUE_USM_FREE_EXP;
        Self::deliver(this, command, Some(reach), times, event, false)
    }
}

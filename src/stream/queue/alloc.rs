//! Asynchronous allocation: bookkeeping in queue order.
//!
//! On an in-order queue without a wait list, neither allocation nor free calls the driver. Most of
//! them take only the lock of the lane's block cache. A pool may call the driver to grow, under the
//! lane's lock: the pool needs the lane's order.

use crate::abi::*;
use crate::object::{Error, Handles, Object, OutHandle, Result, ensure};
use crate::pool::{Acquired, Block, CacheResult, DecisionTrace, Miss, Order, PoolKey, Request};
use crate::stream::engine::dependencies::{Dependencies, EventDependencies};
use crate::stream::event::Event;
use crate::stream::lane::LaneCore;
use crate::stream::queue::out_of_order::OutOfOrder;
use crate::stream::queue::{Shape, native_alloc};
use crate::stream::settings::pool_trace::{Entry, Trace};
use crate::stream::usm::pool_core::{Answer, PoolCore};
use crate::stream::{Context, Driver, Kind, Queue, UsmPool};
use crate::timeline::Frontier;
use std::cell::RefCell;
use std::ffi::c_void;

#[inline(always)]
pub(crate) fn alloc<D: Driver>(
    this: &Object<Queue<D>>,
    kind: Kind,
    pool: Option<&Object<UsmPool<D>>>,
    size: usize,
    waits: Handles<'_, Event<D>>,
    event: OutHandle<'_, Event<D>>,
) -> Result<*mut c_void> {
    this.live(waits)?;
    if waits.is_empty()
        && this.watched.is_none()
        && let Shape::InOrder(lane) = &this.shape
        && let Some(key) = key(this, kind, pool)
    {
        let bytes = size as u64;
        if !event.wanted() {
            let miss = match lane.alloc(key, bytes) {
                Ok(addr) => return Ok(address(addr)),
                Err(miss) => miss,
            };
            let alloc = |lane: &LaneCore<D>, (key, bytes)| lane.alloc(key, bytes);
            if let Ok(addr) = on_quota(this, pool, (key, bytes), miss, alloc) {
                return Ok(address(addr));
            }
        } else if !this.is_profiled() {
            let allocated = lane.alloc_with_event(key, bytes).or_else(|miss| {
                on_quota(this, pool, (key, bytes), miss, |lane, (key, bytes)| {
                    lane.alloc_with_event(key, bytes)
                })
            });
            if let Ok((addr, deps)) = allocated {
                event.make(D::table(), || {
                    Event::new(this, command_of(kind), deps, None)
                });
                return Ok(address(addr));
            }
        }
    }
    alloc_general(this, kind, pool, size, waits, event)
}

/// Allocates from the lane's cache after a miss for want of quota, if quota can be found.
#[cold]
#[inline(never)]
fn on_quota<D: Driver, T>(
    this: &Queue<D>,
    pool: Option<&Object<UsmPool<D>>>,
    request: (PoolKey, u64),
    miss: Miss,
    alloc: impl FnOnce(&LaneCore<D>, (PoolKey, u64)) -> CacheResult<T>,
) -> CacheResult<T> {
    let (Miss::NoQuota(lack), Shape::InOrder(lane)) = (miss, &this.shape) else {
        return Err(miss);
    };
    let find = |pool: &UsmPool<D>| pool.core().used.find_quota(&lane.cache, request.0, lack);
    let found = match pool {
        Some(pool) => find(pool),
        None => Context::current_pool(this.context(), this.home()).is_ok_and(|pool| find(&pool)),
    };
    if found {
        alloc(lane, request)
    } else {
        Err(miss)
    }
}

/// The general case of [`alloc`]: from a pool.
#[inline(never)]
fn alloc_general<D: Driver>(
    this: &Object<Queue<D>>,
    kind: Kind,
    pool: Option<&Object<UsmPool<D>>>,
    size: usize,
    waits: Handles<'_, Event<D>>,
    event: OutHandle<'_, Event<D>>,
) -> Result<*mut c_void> {
    let pool = match pool {
        Some(pool) => {
            this.context().check_pool(pool)?;
            pool.arc()
        }
        None => Context::current_pool(this.context(), this.home())?,
    };
    let part = pool.core().part(kind, this.home());
    let part = part.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
    let waits = Event::join_list(this.context(), waits)?;
    if pool.core().parts()[part].native.is_some() {
        let part = (pool.core(), part);
        return native_alloc::alloc(this, part, command_of(kind), size, &waits, event);
    }
    let (block, deps) = loop {
        let mut entry = entry(this);
        let decision = entry.as_ref().map(|_| RefCell::default());
        let request = PoolRequest {
            pool: pool.core(),
            part,
            size,
            wanted: event.wanted(),
            decision: decision.as_ref(),
        };
        let served = match &this.shape {
            Shape::InOrder(lane) => request.in_order(lane, &waits),
            Shape::OutOfOrder(lanes) => request.out_of_order(&mut lanes.lock(), &waits),
        };
        if let Ok(Served::Once(wait)) = &served {
            // No lock is held: commands that have to complete may need it.
            drop(entry);
            this.context().domain().engine().wait(wait)?;
            continue;
        }
        if let (Some(entry), Some(decision)) = (&mut entry, &decision) {
            let block = match &served {
                Ok(Served::Block(block, _)) => Some(*block),
                Ok(Served::Once(_)) | Err(_) => None,
            };
            entry.alloc(pool.core().number(), kind, size, block, &decision.borrow());
        }
        if let Served::Block(block, deps) = served? {
            break (block, deps);
        }
    };
    if let Some(deps) = deps.filter(|_| event.wanted()) {
        let (deps, times) = this
            .timed(EventDependencies::clone(&deps))
            .inspect_err(|_| {
                // The caller never receives the block.
                pool.core().release(part, block.addr, deps.done.clone());
            })?;
        Queue::deliver(this, command_of(kind), Some(deps), times, event, false)?;
    }
    Ok(address(block.addr))
}

/// The key of the requested memory in block caches, once it was used.
#[inline(always)]
fn key<D: Driver>(
    this: &Queue<D>,
    kind: Kind,
    pool: Option<&Object<UsmPool<D>>>,
) -> Option<PoolKey> {
    match pool {
        None => this.context().current_key(this.home_at(), kind),
        Some(pool) => {
            this.context().check_pool(pool).ok()?;
            pool.core().key(kind, this.home())
        }
    }
}

/// The right to write into the trace, if there is one.
fn entry<D: Driver>(this: &Queue<D>) -> Option<Entry<'static>> {
    let stream = this.watched?;
    Some(Trace::get()?.begin(Some(stream)))
}

#[inline(always)]
pub(crate) fn free<D: Driver>(
    this: &Object<Queue<D>>,
    addr: usize,
    waits: Handles<'_, Event<D>>,
    event: OutHandle<'_, Event<D>>,
) -> Result<()> {
    this.live(waits)?;
    if waits.is_empty()
        && this.watched.is_none()
        && let Shape::InOrder(lane) = &this.shape
        && this.context().domain().memory.is_regular()
    {
        if !event.wanted() {
            if lane.free(addr) {
                return Ok(());
            }
        } else if !this.is_profiled()
            && let Some(deps) = lane.free_with_event(addr)
        {
            let command = UR_COMMAND_ENQUEUE_USM_FREE_EXP;
            event.make(D::table(), || Event::new(this, command, deps, None));
            return Ok(());
        }
    }
    free_general(this, addr, waits, event)
}

/// The general case of [`free`].
#[inline(never)]
fn free_general<D: Driver>(
    this: &Object<Queue<D>>,
    addr: usize,
    waits: Handles<'_, Event<D>>,
    event: OutHandle<'_, Event<D>>,
) -> Result<()> {
    let memory = &this.context().domain().memory;
    let unknown = UR_RESULT_ERROR_INVALID_MEM_OBJECT;
    if let Some(found) = memory.native(addr) {
        return native_alloc::free(this, found, addr as u64, waits, event);
    }
    let waits = Event::join_list(this.context(), waits)?;
    let mut entry = entry(this);
    let deps = match &this.shape {
        Shape::InOrder(lane) => {
            // A refused free must not add waits to the queue.
            ensure(waits.done.is_empty() || memory.is_start(addr), unknown)?;
            let mut state = lane.after(&waits)?;
            lane.cover(&mut state)?;
            let cached = memory.is_flat() && !memory.is_exported(addr);
            let freed = cached && lane.free_covered(&state, addr);
            ensure(freed || memory.free(addr, &state.tip()), unknown)?;
            if let Some(entry) = &mut entry {
                entry.free(addr as u64, &state.tip());
            }
            event.wanted().then(|| lane.dependencies(&mut state))
        }
        Shape::OutOfOrder(lanes) => {
            let mut lanes = lanes.lock();
            let deps = lanes.dependencies_after(&waits);
            ensure(memory.free(addr, &deps.done), unknown)?;
            if let Some(entry) = &mut entry {
                entry.free(addr as u64, &deps.done);
            }
            lanes.add_off_lane(&deps);
            Some(EventDependencies::new(deps))
        }
    };
    drop(entry);
    let Some(deps) = deps.filter(|_| event.wanted()) else {
        return Ok(());
    };
    // The block is free even if timestamps fail.
    let (deps, times) = match this.is_profiled() {
        true => this
            .timed(EventDependencies::clone(&deps))
            .unwrap_or((deps, None)),
        false => (deps, None),
    };
    let command = UR_COMMAND_ENQUEUE_USM_FREE_EXP;
    Queue::deliver(this, command, Some(deps), times, event, false)
}

fn address(addr: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(addr as usize)
}

fn command_of(kind: Kind) -> ur_command_t {
    match kind {
        Kind::Host => UR_COMMAND_ENQUEUE_USM_HOST_ALLOC_EXP,
        Kind::Device => UR_COMMAND_ENQUEUE_USM_DEVICE_ALLOC_EXP,
        Kind::Shared => UR_COMMAND_ENQUEUE_USM_SHARED_ALLOC_EXP,
    }
}

/// A request to a pool, and the trace of its decision.
struct PoolRequest<'a, D: Driver> {
    pool: &'a PoolCore<D>,
    part: usize,
    size: usize,
    /// Whether there will be an event.
    wanted: bool,
    decision: Option<&'a RefCell<DecisionTrace>>,
}

/// The result of an attempt.
enum Served {
    /// The block, and the dependencies of the allocation's event if `wanted`.
    Block(Block, Option<EventDependencies>),
    /// No block: the host has to wait for this frontier first.
    Once(Frontier),
}

impl<D: Driver> PoolRequest<'_, D> {
    fn request<'b>(&'b self, order: Order<'b>, may_wait: bool) -> Request<'b> {
        Request {
            bytes: self.size as u64,
            align: 0,
            order,
            may_wait,
            decision: self.decision,
        }
    }

    fn in_order(&self, lane: &LaneCore<D>, waits: &Dependencies) -> Result<Served> {
        let mut state = lane.after(waits)?;
        let request = self.request(Order::Lane(&state.order), true);
        let acquired = match self.pool.acquire(self.part, &request, Some(&lane.cache))? {
            Answer::Served(acquired) => acquired,
            Answer::Once(wait) => return Ok(Served::Once(wait)),
        };
        let block = acquired.block();
        if let Acquired::After(_, frontier) = acquired {
            drop(state);
            let mut last_use = Dependencies::default();
            last_use.join_frontier(&frontier);
            match lane.after(&last_use) {
                Ok(again) => state = again,
                Err(error) => {
                    self.pool.release(self.part, block.addr, frontier);
                    return Err(error);
                }
            }
        }
        let deps = self.wanted.then(|| lane.dependencies(&mut state));
        Ok(Served::Block(block, deps))
    }

    /// Without an event, only the host could wait for the last use of a block.
    fn out_of_order(&self, lanes: &mut OutOfOrder<D>, waits: &Dependencies) -> Result<Served> {
        let mut deps = lanes.dependencies_after(waits);
        let request = self.request(Order::Frontier(&deps.order), self.wanted);
        let acquired = match self.pool.acquire(self.part, &request, None)? {
            Answer::Served(acquired) => acquired,
            Answer::Once(wait) => return Ok(Served::Once(wait)),
        };
        if let Acquired::After(_, frontier) = &acquired {
            deps.join_frontier(frontier);
        }
        lanes.add_off_lane(&deps);
        let block = acquired.block();
        let deps = self.wanted.then(|| EventDependencies::new(deps));
        Ok(Served::Block(block, deps))
    }
}

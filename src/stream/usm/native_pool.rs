//! Memory from pools of the backend, where a user prefers them.
//!
//! Such a pool serves one kind of memory on one device, as a part of a pool's handle; other
//! parts may be ours. An allocation is a command of the queue's lane, and so is a free. The backend
//! decides about reuse and waits. This module keeps the map from addresses to pools, the figures
//! over all kinds, and the release of memory beyond the threshold.

use crate::abi::*;
use crate::object::{Error, Result, ensure};
use crate::pool::{Block, WaitPolicy};
use crate::stream::settings::Settings;
use crate::stream::usm::pool_core::PoolCore;
use crate::stream::{Domain, Driver, NativePool};
use crate::sync::Mutex;
use crate::timeline::Frontier;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A part of a pool that the backend serves, and its live allocations.
pub(crate) struct NativePart<D: Driver> {
    pub pool: Box<dyn NativePool<D>>,
    live: Mutex<BTreeMap<u64, Live>>,
    /// Whether it has served a request; before, it holds nothing.
    begun: AtomicBool,
    /// Reserved bytes at the last query.
    reserved: AtomicU64,
}

#[derive(Clone, Copy)]
pub(crate) struct Live {
    /// Address that the backend returned; not above the aligned one.
    pub base: u64,
    bytes: u64,
}

impl<D: Driver> NativePart<D> {
    pub fn new(pool: Box<dyn NativePool<D>>) -> Self {
        Self {
            pool,
            live: Mutex::default(),
            begun: AtomicBool::new(false),
            reserved: AtomicU64::new(0),
        }
    }

    /// The live allocation that holds `addr`.
    pub fn lookup(&self, addr: u64) -> Option<Block> {
        let live = self.live.lock();
        let (start, found) = live.range(..=addr).next_back()?;
        (addr - start < found.bytes).then(|| block(*start, found.bytes))
    }

    pub fn is_idle(&self) -> bool {
        self.live.lock().is_empty()
    }

    pub fn starts(&self) -> Vec<u64> {
        self.live.lock().keys().copied().collect()
    }

    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    pub fn reserved(&self) -> u64 {
        if !self.has_begun() {
            return 0;
        }
        match self.pool.reserved() {
            Ok(bytes) => self.reserved.store(bytes, Ordering::Relaxed),
            Err(error) => log::debug!("a pool of the backend's is silent: {:?}", error.code()),
        }
        self.reserved.load(Ordering::Relaxed)
    }

    pub(crate) fn serve(&self, serve: impl FnOnce() -> Result<usize>) -> Result<usize> {
        self.begun.store(true, Ordering::Release);
        serve()
    }
}

impl<D: Driver> Drop for NativePart<D> {
    fn drop(&mut self) {
        let live = std::mem::take(&mut *self.live.lock());
        live.values()
            .for_each(|live| self.pool.free_now(live.base as usize));
    }
}

/// An allocation that counts as used but has no memory yet.
pub(crate) struct NativeRequest<'a, D: Driver> {
    core: &'a Arc<PoolCore<D>>,
    part: usize,
    pub native: &'a NativePart<D>,
    size: usize,
}

impl<'a, D: Driver> NativeRequest<'a, D> {
    pub(crate) fn new(core: &'a Arc<PoolCore<D>>, part: usize, size: usize) -> Result<Self> {
        ensure(size > 0, UR_RESULT_ERROR_INVALID_USM_SIZE)?;
        let native = core.parts()[part].native.as_ref();
        let native = native.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
        let exhausted = core.parts()[part].kind.exhausted();
        ensure(core.admit(size as u64), exhausted)?;
        Ok(Self {
            core,
            part,
            native,
            size,
        })
    }

    /// Allocates by `serve`. If memory is short, releases idle memory of other parts and tries
    /// again.
    pub(crate) fn serve<R>(&self, mut serve: impl FnMut() -> Result<R>) -> Result<R> {
        serve().or_else(|error| {
            let again = is_out_of_memory(&error) && self.core.release_idle_for(self.part);
            if again { serve() } else { Err(error) }
        })
    }

    /// Records the memory from `base` on, whose allocation begins at `addr`.
    pub(crate) fn served(self, base: u64, addr: u64) -> *mut c_void {
        let bytes = self.size as u64;
        let live = Live { base, bytes };
        self.core.add_live(self.part, addr, live);
        self.core.after_growth();
        std::mem::forget(self);
        std::ptr::with_exposed_provenance_mut(addr as usize)
    }
}

impl<D: Driver> Drop for NativeRequest<'_, D> {
    fn drop(&mut self) {
        self.core.used.free(self.size as u64);
    }
}

pub(crate) fn is_out_of_memory(error: &Error) -> bool {
    let out = [
        UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
        UR_RESULT_ERROR_OUT_OF_HOST_MEMORY,
    ];
    out.contains(&error.code())
}

impl<D: Driver> PoolCore<D> {
    pub(crate) fn native(&self, part: usize) -> Option<&NativePart<D>> {
        self.parts()[part].native.as_ref()
    }

    fn add_live(self: &Arc<Self>, part: usize, addr: u64, live: Live) {
        let Some(native) = self.native(part) else {
            return;
        };
        native.live.lock().insert(addr, live);
        if let Some(domain) = self.domain() {
            let core = Arc::downgrade(self);
            domain.memory.add_native(addr, live.bytes, core, part);
        }
    }

    /// Removes the live allocation at `addr` before its free: its address may be another's right
    /// after.
    pub(crate) fn take_live(self: &Arc<Self>, part: usize, addr: u64) -> Option<Live> {
        let live = self.native(part)?.live.lock().remove(&addr)?;
        if let Some(domain) = self.domain() {
            domain.memory.remove_native(addr, &Arc::downgrade(self));
        }
        self.used.free(live.bytes);
        Some(live)
    }

    /// Restores an allocation whose free was refused.
    pub(crate) fn restore_live(self: &Arc<Self>, part: usize, addr: u64, live: Live) {
        self.used.alloc(&block(addr, live.bytes));
        self.add_live(part, addr, live);
    }

    /// Waits for everything enqueued before a native part fails for lack of memory: only the
    /// backend knows which commands would release some. False if nothing is pending or the policy
    /// forbids waits.
    pub(crate) fn waits_for_native(&self, error: &Error) -> Result<bool> {
        let allowed = Settings::get().waits != WaitPolicy::Never;
        let Some(domain) = self.domain().filter(|_| allowed && is_out_of_memory(error)) else {
            return Ok(false);
        };
        let pending = domain.everything();
        let waits = !pending.is_complete();
        if waits {
            domain.engine().wait(&pending)?;
        }
        Ok(waits)
    }

    /// Allocates memory of a native part for immediate use.
    pub(crate) fn native_now(
        self: &Arc<Self>,
        part: usize,
        size: usize,
        align: u64,
    ) -> Result<*mut c_void> {
        let request = NativeRequest::new(self, part, size)?;
        // A backend's pool aligns to no less than this.
        let extra = if align <= 256 { 0 } else { align as usize };
        let bytes = size.checked_add(extra);
        let bytes = bytes.ok_or(Error::new(self.parts()[part].kind.exhausted()))?;
        let native = request.native;
        let base = request.serve(|| native.serve(|| native.pool.alloc_now(bytes)))? as u64;
        let addr = if extra == 0 {
            base
        } else {
            base.next_multiple_of(align)
        };
        Ok(request.served(base, addr))
    }
}

pub(crate) fn block(addr: u64, bytes: u64) -> Block {
    Block {
        addr,
        bytes,
        requested: bytes,
    }
}

impl<D: Driver> Domain<D> {
    /// Frees an allocation of a native pool once this frontier is complete. False if there is none.
    pub(crate) fn free_native(
        &self,
        (core, part): (Arc<PoolCore<D>>, usize),
        addr: u64,
        death: Frontier,
    ) -> bool {
        let Some(live) = core.take_live(part, addr) else {
            return false;
        };
        let free = {
            let core = Arc::clone(&core);
            move || {
                if let Some(native) = core.native(part) {
                    native.pool.free_now(live.base as usize);
                }
            }
        };
        let engine = self.engine();
        match engine.is_done(&death) {
            Ok(true) => free(),
            _ if engine.when(death.clone().into(), move |_| free()).is_ok() => {}
            _ => {
                engine.wait_to_release(&death);
                if let Some(native) = core.native(part) {
                    native.pool.free_now(live.base as usize);
                }
            }
        }
        true
    }
}

//! The driver's own pools, which allocate and free in a stream's order. They always serve device memory.
//! They serve managed and host memory where the driver can create such a pool.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Result};
use ur::stream::{Kind, NativeLimits, NativePool, Work};
use ur::sync::Mutex;

use super::gpu::Gpu;
use super::lane::Lane;
use super::memory::{HOST_NODE, attribute, log_failed};
use super::peers::Members;
use super::work::Native;
use crate::Cuda;
use crate::cu::sys::*;
use crate::cu::{Code, Pooling, failure};

pub struct Pool {
    gpu: Arc<Gpu>,
    calls: Pooling,
    raw: CUmemoryPool,
    kind: Kind,
    utility_stream: Mutex<UtilityStream>,
}

/// A stream without waits, for calls that must run at once. Null until it is needed.
struct UtilityStream(CUstream);

// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for UtilityStream {}
// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for Pool {}
// SAFETY: the driver's objects may be used from any thread.
unsafe impl Sync for Pool {}

type Kinds = (CUmemAllocationType, CUmemLocation);

/// The driver's memory types that can serve a kind, the best first.
fn ways(gpu: &Gpu, kind: Kind) -> Vec<Kinds> {
    let pinned = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    let managed = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED;
    let at = |type_, id| CUmemLocation { type_, id };
    // Before CUDA 13 this location was invalid; since then it means no particular location.
    let nowhere = CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID;
    match kind {
        Kind::Device => vec![(pinned, gpu.location())],
        Kind::Shared => vec![(managed, at(nowhere, 0)), (managed, gpu.location())],
        Kind::Host => {
            let node = attribute(gpu.api, gpu.device, HOST_NODE).unwrap_or(0);
            let host = CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST;
            let near = CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA;
            vec![(pinned, at(host, 0)), (pinned, at(near, node.max(0)))]
        }
    }
}

impl Pool {
    /// A pool for memory of a kind near `gpu`, for these to use; none if the driver has no such.
    pub fn create(
        gpu: &Arc<Gpu>,
        all: &[Arc<Gpu>],
        members: &Members,
        kind: Kind,
        limits: &NativeLimits,
    ) -> Option<Self> {
        let calls = gpu.api.pooling()?;
        let _current = gpu.enter().ok()?;
        let max_bytes = usize::try_from(limits.max_bytes).unwrap_or(usize::MAX);
        // Drivers before 12.2 know no maximum: the engine keeps to that as far as it can be kept from
        // without.
        let sizes: &[usize] = if max_bytes == 0 {
            &[0]
        } else {
            &[max_bytes, 0]
        };
        let ways = ways(gpu, kind);
        let mut tries = ways
            .iter()
            .flat_map(|way| sizes.iter().map(move |max_bytes| (*way, *max_bytes)));
        tries.find_map(|(way, max_bytes)| {
            let mut raw = null_mut();
            let what = properties(way, max_bytes);
            // SAFETY: room for a handle.
            let code = unsafe { (calls.create)(&mut raw, &what) };
            if !code.is_success() {
                log::debug!("no pool of {kind:?} memory: cuMemPoolCreate: {}", code.0);
                return None;
            }
            let pool = Self {
                gpu: Arc::clone(gpu),
                calls,
                raw,
                kind,
                utility_stream: Mutex::new(UtilityStream(null_mut())),
            };
            pool.suits(all, members, limits).then_some(pool)
        })
    }

    /// Whether the pool supports the limits and all devices can reach its memory.
    fn suits(&self, all: &[Arc<Gpu>], members: &Members, limits: &NativeLimits) -> bool {
        let threshold = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let mut fits =
            self.set(threshold, limits.threshold).is_success() && self.reserved().is_ok();
        if self.kind == Kind::Host {
            let who: Vec<_> = all
                .iter()
                .map(|gpu| CUmemAccessDesc {
                    location: gpu.location(),
                    flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                })
                .collect();
            fits &= self.set_access(&who).is_success();
        }
        if self.kind == Kind::Device {
            let set = |who: &[CUmemAccessDesc]| self.set_access(who);
            fits = fits && self.gpu.share_pool(self.raw, members, set);
        }
        fits
    }

    fn set_access(&self, who: &[CUmemAccessDesc]) -> Code {
        // SAFETY: our pool, and a list of `who.len()` descriptions.
        unsafe { (self.calls.set_access)(self.raw, who.as_ptr(), who.len()) }
    }

    fn set(&self, what: CUmemPool_attribute, value: u64) -> Code {
        let mut value = value;
        // SAFETY: our pool; the attribute is a number of this size.
        unsafe { (self.calls.set)(self.raw, what, (&raw mut value).cast::<c_void>()) }
    }

    fn check(&self, code: Code, call: &str) -> Result<()> {
        if code.is_success() {
            return Ok(());
        }
        let error = failure(self.gpu.api, code, call);
        Err(match (self.kind, code) {
            (Kind::Host, Code::OUT_OF_MEMORY) => Error::new(UR_RESULT_ERROR_OUT_OF_HOST_MEMORY),
            _ => error,
        })
    }

    /// The context is current.
    fn alloc_on(&self, stream: CUstream, bytes: usize) -> Result<usize> {
        let mut addr = 0;
        // SAFETY: room for an address; a live pool and stream.
        let code = unsafe { (self.calls.alloc)(&mut addr, bytes, self.raw, stream) };
        self.check(code, "cuMemAllocFromPoolAsync")?;
        Ok(addr as usize)
    }

    /// The context is current.
    fn free_on(&self, stream: CUstream, addr: usize) {
        // SAFETY: allocated from this pool; the caller promises no use behind the stream's last command.
        let code = unsafe { (self.calls.free)(addr as u64, stream) };
        log_failed(code, "cuMemFreeAsync");
    }

    /// The context is current.
    fn utility_stream(&self) -> Result<CUstream> {
        let mut utility_stream = self.utility_stream.lock();
        if utility_stream.0.is_null() {
            let mut stream = null_mut();
            // SAFETY: room for one handle; 1 is `CU_STREAM_NON_BLOCKING`.
            let code = unsafe { (self.gpu.api.cuStreamCreateWithPriority)(&mut stream, 1, 0) };
            self.gpu.check(code, "cuStreamCreateWithPriority")?;
            utility_stream.0 = stream;
        }
        Ok(utility_stream.0)
    }
}

fn properties((kind, location): Kinds, max_bytes: usize) -> CUmemPoolProps {
    CUmemPoolProps {
        allocType: kind,
        handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location,
        win32SecurityAttributes: null_mut(),
        maxSize: max_bytes,
        usage: 0,
        reserved: [0; 54],
    }
}

impl NativePool<Cuda> for Pool {
    fn alloc(&self, lane: &Lane, _: u64, bytes: usize) -> Result<usize> {
        lane.run_now(
            || self.utility_stream(),
            |stream| self.alloc_on(stream, bytes),
            |addr, stream| self.free_on(stream, addr),
        )
    }

    fn free(&self, lane: &Lane, epoch: u64, addr: usize) -> Result<()> {
        let free = self.calls.free;
        let free = move |gpu: &Arc<Gpu>, stream| {
            // SAFETY: an allocation of the driver's, freed once.
            let code = unsafe { free(addr as u64, stream) };
            gpu.check(code, "cuMemFreeAsync")
        };
        let home = (self.kind == Kind::Device).then(|| Arc::clone(&self.gpu));
        let free = Native::call(move |gpu, stream| match &home {
            // The stream of another device may have no access.
            Some(home) if home.device != gpu.device => gpu.on_helper(stream, home, free),
            _ => free(gpu, stream),
        });
        lane.submit(epoch, Work::Native(free), None)
    }

    fn alloc_now(&self, bytes: usize) -> Result<usize> {
        let _current = self.gpu.enter()?;
        let stream = self.utility_stream()?;
        let addr = self.alloc_on(stream, bytes)?;
        // SAFETY: a live stream.
        let code = unsafe { (self.gpu.api.cuStreamSynchronize)(stream) };
        let ready = self.gpu.check(code, "cuStreamSynchronize");
        ready.inspect_err(|_| self.free_on(stream, addr))?;
        Ok(addr)
    }

    fn free_now(&self, addr: usize) {
        let Ok(_current) = self.gpu.enter() else {
            return;
        };
        // The default stream needs nothing to be made.
        self.free_on(self.utility_stream().unwrap_or(null_mut()), addr);
    }

    fn reserved(&self) -> Result<u64> {
        let what = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
        let mut bytes = 0_u64;
        // SAFETY: our pool; the attribute is a number of this size.
        let code = unsafe { (self.calls.get)(self.raw, what, (&raw mut bytes).cast::<c_void>()) };
        self.gpu.check(code, "cuMemPoolGetAttribute")?;
        Ok(bytes)
    }

    fn set_threshold(&self, bytes: u64) {
        let threshold = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        log_failed(self.set(threshold, bytes), "cuMemPoolSetAttribute");
    }

    fn trim(&self, keep_bytes: u64) {
        let keep_bytes = usize::try_from(keep_bytes).unwrap_or(usize::MAX);
        // SAFETY: our pool.
        log_failed(
            unsafe { (self.calls.trim)(self.raw, keep_bytes) },
            "cuMemPoolTrimTo",
        );
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let Ok(_current) = self.gpu.enter() else {
            return;
        };
        let utility_stream = self.utility_stream.get_mut();
        if !utility_stream.0.is_null() {
            // SAFETY: the pool owns the stream. The driver still runs its pending work.
            unsafe { (self.gpu.api.cuStreamDestroy)(utility_stream.0) };
        }
        self.gpu.forget_pool(self.raw);
        // SAFETY: our pool. Its memory goes when the last of it that was freed is free.
        let code = unsafe { (self.calls.destroy)(self.raw) };
        log_failed(code, "cuMemPoolDestroy");
    }
}

//! Synchronous USM: uses the pools of asynchronous USM, but only memory whose use is complete.

use crate::abi::*;
use crate::hal::UsmAllocInfo;
use crate::hal::answers::LinearRows;
use crate::object::{Error, InfoOut, Object, Result, chain, ensure};
use crate::pool::{Acquired, Order, Request};
use crate::stream::lane::extents;
use crate::stream::settings::Settings;
use crate::stream::settings::pool_trace::Trace;
use crate::stream::usm::memory::{AddressExtent, NoPool, UsmRange};
use crate::stream::usm::pool_core::Answer;
use crate::stream::{Context, Driver, Kind, UsmPool, Work};
use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Arc;

/// The memory at one end of a copy or fill.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// Memory at an address, of any device.
    Usm(usize),
    /// Memory of the command's own device.
    Own,
    /// A buffer, which the driver resolves, or no memory.
    Shared,
}

impl<D: Driver> Context<D> {
    /// Allocates memory for immediate use. `device` is none for host memory. `pool` defaults to the
    /// device's default pool.
    pub fn alloc_now(
        this: &Object<Self>,
        kind: Kind,
        device: Option<&Object<D::Device>>,
        desc: Option<&ur_usm_desc_t>,
        pool: Option<&Object<UsmPool<D>>>,
        size: usize,
    ) -> Result<*mut c_void> {
        let domain = this.domain();
        domain.engine().check()?;
        let device = match device {
            Some(device) => this.device(device)?,
            None => this.devices()[0].clone(),
        };
        let most = |device: &Object<D::Device>| D::max_alloc(device);
        let most = match kind {
            Kind::Host => this
                .devices()
                .iter()
                .map(|device| most(device))
                .min()
                .unwrap_or(0),
            Kind::Device | Kind::Shared => most(&device),
        };
        ensure(size <= most, UR_RESULT_ERROR_INVALID_USM_SIZE)?;
        let align = desc.map_or(Ok(0), alignment::<D>)?;
        let pool = match pool {
            Some(pool) => {
                this.check_pool(pool)?;
                pool.arc()
            }
            None => Self::default_pool(this, &device)?,
        };
        let part = pool
            .core()
            .part(kind, &device)
            .ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
        if pool.core().parts()[part].native.is_some() {
            let ask = || pool.core().native_now(part, size, align);
            return match ask() {
                Err(error) if pool.core().waits_for_native(&error)? => ask(),
                answer => answer,
            };
        }
        domain.poll();
        let decision = RefCell::default();
        let request = Request {
            bytes: size as u64,
            align,
            order: Order::Sync,
            may_wait: true,
            decision: Trace::get().map(|_| &decision),
        };
        let core = pool.core();
        let acquired = loop {
            let mut entry = Trace::get().map(|trace| trace.begin(None));
            let answer = core.acquire(part, &request, None);
            if let Ok(Answer::Once(wait)) = &answer {
                drop(entry);
                domain.engine().wait(wait)?;
                continue;
            }
            if let Some(entry) = &mut entry {
                let block = match &answer {
                    Ok(Answer::Served(acquired)) => Some(acquired.block()),
                    Ok(Answer::Once(_)) | Err(_) => None,
                };
                entry.alloc(core.number(), kind, size, block, &decision.borrow());
            }
            if let Answer::Served(acquired) = answer? {
                break acquired;
            }
        };
        if let Acquired::After(block, frontier) = &acquired
            && let Err(error) = domain.engine().wait(frontier)
        {
            pool.core().release(part, block.addr, frontier.clone());
            return Err(error);
        }
        Ok(std::ptr::with_exposed_provenance_mut(
            acquired.block().addr as usize,
        ))
    }

    /// Allocates memory of a buffer: device memory of the only device, or memory that all devices
    /// share.
    pub fn alloc_buffer(this: &Object<Self>, bytes: usize, align: u32) -> Result<*mut c_void> {
        let desc = ur_usm_desc_t {
            align,
            ..Default::default()
        };
        let kind = match this.devices().len() {
            1 => Kind::Device,
            _ => Kind::Shared,
        };
        let device = &this.devices()[0];
        Self::alloc_now(this, kind, Some(device), Some(&desc), None, bytes).map_err(|error| {
            match error.code() {
                UR_RESULT_ERROR_INVALID_USM_SIZE => Error::new(UR_RESULT_ERROR_INVALID_BUFFER_SIZE),
                _ => error,
            }
        })
    }

    /// Frees memory of a buffer, as [`Self::free_now`]. Nobody could be told of a failure.
    pub fn free_buffer(&self, addr: usize) {
        if let Err(error) = self.free_now(addr) {
            log::error!("a buffer's memory is lost: {:?}", error.code());
        }
    }

    /// `urUSMFree`: the block is free once everything enqueued in the context so far has ended.
    pub fn free_now(&self, addr: usize) -> Result<()> {
        let domain = self.domain();
        let everything = domain.poll_everything();
        let mut entry = Trace::get().map(|trace| trace.begin(None));
        if let Some(found) = domain.memory.native(addr) {
            let freed = domain.free_native(found, addr as u64, everything);
            return ensure(freed, UR_RESULT_ERROR_INVALID_MEM_OBJECT);
        }
        let freed = domain.memory.free(addr, &everything);
        if let Some(entry) = entry.as_mut().filter(|_| freed) {
            entry.free(addr as u64, &everything);
        }
        drop(entry);
        ensure(freed, UR_RESULT_ERROR_INVALID_MEM_OBJECT)
    }

    /// The allocation of USM that an address lies in, foreign memory that the context was told of included.
    pub fn usm_at(&self, addr: usize) -> Option<UsmRange<D>> {
        let memory = &self.domain().memory;
        if let Some(found) = memory.find(addr) {
            let part = found.part();
            return Some(UsmRange {
                start: found.block.addr as usize,
                bytes: found.block.requested as usize,
                kind: part.kind,
                device: part.device.clone(),
            });
        }
        memory.foreign.find(addr, |start, range| UsmRange {
            start,
            bytes: range.bytes,
            kind: range.kind,
            device: range.device.clone(),
        })
    }

    pub(crate) fn alloc_info(
        &self,
        addr: usize,
        what: UsmAllocInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        let Some(found) = self.domain().memory.find(addr) else {
            let foreign = &self.domain().memory.foreign;
            let known = foreign.find(addr, |start, range| {
                (start, range.bytes, range.kind, range.device.clone())
            });
            if let Some((start, bytes, kind, device)) = known {
                return match what {
                    UsmAllocInfo::Type => out.value(type_of(kind)),
                    UsmAllocInfo::BasePtr => out.value(start),
                    UsmAllocInfo::Size => out.value(bytes),
                    UsmAllocInfo::Device => out.handle(device.as_deref()),
                    UsmAllocInfo::Pool => out.handle::<UsmPool<D>>(None),
                };
            }
            return match what {
                UsmAllocInfo::Type => out.value(UR_USM_TYPE_UNKNOWN),
                UsmAllocInfo::BasePtr
                | UsmAllocInfo::Size
                | UsmAllocInfo::Device
                | UsmAllocInfo::Pool => Err(Error::new(UR_RESULT_ERROR_INVALID_MEM_OBJECT)),
            };
        };
        match what {
            UsmAllocInfo::Type => out.value(type_of(found.part().kind)),
            UsmAllocInfo::BasePtr => out.value(found.block.addr as usize),
            UsmAllocInfo::Size => out.value(found.block.requested as usize),
            UsmAllocInfo::Device => out.handle(found.part().device.as_deref()),
            UsmAllocInfo::Pool => out.handle(found.core.handle::<UsmPool<D>>().as_deref()),
        }
    }

    /// An error if these bytes leave the allocation that they begin in. Foreign memory passes.
    #[inline]
    pub(crate) fn check_range(&self, addr: usize, bytes: usize) -> Result<()> {
        self.check_ranges([addr], bytes)
    }

    /// As [`Context::check_range`], for several addresses.
    #[inline]
    pub(crate) fn check_ranges<const N: usize>(
        &self,
        addrs: [usize; N],
        bytes: usize,
    ) -> Result<()> {
        match extents::covers(self.domain().memory.extent_version.now(), addrs, bytes) {
            true => Ok(()),
            false => addrs
                .iter()
                .try_for_each(|addr| self.look_for_room(*addr, bytes)),
        }
    }

    #[inline(never)]
    fn look_for_room(&self, addr: usize, bytes: usize) -> Result<()> {
        let memory = &self.domain().memory;
        let since = memory.extent_version.now();
        let extent = match memory.extent(addr) {
            AddressExtent::Free => return Ok(()),
            AddressExtent::Foreign => usize::MAX,
            AddressExtent::Live(extent) => extent,
        };
        if Settings::get().extent_cache {
            extents::insert(since, addr, extent);
        }
        ensure(bytes <= extent, UR_RESULT_ERROR_INVALID_SIZE)
    }

    /// Makes a copy or fill a command of a device, which may have to access memory of other devices.
    /// The destination comes first in `ends`.
    #[inline]
    pub(crate) fn routed(
        &self,
        device: &Object<D::Device>,
        work: Work<D>,
        ends: [End; 2],
    ) -> Result<Work<D>> {
        match self.devices().len() {
            1 => Ok(work),
            _ => self.route(device, work, ends),
        }
    }

    #[inline(never)]
    fn route(&self, device: &Object<D::Device>, work: Work<D>, ends: [End; 2]) -> Result<Work<D>> {
        let mut is_foreign = false;
        let mut home = |end: End| match end {
            End::Shared => None,
            End::Own => Some(device.arc()),
            End::Usm(addr) => match self.domain().memory.home(addr) {
                Ok(home) => home,
                Err(NoPool) => D::foreign_home(device, addr).inspect(|_| is_foreign = true),
            },
        };
        let homes = ends.map(&mut home);
        let near = |home: &Arc<Object<D::Device>>| D::can_access(device, home);
        match !is_foreign && homes.iter().flatten().all(near) {
            true => Ok(work),
            false => {
                let homes = homes.each_ref().map(Option::as_deref);
                D::remote(device, work, homes, is_foreign)
            }
        }
    }

    /// `urUSMContextMemcpyExp`.
    pub(crate) fn copy_now(&self, dst: usize, src: usize, bytes: usize) -> Result<()> {
        self.check_ranges([dst, src], bytes)?;
        let memory = &self.domain().memory;
        let owner = [dst, src]
            .into_iter()
            .find_map(|addr| memory.find(addr)?.part().device.clone());
        let device = owner.as_ref().unwrap_or(&self.devices()[0]);
        let work = self.routed(
            device,
            Work::Copy { dst, src, bytes },
            [dst, src].map(End::Usm),
        )?;
        self.domain().run_now(device, work)
    }
}

fn type_of(kind: Kind) -> ur_usm_type_t {
    match kind {
        Kind::Host => UR_USM_TYPE_HOST,
        Kind::Device => UR_USM_TYPE_DEVICE,
        Kind::Shared => UR_USM_TYPE_SHARED,
    }
}

/// The alignment of a descriptor. Chained structs are hints that a pool may ignore, but unknown
/// ones are an error.
fn alignment<D: Driver>(desc: &ur_usm_desc_t) -> Result<u64> {
    const KNOWN: [ur_structure_type_t; 3] = [
        UR_STRUCTURE_TYPE_USM_HOST_DESC,
        UR_STRUCTURE_TYPE_USM_DEVICE_DESC,
        UR_STRUCTURE_TYPE_USM_ALLOC_LOCATION_DESC,
    ];
    let first = desc.pNext;
    // SAFETY: the entry point's caller promises a chain of live structs with correct tags.
    let (other, host, device) = unsafe {
        (
            chain::has_other(first, &KNOWN),
            chain::find::<ur_usm_host_desc_t>(first, UR_STRUCTURE_TYPE_USM_HOST_DESC),
            chain::find::<ur_usm_device_desc_t>(first, UR_STRUCTURE_TYPE_USM_DEVICE_DESC),
        )
    };
    ensure(!other, UR_RESULT_ERROR_INVALID_VALUE)?;
    let host = host.map_or(0, |host| host.flags.0 & UR_USM_HOST_MEM_FLAGS_MASK);
    let device = device.map_or(0, |device| device.flags.0 & UR_USM_DEVICE_MEM_FLAGS_MASK);
    ensure(host | device == 0, UR_RESULT_ERROR_INVALID_ENUMERATION)?;
    let align = u64::from(desc.align);
    ensure(align <= D::MAX_ALIGN_BYTES, UR_RESULT_ERROR_INVALID_VALUE)?;
    Ok(align)
}

impl<D: Driver> UsmRange<D> {
    /// Checks rows of an image that begin at an address of this allocation. `UNSUPPORTED_FEATURE` for memory of a device
    /// that the image's device does not reach, `INVALID_IMAGE_SIZE` if the rows end beyond the allocation.
    pub fn check_rows(
        &self,
        address: usize,
        rows: &LinearRows,
        reaches: impl FnOnce(&Object<D::Device>) -> Result<bool>,
    ) -> Result<()> {
        let reached = match &self.device {
            Some(home) if self.kind == Kind::Device => reaches(home)?,
            _ => true,
        };
        ensure(reached, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        let left = self.bytes.saturating_sub(address - self.start);
        let inside = rows.bytes().is_some_and(|bytes| bytes <= left);
        ensure(inside, UR_RESULT_ERROR_INVALID_IMAGE_SIZE)
    }
}

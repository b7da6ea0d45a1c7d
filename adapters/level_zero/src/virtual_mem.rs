//! Address ranges and the physical memory behind them.
//!
//! Physical memory is one native block. Since driver 26.27 a block of device memory may be mapped at one place at a
//! time; a second mapping is `INVALID_ARGUMENT`. Earlier drivers do not check.

use std::ffi::c_void;
use std::sync::Arc;

use ur::abi::*;
use ur::hal::answers::physical_mem_info;
use ur::hal::{self, PhysicalMemInfo, Ranges};
use ur::object::{Body, Error, InfoOut, Kind, Object, Result, ensure};
use ur::stream::Context;

use crate::LevelZero;
use crate::context::NativeContext;
use crate::device::Device;
use crate::lz::*;

/// The ranges of one context, and the memory that is mapped to them. Memory lives while it is mapped.
#[derive(Default)]
pub struct AddressSpace {
    ranges: Ranges<Arc<NativeContext>, Arc<Block>>,
}

/// A native block of physical memory.
pub struct Block {
    context: Arc<NativeContext>,
    raw: ze_physical_mem_handle_t,
}

impl Drop for Block {
    fn drop(&mut self) {
        if !self.context.api.is_torn_down() {
            // SAFETY: the block is this one's, and it is mapped nowhere, since a mapping keeps it.
            unsafe { (self.context.api.zePhysicalMemDestroy)(self.context.raw, self.raw) };
        }
    }
}

fn native(access: ur_virtual_mem_access_flags_t) -> Result<ze_memory_access_attribute_t> {
    match access {
        UR_VIRTUAL_MEM_ACCESS_FLAG_NONE => Ok(ZE_MEMORY_ACCESS_ATTRIBUTE_NONE),
        UR_VIRTUAL_MEM_ACCESS_FLAG_READ_WRITE => Ok(ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE),
        UR_VIRTUAL_MEM_ACCESS_FLAG_READ_ONLY => Ok(ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY),
        _ => Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE)),
    }
}

fn at(addr: usize) -> *const c_void {
    std::ptr::with_exposed_provenance(addr)
}

/// Bytes of a page of the device, for blocks of this size.
pub fn page_bytes(context: &NativeContext, device: &Device, bytes: usize) -> Result<usize> {
    let mut page = 0;
    // SAFETY: the answer is writable.
    unsafe {
        call!(
            context.api,
            zeVirtualMemQueryPageSize(context.raw, device.raw(), bytes.max(1), &mut page)
        )
    }?;
    Ok(page)
}

fn unmap(context: &NativeContext, start: usize, bytes: usize) -> Result<()> {
    // SAFETY: the range is mapped by this space.
    unsafe {
        call!(
            context.api,
            zeVirtualMemUnmap(context.raw, at(start), bytes)
        )
    }
}

fn free(context: &NativeContext, start: usize, bytes: usize) -> Result<()> {
    // SAFETY: the range is reserved by this space, and nothing is mapped there.
    unsafe { call!(context.api, zeVirtualMemFree(context.raw, at(start), bytes)) }
}

impl AddressSpace {
    /// Reserves addresses, at `hint` if they are free there.
    pub fn reserve(
        &self,
        context: &Arc<NativeContext>,
        page: usize,
        hint: usize,
        bytes: usize,
    ) -> Result<usize> {
        let whole = bytes > 0 && bytes.is_multiple_of(page.max(1));
        ensure(whole, UR_RESULT_ERROR_INVALID_SIZE)?;
        let mut start = std::ptr::null_mut();
        // SAFETY: there is room for the address.
        unsafe {
            call!(
                context.api,
                zeVirtualMemReserve(context.raw, at(hint), bytes, &mut start)
            )
        }?;
        let start = start.expose_provenance();
        self.ranges.reserved(start, bytes, Arc::clone(context));
        Ok(start)
    }

    pub fn free(&self, start: usize, bytes: usize) -> Result<()> {
        let context = self.ranges.freed(start, bytes)?;
        free(&context, start, bytes)
    }

    pub fn map(
        &self,
        (start, bytes): (usize, usize),
        memory: &PhysicalMem,
        offset: usize,
        access: ur_virtual_mem_access_flags_t,
    ) -> Result<()> {
        let wanted = native(access)?;
        let end = offset
            .checked_add(bytes)
            .ok_or(Error::new(UR_RESULT_ERROR_INVALID_SIZE))?;
        ensure(
            bytes > 0 && end <= memory.bytes,
            UR_RESULT_ERROR_INVALID_SIZE,
        )?;
        let block = &memory.block;
        self.ranges.map(start, bytes, access, || {
            let Block { context, raw } = &**block;
            // SAFETY: the range is reserved and unmapped, and lies within the block.
            unsafe {
                call!(
                    context.api,
                    zeVirtualMemMap(context.raw, at(start), bytes, *raw, offset, wanted)
                )
            }?;
            Ok(Arc::clone(block))
        })
    }

    pub fn unmap(&self, start: usize, bytes: usize) -> Result<()> {
        self.ranges.unmap(start, bytes, |context, start, bytes, _| {
            unmap(context, start, bytes)
        })
    }

    pub fn set_access(
        &self,
        (start, bytes): (usize, usize),
        access: ur_virtual_mem_access_flags_t,
    ) -> Result<()> {
        let wanted = native(access)?;
        self.ranges
            .set_access(start, bytes, access, |start, bytes, block| {
                let context = &block.context;
                // SAFETY: the range is mapped by this space.
                unsafe {
                    call!(
                        context.api,
                        zeVirtualMemSetAccessAttribute(context.raw, at(start), bytes, wanted)
                    )
                }
            })
    }

    pub fn access(&self, start: usize, bytes: usize) -> Result<ur_virtual_mem_access_flags_t> {
        self.ranges.access(start, bytes)
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        let report = |result: Result<()>| {
            if let Err(error) = result {
                log::error!("an address range stays: {:?}", error.code());
            }
        };
        self.ranges.clear(
            |context, start, bytes, _| report(unmap(context, start, bytes)),
            |context, start, bytes| report(free(context, start, bytes)),
        );
    }
}

/// Memory without an address.
pub struct PhysicalMem {
    context: Arc<Object<Context<LevelZero>>>,
    device: Arc<Object<Device>>,
    bytes: usize,
    flags: ur_physical_mem_flags_t,
    block: Arc<Block>,
}

impl PhysicalMem {
    pub fn create(
        context: &Object<Context<LevelZero>>,
        device: &Object<Device>,
        bytes: usize,
        properties: Option<&ur_physical_mem_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        context.check_device(device)?;
        let flags = properties.map_or_else(Default::default, |properties| properties.flags);
        // Memory that other processes open comes with the adapter's other sharing.
        let shared = flags.contains(UR_PHYSICAL_MEM_FLAG_ENABLE_IPC);
        ensure(!shared, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        let native = &context.domain().state().native;
        let page = page_bytes(native, device, bytes)?;
        let whole = bytes > 0 && bytes.is_multiple_of(page.max(1));
        ensure(whole, UR_RESULT_ERROR_INVALID_SIZE)?;
        let mut desc = ze_physical_mem_desc_t {
            flags: ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_DEVICE,
            size: bytes,
            ..Default::default()
        };
        let mut raw = ze_physical_mem_handle_t::NULL;
        // SAFETY: the description has its tag, and there is room for the handle.
        unsafe {
            call!(
                native.api,
                zePhysicalMemCreate(native.raw, device.raw(), &mut desc, &mut raw)
            )
        }?;
        Ok(hal::new::<LevelZero, _>(Self {
            context: context.arc(),
            device: device.arc(),
            bytes,
            flags,
            block: Arc::new(Block {
                context: Arc::clone(native),
                raw,
            }),
        }))
    }
}

impl Body for PhysicalMem {
    const KIND: Kind = Kind::PhysicalMem;
}

impl hal::PhysicalMem<LevelZero> for PhysicalMem {
    fn get_info(this: &Object<Self>, what: PhysicalMemInfo, out: InfoOut<'_>) -> Result<()> {
        let place = (&*this.context, &*this.device);
        physical_mem_info::<LevelZero>(this, place, (this.bytes, this.flags), what, out)
    }
}

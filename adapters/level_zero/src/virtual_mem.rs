//! Address ranges and the physical memory behind them.
//!
//! Physical memory is one native block. Since driver 26.27 a block of device memory may be mapped at one place at a
//! time; a second mapping is `INVALID_ARGUMENT`. Earlier drivers do not check.

use std::ffi::c_void;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr::{from_mut, null, with_exposed_provenance_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::hal::answers::physical_mem_info;
use ur::hal::{self, PhysicalMemInfo, Ranges};
use ur::object::{Body, Error, InfoOut, Kind, Object, Result, ensure};
use ur::stream::Context;
use ur::sync::{Mutex, rank};

use crate::LevelZero;
use crate::context::{ContextData, NativeContext};
use crate::device::Device;
use crate::lz::*;

type OfContext = Object<Context<LevelZero>>;

/// The ranges of one context, and the memory that is mapped to them. Memory lives while it is mapped.
#[derive(Default)]
pub struct AddressSpace {
    ranges: Ranges<Arc<NativeContext>, Arc<Block>>,
}

/// A native block of physical memory.
pub struct Block {
    context: Arc<NativeContext>,
    raw: ze_physical_mem_handle_t,
    /// The kind of its descriptor, of a block made for other processes.
    exports: Option<ze_external_memory_type_flag_t>,
    /// The descriptor of a block that other processes open, once one has asked.
    file: Mutex<Option<Arc<OwnedFd>>, { rank::LEAF }>,
}

/// Makes a native block of a device's memory.
///
/// # Safety
/// `chain` is null or lasts for the call.
pub unsafe fn create_block(
    context: &NativeContext,
    device: &Device,
    bytes: usize,
    chain: *const c_void,
) -> Result<ze_physical_mem_handle_t> {
    let mut desc = ze_physical_mem_desc_t {
        pNext: chain,
        flags: ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_DEVICE,
        size: bytes,
        ..Default::default()
    };
    let mut raw = ze_physical_mem_handle_t::NULL;
    // SAFETY: the description has its tag, the caller promises its chain, and there is room for the handle.
    unsafe {
        call!(
            context.api,
            zePhysicalMemCreate(context.raw, device.raw(), &mut desc, &mut raw)
        )
    }?;
    Ok(raw)
}

impl Block {
    fn create(
        context: &Arc<NativeContext>,
        device: &Device,
        bytes: usize,
        exports: Option<ze_external_memory_type_flag_t>,
        chain: *const c_void,
    ) -> Result<Arc<Self>> {
        // SAFETY: the caller's chain lasts for the call.
        let raw = unsafe { create_block(context, device, bytes, chain) }?;
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            raw,
            exports,
            file: Mutex::default(),
        }))
    }

    /// The descriptor, of a block made for other processes.
    pub fn file(&self) -> Result<Arc<OwnedFd>> {
        let mut known = self.file.lock();
        if let Some(file) = &*known {
            return Ok(Arc::clone(file));
        }
        let query = self.context.api.zePhysicalMemGetProperties;
        let query = query.ok_or(Error::unsupported())?;
        let mut export = ze_external_memory_export_fd_t {
            flags: self.exports.ok_or(Error::unsupported())?,
            fd: -1,
            ..Default::default()
        };
        let mut found = ze_physical_mem_properties_t {
            pNext: from_mut(&mut export).cast(),
            ..Default::default()
        };
        // SAFETY: a live block; the answer has its tag, is writable, and its chain lasts for the call.
        let code = unsafe { query(self.context.raw, self.raw, &mut found) };
        check(code, "zePhysicalMemGetProperties")?;
        ensure(export.fd >= 0, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        // SAFETY: the driver made the descriptor for the caller.
        let file = Arc::new(unsafe { OwnedFd::from_raw_fd(export.fd) });
        *known = Some(Arc::clone(&file));
        Ok(file)
    }
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

/// The context's address ranges. `UNSUPPORTED_FEATURE` if a device of it has none.
pub fn space(this: &OfContext) -> Result<&AddressSpace> {
    for device in this.each_device() {
        let able = device.has_virtual_memory()?;
        ensure(able, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    }
    Ok(&this.domain().state().space)
}

/// Bytes of a page of the device, else of a page that suits all devices of the context, for blocks of this size.
pub fn granularity(
    this: &OfContext,
    device: Option<&Object<Device>>,
    bytes: usize,
) -> Result<usize> {
    space(this)?;
    let of = |device| page_bytes(&this.domain().state().native, device, bytes);
    match device {
        Some(device) => of(device),
        None => this
            .each_device()
            .try_fold(1, |most, device| Ok(most.max(of(device)?))),
    }
}

/// Reserves addresses, at `hint` if they are free there.
pub fn reserve(this: &OfContext, hint: *const c_void, bytes: usize) -> Result<*mut c_void> {
    let page = granularity(this, None, bytes)?;
    let ContextData { space, native, .. } = this.domain().state();
    let start = space.reserve(native, page, hint.addr(), bytes)?;
    Ok(with_exposed_provenance_mut(start))
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
            let Block { context, raw, .. } = &**block;
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
    context: Arc<OfContext>,
    device: Arc<Object<Device>>,
    bytes: usize,
    flags: ur_physical_mem_flags_t,
    block: Arc<Block>,
    /// Whether another process made it.
    is_opened: bool,
}

impl PhysicalMem {
    pub fn create(
        context: &OfContext,
        device: &Object<Device>,
        bytes: usize,
        properties: Option<&ur_physical_mem_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        space(context)?;
        context.check_device(device)?;
        let flags = properties.map_or_else(Default::default, |properties| properties.flags);
        let kind = match flags.contains(UR_PHYSICAL_MEM_FLAG_ENABLE_IPC) {
            true => Some(device.physical_descriptor()?.ok_or(Error::unsupported())?),
            false => None,
        };
        let native = &context.domain().state().native;
        let page = page_bytes(native, device, bytes)?;
        let whole = bytes > 0 && bytes.is_multiple_of(page.max(1));
        ensure(whole, UR_RESULT_ERROR_INVALID_SIZE)?;
        let mut export = ze_external_memory_export_desc_t {
            flags: kind.unwrap_or_default(),
            ..Default::default()
        };
        let chain = match kind {
            Some(_) => from_mut(&mut export).cast_const().cast(),
            None => null(),
        };
        let block = Block::create(native, device, bytes, kind, chain)?;
        Ok(Self::made(context, device, (bytes, flags), block, false))
    }

    /// The memory of another process, by a descriptor.
    pub fn open(
        context: &OfContext,
        device: &Object<Device>,
        bytes: usize,
        file: &OwnedFd,
    ) -> Result<Arc<Object<Self>>> {
        let kind = device.physical_descriptor()?.ok_or(Error::unsupported())?;
        let native = &context.domain().state().native;
        let mut import = ze_external_memory_import_fd_t {
            flags: kind,
            fd: file.as_raw_fd(),
            ..Default::default()
        };
        let chain = from_mut(&mut import).cast_const().cast();
        let block = Block::create(native, device, bytes, None, chain)?;
        let facts = (bytes, UR_PHYSICAL_MEM_FLAG_ENABLE_IPC);
        Ok(Self::made(context, device, facts, block, true))
    }

    fn made(
        context: &OfContext,
        device: &Object<Device>,
        (bytes, flags): (usize, ur_physical_mem_flags_t),
        block: Arc<Block>,
        is_opened: bool,
    ) -> Arc<Object<Self>> {
        hal::new::<LevelZero, _>(Self {
            context: context.arc(),
            device: device.arc(),
            bytes,
            flags,
            block,
            is_opened,
        })
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// `UNSUPPORTED_FEATURE` if no memory of the device can be opened by other processes.
    pub fn check_shareable(&self) -> Result<()> {
        let kind = self.device.physical_descriptor()?;
        ensure(kind.is_some(), UR_RESULT_ERROR_UNSUPPORTED_FEATURE)
    }

    /// The block, for other processes. `INVALID_ARGUMENT` if the memory was created without
    /// `UR_PHYSICAL_MEM_FLAG_ENABLE_IPC`, or is another process's.
    pub fn shared_block(&self) -> Result<&Arc<Block>> {
        let own = self.flags.contains(UR_PHYSICAL_MEM_FLAG_ENABLE_IPC) && !self.is_opened;
        ensure(own, UR_RESULT_ERROR_INVALID_ARGUMENT)?;
        Ok(&self.block)
    }

    pub fn is_opened(&self) -> bool {
        self.is_opened
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

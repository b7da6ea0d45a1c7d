//! Buffers. The host and all devices see the same bytes at the same address, so there is nothing
//! to migrate, and mapping one is nothing but its address.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ur::abi::*;
use ur::hal::{self, MemInfo};
use ur::object::{Body, Error, InfoOut, Kind, Object, Result, ensure};
use ur::stream::Context;

use crate::Cpu;
use crate::device::Device;

pub struct Mem {
    context: Arc<Object<Context<Cpu>>>,
    flags: ur_mem_flags_t,
    address: usize,
    bytes: usize,
    storage: Storage,
}

/// Whose memory it is; held for as long as the buffer, and looked at only to tell a sub-buffer.
#[allow(dead_code)]
enum Storage {
    Own(Allocation),
    /// The caller's, who keeps it.
    User,
    /// A part of another buffer.
    Parent(Arc<Object<Mem>>),
}

/// Enough for any type that a kernel reads.
const ALIGN: usize = 128;

const ACCESS: ur_mem_flags_t =
    ur_mem_flags_t(UR_MEM_FLAG_READ_WRITE.0 | UR_MEM_FLAG_READ_ONLY.0 | UR_MEM_FLAG_WRITE_ONLY.0);

impl Mem {
    /// `urMemBufferCreate`. The shim has checked flags against the host pointer.
    pub fn create(
        context: &Object<Context<Cpu>>,
        flags: ur_mem_flags_t,
        bytes: usize,
        properties: Option<&ur_buffer_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        let own = UR_MEM_FLAG_ALLOC_HOST_POINTER | UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER;
        let uses_host = flags.contains(UR_MEM_FLAG_USE_HOST_POINTER);
        ensure(
            !(uses_host && flags.intersects(own)),
            UR_RESULT_ERROR_INVALID_VALUE,
        )?;
        let flags = ur_mem_flags_t(
            flags.0 & !ACCESS.0 | access(flags)?.unwrap_or(UR_MEM_FLAG_READ_WRITE).0,
        );
        let host = properties.map_or(ptr::null_mut(), |properties| properties.pHost);
        let (address, storage) = if uses_host {
            (host.expose_provenance(), Storage::User)
        } else {
            let memory = Allocation::new(bytes)?;
            if flags.contains(UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER) {
                // SAFETY: the caller's memory has the buffer's size, and the new one is apart.
                unsafe { ptr::copy_nonoverlapping(host.cast(), memory.start.as_ptr(), bytes) };
            }
            (
                memory.start.as_ptr().expose_provenance(),
                Storage::Own(memory),
            )
        };
        Ok(hal::new::<Cpu, _>(Self {
            context: context.arc(),
            flags,
            address,
            bytes,
            storage,
        }))
    }

    pub fn address(&self) -> usize {
        self.address
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Address of a range that lies within the buffer.
    pub fn range(&self, offset: usize, bytes: usize) -> Result<usize> {
        let inside = offset
            .checked_add(bytes)
            .is_some_and(|end| end <= self.bytes);
        ensure(inside, UR_RESULT_ERROR_INVALID_SIZE)?;
        Ok(self.address + offset)
    }
}

/// The access that flags name, if any; two at once are none.
fn access(flags: ur_mem_flags_t) -> Result<Option<ur_mem_flags_t>> {
    let named = ur_mem_flags_t(flags.0 & ACCESS.0);
    ensure(named.0.count_ones() <= 1, UR_RESULT_ERROR_INVALID_VALUE)?;
    Ok((named.0 != 0).then_some(named))
}

impl Body for Mem {
    const KIND: Kind = Kind::Mem;
}

impl hal::Mem<Cpu> for Mem {
    fn buffer_partition(
        this: &Object<Self>,
        flags: ur_mem_flags_t,
        kind: ur_buffer_create_type_t,
        region: &ur_buffer_region_t,
    ) -> Result<Arc<Object<Mem>>> {
        ensure(
            kind == UR_BUFFER_CREATE_TYPE_REGION,
            UR_RESULT_ERROR_INVALID_ENUMERATION,
        )?;
        let nested = matches!(this.storage, Storage::Parent(_));
        ensure(!nested, UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
        ensure(flags.0 & !ACCESS.0 == 0, UR_RESULT_ERROR_INVALID_VALUE)?;
        let given = access(this.flags)?.unwrap_or(UR_MEM_FLAG_READ_WRITE);
        let wanted = access(flags)?.unwrap_or(given);
        ensure(
            given == UR_MEM_FLAG_READ_WRITE || wanted == given,
            UR_RESULT_ERROR_INVALID_VALUE,
        )?;
        let inside = this.range(region.origin, region.size);
        let address = inside.map_err(|_| Error::new(UR_RESULT_ERROR_INVALID_BUFFER_SIZE))?;
        Ok(hal::new::<Cpu, _>(Self {
            context: Arc::clone(&this.context),
            flags: ur_mem_flags_t(this.flags.0 & !ACCESS.0 | wanted.0),
            address,
            bytes: region.size,
            storage: Storage::Parent(this.arc()),
        }))
    }

    fn get_native_handle(
        this: &Object<Self>,
        _: Option<&Object<Device>>,
    ) -> Result<ur_native_handle_t> {
        Ok(this.address as ur_native_handle_t)
    }

    fn get_info(this: &Object<Self>, what: MemInfo, out: InfoOut<'_>) -> Result<()> {
        match what {
            MemInfo::Size => out.value(this.bytes),
            MemInfo::Context => out.handle(Some(&this.context)),
            MemInfo::ReferenceCount => out.value(this.api_refs()),
        }
    }
}

struct Allocation {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: memory that belongs to one buffer; who may touch it when is the commands' affair.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    fn new(bytes: usize) -> Result<Self> {
        let layout = Layout::from_size_align(bytes.max(1), ALIGN);
        let layout = layout.map_err(|_| Error::new(UR_RESULT_ERROR_OUT_OF_HOST_MEMORY))?;
        // SAFETY: at least one byte is asked for.
        let start = NonNull::new(unsafe { alloc(layout) });
        let start = start.ok_or(Error::new(UR_RESULT_ERROR_OUT_OF_HOST_MEMORY))?;
        Ok(Self { start, layout })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: from `alloc` with the same layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

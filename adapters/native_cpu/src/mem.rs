//! Buffers: memory of the context's pools, which free it behind all that was enqueued, as a released
//! buffer's commands may be pending. The host and all devices see the same bytes at the same address, so
//! there is nothing to migrate, and mapping one is nothing but its address.

use std::ffi::c_void;
use std::ptr;
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

/// Whose memory it is.
enum Storage {
    /// The context's pools'.
    Own,
    /// The caller's, who keeps it.
    User,
    /// A part of another buffer, which is held for as long.
    Parent(#[allow(dead_code)] Arc<Object<Mem>>),
}

/// Enough for any type that a kernel reads.
const ALIGN: u32 = 128;

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
        let (start, storage) = if uses_host {
            (host, Storage::User)
        } else {
            let memory = Context::alloc_buffer(context, bytes, ALIGN)?;
            if flags.contains(UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER) {
                // SAFETY: the caller's memory has the buffer's size, and the new one is apart.
                unsafe { ptr::copy_nonoverlapping(host, memory, bytes) };
            }
            (memory, Storage::Own)
        };
        Ok(hal::new::<Cpu, _>(Self {
            context: context.arc(),
            flags,
            address: start.expose_provenance(),
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
        let allowed = access(this.flags)?.unwrap_or(UR_MEM_FLAG_READ_WRITE);
        let wanted = access(flags)?.unwrap_or(allowed);
        ensure(
            allowed == UR_MEM_FLAG_READ_WRITE || wanted == allowed,
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

impl Drop for Mem {
    fn drop(&mut self) {
        if let Storage::Own = self.storage {
            let start: *mut c_void = ptr::with_exposed_provenance_mut(self.address);
            if let Err(error) = hal::Context::usm_free(&*self.context, start) {
                log::error!("a buffer's memory is lost: {:?}", error.code());
            }
        }
    }
}

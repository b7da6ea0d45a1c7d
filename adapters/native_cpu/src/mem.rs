//! Buffers, in memory of the context's pools. A released buffer's memory is freed behind all commands
//! that were enqueued, since some of them may use it. The host and all devices share one address space:
//! nothing migrates, and a mapping is the buffer's own address.

use std::ptr;
use std::sync::Arc;

use ur::abi::*;
use ur::hal::answers::{WholeBuffer, buffer_flags, mem_info};
use ur::hal::{self, MemInfo};
use ur::object::{Body, InfoOut, Kind, Object, Result, ensure};
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

/// The owner of a buffer's memory.
enum Storage {
    /// The context's pools.
    Own,
    /// The caller.
    User,
    /// Another buffer, of which this is a part.
    Parent(#[allow(dead_code)] Arc<Object<Mem>>),
}

/// Bytes of alignment: that of the largest type that a kernel reads.
const ALIGN_BYTES: u32 = 128;

impl Mem {
    /// `urMemBufferCreate`. The shim has checked the flags against the host pointer.
    pub fn create(
        context: &Object<Context<Cpu>>,
        flags: ur_mem_flags_t,
        bytes: usize,
        properties: Option<&ur_buffer_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        let flags = buffer_flags(flags)?;
        let host = properties.map_or(ptr::null_mut(), |properties| properties.pHost);
        let (start, storage) = if flags.contains(UR_MEM_FLAG_USE_HOST_POINTER) {
            (host, Storage::User)
        } else {
            let memory = Context::alloc_buffer(context, bytes, ALIGN_BYTES)?;
            if flags.contains(UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER) {
                // SAFETY: the caller's memory has the buffer's size, and new memory does not overlap it.
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

    /// Address of a range of the buffer. `INVALID_SIZE` if the range goes beyond it.
    pub fn range(&self, offset: usize, bytes: usize) -> Result<usize> {
        let inside = offset
            .checked_add(bytes)
            .is_some_and(|end| end <= self.bytes);
        ensure(inside, UR_RESULT_ERROR_INVALID_SIZE)?;
        Ok(self.address + offset)
    }
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
        let whole = WholeBuffer {
            flags: this.flags,
            bytes: this.bytes,
            is_part: matches!(this.storage, Storage::Parent(_)),
        };
        let part = whole.part(flags, kind, region)?;
        Ok(hal::new::<Cpu, _>(Self {
            context: Arc::clone(&this.context),
            flags: part.flags,
            address: this.address + part.offset,
            bytes: part.bytes,
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
        mem_info::<Cpu>(this, &this.context, || Ok(this.bytes), what, out)
    }
}

impl Drop for Mem {
    fn drop(&mut self) {
        if let Storage::Own = self.storage {
            self.context.free_buffer(self.address);
        }
    }
}

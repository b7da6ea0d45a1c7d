//! Buffers, in memory of the context's pools: device memory, or host memory in a context of several devices, which all
//! of them reach. A mapping is a copy in host memory, or the buffer itself where the host reaches it.
//!
//! A buffer over the host's memory (`UR_MEM_FLAG_USE_HOST_POINTER`) is a copy ([`HostCopy`]).
//!
//! The last release of a used buffer waits until all enqueued commands have ended. The host's memory is the caller's
//! alone after it.

use std::ptr::null_mut;
use std::sync::Arc;

use ur::abi::*;
use ur::hal::answers::{WholeBuffer, buffer_flags, mem_info};
use ur::hal::{self, MemInfo};
use ur::object::{Body, InfoOut, Kind, Object, Result, ensure};
use ur::stream::{
    Context, Driver, EndedMapping, HostCopy, MappedPointer, Mappings, Use, Uses, Work,
};

use crate::LevelZero;
use crate::device::Device;
use crate::exec::{self, Native};

type OfContext = Object<Context<LevelZero>>;

pub struct Mem {
    context: Arc<OfContext>,
    flags: ur_mem_flags_t,
    address: usize,
    bytes: usize,
    storage: Storage,
    /// Of a copy of the host's memory.
    uses: Uses,
    mappings: Mappings,
}

enum Storage {
    /// Memory of the context's pools, which the host reaches or not.
    Own { on_host: bool },
    /// Memory of the context's pools, a copy of the host's memory.
    Copy(HostCopy),
    /// Foreign memory. `own`: it is freed with the buffer.
    User { own: bool },
    /// A part of another buffer.
    Parent(Arc<Object<Mem>>),
}

/// The copy of a mapping's host memory back to its buffer.
#[derive(Clone)]
pub struct WriteBack {
    pub dst: usize,
    pub src: usize,
    pub bytes: usize,
    _keeps: Arc<EndedMapping>,
}

impl Mem {
    /// `urMemBufferCreate`. The shim has checked the flags against the host pointer.
    pub fn create(
        context: &OfContext,
        flags: ur_mem_flags_t,
        bytes: usize,
        properties: Option<&ur_buffer_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        let flags = buffer_flags(flags)?;
        let uses = flags.contains(UR_MEM_FLAG_USE_HOST_POINTER);
        let copies = flags.contains(UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER);
        let host = properties.map_or(null_mut(), |properties| properties.pHost);
        let host = host.expose_provenance();
        let several = context.devices().len() > 1;
        let most = context
            .devices()
            .iter()
            .map(|device| LevelZero::max_alloc(device));
        let fits = most.min().is_none_or(|most| bytes <= most);
        ensure(fits, UR_RESULT_ERROR_INVALID_BUFFER_SIZE)?;
        let address = match several {
            true => hal::Context::usm_host_alloc(context, None, None, bytes)?,
            false => Context::alloc_buffer(context, bytes, 0)?,
        };
        let mem = Self {
            context: context.arc(),
            flags,
            address: address.expose_provenance(),
            bytes,
            storage: match uses {
                true => Storage::Copy(HostCopy::of(host)),
                false => Storage::Own { on_host: several },
            },
            uses: Uses::default(),
            mappings: Mappings::default(),
        };
        if copies {
            mem.copy(mem.address, host)?;
        }
        Ok(hal::new::<LevelZero, _>(mem))
    }

    /// A buffer over memory of the driver's.
    pub fn from_native(
        context: &OfContext,
        native: ur_native_handle_t,
        own: bool,
    ) -> Result<Arc<Object<Self>>> {
        ensure(native != 0, UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
        let state = context.domain().state();
        let bytes = exec::range(&state.native, native)?;
        Ok(hal::new::<LevelZero, _>(Self {
            context: context.arc(),
            flags: UR_MEM_FLAG_READ_WRITE,
            address: native,
            bytes,
            storage: Storage::User { own },
            uses: Uses::default(),
            mappings: Mappings::default(),
        }))
    }

    pub fn address(&self) -> usize {
        self.address
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies all bytes of the buffer and waits for that.
    fn copy(&self, dst: usize, src: usize) -> Result<()> {
        let native = &self.context.domain().state().native;
        exec::copy_now(native, &self.context.devices()[0], dst, src, self.bytes)
    }

    /// The buffer that owns the memory.
    fn whole(&self) -> &Mem {
        match &self.storage {
            Storage::Parent(parent) => parent,
            _ => self,
        }
    }

    /// Prepares the buffer for a command, which sees all that the host has written so far.
    fn begin(&self, with: Use) -> Result<()> {
        let whole = self.whole();
        match &whole.storage {
            Storage::Copy(copy) => {
                copy.begin(&whole.uses, with, || whole.copy(whole.address, copy.host))
            }
            _ => Ok(()),
        }
    }

    /// [`Mem::begin`] for a copy or fill.
    pub fn begin_transfer(&self) -> Result<()> {
        self.begin(Use::Reads)
    }

    /// Records that a command writes the buffer. [`Mem::begin_transfer`] was called for it.
    pub fn is_written(&self) {
        let whole = self.whole();
        if let Storage::Copy(_) = whole.storage {
            whole.uses.add(Use::Writes);
        }
    }

    /// The address for a kernel that uses the buffer as the argument's flags say.
    pub fn for_kernel(&self, flags: ur_mem_flags_t) -> Result<usize> {
        let reads = UR_MEM_FLAG_READ_ONLY;
        let only_reads = flags.contains(reads) || self.flags.contains(reads);
        self.begin(if only_reads { Use::Reads } else { Use::Writes })?;
        Ok(self.address)
    }

    /// Copies the buffer back to the host's memory, if it may be newer. All use is over.
    fn bring_back(&self) {
        if let Storage::Copy(copy) = &self.storage {
            copy.end(&self.uses, || self.copy(copy.host, self.address));
        }
    }

    /// Returns the memory to the host after its last use. Waits for it, since the caller may free the memory next.
    /// Within a user function, the copy is made later.
    fn return_to_host(this: &Object<Self>) {
        let mem = this.arc();
        let over = this.context.after_use(move || mem.bring_back());
        if let Err(error) = over {
            log::error!("a buffer was not returned to the host: {:?}", error.code());
        }
    }

    /// Address of a range of the buffer. `INVALID_SIZE` if the range goes beyond it.
    fn range(&self, offset: usize, bytes: usize) -> Result<usize> {
        let end = offset.checked_add(bytes);
        let inside = end.is_some_and(|end| end <= self.bytes);
        ensure(inside, UR_RESULT_ERROR_INVALID_SIZE)?;
        Ok(self.address + offset)
    }

    /// Address of host memory that a mapping of the buffer is, or 0 if there is none.
    fn host(&self) -> usize {
        match &self.storage {
            Storage::Copy(copy) => copy.host,
            Storage::Own { on_host: true } => self.address,
            Storage::Own { on_host: false } | Storage::User { .. } => 0,
            Storage::Parent(parent) => match parent.host() {
                0 => 0,
                host => host + (self.address - parent.address),
            },
        }
    }

    pub fn map(
        &self,
        flags: ur_map_flags_t,
        offset: usize,
        bytes: usize,
    ) -> Result<(MappedPointer, Work<LevelZero>)> {
        let src = self.range(offset, bytes)?;
        self.begin_transfer()?;
        let host = match self.host() {
            0 => 0,
            host => host + offset,
        };
        let (at, reads) = self
            .mappings
            .map(&self.context, flags, (offset, bytes), host)?;
        let dst = at;
        #[rustfmt::skip]
        let work = match reads && at != src {
            true => Work::Copy { dst, src, bytes },
            false => Work::Marker,
        };
        Ok((MappedPointer::at(at), work))
    }

    pub fn unmap(&self, at: usize) -> Result<Work<LevelZero>> {
        let ended = self.mappings.unmap(&self.context, at)?;
        let dst = self.address + ended.offset;
        if !ended.writes || dst == at {
            return Ok(Work::Marker);
        }
        self.is_written();
        Ok(Work::Native(Native::WriteBack(WriteBack {
            dst,
            src: at,
            bytes: ended.bytes,
            _keeps: ended,
        })))
    }
}

impl Drop for Mem {
    fn drop(&mut self) {
        self.mappings.clear(&self.context);
        match self.storage {
            Storage::Own { .. } | Storage::Copy(_) => self.context.free_buffer(self.address),
            Storage::User { own: true } => {
                exec::free(&self.context.domain().state().native, self.address);
            }
            Storage::User { own: false } | Storage::Parent(_) => {}
        }
    }
}

impl Body for Mem {
    const KIND: Kind = Kind::Mem;

    /// A whole buffer's handle may be released before those of its parts. Use ends with the last of them.
    fn released(this: &Object<Self>) {
        let whole = match &this.storage {
            Storage::Parent(parent) if parent.api_refs() > 0 => return,
            Storage::Parent(parent) => parent,
            _ => this,
        };
        let of_host = matches!(whole.storage, Storage::Copy(_));
        if of_host && whole.uses.has(Use::Reads) {
            Self::return_to_host(whole);
        }
    }
}

impl hal::Mem<LevelZero> for Mem {
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
        Ok(hal::new::<LevelZero, _>(Self {
            context: Arc::clone(&this.context),
            flags: part.flags,
            address: this.address + part.offset,
            bytes: part.bytes,
            storage: Storage::Parent(this.arc()),
            uses: Uses::default(),
            mappings: Mappings::default(),
        }))
    }

    /// The address, for foreign code, which may read and write there.
    fn get_native_handle(
        this: &Object<Self>,
        _: Option<&Object<Device>>,
    ) -> Result<ur_native_handle_t> {
        this.begin(Use::Writes)?;
        Ok(this.address)
    }

    fn get_info(this: &Object<Self>, what: MemInfo, out: InfoOut<'_>) -> Result<()> {
        mem_info::<LevelZero>(this, &this.context, || Ok(this.bytes), what, out)
    }
}

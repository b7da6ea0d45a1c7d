//! Memory objects. Images are in `image`; the rest is about buffers.
//!
//! Buffers are in device memory of the context's pools. In a context of several devices a buffer has a copy on each
//! device that needs one: see `exec::copies`. A mapping is a copy in host memory.
//!
//! A buffer over the host's memory (`UR_MEM_FLAG_USE_HOST_POINTER`) is that memory, registered with the
//! driver. If the driver refuses to register it, the buffer is a copy ([`HostCopy`]).
//!
//! The last release of a used buffer waits until all enqueued commands have ended. The host's memory is the
//! caller's alone after it.

mod image;

pub use image::Image;

use std::ptr::null_mut;
use std::sync::Arc;

use ur::abi::*;
use ur::hal::answers::{WholeBuffer, buffer_flags, image_info, mem_info};
use ur::hal::{self, ImageInfo, MemInfo};
use ur::object::{Body, Handles, InfoOut, Kind, Object, Result, ensure};
use ur::stream::{
    self, Context, Driver, HostCopy, MappedPointer, Mappings, Queue, Use, Uses, Work,
    in_user_function,
};

use crate::Cuda;
use crate::device::Device;
use crate::exec::{Copies, Native, Part, enqueue, transfer};
use crate::vendor::Ordinal;

type OfContext = Object<Context<Cuda>>;

pub struct Mem {
    context: Arc<OfContext>,
    flags: ur_mem_flags_t,
    address: usize,
    bytes: usize,
    storage: Storage,
    /// Of a buffer over the host's memory, and of an image.
    uses: Uses,
    mappings: Mappings,
}

enum Storage {
    /// Memory of the context's pools.
    Own,
    /// Memory of the context's pools on each of several devices. The buffer's address counts from 0.
    Copies(Arc<Copies>),
    /// Memory of the context's pools, a copy of the host's memory.
    Copy(HostCopy),
    /// The host's own memory, registered.
    Registered,
    /// Memory of the caller's. The buffer frees it if the caller has given it away.
    User { owned: bool },
    /// A part of another buffer.
    Parent(Arc<Object<Mem>>),
    /// An image. The address is the number of its surface, if it has only one.
    Image(Arc<Image>),
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
        let registered = uses && register(context, host, bytes)?;
        let several = !uses && context.devices().len() > 1;
        let address = match registered {
            true => host,
            false if several => {
                let devices = context.devices().iter();
                let max = devices
                    .map(|device| <Cuda as Driver>::max_alloc(device))
                    .min();
                let fits = max.is_none_or(|max| bytes <= max);
                ensure(fits, UR_RESULT_ERROR_INVALID_BUFFER_SIZE)?;
                0
            }
            false => Context::alloc_buffer(context, bytes, 0)?.expose_provenance(),
        };
        let storage = match uses {
            true if registered => Storage::Registered,
            true => Storage::Copy(HostCopy::of(host)),
            false if several => {
                let gpus: Result<Vec<_>> = context
                    .devices()
                    .iter()
                    .map(|device| device.gpu())
                    .collect();
                Storage::Copies(Copies::new(gpus?.into_iter(), bytes))
            }
            false => Storage::Own,
        };
        let mem = Self::new(context.arc(), flags, address, bytes, storage);
        match &mem.storage {
            Storage::Copies(parts) if copies => {
                let first = &context.devices()[0];
                mem.allocate_on(parts, first)?;
                mem.copy(parts.address(first.raw())?, host)?;
                parts.is_written_on(first.raw())?;
            }
            _ if copies => mem.copy(address, host)?,
            _ => {}
        }
        Ok(hal::new::<Cuda, _>(mem))
    }

    fn new(
        context: Arc<OfContext>,
        flags: ur_mem_flags_t,
        address: usize,
        bytes: usize,
        storage: Storage,
    ) -> Self {
        Self {
            context,
            flags,
            address,
            bytes,
            storage,
            uses: Uses::default(),
            mappings: Mappings::default(),
        }
    }

    /// Copies all bytes of the buffer and waits for that.
    fn copy(&self, dst: usize, src: usize) -> Result<()> {
        let gpu = self.context.devices()[0].gpu()?;
        gpu.at_once(|stream| {
            let copy = gpu.api.cuMemcpyAsync;
            // SAFETY: one address is the buffer's, the other host memory of its size.
            let code = unsafe { copy(dst as u64, src as u64, self.bytes, stream) };
            gpu.check(code, "cuMemcpyAsync")
        })
    }

    /// A buffer over device memory of the caller's, from an address to the end of its allocation. The
    /// buffer frees it if it owns the handle. `INVALID_VALUE` if the driver knows no memory there, or if the buffer
    /// owns it and no allocation of the driver's starts there. `UNSUPPORTED_FEATURE` if a device of the context does not
    /// reach it.
    pub fn from_native(
        context: &OfContext,
        native: ur_native_handle_t,
        properties: Option<&ur_mem_native_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        let bytes = match context.room_at(native)? {
            Some(room) => {
                ensure(!owned, UR_RESULT_ERROR_INVALID_VALUE)?;
                room
            }
            None => {
                let (start, bytes) = context.devices()[0].gpu()?.allocation(native)?;
                ensure(!owned || start == native, UR_RESULT_ERROR_INVALID_VALUE)?;
                (start + bytes).saturating_sub(native)
            }
        };
        for device in context.devices() {
            let near = device.gpu()?.far_home(native).is_none();
            ensure(near, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        }
        let (flags, storage) = (UR_MEM_FLAG_READ_WRITE, Storage::User { owned });
        let own = Self::new(context.arc(), flags, native, bytes, storage);
        Ok(hal::new::<Cuda, _>(own))
    }

    pub fn address(&self) -> usize {
        self.address
    }

    /// The buffer's copies and its place in them, if it has copies on several devices.
    pub fn part(&self) -> Option<Part> {
        match &self.whole().storage {
            Storage::Copies(copies) => Some(Part {
                copies: Arc::clone(copies),
                offset: self.address,
            }),
            _ => None,
        }
    }

    /// A pointer to the buffer's address on a device, valid while the buffer lives. None if the address is
    /// known only with the command.
    #[inline]
    pub fn address_slot(&self, device: Ordinal) -> Option<*const usize> {
        match &self.whole().storage {
            Storage::Copies(copies) if self.address == 0 => copies.address_slot(device),
            Storage::Copies(_) => None,
            Storage::Image(image) if !image.is_argument_on(device) => None,
            _ => Some(&raw const self.address),
        }
    }

    /// Memory whose place a kernel's argument has only with the launch.
    pub fn moving(&self) -> Option<Moving> {
        match &self.storage {
            Storage::Image(image) if image.arrays.only().is_some() => None,
            Storage::Image(image) => Some(Moving::Image(Arc::clone(image))),
            _ => self.part().map(Moving::Buffer),
        }
    }

    /// Allocates a copy on a device, unless it has one.
    fn allocate_on(&self, copies: &Copies, device: &Object<Device>) -> Result<()> {
        if copies.address(device.raw()).is_ok() {
            return Ok(());
        }
        let (kind, context) = (stream::Kind::Device, &self.context);
        let new = Context::alloc_now(context, kind, Some(device), None, None, self.whole().bytes)?;
        // Another thread may have allocated one meanwhile.
        if let Some(unused) = copies.set_address(device.raw(), new.expose_provenance())? {
            context.free_buffer(unused);
        }
        Ok(())
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The buffer that owns the memory.
    fn whole(&self) -> &Mem {
        match &self.storage {
            Storage::Parent(parent) => parent,
            _ => self,
        }
    }

    /// Whether a command of a device may use the buffer in this way without [`Mem::begin`].
    #[inline]
    pub fn has_begun(&self, device: Ordinal, with: Use) -> bool {
        let whole = self.whole();
        match &whole.storage {
            Storage::Own | Storage::User { .. } => true,
            Storage::Copies(copies) => copies.is_settled(device),
            Storage::Image(image) if !image.arrays.is_only(device) => false,
            _ => whole.uses.has(with),
        }
    }

    /// Prepares the buffer for a command of a device that uses it in this way. The command sees all that the
    /// host has written so far.
    #[inline]
    pub fn begin(&self, device: &Object<Device>, with: Use) -> Result<()> {
        match self.has_begun(device.raw(), with) {
            true => Ok(()),
            false => self.whole().begin_slowly(device, with),
        }
    }

    /// [`Mem::begin`] for a copy or fill, which uses any device's copy.
    pub fn begin_transfer(&self, device: &Object<Device>) -> Result<()> {
        match &self.whole().storage {
            Storage::Copies(copies) if copies.is_undefined() => self.allocate_on(copies, device),
            Storage::Copies(_) => Ok(()),
            _ => self.begin(device, Use::Reads),
        }
    }

    /// Records that a command writes the buffer. [`Mem::begin`] was called for it.
    pub fn is_written(&self) {
        let whole = self.whole();
        if let Storage::Copy(_) = whole.storage {
            whole.uses.add(Use::Writes);
        }
    }

    /// How a kernel uses the buffer, by the argument's flags.
    pub fn use_by(&self, flags: ur_mem_flags_t) -> Use {
        let reads = UR_MEM_FLAG_READ_ONLY;
        match flags.contains(reads) || self.flags.contains(reads) {
            true => Use::Reads,
            false => Use::Writes,
        }
    }

    #[cold]
    fn begin_slowly(&self, device: &Object<Device>, with: Use) -> Result<()> {
        if let Storage::Copies(copies) = &self.storage {
            let needed = copies.needs_address(device.raw(), with == Use::Writes);
            return if needed {
                self.allocate_on(copies, device)
            } else {
                Ok(())
            };
        }
        if let Storage::Image(image) = &self.storage {
            image.arrays.prepare(device.raw())?;
        }
        if let Storage::Copy(copy) = &self.storage {
            let read = || self.copy(self.address, copy.host);
            return copy.begin(&self.uses, with, read);
        }
        self.uses.add(with);
        Ok(())
    }

    /// Copies the buffer back to the host's memory, if it may be newer. All use is over.
    fn bring_back(&self) {
        match &self.storage {
            Storage::Copy(copy) => copy.end(&self.uses, || self.copy(copy.host, self.address)),
            Storage::Image(image) if self.uses.has(Use::Writes) => image.bring_back(),
            _ => {}
        }
    }

    /// Returns the memory to the host after its last use. Waits for it, since the caller may free the
    /// memory next. Within a user function, the copy is made later.
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

    /// Address of the host's memory behind the buffer, or 0 if there is none.
    fn host(&self) -> usize {
        match &self.storage {
            Storage::Copy(copy) => copy.host,
            Storage::Registered => self.address,
            Storage::Own | Storage::Copies(_) | Storage::User { .. } | Storage::Image(_) => 0,
            Storage::Parent(parent) => match parent.host() {
                0 => 0,
                host => host + (self.address - parent.address),
            },
        }
    }

    pub fn map(
        &self,
        device: &Object<Device>,
        flags: ur_map_flags_t,
        offset: usize,
        bytes: usize,
    ) -> Result<(MappedPointer, Work<Cuda>)> {
        let src = self.range(offset, bytes)?;
        self.begin_transfer(device)?;
        let host = match self.host() {
            0 => 0,
            host => host + offset,
        };
        let (at, reads) = self
            .mappings
            .map(&self.context, flags, (offset, bytes), host)?;
        let copy = Work::Copy {
            dst: at,
            src,
            bytes,
        };
        let work = match reads && at != src {
            true => on_buffers(copy, None, Some(self)),
            false => Work::Marker,
        };
        Ok((MappedPointer::at(at), work))
    }

    pub fn unmap(&self, at: usize) -> Result<Work<Cuda>> {
        let ended = self.mappings.unmap(&self.context, at)?;
        let (dst, bytes) = (self.address + ended.offset, ended.bytes);
        if !ended.writes || dst == at {
            return Ok(Work::Marker);
        }
        let copy = Work::Copy {
            dst,
            src: at,
            bytes,
        };
        let work = on_buffers(copy, Some(self), None);
        let write = Native::call(move |gpu, stream| {
            // Keeps the mapping's memory until the copy is submitted.
            let _ = &ended;
            enqueue(gpu, stream, work.clone())
        });
        Ok(Work::Native(write))
    }

    /// The address on a device, for foreign code, which may read and write there. Waits for all commands if the
    /// device's copy is not current.
    fn native_address(&self, device: &Object<Device>) -> Result<usize> {
        if let Some(image) = self.as_image() {
            self.begin(device, Use::Writes)?;
            return image.native_array(device, || self.context.finish());
        }
        let Some(Part { copies, offset }) = self.part() else {
            self.begin(device, Use::Writes)?;
            return Ok(self.address);
        };
        self.allocate_on(&copies, device)?;
        if !copies.is_only_on(device.raw()) {
            // A user function is a part of enqueued work.
            if !in_user_function() {
                self.context.finish()?;
            }
            let gpu = device.gpu()?;
            gpu.on_new_stream(|stream| copies.for_kernel(&gpu, &stream, true).map(drop))?;
        }
        Ok(copies.address(device.raw())? + offset)
    }
}

/// Resolves a copy or fill on these buffers.
pub fn on_buffers(work: Work<Cuda>, dst: Option<&Mem>, src: Option<&Mem>) -> Work<Cuda> {
    let [to, from] = [dst, src].map(|mem| mem.and_then(Mem::part));
    match to.is_some() || from.is_some() {
        true => transfer(work, to, from),
        false => work,
    }
}

/// Work that makes buffers ready for foreign commands of a queue. None if they need nothing.
pub fn bring(queue: &Object<Queue<Cuda>>, mems: Handles<'_, Mem>) -> Result<Option<Work<Cuda>>> {
    let (device, mems) = (queue.device(), mems.iter());
    let parts: Vec<_> = mems.filter_map(|mem| Some((mem.moving()?, mem))).collect();
    for (part, mem) in &parts {
        match part {
            Moving::Buffer(part) => mem.allocate_on(&part.copies, device)?,
            Moving::Image(_) => mem.begin(device, Use::Writes)?,
        }
    }
    if parts.is_empty() {
        return Ok(None);
    }
    let parts: Vec<_> = parts.into_iter().map(|(part, _)| part).collect();
    Ok(Some(Work::Native(Native::call(move |gpu, stream| {
        let mut parts = parts.iter();
        parts.try_for_each(|part| match part {
            Moving::Buffer(part) => part.copies.for_kernel(gpu, &stream, true).map(drop),
            Moving::Image(image) => image.arrays.on(gpu, stream, true).map(drop),
        })
    }))))
}

/// Memory whose place is known only with a command.
#[derive(Clone)]
pub enum Moving {
    Buffer(Part),
    Image(Arc<Image>),
}

impl Drop for Mem {
    fn drop(&mut self) {
        self.mappings.clear(&self.context);
        match self.storage {
            Storage::Own | Storage::Copy(_) => self.context.free_buffer(self.address),
            Storage::Copies(ref copies) => {
                copies
                    .addresses()
                    .for_each(|at| self.context.free_buffer(at));
            }
            Storage::Registered => match self.context.devices()[0].gpu() {
                Ok(gpu) => gpu.unregister(self.address),
                Err(error) => log::error!("memory stays registered: {:?}", error.code()),
            },
            Storage::User { owned: true } => match self.context.devices()[0].gpu() {
                Ok(gpu) => gpu.free_slab(stream::Kind::Device, self.address),
                Err(error) => log::error!("a buffer's memory is lost: {:?}", error.code()),
            },
            Storage::User { owned: false } | Storage::Parent(_) => {}
            // Pending commands may use the arrays.
            Storage::Image(ref image) if self.uses.has(Use::Reads) => {
                let last = Arc::clone(image);
                if !image.is_over_foreign_array() {
                    return self.context.drop_after_use(last);
                }
                // The caller may destroy the array next, and what is made over it goes before.
                let done = self.context.after_use(move || drop(last));
                if let Err(error) = done.or_else(|_| self.context.finish()) {
                    log::error!("an image was destroyed early: {:?}", error.code());
                }
            }
            Storage::Image(_) => {}
        }
    }
}

/// Registers host memory for the context's devices. False if the driver or a device cannot.
fn register(context: &OfContext, host: usize, bytes: usize) -> Result<bool> {
    let devices = context.devices();
    let first = devices[0].gpu()?;
    let max = <Cuda as Driver>::max_alloc(&devices[0]);
    ensure(bytes <= max, UR_RESULT_ERROR_INVALID_BUFFER_SIZE)?;
    for device in devices {
        if !device.gpu()?.shares_addresses() {
            return Ok(false);
        }
    }
    first.register(host, bytes)
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
        let of_host = match &whole.storage {
            Storage::Copy(_) | Storage::Registered => true,
            Storage::Image(image) => image.is_over_host(),
            _ => false,
        };
        // No command uses the memory once the driver has it back.
        if matches!(whole.storage, Storage::User { owned: true }) {
            return Self::return_to_host(whole);
        }
        if of_host && whole.uses.has(Use::Reads) {
            Self::return_to_host(whole);
        }
    }
}

impl hal::Mem<Cuda> for Mem {
    fn buffer_partition(
        this: &Object<Self>,
        flags: ur_mem_flags_t,
        kind: ur_buffer_create_type_t,
        region: &ur_buffer_region_t,
    ) -> Result<Arc<Object<Mem>>> {
        this.check_buffer()?;
        let whole = WholeBuffer {
            flags: this.flags,
            bytes: this.bytes,
            is_part: matches!(this.storage, Storage::Parent(_)),
        };
        let part = whole.part(flags, kind, region)?;
        let context = Arc::clone(&this.context);
        let (start, storage) = (this.address + part.offset, Storage::Parent(this.arc()));
        let part = Self::new(context, part.flags, start, part.bytes, storage);
        Ok(hal::new::<Cuda, _>(part))
    }

    fn get_native_handle(
        this: &Object<Self>,
        device: Option<&Object<Device>>,
    ) -> Result<ur_native_handle_t> {
        this.native_address(device.unwrap_or(&this.context.devices()[0]))
    }

    fn get_info(this: &Object<Self>, what: MemInfo, out: InfoOut<'_>) -> Result<()> {
        mem_info::<Cuda>(this, &this.context, || Ok(this.bytes), what, out)
    }

    fn image_get_info(this: &Object<Self>, what: ImageInfo, out: InfoOut<'_>) -> Result<()> {
        let image = this.image()?;
        image_info(&image.shape, &image.format, image.pitch, what, out)
    }
}

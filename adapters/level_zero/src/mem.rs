//! Memory objects. Images are in `image`; the rest is about buffers.
//!
//! Buffers are in device memory of the context's pools. In a context of several devices a buffer has a copy on each device
//! that needs one ([`Copies`]), unless all of them are integrated and share the host's memory, where the buffer then is. A
//! mapping is a copy in host memory, or the buffer itself where the host reaches it.
//!
//! A buffer over the host's memory (`UR_MEM_FLAG_USE_HOST_POINTER`) is a copy ([`HostCopy`]). If the user wants it, the
//! driver knows the host's memory as long as the buffer lives ([`Import`]), and copies need no memory between the two.
//!
//! The last release of a used buffer waits until all enqueued commands have ended. The host's memory is the caller's
//! alone after it.

mod image;

pub use image::Image;

use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ur::abi::*;
use ur::hal::answers::{WholeBuffer, buffer_flags, image_info, mem_info};
use ur::hal::{self, ImageInfo, MemInfo};
use ur::object::{Body, Handles, InfoOut, Kind, Object, Result, ensure};
use ur::stream::{
    Context, Driver, EndedMapping, HostCopy, MappedPointer, Mappings, Queue, Use, Uses, Work,
    in_user_function,
};
use ur::sync::{Mutex, rank};

use crate::LevelZero;
use crate::context::NativeContext;
use crate::device::Device;
use crate::exec::{self, Copies, Native, Part};
use crate::lz::Import;
use crate::settings::Settings;

type OfContext = Object<Context<LevelZero>>;

pub struct Mem {
    context: Arc<OfContext>,
    flags: ur_mem_flags_t,
    address: usize,
    bytes: usize,
    storage: Storage,
    /// Of a copy of the host's memory, and of an image.
    uses: Uses,
    mappings: Mappings,
}

enum Storage {
    /// Memory of the context's pools, which the host reaches or not.
    Own {
        on_host: bool,
    },
    /// Memory of the context's pools on each of several devices. The buffer's address counts from 0.
    Copies(Arc<Copies>),
    /// Memory of the context's pools, a copy of the host's memory.
    Copy(OverHost),
    /// Foreign memory. `own`: it is freed with the buffer.
    User {
        own: bool,
    },
    /// A part of another buffer.
    Parent(Arc<Object<Mem>>),
    Image(Arc<Image>),
}

/// The host's memory that a buffer is a copy of.
struct OverHost {
    copy: HostCopy,
    /// Taken by the drop, and by what the drop leaves behind.
    import: Mutex<Option<Import>, { rank::LEAF }>,
    /// Whether everything enqueued had ended when the last handle was released.
    is_over: AtomicBool,
}

impl Deref for OverHost {
    type Target = HostCopy;

    fn deref(&self) -> &HostCopy {
        &self.copy
    }
}

impl OverHost {
    fn new(context: &OfContext, host: usize, bytes: usize) -> Self {
        let wanted = Settings::get().imports_buffers;
        let native = &context.domain().state().native;
        let import = wanted.then(|| exec::import_of_buffer(native, host, bytes));
        Self {
            copy: HostCopy::of(host),
            import: Mutex::new(import.flatten()),
            is_over: AtomicBool::new(false),
        }
    }

    fn is_imported(&self) -> bool {
        self.import.lock().is_some()
    }
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
        let devices = context.devices();
        let most = devices.iter().map(|device| LevelZero::max_alloc(device));
        let fits = most.min().is_none_or(|most| bytes <= most);
        ensure(fits, UR_RESULT_ERROR_INVALID_BUFFER_SIZE)?;
        let several = devices.len() > 1;
        let on_host = several && devices.iter().all(|device| device.is_integrated());
        let has_copies = several && !on_host && !uses;
        let address = match several {
            true if has_copies => 0,
            true => hal::Context::usm_host_alloc(context, None, None, bytes)?.expose_provenance(),
            false => Context::alloc_buffer(context, bytes, 0)?.expose_provenance(),
        };
        let storage = match uses {
            true => Storage::Copy(OverHost::new(context, host, bytes)),
            false if has_copies => {
                let native = &context.domain().state().native;
                Storage::Copies(exec::copies(native, devices, bytes))
            }
            false => Storage::Own { on_host },
        };
        let mem = Self::new(context.arc(), flags, address, bytes, storage);
        match &mem.storage {
            Storage::Copies(parts) if copies => {
                let first = &devices[0];
                mem.allocate_on(parts, first)?;
                mem.copy(parts.address(first.raw())?, host)?;
                parts.is_written_on(first.raw())?;
            }
            _ if copies => mem.copy(address, host)?,
            _ => {}
        }
        Ok(hal::new::<LevelZero, _>(mem))
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

    /// A buffer over memory of the driver's.
    pub fn from_native(
        context: &OfContext,
        native: ur_native_handle_t,
        properties: Option<&ur_mem_native_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        let own = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        ensure(native != 0, UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
        let state = context.domain().state();
        let bytes = exec::range(&state.native, native)?;
        let (flags, storage) = (UR_MEM_FLAG_READ_WRITE, Storage::User { own });
        let own = Self::new(context.arc(), flags, native, bytes, storage);
        Ok(hal::new::<LevelZero, _>(own))
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

    /// The buffer's copies and its place in them, if it has copies on several devices.
    fn part(&self) -> Option<Part> {
        match &self.whole().storage {
            Storage::Copies(copies) => Some(Part {
                copies: Arc::clone(copies),
                offset: self.address,
            }),
            _ => None,
        }
    }

    /// Allocates a copy on a device, unless it has one.
    fn allocate_on(&self, copies: &Copies, device: &Device) -> Result<()> {
        let device = exec::home(copies, device)?.device();
        if copies.address(device.raw()).is_ok() {
            return Ok(());
        }
        let (kind, context) = (ur::stream::Kind::Device, &self.context);
        let new = Context::alloc_now(context, kind, Some(device), None, None, self.whole().bytes)?;
        // Another thread may have allocated one meanwhile.
        if let Some(unused) = copies.set_address(device.raw(), new.expose_provenance())? {
            context.free_buffer(unused);
        }
        Ok(())
    }

    /// Prepares the buffer for a command of a device, which sees all that the host has written so far.
    fn begin(&self, device: &Device, with: Use) -> Result<()> {
        let whole = self.whole();
        match &whole.storage {
            Storage::Copy(copy) => {
                copy.begin(&whole.uses, with, || whole.copy(whole.address, copy.host))
            }
            Storage::Copies(copies) => {
                let home = exec::home(copies, device)?.device().raw();
                match copies.needs_address(home, with == Use::Writes) {
                    true => self.allocate_on(copies, device),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// [`Mem::begin`] for a copy or fill, which uses any copy that the device reaches.
    pub fn begin_transfer(&self, device: &Device) -> Result<()> {
        self.begin(device, Use::Reads)
    }

    /// Records that a command writes the buffer. [`Mem::begin_transfer`] was called for it.
    pub fn is_written(&self) {
        let whole = self.whole();
        if let Storage::Copy(_) = whole.storage {
            whole.uses.add(Use::Writes);
        }
    }

    /// How a kernel uses the buffer or image, by the argument's flags.
    fn use_by(&self, flags: ur_mem_flags_t) -> Use {
        let reads = UR_MEM_FLAG_READ_ONLY;
        match flags.contains(reads) || self.flags.contains(reads) {
            true => Use::Reads,
            false => Use::Writes,
        }
    }

    /// What a kernel gets that uses the buffer as the argument's flags say.
    pub fn for_kernel(&self, device: &Device, flags: ur_mem_flags_t) -> Result<ForKernel> {
        let with = self.use_by(flags);
        self.begin(device, with)?;
        Ok(match self.part() {
            Some(part) => ForKernel::Part(part, with == Use::Writes),
            None => ForKernel::Address(self.address),
        })
    }

    /// The address on a device, for foreign code, which may read and write there. Waits for all commands if the
    /// device's copy is not current.
    fn native_address(&self, device: &Object<Device>) -> Result<usize> {
        if let Some(image) = self.as_image() {
            self.uses.add(Use::Writes);
            return image.native(&self.context, device);
        }
        self.begin(device, Use::Writes)?;
        let Some(part) = self.part() else {
            return Ok(self.address);
        };
        let home = exec::home(&part.copies, device)?.device();
        if !part.copies.is_only_on(home.raw()) {
            // A user function is a part of enqueued work.
            if !in_user_function() {
                self.context.finish()?;
            }
            let native = &self.context.domain().state().native;
            exec::at_once(native, device, |list| {
                exec::for_kernel(list, &part, true).map(drop)
            })?;
        }
        Ok(part.copies.address(home.raw())? + part.offset)
    }

    /// Copies the buffer or image back to the host's memory, if it may be newer. All use is over.
    fn bring_back(&self) {
        match &self.storage {
            Storage::Copy(copy) => {
                copy.end(&self.uses, || self.copy(copy.host, self.address));
                copy.is_over.store(true, Ordering::Release);
            }
            Storage::Image(image) if self.uses.has(Use::Writes) => image.bring_back(&self.context),
            _ => {}
        }
    }

    /// Returns the memory to the host after its last use. Waits for it, since the caller may free the memory next.
    /// Within a user function, the copy is made later.
    fn return_to_host(this: &Object<Self>) {
        let mem = this.arc();
        if let Storage::Copy(copy) = &this.storage {
            // Commands with parts may have followed an earlier release.
            copy.is_over.store(false, Ordering::Release);
        }
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
            Storage::Own { on_host: false }
            | Storage::Copies(_)
            | Storage::User { .. }
            | Storage::Image(_) => 0,
            Storage::Parent(parent) => match parent.host() {
                0 => 0,
                host => host + (self.address - parent.address),
            },
        }
    }

    pub fn map(
        &self,
        device: &Device,
        flags: ur_map_flags_t,
        offset: usize,
        bytes: usize,
    ) -> Result<(MappedPointer, Work<LevelZero>)> {
        let src = self.range(offset, bytes)?;
        self.begin_transfer(device)?;
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
            true => on_buffers(Work::Copy { dst, src, bytes }, None, Some(self)),
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
        let bytes = ended.bytes;
        if let Some(part) = self.part() {
            let src = at;
            #[rustfmt::skip]
            let copy = exec::transfer(Work::Copy { dst, src, bytes }, Some(part), None);
            return Ok(match copy {
                // Keeps the mapping's memory until the copy is submitted.
                Work::Native(native) => Work::Native(native.keeping(ended)),
                other => other,
            });
        }
        Ok(Work::Native(Native::WriteBack(WriteBack {
            dst,
            src: at,
            bytes,
            _keeps: ended,
        })))
    }
}

/// Work that makes memory ready for foreign commands of a queue, which may read and write there. None if it needs
/// nothing.
pub fn bring(
    queue: &Object<Queue<LevelZero>>,
    mems: Handles<'_, Mem>,
) -> Result<Option<Work<LevelZero>>> {
    let mut parts = Vec::new();
    for mem in mems.iter() {
        mem.begin(queue.device(), Use::Writes)?;
        parts.extend(mem.part());
    }
    if parts.is_empty() {
        return Ok(None);
    }
    Ok(Some(Work::Native(Native::call(move |list| {
        let mut parts = parts.iter();
        parts.try_for_each(|part| exec::for_kernel(list, part, true).map(drop))
    }))))
}

/// A buffer as an argument of a kernel.
pub enum ForKernel {
    Address(usize),
    /// The address is known only with the launch, which writes there or not.
    Part(Part, bool),
}

/// Resolves a copy or fill on these buffers.
pub fn on_buffers(work: Work<LevelZero>, dst: Option<&Mem>, src: Option<&Mem>) -> Work<LevelZero> {
    let [to, from] = [dst, src].map(|mem| mem.and_then(Mem::part));
    match to.is_some() || from.is_some() {
        true => exec::transfer(work, to, from),
        false => work,
    }
}

/// Foreign memory that ends with its buffer.
struct Owned {
    context: Arc<NativeContext>,
    start: usize,
}

impl Drop for Owned {
    fn drop(&mut self) {
        exec::free(&self.context, self.start);
    }
}

impl Drop for Mem {
    fn drop(&mut self) {
        self.mappings.clear(&self.context);
        match self.storage {
            Storage::Own { .. } => self.context.free_buffer(self.address),
            Storage::Copy(ref copy) => {
                self.context.free_buffer(self.address);
                let import = copy.import.lock().take();
                // The wait for the end failed: what still runs may use the import.
                if import.is_some() && !copy.is_over.load(Ordering::Acquire) {
                    self.context.drop_after_use(import);
                }
            }
            // Pending commands may wait for the copies of them.
            Storage::Copies(ref copies) => {
                copies
                    .addresses()
                    .for_each(|at| self.context.free_buffer(at));
                self.context.drop_after_use(Arc::clone(copies));
            }
            // Pending commands may use the memory.
            Storage::User { own: true } => self.context.drop_after_use(Owned {
                context: Arc::clone(&self.context.domain().state().native),
                start: self.address,
            }),
            Storage::User { own: false } | Storage::Parent(_) => {}
            // Pending commands may use the native images.
            Storage::Image(ref image) if self.uses.has(Use::Reads) => {
                self.context.drop_after_use(Arc::clone(image));
            }
            Storage::Image(_) => {}
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
        let is_used = whole.uses.has(Use::Reads);
        let returns = match &whole.storage {
            // Commands without the buffer may use the import too.
            Storage::Copy(copy) => is_used || copy.is_imported(),
            Storage::Image(image) => is_used && image.is_over_host(),
            _ => false,
        };
        if returns {
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
        Ok(hal::new::<LevelZero, _>(part))
    }

    /// The address or the native image, for foreign code, which may read and write there.
    fn get_native_handle(
        this: &Object<Self>,
        device: Option<&Object<Device>>,
    ) -> Result<ur_native_handle_t> {
        this.native_address(device.unwrap_or(&this.context.devices()[0]))
    }

    fn get_info(this: &Object<Self>, what: MemInfo, out: InfoOut<'_>) -> Result<()> {
        mem_info::<LevelZero>(this, &this.context, || Ok(this.bytes), what, out)
    }

    fn image_get_info(this: &Object<Self>, what: ImageInfo, out: InfoOut<'_>) -> Result<()> {
        let image = this.image()?;
        image_info(&image.shape, &image.format, image.pitch, what, out)
    }
}

//! Memory objects. Images are in `image`; the rest is about buffers.
//!
//! Buffers are in memory of the context's pools: device memory, or host memory in a context of several devices, which all
//! of them reach. A mapping is a copy in host memory, or the buffer itself where the host reaches it.
//!
//! A buffer over the host's memory (`UR_MEM_FLAG_USE_HOST_POINTER`) is a copy with these states:
//!
//! | the copy | until |
//! |---|---|
//! | is not made: the host's memory is current | the first command with the buffer, which makes the copy first |
//! | equals the host's memory | a command that may write the buffer |
//! | may be newer than the host's memory | the last release, which copies it back |
//!
//! The last release of a used buffer waits until all enqueued commands have ended. The host's memory is the caller's
//! alone after it.

mod image;

pub use image::Image;

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ur::abi::*;
use ur::hal::answers::{WholeBuffer, buffer_flags, image_info, mem_info};
use ur::hal::{self, ImageInfo, MemInfo};
use ur::object::{Body, Error, InfoOut, Kind, Object, Result, ensure};
use ur::stream::{Context, Driver, MappedPointer, Work};
use ur::timeline::rank;
use ur::timeline::sync::Mutex;

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
    /// Of a copy of the host's memory, and of an image: a [`Use`].
    used: AtomicU8,
    maps: Mutex<Vec<Map>>,
    ended: Mutex<Vec<Arc<Ended>>>,
}

enum Storage {
    /// Memory of the context's pools, which the host reaches or not.
    Own {
        on_host: bool,
    },
    /// Device memory of the context's pools, a copy of this host memory. Locked while bytes are copied between the
    /// two.
    Copy {
        host: usize,
        copies: Mutex<(), { rank::DRIVER }>,
    },
    /// Foreign memory. `own`: it is freed with the buffer.
    User {
        own: bool,
    },
    /// A part of another buffer.
    Parent(Arc<Object<Mem>>),
    Image(Arc<Image>),
}

/// The commands so far with a copy of the host's memory, or with an image.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Use {
    None,
    Reads,
    Writes,
}

thread_local! {
    /// Number of user functions that this thread is in.
    static USERS: Cell<usize> = const { Cell::new(0) };
}

/// Calls a user function. It is a part of enqueued work, so that it must not wait for all work: the last release of a
/// buffer within it does not.
pub fn call_user(call: impl FnOnce()) {
    USERS.set(USERS.get() + 1);
    call();
    USERS.set(USERS.get() - 1);
}

/// A mapping of the host.
struct Map {
    at: usize,
    offset: usize,
    bytes: usize,
    writes: bool,
    /// Host memory of the context's pools, to be freed with the mapping.
    staged: bool,
}

/// Host memory of an ended mapping. The command that reads it holds it until its submission.
pub struct Ended(usize);

/// The copy of a mapping's host memory back to its buffer.
#[derive(Clone)]
pub struct WriteBack {
    pub dst: usize,
    pub src: usize,
    pub bytes: usize,
    _keeps: Arc<Ended>,
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
        let storage = match uses {
            true => Storage::Copy {
                host,
                copies: Mutex::default(),
            },
            false => Storage::Own { on_host: several },
        };
        let address = address.expose_provenance();
        let mem = Self::new(context.arc(), flags, address, bytes, storage);
        if copies {
            mem.copy(mem.address, host)?;
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
            used: AtomicU8::new(Use::None as u8),
            maps: Mutex::default(),
            ended: Mutex::default(),
        }
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
        let (flags, storage) = (UR_MEM_FLAG_READ_WRITE, Storage::User { own });
        let mem = Self::new(context.arc(), flags, native, bytes, storage);
        Ok(hal::new::<LevelZero, _>(mem))
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
        let Storage::Copy { host, copies } = &whole.storage else {
            return Ok(());
        };
        if whole.used.load(Ordering::Acquire) >= with as u8 {
            return Ok(());
        }
        let _copying = copies.lock();
        if whole.used.load(Ordering::Relaxed) == Use::None as u8 {
            whole.copy(whole.address, *host)?;
        }
        whole.used.fetch_max(with as u8, Ordering::Release);
        Ok(())
    }

    /// [`Mem::begin`] for a copy or fill.
    pub fn begin_transfer(&self) -> Result<()> {
        self.begin(Use::Reads)
    }

    /// Records that a command writes the buffer. [`Mem::begin_transfer`] was called for it.
    pub fn is_written(&self) {
        let whole = self.whole();
        if let Storage::Copy { .. } = whole.storage {
            whole.used.fetch_max(Use::Writes as u8, Ordering::Release);
        }
    }

    /// Records a command that uses the buffer or image.
    fn is_used(&self, with: Use) {
        self.used.fetch_max(with as u8, Ordering::Release);
    }

    /// How a kernel uses the buffer or image, by the argument's flags.
    fn use_by(&self, flags: ur_mem_flags_t) -> Use {
        let reads = UR_MEM_FLAG_READ_ONLY;
        match flags.contains(reads) || self.flags.contains(reads) {
            true => Use::Reads,
            false => Use::Writes,
        }
    }

    /// The address for a kernel that uses the buffer as the argument's flags say.
    pub fn for_kernel(&self, flags: ur_mem_flags_t) -> Result<usize> {
        self.begin(self.use_by(flags))?;
        Ok(self.address)
    }

    /// Copies the buffer or image back to the host's memory, if it may be newer. All use is over.
    fn bring_back(&self) {
        let is_written = || self.used.load(Ordering::Acquire) == Use::Writes as u8;
        match &self.storage {
            Storage::Copy { host, copies } => {
                let _copying = copies.lock();
                if is_written()
                    && let Err(error) = self.copy(*host, self.address)
                {
                    log::error!("what a buffer holds is lost: {:?}", error.code());
                }
            }
            Storage::Image(image) if is_written() => image.bring_back(&self.context),
            _ => {}
        }
    }

    /// Returns the memory to the host after its last use. Waits for it, since the caller may free the memory next.
    /// Within a user function, the copy is made later.
    fn return_to_host(this: &Object<Self>) {
        let over = match USERS.get() {
            0 => this.context.finish().inspect(|()| this.bring_back()),
            _ => {
                let mem = this.arc();
                this.context.when_finished(move || mem.bring_back())
            }
        };
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
            Storage::Copy { host, .. } => *host,
            Storage::Own { on_host: true } => self.address,
            Storage::Own { on_host: false } | Storage::User { .. } | Storage::Image(_) => 0,
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
        self.free_ended();
        let src = self.range(offset, bytes)?;
        self.begin_transfer()?;
        let staged = self.host() == 0;
        let at = match self.host() {
            0 => {
                hal::Context::usm_host_alloc(&self.context, None, None, bytes)?.expose_provenance()
            }
            host => host + offset,
        };
        let invalidates = flags.contains(UR_MAP_FLAG_WRITE_INVALIDATE_REGION);
        self.maps.lock().push(Map {
            at,
            offset,
            bytes,
            writes: flags.contains(UR_MAP_FLAG_WRITE) || invalidates,
            staged,
        });
        let dst = at;
        #[rustfmt::skip]
        let work = match invalidates || at == src {
            true => Work::Marker,
            false => Work::Copy { dst, src, bytes },
        };
        Ok((MappedPointer::at(at), work))
    }

    pub fn unmap(&self, at: usize) -> Result<Work<LevelZero>> {
        self.free_ended();
        let mut maps = self.maps.lock();
        let found = maps.iter().rposition(|map| map.at == at);
        let map = maps.swap_remove(found.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?);
        drop(maps);
        let dst = self.address + map.offset;
        let ended = Arc::new(Ended(map.at));
        if map.staged {
            self.ended.lock().push(Arc::clone(&ended));
        }
        if !map.writes || dst == map.at {
            return Ok(Work::Marker);
        }
        self.is_written();
        Ok(Work::Native(Native::WriteBack(WriteBack {
            dst,
            src: map.at,
            bytes: map.bytes,
            _keeps: ended,
        })))
    }

    /// Frees the memory of mappings whose last command was submitted. A free is ordered behind all submitted work.
    /// The command itself runs under its lane's lock, where no memory may be freed.
    fn free_ended(&self) {
        let unused = |ended: &mut Arc<Ended>| Arc::strong_count(ended) == 1;
        let all: Vec<_> = self.ended.lock().extract_if(.., unused).collect();
        for ended in all {
            free(&self.context, ended.0);
        }
    }
}

fn free(context: &OfContext, at: usize) {
    let start: *mut c_void = std::ptr::with_exposed_provenance_mut(at);
    if let Err(error) = hal::Context::usm_free(context, start) {
        log::error!("a buffer's memory is lost: {:?}", error.code());
    }
}

impl Drop for Mem {
    fn drop(&mut self) {
        for map in std::mem::take(self.maps.get_mut()) {
            if map.staged {
                free(&self.context, map.at);
            }
        }
        for ended in std::mem::take(self.ended.get_mut()) {
            free(&self.context, ended.0);
        }
        match self.storage {
            Storage::Own { .. } | Storage::Copy { .. } => free(&self.context, self.address),
            Storage::User { own: true } => {
                exec::free(&self.context.domain().state().native, self.address);
            }
            Storage::User { own: false } | Storage::Parent(_) => {}
            // Pending commands may use the native images.
            Storage::Image(ref image) if *self.used.get_mut() != Use::None as u8 => {
                let last = Arc::clone(image);
                let done = self.context.when_finished(move || drop(last));
                if let Err(error) = done.or_else(|_| self.context.finish()) {
                    log::error!("an image was destroyed early: {:?}", error.code());
                }
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
        let of_host = match &whole.storage {
            Storage::Copy { .. } => true,
            Storage::Image(image) => image.is_over_host(),
            _ => false,
        };
        if of_host && whole.used.load(Ordering::Acquire) != Use::None as u8 {
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
        if let Some(image) = this.as_image() {
            let device = device.unwrap_or(&this.context.devices()[0]);
            this.is_used(Use::Writes);
            return image.native(&this.context, device);
        }
        this.begin(Use::Writes)?;
        Ok(this.address)
    }

    fn get_info(this: &Object<Self>, what: MemInfo, out: InfoOut<'_>) -> Result<()> {
        mem_info::<LevelZero>(this, &this.context, || Ok(this.bytes), what, out)
    }

    fn image_get_info(this: &Object<Self>, what: ImageInfo, out: InfoOut<'_>) -> Result<()> {
        let image = this.image()?;
        image_info(&image.shape, &image.format, image.pitch, what, out)
    }
}

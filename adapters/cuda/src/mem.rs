//! Buffers: device memory from the context's pools where the context has one device, managed memory,
//! which all devices reach, where it has several. What the host maps is a copy of its own.
//!
//! A buffer over the host's memory (`UR_MEM_FLAG_USE_HOST_POINTER`) is that memory, registered with the
//! driver. Where the driver will not have it, a buffer of ours is a copy:
//!
//! | the copy | until |
//! |---|---|
//! | is not there yet: the memory is the host's | the first command with the buffer is made, before which it is brought |
//! | is as the host's memory was | a command with the buffer that may write is made |
//! | may be newer than the host's memory | |
//!
//! Before the last release of a buffer that was used returns, what was enqueued has ended, and what may be
//! newer was copied back: the memory is then the caller's alone.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ur::abi::*;
use ur::hal::answers::{WholeBuffer, buffer_flags, mem_info};
use ur::hal::{self, MemInfo};
use ur::object::{Body, Error, InfoOut, Kind, Object, Result, ensure};
use ur::stream::{Context, Driver, MappedPointer, Work};
use ur::timeline::rank;
use ur::timeline::sync::{Mutex, MutexGuard};

use crate::Cuda;
use crate::device::Device;
use crate::exec::{Gpu, Native};

type OfContext = Object<Context<Cuda>>;

pub struct Mem {
    context: Arc<OfContext>,
    flags: ur_mem_flags_t,
    address: usize,
    bytes: usize,
    storage: Storage,
    /// Of memory that is the host's, a [`Use`].
    used: AtomicU8,
    maps: Mutex<Vec<Map>>,
    ended: Mutex<Vec<Arc<Ended>>>,
}

enum Storage {
    /// Memory of the context's pools.
    Own,
    /// As `Own`, a copy of this memory of the host's. Locked while one is made of the other.
    Copy {
        host: usize,
        copies: Mutex<(), { rank::DRIVER }>,
    },
    /// The host's own memory, registered.
    Registered,
    /// Others keep it.
    User,
    /// A part of another buffer.
    Parent(Arc<Object<Mem>>),
}

/// What commands there were with a buffer over the host's memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Use {
    None,
    Reads,
    Writes,
}

thread_local! {
    /// How many functions of the user's this thread is in.
    static USERS: Cell<usize> = const { Cell::new(0) };
}

/// Calls a function of the user's. The work that it is part of ends after it, so that it must not be made
/// to wait for all work.
pub fn call_user(call: impl FnOnce()) {
    USERS.set(USERS.get() + 1);
    call();
    USERS.set(USERS.get() - 1);
}

/// What the host has mapped.
struct Map {
    at: usize,
    offset: usize,
    bytes: usize,
    writes: bool,
    /// Host memory of the context's pools, to be freed with the mapping.
    staged: bool,
}

impl Mem {
    /// `urMemBufferCreate`. The shim has checked flags against the host pointer.
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
        let address = match registered {
            true => host,
            false => Context::alloc_buffer(context, bytes, 0)?.expose_provenance(),
        };
        let mem = Self {
            context: context.arc(),
            flags,
            address,
            bytes,
            storage: match uses {
                true if registered => Storage::Registered,
                true => Storage::Copy {
                    host,
                    copies: Mutex::default(),
                },
                false => Storage::Own,
            },
            used: AtomicU8::new(Use::None as u8),
            maps: Mutex::default(),
            ended: Mutex::default(),
        };
        if copies {
            mem.copy(address, host)?;
        }
        Ok(hal::new::<Cuda, _>(mem))
    }

    /// Copies all of the buffer's bytes, at once.
    fn copy(&self, dst: usize, src: usize) -> Result<()> {
        let gpu = self.context.devices()[0].gpu()?;
        gpu.at_once(|stream| {
            let copy = gpu.api.cuMemcpyAsync;
            // SAFETY: the buffer's memory, and the caller's of the same size.
            let code = unsafe { copy(dst as u64, src as u64, self.bytes, stream) };
            gpu.check(code, "cuMemcpyAsync")
        })
    }

    /// A buffer over the driver's memory, which others keep.
    pub fn from_native(
        context: &OfContext,
        native: ur_native_handle_t,
        bytes: usize,
    ) -> Arc<Object<Self>> {
        hal::new::<Cuda, _>(Self {
            context: context.arc(),
            flags: UR_MEM_FLAG_READ_WRITE,
            address: native,
            bytes,
            storage: Storage::User,
            used: AtomicU8::new(Use::None as u8),
            maps: Mutex::default(),
            ended: Mutex::default(),
        })
    }

    pub fn address(&self) -> usize {
        self.address
    }

    /// Points to the address, for as long as the buffer lives.
    pub fn address_slot(&self) -> *const usize {
        &raw const self.address
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The buffer that has the memory.
    fn whole(&self) -> &Mem {
        match &self.storage {
            Storage::Parent(parent) => parent,
            _ => self,
        }
    }

    /// Whether a command may use it so without [`Mem::begin`].
    #[inline]
    pub fn has_begun(&self, with: Use) -> bool {
        let whole = self.whole();
        let own = matches!(whole.storage, Storage::Own | Storage::User);
        own || whole.used.load(Ordering::Acquire) >= with as u8
    }

    /// A command is made that uses it so: what the host has written so far is there for it.
    #[inline]
    pub fn begin(&self, with: Use) -> Result<()> {
        match self.has_begun(with) {
            true => Ok(()),
            false => self.whole().begin_slowly(with),
        }
    }

    /// A command is made that writes there; all that it uses has begun.
    pub fn is_written(&self) {
        let whole = self.whole();
        if let Storage::Copy { .. } = whole.storage {
            whole.used.fetch_max(Use::Writes as u8, Ordering::Release);
        }
    }

    /// How a kernel uses it, by the flags of the argument.
    pub fn use_by(&self, flags: ur_mem_flags_t) -> Use {
        let reads = UR_MEM_FLAG_READ_ONLY;
        match flags.contains(reads) || self.flags.contains(reads) {
            true => Use::Reads,
            false => Use::Writes,
        }
    }

    #[cold]
    fn begin_slowly(&self, with: Use) -> Result<()> {
        if let Storage::Copy { host, copies } = &self.storage {
            let _copying = copies.lock();
            if self.used.load(Ordering::Relaxed) == Use::None as u8 {
                self.copy(self.address, *host)?;
            }
            self.used.fetch_max(with as u8, Ordering::Release);
            return Ok(());
        }
        self.used.fetch_max(with as u8, Ordering::Release);
        Ok(())
    }

    /// The memory is the host's again, all use of it being over.
    fn bring_back(&self) {
        let Storage::Copy { host, copies } = &self.storage else {
            return;
        };
        let _copying = copies.lock();
        if self.used.load(Ordering::Acquire) == Use::Writes as u8
            && let Err(error) = self.copy(*host, self.address)
        {
            log::error!("what a buffer holds is lost: {:?}", error.code());
        }
    }

    /// Returns the memory to the host after its last use. Waits for that, since the caller may then free the
    /// memory.
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

    fn maps(&self) -> MutexGuard<'_, Vec<Map>> {
        self.maps.lock()
    }

    /// Address of a range that lies within the buffer.
    fn range(&self, offset: usize, bytes: usize) -> Result<usize> {
        let end = offset.checked_add(bytes);
        let inside = end.is_some_and(|end| end <= self.bytes);
        ensure(inside, UR_RESULT_ERROR_INVALID_SIZE)?;
        Ok(self.address + offset)
    }

    /// What stands for the buffer on the host; 0 if nothing does.
    fn host(&self) -> usize {
        match &self.storage {
            Storage::Copy { host, .. } => *host,
            Storage::Registered => self.address,
            Storage::Own | Storage::User => 0,
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
    ) -> Result<(MappedPointer, Work<Cuda>)> {
        self.free_ended();
        let src = self.range(offset, bytes)?;
        self.begin(Use::Reads)?;
        let staged = self.host() == 0;
        let at = match self.host() {
            0 => {
                hal::Context::usm_host_alloc(&self.context, None, None, bytes)?.expose_provenance()
            }
            host => host + offset,
        };
        let is_there = at == src;
        let invalidates = flags.contains(UR_MAP_FLAG_WRITE_INVALIDATE_REGION);
        self.maps().push(Map {
            at,
            offset,
            bytes,
            writes: flags.contains(UR_MAP_FLAG_WRITE) || invalidates,
            staged,
        });
        let work = match invalidates || is_there {
            true => Work::Marker,
            false => Work::Copy {
                dst: at,
                src,
                bytes,
            },
        };
        Ok((MappedPointer::at(at), work))
    }

    pub fn unmap(&self, at: usize) -> Result<Work<Cuda>> {
        self.free_ended();
        let mut maps = self.maps();
        let found = maps.iter().rposition(|map| map.at == at);
        let map = maps.swap_remove(found.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?);
        drop(maps);
        let (dst, bytes, at) = (self.address + map.offset, map.bytes, map.at);
        let ended = Arc::new(Ended(at));
        if map.staged {
            self.ended().push(Arc::clone(&ended));
        }
        if !map.writes || dst == at {
            return Ok(Work::Marker);
        }
        let write = Native::call(move |gpu: &Gpu, stream| {
            let (api, from) = (gpu.api, ended.0 as u64);
            // SAFETY: the buffer's range, and the mapping's memory, which is not freed before this was
            // given to a stream.
            let code = unsafe { (api.cuMemcpyAsync)(dst as u64, from, bytes, stream) };
            gpu.check(code, "cuMemcpyAsync")
        });
        Ok(Work::Native(write))
    }

    fn ended(&self) -> MutexGuard<'_, Vec<Arc<Ended>>> {
        self.ended.lock()
    }

    /// Frees the memory of mappings whose last command was submitted: a free comes after all submitted
    /// work. Not done by the command itself, under whose lane's lock nothing is freed.
    fn free_ended(&self) {
        let unused = |ended: &mut Arc<Ended>| Arc::strong_count(ended) == 1;
        let all: Vec<_> = self.ended().extract_if(.., unused).collect();
        for ended in all {
            free(&self.context, ended.0);
        }
    }
}

/// Host memory of an ended mapping. The command that reads it holds it until its submission.
struct Ended(usize);

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
            Storage::Own | Storage::Copy { .. } => free(&self.context, self.address),
            Storage::Registered => match self.context.devices()[0].gpu() {
                Ok(gpu) => gpu.unregister(self.address),
                Err(error) => log::error!("memory stays registered: {:?}", error.code()),
            },
            Storage::User | Storage::Parent(_) => {}
        }
    }
}

/// Registers memory of the host's for the context's devices. False if it cannot be.
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

    /// The handle of a buffer may go before those of its parts; with the last of them all use ends.
    fn released(this: &Object<Self>) {
        let whole = match &this.storage {
            Storage::Parent(parent) if parent.api_refs() > 0 => return,
            Storage::Parent(parent) => parent,
            _ => this,
        };
        let of_host = matches!(whole.storage, Storage::Copy { .. } | Storage::Registered);
        if of_host && whole.used.load(Ordering::Acquire) != Use::None as u8 {
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
        let whole = WholeBuffer {
            flags: this.flags,
            bytes: this.bytes,
            is_part: matches!(this.storage, Storage::Parent(_)),
        };
        let part = whole.part(flags, kind, region)?;
        Ok(hal::new::<Cuda, _>(Self {
            context: Arc::clone(&this.context),
            flags: part.flags,
            address: this.address + part.offset,
            bytes: part.bytes,
            storage: Storage::Parent(this.arc()),
            used: AtomicU8::new(Use::None as u8),
            maps: Mutex::default(),
            ended: Mutex::default(),
        }))
    }

    fn get_native_handle(
        this: &Object<Self>,
        _: Option<&Object<Device>>,
    ) -> Result<ur_native_handle_t> {
        this.begin(Use::Writes)?;
        Ok(this.address)
    }

    fn get_info(this: &Object<Self>, what: MemInfo, out: InfoOut<'_>) -> Result<()> {
        mem_info::<Cuda>(this, &this.context, || Ok(this.bytes), what, out)
    }
}

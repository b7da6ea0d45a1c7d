//! Memory and semaphores of another interface, imported by file descriptors.
//!
//! The other interface is this library too: memory is a file in memory, of `cuMemExportToShareableHandle` or of
//! `scripted_external_memory`, and a semaphore is a file with its count, of `scripted_semaphore`. A successful import
//! takes the descriptor over.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::*;
use crate::image::ArrayDescription;
use crate::peers::device_of;
use crate::share;
use crate::stream::Command;

type Handle = *mut c_void;

/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD` and `CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD`.
const OPAQUE: c_uint = 1;

/// `CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD`.
const TIMELINE: c_uint = 9;

const BINARY_NAME: &str = "scripted-cuda-binary-semaphore";
const TIMELINE_NAME: &str = "scripted-cuda-timeline-semaphore";

const COUNT_BYTES: usize = 8;

/// Imported memory, mapped as a whole.
pub struct Memory {
    file: OwnedFd,
    bytes: usize,
}

/// A semaphore whose count other processes may change.
pub struct Semaphore {
    at: usize,
    counts: bool,
}

impl Semaphore {
    fn count(&self) -> &AtomicU64 {
        let count = std::ptr::with_exposed_provenance_mut(self.at);
        // SAFETY: an aligned number is mapped while this lives.
        unsafe { AtomicU64::from_ptr(count) }
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        // SAFETY: mapped at the import with this size.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.at), COUNT_BYTES) };
    }
}

/// A mapping of imported memory as a buffer or as an array.
pub struct ExternalMap {
    base: usize,
    bytes: usize,
}

impl Drop for ExternalMap {
    fn drop(&mut self) {
        // SAFETY: mapped by `ExternalMap::of` with this size, and no command uses it any more.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.base), self.bytes) };
    }
}

impl ExternalMap {
    /// Maps the whole memory anew. Returns the address of a part of it, too.
    fn of(memory: &Memory, offset: u64, size: u64) -> Result<(Self, usize), u32> {
        let end = offset.checked_add(size).ok_or(INVALID_VALUE)?;
        if size == 0 || end > memory.bytes as u64 {
            return Err(INVALID_VALUE);
        }
        let base = share::map(None, memory.bytes, &memory.file).ok_or(OUT_OF_MEMORY)?;
        let map = Self {
            base,
            bytes: memory.bytes,
        };
        Ok((map, base + offset as usize))
    }
}

/// What a descriptor leads to, as the system shows it.
fn link_of(descriptor: c_int) -> String {
    let link = std::fs::read_link(format!("/proc/self/fd/{descriptor}"));
    link.map_or(String::new(), |link| link.to_string_lossy().into_owned())
}

fn is_named(descriptor: c_int, name: &str) -> bool {
    link_of(descriptor).contains(&format!(":{name} "))
}

/// A file in memory.
fn file(name: &str, bytes: usize) -> Option<OwnedFd> {
    let name = CString::new(name).ok()?;
    // SAFETY: a C string.
    let file = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return None;
    }
    // SAFETY: opened just now, for this value alone.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    // SAFETY: an open file.
    let sized = unsafe { libc::ftruncate(file.as_raw_fd(), bytes as i64) } == 0;
    sized.then_some(file)
}

fn descriptor_of(file: Option<OwnedFd>) -> c_int {
    file.map_or(-1, |file| file.into_raw_fd())
}

/// Memory of another interface, as a descriptor of the caller's, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_external_memory(bytes: usize) -> c_int {
    descriptor_of(file(&share::file_name(Some(0)), bytes))
}

/// A semaphore of another interface with the count 0, as a descriptor of the caller's, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_semaphore(counts: bool) -> c_int {
    let name = if counts { TIMELINE_NAME } else { BINARY_NAME };
    descriptor_of(file(name, COUNT_BYTES))
}

/// The count of a semaphore, by a descriptor of it.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_semaphore_count(semaphore: c_int) -> u64 {
    let mut count = 0_u64;
    // SAFETY: room for the bytes of the count.
    unsafe { libc::pread(semaphore, (&raw mut count).cast(), COUNT_BYTES, 0) };
    count
}

/// Sets the count of a semaphore, by a descriptor of it, as the other interface does.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_semaphore_set(semaphore: c_int, count: u64) {
    // SAFETY: so many bytes are readable.
    unsafe { libc::pwrite(semaphore, (&raw const count).cast(), COUNT_BYTES, 0) };
    hold().pump();
}

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`, whose union is two words.
#[repr(C)]
pub struct MemoryDescription {
    kind: c_uint,
    handle: [usize; 2],
    size: u64,
    flags: c_uint,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuImportExternalMemory(
    memory: *mut Handle,
    what: *const MemoryDescription,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuImportExternalMemory") {
        return code;
    }
    // SAFETY: the caller passes a readable description.
    let what = unsafe { &*what };
    let descriptor = what.handle[0] as c_int;
    let homes = std::iter::once(None).chain((0..MAX_DEVICES).map(Some));
    let mut names = homes.map(share::file_name);
    let is_own = names.any(|name| is_named(descriptor, &name));
    if what.kind != OPAQUE || what.flags != 0 || !is_own {
        return INVALID_VALUE;
    }
    // SAFETY: an open file.
    let bytes = unsafe { libc::lseek(descriptor, 0, libc::SEEK_END) };
    if what.size == 0 || what.size > bytes.max(0) as u64 {
        return INVALID_VALUE;
    }
    let name = driver.name();
    let new = Memory {
        // SAFETY: an open descriptor, which the caller hands over with the success of this call.
        file: unsafe { OwnedFd::from_raw_fd(descriptor) },
        bytes: what.size as usize,
    };
    driver.external_memories.insert(name, new);
    // SAFETY: room for a handle, as for all outputs here.
    unsafe { memory.write(std::ptr::without_provenance_mut(name)) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDestroyExternalMemory(memory: Handle) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuDestroyExternalMemory") {
        return code;
    }
    match driver.external_memories.remove(&memory.addr()) {
        Some(_) => SUCCESS,
        None => code(driver.broken("external memory destroyed twice")),
    }
}

/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[repr(C)]
pub struct BufferDescription {
    offset: u64,
    size: u64,
    flags: c_uint,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuExternalMemoryGetMappedBuffer(
    start: *mut u64,
    memory: Handle,
    what: *const BufferDescription,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuExternalMemoryGetMappedBuffer") {
        return code;
    }
    // SAFETY: the caller passes a readable description.
    let what = unsafe { &*what };
    let Some(memory) = driver.external_memories.get(&memory.addr()) else {
        return code(driver.broken("a mapping of dead external memory"));
    };
    if what.flags != 0 {
        return INVALID_VALUE;
    }
    let (map, at) = match ExternalMap::of(memory, what.offset, what.size) {
        Ok(made) => made,
        Err(code) => return code,
    };
    let bytes = what.size as usize;
    let home = Some(device_of(current()));
    driver.blocks.insert(at, Allocation { bytes, home });
    driver.external_maps.insert(at, map);
    // SAFETY: room for an address.
    unsafe { start.write(at as u64) };
    SUCCESS
}

/// `CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC`.
#[repr(C)]
pub struct MipmapDescription {
    offset: u64,
    what: ArrayDescription,
    levels: c_uint,
}

/// The levels' texels lie packed behind one another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuExternalMemoryGetMappedMipmappedArray(
    mipmap: *mut Handle,
    memory: Handle,
    what: *const MipmapDescription,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuExternalMemoryGetMappedMipmappedArray") {
        return code;
    }
    // SAFETY: the caller passes a readable description.
    let what = unsafe { &*what };
    let Some(memory) = driver.external_memories.get(&memory.addr()) else {
        return code(driver.broken("a mapping of dead external memory"));
    };
    let levels = what.levels as usize;
    let Some(bytes) = what.what.bytes_of_levels(levels) else {
        return INVALID_VALUE;
    };
    let (map, at) = match ExternalMap::of(memory, what.offset, bytes as u64) {
        Ok(made) => made,
        Err(code) => return code,
    };
    let name = driver.mapped_mipmap(what.what, levels, at);
    driver.external_maps.insert(name, map);
    // SAFETY: room for a handle.
    unsafe { mipmap.write(std::ptr::without_provenance_mut(name)) };
    SUCCESS
}

/// `CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC`, whose union is two words.
#[repr(C)]
pub struct SemaphoreDescription {
    kind: c_uint,
    handle: [usize; 2],
    flags: c_uint,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuImportExternalSemaphore(
    semaphore: *mut Handle,
    what: *const SemaphoreDescription,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuImportExternalSemaphore") {
        return code;
    }
    // SAFETY: the caller passes a readable description.
    let what = unsafe { &*what };
    let descriptor = what.handle[0] as c_int;
    let counts = match what.kind {
        OPAQUE if is_named(descriptor, BINARY_NAME) => false,
        TIMELINE if is_named(descriptor, TIMELINE_NAME) => true,
        _ => return INVALID_VALUE,
    };
    if what.flags != 0 {
        return INVALID_VALUE;
    }
    // SAFETY: an open descriptor, which stays open if the mapping fails.
    let file = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(descriptor) });
    let Some(at) = share::map(None, COUNT_BYTES, &file) else {
        return OUT_OF_MEMORY;
    };
    // The mapping keeps the file.
    drop(std::mem::ManuallyDrop::into_inner(file));
    let name = driver.name();
    driver
        .external_semaphores
        .insert(name, Semaphore { at, counts });
    // SAFETY: room for a handle.
    unsafe { semaphore.write(std::ptr::without_provenance_mut(name)) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDestroyExternalSemaphore(semaphore: Handle) -> u32 {
    let (mut driver, name) = (hold(), semaphore.addr());
    if let Some(code) = driver.acts("cuDestroyExternalSemaphore") {
        return code;
    }
    driver.pump();
    let uses = |command: &Command| match command {
        Command::AwaitSemaphore { semaphore, .. } | Command::Signal { semaphore, .. } => {
            *semaphore == name
        }
        _ => false,
    };
    let pending = |stream: &crate::stream::Stream| stream.commands.iter().any(uses);
    if driver.streams.values().any(pending) {
        return code(driver.broken("a semaphore destroyed under a command"));
    }
    match driver.external_semaphores.remove(&name) {
        Some(_) => SUCCESS,
        None => code(driver.broken("a semaphore destroyed twice")),
    }
}

/// The first member of `CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS` and `_WAIT_PARAMS`.
#[repr(C)]
pub struct Params {
    value: u64,
}

fn enqueue(
    name: &'static str,
    semaphore: *const Handle,
    params: *const Params,
    count: c_uint,
    stream: Handle,
    command: impl FnOnce(usize, u64) -> Command,
) -> u32 {
    let mut driver = hold();
    let own = driver.context_of_stream(stream);
    if let Some(code) = driver.belongs(name, own) {
        return code;
    }
    if count != 1 {
        return INVALID_VALUE;
    }
    // SAFETY: the caller passes as many handles and parameters as it says.
    let (semaphore, value) = unsafe { ((*semaphore).addr(), (*params).value) };
    if !driver.external_semaphores.contains_key(&semaphore) {
        return code(driver.broken("a command on a dead semaphore"));
    }
    code(driver.submit(stream.addr(), command(semaphore, value)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuWaitExternalSemaphoresAsync(
    semaphores: *const Handle,
    params: *const Params,
    count: c_uint,
    stream: Handle,
) -> u32 {
    let name = "cuWaitExternalSemaphoresAsync";
    enqueue(
        name,
        semaphores,
        params,
        count,
        stream,
        |semaphore, value| Command::AwaitSemaphore { semaphore, value },
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuSignalExternalSemaphoresAsync(
    semaphores: *const Handle,
    params: *const Params,
    count: c_uint,
    stream: Handle,
) -> u32 {
    let name = "cuSignalExternalSemaphoresAsync";
    enqueue(
        name,
        semaphores,
        params,
        count,
        stream,
        |semaphore, value| Command::Signal { semaphore, value },
    )
}

impl FakeDriver {
    /// Whether a wait for a semaphore is over.
    pub fn is_signalled(&self, semaphore: usize, value: u64) -> bool {
        let Some(own) = self.external_semaphores.get(&semaphore) else {
            return true;
        };
        let count = own.count().load(Ordering::SeqCst);
        match own.counts {
            true => count >= value,
            false => count != 0,
        }
    }

    /// Ends a wait for a semaphore. A binary one is unsignalled again.
    pub fn consume(&self, semaphore: usize) {
        let own = self.external_semaphores.get(&semaphore);
        if let Some(own) = own.filter(|own| !own.counts) {
            own.count().store(0, Ordering::SeqCst);
        }
    }

    pub fn signal(&self, semaphore: usize, value: u64) {
        if let Some(own) = self.external_semaphores.get(&semaphore) {
            let value = if own.counts { value } else { 1 };
            own.count().store(value, Ordering::SeqCst);
        }
    }
}

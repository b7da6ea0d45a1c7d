//! Memory and events that several processes of this library share.
//!
//! Physical memory is exported as a file in memory, which takes over the contents at the first export. An
//! event that may be shared keeps its counts in a file that others open by its name.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::*;
use crate::stream::Event;

type Handle = *mut c_void;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub const DESCRIPTOR: c_uint = 1;

/// `CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING`.
const SHARED: c_uint = 6;

const NAME: &str = "scripted-cuda-piece";

/// The counts of a shared event: records so far, and the last one that has happened.
#[derive(Debug)]
pub struct SharedCounts {
    at: usize,
    /// The name of the file, for the process that made the event.
    own: Option<CString>,
}

const COUNT_BYTES: usize = 16;

impl SharedCounts {
    fn new(name: &CString, own: bool) -> Option<Self> {
        let flags = match own {
            true => libc::O_CREAT | libc::O_EXCL | libc::O_RDWR,
            false => libc::O_RDWR,
        };
        // SAFETY: a C string.
        let file = unsafe { libc::shm_open(name.as_ptr(), flags, 0o600) };
        if file < 0 {
            return None;
        }
        // SAFETY: opened just now, for this value alone.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        // SAFETY: an open file.
        if own && unsafe { libc::ftruncate(file.as_raw_fd(), COUNT_BYTES as i64) } != 0 {
            return None;
        }
        let at = map(None, COUNT_BYTES, &file)?;
        Some(Self {
            at,
            own: own.then(|| name.clone()),
        })
    }

    fn count(&self, index: usize) -> &AtomicU64 {
        let count = std::ptr::with_exposed_provenance_mut(self.at + 8 * index);
        // SAFETY: two aligned numbers are mapped while this lives.
        unsafe { AtomicU64::from_ptr(count) }
    }

    pub fn recorded(&self) -> &AtomicU64 {
        self.count(0)
    }

    pub fn happened(&self) -> &AtomicU64 {
        self.count(1)
    }
}

impl Drop for SharedCounts {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this size.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.at), COUNT_BYTES) };
        if let Some(name) = &self.own {
            // SAFETY: a C string.
            unsafe { libc::shm_unlink(name.as_ptr()) };
        }
    }
}

/// Maps a file with read and write access, at an address that is reserved or at any.
pub fn map(at: Option<usize>, bytes: usize, file: &OwnedFd) -> Option<usize> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let start = std::ptr::with_exposed_provenance_mut(at.unwrap_or(0));
    let flags = libc::MAP_SHARED | at.map_or(0, |_| libc::MAP_FIXED);
    // SAFETY: new addresses, or ones that the caller has reserved.
    let got = unsafe { libc::mmap(start, bytes, access, flags, file.as_raw_fd(), 0) };
    (got != libc::MAP_FAILED).then(|| got.expose_provenance())
}

/// The name of an event's file.
fn file_of(process: u32, event: usize) -> CString {
    CString::new(format!("/scripted-cuda-{process}-{event:x}")).expect("no zero within")
}

/// The counts of a new event with these flags, if other processes may open it.
pub fn counts_of(event: usize, flags: c_uint) -> Option<SharedCounts> {
    let own = flags & SHARED == SHARED;
    own.then(|| SharedCounts::new(&file_of(std::process::id(), event), true))?
}

/// Maps a piece that has a file. True if it has none.
pub fn map_piece(piece: &Piece, at: usize) -> bool {
    match &piece.file {
        Some(file) => map(Some(at), piece.bytes, file).is_some(),
        None => true,
    }
}

/// Ends the mapping of a file: the addresses stay reserved.
pub fn unmap_piece(at: usize, bytes: usize) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let start = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: a part of a reservation, all uses of which are complete.
    unsafe { libc::mmap(start, bytes, libc::PROT_NONE, flags, -1, 0) };
}

/// The name of a piece's file, which tells its device to the process that opens it.
pub fn file_name(home: Option<usize>) -> String {
    format!("{NAME}-{}", home.map_or(-1, |home| home as i64))
}

/// Moves the contents of a piece into a file, which all its addresses lead to from now on.
fn to_file(driver: &mut FakeDriver, name: usize) -> Option<()> {
    let piece = driver.pieces.get(&name)?;
    if piece.file.is_some() {
        return Some(());
    }
    let (bytes, last) = (piece.bytes, piece.last);
    let text = CString::new(file_name(piece.home)).ok()?;
    // SAFETY: a C string.
    let file = unsafe { libc::memfd_create(text.as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return None;
    }
    // SAFETY: opened just now, for this value alone.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    // SAFETY: an open file.
    if unsafe { libc::ftruncate(file.as_raw_fd(), bytes as i64) } != 0 {
        return None;
    }
    let all = driver.maps.iter();
    let addresses: Vec<usize> = all
        .filter(|(_, map)| map.piece == name)
        .map(|(at, _)| *at)
        .collect();
    // Older addresses of a piece have older contents: it shares nothing before this.
    if addresses.contains(&last) {
        let from = std::ptr::with_exposed_provenance(last);
        // SAFETY: the piece is mapped there with access, and has so many bytes.
        let written = unsafe { libc::pwrite(file.as_raw_fd(), from, bytes, 0) };
        if written != bytes.cast_signed() {
            return None;
        }
    }
    for at in addresses {
        map(Some(at), bytes, &file)?;
    }
    driver.pieces.get_mut(&name)?.file = Some(file);
    Some(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemExportToShareableHandle(
    shared: *mut c_void,
    handle: u64,
    kind: c_uint,
    flags: u64,
) -> u32 {
    let (mut driver, name) = (hold(), handle as usize);
    if let Some(code) = driver.called("cuMemExportToShareableHandle") {
        return code;
    }
    let able = driver.pieces.get(&name).map(|piece| piece.shareable);
    match able {
        None => return code(driver.broken("exporting what is no piece")),
        Some(false) => return INVALID_VALUE,
        Some(true) if kind != DESCRIPTOR || flags != 0 => return INVALID_VALUE,
        Some(true) => {}
    }
    let made = to_file(&mut driver, name).and_then(|()| {
        let file = driver.pieces.get(&name)?.file.as_ref()?;
        file.try_clone().ok()
    });
    let Some(file) = made else {
        return OUT_OF_MEMORY;
    };
    // SAFETY: the driver's interface promises room for a descriptor.
    unsafe { shared.cast::<c_int>().write(file.into_raw_fd()) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemImportFromShareableHandle(
    handle: *mut u64,
    shared: *mut c_void,
    kind: c_uint,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.called("cuMemImportFromShareableHandle") {
        return code;
    }
    let number = shared.addr();
    let link = std::fs::read_link(format!("/proc/self/fd/{number}"));
    let link = link.map_or(String::new(), |link| link.to_string_lossy().into_owned());
    let mut homes = std::iter::once(None).chain((0..MAX_DEVICES).map(Some));
    let home = homes.find(|home| link.contains(&format!(":{} ", file_name(*home))));
    let own = home.is_some();
    if kind != DESCRIPTOR || !own {
        return INVALID_VALUE;
    }
    // SAFETY: an open descriptor, which stays the caller's.
    let file = unsafe { libc::fcntl(number as c_int, libc::F_DUPFD_CLOEXEC, 0) };
    if file < 0 {
        return OUT_OF_MEMORY;
    }
    // SAFETY: opened just now, for this value alone.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    // SAFETY: an open file.
    let bytes = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_END) } as usize;
    let name = driver.name();
    let piece = Piece {
        bytes,
        home: home.flatten(),
        released: false,
        mapped: 0,
        last: 0,
        shareable: true,
        file: Some(file),
    };
    driver.pieces.insert(name, piece);
    // SAFETY: the driver's interface promises room for each output.
    unsafe { handle.write(name as u64) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAllocationPropertiesFromHandle(
    what: *mut c_int,
    handle: u64,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.called("cuMemGetAllocationPropertiesFromHandle") {
        return code;
    }
    let Some(piece) = driver.pieces.get(&(handle as usize)) else {
        return code(driver.broken("asking what is no piece"));
    };
    let (kind, number) = match piece.home {
        Some(home) => (1, home as c_int),
        None => (2, 0),
    };
    // SAFETY: room for properties: two numbers, then the type and the number of a location.
    unsafe {
        what.add(2).write(kind);
        what.add(3).write(number);
    }
    SUCCESS
}

/// The driver's handle of a shared event.
#[repr(C)]
pub struct EventHandle([c_char; 64]);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuIpcGetEventHandle(handle: *mut EventHandle, event: Handle) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuIpcGetEventHandle") {
        return code;
    }
    let Some(own) = driver.events.get(&event.addr()) else {
        return code(driver.broken("sharing a dead event"));
    };
    if own.shared.as_ref().is_none_or(|own| own.own.is_none()) {
        return INVALID_VALUE;
    }
    let mut bytes = [0; 64];
    let process = u64::from(std::process::id()).to_ne_bytes();
    let names = process
        .into_iter()
        .chain((event.addr() as u64).to_ne_bytes());
    for (to, byte) in bytes.iter_mut().zip(names) {
        *to = byte as c_char;
    }
    // SAFETY: the driver's interface promises room for each output.
    unsafe { handle.write(EventHandle(bytes)) };
    SUCCESS
}

/// Refuses the process's own events, as the driver does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuIpcOpenEventHandle(event: *mut Handle, handle: EventHandle) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuIpcOpenEventHandle") {
        return code;
    }
    let number = |at: usize| {
        let bytes = std::array::from_fn(|index| handle.0[at + index] as u8);
        u64::from_ne_bytes(bytes)
    };
    let (process, theirs) = (number(0) as u32, number(8) as usize);
    if process == std::process::id() {
        return INVALID_CONTEXT;
    }
    let Some(counts) = SharedCounts::new(&file_of(process, theirs), false) else {
        return INVALID_HANDLE;
    };
    let name = driver.name();
    let opened = Event {
        context: current(),
        shared: Some(counts),
        ..Event::default()
    };
    driver.events.insert(name, opened);
    // SAFETY: the driver's interface promises room for each output.
    unsafe { event.write(std::ptr::without_provenance_mut(name)) };
    SUCCESS
}

/// Number of records of an event so far.
pub fn recorded(event: &Event) -> u64 {
    let shared = event.shared.as_ref();
    shared.map_or(event.recorded, |own| own.recorded().load(Ordering::SeqCst))
}

/// The last record of an event that has happened.
pub fn happened(event: &Event) -> u64 {
    let shared = event.shared.as_ref();
    shared.map_or(event.happened, |own| own.happened().load(Ordering::SeqCst))
}

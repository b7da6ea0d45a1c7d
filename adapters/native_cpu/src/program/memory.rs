//! Memory of this process at addresses that come from a caller and may be wrong: reading it, and the bounds
//! of what holds it.

use std::cell::OnceCell;
use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use object::NativeEndian;
use object::elf::{FileHeader64, PF_X, PT_LOAD, SHF_ALLOC, SHF_TLS};
use object::pod::bytes_of_slice;
use object::read::ReadCache;
use object::read::elf::{FileHeader as _, SectionHeader as _};

/// Copies memory. `None` if it cannot be read: the system checks each access.
pub fn read(from: usize, to: &mut [u8]) -> Option<()> {
    if to.is_empty() {
        return Some(());
    }
    let local = libc::iovec {
        iov_base: to.as_mut_ptr().cast(),
        iov_len: to.len(),
    };
    let remote = libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(from),
        iov_len: to.len(),
    };
    // SAFETY: the system writes within `to` and checks the other address itself.
    let copied = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    if copied == to.len().cast_signed() {
        return Some(());
    }
    let refused = std::io::Error::last_os_error().raw_os_error();
    let forbidden = copied < 0 && matches!(refused, Some(libc::ENOSYS | libc::EPERM));
    if forbidden {
        read_through_file(from, to)
    } else {
        None
    }
}

/// Copies memory where the system forbids reading it as another process's: a write to a file is checked, too.
pub fn read_through_file(from: usize, to: &mut [u8]) -> Option<()> {
    let file = new_file(c"ur-native-cpu-memory")?;
    let from = std::ptr::with_exposed_provenance(from);
    // SAFETY: the system only reads there, and checks the address itself.
    let written = unsafe { libc::write(file.as_raw_fd(), from, to.len()) };
    if written != to.len().cast_signed() {
        return None;
    }
    file.read_exact_at(to, 0).ok()
}

/// A file in memory, without a place in a folder. `None` with the system's last error if there can be none.
pub fn new_file(name: &CStr) -> Option<File> {
    // SAFETY: `memfd_create` takes a C string and makes a new file.
    let number = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: the file descriptor is new, so that nothing else owns it.
    (number >= 0).then(|| unsafe { File::from_raw_fd(number) })
}

/// A copy of that many bytes. `None` if they cannot be read or stored.
pub fn bytes(from: usize, count: usize) -> Option<Vec<u8>> {
    let mut to = Vec::new();
    to.try_reserve_exact(count).ok()?;
    to.resize(count, 0);
    read(from, &mut to)?;
    Some(to)
}

/// A C string. `None` if it is empty, cannot be read, or is longer than any name.
pub fn text(address: usize) -> Option<CString> {
    const MAX_NAME_BYTES: usize = 64 * 1024;
    const STEP_BYTES: usize = 256;
    let mut bytes = Vec::new();
    while bytes.len() < MAX_NAME_BYTES {
        let at = address.checked_add(bytes.len())?;
        // No read crosses the end of a step, so that none touches a page beyond the string.
        let mut step = [0; STEP_BYTES];
        let step = &mut step[..STEP_BYTES - at % STEP_BYTES];
        read(at, step)?;
        if let Some(end) = step.iter().position(|&byte| byte == 0) {
            bytes.extend_from_slice(&step[..end]);
            return CString::new(bytes).ok().filter(|name| !name.is_empty());
        }
        bytes.extend_from_slice(step);
    }
    None
}

/// What holds an address, and which memory is executable.
pub struct Surroundings {
    end: usize,
    objects: Vec<Object>,
    mappings: OnceCell<Vec<Mapping>>,
}

impl Surroundings {
    /// The end of what holds an address is that of the section of an ELF object, of the segment of an object
    /// whose file is gone, or of the mapping. It is unknown where the system does not say the mappings.
    pub fn of(address: usize) -> Self {
        let mut this = Self {
            end: usize::MAX,
            objects: loaded_objects(),
            mappings: OnceCell::new(),
        };
        let segment = this
            .objects
            .iter()
            .find_map(|object| Some((object, object.segment(address)?)));
        let end = match segment {
            Some((object, segment)) => {
                let section = object.section(address);
                Some(section.map_or(segment.range.end, |section| section.end))
            }
            None => this.mapping(address).map(|mapping| mapping.range.end),
        };
        this.end = end.unwrap_or(usize::MAX);
        this
    }

    pub fn end(&self) -> usize {
        self.end
    }

    /// Whether an address is of executable memory. Any is where the system does not say the mappings.
    pub fn is_code(&self, address: usize) -> bool {
        let mut objects = self.objects.iter();
        match objects.find_map(|object| object.segment(address)) {
            Some(segment) => segment.executable,
            None => {
                let found = self.mapping(address);
                found.map_or_else(|| self.mappings().is_empty(), |found| found.executable)
            }
        }
    }

    fn mapping(&self, address: usize) -> Option<&Mapping> {
        let mut all = self.mappings().iter();
        all.find(|mapping| mapping.range.contains(&address))
    }

    fn mappings(&self) -> &[Mapping] {
        self.mappings.get_or_init(|| {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
            maps.lines().filter_map(mapping).collect()
        })
    }
}

/// A range of addresses with one protection.
struct Mapping {
    range: Range<usize>,
    executable: bool,
}

/// A line of the list of mappings: `start-end rwxp ...`.
fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split(' ');
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(Mapping {
        range: number(start)?..number(end)?,
        executable: words.next()?.contains('x'),
    })
}

/// A loaded ELF object.
struct Object {
    path: PathBuf,
    base: usize,
    /// The bytes of its program headers.
    headers: Vec<u8>,
    segments: Vec<Mapping>,
}

impl Object {
    fn segment(&self, address: usize) -> Option<&Mapping> {
        let mut segments = self.segments.iter();
        segments.find(|segment| segment.range.contains(&address))
    }

    /// The section that holds an address. `None` if the object's file is gone or no longer the same.
    fn section(&self, address: usize) -> Option<Range<usize>> {
        let file = ReadCache::new(File::open(&self.path).ok()?);
        let header = FileHeader64::<NativeEndian>::parse(&file).ok()?;
        let segments = header.program_headers(NativeEndian, &file).ok()?;
        if bytes_of_slice(segments) != self.headers {
            return None;
        }
        let sections = header.section_headers(NativeEndian, &file).ok()?;
        let ranges = sections.iter().filter_map(|section| {
            let flags = section.sh_flags(NativeEndian);
            let loaded = flags.contains(SHF_ALLOC) && !flags.contains(SHF_TLS);
            let start = usize::try_from(section.sh_addr(NativeEndian)).ok()?;
            let start = start.wrapping_add(self.base);
            let bytes = usize::try_from(section.sh_size(NativeEndian)).ok()?;
            loaded.then_some(start..start.checked_add(bytes)?)
        });
        ranges.into_iter().find(|range| range.contains(&address))
    }
}

/// The ELF objects of this process, as the dynamic linker knows them.
fn loaded_objects() -> Vec<Object> {
    let mut all = Vec::new();
    // SAFETY: the callback gets the vector, which outlives the call, and nothing else uses it meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(add_object), (&raw mut all).cast()) };
    all
}

/// # Safety
/// `info` describes a loaded object, and `all` points to a `Vec<Object>` that nothing else uses.
unsafe extern "C" fn add_object(
    info: *mut libc::dl_phdr_info,
    _: usize,
    all: *mut c_void,
) -> c_int {
    // SAFETY: the linker passes a valid description, and the headers stay mapped for the call.
    let (info, headers) = unsafe {
        let info = &*info;
        let count = usize::from(info.dlpi_phnum);
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        (info, std::slice::from_raw_parts(info.dlpi_phdr, count))
    };
    // SAFETY: the headers are plain numbers.
    let bytes =
        unsafe { std::slice::from_raw_parts(headers.as_ptr().cast::<u8>(), size_of_val(headers)) };
    // SAFETY: the linker passes a C string or null.
    let name = unsafe { (!info.dlpi_name.is_null()).then(|| CStr::from_ptr(info.dlpi_name)) };
    let base = info.dlpi_addr as usize;
    let segments = headers.iter().filter(|header| header.p_type == PT_LOAD.0);
    let segments = segments.map(|header| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        Mapping {
            range: start..start.saturating_add(header.p_memsz as usize),
            executable: header.p_flags & PF_X.0 != 0,
        }
    });
    let object = Object {
        // The program itself has no name here.
        path: match name.unwrap_or_default().to_bytes() {
            b"" => Path::new("/proc/self/exe").to_owned(),
            name => Path::new(OsStr::from_bytes(name)).to_owned(),
        },
        base,
        headers: bytes.to_vec(),
        segments: segments.collect(),
    };
    // SAFETY: `loaded_objects` passes its vector.
    unsafe { (*all.cast::<Vec<Object>>()).push(object) };
    0
}

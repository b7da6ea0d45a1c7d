//! Address ranges and the physical memory behind them. A range is an `mmap` without access; physical
//! memory is a file in memory that is mapped over it.
//!
//! | a page of a range is | by |
//! |---|---|
//! | reserved, without access | `reserve`, `unmap` |
//! | backed, with the access given | `map`, `set_access` |
//! | gone | `free`, when nothing of the range is backed |

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;
use std::sync::Arc;

use ur::abi::*;
use ur::hal::answers::physical_mem_info;
use ur::hal::{self, PhysicalMemInfo, Ranges};
use ur::object::{Body, Error, InfoOut, Kind, Object, Result, ensure};
use ur::stream::Context;

use crate::Cpu;
use crate::adapter::system_error;
use crate::cpu::{memory_bytes, page_bytes};
use crate::device::Device;

/// The ranges of one context.
#[derive(Default)]
pub struct AddressSpace {
    ranges: Ranges<(), ()>,
}

/// Bytes that every start and size is a multiple of.
pub fn granularity() -> usize {
    page_bytes()
}

impl AddressSpace {
    pub fn reserve(&self, hint: usize, bytes: usize) -> Result<usize> {
        check_size(bytes)?;
        let start = map_nothing(hint, bytes, 0)?;
        self.ranges.reserved(start, bytes, ());
        Ok(start)
    }

    pub fn free(&self, start: usize, bytes: usize) -> Result<()> {
        self.ranges.freed(start, bytes)?;
        unmap(start, bytes);
        Ok(())
    }

    pub fn map(
        &self,
        start: usize,
        bytes: usize,
        memory: &PhysicalMem,
        offset: usize,
        access: ur_virtual_mem_access_flags_t,
    ) -> Result<()> {
        check_size(bytes)?;
        let protection = protection(access)?;
        let aligned = start.is_multiple_of(granularity()) && offset.is_multiple_of(granularity());
        ensure(aligned, UR_RESULT_ERROR_INVALID_VALUE)?;
        let inside = offset
            .checked_add(bytes)
            .is_some_and(|end| end <= memory.bytes);
        ensure(inside, UR_RESULT_ERROR_INVALID_SIZE)?;
        let offset =
            libc::off_t::try_from(offset).map_err(|_| Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
        let file = memory.file.as_raw_fd();
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        self.ranges.map(start, bytes, access, || {
            // SAFETY: the pages are reserved and not backed, so that the mapping replaces no memory in use.
            let at = unsafe { libc::mmap(pointer(start), bytes, protection, flags, file, offset) };
            if at == libc::MAP_FAILED {
                return Err(refused("mapping physical memory"));
            }
            Ok(())
        })
    }

    pub fn unmap(&self, start: usize, bytes: usize) -> Result<()> {
        self.ranges.unmap(start, bytes, |_, at, bytes, _| {
            map_nothing(at, bytes, libc::MAP_FIXED).map(drop)
        })
    }

    pub fn set_access(
        &self,
        start: usize,
        bytes: usize,
        access: ur_virtual_mem_access_flags_t,
    ) -> Result<()> {
        let protection = protection(access)?;
        self.ranges
            .set_access(start, bytes, access, |at, bytes, _| {
                // SAFETY: the pages are backed by memory of this context, and the caller orders their use.
                if unsafe { libc::mprotect(pointer(at), bytes, protection) } != 0 {
                    return Err(refused("changing access"));
                }
                Ok(())
            })
    }

    pub fn access(&self, start: usize, bytes: usize) -> Result<ur_virtual_mem_access_flags_t> {
        self.ranges.access(start, bytes)
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        // Unmapping a range unmaps the memory in it.
        self.ranges
            .clear(|_, _, _, _| (), |_, start, bytes| unmap(start, bytes));
    }
}

fn refused(what: &str) -> Error {
    system_error(UR_RESULT_ERROR_OUT_OF_RESOURCES, what)
}

fn check_size(bytes: usize) -> Result<()> {
    let whole = bytes > 0 && bytes.is_multiple_of(granularity());
    ensure(whole, UR_RESULT_ERROR_INVALID_SIZE)
}

fn protection(access: ur_virtual_mem_access_flags_t) -> Result<i32> {
    match access {
        UR_VIRTUAL_MEM_ACCESS_FLAG_NONE => Ok(libc::PROT_NONE),
        UR_VIRTUAL_MEM_ACCESS_FLAG_READ_WRITE => Ok(libc::PROT_READ | libc::PROT_WRITE),
        UR_VIRTUAL_MEM_ACCESS_FLAG_READ_ONLY => Ok(libc::PROT_READ),
        _ => Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE)),
    }
}

/// Maps addresses without memory: near `at`, or exactly there with `MAP_FIXED`. With `MAP_FIXED` the
/// caller owns that range.
fn map_nothing(at: usize, bytes: usize, fixed: i32) -> Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    // SAFETY: a hint replaces no mapping, and a fixed address is the caller's own reservation.
    let start = unsafe { libc::mmap(pointer(at), bytes, libc::PROT_NONE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(refused("reserving addresses"));
    }
    Ok(start.expose_provenance())
}

fn unmap(start: usize, bytes: usize) {
    // SAFETY: the caller owns the reservation and gives it up.
    unsafe { libc::munmap(pointer(start), bytes) };
}

fn pointer(address: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address)
}

/// Memory without an address.
pub struct PhysicalMem {
    context: Arc<Object<Context<Cpu>>>,
    device: Arc<Object<Device>>,
    bytes: usize,
    /// The flags of its creation. They do not change how the memory is made.
    flags: ur_physical_mem_flags_t,
    file: File,
}

impl PhysicalMem {
    pub fn create(
        context: &Object<Context<Cpu>>,
        device: &Object<Device>,
        bytes: usize,
        properties: Option<&ur_physical_mem_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        context.check_device(device)?;
        check_size(bytes)?;
        let file = memory_file(bytes)?;
        Ok(hal::new::<Cpu, _>(Self {
            context: context.arc(),
            device: device.arc(),
            bytes,
            flags: properties.map_or_else(Default::default, |properties| properties.flags),
            file,
        }))
    }
}

/// A file in memory of this size. Its pages get memory at their first use.
fn memory_file(bytes: usize) -> Result<File> {
    let none = UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    ensure(bytes as u64 <= memory_bytes(), none)?;
    let size = libc::off_t::try_from(bytes).map_err(|_| Error::new(none))?;
    // SAFETY: `memfd_create` takes a C string and makes a new file.
    let number = unsafe { libc::memfd_create(c"ur-native-cpu".as_ptr(), libc::MFD_CLOEXEC) };
    if number < 0 {
        return Err(refused("memfd_create"));
    }
    // SAFETY: the file descriptor is new, so that nothing else owns it.
    let file = unsafe { File::from_raw_fd(number) };
    // SAFETY: `file` owns the descriptor.
    if unsafe { libc::ftruncate(number, size) } != 0 {
        return Err(system_error(none, "allocating physical memory"));
    }
    Ok(file)
}

impl Body for PhysicalMem {
    const KIND: Kind = Kind::PhysicalMem;
}

impl hal::PhysicalMem<Cpu> for PhysicalMem {
    fn get_info(this: &Object<Self>, what: PhysicalMemInfo, out: InfoOut<'_>) -> Result<()> {
        let place = (&*this.context, &*this.device);
        physical_mem_info::<Cpu>(this, place, (this.bytes, this.flags), what, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_only_what_they_are() -> Result<()> {
        let space = AddressSpace::default();
        let page = granularity();
        assert!(space.reserve(0, page + 1).is_err() && space.reserve(0, 0).is_err());
        let start = space.reserve(0, 4 * page)?;
        assert_eq!(
            space.access(start, page),
            Ok(UR_VIRTUAL_MEM_ACCESS_FLAG_NONE)
        );
        assert!(space.access(start + 4 * page, page).is_err());
        assert!(space.free(start, page).is_err() && space.free(start + page, 3 * page).is_err());
        assert!(space.unmap(start, page).is_err());
        assert!(
            space
                .set_access(start, page, UR_VIRTUAL_MEM_ACCESS_FLAG_READ_ONLY)
                .is_err()
        );
        space.free(start, 4 * page)?;
        assert!(space.free(start, 4 * page).is_err());
        Ok(())
    }

    #[test]
    fn memory_files_have_their_size() -> Result<()> {
        let file = memory_file(3 * granularity())?;
        assert_eq!(
            file.metadata().map(|about| about.len()).ok(),
            Some(3 * granularity() as u64)
        );
        assert!(memory_file(1 << 62).is_err());
        Ok(())
    }
}

//! Pages of 2 MiB for the pools: ranges of addresses, parts of which are usable.
//!
//! The system provides memory at first use, so that a page of a pool is only an allowance. A pool that
//! maps a page at a second address does not need its old content there. The memory behind the old
//! address is released when that address is unmapped; until then both addresses may have memory. In
//! return, the memory is private to the process and backed by the processor's large pages. Shared files
//! in memory mostly are not.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ur::abi::*;
use ur::object::{Error, Result, ensure};
use ur::stream::Kind;

use crate::adapter::system_error;
use crate::cpu::memory_bytes;

pub const PAGE_BYTES: usize = 2 << 20;

/// Start of the reservations whose addresses are equal in every run. The system puts nothing near it.
const FIXED_START: usize = 0x2000_0000_0000;

/// Reserves addresses without access, aligned to a page. With `fixed`, processes that make the same
/// calls get the same addresses, if the system has them free.
pub fn reserve(bytes: usize, fixed: bool) -> Result<usize> {
    let found = match fixed {
        true => reserve_fixed(bytes),
        false => None,
    };
    let base = match found {
        Some(base) => base,
        None => reserve_anywhere(bytes)?,
    };
    // SAFETY: advice on our own mapping changes no content.
    unsafe { libc::madvise(pointer(base), bytes, libc::MADV_HUGEPAGE) };
    Ok(base)
}

fn reserve_anywhere(bytes: usize) -> Result<usize> {
    let none = UR_RESULT_ERROR_OUT_OF_RESOURCES;
    // One page more, to align the start.
    let reserved = bytes.checked_add(PAGE_BYTES).ok_or(Error::new(none))?;
    let start =
        map_nothing(0, reserved, 0).ok_or_else(|| system_error(none, "reserving addresses"))?;
    let base = start.next_multiple_of(PAGE_BYTES);
    unreserve(start, base - start);
    unreserve(base + bytes, start + reserved - base - bytes);
    Ok(base)
}

fn reserve_fixed(bytes: usize) -> Option<usize> {
    static NEXT: AtomicUsize = AtomicUsize::new(FIXED_START);
    // A size beyond any address space must not advance `NEXT`.
    let step = bytes
        .checked_next_multiple_of(PAGE_BYTES)
        .filter(|step| *step < FIXED_START)?;
    let base = NEXT.fetch_add(step, Ordering::Relaxed);
    let start = map_nothing(base, bytes, libc::MAP_FIXED_NOREPLACE)?;
    if start != base {
        // A system before Linux 4.17 takes the address as a hint.
        unreserve(start, bytes);
        return None;
    }
    Some(base)
}

fn map_nothing(at: usize, bytes: usize, flag: i32) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | flag;
    // SAFETY: the flags replace no existing mapping.
    let start = unsafe { libc::mmap(pointer(at), bytes, libc::PROT_NONE, flags, -1, 0) };
    (start != libc::MAP_FAILED).then(|| start.expose_provenance())
}

pub fn unreserve(addr: usize, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the caller owns the reservation and gives it up.
        unsafe { libc::munmap(pointer(addr), bytes) };
    }
}

/// Names `count` new pages. Out of memory if the machine has less memory in all.
pub fn create(kind: Kind, count: usize) -> Result<Vec<u64>> {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    let none = kind.exhausted();
    let bytes = count.checked_mul(PAGE_BYTES).ok_or(Error::new(none))?;
    ensure(bytes as u64 <= memory_bytes(), none)?;
    let first = NAMES.fetch_add(count as u64, Ordering::Relaxed);
    Ok((first..first + count as u64).collect())
}

/// Makes `count` pages at `addr` usable. They are zero.
pub fn map(addr: usize, count: usize) -> Result<()> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the pages are a part of the caller's reservation that nothing uses yet.
    if unsafe { libc::mprotect(pointer(addr), count * PAGE_BYTES, protection) } != 0 {
        return Err(system_error(
            UR_RESULT_ERROR_OUT_OF_RESOURCES,
            "making memory usable",
        ));
    }
    Ok(())
}

/// Returns the memory of the pages in a range to the system, and forbids access to the range.
pub fn unmap(addr: usize, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the range is a part of the caller's reservation, and its use is over.
        unsafe {
            libc::madvise(pointer(addr), bytes, libc::MADV_DONTNEED);
            libc::mprotect(pointer(addr), bytes, libc::PROT_NONE);
        }
    }
}

fn pointer(address: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zero_again_once_they_were_unmapped() -> Result<()> {
        let base = reserve(4 * PAGE_BYTES, false)?;
        assert!(base.is_multiple_of(PAGE_BYTES));
        map(base + PAGE_BYTES, 2)?;
        let byte = ptr::with_exposed_provenance_mut::<u8>(base + 2 * PAGE_BYTES);
        // SAFETY: the second of the two pages mapped.
        unsafe {
            assert_eq!(byte.read(), 0);
            byte.write(7);
        }
        unmap(base + PAGE_BYTES, 2 * PAGE_BYTES);
        map(base + 2 * PAGE_BYTES, 2)?;
        // SAFETY: the first of the two pages mapped.
        assert_eq!(unsafe { byte.read() }, 0);
        unreserve(base, 4 * PAGE_BYTES);
        Ok(())
    }

    #[test]
    fn fixed_addresses_are_taken_in_turn() -> Result<()> {
        let first = reserve(3 * PAGE_BYTES, true)?;
        let second = reserve(PAGE_BYTES, true)?;
        // A sanitizer keeps programs away from there.
        if (FIXED_START..2 * FIXED_START).contains(&first) {
            assert!(second >= first + 3 * PAGE_BYTES && second < 2 * FIXED_START);
        }
        // Too much for any machine costs the next one nothing.
        assert!(reserve(usize::MAX / 2, true).is_err());
        let third = reserve(PAGE_BYTES, true)?;
        assert!(first >= 2 * FIXED_START || third < 2 * FIXED_START);
        for (base, count) in [(first, 3), (second, 1), (third, 1)] {
            unreserve(base, count * PAGE_BYTES);
        }
        Ok(())
    }

    #[test]
    fn no_more_than_the_machine_has() -> Result<()> {
        let names = [create(Kind::Device, 2)?, create(Kind::Device, 1)?].concat();
        assert!(names[0] != names[1] && !names[..2].contains(&names[2]));
        let all = memory_bytes() as usize / PAGE_BYTES;
        assert!(create(Kind::Host, all + 1).is_err() && create(Kind::Host, usize::MAX).is_err());
        Ok(())
    }
}

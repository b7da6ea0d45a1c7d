//! Semaphores of another interface, imported by file descriptors.
//!
//! The other interface is this library too: memory is a file in memory, of `scripted_external_memory`, and a semaphore a
//! file with its count, of `scripted_semaphore`. An import leaves the descriptor with the caller.

use std::ffi::c_int;
use std::os::fd::IntoRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use ze::*;

use crate::entry::{Answer, array, chained, given, put};
use crate::image::{Uses, Using};
use crate::memory::{self, Mapped};
use crate::object::Objects;
use crate::{device, pages, script};

/// The count of a semaphore, and a mark of its kind.
const BYTES: usize = 16;
const MARKS: [(ze_external_semaphore_ext_flags_t, u64); 2] = [
    (
        ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_OPAQUE_FD,
        0x5eed_5e3a_0000_0001,
    ),
    (
        ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_VK_TIMELINE_SEMAPHORE_FD,
        0x5eed_5e3a_0000_0002,
    ),
];

/// The time after which a wait looks again.
const PAUSE: Duration = Duration::from_millis(1);

pub struct Semaphore {
    device: usize,
    uses: Uses,
    memory: Mapped,
    counts: bool,
}

pub static SEMAPHORES: Objects<Semaphore> = Objects::of("external semaphore");

/// A command on a semaphore.
pub struct Command {
    semaphore: Arc<Semaphore>,
    value: u64,
    is_wait: bool,
}

impl Semaphore {
    fn word(&self, index: usize) -> &AtomicU64 {
        let at = std::ptr::with_exposed_provenance_mut(self.memory.start + 8 * index);
        // SAFETY: two aligned numbers are mapped while this lives.
        unsafe { AtomicU64::from_ptr(at) }
    }

    /// Whether a wait may pass. A binary semaphore's count is taken then.
    fn passes(&self, value: u64) -> bool {
        let count = self.word(0);
        match self.counts {
            true => count.load(Ordering::Acquire) >= value,
            false => {
                let taken = count.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Relaxed);
                taken.is_ok()
            }
        }
    }
}

impl Command {
    pub fn begin(&self) -> Using {
        self.semaphore.uses.begin()
    }

    pub fn run(&self) -> Answer {
        if !self.is_wait {
            let count = if self.semaphore.counts { self.value } else { 1 };
            self.semaphore.word(0).store(count, Ordering::Release);
            return Ok(());
        }
        while !self.semaphore.passes(self.value) {
            script::present()?;
            sleep(PAUSE);
        }
        Ok(())
    }
}

/// The commands of an append, one for each semaphore.
///
/// # Safety
/// Both lists have `count` elements.
pub unsafe fn commands<T>(
    count: u32,
    semaphores: *const ze_external_semaphore_ext_handle_t,
    values: *const T,
    value: impl Fn(&T) -> u64,
    is_wait: bool,
) -> Answer<Vec<Command>> {
    // SAFETY: as the caller promises.
    let (semaphores, values) = unsafe {
        (
            array(semaphores, count as usize)?,
            array(values, count as usize)?,
        )
    };
    let each = semaphores.iter().zip(values).map(|(one, of)| {
        Ok(Command {
            semaphore: SEMAPHORES.get(one.0)?,
            value: value(of),
            is_wait,
        })
    });
    each.collect()
}

entries! {
    fn zeDeviceImportExternalSemaphoreExt(
        device: ze_device_handle_t, desc: *const ze_external_semaphore_ext_desc_t,
        out: *mut ze_external_semaphore_ext_handle_t,
    ) {
        let device = device::index(device)?;
        script::present()?;
        let desc = given(desc)?;
        let known = MARKS.iter().position(|(flag, _)| *flag == desc.flags);
        let known = known.ok_or(ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION)?;
        let file = chained::<ze_external_semaphore_fd_ext_desc_t>(desc.pNext);
        let file = file.ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?.fd;
        let file = memory::duplicate(file, BYTES)?;
        let memory = Mapped::of(file, BYTES).ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
        let own = Semaphore { device, uses: Uses::default(), memory, counts: known == 1 };
        if own.word(1).load(Ordering::Relaxed) != MARKS[known].1 {
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        put(out, ze_external_semaphore_ext_handle_t(SEMAPHORES.add(|_| own)))
    }

    fn zeDeviceReleaseExternalSemaphoreExt(semaphore: ze_external_semaphore_ext_handle_t) {
        let own = SEMAPHORES.remove(semaphore.0)?;
        own.uses.check_over("semaphore", own.device);
        Ok(())
    }
}

/// Memory of another interface, as a descriptor of the caller's, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_external_memory(bytes: usize) -> c_int {
    pages::file_of(bytes).map_or(-1, IntoRawFd::into_raw_fd)
}

/// A semaphore of another interface with the count 0, as a descriptor of the caller's, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_semaphore(counts: bool) -> c_int {
    let Ok(file) = pages::file_of(BYTES) else {
        return -1;
    };
    let raw = file.into_raw_fd();
    write(raw, 1, MARKS[usize::from(counts)].1);
    raw
}

/// The count of a semaphore, by a descriptor of it.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_semaphore_count(semaphore: c_int) -> u64 {
    let mut count = 0_u64;
    // SAFETY: room for the bytes of the count.
    unsafe { libc::pread(semaphore, (&raw mut count).cast(), 8, 0) };
    count
}

/// Sets the count of a semaphore, by a descriptor of it, as the other interface does.
#[unsafe(no_mangle)]
pub extern "C" fn scripted_semaphore_set(semaphore: c_int, count: u64) {
    write(semaphore, 0, count);
}

fn write(file: c_int, index: i64, word: u64) {
    // SAFETY: so many bytes are readable.
    unsafe { libc::pwrite(file, (&raw const word).cast(), 8, 8 * index) };
}

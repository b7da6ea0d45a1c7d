//! A page of memory that several processes share.

use crate::abi::{UR_RESULT_ERROR_INVALID_VALUE, UR_RESULT_ERROR_OUT_OF_RESOURCES};
use crate::object::{Error, Result, ensure};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;

const BYTES: usize = 4096;

/// Zeros, until a process writes. Lives in each process until the process drops it.
pub struct SharedPage {
    file: OwnedFd,
    at: NonNull<AtomicU64>,
}

// SAFETY: the page is memory that any thread may use, and this owns the mapping.
unsafe impl Send for SharedPage {}
// SAFETY: all access to the page is atomic.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    pub const WORDS: usize = BYTES / size_of::<AtomicU64>();

    pub fn new() -> Result<Self> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string.
        let raw = unsafe { libc::memfd_create(c"unified-runtime".as_ptr(), flags) };
        if raw < 0 {
            return Err(lacking());
        }
        // SAFETY: a new descriptor, which nobody else owns.
        let file = unsafe { File::from_raw_fd(raw) };
        file.set_len(BYTES as u64).map_err(|_| lacking())?;
        // A process that made the file smaller would stop the others.
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: an open descriptor of a file that can be sealed.
        let sealed = unsafe { libc::fcntl(raw, libc::F_ADD_SEALS, seals) };
        ensure(sealed == 0, UR_RESULT_ERROR_OUT_OF_RESOURCES)?;
        Self::map(file.into())
    }

    /// The page of another process, by a descriptor. `INVALID_VALUE` if it is none.
    pub fn open(file: &OwnedFd) -> Result<Self> {
        let wrong = Error::new(UR_RESULT_ERROR_INVALID_VALUE);
        let file = File::from(file.try_clone().map_err(|_| lacking())?);
        // SAFETY: an open descriptor.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        let bytes = file.metadata().map_err(|_| wrong)?.len();
        let whole = seals >= 0 && seals & libc::F_SEAL_SHRINK != 0 && bytes == BYTES as u64;
        ensure(whole, UR_RESULT_ERROR_INVALID_VALUE)?;
        Self::map(file.into())
    }

    fn map(file: OwnedFd) -> Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let raw = file.as_raw_fd();
        // SAFETY: a new mapping of an open file, where the system chooses.
        let at = unsafe { libc::mmap(null_mut(), BYTES, access, libc::MAP_SHARED, raw, 0) };
        ensure(at != libc::MAP_FAILED, UR_RESULT_ERROR_OUT_OF_RESOURCES)?;
        let at = NonNull::new(at.cast()).ok_or(lacking())?;
        Ok(Self { file, at })
    }

    /// A new descriptor of the page.
    pub fn descriptor(&self) -> Result<OwnedFd> {
        self.file.try_clone().map_err(|_| lacking())
    }

    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the page is mapped while this lives, cannot shrink, and has so many aligned words.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), Self::WORDS) }
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: mapped by this, and no reference is left.
        unsafe { libc::munmap(self.at.as_ptr().cast(), BYTES) };
    }
}

fn lacking() -> Error {
    let code = io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or_default();
    Error::native(UR_RESULT_ERROR_OUT_OF_RESOURCES, code, "a shared page")
}

/// A new descriptor of the same file. `INVALID_VALUE` if the number is none.
pub fn duplicate(descriptor: i32) -> Result<OwnedFd> {
    ensure(descriptor >= 0, UR_RESULT_ERROR_INVALID_VALUE)?;
    // SAFETY: the system refuses a number that is no open descriptor.
    let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let wrong = Error::new(UR_RESULT_ERROR_INVALID_VALUE);
    file.try_clone_to_owned().map_err(|_| wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn both_sides_see_the_same_words() -> Result<()> {
        let own = SharedPage::new()?;
        let other = SharedPage::open(&own.descriptor()?)?;
        own.words()[SharedPage::WORDS - 1].store(7, Ordering::Release);
        assert_eq!(
            other.words()[SharedPage::WORDS - 1].load(Ordering::Acquire),
            7
        );
        Ok(())
    }

    #[test]
    fn another_file_is_no_page() {
        let file = File::open("/proc/self/exe").expect("this program");
        let opened = SharedPage::open(&file.into()).map(drop);
        assert_eq!(opened, Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE)));
        let wrong = duplicate(-1).map(drop);
        assert_eq!(wrong, Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE)));
    }
}

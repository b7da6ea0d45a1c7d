//! The driver's side: which call fails, and what a test can see.

use std::ffi::{CStr, c_char};

/// A call that fails.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Fault<Code> {
    /// The index of the call from now, from 1; 0 for none, [`EACH`] for every one.
    pub nth: u64,
    /// The driver's error code.
    pub code: Code,
}

/// Every call fails.
pub const EACH: u64 = u64::MAX;

/// The state that a test can see.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Answer {
    /// Number of calls since the script was set that could fail.
    pub calls: u64,
    /// Whether the fault was reached.
    pub met: bool,
    /// Number of live objects.
    pub live: usize,
    /// Number of calls that the driver's interface forbids, such as with dead handles.
    pub broken: u64,
    /// Number of calls of functions that are not implemented.
    pub missed: u64,
}

/// The fault of a script, and the calls so far.
#[derive(Default)]
pub struct Faults<Code> {
    pub fault: Fault<Code>,
    /// If not empty, only calls of this name count.
    pub only: String,
    pub calls: u64,
    /// The call that failed last.
    pub met: Option<&'static str>,
}

impl<Code: Copy + Default> Faults<Code> {
    /// A fault of calls of one name, or of any for null.
    ///
    /// # Safety
    /// `only` is null or a C string.
    pub unsafe fn new(fault: Fault<Code>, only: *const c_char) -> Self {
        let only = match only.is_null() {
            true => String::new(),
            // SAFETY: the caller passes null or a C string.
            false => unsafe { CStr::from_ptr(only) }
                .to_string_lossy()
                .into_owned(),
        };
        Self {
            fault,
            only,
            ..Self::default()
        }
    }

    /// Counts a call and returns the code that it must fail with. A spared one fails only if its name is the script's.
    pub fn called(&mut self, name: &'static str, is_spared: fn(&str) -> bool) -> Option<Code> {
        let counts = match self.only.is_empty() {
            true => !is_spared(name),
            false => self.only == name,
        };
        if !counts {
            return None;
        }
        self.calls += 1;
        let hit = self.fault.nth == self.calls || self.fault.nth == EACH;
        if hit {
            self.met = Some(name);
        }
        hit.then_some(self.fault.code)
    }

    /// The call that failed last, for a report.
    pub fn failed(&self) -> &'static str {
        self.met.unwrap_or("nothing")
    }
}

/// Writes a text, cut to the buffer and terminated with a NUL.
///
/// # Safety
/// `buffer` has room for `size` bytes.
pub unsafe fn write_text(text: &str, buffer: *mut c_char, size: usize) {
    if size == 0 {
        return;
    }
    let bytes = &text.as_bytes()[..text.len().min(size - 1)];
    // SAFETY: the caller passes `size` writable bytes; one byte more is left.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len());
        buffer.add(bytes.len()).write(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null;

    fn is_spared(name: &str) -> bool {
        name == "free"
    }

    fn faults(nth: u64, only: Option<&CStr>) -> Faults<u32> {
        // SAFETY: null or a C string.
        unsafe { Faults::new(Fault { nth, code: 7 }, only.map_or(null(), CStr::as_ptr)) }
    }

    #[test]
    fn the_nth_call_that_counts_fails() {
        let mut any = faults(2, None);
        let codes = ["alloc", "free", "alloc", "alloc"].map(|name| any.called(name, is_spared));
        assert_eq!(codes, [None, None, Some(7), None]);
        assert_eq!((any.calls, any.failed()), (3, "alloc"));
        let mut named = faults(EACH, Some(c"free"));
        let codes = ["alloc", "free", "free"].map(|name| named.called(name, is_spared));
        assert_eq!(codes, [None, Some(7), Some(7)], "also one that is spared");
    }

    #[test]
    fn a_text_is_cut_to_its_room() {
        let mut room = [b'-'; 4];
        // SAFETY: a writable buffer of this size.
        unsafe { write_text("abcdef", room.as_mut_ptr().cast(), 3) };
        assert_eq!(&room, b"ab\0-");
    }
}

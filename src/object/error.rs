//! Errors as small values: a result code. The native code and message of a thread's latest failure
//! are stored for `urAdapterGetLastError`.

use crate::abi::*;
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::hint::cold_path;

/// A result other than success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Error(ur_result_t);

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with this code. `SUCCESS` is no error and becomes `UNKNOWN`.
    pub const fn new(code: ur_result_t) -> Self {
        if code.0 == UR_RESULT_SUCCESS.0 {
            Self(UR_RESULT_ERROR_UNKNOWN)
        } else {
            Self(code)
        }
    }

    pub const fn code(self) -> ur_result_t {
        self.0
    }

    /// The error of an unsupported feature.
    pub const fn unsupported() -> Self {
        Self(UR_RESULT_ERROR_UNSUPPORTED_FEATURE)
    }

    /// A failure of the backend. Stores its code and message for `urAdapterGetLastError`.
    pub fn native(code: ur_result_t, native: i32, message: &str) -> Self {
        set_last(native, message);
        Self::new(code)
    }

    /// Stores the backend's message for `urAdapterGetLastError`, and keeps the stored native code.
    /// An empty text stores nothing.
    pub fn explained(self, text: &str) -> Self {
        let text = text.trim_matches(['\0', ' ', '\n']);
        if !text.is_empty() {
            set_last(last().0, text);
        }
        self
    }
}

impl From<ur_result_t> for Error {
    fn from(code: ur_result_t) -> Self {
        Self::new(code)
    }
}

/// `Err(code)` unless the condition holds.
#[inline(always)]
pub fn ensure(condition: bool, code: ur_result_t) -> Result<()> {
    if condition {
        Ok(())
    } else {
        // Marked cold, since checks are frequent and failures are not.
        cold_path();
        Err(Error::new(code))
    }
}

struct Last {
    native: i32,
    message: CString,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

fn set_last(native: i32, message: &str) {
    let clean: String = message.chars().filter(|&letter| letter != '\0').collect();
    let message = CString::new(clean).unwrap_or_default();
    // A thread that is ending has no storage. Its last error is lost.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Some(Last { native, message }));
}

/// The code and message of this thread's latest native error, valid until its next failure. 0 and
/// empty without one.
pub fn last() -> (i32, *const std::ffi::c_char) {
    LAST.try_with(|last| match &*last.borrow() {
        Some(last) => (last.native, last.message.as_ptr()),
        None => (0, c"".as_ptr()),
    })
    .unwrap_or((0, CStr::as_ptr(c"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_is_the_thread_s_own() {
        let error = Error::native(UR_RESULT_ERROR_DEVICE_LOST, 7, "it\0 broke");
        assert_eq!(error.code(), UR_RESULT_ERROR_DEVICE_LOST);
        let (native, text) = last();
        // SAFETY: `last` returns a string that is valid until this thread's next failure.
        assert_eq!((native, unsafe { CStr::from_ptr(text) }), (7, c"it broke"));
        assert_eq!(std::thread::spawn(|| last().0).join().ok(), Some(0));
    }

    #[test]
    fn an_explanation_keeps_the_code() {
        let error = Error::native(UR_RESULT_ERROR_PROGRAM_LINK_FAILURE, -17, "it failed");
        let said = || {
            let (native, text) = last();
            // SAFETY: `last` returns a string that is valid until this thread's next failure.
            (native, unsafe { CStr::from_ptr(text) }.to_owned())
        };
        assert_eq!(error.explained(" \n\0"), error);
        assert_eq!(said(), (-17, c"it failed".to_owned()), "nothing to add");
        assert_eq!(error.explained("f is undefined\n\0"), error);
        assert_eq!(said(), (-17, c"f is undefined".to_owned()));
    }

    #[test]
    fn success_is_no_error() {
        assert_eq!(
            Error::new(UR_RESULT_SUCCESS).code(),
            UR_RESULT_ERROR_UNKNOWN
        );
    }
}

//! Values of the C interface as text, for logs, traces and `urPrint*`.
//!
//! `form` says as data how each type lies in memory and reads, `calls` the same of the arguments of
//! calls, and `walk` turns a form and an address into text. The texts are the reference's, where it
//! follows no rule too: the tables `UNUSUAL` have those places.

mod calls;
mod form;
mod walk;

use std::ffi::c_char;

pub use calls::{Call, NoArguments, Passed, arguments};
pub(in crate::abi) use form::{
    Form, Member, Number, PropertyForm, Reads, Struct, Union, place, same,
};

use crate::abi::*;

/// What an undefined enumerator prints.
const UNKNOWN: &str = "unknown enumerator";

/// A value that has a text.
pub trait Print {
    /// Appends the text of the value.
    ///
    /// # Safety
    /// Every pointer in the value that the specification lets a callee read is null or readable.
    unsafe fn print(&self, out: &mut Out);
}

impl<T: Reads> Print for T {
    unsafe fn print(&self, out: &mut Out) {
        let at = std::ptr::from_ref(self).cast();
        // SAFETY: the value is readable and reads so; the caller guarantees that its pointers are readable.
        unsafe { walk::value(&T::FORM, at, &walk::Owner::NONE, out) };
    }
}

/// One bit of a flag set, printed as an enumerator.
#[repr(transparent)]
pub struct Bit<T>(pub T);

impl<T: Reads> Reads for Bit<T> {
    const FORM: Form = match T::FORM {
        Form::Flags(names) => Form::Bit(names),
        other => other,
    };
}

/// The text of a value. Bytes of C strings that are not UTF-8 are replaced.
///
/// # Safety
/// As for [`Print::print`].
pub unsafe fn text(value: &dyn Print) -> String {
    let mut out = Out::default();
    // SAFETY: the caller guarantees that the value's pointers are readable.
    unsafe { value.print(&mut out) };
    out.into_text()
}

/// Writes the text of a value and a zero byte to a C buffer, which may be null when only the size
/// is wanted. A buffer that is too small is `INVALID_SIZE` and left alone; the size is set even so.
///
/// # Safety
/// As for [`Print::print`]; `buffer` is null or `size` bytes long, `size_ret` null or writable.
pub unsafe fn to_buffer(
    value: &dyn Print,
    buffer: *mut c_char,
    size: usize,
    size_ret: *mut usize,
) -> ur_result_t {
    let mut out = Out::default();
    // SAFETY: the caller guarantees that the value's pointers are readable.
    unsafe { value.print(&mut out) };
    let text = out.text;
    let needed = text.len() + 1;
    if !size_ret.is_null() {
        // SAFETY: not null, so writable.
        unsafe { size_ret.write_unaligned(needed) };
    }
    if buffer.is_null() {
        return UR_RESULT_SUCCESS;
    }
    if size < needed {
        return UR_RESULT_ERROR_INVALID_SIZE;
    }
    // SAFETY: the buffer is not null and has room for the text and its zero byte.
    unsafe {
        buffer
            .cast::<u8>()
            .copy_from_nonoverlapping(text.as_ptr(), text.len());
        buffer.add(text.len()).write(0);
    }
    UR_RESULT_SUCCESS
}

/// A text in the making.
#[derive(Default)]
pub struct Out {
    text: Vec<u8>,
    chain: usize,
    brief: bool,
}

impl Out {
    /// A text that shows the beginnings of long lists and strings only.
    pub fn brief() -> Out {
        Out {
            brief: true,
            ..Out::default()
        }
    }

    /// What was printed. Bytes that are not UTF-8 are replaced.
    pub fn into_text(self) -> String {
        String::from_utf8(self.text)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    fn push(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    fn show(&mut self, value: impl std::fmt::Display) {
        use std::fmt::Write as _;
        // Appending to memory cannot fail.
        let _ = write!(self, "{value}");
    }
}

impl std::fmt::Write for Out {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.push(text);
        Ok(())
    }
}

//! Readers of a caller's programs, for the fuzz targets: a program is untrusted input.

use ur::abi::ur_program_properties_t;

use crate::program::exports;

/// The names that a shared object exports. The error says what is wrong with it.
pub fn shared_object(bytes: &[u8]) -> Result<usize, &'static str> {
    exports(bytes).map(|symbols| symbols.len())
}

/// Whether `urProgramCreateWithBinary` accepts this metadata.
///
/// # Safety
/// The entries, their names and the memory that they point to are readable for the call.
pub unsafe fn metadata(properties: &ur_program_properties_t) -> bool {
    // SAFETY: the caller promises readable entries.
    unsafe { crate::program::Metadata::read(Some(properties)) }.is_ok()
}

/// Whether these bytes are a program, as a path or as a table.
///
/// # Safety
/// The bytes are no shared object, which would be loaded.
pub unsafe fn image(bytes: &[u8]) -> bool {
    // SAFETY: the slice is readable, and no function of a table is called.
    unsafe { crate::program::Image::load(bytes.as_ptr(), bytes.len()) }.is_ok()
}

/// Whether these words are a table of kernels.
///
/// # Safety
/// The words are neither a shared object nor a path. No function of the table is called.
pub unsafe fn table(words: &[usize]) -> bool {
    // SAFETY: the slice is readable; whether its end is there is checked.
    unsafe { crate::program::Image::load(words.as_ptr().cast(), size_of_val(words)) }.is_ok()
}

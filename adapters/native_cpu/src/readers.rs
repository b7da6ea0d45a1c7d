//! What reads a caller's programs, for the fuzz targets: a program is a caller's text in all but name.

use ur::abi::ur_program_properties_t;

use crate::program::exports;

/// The names that a shared object exports, or what is wrong with it.
pub fn shared_object(bytes: &[u8]) -> Result<usize, &'static str> {
    exports(bytes).map(|symbols| symbols.len())
}

/// Whether `urProgramCreateWithBinary` takes this metadata.
///
/// # Safety
/// The entries, their names and what they point to are as they say, for the call.
pub unsafe fn metadata(properties: &ur_program_properties_t) -> bool {
    // SAFETY: the caller's promise.
    unsafe { crate::program::Metadata::read(Some(properties)) }.is_ok()
}

/// Whether these bytes are a program, as a path or as a table.
///
/// # Safety
/// They are no shared object: that one would be loaded.
pub unsafe fn image(bytes: &[u8]) -> bool {
    // SAFETY: the bytes are there; a table's functions are not called.
    unsafe { crate::program::Image::load(bytes.as_ptr(), bytes.len()) }.is_ok()
}

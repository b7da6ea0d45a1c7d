//! Names of adapters: `native_cpu` for a handle whose table is in `libur_adapter_native_cpu.so.0`.
//!
//! Owns the mapping from a handle to its adapter's name. With one adapter no handle is read, so
//! that tracing adds no risk to a call with a dead handle.

use std::ffi::{CStr, c_void};
use std::path::Path;
use std::sync::{PoisonError, RwLock};

use ur::abi::ur_dditable_t;

use super::pattern::Patterns;

/// Names by the address of the table. There are few tables, and each is looked up once.
static NAMES: RwLock<Vec<(usize, &'static str)>> = RwLock::new(Vec::new());

pub struct Adapters {
    several: bool,
}

impl Adapters {
    /// The adapters that are loaded now.
    pub fn loaded() -> Adapters {
        let count = crate::state::adapters().map_or(0, |list| list.len());
        Adapters { several: count > 1 }
    }

    /// The name of a handle's adapter. None for a null handle, or if there is one adapter and no
    /// filter.
    ///
    /// # Safety
    /// The handle is null or begins with a pointer to a table.
    pub unsafe fn of(&self, handle: *const c_void, filter: &Patterns) -> Option<&'static str> {
        if handle.is_null() || (!self.several && filter.is_empty()) {
            return None;
        }
        // SAFETY: not null, and the caller guarantees a handle that starts with a pointer to a
        // table.
        let table = unsafe { handle.cast::<*const ur_dditable_t>().read() };
        if table.is_null() {
            return None;
        }
        if let Some(name) = known(&NAMES.read().unwrap_or_else(PoisonError::into_inner), table) {
            return Some(name);
        }
        // SAFETY: a handle's table is readable while its library is loaded, and the loader keeps it
        // loaded.
        let name = unsafe { library(table) }?;
        let mut names = NAMES.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = known(&names, table) {
            return Some(name);
        }
        let name: &'static str = Box::leak(name.into_boxed_str());
        names.push((table.addr(), name));
        Some(name)
    }
}

fn known(names: &[(usize, &'static str)], table: *const ur_dditable_t) -> Option<&'static str> {
    let found = names.iter().find(|(own, _)| *own == table.addr());
    found.map(|(_, name)| *name)
}

/// The name of the library that contains a table's functions.
///
/// # Safety
/// The table is readable.
unsafe fn library(table: *const ur_dditable_t) -> Option<String> {
    let words = size_of::<ur_dditable_t>() / size_of::<usize>();
    // SAFETY: the caller guarantees a readable table, which the generator declares as function
    // pointers only.
    let slots = unsafe { std::slice::from_raw_parts(table.cast::<usize>(), words) };
    let function = slots.iter().find(|slot| **slot != 0)?;
    let mut found = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: `dladdr` accepts any address; `found` is a local variable.
    let known = unsafe { libc::dladdr(*function as *const c_void, &mut found) };
    if known == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: `dladdr` found the library, whose name is a C string while it is loaded.
    let path = unsafe { CStr::from_ptr(found.dli_fname) }.to_string_lossy();
    Some(short(&path))
}

/// `native_cpu` for `/x/libur_adapter_native_cpu.so.0`; the file's stem for other names.
fn short(path: &str) -> String {
    let file = Path::new(path).file_name().unwrap_or_default();
    let file = file.to_string_lossy();
    let stem = file.split(".so").next().unwrap_or_default();
    stem.strip_prefix("libur_adapter_")
        .unwrap_or(stem)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn adapters_are_called_as_selectors_call_them() {
        assert_eq!(
            short("/opt/ur/lib/libur_adapter_native_cpu.so.0"),
            "native_cpu"
        );
        assert_eq!(short("libur_adapter_opencl.so"), "opencl");
        assert_eq!(short("/x/other.so.1.2"), "other");
        assert_eq!(short("program"), "program");
    }
}

//! The tables that the real loader asks for.
//!
//! A table gets no more entries than the version asked for has: an older loader has no room for more. No entry is
//! null: a function that is not implemented, or that the script takes away, answers that the feature is unsupported.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::OnceLock;

use ze::ddi::{Opaque, TABLES};
use ze::*;

use crate::script;

/// A function of the interface, whatever its type.
pub struct Entry {
    pub name: &'static str,
    pub function: Opaque,
}

/// All that is implemented.
const MODULES: &[&[Entry]] = &[
    crate::append::ENTRIES,
    crate::context::ENTRIES,
    crate::device::ENTRIES,
    crate::driver::ENTRIES,
    crate::event::ENTRIES,
    crate::external::ENTRIES,
    crate::image::ENTRIES,
    crate::graph::ENTRIES,
    crate::kernel::ENTRIES,
    crate::list::ENTRIES,
    crate::memory::ENTRIES,
    crate::module::ENTRIES,
    crate::mutate::ENTRIES,
    crate::pages::ENTRIES,
    crate::queue::ENTRIES,
    crate::system::ENTRIES,
    crate::driver::OTHERS,
];

/// An implemented function, if the script leaves it.
pub fn find(name: &str) -> Option<Opaque> {
    static ALL: OnceLock<HashMap<&'static str, Opaque>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let entries = MODULES.iter().copied().flatten();
        entries.map(|entry| (entry.name, entry.function)).collect()
    });
    let found = all.get(name).copied();
    found.filter(|_| !script::is_without(name))
}

macro_rules! exports {
    ($($getter:ident $table:ident [$($lengths:tt)*] {
        $($member:ident $function:ident $form:ident,)*
    })*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $getter(version: ze_api_version_t, table: *mut c_void) -> ze_result_t {
                // SAFETY: the caller has room for what the version promises.
                unsafe { fill(stringify!($getter), version, table.cast()) }
            }
        )*

        /// What stands for a function that is missing. A caller's arguments do not matter to it.
        fn missing(name: &str) -> Opaque {
            match name {
                $($(stringify!($function) => {
                    unsafe extern "C" fn stub() -> ze_result_t {
                        script::missed(stringify!($function));
                        ZE_RESULT_ERROR_UNSUPPORTED_FEATURE
                    }
                    stub
                })*)*
                _ => unsupported,
            }
        }
    };
}
for_each_table! { exports }

use ze::for_each_table;

/// Exports functions that are not implemented: a program without a loader may need them to start.
macro_rules! unimplemented_exports {
    ($($function:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $function() -> ze_result_t {
                script::missed(stringify!($function));
                ZE_RESULT_ERROR_UNSUPPORTED_FEATURE
            }
        )*
    };
}
unimplemented_exports! {
    zeCommandListAppendLaunchMultipleKernelsIndirect
    zeDeviceReserveCacheExt
    zeDeviceSetCacheAdviceExt
    zeImageGetAllocPropertiesExt
    zeImageViewCreateExp
    zeModuleInspectLinkageExt
}

unsafe extern "C" fn unsupported() -> ze_result_t {
    ZE_RESULT_ERROR_UNSUPPORTED_FEATURE
}

/// # Safety
/// The table has room for what the version promises.
unsafe fn fill(getter: &str, version: ze_api_version_t, table: *mut Opaque) -> ze_result_t {
    let Some(facts) = TABLES.iter().find(|table| table.getter == getter) else {
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    };
    if table.is_null() {
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    }
    let length = facts.length(version);
    if length == 0 {
        return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
    }
    for (index, name) in facts.functions.iter().take(length).enumerate() {
        let function = find(name).unwrap_or_else(|| missing(name));
        // SAFETY: the index is below the length that there is room for.
        unsafe { table.add(index).write(function) };
    }
    ZE_RESULT_SUCCESS
}

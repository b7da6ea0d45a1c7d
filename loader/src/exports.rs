//! The library's exports: every function of the tables, dispatched through the application's table.
//!
//! Frequently called functions skip that table while no layer is in use; [`if_direct`] names them.
//! A symbol's `.symver` directive stands in the function's own module, since unoptimised builds
//! drop it elsewhere.

#![allow(non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments)]

use std::arch::global_asm;
use std::ffi::{c_char, c_void};

use ur::abi::*;

use crate::dispatch::{clear, functions, if_direct};
use crate::state;

macro_rules! version {
    ($name:ident) => {
        global_asm!(concat!(
            ".symver ",
            stringify!($name),
            ", ",
            stringify!($name),
            "@@@LIBUR_LOADER_0.12"
        ));
    };
}

macro_rules! exports {
    ($( $table:ident $struct:ident { $(
        $name:ident $slot:ident $pfn:ident $params:ident $leader:tt (
            $( $arg:ident : $ty:ty = $mutability:tt $field:ident $form:tt ),*
        )
    )* } )*) => { $( $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($( $arg: $ty ),*) -> ur_result_t {
            $( clear!($arg $form); )*
            if_direct! { $table $leader
                if state::is_direct() {
                    // SAFETY: the caller's arguments are forwarded unchanged, under the
                    // specification's contract.
                    return unsafe { functions::$name($( $arg ),*) };
                }
            }
            match state::app_table().and_then(|table| table.$table.$slot) {
                // SAFETY: the caller's arguments are forwarded unchanged, under the specification's
                // contract.
                Some(function) => unsafe { function($( $arg ),*) },
                None => UR_RESULT_ERROR_UNINITIALIZED,
            }
        }
        version!($name);
    )* )* };
}
ur::for_each_function! { exports }

macro_rules! getters {
    ($( $table:ident $struct:ident $getter:ident $pfn:ident $slots:literal )*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $getter(
            version: ur_api_version_t,
            pDdiTable: *mut $struct,
        ) -> ur_result_t {
            // SAFETY: the caller guarantees that `pDdiTable` is null or writable.
            unsafe { state::copy_table(version, pDdiTable, |table| &table.$table) }
        }
        version!($getter);
    )* };
}
ur::for_each_table! { getters }

//! What the library exports for applications: every function of the tables, through the table in
//! force.
//!
//! Functions that programs call most skip that table while no layer is on: [`if_direct`] says which.
//! A symbol's version directive stands in the function's own module: elsewhere unoptimised builds
//! would drop it.

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
        $number:literal $name:ident $slot:ident $pfn:ident $params:ident $leader:tt (
            $( $arg:ident : $ty:ty = $mutability:tt $field:ident $form:tt ),*
        )
    )* } )*) => { $( $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($( $arg: $ty ),*) -> ur_result_t {
            $( clear!($arg $form); )*
            if_direct! { $table $leader
                if state::is_plain() {
                    // SAFETY: the caller's arguments.
                    return unsafe { functions::$name($( $arg ),*) };
                }
            }
            match state::app_table().and_then(|table| table.$table.$slot) {
                // SAFETY: the caller's arguments.
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
            // SAFETY: the caller's pointer.
            unsafe { state::copy_table(version, pDdiTable, |table| &table.$table) }
        }
        version!($getter);
    )* };
}
ur::for_each_table! { getters }

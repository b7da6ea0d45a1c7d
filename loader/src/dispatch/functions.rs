//! The application's table without layers: each function follows its handle's first word to the
//! adapter's own table.

#![allow(non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments)]

use std::ffi::{c_char, c_void};

use ur::abi::*;

use super::{clear, table_of, table_of_first};

/// The table that a function's leading handle leads to.
macro_rules! leads {
    ($handle:ident) => {
        table_of($handle.cast())
    };
    ($list:ident of $count:ident or $error:ident) => {
        table_of_first($count, $list.cast(), $error)
    };
}

/// A function that dispatches by handle. Inlined where an export calls it directly.
macro_rules! function {
    ([] $($rest:tt)*) => {};
    ([$($leader:tt)+] $table:ident $slot:ident $name:ident (
        $( $arg:ident : $ty:ty = $mutability:tt $field:ident $form:tt ),*
    )) => {
        #[inline(always)]
        pub unsafe extern "C" fn $name($( $arg: $ty ),*) -> ur_result_t {
            $( clear!($arg $form); )*
            // SAFETY: the caller promises a handle that is null or live.
            match unsafe { leads!($($leader)+) } {
                Ok(table) => match table.$table.$slot {
                    // SAFETY: the caller's arguments.
                    Some(function) => unsafe { function($( $arg ),*) },
                    None => UR_RESULT_ERROR_UNINITIALIZED,
                },
                Err(result) => result,
            }
        }
    };
}

/// A function's slot in the table.
macro_rules! slot {
    ([] $name:ident) => {
        None
    };
    ([$($leader:tt)+] $name:ident) => {
        Some($name)
    };
}

macro_rules! functions {
    ($( $table:ident $struct:ident { $(
        $number:literal $name:ident $slot:ident $pfn:ident $params:ident $leader:tt $arguments:tt
    )* } )*) => {
        $( $( function! { $leader $table $slot $name $arguments } )* )*

        /// Every function that dispatches by handle. The others are left empty for the loader to fill.
        pub static DISPATCH: ur_dditable_t = ur_dditable_t {
            $( $table: $struct { $( $slot: slot!($leader $name) ),* } ),*
        };
    };
}
ur::for_each_function! { functions }

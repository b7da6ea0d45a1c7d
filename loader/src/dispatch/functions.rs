//! The base table's functions: each reads its adapter's table from its handle and calls the
//! function there.

#![allow(non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments)]

use std::ffi::{c_char, c_void};

use ur::abi::*;

use super::{clear, table_of, table_of_first};

/// Looks up the table of a function's leading handle, or of the first handle of a list.
macro_rules! leading_table {
    ($handle:ident) => {
        table_of($handle.cast())
    };
    ($list:ident of $count:ident or $error:ident) => {
        table_of_first($count, $list.cast(), $error)
    };
}

/// Defines a function that dispatches by handle, inlined where an export calls it directly.
macro_rules! function {
    ([] $($rest:tt)*) => {};
    ([$($leader:tt)+] $table:ident $slot:ident $name:ident (
        $( $arg:ident : $ty:ty = $mutability:tt $field:ident $form:tt ),*
    )) => {
        #[inline(always)]
        pub unsafe extern "C" fn $name($( $arg: $ty ),*) -> ur_result_t {
            $( clear!($arg $form); )*
            // SAFETY: the specification has the caller pass a null or live handle.
            match unsafe { leading_table!($($leader)+) } {
                Ok(table) => match table.$table.$slot {
                    // SAFETY: the caller's arguments are forwarded unchanged, under the
                    // specification's contract.
                    Some(function) => unsafe { function($( $arg ),*) },
                    None => UR_RESULT_ERROR_UNINITIALIZED,
                },
                Err(result) => result,
            }
        }
    };
}

/// The value of a function's slot in the table: none if no argument leads to an adapter.
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
        $name:ident $slot:ident $pfn:ident $params:ident $leader:tt $arguments:tt
    )* } )*) => {
        $( $( function! { $leader $table $slot $name $arguments } )* )*

        /// Every function that dispatches by handle. The loader fills the other slots itself.
        pub static DISPATCH: ur_dditable_t = ur_dditable_t {
            $( $table: $struct { $( $slot: slot!($leader $name) ),* } ),*
        };
    };
}
ur::for_each_function! { functions }

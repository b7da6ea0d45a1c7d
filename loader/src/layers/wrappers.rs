//! The frame that all layers share: what stands around each function of the tables.
//!
//! Owns [`wrappers`], which makes a layer's functions, and [`rows`], a table by function for what
//! follows neither from its arguments' types nor from their roles. Must never know what a layer does.

use std::ffi::c_void;

use ur::object::Result;

/// The address of an argument, as parameter structs take it.
#[inline]
pub fn argument<T>(argument: &T) -> *mut T {
    std::ptr::from_ref(argument).cast_mut()
}

macro_rules! functions {
    ($( $table:ident $struct:ident { $(
        $number:literal $name:ident $slot:ident $pfn:ident $params:ident $leader:tt $arguments:tt
    )* } )*) => {
        /// Names of all functions of the tables, by number.
        pub const NAMES: &[&str] = &[$( $( stringify!($name), )* )*];

        /// Numbers of all functions of the tables, by name.
        #[allow(non_upper_case_globals)]
        pub mod number {
            $( $( pub const $name: usize = $number; )* )*
        }
    };
}
ur::for_each_function! { functions }

/// Number of functions.
pub const COUNT: usize = NAMES.len();

/// A check of a call's arguments, given its parameter struct.
pub type Check = unsafe fn(*const c_void) -> Result<()>;

/// A table of checks, one a function or none: `urX params_struct |p| { ... }`, `?` included.
///
/// A check may follow pointers as the specification lets a callee, after the null checks.
macro_rules! rows {
    ($(#[$meta:meta])* $table:ident: $(
        $name:ident $params:ident |$p:ident| $body:block
    )*) => {
        $(#[$meta])*
        pub static $table: [Option<$crate::layers::wrappers::Check>; $crate::layers::wrappers::COUNT] = {
            let mut rows: [Option<$crate::layers::wrappers::Check>; _] =
                [None; $crate::layers::wrappers::COUNT];
            $(
                rows[$crate::layers::wrappers::number::$name] = Some({
                    #[inline(always)]
                    unsafe fn check(params: *const std::ffi::c_void) -> ur::object::Result<()> {
                        // SAFETY: the caller passes the function's parameter struct, and promises
                        // what the specification asks of a caller.
                        unsafe {
                            let $p = &*params.cast::<$params>();
                            $body
                        }
                        Ok(())
                    }
                    check
                });
            )*
            rows
        };
    };
}
pub(crate) use rows;

/// Declares a layer's `BELOW`, the table that it wraps, its functions, and `wrap`, which puts those
/// of them for which `wants(number)` holds into a table. Calls of others pass the layer by.
///
/// `$body!` is a function's body, given `number name params_struct [leader] below (arg: type =
/// field form, ...)`: `below` is the wrapped function; the result is the call's.
macro_rules! wrappers {
    ($body:ident $( $table:ident $struct:ident { $(
        $number:literal $name:ident $slot:ident $pfn:ident $params:ident $leader:tt (
            $( $arg:ident : $ty:ty = $mutability:tt $field:ident $form:tt ),*
        )
    )* } )*) => {
        /// The table that this layer wraps.
        pub static BELOW: $crate::layers::Below = $crate::layers::Below::new();

        #[allow(non_snake_case, unused_mut, clippy::too_many_arguments)]
        mod functions {
            use super::*;
            use std::ffi::{c_char, c_void};

            $( $(
                pub unsafe extern "C" fn $name($( mut $arg: $ty ),*) -> ur_result_t {
                    $( $crate::dispatch::clear!($arg $form); )*
                    let Some(below) = BELOW.table().and_then(|table| table.$table.$slot) else {
                        return UR_RESULT_ERROR_UNINITIALIZED;
                    };
                    $body! {
                        $number $name $params $leader below ($( $arg : $ty = $field $form ),*)
                    }
                }
            )* )*
        }

        /// Puts the layer over `table`.
        pub fn wrap(table: &mut ur_dditable_t) {
            BELOW.set(table);
            $( $(
                if const { wants($number) } {
                    table.$table.$slot = Some(functions::$name);
                }
            )* )*
        }
    };
}
pub(crate) use wrappers;

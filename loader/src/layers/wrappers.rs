//! Code that all layers share: the wrapper around each function of the tables.
//!
//! Owns [`wrappers`], which defines a layer's functions, and [`rows`], a table of checks by
//! function. The checks are those that neither an argument's type nor its role implies. Must never
//! know what a layer does.

use std::ffi::c_void;

/// A pointer to an argument, as parameter structs hold it.
#[inline]
pub fn argument<T>(argument: &T) -> *mut T {
    std::ptr::from_ref(argument).cast_mut()
}

macro_rules! functions {
    ($( $table:ident $struct:ident { $(
        $name:ident $slot:ident $pfn:ident $params:ident $leader:tt $arguments:tt
    )* } )*) => {
        /// Names of all functions of the tables, by number.
        pub const NAMES: &[&str] = &[$( $( stringify!($name), )* )*];
    };
}
ur::for_each_function! { functions }
pub use ur::abi::number;

/// The number of functions.
pub const COUNT: usize = NAMES.len();

/// A check of a call's arguments, which takes a pointer to the function's parameter struct. `E` is
/// its error.
pub type Check<E> = unsafe fn(*const c_void) -> Result<(), E>;

/// A table of checks by function, after the type of their errors: `urX params_struct |p| { ... }`.
/// The block may use `?`.
///
/// Checks run after the null checks. They may dereference the pointers that the specification has a
/// caller provide.
macro_rules! rows {
    ($(#[$meta:meta])* $table:ident: $error:ty: $(
        $name:ident $params:ident |$p:ident| $body:block
    )*) => {
        $(#[$meta])*
        static $table: [Option<$crate::layers::wrappers::Check<$error>>; $crate::layers::wrappers::COUNT] = {
            let mut rows: [Option<$crate::layers::wrappers::Check<$error>>; _] =
                [None; $crate::layers::wrappers::COUNT];
            $(
                rows[$crate::layers::wrappers::number::$name] = Some({
                    #[inline(always)]
                    unsafe fn check(params: *const std::ffi::c_void) -> std::result::Result<(), $error> {
                        // SAFETY: the wrapper passes the function's parameter struct, whose
                        // arguments meet the specification's contract.
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

/// A table of functions that read a parameter struct: `urX params_struct |p| ...;`.
macro_rules! by_function {
    ($(#[$meta:meta])* $visible:vis $table:ident: $row:ty => $out:ty:
        $( $name:ident $params:ident |$p:ident| $body:expr; )*
    ) => {
        $(#[$meta])*
        $visible static $table: [Option<$row>; $crate::layers::wrappers::COUNT] = {
            let mut rows: [Option<$row>; _] = [None; $crate::layers::wrappers::COUNT];
            $(
                rows[$crate::layers::wrappers::number::$name] = Some({
                    unsafe fn row(params: *const std::ffi::c_void) -> $out {
                        // SAFETY: the wrapper passes the function's parameter struct, whose
                        // arguments meet the specification's contract.
                        unsafe {
                            let $p = &*params.cast::<$params>();
                            $body
                        }
                    }
                    row
                });
            )*
            rows
        };
    };
}
pub(crate) use by_function;

/// Declares a layer's `BELOW` table, its functions, and `wrap`, which installs the functions for
/// which `wants(number)` holds. Calls of other functions skip the layer.
///
/// `$body!` expands to a function's body. It takes `name params_struct [leader] below (arg:
/// type = field form, ...)`, where `below` is the wrapped function. Its value is the call's result.
macro_rules! wrappers {
    ($body:ident $( $table:ident $struct:ident { $(
        $name:ident $slot:ident $pfn:ident $params:ident $leader:tt (
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
                        $name $params $leader below ($( $arg : $ty = $field $form ),*)
                    }
                }
            )* )*
        }

        /// Installs the layer's functions in `table`, which becomes the table below.
        pub fn wrap(table: &mut ur_dditable_t) {
            BELOW.set(table);
            $( $(
                if const { wants($crate::layers::wrappers::number::$name) } {
                    table.$table.$slot = Some(functions::$name);
                }
            )* )*
        }
    };
}
pub(crate) use wrappers;

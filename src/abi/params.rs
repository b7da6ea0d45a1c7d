//! One struct a function: pointers to a call's arguments, for tracing and for the mock's callbacks.

use std::ffi::{c_char, c_void};

use super::types::*;

macro_rules! all_params {
    ($( $table:tt $struct:tt { $(
        $name:ident $slot:tt $pfn:ident $params:tt $leader:tt $args:tt
    )* } )*) => {
        $($(params! { $name $params $args })*)*
    };
}

macro_rules! params {
    // A function without arguments has no struct.
    ($name:ident - ()) => {};
    ($name:ident $params:ident (
        $( $arg:ident: $ty:ty = $mutability:tt $field:ident $form:tt ),*
    )) => {
        #[doc = concat!("Arguments of `", stringify!($name), "`.")]
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $params {
            $(pub $field: *$mutability $ty,)*
        }
    };
}
for_each_function! { for_each_loader_function all_params }

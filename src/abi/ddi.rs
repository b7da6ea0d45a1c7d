//! Function pointer types and the tables that adapters fill, from the list of functions.

use std::ffi::{CStr, c_char, c_void};
use std::mem::offset_of;

use super::types::*;

macro_rules! pointers {
    ($( $table:tt $struct:tt { $(
        $name:ident $slot:tt $pfn:ident $params:tt $leader:tt (
            $( $arg:ident: $ty:ty = $mutability:tt $field:ident $form:tt ),*
        )
    )* } )*) => {$($(
        #[doc = concat!("Pointer to `", stringify!($name), "`.")]
        pub type $pfn = Option<unsafe extern "C" fn($($arg: $ty),*) -> ur_result_t>;
    )*)*};
}
for_each_function! { for_each_loader_function pointers }

macro_rules! numbers {
    ($( $table:tt $struct:tt { $(
        $name:ident $slot:tt $pfn:ident $params:tt $leader:tt $args:tt
    )* } )*) => {
        /// The number of each function, in the order of the list: those of the tables first.
        #[allow(non_upper_case_globals)]
        pub mod number {
            enum Number {
                $($( $name, )*)*
            }
            $($(
                #[doc = concat!("The number of `", stringify!($name), "`.")]
                pub const $name: usize = Number::$name as usize;
            )*)*
        }
    };
}
for_each_function! { for_each_loader_function numbers }

macro_rules! tables {
    ($( $table:ident $struct:ident { $(
        $name:ident $slot:ident $pfn:ident $params:tt $leader:tt $args:tt
    )* } )*) => {$(
        #[doc = concat!("Functions of the ", stringify!($table), " table.")]
        #[repr(C)]
        #[derive(Clone, Copy, Default)]
        pub struct $struct {
            $(#[doc = concat!("`", stringify!($name), "`.")] pub $slot: $pfn,)*
        }
    )*};
}
for_each_function! { tables }

/// Where a table lies and which symbol fills it.
#[derive(Debug, Clone, Copy)]
pub struct DdiTable {
    /// Name of the table: `Queue`.
    pub name: &'static str,
    /// Symbol that an adapter exports to fill it.
    pub symbol: &'static CStr,
    /// Byte offset within `ur_dditable_t`.
    pub offset: usize,
    /// Number of function slots.
    pub slots: usize,
}

macro_rules! all_tables {
    ($( $table:ident $struct:ident $getter:ident $pfn:ident $slots:literal )*) => {
        $(
            #[doc = concat!("Pointer to `", stringify!($getter), "`.")]
            pub type $pfn = Option<
                unsafe extern "C" fn(version: ur_api_version_t, pDdiTable: *mut $struct) -> ur_result_t,
            >;
        )*

        /// All tables of an adapter; the first word of every handle points to one.
        #[repr(C)]
        #[derive(Clone, Copy, Default)]
        pub struct ur_dditable_t {
            $(#[doc = concat!("The ", stringify!($table), " table.")] pub $table: $struct,)*
        }

        /// Every table, in the order of `ur_dditable_t`.
        pub const DDI_TABLES: [DdiTable; [$($slots),*].len()] = [$(DdiTable {
            name: stringify!($table),
            symbol: match CStr::from_bytes_with_nul(concat!(stringify!($getter), "\0").as_bytes()) {
                Ok(symbol) => symbol,
                Err(_) => unreachable!(),
            },
            offset: offset_of!(ur_dditable_t, $table),
            slots: $slots,
        }),*];
    };
}
for_each_table! { all_tables }

//! One caller for each table function, with arguments drawn from a source of values.
//!
//! The including module defines `Source`.

use super::Source;
use std::ffi::{c_char, c_void};
use ur::abi::*;

/// Calls one function of a table; `None` where its slot is empty.
pub type Call = fn(&ur_dditable_t, &mut dyn Source) -> Option<ur_result_t>;

/// Arguments that are numbers, or structures of numbers.
trait Drawn {
    fn drawn(source: &mut dyn Source) -> Self;
}

macro_rules! drawn {
    (numbers: $($Number:ty),*; structs: $($Struct:ty),*;) => {
        $(impl Drawn for $Number {
            fn drawn(source: &mut dyn Source) -> Self {
                source.size() as Self
            }
        })*
        $(impl Drawn for $Struct {
            fn drawn(_source: &mut dyn Source) -> Self {
                Self::default()
            }
        })*
    };
}

drawn! {
    numbers: u8, i32, u32, u64, usize;
    structs: ur_rect_offset_t, ur_rect_region_t;
}

/// An enumerator or a set of flags.
fn word<T: Copy>(source: &mut dyn Source) -> T {
    let word = source.number() as u32;
    assert_eq!(size_of::<T>(), size_of::<u32>());
    // SAFETY: the size was checked; C enumerations and flags are transparent integers.
    unsafe { std::mem::transmute_copy(&word) }
}

/// The value that a source gives for an argument of a form of `for_each_function!`.
macro_rules! draw {
    ($source:ident value) => {
        Drawn::drawn($source)
    };
    ($source:ident count) => {
        $source.count() as _
    };
    ($source:ident callback) => {
        None
    };
    ($source:ident choice) => {
        word($source)
    };
    ($source:ident property) => {
        word($source)
    };
    ($source:ident flags $mask:ident) => {
        word($source)
    };
    ($source:ident handle $($rest:tt)*) => {
        $source.handle().cast()
    };
    ($source:ident handles $($rest:tt)*) => {
        $source.list().cast()
    };
    ($source:ident outputs $($rest:tt)*) => {
        $source.list().cast()
    };
    ($source:ident $pointer:ident $($rest:tt)*) => {
        $source.memory().cast()
    };
}

macro_rules! calls {
    ($( $table:ident $struct:ident { $(
        $name:ident $slot:ident $pfn:ident $params:ident $leader:tt (
            $( $arg:ident : $ty:ty = $mutability:tt $field:ident [$need:ident $($form:tt)*] ),*
        )
    )* } )*) => {
        /// Every table function with its caller.
        pub const CALLS: &[(&str, Call)] = &[$($((stringify!($name), |table, source| {
            let call = table.$table.$slot?;
            $(let $arg: $ty = draw!(source $($form)*);)*
            // SAFETY: none. The behaviour of the callee with such arguments is under test.
            Some(unsafe { call($($arg),*) })
        })),*),*];
    };
}

ur::for_each_function! { calls }

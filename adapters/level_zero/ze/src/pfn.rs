//! Types of pointers to the functions, each under its function's name.

use crate::*;
use std::ffi::{c_char, c_void};

macro_rules! pointers {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty, since $since:literal;)*) => {
        $(pub type $name = unsafe extern "C" fn($($arg: $ty),*) -> $ret;)*

        /// Every function, with the oldest of the versions looked at that has it: major << 16 | minor.
        pub const SINCE: &[(&str, u32)] = &[$((stringify!($name), $since),)*];
    };
}
for_each_function! { pointers }

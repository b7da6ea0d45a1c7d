//! Every public function of a loader, by name.
//!
//! The methods are safe although C promises nothing about their arguments. Each call is itself under test,
//! and a fault stays in the process that runs the test.

use crate::in_progress::InCall;
use crate::status::{Calls, Status};
use std::ffi::{CStr, c_char, c_void};
use ur::abi::*;
use ur::dl::{Library, function};
use ur::{for_each_function, for_each_loader_function};

/// An open loader library, with a count of the calls to each of its functions.
pub struct Api {
    symbols: Symbols,
    calls: Calls,
    _library: Library,
}

impl Api {
    /// Looks up all functions of an open library. A call of a missing one is an error.
    pub fn new(library: Library) -> Self {
        Self {
            symbols: Symbols::of(&library),
            calls: Calls::new(FUNCTIONS),
            _library: library,
        }
    }

    pub fn calls(&self) -> &Calls {
        &self.calls
    }
}

/// Calls a function with an array of arguments, each given as the words of its value.
pub type Caller = fn(&Api, &[Vec<u64>]) -> Status;

/// An argument's value, of a C type without invalid values.
fn read<T>(words: &[u64]) -> T {
    assert!(
        size_of::<T>() <= size_of_val(words),
        "a value of its argument's type"
    );
    // SAFETY: the words have at least as many bytes, aligned for C types, and any bytes are a valid value.
    unsafe { words.as_ptr().cast::<T>().read() }
}

/// The C name of a function. The text ends with a NUL.
fn symbol(name: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(name.as_bytes()).expect("a NUL at the end alone")
}

macro_rules! functions {
    ($( $table:tt $struct:tt { $(
        $name:ident $slot:tt $pfn:ident $params:tt $leader:tt (
            $( $arg:ident : $ty:ty = $mutability:tt $field:ident $form:tt ),*
        )
    )* } )*) => {
        /// Names of all functions, in the order of the call counters.
        pub const FUNCTIONS: &[&str] = &[$( $( stringify!($name) ),* ),*];

        #[allow(non_snake_case)]
        struct Symbols { $( $( $name: $pfn ),* ),* }

        impl Symbols {
            fn of(library: &Library) -> Self {
                Self { $( $(
                    // SAFETY: a loader exports its functions with the types of the specification.
                    $name: unsafe {
                        function(library.address(symbol(concat!(stringify!($name), "\0"))))
                    }
                ),* ),* }
            }
        }

        #[allow(non_snake_case, clippy::too_many_arguments)]
        impl Api { $( $(
            pub fn $name(&self, $( $arg: $ty ),*) -> Status {
                let _in_call = InCall::begin(number::$name);
                // SAFETY: none. The behaviour of the callee with such arguments is under test.
                let result = self.symbols.$name.map(|call| unsafe { call($( $arg ),*) });
                self.calls.record(number::$name, result)
            }
        )* )* }

        /// The functions as callers, except those of the loader's initialisation and teardown.
        #[allow(dead_code, non_snake_case)]
        pub mod callers {
            use super::*;
            $( $(
                pub fn $name(ur: &Api, arguments: &[Vec<u64>]) -> Status {
                    let [$( $arg ),*] = arguments else {
                        panic!("as many values as arguments");
                    };
                    ur.$name($( read::<$ty>($arg) ),*)
                }
            )* )*
        }
    };
}

for_each_function! { for_each_loader_function functions }

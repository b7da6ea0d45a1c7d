//! Typed symbol lists.

use std::ffi::CStr;

/// Declares a struct that holds a library's functions: plain function pointers for the required
/// ones, `Option`s for the optional ones. A name that differs from the symbol's follows as a
/// literal: `cuMemAlloc = "cuMemAlloc_v2": ...`.
///
/// ```
/// ur::dl::symbols! {
///     /// The C library's mathematics.
///     pub struct Math {
///         required { cos: unsafe extern "C" fn(f64) -> f64 }
///         optional { no_such_function: unsafe extern "C" fn() -> i32 }
///     }
/// }
/// let math = Math::load(&["libm.so.6"])?;
/// // SAFETY: `cos` takes and returns a double.
/// assert_eq!(unsafe { (math.cos)(0.0) }, 1.0);
/// assert!(math.no_such_function.is_none());
/// # Ok::<(), ur::dl::LoadError>(())
/// ```
///
/// The struct gets:
/// - `load(names)`: opens the first of `names` that can be opened, and keeps it open;
/// - `from_library(library)`: takes an open library;
/// - `resolve(lookup, from)`: for drivers that return functions themselves
///   (`clGetExtensionFunctionAddressForPlatform`, `cuGetProcAddress`). `lookup` returns an address
///   or null; `from` names the source in errors;
/// - `SYMBOLS`: the symbols' names, and whether they are required.
#[macro_export]
macro_rules! symbols {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Name:ident {
            required { $($(#[$req_meta:meta])* $req:ident $(= $req_symbol:literal)? : $Req:ty),* $(,)? }
            optional { $($(#[$opt_meta:meta])* $opt:ident $(= $opt_symbol:literal)? : $Opt:ty),* $(,)? }
        }
    ) => {
        $(#[$meta])*
        #[allow(non_snake_case)]
        $vis struct $Name {
            $($(#[$req_meta])* pub $req: $Req,)*
            $($(#[$opt_meta])* pub $opt: ::core::option::Option<$Opt>,)*
            /// Keeps the library open while its functions may be called.
            _library: ::core::option::Option<$crate::dl::Library>,
        }

        #[allow(dead_code, non_snake_case)]
        impl $Name {
            pub const SYMBOLS: &'static [(&'static str, bool)] = &[
                $(($crate::symbols!(@name $req $($req_symbol)?), true),)*
                $(($crate::symbols!(@name $opt $($opt_symbol)?), false),)*
            ];

            pub fn load(names: &[&str]) -> ::core::result::Result<Self, $crate::dl::LoadError> {
                Self::from_library($crate::dl::Library::open_first(names)?)
            }

            pub fn from_library(
                library: $crate::dl::Library,
            ) -> ::core::result::Result<Self, $crate::dl::LoadError> {
                let mut found = Self::resolve(|symbol| library.address(symbol), library.name())?;
                found._library = ::core::option::Option::Some(library);
                ::core::result::Result::Ok(found)
            }

            pub fn resolve(
                mut lookup: impl ::core::ops::FnMut(&::core::ffi::CStr) -> *const ::core::ffi::c_void,
                from: &str,
            ) -> ::core::result::Result<Self, $crate::dl::LoadError> {
                // `from` is unused in a list without required symbols.
                let _ = from;
                $(
                    // SAFETY: the list's author guarantees the symbol's type.
                    let $req = unsafe {
                        $crate::dl::function::<$Req>(lookup(
                            const { $crate::dl::symbol_name($crate::symbols!(@symbol $req $($req_symbol)?)) }
                        ))
                    };
                    let ::core::option::Option::Some($req) = $req else {
                        return ::core::result::Result::Err($crate::dl::LoadError::Symbol {
                            library: from.to_owned(),
                            symbol: $crate::symbols!(@name $req $($req_symbol)?),
                        });
                    };
                )*
                ::core::result::Result::Ok(Self {
                    $($req,)*
                    // SAFETY: the list's author guarantees the symbol's type.
                    $($opt: unsafe {
                        $crate::dl::function::<$Opt>(lookup(
                            const { $crate::dl::symbol_name($crate::symbols!(@symbol $opt $($opt_symbol)?)) }
                        ))
                    },)*
                    _library: ::core::option::Option::None,
                })
            }
        }
    };
    (@name $name:ident) => { ::core::stringify!($name) };
    (@name $name:ident $symbol:literal) => { $symbol };
    (@symbol $name:ident) => { ::core::concat!(::core::stringify!($name), "\0") };
    (@symbol $name:ident $symbol:literal) => { ::core::concat!($symbol, "\0") };
}

/// Converts a literal that ends in NUL to a C string at compile time, for [`symbols!`].
#[doc(hidden)]
pub const fn symbol_name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a symbol's name ends in NUL and holds no other"),
    }
}

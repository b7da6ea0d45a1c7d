//! Declaration of the loader's hand-written entry points.
//!
//! Owns the export macro only. Entry points of the tables are generated.

/// Declares exported functions: unmangled, versioned, with the panic guard around the body.
///
/// The `.symver` directive stands beside its function. The linker loses the version when the two
/// end up in different objects.
macro_rules! versioned {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $Arg:ty),* $(,)?) $body:block)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name($($arg: $Arg),*) -> ::ur::abi::ur_result_t {
            ::ur::object::boundary(|| -> ::ur::object::Result<()> { $body })
        }
        ::core::arch::global_asm!(concat!(
            ".symver ", stringify!($name), ", ", stringify!($name), "@@@LIBUR_LOADER_0.12"
        ));
    )*};
}

pub(crate) use versioned;

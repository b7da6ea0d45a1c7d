//! `UR_LAYER_PARAMETER_VALIDATION`: arguments that the specification forbids come back as errors,
//! whatever adapter they were for.
//!
//! Owns the layer. What an argument's role asks is here; what the specification says beyond that is
//! generated, as tables of conditions. The order is spec/README.md's, an adapter's own.

use ur::abi::*;
use ur::object::checks::{handle, handles, pointer, slice};
use ur::object::log::Level;
use ur::object::{Result, boundary, ensure};

use super::wrappers::{argument, wrappers};
use super::{Layer, LayerContext, report};
use crate::generated::layers::parameters::CONDITIONS;

struct Parameters;

pub fn make() -> Box<dyn Layer> {
    Box::new(Parameters)
}

impl Layer for Parameters {
    fn wrap(
        &mut self,
        table: &mut ur_dditable_t,
        _: &[&'static str],
        context: &LayerContext,
    ) -> std::result::Result<(), ur_result_t> {
        report::begin(context);
        wrap(table);
        Ok(())
    }

    fn teardown(&mut self) {
        report::end();
    }
}

/// Logs a refusal, which the application sees as a result anyway.
#[cold]
fn refused(function: &str, result: ur_result_t) -> ur_result_t {
    let name = result.name().unwrap_or("an unknown result");
    report::finding(Level::Info, format_args!("{function}: {name}"));
    result
}

/// A pointer, or a function, that must be there.
macro_rules! needed {
    ($arg:ident [optional $($form:tt)*]) => {};
    ($arg:ident [required callback]) => {
        ensure($arg.is_some(), UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    };
    ($arg:ident [required value]) => {};
    ($arg:ident [required choice]) => {};
    ($arg:ident [required property]) => {};
    ($arg:ident [required count]) => {};
    ($arg:ident [required flags $mask:ident]) => {};
    ($arg:ident [required handle $kind:ident $own:ident]) => {};
    ($arg:ident [required $($form:tt)*]) => {
        pointer($arg)?;
    };
}

/// A handle that must be there.
macro_rules! needed_handle {
    ($arg:ident [required handle $kind:ident $own:ident]) => {
        handle($arg)?;
    };
    ($arg:ident $form:tt) => {};
}

/// Enumerators and flags.
macro_rules! range {
    ($arg:ident [$need:ident choice]) => {
        ensure($arg.name().is_some(), UR_RESULT_ERROR_INVALID_ENUMERATION)?;
    };
    ($arg:ident [$need:ident flags $mask:ident]) => {
        ensure($arg.0 & $mask == 0, UR_RESULT_ERROR_INVALID_ENUMERATION)?;
    };
    ($arg:ident $form:tt) => {};
}

/// A wait list is null exactly if its count is 0.
macro_rules! wait_list {
    ($arg:ident [optional handles Event $count:ident]) => {
        ensure(
            $arg.is_null() == ($count == 0),
            UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST,
        )?;
    };
    ($arg:ident $form:tt) => {};
}

/// What an adapter checks as it decodes an argument.
macro_rules! decoded {
    ($arg:ident [$need:ident property]) => {
        ensure($arg.name().is_some(), UR_RESULT_ERROR_INVALID_ENUMERATION)?;
    };
    ($arg:ident [$need:ident handles Event $count:ident]) => {
        // SAFETY: the caller promises a list of that length.
        unsafe {
            handles(
                $arg,
                $count as usize,
                UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST,
            )
        }?;
    };
    ($arg:ident [$need:ident handles $kind:ident $count:ident]) => {
        // SAFETY: the caller promises a list of that length.
        unsafe { handles($arg, $count as usize, UR_RESULT_ERROR_INVALID_NULL_HANDLE) }?;
    };
    ($arg:ident [$need:ident list $count:ident]) => {
        // SAFETY: the caller promises a list of that length.
        unsafe { elements($arg, $count as usize) }?;
    };
    ($arg:ident $form:tt) => {};
}

/// The body of a function of this layer.
macro_rules! validated {
    ($number:literal $name:ident $params:ident $leader:tt $below:ident (
        $( $arg:ident : $ty:ty = $field:ident $form:tt ),*
    )) => {
        match boundary(|| {
            $( needed!($arg $form); )*
            $( needed_handle!($arg $form); )*
            $( range!($arg $form); )*
            if let Some(check) = const { CONDITIONS[$number] } {
                let params = $params { $( $field: argument(&$arg) ),* };
                // SAFETY: the function's own parameter struct; pointers that must be there are.
                unsafe { check((&raw const params).cast()) }?;
            }
            $( wait_list!($arg $form); )*
            $( decoded!($arg $form); )*
            Ok(())
        }) {
            // SAFETY: the caller's arguments.
            UR_RESULT_SUCCESS => unsafe { $below($( $arg ),*) },
            error => refused(stringify!($name), error),
        }
    };
}
ur::for_each_function! { wrappers validated }

/// Every function has an argument that can be wrong.
const fn wants(_: usize) -> bool {
    true
}

/// What a caller's array consists of, or a struct that a pointer leads to.
pub trait Checked {
    /// Whether there is anything to check.
    const ANY: bool = true;

    fn check(&self) -> Result<()>;
}

/// Types with a check: `Type |this| { ... }`.
macro_rules! checked {
    ($( $ty:ty |$this:ident| $body:block )*) => { $(
        impl $crate::layers::parameters::Checked for $ty {
            fn check(&self) -> ur::object::Result<()> {
                let $this = self;
                $body
                Ok(())
            }
        }
    )* };
}
pub(crate) use checked;

/// Types of elements without one.
macro_rules! unchecked {
    ($( $ty:ty ),*) => { $(
        impl $crate::layers::parameters::Checked for $ty {
            const ANY: bool = false;

            fn check(&self) -> ur::object::Result<()> {
                Ok(())
            }
        }
    )* };
}
pub(crate) use unchecked;

/// Checks what a pointer leads to, if it is not null.
///
/// # Safety
/// The pointer is null or readable.
pub unsafe fn pointee<T: Checked>(pointer: *const T) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.map_or(Ok(()), T::check)
}

/// Checks each element of an array, if it is not null.
///
/// # Safety
/// The array is null or has that many readable elements.
unsafe fn elements<T: Checked>(list: *const T, count: usize) -> Result<()> {
    if !T::ANY || list.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { slice(list, count) }?.iter().try_for_each(T::check)
}

//! `UR_LAYER_PARAMETER_VALIDATION`: refuses arguments that the specification forbids, for every
//! adapter.
//!
//! Owns the checks that follow from an argument's role. Further conditions of the specification are
//! rows of `ur::for_each_condition!`. The order of checks is that of spec/README.md, which adapters of this
//! project follow too. `refusal` has the single checks and the words of a finding.

mod refusal;

use std::ffi::c_void;

use ur::abi::*;
use ur::object::boundary;
use ur::object::checks::rest;
use ur::object::log::Level;

use self::refusal::{
    Refusal, Result, defined, elements, given, handles, member, pointee, refuse, wait_list,
};
use super::wrappers::{argument, number, rows, wrappers};
use super::{Layer, LayerContext, report};

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

/// Logs a refused call. The application sees its result in any case.
#[cold]
fn refused(
    function: &str,
    arguments: &[&str],
    refusal: Option<Refusal>,
    result: ur_result_t,
) -> ur_result_t {
    let name = result.name().unwrap_or("an unknown result");
    match refusal {
        Some(refusal) => {
            let text = refusal.text(arguments);
            report::finding(Level::Info, format_args!("{function}: {text}: {name}"));
        }
        // A check panicked.
        None => report::finding(Level::Info, format_args!("{function}: {name}")),
    }
    result
}

/// Checks that required pointers and callbacks are not null.
macro_rules! needed {
    ($arg:ident [optional $($form:tt)*]) => {};
    ($arg:ident [required callback]) => {
        given(
            stringify!($arg),
            $arg.is_some(),
            UR_RESULT_ERROR_INVALID_NULL_POINTER,
        )?;
    };
    ($arg:ident [required value]) => {};
    ($arg:ident [required choice]) => {};
    ($arg:ident [required property]) => {};
    ($arg:ident [required count]) => {};
    ($arg:ident [required flags $mask:ident]) => {};
    ($arg:ident [required handle $kind:ident $own:ident]) => {};
    ($arg:ident [required $($form:tt)*]) => {
        given(
            stringify!($arg),
            !$arg.is_null(),
            UR_RESULT_ERROR_INVALID_NULL_POINTER,
        )?;
    };
}

/// Checks that required handles are not null.
macro_rules! needed_handle {
    ($arg:ident [required handle $kind:ident $own:ident]) => {
        given(
            stringify!($arg),
            !$arg.is_null(),
            UR_RESULT_ERROR_INVALID_NULL_HANDLE,
        )?;
    };
    ($arg:ident $form:tt) => {};
}

/// Checks enumerators and flags.
macro_rules! range {
    ($arg:ident [$need:ident choice]) => {
        defined(stringify!($arg), $arg.name().is_some(), $arg.0)?;
    };
    ($arg:ident [$need:ident flags $mask:ident]) => {
        defined(stringify!($arg), $arg.0 & $mask == 0, $arg.0)?;
    };
    ($arg:ident $form:tt) => {};
}

/// Checks that a wait list is null exactly if its count is 0.
macro_rules! wait_list {
    ($arg:ident [optional handles Event $count:ident]) => {
        wait_list(stringify!($arg), $arg, $count)?;
    };
    ($arg:ident $form:tt) => {};
}

/// Checks what an adapter's shim checks when it decodes an argument.
macro_rules! decoded {
    ($arg:ident [$need:ident property]) => {
        defined(stringify!($arg), $arg.name().is_some(), $arg.0)?;
    };
    ($arg:ident [$need:ident handles Event $count:ident]) => {
        // SAFETY: the caller guarantees a list of `$count` handles.
        unsafe {
            handles(
                stringify!($arg),
                $arg,
                $count as usize,
                UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST,
            )
        }?;
    };
    ($arg:ident [$need:ident handles $kind:ident $count:ident]) => {
        // SAFETY: the caller guarantees a list of `$count` handles.
        unsafe {
            handles(
                stringify!($arg),
                $arg,
                $count as usize,
                UR_RESULT_ERROR_INVALID_NULL_HANDLE,
            )
        }?;
    };
    ($arg:ident [$need:ident list $count:ident]) => {
        // SAFETY: the caller guarantees a list of `$count` elements.
        unsafe { elements(stringify!($arg), $arg, $count as usize) }?;
    };
    ($arg:ident $form:tt) => {};
}

ur::for_each_condition! {
    rows
    /// What a function asks of its arguments.
    CONDITIONS: Refusal:
}

/// The body of a function of this layer: all checks, then the call.
macro_rules! validated {
    ($name:ident $params:ident $leader:tt $below:ident (
        $( $arg:ident : $ty:ty = $field:ident $form:tt ),*
    )) => {{
        let check = || -> Result<()> {
            $( needed!($arg $form); )*
            $( needed_handle!($arg $form); )*
            $( range!($arg $form); )*
            if let Some(check) = const { CONDITIONS[number::$name] } {
                let params = $params { $( $field: argument(&$arg) ),* };
                // SAFETY: `params` is the function's parameter struct, and required pointers are
                // not null.
                unsafe { check((&raw const params).cast()) }?;
            }
            $( wait_list!($arg $form); )*
            $( decoded!($arg $form); )*
            Ok(())
        };
        let mut refusal = None;
        match boundary(|| check().map_err(|why| refusal.insert(why).code.into())) {
            // SAFETY: the caller's arguments are forwarded unchanged, under the specification's
            // contract.
            UR_RESULT_SUCCESS => unsafe { $below($( $arg ),*) },
            error => refused(stringify!($name), &[$( stringify!($arg) ),*], refusal, error),
        }
    }};
}
ur::for_each_function! { wrappers validated }

/// Every function has an argument that can be invalid.
const fn wants(_: usize) -> bool {
    true
}

/// Elements of an array, or structs behind a pointer, that can be checked.
pub trait Checked {
    /// Whether the type has a check.
    const ANY: bool = true;

    fn check(&self) -> Result<()>;
}

/// Implements [`Checked`] for types with a check: `Type |this| { ... }`.
macro_rules! checked {
    ($( $ty:ty |$this:ident| $body:block )*) => { $(
        impl Checked for $ty {
            fn check(&self) -> Result<()> {
                let $this = self;
                $body
                Ok(())
            }
        }
    )* };
}
ur::for_each_checked_type! { checked }

/// Implements [`Checked`] for element types without a check.
macro_rules! unchecked {
    ($( $ty:ty ),*) => { $(
        impl Checked for $ty {
            const ANY: bool = false;

            fn check(&self) -> Result<()> {
                Ok(())
            }
        }
    )* };
}
ur::for_each_unchecked_type! { unchecked }

//! Every function of the tables, expanded from the list of functions. Each passes its parameter
//! struct and its default answer to `call`.
//!
//! The answers are rows of `generated::answers`:
//!
//! ```text
//! PARAMS REFUSALS = ANSWER;
//! REFUSALS  { ERROR lacking [PROPERTY, PROPERTY & FLAG ...] given [ARG = FIELD ...] (CONDITION) }
//! ANSWER    by_hand(NAME)                  a function of `answers`
//!           nothing()                      success
//!           retain(FIELD KIND), release(FIELD KIND)
//!           query(FIELD KIND, FIELD ENUM, FIELD FIELD)   object, property, buffer's size and buffer
//!           make([ORIGIN ...] OUTPUT ...)  ORIGIN: a handle or list that a new object comes from
//! OUTPUT    handle(FIELD KIND), event(FIELD COMMAND), adopted(FIELD KIND NATIVE),
//!           value(FIELD 1), value(FIELD id TYPE), value(FIELD address HANDLE), value(FIELD default)
//! ```
//!
//! Unsafe blocks rest on the specification's contract: the caller passes pointers that are null, or
//! readable or writable as their parameter says.

#![allow(non_snake_case)]

use std::ffi::{c_char, c_void};

use ur::abi::*;
use ur::for_each_function;
use ur::object::Result;

use crate::call::call;

/// The default answer to a call.
pub trait Answer: Sized {
    /// # Safety
    /// Each member points to an argument, which meets the specification's contract.
    unsafe fn answer(p: &Self) -> Result<()>;
}

/// Writes null to an output that must be null after a refusal.
macro_rules! clear {
    ($arg:ident [$need:ident output $kind:ident clear]) => {
        if !$arg.is_null() {
            // SAFETY: the specification has the caller pass an output that is null or writable.
            unsafe { $arg.write(std::ptr::null_mut()) }
        }
    };
    ($($other:tt)*) => {};
}

macro_rules! entries {
    ($( $table:ident $struct:ident { $(
        $number:literal $name:ident $slot:ident $pfn:ident $params:ident $leader:tt (
            $( $arg:ident: $ty:ty = $mutability:tt $field:ident $role:tt ),*
        )
    )* } )*) => {
        $($(
            unsafe extern "C" fn $name($(mut $arg: $ty),*) -> ur_result_t {
                $(clear! { $arg $role })*
                let mut params = $params { $($field: &raw mut $arg),* };
                // SAFETY: `params` and the arguments are variables of this frame; the caller's
                // arguments meet the specification's contract.
                unsafe { call($number, &raw mut params, |p| Answer::answer(p)) }
            }
        )*)*

        /// The names of all functions, by the index that `call` takes.
        pub const NAMES: [&str; [$($($number),*),*].len()] = [$($(stringify!($name)),*),*];

        /// The mock's own table, to which its handles point.
        pub static TABLE: ur_dditable_t = ur_dditable_t {
            $($table: $struct { $($slot: Some($name)),* }),*
        };
    };
}
for_each_function! { entries }

macro_rules! answers {
    ($($params:ident $({ $($refusal:tt)* })* = $answer:ident($($row:tt)*);)*) => {$(
        impl $crate::functions::Answer for $params {
            #[allow(
                non_snake_case,
                unused_parens,
                unused_unsafe,
                clippy::double_parens,
                clippy::unnecessary_cast,
                reason = "conditions name arguments as C does, and not every answer needs a pointer"
            )]
            unsafe fn answer(p: &Self) -> ur::object::Result<()> {
                // SAFETY: the caller guarantees that the arguments meet the specification's
                // contract.
                unsafe {
                    $($crate::functions::refuse!(p $($refusal)*);)*
                    $crate::functions::answer!(p $answer $($row)*)
                }
            }
        }
    )*};
}

macro_rules! refuse {
    ($p:ident $error:ident lacking [$($property:ident $(& $flag:ident)?),*]) => {
        $crate::functions::refuse!(
            $p $error lacking [$($property $(& $flag)?),*] given [] (true)
        )
    };
    (
        $p:ident $error:ident lacking [$($property:ident $(& $flag:ident)?),*]
        given [$($arg:ident = $field:ident),*] $given:tt
    ) => {{
        $(let $arg = *$p.$field;)*
        let refused = $given
            && $crate::info::lacks(&[$(
                (stringify!($property), u64::MAX $(& u64::from($flag.0))?)
            ),*]);
        ur::object::ensure(!refused, $error)?;
    }};
}

macro_rules! answer {
    ($p:ident by_hand $name:ident) => {
        $crate::answers::$name($p)
    };
    ($p:ident nothing) => {{
        let _ = $p;
        Ok(())
    }};
    ($p:ident retain $handle:ident $kind:ident) => {{
        $crate::objects::known(*$p.$handle, ur::object::Kind::$kind)?.retain();
        Ok(())
    }};
    ($p:ident release $handle:ident $kind:ident) => {
        $crate::objects::release(*$p.$handle, ur::object::Kind::$kind)
    };
    ($p:ident query $of:ident $kind:ident, $name:ident $properties:ident, - $buffer:ident) => {{
        let out = ur::object::InfoOut::new(None, *$p.$buffer, *$p.ppPropSizeRet);
        let kind = ur::object::Kind::$kind;
        $crate::info::answer(*$p.$of, kind, $properties::PROPERTIES, (*$p.$name).0, out)
    }};
    ($p:ident query $of:ident $kind:ident, $name:ident $properties:ident, $size:ident $buffer:ident) => {{
        let out = ur::object::InfoOut::new(Some(*$p.$size), *$p.$buffer, *$p.ppPropSizeRet);
        let kind = ur::object::Kind::$kind;
        $crate::info::answer(*$p.$of, kind, $properties::PROPERTIES, (*$p.$name).0, out)
    }};
    ($p:ident make [$($origin:ident $($more:ident)*),*] $($output:ident($($row:tt)*))*) => {{
        let origin = $crate::objects::Origin::default();
        $(let origin = $crate::functions::origin!($p origin $origin $($more)*);)*
        $($crate::functions::output!($p origin $output $($row)*);)*
        let _ = origin;
        Ok(())
    }};
}

macro_rules! origin {
    ($p:ident $origin:ident $handle:ident $kind:ident) => {
        $origin.with(*$p.$handle, ur::object::Kind::$kind)
    };
    ($p:ident $origin:ident $list:ident $count:ident $kind:ident) => {
        $origin.list(*$p.$list, *$p.$count, ur::object::Kind::$kind)
    };
}

macro_rules! output {
    ($p:ident $origin:ident handle $to:ident $kind:ident) => {
        $crate::make::handle(*$p.$to, ur::object::Kind::$kind, &$origin)
    };
    ($p:ident $origin:ident event $to:ident $command:ident) => {
        $crate::make::event(*$p.$to, $command, &$origin)
    };
    ($p:ident $origin:ident adopted $to:ident $kind:ident $native:ident) => {
        $crate::make::adopted(*$p.$to, ur::object::Kind::$kind, *$p.$native, &$origin)
    };
    ($p:ident $origin:ident value $to:ident default) => {
        $crate::make::value(*$p.$to, Default::default())
    };
    ($p:ident $origin:ident value $to:ident $value:literal) => {
        $crate::make::value(*$p.$to, $value)
    };
    ($p:ident $origin:ident value $to:ident id $Number:ident) => {
        $crate::make::value(*$p.$to, $crate::objects::next_id() as $Number)
    };
    ($p:ident $origin:ident value $to:ident address $handle:ident) => {
        $crate::make::value(*$p.$to, (*$p.$handle).expose_provenance())
    };
}

pub(crate) use {answer, answers, origin, output, refuse};

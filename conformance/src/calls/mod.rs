//! Calls as data.
//!
//! A row of `ur::for_each_call!` has a valid value for each argument of a function. For each condition of the
//! specification it has replacements that make the call wrong for that reason alone. This module has the rows
//! and the one routine that makes a call from them.
//!
//! `valid` has the handles that calls take. `value` describes arguments and their memory layout. `table` has
//! the macros that read the rows, `rows` what they make of them.

mod rows;
mod table;
mod valid;
mod value;

pub use rows::FUNCTIONS;
pub use table::*;
pub use valid::{Kind, Valid};
pub use value::{Member, Structure, Value, default};

use crate::api::{Api, Caller};
use crate::status::Status;
use ur::abi::*;
use value::Memory;

/// A function, a call of it with arguments that are valid by type and by condition, and its wrong calls.
pub struct Function {
    pub name: &'static str,
    /// True for functions of adapters, false for the loader's own.
    pub in_tables: bool,
    pub caller: Caller,
    /// Valid arguments.
    pub values: &'static [Value],
    /// Errors that the specification allows for the valid call.
    pub may: &'static [ur_result_t],
    /// The function releases something, so that a valid argument does not stay valid.
    pub consumes: bool,
    /// Handles that the call makes, each with the position of the output that receives it.
    pub made: &'static [(Kind, usize)],
    /// The handle that gets another reference.
    pub retains: Option<Kind>,
    pub cases: &'static [Case],
    pub lacks: &'static [Lack],
    pub said: &'static [Said],
}

/// A call that must be refused.
pub struct Case {
    /// The condition that the call meets.
    pub what: &'static str,
    /// The expected codes.
    pub codes: &'static [ur_result_t],
    pub changes: Changes,
}

/// A call that a device must refuse because it lacks something.
pub struct Lack {
    /// The missing feature in the words of the specification.
    pub what: &'static str,
    pub code: ur_result_t,
    /// Properties of which the device has none of the bits.
    pub terms: &'static [(&'static str, ur_device_info_t, u64)],
    pub changes: Changes,
}

/// An error that the specification declares and that no generated call provokes.
pub struct Said {
    pub code: ur_result_t,
    /// The condition under which it is returned.
    pub what: &'static str,
}

/// Values that replace valid ones, by position.
pub type Changes = &'static [(usize, Value)];

/// No change: the valid call.
pub const UNCHANGED: Changes = &[];

/// The row of a function. The functions of the loader's initialisation and teardown have none.
pub fn function(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// The errors that a function declares in words.
pub fn said(name: &str) -> &'static [Said] {
    function(name).map_or(&[], |function| function.said)
}

impl Function {
    /// Calls the function with valid arguments, except for these changes.
    pub fn call(&self, ur: &Api, valid: &Valid, changes: &[(usize, Value)]) -> Status {
        let mut memory = Memory::of(valid);
        let arguments: Vec<Vec<u64>> = self
            .with(changes)
            .enumerate()
            .map(|(position, value)| memory.words(value, position))
            .collect();
        (self.caller)(ur, &arguments)
    }

    /// Kinds of handle that such a call takes. Without them it would be wrong in a second way.
    pub fn needs(&self, changes: &[(usize, Value)]) -> Vec<Kind> {
        let mut kinds = Vec::new();
        for value in self.with(changes) {
            value.kinds(&mut kinds);
        }
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    fn with(&self, changes: &[(usize, Value)]) -> impl Iterator<Item = Value> {
        self.values.iter().enumerate().map(|(position, value)| {
            let changed = changes.iter().find(|(at, _)| *at == position);
            changed.map_or(*value, |(_, other)| *other)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use ur::dl::{Binding, Library};

    /// A library without any function of a loader, so that a call ends after its arguments are built.
    fn nowhere() -> Api {
        let library = Library::open(Path::new("libc.so.6"), Binding::Usual);
        Api::new(library.expect("the C library"))
    }

    #[test]
    fn every_row_has_a_value_for_each_argument() {
        let (ur, mut scratch) = (nowhere(), vec![0_u64; 8192]);
        let valid = Valid::new(scratch.as_mut_ptr().cast());
        let mut calls = 0;
        for function in FUNCTIONS {
            let cases = function.cases.iter().map(|case| case.changes);
            let lacks = function.lacks.iter().map(|lack| lack.changes);
            for changes in [UNCHANGED].into_iter().chain(cases).chain(lacks) {
                let status = function.call(&ur, &valid, changes);
                assert_eq!(status.function, function.name);
                assert_eq!(status.code, UR_RESULT_ERROR_UNINITIALIZED);
                calls += 1;
            }
        }
        assert!(calls > 1000, "{calls} calls");
    }

    #[test]
    fn a_call_needs_the_handles_that_its_arguments_mention() {
        let wait = function("urEventWait").expect("a row");
        assert_eq!(wait.needs(UNCHANGED), [Kind::Event]);
        assert_eq!(wait.needs(&[(1, Value::Null)]), []);
        let member =
            value!({&ur_exp_command_buffer_update_kernel_launch_desc_t hNewKernel = Kernel});
        assert_eq!(wait.needs(&[(1, member)]), [Kind::Kernel]);
    }
}

//! `arguments.rs`: calls with valid arguments, and calls that are wrong in one way each. A condition
//! of the specification becomes a call through `solve`; what it says in words only is listed.
//!
//! `maker` is one function and its conditions, `values` what these see of arguments, `faults` what
//! can be wrong with a call, `spelled` how arguments are written.

mod faults;
mod maker;
mod spelled;
mod values;

use crate::generate::rust;
use crate::model::{Function, Spec};
use anyhow::Result;
use maker::Maker;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

pub(super) const DOC: &str = "A valid call of each function, and one wrong call for each condition that the specification\n\
declares: everything else in the call is valid, so that only this can be the reason of the refusal.";

/// Arguments in other words than valid ones, by parameter.
type Overrides = BTreeMap<String, String>;

pub(super) fn arguments(spec: &Spec) -> Result<String> {
    let mut lists = Lists::default();
    for function in spec.functions() {
        // The loader's own life is not for calls among others.
        if function.dispatch(spec).is_some() || function.table.is_some() {
            lists.add(spec, function)?;
        }
    }
    let handles = handles(&lists.kinds);
    let noops: String = lists.callbacks.values().cloned().collect();
    let Lists {
        calls,
        cases,
        lacks,
        said,
        ..
    } = lists;
    Ok(format!(
        "#![allow(non_snake_case, unused_variables, clippy::unnecessary_cast, clippy::borrow_as_ptr)]
        use super::api::Api;
        use crate::status::Status;
        use std::ffi::{{c_char, c_void}};
        use ur::abi::*;
        {handles}
        {TYPES}
        /// Sizes that fit any range.
        const ONES: [usize; 3] = [1; 3];
        {noops}
        /// A valid call of each function of the tables.
        pub const CALLS: &[Call] = &[{calls}];
        /// All wrong calls, in the order of the specification.
        pub const CASES: &[Case] = &[{cases}];
        /// What devices refuse that lack something.
        pub const LACKS: &[Lack] = &[{lacks}];
        /// What only a test can provoke that knows more than types.
        pub const SAID: &[Said] = &[{said}];\n"
    ))
}

/// The elements of the generated lists, and what they mention.
#[derive(Default)]
struct Lists {
    calls: String,
    cases: String,
    lacks: String,
    said: String,
    kinds: BTreeSet<String>,
    callbacks: BTreeMap<String, String>,
}

impl Lists {
    fn add(&mut self, spec: &Spec, function: &Function) -> Result<()> {
        let maker = Maker::new(spec, function)?;
        maker.note(&mut self.kinds, &mut self.callbacks);
        let name = &function.name;
        if function.table.is_some() {
            let _ = writeln!(
                self.calls,
                "Call {{ function: {name:?}, may: &[{}], consumes: {}, made: &[{}], retains: {}, {} }},",
                maker.may(),
                maker.consumes(),
                maker.made(),
                maker.retains(),
                maker.body(&Overrides::new())
            );
        }
        for fault in maker.faults() {
            let _ = writeln!(
                self.cases,
                "Case {{ function: {name:?}, what: {:?}, codes: &[{}], {} }},",
                fault.what,
                fault.codes.join(", "),
                maker.body(&fault.overrides),
            );
        }
        for (case, overrides) in maker.lacks()? {
            let term = |(property, flag): (&str, Option<&str>)| {
                let bits = flag.map_or("u64::MAX".to_owned(), |flag| format!("{flag}.0 as u64"));
                format!("({property:?}, {property}, {bits}),")
            };
            let terms: String = case.lacking().map(term).collect();
            let _ = writeln!(
                self.lacks,
                "Lack {{ what: {:?}, code: {}, terms: &[{terms}], {} }},",
                case.desc,
                result(&case.code),
                maker.body(&overrides)
            );
        }
        for (code, what) in maker.said() {
            let _ = writeln!(
                self.said,
                "Said {{ function: {name:?}, code: UR_RESULT_ERROR_{code}, what: {what:?} }},"
            );
        }
        Ok(())
    }
}

/// The kinds of handle, and one of each.
fn handles(kinds: &BTreeSet<String>) -> String {
    let each = |write: &dyn Fn(&str, &str, &str) -> String| -> String {
        let one = |kind: &String| write(&rust::object_name(kind), rust::object_stem(kind), kind);
        kinds.iter().map(one).collect()
    };
    let variants = each(&|name, _, _| format!("{name},"));
    let fields = each(&|_, stem, kind| format!("pub {stem}: {kind},"));
    let arms = each(&|name, stem, _| format!("Kind::{name} => self.{stem}.cast(),"));
    let defaults = each(&|_, stem, _| format!("{stem}: std::ptr::null_mut(),"));
    format!(
        "/// Kinds of handle.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {{ {variants} }}
        /// One live handle of each kind that the device offers, and memory to point at.
        pub struct Valid {{ {fields} pub scratch: *mut c_void }}
        impl Valid {{
            /// No handles yet.
            pub fn new(scratch: *mut c_void) -> Self {{ Self {{ {defaults} scratch }} }}
            /// Memory for the argument at a position.
            pub fn at(&self, position: usize) -> *mut u8 {{
                self.scratch.cast::<u8>().wrapping_add(128 * position)
            }}
            /// The handle of that kind, or null.
            pub fn get(&self, kind: Kind) -> *mut c_void {{ match kind {{ {arms} }} }}
            /// Whether there is a handle of that kind.
            pub fn has(&self, kind: Kind) -> bool {{ !self.get(kind).is_null() }}
        }}"
    )
}

/// What the lists hold.
const TYPES: &str = "
    /// A call whose arguments are all valid, as far as their types and conditions say.
    pub struct Call {
        pub function: &'static str,
        /// Errors that the specification allows it all the same.
        pub may: &'static [ur_result_t],
        /// It ends something, so that no valid argument stays valid.
        pub consumes: bool,
        /// Handles that it makes, and the output that receives each.
        pub made: &'static [(Kind, usize)],
        /// The handle that gets one more reference.
        pub retains: Option<Kind>,
        /// Handles that it takes.
        pub needs: &'static [Kind],
        pub call: fn(&Api, &Valid) -> Status,
    }
    /// A call that must be refused.
    pub struct Case {
        pub function: &'static str,
        /// What is wrong with it.
        pub what: &'static str,
        /// The answers that are right.
        pub codes: &'static [ur_result_t],
        /// Handles without which the call would be wrong in a second way.
        pub needs: &'static [Kind],
        pub call: fn(&Api, &Valid) -> Status,
    }
    /// A call that a device must refuse which lacks something.
    pub struct Lack {
        /// As in `Said`.
        pub what: &'static str,
        pub code: ur_result_t,
        /// Properties of which the device has none of the bits.
        pub terms: &'static [(&'static str, ur_device_info_t, u64)],
        pub needs: &'static [Kind],
        pub call: fn(&Api, &Valid) -> Status,
    }
    /// An error that the specification declares and that no generated call provokes.
    pub struct Said {
        pub function: &'static str,
        pub code: ur_result_t,
        /// When it is returned.
        pub what: &'static str,
    }";

fn result(code: &str) -> String {
    format!("UR_RESULT_ERROR_{code}")
}

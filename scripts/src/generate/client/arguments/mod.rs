//! A valid call of each function, and invalid calls with one fault each.
//!
//! `maker` has one function with its conditions, `values` the values of arguments in conditions, `faults` the
//! faults of a call, `spelled` the text of arguments. Errors that are declared in words only are listed.

mod faults;
mod maker;
mod spelled;
mod values;

use crate::generate::functions::List;
use crate::generate::rust;
use crate::model::{Function, Item, Spec};
use anyhow::Result;
use maker::Maker;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

const CALLS: &str = "\
A valid call of each function, and an invalid call for each condition that the specification declares.

The rest of an invalid call is valid, so that only the condition can be refused. `functions` in
`conformance/src/calls/table.rs` explains a row.";

const CALLBACKS: &str = "Types of callbacks that functions take: `NAME(TYPE, ...) -> TYPE;`.";

/// Texts of arguments that differ from the valid call's, by parameter.
type Overrides = BTreeMap<String, String>;

pub fn lists(spec: &Spec) -> Result<[List; 2]> {
    let (mut rows, mut callbacks) = (String::new(), BTreeSet::new());
    for function in spec.functions() {
        // Starting and stopping the loader is not tested among other calls.
        if function.dispatch(spec).is_some() || function.table.is_some() {
            add(&mut rows, spec, function)?;
            callbacks.extend(function.params.iter().map(|param| param.c_type().base));
        }
    }
    let mut types = String::new();
    for item in spec.items() {
        if let Item::Callback(found) = item
            && callbacks.contains(&found.name)
        {
            let takes = found.params.iter().map(|param| rust::ty(&param.ty));
            let takes = takes.collect::<Vec<_>>().join(", ");
            let _ = writeln!(
                types,
                "{}({takes}) -> {};",
                found.name,
                rust::ty(&found.returns)
            );
        }
    }
    Ok([
        List::new("for_each_callback", CALLBACKS, types),
        List::new("for_each_call", CALLS, rows),
    ])
}

/// The rows of a function.
fn add(rows: &mut String, spec: &Spec, function: &Function) -> Result<()> {
    let maker = Maker::new(spec, function)?;
    let valid = maker.valid_arguments();
    let arguments = function.params.iter().map(|param| {
        let name = rust::ident(&param.name);
        format!("{name}: {}", maker.argument(param, &valid))
    });
    let _ = writeln!(
        rows,
        "call {}({}) {{{}}}",
        function.name,
        arguments.collect::<Vec<_>>().join(", "),
        maker.attributes().join(", ")
    );
    for fault in maker.faults() {
        let _ = writeln!(
            rows,
            "    wrong {}: {:?} {}",
            fault.codes.join(" | "),
            fault.what,
            maker.changes(&fault.overrides, &valid)
        );
    }
    for (case, overrides) in maker.lacks()? {
        let term = |(property, flag): (&str, Option<&str>)| match flag {
            Some(flag) => format!("{property} has {flag}"),
            None => property.to_owned(),
        };
        let terms: Vec<String> = case.lacking().map(term).collect();
        let _ = writeln!(
            rows,
            "    lacks {}: {:?} [{}] {}",
            result(&case.code),
            case.desc,
            terms.join(", "),
            maker.changes(&overrides, &valid)
        );
    }
    for (code, what) in maker.said() {
        let _ = writeln!(rows, "    said {}: {what:?}", result(code));
    }
    Ok(())
}

fn result(code: &str) -> String {
    format!("UR_RESULT_ERROR_{code}")
}

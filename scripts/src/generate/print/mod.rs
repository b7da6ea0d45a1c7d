//! The printers, which write values of the C interface as text.
//!
//! They exist in C (`ur_print.h` and the loader's exports), C++ (`ur_print.hpp`) and Rust (`src/abi/print`).
//! `form` has the form of each value. `c` and `cpp` write it in their language, around the templates in
//! scripts/templates/print; `calls` writes the list of calls that both languages walk. Rust derives most forms
//! from types; `rust` has the rest. The texts are the reference's.

mod c;
mod calls;
mod cpp;
mod form;
mod rust;

pub use c::exports;
pub use calls::{entries as calls, head as call_head};
pub use form::union_members;
pub use rust::{note, unusual_arguments, unusual_properties};

use super::File;
use crate::model::{Enum, Function, Group, Item, Spec, Struct, Value};
use anyhow::Result;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior};

pub fn files(spec: &Spec) -> Result<Vec<File>> {
    Ok(vec![
        File::new("include/ur_print.h", c::header(spec)?),
        File::new("include/ur_print.hpp", cpp::header(spec)?),
    ])
}

/// The value that an exported printer takes.
enum Subject<'a> {
    /// An enumerator or one bit of a flag set, by the name of the C enum.
    Enumerator(&'a str),
    Struct(&'a Struct),
    Call(&'a Function),
}

/// One `urPrint*` function.
struct Printer<'a> {
    name: String,
    subject: Subject<'a>,
}

/// The printers of a group: of types, then of calls.
fn printers(group: &Group) -> Vec<Printer<'_>> {
    let types = group.items.iter().filter_map(|item| {
        let (name, subject) = match item {
            Item::Enum(found) => (&found.name, Subject::Enumerator(&found.name)),
            Item::Flags(found) => (&found.name, Subject::Enumerator(&found.bit)),
            Item::Struct(found) => (&found.name, Subject::Struct(found)),
            _ => return None,
        };
        Some(Printer {
            name: format!("urPrint{}", camel(stem(name))),
            subject,
        })
    });
    let calls = group.items.iter().filter_map(|item| {
        let Item::Function(function) = item else {
            return None;
        };
        let name = format!("urPrint{}", camel(stem(&call_struct(function))));
        Some(Printer {
            name,
            subject: Subject::Call(function),
        })
    });
    types.chain(calls).collect()
}

/// `QUEUE_CREATE` of `UR_FUNCTION_QUEUE_CREATE`.
fn tag(function: &Function) -> &str {
    function
        .id
        .strip_prefix("UR_FUNCTION_")
        .unwrap_or(&function.id)
}

/// The struct of a call's arguments. Printers name it even for a function without arguments.
fn call_struct(function: &Function) -> String {
    format!("ur_{}_params_t", tag(function).to_lowercase())
}

/// `queue_flags` from `ur_queue_flags_t`.
fn stem(name: &str) -> &str {
    name.strip_prefix("ur_")
        .and_then(|name| name.strip_suffix("_t"))
        .unwrap_or(name)
}

/// `EnqueueUsmFill_2dParams` of `enqueue_usm_fill_2d_params`: an underscore stays before a digit.
fn camel(stem: &str) -> String {
    let mut out = String::new();
    for word in stem.split('_') {
        let mut letters = word.chars();
        match letters.next() {
            Some(first) if first.is_ascii_digit() => out.extend(['_', first]),
            Some(first) => out.push(first.to_ascii_uppercase()),
            None => {}
        }
        out.extend(letters);
    }
    out
}

/// The enums whose enumerators have types, which are those of info queries.
fn property_enums(spec: &Spec) -> impl Iterator<Item = &Enum> {
    spec.items().filter_map(|item| match item {
        Item::Enum(found) if found.values.iter().any(|value| value.ty.is_some()) => Some(found),
        _ => None,
    })
}

/// Properties of an enum by form, in order of first appearance.
fn properties(spec: &Spec, found: &Enum) -> Vec<(form::Property, Vec<String>)> {
    let mut groups: Vec<(form::Property, Vec<String>)> = Vec::new();
    for value in &found.values {
        let Some(ty) = &value.ty else { continue };
        let property = form::property(spec, ty);
        match groups.iter_mut().find(|(other, _)| *other == property) {
            Some((_, names)) => names.push(value.name.clone()),
            None => groups.push((property, vec![value.name.clone()])),
        }
    }
    groups
}

/// Structs that may stand in a chain, with their tags.
fn chained(spec: &Spec) -> impl Iterator<Item = (&Value, &Struct)> {
    spec.structs()
        .filter_map(|found| Some((spec.stype(&found.name)?, found)))
}

/// Enumerators with distinct values: the first of each value.
fn distinct(values: &[Value]) -> impl Iterator<Item = &Value> {
    let mut seen = std::collections::BTreeSet::new();
    values.iter().filter(move |value| seen.insert(value.value))
}

fn render(template: &str, values: minijinja::Value) -> Result<String> {
    let mut environment = Environment::new();
    environment.set_syntax(
        SyntaxConfig::builder()
            .trim_blocks(true)
            .keep_trailing_newline(true)
            .build()?,
    );
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    Ok(environment.render_str(template, values)?)
}

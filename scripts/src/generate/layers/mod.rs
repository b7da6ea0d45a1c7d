//! `loader/src/generated/layers`: one file a layer, with a function for each table function that the
//! layer wants to see. This module owns the frame that all of them share; what stands in the
//! functions is each submodule's.
//!
//! A layer's file has `BELOW`, the table that it wraps, and `wrap`, which puts the layer's functions
//! into a table. A function that the layer has no interest in is not in the file: calls of it pass
//! the layer by.

mod bounds;
mod lifetime;
mod parameters;
mod races;
mod tracing;

use super::{File, checks, rust};
use crate::model::{Function, Spec};
use anyhow::{Context as _, Result};
use std::fmt::Write as _;

pub fn files(spec: &Spec) -> Result<Vec<File>> {
    let layers = [
        bounds::file(spec)?,
        lifetime::file(spec)?,
        parameters::file(spec)?,
        tracing::file(spec)?,
        races::file(spec)?,
    ];
    let mut files = vec![
        File::rust(
            "loader/src/generated/mod.rs",
            "What of the loader is no macro over the list of functions.",
            "pub mod layers;\npub mod print;\n",
        )?,
        File::rust(
            "loader/src/generated/layers/mod.rs",
            "What layers put into the application's table: one file a layer.",
            &layers
                .iter()
                .map(|(name, _)| format!("pub mod {name};\n"))
                .collect::<String>(),
        )?,
    ];

    files.extend(layers.into_iter().map(|(_, file)| file));
    Ok(files)
}

fn in_tables(spec: &Spec) -> impl Iterator<Item = (&Function, &str, &str)> {
    spec.functions().filter_map(|function| {
        Some((
            function,
            function.table.as_deref()?,
            function.slot.as_deref()?,
        ))
    })
}

const ALLOW: &str = "#![allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc, clippy::too_many_arguments)]
#![allow(clippy::nonminimal_bool, clippy::unnecessary_cast, clippy::cmp_null, clippy::double_parens)]
#![allow(clippy::if_same_then_else, unused_imports, unused_unsafe, unused_parens, non_snake_case)]
";

/// A layer's file: its name, which is the module's, and the file.
///
/// `uses` are the `use` lines that bodies need beyond `abi`. `body` gives what stands in a function's
/// wrapper, `None` to leave the function alone. In it the parameters have their own names, `below`
/// is the function that the layer wraps, and [`call`] calls it; its value is the result.
fn layer(
    spec: &Spec,
    name: &'static str,
    doc: &str,
    uses: &str,
    body: impl Fn(&Function) -> Result<Option<String>>,
) -> Result<(&'static str, File)> {
    let mut out = format!(
        "{ALLOW}use crate::layers::Below;\n{uses}\nuse std::ffi::{{c_char, c_void}};\nuse ur::abi::*;
        /// What this layer wraps.\npub static BELOW: Below = Below::new();\n"
    );
    let mut slots = String::new();
    for (function, table, slot) in in_tables(spec) {
        let Some(body) = body(function).with_context(|| function.name.clone())? else {
            continue;
        };
        let _ = write!(
            out,
            "unsafe extern \"C\" fn {name}({params}) -> ur_result_t {{
                {clears}
                let Some(below) = BELOW.table().and_then(|table| table.{table}.{slot}) else {{
                    return UR_RESULT_ERROR_UNINITIALIZED;
                }};
                {body}
            }}\n",
            name = function.name,
            params = rust::params(&function.params),
            clears = checks::clears(function),
        );
        let _ = writeln!(slots, "table.{table}.{slot} = Some({});", function.name);
    }
    let _ = write!(
        out,
        "/// Puts the layer over `table`.
        pub fn wrap(table: &mut ur_dditable_t) {{ BELOW.set(table); {slots} }}\n"
    );
    let path = format!("loader/src/generated/layers/{name}.rs");
    Ok((name, File::rust(&path, doc, &out)?))
}

/// The call of what is wrapped, with the caller's arguments.
fn call(function: &Function) -> String {
    call_with(function, &[])
}

/// As [`call`], with other arguments in the place of some: `(parameter, text)`.
fn call_with(function: &Function, others: &[(String, String)]) -> String {
    let arguments = function.params.iter().map(|param| {
        let other = others.iter().find(|(name, _)| *name == param.name);
        other.map_or_else(|| rust::ident(&param.name), |(_, text)| text.clone())
    });
    let arguments: Vec<_> = arguments.collect();
    format!("unsafe {{ below({}) }}", arguments.join(", "))
}

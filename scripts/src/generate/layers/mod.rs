//! Facts about functions that the loader's layers need beyond a function's entry in the list.
//!
//! They are rows of further lists in `src/abi/functions.rs`. The code around a call is the loader's.

mod bounds;
mod lifetime;
mod parameters;
mod races;

use super::functions::List;
use crate::model::{Function, Spec};
use anyhow::{Context as _, Result};
use std::fmt::Write as _;

pub fn lists(spec: &Spec) -> Result<Vec<List>> {
    let mut lists = vec![bounds::list(spec)?];
    lists.extend(lifetime::lists(spec));
    lists.extend(parameters::lists(spec)?);
    lists.push(races::list(spec)?);
    Ok(lists)
}

pub fn in_tables(spec: &Spec) -> impl Iterator<Item = &Function> {
    spec.functions().filter(|function| function.table.is_some())
}

/// Adds a row `NAME PARAMS |p| { ... }`, unless there are no statements.
fn row(out: &mut String, function: &Function, statements: &[String]) -> Result<()> {
    if statements.is_empty() {
        return Ok(());
    }
    let params = function.params_struct().context("no arguments")?;
    let _ = writeln!(out, "{} {params} |p| {{", function.name);
    for statement in statements {
        let _ = writeln!(out, "    {statement};");
    }
    out.push_str("}\n");
    Ok(())
}

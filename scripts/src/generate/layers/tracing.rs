//! Tracing: every function tells the layer of its arguments before it calls what it wraps, and of
//! its result and outputs afterwards.

use super::{call, in_tables, layer};
use crate::generate::{File, rust};
use crate::model::{Dir, Function, Param, Spec};
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const DOC: &str = "Tracing: each function that is wanted is shown around the call of what it wraps.\n\n\
Unsafe blocks rest on what the specification asks of a caller: pointers that are not null are\n\
readable for what their parameter says, and outputs are written once a call has succeeded.";

const USES: &str = "use crate::layers::tracing::{Span, argument, first, wanted, written};";

pub(super) fn file(spec: &Spec) -> Result<(&'static str, File)> {
    let numbers: BTreeMap<&str, usize> = in_tables(spec)
        .enumerate()
        .map(|(number, (function, _, _))| (function.name.as_str(), number))
        .collect();
    let mut names = format!(
        "/// Every function, in the order of the numbers that stand for them.
        pub const FUNCTIONS: [&str; {}] = [",
        numbers.len()
    );
    for (function, _, _) in in_tables(spec) {
        let _ = write!(names, "{:?}, ", function.name);
    }
    names.push_str("];");
    layer(
        spec,
        "tracing",
        DOC,
        &format!("{USES}\n{names}"),
        |function| {
            let number = numbers.get(function.name.as_str()).context("no number")?;
            body(spec, function, *number).map(Some)
        },
    )
}

fn body(spec: &Spec, function: &Function, number: usize) -> Result<String> {
    let params = params(function)?;
    let call = call(function);
    let bounded: String = counts(function)
        .iter()
        .map(|(room, count)| format!("let {room} = unsafe {{ written(result, {room}, {count}) }};"))
        .collect();
    // What shadows an argument does not move it: `params` still points to the caller's.
    let (bounded, shown) = match bounded.is_empty() {
        true => (String::new(), "params"),
        false => (format!("{bounded} let outputs = {params};"), "outputs"),
    };
    Ok(format!(
        "if !wanted({number}) {{ return {call}; }}
        let params = {params};
        let span = unsafe {{ Span::begin({number}, {}, &params) }};
        let result = {call};
        {bounded}
        unsafe {{ span.end(result, &params, &{shown}) }};
        result",
        handle(spec, function)
    ))
}

/// The parameter struct, filled.
fn params(function: &Function) -> Result<String> {
    let name = function.params_struct().context("no parameters")?;
    let fields: String = function
        .params
        .iter()
        .map(|param| format!("p{}: argument(&{}),", param.name, rust::ident(&param.name)))
        .collect();
    Ok(format!("{name} {{ {fields} }}"))
}

/// The handle that leads to the call's adapter.
fn handle(spec: &Spec, function: &Function) -> String {
    match function.dispatch(spec) {
        None => "std::ptr::null()".to_owned(),
        Some(param) => match &param.count {
            None => format!("{}.cast()", rust::ident(&param.name)),
            Some(count) => format!("first({count}, {}.cast())", rust::ident(&param.name)),
        },
    }
}

/// Arguments that say how much room an output has, each with the output that says how much of it
/// was filled.
fn counts(function: &Function) -> Vec<(&str, &str)> {
    let told = |ty: &str| {
        let counter = |param: &&Param| param.dir == Dir::Out && param.ty == ty;
        function
            .params
            .iter()
            .find(counter)
            .map(|param| param.name.as_str())
    };
    let room = |param: &Param| match (&param.info, &param.count) {
        (Some(info), _) => Some((info.get(1)?.clone(), told("size_t *")?)),
        (None, Some(count)) if param.dir == Dir::Out => Some((count.clone(), told("uint32_t *")?)),
        _ => None,
    };
    let named = |(name, count): (String, _)| {
        let own = function.params.iter().find(|param| param.name == name)?;
        Some((own.name.as_str(), count))
    };
    function
        .params
        .iter()
        .filter_map(room)
        .filter_map(named)
        .collect()
}

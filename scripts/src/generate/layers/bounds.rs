//! Rows of the bounds layer, from the `bounds` of the specification.

use super::{in_tables, row};
use crate::generate::expr;
use crate::generate::functions::List;
use crate::model::{Dir, Function, Param, Spec};
use anyhow::{Context as _, Result, bail};

const DOC: &str = "\
The ranges of objects and allocations that calls access, for the bounds layer: `NAME PARAMS |p| { CHECKS }`.

CHECKS end with `?`. They call the functions of `loader/src/layers/bounds.rs`.";

pub(super) fn list(spec: &Spec) -> Result<List> {
    let mut rows = String::new();
    for function in in_tables(spec) {
        let bounded = |param: &Param| {
            let bounds = param.bounds.as_deref()?;
            Some(check(spec, function, param, bounds))
        };
        let checks: Result<Vec<_>> = function.params.iter().filter_map(bounded).collect();
        row(&mut rows, function, &checks?)?;
    }
    Ok(List::new("for_each_bound", DOC, rows))
}

fn check(spec: &Spec, function: &Function, param: &Param, bounds: &[String]) -> Result<String> {
    let ty = param.c_type();
    let of = format!("*p.p{}", param.name);
    let place = format!("const {{ &place({:?}, {:?}) }}", function.name, param.name);
    let is_box = |name: &String| {
        let mut params = function.params.iter();
        params.any(|param| &param.name == name && param.ty == "ur_rect_offset_t")
    };
    let numbers = |from: usize| -> Result<String> {
        let bounds = &bounds[from..];
        let texts: Result<Vec<_>> = bounds
            .iter()
            .map(|text| expr::number_behind(spec, function, text))
            .collect();
        Ok(texts?.join(", "))
    };
    Ok(match (bounds, ty.pointers) {
        ([origin, region], 0) if is_box(origin) => {
            format!("image({place}, {of}, *p.p{origin}, *p.p{region})?")
        }
        ([origin, region, _, _], 0) if is_box(origin) => format!(
            "buffer_box({place}, {of}, *p.p{origin}, *p.p{region}, {})?",
            numbers(2)?
        ),
        ([_, _], 0) => format!("buffer({place}, {of}, {})?", numbers(0)?),
        ([_, _], 1) => format!(
            "usm({place}, {}, {of}, {})?",
            context(spec, function)?,
            numbers(0)?
        ),
        ([_, _, _], 1) => format!(
            "usm_rows({place}, {}, {of}, {})?",
            context(spec, function)?,
            numbers(0)?
        ),
        _ => bail!("{}: bounds of no known form", param.name),
    })
}

/// The expression for the context of a function's allocations.
fn context(spec: &Spec, function: &Function) -> Result<String> {
    let holder = function.dispatch(spec).context("no dispatch handle")?;
    anyhow::ensure!(holder.dir == Dir::In, "a context from an output");
    let handle = format!("*p.p{}", holder.name);
    Ok(match holder.c_type().base.as_str() {
        "ur_context_handle_t" => format!("Some({handle})"),
        "ur_queue_handle_t" => format!("context_of_queue({handle})"),
        "ur_exp_command_buffer_handle_t" => format!("context_of_command_buffer({handle})"),
        other => bail!("no way from {other} to a context"),
    })
}

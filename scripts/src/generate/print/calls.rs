//! The list of calls and their arguments in `ur_api_funcs.def`, which `ur_print.h` and `ur_print.hpp` walk.
//!
//! The head of the template explains its macros.

use super::form::{self, Form};
use super::{camel, tag};
use crate::model::{Function, Param, Spec};
use anyhow::{Context as _, Result, bail};

/// Columns of a line.
const WIDTH: usize = 120;

/// The entries of the list, in the order of the specification.
pub fn entries(spec: &Spec) -> Result<Vec<String>> {
    spec.functions()
        .map(|function| entry(spec, function).with_context(|| function.name.clone()))
        .collect()
}

/// The text that begins a function's entry, and no other's.
pub fn head(function: &Function) -> String {
    format!("UR_PARAMS({}", camel(&tag(function).to_lowercase()))
}

fn entry(spec: &Spec, function: &Function) -> Result<String> {
    let tag = tag(function);
    let mut out = format!("{}, {}, {tag},", head(function), tag.to_lowercase());
    let mut column = WIDTH;
    for param in &function.params {
        let form = form::member(spec, &function.name, param);
        let text = parameter(&form, param).with_context(|| param.name.clone())?;
        // The last one is followed by a parenthesis.
        if column + text.len() + 2 > WIDTH {
            out.push_str("\n         ");
            column = 9;
        }
        out.push(' ');
        out.push_str(&text);
        column += 1 + text.len();
    }
    out.push(')');
    Ok(out)
}

fn parameter(form: &Form, param: &Param) -> Result<String> {
    let name = &param.name;
    Ok(match form {
        Form::Number(_)
        | Form::Truth
        | Form::Named(_)
        | Form::Address
        | Form::Text
        | Form::Pointer(_) => format!("UR_PARAM({name})"),
        Form::Flags { bit, .. } => format!("UR_PARAM_FLAGS({name}, {bit})"),
        Form::Native => format!("UR_PARAM_NATIVE({name})"),
        Form::Bare | Form::Callback => format!("UR_PARAM_BARE({name})"),
        Form::List(_, count) => format!("UR_PARAM_LIST({name}, {count})"),
        Form::Info {
            name: property,
            size,
        } => format!("UR_PARAM_INFO({name}, {property}, {size})"),
        Form::Array(_) | Form::Chain | Form::Union { .. } => {
            bail!("ur_api_funcs.def has no macro for {form:?}")
        }
    })
}

//! The C shims: checks first, then decoding, the call, and encoding.

use super::plan::{Plan, Return, Shape, arg_name, associated, object_ty};
use super::traits::method_ty;
use crate::generate::{checks, rust};
use crate::model::{Own, Spec};
use anyhow::Result;
use std::fmt::Write as _;

pub(super) const SHIMS_DOC: &str = "The C functions of an adapter, generic over its backend: check, decode, call, encode.\n\n\
Unsafe blocks rest on what the specification asks of a caller: pointers that are not null are\n\
readable or writable for what their parameter says, and handles are null or live.";

pub(super) fn shims(spec: &Spec, plans: &[Plan<'_>]) -> Result<String> {
    let mut out = String::from(
        "#![allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc, clippy::too_many_arguments)]
        #![allow(clippy::nonminimal_bool, clippy::unnecessary_cast, clippy::cmp_null, unused_unsafe, unused_parens)]
        #![allow(clippy::double_parens, clippy::if_same_then_else, clippy::suspicious_else_formatting, non_snake_case)]
        use crate::hal::info::*;
        use super::traits::*;
        use crate::abi::*;
        use crate::hal::checks::*;
        use crate::object::{Error, Handles, InfoIn, InfoOut, ListOut, Object, Out, OutHandle, boundary, ensure};
        use std::ffi::{CStr, c_char, c_void};\n",
    );
    for plan in plans {
        let body = match &plan.kind {
            Shape::AdapterGet => {
                let names: Vec<_> = plan
                    .function
                    .params
                    .iter()
                    .map(|param| param.name.as_str())
                    .collect();
                format!(
                    "unsafe {{ crate::hal::adapter_get::<B>({}) }}",
                    names.join(", ")
                )
            }
            Shape::Retain => format!("{}.retain(); Ok(())", borrow_first(plan)),
            Shape::Release => format!("{}.release()", borrow_first(plan)),
            Shape::Method { this } => shim_body(spec, plan, this.as_deref())?,
        };
        let _ = writeln!(
            out,
            "pub unsafe extern \"C\" fn {}<B: Backend>({}) -> ur_result_t {{ {} boundary(|| {{ {body} }}) }}",
            plan.function.name,
            rust::params(&plan.function.params),
            checks::clears(plan.function),
        );
    }
    out.push_str(&ddi(spec));
    Ok(out)
}

fn borrow_first(plan: &Plan<'_>) -> String {
    let first = plan
        .function
        .params
        .first()
        .map_or("", |param| param.name.as_str());
    format!(
        "unsafe {{ Object::<{}>::borrow({first}.cast(), B::table()) }}?",
        object_ty(&plan.object)
    )
}

fn shim_body(spec: &Spec, plan: &Plan<'_>, this: Option<&str>) -> Result<String> {
    let mut body = String::new();
    body.push_str(&checks::pointers(spec, plan.function));
    if let Some(this) = this {
        let _ = writeln!(
            body,
            "let this = unsafe {{ Object::<{}>::borrow({this}.cast(), B::table()) }}?;",
            object_ty(&plan.object)
        );
    }
    for arg in plan.args.iter().filter(|arg| arg.ty.contains("&Object<")) {
        let _ = writeln!(body, "let {} = {};", arg.name, arg.decode);
    }
    body.push_str(&checks::ranges(spec, plan.function));
    body.push_str(&checks::conditions(spec, plan.function)?);
    body.push_str(&checks::wait_lists(plan.function));
    for arg in plan.args.iter().filter(|arg| !arg.ty.contains("&Object<")) {
        let decode = match arg.param.name.as_str() {
            "propName" if spec.enum_of(&arg.param.c_type().base).is_some() => {
                format!("{}.try_into()?", arg.decode)
            }
            _ => arg.decode.clone(),
        };
        let annotation = match arg.param.name.as_str() {
            "propName" => format!(": {}", method_ty(spec, arg)),
            _ => String::new(),
        };
        if arg.name != decode {
            let _ = writeln!(body, "let {}{annotation} = {decode};", arg.name);
        }
        body.push_str(&checks::elements(spec, arg.param, &arg.name));
    }
    let mut call: Vec<&str> = this.map(|_| "this").into_iter().collect();
    call.extend(plan.args.iter().map(|arg| arg.name.as_str()));
    let call = format!(
        "<{} as {}<B>>::{}({})",
        object_ty(&plan.object),
        associated(&plan.object),
        plan.method,
        call.join(", ")
    );
    body.push_str(&encode(plan, &call));
    Ok(body)
}

fn encode(plan: &Plan<'_>, call: &str) -> String {
    let mut out = String::new();
    match plan.returns.as_slice() {
        [] => return call.to_owned(),
        [one] => {
            let _ = writeln!(out, "let {} = {call}?;", back_name(one));
        }
        many => {
            let names: Vec<_> = many.iter().map(back_name).collect();
            let _ = writeln!(out, "let ({}) = {call}?;", names.join(", "));
        }
    }
    for back in &plan.returns {
        let to = rust::ident(&back.param.name);
        let _ = match back.is_handle {
            true => {
                // A lent handle comes without a reference of the caller's own.
                let hand_out = match back.param.own {
                    Some(Own::Lend) => "handle",
                    _ => "into_handle",
                };
                writeln!(
                    out,
                    "unsafe {{ {to}.write({}.{hand_out}().cast()) }};",
                    back_name(back)
                )
            }
            false => writeln!(out, "unsafe {{ {to}.write({}) }};", back_name(back)),
        };
    }
    out.push_str("Ok(())");
    out
}

fn back_name(back: &Return<'_>) -> String {
    format!("{}_out", arg_name(&back.param.name))
}

/// The table of all shims.
fn ddi(spec: &Spec) -> String {
    let mut members = String::new();
    for table in &spec.tables {
        let mut slots = String::new();
        for function in spec
            .functions()
            .filter(|function| table.slots.contains(&function.name))
        {
            let slot = function.slot.as_deref().unwrap_or_default();
            let _ = write!(slots, "{slot}: Some({}::<B>),", function.name);
        }
        let _ = write!(
            members,
            "{}: {} {{ {slots} }},",
            table.name, table.struct_name
        );
    }
    format!(
        "/// Every slot filled with a backend's shims.\npub const fn ddi<B: Backend>() -> ur_dditable_t {{ ur_dditable_t {{ {members} }} }}\n"
    )
}

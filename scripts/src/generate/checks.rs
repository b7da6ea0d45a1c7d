//! The checks of a call's raw arguments, as Rust text for the shims.
//!
//! Each function returns statements that end in `?`. A shim has them in the order of spec/README.md, in an
//! unsafe block where the parameters have their own names and `ur::object::checks` is imported. The loader's
//! validation layer uses [`member_values`] too.

use super::{expr, rust};
use crate::model::{Dir, Function, Param, Spec};
use anyhow::{Context as _, Result};
use std::fmt::Write as _;

/// Null checks of pointers, function pointers included.
pub fn pointers(spec: &Spec, function: &Function) -> String {
    let mut out = String::new();
    for param in &function.params {
        let ty = param.c_type();
        let raw = rust::ident(&param.name);
        if param.optional || param.nocheck {
            continue;
        }
        if spec.is_callback(&ty.base) && ty.pointers == 0 {
            let _ = writeln!(
                out,
                "ensure({raw}.is_some(), UR_RESULT_ERROR_INVALID_NULL_POINTER)?;"
            );
        } else if ty.is_pointer() {
            let _ = writeln!(out, "pointer({raw})?;");
        }
    }
    out
}

/// Range checks of enums and flag sets: parameters, and members of structs behind pointers.
pub fn ranges(spec: &Spec, function: &Function) -> String {
    let params = function.params.iter();
    params.map(|param| range(spec, param)).collect()
}

fn range(spec: &Spec, param: &Param) -> String {
    let ty = param.c_type();
    let raw = rust::ident(&param.name);
    if ty.is_plain() {
        if param.name == "propName" {
            return String::new();
        }
        return value(spec, &ty.base, &raw);
    }
    if ty.pointers == 1
        && param.dir == Dir::In
        && param.count.is_none()
        && spec.struct_of(&ty.base).is_some()
    {
        let inner = members(spec, &ty.base, "inner");
        if !inner.is_empty() {
            return format!("if let Some(inner) = {raw}.as_ref() {{ {inner} }}\n");
        }
    }
    String::new()
}

/// Checks of the conditions in a function's `errors`.
pub fn conditions(spec: &Spec, function: &Function) -> Result<String> {
    let mut out = String::new();
    for case in &function.errors {
        let Some(when) = &case.when else { continue };
        let condition = expr::rust(spec, function, when).with_context(|| function.name.clone())?;
        let _ = writeln!(out, "refuse({condition}, UR_RESULT_ERROR_{})?;", case.code);
    }
    Ok(out)
}

/// Checks that a wait list is null exactly if its count is 0.
pub fn wait_lists(function: &Function) -> String {
    let mut out = String::new();
    for param in &function.params {
        if let ("phEventWaitList", true, Some(count)) =
            (param.name.as_str(), param.optional, &param.count)
        {
            let _ = writeln!(out, "wait_list(phEventWaitList, {count})?;");
        }
    }
    out
}

/// Checks of a list's elements: pointers that must not be null, and members of structs. `list` is an
/// expression that can be iterated.
pub fn elements(spec: &Spec, param: &Param, list: &str) -> String {
    let ty = param.c_type();
    if param.count.is_none() || param.dir != Dir::In || spec.is_handle(&ty.base) {
        return String::new();
    }
    if ty.pointers == 2 {
        return format!("for element in {list} {{ pointer(*element)?; }}\n");
    }
    let inner = members(spec, &ty.base, "inner");
    match inner.is_empty() {
        true => String::new(),
        false => format!("for inner in {list} {{ {inner} }}\n"),
    }
}

fn members(spec: &Spec, base: &str, holder: &str) -> String {
    let statement = |(member, condition): (String, String)| {
        let holds = condition.replace("{}", &format!("{holder}.{}", rust::ident(&member)));
        format!("ensure({holds}, UR_RESULT_ERROR_INVALID_ENUMERATION)?;")
    };
    member_values(spec, base)
        .into_iter()
        .map(statement)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The members of a struct that are enums or flag sets, each with the condition for a valid `{}`.
pub fn member_values(spec: &Spec, base: &str) -> Vec<(String, String)> {
    let Some(found) = spec.struct_of(base) else {
        return Vec::new();
    };
    found
        .members
        .iter()
        .filter(|member| member.name != "stype" && member.c_type().is_plain() && !member.nocheck)
        .filter_map(|member| Some((member.name.clone(), in_range(spec, &member.c_type().base)?)))
        .collect()
}

/// The check of one enum or flag set.
pub fn value(spec: &Spec, base: &str, text: &str) -> String {
    match in_range(spec, base) {
        Some(condition) => format!(
            "ensure({}, UR_RESULT_ERROR_INVALID_ENUMERATION)?;\n",
            condition.replace("{}", text)
        ),
        None => String::new(),
    }
}

/// The condition for a valid `{}` of an enum or flag set.
fn in_range(spec: &Spec, base: &str) -> Option<String> {
    if let Some(flags) = spec.flags_of(base).filter(|flags| flags.name == base) {
        return Some(format!("{{}}.0 & {} == 0", flags.mask));
    }
    spec.enum_of(base)
        .filter(|_| base != "ur_structure_type_t")
        .map(|_| "{}.name().is_some()".to_owned())
}

//! Rows of parameter validation: a function's conditions, and checks of structs and of elements.
//!
//! `loader/src/layers/parameters.rs` derives the checks that follow from an argument's form.

use super::{in_tables, row};
use crate::generate::functions::List;
use crate::generate::{checks, expr, rust};
use crate::model::{Dir, Function, Spec};
use anyhow::{Context as _, Result};
use std::collections::{BTreeMap, BTreeSet};

const CONDITIONS: &str = "\
The specification's conditions on arguments, beyond those that follow from an argument's form, with its words:
`NAME PARAMS |p| { CHECKS }`. CHECKS end with `?`.";

const CHECKED: &str = "\
Structs and elements of lists with checks of their own: `TYPE |this| { CHECKS }`. CHECKS end with `?`.";

const UNCHECKED: &str = "Types of lists' elements without checks, separated by commas.";

pub(super) fn lists(spec: &Spec) -> Result<[List; 3]> {
    let mut rows = String::new();
    for function in in_tables(spec) {
        let statements = statements(spec, function).with_context(|| function.name.clone())?;
        row(&mut rows, function, &statements)?;
    }
    let (checked, unchecked) = checked(spec);
    Ok([
        List::new("for_each_condition", CONDITIONS, rows),
        List::new("for_each_checked_type", CHECKED, checked),
        List::new("for_each_unchecked_type", UNCHECKED, unchecked),
    ])
}

/// Checks of struct members, then the conditions in the function's `errors`.
fn statements(spec: &Spec, function: &Function) -> Result<Vec<String>> {
    let mut out = Vec::new();
    for param in &function.params {
        let ty = param.c_type();
        let single = ty.pointers == 1 && param.dir == Dir::In && param.count.is_none();
        if single && !checks::member_values(spec, &ty.base).is_empty() {
            out.push(format!("pointee({:?}, *p.p{})?", param.name, param.name));
        }
    }
    for case in &function.errors {
        let Some(when) = &case.when else { continue };
        let condition = expr::rust_behind(spec, function, when)?;
        let text = case.desc.replace('`', "");
        out.push(format!(
            "refuse({condition}, UR_RESULT_ERROR_{}, {text:?})?",
            case.code
        ));
    }
    Ok(out)
}

/// The structs and elements with checks, as rows; and the element types without.
fn checked(spec: &Spec) -> (String, String) {
    let mut checked = BTreeMap::new();
    let mut unchecked = BTreeSet::new();
    let functions = in_tables(spec);
    for param in functions.flat_map(|function| &function.params) {
        let ty = param.c_type();
        if spec.is_handle(&ty.base) || !ty.is_pointer() || param.dir != Dir::In {
            continue;
        }
        let values = checks::member_values(spec, &ty.base);
        if !values.is_empty() {
            let statements = values.iter().map(|(member, condition)| {
                let value = format!("this.{}", rust::ident(member));
                let holds = condition.replace("{}", &value);
                format!("    member({member:?}, defined(\"\", {holds}, {value}.0))?;\n")
            });
            checked.insert(ty.base.clone(), statements.collect::<String>());
        } else if param.count.is_some() && ty.pointers == 2 {
            let element = rust::ctype(&ty);
            let element = element.split_once(' ').map_or("", |(_, element)| element);
            let given =
                "    given(\"\", !this.is_null(), UR_RESULT_ERROR_INVALID_NULL_POINTER)?;\n";
            checked.insert(element.to_owned(), given.to_owned());
        } else if param.count.is_some() {
            unchecked.insert(match ty.base.as_str() {
                "void" => "c_void".to_owned(),
                base => rust::ty(base),
            });
        }
    }
    let rows = checked
        .iter()
        .map(|(name, statements)| format!("{name} |this| {{\n{statements}}}\n"))
        .collect();
    let unchecked: Vec<_> = unchecked.into_iter().collect();
    (rows, unchecked.join(",\n") + "\n")
}

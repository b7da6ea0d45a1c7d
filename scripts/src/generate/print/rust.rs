//! The forms that the printers of `src/abi/print` cannot derive from types.
//!
//! These are notes beside members of structs, and rows for arguments and properties.

use super::form::{self, Form, Property};
use super::{properties, property_enums};
use crate::generate::{functions, rust};
use crate::model::{CType, Function, Param, Spec};
use anyhow::{Context as _, Result, bail};
use std::fmt::Write as _;

/// The note on a member's form; none if its type tells.
pub fn note(spec: &Spec, owner: &str, member: &Param) -> Result<Option<String>> {
    let form = form::member(spec, owner, member);
    if form == of_type(spec, &member.c_type()) {
        return Ok(None);
    }
    Ok(match form {
        // The member's name tells.
        Form::Chain => None,
        Form::List(_, count) => Some(format!("list {}", rust::ident(&count))),
        Form::Union { tag, .. } => Some(format!("by {}", rust::ident(&tag))),
        Form::Truth => Some("truth".to_owned()),
        Form::Bare => Some("bare".to_owned()),
        other => bail!("{owner}.{}: no note says {other:?}", member.name),
    })
}

/// The form by the Rust type alone, in which an alias is the type that it stands for.
fn of_type(spec: &Spec, ty: &CType) -> Form {
    if ty.array.is_some() {
        let element = CType {
            array: None,
            ..ty.clone()
        };
        return Form::Array(Box::new(of_type(spec, &element)));
    }
    if ty.pointers == 0 {
        return match form::value(spec, &ty.base, 0) {
            Form::Native => Form::Number("uintptr_t".to_owned()),
            Form::Truth => Form::Number("bool".to_owned()),
            other => other,
        };
    }
    match (ty.base.as_str(), ty.pointers) {
        ("uint8_t" | "bool" | "ur_bool_t" | "unsigned char", 1) => Form::Text,
        ("void" | "char", 1) => form::value(spec, &ty.base, 1),
        _ => Form::Pointer(Box::new(of_type(spec, &target(ty)))),
    }
}

fn target(ty: &CType) -> CType {
    CType {
        pointers: ty.pointers - 1,
        ..ty.clone()
    }
}

/// The form by the argument's type and its entry in the list of functions, as `src/abi/print/calls.rs`
/// derives it.
fn of_role(spec: &Spec, function: &Function, param: &Param) -> Result<Form> {
    let ty = param.c_type();
    let role = functions::form(spec, function, param)?;
    let words: Vec<&str> = role.split(' ').collect();
    Ok(match words.as_slice() {
        ["callback"] => Form::Callback,
        ["info", name, size] if *size != "-" => Form::Info {
            name: (*name).to_owned(),
            size: (*size).to_owned(),
        },
        ["outputs" | "handles", _, count, ..] | ["list" | "room", count, ..] => {
            match of_type(spec, &ty) {
                Form::Address => Form::Address,
                _ => Form::List(Box::new(of_type(spec, &target(&ty))), (*count).to_owned()),
            }
        }
        _ => of_type(spec, &ty),
    })
}

/// Rows `(FUNCTION, ARGUMENT, FORM)` of the arguments whose text does not follow from their types and entries
/// in the list of functions.
pub fn unusual_arguments(spec: &Spec) -> Result<String> {
    let mut rows = String::new();
    for function in spec.functions() {
        for param in &function.params {
            let form = form::member(spec, &function.name, param);
            if form != of_role(spec, function, param)? {
                let form = expression(&form, function)
                    .with_context(|| format!("{}: {}", function.name, param.name))?;
                let _ = writeln!(rows, "    ({:?}, {:?}, {form}),", function.name, param.name);
            }
        }
    }
    Ok(rows)
}

/// Rows `(PROPERTY, FORM)` of the properties whose text does not follow from their types.
pub fn unusual_properties(spec: &Spec) -> String {
    let mut rows = String::new();
    for found in property_enums(spec) {
        for (property, names) in properties(spec, found) {
            // `src/abi/info.rs` gives these types as a pointer, or as bytes in spite of `char`.
            let form = match property {
                Property::One(Form::Pointer(form)) if *form == Form::Truth => {
                    "PropertyForm::One(Form::Pointer(&Form::Truth))"
                }
                Property::List(Form::Bare) => "PropertyForm::List(Form::Bare)",
                Property::Text => "PropertyForm::Text",
                _ => continue,
            };
            let is_bytes =
                |name: &&String| form != "PropertyForm::Text" || *name == "UR_PROGRAM_INFO_IL";
            for name in names.iter().filter(is_bytes) {
                let _ = writeln!(rows, "    ({name:?}, {form}),");
            }
        }
    }
    rows
}

/// A form as a Rust constant. Other arguments are given by position.
fn expression(form: &Form, function: &Function) -> Result<String> {
    let place = |name: &str| {
        let mut params = function.params.iter();
        let found = params.position(|param| param.name == name);
        found.with_context(|| format!("no argument {name}"))
    };
    Ok(match form {
        Form::Number(ty) => match ty.as_str() {
            "size_t" | "uintptr_t" | "uint64_t" => "Form::Number(Number::U64)".to_owned(),
            "bool" => "Form::Number(Number::U8)".to_owned(),
            other => bail!("no number {other}"),
        },
        Form::Named(name) => format!("{name}::FORM"),
        Form::Truth => "Form::Truth".to_owned(),
        Form::Address | Form::Native => "Form::Address".to_owned(),
        Form::Bare => "Form::Bare".to_owned(),
        Form::Pointer(inner) => format!("Form::Pointer(&{})", expression(inner, function)?),
        Form::List(inner, count) => format!(
            "Form::List(&{}, {})",
            expression(inner, function)?,
            place(count)?
        ),
        Form::Info { name, size } => format!("Form::Info({}, {})", place(name)?, place(size)?),
        other => bail!("no constant says {other:?}"),
    })
}

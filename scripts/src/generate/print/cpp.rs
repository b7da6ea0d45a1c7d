//! The parts of `ur_print.hpp` that depend on types. Its template does the printing, and walks `calls`' list.

use super::form::{self, Form, Property};
use super::{chained, distinct, properties, property_enums, render};
use crate::model::{Enum, Item, Spec, Struct};
use anyhow::Result;
use minijinja::{Value, context};

pub fn header(spec: &Spec) -> Result<String> {
    let items = |pick: fn(&Spec, &Item) -> Option<Value>| -> Vec<Value> {
        spec.items().filter_map(|item| pick(spec, item)).collect()
    };
    let values = context! {
        types => types(spec),
        handles => spec.handles().map(|handle| handle.name.clone()).collect::<Vec<_>>(),
        enums => items(enumerators),
        unions => items(union),
        properties => property_enums(spec).map(|found| property_enum(spec, found)).collect::<Vec<_>>(),
        structs => spec.structs().map(|found| structure(spec, found)).collect::<Vec<_>>(),
        chained => chained(spec).map(|(tag, found)| context! { tag => tag.name.as_str(), name => found.name.as_str() }).collect::<Vec<_>>(),
    };
    render(
        include_str!("../../../templates/print/ur_print.hpp.j2"),
        values,
    )
}

/// The values with an `operator<<`, as its parameter is declared.
fn types(spec: &Spec) -> Vec<String> {
    let declared = spec.items().filter_map(|item| match item {
        Item::Enum(found) => Some(format!("enum {} value", found.name)),
        Item::Flags(found) => Some(format!("enum {} value", found.bit)),
        Item::Struct(found) => Some(format!("const struct {} value", found.name)),
        _ => None,
    });
    declared.collect()
}

fn enumerators(spec: &Spec, item: &Item) -> Option<Value> {
    let (name, values) = match item {
        // A version is printed as a number, by handwritten code.
        Item::Enum(found) if found.name != "ur_api_version_t" => (&found.name, &found.values),
        Item::Flags(found) => (&found.bit, &found.values),
        _ => return None,
    };
    // The list of calls has the names of their numbers.
    let of_call = |value: &str| spec.functions().any(|function| function.id == value);
    // The header prints types of `ur_api.h` only.
    let names: Vec<String> = distinct(values)
        .filter(|value| value.header.is_none() && !of_call(&value.name))
        .map(|value| value.name.clone())
        .collect();
    Some(context! { name, names, calls => name == "ur_function_t" })
}

fn union(spec: &Spec, item: &Item) -> Option<Value> {
    let Item::Union(found) = item else {
        return None;
    };
    let tag = form::tag_type(spec, &found.name)?;
    let members: Vec<Value> = form::union_members(spec, &found.name)
        .into_iter()
        .map(|(tag, member)| {
            let print = print(&form::member(spec, &found.name, member), &member.name);
            context! { tag, print }
        })
        .collect();
    Some(context! { name => found.name.as_str(), tag, members })
}

fn property_enum(spec: &Spec, found: &Enum) -> Value {
    let groups: Vec<Value> = properties(spec, found)
        .into_iter()
        .map(|(property, mut names)| {
            let is_ours = |name: &String| {
                let mut values = found.values.iter();
                values.any(|value| value.header.is_some() && value.name == *name)
            };
            names.retain(|name| !is_ours(name));
            (property, names)
        })
        .filter(|(_, names)| !names.is_empty())
        .map(|(property, names)| {
            let print = match property {
                Property::Text => "printString".to_owned(),
                Property::One(form) => format!("printProperty<{}>", c_type(&form)),
                Property::List(Form::Bare) => "printProperties<const void *, Bare>".to_owned(),
                Property::List(Form::Number(ty)) if ty == "uint8_t" => {
                    "printProperties<uint8_t, unsigned>".to_owned()
                }
                Property::List(form) => format!("printProperties<{}>", c_type(&form)),
            };
            context! { names, print }
        })
        .collect();
    context! { name => found.name.as_str(), groups }
}

fn structure(spec: &Spec, found: &Struct) -> Value {
    let members: Vec<String> = found
        .members
        .iter()
        .map(|member| print(&form::member(spec, &found.name, member), &member.name))
        .collect();
    context! { name => found.name.as_str(), members }
}

/// The call that prints a member of `value`.
fn print(form: &Form, name: &str) -> String {
    let arguments = format!("\"{name}\", value.{name}");
    match form {
        Form::Number(_)
        | Form::Truth
        | Form::Named(_)
        | Form::Address
        | Form::Text
        | Form::Pointer(_) => format!(".value({arguments})"),
        Form::Flags { bit, .. } => format!(".flags<{bit}>({arguments})"),
        Form::Native => format!(".native({arguments})"),
        Form::Bare | Form::Callback => format!(".bare({arguments})"),
        Form::List(_, count) => format!(".list({arguments}, value.{count})"),
        Form::Array(_) => format!(".array({arguments})"),
        Form::Chain => format!(".chain({arguments})"),
        Form::Union { tag, .. } => format!(".choice({arguments}, value.{tag})"),
        Form::Info { name, size } => format!(".info({arguments}, value.{name}, value.{size})"),
    }
}

/// The C++ type of a property with this form.
fn c_type(form: &Form) -> String {
    match form {
        Form::Number(ty) => ty.clone(),
        Form::Truth => "ur_bool_t".to_owned(),
        Form::Named(name) => name.clone(),
        Form::Flags { bit, .. } => format!("Flags<{bit}>"),
        Form::Native => "uintptr_t".to_owned(),
        Form::Pointer(inner) => format!("const {} *", c_type(inner)),
        _ => "const void *".to_owned(),
    }
}

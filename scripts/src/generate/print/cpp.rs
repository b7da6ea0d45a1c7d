//! The parts of `ur_print.hpp` that depend on types. Its templates do the printing.

use super::form::{self, Form, Property};
use super::{call_struct, chained, distinct, properties, property_enums, render};
use crate::model::{Enum, Function, Item, Param, Spec, Struct};
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
        calls => spec.functions().map(|function| call(spec, function)).collect::<Vec<_>>(),
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

fn enumerators(_: &Spec, item: &Item) -> Option<Value> {
    let (name, values) = match item {
        // A version is printed as a number, by handwritten code.
        Item::Enum(found) if found.name != "ur_api_version_t" => (&found.name, &found.values),
        Item::Flags(found) => (&found.bit, &found.values),
        _ => return None,
    };
    // The header prints types of `ur_api.h` only.
    let names: Vec<String> = distinct(values)
        .filter(|value| value.header.is_none())
        .map(|value| value.name.clone())
        .collect();
    Some(context! { name, names })
}

fn union(spec: &Spec, item: &Item) -> Option<Value> {
    let Item::Union(found) = item else {
        return None;
    };
    let tag = form::tag_type(spec, &found.name)?;
    let members: Vec<Value> = form::union_members(spec, &found.name)
        .into_iter()
        .map(|(tag, member)| {
            let print = print(&form::member(spec, &found.name, member), member, &|name| {
                format!("value.{name}")
            });
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
    let members = members(spec, &found.name, &found.members, |name| {
        format!("value.{name}")
    });
    context! { name => found.name.as_str(), members }
}

fn call(spec: &Spec, function: &Function) -> Value {
    let arguments = members(spec, &function.name, &function.params, |name| {
        format!("*call->p{name}")
    });
    context! { name => call_struct(function), id => function.id.as_str(), arguments }
}

fn members(
    spec: &Spec,
    owner: &str,
    list: &[Param],
    place: impl Fn(&str) -> String,
) -> Vec<String> {
    list.iter()
        .map(|param| print(&form::member(spec, owner, param), param, &place))
        .collect()
}

/// The call that prints a member. `place` gives the expression of another member by name.
fn print(form: &Form, param: &Param, place: &dyn Fn(&str) -> String) -> String {
    let name = &param.name;
    let at = place(name);
    match form {
        Form::Number(_)
        | Form::Truth
        | Form::Named(_)
        | Form::Address
        | Form::Text
        | Form::Pointer(_) => {
            format!(".value(\"{name}\", {at})")
        }
        Form::Flags { bit, .. } => format!(".flags<{bit}>(\"{name}\", {at})"),
        Form::Native => format!(".native(\"{name}\", {at})"),
        Form::Bare | Form::Callback => format!(".bare(\"{name}\", {at})"),
        Form::List(_, count) => format!(".list(\"{name}\", {at}, {})", place(count)),
        Form::Array(_) => format!(".array(\"{name}\", {at})"),
        Form::Chain => format!(".chain(\"{name}\", {at})"),
        Form::Union { tag, .. } => format!(".choice(\"{name}\", {at}, {})", place(tag)),
        Form::Info {
            name: property,
            size,
        } => {
            format!(
                ".info(\"{name}\", {at}, {}, {})",
                place(property),
                place(size)
            )
        }
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

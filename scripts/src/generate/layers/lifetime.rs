//! Rows of the lifetime layer: properties whose values are handles, and arguments that lead to structs with
//! handles. The rest follows from the list of functions.

use super::in_tables;
use crate::generate::functions::List;
use crate::generate::rust;
use crate::model::{CType, Dir, Function, Spec};
use std::fmt::Write as _;

const PROPERTIES: &str =
    "Properties whose values are handles: `NAME: PROPERTY KIND FORM, ...;`. FORM: `one` or `list`.";

const STRUCTS: &str = "\
Arguments that lead to structs with handles: `NAME ARG CASE;`. CASE is one of `Nested` in
`loader/src/layers/lifetime/roles.rs`.";

/// Structs with handles, each with its case in the loader.
const NESTED: [(&str, &str); 3] = [
    ("ur_exp_kernel_arg_properties_t", "KernelArguments"),
    (
        "ur_exp_command_buffer_update_kernel_launch_desc_t",
        "KernelUpdates",
    ),
    ("ur_usm_pool_desc_t", "PoolDescription"),
];

pub(super) fn lists(spec: &Spec) -> [List; 2] {
    let mut properties = String::new();
    let mut nested = String::new();
    for function in in_tables(spec) {
        let found = handles(spec, function);
        if !found.is_empty() {
            let _ = writeln!(properties, "{}:{found};", function.name);
        }
        for param in &function.params {
            let ty = param.c_type();
            let known = NESTED.iter().find(|(name, _)| *name == ty.base);
            if let (Some((_, nests)), 1, Dir::In | Dir::InOut) = (known, ty.pointers, param.dir) {
                let _ = writeln!(nested, "{} {:?} {nests};", function.name, param.name);
            }
        }
    }
    [
        List::new("for_each_handle_property", PROPERTIES, properties),
        List::new("for_each_struct_with_handles", STRUCTS, nested),
    ]
}

/// ` PROPERTY Kind one|list` for each property of an info query that is a handle.
fn handles(spec: &Spec, function: &Function) -> String {
    let query = || {
        let value = function
            .params
            .iter()
            .find(|param| param.info.is_some() && param.dir != Dir::In)?;
        let name = value.info.as_deref()?.first()?;
        let property = function.params.iter().find(|param| param.name == *name)?;
        spec.enum_of(&property.c_type().base)
    };
    let Some(property) = query() else {
        return String::new();
    };
    let handle = |value: &crate::model::Value| {
        let ty = value.ty.as_deref()?;
        let base = CType::parse(ty).base;
        let form = if ty.ends_with("[]") { "list" } else { "one" };
        spec.is_handle(&base)
            .then(|| format!("\n    {} {} {form}", value.name, rust::object_name(&base)))
    };
    let found: Vec<_> = property.values.iter().filter_map(handle).collect();
    found.join(",")
}

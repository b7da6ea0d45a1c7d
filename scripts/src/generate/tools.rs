//! `tools/src/urinfo/generated`: the properties that urinfo lists, each with how its bytes read.

use super::{File, rust};
use crate::model::{CType, Enum, Item, Spec};
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What urinfo lists, in its order.
const LISTED: [&str; 4] = [
    "ur_loader_config_info_t",
    "ur_adapter_info_t",
    "ur_platform_info_t",
    "ur_device_info_t",
];

pub fn files(spec: &Spec) -> Result<Vec<File>> {
    Ok(vec![
        File::rust(
            "tools/src/urinfo/generated/mod.rs",
            "The specification as urinfo needs it.",
            "pub mod info;",
        )?,
        File::rust(
            "tools/src/urinfo/generated/info.rs",
            "The properties of loaders, adapters, platforms and devices, and how they read.",
            &info(spec)?,
        )?,
    ])
}

/// Types by how they show.
#[derive(Default)]
struct Shown {
    enums: BTreeSet<String>,
    sets: BTreeSet<String>,
    structs: BTreeSet<String>,
}

fn info(spec: &Spec) -> Result<String> {
    let mut shown = Shown::default();
    let mut tables = String::new();
    for name in LISTED {
        let found = spec
            .enum_of(name)
            .with_context(|| format!("no enum {name}"))?;
        let _ = write!(
            tables,
            "/// Properties of `{name}`.\npub const {}: &[Property] = &[{}];\n",
            name.trim_start_matches("ur_")
                .trim_end_matches("_t")
                .to_uppercase(),
            rows(spec, found, &mut shown)?
        );
    }
    let list = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(", ");
    Ok(format!(
        "use crate::value::{{Handle, Property, Truth, digits, many, one, show, text}};
        use ur::abi::*;
        show! {{ enums: {}; sets: {}; structs: {}; }}
        {tables}",
        list(shown.enums),
        list(shown.sets),
        list(shown.structs),
    ))
}

fn rows(spec: &Spec, found: &Enum, shown: &mut Shown) -> Result<String> {
    let mut rows = String::new();
    let mut seen = BTreeSet::new();
    for value in &found.values {
        let Some(ty) = &value.ty else { continue };
        if seen.insert(value.value) {
            let _ = writeln!(
                rows,
                "Property {{ value: {}, name: {:?}, read: {} }},",
                value.value,
                value.name,
                reader(spec, ty, shown)?
            );
        }
    }
    Ok(rows)
}

/// The function that reads a property of a C type.
fn reader(spec: &Spec, text: &str, shown: &mut Shown) -> Result<String> {
    let ty = CType::parse(text);
    Ok(match (ty.base.as_str(), ty.array.is_some()) {
        ("char", true) => "text".to_owned(),
        ("uint8_t", true) => "digits".to_owned(),
        (_, true) => format!("many::<{}>", element(spec, &ty, shown)?),
        (_, false) => format!("one::<{}>", element(spec, &ty, shown)?),
    })
}

/// The Rust type that shows as one value does.
fn element(spec: &Spec, ty: &CType, shown: &mut Shown) -> Result<String> {
    let base = &ty.base;
    if ty.pointers > 0 || spec.is_handle(base) {
        return Ok("Handle".to_owned());
    }
    if base == "ur_bool_t" {
        return Ok("Truth".to_owned());
    }
    if let Some(flags) = spec.flags_of(base) {
        shown.sets.insert(flags.name.clone());
        return Ok(flags.name.clone());
    }
    if spec.enum_of(base).is_some() {
        shown.enums.insert(base.clone());
        return Ok(base.clone());
    }
    if let Some(found) = spec.struct_of(base) {
        let points = found
            .members
            .iter()
            .any(|member| member.c_type().pointers > 0 || has_pointer(spec, &member.ty));
        ensure!(!points, "{base} holds pointers, which a tool cannot follow");
        shown.structs.insert(base.clone());
        return Ok(base.clone());
    }
    Ok(rust::ty(base))
}

/// Whether a union has a member that points somewhere.
fn has_pointer(spec: &Spec, name: &str) -> bool {
    spec.items().any(|item| match item {
        Item::Union(found) if found.name == name => found
            .members
            .iter()
            .any(|member| member.c_type().pointers > 0),
        _ => false,
    })
}

//! `src/abi/info.rs`: every property of every info query, as a macro over the list.
//!
//! The enums of the hal and the tables of `src/abi/property.rs` expand it.

use super::{File, print, rust};
use crate::model::{CType, Enum, Item, Spec, Value};
use anyhow::Result;
use std::collections::BTreeSet;
use std::fmt::Write as _;

pub fn files(spec: &Spec) -> Result<Vec<File>> {
    let mut types = Types::default();
    let mut rows = String::new();
    for found in enums(spec) {
        let _ = writeln!(
            rows,
            "            {} {} {:?} {{",
            name(&found.name),
            found.name,
            found.desc
        );
        let mut seen = BTreeSet::new();
        for value in &found.values {
            if seen.insert(value.value) {
                let _ = writeln!(
                    rows,
                    "                {}",
                    row(spec, found, value, &mut types)
                );
            }
        }
        rows.push_str("            }\n");
    }
    let text = minijinja::Environment::new().render_str(
        include_str!("../../templates/info.rs.j2"),
        minijinja::context! {
            rows,
            enums => list(types.enums),
            flags => list(types.flags),
            structs => list(types.structs),
            opaque => list(types.opaque),
            unusual => print::unusual_properties(spec),
        },
    )?;
    Ok(vec![File::new("src/abi/info.rs", text + "\n")])
}

/// The info enums: those that a function takes as `propName`.
pub fn enums(spec: &Spec) -> Vec<&Enum> {
    let mut seen = BTreeSet::new();
    spec.functions()
        .flat_map(|function| &function.params)
        .filter(|param| param.name == "propName")
        .filter_map(|param| spec.enum_of(&param.c_type().base))
        .filter(|found| seen.insert(found.name.clone()))
        .collect()
}

/// `QueueInfo` of `ur_queue_info_t`.
pub fn name(found: &str) -> String {
    let stem = found
        .trim_start_matches("ur_")
        .trim_start_matches("exp_")
        .trim_end_matches("_t");
    heck::AsUpperCamelCase(stem).to_string()
}

fn variant(found: &Enum, value: &str) -> String {
    let prefix = format!("{}_", found.name.trim_end_matches("_t").to_uppercase());
    let stem = value.strip_prefix(&prefix).unwrap_or(value);
    let camel = heck::AsUpperCamelCase(stem).to_string();
    if camel.starts_with(|letter: char| letter.is_ascii_digit()) {
        format!("Is{camel}")
    } else {
        camel
    }
}

/// `Variant = ENUMERATOR, presence, form, "description";`
fn row(spec: &Spec, found: &Enum, value: &Value, types: &mut Types) -> String {
    let presence = if value.optional { "optional" } else { "always" };
    format!(
        "{} = {}, {presence}, {}, {:?};",
        variant(found, &value.name),
        value.name,
        form(spec, value, types),
        value.desc
    )
}

/// Element types that a reader must know, by kind.
#[derive(Default)]
struct Types {
    enums: BTreeSet<String>,
    flags: BTreeSet<String>,
    /// Structures without pointers.
    structs: BTreeSet<String>,
    /// Structs with pointers, which only their owner can follow.
    opaque: BTreeSet<String>,
}

fn list(names: BTreeSet<String>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// The memory layout of a value: `text()`, `one(T)`, `list(T)` or `array(N, T)`.
fn form(spec: &Spec, value: &Value, types: &mut Types) -> String {
    let text = value.ty.as_deref().unwrap_or("void");
    let (element, extent) = match text.split_once('[') {
        Some((element, extent)) => (element.trim(), Some(extent.trim_end_matches(']').trim())),
        None => (text.trim(), None),
    };
    // Intermediate language is declared as `char`, but it is bytes.
    let element = match value.name.as_str() {
        "UR_PROGRAM_INFO_IL" => "uint8_t",
        _ => element,
    };
    match extent {
        None => format!("one({})", self::element(spec, element, types)),
        Some("") if element == "char" => "text()".to_owned(),
        Some("") => format!("list({})", self::element(spec, element, types)),
        Some(extent) => format!("array({extent}, {})", self::element(spec, element, types)),
    }
}

/// The Rust type of an element. `Truth` stands for `ur_bool_t`, whose alias is a byte.
fn element(spec: &Spec, text: &str, types: &mut Types) -> String {
    let ty = CType::parse(text);
    let base = &ty.base;
    if base == "ur_bool_t" {
        return "Truth".to_owned();
    }
    if ty.pointers > 0 {
        return rust::ctype(&ty);
    }
    if let Some(flags) = spec.flags_of(base) {
        types.flags.insert(flags.name.clone());
        return flags.name.clone();
    }
    if spec.enum_of(base).is_some() {
        types.enums.insert(base.clone());
    } else if let Some(found) = spec.struct_of(base) {
        let points = found
            .members
            .iter()
            .any(|member| member.c_type().pointers > 0 || has_pointer(spec, &member.ty));
        let set = if points {
            &mut types.opaque
        } else {
            &mut types.structs
        };
        set.insert(base.clone());
    }
    rust::ctype(&ty)
}

/// Whether a union has a pointer among its members.
fn has_pointer(spec: &Spec, name: &str) -> bool {
    spec.items().any(|item| match item {
        Item::Union(found) if found.name == name => found
            .members
            .iter()
            .any(|member| member.c_type().pointers > 0),
        _ => false,
    })
}

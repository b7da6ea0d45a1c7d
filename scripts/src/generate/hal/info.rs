//! The info enums: properties as Rust enums.

use crate::generate::rust;
use crate::model::{Enum, Spec};
use std::collections::BTreeSet;
use std::fmt::Write as _;

pub(super) const INFO_DOC: &str =
    "Properties as Rust enums, so that a query is a match without a wildcard.";

/// The info enums: those that some function takes as `propName`.
fn info_enums(spec: &Spec) -> Vec<&Enum> {
    let mut seen = BTreeSet::new();
    spec.functions()
        .flat_map(|function| &function.params)
        .filter(|param| param.name == "propName")
        .filter_map(|param| spec.enum_of(&param.c_type().base))
        .filter(|found| seen.insert(found.name.clone()))
        .collect()
}

/// `QueueInfo` of `ur_queue_info_t`.
pub(super) fn info_name(found: &str) -> String {
    let stem = found
        .trim_start_matches("ur_")
        .trim_start_matches("exp_")
        .trim_end_matches("_t");
    heck::AsUpperCamelCase(stem).to_string()
}

fn variant_name(found: &Enum, value: &str) -> String {
    let prefix = format!("{}_", found.name.trim_end_matches("_t").to_uppercase());
    let stem = value.strip_prefix(&prefix).unwrap_or(value);
    let camel = heck::AsUpperCamelCase(stem).to_string();
    if camel.starts_with(|letter: char| letter.is_ascii_digit()) {
        format!("Is{camel}")
    } else {
        camel
    }
}

pub(super) fn infos(spec: &Spec) -> String {
    let mut out = String::from("use crate::abi::*;\nuse crate::object::Error;\n");
    for found in info_enums(spec) {
        let name = info_name(&found.name);
        let mut seen = BTreeSet::new();
        let values: Vec<_> = found
            .values
            .iter()
            .filter(|value| seen.insert(value.value))
            .collect();
        let variants: String = values
            .iter()
            .map(|value| {
                format!(
                    "{}{},",
                    rust::doc(&value.desc),
                    variant_name(found, &value.name)
                )
            })
            .collect();
        let arms: String = values
            .iter()
            .map(|value| {
                format!(
                    "{} => Ok(Self::{}),",
                    value.name,
                    variant_name(found, &value.name)
                )
            })
            .collect();
        let _ = write!(
            out,
            "{doc}#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)] pub enum {name} {{ {variants} }}
            impl TryFrom<{c}> for {name} {{
                type Error = Error;
                fn try_from(value: {c}) -> Result<Self, Error> {{
                    match value {{ {arms} _ => Err(Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION)) }}
                }}
            }}\n",
            doc = rust::doc(&found.desc),
            c = found.name,
        );
    }
    out
}

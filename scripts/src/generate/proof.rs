//! `tests/abi_layout.rs`: what the reference fixes of the types that running code uses.
//!
//! The numbers come from the reference's facts, not from the specification, so that the test of
//! `src/abi` does not repeat what made it.

use super::{File, rust};
use crate::model::Spec;
use crate::reference::{Layout, Macro, Reference};
use anyhow::{Context as _, Result};
use std::fmt::Write as _;

pub fn files(_spec: &Spec) -> Result<Vec<File>> {
    let reference = Reference::load()?;
    let layouts = reference
        .layouts()
        .fold(String::new(), |out, (name, layout)| {
            out + &layout_line(name, layout)
        });
    let mut values = String::new();
    for (name, enumerators) in &reference.enums {
        let list = enumerators
            .iter()
            .filter(|(name, _)| !name.ends_with("_FORCE_UINT32"));
        let list: Vec<String> = list
            .map(|(name, value)| format!("{name} = {value}"))
            .collect();
        let _ = writeln!(values, "    {name}: {};", list.join(", "));
    }
    let mut pointers = String::new();
    for (name, function) in &reference.pointers {
        let signature = reference
            .signature(function)
            .with_context(|| format!("{name} points to unknown {function}"))?;
        let types: Vec<String> = signature
            .params
            .iter()
            .map(|(_, ty)| rust::ty(ty))
            .collect();
        let _ = writeln!(
            pointers,
            "    {name}({}) -> {};",
            types.join(", "),
            rust::ty(&signature.returns)
        );
    }
    for (name, signature) in &reference.callbacks {
        let types: Vec<String> = signature
            .params
            .iter()
            .map(|(_, ty)| rust::ty(ty))
            .collect();
        let _ = writeln!(
            pointers,
            "    {name}({}) -> {};",
            types.join(", "),
            rust::ty(&signature.returns)
        );
    }
    let mut constants = String::new();
    for (name, found) in &reference.macros {
        match found {
            Macro::Object(value) if value.starts_with('"') => {
                let _ = writeln!(constants, "    {name}: &std::ffi::CStr = c{value};");
            }
            Macro::Object(value) => {
                let _ = writeln!(constants, "    {name}: u32 = {value};");
            }
            Macro::Function { .. } => {}
        }
    }
    let text = include_str!("../../templates/abi_layout.rs.j2");
    let environment = minijinja::Environment::new();
    let text = environment.render_str(
        text,
        minijinja::context! { layouts, values, pointers, constants },
    )? + "\n";
    Ok(vec![File::new("tests/abi_layout.rs", text)])
}

/// `name: size, align { field: type = offset, ... }`
fn layout_line(name: &str, layout: &Layout) -> String {
    let fields = layout
        .fields
        .iter()
        .map(|(name, ty, offset)| format!("{}: {} = {offset}", rust::ident(name), rust::ty(ty)));
    let fields: Vec<String> = fields.collect();
    format!(
        "    {name}: {}, {} {{ {} }}\n",
        layout.size,
        layout.align,
        fields.join(", ")
    )
}

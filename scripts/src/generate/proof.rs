//! `tests/generated/abi_layout.rs`: the reference's layout of the types in `src/abi`.
//!
//! The numbers are the reference's facts, not the specification's, so that the test is independent of the
//! generator of `src/abi`.

use super::{File, rust};
use crate::model::Spec;
use crate::reference::{Layout, Macro, Reference, Signature};
use anyhow::{Context as _, Result};
use std::fmt::Write as _;

pub fn files(_spec: &Spec) -> Result<Vec<File>> {
    let reference = Reference::load()?;
    let mut layouts = String::new();
    for (name, layout) in reference.layouts() {
        layouts += &layout_line(name, layout);
    }
    let mut pointers = String::new();
    for (name, function) in &reference.pointers {
        let signature = reference.signature(function);
        let signature =
            signature.with_context(|| format!("{name} points to unknown {function}"))?;
        pointers += &pointer_line(name, signature);
    }
    for (name, signature) in &reference.callbacks {
        pointers += &pointer_line(name, signature);
    }
    let (values, constants) = (values(&reference), constants(&reference));
    let text = minijinja::Environment::new().render_str(
        include_str!("../../templates/abi_layout.rs.j2"),
        minijinja::context! { layouts, values, constants, pointers },
    )?;
    Ok(vec![File::new(
        "tests/generated/abi_layout.rs",
        text + "\n",
    )])
}

/// `name: size, align { field: type = offset, ... }`
fn layout_line(name: &str, layout: &Layout) -> String {
    let fields = layout.fields.iter();
    let fields =
        fields.map(|(field, of, offset)| format!("{}: {} = {offset}", rust::ident(field), ty(of)));
    let fields: Vec<String> = fields.collect();
    format!(
        "    {name}: {}, {} {{ {} }}\n",
        layout.size,
        layout.align,
        fields.join(", ")
    )
}

/// `name(type, ...) -> type;`
fn pointer_line(name: &str, signature: &Signature) -> String {
    let types: Vec<String> = signature.params.iter().map(|(_, of)| ty(of)).collect();
    format!(
        "    {name}({}) -> {};\n",
        types.join(", "),
        ty(&signature.returns)
    )
}

/// `enum: ENUMERATOR = value, ...;`, without the `FORCE_UINT32` enumerators.
fn values(reference: &Reference) -> String {
    let mut out = String::new();
    for (name, enumerators) in &reference.enums {
        let named = enumerators
            .iter()
            .filter(|(name, _)| !name.ends_with("_FORCE_UINT32"));
        let list: Vec<String> = named
            .map(|(name, value)| format!("{name} = {value}"))
            .collect();
        let _ = writeln!(out, "    {name}: {};", list.join(", "));
    }
    out
}

/// `MACRO: type = value;`, for masks and strings.
fn constants(reference: &Reference) -> String {
    let mut out = String::new();
    for (name, found) in &reference.macros {
        let _ = match found {
            Macro::Object(text) if text.starts_with('"') => {
                writeln!(out, "    {name}: &std::ffi::CStr = c{text};")
            }
            Macro::Object(value) => writeln!(out, "    {name}: u32 = {value};"),
            Macro::Function { .. } => Ok(()),
        };
    }
    out
}

/// A type as `src/abi` writes it. Array extents are plain numbers here.
fn ty(text: &str) -> String {
    rust::ty(text).replace(" as usize]", "]")
}

//! `src/abi`: the C types, tables and parameter structs as running Rust code sees them.

use super::{File, rust};
use crate::model::{Callback, Enum, Flags, Function, Item, Param, Spec};
use anyhow::Result;
use std::fmt::Write as _;

pub fn files(spec: &Spec) -> Result<Vec<File>> {
    Ok(vec![
        File::rust("src/abi/mod.rs", MOD_DOC, MOD_BODY)?,
        File::rust(
            "src/abi/types.rs",
            "Enums, flag sets, structs, unions, callbacks and macros.",
            &types(spec),
        )?,
        File::rust(
            "src/abi/ddi.rs",
            "Function pointer types and the tables that adapters fill.",
            &ddi(spec),
        )?,
        File::rust(
            "src/abi/params.rs",
            "One struct a function: pointers to a call's arguments, for tracing.",
            &params(spec),
        )?,
    ])
}

const MOD_DOC: &str = "The C ABI of Unified Runtime 0.12: `repr(C)` types and DDI tables.\n\n\
Enums are transparent integers and `bool` is a byte, so that no value that a C caller passes is\n\
undefined behaviour. Knows nothing of loaders or adapters.";

const MOD_BODY: &str = "
#![allow(non_camel_case_types, non_snake_case)]
mod ddi;
mod functions;
pub(crate) mod info;
mod params;
pub mod print;
pub mod property;
mod types;
pub use ddi::*;
pub use params::*;
pub use types::*;
";

fn types(spec: &Spec) -> String {
    let mut out = String::from("use std::ffi::{c_char, c_void};\n");
    for item in spec.items() {
        match item {
            Item::Handle(handle) => {
                let name = &handle.name;
                let _ = write!(
                    out,
                    "{doc}#[repr(C)] #[derive(Debug)] pub struct {name}_ {{ _opaque: [u8; 0] }}\n{doc}pub type {name} = *mut {name}_;\n",
                    doc = rust::doc(&handle.desc),
                );
            }
            Item::Typedef(typedef) => {
                let _ = writeln!(
                    out,
                    "{}pub type {} = {};",
                    rust::doc(&typedef.desc),
                    typedef.name,
                    rust::ty(&typedef.ty)
                );
            }
            Item::Enum(found) => enumeration(&mut out, found),
            Item::Flags(found) => flags(&mut out, found),
            Item::Struct(found) => {
                aggregate(
                    &mut out,
                    spec,
                    "struct",
                    &found.name,
                    &found.desc,
                    &found.members,
                );
            }
            Item::Union(found) => {
                aggregate(
                    &mut out,
                    spec,
                    "union",
                    &found.name,
                    &found.desc,
                    &found.members,
                );
            }
            Item::Callback(found) => callback(&mut out, found),
            Item::Macro(found) => {
                if found.args.is_empty() && found.value.starts_with('"') {
                    let text = found.value.trim_matches('"');
                    let _ = writeln!(
                        out,
                        "{}pub const {}: &std::ffi::CStr = c{text:?};",
                        rust::doc(&found.desc),
                        found.name
                    );
                }
            }
            Item::Function(_) => {}
        }
    }
    out
}

fn enumeration(out: &mut String, found: &Enum) {
    let name = &found.name;
    let _ = writeln!(
        out,
        "{}#[repr(transparent)] #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)] pub struct {name}(pub u32);",
        rust::doc(&found.desc)
    );
    for value in &found.values {
        let _ = writeln!(
            out,
            "{}pub const {}: {name} = {name}({});",
            rust::doc(&value.desc),
            value.name,
            value.value
        );
    }
    // Aliases share a value; only the first can stand in a match.
    let mut seen = std::collections::BTreeSet::new();
    let first: Vec<_> = found
        .values
        .iter()
        .filter(|value| seen.insert(value.value))
        .collect();
    let arms: String = first
        .iter()
        .map(|value| format!("{} => Some({:?}),", value.value, value.name))
        .collect();
    let all: String = first
        .iter()
        .map(|value| format!("{},", value.name))
        .collect();
    let _ = write!(
        out,
        "impl {name} {{
            /// Every defined value, once.
            pub const ALL: &'static [Self] = &[{all}];
            /// The C name of the value, if it is defined.
            pub fn name(self) -> Option<&'static str> {{ match self.0 {{ {arms} _ => None }} }}
        }}
        impl std::fmt::Debug for {name} {{
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {{
                match self.name() {{ Some(name) => f.write_str(name), None => write!(f, \"{name}({{}})\", self.0) }}
            }}
        }}\n",
    );
}

fn flags(out: &mut String, found: &Flags) {
    let name = &found.name;
    let _ = writeln!(
        out,
        "{}#[repr(transparent)] #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)] pub struct {name}(pub u32);",
        rust::doc(&found.desc)
    );
    let _ = writeln!(
        out,
        "{}pub type {} = {name};",
        rust::doc("One bit of the set."),
        found.bit
    );
    let mask = found.undefined();
    for value in &found.values {
        let _ = writeln!(
            out,
            "{}pub const {}: {name} = {name}({:#x});",
            rust::doc(&value.desc),
            value.name,
            value.value
        );
    }
    let _ = writeln!(
        out,
        "/// Bits that are not defined.\npub const {}: u32 = {mask:#010x};",
        found.mask
    );
    let names: String = found
        .values
        .iter()
        .map(|value| format!("({:#x}, {:?}),", value.value, value.name))
        .collect();
    let _ = write!(
        out,
        "impl {name} {{
            /// Each defined bit with its C name.
            pub const BITS: &'static [(u32, &'static str)] = &[{names}];
            /// Bits that are not defined.
            pub const UNDEFINED: u32 = {mask_name};
            pub const fn contains(self, bits: Self) -> bool {{ self.0 & bits.0 == bits.0 }}
            pub const fn intersects(self, bits: Self) -> bool {{ self.0 & bits.0 != 0 }}
        }}
        impl std::ops::BitOr for {name} {{ type Output = Self; fn bitor(self, other: Self) -> Self {{ Self(self.0 | other.0) }} }}
        impl std::ops::BitOrAssign for {name} {{ fn bitor_assign(&mut self, other: Self) {{ self.0 |= other.0; }} }}
        impl std::fmt::Debug for {name} {{
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {{
                let mut rest = self.0;
                let mut first = true;
                for &(bit, name) in Self::BITS {{
                    if bit != 0 && rest & bit == bit {{
                        if !first {{ f.write_str(\" | \")?; }}
                        f.write_str(name)?;
                        rest &= !bit;
                        first = false;
                    }}
                }}
                if rest != 0 || first {{
                    if !first {{ f.write_str(\" | \")?; }}
                    write!(f, \"{{rest:#x}}\")?;
                }}
                Ok(())
            }}
        }}\n",
        mask_name = found.mask,
    );
}

fn aggregate(
    out: &mut String,
    spec: &Spec,
    keyword: &str,
    name: &str,
    desc: &str,
    members: &[Param],
) {
    let fields: String = members
        .iter()
        .map(|member| {
            format!(
                "{}pub {}: {},\n",
                rust::doc(&member.desc),
                rust::ident(&member.name),
                rust::ty(&member.ty)
            )
        })
        .collect();
    let _ = writeln!(
        out,
        "{}#[repr(C)] #[derive(Clone, Copy)] pub {keyword} {name} {{ {fields} }}",
        rust::doc(desc)
    );
    let tag = match spec.stype(name) {
        Some(value) if keyword == "struct" => format!("Self {{ stype: {}, ..zeroed }}", value.name),
        _ => "zeroed".to_owned(),
    };
    let _ = write!(
        out,
        "impl Default for {name} {{
            /// All zero, null and unset, but for the structure's tag where it has one.
            #[allow(clippy::undocumented_unsafe_blocks, clippy::needless_update)]
            fn default() -> Self {{
                let zeroed: Self = unsafe {{ std::mem::zeroed() }};
                {tag}
            }}
        }}\n"
    );
}

fn callback(out: &mut String, found: &Callback) {
    let returns = match rust::ty(&found.returns).as_str() {
        "()" => String::new(),
        other => format!(" -> {other}"),
    };
    let _ = writeln!(
        out,
        "{}pub type {} = Option<unsafe extern \"C\" fn({}){returns}>;",
        rust::doc(&found.desc),
        found.name,
        rust::params(&found.params)
    );
}

/// `ur_pfnQueueCreate_t`.
pub fn pfn(function: &Function) -> String {
    format!("ur_pfn{}_t", function.stem())
}

fn ddi(spec: &Spec) -> String {
    let mut out = String::from("use super::types::*;\nuse std::ffi::{c_char, c_void};\n");
    for function in spec.functions() {
        let _ = writeln!(
            out,
            "/// Pointer to `{}`.\npub type {} = Option<unsafe extern \"C\" fn({}) -> ur_result_t>;",
            function.name,
            pfn(function),
            rust::params(&function.params)
        );
    }
    let mut members = String::new();
    let mut symbols = String::new();
    for table in &spec.tables {
        let mut slots = String::new();
        for name in &table.slots {
            if let Some(function) = spec.functions().find(|function| &function.name == name) {
                let slot = function.slot.as_deref().unwrap_or_default();
                let _ = writeln!(slots, "/// `{name}`.\npub {slot}: {},", pfn(function));
            }
        }
        let _ = write!(
            out,
            "/// Functions of the {table} table.\n#[repr(C)] #[derive(Clone, Copy, Default)] pub struct {name} {{ {slots} }}
            /// Pointer to `urGet{table}ProcAddrTable`.
            pub type ur_pfnGet{table}ProcAddrTable_t = Option<unsafe extern \"C\" fn(version: ur_api_version_t, pDdiTable: *mut {name}) -> ur_result_t>;\n",
            table = table.name,
            name = table.struct_name
        );
        let _ = writeln!(
            members,
            "/// The {0} table.\npub {0}: {1},",
            table.name, table.struct_name
        );
        let _ = writeln!(
            symbols,
            "DdiTable {{ name: {0:?}, symbol: c\"urGet{0}ProcAddrTable\", offset: std::mem::offset_of!(ur_dditable_t, {0}), slots: {1} }},",
            table.name,
            table.slots.len()
        );
    }
    let _ = write!(
        out,
        "/// All tables of an adapter; the first word of every handle points to one.
        #[repr(C)] #[derive(Clone, Copy, Default)] pub struct ur_dditable_t {{ {members} }}
        /// Where a table lies and which symbol fills it.
        #[derive(Debug, Clone, Copy)]
        pub struct DdiTable {{
            /// Name of the table: `Queue`.
            pub name: &'static str,
            /// Symbol that an adapter exports to fill it.
            pub symbol: &'static std::ffi::CStr,
            /// Byte offset within `ur_dditable_t`.
            pub offset: usize,
            /// Number of function slots.
            pub slots: usize,
        }}
        /// Every table, in the order of `ur_dditable_t`.
        pub const DDI_TABLES: [DdiTable; {}] = [{symbols}];\n",
        spec.tables.len()
    );
    out
}

fn params(spec: &Spec) -> String {
    let mut out = String::from("use super::types::*;\nuse std::ffi::{c_char, c_void};\n");
    for function in spec.functions() {
        let Some(name) = function.params_struct() else {
            continue;
        };
        let fields: String = function
            .params
            .iter()
            .map(|param| {
                // Constness of the argument itself shows only here, behind a pointer to it.
                let ty = param.c_type();
                let pointer = if ty.is_const && ty.is_plain() {
                    "*const"
                } else {
                    "*mut"
                };
                format!("pub p{}: {pointer} {},\n", param.name, rust::ctype(&ty))
            })
            .collect();
        let _ = write!(
            out,
            "/// Arguments of `{}`.\n#[repr(C)] #[derive(Clone, Copy)] pub struct {name} {{ {fields} }}\n",
            function.name
        );
    }
    out
}

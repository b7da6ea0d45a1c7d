//! `info.rs`: the properties of every info query.

use crate::generate::rust;
use crate::model::{Item, Spec};
use std::fmt::Write as _;

pub(super) fn info(spec: &Spec) -> String {
    let mut out = String::from(
        "// Some objects have no suite yet.
        #![allow(dead_code)]
        use ur::abi::*;
        /// How many bytes the value of a property takes.
        #[derive(Clone, Copy, Debug)]
        pub enum Size {
            /// Exactly that many.
            Exact(usize),
            /// Any number of elements of that size.
            Many(usize),
            /// A text with a NUL at its end.
            Text,
        }
        /// One value of an info enumeration.
        #[derive(Clone, Copy, Debug)]
        pub struct Property {
            pub value: u32,
            pub name: &'static str,
            pub size: Size,
            /// The value is of type `ur_bool_t`.
            pub boolean: bool,
            /// An adapter may answer `UNSUPPORTED_ENUMERATION`.
            pub optional: bool,
            /// The bits that may not be set, where the value is a set of flags.
            pub undefined: u32,
            /// The values allowed, where the value is an enumeration.
            pub allowed: &'static [u32],
        }
        \n",
    );
    for (list, doc, condition) in [
        (
            "REFUSE_SIZE_WITHOUT_BUFFER",
            "Queries that refuse a size when there is no buffer of that size.",
            "propSize != 0 and pPropValue == null",
        ),
        (
            "REFUSE_NO_OUTPUT",
            "Queries that refuse to be asked for nothing.",
            "pPropValue == null and pPropSizeRet == null",
        ),
        (
            "NO_ROOM_IS_INVALID_VALUE",
            "Queries to which a buffer of no bytes is an invalid value, not an invalid size.",
            "pPropValue and propSize == 0",
        ),
    ] {
        let names = spec.functions().filter(|function| {
            function
                .errors
                .iter()
                .any(|case| case.when.as_deref() == Some(condition))
        });
        let names: String = names
            .map(|function| format!("{:?},", function.name))
            .collect();
        let _ = write!(out, "/// {doc}\npub const {list}: &[&str] = &[{names}];\n");
    }
    for item in spec.items() {
        let Item::Enum(found) = item else { continue };
        if !found.values.iter().any(|value| value.ty.is_some()) {
            continue;
        }
        let mut rows = String::new();
        for value in &found.values {
            let Some(text) = &value.ty else { continue };
            // Intermediate language is bytes, though `char`.
            let text = if value.name == "UR_PROGRAM_INFO_IL" {
                "uint8_t["
            } else {
                text
            };
            let (size, element) = size_of(text);
            let undefined = spec
                .flags_of(&element)
                .map_or("0".to_owned(), |flags| flags.mask.clone());
            let allowed: String = spec
                .enum_of(&element)
                .iter()
                .flat_map(|list| &list.values)
                .map(|value| format!("{},", value.value))
                .collect();
            let _ = writeln!(
                rows,
                "Property {{ value: {}, name: {:?}, size: {size}, boolean: {}, optional: {}, undefined: {undefined}, allowed: &[{allowed}] }},",
                value.value,
                value.name,
                text == "ur_bool_t",
                value.optional,
            );
        }
        let name = found
            .name
            .trim_start_matches("ur_")
            .trim_end_matches("_t")
            .to_uppercase();
        let _ = write!(
            out,
            "/// Properties of `{}`.\npub const {name}: &[Property] = &[{rows}];\n",
            found.name
        );
    }
    out
}

/// The `Size` of a property's type, and the type of one element.
fn size_of(text: &str) -> (String, String) {
    let (element, extent) = match text.split_once('[') {
        Some((element, extent)) => (element.trim(), Some(extent.trim_end_matches(']').trim())),
        None => (text.trim(), None),
    };
    let bytes = format!(
        "size_of::<{}>()",
        rust::ty(element)
            .replace("c_void", "std::ffi::c_void")
            .replace("c_char", "std::ffi::c_char")
    );
    let size = match extent {
        None => format!("Size::Exact({bytes})"),
        Some("") if element == "char" => "Size::Text".to_owned(),
        Some("") => format!("Size::Many({bytes})"),
        Some(extent) => format!("Size::Exact({extent} * {bytes})"),
    };
    (size, element.to_owned())
}

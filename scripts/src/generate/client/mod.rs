//! `conformance/src/generated`: what the conformance program needs of the specification. `api.rs`
//! calls a loader's public functions, `info.rs` lists the properties of every info query, and
//! `arguments.rs` makes one wrong call for each argument that the specification restricts.

use super::{File, abi, rust};
use crate::model::{CType, Dir, Function, Item, Own, Param, Spec};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

pub fn files(spec: &Spec) -> Result<Vec<File>> {
    Ok(vec![
        File::rust("conformance/src/generated/mod.rs", MOD_DOC, MOD_BODY)?,
        File::rust("conformance/src/generated/api.rs", API_DOC, &api(spec))?,
        File::rust(
            "conformance/src/generated/info.rs",
            "The properties of every info query, with the size of their values.",
            &info(spec),
        )?,
        File::rust(
            "conformance/src/generated/arguments.rs",
            ARGUMENTS_DOC,
            &arguments(spec),
        )?,
    ])
}

const MOD_DOC: &str = "The specification as the conformance program needs it.";

const MOD_BODY: &str = "
pub mod api;
pub mod arguments;
pub mod info;
";

const API_DOC: &str = "Every public function of a loader, by name.\n\n\
The methods are safe to name although C promises nothing about their arguments: each call is\n\
itself what is under test, and what a callee breaks stays in the process that runs the test.";

fn api(spec: &Spec) -> String {
    let functions: Vec<&Function> = spec.functions().collect();
    let mut fields = String::new();
    let mut loads = String::new();
    let mut methods = String::new();
    let mut names = String::new();
    for (index, function) in functions.iter().enumerate() {
        let name = &function.name;
        let _ = writeln!(fields, "{name}: {},", abi::pfn(function));
        let _ = writeln!(
            loads,
            "{name}: unsafe {{ function(library.address(c{name:?})) }},"
        );
        let _ = writeln!(names, "{name:?},");
        let arguments: Vec<String> = function
            .params
            .iter()
            .map(|param| rust::ident(&param.name))
            .collect();
        let _ = write!(
            methods,
            "pub fn {name}(&self, {}) -> Status {{
                let result = self.symbols.{name}.map(|call| unsafe {{ call({}) }});
                self.calls.record({index}, result)
            }}\n",
            rust::params(&function.params),
            arguments.join(", ")
        );
    }
    format!(
        "#![allow(non_snake_case, clippy::too_many_arguments, clippy::undocumented_unsafe_blocks)]
        use crate::status::{{Calls, Status}};
        use std::ffi::{{c_char, c_void}};
        use ur::abi::*;
        use ur::dl::{{Library, function}};
        /// Names of all functions, in the order of the call counters.
        pub const FUNCTIONS: [&str; {count}] = [{names}];
        struct Symbols {{ {fields} }}
        /// A loader library, opened, with a count of the calls made to each of its functions.
        pub struct Api {{
            symbols: Symbols,
            calls: Calls,
            _library: Library,
        }}
        impl Api {{
            /// Looks up all functions of an open library; a missing one is an error when it is called.
            pub fn new(library: Library) -> Self {{
                let symbols = Symbols {{ {loads} }};
                Self {{ symbols, calls: Calls::new(&FUNCTIONS), _library: library }}
            }}
            pub fn calls(&self) -> &Calls {{ &self.calls }}
            {methods}
        }}\n",
        count = functions.len(),
    )
}

fn info(spec: &Spec) -> String {
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

const ARGUMENTS_DOC: &str = "One wrong call for each argument that the specification restricts: everything else in the call\n\
is valid, so that only the argument in question can be the reason of the refusal.";

fn arguments(spec: &Spec) -> String {
    let mut cases = String::new();
    let mut kinds = BTreeSet::new();
    let mut callbacks = BTreeMap::new();
    for function in spec.functions() {
        let Some(dispatch) = function.dispatch(spec) else {
            continue;
        };
        let maker = Maker { spec, function };
        maker.note(&mut kinds, &mut callbacks);
        for (what, codes, overrides) in maker.faults(dispatch) {
            let needs: Vec<String> = maker
                .needs(&overrides)
                .iter()
                .map(|kind| format!("Kind::{kind}"))
                .collect();
            let _ = writeln!(
                cases,
                "Case {{ function: {:?}, what: {what:?}, codes: &[{codes}], needs: &[{}], call: |ur, valid| ur.{}({}) }},",
                function.name,
                needs.join(", "),
                function.name,
                maker.call(&overrides),
            );
        }
    }
    let variants: String = kinds
        .iter()
        .map(|kind| format!("{},", rust::object_name(kind)))
        .collect();
    let fields: String = kinds
        .iter()
        .map(|kind| format!("pub {}: {kind},", rust::object_stem(kind)))
        .collect();
    let arms: String = kinds
        .iter()
        .map(|kind| {
            format!(
                "Kind::{} => !self.{}.is_null(),",
                rust::object_name(kind),
                rust::object_stem(kind)
            )
        })
        .collect();
    let defaults: String = kinds
        .iter()
        .map(|kind| format!("{}: std::ptr::null_mut(),", rust::object_stem(kind)))
        .collect();
    let noops: String = callbacks.values().cloned().collect();
    format!(
        "#![allow(non_snake_case, unused_variables, clippy::unnecessary_cast)]
        use super::api::Api;
        use crate::status::Status;
        use std::ffi::{{c_char, c_void}};
        use ur::abi::*;
        /// Kinds of handle.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {{ {variants} }}
        /// One live handle of each kind that the device offers, and memory to point at.
        pub struct Valid {{ {fields} pub scratch: *mut c_void }}
        impl Valid {{
            /// No handles yet.
            pub fn new(scratch: *mut c_void) -> Self {{ Self {{ {defaults} scratch }} }}
            /// Whether there is a handle of that kind.
            pub fn has(&self, kind: Kind) -> bool {{ match kind {{ {arms} }} }}
        }}
        /// A call that must be refused.
        pub struct Case {{
            pub function: &'static str,
            /// What is wrong with it.
            pub what: &'static str,
            /// The answers that are right.
            pub codes: &'static [ur_result_t],
            /// Handles without which the call would be wrong in a second way.
            pub needs: &'static [Kind],
            pub call: fn(&Api, &Valid) -> Status,
        }}
        /// Sizes that fit any range.
        const ONES: [usize; 3] = [1; 3];
        {noops}
        /// All wrong calls, in the order of the specification.
        pub const CASES: &[Case] = &[{cases}];\n"
    )
}

type Overrides = BTreeMap<String, String>;

/// Writes calls of one function.
struct Maker<'a> {
    spec: &'a Spec,
    function: &'a Function,
}

impl Maker<'_> {
    /// Handle kinds and callbacks that valid arguments mention.
    fn note(&self, kinds: &mut BTreeSet<String>, callbacks: &mut BTreeMap<String, String>) {
        for param in &self.function.params {
            let ty = param.c_type();
            if self.spec.is_handle(&ty.base) {
                kinds.insert(ty.base);
            } else if let Some(Item::Callback(found)) = self
                .spec
                .items()
                .find(|item| matches!(item, Item::Callback(found) if found.name == ty.base))
            {
                let returns = match rust::ty(&found.returns).as_str() {
                    "()" => (String::new(), "{}".to_owned()),
                    other => (format!(" -> {other}"), "{ Default::default() }".to_owned()),
                };
                let noop = format!(
                    "unsafe extern \"C\" fn noop_{}({}){} {}\n",
                    found.name,
                    rust::params(&found.params),
                    returns.0,
                    returns.1
                );
                callbacks.insert(found.name.clone(), noop);
            }
        }
    }

    /// What can be wrong with the arguments: a sentence, the codes allowed, the arguments replaced.
    fn faults(&self, dispatch: &Param) -> Vec<(String, String, Overrides)> {
        let mut faults = Vec::new();
        for param in &self.function.params {
            let ty = param.c_type();
            let name = &param.name;
            let mut add = |what: &str, codes: &str, replaced: &[(&str, String)]| {
                let overrides = replaced
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), value.clone()))
                    .collect();
                faults.push((format!("{name} {what}"), codes.to_owned(), overrides));
            };
            let null = || "std::ptr::null_mut()".to_owned();
            if self.is_wait_list(param) {
                let count = param.count.clone().unwrap_or_default();
                let some = "std::ptr::addr_of!(valid.event)".to_owned();
                add(
                    "null with a count of 1",
                    "UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST",
                    &[(&count, "1".into()), (name, null())],
                );
                add(
                    "given with a count of 0",
                    "UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST",
                    &[(&count, "0".into()), (name, some)],
                );
                let hole = "[std::ptr::null_mut()].as_ptr()".to_owned();
                add(
                    "with a null event",
                    "UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST",
                    &[(&count, "1".into()), (name, hole)],
                );
            } else if param.optional || param.nocheck {
                // Null is a value.
            } else if self.spec.is_handle(&ty.base) && ty.pointers == 0 {
                add(
                    "null",
                    "UR_RESULT_ERROR_INVALID_NULL_HANDLE",
                    &[(name, null())],
                );
            } else if ty.pointers > 0 {
                let codes = match &param.count {
                    Some(_) if param.name == dispatch.name => {
                        "UR_RESULT_ERROR_INVALID_NULL_POINTER, UR_RESULT_ERROR_INVALID_NULL_HANDLE"
                    }
                    _ => "UR_RESULT_ERROR_INVALID_NULL_POINTER",
                };
                add("null", codes, &[(name, null())]);
            } else if self.spec.is_callback(&ty.base) {
                add(
                    "null",
                    "UR_RESULT_ERROR_INVALID_NULL_POINTER",
                    &[(name, "None".into())],
                );
            }
            if ty.pointers == 0 && self.spec.enum_of(&ty.base).is_some() {
                add(
                    "out of range",
                    "UR_RESULT_ERROR_INVALID_ENUMERATION",
                    &[(name, format!("{}(0x7ffffff0)", ty.base))],
                );
            }
            if let Some(flags) = self.spec.flags_of(&ty.base).filter(|_| ty.pointers == 0) {
                add(
                    "with an undefined bit",
                    "UR_RESULT_ERROR_INVALID_ENUMERATION",
                    &[(name, format!("{}({})", flags.name, flags.mask))],
                );
            }
        }
        faults
    }

    fn is_wait_list(&self, param: &Param) -> bool {
        param.optional
            && param.count.is_some()
            && param.c_type().base == "ur_event_handle_t"
            && param.dir == Dir::In
    }

    /// Handle kinds that a call with these arguments replaced still takes.
    fn needs(&self, overrides: &Overrides) -> BTreeSet<String> {
        let taken = self.function.params.iter().filter(|param| {
            let ty = param.c_type();
            let by_value = ty.pointers == 0 || (param.count.is_some() && param.dir == Dir::In);
            self.spec.is_handle(&ty.base)
                && by_value
                && !param.optional
                && !overrides.contains_key(&param.name)
        });
        taken
            .map(|param| rust::object_name(&param.c_type().base))
            .collect()
    }

    fn call(&self, overrides: &Overrides) -> String {
        let arguments = self
            .function
            .params
            .iter()
            .map(|param| match overrides.get(&param.name) {
                Some(text) if param.c_type().pointers > 0 => {
                    format!("{text} as {}", rust::ty(&param.ty))
                }
                Some(text) => text.clone(),
                None => self.valid(param),
            });
        arguments.collect::<Vec<_>>().join(", ")
    }

    /// A valid value of a parameter.
    fn valid(&self, param: &Param) -> String {
        let ty = param.c_type();
        let base = ty.base.as_str();
        let counts_list = |list: &&Param| list.count.as_deref() == Some(&param.name);
        if self.spec.is_handle(base) {
            let field = rust::object_stem(base);
            return match (ty.pointers, param.optional, param.dir) {
                (0, true, _) => "std::ptr::null_mut()".into(),
                (0, false, _) => format!("valid.{field}"),
                (_, true, _) => "std::ptr::null_mut()".into(),
                (_, false, Dir::In) => format!(
                    "std::ptr::addr_of!(valid.{field}) as {}",
                    rust::ty(&param.ty)
                ),
                _ => "valid.scratch.cast()".into(),
            };
        }
        if base == "size_t" && ty.is_const && ty.pointers > 0 && !param.optional {
            return "ONES.as_ptr()".into();
        }
        if ty.pointers > 0 {
            return if param.optional && param.dir == Dir::In {
                "std::ptr::null_mut()".into()
            } else {
                format!("valid.scratch.cast::<u8>() as {}", rust::ty(&param.ty))
            };
        }
        if self.spec.is_callback(base) {
            return format!("Some(noop_{base})");
        }
        if let Some(found) = self.spec.enum_of(base) {
            return found
                .values
                .first()
                .map_or_else(|| format!("{base}(0)"), |value| value.name.clone());
        }
        if let Some(found) = self.spec.flags_of(base) {
            return format!("{}(0)", found.name);
        }
        if base == "ur_rect_region_t" {
            return "ur_rect_region_t { width: 1, height: 1, depth: 1 }".into();
        }
        if self.is_struct(base) {
            return format!("{base}::default()");
        }
        match self.function.params.iter().find(counts_list) {
            Some(list) if list.optional => "0".into(),
            Some(_) => "1".into(),
            None if base == "bool" || base == "ur_bool_t" || param.nocheck => "0".into(),
            None => self.number(param, &ty),
        }
    }

    fn is_struct(&self, base: &str) -> bool {
        self.spec.items().any(|item| match item {
            Item::Struct(found) => found.name == base,
            Item::Union(found) => found.name == base,
            _ => false,
        })
    }

    fn number(&self, param: &Param, ty: &CType) -> String {
        let is_info_size = self
            .function
            .params
            .iter()
            .filter_map(|param| param.info.as_ref())
            .any(|info| info.get(1) == Some(&param.name));
        match ty.base.as_str() {
            _ if is_info_size => "64".into(),
            "float" | "double" => "1.0".into(),
            _ if param.own == Some(Own::Release) => "0".into(),
            _ => "1".into(),
        }
    }
}

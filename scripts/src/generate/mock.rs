//! `adapters/mock/src/generated`: the mock's tables. Each function hands its arguments, as the struct
//! of pointers that callbacks get, to `call`, together with its default answer: one written by hand
//! in `adapters/mock/src/answers`, or else one that follows from the specification.

use super::{File, checks, expr, rust};
use crate::model::{Dir, Function, Item, Own, Param, Spec};
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

const ANSWERS: &str = "adapters/mock/src/answers";

pub fn files(spec: &Spec, root: &Path) -> Result<Vec<File>> {
    let by_hand = by_hand(&root.join(ANSWERS))?;
    Ok(vec![
        File::rust(
            "adapters/mock/src/generated/mod.rs",
            "The specification as the mock needs it.",
            "pub mod functions;\npub mod properties;\n",
        )?,
        File::rust(
            "adapters/mock/src/generated/functions.rs",
            "Every function of the tables.\n\n\
            Unsafe blocks rest on what the specification asks of a caller: a pointer is null, or\n\
            readable or writable for what its parameter says.",
            &functions(spec, by_hand)?,
        )?,
        File::rust(
            "adapters/mock/src/generated/properties.rs",
            "Every property of every info query, and the values that a script may name.",
            &properties(spec),
        )?,
        File::new(
            "include/ur_mock.h",
            include_str!("../../templates/mock/ur_mock.h").to_owned(),
        ),
        File::new(
            "include/ur_mock.hpp",
            include_str!("../../templates/mock/ur_mock.hpp").to_owned(),
        ),
    ])
}

/// Names of the answers that stand in the folder; each must be that of a function.
fn by_hand(dir: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let file = syn::parse_file(&std::fs::read_to_string(&path)?)
            .with_context(|| path.display().to_string())?;
        names.extend(file.items.iter().filter_map(|item| match item {
            syn::Item::Fn(found) if matches!(found.vis, syn::Visibility::Public(_)) => {
                Some(found.sig.ident.to_string())
            }
            _ => None,
        }));
    }
    Ok(names)
}

fn functions(spec: &Spec, mut by_hand: BTreeSet<String>) -> Result<String> {
    let in_tables: Vec<&Function> = spec
        .tables
        .iter()
        .flat_map(|table| &table.slots)
        .filter_map(|name| spec.functions().find(|function| &function.name == name))
        .collect();
    let mut out = String::from(
        "#![allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc, clippy::too_many_arguments)]
        #![allow(non_snake_case, unused_unsafe, unused_parens, clippy::unnecessary_cast)]
        use crate::call::call;
        use crate::objects::{self, Origin};
        use crate::{answers, info, make};
        use std::ffi::{c_char, c_void};
        use super::properties;
        use ur::abi::*;
        use ur::object::{InfoOut, Kind, Result, ensure};
        ",
    );
    let mut names = String::new();
    for (index, function) in in_tables.iter().enumerate() {
        let name = &function.name;
        let params = function
            .params_struct()
            .with_context(|| format!("{name} has no arguments"))?;
        let answer = rust::snake(function.stem());
        let answer = if by_hand.remove(&answer) {
            format!("answers::{answer}")
        } else {
            match (Answer { spec, function }).body() {
                Some(body) => format!("|p| unsafe {{ {body} }}"),
                None => "|_| Ok(())".to_owned(),
            }
        };
        let answer = match refusals(spec, function)? {
            Some(refusals) => format!(
                "|p| {{
                    unsafe {{ {refusals} }}
                    let answer: fn(&{params}) -> Result<()> = {answer};
                    answer(p)
                }}"
            ),
            None => answer,
        };
        let arguments: String = function
            .params
            .iter()
            .map(|param| format!("mut {}: {},", rust::ident(&param.name), rust::ty(&param.ty)))
            .collect();
        let members: String = function
            .params
            .iter()
            .map(|param| format!("p{}: &raw mut {},", param.name, rust::ident(&param.name)))
            .collect();
        let clears = checks::clears(function);
        let _ = write!(
            out,
            "unsafe extern \"C\" fn {name}({arguments}) -> ur_result_t {{
                {clears}
                let mut params = {params} {{ {members} }};
                unsafe {{ call({index}, &raw mut params, {answer}) }}
            }}\n"
        );
        let _ = writeln!(names, "{name:?},");
    }
    ensure!(
        by_hand.is_empty(),
        "{ANSWERS}: no function has these answers: {by_hand:?}"
    );
    let _ = write!(
        out,
        "/// All functions; the index is what `call` knows one by.
        pub const NAMES: [&str; {}] = [{names}];
        /// The kinds of handle, by their C type.
        pub const KINDS: &[(&str, Kind)] = &[{}];
        /// The mock's own table, to which its handles point.
        pub static TABLE: ur_dditable_t = ur_dditable_t {{ {} }};\n",
        in_tables.len(),
        kinds(spec),
        members(spec)?,
    );
    Ok(out)
}

/// What a device that lacks something refuses, if the specification says it.
fn refusals(spec: &Spec, function: &Function) -> Result<Option<String>> {
    let mut out = String::new();
    for case in function.errors.iter().filter(|case| !case.lacks.is_empty()) {
        let terms: String = case
            .lacking()
            .map(|(property, flag)| match flag {
                Some(flag) => format!("({property:?}, {flag}.0 as u64),"),
                None => format!("({property:?}, u64::MAX),"),
            })
            .collect();
        let refusal = format!(
            "ensure(!info::lacks(&[{terms}]), UR_RESULT_ERROR_{})?;",
            case.code
        );
        match &case.given {
            Some(given) => {
                let given = expr::rust(spec, function, given)?;
                let _ = write!(out, "if {given} {{ {refusal} }}");
            }
            None => out.push_str(&refusal),
        }
    }
    let mentioned = |param: &&Param| {
        function
            .errors
            .iter()
            .filter_map(|case| case.given.as_ref())
            .any(|given| given.contains(&param.name))
    };
    let locals: String = function
        .params
        .iter()
        .filter(mentioned)
        .map(|param| format!("let {} = *p.p{};", rust::ident(&param.name), param.name))
        .collect();
    Ok((!out.is_empty()).then(|| locals + &out))
}

fn kinds(spec: &Spec) -> String {
    let in_tables = spec
        .handles()
        .filter(|handle| handle.name != "ur_loader_config_handle_t");
    in_tables
        .map(|handle| {
            format!(
                "({:?}, Kind::{}),",
                handle.name,
                rust::object_name(&handle.name)
            )
        })
        .collect()
}

fn members(spec: &Spec) -> Result<String> {
    let mut out = String::new();
    for table in &spec.tables {
        let mut slots = String::new();
        for name in &table.slots {
            let function = spec.functions().find(|function| &function.name == name);
            let slot = function.and_then(|function| function.slot.as_deref());
            let slot = slot.with_context(|| format!("{name} has no slot"))?;
            let _ = write!(slots, "{slot}: Some({name}),");
        }
        let _ = write!(out, "{}: {} {{ {slots} }},", table.name, table.struct_name);
    }
    Ok(out)
}

/// The default answer of one function, from its parameters.
struct Answer<'a> {
    spec: &'a Spec,
    function: &'a Function,
}

impl Answer<'_> {
    /// The answer as statements, if it is more than success.
    fn body(&self) -> Option<String> {
        if let Some(query) = self.query() {
            return Some(query);
        }
        for param in &self.function.params {
            let ty = param.c_type();
            if ty.pointers > 0 || !self.spec.is_handle(&ty.base) {
                continue;
            }
            let (name, kind) = (&param.name, rust::object_name(&ty.base));
            match param.own {
                Some(Own::Retain) => {
                    return Some(format!(
                        "objects::known(*p.p{name}, Kind::{kind})?.retain(); Ok(())"
                    ));
                }
                Some(Own::Release) => {
                    return Some(format!("objects::release(*p.p{name}, Kind::{kind})"));
                }
                _ => {}
            }
        }
        let outputs: String = self
            .function
            .params
            .iter()
            .filter(|param| param.dir != Dir::In && param.c_type().pointers > 0)
            .map(|param| self.output(param))
            .collect();
        let origin = if outputs.contains("&origin") {
            self.origin()
        } else {
            String::new()
        };
        (!outputs.is_empty()).then(|| format!("{origin}{outputs} Ok(())"))
    }

    /// An info query about the handle that leads to the adapter.
    fn query(&self) -> Option<String> {
        let buffer = self
            .function
            .params
            .iter()
            .find(|param| param.info.is_some() && param.dir != Dir::In)?;
        let info = buffer.info.as_deref().unwrap_or_default();
        let name = info.first()?;
        let of = self
            .function
            .params
            .iter()
            .find(|param| &param.name == name)?;
        let subject = self.function.dispatch(self.spec)?;
        let room = match info.get(1) {
            Some(size) => format!("Some(*p.p{size})"),
            None => "None".to_owned(),
        };
        Some(format!(
            "let out = InfoOut::new({room}, *p.p{}, *p.ppPropSizeRet);
            info::answer(*p.p{}, Kind::{}, properties::{}, (*p.p{name}).0, out)",
            buffer.name,
            subject.name,
            rust::object_name(&subject.c_type().base),
            list_name(&of.c_type().base),
        ))
    }

    /// The objects that new ones come from: all handles given but events, which would keep one
    /// another alive for ever.
    fn origin(&self) -> String {
        let mut out = String::from("let origin = Origin::default()");
        for param in self.function.params.iter().filter(|p| p.dir == Dir::In) {
            let ty = param.c_type();
            let name = &param.name;
            if !self.spec.is_handle(&ty.base) || ty.base == "ur_event_handle_t" {
                continue;
            }
            let kind = rust::object_name(&ty.base);
            match (&param.count, ty.pointers) {
                (None, 0) => {
                    let _ = write!(out, ".with(*p.p{name}, Kind::{kind})");
                }
                (Some(count), 1) => {
                    let _ = write!(out, ".list(*p.p{name}, *p.p{count}, Kind::{kind})");
                }
                _ => {}
            }
        }
        out + ";"
    }

    fn output(&self, param: &Param) -> String {
        let ty = param.c_type();
        let to = format!("*p.p{}", param.name);
        if self.spec.is_handle(&ty.base) && ty.pointers == 1 {
            let kind = rust::object_name(&ty.base);
            if let Some(native) = self.native() {
                return format!("make::adopted({to}, Kind::{kind}, *p.p{native}, &origin);");
            }
            return match self.command() {
                Some(command) if kind == "Event" => {
                    format!("make::event({to}, {command}, &origin);")
                }
                _ => format!("make::handle({to}, Kind::{kind}, &origin);"),
            };
        }
        let value = match (ty.base.as_str(), ty.pointers) {
            ("bool" | "ur_bool_t", 1) => "1".to_owned(),
            ("ur_native_handle_t", 1) => match self.function.dispatch(self.spec) {
                Some(subject) => format!("(*p.p{}).expose_provenance()", subject.name),
                None => "0".to_owned(),
            },
            (base, 1) if base.ends_with("native_handle_t") => "objects::next_id() as usize".into(),
            ("ur_exp_command_buffer_sync_point_t", 1) => "objects::next_id() as u32".to_owned(),
            // Memory, text and unknown data are for answers written by hand; user data is no output.
            ("void" | "char", _) | (_, 2) => return String::new(),
            _ => "Default::default()".to_owned(),
        };
        format!("make::value({to}, {value});")
    }

    /// The native handle that an object is made from.
    fn native(&self) -> Option<&str> {
        let mut params = self.function.params.iter();
        let native = params.find(|param| {
            param.c_type().base == "ur_native_handle_t" && param.c_type().pointers == 0
        })?;
        Some(&native.name)
    }

    /// What the event of an enqueued command calls it.
    fn command(&self) -> Option<String> {
        let id = self.function.id.strip_prefix("UR_FUNCTION_")?;
        let short = id.strip_prefix("ENQUEUE_").unwrap_or(id);
        let words = short
            .trim_end_matches("_EXP")
            .trim_end_matches("_WITH_ARGS");
        let candidates = [
            format!("UR_COMMAND_{id}"),
            format!("UR_COMMAND_{short}"),
            format!("UR_COMMAND_{words}"),
        ];
        let commands = self.spec.enum_of("ur_command_t")?;
        let exact = candidates
            .iter()
            .find(|name| commands.values.iter().any(|value| value.name == **name));
        // `EVENTS_WAIT_WITH_BARRIER_EXT` is a barrier too.
        let by_prefix = || {
            let of_name = |value: &&crate::model::Value| {
                format!("UR_COMMAND_{words}").starts_with(&value.name)
            };
            let found = commands.values.iter().filter(of_name);
            found
                .max_by_key(|value| value.name.len())
                .map(|value| &value.name)
        };
        exact.or_else(by_prefix).cloned()
    }
}

/// `DEVICE_INFO` of `ur_device_info_t`.
fn list_name(name: &str) -> String {
    name.trim_start_matches("ur_")
        .trim_end_matches("_t")
        .to_uppercase()
}

fn properties(spec: &Spec) -> String {
    let mut out = String::from(
        "use crate::info::{Property, Type};\nuse std::mem::size_of;\nuse ur::abi::*;\nuse ur::object::Kind;\n",
    );
    let mut lists = String::new();
    for item in spec.items() {
        let Item::Enum(found) = item else { continue };
        if !found.values.iter().any(|value| value.ty.is_some())
            || found.name == "ur_loader_config_info_t"
        {
            continue;
        }
        let rows: String = found
            .values
            .iter()
            .filter_map(|value| {
                let ty = property_type(spec, &value.name, value.ty.as_deref()?);
                let (name, value) = (&value.name, value.value);
                Some(format!(
                    "Property {{ name: {name:?}, value: {value}, ty: {ty} }},"
                ))
            })
            .collect();
        let name = list_name(&found.name);
        let _ = write!(
            out,
            "/// Properties of `{}`.\npub const {name}: &[Property] = &[{rows}];\n",
            found.name
        );
        let _ = write!(lists, "{name},");
    }
    let _ = write!(
        out,
        "/// All of them.
        pub const LISTS: &[&[Property]] = &[{lists}];
        /// Every enumerator and flag, in the order of names.
        pub const CONSTANTS: &[(&str, u32)] = &[{}];\n",
        constants(spec)
    );
    out
}

fn constants(spec: &Spec) -> String {
    let mut all = std::collections::BTreeMap::new();
    for item in spec.items() {
        let values = match item {
            Item::Enum(found) => &found.values,
            Item::Flags(found) => &found.values,
            _ => continue,
        };
        all.extend(
            values
                .iter()
                .map(|value| (value.name.as_str(), value.value)),
        );
    }
    all.iter()
        .map(|(name, value)| format!("({name:?}, {value}),"))
        .collect()
}

/// The `Type` of a property, with its default: what is asked whether it is supported is, abilities are
/// all there, an enumeration has its first value, and the rest is 0.
fn property_type(spec: &Spec, name: &str, text: &str) -> String {
    let (element, extent) = match text.split_once('[') {
        Some((element, extent)) => (element.trim(), Some(extent.trim_end_matches(']').trim())),
        None => (text.trim(), None),
    };
    let is_handle = spec.is_handle(element);
    let bytes = format!("size_of::<{}>()", rust::ty(element));
    match extent {
        // Intermediate language is bytes, though `char`.
        Some("") if element == "char" && name != "UR_PROGRAM_INFO_IL" => "Type::Text".to_owned(),
        Some("") if is_handle => format!("Type::Handles(Kind::{})", rust::object_name(element)),
        Some("") if element.ends_with('*') => "Type::Buffers".to_owned(),
        Some("") if element == "char" => "Type::List(1)".to_owned(),
        Some("") => format!("Type::List({bytes})"),
        Some(extent) => format!("Type::Numbers({bytes}, {extent})"),
        None if is_handle => format!("Type::Handle(Kind::{})", rust::object_name(element)),
        None if spec.struct_of(element).is_some() => format!("Type::Bytes({bytes})"),
        None if element.ends_with('*') => "Type::Number(8, 0)".to_owned(),
        None => format!("Type::Number({bytes}, {})", default(spec, name, element)),
    }
}

fn default(spec: &Spec, name: &str, element: &str) -> u64 {
    if element == "ur_bool_t" {
        let positive = ["SUPPORT", "SUPPORT_EXP", "AVAILABLE"];
        return u64::from(positive.iter().any(|end| name.ends_with(end)));
    }
    if let Some(flags) = spec.flags_of(element) {
        let all = flags.values.iter().fold(0, |all, value| all | value.value);
        return if element.contains("capability") {
            u64::from(all)
        } else {
            0
        };
    }
    let first = spec.enum_of(element).and_then(|found| found.values.first());
    first.map_or(0, |value| u64::from(value.value))
}

//! The specification as data: one model of `spec/*.yml` for all generators.
//!
//! Owns the schema, which spec/README.md explains, and its checks. An error names file and line. Knows
//! nothing of generated files.

mod check;
mod item;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::Deserialize;
use std::path::Path;

/// One `spec/*.yml` file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    pub name: String,
    pub title: String,
    pub version: String,
    pub desc: String,
    pub threads: String,
    pub ordering: String,
    pub items: Vec<Item>,
    /// The file's text, to locate errors.
    #[serde(skip)]
    text: String,
}

/// A declaration. Its first key tells its kind.
#[derive(Debug)]
pub enum Item {
    Handle(Handle),
    Typedef(Typedef),
    Enum(Enum),
    Flags(Flags),
    Struct(Struct),
    Union(Union),
    Callback(Callback),
    Macro(Macro),
    Function(Function),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handle {
    #[serde(rename = "handle")]
    pub name: String,
    pub desc: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Typedef {
    #[serde(rename = "typedef")]
    pub name: String,
    #[serde(rename = "type")]
    pub ty: String,
    pub desc: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enum {
    #[serde(rename = "enum")]
    pub name: String,
    pub desc: String,
    pub values: Vec<Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flags {
    /// The `uint32_t` typedef that holds a set of bits.
    #[serde(rename = "flags")]
    pub name: String,
    /// The C enum whose enumerators are the bits.
    pub bit: String,
    /// Macro of all bits that are not defined.
    pub mask: String,
    /// Bits without a name that are allowed.
    #[serde(default)]
    pub reserved: u32,
    pub desc: String,
    pub values: Vec<Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    pub name: String,
    pub value: u32,
    /// For info enumerators: the C type of the property.
    #[serde(rename = "type")]
    pub ty: Option<String>,
    #[serde(default)]
    pub optional: bool,
    #[serde(default)]
    pub deprecated: bool,
    /// Our header that declares it; none if the reference has it.
    pub header: Option<String>,
    pub desc: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Struct {
    #[serde(rename = "struct")]
    pub name: String,
    pub desc: String,
    pub members: Vec<Param>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Union {
    #[serde(rename = "union")]
    pub name: String,
    pub desc: String,
    pub members: Vec<Param>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Callback {
    #[serde(rename = "callback")]
    pub name: String,
    pub returns: String,
    pub desc: String,
    pub params: Vec<Param>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Macro {
    #[serde(rename = "macro")]
    pub name: String,
    #[serde(default)]
    pub args: Vec<String>,
    pub value: String,
    pub desc: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dir {
    In,
    Out,
    InOut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Own {
    Alloc,
    Retain,
    Release,
    /// The caller gets a handle without a reference.
    Lend,
}

/// A parameter of a function or callback, or a member of a struct or union.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Param {
    pub name: String,
    #[serde(rename = "type")]
    pub ty: String,
    #[serde(default = "Param::default_dir")]
    pub dir: Dir,
    #[serde(default)]
    pub optional: bool,
    /// The parameter with the list's length.
    pub count: Option<String>,
    /// Expressions that must lie within this object: see spec/README.md.
    pub bounds: Option<Vec<String>>,
    /// `[propName, propSize]` of an info buffer.
    pub info: Option<Vec<String>>,
    /// The member that selects among a union's members.
    pub tag: Option<String>,
    pub own: Option<Own>,
    #[serde(default)]
    pub nocheck: bool,
    /// Whether the output is set to null before any check, so that it is null after a refusal.
    #[serde(default)]
    pub cleared: bool,
    pub desc: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorCase {
    pub code: String,
    pub when: Option<String>,
    /// Properties that the device lacks, or bits of them (`PROPERTY & FLAG`).
    #[serde(default)]
    pub lacks: Vec<String>,
    /// With `lacks`: the condition on the arguments under which the device refuses.
    pub given: Option<String>,
    pub desc: String,
}

impl ErrorCase {
    /// `(property, flag)` of each feature that the device lacks. Without a flag the whole property is meant.
    pub fn lacking(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.lacks.iter().map(|term| match term.split_once(" & ") {
            Some((property, flag)) => (property, Some(flag)),
            None => (term.as_str(), None),
        })
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Function {
    #[serde(rename = "function")]
    pub name: String,
    /// The DDI table; none for functions of the loader alone.
    pub table: Option<String>,
    pub slot: Option<String>,
    pub id: String,
    pub desc: String,
    pub ordering: Option<String>,
    pub threads: Option<String>,
    pub params: Vec<Param>,
    #[serde(default)]
    pub errors: Vec<ErrorCase>,
    #[serde(default)]
    pub may: Vec<String>,
}

/// The memory order of the DDI tables: `spec/ddi.yml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DdiOrder {
    /// Groups in the order of the headers.
    pub groups: Vec<String>,
    /// Tables in the order of `ur_dditable_t`, with their slots in order.
    pub tables: Vec<DdiTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DdiTable {
    pub name: String,
    #[serde(rename = "struct")]
    pub struct_name: String,
    /// Functions, in slot order.
    pub slots: Vec<String>,
}

/// The whole specification.
#[derive(Debug)]
pub struct Spec {
    pub groups: Vec<Group>,
    pub tables: Vec<DdiTable>,
}

impl Param {
    fn default_dir() -> Dir {
        Dir::In
    }

    /// The parsed type.
    pub fn c_type(&self) -> CType {
        CType::parse(&self.ty)
    }
}

/// A C type in the specification's notation: a base name under pointers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CType {
    pub base: String,
    /// Constness of the base.
    pub is_const: bool,
    /// Number of pointer levels over the base.
    pub pointers: usize,
    /// Fixed array extent, in struct members.
    pub array: Option<String>,
}

impl CType {
    pub fn parse(text: &str) -> Self {
        let (text, array) = match text.split_once('[') {
            Some((head, tail)) => (head.trim(), Some(tail.trim_end_matches(']').to_owned())),
            None => (text.trim(), None),
        };
        let pointers = text.matches('*').count();
        let bare = text.replace('*', " ");
        let is_const = bare.split_whitespace().any(|word| word == "const");
        let base = bare
            .split_whitespace()
            .filter(|word| *word != "const")
            .collect::<Vec<_>>()
            .join(" ");
        Self {
            base,
            is_const,
            pointers,
            array,
        }
    }

    pub fn is_pointer(&self) -> bool {
        self.pointers > 0
    }

    pub fn is_plain(&self) -> bool {
        self.pointers == 0 && self.array.is_none()
    }
}

impl Flags {
    /// Bits that a set must not have: the value of the mask macro.
    pub fn undefined(&self) -> u32 {
        self.values
            .iter()
            .fold(!self.reserved, |mask, value| mask & !value.value)
    }
}

impl Function {
    /// The function's name in DDI types: `QueueCreate` of `urQueueCreate`.
    pub fn stem(&self) -> &str {
        self.name.strip_prefix("ur").unwrap_or(&self.name)
    }

    /// `ur_queue_create_params_t`: the struct of pointers to a call's arguments.
    pub fn params_struct(&self) -> Option<String> {
        let stem = self.id.strip_prefix("UR_FUNCTION_")?.to_lowercase();
        (!self.params.is_empty()).then(|| format!("ur_{stem}_params_t"))
    }

    /// The parameter whose first word leads a loader to the adapter: the first required handle, or required
    /// list of handles.
    pub fn dispatch<'a>(&'a self, spec: &Spec) -> Option<&'a Param> {
        self.params.iter().find(|param| {
            let ty = param.c_type();
            spec.is_handle(&ty.base)
                && !param.optional
                && (param.dir != Dir::Out || ty.pointers == 0)
                && (ty.pointers == 0 || param.count.is_some())
        })
    }
}

impl Spec {
    /// Reads the files that `spec/ddi.yml` lists, and checks that they fit together.
    pub fn load(dir: &Path) -> Result<Self> {
        let (order, _): (DdiOrder, _) = read(&dir.join("ddi.yml"))?;
        let mut groups = Vec::new();
        for name in &order.groups {
            let (mut group, text): (Group, String) = read(&dir.join(format!("{name}.yml")))?;
            ensure!(
                &group.name == name,
                "{name}.yml calls itself {}",
                group.name
            );
            group.text = text;
            groups.push(group);
        }
        let spec = Self {
            groups,
            tables: order.tables,
        };
        spec.check()?;
        Ok(spec)
    }

    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.groups.iter().flat_map(|group| &group.items)
    }

    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.items().filter_map(|item| match item {
            Item::Function(function) => Some(function),
            _ => None,
        })
    }

    pub fn handles(&self) -> impl Iterator<Item = &Handle> {
        self.items().filter_map(|item| match item {
            Item::Handle(handle) => Some(handle),
            _ => None,
        })
    }

    pub fn structs(&self) -> impl Iterator<Item = &Struct> {
        self.items().filter_map(|item| match item {
            Item::Struct(found) => Some(found),
            _ => None,
        })
    }

    pub fn enum_of(&self, name: &str) -> Option<&Enum> {
        self.items().find_map(|item| match item {
            Item::Enum(found) if found.name == name => Some(found),
            _ => None,
        })
    }

    pub fn flags_of(&self, name: &str) -> Option<&Flags> {
        self.items().find_map(|item| match item {
            Item::Flags(found) if found.name == name || found.bit == name => Some(found),
            _ => None,
        })
    }

    pub fn struct_of(&self, name: &str) -> Option<&Struct> {
        self.structs().find(|found| found.name == name)
    }

    pub fn is_handle(&self, base: &str) -> bool {
        self.handles().any(|handle| handle.name == base)
    }

    pub fn is_callback(&self, base: &str) -> bool {
        self.items()
            .any(|item| matches!(item, Item::Callback(found) if found.name == base))
    }

    /// The structure type that tags a struct; none if it cannot be chained.
    pub fn stype(&self, name: &str) -> Option<&Value> {
        let tag = format!(
            "UR_STRUCTURE_TYPE_{}",
            name.strip_prefix("ur_")?.strip_suffix("_t")?.to_uppercase()
        );
        self.enum_of("ur_structure_type_t")?
            .values
            .iter()
            .find(|value| value.name == tag)
    }
}

/// The declarations of a file, and its text.
fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<(T, String)> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| shown.to_string())?;
    match parse(&text) {
        Ok(found) => Ok((found, text)),
        Err((Some(line), error)) => Err(anyhow!("{shown}:{line}: {error}")),
        Err((None, error)) => Err(anyhow!("{shown}: {error}")),
    }
}

/// The declarations of a text, or the error with its line.
fn parse<T: serde::de::DeserializeOwned>(
    text: &str,
) -> Result<T, (Option<usize>, yaml_serde::Error)> {
    yaml_serde::from_str(text).map_err(|error| {
        let location = error.location();
        (location.map(|location| location.line()), error)
    })
}

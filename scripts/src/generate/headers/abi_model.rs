//! The ABI as Rust text for cbindgen: `repr(C)` enums, `bool`, opaque structs, functions.
//!
//! Running code uses `src/abi`, where an enum is an integer, since a C caller may pass any value. Here an
//! enum is an enum, so that C gets the right tag.

use super::comment::{self, Recurring};
use crate::generate::{abi, rust};
use crate::model::{CType, Callback, Function, Item, Param, Spec, Value};
use std::fmt::Write as _;

/// The last enumerator of every C enum, which makes it as wide as `uint32_t`.
pub const FORCE: u32 = 0x7fff_ffff;

/// The Rust text and the names of its types. cbindgen drops types that its configuration does not name.
#[derive(Default)]
pub struct AbiModel {
    pub source: String,
    pub types: Vec<String>,
}

pub fn abi_model(spec: &Spec, recurring: &Recurring) -> AbiModel {
    let mut model = AbiModel::default();
    for item in spec.items() {
        model.item(item, recurring);
    }
    for function in spec.functions() {
        model.params(function);
        model.pointer(&abi::pfn(function), &function.params, "ur_result_t", "");
    }
    for table in &spec.tables {
        let slots: Vec<&Function> = table
            .slots
            .iter()
            .filter_map(|name| spec.functions().find(|function| &function.name == name))
            .collect();
        let members: Vec<Field> = slots
            .iter()
            .map(|function| Field {
                name: function.slot.clone().unwrap_or_default(),
                ty: abi::pfn(function),
                desc: String::new(),
            })
            .collect();
        model.aggregate(
            "struct",
            &table.struct_name,
            &format!("Slots of the {} table, in order.", table.name),
            &members,
        );
        let version = [
            plain("version", "ur_api_version_t"),
            plain("pDdiTable", &format!("{} *", table.struct_name)),
        ];
        let desc = format!("Fills in the {} table of an adapter.", table.name);
        model.function(&getter(&table.name), &version, &desc);
        model.pointer(&getter_pointer(&table.name), &version, "ur_result_t", "");
    }
    let all: Vec<Field> = spec
        .tables
        .iter()
        .map(|table| Field {
            name: table.name.clone(),
            ty: table.struct_name.clone(),
            desc: String::new(),
        })
        .collect();
    let desc =
        "All tables of an adapter. The first word of every handle points to its adapter's own.";
    model.aggregate("struct", "ur_dditable_t", desc, &all);
    model
}

/// `urGetQueueProcAddrTable`.
pub fn getter(table: &str) -> String {
    format!("urGet{table}ProcAddrTable")
}

/// `ur_pfnGetQueueProcAddrTable_t`.
pub fn getter_pointer(table: &str) -> String {
    format!("ur_pfnGet{table}ProcAddrTable_t")
}

/// `UR_QUEUE_INFO_FORCE_UINT32` of `ur_queue_info_t`.
pub fn force_name(enumeration: &str) -> String {
    format!(
        "{}_FORCE_UINT32",
        enumeration.trim_end_matches("_t").to_uppercase()
    )
}

struct Field {
    name: String,
    ty: String,
    desc: String,
}

impl AbiModel {
    fn item(&mut self, item: &Item, recurring: &Recurring) {
        match item {
            Item::Handle(handle) => {
                let name = &handle.name;
                let _ = writeln!(self.source, "pub struct {name}_ {{ _opaque: u8 }}");
                self.types.push(name.clone());
                let _ = writeln!(
                    self.source,
                    "{}pub type {name} = *mut {name}_;",
                    doc(&handle.desc)
                );
            }
            Item::Typedef(typedef) => self.alias(
                &typedef.name,
                &ty(&CType::parse(&typedef.ty)),
                &typedef.desc,
            ),
            Item::Enum(found) => self.enumeration(&found.name, &found.desc, &found.values),
            Item::Flags(found) => {
                self.alias(&found.name, "uint32_t", &found.desc);
                let desc = format!("Bits of `{}`.", found.name);
                self.enumeration(&found.bit, &desc, &found.values);
            }
            Item::Struct(found) => {
                self.aggregate("struct", &found.name, &found.desc, &fields(&found.members))
            }
            Item::Union(found) => {
                self.aggregate("union", &found.name, &found.desc, &fields(&found.members))
            }
            Item::Callback(found) => self.callback(found),
            Item::Function(found) => self.function(
                &found.name,
                &found.params,
                &comment::function(found, recurring),
            ),
            Item::Macro(_) => {}
        }
    }

    fn alias(&mut self, name: &str, target: &str, desc: &str) {
        self.types.push(name.to_owned());
        let _ = writeln!(self.source, "{}pub type {name} = {target};", doc(desc));
    }

    fn enumeration(&mut self, name: &str, desc: &str, values: &[Value]) {
        self.types.push(name.to_owned());
        let _ = writeln!(self.source, "{}#[repr(C)] pub enum {name} {{", doc(desc));
        for value in values.iter().filter(|value| value.header.is_none()) {
            let _ = writeln!(
                self.source,
                "{}{} = {},",
                indented(&comment::value(value)),
                value.name,
                value.value
            );
        }
        let _ = writeln!(self.source, "{} = {FORCE} }}", force_name(name));
    }

    fn aggregate(&mut self, keyword: &str, name: &str, desc: &str, fields: &[Field]) {
        self.types.push(name.to_owned());
        let _ = writeln!(
            self.source,
            "{}#[repr(C)] pub {keyword} {name} {{",
            doc(desc)
        );
        for field in fields {
            let ty = ty(&CType::parse(&field.ty));
            let _ = writeln!(
                self.source,
                "{}pub {}: {ty},",
                indented(&field.desc),
                rust::ident(&field.name)
            );
        }
        self.source.push_str("}\n");
    }

    fn callback(&mut self, found: &Callback) {
        let desc = comment::callback(found);
        self.pointer(&found.name, &found.params, &found.returns, &desc);
    }

    fn pointer(&mut self, name: &str, params: &[Param], returns: &str, desc: &str) {
        let returns = match returns {
            "void" => String::new(),
            other => format!(" -> {}", ty(&CType::parse(other))),
        };
        self.alias(
            name,
            &format!(
                "Option<unsafe extern \"C\" fn({}){returns}>",
                arguments(params)
            ),
            desc,
        );
    }

    fn function(&mut self, name: &str, params: &[Param], desc: &str) {
        let _ = writeln!(
            self.source,
            "extern \"C\" {{\n{}pub fn {name}({}) -> ur_result_t;\n}}",
            doc(desc),
            arguments(params)
        );
    }

    /// The struct of pointers to a call's arguments.
    fn params(&mut self, function: &Function) {
        let Some(name) = function.params_struct() else {
            return;
        };
        let fields: Vec<Field> = function
            .params
            .iter()
            .map(|param| Field {
                name: format!("p{}", param.name),
                ty: format!("{} *", param.ty),
                desc: String::new(),
            })
            .collect();
        self.aggregate("struct", &name, "", &fields);
    }
}

fn plain(name: &str, ty: &str) -> Param {
    Param {
        name: name.to_owned(),
        ty: ty.to_owned(),
        dir: crate::model::Dir::In,
        optional: false,
        count: None,
        bounds: None,
        cleared: false,
        info: None,
        tag: None,
        own: None,
        nocheck: false,
        desc: String::new(),
    }
}

fn fields(members: &[Param]) -> Vec<Field> {
    members
        .iter()
        .map(|member| Field {
            name: member.name.clone(),
            ty: member.ty.clone(),
            desc: comment::member(member),
        })
        .collect()
}

fn arguments(params: &[Param]) -> String {
    params
        .iter()
        .map(|param| format!("{}: {}", rust::ident(&param.name), ty(&param.c_type())))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A C type in cbindgen's Rust, which has C's integer names.
fn ty(ty: &CType) -> String {
    let mut out = match ty.base.as_str() {
        "void" => "c_void",
        "char" => "c_char",
        "int" => "c_int",
        "unsigned int" => "c_uint",
        "unsigned char" => "c_uchar",
        "float" => "f32",
        "double" => "f64",
        other => other,
    }
    .to_owned();
    for level in 0..ty.pointers {
        let mutability = if level == 0 && ty.is_const {
            "const"
        } else {
            "mut"
        };
        out = format!("*{mutability} {out}");
    }
    match &ty.array {
        Some(extent) => format!("[{out}; {extent}]"),
        None => out,
    }
}

fn doc(text: &str) -> String {
    lines(text, comment::WIDTH)
}

fn indented(text: &str) -> String {
    lines(text, comment::WIDTH - 2)
}

fn lines(text: &str, width: usize) -> String {
    comment::wrap(text, width)
        .iter()
        .map(|line| format!("#[doc = {:?}]\n", comment::spaced(line)))
        .collect()
}

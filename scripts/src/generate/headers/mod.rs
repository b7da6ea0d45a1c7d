//! `include/`: the C headers, except the printers'.
//!
//! cbindgen writes types and prototypes from `abi_model`. `cbind` corrects its text. The templates in
//! scripts/templates add macros, prologue and groups. Knows nothing of running code.

mod abi_model;
mod cbind;
mod comment;

use super::{File, abi, print};
use crate::model::{Group, Item, Macro, Spec, Value};
use abi_model::{getter, getter_pointer};
use anyhow::{Context as _, Result};
use cbind::Declarations;
use comment::Recurring;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, context};
use serde::Serialize;

/// Headers that `include/unified-runtime/` forwards to: consumers include either path.
const FORWARDED: [&str; 8] = [
    "ur_api.h",
    "ur_ddi.h",
    "ur_print.h",
    "ur_print.hpp",
    "ur_mock.h",
    "ur_mock.hpp",
    POOL,
    "ur_api_funcs.def",
];

/// The properties of pools that the reference does not have.
const POOL: &str = "ur_pool.h";

/// A function that the reference's `ur_api_funcs.def` omits, and ours does too.
const UNLISTED: &str = "urDeviceGetSelected";

pub fn files(spec: &Spec) -> Result<Vec<File>> {
    let recurring = Recurring::of(spec);
    let c = cbind::declarations(&abi_model::abi_model(spec, &recurring))?;
    let mut files = vec![
        File::new("include/ur_api.h", api(spec, &c, &recurring)?),
        File::new("include/ur_ddi.h", ddi(spec, &c)?),
        File::new("include/ur_api_funcs.def", function_list(spec)?),
        File::new("include/ur_pool.h", pool(spec)?),
    ];
    for name in FORWARDED {
        let text = render(
            include_str!("../../../templates/forward.j2"),
            context! { name },
        )?;
        files.push(File::new(&format!("include/unified-runtime/{name}"), text));
    }
    Ok(files)
}

/// A part of a header: title, comment and declarations.
#[derive(Serialize)]
struct Section {
    title: String,
    comment: String,
    declarations: Vec<String>,
}

fn api(spec: &Spec, c: &Declarations, recurring: &Recurring) -> Result<String> {
    let mut sections = spec
        .groups
        .iter()
        .map(|group| section(group, c, recurring))
        .collect::<Result<Vec<_>>>()?;
    let arguments = spec
        .functions()
        .filter_map(|function| function.params_struct());
    sections.push(Section {
        title: "Arguments of calls".to_owned(),
        comment: comment::lines(
            "One struct a function, of pointers to a call's arguments: what tracing hands out.",
        ),
        declarations: arguments
            .map(|name| c.filled(&name))
            .collect::<Result<_>>()?,
    });
    render(
        include_str!("../../../templates/ur_api.h.j2"),
        context! { sections => Serde(sections), params => recurring.param_lines(), errors => recurring.error_lines() },
    )
}

fn section(group: &Group, c: &Declarations, recurring: &Recurring) -> Result<Section> {
    let mut declarations = Vec::new();
    for item in &group.items {
        match item {
            Item::Handle(found) => declarations.push(c.get(&found.name)?),
            Item::Typedef(found) => declarations.push(c.get(&found.name)?),
            Item::Enum(found) => declarations.push(c.get(&found.name)?),
            Item::Struct(found) => declarations.push(c.get(&found.name)?),
            Item::Union(found) => declarations.push(c.get(&found.name)?),
            Item::Callback(found) => declarations.push(c.get(&found.name)?),
            Item::Function(found) => {
                declarations.push(c.function(&found.name, &found.params, recurring)?)
            }
            Item::Macro(found) => declarations.push(macro_text(found)),
            Item::Flags(found) => {
                declarations.push(c.get(&found.name)?);
                declarations.push(c.get(&found.bit)?);
                declarations.push(format!(
                    "#define {} {:#010x}",
                    found.mask,
                    found.undefined()
                ));
            }
        }
    }
    Ok(Section {
        title: group.title.clone(),
        comment: comment::lines(&comment::group(group)),
        declarations,
    })
}

/// A macro that a program may define first.
fn macro_text(found: &Macro) -> String {
    let args = if found.args.is_empty() {
        String::new()
    } else {
        format!("({})", found.args.join(", "))
    };
    let Macro {
        name, value, desc, ..
    } = found;
    format!(
        "{}#ifndef {name}\n#define {name}{args} {value}\n#endif",
        comment::lines(desc)
    )
}

fn ddi(spec: &Spec, c: &Declarations) -> Result<String> {
    let none = Recurring::default();
    let mut sections = Vec::new();
    for table in &spec.tables {
        let mut declarations = Vec::new();
        for name in &table.slots {
            let function = spec.functions().find(|function| &function.name == name);
            declarations.push(c.pointer(&abi::pfn(
                function.with_context(|| format!("no function {name}"))?,
            ))?);
        }
        declarations.push(c.get(&table.struct_name)?);
        declarations.push(c.function(&getter(&table.name), &[], &none)?);
        declarations.push(c.pointer(&getter_pointer(&table.name))?);
        sections.push(Section {
            title: table.name.clone(),
            comment: String::new(),
            declarations,
        });
    }
    let all = c.get("ur_dditable_t")?;
    render(
        include_str!("../../../templates/ur_ddi.h.j2"),
        context! { sections => Serde(sections), all },
    )
}

/// `ur_pool.h`. Its values are macros, since C cannot add enumerators to the reference's enum.
fn pool(spec: &Spec) -> Result<String> {
    let properties = spec
        .enum_of("ur_usm_pool_info_t")
        .context("no ur_usm_pool_info_t")?;
    let ours = |value: &&Value| value.header.as_deref() == Some(POOL);
    let macros: Vec<String> = properties
        .values
        .iter()
        .filter(ours)
        .map(macro_of)
        .collect();
    render(
        include_str!("../../../templates/ur_pool.h.j2"),
        context! { macros },
    )
}

fn macro_of(value: &Value) -> String {
    format!(
        "{}#define {} ((ur_usm_pool_info_t){:#x})",
        comment::lines(&comment::value(value)),
        value.name,
        value.value
    )
}

/// `ur_api_funcs.def`, for X macros: `_UR_API(name)` for each function, tables first; `UR_PARAMS(...)` for each
/// call and its arguments.
fn function_list(spec: &Spec) -> Result<String> {
    let in_tables = spec.tables.iter().flat_map(|table| &table.slots);
    let loader = spec.functions().filter(|function| function.table.is_none());
    let names: Vec<String> = in_tables
        .chain(loader.map(|function| &function.name))
        .filter(|name| *name != UNLISTED)
        .cloned()
        .collect();
    render(
        include_str!("../../../templates/ur_api_funcs.def.j2"),
        context! { names, calls => print::calls(spec)? },
    )
}

fn render(template: &str, values: minijinja::Value) -> Result<String> {
    let mut environment = Environment::new();
    environment.set_syntax(
        SyntaxConfig::builder()
            .trim_blocks(true)
            .keep_trailing_newline(true)
            .build()?,
    );
    environment.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
    Ok(environment.render_str(template, values)?)
}

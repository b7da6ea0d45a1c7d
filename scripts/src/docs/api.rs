//! The reference of the API: a page for each group of the specification, one of all functions, and one of
//! the error codes.

use super::Page;
use crate::model::{Callback, Dir, Enum, Flags, Function, Group, Item, Param, Spec, Struct, Value};
use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const INTRODUCTION: &str = "\
Every function returns a `ur_result_t`; [error codes](errors.md) has them all. \
A call that is refused for its arguments changes nothing. \
Any function may report `UNINITIALIZED`, `DEVICE_LOST`, `ADAPTER_SPECIFIC`, `OUT_OF_HOST_MEMORY` and \
`OUT_OF_RESOURCES`, and an invalid handle by the error that is named after it. \
A parameter is required unless it is called optional.\n";

pub fn pages(spec: &Spec, root: &Path) -> Result<Vec<Page>> {
    let mut pages = vec![index(spec), errors(spec)?];
    for group in &spec.groups {
        let example = root.join(format!("docs/snippets/{}.c", group.name));
        let example =
            fs::read_to_string(&example).with_context(|| example.display().to_string())?;
        pages.push(Page {
            path: path(group),
            title: group.title.clone(),
            text: page(group, &example),
        });
    }
    Ok(pages)
}

fn path(group: &Group) -> String {
    format!("reference/api-{}.md", group.name)
}

/// All functions, by group.
fn index(spec: &Spec) -> Page {
    let mut text = format!("# API\n{INTRODUCTION}\n");
    for group in &spec.groups {
        let _ = writeln!(
            text,
            "## [{}](api-{}.md)\n{}\n",
            group.title, group.name, group.desc
        );
        for function in functions(group) {
            let anchor = function.name.to_lowercase();
            let _ = writeln!(
                text,
                "- [`{}`](api-{}.md#{anchor})",
                function.name, group.name
            );
        }
        text.push('\n');
    }
    Page {
        path: "reference/api.md".into(),
        title: "API".into(),
        text,
    }
}

fn errors(spec: &Spec) -> Result<Page> {
    let codes = spec.enum_of("ur_result_t").context("no ur_result_t")?;
    let mut text = format!("# Error codes\n{}\n\n", codes.desc);
    values(&mut text, &codes.values);
    text.push_str(
        "\n`ADAPTER_SPECIFIC` has the driver's own code and message: `urAdapterGetLastError` returns them, \
         for the calling thread, until its next failure.\n",
    );
    Ok(Page {
        path: "reference/errors.md".into(),
        title: "Error codes".into(),
        text,
    })
}

fn functions(group: &Group) -> impl Iterator<Item = &Function> {
    group.items.iter().filter_map(|item| match item {
        Item::Function(function) => Some(function),
        _ => None,
    })
}

fn page(group: &Group, example: &str) -> String {
    let mut text = format!("# {}\n{}\n\n", group.title, group.desc);
    let _ = writeln!(
        text,
        "**Order**: {}\n\n**Threads**: {}\n",
        group.ordering, group.threads
    );
    let _ = writeln!(text, "```c\n{}\n```\n", example.trim_end());
    for found in functions(group) {
        function(&mut text, found);
    }
    for item in &group.items {
        match item {
            Item::Function(_) => {}
            Item::Handle(item) => short(&mut text, &item.name, &item.desc),
            Item::Typedef(item) => {
                short(
                    &mut text,
                    &item.name,
                    &format!("`{}`. {}", item.ty, item.desc),
                );
            }
            Item::Macro(item) => {
                short(
                    &mut text,
                    &item.name,
                    &format!("`{}`. {}", item.value, item.desc),
                );
            }
            Item::Enum(Enum {
                name,
                desc,
                values: all,
                ..
            })
            | Item::Flags(Flags {
                name,
                desc,
                values: all,
                ..
            }) => {
                short(&mut text, name, desc);
                values(&mut text, all);
            }
            Item::Struct(Struct {
                name,
                desc,
                members,
            }) => {
                short(&mut text, name, desc);
                parameters(&mut text, "member", members);
            }
            Item::Union(item) => {
                short(&mut text, &item.name, &item.desc);
                parameters(&mut text, "member", &item.members);
            }
            Item::Callback(Callback {
                name, desc, params, ..
            }) => {
                short(&mut text, name, desc);
                parameters(&mut text, "parameter", params);
            }
        }
    }
    text
}

fn short(text: &mut String, name: &str, desc: &str) {
    let _ = writeln!(text, "## {name}\n{desc}\n");
}

fn function(text: &mut String, function: &Function) {
    short(text, &function.name, &function.desc);
    let list: Vec<String> = function
        .params
        .iter()
        .map(|param| format!("{} {}", param.ty, param.name))
        .collect();
    let list = if list.is_empty() {
        "void".into()
    } else {
        list.join(", ")
    };
    let _ = writeln!(text, "```c\nur_result_t {}({list});\n```\n", function.name);
    if let Some(order) = &function.ordering {
        let _ = writeln!(text, "**Order**: {order}\n");
    }
    if let Some(threads) = &function.threads {
        let _ = writeln!(text, "**Threads**: {threads}\n");
    }
    parameters(text, "parameter", &function.params);
    if !function.errors.is_empty() {
        text.push_str("| error | when |\n|---|---|\n");
        for error in &function.errors {
            let _ = writeln!(text, "| `{}` | {} |", error.code, cell(&error.desc));
        }
        text.push('\n');
    }
    if !function.may.is_empty() {
        let _ = writeln!(text, "May report: `{}`.\n", function.may.join("`, `"));
    }
}

fn parameters(text: &mut String, head: &str, list: &[Param]) {
    if list.is_empty() {
        return;
    }
    let _ = writeln!(text, "| {head} | type | meaning |\n|---|---|---|");
    for param in list {
        let direction = match param.dir {
            Dir::In => "",
            Dir::Out => "output: ",
            Dir::InOut => "input and output: ",
        };
        let optional = if param.optional { "optional: " } else { "" };
        let count = match &param.count {
            Some(count) => format!("; `{count}` elements"),
            None => String::new(),
        };
        let desc = cell(&param.desc);
        let ty = cell(&param.ty);
        let _ = writeln!(
            text,
            "| `{}` | `{ty}` | {optional}{direction}{desc}{count} |",
            param.name
        );
    }
    text.push('\n');
}

fn values(text: &mut String, list: &[Value]) {
    text.push_str("| name | value | meaning |\n|---|---|---|\n");
    for value in list {
        let ty = match &value.ty {
            Some(ty) => format!(" (`{}`)", cell(ty)),
            None => String::new(),
        };
        let _ = writeln!(
            text,
            "| `{}` | {:#x} | {}{ty} |",
            value.name,
            value.value,
            cell(&value.desc)
        );
    }
    text.push('\n');
}

/// Text as it stands in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

//! Documentation as the headers show it: the specification's words, wrapped.

use crate::model::{Callback, Dir, Function, Group, Param, Value};

/// Columns of text after `/// `.
pub const WIDTH: usize = 96;

/// A function's text: what it does, when, on which threads, and its own errors.
pub fn function(found: &Function) -> String {
    let mut text = found.desc.clone();
    if let Some(ordering) = &found.ordering {
        text += &format!("\n\nOrder: {ordering}");
    }
    if let Some(threads) = &found.threads {
        text += &format!("\n\nThreads: {threads}");
    }
    if !found.errors.is_empty() || !found.may.is_empty() {
        text += "\n\nErrors:";
    }
    for case in &found.errors {
        text += &format!("\n- `{}`: {}", case.code, case.desc);
    }
    let named: Vec<String> = found.may.iter().map(|code| format!("`{code}`")).collect();
    if !named.is_empty() {
        text += &format!("\n- also {}", named.join(", "));
    }
    text
}

pub fn callback(found: &Callback) -> String {
    let mut text = found.desc.clone();
    for param in &found.params {
        text += &format!("\n- `{}`: {}", param.name, param.desc);
    }
    text
}

pub fn value(found: &Value) -> String {
    let ty = found.ty.as_ref().map(|ty| format!("[{ty}] ")).unwrap_or_default();
    let deprecated = if found.deprecated { "(deprecated) " } else { "" };
    let optional = if found.optional { "; not every adapter has it" } else { "" };
    format!("{ty}{deprecated}{}{optional}", found.desc)
}

pub fn member(found: &Param) -> String {
    let optional = if found.optional { "(optional) " } else { "" };
    format!("{optional}{}", found.desc)
}

/// What stands behind a parameter: `[in] ...`.
pub fn param(found: &Param) -> String {
    let direction = match found.dir {
        Dir::In => "in",
        Dir::Out => "out",
        Dir::InOut => "in,out",
    };
    let optional = if found.optional { ",optional" } else { "" };
    format!("[{direction}{optional}] {}", found.desc)
}

/// The text above a group's declarations.
pub fn group(found: &Group) -> String {
    let mut text = found.desc.clone();
    let functions = found.items.iter().any(|item| matches!(item, crate::model::Item::Function(_)));
    if functions {
        text += &format!("\n\nOrder: {}\n\nThreads: {}", found.ordering, found.threads);
    }
    text
}

/// Breaks text into lines; a list entry's further lines are indented.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut out = Vec::new();
    if text.is_empty() {
        return out;
    }
    for paragraph in text.lines() {
        let indent = if paragraph.starts_with("- ") { "  " } else { "" };
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.trim().is_empty() && line.len() + 1 + word.len() > width {
                out.push(std::mem::replace(&mut line, indent.to_owned()));
            } else if !line.is_empty() {
                line.push(' ');
            }
            line += word;
        }
        out.push(line);
    }
    out
}

/// A line with the blank that separates it from `///`; an empty line stays empty.
pub fn spaced(line: &str) -> String {
    if line.is_empty() { String::new() } else { format!(" {line}") }
}

/// `/// ` lines.
pub fn lines(text: &str) -> String {
    wrap(text, WIDTH).iter().map(|line| format!("///{}\n", spaced(line))).collect()
}

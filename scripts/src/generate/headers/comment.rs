//! Documentation in the headers: the specification's text, wrapped.
//!
//! The prologue of `ur_api.h` states common facts once: recurring parameters, errors of every function, the
//! link members of structs.

use crate::model::{Callback, Dir, ErrorCase, Function, Group, Item, Param, Spec, Value};
use std::collections::BTreeMap;

/// Columns of text after `/// `.
pub const WIDTH: usize = 96;

/// Number of equal descriptions of a parameter from which the prologue has it.
const RECURRING: usize = 10;

/// Errors of every function, which the prologue lists and `may` need not repeat.
const GENERAL_ERRORS: [&str; 17] = [
    "UNINITIALIZED",
    "DEVICE_LOST",
    "ADAPTER_SPECIFIC",
    "OUT_OF_HOST_MEMORY",
    "OUT_OF_RESOURCES",
    "INVALID_PLATFORM",
    "INVALID_DEVICE",
    "INVALID_CONTEXT",
    "INVALID_QUEUE",
    "INVALID_EVENT",
    "INVALID_MEM_OBJECT",
    "INVALID_SAMPLER",
    "INVALID_PROGRAM",
    "INVALID_KERNEL",
    "INVALID_GRAPH",
    "INVALID_COMMAND_BUFFER_EXP",
    "INVALID_COMMAND_BUFFER_SYNC_POINT_EXP",
];

/// The ordering of most groups, which the prologue states.
const DEFAULT_ORDER: &str = "Takes effect on the host before it returns; no queue is involved.";

/// The thread rules of most groups, which the prologue states.
const DEFAULT_THREADS: [&str; 2] = [
    "Every function may be called from several threads at once, on the same objects too; releasing a handle must not race with its use.",
    "Every function may be called from several threads at once, on the same objects too; only the release of the last reference must not race with another use of the handle.",
];

/// Parameters and error conditions that many functions share, with one wording each.
#[derive(Default)]
pub struct Recurring {
    /// Name and description.
    params: Vec<(String, String)>,
    /// Error code and condition, with the first description.
    errors: BTreeMap<(String, String), String>,
}

impl Recurring {
    pub fn of(spec: &Spec) -> Self {
        let mut params = BTreeMap::new();
        let mut errors = BTreeMap::new();
        for function in spec.functions() {
            for found in &function.params {
                *params
                    .entry((found.name.clone(), param(found)))
                    .or_insert(0) += 1;
            }
            for case in &function.errors {
                if let Some(when) = &case.when {
                    errors
                        .entry((case.code.clone(), when.clone()))
                        .or_insert((0, case.desc.clone()))
                        .0 += 1;
                }
            }
        }
        Self {
            params: params
                .into_iter()
                .filter(|(_, count)| *count >= RECURRING)
                .map(|(key, _)| key)
                .collect(),
            errors: errors
                .into_iter()
                .filter(|(_, (count, _))| *count >= RECURRING)
                .map(|(key, (_, desc))| (key, desc))
                .collect(),
        }
    }

    /// A function's text about a parameter; none if the prologue has it.
    pub fn param(&self, found: &Param) -> String {
        let text = param(found);
        let said = self
            .params
            .iter()
            .any(|(name, desc)| *name == found.name && *desc == text);
        if said { String::new() } else { text }
    }

    fn says(&self, case: &ErrorCase) -> bool {
        case.when
            .as_ref()
            .is_some_and(|when| self.errors.contains_key(&(case.code.clone(), when.clone())))
    }

    /// The prologue's list of parameters.
    pub fn param_lines(&self) -> String {
        self.params
            .iter()
            .map(|(name, desc)| lines(&format!("- `{name}`: {desc}")))
            .collect()
    }

    /// The prologue's list of errors.
    pub fn error_lines(&self) -> String {
        self.errors
            .iter()
            .map(|((code, _), desc)| lines(&format!("- `{code}`: {desc}")))
            .collect()
    }
}

/// A function's text: its effect, its ordering, its threads, and its own errors.
pub fn function(found: &Function, recurring: &Recurring) -> String {
    let mut text = found.desc.clone();
    if let Some(ordering) = &found.ordering {
        text += &format!("\n\nOrder: {ordering}");
    }
    if let Some(threads) = &found.threads {
        text += &format!("\n\nThreads: {threads}");
    }
    let may = found
        .may
        .iter()
        .filter(|code| !GENERAL_ERRORS.contains(&code.as_str()));
    let may: Vec<String> = may.map(|code| format!("`{code}`")).collect();
    let mut errors: Vec<(&str, String)> = Vec::new();
    for case in found.errors.iter().filter(|case| !recurring.says(case)) {
        match errors.iter_mut().find(|(code, _)| *code == case.code) {
            Some((_, descs)) => *descs += &format!("; {}", case.desc),
            None => errors.push((&case.code, case.desc.clone())),
        }
    }
    if !errors.is_empty() || !may.is_empty() {
        text += "\n\nErrors:";
    }
    for (code, descs) in errors {
        text += &format!("\n- `{code}`: {descs}");
    }
    if !may.is_empty() {
        text += &format!("\n- also {}", may.join(", "));
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

/// An enumerator's text; none if the description only names another declaration.
pub fn value(found: &Value) -> String {
    if found.desc.starts_with('`') && found.desc.ends_with('`') && !found.desc.contains(' ') {
        return String::new();
    }
    let optional = if found.optional { ",optional" } else { "" };
    let ty = found
        .ty
        .as_ref()
        .map(|ty| format!("[{ty}{optional}] "))
        .unwrap_or_default();
    let deprecated = if found.deprecated {
        "(deprecated) "
    } else {
        ""
    };
    format!("{ty}{deprecated}{}", found.desc)
}

/// A member's text; none for the first two of a chained struct, which the prologue explains.
pub fn member(found: &Param) -> String {
    if found.name == "stype" || found.name == "pNext" {
        return String::new();
    }
    let optional = if found.optional { "[optional] " } else { "" };
    format!("{optional}{}", found.desc)
}

/// The text above a parameter: `[out,optional] ...`. An input is marked only if it is optional.
fn param(found: &Param) -> String {
    let mark = match (found.dir, found.optional) {
        (Dir::In, false) => "",
        (Dir::In, true) => "[optional] ",
        (Dir::Out, false) => "[out] ",
        (Dir::Out, true) => "[out,optional] ",
        (Dir::InOut, false) => "[in,out] ",
        (Dir::InOut, true) => "[in,out,optional] ",
    };
    format!("{mark}{}", found.desc)
}

/// The text above a group's declarations.
pub fn group(found: &Group) -> String {
    let mut text = found.desc.clone();
    let functions = found
        .items
        .iter()
        .any(|item| matches!(item, Item::Function(_)));
    if functions && found.ordering != DEFAULT_ORDER {
        text += &format!("\n\nOrder: {}", found.ordering);
    }
    if functions && !DEFAULT_THREADS.contains(&found.threads.as_str()) {
        text += &format!("\n\nThreads: {}", found.threads);
    }
    text
}

/// Wraps text. Continuation lines of a list entry are indented.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut out = Vec::new();
    for paragraph in text.lines() {
        let indent = if paragraph.starts_with("- ") {
            "  "
        } else {
            ""
        };
        let mut lines = fill(paragraph.split_whitespace(), width - indent.len()).into_iter();
        out.push(lines.next().unwrap_or_default());
        out.extend(lines.map(|line| format!("{indent}{line}")));
    }
    out
}

/// Joins units with blanks into lines of at most `width` columns. A unit is never broken, even if it is
/// wider.
pub fn fill<'a>(units: impl IntoIterator<Item = &'a str>, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for unit in units {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + unit.len() <= width => *line += &format!(" {unit}"),
            _ => lines.push(unit.to_owned()),
        }
    }
    lines
}

/// A line with a blank after `///`. An empty line stays empty.
pub fn spaced(line: &str) -> String {
    if line.is_empty() {
        String::new()
    } else {
        format!(" {line}")
    }
}

/// `/// ` lines.
pub fn lines(text: &str) -> String {
    wrap(text, WIDTH)
        .iter()
        .map(|line| format!("///{}\n", spaced(line)))
        .collect()
}

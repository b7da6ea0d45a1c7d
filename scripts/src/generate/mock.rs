//! The mock's headers, and what each function answers without a backend.
//!
//! `adapters/mock/src/functions.rs` names the functions that it answers by hand instead.

use super::functions::List;
use super::layers::in_tables;
use super::{File, expr, rust};
use crate::model::{Dir, Function, Own, Param, Spec};
use anyhow::{Context as _, Result};
use std::fmt::Write as _;

pub fn files(_: &Spec) -> Result<Vec<File>> {
    Ok(vec![
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

const ANSWERS: &str = "\
What a call does to handles and outputs if it does nothing else: `PARAMS REFUSALS = ANSWER;`.

`adapters/mock/src/functions.rs` explains REFUSALS and ANSWER.";

const HANDLES: &str =
    "The handles of adapters, each with its case of `ur::object::Kind`: `TYPE KIND;`.";

pub fn lists(spec: &Spec) -> Result<[List; 2]> {
    let mut rows = String::new();
    for function in in_tables(spec) {
        let params = function
            .params_struct()
            .with_context(|| format!("{} has no arguments", function.name))?;
        let answer = (Answer { spec, function }).row();
        let refusals = refusals(spec, function)?;
        let _ = writeln!(rows, "{params}{refusals} = {answer};");
    }
    Ok([
        List::new("for_each_answer", ANSWERS, rows),
        List::new("for_each_handle", HANDLES, handles(spec)),
    ])
}

/// The refusals of a device without a feature, a line for each case.
fn refusals(spec: &Spec, function: &Function) -> Result<String> {
    let mut out = String::new();
    for case in function.errors.iter().filter(|case| !case.lacks.is_empty()) {
        let terms: Vec<String> = case
            .lacking()
            .map(|(property, flag)| match flag {
                Some(flag) => format!("{property} & {flag}"),
                None => property.to_owned(),
            })
            .collect();
        let given = match &case.given {
            Some(given) => {
                let mentioned = |param: &&Param| given.contains(&param.name);
                let names: Vec<String> = function
                    .params
                    .iter()
                    .filter(mentioned)
                    .map(|param| format!("{} = p{}", rust::ident(&param.name), param.name))
                    .collect();
                let given = expr::rust(spec, function, given)?;
                format!(" given [{}] ({given})", names.join(", "))
            }
            None => String::new(),
        };
        let _ = write!(
            out,
            "\n    {{ UR_RESULT_ERROR_{} lacking [{}]{given} }}",
            case.code,
            terms.join(", ")
        );
    }
    if !out.is_empty() {
        out.push_str("\n   ");
    }
    Ok(out)
}

fn handles(spec: &Spec) -> String {
    let in_tables = spec
        .handles()
        .filter(|handle| handle.name != "ur_loader_config_handle_t");
    in_tables
        .map(|handle| format!("{} {};\n", handle.name, rust::object_name(&handle.name)))
        .collect()
}

/// Derives the default answer of a function from its parameters.
struct Answer<'a> {
    spec: &'a Spec,
    function: &'a Function,
}

impl Answer<'_> {
    /// The answer in the function's row.
    fn row(&self) -> String {
        if let Some(query) = self.query() {
            return query;
        }
        for param in &self.function.params {
            let ty = param.c_type();
            if ty.pointers > 0 || !self.spec.is_handle(&ty.base) {
                continue;
            }
            let (name, kind) = (&param.name, rust::object_name(&ty.base));
            match param.own {
                Some(Own::Retain) => return format!("retain(p{name} {kind})"),
                Some(Own::Release) => return format!("release(p{name} {kind})"),
                _ => {}
            }
        }
        let outputs: Vec<String> = self
            .function
            .params
            .iter()
            .filter(|param| param.dir != Dir::In && param.c_type().pointers > 0)
            .filter_map(|param| self.output(param))
            .collect();
        if outputs.is_empty() {
            return "nothing()".to_owned();
        }
        let makes = |output: &String| !output.starts_with("value");
        let origin = match outputs.iter().any(makes) {
            true => self.origin().join(", "),
            false => String::new(),
        };
        format!("make([{origin}] {})", outputs.join(" "))
    }

    /// An info query about the handle that leads to the adapter.
    fn query(&self) -> Option<String> {
        let mut params = self.function.params.iter();
        let buffer = params.find(|param| param.info.is_some() && param.dir != Dir::In)?;
        let info = buffer.info.as_deref().unwrap_or_default();
        let name = info.first()?;
        let mut params = self.function.params.iter();
        let of = params.find(|param| &param.name == name)?;
        let subject = self.function.dispatch(self.spec)?;
        let room = info
            .get(1)
            .map_or("-".to_owned(), |size| format!("p{size}"));
        Some(format!(
            "query(p{} {}, p{name} {}, {room} p{})",
            subject.name,
            rust::object_name(&subject.c_type().base),
            of.c_type().base,
            buffer.name,
        ))
    }

    /// The objects that keep a new one alive: all handles among the inputs, except events, which would keep
    /// one another alive for ever.
    fn origin(&self) -> Vec<String> {
        let mut out = Vec::new();
        for param in self.function.params.iter().filter(|p| p.dir == Dir::In) {
            let ty = param.c_type();
            let name = &param.name;
            if !self.spec.is_handle(&ty.base) || ty.base == "ur_event_handle_t" {
                continue;
            }
            let kind = rust::object_name(&ty.base);
            match (&param.count, ty.pointers) {
                (None, 0) => out.push(format!("p{name} {kind}")),
                (Some(count), 1) => out.push(format!("p{name} p{count} {kind}")),
                _ => {}
            }
        }
        out
    }

    fn output(&self, param: &Param) -> Option<String> {
        let ty = param.c_type();
        let to = format!("p{}", param.name);
        if self.spec.is_handle(&ty.base) && ty.pointers == 1 {
            let kind = rust::object_name(&ty.base);
            if let Some(native) = self.native() {
                return Some(format!("adopted({to} {kind} p{native})"));
            }
            return Some(match self.command() {
                Some(command) if kind == "Event" => format!("event({to} {command})"),
                _ => format!("handle({to} {kind})"),
            });
        }
        Some(match (ty.base.as_str(), ty.pointers) {
            ("bool" | "ur_bool_t", 1) => format!("value({to} 1)"),
            ("ur_native_handle_t", 1) => match self.function.dispatch(self.spec) {
                Some(subject) => format!("value({to} address p{})", subject.name),
                None => format!("value({to} 0)"),
            },
            (base, 1) if base.ends_with("native_handle_t") => format!("value({to} id usize)"),
            ("ur_exp_command_buffer_sync_point_t", 1) => format!("value({to} id u32)"),
            // Memory, text and untyped data need a handwritten answer. User data is no output.
            ("void" | "char", _) | (_, 2) => return None,
            _ => format!("value({to} default)"),
        })
    }

    /// The native handle that becomes an object.
    fn native(&self) -> Option<&str> {
        let mut params = self.function.params.iter();
        let native = params.find(|param| {
            param.c_type().base == "ur_native_handle_t" && param.c_type().pointers == 0
        })?;
        Some(&native.name)
    }

    /// The command type of the event.
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

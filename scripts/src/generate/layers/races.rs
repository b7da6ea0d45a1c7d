//! Rows of the validation of asynchronous allocations.
//!
//! A command is a function that dispatches on a queue and returns an event. Its row has its wait list and the
//! memory that it accesses. Other rows are of events and memory that the layer cannot follow. The remaining
//! functions of interest are listed in `loader/src/layers/races/watched.rs`.

use super::in_tables;
use crate::generate::expr;
use crate::generate::functions::List;
use crate::model::{Dir, Function, Param, Spec};
use anyhow::{Context as _, Result};
use std::fmt::Write as _;

const DOC: &str = "\
Commands with the memory that they access, and calls whose events or memory the validation of asynchronous
allocations cannot follow: `NAME PARAMS |p, call| { ... }`. `call()` makes the call; the value is its result.";

/// Functions with a handwritten row in the loader in place of one by [`general`].
const BY_NAME: [&str; 5] = [
    "urIPCGetEventHandleExp",
    "urEventSetCallback",
    "urUSMHostAlloc",
    "urUSMDeviceAlloc",
    "urUSMSharedAlloc",
];

pub(super) fn list(spec: &Spec) -> Result<List> {
    let mut rows = String::new();
    for function in in_tables(spec) {
        let body = match is_command(spec, function) {
            true => command(spec, function)?,
            false if BY_NAME.contains(&function.name.as_str()) => continue,
            false => match general(spec, function)? {
                Some(body) => body,
                None => continue,
            },
        };
        let params = function.params_struct().context("no arguments")?;
        let _ = writeln!(rows, "{} {params} |p, call| {{", function.name);
        for line in body {
            let _ = writeln!(rows, "    {line}");
        }
        rows.push_str("}\n");
    }
    Ok(List::new("for_each_command", DOC, rows))
}

fn is_command(spec: &Spec, function: &Function) -> bool {
    let by_queue = function
        .dispatch(spec)
        .is_some_and(|param| param.ty == "ur_queue_handle_t" && param.name == "hQueue");
    by_queue && event(function).is_some()
}

fn event(function: &Function) -> Option<&Param> {
    function
        .params
        .iter()
        .find(|param| param.name == "phEvent" && param.dir != Dir::In)
}

/// Pointers to memory that a command accesses when it runs.
fn pointers(function: &Function) -> impl Iterator<Item = &Param> {
    function.params.iter().filter(|param| {
        let ty = param.c_type();
        let is_memory = ty.base == "void" && ty.pointers == 1 && param.dir == Dir::In;
        // A pattern is copied by the call, and a callback's data is opaque.
        is_memory
            && param.info.is_none()
            && !matches!(param.name.as_str(), "pPattern" | "data" | "pData")
    })
}

/// The size in bytes of the memory behind a pointer, as an `Option<u64>`. None for a box, whose bytes are
/// not consecutive.
fn size(spec: &Spec, function: &Function, param: &Param) -> Result<String> {
    let number = |text: &str| expr::number_behind(spec, function, text);
    let bytes = match param.bounds.as_deref() {
        Some([_, size]) => Some(number(size)?),
        Some([_, pitch, height]) => {
            let (pitch, height) = (number(pitch)?, number(height)?);
            Some(format!("({pitch}).saturating_mul({height})"))
        }
        _ => {
            let length = |other: &&Param| {
                other.ty == "size_t" && matches!(other.name.as_str(), "size" | "count")
            };
            let length = function.params.iter().find(length);
            length.map(|length| number(&length.name)).transpose()?
        }
    };
    Ok(bytes.map_or("None".to_owned(), |bytes| format!("Some({bytes})")))
}

/// The lines of a command's row.
fn command(spec: &Spec, function: &Function) -> Result<Vec<String>> {
    let name = &function.name;
    let has = |wanted: &str| function.params.iter().any(|param| param.name == wanted);
    let waits = match has("phEventWaitList") {
        true => "(*p.pnumEventsInWaitList, *p.pphEventWaitList)",
        false => "(0, std::ptr::null())",
    };
    // A marker or barrier without a wait list waits for every command.
    let kind = match name.as_str() {
        "urEnqueueEventsWait" => {
            "if *p.pnumEventsInWaitList == 0 { Kind::Marker } else { Kind::Plain }"
        }
        "urEnqueueEventsWaitWithBarrier" | "urEnqueueEventsWaitWithBarrierExt" => {
            "Kind::Barrier { all: *p.pnumEventsInWaitList == 0 }"
        }
        _ => "Kind::Plain",
    };
    let mut lines = Vec::new();
    let frees = name == "urEnqueueUSMFreeExp";
    for param in pointers(function) {
        let of = format!("*p.p{}", param.name);
        // The host's side of a transfer may be the application's memory.
        let access = match param.bounds.is_some() && !name.contains("Memcpy") {
            true => "Access::Usm",
            false => "Access::Any",
        };
        lines.push(match frees {
            true => format!("command.frees({of});"),
            false => {
                let size = size(spec, function, param)?;
                format!("command.uses({of}, {size}, {access});")
            }
        });
    }
    for param in &function.params {
        match (param.c_type().base.as_str(), &param.count) {
            ("ur_exp_kernel_arg_properties_t", Some(count)) => lines.push(format!(
                "command.launches(*p.phKernel, *p.p{count}, *p.p{});",
                param.name
            )),
            ("ur_exp_command_buffer_handle_t", None) => {
                lines.push(format!("command.submits(*p.p{});", param.name));
            }
            _ => {}
        }
    }
    if event(function).is_some_and(|param| param.dir == Dir::InOut) {
        lines.push("command.may_keep_event();".into());
    }
    let blocking = |param: &&Param| param.name.starts_with("blocking") && param.ty == "bool";
    if let Some(param) = function.params.iter().find(blocking) {
        lines.push(format!("command.blocks(*p.p{} != 0);", param.name));
    }
    lines.insert(
        0,
        format!(
            "let mut command = Command::new({name:?}, *p.phQueue, {kind}, {waits}, !(*p.pphEvent).is_null());"
        ),
    );
    lines.extend(match name.as_str() {
        "urEnqueueHostTaskExp" => {
            vec!["command.run_task(p.ppfnHostTask, p.pdata, *p.pphEvent, call)".to_owned()]
        }
        _ if has("ppMem") => {
            vec!["command.run_alloc((*p.pppMem).cast(), *p.psize, *p.pphEvent, call)".to_owned()]
        }
        _ if name.contains("ExternalSemaphore") => vec![
            "let result = command.run(*p.pphEvent, call);".to_owned(),
            "queue_opened(result, *p.phQueue);".to_owned(),
            "result".to_owned(),
        ],
        _ => vec!["command.run(*p.pphEvent, call)".to_owned()],
    });
    Ok(lines)
}

/// The row of a function that appends a command, or returns events or memory that the layer cannot follow.
fn general(spec: &Spec, function: &Function) -> Result<Option<Vec<String>>> {
    let mut after = Vec::new();
    if function.name.starts_with("urCommandBufferAppend") {
        let pointers: Result<Vec<_>> = pointers(function)
            .map(|param| {
                let size = size(spec, function, param)?;
                Ok(format!("((*p.p{}).cast(), {size})", param.name))
            })
            .collect();
        let pointers = pointers?;
        let arguments = function
            .params
            .iter()
            .find(|param| param.c_type().base == "ur_exp_kernel_arg_properties_t");
        let arguments = arguments.and_then(|param| {
            Some(format!(
                "(*p.p{}, *p.p{})",
                param.count.as_ref()?,
                param.name
            ))
        });
        if !pointers.is_empty() || arguments.is_some() {
            after.push(format!(
                "appended(result, *p.phCommandBuffer, &[{}], {});",
                pointers.join(", "),
                arguments.unwrap_or_else(|| "(0, std::ptr::null())".to_owned())
            ));
        }
    }
    for param in function.params.iter().filter(|param| param.dir != Dir::In) {
        let ty = param.c_type();
        if ty.base == "ur_event_handle_t" && ty.pointers == 1 {
            after.push(format!("event_unknown(result, *p.p{});", param.name));
        } else if ty.base == "void" && ty.pointers == 2 && param.dir == Dir::Out {
            after.push(format!("replaced(result, (*p.p{}).cast());", param.name));
        }
    }
    if after.is_empty() {
        return Ok(None);
    }
    after.insert(0, "let result = call();".to_owned());
    after.push("result".to_owned());
    Ok(Some(after))
}

//! Validation of asynchronous allocations: commands with what they wait for and which memory they
//! use; what the host waits for and sees; allocations and frees.
//!
//! A command is whatever a queue dispatches and an event comes of. What else the layer has to know is
//! a short list by name.

use super::{call, call_with, layer};
use crate::generate::{File, rust};
use crate::model::{Dir, Function, Param, Spec};
use anyhow::Result;
use std::fmt::Write as _;

const DOC: &str = "Validation of asynchronous allocations: each function says what it takes, uses, allocates, frees or\n\
waits for.\n\n\
Unsafe blocks rest on what the specification asks of a caller and, after a success, on what the\n\
adapter has promised to write.";

const USES: &str = "use crate::layers::races::*;";

pub(super) fn file(spec: &Spec) -> Result<(&'static str, File)> {
    layer(spec, "races", DOC, USES, |function| {
        Ok(if is_command(spec, function) {
            Some(command(function))
        } else {
            special(function)
        })
    })
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

/// Pointers to memory that a command reads or writes when it runs.
fn pointers(function: &Function) -> impl Iterator<Item = &Param> {
    function.params.iter().filter(|param| {
        let ty = param.c_type();
        let is_memory = ty.base == "void" && ty.pointers == 1 && param.dir == Dir::In;
        // Patterns are copied by the call, data is a callback's.
        is_memory
            && param.info.is_none()
            && !matches!(param.name.as_str(), "pPattern" | "data" | "pData")
    })
}

fn command(function: &Function) -> String {
    let name = &function.name;
    let has = |wanted: &str| function.params.iter().any(|param| param.name == wanted);
    let waits = match has("phEventWaitList") {
        true => "(numEventsInWaitList, phEventWaitList)",
        false => "(0, std::ptr::null())",
    };
    // Without a wait list, markers and barriers wait for everything.
    let kind = match name.as_str() {
        "urEnqueueEventsWait" => {
            "if numEventsInWaitList == 0 { Kind::Marker } else { Kind::Plain }"
        }
        "urEnqueueEventsWaitWithBarrier" | "urEnqueueEventsWaitWithBarrierExt" => {
            "Kind::Barrier { all: numEventsInWaitList == 0 }"
        }
        _ => "Kind::Plain",
    };
    let mut body = format!(
        "let mut command = unsafe {{ Command::new({name:?}, hQueue, {kind}, {waits}, !phEvent.is_null()) }};\n"
    );
    let frees = name == "urEnqueueUSMFreeExp";
    for param in pointers(function) {
        let raw = rust::ident(&param.name);
        // The other side of a copy, and what buffers are read to, may be the application's own.
        let access = match param.bounds.is_some() && !name.contains("Memcpy") {
            true => "Access::Usm",
            false => "Access::Any",
        };
        let _ = match frees {
            true => writeln!(body, "command.frees({raw});"),
            false => writeln!(body, "command.uses({raw}, {access});"),
        };
    }
    for param in &function.params {
        match (param.c_type().base.as_str(), &param.count) {
            ("ur_exp_kernel_arg_properties_t", Some(count)) => {
                let _ = writeln!(
                    body,
                    "unsafe {{ command.launches(hKernel, {count}, {}) }};",
                    param.name
                );
            }
            ("ur_exp_command_buffer_handle_t", None) => {
                let _ = writeln!(body, "command.submits({});", param.name);
            }
            _ => {}
        }
    }
    body.push_str("if let Err(error) = command.begin() { return error; }\n");
    let task = name == "urEnqueueHostTaskExp";
    if task {
        let _ = writeln!(
            body,
            "let task = command.task(pfnHostTask, data);
            let result = {};
            if result != UR_RESULT_SUCCESS {{ unsafe {{ task.refused() }}; }}",
            call_with(
                function,
                &[
                    ("pfnHostTask".into(), "task.task".into()),
                    ("data".into(), "task.data".into())
                ]
            )
        );
    } else {
        let _ = writeln!(body, "let result = {};", call(function));
    }
    if has("ppMem") {
        body.push_str("unsafe { command.allocated(result, ppMem.cast(), size) };\n");
    }
    if name.contains("ExternalSemaphore") {
        body.push_str("queue_opened(result, hQueue);\n");
    }
    let again = event(function).is_some_and(|param| param.dir == Dir::InOut);
    let blocking = function
        .params
        .iter()
        .find(|param| param.name.starts_with("blocking") && param.ty == "bool");
    let blocking = blocking.map_or("false".to_owned(), |param| format!("{} != 0", param.name));
    let _ = write!(
        body,
        "unsafe {{ command.end(result, phEvent, {again}, {blocking}) }};\nresult"
    );
    body
}

fn special(function: &Function) -> Option<String> {
    let after = |text: &str| Some(format!("let result = {};\n{text};\nresult", call(function)));
    let name = function.name.as_str();
    match name {
        "urQueueCreate" => {
            after("unsafe { queue_made(result, phQueue, hDevice, pProperties) }")
        }
        "urQueueCreateWithNativeHandle" => {
            after("unsafe { open_queue_made(result, phQueue, hDevice) }")
        }
        "urQueueGetNativeHandle" | "urQueueBeginGraphCaptureExp" | "urQueueBeginCaptureIntoGraphExp" => {
            after("queue_opened(result, hQueue)")
        }
        "urQueueFinish" => after("queue_finished(result, hQueue)"),
        "urQueueGetInfo" => {
            after("unsafe { queue_told(result, hQueue, propName, pPropValue) }")
        }
        "urDeviceWaitExp" => after("device_waited(result, hDevice)"),
        "urEventWait" => after("unsafe { events_waited(result, numEvents, phEventWaitList) }"),
        "urEventGetInfo" => after("unsafe { event_told(result, hEvent, propName, pPropValue) }"),
        "urEventGetProfilingInfo" => after("event_timed(result, hEvent, propName)"),
        "urEventGetNativeHandle" | "urIPCGetEventHandleExp" => after("event_seen(result, hEvent)"),
        "urEventRetain" => after("event_retained(result, hEvent)"),
        "urEventRelease" => Some(format!("event_released(hEvent);\n{}", call(function))),
        "urEventSetCallback" => {
            let others = [
                ("pfnNotify".to_owned(), "watched.callback".to_owned()),
                ("pUserData".to_owned(), "watched.data".to_owned()),
            ];
            Some(format!(
                "let watched = watch(hEvent, pfnNotify, pUserData);
                let result = {};
                if result != UR_RESULT_SUCCESS {{ unsafe {{ watched.refused() }}; }}
                result",
                call_with(function, &others)
            ))
        }
        "urKernelCreate" => after("unsafe { kernel_made(result, phKernel, pKernelName) }"),
        "urUSMHostAlloc" | "urUSMDeviceAlloc" | "urUSMSharedAlloc" => after(&format!(
            "unsafe {{ allocated({name:?}, result, ppMem.cast(), size) }}"
        )),
        "urUSMFree" => Some(format!(
            "let freed = match freed({name:?}, pMem) {{ Ok(freed) => freed, Err(error) => return error }};
            let result = {};
            freed.ended(result);
            result",
            call(function)
        )),
        "urUSMContextMemcpyExp" => Some(format!(
            "used_by_host({name:?}, &[pDst.cast_const(), pSrc]);\n{}",
            call(function)
        )),
        "urCommandBufferCreateExp" => {
            after("unsafe { command_buffer_made(result, phCommandBuffer) }")
        }
        "urCommandBufferUpdateKernelLaunchExp" => after("updated(result, hCommandBuffer)"),
        _ => general(function),
    }
}

/// Appended commands, events of unseen commands, memory of other kinds.
fn general(function: &Function) -> Option<String> {
    let mut after = String::new();
    if function.name.starts_with("urCommandBufferAppend") {
        let pointers: Vec<_> = pointers(function)
            .map(|param| format!("{} as *const c_void", rust::ident(&param.name)))
            .collect();
        let arguments = function
            .params
            .iter()
            .find(|param| param.c_type().base == "ur_exp_kernel_arg_properties_t");
        let arguments = arguments
            .and_then(|param| Some(format!("({}, {})", param.count.as_ref()?, param.name)));
        if !pointers.is_empty() || arguments.is_some() {
            let _ = writeln!(
                after,
                "unsafe {{ appended(result, hCommandBuffer, &[{}], {}) }};",
                pointers.join(", "),
                arguments.unwrap_or_else(|| "(0, std::ptr::null())".to_owned())
            );
        }
    }
    for param in function.params.iter().filter(|param| param.dir != Dir::In) {
        let ty = param.c_type();
        let raw = rust::ident(&param.name);
        if ty.base == "ur_event_handle_t" && ty.pointers == 1 {
            let _ = writeln!(after, "unsafe {{ event_unknown(result, {raw}) }};");
        } else if ty.base == "void" && ty.pointers == 2 && param.dir == Dir::Out {
            let _ = writeln!(after, "unsafe {{ replaced(result, {raw}.cast()) }};");
        }
    }
    (!after.is_empty()).then(|| format!("let result = {};\n{after}result", call(function)))
}

//! `src/stream/api/generated.rs`: the `hal` traits of the engine's objects, and the hooks of a backend.
//!
//! The lists in this file say who answers each method: the engine, by an expression over the method's
//! parameters, or the backend, by a function in its table `Hooks`. Hooks of a method's own name stand beside the
//! method's trait, so that a new function changes no file but that.

use super::plan::{Plan, Shape, associated};
use super::traits::method_ty;
use super::wrap;
use crate::generate::{File, rust};
use crate::model::Spec;
use How::{Command, Engine, Hook, Part, SharedPart};
use anyhow::{Context as _, Result, ensure};
use std::fmt::Write as _;

/// Who answers a method.
enum How {
    /// The engine, by this body.
    Engine(&'static str),
    /// The engine, by a command that this expression makes. A queue submits it, a command buffer appends it.
    Command(&'static str),
    /// The backend, by a hook of this name. The body calls it as `HOOK`.
    Hook(&'static str, &'static str),
    /// The engine, with something that the backend makes. The hook of the method's name gets these parameters and
    /// returns a value of this type, and the body calls it as `HOOK`. A parameter with a type is the body's own.
    Part(&'static str, &'static str, &'static str),
    /// A part that several methods need, by a hook of this name.
    SharedPart(&'static str, &'static str, &'static str, &'static str),
}

/// An object of the engine, with the answers of its methods.
struct Answers {
    /// The handle type's trait in the `hal`.
    object: &'static str,
    methods: &'static [(&'static str, How)],
    /// Whether a method outside the list is a hook of the same name. Otherwise it is unsupported.
    rest_is_hooks: bool,
}

/// Methods that are inlined into the shim.
const HOT: [&str; 3] = ["usm_fill", "usm_memcpy", "kernel_launch_with_args_exp"];

const OBJECTS: [Answers; 7] = [
    Answers {
        object: "Queue",
        methods: &QUEUE,
        rest_is_hooks: false,
    },
    Answers {
        object: "Context",
        methods: &CONTEXT,
        rest_is_hooks: true,
    },
    Answers {
        object: "Event",
        methods: &EVENT,
        rest_is_hooks: false,
    },
    Answers {
        object: "CommandBuffer",
        methods: &COMMAND_BUFFER,
        rest_is_hooks: false,
    },
    Answers {
        object: "CommandBufferCommand",
        methods: &RECORDED_COMMAND,
        rest_is_hooks: false,
    },
    Answers {
        object: "Graph",
        methods: &GRAPH,
        rest_is_hooks: false,
    },
    Answers {
        object: "ExecutableGraph",
        methods: &EXECUTABLE_GRAPH,
        rest_is_hooks: false,
    },
];

#[rustfmt::skip]
const QUEUE: [(&str, How); 47] = [
    ("get_info", Engine("Self::info(this, prop_name, out)")),
    ("get_native_handle", Hook("queue_native_handle", "HOOK")),
    ("finish", Engine("this.live(Handles::EMPTY)?; this.finish_here()")),
    ("flush", Engine("this.flush_here()")),
    ("events_wait", Engine("Self::join_events(this, UR_COMMAND_EVENTS_WAIT, event_wait_list, event, false)")),
    ("events_wait_with_barrier", Engine(BARRIER)),
    ("events_wait_with_barrier_ext", Engine("reusable::barrier(this, event_wait_list, event)")),
    ("mem_buffer_read", Command("buffer_read(buffer, offset, size, dst)")),
    ("mem_buffer_write", Command("buffer_write(buffer, offset, size, src)")),
    ("mem_buffer_read_rect", Command("buffer_read_rect(
        buffer,
        RectOffset::new(buffer_origin, buffer_row_pitch, buffer_slice_pitch),
        RectOffset::new(host_origin, host_row_pitch, host_slice_pitch),
        region,
        dst)")),
    ("mem_buffer_write_rect", Command("buffer_write_rect(
        buffer,
        RectOffset::new(buffer_origin, buffer_row_pitch, buffer_slice_pitch),
        RectOffset::new(host_origin, host_row_pitch, host_slice_pitch),
        region,
        src)")),
    ("mem_buffer_copy", Command("buffer_copy(buffer_src, buffer_dst, src_offset, dst_offset, size)")),
    ("mem_buffer_copy_rect", Command("buffer_copy_rect(
        (buffer_src, RectOffset::new(src_origin, src_row_pitch, src_slice_pitch)),
        (buffer_dst, RectOffset::new(dst_origin, dst_row_pitch, dst_slice_pitch)),
        region)")),
    ("mem_buffer_fill", Command("buffer_fill(buffer, pattern, offset, size)")),
    ("mem_buffer_map", Engine("mapping::map(this, buffer, blocking_map, map_flags, (offset, size), event_wait_list, event)")),
    ("mem_unmap", Engine("mapping::unmap(this, mem, mapped_ptr, event_wait_list, event)")),
    ("mem_image_read", Part("image, origin, region, row_pitch, slice_pitch, dst", "Work<B>",
        "Self::enqueue(this, UR_COMMAND_MEM_IMAGE_READ, event_wait_list, HOOK?, event, blocking_read)")),
    ("mem_image_write", Part("image, origin, region, row_pitch, slice_pitch, src", "Work<B>",
        "Self::enqueue(this, UR_COMMAND_MEM_IMAGE_WRITE, event_wait_list, HOOK?, event, blocking_write)")),
    ("mem_image_copy", Part("image_src, image_dst, src_origin, dst_origin, region", "Work<B>",
        "Self::enqueue(this, UR_COMMAND_MEM_IMAGE_COPY, event_wait_list, HOOK?, event, false)")),
    ("bindless_images_image_copy_exp", Part("
        from: ImageCopyEnd<'_>, to: ImageCopyEnd<'_>, copy_region, image_copy_flags, image_copy_input_types", "Work<B>", "
        let from = ImageCopyEnd { address: src.expose_provenance(), desc: src_image_desc, format: src_image_format };
        let to = ImageCopyEnd { address: dst.expose_provenance(), desc: dst_image_desc, format: dst_image_format };
        Self::enqueue(this, UR_COMMAND_MEM_IMAGE_COPY, event_wait_list, HOOK?, event, false)")),
    // A binary semaphore counts to no number.
    ("bindless_images_wait_external_semaphore_exp", Part("semaphore, value: u64", "Work<B>", "
        let value = if has_wait_value { wait_value } else { 0 };
        Self::enqueue(this, UR_COMMAND_EXTERNAL_SEMAPHORE_WAIT_EXP, event_wait_list, HOOK?, event, false)")),
    ("bindless_images_signal_external_semaphore_exp", Part("semaphore, value: u64", "Work<B>", "
        let value = if has_signal_value { signal_value } else { 0 };
        Self::enqueue(this, UR_COMMAND_EXTERNAL_SEMAPHORE_SIGNAL_EXP, event_wait_list, HOOK?, event, false)")),
    ("read_host_pipe", Part("program, pipe_symbol, dst, size", "Work<B>",
        "Self::enqueue(this, UR_COMMAND_READ_HOST_PIPE, event_wait_list, HOOK?, event, blocking)")),
    ("write_host_pipe", Part("program, pipe_symbol, src, size", "Work<B>",
        "Self::enqueue(this, UR_COMMAND_WRITE_HOST_PIPE, event_wait_list, HOOK?, event, blocking)")),
    // The work makes the listed memory current on the queue's device.
    ("native_command_exp", Part("mem_list", "Option<Work<B>>",
        "NativeCall { run: native_enqueue, data }.enqueue(this, HOOK?, event_wait_list, event)")),
    ("usm_fill", Engine("Self::fill(this, mem, pattern, size, event_wait_list, event)")),
    ("usm_memcpy", Engine("Self::copy(this, blocking, dst, src, size, event_wait_list, event)")),
    ("usm_prefetch", Command("usm_prefetch(mem, size, flags)")),
    ("usm_advise", Command("usm_advise(mem, size, advice)")),
    ("usm_fill_2d", Command("usm_fill_2d(mem, pitch, pattern, width, height)")),
    ("usm_memcpy_2d", Command("usm_copy_2d((dst, dst_pitch), (src, src_pitch), width, height)")),
    ("device_global_variable_write", Command("variable_write(program, name, offset, count, src)")),
    ("device_global_variable_read", Command("variable_read(program, name, offset, count, dst)")),
    ("kernel_launch_with_args_exp", Engine("
        let launch = PlainLaunch {
            offset: global_work_offset, global: global_work_size, local: local_work_size, args,
        };
        Self::launch(this, kernel, work_dim, launch, launch_prop_list, event_wait_list, event)")),
    ("usm_device_alloc_exp", Engine("alloc::alloc(this, Kind::Device, pool, size, event_wait_list, event)")),
    ("usm_shared_alloc_exp", Engine("alloc::alloc(this, Kind::Shared, pool, size, event_wait_list, event)")),
    ("usm_host_alloc_exp", Engine("alloc::alloc(this, Kind::Host, pool, size, event_wait_list, event)")),
    ("usm_free_exp", Engine("alloc::free(this, mem.addr(), event_wait_list, event)")),
    ("timestamp_recording_exp", Engine("reusable::timestamp(this, blocking, event_wait_list, event)")),
    ("host_task_exp", Engine("host_task::enqueue(this, host_task, data, event_wait_list, event)")),
    ("command_buffer_exp", Engine("replay::command_buffer(command_buffer, this, event_wait_list, event)")),
    ("begin_graph_capture_exp", Engine("capture::begin(this, &Graph::new(this.context()))")),
    ("begin_capture_into_graph_exp", Engine("capture::begin(this, &graph.arc())")),
    ("end_graph_capture_exp", Engine("capture::end(this)")),
    ("graph_exp", Engine("ExecutableGraph::enqueue(graph, this, event_wait_list, event)")),
    ("is_graph_capture_enabled_exp", Engine("Ok(this.capture.is_on().into())")),
    ("get_graph_exp", Engine("this.capture.graph()")),
];

const BARRIER: &str =
    "Self::join_events(this, UR_COMMAND_EVENTS_WAIT_WITH_BARRIER, event_wait_list, event, true)";

#[rustfmt::skip]
const CONTEXT: [(&str, How); 36] = [
    ("get_info", Engine("Self::info(this, prop_name, out)")),
    ("get_native_handle", Hook("context_native_handle", "HOOK")),
    ("set_extended_deleter", Engine("this.add_deleter(deleter, user_data); Ok(())")),
    ("queue_create", Engine("Queue::create(this, device, QueueOptions::of(properties))")),
    ("usm_host_alloc", Engine("Self::alloc_now(this, Kind::Host, None, usm_desc, pool, size)")),
    ("usm_device_alloc", Engine("Self::alloc_now(this, Kind::Device, Some(device), usm_desc, pool, size)")),
    ("usm_shared_alloc", Engine("Self::alloc_now(this, Kind::Shared, Some(device), usm_desc, pool, size)")),
    ("usm_free", Engine("this.free_now(mem.addr())")),
    ("usm_get_mem_alloc_info", Engine("this.alloc_info(mem.addr(), prop_name, out)")),
    ("usm_pool_create", Engine("UsmPool::create(this, this.devices().to_vec(), pool_desc)")),
    ("usm_pool_create_exp", Engine("UsmPool::create(this, vec![this.device(device)?], pool_desc)")),
    ("usm_pool_destroy_exp", Engine("
        this.device(device)?;
        this.check_pool(pool)?;
        ensure(!pool.is_default(), UR_RESULT_ERROR_INVALID_VALUE)?;
        pool.release()")),
    ("usm_pool_get_default_device_pool_exp", Engine("Self::default_pool(this, device)")),
    ("usm_pool_set_device_pool_exp", Engine("this.set_current_pool(device, pool)")),
    ("usm_pool_get_device_pool_exp", Engine("Self::current_pool(this, device)")),
    ("usm_pool_trim_to_exp", Engine("
        this.device(device)?;
        this.check_pool(pool)?;
        this.domain().poll();
        pool.core().refresh_native();
        pool.core().trim(min_bytes_to_keep as u64);
        Ok(())")),
    ("usm_context_memcpy_exp", Engine("this.copy_now(dst.expose_provenance(), src.expose_provenance(), size)")),
    ("command_buffer_create_exp", Engine("CommandBuffer::create(this, device, command_buffer_desc)")),
    ("graph_create_exp", Engine("this.domain().engine().check()?; Ok(Graph::new(&this.arc()))")),
    ("event_create_exp", Engine("Event::reusable(this, device, event_desc)")),
    ("usm_host_alloc_register_exp", Engine("this.register_host(host_mem.expose_provenance(), size, properties)")),
    ("usm_host_alloc_unregister_exp", Engine("this.unregister_host(host_mem.addr())")),
    // An import is a hint, which a backend may ignore.
    ("usm_import_exp", Engine("B::import_host(this.domain(), mem.addr(), size); Ok(())")),
    ("usm_release_exp", Engine("B::release_host(this.domain(), mem.addr()); Ok(())")),
    ("virtual_mem_granularity_get_info", Part("device, allocation_size", "usize", "
        match prop_name {
            VirtualMemGranularityInfo::Minimum | VirtualMemGranularityInfo::Recommended => out.value(HOOK?),
        }")),
    ("virtual_mem_map", Part("start, size, physical_mem, offset, flags", "()", "
        HOOK?;
        this.access_changed();
        Ok(())")),
    ("virtual_mem_set_access", Part("start, size, flags", "()", "
        HOOK?;
        this.access_changed();
        Ok(())")),
    ("virtual_mem_get_info", Part("start, size", "ur_virtual_mem_access_flags_t", "
        match prop_name {
            VirtualMemInfo::AccessMode => out.value(HOOK?),
        }")),
    // `urProgramLink` is for all devices of the context.
    ("program_link", SharedPart("link_program", LINK_PROGRAM, "Arc<Object<B::Program>>", "
        let all: Vec<_> = this.each_device().collect();
        let (devices, flags) = (Handles::of(&all), ur_exp_program_flags_t(0));
        HOOK")),
    ("program_link_exp", SharedPart("link_program", LINK_PROGRAM, "Arc<Object<B::Program>>", "HOOK")),
    ("bindless_images_unsampled_image_handle_destroy_exp", SharedPart("destroy_image", "device, image, is_sampled: bool", "()", "
        let is_sampled = false;
        HOOK")),
    ("bindless_images_sampled_image_handle_destroy_exp", SharedPart("destroy_image", "device, image, is_sampled: bool", "()", "
        let is_sampled = true;
        HOOK")),
    ("bindless_images_get_image_memory_handle_type_support_exp", SharedPart("has_image", HAS_IMAGE, "bool", "
        let role = ImageRole::of_memory(image_mem_handle_type);
        Ok(HOOK?.into())")),
    ("bindless_images_get_image_sampled_handle_support_exp", SharedPart("has_image", HAS_IMAGE, "bool", "
        let role = ImageRole::of_handle(image_mem_handle_type, false);
        Ok(HOOK?.into())")),
    ("bindless_images_get_image_unsampled_handle_support_exp", SharedPart("has_image", HAS_IMAGE, "bool", "
        let role = ImageRole::of_handle(image_mem_handle_type, true);
        Ok(HOOK?.into())")),
    // The handle 0 stands for a completed event on every backend.
    ("event_create_with_native_handle", Hook("event_create_with_native_handle", "
        match native_event {
            0 => Event::complete(this),
            _ => HOOK,
        }")),
];

const LINK_PROGRAM: &str =
    "devices: Handles<'_, B::Device>, flags: ur_exp_program_flags_t, programs, options";
const HAS_IMAGE: &str = "device, image_format, image_desc, role: ImageRole";

#[rustfmt::skip]
const EVENT: [(&str, How); 6] = [
    ("get_info", Engine("
        Self::info(this, prop_name, out, |marker| {
            let queue = (B::HOOKS.queue_of_adopted)(this.context(), marker)?;
            Ok(queue.map(|queue| queue as Arc<dyn CommandQueue<B>>))
        })")),
    ("get_profiling_info", Engine("this.profiling_info(prop_name, out)")),
    ("wait", Engine("Self::wait_all(event_wait_list)")),
    ("get_native_handle", Hook("event_native_handle", "HOOK")),
    ("ipc_get_event_handle_exp", Hook("event_ipc_handle", "HOOK")),
    ("set_callback", Engine("Self::add_callback(this, exec_status, notify, user_data)")),
];

#[rustfmt::skip]
const COMMAND_BUFFER: [(&str, How); 18] = [
    ("finalize_exp", Engine("this.finalize()")),
    // A kernel keeps no arguments. The loader keeps those of older clients and passes them with the launch.
    ("append_kernel_launch_exp", Engine("
        let launch = PlainLaunch {
            offset: global_work_offset, global: global_work_size, local: local_work_size, args: &[],
        };
        let out = Outputs { sync_point, event, command };
        Self::append_launch(this, kernel, work_dim, launch, kernel_alternatives, sync_point_wait_list, event_wait_list, out)")),
    ("append_kernel_launch_with_args_exp", Engine("
        let launch = PlainLaunch {
            offset: global_work_offset, global: global_work_size, local: local_work_size, args,
        };
        let out = Outputs { sync_point, event, command };
        Self::append_launch(this, kernel, work_dim, launch, kernel_alternatives, sync_point_wait_list, event_wait_list, out)")),
    ("append_usm_memcpy_exp", Command("usm_copy(dst, src, size)")),
    ("append_usm_fill_exp", Command("usm_fill(memory, pattern, size)")),
    ("append_mem_buffer_copy_exp", Command("buffer_copy(src_mem, dst_mem, src_offset, dst_offset, size)")),
    ("append_mem_buffer_write_exp", Command("buffer_write(buffer, offset, size, src)")),
    ("append_mem_buffer_read_exp", Command("buffer_read(buffer, offset, size, dst)")),
    ("append_mem_buffer_copy_rect_exp", Command("buffer_copy_rect(
        (src_mem, RectOffset::new(src_origin, src_row_pitch, src_slice_pitch)),
        (dst_mem, RectOffset::new(dst_origin, dst_row_pitch, dst_slice_pitch)),
        region)")),
    ("append_mem_buffer_write_rect_exp", Command("buffer_write_rect(
        buffer,
        RectOffset::new(buffer_offset, buffer_row_pitch, buffer_slice_pitch),
        RectOffset::new(host_offset, host_row_pitch, host_slice_pitch),
        region,
        src)")),
    ("append_mem_buffer_read_rect_exp", Command("buffer_read_rect(
        buffer,
        RectOffset::new(buffer_offset, buffer_row_pitch, buffer_slice_pitch),
        RectOffset::new(host_offset, host_row_pitch, host_slice_pitch),
        region,
        dst)")),
    ("append_mem_buffer_fill_exp", Command("buffer_fill(buffer, pattern, offset, size)")),
    ("append_usm_prefetch_exp", Command("usm_prefetch(memory, size, flags)")),
    ("append_usm_advise_exp", Command("usm_advise(memory, size, advice)")),
    ("append_native_command_exp", Engine("
        let call = RecordCall { run: native_command, data };
        Self::append_native(this, call, child_command_buffer, sync_point_wait_list, sync_point)")),
    ("update_kernel_launch_exp", Engine("update::launches(this, update_kernel_launch)")),
    ("get_info_exp", Engine("Self::info(this, prop_name, out)")),
    ("get_native_handle_exp", Engine("this.native_handle()")),
];

const RECORDED_COMMAND: [(&str, How); 2] = [
    (
        "update_signal_event_exp",
        Engine("update::signal_event(this)"),
    ),
    (
        "update_wait_events_exp",
        Engine("update::wait_events(this, event_wait_list)"),
    ),
];

const GRAPH: [(&str, How); 7] = [
    ("instantiate_graph_exp", Engine("Self::instantiate(this)")),
    ("destroy_exp", Engine("Self::destroy(this)")),
    ("is_empty_exp", Engine("Ok(this.is_empty().into())")),
    ("get_id_exp", Engine("Ok(this.id())")),
    (
        "set_destruction_callback_exp",
        Engine("this.add_callback(callback, user_data); Ok(())"),
    ),
    ("dump_contents_exp", Engine("this.dump(file_path)")),
    ("get_native_handle_exp", Engine("this.native_handle()")),
];

const EXECUTABLE_GRAPH: [(&str, How); 2] = [
    ("destroy_exp", Engine("Self::destroy(this)")),
    ("get_native_handle_exp", Engine("this.native_handle()")),
];

/// The hooks that have their methods' names, as a macro of an object's trait.
pub(super) struct Hooks {
    /// The trait.
    pub object: &'static str,
    pub text: String,
}

pub(super) fn file(spec: &Spec, plans: &[Plan<'_>]) -> Result<(File, Vec<Hooks>)> {
    // Hooks by the method's name, object by object, and those by another.
    let (mut alike, mut named) = (Vec::new(), String::new());
    let mut answers = String::new();
    for of in &OBJECTS {
        let (mut methods, mut hooks, mut other) = (String::new(), String::new(), String::new());
        let own = || {
            plans
                .iter()
                .filter(|plan| associated(&plan.object) == of.object)
        };
        for plan in own() {
            let Shape::Method { this } = &plan.kind else {
                continue;
            };
            let signature = Signature::new(spec, plan, this.is_some());
            let hook = |name: &str, of: &Signature| {
                let (params, result) = (of.params(), &of.result);
                let function = &plan.function.name;
                let row = wrap(&format!("fn {name}({params}) -> {result};"), 16);
                format!("                /// `{function}`\n{row}\n")
            };
            let listed = of.methods.iter().find(|(name, _)| *name == plan.method);
            let body = match listed {
                Some((_, Engine(body))) => (*body).to_owned(),
                Some((_, Command(made))) => signature.command(of.object, made),
                Some((_, Hook(name, body))) => {
                    other += &hook(name, &signature);
                    body.replace("HOOK", &signature.forwarded(name))
                }
                Some((name, Part(params, result, body)))
                | Some((_, SharedPart(name, params, result, body))) => {
                    let own = signature.part(params, result)?;
                    if !other.contains(&format!("fn {name}(")) {
                        other += &hook(name, &own);
                    }
                    body.replace("HOOK", &own.forwarded(name))
                }
                None if of.rest_is_hooks => {
                    hooks += &hook(&plan.method, &signature);
                    continue;
                }
                None => continue,
            };
            let inline = match HOT.contains(&plan.method.as_str()) {
                true => "#[inline(always)]",
                false => "",
            };
            let head = signature.of_self(&plan.method);
            let _ = writeln!(methods, "{inline} {head} {{ {body} }}");
        }
        for (name, _) in of.methods {
            ensure!(
                own().any(|plan| plan.method == *name),
                "{} has no method {name}",
                of.object
            );
        }
        if of.rest_is_hooks {
            let list = rust::snake(of.object) + "_hooks";
            let _ = writeln!(methods, "{list}!(forwarded;);");
            let object = of.object;
            let own = group(object, &hooks);
            let text = format!(
                "\n/// The methods that only a backend can answer, whatever runs its queues: `TRAIT {{ METHOD ... }}`, after what
/// other lists gave, for the next list or the macro at the end.
{}pub(crate) use {list};\n",
                list_macro(&list, &own)
            );
            alike.push(Hooks { object, text });
        }
        if !other.is_empty() {
            named += &group(of.object, &other);
        }
        let name = match of.object {
            "CommandBufferCommand" => "RecordedCommand",
            object => object,
        };
        let _ = writeln!(
            answers,
            "impl<B: Runtime> hal::{}<B> for {name}<B> {{ {methods} }}",
            of.object
        );
    }
    let answers = syn::parse_file(&answers).context("the engine's answers do not parse")?;
    let file = File::new(
        "src/stream/api/generated.rs",
        format!(
            "// Generated by `cargo xtask gen` from spec/. Do not edit.\n{HEAD}
/// Hooks that differ from their methods in the name, the parameters or the result.
{}
pub(crate) use named_hooks;\n\n{}",
            list_macro("named_hooks", &named),
            prettyplease::unparse(&answers)
        ),
    );
    Ok((file, alike))
}

/// Finds the commas between parameters, which are those outside of a type's arguments.
fn outer_comma() -> impl FnMut(char) -> bool {
    let mut depth = 0;
    move |letter| {
        depth += i32::from(letter == '<') - i32::from(letter == '>');
        letter == ',' && depth == 0
    }
}

/// A list's rows of one object.
fn group(object: &str, rows: &str) -> String {
    format!("            {object} {{\n{rows}            }}\n")
}

/// The macro of a list.
fn list_macro(name: &str, groups: &str) -> String {
    format!(
        "macro_rules! {name} {{
    ($next:ident $($then:ident)*; $($before:tt)*) => {{
        $next! {{
            $($then)*;
            $($before)*\n{groups}        }}
    }};
}}\n"
    )
}

const HEAD: &str = "\
//! The `hal` traits of the engine's objects, from the list in scripts/src/generate/hal/engine.rs.
//!
//! The first part lists hooks: methods of contexts, queues and events that only a backend can answer. Others
//! are beside their trait (`context_hooks`). Macros expand the lists to the table `Hooks` and to
//! the calls through it.

#![allow(unused_variables, clippy::too_many_arguments)]

use crate::abi::*;
use crate::hal::{
    self, CommandBufferInfo, ContextInfo, EventInfo, ImageInfo, ProfilingInfo, QueueInfo, Unwrapped,
    UsmAllocInfo, VirtualMemGranularityInfo, VirtualMemInfo, context_hooks,
};
use crate::hal::answers::ImageRole;
use crate::object::{Handles, InfoOut, Object, Out, OutHandle, Result, ensure};
use crate::stream::api::hooks::forwarded;
use crate::stream::event::CommandQueue;
use crate::stream::queue::native_command::NativeCall;
use crate::stream::queue::{alloc, capture, host_task, mapping, replay, reusable};
use crate::stream::recording::command::RectOffset;
use crate::stream::recording::command_buffer::Outputs;
use crate::stream::recording::native_record::RecordCall;
use crate::stream::recording::update;
use crate::stream::{
    CommandBuffer, Context, Event, ExecutableGraph, Graph, ImageCopyEnd, Kind, PlainLaunch, Queue,
    QueueOptions, RecordedCommand, Runtime, UsmPool,
};
use std::ffi::{CStr, c_void};
use std::sync::Arc;
";

/// The methods that only a backend answers, as trait and method, each with the hook's name.
pub fn hooks(entries: &[super::Entry]) -> Vec<((String, String), String)> {
    let methods = entries.iter().filter_map(|entry| entry.method.clone());
    let hook = |method: (String, String)| {
        let of = OBJECTS.iter().find(|of| of.object == method.0)?;
        let listed = of.methods.iter().find(|(name, _)| *name == method.1);
        match listed {
            Some((_, Hook(name, "HOOK") | SharedPart(name, ..)) | (name, Part(..))) => {
                Some((method, (*name).to_owned()))
            }
            None if of.rest_is_hooks => Some((method.clone(), method.1)),
            _ => None,
        }
    };
    methods.filter_map(hook).collect()
}

/// A trait method's parameters and result.
struct Signature {
    has_this: bool,
    params: Vec<(String, String)>,
    result: String,
}

impl Signature {
    fn new(spec: &Spec, plan: &Plan<'_>, has_this: bool) -> Self {
        let params = plan.args.iter();
        Self {
            has_this,
            params: params
                .map(|arg| (arg.name.clone(), method_ty(spec, arg)))
                .collect(),
            result: plan.return_type(),
        }
    }

    /// The signature of a hook with these parameters: the method's, but for those with a type.
    fn part(&self, names: &str, result: &str) -> Result<Self> {
        let find = |name: &str| {
            if let Some((name, ty)) = name.split_once(": ") {
                return Ok((name.trim().to_owned(), ty.to_owned()));
            }
            let found = self.params.iter().find(|(own, _)| own == name.trim());
            found
                .cloned()
                .with_context(|| format!("no parameter {name}"))
        };
        Ok(Self {
            has_this: self.has_this,
            params: names
                .split(outer_comma())
                .map(find)
                .collect::<Result<_>>()?,
            result: result.to_owned(),
        })
    }

    fn params(&self) -> String {
        let params = self.params.iter().map(|(name, ty)| format!("{name}: {ty}"));
        params.collect::<Vec<_>>().join(", ")
    }

    /// The signature of a method with this name.
    fn of_self(&self, name: &str) -> String {
        let this = if self.has_this {
            "this: &Object<Self>, "
        } else {
            ""
        };
        format!(
            "fn {name}({this}{}) -> Result<{}>",
            self.params(),
            self.result
        )
    }

    /// The call of a hook with the method's arguments.
    fn forwarded(&self, hook: &str) -> String {
        let names = self.params.iter().map(|(name, _)| name.as_str());
        let args: Vec<_> = std::iter::once("this").chain(names).collect();
        format!("(B::HOOKS.{hook})({})", args.join(", "))
    }

    /// The body that makes a command and submits or appends it.
    fn command(&self, object: &str, made: &str) -> String {
        let has = |name: &str| self.params.iter().any(|(other, _)| other == name);
        let waits = if has("event_wait_list") {
            "event_wait_list"
        } else {
            "Handles::EMPTY"
        };
        let made = format!("let made = this.target().{made}?;");
        if object == "CommandBuffer" {
            return format!(
                "{made} let out = Outputs {{ sync_point, event, command }};
                Self::append(this, made, Handles::EMPTY, sync_point_wait_list, {waits}, out)"
            );
        }
        let blocking = self
            .params
            .iter()
            .find(|(name, _)| name.starts_with("blocking"));
        let blocking = blocking.map_or("false", |(name, _)| name);
        format!("{made} Self::submit_command(this, made, {waits}, event, {blocking})")
    }
}

//! Answers that store properties of new objects, and those that destroy objects other than by
//! release.

use std::ffi::{CStr, c_void};

use ur::abi::*;
use ur::object::{Kind, Result};

use crate::make;
use crate::objects::{self, Origin};

/// Creates an object with the values of some of its properties, and writes its handle.
///
/// # Safety
/// The output is null or writable.
unsafe fn create_with<T>(
    to: *mut *mut T,
    kind: Kind,
    origin: Origin,
    values: &[(&'static str, &[u8])],
) {
    if to.is_null() {
        return;
    }
    let object = objects::create(kind, origin);
    for (property, value) in values {
        object.store(property, value);
    }
    // SAFETY: the caller guarantees that the output is null or writable.
    unsafe { make::reference(to, &object) }
}

pub fn queue_create(p: &ur_queue_create_params_t) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        let flags = (*p.ppProperties)
            .as_ref()
            .map_or(0, |properties| properties.flags.0);
        let origin = Origin::default()
            .with(*p.phContext, Kind::Context)
            .with(*p.phDevice, Kind::Device);
        let values: [(_, &[u8]); 1] = [("UR_QUEUE_INFO_FLAGS", &flags.to_ne_bytes())];
        create_with(*p.pphQueue, Kind::Queue, origin, &values);
    }
    Ok(())
}

pub fn mem_buffer_create(p: &ur_mem_buffer_create_params_t) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        let origin = Origin::default().with(*p.phContext, Kind::Context);
        let values: [(_, &[u8]); 1] = [("UR_MEM_INFO_SIZE", &(*p.psize).to_ne_bytes())];
        create_with(*p.pphBuffer, Kind::Mem, origin, &values);
    }
    Ok(())
}

pub fn physical_mem_create(p: &ur_physical_mem_create_params_t) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        let origin = Origin::default()
            .with(*p.phContext, Kind::Context)
            .with(*p.phDevice, Kind::Device);
        let values: [(_, &[u8]); 1] = [("UR_PHYSICAL_MEM_INFO_SIZE", &(*p.psize).to_ne_bytes())];
        create_with(*p.pphPhysicalMem, Kind::PhysicalMem, origin, &values);
    }
    Ok(())
}

pub fn sampler_create(p: &ur_sampler_create_params_t) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        let desc = (*p.ppDesc).as_ref().copied().unwrap_or_default();
        let origin = Origin::default().with(*p.phContext, Kind::Context);
        let values: [(_, &[u8]); 3] = [
            (
                "UR_SAMPLER_INFO_NORMALIZED_COORDS",
                &[u8::from(desc.normalizedCoords != 0)],
            ),
            (
                "UR_SAMPLER_INFO_ADDRESSING_MODE",
                &desc.addressingMode.0.to_ne_bytes(),
            ),
            (
                "UR_SAMPLER_INFO_FILTER_MODE",
                &desc.filterMode.0.to_ne_bytes(),
            ),
        ];
        create_with(*p.pphSampler, Kind::Sampler, origin, &values);
    }
    Ok(())
}

pub fn kernel_create(p: &ur_kernel_create_params_t) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        let name = *p.ppKernelName;
        let name = if name.is_null() {
            c""
        } else {
            CStr::from_ptr(name)
        };
        let origin = Origin::default().with(*p.phProgram, Kind::Program);
        let values: [(_, &[u8]); 1] = [("UR_KERNEL_INFO_FUNCTION_NAME", name.to_bytes_with_nul())];
        create_with(*p.pphKernel, Kind::Kernel, origin, &values);
    }
    Ok(())
}

pub fn context_set_extended_deleter(p: &ur_context_set_extended_deleter_params_t) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    let (context, deleter, user_data) = unsafe { (*p.phContext, *p.ppfnDeleter, *p.ppUserData) };
    let context = objects::known(context, Kind::Context)?;
    let user_data = user_data.expose_provenance();
    if let Some(deleter) = deleter {
        // SAFETY: the caller set the deleter to be called when the context ends.
        context
            .on_end(move || unsafe { deleter(std::ptr::with_exposed_provenance_mut(user_data)) });
    }
    Ok(())
}

pub fn graph_set_destruction_callback_exp(
    p: &ur_graph_set_destruction_callback_exp_params_t,
) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    let (graph, callback, user_data) = unsafe { (*p.phGraph, *p.ppfnCallback, *p.ppUserData) };
    let graph = objects::known(graph, Kind::Graph)?;
    let user_data = user_data.expose_provenance();
    if let Some(callback) = callback {
        // SAFETY: the caller set the callback to be called when the graph ends.
        graph.on_end(move || unsafe { callback(std::ptr::with_exposed_provenance_mut(user_data)) });
    }
    Ok(())
}

pub fn graph_get_id_exp(p: &ur_graph_get_id_exp_params_t) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    let graph = objects::known(unsafe { *p.phGraph }, Kind::Graph)?;
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe { make::value(*p.ppGraphId, graph.id) };
    Ok(())
}

pub fn graph_destroy_exp(p: &ur_graph_destroy_exp_params_t) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    objects::release(unsafe { *p.phGraph }, Kind::Graph)
}

pub fn graph_executable_graph_destroy_exp(
    p: &ur_graph_executable_graph_destroy_exp_params_t,
) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    objects::release(unsafe { *p.phExecutableGraph }, Kind::ExecutableGraph)
}

pub fn usm_pool_destroy_exp(p: &ur_usm_pool_destroy_exp_params_t) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    objects::release(unsafe { *p.phPool }, Kind::UsmPool)
}

/// The function behind every function pointer; does nothing.
unsafe extern "C" fn nothing() {}

pub fn program_get_function_pointer(p: &ur_program_get_function_pointer_params_t) -> Result<()> {
    let function: unsafe extern "C" fn() = nothing;
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe { make::value(*p.pppFunctionPointer, function as *mut c_void) };
    Ok(())
}

/// All global variables share this memory.
pub fn program_get_global_variable_pointer(
    p: &ur_program_get_global_variable_pointer_params_t,
) -> Result<()> {
    static VARIABLE: [std::sync::atomic::AtomicU64; 8] =
        [const { std::sync::atomic::AtomicU64::new(0) }; 8];
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        make::value(*p.ppGlobalVariableSizeRet, size_of_val(&VARIABLE));
        let memory = VARIABLE[0].as_ptr().cast::<c_void>();
        make::value(*p.pppGlobalVariablePointerRet, memory);
    }
    Ok(())
}

//! Objects that remember what they were made with, and what ends in another way than by a release.

use std::ffi::{CStr, c_void};

use ur::abi::*;
use ur::object::{Kind, Result};

use crate::make;
use crate::objects::{self, Origin};

/// A new object with the values of some of its properties.
///
/// # Safety
/// The output is null or writable.
unsafe fn with_facts<T>(
    to: *mut *mut T,
    kind: Kind,
    origin: Origin,
    facts: &[(&'static str, &[u8])],
) {
    if to.is_null() {
        return;
    }
    let object = objects::create(kind, origin);
    for (property, value) in facts {
        object.set_fact(property, value);
    }
    // SAFETY: the caller's promise.
    unsafe { make::reference(to, &object) }
}

pub fn queue_create(p: &ur_queue_create_params_t) -> Result<()> {
    // SAFETY: see the module.
    unsafe {
        let flags = (*p.ppProperties).as_ref().map_or(0, |given| given.flags.0);
        let origin = Origin::default()
            .with(*p.phContext, Kind::Context)
            .with(*p.phDevice, Kind::Device);
        let facts: [(_, &[u8]); 1] = [("UR_QUEUE_INFO_FLAGS", &flags.to_ne_bytes())];
        with_facts(*p.pphQueue, Kind::Queue, origin, &facts);
    }
    Ok(())
}

pub fn mem_buffer_create(p: &ur_mem_buffer_create_params_t) -> Result<()> {
    // SAFETY: see the module.
    unsafe {
        let origin = Origin::default().with(*p.phContext, Kind::Context);
        let facts: [(_, &[u8]); 1] = [("UR_MEM_INFO_SIZE", &(*p.psize).to_ne_bytes())];
        with_facts(*p.pphBuffer, Kind::Mem, origin, &facts);
    }
    Ok(())
}

pub fn physical_mem_create(p: &ur_physical_mem_create_params_t) -> Result<()> {
    // SAFETY: see the module.
    unsafe {
        let origin = Origin::default()
            .with(*p.phContext, Kind::Context)
            .with(*p.phDevice, Kind::Device);
        let facts: [(_, &[u8]); 1] = [("UR_PHYSICAL_MEM_INFO_SIZE", &(*p.psize).to_ne_bytes())];
        with_facts(*p.pphPhysicalMem, Kind::PhysicalMem, origin, &facts);
    }
    Ok(())
}

pub fn sampler_create(p: &ur_sampler_create_params_t) -> Result<()> {
    // SAFETY: see the module.
    unsafe {
        let desc = (*p.ppDesc).as_ref().copied().unwrap_or_default();
        let origin = Origin::default().with(*p.phContext, Kind::Context);
        let facts: [(_, &[u8]); 3] = [
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
        with_facts(*p.pphSampler, Kind::Sampler, origin, &facts);
    }
    Ok(())
}

pub fn kernel_create(p: &ur_kernel_create_params_t) -> Result<()> {
    // SAFETY: see the module.
    unsafe {
        let name = *p.ppKernelName;
        let name = if name.is_null() {
            c""
        } else {
            CStr::from_ptr(name)
        };
        let origin = Origin::default().with(*p.phProgram, Kind::Program);
        let facts: [(_, &[u8]); 1] = [("UR_KERNEL_INFO_FUNCTION_NAME", name.to_bytes_with_nul())];
        with_facts(*p.pphKernel, Kind::Kernel, origin, &facts);
    }
    Ok(())
}

pub fn context_set_extended_deleter(p: &ur_context_set_extended_deleter_params_t) -> Result<()> {
    // SAFETY: the arguments are there.
    let (context, deleter, user_data) = unsafe { (*p.phContext, *p.ppfnDeleter, *p.ppUserData) };
    let context = objects::known(context, Kind::Context)?;
    let user_data = user_data.expose_provenance();
    if let Some(deleter) = deleter {
        // SAFETY: whoever set it promised that it may be called when the context ends.
        context
            .on_end(move || unsafe { deleter(std::ptr::with_exposed_provenance_mut(user_data)) });
    }
    Ok(())
}

pub fn graph_set_destruction_callback_exp(
    p: &ur_graph_set_destruction_callback_exp_params_t,
) -> Result<()> {
    // SAFETY: the arguments are there.
    let (graph, callback, user_data) = unsafe { (*p.phGraph, *p.ppfnCallback, *p.ppUserData) };
    let graph = objects::known(graph, Kind::Graph)?;
    let user_data = user_data.expose_provenance();
    if let Some(callback) = callback {
        // SAFETY: whoever set it promised that it may be called when the graph ends.
        graph.on_end(move || unsafe { callback(std::ptr::with_exposed_provenance_mut(user_data)) });
    }
    Ok(())
}

pub fn graph_get_id_exp(p: &ur_graph_get_id_exp_params_t) -> Result<()> {
    // SAFETY: the argument is there.
    let graph = objects::known(unsafe { *p.phGraph }, Kind::Graph)?;
    // SAFETY: see the module.
    unsafe { make::value(*p.ppGraphId, graph.id) };
    Ok(())
}

pub fn graph_destroy_exp(p: &ur_graph_destroy_exp_params_t) -> Result<()> {
    // SAFETY: the argument is there.
    objects::release(unsafe { *p.phGraph }, Kind::Graph)
}

pub fn graph_executable_graph_destroy_exp(
    p: &ur_graph_executable_graph_destroy_exp_params_t,
) -> Result<()> {
    // SAFETY: the argument is there.
    objects::release(unsafe { *p.phExecutableGraph }, Kind::ExecutableGraph)
}

pub fn usm_pool_destroy_exp(p: &ur_usm_pool_destroy_exp_params_t) -> Result<()> {
    // SAFETY: the argument is there.
    objects::release(unsafe { *p.phPool }, Kind::UsmPool)
}

/// A function that does nothing.
unsafe extern "C" fn nothing() {}

pub fn program_get_function_pointer(p: &ur_program_get_function_pointer_params_t) -> Result<()> {
    let function: unsafe extern "C" fn() = nothing;
    // SAFETY: see the module.
    unsafe { make::value(*p.pppFunctionPointer, function as *mut c_void) };
    Ok(())
}

/// Memory that all global variables share.
pub fn program_get_global_variable_pointer(
    p: &ur_program_get_global_variable_pointer_params_t,
) -> Result<()> {
    static VARIABLE: [std::sync::atomic::AtomicU64; 8] =
        [const { std::sync::atomic::AtomicU64::new(0) }; 8];
    // SAFETY: see the module.
    unsafe {
        make::value(*p.ppGlobalVariableSizeRet, size_of_val(&VARIABLE));
        let memory = VARIABLE[0].as_ptr().cast::<c_void>();
        make::value(*p.pppGlobalVariablePointerRet, memory);
    }
    Ok(())
}

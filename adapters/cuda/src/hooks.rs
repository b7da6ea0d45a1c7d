//! The hooks of the engine: who answers what. `spec/` explains the functions.

use std::ptr::with_exposed_provenance_mut as pointer;

use ur::abi::*;
use ur::ipc::blob::Subject;
use ur::object::Object;
use ur::stream::{Context, Hooked, Hooks};

use crate::Cuda;
use crate::bindless::{self, ExternalMem, ExternalSemaphore};
use crate::driver::{ContextData, first};
use crate::interop;
use crate::mem::{Mem, bring};
use crate::program::Program;
use crate::sampler::Sampler;
use crate::sharing;
use crate::virtual_mem::PhysicalMem;

fn state(context: &Object<Context<Cuda>>) -> &ContextData {
    context.domain().state()
}

impl Hooked for Cuda {
    const HOOKS: Hooks<Self> = Hooks {
        mem_buffer_create: Mem::create,
        mem_buffer_create_with_native_handle: Mem::from_native,
        mem_image_create: Mem::create_image,
        mem_image_create_with_native_handle: Mem::image_from_native,
        mem_image_read: |this, image, origin, region, row, slice, dst| {
            image.transfer_image(this.device(), (origin, region), (row, slice), dst, false)
        },
        mem_image_write: |this, image, origin, region, row, slice, src| {
            image.transfer_image(this.device(), (origin, region), (row, slice), src, true)
        },
        mem_image_copy: Mem::copy_image,
        sampler_create: Sampler::create,

        program_create_with_il: Program::from_il,
        program_create_with_binary: Program::from_binaries,
        program_create_with_native_handle: Program::from_native,
        program_build: |this, program, options| {
            program.build_all(this, UR_PROGRAM_BINARY_TYPE_EXECUTABLE, options)
        },
        program_compile: |this, program, options| {
            program.build_all(this, UR_PROGRAM_BINARY_TYPE_COMPILED_OBJECT, options)
        },
        link_program: Program::link,
        kernel_create_with_native_handle: Program::kernel_from_native,

        virtual_mem_granularity_get_info: |this, device, _| state(this).page_bytes(device),
        virtual_mem_reserve: |this, start, size| {
            state(this).reserve(start.addr(), size).map(pointer)
        },
        virtual_mem_free: |this, start, size| state(this).space.free(start.addr(), size),
        virtual_mem_map: |this, start, size, memory, offset, flags| {
            let ContextData { space, members, .. } = state(this);
            space.map(members, (start.addr(), size), memory, offset, flags)
        },
        virtual_mem_unmap: |this, start, size| state(this).space.unmap(start.addr(), size),
        virtual_mem_set_access: |this, start, size, flags| {
            let ContextData { space, members, .. } = state(this);
            space.set_access(members, (start.addr(), size), flags)
        },
        virtual_mem_get_info: |this, start, size| state(this).space.access(start.addr(), size),
        physical_mem_create: PhysicalMem::create,

        ipc_get_mem_handle_exp: sharing::get_memory,
        ipc_put_mem_handle_exp: |this, data| sharing::put(this, data, Subject::Memory),
        ipc_open_mem_handle_exp: sharing::open_memory,
        ipc_close_mem_handle_exp: sharing::close_memory,
        ipc_get_phys_mem_handle_exp: sharing::get_physical,
        ipc_put_phys_mem_handle_exp: |this, data| sharing::put(this, data, Subject::Physical),
        ipc_open_phys_mem_handle_exp: sharing::open_physical,
        ipc_close_phys_mem_handle_exp: sharing::close_physical,
        event_ipc_handle: sharing::get_event,
        ipc_put_event_handle_exp: |this, data| sharing::put(this, data, Subject::Event),
        ipc_open_event_handle_exp: sharing::open_event,
        memory_export_alloc_exportable_memory_exp: sharing::alloc_exportable,
        memory_export_free_exportable_memory_exp: sharing::free_exportable,
        memory_export_export_memory_handle_exp: sharing::export_exportable,

        usm_pitched_alloc_exp: bindless::alloc_pitched,
        bindless_images_image_allocate_exp: bindless::allocate,
        bindless_images_image_free_exp: bindless::free,
        bindless_images_image_get_info_exp: bindless::info,
        bindless_images_image_copy_exp: bindless::copy,
        bindless_images_mipmap_get_level_exp: bindless::level,
        bindless_images_mipmap_free_exp: bindless::free_mipmap,
        bindless_images_unsampled_image_create_exp: bindless::create_unsampled,
        bindless_images_sampled_image_create_exp: bindless::create_sampled,
        destroy_image: bindless::destroy_image,
        has_image: bindless::has_image,
        bindless_images_import_external_memory_exp: ExternalMem::import,
        bindless_images_release_external_memory_exp: ExternalMem::end,
        bindless_images_map_external_array_exp: bindless::map_array,
        bindless_images_map_external_linear_memory_exp: bindless::map_linear,
        bindless_images_free_mapped_linear_memory_exp: bindless::free_linear,
        bindless_images_import_external_semaphore_exp: ExternalSemaphore::import,
        bindless_images_release_external_semaphore_exp: ExternalSemaphore::end,
        bindless_images_wait_external_semaphore_exp: bindless::wait,
        bindless_images_signal_external_semaphore_exp: bindless::signal,

        context_native_handle: |this| Ok(first(this.domain())?.context().expose_provenance()),
        queue_create_with_native_handle: interop::adopt_queue,
        queue_native_handle: interop::queue_handle,
        event_create_with_native_handle: interop::adopt_event,
        event_native_handle: interop::event_handle,
        native_command_exp: bring,

        ..Hooks::NONE
    };
}

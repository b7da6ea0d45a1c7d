//! The hooks of the engine: who answers what. `spec/` explains the functions.

use ur::stream::{Hooked, Hooks};

use crate::OpenCl;
use crate::interop;
use crate::kernel::Kernel;
use crate::mem::{Mem, bring, copy_image};
use crate::pipe;
use crate::program::Program;
use crate::sampler::Sampler;

impl Hooked for OpenCl {
    const HOOKS: Hooks<Self> = Hooks {
        mem_buffer_create: Mem::create,
        mem_buffer_create_with_native_handle: Mem::from_native,
        mem_image_create: Mem::create_image,
        mem_image_create_with_native_handle: Mem::image_from_native,
        mem_image_read: Mem::read_image,
        mem_image_write: Mem::write_image,
        mem_image_copy: copy_image,
        sampler_create: Sampler::create,
        sampler_create_with_native_handle: Sampler::from_native,

        program_create_with_il: Program::from_il,
        program_create_with_binary: Program::from_binaries,
        program_create_with_native_handle: Program::from_native,
        program_build: Program::build_all,
        program_compile: Program::compile_all,
        link_program: Program::link,
        kernel_create_with_native_handle: Kernel::from_native,
        read_host_pipe: pipe::read,
        write_host_pipe: pipe::write,

        context_native_handle: |this| Ok(this.domain().state().context.raw().expose_provenance()),
        queue_create_with_native_handle: interop::adopt_queue,
        queue_native_handle: interop::queue_handle,
        queue_of_adopted: interop::queue_of,
        event_create_with_native_handle: interop::adopt_event,
        event_native_handle: interop::event_handle,
        native_command_exp: bring,

        ..Hooks::NONE
    };
}

//! The hooks of the engine: who answers what. `spec/` explains the functions.

use std::ptr::with_exposed_provenance_mut as pointer;

use ur::abi::*;
use ur::object::Object;
use ur::stream::{Context, Hooked, Hooks};

use crate::Cpu;
use crate::mem::Mem;
use crate::program::Program;
use crate::virtual_mem::{AddressSpace, PhysicalMem, granularity};

fn space(context: &Object<Context<Cpu>>) -> &AddressSpace {
    context.domain().state()
}

impl Hooked for Cpu {
    const HOOKS: Hooks<Self> = Hooks {
        mem_buffer_create: Mem::create,

        program_create_with_il: Program::from_il,
        program_create_with_binary: Program::from_binaries,
        program_build: |this, program, options| {
            program.build_all(this, UR_PROGRAM_BINARY_TYPE_EXECUTABLE, options)
        },
        program_compile: |this, program, options| {
            program.build_all(this, UR_PROGRAM_BINARY_TYPE_COMPILED_OBJECT, options)
        },
        link_program: Program::link,
        program_dynamic_link_exp: Program::link_dynamically,

        virtual_mem_granularity_get_info: |_, _, _| Ok(granularity()),
        virtual_mem_reserve: |this, start, size| {
            space(this).reserve(start.addr(), size).map(pointer)
        },
        virtual_mem_free: |this, start, size| space(this).free(start.addr(), size),
        virtual_mem_map: |this, start, size, memory, offset, flags| {
            space(this).map(start.addr(), size, memory, offset, flags)
        },
        virtual_mem_unmap: |this, start, size| space(this).unmap(start.addr(), size),
        virtual_mem_set_access: |this, start, size, flags| {
            space(this).set_access(start.addr(), size, flags)
        },
        virtual_mem_get_info: |this, start, size| space(this).access(start.addr(), size),
        physical_mem_create: PhysicalMem::create,

        ..Hooks::NONE
    };
}

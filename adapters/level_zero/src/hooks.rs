//! Hooks of the engine: programs, buffers, address ranges and native handles. Each hook calls the module that owns its subject.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use ur::abi::*;
use ur::hal::{Unwrapped, VirtualMemGranularityInfo, VirtualMemInfo};
use ur::object::{Handles, InfoOut, Object, OutHandle, Result, ensure};
use ur::stream::{Context, Event, Hooks, NativeCall, Queue};

use crate::LevelZero;
use crate::device::Device;
use crate::interop;
use crate::kernel::Kernel;
use crate::mem::Mem;
use crate::program::Program;
use crate::virtual_mem::{AddressSpace, PhysicalMem, page_bytes};

type OfContext = Object<Context<LevelZero>>;
type OfQueue = Object<Queue<LevelZero>>;

const NO_FLAGS: ur_exp_program_flags_t = ur_exp_program_flags_t(0);

/// The context's address ranges. `UNSUPPORTED_FEATURE` if a device of it has none.
fn space(this: &OfContext) -> Result<&AddressSpace> {
    let able = all(this).all(|device| device.has_virtual_memory());
    ensure(able, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    Ok(&this.domain().state().space)
}

/// A page of the context that suits all of its devices, for blocks of this size.
fn page(this: &OfContext, bytes: usize) -> Result<usize> {
    let native = &this.domain().state().native;
    let mut most = 1;
    for device in this.devices() {
        most = most.max(page_bytes(native, device, bytes)?);
    }
    Ok(most)
}

fn all(context: &OfContext) -> impl Iterator<Item = &Object<Device>> {
    context.devices().iter().map(|device| &**device)
}

impl Hooks<LevelZero> for LevelZero {
    fn mem_buffer_create(
        this: &OfContext,
        flags: ur_mem_flags_t,
        size: usize,
        properties: Option<&ur_buffer_properties_t>,
    ) -> Result<Arc<Object<Mem>>> {
        Mem::create(this, flags, size, properties)
    }

    fn mem_buffer_create_with_native_handle(
        this: &OfContext,
        native: ur_native_handle_t,
        properties: Option<&ur_mem_native_properties_t>,
    ) -> Result<Arc<Object<Mem>>> {
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        Mem::from_native(this, native, owned)
    }

    fn program_create_with_il(
        this: &OfContext,
        il: &[u8],
        properties: Option<&ur_program_properties_t>,
    ) -> Result<Arc<Object<Program>>> {
        Program::from_il(this, il, properties)
    }

    fn program_create_with_binary(
        this: &OfContext,
        devices: Handles<'_, Device>,
        lengths: &[usize],
        binaries: &[*const u8],
        properties: Option<&ur_program_properties_t>,
    ) -> Result<Arc<Object<Program>>> {
        Program::from_binaries(this, devices, lengths, binaries, properties)
    }

    fn program_create_with_native_handle(
        this: &OfContext,
        native: ur_native_handle_t,
        properties: Option<&ur_program_native_properties_t>,
    ) -> Result<Arc<Object<Program>>> {
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        Program::from_native(this, native, owned)
    }

    fn kernel_create_with_native_handle(
        this: &OfContext,
        native: ur_native_handle_t,
        program: Option<&Object<Program>>,
        properties: Option<&ur_kernel_native_properties_t>,
    ) -> Result<Arc<Object<Kernel>>> {
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        Kernel::from_native(this, native, program, owned)
    }

    fn program_build(
        this: &OfContext,
        program: &Object<Program>,
        options: Option<&CStr>,
    ) -> Result<()> {
        program.check_context(this)?;
        program.build(all(this), options, NO_FLAGS)
    }

    fn program_compile(
        this: &OfContext,
        program: &Object<Program>,
        options: Option<&CStr>,
    ) -> Result<()> {
        program.check_context(this)?;
        program.compile(all(this), options)
    }

    fn program_link(
        this: &OfContext,
        programs: Handles<'_, Program>,
        options: Option<&CStr>,
    ) -> Result<Arc<Object<Program>>> {
        Program::link(this, all(this), programs, options, NO_FLAGS)
    }

    fn program_link_exp(
        this: &OfContext,
        devices: Handles<'_, Device>,
        flags: ur_exp_program_flags_t,
        programs: Handles<'_, Program>,
        options: Option<&CStr>,
    ) -> Result<Arc<Object<Program>>> {
        Program::link(this, devices.iter(), programs, options, flags)
    }

    fn program_dynamic_link_exp(this: &OfContext, programs: Handles<'_, Program>) -> Result<()> {
        Program::link_dynamically(this, programs)
    }

    fn virtual_mem_granularity_get_info(
        this: &OfContext,
        device: Option<&Object<Device>>,
        size: usize,
        what: VirtualMemGranularityInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        space(this)?;
        let bytes = match device {
            Some(device) => page_bytes(&this.domain().state().native, device, size)?,
            None => page(this, size)?,
        };
        match what {
            VirtualMemGranularityInfo::Minimum | VirtualMemGranularityInfo::Recommended => {
                out.value(bytes)
            }
        }
    }

    fn virtual_mem_reserve(
        this: &OfContext,
        start: *const c_void,
        size: usize,
    ) -> Result<*mut c_void> {
        let space = space(this)?;
        let page = page(this, size)?;
        let native = &this.domain().state().native;
        let reserved = space.reserve(native, page, start.addr(), size)?;
        Ok(std::ptr::with_exposed_provenance_mut(reserved))
    }

    fn virtual_mem_free(this: &OfContext, start: *const c_void, size: usize) -> Result<()> {
        space(this)?.free(start.addr(), size)
    }

    fn virtual_mem_map(
        this: &OfContext,
        start: *const c_void,
        size: usize,
        memory: &Object<PhysicalMem>,
        offset: usize,
        flags: ur_virtual_mem_access_flags_t,
    ) -> Result<()> {
        let space = space(this)?;
        space.map((start.addr(), size), memory, offset, flags)?;
        this.access_changed();
        Ok(())
    }

    fn virtual_mem_unmap(this: &OfContext, start: *const c_void, size: usize) -> Result<()> {
        space(this)?.unmap(start.addr(), size)
    }

    fn virtual_mem_set_access(
        this: &OfContext,
        start: *const c_void,
        size: usize,
        flags: ur_virtual_mem_access_flags_t,
    ) -> Result<()> {
        let space = space(this)?;
        space.set_access((start.addr(), size), flags)?;
        this.access_changed();
        Ok(())
    }

    fn virtual_mem_get_info(
        this: &OfContext,
        start: *const c_void,
        size: usize,
        what: VirtualMemInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        match what {
            VirtualMemInfo::AccessMode => {
                let space = space(this)?;
                out.value(space.access(start.addr(), size)?)
            }
        }
    }

    fn physical_mem_create(
        this: &OfContext,
        device: &Object<Device>,
        size: usize,
        properties: Option<&ur_physical_mem_properties_t>,
    ) -> Result<Arc<Object<PhysicalMem>>> {
        space(this)?;
        PhysicalMem::create(this, device, size, properties)
    }

    fn native_command_exp(
        this: &OfQueue,
        run: <ur_exp_enqueue_native_command_function_t as Unwrapped>::Fn,
        data: *mut c_void,
        mems: Handles<'_, Mem>,
        _: Option<&ur_exp_enqueue_native_command_properties_t>,
        waits: Handles<'_, Event<LevelZero>>,
        event: OutHandle<'_, Event<LevelZero>>,
    ) -> Result<()> {
        // The function may read and write all of them.
        for mem in mems.iter() {
            mem.for_kernel(UR_MEM_FLAG_READ_WRITE)?;
        }
        NativeCall { run, data }.enqueue(this, None, waits, event)
    }

    fn queue_create_with_native_handle(
        this: &OfContext,
        native: ur_native_handle_t,
        device: Option<&Object<Device>>,
        properties: Option<&ur_queue_native_properties_t>,
    ) -> Result<Arc<OfQueue>> {
        interop::adopt_queue(this, native, device, properties)
    }

    fn queue_native_handle(
        this: &OfQueue,
        desc: Option<&ur_queue_native_desc_t>,
    ) -> Result<ur_native_handle_t> {
        interop::queue_handle(this, desc)
    }

    fn event_create_with_native_handle(
        this: &OfContext,
        native: ur_native_handle_t,
        properties: Option<&ur_event_native_properties_t>,
    ) -> Result<Arc<Object<Event<LevelZero>>>> {
        interop::adopt_event(this, native, properties)
    }

    fn event_native_handle(this: &Object<Event<LevelZero>>) -> Result<ur_native_handle_t> {
        interop::event_handle(this)
    }

    fn context_native_handle(this: &OfContext) -> Result<ur_native_handle_t> {
        Ok(this.domain().state().native.raw.0.expose_provenance())
    }
}

//! Hooks of the engine: programs, buffers, other interfaces and processes, address ranges and native handles. Each hook calls the module that owns its subject.

use std::ffi::{CStr, c_int, c_void};
use std::os::fd::IntoRawFd as _;
use std::sync::Arc;

use ur::abi::*;
use ur::hal::{VirtualMemGranularityInfo, VirtualMemInfo};
use ur::ipc::blob::Subject;
use ur::object::{Handles, InfoOut, Object, Out, OutHandle, Result, ensure};
use ur::stream::{Context, Event, Hooks, Queue, UsmPool};

use crate::LevelZero;
use crate::bindless::{self, ExternalMem, ExternalSemaphore};
use crate::device::Device;
use crate::interop;
use crate::kernel::Kernel;
use crate::mem::Mem;
use crate::program::Program;
use crate::sharing;
use crate::virtual_mem::{AddressSpace, PhysicalMem, page_bytes};

type OfContext = Object<Context<LevelZero>>;
type OfQueue = Object<Queue<LevelZero>>;
type Waits<'a> = Handles<'a, Event<LevelZero>>;
type EventOut<'a> = OutHandle<'a, Event<LevelZero>>;

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

fn put(this: &OfContext, data: *const c_void, subject: Subject) -> Result<()> {
    let given = &this.domain().state().shared.given;
    given.put(data, sharing::kind(subject))
}

fn pointer(address: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address)
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
        program.build(all(this), options)
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
        Program::link(this, all(this), programs, options)
    }

    fn program_link_exp(
        this: &OfContext,
        devices: Handles<'_, Device>,
        _: ur_exp_program_flags_t,
        programs: Handles<'_, Program>,
        options: Option<&CStr>,
    ) -> Result<Arc<Object<Program>>> {
        Program::link(this, devices.iter(), programs, options)
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

    fn usm_pitched_alloc_exp(
        this: &OfContext,
        device: &Object<Device>,
        desc: Option<&ur_usm_desc_t>,
        pool: Option<&Object<UsmPool<LevelZero>>>,
        width: usize,
        height: usize,
        element: usize,
    ) -> Result<(*mut c_void, usize)> {
        bindless::alloc_pitched(this, device, desc, pool, [width, height], element)
    }

    fn bindless_images_import_external_memory_exp(
        this: &OfContext,
        device: &Object<Device>,
        size: usize,
        kind: ur_exp_external_mem_type_t,
        desc: &ur_exp_external_mem_desc_t,
    ) -> Result<Arc<Object<ExternalMem>>> {
        ExternalMem::import(this, device, size, kind, desc)
    }

    fn bindless_images_map_external_linear_memory_exp(
        this: &OfContext,
        device: &Object<Device>,
        offset: u64,
        size: u64,
        memory: &Object<ExternalMem>,
    ) -> Result<*mut c_void> {
        let at = bindless::map_linear(this, device, (offset, size), memory)?;
        Ok(std::ptr::with_exposed_provenance_mut(at))
    }

    fn bindless_images_release_external_memory_exp(
        this: &OfContext,
        device: &Object<Device>,
        memory: &Object<ExternalMem>,
    ) -> Result<()> {
        ExternalMem::end(this, device, memory)
    }

    fn bindless_images_free_mapped_linear_memory_exp(
        this: &OfContext,
        device: &Object<Device>,
        mem: *mut c_void,
    ) -> Result<()> {
        bindless::free_linear(this, device, mem.addr())
    }

    fn bindless_images_import_external_semaphore_exp(
        this: &OfContext,
        device: &Object<Device>,
        kind: ur_exp_external_semaphore_type_t,
        desc: &ur_exp_external_semaphore_desc_t,
    ) -> Result<Arc<Object<ExternalSemaphore>>> {
        ExternalSemaphore::import(this, device, kind, desc)
    }

    fn bindless_images_release_external_semaphore_exp(
        this: &OfContext,
        device: &Object<Device>,
        semaphore: &Object<ExternalSemaphore>,
    ) -> Result<()> {
        ExternalSemaphore::end(this, device, semaphore)
    }

    fn bindless_images_wait_external_semaphore_exp(
        this: &OfQueue,
        semaphore: &Object<ExternalSemaphore>,
        has_value: bool,
        value: u64,
        waits: Waits<'_>,
        event: EventOut<'_>,
    ) -> Result<()> {
        bindless::wait(this, semaphore, (has_value, value), waits, event)
    }

    fn bindless_images_signal_external_semaphore_exp(
        this: &OfQueue,
        semaphore: &Object<ExternalSemaphore>,
        has_value: bool,
        value: u64,
        waits: Waits<'_>,
        event: EventOut<'_>,
    ) -> Result<()> {
        bindless::signal(this, semaphore, (has_value, value), waits, event)
    }

    fn ipc_get_mem_handle_exp(
        this: &OfContext,
        mem: *mut c_void,
        data: Out<'_, *mut c_void>,
        size: Out<'_, usize>,
    ) -> Result<()> {
        sharing::get_memory(this, mem.addr(), data, size)
    }

    fn ipc_put_mem_handle_exp(this: &OfContext, data: *mut c_void) -> Result<()> {
        put(this, data, Subject::Memory)
    }

    fn ipc_open_mem_handle_exp(
        this: &OfContext,
        device: &Object<Device>,
        data: &[u8],
    ) -> Result<*mut c_void> {
        sharing::open_memory(this, device, data).map(pointer)
    }

    fn ipc_close_mem_handle_exp(this: &OfContext, mem: *mut c_void) -> Result<()> {
        sharing::close_memory(this, mem.addr())
    }

    fn ipc_get_phys_mem_handle_exp(
        this: &OfContext,
        memory: &Object<PhysicalMem>,
    ) -> Result<(*mut c_void, usize)> {
        sharing::get_physical(this, memory)
    }

    fn ipc_put_phys_mem_handle_exp(this: &OfContext, data: *const c_void) -> Result<()> {
        put(this, data, Subject::Physical)
    }

    fn ipc_open_phys_mem_handle_exp(
        this: &OfContext,
        device: &Object<Device>,
        data: &[u8],
    ) -> Result<Arc<Object<PhysicalMem>>> {
        sharing::open_physical(this, device, data)
    }

    fn ipc_close_phys_mem_handle_exp(_: &OfContext, memory: &Object<PhysicalMem>) -> Result<()> {
        ensure(memory.is_opened(), UR_RESULT_ERROR_INVALID_VALUE)?;
        memory.release()
    }

    fn event_ipc_handle(this: &Object<Event<LevelZero>>) -> Result<(*mut c_void, usize)> {
        sharing::get_event(this)
    }

    fn ipc_put_event_handle_exp(this: &OfContext, data: *mut c_void) -> Result<()> {
        put(this, data, Subject::Event)
    }

    fn ipc_open_event_handle_exp(
        this: &OfContext,
        data: &[u8],
    ) -> Result<Arc<Object<Event<LevelZero>>>> {
        sharing::open_event(this, data)
    }

    fn memory_export_alloc_exportable_memory_exp(
        this: &OfContext,
        device: &Object<Device>,
        alignment: usize,
        size: usize,
        kind: ur_exp_external_mem_type_t,
    ) -> Result<*mut c_void> {
        sharing::alloc_exportable(this, device, alignment, size, kind).map(pointer)
    }

    fn memory_export_free_exportable_memory_exp(
        this: &OfContext,
        device: &Object<Device>,
        mem: *mut c_void,
    ) -> Result<()> {
        sharing::free_exportable(this, device, mem.addr())
    }

    fn memory_export_export_memory_handle_exp(
        this: &OfContext,
        device: &Object<Device>,
        kind: ur_exp_external_mem_type_t,
        mem: *mut c_void,
        handle: *mut c_void,
    ) -> Result<()> {
        let descriptor = sharing::export_descriptor(this, device, kind, mem.addr())?;
        // SAFETY: `urMemoryExportExportMemoryHandleExp` promises room for an `int`.
        unsafe { handle.cast::<c_int>().write(descriptor.into_raw_fd()) };
        Ok(())
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

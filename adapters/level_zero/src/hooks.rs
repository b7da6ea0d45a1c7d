//! Hooks of the engine: programs, buffers, images, samplers, other interfaces and processes, address ranges and native
//! handles. Each hook calls the module that owns its subject.

use std::ffi::{CStr, c_int, c_void};
use std::os::fd::IntoRawFd as _;
use std::sync::Arc;

use ur::abi::*;
use ur::hal::{ImageInfo, Unwrapped, VirtualMemGranularityInfo, VirtualMemInfo};
use ur::ipc::blob::Subject;
use ur::object::{Handles, InfoOut, Object, Out, OutHandle, Result, ensure};
use ur::stream::{Context, Event, Hooks, NativeCall, Queue, UsmPool};

use crate::LevelZero;
use crate::bindless::{self, CopyEnd, ExternalMem, ExternalSemaphore};
use crate::device::Device;
use crate::interop;
use crate::kernel::Kernel;
use crate::mem::{self, Mem};
use crate::program::Program;
use crate::sampler::Sampler;
use crate::sharing;
use crate::virtual_mem::{AddressSpace, PhysicalMem, page_bytes};

type OfContext = Object<Context<LevelZero>>;
type OfQueue = Object<Queue<LevelZero>>;
type Waits<'a> = Handles<'a, Event<LevelZero>>;
type EventOut<'a> = OutHandle<'a, Event<LevelZero>>;

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

fn put(this: &OfContext, data: *const c_void, subject: Subject) -> Result<()> {
    sharing::check_able(this, subject)?;
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

    fn mem_image_create(
        this: &OfContext,
        flags: ur_mem_flags_t,
        format: &ur_image_format_t,
        desc: &ur_image_desc_t,
        host: *mut c_void,
    ) -> Result<Arc<Object<Mem>>> {
        Mem::create_image(this, flags, format, desc, host)
    }

    fn mem_image_create_with_native_handle(
        this: &OfContext,
        native: ur_native_handle_t,
        format: &ur_image_format_t,
        desc: &ur_image_desc_t,
        properties: Option<&ur_mem_native_properties_t>,
    ) -> Result<Arc<Object<Mem>>> {
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        Mem::image_from_native(this, native, format, desc, owned)
    }

    fn sampler_create(this: &OfContext, desc: &ur_sampler_desc_t) -> Result<Arc<Object<Sampler>>> {
        Sampler::create(this, desc)
    }

    fn sampler_create_with_native_handle(
        this: &OfContext,
        native: ur_native_handle_t,
        properties: Option<&ur_sampler_native_properties_t>,
    ) -> Result<Arc<Object<Sampler>>> {
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        Sampler::from_native(this, native, owned)
    }

    fn mem_image_read(
        this: &OfQueue,
        image: &Object<Mem>,
        blocking: bool,
        origin: ur_rect_offset_t,
        region: ur_rect_region_t,
        row_pitch: usize,
        slice_pitch: usize,
        dst: *mut c_void,
        waits: Waits<'_>,
        event: EventOut<'_>,
    ) -> Result<()> {
        let (part, pitches) = ((origin, region), (row_pitch, slice_pitch));
        let work = image.transfer_image(this.device(), part, pitches, dst, false)?;
        let command = UR_COMMAND_MEM_IMAGE_READ;
        Queue::enqueue(this, command, waits, work, event, blocking)
    }

    fn mem_image_write(
        this: &OfQueue,
        image: &Object<Mem>,
        blocking: bool,
        origin: ur_rect_offset_t,
        region: ur_rect_region_t,
        row_pitch: usize,
        slice_pitch: usize,
        src: *mut c_void,
        waits: Waits<'_>,
        event: EventOut<'_>,
    ) -> Result<()> {
        let (part, pitches) = ((origin, region), (row_pitch, slice_pitch));
        let work = image.transfer_image(this.device(), part, pitches, src, true)?;
        let command = UR_COMMAND_MEM_IMAGE_WRITE;
        Queue::enqueue(this, command, waits, work, event, blocking)
    }

    fn mem_image_copy(
        this: &OfQueue,
        src: &Object<Mem>,
        dst: &Object<Mem>,
        from: ur_rect_offset_t,
        to: ur_rect_offset_t,
        region: ur_rect_region_t,
        waits: Waits<'_>,
        event: EventOut<'_>,
    ) -> Result<()> {
        let work = Mem::copy_image(this.device(), (dst, to), (src, from), region)?;
        Queue::enqueue(this, UR_COMMAND_MEM_IMAGE_COPY, waits, work, event, false)
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

    fn bindless_images_unsampled_image_handle_destroy_exp(
        this: &OfContext,
        device: &Object<Device>,
        image: ur_exp_image_native_handle_t,
    ) -> Result<()> {
        bindless::destroy_unsampled(this, device, image)
    }

    fn bindless_images_sampled_image_handle_destroy_exp(
        this: &OfContext,
        device: &Object<Device>,
        image: ur_exp_image_native_handle_t,
    ) -> Result<()> {
        bindless::destroy_sampled(this, device, image)
    }

    fn bindless_images_image_allocate_exp(
        this: &OfContext,
        device: &Object<Device>,
        format: &ur_image_format_t,
        desc: &ur_image_desc_t,
    ) -> Result<ur_exp_image_mem_native_handle_t> {
        bindless::allocate(this, device, (format, desc))
    }

    fn bindless_images_image_free_exp(
        this: &OfContext,
        device: &Object<Device>,
        image: ur_exp_image_mem_native_handle_t,
    ) -> Result<()> {
        bindless::free(this, device, image)
    }

    fn bindless_images_unsampled_image_create_exp(
        this: &OfContext,
        device: &Object<Device>,
        image: ur_exp_image_mem_native_handle_t,
        format: &ur_image_format_t,
        desc: &ur_image_desc_t,
    ) -> Result<ur_exp_image_native_handle_t> {
        bindless::create_unsampled(this, device, image, (format, desc))
    }

    fn bindless_images_sampled_image_create_exp(
        this: &OfContext,
        device: &Object<Device>,
        image: ur_exp_image_mem_native_handle_t,
        format: &ur_image_format_t,
        desc: &ur_image_desc_t,
        sampler: &ur_sampler_desc_t,
    ) -> Result<ur_exp_image_native_handle_t> {
        bindless::create_sampled(this, device, image, (format, desc), sampler)
    }

    fn bindless_images_image_get_info_exp(
        this: &OfContext,
        image: ur_exp_image_mem_native_handle_t,
        what: ImageInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        bindless::info(this, image, what, out)
    }

    fn bindless_images_get_image_memory_handle_type_support_exp(
        this: &OfContext,
        device: &Object<Device>,
        desc: &ur_image_desc_t,
        format: &ur_image_format_t,
        memory: ur_exp_image_mem_type_t,
    ) -> Result<ur_bool_t> {
        bindless::can_allocate(this, device, (desc, format), memory)
    }

    fn bindless_images_get_image_unsampled_handle_support_exp(
        this: &OfContext,
        device: &Object<Device>,
        desc: &ur_image_desc_t,
        format: &ur_image_format_t,
        memory: ur_exp_image_mem_type_t,
    ) -> Result<ur_bool_t> {
        bindless::can_use_unsampled(this, device, (desc, format), memory)
    }

    fn bindless_images_get_image_sampled_handle_support_exp(
        this: &OfContext,
        device: &Object<Device>,
        desc: &ur_image_desc_t,
        format: &ur_image_format_t,
        memory: ur_exp_image_mem_type_t,
    ) -> Result<ur_bool_t> {
        bindless::can_sample(this, device, (desc, format), memory)
    }

    fn bindless_images_mipmap_get_level_exp(
        this: &OfContext,
        device: &Object<Device>,
        _: ur_exp_image_mem_native_handle_t,
        _: u32,
    ) -> Result<ur_exp_image_mem_native_handle_t> {
        Err(bindless::no_mipmap(this, device))
    }

    fn bindless_images_mipmap_free_exp(
        this: &OfContext,
        device: &Object<Device>,
        _: ur_exp_image_mem_native_handle_t,
    ) -> Result<()> {
        Err(bindless::no_mipmap(this, device))
    }

    fn bindless_images_map_external_array_exp(
        this: &OfContext,
        device: &Object<Device>,
        format: &ur_image_format_t,
        desc: &ur_image_desc_t,
        memory: &Object<ExternalMem>,
    ) -> Result<ur_exp_image_mem_native_handle_t> {
        bindless::map_array(this, device, (format, desc), memory)
    }

    fn bindless_images_image_copy_exp(
        this: &OfQueue,
        src: *const c_void,
        dst: *mut c_void,
        src_desc: &ur_image_desc_t,
        dst_desc: &ur_image_desc_t,
        src_format: &ur_image_format_t,
        dst_format: &ur_image_format_t,
        region: &ur_exp_image_copy_region_t,
        flags: ur_exp_image_copy_flags_t,
        types: ur_exp_image_copy_input_types_t,
        waits: Waits<'_>,
        event: EventOut<'_>,
    ) -> Result<()> {
        let src = CopyEnd {
            address: src.expose_provenance(),
            desc: src_desc,
            format: src_format,
        };
        let dst = CopyEnd {
            address: dst.expose_provenance(),
            desc: dst_desc,
            format: dst_format,
        };
        bindless::enqueue_copy(this, (src, dst), region, (flags, types), waits, event)
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

    fn ipc_close_phys_mem_handle_exp(this: &OfContext, memory: &Object<PhysicalMem>) -> Result<()> {
        sharing::check_able(this, Subject::Physical)?;
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

    fn native_command_exp(
        this: &OfQueue,
        run: <ur_exp_enqueue_native_command_function_t as Unwrapped>::Fn,
        data: *mut c_void,
        mems: Handles<'_, Mem>,
        _: Option<&ur_exp_enqueue_native_command_properties_t>,
        waits: Handles<'_, Event<LevelZero>>,
        event: OutHandle<'_, Event<LevelZero>>,
    ) -> Result<()> {
        let bring = mem::bring(this.device(), mems.iter())?;
        NativeCall { run, data }.enqueue(this, bring, waits, event)
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

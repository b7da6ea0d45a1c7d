//! What the engine leaves to the adapter: programs, memory objects, images, host pipes and native
//! handles.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use opencl_sys::*;
use ur::abi::*;
use ur::object::{Error, Handles, Object, OutHandle, Result, ensure};
use ur::stream::{Context, Event, Hooks, Queue, Stamps, Work};

use crate::OpenCl;
use crate::cl::{EventRef, QueueRef, check};
use crate::device::Device;
use crate::exec::{self, Lane, Marker, Native, Slot};
use crate::kernel::Kernel;
use crate::mem::Mem;
use crate::program::{Program, ids};
use crate::sampler::Sampler;

type OfContext = Object<Context<OpenCl>>;
type OfQueue = Object<Queue<OpenCl>>;
type EventOut<'a> = OutHandle<'a, Event<OpenCl>>;
type Waits<'a> = Handles<'a, Event<OpenCl>>;

fn all(context: &OfContext) -> Vec<cl_device_id> {
    context
        .devices()
        .iter()
        .map(|device| device.raw())
        .collect()
}

fn origin(from: ur_rect_offset_t) -> [usize; 3] {
    [from.x as usize, from.y as usize, from.z as usize]
}

fn region(from: ur_rect_region_t) -> [usize; 3] {
    [
        from.width as usize,
        from.height as usize,
        from.depth as usize,
    ]
}

fn handle(native: ur_native_handle_t) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(native)
}

/// What kind of command one of OpenCL's is.
#[rustfmt::skip]
fn command(native: cl_command_type) -> ur_command_t {
    match native {
        CL_COMMAND_NDRANGE_KERNEL | CL_COMMAND_TASK => UR_COMMAND_KERNEL_LAUNCH,
        CL_COMMAND_MARKER => UR_COMMAND_EVENTS_WAIT,
        CL_COMMAND_BARRIER => UR_COMMAND_EVENTS_WAIT_WITH_BARRIER,
        CL_COMMAND_READ_BUFFER => UR_COMMAND_MEM_BUFFER_READ,
        CL_COMMAND_WRITE_BUFFER => UR_COMMAND_MEM_BUFFER_WRITE,
        CL_COMMAND_READ_BUFFER_RECT => UR_COMMAND_MEM_BUFFER_READ_RECT,
        CL_COMMAND_WRITE_BUFFER_RECT => UR_COMMAND_MEM_BUFFER_WRITE_RECT,
        CL_COMMAND_COPY_BUFFER => UR_COMMAND_MEM_BUFFER_COPY,
        CL_COMMAND_COPY_BUFFER_RECT => UR_COMMAND_MEM_BUFFER_COPY_RECT,
        CL_COMMAND_FILL_BUFFER => UR_COMMAND_MEM_BUFFER_FILL,
        CL_COMMAND_READ_IMAGE => UR_COMMAND_MEM_IMAGE_READ,
        CL_COMMAND_WRITE_IMAGE => UR_COMMAND_MEM_IMAGE_WRITE,
        CL_COMMAND_COPY_IMAGE => UR_COMMAND_MEM_IMAGE_COPY,
        CL_COMMAND_MAP_BUFFER => UR_COMMAND_MEM_BUFFER_MAP,
        CL_COMMAND_UNMAP_MEM_OBJECT => UR_COMMAND_MEM_UNMAP,
        CL_COMMAND_SVM_MEMCPY | CL_COMMAND_MEMCPY_INTEL => UR_COMMAND_USM_MEMCPY,
        CL_COMMAND_SVM_MEMFILL | CL_COMMAND_MEMFILL_INTEL => UR_COMMAND_USM_FILL,
        CL_COMMAND_MIGRATEMEM_INTEL => UR_COMMAND_USM_PREFETCH,
        CL_COMMAND_MEMADVISE_INTEL => UR_COMMAND_USM_ADVISE,
        _ => UR_COMMAND_ENQUEUE_NATIVE_EXP,
    }
}

impl Hooks<OpenCl> for OpenCl {
    fn mem_image_create(
        this: &OfContext,
        flags: ur_mem_flags_t,
        format: &ur_image_format_t,
        desc: &ur_image_desc_t,
        host: *mut c_void,
    ) -> Result<Arc<Object<Mem>>> {
        Mem::create_image(this, flags, format, desc, host)
    }

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
        Mem::from_native(this, native, properties)
    }

    fn mem_image_create_with_native_handle(
        this: &OfContext,
        native: ur_native_handle_t,
        _: &ur_image_format_t,
        _: &ur_image_desc_t,
        properties: Option<&ur_mem_native_properties_t>,
    ) -> Result<Arc<Object<Mem>>> {
        Mem::from_native(this, native, properties)
    }

    fn sampler_create(this: &OfContext, desc: &ur_sampler_desc_t) -> Result<Arc<Object<Sampler>>> {
        Sampler::create(this, desc)
    }

    fn sampler_create_with_native_handle(
        this: &OfContext,
        native: ur_native_handle_t,
        properties: Option<&ur_sampler_native_properties_t>,
    ) -> Result<Arc<Object<Sampler>>> {
        Sampler::from_native(this, native, properties)
    }

    fn program_create_with_il(
        this: &OfContext,
        il: &[u8],
        _: Option<&ur_program_properties_t>,
    ) -> Result<Arc<Object<Program>>> {
        Program::from_il(this, il)
    }

    fn program_create_with_binary(
        this: &OfContext,
        devices: Handles<'_, Device>,
        lengths: &[usize],
        binaries: &[*const u8],
        _: Option<&ur_program_properties_t>,
    ) -> Result<Arc<Object<Program>>> {
        Program::from_binaries(this, devices, lengths, binaries)
    }

    fn program_create_with_native_handle(
        this: &OfContext,
        native: ur_native_handle_t,
        properties: Option<&ur_program_native_properties_t>,
    ) -> Result<Arc<Object<Program>>> {
        Program::from_native(this, native, properties)
    }

    fn kernel_create_with_native_handle(
        this: &OfContext,
        native: ur_native_handle_t,
        program: Option<&Object<Program>>,
        properties: Option<&ur_kernel_native_properties_t>,
    ) -> Result<Arc<Object<Kernel>>> {
        Kernel::from_native(this, native, program, properties)
    }

    fn program_build(
        this: &OfContext,
        program: &Object<Program>,
        options: Option<&CStr>,
    ) -> Result<()> {
        program.check_context(this)?;
        program.build(&[], options)
    }

    fn program_compile(
        this: &OfContext,
        program: &Object<Program>,
        options: Option<&CStr>,
    ) -> Result<()> {
        program.check_context(this)?;
        program.compile(&[], options)
    }

    fn program_link(
        this: &OfContext,
        programs: Handles<'_, Program>,
        options: Option<&CStr>,
    ) -> Result<Arc<Object<Program>>> {
        Program::link(this, &all(this), programs, options)
    }

    fn program_link_exp(
        this: &OfContext,
        devices: Handles<'_, Device>,
        _: ur_exp_program_flags_t,
        programs: Handles<'_, Program>,
        options: Option<&CStr>,
    ) -> Result<Arc<Object<Program>>> {
        Program::link(this, &ids(devices), programs, options)
    }

    fn queue_create_with_native_handle(
        this: &OfContext,
        native: ur_native_handle_t,
        device: Option<&Object<Device>>,
        properties: Option<&ur_queue_native_properties_t>,
    ) -> Result<Arc<OfQueue>> {
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        let (raw, context) = (handle(native), &this.domain().state().context);
        // SAFETY: the caller says that this is a command queue of OpenCL.
        let queue = unsafe { QueueRef::adopted(context.api(), raw, owned) }?;
        let of: usize = exec::queue_property(&queue, CL_QUEUE_CONTEXT)?;
        ensure(of == context.raw().addr(), UR_RESULT_ERROR_INVALID_CONTEXT)?;
        let id: usize = exec::queue_property(&queue, CL_QUEUE_DEVICE)?;
        let own = this
            .devices()
            .iter()
            .find(|device| device.raw().addr() == id);
        let device = match (device, own) {
            (Some(device), _) => device.arc(),
            (None, Some(own)) => Arc::clone(own),
            (None, None) => Device::from_native(id)?,
        };
        let (lane, flags) = Lane::adopt(queue, context, &device)?;
        Queue::adopt(this, &device, flags, lane)
    }

    fn queue_native_handle(
        this: &OfQueue,
        _: Option<&ur_queue_native_desc_t>,
    ) -> Result<ur_native_handle_t> {
        let raw = this.expose(|lane| lane.expose().map(QueueRef::raw))??;
        Ok(raw.expose_provenance())
    }

    fn event_create_with_native_handle(
        this: &OfContext,
        native: ur_native_handle_t,
        properties: Option<&ur_event_native_properties_t>,
    ) -> Result<Arc<Object<Event<OpenCl>>>> {
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        let (raw, context) = (handle(native), &this.domain().state().context);
        // SAFETY: the caller says that this is an event of OpenCL.
        let event = unsafe { EventRef::adopted(context.api(), raw, owned) }?;
        let of: usize = exec::event_property(&event, CL_EVENT_CONTEXT)?;
        ensure(of == context.raw().addr(), UR_RESULT_ERROR_INVALID_CONTEXT)?;
        let command = command(exec::event_property(&event, CL_EVENT_COMMAND_TYPE)?);
        let stamps = exec::time(&event, CL_PROFILING_COMMAND_QUEUED).map(|queued| {
            let stamps = Arc::new(Stamps::default());
            exec::times(&stamps, event.clone(), event.clone());
            (queued, stamps)
        });
        Event::adopt(this, command, Marker::new(event, context.clone()), stamps)
    }

    fn event_native_handle(this: &Object<Event<OpenCl>>) -> Result<ur_native_handle_t> {
        Ok(this.marker()?.event.raw().expose_provenance())
    }

    fn context_native_handle(this: &OfContext) -> Result<ur_native_handle_t> {
        Ok(this.domain().state().context.raw().expose_provenance())
    }

    fn mem_image_read(
        this: &OfQueue,
        image: &Object<Mem>,
        blocking: bool,
        from: ur_rect_offset_t,
        size: ur_rect_region_t,
        row_pitch: usize,
        slice_pitch: usize,
        dst: *mut c_void,
        waits: Waits<'_>,
        event: EventOut<'_>,
    ) -> Result<()> {
        let (mem, to) = (image.native().clone(), dst.expose_provenance());
        let (from, size) = (origin(from), region(size));
        let work = Work::Native(Native::new(move |api, slot| {
            let Slot {
                queue,
                count,
                waits,
                event,
            } = *slot;
            let (from, size) = (from.as_ptr(), size.as_ptr());
            let to = std::ptr::with_exposed_provenance_mut(to);
            let read = api.core.clEnqueueReadImage;
            // SAFETY: a live queue and image; the caller promises memory for the region.
            let code = unsafe {
                read(
                    queue,
                    mem.raw(),
                    CL_FALSE,
                    from,
                    size,
                    row_pitch,
                    slice_pitch,
                    to,
                    count,
                    waits,
                    event,
                )
            };
            check(code, "clEnqueueReadImage")
        }));
        Queue::enqueue(
            this,
            UR_COMMAND_MEM_IMAGE_READ,
            waits,
            work,
            event,
            blocking,
        )
    }

    fn mem_image_write(
        this: &OfQueue,
        image: &Object<Mem>,
        blocking: bool,
        to: ur_rect_offset_t,
        size: ur_rect_region_t,
        row_pitch: usize,
        slice_pitch: usize,
        src: *mut c_void,
        waits: Waits<'_>,
        event: EventOut<'_>,
    ) -> Result<()> {
        let (mem, from) = (image.native().clone(), src.expose_provenance());
        let (to, size) = (origin(to), region(size));
        let work = Work::Native(Native::new(move |api, slot| {
            let Slot {
                queue,
                count,
                waits,
                event,
            } = *slot;
            let (to, size) = (to.as_ptr(), size.as_ptr());
            let from = std::ptr::with_exposed_provenance(from);
            let write = api.core.clEnqueueWriteImage;
            // SAFETY: a live queue and image; the caller promises memory for the region.
            let code = unsafe {
                write(
                    queue,
                    mem.raw(),
                    CL_FALSE,
                    to,
                    size,
                    row_pitch,
                    slice_pitch,
                    from,
                    count,
                    waits,
                    event,
                )
            };
            check(code, "clEnqueueWriteImage")
        }));
        Queue::enqueue(
            this,
            UR_COMMAND_MEM_IMAGE_WRITE,
            waits,
            work,
            event,
            blocking,
        )
    }

    fn mem_image_copy(
        this: &OfQueue,
        src: &Object<Mem>,
        dst: &Object<Mem>,
        from: ur_rect_offset_t,
        to: ur_rect_offset_t,
        size: ur_rect_region_t,
        waits: Waits<'_>,
        event: EventOut<'_>,
    ) -> Result<()> {
        let (source, target) = (src.native().clone(), dst.native().clone());
        let (from, to, size) = (origin(from), origin(to), region(size));
        let work = Work::Native(Native::new(move |api, slot| {
            let Slot {
                queue,
                count,
                waits,
                event,
            } = *slot;
            let (from, to, size) = (from.as_ptr(), to.as_ptr(), size.as_ptr());
            let copy = api.core.clEnqueueCopyImage;
            // SAFETY: a live queue and images.
            let code = unsafe {
                copy(
                    queue,
                    source.raw(),
                    target.raw(),
                    from,
                    to,
                    size,
                    count,
                    waits,
                    event,
                )
            };
            check(code, "clEnqueueCopyImage")
        }));
        Queue::enqueue(this, UR_COMMAND_MEM_IMAGE_COPY, waits, work, event, false)
    }

    fn read_host_pipe(
        this: &OfQueue,
        program: &Object<Program>,
        symbol: &CStr,
        blocking: bool,
        dst: *mut c_void,
        size: usize,
        waits: Waits<'_>,
        event: EventOut<'_>,
    ) -> Result<()> {
        let read = program
            .native()
            .api()
            .ext
            .clEnqueueReadHostPipeINTEL
            .ok_or(Error::unsupported())?;
        let (program, symbol) = (program.native().clone(), symbol.to_owned());
        let to = dst.expose_provenance();
        let work = Work::Native(Native::new(move |_, slot| {
            let Slot {
                queue,
                count,
                waits,
                event,
            } = *slot;
            let (to, name) = (std::ptr::with_exposed_provenance_mut(to), symbol.as_ptr());
            // SAFETY: a live queue and program; the caller promises memory for the data.
            let code = unsafe {
                read(
                    queue,
                    program.raw(),
                    name,
                    CL_FALSE,
                    to,
                    size,
                    count,
                    waits,
                    event,
                )
            };
            check(code, "clEnqueueReadHostPipeINTEL")
        }));
        Queue::enqueue(
            this,
            UR_COMMAND_READ_HOST_PIPE,
            waits,
            work,
            event,
            blocking,
        )
    }

    fn write_host_pipe(
        this: &OfQueue,
        program: &Object<Program>,
        symbol: &CStr,
        blocking: bool,
        src: *mut c_void,
        size: usize,
        waits: Waits<'_>,
        event: EventOut<'_>,
    ) -> Result<()> {
        let write = program
            .native()
            .api()
            .ext
            .clEnqueueWriteHostPipeINTEL
            .ok_or(Error::unsupported())?;
        let (program, symbol) = (program.native().clone(), symbol.to_owned());
        let from = src.expose_provenance();
        let work = Work::Native(Native::new(move |_, slot| {
            let Slot {
                queue,
                count,
                waits,
                event,
            } = *slot;
            let (from, name) = (std::ptr::with_exposed_provenance(from), symbol.as_ptr());
            // SAFETY: a live queue and program; the caller promises the data.
            let code = unsafe {
                write(
                    queue,
                    program.raw(),
                    name,
                    CL_FALSE,
                    from,
                    size,
                    count,
                    waits,
                    event,
                )
            };
            check(code, "clEnqueueWriteHostPipeINTEL")
        }));
        Queue::enqueue(
            this,
            UR_COMMAND_WRITE_HOST_PIPE,
            waits,
            work,
            event,
            blocking,
        )
    }
}

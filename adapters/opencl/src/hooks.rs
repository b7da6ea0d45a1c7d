//! Hooks of the engine: programs, memory objects, images, host pipes and native handles. Each hook calls
//! the module that owns its subject.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use opencl_sys::cl_device_id;
use ur::abi::*;
use ur::hal::Unwrapped;
use ur::object::{Handles, Object, OutHandle, Result};
use ur::stream::{Context, Event, Hooks, NativeCall, Queue};

use crate::OpenCl;
use crate::device::Device;
use crate::exec::{self, Marker};
use crate::interop;
use crate::kernel::Kernel;
use crate::mem::{InHost, Mem, Pitch, bring, copy_image};
use crate::pipe;
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
        interop::adopt_queue(this, native, device, properties)
    }

    fn queue_native_handle(
        this: &OfQueue,
        _: Option<&ur_queue_native_desc_t>,
    ) -> Result<ur_native_handle_t> {
        interop::queue_handle(this)
    }

    fn event_create_with_native_handle(
        this: &OfContext,
        native: ur_native_handle_t,
        properties: Option<&ur_event_native_properties_t>,
    ) -> Result<Arc<Object<Event<OpenCl>>>> {
        interop::adopt_event(this, native, properties)
    }

    fn queue_of_adopted(this: &OfContext, marker: &Marker) -> Result<Option<Arc<OfQueue>>> {
        interop::queue_of(this, marker)
    }

    fn event_native_handle(this: &Object<Event<OpenCl>>) -> Result<ur_native_handle_t> {
        // Foreign code may wait for the event on another queue.
        Ok(exec::shown(&this.marker()?)?.raw().expose_provenance())
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
        let pitch = Pitch {
            row: row_pitch,
            slice: slice_pitch,
        };
        let what = InHost {
            origin: from,
            region: size,
            pitch,
        };
        let work = image.read_image(what, dst)?;
        let command = UR_COMMAND_MEM_IMAGE_READ;
        Queue::enqueue(this, command, waits, work, event, blocking)
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
        let pitch = Pitch {
            row: row_pitch,
            slice: slice_pitch,
        };
        let what = InHost {
            origin: to,
            region: size,
            pitch,
        };
        let work = image.write_image(what, src)?;
        let command = UR_COMMAND_MEM_IMAGE_WRITE;
        Queue::enqueue(this, command, waits, work, event, blocking)
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
        let work = copy_image(src, dst, from, to, size)?;
        Queue::enqueue(this, UR_COMMAND_MEM_IMAGE_COPY, waits, work, event, false)
    }

    fn native_command_exp(
        this: &OfQueue,
        run: <ur_exp_enqueue_native_command_function_t as Unwrapped>::Fn,
        data: *mut c_void,
        mems: Handles<'_, Mem>,
        _: Option<&ur_exp_enqueue_native_command_properties_t>,
        waits: Waits<'_>,
        event: EventOut<'_>,
    ) -> Result<()> {
        NativeCall { run, data }.enqueue(this, bring(mems), waits, event)
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
        let work = pipe::read(program, symbol, dst, size)?;
        let command = UR_COMMAND_READ_HOST_PIPE;
        Queue::enqueue(this, command, waits, work, event, blocking)
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
        let work = pipe::write(program, symbol, src, size)?;
        let command = UR_COMMAND_WRITE_HOST_PIPE;
        Queue::enqueue(this, command, waits, work, event, blocking)
    }
}

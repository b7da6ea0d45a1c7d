//! The bridge from the stream engine to OpenCL. Each method calls one function of `exec`, after it has
//! resolved handles.

use std::ffi::{CStr, c_void};
use std::ptr::{self, null};
use std::sync::Arc;

use opencl_sys::*;
use ur::abi::*;
use ur::object::{Error, Object, Result};
use ur::stream::{
    Compiled, CompletionCallback, Devices, Driver, Kind, LaunchRequest, MappedPointer,
    NativeRecord, Payload, PlainLaunch, Progress, QueueOptions, Step, Timestamps, Work,
};
use ur::timeline::Clock;

use crate::OpenCl;
use crate::cl::{check, failure};
use crate::device::Device;
use crate::exec::{self, ContextData, Lane, Marker, Native, Signal};
use crate::kernel::{Kernel, Launch};
use crate::mem::Mem;
use crate::native_record;
use crate::program::Program;
use crate::record;

/// Bytes that a slab's size and address are multiples of.
const SLAB_BYTES: usize = 64 << 10;

impl Payload for OpenCl {
    type Launch = Arc<Launch>;
    type Native = Native;
}

impl Driver for OpenCl {
    type ContextData = ContextData;
    type Lane = Arc<Lane>;
    type Marker = Marker;
    type Signal = Signal;
    type Plain = ();

    /// Completion is queried: a callback for each command costs more than a rare query.
    const TRACKS: bool = false;

    /// Drivers accept any alignment, so that clients may ask for any.
    const MAX_ALIGN_BYTES: u64 = 1 << 31;

    fn parent(device: &Object<Device>) -> Option<Arc<Object<Device>>> {
        device.parent().cloned()
    }

    fn max_alloc(device: &Object<Device>) -> usize {
        let bytes = device
            .value::<u64>(CL_DEVICE_MAX_MEM_ALLOC_SIZE)
            .unwrap_or(u64::MAX);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    fn lane(
        devices: &Devices<Self>,
        device: &Object<Device>,
        options: &QueueOptions,
        _: &Arc<Clock>,
    ) -> Result<Arc<Lane>> {
        Lane::open(&devices.state().context, device, options.flags)
    }

    fn submit(
        lane: &Arc<Lane>,
        epoch: u64,
        work: Work<Self>,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<Progress> {
        lane.submit(epoch, work, timestamps)
    }

    fn flush(lane: &Arc<Lane>) -> Result<()> {
        lane.flush()
    }

    fn mark(lane: &Arc<Lane>, _: u64) -> Result<Marker> {
        lane.mark()
    }

    fn wait(lane: &Arc<Lane>, marker: &Marker) -> Result<()> {
        lane.wait(marker)
    }

    fn open(lane: &Arc<Lane>, open: bool) -> Result<()> {
        lane.set_open(open)
    }

    fn is_done(marker: &Marker) -> Result<bool> {
        marker.is_done()
    }

    fn block(marker: &Marker) -> Result<()> {
        marker.block()
    }

    fn notify(marker: &Marker, then: CompletionCallback) -> Option<CompletionCallback> {
        marker.notify(then)
    }

    fn host_point(devices: &Devices<Self>) -> Result<(Marker, Signal)> {
        exec::host_point(&devices.state().context)
    }

    fn fail(signal: Signal) {
        signal.fail();
    }

    fn settle(lane: &Arc<Lane>, epoch: u64) -> Result<()> {
        lane.settle(epoch)
    }

    const REPORTS_FAILURES: bool = true;

    fn failed(lane: &Arc<Lane>) -> Vec<u64> {
        lane.unreported()
    }

    fn recover(lane: &Arc<Lane>) -> bool {
        lane.recover()
    }

    const FOREIGN_ON_HOST: bool = true;

    fn launch(
        device: &Object<Device>,
        kernel: &Object<Kernel>,
        request: &LaunchRequest<'_>,
    ) -> Result<Arc<Launch>> {
        kernel.launch(device, request).map(Arc::new)
    }

    fn is_plain(
        _: &Object<Device>,
        kernel: &Object<Kernel>,
        launch: &PlainLaunch<'_>,
        _: &mut (),
    ) -> bool {
        kernel.is_plain(launch.args)
    }

    fn submit_plain(
        lane: &Arc<Lane>,
        epoch: u64,
        kernel: &Object<Kernel>,
        launch: &PlainLaunch<'_>,
        (): &mut (),
        timestamps: Option<Arc<Timestamps>>,
        make: impl FnOnce() -> Result<Arc<Launch>>,
    ) -> Result<Progress> {
        let request = LaunchRequest::new(launch.global.len() as u32, *launch, None)?;
        lane.launch(epoch, kernel, &request, timestamps, make)?;
        Ok(Progress::Pending)
    }

    fn acquire(
        devices: &Devices<Self>,
        device: Option<&Object<Device>>,
        kind: Kind,
        bytes: usize,
        zeroed: bool,
    ) -> Result<usize> {
        let state = devices.state();
        let own = device.unwrap_or(&devices.devices()[0]);
        let query = |bytes| allocate(devices, own, kind, bytes);
        let slab = state.acquire(bytes, SLAB_BYTES, query, |start| free(devices, start))?;
        if zeroed && let Err(error) = clear(state, own, slab, bytes) {
            free(devices, state.forget(slab));
            return Err(error);
        }
        state.slabs.add(slab, bytes);
        Ok(slab)
    }

    fn release(devices: &Devices<Self>, _: Kind, slab: usize, _: usize) {
        let state = devices.state();
        state.slabs.remove(slab);
        free(devices, state.forget(slab));
    }

    fn granularity(_: Option<&Object<Device>>, _: Kind) -> usize {
        SLAB_BYTES
    }

    /// A buffer has no address. Its addresses count from 0, as offsets.
    fn buffer(mem: &Object<Mem>, _: &Object<Device>) -> Result<(usize, usize)> {
        mem.check_buffer()?;
        Ok((0, mem.bytes()?))
    }

    fn on_buffers(
        work: Work<Self>,
        dst: Option<&Object<Mem>>,
        src: Option<&Object<Mem>>,
    ) -> Work<Self> {
        crate::mem::on_buffers(work, dst, src)
    }

    fn map(
        mem: &Object<Mem>,
        _: &Object<Device>,
        flags: ur_map_flags_t,
        offset: usize,
        bytes: usize,
    ) -> Result<(MappedPointer, Work<Self>)> {
        Ok(mem.map(flags, offset, bytes))
    }

    fn unmap(mem: &Object<Mem>, _: &Object<Device>, addr: usize) -> Result<Work<Self>> {
        Ok(mem.unmap(addr))
    }

    fn global(
        program: &Object<Program>,
        device: &Object<Device>,
        name: &CStr,
    ) -> Result<(usize, usize)> {
        program.global(device, name)
    }

    fn compile(
        devices: &Devices<Self>,
        device: &Object<Device>,
        steps: &[Step<'_, Self>],
        from: usize,
        updatable: bool,
    ) -> Option<(usize, Arc<dyn Compiled<Self>>)> {
        record::compile(devices, device, steps, from, updatable)
    }

    fn native_record(
        devices: &Devices<Self>,
        device: &Object<Device>,
    ) -> Result<Arc<dyn NativeRecord<Self>>> {
        native_record::open(devices, device)
    }

    fn now(device: &Object<Device>) -> Result<u64> {
        exec::now(device)
    }
}

/// Allocates memory of the driver.
fn allocate(
    devices: &Devices<OpenCl>,
    device: &Object<Device>,
    kind: Kind,
    bytes: usize,
) -> Result<usize> {
    let context = &devices.state().context;
    let (api, raw) = (context.api(), context.raw());
    let mut code = CL_SUCCESS;
    // SAFETY: the context and the device are alive, and a null property list is none.
    let start = unsafe {
        match (kind, api.ext()) {
            (Kind::Host, ext) if let Some(alloc) = ext.clHostMemAllocINTEL => {
                alloc(raw, null(), bytes, 0, &mut code)
            }
            (Kind::Device, ext) if let Some(alloc) = ext.clDeviceMemAllocINTEL => {
                alloc(raw, device.raw(), null(), bytes, 0, &mut code)
            }
            (Kind::Shared, ext) if let Some(alloc) = ext.clSharedMemAllocINTEL => {
                alloc(raw, device.raw(), null(), bytes, 0, &mut code)
            }
            _ => shared_virtual(devices, bytes)?,
        }
    };
    if start.is_null() || code != CL_SUCCESS {
        let none = kind.exhausted();
        let error = failure(code, "allocating memory");
        let full = matches!(
            code,
            CL_SUCCESS
                | CL_OUT_OF_RESOURCES
                | CL_OUT_OF_HOST_MEMORY
                | CL_MEM_OBJECT_ALLOCATION_FAILURE
                | CL_INVALID_BUFFER_SIZE
        );
        return Err(if full { Error::new(none) } else { error });
    }
    Ok(start.expose_provenance())
}

/// Allocates shared virtual memory in place of USM, if all devices reach it without mapping.
fn shared_virtual(devices: &Devices<OpenCl>, bytes: usize) -> Result<*mut c_void> {
    let fine = |device: &Arc<Object<Device>>| device.svm() & CL_DEVICE_SVM_FINE_GRAIN_BUFFER != 0;
    let alloc = devices.state().context.api().core.clSVMAlloc;
    let alloc = alloc
        .filter(|_| devices.devices().iter().all(fine))
        .ok_or(Error::unsupported())?;
    let atomic = |device: &Arc<Object<Device>>| device.svm() & CL_DEVICE_SVM_ATOMICS != 0;
    let mut flags = CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER;
    if devices.devices().iter().all(atomic) {
        flags |= CL_MEM_SVM_ATOMICS;
    }
    // SAFETY: `ContextRef` holds a reference to the context.
    Ok(unsafe { alloc(devices.state().context.raw(), flags, bytes, 0) })
}

fn free(devices: &Devices<OpenCl>, start: usize) {
    let context = &devices.state().context;
    let start = ptr::with_exposed_provenance_mut(start);
    // SAFETY: the pool releases a slab of this context once its use is over.
    unsafe {
        match (
            context.api().ext().clMemFreeINTEL,
            context.api().core.clSVMFree,
        ) {
            (Some(free), _) => {
                let code = free(context.raw(), start);
                if code != CL_SUCCESS {
                    log::error!("clMemFreeINTEL failed with {code}");
                }
            }
            (None, Some(free)) => free(context.raw(), start),
            (None, None) => {}
        }
    }
}

/// Zeroes new memory and waits until it is zero.
fn clear(state: &ContextData, device: &Object<Device>, start: usize, bytes: usize) -> Result<()> {
    let lane = Lane::open(&state.context, device, ur_queue_flags_t(0))?;
    let pattern = [0; 16][..].into();
    lane.submit(
        1,
        Work::Fill {
            dst: start,
            pattern,
            bytes,
        },
        None,
    )?;
    // SAFETY: `QueueRef` holds a reference to the queue.
    let code = unsafe { (state.context.api().core.clFinish)(lane.queue().raw()) };
    check(code, "clFinish")
}

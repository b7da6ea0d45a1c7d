//! The bridge from the stream engine to lanes and memory. Each method calls one function of `exec`, after it has
//! resolved handles.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Object, Result};
use ur::stream::{
    Compiled, Devices, Driver, HostFunction, Kind, LaunchRequest, MappedPointer, NativeRecord,
    Payload, PlainLaunch, Progress, QueueOptions, Step, Timestamps, Work,
};
use ur::timeline::Clock;

use crate::LevelZero;
use crate::context::{ContextData, first, native};
use crate::device::Device;
use crate::exec::{self, Lane, Marker, Native, Signal, pages};
use crate::kernel::{Kernel, Launch, Range};
use crate::lz::Holder;
use crate::mem::{self, Mem};
use crate::program::Program;
use crate::settings::Settings;
use crate::sharing;

/// Bytes that the size of a slab is a multiple of.
pub const SLAB_BYTES: usize = 2 << 20;

/// A device of the context. Host memory, which has no device, uses the first.
fn place<'a>(
    devices: &'a Devices<LevelZero>,
    device: Option<&'a Object<Device>>,
) -> Result<&'a Object<Device>> {
    match device {
        Some(device) => Ok(device),
        None => first(devices),
    }
}

impl Payload for LevelZero {
    type Launch = Arc<Launch>;
    type Native = Native;
}

impl Driver for LevelZero {
    type ContextData = ContextData;
    type Lane = Lane;
    type Marker = Marker;
    type Signal = Signal;
    type Plain = Range;

    /// Completion is queried: a stamped event costs less than a command for each.
    const TRACKS: bool = false;
    const REGISTERS: bool = true;

    fn default_threshold() -> u64 {
        Settings::get().pools.kept_bytes
    }

    fn keeps_by_default(kind: Kind) -> bool {
        Settings::get().pools.keeps(kind)
    }

    fn max_alloc(device: &Object<Device>) -> usize {
        exec::max_slab(device)
    }

    fn parent(device: &Object<Device>) -> Option<Arc<Object<Device>>> {
        device.parent().cloned()
    }

    fn check_options(device: &Object<Device>, options: &QueueOptions) -> Result<()> {
        device.compute_queue(options.compute_index).map(drop)
    }

    fn lane(
        devices: &Devices<Self>,
        device: &Object<Device>,
        options: &QueueOptions,
        _: &Arc<Clock>,
    ) -> Result<Lane> {
        let flags = Settings::get().submission(options.flags);
        let queue = device.compute_queue(options.compute_index)?;
        Lane::on(native(devices), device, queue, flags)
    }

    fn submit(
        lane: &Lane,
        _: u64,
        work: Work<Self>,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<Progress> {
        lane.submit(work, timestamps)?;
        Ok(Progress::Pending)
    }

    #[inline(always)]
    fn copy(lane: &Lane, _: u64, dst: usize, src: usize, bytes: usize) -> Result<Progress> {
        lane.copy(dst, src, bytes)?;
        Ok(Progress::Pending)
    }

    /// A batch that nobody asked for is not submitted.
    fn is_seen_done(_: &Lane, marker: &Marker) -> Result<bool> {
        match Self::is_held_back(marker) {
            true => Ok(false),
            false => marker.is_done(),
        }
    }

    fn is_held_back(marker: &Marker) -> bool {
        matches!(marker, Marker::Event(event) if event.is_batched())
    }

    fn flush(lane: &Lane) -> Result<()> {
        lane.flush()
    }

    fn mark(lane: &Lane, _: u64) -> Result<Marker> {
        lane.mark()
    }

    fn wait(lane: &Lane, marker: &Marker) -> Result<()> {
        lane.wait(marker)
    }

    fn open(lane: &Lane, open: bool) -> Result<()> {
        lane.set_open(open)
    }

    fn is_done(marker: &Marker) -> Result<bool> {
        marker.is_done()
    }

    fn block(marker: &Marker) -> Result<()> {
        marker.block()
    }

    fn host_point(devices: &Devices<Self>) -> Result<(Marker, Signal)> {
        exec::host_point(native(devices), first(devices)?)
    }

    fn fail(signal: Signal) {
        signal.fail();
    }

    fn recover(lane: &Lane) -> bool {
        lane.recover()
    }

    fn launch(
        device: &Object<Device>,
        kernel: &Object<Kernel>,
        request: &LaunchRequest<'_>,
    ) -> Result<Arc<Launch>> {
        kernel.launch(device, request).map(Arc::new)
    }

    #[inline(always)]
    fn is_plain(
        device: &Object<Device>,
        kernel: &Object<Kernel>,
        launch: &PlainLaunch<'_>,
        range: &mut Range,
    ) -> bool {
        kernel.is_plain(device, launch, range)
    }

    #[inline(always)]
    fn submit_plain(
        lane: &Lane,
        _: u64,
        kernel: &Object<Kernel>,
        launch: &PlainLaunch<'_>,
        range: &mut Range,
        timestamps: Option<Arc<Timestamps>>,
        make: impl FnOnce() -> Result<Arc<Launch>>,
    ) -> Result<Progress> {
        match timestamps.is_none() && !lane.is_deferring() {
            true => kernel.submit_plain(lane, launch.args, range)?,
            false => lane.submit(Work::Launch(make()?), timestamps)?,
        }
        Ok(Progress::Pending)
    }

    fn acquire(
        devices: &Devices<Self>,
        device: Option<&Object<Device>>,
        kind: Kind,
        bytes: usize,
        zeroed: bool,
    ) -> Result<usize> {
        let context = native(devices);
        let device = place(devices, device)?;
        let start = exec::alloc(context, device, kind, bytes, 0)?;
        if zeroed && let Err(error) = exec::zero(context, device, kind, start, bytes) {
            exec::free(context, start);
            return Err(error);
        }
        Ok(start)
    }

    fn release(devices: &Devices<Self>, _: Kind, addr: usize, _: usize) {
        exec::free(native(devices), addr);
    }

    fn granularity(_: Option<&Object<Device>>, _: Kind) -> usize {
        SLAB_BYTES
    }

    /// Pages are the user's choice, and device memory's alone.
    fn page(device: Option<&Object<Device>>, kind: Kind) -> Option<usize> {
        let device = device.filter(|_| kind == Kind::Device && Settings::get().pages)?;
        let able = device.has_virtual_memory().ok()?;
        able.then_some(pages::PAGE_BYTES)
    }

    fn largest_page(device: Option<&Object<Device>>, kind: Kind) -> Option<usize> {
        Self::page(device, kind).map(|_| pages::LARGEST_PAGE_BYTES)
    }

    fn reserve(devices: &Devices<Self>, _: usize, bytes: usize) -> Result<usize> {
        pages::reserve(native(devices), bytes)
    }

    fn unreserve(devices: &Devices<Self>, addr: usize, bytes: usize) {
        pages::unreserve(native(devices), addr, bytes);
    }

    fn create_pages(
        devices: &Devices<Self>,
        device: Option<&Object<Device>>,
        _: Kind,
        page: usize,
        count: usize,
        zeroed: bool,
    ) -> Result<Vec<u64>> {
        let device = place(devices, device)?;
        pages::create(native(devices), device, (page, count), zeroed)
    }

    fn destroy_pages(devices: &Devices<Self>, all: &[u64]) {
        pages::destroy(native(devices), all);
    }

    fn map_pages(
        devices: &Devices<Self>,
        _: Option<&Object<Device>>,
        _: Kind,
        page: usize,
        addr: usize,
        all: &[u64],
    ) -> Result<()> {
        pages::map(native(devices), addr, page, all)
    }

    /// The driver refuses a second mapping of a block.
    const MAPS_ONCE: bool = true;

    fn unmap_pages(devices: &Devices<Self>, addr: usize, bytes: usize) {
        pages::unmap(native(devices), addr, bytes);
    }

    fn register_host(devices: &Devices<Self>, addr: usize, bytes: usize, _: bool) -> Result<()> {
        let state = devices.state();
        let imports = state.native.imports.ok_or(Error::unsupported())?;
        let import = imports.import(addr, bytes, Holder::User)?;
        state.registered.lock().insert(addr, import);
        Ok(())
    }

    fn unregister_host(devices: &Devices<Self>, addr: usize) {
        let ended = devices.state().registered.lock().remove(&addr);
        drop(ended);
    }

    fn import_host(devices: &Devices<Self>, addr: usize, bytes: usize) {
        exec::import_of_user(native(devices), addr, bytes);
    }

    fn release_host(devices: &Devices<Self>, addr: usize) {
        if let Some(imports) = native(devices).imports {
            imports.release_of_user(addr);
        }
    }

    fn shared_event(devices: &Devices<Self>, device: &Object<Device>) -> Result<Marker> {
        sharing::new_event(devices, device)
    }

    fn record_shared(event: &Marker) -> Result<Work<Self>> {
        sharing::record_event(event)
    }

    fn buffer(mem: &Object<Mem>, device: &Object<Device>) -> Result<(usize, usize)> {
        mem.check_buffer()?;
        mem.begin_transfer(device)?;
        Ok((mem.address(), mem.bytes()))
    }

    fn on_buffers(
        work: Work<Self>,
        dst: Option<&Object<Mem>>,
        src: Option<&Object<Mem>>,
    ) -> Work<Self> {
        if let Some(dst) = dst {
            dst.is_written();
        }
        mem::on_buffers(work, dst.map(|mem| &**mem), src.map(|mem| &**mem))
    }

    fn map(
        mem: &Object<Mem>,
        device: &Object<Device>,
        flags: ur_map_flags_t,
        offset: usize,
        bytes: usize,
    ) -> Result<(MappedPointer, Work<Self>)> {
        mem.map(device, flags, offset, bytes)
    }

    fn unmap(mem: &Object<Mem>, _: &Object<Device>, addr: usize) -> Result<Work<Self>> {
        mem.unmap(addr)
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
        exec::compile(native(devices), device, steps, from, updatable)
    }

    const NATIVE_GRAPHS: bool = true;

    fn native_graph(
        devices: &Devices<Self>,
        device: &Object<Device>,
        steps: &[Step<'_, Self>],
    ) -> Option<Arc<dyn Compiled<Self>>> {
        exec::whole(native(devices), device, steps)
    }

    fn native_record(
        devices: &Devices<Self>,
        device: &Object<Device>,
    ) -> Result<Arc<dyn NativeRecord<Self>>> {
        exec::record(native(devices), device)
    }

    const CAPTURES_STREAMS: bool = true;

    fn is_captured(lane: &Lane) -> bool {
        lane.is_captured()
    }

    fn begin_capture(lane: &Lane) -> Result<bool> {
        lane.begin_capture()
    }

    fn end_capture(lane: &Lane) -> Result<Option<Work<Self>>> {
        lane.end_capture()
    }

    fn host_function(lane: &Lane, run: HostFunction, data: *mut c_void) -> Result<()> {
        lane.host_function(run, data)
    }

    fn now(device: &Object<Device>) -> Result<u64> {
        device.now()
    }
}

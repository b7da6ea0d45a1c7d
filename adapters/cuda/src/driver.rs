//! The bridge from the stream engine to CUDA. Each method calls one function of `exec`, after it has
//! resolved handles.

use std::ffi::{CStr, c_void};
use std::sync::{Arc, OnceLock};

use ur::abi::*;
use ur::object::env::Env;
use ur::object::{Error, Handles, Object, Result, ensure};
use ur::stream::{
    Compiled, CompletionCallback, Devices, Driver, HostFunction, Kind, LaunchRequest,
    MappedPointer, NativeLimits, NativePool, NativeRecord, Payload, PlainLaunch, Progress,
    QueueOptions, Step, Timestamps, Work,
};
use ur::timeline::Clock;

use crate::Cuda;
use crate::adapter::roots;
use crate::bindless::Bindless;
use crate::device::Device;
use crate::exec::{
    Gpu, Lane, Marker, Members, Native, Pages, Pool, Remote, Signal, compile, host_may_have,
    host_point, whole,
};
use crate::kernel::{Kernel, Launch, Plain};
use crate::mem::{self, Mem};
use crate::program::Program;
use crate::sharing::{self, Shared};
use crate::vendor::Access;
use crate::virtual_mem::AddressSpace;

/// Bytes that the size of a slab without pages is a multiple of.
const SLAB_BYTES: usize = 2 << 20;

/// The adapter's data of a context.
pub struct ContextData {
    /// The primary contexts of its devices, which this retains.
    gpus: Vec<Arc<Gpu>>,
    /// The numbers of its devices.
    pub members: Members,
    pub space: AddressSpace,
    pub shared: Shared,
    pub bindless: Bindless,
}

impl ContextData {
    pub fn of(devices: Handles<'_, Device>) -> Result<Self> {
        let gpus: Result<Vec<_>> = devices.iter().map(|device| device.gpu()).collect();
        let gpus = gpus?;
        Ok(Self {
            members: gpus.iter().map(|gpu| gpu.device).collect(),
            gpus,
            space: AddressSpace::default(),
            shared: Shared::default(),
            bindless: Bindless::default(),
        })
    }

    /// Reserves addresses, at `hint` if they are free there.
    pub fn reserve(&self, hint: usize, bytes: usize) -> Result<usize> {
        let paged = self.gpus.iter().find(|gpu| gpu.pages.is_some());
        self.space
            .reserve(paged.ok_or(Error::unsupported())?, hint, bytes)
    }

    /// Bytes of a page of the device, else of a page that suits all devices: a range of the context may get memory
    /// of any of them.
    pub fn page_bytes(&self, device: Option<&Object<Device>>) -> Result<usize> {
        match device {
            Some(device) => Ok(pages(&*device.gpu()?)?.bytes),
            None => {
                let each = self.pages().map(|pages| pages.bytes);
                each.max().ok_or(Error::unsupported())
            }
        }
    }

    /// The pages of its devices that have any.
    fn pages(&self) -> impl Iterator<Item = Pages> {
        self.gpus.iter().filter_map(|gpu| gpu.pages)
    }
}

/// The context's first device.
pub fn first(devices: &Devices<Cuda>) -> Result<&Arc<Gpu>> {
    let first = devices.state().gpus.first();
    first.ok_or(Error::new(UR_RESULT_ERROR_INVALID_CONTEXT))
}

/// The primary contexts of the context's devices.
pub fn gpus(devices: &Devices<Cuda>) -> &[Arc<Gpu>] {
    &devices.state().gpus
}

/// A device of the context. Host memory, which has no device, uses the first.
fn gpu<'a>(devices: &'a Devices<Cuda>, device: Option<&Object<Device>>) -> Result<&'a Arc<Gpu>> {
    let at = match device {
        Some(device) => devices.index_of(device),
        None => Some(0),
    };
    let found = at.and_then(|at| devices.state().gpus.get(at));
    found.ok_or(Error::new(UR_RESULT_ERROR_INVALID_DEVICE))
}

/// Below this size no free memory is queried: the allocation itself is tried.
const SMALL_REQUEST_BYTES: usize = 128 << 20;

fn pages_of(gpu: &Gpu, kind: Kind) -> Result<Pages> {
    match kind {
        Kind::Host => gpu.host_pages.ok_or(Error::unsupported()),
        Kind::Device | Kind::Shared => pages(gpu),
    }
}

fn pages(gpu: &Gpu) -> Result<Pages> {
    crate::virtual_mem::pages(gpu)
}

/// Pages of any device of the context, for calls that concern no certain one.
fn any_pages(devices: &Devices<Cuda>) -> Result<Pages> {
    let first = devices.state().pages().next();
    first.ok_or(Error::unsupported())
}

/// Whether the user wants the driver's pools for pools whose flags allow both.
fn wants_native_pools() -> bool {
    static WANTS: OnceLock<bool> = OnceLock::new();
    *WANTS.get_or_init(|| Env::process().flag("UR_CUDA_NATIVE_POOLS", false))
}

impl Payload for Cuda {
    type Launch = Arc<Launch>;
    type Native = Native;
}

impl Driver for Cuda {
    type ContextData = ContextData;
    type Lane = Lane;
    type Marker = Marker;
    type Signal = Signal;
    type Plain = Plain;

    /// Completion is queried: a callback for each command costs more than a rare query.
    const TRACKS: bool = false;

    /// All contexts share a device's primary context, and streams can wait for any device's events.
    const SPANS: bool = true;
    const REGISTERS: bool = true;

    fn max_alloc(device: &Object<Device>) -> usize {
        device.total_memory().unwrap_or(usize::MAX)
    }

    fn lane(
        devices: &Devices<Self>,
        device: &Object<Device>,
        options: &QueueOptions,
        _: &Arc<Clock>,
    ) -> Result<Lane> {
        Lane::open(gpu(devices, Some(device))?, options.flags)
    }

    fn submit(
        lane: &Lane,
        epoch: u64,
        work: Work<Self>,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<Progress> {
        lane.submit(epoch, work, timestamps)?;
        Ok(Progress::Pending)
    }

    #[inline(always)]
    fn copy(lane: &Lane, _: u64, dst: usize, src: usize, bytes: usize) -> Result<Progress> {
        lane.copy(dst, src, bytes)
    }

    #[inline(always)]
    fn fill(lane: &Lane, epoch: u64, dst: usize, pattern: &[u8], bytes: usize) -> Result<Progress> {
        lane.fill(epoch, dst, pattern, bytes)
    }

    fn is_idle(lane: &Lane) -> Result<bool> {
        lane.is_idle()
    }

    fn is_seen_done(lane: &Lane, marker: &Marker) -> Result<bool> {
        lane.is_seen_done(marker)
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

    fn notify(marker: &Marker, then: CompletionCallback) -> Option<CompletionCallback> {
        marker.notify(then)
    }

    fn host_point(devices: &Devices<Self>) -> Result<(Marker, Signal)> {
        host_point(first(devices)?)
    }

    fn fail(signal: Signal) {
        signal.fail();
    }

    fn recover(lane: &Lane) -> bool {
        lane.recover()
    }

    fn call_user(device: &Object<Device>, call: impl FnOnce()) -> Result<()> {
        let gpu = device.gpu()?;
        let _current = gpu.enter_for_user()?;
        call();
        Ok(())
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
        plain: &mut Plain,
    ) -> bool {
        kernel.is_plain(device, launch, plain)
    }

    #[inline(always)]
    fn submit_plain(
        lane: &Lane,
        _: u64,
        _: &Object<Kernel>,
        _: &PlainLaunch<'_>,
        plain: &mut Plain,
        timestamps: Option<Arc<Timestamps>>,
        make: impl FnOnce() -> Result<Arc<Launch>>,
    ) -> Result<Progress> {
        lane.launch_plain(plain, timestamps, make)
    }

    fn acquire(
        devices: &Devices<Self>,
        device: Option<&Object<Device>>,
        kind: Kind,
        bytes: usize,
        zeroed: bool,
    ) -> Result<usize> {
        let gpu = gpu(devices, device)?;
        if kind == Kind::Device {
            gpu.open_to(&devices.state().gpus);
        }
        gpu.slab(kind, bytes, zeroed)
    }

    fn release(devices: &Devices<Self>, kind: Kind, addr: usize, _: usize) {
        if let Ok(gpu) = first(devices) {
            gpu.free_slab(kind, addr);
        }
    }

    fn granularity(device: Option<&Object<Device>>, kind: Kind) -> usize {
        Self::page(device, kind).unwrap_or(SLAB_BYTES)
    }

    fn page(device: Option<&Object<Device>>, kind: Kind) -> Option<usize> {
        match (device, kind) {
            (Some(device), Kind::Device) => Some(device.gpu().ok()?.pages?.bytes),
            (_, Kind::Host) => roots()?.platform.host_page(),
            _ => None,
        }
    }

    fn largest_page(device: Option<&Object<Device>>, kind: Kind) -> Option<usize> {
        let least = Self::page(device, kind)?;
        let large = match device {
            Some(device) if kind == Kind::Device => device.gpu().ok()?.largest_page,
            _ => return None,
        };
        (large > least).then_some(large)
    }

    fn reserve(devices: &Devices<Self>, page: usize, bytes: usize) -> Result<usize> {
        let pages = any_pages(devices)?.with(page);
        pages.reserve(first(devices)?.api, 0, bytes)
    }

    fn unreserve(devices: &Devices<Self>, addr: usize, bytes: usize) {
        if let Ok(pages) = any_pages(devices) {
            pages.unreserve(addr, bytes);
        }
    }

    fn create_pages(
        devices: &Devices<Self>,
        device: Option<&Object<Device>>,
        kind: Kind,
        page: usize,
        count: usize,
        zeroed: bool,
    ) -> Result<Vec<u64>> {
        let gpu = gpu(devices, device)?;
        let pages = pages_of(gpu, kind)?.with(page);
        let bytes = count.saturating_mul(pages.bytes);
        let (there, none) = match kind {
            _ if bytes <= SMALL_REQUEST_BYTES => (true, UR_RESULT_ERROR_UNKNOWN),
            Kind::Host => (host_may_have(bytes), UR_RESULT_ERROR_OUT_OF_HOST_MEMORY),
            _ => (gpu.may_have(bytes)?, UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY),
        };
        ensure(there, none)?;
        let all = pages.create_pages(gpu.api, count)?;
        if zeroed && let Err(error) = gpu.zero_pages(&pages, &all) {
            all.iter().for_each(|page| pages.destroy(*page));
            return Err(error);
        }
        Ok(all)
    }

    fn destroy_pages(devices: &Devices<Self>, all: &[u64]) {
        if let Ok(pages) = any_pages(devices) {
            all.iter().for_each(|page| pages.destroy(*page));
        }
    }

    fn map_pages(
        devices: &Devices<Self>,
        device: Option<&Object<Device>>,
        kind: Kind,
        page: usize,
        addr: usize,
        all: &[u64],
    ) -> Result<()> {
        let gpu = gpu(devices, device)?;
        let pages = pages_of(gpu, kind)?.with(page);
        let access = Access::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if kind != Kind::Host {
            let members = &devices.state().members;
            return gpu.map_shared(&pages, addr, all, members, access);
        }
        let mut who = vec![pages.home];
        who.extend(devices.state().gpus.iter().map(|gpu| gpu.location()));
        pages.map_pages(gpu.api, addr, all, &who, access)
    }

    const LEAVES_MAPPED: bool = true;

    fn unmap_pages(devices: &Devices<Self>, addr: usize, bytes: usize) {
        let gpus = &devices.state().gpus;
        gpus.iter().for_each(|gpu| gpu.unmap_shared(addr, bytes));
        if let Ok(pages) = any_pages(devices) {
            pages.with(bytes).unmap_pages(addr, 1);
        }
    }

    fn native_pool(
        devices: &Devices<Self>,
        device: Option<&Object<Device>>,
        kind: Kind,
        limits: &NativeLimits,
    ) -> Option<Box<dyn NativePool<Self>>> {
        if !wants_native_pools() {
            return None;
        }
        let gpu = gpu(devices, device).ok()?;
        let ContextData { gpus, members, .. } = devices.state();
        let pool = Pool::create(gpu, gpus, members, kind, limits)?;
        Some(Box::new(pool))
    }

    fn can_access(device: &Object<Device>, home: &Object<Device>) -> bool {
        let gpus = device.gpu().and_then(|gpu| Ok((gpu, home.gpu()?)));
        gpus.is_ok_and(|(gpu, home)| gpu.reaches(&home))
    }

    fn foreign_home(device: &Object<Device>, addr: usize) -> Option<Arc<Object<Device>>> {
        let home = device.gpu().ok()?.far_home(addr)?;
        let mut all = roots()?.platform.devices().iter();
        all.find(|device| device.raw() == home).cloned()
    }

    fn remote(
        _: &Object<Device>,
        work: Work<Self>,
        homes: [Option<&Object<Device>>; 2],
        is_foreign: bool,
    ) -> Result<Work<Self>> {
        let gpu = |home: Option<&Object<Device>>| home.map(|home| home.gpu()).transpose();
        let [dst, src] = homes;
        let (dst, src) = (gpu(dst)?, gpu(src)?);
        let remote = Remote {
            work,
            dst,
            src,
            is_foreign,
        };
        Ok(Work::Native(Native::Remote(Arc::new(remote))))
    }

    fn register_host(
        devices: &Devices<Self>,
        addr: usize,
        bytes: usize,
        read_only: bool,
    ) -> Result<()> {
        for gpu in &devices.state().gpus {
            ensure(gpu.shares_addresses(), UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        }
        first(devices)?.register_for_devices(addr, bytes, read_only)
    }

    fn unregister_host(devices: &Devices<Self>, addr: usize) {
        if let Ok(gpu) = first(devices) {
            gpu.unregister(addr);
        }
    }

    fn import_host(devices: &Devices<Self>, addr: usize, bytes: usize) {
        if let Ok(gpu) = first(devices) {
            devices.state().shared.import_host(gpu, addr, bytes);
        }
    }

    fn release_host(devices: &Devices<Self>, addr: usize) {
        devices.state().shared.release_host(addr);
    }

    fn shared_event(_: &Devices<Self>, device: &Object<Device>) -> Result<Marker> {
        sharing::new_event(device)
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
        mem::on_buffers(work, dst.map(|dst| &**dst), src.map(|src| &**src))
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
        _: &Devices<Self>,
        device: &Object<Device>,
        steps: &[Step<'_, Self>],
        from: usize,
        _: bool,
    ) -> Option<(usize, Arc<dyn Compiled<Self>>)> {
        compile(&device.gpu().ok()?, steps, from)
    }

    const NATIVE_GRAPHS: bool = true;

    fn native_graph(
        _: &Devices<Self>,
        device: &Object<Device>,
        steps: &[Step<'_, Self>],
    ) -> Option<Arc<dyn Compiled<Self>>> {
        whole(&device.gpu().ok()?, steps)
    }

    const RECORDS_NEST: bool = true;

    fn native_record(
        _: &Devices<Self>,
        device: &Object<Device>,
    ) -> Result<Arc<dyn NativeRecord<Self>>> {
        crate::exec::record(&device.gpu()?)
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
        device.gpu()?.now()
    }
}

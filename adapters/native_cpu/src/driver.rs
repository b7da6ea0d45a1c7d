//! The bridge from the stream engine to the executor. Each method calls one function of `exec`,
//! after it has resolved handles, and converts its failure to an error code.

use std::convert::Infallible;
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ur::abi::*;
use ur::hal::{VirtualMemGranularityInfo, VirtualMemInfo};
use ur::object::{Error, Handles, InfoOut, Object, Result, ensure};
use ur::stream::{
    CompletionCallback, Context, Devices, Driver, Hooks, Kind, LaunchRequest, MappedPointer,
    Payload, Pitched, Progress, Timestamps, Work,
};
use ur::timeline::Clock;

use crate::Cpu;
use crate::adapter::{error, roots};
use crate::cpu::memory_bytes;
use crate::device::Device;
use crate::exec::{self, Command, Completion, Lane, Launch, Marker, Signal, Stamp};
use crate::kernel::Kernel;
use crate::mem::Mem;
use crate::pages::{self, PAGE_BYTES};
use crate::program::Program;
use crate::virtual_mem::{AddressSpace, PhysicalMem, granularity};

impl Payload for Cpu {
    type Launch = Arc<Launch>;
    type Native = Infallible;
}

impl Driver for Cpu {
    type ContextData = AddressSpace;
    type Lane = Lane;
    type Marker = Marker;
    type Signal = Signal;
    type Plain = ();

    const TRACKS: bool = true;
    /// All contexts share one machine.
    const SPANS: bool = true;
    const REGISTERS: bool = true;

    fn parent(device: &Object<Device>) -> Option<Arc<Object<Device>>> {
        device.parent().cloned()
    }

    /// The device is the host: it reaches all of the host's memory.
    fn register_host(_: &Devices<Self>, _: usize, _: usize, _: bool) -> Result<()> {
        Ok(())
    }

    fn max_alloc(_: &Object<Device>) -> usize {
        usize::try_from(memory_bytes()).unwrap_or(usize::MAX)
    }

    fn lane(
        _: &Devices<Self>,
        device: &Object<Device>,
        _: ur_queue_flags_t,
        clock: &Arc<Clock>,
    ) -> Result<Lane> {
        Lane::open(&device.machine.thread_pool()?, device.workers, clock).map_err(error)
    }

    fn submit(
        lane: &Lane,
        epoch: u64,
        work: Work<Self>,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<Progress> {
        if timestamps.is_none() && runs_here(lane, &work) {
            return Ok(Progress::Done);
        }
        let stamp = timestamps.map(|timestamps| Arc::new(Stamped(timestamps)) as Arc<dyn Stamp>);
        lane.submit(epoch, command(work), stamp).map_err(error)?;
        Ok(Progress::Pending)
    }

    fn mark(lane: &Lane, epoch: u64) -> Result<Marker> {
        Ok(lane.mark(epoch))
    }

    fn wait(lane: &Lane, marker: &Marker) -> Result<()> {
        lane.wait(marker).map_err(error)
    }

    fn is_done(marker: &Marker) -> Result<bool> {
        marker.check().map_err(error)
    }

    fn block(marker: &Marker) -> Result<()> {
        marker.block().map_err(error)
    }

    fn notify(marker: &Marker, then: CompletionCallback) -> Option<CompletionCallback> {
        marker.on_completion(then).err()
    }

    fn host_point(_: &Devices<Self>) -> Result<(Marker, Signal)> {
        let thread_pool = roots().device.machine.thread_pool()?;
        Ok(Completion::host_point(&thread_pool, &Clock::new()))
    }

    fn signal(signal: Signal) {
        drop(signal);
    }

    fn launch(
        device: &Object<Device>,
        kernel: &Object<Kernel>,
        request: &LaunchRequest<'_>,
    ) -> Result<Arc<Launch>> {
        kernel.launch(device, request).map(Arc::new)
    }

    fn granularity(_: Option<&Object<Device>>, _: Kind) -> usize {
        PAGE_BYTES
    }

    fn page(_: Option<&Object<Device>>, _: Kind) -> Option<usize> {
        Some(PAGE_BYTES)
    }

    fn reserve(devices: &Devices<Self>, _: usize, bytes: usize) -> Result<usize> {
        pages::reserve(bytes, devices.is_deterministic())
    }

    fn unreserve(_: &Devices<Self>, addr: usize, bytes: usize) {
        pages::unreserve(addr, bytes);
    }

    fn create_pages(
        _: &Devices<Self>,
        _: Option<&Object<Device>>,
        kind: Kind,
        _: usize,
        count: usize,
        _: bool,
    ) -> Result<Vec<u64>> {
        pages::create(kind, count)
    }

    fn map_pages(
        _: &Devices<Self>,
        _: Option<&Object<Device>>,
        _: Kind,
        _: usize,
        addr: usize,
        pages: &[u64],
    ) -> Result<()> {
        pages::map(addr, pages.len())
    }

    fn unmap_pages(_: &Devices<Self>, addr: usize, bytes: usize) {
        pages::unmap(addr, bytes);
    }

    fn buffer(mem: &Object<Mem>, _: &Object<Device>) -> Result<(usize, usize)> {
        Ok((mem.address(), mem.bytes()))
    }

    fn map(
        mem: &Object<Mem>,
        _: &Object<Device>,
        _: ur_map_flags_t,
        offset: usize,
        bytes: usize,
    ) -> Result<(MappedPointer, Work<Self>)> {
        Ok((MappedPointer::at(mem.range(offset, bytes)?), Work::Marker))
    }

    fn unmap(mem: &Object<Mem>, _: &Object<Device>, address: usize) -> Result<Work<Self>> {
        let inside = address
            .checked_sub(mem.address())
            .is_some_and(|offset| offset < mem.bytes());
        ensure(inside, UR_RESULT_ERROR_INVALID_VALUE)?;
        Ok(Work::Marker)
    }

    fn global(
        program: &Object<Program>,
        device: &Object<Device>,
        name: &CStr,
    ) -> Result<(usize, usize)> {
        program.global(device, name)
    }

    fn now(_: &Object<Device>) -> Result<u64> {
        Ok(exec::now())
    }
}

/// Runs small work on the calling thread if the lane is idle. Returns whether it ran.
fn runs_here(lane: &Lane, work: &Work<Cpu>) -> bool {
    // Commands without work here are complete once their dependencies are.
    let empty = matches!(
        work,
        Work::Marker | Work::Prefetch { .. } | Work::Advise { .. }
    );
    let runs = (empty || work.suits_host()) && lane.is_idle();
    if runs {
        work.run_on_host();
    }
    runs
}

fn command(work: Work<Cpu>) -> Command {
    match work {
        // Prefetches and advice have no effect: all memory is the host's.
        Work::Marker | Work::Prefetch { .. } | Work::Advise { .. } => Command::Nothing,
        Work::Copy { dst, src, bytes } => Command::Copy { dst, src, bytes },
        Work::CopyRect { dst, src, region } => Command::CopyRect {
            dst: pitched(dst),
            src: pitched(src),
            region,
        },
        Work::Fill {
            dst,
            pattern,
            bytes,
        } => Command::Fill {
            dst,
            pattern: pattern[..].into(),
            bytes,
        },
        Work::FillRect {
            dst,
            pattern,
            region,
        } => Command::FillRect {
            dst: pitched(dst),
            pattern: pattern[..].into(),
            region,
        },
        Work::Launch(launch) => Command::Launch(launch),
        Work::Native(never) => match never {},
    }
}

fn pitched(from: Pitched) -> exec::Pitched {
    exec::Pitched {
        addr: from.addr,
        row_pitch: from.row_pitch,
        slice_pitch: from.slice_pitch,
    }
}

struct Stamped(Arc<Timestamps>);

impl Stamp for Stamped {
    fn started(&self, at: u64) {
        self.0.start.store(at, Ordering::Relaxed);
    }

    fn ended(&self, at: u64) {
        self.0.end.store(at, Ordering::Relaxed);
    }
}

fn pointer(address: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address)
}

type OfContext = Object<Context<Cpu>>;

impl Hooks<Cpu> for Cpu {
    fn mem_buffer_create(
        this: &OfContext,
        flags: ur_mem_flags_t,
        size: usize,
        properties: Option<&ur_buffer_properties_t>,
    ) -> Result<Arc<Object<Mem>>> {
        Mem::create(this, flags, size, properties)
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

    fn program_create_with_il(
        _: &OfContext,
        _: &[u8],
        _: Option<&ur_program_properties_t>,
    ) -> Result<Arc<Object<Program>>> {
        Err(Error::new(UR_RESULT_ERROR_COMPILER_NOT_AVAILABLE))
    }

    fn program_build(
        this: &OfContext,
        program: &Object<Program>,
        options: Option<&CStr>,
    ) -> Result<()> {
        let devices = this.devices().iter().map(|device| &**device);
        program.build(this, devices, UR_PROGRAM_BINARY_TYPE_EXECUTABLE, options)
    }

    fn program_compile(
        this: &OfContext,
        program: &Object<Program>,
        options: Option<&CStr>,
    ) -> Result<()> {
        let devices = this.devices().iter().map(|device| &**device);
        program.build(
            this,
            devices,
            UR_PROGRAM_BINARY_TYPE_COMPILED_OBJECT,
            options,
        )
    }

    fn program_link(
        this: &OfContext,
        programs: Handles<'_, Program>,
        options: Option<&CStr>,
    ) -> Result<Arc<Object<Program>>> {
        Program::link(
            this,
            this.devices().iter().map(|device| &**device),
            programs,
            options,
        )
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

    /// Checks the programs only: the system's linker resolves symbols when it loads a shared object.
    fn program_dynamic_link_exp(this: &OfContext, programs: Handles<'_, Program>) -> Result<()> {
        programs
            .iter()
            .try_for_each(|program| program.check_context(this))
    }

    fn virtual_mem_granularity_get_info(
        _: &OfContext,
        _: Option<&Object<Device>>,
        _: usize,
        what: VirtualMemGranularityInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        match what {
            VirtualMemGranularityInfo::Minimum | VirtualMemGranularityInfo::Recommended => {
                out.value(granularity())
            }
        }
    }

    fn virtual_mem_reserve(
        this: &OfContext,
        start: *const c_void,
        size: usize,
    ) -> Result<*mut c_void> {
        this.domain()
            .state()
            .reserve(start.addr(), size)
            .map(pointer)
    }

    fn virtual_mem_free(this: &OfContext, start: *const c_void, size: usize) -> Result<()> {
        this.domain().state().free(start.addr(), size)
    }

    fn virtual_mem_map(
        this: &OfContext,
        start: *const c_void,
        size: usize,
        memory: &Object<PhysicalMem>,
        offset: usize,
        flags: ur_virtual_mem_access_flags_t,
    ) -> Result<()> {
        this.domain()
            .state()
            .map(start.addr(), size, memory, offset, flags)
    }

    fn virtual_mem_unmap(this: &OfContext, start: *const c_void, size: usize) -> Result<()> {
        this.domain().state().unmap(start.addr(), size)
    }

    fn virtual_mem_set_access(
        this: &OfContext,
        start: *const c_void,
        size: usize,
        flags: ur_virtual_mem_access_flags_t,
    ) -> Result<()> {
        this.domain().state().set_access(start.addr(), size, flags)
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
                out.value(this.domain().state().access(start.addr(), size)?)
            }
        }
    }

    fn physical_mem_create(
        this: &OfContext,
        device: &Object<Device>,
        size: usize,
        properties: Option<&ur_physical_mem_properties_t>,
    ) -> Result<Arc<Object<PhysicalMem>>> {
        PhysicalMem::create(this, device, size, properties)
    }
}

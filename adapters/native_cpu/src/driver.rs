//! The bridge from the stream engine to the executor. Each method calls one function of `exec`,
//! after it has resolved handles, and converts its failure to an error code.

use std::convert::Infallible;
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ur::abi::*;
use ur::object::{Object, Result, ensure};
use ur::stream::{
    CompletionCallback, Devices, Driver, Kind, LaunchRequest, MappedPointer, Payload, Progress,
    QueueOptions, Timestamps, Work,
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
use crate::virtual_mem::AddressSpace;

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
        _: &QueueOptions,
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
        Work::CopyRect { dst, src, region } => Command::CopyRect { dst, src, region },
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
            dst,
            pattern: pattern[..].into(),
            region,
        },
        Work::Launch(launch) => Command::Launch(launch),
        Work::Native(never) => match never {},
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

//! The bridge from the stream engine to lanes and memory.
//!
//! The copy calls its driver here. As the backend gains features, it overrides further methods of `Driver` and names
//! functions in `Hooks`: `launch` for kernels, `buffer` for buffers, `page` and what follows it for pages.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::convert::Infallible;
use std::ptr;
use std::sync::Arc;

use ur::abi::*;
use ur::hal::{NoKernel, NoMem};
use ur::object::{Error, Object, Result};
use ur::stream::{
    Devices, Driver, Hooked, Kind, LaunchRequest, Payload, Progress, QueueOptions, Timestamps, Work,
};
use ur::timeline::Clock;

use crate::Skeleton;
use crate::device::{Device, MEMORY_BYTES};
use crate::lane::{self, Lane, Marker, Signal};

/// Alignment and granularity of slabs, in bytes.
const SLAB_ALIGN: usize = 4096;

impl Payload for Skeleton {
    type Launch = Infallible;
    type Native = Infallible;
}

impl Hooked for Skeleton {}

impl Driver for Skeleton {
    type ContextData = ();
    type Lane = Lane;
    type Marker = Marker;
    type Signal = Signal;
    type Plain = ();

    const TRACKS: bool = true;
    /// All contexts share the host's memory.
    const SPANS: bool = true;

    fn lane(
        _: &Devices<Self>,
        _: &Object<Device>,
        _: &QueueOptions,
        clock: &Arc<Clock>,
    ) -> Result<Lane> {
        Lane::open(clock)
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

    fn mark(lane: &Lane, epoch: u64) -> Result<Marker> {
        Ok(lane.mark(epoch))
    }

    fn wait(lane: &Lane, marker: &Marker) -> Result<()> {
        lane.wait(marker)
    }

    fn is_done(marker: &Marker) -> Result<bool> {
        Ok(marker.is_done())
    }

    fn block(marker: &Marker) -> Result<()> {
        marker.block();
        Ok(())
    }

    fn host_point(_: &Devices<Self>) -> Result<(Marker, Signal)> {
        Ok(Marker::host_point())
    }

    fn signal(signal: Signal) {
        drop(signal);
    }

    fn launch(
        _: &Object<Device>,
        _: &Object<NoKernel>,
        _: &LaunchRequest<'_>,
    ) -> Result<Infallible> {
        Err(Error::unsupported())
    }

    fn acquire(
        _: &Devices<Self>,
        _: Option<&Object<Device>>,
        kind: Kind,
        bytes: usize,
        zeroed: bool,
    ) -> Result<usize> {
        let none = Error::new(match kind {
            Kind::Host => UR_RESULT_ERROR_OUT_OF_HOST_MEMORY,
            Kind::Device | Kind::Shared => UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
        });
        let layout = Layout::from_size_align(bytes, SLAB_ALIGN).map_err(|_| none)?;
        if bytes == 0 {
            return Err(none);
        }
        let make = if zeroed { alloc_zeroed } else { alloc };
        // SAFETY: the layout has bytes.
        let start = unsafe { make(layout) };
        match start.is_null() {
            true => Err(none),
            false => Ok(start.expose_provenance()),
        }
    }

    fn release(_: &Devices<Self>, _: Kind, addr: usize, bytes: usize) {
        if let Ok(layout) = Layout::from_size_align(bytes, SLAB_ALIGN) {
            // SAFETY: `Driver::release` gets each slab of `acquire` once, with its size.
            unsafe { dealloc(ptr::with_exposed_provenance_mut(addr), layout) };
        }
    }

    fn granularity(_: Option<&Object<Device>>, _: Kind) -> usize {
        SLAB_ALIGN
    }

    fn max_alloc(_: &Object<Device>) -> usize {
        MEMORY_BYTES
    }

    fn buffer(_: &Object<NoMem>, _: &Object<Device>) -> Result<(usize, usize)> {
        Err(Error::unsupported())
    }

    fn now(_: &Object<Device>) -> Result<u64> {
        Ok(lane::now())
    }
}

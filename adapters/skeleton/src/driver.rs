//! The bridge from the stream engine to lanes and memory.
//!
//! The copy calls its driver here. For a device with memory of its own it writes `acquire`, `release` and `granularity`
//! in place of `host_slabs!`. As the backend gains features, it overrides further methods of `Driver` and
//! names functions in `Hooks`: `launch` for kernels, `buffer` for buffers, `page` and what follows it for pages.

use std::convert::Infallible;
use std::sync::Arc;

use ur::object::{Object, Result, host_time};
use ur::stream::{Devices, Driver, Hooked, Payload, Progress, QueueOptions, Timestamps, Work};
use ur::timeline::Clock;

use crate::Skeleton;
use crate::device::{Device, MEMORY_BYTES};
use crate::lane::{Lane, Marker, Signal};

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

    ur::host_slabs!();

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
        lane.submit(epoch, move || {
            let start = host_time();
            match work {
                Work::Launch(never) | Work::Native(never) => match never {},
                ref work => work.run_on_host(),
            }
            if let Some(timestamps) = timestamps {
                timestamps.record(start, host_time());
            }
        })?;
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

    fn max_alloc(_: &Object<Device>) -> usize {
        MEMORY_BYTES as usize
    }

    fn now(_: &Object<Device>) -> Result<u64> {
        Ok(host_time())
    }
}

//! A buffer's copies on the devices of a context (`ur::stream::Copies`), as CUDA makes them.

use std::sync::Arc;

use ur::object::Result;
use ur::stream::{BufferRange, Home, Work};

use super::gpu::{Event, Gpu};
use super::remote::{Remote, copy_peer};
use super::work::{self, Native};
use crate::Cuda;
use crate::cu::RelaxedCapture;
use crate::cu::sys::{CUdevice, CUstream};

pub type Copies = ur::stream::Copies<Gpu>;

pub type Part = BufferRange<Gpu>;

/// The context of the device that commands are submitted to is current.
impl Home for Gpu {
    type Id = CUdevice;
    type Stream = CUstream;
    type Arrival = Event;

    #[inline]
    fn id(&self) -> CUdevice {
        self.device
    }

    fn reaches(&self, other: &Self) -> bool {
        Gpu::reaches(self, other)
    }

    fn bring(
        this: &Arc<Self>,
        stream: &CUstream,
        dst: usize,
        (other, src): (&Arc<Self>, usize),
        bytes: usize,
    ) -> Result<Event> {
        let event = this.event(false)?;
        match Gpu::reaches(this, other) {
            true => work::enqueue_here(this, *stream, Work::Copy { dst, src, bytes })?,
            false => copy_peer(this, *stream, (this, dst), (other, src), bytes)?,
        }
        event.record(*stream)?;
        Ok(event)
    }

    fn wait(this: &Arc<Self>, stream: &CUstream, arrival: &Event) -> Result<()> {
        this.wait_on(*stream, arrival)
    }

    fn has_arrived(arrival: &Event) -> bool {
        arrival.is_done().is_ok_and(|done| done)
    }

    fn name(stream: &CUstream) -> usize {
        stream.expose_provenance()
    }

    fn is_captured(&self, stream: &CUstream) -> bool {
        let relaxed = RelaxedCapture::new(self.api);
        relaxed.is_captured(self.context(), *stream)
    }
}

/// A copy or fill on buffers with copies. Their addresses in `work` count from the start of the whole buffer.
pub fn transfer(work: Work<Cuda>, dst: Option<Part>, src: Option<Part>) -> Work<Cuda> {
    Work::Native(Native::call(move |gpu, stream| {
        let (work, homes, is_foreign) = match &work {
            Work::Native(Native::Remote(remote)) => {
                let homes = [remote.dst.clone(), remote.src.clone()];
                (remote.work.clone(), homes, remote.is_foreign)
            }
            work => (work.clone(), [None, None], false),
        };
        let find = |part: &Option<Part>, writes: bool| {
            let part = part.as_ref();
            let found = part.map(|part| part.copies.for_transfer(gpu, &stream, writes));
            found.transpose()
        };
        let (from, to) = (find(&src, false)?, find(&dst, true)?);
        let base = |found: &Option<(usize, Arc<Gpu>)>| found.as_ref().map_or(0, |found| found.0);
        let work = work.moved(base(&to), base(&from));
        let [dst, src] = homes;
        let remote = Remote {
            work,
            dst: to.map(|(_, gpu)| gpu).or(dst),
            src: from.map(|(_, gpu)| gpu).or(src),
            is_foreign,
        };
        remote.enqueue(gpu, stream)
    }))
}

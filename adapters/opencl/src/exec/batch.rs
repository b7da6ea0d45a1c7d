//! The OpenCL commands of one piece of work. The first waits for all that the lane has to wait for.

use std::ffi::c_void;
use std::ptr::{self, null, null_mut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use opencl_sys::*;
use ur::object::{Error, Result};
use ur::stream::{Pitched, Work};

use super::Position;
use super::flush::SMALL_COPY_BYTES;
use super::lane::{Lane, Last, Pending};
use super::outcomes::Watched;
use crate::OpenCl;
use crate::cl::{Api, EventRef, check};
use crate::record::Recorder;

/// The arguments of an enqueue call: queue, wait list and the address for its event.
pub struct Slot {
    pub queue: cl_command_queue,
    pub count: cl_uint,
    pub waits: *const cl_event,
    pub event: *mut cl_event,
}

/// Enqueues one command. It may be called several times.
type Enqueue = Arc<dyn Fn(&Api, &Slot) -> Result<()> + Send + Sync>;

/// A command that the engine has no form of.
#[derive(Clone)]
pub struct Native {
    pub run: Enqueue,
    /// Records the command into a native command buffer, if OpenCL can.
    pub record: Option<Record>,
    /// Host memory that the command reads.
    pub host_memory: Option<Arc<[u8]>>,
    /// Whether the caller needs a result of the enqueue call. Then the command cannot be deferred.
    pub answers: bool,
}

/// Records one command into a native command buffer.
type Record = Arc<dyn Fn(&Recorder) -> Result<()> + Send + Sync>;

impl Native {
    /// Adds a function that records the command.
    pub fn recorded_by(
        mut self,
        record: impl Fn(&Recorder) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.record = Some(Arc::new(record));
        self
    }

    pub fn new(run: impl Fn(&Api, &Slot) -> Result<()> + Send + Sync + 'static) -> Self {
        Self {
            run: Arc::new(run),
            record: None,
            host_memory: None,
            answers: false,
        }
    }

    /// A command whose enqueue call has a result for its caller.
    pub fn that_answers(run: impl Fn(&Api, &Slot) -> Result<()> + Send + Sync + 'static) -> Self {
        Self {
            answers: true,
            ..Self::new(run)
        }
    }
}

/// The commands of one piece of work.
pub(super) struct Batch<'a> {
    lane: &'a Lane,
    pending: &'a mut Pending,
    /// The epoch of the engine's command that these belong to.
    epoch: u64,
    pub info: BatchInfo,
}

/// Properties of a batch.
#[derive(Default)]
pub(super) struct BatchInfo {
    /// Whether the first command's event is wanted.
    pub timed: bool,
    pub first: Option<Position>,
    /// The host's time of queuing in nanoseconds, if the driver does not report the clock of events.
    pub queued: Option<u64>,
    /// Whether the batch has more than small copies.
    pub weighs: bool,
}

/// Bytes of the longest pattern that OpenCL fills with.
const MAX_PATTERN_BYTES: usize = 128;

/// Whether OpenCL fills with a pattern of this size at this address, or at this offset of a buffer.
pub fn plain_pattern(dst: usize, pattern: &[u8]) -> bool {
    let size = pattern.len();
    size.is_power_of_two() && size <= MAX_PATTERN_BYTES && dst.is_multiple_of(size)
}

impl<'a> Batch<'a> {
    pub fn of(lane: &'a Lane, pending: &'a mut Pending) -> Self {
        Self {
            lane,
            epoch: pending.epoch,
            pending,
            info: BatchInfo::default(),
        }
    }

    /// Enqueues one command behind the lane's pending waits.
    pub fn enqueue(&mut self, run: impl FnOnce(&Api, &Slot) -> Result<()>) -> Result<()> {
        let before = self.pending.last.event().filter(|_| !self.lane.in_order);
        let mut waits = Vec::new();
        if before.is_some() || !self.pending.waits.is_empty() {
            let markers = self.pending.waits.iter().map(Position::event);
            waits.extend(markers.chain(before).map(EventRef::raw));
        }
        let mut event = null_mut();
        let slot = Slot {
            queue: self.lane.queue().raw(),
            count: waits.len() as cl_uint,
            waits: if waits.is_empty() {
                null()
            } else {
                waits.as_ptr()
            },
            event: &mut event,
        };
        run(self.lane.api(), &slot)?;
        for wait in self.pending.waits.drain(..).filter(Position::is_foreign) {
            // A driver may run the command although the wait fails, so that the wait is queried, too.
            self.lane
                .submissions
                .record(self.epoch, Watched::Wait(wait));
        }
        // SAFETY: a successful enqueue returns an event with a reference for the caller.
        let event = unsafe { EventRef::adopted(self.lane.api(), event, true) }?;
        self.lane
            .submissions
            .record(self.epoch, Watched::Command(event.clone()));
        self.pending.last = Last::Event(event);
        if self.info.timed && self.info.first.is_none() {
            self.info.first = self.pending.last.mark(self.lane);
        }
        Ok(())
    }

    /// Retains host memory until the last command has read it.
    fn host_memory(&mut self, memory: Arc<[u8]>) {
        if let Some(marker) = self.pending.last.mark(self.lane) {
            self.pending.host_memory.push_back((marker, memory));
        }
    }

    pub fn work(&mut self, work: Work<OpenCl>) -> Result<()> {
        self.info.weighs |= match work {
            Work::Marker | Work::Advise { .. } => false,
            Work::Copy { bytes, .. } | Work::Fill { bytes, .. } => bytes > SMALL_COPY_BYTES,
            _ => true,
        };
        match work {
            Work::Marker | Work::Advise { .. } => self.marker(),
            Work::Copy { dst, src, bytes } => self.copy(dst, src, bytes),
            Work::CopyRect { dst, src, region } => runs(region, Some(&src), &dst)
                .try_for_each(|(src, dst, bytes)| self.copy(dst, src, bytes)),
            Work::Fill {
                dst,
                pattern,
                bytes,
            } => self.fill(dst, &pattern, bytes),
            Work::FillRect {
                dst,
                pattern,
                region,
            } => runs(region, None, &dst)
                .try_for_each(|(_, dst, bytes)| self.fill(dst, &pattern, bytes)),
            Work::Prefetch {
                addr,
                bytes,
                to_host,
            } => self.prefetch(addr, bytes, to_host),
            Work::Launch(launch) => self.enqueue(|api, slot| launch.enqueue(api, slot)),
            Work::Native(Native {
                run, host_memory, ..
            }) => {
                self.enqueue(|api, slot| run(api, slot))?;
                if let Some(memory) = host_memory {
                    self.host_memory(memory);
                }
                Ok(())
            }
        }
    }

    /// A barrier: the pending waits also hold back commands that foreign code submits.
    pub fn barrier(&mut self) -> Result<()> {
        // If a wait fails, the next command fails.
        self.epoch = self.pending.epoch + 1;
        let last = self.pending.last.mark(self.lane);
        let barrier = self.enqueue(|api, slot| {
            let enqueue = api.core.clEnqueueBarrierWithWaitList;
            // SAFETY: queue and waits are alive.
            let code = unsafe { enqueue(slot.queue, slot.count, slot.waits, slot.event) };
            check(code, "clEnqueueBarrierWithWaitList")
        });
        if barrier.is_ok() {
            // Drivers run commands behind a failed one, so that the next command waits for the barrier.
            self.pending.waits.extend(self.pending.last.mark(self.lane));
        }
        // The barrier is no command of the engine, so that the lane's last command stays.
        if let Some(last) = last {
            self.pending.last = Last::Marked(last);
        }
        barrier
    }

    pub fn marker(&mut self) -> Result<()> {
        if !self.lane.in_order && self.lane.open.load(Ordering::Relaxed) {
            // A barrier without a list waits for all work on the queue, foreign work included.
            self.barrier_of_all()?;
        }
        self.enqueue(|api, slot| {
            let enqueue = api.core.clEnqueueMarkerWithWaitList;
            // SAFETY: queue and waits are alive.
            let code = unsafe { enqueue(slot.queue, slot.count, slot.waits, slot.event) };
            check(code, "clEnqueueMarkerWithWaitList")
        })
    }

    fn barrier_of_all(&mut self) -> Result<()> {
        let (queue, mut event) = (self.lane.queue().raw(), null_mut());
        let enqueue = self.lane.api().core.clEnqueueBarrierWithWaitList;
        check(
            // SAFETY: the queue is alive, and there is no list.
            unsafe { enqueue(queue, 0, null(), &mut event) },
            "clEnqueueBarrierWithWaitList",
        )?;
        // SAFETY: a successful enqueue returns an event with a reference for the caller.
        let event = unsafe { EventRef::adopted(self.lane.api(), event, true) }?;
        self.lane
            .submissions
            .record(self.epoch, Watched::Command(event.clone()));
        self.pending.waits.push(self.lane.marker_of(event));
        Ok(())
    }

    fn copy(&mut self, dst: usize, src: usize, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return self.marker();
        }
        let (dst, src) = (
            ptr::with_exposed_provenance_mut(dst),
            ptr::with_exposed_provenance(src),
        );
        self.enqueue(|api, slot| {
            let Slot {
                queue,
                count,
                waits,
                event,
            } = *slot;
            // SAFETY: the caller keeps both ranges until the command has ended.
            let code = unsafe {
                match (api.ext().clEnqueueMemcpyINTEL, api.core.clEnqueueSVMMemcpy) {
                    (Some(copy), _) => copy(queue, CL_FALSE, dst, src, bytes, count, waits, event),
                    (None, Some(copy)) => {
                        copy(queue, CL_FALSE, dst, src, bytes, count, waits, event)
                    }
                    (None, None) => return Err(Error::unsupported()),
                }
            };
            check(code, "clEnqueueMemcpy")
        })
    }

    fn fill(&mut self, dst: usize, pattern: &[u8], bytes: usize) -> Result<()> {
        let size = pattern.len();
        if bytes == 0 || size == 0 {
            return self.marker();
        }
        if !plain_pattern(dst, pattern) {
            return self.fill_by_copies(dst, pattern, bytes);
        }
        let (to, from) = (
            ptr::with_exposed_provenance_mut(dst),
            pattern.as_ptr().cast(),
        );
        self.enqueue(|api, slot| {
            let Slot {
                queue,
                count,
                waits,
                event,
            } = *slot;
            // SAFETY: the caller keeps the range until the command has ended, and the call copies the pattern.
            let code = unsafe {
                match (
                    api.ext().clEnqueueMemFillINTEL,
                    api.core.clEnqueueSVMMemFill,
                ) {
                    (Some(fill), _) => fill(queue, to, from, size, bytes, count, waits, event),
                    (None, Some(fill)) => fill(queue, to, from, size, bytes, count, waits, event),
                    (None, None) => return Err(Error::unsupported()),
                }
            };
            check(code, "clEnqueueMemFill")
        })
    }

    /// Writes the pattern once, and doubles the filled part until the range is full.
    fn fill_by_copies(&mut self, dst: usize, pattern: &[u8], bytes: usize) -> Result<()> {
        let staged: Arc<[u8]> = pattern.into();
        let mut done = staged.len().min(bytes);
        self.copy(dst, staged.as_ptr().expose_provenance(), done)?;
        self.host_memory(staged);
        while done < bytes {
            let more = done.min(bytes - done);
            self.copy(dst + done, dst, more)?;
            done += more;
        }
        Ok(())
    }

    fn prefetch(&mut self, addr: usize, bytes: usize, to_host: bool) -> Result<()> {
        let Some(migrate) = self
            .lane
            .api()
            .ext()
            .clEnqueueMigrateMemINTEL
            .filter(|_| bytes > 0)
        else {
            return self.marker();
        };
        let addr: *const c_void = ptr::with_exposed_provenance(addr);
        let flags = if to_host {
            CL_MIGRATE_MEM_OBJECT_HOST
        } else {
            0
        };
        let moved = self.enqueue(|_, slot| {
            let Slot {
                queue,
                count,
                waits,
                event,
            } = *slot;
            check(
                // SAFETY: the caller keeps the range until the command has ended.
                unsafe { migrate(queue, addr, bytes, flags, count, waits, event) },
                "clEnqueueMigrateMemINTEL",
            )
        });
        // A driver without the hint gets a marker.
        moved.or_else(|_| self.marker())
    }
}

/// The contiguous parts of a box: source, target and bytes of each.
fn runs(
    region: [usize; 3],
    src: Option<&Pitched>,
    dst: &Pitched,
) -> impl Iterator<Item = (usize, usize, usize)> {
    let src = src.unwrap_or(dst);
    let [mut width, mut height, mut depth] = region;
    let (mut rows, mut slices) = (
        (src.row_pitch, dst.row_pitch),
        (src.slice_pitch, dst.slice_pitch),
    );
    if rows == (width, width) {
        (width, rows) = (width * height, slices);
        (height, slices) = (depth, (0, 0));
        depth = 1;
        if height > 1 && rows == (width, width) {
            (width, height) = (width * height, 1);
        }
    }
    let (from, to) = (src.addr, dst.addr);
    (0..depth).flat_map(move |z| {
        (0..height).map(move |y| {
            let row_start = |start: usize, row: usize, slice: usize| start + z * slice + y * row;
            (
                row_start(from, rows.0, slices.0),
                row_start(to, rows.1, slices.1),
                width,
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pitched(addr: usize, row_pitch: usize, slice_pitch: usize) -> Pitched {
        Pitched {
            addr,
            row_pitch,
            slice_pitch,
        }
    }

    #[test]
    fn a_packed_box_is_one_run_and_others_are_one_a_row() {
        let all = |region, src: Pitched, dst: Pitched| -> Vec<_> {
            runs(region, Some(&src), &dst).collect()
        };
        let packed = pitched(100, 4, 8);
        assert_eq!(all([4, 2, 3], packed, pitched(500, 4, 8)), [(100, 500, 24)]);
        assert_eq!(
            all([4, 2, 2], packed, pitched(500, 4, 10)),
            [(100, 500, 8), (108, 510, 8)]
        );
        assert_eq!(
            all([2, 2, 2], packed, pitched(500, 3, 6)),
            [(100, 500, 2), (104, 503, 2), (108, 506, 2), (112, 509, 2)]
        );
        assert_eq!(all([4, 1, 1], packed, pitched(500, 9, 9)), [(100, 500, 4)]);
    }
}

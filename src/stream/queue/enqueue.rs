//! Commands with work, from the entry point to the driver's call.
//!
//! There are two paths. The general one finds a command's dependencies, lane and timestamps, and gives the
//! driver a [`Work`]. The short one is for copies, fills and plain launches that are the next command of an
//! in-order queue without a wait list: [`Driver::copy`], [`Driver::fill`], [`Driver::submit_plain`]. They
//! make no [`Work`], which saves 19, 50 and about 1,000 instructions on CUDA.
//!
//! Between two commands the driver evicts most of our cache lines, so the cost of a command is the
//! number of lines of code and data that it touches. So the frequent case is inlined from the shim
//! to the driver's call, and everything else is in functions of their own.

#![allow(clippy::too_many_arguments)]

use crate::abi::*;
use crate::object::{Handles, Object, OutHandle, Result, ensure};
use crate::stream::driver::Progress;
use crate::stream::engine::dependencies::EventDependencies;
use crate::stream::event::{Event, Times};
use crate::stream::lane::extents;
use crate::stream::lane::{LaneCore, SubmissionGuard};
use crate::stream::queue::capture::{self, CaptureOrder};
use crate::stream::queue::{Recorder, Shape, stream_capture};
use crate::stream::recording::command::Command;
use crate::stream::{Driver, LaunchRequest, PlainLaunch, Queue, Timestamps, Work};
use std::ffi::c_void;
use std::hint::cold_path;
use std::sync::Arc;

impl<D: Driver> Queue<D> {
    /// `urEnqueueUSMMemcpy`
    #[inline(always)]
    pub(crate) fn copy(
        this: &Object<Self>,
        blocking: bool,
        dst: *mut c_void,
        src: *const c_void,
        bytes: usize,
        waits: Handles<'_, Event<D>>,
        event: OutHandle<'_, Event<D>>,
    ) -> Result<()> {
        if let Some(lane) = this.next_lane(waits, blocking) {
            let (dst, src) = (dst.expose_provenance(), src.expose_provenance());
            if lane.accesses([dst, src], bytes) {
                let mut guard = lane.submission();
                let epoch = guard.epoch();
                let Some(native) = guard.begin()? else {
                    return Self::skip(this, guard, UR_COMMAND_USM_MEMCPY, event);
                };
                let submitted = D::copy(native, epoch, dst, src, bytes);
                return Self::end(this, guard, submitted, UR_COMMAND_USM_MEMCPY, event);
            }
        }
        cold_path();
        Self::copy_checked(this, blocking, dst, src, bytes, waits, event)
    }

    /// A copy whose ranges are not known to lie inside their allocations.
    #[inline(never)]
    fn copy_checked(
        this: &Object<Self>,
        blocking: bool,
        dst: *mut c_void,
        src: *const c_void,
        bytes: usize,
        waits: Handles<'_, Event<D>>,
        event: OutHandle<'_, Event<D>>,
    ) -> Result<()> {
        let made = this.target().usm_copy(dst, src, bytes)?;
        // Other work is made for memory that the device cannot access.
        if matches!(made.work, Work::Copy { .. }) {
            extents::set_device(this.device(), [dst.addr(), src.addr()]);
        }
        Self::submit_command(this, made, waits, event, blocking)
    }

    /// `urEnqueueUSMFill`
    #[inline(always)]
    pub(crate) fn fill(
        this: &Object<Self>,
        dst: *mut c_void,
        pattern: &[u8],
        bytes: usize,
        waits: Handles<'_, Event<D>>,
        event: OutHandle<'_, Event<D>>,
    ) -> Result<()> {
        if let Some(lane) = this.next_lane(waits, false) {
            let dst = dst.expose_provenance();
            if lane.accesses([dst], bytes) {
                let mut guard = lane.submission();
                let epoch = guard.epoch();
                let Some(native) = guard.begin()? else {
                    return Self::skip(this, guard, UR_COMMAND_USM_FILL, event);
                };
                let submitted = D::fill(native, epoch, dst, pattern, bytes);
                return Self::end(this, guard, submitted, UR_COMMAND_USM_FILL, event);
            }
        }
        cold_path();
        Self::fill_checked(this, dst, pattern, bytes, waits, event)
    }

    /// A fill whose range is not known to lie inside its allocation.
    #[inline(never)]
    fn fill_checked(
        this: &Object<Self>,
        dst: *mut c_void,
        pattern: &[u8],
        bytes: usize,
        waits: Handles<'_, Event<D>>,
        event: OutHandle<'_, Event<D>>,
    ) -> Result<()> {
        let made = this.target().usm_fill(dst, pattern, bytes)?;
        if matches!(made.work, Work::Fill { .. }) {
            extents::set_device(this.device(), [dst.addr()]);
        }
        Self::submit_command(this, made, waits, event, false)
    }

    /// `urEnqueueKernelLaunchWithArgsExp`
    #[inline(always)]
    pub(crate) fn launch(
        this: &Object<Self>,
        kernel: &Object<D::Kernel>,
        dims: u32,
        launch: PlainLaunch<'_>,
        properties: Option<&ur_kernel_launch_ext_properties_t>,
        waits: Handles<'_, Event<D>>,
        event: OutHandle<'_, Event<D>>,
    ) -> Result<()> {
        let mut plain = D::Plain::default();
        if let Some(lane) = this.next_lane(waits, false)
            && (1..=3).contains(&dims)
            && properties.is_none()
            && D::is_plain(this.device(), kernel, &launch, &mut plain)
        {
            let make = || this.make_launch(kernel, dims, launch);
            let mut guard = lane.submission();
            let epoch = guard.epoch();
            let Some(native) = guard.begin()? else {
                return Self::skip(this, guard, UR_COMMAND_KERNEL_LAUNCH, event);
            };
            let submitted = D::submit_plain(native, epoch, kernel, &launch, &mut plain, None, make);
            return Self::end(this, guard, submitted, UR_COMMAND_KERNEL_LAUNCH, event);
        }
        cold_path();
        Self::launch_after(this, kernel, dims, launch, properties, waits, event)
    }

    fn make_launch(
        &self,
        kernel: &Object<D::Kernel>,
        dims: u32,
        launch: PlainLaunch<'_>,
    ) -> Result<D::Launch> {
        D::launch(
            self.device(),
            kernel,
            &LaunchRequest::new(dims, launch, None)?,
        )
    }

    /// A launch that is not plain, or not the next command of its lane.
    #[inline(never)]
    fn launch_after(
        this: &Object<Self>,
        kernel: &Object<D::Kernel>,
        dims: u32,
        launch: PlainLaunch<'_>,
        properties: Option<&ur_kernel_launch_ext_properties_t>,
        waits: Handles<'_, Event<D>>,
        event: OutHandle<'_, Event<D>>,
    ) -> Result<()> {
        let mut plain = D::Plain::default();
        if (1..=3).contains(&dims)
            && properties.is_none()
            && this.recorder(waits)?.is_none()
            && D::is_plain(this.device(), kernel, &launch, &mut plain)
        {
            let make = || this.make_launch(kernel, dims, launch);
            let command = UR_COMMAND_KERNEL_LAUNCH;
            return Self::submit_after(this, command, waits, event, false, |lane, epoch, times| {
                D::submit_plain(lane, epoch, kernel, &launch, &mut plain, times, make)
            });
        }
        let request = LaunchRequest::new(dims, launch, properties)?;
        let made = this.target().launch(kernel, request)?;
        Self::submit_command(this, made, waits, event, false)
    }

    /// Enqueues one command. With `blocking`, returns when it has completed.
    pub fn enqueue(
        this: &Object<Self>,
        command: ur_command_t,
        waits: Handles<'_, Event<D>>,
        work: Work<D>,
        event: OutHandle<'_, Event<D>>,
        blocking: bool,
    ) -> Result<()> {
        Self::submit_command(this, Command::new(command, work), waits, event, blocking)
    }

    /// As [`Queue::enqueue`], with the objects that the command uses.
    pub(crate) fn submit_command(
        this: &Object<Self>,
        made: Command<'_, D>,
        waits: Handles<'_, Event<D>>,
        event: OutHandle<'_, Event<D>>,
        blocking: bool,
    ) -> Result<()> {
        match this.recorder(waits)? {
            None => {}
            Some(Recorder::Graph) => {
                ensure(!blocking, UR_RESULT_ERROR_INVALID_OPERATION)?;
                return capture::record(this, made, waits, event, CaptureOrder::Command);
            }
            Some(Recorder::Stream) => {
                ensure(!blocking, stream_capture::NOT_CAPTURABLE.code())?;
                return stream_capture::submit(this, made, waits, event);
            }
        }
        let Command { kind, work, .. } = made;
        Self::submit_with(this, kind, waits, event, blocking, |lane, epoch, times| {
            D::submit(lane, epoch, work, times)
        })
    }

    /// Enqueues a command that `submit` submits to a lane.
    #[inline(always)]
    fn submit_with(
        this: &Object<Self>,
        command: ur_command_t,
        waits: Handles<'_, Event<D>>,
        event: OutHandle<'_, Event<D>>,
        blocking: bool,
        submit: impl FnOnce(&D::Lane, u64, Option<Arc<Timestamps>>) -> Result<Progress>,
    ) -> Result<()> {
        if let Some(lane) = this.next_lane(waits, blocking) {
            let mut guard = lane.submission();
            let epoch = guard.epoch();
            let Some(native) = guard.begin()? else {
                return Self::skip(this, guard, command, event);
            };
            let submitted = submit(native, epoch, None);
            return Self::end(this, guard, submitted, command, event);
        }
        cold_path();
        Self::submit_after(this, command, waits, event, blocking, submit)
    }

    /// The lane of the next command, if that needs no wait, no other lane and no timestamps.
    #[inline(always)]
    pub(crate) fn next_lane(
        &self,
        waits: Handles<'_, Event<D>>,
        blocking: bool,
    ) -> Option<&LaneCore<D>> {
        let Shape::InOrder(lane) = &self.shape else {
            return None;
        };
        let alone = waits.is_empty() && !blocking && !self.is_captured() && !self.is_profiled();
        (alone && !lane.is_forked()).then_some(&**lane)
    }

    /// Ends the submission of the next command of [`Queue::next_lane`].
    #[inline(always)]
    fn end(
        this: &Object<Self>,
        mut guard: SubmissionGuard<'_, D>,
        submitted: Result<Progress>,
        command: ur_command_t,
        event: OutHandle<'_, Event<D>>,
    ) -> Result<()> {
        let watched = guard.end(submitted)?;
        if event.wanted() {
            cold_path();
            let deps = guard.dependencies(watched);
            event.make(D::table(), || Event::new(this, command, deps, None));
        }
        Ok(())
    }

    /// Ends the submission of a command that must not run.
    #[cold]
    fn skip(
        this: &Object<Self>,
        mut guard: SubmissionGuard<'_, D>,
        command: ur_command_t,
        event: OutHandle<'_, Event<D>>,
    ) -> Result<()> {
        let watched = guard.skip()?;
        if event.wanted() {
            let deps = guard.dependencies(watched);
            event.make(D::table(), || Event::new(this, command, deps, None));
        }
        Ok(())
    }

    /// Submits a command in all other cases: wait lists, blocking, profiling, several lanes.
    #[inline(never)]
    fn submit_after(
        this: &Object<Self>,
        command: ur_command_t,
        waits: Handles<'_, Event<D>>,
        event: OutHandle<'_, Event<D>>,
        blocking: bool,
        submit: impl FnOnce(&D::Lane, u64, Option<Arc<Timestamps>>) -> Result<Progress>,
    ) -> Result<()> {
        this.engine().check()?;
        let wanted = event.wanted() || blocking;
        let times = if event.wanted() {
            this.times(false)?
        } else {
            None
        };
        let timestamps = times.as_ref().map(|times| Arc::clone(&times.timestamps));
        let submit = |lane: &D::Lane, epoch| submit(lane, epoch, timestamps);
        let deps = match &this.shape {
            Shape::InOrder(lane) => lane.submit_with(
                &Event::dependency_list(this.context(), waits)?,
                wanted,
                submit,
            ),
            Shape::OutOfOrder(lanes) => {
                let waits = Event::join_list(this.context(), waits)?;
                lanes.lock().submit_with(&waits, wanted, submit)
            }
        }?;
        Self::deliver(this, command, deps, times, event, blocking)
    }

    /// Returns the event of a command, and waits for it if `blocking`.
    #[inline]
    pub(crate) fn deliver(
        this: &Object<Self>,
        command: ur_command_t,
        deps: Option<EventDependencies>,
        times: Option<Times>,
        event: OutHandle<'_, Event<D>>,
        blocking: bool,
    ) -> Result<()> {
        let Some(deps) = deps else { return Ok(()) };
        if blocking {
            this.engine().wait_dependencies(&deps)?;
        }
        event.make(D::table(), || Event::new(this, command, deps, times));
        Ok(())
    }
}

//! The short way of the most frequent commands: copies, fills and launches, from the entry point to
//! the driver's call.
//!
//! Between two commands the driver evicts most of our cache lines, so the cost is the number of
//! lines of code and data that a command touches. A plain command of an in-order queue makes no
//! [`Work`]; everything else is in functions of their own.

#![allow(clippy::too_many_arguments)]

use crate::abi::*;
use crate::object::{Handles, Object, OutHandle, Result};
use crate::stream::driver::Progress;
use crate::stream::event::Event;
use crate::stream::lane::{LaneCore, SubmissionGuard};
use crate::stream::queue::Shape;
use crate::stream::{Driver, LaunchRequest, PlainLaunch, Queue, Work};
use std::ffi::c_void;
use std::hint::cold_path;

impl<D: Driver> Queue<D> {
    /// The lane of the next command, if the short way suffices.
    #[inline(always)]
    pub(crate) fn next_lane(
        &self,
        waits: Handles<'_, Event<D>>,
        blocking: bool,
    ) -> Option<&LaneCore<D>> {
        let Shape::InOrder(lane) = &self.shape else {
            return None;
        };
        let alone = waits.is_empty() && !blocking && !self.capture.is_on() && !self.is_profiled();
        (alone && !lane.is_forked()).then_some(&**lane)
    }

    /// Ends the submission of a command on the short way.
    #[inline(always)]
    pub(crate) fn end(
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
    pub(crate) fn skip(
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
            let mut guard = lane.submission();
            if guard.is_inside_extent([dst, src], bytes) {
                let epoch = guard.epoch();
                let Some(native) = guard.begin()? else {
                    return Self::skip(this, guard, UR_COMMAND_USM_MEMCPY, event);
                };
                let submitted = D::copy(native, epoch, dst, src, bytes);
                return Self::end(this, guard, submitted, UR_COMMAND_USM_MEMCPY, event);
            }
        }
        cold_path();
        Self::copy_general(this, blocking, dst, src, bytes, waits, event)
    }

    #[inline(never)]
    fn copy_general(
        this: &Object<Self>,
        blocking: bool,
        dst: *mut c_void,
        src: *const c_void,
        bytes: usize,
        waits: Handles<'_, Event<D>>,
        event: OutHandle<'_, Event<D>>,
    ) -> Result<()> {
        let made = this.target().usm_copy(dst, src, bytes)?;
        if let Some(lane) = this.next_lane(waits, blocking) {
            lane.cache_extents(&[dst.addr(), src.addr()]);
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
            let mut guard = lane.submission();
            if guard.is_inside_extent([dst], bytes) {
                let epoch = guard.epoch();
                let Some(native) = guard.begin()? else {
                    return Self::skip(this, guard, UR_COMMAND_USM_FILL, event);
                };
                let submitted = D::fill(native, epoch, dst, pattern, bytes);
                return Self::end(this, guard, submitted, UR_COMMAND_USM_FILL, event);
            }
        }
        cold_path();
        Self::fill_general(this, dst, pattern, bytes, waits, event)
    }

    #[inline(never)]
    fn fill_general(
        this: &Object<Self>,
        dst: *mut c_void,
        pattern: &[u8],
        bytes: usize,
        waits: Handles<'_, Event<D>>,
        event: OutHandle<'_, Event<D>>,
    ) -> Result<()> {
        let made = this.target().usm_fill(dst, pattern, bytes)?;
        if let Some(lane) = this.next_lane(waits, false) {
            lane.cache_extents(&[dst.addr()]);
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
        if !D::PLAIN {
            return Self::launch_any(this, kernel, dims, launch, properties, waits, event);
        }
        let mut plain = D::Plain::default();
        if let Some(lane) = this.next_lane(waits, false)
            && (1..=3).contains(&dims)
            && properties.is_none()
            && D::is_plain(this.device(), kernel, &launch, &mut plain)
        {
            let make = || {
                D::launch(
                    this.device(),
                    kernel,
                    &LaunchRequest::new(dims, launch, None)?,
                )
            };
            let mut guard = lane.submission();
            let epoch = guard.epoch();
            let Some(native) = guard.begin()? else {
                return Self::skip(this, guard, UR_COMMAND_KERNEL_LAUNCH, event);
            };
            let submitted = D::submit_plain(native, epoch, &mut plain, make);
            return Self::end(this, guard, submitted, UR_COMMAND_KERNEL_LAUNCH, event);
        }
        cold_path();
        Self::launch_general(this, kernel, dims, launch, properties, waits, event)
    }

    #[inline(never)]
    fn launch_general(
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
            && !this.is_captured(waits)
            && D::is_plain(this.device(), kernel, &launch, &mut plain)
        {
            let make = || {
                D::launch(
                    this.device(),
                    kernel,
                    &LaunchRequest::new(dims, launch, None)?,
                )
            };
            let command = UR_COMMAND_KERNEL_LAUNCH;
            return Self::submit_with(
                this,
                command,
                waits,
                event,
                false,
                |lane, epoch, timestamps| match timestamps {
                    None => D::submit_plain(lane, epoch, &mut plain, make),
                    timestamps => {
                        D::submit(lane, epoch, Work::Launch(make()?), timestamps)?;
                        Ok(Progress::Pending)
                    }
                },
            );
        }
        Self::launch_any(this, kernel, dims, launch, properties, waits, event)
    }

    #[inline(always)]
    fn launch_any(
        this: &Object<Self>,
        kernel: &Object<D::Kernel>,
        dims: u32,
        launch: PlainLaunch<'_>,
        properties: Option<&ur_kernel_launch_ext_properties_t>,
        waits: Handles<'_, Event<D>>,
        event: OutHandle<'_, Event<D>>,
    ) -> Result<()> {
        let request = LaunchRequest::new(dims, launch, properties)?;
        if !D::LAUNCHES_AT_ONCE || this.is_captured(waits) {
            let made = this.target().launch(kernel, request)?;
            return Self::submit_command(this, made, waits, event, false);
        }
        let mut checked = D::Checked::default();
        D::check_launch(this.device(), kernel, &request, &mut checked)?;
        let command = UR_COMMAND_KERNEL_LAUNCH;
        Self::submit_with(
            this,
            command,
            waits,
            event,
            false,
            |lane, epoch, timestamps| {
                D::submit_launch(lane, epoch, kernel, &request, &checked, timestamps)?;
                Ok(Progress::Pending)
            },
        )
    }
}

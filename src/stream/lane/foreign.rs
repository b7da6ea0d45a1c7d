//! Foreign submitters on a lane's stream: callers with its native handle, and native commands.
//!
//! The engine never sees their work. While the stream is open to them, a marker of the lane stands
//! for "everything up to here": it is submitted behind that work.

use super::{Driver, LaneCore, LaneState};
use crate::object::Result;
use crate::stream::Work;
use crate::timeline::{Failure, Frontier, Point};

impl<D: Driver> LaneCore<D> {
    /// Gives the native stream out for good. Foreign code may submit to it from now on.
    pub fn share_native(&self) -> Result<&D::Lane> {
        let mut state = self.state.lock();
        self.record_if_watched(&mut state)?;
        self.status.share_native();
        // Foreign work is pending without a notice to the engine.
        self.wake();
        D::open(&self.native, true)?;
        Ok(&self.native)
    }

    /// Opens the stream for one native command.
    pub fn lease(&self) -> Result<()> {
        let mut state = self.state.lock();
        self.record_if_watched(&mut state)?;
        D::open(&self.native, true)?;
        self.status.lease();
        self.wake();
        Ok(())
    }

    /// The native stream, for comparison only.
    pub fn native(&self) -> &D::Lane {
        &self.native
    }

    /// The native stream of a leased lane.
    pub fn leased(&self) -> &D::Lane {
        &self.native
    }

    /// Ends the lease of one native command. A marker of the lane is behind its work.
    pub fn end_lease(&self) -> Result<()> {
        let state = self.state.lock();
        // Before the lease ends: a chooser of lanes sees one or the other.
        self.clock.set_native(state.order.epoch());
        match self.status.end_lease() {
            true => D::open(&self.native, false),
            false => Ok(()),
        }
    }

    pub fn is_leased(&self) -> bool {
        self.status.is_leased()
    }

    /// Whether the calling process is a fork of the process that owns the lane.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.origin.is_forked()
    }

    /// Commands that may wait for the program and that a later command of the lane comes after: those of
    /// other lanes and the last native one.
    pub fn held(&self) -> Frontier {
        let mut held = self.waited().held();
        if let Some(native) = self.clock.pending_native() {
            held.join_point(&Point::new(&self.clock, native));
        }
        held
    }

    pub fn is_native_shared(&self) -> bool {
        self.status.is_native_shared()
    }

    pub(super) fn is_open(&self) -> bool {
        self.status.is_open()
    }

    /// Whether the native stream is captured, so that its commands do not run. Only foreign code does that,
    /// or the engine on its behalf.
    pub fn is_stream_captured(&self) -> bool {
        D::CAPTURES_STREAMS
            && self.is_open()
            && !self.status.is_retired()
            && D::is_captured(&self.native)
    }

    /// Records a marker of everything on the shared stream, which may end next. Later foreign work is nobody's.
    pub fn leave_stream(&self) {
        if !self.is_stream_captured()
            && !self.observe_idle()
            && let Err(error) = self.before_capture(|_| Ok(()))
        {
            log::error!("a marker behind native work failed: {:?}", error.code());
        }
        self.status.retire();
    }

    /// Calls `run` with the stream between two submissions, for commands on a captured stream. They never
    /// run, so the engine keeps no account of them.
    pub fn aside<R>(&self, run: impl FnOnce(&D::Lane) -> R) -> R {
        let _state = self.state.lock();
        run(&self.native)
    }

    /// Calls `begin`, after which the open native stream is captured. A marker of earlier commands is recorded
    /// before, since none can be while the capture lasts.
    pub fn before_capture<R>(&self, begin: impl FnOnce(&D::Lane) -> Result<R>) -> Result<R> {
        let mut state = self.state.lock();
        self.record_if_watched(&mut state)?;
        self.cover(&mut state)?;
        if !D::TRACKS && !state.order.current().is_done() {
            self.insert_marker(&mut state)?;
        }
        begin(&self.native)
    }

    /// Submits a marker behind foreign work, or behind a reported failure. Otherwise the last
    /// command stands for everything up to here.
    #[inline]
    pub fn cover(&self, state: &mut LaneState<D>) -> Result<()> {
        match self.is_open() || Failure::any() && self.ends_with_reported(state) {
            true => self.cover_others(state),
            false => Ok(()),
        }
    }

    #[cold]
    fn cover_others(&self, state: &mut LaneState<D>) -> Result<()> {
        self.record_if_watched(state)?;
        let submitted = D::submit(&self.native, state.order.epoch() + 1, Work::Marker, None);
        self.record_submission(state, submitted).map(drop)
    }

    #[inline]
    pub(super) fn cover_or_log(&self, state: &mut LaneState<D>) {
        if let Err(error) = self.cover(state) {
            log::error!("a marker behind native work failed: {:?}", error.code());
        }
    }
}

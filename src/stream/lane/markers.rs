//! Markers of a lane: when one is recorded, and how long it is kept.
//!
//! A driver that tracks completion (`TRACKS`) makes a marker from an epoch, and none is kept.
//! Elsewhere a marker is recorded in three cases: a caller asks for one; a marker request is
//! pending before the next command; a pool that is short of memory observes the lane. A marker is
//! released once its epoch was seen complete.

use super::{Driver, LaneCore, LaneState, Marks};
use crate::abi::UR_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED;
use crate::object::{Error, Result};
use crate::stream::driver::is_failure;
use crate::stream::engine::{LaneProgress, Mark};
use crate::timeline::Point;
use std::hint::cold_path;

/// Number of kept markers up to which [`LaneCore::observe`] adds one. The oldest has mostly
/// completed when it is queried next.
const MAX_OBSERVER_MARKERS: usize = 4;

/// Number of kept markers from which the lane queries one by itself. Queues that wait for each
/// other, with a host that never waits, would else keep one marker a wait.
const MIN_MARKERS_BEFORE_QUERY: usize = 32;

/// Number of kept markers at which the lane next queries one.
pub(super) struct MarkerLimit(usize);

impl Default for MarkerLimit {
    fn default() -> Self {
        Self(MIN_MARKERS_BEFORE_QUERY)
    }
}

impl<D: Driver> LaneCore<D> {
    /// A marker that covers the lane up to `epoch`, recorded as early as possible. None if the
    /// epoch is complete.
    pub fn mark(&self, epoch: u64) -> Result<Option<Mark<D>>> {
        if D::TRACKS {
            let marker = D::mark(&self.native, epoch)?;
            return Ok(Some(Mark {
                point: Point::new(&self.clock, epoch),
                marker,
            }));
        }
        let mut state = self.state.lock();
        debug_assert!(
            epoch <= state.order.epoch(),
            "a point that was not submitted"
        );
        // Checked under the lock that guards pruning: a later marker could cover a command that
        // waits for this one.
        if epoch <= self.clock.completed() {
            return Ok(None);
        }
        let first = state.markers.partition_point(|(at, _)| *at < epoch);
        let found = state.markers.get(first).cloned();
        let (at, marker) = match found {
            Some(found) => found,
            // A marker would be recorded into the capture, and never be reached.
            None if self.is_stream_captured() => {
                return Err(Error::new(UR_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED));
            }
            None => self.record(&mut state)?,
        };
        Ok(Some(Mark {
            point: Point::new(&self.clock, at),
            marker,
        }))
    }

    /// Releases markers of completed epochs. One at a time, since each release calls the driver.
    pub fn forget(&self) {
        let oldest = || self.pop_complete(&mut self.state.lock());
        while self.status.has_markers()
            && let Some(marker) = oldest()
        {
            drop(marker);
        }
    }

    /// Queries the kept markers and records completion, for drivers that do not track.
    pub fn poll(&self) -> Result<()> {
        // An idle lane costs no lock.
        while self.status.has_markers() {
            let oldest = {
                let mut state = self.state.lock();
                self.forget_complete(&mut state);
                state.markers.front().cloned()
            };
            let Some((epoch, marker)) = oldest else {
                return Ok(());
            };
            match self.is_seen_done(&marker) {
                Ok(true) => self.record_end(epoch),
                Ok(false) => return Ok(()),
                Err(error) if is_failure(error) => self.record_failure(epoch)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Queries completion for a pool that is short of memory, whose thread may hold any lane's
    /// lock. Never blocks on the lock of this lane. A busy lane gets a few markers, so the next
    /// query sees earlier commands complete.
    pub fn observe(&self) -> Result<()> {
        let last = self.status.submitted();
        // Foreign work is not ours to query, and a foreign capture must not be disturbed.
        if last <= self.clock.completed() || self.is_open() {
            return Ok(());
        }
        if D::is_idle(&self.native)? {
            self.clock.raise(last);
            return Ok(());
        }
        let Some(mut state) = self.state.try_lock() else {
            return Ok(());
        };
        while let Some((epoch, marker)) = state.markers.front().cloned() {
            match self.is_seen_done(&marker) {
                Ok(true) => self.record_end(epoch),
                Ok(false) => break,
                // Recording a failure blocks: the next wait does that.
                Err(error) if is_failure(error) => break,
                Err(error) => return Err(error),
            }
            self.forget_complete(&mut state);
        }
        match state.markers.len() < MAX_OBSERVER_MARKERS {
            true => self.insert_marker(&mut state),
            false => Ok(()),
        }
    }

    /// Whether a marker was reached. An adopted stream may have ended with its queue, so that only the marker
    /// is queried then.
    fn is_seen_done(&self, marker: &D::Marker) -> Result<bool> {
        match self.status.is_retired() {
            true => D::is_done(marker),
            false => D::is_seen_done(&self.native, marker),
        }
    }

    pub(super) fn marks_of(&self, points: &[&Point]) -> Result<Marks<D>> {
        let marks = points.iter().map(|point| self.engine.mark(point));
        marks.filter_map(Result::transpose).collect()
    }

    /// Called before the next command or wait: records a marker of the last command if one is
    /// requested.
    #[inline]
    pub(super) fn record_if_watched(&self, state: &mut LaneState<D>) -> Result<()> {
        if !state.attention {
            return Ok(());
        }
        cold_path();
        self.attend(state)
    }

    /// Handles the rare conditions before the next command: a parked lane, and a requested marker.
    fn attend(&self, state: &mut LaneState<D>) -> Result<()> {
        if self.is_parked() {
            self.wake();
        }
        if let Some(request) = state.request.as_deref()
            && state.tail.is_requested(request)
        {
            self.record_watched(state)?;
        }
        let stopped = self.status.update_stopped(&self.clock);
        state.attention = state.request.is_some() || stopped;
        Ok(())
    }

    /// Records a requested marker. A driver that refuses it leaves the request: a marker behind the next command
    /// could cover one that waits for the requester.
    #[cold]
    fn record_watched(&self, state: &mut LaneState<D>) -> Result<()> {
        self.insert_marker(state)?;
        state.request = None;
        state.tail.clear();
        Ok(())
    }

    /// Records a marker of the last command.
    fn record(&self, state: &mut LaneState<D>) -> Result<(u64, D::Marker)> {
        self.insert_marker(state)?;
        // `insert_marker` has just kept it.
        state.markers.back().cloned().ok_or(Error::unsupported())
    }

    /// Keeps a marker of the last command for later callers.
    pub(super) fn insert_marker(&self, state: &mut LaneState<D>) -> Result<()> {
        let epoch = state.order.epoch();
        if state.markers.back().is_none_or(|(at, _)| *at != epoch) {
            if state.markers.len() >= state.marker_limit.0 {
                self.query_middle_marker(state);
            }
            self.forget_complete(state);
            debug_assert!(
                state.markers.back().is_none_or(|(at, _)| *at < epoch),
                "a marker behind a later one"
            );
            let marker = D::mark(&self.native, epoch)?;
            state.markers.push_back((epoch, marker));
            self.status.set_has_markers(true);
        }
        Ok(())
    }

    /// Queries the middle marker. Either half of the markers go, or the next query comes at twice
    /// their number: one query for at least 16 markers.
    #[cold]
    fn query_middle_marker(&self, state: &mut LaneState<D>) {
        let middle = state.markers.get(state.markers.len() / 2).cloned();
        if let Some((epoch, marker)) = middle {
            let seen = match self.is_seen_done(&marker) {
                Ok(true) => {
                    self.record_end(epoch);
                    Ok(())
                }
                Ok(false) => Ok(()),
                // Recording a failure blocks: the next wait does that.
                Err(error) if is_failure(error) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = seen {
                log::error!("asking a lane how far it is failed: {:?}", error.code());
            }
        }
        self.forget_complete(state);
        state.marker_limit.0 = MIN_MARKERS_BEFORE_QUERY.max(2 * state.markers.len());
    }

    pub(super) fn forget_complete(&self, state: &mut LaneState<D>) {
        while self.pop_complete(state).is_some() {}
    }

    fn pop_complete(&self, state: &mut LaneState<D>) -> Option<D::Marker> {
        let (epoch, _) = state.markers.front()?;
        let complete = *epoch <= self.clock.completed();
        let (_, marker) = complete.then(|| state.markers.pop_front())??;
        self.status.set_has_markers(!state.markers.is_empty());
        Some(marker)
    }
}

impl<D: Driver> LaneProgress<D> for LaneCore<D> {
    fn mark(&self, epoch: u64) -> Result<Option<Mark<D>>> {
        LaneCore::mark(self, epoch)
    }

    fn record_end(&self, epoch: u64) {
        LaneCore::record_end(self, epoch);
    }

    fn record_failure(&self, epoch: u64) -> Result<()> {
        LaneCore::record_failure(self, epoch)
    }
}

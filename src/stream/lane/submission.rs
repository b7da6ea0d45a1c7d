//! The submission of one command under the lane's lock.

use super::biased_lock::BiasedLockGuard;
use super::{Driver, EventDependencies, LaneCore, LaneState};
use crate::object::Result;
use crate::stream::driver::Progress;
use std::hint::cold_path;

/// The right to submit the next command of a lane. Holds the submission lock.
pub(crate) struct SubmissionGuard<'a, D: Driver> {
    pub(super) lane: &'a LaneCore<D>,
    pub(super) state: BiasedLockGuard<'a, LaneState<D>>,
}

impl<D: Driver> SubmissionGuard<'_, D> {
    /// Prepares the next command. Returns its stream, or none if the command must not run since a
    /// dependency failed.
    #[inline(always)]
    pub fn begin(&mut self) -> Result<Option<&D::Lane>> {
        if self.state.attention {
            cold_path();
            self.lane.record_if_watched(&mut self.state)?;
            if self.lane.is_stopped() {
                return Ok(None);
            }
        }
        Ok(Some(&self.lane.native))
    }

    /// Submits a marker in place of a command that must not run. Returns whether completion is
    /// still to be observed.
    pub fn skip(&mut self) -> Result<bool> {
        self.lane.drop_command(&mut self.state)
    }

    /// Epoch of the command.
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        self.state.order.epoch() + 1
    }

    /// Ends the submission. Returns whether completion is still to be observed.
    #[inline(always)]
    pub fn end(&mut self, submitted: Result<Progress>) -> Result<bool> {
        self.lane.record_submission(&mut self.state, submitted)
    }

    /// Dependencies of the command's event.
    #[inline(always)]
    pub fn dependencies(mut self, watched: bool) -> EventDependencies {
        self.lane.tail_dependencies(&mut self.state, true, watched)
    }
}

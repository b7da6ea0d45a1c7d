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
    /// Whether these bytes are known to lie inside their allocations.
    #[inline(always)]
    pub fn is_inside_extent<const N: usize>(&self, addrs: [usize; N], bytes: usize) -> bool {
        let since = self.lane.ends.now();
        self.state.extents.covers(since, addrs, bytes)
    }

    /// Submits the next command, or a marker in its place if it must not run since a dependency
    /// failed. Returns whether completion is still to be observed.
    #[inline(always)]
    pub fn submit(
        &mut self,
        submit: impl FnOnce(&D::Lane, u64) -> Result<Progress>,
    ) -> Result<bool> {
        if self.state.attention {
            cold_path();
            self.lane.record_if_watched(&mut self.state)?;
            if self.lane.is_stopped() {
                return self.lane.drop_command(&mut self.state);
            }
        }
        let submitted = submit(&self.lane.native, self.state.order.epoch() + 1);
        self.lane.record_submission(&mut self.state, submitted)
    }

    /// Dependencies of the command's event.
    #[inline(always)]
    pub fn dependencies(mut self, watched: bool) -> EventDependencies {
        self.lane.tail_dependencies(&mut self.state, true, watched)
    }
}

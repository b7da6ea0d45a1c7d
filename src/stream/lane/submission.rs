//! A command on its way to a lane, in one stretch under the lane's lock, and what became of it.

use super::biased_lock::BiasedLockGuard;
use super::{Driver, EventDependencies, LaneCore, State};
use crate::object::Result;
use crate::stream::driver::Progress;
use std::hint::cold_path;

/// One's turn to give a lane its next command.
pub(crate) struct SubmissionGuard<'a, D: Driver> {
    pub(super) lane: &'a LaneCore<D>,
    pub(super) state: BiasedLockGuard<'a, State<D>>,
}

impl<D: Driver> SubmissionGuard<'_, D> {
    /// Whether it is known that these bytes stay inside what they begin in.
    #[inline(always)]
    pub fn is_inside_extent<const N: usize>(&self, addrs: [usize; N], bytes: usize) -> bool {
        let since = self.lane.ends.now();
        self.state.extents.covers(since, addrs, bytes)
    }

    /// Makes ready for the next command, which goes to this stream; none if it does not run, as what it
    /// depends on has failed.
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

    /// Takes the place of a command that does not run. Whether it is still to be watched.
    pub fn skip(&mut self) -> Result<bool> {
        self.lane.drop_command(&mut self.state)
    }

    /// The command's.
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        self.state.order.epoch() + 1
    }

    /// Whether the command is still to be watched, unless it was refused.
    #[inline(always)]
    pub fn end(&mut self, given: Result<Progress>) -> Result<bool> {
        self.lane.given(&mut self.state, given)
    }

    /// What an event for the command reaches.
    #[inline(always)]
    pub fn dependencies(mut self, watched: bool) -> EventDependencies {
        self.lane.tail_dependencies(&mut self.state, true, watched)
    }
}

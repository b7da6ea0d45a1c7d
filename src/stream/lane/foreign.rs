//! A lane's stream in others' hands: exposed for good, or lent to native commands.
//!
//! What they put on it we never see. From then on whatever stands for "everything up to here" is a
//! command of ours behind it.

use super::{Driver, LaneCore, State};
use crate::object::Result;
use crate::stream::Work;
use crate::timeline::Failure;
use std::sync::atomic::Ordering;

impl<D: Driver> LaneCore<D> {
    /// The stream itself, on which others may put work from now on.
    pub fn share_native(&self) -> Result<&D::Lane> {
        let mut state = self.state.lock();
        self.record_if_watched(&mut state)?;
        self.native_shared.store(true, Ordering::Relaxed);
        // Others' work on it is pending without a word to us.
        self.wake();
        D::open(&self.native, true)?;
        Ok(&self.native)
    }

    /// Opens the stream for one native command.
    pub fn lease(&self) -> Result<()> {
        let mut state = self.state.lock();
        self.record_if_watched(&mut state)?;
        D::open(&self.native, true)?;
        self.foreign_submitters.fetch_add(1, Ordering::Relaxed);
        self.wake();
        Ok(())
    }

    /// The stream, which stays ours alone.
    pub fn native(&self) -> &D::Lane {
        &self.native
    }

    /// The stream as a native command sees it.
    pub fn leased(&self) -> &D::Lane {
        &self.native
    }

    /// The native command is over, and a command of ours is behind it.
    pub fn end_lease(&self) -> Result<()> {
        let _state = self.state.lock();
        let others = self.foreign_submitters.fetch_sub(1, Ordering::Relaxed) > 1;
        match others || self.is_native_shared() {
            true => Ok(()),
            false => D::open(&self.native, false),
        }
    }

    pub fn is_leased(&self) -> bool {
        self.foreign_submitters.load(Ordering::Relaxed) > 0
    }

    /// Whether this is a child of the process that has the lane.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.origin.is_forked()
    }

    pub fn is_native_shared(&self) -> bool {
        self.native_shared.load(Ordering::Relaxed)
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_native_shared() || self.is_leased()
    }

    /// Where others put work on the stream, puts a command of ours behind all of it: what stands for
    /// everything up to here then does. The same behind a failure that was reported, which is over.
    #[inline]
    pub fn cover(&self, state: &mut State<D>) -> Result<()> {
        match self.is_open() || Failure::any() && self.ends_with_reported(state) {
            true => self.cover_others(state),
            false => Ok(()),
        }
    }

    #[cold]
    fn cover_others(&self, state: &mut State<D>) -> Result<()> {
        self.record_if_watched(state)?;
        D::submit(&self.native, state.order.epoch() + 1, Work::Marker, None)?;
        self.step(state);
        Ok(())
    }

    #[inline]
    pub(super) fn cover_or_log(&self, state: &mut State<D>) {
        if let Err(error) = self.cover(state) {
            log::error!("a marker behind native work failed: {:?}", error.code());
        }
    }
}

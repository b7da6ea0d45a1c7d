//! Markers of a lane: what is recorded on it, for whom, and until when it is kept.
//!
//! Where the driver tracks its commands none is kept, and a marker is the driver's word for an epoch.
//! Elsewhere one is recorded when somebody asks, or before the next command while a ticket says that
//! somebody may, or when a pool that is short of memory looks how far the lane is; it is given back once
//! the lane was seen past it.

use super::{Driver, LaneCore, Marks, State};
use crate::object::{Error, Result};
use crate::stream::driver::is_failure;
use crate::stream::engine::{CompletionSource, Mark};
use crate::timeline::{Point, PointRef};
use std::hint::cold_path;
use std::sync::atomic::Ordering;

/// Markers that a lane has at most for who may look again. Where each is asked for some time after it
/// was recorded, the oldest has mostly been reached.
const FEW: usize = 4;

/// Markers that a lane has before it looks by itself which of them were reached: a program whose queues
/// wait for each other, and whose host never does, would have one for each wait, for good.
const MANY: usize = 32;

/// When a lane looks next: with how many markers.
pub(super) struct MarkerLimit(usize);

impl Default for MarkerLimit {
    fn default() -> Self {
        Self(MANY)
    }
}

impl<D: Driver> LaneCore<D> {
    /// A marker that covers the lane up to `epoch`, as exactly as it was recorded; none if that is
    /// complete already.
    pub fn mark(&self, epoch: u64) -> Result<Option<Mark<D>>> {
        if D::TRACKS {
            let marker = D::mark(&self.native, epoch)?;
            return Ok(Some(Mark {
                point: Point::new(&self.clock, epoch),
                marker,
            }));
        }
        let mut state = self.state.lock();
        // Under the lock, where markers are forgotten: a later one may cover what waits for this.
        if epoch <= self.clock.completed() {
            return Ok(None);
        }
        let first = state.marks.partition_point(|(at, _)| *at < epoch);
        let found = state.marks.get(first).cloned();
        let (at, marker) = match found {
            Some(found) => found,
            None => self.record(&mut state)?,
        };
        Ok(Some(Mark {
            point: Point::new(&self.clock, at),
            marker,
        }))
    }

    /// Gives the markers of what was seen complete back. One at a time, since that calls the driver.
    pub fn forget(&self) {
        let oldest = || self.pop_complete(&mut self.state.lock());
        while self.marked.load(Ordering::Relaxed)
            && let Some(marker) = oldest()
        {
            drop(marker);
        }
    }

    /// Observes how far the lane has come, where the driver does not tell by itself.
    pub fn poll(&self) -> Result<()> {
        loop {
            let oldest = {
                let mut state = self.state.lock();
                self.forget_complete(&mut state);
                state.marks.front().cloned()
            };
            let Some((epoch, marker)) = oldest else {
                return Ok(());
            };
            match D::is_seen_done(&self.native, &marker) {
                Ok(true) => self.record_end(epoch),
                Ok(false) => return Ok(()),
                Err(error) if is_failure(error) => self.record_failure(epoch)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// The same for who is short of memory and may hold a lane's lock, this one's or another's: without
    /// waiting for it. A lane that is not idle has a few markers from now on, so that the next look knows
    /// everything before them.
    pub fn observe(&self) -> Result<()> {
        let last = self.last.load(Ordering::Acquire);
        // Others' work on it is nobody's business, nor may a capture of theirs be asked about.
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
        while let Some((epoch, marker)) = state.marks.front().cloned() {
            match D::is_seen_done(&self.native, &marker) {
                Ok(true) => self.record_end(epoch),
                Ok(false) => break,
                // Recording it blocks: whoever waits for it does that.
                Err(error) if is_failure(error) => break,
                Err(error) => return Err(error),
            }
            self.forget_complete(&mut state);
        }
        match state.marks.len() < FEW {
            true => self.insert_marker(&mut state),
            false => Ok(()),
        }
    }

    pub(super) fn marks_of(&self, points: &[PointRef<'_>]) -> Result<Marks<D>> {
        let marks = points.iter().map(|point| self.engine.mark(*point));
        marks.filter_map(Result::transpose).collect()
    }

    /// Before anything else goes onto the lane: records the last command if someone may want it.
    #[inline]
    pub(super) fn record_if_watched(&self, state: &mut State<D>) -> Result<()> {
        if !state.attention {
            return Ok(());
        }
        cold_path();
        self.attend(state)
    }

    /// Does what there is to do before the next command, besides.
    fn attend(&self, state: &mut State<D>) -> Result<()> {
        if self.is_parked() {
            self.wake();
        }
        if let Some(request) = state.request.as_deref()
            && state.tail.is_wanted(request)
        {
            self.record_watched(state)?;
        }
        state.attention = state.request.is_some() || self.is_stopped();
        Ok(())
    }

    #[cold]
    fn record_watched(&self, state: &mut State<D>) -> Result<()> {
        state.request = None;
        state.tail.clear();
        self.insert_marker(state)
    }

    /// A marker of the last command.
    fn record(&self, state: &mut State<D>) -> Result<(u64, D::Marker)> {
        self.insert_marker(state)?;
        // It was kept just now.
        state.marks.back().cloned().ok_or(Error::unsupported())
    }

    /// As [`LaneCore::record`], for whoever asks later.
    pub(super) fn insert_marker(&self, state: &mut State<D>) -> Result<()> {
        let epoch = state.order.epoch();
        if state.marks.back().is_none_or(|(at, _)| *at != epoch) {
            if state.marks.len() >= state.look.0 {
                self.look(state);
            }
            self.forget_complete(state);
            let marker = D::mark(&self.native, epoch)?;
            state.marks.push_back((epoch, marker));
            self.marked.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Asks for the marker in the middle. Half of them go, or there will be twice as many at the next look:
    /// either way one question is for sixteen markers or more.
    #[cold]
    fn look(&self, state: &mut State<D>) {
        let middle = state.marks.get(state.marks.len() / 2).cloned();
        if let Some((epoch, marker)) = middle {
            let seen = match D::is_seen_done(&self.native, &marker) {
                Ok(true) => {
                    self.record_end(epoch);
                    Ok(())
                }
                Ok(false) => Ok(()),
                // Recording it blocks: whoever waits for it does that.
                Err(error) if is_failure(error) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = seen {
                log::error!("asking a lane how far it is failed: {:?}", error.code());
            }
        }
        self.forget_complete(state);
        state.look.0 = MANY.max(2 * state.marks.len());
    }

    pub(super) fn forget_complete(&self, state: &mut State<D>) {
        while self.pop_complete(state).is_some() {}
    }

    fn pop_complete(&self, state: &mut State<D>) -> Option<D::Marker> {
        let (epoch, _) = state.marks.front()?;
        let complete = *epoch <= self.clock.completed();
        let (_, marker) = complete.then(|| state.marks.pop_front())??;
        self.marked
            .store(!state.marks.is_empty(), Ordering::Relaxed);
        Some(marker)
    }
}

impl<D: Driver> CompletionSource<D> for LaneCore<D> {
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

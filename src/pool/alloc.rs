//! The path of an allocation: a stream's cache, then replay, then the order of choice of `policy`, each of
//! whose steps is made outside the lock.

use crate::pool::Pool;
use crate::pool::cache::{Miss, Stash};
use crate::pool::growth::Grown;
use crate::pool::heap::search::Need;
use crate::pool::policy::Step;
use crate::pool::request::{Acquired, Block, Order, PoolError, Request, Reuse, Story};
use crate::pool::source::{Slab, Source, SourceError};
use crate::pool::state::{Attempt, State};
use crate::timeline::Lane;
use crate::timeline::sync::MutexGuard;
use std::sync::Arc;

impl<S: Source> Pool<S> {
    /// Finds memory for a request, by the order of choice: what died on its own lane, what its order
    /// dominates, what has completed; then growth within the maximum; then, as the policy and
    /// `may_wait` allow, what the least wait frees; then the source again after giving it back what
    /// is idle.
    pub fn acquire(&self, request: &Request<'_>) -> Result<Acquired, PoolError> {
        self.serve(request, None)
    }

    /// The same for the lane whose stash this is and whose order the request has. The block is lent
    /// to the stash, which may have one of the kind already.
    pub fn acquire_on(
        &self,
        stash: &Arc<Stash>,
        request: &Request<'_>,
    ) -> Result<Acquired, PoolError> {
        match self.cached(stash, request) {
            Some(block) => Ok(Acquired::Ready(block)),
            None => self.serve(request, Some(stash)),
        }
    }

    /// What the stash of the request's own lane has for it.
    fn cached(&self, stash: &Arc<Stash>, request: &Request<'_>) -> Option<Block> {
        if request.align > 1 || request.order.own_lane() != Some(stash.lane()) {
            return None;
        }
        let take = || {
            let mut inner = stash.lock();
            match inner.is_joined(self.key) {
                // Only the pool can tell why that is legal.
                true => Err(Miss::NoBlock),
                false => inner.take(self.key, request.bytes, |block| block),
            }
        };
        let cached = match take() {
            Err(Miss::NoCredit(lack)) if self.meter.find_credit(stash, self.key, lack) => take(),
            answer => answer,
        };
        let cached = match cached {
            Err(Miss::NoCredit(_)) => self.meter.take_cached(stash, self.key, request.bytes),
            answer => answer,
        };
        let block = cached.ok()?;
        request.tell(|story| {
            story.order = request.order.frontier();
            story.reuse = Some(Reuse::OwnLane);
        });
        Some(block)
    }

    /// For a lane of which [`Stash::wants_plans`] named this pool, while there is time: before the host
    /// waits. What it did may come again, and then its memory is found already.
    pub fn plan(&self, stash: &Arc<Stash>, lane: &Lane) {
        let mut state = self.state.lock();
        if !state.is_closed() {
            state.plan(stash, &Order::Lane(lane));
        }
    }

    fn serve(
        &self,
        request: &Request<'_>,
        stash: Option<&Arc<Stash>>,
    ) -> Result<Acquired, PoolError> {
        request.tell(|story| {
            *story = Story {
                order: request.order.frontier(),
                ..Story::default()
            };
        });
        let mut state = self.state.lock();
        state.tidy();
        if let Some(stash) = stash {
            if let Some(block) = state.take_joint(stash, request) {
                return Ok(Acquired::Ready(block));
            }
            if state.may_join(stash, request) {
                drop(state);
                self.source.observe();
                state = self.state.lock();
            }
            if state.turn(stash, request)
                && let Some(block) = self.cached(stash, request)
            {
                return Ok(Acquired::Ready(block));
            }
            if let Some(block) = state.take_joint(stash, request) {
                return Ok(Acquired::Ready(block));
            }
        }
        let need = Need::new(request, state.config().min_align)?;
        self.find(state, &need, request, stash)
    }

    fn find<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        need: &Need,
        request: &Request<'_>,
        stash: Option<&Arc<Stash>>,
    ) -> Result<Acquired, PoolError> {
        let mut attempt = Attempt::new(stash);
        loop {
            match state.step(need, request, &mut attempt) {
                Step::Done(result) => return result,
                Step::Grow(growth) => {
                    drop(state);
                    let answer =
                        self.insist(|source| source.grow(growth.bytes, growth.page, growth.after));
                    state = self.state.lock();
                    let grown = state.grown(growth, answer, (need, request), &mut attempt);
                    self.settled.notify_all();
                    match grown {
                        Grown::Served(block) => return Ok(Acquired::Ready(block)),
                        Grown::Room => {}
                        Grown::Unfit(slab) => {
                            drop(state);
                            self.source.release(slab);
                            state = self.state.lock();
                        }
                    }
                }
                Step::Observe => {
                    drop(state);
                    self.source.observe();
                    state = self.state.lock();
                }
                Step::Compact(remap) => {
                    let expired = state.expired();
                    self.note(&state);
                    drop(state);
                    expired.iter().for_each(|old| self.source.retire(*old));
                    let (slabs, fresh) = (remap.slabs(), remap.fresh);
                    let answer =
                        self.insist(|source| source.compact(&slabs, fresh.bytes, fresh.page));
                    state = self.state.lock();
                    state.remapped(remap, answer, &mut attempt);
                    self.note(&state);
                    self.settled.notify_all();
                }
                Step::Release(leaving) => {
                    drop(state);
                    state = self.give_back(&leaving);
                }
                // Another thread is at the source: what it brings or frees may serve.
                Step::Pause => state = self.settled.wait(state),
            }
        }
    }

    /// Asks the source; if it refuses, once more without the old addresses that are kept for plans: it
    /// may be short of what leads to memory, too.
    fn insist(&self, ask: impl Fn(&S) -> Result<Slab, SourceError>) -> Result<Slab, SourceError> {
        ask(&self.source).or_else(|error| {
            let old = self.state.lock().give_up_plans();
            old.iter().for_each(|old| self.source.retire(*old));
            match old.is_empty() {
                true => Err(error),
                false => ask(&self.source),
            }
        })
    }
}

//! Waits of the host for memory, before a request fails.
//!
//! A wait that the stream or the returned event can hold comes with the block (`Acquired::After`). Every other
//! wait is the host's. [`PoolState::awaited`] compares three waits: for one range, for pages that are remapped
//! together, and for slabs that are released to make room for new ones, those of other kinds and pools included.
//! It returns the frontier of the cheapest: fewest lanes, then fewest commands outstanding. `src/stream` waits
//! for it under no lock and repeats the request (`PoolCore::acquire`).
//!
//! Backends' own pools do not tell what would make room. There the host waits for everything submitted.

use crate::pool::compaction;
use crate::pool::growth::least_growth;
use crate::pool::heap::search::{self, Need, wait_cost};
use crate::pool::options::Compaction;
use crate::pool::request::WaitPolicy;
use crate::pool::state::PoolState;
use crate::timeline::Frontier;
use std::cmp::Reverse;

/// Memory that can be released once `death` is complete.
#[derive(Clone, Debug)]
pub struct Releasable {
    pub bytes: u64,
    pub death: Frontier,
}

impl PoolState {
    /// The least wait after which the request can be served. None if no wait suffices.
    ///
    /// `room` is the bytes that may still be reserved, none where the provider has no memory left; `elsewhere`
    /// what other pools could release.
    pub fn awaited(
        &mut self,
        need: &Need<'_>,
        room: Option<u64>,
        elsewhere: Vec<Releasable>,
    ) -> Option<Frontier> {
        if self.closed || self.config.waits == WaitPolicy::Never {
            return None;
        }
        self.recall();
        self.heap.sweep();
        let place = search::least_wait(&self.heap, need).map(|(_, wait)| wait);
        let pages = self.wait_for_pages(need, room.unwrap_or(0));
        let release = self.wait_for_release(need, room, elsewhere);
        let waits = [place, pages, release].into_iter().flatten();
        waits.min_by_key(wait_cost)
    }

    /// The wait for pages that together serve the request.
    fn wait_for_pages(&self, need: &Need<'_>, room: u64) -> Option<Frontier> {
        if self.config.options.compaction == Compaction::Never {
            return None;
        }
        let found = compaction::collect_pending(&self.heap, &self.need_of_pages(need), room)?;
        Some(found.wait)
    }

    /// The wait for slabs whose release makes enough room. Without a known `room` the provider has refused:
    /// then for as much as the request needs, or for all there is.
    fn wait_for_release(
        &self,
        need: &Need<'_>,
        room: Option<u64>,
        elsewhere: Vec<Releasable>,
    ) -> Option<Frontier> {
        let floor = least_growth(need, self.limits)?;
        let short = floor.saturating_sub(room.unwrap_or(0));
        let mut all = self.heap.releasable();
        all.extend(elsewhere);
        let chosen = choose(merge_equal_deaths(all), short);
        let bytes: u64 = chosen.iter().map(|one| one.bytes).sum();
        if bytes < short && room.is_some() {
            return None;
        }
        let mut wait = Frontier::new();
        chosen.iter().for_each(|one| wait.join(&one.death));
        Some(wait)
    }
}

/// Makes one entry of memory with the same death.
fn merge_equal_deaths(mut all: Vec<Releasable>) -> Vec<Releasable> {
    all.iter_mut().for_each(|one| one.death.prune());
    all.sort_by_cached_key(|one| {
        let first = one.death.points().next();
        let first = first.map(|point| (point.lane(), point.epoch));
        (wait_cost(&one.death), first)
    });
    all.dedup_by(|other, one| {
        let alike = other.death == one.death;
        one.bytes += if alike { other.bytes } else { 0 };
        alike
    });
    all
}

/// Chooses greedily by the least added wait until there are `short` bytes or no more, then drops the choices
/// that later ones made unnecessary.
fn choose(mut all: Vec<Releasable>, short: u64) -> Vec<Releasable> {
    let mut chosen: Vec<Releasable> = Vec::new();
    let (mut wait, mut bytes) = (Frontier::new(), 0);
    while bytes < short {
        let added = |one: &Releasable| {
            let mut added = one.death.clone();
            added.retain(|point| !wait.covers_point(point));
            let lanes = added
                .points()
                .filter(|at| wait.epoch_of(at.lane()).is_none());
            (lanes.count(), wait_cost(&added).1, Reverse(one.bytes))
        };
        let Some(least) = (0..all.len()).min_by_key(|at| added(&all[*at])) else {
            break;
        };
        let one = all.swap_remove(least);
        wait.join(&one.death);
        bytes += one.bytes;
        chosen.push(one);
    }
    for at in (0..chosen.len()).rev() {
        if bytes - chosen[at].bytes >= short {
            bytes -= chosen.remove(at).bytes;
        }
    }
    chosen
}

//! What a stash has of a lane that repeats itself: its record, or the blocks of its plan.
//!
//! A lane that finds all it asks for in its bins has neither, and comes by none of this: what is called
//! from its ways is marked as cold for its sake.

use super::{Cache, Entry, Inner, Miss, NOTED, Stash, UNNOTED, Use, cache_it, take_from};
use crate::pool::plan::{Plan, Record, Track};
use crate::pool::policy::round;
use crate::pool::request::Block;
use crate::pool::stash::PoolKey;
use crate::timeline::Frontier;

/// In a table, of a plan's block: that it is one, above the number of its cache and its own.
const PLANNED: u32 = 1 << 31;
const CACHE_SHIFT: u32 = 24;
const MOST_CACHES: usize = 1 << 6;

impl Stash {
    /// The pools that could make a plan for the lane now.
    pub fn wants_plans(&self) -> Vec<PoolKey> {
        let inner = self.inner.lock();
        let due = inner.caches.iter().flatten().filter(|cache| cache.is_due());
        due.map(|cache| cache.key).collect()
    }
}

impl Cache {
    pub(super) fn set_track(&mut self, track: Option<Track>) -> Option<Track> {
        self.plain = match track {
            Some(_) => PoolKey::NONE,
            None => self.key,
        };
        let old = std::mem::replace(&mut self.track, track.map(Box::new));
        old.map(|old| *old)
    }

    /// Takes the track out if it is such a one.
    fn end_track(&mut self, is: impl Fn(&Track) -> bool) -> Option<Track> {
        match self.track.as_deref().is_some_and(is) {
            true => self.set_track(None),
            false => None,
        }
    }

    /// Whether a plan could be made now.
    fn is_due(&self) -> bool {
        match self.track.as_deref() {
            Some(Track::Record(record)) => record.again().is_some() && !self.patience.lacks(),
            _ => false,
        }
    }
}

impl Entry {
    /// Notes that it is freed, by its own lane.
    fn is_freed(&mut self, track: &mut Track) {
        match track {
            Track::Record(record) => {
                let own = self.record == record.number;
                record.free(own.then_some(self.nth));
                self.record = UNNOTED;
            }
            Track::Turning(touched) => *touched = true,
            // It is none of the plan's, and nowhere in its way.
            Track::Plan(_) => {}
        }
    }
}

impl Inner {
    /// As [`Inner::take`], with a record or a plan.
    #[cold]
    #[inline(never)]
    pub(super) fn take_tracked(&mut self, key: PoolKey, requested: u64) -> Result<Block, Miss> {
        let at = self.at(key).ok_or(Miss::NoBlock)?;
        let cache = self.caches[at].as_mut().ok_or(Miss::NoBlock)?;
        let bytes = round(requested, cache.min_align).ok_or(Miss::NoBlock)?;
        match cache.track.as_deref_mut() {
            Some(Track::Plan(plan)) => {
                if !plan.expects(requested) {
                    return Err(Miss::NoBlock);
                }
                if cache.live + bytes > cache.credit {
                    return Err(Miss::NoCredit(bytes));
                }
                let (index, block, ends_first) = plan.take();
                cache.live += bytes;
                cache.cached -= bytes;
                cache.hits += 1;
                cache.planned += 1;
                if ends_first {
                    self.ends.change();
                }
                let id = PLANNED | (at as u32) << CACHE_SHIFT | index as u32;
                self.table.put(block.addr, id);
                Ok(block)
            }
            Some(Track::Turning(touched)) => {
                *touched = true;
                Err(Miss::NoBlock)
            }
            Some(Track::Record(record)) => {
                if record.begins_again(requested, &mut cache.patience) {
                    // The pool makes a plan of it.
                    return Err(Miss::NoBlock);
                }
                let cache = self.caches[at].as_mut().ok_or(Miss::NoBlock)?;
                let sizes = (bytes, requested);
                let block = take_from(cache, &mut self.entries, &self.ends, sizes)?;
                if let Some(id) = self.table.get(block.addr) {
                    note(cache, &mut self.entries[id as usize], &block, false);
                }
                Ok(block)
            }
            None => Err(Miss::NoBlock),
        }
    }

    /// As [`Inner::put`], of a live block, with a record or a plan.
    #[cold]
    #[inline(never)]
    pub(super) fn put_tracked(&mut self, id: u32, epoch: u64) -> Option<Block> {
        let entry = self.entries.get_mut(id as usize)?;
        if entry.state == Use::Cached {
            return None;
        }
        let cache = self.caches[entry.cache as usize].as_mut()?;
        if let Some(track) = cache.track.as_deref_mut()
            && entry.record != NOTED
        {
            entry.is_freed(track);
        }
        let block = cache_it(cache, entry, id, epoch);
        if block.is_none() {
            entry.record = NOTED;
        }
        block
    }

    /// The same for a plan's block.
    #[cold]
    #[inline(never)]
    pub(super) fn put_planned(&mut self, id: u32, epoch: u64) -> Option<Block> {
        let (at, index) = planned(id)?;
        let cache = self.caches[at].as_mut()?;
        let Some(Track::Plan(plan)) = cache.track.as_deref_mut() else {
            return None;
        };
        let block = plan.put(index, epoch)?;
        cache.live -= block.bytes;
        cache.cached += block.bytes;
        cache.frees += 1;
        Some(block)
    }

    /// Whether a pool has to look at how the lane uses it, before it serves a request that this stash
    /// did not.
    pub fn is_tracked(&self, key: PoolKey) -> bool {
        self.cache(key).is_some_and(|cache| cache.track.is_some())
    }

    pub fn has_plan(&self, key: PoolKey) -> bool {
        let track = self.cache(key).and_then(|cache| cache.track.as_deref());
        matches!(track, Some(Track::Plan(_)))
    }

    /// The record, if a plan can be made of it now. Until there is another track what the lane does is
    /// seen and nothing more.
    pub fn begin_turn(&mut self, key: PoolKey) -> Option<Record> {
        let at = self.at(key).filter(|at| *at < MOST_CACHES)?;
        let track = self.caches[at].as_mut()?.track.as_deref_mut()?;
        match std::mem::replace(track, Track::Turning(false)) {
            Track::Record(record) if record.again().is_some() => Some(record),
            other => {
                *track = other;
                None
            }
        }
    }

    /// What came of it: a plan, or no more than the record. Returns a plan that came too late.
    pub fn end_turn(&mut self, key: PoolKey, track: Track) -> Option<Plan> {
        let cache = self.cache_mut(key)?;
        let touched = !matches!(cache.set_track(None), Some(Track::Turning(false)));
        if let (Track::Plan(plan), false) = (&track, touched) {
            cache.cached += plan.bytes();
            cache.set_track(Some(track));
            // What was there before may have ended later than what will be.
            self.ends.change();
            return None;
        }
        cache.patience.learn(false);
        match track {
            Track::Plan(plan) => Some(plan),
            // What the lane did meanwhile is not in the record.
            other => {
                cache.set_track((!touched).then_some(other));
                None
            }
        }
    }

    /// Ends the plan. What is live of it stays counted as live here, but is not found any more.
    pub fn end_plan(&mut self, key: PoolKey) -> Option<Plan> {
        let at = self.at(key)?;
        let cache = self.caches[at].as_mut()?;
        let track = cache.end_track(|track| matches!(track, Track::Plan(_)))?;
        let Track::Plan(plan) = track else {
            return None;
        };
        cache.patience.learn(plan.has_served());
        cache.cached -= plan.bytes() - plan.live_bytes();
        let other = |id| planned(id).is_none_or(|(cache, _)| cache != at);
        self.table.retain(other);
        Some(plan)
    }

    /// A live block of an ended plan is lent as any other.
    pub fn keep(&mut self, key: PoolKey, block: &Block, seg: u32) {
        if let Some(at) = self.at(key) {
            self.enter(Entry::new(block, at, seg));
        }
    }

    /// Live blocks of an ended plan are lent no more.
    pub fn part(&mut self, key: PoolKey, bytes: u64) {
        if let Some(cache) = self.cache_mut(key) {
            cache.live -= bytes;
            cache.credit -= bytes;
        }
    }

    /// The live block of a plan around an address.
    pub fn planned_around(&self, key: PoolKey, addr: u64) -> Option<Block> {
        match self.cache(key)?.track.as_deref()? {
            Track::Plan(plan) => plan.around(addr),
            Track::Record(_) | Track::Turning(_) => None,
        }
    }

    /// Ends the live block of a plan that starts at an address: it dies elsewhere.
    pub fn drop_planned(&mut self, key: PoolKey, addr: u64, death: &Frontier) -> Option<Block> {
        let (at, index) = planned(self.table.get(addr)?)?;
        let cache = self.caches.get_mut(at)?.as_mut()?;
        let cache = Some(cache).filter(|cache| cache.key == key)?;
        let Some(Track::Plan(plan)) = cache.track.as_deref_mut() else {
            return None;
        };
        let block = plan.put_elsewhere(index, death.clone())?;
        cache.live -= block.bytes;
        cache.cached += block.bytes;
        Some(block)
    }

    /// Forgets what a lane did: addresses are no longer what they were.
    pub fn forget_record(&mut self, key: PoolKey) {
        if let Some(cache) = self.cache_mut(key) {
            cache.end_track(|track| matches!(track, Track::Record(_)));
        }
    }
}

/// Which block of which cache's plan a table means.
#[inline]
fn planned(id: u32) -> Option<(usize, usize)> {
    let number = (id & PLANNED != 0).then_some(id & !PLANNED)?;
    let index = number & ((1 << CACHE_SHIFT) - 1);
    Some(((number >> CACHE_SHIFT) as usize, index as usize))
}

/// Notes in the record that a block is live now.
#[cold]
#[inline(never)]
pub(super) fn note(cache: &mut Cache, entry: &mut Entry, block: &Block, missed: bool) {
    let Some(Track::Record(record)) = cache.track.as_deref_mut() else {
        return;
    };
    entry.nth = record.alloc(block, missed);
    (entry.record, entry.state) = (record.number, Use::Tracked);
    if record.is_spent() {
        cache.set_track(None);
    }
}

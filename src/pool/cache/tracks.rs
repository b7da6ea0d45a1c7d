//! What a stash has of a lane that repeats itself: its record, or the blocks of its plan.
//!
//! A lane that finds all it asks for in its bins has neither, and comes by none of this: what is called
//! from its ways is marked as cold for its sake.

use crate::pool::cache::PoolKey;
use crate::pool::cache::{
    Cache, Entry, Inner, Miss, NOTED, Stash, Taken, UNNOTED, Use, cache_it, take_from,
};
use crate::pool::heap::search::round;
use crate::pool::replay::{Patience, Plan, Record, Seat, Track};
use crate::pool::request::Block;
use crate::timeline::Frontier;

impl Stash {
    /// The pools that could make a plan for the lane now, or for all.
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
            Some(Track::Record(record)) => {
                let again = record.again().is_some() && !self.patience.lacks();
                again || record.shared() > 0 && record.is_at_rest()
            }
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
            Track::Plan(_) | Track::Joint(_) => {}
        }
    }
}

impl Inner {
    /// As [`Inner::take`], with a record or a plan.
    #[cold]
    #[inline(never)]
    pub(super) fn take_tracked(&mut self, key: PoolKey, requested: u64) -> Taken<Block> {
        let mut caches = self.caches.iter_mut().flatten();
        let cache = caches.find(|cache| cache.key == key);
        let cache = cache.ok_or(Miss::NoBlock)?;
        let plan = match cache.track.as_deref_mut() {
            Some(Track::Plan(plan)) => plan,
            Some(Track::Joint(seat)) => {
                let taken = seat.joint.lock().take(seat.place, requested, None);
                // What else there is to find out the pool does.
                let (block, ends_first, _) = taken.map_err(|_| Miss::NoBlock)?;
                if ends_first {
                    self.ends.change();
                }
                return Ok(block);
            }
            _ => return self.take_noted(key, requested),
        };
        let (block, ends_first) = plan.take(requested, cache.credit - cache.live)?;
        cache.live += block.bytes;
        cache.cached -= block.bytes;
        cache.hits += 1;
        cache.planned += 1;
        if ends_first {
            self.ends.change();
        }
        Ok(block)
    }

    /// The same without a plan.
    #[inline(never)]
    fn take_noted(&mut self, key: PoolKey, requested: u64) -> Taken<Block> {
        let at = self.at(key).ok_or(Miss::NoBlock)?;
        let cache = self.caches[at].as_mut().ok_or(Miss::NoBlock)?;
        let bytes = round(requested, cache.min_align).ok_or(Miss::NoBlock)?;
        match cache.track.as_deref_mut() {
            Some(Track::Turning(touched)) => *touched = true,
            Some(Track::Record(record)) => {
                // If it does, the pool makes a plan of it, or of that of all lanes.
                let again = record.begins_again(requested, &mut cache.patience);
                if !again && !record.is_ended() {
                    let sizes = (bytes, requested);
                    let block = take_from(cache, &mut self.entries, &mut self.ends, sizes)?;
                    if let Some(id) = self.table.get(block.addr) {
                        note(cache, &mut self.entries[id as usize], &block, false);
                    }
                    return Ok(block);
                }
            }
            Some(Track::Plan(_) | Track::Joint(_)) | None => {}
        }
        Err(Miss::NoBlock)
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
            if let Track::Record(record) = track
                && entry.record == record.number
                && record.ends_all()
            {
                // The pool is to know.
                return None;
            }
            entry.is_freed(track);
        }
        let block = cache_it(cache, entry, id, epoch);
        if block.is_none() {
            entry.record = NOTED;
        }
        block
    }

    /// Frees a plan's block, if that is what comes next.
    #[cold]
    #[inline(never)]
    pub(super) fn put_next(&mut self, addr: u64, epoch: u64) -> Option<Block> {
        self.put_planned(
            |plan| plan.put(addr, epoch),
            |seat| seat.joint.lock().put(seat.place, addr, epoch),
        )
    }

    /// The same if something else comes next.
    #[cold]
    #[inline(never)]
    pub(super) fn put_early(&mut self, addr: u64, epoch: u64) -> Option<Block> {
        self.put_planned(
            |plan| plan.put_early(addr, epoch),
            |seat| seat.joint.lock().put_early(seat.place, addr, epoch),
        )
    }

    #[inline]
    fn put_planned(
        &mut self,
        put: impl Fn(&mut Plan) -> Option<Block>,
        put_jointly: impl Fn(&Seat) -> Option<Block>,
    ) -> Option<Block> {
        let mut caches = self.caches.iter_mut().flatten();
        caches.find_map(|cache| match cache.track.as_deref_mut()? {
            Track::Plan(plan) => {
                let block = put(plan)?;
                cache.live -= block.bytes;
                cache.cached += block.bytes;
                cache.frees += 1;
                Some(block)
            }
            Track::Joint(seat) => put_jointly(seat),
            Track::Record(_) | Track::Turning(_) => None,
        })
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

    /// Whether the lane has a part in a joint plan.
    pub fn is_joined(&self, key: PoolKey) -> bool {
        let track = self.cache(key).and_then(|cache| cache.track.as_deref());
        matches!(track, Some(Track::Joint(_)))
    }

    pub fn record(&self, key: PoolKey) -> Option<&Record> {
        match self.cache(key)?.track.as_deref()? {
            Track::Record(record) => Some(record),
            Track::Turning(_) | Track::Plan(_) | Track::Joint(_) => None,
        }
    }

    pub fn record_mut(&mut self, key: PoolKey) -> Option<&mut Record> {
        match self.cache_mut(key)?.track.as_deref_mut()? {
            Track::Record(record) => Some(record),
            Track::Turning(_) | Track::Plan(_) | Track::Joint(_) => None,
        }
    }

    /// The record, if it is such a one. Until there is another track what the lane does is seen and
    /// nothing more.
    pub fn begin_turn(&mut self, key: PoolKey, is: impl Fn(&Record) -> bool) -> Option<Record> {
        let track = self.cache_mut(key)?.track.as_deref_mut()?;
        match std::mem::replace(track, Track::Turning(false)) {
            Track::Record(record) if is(&record) => Some(record),
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
            cache.calm.learn(true);
            cache.set_track(Some(track));
            self.plans += 1;
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

    /// Nothing came of it: the record goes on, if it has all that the lane did.
    pub fn resume(&mut self, key: PoolKey, record: Record) {
        if let Some(cache) = self.cache_mut(key) {
            let untouched = matches!(cache.set_track(None), Some(Track::Turning(false)));
            cache.set_track(untouched.then_some(Track::Record(record)));
        }
    }

    /// A joint plan came of it. False if it came too late for this lane.
    pub fn join(&mut self, key: PoolKey, seat: Seat) -> bool {
        let Some(cache) = self.cache_mut(key) else {
            return false;
        };
        let untouched = matches!(cache.set_track(None), Some(Track::Turning(false)));
        if untouched {
            cache.calm.learn(true);
            cache.set_track(Some(Track::Joint(seat)));
            self.plans += 1;
            // As in `end_turn`.
            self.ends.change();
        }
        untouched
    }

    /// The joint plan has ended.
    pub fn leave(&mut self, key: PoolKey) {
        let cache = self.cache_mut(key);
        let left =
            cache.and_then(|cache| cache.end_track(|track| matches!(track, Track::Joint(_))));
        self.plans -= u32::from(left.is_some());
    }

    /// Ends the plan. What is live of it stays counted as live here, but is not found any more.
    pub fn end_plan(&mut self, key: PoolKey) -> Option<Plan> {
        let cache = self.cache_mut(key)?;
        let track = cache.end_track(|track| matches!(track, Track::Plan(_)))?;
        let Track::Plan(plan) = track else {
            return None;
        };
        cache.patience.learn(plan.has_served());
        cache.cached -= plan.bytes() - plan.live_bytes();
        self.plans -= 1;
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
            Track::Record(_) | Track::Turning(_) | Track::Joint(_) => None,
        }
    }

    /// Ends the live block of a plan that starts at an address: it dies elsewhere.
    pub fn drop_planned(&mut self, key: PoolKey, addr: u64, death: &Frontier) -> Option<Block> {
        let cache = self.cache_mut(key)?;
        let Some(Track::Plan(plan)) = cache.track.as_deref_mut() else {
            return None;
        };
        let block = plan.put_elsewhere(addr, death)?;
        cache.live -= block.bytes;
        cache.cached += block.bytes;
        Some(block)
    }

    /// Forgets what a lane did, and how its plans fared: addresses are no longer what they were, and a
    /// program that gives memory back is about to do something else.
    pub fn forget_record(&mut self, key: PoolKey) {
        if let Some(cache) = self.cache_mut(key) {
            cache.end_track(|track| matches!(track, Track::Record(_)));
            cache.patience = Patience::default();
            cache.calm = Patience::default();
        }
    }
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
        cache.calm.learn(false);
        cache.set_track(None);
    }
}

//! What one lane holds of the pools it uses: blocks lent to it, live ones and those it just freed.
//!
//! Owns the blocks between two uses on the same in-order lane. Everything that dies here dies on
//! this lane, and the lane's next command comes after all that: so what is handed out again needs no
//! look at order, at completion or at the pool, and the only lock taken is this lane's own.
//!
//! | state of a block | in the store | here | leaves by |
//! |---|---|---|---|
//! | lent, live | live | entry, `live` | [`Stash::free`]; a free elsewhere, through the pool |
//! | lent, cached | live | entry, in its size's bin | [`Stash::alloc`]; the pool's recall |
//! | a plan's | held, with all the plan's memory | the plan's list (`tracks`) | the plan's end: lent, or not |
//! | not lent | as the store says | nothing | the pool lends it |
//!
//! A cached block counts as free in all figures. The pool takes them back before it grows, and from
//! lanes that a request comes after whenever they might serve it. How much may become live here
//! before a high has to be looked at is `credit` (see `meter`).

pub(crate) mod extent_version;
mod hash;
pub(crate) mod table;
mod tracks;
pub(crate) mod usage;

use crate::pool::cache::extent_version::{Ends, EndsTeller};
use crate::pool::cache::hash::Table;
use crate::pool::heap::search::round;
use crate::pool::options::{BIN_PROBES, CACHE_BINS, MAX_CUT_RATIO};
use crate::pool::replay::{Busy, Patience, Record, Track};
use crate::pool::request::Block;
use crate::timeline::rank;
use crate::timeline::sync::{Brief, BriefGuard};
use crate::timeline::{Clock, Frontier, LaneId, Point};
use std::sync::Arc;
use tracks::note;

/// Identity of a pool among the stashes, or of a meter. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolKey(u64);

impl PoolKey {
    /// Nobody's.
    const NONE: Self = Self(0);

    pub(crate) fn fresh() -> Self {
        // Identity only; a plain `std` atomic, since loom's cannot live in a static.
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        Self(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
    }

    /// Never 0.
    pub fn get(self) -> u64 {
        self.0
    }

    /// What [`PoolKey::get`] gave.
    pub fn from_raw(raw: u64) -> Self {
        Self(raw)
    }
}

const NIL: u32 = u32::MAX;
/// Of an entry: that no record has it, or that its free stands there already, whoever frees it then.
const UNNOTED: u32 = 0;
const NOTED: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Bin {
    bytes: u64,
    head: u32,
}

/// On a cache line of its own, and so at most a neighbour of the same stash: the allocator would put
/// another lane's memory beside it.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Entry {
    addr: u64,
    bytes: u64,
    requested: u64,
    /// When cached: the lane's epoch at the free.
    epoch: u64,
    next: u32,
    cache: u32,
    seg: u32,
    /// The record that has it, [`UNNOTED`] or [`NOTED`], and as what.
    record: u32,
    nth: u32,
    state: Use,
}

/// Whether a block is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Use {
    Cached,
    Live,
    /// Since there was a track, which may have ended.
    Tracked,
}

impl Entry {
    fn new(block: &Block, cache: usize, seg: u32) -> Self {
        Self {
            addr: block.addr,
            bytes: block.bytes,
            requested: block.requested,
            epoch: 0,
            next: NIL,
            cache: cache as u32,
            seg,
            record: UNNOTED,
            nth: 0,
            state: Use::Live,
        }
    }

    fn lent(&self) -> Lent {
        Lent {
            seg: self.seg,
            requested: self.requested,
            bytes: self.bytes,
            died: (self.state == Use::Cached).then_some(self.epoch),
        }
    }
}

#[derive(Debug)]
#[repr(align(128))]
struct Bins([Bin; CACHE_BINS]);

/// One pool's blocks in one stash. Aligned as [`Stash`] is.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Cache {
    key: PoolKey,
    /// The same without a track, else none: who finds it here need not look for one.
    plain: PoolKey,
    pub meter: PoolKey,
    min_align: u64,
    /// Where the pool keeps this stash.
    pub slot: u32,
    /// Bytes live through this stash, and what they may rise to without asking.
    pub live: u64,
    pub credit: u64,
    pub cached: u64,
    /// No block cached here died earlier.
    pub oldest: u64,
    pub hits: u64,
    pub frees: u64,
    /// Hits by way of a plan.
    pub planned: u64,
    track: Option<Box<Track>>,
    /// What its records tell whether they have something live; none without replay.
    busy: Option<Busy>,
    patience: Patience,
    /// The same, of records.
    calm: Patience,
    bins: Box<Bins>,
}

/// The blocks that a lane holds, of whatever pools. One a lane, shared with its pools.
///
/// Aligned so that no two lanes' locks share a cache line, nor a pair that is fetched together.
#[derive(Debug)]
#[repr(align(128))]
pub struct Stash {
    clock: Arc<Clock>,
    inner: Brief<Inner, { rank::CACHE }>,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    caches: Vec<Option<Cache>>,
    entries: Vec<Entry>,
    spare: Vec<u32>,
    table: Table,
    /// Told of blocks that are handed out again as less.
    ends: EndsTeller,
    retired: bool,
    /// How many records there were.
    records: u32,
    /// How many caches have a plan.
    plans: u32,
}

/// Why a stash did not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    NoBlock,
    /// There is a block, but without so many bytes more of credit a high may rise.
    NoCredit(u64),
}

pub(crate) type Taken<T> = Result<T, Miss>;

/// What a pool finds out about a block that it lent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lent {
    /// What the pool's store calls it.
    pub seg: u32,
    pub requested: u64,
    bytes: u64,
    /// `Some` with the epoch of its death when it is cached.
    pub died: Option<u64>,
}

impl Stash {
    /// For the lane with this clock.
    pub fn new(clock: &Arc<Clock>, ends: &Arc<Ends>) -> Arc<Self> {
        Arc::new(Self {
            clock: Arc::clone(clock),
            inner: Brief::new(Inner {
                ends: EndsTeller::new(ends),
                ..Inner::default()
            }),
        })
    }

    pub fn lane(&self) -> LaneId {
        self.clock.id()
    }

    pub(crate) fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    /// A block of that pool which died on this lane, for the lane's next command. `None` sends the
    /// caller to [`Pool::acquire_on`](crate::pool::Pool::acquire_on).
    #[inline]
    pub fn alloc(&self, key: PoolKey, bytes: u64) -> Option<Block> {
        self.inner.lock().take(key, bytes, |block| block).ok()
    }

    /// Frees a live block that was lent to this lane. Its death is the lane's own point `epoch`, that
    /// of its last command, and nothing else. `None` sends the caller to the pools, which know of
    /// blocks of other lanes.
    #[inline(always)]
    pub fn free(&self, addr: u64, epoch: u64) -> Option<Block> {
        self.inner.lock().put(addr, epoch, |block| block)
    }

    /// As [`Stash::free`], for who has no use for the block.
    #[inline(always)]
    pub(crate) fn frees(&self, addr: u64, epoch: u64) -> bool {
        self.inner.lock().put(addr, epoch, drop).is_some()
    }

    /// The lane has ended. Pools forget the stash when they next look at it.
    pub fn retire(&self) {
        self.inner.lock().retired = true;
    }

    #[inline]
    pub(crate) fn lock(&self) -> BriefGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Whether a death here at `epoch` was observed complete.
    pub(crate) fn is_complete(&self, epoch: u64) -> bool {
        epoch <= self.clock.reliable()
    }

    /// What a block that died here at `epoch` still has to wait for.
    pub(crate) fn death(&self, epoch: u64) -> Frontier {
        if self.is_complete(epoch) {
            Frontier::new()
        } else {
            Frontier::from(Point::new(&self.clock, epoch))
        }
    }
}

impl Cache {
    /// The bin for a size, if there is one with such blocks.
    #[inline(always)]
    fn bin(&self, bytes: u64) -> Option<usize> {
        let at = spread(bytes);
        match self.serves(at, bytes) {
            // As mostly.
            true => Some(at),
            false => self.window(bytes).find(|at| self.serves(*at, bytes)),
        }
    }

    #[inline(always)]
    fn serves(&self, at: usize, bytes: u64) -> bool {
        let bin = &self.bins.0[at];
        bin.bytes == bytes && bin.head != NIL
    }

    /// The bin for a block of this size, if there is room for one.
    #[inline(always)]
    fn bin_for(&self, bytes: u64) -> Option<usize> {
        let at = spread(bytes);
        match self.bins.0[at].bytes == bytes {
            true => Some(at),
            false => self.some_bin_for(bytes),
        }
    }

    #[inline(never)]
    fn some_bin_for(&self, bytes: u64) -> Option<usize> {
        let own = self
            .window(bytes)
            .find(|at| self.bins.0[*at].bytes == bytes);
        own.or_else(|| self.window(bytes).find(|at| self.bins.0[*at].head == NIL))
    }

    /// The bins that a size may be in.
    fn window(&self, bytes: u64) -> impl Iterator<Item = usize> + use<> {
        let at = spread(bytes);
        (0..BIN_PROBES).map(move |step| (at + step) % CACHE_BINS)
    }
}

/// Sizes come as few significant bits at any height: Fibonacci hashing (Knuth, vol. 3, 6.4).
#[inline(always)]
fn spread(bytes: u64) -> usize {
    (bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize
}

impl Inner {
    fn at(&self, key: PoolKey) -> Option<usize> {
        let is = |cache: &Option<Cache>| cache.as_ref().is_some_and(|cache| cache.key == key);
        self.caches.iter().position(is)
    }

    pub fn cache(&self, key: PoolKey) -> Option<&Cache> {
        self.caches.iter().flatten().find(|cache| cache.key == key)
    }

    pub fn cache_mut(&mut self, key: PoolKey) -> Option<&mut Cache> {
        let mut caches = self.caches.iter_mut().flatten();
        caches.find(|cache| cache.key == key)
    }

    pub fn caches_mut(&mut self) -> impl Iterator<Item = &mut Cache> {
        self.caches.iter_mut().flatten()
    }

    pub fn is_retired(&self) -> bool {
        self.retired
    }

    /// What is asked `of` the block is told before the ways join, so that what nobody asks for costs
    /// nothing.
    #[inline(always)]
    pub fn take<R>(&mut self, key: PoolKey, requested: u64, of: impl Fn(Block) -> R) -> Taken<R> {
        let mut caches = self.caches.iter_mut().flatten();
        let Some(cache) = caches.find(|cache| cache.plain == key) else {
            return self.take_tracked(key, requested).map(of);
        };
        let bytes = round(requested, cache.min_align).ok_or(Miss::NoBlock)?;
        take_from(cache, &mut self.entries, &mut self.ends, (bytes, requested)).map(of)
    }

    #[inline(always)]
    fn put<R>(&mut self, addr: u64, epoch: u64, of: impl Fn(Block) -> R) -> Option<R> {
        if self.plans > 0
            && let Some(block) = self.put_next(addr, epoch)
        {
            return Some(of(block));
        }
        let Some(id) = self.table.get(addr) else {
            return self.put_early(addr, epoch).map(of);
        };
        let entry = self.entries.get_mut(id as usize)?;
        if entry.state != Use::Live {
            return self.put_tracked(id, epoch).map(of);
        }
        let cache = self.caches[entry.cache as usize].as_mut()?;
        cache_it(cache, entry, id, epoch).map(of)
    }

    /// Makes room for a pool's blocks.
    pub fn open(
        &mut self,
        (key, meter): (PoolKey, PoolKey),
        min_align: u64,
        slot: u32,
        busy: Option<&Busy>,
    ) {
        let empty = Bin {
            bytes: 0,
            head: NIL,
        };
        let cache = Cache {
            key,
            plain: key,
            meter,
            min_align,
            slot,
            live: 0,
            credit: 0,
            cached: 0,
            oldest: 0,
            hits: 0,
            frees: 0,
            planned: 0,
            track: None,
            busy: busy.cloned(),
            patience: Patience::default(),
            calm: Patience::default(),
            bins: Box::new(Bins([empty; CACHE_BINS])),
        };
        match self.caches.iter_mut().find(|cache| cache.is_none()) {
            Some(vacant) => *vacant = Some(cache),
            None => self.caches.push(Some(cache)),
        }
    }

    /// Takes in a live block, whose bytes the meter has granted.
    pub fn lend(&mut self, key: PoolKey, block: &Block, seg: u32) -> bool {
        let Some(at) = self.at(key) else { return false };
        let id = self.enter(Entry::new(block, at, seg));
        if let Some(cache) = &mut self.caches[at] {
            cache.live += block.bytes;
            cache.credit += block.bytes;
            if let Some(busy) = &cache.busy
                && cache.track.is_none()
                && !cache.calm.waits()
            {
                self.records = self.records % (NOTED - 1) + 1;
                let record = Record::new(self.records, busy);
                cache.set_track(Some(Track::Record(record)));
            }
            note(cache, &mut self.entries[id as usize], block, true);
        }
        true
    }

    fn enter(&mut self, entry: Entry) -> u32 {
        let id = match self.spare.pop() {
            Some(id) => {
                self.entries[id as usize] = entry;
                id
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.table.insert(entry.addr, id);
        id
    }

    /// A block that was lent here.
    pub fn look(&self, addr: u64) -> Option<Lent> {
        let entry = self.entries.get(self.table.get(addr)? as usize)?;
        Some(entry.lent())
    }

    /// Lets a live block go: it is freed elsewhere, or all lanes have ended a lap with it, as is told.
    pub fn drop_live(&mut self, addr: u64) -> Option<(Lent, bool)> {
        let lent = self.look(addr).filter(|lent| lent.died.is_none())?;
        let id = self.table.remove(addr)?;
        self.spare.push(id);
        let entry = &mut self.entries[id as usize];
        if let Some(cache) = &mut self.caches[entry.cache as usize] {
            cache.live -= lent.bytes;
            if let Some(Track::Record(record)) = cache.track.as_deref_mut()
                && entry.record == record.number
            {
                if record.ends_all() {
                    record.free(Some(entry.nth));
                    return Some((lent, true));
                }
                record.lose(entry.nth);
            }
        }
        Some((lent, false))
    }

    /// Whether a pool's sums are those of its blocks. Those of a replay plan are not among them.
    #[cfg(any(test, feature = "oracle"))]
    pub fn audit(&self, key: PoolKey) -> Result<(), String> {
        let Some(at) = self.at(key) else {
            return Ok(());
        };
        let Some(cache) = &self.caches[at] else {
            return Ok(());
        };
        let (live, credit) = (cache.live, cache.credit);
        if live > credit {
            return Err(format!("{live} bytes live, {credit} granted"));
        }
        if self.is_joined(key) || self.has_plan(key) {
            return Ok(());
        }
        let (mut found, mut cached) = (0, 0);
        for (addr, id) in self.table.all() {
            let entry = &self.entries[id as usize];
            if entry.addr != addr {
                return Err(format!("the block at {addr:#x} is another"));
            }
            if entry.cache as usize == at {
                match entry.state {
                    Use::Cached => cached += entry.bytes,
                    Use::Live | Use::Tracked => found += entry.bytes,
                }
            }
        }
        match (found, cached) == (live, cache.cached) {
            true => Ok(()),
            false => Err(format!(
                "{found} bytes live and {cached} cached, not {live} and {}",
                cache.cached
            )),
        }
    }

    /// Takes out the cached blocks of a pool that have so many bytes.
    pub fn recall(&mut self, key: PoolKey, least: u64, out: &mut Vec<Lent>) {
        let Some(at) = self.at(key) else { return };
        let Some(cache) = &mut self.caches[at] else {
            return;
        };
        let bins = cache.bins.0.iter_mut();
        for bin in bins.filter(|bin| bin.bytes >= least) {
            while bin.head != NIL {
                let id = bin.head;
                let entry = &self.entries[id as usize];
                bin.head = entry.next;
                cache.cached -= entry.bytes;
                self.table.remove(entry.addr);
                self.spare.push(id);
                out.push(entry.lent());
            }
        }
    }

    /// Takes out the smallest cached block of a pool that has so many bytes, if that is not many times
    /// too large.
    pub fn recall_one(&mut self, key: PoolKey, bytes: u64) -> Option<Lent> {
        let at = self.at(key)?;
        let cache = self.caches[at].as_mut()?;
        let fits = bytes..=bytes.saturating_mul(MAX_CUT_RATIO);
        let bins = cache.bins.0.iter_mut();
        let bins = bins.filter(|bin| bin.head != NIL && fits.contains(&bin.bytes));
        let bin = bins.min_by_key(|bin| bin.bytes)?;
        let id = bin.head;
        let entry = &self.entries[id as usize];
        bin.head = entry.next;
        cache.cached -= entry.bytes;
        self.table.remove(entry.addr);
        self.spare.push(id);
        Some(entry.lent())
    }

    /// Takes out all blocks of a pool, and forgets the pool.
    pub fn close(&mut self, key: PoolKey) -> Option<(Cache, Vec<Lent>)> {
        let at = self.at(key)?;
        let mut out = Vec::new();
        self.recall(key, 0, &mut out);
        for (addr, id) in self.table.all() {
            let entry = &self.entries[id as usize];
            if entry.cache as usize == at {
                self.table.remove(addr);
                self.spare.push(id);
                out.push(entry.lent());
            }
        }
        Some((self.caches[at].take()?, out))
    }
}

/// Puts a live block into its size's bin, if there is room.
#[inline(always)]
fn cache_it(cache: &mut Cache, entry: &mut Entry, id: u32, epoch: u64) -> Option<Block> {
    let bin = cache.bin_for(entry.bytes)?;
    let bin = &mut cache.bins.0[bin];
    entry.state = Use::Cached;
    entry.epoch = epoch;
    entry.next = bin.head;
    *bin = Bin {
        bytes: entry.bytes,
        head: id,
    };
    cache.oldest = if cache.cached == 0 {
        epoch
    } else {
        cache.oldest.min(epoch)
    };
    debug_assert!(cache.live >= entry.bytes, "freed what was not live");
    cache.live -= entry.bytes;
    cache.cached += entry.bytes;
    cache.frees += 1;
    Some(Block {
        addr: entry.addr,
        bytes: entry.bytes,
        requested: entry.requested,
    })
}

/// Whether there is enough credit.
#[inline(always)]
pub(in crate::pool) fn afford(bytes: u64, credit: u64) -> Taken<()> {
    match bytes.checked_sub(credit) {
        None | Some(0) => Ok(()),
        Some(lack) => Err(Miss::NoCredit(lack)),
    }
}

/// Takes a cached block of this size.
#[inline(always)]
fn take_from(
    cache: &mut Cache,
    entries: &mut [Entry],
    ends: &mut EndsTeller,
    (bytes, requested): (u64, u64),
) -> Taken<Block> {
    let bin = cache.bin(bytes).ok_or(Miss::NoBlock)?;
    debug_assert!(cache.live <= cache.credit, "live beyond the quota");
    afford(bytes, cache.credit - cache.live)?;
    cache.live += bytes;
    cache.cached -= bytes;
    cache.hits += 1;
    let bin = &mut cache.bins.0[bin];
    let head = bin.head as usize;
    let entry = &mut entries[head];
    bin.head = entry.next;
    entry.state = Use::Live;
    if requested < entry.requested {
        ends.change();
    }
    entry.requested = requested;
    Ok(Block {
        addr: entry.addr,
        bytes,
        requested,
    })
}

//! Stream caches: the blocks that one lane holds of the pools that it uses.
//!
//! A [`StreamCache`] owns the blocks between two uses on the same in-order lane. A free on the lane puts a
//! block into the bin of its size, and the next allocation of that size takes it out. The lane's next command
//! comes after all that died on the lane. So a hit looks at neither order, completion nor the pool. It calls
//! no driver, and takes no lock but the cache's own.
//!
//! | state of a block | in the heap | here | left by |
//! |---|---|---|---|
//! | live | live | an entry | [`StreamCache::free`]; a free elsewhere, through the pool |
//! | cached | live | an entry, in the bin of its size | [`StreamCache::alloc`]; the pool's recall |
//! | coalesced | live, between other bounds | the entry of the whole, in the list of its class | the same |
//! | a replay plan's | held, with all the plan's memory | nothing; the plan has it | the plan's end |
//! | the pool's own | live or free | nothing | the pool allocates it on the lane |
//!
//! A cached block counts as free in all figures. The pool recalls cached blocks before it grows, and from
//! lanes that a request comes after whenever they might serve it. [`table`] is the pool's side: the caches
//! that have blocks of it. [`usage`] keeps the bytes used and their high exact: what may become live through a
//! cache is its quota, and all quotas together never exceed the high. [`replay`] is what a cache does while a
//! lane is traced or replayed. [`coalesced`] is what it does where a lane is alone in a pool without replay: dead memory
//! is coalesced, and blocks are cut from it.

mod coalesced;
pub(crate) mod extent_version;
mod hash;
mod replay;
pub(crate) mod table;
pub(crate) mod usage;

use crate::pool::cache::coalesced::Coalesced;
use crate::pool::cache::extent_version::{ExtentVersion, VersionChanger};
use crate::pool::cache::hash::AddressMap;
use crate::pool::options::{BIN_PROBES, CACHE_BINS, LARGEST_BIN_UNITS, MAX_CUT_RATIO};
use crate::pool::replay::{Backoff, Replay, Trace};
use crate::pool::request::Block;
use crate::pool::rounding::Rounding;
use crate::sync::{Brief, BriefGuard, rank};
use crate::timeline::{Clock, Frontier, LaneId, Point};
use std::sync::{Arc, Weak};

/// Identity of a pool in stream caches, or of a [`usage::Usage`]. Never reused.
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
/// The trace of an entry that no trace has, and of one whose free its trace has already.
const UNTRACED: u32 = 0;
const FREE_TRACED: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Bin {
    bytes: u64,
    head: u32,
}

/// A block that the lane has. Aligned so that it shares no processor cache line with another lane's memory.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Entry {
    pub block: Block,
    /// When cached: the lane's epoch at the free.
    epoch: u64,
    next: u32,
    /// The entry before it among the coalesced blocks of its class.
    prev: u32,
    cache: u32,
    /// The block's segment in the pool's heap.
    pub seg: u32,
    /// The number of the trace that has it, and of the block there.
    trace: u32,
    nth: u32,
    state: Use,
}

/// Whether a block is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Use {
    Cached,
    /// Cached, and coalesced with what was cached beside it.
    Coalesced,
    Live,
    /// Live, and allocated while the lane was traced, which may have ended.
    Traced,
}

impl Entry {
    fn new(block: &Block, cache: usize, seg: u32) -> Self {
        Self {
            block: *block,
            epoch: 0,
            next: NIL,
            prev: NIL,
            cache: cache as u32,
            seg,
            trace: UNTRACED,
            nth: 0,
            state: Use::Live,
        }
    }

    /// The epoch of its death, if it is cached.
    pub fn died(&self) -> Option<u64> {
        matches!(self.state, Use::Cached | Use::Coalesced).then_some(self.epoch)
    }
}

#[derive(Debug)]
#[repr(align(128))]
struct Bins([Bin; CACHE_BINS]);

impl Default for Bins {
    fn default() -> Self {
        let empty = Bin {
            bytes: 0,
            head: NIL,
        };
        Self([empty; CACHE_BINS])
    }
}

/// One pool's blocks in one stream cache. Aligned as [`StreamCache`] is.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Cache {
    key: PoolKey,
    /// The key while there is no replay state, else [`PoolKey::NONE`]: a hit looks for nothing else.
    plain: PoolKey,
    pub usage: PoolKey,
    rounding: Rounding,
    /// Bytes live through this cache, and what they may rise to without asking.
    pub live: u64,
    pub quota: u64,
    pub cached: u64,
    /// No block cached here died earlier than at this epoch.
    pub oldest: u64,
    pub hits: u64,
    pub frees: u64,
    replay: Option<Replay>,
    /// The mark of the pool's traces; none without replay.
    traces: Option<Weak<()>>,
    /// Misses of traces that came to nothing, until the backoff counts them.
    failed_misses: u64,
    bins: Box<Bins>,
    coalesced: Option<Box<Coalesced>>,
}

/// The blocks that a lane holds of all pools, shared by the lane and the pools.
///
/// Aligned so that no two caches' locks share a cache line of the processor, nor a pair that it fetches
/// together.
#[derive(Debug)]
#[repr(align(128))]
pub struct StreamCache {
    clock: Arc<Clock>,
    inner: Brief<Inner, { rank::CACHE }>,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    caches: Vec<Cache>,
    entries: Vec<Entry>,
    /// Vacant entries.
    vacant: Vec<u32>,
    by_address: AddressMap,
    /// Changed when a block is allocated again with fewer bytes requested.
    version: VersionChanger,
    retired: bool,
    /// Traces so far: their numbers.
    traces: u32,
    /// Caches that replay.
    plans: u32,
}

/// Why a stream cache did not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    NoBlock,
    /// There is a block, but without so many bytes more of quota a high may rise.
    NoQuota(u64),
}

pub(crate) type CacheResult<T> = Result<T, Miss>;

impl StreamCache {
    /// For the lane with this clock. Changes `version` when an allocation may end earlier than it did.
    pub fn new(clock: &Arc<Clock>, version: &Arc<ExtentVersion>) -> Arc<Self> {
        Arc::new(Self {
            clock: Arc::clone(clock),
            inner: Brief::new(Inner {
                version: VersionChanger::new(version),
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

    /// Allocates a cached block of a pool for the lane's next command: a lock, and a bin. None sends the caller
    /// to [`Pool::acquire_on`](crate::pool::Pool::acquire_on).
    #[inline]
    pub fn alloc(&self, key: PoolKey, bytes: u64) -> Option<Block> {
        self.inner.lock().alloc(key, bytes, |block| block).ok()
    }

    /// Frees a live block of this lane. Its death is the lane's own point `epoch`, that of its last command,
    /// and nothing else. None sends the caller to the pools, which know the blocks of other lanes.
    #[inline(always)]
    pub fn free(&self, addr: u64, epoch: u64) -> Option<Block> {
        self.inner.lock().free(addr, epoch, |block| block)
    }

    /// Frees as [`StreamCache::free`] does; true if there was such a block.
    #[inline(always)]
    pub(crate) fn try_free(&self, addr: u64, epoch: u64) -> bool {
        self.inner.lock().free(addr, epoch, drop).is_some()
    }

    /// Reports that the lane ended. Pools forget the cache when they next look at it.
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
        if self.coalesced.is_some() && bytes > LARGEST_BIN_UNITS * self.rounding.min_align {
            return None;
        }
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
        self.caches.iter().position(|cache| cache.key == key)
    }

    pub fn cache(&self, key: PoolKey) -> Option<&Cache> {
        self.caches.iter().find(|cache| cache.key == key)
    }

    pub fn cache_mut(&mut self, key: PoolKey) -> Option<&mut Cache> {
        self.caches.iter_mut().find(|cache| cache.key == key)
    }

    pub fn caches_mut(&mut self) -> impl Iterator<Item = &mut Cache> {
        self.caches.iter_mut()
    }

    pub fn is_retired(&self) -> bool {
        self.retired
    }

    /// Allocates a cached block, or a plan's. `of` picks what the caller wants of the block, before the paths
    /// join: the rest costs nothing.
    #[inline(always)]
    pub fn alloc<R>(
        &mut self,
        key: PoolKey,
        requested: u64,
        of: impl Fn(Block) -> R,
    ) -> CacheResult<R> {
        let mut caches = self.caches.iter_mut();
        let Some(cache) = caches.find(|cache| cache.plain == key) else {
            return self.alloc_replayed(key, requested).map(of);
        };
        let bytes = cache.rounding.apply(requested).ok_or(Miss::NoBlock)?;
        let sizes = (bytes, requested);
        match alloc_cached(cache, &mut self.entries, &mut self.version, sizes) {
            Err(Miss::NoBlock) => self.alloc_coalesced(key, sizes).map(of),
            found => found.map(of),
        }
    }

    /// Frees a live block of the lane, or of a plan.
    #[inline(always)]
    fn free<R>(&mut self, addr: u64, epoch: u64, of: impl Fn(Block) -> R) -> Option<R> {
        if self.plans > 0
            && let Some(block) = self.free_planned(addr, epoch)
        {
            return Some(of(block));
        }
        let id = self.by_address.get(addr)?;
        let entry = self.entries.get_mut(id as usize)?;
        if entry.state != Use::Live {
            return self.free_traced(id, epoch).map(of);
        }
        let cache = self.caches.get_mut(entry.cache as usize)?;
        match cache_block(cache, entry, id, epoch) {
            None => self.free_coalesced(id, epoch).map(of),
            block => block.map(of),
        }
    }

    /// Opens a cache for a pool. `traces` is none where streams are not replayed.
    pub fn open(
        &mut self,
        (key, usage): (PoolKey, PoolKey),
        rounding: Rounding,
        traces: Option<Weak<()>>,
    ) {
        self.caches.push(Cache {
            key,
            plain: key,
            usage,
            rounding,
            live: 0,
            quota: 0,
            cached: 0,
            oldest: 0,
            hits: 0,
            frees: 0,
            replay: None,
            traces,
            failed_misses: 0,
            bins: Box::default(),
            coalesced: None,
        });
    }

    /// Inserts a live block of the pool, with its quota. False if the cache has none of the pool.
    pub fn insert(&mut self, key: PoolKey, block: &Block, seg: u32, backoff: &mut Backoff) -> bool {
        let Some(at) = self.at(key) else { return false };
        let id = self.enter(Entry::new(block, at, seg));
        let cache = &mut self.caches[at];
        cache.live += block.bytes;
        cache.quota += block.bytes;
        if let Some(traces) = &cache.traces
            && cache.replay.is_none()
        {
            let failed = std::mem::take(&mut cache.failed_misses);
            if failed > 0 {
                backoff.failed(failed);
            }
            if !backoff.waits() {
                self.traces = self.traces % (FREE_TRACED - 1) + 1;
                let trace = Trace::new(self.traces, traces);
                cache.set_replay(Some(Replay::Tracing(Box::new(trace))));
            }
        }
        cache.trace(&mut self.entries[id as usize], block, true);
        true
    }

    fn enter(&mut self, entry: Entry) -> u32 {
        let id = match self.vacant.pop() {
            Some(id) => {
                self.entries[id as usize] = entry;
                id
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.by_address.insert(entry.block.addr, id);
        id
    }

    /// The block of the lane that starts at an address.
    pub fn find(&self, addr: u64) -> Option<Entry> {
        let id = self.by_address.get(addr)?;
        self.entries.get(id as usize).copied()
    }

    /// The block of the lane, live or not, that has an address. It lies behind `from`, where one starts, without a gap.
    pub fn find_behind(&self, mut from: u64, addr: u64) -> Option<Entry> {
        loop {
            let own = self.find(from)?;
            from = own.block.range().end();
            if addr < from {
                return Some(own);
            }
        }
    }

    /// Removes a live block, which is freed elsewhere; with it, whether that ends an iteration of all streams.
    pub fn remove_live(&mut self, addr: u64) -> Option<(Entry, bool)> {
        let own = self.find(addr).filter(|own| own.died().is_none())?;
        self.vacant.extend(self.by_address.remove(addr));
        let cache = &mut self.caches[own.cache as usize];
        cache.live -= own.block.bytes;
        if let Some(Replay::Tracing(trace)) = cache.replay.as_mut()
            && own.trace == trace.number
        {
            if trace.ends_all() {
                trace.free(Some(own.nth));
                return Some((own, true));
            }
            trace.free_elsewhere(own.nth);
        }
        Some((own, false))
    }

    /// Whether a pool's sums are those of its blocks.
    #[cfg(any(test, feature = "oracle"))]
    pub fn audit(&self, key: PoolKey) -> Result<(), String> {
        let Some(at) = self.at(key) else {
            return Ok(());
        };
        let cache = &self.caches[at];
        let (live, quota) = (cache.live, cache.quota);
        if live > quota {
            return Err(format!("{live} bytes live, {quota} granted"));
        }
        let (mut found, mut cached) = (0, 0);
        for (addr, id) in self.by_address.all() {
            let entry = &self.entries[id as usize];
            if entry.block.addr != addr {
                return Err(format!("the block at {addr:#x} is another"));
            }
            if entry.cache as usize == at {
                match entry.state {
                    Use::Cached | Use::Coalesced => cached += entry.block.bytes,
                    Use::Live | Use::Traced => found += entry.block.bytes,
                }
            }
        }
        self.audit_coalesced(at)?;
        match (found, cached) == (live, cache.cached) {
            true => Ok(()),
            false => Err(format!(
                "{found} bytes live and {cached} cached, not {live} and {}",
                cache.cached
            )),
        }
    }

    /// The ranges of a pool's blocks, coalesced ones among them.
    #[cfg(any(test, feature = "oracle"))]
    pub fn ranges(&self, key: PoolKey) -> Vec<crate::pool::provider::Slab> {
        let at = self.at(key);
        let all = self.by_address.all().into_iter();
        let all = all.map(|(_, id)| self.entries[id as usize]);
        all.filter(|own| Some(own.cache as usize) == at)
            .map(|own| own.block.range())
            .collect()
    }

    /// Removes the cached blocks of a pool that have at least so many bytes.
    pub fn recall(&mut self, key: PoolKey, least: u64, out: &mut Vec<Entry>) {
        let Some(at) = self.at(key) else { return };
        let holds = |bin: &Bin| bin.head != NIL && bin.bytes >= least;
        let mut from = 0;
        while let Some(next) = self.caches[at].bins.0[from..].iter().position(holds) {
            let bin = from + next;
            out.extend(std::iter::from_fn(|| self.evict(at, bin)));
            from = bin + 1;
        }
        self.recall_coalesced(at, least, out);
    }

    /// Removes the smallest cached block of a pool that has so many bytes, if it is not many times too large.
    pub fn recall_one(&mut self, key: PoolKey, bytes: u64) -> Option<Entry> {
        let at = self.at(key)?;
        let fits = bytes..=bytes.saturating_mul(MAX_CUT_RATIO);
        let bins = self.caches[at].bins.0.iter().enumerate();
        let bins = bins.filter(|(_, bin)| bin.head != NIL && fits.contains(&bin.bytes));
        let (bin, _) = bins.min_by_key(|(_, bin)| bin.bytes)?;
        self.evict(at, bin)
    }

    /// Removes the block that was cached last in a bin.
    fn evict(&mut self, at: usize, bin: usize) -> Option<Entry> {
        let cache = &mut self.caches[at];
        let bin = &mut cache.bins.0[bin];
        let entry = *self.entries.get(bin.head as usize)?;
        debug_assert!(entry.state == Use::Cached, "a live block in a bin");
        debug_assert!(entry.epoch >= cache.oldest, "a death before the oldest");
        let id = self.by_address.remove(entry.block.addr);
        debug_assert_eq!(id, Some(bin.head), "a block at another's address");
        self.vacant.push(bin.head);
        bin.head = entry.next;
        cache.cached -= entry.block.bytes;
        Some(entry)
    }

    /// Removes all blocks of a pool, and its cache. The last cache takes its place.
    pub fn close(&mut self, key: PoolKey) -> Option<(Cache, Vec<Entry>)> {
        let at = self.at(key)?;
        let own = self.caches.swap_remove(at);
        let (last, mut out) = (self.caches.len(), Vec::new());
        for (addr, id) in self.by_address.all() {
            let entry = &mut self.entries[id as usize];
            if entry.cache as usize == at {
                self.by_address.remove(addr);
                self.vacant.push(id);
                out.push(*entry);
            } else if entry.cache as usize == last {
                entry.cache = at as u32;
            }
        }
        Some((own, out))
    }
}

/// Puts a live block into its size's bin, if there is room.
#[inline(always)]
fn cache_block(cache: &mut Cache, entry: &mut Entry, id: u32, epoch: u64) -> Option<Block> {
    let bin = cache.bin_for(entry.block.bytes)?;
    let bin = &mut cache.bins.0[bin];
    entry.state = Use::Cached;
    entry.epoch = epoch;
    entry.next = bin.head;
    *bin = Bin {
        bytes: entry.block.bytes,
        head: id,
    };
    cache.oldest = if cache.cached == 0 {
        epoch
    } else {
        cache.oldest.min(epoch)
    };
    debug_assert!(cache.live >= entry.block.bytes, "freed what was not live");
    cache.live -= entry.block.bytes;
    cache.cached += entry.block.bytes;
    cache.frees += 1;
    Some(entry.block)
}

/// Whether the quota is enough.
#[inline(always)]
pub(in crate::pool) fn check_quota(bytes: u64, quota: u64) -> CacheResult<()> {
    match bytes.checked_sub(quota) {
        None | Some(0) => Ok(()),
        Some(lack) => Err(Miss::NoQuota(lack)),
    }
}

/// Takes a cached block of this size.
#[inline(always)]
fn alloc_cached(
    cache: &mut Cache,
    entries: &mut [Entry],
    version: &mut VersionChanger,
    (bytes, requested): (u64, u64),
) -> CacheResult<Block> {
    let bin = cache.bin(bytes).ok_or(Miss::NoBlock)?;
    debug_assert!(cache.live <= cache.quota, "live beyond the quota");
    check_quota(bytes, cache.quota - cache.live)?;
    cache.live += bytes;
    cache.cached -= bytes;
    cache.hits += 1;
    let bin = &mut cache.bins.0[bin];
    let head = bin.head as usize;
    let entry = &mut entries[head];
    debug_assert!(
        entry.state == Use::Cached && entry.block.bytes == bytes,
        "a live block or another size in a bin"
    );
    bin.head = entry.next;
    entry.state = Use::Live;
    if requested < entry.block.requested {
        version.change();
    }
    entry.block.requested = requested;
    Ok(entry.block)
}

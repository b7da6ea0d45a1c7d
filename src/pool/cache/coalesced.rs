//! The dead memory of a stream cache, coalesced.
//!
//! A block that is freed joins the coalesced blocks beside it, and a request is cut from the best fit. So a stream that
//! allocates ever other sizes is served from what it has freed, without a look at the pool. To the heap a coalesced
//! block is live memory of the cache, and its segments there are cut otherwise: a recall makes them alike.
//!
//! Segregated free lists with boundary tags (Knuth, vol. 1, 2.5): eight classes for each power of two, the smallest
//! block of a class that fits. The tags are two maps: where a coalesced block starts, and where it ends.

use crate::pool::cache::hash::AddressMap;
use crate::pool::cache::{Bins, CacheResult, Entry, Inner, Miss, NIL, PoolKey, Use, check_quota};
use crate::pool::request::Block;
use crate::pool::rounding::{SIZE_CLASSES, size_class};

#[derive(Debug)]
pub(super) struct Coalesced {
    /// The first block of each class.
    heads: [u32; SIZE_CLASSES],
    /// Which classes have any.
    nonempty: [u64; SIZE_CLASSES / 64],
    /// Blocks by where they end.
    by_end: AddressMap,
}

impl Default for Coalesced {
    fn default() -> Self {
        Self {
            heads: [NIL; SIZE_CLASSES],
            nonempty: [0; SIZE_CLASSES / 64],
            by_end: AddressMap::default(),
        }
    }
}

impl Coalesced {
    /// The first class from `from` on that has blocks.
    fn next_class(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.nonempty.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.nonempty.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// The smallest block of a class with so many bytes, that of the lowest address.
    fn smallest(&self, entries: &[Entry], class: usize, bytes: u64) -> Option<u32> {
        let (mut at, mut best) = (self.heads[class], None);
        while at != NIL {
            let Entry { block, next, .. } = &entries[at as usize];
            let rank = (block.bytes, block.addr);
            if block.bytes >= bytes && best.is_none_or(|(least, _)| rank < least) {
                best = Some((rank, at));
            }
            at = *next;
        }
        best.map(|(_, at)| at)
    }

    fn best_fit(&self, entries: &[Entry], bytes: u64) -> Option<u32> {
        let own = size_class(bytes);
        self.smallest(entries, own, bytes)
            .or_else(|| self.smallest(entries, self.next_class(own + 1)?, bytes))
    }

    fn link(&mut self, entries: &mut [Entry], id: u32) {
        let class = size_class(entries[id as usize].block.bytes);
        let head = std::mem::replace(&mut self.heads[class], id);
        if head != NIL {
            entries[head as usize].prev = id;
        }
        let entry = &mut entries[id as usize];
        (entry.prev, entry.next, entry.state) = (NIL, head, Use::Coalesced);
        self.nonempty[class / 64] |= 1 << (class % 64);
    }

    /// Takes a block out of both lists; the caller knows what becomes of its entry.
    fn remove(&mut self, entries: &mut [Entry], id: u32) -> Entry {
        self.unlink(entries, id);
        let own = entries[id as usize];
        self.by_end.remove(own.block.range().end());
        own
    }

    fn unlink(&mut self, entries: &mut [Entry], id: u32) {
        let Entry {
            prev, next, block, ..
        } = entries[id as usize];
        if next != NIL {
            entries[next as usize].prev = prev;
        }
        if prev != NIL {
            entries[prev as usize].next = next;
            return;
        }
        let class = size_class(block.bytes);
        debug_assert_eq!(self.heads[class], id, "a block of another class");
        self.heads[class] = next;
        if next == NIL {
            self.nonempty[class / 64] &= !(1 << (class % 64));
        }
    }
}

impl Inner {
    /// Has a pool's cache coalesce, or not. Nothing is cached there.
    pub fn set_coalescing(&mut self, key: PoolKey, coalesces: bool) {
        if let Some(cache) = self.cache_mut(key) {
            debug_assert_eq!(cache.cached, 0, "blocks that are lost");
            *cache.bins = Bins::default();
            cache.coalesced = coalesces.then(Box::default);
        }
    }

    /// Cuts a block out of a coalesced one, from its start.
    #[inline(never)]
    pub(super) fn alloc_coalesced(
        &mut self,
        key: PoolKey,
        (bytes, requested): (u64, u64),
    ) -> CacheResult<Block> {
        let at = self.at(key).ok_or(Miss::NoBlock)?;
        let (cache, entries) = (&mut self.caches[at], &mut self.entries);
        let coalesced = cache.coalesced.as_mut().ok_or(Miss::NoBlock)?;
        let id = coalesced.best_fit(entries, bytes).ok_or(Miss::NoBlock)?;
        check_quota(bytes, cache.quota - cache.live)?;
        cache.live += bytes;
        cache.cached -= bytes;
        cache.hits += 1;
        coalesced.unlink(entries, id);
        let own = &mut entries[id as usize];
        let (mut rest, end) = (*own, own.block.range().end());
        (own.block.bytes, own.block.requested) = (bytes, requested);
        own.state = Use::Live;
        let block = own.block;
        rest.block.addr += bytes;
        rest.block.bytes -= bytes;
        if rest.block.bytes == 0 {
            coalesced.by_end.remove(end);
        } else {
            let rest = self.enter(rest);
            if let Some(coalesced) = &mut self.caches[at].coalesced {
                coalesced.by_end.set(end, rest);
                coalesced.link(&mut self.entries, rest);
            }
        }
        self.version.change();
        Ok(block)
    }

    /// Coalesces a live block that is freed. None if the cache does not coalesce.
    #[inline(never)]
    pub(super) fn free_coalesced(&mut self, id: u32, epoch: u64) -> Option<Block> {
        let own = &mut self.entries[id as usize];
        let block = own.block;
        let cache = &mut self.caches[own.cache as usize];
        cache.coalesced.as_ref()?;
        cache.live -= block.bytes;
        cache.frees += 1;
        own.epoch = epoch;
        self.coalesce(id);
        Some(block)
    }

    /// Adds memory of the pool that died here at `epoch`, where the cache coalesces.
    pub fn insert_coalesced(&mut self, key: PoolKey, block: &Block, epoch: u64, seg: u32) {
        if let Some(at) = self.at(key) {
            let own = Entry::new(block, at, seg);
            let id = self.enter(Entry { epoch, ..own });
            self.coalesce(id);
        }
    }

    /// Makes one coalesced block of an entry and those beside it.
    fn coalesce(&mut self, mut id: u32) {
        let entries = &mut self.entries;
        let mut own = entries[id as usize];
        let (at, range) = (own.cache, own.block.range());
        let cache = &mut self.caches[at as usize];
        let Some(coalesced) = &mut cache.coalesced else {
            return;
        };
        cache.oldest = match cache.cached {
            0 => own.epoch,
            _ => cache.oldest.min(own.epoch),
        };
        cache.cached += range.bytes;
        let after = self.by_address.get(range.end()).filter(|after| {
            let after = &entries[*after as usize];
            (after.state, after.cache) == (Use::Coalesced, at)
        });
        if let Some(after) = after {
            let gone = coalesced.remove(entries, after);
            self.by_address.remove(gone.block.addr);
            self.vacant.push(after);
            own.block.bytes += gone.block.bytes;
            own.epoch = own.epoch.max(gone.epoch);
        }
        if let Some(before) = coalesced.by_end.get(range.base) {
            let first = coalesced.remove(entries, before);
            self.by_address.remove(range.base);
            self.vacant.push(id);
            id = before;
            own.block.addr = first.block.addr;
            own.block.bytes += first.block.bytes;
            own.epoch = own.epoch.max(first.epoch);
        }
        entries[id as usize] = own;
        coalesced.by_end.insert(own.block.range().end(), id);
        coalesced.link(entries, id);
    }

    /// Whether each coalesced block of a pool is in the list of its class and where it ends, and none touches another.
    #[cfg(any(test, feature = "oracle"))]
    pub(super) fn audit_coalesced(&self, at: usize) -> Result<(), String> {
        let of_pool = |own: &&Entry| own.cache as usize == at && own.state == Use::Coalesced;
        let all = self.by_address.all();
        let all = all.iter().map(|(_, id)| &self.entries[*id as usize]);
        let mut all: Vec<&Entry> = all.filter(of_pool).collect();
        all.sort_unstable_by_key(|own| own.block.addr);
        if all
            .windows(2)
            .any(|two| two[0].block.range().end() == two[1].block.addr)
        {
            return Err("two coalesced blocks touch".into());
        }
        let Some(coalesced) = &self.caches[at].coalesced else {
            return match all.is_empty() {
                true => Ok(()),
                false => Err("coalesced blocks where nothing coalesces".into()),
            };
        };
        let mut listed = Vec::new();
        for (class, head) in coalesced.heads.iter().enumerate() {
            let (mut next, mut prev) = (*head, NIL);
            if (next != NIL) != (coalesced.nonempty[class / 64] >> (class % 64) & 1 == 1) {
                return Err(format!("class {class} has no bit of its own"));
            }
            while next != NIL {
                let own = &self.entries[next as usize];
                let end = coalesced.by_end.get(own.block.range().end());
                if (own.prev, end, size_class(own.block.bytes)) != (prev, Some(next), class) {
                    return Err(format!("{:?} is listed wrongly", own.block));
                }
                listed.push(own.block.addr);
                (prev, next) = (next, own.next);
            }
        }
        listed.sort_unstable();
        match listed.into_iter().eq(all.iter().map(|own| own.block.addr)) {
            true => Ok(()),
            false => Err("a coalesced block in no list".into()),
        }
    }

    /// Removes the coalesced blocks of a pool that have at least so many bytes.
    pub(super) fn recall_coalesced(&mut self, at: usize, least: u64, out: &mut Vec<Entry>) {
        let cache = &mut self.caches[at];
        let Some(coalesced) = &mut cache.coalesced else {
            return;
        };
        let mut from = size_class(least);
        while let Some(class) = coalesced.next_class(from) {
            let mut next = coalesced.heads[class];
            while next != NIL {
                let own = self.entries[next as usize];
                if own.block.bytes >= least {
                    out.push(coalesced.remove(&mut self.entries, next));
                    self.by_address.remove(own.block.addr);
                    self.vacant.push(next);
                    cache.cached -= own.block.bytes;
                }
                next = own.next;
            }
            from = class + 1;
        }
    }
}

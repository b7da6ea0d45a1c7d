//! Slabs of pages: memory that can be given another address.
//!
//! Owns which page of a pool lies where, and which addresses are free to map pages at. Uses the
//! driver's virtual memory; knows nothing of blocks, deaths or policy.
//!
//! | an address of a page | until |
//! |---|---|
//! | present: leads to a page of the pool | the page is gathered elsewhere, or given back |
//! | old: still leads there, for work enqueued before; none where a page has one address | it is retired, or its page given back |
//! | stale: retired, and leads there still, where that costs nothing | more are stale than present |
//! | free | pages are mapped there again |

use crate::abi::*;
use crate::object::{Error, Object, Result};
use crate::pool::Slab;
use crate::stream::{Domain, Driver, Kind};
use crate::sync::{Mutex, rank};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

const NO_ADDRESSES: Error = Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES);

/// Bytes of addresses that are reserved at once, at least: growth then mostly continues what there is.
const WINDOW_BYTES: usize = 16 << 30;

/// The pages of one pool, of any multiple of the least page's size.
pub(crate) struct Paged<D: Driver> {
    domain: Arc<Domain<D>>,
    device: Option<Arc<Object<D::Device>>>,
    kind: Kind,
    zeroed: bool,
    page: usize,
    largest: Option<usize>,
    space: Mutex<Space, { rank::ADDRESSES }>,
}

/// A page of the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub name: u64,
    pub bytes: u64,
}

#[derive(Default)]
struct Space {
    windows: Vec<Slab>,
    /// Free addresses: where they start, and how many bytes.
    free: BTreeMap<u64, u64>,
    present: BTreeMap<u64, Page>,
    present_bytes: u64,
    /// Old and stale.
    old: BTreeMap<u64, Page>,
    /// The old addresses of each page that has any.
    traces: HashMap<u64, Vec<u64>>,
    /// Stale pieces, the oldest first, and their bytes.
    stale: VecDeque<Slab>,
    stale_bytes: u64,
}

impl<D: Driver> Paged<D> {
    /// None if the driver cannot give memory of this kind another address.
    pub fn new(
        domain: &Arc<Domain<D>>,
        device: Option<&Arc<Object<D::Device>>>,
        kind: Kind,
        zeroed: bool,
    ) -> Option<Self> {
        let device_body = device.map(|device| &**device);
        Some(Self {
            domain: Arc::clone(domain),
            device: device.cloned(),
            kind,
            zeroed,
            page: D::page(device_body, kind)?,
            largest: D::largest_page(device_body, kind),
            space: Mutex::default(),
        })
    }

    pub fn page(&self) -> usize {
        self.page
    }

    pub fn largest_page(&self) -> Option<usize> {
        self.largest
    }

    /// The memory of `pieces` and behind it so many new bytes, in pages of such a size, the last one smaller;
    /// from `after` on if those addresses are free. Pieces go there or the call fails. `window` learns of each range of
    /// addresses that is reserved for it.
    pub fn map(
        &self,
        pieces: &[Slab],
        (fresh, page): (u64, u64),
        after: Option<u64>,
        window: &dyn Fn(Slab),
    ) -> Result<Slab> {
        let new = self.create(fresh, page.max(1))?;
        let moved = pieces.iter().map(|piece| piece.bytes).sum::<u64>();
        let made = self.place(pieces, &new, moved + fresh, after, window);
        if made.is_err() {
            self.destroy(&new);
        }
        made
    }

    fn create(&self, fresh: u64, page: u64) -> Result<Vec<Page>> {
        let rest = fresh % page;
        let mut new = Vec::new();
        for (bytes, count) in [(page, fresh / page), (rest, u64::from(rest > 0))] {
            if count == 0 {
                continue;
            }
            let (device, kind) = (self.device(), self.kind);
            let sizes = usize::try_from(bytes).ok().zip(usize::try_from(count).ok());
            let made = sizes.ok_or(NO_ADDRESSES).and_then(|(bytes, count)| {
                D::create_pages(&self.domain, device, kind, bytes, count, self.zeroed)
            });
            match made {
                Ok(names) => new.extend(names.into_iter().map(|name| Page { name, bytes })),
                Err(error) => {
                    self.destroy(&new);
                    return Err(error);
                }
            }
        }
        Ok(new)
    }

    fn destroy(&self, pages: &[Page]) {
        if !pages.is_empty() {
            let names: Vec<u64> = pages.iter().map(|page| page.name).collect();
            D::destroy_pages(&self.domain, &names);
        }
    }

    fn place(
        &self,
        pieces: &[Slab],
        new: &[Page],
        bytes: u64,
        after: Option<u64>,
        window: &dyn Fn(Slab),
    ) -> Result<Slab> {
        let base = match after.filter(|_| !pieces.is_empty()) {
            Some(after) => {
                let taken = self.space.lock().take_at(after, bytes);
                taken.ok_or(NO_ADDRESSES)?
            }
            None => self.addresses(bytes, after, window)?,
        };
        let slab = Slab { base, bytes };
        let mut space = self.space.lock();
        let of = |piece: &Slab| space.present.range(piece.base..piece.end());
        let moved = pieces.iter().flat_map(of).map(|(_, page)| *page);
        let pages: Vec<Page> = moved.chain(new.iter().copied()).collect();
        if D::MAPS_ONCE {
            pieces.iter().for_each(|piece| self.unmap(*piece));
        }
        if let Err(error) = self.map_all(base, &pages) {
            space.free_range(slab);
            if D::MAPS_ONCE {
                self.map_back(&space, pieces);
            }
            return Err(error);
        }
        for piece in pieces {
            if D::MAPS_ONCE {
                space.leave(*piece);
                space.free_range(*piece);
                continue;
            }
            for (addr, page) in space.leave(*piece) {
                space.old.insert(addr, page);
                space.traces.entry(page.name).or_default().push(addr);
            }
        }
        if !pieces.is_empty() {
            self.domain.memory.mark_dirty();
        }
        let mut at = base;
        for page in pages {
            space.present.insert(at, page);
            at += page.bytes;
        }
        space.present_bytes += bytes;
        Ok(slab)
    }

    /// Maps the pages of pieces where they were, after a refusal of other addresses. Pages that the driver does not
    /// map any more lead nowhere: it is lost.
    fn map_back(&self, space: &Space, pieces: &[Slab]) {
        for piece in pieces {
            let of_piece = space.present.range(piece.base..piece.end());
            let pages: Vec<Page> = of_piece.map(|(_, page)| *page).collect();
            if let Err(error) = self.map_all(piece.base, &pages) {
                log::error!("memory of a pool is lost: {:?}", error.code());
            }
        }
    }

    /// Maps pages side by side, those of one size together.
    fn map_all(&self, base: u64, pages: &[Page]) -> Result<()> {
        let mut at = base;
        for alike in pages.chunk_by(|a, b| a.bytes == b.bytes) {
            let names: Vec<u64> = alike.iter().map(|page| page.name).collect();
            let (device, kind) = (self.device(), self.kind);
            let bytes = alike[0].bytes;
            let (size, addr) = (bytes as usize, at as usize);
            D::map_pages(&self.domain, device, kind, size, addr, &names).inspect_err(|_| {
                if at > base {
                    D::unmap_pages(&self.domain, base as usize, (at - base) as usize);
                }
            })?;
            at += bytes * alike.len() as u64;
        }
        Ok(())
    }

    /// Takes back whole pages that nothing uses, at this address or an older one.
    pub fn release(&self, slab: Slab) {
        let mut space = self.space.lock();
        let pages = space.leave(slab);
        let pages: Vec<Page> = pages.into_iter().map(|(_, page)| page).collect();
        D::unmap_pages(&self.domain, slab.base as usize, slab.bytes as usize);
        space.free_range(slab);
        for page in &pages {
            for addr in space.traces.remove(&page.name).unwrap_or_default() {
                // The address itself stays taken until its whole piece is free.
                if space.old.remove(&addr).is_some() {
                    D::unmap_pages(&self.domain, addr as usize, page.bytes as usize);
                }
            }
        }
        self.destroy(&pages);
        let most = space.present_bytes;
        self.clear_stale(&mut space, most);
    }

    /// Nothing uses the old addresses of a piece any more.
    pub fn retire(&self, piece: Slab) {
        let mut space = self.space.lock();
        space.stale.push_back(piece);
        space.stale_bytes += piece.bytes;
        let most = match D::LEAVES_MAPPED {
            true => space.present_bytes,
            false => 0,
        };
        self.clear_stale(&mut space, most);
    }

    /// Frees stale addresses until there are no more than `most` bytes of them.
    fn clear_stale(&self, space: &mut Space, most: u64) {
        while space.stale_bytes > most
            && let Some(piece) = space.stale.pop_front()
        {
            space.stale_bytes -= piece.bytes;
            self.clear(space, piece);
        }
    }

    /// Frees old addresses, of which pages that were given back are unmapped already.
    fn clear(&self, space: &mut Space, piece: Slab) {
        let all = space.old.extract_if(piece.base..piece.end(), |_, _| true);
        let all: Vec<(u64, Page)> = all.collect();
        let mut run = Slab { base: 0, bytes: 0 };
        for (addr, page) in all {
            if let Some(left) = space.traces.get_mut(&page.name) {
                left.retain(|other| *other != addr);
                if left.is_empty() {
                    space.traces.remove(&page.name);
                }
            }
            if run.end() != addr {
                self.unmap(run);
                run = Slab::new(addr, 0);
            }
            run.bytes += page.bytes;
        }
        self.unmap(run);
        space.free_range(piece);
    }

    fn unmap(&self, slab: Slab) {
        if slab.bytes > 0 {
            D::unmap_pages(&self.domain, slab.base as usize, slab.bytes as usize);
        }
    }

    /// Free addresses: from `after` on, or those lowest that suffice, so that growth mostly continues what
    /// there is.
    fn addresses(&self, bytes: u64, after: Option<u64>, window: &dyn Fn(Slab)) -> Result<u64> {
        let mut space = self.space.lock();
        let continued = after.and_then(|after| space.take_at(after, bytes));
        if let Some(base) = continued.or_else(|| space.allocate_range(bytes)) {
            return Ok(base);
        }
        let least = usize::try_from(bytes).map_err(|_| NO_ADDRESSES)?;
        let wish = least.checked_mul(2).ok_or(NO_ADDRESSES)?.max(WINDOW_BYTES);
        let wish = wish
            .checked_next_multiple_of(self.page)
            .ok_or(NO_ADDRESSES)?;
        // A process may be short of addresses too.
        let reserve = |bytes| D::reserve(&self.domain, self.page, bytes).map(|base| (base, bytes));
        let reserved = reserve(wish).or_else(|_| reserve(least));
        let reserved = match reserved {
            Ok(reserved) => reserved,
            Err(error) => {
                self.clear_stale(&mut space, 0);
                return space.allocate_range(bytes).ok_or(error);
            }
        };
        let slab = Slab::new(reserved.0 as u64, reserved.1 as u64);
        space.windows.push(slab);
        space.free_range(slab);
        window(slab);
        space.allocate_range(bytes).ok_or(NO_ADDRESSES)
    }

    /// Ends all reservations, unless there is memory in them still. Those that ended are told.
    pub fn close(&self, window: &dyn Fn(Slab)) {
        let mut space = self.space.lock();
        if !space.present.is_empty() {
            return;
        }
        for slab in std::mem::take(&mut space.windows) {
            window(slab);
            D::unreserve(&self.domain, slab.base as usize, slab.bytes as usize);
        }
    }

    fn device(&self) -> Option<&Object<D::Device>> {
        self.device.as_deref()
    }

    /// The pages that a range leads to, in order, each with the address where it begins. None if a part
    /// of the range leads to no page.
    pub fn pages_at(&self, slab: Slab) -> Option<Vec<(u64, Page)>> {
        self.space.lock().pages_at(slab)
    }
}

impl Space {
    fn pages_at(&self, slab: Slab) -> Option<Vec<(u64, Page)>> {
        let (mut at, mut pages) = (slab.base, Vec::new());
        while at < slab.end() {
            let around = |pages: &BTreeMap<u64, Page>| {
                let (start, page) = pages.range(..=at).next_back()?;
                (at < start + page.bytes).then_some((*start, *page))
            };
            let (start, page) = around(&self.present).or_else(|| around(&self.old))?;
            pages.push((start, page));
            at = start + page.bytes;
        }
        Some(pages)
    }

    /// Takes addresses from `base` on, if they are free.
    fn take_at(&mut self, base: u64, bytes: u64) -> Option<u64> {
        let (start, free) = self.free.range(..=base).next_back()?;
        let (start, end) = (*start, start + free);
        if end < base + bytes {
            return None;
        }
        self.free.remove(&start);
        for (from, to) in [(start, base), (base + bytes, end)] {
            if from < to {
                self.free.insert(from, to - from);
            }
        }
        Some(base)
    }

    /// Takes addresses.
    fn allocate_range(&mut self, bytes: u64) -> Option<u64> {
        let fit = self.free.iter().find(|(_, free)| **free >= bytes);
        let (base, free) = fit.map(|(base, free)| (*base, *free))?;
        self.free.remove(&base);
        if free > bytes {
            self.free.insert(base + bytes, free - bytes);
        }
        Some(base)
    }

    /// Gives addresses back.
    fn free_range(&mut self, mut slab: Slab) {
        if let Some(after) = self.free.remove(&slab.end()) {
            slab.bytes += after;
        }
        if let Some((base, bytes)) = self.free.range_mut(..slab.base).next_back()
            && base + *bytes == slab.base
        {
            *bytes += slab.bytes;
        } else {
            self.free.insert(slab.base, slab.bytes);
        }
    }

    /// The pages present in a range, with their addresses, which they leave.
    fn leave(&mut self, slab: Slab) -> Vec<(u64, Page)> {
        let left = self.present.extract_if(slab.base..slab.end(), |_, _| true);
        let left: Vec<_> = left.collect();
        self.present_bytes -= left.iter().map(|(_, page)| page.bytes).sum::<u64>();
        left
    }
}

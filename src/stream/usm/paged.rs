//! Slabs of pages: memory that can be given another address.
//!
//! Owns which page of a pool lies where, and which addresses are free to map pages at. Uses the
//! driver's virtual memory; knows nothing of blocks, deaths or policy.
//!
//! | an address of a page | until |
//! |---|---|
//! | present: leads to a page of the pool | the page is gathered elsewhere, or given back |
//! | old: still leads there, for work enqueued before | it is retired, or its page given back |
//! | stale: retired, and leads there still, where that costs nothing | more are stale than present |
//! | free | pages are mapped there again |

use crate::abi::*;
use crate::object::{Error, Object, Result};
use crate::pool::Slab;
use crate::stream::{Domain, Driver, Kind};
use crate::timeline::rank;
use crate::timeline::sync::Mutex;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::iter::successors;
use std::sync::Arc;

/// What a range of addresses is reserved in, at least.
const WINDOW_BYTES: usize = 16 << 30;

/// The pages of one pool.
pub(crate) struct Paged<D: Driver> {
    domain: Arc<Domain<D>>,
    device: Option<Arc<Object<D::Device>>>,
    kind: Kind,
    zeroed: bool,
    /// Where pages of each size lie, the least first.
    sizes: Vec<Size>,
}

/// Pages of one size.
struct Size {
    page: usize,
    space: Mutex<Space, { rank::ADDRESSES }>,
}

#[derive(Default)]
struct Space {
    windows: Vec<Slab>,
    /// Free addresses: where they start, and how many bytes.
    free: BTreeMap<u64, u64>,
    present: BTreeMap<u64, u64>,
    /// Old and stale.
    old: BTreeMap<u64, u64>,
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
        let page = D::page(device_body, kind)?;
        let max_bytes = D::largest_page(device_body, kind).unwrap_or(page);
        let sizes = successors(Some(page), |page| page.checked_mul(2))
            .take_while(|page| *page <= max_bytes);
        let size = |page| Size {
            page,
            space: Mutex::default(),
        };
        Some(Self {
            domain: Arc::clone(domain),
            device: device.cloned(),
            kind,
            zeroed,
            sizes: sizes.map(size).collect(),
        })
    }

    pub fn page(&self) -> usize {
        self.sizes[0].page
    }

    pub fn largest_page(&self) -> Option<usize> {
        self.sizes.last().map(|size| size.page)
    }

    /// New memory of so many bytes behind that of `pieces`, all in pages of that size. `window` learns
    /// of each range of addresses that is reserved for it.
    pub fn gather(
        &self,
        pieces: &[Slab],
        fresh: u64,
        page: usize,
        window: &dyn Fn(Slab),
    ) -> Result<Slab> {
        let none = Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES);
        let size = self
            .sizes
            .iter()
            .find(|size| size.page == page)
            .ok_or(none)?;
        let count = usize::try_from(fresh).map_err(|_| none)? / page;
        let new = match count {
            0 => Vec::new(),
            _ => {
                let (device, kind) = (self.device(), self.kind);
                D::create_pages(&self.domain, device, kind, page, count, self.zeroed)?
            }
        };
        let moved = pieces.iter().map(|piece| piece.bytes).sum::<u64>();
        let made = self.place(size, pieces, &new, moved + fresh, window);
        if made.is_err() && !new.is_empty() {
            D::destroy_pages(&self.domain, &new);
        }
        made
    }

    fn place(
        &self,
        size: &Size,
        pieces: &[Slab],
        new: &[u64],
        bytes: u64,
        window: &dyn Fn(Slab),
    ) -> Result<Slab> {
        let base = self.addresses(size, bytes, window)?;
        let slab = Slab { base, bytes };
        let mut space = size.space.lock();
        let pages = match pieces {
            [] => Cow::Borrowed(new),
            pieces => {
                let of = |piece: &Slab| space.present.range(piece.base..piece.end());
                let moved = pieces.iter().flat_map(of).map(|(_, page)| *page);
                Cow::Owned(moved.chain(new.iter().copied()).collect())
            }
        };
        let (device, kind) = (self.device(), self.kind);
        let mapped = D::map_pages(&self.domain, device, kind, size.page, base as usize, &pages);
        mapped.inspect_err(|_| space.free(slab))?;
        for piece in pieces {
            for (addr, page) in space.leave(*piece) {
                space.old.insert(addr, page);
                space.traces.entry(page).or_default().push(addr);
            }
        }
        if !pieces.is_empty() {
            self.domain.memory.mark_dirty();
        }
        let at = size.steps(slab).zip(pages.iter().copied());
        space.present.extend(at);
        Ok(slab)
    }

    /// Takes back whole pages that nothing uses, at this address or an older one.
    pub fn release(&self, slab: Slab) {
        let size = self.size_at(slab.base);
        let mut space = size.space.lock();
        let pages: Vec<u64> = space
            .leave(slab)
            .into_iter()
            .map(|(_, page)| page)
            .collect();
        D::unmap_pages(&self.domain, slab.base as usize, slab.bytes as usize);
        space.free(slab);
        for page in &pages {
            for addr in space.traces.remove(page).unwrap_or_default() {
                // The address itself stays taken until its whole piece is free.
                if space.old.remove(&addr).is_some() {
                    D::unmap_pages(&self.domain, addr as usize, size.page);
                }
            }
        }
        D::destroy_pages(&self.domain, &pages);
        let max_bytes = size.present(&space);
        self.clear_stale(size, &mut space, max_bytes);
    }

    /// Nothing uses the old addresses of a piece any more.
    pub fn retire(&self, piece: Slab) {
        let size = self.size_at(piece.base);
        let mut space = size.space.lock();
        space.stale.push_back(piece);
        space.stale_bytes += piece.bytes;
        let max_bytes = match D::LEAVES_MAPPED {
            true => size.present(&space),
            false => 0,
        };
        self.clear_stale(size, &mut space, max_bytes);
    }

    /// Frees stale addresses until there are no more than `most` bytes of them.
    fn clear_stale(&self, size: &Size, space: &mut Space, max_bytes: u64) {
        while space.stale_bytes > max_bytes
            && let Some(piece) = space.stale.pop_front()
        {
            space.stale_bytes -= piece.bytes;
            self.clear(size, space, piece);
        }
    }

    /// Frees old addresses.
    fn clear(&self, size: &Size, space: &mut Space, piece: Slab) {
        let mut run: Option<(u64, usize)> = None;
        for addr in size.steps(piece) {
            let Some(page) = space.old.remove(&addr) else {
                run = self.unmap_run(run);
                continue;
            };
            if let Some(left) = space.traces.get_mut(&page) {
                left.retain(|other| *other != addr);
                if left.is_empty() {
                    space.traces.remove(&page);
                }
            }
            let (start, bytes) = run.unwrap_or((addr, 0));
            run = Some((start, bytes + size.page));
        }
        self.unmap_run(run);
        space.free(piece);
    }

    fn unmap_run(&self, run: Option<(u64, usize)>) -> Option<(u64, usize)> {
        let (start, bytes) = run?;
        D::unmap_pages(&self.domain, start as usize, bytes);
        None
    }

    /// Free addresses, those lowest that suffice: growth then mostly continues what there is.
    fn addresses(&self, size: &Size, bytes: u64, window: &dyn Fn(Slab)) -> Result<u64> {
        let mut space = size.space.lock();
        if let Some(base) = space.allocate(bytes) {
            return Ok(base);
        }
        let none = Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES);
        let least = usize::try_from(bytes).map_err(|_| none)?;
        let wish = least.checked_mul(2).ok_or(none)?.max(WINDOW_BYTES);
        let wish = wish.checked_next_multiple_of(size.page).ok_or(none)?;
        // A process may be short of addresses too.
        let reserve = |bytes| D::reserve(&self.domain, size.page, bytes).map(|base| (base, bytes));
        let reserved = reserve(wish).or_else(|_| reserve(least));
        let reserved = match reserved {
            Ok(reserved) => reserved,
            Err(error) => {
                self.clear_stale(size, &mut space, 0);
                return space.allocate(bytes).ok_or(error);
            }
        };
        let slab = Slab {
            base: reserved.0 as u64,
            bytes: reserved.1 as u64,
        };
        space.windows.push(slab);
        space.free(slab);
        window(slab);
        space.allocate(bytes).ok_or(none)
    }

    /// Ends all reservations, unless there is memory in them still. Those that ended are told.
    pub fn close(&self, window: &dyn Fn(Slab)) {
        for size in &self.sizes {
            let mut space = size.space.lock();
            if !space.present.is_empty() {
                continue;
            }
            for slab in std::mem::take(&mut space.windows) {
                window(slab);
                D::unreserve(&self.domain, slab.base as usize, slab.bytes as usize);
            }
        }
    }

    /// The pages that lie around an address. None of one size are among those of another.
    fn size_at(&self, addr: u64) -> &Size {
        let has = |size: &&Size| {
            let space = size.space.lock();
            let mut windows = space.windows.iter();
            windows.any(|window| (window.base..window.end()).contains(&addr))
        };
        let (least, larger) = (&self.sizes[0], &self.sizes[1..]);
        larger.iter().find(has).unwrap_or(least)
    }

    fn device(&self) -> Option<&Object<D::Device>> {
        self.device.as_deref()
    }
}

impl Size {
    /// Where pages start in a range.
    fn steps(&self, slab: Slab) -> impl Iterator<Item = u64> + use<> {
        (slab.base..slab.end()).step_by(self.page)
    }

    /// How many bytes of pages there are.
    fn present(&self, space: &Space) -> u64 {
        (space.present.len() * self.page) as u64
    }
}

impl Space {
    /// Takes addresses.
    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let fit = self.free.iter().find(|(_, free)| **free >= bytes);
        let (base, free) = fit.map(|(base, free)| (*base, *free))?;
        self.free.remove(&base);
        if free > bytes {
            self.free.insert(base + bytes, free - bytes);
        }
        Some(base)
    }

    /// Gives addresses back.
    fn free(&mut self, mut slab: Slab) {
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
    fn leave(&mut self, slab: Slab) -> Vec<(u64, u64)> {
        self.present
            .extract_if(slab.base..slab.end(), |_, _| true)
            .collect()
    }
}

//! Slabs of pages: memory that can be given another address.
//!
//! Owns which page of a pool lies where, and which addresses are free to map pages at. Uses the
//! driver's virtual memory; knows nothing of blocks, deaths or policy.
//!
//! | an address of a page | until |
//! |---|---|
//! | present: leads to a page of the pool | the page is gathered elsewhere, or given back |
//! | old: still leads there, for work enqueued before | it is retired, or its page given back |
//! | free | pages are mapped there again |

use super::engine::enter;
use super::{Domain, Driver, Kind};
use crate::abi::*;
use crate::object::{Error, Object, Result};
use crate::pool::Slab;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What a range of addresses is reserved in, at least.
const WINDOW: usize = 16 << 30;

/// The pages of one pool.
pub(crate) struct Paged<D: Driver> {
    domain: Arc<Domain<D>>,
    device: Option<Arc<Object<D::Device>>>,
    kind: Kind,
    zeroed: bool,
    page: usize,
    space: Mutex<Space>,
    /// Old addresses, in pages.
    lingering: AtomicUsize,
}

#[derive(Default)]
struct Space {
    windows: Vec<Slab>,
    /// Free addresses: where they start, and how many bytes.
    free: BTreeMap<u64, u64>,
    present: BTreeMap<u64, u64>,
    old: BTreeMap<u64, u64>,
    /// The old addresses of each page that has any.
    traces: HashMap<u64, Vec<u64>>,
}

impl<D: Driver> Paged<D> {
    /// None if the driver cannot give memory of this kind another address.
    pub fn new(
        domain: &Arc<Domain<D>>,
        device: Option<&Arc<Object<D::Device>>>,
        kind: Kind,
        zeroed: bool,
    ) -> Option<Self> {
        let page = D::page(device.map(|device| &**device), kind)?;
        Some(Self {
            domain: Arc::clone(domain),
            device: device.cloned(),
            kind,
            zeroed,
            page,
            space: Mutex::default(),
            lingering: AtomicUsize::new(0),
        })
    }

    pub fn page(&self) -> usize {
        self.page
    }

    /// Whether there are addresses to retire.
    pub fn lingers(&self) -> bool {
        self.lingering.load(Ordering::Relaxed) > 0
    }

    /// New memory of so many bytes behind that of `pieces`. `window` learns of each range of
    /// addresses that is reserved for it.
    pub fn gather(&self, pieces: &[Slab], fresh: u64, window: &dyn Fn(Slab)) -> Result<Slab> {
        let none = Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES);
        let count = usize::try_from(fresh).map_err(|_| none)? / self.page;
        let new = match count {
            0 => Vec::new(),
            _ => D::create_pages(&self.domain, self.device(), self.kind, count, self.zeroed)?,
        };
        let moved = pieces.iter().map(|piece| piece.bytes).sum::<u64>();
        let made = self.place(pieces, &new, moved + fresh, window);
        if made.is_err() && !new.is_empty() {
            D::destroy_pages(&self.domain, &new);
        }
        made
    }

    fn place(
        &self,
        pieces: &[Slab],
        new: &[u64],
        bytes: u64,
        window: &dyn Fn(Slab),
    ) -> Result<Slab> {
        let base = self.addresses(bytes, window)?;
        let slab = Slab { base, bytes };
        let mut space = enter(&self.space);
        let mut pages = Vec::new();
        for piece in pieces {
            let present = space.present.range(piece.base..piece.end());
            pages.extend(present.map(|(_, page)| *page));
        }
        pages.extend(new);
        if let Err(error) = D::map_pages(
            &self.domain,
            self.device(),
            self.kind,
            base as usize,
            &pages,
        ) {
            space.give(slab);
            return Err(error);
        }
        for piece in pieces {
            for (addr, page) in space.leave(*piece) {
                space.old.insert(addr, page);
                space.traces.entry(page).or_default().push(addr);
                self.lingering.fetch_add(1, Ordering::Relaxed);
            }
        }
        space.present.extend(self.steps(slab).zip(pages));
        Ok(slab)
    }

    /// Takes back whole pages that nothing uses, at this address or an older one.
    pub fn release(&self, slab: Slab) {
        let mut space = enter(&self.space);
        let pages: Vec<u64> = space
            .leave(slab)
            .into_iter()
            .map(|(_, page)| page)
            .collect();
        D::unmap_pages(&self.domain, slab.base as usize, slab.bytes as usize);
        space.give(slab);
        for page in &pages {
            for addr in space.traces.remove(page).unwrap_or_default() {
                // The address itself stays taken until the pool retires it.
                if space.old.remove(&addr).is_some() {
                    D::unmap_pages(&self.domain, addr as usize, self.page);
                    self.lingering.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        D::destroy_pages(&self.domain, &pages);
    }

    /// The old addresses of a piece are free.
    pub fn retire(&self, piece: Slab) {
        let mut space = enter(&self.space);
        let mut run: Option<(u64, usize)> = None;
        for addr in self.steps(piece) {
            let Some(page) = space.old.remove(&addr) else {
                run = self.unmap_run(run);
                continue;
            };
            self.lingering.fetch_sub(1, Ordering::Relaxed);
            if let Some(left) = space.traces.get_mut(&page) {
                left.retain(|other| *other != addr);
                if left.is_empty() {
                    space.traces.remove(&page);
                }
            }
            let (start, count) = run.unwrap_or((addr, 0));
            run = Some((start, count + 1));
        }
        self.unmap_run(run);
        space.give(piece);
    }

    fn unmap_run(&self, run: Option<(u64, usize)>) -> Option<(u64, usize)> {
        let (start, count) = run?;
        D::unmap_pages(&self.domain, start as usize, count * self.page);
        None
    }

    /// Free addresses, those lowest that suffice: growth then mostly continues what there is.
    fn addresses(&self, bytes: u64, window: &dyn Fn(Slab)) -> Result<u64> {
        let mut space = enter(&self.space);
        if let Some(base) = space.take(bytes) {
            return Ok(base);
        }
        let none = Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES);
        let least = usize::try_from(bytes).map_err(|_| none)?;
        let wish = least.checked_mul(2).ok_or(none)?.max(WINDOW);
        let wish = wish.checked_next_multiple_of(self.page).ok_or(none)?;
        // A process may be short of addresses too.
        let reserve = |bytes| D::reserve(&self.domain, self.page, bytes);
        let reserved = match reserve(wish) {
            Ok(base) => (base, wish),
            Err(_) => (reserve(least)?, least),
        };
        let slab = Slab {
            base: reserved.0 as u64,
            bytes: reserved.1 as u64,
        };
        space.windows.push(slab);
        space.give(slab);
        window(slab);
        space.take(bytes).ok_or(none)
    }

    /// Ends all reservations, unless there is memory in them still. Those that ended are told.
    pub fn close(&self, window: &dyn Fn(Slab)) {
        let mut space = enter(&self.space);
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

    fn steps(&self, slab: Slab) -> impl Iterator<Item = u64> + use<D> {
        (slab.base..slab.end()).step_by(self.page)
    }
}

impl Space {
    /// Takes addresses.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let fit = self.free.iter().find(|(_, free)| **free >= bytes);
        let (base, free) = fit.map(|(base, free)| (*base, *free))?;
        self.free.remove(&base);
        if free > bytes {
            self.free.insert(base + bytes, free - bytes);
        }
        Some(base)
    }

    /// Gives addresses back.
    fn give(&mut self, mut slab: Slab) {
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

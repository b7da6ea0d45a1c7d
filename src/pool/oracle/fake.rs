//! A provider of addresses that stand for nothing, with a ledger and faults on demand.
//!
//! With pages, each has a number of its own besides its address, and keeps it wherever it goes.

use crate::pool::{ProviderError, Slab, SlabProvider};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct Ledger {
    next: u64,
    out: BTreeMap<u64, u64>,
    calls: u64,
    fault: Option<(Range<u64>, ProviderError)>,
    /// Bytes it has in all.
    capacity: Option<u64>,
    wrong: Vec<String>,
    /// The pages at their present addresses, and at addresses that they have left but that still
    /// lead to them; each with its number.
    pages: BTreeMap<u64, u64>,
    lingering: BTreeMap<u64, u64>,
    /// Such addresses, of which the page has been given back.
    dangling: BTreeSet<u64>,
    numbered: u64,
    mapped: u64,
    /// Where large pages lie, and how large they are.
    large: BTreeMap<u64, u64>,
    /// Addresses that led nowhere from some moment on, since last asked.
    retired: Vec<Slab>,
}

/// A stretch of memory, known by a number that it keeps when its address changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub number: u64,
    pub addr: u64,
    pub bytes: u64,
}

/// Gives each address range once and never again, so that a stale address stays recognisable.
#[derive(Debug)]
pub struct FakeProvider {
    granularity: u64,
    /// Added to every base: a provider that breaks its promise of alignment.
    skew: u64,
    page: Option<u64>,
    largest: Option<u64>,
    leaves_mapped: bool,
    maps_once: bool,
    ledger: Mutex<Ledger>,
}

impl FakeProvider {
    pub fn new(granularity: u64) -> Self {
        Self::skewed(granularity, 0)
    }

    pub fn skewed(granularity: u64, skew: u64) -> Self {
        Self {
            granularity,
            skew,
            page: None,
            largest: None,
            leaves_mapped: false,
            maps_once: false,
            ledger: Mutex::new(Ledger {
                next: 1 << 32,
                ..Ledger::default()
            }),
        }
    }

    /// One whose memory comes in pages that can be given another address.
    pub fn paged(page: u64) -> Self {
        Self {
            page: Some(page),
            ..Self::new(page)
        }
    }

    /// A provider of pages that makes larger ones, up to this size, for pools that hold much.
    pub fn mixed(page: u64, largest: u64) -> Self {
        Self {
            largest: Some(largest),
            ..Self::paged(page)
        }
    }

    /// This provider, where addresses that memory has left may lead there for long.
    pub fn leaving_mapped(self) -> Self {
        Self {
            leaves_mapped: true,
            ..self
        }
    }

    /// This provider, where a page has one address at a time.
    pub fn mapping_once(self) -> Self {
        Self {
            maps_once: true,
            ..self
        }
    }

    /// The `nth` acquisition from now, counted from 0, fails.
    pub fn fail_at(&self, nth: u64, error: ProviderError) {
        self.fail_calls(nth..nth + 1, error);
    }

    /// Fails the calls of these numbers from now on.
    pub fn fail_calls(&self, calls: Range<u64>, error: ProviderError) {
        let mut ledger = self.ledger();
        let now = ledger.calls;
        ledger.fault = Some((calls.start + now..calls.end + now, error));
    }

    /// All memory there is, in bytes.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.ledger().capacity = bytes;
    }

    /// Acquisitions asked for, failed ones included.
    pub fn calls(&self) -> u64 {
        self.ledger().calls
    }

    /// Pages mapped so far, new ones and moved ones, large ones as one each.
    pub fn mapped(&self) -> u64 {
        self.ledger().mapped
    }

    /// Memory that is out, ascending by address; pages that touch are one.
    pub fn slabs(&self) -> Vec<Slab> {
        let mut out: Vec<Slab> = Vec::new();
        for extent in self.extents() {
            match out.last_mut() {
                Some(last) if self.page.is_some() && last.end() == extent.addr => {
                    last.bytes += extent.bytes;
                }
                _ => out.push(Slab::new(extent.addr, extent.bytes)),
            }
        }
        out
    }

    /// Memory that is out by what could leave alone: pages, or slabs.
    pub fn extents(&self) -> Vec<Extent> {
        let ledger = self.ledger();
        let slabs = ledger.out.iter().map(|(addr, bytes)| Extent {
            number: *addr,
            addr: *addr,
            bytes: *bytes,
        });
        let page = self.page.unwrap_or(0);
        let pages = ledger.pages.iter().map(|(addr, number)| Extent {
            number: *number,
            addr: *addr,
            bytes: page,
        });
        slabs.chain(pages).collect()
    }

    /// The memory behind the addresses `[addr, end)`, present ones or old: where each part starts, as
    /// numbered, and its bytes.
    pub fn memory_at(&self, addr: u64, end: u64) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        let bytes = self.page.unwrap_or(0);
        let old = self.ledger().lingering.clone();
        let old = old.into_iter().map(|(addr, number)| Extent {
            number,
            addr,
            bytes,
        });
        for extent in self.extents().into_iter().chain(old) {
            let from = addr.max(extent.addr);
            let to = end.min(extent.addr + extent.bytes);
            if from < to {
                out.push((extent.number + (from - extent.addr), to - from));
            }
        }
        out
    }

    pub fn bytes_out(&self) -> u64 {
        self.extents().iter().map(|extent| extent.bytes).sum()
    }

    /// Addresses retired since this was last asked.
    pub fn take_retired(&self) -> Vec<Slab> {
        std::mem::take(&mut self.ledger().retired)
    }

    /// What the pool did that no provider allows.
    pub fn wrong(&self) -> Vec<String> {
        self.ledger().wrong.clone()
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    /// Counts a call that may fail; what it may take.
    fn ask(&mut self, bytes: u64, page: Option<u64>) -> Result<(), ProviderError> {
        let call = self.calls;
        self.calls += 1;
        if let Some((calls, error)) = &self.fault
            && calls.contains(&call)
        {
            return Err(*error);
        }
        let out = self.out.values().sum::<u64>() + self.pages.len() as u64 * page.unwrap_or(0);
        let room = self.capacity.unwrap_or(1 << 60).saturating_sub(out);
        if bytes > room {
            return Err(ProviderError::OutOfMemory);
        }
        Ok(())
    }

    /// Addresses never given before. Pages often touch those before, slabs never do.
    fn addresses(&mut self, bytes: u64, unit: u64, gap: bool) -> Result<u64, ProviderError> {
        let dry = ProviderError::OutOfMemory;
        let base = self.next.checked_next_multiple_of(unit).ok_or(dry)?;
        let gap = if gap { unit } else { 0 };
        self.next = base.checked_add(bytes + gap).ok_or(dry)?;
        Ok(base)
    }

    /// Maps the least pages with these numbers, which together make pages of these sizes; at `after` if
    /// nothing was ever beyond it.
    fn map(
        &mut self,
        numbers: &[u64],
        page: u64,
        sizes: &[u64],
        after: Option<u64>,
    ) -> Result<Slab, ProviderError> {
        let bytes = numbers.len() as u64 * page;
        let base = match after.filter(|after| *after == self.next) {
            Some(_) => self.addresses(bytes, page, false)?,
            None => {
                let gap = self.calls.is_multiple_of(3);
                self.addresses(bytes, page, gap)?
            }
        };
        self.mapped += sizes.len() as u64;
        let mut at = base;
        for size in sizes {
            if *size > page {
                self.large.insert(at, *size);
            }
            at += size;
        }
        for (addr, number) in (base..).step_by(page as usize).zip(numbers) {
            self.pages.insert(addr, *number);
        }
        Ok(Slab { base, bytes })
    }

    fn number(&mut self, pages: u64) -> Vec<u64> {
        let from = self.numbered;
        self.numbered += pages;
        // No number is an address, nor may neighbours seem to touch.
        (from..self.numbered)
            .map(|page| (1 << 62) + (page << 32))
            .collect()
    }

    /// The least pages at a piece's addresses, which they leave, and the sizes of the pages that they make.
    fn leave(&mut self, piece: Slab, page: u64) -> (Vec<(u64, u64)>, Vec<u64>) {
        let large = self.large.extract_if(piece.base..piece.end(), |_, _| true);
        let large: BTreeMap<u64, u64> = large.collect();
        let before = self.large.range(..piece.base).next_back();
        let cut = before.is_some_and(|(addr, bytes)| addr + bytes > piece.base);
        if cut || large.iter().any(|(addr, bytes)| addr + bytes > piece.end()) {
            self.wrong
                .push(format!("{piece:?} is a part of a large page"));
        }
        let mut out = Vec::new();
        for addr in (piece.base..piece.end()).step_by(page as usize) {
            match self.pages.remove(&addr) {
                Some(number) => out.push((addr, number)),
                None => self.wrong.push(format!("{piece:?}: no page at {addr:#x}")),
            }
        }
        let (mut sizes, mut at) = (Vec::new(), piece.base);
        while at < piece.end() {
            sizes.push(large.get(&at).copied().unwrap_or(page));
            at += sizes[sizes.len() - 1];
        }
        (out, sizes)
    }
}

/// So many bytes as pages of this size, the last one smaller.
fn sizes(bytes: u64, of: u64) -> Vec<u64> {
    let rest = Some(bytes % of).filter(|rest| *rest > 0);
    (0..bytes / of).map(|_| of).chain(rest).collect()
}

impl SlabProvider for FakeProvider {
    fn acquire(&self, bytes: u64) -> Result<Slab, ProviderError> {
        let mut ledger = self.ledger();
        ledger.ask(bytes, self.page)?;
        if let Some(page) = self.page {
            if !bytes.is_multiple_of(page) {
                ledger
                    .wrong
                    .push(format!("{bytes} bytes are no whole pages"));
            }
            let numbers = ledger.number(bytes / page);
            return ledger.map(&numbers, page, &sizes(bytes, page), None);
        }
        let unit = self.granularity.max(4096);
        let base = ledger.addresses(bytes + self.skew, unit, true)? + self.skew;
        ledger.out.insert(base, bytes);
        Ok(Slab { base, bytes })
    }

    fn release(&self, slab: Slab) {
        let mut ledger = self.ledger();
        if let Some(page) = self.page {
            for (_, number) in ledger.leave(slab, page).0 {
                let old = ledger.lingering.extract_if(.., |_, other| *other == number);
                let old: Vec<u64> = old.map(|(addr, _)| addr).collect();
                ledger.dangling.extend(old);
            }
        } else if ledger.out.remove(&slab.base) != Some(slab.bytes) {
            ledger
                .wrong
                .push(format!("{slab:?} given back, but it is not out"));
        }
    }

    fn granularity(&self) -> u64 {
        self.granularity
    }

    fn page(&self) -> Option<u64> {
        self.page
    }

    fn largest_page(&self) -> Option<u64> {
        self.largest
    }

    fn leaves_mapped(&self) -> bool {
        self.leaves_mapped
    }

    fn maps_once(&self) -> bool {
        self.maps_once
    }

    fn map(
        &self,
        pieces: &[Slab],
        fresh: u64,
        of: u64,
        after: Option<u64>,
    ) -> Result<Slab, ProviderError> {
        let Some(page) = self.page else {
            return self.acquire(fresh);
        };
        let mut ledger = self.ledger();
        if !pieces.is_empty() && after.is_some_and(|after| after != ledger.next) {
            return Err(ProviderError::OutOfMemory);
        }
        ledger.ask(fresh, self.page)?;
        if !fresh.is_multiple_of(page) || !of.is_multiple_of(page) {
            ledger
                .wrong
                .push(format!("{fresh} bytes in pages of {of} are no whole pages"));
        }
        let (mut numbers, mut all) = (Vec::new(), Vec::new());
        for piece in pieces {
            let (left, mut sizes) = ledger.leave(*piece, page);
            numbers.extend(left.iter().map(|(_, number)| *number));
            all.append(&mut sizes);
            match self.maps_once {
                true => ledger.retired.push(*piece),
                false => ledger.lingering.extend(left),
            }
        }
        let new = ledger.number(fresh / page);
        numbers.extend(new);
        all.append(&mut sizes(fresh, of));
        ledger.map(&numbers, page, &all, after)
    }

    fn retire(&self, piece: Slab) {
        let mut ledger = self.ledger();
        for addr in (piece.base..piece.end()).step_by(self.granularity as usize) {
            if ledger.lingering.remove(&addr).is_none() && !ledger.dangling.remove(&addr) {
                ledger
                    .wrong
                    .push(format!("{piece:?}: nothing lingers at {addr:#x}"));
            }
        }
        ledger.retired.push(piece);
    }
}

/// Tests share a provider with its pool.
impl<S: SlabProvider + ?Sized> SlabProvider for Arc<S> {
    fn acquire(&self, bytes: u64) -> Result<Slab, ProviderError> {
        (**self).acquire(bytes)
    }

    fn release(&self, slab: Slab) {
        (**self).release(slab);
    }

    fn page(&self) -> Option<u64> {
        (**self).page()
    }

    fn largest_page(&self) -> Option<u64> {
        (**self).largest_page()
    }

    fn map(
        &self,
        pieces: &[Slab],
        fresh: u64,
        page: u64,
        after: Option<u64>,
    ) -> Result<Slab, ProviderError> {
        (**self).map(pieces, fresh, page, after)
    }

    fn leaves_mapped(&self) -> bool {
        (**self).leaves_mapped()
    }

    fn maps_once(&self) -> bool {
        (**self).maps_once()
    }

    fn observes(&self) -> bool {
        (**self).observes()
    }

    fn observe(&self) {
        (**self).observe();
    }

    fn retire(&self, piece: Slab) {
        (**self).retire(piece);
    }

    fn granularity(&self) -> u64 {
        (**self).granularity()
    }

    fn alignment(&self) -> u64 {
        (**self).alignment()
    }
}

//! What to take: sizes, the order of choice, and how much to grow.
//!
//! Owns decisions and nothing else: it reads a [`Store`] and answers with a [`Place`] or a number.

use super::index::Bin;
use super::offsets::{NIL, Place, Seg, SegId};
use super::others::Others;
use super::pages::collect_pending;
use super::request::{Config, Lack, Order, PoolError, Request, Reuse};
use super::sizes::BySize;
use super::source::Slab;
use super::store::Store;
use crate::timeline::{Frontier, LaneId};

/// A request as rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub bytes: u64,
    pub align: u64,
    pub requested: u64,
}

const MIB: u64 = 1 << 20;
/// Places that are weighed against each other, of one kind: bounded, as the time is.
const CANDIDATES: usize = 64;

impl Need {
    pub fn new(request: &Request<'_>, min_align: u64) -> Result<Self, PoolError> {
        let align = request.align.max(1);
        if !align.is_power_of_two() {
            return Err(PoolError::InvalidAlignment);
        }
        let bytes = round(request.bytes, min_align).ok_or(PoolError::InvalidSize)?;
        if bytes.checked_add(align).is_none() {
            return Err(PoolError::InvalidAlignment);
        }
        Ok(Self {
            bytes,
            align: align.max(min_align),
            requested: request.bytes,
        })
    }

    /// Where it would start in `[addr, +len)`.
    fn fit(&self, addr: u64, len: u64) -> Option<u64> {
        let start = addr.checked_next_multiple_of(self.align)?;
        let room = len.checked_sub(start - addr)?;
        (room >= self.bytes).then_some(start)
    }
}

/// Rounds a size up to a multiple of `min_align`, and larger ones to 1/128 of the power of two below
/// them, at most 1 MiB. That is under 1/8 from 8 `min_align` on (below, `min_align` is the unit of
/// all sizes), and keeps slivers too small to serve anything from forming behind large blocks.
#[inline(always)]
pub(crate) fn round(bytes: u64, min_align: u64) -> Option<u64> {
    let below = bytes.checked_ilog2()?;
    let step = ((1 << below) / 128).min(MIB).max(min_align);
    // A power of two, as `min_align` is: no division on the way of every allocation.
    Some(bytes.checked_add(step - 1)? & !(step - 1))
}

/// A place that needs no wait, by the order of choice: the own lane's, what the request's
/// dependencies order, what completed, and last any mixture of them side by side. Of each kind what
/// `others` lose least with, then what fits best.
///
/// For who has just seen that there is none of [`own`].
pub(crate) fn ready(
    store: &mut Store,
    need: &Need,
    order: &Order<'_>,
    others: &Others<'_>,
) -> Option<(Place, Reuse)> {
    if store.sweep()
        && let Some(place) = own(store, need, order, others)
    {
        return Some((place, Reuse::OwnLane));
    }
    if let Some(place) = dominated(store, need, order, others) {
        return Some((place, Reuse::Ordered));
    }
    if let Some(fit) = by_size(store, &store.index.clear, need, &Others::default(), |_| {
        true
    }) {
        return Some((fit.place, Reuse::Completed));
    }
    if matches!(order, Order::Sync) {
        // What is complete is one segment wherever it is adjacent, so there is no more to find.
        return None;
    }
    mixture(store, need, order).map(|place| (place, Reuse::Ordered))
}

/// A place, the bytes of the stretch it was found in, and what others lose with it.
#[derive(Clone, Copy)]
struct Fit {
    loss: u64,
    size: u64,
    place: Place,
}

/// The least loss, then the best fit.
fn better(best: Option<Fit>, fit: Fit) -> Option<Fit> {
    let least = best.filter(|best| (best.loss, best.size) <= (fit.loss, fit.size));
    least.or(Some(fit))
}

/// The first of [`ready`]'s choices alone.
pub(crate) fn own(
    store: &Store,
    need: &Need,
    order: &Order<'_>,
    others: &Others<'_>,
) -> Option<Place> {
    let lane = order.own_lane()?;
    let bin = store.index.bin(lane)?;
    in_bin(store, bin, lane, order.horizon(lane)?, need, others).map(|fit| fit.place)
}

/// The best over the bins of all lanes that the order reaches.
fn dominated(store: &Store, need: &Need, order: &Order<'_>, others: &Others<'_>) -> Option<Place> {
    let mut best: Option<Fit> = None;
    let mut offer = |fit: Option<Fit>| {
        if let Some(fit) = fit {
            best = better(best, fit);
        }
    };
    let admitted = |seg: &Seg| seg.death().is_some_and(|death| order.admits(death));
    for point in order.foreign() {
        if let Some(bin) = store.index.bin(point.lane()) {
            offer(in_bin(store, bin, point.lane(), point.epoch, need, others));
            offer(by_size(store, &bin.mixed, need, others, admitted));
        }
    }
    if let Some(bin) = order.own_lane().and_then(|lane| store.index.bin(lane)) {
        offer(by_size(store, &bin.mixed, need, others, admitted));
    }
    best.map(|fit| fit.place)
}

/// Best fit over single segments.
fn by_size(
    store: &Store,
    set: &BySize,
    need: &Need,
    others: &Others<'_>,
    admitted: impl Fn(&Seg) -> bool,
) -> Option<Fit> {
    let mut best = Best::default();
    set.first(need.bytes, |(size, addr, first)| {
        let start = need.fit(addr, size)?;
        let place = Place { first, start };
        if !admitted(store.offsets.seg(first)) {
            return None;
        }
        let loss = others.loss(store, place, need.bytes);
        best.offer(Fit { loss, size, place })
    });
    best.fit
}

/// Of the first few, which fit best, the one with which others lose least.
#[derive(Default)]
struct Best {
    fit: Option<Fit>,
    seen: usize,
}

impl Best {
    /// Some when no more need be offered.
    fn offer(&mut self, fit: Fit) -> Option<()> {
        self.fit = better(self.fit, fit);
        self.seen += 1;
        let enough = self.fit.is_some_and(|fit| fit.loss == 0) || self.seen == CANDIDATES;
        enough.then_some(())
    }
}

/// The best over a lane's runs, or over the parts of them that died up to `horizon`.
fn in_bin(
    store: &Store,
    bin: &Bin,
    lane: LaneId,
    horizon: u64,
    need: &Need,
    others: &Others<'_>,
) -> Option<Fit> {
    let whole = bin.newest() <= horizon;
    let mut best = Best::default();
    bin.runs.first(need.bytes, |(size, addr, head)| {
        if whole {
            let place = place_at(store, head, need.fit(addr, size)?);
            let loss = others.loss(store, place, need.bytes);
            return best.offer(Fit { loss, size, place });
        }
        let mut tight = Tightest::new(need);
        let mut id = head;
        while store.index.in_run(&store.offsets, id, lane) {
            let seg = store.offsets.seg(id);
            let point = seg.death().and_then(Frontier::single);
            tight.step(id, seg, point.is_some_and(|p| p.epoch <= horizon));
            id = seg.next;
        }
        let fit = tight.finish(store)?;
        let loss = others.loss(store, fit.place, need.bytes);
        best.offer(Fit { loss, ..fit })
    });
    best.fit
}

/// The tightest stretch of adjacent free segments that the order admits, whatever their deaths.
fn mixture(store: &Store, need: &Need, order: &Order<'_>) -> Option<Place> {
    let mut tight = Tightest::new(need);
    for entry in store.offsets.slabs() {
        if entry.free_bytes < need.bytes {
            continue;
        }
        for (id, seg) in store.offsets.segs_from(entry.first) {
            let admitted = seg.death().is_some_and(|death| order.admits(death));
            tight.step(id, seg, admitted);
        }
        tight.cut();
    }
    tight.finish(store).map(|fit| fit.place)
}

/// Of the stretches of admitted segments shown to it, keeps the smallest that fits.
struct Tightest<'a> {
    need: &'a Need,
    /// The stretch being built: its first segment, its address and its bytes.
    head: SegId,
    addr: u64,
    bytes: u64,
    best: Option<(u64, SegId, u64)>,
}

impl<'a> Tightest<'a> {
    fn new(need: &'a Need) -> Self {
        Self {
            need,
            head: NIL,
            addr: 0,
            bytes: 0,
            best: None,
        }
    }

    fn step(&mut self, id: SegId, seg: &Seg, admitted: bool) {
        if !admitted {
            self.cut();
            return;
        }
        if self.head == NIL {
            (self.head, self.addr, self.bytes) = (id, seg.addr, 0);
        }
        self.bytes += seg.bytes;
    }

    fn cut(&mut self) {
        if self.head != NIL
            && let Some(start) = self.need.fit(self.addr, self.bytes)
            && self.best.is_none_or(|(least, ..)| self.bytes < least)
        {
            self.best = Some((self.bytes, self.head, start));
        }
        self.head = NIL;
    }

    fn finish(mut self, store: &Store) -> Option<Fit> {
        self.cut();
        let (size, head, start) = self.best?;
        let place = place_at(store, head, start);
        Some(Fit {
            loss: 0,
            size,
            place,
        })
    }
}

/// The place of `start`, which lies in `head` or in a segment after it.
pub(crate) fn place_at(store: &Store, head: SegId, start: u64) -> Place {
    let mut first = head;
    while store.offsets.seg(first).end() <= start {
        first = store.offsets.seg(first).next;
    }
    Place { first, start }
}

/// The place whose wait is least: fewest lanes, then fewest commands outstanding on them, then
/// least memory. Only windows that cannot lose a segment are looked at: others wait for more.
pub(crate) fn least_wait(store: &Store, need: &Need, order: &Order<'_>) -> Option<Place> {
    let mut best: Option<((usize, u64, u64), Place)> = None;
    for entry in store.offsets.slabs() {
        if entry.free_bytes < need.bytes {
            continue;
        }
        for (first, seg) in store.offsets.segs_from(entry.first) {
            let Some(start) = seg.addr.checked_next_multiple_of(need.align) else {
                continue;
            };
            if seg.death().is_none() || start >= seg.end() {
                continue;
            }
            let place = Place { first, start };
            if let Some(cost) = cost(store, place, need, order)
                && best.is_none_or(|(least, _)| cost < least)
            {
                best = Some((cost, place));
            }
        }
    }
    best.map(|(_, place)| place)
}

pub(crate) fn cost(
    store: &Store,
    place: Place,
    need: &Need,
    order: &Order<'_>,
) -> Option<(usize, u64, u64)> {
    let end = place.start.checked_add(need.bytes)?;
    let segs = store.offsets.segs_from(place.first);
    let reach = segs
        .take_while(|(_, seg)| seg.death().is_some())
        .find(|(_, s)| s.end() >= end)?;
    let missing = store.missing(place, need.bytes, order);
    let outstanding = missing
        .points()
        .map(|p| p.outstanding())
        .fold(0, u64::saturating_add);
    let bytes = reach.1.end() - store.offsets.seg(place.first).addr;
    Some((missing.len(), outstanding, bytes))
}

/// Which free memory would have served, and what the order lacks for it: the least.
pub(crate) fn lack(store: &Store, need: &Need, order: &Order<'_>) -> Option<Lack> {
    let (pieces, wait) = match least_wait(store, need, order) {
        Some(place) => {
            let range = Slab {
                base: place.start,
                bytes: need.bytes,
            };
            (vec![range], store.missing(place, need.bytes, order))
        }
        None => {
            let mut pages = store.offsets.pages();
            let found = pages.find_map(|page| collect_pending(store, need, order, 0, page))?;
            let mut wait = Frontier::new();
            for (first, slab) in &found.pieces {
                let (first, start) = (*first, slab.base);
                wait.join(&store.missing(Place { first, start }, slab.bytes, order));
            }
            let pieces = found.pieces.into_iter().map(|(_, slab)| slab);
            (pieces.collect(), wait)
        }
    };
    (!wait.is_empty()).then_some(Lack { pieces, wait })
}

/// What a source promises about its slabs, read once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grain {
    pub granularity: u64,
    pub alignment: u64,
    /// The largest pages, for a pool that holds much.
    pub largest: Option<u64>,
    /// Whether completion is seen only by looking for it.
    pub observes: bool,
    /// Whether addresses that memory has left may lead there for long.
    pub leaves_mapped: bool,
    /// Whether memory comes in whole pages only, of one granularity each.
    pub paged: bool,
}

/// The least that holds the request wherever a slab starts.
fn floor(need: &Need, grain: Grain, padded: bool) -> u64 {
    let promised = if padded { 1 } else { grain.alignment.max(1) };
    let slack = match promised.is_multiple_of(need.align) {
        true => 0,
        false => need.align - 1,
    };
    need.bytes.saturating_add(slack)
}

/// The fewest bytes that growth for a request may add. None if they cannot be represented.
pub(crate) fn least_growth(need: &Need, grain: Grain) -> Option<u64> {
    let floor = floor(need, grain, false);
    match grain.paged {
        true => floor.checked_next_multiple_of(grain.granularity.max(1)),
        false => Some(floor),
    }
}

/// How much to ask a source for, with `committed` bytes reserved or about to be. `tight` asks for no
/// more than needed; `padded` distrusts the promised alignment. `Err` with the bytes that would be
/// needed if the maximum leaves too little.
pub(crate) fn growth(
    need: &Need,
    config: &Config,
    grain: Grain,
    committed: u64,
    tight: bool,
    padded: bool,
) -> Result<u64, u64> {
    let floor = floor(need, grain, padded);
    let room = config
        .max_bytes
        .unwrap_or(u64::MAX)
        .saturating_sub(committed);
    if floor > room {
        return Err(floor);
    }
    let unit = grain.granularity.max(1);
    let least = match floor.checked_next_multiple_of(unit) {
        Some(least) if least <= room => least,
        _ if grain.paged => return Err(floor),
        // The maximum leaves less than a unit: the source may still manage what is needed.
        _ => return Ok(floor),
    };
    if tight {
        return Ok(least);
    }
    let wish = floor
        .max(config.chunk_bytes)
        .checked_next_multiple_of(unit)
        .unwrap_or(least);
    Ok(wish.min(room / unit * unit).max(least))
}

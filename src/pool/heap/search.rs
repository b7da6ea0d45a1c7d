//! Where a request fits: best fit among the free memory that its order admits.
//!
//! Reads a [`Heap`] and answers with a [`Place`].

use crate::pool::heap::Heap;
use crate::pool::heap::index::{Entry, LaneIndex, at_least};
use crate::pool::heap::segments::{Place, Segment, SegmentId, Stretch, stretches};
use crate::pool::request::{Order, PoolError, Request, Reuse};
use crate::pool::rounding::Rounding;
use crate::timeline::{Frontier, LaneId};

/// A request as rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub bytes: u64,
    pub align: u64,
    pub requested: u64,
}

impl Need {
    pub fn new(request: &Request<'_>, rounding: Rounding) -> Result<Self, PoolError> {
        let align = request.align.max(1);
        if !align.is_power_of_two() {
            return Err(PoolError::InvalidAlignment);
        }
        let bytes = rounding
            .apply(request.bytes)
            .ok_or(PoolError::InvalidSize)?;
        if bytes.checked_add(align).is_none() {
            return Err(PoolError::InvalidAlignment);
        }
        Ok(Self {
            bytes,
            align: align.max(rounding.min_align),
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

/// A place that needs no wait: the best fit among memory that died on the request's own stream, that its
/// dependencies order, or that has completed. Equal fits are taken in this order. If none fits, adjacent
/// segments of all three together may.
pub(crate) fn ready(heap: &mut Heap, need: &Need, order: &Order<'_>) -> Option<(Place, Reuse)> {
    heap.sweep();
    let own = own(heap, need, order).map(|fit| (fit, Reuse::OwnLane));
    let ordered = dominated(heap, need, order).map(|fit| (fit, Reuse::Ordered));
    let clear = by_size(heap, heap.index.clear.at_least(need.bytes), need, |_| true);
    let clear = clear.map(|fit| (fit, Reuse::Completed));
    let found = own.into_iter().chain(ordered).chain(clear);
    if let Some((fit, reuse)) = found.min_by_key(|(fit, _)| fit.size) {
        return Some((fit.place, reuse));
    }
    if matches!(order, Order::Sync) {
        // Completed neighbours are one segment already.
        return None;
    }
    mixture(heap, need, order).map(|place| (place, Reuse::Ordered))
}

/// A place, and the bytes of the stretch it was found in.
#[derive(Clone, Copy)]
pub(crate) struct Fit {
    size: u64,
    place: Place,
}

/// The best fit among what died on the request's own stream.
pub(crate) fn own(heap: &Heap, need: &Need, order: &Order<'_>) -> Option<Fit> {
    let lane = order.own_lane()?;
    let (index, horizon) = (heap.index.lane(lane)?, order.horizon(lane)?);
    in_lane(heap, index, lane, horizon, need)
}

/// The best fit over the bins of all lanes that the order reaches.
fn dominated(heap: &Heap, need: &Need, order: &Order<'_>) -> Option<Fit> {
    let admitted = |seg: &Segment| seg.death().is_some_and(|death| order.admits(death));
    let mixed = |own: &LaneIndex| by_size(heap, at_least(&own.mixed, need.bytes), need, admitted);
    let foreign = order.foreign().flat_map(|point| {
        let index = heap.index.lane(point.lane());
        index.into_iter().flat_map(move |index| {
            let run = in_lane(heap, index, point.lane(), point.epoch, need);
            [run, mixed(index)]
        })
    });
    let own = order.own_lane().and_then(|lane| heap.index.lane(lane));
    let found = foreign.chain(own.map(mixed)).flatten();
    found.min_by_key(|fit| fit.size)
}

/// Best fit over single segments.
fn by_size(
    heap: &Heap,
    mut from: impl Iterator<Item = Entry>,
    need: &Need,
    admitted: impl Fn(&Segment) -> bool,
) -> Option<Fit> {
    from.find_map(|(size, addr, first)| {
        let start = need.fit(addr, size)?;
        let place = Place { first, start };
        admitted(heap.segments.seg(first)).then_some(Fit { size, place })
    })
}

/// The best over a lane's runs, or over the parts of them that died up to `horizon`.
fn in_lane(heap: &Heap, index: &LaneIndex, lane: LaneId, horizon: u64, need: &Need) -> Option<Fit> {
    let whole = index.pending.newest() <= horizon;
    at_least(&index.runs, need.bytes).find_map(|(size, addr, head)| {
        if whole {
            let place = place_at(heap, head, need.fit(addr, size)?);
            return Some(Fit { size, place });
        }
        let in_run = |id| heap.index.in_run(&heap.segments, id, lane);
        let run = heap.segments.segments_from(head);
        let run = run.take_while(|(id, _)| in_run(*id));
        let early = |seg: &Segment| {
            let point = seg.death().and_then(Frontier::single);
            point.is_some_and(|point| point.epoch <= horizon)
        };
        tightest(heap, need, stretches(run, early))
    })
}

/// The tightest stretch of adjacent free segments that the order admits, whatever their deaths.
fn mixture(heap: &Heap, need: &Need, order: &Order<'_>) -> Option<Place> {
    let admitted = |seg: &Segment| seg.death().is_some_and(|death| order.admits(death));
    let slabs = heap.segments.slabs();
    let slabs = slabs.filter(|entry| entry.free_bytes >= need.bytes);
    let found =
        slabs.flat_map(|entry| stretches(heap.segments.segments_from(entry.first), admitted));
    tightest(heap, need, found).map(|fit| fit.place)
}

/// The smallest stretch that the request fits.
fn tightest(heap: &Heap, need: &Need, found: impl Iterator<Item = Stretch>) -> Option<Fit> {
    let fits = found.filter_map(|own| {
        let start = need.fit(own.range.base, own.range.bytes)?;
        Some((own.range.bytes, own.first, start))
    });
    let (size, head, start) = fits.min_by_key(|(size, ..)| *size)?;
    let place = place_at(heap, head, start);
    Some(Fit { size, place })
}

/// The place of `start`, which lies in `head` or in a segment after it.
pub(crate) fn place_at(heap: &Heap, head: SegmentId, start: u64) -> Place {
    let mut first = head;
    while heap.segments.seg(first).end() <= start {
        first = heap.segments.seg(first).next;
    }
    Place { first, start }
}

/// The place whose wait is least: fewest lanes, then fewest commands outstanding on them, then
/// least memory. Only windows that cannot lose a segment are looked at: others wait for more.
pub(crate) fn least_wait(heap: &Heap, need: &Need, order: &Order<'_>) -> Option<Place> {
    let mut best: Option<((usize, u64, u64), Place)> = None;
    for entry in heap.segments.slabs() {
        if entry.free_bytes < need.bytes {
            continue;
        }
        for (first, seg) in heap.segments.segments_from(entry.first) {
            let Some(start) = seg.addr.checked_next_multiple_of(need.align) else {
                continue;
            };
            if seg.death().is_none() || start >= seg.end() {
                continue;
            }
            let place = Place { first, start };
            if let Some(cost) = cost(heap, place, need, order)
                && best.is_none_or(|(least, _)| cost < least)
            {
                best = Some((cost, place));
            }
        }
    }
    best.map(|(_, place)| place)
}

pub(crate) fn cost(
    heap: &Heap,
    place: Place,
    need: &Need,
    order: &Order<'_>,
) -> Option<(usize, u64, u64)> {
    let end = place.start.checked_add(need.bytes)?;
    let segs = heap.segments.segments_from(place.first);
    let reach = segs
        .take_while(|(_, seg)| seg.death().is_some())
        .find(|(_, s)| s.end() >= end)?;
    let (lanes, outstanding) = wait_cost(&heap.missing(place, need.bytes, order));
    let bytes = reach.1.end() - heap.segments.seg(place.first).addr;
    Some((lanes, outstanding, bytes))
}

/// What a wait costs: the lanes to be waited for, then the commands outstanding on them.
pub(crate) fn wait_cost(wait: &Frontier) -> (usize, u64) {
    let outstanding = wait.points().map(|point| point.outstanding());
    (wait.len(), outstanding.fold(0, u64::saturating_add))
}

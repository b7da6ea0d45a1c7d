//! Where a request fits: best fit among the free memory that its order admits.
//!
//! Reads a [`Heap`] and answers with a [`Place`], and with what has to be waited for there.

use crate::pool::heap::Heap;
use crate::pool::heap::index::{BySize, Entry, LaneIndex};
use crate::pool::heap::segments::{NIL, Place, Segment, SegmentId, Stretch, stretches};
use crate::pool::provider::Slab;
use crate::pool::request::{Order, Reuse, WaitPolicy};
use crate::timeline::{Frontier, LaneId};

/// What a request needs: rounded sizes, in bytes, and the memory that its order allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need<'a> {
    pub bytes: u64,
    pub align: u64,
    pub requested: u64,
    pub order: Order<'a>,
    /// When it may wait, as pool and caller allow.
    pub waits: WaitPolicy,
}

impl Need<'_> {
    /// The need of so many of its bytes, at any address.
    pub fn part(&self, bytes: u64) -> Self {
        Self {
            bytes,
            align: 1,
            ..*self
        }
    }

    /// Whether the request comes after the death of a free segment.
    pub fn admits(&self, seg: &Segment) -> bool {
        seg.death().is_some_and(|death| self.order.admits(death))
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
pub(crate) fn ready(heap: &mut Heap, need: &Need<'_>) -> Option<(Place, Reuse)> {
    heap.sweep();
    let own = own(heap, need).map(|fit| (fit, Reuse::OwnLane));
    let ordered = dominated(heap, need).map(|fit| (fit, Reuse::Ordered));
    let clear = by_size(heap, heap.index.clear.at_least(need.bytes), need, |_| true);
    let clear = clear.map(|fit| (fit, Reuse::Completed));
    let found = own.into_iter().chain(ordered).chain(clear);
    if let Some((fit, reuse)) = found.min_by_key(|(fit, _)| fit.size) {
        return Some((fit.place, reuse));
    }
    if matches!(need.order, Order::Sync) {
        // Completed neighbours are one segment already.
        return None;
    }
    mixture(heap, need).map(|place| (place, Reuse::Ordered))
}

/// A place, and the bytes of the stretch it was found in.
#[derive(Clone, Copy)]
pub(crate) struct Fit {
    size: u64,
    place: Place,
}

/// The best fit among what died on the request's own stream.
pub(crate) fn own(heap: &Heap, need: &Need<'_>) -> Option<Fit> {
    let lane = need.order.own_lane()?;
    let (index, horizon) = (heap.index.lane(lane)?, need.order.horizon(lane)?);
    in_lane(heap, index, lane, horizon, need)
}

/// The best fit over the bins of all lanes that the order reaches.
fn dominated(heap: &Heap, need: &Need<'_>) -> Option<Fit> {
    let admitted = |seg: &Segment| need.admits(seg);
    let mixed = |own: &LaneIndex| by_size(heap, own.mixed.at_least(need.bytes), need, admitted);
    let foreign = need.order.foreign().flat_map(|point| {
        let index = heap.index.lane(point.lane());
        index.into_iter().flat_map(move |index| {
            let run = in_lane(heap, index, point.lane(), point.epoch, need);
            [run, mixed(index)]
        })
    });
    let own = need.order.own_lane().and_then(|lane| heap.index.lane(lane));
    let found = foreign.chain(own.map(mixed)).flatten();
    found.min_by_key(|fit| fit.size)
}

/// Best fit over single segments.
fn by_size(
    heap: &Heap,
    mut from: impl Iterator<Item = Entry>,
    need: &Need<'_>,
    admitted: impl Fn(&Segment) -> bool,
) -> Option<Fit> {
    from.find_map(|(size, addr, first)| {
        let start = need.fit(addr, size)?;
        let place = Place { first, start };
        admitted(heap.segments.seg(first)).then_some(Fit { size, place })
    })
}

/// The best over a lane's runs, or over the parts of them that died up to `horizon`.
fn in_lane(
    heap: &Heap,
    index: &LaneIndex,
    lane: LaneId,
    horizon: u64,
    need: &Need<'_>,
) -> Option<Fit> {
    let whole = index.pending.newest() <= horizon;
    index
        .runs
        .at_least(need.bytes)
        .find_map(|(size, addr, head)| {
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
fn mixture(heap: &Heap, need: &Need<'_>) -> Option<Place> {
    let admitted = |seg: &Segment| need.admits(seg);
    let slabs = heap.segments.slabs();
    let slabs = slabs.filter(|entry| entry.free_bytes >= need.bytes);
    let found =
        slabs.flat_map(|entry| stretches(heap.segments.segments_from(entry.first), admitted));
    tightest(heap, need, found).map(|fit| fit.place)
}

/// The smallest stretch that the request fits.
fn tightest(heap: &Heap, need: &Need<'_>, found: impl Iterator<Item = Stretch>) -> Option<Fit> {
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

/// The place whose wait is least, and the wait: fewest lanes, then fewest commands outstanding on them, then
/// least memory. Only windows that cannot lose a segment are looked at: others wait for more.
pub(crate) fn least_wait(heap: &Heap, need: &Need<'_>) -> Option<(Place, Frontier)> {
    let mut best: Option<((usize, u64, u64), Place, Frontier)> = None;
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
            if let Some((cost, wait)) = cost(heap, place, need)
                && best.as_ref().is_none_or(|(least, ..)| cost < *least)
            {
                best = Some((cost, place, wait));
            }
        }
    }
    best.map(|(_, place, wait)| (place, wait))
}

/// What a place that may have to be waited for costs, and the wait. None if some of it is not free.
pub(crate) fn cost(
    heap: &Heap,
    place: Place,
    need: &Need<'_>,
) -> Option<((usize, u64, u64), Frontier)> {
    let end = place.start.checked_add(need.bytes)?;
    let segs = heap.segments.segments_from(place.first);
    let reach = segs
        .take_while(|(_, seg)| seg.death().is_some())
        .find(|(_, s)| s.end() >= end)?;
    let wait = missing(heap, place, need);
    let (lanes, outstanding) = wait_cost(&wait);
    let bytes = reach.1.end() - heap.segments.seg(place.first).addr;
    Some(((lanes, outstanding, bytes), wait))
}

/// The points that the request lacks for the memory at a place.
pub(crate) fn missing(heap: &Heap, place: Place, need: &Need<'_>) -> Frontier {
    let end = place.start + need.bytes;
    let inside = heap.segments.segments_from(place.first);
    let inside = inside.take_while(|(_, seg)| seg.addr < end);
    let deaths = inside.filter_map(|(_, seg)| seg.death());
    let mut out = Frontier::new();
    for point in deaths.flat_map(Frontier::points) {
        if !need.order.orders_point(point) {
            out.join_point(point);
        }
    }
    out
}

/// What a wait costs: the lanes to be waited for, then the commands outstanding on them.
pub(crate) fn wait_cost(wait: &Frontier) -> (usize, u64) {
    let outstanding = wait.points().map(|point| point.outstanding());
    (wait.len(), outstanding.fold(0, u64::saturating_add))
}

/// A free range: where, and the sizes and deaths of its parts.
pub(crate) type FreeRange = (Place, Slab, Vec<(u64, Frontier)>);

/// Where these ranges, ascending, lie in free memory that `order` comes after, cut where slabs end,
/// each with what died there. None if some of it is not free or not ordered.
pub(crate) fn all_free(heap: &Heap, ranges: &[Slab], order: &Order<'_>) -> Option<Vec<FreeRange>> {
    let segments = &heap.segments;
    let mut out: Vec<FreeRange> = Vec::new();
    let mut at = NIL;
    for range in ranges {
        let mut base = range.base;
        while base < range.end() {
            let (first, end) = segments.slab_around(base)?;
            let behind = |id| id == NIL || segments.seg(id).addr < segments.seg(first).addr;
            if behind(at) {
                at = first;
            }
            while segments.seg(at).end() <= base {
                at = segments.seg(at).next;
                if at == NIL {
                    return None;
                }
            }
            let end = end.min(range.end());
            let place = Place {
                first: at,
                start: base,
            };
            let (from, mut parts) = (base, Vec::new());
            loop {
                let seg = segments.seg(at);
                let death = seg.death().filter(|death| order.admits(death))?;
                let to = seg.end().min(end);
                parts.push((to - base, death.clone()));
                base = to;
                if base == end {
                    break;
                }
                at = seg.next;
                if at == NIL {
                    return None;
                }
            }
            let bytes = end - from;
            out.push((place, Slab { base: from, bytes }, parts));
        }
    }
    Some(out)
}

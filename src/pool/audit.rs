//! What holds between any two calls, read the slow way: sums, links, order and ownership.
//!
//! For tests and the oracle, which ask after every step; no library has it.

use crate::pool::Pool;
use crate::pool::heap::Heap;
use crate::pool::heap::index::BySize;
use crate::pool::heap::segments::{Holder, NIL, Occupancy, SegmentId};
use crate::pool::provider::{Slab, SlabProvider};
use crate::timeline::{Frontier, LaneId};
use std::collections::{BTreeMap, BTreeSet};

/// Fails with the invariant as text.
macro_rules! hold {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err(format!($($why)+));
        }
    };
}

type Entries = BTreeSet<(u64, u64, SegmentId)>;

impl<S: SlabProvider> Pool<S> {
    /// The first invariant that does not hold. Only while no other thread is in a call.
    pub fn audit(&self) -> Result<(), String> {
        let state = self.state.lock();
        let moving = (state.growing, state.releasing, state.moving);
        hold!(moving == (0, 0, 0), "bytes on their way: {moving:?}");
        let (figures, heap) = (state.stats.figures, &state.heap);
        let slabs = heap.segments.slabs().map(|entry| entry.slab.bytes);
        let slabs: u64 = slabs.sum();
        let reserved = figures.reserved;
        hold!(
            slabs == reserved,
            "{slabs} bytes of slabs, {reserved} reserved"
        );
        hold!(
            reserved <= figures.reserved_high,
            "reserved beyond its high"
        );
        let max = state.config.max_bytes.unwrap_or(u64::MAX);
        hold!(reserved <= max, "{reserved} bytes reserved, {max} at most");
        heap.audit()?;
        state.table.audit(heap)?;
        self.usage.audit()
    }
}

impl Heap {
    /// Segments tile their slabs, pages too, and each free one is in the index as its death says.
    pub fn audit(&self) -> Result<(), String> {
        let mut clear = Entries::new();
        let mut runs: BTreeMap<LaneId, Entries> = BTreeMap::new();
        let mut mixed: BTreeMap<LaneId, Entries> = BTreeMap::new();
        let mut pending: BTreeMap<LaneId, BTreeSet<(u64, SegmentId)>> = BTreeMap::new();
        let mut last_end = 0;
        for entry in self.segments.slabs() {
            hold!(
                entry.slab.base >= last_end,
                "slabs overlap at {:?}",
                entry.slab
            );
            last_end = entry.slab.end();
            if self.segments.page().is_some() {
                let pages = self.segments.pages_in(entry.slab).map(|page| page.bytes);
                hold!(pages.sum::<u64>() == entry.slab.bytes, "pages tile no slab");
            }
            let first = self.segments.seg(entry.first);
            let (mut at, mut prev, mut free) = (first.addr, NIL, 0);
            let mut before: Option<&Frontier> = None;
            let mut run: Option<(LaneId, (u64, u64, SegmentId))> = None;
            for (id, seg) in self.segments.segments_from(entry.first) {
                hold!(
                    (seg.addr, seg.prev) == (at, prev),
                    "a gap or a bad link at {at:#x}"
                );
                hold!(seg.bytes > 0, "an empty segment at {at:#x}");
                (at, prev) = (seg.end(), id);
                let single = seg.death().and_then(Frontier::single);
                let lane = single.map(|point| point.lane());
                if let Some((on, head)) = run.take_if(|(on, _)| Some(*on) != lane) {
                    runs.entry(on).or_default().insert(head);
                }
                match &seg.state {
                    Occupancy::Vacant => {
                        return Err(format!("a vacant segment at {:#x}", seg.addr));
                    }
                    Occupancy::Live { requested, .. } => {
                        hold!(*requested <= seg.bytes, "more requested than there is");
                        let live = self.segments.live_before(seg.addr);
                        hold!(
                            live == Some(id),
                            "a live segment is not found by its address"
                        );
                    }
                    Occupancy::Free(death) => {
                        free += seg.bytes;
                        hold!(
                            before != Some(death),
                            "neighbours of one death did not merge"
                        );
                        let point = death.points().next();
                        if let Some(point) = &point {
                            let own = pending.entry(point.lane()).or_default();
                            own.insert((point.epoch, id));
                        }
                        match (point, lane) {
                            (None, _) => drop(clear.insert((seg.bytes, seg.addr, id))),
                            (Some(_), Some(lane)) => {
                                let run = run.get_or_insert((lane, (0, seg.addr, id)));
                                run.1.0 += seg.bytes;
                            }
                            (Some(point), None) => {
                                let own = mixed.entry(point.lane()).or_default();
                                own.insert((seg.bytes, seg.addr, id));
                            }
                        }
                    }
                }
                before = seg.death();
            }
            if let Some((on, head)) = run {
                runs.entry(on).or_default().insert(head);
            }
            hold!(at <= entry.slab.end(), "segments beyond their slab");
            hold!(
                free == entry.free_bytes,
                "{free} bytes are free, not {}",
                entry.free_bytes
            );
        }
        hold!(
            self.index.clear.at_least(0).collect::<Entries>() == clear,
            "the index of clear memory is wrong"
        );
        for (lane, index) in &self.index.lanes {
            let own = |sets: &mut BTreeMap<LaneId, Entries>| sets.remove(lane).unwrap_or_default();
            hold!(index.runs == own(&mut runs), "the index of runs is wrong");
            hold!(
                index.mixed == own(&mut mixed),
                "the index of mixed deaths is wrong"
            );
            let own = pending.remove(lane).unwrap_or_default();
            hold!(
                self.index.pending_of(index) == own,
                "the queue of epochs is wrong"
            );
        }
        hold!(pending.is_empty(), "free memory that no index has");
        Ok(())
    }

    /// The segments that stream caches hold: their ranges and the caches' lanes.
    pub fn cached(&self) -> impl Iterator<Item = (SegmentId, Slab, LaneId)> {
        let slabs = self.segments.slabs();
        let segs = slabs.flat_map(|entry| self.segments.segments_from(entry.first));
        segs.filter_map(|(id, seg)| match seg.state {
            Occupancy::Live {
                holder: Holder::Cache(lane),
                ..
            } => Some((id, Slab::new(seg.addr, seg.bytes), lane)),
            _ => None,
        })
    }
}

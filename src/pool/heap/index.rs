//! Finding free segments by size, by lane and by what has completed.
//!
//! Owns the indexes over the free segments of [`Offsets`]. Each is filed by its death:
//!
//! | death | filed | leaves when |
//! |---|---|---|
//! | empty | `clear`, by size; neighbours are one segment already | taken, or its slab given back |
//! | one point | its lane's `runs`: adjacent segments of one lane are one entry | taken, or complete |
//! | several points | the first one's lane's `mixed`, alone | taken, or that point complete |
//!
//! A run lets its own lane take what died piece by piece as if it were merged, while each piece
//! keeps its own epoch for everybody else. `watch` finds, in the order of epochs, what a completion
//! ripens, so that each segment is looked at once a point.

use crate::pool::heap::epoch_queue::Watch;
use crate::pool::heap::segments::{NIL, Offsets, SegId};
use crate::pool::heap::size_map::BySize;
use crate::timeline::{Clock, Frontier, LaneId, Point};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Bin {
    clock: Arc<Clock>,
    /// (bytes of the run, its address, its first segment).
    pub runs: BySize,
    pub mixed: BySize,
    pub(in crate::pool) watch: Watch,
}

impl Bin {
    /// The newest epoch that anything filed here dies at on this lane.
    pub fn newest(&self) -> u64 {
        self.watch.newest()
    }
}

/// The ends of a run know each other; segments between them need not.
#[derive(Clone, Copy, Debug, Default)]
struct Tag {
    mate: SegId,
    /// Of the whole run; kept at its first segment.
    bytes: u64,
    /// Whether the segment is in a run: while a request takes several, some are out already.
    in_run: bool,
    /// Whether it was taken out to be filed anew.
    out: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Index {
    pub clear: BySize,
    pub(in crate::pool) bins: BTreeMap<LaneId, Bin>,
    tags: Vec<Tag>,
}

enum Filed<'a> {
    Clear,
    Run(&'a Point),
    Mixed(&'a Point),
}

fn filed(death: &Frontier) -> Filed<'_> {
    match death.single() {
        Some(point) => Filed::Run(point),
        None => death.points().next().map_or(Filed::Clear, Filed::Mixed),
    }
}

impl Index {
    pub fn bin(&self, lane: LaneId) -> Option<&Bin> {
        self.bins.get(&lane)
    }

    /// Whether anything here waits for completion.
    pub fn is_pending(&self) -> bool {
        self.bins.values().any(|bin| !bin.watch.is_empty())
    }

    /// Segments of which the watched point has completed. Forgets lanes that have nothing here,
    /// which is done on this slower path so that a lane that takes all it has keeps its bin.
    pub fn ripe(&mut self) -> Vec<SegId> {
        let mut out = Vec::new();
        self.bins.retain(|_, bin| {
            out.extend(bin.watch.upto(bin.clock.reliable()));
            !bin.watch.is_empty()
        });
        out
    }

    /// Takes a segment out that will be filed anew once all others are out.
    pub fn take_out(&mut self, offsets: &Offsets, id: SegId) {
        self.remove(offsets, id);
        self.tag_mut(id).out = true;
    }

    /// Whether it was taken out and waits to be filed: not any more, from now on.
    pub fn was_out(&mut self, id: SegId) -> bool {
        std::mem::take(&mut self.tag_mut(id).out)
    }

    /// Files a free segment. Its death must not change until it is removed again.
    pub fn insert(&mut self, offsets: &Offsets, id: SegId) {
        let seg = offsets.seg(id);
        let Some(death) = seg.death() else { return };
        match filed(death) {
            Filed::Clear => self.clear.insert((seg.bytes, seg.addr, id)),
            Filed::Run(point) => self.join_run(offsets, id, point),
            Filed::Mixed(point) => {
                let bin = self.bin_mut(point);
                bin.mixed.insert((seg.bytes, seg.addr, id));
                bin.watch.insert(point.epoch, id);
            }
        }
    }

    pub fn remove(&mut self, offsets: &Offsets, id: SegId) {
        let seg = offsets.seg(id);
        let Some(death) = seg.death() else { return };
        match filed(death) {
            Filed::Clear => self.clear.remove(&(seg.bytes, seg.addr, id)),
            Filed::Run(point) => {
                self.leave_run(offsets, id, point);
                self.unwatch(point, id);
            }
            Filed::Mixed(point) => {
                if let Some(bin) = self.bins.get_mut(&point.lane()) {
                    bin.mixed.remove(&(seg.bytes, seg.addr, id));
                }
                self.unwatch(point, id);
            }
        }
    }

    fn bin_mut(&mut self, point: &Point) -> &mut Bin {
        self.bins.entry(point.lane()).or_insert_with(|| Bin {
            clock: Arc::clone(&point.clock),
            runs: BySize::default(),
            mixed: BySize::default(),
            watch: Watch::default(),
        })
    }

    fn unwatch(&mut self, point: &Point, id: SegId) {
        if let Some(bin) = self.bins.get_mut(&point.lane()) {
            bin.watch.remove(point.epoch, id);
        }
    }

    fn join_run(&mut self, offsets: &Offsets, id: SegId, point: &Point) {
        let seg = offsets.seg(id);
        let (mut head, mut tail, mut bytes) = (id, id, seg.bytes);
        let mut gone = [None, None];
        if self.in_run(offsets, seg.prev, point.lane()) {
            head = self.tag(seg.prev).mate;
            let run = self.tag(head).bytes;
            gone[0] = Some((run, offsets.seg(head).addr, head));
            bytes += run;
        }
        if self.in_run(offsets, seg.next, point.lane()) {
            tail = self.tag(seg.next).mate;
            let run = self.tag(seg.next).bytes;
            gone[1] = Some((run, offsets.seg(seg.next).addr, seg.next));
            bytes += run;
        }
        self.set_in_run(id, true);
        self.set_ends(head, tail, bytes);
        let bin = self.bin_mut(point);
        for run in gone.iter().flatten() {
            bin.runs.remove(run);
        }
        bin.runs.insert((bytes, offsets.seg(head).addr, head));
        bin.watch.insert(point.epoch, id);
    }

    fn leave_run(&mut self, offsets: &Offsets, id: SegId, point: &Point) {
        let seg = offsets.seg(id);
        // Completion mostly eats a run from one of its ends, and from there the head is known.
        let last = !self.in_run(offsets, seg.next, point.lane());
        let mut head = if last { self.tag(id).mate } else { id };
        while self.in_run(offsets, offsets.seg(head).prev, point.lane()) {
            head = offsets.seg(head).prev;
        }
        let Tag {
            mate: tail, bytes, ..
        } = self.tag(head);
        self.set_in_run(id, false);
        let head_addr = offsets.seg(head).addr;
        let before = seg.addr - head_addr;
        debug_assert!(
            before + seg.bytes <= bytes,
            "a run shorter than its segment"
        );
        let after = bytes - before - seg.bytes;
        if before > 0 {
            self.set_ends(head, seg.prev, before);
        }
        if after > 0 {
            self.set_ends(seg.next, tail, after);
        }
        let bin = self.bin_mut(point);
        bin.runs.remove(&(bytes, head_addr, head));
        if before > 0 {
            bin.runs.insert((before, head_addr, head));
        }
        if after > 0 {
            bin.runs.insert((after, seg.end(), seg.next));
        }
    }

    /// Whether `id` is part of a run of `lane`.
    pub fn in_run(&self, offsets: &Offsets, id: SegId, lane: LaneId) -> bool {
        id != NIL
            && self.tag(id).in_run
            && offsets
                .death(id)
                .and_then(Frontier::single)
                .is_some_and(|p| p.lane() == lane)
    }

    fn tag(&self, id: SegId) -> Tag {
        self.tags.get(id as usize).copied().unwrap_or_default()
    }

    fn set_ends(&mut self, head: SegId, tail: SegId, bytes: u64) {
        self.tags[tail as usize].mate = head;
        self.tags[head as usize].mate = tail;
        self.tags[head as usize].bytes = bytes;
    }

    fn set_in_run(&mut self, id: SegId, in_run: bool) {
        self.tag_mut(id).in_run = in_run;
    }

    fn tag_mut(&mut self, id: SegId) -> &mut Tag {
        let id = id as usize;
        if id >= self.tags.len() {
            self.tags.resize(id + 1, Tag::default());
        }
        &mut self.tags[id]
    }
}

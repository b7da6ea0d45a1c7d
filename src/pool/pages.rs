//! Which free pages to gather at a new address.
//!
//! Part of the policy: it reads a [`Store`] and answers with pages.

use super::offsets::{NIL, Seg, SegId, whole_pages};
use super::others::Others;
use super::policy::{Need, cost, place_at};
use super::request::Order;
use super::source::Slab;
use super::store::Store;
use std::collections::BTreeSet;

/// Whole free pages, to become one slab with `fresh` new bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Collection {
    /// Each lies within one stretch of free segments, whose first overlapping one is named.
    pub pieces: Vec<(SegId, Slab)>,
    pub fresh: u64,
}

impl Collection {
    /// Bytes that get another address.
    pub fn moved(&self) -> u64 {
        self.pieces.iter().map(|(_, slab)| slab.bytes).sum()
    }
}

/// The free pages of one size that together make room for a request under its order, those first that
/// fewest others could use; where they do not suffice, with up to `room` bytes of new memory. None if
/// pages cannot help: their addresses do not, in what fits into one, and larger alignments are not
/// theirs to give.
pub(crate) fn collect(
    store: &Store,
    need: &Need,
    order: &Order<'_>,
    others: &Others<'_>,
    room: u64,
    page: u64,
) -> Option<Collection> {
    let whole = in_pages(need, page)?;
    let mut stretches = BTreeSet::new();
    for entry in store.offsets.slabs() {
        if entry.free_bytes >= page && entry.page == page {
            let mut pages = Pages::new(page, &mut stretches);
            for (id, seg) in store.offsets.segs_from(entry.first) {
                let death = seg.death().filter(|death| order.admits(death));
                pages.step(id, seg, death.map(|death| others.after(death)));
            }
            pages.cut();
        }
    }
    let mut pieces = Vec::new();
    let mut lacking = whole;
    while let Some(&(after, ..)) = stretches.first().filter(|_| lacking > 0) {
        // What suffices and is least, else the largest, so that there are few pieces.
        let fit = stretches.range((after, lacking, 0, 0)..=(after, u64::MAX, u64::MAX, NIL));
        let last = || stretches.range(..(after + 1, 0, 0, 0)).next_back();
        let Some(&found) = fit.min().or_else(last) else {
            break;
        };
        stretches.remove(&found);
        let (_, bytes, base, head) = found;
        let bytes = bytes.min(lacking);
        lacking -= bytes;
        let first = place_at(store, head, base).first;
        pieces.push((first, Slab { base, bytes }));
    }
    let useful = !pieces.is_empty() && lacking <= room;
    useful.then_some(Collection {
        pieces: adjacent_as_one(pieces),
        fresh: lacking,
    })
}

/// Neighbours become one piece: their order in the new slab is of no importance.
pub(super) fn adjacent_as_one(mut pieces: Vec<(SegId, Slab)>) -> Vec<(SegId, Slab)> {
    pieces.sort_unstable_by_key(|(_, slab)| slab.base);
    let mut out: Vec<(SegId, Slab)> = Vec::new();
    for (first, slab) in pieces {
        match out.last_mut() {
            Some((_, last)) if last.end() == slab.base => last.bytes += slab.bytes,
            _ => out.push((first, slab)),
        }
    }
    out
}

/// Finds the whole pages of a slab that a request may have: stretches of pages after which equally
/// many others come, by that number, their bytes, where they begin and in or after which segment.
struct Pages<'a> {
    page: u64,
    out: &'a mut BTreeSet<(u64, u64, u64, SegId)>,
    /// Adjacent segments, where each ends and how many others come after it.
    segs: Vec<(u64, u64)>,
    head: SegId,
    from: u64,
}

impl<'a> Pages<'a> {
    fn new(page: u64, out: &'a mut BTreeSet<(u64, u64, u64, SegId)>) -> Self {
        Self {
            page,
            out,
            segs: Vec::new(),
            head: NIL,
            from: 0,
        }
    }

    /// The next segment, and how many others come after it if it may be had.
    fn step(&mut self, id: SegId, seg: &Seg, after: Option<u64>) {
        let Some(after) = after else {
            self.cut();
            return;
        };
        match self.segs.last_mut() {
            Some((end, last)) if *last == after => *end = seg.end(),
            Some(_) => self.segs.push((seg.end(), after)),
            None => {
                (self.head, self.from) = (id, seg.addr);
                self.segs.push((seg.end(), after));
            }
        }
    }

    /// Ends a stretch of segments. A page with parts of several counts as the one that most come after.
    fn cut(&mut self) {
        let end = self.segs.last().map_or(self.from, |(end, _)| *end);
        let Some(whole) = whole_pages(self.from, end, self.page) else {
            self.segs.clear();
            return;
        };
        let mut run: Option<(u64, u64)> = None;
        let mut segs = self.segs.drain(..).peekable();
        let mut base = whole.base;
        while base < whole.end() {
            while segs.next_if(|(end, _)| *end <= base).is_some() {}
            let Some(&(end, mut after)) = segs.peek() else {
                break;
            };
            // The pages within this segment, or the one that it ends in.
            let mut to = end.min(whole.end()) / self.page * self.page;
            if to == base {
                to = base + self.page;
                while segs.peek().is_some_and(|(end, _)| *end < to) {
                    after = segs.next().map_or(after, |(_, other)| after.max(other));
                }
                after = segs.peek().map_or(after, |(_, other)| after.max(*other));
            }
            match run {
                Some((same, _)) if same == after => {}
                _ => {
                    if let Some((after, from)) = run {
                        self.out.insert((after, base - from, from, self.head));
                    }
                    run = Some((after, base));
                }
            }
            base = to;
        }
        if let Some((after, from)) = run {
            let bytes = whole.end() - from;
            self.out.insert((after, bytes, from, self.head));
        }
        drop(segs);
        self.segs.clear();
    }
}

/// The same with pages that have to be waited for, those first whose wait is least, and with as much
/// new memory as there is `room` for.
pub(crate) fn collect_pending(
    store: &Store,
    need: &Need,
    order: &Order<'_>,
    room: u64,
    page: u64,
) -> Option<Collection> {
    let whole = in_pages(need, page)?;
    let mut free = Vec::new();
    for entry in store.offsets.slabs() {
        if entry.free_bytes < page || entry.page != page {
            continue;
        }
        for base in (entry.slab.base..entry.slab.end()).step_by(page as usize) {
            let place = place_at(store, entry.first, base);
            let (first, slab) = (place.first, Slab { base, bytes: page });
            let one = Need {
                bytes: page,
                align: 1,
                ..*need
            };
            if let Some((lanes, outstanding, _)) = cost(store, place, &one, order) {
                free.push((lanes, outstanding, base, first, slab));
            }
        }
    }
    free.sort_unstable_by_key(|(lanes, outstanding, base, ..)| (*lanes, *outstanding, *base));
    free.truncate((whole / page) as usize);
    let fresh = whole - free.len() as u64 * page;
    let pieces = free.into_iter().map(|(.., first, slab)| (first, slab));
    let pieces = adjacent_as_one(pieces.collect());
    let useful = !pieces.is_empty() && fresh <= room;
    useful.then_some(Collection { pieces, fresh })
}

/// The request in whole pages of this size, where collecting them can help.
fn in_pages(need: &Need, page: u64) -> Option<u64> {
    let whole = need.bytes.checked_next_multiple_of(page)?;
    (need.bytes > page && need.align <= page).then_some(whole)
}

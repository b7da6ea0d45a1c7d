//! Plans: how one gets its memory, and what becomes of that when it ends.
//!
//! All blocks of a plan together are some ranges of memory, at their present addresses held in the
//! store as if live. When the plan ends, each part is free with the death of what was there last, or
//! live as the block that is there now. A live block whose memory has left its address is a stray: no
//! stash has it, its memory stays where it is until it is freed.

use crate::pool::cache::Stash;
use crate::pool::cache::table::{Borrower, Lending, put_back};
use crate::pool::heap::Store;
use crate::pool::heap::segments::SegId;
use crate::pool::replay::{Held, NEVER, Plan, Planned, Record, Track, extent, ranges, union};
use crate::pool::request::{Block, Order, Request};
use crate::pool::source::Slab;
use crate::timeline::Frontier;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A live block that lies elsewhere than its address says.
#[derive(Debug)]
pub(super) struct Stray {
    pub block: Block,
    pub segs: Vec<SegId>,
}

impl Lending {
    /// Before a request is served that the lane's stash did not serve: ends its plan, or makes one. True
    /// if the stash may serve now.
    pub fn turn(&mut self, store: &mut Store, stash: &Arc<Stash>, request: &Request<'_>) -> bool {
        let inner = stash.lock();
        let slot = inner.cache(self.key).map(|cache| cache.slot as usize);
        let (tracked, planned) = (inner.is_tracked(self.key), inner.has_plan(self.key));
        drop(inner);
        if let Some(slot) = slot.filter(|_| planned) {
            self.end_plan(store, slot);
        }
        tracked && !planned && self.plan(store, stash, &request.order, Some(request.bytes))
    }

    /// Makes a plan if the lane is where it was, and looks at it closely if there is time, which is if
    /// there is no request. True if the stash may serve now.
    pub fn plan(
        &mut self,
        store: &mut Store,
        stash: &Arc<Stash>,
        order: &Order<'_>,
        requested: Option<u64>,
    ) -> bool {
        if order.own_lane() != Some(stash.lane()) {
            return false;
        }
        match requested {
            Some(bytes) => self.join(store, stash, bytes),
            None if self.end_lap() => return false,
            None => {}
        }
        // The stash is locked for as short as can be: others may want to know what it has.
        let mut inner = stash.lock();
        let due = |record: &Record| record.again().is_some();
        let Some(record) = inner.begin_turn(self.key, due) else {
            return false;
        };
        inner.recall(self.key, 0, &mut self.back);
        drop(inner);
        put_back(store, stash, self.back.drain(..));
        let mut track = self.make_plan(store, record, order);
        let made = match &mut track {
            Track::Plan(plan) => {
                if requested.is_none() {
                    plan.study();
                }
                true
            }
            Track::Record(_) | Track::Turning(_) | Track::Joint(_) => false,
        };
        let late = stash.lock().end_turn(self.key, track);
        if let Some(plan) = late {
            self.settle_plan(store, stash, plan);
            return false;
        }
        self.plans += usize::from(made);
        self.made += u64::from(made);
        made
    }

    /// If not all the memory is free, no more than the record.
    fn make_plan(&self, store: &mut Store, mut record: Record, order: &Order<'_>) -> Track {
        let again = record.again().unwrap_or_default();
        let memory = self.memory_of(again.iter().map(|planned| &planned.block));
        match hold(store, &memory, order) {
            Some(held) => Track::Plan(Plan::new(record, held)),
            None => {
                record.refuse();
                Track::Record(record)
            }
        }
    }

    /// All that some blocks had, where it is now.
    pub(super) fn memory_of<'a>(&self, blocks: impl Iterator<Item = &'a Block>) -> Vec<Slab> {
        let mut now = Vec::new();
        for slab in ranges(blocks) {
            self.aliases.resolve(slab, &mut now);
        }
        // By way of several addresses some memory may be there twice.
        union(now)
    }

    /// What a plan has, and what became of it, is the store's again. False if there is none.
    pub(super) fn end_plan(&mut self, store: &mut Store, slot: usize) -> bool {
        let own = self.stashes.get(slot).filter(|_| self.plans > 0);
        let Some(stash) = own.map(|own| Arc::clone(&own.stash)) else {
            return false;
        };
        let Some(plan) = stash.lock().end_plan(self.key) else {
            return false;
        };
        self.plans -= 1;
        self.settle_plan(store, &stash, plan);
        true
    }

    fn settle_plan(&mut self, store: &mut Store, stash: &Arc<Stash>, plan: Plan) {
        let lent = stash.lock().cache(self.key).map(|cache| cache.slot);
        let died = |planned: &Planned| {
            // What has completed died alike.
            match stash.is_complete(planned.epoch) {
                true => 0,
                false => planned.epoch,
            }
        };
        let death = |epoch| stash.death(epoch);
        let (mut strays, mut kept) = (0, Vec::new());
        for (block, segs) in self.give_back(store, &plan, died, death) {
            match (&segs[..], lent) {
                ([seg], Some(slot)) if store.segments.seg(*seg).addr == block.addr => {
                    store.segments.set_live(*seg, block.requested, slot);
                    kept.push((block, *seg));
                }
                _ => {
                    strays += block.bytes;
                    self.strays.insert(block.addr, Stray { block, segs });
                }
            }
        }
        self.meter.part(stash, strays, |inner| {
            inner.part(self.key, strays);
            for (block, seg) in &kept {
                inner.keep(self.key, block, *seg);
            }
        });
        let died = plan.blocks.iter().map(|own| own.epoch);
        let last = died.filter(|epoch| *epoch != NEVER).max();
        let mut last = last.map_or_else(Frontier::new, |epoch| stash.death(epoch));
        for (_, death) in &plan.elsewhere {
            last.join(death);
        }
        self.left_behind(&last);
    }

    /// A plan's memory is the store's again. Its live blocks, and where each lies.
    pub(super) fn give_back(
        &self,
        store: &mut Store,
        plan: &Plan,
        died: impl Fn(&Planned) -> u64,
        death: impl Fn(u64) -> Frontier,
    ) -> Vec<(Block, Vec<SegId>)> {
        let canvas = self.paint(plan, died);
        let mut segs: BTreeMap<usize, Vec<SegId>> = BTreeMap::new();
        for held in &plan.held {
            let painted = canvas.read(held.slab);
            let part = |(bytes, paint): &(u64, Paint)| {
                let death = match *paint {
                    Paint::Before(at, part) => Some(plan.held[at].parts[part].1.clone()),
                    Paint::Here(epoch) => Some(death(epoch)),
                    Paint::Elsewhere(at) => Some(plan.elsewhere[at].1.clone()),
                    Paint::Live(_) => None,
                };
                (*bytes, death)
            };
            let ids = store.divide(held.seg, painted.iter().map(part).collect());
            for ((_, paint), id) in painted.iter().zip(ids) {
                if let Paint::Live(index) = *paint {
                    segs.entry(index).or_default().push(id);
                }
            }
        }
        let live = segs.into_iter();
        live.map(|(index, segs)| (plan.blocks[index].block, segs))
            .collect()
    }

    /// What each part of a plan's memory was last: from the last on, as the first paint stays.
    fn paint(&self, plan: &Plan, died: impl Fn(&Planned) -> u64) -> Canvas {
        let mut canvas = Canvas::new(plan.held.iter().map(|held| held.slab));
        let mut parts = Vec::new();
        let mut cover = |canvas: &mut Canvas, block: &Block, paint| {
            parts.clear();
            self.aliases.resolve(extent(block), &mut parts);
            parts.iter().for_each(|part| canvas.paint(*part, paint));
        };
        for (index, planned) in plan.blocks.iter().enumerate() {
            if planned.live {
                cover(&mut canvas, &planned.block, Paint::Live(index));
            }
        }
        for (at, (index, _)) in plan.elsewhere.iter().enumerate().rev() {
            cover(
                &mut canvas,
                &plan.blocks[*index].block,
                Paint::Elsewhere(at),
            );
        }
        let dead = plan.blocks.iter().filter(|own| own.epoch != NEVER);
        let mut dead: Vec<&Planned> = dead.collect();
        dead.sort_unstable_by_key(|own| Reverse(own.epoch));
        for own in dead {
            if canvas.is_full() {
                break;
            }
            cover(&mut canvas, &own.block, Paint::Here(died(own)));
        }
        for (at, held) in plan.held.iter().enumerate() {
            let mut base = held.slab.base;
            for (part, (bytes, _)) in held.parts.iter().enumerate() {
                let bytes = *bytes;
                canvas.paint(Slab { base, bytes }, Paint::Before(at, part));
                base += bytes;
            }
        }
        canvas
    }

    /// Old addresses were in use again, until `last`.
    pub(super) fn left_behind(&mut self, last: &Frontier) {
        if !last.is_empty() {
            let everywhere = Slab {
                base: 0,
                bytes: u64::MAX,
            };
            self.aliases.extend_use(everywhere, last);
        }
    }

    /// Ends the stray or the plan's block that starts at an address.
    pub(super) fn release_far(
        &mut self,
        store: &mut Store,
        addr: u64,
        death: &Frontier,
    ) -> Option<Block> {
        if let Some(block) = self.release_jointly(addr, death) {
            return Some(block);
        }
        if let Some(Stray { block, segs }) = self.strays.remove(&addr) {
            self.meter.put(block.bytes);
            self.aliases.extend_use(extent(&block), death);
            for seg in segs {
                store.free_at(seg, death.clone());
            }
            return Some(block);
        }
        if self.plans == 0 {
            return None;
        }
        let mut stashes = self.stashes.iter();
        stashes.find_map(|own| own.stash.lock().drop_planned(self.key, addr, death))
    }

    /// The stray or the plan's block that holds an address.
    pub(super) fn look_far(&self, addr: u64) -> Option<Block> {
        let stray = self.strays.range(..=addr).next_back();
        let stray = stray.map(|(_, stray)| stray.block);
        if let Some(block) = stray.filter(|block| addr - block.addr < block.bytes) {
            return Some(block);
        }
        if let Some(block) = self.look_joint(addr) {
            return Some(block);
        }
        if self.plans == 0 {
            return None;
        }
        let mut stashes = self.stashes.iter();
        stashes.find_map(|own| own.stash.lock().planned_around(self.key, addr))
    }

    /// Old addresses that can be given back. Those that records and plans name stay while there are any,
    /// up to `most` bytes of them.
    pub fn expired(&mut self, store: &mut Store, most: u64) -> Vec<Slab> {
        self.aliases.expire();
        let tracked = |own: &Borrower| own.stash.lock().is_tracked(self.key);
        if self.aliases.kept_bytes() <= most && self.stashes.iter().any(tracked) {
            return Vec::new();
        }
        self.forget_tracks(store);
        self.aliases.expire();
        let strays = &self.strays;
        self.aliases.take_unused(|slab| {
            let before = strays.range(..slab.end()).next_back();
            before.is_some_and(|(_, stray)| extent(&stray.block).end() > slab.base)
        })
    }

    /// Ends all plans, and what might become one.
    pub fn forget_tracks(&mut self, store: &mut Store) {
        self.forget_joint(store);
        let mut next = 0;
        while let Some(slot) = self.stashes.from(next) {
            next = slot + 1;
            self.end_plan(store, slot);
            if let Some(own) = self.stashes.get(slot) {
                own.stash.lock().forget_record(self.key);
            }
        }
    }
}

/// Takes memory out for a plan, if all of it is free and ordered.
pub(super) fn hold(store: &mut Store, memory: &[Slab], order: &Order<'_>) -> Option<Vec<Held>> {
    let places = store.all_free(memory, order)?;
    // From the last one on, as their names want it.
    let held = places.into_iter().rev().map(|(place, slab, parts)| Held {
        slab,
        seg: store.hold(place, slab.bytes),
        parts,
    });
    Some(held.collect())
}

/// What a part of a plan's memory was last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Paint {
    /// What it was before the plan: which part of what is held.
    Before(usize, usize),
    /// Freed on the plan's lane, at an epoch.
    Here(u64),
    /// Freed elsewhere: which of those.
    Elsewhere(usize),
    /// A block, which is live.
    Live(usize),
}

/// Ranges that are painted once.
struct Canvas {
    /// Where each starts and ends.
    bare: BTreeMap<u64, u64>,
    painted: BTreeMap<u64, (u64, Paint)>,
}

impl Canvas {
    fn new(slabs: impl Iterator<Item = Slab>) -> Self {
        Self {
            bare: slabs.map(|slab| (slab.base, slab.end())).collect(),
            painted: BTreeMap::new(),
        }
    }

    fn is_full(&self) -> bool {
        self.bare.is_empty()
    }

    /// Paints what is bare of a range.
    fn paint(&mut self, slab: Slab, paint: Paint) {
        let before = self.bare.range(..=slab.base).next_back();
        let mut from = match before {
            Some((base, end)) if *end > slab.base => *base,
            _ => slab.base,
        };
        while let Some((base, end)) = self.bare.range(from..slab.end()).next() {
            let (base, end) = (*base, *end);
            self.bare.remove(&base);
            if base < slab.base {
                self.bare.insert(base, slab.base);
            }
            if end > slab.end() {
                self.bare.insert(slab.end(), end);
            }
            let part = (base.max(slab.base), end.min(slab.end()));
            self.painted.insert(part.0, (part.1, paint));
            from = part.1;
        }
    }

    /// What was painted in a range: bytes of each, ascending.
    fn read(&self, slab: Slab) -> Vec<(u64, Paint)> {
        let mut out: Vec<(u64, Paint)> = Vec::new();
        for (base, (end, paint)) in self.painted.range(slab.base..slab.end()) {
            match out.last_mut() {
                Some((bytes, last)) if last == paint => *bytes += end - base,
                _ => out.push((end - base, *paint)),
            }
        }
        out
    }
}

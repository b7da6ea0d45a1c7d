//! The transitive closure: which commands come before what, and what was observed complete.
//!
//! Deliberately naive, and deliberately without a notion of frontier. Two closures are kept.
//! *Enforced* is everything that physically comes before; reuse is legal only by it. *Known* leaves
//! out what is implied only by what an inserted wait happened to have waited for itself: the pool
//! answers with points, not with their past, so it is not asked to know that.

use super::fake::Extent;
use super::script::QueueName;
use crate::pool::Slab;
use crate::timeline::{Frontier, LaneId};
use std::collections::{BTreeMap, HashMap};

/// A set of commands.
#[derive(Clone, Debug, Default)]
pub(super) struct Set(Vec<u64>);

impl Set {
    fn insert(&mut self, item: usize) {
        let word = item / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (item % 64);
    }

    fn unite(&mut self, other: &Set) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0
            .iter_mut()
            .zip(&other.0)
            .for_each(|(own, new)| *own |= new);
    }

    /// Whether everything in it is in one of the two.
    fn within(&self, a: &Set, b: &Set) -> bool {
        let word = |set: &Set, at: usize| set.0.get(at).copied().unwrap_or(0);
        self.0
            .iter()
            .enumerate()
            .all(|(at, own)| own & !word(a, at) & !word(b, at) == 0)
    }
}

/// The commands before a moment of the program.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    known: Set,
    enforced: Set,
}

impl Past {
    pub fn join(&mut self, other: &Past) {
        self.known.unite(&other.known);
        self.enforced.unite(&other.enforced);
    }

    fn add(&mut self, command: usize) {
        self.known.insert(command);
        self.enforced.insert(command);
    }
}

/// Which of the two closures a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Known,
    Enforced,
}

#[derive(Debug, Default)]
struct Queue {
    /// In order: everything before the next command. Out of order: what a barrier put before it.
    before: Past,
    all: Past,
}

/// The commands of a lane, each with its past, itself included.
#[derive(Debug, Default)]
struct LanePast(Vec<(usize, Past)>);

#[derive(Debug)]
pub(super) struct Range {
    pub step: usize,
    pub addr: u64,
    pub end: u64,
    /// The memory that it is, as numbered: where each part starts, and its bytes.
    pub memory: Vec<(u64, u64)>,
    /// When dead, what came before the end; when live, what has to.
    pub past: Past,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    commands: usize,
    done: Past,
    queues: HashMap<QueueName, Queue>,
    lanes: HashMap<LaneId, LanePast>,
    pub live: BTreeMap<u64, Range>,
    pub dead: Vec<Range>,
}

impl Model {
    /// What comes before a new command of `queue` that waits for `after`.
    pub fn before<'a>(&self, queue: QueueName, after: impl Iterator<Item = &'a Past>) -> Past {
        let mut past = self
            .queues
            .get(&queue)
            .map(|q| q.before.clone())
            .unwrap_or_default();
        after.for_each(|other| past.join(other));
        past
    }

    /// Puts a command on a lane. Returns its past, itself included.
    pub fn command(&mut self, queue: QueueName, lane: LaneId, mut past: Past) -> Past {
        let on_lane = self.lanes.entry(lane).or_default();
        if let Some((_, last)) = on_lane.0.last() {
            past.join(last);
        }
        past.add(self.commands);
        on_lane.0.push((self.commands, past.clone()));
        self.commands += 1;
        self.passed(queue, &past);
        past
    }

    /// Something of this past was enqueued that is no command.
    pub fn passed(&mut self, queue: QueueName, past: &Past) {
        let entry = self.queues.entry(queue).or_default();
        entry.all.join(past);
        if matches!(queue, QueueName::InOrder(_)) {
            entry.before.join(past);
        }
    }

    /// Everything on the queue so far; with `fence`, also before everything later.
    pub fn all_of(&mut self, queue: QueueName, fence: bool, past: &Past) -> Past {
        let entry = self.queues.entry(queue).or_default();
        entry.all.join(past);
        let all = entry.all.clone();
        if fence {
            entry.before.join(&all);
        }
        all
    }

    pub fn everything(&self) -> Past {
        let mut past = Past::default();
        (0..self.commands).for_each(|command| past.add(command));
        past
    }

    /// `past` is made to wait for the points of `frontier` too.
    pub fn wait(&self, past: &mut Past, frontier: &Frontier) -> Result<(), String> {
        for point in frontier.points() {
            let lane = self
                .lanes
                .get(&point.lane())
                .ok_or("a wait for an unknown lane")?;
            let reach = lane
                .0
                .get(..point.epoch as usize)
                .ok_or("a wait for what was never sent")?;
            for (command, whole) in reach {
                past.known.insert(*command);
                past.enforced.unite(&whole.enforced);
            }
        }
        Ok(())
    }

    pub fn complete(&mut self, past: &Past) {
        self.done.join(past);
        let done = &self.done;
        self.dead.retain(|range| {
            let known = range.past.known.within(&done.known, &done.known);
            !(known && range.past.enforced.within(&done.enforced, &done.enforced))
        });
    }

    /// Whether all of `past` comes before `now`, or is complete.
    pub fn precedes(&self, past: &Past, now: &Past, by: By) -> bool {
        match by {
            By::Known => past.known.within(&now.known, &self.done.known),
            By::Enforced => past.enforced.within(&now.enforced, &self.done.enforced),
        }
    }

    pub fn is_done(&self, past: &Past, by: By) -> bool {
        self.precedes(past, &Past::default(), by)
    }

    /// Whether an extent has nothing live and nothing dead that is not complete.
    pub fn is_idle(&self, extent: &Extent, by: By) -> bool {
        let done = |range: &Range| self.is_done(&range.past, by);
        !self.is_used(extent, done)
    }

    /// Whether something live lies in an extent, or something dead that is not `usable`.
    fn is_used(&self, extent: &Extent, usable: impl Fn(&Range) -> bool) -> bool {
        self.live.values().any(|range| range.meets(extent))
            || self
                .dead
                .iter()
                .any(|range| range.meets(extent) && !usable(range))
    }

    /// Bytes of the extents in which nothing is live and everything dead is `usable`.
    pub fn unused(&self, extents: &[Extent], usable: impl Fn(&Range) -> bool) -> u64 {
        let unused = extents
            .iter()
            .filter(|extent| !self.is_used(extent, &usable));
        unused.map(|extent| extent.bytes).sum()
    }

    /// Whether some stretch of memory takes `bytes` at `align` without touching a live block or a
    /// dead one that is not `usable`.
    pub fn fits(
        &self,
        place: &Places<'_>,
        unit: u64,
        (bytes, align): (u64, u64),
        usable: impl Fn(&Range) -> bool,
    ) -> bool {
        let align = align.max(unit);
        let dead = self.dead.iter().filter(|range| !usable(range));
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for range in self.live.values().chain(dead) {
            for extent in place.extents.iter().filter(|extent| range.meets(extent)) {
                for (start, bytes) in &range.memory {
                    let from = (*start).max(extent.number);
                    let to = (start + bytes).min(extent.number + extent.bytes);
                    if from < to {
                        let at = extent.addr + (from - extent.number);
                        taken.push((at, at + (to - from)));
                    }
                }
            }
        }
        taken.sort_unstable();
        place.slabs.iter().any(|slab| {
            let end = (slab.base + slab.bytes) / unit * unit;
            let mut at = slab.base.next_multiple_of(align);
            for (from, to) in taken
                .iter()
                .filter(|(from, to)| *to > slab.base && *from < end)
            {
                if at + bytes <= *from {
                    return true;
                }
                at = at.max(to.next_multiple_of(align));
            }
            at + bytes <= end
        })
    }
}

/// Where memory is: what touches, and what could leave alone.
#[derive(Clone, Debug)]
pub(super) struct Places<'a> {
    pub slabs: &'a [Slab],
    pub extents: &'a [Extent],
}

impl Range {
    fn meets(&self, extent: &Extent) -> bool {
        let end = extent.number + extent.bytes;
        let meets = |(start, bytes): &(u64, u64)| *start < end && start + bytes > extent.number;
        self.memory.iter().any(meets)
    }

    /// Whether the two are partly the same memory.
    pub fn shares(&self, memory: &[(u64, u64)]) -> bool {
        let meets = |a: &(u64, u64), b: &(u64, u64)| a.0 < b.0 + b.1 && b.0 < a.0 + a.1;
        let own = |other| self.memory.iter().any(|part| meets(part, other));
        memory.iter().any(own)
    }
}

//! The plan of several lanes together: how it comes about, serves and ends.

use crate::pool::cache::table::replay::{Stray, hold};
use crate::pool::cache::table::{Lending, put_back};
use crate::pool::cache::{Miss, Stash};
use crate::pool::heap::Store;
use crate::pool::heap::segments::NIL;
use crate::pool::replay::{
    Joint, Lap, NEVER, Patience, Planned, Record, Seat, Shared, extent, is_shared, union,
};
use crate::pool::request::{Block, Order, Request, Reuse};
use crate::pool::source::Slab;
use crate::pool::stats::Counters;
use crate::timeline::sync::Brief;
use crate::timeline::{Frontier, LaneId};
use std::collections::HashMap;
use std::sync::Arc;

/// Lanes that have a plan together, and the plan.
#[derive(Debug)]
pub(super) struct Ensemble {
    joint: Shared,
    stashes: Vec<Arc<Stash>>,
}

impl Ensemble {
    /// Where a lane is among them.
    fn place(&self, stash: &Stash) -> Option<u32> {
        let lane = stash.lane();
        let at = self.stashes.iter().position(|own| own.lane() == lane)?;
        Some(at as u32)
    }
}

/// A plan that lanes may have together, if they begin again.
#[derive(Debug)]
pub(super) struct Prepared {
    joint: Joint,
    stashes: Vec<Arc<Stash>>,
    /// How the lap of each began.
    starts: Vec<(u64, u64)>,
    /// All that they had in it.
    memory: Vec<Slab>,
}

/// Whether lanes may have the same memory in turn: what is complete is anybody's, and who had it before
/// is not known.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Who was last to get what its stash did not have, and whether others did in this lap.
    last: Option<LaneId>,
    several: bool,
    /// Each had its own in the lap before.
    apart: bool,
}

impl Turns {
    /// A lane gets what its stash did not have: whether others may have had it, if it is complete.
    fn take(&mut self, lane: LaneId) -> bool {
        self.several |= self.last.replace(lane).is_some_and(|last| last != lane);
        self.several && !self.apart
    }

    /// All lanes have ended a lap.
    fn end(&mut self) {
        (self.last, self.several) = (None, false);
    }

    /// What one had is another's.
    pub fn meet(&mut self) {
        self.apart = false;
    }
}

impl Lending {
    /// The block that comes next in the joint plan, if this is the request for it; if the lane has a part
    /// in one and it is not, that ends.
    pub fn take_joint(
        &mut self,
        store: &mut Store,
        stash: &Arc<Stash>,
        request: &Request<'_>,
    ) -> Option<(Block, Reuse)> {
        let ensemble = self.ensemble.as_ref()?;
        let place = ensemble.place(stash)?;
        let order = &request.order;
        let own = request.align <= 1 && order.own_lane() == Some(stash.lane());
        let joint = &ensemble.joint;
        let take = || joint.lock().take(place, request.bytes, Some(order));
        let mut taken = if own { take() } else { Err(Miss::NoBlock) };
        if let Err(Miss::NoCredit(_)) = taken {
            self.meter.raise(joint);
            taken = take();
        }
        match taken {
            Ok((block, _, reuse)) => Some((block, reuse)),
            Err(_) => {
                self.end_joint(store);
                None
            }
        }
    }

    /// Notes what a lane got that its stash did not have.
    pub fn got(&mut self, stash: &Stash, reuse: Reuse) {
        if self.options.shared_replay
            && self.turns.take(stash.lane())
            && reuse == Reuse::Completed
            && let Some(record) = stash.lock().record_mut(self.key)
        {
            record.shares();
        }
    }

    /// Notes that all lanes have ended a lap, if nothing is live of what they did in it, and prepares a
    /// plan of it. True if they had the same memory in turn, which no plan of one lane can give them again.
    pub(super) fn end_lap(&mut self) -> bool {
        if self.ensemble.is_some() {
            return false;
        }
        let (mut shared, mut ops, mut ended) = (0, 0, true);
        let mut records = self.stashes.iter().map(|own| own.stash.lock());
        let at_rest = records.all(|own| {
            own.record(self.key).is_none_or(|record| {
                shared += record.shared();
                ops += record.lap_ops();
                ended &= record.is_ended();
                record.is_at_rest()
            })
        });
        drop(records);
        if !at_rest || ended {
            return at_rest && self.prepared.is_some();
        }
        self.prepared = None;
        self.turns.end();
        let waits = !is_shared(shared, ops) || self.patience.waits();
        let (mut stashes, mut laps) = (Vec::new(), Vec::new());
        for own in self.stashes.iter() {
            let mut inner = own.stash.lock();
            let Some(record) = inner.record_mut(self.key) else {
                continue;
            };
            record.end_lap();
            if let Some(lap) = record.lap().filter(|_| !waits) {
                stashes.push(Arc::clone(&own.stash));
                laps.push(lap);
            }
        }
        if laps.len() < 2 {
            return false;
        }
        self.prepared = self.prepare(stashes, &laps);
        self.prepared.is_some()
    }

    /// None if each lane has memory of its own.
    fn prepare(&mut self, stashes: Vec<Arc<Stash>>, laps: &[Lap]) -> Option<Prepared> {
        let mut memory = Vec::new();
        for lap in laps {
            memory.append(&mut self.memory_of(lap.blocks.iter()));
        }
        let bytes = |slabs: &[Slab]| slabs.iter().map(|slab| slab.bytes).sum::<u64>();
        let of_each = bytes(&memory);
        let memory = union(memory);
        if bytes(&memory) == of_each {
            self.turns.apart = true;
            return None;
        }
        let find =
            |block: &Block, slabs: &mut Vec<Slab>| self.aliases.resolve(extent(block), slabs);
        let lanes = stashes.iter().map(|own| Arc::clone(own.clock())).collect();
        Some(Prepared {
            starts: laps.iter().map(Lap::start).collect(),
            joint: Joint::new(lanes, laps, find),
            stashes,
            memory,
        })
    }

    /// Whether a prepared plan begins with such a request.
    pub fn may_join(&self, stash: &Stash, requested: u64) -> bool {
        let prepared = self.prepared.as_ref();
        prepared.is_some_and(|prepared| prepared.begins(stash, requested))
    }

    /// The prepared plan is what lanes have from now on, if a request begins it and nobody did anything
    /// since.
    pub(super) fn join(&mut self, store: &mut Store, stash: &Arc<Stash>, requested: u64) {
        let Some(prepared) = self.prepared.take() else {
            return;
        };
        if !prepared.begins(stash, requested) {
            self.patience.learn(false);
            return;
        }
        let Prepared {
            mut joint,
            stashes,
            starts,
            memory,
        } = prepared;
        let mut records = Vec::with_capacity(starts.len());
        for (own, start) in stashes.iter().zip(&starts) {
            let mut inner = own.lock();
            let same = |record: &Record| record.lap_start() == Some(*start);
            records.push(inner.begin_turn(self.key, same));
            inner.recall(self.key, 0, &mut self.back);
            drop(inner);
            put_back(store, own, self.back.drain(..));
        }
        // All of it is to be complete: then whoever is first, nobody has to wait.
        let all = records.iter().all(Option::is_some);
        let held = all.then(|| hold(store, &memory, &Order::Sync)).flatten();
        let Some(held) = held else {
            self.patience.learn(false);
            for (own, record) in stashes.iter().zip(records) {
                if let Some(record) = record {
                    own.lock().resume(self.key, record);
                }
            }
            return;
        };
        joint.plan.held = held;
        let joint = Arc::new(Brief::new(joint));
        self.meter.join(&joint);
        let seats = (0..).map(|place| Seat {
            joint: Arc::clone(&joint),
            place,
        });
        let late = stashes.iter().zip(seats);
        let late = late.filter(|(own, seat)| !own.lock().join(self.key, seat.clone()));
        let late = late.count();
        self.joined += 1;
        self.ensemble = Some(Ensemble { joint, stashes });
        if late > 0 {
            self.end_joint(store);
        }
    }

    /// What a joint plan has, and what became of it, is the store's again. False if there is none.
    pub fn end_joint(&mut self, store: &mut Store) -> bool {
        let Some(Ensemble { joint, stashes }) = self.ensemble.take() else {
            return false;
        };
        for own in &stashes {
            own.lock().leave(self.key);
        }
        // Nobody else has it any more.
        self.meter.leave(&joint);
        let joint = joint.lock();
        self.patience.learn(joint.plan.has_served());
        self.served += joint.served;
        let mut deaths = HashMap::new();
        let mut last = Frontier::new();
        for (nth, own) in (0..).zip(&joint.plan.blocks) {
            let death = joint.death(nth);
            if own.epoch != NEVER && !death.is_empty() {
                last.join(&death);
                deaths.insert(own.epoch, death);
            }
        }
        // What has completed died alike.
        let died = |own: &Planned| match deaths.contains_key(&own.epoch) {
            true => own.epoch,
            false => NEVER,
        };
        let death = |free| deaths.get(&free).cloned().unwrap_or_default();
        for (block, segs) in self.give_back(store, &joint.plan, died, death) {
            match &segs[..] {
                [seg] if store.segments.seg(*seg).addr == block.addr => {
                    store.segments.set_live(*seg, block.requested, NIL);
                }
                _ => {
                    self.strays.insert(block.addr, Stray { block, segs });
                }
            }
        }
        self.left_behind(&last);
        true
    }

    /// Ends the joint plan, and forgets what might become one and how those before fared.
    pub(super) fn forget_joint(&mut self, store: &mut Store) {
        self.end_joint(store);
        self.prepared = None;
        self.patience = Patience::default();
        self.turns = Turns::default();
    }

    /// Whether a lane has a part in the joint plan.
    pub(super) fn is_joined(&self, stash: &Stash) -> bool {
        let ensemble = self.ensemble.as_ref();
        ensemble.is_some_and(|ensemble| ensemble.place(stash).is_some())
    }

    /// Frees the joint plan's live block that starts at an address.
    pub(super) fn release_jointly(&mut self, addr: u64, death: &Frontier) -> Option<Block> {
        let mut joint = self.ensemble.as_ref()?.joint.lock();
        joint.put_until(addr, death)
    }

    /// The joint plan's live block that holds an address.
    pub(super) fn look_joint(&self, addr: u64) -> Option<Block> {
        let joint = self.ensemble.as_ref()?.joint.lock();
        joint.plan.around(addr)
    }

    /// What the joint plan has counted.
    pub(super) fn served_jointly(&self) -> Counters {
        let ensemble = self.ensemble.as_ref();
        ensemble.map_or_else(Counters::default, |ensemble| ensemble.joint.lock().served)
    }
}

impl Prepared {
    /// Whether it begins with such a request of that lane.
    fn begins(&self, stash: &Stash, requested: u64) -> bool {
        let next = self.joint.next();
        next.is_some_and(|(place, bytes)| {
            self.stashes[place as usize].lane() == stash.lane() && bytes == requested
        })
    }
}

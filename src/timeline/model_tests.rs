//! Frontiers and lanes against plain maps from lanes to epochs, over random programs.

use super::{Clock, Frontier, Lane, Point};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

type Map = BTreeMap<usize, u64>;

/// More than a search compares one by one.
const LANES: usize = 96;
const SLOTS: usize = 6;

#[derive(Clone, Debug)]
enum Step {
    /// A lane's next command.
    Run(usize),
    Leap(usize, u64),
    /// A lane waits for a slot's frontier.
    Wait(usize, usize),
    /// A lane's frontier goes into a slot.
    Put(usize, usize),
    /// A lane's last point alone goes into a slot.
    PutPoint(usize, usize),
    PutTip(usize, usize),
    Join(usize, usize),
    Missing(usize, usize, usize),
    Retain(usize, usize),
    Prune(usize),
    Complete(usize, u64),
    /// Nothing of the lane is left, and nothing more will come.
    End(usize),
}

fn step() -> impl Strategy<Value = Step> {
    // Mostly a few lanes, which keep meeting.
    let lane = || prop_oneof![6 => 0..5_usize, 1 => 0..LANES];
    let slot = || 0..SLOTS;
    prop_oneof![
        6 => lane().prop_map(Step::Run),
        2 => (lane(), 1..100_000_u64).prop_map(|(l, n)| Step::Leap(l, n)),
        8 => (lane(), slot()).prop_map(|(l, s)| Step::Wait(l, s)),
        6 => (lane(), slot()).prop_map(|(l, s)| Step::Put(l, s)),
        2 => (lane(), slot()).prop_map(|(l, s)| Step::PutPoint(l, s)),
        1 => (lane(), slot()).prop_map(|(l, s)| Step::PutTip(l, s)),
        3 => (slot(), slot()).prop_map(|(a, b)| Step::Join(a, b)),
        1 => (slot(), slot(), slot()).prop_map(|(a, b, c)| Step::Missing(a, b, c)),
        1 => (slot(), 2..4_usize).prop_map(|(s, n)| Step::Retain(s, n)),
        1 => slot().prop_map(Step::Prune),
        2 => (lane(), 0..3_u64).prop_map(|(l, left)| Step::Complete(l, left)),
        1 => (5..LANES).prop_map(Step::End),
    ]
}

struct Model {
    lanes: Vec<Lane>,
    /// What each waited for, and whether its current point does not imply all of that.
    waited: Vec<Map>,
    waits: Vec<bool>,
    slots: Vec<(Frontier, Map)>,
    /// Frontiers that must not change with later steps.
    kept: Vec<(Frontier, Map)>,
}

impl Model {
    fn new() -> Self {
        Self {
            lanes: (0..LANES).map(|_| Lane::new()).collect(),
            waited: vec![Map::new(); LANES],
            waits: vec![false; LANES],
            slots: vec![Default::default(); SLOTS],
            kept: Vec::new(),
        }
    }

    fn clock(&self, lane: usize) -> &Arc<Clock> {
        self.lanes[lane].clock()
    }

    fn index(&self, point: &Point) -> usize {
        let found = self.lanes.iter().position(|lane| lane.id() == point.lane());
        found.expect("a lane of the model")
    }

    fn map(&self, frontier: &Frontier) -> Map {
        let points = frontier.points().map(|p| (self.index(p), p.epoch));
        points.collect()
    }

    fn waited_map(&self, lane: usize) -> Map {
        let points = self.lanes[lane].waited();
        points.map(|p| (self.index(p), p.epoch)).collect()
    }

    fn complete(&self, (lane, epoch): (&usize, &u64)) -> bool {
        *epoch <= self.clock(*lane).completed()
    }

    fn running(&self, map: &Map) -> Map {
        let points = map.iter().filter(|point| !self.complete(*point));
        points.map(|(lane, epoch)| (*lane, *epoch)).collect()
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Run(lane) => {
                self.lanes[lane].step();
                self.waits[lane] = false;
            }
            Step::Leap(lane, commands) => {
                self.lanes[lane].leap(commands);
                self.waits[lane] = false;
            }
            Step::Wait(lane, slot) => {
                let (frontier, map) = &self.slots[slot];
                let mut map = map.clone();
                map.remove(&lane);
                let known = self.waited_map(lane);
                let is_new = |(other, epoch): (&usize, &u64)| match known.get(other) {
                    Some(known) => epoch > known,
                    None => !self.complete((other, epoch)),
                };
                self.waits[lane] |= map.iter().any(is_new);
                self.lanes[lane].wait_for(frontier);
                join(&mut self.waited[lane], &map);
            }
            Step::Put(lane, slot) => {
                let mut map = self.waited[lane].clone();
                join(&mut map, &self.own(lane));
                let frontier = self.lanes[lane].frontier();
                // The model forgets nothing; a lane may forget what is complete.
                assert_eq!(self.running(&self.map(&frontier)), self.running(&map));
                let map = self.map(&frontier);
                self.kept.push((frontier.clone(), map.clone()));
                self.slots[slot] = (frontier, map);
            }
            Step::PutPoint(lane, slot) => {
                let map = self.own(lane);
                let frontier = map.keys().map(|_| self.lanes[lane].current()).collect();
                self.slots[slot] = (frontier, map);
            }
            Step::PutTip(lane, slot) => {
                let mut map = match self.waits[lane] {
                    true => self.running(&self.waited[lane]),
                    false => Map::new(),
                };
                let alone = map.is_empty().then(|| self.lanes[lane].epoch());
                assert_eq!(self.lanes[lane].tip_epoch(), alone);
                join(&mut map, &self.own(lane));
                let frontier = self.lanes[lane].tip();
                assert_eq!(self.map(&frontier), map);
                self.slots[slot] = (frontier, map);
            }
            Step::Join(one, other) => {
                let (frontier, map) = self.slots[other].clone();
                self.slots[one].0.join(&frontier);
                join(&mut self.slots[one].1, &map);
            }
            Step::Missing(one, other, to) => {
                let ((own, mine), (all, theirs)) = (&self.slots[one], &self.slots[other]);
                let odd = |p: &Point| self.index(p) % 2 == 1;
                let found = own.missing(all, odd);
                let left = theirs.iter().map(|(lane, epoch)| (*lane, *epoch));
                let map = left.filter(|(lane, epoch)| lane % 2 == 1 && beyond(mine, *lane, *epoch));
                self.slots[to] = (found, map.collect());
            }
            Step::Retain(slot, each) => {
                let (mut frontier, mut map) = self.slots[slot].clone();
                frontier.retain(|point| !self.index(point).is_multiple_of(each));
                map.retain(|lane, _| lane % each != 0);
                self.slots[slot] = (frontier, map);
            }
            Step::Prune(slot) => {
                self.slots[slot].0.prune();
                self.slots[slot].1 = self.running(&self.slots[slot].1);
            }
            Step::Complete(lane, left) => {
                let epoch = self.lanes[lane].epoch().saturating_sub(left);
                self.clock(lane).raise(epoch);
            }
            Step::End(lane) => self.clock(lane).raise(u64::MAX),
        }
    }

    /// The lane's own last point, if it has one.
    fn own(&self, lane: usize) -> Map {
        let epoch = self.lanes[lane].epoch();
        (epoch > 0).then_some((lane, epoch)).into_iter().collect()
    }

    fn check(&self) {
        for (frontier, map) in self.slots.iter().chain(&self.kept) {
            assert_eq!(&self.map(frontier), map);
            let lanes = frontier.points().map(Point::lane);
            assert!(lanes.is_sorted_by(|a, b| a < b));
            assert_eq!(
                (frontier.len(), frontier.is_empty()),
                (map.len(), map.is_empty())
            );
            assert_eq!(frontier.single().is_some(), map.len() == 1);
            assert_eq!(frontier.is_complete(), self.running(map).is_empty());
            for lane in 0..LANES {
                assert_eq!(
                    frontier.epoch_of(self.lanes[lane].id()),
                    map.get(&lane).copied()
                );
            }
        }
        for ((one, mine), (other, theirs)) in self.slots.iter().zip(&self.slots[1..]) {
            assert_eq!(one == other, mine == theirs);
            let running = self.running(theirs);
            let covered = running
                .iter()
                .all(|(lane, epoch)| !beyond(mine, *lane, *epoch));
            assert_eq!(one.covers(other), covered);
        }
        for lane in 0..LANES {
            self.check_lane(lane);
        }
    }

    fn check_lane(&self, at: usize) {
        let (lane, waited) = (&self.lanes[at], &self.waited[at]);
        let kept = self.waited_map(at);
        assert_eq!(self.running(&kept), self.running(waited));
        assert!(kept.iter().all(|(of, epoch)| !beyond(waited, *of, *epoch)));
        for (frontier, map) in &self.slots {
            let running = self.running(map);
            let ordered = running.iter().all(|(of, epoch)| match *of == at {
                true => *epoch <= lane.epoch(),
                false => !beyond(waited, *of, *epoch),
            });
            assert_eq!(lane.ordered(frontier), ordered);
            let each = map
                .iter()
                .map(|(of, epoch)| Point::new(self.clock(*of), *epoch));
            let each: Vec<Point> = each.collect();
            assert_eq!(each.iter().all(|point| lane.orders_point(point)), ordered);
        }
    }
}

fn beyond(map: &Map, lane: usize, epoch: u64) -> bool {
    map.get(&lane).is_none_or(|own| *own < epoch)
}

fn join(map: &mut Map, other: &Map) {
    for (lane, epoch) in other {
        let own = map.entry(*lane).or_default();
        *own = (*own).max(*epoch);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn frontiers_and_lanes_say_what_maps_say(steps in prop::collection::vec(step(), 1..400)) {
        let mut model = Model::new();
        for (at, step) in steps.into_iter().enumerate() {
            model.take(step);
            if at % 16 == 15 {
                model.check();
            }
        }
        model.check();
    }
}

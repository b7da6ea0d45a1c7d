//! Random programs, run in random order: no use of a block overlaps another owner's use.

use crate::abi::UR_COMMAND_EVENTS_WAIT_WITH_BARRIER;
use crate::object::{Handles, OutHandle};
use crate::stream::testing::*;
use crate::stream::{Event, Queue};
use std::collections::HashMap;

/// A multiplicative generator: repeatable and random enough.
struct RandomChoice(u64);

impl RandomChoice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

struct Live<D: AnyFake> {
    addr: usize,
    owner: u32,
    /// The events that a use must follow: the allocation's, and those of the earlier uses.
    last: EventArc<D>,
}

/// Each launch's label says whose block it uses. The launches that ran must not return to an earlier owner.
fn programs<D: AnyFake>(seed: u64) {
    let fixture = Fixture::<D>::new();
    let mut rng = RandomChoice(seed);
    let pool = match rng.roll(2) {
        0 => fixture.pool(0, usize::MAX),
        _ => fixture.pool(6 << 20, 0),
    };
    let queues: Vec<_> = (0..4)
        .map(|n| {
            if n < 2 {
                fixture.in_order()
            } else {
                fixture.out_of_order()
            }
        })
        .collect();
    let mut live: Vec<Live<D>> = Vec::new();
    let mut owners: HashMap<u32, std::ops::Range<usize>> = HashMap::new();
    let mut next = 0;
    for _ in 0..300 {
        let queue = &queues[rng.roll(queues.len())];
        match rng.roll(8) {
            0 | 1 => {
                let hint = (rng.roll(2) == 0)
                    .then(|| live.last().map(|block| block.last.clone()))
                    .flatten();
                let waits: Vec<_> = hint.iter().collect();
                let mib = 1 + rng.roll(3);
                if let Ok((addr, last)) = alloc(queue, Some(&pool), mib << 20, &waits) {
                    owners.insert(next, addr >> 20..(addr >> 20) + mib);
                    live.push(Live {
                        addr,
                        owner: next,
                        last,
                    });
                    next += 1;
                }
            }
            2 | 3 if !live.is_empty() => {
                let at = rng.roll(live.len());
                let block = &mut live[at];
                block.last = launch(queue, block.owner, &[&block.last]);
            }
            // On an in-order queue no event is needed between an allocation, its uses and its free.
            4 if std::ptr::eq(&**queue, &*queues[0]) => {
                if let Ok(addr) = alloc_only(queue, Some(&pool), 2 << 20, &[]) {
                    owners.insert(next, addr >> 20..(addr >> 20) + 2);
                    launch_only(queue, next, &[]);
                    free_only(queue, addr, &[]).unwrap();
                    next += 1;
                }
            }
            // A barrier stands for the event that it waits for.
            5 if !live.is_empty() => {
                let at = rng.roll(live.len());
                let block = &mut live[at];
                let command = UR_COMMAND_EVENTS_WAIT_WITH_BARRIER;
                let wall = |waits: Handles<'_, Event<D>>, event: OutHandle<'_, Event<D>>| {
                    Queue::join_events(queue, command, waits, event, true)
                };
                without(&[&block.last], wall).unwrap();
                block.last = launch(queue, block.owner, &[]);
            }
            6 if !live.is_empty() => {
                let block = live.swap_remove(rng.roll(live.len()));
                if rng.roll(2) == 0 {
                    free(queue, block.addr, &[&block.last]).unwrap();
                } else {
                    free_only(queue, block.addr, &[&block.last]).unwrap();
                }
            }
            _ => {
                let lines: Vec<_> = fixture
                    .driver
                    .lanes
                    .lock()
                    .unwrap()
                    .iter()
                    .map(|line| line.number)
                    .collect();
                for _ in 0..rng.roll(20) {
                    if !lines.is_empty() {
                        fixture.driver.step(lines[rng.roll(lines.len())]);
                    }
                }
            }
        }
    }
    for queue in &queues {
        queue.finish_here().unwrap();
    }
    let mut at: HashMap<usize, u32> = HashMap::new();
    for owner in fixture.driver.ran() {
        for mib in owners[&owner].clone() {
            let last = at.entry(mib).or_insert(owner);
            assert!(
                owner >= *last,
                "seed {seed}: {owner} used its block after {last} had it"
            );
            *last = owner;
        }
    }
}

#[test]
fn no_block_is_shared_in_random_programs_when_tracked() {
    (0..60).for_each(programs::<Tracked>);
}

#[test]
fn no_block_is_shared_in_random_programs_when_polled() {
    (0..60).for_each(programs::<Polled>);
}

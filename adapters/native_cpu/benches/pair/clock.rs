//! What the order of an enqueue costs when it waits for two commands of other queues: the part of
//! `timeline` in it, without a driver, a handle or an event.

use std::hint::black_box;
use ur::timeline::{Frontier, Lane};

/// Queues whose commands wait for each other, each for the last commands of two others.
pub struct Web {
    lanes: Vec<Lane>,
    /// Each lane's last event: what proves it, and all that it then proves.
    events: Vec<(Frontier, Frontier)>,
    /// Whose turn it is, and which two others it then waits for; from its end it begins again.
    plan: Vec<[usize; 3]>,
    at: usize,
    /// Commands that are not complete, by lane and epoch, the next to be on turn, if any ever are; and
    /// whose turn it is.
    running: Vec<(usize, u64)>,
    oldest: usize,
}

impl Web {
    /// So many queues, at least four. With `running`, so many commands of each are outstanding; without, nothing is
    /// ever seen complete.
    pub fn new(queues: usize, running: Option<usize>) -> Self {
        let lanes: Vec<Lane> = (0..queues).map(|_| Lane::new()).collect();
        let mut web = Self {
            events: vec![Default::default(); queues],
            lanes,
            plan: plan(queues),
            at: 0,
            running: vec![(0, 0); running.unwrap_or(0) * queues],
            oldest: 0,
        };
        // Until everybody knows of everybody.
        (0..8 * queues).for_each(|_| web.enqueue());
        web
    }

    /// One command, as an in-order queue takes it.
    #[inline]
    pub fn enqueue(&mut self) {
        let [own, others @ ..] = self.plan[self.at];
        self.at += 1;
        if self.at == self.plan.len() {
            self.at = 0;
        }
        let lane = &mut self.lanes[own];
        for other in others {
            let (done, order) = &self.events[other];
            if !black_box(lane.ordered(done)) {
                lane.wait_for(order);
            }
        }
        lane.step();
        let (done, order) = &mut self.events[own];
        lane.record(done, order);
        if let Some(oldest) = self.running.get_mut(self.oldest) {
            let (lane, epoch) = std::mem::replace(oldest, (own, lane.epoch()));
            self.oldest += 1;
            if self.oldest == self.running.len() {
                self.oldest = 0;
            }
            self.lanes[lane].clock().raise(epoch);
        }
    }
}

fn plan(queues: usize) -> Vec<[usize; 3]> {
    // Coprime with any of the counts: all pairs of queues meet.
    let rounds = (0..3 * queues).map(|round| 7 * round);
    rounds
        .map(|at| {
            let own = at % queues;
            [
                own,
                (own + 1 + at % 3) % queues,
                (own + queues / 2) % queues,
            ]
        })
        .collect()
}

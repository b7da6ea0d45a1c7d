//! What the order of an enqueue costs when it waits for two commands of other queues: the part of
//! `timeline` in it, without a driver, a handle or an event.

use std::collections::VecDeque;
use std::hint::black_box;
use ur::timeline::{Frontier, Lane};

/// Queues whose commands wait for each other, each for the last commands of two others.
pub struct Web {
    lanes: Vec<Lane>,
    /// Each lane's last event: what proves it, and all that it then proves.
    events: Vec<(Frontier, Frontier)>,
    at: usize,
    /// Commands that are not complete, if any ever are.
    running: Option<(usize, VecDeque<Frontier>)>,
}

impl Web {
    /// So many queues. With `running`, so many commands of each are outstanding; without, nothing is
    /// ever seen complete.
    pub fn new(queues: usize, running: Option<usize>) -> Self {
        let lanes: Vec<Lane> = (0..queues).map(|_| Lane::new()).collect();
        let mut web = Self {
            events: vec![Default::default(); queues],
            lanes,
            at: 0,
            running: running.map(|each| (each * queues, VecDeque::new())),
        };
        // Until everybody knows of everybody.
        (0..8 * queues).for_each(|_| web.enqueue());
        web
    }

    /// One command, as an in-order queue takes it.
    #[inline]
    pub fn enqueue(&mut self) {
        let count = self.lanes.len();
        let own = self.at % count;
        // Coprime with any of the counts: all pairs of queues meet.
        let others = [(own + 1 + self.at % 3) % count, (own + count / 2) % count];
        self.at += 7;
        let lane = &mut self.lanes[own];
        for other in others.into_iter().filter(|other| *other != own) {
            let (done, order) = &self.events[other];
            if !black_box(lane.ordered(done)) {
                lane.wait_for(order);
            }
        }
        lane.step();
        self.events[own] = (Frontier::from(lane.current()), lane.frontier());
        if let Some((most, running)) = &mut self.running {
            running.push_back(self.events[own].0.clone());
            if running.len() > *most
                && let Some(done) = running.pop_front()
            {
                done.mark_complete();
            }
        }
    }
}

//! Random programs that order their own uses and frees, as a correct caller does.

use super::script::{QueueName, Script, Setup, Step};
use crate::pool::{Compaction, Config, Options, WaitPolicy};

/// A small generator of random numbers (SplitMix64, Steele et al., 2014), so that a seed is a
/// program on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.draw() % n.max(1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// A block in use: its queue, and the steps that a free has to follow.
struct Held {
    alloc: usize,
    queue: QueueName,
    users: Vec<(QueueName, usize)>,
}

/// Makes programs.
pub struct Random {
    rng: Rng,
    queues: Vec<QueueName>,
    steps: Vec<Step>,
    held: Vec<Held>,
    /// Steps with an event.
    events: Vec<usize>,
    largest: u64,
    /// Whether sizes repeat and one queue gets several steps in a row, as in a program that does the
    /// same over and over.
    few: bool,
    /// Whether these are the steps of an iteration: such as may come again the same.
    iteration: bool,
    last: QueueName,
}

impl Random {
    /// A program of `length` steps.
    pub fn script(seed: u64, length: usize) -> Script {
        let mut rng = Rng::new(seed);
        let setup = setup(&mut rng);
        let in_order = (0..=rng.below(4) as u32).map(QueueName::InOrder);
        let out_of_order = (0..rng.below(3) as u32).map(QueueName::OutOfOrder);
        let queues = in_order.chain(out_of_order).collect();
        let largest = rng.pick(&[256, 1024, 4096]);
        let few = rng.chance(50);
        let steps = Vec::with_capacity(length);
        let mut random = Self {
            rng,
            queues,
            steps,
            held: vec![],
            events: vec![],
            largest,
            few,
            iteration: false,
            last: QueueName::InOrder(0),
        };
        while random.steps.len() < length {
            let step = random.step();
            random.steps.push(step);
        }
        Script::new(setup, random.steps)
    }

    /// A program that does the same over and over, mostly: iterations of a queue that frees what it allocates,
    /// and now and then something else.
    pub fn iterations(seed: u64, length: usize) -> Script {
        Self::repeating(seed, length, false)
    }

    /// A program that repeats itself over all queues together: each takes what others are done with, until all are
    /// awaited.
    pub fn iterations_together(seed: u64, length: usize) -> Script {
        Self::repeating(seed, length, true)
    }

    fn repeating(seed: u64, length: usize, together: bool) -> Script {
        let mut rng = Rng::new(seed);
        let setup = setup(&mut rng);
        let others = u32::from(together) + rng.below(3) as u32;
        let queues = (0..=others).map(QueueName::InOrder).collect();
        let largest = rng.pick(&[256, 1024, 4096]);
        let mut random = Self {
            rng,
            queues,
            steps: Vec::with_capacity(length),
            held: vec![],
            events: vec![],
            largest,
            few: false,
            iteration: false,
            last: QueueName::InOrder(0),
        };
        while random.steps.len() < length {
            for _ in 0..random.rng.below(12) {
                random.add();
            }
            random.repeat(together);
        }
        Script::new(setup, random.steps)
    }

    fn add(&mut self) {
        let step = self.step();
        self.steps.push(step);
    }

    /// Laps of some queues at once, or of all, again and again.
    fn repeat(&mut self, together: bool) {
        let outer = std::mem::take(&mut self.held);
        let all = std::mem::take(&mut self.queues);
        let from = self.steps.len();
        let some = 0..=self.rng.below(2);
        self.queues = match together {
            true => all.clone(),
            false => some.map(|_| self.rng.pick(&all)).collect(),
        };
        self.iteration = self.rng.chance(90);
        for _ in 0..40 + self.rng.below(50) {
            let step = match self.rng.below(10) {
                0..5 => self.alloc(),
                5..8 if !self.held.is_empty() => self.free(),
                8 if together && self.held.len() > 2 => Step::Finish(self.queue()),
                _ => self.command(),
            };
            self.steps.push(step);
        }
        while !self.held.is_empty() {
            let step = self.free();
            self.steps.push(step);
        }
        let last = all.iter().filter(|_| together);
        self.steps.extend(last.map(|queue| Step::Finish(*queue)));
        (self.held, self.queues, self.iteration) = (outer, all, false);
        let iteration = self.steps[from..].to_vec();
        for _ in 0..2 + 2 * u64::from(together) + self.rng.below(5) {
            let mut now = vec![0; iteration.len()];
            let odd = self.rng.chance(40);
            for at in self.order(&iteration, from) {
                if odd && self.rng.chance(2) {
                    self.add();
                }
                now[at] = self.steps.len();
                let again = |step: usize| match step.checked_sub(from) {
                    Some(at) => now[at],
                    None => step,
                };
                self.steps.push(iteration[at].with(again));
            }
            if self.rng.chance(if together { 5 } else { 30 }) {
                self.add();
            }
        }
    }

    /// In which order an iteration's steps come again: at times with some frees a little earlier.
    fn order(&mut self, iteration: &[Step], from: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..iteration.len()).collect();
        if self.rng.chance(60) {
            return order;
        }
        for at in 1..iteration.len() {
            let (before, now) = (order[at - 1], order[at]);
            let Step::Free { block, after, .. } = &iteration[now] else {
                continue;
            };
            let bound = *block == from + before || after.contains(&(from + before));
            let moves = matches!(iteration[before], Step::Alloc { .. } | Step::Free { .. });
            if moves && !bound && self.rng.chance(40) {
                order.swap(at - 1, at);
            }
        }
        order
    }

    fn step(&mut self) -> Step {
        let at = self.steps.len();
        let draw = self.rng.below(100);
        match draw {
            0..36 => self.alloc(),
            36..62 if !self.held.is_empty() => self.free(),
            62..84 => self.command(),
            84..87 => {
                let (queue, after) = (self.queue(), self.some_events());
                self.events.push(at);
                Step::Barrier { queue, after }
            }
            87..93 if !self.events.is_empty() => Step::Wait(self.rng.pick(&self.events)),
            93..95 => Step::Finish(self.queue()),
            95 => Step::Settle,
            96 => Step::Trim(self.rng.below(4) * self.largest),
            97 => Step::Threshold(self.rng.pick(&[0, 1024, u64::MAX])),
            _ => self.alloc(),
        }
    }

    fn queue(&mut self) -> QueueName {
        if !self.few || self.rng.chance(20) {
            self.last = self.rng.pick(&self.queues);
        }
        self.last
    }

    fn alloc(&mut self) -> Step {
        let at = self.steps.len();
        let host = !self.iteration && self.rng.chance(5);
        let queue = if host { QueueName::Host } else { self.queue() };
        let bytes = match self.rng.below(4) {
            _ if self.few => self.rng.pick(&[64, 100, 256, 600]),
            0 => 64,
            1 => 64 << self.rng.below(6),
            _ => 1 + self.rng.below(self.largest),
        };
        let align = if !self.iteration && self.rng.chance(10) {
            self.rng.pick(&[128, 512, 4096])
        } else {
            0
        };
        let after = if host { vec![] } else { self.some_events() };
        let may_wait = self.rng.chance(85);
        self.held.push(Held {
            alloc: at,
            queue,
            users: vec![],
        });
        self.events.push(at);
        Step::Alloc {
            queue,
            bytes,
            align,
            after,
            may_wait,
        }
    }

    fn command(&mut self) -> Step {
        let at = self.steps.len();
        let queue = self.queue();
        let mut after = self.some_events();
        let mut uses = Vec::new();
        for _ in 0..self.rng.below(3).min(self.held.len() as u64) {
            let which = self.rng.below(self.held.len() as u64) as usize;
            let held = &mut self.held[which];
            if uses.contains(&held.alloc) {
                continue;
            }
            if !follows(held.queue, queue) {
                after.push(held.alloc);
            }
            uses.push(held.alloc);
            held.users.push((queue, at));
        }
        self.events.push(at);
        Step::Run { queue, uses, after }
    }

    fn free(&mut self) -> Step {
        let at = self.steps.len();
        let which = self.rng.below(self.held.len() as u64) as usize;
        let held = self.held.swap_remove(which);
        if !self.iteration && self.rng.chance(4) {
            return Step::Free {
                queue: QueueName::Host,
                block: held.alloc,
                after: vec![],
            };
        }
        let own = held.queue != QueueName::Host && (self.iteration || self.rng.chance(70));
        let queue = if own { held.queue } else { self.queue() };
        let mut after = self.some_events();
        let users = held.users.iter().copied().chain([(held.queue, held.alloc)]);
        after.extend(
            users
                .filter(|(on, _)| !follows(*on, queue))
                .map(|(_, step)| step),
        );
        self.events.push(at);
        Step::Free {
            queue,
            block: held.alloc,
            after,
        }
    }

    /// A wait list, mostly empty, of mostly recent events.
    fn some_events(&mut self) -> Vec<usize> {
        if self.events.is_empty() || self.rng.chance(60) {
            return Vec::new();
        }
        let recent = self.events.len().saturating_sub(12);
        (0..=self.rng.below(2))
            .map(|_| self.rng.pick(&self.events[recent..]))
            .collect()
    }
}

/// Whether a later step on `later` follows one on `earlier` without saying so.
fn follows(earlier: QueueName, later: QueueName) -> bool {
    match earlier {
        QueueName::InOrder(_) => earlier == later,
        QueueName::OutOfOrder(_) => false,
        // The call had returned.
        QueueName::Host => true,
    }
}

fn setup(rng: &mut Rng) -> Setup {
    let max_bytes = if rng.chance(50) {
        None
    } else {
        Some(1024 * (1 + rng.below(24)))
    };
    let paged = rng.chance(40);
    let grains: &[u64] = if paged {
        &[128, 256, 1024]
    } else {
        &[64, 64, 512]
    };
    // Copies', so that programs stay as they were without them.
    let mut other = rng.clone();
    let compaction = [
        Compaction::Always,
        Compaction::Pressure,
        Compaction::Pressure,
        Compaction::Never,
    ];
    let options = Options {
        compaction: other.pick(&compaction),
        growth_share: other.pick(&[0, 0, 4, 32]),
        slack_share: other.pick(&[0, 4, 24]),
        ..Options::default()
    };
    Setup {
        config: Config {
            max_bytes,
            release_threshold: rng.pick(&[u64::MAX, u64::MAX, 0, 2048]),
            chunk_bytes: rng.pick(&[0, 0, 1024, 8192]),
            min_align: 64,
            waits: rng.pick(&[WaitPolicy::Bounded, WaitPolicy::Never, WaitPolicy::Always]),
            options,
        },
        granularity: rng.pick(grains),
        paged,
        leaves_mapped: rng.chance(70),
        maps_once: other.chance(30),
        deterministic: rng.chance(25),
        // A copy's, so that programs stay as they were without it.
        blocks: rng.clone().chance(50),
    }
}

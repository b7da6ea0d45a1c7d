//! Random captures over several queues, compared with the same commands run one after another.
//!
//! Wait lists state only the dependencies between blocks.

use crate::check;
use crate::fixture::Fixture;
use crate::kernels::{ADD, SUM};
use crate::objects::{Arg, Context, Event, Graph, Kernel, Kind, Program, Queue, Usm};
use crate::outcome::{Done, Stop};
use crate::registry::Test;

pub fn all() -> Vec<Test> {
    crate::tests!["graph_random"; captures]
}

const BLOCKS: usize = 8;
const ITEMS: usize = 700;
const COMMANDS: usize = 60;

/// Random captures over four queues leave the data of sequential execution.
fn captures(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    Graph::need(fixture, &context)?;
    (1..=8).try_for_each(|seed| Random::new(fixture, &context, seed)?.run())
}

/// A block's last writer and its readers since.
#[derive(Default)]
struct Uses {
    writer: Option<Event>,
    readers: Vec<Event>,
}

struct Random {
    queues: Vec<Queue>,
    blocks: Vec<Usm>,
    add: Kernel,
    sum: Kernel,
    random: u64,
}

impl Random {
    fn new(fixture: &Fixture, context: &Context, seed: u64) -> Result<Self, Stop> {
        let program = Program::new(fixture, context)?;
        let block = |_| context.usm(fixture, Kind::Device, ITEMS * 4);
        Ok(Self {
            queues: vec![
                context.in_order(fixture)?,
                context.in_order(fixture)?,
                context.out_of_order(fixture)?,
                context.out_of_order(fixture)?,
            ],
            blocks: (0..BLOCKS).map(block).collect::<Result<_, _>>()?,
            add: program.kernel(ADD)?,
            sum: program.kernel(SUM)?,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        })
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as usize % bound
    }

    fn run(mut self) -> Done {
        let first = self.below(self.queues.len());
        let mut want = [0_u32; BLOCKS];
        let mut steps = Vec::new();
        for _ in 0..COMMANDS {
            let (to, a, b) = (self.below(BLOCKS), self.below(BLOCKS), self.below(BLOCKS));
            let (queue, kind, word) = (self.below(4), self.below(4), self.below(1000) as u32);
            steps.push((queue, kind, to, a, b, word));
        }
        let graph = Graph::capture(&self.queues[first], || self.record(first, &steps))?;
        let executable = graph.instantiate()?;
        for block in &self.blocks {
            self.queues[0].write(block.ptr, &[0_u32; ITEMS])?;
        }
        for round in 0..4 {
            executable.enqueue_only(&self.queues[round])?;
            for &(_, kind, to, a, b, word) in &steps {
                match kind {
                    0 => want[to] = word,
                    1 if a != to => want[to] = want[a],
                    2 if a != to && b != to => want[to] = want[a].wrapping_add(want[b]),
                    _ => want[to] = want[to].wrapping_add(word),
                }
            }
            self.queues[round].finish()?;
            for (at, (block, want)) in self.blocks.iter().zip(want).enumerate() {
                let data: Vec<u32> = self.queues[0].read(block.ptr, ITEMS, &[])?;
                let wrong = data.iter().find(|word| **word != want);
                check!(
                    wrong.is_none(),
                    "round {round}, block {at}: got {wrong:?}, expected {want}"
                );
            }
        }
        Ok(())
    }

    #[allow(clippy::type_complexity)]
    fn record(&self, first: usize, steps: &[(usize, usize, usize, usize, usize, u32)]) -> Done {
        // The other queues join the capture by waiting for this event.
        let root = self.queues[first].marker(&[])?;
        let mut uses: Vec<Uses> = (0..BLOCKS).map(|_| Uses::default()).collect();
        for &(queue, kind, to, a, b, word) in steps {
            let reads: &[usize] = match kind {
                1 if a != to => &[a],
                2 if a != to && b != to => &[a, b],
                _ => &[],
            };
            let own = uses[to].writer.iter().chain(&uses[to].readers);
            let mut waits: Vec<&Event> = own.collect();
            waits.extend(reads.iter().filter_map(|read| uses[*read].writer.as_ref()));
            waits.push(&root);
            let queue = &self.queues[queue];
            let pointer = |at: usize| Arg::Pointer(self.blocks[at].ptr);
            let (dst, bytes) = (self.blocks[to].ptr, ITEMS * 4);
            let event = match (kind, reads) {
                (0, _) => queue.fill(dst, word, bytes, &waits),
                (_, [from]) => queue.copy(dst, self.blocks[*from].ptr, bytes, &waits),
                (_, [a, b]) => {
                    let args = [pointer(to), pointer(*a), pointer(*b)];
                    queue.launch(&self.sum, ITEMS, &args, &waits)
                }
                _ => queue.launch(&self.add, ITEMS, &[pointer(to), Arg::of(&word)], &waits),
            }?;
            let shares = reads.iter().map(|read| Ok((*read, event.share()?)));
            let shares: Vec<_> = shares.collect::<Result<_, Stop>>()?;
            for (read, share) in shares {
                uses[read].readers.push(share);
            }
            uses[to] = Uses {
                writer: Some(event),
                readers: Vec::new(),
            };
        }
        Ok(())
    }
}

//! Random command buffers, compared with the same commands run one after another.
//!
//! Each command uses a few of several blocks. Sync points state only the dependencies between blocks, so all
//! other commands may run in any order or concurrently.

use crate::check;
use crate::fixture::Fixture;
use crate::kernels::{ADD, SUM};
use crate::objects::{
    Arg, Buffer, CommandBuffer, Context, Kernel, Kind, Program, Queue, Shape, Update, Usm, With,
};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["command_buffer_random"; programs, programs_in_order, programs_with_updates]
}

const BLOCKS: usize = 10;
const ITEMS: usize = 700;
const BYTES: usize = ITEMS * 4;

/// Random command buffers leave the data of sequential execution.
fn programs(fixture: &Fixture) -> Done {
    (1..=6).try_for_each(|seed| Random::new(fixture, seed, false)?.run(60, false))
}

/// Random in-order command buffers leave the data of sequential execution.
fn programs_in_order(fixture: &Fixture) -> Done {
    (11..=13).try_for_each(|seed| Random::new(fixture, seed, true)?.run(60, false))
}

/// Random command buffers with argument updates leave the data of sequential execution.
fn programs_with_updates(fixture: &Fixture) -> Done {
    let able: ur_device_command_buffer_update_capability_flags_t =
        fixture.device_info(UR_DEVICE_INFO_COMMAND_BUFFER_UPDATE_CAPABILITIES_EXP)?;
    if !able.contains(UR_DEVICE_COMMAND_BUFFER_UPDATE_CAPABILITY_FLAG_KERNEL_ARGUMENTS) {
        return Err(Stop::Unsupported {
            what: "kernel arguments cannot be updated".to_owned(),
            documented: true,
        });
    }
    (21..=24).try_for_each(|seed| Random::new(fixture, seed, false)?.run(40, true))
}

/// The effect of a command on the blocks, for the host's model.
#[derive(Clone, Copy)]
enum Step {
    Fill { to: usize, word: u32 },
    Copy { to: usize, from: usize },
    Add { to: usize, amount: u32 },
    Sum { to: usize, a: usize, b: usize },
}

/// A block. Half of them are USM, half are buffers.
enum Block {
    Usm(Usm),
    Mem(Buffer),
}

impl Block {
    fn arg(&self) -> Arg<'_> {
        match self {
            Block::Usm(usm) => Arg::Pointer(usm.ptr),
            Block::Mem(mem) => Arg::Buffer(mem),
        }
    }
}

struct Random {
    queues: Vec<Queue>,
    blocks: Vec<Block>,
    buffer: CommandBuffer,
    in_order: bool,
    add: Kernel,
    sum: Kernel,
    /// For each block the sync point of its last writer and those of its readers since.
    uses: Vec<(Option<u32>, Vec<u32>)>,
    steps: Vec<(Step, ur_exp_command_buffer_command_handle_t)>,
    random: u64,
    /// Last, so that it exists when the blocks are freed.
    _context: Context,
}

impl Random {
    fn new(fixture: &Fixture, seed: u64, in_order: bool) -> Result<Self, Stop> {
        let context = Context::new(fixture)?;
        CommandBuffer::need(fixture, &context)?;
        let program = Program::new(fixture, &context)?;
        let able: ur_device_command_buffer_update_capability_flags_t =
            fixture.device_info(UR_DEVICE_INFO_COMMAND_BUFFER_UPDATE_CAPABILITIES_EXP)?;
        let shape = Shape {
            updatable: able.0 != 0,
            in_order,
            profiled: false,
        };
        let block = |at: usize| match at % 2 {
            0 => context.usm(fixture, Kind::Device, BYTES).map(Block::Usm),
            _ => context.buffer(BYTES).map(Block::Mem),
        };
        Ok(Self {
            queues: vec![
                context.in_order(fixture)?,
                context.out_of_order(fixture)?,
                context.out_of_order(fixture)?,
            ],
            blocks: (0..BLOCKS).map(block).collect::<Result<_, _>>()?,
            buffer: CommandBuffer::new(fixture, &context, shape)?,
            in_order,
            add: program.kernel(ADD)?,
            sum: program.kernel(SUM)?,
            uses: vec![(None, Vec::new()); BLOCKS],
            steps: Vec::new(),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            _context: context,
        })
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as usize % bound
    }

    fn run(mut self, commands: usize, updates: bool) -> Done {
        for _ in 0..commands {
            let (to, a, b) = (self.below(BLOCKS), self.below(BLOCKS), self.below(BLOCKS));
            let word = self.below(1000) as u32;
            let step = match self.below(8) {
                0 => Step::Fill { to, word },
                1 | 2 if a != to && a % 2 == to % 2 => Step::Copy { to, from: a },
                3 | 4 if a != to && b != to => Step::Sum { to, a, b },
                _ => Step::Add { to, amount: word },
            };
            self.append(step)?;
        }
        self.buffer.finalize()?;
        let mut blocks = vec![0_u32; BLOCKS];
        self.clear()?;
        for round in 0..6 {
            if updates && round > 0 {
                self.update()?;
            }
            let queue = self.below(self.queues.len());
            self.buffer.enqueue_only(&self.queues[queue])?;
            self.steps
                .iter()
                .for_each(|(step, _)| apply_step(*step, &mut blocks));
            if round % 2 == 1 {
                self.compare(&blocks, round)?;
            }
        }
        Ok(())
    }

    /// Appends a step after the commands that its blocks depend on.
    fn append(&mut self, step: Step) -> Done {
        let (to, reads) = match step {
            Step::Fill { to, .. } => (to, vec![]),
            Step::Add { to, .. } => (to, vec![]),
            Step::Copy { to, from } => (to, vec![from]),
            Step::Sum { to, a, b } => (to, vec![a, b]),
        };
        let mut after: Vec<u32> = self.uses[to]
            .0
            .iter()
            .chain(&self.uses[to].1)
            .copied()
            .collect();
        after.extend(reads.iter().filter_map(|read| self.uses[*read].0));
        if self.in_order {
            after.clear();
        }
        let with = With::after(&after);
        let appended = match step {
            Step::Fill { to, word } => self.fill(to, word, with),
            Step::Copy { to, from } => self.copy(to, from, with),
            Step::Add { to, amount } => {
                let args = [self.blocks[to].arg(), Arg::of(&amount)];
                let with = With {
                    handle: true,
                    ..with
                };
                self.buffer.launch(&self.add, ITEMS, &args, with)
            }
            Step::Sum { to, a, b } => {
                let args = [to, a, b].map(|block| self.blocks[block].arg());
                self.buffer.launch(&self.sum, ITEMS, &args, with)
            }
        }?;
        self.uses[to] = (Some(appended.point), Vec::new());
        for read in reads {
            self.uses[read].1.push(appended.point);
        }
        self.steps.push((step, appended.command));
        Ok(())
    }

    fn fill(&self, to: usize, word: u32, with: With<'_>) -> Result<crate::objects::Appended, Stop> {
        let mem = match &self.blocks[to] {
            Block::Usm(usm) => return self.buffer.fill(usm.ptr, word, BYTES, with),
            Block::Mem(mem) => mem,
        };
        let from = (&raw const word).cast();
        self.buffer.append(with, |s| {
            self.buffer.ur.urCommandBufferAppendMemBufferFillExp(
                self.buffer.raw,
                mem.raw,
                from,
                4,
                0,
                BYTES,
                s.points.0,
                s.points.1,
                s.events.0,
                s.events.1,
                s.point,
                s.event,
                s.command,
            )
        })
    }

    fn copy(
        &self,
        to: usize,
        from: usize,
        with: With<'_>,
    ) -> Result<crate::objects::Appended, Stop> {
        match (&self.blocks[to], &self.blocks[from]) {
            (Block::Usm(to), Block::Usm(from)) => self.buffer.copy(to.ptr, from.ptr, BYTES, with),
            (Block::Mem(to), Block::Mem(from)) => self.buffer.append(with, |s| {
                self.buffer.ur.urCommandBufferAppendMemBufferCopyExp(
                    self.buffer.raw,
                    from.raw,
                    to.raw,
                    0,
                    0,
                    BYTES,
                    s.points.0,
                    s.points.1,
                    s.events.0,
                    s.events.1,
                    s.point,
                    s.event,
                    s.command,
                )
            }),
            _ => Err(Stop::failed("a copy between a buffer and USM")),
        }
    }

    /// Updates the amount of some additions.
    fn update(&mut self) -> Done {
        for at in 0..self.steps.len() {
            let amount = self.below(1000) as u32;
            let (Step::Add { to, .. }, command) = self.steps[at] else {
                continue;
            };
            if !command.is_null() && amount.is_multiple_of(3) {
                let update = Update::default().value(1, amount);
                update.apply(&self.buffer, command).ok()?;
                self.steps[at].0 = Step::Add { to, amount };
            }
        }
        Ok(())
    }

    fn clear(&self) -> Done {
        let queue = &self.queues[0];
        for block in &self.blocks {
            match block {
                Block::Usm(usm) => queue.write(usm.ptr, &[0_u32; ITEMS])?,
                Block::Mem(mem) => mem.write(queue, 0, &[0_u32; ITEMS])?,
            }
        }
        Ok(())
    }

    fn compare(&self, want: &[u32], round: usize) -> Done {
        self.queues.iter().try_for_each(Queue::finish)?;
        for (at, (block, want)) in self.blocks.iter().zip(want).enumerate() {
            let data: Vec<u32> = match block {
                Block::Usm(usm) => self.queues[0].read(usm.ptr, ITEMS, &[])?,
                Block::Mem(mem) => mem.read(&self.queues[0], 0, ITEMS)?,
            };
            let wrong = data.iter().find(|word| *word != want);
            check!(
                wrong.is_none(),
                "round {round}, block {at}: got {wrong:?}, expected {want}"
            );
        }
        Ok(())
    }
}

/// Applies a step to the model, in which all words of a block are equal.
fn apply_step(step: Step, blocks: &mut [u32]) {
    match step {
        Step::Fill { to, word } => blocks[to] = word,
        Step::Copy { to, from } => blocks[to] = blocks[from],
        Step::Add { to, amount } => blocks[to] = blocks[to].wrapping_add(amount),
        Step::Sum { to, a, b } => blocks[to] = blocks[a].wrapping_add(blocks[b]),
    }
}

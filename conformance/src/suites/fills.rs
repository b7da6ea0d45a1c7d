//! Small fills in succession over the same memory, with other commands between them.
//!
//! An adapter may merge fills. The result must equal that of separate fills.

use crate::check;
use crate::fixture::Fixture;
use crate::objects::{Context, Event, Kind, Queue, Usm};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use std::ops::Range;
use std::ptr::{null, null_mut};

pub fn all() -> Vec<Test> {
    crate::tests!["fills"; consecutive, unordered, interleaved_with_commands, ordered_across_queues, on_a_busy_queue, after_native_handle]
}

/// Number of 8-byte words, and most words of one fill.
const WORDS: usize = 4096;
const MAX_ELEMENTS: usize = 512;

/// Device memory and a model of its final content.
struct TestMemory<'a> {
    fixture: &'a Fixture,
    memory: Usm,
    model: Vec<u64>,
    random: u64,
    /// Last, so that it exists when the memory is freed.
    context: Context,
}

impl<'a> TestMemory<'a> {
    fn new(fixture: &'a Fixture, seed: u64) -> Result<Self, Stop> {
        let context = Context::new(fixture)?;
        let memory = context.usm(fixture, Kind::Device, 8 * WORDS)?;
        let queue = context.in_order(fixture)?;
        queue.fill(memory.ptr, 0_u8, 8 * WORDS, &[])?.wait()?;
        Ok(Self {
            fixture,
            memory,
            model: vec![0; WORDS],
            random: seed,
            context,
        })
    }

    /// A number below `end`, from the upper bits of Knuth's linear congruential generator.
    fn random_below(&mut self, end: usize) -> usize {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % end
    }

    /// A random range with an even number of words.
    fn random_range(&mut self) -> Range<usize> {
        let count = 2 * (1 + self.random_below(MAX_ELEMENTS / 2));
        let first = self.random_below(WORDS - count);
        first..first + count
    }

    fn at(&self, word: usize) -> *mut std::ffi::c_void {
        self.memory.ptr.wrapping_byte_add(8 * word)
    }

    /// Fills a random range with a pattern of 8 or 16 bytes, without an event.
    fn fill(&mut self, queue: &Queue) -> Done {
        let words = self.random_range();
        let mut pattern = [0, 1].map(|half| self.random.rotate_left(17 * (half + 1)));
        let size = match self.random_below(2) {
            0 => 16,
            _ => {
                pattern[1] = pattern[0];
                8
            }
        };
        let (to, from) = (self.at(words.start), pattern.as_ptr().cast());
        let bytes = 8 * words.len();
        let ur = self.fixture.ur;
        let status = ur.urEnqueueUSMFill(queue.raw, to, size, from, bytes, 0, null(), null_mut());
        status.ok()?;
        for (at, word) in self.model[words].iter_mut().enumerate() {
            *word = pattern[at % 2];
        }
        Ok(())
    }

    /// Fills a random range with a pattern of 4 bytes and returns the event.
    fn fill_words(&mut self, queue: &Queue, wait: &[&Event]) -> Result<Event, Stop> {
        let words = self.random_range();
        let half = self.random as u32;
        let event = queue.fill(self.at(words.start), half, 8 * words.len(), wait)?;
        self.model[words].fill(u64::from(half) << 32 | u64::from(half));
        Ok(event)
    }

    /// Copies random words from the first half to the second.
    fn copy(&mut self, queue: &Queue, wait: &[&Event]) -> Result<Event, Stop> {
        let count = 1 + self.random_below(MAX_ELEMENTS);
        let from = self.random_below(WORDS / 2 - count);
        let to = WORDS / 2 + self.random_below(WORDS / 2 - count);
        let event = queue.copy(self.at(to), self.at(from), 8 * count, wait)?;
        self.model.copy_within(from..from + count, to);
        Ok(event)
    }

    fn check(&self, queue: &Queue, when: &str) -> Done {
        let found = queue.read::<u64>(self.memory.ptr, WORDS, &[])?;
        let wrong = found
            .iter()
            .zip(&self.model)
            .position(|(one, two)| one != two);
        check!(wrong.is_none(), "word {wrong:?} is wrong {when}");
        Ok(())
    }
}

/// Many small fills in a row leave the last pattern in each word.
fn consecutive(fixture: &Fixture) -> Done {
    let mut field = TestMemory::new(fixture, 1)?;
    let queue = field.context.in_order(fixture)?;
    for count in [1, 2, 3, 5, 20, 100, 300] {
        for _ in 0..count {
            field.fill(&queue)?;
        }
        field.check(&queue, &format!("after {count} fills"))?;
    }
    Ok(())
}

/// Many small fills of disjoint ranges on an out-of-order queue all take effect.
fn unordered(fixture: &Fixture) -> Done {
    let field = TestMemory::new(fixture, 2)?;
    let queue = field.context.out_of_order(fixture)?;
    for round in 0..20_u64 {
        let mut all = Vec::new();
        for at in 0..64 {
            let pattern = [round << 32 | at, !at];
            let to = field.at(WORDS / 64 * at as usize);
            all.push(queue.fill(to, pattern, WORDS / 8, &[])?);
        }
        queue.finish()?;
        let found = queue.read::<u64>(field.memory.ptr, WORDS, &[])?;
        for (at, part) in (0..).zip(found.chunks(WORDS / 64)) {
            let right = part.chunks(2).all(|two| two == [round << 32 | at, !at]);
            check!(right, "part {at} is wrong in round {round}");
        }
    }
    Ok(())
}

/// Small fills keep their order with copies, larger fills and markers between them.
fn interleaved_with_commands(fixture: &Fixture) -> Done {
    let mut field = TestMemory::new(fixture, 3)?;
    let queue = field.context.in_order(fixture)?;
    for round in 0..20 {
        for _ in 0..200 {
            match field.random_below(20) {
                0 => drop(field.fill_words(&queue, &[])?),
                1 => drop(field.copy(&queue, &[])?),
                2 => drop(queue.marker(&[])?),
                3 if field.random_below(10) == 0 => queue.finish()?,
                _ => field.fill(&queue)?,
            }
        }
        field.check(&queue, &format!("in round {round}"))?;
    }
    Ok(())
}

/// Small fills of two queues keep the order that events give them.
fn ordered_across_queues(fixture: &Fixture) -> Done {
    let mut field = TestMemory::new(fixture, 4)?;
    let queues = [
        field.context.in_order(fixture)?,
        field.context.in_order(fixture)?,
    ];
    for round in 0..20 {
        for turn in 0..40 {
            let (own, other) = (&queues[turn % 2], &queues[1 - turn % 2]);
            for _ in 0..=field.random_below(6) {
                field.fill(own)?;
            }
            let done = match field.random_below(3) {
                0 => own.marker(&[])?,
                1 => field.fill_words(own, &[])?,
                _ => field.copy(own, &[])?,
            };
            // The other queue's next command runs after this event.
            other.marker(&[&done])?;
        }
        field.check(&queues[0], &format!("in round {round}"))?;
    }
    Ok(())
}

/// A thousand small fills behind long commands take effect in order.
fn on_a_busy_queue(fixture: &Fixture) -> Done {
    let mut field = TestMemory::new(fixture, 5)?;
    let queue = field.context.in_order(fixture)?;
    let large = field.context.usm(fixture, Kind::Device, 64 << 20)?;
    for round in 0..3_u8 {
        // Takes long enough that the fills are enqueued before it has completed.
        for _ in 0..4 {
            queue.fill(large.ptr, round, 64 << 20, &[])?;
        }
        for _ in 0..1000 {
            field.fill(&queue)?;
        }
        field.check(&queue, &format!("in round {round}"))?;
    }
    Ok(())
}

/// Small fills keep their order after the queue's native handle was given out.
fn after_native_handle(fixture: &Fixture) -> Done {
    let mut field = TestMemory::new(fixture, 6)?;
    let queue = field.context.in_order(fixture)?;
    for _ in 0..10 {
        field.fill(&queue)?;
    }
    let mut native = 0;
    let ur = fixture.ur;
    let status = ur.urQueueGetNativeHandle(queue.raw, null_mut(), &mut native);
    if !status.is_unsupported() {
        status.ok()?;
    }
    for _ in 0..200 {
        field.fill(&queue)?;
    }
    field.check(&queue, "behind a native handle")
}

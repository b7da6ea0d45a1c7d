//! Random programs over several queues, and the memory that exact reuse needs for them.

use anyhow::{Context as _, Result};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

/// A random program of `operations` operations, from a seed. Before each operation a queue joins another with
/// probability 0.1. An operation allocates with a probability of `allocations` percent. Each live block is
/// freed with probability 0.1, on a queue that follows its allocation.
pub(super) fn program(queues: u32, allocations: u64, seed: u64, operations: u32) -> String {
    let mut random = Random(0x5eed + u64::from(queues) + (allocations << 8) + (seed << 32));
    let count = queues as usize;
    // For each queue, the last command of every queue that it follows.
    let mut after = vec![vec![0_u64; count]; count];
    let mut live: Vec<(u64, u64, usize, u64)> = Vec::new();
    let (mut text, mut next, mut written) = (String::new(), 0_u64, 0);
    while written < operations {
        let queue = random.below(count as u64) as usize;
        if count > 1 && random.chance(10) {
            let other = random.below(count as u64) as usize;
            let theirs = after[other].clone();
            let own = after[queue][queue];
            after[queue]
                .iter_mut()
                .zip(theirs)
                .for_each(|(own, new)| *own = new.max(*own));
            after[queue][queue] = own.max(after[queue][queue]);
        }
        if random.chance(allocations) {
            let bytes = 4096 << random.below(14);
            line(&mut text, 'a', next, bytes, queue, &mut after[queue]);
            live.push((next, bytes, queue, after[queue][queue]));
            next += 1;
            written += 1;
        }
        let follows = |block: &(u64, u64, usize, u64)| after[queue][block.2] >= block.3;
        if let Some(at) = live
            .iter()
            .position(|block| follows(block) && random.chance(10))
        {
            let (id, bytes, ..) = live.swap_remove(at);
            line(&mut text, 'f', id, bytes, queue, &mut after[queue]);
            written += 1;
        }
    }
    text
}

/// A program of `allocations` allocations that never repeats. Sizes and lifetimes, the latter counted in
/// allocations, are drawn from a recorded program; queues from `queues`. Every block is freed on its own
/// queue.
pub(super) fn drawn(recorded: &str, queues: u64, seed: u64, allocations: u64) -> Result<String> {
    let mut drawn: Vec<(u64, u64)> = Vec::new();
    let mut live = HashMap::new();
    for line in recorded.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        let mut word = || words.next().context("a line of a trace");
        let (op, id, bytes) = (word()?, word()?, word()?.parse()?);
        match op {
            "a" => {
                live.insert(id, drawn.len());
                drawn.push((bytes, u64::MAX));
            }
            _ => {
                let at = live.remove(id).context("a free of what is live")?;
                drawn[at].1 = (drawn.len() - at) as u64;
            }
        }
    }
    let mut random = Random(0xd7a3 + queues + (seed << 32));
    let mut text = String::new();
    let mut due: BTreeMap<u64, Vec<(u64, u64, u64)>> = BTreeMap::new();
    for id in 0..allocations {
        let (bytes, lifetime) = drawn[random.below(drawn.len() as u64) as usize];
        let queue = random.below(queues);
        writeln!(text, "a {id} {bytes} {queue}")?;
        let end = id.saturating_add(lifetime).min(allocations);
        due.entry(end).or_default().push((id, bytes, queue));
        for (id, bytes, queue) in due.remove(&(id + 1)).unwrap_or_default() {
            writeln!(text, "f {id} {bytes} {queue}")?;
        }
    }
    Ok(text)
}

/// A program of `operations` operations on one queue, and the frees of what is left. It allocates while less than
/// 1152 MiB are live, else frees a random block. Blocks have 1 to `largest` times 8 MiB.
pub(super) fn steady(largest: u64, seed: u64, operations: u64) -> Result<String> {
    const UNITS: u64 = 144;
    const UNIT_BYTES: u64 = 8 << 20;
    let mut random = Random(0x57ea + largest + (seed << 32));
    let (mut text, mut live, mut used) = (String::new(), Vec::new(), 0);
    let mut next = 0_u64;
    for _ in 0..operations {
        if used < UNITS {
            let units = 1 + random.below(largest);
            writeln!(text, "a {next} {} 0", units * UNIT_BYTES)?;
            live.push((next, units));
            used += units;
            next += 1;
        } else {
            let (id, units) = live.swap_remove(random.below(live.len() as u64) as usize);
            writeln!(text, "f {id} {} 0", units * UNIT_BYTES)?;
            used -= units;
        }
    }
    for (id, units) in live {
        writeln!(text, "f {id} {} 0", units * UNIT_BYTES)?;
    }
    Ok(text)
}

/// One operation as a command of its queue.
fn line(text: &mut String, op: char, id: u64, bytes: u64, queue: usize, after: &mut [u64]) {
    after[queue] += 1;
    let points = after.iter().enumerate().filter(|(_, epoch)| **epoch > 0);
    let points: Vec<String> = points
        .map(|(lane, epoch)| format!("{lane}@{epoch}"))
        .collect();
    let points = if points.is_empty() {
        "-".to_owned()
    } else {
        points.join(",")
    };
    // A write into a string cannot fail.
    let _ = writeln!(text, "{op} {id} {bytes} {queue} {points} -");
}

/// SplitMix64 by Steele and Vigna.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A set of operations of a program.
#[derive(Clone, Default)]
struct Set(Vec<u64>);

impl Set {
    fn insert(&mut self, item: usize) {
        self.0.resize(self.0.len().max(item / 64 + 1), 0);
        self.0[item / 64] |= 1 << (item % 64);
    }

    fn unite(&mut self, other: &Set) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        let words = self.0.iter_mut().zip(&other.0);
        words.for_each(|(own, new)| *own |= new);
    }

    fn has(&self, item: usize) -> bool {
        let word = self.0.get(item / 64).copied().unwrap_or_default();
        word >> (item % 64) & 1 == 1
    }
}

struct Op {
    allocates: bool,
    bytes: u64,
    queue: u64,
    /// The operation with all operations before it.
    past: Set,
}

/// Reserved and live peaks under exact reuse.
///
/// An allocation takes any bytes that died before it in the transitive closure of the program's order, in
/// pieces of any size and place. Only the rest is new memory. The result is the lower of two orders of
/// choice. Another order could need less, so a pool may come out below.
pub(super) fn exact(program: &str) -> Result<f64> {
    let ops = parse(program).context("a line of a program")?;
    let held = [true, false].map(|newest_first| held(&ops, newest_first));
    let mut live = (0_u64, 0_u64);
    for op in &ops {
        live.0 = match op.allocates {
            true => live.0 + op.bytes,
            false => live.0.saturating_sub(op.bytes),
        };
        live.1 = live.1.max(live.0);
    }
    Ok(held[0].min(held[1]) as f64 / live.1 as f64)
}

fn parse(program: &str) -> Option<Vec<Op>> {
    let mut ops: Vec<Op> = Vec::new();
    let mut places: HashMap<(u64, u64), usize> = HashMap::new();
    for line in program.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [kind, _, bytes, queue, after, _] = words[..] else {
            return None;
        };
        let (at, queue) = (ops.len(), queue.parse().ok()?);
        let mut past = Set::default();
        past.insert(at);
        for point in after.split(',').filter(|point| *point != "-") {
            let (lane, epoch) = point.split_once('@')?;
            let (lane, mut epoch) = (lane.parse().ok()?, epoch.parse().ok()?);
            if lane == queue {
                // The operation's own queue: its entry is the operation before.
                places.insert((lane, epoch), at);
                epoch -= 1;
            }
            if epoch > 0 {
                past.unite(&ops.get(*places.get(&(lane, epoch))?)?.past);
            }
        }
        ops.push(Op {
            allocates: kind == "a",
            bytes: bytes.parse().ok()?,
            queue,
            past,
        });
    }
    Some(ops)
}

/// Bytes reserved at the end. Nothing is released.
fn held(ops: &[Op], newest_first: bool) -> u64 {
    let (mut reserved, mut dead) = (0, Vec::<(usize, u64)>::new());
    for (at, op) in ops.iter().enumerate() {
        if !op.allocates {
            dead.push((at, op.bytes));
            continue;
        }
        let mut want = op.bytes;
        let mut usable: Vec<usize> = (0..dead.len())
            .filter(|at| op.past.has(dead[*at].0))
            .collect();
        // Blocks of the own queue first: the fewest others can use them.
        usable.sort_by_key(|at| (ops[dead[*at].0].queue != op.queue, dead[*at].0));
        if newest_first {
            let foreign = usable.partition_point(|at| ops[dead[*at].0].queue == op.queue);
            usable[..foreign].reverse();
            usable[foreign..].reverse();
        }
        for at in usable {
            let reused = want.min(dead[at].1);
            dead[at].1 -= reused;
            want -= reused;
        }
        reserved += want;
        dead.retain(|(_, bytes)| *bytes > 0);
    }
    reserved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_free_what_they_follow() {
        let text = program(4, 30, 0, 2000);
        let mut born = std::collections::HashMap::new();
        let mut foreign = 0;
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let point = |lane: &str| {
                let mut points = words[4]
                    .split(',')
                    .filter_map(|point| point.split_once('@'));
                points
                    .find(|(own, _)| *own == lane)
                    .and_then(|(_, epoch)| epoch.parse::<u64>().ok())
            };
            let own = point(words[3]).unwrap_or_default();
            match words[0] {
                "a" => assert!(
                    born.insert(words[1].to_owned(), (words[3].to_owned(), own))
                        .is_none()
                ),
                _ => {
                    let (queue, epoch) = born.remove(words[1]).expect("it lives");
                    assert!(point(&queue).unwrap_or_default() >= epoch, "{line}");
                    foreign += u32::from(queue != words[3]);
                }
            }
        }
        assert!(foreign > 20 && text.lines().count() >= 2000);
    }

    #[test]
    fn exact_reuse_is_by_the_closure() {
        // Two queues: b takes a's bytes only after the free.
        let unordered = "a 0 64 0 0@1 -\nf 0 64 0 0@2 -\na 1 64 1 1@1 -\n";
        let ordered = "a 0 64 0 0@1 -\nf 0 64 0 0@2 -\na 1 64 1 0@2,1@1 -\n";
        // Through a third queue, which follows the free through the second only.
        let through = "a 0 64 0 0@1 -\nf 0 64 0 0@2 -\na 1 32 1 0@2,1@1 -\na 2 32 2 1@1,2@1 -\n";
        let found = [unordered, ordered, through].map(|text| exact(text).expect("it parses"));
        assert_eq!(found, [2.0, 1.0, 1.0]);
        assert!(exact("a 0\n").is_err());
    }

    #[test]
    fn exact_reuse_is_no_less_than_what_lives() {
        for queues in [1, 4] {
            let found = exact(&program(queues, 30, 0, 2000)).expect("it parses");
            assert!(found >= 1.0 && (queues > 1 || found == 1.0), "{found}");
        }
    }
}

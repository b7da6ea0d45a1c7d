//! The replay itself.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use ur::abi::*;

use crate::Answer;
use crate::api::{Bench, Block, Event, Loader, Queue};
use crate::outcome::{Iterations, Outcome, Reuse};
use crate::trace::{self, Kind, Op, Trace};

/// Runs the trace once; what it gave, and reserved and live bytes after each operation as CSV.
pub fn replay(loader: &Loader, trace: &Trace, work: usize, pace: u64) -> Answer<(Outcome, String)> {
    let bench = loader.bench()?;
    let mut run = Run {
        bench: &bench,
        queues: HashMap::new(),
        work,
        live: HashMap::new(),
        events: HashMap::new(),
        times: Vec::with_capacity(trace.ops.len()),
    };
    for stream in trace.streams() {
        let (queue, scratch) = (bench.queue()?, bench.alloc(work.max(1), false)?);
        run.queues.insert(stream, Line { queue, scratch });
    }
    let waits = trace::dependencies(trace);
    let mut wanted = vec![false; trace.ops.len()];
    waits.iter().flatten().for_each(|at| wanted[*at] = true);
    let (mut live, mut series) = (0_u64, String::from("op,reserved,live\n"));
    let pace = Duration::from_micros(pace);
    for (at, op) in trace.ops.iter().enumerate() {
        let start = Instant::now();
        run.op(at, op, &waits[at], wanted[at])?;
        match op.kind {
            Kind::Alloc => live = live.saturating_add(op.bytes),
            Kind::Free => live = live.saturating_sub(op.bytes),
            Kind::Wait => {}
        }
        let reserved = bench.figure(UR_USM_POOL_INFO_RESERVED_CURRENT_EXP);
        let _ = writeln!(series, "{at},{},{live}", reserved.unwrap_or_default());
        while start.elapsed() < pace {
            std::hint::spin_loop();
        }
    }
    let mut outcome = run.outcome(trace);
    run.settle()?;
    run.work = 0;
    outcome.warm_ns = run.again(trace)?;
    run.settle()?;
    Ok((outcome, series))
}

/// Runs the traces one after the other with one pool. All that one leaves live is freed before the next.
pub fn iterate(loader: &Loader, traces: &[Trace], work: usize) -> Answer<Iterations> {
    let bench = loader.bench()?;
    let mut run = Run {
        bench: &bench,
        queues: HashMap::new(),
        work,
        live: HashMap::new(),
        events: HashMap::new(),
        times: Vec::new(),
    };
    for stream in traces.iter().flat_map(Trace::streams) {
        if let Entry::Vacant(vacant) = run.queues.entry(stream) {
            let (queue, scratch) = (bench.queue()?, bench.alloc(work.max(1), false)?);
            vacant.insert(Line { queue, scratch });
        }
    }
    let mut ns = Vec::new();
    for trace in traces {
        let took = run.again(trace)?;
        ns.push(took.ok_or("iterations cannot have dependencies")?);
        run.settle()?;
    }
    Ok(Iterations {
        ns,
        reserved_high: bench.figure(UR_USM_POOL_INFO_RESERVED_HIGH_EXP),
        peak_live: traces.iter().map(Trace::peak_live).max().unwrap_or(0),
    })
}

/// A queue, and what work follows a free with. That is given back with the context.
struct Line<'a> {
    queue: Queue<'a>,
    scratch: Block,
}

struct Run<'a> {
    bench: &'a Bench<'a>,
    queues: HashMap<u64, Line<'a>>,
    work: usize,
    live: HashMap<u64, Block>,
    /// Of those operations that others wait for.
    events: HashMap<usize, Event<'a>>,
    /// What each call took, in nanoseconds.
    times: Vec<u64>,
}

impl Run<'_> {
    fn op(&mut self, at: usize, op: &Op, waits: &[usize], wanted: bool) -> Answer<()> {
        let events = waits.iter().filter_map(|at| self.events.get(at));
        let line = op.stream.and_then(|stream| self.queues.get(&stream));
        let (Some(line), false) = (line, op.kind == Kind::Wait) else {
            let events: Vec<&Event<'_>> = events.collect();
            self.bench.wait(&events)?;
            return self.op_of_host(op);
        };
        let handles: Vec<_> = events.map(Event::handle).collect();
        let bytes = op.bytes as usize;
        let event = if op.kind == Kind::Alloc {
            let start = Instant::now();
            let block = line.queue.alloc(bytes, &handles)?;
            self.times.push(start.elapsed().as_nanos() as u64);
            let event = self.behind(line, &block, wanted)?;
            self.live.insert(op.id, block);
            event
        } else {
            let block = self
                .live
                .remove(&op.id)
                .ok_or("a free of what is not live")?;
            let start = Instant::now();
            line.queue.free(block, &handles)?;
            self.times.push(start.elapsed().as_nanos() as u64);
            self.behind(line, &line.scratch, wanted)?
        };
        self.events.extend(event.map(|event| (at, event)));
        Ok(())
    }

    fn behind<'a>(
        &self,
        line: &Line<'a>,
        block: &Block,
        wanted: bool,
    ) -> Answer<Option<Event<'a>>> {
        match self.work == 0 && !wanted {
            true => Ok(None),
            false => line.queue.fill(block, self.work.max(1), wanted),
        }
    }

    fn op_of_host(&mut self, op: &Op) -> Answer<()> {
        let start = Instant::now();
        match op.kind {
            Kind::Alloc => {
                let block = self.bench.alloc(op.bytes as usize, true)?;
                self.live.insert(op.id, block);
            }
            Kind::Free => {
                let block = self
                    .live
                    .remove(&op.id)
                    .ok_or("a free of what is not live")?;
                self.bench.free(block)?;
            }
            Kind::Wait => return Ok(()),
        }
        self.times.push(start.elapsed().as_nanos() as u64);
        Ok(())
    }

    fn outcome(&mut self, trace: &Trace) -> Outcome {
        let figure = |what| self.bench.figure(what);
        let cost = clock_cost();
        let times = &mut self.times;
        times
            .iter_mut()
            .for_each(|time| *time = time.saturating_sub(cost));
        times.sort_unstable();
        let at = |part: f64| {
            times
                .get((times.len().saturating_sub(1) as f64 * part) as usize)
                .copied()
        };
        let sum: u64 = times.iter().sum();
        let own = figure(UR_USM_POOL_INFO_HITS_OWN_EXT);
        let reuse = own.map(|own| {
            let count = |what| figure(what).unwrap_or_default();
            Reuse {
                own,
                ordered: count(UR_USM_POOL_INFO_HITS_ORDERED_EXT),
                completed: count(UR_USM_POOL_INFO_HITS_COMPLETED_EXT),
                waited: count(UR_USM_POOL_INFO_HITS_WAITED_EXT),
                grown: count(UR_USM_POOL_INFO_HITS_GROWN_EXT),
            }
        });
        Outcome {
            device: self.bench.device_name(),
            operations: times.len() as u64,
            mean_ns: sum as f64 / times.len().max(1) as f64,
            median_ns: at(0.5).unwrap_or_default(),
            p999_ns: at(0.999).unwrap_or_default(),
            reserved_high: figure(UR_USM_POOL_INFO_RESERVED_HIGH_EXP),
            peak_live: trace.peak_live(),
            reuse,
            ..Outcome::default()
        }
    }

    /// The mean time of a call without a look at the clock between calls: the
    /// processor's time for this thread, so that a busy machine does not count.
    /// None where a trace has dependencies, which take calls of their own.
    fn again(&mut self, trace: &Trace) -> Answer<Option<f64>> {
        let plain = |op: &Op| op.stream.is_some() && op.after.is_empty();
        if !trace.ops.iter().all(plain) {
            return Ok(None);
        }
        // Looked up before.
        let lines: Vec<&Line<'_>> = trace
            .ops
            .iter()
            .filter_map(|op| self.queues.get(&op.stream?))
            .collect();
        // A place for each number, which may be any, also looked up before.
        let mut places = HashMap::new();
        let numbered = trace.ops.iter().map(|op| {
            let next = places.len();
            *places.entry(op.id).or_insert(next)
        });
        let numbered: Vec<usize> = numbered.collect();
        let mut blocks: Vec<Option<Block>> = Vec::new();
        blocks.resize_with(places.len(), || None);
        let start = thread_time();
        for ((op, line), place) in trace.ops.iter().zip(lines).zip(numbered) {
            let place = &mut blocks[place];
            match op.kind {
                Kind::Alloc => {
                    let block = line.queue.alloc(op.bytes as usize, &[])?;
                    self.behind(line, &block, false)?;
                    *place = Some(block);
                }
                Kind::Free | Kind::Wait => {
                    let block = place.take().ok_or("a free of what is not live")?;
                    line.queue.free(block, &[])?;
                    self.behind(line, &line.scratch, false)?;
                }
            }
        }
        let took = thread_time().saturating_sub(start) as f64;
        let left = blocks.into_iter().flatten().zip(0..);
        self.live.extend(left.map(|(block, id)| (id, block)));
        Ok(Some(took / trace.ops.len().max(1) as f64))
    }

    /// Nothing is pending or live any more.
    fn settle(&mut self) -> Answer<()> {
        for line in self.queues.values() {
            line.queue.finish()?;
        }
        self.events.clear();
        self.live
            .drain()
            .try_for_each(|(_, block)| self.bench.free(block))
    }
}

/// Nanoseconds that the processor has spent on this thread.
fn thread_time() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the output is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What two looks at the clock cost by themselves, in nanoseconds.
fn clock_cost() -> u64 {
    let mut times: Vec<u64> = (0..1001)
        .map(|_| Instant::now().elapsed().as_nanos() as u64)
        .collect();
    times.sort_unstable();
    times[500]
}

//! Replays of traces.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use ur::abi::*;

use crate::Answer;
use crate::api::{Block, Event, Loader, Queue, Session};
use crate::outcome::{Iterations, Outcome, Reuse};
use crate::trace::{self, Kind, Op, Trace};

/// Runs a trace once. Returns its outcome, and a CSV of reserved and live bytes after each
/// operation.
///
/// `work` is the size of a fill after each operation in bytes; `pace` is the least time between two
/// operations in microseconds.
pub fn replay(loader: &Loader, trace: &Trace, work: usize, pace: u64) -> Answer<(Outcome, String)> {
    let session = loader.session()?;
    let mut run = Run {
        session: &session,
        queues: HashMap::new(),
        work,
        live: HashMap::new(),
        events: HashMap::new(),
        times: Vec::with_capacity(trace.ops.len()),
    };
    for stream in trace.streams() {
        let (handle, scratch) = (session.queue()?, session.alloc(work.max(1), false)?);
        run.queues.insert(stream, ReplayQueue { handle, scratch });
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
        let reserved = session.pool_property(UR_USM_POOL_INFO_RESERVED_CURRENT_EXP);
        let _ = writeln!(series, "{at},{},{live}", reserved.unwrap_or_default());
        while start.elapsed() < pace {
            std::hint::spin_loop();
        }
    }
    let mut outcome = run.outcome(trace);
    run.drain_all()?;
    run.work = 0;
    outcome.warm_ns = run.warm_pass(trace)?;
    run.drain_all()?;
    Ok((outcome, series))
}

/// Runs traces one after the other with one pool. Memory that a trace leaves live is freed before
/// the next one.
pub fn iterate(loader: &Loader, traces: &[Trace], work: usize) -> Answer<Iterations> {
    let session = loader.session()?;
    let mut run = Run {
        session: &session,
        queues: HashMap::new(),
        work,
        live: HashMap::new(),
        events: HashMap::new(),
        times: Vec::new(),
    };
    for stream in traces.iter().flat_map(Trace::streams) {
        if let Entry::Vacant(vacant) = run.queues.entry(stream) {
            let (handle, scratch) = (session.queue()?, session.alloc(work.max(1), false)?);
            vacant.insert(ReplayQueue { handle, scratch });
        }
    }
    let mut ns = Vec::new();
    for trace in traces {
        let took = run.warm_pass(trace)?;
        ns.push(took.ok_or("iterations cannot have dependencies")?);
        run.drain_all()?;
    }
    Ok(Iterations {
        ns,
        reserved_high: session.pool_property(UR_USM_POOL_INFO_RESERVED_HIGH_EXP),
        peak_live: traces.iter().map(Trace::peak_live).max().unwrap_or(0),
    })
}

/// A queue with memory for the work that follows a free. The context's release frees that memory.
struct ReplayQueue<'a> {
    handle: Queue<'a>,
    scratch: Block,
}

struct Run<'a> {
    session: &'a Session<'a>,
    queues: HashMap<u64, ReplayQueue<'a>>,
    work: usize,
    live: HashMap<u64, Block>,
    /// Events of operations that others wait for.
    events: HashMap<usize, Event<'a>>,
    /// The time of each call in nanoseconds.
    times: Vec<u64>,
}

impl Run<'_> {
    fn op(&mut self, at: usize, op: &Op, waits: &[usize], wanted: bool) -> Answer<()> {
        let events = waits.iter().filter_map(|at| self.events.get(at));
        let queue = op.stream.and_then(|stream| self.queues.get(&stream));
        let (Some(queue), false) = (queue, op.kind == Kind::Wait) else {
            let events: Vec<&Event<'_>> = events.collect();
            self.session.wait(&events)?;
            return self.host_op(op);
        };
        let handles: Vec<_> = events.map(Event::handle).collect();
        let bytes = op.bytes as usize;
        let event = if op.kind == Kind::Alloc {
            let start = Instant::now();
            let block = queue.handle.alloc(bytes, &handles)?;
            self.times.push(start.elapsed().as_nanos() as u64);
            let event = self.submit_work(queue, &block, wanted)?;
            self.live.insert(op.id, block);
            event
        } else {
            let block = self
                .live
                .remove(&op.id)
                .ok_or("a free of memory that is not live")?;
            let start = Instant::now();
            queue.handle.free(block, &handles)?;
            self.times.push(start.elapsed().as_nanos() as u64);
            self.submit_work(queue, &queue.scratch, wanted)?
        };
        self.events.extend(event.map(|event| (at, event)));
        Ok(())
    }

    fn submit_work<'a>(
        &self,
        queue: &ReplayQueue<'a>,
        block: &Block,
        wanted: bool,
    ) -> Answer<Option<Event<'a>>> {
        match self.work == 0 && !wanted {
            true => Ok(None),
            false => queue.handle.fill(block, self.work.max(1), wanted),
        }
    }

    fn host_op(&mut self, op: &Op) -> Answer<()> {
        let start = Instant::now();
        match op.kind {
            Kind::Alloc => {
                let block = self.session.alloc(op.bytes as usize, true)?;
                self.live.insert(op.id, block);
            }
            Kind::Free => {
                let block = self
                    .live
                    .remove(&op.id)
                    .ok_or("a free of memory that is not live")?;
                self.session.free(block)?;
            }
            Kind::Wait => return Ok(()),
        }
        self.times.push(start.elapsed().as_nanos() as u64);
        Ok(())
    }

    fn outcome(&mut self, trace: &Trace) -> Outcome {
        let pool_property = |what| self.session.pool_property(what);
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
        let own = pool_property(UR_USM_POOL_INFO_HITS_OWN_EXT);
        let reuse = own.map(|own| {
            let count = |what| pool_property(what).unwrap_or_default();
            Reuse {
                own,
                ordered: count(UR_USM_POOL_INFO_HITS_ORDERED_EXT),
                completed: count(UR_USM_POOL_INFO_HITS_COMPLETED_EXT),
                waited: count(UR_USM_POOL_INFO_HITS_WAITED_EXT),
                grown: count(UR_USM_POOL_INFO_HITS_GROWN_EXT),
            }
        });
        Outcome {
            device: self.session.device_name(),
            operations: times.len() as u64,
            mean_ns: sum as f64 / times.len().max(1) as f64,
            median_ns: at(0.5).unwrap_or_default(),
            p999_ns: at(0.999).unwrap_or_default(),
            reserved_high: pool_property(UR_USM_POOL_INFO_RESERVED_HIGH_EXP),
            peak_live: trace.peak_live(),
            reuse,
            ..Outcome::default()
        }
    }

    /// Runs the trace once more, and returns the mean time of an operation in nanoseconds.
    ///
    /// The time is the processor time of this thread, read once, so that other processes do not
    /// count. None for a trace with dependencies, which need further calls.
    fn warm_pass(&mut self, trace: &Trace) -> Answer<Option<f64>> {
        let plain = |op: &Op| op.stream.is_some() && op.after.is_empty();
        if !trace.ops.iter().all(plain) {
            return Ok(None);
        }
        // Looked up in advance, so that the lookups are not measured.
        let queues: Vec<&ReplayQueue<'_>> = trace
            .ops
            .iter()
            .filter_map(|op| self.queues.get(&op.stream?))
            .collect();
        // Ids may be any numbers. They are mapped to slots in advance.
        let mut slots = HashMap::new();
        let numbered = trace.ops.iter().map(|op| {
            let next = slots.len();
            *slots.entry(op.id).or_insert(next)
        });
        let numbered: Vec<usize> = numbered.collect();
        let mut blocks: Vec<Option<Block>> = Vec::new();
        blocks.resize_with(slots.len(), || None);
        let start = thread_time();
        for ((op, queue), slot) in trace.ops.iter().zip(queues).zip(numbered) {
            let slot = &mut blocks[slot];
            match op.kind {
                Kind::Alloc => {
                    let block = queue.handle.alloc(op.bytes as usize, &[])?;
                    self.submit_work(queue, &block, false)?;
                    *slot = Some(block);
                }
                Kind::Free | Kind::Wait => {
                    let block = slot.take().ok_or("a free of memory that is not live")?;
                    queue.handle.free(block, &[])?;
                    self.submit_work(queue, &queue.scratch, false)?;
                }
            }
        }
        let took = thread_time().saturating_sub(start) as f64;
        let left = blocks.into_iter().flatten().zip(0..);
        self.live.extend(left.map(|(block, id)| (id, block)));
        Ok(Some(took / trace.ops.len().max(1) as f64))
    }

    /// Waits for all work, and frees all live memory.
    fn drain_all(&mut self) -> Answer<()> {
        for queue in self.queues.values() {
            queue.handle.finish()?;
        }
        self.events.clear();
        self.live
            .drain()
            .try_for_each(|(_, block)| self.session.free(block))
    }
}

/// The processor time of this thread in nanoseconds.
fn thread_time() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a local variable.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The time of reading the clock twice, in nanoseconds.
fn clock_cost() -> u64 {
    let mut times: Vec<u64> = (0..1001)
        .map(|_| Instant::now().elapsed().as_nanos() as u64)
        .collect();
    times.sort_unstable();
    times[500]
}

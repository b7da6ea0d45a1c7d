//! Figures that are no mean of one thing: how threads scale beside arithmetic's, the slowest of a
//! thousand pairs beside the median, the order of an enqueue by the number of queues. A line each:
//! a name, a tab, a number.

use crate::api::Fixture;
use crate::clock::Web;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const ROUNDS: usize = 9;
/// Of threads with arithmetic.
const SAMPLES: usize = 41;
const PAIRS: u64 = 100_000;
const BYTES: usize = 4096;

pub fn print() {
    let fixture = Fixture::new();
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    for threads in [1, 2, 4, 8].into_iter().filter(|threads| *threads <= cores) {
        let Rates {
            rate,
            made,
            alone,
            beside,
        } = rates(&fixture, threads);
        println!("rate {threads}\t{rate:.0}");
        println!("pairs {threads}\t{made:.4}\narithmetic {threads}\t{alone:.4}");
        println!("beside {threads}\t{beside:.4}");
    }
    let (median, slow) = tail(&fixture, 2.min(cores));
    println!("median\t{median:.1}\np99.9\t{slow:.1}");
    for queues in [4, 8, 16, 32, 64] {
        println!("clock {queues}\t{:.1}", order(queues));
    }
}

/// Runs the same on so many threads at once, between a beginning and an end of each; the longest time.
pub fn together<S>(
    threads: usize,
    begin: impl Fn() -> S + Sync,
    run: impl Fn(&mut S) + Sync,
    end: impl Fn(S) + Sync,
) -> Duration {
    let start = Barrier::new(threads);
    let one = || {
        let mut state = begin();
        start.wait();
        let began = Instant::now();
        run(&mut state);
        let took = began.elapsed();
        end(state);
        took
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        let took = workers.into_iter().map(|worker| worker.join());
        took.map(|took| took.expect("no thread fails"))
            .max()
            .unwrap_or_default()
    })
}

/// The time that `threads` threads take for so many pairs each, each on a queue of its own.
pub fn pairs(fixture: &Fixture, threads: usize, pairs: u64) -> Duration {
    let begin = || {
        let queue = fixture.queue();
        fixture.pair(queue, BYTES);
        queue
    };
    let run = |queue: &mut _| (0..pairs).for_each(|_| fixture.pair(*queue, BYTES));
    together(threads, begin, run, |queue| fixture.release(queue))
}

/// A loop that touches no memory of another thread and keeps a core's units busy as the pair does. Two threads
/// that share a core, as those of virtual machines often do, slow each other down in both. A single chain of steps would leave room for another one beside it.
fn arithmetic(threads: usize, steps: u64) -> Duration {
    let run = |state: &mut [u64; 6]| {
        for step in 0..20 * steps {
            for (chain, shift) in state.iter_mut().zip([3, 5, 7, 9, 4, 6]) {
                *chain = black_box(chain.wrapping_add(step) ^ (*chain >> shift));
            }
        }
    };
    together(
        threads,
        || [1; 6],
        run,
        |state| {
            black_box(state);
        },
    )
}

struct Rates {
    /// Pairs a second that so many threads make together.
    rate: f64,
    /// How many times one thread's that is.
    made: f64,
    /// Scaling of arithmetic, measured alternately with the pairs.
    alone: f64,
    /// Their ratio within a sample: the machine's speed may change between samples.
    beside: f64,
}

fn rates(fixture: &Fixture, threads: usize) -> Rates {
    let times =
        |one: Duration, all: Duration| threads as f64 * one.as_secs_f64() / all.as_secs_f64();
    let sample = |_| {
        let (one, all) = (pairs(fixture, 1, PAIRS), pairs(fixture, threads, PAIRS));
        let rate = (threads as u64 * PAIRS) as f64 / all.as_secs_f64();
        let made = times(one, all);
        let (one, all) = (arithmetic(1, PAIRS), arithmetic(threads, PAIRS));
        let alone = times(one, all);
        [rate, made, alone, made / alone]
    };
    let samples: Vec<_> = (0..SAMPLES).map(sample).collect();
    let [rate, made, alone, beside] =
        std::array::from_fn(|at| median(samples.iter().map(|sample| sample[at]).collect()));
    Rates {
        rate,
        made,
        alone,
        beside,
    }
}

/// The median of a pair and the time that one of a thousand exceeds, in nanoseconds, the clock's own
/// included.
fn tail(fixture: &Fixture, threads: usize) -> (f64, f64) {
    let all = std::sync::Mutex::new(Vec::new());
    let begin = || (fixture.queue(), Vec::with_capacity(PAIRS as usize));
    let run = |(queue, times): &mut (_, Vec<f64>)| {
        for _ in 0..PAIRS {
            let began = Instant::now();
            fixture.pair(*queue, BYTES);
            times.push(began.elapsed().as_nanos() as f64);
        }
    };
    together(threads, begin, run, |(queue, times)| {
        fixture.release(queue);
        all.lock().expect("no thread fails").extend(times);
    });
    let mut all = all.into_inner().expect("no thread fails");
    all.sort_by(f64::total_cmp);
    (all[all.len() / 2], all[all.len() - all.len() / 1000 - 1])
}

/// Nanoseconds of [`Web::enqueue`] with four commands of each queue outstanding, over so many that each
/// queue comes twice to other middles for its epochs.
fn order(queues: usize) -> f64 {
    let mut web = Web::new(queues, Some(4));
    let commands = 100_000 * queues;
    let round = |_| {
        let began = Instant::now();
        (0..commands).for_each(|_| web.enqueue());
        began.elapsed().as_nanos() as f64 / commands as f64
    };
    median((0..ROUNDS).map(round).collect())
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

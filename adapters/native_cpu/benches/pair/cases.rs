//! Cases whose instructions are counted: each repeats one thing so often as it is told, so that the
//! difference of two runs is what that costs.

use crate::api::Bench;
use crate::clock::Web;
use std::hint::black_box;

/// What is repeated, by name.
pub fn repeat(case: &str, times: u64) -> Result<(), String> {
    match case.split_once(' ') {
        Some(("pair", bytes)) => pairs(number(bytes)?, times, Bench::pair),
        Some(("turns", bytes)) => turns(number(bytes)?, times),
        Some(("events", bytes)) => pairs(number(bytes)?, times, Bench::pair_with_events),
        Some(("clock", queues)) => clock(Web::new(number(queues)?, None), times),
        Some(("clock-running", queues)) => clock(Web::new(number(queues)?, Some(4)), times),
        _ => return Err(format!("no case {case}")),
    }
    Ok(())
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|error| format!("{text}: {error}"))
}

type Pair = fn(&Bench, ur::abi::ur_queue_handle_t, usize);

fn pairs(bytes: usize, times: u64, pair: Pair) {
    let bench = Bench::new();
    let queue = bench.queue();
    // The first ones grow.
    (0..16).for_each(|_| pair(&bench, queue, bytes));
    (0..times).for_each(|_| pair(&bench, queue, black_box(bytes)));
    bench.release(queue);
}

/// Pairs of four queues in turns, of so many each that they seldom miss what another has now.
fn turns(bytes: usize, times: u64) {
    const TURN: u64 = 200;
    let bench = Bench::new();
    let queues = [(); 4].map(|()| bench.queue());
    let pair = |nth: u64| bench.pair(queues[(nth / TURN % 4) as usize], black_box(bytes));
    // The first turns are watched.
    (0..256 * TURN).for_each(pair);
    (0..times).for_each(pair);
    queues.into_iter().for_each(|queue| bench.release(queue));
}

fn clock(mut web: Web, times: u64) {
    (0..times).for_each(|_| web.enqueue());
}

//! Cases whose instructions are counted: each repeats one thing so often as it is told, so that the
//! difference of two runs is what that costs.

use crate::api::Bench;
use crate::clock::Web;
use std::hint::black_box;

/// What is repeated, by name.
pub fn repeat(case: &str, times: u64) -> Result<(), String> {
    match case.split_once(' ') {
        Some(("pair", bytes)) => pairs(number(bytes)?, times, Bench::pair),
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

fn clock(mut web: Web, times: u64) {
    (0..times).for_each(|_| web.enqueue());
}

//! Cases whose instructions are counted: each repeats one thing so often as it is told, so that the
//! difference of two runs is what that costs.

use crate::api::Fixture;
use crate::clock::Web;
use std::hint::black_box;

/// What is repeated, by name.
pub fn repeat(case: &str, times: u64) -> Result<(), String> {
    match case.split_once(' ') {
        Some(("pair", bytes)) => pairs(number(bytes)?, times, Fixture::pair),
        Some(("turns", bytes)) => rounds(number(bytes)?, times),
        Some(("random", queues)) => random(number(queues)?, times),
        Some(("events", bytes)) => pairs(number(bytes)?, times, Fixture::pair_with_events),
        Some(("clock", queues)) => clock(Web::new(number(queues)?, None), times),
        Some(("clock-running", queues)) => clock(Web::new(number(queues)?, Some(4)), times),
        _ => return Err(format!("no case {case}")),
    }
    Ok(())
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|error| format!("{text}: {error}"))
}

type Pair = fn(&Fixture, ur::abi::ur_queue_handle_t, usize);

fn pairs(bytes: usize, times: u64, pair: Pair) {
    let fixture = Fixture::new();
    let queue = fixture.queue();
    // The first ones grow.
    (0..16).for_each(|_| pair(&fixture, queue, bytes));
    (0..times).for_each(|_| pair(&fixture, queue, black_box(bytes)));
    fixture.release(queue);
}

/// Pairs on four queues in rounds, so long that a queue seldom needs a block of another.
fn rounds(bytes: usize, times: u64) {
    const ROUND_PAIRS: u64 = 200;
    let fixture = Fixture::new();
    let queues = [(); 4].map(|()| fixture.queue());
    let pair = |nth: u64| fixture.pair(queues[(nth / ROUND_PAIRS % 4) as usize], black_box(bytes));
    // The pool observes the first rounds.
    (0..256 * ROUND_PAIRS).for_each(pair);
    (0..times).for_each(pair);
    queues.into_iter().for_each(|queue| fixture.release(queue));
}

/// Allocations of ever other sizes on several queues, each after the free of another: most are served by the pool, since
/// no cache has their size.
fn random(queues: usize, times: u64) {
    const LIVE: usize = 400;
    const UNIT_BYTES: usize = 64 << 10;
    const MAX_UNITS: u64 = 256;
    let fixture = Fixture::new();
    let queues: Vec<_> = (0..queues).map(|_| fixture.queue()).collect();
    let mut state = 1_u64;
    // Knuth's linear congruential generator (vol. 2, 3.3.4).
    let mut below = |end: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    let mut live = Vec::new();
    for _ in 0..LIVE as u64 * 20 + times {
        if live.len() == LIVE {
            let (queue, memory) = live.swap_remove(below(LIVE as u64) as usize);
            fixture.free(queue, memory);
        }
        let queue = queues[below(queues.len() as u64) as usize];
        let bytes = UNIT_BYTES * (1 + below(MAX_UNITS) as usize);
        live.push((queue, fixture.alloc(queue, bytes)));
    }
    for (queue, memory) in live {
        fixture.free(queue, memory);
    }
    queues.into_iter().for_each(|queue| fixture.release(queue));
}

fn clock(mut web: Web, times: u64) {
    (0..times).for_each(|_| web.enqueue());
}

//! Random programs on the pool and on the oracle: no illegal reuse, no missed reuse, and correct statistics.
//!
//! `UR_LONG=1` raises 10^5 operations to 10^7. A failure prints the shortest program that still fails, in the
//! notation of `pool_scripts.rs`.

use std::collections::BTreeMap;
use ur::pool::WaitPolicy;
use ur::pool::oracle::{self, Random, Script};

fn refuted(script: &Script, caches: bool) -> Option<String> {
    oracle::run_with(script, caches)
        .err()
        .filter(|why| !why.contains("invalid"))
}

fn programs(first_seed: u64, operations: usize, length: usize) {
    let seen = all_legal(first_seed, operations, length, Random::script);
    // A program that never reaches a feature proves nothing about it.
    let floor = (operations * scale() / 1000) as u64;
    let special = |kind: &str| kind.contains("plan") || kind.contains("host");
    let mut usual = seen.iter().filter(|(kind, _)| !special(kind));
    let often = |(_, times): (_, &u64)| *times > floor;
    assert!(usual.all(often), "too seldom: {seen:?}");
    println!("{seen:?}");
}

fn all_legal(
    first_seed: u64,
    operations: usize,
    length: usize,
    program: impl Fn(u64, usize) -> Script,
) -> BTreeMap<&'static str, u64> {
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..(operations * scale() / length) as u64 {
        let script = program(first_seed + seed, length);
        // Blocks that lanes cache must not change which reuse is legal or found.
        let caches = seed % 4 != 0;
        match oracle::run_with(&script, caches) {
            Ok(report) => {
                let counters = report.pool.counters();
                let blocked = report.outcomes.iter().filter(|one| one.blocks > 0);
                for (kind, times) in [
                    ("own lane", counters.own_lane),
                    ("kept by the lane", report.cached),
                    ("ordered", counters.ordered),
                    ("completed", counters.completed),
                    ("waited", counters.waited),
                    ("grown", counters.grown),
                    ("failed", counters.failed),
                    ("served after the host waited", blocked.count() as u64),
                    ("slabs given back", counters.trims),
                    ("compacted", counters.compactions),
                    ("replay plans", counters.replay_plans),
                    ("served by plans", counters.replayed),
                    ("shared plans", counters.shared_plans),
                    ("served by shared plans", counters.replayed_shared),
                ] {
                    *seen.entry(kind).or_default() += times;
                }
            }
            Err(why) => {
                let short = oracle::shrink(&script, |script| refuted(script, caches).is_some());
                let now = refuted(&short, caches).unwrap_or(why);
                panic!(
                    "seed {}, caches {caches}: {now}\n{short}",
                    first_seed + seed
                );
            }
        }
    }
    seen
}

fn scale() -> usize {
    match std::env::var_os("UR_LONG") {
        Some(_) => 100,
        None => 1,
    }
}

/// Memory that a replay plan gives a lane is as legal as any other.
#[test]
fn programs_that_repeat_iterations() {
    let operations = 60_000;
    let seen = all_legal(1 << 34, operations, 800, Random::iterations);
    println!("{seen:?}");
    let enough = |kind, of: usize| seen[kind] > (operations * scale() / of) as u64;
    assert!(
        enough("replay plans", 2000) && enough("served by plans", 50),
        "too seldom: {seen:?}"
    );
}

/// Memory that a shared plan gives several lanes is as legal as any other.
#[test]
fn programs_whose_queues_repeat_iterations_together() {
    let operations = 60_000;
    let seen = all_legal(1 << 35, operations, 800, Random::iterations_together);
    println!("{seen:?}");
    let enough = |kind, of: usize| seen[kind] > (operations * scale() / of) as u64;
    assert!(
        enough("shared plans", 6000) && enough("served by shared plans", 400),
        "too seldom: {seen:?}"
    );
}

/// Programs whose pool has mostly pending memory under a maximum.
///
/// The host waits before a request fails.
#[test]
fn programs_under_a_maximum() {
    let seen = all_legal(5_000_000, 40_000, 60, |seed, length| {
        let mut script = Random::script(seed, length);
        let setup = &mut script.setup;
        setup.blocks = true;
        setup.config.waits = match seed % 3 {
            0 => WaitPolicy::Always,
            _ => WaitPolicy::Bounded,
        };
        setup.config.max_bytes = Some(2048 + 512 * (seed % 12));
        setup.config.chunk_bytes = 0;
        script
    });
    let blocked = seen["served after the host waited"];
    assert!(blocked > 50 * scale() as u64, "too seldom: {seen:?}");
    println!("{seen:?}");
}

/// A stream that is alone in its pool coalesces what it frees; with the second one that ends.
#[test]
fn programs_of_streams_that_coalesce() {
    let seen = all_legal(1 << 36, 60_000, 200, |seed, length| {
        let mut script = Random::script(seed, length);
        let setup = &mut script.setup;
        setup.paged = true;
        setup.granularity = [128, 256, 1024][seed as usize % 3];
        // Bins are for a few of the least blocks.
        setup.config.min_align = 16;
        setup.config.options.coalescing = true;
        setup.config.options.replay = false;
        script
    });
    let enough = seen["kept by the lane"] > 500 * scale() as u64;
    assert!(enough && seen["compacted"] > 0, "too seldom: {seen:?}");
    println!("{seen:?}");
}

#[test]
fn short_programs() {
    programs(0, 20_000, 25);
}

#[test]
fn programs_of_a_few_hundred_steps() {
    programs(1 << 32, 65_000, 250);
}

#[test]
fn long_programs() {
    programs(1 << 33, 15_000, 1000);
}

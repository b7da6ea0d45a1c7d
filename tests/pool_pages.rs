//! Pools whose memory comes in pages of several sizes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use ur::pool::oracle::{FakeProvider, Rng};
use ur::pool::*;
use ur::timeline::{Frontier, Lane};

const PAGE: u64 = 1024;
const LARGE: u64 = 4096;

fn make(max_bytes: Option<u64>, largest: u64) -> (Arc<FakeProvider>, Pool<Arc<FakeProvider>>) {
    make_with(max_bytes, largest, Compaction::default())
}

fn make_with(
    max_bytes: Option<u64>,
    largest: u64,
    compaction: Compaction,
) -> (Arc<FakeProvider>, Pool<Arc<FakeProvider>>) {
    make_on(FakeProvider::mixed(PAGE, largest), max_bytes, compaction)
}

fn make_on(
    provider: FakeProvider,
    max_bytes: Option<u64>,
    compaction: Compaction,
) -> (Arc<FakeProvider>, Pool<Arc<FakeProvider>>) {
    let provider = Arc::new(provider);
    let config = Config {
        min_align: 64,
        max_bytes,
        options: Options {
            compaction,
            // Pages are small here.
            growth_mib: 0,
            page_mib: 0,
            ..Options::default()
        },
        ..Config::default()
    };
    let pool = Pool::new(Arc::clone(&provider), config);
    (provider, pool)
}

fn alloc(pool: &Pool<Arc<FakeProvider>>, bytes: u64) -> Result<Block, PoolError> {
    let request = Request::new(bytes, Order::Sync);
    pool.acquire(&request).map(|acquired| acquired.block())
}

#[test]
fn page_sizes_grow_with_the_reserved_bytes() {
    let (provider, pool) = make(None, LARGE);
    let mut seen = BTreeSet::new();
    for _ in 0..200 {
        let before = (pool.figures().reserved, provider.mapped());
        alloc(&pool, LARGE).expect("there is no limit");
        let (step, mapped) = (
            pool.figures().reserved - before.0,
            provider.mapped() - before.1,
        );
        if step == 0 {
            continue;
        }
        let page = match before.0 + step {
            held if held >= 16 * LARGE => LARGE,
            held if held >= 16 * 2 * PAGE => 2 * PAGE,
            _ => PAGE,
        };
        assert_eq!(mapped, step.div_ceil(page), "{before:?} {step}");
        assert!(step >= before.0 / 32, "growth in steps: {before:?} {step}");
        seen.insert(page);
    }
    assert_eq!(seen.len(), 3);
    assert_eq!(provider.slabs().len(), 1, "number of contiguous ranges");
    assert_eq!(provider.wrong(), [""; 0]);
}

#[test]
fn a_maximum_is_used_to_its_last_page() {
    let most = 400 * LARGE + PAGE;
    let (_, pool) = make(Some(most), 4 * LARGE);
    for _ in 0..most / (8 * LARGE) {
        alloc(&pool, 8 * LARGE).expect("there is room");
    }
    alloc(&pool, PAGE).expect("there is room");
    assert_eq!(pool.figures().reserved, most);
    assert!(alloc(&pool, 64).is_err());
}

#[test]
fn pages_of_all_sizes_are_compacted_and_released_whole() {
    let mut sizes = BTreeSet::new();
    for seed in 0..20 {
        let (provider, pool) = make_with(None, 16 * LARGE, Compaction::Always);
        let (mut rng, mut live) = (Rng::new(seed), BTreeMap::new());
        for step in 0..3_000 {
            // Most of the time much is live, and sometimes hardly anything.
            let much = step % 1_000 < 700;
            if live.is_empty() || rng.chance(if much { 55 } else { 25 }) {
                let now = || {
                    (
                        pool.figures().reserved,
                        provider.mapped(),
                        pool.counters().compactions,
                    )
                };
                let before = now();
                let wanted = match rng.below(3) {
                    0 => 16 * LARGE * (1 + rng.below(2)),
                    _ => 1 + rng.below(24 * LARGE),
                };
                let block = alloc(&pool, wanted).expect("there is no limit");
                let after = now();
                if after.0 > before.0 && after.2 == before.2 {
                    sizes.insert((after.0 - before.0) / (after.1 - before.1));
                }
                let before = live.range(..=block.addr).next_back();
                assert!(before.is_none_or(|(addr, bytes)| addr + bytes <= block.addr));
                let after = live.range(block.addr..).next();
                assert!(after.is_none_or(|(addr, _)| block.addr + block.bytes <= *addr));
                live.insert(block.addr, block.bytes);
            } else {
                let at = rng.below(live.len() as u64) as usize;
                let addr = *live.keys().nth(at).expect("there are that many");
                live.remove(&addr);
                pool.release(addr, Frontier::new()).expect("it is live");
            }
            if step % 500 == 499 {
                pool.expire();
                pool.trim(pool.figures().used);
            }
        }
        assert!(pool.counters().compactions > 0, "seed {seed}");
        for addr in live.keys() {
            pool.release(*addr, Frontier::new()).expect("it is live");
        }
        pool.expire();
        pool.trim(0);
        assert_eq!(pool.figures().reserved, 0);
        assert_eq!(provider.extents(), []);
        assert_eq!(provider.wrong(), [""; 0], "seed {seed}");
    }
    assert!(sizes.len() > 3, "{sizes:?}");
}

/// What a pool held in a steady mix of sizes.
#[derive(Debug, PartialEq)]
struct Held {
    /// Pages that growth mapped, and pages that were remapped.
    grown: u64,
    remapped: u64,
    /// Peak reserved over peak used bytes in percent.
    percent: u64,
}

/// Runs a program that has 300 pages in use, in blocks of up to `largest` pages.
fn churn(options: Options, max_bytes: Option<u64>, (largest, seed): (u64, u64)) -> Held {
    let provider = Arc::new(FakeProvider::mixed(PAGE, 2 * PAGE).leaving_mapped());
    let config = Config {
        min_align: 64,
        max_bytes,
        options: Options {
            // Pages are small here.
            growth_mib: 0,
            page_mib: 0,
            ..options
        },
        ..Config::default()
    };
    let pool = Pool::new(Arc::clone(&provider), config);
    let (mut rng, mut live) = (Rng::new(seed), Vec::new());
    for _ in 0..24_000 {
        if pool.figures().used < 300 * PAGE {
            let block = alloc(&pool, PAGE * (1 + rng.below(largest)));
            live.push(block.expect("there is room").addr);
        } else {
            let addr = live.swap_remove(rng.below(live.len() as u64) as usize);
            pool.release(addr, Frontier::new()).expect("it is live");
            pool.expire();
        }
    }
    assert_eq!(provider.wrong(), [""; 0]);
    let (figures, counters) = (pool.figures(), pool.counters());
    Held {
        grown: counters.grown_bytes / PAGE,
        remapped: counters.compacted_bytes / PAGE,
        percent: figures.reserved_high * 100 / figures.used_high,
    }
}

fn moving(compaction: Compaction) -> Options {
    Options {
        compaction,
        ..Options::default()
    }
}

#[test]
fn compaction_runs_only_under_pressure() {
    let mix = (24, 3);
    let always = churn(moving(Compaction::Always), None, mix);
    assert!(
        always.remapped > 10 * always.grown && always.percent <= 108,
        "{always:?}"
    );
    let never = churn(moving(Compaction::Never), None, mix);
    assert!(never.remapped == 0 && never.percent <= 150, "{never:?}");
    // No request is a large part of the reserved bytes.
    assert_eq!(churn(Options::default(), None, mix), never);
    // A maximum is pressure.
    let bound = churn(Options::default(), Some(330 * PAGE), mix);
    assert!(
        bound.remapped > bound.grown && bound.percent <= 110,
        "{bound:?}"
    );
}

/// The pages that are remapped lie behind what is free at the pool's end.
#[test]
fn remapped_pages_continue_what_is_free_at_the_end() {
    let (provider, pool) = make_with(None, PAGE, Compaction::Always);
    let [first, _, last] = [2, 1, 3].map(|pages| alloc(&pool, pages * PAGE).expect("no limit"));
    for block in [first, last] {
        pool.release(block.addr, Frontier::new())
            .expect("it is live");
    }
    let block = alloc(&pool, 5 * PAGE).expect("no limit");
    assert_eq!(block.addr, last.addr);
    assert_eq!(pool.counters().compacted_bytes, 2 * PAGE);
    assert_eq!(pool.figures().reserved, 6 * PAGE);
    assert_eq!(provider.wrong(), [""; 0]);
}

/// What has completed at the pool's end serves the request where it is, also where no other memory may move.
#[test]
fn pages_at_the_end_do_not_move() {
    for provider in [
        FakeProvider::paged(PAGE),
        FakeProvider::paged(PAGE).mapping_once(),
    ] {
        let (provider, pool) = make_on(provider, None, Compaction::Always);
        let blocks = [2, 1, 3, 1].map(|pages| alloc(&pool, pages * PAGE).expect("no limit"));
        let [first, _, complete, pending] = blocks;
        let mut lane = Lane::new();
        lane.advance();
        for (block, death) in [
            (first, Frontier::new()),
            (complete, Frontier::new()),
            (pending, lane.tip()),
        ] {
            pool.release(block.addr, death).expect("it is live");
        }
        let request = Request::new(6 * PAGE, Order::Lane(&lane));
        let block = pool.acquire(&request).expect("no limit").block();
        assert_eq!(block.addr, complete.addr);
        assert_eq!(pool.counters().compactions, 1);
        assert_eq!(pool.counters().compacted_bytes, 2 * PAGE);
        assert_eq!(pool.figures().reserved, 7 * PAGE);
        assert_eq!(provider.wrong(), [""; 0]);
    }
}

/// Pages that move leave holes where they were. Where free slabs move first, and behind what is free already, a pool
/// whose requests stay alike holds little more for it.
#[test]
fn pages_that_move_leave_few_holes() {
    for largest in [24, 48, 160] {
        let held = |compaction| -> u64 {
            let runs = (0..4).map(|seed| churn(moving(compaction), None, (largest, seed)).percent);
            runs.sum::<u64>() / 4
        };
        let (never, usual) = (held(Compaction::Never), held(Compaction::Pressure));
        println!("blocks of up to {largest} pages: {usual} %, {never} % if none moves");
        assert!(usual <= never * 110 / 100, "{largest}: {usual} {never}");
    }
}

#[test]
fn large_growth_maps_few_pages() {
    let mib = 1 << 20;
    let provider = Arc::new(FakeProvider::mixed(2 * mib, 64 * mib));
    let pool = Pool::new(Arc::clone(&provider), Config::default());
    for _ in 0..256 {
        alloc(&pool, 64 * mib).expect("there is no limit");
    }
    let held = pool.figures().reserved;
    assert!((16 << 30..17 << 30).contains(&held), "{held}");
    let mapped = provider.mapped();
    assert!(mapped < 400, "{mapped}");
}

/// A pool earns a page with each so many requests that it serves: later growth has more and smaller pages, down to
/// 1/64 of what the pool holds. What it earned ends when memory goes back to the provider.
#[test]
fn requests_served_earn_small_pages() {
    const MIB: u64 = 1 << 20;
    let page = |page_requests: u64, requests: u64, trims: bool| {
        let provider = Arc::new(FakeProvider::mixed(2 * MIB, 128 * MIB));
        let options = Options {
            page_requests,
            ..Options::default()
        };
        let config = Config {
            options,
            ..Config::default()
        };
        let pool = Pool::new(Arc::clone(&provider), config);
        let first = alloc(&pool, 192 * MIB).expect("there is no limit");
        assert!(provider.mapped() <= 12, "a new pool has earned nothing");
        for _ in 0..requests {
            let block = alloc(&pool, MIB).expect("there is no limit");
            pool.release(block.addr, Frontier::new())
                .expect("it is live");
        }
        if trims {
            pool.release(first.addr, Frontier::new())
                .expect("it is live");
            pool.trim(0);
        }
        let before = (provider.mapped(), pool.figures().reserved);
        alloc(&pool, 192 * MIB).expect("there is no limit");
        assert!(pool.figures().reserved > before.1, "it grew");
        (pool.figures().reserved - before.1) / (provider.mapped() - before.0)
    };
    // 1/16 of what the pool holds, in a power of two times the least page.
    assert_eq!(page(0, 4096, false), 16 * MIB, "no page is earned");
    assert_eq!(
        page(8, 64, false),
        16 * MIB,
        "no more than the pool has made"
    );
    // At least 1/64 of it.
    assert_eq!(page(8, 4096, false), 8 * MIB);
    assert_eq!(page(1, 4096, false), 8 * MIB);
    assert_eq!(page(8, 4096, true), 16 * MIB, "as in a new pool");
}

/// A pool that has earned 128 pages grows by what a request needs, and one that has earned fewer by at least 16 MiB. A
/// pool whose pages have no price grows by 1/32 of what it holds, however much it has served.
#[test]
fn many_requests_served_earn_growth_by_need() {
    const MIB: u64 = 1 << 20;
    let growth = |provider: FakeProvider, exact_pages: u64, requests: u64| {
        let held = 256;
        let options = Options {
            exact_pages,
            ..Options::default()
        };
        let config = Config {
            options,
            ..Config::default()
        };
        let pool = Pool::new(Arc::new(provider), config);
        alloc(&pool, held * MIB).expect("there is no limit");
        for _ in 0..requests {
            let block = alloc(&pool, MIB).expect("there is no limit");
            pool.release(block.addr, Frontier::new())
                .expect("it is live");
        }
        let before = pool.figures().reserved;
        let free = before - held * MIB;
        alloc(&pool, free + MIB).expect("there is no limit");
        (pool.figures().reserved - before) / MIB
    };
    let priced = || FakeProvider::mixed(2 * MIB, 128 * MIB);
    assert_eq!(growth(priced(), 128, 8 * 100), 16);
    assert_eq!(growth(priced(), 128, 8 * 200), 2);
    assert_eq!(growth(priced(), 0, 8 * 200), 16);
    let unpriced = FakeProvider::paged(2 * MIB);
    assert_eq!(growth(unpriced, 128, 8 * 200), 10, "1/32 of 264");
}

/// Pages that are remapped are as many as were mapped anew, and one more for so many requests served.
#[test]
fn requests_served_pay_for_remapped_pages() {
    const PAGES: u64 = 32;
    // What the pool holds after each of some rounds, in pages. A round remaps 16 pages, and makes 33 requests.
    let rounds = |remap_requests: u64| -> Vec<u64> {
        let provider = Arc::new(FakeProvider::mixed(PAGE, PAGE).leaving_mapped());
        let config = Config {
            min_align: 64,
            options: Options {
                growth_mib: 0,
                page_mib: 0,
                remap_requests,
                ..Options::default()
            },
            ..Config::default()
        };
        let pool = Pool::new(Arc::clone(&provider), config);
        let release = |block: Block| {
            pool.release(block.addr, Frontier::new())
                .expect("it is live");
        };
        let round = |_| {
            let mut blocks: Vec<Block> = (0..PAGES)
                .map(|_| alloc(&pool, PAGE).expect("there is no limit"))
                .collect();
            blocks.sort_unstable_by_key(|block| block.addr);
            let (kept, gone): (Vec<_>, Vec<_>) = (0..).zip(blocks).partition(|(at, _)| at % 3 == 0);
            gone.into_iter().for_each(|(_, block)| release(block));
            let large = alloc(&pool, PAGES / 2 * PAGE).expect("there is no limit");
            release(large);
            kept.into_iter().for_each(|(_, block)| release(block));
            pool.figures().reserved / PAGE
        };
        let held = (0..6).map(round).collect();
        assert_eq!(provider.wrong(), [""; 0]);
        held
    };
    assert_eq!(rounds(2), [PAGES; 6]);
    for too_few in [0, 64] {
        let held = rounds(too_few);
        assert_eq!((held[0], held[5] > PAGES), (PAGES, true), "{held:?}");
    }
}

/// Pages of several sizes are released whole, so a trim may keep more than requested and never less.
#[test]
fn a_trim_keeps_at_least_the_requested_bytes() {
    let provider = Arc::new(FakeProvider::mixed(1 << 20, 64 << 20));
    let pool = Pool::new(Arc::clone(&provider), Config::default());
    let blocks: Vec<Block> = (0..16)
        .map(|_| alloc(&pool, 2 << 20).expect("there is no limit"))
        .collect();
    for block in blocks {
        pool.release(block.addr, Frontier::new())
            .expect("the block is live");
    }
    for keep in [31 << 20, 10 << 20, 3 << 20, 1, 0] {
        let before = pool.figures().reserved;
        pool.trim(keep);
        let after = pool.figures().reserved;
        assert!(after >= keep.min(before), "{before} {keep} {after}");
    }
    assert_eq!(pool.figures().reserved, 0);
    assert_eq!(provider.wrong(), [""; 0]);
}

/// The growth of a pool that holds 640 pages, in pages.
fn step(provider: FakeProvider, options: Options) -> u64 {
    let options = Options {
        growth_mib: 0,
        ..options
    };
    let config = Config {
        chunk_bytes: 0,
        options,
        ..Config::default()
    };
    let pool = Pool::new(Arc::new(provider), config);
    alloc(&pool, 640 * PAGE).expect("there is no limit");
    alloc(&pool, PAGE).expect("there is no limit");
    pool.figures().reserved / PAGE - 640
}

#[test]
fn growth_is_a_share_of_what_a_pool_holds() {
    for provider in [
        || FakeProvider::mixed(PAGE, LARGE),
        || FakeProvider::paged(PAGE),
    ] {
        assert_eq!(step(provider(), Options::default()), 640 / 32);
        for (growth_share, pages) in [(64, 640 / 64), (0, 1)] {
            let options = Options {
                growth_share,
                ..Options::default()
            };
            assert_eq!(step(provider(), options), pages);
        }
    }
}

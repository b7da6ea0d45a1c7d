//! Pools whose memory comes in pages of several sizes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use ur::pool::oracle::{FakeSource, Rng};
use ur::pool::*;
use ur::timeline::Frontier;

const PAGE: u64 = 1024;
const LARGE: u64 = 4096;
/// Pages of a size are what a pool grows in from so many of them on.
const FROM: u64 = 384;

fn make(max_bytes: Option<u64>, largest: u64) -> (Arc<FakeSource>, Pool<Arc<FakeSource>>) {
    let source = Arc::new(FakeSource::mixed(PAGE, largest));
    let config = Config {
        min_align: 64,
        max_bytes,
        ..Config::default()
    };
    let pool = Pool::new(Arc::clone(&source), config);
    (source, pool)
}

fn alloc(pool: &Pool<Arc<FakeSource>>, bytes: u64) -> Result<Block, PoolError> {
    let request = Request {
        bytes,
        align: 0,
        order: Order::Sync,
        may_wait: false,
        story: None,
    };
    pool.acquire(&request).map(|acquired| acquired.block())
}

#[test]
fn a_pool_that_holds_much_grows_in_large_pages() {
    let (source, pool) = make(None, LARGE);
    // Before, and in pages of which size it grew, unless some were there already.
    let grow = |bytes| {
        let now = || (pool.figures().reserved, source.mapped());
        let (before, gathers) = (now(), pool.counters().gathers);
        alloc(&pool, bytes).expect("there is no limit");
        let (step, mapped) = (now().0 - before.0, now().1 - before.1);
        let grew = step > 0 && pool.counters().gathers == gathers;
        grew.then(|| (before.0, step / mapped))
    };
    let mut seen = BTreeSet::new();
    for _ in 0..60 {
        if let Some((before, page)) = grow(64 * LARGE + PAGE) {
            let wanted = match before {
                _ if before >= FROM * LARGE => LARGE,
                _ if before >= FROM * 2 * PAGE => 2 * PAGE,
                _ => PAGE,
            };
            assert_eq!(page, wanted, "{before}");
            seen.insert(page);
        }
    }
    assert_eq!(seen.len(), 3);
    // What is not so many of them leaves too much of the last one.
    let less = (0..100).filter_map(|_| grow(64 * LARGE - PAGE));
    let less: BTreeSet<u64> = less.map(|(_, page)| page).collect();
    assert_eq!(less, BTreeSet::from([2 * PAGE]));
    assert_eq!(source.wrong(), [""; 0]);
}

#[test]
fn a_maximum_is_used_to_its_last_page() {
    let most = (FROM + 16) * LARGE + PAGE;
    let (_, pool) = make(Some(most), 4 * LARGE);
    for _ in 0..most / (8 * LARGE) {
        alloc(&pool, 8 * LARGE).expect("there is room");
    }
    alloc(&pool, PAGE).expect("there is room");
    assert_eq!(pool.figures().reserved, most);
    assert!(alloc(&pool, 64).is_err());
}

#[test]
fn pages_of_all_sizes_are_gathered_and_given_back_whole() {
    let mut sizes = BTreeSet::new();
    for seed in 0..20 {
        let (source, pool) = make(None, 16 * LARGE);
        let (mut rng, mut live) = (Rng::new(seed), BTreeMap::new());
        for step in 0..3_000 {
            // Mostly much of it, now and then hardly any.
            let much = step % 1_000 < 700;
            if live.is_empty() || rng.chance(if much { 55 } else { 25 }) {
                let now = || {
                    (
                        pool.figures().reserved,
                        source.mapped(),
                        pool.counters().gathers,
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
        assert!(pool.counters().gathers > 0, "seed {seed}");
        for addr in live.keys() {
            pool.release(*addr, Frontier::new()).expect("it is live");
        }
        pool.expire();
        pool.trim(0);
        assert_eq!(pool.figures().reserved, 0);
        assert_eq!(source.extents(), []);
        assert_eq!(source.wrong(), [""; 0], "seed {seed}");
    }
    assert!(sizes.len() > 3, "{sizes:?}");
}

/// Of a program that goes on as it begins, in a pool that was large before, gathers in its first rounds and in as many last ones, and
/// memory held beside the most that was in use, in hundredths.
fn churn(source: FakeSource, max_bytes: Option<u64>) -> (u64, u64, u64) {
    let config = Config {
        min_align: 64,
        max_bytes,
        ..Config::default()
    };
    let pool = Pool::new(Arc::new(source), config);
    let before = max_bytes.unwrap_or(3_000 * PAGE) / (10 * PAGE);
    let before: Vec<_> = (0..before).map(|_| alloc(&pool, 10 * PAGE)).collect();
    for block in before {
        let addr = block.expect("there is room").addr;
        pool.release(addr, Frontier::new()).expect("it is live");
    }
    pool.trim(0);
    pool.reset_reserved_high();
    pool.reset_used_high();
    let (mut rng, mut live) = (Rng::new(3), Vec::new());
    let mut gathers = Vec::new();
    for _ in 0..6 {
        let before = pool.counters().gathers;
        for _ in 0..4_000 {
            if pool.figures().used < 300 * PAGE {
                let block = alloc(&pool, PAGE * (1 + rng.below(24)));
                live.push(block.expect("there is room").addr);
            } else {
                let addr = live.swap_remove(rng.below(live.len() as u64) as usize);
                pool.release(addr, Frontier::new()).expect("it is live");
                pool.expire();
            }
        }
        gathers.push(pool.counters().gathers - before);
    }
    let Figures {
        reserved_high,
        used_high,
        ..
    } = pool.figures();
    (gathers[0], gathers[5], reserved_high * 100 / used_high)
}

#[test]
fn where_pages_have_a_price_a_pool_makes_room_rather_than_gather_on_and_on() {
    let (first, last, held) = churn(FakeSource::paged(PAGE), None);
    assert!(last * 2 > first && held < 105, "{first} {last} {held}");
    let (first, last, held) = churn(FakeSource::mixed(PAGE, 2 * PAGE), None);
    assert!(last * 3 < first && held <= 150, "{first} {last} {held}");
    // Not beyond a maximum.
    let most = Some(330 * PAGE);
    let (first, last, _) = churn(FakeSource::mixed(PAGE, 2 * PAGE), most);
    assert!(last * 2 > first, "{first} {last}");
}

/// Pages mapped for each request, of 2 bytes at least and 128 at most.
fn mapped(requests: &[u64]) -> Vec<u64> {
    let source = Arc::new(FakeSource::mixed(2, 128));
    let config = Config {
        chunk_bytes: 0,
        min_align: 2,
        ..Config::default()
    };
    let pool = Pool::new(Arc::clone(&source), config);
    let mut before = 0;
    let mut grow = |bytes: &u64| {
        alloc(&pool, *bytes).expect("there is no limit");
        source.mapped() - std::mem::replace(&mut before, source.mapped())
    };
    requests.iter().map(&mut grow).collect()
}

#[test]
fn a_request_of_whole_large_pages_begins_with_them() {
    assert_eq!(mapped(&[128, 256, 32, 96]), [1, 2, 1, 3]);
    // Others get the least, until a larger page is a small part of what there is.
    assert_eq!(mapped(&[130, 16, 30]), [65, 8, 15]);
    assert_eq!(mapped(&[8192, 1030]), [64, 65]);
}

#[test]
fn growth_by_much_maps_few_pages() {
    let mib = 1 << 20;
    let source = Arc::new(FakeSource::mixed(2 * mib, 64 * mib));
    let pool = Pool::new(Arc::clone(&source), Config::default());
    for _ in 0..256 {
        alloc(&pool, 64 * mib).expect("there is no limit");
    }
    assert_eq!(pool.figures().reserved, 16 << 30);
    assert_eq!(source.mapped(), 256);
}

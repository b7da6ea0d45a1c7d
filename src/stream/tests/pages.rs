//! Pages: the fake driver's shared memory can be mapped at other addresses.

use crate::abi::*;
use crate::hal::{self, UsmPoolInfo};
use crate::stream::queue::alloc;
use crate::stream::testing::vm::PAGE_BYTES;
use crate::stream::testing::*;
use crate::stream::{Kind, UsmPool};
use std::sync::atomic::Ordering;

fn shared<D: AnyFake>(
    queue: &QueueArc<D>,
    pool: &PoolArc<D>,
    bytes: usize,
) -> crate::object::Result<usize> {
    without(&[], |waits, out| {
        alloc::alloc(queue, Kind::Shared, Some(&**pool), bytes, waits, out)
    })
    .map(|address| address.addr())
}

fn reserved<D: AnyFake>(pool: &PoolArc<D>) -> usize {
    let what = UsmPoolInfo::ReservedCurrentExp;
    info::<usize>(|out| <UsmPool<D> as hal::UsmPool<D>>::get_info_exp(pool, what, out)).unwrap()
}

/// The number of pages, and of addresses that lead to one.
fn books<D: AnyFake>(fixture: &Fixture<D>) -> (usize, usize) {
    let vm = fixture.driver.vm.lock().unwrap();
    (vm.pages.len(), vm.mapped.len())
}

fn scattered_pages_are_compacted<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let pool = fixture.pool(0, usize::MAX);
    let queue = fixture.in_order();
    let blocks = [(); 4].map(|()| shared(&queue, &pool, PAGE_BYTES).unwrap());
    launch_only(&queue, 1, &[]);
    free_only(&queue, blocks[0], &[]).unwrap();
    free_only(&queue, blocks[2], &[]).unwrap();
    assert_eq!(books(&fixture), (4, 4));
    // No more memory and no wait is needed, and the old addresses stay mapped until the launch is complete.
    let waits = fixture.driver.waits();
    let block = shared(&queue, &pool, 2 * PAGE_BYTES).unwrap();
    assert!(blocks.iter().all(|old| block != *old));
    assert_eq!((books(&fixture), fixture.driver.waits()), ((4, 6), waits));
    assert_eq!(reserved(&pool), 4 * PAGE_BYTES);
    fixture.driver.run();
    hal::Queue::<D>::finish(&queue).unwrap();
    // They stay mapped afterwards where that costs nothing.
    let led = if D::LEAVES_MAPPED { 6 } else { 4 };
    assert_eq!(books(&fixture), (4, led));
    // The addresses are used again.
    free_only(&queue, block, &[]).unwrap();
    let whole = shared(&queue, &pool, 4 * PAGE_BYTES).unwrap();
    assert_eq!(reserved(&pool), 6 * PAGE_BYTES);
    for block in [whole, blocks[1], blocks[3]] {
        free_only(&queue, block, &[]).unwrap();
    }
}

#[test]
fn scattered_pages_are_compacted_when_tracked() {
    scattered_pages_are_compacted::<Tracked>();
}

#[test]
fn scattered_pages_are_compacted_when_polled() {
    scattered_pages_are_compacted::<Polled>();
}

/// Frees a block of three pages, scatters them, compacts two, and leaves all three free.
fn churn<D: AnyFake>(fixture: &Fixture<D>, queue: &QueueArc<D>, pool: &PoolArc<D>) {
    let whole = shared(queue, pool, 3 * PAGE_BYTES).unwrap();
    free_only(queue, whole, &[]).unwrap();
    let blocks = [(); 3].map(|()| shared(queue, pool, PAGE_BYTES).unwrap());
    free_only(queue, blocks[0], &[]).unwrap();
    free_only(queue, blocks[2], &[]).unwrap();
    let pair = shared(queue, pool, 2 * PAGE_BYTES).unwrap();
    free_only(queue, blocks[1], &[]).unwrap();
    free_only(queue, pair, &[]).unwrap();
    launch_only(queue, 1, &[]);
    fixture.driver.run();
    hal::Queue::<D>::finish(queue).unwrap();
}

fn no_more_addresses_are_stale_than_present<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let driver = std::sync::Arc::clone(&fixture.driver);
    let pool = fixture.pool(0, usize::MAX);
    let queue = fixture.in_order();
    // The queue may have its memory again: four addresses for each page, and all of the memory.
    let most = if D::LEAVES_MAPPED { 18 } else { 3 };
    let mut seen = 0;
    for _ in 0..20 {
        churn(&fixture, &queue, &pool);
        let (pages, led) = books(&fixture);
        assert_eq!(pages, 3);
        assert!(led <= most, "{led} addresses lead to 3 pages");
        seen = seen.max(led);
    }
    assert_eq!(seen > 3, D::LEAVES_MAPPED);
    // With the pages all addresses that ever led to them are released.
    hal::Context::<D>::usm_pool_trim_to_exp(&fixture.context, &fixture.device, &pool, 0).unwrap();
    assert_eq!(books(&fixture), (0, 0));
    drop((queue, pool, fixture));
    until(|| driver.vm.lock().unwrap().reserved.is_empty());
}

#[test]
fn no_more_addresses_are_stale_than_present_when_tracked() {
    no_more_addresses_are_stale_than_present::<Tracked>();
}

#[test]
fn no_more_addresses_are_stale_than_present_when_polled() {
    no_more_addresses_are_stale_than_present::<Polled>();
}

#[test]
fn stale_addresses_serve_where_there_are_no_others() {
    let fixture = Fixture::<Polled>::new();
    let pool = fixture.pool(0, usize::MAX);
    let queue = fixture.in_order();
    fixture.driver.vm.lock().unwrap().narrow = Some(9 * PAGE_BYTES);
    let [first, between, last] = [2, 1, 2].map(|n| shared(&queue, &pool, n * PAGE_BYTES).unwrap());
    free_only(&queue, first, &[]).unwrap();
    free_only(&queue, last, &[]).unwrap();
    let four = shared(&queue, &pool, 4 * PAGE_BYTES).unwrap();
    launch_only(&queue, 1, &[]);
    fixture.driver.run();
    hal::Queue::<Polled>::finish(&queue).unwrap();
    // All nine addresses are taken, and four of them are stale.
    assert_eq!(books(&fixture), (5, 9));
    free_only(&queue, four, &[]).unwrap();
    let singles = [(); 4].map(|()| shared(&queue, &pool, PAGE_BYTES).unwrap());
    free_only(&queue, singles[0], &[]).unwrap();
    free_only(&queue, singles[2], &[]).unwrap();
    let pair = shared(&queue, &pool, 2 * PAGE_BYTES).unwrap();
    assert!([first, last].contains(&pair));
    let made = fixture.driver.acquires.load(Ordering::Relaxed);
    assert_eq!((made, reserved(&pool)), (3, 5 * PAGE_BYTES));
    for block in [between, singles[1], singles[3], pair] {
        free_only(&queue, block, &[]).unwrap();
    }
}

#[test]
fn pages_are_released_one_by_one_and_addresses_with_their_pool() {
    let fixture = Fixture::<Tracked>::new();
    let driver = std::sync::Arc::clone(&fixture.driver);
    let pool = fixture.pool(0, 0);
    let queue = fixture.in_order();
    let blocks = [(); 4].map(|()| shared(&queue, &pool, PAGE_BYTES).unwrap());
    free_only(&queue, blocks[1], &[]).unwrap();
    free_only(&queue, blocks[2], &[]).unwrap();
    let pair = shared(&queue, &pool, 2 * PAGE_BYTES).unwrap();
    assert_eq!(pair, blocks[1], "they lie side by side");
    free_only(&queue, pair, &[]).unwrap();
    free_only(&queue, blocks[0], &[]).unwrap();
    launch_only(&queue, 1, &[]);
    fixture.driver.run();
    hal::Queue::<Tracked>::finish(&queue).unwrap();
    // With a threshold of 0 only the page in use stays.
    assert_eq!((books(&fixture), reserved(&pool)), ((1, 1), PAGE_BYTES));
    free_only(&queue, blocks[3], &[]).unwrap();
    hal::Queue::<Tracked>::finish(&queue).unwrap();
    drop((queue, pool, fixture));
    until(|| driver.vm.lock().unwrap().reserved.is_empty());
    assert!(driver.vm.lock().unwrap().pages.is_empty());
}

#[test]
fn a_mapping_that_fails_costs_nothing() {
    let fixture = Fixture::<Tracked>::new();
    let pool = fixture.pool(4 * PAGE_BYTES, usize::MAX);
    let queue = fixture.in_order();
    let blocks = [(); 3].map(|()| shared(&queue, &pool, PAGE_BYTES).unwrap());
    fixture.driver.vm.lock().unwrap().broken = 100;
    let dry = Some(UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    assert_eq!(code(shared(&queue, &pool, PAGE_BYTES)), dry);
    assert_eq!((books(&fixture), reserved(&pool)), ((3, 3), 3 * PAGE_BYTES));
    fixture.driver.vm.lock().unwrap().broken = 0;
    free_only(&queue, blocks[0], &[]).unwrap();
    free_only(&queue, blocks[2], &[]).unwrap();
    fixture.driver.vm.lock().unwrap().broken = 100;
    // The memory that could not move is still there.
    assert_eq!(code(shared(&queue, &pool, 2 * PAGE_BYTES)), dry);
    fixture.driver.vm.lock().unwrap().broken = 0;
    let one = shared(&queue, &pool, PAGE_BYTES).unwrap();
    assert!([blocks[0], blocks[2]].contains(&one));
    assert!(shared(&queue, &pool, 2 * PAGE_BYTES).is_ok());
    assert_eq!(reserved(&pool), 4 * PAGE_BYTES);
}

/// Allocates blocks of these numbers of pages, three live at a time, with only the last one live at the end.
fn climb(queue: &QueueArc<Polled>, pool: &PoolArc<Polled>) -> (Vec<(usize, usize)>, usize) {
    let (mut all, mut live) = (Vec::new(), Vec::new());
    for pages in [1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 1] {
        let block = shared(queue, pool, pages * PAGE_BYTES).unwrap();
        all.push((block, pages));
        live.push(block);
        if live.len() > 2 {
            free_only(queue, live.remove(0), &[]).unwrap();
        }
    }
    free_only(queue, live[0], &[]).unwrap();
    (all, live[1])
}

#[test]
fn addresses_of_released_memory_are_not_reused() {
    let fixture = Fixture::<Polled>::new();
    let pool = fixture.pool(0, usize::MAX);
    let (queue, other) = (fixture.in_order(), fixture.in_order());
    launch_only(&queue, 1, &[]);
    let (_, last) = climb(&queue, &pool);
    fixture.driver.run();
    hal::Queue::<Polled>::finish(&queue).unwrap();
    // The queue is at the beginning of its iteration again, and has moved memory meanwhile.
    free_only(&queue, last, &[]).unwrap();
    let led = books(&fixture);
    assert!(led.1 > led.0, "nothing was moved");
    hal::Context::<Polled>::usm_pool_trim_to_exp(&fixture.context, &fixture.device, &pool, 0)
        .unwrap();
    assert_eq!(books(&fixture), (0, 0));
    // The addresses are used again, and no queue caches the memory.
    let blocks = [(); 60].map(|()| shared(&other, &pool, PAGE_BYTES).unwrap());
    for block in blocks {
        free_only(&queue, block, &[]).unwrap();
    }
    let (all, last) = climb(&queue, &pool);
    let vm = fixture.driver.vm.lock().unwrap();
    for (block, pages) in all {
        for page in (block..).step_by(PAGE_BYTES).take(pages) {
            assert!(vm.mapped.contains_key(&page), "nothing is at {page:#x}");
        }
    }
    drop(vm);
    free_only(&queue, last, &[]).unwrap();
}

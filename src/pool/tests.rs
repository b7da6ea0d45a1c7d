//! Properties of placement and indexes, which hold after any sequence of operations.

use crate::pool::Pool;
use crate::pool::cache::StreamCache;
use crate::pool::compaction::adjacent_as_one;
use crate::pool::growth::{Limits, Tail, growth};
use crate::pool::heap::Heap;
use crate::pool::heap::index::{BySize, Entry, SizeIndex};
use crate::pool::heap::search::{Need, place_at};
use crate::pool::heap::segments::Run;
use crate::pool::heap::segments::{Occupancy, Place, SegmentId};
use crate::pool::options::Options;
use crate::pool::oracle::FakeProvider;
use crate::pool::provider::Slab;
use crate::pool::request::{Block, Config, Order, PoolError, Request};
use crate::pool::rounding::Rounding;
use crate::timeline::{Clock, Frontier, Lane, Point};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const UNIT: u64 = 64;
const LANES: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    AddSlab {
        units: u64,
        skew: u64,
    },
    RemoveIdle {
        bytes: u64,
    },
    /// In the stretch of free segments chosen by `pick`, at `offset` units, for `units`.
    Take {
        pick: usize,
        offset: u64,
        units: u64,
    },
    Free {
        pick: usize,
        death: Vec<(usize, u64)>,
    },
    Raise {
        lane: usize,
        epoch: u64,
    },
    Sweep,
    /// Of a heap with pages: the whole ones of a free segment go elsewhere.
    Move {
        pick: usize,
        near: bool,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let death = prop::collection::vec((0..LANES, 1..6u64), 0..4);
    let op = prop_oneof![
        1 => (1..40u64, 0..UNIT).prop_map(|(units, skew)| Op::AddSlab { units, skew }),
        1 => prop_oneof![Just(0), 0..2000u64].prop_map(|bytes| Op::RemoveIdle { bytes }),
        8 => (any::<usize>(), 0..20u64, 1..12u64)
            .prop_map(|(pick, offset, units)| Op::Take { pick, offset, units }),
        8 => (any::<usize>(), death).prop_map(|(pick, death)| Op::Free { pick, death }),
        2 => (0..LANES, 0..8u64).prop_map(|(lane, epoch)| Op::Raise { lane, epoch }),
        2 => Just(Op::Sweep),
        2 => any::<(usize, bool)>().prop_map(|(pick, near)| Op::Move { pick, near }),
    ];
    prop::collection::vec(op, 1..120)
}

proptest! {
    /// An index by size answers as one ordered set would.
    #[test]
    fn an_index_by_size_is_an_ordered_set(
        entries in prop::collection::vec((any::<bool>(), 0..64u32, 0..16u64, 0..4u64), 1..200),
        least in (0..64u32, 0..16u64),
    ) {
        let bytes = |(log, steps): (u32, u64)| (1_u64 << log).saturating_add(steps << (log / 2));
        let (mut index, mut set) = (SizeIndex::default(), BTreeSet::<Entry>::new());
        for (adds, log, steps, addr) in entries {
            let entry = (bytes((log, steps)), addr, 7);
            match adds {
                true => prop_assert_eq!(index.insert(entry), set.insert(entry)),
                false => prop_assert_eq!(index.remove(&entry), set.remove(&entry)),
            }
        }
        let least = bytes(least);
        let expected: Vec<Entry> = set.range((least, 0, 0)..).copied().collect();
        prop_assert_eq!(index.at_least(least).collect::<Vec<_>>(), expected);
    }
}

/// Everything that is in the heap, read the slow way.
fn audit(heap: &Heap, live: &BTreeMap<u64, u64>) {
    assert_eq!(heap.audit(), Ok(()));
    let slabs = heap.segments.slabs();
    let segs = slabs.flat_map(|entry| heap.segments.segments_from(entry.first));
    let found = segs.filter(|(_, seg)| matches!(seg.state, Occupancy::Live { .. }));
    let found: BTreeMap<u64, u64> = found.map(|(_, seg)| (seg.addr, seg.bytes)).collect();
    assert_eq!(&found, live);
    // What could leave with a clear segment.
    let clear = heap.index.clear.at_least(0);
    let idle = clear.filter_map(|(.., id)| Some((heap.segments.removable(id)?.bytes, id)));
    assert_eq!(heap.idle(), idle.collect());
}

struct Bench {
    heap: Heap,
    clocks: Vec<Arc<Clock>>,
    live: BTreeMap<u64, u64>,
    next: u64,
}

impl Bench {
    fn apply(&mut self, op: &Op) {
        match op {
            Op::AddSlab { units, skew } => {
                let page = self.heap.segments.page();
                let slab = match page {
                    // A third of them touch the one before.
                    Some(page) => Slab::new(
                        self.next.next_multiple_of(page) + skew % 3 * page,
                        (units * UNIT).next_multiple_of(page),
                    ),
                    None => Slab::new(self.next + skew, units * UNIT),
                };
                self.next = match page {
                    Some(_) => slab.end(),
                    None => slab.base - skew + (units + 2) * UNIT,
                };
                let left = (slab.base + slab.bytes) / UNIT * UNIT;
                let some = left > slab.base.next_multiple_of(UNIT);
                // Some have pages three times as large, and a smaller one behind them.
                let large = page.map_or(0, |page| 3 * page);
                let runs: Vec<Run> = match page {
                    Some(_) if units % 3 == 0 && slab.bytes > large => {
                        let rest = slab.bytes % large;
                        vec![(slab.bytes - rest, large), (rest, rest)]
                    }
                    Some(page) => vec![(slab.bytes, page)],
                    None => Vec::new(),
                };
                let runs: Vec<Run> = runs.into_iter().filter(|run| run.0 > 0).collect();
                assert_eq!(self.heap.add_slab(slab, &runs, UNIT, &[]), some);
            }
            Op::RemoveIdle { bytes } => {
                let mut idle = self.heap.idle();
                let fit = idle.iter().find(|(have, _)| have >= bytes);
                let fit = fit.or(idle.last()).copied();
                let whole = fit.and_then(|(_, id)| self.heap.segments.removable(id));
                let paged = self.heap.segments.page().is_some();
                // As many pages from its end as suffice.
                let enough = whole.map(|whole| {
                    let pages = self.heap.segments.pages_in(whole);
                    let ends = pages.map(|page| whole.end() - page.base);
                    let enough = ends.filter(|end| *end >= *bytes && *end > 0).min();
                    enough.filter(|_| paged).unwrap_or(whole.bytes)
                });
                let slab = self.heap.remove_idle(&mut idle, *bytes);
                assert_eq!(slab.map(|slab| slab.bytes), enough);
            }
            Op::Take {
                pick,
                offset,
                units,
            } => self.take(*pick, *offset, units * UNIT),
            Op::Free { pick, death } => {
                let Some((addr, bytes)) = nth(&self.live, *pick) else {
                    return;
                };
                let points = death
                    .iter()
                    .map(|(lane, e)| Point::new(&self.clocks[*lane], *e));
                let block = free(&mut self.heap, addr, points.collect());
                assert_eq!(block.map(|b| (b.addr, b.bytes)), Some((addr, bytes)));
                assert_eq!(free(&mut self.heap, addr, Frontier::new()), None);
                self.live.remove(&addr);
            }
            Op::Move { pick, near } => self.move_pages(*pick, *near),
            Op::Raise { lane, epoch } => self.clocks[*lane].raise(*epoch),
            Op::Sweep => {
                self.heap.sweep();
                self.heap.sweep();
                assert!(
                    self.heap
                        .index
                        .lanes
                        .values()
                        .all(|index| !index.pending.is_empty())
                );
                let slabs = self.heap.segments.slabs();
                let segs = slabs.flat_map(|e| self.heap.segments.segments_from(e.first));
                let mut deaths = segs.filter_map(|(_, seg)| seg.death());
                // Of each death the watched point at least is not complete.
                assert!(deaths.all(|d| d.points().next().is_none_or(|p| !p.is_complete())));
            }
        }
    }

    fn move_pages(&mut self, pick: usize, near: bool) {
        if self.heap.segments.page().is_none() {
            return;
        }
        let slabs = self.heap.segments.slabs();
        let segs = slabs.flat_map(|e| self.heap.segments.segments_from(e.first));
        let pages = segs.filter(|(_, seg)| seg.death().is_some());
        let pages = pages.filter_map(|(id, _)| Some((id, self.heap.segments.removable(id)?)));
        let pages: Vec<(SegmentId, Slab)> = pages.collect();
        if pages.is_empty() {
            return;
        }
        let (first, slab) = pages[pick % pages.len()];
        let death = self.heap.segments.death(first).cloned();
        let piece = self.heap.detach(first, slab);
        let page = self.heap.segments.page().unwrap_or(1);
        assert_eq!(piece.slab, slab);
        let runs = piece.runs.iter().map(|(bytes, _)| bytes);
        assert_eq!(runs.sum::<u64>(), slab.bytes);
        assert_eq!(piece.parts, [(slab.bytes, death.expect("it is free"))]);
        // Back where it was, or elsewhere.
        let base = if near {
            slab.base
        } else {
            self.next.next_multiple_of(page)
        };
        self.next = self.next.max(base + slab.bytes);
        assert!(
            self.heap
                .add_slab(Slab { base, ..slab }, &piece.runs, UNIT, &piece.parts)
        );
    }

    fn take(&mut self, pick: usize, offset: u64, bytes: u64) {
        let slabs = self.heap.segments.slabs();
        let segs = slabs.flat_map(|e| self.heap.segments.segments_from(e.first));
        let free: Vec<SegmentId> = segs
            .filter(|(_, s)| s.death().is_some())
            .map(|(i, _)| i)
            .collect();
        if free.is_empty() {
            return;
        }
        let first = free[pick % free.len()];
        let seg = self.heap.segments.seg(first);
        let start = seg.addr + (offset * UNIT) % seg.bytes;
        let mut id = first;
        while self.heap.segments.seg(id).end() < start + bytes {
            id = self.heap.segments.seg(id).next;
            if self.heap.segments.death(id).is_none() {
                return;
            }
        }
        let (_, block) = self.heap.take(Place { first, start }, bytes, bytes - 1);
        assert_eq!((block.addr, block.bytes), (start, bytes));
        let inside = self.heap.block_around(start + bytes - 2);
        assert_eq!(inside.map(|(_, block, _)| block), Some(block));
        let beyond = self.heap.block_around(start + bytes);
        assert_ne!(beyond.map(|(_, block, _)| block.addr), Some(start));
        self.live.insert(start, bytes);
    }
}

/// Frees the block that starts at an address.
fn free(heap: &mut Heap, addr: u64, death: Frontier) -> Option<Block> {
    let found = heap.block_around(addr);
    let (id, block, _) = found.filter(|(_, block, _)| block.addr == addr)?;
    heap.free(id, death);
    Some(block)
}

fn nth(live: &BTreeMap<u64, u64>, pick: usize) -> Option<(u64, u64)> {
    let at = pick.checked_rem(live.len())?;
    live.iter().nth(at).map(|(addr, bytes)| (*addr, *bytes))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn segments_tile_their_slabs_and_indexes_know_them_all(
        ops in ops(),
        page in prop_oneof![Just(None), Just(Some(4 * UNIT))],
    ) {
        let mut bench = Bench {
            heap: Heap::new(page),
            clocks: (0..LANES).map(|_| Clock::new()).collect(),
            live: BTreeMap::new(),
            next: 1 << 20,
        };
        bench.apply(&Op::AddSlab { units: 32, skew: 0 });
        for op in &ops {
            bench.apply(op);
            audit(&bench.heap, &bench.live);
        }
        // Freed, complete and swept, every slab is one clear segment.
        for clock in &bench.clocks {
            clock.raise(u64::MAX);
        }
        for (addr, _) in std::mem::take(&mut bench.live) {
            free(&mut bench.heap, addr, Frontier::new());
        }
        bench.heap.sweep();
        audit(&bench.heap, &bench.live);
        prop_assert_eq!(bench.heap.idle().len(), bench.heap.segments.slabs().count());
        // Slabs of pages that touch are one.
        let slabs = || bench.heap.segments.slabs();
        let ends: Vec<_> = slabs().map(|entry| entry.slab.end()).collect();
        let mut starts = slabs().map(|entry| entry.slab.base);
        prop_assert!(page.is_none() || starts.all(|start| !ends.contains(&start)));
    }

    /// Any of them: what a page lacks is read while other threads see work complete, so that those in
    /// the middle of a segment may seem dearer than those around them.
    #[test]
    fn any_pages_leave_together(
        parts in prop::collection::vec((1..20u64, 0..=LANES), 1..20),
        chosen in any::<u32>(),
    ) {
        let page = 4 * UNIT;
        let clocks: Vec<_> = (0..LANES).map(|_| Clock::new()).collect();
        let death = |lane: usize| clocks.get(lane).map(|clock| Frontier::from(Point::new(clock, 1)));
        let parts = parts.into_iter().map(|(units, lane)| (units * UNIT, death(lane).unwrap_or_default()));
        let parts: Vec<_> = parts.collect();
        let all = Slab { base: 1 << 20, bytes: 32 * page };
        let mut heap = Heap::new(Some(page));
        prop_assert!(heap.add_slab(all, &[(all.bytes, page)], UNIT, &parts));
        let head = heap.segments.slabs().next().expect("it was added").first;
        let pages = (0..32).filter(|at| chosen >> at & 1 == 1);
        let pages = pages.map(|at| Slab { base: all.base + at * page, bytes: page });
        let pieces = pages.map(|slab| (place_at(&heap, head, slab.base).first, slab));
        let pieces = adjacent_as_one(pieces.collect());
        let gone = heap.detach_all(&pieces);
        audit(&heap, &BTreeMap::new());
        let slabs = |piece: &(SegmentId, Slab)| piece.1;
        let expected: Vec<Slab> = pieces.iter().map(slabs).collect();
        prop_assert_eq!(gone.iter().map(|piece| piece.slab).collect::<Vec<_>>(), expected);
        for piece in &gone {
            prop_assert_eq!(piece.parts.iter().map(|(bytes, _)| bytes).sum::<u64>(), piece.slab.bytes);
        }
        let left: u64 = heap.segments.slabs().map(|entry| entry.free_bytes).sum();
        prop_assert_eq!(left, u64::from(32 - chosen.count_ones()) * page);
    }

    #[test]
    fn rounding_stays_within_its_bounds(bytes in 1..u64::MAX / 2, shift in 6..13u32, cut in 0..62u32) {
        let unit = 1u64 << shift;
        let bytes = (bytes >> cut).max(1);
        let need = need(bytes, 0, unit).expect("representable");
        let over = need.bytes - bytes;
        prop_assert!(need.bytes.is_multiple_of(unit));
        prop_assert!(over < unit || over < bytes / 8);
        prop_assert!(over < (64 << 10).max(unit));
        // A larger request never gets less.
        prop_assert!(self::need(bytes + 1, 0, unit).expect("representable").bytes >= need.bytes);
    }

    #[test]
    fn growth_suffices_and_never_exceeds_the_maximum(
        bytes in (1..30u32).prop_flat_map(|shift| 1..=1u64 << shift),
        align in prop_oneof![Just(0u64), Just(4096), Just(1 << 21)],
        chunk in 0..1u64 << 26,
        max in prop::option::of((1..32u32).prop_flat_map(|shift| 0..1u64 << shift)),
        committed in 0..1u64 << 20,
        grain in prop_oneof![Just(1u64), Just(4096), Just(1 << 21)],
        (tight, padded) in any::<(bool, bool)>(),
        credit in prop_oneof![Just(0u64), 1..100_000u64],
    ) {
        let config = Config { max_bytes: max, chunk_bytes: chunk, ..Config::default() };
        let need = need(bytes, align, config.min_align).expect("valid");
        let limits = Limits { granularity: grain, alignment: grain, largest_page: None, observes: false, leaves_mapped: false, maps_once: false, paged: false };
        let room = max.unwrap_or(u64::MAX).saturating_sub(committed);
        match growth(&need, &config, limits, Tail::default(), committed, credit, (tight, padded)) {
            Ok(ask) => {
                let ask = ask.bytes;
                prop_assert!(ask >= need.bytes && ask <= room);
                let exact = need.bytes + if grain < need.align || padded { need.align - 1 } else { 0 };
                prop_assert!(ask.is_multiple_of(grain) || ask == exact);
                prop_assert!(!tight || ask < exact + grain);
            }
            Err(floor) => prop_assert!(floor > room && floor < need.bytes + need.align),
        }
    }
}

fn need(bytes: u64, align: u64, min_align: u64) -> Result<Need<'static>, PoolError> {
    let request = Request {
        align,
        ..Request::new(bytes, Order::Sync)
    };
    let config = Config {
        min_align,
        ..Config::default()
    };
    crate::pool::policy::need(&request, &config)
}

/// The largest requests have no power of two above them.
#[test]
fn growth_for_half_of_all_addresses_has_pages() {
    let limits = Limits {
        granularity: 1 << 21,
        alignment: 1 << 21,
        largest_page: Some(1 << 27),
        observes: true,
        leaves_mapped: true,
        maps_once: false,
        paged: true,
    };
    let config = Config::default();
    let need = need((1 << 63) + 1, 0, config.min_align).expect("valid");
    let tail = Tail::default();
    let grown = growth(&need, &config, limits, tail, 0, 0, (false, false));
    let grown = grown.expect("there is no limit");
    assert_eq!((grown.bytes, grown.page), ((1 << 63) + (1 << 21), 1 << 27));
}

#[test]
fn the_largest_step_of_sizes_is_an_option() {
    let rounded = |bytes: u64, rounding_kib| {
        let options = Options {
            rounding_kib,
            ..Options::default()
        };
        Rounding::new(512, &options).apply(bytes)
    };
    let odd = (512 << 20) + 1;
    assert_eq!(rounded(odd, 64), Some((512 << 20) + (64 << 10)));
    assert_eq!(rounded(odd, 1024), Some((512 << 20) + (1 << 20)));
    // 4096 KiB would be more than 1/128 of the size.
    assert_eq!(rounded(odd, 4096), Some((512 << 20) + (4 << 20)));
    assert_eq!(rounded(odd >> 1, 4096), Some(256 << 20));
    // No power of two counts as the one below it, and 0 leaves the least alignment.
    assert_eq!(rounded(odd, 100), Some((512 << 20) + (64 << 10)));
    assert_eq!(rounded(odd, 0), Some((512 << 20) + 512));
}

#[test]
fn sizes_and_alignments_that_make_no_sense_are_errors() {
    assert_eq!(need(0, 0, 64).err(), Some(PoolError::InvalidSize));
    assert_eq!(need(u64::MAX, 0, 64).err(), Some(PoolError::InvalidSize));
    assert_eq!(need(64, 3, 64).err(), Some(PoolError::InvalidAlignment));
    assert_eq!(
        need(1 << 63, 1 << 63, 64).err(),
        Some(PoolError::InvalidAlignment)
    );
    assert!(need(1 << 62, 1 << 62, 64).is_ok());
    assert_eq!(
        need(1, 1, 64).map(|need| (need.bytes, need.align)),
        Ok((64, 64))
    );
}

/// Two lanes take turns with a block, a few hundred times each: what they have their caches for anyway is
/// not worth to be watched for good.
#[test]
fn who_seldom_misses_is_seldom_watched() {
    let config = Config {
        max_bytes: Some(6000),
        ..Config::default()
    };
    let pool = Pool::new(FakeProvider::new(UNIT), config);
    let lanes = [(); 2].map(|()| {
        let lane = Lane::new();
        let cache = StreamCache::new(lane.clock(), &Arc::default());
        (lane, cache)
    });
    let (mut watched, mut misses) = (Vec::new(), 0);
    for turn in 0..1000 {
        let (lane, cache) = &lanes[turn % 2];
        let request = Request::new(4096, Order::Lane(lane));
        for _ in 0..200 {
            let hit = cache.alloc(pool.key(), request.bytes);
            let block = hit.unwrap_or_else(|| {
                misses += 1;
                let acquired = pool.acquire_on(cache, &request);
                acquired.expect("there is room").block()
            });
            let freed = cache.free(block.addr, lane.epoch());
            let freed = freed.or_else(|| pool.release(block.addr, lane.tip()));
            assert_eq!(freed, Some(block));
        }
        watched.push(cache.lock().trace(pool.key()).is_some());
    }
    assert!((1000..1050).contains(&misses), "{misses}");
    let last = &watched[500..];
    let count = last.iter().filter(|watched| **watched).count();
    assert!(watched[0] && count < last.len() / 8, "{count}");
    assert_eq!(
        (pool.counters().replay_plans, pool.counters().shared_plans),
        (0, 0)
    );
}

/// Thousands of lanes that each had something, and some of them still do: a busy one's request looks at few
/// of them, and all that is live ends as it should.
#[test]
fn lanes_that_do_nothing_are_forgotten() {
    let pool = Pool::new(FakeProvider::new(UNIT), Config::default());
    let lane = || {
        let mut lane = Lane::new();
        lane.advance();
        let cache = StreamCache::new(lane.clock(), &Arc::default());
        (lane, cache)
    };
    let ask = |(lane, cache): &(Lane, Arc<StreamCache>), bytes| {
        let request = Request::new(bytes, Order::Lane(lane));
        let hit = cache.alloc(pool.key(), bytes);
        hit.unwrap_or_else(|| pool.acquire_on(cache, &request).expect("it grows").block())
    };
    let free = |(lane, cache): &(Lane, Arc<StreamCache>), block: Block| {
        let freed = cache.free(block.addr, lane.epoch());
        freed.or_else(|| pool.release(block.addr, lane.tip()))
    };
    let busy = lane();
    let (mut idle, mut live, mut most) = (Vec::new(), Vec::new(), 0);
    for turn in 0..3_000_u64 {
        let own = lane();
        let block = ask(&own, 4096);
        match turn % 100 {
            0 => live.push((idle.len(), block)),
            _ => assert_eq!(free(&own, block), Some(block)),
        }
        if turn % 2 == 0 {
            own.0.frontier().mark_complete();
        }
        idle.push(own);
        let block = ask(&busy, 4096 + 64 * (turn % 32));
        assert_eq!(free(&busy, block), Some(block));
        most = most.max(pool.state.lock().table.streams());
    }
    assert!(most <= 256, "{most} lanes remembered of {}", idle.len());
    let own = busy.1.lock().cache(pool.key()).is_some();
    assert!(own, "the busy one is none of them");
    assert_eq!(pool.figures().used, 4096 * live.len() as u64);
    for (at, block) in live {
        assert_eq!(free(&idle[at], block), Some(block));
        // A stream that comes back has a cache again.
        let again = ask(&idle[at], 4096);
        assert_eq!(free(&idle[at], again), Some(again));
    }
    assert_eq!(pool.figures().used, 0);
    let counters = pool.counters();
    assert_eq!(counters.served(), counters.releases);
}

/// Whether a request of two units takes the place of two neighbours of one unit that its own stream cached, though a
/// larger hole is free, in a pool that holds much more. If so, the larger hole serves a larger request without growth.
fn neighbours_serve(unit: u64, options: Options) -> bool {
    let config = Config {
        chunk_bytes: 0,
        options,
        ..Config::default()
    };
    let pool = Pool::new(FakeProvider::new(unit), config);
    let mut lane = Lane::new();
    lane.advance();
    let cache = StreamCache::new(lane.clock(), &Arc::default());
    let ask = |units| {
        let request = Request::new(units * unit, Order::Lane(&lane));
        let hit = cache.alloc(pool.key(), request.bytes);
        hit.unwrap_or_else(|| pool.acquire_on(&cache, &request).expect("it grows").block())
    };
    let free = |block: Block| assert_eq!(cache.free(block.addr, lane.epoch()), Some(block));
    free(ask(16));
    ask(1024);
    let pair = [ask(1), ask(1)];
    ask(1);
    let hole = pair[0].addr.min(pair[1].addr);
    pair.into_iter().for_each(free);
    let serves = ask(2).addr == hole;
    // 16 units less these three.
    ask(13);
    assert_eq!(pool.figures().reserved == (16 + 1024) * unit, serves);
    serves
}

#[test]
fn cached_neighbours_serve_before_a_larger_hole() {
    let none_small = Options {
        small_kib: 0,
        ..Options::default()
    };
    assert!(neighbours_serve(4 << 20, Options::default()));
    assert!(!neighbours_serve(64 << 10, Options::default()));
    assert!(neighbours_serve(64 << 10, none_small));
}

/// The free that ends an iteration of two lanes makes no plan: a program that does not repeat itself would pay
/// for it. The next wait of the host makes it.
#[test]
fn shared_plans_are_made_while_the_host_waits() {
    let config = Config {
        min_align: UNIT,
        chunk_bytes: 0,
        ..Config::default()
    };
    let pool = Pool::new(FakeProvider::paged(4096).leaving_mapped(), config);
    let lanes: [(Lane, Arc<StreamCache>); 2] = std::array::from_fn(|_| {
        let mut lane = Lane::new();
        lane.advance();
        let cache = StreamCache::new(lane.clock(), &Arc::default());
        (lane, cache)
    });
    for (nth, (lane, cache)) in (0..).zip(&lanes) {
        let free = |block: Block| {
            let freed = cache.free(block.addr, lane.epoch());
            let freed = freed.or_else(|| pool.release(block.addr, lane.tip()));
            assert_eq!(freed, Some(block));
        };
        let mut live = Vec::new();
        for size in 0..12 {
            let bytes = UNIT * (3 + 5 * size + nth);
            let request = Request::new(bytes, Order::Lane(lane));
            live.push(pool.acquire_on(cache, &request).expect("no limit").block());
            if live.len() > 2 {
                free(live.remove(0));
            }
        }
        live.into_iter().for_each(free);
        lane.frontier().mark_complete();
    }
    let made = || pool.state.lock().table.prepared_plan();
    assert_eq!(made(), Some(false));
    let (lane, cache) = &lanes[1];
    assert_eq!(cache.replayable(), [pool.key()]);
    pool.plan(cache, lane);
    assert_eq!(made(), Some(true));
}

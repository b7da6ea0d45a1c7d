//! Recorded programs on a GPU in virtual time: what they make a pool hold, and what growth costs.
//!
//! Prices are those measured on an H100: 51 µs a call that maps memory and 20 µs a page; a command takes 2 µs to
//! submit and 2.5 µs to run. Completion is seen only by looking, as `LaneCore::observe` does; a look costs 0.7 µs
//! a lane that is not idle.

use flate2::read::GzDecoder;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read as _;
use std::sync::{Arc, Mutex};
use ur::pool::oracle::{FakeProvider, Rng};
use ur::pool::*;
use ur::timeline::{Clock, Lane};

const MIB: u64 = 1 << 20;
const CALL_US: f64 = 51.0;
const PAGE_US: f64 = 20.0;
const MISS_US: f64 = 0.3;
const HIT_US: f64 = 0.03;
const SUBMIT_US: f64 = 2.0;
const COMMAND_US: f64 = 2.5;
const LOOK_US: f64 = 0.7;

/// What the device knows of a lane.
struct Progress {
    clock: Arc<Clock>,
    last: u64,
    busy_until: f64,
}

#[derive(Default)]
struct Device {
    now: f64,
    lanes: Vec<Progress>,
}

struct Modelled {
    fake: FakeProvider,
    device: Mutex<Device>,
}

impl Modelled {
    /// The price of a call that maps memory.
    fn charge(&self, mapped_before: u64) {
        let pages = self.fake.mapped() - mapped_before;
        self.device.lock().unwrap().now += CALL_US + PAGE_US * pages as f64;
    }
}

impl SlabProvider for Modelled {
    fn observes(&self) -> bool {
        true
    }

    fn observe(&self) {
        let mut device = self.device.lock().unwrap();
        let Device { now, lanes } = &mut *device;
        for lane in lanes {
            if lane.clock.completed() < lane.last {
                *now += LOOK_US;
            }
            if lane.busy_until <= *now {
                lane.clock.raise(lane.last);
            }
        }
    }

    fn acquire(&self, bytes: u64) -> Result<Slab, ProviderError> {
        self.fake.acquire(bytes)
    }

    fn release(&self, slab: Slab) {
        self.fake.release(slab);
    }

    fn page(&self) -> Option<u64> {
        self.fake.page()
    }

    fn largest_page(&self) -> Option<u64> {
        self.fake.largest_page()
    }

    fn map(
        &self,
        pieces: &[Slab],
        fresh: u64,
        page: u64,
        after: Option<u64>,
    ) -> Result<Slab, ProviderError> {
        let before = self.fake.mapped();
        let slab = self.fake.map(pieces, fresh, page, after);
        self.charge(before);
        slab
    }

    fn leaves_mapped(&self) -> bool {
        self.fake.leaves_mapped()
    }

    fn retire(&self, piece: Slab) {
        self.fake.retire(piece);
    }

    fn granularity(&self) -> u64 {
        self.fake.granularity()
    }
}

/// An operation: whether it allocates, the block, its bytes and its queue.
type Op = (bool, u64, u64, usize);

/// The operations of a recorded program.
fn recorded(name: &str) -> Vec<Op> {
    let root = env!("CARGO_MANIFEST_DIR");
    let file = File::open(format!("{root}/tools/traces/{name}.trace.gz"));
    let mut text = String::new();
    GzDecoder::new(file.expect("the trace is in the tree"))
        .read_to_string(&mut text)
        .unwrap();
    let op = |line: &str| {
        let mut words = line.split(' ');
        let made = words.next() == Some("a");
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        (made, number(), number(), number() as usize)
    };
    text.lines().map(op).collect()
}

/// Nanoseconds an operation, and bytes reserved beside bytes live at most. With `command_us`, a command of so many µs
/// follows each operation.
fn run(ops: &[Op], options: Options, command_us: Option<f64>) -> (f64, f64) {
    let provider = Arc::new(Modelled {
        fake: FakeProvider::mixed(2 * MIB, 128 * MIB).leaving_mapped(),
        device: Mutex::default(),
    });
    let config = Config {
        min_align: 512,
        options,
        ..Config::default()
    };
    let pool = Pool::new(Arc::clone(&provider), config);
    let mut queues = Vec::new();
    for _ in 0..8 {
        let mut lane = Lane::new();
        lane.advance();
        lane.clock().raise(lane.epoch());
        provider.device.lock().unwrap().lanes.push(Progress {
            clock: Arc::clone(lane.clock()),
            last: lane.epoch(),
            busy_until: 0.0,
        });
        let cache = StreamCache::new(lane.clock(), &Arc::default());
        queues.push((lane, cache));
    }
    let (mut blocks, mut live, mut peak) = (HashMap::new(), 0, 0);
    for (made, id, bytes, queue) in ops {
        let (lane, cache) = &mut queues[*queue];
        if *made {
            let block = cache.alloc(pool.key(), *bytes).unwrap_or_else(|| {
                provider.device.lock().unwrap().now += MISS_US;
                let request = Request {
                    may_wait: true,
                    ..Request::new(*bytes, Order::Lane(lane))
                };
                let acquired = pool.acquire_on(cache, &request).expect("no limit");
                assert!(acquired.wait().is_none(), "no wait unless asked for");
                acquired.block()
            });
            blocks.insert(*id, block);
            live += bytes;
            peak = peak.max(live);
        } else {
            let block = blocks.remove(id).expect("it was made");
            if cache.free(block.addr, lane.epoch()).is_none() {
                let freed = pool.release(block.addr, lane.tip());
                freed.expect("it is live");
            }
            live -= bytes;
        }
        let mut device = provider.device.lock().unwrap();
        device.now += HIT_US;
        if let Some(command_us) = command_us {
            lane.advance();
            device.now += SUBMIT_US;
            let now = device.now;
            let progress = &mut device.lanes[*queue];
            progress.last = lane.epoch();
            progress.busy_until = progress.busy_until.max(now) + command_us;
        }
    }
    assert_eq!(provider.fake.wrong(), [""; 0]);
    let took = provider.device.lock().unwrap().now * 1000.0 / ops.len() as f64;
    (took, pool.figures().reserved_high as f64 / peak as f64)
}

#[test]
fn few_large_pages_make_a_first_run_fast() {
    let ops = recorded("multistream");
    let usual = Options::default();
    let small = Options {
        growth_mib: 0,
        page_mib: 0,
        ..usual
    };
    let (first, _) = run(&ops, usual, None);
    let (slow, _) = run(&ops, small, None);
    println!("multistream: {first:.0} ns an operation, {slow:.0} with small pages");
    assert!(first <= 750.0, "{first} ns an operation");
    assert!(1.8 * first < slow, "{slow} ns with small pages");
}

/// Pending memory that is about to complete is waited for rather than added to.
#[test]
fn a_few_looks_save_growth() {
    let ops = recorded("multistream");
    let usual = Options::default();
    let hasty = Options { looks: 1, ..usual };
    let (time, held) = run(&ops, usual, Some(COMMAND_US));
    let (hasty_time, hasty_held) = run(&ops, hasty, Some(COMMAND_US));
    println!("held {held:.3}, {time:.0} ns; with one look {hasty_held:.3}, {hasty_time:.0} ns");
    assert!(held <= 1.45, "{held}");
    assert!(held + 0.1 < hasty_held, "{hasty_held} with one look");
    assert!(time < 1.03 * hasty_time, "the looks cost {time} ns");
}

/// Where the device lags behind the host, more looks save more.
#[test]
fn many_looks_save_growth_where_the_device_lags() {
    let ops = recorded("multistream");
    let usual = Options::default();
    let hasty = Options { looks: 8, ..usual };
    let lag = Some(4.0 * SUBMIT_US);
    let (time, held) = run(&ops, usual, lag);
    let (hasty_time, hasty_held) = run(&ops, hasty, lag);
    println!("held {held:.3}, {time:.0} ns; with 8 looks {hasty_held:.3}, {hasty_time:.0} ns");
    assert!(held <= 1.45, "{held}");
    assert!(held + 0.5 < hasty_held, "{hasty_held} with 8 looks");
    assert!(time < 1.12 * hasty_time, "the looks cost {time} ns");
}

/// Pages that are remapped, with new memory beside them, hold a training step's memory down.
#[test]
fn a_training_step_holds_little_more_than_it_needs() {
    let usual = Options::default();
    let never = Options {
        compaction: Compaction::Never,
        ..usual
    };
    let ops = recorded("gpt2_train");
    let (_, held) = run(&ops, usual, Some(COMMAND_US));
    let (_, never_held) = run(&ops, never, Some(COMMAND_US));
    println!("gpt2_train: held {held:.3}, {never_held:.3} if no page is remapped");
    assert!(held <= 1.05, "{held}");
    assert!(held + 0.04 < never_held, "{never_held} without");
}

/// A decoder: caches of keys and values of 16 layers, each of which grows by 64 KiB with each token. The new block is
/// made before the old one ends, so that two are live at most beyond what the program keeps.
fn decoder() -> Vec<Op> {
    const LAYERS: u64 = 16;
    const STEP: u64 = 64 << 10;
    let weights = |layer| [(2 * layer, 24 * MIB), (2 * layer + 1, 8 * MIB)];
    let mut ops: Vec<Op> = (0..LAYERS)
        .flat_map(weights)
        .map(|(id, bytes)| (true, id, bytes, 0))
        .collect();
    let first = 2 * LAYERS;
    for token in 0..400 {
        for cache in 0..2 * LAYERS {
            let id = first + token * 2 * LAYERS + cache;
            ops.push((true, id, (128 + token) * STEP, 0));
            if token > 0 {
                let before = id - 2 * LAYERS;
                ops.push((false, before, (127 + token) * STEP, 0));
            }
        }
    }
    ops
}

/// Sizes are rounded in small steps: blocks that grow evenly leave holes that the next ones fit together.
#[test]
fn a_decoder_holds_little_more_than_it_needs() {
    let usual = Options::default();
    let coarse = Options {
        rounding_kib: 1024,
        ..usual
    };
    let (time, held) = run(&decoder(), usual, Some(COMMAND_US));
    let (_, coarse_held) = run(&decoder(), coarse, Some(COMMAND_US));
    println!("decoder: held {held:.3}, {time:.0} ns; {coarse_held:.3} in steps of up to 1 MiB");
    assert!(held <= 1.05, "{held}");
    assert!(held + 0.1 < coarse_held, "{coarse_held} in large steps");
}

/// A program that never repeats: sizes and lives in allocations are drawn from a recorded program, and its queues.
fn drawn(recorded: &[Op], queues: u64, allocations: u64, seed: u64) -> Vec<Op> {
    let (mut sizes, mut live): (Vec<(u64, u64)>, _) = (Vec::new(), HashMap::new());
    for (made, id, bytes, _) in recorded {
        let at = sizes.len();
        match *made {
            true => {
                live.insert(*id, at);
                sizes.push((*bytes, allocations));
            }
            false => {
                let made_at = live.remove(id).expect("it was made");
                sizes[made_at].1 = (at - made_at) as u64;
            }
        }
    }
    let mut rng = Rng::new(seed);
    let (mut ops, mut ends) = (Vec::new(), BTreeMap::<u64, Vec<Op>>::new());
    for id in 0..allocations {
        let (bytes, life) = sizes[rng.below(sizes.len() as u64) as usize];
        let queue = rng.below(queues) as usize;
        ops.push((true, id, bytes, queue));
        ends.entry(id + life.max(1))
            .or_default()
            .push((false, id, bytes, queue));
        ops.extend(ends.remove(&(id + 1)).unwrap_or_default());
    }
    ops
}

/// A pool that seldom grows has small pages, of which more are free as a whole when a large block is asked for.
#[test]
fn a_pool_that_seldom_grows_earns_small_pages() {
    const SEEDS: u64 = 8;
    let recorded = recorded("llama_decode");
    let usual = Options::default();
    let coarse = Options {
        page_requests: 0,
        ..usual
    };
    let lag = Some(4.0 * SUBMIT_US);
    let programs = (0..SEEDS).map(|seed| drawn(&recorded, 8, 48_000, seed));
    let (mut held, mut coarse_held) = (0.0, 0.0);
    for ops in programs {
        held += run(&ops, usual, lag).1 / SEEDS as f64;
        coarse_held += run(&ops, coarse, lag).1 / SEEDS as f64;
    }
    println!("a decoder over 8 queues: held {held:.3}, {coarse_held:.3} with large pages");
    assert!(held + 0.02 < coarse_held, "{held} {coarse_held}");
}

/// Blocks of random sizes up to `largest` MiB on one queue while less than 1200 MiB are live, freed in random order.
fn steady(largest: u64, operations: usize, seed: u64) -> Vec<Op> {
    const STEP_MIB: u64 = 4;
    let mut rng = Rng::new(seed);
    let (mut ops, mut live, mut live_bytes) = (Vec::new(), Vec::new(), 0);
    for id in 0..operations as u64 {
        if live_bytes < 1200 * MIB {
            let bytes = STEP_MIB * MIB * (1 + rng.below(largest / STEP_MIB));
            ops.push((true, id, bytes, 0));
            live.push((id, bytes));
            live_bytes += bytes;
        } else {
            let (id, bytes) = live.swap_remove(rng.below(live.len() as u64) as usize);
            ops.push((false, id, bytes, 0));
            live_bytes -= bytes;
        }
    }
    ops
}

/// Requests served pay for pages that are remapped. So a training step over several queues may remap more of them than
/// it has mapped, and a steady mix of large blocks, which would remap some with each request, takes a bounded time.
#[test]
fn requests_served_bound_the_cost_of_remapping() {
    const SEEDS: u64 = 4;
    let options = |remap_requests| Options {
        remap_requests,
        ..Options::default()
    };
    let lag = Some(COMMAND_US);
    let recorded = recorded("gpt2_train");
    let programs = (0..SEEDS).map(|seed| drawn(&recorded, 8, 48_000, seed));
    let (mut held, mut bound_held) = (0.0, 0.0);
    for ops in programs {
        held += run(&ops, options(64), lag).1 / SEEDS as f64;
        bound_held += run(&ops, options(0), lag).1 / SEEDS as f64;
    }
    println!("gpt2 over 8 queues: held {held:.3}, {bound_held:.3} with no page more than it maps");
    assert!(held + 0.15 < bound_held, "{held} {bound_held}");
    let mixes: Vec<Vec<Op>> = (0..SEEDS).map(|seed| steady(400, 12_000, seed)).collect();
    let time = |options| {
        mixes
            .iter()
            .map(|ops| run(ops, options, lag).0)
            .sum::<f64>()
    };
    let never = time(Options {
        compaction: Compaction::Never,
        ..Options::default()
    });
    let (usual, often) = (time(options(64)) / never, time(options(1)) / never);
    println!(
        "a mix takes {usual:.2} of the time without remapping, {often:.2} with a page a request"
    );
    assert!(usual < 1.1 && often > usual + 0.1, "{usual} {often}");
}

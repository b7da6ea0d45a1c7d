//! Memory that recorded programs make a pool reserve and map, with pages of several sizes.
//!
//! Completion is visible only to a query. The limits hold whenever commands complete.

mod lanes;

use flate2::read::GzDecoder;
use lanes::Queue;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use ur::pool::oracle::{FakeProvider, Rng};
use ur::pool::*;
use ur::timeline::{Clock, Frontier};

const MIB: u64 = 1 << 20;

/// A provider with a query like CUDA's: it finds the lane idle or learns nothing.
struct Watched {
    fake: FakeProvider,
    lane: Mutex<Option<(Arc<Clock>, u64)>>,
    idle: AtomicBool,
}

impl SlabProvider for Watched {
    fn observes(&self) -> bool {
        true
    }

    fn observe(&self) {
        if self.idle.load(Ordering::Relaxed)
            && let Some((clock, epoch)) = &*self.lane.lock().unwrap()
        {
            clock.raise(*epoch);
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
        self.fake.map(pieces, fresh, page, after)
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

/// An operation of a program with one queue: the block's number, and its size in bytes if it allocates.
type Op = (u64, Option<u64>);

fn program(name: &str) -> Vec<Op> {
    let path = format!(
        "{}/tools/traces/{name}.trace.gz",
        env!("CARGO_MANIFEST_DIR")
    );
    let mut text = String::new();
    let file = File::open(path).expect("the trace is in the tree");
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let op = |line: &str| {
        let mut words = line.split(' ');
        let made = words.next() == Some("a");
        let mut number = || words.next().unwrap().parse().unwrap();
        let (id, bytes) = (number(), number());
        assert_eq!(number(), 0, "it has one queue");
        (id, made.then_some(bytes))
    };
    text.lines().map(op).collect()
}

/// A pool that reserved 16 GiB once and released all of it.
fn pool() -> (Arc<Watched>, Pool<Arc<Watched>>) {
    let provider = Arc::new(Watched {
        fake: FakeProvider::mixed(2 * MIB, 128 * MIB).leaving_mapped(),
        lane: Mutex::default(),
        idle: false.into(),
    });
    let config = Config {
        min_align: 512,
        ..Config::default()
    };
    let pool = Pool::new(Arc::clone(&provider), config);
    let ask = Request {
        may_wait: true,
        ..Request::new(64 * MIB, Order::Sync)
    };
    let all: Vec<_> = (0..256)
        .map(|_| pool.acquire(&ask).expect("no limit"))
        .collect();
    for block in all {
        let freed = pool.release(block.block().addr, Frontier::new());
        freed.expect("it is live");
    }
    pool.trim(0);
    pool.reset_reserved_high();
    assert_eq!(pool.figures().reserved, 0);
    (provider, pool)
}

/// Runs a program in which one of `one_in` operations finds its queue idle.
///
/// Returns peak reserved bytes over peak live bytes, mapped pages and compactions.
fn held(program: &[Op], seed: u64, one_in: u64) -> (f64, u64, u64) {
    let (provider, pool) = pool();
    let before = provider.fake.mapped();
    let mut queue = Queue::new();
    let (mut rng, mut blocks) = (Rng::new(seed), HashMap::new());
    let (mut live, mut peak) = (0, 0);
    for (id, made) in program {
        match made {
            Some(bytes) => {
                live += bytes;
                peak = peak.max(live);
                blocks.insert(id, (queue.alloc(&pool, *bytes), bytes));
            }
            None => {
                let (block, bytes) = blocks.remove(id).expect("it was made");
                live -= bytes;
                if queue.cache.free(block.addr, queue.lane.epoch()).is_none() {
                    let freed = pool.release(block.addr, queue.lane.tip());
                    freed.expect("it is live");
                }
            }
        }
        queue.lane.advance();
        let now = (Arc::clone(queue.lane.clock()), queue.lane.epoch());
        *provider.lane.lock().unwrap() = Some(now);
        provider
            .idle
            .store(rng.below(one_in) == 0, Ordering::Relaxed);
    }
    assert_eq!(provider.fake.wrong(), [""; 0]);
    let held = pool.figures().reserved_high as f64 / peak as f64;
    let mapped = provider.fake.mapped() - before;
    (held, mapped, pool.counters().compactions)
}

#[test]
fn recorded_programs_reserve_little_whenever_commands_complete() {
    for (name, seeds, most, pages) in [
        ("gpt2_train", 12, 1.05, 250),
        ("resnet50_train", 24, 1.08, 170),
        ("llama_decode", 2, 1.05, 100),
    ] {
        let program = program(name);
        let seeds = match std::env::var_os("UR_LONG") {
            Some(_) => 100 * seeds,
            None => seeds,
        };
        let mut all = Vec::new();
        for seed in 0..seeds {
            let one_in = [1, 3, 30, 300, 3000, 30_000][seed as usize % 6];
            let (held, mapped, gathers) = held(&program, seed, one_in);
            assert!(held <= most, "{name}, seed {seed}: {held}");
            assert!(
                mapped <= pages,
                "{name}, seed {seed}: {mapped} pages mapped"
            );
            assert!(gathers <= 8, "{name}, seed {seed}: {gathers} compactions");
            all.push(held);
        }
        all.sort_by(f64::total_cmp);
        println!("{name}: {:.3} to {:.3}", all[0], all[all.len() - 1]);
    }
}

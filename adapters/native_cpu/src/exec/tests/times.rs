//! What commands tell of their times, and what launching costs.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Times(AtomicU64, AtomicU64);

impl Stamp for Times {
    fn started(&self, at: u64) {
        self.0.store(at, Ordering::Relaxed);
    }

    fn ended(&self, at: u64) {
        self.1.store(at, Ordering::Relaxed);
    }
}

#[test]
fn commands_are_timed() {
    let executor = executor(2);
    let lane = TestLane::new(&executor);
    let times = Arc::new(Times(AtomicU64::new(0), AtomicU64::new(0)));
    let before = now();
    let list: Mutex<Vec<std::thread::ThreadId>> = Mutex::default();
    let mut args = Args::default();
    pointer(&mut args, 0, &list);
    let command = launch(note_thread, line(4, 1), args);
    lane.lane
        .submit(1, command, Some(Arc::clone(&times) as Arc<dyn Stamp>))
        .expect("the executor runs");
    lane.lane.mark(1).block().expect("the executor runs");
    let (start, end) = (
        times.0.load(Ordering::Relaxed),
        times.1.load(Ordering::Relaxed),
    );
    assert!(before <= start && start + 200_000 <= end && end <= now());
}

/// Not a test: prints what launching costs. `cargo test --release -- --ignored --nocapture latency`
#[test]
#[ignore = "a measurement"]
fn latency() {
    let width = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let executor = executor(width);
    let mut lane = TestLane::new(&executor);
    let count = AtomicU64::new(0);
    for (name, items) in [("1 group", 1), ("64 groups", 64), ("4096 groups", 4096)] {
        let mut run = || {
            let mut args = Args::default();
            pointer(&mut args, 0, &count);
            lane.submit(launch(count_up, line(items, 1), args))
        };
        const ROUNDS: u64 = 20_000;
        let start = now();
        for _ in 0..ROUNDS {
            run().block().expect("the executor runs");
        }
        let each = (now() - start) / ROUNDS;
        let start = now();
        let markers: Vec<Marker> = (0..ROUNDS).map(|_| run()).collect();
        let submitted = (now() - start) / ROUNDS;
        for marker in &markers {
            marker.block().expect("the executor runs");
        }
        let stream = (now() - start) / ROUNDS;
        println!("{name}: launch and wait {each} ns, submit {submitted} ns, stream {stream} ns");
    }
    let start = now();
    const SLEEPS: u64 = 100;
    for _ in 0..SLEEPS {
        std::thread::sleep(Duration::from_millis(1));
        let mut args = Args::default();
        pointer(&mut args, 0, &count);
        lane.submit(launch(count_up, line(1, 1), args))
            .block()
            .expect("the executor runs");
    }
    println!(
        "after 1 ms of rest: {} ns more",
        (now() - start) / SLEEPS - 1_000_000
    );
}

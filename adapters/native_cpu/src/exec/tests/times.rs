//! What commands tell of their times.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

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
    let command = launch(record_thread, line(4, 1), args);
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

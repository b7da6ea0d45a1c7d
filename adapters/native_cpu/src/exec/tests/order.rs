//! Lanes beside each other: their order, waits and calls, what they hold, and which workers they use.

use super::*;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use ur::timeline::Clock;

/// args: AtomicUsize, Mutex<Vec<usize>> of the numbers given, usize by value.
unsafe extern "C" fn record_number(args: *const *const c_void, _: *mut WorkItemState) {
    // SAFETY: the tests pass these arguments.
    unsafe {
        let number = *arg::<usize>(args, 2);
        arg::<AtomicUsize>(args, 0).fetch_add(1, Ordering::Relaxed);
        arg::<Mutex<Vec<usize>>>(args, 1)
            .lock()
            .expect("no panic")
            .push(number);
    }
}

/// xorshift: the same sequence every time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

#[test]
fn lanes_run_in_order_and_waits_hold_across_them() {
    let count = AtomicUsize::new(0);
    let order: Mutex<Vec<usize>> = Mutex::default();
    for seed in 1..=20u64 {
        let executor = executor(1 + seed as usize % 4);
        let mut random = Random(seed * 0x9e37_79b9);
        let mut lanes: Vec<TestLane> = (0..6).map(|_| TestLane::new(&executor)).collect();
        order.lock().expect("no panic").clear();
        // Numbers, and for each those that must come before it.
        let mut markers: Vec<(usize, Marker)> = Vec::new();
        let mut before: Vec<Vec<usize>> = Vec::new();
        let mut last = [None; 6];
        for number in 0..400usize {
            let at = random.below(lanes.len());
            let mut earlier: Vec<usize> = last[at].into_iter().collect();
            for _ in 0..random.below(3) {
                if !markers.is_empty() {
                    let (other, marker) = &markers[random.below(markers.len())];
                    lanes[at].wait(marker);
                    earlier.push(*other);
                }
            }
            let mut args = Args::default();
            pointer(&mut args, 0, &count);
            pointer(&mut args, 1, &order);
            args.value(2, &number.to_ne_bytes());
            let marker = lanes[at].submit(launch(record_number, line(1, 1), args));
            last[at] = Some(number);
            markers.push((number, marker));
            before.push(earlier);
            if random.below(50) == 0 {
                markers[random.below(markers.len())]
                    .1
                    .block()
                    .expect("the executor runs");
            }
        }
        for (_, marker) in &markers {
            marker.block().expect("the executor runs");
        }
        let order = order.lock().expect("no panic").clone();
        assert_eq!(order.len(), 400);
        let mut position = vec![0; 400];
        for (at, &number) in order.iter().enumerate() {
            position[number] = at;
        }
        for (number, earlier) in before.iter().enumerate() {
            for &one in earlier {
                assert!(
                    position[one] < position[number],
                    "seed {seed}: {one} after {number}"
                );
            }
        }
    }
    assert_eq!(count.load(Ordering::Relaxed), 20 * 400);
}

#[test]
fn a_lane_is_idle_with_nothing_to_run_or_to_wait_for() {
    let executor = executor(2);
    let (point, signal) = Completion::host_point(executor.thread_pool(), &Clock::new());
    let mut lane = TestLane::new(&executor);
    assert!(lane.lane.is_idle());
    lane.wait(&point);
    assert!(!lane.lane.is_idle(), "it has a wait to come to");
    let blocked = lane.submit(Command::Nothing);
    drop(signal);
    blocked.block().expect("the executor runs");
    // Whoever ran the command may yet have to see that it was the last.
    while !lane.lane.is_idle() {
        std::thread::yield_now();
    }
    drop(executor);
    assert!(!lane.lane.is_idle(), "nothing more is taken");
}

#[test]
fn others_go_on_while_one_lane_waits_for_the_host() {
    let executor = executor(2);
    let clock = Clock::new();
    let (point, signal) = Completion::host_point(executor.thread_pool(), &clock);
    let mut stuck: Vec<TestLane> = (0..8).map(|_| TestLane::new(&executor)).collect();
    let blocked: Vec<Marker> = stuck
        .iter_mut()
        .map(|lane| {
            lane.wait(&point);
            lane.submit(Command::Nothing)
        })
        .collect();
    let mut free = TestLane::new(&executor);
    for _ in 0..100 {
        free.submit(Command::Nothing)
            .block()
            .expect("the executor runs");
    }
    assert!(blocked.iter().all(|marker| !marker.reached()));
    drop(signal);
    for marker in &blocked {
        marker.block().expect("the executor runs");
    }
    assert_eq!(clock.completed(), 1);
    assert_eq!(stuck[0].clock.completed(), 1);
}

#[test]
fn a_dropped_lane_still_ends_its_work() {
    let executor = executor(2);
    let clock = Clock::new();
    let (point, signal) = Completion::host_point(executor.thread_pool(), &clock);
    let mut lane = TestLane::new(&executor);
    lane.wait(&point);
    let cells = [AtomicU64::new(0)];
    let mut args = Args::default();
    pointer(&mut args, 0, &cells[0]);
    args.value(1, &7u64.to_ne_bytes());
    let done = lane.submit(launch(add_value, line(1, 1), args));
    drop(lane);
    drop(signal);
    done.block().expect("the executor runs");
    assert_eq!(cells[0].load(Ordering::Relaxed), 7);
}

/// Says when it goes.
struct Resource(Arc<AtomicBool>);

impl Drop for Resource {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn what_a_command_holds_goes_before_it_completes() {
    let executor = executor(4);
    let mut lane = TestLane::new(&executor);
    let count = AtomicU64::new(0);
    for round in 0..500 {
        let gone = Arc::new(AtomicBool::new(false));
        let mut args = Args::default();
        pointer(&mut args, 0, &count);
        let resource = Arc::new(Resource(Arc::clone(&gone)));
        let range = line(if round % 2 == 0 { 64 } else { 1 }, 1);
        // SAFETY: the kernel only counts.
        let launch = unsafe { Launch::new(count_up, Form::Item, range, args, Some(resource)) };
        let marker = lane.submit(Command::Launch(Arc::new(launch)));
        marker.block().expect("the executor runs");
        assert!(gone.load(Ordering::Acquire), "round {round}");
    }
    assert_eq!(count.load(Ordering::Relaxed), 250 * 65);
}

#[test]
fn calls_come_when_their_time_has_come() {
    let executor = executor(2);
    let clock = Clock::new();
    let (point, signal) = Completion::host_point(executor.thread_pool(), &clock);
    let mut lane = TestLane::new(&executor);
    lane.wait(&point);
    let calls = Arc::new(Mutex::new(Vec::new()));
    let call = |number: usize| {
        let calls = Arc::clone(&calls);
        Box::new(move || calls.lock().expect("no panic").push(number))
    };
    for number in 0..20 {
        let marker = lane.submit(Command::Nothing);
        assert!(marker.on_completion(call(number)).is_ok());
    }
    assert_eq!(calls.lock().expect("no panic").len(), 0);
    drop(signal);
    let last = lane.lane.mark(20);
    last.block().expect("the executor runs");
    assert!(last.on_completion(call(20)).is_ok());
    executor.stop();
    let mut calls = calls.lock().expect("no panic").clone();
    calls.sort_unstable();
    assert_eq!(calls, (0..21).collect::<Vec<_>>());
}

#[test]
fn a_range_uses_its_own_workers_only() {
    let executor = executor(6);
    let threads: [Mutex<Vec<std::thread::ThreadId>>; 2] = Default::default();
    let spans = [
        WorkerRange { first: 0, count: 2 },
        WorkerRange { first: 2, count: 3 },
    ];
    let mut lanes = spans.map(|workers| TestLane::on(&executor, workers));
    let markers: Vec<Marker> = (0..40)
        .map(|at| {
            let mut args = Args::default();
            pointer(&mut args, 0, &threads[at % 2]);
            lanes[at % 2].submit(launch(record_thread, line(16, 1), args))
        })
        .collect();
    for marker in &markers {
        marker.block().expect("the executor runs");
    }
    let [mut first, mut second] = threads.map(|list| list.into_inner().expect("no panic"));
    assert_eq!((first.len(), second.len()), (320, 320));
    for list in [&mut first, &mut second] {
        list.sort_by_key(|id| format!("{id:?}"));
        list.dedup();
    }
    assert!(
        first.len() <= 2 && second.len() <= 3,
        "{first:?} {second:?}"
    );
    assert!(first.iter().all(|id| !second.contains(id)));
}

#[test]
fn many_threads_submit_and_wait() {
    let executor = executor(3);
    let count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for seed in 0..6 {
            let (executor, count) = (&executor, &count);
            scope.spawn(move || {
                let mut lane = TestLane::new(executor);
                let mut random = Random(seed + 1);
                for _ in 0..300 {
                    let mut args = Args::default();
                    pointer(&mut args, 0, count);
                    let marker = lane.submit(launch(count_up, line(32, 1), args));
                    if random.below(4) == 0 {
                        marker.block().expect("the executor runs");
                    }
                }
                lane.lane
                    .mark(lane.epoch)
                    .block()
                    .expect("the executor runs");
            });
        }
    });
    assert_eq!(count.load(Ordering::Relaxed), 6 * 300 * 32);
}

//! The executor against kernels written here, over many lanes and threads.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ur::timeline::Clock;

use super::*;

fn executor(width: usize) -> Executor {
    Executor::start(width).expect("threads can be started")
}

struct TestLane {
    lane: Lane,
    clock: Arc<Clock>,
    epoch: u64,
}

impl TestLane {
    fn new(executor: &Executor) -> Self {
        let all = Span {
            first: 0,
            count: executor.crew().width(),
        };
        Self::on(executor, all)
    }

    fn on(executor: &Executor, span: Span) -> Self {
        let clock = Clock::new();
        let lane = Lane::open(executor.crew(), span, &clock).expect("the executor runs");
        Self {
            lane,
            clock,
            epoch: 0,
        }
    }

    fn submit(&mut self, command: Command) -> Marker {
        self.epoch += 1;
        self.lane
            .submit(self.epoch, command, None)
            .expect("the executor runs");
        self.lane.mark(self.epoch)
    }

    fn wait(&self, marker: &Marker) {
        self.lane.wait(marker).expect("the executor runs");
    }
}

fn line(items: usize, local: usize) -> NdRange {
    NdRange {
        offset: [0; 3],
        groups: [items / local, 1, 1],
        local: [local, 1, 1],
    }
}

fn launch(function: Function, range: NdRange, args: Args) -> Command {
    // SAFETY: the kernels of this module only touch what their tests give them.
    Command::Launch(Arc::new(unsafe {
        Launch::new(function, Form::Item, range, args, None)
    }))
}

/// The argument at `index` as a reference.
///
/// # Safety
/// The argument points to a `T`.
unsafe fn arg<'a, T>(args: *const *const c_void, index: usize) -> &'a T {
    // SAFETY: the caller's promise.
    unsafe { &*(*args.add(index)).cast::<T>() }
}

fn pointer<T>(args: &mut Args, index: usize, value: &T) {
    args.pointer(index, (&raw const *value).expose_provenance());
}

/// args: AtomicU64[items], u64 by value.
unsafe extern "C" fn add_value(args: *const *const c_void, state: *mut State) {
    // SAFETY: the tests pass these arguments.
    unsafe {
        let item = (*state).global_id[0];
        let value = arg::<u64>(args, 1);
        arg::<AtomicU64>(args, 0)
            .as_ptr()
            .add(item)
            .write(item as u64 + value);
    }
}

#[test]
fn every_item_runs_once_whatever_the_split() {
    let executor = executor(4);
    let mut lane = TestLane::new(&executor);
    for (items, local) in [(1, 1), (7, 7), (64, 1), (1000, 10), (100_000, 100)] {
        let cells: Vec<AtomicU64> = (0..items).map(|_| AtomicU64::new(0)).collect();
        let mut args = Args::default();
        pointer(&mut args, 0, &cells[0]);
        args.value(1, &5u64.to_ne_bytes());
        let done = lane.submit(launch(add_value, line(items, local), args));
        done.block().expect("the executor runs");
        let wrong = (0..items).find(|&at| cells[at].load(Ordering::Relaxed) != at as u64 + 5);
        assert_eq!(wrong, None, "{items} by {local}");
    }
}

/// args: Mutex<Vec<State>>.
unsafe extern "C" fn note_state(args: *const *const c_void, state: *mut State) {
    // SAFETY: the tests pass these arguments.
    let (list, state) = unsafe { (arg::<Mutex<Vec<State>>>(args, 0), (*state).clone()) };
    list.lock().expect("no panic").push(state);
}

#[test]
fn a_work_item_knows_where_it_is() {
    let executor = executor(3);
    let mut lane = TestLane::new(&executor);
    let list: Mutex<Vec<State>> = Mutex::default();
    let mut args = Args::default();
    pointer(&mut args, 0, &list);
    let range = NdRange {
        offset: [10, 20, 30],
        groups: [2, 3, 4],
        local: [4, 2, 1],
    };
    lane.submit(launch(note_state, range, args))
        .block()
        .expect("the executor runs");
    let mut states = list.into_inner().expect("no panic");
    assert_eq!(states.len(), 24 * 8);
    for state in &states {
        for axis in 0..3 {
            let base = state.group_id[axis] * range.local[axis] + range.offset[axis];
            assert_eq!(state.global_id[axis], base + state.local_id[axis]);
            assert!(state.local_id[axis] < range.local[axis]);
            assert!(state.group_id[axis] < range.groups[axis]);
        }
        assert_eq!((state.global_range, state.groups), ([8, 6, 4], [2, 3, 4]));
        assert_eq!(
            (state.group_size, state.global_offset),
            ([4, 2, 1], [10, 20, 30])
        );
        assert_eq!(
            state.sub_group_id as usize,
            state.local_id[0] + 4 * state.local_id[1]
        );
        assert_eq!((state.sub_groups, state.sub_group_size), (8, 1));
    }
    states.sort_by_key(|state| state.global_id);
    states.dedup_by_key(|state| state.global_id);
    assert_eq!(states.len(), 24 * 8);
}

/// args: AtomicUsize[groups], u32 local[group size], double by value, u64 local[1].
unsafe extern "C" fn sum_in_group(args: *const *const c_void, state: *mut State) {
    // SAFETY: the tests pass these arguments; a group's items run one after the other.
    unsafe {
        let state = &*state;
        let [item, size] = [state.local_id[0], state.group_size[0]];
        let local = (*args.add(1)).cast_mut().cast::<u32>();
        local.add(item).write(state.global_id[0] as u32);
        let last = (*args.add(3)).cast_mut().cast::<u64>();
        last.write(item as u64);
        assert_eq!(*arg::<f64>(args, 2), 0.5);
        if item + 1 == size {
            let sum: usize = (0..size).map(|at| *local.add(at) as usize).sum();
            arg::<AtomicUsize>(args, 0)
                .as_ptr()
                .add(state.group_id[0])
                .write(sum + *last as usize);
        }
    }
}

#[test]
fn local_memory_is_the_group_s_own() {
    let executor = executor(4);
    let mut lane = TestLane::new(&executor);
    let sums: Vec<AtomicUsize> = (0..500).map(|_| AtomicUsize::new(0)).collect();
    let mut args = Args::default();
    pointer(&mut args, 0, &sums[0]);
    args.local(1, 16 * 4);
    args.value(2, &0.5f64.to_ne_bytes());
    args.local(3, 8);
    assert_eq!(args.local_bytes(), 256);
    lane.submit(launch(sum_in_group, line(8000, 16), args))
        .block()
        .expect("the executor runs");
    for (group, sum) in sums.iter().enumerate() {
        let expected = (group * 16..group * 16 + 16).sum::<usize>() + 15;
        assert_eq!(sum.load(Ordering::Relaxed), expected, "group {group}");
    }
}

#[test]
fn values_are_aligned_as_their_size_may_need() {
    let mut args = Args::default();
    for (index, bytes) in [1, 64, 3, 128, 200, 0, 32].into_iter().enumerate() {
        args.value(index, &vec![index as u8; bytes]);
    }
    args.pointer(9, 0);
    let executor = executor(1);
    let mut lane = TestLane::new(&executor);
    /// args: seven values, then nothing.
    unsafe extern "C" fn check(args: *const *const c_void, _: *mut State) {
        for (index, align) in [(0, 8), (1, 64), (2, 8), (3, 128), (4, 128), (6, 32)] {
            // SAFETY: the test passes these arguments.
            let address = unsafe { *args.add(index) };
            assert_eq!(address.addr() % align, 0, "argument {index}");
            // SAFETY: each holds its index in its first byte.
            assert_eq!(unsafe { *address.cast::<u8>() }, index as u8);
        }
        // SAFETY: the test passes ten arguments, two of which it left out.
        assert!(unsafe { (*args.add(8)).is_null() && (*args.add(7)).is_null() });
    }
    lane.submit(launch(check, line(1, 1), args))
        .block()
        .expect("the executor runs");
}

#[test]
fn a_function_of_whole_groups_is_called_once_a_group() {
    let executor = executor(2);
    let mut lane = TestLane::new(&executor);
    let list: Mutex<Vec<State>> = Mutex::default();
    let mut args = Args::default();
    pointer(&mut args, 0, &list);
    let range = NdRange {
        offset: [1, 0, 0],
        groups: [3, 2, 1],
        local: [8, 4, 2],
    };
    // SAFETY: the kernel only notes its state.
    let launch = unsafe { Launch::new(note_state, Form::Group, range, args, None) };
    let done = lane.submit(Command::Launch(Arc::new(launch)));
    done.block().expect("the executor runs");
    let mut states = list.into_inner().expect("no panic");
    states.sort_by_key(|state| state.group_id);
    let groups: Vec<_> = states.iter().map(|state| state.group_id).collect();
    let expected = [
        [0, 0, 0],
        [0, 1, 0],
        [1, 0, 0],
        [1, 1, 0],
        [2, 0, 0],
        [2, 1, 0],
    ];
    assert_eq!(groups, expected);
    assert_eq!(states[4].global_id, [17, 0, 0]);
    assert!(
        states
            .iter()
            .all(|state| state.local_id == [0; 3] && state.sub_groups == 64)
    );
}

/// args: AtomicUsize, Mutex<Vec<usize>> of the numbers given, usize by value.
unsafe extern "C" fn note_number(args: *const *const c_void, _: *mut State) {
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
            let marker = lanes[at].submit(launch(note_number, line(1, 1), args));
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
        let mut place = vec![0; 400];
        for (at, &number) in order.iter().enumerate() {
            place[number] = at;
        }
        for (number, earlier) in before.iter().enumerate() {
            for &one in earlier {
                assert!(
                    place[one] < place[number],
                    "seed {seed}: {one} after {number}"
                );
            }
        }
    }
    assert_eq!(count.load(Ordering::Relaxed), 20 * 400);
}

#[test]
fn others_go_on_while_one_lane_waits_for_the_host() {
    let executor = executor(2);
    let clock = Clock::new();
    let (point, signal) = Fence::host_point(executor.crew(), &clock);
    let mut stuck: Vec<TestLane> = (0..8).map(|_| TestLane::new(&executor)).collect();
    let held: Vec<Marker> = stuck
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
    assert!(held.iter().all(|marker| !marker.reached()));
    drop(signal);
    for marker in &held {
        marker.block().expect("the executor runs");
    }
    assert_eq!(clock.completed(), 1);
    assert_eq!(stuck[0].clock.completed(), 1);
}

#[test]
fn a_dropped_lane_still_ends_its_work() {
    let executor = executor(2);
    let clock = Clock::new();
    let (point, signal) = Fence::host_point(executor.crew(), &clock);
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
struct Held(Arc<AtomicBool>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// args: AtomicU64.
unsafe extern "C" fn count_up(args: *const *const c_void, _: *mut State) {
    // SAFETY: the tests pass this argument.
    unsafe { arg::<AtomicU64>(args, 0) }.fetch_add(1, Ordering::Relaxed);
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
        let keep = Arc::new(Held(Arc::clone(&gone)));
        let range = line(if round % 2 == 0 { 64 } else { 1 }, 1);
        // SAFETY: the kernel only counts.
        let launch = unsafe { Launch::new(count_up, Form::Item, range, args, Some(keep)) };
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
    let (point, signal) = Fence::host_point(executor.crew(), &clock);
    let mut lane = TestLane::new(&executor);
    lane.wait(&point);
    let calls = Arc::new(Mutex::new(Vec::new()));
    let call = |number: usize| {
        let calls = Arc::clone(&calls);
        Box::new(move || calls.lock().expect("no panic").push(number))
    };
    for number in 0..20 {
        let marker = lane.submit(Command::Nothing);
        assert!(marker.on_reach(call(number)).is_ok());
    }
    assert_eq!(calls.lock().expect("no panic").len(), 0);
    drop(signal);
    let last = lane.lane.mark(20);
    last.block().expect("the executor runs");
    assert!(last.on_reach(call(20)).is_ok());
    executor.stop();
    let mut calls = calls.lock().expect("no panic").clone();
    calls.sort_unstable();
    assert_eq!(calls, (0..21).collect::<Vec<_>>());
}

/// args: Mutex<Vec<ThreadId>>.
unsafe extern "C" fn note_thread(args: *const *const c_void, _: *mut State) {
    // SAFETY: the tests pass this argument.
    let list = unsafe { arg::<Mutex<Vec<std::thread::ThreadId>>>(args, 0) };
    list.lock()
        .expect("no panic")
        .push(std::thread::current().id());
    std::thread::sleep(Duration::from_micros(200));
}

#[test]
fn a_span_uses_its_own_workers_only() {
    let executor = executor(6);
    let threads: [Mutex<Vec<std::thread::ThreadId>>; 2] = Default::default();
    let spans = [Span { first: 0, count: 2 }, Span { first: 2, count: 3 }];
    let mut lanes = spans.map(|span| TestLane::on(&executor, span));
    let markers: Vec<Marker> = (0..40)
        .map(|at| {
            let mut args = Args::default();
            pointer(&mut args, 0, &threads[at % 2]);
            lanes[at % 2].submit(launch(note_thread, line(16, 1), args))
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

#[test]
fn it_stops_with_what_can_run_done_and_then_refuses() {
    let executor = executor(3);
    let count = AtomicU64::new(0);
    let mut lanes = [
        TestLane::new(&executor),
        TestLane::on(&executor, Span { first: 2, count: 1 }),
    ];
    for at in 0..200 {
        let mut args = Args::default();
        pointer(&mut args, 0, &count);
        let marker = lanes[at % 2].submit(launch(count_up, line(10, 1), args));
        lanes[1 - at % 2].wait(&marker);
    }
    let clock = Clock::new();
    let (point, signal) = Fence::host_point(executor.crew(), &clock);
    let mut stuck = TestLane::new(&executor);
    stuck.wait(&point);
    let never = stuck.submit(Command::Nothing);
    executor.stop();
    assert_eq!(count.load(Ordering::Relaxed), 2000);
    assert_eq!(never.block(), Err(Failure::Lost));
    assert_eq!(
        lanes[0].lane.submit(999, Command::Nothing, None),
        Err(Failure::Lost)
    );
    assert!(never.on_reach(Box::new(|| {})).is_err());
    assert_eq!(lanes[0].lane.mark(1).block(), Ok(()));
    drop(signal);
    executor.stop();
}

#[test]
fn a_blocked_thread_is_told_when_the_executor_stops() {
    let executor = executor(1);
    let clock = Clock::new();
    let (point, signal) = Fence::host_point(executor.crew(), &clock);
    let waiting = std::thread::spawn(move || point.block());
    std::thread::sleep(Duration::from_millis(20));
    executor.stop();
    assert_eq!(waiting.join().expect("no panic"), Err(Failure::Lost));
    drop(signal);
}

#[test]
fn a_child_is_told_that_its_threads_are_lost() {
    let executor = executor(2);
    let mut lane = TestLane::new(&executor);
    lane.submit(Command::Nothing)
        .block()
        .expect("the executor runs");
    let clock = Clock::new();
    let (point, _signal) = Fence::host_point(executor.crew(), &clock);
    // SAFETY: the child calls what is under test and leaves without running destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = lane.lane.submit(9, Command::Nothing, None) == Err(Failure::Lost)
            && lane.lane.wait(&point) == Err(Failure::Lost)
            && point.block() == Err(Failure::Lost)
            && point.check() == Err(Failure::Lost)
            && lane.lane.mark(1).block() == Ok(())
            && point.on_reach(Box::new(|| {})).is_err()
            && Lane::open(executor.crew(), Span { first: 0, count: 1 }, &clock).is_err();
        executor.stop();
        // SAFETY: ends the child here.
        unsafe { libc::_exit(if refused { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: the child is ours.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child hung up or was not refused");
    lane.submit(Command::Nothing)
        .block()
        .expect("the parent goes on");
}

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

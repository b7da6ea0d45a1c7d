//! An executor that stops, and one whose process forks.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use ur::timeline::Clock;

#[test]
fn it_stops_with_what_can_run_done_and_then_refuses() {
    let executor = executor(3);
    let count = AtomicU64::new(0);
    let mut lanes = [
        TestLane::new(&executor),
        TestLane::on(&executor, WorkerRange { first: 2, count: 1 }),
    ];
    for at in 0..200 {
        let mut args = Args::default();
        pointer(&mut args, 0, &count);
        let marker = lanes[at % 2].submit(launch(count_up, line(10, 1), args));
        lanes[1 - at % 2].wait(&marker);
    }
    let clock = Clock::new();
    let (point, signal) = Completion::host_point(executor.thread_pool(), &clock);
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
    assert!(never.on_completion(Box::new(|| {})).is_err());
    assert_eq!(lanes[0].lane.mark(1).block(), Ok(()));
    drop(signal);
    executor.stop();
}

#[test]
fn a_blocked_thread_returns_when_the_executor_stops() {
    let executor = executor(1);
    let clock = Clock::new();
    let (point, signal) = Completion::host_point(executor.thread_pool(), &clock);
    let waiting = std::thread::spawn(move || point.block());
    std::thread::sleep(Duration::from_millis(20));
    executor.stop();
    assert_eq!(waiting.join().expect("no panic"), Err(Failure::Lost));
    drop(signal);
}

#[test]
fn a_child_gets_an_error_as_its_threads_are_lost() {
    let executor = executor(2);
    let mut lane = TestLane::new(&executor);
    lane.submit(Command::Nothing)
        .block()
        .expect("the executor runs");
    let clock = Clock::new();
    let (point, _signal) = Completion::host_point(executor.thread_pool(), &clock);
    // SAFETY: the child calls what is under test and leaves without running destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = lane.lane.submit(9, Command::Nothing, None) == Err(Failure::Lost)
            && lane.lane.wait(&point) == Err(Failure::Lost)
            && point.block() == Err(Failure::Lost)
            && point.check() == Err(Failure::Lost)
            && lane.lane.mark(1).block() == Ok(())
            && point.on_completion(Box::new(|| {})).is_err()
            && Lane::open(
                executor.thread_pool(),
                WorkerRange { first: 0, count: 1 },
                &clock,
            )
            .is_err();
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

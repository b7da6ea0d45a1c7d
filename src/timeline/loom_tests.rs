//! Run as the module's head says. Every interleaving and every permitted reordering is tried.

use super::{Clock, Failure, Frontier, Lane, Point};
use crate::sync::{AtomicU64, Mutex, Ordering, rank};
use loom::thread;
use std::sync::Arc;

#[test]
fn loom_a_raise_publishes_what_was_done_before_it() {
    loom::model(|| {
        let clock = Clock::new();
        let result = Arc::new(AtomicU64::new(0));
        let worker = {
            let (clock, result) = (Arc::clone(&clock), Arc::clone(&result));
            thread::spawn(move || {
                result.store(42, Ordering::Relaxed);
                clock.raise(1);
            })
        };
        if Point::new(&clock, 1).is_complete() {
            assert_eq!(result.load(Ordering::Relaxed), 42);
        }
        let _ = worker.join();
        assert!(Point::new(&clock, 1).is_complete());
    });
}

#[test]
fn loom_racing_raises_keep_the_highest() {
    loom::model(|| {
        let clock = Clock::new();
        let other = {
            let clock = Arc::clone(&clock);
            thread::spawn(move || clock.raise(2))
        };
        clock.raise(1);
        let seen = clock.completed();
        assert!(seen >= 1);
        let _ = other.join();
        assert_eq!(clock.completed(), 2);
    });
}

#[test]
fn loom_pruning_races_with_completion_without_losing_order() {
    loom::model(|| {
        let producer = Clock::new();
        let consumer = Arc::new(Mutex::<_, { rank::LEAF }>::new(Lane::new()));
        let death = Frontier::from(Point::new(&producer, 1));
        let raiser = {
            let producer = Arc::clone(&producer);
            thread::spawn(move || producer.raise(1))
        };
        let waiter = {
            let (consumer, death) = (Arc::clone(&consumer), death.clone());
            thread::spawn(move || consumer.lock().wait_for(&death))
        };
        let _ = waiter.join();
        // Whether the wait was recorded or pruned away as complete, the death stays ordered.
        assert!(consumer.lock().ordered(&death));
        let _ = raiser.join();
        assert!(consumer.lock().ordered(&death));
    });
}

#[test]
fn loom_who_sees_a_failed_command_complete_sees_its_failure() {
    loom::model(|| {
        let clock = Clock::new();
        let failing = {
            let clock = Arc::clone(&clock);
            thread::spawn(move || {
                clock.fail(0, 1, &Failure::new());
                clock.raise(1);
            })
        };
        if Point::new(&clock, 1).is_complete() {
            assert!(clock.failure(1).is_some(), "complete, and taken for right");
        }
        let _ = failing.join();
        assert!(clock.failure(1).is_some());
    });
}

#[test]
fn loom_one_of_several_waits_reports_a_failure() {
    loom::model(|| {
        let clock = Clock::new();
        clock.fail(0, 1, &Failure::new());
        let other = {
            let clock = Arc::clone(&clock);
            thread::spawn(move || clock.report(1))
        };
        let own = clock.report(1);
        assert!(own ^ other.join().unwrap(), "reported twice or never");
        assert!(clock.unreported(1).is_none() && clock.failure(1).is_some());
    });
}

#[test]
fn loom_an_awaited_epoch_publishes_what_was_done_before_it() {
    loom::model(|| {
        let clock = Clock::of(true);
        let result = Arc::new(AtomicU64::new(0));
        let waiter = {
            let (clock, result) = (Arc::clone(&clock), Arc::clone(&result));
            thread::spawn(move || {
                result.store(42, Ordering::Relaxed);
                clock.raise_awaited(1);
            })
        };
        if clock.reliable() >= 1 {
            assert_eq!(result.load(Ordering::Relaxed), 42);
            assert_eq!(clock.completed(), 1, "relied on before it was complete");
        }
        let _ = waiter.join();
        assert_eq!((clock.reliable(), clock.completed()), (1, 1));
    });
}

#[test]
fn loom_an_ended_lane_stays_complete() {
    loom::model(|| {
        let clock = Clock::new();
        let retiring = {
            let clock = Arc::clone(&clock);
            thread::spawn(move || clock.raise(u64::MAX))
        };
        // A thread that observed an earlier command meanwhile.
        clock.raise(3);
        assert!(clock.completed() >= 3);
        let _ = retiring.join();
        assert_eq!(clock.completed(), u64::MAX);
    });
}

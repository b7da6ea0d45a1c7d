//! Small models of threads that share a pool. Run as `timeline`'s head says.

use super::oracle::FakeSource;
use super::{Acquired, Config, Order, Pool, PoolError, Request};
use crate::timeline::{Clock, Frontier, Lane, Point};
use loom::thread;
use std::sync::Arc;

type TestPool = Pool<Arc<FakeSource>>;

fn pool(max: u64, chunk: u64) -> Arc<TestPool> {
    let config = Config {
        max_bytes: Some(max),
        chunk_bytes: chunk,
        min_align: 64,
        ..Config::default()
    };
    Arc::new(Pool::new(Arc::new(FakeSource::new(64)), config))
}

fn ask(
    pool: &TestPool,
    bytes: u64,
    order: Order<'_>,
    may_wait: bool,
) -> Result<Acquired, PoolError> {
    pool.acquire(&Request {
        bytes,
        align: 0,
        order,
        may_wait,
    })
}

fn now(pool: &TestPool, bytes: u64) -> u64 {
    match ask(pool, bytes, Order::Sync, false) {
        Ok(acquired) => acquired.block().addr,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn loom_a_foreign_death_is_reused_only_once_complete() {
    loom::model(|| {
        let pool = pool(128, 0);
        let old = now(&pool, 64);
        let clock = Clock::new();
        let death = Point::new(&clock, 1);
        let freer = {
            let (pool, death) = (Arc::clone(&pool), death.clone());
            thread::spawn(move || pool.release(old, Frontier::from(death)).is_ok())
        };
        let raiser = thread::spawn(move || clock.raise(1));
        let new = now(&pool, 64);
        assert!(new != old || death.is_complete());
        assert_eq!(freer.join().ok(), Some(true));
        let _ = raiser.join();
        // Whatever came first, both blocks' worth of memory is there and no more.
        let third = ask(&pool, 64, Order::Sync, false);
        assert!(third.is_ok());
        assert!(pool.figures().reserved <= 128 && pool.figures().used == 128);
    });
}

#[test]
fn loom_racing_growth_keeps_to_the_maximum_and_serves_both() {
    loom::model(|| {
        let pool = pool(128, 128);
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || now(&pool, 64))
        };
        let mine = now(&pool, 64);
        let theirs = other.join().unwrap_or(mine);
        assert_ne!(mine, theirs);
        assert_eq!((pool.figures().reserved, pool.source().calls()), (128, 1));
    });
}

#[test]
fn loom_a_trim_in_flight_does_not_starve_a_request() {
    loom::model(|| {
        let pool = pool(128, 128);
        let old = now(&pool, 128);
        assert!(pool.release(old, Frontier::new()).is_ok());
        let trimmer = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.trim(0))
        };
        now(&pool, 128);
        let _ = trimmer.join();
        let figures = pool.figures();
        assert_eq!((figures.reserved, figures.reserved_high), (128, 128));
        assert_eq!(pool.source().bytes_out(), 128);
    });
}

#[test]
fn loom_a_pending_free_serves_with_a_wait_or_without() {
    loom::model(|| {
        let pool = pool(64, 0);
        let mut producer = Lane::new();
        let old = now(&pool, 64);
        producer.advance();
        assert!(pool.release(old, producer.tip()).is_ok());
        let raiser = {
            let clock = Arc::clone(producer.clock());
            thread::spawn(move || clock.raise(1))
        };
        let consumer = Lane::new();
        match ask(&pool, 64, Order::Lane(&consumer), true) {
            Ok(Acquired::Ready(_)) => assert!(producer.current().is_complete()),
            Ok(Acquired::After(_, wait)) => assert_eq!(wait, producer.tip()),
            Err(error) => panic!("{error}"),
        }
        let _ = raiser.join();
    });
}

#[test]
fn loom_closing_loses_no_slab() {
    loom::model(|| {
        let pool = pool(128, 0);
        let old = now(&pool, 64);
        let freer = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.release(old, Frontier::new()).is_ok())
        };
        let grower = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || ask(&pool, 64, Order::Sync, false))
        };
        pool.close();
        assert_eq!(freer.join().ok(), Some(true));
        match grower.join() {
            Ok(Ok(acquired)) => {
                assert!(pool.release(acquired.block().addr, Frontier::new()).is_ok())
            }
            Ok(Err(error)) => assert_eq!(error, PoolError::Closed),
            Err(_) => panic!("the other thread failed"),
        }
        assert!(pool.is_drained());
        assert_eq!(pool.source().bytes_out(), 0);
    });
}

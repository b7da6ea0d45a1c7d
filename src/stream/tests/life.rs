//! Lifetimes: which object keeps which, and that all of them end.

use crate::abi::*;
use crate::hal;
use crate::stream::testing::*;
use crate::stream::{Context, EngineSlot, Kind, Queue};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const MIB: usize = 1 << 20;

fn a_queue_may_be_released_with_work_pending<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let context = Arc::downgrade(&fixture.context);
    for queue in [fixture.in_order(), fixture.out_of_order()] {
        launch_only(&queue, 1, &[]);
        let block = alloc_only(&queue, None, MIB, &[]).unwrap();
        free_only(&queue, block, &[]).unwrap();
    }
    let (driver, engine) = (fixture.driver.clone(), fixture.engine.clone());
    drop(fixture);
    assert_eq!(driver.ran(), []);
    assert!(
        context.upgrade().is_some(),
        "what is queued keeps the context"
    );
    until(|| {
        driver.run();
        context.upgrade().is_none()
    });
    assert_eq!(driver.ran(), [1, 1]);
    until(|| driver.slabs.lock().unwrap().is_empty() && driver.lanes.lock().unwrap().is_empty());
    engine.shut_down();
}

#[test]
fn a_queue_may_be_released_with_work_pending_when_tracked() {
    a_queue_may_be_released_with_work_pending::<Tracked>();
}

#[test]
fn a_queue_may_be_released_with_work_pending_when_polled() {
    a_queue_may_be_released_with_work_pending::<Polled>();
}

/// The program has not waited for the commands, so that nobody knows of their end, where the driver does not track.
#[test]
fn an_idle_queue_ends_on_the_thread_that_releases_it() {
    let fixture = Fixture::<Polled>::new();
    let shown = fixture.in_order();
    shown.with_native(|lane| lane.foreign(50)).unwrap();
    for queue in [fixture.in_order(), fixture.out_of_order(), shown] {
        launch_only(&queue, 1, &[]);
        fixture.driver.run();
        queue.retain();
        queue.release().unwrap();
        drop(queue);
    }
    assert!(fixture.driver.lanes.lock().unwrap().is_empty());
    assert_eq!(fixture.engine.live_threads(), 0);
    assert_eq!(fixture.driver.ran(), [50, 1, 1, 1]);
}

#[test]
fn an_engine_ends_with_the_last_reference_of_its_adapter() {
    let slot = EngineSlot::<Tracked>::default();
    // Any object does for the adapter.
    let adapter = hal::new::<Tracked, _>(FakeDevice);
    let engine = slot.get();
    adapter.retain();
    assert!(
        !slot.adapter_released(&adapter),
        "another thread took a reference"
    );
    assert!(Arc::ptr_eq(&engine, &slot.get()));
    adapter.release().unwrap();
    assert!(slot.adapter_released(&adapter));
    assert!(!Arc::ptr_eq(&engine, &slot.get()));
}

#[test]
fn a_pool_s_memory_outlives_its_handle() {
    let fixture = Fixture::<Tracked>::new();
    let queue = fixture.in_order();
    let pool = fixture.pool(0, usize::MAX);
    let live = alloc_only(&queue, Some(&pool), 4 * MIB, &[]).unwrap();
    let freed = alloc_only(&queue, Some(&pool), 4 * MIB, &[]).unwrap();
    launch_only(&queue, 1, &[]);
    free_only(&queue, freed, &[]).unwrap();
    drop(pool);
    let held = || fixture.driver.slabs.lock().unwrap().len();
    assert_eq!(held(), 2, "one is live, one is pending");
    queue.finish_here().unwrap();
    assert_eq!(held(), 1);
    launch_only(&queue, 2, &[]);
    free_only(&queue, live, &[]).unwrap();
    assert_eq!(held(), 1);
    queue.finish_here().unwrap();
    assert_eq!(held(), 0);
    assert_eq!(
        fixture.context.domain().memory.pools().len(),
        0,
        "nothing is left of it"
    );
}

/// Sets a mark when it is dropped.
struct Used(Arc<AtomicUsize>);

impl Drop for Used {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// What commands use ends at once on an idle context, and else by itself.
fn what_commands_use_outlives_its_release<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let dropped = Arc::new(AtomicUsize::new(0));
    let count = || dropped.load(Ordering::SeqCst);
    let release = || fixture.context.drop_after_use(Used(Arc::clone(&dropped)));
    release();
    assert_eq!(count(), 1, "idle");
    let queue = fixture.in_order();
    launch_only(&queue, 1, &[]);
    release();
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!((count(), fixture.driver.ran()), (1, vec![]), "pending");
    until(|| {
        fixture.driver.run();
        count() == 2
    });
    queue.finish_here().unwrap();
    release();
    assert_eq!(count(), 3, "idle again");
}

#[test]
fn what_commands_use_outlives_its_release_when_tracked() {
    what_commands_use_outlives_its_release::<Tracked>();
}

#[test]
fn what_commands_use_outlives_its_release_when_polled() {
    what_commands_use_outlives_its_release::<Polled>();
}

static DELETED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn deleter(data: *mut c_void) {
    DELETED.fetch_add(data.addr(), Ordering::SeqCst);
}

#[test]
fn a_context_ends_with_the_last_object_in_it() {
    let fixture = Fixture::<Tracked>::new();
    let weak = Arc::downgrade(&fixture.context);
    for data in [1, 2] {
        let data = std::ptr::without_provenance_mut(data);
        hal::Context::<Tracked>::set_extended_deleter(&fixture.context, deleter, data).unwrap();
    }
    let queue = fixture.in_order();
    let event = launch(&queue, 1, &[]);
    let pool = fixture.pool(0, 0);
    // A pool handle keeps its context alive, even while the context keeps the pool as its current one.
    pool.retain();
    fixture
        .context
        .set_current_pool(&fixture.device, &pool)
        .unwrap();
    Context::default_pool(&fixture.context, &fixture.device).unwrap();
    fixture.driver.run();
    let Fixture {
        context, driver, ..
    } = fixture;
    drop((queue, context, driver));
    assert!(weak.upgrade().is_some());
    drop(event);
    assert!(weak.upgrade().is_some(), "the pool's handle is left");
    assert_eq!(DELETED.load(Ordering::SeqCst), 0);
    pool.release().unwrap();
    drop(pool);
    assert!(weak.upgrade().is_none());
    assert_eq!(DELETED.load(Ordering::SeqCst), 3);
}

#[test]
fn threads_use_one_queue_and_one_pool_at_once() {
    let fixture = Fixture::<Tracked>::new();
    let pool = fixture.pool(64 * MIB, 0);
    for queue in [fixture.in_order(), fixture.out_of_order()] {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (queue, pool, fixture) = (&queue, &pool, &fixture);
                scope.spawn(move || {
                    for round in 0..50 {
                        let (block, born) = alloc(queue, Some(pool), MIB, &[]).unwrap();
                        let used = launch(queue, thread, &[&born]);
                        let dead = free(queue, block, &[&used]).unwrap();
                        if round % 10 == 0 {
                            dead.wait_here().unwrap();
                            fixture.context.domain().settle();
                        }
                    }
                });
            }
        });
        queue.finish_here().unwrap();
        assert_eq!(pool.core().used.read().0, 0);
        assert_eq!(pool.core().reserved.current(), 0);
    }
    assert_eq!(fixture.driver.ran().len(), 2 * 4 * 50);
}

#[test]
fn devices_and_pools_of_elsewhere_are_refused() {
    let (fixture, other) = (Fixture::<Tracked>::new(), Fixture::<Tracked>::new());
    let queue = fixture.in_order();
    let made = Queue::create(&fixture.context, &other.device, Default::default());
    assert_eq!(code(made), Some(UR_RESULT_ERROR_INVALID_DEVICE));
    let foreign = other.pool(0, 0);
    assert_eq!(
        code(alloc_only(&queue, Some(&foreign), 8, &[])),
        Some(UR_RESULT_ERROR_INVALID_VALUE)
    );
    let device = Some(&*other.device);
    let made = Context::alloc_now(&fixture.context, Kind::Device, device, None, None, 8);
    assert_eq!(code(made), Some(UR_RESULT_ERROR_INVALID_DEVICE));
}

/// In a forked child nothing ends: a queue with a pending command is released without a wait.
#[test]
fn a_child_of_a_fork_waits_for_no_command() {
    let fixture = Fixture::<Polled>::new();
    let queue = fixture.in_order();
    launch_only(&queue, 1, &[]);
    // SAFETY: the child calls what is under test and leaves without running destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a wait without end ends the child.
        unsafe { libc::alarm(10) };
        drop(queue);
        let waited = !fixture.driver.ran().is_empty();
        // SAFETY: ends the child here.
        unsafe { libc::_exit(i32::from(waited)) };
    }
    let mut status = -1;
    // SAFETY: the child is ours.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child has waited");
    assert_eq!(queue.finish_here(), Ok(()));
    assert_eq!(fixture.driver.ran(), [1]);
}

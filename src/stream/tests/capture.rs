//! Captures: the commands of a graph, and its submissions.

use crate::abi::*;
use crate::hal;
use crate::object::Object;
use crate::stream::queue::capture;
use crate::stream::queue::host_task;
use crate::stream::testing::*;
use crate::stream::{ExecutableGraph, Graph};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

type GraphArc<D> = Arc<Object<Graph<D>>>;
type ExecutableArc<D> = Arc<Object<ExecutableGraph<D>>>;

fn begin<D: AnyFake>(queue: &QueueArc<D>) {
    capture::begin(queue, &Graph::new(queue.context())).unwrap();
}

fn instantiate<D: AnyFake>(graph: &GraphArc<D>) -> ExecutableArc<D> {
    <Graph<D> as hal::Graph<D>>::instantiate_graph_exp(graph).unwrap()
}

fn enqueue<D: AnyFake>(graph: &ExecutableArc<D>, queue: &QueueArc<D>) -> EventArc<D> {
    let done = with_event(&[], |waits, event| {
        ExecutableGraph::enqueue(graph, queue, waits, event)
    });
    done.unwrap().1
}

fn completes<D: AnyFake>(fixture: &Fixture<D>, event: &EventArc<D>) {
    until(|| {
        fixture.driver.run();
        status(event) == UR_EVENT_STATUS_COMPLETE
    });
}

on_both! {
    a_capture_gives_the_driver_nothing others_join_through_events host_tasks_run_in_their_place
    a_released_queue_frees_its_capture a_failed_host_point_leaves_nothing
}

fn a_capture_gives_the_driver_nothing<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let queue = fixture.in_order();
    let calls = fixture.driver.calls();
    begin(&queue);
    for label in 0..3 {
        launch_only(&queue, label, &[]);
    }
    let captured = launch(&queue, 3, &[]);
    let refused = alloc_only(&queue, None, 64, &[]);
    assert_eq!(code(refused), Some(UR_RESULT_ERROR_INVALID_OPERATION));
    let graph = capture::end(&queue).unwrap();
    assert_eq!(fixture.driver.calls(), calls);
    assert_eq!(status(&captured), UR_EVENT_STATUS_QUEUED);
    let executable = instantiate(&graph);
    let done = enqueue(&executable, &queue);
    completes(&fixture, &done);
    assert_eq!(fixture.driver.ran(), [0, 1, 2, 3]);
    let outside = without(&[&captured], |waits, event| {
        ExecutableGraph::enqueue(&executable, &queue, waits, event)
    });
    assert_eq!(code(outside), Some(UR_RESULT_ERROR_INVALID_OPERATION));
}

fn others_join_through_events<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let (p, q, r) = (
        fixture.in_order(),
        fixture.in_order(),
        fixture.out_of_order(),
    );
    begin(&p);
    let root = launch(&p, 0, &[]);
    launch_only(&q, 1, &[&root]);
    let left = launch(&q, 2, &[]);
    let right = launch(&r, 3, &[&root]);
    launch_only(&p, 4, &[&left, &right]);
    assert!(q.capture.is_on() && r.capture.is_on());
    let refused = capture::end(&q).err().map(crate::object::Error::code);
    assert_eq!(refused, Some(UR_RESULT_ERROR_INVALID_OPERATION));
    let graph = capture::end(&p).unwrap();
    assert!(!p.capture.is_on() && !q.capture.is_on() && !r.capture.is_on());
    let executable = instantiate(&graph);
    let done = enqueue(&executable, &r);
    assert!(
        fixture
            .driver
            .loads()
            .iter()
            .filter(|load| **load > 0)
            .count()
            >= 2
    );
    completes(&fixture, &done);
    let ran = fixture.driver.ran();
    let at = |label| ran.iter().position(|ran| *ran == label).unwrap();
    assert!(at(0) == 0 && at(4) == 4 && at(1) < at(2), "{ran:?}");
}

extern "C" fn count(data: *mut c_void) {
    // SAFETY: the tests pass a counter that outlives the executions.
    unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
}

fn host_tasks_run_in_their_place<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let calls = AtomicU32::new(0);
    let data = std::ptr::from_ref(&calls).cast_mut().cast();
    for (queue, rounds) in [(fixture.in_order(), 2), (fixture.out_of_order(), 2)] {
        begin(&queue);
        let first = launch(&queue, 1, &[]);
        let task = with_event(&[&first], |waits, event| {
            host_task::enqueue(&queue, count, data, waits, event)
        });
        launch_only(&queue, 2, &[&task.unwrap().1]);
        let graph = capture::end(&queue).unwrap();
        let executable = instantiate(&graph);
        for _ in 0..rounds {
            let before = calls.load(Ordering::Relaxed);
            let done = enqueue(&executable, &queue);
            assert_eq!(
                calls.load(Ordering::Relaxed),
                before,
                "its guard has not come"
            );
            completes(&fixture, &done);
            assert_eq!(calls.load(Ordering::Relaxed), before + 1);
            let ran = std::mem::take(&mut *fixture.driver.ran.lock().unwrap());
            assert_eq!(ran, [1, 2]);
        }
    }
    fixture.engine.shut_down();
}

/// Captured references to the queue end when the queue is released.
fn a_released_queue_frees_its_capture<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let queue = fixture.in_order();
    queue.into_handle();
    let outside = launch(&queue, 0, &[]);
    begin(&queue);
    launch_only(&queue, 1, &[&outside]);
    let alive = Arc::downgrade(&queue);
    queue.release().unwrap();
    drop((queue, outside));
    fixture.driver.run();
    until(|| alive.upgrade().is_none());
}

/// A submission that fails before a host task never runs it, and blocks nothing.
fn a_failed_host_point_leaves_nothing<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let queue = fixture.in_order();
    let calls = AtomicU32::new(0);
    let data = std::ptr::from_ref(&calls).cast_mut().cast();
    begin(&queue);
    launch_only(&queue, 1, &[]);
    launch_only(&queue, 2, &[]);
    without(&[], |waits, event| {
        host_task::enqueue(&queue, count, data, waits, event)
    })
    .unwrap();
    let executable = instantiate(&capture::end(&queue).unwrap());
    *fixture.driver.fails_after.lock().unwrap() = Some(1);
    let failed = without(&[], |waits, event| {
        ExecutableGraph::enqueue(&executable, &queue, waits, event)
    });
    assert_eq!(code(failed), Some(UR_RESULT_ERROR_OUT_OF_RESOURCES));
    *fixture.driver.fails_after.lock().unwrap() = None;
    launch_only(&queue, 3, &[]);
    fixture.driver.run();
    assert_eq!(fixture.driver.ran(), [1, 3]);
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    fixture.engine.shut_down();
}

//! Host tasks and host-signalled points, and the commands that wait for them.

use crate::abi::*;
use crate::object::Handles;
use crate::stream::Event;
use crate::stream::queue::Shape;
use crate::stream::queue::host_task;
use crate::stream::testing::*;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// A host task that runs until the test opens it.
struct Gate {
    open: mpsc::Sender<()>,
    passed: std::sync::Arc<AtomicUsize>,
}

struct Passage(mpsc::Receiver<()>, std::sync::Arc<AtomicUsize>);

extern "C" fn pass(data: *mut c_void) {
    // SAFETY: `gate` boxed it for this one call.
    let passage = unsafe { Box::from_raw(data.cast::<Passage>()) };
    // A gate that is dropped is open.
    let _ = passage.0.recv();
    passage.1.fetch_add(1, Ordering::SeqCst);
}

fn gate<D: AnyFake>(queue: &QueueArc<D>, waits: &[&EventArc<D>]) -> (Gate, EventArc<D>) {
    let (open, closed) = mpsc::channel();
    let passed = std::sync::Arc::new(AtomicUsize::new(0));
    let data = Box::into_raw(Box::new(Passage(closed, passed.clone())));
    let task = |waits: Handles<'_, Event<D>>, event: crate::object::OutHandle<'_, Event<D>>| {
        host_task::enqueue(queue, pass, data.cast(), waits, event)
    };
    (Gate { open, passed }, with_event(waits, task).unwrap().1)
}

/// Whether the event can complete. A polled driver is queried twice, since the first query may record a
/// marker.
fn completes<D: AnyFake>(fixture: &Fixture<D>, event: &EventArc<D>) -> bool {
    status(event);
    fixture.driver.run();
    status(event) == UR_EVENT_STATUS_COMPLETE
}

fn independent_commands_do_not_wait_for_the_host<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let queue = fixture.out_of_order();
    let (gate_a, task_a) = gate(&queue, &[]);
    let (gate_b, task_b) = gate(&queue, &[]);
    let after_a = launch(&queue, 1, &[&task_a]);
    let chained = launch(&queue, 2, &[&after_a]);
    let after_b = launch(&queue, 3, &[&task_b]);
    let after_both = launch(&queue, 4, &[&after_a, &task_b]);
    let free: Vec<_> = (10..30).map(|label| launch(&queue, label, &[])).collect();
    // A command that waits for the host through another queue is blocked, too.
    let other = fixture.in_order();
    launch_only(&other, 5, &[&after_a]);
    let through = launch(&other, 6, &[]);
    let late = launch(&queue, 7, &[&through]);
    let more: Vec<_> = (30..40).map(|label| launch(&queue, label, &[])).collect();
    fixture.driver.run();
    assert!(
        free.iter()
            .chain(&more)
            .all(|event| completes(&fixture, event))
    );
    gate_b.open.send(()).unwrap();
    until(|| status(&task_b) == UR_EVENT_STATUS_COMPLETE);
    assert!(completes(&fixture, &after_b), "b does not wait for a");
    let held = [&after_a, &chained, &after_both, &late];
    assert!(held.iter().all(|event| !completes(&fixture, event)));
    gate_a.open.send(()).unwrap();
    queue.finish_here().unwrap();
    assert_eq!(
        gate_a.passed.load(Ordering::SeqCst) + gate_b.passed.load(Ordering::SeqCst),
        2
    );
    assert!(held.iter().all(|event| completes(&fixture, event)));
    other.finish_here().unwrap();
}

#[test]
fn independent_commands_do_not_wait_for_the_host_when_tracked() {
    independent_commands_do_not_wait_for_the_host::<Tracked>();
}

#[test]
fn independent_commands_do_not_wait_for_the_host_when_polled() {
    independent_commands_do_not_wait_for_the_host::<Polled>();
}

fn host_tasks_are_commands_of_an_in_order_queue<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let queue = fixture.in_order();
    launch_only(&queue, 1, &[]);
    let (first_gate, first) = gate(&queue, &[]);
    let (second_gate, second) = gate(&queue, &[]);
    let after = launch(&queue, 2, &[]);
    drop(second_gate.open);
    assert_eq!(status(&first), UR_EVENT_STATUS_SUBMITTED);
    fixture.driver.run();
    assert_eq!(fixture.driver.ran(), [1]);
    assert_eq!(
        second_gate.passed.load(Ordering::SeqCst),
        0,
        "the second comes after the first"
    );
    until(|| status(&first) == UR_EVENT_STATUS_RUNNING);
    first_gate.open.send(()).unwrap();
    until(|| status(&second) == UR_EVENT_STATUS_COMPLETE);
    assert_eq!(status(&first), UR_EVENT_STATUS_COMPLETE);
    queue.finish_here().unwrap();
    assert_eq!(status(&after), UR_EVENT_STATUS_COMPLETE);
    assert_eq!(fixture.driver.ran(), [1, 2]);
}

fn finishing_covers_a_host_task_that_nothing_follows<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    for queue in [fixture.in_order(), fixture.out_of_order()] {
        launch_only(&queue, 1, &[]);
        let (task, event) = gate(&queue, &[]);
        let order = marker(&queue, &[]);
        let opener = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(30));
            let _ = task.open.send(());
            task.passed
        });
        queue.finish_here().unwrap();
        assert_eq!(status(&event), UR_EVENT_STATUS_COMPLETE);
        assert_eq!(status(&order), UR_EVENT_STATUS_COMPLETE);
        assert_eq!(opener.join().unwrap().load(Ordering::SeqCst), 1);
    }
}

#[test]
fn finishing_covers_a_host_task_that_nothing_follows_when_tracked() {
    finishing_covers_a_host_task_that_nothing_follows::<Tracked>();
}

#[test]
fn finishing_covers_a_host_task_that_nothing_follows_when_polled() {
    finishing_covers_a_host_task_that_nothing_follows::<Polled>();
}

#[test]
fn host_tasks_are_commands_of_a_tracked_in_order_queue() {
    host_tasks_are_commands_of_an_in_order_queue::<Tracked>();
}

#[test]
fn host_tasks_are_commands_of_a_polled_in_order_queue() {
    host_tasks_are_commands_of_an_in_order_queue::<Polled>();
}

/// A host task's dependencies are taken when the task is enqueued.
///
/// Read later, they could include commands that wait for the task.
fn a_host_task_does_not_wait_for_later_commands<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let (p, q, r) = (
        fixture.in_order(),
        fixture.in_order(),
        fixture.out_of_order(),
    );
    let (on_p, on_q) = (launch(&p, 1, &[]), launch(&q, 2, &[]));
    let (open, task) = gate(&r, &[&on_p, &on_q]);
    drop((on_p, on_q, task));
    let after = marker(&r, &[]);
    drop(open.open);
    launch_only(&p, 3, &[&after]);
    launch_only(&q, 4, &[&after]);
    until(|| {
        fixture.driver.run();
        fixture.driver.ran().len() == 4
    });
    assert_eq!(open.passed.load(Ordering::SeqCst), 1);
}

#[test]
fn a_host_task_does_not_wait_for_later_commands_when_tracked() {
    a_host_task_does_not_wait_for_later_commands::<Tracked>();
}

#[test]
fn a_host_task_does_not_wait_for_later_commands_when_polled() {
    a_host_task_does_not_wait_for_later_commands::<Polled>();
}

/// A lane may advance between the check of a point and the search for its marker.
///
/// The marker may be gone by then. A later one must not replace it, since the host task would wait for
/// commands that wait for it.
#[test]
fn a_forgotten_marker_is_no_later_one() {
    let fixture = Fixture::<Polled>::new();
    let queue = fixture.in_order();
    let Shape::InOrder(lane) = &queue.shape else {
        unreachable!("an in-order queue is one lane");
    };
    let first = launch(&queue, 1, &[]);
    let second = launch(&queue, 2, &[]);
    fixture.driver.run();
    assert_eq!(status(&first), UR_EVENT_STATUS_COMPLETE);
    launch_only(&queue, 3, &[]);
    assert!(lane.mark(1).unwrap().is_none(), "complete, and forgotten");
    assert_eq!(lane.mark(2).unwrap().map(|mark| mark.point.epoch), Some(2));
    drop(second);
    fixture.driver.run();
}

/// The number of lanes in the context.
fn lanes<D: AnyFake>(fixture: &Fixture<D>) -> usize {
    fixture.context.domain().lanes().all().len()
}

fn what_waits_for_the_same_host_shares_lanes<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let queue = fixture.out_of_order();
    let (gate_a, a) = gate(&queue, &[]);
    let (gate_b, b) = gate(&queue, &[]);
    for label in 0..50 {
        launch_only(&queue, label, &[&a]);
        let chained = launch(&queue, label, &[&a]);
        launch_only(&queue, label, &[&chained, &b]);
        launch_only(&queue, label, &[]);
    }
    assert!(lanes(&fixture) <= 16, "{} lanes", lanes(&fixture));
    drop((gate_a.open, gate_b.open));
    queue.finish_here().unwrap();
    assert_eq!(fixture.driver.ran().len(), 200);
}

fn lanes_for_what_the_host_held_up_end<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let queue = fixture.out_of_order();
    let gates: Vec<_> = (0..40).map(|_| gate(&queue, &[])).collect();
    for (label, (_, task)) in (0..).zip(&gates) {
        launch_only(&queue, label, &[task]);
    }
    assert!(lanes(&fixture) >= 40, "each waits for another host");
    drop(gates);
    queue.finish_here().unwrap();
    launch_only(&queue, 100, &[]);
    fixture.driver.run();
    assert_eq!(fixture.driver.ran().len(), 41);
    assert!(lanes(&fixture) <= 4, "{} lanes", lanes(&fixture));
}

fn the_last_of_many_host_tasks_in_order_stands_for_all<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let queue = fixture.in_order();
    let (first, _) = gate(&queue, &[]);
    let mut rest = Vec::new();
    for label in 0..100 {
        rest.push(gate(&queue, &[]));
        launch_only(&queue, label, &[]);
    }
    let Shape::InOrder(lane) = &queue.shape else {
        unreachable!("it was made in-order");
    };
    let (tip, waited) = (lane.tip().len(), lane.waited().len());
    assert!(tip <= 2 && waited <= 2, "{tip} points, {waited} waited for");
    let last = rest.last().map(|(gate, _)| gate.passed.clone()).unwrap();
    // The gates open in another order than the queue's.
    rest.reverse();
    let events: Vec<_> = rest.into_iter().map(|(_, event)| event).collect();
    assert_eq!(last.load(Ordering::SeqCst), 0, "the first is still closed");
    assert_eq!(status(&events[0]), UR_EVENT_STATUS_SUBMITTED);
    drop(first.open);
    queue.finish_here().unwrap();
    assert_eq!(last.load(Ordering::SeqCst), 1);
    assert!(
        events
            .iter()
            .all(|event| status(event) == UR_EVENT_STATUS_COMPLETE)
    );
    assert_eq!(fixture.driver.ran(), (0..100).collect::<Vec<_>>());
}

/// Where the driver reports no completion, threads block for it.
///
/// There is one thread for each lane, and a further one only for a point before the one that is being waited
/// for.
fn many_pending_points_take_few_threads<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let (queue, other) = (fixture.in_order(), fixture.out_of_order());
    let early = launch(&queue, 0, &[]);
    let events: Vec<_> = (1..100).map(|label| launch(&queue, label, &[])).collect();
    let mut gates: Vec<_> = events.iter().map(|event| gate(&other, &[event])).collect();
    gates.push(gate(&other, &[&early]));
    let live = fixture.context.domain().engine().live_threads();
    assert!(live <= 4, "{live} threads");
    let passed: Vec<_> = gates.iter().map(|(gate, _)| gate.passed.clone()).collect();
    let passed = || {
        passed
            .iter()
            .map(|passed| passed.load(Ordering::SeqCst))
            .sum::<usize>()
    };
    drop(gates);
    assert_eq!(passed(), 0);
    fixture.driver.run();
    other.finish_here().unwrap();
    assert_eq!(passed(), 100);
}

on_both! {
    many_pending_points_take_few_threads what_waits_for_the_same_host_shares_lanes lanes_for_what_the_host_held_up_end
    the_last_of_many_host_tasks_in_order_stands_for_all
}

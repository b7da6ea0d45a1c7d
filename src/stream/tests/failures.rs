//! Failed commands: dependents do not run, events report the failure, and one wait reports it.
//!
//! The fake driver runs nothing on a lane behind a failed command, as streams do.

use crate::abi::*;
use crate::object::Result;
use crate::stream::queue::host_task;
use crate::stream::queue::native_command;
use crate::stream::testing::*;
use crate::stream::{Queue, Work};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

type Fixture = crate::stream::testing::Fixture<Polled>;

const FAILED: Option<ur_result_t> = Some(UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS);

/// The label of a launch that fails.
const BAD: u32 = 1000;

fn fixture() -> Fixture {
    let fixture = Fixture::new();
    fixture.driver.failing.lock().unwrap().push(BAD);
    fixture
}

fn barrier(queue: &QueueArc<Polled>, waits: &[&EventArc<Polled>]) -> EventArc<Polled> {
    let command = UR_COMMAND_EVENTS_WAIT_WITH_BARRIER;
    let made = with_event(waits, |waits, event| {
        Queue::join_events(queue, command, waits, event, true)
    });
    made.unwrap().1
}

/// The ways to wait for a failed command.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Wait {
    Event,
    Queue,
    Device,
}

impl Wait {
    fn run(
        self,
        fixture: &Fixture,
        queue: &QueueArc<Polled>,
        last: &EventArc<Polled>,
    ) -> Result<()> {
        match self {
            Self::Event => last.wait_here(),
            Self::Queue => queue.finish_here(),
            Self::Device => fixture.engine.wait_device(&fixture.device),
        }
    }
}

#[test]
fn dependents_of_a_failed_command_do_not_run_and_one_wait_reports_it() {
    for in_order in [true, false] {
        for asked in [true, false] {
            for wait in [Wait::Event, Wait::Queue, Wait::Device] {
                let what = format!("in order {in_order}, an event {asked}, {wait:?}");
                let fixture = fixture();
                let queue = match in_order {
                    true => fixture.in_order(),
                    false => fixture.out_of_order(),
                };
                let bad = match asked {
                    true => Some(launch(&queue, BAD, &[])),
                    false => {
                        launch_only(&queue, BAD, &[]);
                        (!in_order).then(|| barrier(&queue, &[]))
                    }
                };
                let waits: Vec<_> = bad.iter().collect();
                let behind = launch(&queue, 1, &waits);
                let last = launch(&queue, 2, &[&behind]);
                assert_eq!(code(wait.run(&fixture, &queue, &last)), FAILED, "{what}");
                for event in waits.into_iter().chain([&behind, &last]) {
                    assert_eq!(status(event), UR_EVENT_STATUS_ERROR, "{what}");
                    assert_eq!(code(event.wait_here()), FAILED, "{what}");
                    let more = without(&[event], |waits, out| {
                        Queue::enqueue(&queue, UR_COMMAND_USM_FILL, waits, Work::Marker, out, false)
                    });
                    assert_eq!(code(more), FAILED, "{what}");
                }
                // After the report, the failure blocks nothing, and waits succeed.
                launch_only(&queue, 3, &[]);
                assert_eq!(queue.finish_here(), Ok(()), "{what}");
                assert!(fixture.driver.ran().contains(&3), "{what}");
                launch_only(&queue, 4, &[]);
                assert_eq!(
                    fixture.engine.wait_device(&fixture.device),
                    Ok(()),
                    "{what}"
                );
                assert!(fixture.driver.ran().contains(&4), "{what}");
            }
        }
    }
}

#[test]
fn commands_after_a_failed_one_fail_at_any_position() {
    for place in 0..6 {
        let fixture = fixture();
        let queue = fixture.in_order();
        let label = |at| if at == place { BAD } else { at };
        let events: Vec<_> = (0..6).map(|at| launch(&queue, label(at), &[])).collect();
        assert_eq!(code(queue.finish_here()), FAILED);
        for (at, event) in (0..).zip(&events) {
            let right = match at < place {
                true => UR_EVENT_STATUS_COMPLETE,
                false => UR_EVENT_STATUS_ERROR,
            };
            assert_eq!(status(event), right, "{at}, {place} fails");
        }
        assert_eq!(queue.finish_here(), Ok(()));
    }
}

#[test]
fn no_dependent_runs_until_the_failure_is_reported() {
    let fixture = fixture();
    let queue = fixture.in_order();
    let bad = launch(&queue, BAD, &[]);
    until(|| {
        fixture.driver.run();
        status(&bad) == UR_EVENT_STATUS_ERROR
    });
    // The failure is known, but no wait has reported it.
    let (behind, other) = (launch(&queue, 1, &[]), fixture.in_order());
    launch_only(&other, 2, &[]);
    let ran = AtomicUsize::new(0);
    let native = with_event(&[], |waits, event| {
        native_command::enqueue(&queue, None, waits, event, || {
            ran.fetch_add(1, Ordering::Relaxed);
        })
    });
    let (_, native) = native.unwrap();
    assert_eq!(other.finish_here(), Ok(()), "a healthy queue");
    assert_eq!(status(&native), UR_EVENT_STATUS_ERROR);
    assert_eq!(code(behind.wait_here()), FAILED);
    assert_eq!(fixture.driver.ran(), [2]);
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    launch_only(&queue, 3, &[]);
    assert_eq!(queue.finish_here(), Ok(()));
    assert_eq!(fixture.driver.ran(), [2, 3]);
}

#[test]
fn independent_out_of_order_commands_run_after_a_failure() {
    let fixture = fixture();
    let queue = fixture.out_of_order();
    let free: Vec<_> = (0..20).map(|label| launch(&queue, label, &[])).collect();
    let bad = launch(&queue, BAD, &[&free[0]]);
    let behind = launch(&queue, 100, &[&bad]);
    until(|| {
        fixture.driver.run();
        status(&bad) == UR_EVENT_STATUS_ERROR
    });
    let more: Vec<_> = (20..40).map(|label| launch(&queue, label, &[])).collect();
    assert_eq!(code(queue.finish_here()), FAILED);
    assert!(
        free.iter()
            .chain(&more)
            .all(|event| event.wait_here().is_ok())
    );
    assert_eq!(code(behind.wait_here()), FAILED);
    let mut ran = fixture.driver.ran();
    ran.sort_unstable();
    assert_eq!(ran, Vec::from_iter(0..40));
    // A barrier over a failed command whose failure is not known yet.
    launch_only(&queue, BAD, &[]);
    let all = barrier(&queue, &[]);
    launch_only(&queue, 200, &[]);
    assert_eq!(code(all.wait_here()), FAILED);
    launch_only(&queue, 201, &[]);
    queue.finish_here().ok();
    assert_eq!(queue.finish_here(), Ok(()));
    assert!(fixture.driver.ran().contains(&201));
    assert!(!fixture.driver.ran().contains(&200));
}

extern "C" fn count(data: *mut c_void) {
    // SAFETY: the test's counter outlives the task.
    unsafe { &*data.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn a_host_task_after_a_failed_command_does_not_run() {
    for in_order in [true, false] {
        let fixture = fixture();
        let queue = match in_order {
            true => fixture.in_order(),
            false => fixture.out_of_order(),
        };
        let ran = Arc::new(AtomicUsize::new(0));
        let bad = launch(&queue, BAD, &[]);
        let held = task(&queue, &ran, &[&bad]);
        let behind = launch(&queue, 1, &[&held]);
        until(|| {
            fixture.driver.run();
            status(&held) == UR_EVENT_STATUS_ERROR
        });
        assert_eq!(code(behind.wait_here()), FAILED, "in order {in_order}");
        assert_eq!(code(held.wait_here()), FAILED);
        queue.finish_here().ok();
        assert_eq!(queue.finish_here(), Ok(()));
        assert_eq!(fixture.engine.wait_device(&fixture.device), Ok(()));
        let last = task(&queue, &ran, &[]);
        assert_eq!(last.wait_here(), Ok(()));
        assert_eq!(ran.load(Ordering::SeqCst), 1, "the last one alone");
        assert!(fixture.driver.ran().is_empty());
    }
}

/// A task that counts its calls in `ran`.
fn task(
    queue: &QueueArc<Polled>,
    ran: &Arc<AtomicUsize>,
    waits: &[&EventArc<Polled>],
) -> EventArc<Polled> {
    let data = Arc::as_ptr(ran).cast_mut().cast();
    let made = with_event(waits, |waits, event| {
        host_task::enqueue(queue, count, data, waits, event)
    });
    made.unwrap().1
}

/// A host task waits for two commands, of which the engine follows one after the other. Were the second one's marker
/// recorded behind a later command, it could cover one that waits for the task.
#[test]
fn a_marker_that_was_refused_is_recorded_before_the_next_command() {
    let fixture = fixture();
    let (first, second, other) = (
        fixture.in_order(),
        fixture.in_order(),
        fixture.out_of_order(),
    );
    let ran = Arc::default();
    let waits = [launch(&first, 1, &[]), launch(&second, 2, &[])];
    let held = task(&other, &ran, &[&waits[0], &waits[1]]);
    fixture.driver.refused_marks.store(1, Ordering::Release);
    let refused = without(&[], |waits, event| {
        let (kind, work) = (UR_COMMAND_KERNEL_LAUNCH, Work::Launch(4));
        Queue::enqueue(&second, kind, waits, work, event, false)
    });
    assert_eq!(code(refused), Some(UR_RESULT_ERROR_UNKNOWN));
    let behind = launch(&second, 3, &[&held]);
    assert_eq!(behind.wait_here(), Ok(()));
    assert_eq!(held.wait_here(), Ok(()));
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    assert_eq!(fixture.driver.ran(), [1, 2, 3]);
}

/// A wait that the driver refuses says nothing about the commands.
#[test]
fn a_host_task_waits_for_commands_although_the_driver_refuses_to_wait() {
    let fixture = fixture();
    let (queue, other) = (fixture.in_order(), fixture.out_of_order());
    let ran = Arc::default();
    fixture.driver.refused_blocks.store(1, Ordering::Release);
    let held = task(&other, &ran, &[&launch(&queue, 1, &[])]);
    until(|| fixture.driver.refused_blocks.load(Ordering::Acquire) == 0);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(ran.load(Ordering::SeqCst), 0, "before the command");
    until(|| {
        fixture.driver.run();
        status(&held) == UR_EVENT_STATUS_COMPLETE
    });
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

/// A driver that gives no marker, asked twice, cannot say when the task may run.
#[test]
fn a_host_task_behind_commands_that_nobody_can_follow_fails() {
    let fixture = fixture();
    let (queue, other) = (fixture.in_order(), fixture.out_of_order());
    let ran = Arc::default();
    let before = launch(&queue, 1, &[]);
    fixture.driver.refused_marks.store(2, Ordering::Release);
    let held = task(&other, &ran, &[&before]);
    until(|| status(&held) == UR_EVENT_STATUS_ERROR);
    assert_eq!(code(held.wait_here()), FAILED);
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}

#[test]
fn dependents_on_other_queues_and_contexts_fail() {
    let fixture = fixture();
    let other = fixture.another();
    let (first, second, third) = (fixture.in_order(), fixture.in_order(), other.in_order());
    let bad = launch(&first, BAD, &[]);
    let near = launch(&second, 1, &[&bad]);
    let far = launch(&third, 2, &[&near]);
    until(|| {
        fixture.driver.run();
        other.driver.run();
        status(&far) == UR_EVENT_STATUS_ERROR
    });
    assert_eq!(code(second.finish_here()), FAILED);
    assert_eq!(code(third.finish_here()), FAILED);
    // The wait for a command also covers its predecessors.
    assert_eq!(code(near.wait_here()), FAILED);
    assert_eq!(first.finish_here(), Ok(()));
    assert!(fixture.driver.ran().is_empty() && other.driver.ran().is_empty());
}

#[test]
fn blocking_commands_and_memory_work_after_a_failure() {
    let fixture = fixture();
    let queue = fixture.in_order();
    let pool = fixture.pool(1 << 20, 0);
    let (block, _) = alloc(&queue, Some(&pool), 1 << 20, &[]).unwrap();
    launch_only(&queue, BAD, &[]);
    let blocking = without(&[], |waits, out| {
        Queue::enqueue(
            &queue,
            UR_COMMAND_USM_FILL,
            waits,
            Work::Launch(1),
            out,
            true,
        )
    });
    assert_eq!(code(blocking), FAILED);
    free_only(&queue, block, &[]).unwrap();
    // Memory of the failed command may be reused.
    let (again, _) = alloc(&queue, Some(&pool), 1 << 20, &[]).unwrap();
    assert_eq!(again, block);
    free_only(&queue, again, &[]).unwrap();
    assert_eq!(queue.finish_here(), Ok(()));
}

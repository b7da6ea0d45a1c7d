//! Wait lists with events of other contexts.
//!
//! The fake lanes refuse to wait for another fake driver unless the driver spans contexts.

use crate::abi::*;
use crate::stream::Queue;
use crate::stream::testing::*;

/// Completes everything that can complete in both drivers until `what` holds.
fn drive<D: AnyFake>(benches: [&Fixture<D>; 2], mut what: impl FnMut() -> bool) {
    until(|| {
        benches.iter().for_each(|fixture| fixture.driver.run());
        what()
    });
}

fn a_wait_list_may_name_another_context<D: AnyFake>() {
    let here = Fixture::<D>::new();
    let there = here.another();
    for queue in [here.in_order(), here.out_of_order()] {
        let far = launch(&there.in_order(), 1, &[]);
        let near = launch(&queue, 2, &[&far]);
        let both = launch(&queue, 3, &[&far, &near]);
        let ran = here.driver.ran().len();
        here.driver.run();
        assert_eq!(
            here.driver.ran().len(),
            ran,
            "nothing overtakes the other context"
        );
        assert_eq!(status(&near), UR_EVENT_STATUS_SUBMITTED);
        drive([&here, &there], || {
            status(&both) == UR_EVENT_STATUS_COMPLETE
        });
        assert_eq!(here.driver.ran()[ran..], [2, 3]);
        queue.finish_here().unwrap();
    }
    here.engine.shut_down();
}

#[test]
fn a_wait_list_may_name_another_context_when_tracked() {
    a_wait_list_may_name_another_context::<Tracked>();
}

#[test]
fn a_wait_list_may_name_another_context_when_polled() {
    a_wait_list_may_name_another_context::<Polled>();
}

/// A command of the other context waits for one here, which waits for an earlier one there.
fn contexts_may_wait_for_each_other_in_turn<D: AnyFake>() {
    let here = Fixture::<D>::new();
    let there = here.another();
    let (p, q) = (here.in_order(), there.in_order());
    let mut last = launch(&q, 0, &[]);
    for label in 1..20 {
        let near = launch(&p, label, &[&last]);
        last = launch(&q, label, &[&near]);
    }
    drive([&here, &there], || {
        status(&last) == UR_EVENT_STATUS_COMPLETE
    });
    assert!(here.driver.ran().into_iter().eq(1..20));
    here.engine.shut_down();
}

#[test]
fn contexts_may_wait_for_each_other_in_turn_when_tracked() {
    contexts_may_wait_for_each_other_in_turn::<Tracked>();
}

#[test]
fn contexts_may_wait_for_each_other_in_turn_when_polled() {
    contexts_may_wait_for_each_other_in_turn::<Polled>();
}

/// A block whose free waits for another context's command is not reused before that has completed.
fn a_free_after_another_context_is_not_reused_before<D: AnyFake>() {
    let here = Fixture::<D>::new();
    let there = here.another();
    for queue in [here.in_order(), here.out_of_order()] {
        let far = launch(&there.in_order(), 1, &[]);
        let pool = here.pool(0, usize::MAX);
        let block = alloc_only(&queue, Some(&pool), 4 << 20, &[]).unwrap();
        let freed = free(&queue, block, &[&far]).unwrap();
        let other = here.in_order();
        let again = alloc_only(&other, Some(&pool), 4 << 20, &[]).unwrap();
        assert_ne!(block, again, "the other context may still use it");
        drive([&here, &there], || {
            status(&freed) == UR_EVENT_STATUS_COMPLETE
        });
        let last = alloc_only(&other, Some(&pool), 4 << 20, &[]).unwrap();
        assert_eq!(block, last);
    }
    here.engine.shut_down();
}

#[test]
fn a_free_after_another_context_is_not_reused_before_when_tracked() {
    a_free_after_another_context_is_not_reused_before::<Tracked>();
}

#[test]
fn a_free_after_another_context_is_not_reused_before_when_polled() {
    a_free_after_another_context_is_not_reused_before::<Polled>();
}

/// The placeholder of another context's event is a dependency like any other.
///
/// `finish` waits for it, and a queue may be released while it is pending.
fn a_queue_may_be_released_while_it_waits_for_another_context<D: AnyFake>() {
    let here = Fixture::<D>::new();
    let there = here.another();
    let far_queue = there.in_order();
    let far = launch(&far_queue, 1, &[]);
    let queue = here.in_order();
    let command = UR_COMMAND_EVENTS_WAIT;
    without(&[&far], |waits, event| {
        Queue::join_events(&queue, command, waits, event, false)
    })
    .unwrap();
    launch_only(&queue, 2, &[]);
    drop((far, queue, far_queue));
    drive([&here, &there], || here.driver.ran() == [2]);
    here.engine.shut_down();
}

#[test]
fn a_queue_may_be_released_while_it_waits_for_another_context_when_tracked() {
    a_queue_may_be_released_while_it_waits_for_another_context::<Tracked>();
}

#[test]
fn a_queue_may_be_released_while_it_waits_for_another_context_when_polled() {
    a_queue_may_be_released_while_it_waits_for_another_context::<Polled>();
}

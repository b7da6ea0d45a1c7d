//! Many queues of which few are busy: queries visit busy lanes only.

use crate::stream::Context;
use crate::stream::testing::*;

const KIB: usize = 1 << 10;
const CROWD: u32 = 300;

fn idle_queues_are_asked_nothing<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let busy = fixture.in_order();
    let lanes = fixture.context.domain().lanes();
    let mut crowd = Vec::new();
    for label in 0..CROWD {
        let own = fixture.in_order();
        let block = alloc_only(&own, None, 4 * KIB, &[]).unwrap();
        let before = launch(&own, label, &[&launch(&busy, label, &[])]);
        free_only(&own, block, &[]).unwrap();
        let after = launch(&busy, label, &[&before]);
        crowd.push(own);
        fixture.driver.run();
        // A synchronous call comes after everything, so it queries the lanes with pending work.
        let now = |bytes| {
            let device = Some(&*fixture.device);
            let kind = crate::stream::Kind::Device;
            Context::alloc_now(&fixture.context, kind, device, None, None, bytes)
        };
        let sizes = [64 * KIB, (64 + label as usize % 8) * KIB];
        for bytes in sizes {
            let block = now(bytes).unwrap().addr();
            fixture.context.free_now(block).unwrap();
        }
        let block = alloc_only(&busy, None, sizes[1], &[&after]).unwrap();
        free_only(&busy, block, &[]).unwrap();
        assert!(
            lanes.busy_count() <= 96,
            "{} of {label}",
            lanes.busy_count()
        );
    }
    // All lanes are known now, and one that gets work is queried again.
    assert!(lanes.all().len() > CROWD as usize);
    fixture.context.domain().observe();
    for own in &crowd[..10] {
        launch_only(own, CROWD, &[]);
    }
    let everything = fixture.context.domain().everything();
    assert_eq!(everything.len(), 10);
    fixture.driver.run();
    drop((crowd, busy));
    let gone = || fixture.context.domain().lanes().all().is_empty();
    until(|| {
        fixture.driver.run();
        gone()
    });
}

/// Without synchronous calls, the query for completion before a pool grows finds the idle lanes.
///
/// A driver that reports completion itself is not queried.
#[test]
fn idle_queues_are_not_queried() {
    let fixture = Fixture::<Polled>::new();
    let busy = fixture.in_order();
    let lanes = fixture.context.domain().lanes();
    let mut crowd = Vec::new();
    for label in 0..CROWD {
        let own = fixture.in_order();
        let block = alloc_only(&own, None, 4 * KIB, &[]).unwrap();
        launch_only(&own, label, &[&launch(&busy, label, &[])]);
        free_only(&own, block, &[]).unwrap();
        crowd.push(own);
        fixture.driver.run();
        // The block is never freed, so that every second one makes the pool grow.
        alloc_only(&busy, None, KIB * KIB, &[]).unwrap();
        assert!(
            lanes.busy_count() <= 96,
            "{} of {label}",
            lanes.busy_count()
        );
    }
    fixture.driver.run();
}

/// A lane that foreign work may be on is queried whatever is known about it.
fn an_exposed_queue_is_always_asked<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let crowd: Vec<_> = (0..100).map(|_| fixture.in_order()).collect();
    let lanes = fixture.context.domain().lanes();
    let everything = || fixture.context.domain().everything();
    assert!(everything().is_empty());
    assert_eq!(lanes.busy_count(), 0, "none has anything pending");
    let all = lanes.all();
    all[3].share_native().unwrap();
    assert_eq!(lanes.busy_count(), 1);
    (0..3).for_each(|_| assert_eq!(everything().len(), 1, "a marker behind what we cannot see"));
    fixture.driver.run();
    assert_eq!(everything().len(), 1);
    fixture.driver.run();
    drop(crowd);
}

on_both! {
    idle_queues_are_asked_nothing
    an_exposed_queue_is_always_asked
}

use super::*;
use std::sync::Arc;

fn clocks<const N: usize>() -> [Arc<Clock>; N] {
    std::array::from_fn(|_| Clock::new())
}

fn frontier(points: &[(&Arc<Clock>, u64)]) -> Frontier {
    points
        .iter()
        .map(|(clock, epoch)| Point::new(clock, *epoch))
        .collect()
}

#[test]
fn lane_ids_are_unique_and_rising() {
    let ids: Vec<_> = clocks::<4>().iter().map(|c| c.id()).collect();
    assert!(ids.windows(2).all(|w| w[0] < w[1]));
}

#[test]
fn completion_never_goes_back() {
    let clock = Clock::new();
    assert!(Point::new(&clock, 0).is_complete());
    assert!(!Point::new(&clock, 1).is_complete());
    clock.raise(5);
    clock.raise(3);
    assert_eq!(clock.completed(), 5);
    assert_eq!(Point::new(&clock, 7).outstanding(), 2);
    assert_eq!(Point::new(&clock, 2).outstanding(), 0);
}

#[test]
fn join_keeps_the_newest_of_each_lane() {
    let [a, b, c] = clocks();
    let mut f = frontier(&[(&a, 3), (&b, 1)]);
    f.join(&frontier(&[(&a, 2), (&b, 4), (&c, 1)]));
    assert_eq!(f, frontier(&[(&c, 1), (&b, 4), (&a, 3)]));
    let before = f.clone();
    f.join(&frontier(&[(&a, 1), (&c, 1)]));
    assert_eq!(f, before);
    f.join(&Frontier::new());
    assert_eq!(f, before);
    assert_eq!(f.epoch_of(b.id()), Some(4));
}

#[test]
fn join_is_symmetric_over_all_shapes() {
    let [a, b, c] = clocks();
    let shapes = [
        frontier(&[]),
        frontier(&[(&a, 1)]),
        frontier(&[(&a, 3)]),
        frontier(&[(&b, 2)]),
        frontier(&[(&a, 2), (&b, 1)]),
        frontier(&[(&b, 3), (&c, 1)]),
    ];
    for x in &shapes {
        for y in &shapes {
            let (mut xy, mut yx) = (x.clone(), y.clone());
            xy.join(y);
            yx.join(x);
            assert_eq!(xy, yx);
            assert!(xy.covers(x) && xy.covers(y));
            assert!(xy.points().all(|p| x.covers_point(p) || y.covers_point(p)));
        }
    }
}

#[test]
fn covering_counts_completion_and_prune_drops_it() {
    let [a, b] = clocks();
    let death = frontier(&[(&a, 2), (&b, 2)]);
    let seen = frontier(&[(&a, 2)]);
    assert!(!seen.covers(&death));
    b.raise(2);
    assert!(seen.covers(&death));
    assert!(!death.is_complete());
    let mut pruned = death.clone();
    pruned.prune();
    assert_eq!(pruned, frontier(&[(&a, 2)]));
    assert!(pruned.single().is_some());
    death.mark_complete();
    assert_eq!(a.completed(), 2);
    pruned.prune();
    assert!(pruned.is_empty() && death.is_complete());
}

#[test]
fn a_lane_orders_its_own_past_its_waits_and_what_completed() {
    let (mut q, mut r) = (Lane::new(), Lane::new());
    let first = Frontier::from(r.advance());
    let second = Frontier::from(r.advance());
    assert!(q.ordered(&Frontier::from(q.current())));
    assert!(!q.ordered(&first));
    q.wait_for(&first);
    assert!(q.ordered(&first) && !q.ordered(&second));
    assert_eq!(q.horizon(r.id()), Some(1));
    r.clock().raise(2);
    assert!(q.ordered(&second));
    // A point yet to come is not ordered.
    let ahead = Frontier::from(Point::new(q.clock(), q.epoch() + 1));
    assert!(!q.ordered(&ahead));
    q.advance();
    assert!(q.ordered(&ahead));
}

#[test]
fn order_is_transitive_through_a_frontier() {
    let (mut a, mut b, mut c) = (Lane::new(), Lane::new(), Lane::new());
    let death = Frontier::from(a.advance());
    b.wait_for(&Frontier::from(a.current()));
    b.advance();
    c.wait_for(&b.frontier());
    assert!(c.ordered(&death));
}

#[test]
fn the_tip_holds_waits_that_no_command_follows_yet() {
    let (mut q, mut r) = (Lane::new(), Lane::new());
    q.advance();
    let foreign = Frontier::from(r.advance());
    q.wait_for(&foreign);
    // The current command was submitted before the wait: it proves nothing about it.
    assert!(q.tip().covers(&foreign));
    q.advance();
    assert_eq!(q.tip(), Frontier::from(q.current()));
    assert!(q.frontier().covers(&foreign));
    // A lane without commands has a tip that is complete at once.
    assert!(Lane::new().tip().is_empty());
}

#[test]
fn completed_lanes_leave_no_trace() {
    let mut q = Lane::new();
    for _ in 0..1000 {
        let mut other = Lane::new();
        q.wait_for(&Frontier::from(other.advance()));
        other.clock().raise(u64::MAX);
    }
    let mut last = Lane::new();
    q.wait_for(&Frontier::from(last.advance()));
    assert_eq!(q.waited().len(), 1);
}

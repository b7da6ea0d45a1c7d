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
    assert_eq!(q.waited().count(), 1);
}

#[test]
fn frontiers_are_maps_from_lanes_to_epochs() {
    use std::collections::BTreeMap;
    type Map = BTreeMap<usize, u64>;
    let clocks = clocks::<9>();
    let of = |map: &Map| -> Frontier {
        let points = map
            .iter()
            .map(|(at, epoch)| Point::new(&clocks[*at], *epoch));
        points.collect()
    };
    let spreads = [1, 20_000, 1 << 40];
    // Knuth's linear congruential generator for 64 bits.
    let mut state = 11_u64;
    let mut below = |end: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    let mut map = |most: u64| -> Map {
        let count = below(most);
        let point = |_| {
            (
                below(9) as usize,
                (1 + below(4)) * spreads[below(3) as usize],
            )
        };
        (0..count).map(point).collect()
    };
    for round in 0..5000 {
        let (a, b) = (map(10), map(if round % 2 == 0 { 3 } else { 10 }));
        let (mut own, other) = (of(&a), of(&b));
        let shared = (round % 3 == 0).then(|| own.clone());
        let odd = |at: &usize| at % 2 == 1;
        let mut beyond = b.clone();
        beyond.retain(|at, epoch| odd(at) && a.get(at).is_none_or(|own| own < epoch));
        let index = |point: &Point| clocks.iter().position(|clock| clock.id() == point.lane());
        let wanted = |point: &Point| index(point).is_some_and(|at| odd(&at));
        assert_eq!(own.missing(&other, wanted), of(&beyond));
        let mut both = a.clone();
        for (at, epoch) in &b {
            let old = both.entry(*at).or_default();
            *old = (*old).max(*epoch);
        }
        own.join(&other);
        assert_eq!(own, of(&both));
        // What shared it has not changed.
        assert!(shared.is_none_or(|shared| shared == of(&a)));
        own.retain(wanted);
        both.retain(|at, _| odd(at));
        assert_eq!(own, of(&both));
    }
}

#[test]
fn a_lane_that_keeps_waiting_for_another_hands_out_its_events() {
    let (mut q, mut r) = (Lane::new(), Lane::new());
    for turn in 1..200_000_u64 {
        let event = Frontier::from(r.advance());
        q.wait_for(&event);
        assert_eq!(q.tip().epoch_of(r.id()), Some(turn));
        q.step();
        assert_eq!((q.waited().count(), q.horizon(r.id())), (1, Some(turn)));
        assert_eq!(q.tip_epoch(), Some(turn));
        let (own, order) = (q.current(), q.frontier());
        assert!(order.covers_point(&own) && order.covers(&event));
        assert_eq!(order.len(), 2);
    }
}

#[test]
fn an_event_is_recorded_anew_whatever_it_held() {
    let [mut own, mut other] = std::array::from_fn(|_| Lane::new());
    other.step();
    let mut events = vec![(Frontier::new(), Frontier::new())];
    for turn in 0..6 {
        for (done, order) in &mut events {
            own.record(done, order);
            let point = own.current();
            let points = if turn == 0 { vec![] } else { vec![point] };
            assert_eq!(*done, points.into_iter().collect(), "{turn}");
            assert_eq!(*order, own.frontier(), "{turn}");
        }
        events.push((other.frontier(), own.frontier()));
        events.push((own.frontier(), other.frontier()));
        if turn % 2 == 1 {
            own.wait_for(&other.frontier());
            other.step();
        }
        own.step();
    }
}

/// Of thousands of lanes that each exchanged events with one, and are there still, that one knows no more
/// than of those with something pending.
#[test]
fn what_a_lane_knows_stays_as_small_as_what_is_pending() {
    let mut busy = Lane::new();
    busy.advance();
    let (mut crowd, mut most) = (Vec::new(), [0; 2]);
    for _ in 0..5_000 {
        let mut other = Lane::new();
        other.wait_for(&busy.frontier());
        other.advance();
        busy.wait_for(&other.frontier());
        busy.advance();
        most = [
            most[0].max(busy.waited().count()),
            most[1].max(busy.frontier().len()),
        ];
        other.clock().raise(other.epoch());
        busy.clock().raise(busy.epoch());
        crowd.push(other);
    }
    assert!(most[0] <= 96 && most[1] <= 96, "{most:?} lanes known");
    let lens = crowd.iter().map(|other| other.waited().count());
    assert!(lens.max() <= Some(96));
}

/// What was pending all at once is forgotten soon after it has completed, whoever keeps the lanes.
#[test]
fn what_has_completed_is_forgotten_however_much_it_was() {
    for count in [70, 1_000, 20_000] {
        let mut busy = Lane::new();
        let mut crowd: Vec<Lane> = (0..count).map(|_| Lane::new()).collect();
        let mut all = Frontier::new();
        for other in &mut crowd {
            other.advance();
            all.join_point(&other.current());
        }
        busy.wait_for(&all);
        busy.advance();
        assert_eq!(busy.waited().count(), count);
        for other in &crowd {
            other.clock().raise(other.epoch());
        }
        let soon = (count / 8).max(1024);
        (0..=soon).for_each(|_| busy.step());
        assert!(busy.waited().count() <= 96, "{}", busy.waited().count());
        assert!(busy.frontier().len() <= 96);
    }
}

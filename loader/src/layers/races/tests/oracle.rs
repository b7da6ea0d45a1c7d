//! Random programs. Two commands must be ordered exactly if the transitive closure of the program's
//! waits orders them.

use proptest::prelude::*;

use super::super::order::{Kind, Mark, Order, Queue};

/// One step: an operation, its queue, and the recent events that it waits for.
#[derive(Clone, Debug)]
enum Op {
    Command {
        kind: Kind,
        queue: usize,
        waits: Vec<usize>,
    },
    Finish {
        queue: usize,
    },
    Wait {
        event: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let queue = 0..4usize;
    let kind = prop_oneof![
        8 => Just(Kind::Plain),
        1 => Just(Kind::Marker),
        1 => Just(Kind::Barrier { all: true }),
    ];
    let waits = prop::collection::vec(0..12usize, 0..3);
    prop_oneof![
        20 => (kind, queue.clone(), waits)
            .prop_map(|(kind, queue, waits)| Op::Command { kind, queue, waits }),
        1 => queue.prop_map(|queue| Op::Finish { queue }),
        2 => (0..12usize).prop_map(|event| Op::Wait { event }),
    ]
}

/// The first two queues are in order.
fn is_in_order(queue: usize) -> bool {
    queue < 2
}

struct Command {
    queue: usize,
    kind: Kind,
    mark: Mark,
    event: Order,
    /// The commands that precede it, by index.
    ancestors: Vec<bool>,
    complete: bool,
}

fn run(program: &[Op]) -> Result<(), TestCaseError> {
    let mut queues: Vec<Queue> = (0..4).map(|at| Queue::new(is_in_order(at))).collect();
    let mut commands: Vec<Command> = Vec::new();
    for op in program {
        match op {
            Op::Finish { queue } => {
                queues[*queue].complete();
                let done = indices(&commands, |command| command.queue == *queue);
                complete(&mut commands, &done);
            }
            Op::Wait { event } => {
                if let Some(at) = commands.len().checked_sub(1 + event) {
                    commands[at].event.complete();
                    complete(&mut commands, &[at]);
                }
            }
            Op::Command { kind, queue, waits } => {
                let back = |back: &usize| commands.len().checked_sub(1 + back);
                let waits: Vec<usize> = waits.iter().filter_map(back).collect();
                let kind = with_waits(*kind, &waits);
                let mut order = Order::default();
                for at in &waits {
                    order.join(&commands[*at].event);
                }
                let enqueued = queues[*queue].enqueue(&order, kind);
                let ancestors = closure(&commands, *queue, kind, &waits);
                for (at, earlier) in commands.iter().enumerate() {
                    let expected = ancestors[at] || earlier.complete;
                    let reported = enqueued.before.comes_after(&earlier.mark);
                    prop_assert_eq!(reported, expected, "{} before {}", at, commands.len());
                }
                commands.push(Command {
                    queue: *queue,
                    kind,
                    mark: enqueued.mark,
                    event: enqueued.event,
                    ancestors,
                    complete: false,
                });
            }
        }
    }
    Ok(())
}

/// With a wait list, a marker is a plain command and a barrier waits for its events only.
fn with_waits(kind: Kind, waits: &[usize]) -> Kind {
    let all = waits.is_empty();
    match kind {
        Kind::Marker if !all => Kind::Plain,
        Kind::Barrier { .. } => Kind::Barrier { all },
        kind => kind,
    }
}

fn indices(commands: &[Command], which: impl Fn(&Command) -> bool) -> Vec<usize> {
    let all = commands.iter().enumerate();
    all.filter(|(_, command)| which(command))
        .map(|(at, _)| at)
        .collect()
}

fn complete(commands: &mut [Command], done: &[usize]) {
    for &at in done {
        let ancestors = commands[at].ancestors.clone();
        commands[at].complete = true;
        for (earlier, _) in ancestors.iter().enumerate().filter(|(_, yes)| **yes) {
            commands[earlier].complete = true;
        }
    }
}

/// The indices of the commands that precede a new command.
fn closure(commands: &[Command], queue: usize, kind: Kind, waits: &[usize]) -> Vec<bool> {
    let everything =
        is_in_order(queue) || matches!(kind, Kind::Marker | Kind::Barrier { all: true });
    let parents = indices(commands, |command| {
        let barrier = matches!(command.kind, Kind::Barrier { .. });
        command.queue == queue && (everything || barrier)
    });
    let mut ancestors = vec![false; commands.len()];
    for &parent in parents.iter().chain(waits) {
        ancestors[parent] = true;
        for (at, yes) in commands[parent].ancestors.iter().enumerate() {
            ancestors[at] |= yes;
        }
    }
    ancestors
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn order_is_the_closure_of_all_waits(program in prop::collection::vec(op(), 1..120)) {
        run(&program)?;
    }
}

#[test]
fn chains_and_barriers_cost_few_lanes() {
    let mut queue = Queue::new(false);
    let mut last = Order::default();
    for _ in 0..10_000 {
        last = queue.enqueue(&last, Kind::Plain).event;
    }
    assert_eq!(queue.lanes(), 1, "a chain");
    for _ in 0..100 {
        for _ in 0..20 {
            queue.enqueue(&Order::default(), Kind::Plain);
        }
        let barrier = Kind::Barrier { all: true };
        last = queue.enqueue(&Order::default(), barrier).event;
    }
    assert!(queue.lanes() <= 22, "{} lanes", queue.lanes());
    assert!(last.points() <= 2, "{} points", last.points());
    // Independent commands, each waited for on the host.
    for _ in 0..10_000 {
        let enqueued = queue.enqueue(&Order::default(), Kind::Plain);
        enqueued.event.complete();
    }
    assert!(queue.lanes() <= 130, "{} lanes", queue.lanes());
}

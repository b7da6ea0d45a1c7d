//! Programs as text over queues and blocks alone. The oracle compares orders with a brute-force
//! closure.

mod oracle;

use std::collections::HashMap;

use super::blocks::{Access, Blocks, Finding, FindingKind, Free, OnQueue, Operation, Range, Step};
use super::order::{Kind, Order, Queue};
use crate::layers::maker::Handle;

/// Runs a program and returns its findings in order.
///
/// ```text
/// in q | out q                            a queue
/// alloc|inner|use|read|free q a [after e f] [-> e]
/// marker|barrier q [after e f] [-> e]
/// finish q | wait e | open q | new a | delete a      on the host
/// ```
fn run(program: &str) -> Vec<Finding> {
    let mut simulation = Simulation::default();
    let mut found = Vec::new();
    let lines = program.split(';').map(str::trim);
    for line in lines.filter(|line| !line.is_empty()) {
        simulation.step(line, &mut found);
    }
    found
}

#[derive(Default)]
struct Simulation {
    queues: HashMap<String, (Queue, OnQueue)>,
    events: HashMap<String, Order>,
    blocks: Blocks,
}

fn what(function: &'static str, queue: Option<OnQueue>, event: bool) -> Operation {
    Operation {
        function,
        kernel: None,
        queue,
        event,
        place: None,
    }
}

/// A block's name is one letter.
fn address(name: &str) -> usize {
    0x1000 * usize::from(name.as_bytes()[0])
}

impl Simulation {
    fn step(&mut self, line: &str, found: &mut Vec<Finding>) {
        let (line, event) = match line.split_once("->") {
            Some((line, event)) => (line, Some(event.trim())),
            None => (line, None),
        };
        let (line, waits) = line.split_once("after").unwrap_or((line, ""));
        let mut before = Order::default();
        for event in waits.split_whitespace() {
            before.join(&self.events[event]);
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["in" | "out", name] => {
                let place = OnQueue {
                    queue: Handle {
                        address: self.queues.len() + 1,
                        maker: None,
                    },
                    command: 0,
                };
                let queue = Queue::new(words[0] == "in");
                self.queues.insert(name.to_owned(), (queue, place));
            }
            ["finish", queue] => self.queue(queue).0.complete(),
            ["open", queue] => self.queue(queue).0.open(),
            ["wait", event] => self.events[event].complete(),
            ["new", block] => self.blocks.allocated(address(block), 64, host("new")),
            ["delete", block] => {
                let nothing = Order::default();
                self.blocks
                    .freed(address(block), host("delete"), &nothing, found);
            }
            [word, queue, ref rest @ ..] => {
                let command = (word, rest.first().copied(), event.is_some());
                let order = self.command(queue, command, &before, found);
                if let Some(event) = event {
                    self.events.insert(event.to_owned(), order);
                }
            }
            _ => panic!("{line}"),
        }
    }

    fn queue(&mut self, name: &str) -> &mut (Queue, OnQueue) {
        self.queues.get_mut(name).expect(name)
    }

    fn command(
        &mut self,
        queue: &str,
        (word, block, event): (&str, Option<&str>, bool),
        waits: &Order,
        found: &mut Vec<Finding>,
    ) -> Order {
        let all = *waits == Order::default();
        let (function, kind) = match word {
            "alloc" => ("alloc", Kind::Plain),
            "inner" => ("inner", Kind::Plain),
            "use" => ("use", Kind::Plain),
            "read" => ("read", Kind::Plain),
            "free" => ("free", Kind::Plain),
            "marker" if all => ("marker", Kind::Marker),
            "marker" => ("marker", Kind::Plain),
            "barrier" => ("barrier", Kind::Barrier { all }),
            _ => panic!("{word}"),
        };
        let (queue, place) = self.queue(queue);
        place.command += 1;
        let in_order = queue.is_in_order();
        let enqueued = queue.enqueue(waits, kind);
        let step = Step {
            what: what(function, Some(*place), event),
            mark: Some(enqueued.mark),
            implied_by: (word == "alloc" && !in_order && !event).then(|| enqueued.before.clone()),
        };
        let at = block.map(address).unwrap_or_default();
        let range = |size| Range {
            address: at + 8,
            size,
        };
        match word {
            "alloc" => self.blocks.allocated(at, 64, step),
            "inner" => self.blocks.allocated(at, 16, step),
            "use" => {
                found.extend(
                    self.blocks
                        .used(range(Some(16)), Access::Usm, step, &enqueued.before),
                )
            }
            "read" => {
                found.extend(
                    self.blocks
                        .used(range(None), Access::Any, step, &enqueued.before),
                )
            }
            "free" => {
                if let Free::Recorded(freed) = self.blocks.freed(at, step, &enqueued.before, found)
                {
                    self.blocks.complete_free(&freed);
                }
            }
            _ => {}
        }
        enqueued.event
    }
}

fn host(function: &'static str) -> Step {
    Step::host(what(function, None, true))
}

/// Expected findings read `KIND now / then`, commands with the numbers of their queues.
#[track_caller]
fn check(program: &str, expected: &[&str]) {
    let short = |what: &Operation| {
        let queue = what
            .queue
            .map_or_else(String::new, |place| place.queue.address.to_string());
        format!("{}{queue}", what.function)
    };
    let found: Vec<String> = run(program)
        .iter()
        .map(|found| {
            let (now, then) = (short(&found.now.0), short(&found.then.0));
            format!("{:?} {now} / {then}", found.kind)
        })
        .collect();
    assert_eq!(found, expected, "{program}");
}

#[test]
fn in_order_queues_need_no_events() {
    check(
        "in p; alloc p a; use p a; free p a; alloc p a; use p a; free p a",
        &[],
    );
    check(
        "in p; in q; alloc p a; use q a",
        &["UseBeforeAllocation use2 / alloc1"],
    );
    check(
        "in p; in q; alloc p a -> e; use q a after e -> f; free p a after f",
        &[],
    );
    // A wait list orders later commands as well.
    check(
        "in p; in q; alloc p a -> e; marker q after e; use q a -> f; marker p after f; free p a",
        &[],
    );
    check(
        "in p; in q; alloc p a -> e; use q a after e; free p a",
        &["FreeBeforeUse free1 / use2"],
    );
    check(
        "in p; in q; alloc p a -> e; use p a; free q a",
        &[
            "FreeBeforeAllocation free2 / alloc1",
            "FreeBeforeUse free2 / use1",
        ],
    );
    // An event is a point: commands after it are not covered.
    check(
        "in p; in q; alloc p a -> e; use p a; free q a after e",
        &["FreeBeforeUse free2 / use1"],
    );
    check("in p; in q; alloc p a; use p a -> e; free q a after e", &[]);
}

#[test]
fn freed_blocks_are_not_used() {
    check(
        "in p; alloc p a; free p a; use p a",
        &["UseAfterFree use1 / free1"],
    );
    check(
        "in p; in q; alloc p a -> e; marker q after e; free p a; use q a",
        &["UseAndFree use2 / free1"],
    );
    check(
        "in p; alloc p a; free p a; free p a",
        &["DoubleFree free1 / free1"],
    );
    check(
        "in p; in q; alloc p a -> e; free p a; free q a after e",
        &["DoubleFreeAtOnce free2 / free1"],
    );
    check(
        "in p; new a; use p a; free p a; free p a",
        &["DoubleFree free1 / free1"],
    );
    check(
        "in p; new a; use p a; delete a; use p a",
        &["UseAfterFree use1 / delete"],
    );
    check("new a; delete a; delete a", &["DoubleFree delete / delete"]);
    // A new block at the same address: uses of the old block are not compared with the new
    // allocation.
    check("in p; alloc p a; free p a; alloc p a; use p a", &[]);
    check(
        "in p; in q; alloc p a -> e; marker q after e; free p a; alloc p a; use q a",
        &["UseBeforeAllocation use2 / alloc1"],
    );
    // Memory that may be the application's own is not checked.
    check(
        "in p; alloc p a; free p a; finish p; read p a; use p a",
        &[],
    );
    check(
        "in p; alloc p a; free p a; read p a",
        &["UseAfterFree read1 / free1"],
    );
    check(
        "in p; alloc p a; free p a; finish p; use p a",
        &["UseAfterFree use1 / free1"],
    );
}

#[test]
fn out_of_order_queues_need_events_or_barriers() {
    let unordered = ["UseBeforeAllocation use1 / alloc1"];
    check("out p; alloc p a -> e; use p a", &unordered);
    check(
        "out p; alloc p a -> e; use p a after e -> f; free p a after f",
        &[],
    );
    check(
        "out p; alloc p a -> e; barrier p; use p a; barrier p; free p a",
        &[],
    );
    check(
        "out p; alloc p a -> e; use p a after e; free p a after e",
        &["FreeBeforeUse free1 / use1"],
    );
    // A marker orders only commands that wait for it, a barrier of some events only the commands
    // that they cover.
    check("out p; alloc p a -> e; marker p; use p a", &unordered);
    check("out p; alloc p a -> e; marker p -> m; use p a after m", &[]);
    check(
        "out p; alloc p a -> e; alloc p b -> f; barrier p after e; use p a",
        &[],
    );
    check(
        "out p; alloc p a -> e; alloc p b -> f; barrier p after e; use p b",
        &unordered,
    );
    // Across queues.
    check(
        "out p; out q; alloc p a -> e; barrier p -> f; use q a after f -> g; free p a after g",
        &[],
    );
    check(
        "out p; out q; alloc p a -> e; barrier p; use q a",
        &["UseBeforeAllocation use2 / alloc1"],
    );
}

/// An allocation that returns no event only uses memory that needs no wait.
#[test]
fn allocations_without_an_event_are_ready_at_once() {
    check("out p; alloc p a; use p a; barrier p; free p a", &[]);
    check("out p; out q; alloc p a; use q a", &[]);
    // It is ready at once only if no command precedes the allocation.
    check(
        "out p; in q; use q b -> e; alloc p a after e; use p a",
        &["UseBeforeAllocation use1 / alloc1"],
    );
    check(
        "out p; in q; use q b -> e; alloc p a after e; use p a after e",
        &[],
    );
    check(
        "out p; out q; use p b; barrier p; alloc p a; use p a; use q a",
        &["UseBeforeAllocation use2 / alloc1"],
    );
    check(
        "in p; in q; alloc p a; use q a",
        &["UseBeforeAllocation use2 / alloc1"],
    );
}

/// A pool over a block of the application allocates parts of it.
#[test]
fn the_memory_of_a_pool_is_freed_after_its_allocations() {
    check(
        "in p; new a; inner p a; use p a; free p a; inner p a; free p a; delete a",
        &[],
    );
    check("in p; alloc p a; inner p a; free p a; free p a", &[]);
    check(
        "in p; new a; inner p a; free p a; delete a; delete a",
        &["DoubleFree delete / delete"],
    );
    check(
        "in p; in q; new a; inner p a; use q a",
        &["UseBeforeAllocation use2 / inner1"],
    );
}

#[test]
fn observed_completion_orders() {
    check(
        "in p; in q; alloc p a; finish p; use q a; finish q; free p a",
        &[],
    );
    check(
        "out p; alloc p a -> e; wait e; use p a -> f; wait f; free p a",
        &[],
    );
    check(
        "in p; in q; alloc p a; finish q; use q a",
        &["UseBeforeAllocation use2 / alloc1"],
    );
    // An event covers the commands that its queue waited for.
    check(
        "in p; in q; alloc p a -> e; use q b after e -> f; wait f; out r; use r a",
        &[],
    );
    check(
        "in p; alloc p a -> e; use p a; wait e; in q; free q a",
        &["FreeBeforeUse free2 / use1"],
    );
}

#[test]
fn unknown_orders_are_not_reported() {
    check("in p; in q; open q; alloc p a; use q a; free p a", &[]);
    check("in p; in q; open p; alloc p a; use q a; free q a", &[]);
    // A freed block stays freed.
    check(
        "in p; in q; open q; alloc p a; free p a; use q a",
        &["UseAfterFree use2 / free1"],
    );
}

/// Few uses of a chain are kept, and all that are unordered. The finding names the last use that
/// conflicts.
#[test]
fn uses_that_precede_later_ones_are_pruned() {
    let mut simulation = Simulation::default();
    let mut do_all = |program: &str| {
        let mut found = Vec::new();
        for line in program.split(';') {
            simulation.step(line.trim(), &mut found);
        }
        (found, simulation.blocks.uses(address("a")))
    };
    do_all("in p; out q; in r; alloc p a -> e; marker r after e");
    let max = (0..1000).map(|_| do_all("use p a").1).max();
    assert!(max <= Some(32), "{max:?} of 1000 in order");
    do_all("finish p");
    for _ in 0..1000 {
        do_all("use q a after e");
    }
    let (_, kept) = do_all("use p a");
    assert!(kept > 1000, "{kept} of 1000 that nothing orders");
    let (found, _) = do_all("free r a");
    assert_eq!(found[0].kind, FindingKind::FreeBeforeUse);
    assert_eq!(
        found[0].then.0.queue.map(|place| place.queue.address),
        Some(1)
    );
    assert_eq!(found.len(), 1);
}

#[test]
fn each_kind_is_reported_once() {
    let found = run("in p; in q; alloc p a; use q a; use q a; use q a; free p a");
    assert_eq!(found.len(), 2);
}

#[test]
fn findings_name_both_commands_and_what_is_missing() {
    let text = |program| -> Vec<String> { run(program).iter().map(ToString::to_string).collect() };
    assert_eq!(
        text("in p; in q; alloc p a -> e; marker q after e; free p a; use q a"),
        [
            "race: use (command 2 of queue 0x2) uses 16 bytes at 0x61008; free (command 2 of queue \
             0x1) frees 64 bytes at 0x61000, 1st of alloc; they overlap in 16 bytes at 0x61008; no \
             event orders them"
        ]
    );
    assert_eq!(
        text("in p; in q; alloc p a; read q a"),
        [
            "race: read (command 1 of queue 0x2) uses memory from 0x61008 on; alloc (command 1 of \
             queue 0x1) allocates 64 bytes at 0x61000, 1st of alloc; they may overlap in 56 bytes \
             at 0x61008; no event orders the use after the allocation (it returned no event)"
        ]
    );
    assert_eq!(
        text("in p; alloc p a; free p a; free p a"),
        [
            "double free: free (command 3 of queue 0x1) frees 64 bytes at 0x61000, 1st of alloc; \
             free (command 2 of queue 0x1) freed it before"
        ]
    );
}

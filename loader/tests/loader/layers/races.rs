//! Validation of asynchronous allocations: programs with races, and programs without.

mod program;

use crate::application::{Application, Strict, call, strict};
use crate::common::null as null_mut;
use program::Program;
use std::ffi::c_void;
use std::ptr::null;
use ur::abi::*;

const OK: ur_result_t = UR_RESULT_SUCCESS;
const LAYER: &str = "UR_LAYER_ASYNC_ALLOC_VALIDATION";

/// Programs, each with a part of every expected line. `[2 p]` is the second command of queue p; `A` are
/// the block's 64 bytes.
const PROGRAMS: &[(&str, &str, &[&str])] = &[
    (
        "in order",
        "in p; alloc p a; use p a; copy p a; launch p a; free p a; finish p",
        &[],
    ),
    (
        "another queue, no event",
        "in p; in q; alloc p a; use q a",
        &[
            "race: urEnqueueUSMFill[1 q] uses A; urEnqueueUSMDeviceAllocExp[1 p] allocates A; they overlap in A; no event orders the use after the allocation (it returned no event)",
        ],
    ),
    (
        "another queue, an event",
        "in p; in q; alloc p a -> e; use q a after e -> f; free p a after f",
        &[],
    ),
    (
        "a kernel, and a free that does not wait for it",
        "in p; in q; alloc p a -> e; launch q a after e; free p a",
        &[
            "race: urEnqueueUSMFreeExp[2 p] frees A; kernel add[1 q] uses A on; they may overlap in A; no event orders the free after the use (it returned no event)",
        ],
    ),
    (
        "a kernel after a free on another queue",
        "in p; in q; alloc p a -> e; wait q e; free p a; launch q a",
        &[
            "race: kernel add[2 q] uses A on; urEnqueueUSMFreeExp[2 p] frees A; they may overlap in A; no event orders them",
        ],
    ),
    (
        "a use after a free",
        "in p; alloc p a; free p a; copy p a",
        &[
            "use after free: urEnqueueUSMMemcpy[3 p] uses A; urEnqueueUSMFreeExp[2 p] had freed A; they overlap in A",
        ],
    ),
    (
        "a second free",
        "in p; alloc p a; free p a; twice p a",
        &[
            "double free: urEnqueueUSMFreeExp[3 p] frees A; urEnqueueUSMFreeExp[2 p] freed it before",
        ],
    ),
    (
        "a second free elsewhere",
        "in p; in q; alloc p a; free p a; twice q a",
        &[
            "double free: urEnqueueUSMFreeExp[1 q] frees A; urEnqueueUSMFreeExp[2 p] frees it too; no event orders them",
        ],
    ),
    (
        "a free that does not wait for the allocation",
        "in p; in q; alloc p a -> e; free q a",
        &[
            "race: urEnqueueUSMFreeExp[1 q] frees A; urEnqueueUSMDeviceAllocExp[1 p] allocates A; they overlap in A; no event orders the free after the allocation",
        ],
    ),
    (
        "ordinary USM, freed in order",
        "in p; new a; use p a; free p a",
        &[],
    ),
    (
        "ordinary USM, freed on another queue",
        "in p; in q; new a; use p a -> e; free q a",
        &[
            "race: urEnqueueUSMFreeExp[1 q] frees A; urEnqueueUSMFill[1 p] uses A; they overlap in A; no event orders the free after the use",
        ],
    ),
    (
        "ordinary USM, freed at once and used",
        "in p; new a; delete a; use p a",
        &["use after free: urEnqueueUSMFill[1 p] uses A; urUSMFree had freed A; they overlap in A"],
    ),
    (
        "freed both ways",
        "in p; alloc p a; free p a; deletetwice a",
        &[
            "double free: urUSMFree frees A; urEnqueueUSMFreeExp[2 p] frees it too; no event orders them",
        ],
    ),
    (
        "out of order",
        "out p; alloc p a -> e; use p a",
        &[
            "race: urEnqueueUSMFill[2 p] uses A; urEnqueueUSMDeviceAllocExp[1 p] allocates A; they overlap in A; no event orders the use after the allocation",
        ],
    ),
    (
        "out of order, and nothing to wait for",
        "out p; alloc p a; use p a; barrier p; free p a",
        &[],
    ),
    (
        "out of order, with a barrier",
        "out p; alloc p a -> e; barrier p; use p a; barrier p; free p a",
        &[],
    ),
    (
        "out of order, with a marker",
        "out p; alloc p a -> e; marker p -> m; use p a after m -> f; free p a after f",
        &[],
    ),
    (
        "the host waits for a queue",
        "in p; in q; alloc p a; finish p; use q a; finish q; free p a",
        &[],
    ),
    (
        "the host waits for events",
        "in p; in q; alloc p a -> e; hostwait e; use q a -> f; hostwait f; free p a",
        &[],
    ),
    (
        "the host asks for the state",
        "in p; in q; alloc p a -> e; ask e; use q a -> f; ask f; free p a",
        &[],
    ),
    (
        "the host asks too early",
        "in p; in q; alloc p a -> e; asktooearly e; use q a",
        &["race: urEnqueueUSMFill[1 q] uses A; urEnqueueUSMDeviceAllocExp[1 p] allocates"],
    ),
    (
        "the host reads with blocking copies",
        "in p; in q; alloc p a; use p a; block p a; use q a; block q a; free p a",
        &[],
    ),
    (
        "a command buffer",
        "in p; in q; alloc p a -> e; record b a; submit q b; free p a",
        &[
            "race: urEnqueueCommandBufferExp[1 q] uses A; urEnqueueUSMDeviceAllocExp[1 p] allocates A; they overlap in A",
            "race: urEnqueueUSMFreeExp[2 p] frees A; urEnqueueCommandBufferExp[1 q] uses A; they overlap in A",
        ],
    ),
    (
        "a command buffer in order",
        "in p; alloc p a; record b a; submit p b; submit p b; free p a",
        &[],
    ),
    (
        "submissions of a command buffer follow each other",
        "in p; in q; alloc p a; record b a; submit p b; submit q b -> e; free p a after e",
        &[],
    ),
    (
        "an address that comes again",
        "in p; alloc p a; free p a; alloc p b; use p b; free p b",
        &[],
    ),
    (
        "an old pointer to an address that came again",
        "in p; in q; alloc p a -> e; wait q e; free p a; alloc p b; use q a",
        &["race: urEnqueueUSMFill[2 q] uses A; urEnqueueUSMDeviceAllocExp[3 p] allocates A"],
    ),
    (
        "memory of the host's own",
        "in p; in q; copyhost p; copyhost q",
        &[],
    ),
];

/// A line of the log in the form of [`PROGRAMS`], without what made the memory.
fn compact(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    // The application's own queue is the first one.
    let queues = [
        (", 2nd of urQueueCreate)", 'p'),
        (", 3rd of urQueueCreate)", 'q'),
    ];
    while let Some((before, after)) = rest.split_once(" (command ") {
        let (number, after) = after.split_once(" of queue 0x").expect("a queue");
        let (_, name, after) = queues
            .iter()
            .filter_map(|(text, name)| after.split_once(text).map(|cut| (cut.0, name, cut.1)))
            .min_by_key(|(handle, ..)| handle.len())
            .expect("a queue of the program");
        out.push_str(&format!("{before}[{number} {name}]"));
        rest = after;
    }
    out.push_str(rest);
    let words = ["64 bytes at 0x", "memory from 0x"];
    for start in words {
        while let Some((before, after)) = out.split_once(start) {
            let after = after.trim_start_matches(|digit: char| digit.is_ascii_hexdigit());
            let maker = after.strip_prefix(", ").and_then(|rest| {
                let (nth, function) = rest.split_once(" of ur")?;
                let end = function.find(|letter: char| !letter.is_alphanumeric())?;
                (nth.len() == 3).then_some(&function[end..])
            });
            out = format!("{before}A{}", maker.unwrap_or(after));
        }
    }
    out
}

#[test]
fn planted_races_are_found_and_nothing_else() {
    let log = strict("layers::races::scenario", LAYER, &[]);
    let mut lines: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("<VALIDATION>"))
        .collect();
    lines.reverse();
    for (name, _, expected) in PROGRAMS {
        for part in *expected {
            let line = compact(lines.pop().unwrap_or("nothing"));
            assert!(
                line.contains(part),
                "{name}: {part}\nis not in\n{line}\n{log}"
            );
        }
        let end = lines.pop().unwrap_or("nothing");
        assert!(end.contains("end of program"), "{name}: also {end}\n{log}");
    }
    assert!(lines.is_empty(), "{log}");
}

#[test]
#[ignore = "runs in a child process"]
fn scenario() {
    for (name, program, _) in PROGRAMS {
        let app = Application::init();
        Program::new(&app).run(program);
        eprintln!("<VALIDATION> end of program: {name}");
        app.end();
    }
}

#[test]
fn unknown_orders_are_not_reported() {
    let log = strict("layers::races::scenario_unseen", LAYER, &[]);
    assert!(!log.contains("<VALIDATION>"), "{log}");
}

/// Queues and events that share native handles.
#[test]
#[ignore = "runs in a child process"]
fn scenario_unseen() {
    let app = Application::init();
    let all = app.all;
    let mut native = 0;
    for opened in [0, 1] {
        let mut program = Program::new(&app);
        program.step(&["in", "p"], &vec![], false);
        program.step(&["in", "q"], &vec![], false);
        let queue = program.queues[["p", "q"][opened]];
        let got = call!(
            all,
            Queue.pfnGetNativeHandle(queue, null_mut(), &mut native)
        );
        assert_eq!(got, OK);
        program.run("alloc p a; use q a; free p a");
    }
    // An event that may have been waited for unseen, and one that is signalled unseen.
    let mut program = Program::new(&app);
    program.step(&["in", "p"], &vec![], false);
    program.step(&["in", "q"], &vec![], false);
    let event = program.step(&["alloc", "p", "a"], &vec![], true);
    assert_eq!(call!(all, Event.pfnGetNativeHandle(event, &mut native)), OK);
    let mut foreign = null_mut();
    let made = call!(
        all,
        Event.pfnCreateWithNativeHandle(native, app.context, null(), &mut foreign)
    );
    assert_eq!(made, OK);
    program.events.insert("e".into(), event);
    program.events.insert("f".into(), foreign);
    program.run("use q a; free p a after f");
    app.end();
}

#[test]
fn callbacks_and_host_tasks_show_what_is_complete() {
    let log = strict("layers::races::scenario_callbacks", LAYER, &[]);
    assert_eq!(log.matches("<VALIDATION>").count(), 1, "{log}");
    assert!(
        log.contains(", 5th of urQueueCreate) uses ") && log.contains("race: urEnqueueUSMFill "),
        "{log}"
    );
}

unsafe extern "C" fn notified(_: ur_event_handle_t, _: ur_execution_info_t, count: *mut c_void) {
    // SAFETY: the scenario passes a pointer to a number that outlives the call.
    unsafe { *count.cast::<u32>() += 1 };
}

unsafe extern "C" fn task(count: *mut c_void) {
    // SAFETY: the scenario passes a pointer to a number that outlives the call.
    unsafe { *count.cast::<u32>() += 1 };
}

/// strict.c calls both at once, as an adapter may. The second time it refuses them.
#[test]
#[ignore = "runs in a child process"]
fn scenario_callbacks() {
    let app = Application::init();
    let all = app.all;
    let mut count = 0u32;
    let data: *mut c_void = (&raw mut count).cast();
    let complete = UR_EXECUTION_INFO_COMPLETE;
    for refuses in [false, true] {
        let mut program = Program::new(&app);
        program.step(&["in", "p"], &vec![], false);
        program.step(&["in", "q"], &vec![], false);
        let event = program.step(&["alloc", "p", "a"], &vec![], true);
        if refuses {
            Strict::open().fail_release();
        }
        let set = call!(
            all,
            Event.pfnSetCallback(event, complete, Some(notified), data)
        );
        assert_eq!(set == OK, !refuses);
        assert_eq!(count, u32::from(!refuses));
        program.events.insert("e".into(), event);
        program.step(&["use", "q", "a"], &vec![], false);
        // The commands that precede a host task are complete when it runs.
        if refuses {
            Strict::open().fail_release();
        }
        let p = program.queues["p"];
        let (none, list, no_event) = (null(), null(), null_mut());
        let run = call!(
            all,
            EnqueueExp.pfnHostTaskExp(p, Some(task), data, none, 0, list, no_event)
        );
        assert_eq!(run == OK, !refuses);
        program.step(&["finish", "q"], &vec![], false);
        program.run("free p a");
        assert_eq!(std::mem::take(&mut count), 2 * u32::from(!refuses));
    }
    app.end();
}

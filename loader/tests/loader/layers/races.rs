//! Validation of asynchronous allocations: planted races, and programs without any.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::null;

use ur::abi::*;

use crate::common::null as null_mut;
use crate::world::{Strict, World, call, strict};

const OK: ur_result_t = UR_RESULT_SUCCESS;
const LAYER: &str = "UR_LAYER_ASYNC_ALLOC_VALIDATION";

/// What is found in each program: a part of the line, or nothing.
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
            "race: urEnqueueUSMFill on queue 2 uses A, allocated by urEnqueueUSMDeviceAllocExp on queue 1; no event orders the use after the allocation (it asked for no event)",
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
            "race: urEnqueueUSMFreeExp on queue 1 frees A, used by kernel add on queue 2; no event orders the free after the use (it asked for no event)",
        ],
    ),
    (
        "a kernel after a free on another queue",
        "in p; in q; alloc p a -> e; wait q e; free p a; launch q a",
        &[
            "race: kernel add on queue 2 uses A, freed by urEnqueueUSMFreeExp on queue 1; no event orders them",
        ],
    ),
    (
        "a use after a free",
        "in p; alloc p a; free p a; copy p a",
        &[
            "use after free: urEnqueueUSMMemcpy on queue 1 uses A, freed by urEnqueueUSMFreeExp on queue 1 before",
        ],
    ),
    (
        "a second free",
        "in p; alloc p a; free p a; twice p a",
        &[
            "double free: urEnqueueUSMFreeExp on queue 1 frees A, freed by urEnqueueUSMFreeExp on queue 1 before",
        ],
    ),
    (
        "a second free elsewhere",
        "in p; in q; alloc p a; free p a; twice q a",
        &[
            "double free: urEnqueueUSMFreeExp on queue 2 frees A, freed by urEnqueueUSMFreeExp on queue 1 too; no event orders them",
        ],
    ),
    (
        "a free that does not wait for the allocation",
        "in p; in q; alloc p a -> e; free q a",
        &[
            "race: urEnqueueUSMFreeExp on queue 2 frees A, allocated by urEnqueueUSMDeviceAllocExp on queue 1; no event orders the free after the allocation",
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
            "race: urEnqueueUSMFreeExp on queue 2 frees A, used by urEnqueueUSMFill on queue 1; no event orders the free after the use",
        ],
    ),
    (
        "ordinary USM, freed at once and used",
        "in p; new a; delete a; use p a",
        &["use after free: urEnqueueUSMFill on queue 1 uses A, freed by urUSMFree before"],
    ),
    (
        "freed both ways",
        "in p; alloc p a; free p a; deletetwice a",
        &["double free: urUSMFree frees A, freed by urEnqueueUSMFreeExp on queue 1"],
    ),
    (
        "out of order",
        "out p; alloc p a -> e; use p a",
        &[
            "race: urEnqueueUSMFill on queue 1 uses A, allocated by urEnqueueUSMDeviceAllocExp on queue 1; no event orders the use after the allocation",
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
        &["race: urEnqueueUSMFill on queue 2 uses A, allocated by"],
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
            "race: urEnqueueCommandBufferExp on queue 2 uses A, allocated by",
            "race: urEnqueueUSMFreeExp on queue 1 frees A, used by urEnqueueCommandBufferExp on queue 2",
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
        &[
            "race: urEnqueueUSMFill on queue 2 uses A, allocated by urEnqueueUSMDeviceAllocExp on queue 1",
        ],
    ),
    (
        "memory of the host's own",
        "in p; in q; copyhost p; copyhost q",
        &[],
    ),
];

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
            // Queue 1 is the world's own; addresses differ from run to run.
            let line = lines.pop().unwrap_or("nothing").replace("0x", "");
            let line = (1..9).fold(line, |line, number| {
                line.replace(&format!("queue {}", number + 1), &format!("queue {number}"))
            });
            let address = line
                .split(' ')
                .find(|word| word.len() > 8 && u64::from_str_radix(word, 16).is_ok());
            let line = line.replace(&format!("{} (64 bytes)", address.unwrap_or("?")), "A");
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
        let world = World::init();
        Program::new(&world).run(program);
        eprintln!("<VALIDATION> end of program: {name}");
        world.end();
    }
}

struct Program<'a> {
    world: &'a World,
    queues: HashMap<String, ur_queue_handle_t>,
    events: HashMap<String, ur_event_handle_t>,
    blocks: HashMap<String, *mut c_void>,
    buffers: HashMap<String, ur_exp_command_buffer_handle_t>,
    kernel: ur_kernel_handle_t,
}

type Waits = Vec<ur_event_handle_t>;

impl Program<'_> {
    fn new(world: &World) -> Program<'_> {
        Program {
            world,
            queues: HashMap::new(),
            events: HashMap::new(),
            blocks: HashMap::new(),
            buffers: HashMap::new(),
            kernel: world.kernel(),
        }
    }

    fn run(mut self, program: &str) {
        for line in program.split(';').map(str::trim) {
            let (line, event) = line.split_once("->").map_or((line, None), |(line, event)| {
                (line, Some(event.trim().to_owned()))
            });
            let (line, waits) = line.split_once("after").unwrap_or((line, ""));
            let waits: Waits = waits
                .split_whitespace()
                .map(|event| self.events[event])
                .collect();
            let words: Vec<&str> = line.split_whitespace().collect();
            let made = self.step(&words, &waits, event.is_some());
            if let Some(name) = event {
                self.events.insert(name, made);
            }
        }
        self.end();
    }

    /// The event, if one was asked for.
    fn step(&mut self, words: &[&str], waits: &Waits, wants_event: bool) -> ur_event_handle_t {
        let world = self.world;
        let all = world.all;
        let mut event = null_mut();
        let to = if wants_event {
            &raw mut event
        } else {
            null_mut()
        };
        let result = match *words {
            ["in", name] => {
                self.queues
                    .insert(name.into(), world.queue(ur_queue_flags_t(0)));
                OK
            }
            ["out", name] => {
                let flags = UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE;
                self.queues.insert(name.into(), world.queue(flags));
                OK
            }
            ["new", name] => {
                self.blocks.insert(name.into(), world.usm(64));
                OK
            }
            ["delete", name] => call!(all, USM.pfnFree(world.context, self.blocks[name])),
            ["deletetwice", name] => {
                let again = call!(all, USM.pfnFree(world.context, self.blocks[name]));
                assert_eq!(again, UR_RESULT_ERROR_INVALID_MEM_OBJECT);
                OK
            }
            ["hostwait", name] => call!(all, Event.pfnWait(1, &self.events[name])),
            ["ask", name] => self.ask(name, true),
            ["asktooearly", name] => self.ask(name, false),
            ["finish", queue] => call!(all, Queue.pfnFinish(self.queues[queue])),
            ["record", buffer, block] => self.record(buffer, block),
            [word, queue, ref rest @ ..] => self.command(
                word,
                queue,
                rest.first().copied().unwrap_or_default(),
                waits,
                to,
            ),
            _ => panic!("{words:?}"),
        };
        assert_eq!(result, OK, "{words:?}");
        event
    }

    fn ask(&self, event: &str, complete: bool) -> ur_result_t {
        let mut status = UR_EVENT_STATUS_QUEUED;
        let value = (&raw mut status).cast();
        Strict::open().complete(complete);
        let what = UR_EVENT_INFO_COMMAND_EXECUTION_STATUS;
        let event = self.events[event];
        call!(
            self.world.all,
            Event.pfnGetInfo(event, what, 4, value, null_mut())
        )
    }

    fn record(&mut self, buffer: &str, block: &str) -> ur_result_t {
        let world = self.world;
        let desc = ur_exp_command_buffer_desc_t::default();
        let mut made = null_mut();
        let result = call!(
            world.all,
            CommandBufferExp.pfnCreateExp(world.context, world.device, &desc, &mut made)
        );
        assert_eq!(result, OK);
        self.buffers.insert(buffer.into(), made);
        let pattern = 0u8;
        let (block, pattern) = (self.blocks[block], (&raw const pattern).cast());
        call!(
            world.all,
            CommandBufferExp.pfnAppendUSMFillExp(
                made,
                block,
                pattern,
                1,
                64,
                0,
                null(),
                0,
                null(),
                null_mut(),
                null_mut(),
                null_mut()
            )
        )
    }

    fn command(
        &mut self,
        word: &str,
        queue: &str,
        name: &str,
        waits: &Waits,
        event: *mut ur_event_handle_t,
    ) -> ur_result_t {
        let all = self.world.all;
        let queue = self.queues[queue];
        let (count, list) = match waits.len() {
            0 => (0, null()),
            count => (count as u32, waits.as_ptr()),
        };
        let block = self.blocks.get(name).copied().unwrap_or_default();
        let mut host = [0u8; 64];
        let host: *mut c_void = host.as_mut_ptr().cast();
        match word {
            "alloc" => {
                let mut made = null_mut();
                let alloc = EnqueueAlloc {
                    queue,
                    count,
                    list,
                    event,
                };
                let result = alloc.call(&all, &mut made);
                self.blocks.insert(name.into(), made);
                result
            }
            "use" => {
                call!(
                    all,
                    Enqueue.pfnUSMFill(queue, block, 1, host, 64, count, list, event)
                )
            }
            "copy" => {
                call!(
                    all,
                    Enqueue.pfnUSMMemcpy(queue, 0, host, block, 64, count, list, event)
                )
            }
            "block" => {
                call!(
                    all,
                    Enqueue.pfnUSMMemcpy(queue, 1, host, block, 64, count, list, event)
                )
            }
            "copyhost" => {
                call!(
                    all,
                    Enqueue.pfnUSMMemcpy(queue, 0, host, host, 8, count, list, event)
                )
            }
            "free" => {
                call!(
                    all,
                    EnqueueExp.pfnUSMFreeExp(queue, null_mut(), block, count, list, event)
                )
            }
            "twice" => {
                let again = call!(
                    all,
                    EnqueueExp.pfnUSMFreeExp(queue, null_mut(), block, count, list, event)
                );
                assert_eq!(again, UR_RESULT_ERROR_INVALID_MEM_OBJECT);
                OK
            }
            "launch" => self.launch(queue, block, (count, list), event),
            "marker" => call!(all, Enqueue.pfnEventsWait(queue, count, list, event)),
            "wait" => call!(
                all,
                Enqueue.pfnEventsWait(queue, 1, &self.events[name], event)
            ),
            "barrier" => {
                call!(
                    all,
                    Enqueue.pfnEventsWaitWithBarrier(queue, count, list, event)
                )
            }
            "submit" => {
                let buffer = self.buffers[name];
                call!(
                    all,
                    EnqueueExp.pfnCommandBufferExp(queue, buffer, count, list, event)
                )
            }
            _ => panic!("{word}"),
        }
    }

    fn launch(
        &self,
        queue: ur_queue_handle_t,
        block: *mut c_void,
        (count, list): (u32, *const ur_event_handle_t),
        event: *mut ur_event_handle_t,
    ) -> ur_result_t {
        let argument = ur_exp_kernel_arg_properties_t {
            r#type: UR_EXP_KERNEL_ARG_TYPE_POINTER,
            size: 8,
            value: ur_exp_kernel_arg_value_t { pointer: block },
            ..ur_exp_kernel_arg_properties_t::default()
        };
        let size = 1usize;
        call!(
            self.world.all,
            EnqueueExp.pfnKernelLaunchWithArgsExp(
                queue,
                self.kernel,
                1,
                null(),
                &size,
                null(),
                1,
                &argument,
                null(),
                count,
                list,
                event
            )
        )
    }

    fn end(self) {
        let all = self.world.all;
        let mut results = vec![call!(all, Kernel.pfnRelease(self.kernel))];
        results.extend(
            self.events
                .values()
                .map(|event| call!(all, Event.pfnRelease(*event))),
        );
        results.extend(
            self.queues
                .values()
                .map(|queue| call!(all, Queue.pfnRelease(*queue))),
        );
        let buffers = self.buffers.values();
        results.extend(buffers.map(|buffer| call!(all, CommandBufferExp.pfnReleaseExp(*buffer))));
        assert!(results.iter().all(|result| *result == OK), "{results:?}");
        assert_eq!(Strict::open().live(), 2, "context and queue");
        Strict::open().forget_blocks();
    }
}

struct EnqueueAlloc {
    queue: ur_queue_handle_t,
    count: u32,
    list: *const ur_event_handle_t,
    event: *mut ur_event_handle_t,
}

impl EnqueueAlloc {
    fn call(&self, all: &ur_dditable_t, made: &mut *mut c_void) -> ur_result_t {
        let (pool, properties) = (null_mut(), null());
        call!(
            all,
            EnqueueExp.pfnUSMDeviceAllocExp(
                self.queue, pool, 64, properties, self.count, self.list, made, self.event
            )
        )
    }
}

#[test]
fn nothing_is_said_of_what_may_be_ordered_unseen() {
    let log = strict("layers::races::scenario_unseen", LAYER, &[]);
    assert!(!log.contains("<VALIDATION>"), "{log}");
}

/// Queues and events that reach, or come from, beyond the interface.
#[test]
#[ignore = "runs in a child process"]
fn scenario_unseen() {
    let world = World::init();
    let all = world.all;
    let mut native = 0;
    for opened in [0, 1] {
        let mut program = Program::new(&world);
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
    // An event that someone else may have waited for, and one that someone else signals.
    let mut program = Program::new(&world);
    program.step(&["in", "p"], &vec![], false);
    program.step(&["in", "q"], &vec![], false);
    let event = program.step(&["alloc", "p", "a"], &vec![], true);
    assert_eq!(call!(all, Event.pfnGetNativeHandle(event, &mut native)), OK);
    let mut foreign = null_mut();
    let made = call!(
        all,
        Event.pfnCreateWithNativeHandle(native, world.context, null(), &mut foreign)
    );
    assert_eq!(made, OK);
    program.events.insert("e".into(), event);
    program.events.insert("f".into(), foreign);
    program.run("use q a; free p a after f");
    world.end();
}

#[test]
fn callbacks_and_host_tasks_tell_what_is_complete() {
    let log = strict("layers::races::scenario_callbacks", LAYER, &[]);
    assert_eq!(log.matches("<VALIDATION>").count(), 1, "{log}");
    assert!(
        log.contains("race: urEnqueueUSMFill on queue 5 uses "),
        "{log}"
    );
}

unsafe extern "C" fn notified(_: ur_event_handle_t, _: ur_execution_info_t, count: *mut c_void) {
    // SAFETY: the scenario gives a number that outlives the call.
    unsafe { *count.cast::<u32>() += 1 };
}

unsafe extern "C" fn task(count: *mut c_void) {
    // SAFETY: as above.
    unsafe { *count.cast::<u32>() += 1 };
}

/// strict.c calls both at once, as an adapter may; the second time it refuses.
#[test]
#[ignore = "runs in a child process"]
fn scenario_callbacks() {
    let world = World::init();
    let all = world.all;
    let mut count = 0u32;
    let data: *mut c_void = (&raw mut count).cast();
    let complete = UR_EXECUTION_INFO_COMPLETE;
    for refuses in [false, true] {
        let mut program = Program::new(&world);
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
        // What a host task comes after is complete when it runs.
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
    world.end();
}

//! Kernel launches with real data.

use crate::fixture::Fixture;
use crate::kernels::{ADD, IOTA, MIXED, SUM, Triple};
use crate::objects::{Arg, Context, Gate, Kernel, Kind, Program, Queue};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::status::Status;
use crate::{check, check_all, check_eq};
use std::ptr::{null, null_mut};
use std::time::Duration;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["launch";
        writes_memory, all_kinds_of_memory, buffer_arguments, sub_buffer_arguments, value_arguments, value_arguments_are_copied,
        chain_in_order, diamond_out_of_order, waits_for_its_list, launches_from_many_threads,
        same_kernel_different_arguments,
    ]
}

/// A context, an in-order queue and the test program.
pub struct Setup {
    pub context: Context,
    pub queue: Queue,
    pub program: Program,
}

impl Setup {
    pub fn new(fixture: &Fixture) -> Result<Self, Stop> {
        let context = Context::new(fixture)?;
        let queue = context.in_order(fixture)?;
        let program = Program::new(fixture, &context)?;
        Ok(Self {
            context,
            queue,
            program,
        })
    }
}

/// A launch with all parameters. The caller checks the status.
pub fn launch(
    queue: &Queue,
    kernel: &Kernel,
    dimensions: u32,
    [offset, global, local]: [Option<[usize; 3]>; 3],
    args: &[ur_exp_kernel_arg_properties_t],
) -> Status {
    let pointer =
        |sizes: &Option<[usize; 3]>| sizes.as_ref().map_or(null(), |sizes| sizes.as_ptr());
    queue.ur.urEnqueueKernelLaunchWithArgsExp(
        queue.raw,
        kernel.raw,
        dimensions,
        pointer(&offset),
        pointer(&global),
        pointer(&local),
        args.len() as u32,
        args.as_ptr(),
        null(),
        0,
        null(),
        null_mut(),
    )
}

pub fn counts_up(data: &[u32], base: u32) -> bool {
    data.iter()
        .copied()
        .eq((0..data.len() as u32).map(|at| base.wrapping_add(at)))
}

/// Each work-item of a launch of 1 to 65,536 items writes its own word.
fn writes_memory(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    for items in [1, 2, 63, 1000, 65_536] {
        let memory = context.usm(fixture, Kind::Device, items * 4)?;
        queue.launch(
            &kernel,
            items,
            &[Arg::Pointer(memory.ptr), Arg::of(&42_u32)],
            &[],
        )?;
        check!(
            counts_up(&queue.read(memory.ptr, items, &[])?, 42),
            "{items} work-items did not count up from 42"
        );
    }
    Ok(())
}

/// A kernel writes each kind of USM, and the host sees it where it can.
fn all_kinds_of_memory(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    for kind in Kind::ALL {
        let memory = context.usm(fixture, kind, 4000)?;
        queue
            .launch(
                &kernel,
                1000,
                &[Arg::Pointer(memory.ptr), Arg::of(&7_u32)],
                &[],
            )?
            .wait()?;
        check!(
            counts_up(&queue.read(memory.ptr, 1000, &[])?, 7),
            "words in {kind} memory do not count up from 7"
        );
        if kind.host_accessible() {
            check!(
                counts_up(memory.host(), 7),
                "words in {kind} memory do not count up from 7 for the host"
            );
        }
    }
    Ok(())
}

/// Two kernels in a row work on one buffer argument.
fn buffer_arguments(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let (iota, add) = (program.kernel(IOTA)?, program.kernel(ADD)?);
    let buffer = context.buffer(4000)?;
    queue.launch(&iota, 1000, &[Arg::Buffer(&buffer), Arg::of(&5_u32)], &[])?;
    queue.launch(&add, 1000, &[Arg::Buffer(&buffer), Arg::of(&10_u32)], &[])?;
    check!(
        counts_up(&buffer.read(&queue, 0, 1000)?, 15),
        "words of a buffer do not count up from 15"
    );
    Ok(())
}

/// A kernel with a sub-buffer argument writes only that part of the buffer.
fn sub_buffer_arguments(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    let align: u32 = fixture.device_info(UR_DEVICE_INFO_MEM_BASE_ADDR_ALIGN)?;
    let step = (align as usize / 8).max(256);
    let buffer = context.buffer(step * 2)?;
    buffer.write(&queue, 0, &vec![0_u8; step * 2])?;
    let part = buffer.part(step, step)?;
    queue.launch(
        &kernel,
        step / 4,
        &[Arg::Buffer(&part), Arg::of(&9_u32)],
        &[],
    )?;
    check!(
        counts_up(&buffer.read(&queue, step, step / 4)?, 9),
        "words of the sub-buffer do not count up from 9"
    );
    check_all!(
        buffer.read::<u32>(&queue, 0, step / 4)?,
        0,
        "the words beside the sub-buffer"
    );
    Ok(())
}

/// Value arguments of all sizes, a structure included, reach the kernel.
fn value_arguments(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(MIXED)?;
    let memory = context.usm(fixture, Kind::Device, 8)?;
    let triple = Triple {
        a: 1,
        b: 1 << 40,
        c: 300,
    };
    let args = [
        Arg::Pointer(memory.ptr),
        Arg::of(&200_u8),
        Arg::of(&60_000_u16),
        Arg::of(&4_000_000_000_u32),
        Arg::of(&(1_u64 << 50)),
        Arg::of(&triple),
    ];
    queue.launch(&kernel, 1, &args, &[])?;
    let want = 200 + 60_000 + 4_000_000_000 + (1 << 50) + 1 + (1 << 40) + 300;
    check_eq!(
        queue.read::<u64>(memory.ptr, 1, &[])?,
        [want],
        "sum of the values"
    );
    Ok(())
}

/// A value argument may change once the launch call has returned.
fn value_arguments_are_copied(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    let memory = context.usm(fixture, Kind::Device, 400)?;
    let gate = Gate::close(fixture, &queue)?;
    let mut base = Box::new(77_u32);
    queue.launch(
        &kernel,
        100,
        &[Arg::Pointer(memory.ptr), Arg::of(&*base)],
        &[],
    )?;
    *base = 0;
    drop(base);
    gate.open();
    check!(
        counts_up(&queue.read(memory.ptr, 100, &[])?, 77),
        "words do not count up from the value at the call, 77"
    );
    Ok(())
}

/// Two hundred launches of an in-order queue run one after another.
fn chain_in_order(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let add = program.kernel(ADD)?;
    let memory = context.usm(fixture, Kind::Device, 4000)?;
    queue.fill(memory.ptr, 0_u32, 4000, &[])?;
    for _ in 0..200 {
        queue.launch(
            &add,
            1000,
            &[Arg::Pointer(memory.ptr), Arg::of(&1_u32)],
            &[],
        )?;
    }
    check_all!(
        queue.read::<u32>(memory.ptr, 1000, &[])?,
        200,
        "words after 200 launches in order"
    );
    Ok(())
}

/// Events order a diamond of launches and copies on an out-of-order queue.
fn diamond_out_of_order(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.out_of_order(fixture)?;
    let program = Program::new(fixture, &context)?;
    let (iota, add, sum) = (
        program.kernel(IOTA)?,
        program.kernel(ADD)?,
        program.kernel(SUM)?,
    );
    let items = 10_000;
    let [a, b, out] = [(); 3].map(|()| context.usm(fixture, Kind::Device, items * 4));
    let (a, b, out) = (a?, b?, out?);
    for round in 0..20_u32 {
        let top = queue.launch(&iota, items, &[Arg::Pointer(a.ptr), Arg::of(&round)], &[])?;
        let left = queue.launch(
            &add,
            items,
            &[Arg::Pointer(a.ptr), Arg::of(&1_u32)],
            &[&top],
        )?;
        let right = queue.copy(b.ptr, a.ptr, items * 4, &[&left])?;
        let bottom = [
            Arg::Pointer(out.ptr),
            Arg::Pointer(a.ptr),
            Arg::Pointer(b.ptr),
        ];
        let last = queue.launch(&sum, items, &bottom, &[&left, &right])?;
        let data = queue.read::<u32>(out.ptr, items, &[&last])?;
        let right = data
            .iter()
            .enumerate()
            .all(|(at, word)| *word == 2 * (round + 1 + at as u32));
        check!(right, "wrong words in round {round} of a diamond");
    }
    Ok(())
}

/// A launch waits for its wait list.
fn waits_for_its_list(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let other = context.in_order(fixture)?;
    let kernel = program.kernel(ADD)?;
    let memory = context.usm(fixture, Kind::Device, 400)?;
    let gate = Gate::close(fixture, &other)?;
    let filled = other.fill(memory.ptr, 1_u32, 400, &[])?;
    let event = queue.launch(
        &kernel,
        100,
        &[Arg::Pointer(memory.ptr), Arg::of(&1_u32)],
        &[&filled],
    )?;
    check!(
        !event.completes_within(Duration::from_millis(30))?,
        "a kernel did not wait for its list"
    );
    gate.open();
    check_all!(
        queue.read::<u32>(memory.ptr, 100, &[])?,
        2,
        "words of a launch after a fill of another queue"
    );
    Ok(())
}

/// Threads may launch one kernel at the same time, each with its own arguments.
fn launches_from_many_threads(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    let blocks = (0..8)
        .map(|_| context.usm(fixture, Kind::Device, 4000))
        .collect::<Result<Vec<_>, Stop>>()?;
    let results: Vec<Done> = std::thread::scope(|scope| {
        let work = |(index, block): (usize, &crate::objects::Usm)| -> Done {
            for round in 0..50 {
                let base = (index * 1000 + round) as u32;
                queue.launch(
                    &kernel,
                    1000,
                    &[Arg::Pointer(block.ptr), Arg::of(&base)],
                    &[],
                )?;
                check!(
                    counts_up(&queue.read(block.ptr, 1000, &[])?, base),
                    "words of thread {index} are wrong in round {round}"
                );
            }
            Ok(())
        };
        let threads: Vec<_> = blocks
            .iter()
            .enumerate()
            .map(|job| scope.spawn(move || work(job)))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(Stop::failed("a thread panicked")))
            })
            .collect()
    });
    results.into_iter().collect()
}

/// Pending launches of one kernel keep their own arguments.
fn same_kernel_different_arguments(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    let blocks = (0..20)
        .map(|_| context.usm(fixture, Kind::Device, 400))
        .collect::<Result<Vec<_>, Stop>>()?;
    let gate = Gate::close(fixture, &queue)?;
    for (base, block) in blocks.iter().enumerate() {
        queue.launch(
            &kernel,
            100,
            &[Arg::Pointer(block.ptr), Arg::of(&(base as u32))],
            &[],
        )?;
    }
    gate.open();
    for (base, block) in blocks.iter().enumerate() {
        check!(
            counts_up(&queue.read(block.ptr, 100, &[])?, base as u32),
            "words of launch {base} do not count up from {base}"
        );
    }
    Ok(())
}

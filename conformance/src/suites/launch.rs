//! Kernel launches with real data.

use crate::fixture::Fixture;
use crate::kernels::{ADD, IDS, IOTA, Ids, MIXED, SUM, THROUGH_LOCAL, Triple, VERIFY};
use crate::objects::{Arg, Context, Gate, Kernel, Kind, Program, Queue};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::status::Status;
use crate::{check, check_eq};
use std::ptr::{null, null_mut};
use std::time::Duration;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["launch";
        writes_memory, all_kinds_of_memory, buffers, parts_of_buffers, values, value_is_copied, three_dimensions,
        offsets, chosen_local_size, local_memory, large_range, chain_in_order, diamond_out_of_order, waits_for_its_list,
        launches_from_many_threads, arguments_in_any_order, bad_dimension, bad_global_size, bad_local_size, bad_arguments,
        launch_properties, event_type, same_kernel_different_arguments,
    ]
}

/// A context, an in-order queue and a program: what nearly every test here starts from.
struct Bench {
    context: Context,
    queue: Queue,
    program: Program,
}

impl Bench {
    fn new(fixture: &Fixture) -> Result<Self, Stop> {
        let context = Context::new(fixture)?;
        let queue = context.in_order(fixture)?;
        let program = Program::new(fixture, &context)?;
        Ok(Self { context, queue, program })
    }
}

/// A launch in its full form, the answer left to the caller.
fn launch(
    queue: &Queue,
    kernel: &Kernel,
    dimensions: u32,
    [offset, global, local]: [Option<[usize; 3]>; 3],
    args: &[ur_exp_kernel_arg_properties_t],
) -> Status {
    let pointer = |sizes: &Option<[usize; 3]>| sizes.as_ref().map_or(null(), |sizes| sizes.as_ptr());
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

fn counts_up(data: &[u32], base: u32) -> bool {
    data.iter().copied().eq((0..data.len() as u32).map(|at| base.wrapping_add(at)))
}

fn writes_memory(fixture: &Fixture) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    for items in [1, 2, 63, 1000, 65_536] {
        let memory = context.usm(fixture, Kind::Device, items * 4)?;
        queue.launch(&kernel, items, &[Arg::Pointer(memory.ptr), Arg::of(&42_u32)], &[])?;
        check!(counts_up(&queue.read(memory.ptr, items, &[])?, 42), "{items} work-items");
    }
    Ok(())
}

fn all_kinds_of_memory(fixture: &Fixture) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    for kind in Kind::ALL {
        let memory = context.usm(fixture, kind, 4000)?;
        queue.launch(&kernel, 1000, &[Arg::Pointer(memory.ptr), Arg::of(&7_u32)], &[])?.wait()?;
        check!(counts_up(&queue.read(memory.ptr, 1000, &[])?, 7), "{kind} memory");
        if kind.host_accessible() {
            check!(counts_up(memory.host(), 7), "{kind} memory as the host sees it");
        }
    }
    Ok(())
}

fn buffers(fixture: &Fixture) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let (iota, add) = (program.kernel(IOTA)?, program.kernel(ADD)?);
    let buffer = context.buffer(4000)?;
    queue.launch(&iota, 1000, &[Arg::Buffer(&buffer), Arg::of(&5_u32)], &[])?;
    queue.launch(&add, 1000, &[Arg::Buffer(&buffer), Arg::of(&10_u32)], &[])?;
    check!(counts_up(&buffer.read(&queue, 0, 1000)?, 15), "a buffer written by kernels");
    Ok(())
}

fn parts_of_buffers(fixture: &Fixture) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    let align: u32 = fixture.device_info(UR_DEVICE_INFO_MEM_BASE_ADDR_ALIGN)?;
    let step = (align as usize / 8).max(256);
    let buffer = context.buffer(step * 2)?;
    buffer.write(&queue, 0, &vec![0_u8; step * 2])?;
    let part = buffer.part(step, step)?;
    queue.launch(&kernel, step / 4, &[Arg::Buffer(&part), Arg::of(&9_u32)], &[])?;
    check!(counts_up(&buffer.read(&queue, step, step / 4)?, 9), "the part");
    check!(buffer.read::<u32>(&queue, 0, step / 4)?.iter().all(|word| *word == 0), "the rest of the buffer");
    Ok(())
}

fn values(fixture: &Fixture) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let kernel = program.kernel(MIXED)?;
    let memory = context.usm(fixture, Kind::Device, 8)?;
    let triple = Triple { a: 1, b: 1 << 40, c: 300 };
    let args = [Arg::Pointer(memory.ptr), Arg::of(&200_u8), Arg::of(&60_000_u16), Arg::of(&4_000_000_000_u32), Arg::of(&(1_u64 << 50)), Arg::of(&triple)];
    queue.launch(&kernel, 1, &args, &[])?;
    let want = 200 + 60_000 + 4_000_000_000 + (1 << 50) + 1 + (1 << 40) + 300;
    check_eq!(queue.read::<u64>(memory.ptr, 1, &[])?, [want], "sum of the values");
    Ok(())
}

/// Values belong to the caller again when the call returns.
fn value_is_copied(fixture: &Fixture) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    let memory = context.usm(fixture, Kind::Device, 400)?;
    let gate = Gate::close(fixture, &queue)?;
    let mut base = Box::new(77_u32);
    queue.launch(&kernel, 100, &[Arg::Pointer(memory.ptr), Arg::of(&*base)], &[])?;
    *base = 0;
    drop(base);
    gate.open();
    check!(counts_up(&queue.read(memory.ptr, 100, &[])?, 77), "a value changed after the launch was enqueued");
    Ok(())
}

/// Launches `IDS` and checks what every work-item saw.
fn check_ids(fixture: &Fixture, dimensions: u32, offset: [usize; 3], global: [usize; 3], local: Option<[usize; 3]>) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let kernel = program.kernel(IDS)?;
    let items: usize = global.iter().product();
    let memory = context.usm(fixture, Kind::Device, items * size_of::<Ids>())?;
    let args = Arg::properties(&[Arg::Pointer(memory.ptr)]);
    launch(&queue, &kernel, dimensions, [Some(offset), Some(global), local], &args).ok()?;
    let seen = queue.read::<Ids>(memory.ptr, items, &[])?;
    for (at, ids) in seen.iter().enumerate() {
        let position = [at % global[0], at / global[0] % global[1], at / global[0] / global[1]];
        for d in 0..3 {
            let number = |value: u32| value as usize;
            check_eq!(number(ids.global[d]), position[d] + offset[d], "global id, dimension {d}, item {at}");
            check_eq!(number(ids.range[d]), global[d], "global range, dimension {d}, item {at}");
            check_eq!(number(ids.offset[d]), offset[d], "offset, dimension {d}, item {at}");
            let size = number(ids.size[d]);
            check!(size > 0 && global[d].is_multiple_of(size), "work-groups of {size} in {}, dimension {d}", global[d]);
            if let Some(local) = local {
                check_eq!(size, local[d], "work-group size, dimension {d}, item {at}");
            }
            check_eq!(number(ids.groups[d]), global[d] / size, "number of work-groups, dimension {d}, item {at}");
            check_eq!(number(ids.group[d]), position[d] / size, "work-group, dimension {d}, item {at}");
            check_eq!(number(ids.local[d]), position[d] % size, "local id, dimension {d}, item {at}");
        }
    }
    Ok(())
}

fn three_dimensions(fixture: &Fixture) -> Done {
    check_ids(fixture, 1, [0; 3], [100, 1, 1], None)?;
    check_ids(fixture, 2, [0; 3], [12, 10, 1], None)?;
    check_ids(fixture, 3, [0; 3], [6, 5, 4], None)
}

fn offsets(fixture: &Fixture) -> Done {
    check_ids(fixture, 1, [1000, 0, 0], [64, 1, 1], None)?;
    check_ids(fixture, 3, [3, 20, 100], [4, 6, 8], Some([2, 3, 4]))
}

fn chosen_local_size(fixture: &Fixture) -> Done {
    check_ids(fixture, 1, [0; 3], [96, 1, 1], Some([8, 1, 1]))?;
    check_ids(fixture, 2, [0; 3], [12, 8, 1], Some([3, 4, 1]))?;
    check_ids(fixture, 3, [0; 3], [4, 4, 4], Some([4, 2, 1]))
}

fn local_memory(fixture: &Fixture) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let kernel = program.kernel(THROUGH_LOCAL)?;
    let memory = context.usm(fixture, Kind::Device, 1024 * 4)?;
    let args = Arg::properties(&[Arg::Pointer(memory.ptr), Arg::Local(32 * 4)]);
    launch(&queue, &kernel, 1, [None, Some([1024, 1, 1]), Some([32, 1, 1])], &args).ok()?;
    let data = queue.read::<u32>(memory.ptr, 1024, &[])?;
    check!(data.iter().enumerate().all(|(at, word)| *word as usize == at % 32), "what went through local memory");
    Ok(())
}

fn large_range(fixture: &Fixture) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let (iota, verify) = (program.kernel(IOTA)?, program.kernel(VERIFY)?);
    let items = 1 << 20;
    let memory = context.usm(fixture, Kind::Device, items * 4)?;
    let wrong = context.usm(fixture, Kind::Host, 4)?;
    queue.fill(wrong.ptr, 0_u32, 4, &[])?;
    queue.launch(&iota, items, &[Arg::Pointer(memory.ptr), Arg::of(&1_u32)], &[])?;
    queue.launch(&verify, items, &[Arg::Pointer(memory.ptr), Arg::of(&1_u32), Arg::Pointer(wrong.ptr)], &[])?;
    queue.finish()?;
    check_eq!(wrong.host::<u32>()[0], 0, "work-items that went wrong, of {items}");
    Ok(())
}

fn chain_in_order(fixture: &Fixture) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let add = program.kernel(ADD)?;
    let memory = context.usm(fixture, Kind::Device, 4000)?;
    queue.fill(memory.ptr, 0_u32, 4000, &[])?;
    for _ in 0..200 {
        queue.launch(&add, 1000, &[Arg::Pointer(memory.ptr), Arg::of(&1_u32)], &[])?;
    }
    check!(queue.read::<u32>(memory.ptr, 1000, &[])?.iter().all(|word| *word == 200), "200 kernels in order");
    Ok(())
}

fn diamond_out_of_order(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.out_of_order(fixture)?;
    let program = Program::new(fixture, &context)?;
    let (iota, add, sum) = (program.kernel(IOTA)?, program.kernel(ADD)?, program.kernel(SUM)?);
    let items = 10_000;
    let [a, b, out] = [(); 3].map(|()| context.usm(fixture, Kind::Device, items * 4));
    let (a, b, out) = (a?, b?, out?);
    for round in 0..20_u32 {
        let top = queue.launch(&iota, items, &[Arg::Pointer(a.ptr), Arg::of(&round)], &[])?;
        let left = queue.launch(&add, items, &[Arg::Pointer(a.ptr), Arg::of(&1_u32)], &[&top])?;
        let right = queue.copy(b.ptr, a.ptr, items * 4, &[&left])?;
        let bottom = [Arg::Pointer(out.ptr), Arg::Pointer(a.ptr), Arg::Pointer(b.ptr)];
        let last = queue.launch(&sum, items, &bottom, &[&left, &right])?;
        let data = queue.read::<u32>(out.ptr, items, &[&last])?;
        let right = data.iter().enumerate().all(|(at, word)| *word == 2 * (round + 1 + at as u32));
        check!(right, "round {round} of a diamond");
    }
    Ok(())
}

fn waits_for_its_list(fixture: &Fixture) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let other = context.in_order(fixture)?;
    let kernel = program.kernel(ADD)?;
    let memory = context.usm(fixture, Kind::Device, 400)?;
    let gate = Gate::close(fixture, &other)?;
    let filled = other.fill(memory.ptr, 1_u32, 400, &[])?;
    let event = queue.launch(&kernel, 100, &[Arg::Pointer(memory.ptr), Arg::of(&1_u32)], &[&filled])?;
    check!(!event.completes_within(Duration::from_millis(30))?, "a kernel did not wait for its list");
    gate.open();
    check!(queue.read::<u32>(memory.ptr, 100, &[])?.iter().all(|word| *word == 2), "a kernel after a fill of another queue");
    Ok(())
}

fn launches_from_many_threads(fixture: &Fixture) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    let blocks = (0..8).map(|_| context.usm(fixture, Kind::Device, 4000)).collect::<Result<Vec<_>, Stop>>()?;
    let ends: Vec<Done> = std::thread::scope(|scope| {
        let work = |(index, block): (usize, &crate::objects::Usm)| -> Done {
            for round in 0..50 {
                let base = (index * 1000 + round) as u32;
                queue.launch(&kernel, 1000, &[Arg::Pointer(block.ptr), Arg::of(&base)], &[])?;
                check!(counts_up(&queue.read(block.ptr, 1000, &[])?, base), "thread {index}, round {round}");
            }
            Ok(())
        };
        let threads: Vec<_> = blocks.iter().enumerate().map(|job| scope.spawn(move || work(job))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(Stop::failed("a thread panicked")))).collect()
    });
    ends.into_iter().collect()
}

fn arguments_in_any_order(fixture: &Fixture) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    let memory = context.usm(fixture, Kind::Device, 400)?;
    let base = 3_u32;
    let mut args = Arg::properties(&[Arg::Pointer(memory.ptr), Arg::of(&base)]);
    args.reverse();
    launch(&queue, &kernel, 1, [None, Some([100, 1, 1]), None], &args).ok()?;
    check!(counts_up(&queue.read(memory.ptr, 100, &[])?, 3), "arguments given last first");
    Ok(())
}

fn bad_dimension(fixture: &Fixture) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let kernel = program.kernel(IDS)?;
    let memory = context.usm(fixture, Kind::Device, 4096)?;
    let args = Arg::properties(&[Arg::Pointer(memory.ptr)]);
    for dimensions in [0, 4, u32::MAX] {
        let status = launch(&queue, &kernel, dimensions, [None, Some([1; 3]), None], &args);
        status.fails(UR_RESULT_ERROR_INVALID_WORK_DIMENSION)?;
    }
    Ok(())
}

fn bad_global_size(fixture: &Fixture) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let kernel = program.kernel(IDS)?;
    let memory = context.usm(fixture, Kind::Device, 4096)?;
    let args = Arg::properties(&[Arg::Pointer(memory.ptr)]);
    for (dimensions, global) in [(1, [0, 1, 1]), (2, [1, 0, 1]), (3, [1, 1, 0])] {
        let status = launch(&queue, &kernel, dimensions, [None, Some(global), None], &args);
        status.fails(UR_RESULT_ERROR_INVALID_WORK_DIMENSION)?;
    }
    queue.finish()
}

fn bad_local_size(fixture: &Fixture) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let kernel = program.kernel(IDS)?;
    let memory = context.usm(fixture, Kind::Device, 64 << 10)?;
    let args = Arg::properties(&[Arg::Pointer(memory.ptr)]);
    let largest: usize = fixture.device_info(UR_DEVICE_INFO_MAX_WORK_GROUP_SIZE)?;
    for local in [[0, 1, 1], [3, 1, 1], [largest * 2, 1, 1]] {
        let global = [largest * 2, 1, 1];
        if global[0].is_multiple_of(3) && local[0] == 3 {
            continue;
        }
        let status = launch(&queue, &kernel, 1, [None, Some(global), Some(local)], &args);
        status.fails_with(&[UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE, UR_RESULT_ERROR_INVALID_WORK_ITEM_SIZE])?;
    }
    queue.finish()
}

fn bad_arguments(fixture: &Fixture) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let kernel = program.kernel(IDS)?;
    let memory = context.usm(fixture, Kind::Device, 4096)?;
    let ur = fixture.ur;
    let global = 1;
    let call = |count, args| {
        let (q, k) = (queue.raw, kernel.raw);
        ur.urEnqueueKernelLaunchWithArgsExp(q, k, 1, null(), &global, null(), count, args, null(), 0, null(), null_mut())
    };
    call(1, null()).fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    let mut args = Arg::properties(&[Arg::Pointer(memory.ptr)]);
    args[0].r#type = ur_exp_kernel_arg_type_t(77);
    call(1, args.as_ptr()).fails(UR_RESULT_ERROR_INVALID_ENUMERATION)
}

fn launch_properties(fixture: &Fixture) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let able: ur_kernel_launch_properties_flags_t = fixture.device_info(UR_DEVICE_INFO_KERNEL_LAUNCH_CAPABILITIES)?;
    let base = 1_u32;
    let args = Arg::properties(&[Arg::Pointer(memory.ptr), Arg::of(&base)]);
    let global = 16;
    let call = |flags| {
        let properties = ur_kernel_launch_ext_properties_t { flags, ..Default::default() };
        let (q, k) = (queue.raw, kernel.raw);
        let ur = fixture.ur;
        ur.urEnqueueKernelLaunchWithArgsExp(q, k, 1, null(), &global, null(), 2, args.as_ptr(), &properties, 0, null(), null_mut())
    };
    call(ur_kernel_launch_flags_t(0)).ok()?;
    call(ur_kernel_launch_flags_t(UR_KERNEL_LAUNCH_FLAGS_MASK)).fails(UR_RESULT_ERROR_INVALID_ENUMERATION)?;
    for (flag, capability) in [
        (UR_KERNEL_LAUNCH_FLAG_COOPERATIVE, UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE),
        (
            UR_KERNEL_LAUNCH_FLAG_OPPORTUNISTIC_QUEUE_SERIALIZE,
            UR_KERNEL_LAUNCH_PROPERTIES_FLAG_OPPORTUNISTIC_QUEUE_SERIALIZE,
        ),
    ] {
        let status = call(flag);
        match able.contains(capability) {
            true => status.ok()?,
            false => status.fails_with(&[UR_RESULT_ERROR_INVALID_OPERATION, UR_RESULT_ERROR_UNSUPPORTED_FEATURE])?,
        }
    }
    queue.finish()
}

fn event_type(fixture: &Fixture) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let event = queue.launch(&kernel, 16, &[Arg::Pointer(memory.ptr), Arg::of(&1_u32)], &[])?;
    check_eq!(event.get::<ur_command_t>(UR_EVENT_INFO_COMMAND_TYPE)?, UR_COMMAND_KERNEL_LAUNCH, "command type");
    event.wait()
}

/// Arguments belong to a launch, not to the kernel.
fn same_kernel_different_arguments(fixture: &Fixture) -> Done {
    let Bench { context, queue, program } = Bench::new(fixture)?;
    let kernel = program.kernel(IOTA)?;
    let blocks = (0..20).map(|_| context.usm(fixture, Kind::Device, 400)).collect::<Result<Vec<_>, Stop>>()?;
    let gate = Gate::close(fixture, &queue)?;
    for (base, block) in blocks.iter().enumerate() {
        queue.launch(&kernel, 100, &[Arg::Pointer(block.ptr), Arg::of(&(base as u32))], &[])?;
    }
    gate.open();
    for (base, block) in blocks.iter().enumerate() {
        check!(counts_up(&queue.read(block.ptr, 100, &[])?, base as u32), "launch {base} of one kernel");
    }
    Ok(())
}

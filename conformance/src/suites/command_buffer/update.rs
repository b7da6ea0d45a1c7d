//! Updates of finalized command buffers: launches, wait lists and signalled events.

use crate::fixture::Fixture;
use crate::kernels::{self, ADD, IDS, IOTA, Ids, KernelProvider, SUM};
use crate::objects::{
    Arg, CommandBuffer, Context, Gate, Kernel, Kind, Program, Queue, Shape, Update, Usm, With,
};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_all, check_eq, check_items};
use std::ptr::{null, null_mut};
use std::time::Duration;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["command_buffer_update";
        values, pointers, buffers, global_size, offset_and_local_size, dimensions, kernels, kernel_of_one_of_several, several_commands,
        all_or_nothing, while_running, released_arguments, signal_event, wait_events,
        refused_launches, refused_states, refused_commands, refused_ranges, refused_kernels, refused_events,
    ]
}

const UPDATABLE: Shape = Shape {
    updatable: true,
    in_order: false,
    profiled: false,
};

struct Setup {
    context: Context,
    queue: Queue,
    program: Program,
    buffer: CommandBuffer,
}

impl Setup {
    /// Stops the test unless the device can update all of this.
    fn new(
        fixture: &Fixture,
        what: ur_device_command_buffer_update_capability_flags_t,
    ) -> Result<Self, Stop> {
        let context = Context::new(fixture)?;
        CommandBuffer::need(fixture, &context)?;
        let able: ur_device_command_buffer_update_capability_flags_t =
            fixture.device_info(UR_DEVICE_INFO_COMMAND_BUFFER_UPDATE_CAPABILITIES_EXP)?;
        if !able.contains(what) {
            return Err(Stop::Unsupported {
                what: format!("{able:?} lacks {what:?}"),
                documented: true,
            });
        }
        Ok(Self {
            queue: context.in_order(fixture)?,
            program: Program::new(fixture, &context)?,
            buffer: CommandBuffer::new(fixture, &context, UPDATABLE)?,
            context,
        })
    }

    /// Records one launch of `iota` and finalizes the buffer.
    fn iota(
        &self,
        memory: &Usm,
        items: usize,
        base: u32,
    ) -> Result<ur_exp_command_buffer_command_handle_t, Stop> {
        let kernel = self.program.kernel(IOTA)?;
        let args = [Arg::Pointer(memory.ptr), Arg::of(&base)];
        let made = self.buffer.launch(&kernel, items, &args, With::handle())?;
        self.buffer.finalize()?;
        Ok(made.command)
    }

    fn run(&self) -> Done {
        self.buffer.enqueue_only(&self.queue)
    }

    fn counts_from(&self, memory: &Usm, items: usize, base: u32) -> Result<bool, Stop> {
        let data: Vec<u32> = self.queue.read(memory.ptr, items, &[])?;
        Ok(data.into_iter().eq(base..base + items as u32))
    }
}

const ARGUMENTS: ur_device_command_buffer_update_capability_flags_t =
    UR_DEVICE_COMMAND_BUFFER_UPDATE_CAPABILITY_FLAG_KERNEL_ARGUMENTS;
const GLOBAL: ur_device_command_buffer_update_capability_flags_t =
    UR_DEVICE_COMMAND_BUFFER_UPDATE_CAPABILITY_FLAG_GLOBAL_WORK_SIZE;
const KERNEL: ur_device_command_buffer_update_capability_flags_t =
    UR_DEVICE_COMMAND_BUFFER_UPDATE_CAPABILITY_FLAG_KERNEL_HANDLE;
const EVENTS: ur_device_command_buffer_update_capability_flags_t =
    UR_DEVICE_COMMAND_BUFFER_UPDATE_CAPABILITY_FLAG_EVENTS;

/// A launch is checked when recorded and when updated, and a refused update changes nothing.
fn refused_launches(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture, ARGUMENTS)?;
    let memory = setup.context.usm(fixture, Kind::Device, 4000)?;
    let kernel = setup.program.kernel(IOTA)?;
    kernel.need_arguments()?;
    let base = 1_u32;
    let args = Arg::properties(&[Arg::Pointer(memory.ptr), Arg::of(&base)]);
    let record = |args: &[ur_exp_kernel_arg_properties_t], items: usize, local: Option<usize>| {
        let local = local.as_ref().map_or(null(), std::ptr::from_ref);
        fixture.ur.urCommandBufferAppendKernelLaunchWithArgsExp(
            setup.buffer.raw,
            kernel.raw,
            1,
            null(),
            &items,
            local,
            args.len() as u32,
            args.as_ptr(),
            0,
            null_mut(),
            0,
            null(),
            0,
            null(),
            null_mut(),
            null_mut(),
            null_mut(),
        )
    };
    record(&args[..1], 1000, None).fails(UR_RESULT_ERROR_INVALID_KERNEL_ARGS)?;
    let large = 1_usize << 28;
    record(&args, large, Some(large)).fails_with(&[
        UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE,
        UR_RESULT_ERROR_INVALID_WORK_ITEM_SIZE,
    ])?;
    let command = setup.iota(&memory, 1000, base)?;
    if kernels::provider(fixture.backend).is_some_and(KernelProvider::tells_argument_sizes) {
        Update::default()
            .bytes(1, &7_u64.to_ne_bytes())
            .apply(&setup.buffer, command)
            .refused()?;
    }
    Update::default()
        .value(9, 7)
        .apply(&setup.buffer, command)
        .refused()?;
    setup.run()?;
    check!(
        setup.counts_from(&memory, 1000, base)?,
        "a refused update changed the launch"
    );
    Ok(())
}

/// An update changes a value argument.
fn values(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture, ARGUMENTS)?;
    let memory = setup.context.usm(fixture, Kind::Device, 4000)?;
    let command = setup.iota(&memory, 1000, 1)?;
    for base in [1, 50, 9000] {
        if base > 1 {
            let value = Box::new(base);
            Update::default()
                .value(1, *value)
                .apply(&setup.buffer, command)
                .ok()?;
        }
        setup.run()?;
        check!(
            setup.counts_from(&memory, 1000, base)?,
            "words do not count up from {base}"
        );
    }
    Ok(())
}

/// An update changes a pointer argument.
fn pointers(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture, ARGUMENTS)?;
    let [a, b] = [(); 2].map(|()| setup.context.usm(fixture, Kind::Device, 4000));
    let (a, b) = (a?, b?);
    let command = setup.iota(&a, 1000, 5)?;
    setup.run()?;
    setup.queue.fill(b.ptr, 0_u32, 4000, &[])?;
    let update = Update::default().pointer(0, b.ptr).value(1, 70);
    update.apply(&setup.buffer, command).ok()?;
    setup.run()?;
    check!(
        setup.counts_from(&a, 1000, 5)?,
        "the first target does not count up from 5"
    );
    check!(
        setup.counts_from(&b, 1000, 70)?,
        "the new target does not count up from 70"
    );
    Ok(())
}

/// An update changes a buffer argument.
fn buffers(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture, ARGUMENTS)?;
    let kernel = setup.program.kernel(IOTA)?;
    let (a, b) = (setup.context.buffer(4000)?, setup.context.buffer(4000)?);
    let args = [Arg::Buffer(&a), Arg::of(&5_u32)];
    let made = setup.buffer.launch(&kernel, 1000, &args, With::handle())?;
    setup.buffer.finalize()?;
    setup.run()?;
    Update::default()
        .mem(0, b.raw)
        .value(1, 6)
        .apply(&setup.buffer, made.command)
        .ok()?;
    setup.run()?;
    let counts = |data: Vec<u32>, base| data.into_iter().eq(base..base + 1000);
    check!(
        counts(a.read(&setup.queue, 0, 1000)?, 5),
        "the first buffer does not count up from 5"
    );
    check!(
        counts(b.read(&setup.queue, 0, 1000)?, 6),
        "the new buffer does not count up from 6"
    );
    Ok(())
}

/// An update changes the global size.
fn global_size(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture, GLOBAL)?;
    let memory = setup.context.usm(fixture, Kind::Device, 8000)?;
    let command = setup.iota(&memory, 1000, 3)?;
    for items in [1, 500, 2000] {
        setup.queue.fill(memory.ptr, 0_u32, 8000, &[])?;
        Update::default()
            .items(items)
            .apply(&setup.buffer, command)
            .ok()?;
        setup.run()?;
        check!(
            setup.counts_from(&memory, items, 3)?,
            "{items} work-items did not count up from 3"
        );
        let rest: Vec<u32> = setup.queue.read(memory.ptr, 2000, &[])?;
        check_all!(rest[items..], 0, "words past {items} work-items");
    }
    Ok(())
}

/// Records one launch of `ids` over 64 work-items and finalizes the buffer.
fn ids(setup: &Setup, memory: &Usm) -> Result<ur_exp_command_buffer_command_handle_t, Stop> {
    let kernel = setup.program.kernel(IDS)?;
    let args = [Arg::Pointer(memory.ptr)];
    let made = setup.buffer.launch(&kernel, 64, &args, With::handle())?;
    setup.buffer.finalize()?;
    Ok(made.command)
}

/// An update changes the offset and the work-group size, alone or together.
fn offset_and_local_size(fixture: &Fixture) -> Done {
    let setup = Setup::new(
        fixture,
        GLOBAL
            | UR_DEVICE_COMMAND_BUFFER_UPDATE_CAPABILITY_FLAG_LOCAL_WORK_SIZE
            | UR_DEVICE_COMMAND_BUFFER_UPDATE_CAPABILITY_FLAG_GLOBAL_WORK_OFFSET,
    )?;
    let memory = setup
        .context
        .usm(fixture, Kind::Device, 64 * size_of::<Ids>())?;
    let command = ids(&setup, &memory)?;
    let update = Update {
        dims: 1,
        offset: Some([7, 0, 0]),
        global: Some([32, 1, 1]),
        local: Some([8, 1, 1]),
        ..Update::default()
    };
    update.apply(&setup.buffer, command).ok()?;
    setup.run()?;
    let seen: Vec<Ids> = setup.queue.read(memory.ptr, 32, &[])?;
    for (at, ids) in seen.iter().enumerate() {
        let at = at as u32;
        check_eq!(ids.global[0], at + 7, "global id");
        check_eq!((ids.size[0], ids.local[0]), (8, at % 8), "work-group");
        check_eq!((ids.range[0], ids.offset[0]), (32, 7), "range");
    }
    // Updates the work-group size alone.
    let update = Update {
        dims: 1,
        local: Some([16, 1, 1]),
        ..Update::default()
    };
    update.apply(&setup.buffer, command).ok()?;
    setup.run()?;
    let seen: Vec<Ids> = setup.queue.read(memory.ptr, 32, &[])?;
    check!(
        seen.iter()
            .all(|ids| ids.size[0] == 16 && ids.offset[0] == 7),
        "an update of the work-group size changed the offset, or did not take effect"
    );
    Ok(())
}

/// An update changes the number of dimensions.
fn dimensions(fixture: &Fixture) -> Done {
    let setup = Setup::new(
        fixture,
        GLOBAL | UR_DEVICE_COMMAND_BUFFER_UPDATE_CAPABILITY_FLAG_GLOBAL_WORK_OFFSET,
    )?;
    let memory = setup
        .context
        .usm(fixture, Kind::Device, 64 * size_of::<Ids>())?;
    let command = ids(&setup, &memory)?;
    let update = Update {
        dims: 2,
        offset: Some([0; 3]),
        global: Some([8, 4, 1]),
        ..Update::default()
    };
    update.apply(&setup.buffer, command).ok()?;
    setup.run()?;
    let seen: Vec<Ids> = setup.queue.read(memory.ptr, 32, &[])?;
    check!(
        seen.iter().all(|ids| ids.range == [8, 4, 1]),
        "a work-item did not see the range [8, 4, 1]"
    );
    Ok(())
}

/// An update changes the kernel to each of the alternatives and back.
fn kernels(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture, ARGUMENTS | KERNEL)?;
    let (iota, add, sum): (Kernel, Kernel, Kernel) = (
        setup.program.kernel(IOTA)?,
        setup.program.kernel(ADD)?,
        setup.program.kernel(SUM)?,
    );
    let [a, b] = [(); 2].map(|()| setup.context.usm(fixture, Kind::Device, 4000));
    let (a, b) = (a?, b?);
    let args = [Arg::Pointer(a.ptr), Arg::of(&1_u32)];
    let made = setup
        .buffer
        .launch_or(&iota, 1000, &args, &[&add, &sum], With::handle())?;
    setup.buffer.finalize()?;
    setup.run()?;
    check!(
        setup.counts_from(&a, 1000, 1)?,
        "the first kernel's words do not count up from 1"
    );
    let update = Update::default()
        .of_kernel(&add)
        .pointer(0, a.ptr)
        .value(1, 10);
    update.apply(&setup.buffer, made.command).ok()?;
    setup.run()?;
    check!(
        setup.counts_from(&a, 1000, 11)?,
        "the second kernel's words do not count up from 11"
    );
    let update = Update::default().of_kernel(&sum);
    let update = update.pointer(0, b.ptr).pointer(1, a.ptr).pointer(2, a.ptr);
    update.apply(&setup.buffer, made.command).ok()?;
    setup.run()?;
    let doubled: Vec<u32> = setup.queue.read(b.ptr, 1000, &[])?;
    check_items!(
        doubled,
        (11..1011).map(|word| 2 * word),
        "words of the third kernel"
    );
    let update = Update::default()
        .of_kernel(&iota)
        .pointer(0, b.ptr)
        .value(1, 4);
    update.apply(&setup.buffer, made.command).ok()?;
    setup.run()?;
    check!(
        setup.counts_from(&b, 1000, 4)?,
        "words do not count up from 4 after the update back to the first kernel"
    );
    Ok(())
}

/// An update changes the kernel of one of several launches and back.
fn kernel_of_one_of_several(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture, ARGUMENTS | KERNEL)?;
    let (iota, sum) = (setup.program.kernel(IOTA)?, setup.program.kernel(SUM)?);
    let [a, b, c] = [(); 3].map(|()| setup.context.usm(fixture, Kind::Device, 4000));
    let (a, b, c) = (a?, b?, c?);
    let first = [Arg::Pointer(a.ptr), Arg::of(&1_u32)];
    let made = setup
        .buffer
        .launch_or(&iota, 1000, &first, &[&sum], With::handle())?;
    for memory in [&b, &c] {
        let args = [Arg::Pointer(memory.ptr), Arg::of(&5_u32)];
        setup.buffer.launch(&iota, 1000, &args, With::default())?;
    }
    setup.buffer.finalize()?;
    setup.run()?;
    check!(
        setup.counts_from(&a, 1000, 1)?,
        "the first kernel's words do not count up from 1"
    );
    for round in 0..3 {
        let other = Update::default().of_kernel(&sum);
        let other = other.pointer(0, a.ptr).pointer(1, b.ptr).pointer(2, c.ptr);
        other.apply(&setup.buffer, made.command).ok()?;
        setup.run()?;
        let doubled: Vec<u32> = setup.queue.read(a.ptr, 1000, &[])?;
        check_items!(
            doubled,
            (5..1005).map(|word| 2 * word),
            "words of the second kernel in round {round}"
        );
        let back = Update::default().of_kernel(&iota);
        let back = back.pointer(0, a.ptr).value(1, round + 7);
        back.apply(&setup.buffer, made.command).ok()?;
        setup.run()?;
        check!(
            setup.counts_from(&a, 1000, round + 7)?,
            "words of the first kernel are wrong in round {round}"
        );
    }
    Ok(())
}

/// One call updates several launches.
fn several_commands(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture, ARGUMENTS)?;
    let kernel = setup.program.kernel(IOTA)?;
    let blocks = (0..10)
        .map(|_| setup.context.usm(fixture, Kind::Device, 400))
        .collect::<Result<Vec<_>, _>>()?;
    let mut commands = Vec::new();
    for block in &blocks {
        let args = [Arg::Pointer(block.ptr), Arg::of(&0_u32)];
        commands.push(
            setup
                .buffer
                .launch(&kernel, 100, &args, With::handle())?
                .command,
        );
    }
    setup.buffer.finalize()?;
    for round in 1..4_u32 {
        let updates: Vec<_> = (0..10)
            .map(|at| Update::default().value(1, round * 1000 + at))
            .collect();
        let all: Vec<_> = commands.iter().copied().zip(&updates).collect();
        Update::apply_all(&setup.buffer, &all).ok()?;
        setup.run()?;
        for (at, block) in blocks.iter().enumerate() {
            let base = round * 1000 + at as u32;
            check!(
                setup.counts_from(block, 100, base)?,
                "words of launch {at} are wrong in round {round}"
            );
        }
    }
    Ok(())
}

/// One wrong update in a call leaves all commands unchanged.
fn all_or_nothing(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture, ARGUMENTS | KERNEL)?;
    let memory = setup.context.usm(fixture, Kind::Device, 400)?;
    let command = setup.iota(&memory, 100, 1)?;
    let stranger = setup.program.kernel(ADD)?;
    let good = Update::default().value(1, 50);
    let bad = Update::default().of_kernel(&stranger);
    let status = Update::apply_all(&setup.buffer, &[(command, &good), (command, &bad)]);
    status.fails(UR_RESULT_ERROR_INVALID_VALUE)?;
    setup.run()?;
    check!(
        setup.counts_from(&memory, 100, 1)?,
        "a refused update changed the launch"
    );
    Ok(())
}

/// A submission before an update runs with the old arguments.
fn while_running(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture, ARGUMENTS)?;
    let [a, b] = [(); 2].map(|()| setup.context.usm(fixture, Kind::Device, 4000));
    let (a, b) = (a?, b?);
    let command = setup.iota(&a, 1000, 5)?;
    let gate = Gate::close(fixture, &setup.queue)?;
    setup.run()?;
    // The update may block until the submission has completed.
    gate.open_after(Duration::from_millis(50));
    let update = Update::default().pointer(0, b.ptr).value(1, 9);
    update.apply(&setup.buffer, command).ok()?;
    setup.run()?;
    check!(
        setup.counts_from(&a, 1000, 5)?,
        "the submission before the update does not count up from 5"
    );
    check!(
        setup.counts_from(&b, 1000, 9)?,
        "the submission after the update does not count up from 9"
    );
    Ok(())
}

/// A buffer that is an argument lives as long as a submission may use it.
fn released_arguments(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture, ARGUMENTS)?;
    let (iota, sum) = (setup.program.kernel(IOTA)?, setup.program.kernel(SUM)?);
    let out = setup.context.usm(fixture, Kind::Device, 4000)?;
    let first = setup.context.buffer(4000)?;
    let args = [Arg::Buffer(&first), Arg::of(&1_u32)];
    let filled = setup.buffer.launch(&iota, 1000, &args, With::handle())?;
    let args = [
        Arg::Pointer(out.ptr),
        Arg::Buffer(&first),
        Arg::Buffer(&first),
    ];
    let with = With {
        after: &[filled.point],
        handle: true,
        ..With::default()
    };
    let summed = setup.buffer.launch(&sum, 1000, &args, with)?;
    drop(first);
    setup.buffer.finalize()?;
    for base in 2..30_u32 {
        setup.run()?;
        let next = setup.context.buffer(4000)?;
        let one = Update::default().mem(0, next.raw).value(1, base);
        let two = Update::default().mem(1, next.raw).mem(2, next.raw);
        let both = [(filled.command, &one), (summed.command, &two)];
        Update::apply_all(&setup.buffer, &both).ok()?;
    }
    setup.run()?;
    let data: Vec<u32> = setup.queue.read(out.ptr, 1000, &[])?;
    check_items!(
        data,
        (29..1029).map(|word| 2 * word),
        "words computed from the last buffer"
    );
    Ok(())
}

/// An update replaces the event that a recorded command signals.
fn signal_event(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture, EVENTS)?;
    let memory = setup.context.usm(fixture, Kind::Device, 64)?;
    let with = With {
        event: true,
        handle: true,
        ..With::default()
    };
    let made = setup.buffer.fill(memory.ptr, 1_u8, 64, with)?;
    let command = made.command;
    let first = made.into_event()?;
    setup.buffer.finalize()?;
    setup.run()?;
    first.wait()?;
    let second = setup.queue.event(|event| {
        fixture
            .ur
            .urCommandBufferUpdateSignalEventExp(command, event)
    })?;
    check!(
        second.raw != first.raw,
        "the update gave the same event again"
    );
    check!(
        second.is_complete()?,
        "the new event is not complete before the next submission"
    );
    let gate = Gate::close(fixture, &setup.queue)?;
    setup.run()?;
    check!(first.is_complete()?, "the old event is no longer complete");
    check!(
        !second.is_complete()?,
        "the new event is complete while its command is blocked"
    );
    gate.open();
    second.wait()
}

/// An update replaces the events that a recorded command waits for.
fn wait_events(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture, EVENTS)?;
    let other = setup.context.in_order(fixture)?;
    let [a, b] = [(); 2].map(|()| setup.context.usm(fixture, Kind::Host, 64));
    let (a, b) = (a?, b?);
    let filled = other.fill(a.ptr, 1_u8, 64, &[])?;
    let with = With {
        waits: &[&filled],
        handle: true,
        ..With::default()
    };
    let command = setup.buffer.copy(b.ptr, a.ptr, 64, with)?.command;
    setup.buffer.finalize()?;
    setup.buffer.enqueue(&setup.queue, &[])?.wait()?;
    for tag in 2..6_u8 {
        let gate = Gate::close(fixture, &other)?;
        let filled = other.fill(a.ptr, tag, 64, &[])?;
        fixture
            .ur
            .urCommandBufferUpdateWaitEventsExp(command, 1, &filled.raw)
            .ok()?;
        let done = setup.buffer.enqueue(&setup.queue, &[])?;
        check!(
            !done.completes_within(Duration::from_millis(20))?,
            "the submission did not wait for the command's events"
        );
        gate.open();
        done.wait()?;
        check_all!(b.host::<u8>(), tag, "round {tag}");
    }
    Ok(())
}

/// Updates are refused before the buffer is finalized and in one that is not updatable.
fn refused_states(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture, ARGUMENTS | EVENTS)?;
    let kernel = setup.program.kernel(IOTA)?;
    let memory = setup.context.usm(fixture, Kind::Device, 400)?;
    let args = [Arg::Pointer(memory.ptr), Arg::of(&1_u32)];
    let with = With {
        event: true,
        handle: true,
        ..With::default()
    };
    let made = setup.buffer.launch(&kernel, 100, &args, with)?;
    let update = Update::default().value(1, 5);
    let invalid = UR_RESULT_ERROR_INVALID_OPERATION;
    let ur = fixture.ur;
    // The buffer is not finalized yet.
    update
        .apply(&setup.buffer, made.command)
        .fails_because(invalid, "not finalized yet")?;
    let mut event = null_mut();
    ur.urCommandBufferUpdateSignalEventExp(made.command, &mut event)
        .fails_because(invalid, "not finalized yet")?;
    ur.urCommandBufferUpdateWaitEventsExp(made.command, 0, null())
        .fails_because(invalid, "not finalized yet")?;
    check!(event.is_null(), "a refused update gave an event");
    setup.buffer.finalize()?;
    update.apply(&setup.buffer, made.command).ok()?;
    // The buffer is not updatable.
    let plain = CommandBuffer::new(fixture, &setup.context, Shape::default())?;
    plain.finalize()?;
    update
        .apply(&plain, made.command)
        .fails_because(invalid, "not created updatable")
}

/// Updates are refused for commands that are no launch or belong to another buffer.
fn refused_commands(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture, ARGUMENTS)?;
    let memory = setup.context.usm(fixture, Kind::Device, 400)?;
    let fill = setup.buffer.fill(memory.ptr, 1_u8, 400, With::handle())?;
    setup.buffer.finalize()?;
    let update = Update::default().value(1, 5);
    let invalid = UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP;
    // A fill is no launch.
    update
        .apply(&setup.buffer, fill.command)
        .fails_because(invalid, "is not a kernel launch")?;
    // The command belongs to another buffer.
    let other = CommandBuffer::new(fixture, &setup.context, UPDATABLE)?;
    let kernel = setup.program.kernel(IOTA)?;
    let args = [Arg::Pointer(memory.ptr), Arg::of(&1_u32)];
    let foreign = other.launch(&kernel, 100, &args, With::handle())?;
    other.finalize()?;
    update
        .apply(&setup.buffer, foreign.command)
        .fails_because(invalid, "belongs to another buffer")?;
    update
        .apply(&setup.buffer, null_mut())
        .fails(UR_RESULT_ERROR_INVALID_NULL_HANDLE)
}

/// Updates with a wrong dimension or an incomplete range are refused.
fn refused_ranges(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture, GLOBAL)?;
    let memory = setup.context.usm(fixture, Kind::Device, 400)?;
    let command = setup.iota(&memory, 100, 1)?;
    let dimension = UR_RESULT_ERROR_INVALID_WORK_DIMENSION;
    let value = UR_RESULT_ERROR_INVALID_VALUE;
    for (dims, offset, global, code) in [
        (4, None, Some([10, 1, 1]), dimension),
        (0, None, Some([10, 1, 1]), dimension),
        // Another number of dimensions needs the whole range.
        (2, None, Some([10, 1, 1]), value),
        (2, Some([0; 3]), None, value),
    ] {
        let update = Update {
            dims,
            offset,
            global,
            ..Update::default()
        };
        let refused = update.apply(&setup.buffer, command);
        match code {
            UR_RESULT_ERROR_INVALID_VALUE => refused.fails_because(code, "`newWorkDim` differs")?,
            _ => refused.fails(code)?,
        }
    }
    setup.run()?;
    check!(
        setup.counts_from(&memory, 100, 1)?,
        "a refused update changed the launch"
    );
    Ok(())
}

/// An update to a kernel that is no alternative is refused.
fn refused_kernels(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture, KERNEL)?;
    let memory = setup.context.usm(fixture, Kind::Device, 400)?;
    let command = setup.iota(&memory, 100, 1)?;
    let stranger = setup.program.kernel(ADD)?;
    Update::default()
        .of_kernel(&stranger)
        .apply(&setup.buffer, command)
        .fails_because(UR_RESULT_ERROR_INVALID_VALUE, "`hNewKernel` is neither")
}

/// Updates of events that the command was recorded without are refused.
fn refused_events(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture, EVENTS)?;
    let memory = setup.context.usm(fixture, Kind::Device, 64)?;
    let plain = setup.buffer.fill(memory.ptr, 1_u8, 64, With::handle())?;
    let with = With {
        handle: true,
        event: true,
        after: &[plain.point],
        ..With::default()
    };
    let later = setup
        .buffer
        .fill(memory.ptr, 2_u8, 64, with)?
        .into_event()?;
    setup.buffer.finalize()?;
    let ur = fixture.ur;
    // The command was recorded without an event.
    ur.urCommandBufferUpdateSignalEventExp(plain.command, &mut null_mut())
        .fails_because(UR_RESULT_ERROR_INVALID_OPERATION, "`phEvent` was null")?;
    // The command was recorded without a wait list.
    ur.urCommandBufferUpdateWaitEventsExp(plain.command, 1, &later.raw)
        .fails_because(
            UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST,
            "is not the number of events",
        )
}

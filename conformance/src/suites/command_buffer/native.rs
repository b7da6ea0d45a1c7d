//! Native commands, which a function records through the backend itself.

use super::SUITE;
use crate::fixture::Fixture;
use crate::native_work::{NativeWork, Recorded, provider};
use crate::objects::{Appended, CommandBuffer, Context, Kind, Queue, Shape, With};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::status::Status;
use crate::{check, check_all, check_eq};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests![SUITE; native_command, native_commands_in_a_child,
        native_commands_in_the_buffer, native_commands_before_finalize, native_handle_during_an_append,
        native_children_refused,
    ]
}

const SIZE: usize = 4096;

/// The data of a native command's function: a closure and the number of its calls.
struct Task<'a> {
    run: Box<dyn FnMut() -> Done + 'a>,
    ran: u32,
    ended: Done,
}

unsafe extern "C" fn call(data: *mut c_void) {
    // SAFETY: `append` passes a task that it keeps until its call has returned.
    let task = unsafe { &mut *data.cast::<Task>() };
    task.ran += 1;
    task.ended = (task.run)();
}

/// The result of an append: its status, its sync point, and the calls of the function with their outcome.
struct Attempt {
    status: Status,
    point: u32,
    ran: u32,
    ended: Done,
}

impl Attempt {
    /// Checks that the append was refused and its function not called.
    fn refused(self, code: ur_result_t) -> Done {
        self.status.fails(code)?;
        check_eq!(
            (self.ran, self.point),
            (0, 77),
            "calls and sync point of a refused command"
        );
        Ok(())
    }
}

fn try_append<'a>(
    buffer: &CommandBuffer,
    child: Option<&CommandBuffer>,
    after: &[u32],
    run: impl FnMut() -> Done + 'a,
) -> Attempt {
    let mut task = Task {
        run: Box::new(run),
        ran: 0,
        ended: Ok(()),
    };
    let (count, points) = match after {
        [] => (0, null()),
        after => (after.len() as u32, after.as_ptr()),
    };
    let mut point = 77;
    let status = buffer.ur.urCommandBufferAppendNativeCommandExp(
        buffer.raw,
        Some(call),
        (&raw mut task).cast(),
        child.map_or(null_mut(), |child| child.raw),
        count,
        points,
        &mut point,
    );
    Attempt {
        status,
        point,
        ran: task.ran,
        ended: task.ended,
    }
}

fn append<'a>(
    buffer: &CommandBuffer,
    child: Option<&CommandBuffer>,
    after: &[u32],
    run: impl FnMut() -> Done + 'a,
) -> Result<u32, Stop> {
    let attempt = try_append(buffer, child, after, run);
    attempt.status.ok()?;
    check_eq!(attempt.ran, 1, "calls before the append returned");
    attempt.ended.map(|()| attempt.point)
}

/// The function of a native command is called once, within the append, or the append is unsupported.
fn native_command(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let buffer = CommandBuffer::new(fixture, &context, Shape::default())?;
    let mut calls = 0;
    let attempt = try_append(&buffer, None, &[], || {
        calls += 1;
        Ok(())
    });
    let (status, point) = (attempt.status, attempt.point);
    if status.is_unsupported() {
        attempt.refused(status.code)?;
        return Err(Stop::Unsupported {
            what: status.to_string(),
            documented: false,
        });
    }
    status.ok()?;
    check_eq!(attempt.ran, 1, "calls before the append returned");
    let Appended { point: behind, .. } = {
        let memory = context.usm(fixture, Kind::Device, 64)?;
        let made = buffer.fill(memory.ptr, 1_u8, 64, With::after(&[point]))?;
        buffer.finalize()?;
        buffer.enqueue(&context.in_order(fixture)?, &[])?.wait()?;
        made
    };
    check!(behind != point, "two commands have one sync point");
    check_eq!(calls, 1, "calls after a submission");
    Ok(())
}

/// The provider of native recording and the handles that it needs.
struct Setup {
    backend: &'static dyn NativeWork,
    context: Context,
    native: ur_native_handle_t,
}

impl Setup {
    /// Stops the test unless the device supports children in native commands.
    fn with_children(fixture: &Fixture) -> Result<Self, Stop> {
        let context = Context::new(fixture)?;
        let (buffer, child) = (
            CommandBuffer::new(fixture, &context, Shape::default())?,
            CommandBuffer::new(fixture, &context, Shape::default())?,
        );
        let device = UR_DEVICE_INFO_COMMAND_BUFFER_SUBGRAPH_SUPPORT_EXP;
        fixture.require(device, || {
            try_append(&buffer, Some(&child), &[], || Ok(())).status
        })?;
        Self::new(fixture)
    }

    /// Stops the test unless the backend's provider can record.
    fn new(fixture: &Fixture) -> Result<Self, Stop> {
        let backend = provider(fixture.backend)
            .ok_or_else(|| Stop::skipped("no provider records native commands on this backend"))?;
        let context = Context::new(fixture)?;
        let mut native = 0;
        let status = fixture
            .ur
            .urContextGetNativeHandle(context.raw, &mut native);
        status.ok()?;
        Ok(Self {
            backend,
            context,
            native,
        })
    }

    /// Records a fill through the buffer's native object.
    fn record(&self, buffer: &CommandBuffer, memory: *mut c_void, byte: u8, bytes: usize) -> Done {
        let what = Recorded {
            recording: native_of(buffer)?,
            context: self.native,
            memory,
            byte,
            bytes,
        };
        self.backend.record(&what).map_err(Stop::failed)
    }
}

/// Native commands in a child run after their sync points and before their dependents.
fn native_commands_in_a_child(fixture: &Fixture) -> Done {
    check_order(fixture, &Setup::with_children(fixture)?, true)
}

/// Native commands recorded into the buffer itself run between its other commands.
fn native_commands_in_the_buffer(fixture: &Fixture) -> Done {
    check_order(fixture, &Setup::new(fixture)?, false)
}

/// Checks the order at each submission, on queues of every type.
fn check_order(fixture: &Fixture, setup: &Setup, has_child: bool) -> Done {
    let context = &setup.context;
    let memory = context.usm(fixture, Kind::Host, 3 * SIZE)?;
    let at = |part: usize| memory.ptr.wrapping_byte_add(part * SIZE);
    let flags = [
        ur_queue_flags_t(0),
        UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE,
        UR_QUEUE_FLAG_PROFILING_ENABLE,
        UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE | UR_QUEUE_FLAG_PROFILING_ENABLE,
    ];
    for in_order in [false, true] {
        let shape = Shape {
            in_order,
            ..Shape::default()
        };
        let buffer = CommandBuffer::new(fixture, context, shape)?;
        let first = buffer.fill(at(0), 1_u8, 3 * SIZE, With::default())?;
        let child = match has_child {
            true => Some(CommandBuffer::new(fixture, context, shape)?),
            false => None,
        };
        let target = child.as_ref().unwrap_or(&buffer);
        let point = append(&buffer, child.as_ref(), &[first.point], || {
            setup.record(target, at(1), 2, 2 * SIZE)
        })?;
        buffer.fill(at(2), 3_u8, SIZE, With::after(&[point]))?;
        drop(child);
        buffer.finalize()?;
        for flags in flags {
            let queue = Queue::new(context, fixture.device, flags)?;
            for _ in 0..2 {
                let cleared = queue.fill(at(0), 9_u8, 3 * SIZE, &[])?;
                // The second submission is pending together with the first.
                buffer.enqueue(&queue, &[&cleared])?;
                buffer.enqueue(&queue, &[])?.wait()?;
                let found = memory.host::<u8>();
                let parts = found.chunks(SIZE).zip(1_u8..);
                for (part, byte) in parts {
                    let right = part.iter().all(|own| *own == byte);
                    check!(
                        right,
                        "part {byte} is wrong, in order {in_order}, child {has_child}"
                    );
                }
            }
        }
    }
    Ok(())
}

/// Commands recorded into the buffer's native object run beside the appended ones.
fn native_commands_before_finalize(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let context = &setup.context;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Host, 2 * SIZE)?;
    let second = memory.ptr.wrapping_byte_add(SIZE);
    let buffer = CommandBuffer::new(fixture, context, Shape::default())?;
    setup.record(&buffer, memory.ptr, 4, SIZE)?;
    buffer.fill(second, 5_u8, SIZE, With::default())?;
    buffer.finalize()?;
    for _ in 0..2 {
        queue.fill(memory.ptr, 9_u8, 2 * SIZE, &[])?.wait()?;
        buffer.enqueue(&queue, &[])?.wait()?;
        let found = memory.host::<u8>();
        let (first, second) = found.split_at(SIZE);
        check_all!(first, 4, "bytes of the native command");
        check_all!(second, 5, "bytes of the other command");
    }
    Ok(())
}

/// The buffer has one native handle throughout each append of a native command.
fn native_handle_during_an_append(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let context = &setup.context;
    let memory = context.usm(fixture, Kind::Host, 2 * SIZE)?;
    let second = memory.ptr.wrapping_byte_add(SIZE);
    let buffer = CommandBuffer::new(fixture, context, Shape::default())?;
    let shown = || {
        let native = native_of(&buffer)?;
        check!(native != 0, "the native handle is 0");
        check_eq!(native_of(&buffer)?, native, "native handle, second query");
        Ok(())
    };
    let first = append(&buffer, None, &[], || {
        shown()?;
        setup.record(&buffer, memory.ptr, 1, 2 * SIZE)
    })?;
    append(&buffer, None, &[first], || {
        shown()?;
        setup.record(&buffer, second, 2, SIZE)
    })?;
    // The last function records nothing.
    append(&buffer, None, &[first], shown)?;
    buffer.finalize()?;
    let queue = context.in_order(fixture)?;
    buffer.enqueue(&queue, &[])?.wait()?;
    let found = memory.host::<u8>();
    let (first, second) = found.split_at(SIZE);
    check_all!(first, 1, "bytes of the first command");
    check_all!(second, 2, "bytes of the second command");
    Ok(())
}

fn native_of(buffer: &CommandBuffer) -> Result<ur_native_handle_t, Stop> {
    let mut native = 0;
    let ur = buffer.ur;
    ur.urCommandBufferGetNativeHandleExp(buffer.raw, &mut native)
        .ok()?;
    Ok(native)
}

/// A native command with a child that is finalized, foreign or the buffer itself is refused.
fn native_children_refused(fixture: &Fixture) -> Done {
    let setup = Setup::with_children(fixture)?;
    let context = &setup.context;
    let new = |context: &Context| CommandBuffer::new(fixture, context, Shape::default());
    let (buffer, other) = (new(context)?, Context::new(fixture)?);
    let foreign = new(&other)?;
    let code = UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_EXP;
    for child in [&buffer, &foreign] {
        try_append(&buffer, Some(child), &[], || Ok(())).refused(code)?;
    }
    let child = new(context)?;
    buffer.finalize()?;
    let attempt = try_append(&buffer, Some(&child), &[], || Ok(()));
    attempt.refused(UR_RESULT_ERROR_INVALID_OPERATION)
}

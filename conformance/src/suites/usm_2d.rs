//! 2D commands on USM: rows with a pitch between them.

use crate::check_eq;
use crate::fixture::Fixture;
use crate::objects::{Context, Kind, Queue, Usm, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["usm"; fill_2d, copy_2d, fill_2d_refused, copy_2d_refused]
}

const PITCH: usize = 256;
const ROWS: usize = 20;

fn context_says(
    fixture: &Fixture,
    context: &Context,
    property: ur_context_info_t,
) -> Result<bool, Stop> {
    let answer: ur_bool_t = info::value(|size, value, ret| {
        fixture
            .ur
            .urContextGetInfo(context.raw, property, size, value, ret)
    })?;
    Ok(answer != 0)
}

/// Checks for `inside` in the first `width` bytes of the first `height` rows, and `outside` elsewhere.
fn check_rows(
    queue: &Queue,
    memory: &Usm,
    (width, height): (usize, usize),
    inside: u8,
    outside: u8,
) -> Done {
    let data = queue.read::<u8>(memory.ptr, PITCH * ROWS, &[])?;
    for (row, bytes) in data.chunks(PITCH).enumerate() {
        for (column, byte) in bytes.iter().enumerate() {
            let want = if row < height && column < width {
                inside
            } else {
                outside
            };
            check_eq!(*byte, want, "byte {column} of row {row}");
        }
    }
    Ok(())
}

/// A 2D fill writes the given rows and no byte between them.
fn fill_2d(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, PITCH * ROWS)?;
    let pattern = [5_u8; 4];
    let fill = |event| {
        let from = pattern.as_ptr().cast();
        fixture.ur.urEnqueueUSMFill2D(
            queue.raw,
            memory.ptr,
            PITCH,
            4,
            from,
            100,
            13,
            0,
            null(),
            event,
        )
    };
    queue.fill(memory.ptr, 0_u8, PITCH * ROWS, &[])?;
    if !context_says(fixture, &context, UR_CONTEXT_INFO_USM_FILL2D_SUPPORT)? {
        let status = fill(null_mut());
        status.fails(UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        return Err(Stop::Unsupported {
            what: status.to_string(),
            documented: true,
        });
    }
    let event = queue.event(fill)?;
    check_eq!(
        event.get::<ur_command_t>(UR_EVENT_INFO_COMMAND_TYPE)?,
        UR_COMMAND_USM_FILL_2D,
        "command type"
    );
    check_rows(&queue, &memory, (100, 13), 5, 0)
}

/// A 2D copy writes the given rows with the pitches of both sides.
fn copy_2d(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let (src, dst) = (
        context.usm(fixture, Kind::Device, 128 * ROWS)?,
        context.usm(fixture, Kind::Device, PITCH * ROWS)?,
    );
    let copy = |event| {
        let ur = fixture.ur;
        ur.urEnqueueUSMMemcpy2D(
            queue.raw,
            0,
            dst.ptr,
            PITCH,
            src.ptr,
            128,
            101,
            17,
            0,
            null(),
            event,
        )
    };
    if !context_says(fixture, &context, UR_CONTEXT_INFO_USM_MEMCPY2D_SUPPORT)? {
        let status = copy(null_mut());
        status.fails(UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        return Err(Stop::Unsupported {
            what: status.to_string(),
            documented: true,
        });
    }
    queue.fill(src.ptr, 7_u8, 128 * ROWS, &[])?;
    queue.fill(dst.ptr, 1_u8, PITCH * ROWS, &[])?;
    let event = queue.event(copy)?;
    check_eq!(
        event.get::<ur_command_t>(UR_EVENT_INFO_COMMAND_TYPE)?,
        UR_COMMAND_USM_MEMCPY_2D,
        "command type"
    );
    check_rows(&queue, &dst, (101, 17), 7, 1)
}

/// A 2D fill with a wrong pitch, pattern, width or height is refused.
fn fill_2d_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 4096)?;
    let pattern = [0_u8; 64];
    // Pitch, pattern size, width, height.
    for (pitch, pattern_size, width, height) in [
        (0, 1, 8, 8),
        (7, 1, 8, 8),
        (64, 0, 8, 8),
        (64, 3, 9, 9),
        (64, 64, 4, 4),
        (64, 1, 0, 8),
        (64, 1, 8, 0),
        (64, 8, 3, 3),
    ] {
        let from = pattern.as_ptr().cast();
        let status = fixture.ur.urEnqueueUSMFill2D(
            queue.raw,
            memory.ptr,
            pitch,
            pattern_size,
            from,
            width,
            height,
            0,
            null(),
            null_mut(),
        );
        status.fails_with(&[
            UR_RESULT_ERROR_INVALID_SIZE,
            UR_RESULT_ERROR_UNSUPPORTED_FEATURE,
        ])?;
    }
    Ok(())
}

/// A 2D copy with a wrong pitch or height is refused.
fn copy_2d_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let (src, dst) = (
        context.usm(fixture, Kind::Device, 4096)?,
        context.usm(fixture, Kind::Device, 4096)?,
    );
    // Destination pitch, source pitch, width, height.
    for (dst_pitch, src_pitch, width, height) in [
        (0, 64, 8, 8),
        (64, 0, 8, 8),
        (7, 64, 8, 8),
        (64, 7, 8, 8),
        (64, 64, 8, 0),
    ] {
        let status = fixture.ur.urEnqueueUSMMemcpy2D(
            queue.raw,
            0,
            dst.ptr,
            dst_pitch,
            src.ptr,
            src_pitch,
            width,
            height,
            0,
            null(),
            null_mut(),
        );
        status.fails_with(&[
            UR_RESULT_ERROR_INVALID_SIZE,
            UR_RESULT_ERROR_UNSUPPORTED_FEATURE,
        ])?;
    }
    Ok(())
}

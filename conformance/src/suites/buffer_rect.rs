//! Rectangle reads, writes and copies of buffers, with pitches on both sides.

use crate::fixture::Fixture;
use crate::objects::{Buffer, Context};
use crate::outcome::Done;
use crate::registry::Test;
use crate::{check, check_eq};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["buffer"; read_rect, read_rect_packed, write_rect, copy_rect, rect_refused]
}

const PITCH: usize = 32;
const SLICE: usize = PITCH * 10;
const TOTAL: usize = SLICE * 4;
const REGION: ur_rect_region_t = ur_rect_region_t {
    width: 7,
    height: 5,
    depth: 3,
};
const FROM: ur_rect_offset_t = ur_rect_offset_t { x: 3, y: 2, z: 1 };
const TO: ur_rect_offset_t = ur_rect_offset_t { x: 11, y: 4, z: 0 };

fn at(origin: ur_rect_offset_t, x: u64, y: u64, z: u64) -> usize {
    (origin.z + z) as usize * SLICE + (origin.y + y) as usize * PITCH + (origin.x + x) as usize
}

/// The expected destination, zero before the copy.
fn boxed(data: &[u8]) -> Vec<u8> {
    let mut want = vec![0; TOTAL];
    for z in 0..REGION.depth {
        for y in 0..REGION.height {
            for x in 0..REGION.width {
                want[at(TO, x, y, z)] = data[at(FROM, x, y, z)];
            }
        }
    }
    want
}

fn source() -> Vec<u8> {
    (0..TOTAL)
        .map(|at| (at * 11 + at / 256) as u8 | 1)
        .collect()
}

/// A rectangle read places each row by the origins and pitches of both sides.
fn read_rect(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let mut data = source();
    let buffer = Buffer::copied(&context, &mut data)?;
    let mut found = vec![0_u8; TOTAL];
    let (ur, dst) = (fixture.ur, found.as_mut_ptr().cast());
    let (q, b) = (queue.raw, buffer.raw);
    ur.urEnqueueMemBufferReadRect(
        q,
        b,
        1,
        FROM,
        TO,
        REGION,
        PITCH,
        SLICE,
        PITCH,
        SLICE,
        dst,
        0,
        null(),
        null_mut(),
    )
    .ok()?;
    check!(
        found == boxed(&data),
        "a rectangle read from a buffer is wrong"
    );
    Ok(())
}

/// Host pitches of 0 stand for packed rows.
fn read_rect_packed(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let mut data = source();
    let buffer = Buffer::copied(&context, &mut data)?;
    let (ur, q, b) = (fixture.ur, queue.raw, buffer.raw);
    let mut packed = vec![0_u8; 7 * 5 * 3];
    let (zero, dst) = (ur_rect_offset_t::default(), packed.as_mut_ptr().cast());
    ur.urEnqueueMemBufferReadRect(
        q,
        b,
        1,
        FROM,
        zero,
        REGION,
        PITCH,
        SLICE,
        0,
        0,
        dst,
        0,
        null(),
        null_mut(),
    )
    .ok()?;
    let mut index = 0;
    for z in 0..3 {
        for y in 0..5 {
            for x in 0..7 {
                check_eq!(
                    packed[index],
                    data[at(FROM, x, y, z)],
                    "byte {x}, {y}, {z} of a packed rectangle"
                );
                index += 1;
            }
        }
    }
    Ok(())
}

/// A rectangle write places each row by the origins and pitches of both sides.
fn write_rect(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let data = source();
    let buffer = Buffer::copied(&context, &mut vec![0_u8; TOTAL])?;
    let (ur, src) = (fixture.ur, data.as_ptr().cast_mut().cast());
    let (q, b) = (queue.raw, buffer.raw);
    ur.urEnqueueMemBufferWriteRect(
        q,
        b,
        1,
        TO,
        FROM,
        REGION,
        PITCH,
        SLICE,
        PITCH,
        SLICE,
        src,
        0,
        null(),
        null_mut(),
    )
    .ok()?;
    check!(
        buffer.read::<u8>(&queue, 0, TOTAL)? == boxed(&data),
        "a rectangle written to a buffer is wrong"
    );
    Ok(())
}

/// A rectangle copy between buffers places each row by the origins and pitches of both sides.
fn copy_rect(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let mut data = source();
    let src = Buffer::copied(&context, &mut data)?;
    let dst = Buffer::copied(&context, &mut vec![0_u8; TOTAL])?;
    let ur = fixture.ur;
    let event = queue.event(|e| {
        let (q, s, d) = (queue.raw, src.raw, dst.raw);
        ur.urEnqueueMemBufferCopyRect(
            q,
            s,
            d,
            FROM,
            TO,
            REGION,
            PITCH,
            SLICE,
            PITCH,
            SLICE,
            0,
            null(),
            e,
        )
    })?;
    check_eq!(
        event.get::<ur_command_t>(UR_EVENT_INFO_COMMAND_TYPE)?,
        UR_COMMAND_MEM_BUFFER_COPY_RECT,
        "command type"
    );
    check!(
        dst.read::<u8>(&queue, 0, TOTAL)? == boxed(&data),
        "a rectangle copied between buffers is wrong"
    );
    Ok(())
}

/// A rectangle with an empty side, a pitch too small or an end past the buffer is refused.
fn rect_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let buffer = context.buffer(TOTAL)?;
    let mut host = vec![0_u8; TOTAL];
    let region = |width, height, depth| ur_rect_region_t {
        width,
        height,
        depth,
    };
    let far = ur_rect_offset_t { x: 0, y: 0, z: 3 };
    let zero = ur_rect_offset_t::default();
    // Origin, region, buffer row and slice pitch, host row and slice pitch.
    let cases = [
        (zero, region(0, 5, 3), PITCH, SLICE, PITCH, SLICE),
        (zero, region(7, 0, 3), PITCH, SLICE, PITCH, SLICE),
        (zero, region(7, 5, 0), PITCH, SLICE, PITCH, SLICE),
        (zero, region(7, 5, 3), 6, SLICE, PITCH, SLICE),
        (zero, region(7, 5, 3), PITCH, SLICE, 6, SLICE),
        (zero, region(7, 5, 3), PITCH, PITCH * 4, PITCH, SLICE),
        (zero, region(7, 5, 3), PITCH, SLICE, PITCH, PITCH * 4),
        (zero, region(7, 5, 3), PITCH, SLICE + 1, PITCH, SLICE),
        (zero, region(7, 5, 3), PITCH, SLICE, PITCH, SLICE + 1),
        (far, region(7, 5, 3), PITCH, SLICE, PITCH, SLICE),
    ];
    for (origin, region, row, slice, host_row, host_slice) in cases {
        let (ur, q, b, h) = (
            fixture.ur,
            queue.raw,
            buffer.raw,
            host.as_mut_ptr().cast::<c_void>(),
        );
        let (none, event) = (null(), null_mut());
        let read = ur.urEnqueueMemBufferReadRect(
            q, b, 1, origin, zero, region, row, slice, host_row, host_slice, h, 0, none, event,
        );
        read.fails(UR_RESULT_ERROR_INVALID_SIZE)?;
        let write = ur.urEnqueueMemBufferWriteRect(
            q, b, 1, origin, zero, region, row, slice, host_row, host_slice, h, 0, none, event,
        );
        write.fails(UR_RESULT_ERROR_INVALID_SIZE)?;
        let copy = ur.urEnqueueMemBufferCopyRect(
            q, b, b, origin, zero, region, row, slice, host_row, host_slice, 0, none, event,
        );
        copy.fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    }
    Ok(())
}

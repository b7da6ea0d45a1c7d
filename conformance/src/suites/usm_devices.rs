//! Commands of one device on the memory of another device of the context.
//!
//! They work, or the feature is refused.

use crate::fixture::{Fixture, devices};
use crate::objects::{Context, Queue};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::status::Status;
use crate::suites::partition;
use crate::{check_all, check_eq};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["usm"; between_devices_of_a_platform, between_sub_devices]
}

const BYTES: usize = 4096;

/// Commands of one device on another one's memory work or are unsupported.
fn between_devices_of_a_platform(fixture: &Fixture) -> Done {
    let all = devices(fixture.ur, fixture.platform, UR_DEVICE_TYPE_ALL)?;
    let other = all.iter().find(|device| **device != fixture.device);
    let other = other.ok_or_else(|| Stop::skipped("the platform has one device"))?;
    between(fixture, [fixture.device, *other])
}

/// Commands of one sub-device on another one's memory work or are unsupported.
fn between_sub_devices(fixture: &Fixture) -> Done {
    let parts = partition::in_single_units(fixture)?;
    if parts.len() < 2 {
        return Err(Stop::skipped("one compute unit cannot be split"));
    }
    let done = between(fixture, [parts[0], parts[1]]);
    let release = |part| fixture.ur.urDeviceRelease(part).ok();
    done.and(parts.into_iter().try_for_each(release))
}

/// Whether a command was accepted. If not, it was refused as unsupported.
fn is_done(status: Status) -> Result<bool, Stop> {
    match status.is_unsupported() {
        true => Ok(false),
        false => status.ok().map(|()| true),
    }
}

fn between(fixture: &Fixture, both: [ur_device_handle_t; 2]) -> Done {
    let (ur, mut raw) = (fixture.ur, null_mut());
    ur.urContextCreate(2, both.as_ptr(), null(), &mut raw)
        .ok()?;
    let context = Context::adopt(ur, raw);
    let [own, other] =
        [both[0], both[1]].map(|device| Queue::new(&context, device, ur_queue_flags_t(0)));
    let (own, other) = (own?, other?);
    let (mut memory, pool) = (null_mut(), null_mut());
    ur.urUSMDeviceAlloc(context.raw, both[1], null(), pool, BYTES, &mut memory)
        .ok()?;
    let done = commands(&own, &other, memory);
    done.and(ur.urUSMFree(context.raw, memory).ok())
}

/// Enqueues commands on one queue with memory of the other queue's device.
fn commands(own: &Queue, other: &Queue, memory: *mut c_void) -> Done {
    let (ur, q, list, none) = (own.ur, own.raw, null(), null_mut());
    other.fill(memory, 1_u8, BYTES, &[])?;
    other.finish()?;
    let (pattern, eight) = (2_u8, [3_u8; 8]);
    let from = (&raw const pattern).cast();
    if is_done(ur.urEnqueueUSMFill(q, memory, 1, from, 64, 0, list, none))? {
        own.finish()?;
        check_eq!(
            other.read::<u8>(memory, 65, &[])?[63..],
            [2, 1],
            "bytes around the end of a fill"
        );
    }
    let from = eight.as_ptr().cast();
    if is_done(ur.urEnqueueUSMFill(q, memory, 8, from, 64, 0, list, none))? {
        own.finish()?;
        check_eq!(
            other.read::<u8>(memory, 65, &[])?[63..],
            [3, 1],
            "bytes around the end of a fill with a pattern of eight bytes"
        );
    }
    let data = [4_u8; 64];
    let from = data.as_ptr().cast();
    if is_done(ur.urEnqueueUSMMemcpy(q, 1, memory, from, 64, 0, list, none))? {
        check_eq!(
            other.read::<u8>(memory, 65, &[])?[63..],
            [4, 1],
            "bytes around the end of a copy to the other device"
        );
    }
    let mut back = [0_u8; 64];
    let (to, from) = (back.as_mut_ptr().cast(), memory.wrapping_byte_add(64));
    if is_done(ur.urEnqueueUSMMemcpy(q, 1, to, from, 64, 0, list, none))? {
        check_all!(back, 1, "bytes of a copy from the other device");
    }
    let from = memory.wrapping_byte_add(64);
    back.fill(0);
    if is_done(ur.urEnqueueUSMMemcpy2D(q, 1, to, 8, from, 8, 8, 8, 0, list, none))? {
        check_all!(back, 1, "bytes of a 2D copy from the other device");
    }
    // A refused command has left the queue as it was.
    own.finish()
}

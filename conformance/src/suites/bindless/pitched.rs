//! Linear memory with padded rows.

use super::objects::*;
use crate::fixture::Fixture;
use crate::objects::{Context, Pool, alloc_info, released};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_eq};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["bindless"; pitched_memory, pitched_memory_of_a_pool, wrong_pitched_memory]
}

/// Pitched memory, freed on drop.
pub struct Pitched<'a> {
    context: &'a Context,
    pub ptr: *mut c_void,
    pub pitch: usize,
}

impl<'a> Pitched<'a> {
    #[track_caller]
    pub fn new(
        fixture: &Fixture,
        context: &'a Context,
        pool: ur_usm_pool_handle_t,
        [width, height]: [usize; 2],
    ) -> Result<Self, Stop> {
        let (mut ptr, mut pitch) = (null_mut(), 0);
        let (ur, device) = (fixture.ur, fixture.device);
        ur.urUSMPitchedAllocExp(
            context.raw,
            device,
            null(),
            pool,
            width,
            height,
            4,
            &mut ptr,
            &mut pitch,
        )
        .ok()?;
        Ok(Self {
            context,
            ptr,
            pitch,
        })
    }
}

impl Drop for Pitched<'_> {
    fn drop(&mut self) {
        released(self.context.ur.urUSMFree(self.context.raw, self.ptr));
    }
}

/// Rows of pitched memory have room for their bytes, begin as the device's images want it, and do not overlap.
fn pitched_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    let align: u32 = fixture.device_info(UR_DEVICE_INFO_IMAGE_PITCH_ALIGN_EXP)?;
    for [width, height] in [[4, 1], [100, 7], [4096, 16], [4100, 33]] {
        let memory = Pitched::new(fixture, &context, null_mut(), [width, height])?;
        let pitch = memory.pitch;
        check!(pitch >= width, "a pitch of {pitch} for {width} bytes");
        let aligned = pitch.is_multiple_of(align.max(1) as usize);
        check!(aligned, "a pitch of {pitch} where images want {align}");
        let kind: ur_usm_type_t = alloc_info(&context, memory.ptr, UR_USM_ALLOC_INFO_TYPE)?;
        check_eq!(kind, UR_USM_TYPE_DEVICE, "type of pitched memory");
        let size: usize = alloc_info(&context, memory.ptr, UR_USM_ALLOC_INFO_SIZE)?;
        check!(
            size >= pitch * (height - 1) + width,
            "{size} bytes for all rows"
        );
        for row in 0..height {
            let at = memory.ptr.wrapping_byte_add(row * pitch);
            queue.fill(at, row as u8 + 1, width, &[])?;
        }
        for row in 0..height {
            let at = memory.ptr.wrapping_byte_add(row * pitch);
            let found: Vec<u8> = queue.read(at, width, &[])?;
            crate::check_all!(found, row as u8 + 1, "bytes of row {row}");
        }
    }
    Ok(())
}

/// Pitched memory comes from the pool that the caller names.
fn pitched_memory_of_a_pool(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    let pool = Pool::new(fixture, &context)?;
    let memory = Pitched::new(fixture, &context, pool.raw, [100, 4])?;
    let found: ur_usm_pool_handle_t = alloc_info(&context, memory.ptr, UR_USM_ALLOC_INFO_POOL)?;
    check_eq!(found, pool.raw, "the pool of pitched memory");
    Ok(())
}

/// Pitched memory without rows, bytes or a known size of elements is refused.
fn wrong_pitched_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    let (ur, device) = (fixture.ur, fixture.device);
    let (mut ptr, mut pitch) = (null_mut(), 0);
    let mut attempt = |width, height, element| {
        let (pool, ptr, pitch) = (null_mut(), &mut ptr, &mut pitch);
        ur.urUSMPitchedAllocExp(
            context.raw,
            device,
            null(),
            pool,
            width,
            height,
            element,
            ptr,
            pitch,
        )
    };
    attempt(0, 4, 4).fails(UR_RESULT_ERROR_INVALID_USM_SIZE)?;
    attempt(100, 0, 4).fails(UR_RESULT_ERROR_INVALID_VALUE)?;
    attempt(100, 4, 0).fails(UR_RESULT_ERROR_INVALID_VALUE)?;
    attempt(100, 4, 12).fails(UR_RESULT_ERROR_INVALID_VALUE)?;
    let words = "the padded size is greater than `UR_DEVICE_INFO_MAX_MEM_ALLOC_SIZE`";
    attempt(1 << 40, 1 << 20, 4).fails_because(UR_RESULT_ERROR_INVALID_USM_SIZE, words)?;
    attempt(usize::MAX - 3, 4, 4).fails(UR_RESULT_ERROR_INVALID_USM_SIZE)
}

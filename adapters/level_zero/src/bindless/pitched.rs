//! Linear memory with padded rows.

use std::ffi::c_void;

use ur::abi::*;
use ur::object::{Error, Object, Result, ensure};
use ur::stream::{Context, Kind, UsmPool};

use super::{OfContext, able};
use crate::LevelZero;
use crate::device::Device;
use crate::exec;
use crate::lz::*;

/// The largest element in bytes.
const MAX_ELEMENT_BYTES: usize = 16;

/// `urUSMPitchedAllocExp`: the address, and the bytes from row to row. Memory of a pool, freed as any other.
///
/// The driver tells where a row of an image begins. `INVALID_USM_SIZE` without bytes in a row, `INVALID_VALUE` without
/// rows, and for an element that is too large or no power of two.
pub fn alloc(
    this: &OfContext,
    device: &Object<Device>,
    desc: Option<&ur_usm_desc_t>,
    pool: Option<&Object<UsmPool<LevelZero>>>,
    width: usize,
    height: usize,
    element: usize,
) -> Result<(*mut c_void, usize)> {
    able(this, device)?;
    let context = &this.domain().state().native;
    let query = context.api.zeMemGetPitchFor2dImage;
    let query = query.ok_or(Error::unsupported())?;
    ensure(width > 0, UR_RESULT_ERROR_INVALID_USM_SIZE)?;
    let known = height > 0 && element.is_power_of_two() && element <= MAX_ELEMENT_BYTES;
    ensure(known, UR_RESULT_ERROR_INVALID_VALUE)?;
    let too_large = Error::new(UR_RESULT_ERROR_INVALID_USM_SIZE);
    // What exceeds the device's memory is not asked about: the driver may count in fewer bits.
    let limit = exec::max_slab(device);
    let least = width.checked_mul(height).filter(|bytes| *bytes <= limit);
    least.ok_or(too_large)?;
    let mut pitch = 0;
    let (elements, bytes) = (width.div_ceil(element), element as u32);
    // SAFETY: a live context, and room for the answer.
    let code = unsafe {
        query(
            context.raw,
            device.raw(),
            elements,
            height,
            bytes,
            &mut pitch,
        )
    };
    check(code, "zeMemGetPitchFor2dImage")?;
    ensure(pitch >= width, UR_RESULT_ERROR_INVALID_USM_SIZE)?;
    let bytes = pitch.checked_mul(height).ok_or(too_large)?;
    let align = device.facts.pitch.pitchAlign.max(1).next_power_of_two();
    let given = desc.copied().unwrap_or_default();
    let desc = ur_usm_desc_t {
        align: given.align.max(u32::try_from(align).unwrap_or(1)),
        ..given
    };
    let kind = Kind::Device;
    let start = Context::alloc_now(this, kind, Some(device), Some(&desc), pool, bytes)?;
    Ok((start, pitch))
}

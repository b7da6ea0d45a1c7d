//! Linear memory with padded rows.

use std::ffi::c_void;

use ur::abi::*;
use ur::object::{Error, Object, Result, ensure};
use ur::stream::{Context, Kind, UsmPool};

use super::OfContext;
use crate::Cuda;
use crate::cu::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT;
use crate::device::Device;

/// Sizes of an element in bytes that rows can be padded for. Smaller ones count as the smallest.
const ELEMENT_BYTES: [usize; 3] = [4, 8, 16];

/// `urUSMPitchedAllocExp`: the address, and the bytes from row to row. Memory of a pool, freed as any other.
///
/// A row begins where a texture may: at multiples of the device's alignment of textures. `INVALID_VALUE` without
/// rows, and for an element that is too large or no power of two.
pub fn alloc(
    this: &OfContext,
    device: &Object<Device>,
    desc: Option<&ur_usm_desc_t>,
    pool: Option<&Object<UsmPool<Cuda>>>,
    width: usize,
    height: usize,
    element: usize,
) -> Result<(*mut c_void, usize)> {
    this.check_device(device)?;
    ensure(height > 0 && element > 0, UR_RESULT_ERROR_INVALID_VALUE)?;
    let known = ELEMENT_BYTES.contains(&element.max(ELEMENT_BYTES[0]));
    ensure(known, UR_RESULT_ERROR_INVALID_VALUE)?;
    let align = device.attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)?;
    let align = align.max(1).cast_unsigned().next_power_of_two();
    let too_large = Error::new(UR_RESULT_ERROR_INVALID_USM_SIZE);
    let pitch = width.checked_next_multiple_of(align as usize);
    let pitch = pitch.ok_or(too_large)?;
    let bytes = pitch.checked_mul(height).ok_or(too_large)?;
    let given = desc.copied().unwrap_or_default();
    let desc = ur_usm_desc_t {
        align: given.align.max(align),
        ..given
    };
    let kind = Kind::Device;
    let start = Context::alloc_now(this, kind, Some(device), Some(&desc), pool, bytes)?;
    Ok((start, pitch))
}

//! Handles of images: numbers that kernels take by value. Each is a native image of its own, a view of image memory or
//! an image over linear memory, and a sampled one has its sampler.

use std::ptr::{from_ref, null, with_exposed_provenance_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::hal::answers::{ImageRole, LinearRows, channels, coordinates};
use ur::object::{Error, Object, Result, ensure};

use super::limits;
use super::memory::{self, ImageMemory, described, shape_of};
use super::{OfContext, able, bindless, check_home, sampler};
use crate::device::Device;
use crate::image::NativeImage;
use crate::lz::*;

/// A handle: whether it is sampled, the device, and the number.
pub type HandleKey = (bool, usize, u64);

/// An image as kernels take it. It ends before its memory.
pub struct ImageHandle {
    _native: NativeImage,
    _memory: Option<Arc<ImageMemory>>,
}

const WRONG: Error = Error::new(UR_RESULT_ERROR_INVALID_VALUE);

fn key(is_sampled: bool, device: &Device, number: u64) -> HandleKey {
    (is_sampled, device.raw().0.expose_provenance(), number)
}

/// Gives a native image out. Returns its number.
fn give(
    this: &OfContext,
    device: &Object<Device>,
    is_sampled: bool,
    handle: ImageHandle,
) -> Result<ur_exp_image_native_handle_t> {
    let calls = able(this, device)?;
    handle._native.make_resident(device)?;
    let mut number = 0;
    // SAFETY: a live image, and room for the answer.
    let code = unsafe { (calls.offset)(handle._native.raw, &mut number) };
    check(code, "zeImageGetDeviceOffsetExp")?;
    let key = key(is_sampled, device, number);
    let before = bindless(this).handles.lock().insert(key, handle);
    debug_assert!(before.is_none(), "the driver gave out a live number");
    Ok(number as ur_exp_image_native_handle_t)
}

/// `INVALID_IMAGE_SIZE` unless a description has the sizes of the memory, `INVALID_VALUE` unless its pixels have.
fn check_same(
    own: &ImageMemory,
    (format, desc): (&ur_image_format_t, &ur_image_desc_t),
) -> Result<()> {
    let shape = shape_of(format, desc)?;
    let same = (shape.kind, shape.extent) == (own.shape.kind, own.shape.extent);
    ensure(same, UR_RESULT_ERROR_INVALID_IMAGE_SIZE)?;
    let of = |format: &ur_image_format_t| channels(format.channelOrder);
    let same = shape.pixel == own.shape.pixel && of(format) == of(&own.format);
    ensure(same, WRONG.code())
}

/// A view of image memory, which has no levels. The chain of `flags` makes it a handle. The levels of the description
/// have no meaning: the memory's have.
fn view(
    this: &OfContext,
    device: &Object<Device>,
    of: &NativeImage,
    what: (&ur_image_format_t, &ur_image_desc_t),
    flags: &ze_image_bindless_exp_desc_t,
) -> Result<NativeImage> {
    let calls = able(this, device)?;
    let desc = described(what.0, what.1, flags)?;
    let context = &this.domain().state().native;
    let mut raw = ze_image_handle_t::NULL;
    // SAFETY: the description and its chain have their tags and outlast the call; the image is live, and there is room
    // for the handle.
    let code = unsafe { (calls.view)(context.raw, device.raw(), &desc, of.raw, &mut raw) };
    check(code, "zeImageViewCreateExt")?;
    Ok(NativeImage::adopt(context, raw, true))
}

/// `urBindlessImagesUnsampledImageCreateExp`. `INVALID_VALUE` for a mipmap, and for numbers that are no image memory,
/// addresses of USM among them.
pub fn create_unsampled(
    this: &OfContext,
    device: &Object<Device>,
    image: ur_exp_image_mem_native_handle_t,
    format: &ur_image_format_t,
    desc: &ur_image_desc_t,
) -> Result<ur_exp_image_native_handle_t> {
    able(this, device)?;
    let memory = memory::find(this, image).ok_or(WRONG)?;
    check_home(&memory.device, device)?;
    check_same(&memory, (format, desc))?;
    let flags = ze_image_bindless_exp_desc_t {
        flags: ZE_IMAGE_BINDLESS_EXP_FLAG_BINDLESS,
        ..Default::default()
    };
    let handle = ImageHandle {
        _native: view(this, device, memory.native()?, (format, desc), &flags)?,
        _memory: Some(memory),
    };
    give(this, device, false, handle)
}

/// `urBindlessImagesSampledImageCreateExp`, over image memory or over USM. `INVALID_VALUE` for an address that the
/// context does not know, and for kinds that have no linear memory. `UNSUPPORTED_FEATURE` for a mipmap: the driver's
/// images have one level.
pub fn create_sampled(
    this: &OfContext,
    device: &Object<Device>,
    image: ur_exp_image_mem_native_handle_t,
    format: &ur_image_format_t,
    desc: &ur_image_desc_t,
    sampler: &ur_sampler_desc_t,
) -> Result<ur_exp_image_native_handle_t> {
    able(this, device)?;
    let what = (format, desc);
    let mut how = sampler::describe(sampler, coordinates(desc.r#type))?;
    let flags = ZE_IMAGE_BINDLESS_EXP_FLAG_BINDLESS | ZE_IMAGE_BINDLESS_EXP_FLAG_SAMPLED_IMAGE;
    let chained = |how: &ze_sampler_desc_t| ze_image_bindless_exp_desc_t {
        pNext: from_ref(how).cast(),
        flags,
        ..Default::default()
    };
    let handle = match memory::find(this, image) {
        Some(memory) => {
            check_home(&memory.device, device)?;
            check_same(&memory, what)?;
            let native = memory.native().map_err(|_| Error::unsupported())?;
            ImageHandle {
                _native: view(this, device, native, what, &chained(&how))?,
                _memory: Some(memory),
            }
        }
        None => {
            let row = check_linear(this, device, image, what)?;
            let place = ze_image_pitched_exp_desc_t {
                ptr: with_exposed_provenance_mut(image),
                ..Default::default()
            };
            how.pNext = from_ref(&place).cast();
            let native = over_linear(this, device, what, &chained(&how), row)?;
            ImageHandle {
                _native: native,
                _memory: None,
            }
        }
    };
    give(this, device, true, handle)
}

/// An image over linear memory, whose rows must lie at the driver's pitch. `UNSUPPORTED_FEATURE` for another one.
fn over_linear(
    this: &OfContext,
    device: &Object<Device>,
    (format, desc): (&ur_image_format_t, &ur_image_desc_t),
    flags: &ze_image_bindless_exp_desc_t,
    row: Option<usize>,
) -> Result<NativeImage> {
    let what = described(format, desc, flags)?;
    let native = NativeImage::create(&this.domain().state().native, device, &what)?;
    let mut found = ze_image_memory_properties_exp_t {
        pNext: null(),
        ..Default::default()
    };
    // SAFETY: a live image; the answer has its tag.
    unsafe {
        call!(
            device.api(),
            zeImageGetMemoryPropertiesExp(native.raw, &mut found)
        )
    }?;
    let same = row.is_none_or(|row| found.rowPitch == row as u64);
    ensure(same, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    Ok(native)
}

/// The pitch of USM that an image is made over, if it has several rows. `INVALID_VALUE` for addresses, pitches, levels and
/// kinds that images do not have, `INVALID_IMAGE_SIZE` beyond the allocation or the device's limits.
fn check_linear(
    this: &OfContext,
    device: &Object<Device>,
    address: usize,
    (format, desc): (&ur_image_format_t, &ur_image_desc_t),
) -> Result<Option<usize>> {
    let found = this.usm_at(address).ok_or(WRONG)?;
    let (shape, levels) = limits::check(device, (format, desc), ImageRole::Linear)?;
    ensure(levels == 1, WRONG.code())?;
    let [width, height, _] = shape.extent;
    let has_pitch = height > 1;
    let given = if has_pitch { desc.rowPitch } else { 0 };
    let rows = LinearRows::new(height, width * shape.pixel, given);
    let reported = &device.facts.pitch;
    let most = match reported.maxSupportedPitch {
        0 => usize::MAX,
        most => most,
    };
    ensure(rows.fit(1, most), WRONG.code())?;
    ensure(
        address.is_multiple_of(reported.pitchAlign.max(1)),
        WRONG.code(),
    )?;
    found.check_rows(address, &rows, |home| {
        Ok(home.raw() == device.raw() || device.reaches(home)?)
    })?;
    Ok(has_pitch.then_some(rows.pitch))
}

/// `urBindlessImagesUnsampledImageHandleDestroyExp` and its sampled form. `INVALID_VALUE` for other numbers.
pub fn destroy(
    this: &OfContext,
    device: &Object<Device>,
    image: ur_exp_image_native_handle_t,
    is_sampled: bool,
) -> Result<()> {
    able(this, device)?;
    let key = key(is_sampled, device, image as u64);
    let ended = bindless(this).handles.lock().remove(&key);
    // The driver's object ends without the lock. Kernels may use it, which takes no argument of it.
    this.drop_after_use(ended.ok_or(WRONG)?);
    Ok(())
}

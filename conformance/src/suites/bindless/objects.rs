//! Image memory and handles of images that end by themselves, and copies.

use crate::fixture::Fixture;
use crate::objects::{Context, Event, Kind, Queue, Usm, WaitList, released};
use crate::outcome::{Done, Stop};
use crate::status::Status;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use ur::abi::*;

/// Bytes of a pixel of each format here.
const PIXEL_BYTES: u64 = 4;

pub const RGBA8: ur_image_format_t = ur_image_format_t {
    channelOrder: UR_IMAGE_CHANNEL_ORDER_RGBA,
    channelType: UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8,
};

pub const R32: ur_image_format_t = ur_image_format_t {
    channelOrder: UR_IMAGE_CHANNEL_ORDER_R,
    channelType: UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT32,
};

pub const FLOAT: ur_image_format_t = ur_image_format_t {
    channelOrder: UR_IMAGE_CHANNEL_ORDER_R,
    channelType: UR_IMAGE_CHANNEL_TYPE_FLOAT,
};

fn is_layered(kind: ur_mem_type_t) -> bool {
    let layered = [
        UR_MEM_TYPE_IMAGE1D_ARRAY,
        UR_MEM_TYPE_IMAGE2D_ARRAY,
        UR_MEM_TYPE_IMAGE_CUBEMAP_EXP,
    ];
    layered.contains(&kind)
}

/// A description with only what its kind uses: layers and faces come third in `sizes`.
pub fn image(kind: ur_mem_type_t, sizes: [usize; 3]) -> ur_image_desc_t {
    let is_layered = is_layered(kind);
    let [width, height, depth] = sizes;
    ur_image_desc_t {
        r#type: kind,
        width,
        height,
        depth: if is_layered { 0 } else { depth },
        arraySize: if is_layered { depth } else { 0 },
        numMipLevel: 1,
        ..Default::default()
    }
}

/// A description of a mipmap.
pub fn mipmap(kind: ur_mem_type_t, sizes: [usize; 3], levels: u32) -> ur_image_desc_t {
    ur_image_desc_t {
        numMipLevel: levels,
        ..image(kind, sizes)
    }
}

/// The sizes of a mip level. Layers and faces stay as many.
pub fn level_of(kind: ur_mem_type_t, sizes: [usize; 3], level: u32) -> [usize; 3] {
    let half = |size: usize| match size {
        0 => 0,
        size => (size >> level).max(1),
    };
    let [width, height, third] = sizes;
    let third = if is_layered(kind) { third } else { half(third) };
    [half(width), half(height), third]
}

/// An image of each kind.
pub const KINDS: [(ur_mem_type_t, [usize; 3]); 6] = [
    (UR_MEM_TYPE_IMAGE1D, [13, 0, 0]),
    (UR_MEM_TYPE_IMAGE2D, [13, 7, 0]),
    (UR_MEM_TYPE_IMAGE3D, [13, 7, 5]),
    (UR_MEM_TYPE_IMAGE1D_ARRAY, [13, 0, 4]),
    (UR_MEM_TYPE_IMAGE2D_ARRAY, [13, 7, 3]),
    (UR_MEM_TYPE_IMAGE_CUBEMAP_EXP, [8, 8, 6]),
];

/// Pixels along each axis as copies count them.
pub fn extent(sizes: [usize; 3]) -> [u64; 3] {
    sizes.map(|size| size.max(1) as u64)
}

/// So many different pixels.
pub fn pixels(sizes: [usize; 3], seed: u32) -> Vec<u32> {
    let count = extent(sizes).iter().product::<u64>() as u32;
    let mixed = |at: u32| (at ^ seed).wrapping_mul(0x9e37_79b1).rotate_left(11);
    (0..count).map(mixed).collect()
}

/// Ends the test as unsupported on a device without bindless images, which must refuse an allocation.
pub fn need(fixture: &Fixture, context: &Context) -> Done {
    let desc = image(UR_MEM_TYPE_IMAGE2D, [4, 4, 0]);
    let mut made = 0;
    let (ur, context, device) = (fixture.ur, context.raw, fixture.device);
    let property = UR_DEVICE_INFO_BINDLESS_IMAGES_SUPPORT_EXP;
    fixture.require(property, || {
        ur.urBindlessImagesImageAllocateExp(context, device, &RGBA8, &desc, &mut made)
    })
}

/// Ends the test as unsupported unless the device has a property; the images of a device without it are not
/// tried.
pub fn need_property(fixture: &Fixture, property: ur_device_info_t) -> Done {
    match fixture.supports(property)? {
        true => Ok(()),
        false => Err(Stop::Unsupported {
            what: format!("{property:?} is false"),
            documented: true,
        }),
    }
}

/// Bytes that the address of an image in linear memory is a multiple of.
pub fn alignment(fixture: &Fixture) -> Result<u32, Stop> {
    let bits: u32 = fixture.device_info(UR_DEVICE_INFO_MEM_BASE_ADDR_ALIGN)?;
    Ok((bits / 8).max(1))
}

/// Device memory that may be an image.
#[track_caller]
pub fn aligned(fixture: &Fixture, context: &Context, size: usize) -> Result<Usm, Stop> {
    let align = alignment(fixture)?;
    Usm::new(
        context,
        fixture.device,
        Kind::Device,
        size,
        align,
        null_mut(),
    )
}

/// Whether a device has images of a kind.
pub fn has_kind(fixture: &Fixture, kind: ur_mem_type_t) -> Result<bool, Stop> {
    match kind {
        UR_MEM_TYPE_IMAGE1D_ARRAY | UR_MEM_TYPE_IMAGE2D_ARRAY => {
            fixture.supports(UR_DEVICE_INFO_IMAGE_ARRAY_SUPPORT_EXP)
        }
        UR_MEM_TYPE_IMAGE_CUBEMAP_EXP => fixture.supports(UR_DEVICE_INFO_CUBEMAP_SUPPORT_EXP),
        _ => Ok(true),
    }
}

/// Image memory, freed on drop.
pub struct Memory<'a> {
    context: &'a Context,
    device: ur_device_handle_t,
    pub raw: ur_exp_image_mem_native_handle_t,
    pub desc: ur_image_desc_t,
    pub format: ur_image_format_t,
}

impl<'a> Memory<'a> {
    #[track_caller]
    pub fn new(
        fixture: &Fixture,
        context: &'a Context,
        format: ur_image_format_t,
        desc: ur_image_desc_t,
    ) -> Result<Self, Stop> {
        let (ur, device, mut raw) = (fixture.ur, fixture.device, 0);
        ur.urBindlessImagesImageAllocateExp(context.raw, device, &format, &desc, &mut raw)
            .ok()?;
        Ok(Self::adopt(fixture, context, format, desc, raw))
    }

    /// Image memory of the test's.
    pub fn adopt(
        fixture: &Fixture,
        context: &'a Context,
        format: ur_image_format_t,
        desc: ur_image_desc_t,
        raw: ur_exp_image_mem_native_handle_t,
    ) -> Self {
        Self {
            context,
            device: fixture.device,
            raw,
            desc,
            format,
        }
    }

    /// The image memory of a level. It ends with its mipmap.
    #[track_caller]
    pub fn image_of_level(
        &self,
        fixture: &Fixture,
        level: u32,
    ) -> Result<ManuallyDrop<Self>, Stop> {
        let (status, raw) = self.level(level);
        status.ok()?;
        let (kind, desc) = (self.desc.r#type, &self.desc);
        let third = if is_layered(kind) {
            desc.arraySize
        } else {
            desc.depth
        };
        let own = image(
            kind,
            level_of(kind, [desc.width, desc.height, third], level),
        );
        let own = Self::adopt(fixture, self.context, self.format, own, raw);
        Ok(ManuallyDrop::new(own))
    }

    pub fn level(&self, level: u32) -> (Status, ur_exp_image_mem_native_handle_t) {
        let mut made = 0;
        let (ur, context) = (self.context.ur, self.context.raw);
        let status =
            ur.urBindlessImagesMipmapGetLevelExp(context, self.device, self.raw, level, &mut made);
        (status, made)
    }

    pub fn end(&self) -> Place<'_> {
        Place {
            at: std::ptr::with_exposed_provenance_mut(self.raw),
            desc: &self.desc,
            format: &self.format,
            is_image: true,
        }
    }

    /// A property.
    #[track_caller]
    pub fn get<T: Copy + Default>(&self, property: ur_image_info_t) -> Result<T, Stop> {
        let (mut value, mut size) = (T::default(), 0);
        let (ur, context, to) = (self.context.ur, self.context.raw, (&raw mut value).cast());
        ur.urBindlessImagesImageGetInfoExp(context, self.raw, property, to, &mut size)
            .ok()?;
        match size == size_of::<T>() {
            true => Ok(value),
            false => Err(Stop::failed(format!("{property:?} has {size} bytes"))),
        }
    }

    #[track_caller]
    pub fn unsampled(&self) -> Result<Image<'a>, Stop> {
        let (status, raw) = self.try_unsampled();
        status.ok()?;
        Ok(Image::adopt(self.context, self.device, raw, false))
    }

    pub fn try_unsampled(&self) -> (Status, ur_exp_image_native_handle_t) {
        let mut raw = 0;
        let (ur, context) = (self.context.ur, self.context.raw);
        let status = ur.urBindlessImagesUnsampledImageCreateExp(
            context,
            self.device,
            self.raw,
            &self.format,
            &self.desc,
            &mut raw,
        );
        (status, raw)
    }

    #[track_caller]
    pub fn sampled(&self, sampler: &ur_sampler_desc_t) -> Result<Image<'a>, Stop> {
        let what = (self.raw, &self.format, &self.desc);
        sampled(self.context, self.device, what, sampler)
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        let (ur, context) = (self.context.ur, self.context.raw);
        released(match self.desc.numMipLevel {
            0 | 1 => ur.urBindlessImagesImageFreeExp(context, self.device, self.raw),
            _ => ur.urBindlessImagesMipmapFreeExp(context, self.device, self.raw),
        });
    }
}

/// Image memory or an address, with its format and description.
pub type Described<'a> = (
    ur_exp_image_mem_native_handle_t,
    &'a ur_image_format_t,
    &'a ur_image_desc_t,
);

/// A sampled image over image memory or linear memory.
#[track_caller]
pub fn sampled<'a>(
    context: &'a Context,
    device: ur_device_handle_t,
    what: Described<'_>,
    sampler: &ur_sampler_desc_t,
) -> Result<Image<'a>, Stop> {
    let (status, raw) = try_sampled(context, device, what, sampler);
    status.ok()?;
    Ok(Image::adopt(context, device, raw, true))
}

pub fn try_sampled(
    context: &Context,
    device: ur_device_handle_t,
    (memory, format, desc): Described<'_>,
    sampler: &ur_sampler_desc_t,
) -> (Status, ur_exp_image_native_handle_t) {
    let mut raw = 0;
    let status = context.ur.urBindlessImagesSampledImageCreateExp(
        context.raw,
        device,
        memory,
        format,
        desc,
        sampler,
        &mut raw,
    );
    (status, raw)
}

/// A handle of an image, destroyed on drop.
pub struct Image<'a> {
    context: &'a Context,
    device: ur_device_handle_t,
    pub raw: ur_exp_image_native_handle_t,
    is_sampled: bool,
}

impl<'a> Image<'a> {
    fn adopt(
        context: &'a Context,
        device: ur_device_handle_t,
        raw: ur_exp_image_native_handle_t,
        is_sampled: bool,
    ) -> Self {
        Self {
            context,
            device,
            raw,
            is_sampled,
        }
    }
}

impl Drop for Image<'_> {
    fn drop(&mut self) {
        let (ur, context) = (self.context.ur, self.context.raw);
        released(match self.is_sampled {
            true => ur.urBindlessImagesSampledImageHandleDestroyExp(context, self.device, self.raw),
            false => {
                ur.urBindlessImagesUnsampledImageHandleDestroyExp(context, self.device, self.raw)
            }
        });
    }
}

/// A sampler without filters whose coordinates count pixels.
pub fn counting() -> ur_sampler_desc_t {
    ur_sampler_desc_t {
        normalizedCoords: 0,
        addressingMode: UR_SAMPLER_ADDRESSING_MODE_CLAMP_TO_EDGE,
        filterMode: UR_SAMPLER_FILTER_MODE_NEAREST,
        ..Default::default()
    }
}

/// A sampler without filters whose coordinates run from 0 to 1. Every kind and format has it.
pub fn nearest() -> ur_sampler_desc_t {
    ur_sampler_desc_t {
        normalizedCoords: 1,
        ..counting()
    }
}

/// A filtering sampler for images of floats, whose coordinates run from 0 to 1.
pub fn filtering() -> ur_sampler_desc_t {
    ur_sampler_desc_t {
        filterMode: UR_SAMPLER_FILTER_MODE_LINEAR,
        ..nearest()
    }
}

/// One end of a copy.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub at: *mut c_void,
    pub desc: &'a ur_image_desc_t,
    pub format: &'a ur_image_format_t,
    pub is_image: bool,
}

/// Linear memory with a description.
pub fn linear<'a>(
    at: *mut c_void,
    desc: &'a ur_image_desc_t,
    format: &'a ur_image_format_t,
) -> Place<'a> {
    Place {
        at,
        desc,
        format,
        is_image: false,
    }
}

/// A region that begins at the first pixel of both ends.
pub fn whole(sizes: [usize; 3]) -> ur_exp_image_copy_region_t {
    region([0; 3], [0; 3], extent(sizes))
}

pub fn region(src: [u64; 3], dst: [u64; 3], size: [u64; 3]) -> ur_exp_image_copy_region_t {
    // Along x the interface counts bytes.
    let bytes = |pixels: u64| pixels.saturating_mul(PIXEL_BYTES);
    let offset = |[x, y, z]: [u64; 3]| ur_rect_offset_t { x: bytes(x), y, z };
    let [width, height, depth] = size;
    ur_exp_image_copy_region_t {
        srcOffset: offset(src),
        dstOffset: offset(dst),
        copyExtent: ur_rect_region_t {
            width: bytes(width),
            height,
            depth,
        },
        ..Default::default()
    }
}

/// Which ends are image memory.
pub fn types(src: Place<'_>, dst: Place<'_>) -> ur_exp_image_copy_input_types_t {
    match (src.is_image, dst.is_image) {
        (false, true) => UR_EXP_IMAGE_COPY_INPUT_TYPES_MEM_TO_IMAGE,
        (true, false) => UR_EXP_IMAGE_COPY_INPUT_TYPES_IMAGE_TO_MEM,
        (false, false) => UR_EXP_IMAGE_COPY_INPUT_TYPES_MEM_TO_MEM,
        (true, true) => UR_EXP_IMAGE_COPY_INPUT_TYPES_IMAGE_TO_IMAGE,
    }
}

pub const TO_DEVICE: ur_exp_image_copy_flags_t = UR_EXP_IMAGE_COPY_FLAG_HOST_TO_DEVICE;
pub const TO_HOST: ur_exp_image_copy_flags_t = UR_EXP_IMAGE_COPY_FLAG_DEVICE_TO_HOST;
pub const ON_DEVICE: ur_exp_image_copy_flags_t = UR_EXP_IMAGE_COPY_FLAG_DEVICE_TO_DEVICE;

/// A copy, after a wait list. The event may be null.
pub fn try_copy(
    queue: &Queue,
    (src, dst): (Place<'_>, Place<'_>),
    region: &ur_exp_image_copy_region_t,
    flags: ur_exp_image_copy_flags_t,
    wait: &[&Event],
    event: *mut ur_event_handle_t,
) -> Status {
    let wait = WaitList::new(wait);
    queue.ur.urBindlessImagesImageCopyExp(
        queue.raw,
        src.at,
        dst.at,
        src.desc,
        dst.desc,
        src.format,
        dst.format,
        std::ptr::from_ref(region).cast_mut(),
        flags,
        types(src, dst),
        wait.count(),
        wait.pointer(),
        event,
    )
}

/// A copy, after a wait list. Returns its event.
#[track_caller]
pub fn copy(
    queue: &Queue,
    ends: (Place<'_>, Place<'_>),
    region: &ur_exp_image_copy_region_t,
    flags: ur_exp_image_copy_flags_t,
    wait: &[&Event],
) -> Result<Event, Stop> {
    queue.event(|event| try_copy(queue, ends, region, flags, wait, event))
}

/// Writes packed pixels to image memory and waits for it.
#[track_caller]
pub fn write<T>(queue: &Queue, image: &Memory<'_>, sizes: [usize; 3], data: &[T]) -> Done {
    let from = linear(data.as_ptr().cast_mut().cast(), &image.desc, &image.format);
    copy(queue, (from, image.end()), &whole(sizes), TO_DEVICE, &[])?.wait()
}

/// Reads image memory as packed pixels.
#[track_caller]
pub fn read<T: Copy + Default>(
    queue: &Queue,
    image: &Memory<'_>,
    sizes: [usize; 3],
) -> Result<Vec<T>, Stop> {
    let count = extent(sizes).iter().product::<u64>() as usize;
    let mut data = vec![T::default(); count];
    let to = linear(data.as_mut_ptr().cast(), &image.desc, &image.format);
    let status = try_copy(
        queue,
        (image.end(), to),
        &whole(sizes),
        TO_HOST,
        &[],
        null_mut(),
    );
    status.ok()?;
    queue.finish()?;
    Ok(data)
}

//! Images and samplers.

use super::event::WaitList;
use super::{Context, Event, Queue, info, owned};
use crate::fixture::Fixture;
use crate::outcome::{Done, Stop};
use crate::status::Status;
use std::ffi::c_void;
use std::ptr::null_mut;
use ur::abi::*;

owned!(
    /// An image.
    Image, ur_mem_handle_t, urMemRetain, urMemRelease
);

owned!(
    /// A sampler.
    Sampler, ur_sampler_handle_t, urSamplerRetain, urSamplerRelease
);

/// Four channels of a byte each, which every device has that has images.
pub const RGBA8: ur_image_format_t = ur_image_format_t {
    channelOrder: UR_IMAGE_CHANNEL_ORDER_RGBA,
    channelType: UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8,
};

/// The plain kinds of images.
pub const KINDS: [ur_mem_type_t; 5] = [
    UR_MEM_TYPE_IMAGE1D,
    UR_MEM_TYPE_IMAGE2D,
    UR_MEM_TYPE_IMAGE3D,
    UR_MEM_TYPE_IMAGE1D_ARRAY,
    UR_MEM_TYPE_IMAGE2D_ARRAY,
];

/// The description of an image with so many pixels along each of its axes, of which layers are the last.
pub fn desc(kind: ur_mem_type_t, [x, y, z]: [usize; 3]) -> ur_image_desc_t {
    let plain = ur_image_desc_t {
        r#type: kind,
        width: x,
        height: 1,
        depth: 1,
        arraySize: 1,
        ..Default::default()
    };
    match kind {
        UR_MEM_TYPE_IMAGE2D => ur_image_desc_t { height: y, ..plain },
        UR_MEM_TYPE_IMAGE3D => ur_image_desc_t {
            height: y,
            depth: z,
            ..plain
        },
        UR_MEM_TYPE_IMAGE1D_ARRAY => ur_image_desc_t {
            arraySize: y,
            ..plain
        },
        UR_MEM_TYPE_IMAGE2D_ARRAY => ur_image_desc_t {
            height: y,
            arraySize: z,
            ..plain
        },
        _ => plain,
    }
}

/// The sizes that an image of a kind has of these three; 1 for its other axes.
pub fn axes(kind: ur_mem_type_t, [x, y, z]: [usize; 3]) -> [usize; 3] {
    match kind {
        UR_MEM_TYPE_IMAGE1D => [x, 1, 1],
        UR_MEM_TYPE_IMAGE2D | UR_MEM_TYPE_IMAGE1D_ARRAY => [x, y, 1],
        _ => [x, y, z],
    }
}

pub fn offset([x, y, z]: [usize; 3]) -> ur_rect_offset_t {
    let [x, y, z] = [x, y, z].map(|size| size as u64);
    ur_rect_offset_t { x, y, z }
}

pub fn region(sizes: [usize; 3]) -> ur_rect_region_t {
    let [width, height, depth] = sizes.map(|size| size as u64);
    ur_rect_region_t {
        width,
        height,
        depth,
    }
}

/// A box of an image, and its pitches in host memory; 0 for packed.
#[derive(Clone, Copy)]
pub struct Part {
    pub origin: [usize; 3],
    pub region: [usize; 3],
    pub row_pitch: usize,
    pub slice_pitch: usize,
}

impl Part {
    pub fn packed(origin: [usize; 3], region: [usize; 3]) -> Self {
        Self {
            origin,
            region,
            row_pitch: 0,
            slice_pitch: 0,
        }
    }
}

impl Image {
    /// Stops the test unless the device has images.
    pub fn need(fixture: &Fixture, context: &Context) -> Done {
        fixture.require(UR_DEVICE_INFO_IMAGE_SUPPORT, || {
            let (flags, what) = (UR_MEM_FLAG_READ_WRITE, desc(UR_MEM_TYPE_IMAGE2D, [4, 4, 1]));
            let new = &mut null_mut();
            let ur = fixture.ur;
            ur.urMemImageCreate(context.raw, flags, &RGBA8, &what, null_mut(), new)
        })
    }

    #[track_caller]
    pub fn new(
        context: &Context,
        format: &ur_image_format_t,
        desc: &ur_image_desc_t,
    ) -> Result<Self, Stop> {
        Self::with(context, UR_MEM_FLAG_READ_WRITE, format, desc, null_mut())
    }

    #[track_caller]
    pub fn with(
        context: &Context,
        flags: ur_mem_flags_t,
        format: &ur_image_format_t,
        desc: &ur_image_desc_t,
        host: *mut c_void,
    ) -> Result<Self, Stop> {
        let mut raw = null_mut();
        let ur = context.ur;
        ur.urMemImageCreate(context.raw, flags, format, desc, host, &mut raw)
            .ok()?;
        Ok(Self::adopt(ur, raw))
    }

    /// An image in which each byte is the low byte of its place.
    #[track_caller]
    pub fn counted(
        context: &Context,
        queue: &Queue,
        kind: ur_mem_type_t,
        sizes: [usize; 3],
    ) -> Result<(Self, Vec<u8>), Stop> {
        let image = Self::new(context, &RGBA8, &desc(kind, sizes))?;
        let region = axes(kind, sizes);
        let bytes: Vec<u8> = (0..region.iter().product::<usize>() * 4)
            .map(|at| at as u8)
            .collect();
        image.write(queue, Part::packed([0; 3], region), &bytes)?;
        Ok((image, bytes))
    }

    #[track_caller]
    pub fn get<T: Copy>(&self, property: ur_image_info_t) -> Result<T, Stop> {
        info::value(|size, value, ret| {
            self.ur
                .urMemImageGetInfo(self.raw, property, size, value, ret)
        })
    }

    #[track_caller]
    pub fn mem<T: Copy>(&self, property: ur_mem_info_t) -> Result<T, Stop> {
        info::value(|size, value, ret| self.ur.urMemGetInfo(self.raw, property, size, value, ret))
    }

    /// The status of a read that does not block. The memory must last until it has ended.
    pub fn try_read(
        &self,
        queue: &Queue,
        part: Part,
        dst: *mut c_void,
        wait: &[&Event],
        event: *mut ur_event_handle_t,
    ) -> Status {
        let wait = WaitList::new(wait);
        self.ur.urEnqueueMemImageRead(
            queue.raw,
            self.raw,
            0,
            offset(part.origin),
            region(part.region),
            part.row_pitch,
            part.slice_pitch,
            dst,
            wait.count(),
            wait.pointer(),
            event,
        )
    }

    /// The status of a write that does not block. The memory must last until it has ended.
    pub fn try_write(
        &self,
        queue: &Queue,
        part: Part,
        src: *const c_void,
        wait: &[&Event],
        event: *mut ur_event_handle_t,
    ) -> Status {
        let wait = WaitList::new(wait);
        self.ur.urEnqueueMemImageWrite(
            queue.raw,
            self.raw,
            0,
            offset(part.origin),
            region(part.region),
            part.row_pitch,
            part.slice_pitch,
            src.cast_mut(),
            wait.count(),
            wait.pointer(),
            event,
        )
    }

    /// Writes a box from memory, blocking.
    #[track_caller]
    pub fn write(&self, queue: &Queue, part: Part, bytes: &[u8]) -> Done {
        let src = bytes.as_ptr().cast_mut().cast();
        self.ur
            .urEnqueueMemImageWrite(
                queue.raw,
                self.raw,
                1,
                offset(part.origin),
                region(part.region),
                part.row_pitch,
                part.slice_pitch,
                src,
                0,
                std::ptr::null(),
                null_mut(),
            )
            .ok()
    }

    /// Reads a box to memory, blocking.
    #[track_caller]
    pub fn read(&self, queue: &Queue, part: Part, bytes: &mut [u8]) -> Done {
        let dst = bytes.as_mut_ptr().cast();
        self.ur
            .urEnqueueMemImageRead(
                queue.raw,
                self.raw,
                1,
                offset(part.origin),
                region(part.region),
                part.row_pitch,
                part.slice_pitch,
                dst,
                0,
                std::ptr::null(),
                null_mut(),
            )
            .ok()
    }

    /// The bytes of a box of the image with so many bytes in a pixel, packed.
    #[track_caller]
    pub fn bytes(&self, queue: &Queue, region: [usize; 3], pixel: usize) -> Result<Vec<u8>, Stop> {
        let mut bytes = vec![0; region.iter().product::<usize>() * pixel];
        self.read(queue, Part::packed([0; 3], region), &mut bytes)?;
        Ok(bytes)
    }

    /// The status of a copy of a box to another image.
    pub fn try_copy(
        &self,
        queue: &Queue,
        to: &Self,
        (from, at, size): ([usize; 3], [usize; 3], [usize; 3]),
        wait: &[&Event],
        event: *mut ur_event_handle_t,
    ) -> Status {
        let wait = WaitList::new(wait);
        self.ur.urEnqueueMemImageCopy(
            queue.raw,
            self.raw,
            to.raw,
            offset(from),
            offset(at),
            region(size),
            wait.count(),
            wait.pointer(),
            event,
        )
    }
}

impl Sampler {
    #[track_caller]
    pub fn new(context: &Context, desc: &ur_sampler_desc_t) -> Result<Self, Stop> {
        let mut raw = null_mut();
        context
            .ur
            .urSamplerCreate(context.raw, desc, &mut raw)
            .ok()?;
        Ok(Self::adopt(context.ur, raw))
    }

    #[track_caller]
    pub fn get<T: Copy>(&self, property: ur_sampler_info_t) -> Result<T, Stop> {
        info::value(|size, value, ret| {
            self.ur
                .urSamplerGetInfo(self.raw, property, size, value, ret)
        })
    }
}

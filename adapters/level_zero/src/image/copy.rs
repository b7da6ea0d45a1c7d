//! Copies of boxes: between an image and memory, and between two images.

use std::ffi::c_void;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::hal::answers::{ImageBox, ImageShape};
use ur::object::Result;
use ur::stream::Pitched;

use super::Places;
use crate::exec::{List, Stream};
use crate::lz::*;

/// A box of an image.
#[derive(Clone)]
pub struct ImagePart {
    pub image: Arc<Places>,
    pub part: ImageBox,
}

/// One command.
#[derive(Clone)]
pub enum ImageCopy {
    ToMemory {
        dst: Pitched,
        src: ImagePart,
    },
    FromMemory {
        dst: ImagePart,
        src: Pitched,
    },
    Between {
        dst: ImagePart,
        src: ImagePart,
    },
    /// No command of its own: foreign code comes next, which may write the image.
    Foreign(ImagePart),
}

const NO_EVENT: ze_event_handle_t = ze_event_handle_t::NULL;

impl ImageCopy {
    /// Makes the native images of a lane's device current. Called before the command is appended to the lane's list.
    pub fn prepare(&self, lane: &Stream) -> Result<()> {
        match self {
            Self::ToMemory { src, .. } => src.image.bring(lane, false),
            Self::FromMemory { dst, .. } | Self::Foreign(dst) => dst.image.bring(lane, true),
            Self::Between { dst, src } => {
                src.image.bring(lane, false)?;
                dst.image.bring(lane, true)
            }
        }
    }

    pub fn append(&self, to: &List) -> Result<()> {
        match self {
            Self::ToMemory { dst, src } => src.transfer(to, *dst, false),
            Self::FromMemory { dst, src } => dst.transfer(to, *src, true),
            Self::Foreign(_) => Ok(()),
            Self::Between { dst, src } => between(
                to,
                (dst.native(to)?, &dst.part),
                (src.native(to)?, &src.part),
            ),
        }
    }
}

/// Copies between boxes of two images.
pub fn between(
    to: &List,
    (target, at): (ze_image_handle_t, &ImageBox),
    (source, from): (ze_image_handle_t, &ImageBox),
) -> Result<()> {
    let (at, from) = (region(at), region(from));
    let append = to.api.zeCommandListAppendImageCopyRegion;
    // SAFETY: live images of the list's device, which outlast the command, and boxes within them.
    let code = unsafe { append(to.raw, target, source, &at, &from, NO_EVENT, 0, null_mut()) };
    check(code, "zeCommandListAppendImageCopyRegion")?;
    to.keep_order()
}

/// A box as the driver counts: the layers of a 1D array are its rows, those of a 2D array its slices.
fn region(part: &ImageBox) -> ze_image_region_t {
    // An image's sizes have 32 bits.
    let [[x, y, z], [width, height, depth]] =
        [part.origin, part.region].map(|sizes| sizes.map(|size| size as u32));
    ze_image_region_t {
        originX: x,
        originY: y,
        originZ: z,
        width,
        height,
        depth,
    }
}

/// How the rows of a box lie in memory.
#[derive(Debug, PartialEq, Eq)]
enum Rows {
    /// One behind the other.
    Packed,
    /// At the driver's pitches of rows and slices.
    Pitched([u32; 2]),
    /// At pitches that the driver does not take.
    Each,
}

impl Rows {
    fn of(shape: &ImageShape, part: &ImageBox, memory: Pitched) -> Self {
        let [width, height, depth] = part.region;
        let packed = width * shape.pixel;
        // Layers of a 1D array are rows to one driver and slices to the next.
        let (row, slice) = match shape.has_layered_rows() {
            true => (memory.slice_pitch, memory.slice_pitch),
            false => (memory.row_pitch, memory.slice_pitch),
        };
        let rows_follow = height == 1 || row == packed;
        if rows_follow && (depth == 1 || slice == packed * height) {
            return Self::Packed;
        }
        match [row, slice].map(u32::try_from) {
            [Ok(row), Ok(slice)] => Self::Pitched([row, slice]),
            _ => Self::Each,
        }
    }
}

/// Where a row of a box lies in memory.
fn row_at(shape: &ImageShape, memory: Pitched, [row, slice]: [usize; 2]) -> usize {
    match shape.has_layered_rows() {
        true => memory.addr + row * memory.slice_pitch,
        false => memory.addr + slice * memory.slice_pitch + row * memory.row_pitch,
    }
}

impl ImagePart {
    fn native(&self, on: &List) -> Result<ze_image_handle_t> {
        Ok(self.image.native(&on.device)?.raw)
    }

    /// Copies between the box and memory; `writes` the image.
    fn transfer(&self, to: &List, memory: Pitched, writes: bool) -> Result<()> {
        let image = (self.native(to)?, self.image.shape());
        transfer(to, image, &self.part, memory, writes)
    }
}

/// Copies between a box of an image and memory; `writes` the image.
pub fn transfer(
    to: &List,
    (image, shape): (ze_image_handle_t, &ImageShape),
    part: &ImageBox,
    memory: Pitched,
    writes: bool,
) -> Result<()> {
    let each = || {
        let ([x, y, z], [width, rows, slices]) = (part.origin, part.region);
        for slice in 0..slices {
            for row in 0..rows {
                let line = ImageBox {
                    origin: [x, y + row, z + slice],
                    region: [width, 1, 1],
                };
                let at = row_at(shape, memory, [row, slice]);
                packed(to, (image, &line), at, writes)?;
            }
        }
        Ok(())
    };
    match Rows::of(shape, part, memory) {
        Rows::Packed => packed(to, (image, part), memory.addr, writes),
        Rows::Pitched(pitches) => {
            match pitched(to, (image, part), (memory.addr, pitches), writes) {
                Err(error) if error.code() == UR_RESULT_ERROR_UNSUPPORTED_FEATURE => each(),
                copied => copied,
            }
        }
        Rows::Each => each(),
    }
}

fn at(addr: usize) -> *mut c_void {
    with_exposed_provenance_mut(addr)
}

/// One command: rows that lie one behind the other in memory.
fn packed(
    to: &List,
    (image, part): (ze_image_handle_t, &ImageBox),
    memory: usize,
    writes: bool,
) -> Result<()> {
    let (region, memory) = (region(part), at(memory));
    // SAFETY: a live image that outlasts the command, and a box within it, for which the memory has room. No events are
    // waited for.
    let (code, name) = unsafe {
        match writes {
            true => (
                (to.api.zeCommandListAppendImageCopyFromMemory)(
                    to.raw,
                    image,
                    memory,
                    &region,
                    NO_EVENT,
                    0,
                    null_mut(),
                ),
                "zeCommandListAppendImageCopyFromMemory",
            ),
            false => (
                (to.api.zeCommandListAppendImageCopyToMemory)(
                    to.raw,
                    memory,
                    image,
                    &region,
                    NO_EVENT,
                    0,
                    null_mut(),
                ),
                "zeCommandListAppendImageCopyToMemory",
            ),
        }
    };
    check(code, name)?;
    to.keep_order()
}

/// One command: rows at pitches. `UNSUPPORTED_FEATURE` of a driver that takes none.
fn pitched(
    to: &List,
    (image, part): (ze_image_handle_t, &ImageBox),
    (memory, [row, slice]): (usize, [u32; 2]),
    writes: bool,
) -> Result<()> {
    let (region, memory) = (region(part), at(memory));
    let absent = || ur::object::Error::unsupported();
    // SAFETY: a live image that outlasts the command, and a box within it, for which the memory has room. No events are
    // waited for.
    let (code, name) = unsafe {
        match writes {
            true => {
                let append = to.api.zeCommandListAppendImageCopyFromMemoryExt;
                (
                    append.ok_or_else(absent)?(
                        to.raw,
                        image,
                        memory,
                        &region,
                        row,
                        slice,
                        NO_EVENT,
                        0,
                        null_mut(),
                    ),
                    "zeCommandListAppendImageCopyFromMemoryExt",
                )
            }
            false => {
                let append = to.api.zeCommandListAppendImageCopyToMemoryExt;
                (
                    append.ok_or_else(absent)?(
                        to.raw,
                        memory,
                        image,
                        &region,
                        row,
                        slice,
                        NO_EVENT,
                        0,
                        null_mut(),
                    ),
                    "zeCommandListAppendImageCopyToMemoryExt",
                )
            }
        }
    };
    check(code, name)?;
    to.keep_order()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(kind: ur_mem_type_t) -> ImageShape {
        let format = ur_image_format_t {
            channelOrder: UR_IMAGE_CHANNEL_ORDER_RGBA,
            channelType: UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8,
        };
        let desc = ur_image_desc_t {
            r#type: kind,
            width: 8,
            height: 4,
            depth: 3,
            arraySize: 2,
            ..Default::default()
        };
        ImageShape::new(&format, &desc).expect("a shape")
    }

    fn memory(row_pitch: usize, slice_pitch: usize) -> Pitched {
        Pitched {
            addr: 1000,
            row_pitch,
            slice_pitch,
        }
    }

    #[test]
    fn rows_lie_packed_or_at_pitches_or_each_for_itself() {
        let deep = shape(UR_MEM_TYPE_IMAGE3D);
        let rows =
            |shape: &ImageShape, row, slice| Rows::of(shape, &shape.whole(), memory(row, slice));
        assert_eq!(rows(&deep, 32, 128), Rows::Packed);
        assert_eq!(rows(&deep, 32, 132), Rows::Pitched([32, 132]));
        assert_eq!(rows(&deep, 36, 200), Rows::Pitched([36, 200]));
        assert_eq!(rows(&deep, 32, 1 << 33), Rows::Each);
        let line = shape(UR_MEM_TYPE_IMAGE1D);
        assert_eq!(rows(&line, 64, 64), Rows::Packed);
        let lines = shape(UR_MEM_TYPE_IMAGE1D_ARRAY);
        assert_eq!(rows(&lines, 32, 32), Rows::Packed);
        assert_eq!(rows(&lines, 32, 40), Rows::Pitched([40, 40]));
    }

    #[test]
    fn rows_have_places_in_memory() {
        let deep = shape(UR_MEM_TYPE_IMAGE3D);
        assert_eq!(row_at(&deep, memory(32, 130), [3, 2]), 1000 + 260 + 96);
        let lines = shape(UR_MEM_TYPE_IMAGE1D_ARRAY);
        assert_eq!(row_at(&lines, memory(32, 40), [1, 0]), 1040);
    }
}

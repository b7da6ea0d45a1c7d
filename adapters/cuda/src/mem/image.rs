//! Images: arrays of the driver, and what `urMemImageCreate` told of them.
//!
//! A kernel takes an image as the number of a surface. The device code of DPC++ reads and writes images of four
//! channels of 32 bits, or of half precision, and converts nothing; other images are for commands alone.
//!
//! An image over the host's memory (`UR_MEM_FLAG_USE_HOST_POINTER`) copies it as it is made. The last release of
//! one that commands may have written waits for them and copies it back.

use std::ffi::c_void;
use std::sync::Arc;

use ur::abi::*;
use ur::hal;
use ur::hal::answers::{ImageBox, ImageEnd, ImagePitch, ImageShape, buffer_flags, image_boxes};
use ur::object::{Error, Object, Result, ensure};
use ur::stream::{Pitched, Queue, Use, Work};

use super::{Mem, OfContext, Storage};
use crate::Cuda;
use crate::cu::sys::CUarray_format::*;
use crate::cu::sys::CUdevice;
use crate::device::Device;
use crate::driver::gpus;
use crate::exec::{BoxEnd, Boxes, Gpu, Native};
use crate::image::{Array, Arrays, Placed, Shape, Texel};

/// An image.
pub struct Image {
    pub format: ur_image_format_t,
    pub shape: ImageShape,
    /// Of the host memory that the image was made with; packed without any.
    pub pitch: ImagePitch,
    pub arrays: Arc<Arrays>,
    /// Address of the host's memory that the image is over.
    host: Option<usize>,
    /// Whether the device code of DPC++ handles such an image.
    is_for_kernels: bool,
}

/// The error for a handle that is not of an image, or is one where a buffer is needed.
pub(super) const OTHER_KIND: Error = Error::new(UR_RESULT_ERROR_INVALID_MEM_OBJECT);

/// The orders of channels that images have: a kernel gets the channels as they lie in memory.
const ORDERS: [ur_image_channel_order_t; 3] = [
    UR_IMAGE_CHANNEL_ORDER_R,
    UR_IMAGE_CHANNEL_ORDER_RG,
    UR_IMAGE_CHANNEL_ORDER_RGBA,
];

/// A box of an image, as one end of a copy.
#[derive(Clone, Copy)]
struct ImagePart<'a> {
    image: &'a Image,
    part: ImageBox,
}

impl Image {
    fn new(
        format: &ur_image_format_t,
        desc: &ur_image_desc_t,
        arrays: impl FnOnce(Shape, Texel) -> Result<Arc<Arrays>>,
    ) -> Result<Self> {
        let known = ORDERS.contains(&format.channelOrder);
        ensure(known, UR_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT)?;
        let texel = Texel::of(format)?;
        let shape = ImageShape::new(format, desc)?;
        let pitch = shape.host_pitch(desc)?;
        let wide = [
            CU_AD_FORMAT_UNSIGNED_INT32,
            CU_AD_FORMAT_SIGNED_INT32,
            CU_AD_FORMAT_HALF,
            CU_AD_FORMAT_FLOAT,
        ];
        Ok(Self {
            format: *format,
            shape,
            pitch,
            arrays: arrays(Shape::of(desc)?, texel)?,
            host: None,
            is_for_kernels: texel.channels == 4 && wide.contains(&texel.format),
        })
    }

    /// Whether the image's array is the caller's to destroy.
    pub fn is_over_foreign_array(&self) -> bool {
        let only = self.arrays.only();
        only.is_some_and(|placed| placed.array().is_foreign())
    }

    /// What a kernel takes on the image's only device, if it may.
    fn surface(&self) -> Option<usize> {
        let only = self.arrays.only().filter(|_| self.is_for_kernels)?;
        only.surface().ok()
    }

    /// Whether a kernel on a device takes the surface that is the memory object's address.
    pub(super) fn is_argument_on(&self, device: CUdevice) -> bool {
        self.arrays.is_only(device) && self.surface().is_some()
    }

    /// `ADAPTER_SPECIFIC`, with a message, if the device code of DPC++ does not handle such an image.
    pub fn check_for_kernels(&self) -> Result<()> {
        match self.is_for_kernels {
            true => self
                .arrays
                .only()
                .map_or(Ok(()), |only| only.surface().map(drop)),
            false => Err(Error::native(
                UR_RESULT_ERROR_ADAPTER_SPECIFIC,
                0,
                "kernels take images of four channels, of 32 bits or half precision",
            )),
        }
    }

    fn end_at(&self, origin: ur_rect_offset_t) -> ImageEnd<'_> {
        ImageEnd {
            shape: &self.shape,
            format: &self.format,
            origin,
        }
    }

    fn end(&self, placed: &Placed, part: &ImageBox) -> (BoxEnd, [usize; 3]) {
        let (origin, region) = native(&self.shape, part);
        (placed.end(origin), region)
    }
}

/// A box of an image as the driver counts: bytes, rows and slices, where layers are slices.
fn native(shape: &ImageShape, part: &ImageBox) -> ([usize; 3], [usize; 3]) {
    let ([x, y, z], [width, height, depth]) = (part.origin, part.region);
    let (x, width) = (x * shape.pixel, width * shape.pixel);
    match shape.has_layered_rows() {
        true => ([x, 0, y], [width, 1, height]),
        false => ([x, y, z], [width, height, depth]),
    }
}

/// The command that copies between a box of an image and host memory. `writes`: to the image.
fn host_copy(
    own: ImagePart<'_>,
    placed: &Arc<Placed>,
    at: usize,
    pitch: ImagePitch,
    writes: bool,
) -> Boxes {
    let (inside, region) = own.image.end(placed, &own.part);
    let outside = BoxEnd::Memory(Pitched {
        addr: at,
        row_pitch: pitch.row,
        slice_pitch: pitch.slice,
    });
    let (dst, src) = match writes {
        true => (inside, outside),
        false => (outside, inside),
    };
    Boxes::new(dst, src, region, vec![Arc::clone(placed) as _])
}

/// The command that copies between two images.
fn image_copy(
    (to, dst): (ImagePart<'_>, &Arc<Placed>),
    (from, src): (ImagePart<'_>, &Arc<Placed>),
) -> Boxes {
    let keeps = vec![Arc::clone(dst) as _, Arc::clone(src) as _];
    let is_alike = to.image.shape.has_layered_rows() == from.image.shape.has_layered_rows();
    if is_alike {
        let (target, region) = to.image.end(dst, &to.part);
        let (source, _) = from.image.end(src, &from.part);
        return Boxes::new(target, source, region, keeps);
    }
    // Rows of one are the layers of the other.
    let row = |part: &ImageBox, y: usize| ImageBox {
        origin: [part.origin[0], part.origin[1] + y, part.origin[2]],
        region: [part.region[0], 1, 1],
    };
    let ends = |y| {
        let (target, region) = to.image.end(dst, &row(&to.part, y));
        let (source, _) = from.image.end(src, &row(&from.part, y));
        (target, source, region)
    };
    let (target, source, region) = ends(0);
    let mut boxes = Boxes::new(target, source, region, keeps);
    for y in 1..to.part.region[1] {
        let (target, source, region) = ends(y);
        boxes.add(target, source, region);
    }
    boxes
}

impl Mem {
    /// `urMemImageCreate`. The shim has checked the flags against the host pointer.
    pub fn create_image(
        context: &OfContext,
        flags: ur_mem_flags_t,
        format: &ur_image_format_t,
        desc: &ur_image_desc_t,
        host: *mut c_void,
    ) -> Result<Arc<Object<Self>>> {
        check_support(context)?;
        let flags = buffer_flags(flags)?;
        let all = gpus(context.domain());
        let mut image = Image::new(format, desc, |shape, texel| {
            Ok(Arrays::new(all.iter().cloned(), shape, texel))
        })?;
        for device in context.devices() {
            let max = device.max_extent(image.shape.kind)?;
            image.shape.check_within(max)?;
        }
        // With one device the array is made at once. With several, each is made for its first use.
        let copies = UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER | UR_MEM_FLAG_USE_HOST_POINTER;
        let copies = flags.intersects(copies).then(|| host.expose_provenance());
        let first = &all[0];
        if all.len() == 1 || copies.is_some() {
            image.arrays.prepare(first.device)?;
        }
        if let Some(host) = copies {
            image.copy_host(first, host, true)?;
            image.arrays.is_written_on(first.device)?;
        }
        if flags.contains(UR_MEM_FLAG_USE_HOST_POINTER) {
            image.host = copies;
        }
        Ok(Self::of_image(context, flags, image))
    }

    /// `urMemImageCreateWithNativeHandle` of an array of the context's only device.
    pub fn image_from_native(
        context: &OfContext,
        native: ur_native_handle_t,
        format: &ur_image_format_t,
        desc: &ur_image_desc_t,
        properties: Option<&ur_mem_native_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        check_support(context)?;
        let [gpu] = gpus(context.domain()) else {
            return Err(Error::unsupported());
        };
        ensure(native != 0, UR_RESULT_ERROR_INVALID_VALUE)?;
        let raw = std::ptr::with_exposed_provenance_mut(native);
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        let image = Image::new(format, desc, |shape, texel| {
            // An array that is refused stays the caller's.
            let what = Array::adopt(gpu, raw, false).description()?;
            let is_same = (what.Width, what.Height, what.Depth)
                == (shape.width, shape.height, shape.depth)
                && (what.Format, what.NumChannels) == (texel.format, texel.channels);
            let wrong = UR_RESULT_ERROR_INVALID_IMAGE_FORMAT_DESCRIPTOR;
            ensure(is_same, wrong)?;
            Ok(Arrays::adopted(Array::adopt(gpu, raw, owned), shape, texel))
        })?;
        Ok(Self::of_image(context, UR_MEM_FLAG_READ_WRITE, image))
    }

    fn of_image(context: &OfContext, flags: ur_mem_flags_t, image: Image) -> Arc<Object<Self>> {
        let (surface, bytes) = (image.surface().unwrap_or(0), image.shape.bytes());
        let storage = Storage::Image(Arc::new(image));
        hal::new::<Cuda, _>(Self::new(context.arc(), flags, surface, bytes, storage))
    }

    /// The image that this is. `INVALID_MEM_OBJECT` for a buffer, or `UNSUPPORTED_FEATURE` if there are no images.
    pub fn image(&self) -> Result<&Arc<Image>> {
        match &self.storage {
            Storage::Image(image) => Ok(image),
            _ => Err(check_support(&self.context).err().unwrap_or(OTHER_KIND)),
        }
    }

    /// The image that this is, if it is one.
    pub fn as_image(&self) -> Option<&Arc<Image>> {
        match &self.storage {
            Storage::Image(image) => Some(image),
            _ => None,
        }
    }

    /// `INVALID_MEM_OBJECT` for an image.
    pub fn check_buffer(&self) -> Result<()> {
        ensure(self.as_image().is_none(), OTHER_KIND.code())
    }

    /// Prepares an image for a command of a device.
    fn image_for(&self, device: &Object<Device>, with: Use) -> Result<&Arc<Image>> {
        let image = self.image()?;
        image.arrays.prepare(device.raw())?;
        self.uses.add(with);
        Ok(image)
    }

    /// Work that copies a box of the image to host memory, or with `writes` from there.
    pub fn transfer_image(
        &self,
        device: &Object<Device>,
        (origin, region): (ur_rect_offset_t, ur_rect_region_t),
        (row_pitch, slice_pitch): (usize, usize),
        host: *mut c_void,
        writes: bool,
    ) -> Result<Work<Cuda>> {
        let shape = &self.image()?.shape;
        let part = shape.part(origin, region)?;
        let pitch = shape.pitch(&part, row_pitch, slice_pitch)?;
        let with = if writes { Use::Writes } else { Use::Reads };
        let image = self.image_for(device, with)?;
        let host = host.expose_provenance();
        let copy = move |image: &Image, placed: &Arc<Placed>| {
            host_copy(ImagePart { image, part }, placed, host, pitch, writes)
        };
        if let Some(placed) = image.arrays.only() {
            return Ok(boxes(copy(image, placed)));
        }
        let image = Arc::clone(image);
        Ok(Work::Native(Native::call(move |gpu, stream| {
            let placed = image.arrays.on(gpu, stream, writes)?;
            copy(&image, &placed).enqueue(gpu, stream)
        })))
    }

    /// Work that copies a box of an image to another one of the same format.
    pub fn copy_image(
        queue: &Object<Queue<Cuda>>,
        src: &Object<Self>,
        dst: &Object<Self>,
        from: ur_rect_offset_t,
        to: ur_rect_offset_t,
        region: ur_rect_region_t,
    ) -> Result<Work<Cuda>> {
        let device = queue.device();
        let (target, source) = (dst.image()?, src.image()?);
        let is_one = Arc::ptr_eq(&source.arrays, &target.arrays);
        let (to, from) = image_boxes(target.end_at(to), source.end_at(from), region, is_one)?;
        let source = Arc::clone(src.image_for(device, Use::Reads)?);
        let target = Arc::clone(dst.image_for(device, Use::Writes)?);
        let copy = move |source: &Image, target: &Image, read: &Arc<Placed>, written: &Arc<_>| {
            let part = |image, part| ImagePart { image, part };
            image_copy((part(target, to), written), (part(source, from), read))
        };
        if let (Some(read), Some(written)) = (source.arrays.only(), target.arrays.only()) {
            return Ok(boxes(copy(&source, &target, read, written)));
        }
        Ok(Work::Native(Native::call(move |gpu, stream| {
            let read = source.arrays.on(gpu, stream, false)?;
            let written = target.arrays.on(gpu, stream, true)?;
            copy(&source, &target, &read, &written).enqueue(gpu, stream)
        })))
    }
}

impl Image {
    /// Copies all of the image from host memory, or to it, and waits for that.
    fn copy_host(&self, gpu: &Arc<Gpu>, host: usize, writes: bool) -> Result<()> {
        let own = ImagePart {
            image: self,
            part: self.shape.whole(),
        };
        let copy = |stream, placed: &Arc<Placed>| {
            host_copy(own, placed, host, self.pitch, writes).enqueue(gpu, stream)
        };
        match self.arrays.only() {
            Some(placed) => gpu.at_once(|stream| copy(stream, placed)),
            None => gpu.on_new_stream(|stream| {
                let placed = self.arrays.on(gpu, stream, writes)?;
                copy(stream, &placed)
            }),
        }
    }

    /// The array on a device, for foreign code, which may read and write there. `finish` waits for all commands; it
    /// is called if the device's array is not the image's only one.
    pub(super) fn native_array(
        &self,
        device: &Object<Device>,
        finish: impl FnOnce() -> Result<()>,
    ) -> Result<usize> {
        let placed = self.arrays.prepare(device.raw())?;
        if self.arrays.only().is_none() {
            finish()?;
            let gpu = device.gpu()?;
            gpu.on_new_stream(|stream| self.arrays.on(&gpu, stream, true).map(drop))?;
        }
        Ok(placed.array().raw().expose_provenance())
    }

    /// Whether the image is over the host's memory.
    pub(super) fn is_over_host(&self) -> bool {
        self.host.is_some()
    }

    /// Copies the image back to the host's memory. All use is over.
    pub(super) fn bring_back(&self) {
        let (Some(host), Some(gpu)) = (self.host, self.arrays.current()) else {
            return;
        };
        if let Err(error) = self.copy_host(&gpu, host, false) {
            log::error!("what an image holds is lost: {:?}", error.code());
        }
    }
}

fn boxes(boxes: Boxes) -> Work<Cuda> {
    Work::Native(Native::Boxes(Arc::new(boxes)))
}

/// `UNSUPPORTED_FEATURE` if no device of a context has images.
fn check_support(context: &OfContext) -> Result<()> {
    let able = context.devices().iter().any(|device| device.has_images());
    ensure(able, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)
}

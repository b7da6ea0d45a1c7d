//! Images: native images, and what `urMemImageCreate` told of them.
//!
//! An image over the host's memory (`UR_MEM_FLAG_USE_HOST_POINTER`) copies it as it is made. The last release of one that
//! commands may have written waits for them and copies it back.

use std::ffi::c_void;
use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;

use ur::abi::*;
use ur::hal;
use ur::hal::answers::{ImageBox, ImageEnd, ImagePitch, ImageShape, buffer_flags, image_boxes};
use ur::object::{Error, Object, Result, ensure};
use ur::stream::{Pitched, Queue, Use, Work, in_user_function};

use super::{Mem, OfContext, Storage};
use crate::LevelZero;
use crate::device::Device;
use crate::exec::{self, Native};
use crate::image::{ImageCopy, ImagePart, NativeImage, Places, described};
use crate::lz::*;

/// An image.
pub struct Image {
    pub format: ur_image_format_t,
    pub shape: ImageShape,
    /// Of the host memory that the image was made with; packed without any.
    pub pitch: ImagePitch,
    places: Arc<Places>,
    /// Address of the host's memory that the image is over.
    host: Option<usize>,
}

/// The error for a handle that is not of an image, or is one where a buffer is needed.
const OTHER_KIND: Error = Error::new(UR_RESULT_ERROR_INVALID_MEM_OBJECT);

impl Image {
    fn new(
        format: &ur_image_format_t,
        desc: &ur_image_desc_t,
        places: impl FnOnce(ImageShape) -> Arc<Places>,
    ) -> Result<Self> {
        let shape = ImageShape::new(format, desc)?;
        Ok(Self {
            format: *format,
            shape,
            pitch: shape.host_pitch(desc)?,
            places: places(shape),
            host: None,
        })
    }

    fn end_at(&self, origin: ur_rect_offset_t) -> ImageEnd<'_> {
        ImageEnd {
            shape: &self.shape,
            format: &self.format,
            origin,
        }
    }

    /// A box for a command of a device.
    fn part(&self, device: &Object<Device>, part: ImageBox) -> Result<ImagePart> {
        self.places.native(device)?;
        Ok(ImagePart {
            image: Arc::clone(&self.places),
            part,
        })
    }

    /// All of the image, as the end of a copy.
    fn whole(&self) -> ImagePart {
        ImagePart {
            image: Arc::clone(&self.places),
            part: self.shape.whole(),
        }
    }

    /// Whether the image is over the host's memory.
    pub(super) fn is_over_host(&self) -> bool {
        self.host.is_some()
    }

    fn memory(&self, addr: usize) -> Pitched {
        Pitched {
            addr,
            row_pitch: self.pitch.row,
            slice_pitch: self.pitch.slice,
        }
    }

    /// Copies the image back to the host's memory. All use is over.
    pub(super) fn bring_back(&self, context: &OfContext) {
        let (Some(host), Some(device)) = (self.host, self.places.current()) else {
            return;
        };
        let (dst, src) = (self.memory(host), self.whole());
        let copy = ImageCopy::ToMemory { dst, src };
        let native = &context.domain().state().native;
        if let Err(error) = exec::run_now(native, device, work(copy)) {
            log::error!("what an image holds is lost: {:?}", error.code());
        }
    }

    /// The native image of a device, for foreign code, which may read and write it. Waits for all commands if the image
    /// has several native images.
    pub(super) fn native(&self, context: &OfContext, device: &Object<Device>) -> Result<usize> {
        let raw = self.places.native(device)?.raw;
        if !self.places.is_single() {
            // A user function is a part of enqueued work.
            if !in_user_function() {
                context.finish()?;
            }
            let native = &context.domain().state().native;
            exec::run_now(native, device, work(ImageCopy::Foreign(self.whole())))?;
        }
        Ok(raw.0.expose_provenance())
    }
}

fn work(copy: ImageCopy) -> Work<LevelZero> {
    Work::Native(Native::Image(Arc::new(copy)))
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
        let is_written = !flags.contains(UR_MEM_FLAG_READ_ONLY);
        let native = &context.domain().state().native;
        let desc_of_driver = described(format, desc, is_written)?;
        let places = |shape| Places::new(native, context.devices(), desc_of_driver, shape);
        let mut image = Image::new(format, desc, places)?;
        let able = || context.devices().iter().filter(|one| one.has_images());
        for device in able() {
            image
                .shape
                .check_within(device.max_extent(image.shape.kind))?;
        }
        // The first native image is made at once, so that a format that the driver refuses is an error here.
        let first = able().next().ok_or(Error::unsupported())?;
        image.places.native(first)?;
        let copies = UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER | UR_MEM_FLAG_USE_HOST_POINTER;
        if flags.intersects(copies) {
            let start = host.expose_provenance();
            let (dst, src) = (image.whole(), image.memory(start));
            exec::run_now(native, first, work(ImageCopy::FromMemory { dst, src }))?;
            if flags.contains(UR_MEM_FLAG_USE_HOST_POINTER) {
                image.host = Some(start);
            }
        }
        Ok(Self::of_image(context, flags, image))
    }

    /// `urMemImageCreateWithNativeHandle`. The driver does not tell the device of an image: it is the context's first.
    pub fn image_from_native(
        context: &OfContext,
        native: ur_native_handle_t,
        format: &ur_image_format_t,
        desc: &ur_image_desc_t,
        properties: Option<&ur_mem_native_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        check_support(context)?;
        ensure(native != 0, UR_RESULT_ERROR_INVALID_VALUE)?;
        let state = &context.domain().state().native;
        let desc_of_driver = described(format, desc, true)?;
        let image = Image::new(format, desc, |shape| {
            let raw = ze_image_handle_t(with_exposed_provenance_mut(native));
            let adopted = NativeImage::adopt(state, raw, owned);
            Places::adopted(adopted, state, context.devices(), desc_of_driver, shape)
        })?;
        Ok(Self::of_image(context, UR_MEM_FLAG_READ_WRITE, image))
    }

    fn of_image(context: &OfContext, flags: ur_mem_flags_t, image: Image) -> Arc<Object<Self>> {
        let bytes = image.shape.bytes();
        let storage = Storage::Image(Arc::new(image));
        hal::new::<LevelZero, _>(Self::new(context.arc(), flags, 0, bytes, storage))
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

    /// Records that a kernel uses the image, as the argument's flags say. Returns the image, and whether it is written.
    pub fn image_for_kernel(&self, flags: ur_mem_flags_t) -> Option<(Arc<Places>, bool)> {
        let image = self.as_image()?;
        let with = self.use_by(flags);
        self.uses.add(with);
        Some((Arc::clone(&image.places), with == Use::Writes))
    }

    /// Work that copies a box of the image to host memory, or with `writes` from there.
    pub fn transfer_image(
        &self,
        device: &Object<Device>,
        (origin, region): (ur_rect_offset_t, ur_rect_region_t),
        (row_pitch, slice_pitch): (usize, usize),
        host: *mut c_void,
        writes: bool,
    ) -> Result<Work<LevelZero>> {
        let image = self.image()?;
        let part = image.shape.part(origin, region)?;
        let pitch = image.shape.pitch(&part, row_pitch, slice_pitch)?;
        let own = image.part(device, part)?;
        let memory = Pitched {
            addr: host.expose_provenance(),
            row_pitch: pitch.row,
            slice_pitch: pitch.slice,
        };
        let (with, copy) = match writes {
            true => (
                Use::Writes,
                ImageCopy::FromMemory {
                    dst: own,
                    src: memory,
                },
            ),
            false => (
                Use::Reads,
                ImageCopy::ToMemory {
                    dst: memory,
                    src: own,
                },
            ),
        };
        self.uses.add(with);
        Ok(work(copy))
    }

    /// Work that copies a box of an image to another one of the same format.
    pub fn copy_image(
        queue: &Object<Queue<LevelZero>>,
        src: &Object<Self>,
        dst: &Object<Self>,
        from: ur_rect_offset_t,
        to: ur_rect_offset_t,
        region: ur_rect_region_t,
    ) -> Result<Work<LevelZero>> {
        let device = queue.device();
        let (target, source) = (dst.image()?, src.image()?);
        let is_one = Arc::ptr_eq(&source.places, &target.places);
        let (to, from) = image_boxes(target.end_at(to), source.end_at(from), region, is_one)?;
        let (source, target) = (source.part(device, from)?, target.part(device, to)?);
        src.uses.add(Use::Reads);
        dst.uses.add(Use::Writes);
        Ok(work(ImageCopy::Between {
            dst: target,
            src: source,
        }))
    }
}

/// `UNSUPPORTED_FEATURE` if no device of a context has images.
fn check_support(context: &OfContext) -> Result<()> {
    let able = context.devices().iter().any(|device| device.has_images());
    ensure(able, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)
}

//! Images and samplers: OpenCL's where that is there. Else, and behind bindless images, which OpenCL lacks, an image is
//! bytes that only copies reach.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ze::*;

use crate::entry::{Answer, chained, given, put};
use crate::memory::{self, Mapped};
use crate::object::{Objects, hold};
use crate::worker::Place;
use crate::{cl, context, device, script};

/// The commands that were submitted and are not done, of an object.
#[derive(Clone, Default)]
pub struct Uses(Arc<AtomicUsize>);

/// A submitted command of an object, until it is done.
pub struct Using(Uses);

impl Uses {
    pub fn begin(&self) -> Using {
        self.0.fetch_add(1, Ordering::AcqRel);
        Using(self.clone())
    }

    /// The interface forbids to destroy what a command uses. Those of a lost device run no more.
    pub fn check_over(&self, kind: &str, device: usize) {
        let runs = script::device_present(device).is_ok();
        if runs && self.0.load(Ordering::Acquire) > 0 {
            script::broken(format!("a {kind} is destroyed in use"));
        }
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

pub struct Image {
    pub device: usize,
    pub uses: Uses,
    /// Pixels along the axes. Layers are the last axis.
    extent: [usize; 3],
    /// Whether the second axis counts layers.
    has_layered_rows: bool,
    /// Bytes of a pixel.
    pixel: usize,
    /// Shared with its views.
    pixels: Arc<Pixels>,
    /// What kernels take for it; none unless it is bindless.
    number: Option<u64>,
}

enum Pixels {
    Cl(cl::Image),
    Bytes(Bytes),
}

/// Pixels in memory, row by row and slice by slice.
struct Bytes {
    place: Place,
    _owner: Owner,
    busy: Mutex<()>,
}

#[allow(dead_code, reason = "memory that is kept")]
enum Owner {
    Own(Box<[u8]>),
    Imported(Mapped),
    /// The caller's.
    Foreign,
}

/// A row of linear memory begins at a multiple of these bytes.
pub const PITCH_BYTES: usize = 64;

/// The next bindless image's number: the place of its state, which has 64 bytes. No other argument of a kernel is alike.
static NEXT: AtomicU64 = AtomicU64::new(0x5eed_1a6e_0000_0040);

impl Bytes {
    fn at(owner: Owner, start: usize, pitch: usize, rows: usize) -> Self {
        let slice = pitch * rows;
        #[rustfmt::skip]
        let place = Place { start, pitch, slice };
        Self {
            place,
            _owner: owner,
            busy: Mutex::new(()),
        }
    }

    fn own(row: usize, [_, rows, slices]: [usize; 3]) -> Self {
        let mut bytes = vec![0_u8; row * rows * slices].into_boxed_slice();
        let start = bytes.as_mut_ptr().expose_provenance();
        Self::at(Owner::Own(bytes), start, row, rows)
    }

    /// The bytes behind a bindless image: the caller's linear memory, an import, or new ones.
    ///
    /// # Safety
    /// `next` is a chain.
    unsafe fn bindless(next: *const c_void, row: usize, extent: [usize; 3]) -> Answer<Self> {
        let [_, rows, slices] = extent;
        // SAFETY: as the caller promises.
        let (given, file) = unsafe {
            (
                chained::<ze_image_pitched_exp_desc_t>(next),
                memory::file(next, row * rows * slices)?,
            )
        };
        if let Some(given) = given {
            let start = given.ptr.expose_provenance();
            if start == 0 || !start.is_multiple_of(PITCH_BYTES) {
                return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
            }
            let pitch = row.next_multiple_of(PITCH_BYTES);
            return Ok(Self::at(Owner::Foreign, start, pitch, rows));
        }
        let Some(file) = file else {
            return Ok(Self::own(row, extent));
        };
        let mapped = Mapped::of(file, row * rows * slices);
        let mapped = mapped.ok_or(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)?;
        let start = mapped.start;
        Ok(Self::at(Owner::Imported(mapped), start, row, rows))
    }
}

pub struct Sampler {
    pub device: usize,
    pub uses: Uses,
    pub code: Option<cl::Sampler>,
}

pub static IMAGES: Objects<Image> = Objects::of("image");
pub static SAMPLERS: Objects<Sampler> = Objects::of("sampler");

/// A box of an image, in pixels.
#[derive(Clone, Copy)]
pub struct Part {
    pub origin: [usize; 3],
    pub region: [usize; 3],
}

/// Channels, bytes of a channel.
#[rustfmt::skip]
const LAYOUTS: [(ze_image_format_layout_t, usize, usize); 9] = [
    (ZE_IMAGE_FORMAT_LAYOUT_8, 1, 1),
    (ZE_IMAGE_FORMAT_LAYOUT_16, 1, 2),
    (ZE_IMAGE_FORMAT_LAYOUT_32, 1, 4),
    (ZE_IMAGE_FORMAT_LAYOUT_8_8, 2, 1),
    (ZE_IMAGE_FORMAT_LAYOUT_16_16, 2, 2),
    (ZE_IMAGE_FORMAT_LAYOUT_32_32, 2, 4),
    (ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8, 4, 1),
    (ZE_IMAGE_FORMAT_LAYOUT_16_16_16_16, 4, 2),
    (ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32, 4, 4),
];

/// Whether a description is of a bindless image. A sampled one brings its sampler.
///
/// # Safety
/// The description has a chain.
unsafe fn is_bindless(desc: &ze_image_desc_t) -> Answer<bool> {
    // SAFETY: as the caller promises.
    let (flags, sampler) = unsafe {
        (
            chained::<ze_image_bindless_exp_desc_t>(desc.pNext).map_or(0, |own| own.flags),
            chained::<ze_sampler_desc_t>(desc.pNext),
        )
    };
    let is_sampled = flags & ZE_IMAGE_BINDLESS_EXP_FLAG_SAMPLED_IMAGE != 0;
    match is_sampled == sampler.is_some() {
        true => Ok(flags & ZE_IMAGE_BINDLESS_EXP_FLAG_BINDLESS != 0),
        false => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
    }
}

impl Image {
    /// # Safety
    /// The description has a chain.
    unsafe fn new(device: usize, desc: &ze_image_desc_t, of: Option<&Self>) -> Answer<Self> {
        let unknown = ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT;
        let found = LAYOUTS.iter().find(|(own, ..)| *own == desc.format.layout);
        let (_, channels, bytes) = *found.ok_or(unknown)?;
        let size = |value: u32| value as usize;
        let width = usize::try_from(desc.width).map_err(|_| ZE_RESULT_ERROR_UNSUPPORTED_SIZE)?;
        let (height, depth, layers) = (size(desc.height), size(desc.depth), size(desc.arraylevels));
        let (flat, deep) = (size(device::IMAGE_EXTENT), size(device::IMAGE_3D_EXTENT));
        let most_layers = size(device::IMAGE_LAYERS);
        let (extent, most) = match desc.r#type {
            ZE_IMAGE_TYPE_1D => ([width, 1, 1], [flat, 1, 1]),
            ZE_IMAGE_TYPE_2D => ([width, height, 1], [flat, flat, 1]),
            ZE_IMAGE_TYPE_3D => ([width, height, depth], [deep; 3]),
            ZE_IMAGE_TYPE_1DARRAY => ([width, layers, 1], [flat, most_layers, 1]),
            ZE_IMAGE_TYPE_2DARRAY => ([width, height, layers], [flat, flat, most_layers]),
            _ => return Err(ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION),
        };
        let fits = |(own, most): (&usize, &usize)| (1..=*most).contains(own);
        if !extent.iter().zip(&most).all(fits) || desc.miplevels != 0 {
            return Err(ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
        }
        let pixel = channels * bytes;
        let row = width * pixel;
        // SAFETY: as the caller promises.
        let is_bindless = unsafe { is_bindless(desc) }?;
        let pixels = match (of, cl::get()) {
            (Some(of), _) if of.extent == extent && of.pixel == pixel => of.pixels.clone(),
            (Some(_), _) => return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
            // SAFETY: as the caller promises.
            (None, _) if is_bindless => Arc::new(Pixels::Bytes(unsafe {
                Bytes::bindless(desc.pNext, row, extent)
            }?)),
            (None, Some(cl)) => Arc::new(Pixels::Cl(cl::Image::create(cl, desc, extent, bytes)?)),
            (None, None) => Arc::new(Pixels::Bytes(Bytes::own(row, extent))),
        };
        Ok(Self {
            device,
            uses: Uses::default(),
            extent,
            has_layered_rows: desc.r#type == ZE_IMAGE_TYPE_1DARRAY,
            pixel,
            pixels,
            number: is_bindless.then(|| NEXT.fetch_add(64, Ordering::Relaxed)),
        })
    }

    pub fn code(&self) -> Option<&cl::Image> {
        match &*self.pixels {
            Pixels::Cl(image) => Some(image),
            Pixels::Bytes(_) => None,
        }
    }

    /// A box of the image, or all of it for none.
    pub fn part(&self, region: Option<&ze_image_region_t>) -> Answer<Part> {
        let Some(given) = region else {
            return Ok(Part {
                origin: [0; 3],
                region: self.extent,
            });
        };
        let sizes = |all: [u32; 3]| all.map(|one| one as usize);
        let part = Part {
            origin: sizes([given.originX, given.originY, given.originZ]),
            region: sizes([given.width, given.height, given.depth]),
        };
        let inside = (0..3).all(|axis| {
            part.region[axis] > 0 && part.origin[axis] + part.region[axis] <= self.extent[axis]
        });
        match inside {
            true => Ok(part),
            false => {
                script::broken("a box that is not of its image".into());
                Err(ZE_RESULT_ERROR_INVALID_ARGUMENT)
            }
        }
    }

    /// Where a box lies in memory: packed without pitches.
    pub fn place(&self, start: usize, part: &Part, pitches: Option<(u32, u32)>) -> Answer<Place> {
        let [width, height, _] = part.region;
        let packed = width * self.pixel;
        let rows = if self.has_layered_rows { 1 } else { height };
        let (row, slice) = match pitches {
            Some((row, slice)) if self.has_layered_rows => (row.max(slice), slice.max(row)),
            Some(pitches) => pitches,
            None => (0, 0),
        };
        let pitch = if row == 0 { packed } else { row as usize };
        let slice = if slice == 0 {
            pitch * rows
        } else {
            slice as usize
        };
        match pitch >= packed && slice >= pitch * rows {
            true => Ok(Place {
                start,
                pitch,
                slice,
            }),
            false => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
        }
    }

    /// Copies a box to memory, or with `writes` from there.
    ///
    /// # Safety
    /// The memory has room for the box.
    pub unsafe fn transfer(&self, part: &Part, memory: Place, writes: bool) -> Answer {
        match &*self.pixels {
            // SAFETY: as the caller promises.
            Pixels::Cl(image) => unsafe {
                image.transfer(part, (memory.start, memory.pitch, memory.slice), writes)
            },
            Pixels::Bytes(bytes) => {
                let _busy = hold(&bytes.busy);
                let [x, y, z] = part.origin;
                let [width, height, depth] = part.region;
                for slice in 0..depth {
                    for row in 0..height {
                        let own = bytes.place.start
                            + (z + slice) * bytes.place.slice
                            + (y + row) * bytes.place.pitch
                            + x * self.pixel;
                        let own: *mut u8 = ptr::with_exposed_provenance_mut(own);
                        let count = width * self.pixel;
                        let down = match self.has_layered_rows {
                            true => row * memory.slice,
                            false => slice * memory.slice + row * memory.pitch,
                        };
                        let at: *mut u8 = ptr::with_exposed_provenance_mut(memory.start + down);
                        // SAFETY: as the caller promises; the box is the image's, whose bytes are kept.
                        unsafe {
                            match writes {
                                true => own.copy_from(at, count),
                                false => own.copy_to(at, count),
                            }
                        }
                    }
                }
                Ok(())
            }
        }
    }

    /// Copies a box of another image to this one. Only the bytes of pixels have to be alike.
    pub fn copy(&self, part: &Part, from: &Self, from_part: &Part) -> Answer {
        let count: usize = part.region.iter().product();
        let mut bytes = vec![0_u8; count * self.pixel];
        let start = bytes.as_mut_ptr().expose_provenance();
        let [source, target] = [
            from.place(start, from_part, None)?,
            self.place(start, part, None)?,
        ];
        // SAFETY: the bytes are those of both boxes.
        unsafe {
            from.transfer(from_part, source, false)?;
            self.transfer(part, target, true)
        }
    }

    /// Whether boxes of both images may be copied.
    pub fn is_like(&self, part: &Part, from: &Self, from_part: &Part) -> bool {
        self.pixel == from.pixel && part.region == from_part.region
    }
}

/// Begins the use of a bindless image by a kernel that takes this number.
pub fn begin_by_number(number: u64) -> Option<Using> {
    let found = IMAGES.find(|image| image.number == Some(number))?;
    Some(found.uses.begin())
}

/// Finds an image for a command of a device.
pub fn get(image: ze_image_handle_t, list: ze_device_handle_t) -> Answer<Arc<Image>> {
    let image = IMAGES.get(image.0)?;
    check_device("image", image.device, list)?;
    Ok(image)
}

/// A device reaches its own images and samplers alone.
pub fn check_device(kind: &str, own: usize, list: ze_device_handle_t) -> Answer {
    match device::index(list)? == own {
        true => Ok(()),
        false => {
            script::broken(format!("an {kind} of another device"));
            Err(ZE_RESULT_ERROR_INVALID_ARGUMENT)
        }
    }
}

entries! {
    fn zeImageGetProperties(
        device: ze_device_handle_t, desc: *const ze_image_desc_t, out: *mut ze_image_properties_t,
    ) {
        device::index(device)?;
        given(desc)?;
        given(out)?;
        (*out).samplerFilterFlags = ZE_IMAGE_SAMPLER_FILTER_FLAG_POINT | ZE_IMAGE_SAMPLER_FILTER_FLAG_LINEAR;
        if let Some(format) = chained::<ze_image_format_support_ext_properties_t>((*out).pNext) {
            let known = LAYOUTS.iter().any(|(own, ..)| *own == (*desc).format.layout);
            format.supported = u8::from(known && cl::is_known(&(*desc).format));
        }
        Ok(())
    }

    fn zeImageCreate(
        context: ze_context_handle_t, device: ze_device_handle_t, desc: *const ze_image_desc_t,
        out: *mut ze_image_handle_t,
    ) {
        context::check_both(context, device)?;
        let desc = given(desc)?;
        given(out)?;
        script::present()?;
        let image = Image::new(device::index(device)?, desc, None)?;
        put(out, ze_image_handle_t(IMAGES.add(|_| image)))
    }

    fn zeImageViewCreateExt(
        context: ze_context_handle_t, device: ze_device_handle_t, desc: *const ze_image_desc_t,
        image: ze_image_handle_t, out: *mut ze_image_handle_t,
    ) {
        context::check_both(context, device)?;
        let desc = given(desc)?;
        given(out)?;
        script::present()?;
        let of = get(image, device)?;
        let view = Image::new(device::index(device)?, desc, Some(&of))?;
        put(out, ze_image_handle_t(IMAGES.add(|_| view)))
    }

    fn zeImageGetDeviceOffsetExp(image: ze_image_handle_t, out: *mut u64) {
        let number = IMAGES.get(image.0)?.number;
        put(out, number.ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?)
    }

    fn zeImageGetMemoryPropertiesExp(
        image: ze_image_handle_t, out: *mut ze_image_memory_properties_exp_t,
    ) {
        let own = IMAGES.get(image.0)?;
        given(out)?;
        let (pitch, slice) = match &*own.pixels {
            Pixels::Bytes(bytes) => (bytes.place.pitch, bytes.place.slice),
            Pixels::Cl(_) => {
                let row = own.extent[0] * own.pixel;
                (row, row * own.extent[1])
            }
        };
        (*out).rowPitch = pitch as u64;
        (*out).slicePitch = slice as u64;
        (*out).size = (slice * own.extent[2]) as u64;
        Ok(())
    }

    fn zeContextMakeImageResident(
        context: ze_context_handle_t, device: ze_device_handle_t, image: ze_image_handle_t,
    ) {
        context::check_both(context, device)?;
        get(image, device).map(drop)
    }

    fn zeContextEvictImage(
        context: ze_context_handle_t, device: ze_device_handle_t, image: ze_image_handle_t,
    ) {
        context::check_both(context, device)?;
        get(image, device).map(drop)
    }

    fn zeImageDestroy(image: ze_image_handle_t) {
        let own = IMAGES.remove(image.0)?;
        own.uses.check_over("image", own.device);
        Ok(())
    }

    fn zeSamplerCreate(
        context: ze_context_handle_t, device: ze_device_handle_t, desc: *const ze_sampler_desc_t,
        out: *mut ze_sampler_handle_t,
    ) {
        context::check_both(context, device)?;
        let desc = given(desc)?;
        given(out)?;
        script::present()?;
        let code = match cl::get() {
            Some(cl) => Some(cl::Sampler::create(cl, desc)?),
            None => None,
        };
        let sampler = Sampler { device: device::index(device)?, uses: Uses::default(), code };
        put(out, ze_sampler_handle_t(SAMPLERS.add(|_| sampler)))
    }

    fn zeSamplerDestroy(sampler: ze_sampler_handle_t) {
        let own = SAMPLERS.remove(sampler.0)?;
        own.uses.check_over("sampler", own.device);
        Ok(())
    }
}

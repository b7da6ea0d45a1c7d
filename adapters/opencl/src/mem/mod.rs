//! Buffers, sub-buffers and images. They are OpenCL's objects and have no address: a command names a
//! handle and an offset (`commands`, `image`). `format` converts the formats of images.

mod commands;
mod format;
mod image;

pub use commands::{bring, on_buffers};
pub use image::copy_image;

use std::ffi::c_void;
use std::ptr::{self, null_mut};
use std::sync::Arc;

use opencl_sys::*;
use ur::abi::*;
use ur::hal::answers::{ImageShape, WholeBuffer, access_of, mem_info};
use ur::hal::{self, ImageInfo, MemInfo};
use ur::object::{Body, Error, InfoOut, Kind, Object, Result, ensure};
use ur::stream::Context;

use crate::OpenCl;
use crate::cl::{self, MemRef};
use crate::device::Device;

pub struct Mem {
    context: Arc<Object<Context<OpenCl>>>,
    mem: MemRef,
    /// The flags of its creation, from which a sub-buffer inherits.
    flags: ur_mem_flags_t,
    /// Of a sub-buffer: the whole buffer, and the offset of the first byte in it.
    parent: Option<(Arc<Object<Mem>>, usize)>,
    /// Of an image.
    shape: Option<ImageShape>,
}

/// OpenCL's flags. Each flag has the same bit there.
fn native_flags(flags: ur_mem_flags_t) -> Result<cl_mem_flags> {
    access_of(flags)?;
    Ok(cl_mem_flags::from(flags.0))
}

impl Mem {
    fn new(
        context: &Object<Context<OpenCl>>,
        mem: MemRef,
        flags: ur_mem_flags_t,
        shape: Option<ImageShape>,
    ) -> Arc<Object<Self>> {
        hal::new::<OpenCl, _>(Self {
            context: context.arc(),
            mem,
            flags,
            parent: None,
            shape,
        })
    }

    /// `urMemBufferCreate`. The shim has checked the flags against the host pointer.
    pub fn create(
        context: &Object<Context<OpenCl>>,
        flags: ur_mem_flags_t,
        bytes: usize,
        properties: Option<&ur_buffer_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        let uses = UR_MEM_FLAG_USE_HOST_POINTER.0 | UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER.0;
        let host = match flags.0 & uses {
            0 => null_mut(),
            _ => properties.map_or(null_mut(), |properties| properties.pHost),
        };
        let native = &context.domain().state().context;
        let bits = native_flags(flags)?;
        let mut code = 0;
        // SAFETY: the context is alive, and the caller's memory is null or as large as the buffer.
        let mem = unsafe {
            let raw =
                (native.api().core.clCreateBuffer)(native.raw(), bits, bytes, host, &mut code);
            MemRef::created(native.api(), raw, code, "clCreateBuffer")
        }?;
        Ok(Self::new(context, mem, flags, None))
    }

    /// `urMemImageCreate`
    pub fn create_image(
        context: &Object<Context<OpenCl>>,
        flags: ur_mem_flags_t,
        format: &ur_image_format_t,
        desc: &ur_image_desc_t,
        host: *mut c_void,
    ) -> Result<Arc<Object<Self>>> {
        let native = &context.domain().state().context;
        let bits = native_flags(flags)?;
        let native_format = format::native(format)?;
        let shape = ImageShape::new(format, desc)?;
        shape.host_pitch(desc)?;
        let mut desc = format::native_desc(desc)?;
        if !shape.has_slices() {
            desc.image_slice_pitch = 0;
        }
        let mut code = 0;
        // SAFETY: the context is alive, and the caller's memory is null or as large as the image.
        let mem = unsafe {
            let create = native.api().core.clCreateImage;
            let raw = create(native.raw(), bits, &native_format, &desc, host, &mut code);
            MemRef::created(native.api(), raw, code, "clCreateImage")
        }?;
        Ok(Self::new(context, mem, flags, Some(shape)))
    }

    /// `urMemImageCreateWithNativeHandle`. The driver tells format and shape.
    pub fn image_from_native(
        context: &Object<Context<OpenCl>>,
        native: ur_native_handle_t,
        _: &ur_image_format_t,
        _: &ur_image_desc_t,
        properties: Option<&ur_mem_native_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        Self::from_native(context, native, properties)
    }

    /// An object over a native one.
    pub fn from_native(
        context: &Object<Context<OpenCl>>,
        native: ur_native_handle_t,
        properties: Option<&ur_mem_native_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        let raw = ptr::with_exposed_provenance_mut(native);
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        let own = &context.domain().state().context;
        // SAFETY: `urMemBufferCreateWithNativeHandle` and its image form require a native memory object.
        let mem = unsafe { MemRef::adopted(own.api(), raw, false) }?;
        let mut object = Self {
            context: context.arc(),
            mem,
            flags: UR_MEM_FLAG_READ_WRITE,
            parent: None,
            shape: None,
        };
        let of: usize = object.property(CL_MEM_CONTEXT)?;
        ensure(of == own.raw().addr(), UR_RESULT_ERROR_INVALID_CONTEXT)?;
        object.shape = object.native_shape()?;
        object.mem.own(owned);
        Ok(hal::new::<OpenCl, _>(object))
    }

    /// The shape of a native image. None for other objects.
    fn native_shape(&self) -> Result<Option<ImageShape>> {
        let kind: cl_mem_object_type = self.property(CL_MEM_TYPE)?;
        let Some(kind) = format::named_kind(kind) else {
            return Ok(None);
        };
        let size = |what| self.image_property::<usize>(what).map(|size| size.max(1));
        let rows = match kind {
            UR_MEM_TYPE_IMAGE1D_ARRAY => CL_IMAGE_ARRAY_SIZE,
            _ => CL_IMAGE_HEIGHT,
        };
        let slices = match kind {
            UR_MEM_TYPE_IMAGE2D_ARRAY => size(CL_IMAGE_ARRAY_SIZE)?,
            UR_MEM_TYPE_IMAGE3D => size(CL_IMAGE_DEPTH)?,
            _ => 1,
        };
        Ok(Some(ImageShape {
            kind,
            extent: [size(CL_IMAGE_WIDTH)?, size(rows)?, slices],
            pixel: size(CL_IMAGE_ELEMENT_SIZE)?,
        }))
    }

    /// The image's shape. `INVALID_MEM_OBJECT` for a buffer.
    pub fn shape(&self) -> Result<&ImageShape> {
        let shape = self.shape.as_ref();
        shape.ok_or(Error::new(UR_RESULT_ERROR_INVALID_MEM_OBJECT))
    }

    /// `INVALID_MEM_OBJECT` for an image. Intel's CPU driver 2026.2 reads one as it would a buffer.
    pub fn check_buffer(&self) -> Result<()> {
        ensure(self.shape.is_none(), UR_RESULT_ERROR_INVALID_MEM_OBJECT)
    }

    pub fn native(&self) -> &MemRef {
        &self.mem
    }

    /// The whole buffer, and the offset of this one's first byte in it. Commands of a queue name the whole
    /// buffer: Intel's CPU driver 2026.2 refuses to fill a misaligned sub-buffer of host memory. Kernels
    /// get the sub-buffer.
    fn whole(&self) -> (&MemRef, usize) {
        match &self.parent {
            Some((parent, origin)) => (&parent.mem, *origin),
            None => (&self.mem, 0),
        }
    }

    fn property<T: Copy>(&self, what: cl_mem_info) -> Result<T> {
        // SAFETY: `MemRef` holds a reference to the object, and `cl` passes a buffer of that size.
        let query = |size, value, ret| unsafe {
            (self.mem.api().core.clGetMemObjectInfo)(self.mem.raw(), what, size, value, ret)
        };
        cl::value(query, "clGetMemObjectInfo")
    }

    fn image_property<T: Copy>(&self, what: cl_image_info) -> Result<T> {
        // SAFETY: `MemRef` holds a reference to the object, and `cl` passes a buffer of that size.
        let query = |size, value, ret| unsafe {
            (self.mem.api().core.clGetImageInfo)(self.mem.raw(), what, size, value, ret)
        };
        cl::value(query, "clGetImageInfo")
    }

    pub fn bytes(&self) -> Result<usize> {
        self.property(CL_MEM_SIZE)
    }
}

impl Body for Mem {
    const KIND: Kind = Kind::Mem;
}

impl hal::Mem<OpenCl> for Mem {
    fn buffer_partition(
        this: &Object<Self>,
        flags: ur_mem_flags_t,
        kind: ur_buffer_create_type_t,
        region: &ur_buffer_region_t,
    ) -> Result<Arc<Object<Mem>>> {
        this.check_buffer()?;
        let whole = WholeBuffer {
            flags: this.flags,
            bytes: this.bytes().unwrap_or(0),
            is_part: this.parent.is_some(),
        };
        let part = whole.part(flags, kind, region)?;
        let native_region = cl_buffer_region {
            origin: part.offset,
            size: part.bytes,
        };
        let mut code = 0;
        // SAFETY: `this` keeps the buffer alive, and the region is readable for the call.
        let mem = unsafe {
            let create = this.mem.api().core.clCreateSubBuffer;
            let bits = native_flags(flags)?;
            let raw = create(
                this.mem.raw(),
                bits,
                CL_BUFFER_CREATE_TYPE_REGION,
                (&raw const native_region).cast(),
                &mut code,
            );
            MemRef::created(this.mem.api(), raw, code, "clCreateSubBuffer")
        }?;
        Ok(hal::new::<OpenCl, _>(Self {
            context: Arc::clone(&this.context),
            mem,
            flags: part.flags,
            parent: Some((this.arc(), part.offset)),
            shape: None,
        }))
    }

    fn get_native_handle(
        this: &Object<Self>,
        _: Option<&Object<Device>>,
    ) -> Result<ur_native_handle_t> {
        Ok(this.mem.raw().expose_provenance())
    }

    fn get_info(this: &Object<Self>, what: MemInfo, out: InfoOut<'_>) -> Result<()> {
        mem_info::<OpenCl>(this, &this.context, || this.bytes(), what, out)
    }

    fn image_get_info(this: &Object<Self>, what: ImageInfo, out: InfoOut<'_>) -> Result<()> {
        this.shape()?;
        let size = |out: InfoOut<'_>, what| out.value(this.image_property::<usize>(what)?);
        match what {
            ImageInfo::Format => out.value(format::named(this.image_property(CL_IMAGE_FORMAT)?)?),
            ImageInfo::ElementSize => size(out, CL_IMAGE_ELEMENT_SIZE),
            ImageInfo::RowPitch => size(out, CL_IMAGE_ROW_PITCH),
            ImageInfo::SlicePitch => size(out, CL_IMAGE_SLICE_PITCH),
            ImageInfo::Width => size(out, CL_IMAGE_WIDTH),
            ImageInfo::Height => size(out, CL_IMAGE_HEIGHT),
            ImageInfo::Depth => size(out, CL_IMAGE_DEPTH),
            ImageInfo::ArraySize => size(out, CL_IMAGE_ARRAY_SIZE),
            ImageInfo::NumMipLevels => {
                out.value(this.image_property::<cl_uint>(CL_IMAGE_NUM_MIP_LEVELS)?)
            }
            ImageInfo::NumSamples => {
                out.value(this.image_property::<cl_uint>(CL_IMAGE_NUM_SAMPLES)?)
            }
        }
    }
}

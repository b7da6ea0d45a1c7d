//! Buffers, sub-buffers and images. They are OpenCL's own objects and have no address: a command on
//! one is made of its handle and an offset.

use std::ffi::c_void;
use std::ptr::{self, null, null_mut};
use std::sync::Arc;

use opencl_sys::*;
use ur::abi::*;
use ur::hal::{self, ImageInfo, MemInfo};
use ur::object::{Body, Error, InfoOut, Kind, Object, Result, ensure};
use ur::stream::{Context, Landing, Pitched, Work};

use crate::OpenCl;
use crate::cl::{self, MemRef, check};
use crate::device::Device;
use crate::exec::{Native, Slot};
use crate::record::recorded;

pub struct Mem {
    context: Arc<Object<Context<OpenCl>>>,
    mem: MemRef,
    /// The access flags, for sub-buffers.
    flags: ur_mem_flags_t,
    parent: Option<Arc<Object<Mem>>>,
}

const ACCESS: u32 = UR_MEM_FLAG_READ_WRITE.0 | UR_MEM_FLAG_WRITE_ONLY.0 | UR_MEM_FLAG_READ_ONLY.0;

/// Each flag has the bit that OpenCL gave it.
fn native_flags(flags: ur_mem_flags_t) -> Result<cl_mem_flags> {
    ensure(
        (flags.0 & ACCESS).count_ones() <= 1,
        UR_RESULT_ERROR_INVALID_VALUE,
    )?;
    Ok(cl_mem_flags::from(flags.0))
}

impl Mem {
    fn new(
        context: &Object<Context<OpenCl>>,
        mem: MemRef,
        flags: ur_mem_flags_t,
    ) -> Arc<Object<Self>> {
        hal::new::<OpenCl, _>(Self {
            context: context.arc(),
            mem,
            flags,
            parent: None,
        })
    }

    /// `urMemBufferCreate`. The shim has checked flags against the host pointer.
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
        // SAFETY: a live context; the caller's memory is as large as the buffer.
        let mem = unsafe {
            let raw =
                (native.api().core.clCreateBuffer)(native.raw(), bits, bytes, host, &mut code);
            MemRef::created(native.api(), raw, code, "clCreateBuffer")
        }?;
        Ok(Self::new(context, mem, flags))
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
        let format = image_format(format)?;
        let desc = image_desc(desc)?;
        let mut code = 0;
        // SAFETY: a live context; the caller's memory is as large as the image.
        let mem = unsafe {
            let create = native.api().core.clCreateImage;
            let raw = create(native.raw(), bits, &format, &desc, host, &mut code);
            MemRef::created(native.api(), raw, code, "clCreateImage")
        }?;
        Ok(Self::new(context, mem, flags))
    }

    /// An object made by OpenCL itself.
    pub fn from_native(
        context: &Object<Context<OpenCl>>,
        native: ur_native_handle_t,
        properties: Option<&ur_mem_native_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        let raw = ptr::with_exposed_provenance_mut(native);
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        let own = &context.domain().state().context;
        // SAFETY: the caller says that this is a memory object of OpenCL.
        let mem = unsafe { MemRef::adopted(own.api(), raw, owned) }?;
        let object = Self {
            context: context.arc(),
            mem,
            flags: UR_MEM_FLAG_READ_WRITE,
            parent: None,
        };
        let of: usize = object.property(CL_MEM_CONTEXT)?;
        ensure(of == own.raw().addr(), UR_RESULT_ERROR_INVALID_CONTEXT)?;
        Ok(hal::new::<OpenCl, _>(object))
    }

    pub fn native(&self) -> &MemRef {
        &self.mem
    }

    fn property<T: Copy>(&self, what: cl_mem_info) -> Result<T> {
        // SAFETY: a live memory object.
        let ask = |size, value, ret| unsafe {
            (self.mem.api().core.clGetMemObjectInfo)(self.mem.raw(), what, size, value, ret)
        };
        cl::value(ask, "clGetMemObjectInfo")
    }

    fn image_property<T: Copy>(&self, what: cl_image_info) -> Result<T> {
        // SAFETY: a live memory object.
        let ask = |size, value, ret| unsafe {
            (self.mem.api().core.clGetImageInfo)(self.mem.raw(), what, size, value, ret)
        };
        cl::value(ask, "clGetImageInfo")
    }

    pub fn bytes(&self) -> Result<usize> {
        self.property(CL_MEM_SIZE)
    }

    pub fn map(
        &self,
        flags: ur_map_flags_t,
        offset: usize,
        bytes: usize,
    ) -> (Landing, Work<OpenCl>) {
        let landing = Landing::default();
        let (mem, lands) = (self.mem.clone(), landing.clone());
        let flags = cl_map_flags::from(flags.0);
        let run = move |api: &cl::Api, slot: &Slot| {
            let Slot {
                queue,
                count,
                waits,
                event,
            } = *slot;
            let mut code = 0;
            let map = api.core.clEnqueueMapBuffer;
            // SAFETY: a live queue and buffer; the range was checked.
            let at = unsafe {
                map(
                    queue,
                    mem.raw(),
                    CL_FALSE,
                    flags,
                    offset,
                    bytes,
                    count,
                    waits,
                    event,
                    &mut code,
                )
            };
            lands.set(at.expose_provenance());
            check(code, "clEnqueueMapBuffer")
        };
        (landing, Work::Native(Native::new(run)))
    }

    pub fn unmap(&self, addr: usize) -> Work<OpenCl> {
        let mem = self.mem.clone();
        Work::Native(Native::new(move |api, slot| {
            let Slot {
                queue,
                count,
                waits,
                event,
            } = *slot;
            let at = ptr::with_exposed_provenance_mut(addr);
            // SAFETY: a live queue and buffer; the address is what mapping it gave.
            let code = unsafe {
                (api.core.clEnqueueUnmapMemObject)(queue, mem.raw(), at, count, waits, event)
            };
            check(code, "clEnqueueUnmapMemObject")
        }))
    }
}

fn host(addr: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(addr)
}

/// Commands on buffers, where the engine's addresses are offsets.
pub fn on_buffers(
    work: Work<OpenCl>,
    dst: Option<&Object<Mem>>,
    src: Option<&Object<Mem>>,
) -> Work<OpenCl> {
    let own = |mem: &Object<Mem>| mem.mem.clone();
    match (work, dst.map(own), src.map(own)) {
        (Work::Copy { bytes: 0, .. }, _, _) => Work::Marker,
        (Work::Copy { dst, src, bytes }, to, from) => copy(dst, src, bytes, to, from),
        (Work::CopyRect { dst, src, region }, to, from) => copy_rect(dst, src, region, to, from),
        (
            Work::Fill {
                dst,
                pattern,
                bytes,
            },
            Some(to),
            _,
        ) => fill(to, dst, &pattern, bytes),
        (other, _, _) => other,
    }
}

fn copy(
    dst: usize,
    src: usize,
    bytes: usize,
    to: Option<MemRef>,
    from: Option<MemRef>,
) -> Work<OpenCl> {
    let both = to.clone().zip(from.clone());
    let native = Native::new(move |api, slot| {
        let Slot {
            queue,
            count,
            waits,
            event,
        } = *slot;
        let core = api.core;
        // SAFETY: live objects, ranges that were checked, and host memory that the caller promises
        // until the command has ended.
        let code = unsafe {
            match (&to, &from) {
                (Some(to), Some(from)) => (core.clEnqueueCopyBuffer)(
                    queue,
                    from.raw(),
                    to.raw(),
                    src,
                    dst,
                    bytes,
                    count,
                    waits,
                    event,
                ),
                (Some(to), None) => {
                    let write = core.clEnqueueWriteBuffer;
                    write(
                        queue,
                        to.raw(),
                        CL_FALSE,
                        dst,
                        bytes,
                        host(src),
                        count,
                        waits,
                        event,
                    )
                }
                (None, Some(from)) => {
                    let read = core.clEnqueueReadBuffer;
                    read(
                        queue,
                        from.raw(),
                        CL_FALSE,
                        src,
                        bytes,
                        host(dst),
                        count,
                        waits,
                        event,
                    )
                }
                (None, None) => return Err(Error::unsupported()),
            }
        };
        check(code, "copying a buffer")
    });
    let Some((to, from)) = both else {
        return Work::Native(native);
    };
    Work::Native(native.recorded_by(move |recorder| {
        let copy = recorder.api().ext.clCommandCopyBufferKHR;
        let copy = copy.ok_or(Error::unsupported())?;
        let (from, to, none) = (from.raw(), to.raw(), ptr::null_mut());
        // SAFETY: a live buffer that is being recorded; live objects and ranges that were checked.
        let code = unsafe {
            copy(
                recorder.raw(),
                none,
                null(),
                from,
                to,
                src,
                dst,
                bytes,
                0,
                null(),
                none.cast(),
                none.cast(),
            )
        };
        recorded(code)
    }))
}

fn copy_rect(
    dst: Pitched,
    src: Pitched,
    region: [usize; 3],
    to: Option<MemRef>,
    from: Option<MemRef>,
) -> Work<OpenCl> {
    let both = to.clone().zip(from.clone());
    let native = Native::new(move |api, slot| {
        let Slot {
            queue,
            count,
            waits,
            event,
        } = *slot;
        let (core, zero) = (api.core, [0usize; 3]);
        let (at, from_at) = ([dst.addr, 0, 0], [src.addr, 0, 0]);
        let (dst_pitch, src_pitch) = (
            (dst.row_pitch, dst.slice_pitch),
            (src.row_pitch, src.slice_pitch),
        );
        // SAFETY: as for linear copies.
        let code = unsafe {
            match (&to, &from) {
                (Some(to), Some(from)) => (core.clEnqueueCopyBufferRect)(
                    queue,
                    from.raw(),
                    to.raw(),
                    from_at.as_ptr(),
                    at.as_ptr(),
                    region.as_ptr(),
                    src_pitch.0,
                    src_pitch.1,
                    dst_pitch.0,
                    dst_pitch.1,
                    count,
                    waits,
                    event,
                ),
                (Some(to), None) => (core.clEnqueueWriteBufferRect)(
                    queue,
                    to.raw(),
                    CL_FALSE,
                    at.as_ptr(),
                    zero.as_ptr(),
                    region.as_ptr(),
                    dst_pitch.0,
                    dst_pitch.1,
                    src_pitch.0,
                    src_pitch.1,
                    host(src.addr),
                    count,
                    waits,
                    event,
                ),
                (None, Some(from)) => (core.clEnqueueReadBufferRect)(
                    queue,
                    from.raw(),
                    CL_FALSE,
                    from_at.as_ptr(),
                    zero.as_ptr(),
                    region.as_ptr(),
                    src_pitch.0,
                    src_pitch.1,
                    dst_pitch.0,
                    dst_pitch.1,
                    host(dst.addr),
                    count,
                    waits,
                    event,
                ),
                (None, None) => return Err(Error::unsupported()),
            }
        };
        check(code, "copying a part of a buffer")
    });
    let Some((to, from)) = both else {
        return Work::Native(native);
    };
    Work::Native(native.recorded_by(move |recorder| {
        let copy = recorder.api().ext.clCommandCopyBufferRectKHR;
        let copy = copy.ok_or(Error::unsupported())?;
        let (at, from_at) = ([dst.addr, 0, 0], [src.addr, 0, 0]);
        let (from, to, none) = (from.raw(), to.raw(), ptr::null_mut());
        // SAFETY: as for linear copies.
        let code = unsafe {
            copy(
                recorder.raw(),
                none,
                null(),
                from,
                to,
                from_at.as_ptr(),
                at.as_ptr(),
                region.as_ptr(),
                src.row_pitch,
                src.slice_pitch,
                dst.row_pitch,
                dst.slice_pitch,
                0,
                null(),
                none.cast(),
                none.cast(),
            )
        };
        recorded(code)
    }))
}

/// The longest pattern that OpenCL repeats by itself.
const MAX_PATTERN: usize = 128;

fn fill(to: MemRef, offset: usize, pattern: &Arc<[u8]>, bytes: usize) -> Work<OpenCl> {
    let size = pattern.len();
    if bytes == 0 || size == 0 {
        return Work::Marker;
    }
    let own = size.is_power_of_two() && size <= MAX_PATTERN;
    if !own || !offset.is_multiple_of(size) {
        let staged: Arc<[u8]> = pattern.iter().copied().cycle().take(bytes).collect();
        let from = staged.as_ptr().expose_provenance();
        let Work::Native(mut native) = copy(offset, from, bytes, Some(to), None) else {
            return Work::Marker;
        };
        native.keep = Some(staged);
        return Work::Native(native);
    }
    let (pattern, target) = (Arc::clone(pattern), to.clone());
    let again = Arc::clone(&pattern);
    let native = Native::new(move |api, slot| {
        let Slot {
            queue,
            count,
            waits,
            event,
        } = *slot;
        let fill = api.core.clEnqueueFillBuffer;
        // SAFETY: a live buffer and a range that was checked; the pattern is copied by the call.
        let code = unsafe {
            fill(
                queue,
                to.raw(),
                pattern.as_ptr().cast(),
                size,
                offset,
                bytes,
                count,
                waits,
                event,
            )
        };
        check(code, "clEnqueueFillBuffer")
    });
    Work::Native(native.recorded_by(move |recorder| {
        let fill = recorder.api().ext.clCommandFillBufferKHR;
        let fill = fill.ok_or(Error::unsupported())?;
        let (raw, to, none) = (recorder.raw(), target.raw(), ptr::null_mut());
        let from = again.as_ptr().cast();
        // SAFETY: as for linear copies; the pattern is copied by the call.
        let code = unsafe {
            fill(
                raw,
                none,
                null(),
                to,
                from,
                size,
                offset,
                bytes,
                0,
                null(),
                none.cast(),
                none.cast(),
            )
        };
        recorded(code)
    }))
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
        ensure(
            kind == UR_BUFFER_CREATE_TYPE_REGION,
            UR_RESULT_ERROR_INVALID_ENUMERATION,
        )?;
        ensure(this.parent.is_none(), UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
        ensure(flags.0 & !ACCESS == 0, UR_RESULT_ERROR_INVALID_VALUE)?;
        let end = region.origin.checked_add(region.size);
        let inside = end.is_some_and(|end| this.bytes().is_ok_and(|bytes| end <= bytes));
        ensure(
            inside && region.size > 0,
            UR_RESULT_ERROR_INVALID_BUFFER_SIZE,
        )?;
        let part = cl_buffer_region {
            origin: region.origin,
            size: region.size,
        };
        let mut code = 0;
        // SAFETY: a live buffer; the region is read by the call.
        let mem = unsafe {
            let create = this.mem.api().core.clCreateSubBuffer;
            let bits = native_flags(flags)?;
            let raw = create(
                this.mem.raw(),
                bits,
                CL_BUFFER_CREATE_TYPE_REGION,
                (&raw const part).cast(),
                &mut code,
            );
            MemRef::created(this.mem.api(), raw, code, "clCreateSubBuffer")
        }?;
        let flags = if flags.0 == 0 { this.flags } else { flags };
        let context = Arc::clone(&this.context);
        Ok(hal::new::<OpenCl, _>(Self {
            context,
            mem,
            flags,
            parent: Some(this.arc()),
        }))
    }

    fn get_native_handle(
        this: &Object<Self>,
        _: Option<&Object<Device>>,
    ) -> Result<ur_native_handle_t> {
        Ok(this.mem.raw().expose_provenance())
    }

    fn get_info(this: &Object<Self>, what: MemInfo, out: InfoOut<'_>) -> Result<()> {
        match what {
            MemInfo::Size => out.value(this.bytes()?),
            MemInfo::Context => out.handle(Some(&this.context)),
            MemInfo::ReferenceCount => out.value(this.api_refs()),
        }
    }

    fn image_get_info(this: &Object<Self>, what: ImageInfo, out: InfoOut<'_>) -> Result<()> {
        let size = |out: InfoOut<'_>, what| out.value(this.image_property::<usize>(what)?);
        match what {
            ImageInfo::Format => {
                let format: cl_image_format = this.image_property(CL_IMAGE_FORMAT)?;
                let order = ORDERS
                    .iter()
                    .find(|(_, cl)| *cl == format.image_channel_order);
                let kind = TYPES
                    .iter()
                    .find(|(_, cl)| *cl == format.image_channel_data_type);
                let unknown = Error::new(UR_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT);
                out.value(ur_image_format_t {
                    channelOrder: order.ok_or(unknown)?.0,
                    channelType: kind.ok_or(unknown)?.0,
                })
            }
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

const ORDERS: [(ur_image_channel_order_t, cl_channel_order); 14] = [
    (UR_IMAGE_CHANNEL_ORDER_A, CL_A),
    (UR_IMAGE_CHANNEL_ORDER_R, CL_R),
    (UR_IMAGE_CHANNEL_ORDER_RG, CL_RG),
    (UR_IMAGE_CHANNEL_ORDER_RA, CL_RA),
    (UR_IMAGE_CHANNEL_ORDER_RGB, CL_RGB),
    (UR_IMAGE_CHANNEL_ORDER_RGBA, CL_RGBA),
    (UR_IMAGE_CHANNEL_ORDER_BGRA, CL_BGRA),
    (UR_IMAGE_CHANNEL_ORDER_ARGB, CL_ARGB),
    (UR_IMAGE_CHANNEL_ORDER_ABGR, CL_ABGR),
    (UR_IMAGE_CHANNEL_ORDER_INTENSITY, CL_INTENSITY),
    (UR_IMAGE_CHANNEL_ORDER_LUMINANCE, CL_LUMINANCE),
    (UR_IMAGE_CHANNEL_ORDER_RX, CL_Rx),
    (UR_IMAGE_CHANNEL_ORDER_RGX, CL_RGx),
    (UR_IMAGE_CHANNEL_ORDER_SRGBA, CL_sRGBA),
];

const TYPES: [(ur_image_channel_type_t, cl_channel_type); 15] = [
    (UR_IMAGE_CHANNEL_TYPE_SNORM_INT8, CL_SNORM_INT8),
    (UR_IMAGE_CHANNEL_TYPE_SNORM_INT16, CL_SNORM_INT16),
    (UR_IMAGE_CHANNEL_TYPE_UNORM_INT8, CL_UNORM_INT8),
    (UR_IMAGE_CHANNEL_TYPE_UNORM_INT16, CL_UNORM_INT16),
    (UR_IMAGE_CHANNEL_TYPE_UNORM_SHORT_565, CL_UNORM_SHORT_565),
    (UR_IMAGE_CHANNEL_TYPE_UNORM_SHORT_555, CL_UNORM_SHORT_555),
    (UR_IMAGE_CHANNEL_TYPE_INT_101010, CL_UNORM_INT_101010),
    (UR_IMAGE_CHANNEL_TYPE_SIGNED_INT8, CL_SIGNED_INT8),
    (UR_IMAGE_CHANNEL_TYPE_SIGNED_INT16, CL_SIGNED_INT16),
    (UR_IMAGE_CHANNEL_TYPE_SIGNED_INT32, CL_SIGNED_INT32),
    (UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8, CL_UNSIGNED_INT8),
    (UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT16, CL_UNSIGNED_INT16),
    (UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT32, CL_UNSIGNED_INT32),
    (UR_IMAGE_CHANNEL_TYPE_HALF_FLOAT, CL_HALF_FLOAT),
    (UR_IMAGE_CHANNEL_TYPE_FLOAT, CL_FLOAT),
];

fn image_format(format: &ur_image_format_t) -> Result<cl_image_format> {
    let unknown = Error::new(UR_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT);
    let order = ORDERS
        .iter()
        .find(|(ur, _)| *ur == format.channelOrder)
        .ok_or(unknown)?;
    let kind = TYPES
        .iter()
        .find(|(ur, _)| *ur == format.channelType)
        .ok_or(unknown)?;
    Ok(cl_image_format {
        image_channel_order: order.1,
        image_channel_data_type: kind.1,
    })
}

fn image_desc(desc: &ur_image_desc_t) -> Result<cl_image_desc> {
    Ok(cl_image_desc {
        image_type: match desc.r#type {
            UR_MEM_TYPE_IMAGE2D => CL_MEM_OBJECT_IMAGE2D,
            UR_MEM_TYPE_IMAGE3D => CL_MEM_OBJECT_IMAGE3D,
            UR_MEM_TYPE_IMAGE2D_ARRAY => CL_MEM_OBJECT_IMAGE2D_ARRAY,
            UR_MEM_TYPE_IMAGE1D => CL_MEM_OBJECT_IMAGE1D,
            UR_MEM_TYPE_IMAGE1D_ARRAY => CL_MEM_OBJECT_IMAGE1D_ARRAY,
            _ => return Err(Error::new(UR_RESULT_ERROR_UNSUPPORTED_FEATURE)),
        },
        image_width: desc.width,
        image_height: desc.height,
        image_depth: desc.depth,
        image_array_size: desc.arraySize,
        image_row_pitch: desc.rowPitch,
        image_slice_pitch: desc.slicePitch,
        num_mip_levels: desc.numMipLevel,
        num_samples: desc.numSamples,
        buffer: null::<c_void>().cast_mut(),
    })
}

//! Buffers as plain memory, samplers, and images without contents.

use std::ffi::c_void;

use opencl_sys::*;

use crate::driver::{Kind, code, enter, made, write_property};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCreateBuffer(
    context: cl_context,
    bits: cl_mem_flags,
    bytes: usize,
    host: *mut c_void,
    ret: *mut cl_int,
) -> cl_mem {
    let context = context.addr();
    let answer = enter("clCreateBuffer", |driver| {
        driver.get(Kind::Context, context)?;
        if bytes == 0 {
            return Err(CL_INVALID_BUFFER_SIZE);
        }
        let at = match bits & CL_MEM_USE_HOST_PTR != 0 {
            true => host.expose_provenance(),
            false => driver.alloc(bytes, false),
        };
        if bits & CL_MEM_COPY_HOST_PTR != 0 {
            // SAFETY: the caller's memory is as large as the buffer.
            unsafe { std::ptr::copy_nonoverlapping(host.cast::<u8>(), at as *mut u8, bytes) };
        }
        Ok(driver.make(Kind::Mem, |mem| {
            (mem.context, mem.bits, mem.at, mem.bytes) = (context, bits, at, bytes);
        }))
    });
    made(answer, ret)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCreateSubBuffer(
    whole: cl_mem,
    bits: cl_mem_flags,
    _: cl_buffer_create_type,
    region: *const c_void,
    ret: *mut cl_int,
) -> cl_mem {
    let answer = enter("clCreateSubBuffer", |driver| {
        // SAFETY: the caller passes a readable region, the only type there is.
        let region = unsafe { region.cast::<cl_buffer_region>().read() };
        let of = driver.get(Kind::Mem, whole.addr())?;
        let (context, at) = (of.context, of.at + region.origin);
        Ok(driver.make(Kind::Mem, |part| {
            (part.context, part.bits, part.at) = (context, bits, at);
            (part.bytes, part.parent) = (region.size, whole.addr());
        }))
    });
    made(answer, ret)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCreateImage(
    _: cl_context,
    _: cl_mem_flags,
    _: *const cl_image_format,
    _: *const cl_image_desc,
    _: *mut c_void,
    ret: *mut cl_int,
) -> cl_mem {
    made(enter("clCreateImage", |_| Err(CL_INVALID_OPERATION)), ret)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetMemObjectInfo(
    mem: cl_mem,
    what: cl_mem_info,
    size: usize,
    value: *mut c_void,
    ret: *mut usize,
) -> cl_int {
    code(enter("clGetMemObjectInfo", |driver| {
        let mem = driver.get(Kind::Mem, mem.addr())?;
        let bytes = match what {
            CL_MEM_SIZE => mem.bytes,
            CL_MEM_CONTEXT => mem.context,
            CL_MEM_TYPE => {
                let kind = CL_MEM_OBJECT_BUFFER.to_ne_bytes();
                return write_property(&kind, size, value, ret);
            }
            _ => return Err(CL_INVALID_VALUE),
        };
        write_property(&bytes.to_ne_bytes(), size, value, ret)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetImageInfo(
    _: cl_mem,
    _: cl_image_info,
    _: usize,
    _: *mut c_void,
    _: *mut usize,
) -> cl_int {
    code(enter("clGetImageInfo", |_| Err(CL_INVALID_MEM_OBJECT)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCreateSampler(
    context: cl_context,
    _: cl_bool,
    _: cl_addressing_mode,
    _: cl_filter_mode,
    ret: *mut cl_int,
) -> cl_sampler {
    let context = context.addr();
    let answer = enter("clCreateSampler", |driver| {
        driver.get(Kind::Context, context)?;
        Ok(driver.make(Kind::Sampler, |sampler| sampler.context = context))
    });
    made(answer, ret)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetSamplerInfo(
    sampler: cl_sampler,
    what: cl_sampler_info,
    size: usize,
    value: *mut c_void,
    ret: *mut usize,
) -> cl_int {
    code(enter("clGetSamplerInfo", |driver| {
        let sampler = driver.get(Kind::Sampler, sampler.addr())?;
        match what {
            CL_SAMPLER_CONTEXT => write_property(&sampler.context.to_ne_bytes(), size, value, ret),
            _ => Err(CL_INVALID_VALUE),
        }
    }))
}

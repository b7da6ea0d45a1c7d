//! One platform with one device, and its contexts and queues.

use std::ffi::{c_char, c_void};
use std::slice;

use opencl_sys::*;

use crate::driver::{Answer, FakeDriver, Kind, code, enter, hold, made, text, write_property};

pub const PLATFORM: usize = 0xc1f0;
pub const DEVICE: usize = 0xc1d0;

const EXTENSIONS: &str = "cl_intel_unified_shared_memory cl_khr_il_program";

/// Writes a list of one handle, or of none.
fn listed(found: Option<usize>, capacity: cl_uint, to: *mut *mut c_void, count: *mut cl_uint) {
    if let Some(found) = found
        && !to.is_null()
        && capacity > 0
    {
        // SAFETY: the caller's list has room for that many.
        unsafe { to.write(found as *mut c_void) };
    }
    if !count.is_null() {
        // SAFETY: the caller's output has room for a count.
        unsafe { count.write(u32::from(found.is_some())) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetPlatformIDs(
    capacity: cl_uint,
    to: *mut cl_platform_id,
    count: *mut cl_uint,
) -> cl_int {
    code(enter("clGetPlatformIDs", |driver| {
        let found = (!driver.script.shape.no_platform).then_some(PLATFORM);
        listed(found, capacity, to, count);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetPlatformInfo(
    _: cl_platform_id,
    what: cl_platform_info,
    size: usize,
    value: *mut c_void,
    ret: *mut usize,
) -> cl_int {
    code(enter("clGetPlatformInfo", |_| {
        let answer = match what {
            CL_PLATFORM_NAME => "Scripted OpenCL",
            CL_PLATFORM_VENDOR => "Nobody",
            CL_PLATFORM_VERSION => "OpenCL 3.0 scripted",
            CL_PLATFORM_PROFILE => "FULL_PROFILE",
            CL_PLATFORM_EXTENSIONS => EXTENSIONS,
            _ => return Err(CL_INVALID_VALUE),
        };
        write_property(&text(answer), size, value, ret)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetDeviceIDs(
    _: cl_platform_id,
    _: cl_device_type,
    capacity: cl_uint,
    to: *mut cl_device_id,
    count: *mut cl_uint,
) -> cl_int {
    code(enter("clGetDeviceIDs", |driver| {
        let found = (!driver.script.shape.no_device).then_some(DEVICE);
        listed(found, capacity, to, count);
        found.map(drop).ok_or(CL_DEVICE_NOT_FOUND)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetDeviceInfo(
    device: cl_device_id,
    what: cl_device_info,
    size: usize,
    value: *mut c_void,
    ret: *mut usize,
) -> cl_int {
    code(enter("clGetDeviceInfo", |driver| {
        if device.addr() != DEVICE {
            return Err(CL_INVALID_DEVICE);
        }
        let sizes = [256_usize; 3].map(usize::to_ne_bytes).concat();
        let bytes = match what {
            CL_DEVICE_TYPE => match driver.script.shape.accelerator {
                true => CL_DEVICE_TYPE_ACCELERATOR,
                false => CL_DEVICE_TYPE_CPU,
            }
            .to_ne_bytes()
            .to_vec(),
            CL_DEVICE_SVM_CAPABILITIES if driver.script.shape.shared_addresses => {
                CL_DEVICE_SVM_FINE_GRAIN_SYSTEM.to_ne_bytes().to_vec()
            }
            CL_DEVICE_NAME => text("Scripted device"),
            CL_DEVICE_VERSION => text("OpenCL 3.0 scripted"),
            CL_DEVICE_EXTENSIONS => text(EXTENSIONS),
            CL_DEVICE_IL_VERSION => text("SPIR-V_1.2"),
            CL_DEVICE_PLATFORM => PLATFORM.to_ne_bytes().to_vec(),
            CL_DEVICE_MAX_MEM_ALLOC_SIZE | CL_DEVICE_GLOBAL_MEM_SIZE => {
                (1_u64 << 30).to_ne_bytes().to_vec()
            }
            CL_DEVICE_MAX_WORK_ITEM_SIZES => sizes,
            CL_DEVICE_MAX_WORK_GROUP_SIZE => 256_usize.to_ne_bytes().to_vec(),
            // A number that is 0, in the requested width.
            _ => vec![0; if value.is_null() { 4 } else { size.min(8) }],
        };
        write_property(&bytes, size, value, ret)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCreateSubDevices(
    _: cl_device_id,
    _: *const cl_device_partition_property,
    _: cl_uint,
    _: *mut cl_device_id,
    _: *mut cl_uint,
) -> cl_int {
    code(enter("clCreateSubDevices", |_| {
        Err(CL_DEVICE_PARTITION_FAILED)
    }))
}

/// Functions that count references.
macro_rules! counted {
    ($($kind:ident $retain:ident $release:ident;)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $retain(object: *mut c_void) -> cl_int {
            let name = stringify!($retain);
            code(enter(name, |driver| driver.retain(Kind::$kind, object.addr())))
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $release(object: *mut c_void) -> cl_int {
            let name = stringify!($release);
            code(enter(name, |driver| driver.release(Kind::$kind, object.addr())))
        }
    )* };
}

counted! {
    Context clRetainContext clReleaseContext;
    Queue clRetainCommandQueue clReleaseCommandQueue;
    Event clRetainEvent clReleaseEvent;
    Mem clRetainMemObject clReleaseMemObject;
    Sampler clRetainSampler clReleaseSampler;
    Program clRetainProgram clReleaseProgram;
    Kernel clRetainKernel clReleaseKernel;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clRetainDevice(_: cl_device_id) -> cl_int {
    CL_SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clReleaseDevice(_: cl_device_id) -> cl_int {
    CL_SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCreateContext(
    _: *const cl_context_properties,
    count: cl_uint,
    devices: *const cl_device_id,
    _: Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>,
    _: *mut c_void,
    ret: *mut cl_int,
) -> cl_context {
    let answer = enter("clCreateContext", |driver| {
        // SAFETY: the list has the given number of devices.
        let devices = unsafe { slice::from_raw_parts(devices, count as usize) };
        match devices.iter().all(|device| device.addr() == DEVICE) {
            true => Ok(driver.make(Kind::Context, |_| {})),
            false => Err(CL_INVALID_DEVICE),
        }
    });
    made(answer, ret)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetContextInfo(
    context: cl_context,
    what: cl_context_info,
    size: usize,
    value: *mut c_void,
    ret: *mut usize,
) -> cl_int {
    code(enter("clGetContextInfo", |driver| {
        driver.get(Kind::Context, context.addr())?;
        match what {
            CL_CONTEXT_DEVICES => write_property(&DEVICE.to_ne_bytes(), size, value, ret),
            CL_CONTEXT_NUM_DEVICES => write_property(&1_u32.to_ne_bytes(), size, value, ret),
            _ => Err(CL_INVALID_VALUE),
        }
    }))
}

fn queue(driver: &mut FakeDriver, context: cl_context, bits: u64) -> Answer<usize> {
    let context = context.addr();
    driver.get(Kind::Context, context)?;
    Ok(driver.make(Kind::Queue, |queue| {
        (queue.context, queue.bits) = (context, bits);
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCreateCommandQueue(
    context: cl_context,
    _: cl_device_id,
    bits: cl_command_queue_properties,
    ret: *mut cl_int,
) -> cl_command_queue {
    made(
        enter("clCreateCommandQueue", |driver| {
            queue(driver, context, bits)
        }),
        ret,
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCreateCommandQueueWithProperties(
    context: cl_context,
    _: cl_device_id,
    properties: *const cl_queue_properties,
    ret: *mut cl_int,
) -> cl_command_queue {
    // SAFETY: a list of one property that ends with zero.
    let bits = unsafe { properties.add(1).read() };
    let name = "clCreateCommandQueueWithProperties";
    made(enter(name, |driver| queue(driver, context, bits)), ret)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetCommandQueueInfo(
    queue: cl_command_queue,
    what: cl_command_queue_info,
    size: usize,
    value: *mut c_void,
    ret: *mut usize,
) -> cl_int {
    code(enter("clGetCommandQueueInfo", |driver| {
        let queue = driver.get(Kind::Queue, queue.addr())?;
        let bytes = match what {
            CL_QUEUE_CONTEXT => queue.context.to_ne_bytes(),
            CL_QUEUE_DEVICE => DEVICE.to_ne_bytes(),
            CL_QUEUE_PROPERTIES => queue.bits.to_ne_bytes(),
            _ => return Err(CL_INVALID_VALUE),
        };
        write_property(&bytes, size, value, ret)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clFlush(queue: cl_command_queue) -> cl_int {
    code(enter("clFlush", |driver| {
        driver.get(Kind::Queue, queue.addr()).map(drop)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clFinish(queue: cl_command_queue) -> cl_int {
    let queue = queue.addr();
    let result = enter("clFinish", |driver| {
        driver.get(Kind::Queue, queue).map(drop)
    });
    if result.is_ok() {
        let mut driver = hold();
        while !driver.is_idle(queue) {
            driver = driver.wait();
        }
    }
    code(result)
}

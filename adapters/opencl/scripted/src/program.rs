//! Programs with one kernel, `work`, which does nothing.

use std::ffi::{CStr, c_char, c_void};

use opencl_sys::*;

use crate::driver::{Answer, FakeDriver, Kind, code, enter, made, text, write_property};
use crate::platform::DEVICE;

type Notify = Option<unsafe extern "C" fn(cl_program, *mut c_void)>;

fn program(driver: &mut FakeDriver, context: usize) -> Answer<usize> {
    driver.get(Kind::Context, context)?;
    Ok(driver.make(Kind::Program, |program| program.context = context))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCreateProgramWithIL(
    context: cl_context,
    _: *const c_void,
    length: usize,
    ret: *mut cl_int,
) -> cl_program {
    let answer = enter("clCreateProgramWithIL", |driver| match length {
        0 => Err(CL_INVALID_VALUE),
        _ => program(driver, context.addr()),
    });
    made(answer, ret)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCreateProgramWithBinary(
    context: cl_context,
    _: cl_uint,
    _: *const cl_device_id,
    _: *const usize,
    _: *mut *const u8,
    _: *mut cl_int,
    ret: *mut cl_int,
) -> cl_program {
    let name = "clCreateProgramWithBinary";
    made(enter(name, |driver| program(driver, context.addr())), ret)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clBuildProgram(
    program: cl_program,
    _: cl_uint,
    _: *const cl_device_id,
    _: *const c_char,
    _: Notify,
    _: *mut c_void,
) -> cl_int {
    code(enter("clBuildProgram", |driver| {
        driver.get(Kind::Program, program.addr()).map(drop)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCompileProgram(
    program: cl_program,
    _: cl_uint,
    _: *const cl_device_id,
    _: *const c_char,
    _: cl_uint,
    _: *const cl_program,
    _: *mut *const c_char,
    _: Notify,
    _: *mut c_void,
) -> cl_int {
    code(enter("clCompileProgram", |driver| {
        driver.get(Kind::Program, program.addr()).map(drop)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clLinkProgram(
    context: cl_context,
    _: cl_uint,
    _: *const cl_device_id,
    _: *const c_char,
    _: cl_uint,
    _: *const cl_program,
    _: Notify,
    _: *mut c_void,
    ret: *mut cl_int,
) -> cl_program {
    made(
        enter("clLinkProgram", |driver| program(driver, context.addr())),
        ret,
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetProgramInfo(
    program: cl_program,
    what: cl_program_info,
    size: usize,
    value: *mut c_void,
    ret: *mut usize,
) -> cl_int {
    code(enter("clGetProgramInfo", |driver| {
        let program = driver.get(Kind::Program, program.addr())?;
        let bytes = match what {
            CL_PROGRAM_CONTEXT => program.context.to_ne_bytes().to_vec(),
            CL_PROGRAM_DEVICES => DEVICE.to_ne_bytes().to_vec(),
            CL_PROGRAM_NUM_KERNELS => 1_usize.to_ne_bytes().to_vec(),
            CL_PROGRAM_KERNEL_NAMES => text("work"),
            CL_PROGRAM_BINARY_SIZES => 0_usize.to_ne_bytes().to_vec(),
            CL_PROGRAM_BINARIES => Vec::new(),
            _ => return Err(CL_INVALID_VALUE),
        };
        write_property(&bytes, size, value, ret)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetProgramBuildInfo(
    program: cl_program,
    _: cl_device_id,
    what: cl_program_build_info,
    size: usize,
    value: *mut c_void,
    ret: *mut usize,
) -> cl_int {
    code(enter("clGetProgramBuildInfo", |driver| {
        driver.get(Kind::Program, program.addr())?;
        match what {
            CL_PROGRAM_BUILD_STATUS => {
                write_property(&CL_BUILD_SUCCESS.to_ne_bytes(), size, value, ret)
            }
            _ => write_property(&text(""), size, value, ret),
        }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCreateKernel(
    program: cl_program,
    name: *const c_char,
    ret: *mut cl_int,
) -> cl_kernel {
    let answer = enter("clCreateKernel", |driver| {
        // SAFETY: the caller's C string.
        let name = unsafe { CStr::from_ptr(name) };
        let context = driver.get(Kind::Program, program.addr())?.context;
        match name.to_bytes() {
            b"work" => Ok(driver.make(Kind::Kernel, |kernel| {
                (kernel.context, kernel.parent) = (context, program.addr());
                kernel.name = name.to_owned();
            })),
            _ => Err(CL_INVALID_KERNEL_NAME),
        }
    });
    made(answer, ret)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clSetKernelArg(
    kernel: cl_kernel,
    _: cl_uint,
    _: usize,
    _: *const c_void,
) -> cl_int {
    code(enter("clSetKernelArg", |driver| {
        driver.get(Kind::Kernel, kernel.addr()).map(drop)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetKernelInfo(
    kernel: cl_kernel,
    what: cl_kernel_info,
    size: usize,
    value: *mut c_void,
    ret: *mut usize,
) -> cl_int {
    code(enter("clGetKernelInfo", |driver| {
        let kernel = driver.get(Kind::Kernel, kernel.addr())?;
        let bytes = match what {
            CL_KERNEL_FUNCTION_NAME => kernel.name.as_bytes_with_nul().to_vec(),
            CL_KERNEL_NUM_ARGS => 1_u32.to_ne_bytes().to_vec(),
            CL_KERNEL_PROGRAM => kernel.parent.to_ne_bytes().to_vec(),
            CL_KERNEL_CONTEXT => kernel.context.to_ne_bytes().to_vec(),
            _ => return Err(CL_INVALID_VALUE),
        };
        write_property(&bytes, size, value, ret)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetKernelWorkGroupInfo(
    kernel: cl_kernel,
    _: cl_device_id,
    what: cl_kernel_work_group_info,
    size: usize,
    value: *mut c_void,
    ret: *mut usize,
) -> cl_int {
    code(enter("clGetKernelWorkGroupInfo", |driver| {
        driver.get(Kind::Kernel, kernel.addr())?;
        match what {
            CL_KERNEL_WORK_GROUP_SIZE => write_property(&256_usize.to_ne_bytes(), size, value, ret),
            _ => write_property(&vec![0; size], size, value, ret),
        }
    }))
}

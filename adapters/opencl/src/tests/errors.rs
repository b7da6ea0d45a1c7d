//! The result of a failed OpenCL call for the caller, and the adapter's error report.

use std::ffi::CStr;
use std::ptr::null;

use opencl_sys::*;
use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, device, ur};
use super::workload;

/// An OpenCL call, its error code, and the step that must return an error with this result.
type Case = (&'static str, cl_int, &'static str, ur_result_t);

const CASES: [Case; 24] = [
    (
        "clCreateContext",
        CL_OUT_OF_HOST_MEMORY,
        "urContextCreate",
        UR_RESULT_ERROR_OUT_OF_HOST_MEMORY,
    ),
    (
        "clCreateContext",
        CL_DEVICE_NOT_AVAILABLE,
        "urContextCreate",
        UR_RESULT_ERROR_DEVICE_NOT_AVAILABLE,
    ),
    (
        "clCreateCommandQueueWithProperties",
        CL_INVALID_QUEUE_PROPERTIES,
        "urQueueCreate",
        UR_RESULT_ERROR_INVALID_QUEUE_PROPERTIES,
    ),
    (
        "clSharedMemAllocINTEL",
        CL_OUT_OF_RESOURCES,
        "urUSMSharedAlloc",
        UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
    ),
    (
        "clHostMemAllocINTEL",
        CL_OUT_OF_HOST_MEMORY,
        "urUSMHostAlloc",
        UR_RESULT_ERROR_OUT_OF_HOST_MEMORY,
    ),
    (
        "clDeviceMemAllocINTEL",
        CL_MEM_OBJECT_ALLOCATION_FAILURE,
        "urEnqueueUSMDeviceAllocExp",
        UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
    ),
    (
        "clEnqueueMemFillINTEL",
        CL_OUT_OF_RESOURCES,
        "urEnqueueUSMFill",
        UR_RESULT_ERROR_OUT_OF_RESOURCES,
    ),
    (
        "clEnqueueMemcpyINTEL",
        CL_INVALID_VALUE,
        "urEnqueueUSMFill",
        UR_RESULT_ERROR_INVALID_VALUE,
    ),
    (
        "clFlush",
        CL_OUT_OF_RESOURCES,
        "urEnqueueUSMFill",
        UR_RESULT_ERROR_OUT_OF_RESOURCES,
    ),
    (
        "clCreateBuffer",
        CL_INVALID_BUFFER_SIZE,
        "urMemBufferCreate",
        UR_RESULT_ERROR_INVALID_BUFFER_SIZE,
    ),
    (
        "clCreateBuffer",
        CL_MEM_OBJECT_ALLOCATION_FAILURE,
        "urMemBufferCreate",
        UR_RESULT_ERROR_MEM_OBJECT_ALLOCATION_FAILURE,
    ),
    (
        "clCreateSubBuffer",
        CL_MISALIGNED_SUB_BUFFER_OFFSET,
        "urMemBufferPartition",
        UR_RESULT_ERROR_MISALIGNED_SUB_BUFFER_OFFSET,
    ),
    (
        "clEnqueueWriteBuffer",
        CL_INVALID_MEM_OBJECT,
        "urEnqueueMemBufferWrite",
        UR_RESULT_ERROR_INVALID_MEM_OBJECT,
    ),
    (
        "clEnqueueCopyBuffer",
        CL_MEM_COPY_OVERLAP,
        "urEnqueueMemBufferCopy",
        UR_RESULT_ERROR_OVERLAPPING_REGIONS,
    ),
    (
        "clEnqueueReadBuffer",
        CL_OUT_OF_HOST_MEMORY,
        "urEnqueueMemBufferRead",
        UR_RESULT_ERROR_OUT_OF_HOST_MEMORY,
    ),
    (
        "clEnqueueMapBuffer",
        CL_MAP_FAILURE,
        "urEnqueueMemBufferMap",
        UR_RESULT_ERROR_UNKNOWN,
    ),
    (
        "clEnqueueMigrateMemObjects",
        CL_OUT_OF_RESOURCES,
        "urEnqueueNativeCommandExp",
        UR_RESULT_ERROR_OUT_OF_RESOURCES,
    ),
    (
        "clCreateProgramWithIL",
        CL_INVALID_VALUE,
        "urProgramCreateWithIL",
        UR_RESULT_ERROR_INVALID_BINARY,
    ),
    (
        "clBuildProgram",
        CL_BUILD_PROGRAM_FAILURE,
        "urProgramBuild",
        UR_RESULT_ERROR_PROGRAM_BUILD_FAILURE,
    ),
    (
        "clCreateKernel",
        CL_INVALID_KERNEL_NAME,
        "urKernelCreate",
        UR_RESULT_ERROR_INVALID_KERNEL_NAME,
    ),
    (
        "clSetKernelArg",
        CL_INVALID_ARG_SIZE,
        "urEnqueueKernelLaunchWithArgsExp",
        UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE,
    ),
    (
        "clEnqueueNDRangeKernel",
        CL_INVALID_WORK_GROUP_SIZE,
        "urEnqueueKernelLaunchWithArgsExp",
        UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE,
    ),
    (
        "clCreateUserEvent",
        CL_OUT_OF_HOST_MEMORY,
        "urEventGetNativeHandle",
        UR_RESULT_ERROR_OUT_OF_HOST_MEMORY,
    ),
    ("clGetEventInfo", CL_OUT_OF_RESOURCES, "", UR_RESULT_SUCCESS),
];

#[test]
fn a_failure_of_each_call_has_its_own_code() {
    let name = "tests::errors::a_failure_of_each_call_has_its_own_code";
    alone(name, &[], || {
        let driver = FakeDriver::open();
        let device = device(adapter().expect("an adapter"));
        for (call, code, step, result) in CASES {
            driver.fail_each(call, code);
            let failed = workload::play(device).failed();
            assert!(driver.query().met, "a scene calls {call}");
            if !step.is_empty() {
                let first = failed.first();
                assert_eq!(first, Some(&(step, result)), "{call} failed with {code}");
            }
            driver.check_end(call);
        }
    });
}

#[test]
fn the_last_error_has_the_native_code_and_the_call() {
    let name = "tests::errors::the_last_error_has_the_native_code_and_the_call";
    alone(name, &[], || {
        let driver = FakeDriver::open();
        let adapter = adapter().expect("an adapter");
        let device = device(adapter);
        driver.fail_each("clCreateContext", -9876);
        let mut context = std::ptr::null_mut();
        let code = ur!(Context.pfnCreate(1, &device, null(), &mut context));
        assert_eq!((code, context.is_null()), (UR_RESULT_ERROR_UNKNOWN, true));
        let (mut message, mut native) = (null(), 0);
        let code = ur!(Adapter.pfnGetLastError(adapter, &mut message, &mut native));
        assert_eq!((code, native), (UR_RESULT_SUCCESS, -9876));
        // SAFETY: the message is valid until this thread's next failure.
        let message = unsafe { CStr::from_ptr(message) }.to_string_lossy();
        assert!(
            message.contains("clCreateContext") && message.contains("-9876"),
            "{message}"
        );
    });
}

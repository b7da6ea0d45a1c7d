//! Checks at compile time that each entry point has the type of OpenCL's headers.

use opencl_sys::cl_function_types::*;

macro_rules! typed {
    ($module:ident: $($name:ident $ty:ident,)*) => { $(
        const _: $ty = Some(crate::$module::$name);
    )* };
}

typed! { command:
    clEnqueueBarrierWithWaitList clEnqueueBarrierWithWaitList_t,
    clEnqueueCopyBuffer clEnqueueCopyBuffer_t,
    clEnqueueCopyBufferRect clEnqueueCopyBufferRect_t,
    clEnqueueCopyImage clEnqueueCopyImage_t,
    clEnqueueFillBuffer clEnqueueFillBuffer_t,
    clEnqueueMapBuffer clEnqueueMapBuffer_t,
    clEnqueueMapImage clEnqueueMapImage_t,
    clEnqueueMarkerWithWaitList clEnqueueMarkerWithWaitList_t,
    clEnqueueMigrateMemObjects clEnqueueMigrateMemObjects_t,
    clEnqueueNDRangeKernel clEnqueueNDRangeKernel_t,
    clEnqueueReadBuffer clEnqueueReadBuffer_t,
    clEnqueueReadBufferRect clEnqueueReadBufferRect_t,
    clEnqueueReadImage clEnqueueReadImage_t,
    clEnqueueUnmapMemObject clEnqueueUnmapMemObject_t,
    clEnqueueWriteBuffer clEnqueueWriteBuffer_t,
    clEnqueueWriteBufferRect clEnqueueWriteBufferRect_t,
    clEnqueueWriteImage clEnqueueWriteImage_t,
}

typed! { event:
    clCreateUserEvent clCreateUserEvent_t,
    clGetEventInfo clGetEventInfo_t,
    clGetEventProfilingInfo clGetEventProfilingInfo_t,
    clSetEventCallback clSetEventCallback_t,
    clSetUserEventStatus clSetUserEventStatus_t,
    clWaitForEvents clWaitForEvents_t,
}

typed! { extension:
    clGetExtensionFunctionAddressForPlatform clGetExtensionFunctionAddressForPlatform_t,
}

typed! { memory:
    clCreateBuffer clCreateBuffer_t,
    clCreateImage clCreateImage_t,
    clCreateSampler clCreateSampler_t,
    clCreateSubBuffer clCreateSubBuffer_t,
    clGetImageInfo clGetImageInfo_t,
    clGetMemObjectInfo clGetMemObjectInfo_t,
    clGetSamplerInfo clGetSamplerInfo_t,
}

typed! { platform:
    clCreateCommandQueue clCreateCommandQueue_t,
    clCreateCommandQueueWithProperties clCreateCommandQueueWithProperties_t,
    clCreateContext clCreateContext_t,
    clCreateSubDevices clCreateSubDevices_t,
    clFinish clFinish_t,
    clFlush clFlush_t,
    clGetCommandQueueInfo clGetCommandQueueInfo_t,
    clGetContextInfo clGetContextInfo_t,
    clGetDeviceIDs clGetDeviceIDs_t,
    clGetDeviceInfo clGetDeviceInfo_t,
    clGetPlatformIDs clGetPlatformIDs_t,
    clGetPlatformInfo clGetPlatformInfo_t,
    clReleaseCommandQueue clReleaseCommandQueue_t,
    clReleaseContext clReleaseContext_t,
    clReleaseDevice clReleaseDevice_t,
    clReleaseEvent clReleaseEvent_t,
    clReleaseKernel clReleaseKernel_t,
    clReleaseMemObject clReleaseMemObject_t,
    clReleaseProgram clReleaseProgram_t,
    clReleaseSampler clReleaseSampler_t,
    clRetainCommandQueue clRetainCommandQueue_t,
    clRetainContext clRetainContext_t,
    clRetainDevice clRetainDevice_t,
    clRetainEvent clRetainEvent_t,
    clRetainKernel clRetainKernel_t,
    clRetainMemObject clRetainMemObject_t,
    clRetainProgram clRetainProgram_t,
    clRetainSampler clRetainSampler_t,
}

typed! { program:
    clBuildProgram clBuildProgram_t,
    clCompileProgram clCompileProgram_t,
    clCreateKernel clCreateKernel_t,
    clCreateProgramWithBinary clCreateProgramWithBinary_t,
    clCreateProgramWithIL clCreateProgramWithIL_t,
    clGetKernelInfo clGetKernelInfo_t,
    clGetKernelWorkGroupInfo clGetKernelWorkGroupInfo_t,
    clGetProgramBuildInfo clGetProgramBuildInfo_t,
    clGetProgramInfo clGetProgramInfo_t,
    clLinkProgram clLinkProgram_t,
    clSetKernelArg clSetKernelArg_t,
}

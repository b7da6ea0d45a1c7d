//! The functions of OpenCL: the library's required and optional ones, and each platform's extensions.

use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use opencl_sys::cl_function_types::*;
use opencl_sys::*;
use ur::dl::symbols;
use ur::hal::Unwrapped;

type F<T> = <T as Unwrapped>::Fn;

/// `clGetDeviceFunctionPointerINTEL`
type FunctionPointer =
    unsafe extern "C" fn(cl_device_id, cl_program, *const c_char, *mut cl_ulong) -> cl_int;
/// `clGetDeviceGlobalVariablePointerINTEL`
type VariablePointer = unsafe extern "C" fn(
    cl_device_id,
    cl_program,
    *const c_char,
    *mut usize,
    *mut *mut c_void,
) -> cl_int;
/// `clMemBlockingFreeINTEL`
type BlockingFree = unsafe extern "C" fn(cl_context, *mut c_void) -> cl_int;
/// `clGetKernelSuggestedLocalWorkSizeKHR`
pub type SuggestedSize = unsafe extern "C" fn(
    cl_command_queue,
    cl_kernel,
    cl_uint,
    *const usize,
    *const usize,
    *mut usize,
) -> cl_int;
/// `clGetKernelMaxConcurrentWorkGroupCountINTEL`
type ConcurrentGroups = unsafe extern "C" fn(
    cl_command_queue,
    cl_kernel,
    cl_uint,
    *const usize,
    *const usize,
    *mut usize,
) -> cl_int;

symbols! {
    /// Functions that the library exports.
    pub struct Core {
        required {
            clGetPlatformIDs: F<clGetPlatformIDs_t>,
            clGetPlatformInfo: F<clGetPlatformInfo_t>,
            clGetDeviceIDs: F<clGetDeviceIDs_t>,
            clGetDeviceInfo: F<clGetDeviceInfo_t>,
            clCreateSubDevices: F<clCreateSubDevices_t>,
            clRetainDevice: F<clRetainDevice_t>,
            clReleaseDevice: F<clReleaseDevice_t>,
            clCreateContext: F<clCreateContext_t>,
            clRetainContext: F<clRetainContext_t>,
            clReleaseContext: F<clReleaseContext_t>,
            clGetContextInfo: F<clGetContextInfo_t>,
            clCreateCommandQueue: F<clCreateCommandQueue_t>,
            clRetainCommandQueue: F<clRetainCommandQueue_t>,
            clReleaseCommandQueue: F<clReleaseCommandQueue_t>,
            clGetCommandQueueInfo: F<clGetCommandQueueInfo_t>,
            clFlush: F<clFlush_t>,
            clFinish: F<clFinish_t>,
            clCreateBuffer: F<clCreateBuffer_t>,
            clCreateSubBuffer: F<clCreateSubBuffer_t>,
            clCreateImage: F<clCreateImage_t>,
            clRetainMemObject: F<clRetainMemObject_t>,
            clReleaseMemObject: F<clReleaseMemObject_t>,
            clGetMemObjectInfo: F<clGetMemObjectInfo_t>,
            clGetImageInfo: F<clGetImageInfo_t>,
            clCreateSampler: F<clCreateSampler_t>,
            clRetainSampler: F<clRetainSampler_t>,
            clReleaseSampler: F<clReleaseSampler_t>,
            clGetSamplerInfo: F<clGetSamplerInfo_t>,
            clCreateProgramWithBinary: F<clCreateProgramWithBinary_t>,
            clRetainProgram: F<clRetainProgram_t>,
            clReleaseProgram: F<clReleaseProgram_t>,
            clBuildProgram: F<clBuildProgram_t>,
            clCompileProgram: F<clCompileProgram_t>,
            clLinkProgram: F<clLinkProgram_t>,
            clGetProgramInfo: F<clGetProgramInfo_t>,
            clGetProgramBuildInfo: F<clGetProgramBuildInfo_t>,
            clCreateKernel: F<clCreateKernel_t>,
            clRetainKernel: F<clRetainKernel_t>,
            clReleaseKernel: F<clReleaseKernel_t>,
            clSetKernelArg: F<clSetKernelArg_t>,
            clGetKernelInfo: F<clGetKernelInfo_t>,
            clGetKernelWorkGroupInfo: F<clGetKernelWorkGroupInfo_t>,
            clWaitForEvents: F<clWaitForEvents_t>,
            clGetEventInfo: F<clGetEventInfo_t>,
            clCreateUserEvent: F<clCreateUserEvent_t>,
            clSetUserEventStatus: F<clSetUserEventStatus_t>,
            clSetEventCallback: F<clSetEventCallback_t>,
            clRetainEvent: F<clRetainEvent_t>,
            clReleaseEvent: F<clReleaseEvent_t>,
            clGetEventProfilingInfo: F<clGetEventProfilingInfo_t>,
            clEnqueueReadBuffer: F<clEnqueueReadBuffer_t>,
            clEnqueueReadBufferRect: F<clEnqueueReadBufferRect_t>,
            clEnqueueWriteBuffer: F<clEnqueueWriteBuffer_t>,
            clEnqueueWriteBufferRect: F<clEnqueueWriteBufferRect_t>,
            clEnqueueCopyBuffer: F<clEnqueueCopyBuffer_t>,
            clEnqueueCopyBufferRect: F<clEnqueueCopyBufferRect_t>,
            clEnqueueFillBuffer: F<clEnqueueFillBuffer_t>,
            clEnqueueReadImage: F<clEnqueueReadImage_t>,
            clEnqueueWriteImage: F<clEnqueueWriteImage_t>,
            clEnqueueCopyImage: F<clEnqueueCopyImage_t>,
            clEnqueueMapBuffer: F<clEnqueueMapBuffer_t>,
            clEnqueueMapImage: F<clEnqueueMapImage_t>,
            clEnqueueUnmapMemObject: F<clEnqueueUnmapMemObject_t>,
            clEnqueueNDRangeKernel: F<clEnqueueNDRangeKernel_t>,
            clEnqueueMarkerWithWaitList: F<clEnqueueMarkerWithWaitList_t>,
            clEnqueueBarrierWithWaitList: F<clEnqueueBarrierWithWaitList_t>,
            clGetExtensionFunctionAddressForPlatform: F<clGetExtensionFunctionAddressForPlatform_t>,
        }
        optional {
            clCreateCommandQueueWithProperties: F<clCreateCommandQueueWithProperties_t>,
            clCreateProgramWithIL: F<clCreateProgramWithIL_t>,
            clEnqueueMigrateMemObjects: F<clEnqueueMigrateMemObjects_t>,
            clGetDeviceAndHostTimer: F<clGetDeviceAndHostTimer_t>,
            clGetKernelSubGroupInfo: F<clGetKernelSubGroupInfo_t>,
            clSetKernelArgSVMPointer: F<clSetKernelArgSVMPointer_t>,
            clSetKernelExecInfo: F<clSetKernelExecInfo_t>,
            clSetProgramSpecializationConstant: F<clSetProgramSpecializationConstant_t>,
            clSVMAlloc: F<clSVMAlloc_t>,
            clSVMFree: F<clSVMFree_t>,
            clEnqueueSVMMemcpy: F<clEnqueueSVMMemcpy_t>,
            clEnqueueSVMMemFill: F<clEnqueueSVMMemFill_t>,
        }
    }
}

symbols! {
    /// Extension functions of a platform.
    #[derive(Default)]
    pub struct Extensions {
        required {}
        optional {
            clHostMemAllocINTEL: F<clHostMemAllocINTEL_t>,
            clDeviceMemAllocINTEL: F<clDeviceMemAllocINTEL_t>,
            clSharedMemAllocINTEL: F<clSharedMemAllocINTEL_t>,
            clMemFreeINTEL: F<clMemFreeINTEL_t>,
            clMemBlockingFreeINTEL: BlockingFree,
            clGetMemAllocInfoINTEL: F<clGetMemAllocInfoINTEL_t>,
            clSetKernelArgMemPointerINTEL: F<clSetKernelArgMemPointerINTEL_t>,
            clEnqueueMemFillINTEL: F<clEnqueueMemFillINTEL_t>,
            clEnqueueMemcpyINTEL: F<clEnqueueMemcpyINTEL_t>,
            clEnqueueMigrateMemINTEL: F<clEnqueueMigrateMemINTEL_t>,
            clEnqueueMemAdviseINTEL: F<clEnqueueMemAdviseINTEL_t>,
            clEnqueueReadHostPipeINTEL: F<clEnqueueReadHostPipeINTEL_t>,
            clEnqueueWriteHostPipeINTEL: F<clEnqueueWriteHostPipeINTEL_t>,
            clGetDeviceFunctionPointerINTEL: FunctionPointer,
            clGetDeviceGlobalVariablePointerINTEL: VariablePointer,
            clGetKernelSuggestedLocalWorkSizeKHR: SuggestedSize,
            clGetKernelMaxConcurrentWorkGroupCountINTEL: ConcurrentGroups,
            clCreateProgramWithILKHR: F<clCreateProgramWithILKHR_fn>,
            clCreateCommandBufferKHR: F<clCreateCommandBufferKHR_t>,
            clFinalizeCommandBufferKHR: F<clFinalizeCommandBufferKHR_t>,
            clReleaseCommandBufferKHR: F<clReleaseCommandBufferKHR_t>,
            clEnqueueCommandBufferKHR: F<clEnqueueCommandBufferKHR_t>,
            clCommandNDRangeKernelKHR: F<clCommandNDRangeKernelKHR_t>,
            clCommandSVMMemcpyKHR: F<clCommandSVMMemcpyKHR_t>,
            clCommandSVMMemFillKHR: F<clCommandSVMMemFillKHR_t>,
            clCommandCopyBufferKHR: F<clCommandCopyBufferKHR_t>,
            clCommandCopyBufferRectKHR: F<clCommandCopyBufferRectKHR_t>,
            clCommandFillBufferKHR: F<clCommandFillBufferKHR_t>,
            clUpdateMutableCommandsKHR: F<clUpdateMutableCommandsKHR_t>,
            clGetKernelSubGroupInfoKHR: F<clGetKernelSubGroupInfoKHR_fn>,
        }
    }
}

/// Names of the library, in the order in which they are tried.
const NAMES: &[&str] = &["libOpenCL.so.1", "libOpenCL.so"];

impl Core {
    /// The library's functions. None if there is no usable OpenCL.
    pub fn find() -> Option<Self> {
        match Self::load(NAMES) {
            Ok(core) => Some(core),
            Err(error) => {
                log::info!("no OpenCL: {error}");
                None
            }
        }
    }
}

/// All functions for the objects of one platform.
pub struct Api {
    pub core: &'static Core,
    platform: usize,
    ext: OnceLock<Extensions>,
}

impl Api {
    pub fn of(core: &'static Core, platform: cl_platform_id) -> Self {
        Self {
            core,
            platform: platform.expose_provenance(),
            ext: OnceLock::new(),
        }
    }

    /// The platform's extension functions, all looked up at the first use. A driver may take long for each
    /// lookup, and listing devices needs none of them.
    #[inline]
    pub fn ext(&self) -> &Extensions {
        self.ext.get_or_init(|| {
            let lookup = |name: &CStr| {
                let platform = std::ptr::with_exposed_provenance_mut(self.platform);
                let find = self.core.clGetExtensionFunctionAddressForPlatform;
                // SAFETY: the library listed the platform.
                unsafe { find(platform, name.as_ptr()) }.cast_const()
            };
            Extensions::resolve(lookup, "platform").unwrap_or_else(|error| {
                // No extension function is required.
                log::error!("a platform's functions: {error}");
                Extensions::default()
            })
        })
    }

    /// Whether USM is allocated by `cl_intel_unified_shared_memory`.
    pub fn has_usm(&self) -> bool {
        self.ext().clDeviceMemAllocINTEL.is_some() && self.ext().clEnqueueMemcpyINTEL.is_some()
    }
}

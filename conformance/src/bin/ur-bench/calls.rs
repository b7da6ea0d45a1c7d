//! The measured functions, and helpers around them.

use std::path::Path;
use ur::abi::*;
use ur::dl::{Binding, Library, symbols};

/// The function behind a callback type that may be null.
pub trait Unwrapped {
    type Fn;
}

impl<F> Unwrapped for Option<F> {
    type Fn = F;
}

type F<T> = <T as Unwrapped>::Fn;

symbols! {
    /// A loader's functions.
    pub struct Calls {
        required {
            urLoaderInit: F<ur_pfnLoaderInit_t>,
            urAdapterGet: F<ur_pfnAdapterGet_t>,
            urPlatformGet: F<ur_pfnPlatformGet_t>,
            urDeviceGet: F<ur_pfnDeviceGet_t>,
            urDeviceGetInfo: F<ur_pfnDeviceGetInfo_t>,
            urContextCreate: F<ur_pfnContextCreate_t>,
            urQueueCreate: F<ur_pfnQueueCreate_t>,
            urQueueFinish: F<ur_pfnQueueFinish_t>,
            urProgramCreateWithIL: F<ur_pfnProgramCreateWithIL_t>,
            urProgramBuild: F<ur_pfnProgramBuild_t>,
            urKernelCreate: F<ur_pfnKernelCreate_t>,
            urEventWait: F<ur_pfnEventWait_t>,
            urEventRelease: F<ur_pfnEventRelease_t>,
            urEventGetInfo: F<ur_pfnEventGetInfo_t>,
            urUSMDeviceAlloc: F<ur_pfnUSMDeviceAlloc_t>,
            urUSMFree: F<ur_pfnUSMFree_t>,
            urEnqueueUSMMemcpy: F<ur_pfnEnqueueUSMMemcpy_t>,
            urEnqueueKernelLaunchWithArgsExp: F<ur_pfnEnqueueKernelLaunchWithArgsExp_t>,
            urEnqueueUSMDeviceAllocExp: F<ur_pfnEnqueueUSMDeviceAllocExp_t>,
            urEnqueueUSMFreeExp: F<ur_pfnEnqueueUSMFreeExp_t>,
            urCommandBufferCreateExp: F<ur_pfnCommandBufferCreateExp_t>,
            urCommandBufferFinalizeExp: F<ur_pfnCommandBufferFinalizeExp_t>,
            urCommandBufferAppendKernelLaunchWithArgsExp: F<ur_pfnCommandBufferAppendKernelLaunchWithArgsExp_t>,
            urEnqueueCommandBufferExp: F<ur_pfnEnqueueCommandBufferExp_t>,
        }
        optional {}
    }
}

impl Calls {
    /// The functions of a loader, which stays loaded for the life of the process.
    pub fn open(loader: &Path) -> Result<&'static Self, String> {
        let library = Library::open(loader, Binding::Usual).map_err(|error| error.to_string())?;
        let calls = Self::from_library(library).map_err(|error| error.to_string())?;
        Ok(Box::leak(Box::new(calls)))
    }
}

/// Success, or the code's name.
pub fn ok(code: ur_result_t) -> Result<(), String> {
    match code {
        UR_RESULT_SUCCESS => Ok(()),
        code => Err(code.name().unwrap_or("an unknown result").to_owned()),
    }
}

//! The loader's functions: one typed list, required or optional.
//!
//! Required are those of version 1.4, which the oldest supported loader has. All others are looked for one by one: a
//! feature is there if each function of it is.

use super::{call, list};
use crate::lz::*;
use ur::abi::UR_RESULT_ERROR_UNSUPPORTED_FEATURE;
use ur::object::Result;

ur::dl::symbols! {
    /// The loader's library.
    pub struct Api {
        required {
            zeInit: pfn::zeInit,
            zeDriverGet: pfn::zeDriverGet,
            zeDriverGetApiVersion: pfn::zeDriverGetApiVersion,
            zeDriverGetProperties: pfn::zeDriverGetProperties,
            zeDriverGetIpcProperties: pfn::zeDriverGetIpcProperties,
            zeDriverGetExtensionProperties: pfn::zeDriverGetExtensionProperties,
            zeDriverGetExtensionFunctionAddress: pfn::zeDriverGetExtensionFunctionAddress,
            zeDeviceGet: pfn::zeDeviceGet,
            zeDeviceGetSubDevices: pfn::zeDeviceGetSubDevices,
            zeDeviceGetProperties: pfn::zeDeviceGetProperties,
            zeDeviceGetComputeProperties: pfn::zeDeviceGetComputeProperties,
            zeDeviceGetModuleProperties: pfn::zeDeviceGetModuleProperties,
            zeDeviceGetCommandQueueGroupProperties: pfn::zeDeviceGetCommandQueueGroupProperties,
            zeDeviceGetMemoryProperties: pfn::zeDeviceGetMemoryProperties,
            zeDeviceGetMemoryAccessProperties: pfn::zeDeviceGetMemoryAccessProperties,
            zeDeviceGetCacheProperties: pfn::zeDeviceGetCacheProperties,
            zeDeviceGetImageProperties: pfn::zeDeviceGetImageProperties,
            zeDeviceGetExternalMemoryProperties: pfn::zeDeviceGetExternalMemoryProperties,
            zeDeviceGetP2PProperties: pfn::zeDeviceGetP2PProperties,
            zeDeviceCanAccessPeer: pfn::zeDeviceCanAccessPeer,
            zeDeviceGetStatus: pfn::zeDeviceGetStatus,
            zeDeviceGetGlobalTimestamps: pfn::zeDeviceGetGlobalTimestamps,
            zeContextCreate: pfn::zeContextCreate,
            zeContextDestroy: pfn::zeContextDestroy,
            zeCommandListCreateImmediate: pfn::zeCommandListCreateImmediate,
            zeCommandListDestroy: pfn::zeCommandListDestroy,
            zeCommandListCreate: pfn::zeCommandListCreate,
            zeCommandListClose: pfn::zeCommandListClose,
            zeCommandListReset: pfn::zeCommandListReset,
            zeCommandListAppendBarrier: pfn::zeCommandListAppendBarrier,
            zeCommandListAppendMemoryCopy: pfn::zeCommandListAppendMemoryCopy,
            zeCommandListAppendMemoryFill: pfn::zeCommandListAppendMemoryFill,
            zeCommandListAppendMemoryCopyRegion: pfn::zeCommandListAppendMemoryCopyRegion,
            zeCommandListAppendMemoryPrefetch: pfn::zeCommandListAppendMemoryPrefetch,
            zeCommandListAppendMemAdvise: pfn::zeCommandListAppendMemAdvise,
            zeCommandListAppendSignalEvent: pfn::zeCommandListAppendSignalEvent,
            zeCommandListAppendWaitOnEvents: pfn::zeCommandListAppendWaitOnEvents,
            zeCommandListAppendLaunchKernel: pfn::zeCommandListAppendLaunchKernel,
            zeCommandListAppendLaunchCooperativeKernel: pfn::zeCommandListAppendLaunchCooperativeKernel,
            zeEventPoolCreate: pfn::zeEventPoolCreate,
            zeEventPoolDestroy: pfn::zeEventPoolDestroy,
            zeEventPoolGetIpcHandle: pfn::zeEventPoolGetIpcHandle,
            zeEventPoolOpenIpcHandle: pfn::zeEventPoolOpenIpcHandle,
            zeEventPoolCloseIpcHandle: pfn::zeEventPoolCloseIpcHandle,
            zeEventCreate: pfn::zeEventCreate,
            zeEventDestroy: pfn::zeEventDestroy,
            zeEventHostSignal: pfn::zeEventHostSignal,
            zeEventHostReset: pfn::zeEventHostReset,
            zeEventHostSynchronize: pfn::zeEventHostSynchronize,
            zeEventQueryStatus: pfn::zeEventQueryStatus,
            zeEventQueryKernelTimestamp: pfn::zeEventQueryKernelTimestamp,
            zeMemAllocDevice: pfn::zeMemAllocDevice,
            zeMemAllocHost: pfn::zeMemAllocHost,
            zeMemAllocShared: pfn::zeMemAllocShared,
            zeMemFree: pfn::zeMemFree,
            zeMemGetAllocProperties: pfn::zeMemGetAllocProperties,
            zeMemGetIpcHandle: pfn::zeMemGetIpcHandle,
            zeMemOpenIpcHandle: pfn::zeMemOpenIpcHandle,
            zeMemCloseIpcHandle: pfn::zeMemCloseIpcHandle,
            zeMemGetAddressRange: pfn::zeMemGetAddressRange,
            zeVirtualMemReserve: pfn::zeVirtualMemReserve,
            zeVirtualMemFree: pfn::zeVirtualMemFree,
            zeVirtualMemQueryPageSize: pfn::zeVirtualMemQueryPageSize,
            zeVirtualMemMap: pfn::zeVirtualMemMap,
            zeVirtualMemUnmap: pfn::zeVirtualMemUnmap,
            zeVirtualMemSetAccessAttribute: pfn::zeVirtualMemSetAccessAttribute,
            zePhysicalMemCreate: pfn::zePhysicalMemCreate,
            zePhysicalMemDestroy: pfn::zePhysicalMemDestroy,
            zeModuleCreate: pfn::zeModuleCreate,
            zeModuleDestroy: pfn::zeModuleDestroy,
            zeModuleDynamicLink: pfn::zeModuleDynamicLink,
            zeModuleGetProperties: pfn::zeModuleGetProperties,
            zeModuleBuildLogDestroy: pfn::zeModuleBuildLogDestroy,
            zeModuleBuildLogGetString: pfn::zeModuleBuildLogGetString,
            zeModuleGetNativeBinary: pfn::zeModuleGetNativeBinary,
            zeModuleGetGlobalPointer: pfn::zeModuleGetGlobalPointer,
            zeModuleGetKernelNames: pfn::zeModuleGetKernelNames,
            zeModuleGetFunctionPointer: pfn::zeModuleGetFunctionPointer,
            zeKernelCreate: pfn::zeKernelCreate,
            zeKernelDestroy: pfn::zeKernelDestroy,
            zeKernelSetArgumentValue: pfn::zeKernelSetArgumentValue,
            zeKernelSetGroupSize: pfn::zeKernelSetGroupSize,
            zeKernelSetIndirectAccess: pfn::zeKernelSetIndirectAccess,
            zeKernelSetCacheConfig: pfn::zeKernelSetCacheConfig,
            zeKernelSuggestGroupSize: pfn::zeKernelSuggestGroupSize,
            zeKernelSuggestMaxCooperativeGroupCount: pfn::zeKernelSuggestMaxCooperativeGroupCount,
            zeKernelGetProperties: pfn::zeKernelGetProperties,
            zeKernelGetSourceAttributes: pfn::zeKernelGetSourceAttributes,
            zeKernelGetName: pfn::zeKernelGetName,
            zeImageCreate: pfn::zeImageCreate,
            zeImageDestroy: pfn::zeImageDestroy,
            zeImageGetProperties: pfn::zeImageGetProperties,
            zeImageGetMemoryPropertiesExp: pfn::zeImageGetMemoryPropertiesExp,
            zeContextMakeImageResident: pfn::zeContextMakeImageResident,
            zeContextMakeMemoryResident: pfn::zeContextMakeMemoryResident,
            zeContextEvictMemory: pfn::zeContextEvictMemory,
            zeCommandListAppendImageCopyRegion: pfn::zeCommandListAppendImageCopyRegion,
            zeCommandListAppendImageCopyToMemory: pfn::zeCommandListAppendImageCopyToMemory,
            zeCommandListAppendImageCopyFromMemory: pfn::zeCommandListAppendImageCopyFromMemory,
            zeSamplerCreate: pfn::zeSamplerCreate,
            zeSamplerDestroy: pfn::zeSamplerDestroy,
        }
        optional {
            zeInitDrivers: pfn::zeInitDrivers,
            zeCommandListHostSynchronize: pfn::zeCommandListHostSynchronize,
            zelLoaderTranslateHandle: pfn::zelLoaderTranslateHandle,
            zelLoaderGetVersions: pfn::zelLoaderGetVersions,
            zeCommandListImmediateAppendCommandListsExp: pfn::zeCommandListImmediateAppendCommandListsExp,
            zeCommandListIsImmediate: pfn::zeCommandListIsImmediate,
            zeCommandListGetDeviceHandle: pfn::zeCommandListGetDeviceHandle,
            zeCommandListImmediateGetFlags: pfn::zeCommandListImmediateGetFlags,
            zeEventCounterBasedCreate: pfn::zeEventCounterBasedCreate,
            zeDeviceGetVectorWidthPropertiesExt: pfn::zeDeviceGetVectorWidthPropertiesExt,
            zeDevicePciGetPropertiesExt: pfn::zeDevicePciGetPropertiesExt,
            zeCommandListAppendHostFunction: pfn::zeCommandListAppendHostFunction,
            zeCommandListBeginGraphCaptureExt: pfn::zeCommandListBeginGraphCaptureExt,
            zeCommandListEndGraphCaptureExt: pfn::zeCommandListEndGraphCaptureExt,
            zeCommandListIsGraphCaptureEnabledExt: pfn::zeCommandListIsGraphCaptureEnabledExt,
            zeCommandListAppendGraphExt: pfn::zeCommandListAppendGraphExt,
            zeGraphIsEmptyExt: pfn::zeGraphIsEmptyExt,
            zeGraphInstantiateExt: pfn::zeGraphInstantiateExt,
            zeGraphDestroyExt: pfn::zeGraphDestroyExt,
            zeExecutableGraphDestroyExt: pfn::zeExecutableGraphDestroyExt,
            zeCommandListGetNextCommandIdExp: pfn::zeCommandListGetNextCommandIdExp,
            zeCommandListUpdateMutableCommandsExp: pfn::zeCommandListUpdateMutableCommandsExp,
            zeDeviceGetRootDevice: pfn::zeDeviceGetRootDevice,
            zesInit: pfn::zesInit,
            zesDriverGet: pfn::zesDriverGet,
            zesDriverGetDeviceByUuidExp: pfn::zesDriverGetDeviceByUuidExp,
            zesDeviceEnumMemoryModules: pfn::zesDeviceEnumMemoryModules,
            zesMemoryGetProperties: pfn::zesMemoryGetProperties,
            zesMemoryGetState: pfn::zesMemoryGetState,
            zesDeviceEnumFrequencyDomains: pfn::zesDeviceEnumFrequencyDomains,
            zesFrequencyGetProperties: pfn::zesFrequencyGetProperties,
            zesFrequencyGetState: pfn::zesFrequencyGetState,
            zesDeviceEnumFans: pfn::zesDeviceEnumFans,
            zesFanGetState: pfn::zesFanGetState,
            zesDeviceEnumPowerDomains: pfn::zesDeviceEnumPowerDomains,
            zesPowerGetProperties: pfn::zesPowerGetProperties,
            zeKernelSetGlobalOffsetExp: pfn::zeKernelSetGlobalOffsetExp,
            zeMemPutIpcHandle: pfn::zeMemPutIpcHandle,
            zeMemGetFileDescriptorFromIpcHandleExp: pfn::zeMemGetFileDescriptorFromIpcHandleExp,
            zeMemGetIpcHandleFromFileDescriptorExp: pfn::zeMemGetIpcHandleFromFileDescriptorExp,
            zeEventPoolPutIpcHandle: pfn::zeEventPoolPutIpcHandle,
            zePhysicalMemGetProperties: pfn::zePhysicalMemGetProperties,
            zeImageViewCreateExt: pfn::zeImageViewCreateExt,
            zeImageGetDeviceOffsetExp: pfn::zeImageGetDeviceOffsetExp,
            zeMemGetPitchFor2dImage: pfn::zeMemGetPitchFor2dImage,
            zeDeviceImportExternalSemaphoreExt: pfn::zeDeviceImportExternalSemaphoreExt,
            zeDeviceReleaseExternalSemaphoreExt: pfn::zeDeviceReleaseExternalSemaphoreExt,
            zeCommandListAppendWaitExternalSemaphoreExt: pfn::zeCommandListAppendWaitExternalSemaphoreExt,
            zeCommandListAppendSignalExternalSemaphoreExt: pfn::zeCommandListAppendSignalExternalSemaphoreExt,
            zelCheckIsLoaderInTearDown: pfn::zelCheckIsLoaderInTearDown,
            zeCommandListAppendImageCopyToMemoryExt: pfn::zeCommandListAppendImageCopyToMemoryExt,
            zeCommandListAppendImageCopyFromMemoryExt: pfn::zeCommandListAppendImageCopyFromMemoryExt,
        }
    }
}

/// The loader's functions, and the drivers that it found.
pub struct Found {
    pub api: Api,
    pub drivers: Vec<ze_driver_handle_t>,
}

/// The functions of semaphores of other interfaces: all of them, or none.
#[derive(Clone, Copy)]
pub struct ExternalSemaphores {
    pub import: pfn::zeDeviceImportExternalSemaphoreExt,
    pub release: pfn::zeDeviceReleaseExternalSemaphoreExt,
    pub wait: pfn::zeCommandListAppendWaitExternalSemaphoreExt,
    pub signal: pfn::zeCommandListAppendSignalExternalSemaphoreExt,
}

/// The functions between handles of memory and file descriptors.
type Descriptors = (
    pfn::zeMemGetFileDescriptorFromIpcHandleExp,
    pfn::zeMemGetIpcHandleFromFileDescriptorExp,
);

/// The functions that make an image's handle: those of bindless images are all there, or none.
#[derive(Clone, Copy)]
pub struct BindlessImages {
    pub view: pfn::zeImageViewCreateExt,
    pub offset: pfn::zeImageGetDeviceOffsetExp,
}

impl Api {
    /// Both of the functions, or none: an old driver's handles begin with the descriptor.
    pub fn descriptors(&self) -> Option<Descriptors> {
        let of_handle = self.zeMemGetFileDescriptorFromIpcHandleExp?;
        Some((of_handle, self.zeMemGetIpcHandleFromFileDescriptorExp?))
    }

    pub fn bindless_images(&self) -> Option<BindlessImages> {
        // Images over linear memory need its pitch.
        self.zeMemGetPitchFor2dImage?;
        Some(BindlessImages {
            view: self.zeImageViewCreateExt?,
            offset: self.zeImageGetDeviceOffsetExp?,
        })
    }

    pub fn external_semaphores(&self) -> Option<ExternalSemaphores> {
        Some(ExternalSemaphores {
            import: self.zeDeviceImportExternalSemaphoreExt?,
            release: self.zeDeviceReleaseExternalSemaphoreExt?,
            wait: self.zeCommandListAppendWaitExternalSemaphoreExt?,
            signal: self.zeCommandListAppendSignalExternalSemaphoreExt?,
        })
    }
}

/// Names of the library, in the order in which they are tried.
const NAMES: &[&str] = &["libze_loader.so.1", "libze_loader.so"];

impl Api {
    /// The functions, with every driver of GPUs. None if there is no loader or no driver.
    pub fn find() -> Option<Found> {
        let api = match Self::load(NAMES) {
            Ok(api) => api,
            Err(error) => {
                log::info!("no Level Zero: {error}");
                return None;
            }
        };
        let found = match api.zeInitDrivers.map(|init| api.init_drivers(init)) {
            // The loader may have a function that its driver lacks.
            Some(Err(error)) if error.code() == UR_RESULT_ERROR_UNSUPPORTED_FEATURE => api.init(),
            Some(found) => found,
            None => api.init(),
        };
        match found {
            Ok(drivers) if !drivers.is_empty() => Some(Found { api, drivers }),
            Ok(_) => {
                log::info!("no Level Zero: no driver of a GPU");
                None
            }
            Err(error) => {
                let code = error.code();
                log::info!("no Level Zero: no driver of a GPU that this user may open ({code:?})");
                None
            }
        }
    }

    fn init_drivers(&self, init: pfn::zeInitDrivers) -> Result<Vec<ze_driver_handle_t>> {
        list(ze_driver_handle_t::NULL, |count, all| {
            let mut wanted = ze_init_driver_type_desc_t {
                flags: ZE_INIT_DRIVER_TYPE_FLAG_GPU,
                ..Default::default()
            };
            // SAFETY: `all` is null or has room for `count` handles.
            check(unsafe { init(count, all, &mut wanted) }, "zeInitDrivers")
        })
    }

    /// Loaders before 1.19 initialise all drivers of a kind at once.
    fn init(&self) -> Result<Vec<ze_driver_handle_t>> {
        // SAFETY: a flag of version 1.0.
        unsafe { call!(self, zeInit(ZE_INIT_FLAG_GPU_ONLY)) }?;
        list(ze_driver_handle_t::NULL, |count, all| {
            // SAFETY: `all` is null or has room for `count` handles.
            unsafe { call!(self, zeDriverGet(count, all)) }
        })
    }
}

impl Api {
    /// The loader's version, as `1.32.0`. None if it does not say.
    pub fn loader_version(&self) -> Option<String> {
        let (ask, name) = (self.zelLoaderGetVersions?, "zelLoaderGetVersions");
        let mut count = 0;
        // SAFETY: a null list asks for the count alone.
        check(unsafe { ask(&mut count, std::ptr::null_mut()) }, name).ok()?;
        let mut all = vec![zel_component_version_t::default(); count];
        // SAFETY: `all` has room for `count` descriptions.
        check(unsafe { ask(&mut count, all.as_mut_ptr()) }, name).ok()?;
        let is_loader = |one: &&zel_component_version_t| {
            let letters = one.component_name.map(std::ffi::c_char::cast_unsigned);
            letters.starts_with(b"loader\0")
        };
        let found = all.iter().take(count).find(is_loader)?;
        let zel_version_t {
            major,
            minor,
            patch,
        } = found.component_lib_version;
        Some(format!("{major}.{minor}.{patch}"))
    }

    /// Whether the loader has torn down, as at the process's end: nothing may be called any more, not even to
    /// destroy an object.
    pub fn is_torn_down(&self) -> bool {
        // SAFETY: the function takes nothing and may be called at any time.
        self.zelCheckIsLoaderInTearDown
            .is_some_and(|ask| unsafe { ask() } != 0)
    }
}

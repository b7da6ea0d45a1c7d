//! The driver's functions: one typed list, required or optional.
//!
//! A signature is that of the version in the symbol's name: the driver keeps old versions. Enumerations
//! that the driver returns are plain numbers here, since a newer driver may return unknown ones.

use std::ffi::{c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::*;

/// The code that every function returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Code(pub u32);

impl Code {
    pub const SUCCESS: Self = Self(0);
    pub const NOT_READY: Self = Self(CUresult::CUDA_ERROR_NOT_READY as u32);
    pub const INVALID_VALUE: Self = Self(CUresult::CUDA_ERROR_INVALID_VALUE as u32);
    pub const OUT_OF_MEMORY: Self = Self(CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32);
    pub const INVALID_CONTEXT: Self = Self(CUresult::CUDA_ERROR_INVALID_CONTEXT as u32);
    pub const PEER_ACCESS_ALREADY_ENABLED: Self =
        Self(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED as u32);
    pub const PEER_ACCESS_NOT_ENABLED: Self =
        Self(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED as u32);
    pub const NOT_FOUND: Self = Self(CUresult::CUDA_ERROR_NOT_FOUND as u32);

    pub const fn is_success(self) -> bool {
        self.0 == Self::SUCCESS.0
    }
}

type Ptr = CUdeviceptr;
type Stream = CUstream;
type Handle = CUmemGenericAllocationHandle;

ur::dl::symbols! {
    /// The driver's library.
    pub struct Api {
        required {
            // Functions that nearly every command calls stand side by side, in few cache lines.
            cuCtxGetCurrent: unsafe extern "C" fn(*mut CUcontext) -> Code,
            cuLaunchKernel: unsafe extern "C" fn(CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Stream, *const *mut c_void, *const *mut c_void) -> Code,
            cuMemcpyAsync: unsafe extern "C" fn(Ptr, Ptr, usize, Stream) -> Code,
            cuMemsetD32Async: unsafe extern "C" fn(Ptr, c_uint, usize, Stream) -> Code,
            cuInit: unsafe extern "C" fn(c_uint) -> Code,
            cuDriverGetVersion: unsafe extern "C" fn(*mut c_int) -> Code,
            cuGetErrorName: unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
            cuDeviceGet: unsafe extern "C" fn(*mut CUdevice, c_int) -> Code,
            cuDeviceGetCount: unsafe extern "C" fn(*mut c_int) -> Code,
            cuDeviceGetName: unsafe extern "C" fn(*mut c_char, c_int, CUdevice) -> Code,
            cuDeviceGetAttribute: unsafe extern "C" fn(*mut c_int, CUdevice_attribute, CUdevice) -> Code,
            cuDeviceTotalMem = "cuDeviceTotalMem_v2": unsafe extern "C" fn(*mut usize, CUdevice) -> Code,
            cuDevicePrimaryCtxRetain: unsafe extern "C" fn(*mut CUcontext, CUdevice) -> Code,
            cuDevicePrimaryCtxRelease = "cuDevicePrimaryCtxRelease_v2": unsafe extern "C" fn(CUdevice) -> Code,
            cuCtxPushCurrent = "cuCtxPushCurrent_v2": unsafe extern "C" fn(CUcontext) -> Code,
            cuCtxPopCurrent = "cuCtxPopCurrent_v2": unsafe extern "C" fn(*mut CUcontext) -> Code,
            cuCtxGetStreamPriorityRange: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Code,
            cuStreamCreateWithPriority: unsafe extern "C" fn(*mut Stream, c_uint, c_int) -> Code,
            cuStreamDestroy = "cuStreamDestroy_v2": unsafe extern "C" fn(Stream) -> Code,
            cuStreamQuery: unsafe extern "C" fn(Stream) -> Code,
            cuStreamSynchronize: unsafe extern "C" fn(Stream) -> Code,
            cuStreamWaitEvent: unsafe extern "C" fn(Stream, CUevent, c_uint) -> Code,
            cuStreamGetFlags: unsafe extern "C" fn(Stream, *mut c_uint) -> Code,
            cuStreamGetPriority: unsafe extern "C" fn(Stream, *mut c_int) -> Code,
            cuStreamGetCtx: unsafe extern "C" fn(Stream, *mut CUcontext) -> Code,
            cuEventCreate: unsafe extern "C" fn(*mut CUevent, c_uint) -> Code,
            cuEventDestroy = "cuEventDestroy_v2": unsafe extern "C" fn(CUevent) -> Code,
            cuEventRecord: unsafe extern "C" fn(CUevent, Stream) -> Code,
            cuEventQuery: unsafe extern "C" fn(CUevent) -> Code,
            cuEventSynchronize: unsafe extern "C" fn(CUevent) -> Code,
            cuEventElapsedTime: unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> Code,
            cuMemFree = "cuMemFree_v2": unsafe extern "C" fn(Ptr) -> Code,
            cuMemHostAlloc: unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> Code,
            cuMemFreeHost: unsafe extern "C" fn(*mut c_void) -> Code,
            cuMemHostRegister = "cuMemHostRegister_v2": unsafe extern "C" fn(*mut c_void, usize, c_uint) -> Code,
            cuMemHostUnregister: unsafe extern "C" fn(*mut c_void) -> Code,
            cuMemAlloc = "cuMemAlloc_v2": unsafe extern "C" fn(*mut Ptr, usize) -> Code,
            cuMemAllocManaged: unsafe extern "C" fn(*mut Ptr, usize, c_uint) -> Code,
            cuMemGetInfo = "cuMemGetInfo_v2": unsafe extern "C" fn(*mut usize, *mut usize) -> Code,
            cuMemcpy3DAsync = "cuMemcpy3DAsync_v2": unsafe extern "C" fn(*const CUDA_MEMCPY3D, Stream) -> Code,
            cuMemsetD8Async: unsafe extern "C" fn(Ptr, u8, usize, Stream) -> Code,
            cuMemsetD16Async: unsafe extern "C" fn(Ptr, u16, usize, Stream) -> Code,
            cuMemsetD2D8Async: unsafe extern "C" fn(Ptr, usize, u8, usize, usize, Stream) -> Code,
            cuMemsetD2D16Async: unsafe extern "C" fn(Ptr, usize, u16, usize, usize, Stream) -> Code,
            cuMemsetD2D32Async: unsafe extern "C" fn(Ptr, usize, c_uint, usize, usize, Stream) -> Code,
            cuModuleLoadDataEx: unsafe extern "C" fn(*mut CUmodule, *const c_void, c_uint, *const CUjit_option, *const *mut c_void) -> Code,
            cuModuleUnload: unsafe extern "C" fn(CUmodule) -> Code,
            cuModuleGetFunction: unsafe extern "C" fn(*mut CUfunction, CUmodule, *const c_char) -> Code,
            cuModuleGetGlobal = "cuModuleGetGlobal_v2": unsafe extern "C" fn(*mut Ptr, *mut usize, CUmodule, *const c_char) -> Code,
            cuLinkCreate = "cuLinkCreate_v2": unsafe extern "C" fn(c_uint, *const CUjit_option, *const *mut c_void, *mut CUlinkState) -> Code,
            cuLinkAddData = "cuLinkAddData_v2": unsafe extern "C" fn(CUlinkState, CUjitInputType, *const c_void, usize, *const c_char, c_uint, *const CUjit_option, *const *mut c_void) -> Code,
            cuLinkComplete: unsafe extern "C" fn(CUlinkState, *mut *mut c_void, *mut usize) -> Code,
            cuLinkDestroy: unsafe extern "C" fn(CUlinkState) -> Code,
            cuFuncGetAttribute: unsafe extern "C" fn(*mut c_int, CUfunction_attribute, CUfunction) -> Code,
            cuFuncSetAttribute: unsafe extern "C" fn(CUfunction, CUfunction_attribute, c_int) -> Code,
            cuFuncSetCacheConfig: unsafe extern "C" fn(CUfunction, CUfunc_cache) -> Code,
            cuDeviceCanAccessPeer: unsafe extern "C" fn(*mut c_int, CUdevice, CUdevice) -> Code,
            cuDeviceGetP2PAttribute: unsafe extern "C" fn(*mut c_int, CUdevice_P2PAttribute, CUdevice, CUdevice) -> Code,
            cuCtxEnablePeerAccess: unsafe extern "C" fn(CUcontext, c_uint) -> Code,
            cuCtxDisablePeerAccess: unsafe extern "C" fn(CUcontext) -> Code,
            cuMemcpyPeerAsync: unsafe extern "C" fn(Ptr, CUcontext, Ptr, CUcontext, usize, Stream) -> Code,
            cuMemcpy3DPeerAsync: unsafe extern "C" fn(*const CUDA_MEMCPY3D_PEER, Stream) -> Code,
            cuOccupancyMaxActiveBlocksPerMultiprocessor: unsafe extern "C" fn(*mut c_int, CUfunction, c_int, usize) -> Code,
            cuOccupancyMaxPotentialBlockSize: unsafe extern "C" fn(*mut c_int, *mut c_int, CUfunction, Option<unsafe extern "C" fn(c_int) -> usize>, usize, c_int) -> Code,
        }
        optional {
            cuDeviceGetUuid = "cuDeviceGetUuid_v2": unsafe extern "C" fn(*mut CUuuid, CUdevice) -> Code,
            cuStreamWaitValue32 = "cuStreamWaitValue32_v2": unsafe extern "C" fn(Stream, Ptr, u32, c_uint) -> Code,
            // Modes and states of captures are plain numbers.
            cuStreamIsCapturing: unsafe extern "C" fn(Stream, *mut c_int) -> Code,
            cuStreamBeginCapture = "cuStreamBeginCapture_v2": unsafe extern "C" fn(Stream, c_int) -> Code,
            cuStreamEndCapture: unsafe extern "C" fn(Stream, *mut CUgraph) -> Code,
            cuLaunchHostFunc: unsafe extern "C" fn(Stream, Option<unsafe extern "C" fn(*mut c_void)>, *mut c_void) -> Code,
            cuGraphGetNodes: unsafe extern "C" fn(CUgraph, *mut CUgraphNode, *mut usize) -> Code,
            cuThreadExchangeStreamCaptureMode: unsafe extern "C" fn(*mut c_int) -> Code,
            cuPointerGetAttribute: unsafe extern "C" fn(*mut c_void, CUpointer_attribute, Ptr) -> Code,
            cuMemPrefetchAsync: unsafe extern "C" fn(Ptr, usize, CUdevice, Stream) -> Code,
            cuMemAdvise: unsafe extern "C" fn(Ptr, usize, CUmem_advise, CUdevice) -> Code,
            cuModuleGetFunctionCount: unsafe extern "C" fn(*mut c_uint, CUmodule) -> Code,
            cuModuleEnumerateFunctions: unsafe extern "C" fn(*mut CUfunction, c_uint, CUmodule) -> Code,
            cuFuncGetModule: unsafe extern "C" fn(*mut CUmodule, CUfunction) -> Code,
            cuFuncGetName: unsafe extern "C" fn(*mut *const c_char, CUfunction) -> Code,
            cuFuncGetParamInfo: unsafe extern "C" fn(CUfunction, usize, *mut usize, *mut usize) -> Code,
            cuLaunchKernelEx: unsafe extern "C" fn(*const CUlaunchConfig, CUfunction, *const *mut c_void, *const *mut c_void) -> Code,
            cuMemAddressReserve: unsafe extern "C" fn(*mut Ptr, usize, usize, Ptr, u64) -> Code,
            cuMemAddressFree: unsafe extern "C" fn(Ptr, usize) -> Code,
            cuMemCreate: unsafe extern "C" fn(*mut Handle, usize, *const CUmemAllocationProp, u64) -> Code,
            cuMemRelease: unsafe extern "C" fn(Handle) -> Code,
            cuMemMap: unsafe extern "C" fn(Ptr, usize, usize, Handle, u64) -> Code,
            cuMemUnmap: unsafe extern "C" fn(Ptr, usize) -> Code,
            cuMemSetAccess: unsafe extern "C" fn(Ptr, usize, *const CUmemAccessDesc, usize) -> Code,
            cuMemGetAllocationGranularity: unsafe extern "C" fn(*mut usize, *const CUmemAllocationProp, c_uint) -> Code,
            cuMemGetAddressRange = "cuMemGetAddressRange_v2": unsafe extern "C" fn(*mut Ptr, *mut usize, Ptr) -> Code,
            cuMemGetAllocationPropertiesFromHandle: unsafe extern "C" fn(*mut CUmemAllocationProp, Handle) -> Code,
            cuMemExportToShareableHandle: unsafe extern "C" fn(*mut c_void, Handle, CUmemAllocationHandleType, u64) -> Code,
            cuMemImportFromShareableHandle: unsafe extern "C" fn(*mut Handle, *mut c_void, CUmemAllocationHandleType) -> Code,
            cuIpcGetEventHandle: unsafe extern "C" fn(*mut CUipcEventHandle, CUevent) -> Code,
            cuIpcOpenEventHandle: unsafe extern "C" fn(*mut CUevent, CUipcEventHandle) -> Code,
            cuMemPoolCreate: unsafe extern "C" fn(*mut CUmemoryPool, *const CUmemPoolProps) -> Code,
            cuMemPoolDestroy: unsafe extern "C" fn(CUmemoryPool) -> Code,
            cuMemPoolSetAttribute: unsafe extern "C" fn(CUmemoryPool, CUmemPool_attribute, *mut c_void) -> Code,
            cuMemPoolGetAttribute: unsafe extern "C" fn(CUmemoryPool, CUmemPool_attribute, *mut c_void) -> Code,
            cuMemPoolSetAccess: unsafe extern "C" fn(CUmemoryPool, *const CUmemAccessDesc, usize) -> Code,
            cuMemPoolTrimTo: unsafe extern "C" fn(CUmemoryPool, usize) -> Code,
            cuMemAllocAsync: unsafe extern "C" fn(*mut Ptr, usize, Stream) -> Code,
            cuMemAllocFromPoolAsync: unsafe extern "C" fn(*mut Ptr, usize, CUmemoryPool, Stream) -> Code,
            cuMemFreeAsync: unsafe extern "C" fn(Ptr, Stream) -> Code,
            cuArray3DCreate = "cuArray3DCreate_v2": unsafe extern "C" fn(*mut CUarray, *const CUDA_ARRAY3D_DESCRIPTOR) -> Code,
            cuArrayDestroy: unsafe extern "C" fn(CUarray) -> Code,
            cuArray3DGetDescriptor = "cuArray3DGetDescriptor_v2": unsafe extern "C" fn(*mut CUDA_ARRAY3D_DESCRIPTOR, CUarray) -> Code,
            cuMipmappedArrayCreate: unsafe extern "C" fn(*mut CUmipmappedArray, *const CUDA_ARRAY3D_DESCRIPTOR, c_uint) -> Code,
            cuMipmappedArrayGetLevel: unsafe extern "C" fn(*mut CUarray, CUmipmappedArray, c_uint) -> Code,
            cuMipmappedArrayDestroy: unsafe extern "C" fn(CUmipmappedArray) -> Code,
            cuTexObjectCreate: unsafe extern "C" fn(*mut CUtexObject, *const CUDA_RESOURCE_DESC, *const CUDA_TEXTURE_DESC, *const CUDA_RESOURCE_VIEW_DESC) -> Code,
            cuTexObjectDestroy: unsafe extern "C" fn(CUtexObject) -> Code,
            cuSurfObjectCreate: unsafe extern "C" fn(*mut CUsurfObject, *const CUDA_RESOURCE_DESC) -> Code,
            cuSurfObjectDestroy: unsafe extern "C" fn(CUsurfObject) -> Code,
            cuGraphCreate: unsafe extern "C" fn(*mut CUgraph, c_uint) -> Code,
            cuGraphDestroy: unsafe extern "C" fn(CUgraph) -> Code,
            cuGraphAddKernelNode: unsafe extern "C" fn(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_KERNEL_NODE_PARAMS_v1) -> Code,
            cuGraphAddMemcpyNode: unsafe extern "C" fn(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_MEMCPY3D, CUcontext) -> Code,
            cuGraphAddMemsetNode: unsafe extern "C" fn(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_MEMSET_NODE_PARAMS_v1, CUcontext) -> Code,
            cuGraphAddHostNode: unsafe extern "C" fn(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_HOST_NODE_PARAMS_v1) -> Code,
            cuGraphAddChildGraphNode: unsafe extern "C" fn(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, CUgraph) -> Code,
            cuGraphClone: unsafe extern "C" fn(*mut CUgraph, CUgraph) -> Code,
            cuGraphAddEmptyNode: unsafe extern "C" fn(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize) -> Code,
            cuGraphInstantiateWithFlags: unsafe extern "C" fn(*mut CUgraphExec, CUgraph, u64) -> Code,
            cuGraphLaunch: unsafe extern "C" fn(CUgraphExec, Stream) -> Code,
            cuGraphExecDestroy: unsafe extern "C" fn(CUgraphExec) -> Code,
            cuGraphExecKernelNodeSetParams: unsafe extern "C" fn(CUgraphExec, CUgraphNode, *const CUDA_KERNEL_NODE_PARAMS_v1) -> Code,
            cuImportExternalMemory: unsafe extern "C" fn(*mut CUexternalMemory, *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC) -> Code,
            cuExternalMemoryGetMappedBuffer: unsafe extern "C" fn(*mut Ptr, CUexternalMemory, *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC) -> Code,
            cuExternalMemoryGetMappedMipmappedArray: unsafe extern "C" fn(*mut CUmipmappedArray, CUexternalMemory, *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC) -> Code,
            cuDestroyExternalMemory: unsafe extern "C" fn(CUexternalMemory) -> Code,
            cuImportExternalSemaphore: unsafe extern "C" fn(*mut CUexternalSemaphore, *const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC) -> Code,
            cuSignalExternalSemaphoresAsync: unsafe extern "C" fn(*const CUexternalSemaphore, *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, c_uint, Stream) -> Code,
            cuWaitExternalSemaphoresAsync: unsafe extern "C" fn(*const CUexternalSemaphore, *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, c_uint, Stream) -> Code,
            cuDestroyExternalSemaphore: unsafe extern "C" fn(CUexternalSemaphore) -> Code,
        }
    }
}

/// The functions of virtual memory: a driver has all or none of them.
#[derive(Clone, Copy)]
pub struct Paging {
    pub reserve: unsafe extern "C" fn(*mut Ptr, usize, usize, Ptr, u64) -> Code,
    pub unreserve: unsafe extern "C" fn(Ptr, usize) -> Code,
    pub create: unsafe extern "C" fn(*mut Handle, usize, *const CUmemAllocationProp, u64) -> Code,
    pub destroy: unsafe extern "C" fn(Handle) -> Code,
    pub map: unsafe extern "C" fn(Ptr, usize, usize, Handle, u64) -> Code,
    pub unmap: unsafe extern "C" fn(Ptr, usize) -> Code,
    pub set_access: unsafe extern "C" fn(Ptr, usize, *const CUmemAccessDesc, usize) -> Code,
    pub granularity: unsafe extern "C" fn(*mut usize, *const CUmemAllocationProp, c_uint) -> Code,
}

/// The functions that share physical memory: a driver has both or neither.
#[derive(Clone, Copy)]
pub struct Sharing {
    pub export: unsafe extern "C" fn(*mut c_void, Handle, CUmemAllocationHandleType, u64) -> Code,
    pub import: unsafe extern "C" fn(*mut Handle, *mut c_void, CUmemAllocationHandleType) -> Code,
}

/// The functions of events that several processes use: a driver has both or neither.
#[derive(Clone, Copy)]
pub struct SharedEvents {
    pub get: unsafe extern "C" fn(*mut CUipcEventHandle, CUevent) -> Code,
    pub open: unsafe extern "C" fn(*mut CUevent, CUipcEventHandle) -> Code,
}

/// The functions of the driver's own pools: it has all or none of them.
#[derive(Clone, Copy)]
pub struct Pooling {
    pub create: unsafe extern "C" fn(*mut CUmemoryPool, *const CUmemPoolProps) -> Code,
    pub destroy: unsafe extern "C" fn(CUmemoryPool) -> Code,
    pub set: unsafe extern "C" fn(CUmemoryPool, CUmemPool_attribute, *mut c_void) -> Code,
    pub get: unsafe extern "C" fn(CUmemoryPool, CUmemPool_attribute, *mut c_void) -> Code,
    pub set_access: unsafe extern "C" fn(CUmemoryPool, *const CUmemAccessDesc, usize) -> Code,
    pub trim: unsafe extern "C" fn(CUmemoryPool, usize) -> Code,
    pub alloc: unsafe extern "C" fn(*mut Ptr, usize, CUmemoryPool, Stream) -> Code,
    pub free: unsafe extern "C" fn(Ptr, Stream) -> Code,
}

/// The functions of memory that another interface shares: a driver has all or none of them.
#[derive(Clone, Copy)]
pub struct ExternalMemories {
    pub import: unsafe extern "C" fn(
        *mut CUexternalMemory,
        *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    ) -> Code,
    pub map_buffer: unsafe extern "C" fn(
        *mut Ptr,
        CUexternalMemory,
        *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
    ) -> Code,
    pub map_mipmap: unsafe extern "C" fn(
        *mut CUmipmappedArray,
        CUexternalMemory,
        *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
    ) -> Code,
    pub destroy: unsafe extern "C" fn(CUexternalMemory) -> Code,
}

/// The functions of semaphores that another interface shares: a driver has all or none of them.
#[derive(Clone, Copy)]
pub struct ExternalSemaphores {
    pub import: unsafe extern "C" fn(
        *mut CUexternalSemaphore,
        *const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
    ) -> Code,
    pub signal: unsafe extern "C" fn(
        *const CUexternalSemaphore,
        *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
        c_uint,
        Stream,
    ) -> Code,
    pub wait: unsafe extern "C" fn(
        *const CUexternalSemaphore,
        *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
        c_uint,
        Stream,
    ) -> Code,
    pub destroy: unsafe extern "C" fn(CUexternalSemaphore) -> Code,
}

/// The functions of arrays, textures and surfaces: a driver has all or none of them.
#[derive(Clone, Copy)]
pub struct Imaging {
    pub create_array: unsafe extern "C" fn(*mut CUarray, *const CUDA_ARRAY3D_DESCRIPTOR) -> Code,
    pub destroy_array: unsafe extern "C" fn(CUarray) -> Code,
    pub describe_array: unsafe extern "C" fn(*mut CUDA_ARRAY3D_DESCRIPTOR, CUarray) -> Code,
    pub create_mipmap:
        unsafe extern "C" fn(*mut CUmipmappedArray, *const CUDA_ARRAY3D_DESCRIPTOR, c_uint) -> Code,
    pub level: unsafe extern "C" fn(*mut CUarray, CUmipmappedArray, c_uint) -> Code,
    pub destroy_mipmap: unsafe extern "C" fn(CUmipmappedArray) -> Code,
    pub create_texture: unsafe extern "C" fn(
        *mut CUtexObject,
        *const CUDA_RESOURCE_DESC,
        *const CUDA_TEXTURE_DESC,
        *const CUDA_RESOURCE_VIEW_DESC,
    ) -> Code,
    pub destroy_texture: unsafe extern "C" fn(CUtexObject) -> Code,
    pub create_surface: unsafe extern "C" fn(*mut CUsurfObject, *const CUDA_RESOURCE_DESC) -> Code,
    pub destroy_surface: unsafe extern "C" fn(CUsurfObject) -> Code,
}

/// The functions of graphs: a driver has all or none of them.
#[derive(Clone, Copy)]
pub struct Graphing {
    pub create: unsafe extern "C" fn(*mut CUgraph, c_uint) -> Code,
    pub destroy: unsafe extern "C" fn(CUgraph) -> Code,
    pub add_kernel: unsafe extern "C" fn(
        *mut CUgraphNode,
        CUgraph,
        *const CUgraphNode,
        usize,
        *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) -> Code,
    pub add_copy: unsafe extern "C" fn(
        *mut CUgraphNode,
        CUgraph,
        *const CUgraphNode,
        usize,
        *const CUDA_MEMCPY3D,
        CUcontext,
    ) -> Code,
    pub add_set: unsafe extern "C" fn(
        *mut CUgraphNode,
        CUgraph,
        *const CUgraphNode,
        usize,
        *const CUDA_MEMSET_NODE_PARAMS_v1,
        CUcontext,
    ) -> Code,
    pub add_empty:
        unsafe extern "C" fn(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize) -> Code,
    pub add_graph:
        unsafe extern "C" fn(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, CUgraph) -> Code,
    pub copy: unsafe extern "C" fn(*mut CUgraph, CUgraph) -> Code,
    pub instantiate: unsafe extern "C" fn(*mut CUgraphExec, CUgraph, u64) -> Code,
    pub launch: unsafe extern "C" fn(CUgraphExec, Stream) -> Code,
    pub destroy_executable: unsafe extern "C" fn(CUgraphExec) -> Code,
    pub set_kernel:
        unsafe extern "C" fn(CUgraphExec, CUgraphNode, *const CUDA_KERNEL_NODE_PARAMS_v1) -> Code,
}

/// Names of the library, in the order in which they are tried.
const NAMES: &[&str] = &["libcuda.so.1", "libcuda.so"];

impl Api {
    /// The functions of the initialised driver. None if there is no usable CUDA.
    pub fn find() -> Option<Self> {
        let api = match Self::load(NAMES) {
            Ok(api) => api,
            Err(error) => {
                log::info!("no CUDA: {error}");
                return None;
            }
        };
        // SAFETY: 0 is the only flag that the driver knows.
        match unsafe { (api.cuInit)(0) } {
            Code::SUCCESS => Some(api),
            code => {
                log::info!("no CUDA: cuInit failed with {}", code.0);
                None
            }
        }
    }

    pub fn paging(&self) -> Option<Paging> {
        Some(Paging {
            reserve: self.cuMemAddressReserve?,
            unreserve: self.cuMemAddressFree?,
            create: self.cuMemCreate?,
            destroy: self.cuMemRelease?,
            map: self.cuMemMap?,
            unmap: self.cuMemUnmap?,
            set_access: self.cuMemSetAccess?,
            granularity: self.cuMemGetAllocationGranularity?,
        })
    }

    pub fn sharing(&self) -> Option<Sharing> {
        Some(Sharing {
            export: self.cuMemExportToShareableHandle?,
            import: self.cuMemImportFromShareableHandle?,
        })
    }

    pub fn shared_events(&self) -> Option<SharedEvents> {
        Some(SharedEvents {
            get: self.cuIpcGetEventHandle?,
            open: self.cuIpcOpenEventHandle?,
        })
    }

    pub fn external_memories(&self) -> Option<ExternalMemories> {
        Some(ExternalMemories {
            import: self.cuImportExternalMemory?,
            map_buffer: self.cuExternalMemoryGetMappedBuffer?,
            map_mipmap: self.cuExternalMemoryGetMappedMipmappedArray?,
            destroy: self.cuDestroyExternalMemory?,
        })
    }

    pub fn external_semaphores(&self) -> Option<ExternalSemaphores> {
        Some(ExternalSemaphores {
            import: self.cuImportExternalSemaphore?,
            signal: self.cuSignalExternalSemaphoresAsync?,
            wait: self.cuWaitExternalSemaphoresAsync?,
            destroy: self.cuDestroyExternalSemaphore?,
        })
    }

    pub fn imaging(&self) -> Option<Imaging> {
        Some(Imaging {
            create_array: self.cuArray3DCreate?,
            destroy_array: self.cuArrayDestroy?,
            describe_array: self.cuArray3DGetDescriptor?,
            create_mipmap: self.cuMipmappedArrayCreate?,
            level: self.cuMipmappedArrayGetLevel?,
            destroy_mipmap: self.cuMipmappedArrayDestroy?,
            create_texture: self.cuTexObjectCreate?,
            destroy_texture: self.cuTexObjectDestroy?,
            create_surface: self.cuSurfObjectCreate?,
            destroy_surface: self.cuSurfObjectDestroy?,
        })
    }

    pub fn graphing(&self) -> Option<Graphing> {
        Some(Graphing {
            create: self.cuGraphCreate?,
            destroy: self.cuGraphDestroy?,
            add_kernel: self.cuGraphAddKernelNode?,
            add_copy: self.cuGraphAddMemcpyNode?,
            add_set: self.cuGraphAddMemsetNode?,
            add_empty: self.cuGraphAddEmptyNode?,
            add_graph: self.cuGraphAddChildGraphNode?,
            copy: self.cuGraphClone?,
            instantiate: self.cuGraphInstantiateWithFlags?,
            launch: self.cuGraphLaunch?,
            destroy_executable: self.cuGraphExecDestroy?,
            set_kernel: self.cuGraphExecKernelNodeSetParams?,
        })
    }

    pub fn pooling(&self) -> Option<Pooling> {
        Some(Pooling {
            create: self.cuMemPoolCreate?,
            destroy: self.cuMemPoolDestroy?,
            set: self.cuMemPoolSetAttribute?,
            get: self.cuMemPoolGetAttribute?,
            set_access: self.cuMemPoolSetAccess?,
            trim: self.cuMemPoolTrimTo?,
            alloc: self.cuMemAllocFromPoolAsync?,
            free: self.cuMemFreeAsync?,
        })
    }
}

//! Properties of devices whose answer does not depend on the backend, in lists.
//!
//! An adapter's query is a match without a wildcard. One arm takes a whole list: its pattern is the list's macro,
//! its answer the list's function.
//!
//! ```text
//! match what {
//!     ur::shared_device_info!() => shared_device_info(what, out),
//!     ur::plain_device_info!() => plain_device_info(what, out),
//!     DeviceInfo::Type => ...
//! }
//! ```
//!
//! A property moves to the adapters by leaving its list: the compiler then asks each of them for an answer.

use crate::abi::*;
use crate::hal::DeviceInfo;
use crate::object::{Error, InfoOut, Result};
use crate::stream::UPDATES;
use std::ffi::c_void;
use std::ptr::null_mut;

/// A list: its pattern macro, its function, and the answer of each group of properties.
macro_rules! list {
    (
        $pattern_doc:literal $pattern:ident;
        $doc:literal $answer:ident($out:ident);
        $( $value:expr => $($property:ident)+; )+
    ) => {
        #[doc = $pattern_doc]
        #[macro_export]
        macro_rules! $pattern {
            () => { $($( $crate::hal::DeviceInfo::$property )|+)|+ };
        }

        #[doc = $doc]
        pub fn $answer(what: DeviceInfo, $out: InfoOut<'_>) -> Result<()> {
            match what {
                $( $(DeviceInfo::$property)|+ => $value, )+
                _ => absent(),
            }
        }
    };
}

/// The answer of a property that a device does not have.
fn absent() -> Result<()> {
    Err(Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION))
}

list! {
    "The pattern of the device properties that every backend answers alike."
    shared_device_info;
    "One of the properties of [`shared_device_info!`](crate::shared_device_info); `UNSUPPORTED_ENUMERATION` for any other."
    shared_device_info(out);

    // What the engine does on every backend.
    out.boolean(true) =>
        UsmPoolSupport TimestampRecordingSupportExp AsyncUsmAllocationsSupportExp
        CommandBufferSupportExp CommandBufferEventSupportExp GraphRecordAndReplaySupportExp
        MultiDeviceCompileSupportExp DeviceWaitSupportExp UsmContextMemcpySupportExp
        ReusableEventsSupportExp PerEventProfilingSupportExp;
    out.value(UPDATES) => CommandBufferUpdateCapabilitiesExp;
    out.value(1u32) => MaxComputeQueueIndices;

    // What no backend has yet.
    out.boolean(false) =>
        KernelSetSpecializationConstants
        LowPowerEventsSupportExp;
    out.value(ur_exp_device_2d_block_array_capability_flags_t(0)) => Is2dBlockArrayCapabilitiesExp;
    out.value(ur_queue_flags_t(0)) => QueueOnDeviceProperties;
    out.slice::<*mut c_void>(&[]) => ComponentDevices;
    out.value(null_mut::<c_void>()) => CompositeDevice;

    // What no driver tells.
    absent() =>
        GpuEuSimdWidth CurrentClockThrottleReasons FanSpeed MinPowerLimit MaxPowerLimit
        XeStackCount XeRegionsPerStack XeClustersPerRegion XeCoresPerCluster EusPerXeCore
        MaxLanesPerHwThread;
}

list! {
    "The pattern of the device properties about bindless images, for a backend without them."
    bindless_device_info;
    "One of the properties of [`bindless_device_info!`](crate::bindless_device_info); `UNSUPPORTED_ENUMERATION` for any other."
    bindless_device_info(out);

    out.boolean(false) =>
        BindlessImagesSupportExp BindlessImagesSharedUsmSupportExp BindlessImages1dUsmSupportExp
        BindlessImages2dUsmSupportExp BindlessSampledImageFetch1dUsmSupportExp
        BindlessSampledImageFetch1dSupportExp BindlessSampledImageFetch2dUsmSupportExp
        BindlessSampledImageFetch2dSupportExp BindlessSampledImageFetch3dSupportExp
        BindlessUniqueAddressingPerDimSupportExp BindlessSample1dUsmSupportExp
        BindlessSample2dUsmSupportExp BindlessImagesGatherSupportExp ImageArraySupportExp
        MipmapSupportExp MipmapAnisotropySupportExp MipmapLevelReferenceSupportExp
        CubemapSupportExp CubemapSeamlessFilteringSupportExp
        ExternalMemoryImportSupportExp ExternalSemaphoreImportSupportExp;
    out.value(0u32) => ImagePitchAlignExp MipmapMaxAnisotropyExp;
    out.value(0usize) => MaxImageLinearWidthExp MaxImageLinearHeightExp MaxImageLinearPitchExp;
}

list! {
    "The pattern of the device properties about images, for a backend that has none."
    imageless_device_info;
    "One of the properties of [`imageless_device_info!`](crate::imageless_device_info); `UNSUPPORTED_ENUMERATION` for any other."
    imageless_device_info(out);

    out.boolean(false) => ImageSupport;
    out.value(0u32) => MaxReadImageArgs MaxWriteImageArgs MaxReadWriteImageArgs MaxSamplers;
    out.value(0usize) =>
        Image2dMaxWidth Image2dMaxHeight Image3dMaxWidth Image3dMaxHeight Image3dMaxDepth
        ImageMaxBufferSize ImageMaxArraySize;
}

list! {
    "The pattern of the device properties about IL, pipes and Intel's GPUs, for a backend that has none of them."
    plain_device_info;
    "One of the properties of [`plain_device_info!`](crate::plain_device_info); `UNSUPPORTED_ENUMERATION` for any other."
    plain_device_info(out);

    out.boolean(false) =>
        ImageSrgb ProgramSetSpecializationConstants MemChannelSupport
        HostPipeReadWriteSupport EsimdSupport;
    out.string("") => BuiltInKernels IlVersion;
    absent() =>
        DeviceId IpVersion Luid NodeMask GpuEuCount GpuEuSlices GpuEuCountPerSubslice
        GpuSubslicesPerSlice GpuHwThreadsPerEu;
}

list! {
    "The pattern of the device properties about kernels and the units that run them, for a backend that runs none."
    kernelless_device_info;
    "One of the properties of [`kernelless_device_info!`](crate::kernelless_device_info): the least that the specification allows; `UNSUPPORTED_ENUMERATION` for any other."
    kernelless_device_info(out);

    out.boolean(false) =>
        Atomic64 BuildOnSubdevice LinkerAvailable GlobalVariableSupport DynamicLinkSupportExp;
    out.value(3u32) => MaxWorkItemDimensions;
    out.value(1u32) => MaxComputeUnits NumComputeUnits MaxNumSubGroups;
    out.value([1usize; 3]) => MaxWorkItemSizes MaxWorkGroups3d;
    out.value(1usize) => MaxWorkGroupSize MaxWorkGroups;
    out.slice(&[1u32]) => SubGroupSizesIntel;
    out.value(ur_device_exec_capability_flags_t(0)) => ExecutionCapabilities;
    out.value(ur_kernel_launch_properties_flags_t(0)) => KernelLaunchCapabilities;
    out.value(ur_device_fp_capability_flags_t(0)) => SingleFpConfig DoubleFpConfig HalfFpConfig;
    out.value(ur_memory_order_capability_flags_t(0)) =>
        AtomicMemoryOrderCapabilities AtomicFenceOrderCapabilities;
    out.value(ur_memory_scope_capability_flags_t(0)) =>
        AtomicMemoryScopeCapabilities AtomicFenceScopeCapabilities;
    out.value(UR_DEVICE_LOCAL_MEM_TYPE_NONE) => LocalMemType;
    out.value(UR_DEVICE_MEM_CACHE_TYPE_NONE) => GlobalMemCacheType;
    out.value(0u32) =>
        PreferredVectorWidthChar PreferredVectorWidthShort PreferredVectorWidthInt
        PreferredVectorWidthLong PreferredVectorWidthLongLong PreferredVectorWidthFloat
        PreferredVectorWidthDouble PreferredVectorWidthHalf NativeVectorWidthChar
        NativeVectorWidthShort NativeVectorWidthInt NativeVectorWidthLong
        NativeVectorWidthLongLong NativeVectorWidthFloat NativeVectorWidthDouble
        NativeVectorWidthHalf MaxClockFrequency MaxConstantArgs GlobalMemCachelineSize;
    out.value(0u64) => MaxConstantBufferSize LocalMemSize GlobalMemCacheSize;
    out.value(0usize) => MaxParameterSize PrintfBufferSize;
}

list! {
    "The pattern of the device properties about the host's own memory and clock, for a device that is the host, without a driver."
    host_device_info;
    "One of the properties of [`host_device_info!`](crate::host_device_info); `UNSUPPORTED_ENUMERATION` for any other."
    host_device_info(out);

    out.boolean(true) => Available HostUnifiedMemory EnqueueHostTaskSupportExp;
    out.boolean(cfg!(target_endian = "little")) => EndianLittle;
    out.value(usize::BITS) => AddressBits;
    // The unit is a bit: a sub-buffer may begin at any byte.
    out.value(8u32) => MemBaseAddrAlign;
    out.value(ANY_ACCESS) =>
        UsmHostSupport UsmDeviceSupport UsmSingleSharedSupport UsmCrossSharedSupport
        UsmSystemSharedSupport;
    out.value(QUEUE_FLAGS) => QueueProperties QueueOnHostProperties;
    // Nanoseconds.
    out.value(1usize) => ProfilingTimerResolution;

    // What needs a driver, its compiler or a GPU.
    out.boolean(false) =>
        CompilerAvailable PreferredInteropUserSync EnqueueNativeCommandSupportExp UseNativeAssert
        ErrorCorrectionSupport IsIntegratedGpu SubGroupIndependentForwardProgress Bfloat16
        Bfloat16ConversionsNative ClockSubGroupSupportExp ClockWorkGroupSupportExp
        ClockDeviceSupportExp;
    absent() => PciAddress;
}

list! {
    "The pattern of the device properties that only interfaces of one vendor's GPUs have, for a backend on none of these."
    portable_device_info;
    "One of the properties of [`portable_device_info!`](crate::portable_device_info); `UNSUPPORTED_ENUMERATION` for any other."
    portable_device_info(out);

    out.boolean(false) =>
        CommandBufferSubgraphSupportExp AsyncBarrier MemoryExportExportableDeviceMemExp
        IpcMemorySupportExp IpcPhysicalMemorySupportExp IpcEventSupportExp;
    absent() => MemoryClockRate MaxMemoryBandwidth MemoryBusWidth MaxRegistersPerWorkGroup;
}

list! {
    "The pattern of the device properties about pages, memory that the program registers, and access to other devices' memory, for a device without these."
    basic_memory_device_info;
    "One of the properties of [`basic_memory_device_info!`](crate::basic_memory_device_info); `UNSUPPORTED_ENUMERATION` for any other."
    basic_memory_device_info(out);

    out.boolean(false) => VirtualMemorySupport UsmHostAllocRegisterSupportExp UsmP2pSupportExp;
}

list! {
    "The pattern of the device properties about sub-devices, for a device that has none and is none."
    undivided_device_info;
    "One of the properties of [`undivided_device_info!`](crate::undivided_device_info); `UNSUPPORTED_ENUMERATION` for any other."
    undivided_device_info(out);

    out.value(null_mut::<c_void>()) => ParentDevice;
    out.slice::<ur_device_partition_t>(&[]) => SupportedPartitions;
    out.slice::<ur_device_partition_property_t>(&[]) => PartitionType;
    out.value(0u32) => PartitionMaxSubDevices;
    out.value(ur_device_affinity_domain_flags_t(0)) => PartitionAffinityDomain;
}

/// Queue flags that the engine and most backends honour, or that are hints.
pub const QUEUE_FLAGS: ur_queue_flags_t = ur_queue_flags_t(
    UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE.0
        | UR_QUEUE_FLAG_PROFILING_ENABLE.0
        | UR_QUEUE_FLAG_DISCARD_EVENTS.0
        | UR_QUEUE_FLAG_PRIORITY_LOW.0
        | UR_QUEUE_FLAG_PRIORITY_HIGH.0
        | UR_QUEUE_FLAG_SUBMISSION_BATCHED.0
        | UR_QUEUE_FLAG_SUBMISSION_IMMEDIATE.0,
);

/// Floating point as IEEE 754 has it, in hardware.
pub const IEEE_754: ur_device_fp_capability_flags_t = ur_device_fp_capability_flags_t(
    UR_DEVICE_FP_CAPABILITY_FLAG_CORRECTLY_ROUNDED_DIVIDE_SQRT.0
        | UR_DEVICE_FP_CAPABILITY_FLAG_ROUND_TO_NEAREST.0
        | UR_DEVICE_FP_CAPABILITY_FLAG_ROUND_TO_ZERO.0
        | UR_DEVICE_FP_CAPABILITY_FLAG_ROUND_TO_INF.0
        | UR_DEVICE_FP_CAPABILITY_FLAG_INF_NAN.0
        | UR_DEVICE_FP_CAPABILITY_FLAG_DENORM.0
        | UR_DEVICE_FP_CAPABILITY_FLAG_FMA.0,
);

/// Atomics of every order but the sequentially consistent.
pub const ORDERS_BELOW_SEQ_CST: ur_memory_order_capability_flags_t =
    ur_memory_order_capability_flags_t(
        UR_MEMORY_ORDER_CAPABILITY_FLAG_RELAXED.0
            | UR_MEMORY_ORDER_CAPABILITY_FLAG_ACQUIRE.0
            | UR_MEMORY_ORDER_CAPABILITY_FLAG_RELEASE.0
            | UR_MEMORY_ORDER_CAPABILITY_FLAG_ACQ_REL.0,
    );

/// Atomics of every order.
pub const ALL_ORDERS: ur_memory_order_capability_flags_t = ur_memory_order_capability_flags_t(
    ORDERS_BELOW_SEQ_CST.0 | UR_MEMORY_ORDER_CAPABILITY_FLAG_SEQ_CST.0,
);

/// Atomics of every scope.
pub const ALL_SCOPES: ur_memory_scope_capability_flags_t = ur_memory_scope_capability_flags_t(
    UR_MEMORY_SCOPE_CAPABILITY_FLAG_WORK_ITEM.0
        | UR_MEMORY_SCOPE_CAPABILITY_FLAG_SUB_GROUP.0
        | UR_MEMORY_SCOPE_CAPABILITY_FLAG_WORK_GROUP.0
        | UR_MEMORY_SCOPE_CAPABILITY_FLAG_DEVICE.0
        | UR_MEMORY_SCOPE_CAPABILITY_FLAG_SYSTEM.0,
);

/// USM that host and device use at once, atomics included.
pub const ANY_ACCESS: ur_device_usm_access_capability_flags_t =
    ur_device_usm_access_capability_flags_t(
        UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ACCESS.0
            | UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ATOMIC_ACCESS.0
            | UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_CONCURRENT_ACCESS.0
            | UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ATOMIC_CONCURRENT_ACCESS.0,
    );

//! Every property of a device, and nothing else.

use std::ffi::c_void;

use ur::abi::*;
use ur::hal::DeviceInfo;
use ur::object::{Error, InfoOut, Object, Result};

use super::{Device, LAUNCH_PROPERTIES, MAX_GROUP_ITEMS, MAX_GROUPS};
use crate::adapter::roots;
use crate::cpu;
use crate::exec::LOCAL_BYTES;

/// Queue flags that mean something here, or that are hints.
const QUEUE_FLAGS: ur_queue_flags_t = ur_queue_flags_t(
    UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE.0
        | UR_QUEUE_FLAG_PROFILING_ENABLE.0
        | UR_QUEUE_FLAG_DISCARD_EVENTS.0
        | UR_QUEUE_FLAG_PRIORITY_LOW.0
        | UR_QUEUE_FLAG_PRIORITY_HIGH.0
        | UR_QUEUE_FLAG_SUBMISSION_BATCHED.0
        | UR_QUEUE_FLAG_SUBMISSION_IMMEDIATE.0,
);

/// IEEE 754 in hardware.
const FLOATS: ur_device_fp_capability_flags_t = ur_device_fp_capability_flags_t(
    UR_DEVICE_FP_CAPABILITY_FLAG_CORRECTLY_ROUNDED_DIVIDE_SQRT.0
        | UR_DEVICE_FP_CAPABILITY_FLAG_ROUND_TO_NEAREST.0
        | UR_DEVICE_FP_CAPABILITY_FLAG_ROUND_TO_ZERO.0
        | UR_DEVICE_FP_CAPABILITY_FLAG_ROUND_TO_INF.0
        | UR_DEVICE_FP_CAPABILITY_FLAG_INF_NAN.0
        | UR_DEVICE_FP_CAPABILITY_FLAG_DENORM.0
        | UR_DEVICE_FP_CAPABILITY_FLAG_FMA.0,
);

const ALL_ORDERS: ur_memory_order_capability_flags_t = ur_memory_order_capability_flags_t(
    UR_MEMORY_ORDER_CAPABILITY_FLAG_RELAXED.0
        | UR_MEMORY_ORDER_CAPABILITY_FLAG_ACQUIRE.0
        | UR_MEMORY_ORDER_CAPABILITY_FLAG_RELEASE.0
        | UR_MEMORY_ORDER_CAPABILITY_FLAG_ACQ_REL.0
        | UR_MEMORY_ORDER_CAPABILITY_FLAG_SEQ_CST.0,
);

const ALL_SCOPES: ur_memory_scope_capability_flags_t = ur_memory_scope_capability_flags_t(
    UR_MEMORY_SCOPE_CAPABILITY_FLAG_WORK_ITEM.0
        | UR_MEMORY_SCOPE_CAPABILITY_FLAG_SUB_GROUP.0
        | UR_MEMORY_SCOPE_CAPABILITY_FLAG_WORK_GROUP.0
        | UR_MEMORY_SCOPE_CAPABILITY_FLAG_DEVICE.0
        | UR_MEMORY_SCOPE_CAPABILITY_FLAG_SYSTEM.0,
);

/// All memory is the same memory.
const ANY_ACCESS: ur_device_usm_access_capability_flags_t = ur_device_usm_access_capability_flags_t(
    UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ACCESS.0
        | UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ATOMIC_ACCESS.0
        | UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_CONCURRENT_ACCESS.0
        | UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ATOMIC_CONCURRENT_ACCESS.0,
);

/// Bytes that a launch's arguments may take; a limit for callers to plan with, not one of ours.
const PARAMETER_BYTES: usize = 64 * 1024;

/// The property, or `UNSUPPORTED_ENUMERATION` if a processor has no such thing.
pub fn get(this: &Object<Device>, what: DeviceInfo, out: InfoOut<'_>) -> Result<()> {
    use DeviceInfo as Is;
    let lanes = |bytes: u32| cpu::facts().vector_bytes / bytes;
    match what {
        // What it is.
        Is::Type => out.value(UR_DEVICE_TYPE_CPU),
        Is::VendorId => out.value(cpu::facts().vendor_id()),
        Is::Name => out.string(&cpu::facts().model),
        Is::Vendor => out.string(&cpu::facts().vendor),
        Is::DriverVersion | Is::Version | Is::BackendRuntimeVersion => {
            out.string(env!("CARGO_PKG_VERSION"))
        }
        Is::Profile => out.string("FULL_PROFILE"),
        Is::Extensions => {
            out.string("cl_khr_fp64 cl_khr_int64_base_atomics cl_khr_int64_extended_atomics")
        }
        Is::Uuid => out.value(cpu::uuid((this.workers.first, this.workers.count))),
        Is::Platform => out.handle(Some(&roots().platform)),
        Is::ReferenceCount => out.value(this.api_refs()),
        Is::Available => out.boolean(true),
        Is::EndianLittle => out.boolean(cfg!(target_endian = "little")),
        Is::AddressBits => out.value(usize::BITS),

        // Parts.
        Is::ParentDevice => out.handle(this.parent.as_deref()),
        Is::SupportedPartitions => out.slice(this.partitions()),
        Is::PartitionMaxSubDevices => {
            let parts = if this.partitions().is_empty() { 0 } else { this.workers.count };
            out.value(parts as u32)
        }
        Is::PartitionAffinityDomain => out.value(ur_device_affinity_domain_flags_t(0)),
        Is::PartitionType => out.slice(this.split.as_slice()),
        Is::ComponentDevices => out.slice::<*mut c_void>(&[]),
        Is::CompositeDevice => out.handle::<Device>(None),

        // Cores, work-groups and sub-groups.
        Is::MaxComputeUnits | Is::NumComputeUnits => out.value(this.workers.count as u32),
        Is::MaxClockFrequency => out.value(cpu::facts().max_mhz),
        Is::MaxWorkItemDimensions => out.value(3u32),
        Is::MaxWorkItemSizes => out.value([MAX_GROUP_ITEMS; 3]),
        Is::MaxWorkGroupSize => out.value(MAX_GROUP_ITEMS),
        Is::MaxWorkGroups3d => out.value([MAX_GROUPS; 3]),
        Is::MaxWorkGroups => out.value(MAX_GROUPS),
        Is::MaxNumSubGroups => out.value(MAX_GROUP_ITEMS as u32),
        Is::SubGroupSizesIntel => out.slice(&[1u32]),
        Is::MaxParameterSize => out.value(PARAMETER_BYTES),
        Is::ExecutionCapabilities => out.value(ur_device_exec_capability_flags_t(
            UR_DEVICE_EXEC_CAPABILITY_FLAG_KERNEL.0 | UR_DEVICE_EXEC_CAPABILITY_FLAG_NATIVE_KERNEL.0,
        )),
        Is::MaxComputeQueueIndices => out.value(1u32),
        Is::KernelLaunchCapabilities => out.value(LAUNCH_PROPERTIES),

        // Arithmetic.
        Is::SingleFpConfig | Is::DoubleFpConfig => out.value(FLOATS),
        Is::HalfFpConfig => out.value(ur_device_fp_capability_flags_t(0)),
        Is::PreferredVectorWidthChar | Is::NativeVectorWidthChar => out.value(lanes(1)),
        Is::PreferredVectorWidthShort | Is::NativeVectorWidthShort => out.value(lanes(2)),
        Is::PreferredVectorWidthInt | Is::NativeVectorWidthInt => out.value(lanes(4)),
        Is::PreferredVectorWidthFloat | Is::NativeVectorWidthFloat => out.value(lanes(4)),
        Is::PreferredVectorWidthLong | Is::NativeVectorWidthLong => out.value(lanes(8)),
        Is::PreferredVectorWidthLongLong | Is::NativeVectorWidthLongLong => out.value(lanes(8)),
        Is::PreferredVectorWidthDouble | Is::NativeVectorWidthDouble => out.value(lanes(8)),
        Is::PreferredVectorWidthHalf | Is::NativeVectorWidthHalf => out.value(0u32),

        // Memory.
        Is::GlobalMemSize | Is::MaxMemAllocSize | Is::MaxConstantBufferSize => {
            out.value(cpu::memory_bytes())
        }
        Is::GlobalMemFree => {
            let free = cpu::free_bytes();
            out.value(free.ok_or(Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION))?)
        }
        Is::GlobalMemCacheType => out.value(UR_DEVICE_MEM_CACHE_TYPE_READ_WRITE_CACHE),
        Is::GlobalMemCachelineSize => out.value(cpu::cache_line_bytes()),
        Is::GlobalMemCacheSize => out.value(cpu::cache_bytes()),
        // In bits: a sub-buffer may begin at any byte.
        Is::MemBaseAddrAlign => out.value(8u32),
        Is::MaxConstantArgs => out.value((PARAMETER_BYTES / size_of::<usize>()) as u32),
        Is::LocalMemType => out.value(UR_DEVICE_LOCAL_MEM_TYPE_GLOBAL),
        Is::LocalMemSize => out.value(LOCAL_BYTES as u64),
        Is::UsmHostSupport
        | Is::UsmDeviceSupport
        | Is::UsmSingleSharedSupport
        | Is::UsmCrossSharedSupport
        | Is::UsmSystemSharedSupport => out.value(ANY_ACCESS),
        Is::AtomicMemoryOrderCapabilities | Is::AtomicFenceOrderCapabilities => {
            out.value(ALL_ORDERS)
        }
        Is::AtomicMemoryScopeCapabilities | Is::AtomicFenceScopeCapabilities => {
            out.value(ALL_SCOPES)
        }

        // Queues and time.
        Is::QueueProperties | Is::QueueOnHostProperties => out.value(QUEUE_FLAGS),
        Is::QueueOnDeviceProperties => out.value(ur_queue_flags_t(0)),
        Is::ProfilingTimerResolution => out.value(1usize),

        // What there is.
        Is::HostUnifiedMemory
        | Is::Atomic64
        | Is::BuildOnSubdevice
        | Is::LinkerAvailable
        | Is::VirtualMemorySupport
        | Is::GlobalVariableSupport
        | Is::UsmPoolSupport
        | Is::TimestampRecordingSupportExp
        | Is::AsyncUsmAllocationsSupportExp
        | Is::CommandBufferSupportExp
        | Is::GraphRecordAndReplaySupportExp
        | Is::CommandBufferEventSupportExp
        | Is::UsmP2pSupportExp
        | Is::MultiDeviceCompileSupportExp
        | Is::DeviceWaitSupportExp
        | Is::DynamicLinkSupportExp
        | Is::UsmContextMemcpySupportExp
        | Is::EnqueueHostTaskSupportExp => out.boolean(true),

        // What there is not.
        ur::lacking_features!()
        | Is::CommandBufferSubgraphSupportExp
        | Is::ImageSupport
        | Is::ImageSrgb
        | Is::ErrorCorrectionSupport
        | Is::CompilerAvailable
        | Is::PreferredInteropUserSync
        | Is::SubGroupIndependentForwardProgress
        | Is::Bfloat16
        | Is::Bfloat16ConversionsNative
        | Is::ProgramSetSpecializationConstants
        | Is::AsyncBarrier
        | Is::MemChannelSupport
        | Is::HostPipeReadWriteSupport
        | Is::EsimdSupport
        | Is::UseNativeAssert
        | Is::EnqueueNativeCommandSupportExp
        | Is::ClockSubGroupSupportExp
        | Is::ClockWorkGroupSupportExp
        | Is::ClockDeviceSupportExp
        | Is::IsIntegratedGpu => out.boolean(false),
        Is::BuiltInKernels | Is::IlVersion => out.string(""),
        Is::MaxReadImageArgs
        | Is::MaxWriteImageArgs
        | Is::MaxReadWriteImageArgs
        | Is::MaxSamplers
        | Is::ImagePitchAlignExp
        | Is::MipmapMaxAnisotropyExp => out.value(0u32),
        Is::Image2dMaxWidth
        | Is::Image2dMaxHeight
        | Is::Image3dMaxWidth
        | Is::Image3dMaxHeight
        | Is::Image3dMaxDepth
        | Is::ImageMaxBufferSize
        | Is::ImageMaxArraySize
        | Is::MaxImageLinearWidthExp
        | Is::MaxImageLinearHeightExp
        | Is::MaxImageLinearPitchExp
        // What kernels print goes straight to the C library.
        | Is::PrintfBufferSize => out.value(0usize),
        Is::CommandBufferUpdateCapabilitiesExp => out.value(ur::stream::UPDATES),
        Is::Is2dBlockArrayCapabilitiesExp => {
            out.value(ur_exp_device_2d_block_array_capability_flags_t(0))
        }

        // What a processor has no word for, or does not tell.
        Is::DeviceId
        | Is::MemoryClockRate
        | Is::MaxMemoryBandwidth
        | Is::MemoryBusWidth
        | Is::PciAddress
        | Is::GpuEuCount
        | Is::GpuEuSimdWidth
        | Is::GpuEuSlices
        | Is::GpuEuCountPerSubslice
        | Is::GpuSubslicesPerSlice
        | Is::GpuHwThreadsPerEu
        | Is::MaxRegistersPerWorkGroup
        | Is::IpVersion
        | Is::CurrentClockThrottleReasons
        | Is::FanSpeed
        | Is::MinPowerLimit
        | Is::MaxPowerLimit
        | Is::Luid
        | Is::NodeMask
        | Is::XeStackCount
        | Is::XeRegionsPerStack
        | Is::XeClustersPerRegion
        | Is::XeCoresPerCluster
        | Is::EusPerXeCore
        | Is::MaxLanesPerHwThread => Err(Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION)),
    }
}

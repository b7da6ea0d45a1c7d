//! The properties of the device. Those that all backends share are in `ur::stream::device_info`.
//!
//! The copy moves a property to an arm of its own as the device gains it. The match has no wildcard, so
//! that the compiler names a property that is left out.

use ur::abi::*;
use ur::hal::DeviceInfo;
use ur::object::{Error, InfoOut, Object, Result};
use ur::stream::device_info::{
    ANY_ACCESS, QUEUE_FLAGS, bindless_device_info, imageless_device_info, plain_device_info,
    shared_device_info,
};

use super::{Device, MEMORY_BYTES};
use crate::adapter::roots;

/// Writes a property. `UNSUPPORTED_ENUMERATION` if the device has no such property.
pub fn get(this: &Object<Device>, what: DeviceInfo, out: InfoOut<'_>) -> Result<()> {
    use DeviceInfo as Is;
    match what {
        ur::shared_device_info!() => shared_device_info(what, out),
        ur::bindless_device_info!() => bindless_device_info(what, out),
        ur::plain_device_info!() => plain_device_info(what, out),
        ur::imageless_device_info!() => imageless_device_info(what, out),
        // Identity.
        Is::Type => out.value(UR_DEVICE_TYPE_CPU),
        Is::Name => out.string("Skeleton"),
        Is::Vendor => out.string("Unified Runtime"),
        Is::VendorId => out.value(0u32),
        Is::Uuid => out.value(*b"unified skeleton"),
        Is::DriverVersion | Is::Version | Is::BackendRuntimeVersion => {
            out.string(env!("CARGO_PKG_VERSION"))
        }
        Is::Profile => out.string("FULL_PROFILE"),
        Is::Extensions => out.string(""),
        Is::Platform => out.handle(Some(&roots().platform)),
        Is::ParentDevice => out.handle(None::<&Object<Device>>),
        Is::ReferenceCount => out.value(this.api_refs()),
        Is::AddressBits => out.value(usize::BITS),

        // Memory.
        Is::GlobalMemSize | Is::GlobalMemFree | Is::MaxMemAllocSize => {
            out.value(MEMORY_BYTES as u64)
        }
        Is::UsmHostSupport
        | Is::UsmDeviceSupport
        | Is::UsmSingleSharedSupport
        | Is::UsmCrossSharedSupport
        | Is::UsmSystemSharedSupport => out.value(ANY_ACCESS),
        Is::GlobalMemCacheType => out.value(UR_DEVICE_MEM_CACHE_TYPE_NONE),
        // The unit is a bit.
        Is::MemBaseAddrAlign => out.value(8u32),

        // Queues and time.
        Is::QueueProperties | Is::QueueOnHostProperties => out.value(QUEUE_FLAGS),
        Is::ProfilingTimerResolution => out.value(1usize),

        // Supported.
        Is::Available
        | Is::EndianLittle
        | Is::HostUnifiedMemory
        | Is::EnqueueHostTaskSupportExp => out.boolean(true),

        // Not supported.
        Is::Atomic64
        | Is::BuildOnSubdevice
        | Is::LinkerAvailable
        | Is::VirtualMemorySupport
        | Is::GlobalVariableSupport
        | Is::MemoryExportExportableDeviceMemExp
        | Is::UsmHostAllocRegisterSupportExp
        | Is::IpcMemorySupportExp
        | Is::IpcPhysicalMemorySupportExp
        | Is::IpcEventSupportExp
        | Is::UsmP2pSupportExp
        | Is::DynamicLinkSupportExp
        | Is::CommandBufferSubgraphSupportExp
        | Is::ErrorCorrectionSupport
        | Is::CompilerAvailable
        | Is::PreferredInteropUserSync
        | Is::SubGroupIndependentForwardProgress
        | Is::Bfloat16
        | Is::Bfloat16ConversionsNative
        | Is::AsyncBarrier
        | Is::UseNativeAssert
        | Is::EnqueueNativeCommandSupportExp
        | Is::ClockSubGroupSupportExp
        | Is::ClockWorkGroupSupportExp
        | Is::ClockDeviceSupportExp
        | Is::IsIntegratedGpu => out.boolean(false),
        Is::SupportedPartitions => out.slice::<ur_device_partition_t>(&[]),
        Is::PartitionType => out.slice::<ur_device_partition_property_t>(&[]),
        Is::PartitionMaxSubDevices => out.value(0u32),
        Is::PartitionAffinityDomain => out.value(ur_device_affinity_domain_flags_t(0)),

        // Kernels: the least that the specification allows.
        Is::MaxComputeUnits | Is::NumComputeUnits | Is::MaxNumSubGroups => out.value(1u32),
        Is::MaxWorkItemDimensions => out.value(3u32),
        Is::MaxWorkItemSizes | Is::MaxWorkGroups3d => out.value([1usize; 3]),
        Is::MaxWorkGroupSize | Is::MaxWorkGroups => out.value(1usize),
        Is::SubGroupSizesIntel => out.slice(&[1u32]),
        Is::ExecutionCapabilities => out.value(ur_device_exec_capability_flags_t(0)),
        Is::KernelLaunchCapabilities => out.value(ur_kernel_launch_properties_flags_t(0)),
        Is::SingleFpConfig | Is::DoubleFpConfig | Is::HalfFpConfig => {
            out.value(ur_device_fp_capability_flags_t(0))
        }
        Is::AtomicMemoryOrderCapabilities | Is::AtomicFenceOrderCapabilities => {
            out.value(ur_memory_order_capability_flags_t(0))
        }
        Is::AtomicMemoryScopeCapabilities | Is::AtomicFenceScopeCapabilities => {
            out.value(ur_memory_scope_capability_flags_t(0))
        }
        Is::PreferredVectorWidthChar
        | Is::PreferredVectorWidthShort
        | Is::PreferredVectorWidthInt
        | Is::PreferredVectorWidthFloat
        | Is::PreferredVectorWidthLong
        | Is::PreferredVectorWidthLongLong
        | Is::PreferredVectorWidthDouble
        | Is::PreferredVectorWidthHalf
        | Is::NativeVectorWidthChar
        | Is::NativeVectorWidthShort
        | Is::NativeVectorWidthInt
        | Is::NativeVectorWidthFloat
        | Is::NativeVectorWidthLong
        | Is::NativeVectorWidthLongLong
        | Is::NativeVectorWidthDouble
        | Is::NativeVectorWidthHalf
        | Is::MaxClockFrequency
        | Is::MaxConstantArgs
        | Is::GlobalMemCachelineSize => out.value(0u32),
        Is::MaxConstantBufferSize | Is::LocalMemSize | Is::GlobalMemCacheSize => out.value(0u64),
        Is::LocalMemType => out.value(UR_DEVICE_LOCAL_MEM_TYPE_NONE),
        Is::MaxParameterSize | Is::PrintfBufferSize => out.value(0usize),

        // Unknown.
        Is::MemoryClockRate
        | Is::MaxMemoryBandwidth
        | Is::MemoryBusWidth
        | Is::PciAddress
        | Is::MaxRegistersPerWorkGroup => Err(Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION)),
    }
}

//! The properties of a device. Those that backends answer alike are in `ur::stream::device_info`.

use ur::abi::*;
use ur::hal::DeviceInfo;
use ur::object::{Error, InfoOut, Object, Result};
use ur::stream::device_info::{
    ALL_ORDERS, ALL_SCOPES, IEEE_754, bindless_device_info, host_device_info,
    imageless_device_info, plain_device_info, portable_device_info, shared_device_info,
};

use super::{Device, LAUNCH_PROPERTIES, MAX_GROUP_ITEMS, MAX_GROUPS};
use crate::adapter::roots;
use crate::cpu;
use crate::exec::LOCAL_BYTES;

/// Reported limit on the bytes of a launch's arguments. The adapter itself has none.
const PARAMETER_BYTES: usize = 64 * 1024;

/// Writes a property. `UNSUPPORTED_ENUMERATION` if a processor has no such property.
pub fn get(this: &Object<Device>, what: DeviceInfo, out: InfoOut<'_>) -> Result<()> {
    use DeviceInfo as Is;
    let lanes = |bytes: u32| cpu::facts().vector_bytes / bytes;
    match what {
        ur::shared_device_info!() => shared_device_info(what, out),
        ur::host_device_info!() => host_device_info(what, out),
        ur::portable_device_info!() => portable_device_info(what, out),
        ur::bindless_device_info!() => bindless_device_info(what, out),
        ur::plain_device_info!() => plain_device_info(what, out),
        ur::imageless_device_info!() => imageless_device_info(what, out),
        // Identity.
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

        // Partitions.
        Is::ParentDevice => out.handle(this.parent.as_deref()),
        Is::SupportedPartitions => out.slice(this.partitions()),
        Is::PartitionMaxSubDevices => {
            let parts = if this.partitions().is_empty() {
                0
            } else {
                this.workers.count
            };
            out.value(parts as u32)
        }
        Is::PartitionAffinityDomain => out.value(ur_device_affinity_domain_flags_t(0)),
        Is::PartitionType => out.slice(this.split.as_slice()),

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
            UR_DEVICE_EXEC_CAPABILITY_FLAG_KERNEL.0
                | UR_DEVICE_EXEC_CAPABILITY_FLAG_NATIVE_KERNEL.0,
        )),
        Is::KernelLaunchCapabilities => out.value(LAUNCH_PROPERTIES),

        // Arithmetic.
        Is::SingleFpConfig | Is::DoubleFpConfig => out.value(IEEE_754),
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
        Is::MaxConstantArgs => out.value((PARAMETER_BYTES / size_of::<usize>()) as u32),
        Is::LocalMemType => out.value(UR_DEVICE_LOCAL_MEM_TYPE_GLOBAL),
        Is::LocalMemSize => out.value(LOCAL_BYTES as u64),
        Is::AtomicMemoryOrderCapabilities | Is::AtomicFenceOrderCapabilities => {
            out.value(ALL_ORDERS)
        }
        Is::AtomicMemoryScopeCapabilities | Is::AtomicFenceScopeCapabilities => {
            out.value(ALL_SCOPES)
        }

        // Supported.
        Is::Atomic64
        | Is::BuildOnSubdevice
        | Is::LinkerAvailable
        | Is::VirtualMemorySupport
        | Is::GlobalVariableSupport
        | Is::UsmP2pSupportExp
        | Is::DynamicLinkSupportExp
        | Is::UsmHostAllocRegisterSupportExp => out.boolean(true),

        // Kernels print through the C library.
        Is::PrintfBufferSize => out.value(0usize),
    }
}

//! The properties of a device, as OpenCL reports them. Those that backends answer alike are in
//! `ur::stream::device_info`.

use opencl_sys::*;
use ur::abi::*;
use ur::hal::DeviceInfo;
use ur::object::{Error, InfoOut, Object, Result, ensure};
use ur::stream::device_info::{
    basic_memory_device_info, bindless_device_info, portable_device_info, shared_device_info,
};

use super::Device;
use crate::cl::Version;

/// OpenCL's bits, each with the flag that it stands for.
type Bits<T> = [(cl_bitfield, T)];

pub const AFFINITY: [(cl_bitfield, ur_device_affinity_domain_flags_t); 6] = [
    (
        CL_DEVICE_AFFINITY_DOMAIN_NUMA,
        UR_DEVICE_AFFINITY_DOMAIN_FLAG_NUMA,
    ),
    (
        CL_DEVICE_AFFINITY_DOMAIN_L4_CACHE,
        UR_DEVICE_AFFINITY_DOMAIN_FLAG_L4_CACHE,
    ),
    (
        CL_DEVICE_AFFINITY_DOMAIN_L3_CACHE,
        UR_DEVICE_AFFINITY_DOMAIN_FLAG_L3_CACHE,
    ),
    (
        CL_DEVICE_AFFINITY_DOMAIN_L2_CACHE,
        UR_DEVICE_AFFINITY_DOMAIN_FLAG_L2_CACHE,
    ),
    (
        CL_DEVICE_AFFINITY_DOMAIN_L1_CACHE,
        UR_DEVICE_AFFINITY_DOMAIN_FLAG_L1_CACHE,
    ),
    (
        CL_DEVICE_AFFINITY_DOMAIN_NEXT_PARTITIONABLE,
        UR_DEVICE_AFFINITY_DOMAIN_FLAG_NEXT_PARTITIONABLE,
    ),
];

const FLOATS: [(cl_bitfield, ur_device_fp_capability_flags_t); 8] = [
    (CL_FP_DENORM, UR_DEVICE_FP_CAPABILITY_FLAG_DENORM),
    (CL_FP_INF_NAN, UR_DEVICE_FP_CAPABILITY_FLAG_INF_NAN),
    (
        CL_FP_ROUND_TO_NEAREST,
        UR_DEVICE_FP_CAPABILITY_FLAG_ROUND_TO_NEAREST,
    ),
    (
        CL_FP_ROUND_TO_ZERO,
        UR_DEVICE_FP_CAPABILITY_FLAG_ROUND_TO_ZERO,
    ),
    (
        CL_FP_ROUND_TO_INF,
        UR_DEVICE_FP_CAPABILITY_FLAG_ROUND_TO_INF,
    ),
    (CL_FP_FMA, UR_DEVICE_FP_CAPABILITY_FLAG_FMA),
    (CL_FP_SOFT_FLOAT, UR_DEVICE_FP_CAPABILITY_FLAG_SOFT_FLOAT),
    (
        CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT,
        UR_DEVICE_FP_CAPABILITY_FLAG_CORRECTLY_ROUNDED_DIVIDE_SQRT,
    ),
];

const USM: [(cl_bitfield, ur_device_usm_access_capability_flags_t); 4] = [
    (1 << 0, UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ACCESS),
    (1 << 1, UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ATOMIC_ACCESS),
    (
        1 << 2,
        UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_CONCURRENT_ACCESS,
    ),
    (
        1 << 3,
        UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ATOMIC_CONCURRENT_ACCESS,
    ),
];

const ORDERS: [(cl_bitfield, ur_memory_order_capability_flags_t); 5] = [
    (
        CL_DEVICE_ATOMIC_ORDER_RELAXED,
        UR_MEMORY_ORDER_CAPABILITY_FLAG_RELAXED,
    ),
    (
        CL_DEVICE_ATOMIC_ORDER_ACQ_REL,
        UR_MEMORY_ORDER_CAPABILITY_FLAG_ACQUIRE,
    ),
    (
        CL_DEVICE_ATOMIC_ORDER_ACQ_REL,
        UR_MEMORY_ORDER_CAPABILITY_FLAG_RELEASE,
    ),
    (
        CL_DEVICE_ATOMIC_ORDER_ACQ_REL,
        UR_MEMORY_ORDER_CAPABILITY_FLAG_ACQ_REL,
    ),
    (
        CL_DEVICE_ATOMIC_ORDER_SEQ_CST,
        UR_MEMORY_ORDER_CAPABILITY_FLAG_SEQ_CST,
    ),
];

const SCOPES: [(cl_bitfield, ur_memory_scope_capability_flags_t); 5] = [
    (
        CL_DEVICE_ATOMIC_SCOPE_WORK_ITEM,
        UR_MEMORY_SCOPE_CAPABILITY_FLAG_WORK_ITEM,
    ),
    (
        CL_DEVICE_ATOMIC_SCOPE_WORK_GROUP,
        UR_MEMORY_SCOPE_CAPABILITY_FLAG_SUB_GROUP,
    ),
    (
        CL_DEVICE_ATOMIC_SCOPE_WORK_GROUP,
        UR_MEMORY_SCOPE_CAPABILITY_FLAG_WORK_GROUP,
    ),
    (
        CL_DEVICE_ATOMIC_SCOPE_DEVICE,
        UR_MEMORY_SCOPE_CAPABILITY_FLAG_DEVICE,
    ),
    (
        CL_DEVICE_ATOMIC_SCOPE_ALL_DEVICES,
        UR_MEMORY_SCOPE_CAPABILITY_FLAG_SYSTEM,
    ),
];

const PARTITIONS: [(cl_device_partition_property, ur_device_partition_t); 3] = [
    (CL_DEVICE_PARTITION_EQUALLY, UR_DEVICE_PARTITION_EQUALLY),
    (CL_DEVICE_PARTITION_BY_COUNTS, UR_DEVICE_PARTITION_BY_COUNTS),
    (
        CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN,
        UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN,
    ),
];

/// Atomics of every device before OpenCL 3.0, which added the query.
const MINIMAL_ATOMICS: cl_bitfield =
    CL_DEVICE_ATOMIC_ORDER_RELAXED | CL_DEVICE_ATOMIC_SCOPE_WORK_GROUP;

const fn absent() -> Error {
    Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION)
}

fn mapped<T: Copy>(bits: cl_bitfield, table: &Bits<T>, number: impl Fn(T) -> u32) -> u32 {
    table
        .iter()
        .filter(|(cl, _)| bits & cl != 0)
        .fold(0, |all, (_, ur)| all | number(*ur))
}

impl Device {
    fn gated<T: Copy>(&self, extension: &str, what: cl_device_info) -> Result<T> {
        ensure(self.has(extension), absent().code())?;
        self.value(what)
    }

    fn flag(&self, what: cl_device_info) -> Result<bool> {
        Ok(self.value::<cl_bool>(what)? != CL_FALSE)
    }

    fn floats(&self, what: cl_device_info) -> Result<u32> {
        Ok(mapped(self.value(what)?, &FLOATS, |flag| flag.0))
    }

    /// USM access as the extension reports it, or as shared virtual memory allows it.
    fn usm(&self, what: cl_device_info) -> Result<u32> {
        if self.has("cl_intel_unified_shared_memory") {
            return Ok(mapped(self.value(what)?, &USM, |flag| flag.0));
        }
        let svm = self.svm();
        let system = what == CL_DEVICE_SHARED_SYSTEM_MEM_CAPABILITIES_INTEL;
        let needed = if system {
            CL_DEVICE_SVM_FINE_GRAIN_SYSTEM
        } else {
            CL_DEVICE_SVM_FINE_GRAIN_BUFFER
        };
        Ok(
            match (svm & needed != 0, svm & CL_DEVICE_SVM_ATOMICS != 0) {
                (false, _) => 0,
                (true, false) => 0b0101,
                (true, true) => 0b1111,
            },
        )
    }

    fn atomics(&self, what: cl_device_info) -> Result<cl_bitfield> {
        if self.version() >= Version::new(3, 0) {
            return self.value(what);
        }
        Ok(MINIMAL_ATOMICS)
    }

    fn partitions(&self) -> Result<Vec<ur_device_partition_t>> {
        let all = self.list::<cl_device_partition_property>(CL_DEVICE_PARTITION_PROPERTIES)?;
        let known = |by: &cl_device_partition_property| PARTITIONS.iter().find(|(cl, _)| cl == by);
        Ok(all.iter().filter_map(known).map(|(_, ur)| *ur).collect())
    }

    /// The properties that a sub-device was made by.
    fn partition_type(&self) -> Result<Vec<ur_device_partition_property_t>> {
        if self.parent.is_none() {
            return Ok(Vec::new());
        }
        let list = self.list::<cl_device_partition_property>(CL_DEVICE_PARTITION_TYPE)?;
        let Some((&by, values)) = list.split_first() else {
            return Ok(Vec::new());
        };
        let Some((_, kind)) = PARTITIONS.iter().find(|(cl, _)| *cl == by) else {
            return Ok(Vec::new());
        };
        let domain = |bits: cl_device_partition_property| {
            mapped(bits as cl_bitfield, &AFFINITY, |flag| flag.0)
        };
        let property = |value: cl_device_partition_property| ur_device_partition_property_t {
            r#type: *kind,
            value: match *kind {
                UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN => ur_device_partition_value_t {
                    affinity_domain: ur_device_affinity_domain_flags_t(domain(value)),
                },
                _ => ur_device_partition_value_t {
                    count: value as u32,
                },
            },
        };
        Ok(values
            .iter()
            .take_while(|value| **value != 0)
            .map(|value| property(*value))
            .collect())
    }

    fn kernel_clock(&self, scope: cl_bitfield) -> bool {
        let scopes = self.gated::<cl_bitfield>(
            "cl_khr_kernel_clock",
            CL_DEVICE_KERNEL_CLOCK_CAPABILITIES_KHR,
        );
        scopes.is_ok_and(|scopes| scopes & scope != 0)
    }

    fn pci_address(&self) -> Result<String> {
        let [domain, bus, device, function] =
            self.gated::<[cl_uint; 4]>("cl_khr_pci_bus_info", CL_DEVICE_PCI_BUS_INFO_KHR)?;
        Ok(format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
    }

    fn sub_group_sizes(&self) -> Result<Vec<u32>> {
        match self.has("cl_intel_required_subgroup_size") {
            true => {
                let sizes = self.list::<usize>(CL_DEVICE_SUB_GROUP_SIZES_INTEL)?;
                Ok(sizes.into_iter().map(|size| size as u32).collect())
            }
            false => Ok(vec![1]),
        }
    }

    fn sub_groups(&self) -> Result<u32> {
        match self.version() >= Version::new(2, 1) {
            true => self.value(CL_DEVICE_MAX_NUM_SUB_GROUPS),
            false => Ok(1),
        }
    }
}

/// Writes a property. `UNSUPPORTED_ENUMERATION` if OpenCL or the device has no such property.
pub fn get(this: &Object<Device>, what: DeviceInfo, out: InfoOut<'_>) -> Result<()> {
    use DeviceInfo as Is;
    const INTEL: &str = "cl_intel_device_attribute_query";
    let number = |out: InfoOut<'_>, what| out.value(this.value::<cl_uint>(what)?);
    let long = |out: InfoOut<'_>, what| out.value(this.value::<cl_ulong>(what)?);
    let size = |out: InfoOut<'_>, what| out.value(this.value::<usize>(what)?);
    let text = |out: InfoOut<'_>, what| out.string(&this.text(what)?);
    let flag = |out: InfoOut<'_>, what| out.boolean(this.flag(what)?);
    let intel = |out: InfoOut<'_>, what| out.value(this.gated::<cl_uint>(INTEL, what)?);
    match what {
        ur::shared_device_info!() => shared_device_info(what, out),
        ur::bindless_device_info!() => bindless_device_info(what, out),
        ur::basic_memory_device_info!() => basic_memory_device_info(what, out),
        ur::portable_device_info!() => portable_device_info(what, out),
        // Identity.
        Is::Type => out.value(match this.kind {
            kind if kind & CL_DEVICE_TYPE_CPU != 0 => UR_DEVICE_TYPE_CPU,
            kind if kind & CL_DEVICE_TYPE_GPU != 0 => UR_DEVICE_TYPE_GPU,
            kind if kind & CL_DEVICE_TYPE_ACCELERATOR != 0 => UR_DEVICE_TYPE_FPGA,
            _ => UR_DEVICE_TYPE_CUSTOM,
        }),
        Is::VendorId => number(out, CL_DEVICE_VENDOR_ID),
        Is::DeviceId => intel(out, CL_DEVICE_ID_INTEL),
        Is::Name => text(out, CL_DEVICE_NAME),
        Is::Vendor => text(out, CL_DEVICE_VENDOR),
        Is::DriverVersion => text(out, CL_DRIVER_VERSION),
        Is::Profile => text(out, CL_DEVICE_PROFILE),
        Is::Version => text(out, CL_DEVICE_VERSION),
        Is::BackendRuntimeVersion => out.string(&format!(
            "{}.{}",
            this.version().major,
            this.version().minor
        )),
        Is::Extensions => text(out, CL_DEVICE_EXTENSIONS),
        Is::Uuid => out.value(this.gated::<[u8; 16]>("cl_khr_device_uuid", CL_DEVICE_UUID_KHR)?),
        Is::Luid => {
            let valid: cl_bool = this.gated("cl_khr_device_uuid", CL_DEVICE_LUID_VALID_KHR)?;
            ensure(valid != CL_FALSE, absent().code())?;
            out.value(this.value::<[u8; 8]>(CL_DEVICE_LUID_KHR)?)
        }
        Is::NodeMask => {
            // Clients derive an aspect from it even without a LUID. The reference's adapter passes the
            // driver's answer on, too.
            out.value(this.gated::<cl_uint>("cl_khr_device_uuid", CL_DEVICE_NODE_MASK_KHR)?)
        }
        Is::PciAddress => out.string(&this.pci_address()?),
        Is::IpVersion => intel(out, CL_DEVICE_IP_VERSION_INTEL),
        Is::Platform => out.handle(Some(&this.platform)),
        Is::ReferenceCount => out.value(this.api_refs()),
        Is::Available => flag(out, CL_DEVICE_AVAILABLE),
        Is::EndianLittle => flag(out, CL_DEVICE_ENDIAN_LITTLE),
        Is::AddressBits => number(out, CL_DEVICE_ADDRESS_BITS),
        Is::BuiltInKernels => text(out, CL_DEVICE_BUILT_IN_KERNELS),
        Is::IlVersion => {
            match this.version() >= Version::new(2, 1) || this.has("cl_khr_il_program") {
                true => text(out, CL_DEVICE_IL_VERSION),
                false => out.string(""),
            }
        }

        // Partitions.
        Is::ParentDevice => out.handle(this.parent.as_deref()),
        Is::SupportedPartitions => out.slice(&this.partitions()?),
        Is::PartitionMaxSubDevices => number(out, CL_DEVICE_PARTITION_MAX_SUB_DEVICES),
        Is::PartitionAffinityDomain => out.value(mapped(
            this.value(CL_DEVICE_PARTITION_AFFINITY_DOMAIN)?,
            &AFFINITY,
            |flag| flag.0,
        )),
        Is::PartitionType => out.slice(&this.partition_type()?),

        // Cores, work-groups and sub-groups.
        Is::MaxComputeUnits | Is::NumComputeUnits => number(out, CL_DEVICE_MAX_COMPUTE_UNITS),
        Is::MaxClockFrequency => number(out, CL_DEVICE_MAX_CLOCK_FREQUENCY),
        Is::MaxWorkItemDimensions => number(out, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS),
        Is::MaxWorkItemSizes => {
            let sizes = this.list::<usize>(CL_DEVICE_MAX_WORK_ITEM_SIZES)?;
            out.slice(&sizes[..sizes.len().min(3)])
        }
        Is::MaxWorkGroupSize => size(out, CL_DEVICE_MAX_WORK_GROUP_SIZE),
        Is::MaxWorkGroups3d => out.value([usize::MAX; 3]),
        Is::MaxWorkGroups => out.value(usize::MAX),
        Is::MaxNumSubGroups => out.value(this.sub_groups()?),
        Is::SubGroupIndependentForwardProgress => match this.version() >= Version::new(2, 1) {
            true => flag(out, CL_DEVICE_SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS),
            false => out.boolean(false),
        },
        Is::SubGroupSizesIntel => out.slice(&this.sub_group_sizes()?),
        Is::MaxParameterSize => size(out, CL_DEVICE_MAX_PARAMETER_SIZE),
        Is::ExecutionCapabilities => {
            let table = [
                (CL_EXEC_KERNEL, UR_DEVICE_EXEC_CAPABILITY_FLAG_KERNEL),
                (
                    CL_EXEC_NATIVE_KERNEL,
                    UR_DEVICE_EXEC_CAPABILITY_FLAG_NATIVE_KERNEL,
                ),
            ];
            out.value(mapped(
                this.value(CL_DEVICE_EXECUTION_CAPABILITIES)?,
                &table,
                |flag| flag.0,
            ))
        }
        Is::KernelLaunchCapabilities => out.value(ur_kernel_launch_properties_flags_t(0)),
        Is::GpuEuCount => {
            let each = |what| this.gated::<cl_uint>(INTEL, what);
            out.value(
                each(CL_DEVICE_NUM_SLICES_INTEL)?
                    * each(CL_DEVICE_NUM_SUB_SLICES_PER_SLICE_INTEL)?
                    * each(CL_DEVICE_NUM_EUS_PER_SUB_SLICE_INTEL)?,
            )
        }
        Is::GpuEuSlices => intel(out, CL_DEVICE_NUM_SLICES_INTEL),
        Is::GpuEuCountPerSubslice => intel(out, CL_DEVICE_NUM_EUS_PER_SUB_SLICE_INTEL),
        Is::GpuSubslicesPerSlice => intel(out, CL_DEVICE_NUM_SUB_SLICES_PER_SLICE_INTEL),
        Is::GpuHwThreadsPerEu => intel(out, CL_DEVICE_NUM_THREADS_PER_EU_INTEL),

        // Arithmetic.
        Is::SingleFpConfig => out.value(this.floats(CL_DEVICE_SINGLE_FP_CONFIG)?),
        Is::DoubleFpConfig => match this.has("cl_khr_fp64") {
            true => out.value(this.floats(CL_DEVICE_DOUBLE_FP_CONFIG)?),
            false => out.value(0u32),
        },
        Is::HalfFpConfig => match this.has("cl_khr_fp16") {
            true => out.value(this.floats(CL_DEVICE_HALF_FP_CONFIG)?),
            false => out.value(0u32),
        },
        Is::PreferredVectorWidthChar => number(out, CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR),
        Is::PreferredVectorWidthShort => number(out, CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT),
        Is::PreferredVectorWidthInt => number(out, CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT),
        Is::PreferredVectorWidthLong | Is::PreferredVectorWidthLongLong => {
            number(out, CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG)
        }
        Is::PreferredVectorWidthFloat => number(out, CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT),
        Is::PreferredVectorWidthDouble => number(out, CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE),
        Is::PreferredVectorWidthHalf => number(out, CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF),
        Is::NativeVectorWidthChar => number(out, CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR),
        Is::NativeVectorWidthShort => number(out, CL_DEVICE_NATIVE_VECTOR_WIDTH_SHORT),
        Is::NativeVectorWidthInt => number(out, CL_DEVICE_NATIVE_VECTOR_WIDTH_INT),
        Is::NativeVectorWidthLong | Is::NativeVectorWidthLongLong => {
            number(out, CL_DEVICE_NATIVE_VECTOR_WIDTH_LONG)
        }
        Is::NativeVectorWidthFloat => number(out, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT),
        Is::NativeVectorWidthDouble => number(out, CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE),
        Is::NativeVectorWidthHalf => number(out, CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF),
        Is::Bfloat16 => out.boolean(false),
        Is::Bfloat16ConversionsNative => out.boolean(this.has("cl_intel_bfloat16_conversions")),

        // Memory.
        Is::GlobalMemSize => long(out, CL_DEVICE_GLOBAL_MEM_SIZE),
        Is::MaxMemAllocSize => long(out, CL_DEVICE_MAX_MEM_ALLOC_SIZE),
        Is::MaxConstantBufferSize => long(out, CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE),
        Is::MaxConstantArgs => number(out, CL_DEVICE_MAX_CONSTANT_ARGS),
        Is::GlobalMemCacheType => number(out, CL_DEVICE_GLOBAL_MEM_CACHE_TYPE),
        Is::GlobalMemCachelineSize => number(out, CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE),
        Is::GlobalMemCacheSize => long(out, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE),
        Is::MemBaseAddrAlign => number(out, CL_DEVICE_MEM_BASE_ADDR_ALIGN),
        Is::LocalMemType => number(out, CL_DEVICE_LOCAL_MEM_TYPE),
        Is::LocalMemSize => long(out, CL_DEVICE_LOCAL_MEM_SIZE),
        Is::UsmHostSupport => out.value(this.usm(CL_DEVICE_HOST_MEM_CAPABILITIES_INTEL)?),
        Is::UsmDeviceSupport => out.value(this.usm(CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL)?),
        Is::UsmSingleSharedSupport => {
            out.value(this.usm(CL_DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL)?)
        }
        Is::UsmCrossSharedSupport => {
            out.value(this.usm(CL_DEVICE_CROSS_DEVICE_SHARED_MEM_CAPABILITIES_INTEL)?)
        }
        Is::UsmSystemSharedSupport => {
            out.value(this.usm(CL_DEVICE_SHARED_SYSTEM_MEM_CAPABILITIES_INTEL)?)
        }
        Is::AtomicMemoryOrderCapabilities => out.value(mapped(
            this.atomics(CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES)?,
            &ORDERS,
            |flag| flag.0,
        )),
        Is::AtomicFenceOrderCapabilities => out.value(mapped(
            this.atomics(CL_DEVICE_ATOMIC_FENCE_CAPABILITIES)?,
            &ORDERS,
            |flag| flag.0,
        )),
        Is::AtomicMemoryScopeCapabilities => out.value(mapped(
            this.atomics(CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES)?,
            &SCOPES,
            |flag| flag.0,
        )),
        Is::AtomicFenceScopeCapabilities => out.value(mapped(
            this.atomics(CL_DEVICE_ATOMIC_FENCE_CAPABILITIES)?,
            &SCOPES,
            |flag| flag.0,
        )),
        Is::Atomic64 => out.boolean(
            this.has("cl_khr_int64_base_atomics") && this.has("cl_khr_int64_extended_atomics"),
        ),

        // Images.
        Is::ImageSupport => flag(out, CL_DEVICE_IMAGE_SUPPORT),
        Is::MaxReadImageArgs => number(out, CL_DEVICE_MAX_READ_IMAGE_ARGS),
        Is::MaxWriteImageArgs => number(out, CL_DEVICE_MAX_WRITE_IMAGE_ARGS),
        Is::MaxReadWriteImageArgs => match this.version() >= Version::new(2, 0) {
            true => number(out, CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS),
            false => out.value(0u32),
        },
        Is::MaxSamplers => number(out, CL_DEVICE_MAX_SAMPLERS),
        Is::Image2dMaxWidth => size(out, CL_DEVICE_IMAGE2D_MAX_WIDTH),
        Is::Image2dMaxHeight => size(out, CL_DEVICE_IMAGE2D_MAX_HEIGHT),
        Is::Image3dMaxWidth => size(out, CL_DEVICE_IMAGE3D_MAX_WIDTH),
        Is::Image3dMaxHeight => size(out, CL_DEVICE_IMAGE3D_MAX_HEIGHT),
        Is::Image3dMaxDepth => size(out, CL_DEVICE_IMAGE3D_MAX_DEPTH),
        Is::ImageMaxBufferSize => size(out, CL_DEVICE_IMAGE_MAX_BUFFER_SIZE),
        Is::ImageMaxArraySize => size(out, CL_DEVICE_IMAGE_MAX_ARRAY_SIZE),

        // Queues and time. The engine makes out-of-order queues from in-order ones.
        Is::QueueProperties | Is::QueueOnHostProperties => {
            let bits: cl_bitfield = this.value(CL_DEVICE_QUEUE_PROPERTIES)?;
            let table = [(CL_QUEUE_PROFILING_ENABLE, UR_QUEUE_FLAG_PROFILING_ENABLE)];
            let own = UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE.0;
            out.value(mapped(bits, &table, |flag| flag.0) | own)
        }
        Is::ProfilingTimerResolution => size(out, CL_DEVICE_PROFILING_TIMER_RESOLUTION),
        Is::PrintfBufferSize => size(out, CL_DEVICE_PRINTF_BUFFER_SIZE),
        Is::PreferredInteropUserSync => flag(out, CL_DEVICE_PREFERRED_INTEROP_USER_SYNC),

        // Features.
        Is::ErrorCorrectionSupport => flag(out, CL_DEVICE_ERROR_CORRECTION_SUPPORT),
        Is::HostUnifiedMemory => flag(out, CL_DEVICE_HOST_UNIFIED_MEMORY),
        Is::CompilerAvailable => flag(out, CL_DEVICE_COMPILER_AVAILABLE),
        Is::LinkerAvailable => flag(out, CL_DEVICE_LINKER_AVAILABLE),
        Is::UseNativeAssert => out.boolean(this.has("cl_intel_devicelib_assert")),
        Is::BuildOnSubdevice => out.boolean(this.kind & CL_DEVICE_TYPE_GPU == 0),
        Is::GlobalVariableSupport => out.boolean(
            this.api()
                .ext()
                .clGetDeviceGlobalVariablePointerINTEL
                .is_some(),
        ),
        Is::HostPipeReadWriteSupport => out.boolean(this.has("cl_intel_program_scope_host_pipe")),
        Is::MemChannelSupport => out.boolean(this.has("cl_intel_mem_channel_property")),
        Is::ProgramSetSpecializationConstants => out.boolean(this.specializes()),
        Is::EsimdSupport => out.boolean(
            this.kind & CL_DEVICE_TYPE_GPU != 0
                && this.value::<cl_uint>(CL_DEVICE_VENDOR_ID)? == 0x8086,
        ),
        // Every device with images supports images of that order.
        Is::ImageSrgb => flag(out, CL_DEVICE_IMAGE_SUPPORT),
        Is::ClockSubGroupSupportExp => {
            out.boolean(this.kernel_clock(CL_DEVICE_KERNEL_CLOCK_SCOPE_SUB_GROUP_KHR))
        }
        Is::ClockWorkGroupSupportExp => {
            out.boolean(this.kernel_clock(CL_DEVICE_KERNEL_CLOCK_SCOPE_WORK_GROUP_KHR))
        }
        Is::ClockDeviceSupportExp => {
            out.boolean(this.kernel_clock(CL_DEVICE_KERNEL_CLOCK_SCOPE_DEVICE_KHR))
        }
        Is::IsIntegratedGpu => out.boolean(
            this.kind & CL_DEVICE_TYPE_GPU != 0 && this.flag(CL_DEVICE_HOST_UNIFIED_MEMORY)?,
        ),

        // Supported.
        Is::EnqueueNativeCommandSupportExp | Is::EnqueueHostTaskSupportExp => out.boolean(true),

        // Not supported.
        Is::DynamicLinkSupportExp => out.boolean(false),

        // Unknown to OpenCL.
        Is::GlobalMemFree => Err(absent()),
    }
}

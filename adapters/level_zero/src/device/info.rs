//! The properties of a device, from what the driver says of it. Those that backends answer alike are in
//! `ur::stream::device_info`; an arm that stands before theirs takes a property out of the list.

use ur::abi::*;
use ur::hal::DeviceInfo;
use ur::object::{Error, InfoOut, Object, Result, ensure};
use ur::stream::device_info::{
    ALL_ORDERS, ALL_SCOPES, QUEUE_FLAGS, bindless_device_info, imageless_device_info,
    plain_device_info, shared_device_info,
};

use super::Device;
use super::system::is_absent;
use crate::lz::*;
use crate::platform::{BASE_EXTENSIONS, text};

const fn absent() -> Error {
    Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION)
}

/// Level Zero's flags of floating point, with those of Unified Runtime.
const FP: [(ze_device_fp_flag_t, ur_device_fp_capability_flags_t); 8] = [
    (
        ZE_DEVICE_FP_FLAG_DENORM,
        UR_DEVICE_FP_CAPABILITY_FLAG_DENORM,
    ),
    (
        ZE_DEVICE_FP_FLAG_INF_NAN,
        UR_DEVICE_FP_CAPABILITY_FLAG_INF_NAN,
    ),
    (
        ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST,
        UR_DEVICE_FP_CAPABILITY_FLAG_ROUND_TO_NEAREST,
    ),
    (
        ZE_DEVICE_FP_FLAG_ROUND_TO_ZERO,
        UR_DEVICE_FP_CAPABILITY_FLAG_ROUND_TO_ZERO,
    ),
    (
        ZE_DEVICE_FP_FLAG_ROUND_TO_INF,
        UR_DEVICE_FP_CAPABILITY_FLAG_ROUND_TO_INF,
    ),
    (ZE_DEVICE_FP_FLAG_FMA, UR_DEVICE_FP_CAPABILITY_FLAG_FMA),
    (
        ZE_DEVICE_FP_FLAG_ROUNDED_DIVIDE_SQRT,
        UR_DEVICE_FP_CAPABILITY_FLAG_CORRECTLY_ROUNDED_DIVIDE_SQRT,
    ),
    (
        ZE_DEVICE_FP_FLAG_SOFT_FLOAT,
        UR_DEVICE_FP_CAPABILITY_FLAG_SOFT_FLOAT,
    ),
];

/// Level Zero's capabilities of memory, with those of Unified Runtime.
const ACCESS: [(
    ze_memory_access_cap_flag_t,
    ur_device_usm_access_capability_flags_t,
); 4] = [
    (
        ZE_MEMORY_ACCESS_CAP_FLAG_RW,
        UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ACCESS,
    ),
    (
        ZE_MEMORY_ACCESS_CAP_FLAG_ATOMIC,
        UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ATOMIC_ACCESS,
    ),
    (
        ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT,
        UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_CONCURRENT_ACCESS,
    ),
    (
        ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT_ATOMIC,
        UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ATOMIC_CONCURRENT_ACCESS,
    ),
];

fn fp(native: ze_device_fp_flags_t) -> ur_device_fp_capability_flags_t {
    let set = FP.iter().filter(|(flag, _)| native & flag != 0);
    ur_device_fp_capability_flags_t(set.fold(0, |all, (_, flag)| all | flag.0))
}

fn usm(native: ze_memory_access_cap_flags_t) -> ur_device_usm_access_capability_flags_t {
    let set = ACCESS.iter().filter(|(flag, _)| native & flag != 0);
    ur_device_usm_access_capability_flags_t(set.fold(0, |all, (_, flag)| all | flag.0))
}

/// The driver's name for conversions to bfloat16 in hardware.
const BFLOAT16: &str = "ZE_extension_bfloat16_conversions";

impl Device {
    fn units(&self) -> u32 {
        self.cores() * self.facts.base.numEUsPerSubslice
    }

    /// Cores that share local memory.
    fn cores(&self) -> u32 {
        self.facts.base.numSlices * self.facts.base.numSubslicesPerSlice
    }

    /// The names of OpenCL extensions, each followed by a space, as Intel's adapters give them.
    fn extensions(&self) -> String {
        let facts = &self.facts;
        let atomics = facts.has(ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS);
        let each = [
            (facts.has(ZE_DEVICE_MODULE_FLAG_FP16), "cl_khr_fp16"),
            (facts.has(ZE_DEVICE_MODULE_FLAG_FP64), "cl_khr_fp64"),
            (atomics, "cl_khr_int64_base_atomics"),
            (atomics, "cl_khr_int64_extended_atomics"),
            (facts.image.maxImageDims3D > 0, "cl_khr_3d_image_writes"),
            (
                self.platform.has_extension(BFLOAT16),
                "cl_intel_bfloat16_conversions",
            ),
        ];
        let there = each.iter().filter(|(there, _)| *there);
        there.fold(BASE_EXTENSIONS.to_owned(), |all, (_, name)| {
            all + name + " "
        })
    }

    /// The architecture as text, or the device's id where that is unknown.
    fn version(&self) -> String {
        match self.facts.ip_version {
            0 => format!("{:#x}", self.facts.base.deviceId),
            ip => format!("{}.{}.{}", ip >> 22, ip >> 14 & 0xff, ip & 0x3f),
        }
    }

    fn pci_address(&self) -> Result<String> {
        let query = self.api.zeDevicePciGetPropertiesExt.ok_or(absent())?;
        let mut found = ze_pci_ext_properties_t::default();
        // SAFETY: the structure is writable and has its tag.
        let code = unsafe { query(self.raw, &mut found) };
        ensure(!is_absent(code), absent().code())?;
        check(code, "zeDevicePciGetPropertiesExt")?;
        let ze_pci_address_ext_t {
            domain,
            bus,
            device,
            function,
        } = found.address;
        Ok(format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
    }

    /// Preferred and native widths: char, short, int, long, float, double, half.
    fn widths(&self) -> Result<[[u32; 7]; 2]> {
        let double = u32::from(self.facts.has(ZE_DEVICE_MODULE_FLAG_FP64));
        let mut widths = match &self.facts.vectors.as_ref().map_err(|error| *error)? {
            Some(of) => [
                [
                    of.preferred_vector_width_char,
                    of.preferred_vector_width_short,
                    of.preferred_vector_width_int,
                    of.preferred_vector_width_long,
                    of.preferred_vector_width_float,
                    of.preferred_vector_width_double,
                    of.preferred_vector_width_half,
                ],
                [
                    of.native_vector_width_char,
                    of.native_vector_width_short,
                    of.native_vector_width_int,
                    of.native_vector_width_long,
                    of.native_vector_width_float,
                    of.native_vector_width_double,
                    of.native_vector_width_half,
                ],
            ],
            None => [[16, 8, 4, 1, 1, double, 8]; 2],
        };
        // The driver's structure says 0 for a device that has doubles.
        widths.iter_mut().for_each(|of| of[5] = of[5].max(double));
        Ok(widths)
    }

    fn part_count(&self) -> u32 {
        self.parts().len() as u32
    }

    /// The tiles that the device consists of.
    fn stacks(&self) -> u32 {
        match self.parent {
            None => self.part_count().max(1),
            Some(_) => 1,
        }
    }

    /// The number of slices that share the execution units of the device's tile; 1 for no slice.
    fn slices_beside(&self) -> u32 {
        let tile = self.slice.and(self.parent.as_ref());
        tile.map_or(1, |tile| tile.part_count().max(1))
    }
}

/// Writes a property. `UNSUPPORTED_ENUMERATION` if the driver does not report it.
// An arm before the lists' takes a property out of them.
#[allow(unreachable_patterns)]
pub fn get(this: &Object<Device>, what: DeviceInfo, out: InfoOut<'_>) -> Result<()> {
    use DeviceInfo as Is;
    let facts = &this.facts;
    let (base, compute, module, image) = (&facts.base, &facts.compute, &facts.module, &facts.image);
    let width = |kind: usize, at: usize| -> Result<u32> { Ok(this.widths()?[kind][at]) };
    let preferred = |at| width(0, at);
    let native = |at| width(1, at);
    match what {
        // Identity.
        Is::Type => out.value(UR_DEVICE_TYPE_GPU),
        Is::VendorId => out.value(base.vendorId),
        Is::DeviceId => out.value(base.deviceId),
        Is::Name => out.string(&text(&base.name)),
        Is::Vendor => out.string("Intel(R) Corporation"),
        Is::DriverVersion | Is::BackendRuntimeVersion => out.string(this.platform.version_text()),
        Is::Profile => out.string("FULL_PROFILE"),
        Is::Version => out.string(&this.version()),
        Is::IpVersion => match facts.ip_version {
            0 => Err(absent()),
            version => out.value(version),
        },
        Is::Extensions => out.string(&this.extensions()),
        Is::Uuid => out.value(base.uuid.id),
        Is::PciAddress => out.string(&this.pci_address()?),
        Is::Platform => out.handle(Some(&this.platform)),
        Is::ReferenceCount => out.value(this.api_refs()),
        Is::Available | Is::EndianLittle => out.boolean(true),
        Is::AddressBits => out.value(64u32),
        Is::BuiltInKernels => out.string(""),
        Is::IlVersion => {
            let version = module.spirvVersionSupported;
            out.string(&format!("SPIR-V_{}.{} ", version >> 16, version & 0xffff))
        }

        // Partitions.
        Is::ParentDevice => out.handle(this.parent.as_deref()),
        Is::SupportedPartitions => match this.part_count() {
            // A single part is no split.
            0 | 1 => out.slice::<ur_device_partition_t>(&[]),
            _ => out.slice(this.partitions()),
        },
        Is::PartitionMaxSubDevices => out.value(this.part_count()),
        Is::PartitionAffinityDomain => out.value(ur_device_affinity_domain_flags_t(
            UR_DEVICE_AFFINITY_DOMAIN_FLAG_NUMA.0
                | UR_DEVICE_AFFINITY_DOMAIN_FLAG_NEXT_PARTITIONABLE.0,
        )),
        Is::PartitionType => match (&this.parent, this.slice) {
            (None, _) => out.slice::<ur_device_partition_property_t>(&[]),
            (_, Some(_)) => out.slice(&[ur_device_partition_property_t {
                r#type: UR_DEVICE_PARTITION_BY_CSLICE,
                value: ur_device_partition_value_t { count: 0 },
            }]),
            // The domain that a tile is, whichever name it was asked by.
            (_, None) => out.slice(&[ur_device_partition_property_t {
                r#type: UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN,
                value: ur_device_partition_value_t {
                    affinity_domain: UR_DEVICE_AFFINITY_DOMAIN_FLAG_NUMA,
                },
            }]),
        },

        Is::ComponentDevices => {
            let tiles = this.components().iter();
            out.slice(&tiles.map(|tile| tile.handle()).collect::<Vec<_>>())
        }
        Is::CompositeDevice => out.handle(this.composite().map(|card| &**card)),

        // Units, work-groups and sub-groups.
        Is::MaxComputeUnits => out.value(this.units() / this.slices_beside()),
        Is::GpuEuCount => out.value(this.units()),
        Is::NumComputeUnits => out.value(this.cores()),
        Is::GpuEuSimdWidth => out.value(base.physicalEUSimdWidth),
        Is::GpuEuSlices => out.value(base.numSlices),
        Is::GpuEuCountPerSubslice | Is::EusPerXeCore => out.value(base.numEUsPerSubslice),
        Is::GpuSubslicesPerSlice | Is::XeCoresPerCluster => out.value(base.numSubslicesPerSlice),
        Is::GpuHwThreadsPerEu => out.value(base.numThreadsPerEU),
        Is::XeStackCount => out.value(this.stacks()),
        Is::XeRegionsPerStack => out.value(1u32),
        Is::XeClustersPerRegion => out.value(base.numSlices / this.stacks()),
        Is::MaxLanesPerHwThread => out.value(facts.sub_groups().iter().copied().max().unwrap_or(1)),
        Is::MaxClockFrequency => out.value(base.coreClockRate),
        Is::MaxWorkItemDimensions => out.value(3u32),
        Is::MaxWorkItemSizes => out.value([
            compute.maxGroupSizeX as usize,
            compute.maxGroupSizeY as usize,
            compute.maxGroupSizeZ as usize,
        ]),
        Is::MaxWorkGroupSize => out.value(compute.maxTotalGroupSize as usize),
        Is::MaxWorkGroups3d => out.value([
            compute.maxGroupCountX as usize,
            compute.maxGroupCountY as usize,
            compute.maxGroupCountZ as usize,
        ]),
        Is::MaxWorkGroups => {
            let most = u64::from(compute.maxGroupCountX)
                .saturating_mul(u64::from(compute.maxGroupCountY))
                .saturating_mul(u64::from(compute.maxGroupCountZ));
            out.value(most as usize)
        }
        Is::MaxNumSubGroups => {
            let least = facts.sub_groups().iter().copied().min().unwrap_or(1);
            out.value(compute.maxTotalGroupSize / least.max(1))
        }
        Is::SubGroupSizesIntel => out.slice(facts.sub_groups()),
        Is::SubGroupIndependentForwardProgress => out.boolean(false),
        Is::MaxRegistersPerWorkGroup => Err(absent()),
        Is::MaxParameterSize => out.value(module.maxArgumentsSize as usize),
        Is::ExecutionCapabilities => out.value(ur_device_exec_capability_flags_t(
            UR_DEVICE_EXEC_CAPABILITY_FLAG_KERNEL.0
                | UR_DEVICE_EXEC_CAPABILITY_FLAG_NATIVE_KERNEL.0,
        )),
        Is::KernelLaunchCapabilities => out.value(UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE),
        Is::MaxComputeQueueIndices => out.value(this.compute_queue_count()),

        // The system interface.
        Is::CurrentClockThrottleReasons => out.value(this.system()?.throttle_reasons()?),
        Is::FanSpeed => out.value(this.system()?.fan_speed()?),
        Is::MinPowerLimit => out.value(this.system()?.power_limits()?[0]),
        Is::MaxPowerLimit => out.value(this.system()?.power_limits()?[1]),

        // Arithmetic.
        Is::Is2dBlockArrayCapabilitiesExp => {
            let each = [
                (
                    facts.blocks.load,
                    UR_EXP_DEVICE_2D_BLOCK_ARRAY_CAPABILITY_FLAG_LOAD,
                ),
                (
                    facts.blocks.store,
                    UR_EXP_DEVICE_2D_BLOCK_ARRAY_CAPABILITY_FLAG_STORE,
                ),
            ];
            let there = each.iter().filter(|(there, _)| *there);
            let bits = there.fold(0, |all, (_, flag)| all | flag.0);
            out.value(ur_exp_device_2d_block_array_capability_flags_t(bits))
        }
        Is::SingleFpConfig => out.value(fp(module.fp32flags)),
        Is::HalfFpConfig => out.value(match facts.has(ZE_DEVICE_MODULE_FLAG_FP16) {
            true => fp(module.fp16flags),
            false => ur_device_fp_capability_flags_t(0),
        }),
        Is::DoubleFpConfig => out.value(match facts.has(ZE_DEVICE_MODULE_FLAG_FP64) {
            true => fp(module.fp64flags),
            false => ur_device_fp_capability_flags_t(0),
        }),
        Is::Bfloat16ConversionsNative => out.boolean(this.platform.has_extension(BFLOAT16)),
        Is::Bfloat16 | Is::MipmapMaxAnisotropyExp => Err(absent()),
        Is::Atomic64 => out.boolean(facts.has(ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS)),
        Is::PreferredVectorWidthChar => out.value(preferred(0)?),
        Is::PreferredVectorWidthShort => out.value(preferred(1)?),
        Is::PreferredVectorWidthInt => out.value(preferred(2)?),
        Is::PreferredVectorWidthLong | Is::PreferredVectorWidthLongLong => out.value(preferred(3)?),
        Is::PreferredVectorWidthFloat => out.value(preferred(4)?),
        Is::PreferredVectorWidthDouble => out.value(preferred(5)?),
        Is::PreferredVectorWidthHalf => out.value(preferred(6)?),
        Is::NativeVectorWidthChar => out.value(native(0)?),
        Is::NativeVectorWidthShort => out.value(native(1)?),
        Is::NativeVectorWidthInt => out.value(native(2)?),
        Is::NativeVectorWidthLong | Is::NativeVectorWidthLongLong => out.value(native(3)?),
        Is::NativeVectorWidthFloat => out.value(native(4)?),
        Is::NativeVectorWidthDouble => out.value(native(5)?),
        Is::NativeVectorWidthHalf => out.value(native(6)?),

        // Memory.
        Is::GlobalMemSize => out.value(facts.memory_bytes()),
        Is::GlobalMemFree => out.value(this.free_memory()?),
        Is::MaxMemAllocSize => out.value(base.maxMemAllocSize),
        Is::MaxConstantBufferSize => out.value(image.maxImageBufferSize),
        Is::MaxConstantArgs => out.value(64u32),
        Is::GlobalMemCacheType => out.value(UR_DEVICE_MEM_CACHE_TYPE_READ_WRITE_CACHE),
        Is::GlobalMemCachelineSize => match facts.cache_line {
            0 => out.value(64u32),
            bytes => out.value(bytes as u32),
        },
        Is::GlobalMemCacheSize => out.value(
            facts
                .caches
                .first()
                .map_or(0, |cache| cache.cacheSize as u64),
        ),
        Is::MemoryClockRate => out.value(
            facts
                .memory
                .iter()
                .map(|of| of.maxClockRate)
                .max()
                .unwrap_or(0),
        ),
        Is::MemoryBusWidth => out.value(
            facts
                .memory
                .iter()
                .map(|of| of.maxBusWidth)
                .max()
                .unwrap_or(0),
        ),
        Is::MaxMemoryBandwidth => out.value(0u64),
        // The unit is a bit.
        Is::MemBaseAddrAlign => out.value(8u32),
        Is::LocalMemType => out.value(UR_DEVICE_LOCAL_MEM_TYPE_LOCAL),
        Is::LocalMemSize => out.value(u64::from(compute.maxSharedLocalMemory)),
        Is::UsmHostSupport => out.value(usm(facts.access.hostAllocCapabilities)),
        Is::UsmDeviceSupport => out.value(usm(facts.access.deviceAllocCapabilities)),
        Is::UsmSingleSharedSupport => {
            out.value(usm(facts.access.sharedSingleDeviceAllocCapabilities))
        }
        Is::UsmCrossSharedSupport => {
            out.value(usm(facts.access.sharedCrossDeviceAllocCapabilities))
        }
        Is::UsmSystemSharedSupport => out.value(usm(facts.access.sharedSystemAllocCapabilities)),
        Is::AtomicMemoryOrderCapabilities | Is::AtomicFenceOrderCapabilities => {
            out.value(ALL_ORDERS)
        }
        Is::AtomicMemoryScopeCapabilities | Is::AtomicFenceScopeCapabilities => {
            out.value(ALL_SCOPES)
        }
        Is::ErrorCorrectionSupport => out.boolean(facts.is(ZE_DEVICE_PROPERTY_FLAG_ECC)),
        Is::HostUnifiedMemory | Is::IsIntegratedGpu => {
            out.boolean(facts.is(ZE_DEVICE_PROPERTY_FLAG_INTEGRATED))
        }
        Is::VirtualMemorySupport => out.boolean(this.has_virtual_memory()?),

        // Images.
        Is::ImageSupport => out.boolean(this.has_images()),
        Is::Image2dMaxWidth | Is::Image2dMaxHeight => out.value(image.maxImageDims2D as usize),
        Is::Image3dMaxWidth | Is::Image3dMaxHeight | Is::Image3dMaxDepth => {
            out.value(image.maxImageDims3D as usize)
        }
        Is::ImageMaxBufferSize => out.value(image.maxImageBufferSize as usize),
        Is::ImageMaxArraySize => out.value(image.maxImageArraySlices as usize),
        Is::MaxReadImageArgs => out.value(image.maxReadImageArgs),
        Is::MaxWriteImageArgs => out.value(image.maxWriteImageArgs),
        Is::MaxSamplers => out.value(image.maxSamplers),

        // Bindless images, images in linear memory, and other interfaces.
        Is::BindlessImagesSupportExp
        | Is::BindlessSampledImageFetch1dUsmSupportExp
        | Is::BindlessSampledImageFetch1dSupportExp
        | Is::BindlessSampledImageFetch2dUsmSupportExp
        | Is::BindlessSampledImageFetch2dSupportExp
        | Is::BindlessSampledImageFetch3dSupportExp
        | Is::BindlessImages1dUsmSupportExp
        | Is::BindlessImages2dUsmSupportExp => out.boolean(this.bindless().is_some()),
        Is::ImageArraySupportExp => {
            out.boolean(this.bindless().is_some() && image.maxImageArraySlices > 0)
        }
        // Kernels use the levels of a mipmap as images of their own. The property of mipmaps stays false: no kernel
        // samples the whole.
        Is::MipmapLevelReferenceSupportExp => out.boolean(this.bindless().is_some()),
        Is::ImagePitchAlignExp => out.value(facts.pitch.pitchAlign as u32),
        Is::MaxImageLinearPitchExp => out.value(facts.pitch.maxSupportedPitch),
        Is::MaxImageLinearWidthExp => out.value(facts.linear.maxImageLinearWidth),
        Is::MaxImageLinearHeightExp => out.value(facts.linear.maxImageLinearHeight),
        Is::ExternalMemoryImportSupportExp => out.boolean(crate::bindless::can_import(this)),
        Is::ExternalSemaphoreImportSupportExp => out.boolean(this.external_semaphores().is_some()),

        // Queues and time.
        Is::QueueProperties | Is::QueueOnHostProperties => out.value(QUEUE_FLAGS),
        Is::ProfilingTimerResolution => {
            out.value((1_000_000_000 / base.timerResolution.max(1)) as usize)
        }

        // Supported.
        Is::PreferredInteropUserSync
        | Is::CompilerAvailable
        | Is::LinkerAvailable
        | Is::GlobalVariableSupport
        | Is::ProgramSetSpecializationConstants
        | Is::EsimdSupport
        | Is::ClockSubGroupSupportExp
        | Is::UsmP2pSupportExp
        | Is::EnqueueHostTaskSupportExp
        | Is::EnqueueNativeCommandSupportExp
        | Is::DynamicLinkSupportExp
        | Is::UseNativeAssert => out.boolean(true),
        Is::UsmHostAllocRegisterSupportExp => out.boolean(this.platform.imports.is_some()),
        Is::PrintfBufferSize => out.value(module.printfBufferSize as usize),

        // Other processes.
        Is::IpcMemorySupportExp => out.boolean(this.shares(ZE_IPC_PROPERTY_FLAG_MEMORY)),
        Is::IpcEventSupportExp => out.boolean(this.shares(ZE_IPC_PROPERTY_FLAG_EVENT_POOL)),
        Is::IpcPhysicalMemorySupportExp => out.boolean(this.physical_descriptor()?.is_some()),
        Is::MemoryExportExportableDeviceMemExp => {
            let kind = UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD;
            out.boolean(crate::bindless::exports(this, kind).is_some())
        }

        // Not supported, or not yet: the list is in docs/src/reference/level-zero.md.
        Is::BuildOnSubdevice
        | Is::AsyncBarrier
        | Is::ClockWorkGroupSupportExp
        | Is::ClockDeviceSupportExp
        | Is::CommandBufferSubgraphSupportExp => out.boolean(false),

        ur::shared_device_info!() => shared_device_info(what, out),
        ur::bindless_device_info!() => bindless_device_info(what, out),
        ur::plain_device_info!() => plain_device_info(what, out),
        ur::imageless_device_info!() => imageless_device_info(what, out),
    }
}

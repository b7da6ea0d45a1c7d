//! The properties of a device, by the driver's attributes. Those that backends answer alike are in
//! `ur::stream::device_info`.

use std::ffi::c_char;

use ur::abi::*;
use ur::hal::DeviceInfo;
use ur::object::{Error, InfoOut, Object, Result};
use ur::stream::device_info::{
    ALL_ORDERS, ALL_SCOPES, IEEE_754, ORDERS_BELOW_SEQ_CST, QUEUE_FLAGS, plain_device_info,
    shared_device_info, undivided_device_info,
};

use super::Device;
use crate::bindless::MAX_ANISOTROPY;
use crate::cu::check;
use crate::cu::sys::CUdevice_attribute as Attribute;
use crate::cu::sys::{CUdevice_attribute::*, CUuuid};

/// The engine's queue flags, and those of CUDA's default stream.
const OWN_QUEUE_FLAGS: ur_queue_flags_t = ur_queue_flags_t(
    QUEUE_FLAGS.0 | UR_QUEUE_FLAG_USE_DEFAULT_STREAM.0 | UR_QUEUE_FLAG_SYNC_WITH_DEFAULT_STREAM.0,
);

const ACCESS: u32 = UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ACCESS.0;
const ATOMIC: u32 = UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ATOMIC_ACCESS.0;
const CONCURRENT: u32 = UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_CONCURRENT_ACCESS.0
    | UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ATOMIC_CONCURRENT_ACCESS.0;

const fn absent() -> Error {
    Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION)
}

impl Device {
    fn count(&self, what: Attribute) -> Result<u32> {
        Ok(self.attribute(what)?.max(0) as u32)
    }

    fn size(&self, what: Attribute) -> Result<usize> {
        Ok(self.attribute(what)?.max(0) as usize)
    }

    fn flag(&self, what: Attribute) -> Result<bool> {
        Ok(self.attribute(what)? != 0)
    }

    /// An attribute in kilohertz, as megahertz. Newer devices do not report it.
    fn megahertz(&self, what: Attribute) -> Result<u32> {
        match self.count(what)? / 1000 {
            0 => Err(absent()),
            clock => Ok(clock),
        }
    }

    fn name(&self) -> Result<String> {
        let mut name = [0u8; 256];
        let capacity = name.len() as i32;
        // SAFETY: `name` has `capacity` bytes.
        let code = unsafe {
            (self.api.cuDeviceGetName)(name.as_mut_ptr().cast::<c_char>(), capacity, self.raw)
        };
        check(self.api, code, "cuDeviceGetName")?;
        let end = name.iter().position(|byte| *byte == 0);
        Ok(String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]).into_owned())
    }

    fn uuid(&self) -> Result<[u8; 16]> {
        let query = self.api.cuDeviceGetUuid.ok_or(absent())?;
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: `uuid` is writable.
        let code = unsafe { query(&mut uuid, self.raw) };
        check(self.api, code, "cuDeviceGetUuid")?;
        Ok(uuid.bytes.map(i8::cast_unsigned))
    }

    fn pci_address(&self) -> Result<String> {
        Ok(format!(
            "{:04x}:{:02x}:{:02x}.0",
            self.attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
            self.attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
            self.attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?
        ))
    }

    fn free_memory(&self) -> Result<usize> {
        let gpu = self.gpu()?;
        let _current = gpu.enter()?;
        let (mut free, mut all) = (0, 0);
        // SAFETY: both numbers are writable.
        let code = unsafe { (self.api.cuMemGetInfo)(&mut free, &mut all) };
        check(self.api, code, "cuMemGetInfo")?;
        Ok(free)
    }

    /// Access to managed memory. Concurrent use by host and device needs page faults of the device.
    fn shared_access(&self) -> Result<u32> {
        Ok(match self.flag(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)? {
            false => 0,
            true if self.flag(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)? => {
                ACCESS | ATOMIC | CONCURRENT
            }
            true => ACCESS,
        })
    }

    fn system_access(&self) -> Result<u32> {
        Ok(
            match self.flag(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)? {
                false => 0,
                true if self.flag(CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED)? => {
                    ACCESS | ATOMIC | CONCURRENT
                }
                true => ACCESS | UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_CONCURRENT_ACCESS.0,
            },
        )
    }

    /// Memory bandwidth in bytes per second, at double data rate.
    fn bandwidth(&self) -> Result<u64> {
        let clock = u64::from(self.count(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?);
        let bits = u64::from(self.count(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?);
        match clock {
            0 => Err(absent()),
            _ => Ok(clock * 1000 * bits / 8 * 2),
        }
    }

    fn sub_groups(&self) -> u32 {
        (self.limits.group_items / self.limits.warp) as u32
    }

    /// Whether the compute capability is this one or later. 5.3 added half precision, 8.0 bfloat16.
    fn at_least(&self, major: i32, minor: i32) -> bool {
        self.limits.capability >= (major, minor)
    }
}

/// Writes a property. `UNSUPPORTED_ENUMERATION` if the driver does not report it.
pub fn get(this: &Object<Device>, what: DeviceInfo, out: InfoOut<'_>) -> Result<()> {
    use DeviceInfo as Is;
    let count = |out: InfoOut<'_>, what| out.value(this.count(what)?);
    let size = |out: InfoOut<'_>, what| out.value(this.size(what)?);
    let limits = &this.limits;
    let usm = |out: InfoOut<'_>, bits| out.value(ur_device_usm_access_capability_flags_t(bits));
    match what {
        ur::shared_device_info!() => shared_device_info(what, out),
        ur::plain_device_info!() => plain_device_info(what, out),
        ur::undivided_device_info!() => undivided_device_info(what, out),
        // Identity.
        Is::Type => out.value(UR_DEVICE_TYPE_GPU),
        Is::VendorId => out.value(0x10deu32),
        Is::Name => out.string(&this.name()?),
        Is::Vendor => out.string("NVIDIA Corporation"),
        Is::DriverVersion => out.string(&format!("CUDA {}", this.platform.version())),
        Is::Profile => out.string("CUDA"),
        Is::Version => out.string(&format!("{}.{}", limits.capability.0, limits.capability.1)),
        Is::BackendRuntimeVersion => out.string(&this.platform.version()),
        Is::Extensions => out.string(match this.at_least(5, 3) {
            true => "cl_khr_fp64 cl_khr_subgroups cl_khr_fp16",
            false => "cl_khr_fp64 cl_khr_subgroups",
        }),
        Is::Uuid => out.value(this.uuid()?),
        Is::PciAddress => out.string(&this.pci_address()?),
        Is::Platform => out.handle(Some(&this.platform)),
        Is::ReferenceCount => out.value(this.api_refs()),
        Is::Available | Is::EndianLittle => out.boolean(true),
        Is::AddressBits => out.value(64u32),

        // Multiprocessors, work-groups and sub-groups.
        Is::MaxComputeUnits | Is::NumComputeUnits => out.value(limits.processors as u32),
        Is::MaxClockFrequency => out.value(this.megahertz(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?),
        Is::MemoryClockRate => out.value(this.megahertz(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?),
        Is::MemoryBusWidth => count(out, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
        Is::MaxMemoryBandwidth => out.value(this.bandwidth()?),
        Is::MaxWorkItemDimensions => out.value(3u32),
        Is::MaxWorkItemSizes => out.value(limits.group),
        Is::MaxWorkGroupSize => out.value(limits.group_items),
        Is::MaxWorkGroups3d => out.value(limits.grid),
        Is::MaxWorkGroups => out.value(limits.grid[0]),
        Is::MaxNumSubGroups => out.value(this.sub_groups()),
        Is::SubGroupSizesIntel => out.slice(&[limits.warp as u32]),
        Is::SubGroupIndependentForwardProgress => out.boolean(this.at_least(7, 0)),
        Is::MaxRegistersPerWorkGroup => count(out, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
        Is::MaxParameterSize => out.value(4000usize),
        Is::ExecutionCapabilities => out.value(UR_DEVICE_EXEC_CAPABILITY_FLAG_KERNEL),
        Is::KernelLaunchCapabilities => out.value(this.launch_properties()),

        // Images. As many arguments as textures of a kernel, since samplers are none of the driver's.
        Is::ImageSupport => out.boolean(this.has_images()),
        Is::MaxReadImageArgs
        | Is::MaxWriteImageArgs
        | Is::MaxReadWriteImageArgs
        | Is::MaxSamplers => out.value(128u32),
        Is::Image2dMaxWidth => out.value(this.max_extent(UR_MEM_TYPE_IMAGE2D)?[0]),
        Is::Image2dMaxHeight => out.value(this.max_extent(UR_MEM_TYPE_IMAGE2D)?[1]),
        Is::Image3dMaxWidth => out.value(this.max_extent(UR_MEM_TYPE_IMAGE3D)?[0]),
        Is::Image3dMaxHeight => out.value(this.max_extent(UR_MEM_TYPE_IMAGE3D)?[1]),
        Is::Image3dMaxDepth => out.value(this.max_extent(UR_MEM_TYPE_IMAGE3D)?[2]),
        Is::ImageMaxBufferSize => out.value(this.max_extent(UR_MEM_TYPE_IMAGE1D)?[0]),
        Is::ImageMaxArraySize => out.value(this.max_extent(UR_MEM_TYPE_IMAGE2D_ARRAY)?[2]),

        // Arithmetic.
        Is::SingleFpConfig | Is::DoubleFpConfig => out.value(IEEE_754),
        Is::HalfFpConfig => out.value(match this.at_least(5, 3) {
            true => IEEE_754,
            false => ur_device_fp_capability_flags_t(0),
        }),
        Is::PreferredVectorWidthChar | Is::NativeVectorWidthChar => out.value(4u32),
        Is::PreferredVectorWidthShort | Is::NativeVectorWidthShort => out.value(2u32),
        Is::PreferredVectorWidthHalf | Is::NativeVectorWidthHalf => {
            out.value(if this.at_least(5, 3) { 2u32 } else { 0 })
        }
        Is::PreferredVectorWidthInt
        | Is::NativeVectorWidthInt
        | Is::PreferredVectorWidthLong
        | Is::NativeVectorWidthLong
        | Is::PreferredVectorWidthLongLong
        | Is::NativeVectorWidthLongLong
        | Is::PreferredVectorWidthFloat
        | Is::NativeVectorWidthFloat
        | Is::PreferredVectorWidthDouble
        | Is::NativeVectorWidthDouble => out.value(1u32),
        Is::Bfloat16 | Is::Bfloat16ConversionsNative | Is::AsyncBarrier => {
            out.boolean(this.at_least(8, 0))
        }

        // Memory.
        Is::GlobalMemSize | Is::MaxMemAllocSize => out.value(this.total_memory()? as u64),
        Is::GlobalMemFree => out.value(this.free_memory()? as u64),
        Is::MaxConstantBufferSize => {
            out.value(this.size(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY)? as u64)
        }
        Is::GlobalMemCacheType => out.value(UR_DEVICE_MEM_CACHE_TYPE_READ_WRITE_CACHE),
        Is::GlobalMemCachelineSize => out.value(128u32),
        Is::GlobalMemCacheSize => out.value(this.size(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? as u64),
        // The unit is a bit.
        Is::MemBaseAddrAlign => out.value(this.count(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)? * 8),
        Is::MaxConstantArgs => out.value(9u32),
        Is::LocalMemType => out.value(UR_DEVICE_LOCAL_MEM_TYPE_LOCAL),
        Is::LocalMemSize => out.value(limits.max_local_bytes as u64),
        Is::UsmHostSupport | Is::UsmDeviceSupport => usm(out, ACCESS | ATOMIC | CONCURRENT),
        Is::UsmSingleSharedSupport | Is::UsmCrossSharedSupport => usm(out, this.shared_access()?),
        Is::UsmSystemSharedSupport => usm(out, this.system_access()?),
        Is::AtomicMemoryOrderCapabilities | Is::AtomicFenceOrderCapabilities => {
            out.value(match this.at_least(7, 0) {
                true => ALL_ORDERS,
                false => ORDERS_BELOW_SEQ_CST,
            })
        }
        Is::AtomicMemoryScopeCapabilities | Is::AtomicFenceScopeCapabilities => {
            out.value(ALL_SCOPES)
        }
        Is::ErrorCorrectionSupport => out.boolean(this.flag(CU_DEVICE_ATTRIBUTE_ECC_ENABLED)?),
        Is::HostUnifiedMemory | Is::IsIntegratedGpu => {
            out.boolean(this.flag(CU_DEVICE_ATTRIBUTE_INTEGRATED)?)
        }

        // Queues and time.
        Is::QueueProperties | Is::QueueOnHostProperties => out.value(OWN_QUEUE_FLAGS),
        // The unit of the timestamps. The driver promises half a microsecond.
        Is::ProfilingTimerResolution => out.value(1usize),

        // Supported.
        Is::Atomic64
        | Is::BuildOnSubdevice
        | Is::PreferredInteropUserSync
        | Is::CompilerAvailable
        | Is::LinkerAvailable
        | Is::GlobalVariableSupport
        | Is::ClockSubGroupSupportExp
        | Is::ClockWorkGroupSupportExp
        | Is::ClockDeviceSupportExp
        | Is::EnqueueNativeCommandSupportExp => out.boolean(true),
        Is::IpcMemorySupportExp
        | Is::IpcPhysicalMemorySupportExp
        | Is::MemoryExportExportableDeviceMemExp => out.boolean(this.gpu()?.shares_memory()),
        Is::IpcEventSupportExp => out.boolean(this.shares_events()),
        Is::UsmHostAllocRegisterSupportExp => {
            out.boolean(this.flag(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)?)
        }
        Is::VirtualMemorySupport => out.boolean(this.gpu()?.pages.is_some()),
        Is::CommandBufferSubgraphSupportExp => out.boolean(this.api.graphing().is_some()),
        Is::EnqueueHostTaskSupportExp => out.boolean(this.waits_for_host()),
        Is::UseNativeAssert => out.boolean(true),

        Is::PrintfBufferSize => out.value(1usize << 20),

        Is::UsmP2pSupportExp => out.boolean(true),

        // Bindless images. The driver fetches no pixels of a 1D texture over an array, and filters none over linear
        // memory.
        Is::BindlessImagesSupportExp
        | Is::BindlessImages1dUsmSupportExp
        | Is::BindlessImages2dUsmSupportExp
        | Is::BindlessSampledImageFetch1dUsmSupportExp
        | Is::BindlessSampledImageFetch2dUsmSupportExp
        | Is::BindlessSampledImageFetch2dSupportExp
        | Is::BindlessSampledImageFetch3dSupportExp
        | Is::BindlessSample2dUsmSupportExp
        | Is::BindlessUniqueAddressingPerDimSupportExp
        | Is::ImageArraySupportExp
        | Is::MipmapSupportExp
        | Is::MipmapAnisotropySupportExp
        | Is::MipmapLevelReferenceSupportExp
        | Is::CubemapSupportExp
        | Is::CubemapSeamlessFilteringSupportExp => out.boolean(this.api.imaging().is_some()),
        Is::BindlessImagesSharedUsmSupportExp => out.boolean(
            this.api.imaging().is_some() && this.flag(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)?,
        ),
        Is::BindlessSampledImageFetch1dSupportExp | Is::BindlessSample1dUsmSupportExp => {
            out.boolean(false)
        }
        // The interface has no way to make an image for it.
        Is::BindlessImagesGatherSupportExp => out.boolean(false),
        Is::ExternalMemoryImportSupportExp => out.boolean(this.api.external_memories().is_some()),
        Is::ExternalSemaphoreImportSupportExp => {
            out.boolean(this.api.external_semaphores().is_some())
        }
        // A float, as libsycl reads it: docs/src/reference/differences.md.
        Is::MipmapMaxAnisotropyExp => out.value(MAX_ANISOTROPY.to_bits()),
        Is::ImagePitchAlignExp => count(out, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT),
        Is::MaxImageLinearWidthExp => size(out, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH),
        Is::MaxImageLinearHeightExp => {
            size(out, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT)
        }
        Is::MaxImageLinearPitchExp => size(out, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH),

        // Not supported.
        Is::DynamicLinkSupportExp => out.boolean(false),
    }
}

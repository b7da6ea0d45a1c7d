//! Features that no backend has, in one list. Removing one here makes the compiler require an
//! answer from every adapter.

/// A pattern of the device queries about features that no adapter has. Each adapter answers
/// `false`.
#[macro_export]
macro_rules! lacking_features {
    () => {
        $crate::hal::DeviceInfo::KernelSetSpecializationConstants
            | $crate::hal::DeviceInfo::BindlessImagesSupportExp
            | $crate::hal::DeviceInfo::BindlessImagesSharedUsmSupportExp
            | $crate::hal::DeviceInfo::BindlessImages1dUsmSupportExp
            | $crate::hal::DeviceInfo::BindlessImages2dUsmSupportExp
            | $crate::hal::DeviceInfo::MipmapSupportExp
            | $crate::hal::DeviceInfo::MipmapAnisotropySupportExp
            | $crate::hal::DeviceInfo::MipmapLevelReferenceSupportExp
            | $crate::hal::DeviceInfo::ExternalMemoryImportSupportExp
            | $crate::hal::DeviceInfo::ExternalSemaphoreImportSupportExp
            | $crate::hal::DeviceInfo::CubemapSupportExp
            | $crate::hal::DeviceInfo::CubemapSeamlessFilteringSupportExp
            | $crate::hal::DeviceInfo::BindlessSampledImageFetch1dUsmSupportExp
            | $crate::hal::DeviceInfo::BindlessSampledImageFetch1dSupportExp
            | $crate::hal::DeviceInfo::BindlessSampledImageFetch2dUsmSupportExp
            | $crate::hal::DeviceInfo::BindlessSampledImageFetch2dSupportExp
            | $crate::hal::DeviceInfo::BindlessSampledImageFetch3dSupportExp
            | $crate::hal::DeviceInfo::ImageArraySupportExp
            | $crate::hal::DeviceInfo::BindlessUniqueAddressingPerDimSupportExp
            | $crate::hal::DeviceInfo::BindlessSample1dUsmSupportExp
            | $crate::hal::DeviceInfo::BindlessSample2dUsmSupportExp
            | $crate::hal::DeviceInfo::BindlessImagesGatherSupportExp
            | $crate::hal::DeviceInfo::LowPowerEventsSupportExp
            | $crate::hal::DeviceInfo::IpcMemorySupportExp
            | $crate::hal::DeviceInfo::IpcPhysicalMemorySupportExp
            | $crate::hal::DeviceInfo::ReusableEventsSupportExp
            | $crate::hal::DeviceInfo::IpcEventSupportExp
            | $crate::hal::DeviceInfo::PerEventProfilingSupportExp
            | $crate::hal::DeviceInfo::UsmHostAllocRegisterSupportExp
            | $crate::hal::DeviceInfo::MemoryExportExportableDeviceMemExp
    };
}

//! The properties of the device. Lists in `ur::stream::device_info` answer most of them.
//!
//! The copy drops the list of what it has (`host_device_info!` first: its device is not the host), and answers
//! the list's properties in arms of its own. The match has no wildcard, so that the compiler names those left out.

use ur::abi::*;
use ur::hal::DeviceInfo;
use ur::object::{InfoOut, Object, Result};
use ur::stream::device_info::{
    bindless_device_info, host_device_info, imageless_device_info, kernelless_device_info,
    plain_device_info, portable_device_info, shared_device_info, undivided_device_info,
};

use super::{Device, MEMORY_BYTES};
use crate::adapter::roots;

/// Writes a property. `UNSUPPORTED_ENUMERATION` if the device has no such property.
pub fn get(this: &Object<Device>, what: DeviceInfo, out: InfoOut<'_>) -> Result<()> {
    use DeviceInfo as Is;
    match what {
        ur::shared_device_info!() => shared_device_info(what, out),
        ur::host_device_info!() => host_device_info(what, out),
        ur::kernelless_device_info!() => kernelless_device_info(what, out),
        ur::undivided_device_info!() => undivided_device_info(what, out),
        ur::portable_device_info!() => portable_device_info(what, out),
        ur::plain_device_info!() => plain_device_info(what, out),
        ur::imageless_device_info!() => imageless_device_info(what, out),
        ur::bindless_device_info!() => bindless_device_info(what, out),
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
        Is::ReferenceCount => out.value(this.api_refs()),
        Is::GlobalMemSize | Is::GlobalMemFree | Is::MaxMemAllocSize => {
            out.value(MEMORY_BYTES as u64)
        }
        // Interfaces of `hal::Device` and hooks that the skeleton does not fill in.
        Is::VirtualMemorySupport | Is::UsmHostAllocRegisterSupportExp | Is::UsmP2pSupportExp => {
            out.boolean(false)
        }
    }
}

//! The one device. The copy keeps the driver's handle in `Device`, and creates the driver's own context in
//! `context_create` if there is one: it becomes `Driver::ContextData`.
//!
//! Lists of `ur::stream::device_info` answer most properties. The copy drops the lists that do not hold for its device,
//! first `host_device_info!`, and writes arms instead. The match has no wildcard, so that a property left out
//! is a compile error.

use std::sync::Arc;

use ur::abi::*;
use ur::hal::{self, DeviceInfo};
use ur::object::{Body, Handles, InfoOut, Kind, Object, Out, Result, host_time};
use ur::stream::Context;
use ur::stream::device_info::*;

use crate::Skeleton;
use crate::adapter::adapter;

pub struct Device;

/// Reported memory of the device, and its largest allocation, in bytes.
pub const MEMORY_BYTES: u64 = 1 << 30;

impl Body for Device {
    const KIND: Kind = Kind::Device;
}

impl hal::Device<Skeleton> for Device {
    /// Writes a property. `UNSUPPORTED_ENUMERATION` if the device has no such property.
    fn get_info(this: &Object<Self>, what: DeviceInfo, out: InfoOut<'_>) -> Result<()> {
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
            ur::basic_memory_device_info!() => basic_memory_device_info(what, out),
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
            Is::Platform => out.handle(Some(&adapter().platform)),
            Is::ReferenceCount => out.value(this.api_refs()),
            Is::GlobalMemSize | Is::GlobalMemFree | Is::MaxMemAllocSize => out.value(MEMORY_BYTES),
        }
    }

    fn get_global_timestamps(
        _: &Object<Self>,
        device: Out<'_, u64>,
        host: Out<'_, u64>,
    ) -> Result<()> {
        hal::answers::global_timestamps(device, host, || Ok(host_time()))
    }

    fn context_create(
        devices: Handles<'_, Device>,
        _: Option<&ur_context_properties_t>,
    ) -> Result<Arc<Object<Context<Skeleton>>>> {
        Ok(Context::new(&adapter().engine.get(), devices, ()))
    }

    fn wait_exp(this: &Object<Self>) -> Result<()> {
        adapter().engine.get().wait_device(this)
    }
}

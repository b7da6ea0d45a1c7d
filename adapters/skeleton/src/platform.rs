//! The one platform. The copy returns its driver's name, version and devices here.

use ur::abi::*;
use ur::hal::answers::{list_devices, plain_platform_info};
use ur::hal::{self, PlatformInfo};
use ur::object::{Body, InfoOut, Kind, ListOut, Object, Result};

use crate::Skeleton;
use crate::adapter::adapter;
use crate::device::Device;

pub struct Platform;

impl Body for Platform {
    const KIND: Kind = Kind::Platform;
}

impl hal::Platform<Skeleton> for Platform {
    fn get_info(_: &Object<Self>, what: PlatformInfo, out: InfoOut<'_>) -> Result<()> {
        match what {
            PlatformInfo::Name => out.string("Skeleton"),
            PlatformInfo::VendorName => out.string("Unified Runtime"),
            PlatformInfo::Version => out.string(env!("CARGO_PKG_VERSION")),
            ur::plain_platform_info!() => plain_platform_info::<Skeleton>(what, out),
        }
    }

    fn device_get(
        _: &Object<Self>,
        kind: ur_device_type_t,
        devices: ListOut<'_, Device>,
    ) -> Result<()> {
        let all = std::slice::from_ref(&adapter().device);
        list_devices(all, UR_DEVICE_TYPE_CPU, kind, devices)
    }
}

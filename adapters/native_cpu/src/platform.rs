//! The one platform: this machine's processors.

use std::ffi::{CStr, c_char};

use ur::abi::*;
use ur::hal::answers::list_devices;
use ur::hal::{self, PlatformInfo};
use ur::object::{Body, Error, InfoOut, Kind, ListOut, Object, Result};

use crate::Cpu;
use crate::adapter::roots;
use crate::device::Device;

pub struct Platform;

impl Body for Platform {
    const KIND: Kind = Kind::Platform;
}

impl hal::Platform<Cpu> for Platform {
    fn get_info(_: &Object<Self>, what: PlatformInfo, out: InfoOut<'_>) -> Result<()> {
        match what {
            PlatformInfo::Name => out.string("SYCL_NATIVE_CPU"),
            PlatformInfo::VendorName => out.string("Unified Runtime"),
            PlatformInfo::Version => out.string(env!("CARGO_PKG_VERSION")),
            PlatformInfo::Extensions => out.string(""),
            PlatformInfo::Profile => out.string("FULL_PROFILE"),
            PlatformInfo::Backend => out.value(UR_BACKEND_NATIVE_CPU),
            PlatformInfo::Adapter => out.handle(Some(&roots().adapter)),
        }
    }

    /// The backend has no compiler, so that optimisation levels translate to nothing.
    fn get_backend_option(_: &Object<Self>, option: &CStr) -> Result<*const c_char> {
        match option.to_bytes() {
            b"" | b"-O0" | b"-O1" | b"-O2" | b"-O3" => Ok(c"".as_ptr()),
            _ => Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE)),
        }
    }

    fn device_get(
        _: &Object<Self>,
        kind: ur_device_type_t,
        devices: ListOut<'_, Device>,
    ) -> Result<()> {
        let root = std::slice::from_ref(&roots().device);
        list_devices(root, UR_DEVICE_TYPE_CPU, kind, devices)
    }
}

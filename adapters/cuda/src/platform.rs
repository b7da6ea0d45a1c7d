//! The one platform: all of the driver's devices.

use std::ffi::{CStr, c_char};
use std::sync::{Arc, OnceLock};

use ur::abi::*;
use ur::hal::answers::{list_devices, no_compiler_option, plain_platform_info};
use ur::hal::{self, Exported, PlatformInfo};
use ur::object::{Body, InfoOut, Kind, ListOut, Object, Result};

use crate::Cuda;
use crate::cu::Api;
use crate::device::Device;
use crate::exec::Pages;

pub struct Platform {
    /// The driver's version, as `major * 1000 + minor * 10`.
    version: i32,
    devices: OnceLock<Vec<Arc<Object<Device>>>>,
    /// Bytes of a page of host memory.
    host_page: OnceLock<Option<usize>>,
}

impl Platform {
    /// None if the driver has no device.
    pub fn open(api: &'static Api) -> Option<Arc<Object<Self>>> {
        let (mut count, mut version) = (0, 0);
        // SAFETY: both numbers are writable.
        let codes = unsafe {
            [
                (api.cuDeviceGetCount)(&mut count),
                (api.cuDriverGetVersion)(&mut version),
            ]
        };
        if codes.iter().any(|code| !code.is_success()) || count == 0 {
            log::info!("CUDA has no device ({codes:?})");
            return None;
        }
        let platform = Self {
            version,
            devices: OnceLock::new(),
            host_page: OnceLock::new(),
        };
        let platform = Object::immortal(Cuda::table(), platform);
        let open = |number| Device::open(api, &platform, number);
        let devices: Vec<_> = (0..count).filter_map(open).collect();
        platform.devices.get_or_init(|| devices);
        (!platform.devices().is_empty()).then_some(platform)
    }

    pub fn devices(&self) -> &[Arc<Object<Device>>] {
        self.devices.get().map_or(&[], Vec::as_slice)
    }

    /// Bytes of a page of host memory, if every device can map such pages: a context may have any of them.
    pub fn host_page(&self) -> Option<usize> {
        let page = |device: &Arc<Object<Device>>| {
            let like = Pages::of_device(device.api(), device.raw())?;
            let pages = Pages::of_host(device.api(), device.raw(), &like)?;
            Some(pages.bytes)
        };
        *self.host_page.get_or_init(|| {
            let pages: Option<Vec<usize>> = self.devices().iter().map(page).collect();
            let pages = pages?;
            let first = *pages.first()?;
            pages.iter().all(|page| *page == first).then_some(first)
        })
    }

    /// The driver's version, as `major.minor`.
    pub fn version(&self) -> String {
        format!("{}.{}", self.version / 1000, self.version % 1000 / 10)
    }

    /// Takes back access that the adapter gave them, and releases the devices' primary contexts.
    pub fn let_go(&self) {
        let retained = self.devices().iter().map(|device| device.retained_gpu());
        let gpus: Vec<_> = retained.flatten().collect();
        gpus.iter().for_each(|gpu| gpu.close_to(&gpus));
        drop(gpus);
        self.devices().iter().for_each(|device| device.let_go());
    }
}

impl Body for Platform {
    const KIND: Kind = Kind::Platform;
}

impl hal::Platform<Cuda> for Platform {
    fn get_info(this: &Object<Self>, what: PlatformInfo, out: InfoOut<'_>) -> Result<()> {
        match what {
            PlatformInfo::Name => out.string("NVIDIA CUDA BACKEND"),
            PlatformInfo::VendorName => out.string("NVIDIA Corporation"),
            PlatformInfo::Version => out.string(&format!("CUDA {}", this.version())),
            ur::plain_platform_info!() => plain_platform_info::<Cuda>(what, out),
        }
    }

    fn get_backend_option(_: &Object<Self>, option: &CStr) -> Result<*const c_char> {
        match option.to_bytes() {
            // The precision was chosen when the code was compiled to PTX.
            b"-foffload-fp32-prec-div" | b"-foffload-fp32-prec-sqrt" => Ok(c"".as_ptr()),
            _ => no_compiler_option(option),
        }
    }

    fn device_get(
        this: &Object<Self>,
        kind: ur_device_type_t,
        devices: ListOut<'_, Device>,
    ) -> Result<()> {
        list_devices(this.devices(), UR_DEVICE_TYPE_GPU, kind, devices)
    }
}

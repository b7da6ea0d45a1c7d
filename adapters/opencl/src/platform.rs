//! Platforms: OpenCL's platforms that have a device for this adapter.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

use opencl_sys::*;
use ur::abi::*;
use ur::hal::{self, Exported, PlatformInfo};
use ur::object::{Body, Error, InfoOut, Kind, ListOut, Object, Result};

use crate::OpenCl;
use crate::adapter::roots;
use crate::cl::{self, Api, Core, Version};
use crate::device::Device;

pub struct Platform {
    api: &'static Api,
    raw: usize,
    version: OnceLock<Version>,
    devices: OnceLock<Vec<Arc<Object<Device>>>>,
}

/// Names of platforms whose devices have adapters of their own.
const HIDDEN: [&str; 2] = ["NVIDIA CUDA", "AMD Accelerated Parallel Processing"];

impl Platform {
    /// All platforms that have a device, in OpenCL's order.
    pub fn all(core: &'static Core) -> Vec<Arc<Object<Self>>> {
        let mut count = 0;
        // SAFETY: the call writes only the number of platforms.
        let code = unsafe { (core.clGetPlatformIDs)(0, null_mut(), &mut count) };
        if code != CL_SUCCESS || count == 0 {
            log::info!("OpenCL has no platform ({code})");
            return Vec::new();
        }
        let mut ids = vec![null_mut(); count as usize];
        // SAFETY: `ids` has room for `count` platforms.
        let code = unsafe { (core.clGetPlatformIDs)(count, ids.as_mut_ptr(), null_mut()) };
        if code != CL_SUCCESS {
            return Vec::new();
        }
        ids.into_iter()
            .filter_map(|id| Self::open(core, id))
            .collect()
    }

    fn open(core: &'static Core, id: cl_platform_id) -> Option<Arc<Object<Self>>> {
        let api: &'static Api = Box::leak(Box::new(Api::of(core, id)));
        let text = |what| text(api, id, what).unwrap_or_default();
        if HIDDEN.contains(&text(CL_PLATFORM_NAME).as_str()) {
            return None;
        }
        let platform = Self {
            api,
            raw: id.expose_provenance(),
            version: OnceLock::new(),
            devices: OnceLock::new(),
        };
        let platform = Object::immortal(OpenCl::table(), platform);
        let devices = Device::roots(&platform);
        if devices.is_empty() {
            return None;
        }
        platform.devices.get_or_init(|| devices);
        Some(platform)
    }

    pub fn api(&self) -> &'static Api {
        self.api
    }

    /// The platform's version, queried at the first use.
    pub fn version(&self) -> Version {
        let query = || text(self.api, self.raw(), CL_PLATFORM_VERSION).unwrap_or_default();
        *self.version.get_or_init(|| Version::parse(&query()))
    }

    pub fn raw(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.raw)
    }

    pub fn devices(&self) -> &[Arc<Object<Device>>] {
        self.devices.get().map_or(&[], Vec::as_slice)
    }
}

fn text(api: &Api, id: cl_platform_id, what: cl_platform_info) -> Result<String> {
    // SAFETY: the library listed the platform, and `cl` passes a buffer of that size.
    let query =
        |size, value, ret| unsafe { (api.core.clGetPlatformInfo)(id, what, size, value, ret) };
    cl::text(query, "clGetPlatformInfo")
}

impl Body for Platform {
    const KIND: Kind = Kind::Platform;
}

impl hal::Platform<OpenCl> for Platform {
    fn get_info(this: &Object<Self>, what: PlatformInfo, out: InfoOut<'_>) -> Result<()> {
        let native = |out: InfoOut<'_>, what| out.string(&text(this.api, this.raw(), what)?);
        match what {
            PlatformInfo::Name => native(out, CL_PLATFORM_NAME),
            PlatformInfo::VendorName => native(out, CL_PLATFORM_VENDOR),
            PlatformInfo::Version => native(out, CL_PLATFORM_VERSION),
            PlatformInfo::Extensions => native(out, CL_PLATFORM_EXTENSIONS),
            PlatformInfo::Profile => native(out, CL_PLATFORM_PROFILE),
            PlatformInfo::Backend => out.value(UR_BACKEND_OPENCL),
            PlatformInfo::Adapter => out.handle(roots().map(|roots| &*roots.adapter)),
        }
    }

    fn get_native_handle(this: &Object<Self>) -> Result<ur_native_handle_t> {
        Ok(this.raw)
    }

    fn get_backend_option(_: &Object<Self>, option: &CStr) -> Result<*const c_char> {
        let own = match option.to_bytes() {
            b"" | b"-O1" | b"-O2" | b"-O3" => c"",
            b"-O0" => c"-cl-opt-disable",
            b"-ftarget-compile-fast" => c"-igc_opts 'PartitionUnit=1,SubroutineThreshold=50000'",
            b"-foffload-fp32-prec-div" | b"-foffload-fp32-prec-sqrt" => {
                c"-cl-fp32-correctly-rounded-divide-sqrt"
            }
            _ => return Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE)),
        };
        Ok(own.as_ptr())
    }

    fn device_get(
        this: &Object<Self>,
        kind: ur_device_type_t,
        devices: ListOut<'_, Device>,
    ) -> Result<()> {
        let all = this.devices();
        let of = |bit: cl_device_type| -> Vec<_> {
            all.iter()
                .filter(|device| device.kind & bit != 0)
                .cloned()
                .collect()
        };
        match kind {
            UR_DEVICE_TYPE_ALL => devices.write(all),
            UR_DEVICE_TYPE_DEFAULT => {
                let marked = of(CL_DEVICE_TYPE_DEFAULT);
                devices.write(if marked.is_empty() {
                    &all[..all.len().min(1)]
                } else {
                    &marked
                });
            }
            UR_DEVICE_TYPE_CPU => devices.write(&of(CL_DEVICE_TYPE_CPU)),
            UR_DEVICE_TYPE_GPU => devices.write(&of(CL_DEVICE_TYPE_GPU)),
            UR_DEVICE_TYPE_CUSTOM => devices.write(&of(CL_DEVICE_TYPE_CUSTOM)),
            _ => devices.write(&[]),
        }
        Ok(())
    }
}

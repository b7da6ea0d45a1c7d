//! The device under test: an open, initialised loader with one adapter, platform and device of it.
//!
//! A test makes all other objects itself, through `objects`.

use crate::api::Api;
use crate::leak::leak;
use crate::objects::{info, released};
use crate::outcome::{Done, Stop};
use crate::scripted;
use crate::status::Status;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use ur::abi::*;
use ur::dl::{Binding, Library};

/// The loader, and the index of the device to test.
#[derive(Clone, Debug)]
pub struct Target {
    pub loader: PathBuf,
    pub device: usize,
}

/// The names of the device under test, for expectations and reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Identity {
    pub adapter: String,
    pub device: String,
    /// Whether commands have effects. A mock says that they have none.
    pub executes: bool,
}

pub struct Fixture {
    pub ur: &'static Api,
    pub adapter: ur_adapter_handle_t,
    pub platform: ur_platform_handle_t,
    pub device: ur_device_handle_t,
    pub backend: ur_backend_t,
    /// Where this is, for a second process.
    pub target: Target,
    adapters: Vec<ur_adapter_handle_t>,
    devices: Vec<Devices>,
}

// SAFETY: the interface lets any thread use its objects; the handles live as long as the process.
unsafe impl Sync for Fixture {}

impl Fixture {
    /// Opens and initialises the loader and finds the device.
    pub fn open(target: &Target) -> Result<Self, String> {
        let ur = load(&target.loader)?;
        let init = ur.urLoaderInit(ur_device_init_flags_t(0), null_mut());
        if !init.is_ok() {
            return Err(init.to_string());
        }
        Self::find(ur, target).map_err(Stop::into_reason)
    }

    fn find(ur: &'static Api, target: &Target) -> Result<Self, Stop> {
        let adapters = adapters(ur)?;
        let mut seen = Vec::new();
        for &adapter in &adapters {
            let query = |size, value, ret| {
                ur.urAdapterGetInfo(adapter, UR_ADAPTER_INFO_BACKEND, size, value, ret)
            };
            let backend = info::value::<ur_backend_t>(query)?;
            for platform in platforms(ur, adapter)? {
                let before: usize = seen.iter().map(|devices: &Devices| devices.len()).sum();
                let devices = devices(ur, platform, UR_DEVICE_TYPE_ALL)?;
                let found = devices.get(target.device - before).copied();
                seen.push(devices);
                if let Some(device) = found {
                    return Ok(Self {
                        ur,
                        adapter,
                        platform,
                        device,
                        backend,
                        target: target.clone(),
                        devices: seen,
                        adapters,
                    });
                }
            }
        }
        let count: usize = seen.iter().map(|devices| devices.len()).sum();
        let offered = match count {
            0 => "no device".to_owned(),
            1 => "device 0 alone".to_owned(),
            count => format!("devices 0 to {}", count - 1),
        };
        Err(Stop::failed(format!(
            "there is no device {}: the loader offers {offered}",
            target.device,
        )))
    }

    /// Releases everything and tears the loader down, so that leak checkers find nothing.
    pub fn close(self) -> Done {
        drop(self.devices);
        for adapter in self.adapters {
            self.ur.urAdapterRelease(adapter).ok()?;
        }
        self.ur.urLoaderTearDown().ok()
    }

    /// The names of adapter and device.
    pub fn identity(&self) -> Identity {
        let query = |size, value, ret| {
            self.ur
                .urDeviceGetInfo(self.device, UR_DEVICE_INFO_NAME, size, value, ret)
        };
        let device = info::text(query).unwrap_or_default();
        let executes = !scripted::is_mock(self);
        Identity {
            adapter: match executes {
                true => adapter_name(self.backend),
                // The backend of a mock is the one that it imitates.
                false => "mock".to_owned(),
            },
            device,
            executes,
        }
    }

    /// Whether the device has a boolean property and it is true.
    pub fn supports(&self, property: ur_device_info_t) -> Result<bool, Stop> {
        match self.device_info::<ur_bool_t>(property) {
            Ok(answer) => Ok(answer != 0),
            Err(Stop::Unsupported { .. }) => Ok(false),
            Err(stop) => Err(stop),
        }
    }

    /// Returns if the device has a feature.
    ///
    /// Otherwise `refusal` must be refused as unsupported, and the test ends as unsupported.
    pub fn require(&self, property: ur_device_info_t, refusal: impl FnOnce() -> Status) -> Done {
        if self.supports(property)? {
            return Ok(());
        }
        let status = refusal();
        if !status.is_unsupported() {
            return Err(Stop::failed(format!("{property:?} is false, but {status}")));
        }
        let what = format!("{property:?} is false, and {status}");
        Err(Stop::Unsupported {
            what,
            documented: true,
        })
    }

    /// A property of the device.
    #[track_caller]
    pub fn device_info<T: Copy>(&self, property: ur_device_info_t) -> Result<T, Stop> {
        info::value(|size, value, ret| {
            self.ur
                .urDeviceGetInfo(self.device, property, size, value, ret)
        })
    }
}

/// Opens a loader library, which stays open for the life of the process.
pub fn load(path: &Path) -> Result<&'static Api, String> {
    let library = Library::open(path, Binding::Usual).map_err(|error| error.to_string())?;
    Ok(leak(Api::new(library)))
}

/// All adapters, each with a reference that the process keeps.
pub fn adapters(ur: &Api) -> Result<Vec<ur_adapter_handle_t>, Stop> {
    let mut count = 0;
    ur.urAdapterGet(0, null_mut(), &mut count).ok()?;
    let mut list = vec![null_mut(); count as usize];
    if count > 0 {
        ur.urAdapterGet(count, list.as_mut_ptr(), &mut count).ok()?;
    }
    list.truncate(count as usize);
    Ok(list)
}

pub fn platforms(
    ur: &Api,
    adapter: ur_adapter_handle_t,
) -> Result<Vec<ur_platform_handle_t>, Stop> {
    let mut count = 0;
    ur.urPlatformGet(adapter, 0, null_mut(), &mut count).ok()?;
    let mut list = vec![null_mut(); count as usize];
    if count > 0 {
        ur.urPlatformGet(adapter, count, list.as_mut_ptr(), null_mut())
            .ok()?;
    }
    Ok(list)
}

/// Devices with a reference to each, released on drop.
pub struct Devices {
    ur: &'static Api,
    list: Vec<ur_device_handle_t>,
}

impl std::ops::Deref for Devices {
    type Target = [ur_device_handle_t];

    fn deref(&self) -> &Self::Target {
        &self.list
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        for device in &self.list {
            released(self.ur.urDeviceRelease(*device));
        }
    }
}

/// The devices of a platform with one type. The list may be empty.
pub fn devices(
    ur: &'static Api,
    platform: ur_platform_handle_t,
    ty: ur_device_type_t,
) -> Result<Devices, Stop> {
    let mut devices = Devices {
        ur,
        list: Vec::new(),
    };
    let mut count = 0;
    let status = ur.urDeviceGet(platform, ty, 0, null_mut(), &mut count);
    if status.code == UR_RESULT_ERROR_DEVICE_NOT_FOUND {
        return Ok(devices);
    }
    status.ok()?;
    let mut list = vec![null_mut(); count as usize];
    if count > 0 {
        ur.urDeviceGet(platform, ty, count, list.as_mut_ptr(), null_mut())
            .ok()?;
    }
    devices.list = list;
    Ok(devices)
}

/// `native_cpu` of `UR_BACKEND_NATIVE_CPU`: the name in expectation files and libraries.
pub fn adapter_name(backend: ur_backend_t) -> String {
    let name = backend.name().unwrap_or("UR_BACKEND_UNKNOWN");
    name.trim_start_matches("UR_BACKEND_").to_lowercase()
}

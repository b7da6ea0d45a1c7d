//! A platform: one driver, and its devices.

use std::ffi::{CStr, c_char};
use std::sync::{Arc, OnceLock, Weak};

use ur::abi::*;
use ur::hal::answers::list_devices;
use ur::hal::{self, Exported, PlatformInfo};
use ur::object::{Body, Error, InfoOut, Kind, ListOut, Object, Result};
use ur::sync::{Mutex, rank};

use crate::LevelZero;
use crate::adapter::roots;
use crate::context::NativeContext;
use crate::device::Device;
use crate::lz::{self, *};
use crate::settings::Settings;

pub struct Platform {
    api: &'static Api,
    raw: ze_driver_handle_t,
    version: Version,
    /// The version as the driver writes it.
    version_text: String,
    /// The extensions that the driver names.
    extensions: Vec<String>,
    devices: OnceLock<Vec<Arc<Object<Device>>>>,
    /// What other processes can open.
    pub ipc: ze_ipc_property_flags_t,
    /// The cards of devices that are tiles.
    composites: OnceLock<Vec<Arc<Object<Device>>>>,
    /// The contexts of its devices.
    contexts: Mutex<Vec<Weak<NativeContext>>, { rank::LEAF }>,
    /// The functions that make host memory known; none where the driver has none.
    pub imports: Option<&'static Imports>,
}

/// A driver's version: the interface's, and a number that rises with each build of the driver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub build: u32,
}

impl Version {
    pub const fn new(major: u32, minor: u32, build: u32) -> Self {
        Self {
            major,
            minor,
            build,
        }
    }

    fn text(self) -> String {
        let Self {
            major,
            minor,
            build,
        } = self;
        format!("{major}.{minor}.{build}")
    }
}

/// The driver's extension for its version as text.
const VERSION_TEXT: &str = "ZE_intel_get_driver_version_string";

/// Text in an array that a driver filled.
pub fn text(of: &[c_char]) -> String {
    let bytes: Vec<u8> = of.iter().map(|letter| letter.cast_unsigned()).collect();
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

impl Platform {
    /// None if the driver has no GPU.
    pub fn open(api: &'static Api, raw: ze_driver_handle_t) -> Option<Arc<Object<Self>>> {
        let read = Self::read(api, raw);
        let tell = |error: &Error| log::warn!("a driver is left out: {:?}", error.code());
        let platform = read.inspect_err(tell).ok()?;
        if platform.is_skipped() {
            return None;
        }
        let platform = Object::immortal(LevelZero::table(), platform);
        let natives = lz::list(ze_device_handle_t::NULL, |count, all| {
            // SAFETY: `all` is null or has room for `count` handles.
            unsafe { call!(api, zeDeviceGet(raw, count, all)) }
        });
        let natives = natives.inspect_err(tell).unwrap_or_default();
        let open = |native: &ze_device_handle_t| Device::open(api, &platform, *native).ok();
        let devices: Vec<_> = natives.iter().filter_map(open).collect();
        devices.iter().for_each(Device::find_parts);
        platform
            .composites
            .get_or_init(|| Device::find_composites(&devices));
        platform.devices.get_or_init(|| devices);
        (!platform.devices().is_empty()).then_some(platform)
    }

    fn read(api: &'static Api, raw: ze_driver_handle_t) -> Result<Self> {
        let mut properties = ze_driver_properties_t::default();
        let mut interface = ze_api_version_t::default();
        let extensions = lz::list(ze_driver_extension_properties_t::default(), |count, all| {
            // SAFETY: `all` is null or has room for `count` descriptions.
            unsafe { call!(api, zeDriverGetExtensionProperties(raw, count, all)) }
        })?;
        // SAFETY: both are writable.
        unsafe {
            call!(api, zeDriverGetProperties(raw, &mut properties))?;
            call!(api, zeDriverGetApiVersion(raw, &mut interface))?;
        }
        let mut ipc = ze_driver_ipc_properties_t::default();
        // SAFETY: the answer has its tag and is writable.
        let shares = unsafe { call!(api, zeDriverGetIpcProperties(raw, &mut ipc)) };
        let version = properties.driverVersion;
        let version = Version::new(interface.0 >> 16, interface.0 & 0xffff, version & 0xffff);
        let extensions: Vec<_> = extensions.iter().map(|one| text(&one.name)).collect();
        let has_text = extensions.iter().any(|own| own == VERSION_TEXT);
        let version_text = has_text.then(|| by_address::version_text(api, raw));
        Ok(Self {
            api,
            raw,
            version,
            version_text: version_text.flatten().unwrap_or_else(|| version.text()),
            extensions,
            devices: OnceLock::new(),
            ipc: if shares.is_ok() { ipc.flags } else { 0 },
            composites: OnceLock::new(),
            contexts: Mutex::default(),
            imports: Imports::find(api, raw).map(|imports| &*Box::leak(Box::new(imports))),
        })
    }

    pub fn add_context(&self, context: &Arc<NativeContext>) {
        let mut all = self.contexts.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(context));
    }

    /// The contexts that are alive.
    pub fn contexts(&self) -> Vec<Arc<NativeContext>> {
        let all = self.contexts.lock();
        all.iter().filter_map(Weak::upgrade).collect()
    }

    pub fn api(&self) -> &'static Api {
        self.api
    }

    pub fn raw(&self) -> ze_driver_handle_t {
        self.raw
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// The driver's version, as `1.6.32567+18` or `1.6.32567`.
    pub fn version_text(&self) -> &str {
        &self.version_text
    }

    /// Whether the user leaves this driver out, by its version with or without what follows a `+`.
    fn is_skipped(&self) -> bool {
        let plain = self.version.text();
        let mut all = Settings::get().skipped_drivers.iter();
        let skipped = all.any(|own| *own == self.version_text || *own == plain);
        if skipped {
            log::warn!(
                "the driver {} is left out, as SYCL_UR_L0_DRIVER_SKIPLIST says",
                self.version_text
            );
        }
        skipped
    }

    pub fn has_extension(&self, name: &str) -> bool {
        self.extensions.iter().any(|own| own == name)
    }

    /// The cards of devices that are tiles, which are not listed.
    pub fn composites(&self) -> &[Arc<Object<Device>>] {
        self.composites.get().map_or(&[], Vec::as_slice)
    }

    /// The cards, or the tiles as cards.
    pub fn devices(&self) -> &[Arc<Object<Device>>] {
        self.devices.get().map_or(&[], Vec::as_slice)
    }
}

impl Body for Platform {
    const KIND: Kind = Kind::Platform;
}

impl hal::Platform<LevelZero> for Platform {
    fn get_info(this: &Object<Self>, what: PlatformInfo, out: InfoOut<'_>) -> Result<()> {
        let Version { major, minor, .. } = this.version;
        match what {
            PlatformInfo::Name => out.string("Intel(R) oneAPI Unified Runtime over Level-Zero"),
            PlatformInfo::VendorName => out.string("Intel(R) Corporation"),
            PlatformInfo::Version => out.string(&format!("{major}.{minor}")),
            PlatformInfo::Extensions => out.string(BASE_EXTENSIONS),
            PlatformInfo::Profile => out.string("FULL_PROFILE"),
            PlatformInfo::Backend => out.value(UR_BACKEND_LEVEL_ZERO),
            PlatformInfo::Adapter => out.handle(roots().map(|roots| &*roots.adapter)),
        }
    }

    fn get_native_handle(this: &Object<Self>) -> Result<ur_native_handle_t> {
        Ok(this.raw.0.addr())
    }

    /// The driver's compiler knows no optimisation on, one for size, and one for speed.
    fn get_backend_option(_: &Object<Self>, option: &CStr) -> Result<*const c_char> {
        let native = match option.to_bytes() {
            b"" => c"",
            b"-O0" => c"-ze-opt-disable",
            b"-O1" | b"-O2" | b"-O3" => c"-ze-opt-level=2",
            b"-ftarget-compile-fast" => c"-igc_opts 'PartitionUnit=1,SubroutineThreshold=50000'",
            b"-foffload-fp32-prec-div" | b"-foffload-fp32-prec-sqrt" => {
                c"-ze-fp32-correctly-rounded-divide-sqrt"
            }
            _ => return Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE)),
        };
        Ok(native.as_ptr())
    }

    fn device_get(
        this: &Object<Self>,
        kind: ur_device_type_t,
        devices: ListOut<'_, Device>,
    ) -> Result<()> {
        list_devices(this.devices(), UR_DEVICE_TYPE_GPU, kind, devices)
    }
}

/// The OpenCL extensions that every device has, by which programs written for OpenCL ask.
pub const BASE_EXTENSIONS: &str = "cl_khr_il_program cl_khr_subgroups cl_intel_subgroups \
    cl_intel_subgroups_short cl_intel_required_subgroup_size ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_ends_with_a_zero_or_the_array() {
        let letters = |bytes: &[u8]| {
            bytes
                .iter()
                .map(|byte| byte.cast_signed())
                .collect::<Vec<_>>()
        };
        assert_eq!(text(&letters(b"ab\0cd")), "ab");
        assert_eq!(text(&letters(b"abc")), "abc");
        assert_eq!(text(&[]), "");
    }

    #[test]
    fn versions_are_ordered_by_interface_and_then_build() {
        assert!(Version::new(1, 15, 0) > Version::new(1, 6, 32149));
        assert!(Version::new(1, 6, 32148) < Version::new(1, 6, 32149));
        assert!(Version::new(1, 3, 24595) < Version::new(1, 6, 0));
    }
}

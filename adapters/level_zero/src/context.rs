//! The driver's side of a context: its native context, and what lanes of it share.

use std::collections::BTreeMap;
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Handles, Result, ensure};
use ur::stream::Devices;
use ur::sync::{Mutex, rank};

use crate::LevelZero;
use crate::bindless::Bindless;
use crate::device::Device;
use crate::exec::pages::Mapped;
use crate::exec::{Events, Residency};
use crate::lz::*;
use crate::platform::Platform;
use crate::sampler::Known;
use crate::sharing::Shared;
use crate::virtual_mem::AddressSpace;

/// The adapter's data of a context.
pub struct ContextData {
    // Dropped first: their memory is the native context's.
    pub bindless: Bindless,
    pub shared: Shared,
    pub space: AddressSpace,
    /// The host memory that the user registered, by its addresses.
    pub registered: Mutex<BTreeMap<usize, Import>, { rank::DRIVER }>,
    pub native: Arc<NativeContext>,
}

/// A native context, which lanes, events and programs keep.
pub struct NativeContext {
    pub api: &'static Api,
    pub raw: ze_context_handle_t,
    /// The driver's imports of host memory; none where it has no functions for them.
    pub imports: Option<&'static Imports>,
    /// Whether the drop destroys the context: a foreign one may be its maker's.
    own: bool,
    pub events: Events,
    pub samplers: Known,
    pub residency: Residency,
    pub mapped: Mapped,
}

impl ContextData {
    pub fn of(devices: Handles<'_, Device>) -> Result<Self> {
        let platform = platform_of(devices)?;
        Ok(Self::new(platform, NativeContext::create(platform)?))
    }

    /// A foreign context of these devices; `own` if this destroys it.
    pub fn adopt(devices: Handles<'_, Device>, native: usize, own: bool) -> Result<Self> {
        let platform = platform_of(devices)?;
        let raw = ze_context_handle_t(std::ptr::with_exposed_provenance_mut(native));
        let native = NativeContext::new(platform, raw, own);
        Ok(Self::new(platform, native))
    }

    fn new(platform: &Platform, native: NativeContext) -> Self {
        let native = Arc::new(native);
        platform.add_context(&native);
        Self {
            bindless: Bindless::default(),
            shared: Shared::default(),
            space: AddressSpace::default(),
            registered: Mutex::default(),
            native,
        }
    }
}

impl NativeContext {
    pub fn create(platform: &Platform) -> Result<Self> {
        let (api, driver) = (platform.api(), platform.raw());
        let desc = ze_context_desc_t::default();
        let mut raw = ze_context_handle_t::NULL;
        // SAFETY: the description has its tag, and there is room for the handle.
        unsafe { call!(api, zeContextCreate(driver, &desc, &mut raw)) }?;
        Ok(Self::new(platform, raw, true))
    }

    fn new(platform: &Platform, raw: ze_context_handle_t, own: bool) -> Self {
        Self {
            api: platform.api(),
            imports: platform.imports,
            raw,
            own,
            events: Events::default(),
            samplers: Known::default(),
            residency: Residency::default(),
            mapped: Mapped::default(),
        }
    }
}

/// The platform of devices. `INVALID_DEVICE` for devices of several.
fn platform_of(devices: Handles<'_, Device>) -> Result<&Platform> {
    let mut all = devices.iter();
    let none = Error::new(UR_RESULT_ERROR_INVALID_SIZE);
    let first = all.next().ok_or(none)?;
    let platform = first.platform();
    let alike = all.all(|device| device.platform().raw() == platform.raw());
    ensure(alike, UR_RESULT_ERROR_INVALID_DEVICE)?;
    Ok(platform)
}

impl Drop for NativeContext {
    fn drop(&mut self) {
        if self.api.is_torn_down() {
            return;
        }
        self.events.close(self.api);
        if self.own {
            // SAFETY: the context is this one's, and everything of it holds this.
            unsafe { (self.api.zeContextDestroy)(self.raw) };
        }
    }
}

/// The native context.
pub fn native(devices: &Devices<LevelZero>) -> &Arc<NativeContext> {
    &devices.state().native
}

/// The context's first device.
pub fn first(devices: &Devices<LevelZero>) -> Result<&ur::object::Object<Device>> {
    let first = devices.devices().first();
    let none = Error::new(UR_RESULT_ERROR_INVALID_CONTEXT);
    first.map(|device| &**device).ok_or(none)
}

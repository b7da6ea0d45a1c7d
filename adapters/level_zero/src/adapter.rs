//! The adapter, the loader's library, the platforms and their devices, which live as long as this library. The
//! engine lives as long as the adapter has references.
//!
//! A driver is a platform. Its devices are the cards, or the tiles as cards, as the driver's variable
//! `ZE_FLAT_DEVICE_HIERARCHY` says.

use std::sync::{Arc, OnceLock};

use ur::abi::*;
use ur::hal;
use ur::object::log;
use ur::object::{Body, Census, Error, Handles, Kind, ListOut, Object, Result, ensure};
use ur::stream::{Context, Engine, EngineSlot};

use crate::LevelZero;
use crate::context::ContextData;
use crate::device::Device;
use crate::lz::{Api, Found};
use crate::platform::Platform;
use crate::settings::Settings;

/// The adapter and its platforms. They outlive every reference, so that a handle from before the last release
/// never dangles.
pub struct Roots {
    pub adapter: Arc<Object<Adapter>>,
    pub platforms: Vec<Arc<Object<Platform>>>,
}

/// The adapter and its platforms. None if there is no driver or no device.
pub fn roots() -> Option<&'static Roots> {
    static ROOTS: OnceLock<Option<Roots>> = OnceLock::new();
    let find = || {
        Settings::report();
        let Found { api, drivers } = Api::find()?;
        let api: &'static Api = Box::leak(Box::new(api));
        if is_skipped(api) {
            return None;
        }
        let open = |driver: &_| Platform::open(api, *driver);
        let platforms: Vec<_> = drivers.iter().filter_map(open).collect();
        let adapter = hal::new::<LevelZero, _>(Adapter {
            engine: EngineSlot::default(),
        });
        (!platforms.is_empty()).then_some(Roots { adapter, platforms })
    };
    ROOTS.get_or_init(find).as_ref()
}

/// Whether the user leaves the loader out, by its version.
fn is_skipped(api: &Api) -> bool {
    let skipped = &Settings::get().skipped_loaders;
    let version = match skipped.is_empty() {
        true => None,
        false => api.loader_version(),
    };
    let found = version.filter(|version| skipped.contains(version));
    if let Some(version) = &found {
        ::log::warn!("the loader {version} is left out, as SYCL_UR_L0_LOADER_SKIPLIST says");
    }
    found.is_some()
}

/// Every device and sub-device, and the cards that are not listed.
pub fn devices() -> impl Iterator<Item = &'static Arc<Object<Device>>> {
    let platforms = roots().map_or(&[][..], |roots| &roots.platforms);
    let cards = platforms
        .iter()
        .flat_map(|platform| platform.devices().iter().chain(platform.composites()));
    cards.flat_map(|card| std::iter::once(card).chain(card.parts()))
}

pub struct Adapter {
    engine: EngineSlot<LevelZero>,
}

/// The engine, made when first needed and ended with the adapter's last reference.
pub fn engine() -> Result<Arc<Engine<LevelZero>>> {
    let roots = roots().ok_or(Error::new(UR_RESULT_ERROR_UNINITIALIZED))?;
    Ok(roots.adapter.engine.get())
}

impl Body for Adapter {
    const KIND: Kind = Kind::Adapter;

    fn released(this: &Object<Self>) {
        if this.engine.adapter_released(this) && Settings::get().leaks {
            let leaks = Census::count().without(Kind::Adapter);
            log::once(&format!("objects alive after the last release: {leaks}"));
        }
    }
}

impl hal::Adapter<LevelZero> for Adapter {
    fn platform_get(_: &Object<Self>, platforms: ListOut<'_, Platform>) -> Result<()> {
        platforms.write(roots().map_or(&[], |roots| &roots.platforms));
        Ok(())
    }

    fn platform_create_with_native_handle(
        _: &Object<Self>,
        native: ur_native_handle_t,
        _: Option<&ur_platform_native_properties_t>,
    ) -> Result<Arc<Object<Platform>>> {
        let mut all = roots().map_or(&[][..], |roots| &roots.platforms).iter();
        let found = all.find(|platform| platform.raw().0.addr() == native);
        found
            .cloned()
            .ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))
    }

    fn device_create_with_native_handle(
        _: &Object<Self>,
        native: ur_native_handle_t,
        _: Option<&ur_device_native_properties_t>,
    ) -> Result<Arc<Object<Device>>> {
        let found = devices().find(|device| device.raw().0.addr() == native);
        found
            .cloned()
            .ok_or(Error::new(UR_RESULT_ERROR_INVALID_DEVICE))
    }

    /// The devices of a native context cannot be asked for: the caller names them.
    fn context_create_with_native_handle(
        _: &Object<Self>,
        native: ur_native_handle_t,
        devices: Handles<'_, Device>,
        properties: Option<&ur_context_native_properties_t>,
    ) -> Result<Arc<Object<Context<LevelZero>>>> {
        ensure(native != 0, UR_RESULT_ERROR_INVALID_CONTEXT)?;
        ensure(!devices.is_empty(), UR_RESULT_ERROR_INVALID_SIZE)?;
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        let state = ContextData::adopt(devices, native, owned)?;
        Ok(Context::new(&engine()?, devices, state))
    }
}

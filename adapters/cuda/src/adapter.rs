//! The adapter, the driver's library, the platform and its devices, which live as long as this library.
//! The engine and the primary contexts live as long as the adapter has references.

use std::sync::{Arc, OnceLock};

use ur::abi::*;
use ur::hal::{self, Exported};
use ur::object::{Body, Error, Handles, Kind, ListOut, Object, Result, ensure};
use ur::stream::{Context, Engine, EngineSlot};

use crate::Cuda;
use crate::cu::{Api, current};
use crate::device::Device;
use crate::driver::ContextData;
use crate::platform::Platform;

/// The adapter and its platform. They outlive every reference, so that a handle from before the last
/// release never dangles.
pub struct Roots {
    pub adapter: Arc<Object<Adapter>>,
    pub platform: Arc<Object<Platform>>,
}

/// The adapter and its platform. None if there is no driver or no device.
pub fn roots() -> Option<&'static Roots> {
    static ROOTS: OnceLock<Option<Roots>> = OnceLock::new();
    static API: OnceLock<&'static Api> = OnceLock::new();
    let find = || {
        let api: &'static Api = Box::leak(Box::new(Api::find()?));
        let platform = Platform::open(api)?;
        let adapter = hal::new::<Cuda, _>(Adapter {
            engine: EngineSlot::default(),
        });
        // Debug builds check after each call that the caller's current context is unchanged.
        API.get_or_init(|| api);
        ur::object::check_thread_state(|| API.get().map_or(0, |api| current(api)));
        Some(Roots { adapter, platform })
    };
    ROOTS.get_or_init(find).as_ref()
}

pub struct Adapter {
    engine: EngineSlot<Cuda>,
}

/// The engine, made when first needed and ended with the adapter's last reference.
pub fn engine() -> Result<Arc<Engine<Cuda>>> {
    let roots = roots().ok_or(Error::new(UR_RESULT_ERROR_UNINITIALIZED))?;
    Ok(roots.adapter.engine.get())
}

impl Body for Adapter {
    const KIND: Kind = Kind::Adapter;

    fn released(this: &Object<Self>) {
        if this.engine.adapter_released(this)
            && let Some(roots) = roots()
        {
            roots.platform.let_go();
        }
    }
}

impl hal::Adapter<Cuda> for Adapter {
    fn platform_get(_: &Object<Self>, platforms: ListOut<'_, Platform>) -> Result<()> {
        platforms.write(roots().map_or(&[], |roots| std::slice::from_ref(&roots.platform)));
        Ok(())
    }

    fn device_create_with_native_handle(
        _: &Object<Self>,
        native: ur_native_handle_t,
        _: Option<&ur_device_native_properties_t>,
    ) -> Result<Arc<Object<Device>>> {
        let devices = roots().map_or(&[][..], |roots| roots.platform.devices());
        let mut all = devices.iter();
        let found = all.find(|device| device.raw() as ur_native_handle_t == native);
        found
            .cloned()
            .ok_or(Error::new(UR_RESULT_ERROR_INVALID_DEVICE))
    }

    /// The native context of a device is its primary one. Any other is refused as unsupported.
    fn context_create_with_native_handle(
        _: &Object<Self>,
        native: ur_native_handle_t,
        devices: Handles<'_, Device>,
        _: Option<&ur_context_native_properties_t>,
    ) -> Result<Arc<Object<Context<Cuda>>>> {
        ensure(native != 0, UR_RESULT_ERROR_INVALID_CONTEXT)?;
        let all = roots().map_or(&[][..], |roots| roots.platform.devices());
        let own = |device: &Object<Device>| {
            device
                .retained_gpu()
                .is_some_and(|gpu| gpu.context().addr() == native)
        };
        let device = all.iter().find(|device| own(device));
        let device = device.ok_or(Error::unsupported())?;
        if !devices.is_empty() {
            ensure(devices.iter().any(own), UR_RESULT_ERROR_INVALID_DEVICE)?;
            return Ok(Context::new(&engine()?, devices, ContextData::of(devices)?));
        }
        let handle = device.handle().cast_const();
        let wrong = UR_RESULT_ERROR_INVALID_DEVICE;
        // SAFETY: the platform keeps the device of this handle alive.
        let devices = unsafe { Handles::borrow(&handle, 1, Cuda::table(), wrong) }?;
        Ok(Context::new(&engine()?, devices, ContextData::of(devices)?))
    }
}

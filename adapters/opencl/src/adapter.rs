//! The adapter, the OpenCL library and its platforms, which live as long as this library. The engine
//! lives as long as the adapter has references.

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use ur::abi::*;
use ur::hal::{self, Exported};
use ur::object::{Body, Error, Handles, Kind, ListOut, Object, Result, ensure};
use ur::stream::{Context, Engine, EngineSlot};

use crate::OpenCl;
use crate::cl::{self, ContextRef, Core};
use crate::device::Device;
use crate::exec::ContextData;
use crate::platform::Platform;

/// The adapter and the platforms that have a device. They outlive every reference, so that a handle
/// from before the last release never dangles.
pub struct Roots {
    pub adapter: Arc<Object<Adapter>>,
    pub platforms: Vec<Arc<Object<Platform>>>,
}

/// The adapter and its platforms. None if there is no OpenCL, no platform or no device.
pub fn roots() -> Option<&'static Roots> {
    static CORE: OnceLock<Option<Core>> = OnceLock::new();
    static ROOTS: OnceLock<Option<Roots>> = OnceLock::new();
    let find = || {
        let core = CORE.get_or_init(Core::find).as_ref()?;
        let platforms = Platform::all(core);
        let adapter = || {
            hal::new::<OpenCl, _>(Adapter {
                engine: EngineSlot::default(),
            })
        };
        (!platforms.is_empty()).then(|| Roots {
            adapter: adapter(),
            platforms,
        })
    };
    ROOTS.get_or_init(find).as_ref()
}

pub struct Adapter {
    engine: EngineSlot<OpenCl>,
}

/// The engine, made when first needed and ended with the adapter's last reference.
pub fn engine() -> Result<Arc<Engine<OpenCl>>> {
    let roots = roots().ok_or(Error::new(UR_RESULT_ERROR_UNINITIALIZED))?;
    Ok(roots.adapter.engine.get())
}

impl Body for Adapter {
    const KIND: Kind = Kind::Adapter;

    fn released(this: &Object<Self>) {
        this.engine.adapter_released(this);
    }
}

impl hal::Adapter<OpenCl> for Adapter {
    fn platform_get(_: &Object<Self>, platforms: ListOut<'_, Platform>) -> Result<()> {
        platforms.write(roots().map_or(&[], |roots| &roots.platforms));
        Ok(())
    }

    fn platform_create_with_native_handle(
        _: &Object<Self>,
        native: ur_native_handle_t,
        _: Option<&ur_platform_native_properties_t>,
    ) -> Result<Arc<Object<Platform>>> {
        let platforms = roots().map_or(&[][..], |roots| &roots.platforms);
        let found = platforms
            .iter()
            .find(|platform| platform.raw().addr() == native);
        found
            .cloned()
            .ok_or(Error::new(UR_RESULT_ERROR_INVALID_PLATFORM))
    }

    fn device_create_with_native_handle(
        _: &Object<Self>,
        native: ur_native_handle_t,
        _: Option<&ur_device_native_properties_t>,
    ) -> Result<Arc<Object<Device>>> {
        Device::from_native(native)
    }

    fn context_create_with_native_handle(
        _: &Object<Self>,
        native: ur_native_handle_t,
        devices: Handles<'_, Device>,
        properties: Option<&ur_context_native_properties_t>,
    ) -> Result<Arc<Object<Context<OpenCl>>>> {
        let roots = roots().ok_or(Error::new(UR_RESULT_ERROR_UNINITIALIZED))?;
        let raw = std::ptr::with_exposed_provenance_mut(native);
        ensure(native != 0, UR_RESULT_ERROR_INVALID_CONTEXT)?;
        let core = roots.platforms[0].api().core;
        // SAFETY: `urContextCreateWithNativeHandle` requires a native context.
        let query = |size, value, ret| unsafe {
            (core.clGetContextInfo)(raw, opencl_sys::CL_CONTEXT_DEVICES, size, value, ret)
        };
        let ids: Vec<usize> = cl::list(query, "clGetContextInfo")?;
        let own = ids.iter().map(|id| Device::from_native(*id));
        let own: Vec<_> = own.collect::<Result<_>>()?;
        let first = own
            .first()
            .ok_or(Error::new(UR_RESULT_ERROR_INVALID_CONTEXT))?;
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        // SAFETY: `urContextCreateWithNativeHandle` requires a native context.
        let context = unsafe { ContextRef::adopted(first.api(), raw, false) }?;
        let engine = engine()?;
        if !devices.is_empty() {
            context.own(owned);
            return Ok(Context::new(&engine, devices, ContextData::new(context)));
        }
        let handles: Vec<*const c_void> = own
            .iter()
            .map(|device| device.handle().cast_const())
            .collect();
        let null = UR_RESULT_ERROR_INVALID_DEVICE;
        // SAFETY: `own` holds the devices of these handles.
        let devices =
            unsafe { Handles::borrow(handles.as_ptr(), handles.len(), OpenCl::table(), null) }?;
        context.own(owned);
        Ok(Context::new(&engine, devices, ContextData::new(context)))
    }
}

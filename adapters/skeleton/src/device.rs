//! The one device. The copy keeps the driver's handle in `Device`, and creates the driver's own context in
//! `context_create` if there is one: it becomes `Driver::ContextData`.

mod info;

use std::sync::Arc;

use ur::abi::*;
use ur::hal::{self, DeviceInfo};
use ur::object::{Body, Error, Handles, InfoOut, Kind, Object, Out, Result};
use ur::stream::Context;

use crate::Skeleton;
use crate::adapter::roots;
use crate::lane;

pub struct Device;

/// Reported memory of the device, and its largest allocation, in bytes.
pub const MEMORY_BYTES: usize = 1 << 30;

impl Body for Device {
    const KIND: Kind = Kind::Device;
}

impl hal::Device<Skeleton> for Device {
    fn get_info(this: &Object<Self>, what: DeviceInfo, out: InfoOut<'_>) -> Result<()> {
        info::get(this, what, out)
    }

    fn get_global_timestamps(
        _: &Object<Self>,
        device: Out<'_, u64>,
        host: Out<'_, u64>,
    ) -> Result<()> {
        // The device's clock is the host's.
        let now = lane::now();
        device.set(now);
        host.set(now);
        Ok(())
    }

    /// A device without programs suits no binary.
    fn select_binary(_: &Object<Self>, _: &[ur_device_binary_t]) -> Result<u32> {
        Err(Error::new(UR_RESULT_ERROR_INVALID_BINARY))
    }

    fn context_create(
        devices: Handles<'_, Device>,
        _: Option<&ur_context_properties_t>,
    ) -> Result<Arc<Object<Context<Skeleton>>>> {
        Ok(Context::new(&roots().engine.get(), devices, ()))
    }

    fn wait_exp(this: &Object<Self>) -> Result<()> {
        roots().engine.get().wait_device(this)
    }
}

//! The adapter, its platform and its device, which live as long as the library, and the engine, which
//! lives as long as the adapter has references.
//!
//! The copy opens its driver's library in `adapter`, lists the driver's platforms and devices, and makes
//! `Backend::adapter` return none if there is no driver.

use std::sync::{Arc, OnceLock};

use ur::hal::{self, Exported};
use ur::object::{Body, Kind, ListOut, Object, Result};
use ur::stream::EngineSlot;

use crate::Skeleton;
use crate::device::Device;
use crate::platform::Platform;

pub struct Adapter {
    pub platform: Arc<Object<Platform>>,
    pub device: Arc<Object<Device>>,
    pub engine: EngineSlot<Skeleton>,
}

/// The one adapter.
pub fn adapter() -> &'static Arc<Object<Adapter>> {
    static ADAPTER: OnceLock<Arc<Object<Adapter>>> = OnceLock::new();
    ADAPTER.get_or_init(|| {
        hal::new::<Skeleton, _>(Adapter {
            platform: Object::immortal(Skeleton::table(), Platform),
            device: Object::immortal(Skeleton::table(), Device),
            engine: EngineSlot::default(),
        })
    })
}

impl Body for Adapter {
    const KIND: Kind = Kind::Adapter;

    fn released(this: &Object<Self>) {
        this.engine.adapter_released(this);
    }
}

impl hal::Adapter<Skeleton> for Adapter {
    fn platform_get(this: &Object<Self>, platforms: ListOut<'_, Platform>) -> Result<()> {
        platforms.write(std::slice::from_ref(&this.platform));
        Ok(())
    }
}

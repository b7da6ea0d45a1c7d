//! The adapter, its platform and its device, which live as long as the library, and the engine, which
//! lives as long as the adapter has references.
//!
//! The copy opens its driver's library in `roots`, lists the driver's platforms and devices, and makes
//! `Backend::adapter` return none if there is no driver.

use std::sync::{Arc, OnceLock};

use ur::hal::{self, Exported};
use ur::object::{Body, Census, Kind, ListOut, Object, Result};
use ur::stream::EngineSlot;

use crate::Skeleton;
use crate::device::Device;
use crate::platform::Platform;

pub struct Roots {
    pub adapter: Arc<Object<Adapter>>,
    pub platform: Arc<Object<Platform>>,
    pub device: Arc<Object<Device>>,
    pub engine: EngineSlot<Skeleton>,
}

pub fn roots() -> &'static Roots {
    static ROOTS: OnceLock<Roots> = OnceLock::new();
    ROOTS.get_or_init(|| Roots {
        adapter: hal::new::<Skeleton, _>(Adapter),
        platform: Object::immortal(Skeleton::table(), Platform),
        device: Object::immortal(Skeleton::table(), Device),
        engine: EngineSlot::default(),
    })
}

pub struct Adapter;

impl Body for Adapter {
    const KIND: Kind = Kind::Adapter;

    fn released(this: &Object<Self>) {
        // Another thread may have taken a new reference meanwhile.
        if this.api_refs() == 0 {
            roots().engine.shut_down();
            Census::report();
        }
    }
}

impl hal::Adapter<Skeleton> for Adapter {
    fn platform_get(_: &Object<Self>, platforms: ListOut<'_, Platform>) -> Result<()> {
        platforms.write(std::slice::from_ref(&roots().platform));
        Ok(())
    }
}

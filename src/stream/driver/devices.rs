//! A backend's view of a context.

use crate::object::Object;
use crate::stream::Driver;
use std::sync::Arc;

/// The devices of a context, and the driver's data for them.
pub struct Devices<D: Driver> {
    all: Box<[Arc<Object<D::Device>>]>,
    state: D::ContextData,
    deterministic: bool,
}

impl<D: Driver> Devices<D> {
    pub(crate) fn new(
        all: Box<[Arc<Object<D::Device>>]>,
        state: D::ContextData,
        deterministic: bool,
    ) -> Self {
        Self {
            all,
            state,
            deterministic,
        }
    }

    /// The devices in the context's order. At least one.
    pub fn devices(&self) -> &[Arc<Object<D::Device>>] {
        &self.all
    }

    pub fn state(&self) -> &D::ContextData {
        &self.state
    }

    /// Index of the device, or of the device that it is a part of.
    pub fn index_of(&self, device: &Object<D::Device>) -> Option<usize> {
        let index = |device: &Object<D::Device>| {
            self.all.iter().position(|own| std::ptr::eq(&**own, device))
        };
        if let Some(found) = index(device) {
            return Some(found);
        }
        let mut parent = D::parent(device);
        while let Some(device) = parent {
            if let Some(found) = index(&device) {
                return Some(found);
            }
            parent = D::parent(&device);
        }
        None
    }

    /// Whether `UR_POOL_DETERMINISTIC` is set.
    pub fn is_deterministic(&self) -> bool {
        self.deterministic
    }
}

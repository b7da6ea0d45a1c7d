//! What a backend sees of a context.

use crate::object::Object;
use crate::stream::Driver;
use std::sync::Arc;

/// The devices of a context, and what the driver keeps with them.
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

    /// The devices, in the order in which the context was given them. At least one.
    pub fn devices(&self) -> &[Arc<Object<D::Device>>] {
        &self.all
    }

    pub fn state(&self) -> &D::ContextData {
        &self.state
    }

    /// Which of the devices this is, or is a part of.
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

    /// As `UR_POOL_DETERMINISTIC` asks for it.
    pub fn is_deterministic(&self) -> bool {
        self.deterministic
    }
}

//! The engine of an adapter, between the first use and the last reference.

use super::Engine;
use crate::object::{Body, Census, Object};
use crate::stream::Driver;
use crate::sync::Mutex;
use std::sync::Arc;

/// Holds the adapter's engine, or none before it is first needed.
pub struct EngineSlot<D: Driver>(Mutex<Option<Arc<Engine<D>>>>);

impl<D: Driver> Default for EngineSlot<D> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<D: Driver> EngineSlot<D> {
    /// The engine, made if there is none.
    pub fn get(&self) -> Arc<Engine<D>> {
        Arc::clone(self.0.lock().get_or_insert_with(Engine::new))
    }

    /// Ends the engine's threads with the last reference of an adapter, and logs the objects that are left. Waits for
    /// the jobs that are running. Returns whether it was the last reference.
    pub fn adapter_released(&self, adapter: &Object<impl Body>) -> bool {
        // Another thread may have taken a new reference meanwhile.
        if adapter.api_refs() > 0 {
            return false;
        }
        let engine = self.0.lock().take();
        if let Some(engine) = engine {
            engine.shut_down();
        }
        Census::report();
        true
    }
}

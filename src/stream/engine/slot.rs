//! The engine of an adapter, between the first use and the last reference.

use super::Engine;
use crate::stream::Driver;
use crate::timeline::sync::Mutex;
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

    /// Takes the engine and ends its threads. Waits for the jobs that are running.
    pub fn shut_down(&self) {
        let engine = self.0.lock().take();
        if let Some(engine) = engine {
            engine.shut_down();
        }
    }
}

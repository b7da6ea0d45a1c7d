//! The suites. Each lists its tests; a test is a function from a device to its outcome.

mod adapter;
mod arguments;
mod async_alloc;
mod buffer;
mod context;
mod device;
mod enqueue;
mod event;
mod launch;
mod loader;
mod program;
mod queue;
mod usm;
mod virtual_memory;

use crate::registry::Test;

/// Every test, in the order in which a run makes them.
pub fn all() -> Vec<Test> {
    let suites = [
        loader::all,
        adapter::all,
        device::all,
        context::all,
        queue::all,
        event::all,
        usm::all,
        buffer::all,
        program::all,
        launch::all,
        enqueue::all,
        virtual_memory::all,
        arguments::all,
        async_alloc::all,
    ];
    suites.into_iter().flat_map(|suite| suite()).collect()
}

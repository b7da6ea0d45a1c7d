//! The suites. Each lists its tests; a test is a function from a device to its outcome.

mod adapter;
mod arguments;
mod async_alloc;
mod buffer;
mod buffer_map;
mod buffer_rect;
mod context;
mod declared;
mod device;
mod enqueue;
mod event;
mod event_times;
mod every_function;
mod global_variable;
mod host_task;
mod kernel;
mod launch;
mod launch_arguments;
mod launch_space;
mod loader;
mod partition;
mod program;
mod queries;
mod queue;
mod usm;
mod usm_2d;
mod usm_commands;
mod usm_pool;
mod virtual_memory;

use crate::registry::Test;

/// Every test, in the order in which a run makes them.
pub fn all() -> Vec<Test> {
    let suites = [
        loader::all,
        adapter::all,
        device::all,
        partition::all,
        context::all,
        queue::all,
        event::all,
        event_times::all,
        usm::all,
        usm_commands::all,
        usm_2d::all,
        usm_pool::all,
        buffer::all,
        buffer_map::all,
        buffer_rect::all,
        program::all,
        kernel::all,
        launch::all,
        launch_space::all,
        launch_arguments::all,
        enqueue::all,
        host_task::all,
        virtual_memory::all,
        arguments::all,
        every_function::all,
        declared::all,
        global_variable::all,
        queries::all,
        async_alloc::all,
    ];
    suites.into_iter().flat_map(|suite| suite()).collect()
}

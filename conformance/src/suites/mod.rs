//! The suites. Each lists its tests. A test is a function from a device to an outcome.
//!
//! The doc comment of a test function begins with one sentence that says the rule it checks.

mod across_contexts;
mod adapter;
mod arguments;
mod async_alloc;
mod async_validation;
mod backlog;
pub mod bindless;
mod buffer;
mod buffer_map;
mod buffer_over_host;
mod buffer_rect;
mod command_buffer;
mod context;
mod declared_errors;
mod device;
mod device_limits;
mod enqueue;
mod event;
mod event_times;
mod every_function;
mod failures;
mod fills;
mod global_variable;
mod graph;
mod host_task;
mod image;
mod interop;
mod kernel;
mod launch;
mod launch_arguments;
mod launch_properties;
mod launch_space;
mod loader;
mod partition;
mod program;
mod queries;
mod queue;
mod release_while_pending;
mod sampler;
mod several_devices;
pub mod sharing;
mod unsupported;
mod usm;
mod usm_2d;
mod usm_commands;
mod usm_devices;
mod usm_pool;
mod virtual_memory;

use crate::registry::Test;

/// Suites about the interface alone. They hold on a device whose commands have no effects, if something checks
/// the arguments of calls.
const INTERFACE: [&str; 8] = [
    "loader",
    "adapter",
    "context",
    "device_info",
    "arguments",
    "every_function",
    "queries",
    "unsupported",
];

/// Whether a test is about the interface alone, and needs no device that executes commands.
pub fn is_interface(test: &Test) -> bool {
    INTERFACE.contains(&test.suite)
}

/// Every test, in the order of a run.
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
        fills::all,
        usm_2d::all,
        usm_devices::all,
        several_devices::all,
        usm_pool::all,
        buffer::all,
        buffer_map::all,
        buffer_over_host::all,
        buffer_rect::all,
        image::all,
        sampler::all,
        program::all,
        kernel::all,
        unsupported::all,
        device_limits::all,
        launch::all,
        launch_space::all,
        launch_arguments::all,
        launch_properties::all,
        enqueue::all,
        across_contexts::all,
        host_task::all,
        backlog::all,
        release_while_pending::all,
        interop::all,
        failures::all,
        virtual_memory::all,
        sharing::all,
        bindless::all,
        command_buffer::all,
        graph::all,
        arguments::all,
        every_function::all,
        declared_errors::all,
        global_variable::all,
        queries::all,
        async_alloc::all,
        async_validation::all,
    ];
    suites.into_iter().flat_map(|suite| suite()).collect()
}

//! Every call of OpenCL fails once, one after the other, while the workload runs.

use opencl_sys::{CL_INVALID_VALUE, CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES, cl_int};

use super::fake_driver::{FakeDriver, adapter, alone, device};
use super::workload;

/// Functions whose failure nobody has to report, and why.
#[rustfmt::skip]
const SILENT: &[(&str, &str)] = &[
    ("clGetEventInfo", "an event counts as pending then, and is asked again"),
    ("clEnqueueMarkerWithWaitList", "the engine asks for its own markers again"),
    ("clSetEventCallback", "the engine's threads ask for the state instead"),
    ("clFlush", "queries and waits flush too"),
    ("clDeviceMemAllocINTEL", "pools are trimmed, and it is tried again"),
    ("clHostMemAllocINTEL", "pools are trimmed, and it is tried again"),
    ("clSharedMemAllocINTEL", "pools are trimmed, and it is tried again"),
    ("clGetDeviceInfo", "a property that a driver may lack has a value without it"),
    ("clGetKernelInfo", "a property that a driver may lack has a value without it"),
];

/// Each call of the workload fails in turn.
fn each_call_fails_with(name: &str, code: cl_int) {
    alone(name, &[], || {
        let driver = FakeDriver::open();
        let device = device(adapter().expect("an adapter"));
        let play = || {
            let steps = workload::play(device);
            (steps.failed(), steps.right)
        };
        driver.fail_each_call(code, (70, 20), SILENT, play);
    });
}

#[test]
fn each_call_runs_out_of_resources() {
    let name = "tests::faults::each_call_runs_out_of_resources";
    each_call_fails_with(name, CL_OUT_OF_RESOURCES);
}

#[test]
fn each_call_runs_out_of_memory() {
    let name = "tests::faults::each_call_runs_out_of_memory";
    each_call_fails_with(name, CL_OUT_OF_HOST_MEMORY);
}

#[test]
fn each_call_fails_for_no_reason() {
    let name = "tests::faults::each_call_fails_for_no_reason";
    each_call_fails_with(name, CL_INVALID_VALUE);
}

/// A code that no version of OpenCL knows.
#[test]
fn each_call_fails_with_an_unknown_code() {
    let name = "tests::faults::each_call_fails_with_an_unknown_code";
    each_call_fails_with(name, -9876);
}

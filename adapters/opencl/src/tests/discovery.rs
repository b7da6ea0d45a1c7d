//! The adapter on machines with missing or failing parts.

use std::fs;

use opencl_sys::{CL_DEVICE_NOT_FOUND, CL_OUT_OF_HOST_MEMORY};
use scripted_opencl::Shape;
use ur::abi::*;

use super::fake_driver::{FakeDriver, Folder, adapter, alone, device, library};
use super::workload;

#[test]
fn without_opencl_there_is_no_adapter() {
    let folder = Folder::with("none", b"");
    let name = "tests::discovery::without_opencl_there_is_no_adapter";
    alone(name, &[folder.variable()], || assert!(adapter().is_none()));
}

/// A copy of the library without one of its symbols, whose name is overwritten.
fn without(symbol: &str) -> Vec<u8> {
    let mut bytes = fs::read(library()).expect("the scripted library");
    let whole = [b"\0", symbol.as_bytes(), b"\0"].concat();
    let places: Vec<usize> = (0..bytes.len() - whole.len())
        .filter(|at| bytes[*at..].starts_with(&whole))
        .collect();
    assert!(!places.is_empty(), "{symbol} is none of the library's");
    for at in places {
        bytes[at + 1] = b'x';
    }
    bytes
}

#[test]
fn without_a_required_symbol_there_is_no_adapter() {
    let name = "tests::discovery::without_a_required_symbol_there_is_no_adapter";
    for symbol in ["clWaitForEvents", "clGetPlatformIDs", "clEnqueueMapImage"] {
        let folder = Folder::with(symbol, &without(symbol));
        alone(name, &[folder.variable()], || assert!(adapter().is_none()));
    }
}

/// The library has few of the optional symbols.
#[test]
fn without_an_optional_symbol_all_else_works() {
    let name = "tests::discovery::without_an_optional_symbol_all_else_works";
    for symbol in [
        "clCreateCommandQueueWithProperties",
        "clEnqueueMigrateMemObjects",
    ] {
        let folder = Folder::with(symbol, &without(symbol));
        alone(name, &[folder.variable()], || {
            let device = device(adapter().expect("an adapter"));
            let steps = workload::play(device);
            assert_eq!(steps.failed(), [], "{symbol}");
        });
    }
}

fn shaped(name: &str, shape: Shape, there: bool) {
    alone(name, &[], || {
        let driver = FakeDriver::open();
        driver.shape(shape);
        assert_eq!(adapter().is_some(), there);
        // The adapter does not repeat a search that succeeded.
        driver.shape(Shape::default());
        assert_eq!(adapter().is_some(), there);
    });
}

#[test]
fn without_a_platform_there_is_no_adapter() {
    let shape = Shape {
        no_platform: true,
        ..Shape::default()
    };
    let name = "tests::discovery::without_a_platform_there_is_no_adapter";
    shaped(name, shape, false);
}

#[test]
fn without_a_device_there_is_no_adapter() {
    let shape = Shape {
        no_device: true,
        ..Shape::default()
    };
    shaped(
        "tests::discovery::without_a_device_there_is_no_adapter",
        shape,
        false,
    );
}

#[test]
fn accelerators_are_not_listed() {
    let shape = Shape {
        accelerator: true,
        ..Shape::default()
    };
    shaped(
        "tests::discovery::accelerators_are_not_listed",
        shape,
        false,
    );
}

#[test]
fn a_device_makes_an_adapter() {
    shaped(
        "tests::discovery::a_device_makes_an_adapter",
        Shape::default(),
        true,
    );
}

/// Without its extensions the device has no USM and reports so.
#[test]
fn without_extensions_there_is_no_shared_memory() {
    let name = "tests::discovery::without_extensions_there_is_no_shared_memory";
    alone(name, &[], || {
        let driver = FakeDriver::open();
        driver.shape(Shape {
            no_extensions: true,
            ..Shape::default()
        });
        let steps = workload::play(device(adapter().expect("an adapter")));
        let refused = steps.failed();
        assert!(
            refused.contains(&("urUSMSharedAlloc", UR_RESULT_ERROR_UNSUPPORTED_FEATURE)),
            "{refused:?}"
        );
        driver.check_end("a scene without extensions");
    });
}

/// Whatever fails during discovery, there is an adapter or there is none.
///
/// The adapter works once calls succeed again.
#[test]
fn any_call_may_fail_during_discovery() {
    let name = "tests::discovery::any_call_may_fail_during_discovery";
    let codes = [CL_OUT_OF_HOST_MEMORY, CL_DEVICE_NOT_FOUND];
    for nth in 1..=24 {
        let nth_and_code = format!("{nth} {}", codes[nth % 2]);
        alone(name, &[("SCRIPTED_FAULT", nth_and_code.into())], || {
            let driver = FakeDriver::open();
            let fault = std::env::var("SCRIPTED_FAULT").expect("a fault");
            let (nth, code) = fault.split_once(' ').expect("two numbers");
            driver.fail(
                nth.parse().expect("a number"),
                code.parse().expect("a number"),
            );
            let found = adapter();
            driver.reset();
            if let Some(found) = found {
                let failed = workload::play(device(found)).failed();
                let unsupported = |(_, code): &(&str, ur_result_t)| {
                    *code == UR_RESULT_ERROR_UNSUPPORTED_FEATURE
                        || *code == UR_RESULT_ERROR_COMPILER_NOT_AVAILABLE
                };
                assert!(failed.iter().all(unsupported), "{failed:?}");
                driver.check_end("a scene after a fault");
            }
        });
    }
}

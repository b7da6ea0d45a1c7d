//! Calls every function through the loader with random arguments, on this project's adapters. A
//! refused call must leave no object behind, and every call must return a result.
//!
//! Released handles are passed only with the layer that refuses them, since without it they break
//! the contract. Only the mock gets invalid lengths, since it never dereferences pointers.

#[allow(dead_code)]
#[path = "../../../tests/arguments/mod.rs"]
pub mod arguments;
#[allow(dead_code)]
#[path = "../../../conformance/tests/support/mod.rs"]
mod support;

use std::ffi::c_void;
use std::ptr::null;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use ur::abi::*;

use crate::application::{Application, call};
use crate::common::{child, loader, null as null_mut};
use arguments::CALLS;

/// Variable that tells a scenario that its adapter has a device.
const DEVICE: &str = "SWEEP_DEVICE";

/// Runs a scenario over one of this project's adapters with these layers. Returns the layers'
/// messages.
fn sweep(scenario: &str, adapter: &str, layers: &str) -> String {
    let device = if adapter == "mock" { "0" } else { "1" };
    let adapter = support::libraries().join(format!("libur_adapter_{adapter}.so"));
    let adapter = adapter.to_str().expect("a path in UTF-8");
    child(
        scenario,
        &[
            ("UR_ADAPTERS_FORCE_LOAD", adapter),
            ("UR_ENABLE_LAYERS", layers),
            ("UR_LOG_VALIDATION", "level:warning"),
            ("UR_TRACE_OUTPUT", "none"),
            (DEVICE, device),
        ],
    )
}

#[test]
fn released_and_foreign_handles_are_refused_and_nothing_leaks() {
    for adapter in ["native_cpu", "mock"] {
        for layer in ["UR_LAYER_LIFETIME_VALIDATION", "UR_LAYER_FULL_VALIDATION"] {
            let said = sweep("sweep::scenario_dead", adapter, layer);
            assert!(!said.contains("leak"), "{adapter}, {layer}: {said}");
        }
    }
}

#[test]
fn anything_at_all_ends_with_a_result() {
    let layers = "UR_LAYER_FULL_VALIDATION,UR_LAYER_TRACING";
    for layers in [layers, "UR_LAYER_LIFETIME_VALIDATION"] {
        for adapter in ["mock", "native_cpu"] {
            sweep("sweep::scenario_anything", adapter, layers);
        }
    }
}

#[test]
fn anything_but_what_is_released_ends_without_a_layer() {
    for adapter in ["mock", "native_cpu"] {
        sweep("sweep::scenario_anything", adapter, "");
    }
}

/// Creates objects of the kinds that need no device code.
fn objects(app: &Application) -> Vec<*mut c_void> {
    let mut made: Vec<*mut c_void> = vec![
        app.queue(UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE)
            .cast(),
        app.event().cast(),
        app.buffer(64).cast(),
    ];
    let (mut context, mut pool, mut buffer) = (null_mut(), null_mut(), null_mut());
    let mut graph = null_mut();
    let (mut pools, buffers) = (Default::default(), Default::default());
    let all = &app.all;
    let done = [
        call!(all, Context.pfnCreate(1, &app.device, null(), &mut context)),
        call!(all, USM.pfnPoolCreate(app.context, &mut pools, &mut pool)),
        call!(
            all,
            CommandBufferExp.pfnCreateExp(app.context, app.device, &buffers, &mut buffer)
        ),
        call!(all, GraphExp.pfnCreateExp(app.context, &mut graph)),
    ];
    assert_eq!(done, [UR_RESULT_SUCCESS; 4]);
    made.extend([context.cast(), pool.cast(), buffer.cast(), graph.cast()]);
    made
}

/// Releases the objects of `objects`.
fn release(app: &Application, made: &[*mut c_void]) {
    let all = &app.all;
    let done = [
        call!(all, Queue.pfnRelease(made[0].cast())),
        call!(all, Event.pfnRelease(made[1].cast())),
        call!(all, Mem.pfnRelease(made[2].cast())),
        call!(all, Context.pfnRelease(made[3].cast())),
        call!(all, USM.pfnPoolRelease(made[4].cast())),
        call!(all, CommandBufferExp.pfnReleaseExp(made[5].cast())),
        call!(all, GraphExp.pfnDestroyExp(made[6].cast())),
    ];
    assert_eq!(done, [UR_RESULT_SUCCESS; 7]);
}

/// Calls each function with many random lists of choices. A watchdog ends the process if a call
/// hangs.
fn each(mut check: impl FnMut(&str, arguments::Call, &[u32]) -> Result<(), TestCaseError>) {
    // SAFETY: `alarm` sets a timer of this process; its default action ends the process.
    unsafe { libc::alarm(300) };
    let config = ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    for &(name, function) in CALLS {
        let choices = proptest::collection::vec(any::<u32>(), 1..24);
        let check = std::cell::RefCell::new(&mut check);
        // Each function has its own runner, since a runner counts its cases over all runs.
        TestRunner::new(config.clone())
            .run(&choices, |choices| {
                check.borrow_mut()(name, function, &choices)
            })
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
#[ignore = "a scenario"]
fn scenario_dead() {
    let app = Application::init();
    let dead = objects(&app);
    release(&app, &dead);
    // A handle of the adapter's form that the adapter did not create.
    // SAFETY: the first word of a live handle points to its table.
    let table = unsafe { *app.queue.cast::<*mut c_void>() };
    let own: &'static mut [*mut c_void; 64] = Box::leak(Box::new([table; 64]));
    let mut handles = dead;
    handles.push(own.as_mut_ptr().cast());
    let mut arguments = arguments::ArgumentSource::new(handles);
    let mut calls = 0;
    each(|name, function, choices| {
        // This function takes no handle.
        if name == "urAdapterGet" {
            return Ok(());
        }
        calls += 1;
        let result = arguments.call(&app.all, function, choices);
        let result = result.ok_or_else(|| TestCaseError::fail("an empty slot"))?;
        prop_assert!(result.name().is_some(), "{result:?}");
        // This function returns UNKNOWN if it cannot write its file.
        let writes = name == "urGraphDumpContentsExp";
        prop_assert!(writes || result != UR_RESULT_ERROR_UNKNOWN, "panicked");
        prop_assert!(result != UR_RESULT_SUCCESS, "took a dead handle");
        Ok(())
    });
    assert!(calls >= 240 * 64);
    app.end();
}

#[test]
#[ignore = "a scenario"]
fn scenario_anything() {
    assert_eq!(loader().init(), UR_RESULT_SUCCESS);
    let set = |name: &str, text: &str| std::env::var(name).is_ok_and(|value| value == text);
    let (device, guarded) = (set(DEVICE, "1"), !set("UR_ENABLE_LAYERS", ""));
    // Without a layer, the mock allocates any size.
    let mut arguments = match device || !guarded {
        true => arguments::ArgumentSource::with_memory(Vec::new()),
        false => arguments::ArgumentSource::new(Vec::new()),
    };
    let (mut last, mut done) = (String::new(), 0);
    let mut current: Option<Application> = None;
    each(|name, function, choices| {
        let ends = ["Release", "Free", "Destroy", "TearDown"];
        if !guarded && ends.iter().any(|word| name.contains(word)) {
            return Ok(());
        }
        if last != name {
            // Earlier calls may have released the objects.
            let app = Application::new();
            let mut handles = Vec::new();
            if guarded {
                handles = objects(&app);
                release(&app, &handles);
            }
            handles.extend(objects(&app));
            handles.extend([
                app.queue.cast(),
                app.context.cast(),
                app.device.cast(),
                app.platform.cast(),
                app.adapter.cast(),
            ]);
            if !device {
                handles.push(app.kernel().cast());
            }
            arguments.replace(handles);
            current = Some(app);
            last = name.to_owned();
        }
        let Some(app) = &current else {
            return Err(TestCaseError::fail("no world"));
        };
        let result = arguments.call(&app.all, function, choices);
        let result = result.ok_or_else(|| TestCaseError::fail("an empty slot"))?;
        prop_assert!(result.name().is_some(), "{result:?}");
        // This function returns UNKNOWN if it cannot write its file.
        let writes = name == "urGraphDumpContentsExp";
        prop_assert!(writes || result != UR_RESULT_ERROR_UNKNOWN, "panicked");
        done += usize::from(result == UR_RESULT_SUCCESS);
        Ok(())
    });
    // Enough calls succeeded that created and retained objects were tested.
    assert!(done > 100, "only {done} calls succeeded");
    assert_eq!(loader().tear_down(), UR_RESULT_SUCCESS);
}

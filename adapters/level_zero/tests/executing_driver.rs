//! The adapter on the driver that executes, which stands in for the loader and has every function.
//!
//! Kernels need Intel's OpenCL driver in the folder of `UR_DRIVERS`, else in `target/drivers`, where
//! `scripts/drivers.sh` puts it. Without it a test says that it is skipped.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

fn repository() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// The folder of Intel's OpenCL driver. None, said aloud, if it was not fetched.
fn opencl() -> Option<PathBuf> {
    let given = std::env::var_os("UR_DRIVERS").map(PathBuf::from);
    let drivers = given.unwrap_or_else(|| repository().join("target/drivers"));
    let entries = std::fs::read_dir(&drivers).into_iter().flatten().flatten();
    let found = entries
        .map(|entry| entry.path().join("lib"))
        .find(|lib| lib.join("libintelocl.so").exists());
    if found.is_none() {
        let at = drivers.display();
        println!("skipped: no Intel OpenCL driver in {at}: scripts/drivers.sh has not run");
    }
    found
}

/// Builds what the tests run, which no dependency makes Cargo build. Returns the folder, in which the driver has the
/// loader's name too.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let test = std::env::current_exe().expect("this test has a file");
        let folder = test.parent().and_then(Path::parent);
        let folder = folder.expect("target/<profile>/deps/<test>").to_owned();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--target-dir"]);
        build.arg(folder.parent().expect("target/<profile>"));
        for package in [
            "ur-adapter-level-zero",
            "scripted-level-zero",
            "ur-loader",
            "ur-tools",
            "ur-conformance",
        ] {
            build.args(["--package", package]);
        }
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        let status = build.status().expect("cargo runs");
        assert!(status.success(), "{build:?} failed");
        let alone = folder.join("scripted_level_zero_alone");
        std::fs::create_dir_all(&alone).expect("a folder");
        // There may be one of an earlier run.
        let _ = symlink(
            folder.join("libscripted_level_zero.so"),
            alone.join("libze_loader.so.1"),
        );
        folder
    })
}

/// A program of this build on the driver.
fn on_driver(opencl: &Path, program: &str) -> Command {
    let built = built();
    let mut command = Command::new(built.join(program));
    command.arg("--loader").arg(built.join("libur_loader.so"));
    let alone = built.join("scripted_level_zero_alone");
    let path = std::env::join_paths([&alone, opencl]).expect("folders without a colon");
    command
        .env("LD_LIBRARY_PATH", path)
        .env("OCL_ICD_FILENAMES", opencl.join("libintelocl.so"))
        .env("OCL_ICD_VENDORS", "")
        .env(
            "UR_ADAPTERS_FORCE_LOAD",
            built.join("libur_adapter_level_zero.so"),
        );
    command
}

/// Runs the tests whose names hold one of these words. Returns the report, and what the program printed.
fn conformance(
    opencl: &Path,
    name: &str,
    filters: &[&str],
    variables: &[(&str, &str)],
) -> (Value, String) {
    let report = built().join(format!("executing_{name}.json"));
    let _ = std::fs::remove_file(&report);
    let known = repository().join("conformance/expectations/level_zero.yml");
    let mut command = on_driver(opencl, "ur-conformance");
    command.args(["--adapter", "level_zero", "--timeout", "60"]);
    command.arg("--expectations").arg(known);
    command.arg("--json").arg(&report);
    command.args(filters.iter().map(|filter| format!("--filter={filter}")));
    command.envs(variables.iter().copied());
    let output = command.output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = std::fs::read_to_string(&report);
    let all = all.unwrap_or_else(|error| panic!("{error}: {text}"));
    (serde_json::from_str(&all).expect("a report"), text)
}

/// Suites of what only newer drivers have, and of devices with parts.
const SUITES: &[&str] = &[
    "native_command::",
    "native_queue::",
    "native_capture::",
    "command_buffer::",
    "command_buffer_update::",
    "graph::",
    "program::",
    "device::",
    "bindless::",
];

#[test]
fn commands_have_their_effects_on_a_driver_with_every_function() {
    let Some(opencl) = opencl() else { return };
    for tiles in ["0", "2"] {
        let (report, text) = conformance(
            &opencl,
            &format!("tiles_{tiles}"),
            SUITES,
            &[("SCRIPTED_LEVEL_ZERO_TILES", tiles)],
        );
        let count = |what: &str| report["totals"][what].as_u64();
        assert_eq!(count("failed"), Some(0), "{text}");
        assert_eq!(count("outdated-expectations"), Some(0), "{text}");
        assert!(count("passed").is_some_and(|passed| passed > 100), "{text}");
        // Bindless images are there, levels of mipmaps too.
        let tests = report["tests"].as_array().expect("a list of tests");
        let of = |name: &str| tests.iter().find(|test| test["test"] == name);
        let levels = of("levels_of_a_mipmap").expect("a test of levels");
        assert_eq!(levels["outcome"], "passed", "{text}");
        println!("{tiles} tiles: {}", text.lines().last().unwrap_or_default());
    }
}

/// The value of a property of the first device, or of its query's error.
fn property(opencl: &Path, name: &str, variables: &[(&str, &str)]) -> Value {
    let mut command = on_driver(opencl, "urinfo");
    command.arg("--json").envs(variables.iter().copied());
    let output = command.output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let all: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let device = &all["adapters"][0]["platforms"][0]["devices"][0];
    let name = format!("UR_DEVICE_INFO_{name}");
    match &device["info"][&name] {
        Value::Null => device["missing"][&name].clone(),
        value => value.clone(),
    }
}

#[test]
fn the_system_interface_tells_of_memory_clocks_fans_and_power() {
    let Some(opencl) = opencl() else { return };
    let number = |name, variables: &[_]| property(&opencl, name, variables).as_u64();
    let all = number("GLOBAL_MEM_SIZE", &[]).expect("a size");
    for tiles in ["0", "2"] {
        let tiles = [("SCRIPTED_LEVEL_ZERO_TILES", tiles)];
        let free = number("GLOBAL_MEM_FREE", &tiles).expect("a size");
        assert!(free.abs_diff(all / 2) < 8, "{free} of {all} bytes are free");
    }
    assert_eq!(number("FAN_SPEED", &[]), Some(55));
    assert_eq!(number("MIN_POWER_LIMIT", &[]), Some(25_000));
    assert_eq!(number("MAX_POWER_LIMIT", &[]), Some(150_000));
    let reasons = property(&opencl, "CURRENT_CLOCK_THROTTLE_REASONS", &[]).to_string();
    assert!(reasons.contains("THERMAL_LIMIT"), "{reasons}");
}

#[test]
fn tiles_that_are_devices_have_a_composite_device() {
    let Some(opencl) = opencl() else { return };
    let tiles = ("SCRIPTED_LEVEL_ZERO_TILES", "2");
    let combined = [tiles, ("SCRIPTED_LEVEL_ZERO_COMBINED", "1")];
    let card = property(&opencl, "COMPOSITE_DEVICE", &combined);
    assert!(!card.is_null() && card != 0, "{card}");
    let none = property(&opencl, "COMPOSITE_DEVICE", &[tiles]);
    assert_ne!(card, none);
    let (report, text) = conformance(&opencl, "combined", &["device::", "kernel::"], &combined);
    assert_eq!(report["totals"]["failed"], 0, "{text}");
}

/// Each function of the system interface, with a property that needs it.
const SYSTEM: &[(&str, &str)] = &[
    ("zesInit", "FAN_SPEED"),
    ("zesDriverGet", "FAN_SPEED"),
    ("zesDriverGetDeviceByUuidExp", "FAN_SPEED"),
    ("zesDeviceEnumMemoryModules", "GLOBAL_MEM_FREE"),
    ("zesMemoryGetProperties", "GLOBAL_MEM_FREE"),
    ("zesMemoryGetState", "GLOBAL_MEM_FREE"),
    (
        "zesDeviceEnumFrequencyDomains",
        "CURRENT_CLOCK_THROTTLE_REASONS",
    ),
    (
        "zesFrequencyGetProperties",
        "CURRENT_CLOCK_THROTTLE_REASONS",
    ),
    ("zesFrequencyGetState", "CURRENT_CLOCK_THROTTLE_REASONS"),
    ("zesDeviceEnumFans", "FAN_SPEED"),
    ("zesFanGetState", "FAN_SPEED"),
    ("zesDeviceEnumPowerDomains", "MIN_POWER_LIMIT"),
    ("zesPowerGetProperties", "MAX_POWER_LIMIT"),
];

/// Every call of a function fails with a code.
fn each(function: &str, code: ze::ze_result_t) -> String {
    format!("{function}:{}:{:x}", u64::MAX, code.0)
}

#[test]
fn what_the_system_interface_does_not_tell_is_unsupported() {
    let Some(opencl) = opencl() else { return };
    for (function, name) in SYSTEM {
        let unsupported = each(function, ze::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
        let found = property(&opencl, name, &[("SCRIPTED_LEVEL_ZERO_FAIL", &unsupported)]);
        let text = found.to_string();
        assert!(
            text.contains("UNSUPPORTED_ENUMERATION"),
            "{function}: {text}"
        );
    }
    // Before a device is found, a failure means that there is none.
    for (function, name) in &SYSTEM[3..] {
        let lost = each(function, ze::ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS);
        let found = property(&opencl, name, &[("SCRIPTED_LEVEL_ZERO_FAIL", &lost)]);
        let text = found.to_string();
        assert!(text.contains("INVALID_OPERATION"), "{function}: {text}");
    }
}

/// Each call that native commands, graphs, changes and links need, with tests that make it.
const CALLS: &[(&str, &[&str])] = &[
    (
        "zeCommandListBeginGraphCaptureExt",
        &["native_capture::", "graph::native"],
    ),
    (
        "zeCommandListEndGraphCaptureExt",
        &["native_capture::", "graph::native"],
    ),
    (
        "zeCommandListIsGraphCaptureEnabledExt",
        &["native_capture::"],
    ),
    ("zeCommandListAppendGraphExt", &["native_capture::"]),
    ("zeGraphIsEmptyExt", &["native_capture::", "graph::native"]),
    (
        "zeGraphInstantiateExt",
        &["native_capture::", "graph::native"],
    ),
    ("zeCommandListAppendHostFunction", &["native_capture::"]),
    (
        "zeCommandListGetNextCommandIdExp",
        &["command_buffer_update::"],
    ),
    (
        "zeCommandListUpdateMutableCommandsExp",
        &["command_buffer_update::"],
    ),
    ("zeCommandListClose", &["command_buffer::native"]),
    ("zeModuleDynamicLink", &["program::dynamic"]),
    ("zeModuleGetProperties", &["program::dynamic"]),
];

/// A failed call makes tests fail. No test ends in a signal or hangs, and none panics.
#[test]
fn each_call_may_fail() {
    let Some(opencl) = opencl() else { return };
    let code = ze::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY.0;
    for (function, filters) in CALLS {
        for nth in [1, 2, u64::MAX] {
            let fault = format!("{function}:{nth}:{code:x}");
            let variables = [("SCRIPTED_LEVEL_ZERO_FAIL", fault.as_str())];
            let (report, text) = conformance(&opencl, "faults", filters, &variables);
            for end in ["the process of the test", "no end after", "panicked"] {
                let all = report.to_string();
                assert!(!all.contains(end), "{fault}: {text}");
            }
            let last = text.lines().last().unwrap_or_default();
            println!("{fault}: {last}");
        }
    }
}

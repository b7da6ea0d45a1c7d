//! `urinfo` through the built loader, with and without devices.

#[path = "../../conformance/tests/support/mod.rs"]
mod support;

use std::process::Command;

use serde_json::Value;
use support::{both, clean, libraries, success};

const PROGRAM: &str = env!("CARGO_BIN_EXE_urinfo");

fn urinfo(arguments: &[&str]) -> Command {
    let mut command = clean(PROGRAM);
    command
        .arg("--loader")
        .arg(libraries().join("libur_loader.so"));
    command.env(
        "UR_ADAPTERS_FORCE_LOAD",
        libraries().join("libur_adapter_native_cpu.so"),
    );
    command.args(arguments);
    command
}

/// The exit code, standard output and standard error.
fn outcome(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().expect("the program starts");
    (output.status.code(), both(&output))
}

#[test]
fn a_line_a_device() {
    let out = success(&mut urinfo(&[]));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 1, "{out}");
    assert!(
        lines[0].starts_with("[native_cpu:cpu][native_cpu:0] SYCL_NATIVE_CPU, "),
        "{out}"
    );
    assert!(
        lines[0].ends_with(']'),
        "a driver version ends the line: {out}"
    );
}

#[test]
fn verbose_shows_every_property() {
    let out = success(&mut urinfo(&["-v"]));
    for part in [
        "\nadapter native_cpu\n  UR_ADAPTER_INFO_BACKEND: UR_BACKEND_NATIVE_CPU\n",
        "\n  urPlatformGetApiVersion: 0.12\n",
        "\n  UR_PLATFORM_INFO_PROFILE: FULL_PROFILE\n",
        "\n  UR_DEVICE_INFO_TYPE: UR_DEVICE_TYPE_CPU\n",
        "\n  UR_DEVICE_INFO_ENDIAN_LITTLE: true\n",
        "\n  UR_DEVICE_INFO_GPU_EU_COUNT: unsupported\n",
        "\n  UR_DEVICE_INFO_ASYNC_USM_ALLOCATIONS_SUPPORT_EXP: true\n",
    ] {
        assert!(out.contains(part), "{part} is missing in {out}");
    }
    assert!(!out.contains("malformed"), "{out}");
    let properties = out
        .lines()
        .filter(|line| line.starts_with("  UR_DEVICE_INFO_"));
    let defined = ur::abi::ur_device_info_t::ALL.len();
    assert_eq!(properties.count(), defined);
}

#[test]
fn json_says_the_same() {
    let out = success(&mut urinfo(&["--json"]));
    let run: Value = serde_json::from_str(&out).expect("valid JSON");
    let device = &run["adapters"][0]["platforms"][0]["devices"][0];
    assert_eq!(run["adapters"][0]["backend"], "native_cpu");
    assert_eq!(run["selector"], Value::Null);
    assert_eq!(
        device["selectors"],
        serde_json::json!(["native_cpu:cpu", "native_cpu:0"])
    );
    let info = &device["info"];
    assert_eq!(info["UR_DEVICE_INFO_ADDRESS_BITS"], 64);
    assert_eq!(info["UR_DEVICE_INFO_ENDIAN_LITTLE"], true);
    assert_eq!(info["UR_DEVICE_INFO_PARENT_DEVICE"], Value::Null);
    assert_eq!(
        info["UR_DEVICE_INFO_MAX_WORK_ITEM_SIZES"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
    let usm = info["UR_DEVICE_INFO_USM_DEVICE_SUPPORT"]
        .as_array()
        .expect("a list of names");
    assert!(
        usm.contains(&"UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ACCESS".into()),
        "{usm:?}"
    );
    let missing = device["missing"].as_object().expect("an object");
    assert_eq!(
        missing["UR_DEVICE_INFO_GPU_EU_COUNT"],
        "UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION"
    );
    let all = info.as_object().expect("an object").len() + missing.len();
    assert_eq!(all, ur::abi::ur_device_info_t::ALL.len());
}

#[test]
fn json_has_everything_with_verbose_too() {
    let names = |arguments: &[&str]| {
        let run: Value = serde_json::from_str(&success(&mut urinfo(arguments))).expect("JSON");
        let info = run["adapters"][0]["platforms"][0]["devices"][0]["info"].clone();
        let info = info.as_object().expect("an object").clone();
        // Values such as handles and free memory differ from run to run.
        info.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    let plain = names(&["--json"]);
    assert_eq!(names(&["-v", "--json"]), plain);
    assert!(plain.len() > 100, "{plain:?}");
}

#[test]
fn the_selector_hides_devices_and_says_so() {
    let select = |selector: &str, arguments: &[&str]| {
        let mut command = urinfo(arguments);
        command.env("ONEAPI_DEVICE_SELECTOR", selector);
        outcome(command)
    };
    let (code, text) = select("native_cpu:gpu", &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("hides 1 device; --all lists it"), "{text}");
    assert!(text.contains("no device is selected"), "{text}");
    let (code, text) = select("native_cpu:gpu", &["--all"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("[native_cpu:cpu][native_cpu:0]"), "{text}");
    let (code, text) = select("native_cpu:5:", &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("native_cpu: urDeviceGetSelected: UR_RESULT_ERROR_INVALID_VALUE"),
        "{text}"
    );
}

#[test]
fn no_adapter_and_no_loader_have_exit_codes() {
    let mut command = urinfo(&[]);
    command.env("UR_ADAPTERS_FORCE_LOAD", "/no/such/adapter.so");
    let (code, text) = outcome(command);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("no adapter was found"), "{text}");
    assert!(
        text.contains("/no/such/adapter.so: cannot open shared object file"),
        "the path and the linker's reason: {text}"
    );

    let mut command = urinfo(&[]);
    command.env("UR_ADAPTERS_FORCE_LOAD", "/no/such/adapter.so");
    command.env("ONEAPI_DEVICE_SELECTOR", "cuda:*");
    let (_, text) = outcome(command);
    assert!(
        !text.contains("SELECTOR"),
        "forced adapters are not filtered: {text}"
    );

    let mut command = urinfo(&["--json"]);
    command.env("UR_ADAPTERS_FORCE_LOAD", "/no/such/adapter.so");
    let output = command.output().expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    let run: Value = serde_json::from_slice(&output.stdout).expect("valid JSON all the same");
    assert_eq!(run["adapters"], serde_json::json!([]));

    let mut command = clean(PROGRAM);
    command.args(["--loader", "/no/such/loader.so"]);
    let (code, text) = outcome(command);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("/no/such/loader.so"), "{text}");
}

#[test]
fn each_adapter_has_a_line_with_its_folders_and_its_reason() {
    // A loader in a folder of its own finds no adapter beside itself.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let loader = folder.path().join("libur_loader.so.0");
    std::fs::copy(libraries().join("libur_loader.so"), &loader).expect("a copy");
    let broken = folder.path().join("libur_adapter_opencl.so.0");
    std::fs::write(broken, "no library").expect("a file");
    let run = |selector: Option<&str>| {
        let mut command = clean(PROGRAM);
        command.arg("--loader").arg(&loader);
        command.env("LD_LIBRARY_PATH", "");
        // Settings of the user's own do not hide the reasons.
        command.env("UR_LOG_LOADER", "level:quiet");
        command.envs(selector.map(|text| ("ONEAPI_DEVICE_SELECTOR", text)));
        let output = command.output().expect("the program starts");
        assert_eq!(output.status.code(), Some(1), "{}", both(&output));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = run(None);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "urinfo: no adapter was found", "{text}");
    let own = folder.path().canonicalize().expect("a path");
    for name in ["cuda", "native_cpu"] {
        let line = format!(
            "urinfo: {name}, in {}, on the dynamic linker's path: cannot open shared object file: \
             No such file or directory",
            own.display()
        );
        assert!(
            lines.contains(&line.as_str()),
            "{line} is missing in {text}"
        );
    }
    let broken = format!("urinfo: opencl, in {}: ", own.display());
    let of_broken = lines.iter().filter(|line| line.starts_with(&broken));
    assert!(
        of_broken.count() > 0 && text.contains("file too short"),
        "{text}"
    );

    let text = run(Some("cuda:*"));
    assert!(
        text.contains(
            "only adapters that may have a device of ONEAPI_DEVICE_SELECTOR=cuda:* are looked for; --all"
        ),
        "{text}"
    );
    assert!(
        text.contains("urinfo: cuda, in ") && !text.contains("native_cpu"),
        "{text}"
    );

    // native_cpu has no GPU.
    let text = run(Some("native_cpu:gpu"));
    assert!(text.ends_with("urinfo: there is none\n"), "{text}");
}

/// An adapter that answers few queries.
#[test]
fn failing_queries_end_nothing() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let adapter = folder.path().join("fake.so");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-fPIC", "-shared", "-I"])
        .arg(root.join("include"))
        .arg(root.join("loader/tests/loader/adapter.c"))
        .arg("-o")
        .arg(&adapter);
    success(&mut cc);
    let mut command = urinfo(&["-v"]);
    command.env("UR_ADAPTERS_FORCE_LOAD", &adapter);
    let out = success(&mut command);
    for number in 0..4 {
        let line = format!("\n[unknown:unknown][unknown:{number}]");
        assert!(out.contains(&line), "{line} is missing in {out}");
    }
    for part in [
        "UR_ADAPTER_INFO_BACKEND: failed: UR_RESULT_ERROR_UNINITIALIZED",
        "urPlatformGetApiVersion: unknown",
        "UR_DEVICE_INFO_NAME: unsupported",
    ] {
        assert!(out.contains(part), "{part} is missing in {out}");
    }
}

#[test]
fn version_is_its_own() {
    let out = success(clean(PROGRAM).arg("--version"));
    assert_eq!(out, format!("urinfo {}\n", env!("CARGO_PKG_VERSION")));
}

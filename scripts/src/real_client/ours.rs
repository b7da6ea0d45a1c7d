//! Clients that use one file of this project: the mock adapter behind libsycl and behind Intel's loader, and
//! urtrace and ur-env around a SYCL program.

use super::environment::Environment;
use super::report::Outcome;
use super::setup::{Setup, Target};
use super::{process, program};
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;

const MOCK: &str = "UR_MOCK_SCRIPT";
const SCRIPT: &str = r#"UR_DEVICE_INFO_NAME = "Scripted"; urEnqueueUSMMemcpy: error DEVICE_LOST"#;

/// A SYCL program on the mock, without a script and with one that changes answers; and conformance/c/mock.c
/// on Intel's loader.
pub(super) fn mock(setup: &Setup<'_>, environment: &Environment) -> Result<Outcome> {
    let source = setup.root.join("conformance/sycl/mock/devices.cpp");
    let devices = program::build(setup, environment, &source, "mock-devices")?;
    let start = || setup.command(environment, Target::Mock, &devices);
    succeed(&mut start(), &devices, "plain")?;
    succeed(
        start().arg("Scripted").env(MOCK, SCRIPT),
        &devices,
        "scripted",
    )?;
    // The loader of 2026.1 has other tables, so it accepts no adapter of this version.
    if environment.runtime.links_loader() {
        return Ok(Outcome::Passed(
            "libsycl, with and without a script".to_owned(),
        ));
    }
    let binary = environment.programs().join("mock-c");
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler
        .args(["-std=c11", "-O1", "-I"])
        .arg(setup.root.join("include"))
        .arg(setup.root.join("conformance/c/mock.c"))
        .arg("-o")
        .arg(&binary)
        .arg("-L")
        .arg(environment.lib())
        .args([
            "-l:libur_loader.so.0",
            "-lpthread",
            "-Wl,--allow-shlib-undefined",
        ]);
    program::compile(&mut compiler, &binary)?;
    let start = || setup.command(environment, Target::Mock, &binary);
    succeed(start().arg("forced"), &binary, "forced")?;
    let folders = format!("{}:{}", environment.lib().display(), setup.lib().display());
    let mut enabled = start();
    enabled
        .env_remove("UR_ADAPTERS_FORCE_LOAD")
        .env("LD_LIBRARY_PATH", folders);
    succeed(&mut enabled, &binary, "enabled")?;
    Ok(Outcome::Passed(
        "libsycl, with and without a script; Intel's loader, forced and enabled".to_owned(),
    ))
}

/// urtrace on the example. Tracing is a layer of our loader. It sees libsycl 2026.1, and must report that it
/// does not see 2026.2.
pub(super) fn trace(setup: &Setup<'_>, environment: &Environment) -> Result<Outcome> {
    let source = setup.root.join("conformance/sycl/async_alloc.cpp");
    let example = program::build(setup, environment, &source, "async_alloc")?;
    let tracer = setup.prefix.join("bin/urtrace");
    let mut command = setup.command(environment, Target::NativeCpu, &tracer);
    command
        .env("LD_LIBRARY_PATH", environment.lib())
        .env("UR_ADAPTERS_FORCE_LOAD", setup.adapter(Target::NativeCpu))
        .arg("--summary")
        .arg(&example);
    let text = succeed(&mut command, &example, "traced")?;
    let wanted = match environment.runtime.links_loader() {
        true => "| urEnqueueUSMDeviceAllocExp ",
        false => "urtrace: nothing was traced",
    };
    if !text.lines().any(|line| line.starts_with(wanted)) {
        bail!("no line starts with {wanted:?}:\n{text}");
    }
    Ok(Outcome::Passed(format!("says {wanted:?}")))
}

/// ur-env keeps a program's default device, the CPU through OpenCL, but through our adapter. A GPU of Level Zero is
/// the default where its driver is. native_cpu is used where the program asks for it.
pub(super) fn default_device(setup: &Setup<'_>, environment: &Environment) -> Result<Outcome> {
    let source = setup.root.join("conformance/sycl/default/device.cpp");
    let program = program::build(setup, environment, &source, "default-device")?;
    let ur_env = setup.prefix.join("bin/ur-env");
    let start = |starter: &Path| {
        let mut command = setup.command(environment, Target::Reference, starter);
        command.env_remove("ONEAPI_DEVICE_SELECTOR");
        command
    };
    let devices = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with("library "));
        lines.map(str::to_owned).collect()
    };
    let plain = devices(&succeed(&mut start(&program), &program, "plain")?);
    let under = succeed(start(&ur_env).arg(&program), &program, "under")?;
    if devices(&under) != plain || !plain.iter().all(|line| line.contains(": opencl, ")) {
        bail!("{plain:?} without ur-env, and with it\n{under}");
    }
    let ours = std::fs::canonicalize(setup.adapter(Target::Intel))?;
    if !under.contains(&format!("library {}", ours.display())) {
        bail!("not on {}:\n{under}", ours.display());
    }
    if setup.missing_driver(Target::LevelZero).is_none() {
        let mut on_gpu = setup.command(environment, Target::LevelZero, &ur_env);
        on_gpu
            .env("LD_LIBRARY_PATH", environment.lib())
            .env_remove("UR_ADAPTERS_FORCE_LOAD")
            .env_remove("ONEAPI_DEVICE_SELECTOR");
        let text = succeed(on_gpu.arg(&program), &program, "gpu")?;
        let ours = std::fs::canonicalize(setup.adapter(Target::LevelZero))?;
        let is_default = text.contains("default: ext_oneapi_level_zero, ");
        if !is_default || !text.contains(&format!("library {}", ours.display())) {
            bail!("a GPU of Level Zero is there, and found is\n{text}");
        }
    }
    let mut named = start(&ur_env);
    named.args(["--adapter", "native_cpu"]).arg(&program);
    let mut selected = start(&ur_env);
    selected
        .arg(&program)
        .env("ONEAPI_DEVICE_SELECTOR", "native_cpu:cpu");
    for (command, what) in [(&mut named, "named"), (&mut selected, "selected")] {
        let text = succeed(command, &program, what)?;
        let found = devices(&text);
        if !found.iter().all(|line| line.contains("native_cpu, ")) {
            bail!("native_cpu is {what}, and found is\n{text}");
        }
    }
    Ok(Outcome::Passed(plain.join("; ")))
}

/// Runs a command that must succeed. Returns its output, which it keeps in files beside `binary`.
fn succeed(command: &mut Command, binary: &Path, what: &str) -> Result<String> {
    let out = binary.with_extension(format!("{what}.out"));
    let err = binary.with_extension(format!("{what}.err"));
    let ended = process::run(command, &out, &err, program::LIMIT)?;
    if ended.code() != Some(0) {
        bail!("{what}: {ended}\n{}", process::tail(&err, 5));
    }
    let read =
        |path: &Path| std::fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned());
    Ok(read(&out)? + &read(&err)?)
}

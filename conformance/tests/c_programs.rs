//! The C programs and examples: compiled by the C compiler against `include/` and the built loader, and run
//! on the adapter that the environment chooses.

mod support;

use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{both, build, clean, libraries, success};
use tempfile::TempDir;

/// A program, and the folder with the loader under the names that the linker and the system search.
struct Built {
    folder: TempDir,
    program: PathBuf,
}

impl Built {
    /// Of `conformance/c`.
    fn new(name: &str) -> Self {
        Self::of("c", name)
    }

    /// Of `examples`.
    fn example(name: &str) -> Self {
        Self::of("../examples", name)
    }

    /// Of `examples/mistakes`.
    fn mistake(name: &str) -> Self {
        Self::of("../examples/mistakes", name)
    }

    fn of(place: &str, name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for link in ["libur_loader.so", "libur_loader.so.0"] {
            symlink(
                libraries().join("libur_loader.so"),
                folder.path().join(link),
            )
            .expect("a link");
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = folder.path().join(name);
        let source = root.join(place).join(name).with_extension("cpp");
        let (source, compiler, standard) = if source.exists() {
            (source, "c++", "-std=c++17")
        } else {
            (source.with_extension("c"), "cc", "-std=c11")
        };
        let mut cc = Command::new(compiler);
        cc.args([
            standard,
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-O1",
            "-o",
        ])
        .arg(&program);
        cc.arg(source).arg("-I").arg(root.join("../include"));
        cc.arg("-L")
            .arg(folder.path())
            .args(["-lur_loader", "-pthread", "-ldl"]);
        success(&mut cc);
        Self { folder, program }
    }

    fn command(&self) -> Command {
        let mut command = clean(&self.program);
        command.env("LD_LIBRARY_PATH", self.folder.path());
        command
    }

    /// A command that forces an adapter by its path.
    fn forced(&self) -> Command {
        let mut command = self.command();
        command.env(
            "UR_ADAPTERS_FORCE_LOAD",
            libraries().join("libur_adapter_native_cpu.so"),
        );
        command
    }
}

fn says_ok(output: &str) {
    assert!(
        output.lines().any(|line| line.starts_with("ok")),
        "{output}"
    );
}

#[test]
fn asynchronous_allocation() {
    let built = Built::example("async_alloc");
    says_ok(&success(&mut built.forced()));
    // Through discovery, with a device selector.
    let mut found = built.command();
    found
        .env("UR_ADAPTERS_SEARCH_PATH", libraries())
        .env("ONEAPI_DEVICE_SELECTOR", "native_cpu:cpu");
    says_ok(&success(&mut found));
}

#[test]
fn the_selector_can_leave_nothing() {
    let built = Built::example("async_alloc");
    let mut command = built.forced();
    let output = command
        .env("ONEAPI_DEVICE_SELECTOR", "native_cpu:gpu")
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(77), "{}", both(&output));
    assert!(
        both(&output).contains("no device of native_cpu adapter; is ONEAPI_DEVICE_SELECTOR right?"),
        "{}",
        both(&output)
    );
}

/// The example takes the adapter that can run its kernels, though another comes first.
#[test]
fn the_adapter_that_can_run_it() {
    let built = Built::example("async_alloc");
    let adapters = ["mock", "native_cpu"].map(|name| {
        let library = format!("libur_adapter_{name}.so");
        libraries().join(library).display().to_string()
    });
    let mut both_forced = built.command();
    both_forced.env("UR_ADAPTERS_FORCE_LOAD", adapters.join(","));
    says_ok(&success(&mut both_forced));
}

/// Runs an example, which must print these lines.
fn prints(command: &mut Command, lines: &[&str]) {
    let output = success(command);
    for line in lines {
        assert!(
            output.lines().any(|found| found.contains(line)),
            "no {line:?} in {output}"
        );
    }
}

#[test]
fn example_enumerate() {
    let built = Built::example("enumerate");
    prints(&mut built.forced(), &["GiB, asynchronous allocation"]);
    let mut none = built.forced();
    none.env("ONEAPI_DEVICE_SELECTOR", "native_cpu:gpu");
    assert_eq!(none.status().expect("the program starts").code(), Some(1));
}

#[test]
fn example_two_queues() {
    let lines = [
        "ordered by an event: the same memory, 1 hit without a wait",
        "without an order: other memory",
        "the data is right",
    ];
    prints(&mut Built::example("two_queues").forced(), &lines);
}

#[test]
fn example_pool_limits() {
    let lines = [
        "a sixth block of 16 MiB is refused",
        "after the free of one it is served",
        "reserved at most 80 MiB, 16 MiB after everything was freed",
    ];
    prints(&mut Built::example("pool_limits").forced(), &lines);
}

#[test]
fn example_kernel_so() {
    let built = Built::example("kernel_so");
    let kernels = built.folder.path().join("kernels.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/kernels.c");
    let mut cc = Command::new("cc");
    cc.args([
        "-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC",
    ]);
    success(cc.arg(source).arg("-o").arg(&kernels));
    prints(
        built.forced().arg(&kernels),
        &[
            "squares of 0 to 1023 are right",
            "a launch without the last argument is refused",
        ],
    );
}

#[test]
fn example_mock_test() {
    let built = Built::example("mock_test");
    let mut command = built.command();
    command.env("UR_ADAPTERS_SEARCH_PATH", libraries());
    let lines = ["2 calls of urEnqueueUSMMemcpy", "no handle is left"];
    prints(&mut command, &lines);
}

/// On each OpenCL driver here: that of the system, and those that `scripts/drivers.sh` put in `target/drivers`.
#[test]
fn example_spirv() {
    let built = Built::example("spirv");
    let kernels = built.folder.path().join("kernels.spv");
    let writer = Command::new(env!("CARGO_BIN_EXE_ur-conformance"))
        .arg("--write-kernels")
        .arg(&kernels)
        .output()
        .expect("ur-conformance starts");
    assert!(writer.status.success(), "{}", both(&writer));
    let adapter = build(&["ur-adapter-opencl"]).join("libur_adapter_opencl.so");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let drivers = libraries().with_file_name("drivers");
    let mut ran = 0;
    for driver in [None, Some("intel"), Some("pocl")] {
        let mut command = match driver {
            Some(_) if !drivers.exists() => continue,
            Some(driver) => {
                let mut command = clean(root.join("scripts/drivers.sh"));
                command.arg(&drivers).arg(driver).arg(&built.program);
                command
            }
            None => built.command(),
        };
        command.arg(&kernels);
        command.env("LD_LIBRARY_PATH", built.folder.path());
        command.env("UR_ADAPTERS_FORCE_LOAD", &adapter);
        let output = command.output().expect("the program starts");
        let said = both(&output);
        match output.status.code() {
            Some(0) => assert!(said.contains("iota of 1024 is right"), "{driver:?}: {said}"),
            // Intel's driver takes SPIR-V. PoCL's packages do not, and a system may have no driver.
            Some(77) if driver != Some("intel") => {
                println!("{driver:?}: {said}");
                continue;
            }
            _ => panic!("{driver:?}: {}: {said}", output.status),
        }
        ran += 1;
    }
    if ran == 0 {
        println!("skipped: no driver for SPIR-V; `scripts/drivers.sh target/drivers` installs one");
    }
}

/// Without a device of the backend an example is skipped and says so.
#[test]
fn example_spirv_without_opencl() {
    let built = Built::example("spirv");
    let output = built.forced().arg(env!("CARGO_MANIFEST_PATH")).output();
    let output = output.expect("the program starts");
    assert_eq!(output.status.code(), Some(77), "{}", both(&output));
    assert!(both(&output).contains("skipped"), "{}", both(&output));
}

#[test]
fn calls_in_cs_own_ways() {
    says_ok(&success(&mut Built::new("abi_calls").forced()));
}

/// Each life cycle ends cleanly: from several threads, after a fork, and with two loaders over one adapter
/// library.
///
/// The second loader is a copy, which the system takes for another library.
#[test]
fn life_cycle() {
    let built = Built::new("lifecycle");
    let loader = libraries().join("libur_loader.so");
    let other = built.folder.path().join("other_loader.so");
    std::fs::copy(&loader, &other).expect("a copy of the loader");
    for test in ["again", "quiet", "threads", "fork", "two-loaders"] {
        let mut command = built.forced();
        let output = success(command.arg(test).arg(&loader).arg(&other));
        assert_eq!(output, format!("ok {test}\n"));
    }
}

/// A thousand rounds from four threads: the pool does not grow, no byte is wrong, no object is left.
#[test]
fn rounds_leave_nothing_behind() {
    let built = Built::new("rounds");
    let output = success(built.forced().env("ROUNDS_NEED", "objects"));
    assert!(output.contains("objects left: none"), "{output}");
    says_ok(&output);
}

/// The guide quotes what the layers say of each planted mistake.
#[test]
fn each_mistake_is_found_as_the_guide_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let guide = root.join("docs/src/guides/mistakes.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let folder = std::fs::read_dir(root.join("examples/mistakes")).expect("the programs");
    let mut paths: Vec<PathBuf> = folder
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    assert!(paths.len() > 15, "{paths:?}");
    assert_eq!(quotes(&guide).len(), paths.len());
    for path in paths {
        let name = path.file_stem().expect("a name").to_string_lossy();
        let quote = quotes(&guide)
            .into_iter()
            .find(|(quoted, _)| *quoted == name)
            .unwrap_or_else(|| panic!("the guide lacks `{name}.c`"));
        let built = Built::mistake(&name);
        let mut command = built.forced();
        let source = std::fs::read_to_string(&path).expect("a source");
        let usage = source.lines().nth(2).expect("a command line");
        for (variable, value) in usage.split(' ').filter_map(|word| word.split_once('=')) {
            command.env(variable, value);
        }
        let output = command.output().expect("the program starts");
        assert!(output.status.success(), "{name}: {}", both(&output));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(numbered(&said), numbered(quote.1), "{name}:\n{said}");
    }
}

/// The programs that the guide names, each with the block that follows.
fn quotes(guide: &str) -> Vec<(&str, &str)> {
    let mut parts = guide.split("\n`examples/mistakes/");
    parts.next();
    let quote = |part| {
        let (name, rest) = str::split_once(part, ".c`").expect("a C program");
        let (_, block) = rest.split_once("```text\n").expect("a block");
        let (block, _) = block.split_once("```").expect("a whole block");
        (name, block)
    };
    parts.map(quote).collect()
}

/// A log in which each address is a number, by the order of its first appearance.
fn numbered(log: &str) -> String {
    let mut addresses: Vec<&str> = Vec::new();
    let mut out = String::new();
    for line in log.lines() {
        let mut parts = line.split("0x");
        out.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let end = part.find(|digit: char| !digit.is_ascii_hexdigit());
            let (address, rest) = part.split_at(end.unwrap_or(part.len()));
            let known = addresses.iter().position(|known| *known == address);
            let number = known.unwrap_or(addresses.len());
            if known.is_none() {
                addresses.push(address);
            }
            out.push_str(&format!("0x#{number}{rest}"));
        }
        out.push('\n');
    }
    out
}

/// `UR_VALIDATION_ON_FINDING` decides how a process with a finding ends.
#[test]
fn a_finding_can_fail_the_process() {
    let built = Built::new("on_finding");
    let loader = built.folder.path().join("libur_loader.so.0");
    let run = |mode: &str, effect: Option<&str>| {
        let mut command = built.forced();
        command.env("UR_ENABLE_LAYERS", "UR_LAYER_LIFETIME_VALIDATION");
        command.envs(effect.map(|effect| ("UR_VALIDATION_ON_FINDING", effect)));
        let output = command.arg(mode).arg(&loader).output();
        let output = output.expect("the program starts");
        let said = both(&output);
        assert!(said.contains("was not returned by any adapter"), "{said}");
        (
            output.status,
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let all = "buffered, ends\n";
    for effect in [None, Some("continue")] {
        let (status, out) = run("ends", effect);
        assert_eq!((status.code(), out.as_str()), (Some(0), all));
    }
    for mode in ["ends", "late", "unloads", "forks"] {
        let (status, out) = run(mode, Some("exit"));
        assert_eq!(status.code(), Some(66), "{mode}: {out}");
        assert!(out.ends_with(all), "{mode}: {out}");
    }
    // A status of the program's own stays.
    let (status, _) = run("fails", Some("exit"));
    assert_eq!(status.code(), Some(3));
    let (status, out) = run("ends", Some("abort"));
    assert_eq!((status.signal(), out.as_str()), (Some(ABORT), ""));
}

/// `SIGABRT`.
const ABORT: i32 = 6;

/// Leaks are found at the teardown. A refused argument is no error, since programs probe.
#[test]
fn leaks_fail_the_process_and_refused_arguments_do_not() {
    let status = |name: &str, layer: &str, effect: &str| {
        let built = Built::mistake(name);
        let mut command = built.forced();
        command.env("UR_ENABLE_LAYERS", layer);
        command.env("UR_VALIDATION_ON_FINDING", effect);
        let output = command.output().expect("the program starts");
        (output.status, both(&output))
    };
    let (leak, said) = status("leaked_memory", "UR_LAYER_LEAK_CHECKING", "exit");
    assert_eq!(leak.code(), Some(66), "{said}");
    // All leaks are listed before the process stops.
    let (leak, said) = status("leaked_memory", "UR_LAYER_LEAK_CHECKING", "abort");
    assert_eq!(leak.signal(), Some(ABORT), "{said}");
    assert!(said.contains("leaked: 2 allocations"), "{said}");
    for effect in ["exit", "abort"] {
        let (refused, said) = status("null_handle", "UR_LAYER_PARAMETER_VALIDATION", effect);
        assert_eq!(refused.code(), Some(0), "{said}");
    }
}

/// Leak checking knows each function that makes something, and the one that ends it.
#[test]
fn what_is_made_and_not_ended_is_a_leak() {
    let built = Built::new("unended");
    let run = |mode: &str| {
        let mut command = built.command();
        command.env(
            "UR_ADAPTERS_FORCE_LOAD",
            libraries().join("libur_adapter_mock.so"),
        );
        command.env("UR_ENABLE_LAYERS", "UR_LAYER_LEAK_CHECKING");
        command.env("UR_LOG_VALIDATION", "level:info");
        let output = command.arg(mode).output().expect("the program starts");
        assert!(output.status.success(), "{}", both(&output));
        numbered(&String::from_utf8_lossy(&output.stderr))
    };
    let said = run("leaks");
    let leaks: Vec<&str> = said
        .lines()
        .filter_map(|line| line.strip_prefix("<VALIDATION>[ERROR]: "))
        .collect();
    let made = [
        "leak: physical memory 0x#0, 1st of urPhysicalMemCreate, has 1 reference",
        "leak: external memory 0x#1, 1st of urBindlessImagesImportExternalMemoryExp, has 1 reference",
        "leak: never freed: 64 bytes of device memory at 0x#2, 1st of urUSMDeviceAlloc, on device 0x#3, \
         1st of urDeviceGet, in context 0x#4, 1st of urContextCreate",
        "leak: never freed: 128 bytes of exportable device memory at 0x#5, 1st of \
         urMemoryExportAllocExportableMemoryExp, on device 0x#3, 1st of urDeviceGet, in context 0x#4, 1st \
         of urContextCreate",
        "leak: never given back: IPC handle of memory at 0x#6, 1st of urIPCGetMemHandleExp, in context \
         0x#4, 1st of urContextCreate",
        "leak: never freed: memory of another process at 0x#7, 1st of urIPCOpenMemHandleExp, on device \
         0x#3, 1st of urDeviceGet, in context 0x#4, 1st of urContextCreate",
        "leak: never freed: 4096 bytes of reserved addresses at 0x#8, 1st of urVirtualMemReserve, in \
         context 0x#4, 1st of urContextCreate",
        "leak: never unregistered: 4096 bytes of registered host memory at 0x#9, 1st of \
         urUSMHostAllocRegisterExp, in context 0x#4, 1st of urContextCreate",
        "leak: never released: 4096 bytes of imported host memory at 0x#10, 1st of urUSMImportExp, in \
         context 0x#4, 1st of urContextCreate",
        "leak: never freed: 256 bytes of mapped external memory at 0x#11, 1st of \
         urBindlessImagesMapExternalLinearMemoryExp, on device 0x#3, 1st of urDeviceGet, in context 0x#4, \
         1st of urContextCreate",
        "leak: never freed: image memory 0x#12, 1st of urBindlessImagesImageAllocateExp, on device 0x#3, \
         1st of urDeviceGet, in context 0x#4, 1st of urContextCreate",
        "leak: never destroyed: unsampled image 0x#13, 1st of urBindlessImagesUnsampledImageCreateExp, on \
         device 0x#3, 1st of urDeviceGet, in context 0x#4, 1st of urContextCreate",
        "leak: never destroyed: sampled image 0x#14, 1st of urBindlessImagesSampledImageCreateExp, on \
         device 0x#3, 1st of urDeviceGet, in context 0x#4, 1st of urContextCreate",
        "leaked: 2 handles, 4 allocations (448 bytes), 1 reservation (4096 bytes), 1 registration (4096 \
         bytes), 1 import (4096 bytes), 1 IPC handle, 1 image, 1 sampled image and 1 unsampled image",
    ];
    assert_eq!(leaks, made, "{said}");
    assert_eq!(run("ends"), "<VALIDATION>[INFO]: nothing is leaked\n");
}

#[test]
fn functions_that_the_reference_dropped() {
    says_ok(&success(&mut Built::new("dropped_functions").forced()));
}

/// Callbacks, scripts, counts and threads: with mocking enabled, and with the mock forced beside a real
/// adapter.
#[test]
fn the_mock() {
    let built = Built::new("mock");
    let mut enabled = built.command();
    enabled.env("UR_ADAPTERS_SEARCH_PATH", libraries());
    says_ok(&success(&mut enabled));
    let cpp = Built::new("mock_callbacks");
    let mut in_cpp = cpp.command();
    in_cpp.env("UR_ADAPTERS_SEARCH_PATH", libraries());
    says_ok(&success(&mut in_cpp));
    let mut forced = built.command();
    let adapters = ["mock", "native_cpu"].map(|name| {
        let library = format!("libur_adapter_{name}.so");
        libraries().join(library).display().to_string()
    });
    forced.env("UR_ADAPTERS_FORCE_LOAD", adapters.join(","));
    says_ok(&success(forced.arg("forced")));
}

/// A script in the environment applies before any code of the test. A script with a mistake makes every call
/// fail.
#[test]
fn the_mock_by_script() {
    let built = Built::example("two_queues");
    let folder = built.folder.path();
    let run = |script: &str| {
        let mut command = built.command();
        command.env(
            "UR_ADAPTERS_FORCE_LOAD",
            libraries().join("libur_adapter_mock.so"),
        );
        command.env("UR_MOCK_SCRIPT", script);
        both(&command.output().expect("the program starts"))
    };
    std::fs::write(
        folder.join("script"),
        "# a context\nurContextCreate: error DEVICE_LOST\n",
    )
    .expect("a file");
    let by_file = run(&format!("@{}", folder.join("script").display()));
    let inline = run("urContextCreate: error DEVICE_LOST");
    assert!(
        by_file.contains("urContextCreate") && by_file == inline,
        "{by_file} {inline}"
    );
    let broken = run("urContextCreate: error DEVICE_MISLAID");
    assert!(
        broken.contains("<MOCK>[ERROR]: UR_MOCK_SCRIPT: line 1, column 24: no error is called"),
        "{broken}"
    );
}

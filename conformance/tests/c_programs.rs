//! The C programs and examples: compiled by the C compiler against `include/` and the built loader, and run
//! on the adapter that the environment chooses.

mod support;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{both, clean, libraries, success};
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
        "ordered by an event: the same memory, 1 hit by order",
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
        &["squares of 0 to 1023 are right"],
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

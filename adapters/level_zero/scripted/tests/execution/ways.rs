//! The ways to reach the driver: alone, and behind Debian's loaders. A test runs itself in a process for each.
//!
//! The loaders are in the folder of `UR_LEVEL_ZERO`, else in `target/level_zero`, where `scripts/level_zero.sh` puts
//! them. Intel's OpenCL driver is in the folder of `UR_DRIVERS`, else in `target/drivers`, where `scripts/drivers.sh`
//! puts it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The variable that tells a process which folder was built.
const BUILT: &str = "SCRIPTED_TEST_BUILT";
/// The variable that tells a process which library to open.
const LIBRARY: &str = "SCRIPTED_TEST_LIBRARY";

pub fn repository() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(3).unwrap_or(here)
}

fn folder(variable: &str, usual: &str) -> PathBuf {
    let given = std::env::var_os(variable).map(PathBuf::from);
    given.unwrap_or_else(|| repository().join(usual))
}

/// The folder of this build's libraries and programs, with what a test runs beside itself.
pub fn built() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        if let Some(folder) = std::env::var_os(BUILT) {
            return folder.into();
        }
        let test = std::env::current_exe().expect("this test has a file");
        let folder = test.parent().and_then(Path::parent);
        let folder = folder.expect("target/<profile>/deps/<test>").to_owned();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--target-dir"]);
        build.arg(folder.parent().expect("target/<profile>"));
        build.args([
            "--package",
            "scripted-level-zero",
            "--package",
            "ur-conformance",
        ]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(
            build.status().expect("cargo runs").success(),
            "{build:?} failed"
        );
        folder
    })
}

pub fn driver() -> PathBuf {
    built().join("libscripted_level_zero.so")
}

/// The folder of Intel's OpenCL driver's libraries. None, said aloud, if it was not fetched.
fn opencl() -> Option<PathBuf> {
    let drivers = folder("UR_DRIVERS", "target/drivers");
    let entries = std::fs::read_dir(&drivers).into_iter().flatten().flatten();
    let found = entries
        .map(|entry| entry.path().join("lib"))
        .find(|lib| lib.join("libintelocl.so").exists());
    if found.is_none() {
        println!(
            "skipped: no Intel OpenCL driver in {}: scripts/drivers.sh has not run",
            drivers.display()
        );
    }
    found
}

/// One way to reach the driver.
struct Way {
    name: &'static str,
    program: PathBuf,
    library: PathBuf,
    /// Folders of libraries.
    path: Vec<PathBuf>,
}

/// The ways that can be had here. Those that cannot are said aloud.
fn ways() -> Vec<Way> {
    let test = std::env::current_exe().expect("this test has a file");
    let mut ways = vec![Way {
        name: "alone",
        program: test.clone(),
        library: driver(),
        path: Vec::new(),
    }];
    let fetched = folder("UR_LEVEL_ZERO", "target/level_zero");
    for suite in ["bookworm", "sid"] {
        let libraries = fetched.join(suite).join("root/usr/lib/x86_64-linux-gnu");
        let library = libraries.join("libze_loader.so.1");
        if !library.exists() {
            println!(
                "skipped: no loader of {suite} in {}: scripts/level_zero.sh has not run",
                fetched.display()
            );
            continue;
        }
        let (program, path) = match suite {
            // The loader of a newer system needs that system's C library, and so a program that starts there.
            "sid" => match copy(&fetched, &test) {
                Some(program) => (program, vec![libraries]),
                None => {
                    println!(
                        "skipped: no program for {suite}: patchelf is not in {}",
                        fetched.display()
                    );
                    continue;
                }
            },
            _ => (test.clone(), Vec::new()),
        };
        ways.push(Way {
            name: suite,
            program,
            library,
            path,
        });
    }
    ways
}

fn copy(fetched: &Path, test: &Path) -> Option<PathBuf> {
    static COPY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let make = || {
        let mut script = Command::new(repository().join("scripts/level_zero.sh"));
        let output = script.arg(fetched).arg("copy").arg(test).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| PathBuf::from(text.trim()))
    };
    COPY.get_or_init(make).clone()
}

/// Runs a test's body in a process for each way, with variables. In such a process, runs the body.
pub fn everywhere(name: &str, variables: &[(&str, &str)], body: impl FnOnce(&Path)) {
    if let Some(library) = std::env::var_os(LIBRARY) {
        return body(Path::new(&library));
    }
    let opencl = opencl();
    for way in ways() {
        let mut child = Command::new(&way.program);
        child.args(["--exact", name, "--nocapture"]);
        child
            .env(LIBRARY, &way.library)
            .env(BUILT, built())
            .env("ZE_ENABLE_ALT_DRIVERS", driver());
        child.envs(variables.iter().copied());
        let mut path = way.path;
        // Only Intel's driver, or none: others may take no SPIR-V.
        let vendors = tempdir();
        if let Some(lib) = &opencl {
            let driver = lib.join("libintelocl.so");
            let name = driver.as_os_str().as_encoded_bytes();
            std::fs::write(vendors.join("intel.icd"), name).expect("a folder of this test");
            child.env("OCL_ICD_FILENAMES", driver);
            path.push(lib.clone());
        }
        child.env("OCL_ICD_VENDORS", vendors);
        child.env(
            "LD_LIBRARY_PATH",
            std::env::join_paths(&path).expect("no colon in a folder's name"),
        );
        let output = child.output().expect("the test starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{name}, {}: {}\n{text}{}",
            way.name,
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        let said = text.lines().filter(|line| line.starts_with("skipped"));
        said.for_each(|line| println!("{}: {line}", way.name));
        println!("{}: passed", way.name);
    }
}

fn tempdir() -> PathBuf {
    let folder = built().join("scripted-vendors");
    std::fs::create_dir_all(&folder).expect("the build's folder is writable");
    folder
}

/// The conformance suite's kernels, as SPIR-V.
pub fn kernels() -> Vec<u8> {
    let file = built().join(format!("scripted-kernels-{}.spv", std::process::id()));
    let mut program = Command::new(built().join("ur-conformance"));
    // The libraries of the newer system are not this program's.
    program
        .env_remove("LD_LIBRARY_PATH")
        .arg("--write-kernels")
        .arg(&file);
    assert!(
        program.status().expect("ur-conformance runs").success(),
        "{program:?} failed"
    );
    let bytes = std::fs::read(&file).expect("ur-conformance wrote it");
    std::fs::remove_file(&file).expect("it is there");
    bytes
}

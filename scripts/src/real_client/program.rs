//! The SYCL programs of conformance/sycl: built for a release of libsycl, run on a target, and judged by
//! their output.

use super::Client;
use super::environment::Environment;
use super::output::Output;
use super::process;
use super::report::Outcome;
use super::setup::{Setup, Target};
use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

/// Time limit of a program.
pub const LIMIT: Duration = Duration::from_secs(300);

/// The programs' sources, by name.
pub fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    files(root, "cpp")
}

/// The files of conformance/sycl with this extension, by name.
fn files(root: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let folder = root.join("conformance/sycl");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

pub fn name(source: &Path) -> String {
    source
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Builds the clients' programs, one on each processor at a time. A failed build is reported by the program's
/// run.
pub(super) fn build_all(setup: &Setup<'_>, environment: &Environment, clients: &[Client]) {
    let sources = clients.iter().filter_map(|client| match client {
        Client::Program(source) => Some(source),
        _ => None,
    });
    let sources = Mutex::new(sources);
    let next = || sources.lock().ok().and_then(|mut sources| sources.next());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(source) = next() {
                    let _ = build(setup, environment, source, &name(source));
                }
            });
        }
    });
}

/// The program `name` of a source, rebuilt if the source or a header changed.
pub(super) fn build(
    setup: &Setup<'_>,
    environment: &Environment,
    source: &Path,
    name: &str,
) -> Result<PathBuf> {
    let binary = environment.programs().join(name);
    let headers = files(setup.root, "hpp")?;
    let headers = headers.iter().filter_map(|path| modified(path)).max();
    if modified(&binary) >= modified(source).max(headers) {
        return Ok(binary);
    }
    if binary.exists() {
        std::fs::remove_file(&binary)?;
    }
    let Ok(compiler) = &setup.compiler else {
        bail!("no C++ compiler");
    };
    let mut compiler = Command::new(compiler);
    link(&mut compiler, environment, source, &binary);
    compile(&mut compiler, &binary)?;
    Ok(binary)
}

/// The compiler's command line for a source and a release of libsycl.
pub fn link(compiler: &mut Command, environment: &Environment, source: &Path, binary: &Path) {
    compiler
        .args(["-std=c++17", "-O1", "-w", "-pthread", "-I"])
        .arg(environment.include())
        .arg(source)
        .arg("-o")
        .arg(binary)
        .arg("-L")
        .arg(environment.lib())
        .args(["-l:libsycl.so.9", "-Wl,--allow-shlib-undefined"]);
}

/// Runs a compiler. Its output is the error.
pub fn compile(compiler: &mut Command, binary: &Path) -> Result<()> {
    let out = binary.with_extension("cc.out");
    let err = binary.with_extension("cc.err");
    let ended = process::run(compiler, &out, &err, Duration::from_secs(600))?;
    if ended.code() != Some(0) {
        bail!("does not compile:\n{}", process::tail(&err, 20));
    }
    Ok(())
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path)
        .and_then(|data| data.modified())
        .ok()
}

/// Runs a program and judges it.
pub(super) fn run(
    setup: &Setup<'_>,
    environment: &Environment,
    target: Target,
    source: &Path,
) -> Result<Outcome> {
    let binary = build(setup, environment, source, &name(source))?;
    let stem = target.name().replace('/', "-");
    let out = binary.with_extension(format!("{stem}.out"));
    let err = binary.with_extension(format!("{stem}.err"));
    let start = Instant::now();
    let mut command = setup.command(environment, target, &binary);
    let ended = process::run(command.arg(&setup.kernels), &out, &err, LIMIT)?;
    let seconds = start.elapsed().as_secs_f64();
    let output = Output::parse(&String::from_utf8_lossy(&std::fs::read(&out)?));
    let (program, runtime) = (name(source), environment.runtime);
    let expected = |part: &str| setup.expectations.find(&program, part, target, runtime);
    let mut outcome = output.judge(&ended, expected, setup.strict);
    if !output.parts.is_empty() && !matches!(outcome, Outcome::Failed(_)) {
        // A run on other libraries proves nothing about ours.
        if let Err(fault) = setup.check_libraries(environment, target, &output.libraries) {
            outcome = Outcome::Failed(fault);
        }
    }
    Ok(match outcome {
        Outcome::Passed(summary) => Outcome::Passed(format!("{summary}, {seconds:.1} s")),
        Outcome::Failed(why) => {
            let last = process::tail(&err, 5);
            Outcome::Failed(format!("{why}\n{last}").trim_end().to_owned())
        }
        skipped => skipped,
    })
}

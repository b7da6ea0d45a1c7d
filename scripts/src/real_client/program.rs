//! The SYCL programs of conformance/sycl: built against a release of libsycl, run on a target, judged
//! by what they print.

use super::environment::Environment;
use super::output::Output;
use super::process;
use super::report::Outcome;
use super::{Bench, Client, Target};
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

/// A program that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(300);

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

/// Builds what is older than its sources, as many at once as there are processors. A program that
/// does not compile is left out, with the compiler's output beside it.
pub fn build_all(root: &Path, environment: &Environment, clients: &[Client]) -> Result<()> {
    let headers = files(root, "hpp")?;
    let headers = headers.iter().filter_map(|path| modified(path)).max();
    let mut old = Vec::new();
    for client in clients {
        if let Client::Program(source) = client
            && modified(&binary(environment, source)) < modified(source).max(headers)
        {
            old.push(source);
        }
    }
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let queue = Mutex::new(old.into_iter());
    let next = || queue.lock().ok().and_then(|mut queue| queue.next());
    std::thread::scope(|scope| {
        let build = || -> Result<()> {
            while let Some(source) = next() {
                build(environment, source)?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(build)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| match thread.join() {
                Ok(built) => built,
                Err(panic) => std::panic::resume_unwind(panic),
            })
    })
}

fn build(environment: &Environment, source: &Path) -> Result<()> {
    let binary = binary(environment, source);
    if binary.exists() {
        std::fs::remove_file(&binary)?;
    }
    let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    compiler
        .args(["-std=c++17", "-O1", "-w", "-pthread", "-I"])
        .arg(environment.include())
        .arg(source)
        .arg("-o")
        .arg(&binary)
        .arg("-L")
        .arg(environment.lib())
        .args(["-l:libsycl.so.9", "-Wl,--allow-shlib-undefined"]);
    let (out, err) = (
        binary.with_extension("cc.out"),
        binary.with_extension("cc.err"),
    );
    process::run(&mut compiler, &out, &err, Duration::from_secs(600))?;
    Ok(())
}

fn binary(environment: &Environment, source: &Path) -> PathBuf {
    environment.programs().join(name(source))
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path)
        .and_then(|data| data.modified())
        .ok()
}

/// Runs a program and judges it.
pub(super) fn run(
    bench: &Bench<'_>,
    environment: &Environment,
    target: Target,
    source: &Path,
) -> Result<Outcome> {
    let binary = binary(environment, source);
    if !binary.exists() {
        let reason = process::tail(&binary.with_extension("cc.err"), 20);
        return Ok(Outcome::Failed(format!("does not compile:\n{reason}")));
    }
    let stem = target.name().replace('/', "-");
    let out = binary.with_extension(format!("{stem}.out"));
    let err = binary.with_extension(format!("{stem}.err"));
    let start = Instant::now();
    let mut command = bench.command(environment, target, &binary);
    let ended = process::run(command.arg(&bench.kernels), &out, &err, LIMIT)?;
    let seconds = start.elapsed().as_secs_f64();
    let output = Output::parse(&String::from_utf8_lossy(&std::fs::read(&out)?));
    let (program, runtime) = (name(source), environment.runtime);
    let expected = |part: &str| bench.expectations.find(&program, part, target, runtime);
    let mut outcome = output.judge(&ended, expected, bench.strict);
    if !output.parts.is_empty() && !matches!(outcome, Outcome::Failed(_)) {
        // A program that did not run on ours proves nothing.
        if let Err(fault) = bench.check_libraries(environment, target, &output.libraries) {
            outcome = Outcome::Failed(fault);
        }
    }
    Ok(match outcome {
        Outcome::Passed(note) => Outcome::Passed(format!("{note}, {seconds:.1} s")),
        Outcome::Failed(why) => {
            let last = process::tail(&err, 5);
            Outcome::Failed(format!("{why}\n{last}").trim_end().to_owned())
        }
        skipped => skipped,
    })
}

//! `cargo xtask bench`: what this project's libraries cost beside others', measured in one run.

mod ablation;
mod dispatch;
mod instructions;
mod pair;
mod peers;
mod plot;
mod pool;
mod submit;
mod synthetic;
mod times;
mod verdicts;

use crate::{build, real_client};
use anyhow::{Context as _, Result, ensure};
use clap::{Args, Subcommand};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Subcommand)]
pub enum Bench {
    /// The OpenCL adapter beside Intel's, on Intel's OpenCL driver for the CPU.
    Opencl(Opencl),
    /// The Level Zero adapter beside Intel's "v2", on Intel's driver without a GPU.
    LevelZero(LevelZero),
    /// The pool on native_cpu: recorded programs, many queues, and the time of an allocation with its free
    Pool(pool::Pool),
    /// What our loader adds to a call, beside Intel's, with one adapter and two, and with each layer.
    Dispatch(dispatch::Dispatch),
    /// The instructions that the CUDA adapter adds to a launch, a copy and a fill, under valgrind; fails if
    /// they exceed the committed limits
    Submit,
    /// The CUDA adapter beside other stream-ordered allocators: prints tables, plots and verdicts of what
    /// adapters/cuda/bench/peers.sh measured on a machine with a GPU
    Peers(peers::Peers),
}

#[derive(Args)]
pub struct Opencl {
    /// Where scripts/drivers.sh keeps the drivers; below target/ by default
    #[arg(long)]
    drivers: Option<PathBuf>,
    /// Another loader than that of intel-cmplr-lib-ur, which has Intel's adapter built in
    #[arg(long)]
    peer: Option<PathBuf>,
    /// Passed on to ur-bench: --filter, --rounds, --processes, --starts
    #[arg(last = true)]
    rest: Vec<String>,
}

#[derive(Args)]
pub struct LevelZero {
    /// Where scripts/level_zero.sh keeps the drivers; below target/ by default
    #[arg(long)]
    drivers: Option<PathBuf>,
    /// The product that the driver pretends to be
    #[arg(long, default_value = "bmg")]
    product: String,
    /// Passed on to ur-bench: --filter, --rounds, --processes, --starts
    #[arg(last = true)]
    rest: Vec<String>,
}

/// The package that Intel's loader comes in.
const PEER: &str = "intel-cmplr-lib-ur==2026.2.0";

pub fn run(root: &Path, bench: &Bench) -> Result<()> {
    match bench {
        Bench::Opencl(options) => opencl(root, options),
        Bench::LevelZero(options) => level_zero(root, options),
        Bench::Pool(options) => pool::run(root, options),
        Bench::Dispatch(options) => dispatch::run(root, options),
        Bench::Submit => submit::run(root),
        Bench::Peers(options) => peers::run(root, options),
    }
}

fn opencl(root: &Path, options: &Opencl) -> Result<()> {
    let target = build::target_dir(root)?;
    let built = build::packages(
        root,
        &[
            "ur-loader",
            "ur-adapter-opencl",
            "ur-opencl-retain",
            "ur-conformance",
        ],
        true,
    )?;
    let drivers = options.drivers.clone();
    let drivers = drivers.unwrap_or_else(|| target.join("drivers"));
    let script = root.join("scripts/drivers.sh");
    build::run(Command::new(&script).arg(&drivers).arg("install"))?;
    let peer = match &options.peer {
        Some(peer) => peer.clone(),
        None => intel_loader(&target.join("bench"))?,
    };
    console::outln!("{}\n", circumstances()?);
    let mut command = Command::new(&script);
    command.arg(&drivers).arg("intel");
    command.arg(built.join("ur-bench"));
    command.arg(built.join("libur_loader.so")).arg(&peer);
    command
        .arg("--adapter")
        .arg(fs::canonicalize(built.join("libur_adapter_opencl.so"))?);
    command
        .args(["--names", "ours,Intel's"])
        .args(&options.rest);
    match real_client::measured(root) {
        Ok(program) => {
            command.arg("--sycl").arg(program);
        }
        Err(missing) => console::outln!("*skipped* the SYCL calls: {missing:#}\n"),
    }
    command.env("ONEAPI_DEVICE_SELECTOR", "opencl:cpu");
    build::run(&mut command)
}

/// Both adapters under our loader, on the same driver: `v2` is that of the environment.
fn level_zero(root: &Path, options: &LevelZero) -> Result<()> {
    let target = build::target_dir(root)?;
    let packages = [
        "ur-loader",
        "ur-adapter-level-zero",
        "forward-level-zero",
        "ur-conformance",
    ];
    let built = build::packages(root, &packages, true)?;
    let drivers = options.drivers.clone();
    let drivers = drivers.unwrap_or_else(|| target.join("level_zero"));
    let script = root.join("scripts/level_zero.sh");
    build::run(Command::new(&script).arg(&drivers))?;
    let mut copy = Command::new(&script);
    copy.arg(&drivers).arg("copy").arg(built.join("ur-bench"));
    let copy = copy.output()?;
    ensure!(
        copy.status.success(),
        "{}",
        String::from_utf8_lossy(&copy.stderr)
    );
    let program = String::from_utf8_lossy(&copy.stdout).trim().to_owned();
    console::outln!("{}\n", circumstances()?);
    let mut command = Command::new(&script);
    command
        .arg(&drivers)
        .args(["v2", &options.product, &program]);
    let loader = built.join("libur_loader.so");
    command.arg(&loader).arg(&loader).arg("--adapter");
    command.arg(fs::canonicalize(built.join("libur_adapter_level_zero.so"))?);
    command.args(["--names", "ours,v2", "--targets", "level-zero"]);
    command.args(&options.rest);
    command.env(
        "ZE_ENABLE_ALT_DRIVERS",
        built.join("libforward_level_zero.so"),
    );
    build::run(&mut command)
}

/// Intel's loader, fetched once. The libraries that it links to come with the driver.
fn intel_loader(folder: &Path) -> Result<PathBuf> {
    let venv = fetch(&folder.join(PEER.replace("==", "-")), &[PEER])?;
    Ok(venv.join("lib/libur_loader.so.0"))
}

/// A virtual environment with exactly these packages, made once.
fn fetch(venv: &Path, packages: &[&str]) -> Result<PathBuf> {
    let stamp = venv.join("ready");
    if !stamp.exists() {
        fs::create_dir_all(venv)?;
        let mut python = Command::new("python3");
        build::run(python.args(["-m", "venv", "--clear"]).arg(venv))?;
        let mut pip = Command::new(venv.join("bin/pip"));
        pip.args([
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]);
        build::run(pip.args(packages))?;
        fs::write(stamp, "")?;
    }
    Ok(venv.to_owned())
}

/// The machine, the date and the load, for the head of a report.
fn circumstances() -> Result<String> {
    let cpus = fs::read_to_string("/proc/cpuinfo").context("/proc/cpuinfo")?;
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.and_then(|line| line.split_once(": "));
    let model = model.map_or("unknown", |(_, name)| name);
    let count = cpus
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let load = fs::read_to_string("/proc/loadavg").context("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default();
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output()?;
    let date = String::from_utf8_lossy(&date.stdout);
    Ok(format!(
        "{count} cores of {model}, {}, load average {load}",
        date.trim()
    ))
}

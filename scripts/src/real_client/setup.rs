//! Targets of clients: one of our adapters with its driver, in an environment that selects them alone.

use super::Options;
use super::environment::{self, Drivers, Environment};
use super::expect::Expectations;
use super::report::Outcome;
use crate::{build, install, layout};
use anyhow::Result;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Prefixes of variables that select devices, adapters or drivers.
const ELSEWHERE: [&str; 6] = ["UR_", "SYCL_", "ONEAPI_", "OCL_ICD_", "ZE_", "SCRIPTED_"];

/// One of our adapters with its driver, or Intel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    NativeCpu,
    Intel,
    Pocl,
    /// On the driver of adapters/level_zero/scripted, behind Debian 12's loader.
    LevelZero,
    /// On this driver with the newest interface, without a loader.
    LevelZeroAlone,
    Mock,
    /// Intel's adapter on Intel's driver.
    Reference,
    /// Intel's adapter on the driver of adapters/level_zero/scripted, behind the newest loader.
    ReferenceLevelZero,
}

impl Target {
    pub fn name(self) -> &'static str {
        match self {
            Target::NativeCpu => "native_cpu",
            Target::Intel => "opencl/intel",
            Target::Pocl => "opencl/pocl",
            Target::LevelZero => "level_zero/1.3",
            Target::LevelZeroAlone => "level_zero/newest",
            Target::Mock => "mock",
            Target::Reference => "reference",
            Target::ReferenceLevelZero => "reference/level_zero",
        }
    }

    /// The adapter's name in file names.
    pub fn adapter(self) -> &'static str {
        match self {
            Target::NativeCpu => "native_cpu",
            Target::Mock => "mock",
            Target::Intel | Target::Pocl | Target::Reference => "opencl",
            Target::LevelZero | Target::LevelZeroAlone | Target::ReferenceLevelZero => "level_zero",
        }
    }

    /// The driver's name in `Drivers`.
    pub fn driver(self) -> Option<&'static str> {
        match self {
            Target::NativeCpu | Target::Mock => None,
            Target::Intel | Target::Reference => Some("intel"),
            Target::Pocl => Some("pocl"),
            Target::LevelZero => Some("executes"),
            Target::LevelZeroAlone => Some("alone"),
            Target::ReferenceLevelZero => Some("newest"),
        }
    }

    fn is_reference(self) -> bool {
        matches!(self, Target::Reference | Target::ReferenceLevelZero)
    }

    fn selector(self) -> &'static str {
        match self {
            Target::NativeCpu => "native_cpu:*",
            Target::Mock => "*:*",
            Target::Intel | Target::Pocl | Target::Reference => "opencl:*",
            Target::LevelZero | Target::LevelZeroAlone | Target::ReferenceLevelZero => {
                "level_zero:*"
            }
        }
    }
}

/// Data that all runs share.
pub struct Setup<'a> {
    pub root: &'a Path,
    /// The installed project.
    pub prefix: PathBuf,
    pub drivers: Drivers,
    /// The C++ compiler, or the reason why it is missing.
    pub compiler: Result<OsString, String>,
    /// SPIR-V modules that programs launch.
    pub kernels: PathBuf,
    pub expectations: Expectations,
    pub strict: bool,
}

impl<'a> Setup<'a> {
    pub fn prepare(root: &'a Path, work: &Path, options: &Options) -> Result<Self> {
        let prefix = match &options.prefix {
            Some(prefix) => prefix.clone(),
            None => install::below_target(root)?,
        };
        let prefix = std::fs::canonicalize(prefix)?;
        let kernels = work.join("kernels.spv");
        let mut writer = Command::new(prefix.join("bin/ur-conformance"));
        build::run(writer.arg("--write-kernels").arg(&kernels))?;
        let folder = |given: &Option<PathBuf>, name| match given {
            Some(folder) => Ok(folder.clone()),
            None => build::target_dir(root).map(|target| target.join(name)),
        };
        let opencl = folder(&options.drivers, "drivers")?;
        let level_zero = folder(&options.level_zero, "level_zero")?;
        let expectations = match options.reference {
            true => Expectations::default(),
            false => Expectations::load(root)?,
        };
        Ok(Self {
            root,
            prefix,
            drivers: Drivers::prepare(root, &opencl, &level_zero)?,
            compiler: environment::compiler(),
            kernels,
            expectations,
            strict: options.strict,
        })
    }

    /// The reason why a target's driver is missing.
    pub fn missing_driver(&self, target: Target) -> Option<&String> {
        self.drivers.lack(target.driver()?)
    }

    /// The reason why this target cannot run here; none if it can.
    pub fn missing(&self, reason: &str) -> Outcome {
        let reason = format!("cannot run here: {reason}");
        match self.strict {
            true => Outcome::Failed(reason),
            false => Outcome::Skipped(reason),
        }
    }

    /// A command with this runtime and target. No other variable that selects devices remains from the
    /// caller's environment.
    pub fn command(&self, environment: &Environment, target: Target, program: &Path) -> Command {
        let mut command = match target.driver() {
            Some(driver) => self.drivers.launcher(driver, program),
            None => Command::new(program),
        };
        let own: Vec<_> = command
            .get_envs()
            .map(|(name, _)| name.to_owned())
            .collect();
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if !own.contains(&name) && ELSEWHERE.iter().any(|start| text.starts_with(start)) {
                command.env_remove(&name);
            }
        }
        let mut folders = environment.lib().into_os_string();
        if !target.is_reference() {
            if environment.runtime.links_loader() {
                // The dynamic linker finds our loader first, and our adapter is beside it.
                folders = self.lib().into_os_string();
                folders.push(":");
                folders.push(environment.lib());
            }
            // A loader inside libsycl takes an adapter by path. Any loader takes the mock so.
            if !environment.runtime.links_loader() || target == Target::Mock {
                command.env("UR_ADAPTERS_FORCE_LOAD", self.adapter(target));
            }
        }
        command
            .env("LD_LIBRARY_PATH", folders)
            .env("ONEAPI_DEVICE_SELECTOR", target.selector());
        command
    }

    pub fn lib(&self) -> PathBuf {
        self.prefix.join("lib")
    }

    /// Our adapter's library.
    pub fn adapter(&self, target: Target) -> PathBuf {
        let name = format!("libur_adapter_{}.so.0", target.adapter());
        self.lib().join(name)
    }

    /// Whether a client loaded the intended libraries, by the names in the kernel's map.
    pub fn check_libraries(
        &self,
        environment: &Environment,
        target: Target,
        loaded: &[String],
    ) -> Result<(), String> {
        if target.is_reference() {
            return Ok(());
        }
        let beside = layout::BESIDE.iter();
        let beside = beside.filter(|(adapter, _)| *adapter == target.adapter());
        let beside = beside.map(|(_, name)| self.lib().join(name));
        let mut wanted: Vec<PathBuf> = [self.adapter(target)].into_iter().chain(beside).collect();
        if environment.runtime.links_loader() {
            wanted.push(self.lib().join("libur_loader.so.0"));
        }
        let real = |path: PathBuf| std::fs::canonicalize(&path).unwrap_or(path);
        let mut wanted: Vec<String> = wanted
            .into_iter()
            .map(|path| real(path).display().to_string())
            .collect();
        wanted.sort();
        match loaded == wanted {
            true => Ok(()),
            false => Err(format!(
                "ran on [{}], not on [{}]",
                loaded.join(", "),
                wanted.join(", ")
            )),
        }
    }
}

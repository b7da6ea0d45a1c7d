//! The clients' requirements, fetched once and kept below target/.
//!
//! These are a virtual environment with libsycl and dpctl for each release, OpenCL drivers through
//! scripts/drivers.sh, and Level Zero's loader through scripts/level_zero.sh, with the driver of
//! adapters/level_zero/scripted.

use super::process;
use crate::build;
use anyhow::{Context as _, Result, anyhow, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The version of Python for which dpctl's wheels and counts of tests are.
const PYTHON: &str = "3.11";
const DPCTL: [&str; 5] = [
    "dpctl==0.22.1",
    "pytest",
    "pytest-timeout",
    "cython",
    "setuptools",
];

/// The releases of libsycl on which clients run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Runtime {
    #[value(name = "2026.2.0")]
    V2026_2_0,
    #[value(name = "2026.1.2")]
    V2026_1_2,
}

impl Runtime {
    pub const ALL: [Runtime; 2] = [Runtime::V2026_2_0, Runtime::V2026_1_2];

    pub fn version(self) -> &'static str {
        match self {
            Runtime::V2026_2_0 => "2026.2.0",
            Runtime::V2026_1_2 => "2026.1.2",
        }
    }

    /// Whether libsycl loads the loader as a library, rather than containing one.
    pub fn links_loader(self) -> bool {
        self == Runtime::V2026_1_2
    }

    /// pip's packages. Without the loader's own version any 2026 release would do.
    fn requirements(self) -> Vec<String> {
        let packages = ["intel-sycl-rt", "intel-cmplr-lib-ur", "intel-cmplr-lib-rt"];
        packages
            .map(|name| format!("{name}=={}", self.version()))
            .to_vec()
    }
}

/// An installed release of libsycl.
pub struct Environment {
    pub runtime: Runtime,
    pub folder: PathBuf,
    /// dpctl, or the reason why it is missing.
    pub dpctl: Result<(), String>,
}

impl Environment {
    /// Creates the environment, unless it exists with these packages.
    pub fn prepare(work: &Path, runtime: Runtime) -> Result<Self> {
        let folder = work.join(runtime.version());
        let (python, dpctl) =
            match interpreter(&[&format!("python{PYTHON}"), "python3"], Some(PYTHON)) {
                Ok(python) => (python, Ok(())),
                Err(missing) => (interpreter(&["python3"], None)?, Err(missing.to_string())),
            };
        let mut wanted = runtime.requirements();
        if dpctl.is_ok() {
            wanted.extend(DPCTL.map(str::to_owned));
        }
        let stamp = folder.join("ready");
        let text = wanted.join("\n");
        if std::fs::read_to_string(&stamp).is_ok_and(|ready| ready == text) {
            return Ok(Self {
                runtime,
                folder,
                dpctl,
            });
        }
        let _step = build::step(&format!(
            "fetches libsycl {} to {}",
            runtime.version(),
            folder.display()
        ));
        quietly(
            Command::new(python)
                .args(["-m", "venv", "--clear"])
                .arg(&folder),
            work,
        )?;
        let mut pip = Command::new(folder.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check"])
            .args(&wanted);
        quietly(&mut pip, work)?;
        std::fs::create_dir_all(folder.join("programs"))?;
        std::fs::write(&stamp, text)?;
        Ok(Self {
            runtime,
            folder,
            dpctl,
        })
    }

    pub fn lib(&self) -> PathBuf {
        self.folder.join("lib")
    }

    pub fn include(&self) -> PathBuf {
        self.folder.join("include")
    }

    /// The folder of this release's programs and their output.
    pub fn programs(&self) -> PathBuf {
        self.folder.join("programs")
    }

    pub fn python(&self) -> PathBuf {
        self.folder.join("bin/python")
    }
}

/// The C++ compiler, or the reason why it is missing.
pub fn compiler() -> Result<OsString, String> {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    match Command::new(&compiler).arg("--version").output() {
        Ok(_) => Ok(compiler),
        Err(error) => Err(format!("no C++ compiler {}: {error}", compiler.display())),
    }
}

/// The first command that is a Python, of the version if one is given.
fn interpreter(names: &[&str], version: Option<&str>) -> Result<String> {
    let mut found = Vec::new();
    for name in names {
        let output = Command::new(name).arg("--version").output();
        let Some(output) = output.ok().filter(|output| output.status.success()) else {
            continue;
        };
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if version.is_none_or(|version| is_version(&text, version)) {
            return Ok((*name).to_owned());
        }
        found.push(format!("{name} is {text}"));
    }
    let wanted = version.map_or(String::new(), |version| format!(" {version}"));
    Err(anyhow!(
        "no Python{wanted}: {}",
        match found.as_slice() {
            [] => "none is installed".to_owned(),
            found => found.join(", "),
        }
    ))
}

/// Whether text such as `Python 3.11.7` is of the version 3.11.
fn is_version(text: &str, version: &str) -> bool {
    text.strip_prefix("Python ")
        .and_then(|text| text.strip_prefix(version))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Runs a command, and shows its output only if it fails.
fn quietly(command: &mut Command, work: &Path) -> Result<()> {
    let (out, err) = (work.join("prepare.out"), work.join("prepare.err"));
    let ended = process::run(command, &out, &err, Duration::from_secs(1800))?;
    if ended.code() != Some(0) {
        let name = Path::new(command.get_program())
            .file_name()
            .unwrap_or_default();
        bail!(
            "{}: {ended}: {}",
            name.to_string_lossy(),
            process::tail(&err, 1)
        );
    }
    Ok(())
}

/// The names in scripts/level_zero.sh of the driver that executes: by the loader in front of it.
const LEVEL_ZERO: [&str; 3] = ["executes", "alone", "newest"];

/// The OpenCL drivers of scripts/drivers.sh, and the driver of Level Zero that scripts/level_zero.sh runs on
/// Intel's.
pub struct Drivers {
    root: PathBuf,
    opencl: PathBuf,
    level_zero: PathBuf,
    /// Missing drivers, each with the reason.
    missing: Vec<(&'static str, String)>,
}

impl Drivers {
    /// Fetches the drivers to the two folders, unless they are there.
    pub fn prepare(root: &Path, opencl: &Path, level_zero: &Path) -> Result<Self> {
        let folder = |path: &Path| -> Result<PathBuf> {
            std::fs::create_dir_all(path)?;
            Ok(std::fs::canonicalize(path)?)
        };
        let mut drivers = Self {
            root: root.to_owned(),
            opencl: folder(opencl)?,
            level_zero: folder(level_zero)?,
            missing: Vec::new(),
        };
        let fetched = drivers.fetch("drivers.sh", &drivers.opencl);
        for (name, library) in [
            ("intel", "$OCL_ICD_FILENAMES"),
            ("pocl", "$OCL_ICD_VENDORS/pocl.icd"),
        ] {
            drivers.probe(name, &format!("test -e \"{library}\""), &fetched)?;
        }
        let fetched = drivers.fetch("level_zero.sh", &drivers.level_zero);
        build::packages(root, &["scripted-level-zero"], false)?;
        for name in LEVEL_ZERO {
            drivers.probe(name, "true", &fetched)?;
        }
        Ok(drivers)
    }

    /// Runs a script that fetches drivers to a folder. Returns the reason why it failed.
    fn fetch(&self, script: &str, folder: &Path) -> Result<(), String> {
        let _step = build::step(&format!(
            "looks for drivers in {}, and fetches them if they are not there",
            folder.display()
        ));
        let fetched = quietly(Command::new(self.script(script)).arg(folder), folder);
        fetched.map_err(|error| format!("{error:#}"))
    }

    /// Runs a shell command on a driver, which is missing if the command fails.
    fn probe(
        &mut self,
        name: &'static str,
        command: &str,
        fetched: &Result<(), String>,
    ) -> Result<()> {
        let mut probe = self.launcher(name, Path::new("sh"));
        let ended = probe.args(["-c", command]).output();
        let ended = ended.with_context(|| format!("the driver {name}"))?;
        if !ended.status.success() {
            let said = String::from_utf8_lossy(&ended.stderr);
            let reason = match (fetched, said.trim()) {
                (Err(reason), _) => reason,
                (Ok(()), "") => "its script did not install it",
                (Ok(()), said) => said,
            };
            let reason = format!("no {name} driver: {reason}");
            self.missing.push((name, reason));
        }
        Ok(())
    }

    /// The reason why a driver is missing.
    pub fn lack(&self, name: &str) -> Option<&String> {
        let found = self.missing.iter().find(|(missing, _)| *missing == name);
        found.map(|(_, reason)| reason)
    }

    /// A command that runs a program on a driver.
    pub fn launcher(&self, name: &str, program: &Path) -> Command {
        let (script, folder) = match LEVEL_ZERO.contains(&name) {
            true => ("level_zero.sh", &self.level_zero),
            false => ("drivers.sh", &self.opencl),
        };
        let mut command = Command::new(self.script(script));
        command.env("UR_DRIVERS", &self.opencl);
        command.arg(folder).arg(name).arg(program);
        command
    }

    fn script(&self, name: &str) -> PathBuf {
        self.root.join("scripts").join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert!(is_version("Python 3.11.7", "3.11"));
        assert!(is_version("Python 3.11", "3.11"));
        assert!(!is_version("Python 3.1.7", "3.11"));
        assert!(!is_version("Python 3.110.0", "3.11"));
        assert!(!is_version("3.11.7", "3.11"));
    }

    #[test]
    fn no_interpreter() {
        let missing = interpreter(&["no-such-python"], Some("3.11")).unwrap_err();
        assert_eq!(missing.to_string(), "no Python 3.11: none is installed");
    }
}

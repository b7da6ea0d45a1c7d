//! Computes the variables. Pure, but for a look at the files beside `libsycl`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::installation::Installation;
use super::runtime::Runtime;

/// A variable that this program may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    pub name: &'static str,
    /// The reason for setting it, as one line.
    pub why: &'static str,
}

pub const ADAPTERS: Variable = Variable {
    name: "UR_ADAPTERS_FORCE_LOAD",
    why: "the adapters to load, in this order: without it the loader also finds those beside libsycl",
};

pub const LIBRARIES: Variable = Variable {
    name: "LD_LIBRARY_PATH",
    why: "first this installation's loader, if libsycl links one, and the OpenCL library beside \
          libsycl, which the OpenCL adapter opens",
};

pub const DRIVER: Variable = Variable {
    name: "OCL_ICD_FILENAMES",
    why: "the OpenCL driver for CPUs beside libsycl, which no system file names; set only if unset",
};

pub const UNIFIED: Variable = Variable {
    name: "SYCL_HOST_UNIFIED_MEMORY",
    why: "1 with SYCL_USM_HOSTPTR_IMPORT, which has an effect only then, and for which Intel's \
          adapters set it; set only if unset",
};

/// All variables that may be set, for the help text.
pub const VARIABLES: [Variable; 4] = [ADAPTERS, LIBRARIES, DRIVER, UNIFIED];

/// Makes buffers import the host's memory that they are over, unless it is 0.
const IMPORT: &str = "SYCL_USM_HOSTPTR_IMPORT";

/// Needs no device, so that it is used only by name.
const MOCK: &str = "mock";

/// Comes last, unless adapters are named. libsycl gives the CPU the same score through every
/// adapter, and takes the first of equal scores. A program's default device thus stays what it is
/// without this installation: the CPU through OpenCL if there is no GPU.
const NATIVE_CPU: &str = "native_cpu";

const LAYERS: &str = "UR_ENABLE_LAYERS";

pub struct Plan<'a> {
    pub installation: &'a Installation,
    /// None if no libsycl was found.
    pub runtime: Option<&'a Runtime>,
    /// The adapters to use, in this order; all if none is named.
    pub adapters: &'a [String],
}

impl Plan<'_> {
    /// The variables to set. `var` reads the current environment.
    ///
    /// An error names an adapter that does not exist.
    pub fn variables(
        &self,
        var: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Vec<(Variable, OsString)>, String> {
        let linked = self.runtime.is_none_or(|runtime| runtime.links_loader);
        let mut variables = vec![(ADAPTERS, list(&self.chosen()?))];
        let mut folders = Vec::new();
        if linked {
            folders.push(self.installation.loader.clone());
        }
        if let Some(runtime) = self.runtime
            && runtime.beside("libOpenCL.so.1").is_some()
        {
            folders.push(runtime.folder.clone());
        }
        if !folders.is_empty() {
            let previous = var(LIBRARIES.name).unwrap_or_default();
            variables.push((LIBRARIES, before(&folders, &previous)?));
        }
        let driver = self
            .runtime
            .and_then(|runtime| runtime.beside("libintelocl.so"));
        if let (Some(driver), None) = (driver, var(DRIVER.name)) {
            variables.push((DRIVER, driver.into()));
        }
        let import = var(IMPORT).filter(|value| !value.is_empty() && value != "0");
        if import.is_some() && var(UNIFIED.name).is_none() {
            variables.push((UNIFIED, "1".into()));
        }
        Ok(variables)
    }

    /// Why `UR_ENABLE_LAYERS` does not mean this installation's layers. None if it is unset, or if
    /// the program gets this installation's loader.
    pub fn layers_warning(&self, var: impl Fn(&str) -> Option<OsString>) -> Option<String> {
        let layers = var(LAYERS).filter(|layers| !layers.is_empty())?;
        let runtime = self.runtime.filter(|runtime| !runtime.links_loader)?;
        Some(format!(
            "{LAYERS}={}: the libsycl in {} has Intel's loader inside, as 2026.2 does; only Intel's \
             layers apply, and this installation's have no effect",
            layers.display(),
            runtime.folder.display()
        ))
    }

    fn chosen(&self) -> Result<Vec<&Path>, String> {
        let installed = &self.installation.adapters;
        if self.adapters.is_empty() {
            let mut real: Vec<_> = installed.iter().filter(|(name, _)| name != MOCK).collect();
            real.sort_by_key(|(name, _)| name == NATIVE_CPU);
            return Ok(real.into_iter().map(|(_, path)| path.as_path()).collect());
        }
        let find = |wanted: &String| {
            let found = installed.iter().find(|(name, _)| name == wanted);
            found.map(|(_, path)| path.as_path()).ok_or_else(|| {
                let names: Vec<_> = installed.iter().map(|(name, _)| name.as_str()).collect();
                format!("no adapter {wanted}; there are {}", names.join(", "))
            })
        };
        self.adapters.iter().map(find).collect()
    }
}

/// Paths as loaders read them: separated by commas, in quotes where they contain a separator.
fn list(paths: &[&Path]) -> OsString {
    let mut text = OsString::new();
    for (at, path) in paths.iter().enumerate() {
        let special = path.to_string_lossy().contains([',', ':', ';', '\'']);
        let quote = if special { "\"" } else { "" };
        text.push(if at > 0 { "," } else { "" });
        text.push(quote);
        text.push(path);
        text.push(quote);
    }
    text
}

/// A search path with `folders` before the folders of `path`, without duplicates.
fn before(folders: &[PathBuf], path: &OsStr) -> Result<OsString, String> {
    let previous = std::env::split_paths(path);
    let previous =
        previous.filter(|previous| !previous.as_os_str().is_empty() && !folders.contains(previous));
    let all: Vec<PathBuf> = folders.iter().cloned().chain(previous).collect();
    std::env::join_paths(all).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installation() -> Installation {
        let adapter = |name: &str| (name.to_owned(), format!("/ur/lib/{name}.so").into());
        Installation {
            loader: "/ur/lib".into(),
            adapters: ["mock", "native_cpu", "opencl"].map(adapter).to_vec(),
        }
    }

    fn plan(runtime: Option<&Runtime>, adapters: &[&str], path: &str) -> Result<String, String> {
        let installation = installation();
        let adapters: Vec<String> = adapters.iter().map(|&name| name.to_owned()).collect();
        let plan = Plan {
            installation: &installation,
            runtime,
            adapters: &adapters,
        };
        let var = |name: &str| (name == "LD_LIBRARY_PATH").then(|| path.into());
        let variables = plan.variables(var)?;
        let lines = variables
            .iter()
            .map(|(variable, value)| format!("{}={}", variable.name, value.display()));
        Ok(lines.collect::<Vec<_>>().join(" "))
    }

    fn runtime(folder: &Path, links_loader: bool) -> Runtime {
        Runtime {
            folder: folder.to_owned(),
            links_loader,
        }
    }

    #[test]
    fn each_kind_of_runtime() {
        const FORCE: &str = "UR_ADAPTERS_FORCE_LOAD=/ur/lib/opencl.so,/ur/lib/native_cpu.so";
        let nowhere = Path::new("/nowhere");
        let inside = runtime(nowhere, false);
        assert_eq!(plan(Some(&inside), &[], "/a").unwrap(), FORCE);
        let links = runtime(nowhere, true);
        assert_eq!(
            plan(Some(&links), &[], "/a::/b").unwrap(),
            format!("{FORCE} LD_LIBRARY_PATH=/ur/lib:/a:/b")
        );
        assert_eq!(
            plan(Some(&links), &["mock"], "/a:/ur/lib").unwrap(),
            "UR_ADAPTERS_FORCE_LOAD=/ur/lib/mock.so LD_LIBRARY_PATH=/ur/lib:/a"
        );
        assert_eq!(
            plan(None, &[], "").unwrap(),
            format!("{FORCE} LD_LIBRARY_PATH=/ur/lib")
        );
        assert_eq!(
            plan(Some(&inside), &["native_cpu", "opencl"], "").unwrap(),
            "UR_ADAPTERS_FORCE_LOAD=/ur/lib/native_cpu.so,/ur/lib/opencl.so"
        );
        assert_eq!(
            plan(None, &["cuda"], "").unwrap_err(),
            "no adapter cuda; there are mock, native_cpu, opencl"
        );
    }

    #[test]
    fn layers_of_a_loader_inside_are_not_ours() {
        let warning = |links_loader: Option<bool>, layers: Option<&str>| {
            let installation = installation();
            let runtime = links_loader.map(|links| runtime(Path::new("/sycl/lib"), links));
            let plan = Plan {
                installation: &installation,
                runtime: runtime.as_ref(),
                adapters: &[],
            };
            plan.layers_warning(|name| {
                let layers = layers.filter(|_| name == "UR_ENABLE_LAYERS");
                layers.map(OsString::from)
            })
        };
        let found = warning(Some(false), Some("UR_LAYER_TRACING")).unwrap();
        assert!(
            found.starts_with("UR_ENABLE_LAYERS=UR_LAYER_TRACING: the libsycl in /sycl/lib has"),
            "{found}"
        );
        assert_eq!(warning(Some(true), Some("UR_LAYER_TRACING")), None);
        assert_eq!(warning(None, Some("UR_LAYER_TRACING")), None);
        assert_eq!(warning(Some(false), Some("")), None);
        assert_eq!(warning(Some(false), None), None);
    }

    #[test]
    fn a_driver_beside_libsycl() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        for name in ["libOpenCL.so.1", "libintelocl.so"] {
            std::fs::write(path.join(name), "").unwrap();
        }
        let found = plan(Some(&runtime(path, true)), &["opencl"], "/a").unwrap();
        let path = path.display();
        let wanted = [
            "UR_ADAPTERS_FORCE_LOAD=/ur/lib/opencl.so".to_owned(),
            format!("LD_LIBRARY_PATH=/ur/lib:{path}:/a"),
            format!("OCL_ICD_FILENAMES={path}/libintelocl.so"),
        ];
        assert_eq!(found, wanted.join(" "));
    }

    #[test]
    fn imports_of_host_memory_need_another_variable() {
        let installation = installation();
        let plan = Plan {
            installation: &installation,
            runtime: None,
            adapters: &[],
        };
        let set = |variables: &[(&str, &str)]| {
            let var = |name: &str| {
                let found = variables.iter().find(|(own, _)| *own == name);
                found.map(|(_, value)| OsString::from(value))
            };
            let all = plan.variables(var).unwrap();
            let found = all.into_iter().find(|(variable, _)| *variable == UNIFIED);
            found.map(|(_, value)| value)
        };
        assert_eq!(set(&[(IMPORT, "1")]), Some("1".into()));
        assert_eq!(set(&[(IMPORT, "0")]), None);
        assert_eq!(set(&[]), None);
        assert_eq!(set(&[(IMPORT, "1"), (UNIFIED.name, "0")]), None);
    }

    #[test]
    fn paths_with_separators_are_quoted() {
        let paths = ["/a,b/x.so", "/c/y.so", "/d:e/z.so"].map(Path::new);
        assert_eq!(list(&paths), "\"/a,b/x.so\",/c/y.so,\"/d:e/z.so\"");
    }
}

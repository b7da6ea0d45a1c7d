//! Computes the variables. Pure, but for a look at the files beside `libsycl`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::installation::Installation;
use super::runtime::Runtime;

pub type Variable = (&'static str, OsString);

/// Needs no device, so that it is used only by name.
const MOCK: &str = "mock";

/// Comes last, unless adapters are named. libsycl gives the CPU the same score through every
/// adapter, and takes the first of equal scores. A program's default device thus stays what it is
/// without this installation: the CPU through OpenCL if there is no GPU.
const NATIVE_CPU: &str = "native_cpu";

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
    ) -> Result<Vec<Variable>, String> {
        let linked = self.runtime.is_none_or(|runtime| runtime.links_loader);
        // Without this variable the loader would also find the adapters beside libsycl.
        let mut variables = vec![("UR_ADAPTERS_FORCE_LOAD", list(&self.chosen()?))];
        let mut folders = Vec::new();
        if linked {
            folders.push(self.installation.loader.clone());
        }
        // This project's OpenCL adapter opens the OpenCL library that lies beside libsycl.
        if let Some(runtime) = self.runtime
            && runtime.beside("libOpenCL.so.1").is_some()
        {
            folders.push(runtime.folder.clone());
        }
        if !folders.is_empty() {
            let previous = var("LD_LIBRARY_PATH").unwrap_or_default();
            variables.push(("LD_LIBRARY_PATH", before(&folders, &previous)?));
        }
        let driver = self
            .runtime
            .and_then(|runtime| runtime.beside("libintelocl.so"));
        if let (Some(driver), None) = (driver, var("OCL_ICD_FILENAMES")) {
            variables.push(("OCL_ICD_FILENAMES", driver.into()));
        }
        Ok(variables)
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
            .map(|(name, value)| format!("{name}={}", value.display()));
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
    fn paths_with_separators_are_quoted() {
        let paths = ["/a,b/x.so", "/c/y.so", "/d:e/z.so"].map(Path::new);
        assert_eq!(list(&paths), "\"/a,b/x.so\",/c/y.so,\"/d:e/z.so\"");
    }
}

//! Plans which adapter libraries to load, and from where.
//!
//! Owns the names of the known adapters and the order of search. Pure: it maps environment
//! variables and the loader's directory to a plan. It must never open a library.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::selector::{Backend, Duplicates, Kind, Selector};
use ur::object::env::{Env, ListError};

/// An adapter that may be installed.
struct Manifest {
    name: &'static str,
    backend: Backend,
    kinds: &'static [Kind],
    /// The adapter before it is the other half of one product: both come from one folder. Of two products for one
    /// backend, each would list every device.
    has_twin: bool,
}

/// Loaded only with mocking enabled, and then alone.
const MOCK: &str = "mock";

const ANY_KIND: &[Kind] = &[Kind::Cpu, Kind::Gpu, Kind::Fpga, Kind::Other];

/// In the lexicographic order of the library names, which is the order of the adapters.
const MANIFESTS: [Manifest; 7] = [
    Manifest {
        name: "cuda",
        backend: Backend::Cuda,
        kinds: &[Kind::Gpu],
        has_twin: false,
    },
    Manifest {
        name: "hip",
        backend: Backend::Hip,
        kinds: &[Kind::Gpu],
        has_twin: false,
    },
    Manifest {
        name: "level_zero",
        backend: Backend::LevelZero,
        kinds: ANY_KIND,
        has_twin: false,
    },
    Manifest {
        name: "level_zero_v2",
        backend: Backend::LevelZero,
        kinds: ANY_KIND,
        has_twin: true,
    },
    Manifest {
        name: "native_cpu",
        backend: Backend::NativeCpu,
        kinds: &[Kind::Cpu],
        has_twin: false,
    },
    Manifest {
        name: "offload",
        backend: Backend::Offload,
        kinds: &[Kind::Cpu, Kind::Gpu],
        has_twin: false,
    },
    Manifest {
        name: "opencl",
        backend: Backend::OpenCl,
        kinds: ANY_KIND,
        has_twin: false,
    },
];

/// One adapter and the paths to try for its library; the first acceptable library is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub paths: Vec<PathBuf>,
    /// If the candidate before it was loaded, only this one's paths in that library's folder are tried.
    pub has_twin: bool,
}

impl Candidate {
    fn of(paths: Vec<PathBuf>) -> Self {
        Self {
            paths,
            has_twin: false,
        }
    }

    /// The paths to try, after the candidate before it was loaded from `before`, or not at all.
    pub fn paths(&self, before: Option<&Path>) -> impl Iterator<Item = &Path> {
        let folder = before.filter(|_| self.has_twin).and_then(Path::parent);
        let paths = self.paths.iter().map(PathBuf::as_path);
        paths.filter(move |path| folder.is_none() || path.parent() == folder)
    }
}

/// The libraries to load, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub candidates: Vec<Candidate>,
    /// `UR_ADAPTERS_DEEP_BIND`: a library prefers its own symbols.
    pub deep_bind: bool,
}

/// Plans from the environment. `own_directory` returns the loader's directory; it is called only if
/// needed.
pub fn plan(env: &Env<'_>, own_directory: impl FnOnce() -> Option<PathBuf>) -> Plan {
    let mut plan = Plan {
        deep_bind: env.flag("UR_ADAPTERS_DEEP_BIND", false),
        ..Plan::default()
    };
    let filters = env.flag("UR_LOADER_PRELOAD_FILTER", true);
    match env.list("UR_ADAPTERS_FORCE_LOAD") {
        Some(forced) => plan.force(env, forced),
        None => plan.search(env, filters, own_directory()),
    }
    plan
}

/// A plan of the mock adapter alone, whatever the environment selects.
pub fn mock(env: &Env<'_>, own_directory: impl FnOnce() -> Option<PathBuf>) -> Plan {
    let mut plan = Plan {
        deep_bind: env.flag("UR_ADAPTERS_DEEP_BIND", false),
        ..Plan::default()
    };
    let directories = directories(env, own_directory());
    plan.candidates = vec![candidate(MOCK, &directories)];
    plan
}

impl Plan {
    /// Plans the named libraries only, in their order, whatever is selected.
    fn force(&mut self, env: &Env<'_>, paths: Result<Vec<String>, ListError>) {
        match paths {
            Ok(paths) => {
                let candidate = |path: String| Candidate::of(vec![path.into()]);
                self.candidates = paths.into_iter().map(candidate).collect();
            }
            Err(error) => env.complain(&format!(
                "UR_ADAPTERS_FORCE_LOAD: {error}; accepted: paths, separated by commas; no adapter is \
                 loaded"
            )),
        }
    }

    fn search(&mut self, env: &Env<'_>, filters: bool, own_directory: Option<PathBuf>) {
        let directories = directories(env, own_directory);
        let filter = filters.then(|| selector_filter(env)).flatten();
        let listed = MANIFESTS.iter().filter(|manifest| {
            filter
                .as_ref()
                .is_none_or(|filter| filter.keeps_adapter(manifest.backend, manifest.kinds))
        });
        self.candidates = listed
            .map(|manifest| Candidate {
                has_twin: manifest.has_twin,
                ..candidate(manifest.name, &directories)
            })
            .collect();
    }
}

/// The directories to search before the dynamic linker's.
fn directories(env: &Env<'_>, own_directory: Option<PathBuf>) -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> = match env.list("UR_ADAPTERS_SEARCH_PATH") {
        None => Vec::new(),
        Some(Ok(paths)) => paths.into_iter().map(PathBuf::from).collect(),
        Some(Err(error)) => {
            env.complain(&format!(
                "UR_ADAPTERS_SEARCH_PATH: {error}; accepted: folders, separated by commas; none is \
                 searched"
            ));
            Vec::new()
        }
    };
    directories.extend(own_directory);
    directories
}

/// The selector that drops adapters before they are loaded; none if it is malformed. The error is
/// then reported by `urDeviceGetSelected`.
fn selector_filter(env: &Env<'_>) -> Option<Selector> {
    let text = env.text("ONEAPI_DEVICE_SELECTOR")?;
    Selector::parse(&text, Duplicates::Merge)
        .inspect_err(|error| env.complain(&format!("ONEAPI_DEVICE_SELECTOR: {error}")))
        .ok()
}

/// The paths of an adapter: in each directory the installed name, then the name in a build tree.
fn candidate(adapter: &str, directories: &[PathBuf]) -> Candidate {
    let names = [
        format!("libur_adapter_{adapter}.so.0"),
        format!("libur_adapter_{adapter}.so"),
    ];
    let in_directories = directories
        .iter()
        .flat_map(|directory| names.iter().map(|name| directory.join(name)));
    // The dynamic linker searches its own path for a name without a directory.
    let by_linker = names.iter().map(PathBuf::from);
    Candidate::of(in_directories.chain(by_linker).collect())
}

/// The directory of the library or program that contains this code.
pub fn own_directory() -> Option<PathBuf> {
    own_path()?.parent().map(Path::to_owned)
}

/// The path of the library or program that contains this code.
pub fn own_path() -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    let here = own_path as fn() -> Option<PathBuf> as *const libc::c_void;
    // SAFETY: `dladdr` accepts any address; `info` is a local variable.
    let found = unsafe { libc::dladdr(here, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: `dladdr` found the object, whose name is a C string while it is loaded, as it is
    // here.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    path.canonicalize().ok()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::{Path, PathBuf};

    use super::{MANIFESTS, Plan, mock, own_directory, plan};
    use ur::object::env::Env;

    fn plan_for(variables: &[(&str, &str)], own: Option<&str>) -> Plan {
        let (plan, reported) = complaints_of(variables, own);
        assert_eq!(reported, Vec::<String>::new());
        plan
    }

    /// A plan and its complaints.
    fn complaints_of(variables: &[(&str, &str)], own: Option<&str>) -> (Plan, Vec<String>) {
        let reported = RefCell::<Vec<String>>::default();
        let complain = |text: &str| reported.borrow_mut().push(text.to_owned());
        let get = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let plan = plan(&Env::new(&get, &complain), || own.map(PathBuf::from));
        (plan, reported.into_inner())
    }

    /// The adapters' names, from the last path of each candidate.
    fn names(plan: &Plan) -> String {
        let name = |path: Option<&PathBuf>| {
            let text = path
                .map(|path| path.display().to_string())
                .unwrap_or_default();
            let text = text
                .trim_start_matches("libur_adapter_")
                .trim_end_matches(".so");
            text.to_owned()
        };
        let all = plan
            .candidates
            .iter()
            .map(|candidate| name(candidate.paths.last()));
        all.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn adapters_come_in_the_order_of_their_libraries() {
        let files: Vec<String> = MANIFESTS
            .iter()
            .map(|m| format!("libur_adapter_{}.so.0", m.name))
            .collect();
        assert!(files.is_sorted());
        let plan = plan_for(&[], None);
        assert_eq!(
            names(&plan),
            "cuda hip level_zero level_zero_v2 native_cpu offload opencl"
        );
        assert!(!plan.deep_bind);
    }

    #[test]
    fn the_mock_is_loaded_alone_whatever_is_named() {
        let get = |name: &str| match name {
            "UR_ADAPTERS_FORCE_LOAD" => Some("/z/libx.so".to_owned()),
            "ONEAPI_DEVICE_SELECTOR" => Some("opencl:*".to_owned()),
            "UR_ADAPTERS_SEARCH_PATH" => Some("/a".to_owned()),
            _ => None,
        };
        let plan = mock(&Env::new(&get, &|text| panic!("{text}")), || {
            Some(PathBuf::from("/own"))
        });
        assert_eq!(names(&plan), "mock");
        assert_eq!(
            plan.candidates[0].paths[..3],
            [
                "/a/libur_adapter_mock.so.0",
                "/a/libur_adapter_mock.so",
                "/own/libur_adapter_mock.so.0"
            ]
            .map(PathBuf::from)
        );
    }

    #[test]
    fn directories_are_searched_in_order() {
        let variables = [
            ("UR_ADAPTERS_SEARCH_PATH", "/a,\"/b:c\""),
            ("UR_ADAPTERS_DEEP_BIND", "1"),
        ];
        let plan = plan_for(&variables, Some("/opt/lib"));
        assert!(plan.deep_bind);
        let paths: Vec<String> = plan.candidates[0]
            .paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        assert_eq!(
            paths,
            [
                "/a/libur_adapter_cuda.so.0",
                "/a/libur_adapter_cuda.so",
                "/b:c/libur_adapter_cuda.so.0",
                "/b:c/libur_adapter_cuda.so",
                "/opt/lib/libur_adapter_cuda.so.0",
                "/opt/lib/libur_adapter_cuda.so",
                "libur_adapter_cuda.so.0",
                "libur_adapter_cuda.so",
            ]
        );
    }

    #[test]
    fn a_malformed_search_path_is_reported_and_ignored() {
        let variables = [("UR_ADAPTERS_SEARCH_PATH", "/a:/b")];
        let (plan, reported) = complaints_of(&variables, Some("/own"));
        assert_eq!(plan.candidates[0].paths.len(), 4);
        assert_eq!(
            reported,
            [
                "UR_ADAPTERS_SEARCH_PATH: an item with `:` or `;` needs quotes (at byte 2); accepted: \
                 folders, separated by commas; none is searched"
            ]
        );
    }

    #[test]
    fn a_twin_comes_from_the_folder_of_its_twin() {
        let plan = plan_for(&[("UR_ADAPTERS_SEARCH_PATH", "/a")], Some("/own"));
        let at = MANIFESTS.iter().position(|one| one.has_twin).expect("one");
        assert_eq!(
            (MANIFESTS[at - 1].name, MANIFESTS[at].name),
            ("level_zero", "level_zero_v2")
        );
        let paths = |before: Option<&str>| -> Vec<String> {
            let paths = plan.candidates[at].paths(before.map(Path::new));
            paths.map(|path| path.display().to_string()).collect()
        };
        let [exact, plain] = [
            "libur_adapter_level_zero_v2.so.0",
            "libur_adapter_level_zero_v2.so",
        ];
        assert_eq!(
            paths(Some("/own/libur_adapter_level_zero.so.0")),
            [format!("/own/{exact}"), format!("/own/{plain}")]
        );
        assert_eq!(paths(Some("libur_adapter_level_zero.so.0")), [exact, plain]);
        assert_eq!(paths(None).len(), 6);
        let other = plan.candidates[0].paths(Some(Path::new("/own/libx.so")));
        assert_eq!(other.count(), 6, "no twin");
    }

    #[test]
    fn an_invalid_flag_is_reported_and_keeps_its_default() {
        let variables = [
            ("UR_ADAPTERS_DEEP_BIND", "deep"),
            ("UR_LOADER_PRELOAD_FILTER", "off"),
            ("ONEAPI_DEVICE_SELECTOR", "hip:0"),
        ];
        let (plan, reported) = complaints_of(&variables, None);
        assert_eq!((names(&plan).as_str(), plan.deep_bind), ("hip", false));
        assert!(
            reported[0]
                .starts_with("UR_ADAPTERS_DEEP_BIND: `deep` is not understood; accepted: 1, "),
            "{reported:?}"
        );
        assert!(
            reported[1]
                .starts_with("UR_LOADER_PRELOAD_FILTER: `off` is not understood; accepted: 1, "),
            "{reported:?}"
        );
        assert_eq!(reported.len(), 2, "{reported:?}");
    }

    #[test]
    fn the_selector_filters_adapters() {
        let listed =
            |selector: &str| names(&plan_for(&[("ONEAPI_DEVICE_SELECTOR", selector)], None));
        assert_eq!(listed("opencl:cpu;cuda:0,1"), "cuda opencl");
        assert_eq!(listed("level_zero:*"), "level_zero level_zero_v2");
        assert_eq!(
            listed("!opencl:*;!*:fpga"),
            "cuda hip level_zero level_zero_v2 native_cpu offload"
        );
        assert_eq!(
            listed("*:cpu"),
            "level_zero level_zero_v2 native_cpu offload opencl"
        );
        assert_eq!(
            listed("hip:0;hip:1"),
            "hip",
            "a duplicate is no reason to load everything"
        );
        let unfiltered = [
            ("ONEAPI_DEVICE_SELECTOR", "hip:0"),
            ("UR_LOADER_PRELOAD_FILTER", "0"),
        ];
        assert_eq!(
            plan_for(&unfiltered, None).candidates.len(),
            MANIFESTS.len()
        );
        let wrong = [("ONEAPI_DEVICE_SELECTOR", "hip:0;cdua:1")];
        let (malformed, reported) = complaints_of(&wrong, None);
        assert_eq!(malformed.candidates.len(), MANIFESTS.len());
        assert!(
            reported[0].ends_with("hip:0;cdua:1\n        ^"),
            "{reported:?}"
        );
    }

    #[test]
    fn forced_libraries_are_not_filtered() {
        let forced = |text: &str| {
            complaints_of(
                &[
                    ("UR_ADAPTERS_FORCE_LOAD", text),
                    ("ONEAPI_DEVICE_SELECTOR", "opencl:*"),
                    ("UR_ADAPTERS_SEARCH_PATH", "/elsewhere"),
                ],
                Some("/own"),
            )
        };
        let (plan, reported) = forced("/z/libx.so,'/y/lib:b.so'");
        assert!(reported.is_empty(), "{reported:?}");
        let paths: Vec<_> = plan
            .candidates
            .iter()
            .map(|candidate| candidate.paths.clone())
            .collect();
        assert_eq!(
            paths,
            [
                [PathBuf::from("/z/libx.so")],
                [PathBuf::from("/y/lib:b.so")]
            ]
        );
        let (bad, reported) = forced("/z/libx.so,");
        assert!(
            bad.candidates.is_empty() && reported.len() == 1,
            "{bad:?} {reported:?}"
        );
    }

    #[test]
    fn the_own_directory_is_that_of_the_running_object() {
        let exe = std::env::current_exe()
            .and_then(|path| path.canonicalize())
            .expect("own path");
        assert_eq!(own_directory().as_deref(), exe.parent());
    }
}

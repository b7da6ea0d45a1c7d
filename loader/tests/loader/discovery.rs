//! Discovery of adapters: which are found, in which order, and which are refused.

use std::path::PathBuf;
use std::sync::OnceLock;

use ur::abi::*;

use crate::common::{Fake, build_adapter, child, directory, loader, loader_path, null};

/// A copy of the loader in its own folder, which contains no adapter.
fn isolated_loader() -> &'static str {
    static COPY: OnceLock<String> = OnceLock::new();
    COPY.get_or_init(|| {
        let copy = directory("discovery-lone").join("libur_loader.so.0");
        std::fs::copy(loader_path(), &copy).expect("copied");
        copy.display().to_string()
    })
}

/// Runs [`scenario_list`] and compares the tags of the adapters found.
fn expect(expected: &str, adapters: &[String], variables: &[(&str, &str)]) -> String {
    let joined = adapters.join(",");
    let mut all = vec![
        ("LOADER", isolated_loader()),
        ("EXPECTED_TAGS", expected),
        ("TEST_ADAPTERS", &joined),
        ("UR_LOG_LOADER", "level:info"),
    ];
    all.extend(variables);
    child("discovery::scenario_list", &all)
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_list() {
    let text = |name: &str| std::env::var(name).unwrap_or_default();
    let loader = loader();
    assert_eq!(loader.init(), UR_RESULT_SUCCESS);
    let fakes: Vec<Fake> = text("TEST_ADAPTERS")
        .split(',')
        .filter(|path| !path.is_empty())
        .map(Fake::open)
        .collect();
    let tag = |&adapter: &ur_adapter_handle_t| {
        // A library returns -1 for adapters of other libraries.
        let tags = fakes.iter().map(|fake| fake.tag(adapter));
        tags.filter(|tag| *tag >= 0)
            .map(|tag| tag.to_string())
            .collect::<String>()
    };
    let (result, adapters, total) = loader.adapters(8);
    assert_eq!(result, UR_RESULT_SUCCESS);
    assert_eq!(adapters.len(), total as usize);
    let tags: Vec<String> = adapters.iter().map(tag).collect();
    assert_eq!(tags.join(" "), text("EXPECTED_TAGS"));
    for capacity in 0..total {
        let (result, some, all) = loader.adapters(capacity);
        assert_eq!(
            (result, all),
            (UR_RESULT_SUCCESS, total),
            "the count is that of all"
        );
        assert_eq!(some, adapters[..capacity as usize]);
    }
    assert_eq!(loader.tear_down(), UR_RESULT_SUCCESS);
}

#[test]
fn bad_libraries_are_skipped_with_a_reason() {
    let directory = directory("discovery-bad");
    let build = |name: &str, definitions: &[&str]| {
        build_adapter(&directory.join(format!("{name}.so")), definitions)
    };
    let text = directory.join("text.so");
    std::fs::write(&text, "no library").expect("file");
    let good = build("good", &["TAG=100"]);
    let two = build("two", &["TAG=200", "ADAPTERS=2"]);
    let list = [
        directory.join("missing.so").display().to_string(),
        text.display().to_string(),
        good.clone(),
        build("version", &["BROKEN=1"]),
        build("table", &["BROKEN=2"]),
        build("empty", &["BROKEN=3"]),
        build("old", &["BROKEN=4"]),
        build("failing", &["BROKEN=5"]),
        build("none", &["ADAPTERS=0"]),
        two.clone(),
        loader_path().display().to_string(),
        "libc.so.6".to_owned(),
    ];
    let forced = list.join(",");
    let log = expect(
        "100 200 201",
        &[good, two],
        &[("UR_ADAPTERS_FORCE_LOAD", &forced)],
    );
    for expected in [
        "missing.so: cannot open shared object file",
        "text.so: ",
        "/version.so: `urGetAdapterProcAddrTable` failed: UR_RESULT_ERROR_UNSUPPORTED_VERSION",
        "/table.so: `urGetUsmP2PExpProcAddrTable` failed: UR_RESULT_ERROR_OUT_OF_RESOURCES",
        "/empty.so: its Adapter table has no `urAdapterGet`",
        "/old.so: lacks `urGetEventExpProcAddrTable`",
        "libur_loader.so: `urGetAdapterProcAddrTable` failed: UR_RESULT_ERROR_UNINITIALIZED",
        "refused libc.so.6: lacks `urGetEventExpProcAddrTable`",
    ] {
        assert!(log.contains(expected), "{expected} is not in\n{log}");
    }
}

#[test]
fn an_adapter_without_tables_leaves_a_null_handle() {
    let directory = directory("discovery-mute");
    let mute = build_adapter(&directory.join("mute.so"), &["BROKEN=6", "ADAPTERS=2"]);
    let good = build_adapter(&directory.join("good.so"), &["TAG=5"]);
    let forced = format!("{mute},{good}");
    child(
        "discovery::scenario_mute",
        &[("UR_ADAPTERS_FORCE_LOAD", &forced)],
    );
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_mute() {
    let loader = loader();
    assert_eq!(loader.init(), UR_RESULT_SUCCESS);
    let sentinel: ur_adapter_handle_t = std::ptr::without_provenance_mut(8);
    let get = |capacity: u32| {
        let mut list = [sentinel; 4];
        let mut total = 77;
        // SAFETY: the list has room for `capacity` handles.
        let result = unsafe { (loader.urAdapterGet)(capacity, list.as_mut_ptr(), &mut total) };
        assert_eq!(result, UR_RESULT_SUCCESS);
        (list, total)
    };
    assert_eq!(loader.adapters(0).2, 3, "counting asks for no handle");
    let (list, total) = get(4);
    assert_eq!(total, 1);
    assert!(list[0] != sentinel && !list[0].is_null(), "the good one");
    assert_eq!(list[1..], [null(), null(), sentinel]);
    assert_eq!(get(1), ([null(), sentinel, sentinel, sentinel], 2));
}

/// Installs adapters in a directory: file names with the adapters' tags.
fn install(name: &str, files: &[(&str, &str)]) -> (PathBuf, Vec<String>) {
    let directory = directory(name);
    let build = |&(file, definition): &(&str, &str)| {
        let definitions: Vec<&str> = definition.split(' ').collect();
        build_adapter(&directory.join(file), &definitions)
    };
    let built = files.iter().map(build).collect();
    (directory, built)
}

#[test]
fn the_search_path_is_searched_in_order() {
    let (first, mut adapters) = install(
        "discovery-first",
        &[
            ("libur_adapter_opencl.so", "TAG=1"),
            ("libur_adapter_cuda.so.0", "TAG=2 BROKEN=1"),
        ],
    );
    let (second, more) = install(
        "discovery-second",
        &[
            ("libur_adapter_opencl.so.0", "TAG=3"),
            ("libur_adapter_cuda.so", "TAG=4"),
            ("libur_adapter_hip.so.0", "TAG=5"),
            ("libur_adapter_hip.so", "TAG=6"),
            ("libur_adapter_unheard_of.so.0", "TAG=7"),
        ],
    );
    adapters.extend(more);
    let path = format!("{},{},/no/such/place", first.display(), second.display());
    let place = ("UR_ADAPTERS_SEARCH_PATH", path.as_str());
    // The order is that of names, not of directories. The first cuda adapter is refused, so that
    // the next is used. An installed name precedes a build tree's name in the same directory only.
    expect("4 5 1", &adapters, &[place]);
    expect(
        "5",
        &adapters,
        &[place, ("ONEAPI_DEVICE_SELECTOR", "hip:gpu;native_cpu:*")],
    );
    expect(
        "4 5",
        &adapters,
        &[place, ("ONEAPI_DEVICE_SELECTOR", "!opencl:*")],
    );
    let unfiltered = ("UR_LOADER_PRELOAD_FILTER", "no");
    expect(
        "4 5 1",
        &adapters,
        &[place, ("ONEAPI_DEVICE_SELECTOR", "hip:gpu"), unfiltered],
    );
    let log = expect(
        "4 5 1",
        &adapters,
        &[place, ("ONEAPI_DEVICE_SELECTOR", "hip:gpu;x:y")],
    );
    assert!(log.contains("unknown backend `x`"), "{log}");
    assert!(log.contains("\n  hip:gpu;x:y\n          ^\n"), "{log}");
    expect("4 5 1", &adapters, &[place, ("UR_ADAPTERS_DEEP_BIND", "1")]);
}

#[test]
fn the_loaders_own_directory_is_searched() {
    let (directory, adapters) =
        install("discovery-own", &[("libur_adapter_native_cpu.so", "TAG=9")]);
    let copy = directory.join("libur_loader.so.0");
    std::fs::copy(loader_path(), &copy).expect("copied");
    let copy = copy.display().to_string();
    expect("9", &adapters, &[("LOADER", &copy)]);
}

//! Exports of the built loader: the reference's symbols with the reference's version, and six functions that
//! older clients import.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::reference::Reference;

/// Functions that the reference dropped after 2026.1, and that its libsycl imports.
const DROPPED: [&str; 6] = [
    "urEnqueueKernelLaunch",
    "urKernelSetArgLocal",
    "urKernelSetArgMemObj",
    "urKernelSetArgPointer",
    "urKernelSetArgSampler",
    "urKernelSetArgValue",
];

fn reference() -> Reference {
    Reference::load().expect("scripts/abi/reference.json is readable")
}

/// `name@@VERSION` of each symbol that a shared object defines.
fn exports(library: &Path) -> BTreeSet<String> {
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--with-symbol-versions"])
        .arg(library)
        .output()
        .expect("nm (binutils) is installed");
    assert!(
        output.status.success(),
        "nm: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let symbols = text
        .lines()
        .filter(|line| !line.contains(" A "))
        .filter_map(|line| line.split_whitespace().last());
    symbols.map(str::to_owned).collect()
}

/// The libraries of this build by package, rebuilt by cargo if missing or stale.
fn built(packages: &[String]) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let target = test
        .ancestors()
        .nth(3)
        .expect("target/<profile>/deps/<test>");
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["build", "--quiet"])
        .current_dir(xtask::repository());
    for package in packages {
        build.args(["--package", package]);
    }
    build.arg("--target-dir").arg(target);
    assert!(
        build.status().expect("cargo runs").success(),
        "{build:?} failed"
    );
    target.join("debug")
}

#[test]
fn each_adapter_exports_its_tables_and_nothing_else() {
    let reference = reference();
    let expected: BTreeSet<String> = reference.getters.keys().cloned().collect();
    assert_eq!(expected.len(), 26);
    let adapters = xtask::build::adapters(&xtask::repository()).expect("adapters/ is readable");
    let packages = adapters
        .iter()
        .map(|adapter| format!("ur-adapter-{}", adapter.replace('_', "-")));
    let folder = built(&packages.collect::<Vec<_>>());
    for adapter in &adapters {
        let library = folder.join(format!("libur_adapter_{adapter}.so"));
        assert_eq!(exports(&library), expected, "{adapter}");
        let read = Command::new("readelf").arg("-d").arg(&library).output();
        let text = String::from_utf8_lossy(&read.expect("readelf (binutils) is installed").stdout)
            .into_owned();
        let soname = format!("Library soname: [libur_adapter_{adapter}.so.0]");
        assert!(text.contains(&soname), "{adapter}: {text}");
    }
}

#[test]
fn loader_exports_the_reference_set() {
    let reference = reference();
    let [version] = &reference.symbol_version[..] else {
        panic!("one version")
    };
    let names = reference.symbols.iter().map(String::as_str).chain(DROPPED);
    let expected: BTreeSet<String> = names.map(|name| format!("{name}@@{version}")).collect();
    let library = built(&["ur-loader".to_owned()]).join("libur_loader.so");
    let found = exports(&library);
    let missing: Vec<_> = expected.difference(&found).collect();
    let extra: Vec<_> = found.difference(&expected).collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "{}: {} missing: {missing:#?}\n{} too many: {extra:#?}",
        library.display(),
        missing.len(),
        extra.len()
    );
    println!(
        "{} symbols @@{version} agree, {} of them dropped by the reference",
        found.len(),
        DROPPED.len()
    );
}

#[test]
fn reference_symbols_are_its_functions() {
    let reference = reference();
    let declared = reference
        .functions
        .keys()
        .chain(reference.getters.keys())
        .chain(reference.printers.keys());
    let declared: BTreeSet<_> = declared.collect();
    let exported: BTreeSet<_> = reference.symbols.iter().collect();
    assert_eq!(declared, exported);
    println!(
        "{} exported symbols: {} functions, {} table getters, {} printers",
        exported.len(),
        reference.functions.len(),
        reference.getters.len(),
        reference.printers.len()
    );
}

#[test]
fn nothing_that_an_older_libsycl_imports_is_missing() {
    let reference = reference();
    let exported: BTreeSet<_> = reference
        .symbols
        .iter()
        .map(String::as_str)
        .chain(DROPPED)
        .collect();
    let imports = &reference.imports_of_libsycl_2026_1_2;
    let missing: Vec<_> = imports
        .iter()
        .filter(|name| !exported.contains(name.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "imported by libsycl 2026.1.2 and not exported: {missing:?}"
    );
    println!(
        "{} imports of libsycl.so.9 2026.1.2 are exported",
        imports.len()
    );
}

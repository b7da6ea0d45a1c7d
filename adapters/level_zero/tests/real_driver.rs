//! The adapter on Intel's own driver without a GPU, as every product that the driver can pretend to be.
//!
//! The driver and Intel's adapter "v2" are in the folder of `UR_LEVEL_ZERO`, else in `target/level_zero`, where
//! `scripts/level_zero.sh` puts them. Without them a test says that it is skipped.

mod client;
mod differences;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use client::{Client, Sharing};
use differences::{DIFFERENCES, PARTS};
use serde_json::Value;

/// A folder with drivers, and the libraries and programs of this build.
struct Drivers {
    drivers: PathBuf,
    built: PathBuf,
}

fn repository() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

impl Drivers {
    /// The drivers of a suite. None, said aloud, if it was not fetched.
    fn find(suite: &str) -> Option<Self> {
        let given = std::env::var_os("UR_LEVEL_ZERO").map(PathBuf::from);
        let drivers = given.unwrap_or_else(|| repository().join("target/level_zero"));
        let there = match suite {
            "v2" => drivers.join("v2-2026.2.0/ready"),
            suite => drivers.join(suite).join("versions"),
        };
        if !there.exists() {
            let reason = std::fs::read_to_string(drivers.join(suite).join("skipped"));
            let reason = reason.unwrap_or_else(|_| "scripts/level_zero.sh has not run".to_owned());
            println!(
                "skipped: no {suite} in {}: {}",
                drivers.display(),
                reason.trim()
            );
            return None;
        }
        Some(Self {
            drivers,
            built: built().to_owned(),
        })
    }

    /// What a program of this build prints on a suite's driver as a product.
    fn run(&self, suite: &str, product: &str, program: &str, arguments: &[&str]) -> String {
        let mut command = self.command(suite, product, program, arguments);
        let output = command.output().expect("bash runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{command:?}: {}\n{}{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    fn command(&self, suite: &str, product: &str, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(repository().join("scripts/level_zero.sh"));
        command.arg(&self.drivers).args([suite, product]);
        command.arg(self.built.join(program)).args(arguments);
        command
            .arg("--loader")
            .arg(self.built.join("libur_loader.so"));
        self.environment(&mut command, suite);
        command
    }

    /// This program again as a client of a suite's adapter: the test `test` in that role. See `client`.
    fn client(&self, suite: &str, product: &str, test: &str, role: &str) -> Command {
        let mut command = Command::new(repository().join("scripts/level_zero.sh"));
        command.arg(&self.drivers).args([suite, product]);
        command.arg(std::env::current_exe().expect("this test has a file"));
        command.args(["--exact", test, "--nocapture"]);
        command.env(client::ROLE, role);
        command.env(client::LOADER, self.built.join("libur_loader.so"));
        self.environment(&mut command, suite);
        command
    }

    fn environment(&self, command: &mut Command, suite: &str) {
        if suite != "v2" {
            let own = self.built.join("libur_adapter_level_zero.so");
            command.env("UR_ADAPTERS_FORCE_LOAD", own);
        }
        let forward = self.built.join("libforward_level_zero.so");
        command.env("ZE_ENABLE_ALT_DRIVERS", forward);
    }

    /// The conformance program, which starts itself again.
    fn conformance_program(&self, suite: &str) -> String {
        let program = self.built.join("ur-conformance").display().to_string();
        if suite != "sid" {
            return program;
        }
        let mut copy = Command::new(repository().join("scripts/level_zero.sh"));
        copy.arg(&self.drivers).args(["copy", &program]);
        let output = copy.output().expect("bash runs");
        assert!(output.status.success(), "{copy:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Runs suites of the conformance program; `expected` has the names of tests that fail there. Panics for any other.
    fn conformance(
        &self,
        (suite, product): (&str, &str),
        variables: &[(&str, &str)],
        suites: &[&str],
        expected: &[&str],
    ) {
        let known = repository().join("conformance/expectations/level_zero.yml");
        let case: String = variables
            .iter()
            .map(|(name, _)| format!("_{name}"))
            .collect();
        let report = self
            .built
            .join(format!("level_zero_{suite}_{product}{case}.json"));
        let mut arguments = vec!["--timeout".to_owned(), "30".to_owned()];
        for (name, path) in [("--expectations", &known), ("--json", &report)] {
            arguments.extend([name.to_owned(), path.display().to_string()]);
        }
        let filter = |suite: &&str| match suite.contains("::") {
            true => format!("--filter={suite}"),
            false => format!("--filter={suite}::"),
        };
        arguments.extend(suites.iter().map(filter));
        let program = self.conformance_program(suite);
        // The program's exit status tells of expected failures too.
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = self.command(suite, product, &program, &arguments);
        let output = command.envs(variables.iter().copied()).output();
        let output = output.expect("bash runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let all = std::fs::read_to_string(&report);
        let all = all.unwrap_or_else(|error| panic!("{error}: {text}"));
        let all: Value = serde_json::from_str(&all).expect("a report");
        let tests = all["tests"].as_array().expect("a list of tests");
        let of = |outcome: &str| -> Vec<String> {
            let those = tests.iter().filter(|test| test["outcome"] == outcome);
            let name = |test: &Value| format!("{}::{}", test["suite"], test["test"]);
            those.map(|test| name(test).replace('"', "")).collect()
        };
        let failed = of("failed");
        let mut strange = failed
            .iter()
            .filter(|name| !expected.contains(&name.as_str()));
        assert!(strange.next().is_none(), "{product}: {failed:?}\n{text}");
        assert!(of("passed").len() > 100, "{product}: {text}");
        println!(
            "{suite} {product}: {}",
            text.lines().last().unwrap_or_default()
        );
    }

    fn products(&self, suite: &str) -> Vec<String> {
        let mut command = Command::new(repository().join("scripts/level_zero.sh"));
        command.arg(&self.drivers).args(["products", suite]);
        let output = command.output().expect("bash runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// The version of sid's loader, as `1.32.0`.
    fn loader(&self) -> String {
        let versions = std::fs::read_to_string(self.drivers.join("sid/versions"));
        let versions = versions.expect("the packages' versions");
        let own = versions
            .lines()
            .find_map(|line| line.strip_prefix("libze1 "));
        let own = own.expect("the loader's package");
        own.split('-').next().unwrap_or(own).to_owned()
    }

    /// Each property of the first device, or the error of its query.
    fn properties(&self, suite: &str, product: &str) -> BTreeMap<String, String> {
        let text = self.run(suite, product, "urinfo", &["--json"]);
        let all: Value = serde_json::from_str(&text).expect("urinfo prints JSON");
        let device = &all["adapters"][0]["platforms"][0]["devices"][0];
        let section = |name: &str| {
            let pairs = device[name]
                .as_object()
                .unwrap_or_else(|| panic!("no {name}: {text}"));
            let pair = |(name, value): (&String, &Value)| (name.clone(), value.to_string());
            pairs.iter().map(pair).collect::<Vec<_>>()
        };
        section("info")
            .into_iter()
            .chain(section("missing"))
            .collect()
    }
}

/// Builds what the tests run beside each other, which no dependency makes Cargo build. Returns its folder.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let test = std::env::current_exe().expect("this test has a file");
        let folder = test.parent().and_then(Path::parent);
        let folder = folder.expect("target/<profile>/deps/<test>").to_owned();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--target-dir"]);
        build.arg(folder.parent().expect("target/<profile>"));
        for package in [
            "ur-adapter-level-zero",
            "forward-level-zero",
            "ur-loader",
            "ur-tools",
            "ur-conformance",
        ] {
            build.args(["--package", package]);
        }
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(
            build.status().expect("cargo runs").success(),
            "{build:?} failed"
        );
        folder
    })
}

#[test]
fn properties_are_those_of_intels_adapter_or_differ_for_a_reason() {
    let (Some(drivers), Some(_)) = (Drivers::find("sid"), Drivers::find("v2")) else {
        return;
    };
    let products = drivers.products("sid");
    assert_eq!(products.len(), 9, "{products:?}");
    let mut unexplained = Vec::new();
    let mut seen = BTreeMap::new();
    for product in &products {
        let [ours, theirs] = ["sid", "v2"].map(|suite| drivers.properties(suite, product));
        assert!(ours.len() > 150, "{product} has {} properties", ours.len());
        assert!(
            ours.keys().eq(theirs.keys()),
            "{product}: not the same properties"
        );
        for (name, own) in &ours {
            let their = &theirs[name];
            let short = name.trim_start_matches("UR_DEVICE_INFO_");
            if short == "PLATFORM" || own == their {
                continue;
            }
            match DIFFERENCES.iter().find(|(of, _)| *of == short) {
                Some((_, reason)) if reason.allows(own, their) => {
                    *seen.entry(short.to_owned()).or_insert(0) += 1;
                }
                _ => unexplained.push(format!("{product} {short}: ours {own}, theirs {their}")),
            }
        }
    }
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
    let idle = DIFFERENCES
        .iter()
        .filter(|(name, _)| !seen.contains_key(*name));
    let idle: Vec<_> = idle.map(|(name, _)| name).collect();
    assert!(
        idle.is_empty(),
        "no product differs in {idle:?}: take them off the list"
    );
    println!(
        "{} products, {} properties differ for a reason",
        products.len(),
        seen.len()
    );
    for (name, reason) in DIFFERENCES {
        println!("  {name}: {}", reason.text());
    }
}

/// What a client writes of each device and part, by path and name.
type Tree = BTreeMap<(String, String), String>;

impl Drivers {
    /// All devices and parts as an adapter gives them, where each device has so many compute queues.
    fn tree(&self, suite: &str, product: &str, variables: &[(&str, &str)]) -> Tree {
        let mut command = self.client(suite, product, SLICES, "devices");
        let output = command.envs(variables.iter().copied()).output();
        let output = output.expect("bash runs");
        let [text, trace] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "{command:?}: {text}{trace}");
        let mut tree: Tree = written(text.lines());
        let mut path = None;
        for line in trace.lines() {
            match (line.strip_prefix("queue of "), line.strip_prefix("list ")) {
                (Some(of), _) => path = Some(of.to_owned()),
                (_, Some(list)) => {
                    let engine = list.split_once(' ').map(|(_, engine)| engine.to_owned());
                    if let (Some(path), Some(engine)) = (path.take(), engine) {
                        tree.insert((path, "QUEUE".to_owned()), engine);
                    }
                }
                (None, None) => {}
            }
        }
        tree
    }
}

const SLICES: &str = "parts_are_those_of_intels_adapter_or_differ_for_a_reason";
const TILES: [(&str, &str); 2] = [
    ("CreateMultipleSubDevices", "2"),
    ("ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE"),
];
const COMBINED: [(&str, &str); 2] = [
    ("CreateMultipleSubDevices", "2"),
    ("ZE_FLAT_DEVICE_HIERARCHY", "COMBINED"),
];
const QUEUES: (&str, &str) = ("FORWARD_LEVEL_ZERO_COMPUTE_QUEUES", "4");
const BY_DOMAIN: (&str, &str) = ("UR_L0_EXPOSE_CSLICE_IN_AFFINITY_PARTITIONING", "1");

/// A product, its variables, and its numbers of devices, their parts, and those parts' parts.
type PartsCase = (&'static str, Vec<(&'static str, &'static str)>, [usize; 3]);

/// Cards, tiles and slices of a product without slices, of one with them, and with the variable that gives all products
/// slices.
#[test]
fn parts_are_those_of_intels_adapter_or_differ_for_a_reason() {
    if client::role().is_some() {
        return Client::open().write_devices();
    }
    let (Some(drivers), Some(_)) = (Drivers::find("sid"), Drivers::find("v2")) else {
        return;
    };
    let [one, two] = TILES;
    let cases: [PartsCase; 7] = [
        ("pvc", vec![QUEUES], [1, 0, 0]),
        ("pvc", vec![one, two], [1, 2, 0]),
        ("pvc", vec![one, two, QUEUES], [1, 2, 8]),
        ("pvc", vec![one, two, QUEUES, BY_DOMAIN], [1, 2, 8]),
        ("pvc", [&COMBINED[..], &[QUEUES]].concat(), [2, 0, 0]),
        ("bmg", vec![one, two, QUEUES], [1, 2, 0]),
        ("bmg", vec![one, two, QUEUES, BY_DOMAIN], [1, 2, 8]),
    ];
    let mut unexplained = Vec::new();
    let mut seen = BTreeMap::new();
    for (product, variables, counts) in &cases {
        let [ours, theirs] = ["sid", "v2"].map(|suite| drivers.tree(suite, product, variables));
        let case = format!("{product} {variables:?}");
        let depth = |path: &str| path.matches('.').count();
        let paths: BTreeSet<_> = ours.keys().map(|(path, _)| path.as_str()).collect();
        let found = [0, 1, 2].map(|at| paths.iter().filter(|path| depth(path) == at).count());
        assert_eq!(found, *counts, "{case}");
        let differ = ours.keys().ne(theirs.keys());
        assert!(!differ, "{case}: not the same devices or properties");
        for ((path, name), own) in &ours {
            let their = &theirs[&(path.clone(), name.clone())];
            let short = name.trim_start_matches("UR_DEVICE_INFO_");
            if short == "PLATFORM" || own == their {
                continue;
            }
            // On a Ponte Vecchio both count the clusters of a stack alike.
            let is_exact = (*product, short) == ("pvc", "XE_CLUSTERS_PER_REGION");
            let mut reasons = PARTS.iter().chain(DIFFERENCES).filter(|_| !is_exact);
            match reasons.find(|(of, reason)| *of == short && reason.allows(own, their)) {
                Some((of, reason)) => *seen.entry((*of, reason.text())).or_insert(0) += 1,
                None => unexplained.push(format!("{case} {path} {short}: {own}, theirs {their}")),
            }
        }
        // Each slice has a queue of its own, and any other device the first.
        for path in paths {
            let engine = ours.get(&(path.to_owned(), "QUEUE".to_owned()));
            let slice = match depth(path) {
                2 => path.rsplit('.').next(),
                _ => Some("0"),
            };
            let expected = slice.map(|index| format!("0 {index}"));
            let has_trace = variables.contains(&QUEUES);
            assert_eq!(
                engine,
                expected.as_ref().filter(|_| has_trace),
                "{case} {path}"
            );
        }
    }
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
    let idle = PARTS
        .iter()
        .filter(|(name, reason)| !seen.contains_key(&(*name, reason.text())));
    let idle: Vec<_> = idle.map(|(name, _)| name).collect();
    assert!(
        idle.is_empty(),
        "no part differs in {idle:?}: take them off the list"
    );
    for (name, reason) in PARTS {
        println!("  {name}: {}", reason.text());
    }
}

/// With the variable a selector has a number for a slice, as splits by domain give slices.
#[test]
fn slices_are_selected_by_number() {
    let Some(drivers) = Drivers::find("sid") else {
        return;
    };
    let [one, two] = TILES;
    let selector = ("ONEAPI_DEVICE_SELECTOR", "level_zero:0.1.3");
    let mut command = drivers.command("sid", "pvc", "urinfo", &["--json"]);
    command.envs([one, two, QUEUES, selector]);
    let none = command.output().expect("bash runs");
    assert_eq!(none.status.code(), Some(1), "{command:?}: {none:?}");
    let found = command.envs([BY_DOMAIN]).output().expect("bash runs");
    let all: Value = serde_json::from_slice(&found.stdout).expect("urinfo prints JSON");
    let devices = all["adapters"][0]["platforms"][0]["devices"].as_array();
    let units = |device: &Value| device["info"]["UR_DEVICE_INFO_MAX_COMPUTE_UNITS"].clone();
    let units = devices.map(|all| all.iter().map(units).collect::<Vec<_>>());
    assert_eq!(units, Some(vec![Value::from(128)]), "{all}");
}

const PROCESSES: &str = "two_processes_share_what_the_driver_has";

/// What a client wrote, by subject and name.
fn written<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeMap<(String, String), String> {
    let lines = lines.filter_map(|line| line.strip_prefix("> "));
    let fields = lines.map(|line| {
        let mut words = line.splitn(3, ' ').map(str::to_owned);
        let mut next = || words.next().unwrap_or_default();
        ((next(), next()), next())
    });
    fields.collect()
}

/// Without a device the driver has no memory that another process could open: every handle holds descriptor 0, and opens
/// at address 1. So an open ends as unsupported, and keeps nothing. Events open. Blobs cross, and only whole ones.
#[test]
fn two_processes_share_what_the_driver_has() {
    match client::role().as_deref() {
        Some("export") => return Sharing::open().export(),
        Some(_) => return Sharing::open().import(),
        None => {}
    }
    let Some(drivers) = Drivers::find("sid") else {
        return;
    };
    for product in ["pvc", "bmg", "tgllp"] {
        let mut first = drivers.client("sid", product, PROCESSES, "export");
        let first = first.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut first = first.expect("bash runs");
        let (mut tell, hear) = (first.stdin.take(), first.stdout.take());
        let (tell, hear) = (tell.as_mut().expect("a pipe"), hear.expect("a pipe"));
        let mut lines = BufReader::new(hear).lines().map_while(Result::ok);
        let until_ready = lines.by_ref().take_while(|line| line != "> all READY -");
        let exported: Vec<_> = until_ready.collect();
        let exported = written(exported.iter().map(String::as_str));
        let has_events = product != "tgllp";
        let mut shared = vec!["5242880", "4096"];
        match has_events {
            true => shared.push("event"),
            false => {
                let none = &exported[&("event".to_owned(), "NONE".to_owned())];
                assert_eq!(none, "UR_RESULT_ERROR_UNSUPPORTED_FEATURE", "{product}");
            }
        }
        let blobs: Vec<_> = shared
            .iter()
            .map(|what| {
                let of = |name: &str| exported[&((*what).to_owned(), name.to_owned())].clone();
                assert_eq!(of("EXPORTS_ADD"), "0", "{product} {what}: open descriptors");
                of("BLOB")
            })
            .collect();
        let import = || {
            let mut second = drivers.client("sid", product, PROCESSES, "import");
            let output = second.env(client::BLOBS, blobs.join(",")).output();
            let output = output.expect("bash runs");
            assert!(output.status.success(), "{second:?}: {output:?}");
            written(String::from_utf8_lossy(&output.stdout).lines())
        };
        let refused = "UR_RESULT_ERROR_INVALID_VALUE";
        let check = |found: BTreeMap<(String, String), String>, whole: [&str; 2]| {
            for (blob, what) in (0..).zip(&shared) {
                let of = |name: &str| found[&(format!("{blob}"), name.to_owned())].as_str();
                assert_eq!(
                    of("WHOLE"),
                    whole[usize::from(*what == "event")],
                    "{product} {what}"
                );
                assert_eq!([of("CUT"), of("SPOILED")], [refused; 2], "{product}");
                let added = ["IMPORTS_ADD", "CUTS_ADD", "SPOILED_ADD"].map(of);
                assert_eq!(added, ["0"; 3], "{product}: open descriptors");
            }
            let close = ("all".to_owned(), "CLOSE".to_owned());
            assert_eq!(found[&close], refused, "{product}");
        };
        check(
            import(),
            ["UR_RESULT_ERROR_UNSUPPORTED_FEATURE", "UR_RESULT_SUCCESS"],
        );
        writeln!(tell).expect("the other process reads");
        let put: Vec<_> = lines.by_ref().take(2).collect();
        let codes = "> all PUT [UR_RESULT_SUCCESS, UR_RESULT_ERROR_INVALID_VALUE]";
        assert_eq!(put, [codes; 2], "{product}");
        check(import(), [refused; 2]);
        writeln!(tell).expect("the other process reads");
        assert!(first.wait().expect("it ends").success(), "{product}");
    }
}

/// Variables whose effect a property shows, or a driver that is left out, beside Intel's adapter.
#[test]
fn variables_have_the_effect_that_they_have_with_intels_adapter() {
    let (Some(drivers), Some(_)) = (Drivers::find("sid"), Drivers::find("v2")) else {
        return;
    };
    let devices = |suite: &str, product: &str, variable: (&str, &str)| -> Value {
        let mut command = drivers.command(suite, product, "urinfo", &["--json"]);
        let output = command.env(variable.0, variable.1).output();
        let output = output.expect("bash runs");
        // Without a device it fails, and prints that there is no adapter.
        let all: Value = serde_json::from_slice(&output.stdout).expect("urinfo prints JSON");
        all["adapters"][0]["platforms"][0]["devices"].clone()
    };
    let shown = |info: &Value| -> BTreeMap<String, Value> {
        let all = info.as_object().expect("properties").clone();
        let is_shown = |name: &str| {
            ["VECTOR_WIDTH", "UNIFIED_MEMORY", "DRIVER_VERSION"]
                .iter()
                .any(|part| name.contains(part))
        };
        all.into_iter().filter(|(name, _)| is_shown(name)).collect()
    };
    for product in ["bmg", "tgllp"] {
        let usual = devices("sid", product, ("SYCL_HOST_UNIFIED_MEMORY", "0"));
        let version = &usual[0]["info"]["UR_DEVICE_INFO_DRIVER_VERSION"];
        let version = version.as_str().expect("a version").to_owned();
        for variable in [
            ("UR_L0_VECTOR_WIDTH_SIZE", "8"),
            ("UR_L0_VECTOR_WIDTH_SIZE", "16"),
            ("UR_L0_VECTOR_WIDTH_SIZE", "32"),
            ("SYCL_HOST_UNIFIED_MEMORY", "1"),
            ("SYCL_UR_L0_DRIVER_SKIPLIST", "1.2.3,9.9.9"),
            ("SYCL_UR_L0_LOADER_SKIPLIST", "1.32"),
        ] {
            let [ours, theirs] =
                ["sid", "v2"].map(|suite| shown(&devices(suite, product, variable)[0]["info"]));
            assert!(ours.len() > 16, "{product}: {ours:?}");
            assert_eq!(ours, theirs, "{product}, {variable:?}");
        }
        let both = format!("1.2.3,{version}");
        let loader = drivers.loader();
        for variable in [
            ("SYCL_UR_L0_DRIVER_SKIPLIST", both.as_str()),
            ("SYCL_UR_L0_LOADER_SKIPLIST", loader.as_str()),
        ] {
            for suite in ["sid", "v2"] {
                let found = devices(suite, product, variable);
                assert_eq!(found, Value::Null, "{product}: {suite} with {variable:?}");
            }
        }
    }
}

/// Intel's drivers import each buffer's memory and release it again. The tests' data are not there.
#[test]
fn drivers_import_the_memory_of_buffers() {
    for (suite, product) in [("sid", "bmg"), ("bookworm", "tgllp")] {
        let Some(drivers) = Drivers::find(suite) else {
            continue;
        };
        let program = drivers.conformance_program(suite);
        let folder = drivers.built.join(format!("level_zero_imports_{suite}"));
        // It is not there, or is of an earlier run.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a writable folder");
        let log = format!("level:debug;output:file,{}/%p", folder.display());
        let arguments = ["--timeout", "30", "--filter=buffer::"];
        let mut command = drivers.command(suite, product, &program, &arguments);
        command.env("UR_LOG_LEVEL_ZERO", log);
        command.env("SYCL_USM_HOSTPTR_IMPORT", "1");
        command.output().expect("bash runs");
        let files = std::fs::read_dir(&folder).expect("logs");
        let logs = files.map(|file| std::fs::read_to_string(file.expect("a file").path()));
        let logs: String = logs.map(|text| text.expect("text")).collect();
        let count = |text: &str| logs.matches(text).count();
        assert!(count("are imported for a buffer") > 10, "{suite}: {logs}");
        assert_eq!(count("is not imported"), 0, "{suite}: {logs}");
        assert_eq!(count("stays imported"), 0, "{suite}: {logs}");
    }
}

#[test]
fn the_old_driver_is_found() {
    let Some(drivers) = Drivers::find("bookworm") else {
        return;
    };
    for product in drivers.products("bookworm") {
        let text = drivers.run("bookworm", &product, "urinfo", &[]);
        assert!(text.contains("[level_zero:gpu]"), "{product}: {text}");
        println!("{product}: {}", text.trim());
    }
}

#[test]
fn two_cards_and_two_tiles_are_found() {
    let Some(drivers) = Drivers::find("sid") else {
        return;
    };
    let run = |variables: &[(&str, &str)]| -> Value {
        let mut command = drivers.command("sid", "pvc", "urinfo", &["--json"]);
        let output = command.envs(variables.iter().copied()).output();
        let output = output.expect("bash runs");
        assert!(output.status.success(), "{command:?}: {output:?}");
        let all: Value = serde_json::from_slice(&output.stdout).expect("urinfo prints JSON");
        all["adapters"][0]["platforms"][0]["devices"].clone()
    };
    let cards = run(&[("CreateMultipleRootDevices", "2")]);
    assert_eq!(cards.as_array().map(Vec::len), Some(2), "{cards}");
    let tiles = run(&[
        ("CreateMultipleSubDevices", "2"),
        ("ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE"),
    ]);
    assert_eq!(tiles.as_array().map(Vec::len), Some(1), "{tiles}");
    let info = &tiles[0]["info"];
    assert_eq!(info["UR_DEVICE_INFO_PARTITION_MAX_SUB_DEVICES"], 2);
    assert_eq!(
        info["UR_DEVICE_INFO_SUPPORTED_PARTITIONS"][0],
        "UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN"
    );
    println!("two cards, and a card of two tiles");
}

/// Suites that look at no data, of which the device here makes none, and such tests of others by the starts of their
/// names.
const SUITES: &[&str] = &[
    "loader",
    "adapter",
    "platform",
    "context",
    "device_info",
    "program",
    "arguments",
    "every_function",
    "declared_errors",
    "async_statistics",
    "async_validation",
    "async_threads",
    "partition",
    "peer_access",
    "unsupported",
    "sampler",
    "image::create",
    "image::too_large",
    "image::formats",
    "image::counts_references",
    "image::reports_its_context",
    "image::copy_refused",
    "image::handles_of_others_refused",
    "image::event_types",
    "image::image1d_reports",
    "image::image2d_reports",
    "image::image3d_reports",
    "image::image1d_array_reports",
    "image::image2d_array_reports",
];

/// Tests that fail there: there are no data, and no bus.
const DATA: [&str; 4] = [
    "program::specialization_constants",
    "program::dynamic_link",
    "device_info::pci_address",
    "sampler::kernels_sample_images",
];

#[test]
fn calls_are_as_the_specification_says_on_the_newest_driver() {
    let Some(drivers) = Drivers::find("sid").filter(|_| Drivers::find("v2").is_some()) else {
        return;
    };
    for product in ["bmg", "pvc", "tgllp"] {
        drivers.conformance(("sid", product), &[], SUITES, &DATA);
    }
}

/// Pools have their device memory in pages: blocks and addresses of the driver's.
#[test]
fn pools_with_pages_work_on_the_newest_driver() {
    let Some(drivers) = Drivers::find("sid").filter(|_| Drivers::find("v2").is_some()) else {
        return;
    };
    let pages = [("UR_LEVEL_ZERO_PAGES", "1")];
    drivers.conformance(("sid", "bmg"), &pages, SUITES, &DATA);
}

#[test]
fn calls_are_as_the_specification_says_on_the_old_driver() {
    let Some(drivers) = Drivers::find("bookworm") else {
        return;
    };
    // Without a device the old driver takes it for lost when its clock is read.
    let lost = [
        "program::specialization_constants",
        "program::dynamic_link",
        "device_info::pci_address",
        "sampler::kernels_sample_images",
        "every_function::urDeviceGetGlobalTimestamps",
        "every_function::urEnqueueTimestampRecordingExp",
    ];
    drivers.conformance(("bookworm", "tgllp"), &[], SUITES, &lost);
}

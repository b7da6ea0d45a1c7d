//! `ur-conformance` itself, on the native CPU adapter through the built loader.

mod support;

use std::process::Command;
use support::{both, clean, libraries, success};

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_ur-conformance");

/// Fewer tests would mean that suites are missing.
const MIN_TESTS: usize = 1000;

fn conformance() -> Command {
    let mut command = clean(PROGRAM);
    command
        .arg("--loader")
        .arg(libraries().join("libur_loader.so"));
    command
}

/// `(passed, failed)` of the closing line.
fn totals(output: &str) -> (usize, usize) {
    let line = output.lines().next_back().expect("a closing line");
    let numbers: Vec<usize> = line
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    assert!(
        line.contains(" passed, ") && line.ends_with(" skipped") && numbers.len() == 4,
        "closing line: {line}"
    );
    (numbers[0], numbers[1])
}

#[test]
fn all_suites_pass() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (junit, json) = (
        folder.path().join("junit.xml"),
        folder.path().join("run.json"),
    );
    let mut command = conformance();
    command
        .args(["--adapter", "native_cpu", "--junit"])
        .arg(&junit)
        .arg("--json")
        .arg(&json);
    let said = success(&mut command);
    // The functions called by all processes together.
    assert!(said.contains("251 of 251 functions called"), "{said}");
    let (passed, failed) = totals(&said);
    assert!(
        passed >= MIN_TESTS && failed == 0,
        "{passed} passed, {failed} failed"
    );
    let run: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).expect("the JSON file"))
            .expect("valid JSON");
    assert_eq!(run["adapter"], "native_cpu");
    assert_eq!(run["totals"]["passed"], passed);
    assert_eq!(run["executes"], true);
    assert!(
        run["tests"].as_array().is_some_and(|tests| tests
            .iter()
            .all(|test| test["rule"].as_str().is_some_and(|rule| !rule.is_empty()))),
        "a test without its rule"
    );
    everything_is_covered(&run["coverage"]);
    let xml = std::fs::read_to_string(&junit).expect("the JUnit file");
    assert!(
        xml.contains("failures=\"0\"") && xml.contains("native_cpu::async_alloc"),
        "{xml:.500}"
    );
}

/// The loader's validation layers find no error of the suites, except where a test provokes it.
///
/// Such tests free a block or a default pool twice, pass a handle of another kind, or go past the end of a
/// buffer.
#[test]
fn all_suites_pass_under_validation() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = format!("output:file,{}/%p.log", folder.path().display());
    let mut command = conformance();
    command
        .args(["--adapter", "native_cpu"])
        .env("UR_ENABLE_LAYERS", "UR_LAYER_FULL_VALIDATION")
        .env("UR_LOG_VALIDATION", log);
    let (passed, failed) = totals(&success(&mut command));
    assert!(
        passed >= MIN_TESTS && failed == 0,
        "{passed} passed, {failed} failed"
    );
    let files = std::fs::read_dir(folder.path()).expect("the folder");
    let text: String = files
        .map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("a log"))
        .collect();
    let planted = [
        "]: double free: ",
        "is passed as a handle of another kind",
        " are used, but it has ",
        "urUSMPoolDestroyExp: USM pool 0x",
    ];
    let found: Vec<&str> = text
        .lines()
        .filter(|line| !planted.iter().any(|part| line.contains(part)))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(
        text.contains(": bytes 0 to 64 of hBuffer are used, but it has 0 to 63: buffer 0x"),
        "{text}"
    );
}

/// Everything is covered, or missing for a reason of the device.
///
/// A valid call or an error condition without a test fails here.
fn everything_is_covered(coverage: &serde_json::Value) {
    let forgotten = |rows: &serde_json::Value| -> Vec<String> {
        let rows = rows.as_array().expect("rows").iter();
        rows.filter(|row| row["reason"] == "no test provokes it here")
            .map(|row| format!("{}: {}", row["function"], row["what"]))
            .collect()
    };
    let none: [String; 0] = [];
    assert_eq!(forgotten(&coverage["functions"]), none);
    assert_eq!(forgotten(&coverage["conditions"]), none);
    let conditions = coverage["conditions"].as_array().expect("rows");
    let provoked = conditions.iter().filter(|row| row["provoked"] == true);
    let (provoked, all) = (provoked.count(), conditions.len());
    assert!(
        coverage["functions"].as_array().map(Vec::len) == Some(241) && provoked * 4 > all * 3,
        "{provoked} of {all} conditions"
    );
}

/// Eight threads that share blocks over queues of both types, verified by kernels and copies.
///
/// A test makes 8,000 commands in a run of all suites, and 4 * 10^6 here.
#[test]
fn millions_of_commands() {
    if std::env::var_os("UR_LONG").is_none() {
        println!("*skipped*: UR_LONG is not set");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("run.json");
    let mut command = conformance();
    command
        .args(["--adapter", "native_cpu", "--filter", "async_endurance::"])
        .arg("--json")
        .arg(&json)
        .env("UR_LONG", "1");
    let said = success(&mut command);
    let text = std::fs::read_to_string(&json).expect("the JSON file");
    let run: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
    for row in run["tests"].as_array().expect("rows") {
        let report = row["output"].as_str().unwrap_or_default().trim();
        let seconds = row["seconds"].as_f64().unwrap_or_default();
        println!("{}, {seconds:.0} s: {report}", row["test"]);
    }
    assert_eq!(totals(&said), (5, 0), "{said}");
}

#[test]
fn environment_chooses_the_adapter() {
    let mut command = conformance();
    command
        .env("UR_ADAPTERS_SEARCH_PATH", libraries())
        .env("ONEAPI_DEVICE_SELECTOR", "native_cpu:cpu");
    let output = success(command.args(["--filter", "async_alloc::", "--jobs", "1"]));
    assert!(output.contains("(native_cpu)"), "{output}");
    assert!(totals(&output).0 > 20, "{output}");
}

#[test]
fn list_needs_no_loader() {
    let listed = success(clean(PROGRAM).args(["--list", "--filter", "async_reuse::"]));
    assert!(
        listed.lines().all(|line| line.starts_with("async_reuse::")),
        "{listed}"
    );
    assert!(listed.lines().count() > 20, "{listed}");
    let explained =
        success(clean(PROGRAM).args(["--list", "--verbose", "--filter", "launch::arguments_in"]));
    assert_eq!(
        explained,
        "launch: Kernel launches with real data.\n\
         launch::arguments_in_any_order: A launch may list its arguments in any order.\n"
    );
}

#[test]
fn nothing_to_run_on_is_distinguished() {
    let cannot_run = |command: &mut Command, reason: &str| {
        let output = command.output().expect("the program starts");
        assert_eq!(output.status.code(), Some(2), "{}", both(&output));
        assert!(both(&output).contains(reason), "{}", both(&output));
    };
    cannot_run(
        conformance().args(["--adapter", "no_such"]),
        "libur_adapter_no_such",
    );
    cannot_run(
        conformance().args(["--adapter", "native_cpu", "--device", "99"]),
        "there is no device 99: the loader offers device 0 alone\n",
    );
    cannot_run(
        conformance().env("UR_ADAPTERS_FORCE_LOAD", "/no/such/adapter.so"),
        "there is no device 0: the loader offers no device\n",
    );
    cannot_run(
        conformance().env("UR_ADAPTERS_FORCE_LOAD", "/no/such/adapter.so"),
        "\n  /no/such/adapter.so: cannot open shared object file: No such file or directory\n",
    );
    cannot_run(
        conformance().args(["--adapter", "native_cpu", "--filter", "no such test"]),
        "no test",
    );
    cannot_run(
        clean(PROGRAM).args(["--loader", "/no/such/loader.so"]),
        "/no/such/loader.so",
    );
}

/// Runs one test on native_cpu with an expectations file, and returns the exit code and what was printed.
fn run_with_expectations(test: &str, text: &str, more: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("expectations.yml");
    std::fs::write(&file, text).expect("the file is written");
    let mut command = conformance();
    command
        .args(["--adapter", "native_cpu", "--filter", test])
        .arg("--expectations")
        .arg(&file)
        .args(more);
    let output = command.output().expect("the program starts");
    (output.status.code(), both(&output))
}

/// An expectation that does not hold fails the run, and so does one for a test that does not exist.
#[test]
fn expectations_have_to_hold() {
    let run = |text: &str| run_with_expectations("platform::api_version", text, &[]);
    let (code, output) = run("- {test: 'platform::api_*', kind: fails, reason: a test}");
    assert_eq!(code, Some(1), "{output}");
    let closing = "The expectations no longer hold, which fails the run; correct or remove them:
  OUTDATED      platform::api_version: passed, though expected to fail (`platform::api_*`: a test)
0 passed, 0 failed, 0 not supported by the adapter, 0 skipped
";
    assert!(output.ends_with(closing), "{output}");
    let (code, output) = run("- {test: 'no::such', kind: fails, reason: a test}");
    assert_eq!(code, Some(2), "{output}");
    let (code, output) = run("[]");
    assert_eq!(code, Some(0), "{output}");
    assert!(!output.contains("expectations"), "{output}");
}

/// A failure names the rule that was violated, in each form of the report.
///
/// The failures are a test that needs an expectation and has none, and one that has it.
#[test]
fn failures_name_their_rule() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (junit, json) = (
        folder.path().join("junit.xml"),
        folder.path().join("run.json"),
    );
    let reports = [
        "--junit",
        junit.to_str().expect("a path"),
        "--json",
        json.to_str().expect("a path"),
    ];
    let rule =
        "The property `spill_mem_size` has the documented type and size, and a plausible value.";
    let (code, output) = run_with_expectations("kernel::info_spill_mem_size", "[]", &reports);
    assert_eq!(code, Some(1), "{output}");
    let line = output.lines().position(|line| line.starts_with("FAILED"));
    let line = output.lines().nth(line.expect("a failure") + 1);
    assert_eq!(line, Some(format!("    rule: {rule}").as_str()));
    let closing = "0 passed, 1 failed, 0 not supported by the adapter, 0 skipped\n";
    assert!(output.ends_with(closing), "{output}");
    let xml = std::fs::read_to_string(&junit).expect("the JUnit file");
    assert!(xml.contains(&format!(">rule: {rule}</failure>")), "{xml}");
    let text = std::fs::read_to_string(&json).expect("the JSON file");
    let run: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
    assert_eq!(run["tests"][0]["outcome"], "failed");
    assert_eq!(run["tests"][0]["rule"], rule);

    let expected = "- {test: 'kernel::info_spill_*', kind: unsupported, reason: a test}";
    let (code, output) = run_with_expectations("kernel::info_spill_mem_size", expected, &[]);
    assert_eq!(code, Some(0), "{output}");
    let closing = "0 passed, 0 failed, 1 not supported by the adapter, 0 skipped\n";
    assert!(output.ends_with(closing), "{output}");
}

//! `urreplay` through the built loader, on the CPU.

#[path = "../../conformance/tests/support/mod.rs"]
mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::{Compression, write::GzEncoder};
use serde_json::Value;
use support::{clean, libraries, success};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_urreplay");

/// Two queues. The second follows the first's free once, and once it does not.
const TWO: &str = "a 0 4194304 1 - grown\nf 0 4194304 1 1@2 -\n\
                   a 1 4194304 2 - grown\nf 1 4194304 2 2@2 -\n\
                   a 2 4194304 2 2@3,1@2 own\na 3 4194304 2 2@4,1@2 ordered\n";

fn urreplay(arguments: &[&str]) -> Command {
    let mut command = clean(PROGRAM);
    command
        .arg("--loader")
        .arg(libraries().join("libur_loader.so"));
    command.env(
        "UR_ADAPTERS_FORCE_LOAD",
        libraries().join("libur_adapter_native_cpu.so"),
    );
    command.args(arguments);
    command
}

fn file(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).expect("the folder is writable");
    path
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

fn outcomes(command: &mut Command) -> Vec<Value> {
    let parsed: Value = serde_json::from_str(&success(command)).expect("it is JSON");
    parsed.as_array().expect("a list").clone()
}

fn reuse(outcome: &Value) -> [u64; 5] {
    ["own", "ordered", "completed", "waited", "grown"]
        .map(|key| outcome["reuse"][key].as_u64().expect("a number"))
}

#[test]
fn dependencies_decide_what_is_reused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(&folder, "two.trace", TWO);
    let found = outcomes(urreplay(&["--json", "--explain"]).arg(&path));
    assert_eq!(found.len(), 2);
    let ordered = &found[0];
    assert_eq!(ordered["ordered_alone"], true);
    assert_eq!(reuse(ordered), [1, 1, 0, 0, 2]);
    assert_eq!(ordered["reserved_high"], 8 << 20);
    assert_eq!(ordered["peak_live"], 8 << 20);
    assert_eq!(ordered["operations"], 6);
    // The second queue's first allocation could have reused the first queue's block.
    let lack = &ordered["lacks"][0];
    assert_eq!(
        (&lack["allocations"], &lack["largest"]),
        (&1.into(), &1.into())
    );
    assert_eq!(lack["owners"], serde_json::json!([0]));
    assert_eq!(found[1]["ordered_alone"], false);
    let table = success(urreplay(&["--explain", "--mode", "ordered"]).arg(&path));
    assert!(table.contains("| two   | ordered |"), "{table}");
    assert!(table.contains("would have had the memory of 0"), "{table}");
}

#[test]
fn without_dependencies_only_the_own_queue_serves() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(&folder, "two.trace", TWO);
    let found = outcomes(urreplay(&["--json", "--mode", "ordered", "--same-queue"]).arg(&path));
    assert_eq!(reuse(&found[0]), [1, 0, 0, 0, 3]);
}

#[test]
fn a_trace_of_a_replay_replays_alike() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = file(&folder, "first.trace", TWO);
    let second = folder.path().join("second.trace");
    let mut command = urreplay(&["--here"]);
    command
        .env("UR_POOL_TRACE", &second)
        .env("UR_POOL_DETERMINISTIC", "1");
    let out: Value = serde_json::from_str(&success(command.arg(&first))).expect("it is JSON");
    let found = outcomes(urreplay(&["--json", "--mode", "ordered"]).arg(&second));
    // The trace includes the memory of the replay's own work: one block per queue.
    let [own, ordered, completed, waited, grown] = reuse(&out);
    let [
        more_own,
        more_ordered,
        more_completed,
        more_waited,
        more_grown,
    ] = reuse(&found[0]);
    assert_eq!(
        (own, ordered, waited),
        (more_own, more_ordered, more_waited)
    );
    assert_eq!(completed + grown + 2, more_completed + more_grown);
}

#[test]
fn other_forms_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("short.trace.gz");
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed
        .write_all(b"a 0 1000 0\na 1 2000 3\nf 0 1000 0\nf 1 2000 3\n")
        .expect("it is packed");
    std::fs::write(&path, packed.finish().expect("it is packed")).expect("written");
    let table = file(
        &folder,
        "A.csv",
        "id,lower,upper,size\n0,0,4,600\n1,4,5,700\n",
    );
    let found = outcomes(
        urreplay(&[
            "--json",
            "--mode",
            "completed",
            "--scale",
            "1024",
            "--work",
            "0",
        ])
        .args([&path, &table]),
    );
    assert_eq!(
        (&found[0]["trace"], &found[0]["operations"]),
        (&"short".into(), &4.into())
    );
    assert_eq!(found[0]["peak_live"], 3000 * 1024);
    assert_eq!(
        (&found[1]["trace"], &found[1]["peak_live"]),
        (&"A".into(), &(700 * 1024).into())
    );
    assert!(found[0]["warm_ns"].as_f64().is_some_and(|ns| ns > 0.0));
}

#[test]
fn a_trace_is_shown_in_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(&folder, "two.trace", TWO);
    let shown = folder.path().join("two.json");
    success(urreplay(&["--perfetto", text(&shown)]).arg(&path));
    let shown = std::fs::read_to_string(&shown).expect("written");
    let shown: Value = serde_json::from_str(&shown).expect("it is JSON");
    let events = shown["traceEvents"].as_array().expect("a list");
    let count = |ph: &str| events.iter().filter(|event| event["ph"] == ph).count();
    assert_eq!(["b", "e", "i", "C"].map(count), [4, 2, 4, 6]);
    let series = folder.path().join("series.csv");
    success(urreplay(&["--mode", "ordered", "--series", text(&series)]).arg(&path));
    let series = std::fs::read_to_string(&series).expect("written");
    let rows: Vec<&str> = series.lines().collect();
    assert_eq!(rows[0], "op,reserved,live");
    assert_eq!(rows[6], "5,8388608,8388608");
}

#[test]
fn what_cannot_be_read_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let wrong = file(&folder, "wrong.trace", "a 0 many 1\n");
    let twice = file(&folder, "twice.trace", "a 0 1 1\nf 0 1 1\nf 0 1 1\n");
    let empty = file(&folder, "empty.trace", "# kind id bytes queue\n");
    for path in [&wrong, &twice, &empty, &folder.path().join("none")] {
        let output = urreplay(&[]).arg(path).output().expect("it starts");
        assert_eq!(output.status.code(), Some(1));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.starts_with("urreplay: "), "{errors}");
        assert_eq!(errors.lines().count(), 1, "said once: {errors}");
    }
}

#[test]
fn outputs_are_tried_before_the_run() {
    let mut command = urreplay(&[
        "--mode",
        "ordered",
        "--series",
        "/nonexistent/x",
        "/no/such/trace",
    ]);
    let output = command.output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    // The trace would be the first fault of a run.
    assert_eq!(
        support::both(&output),
        "urreplay: /nonexistent/x: No such file or directory (os error 2)\n"
    );
}

#[test]
fn a_long_run_without_a_terminal_says_that_it_lives() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("two.trace");
    success(Command::new("mkfifo").arg(&pipe));
    let mut command = urreplay(&["--json", "--mode", "ordered"]);
    command
        .arg(&pipe)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut run = command.spawn().expect("it starts");
    // The run waits for its trace, which is written after the first line.
    let mut line = String::new();
    let errors = run.stderr.take().expect("a pipe");
    BufReader::new(errors).read_line(&mut line).expect("a line");
    std::fs::write(&pipe, TWO).expect("the pipe has a reader");
    let start = format!("urreplay: replay 1 of 1, {}: 1", pipe.display());
    assert!(line.starts_with(&start) && line.ends_with(" s\n"), "{line}");
    let output = run.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found[0]["trace"], "two");
}

//! `urtrace` with programs that use the built loader, programs that do not, and one that crashes.

#[path = "../../conformance/tests/support/mod.rs"]
mod support;

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use support::{both, clean, libraries, success};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_urtrace");

fn urtrace(arguments: &[&str]) -> Command {
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

/// The C example, linked as a user links it. It does not find a loader by itself.
fn example() -> &'static str {
    static BUILT: OnceLock<(TempDir, String)> = OnceLock::new();
    let (_, program) = BUILT.get_or_init(|| {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        let folder = tempfile::tempdir().expect("a temporary folder");
        symlink(
            libraries().join("libur_loader.so"),
            folder.path().join("libur_loader.so"),
        )
        .expect("a link");
        let program = folder.path().join("async_alloc");
        let mut cc = Command::new("cc");
        cc.arg("-std=c11").arg("-I").arg(root.join("include"));
        cc.arg(root.join("examples/async_alloc.c"))
            .arg("-o")
            .arg(&program);
        cc.arg("-L").arg(folder.path()).arg("-lur_loader");
        success(&mut cc);
        let program = program.display().to_string();
        (folder, program)
    });
    program
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// The calls and failures in a function's row of the table.
fn row(table: &str, name: &str) -> Option<(u64, u64)> {
    let line = table
        .lines()
        .find(|line| line.starts_with(&format!("| {name} ")))?;
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    Some((cells.get(2)?.parse().ok()?, cells.get(3)?.parse().ok()?))
}

#[test]
fn a_table_ends_the_run_and_the_program_is_left_alone() {
    let output = urtrace(&["--summary", example()])
        .output()
        .expect("it starts");
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{out}{err}");
    assert!(
        out.contains("ok: 20 allocations") && !out.contains('|'),
        "{out}"
    );
    assert_eq!(
        row(&err, "urEnqueueUSMDeviceAllocExp"),
        Some((20, 0)),
        "{err}"
    );
    assert_eq!(row(&err, "urEnqueueUSMFreeExp"), Some((20, 0)), "{err}");
    assert!(!err.contains("--->"), "{err}");
    let rows: Vec<&str> = err
        .lines()
        .skip(2)
        .filter_map(|line| line.split('|').nth(1))
        .map(str::trim)
        .collect();
    let all: u64 = rows
        .iter()
        .filter(|name| **name != "all")
        .filter_map(|name| row(&err, name))
        .map(|(calls, _)| calls)
        .sum();
    assert_eq!(row(&err, "all").map(|(calls, _)| calls), Some(all), "{err}");
}

#[test]
fn text_goes_to_a_file_and_filters_choose() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("trace.txt");
    std::fs::write(&path, "of an earlier run\n").expect("written");
    let path = path.to_str().expect("text");
    let output = urtrace(&[
        "-o",
        path,
        "--functions",
        "urEnqueueUSM*,!*Free*",
        example(),
    ])
    .output()
    .expect("it starts");
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{out}{err}");
    let trace = std::fs::read_to_string(path).expect("the trace");
    assert!(!trace.contains("of an earlier run"), "{trace:.300}");
    let count = |part: &str| trace.lines().filter(|line| line.contains(part)).count();
    assert_eq!(count("---> urEnqueueUSMDeviceAllocExp(.hQueue = 0x"), 20);
    assert_eq!(count("<--- urEnqueueUSMDeviceAllocExp(.ppMem = 0x"), 20);
    assert_eq!(count("urEnqueueUSMFreeExp"), 0);
    assert_eq!(
        trace.lines().count(),
        2 * (count("---> urEnqueueUSM")),
        "nothing else is there"
    );
    assert_eq!(
        row(&err, "urEnqueueUSMDeviceAllocExp"),
        Some((20, 0)),
        "{err}"
    );
    assert_eq!(row(&err, "urEnqueueUSMFreeExp"), None, "{err}");

    let output = urtrace(&["--adapters", "cuda", "-s", example()])
        .output()
        .expect("it starts");
    let (_, err) = texts(&output);
    assert_eq!(row(&err, "urEnqueueUSMDeviceAllocExp"), None, "{err}");
    assert!(
        row(&err, "urAdapterGet").is_some(),
        "what goes to no single adapter stays: {err}"
    );

    let output = urtrace(&["--min-time", "1000s", "-o", path, example()])
        .output()
        .expect("it starts");
    let (_, err) = texts(&output);
    assert_eq!(std::fs::read_to_string(path).expect("the trace"), "");
    assert_eq!(
        row(&err, "urEnqueueUSMDeviceAllocExp"),
        Some((20, 0)),
        "the table counts all: {err}"
    );
}

#[test]
fn perfetto_has_a_file_a_process() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let both_times = format!("{0} && {0}", example());
    let mut command = urtrace(&[
        "--format",
        "perfetto",
        "--no-summary",
        "sh",
        "-c",
        &both_times,
    ]);
    let output = command
        .current_dir(folder.path())
        .output()
        .expect("it starts");
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{out}{err}");
    assert!(!err.contains("| function"), "{err}");
    let files: Vec<PathBuf> = std::fs::read_dir(folder.path())
        .expect("the folder")
        .flatten()
        .map(|file| file.path())
        .collect();
    assert_eq!(files.len(), 2, "{files:?}");
    for file in files {
        let name = file
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        assert!(err.contains(&name), "{name} is not named in {err}");
        let text = std::fs::read_to_string(&file).expect("the trace");
        let trace: Value = serde_json::from_str(&text).expect("valid JSON");
        let events = trace.as_array().expect("a list");
        let allocations = events
            .iter()
            .filter(|event| event["name"] == "urEnqueueUSMDeviceAllocExp");
        assert_eq!(allocations.count(), 20);
        assert!(
            events
                .iter()
                .any(|event| event["args"]["name"] == "async_alloc"),
            "the process has its name"
        );
    }
}

#[test]
fn exit_codes_are_the_commands() {
    let run = |arguments: &[&str]| {
        let output = urtrace(arguments).output().expect("it starts");
        (output.status.code(), both(&output))
    };
    let (code, text) = run(&["sh", "-c", "exit 3"]);
    assert_eq!(code, Some(3));
    assert!(
        text.contains("nothing was traced") && text.contains("libsycl 2026.2"),
        "{text}"
    );
    assert_eq!(run(&["sh", "-c", "kill -TERM $$"]).0, Some(128 + 15));
    assert_eq!(run(&["/no/such/program"]).0, Some(127));
    assert_eq!(run(&["/"]).0, Some(126));
    assert_eq!(run(&["--no-such-option", "true"]).0, Some(2));
    // Options after the command belong to the command.
    assert_eq!(
        run(&["sh", "-c", "exit $#", "-s", "--summary", "x"]).0,
        Some(2)
    );
}

#[test]
fn a_time_needs_a_unit() {
    for bad in ["10parsec", "10", "", "-1us"] {
        let argument = format!("--min-time={bad}");
        let output = urtrace(&[&argument, "true"]).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{bad}");
        let text = both(&output);
        assert!(
            text.contains("--min-time <TIME>")
                && text.contains("accepted: a time such as 10us or 1.5ms, in ns, us, ms or s"),
            "{text}"
        );
    }
    for (text, passed) in [
        ("1.5ms", "1500000ns\n"),
        ("10us", "10000ns\n"),
        ("2 s", "2000000000ns\n"),
        ("7ns", "7ns\n"),
    ] {
        let argument = format!("--min-time={text}");
        let mut command = urtrace(&[&argument, "sh", "-c", "echo $UR_TRACE_MIN_TIME"]);
        assert_eq!(success(&mut command), passed, "{text}");
    }
}

#[test]
fn outputs_are_tried_before_the_command_runs() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mark = folder.path().join("ran");
    let touch = ["touch", mark.to_str().expect("text")];
    for options in [
        &["-o", "/nonexistent/x"][..],
        &["-o", "/nonexistent/x-%p"],
        &["-f", "perfetto", "-o", "/nonexistent/x"],
        &["-f", "perfetto", "-o", "/nonexistent/x-%p"],
    ] {
        let output = urtrace(&[options, &touch[..]].concat()).output();
        let output = output.expect("it starts");
        let text = both(&output);
        assert_eq!(output.status.code(), Some(125), "{text}");
        assert!(text.starts_with("urtrace: /nonexistent/x"), "{text}");
        assert!(text.contains("No such file or directory"), "{text}");
        assert!(!mark.exists(), "the command ran with {options:?}");
    }
}

#[test]
fn only_files_that_exist_are_named_as_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let traces = folder.path().join("traces");
    std::fs::create_dir(&traces).expect("a folder");
    let output = traces.join("%p.json");
    let output = output.to_str().expect("text");
    // Without its folder the layer cannot write the trace.
    let command = format!("rmdir {}; {}", traces.display(), example());
    let run = urtrace(&["-f", "perfetto", "-o", output, "sh", "-c", &command]).output();
    let run = run.expect("it starts");
    let (out, err) = texts(&run);
    assert!(run.status.success(), "{out}{err}");
    assert!(
        err.contains("wrote no trace") && !err.contains("is in"),
        "{err}"
    );

    let run = urtrace(&["-f", "perfetto", "-o", "stderr", example()]).output();
    let (_, err) = texts(&run.expect("it starts"));
    assert!(
        err.contains("urAdapterGet") && !err.contains("is in"),
        "{err}"
    );
}

#[test]
fn a_crash_keeps_its_lines_and_signals() {
    let crash = format!(
        "UR_ADAPTERS_FORCE_LOAD=/no/such/adapter.so {}; kill -SEGV $$",
        example()
    );
    let output = urtrace(&["sh", "-c", &crash]).output().expect("it starts");
    let (out, err) = texts(&output);
    assert_eq!(output.status.code(), Some(128 + 11), "{out}{err}");
    assert!(err.contains("---> urAdapterGet("), "{err}");
}

#[test]
fn layers_that_were_asked_for_stay() {
    let mut command = urtrace(&["--functions", "none", "sh", "-c", "echo $UR_ENABLE_LAYERS"]);
    command.env("UR_ENABLE_LAYERS", "UR_LAYER_LEAK_CHECKING");
    assert_eq!(
        success(&mut command),
        "UR_LAYER_LEAK_CHECKING,UR_LAYER_TRACING\n"
    );
    let mut command = clean(PROGRAM);
    command.args(["--keep-loader", "sh", "-c", "echo $LD_LIBRARY_PATH"]);
    command.env("LD_LIBRARY_PATH", "/somewhere");
    assert_eq!(success(&mut command), "/somewhere\n");
}

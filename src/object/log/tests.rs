//! Tables of settings, and child processes for whole scenarios, since a library opens its sink
//! once.

use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use ::log::{Level, LevelFilter, Log as _};

use super::*;

#[test]
fn settings_by_table() {
    let parse = |text: &str| Settings::parse(text, LevelFilter::Off);
    let quiet = Settings::new(LevelFilter::Off);
    assert_eq!(parse(""), Ok(Settings { ..quiet }));
    assert_eq!(
        parse("level:debug;flush:warning;fileline:true;output:stdout"),
        Ok(Settings {
            level: LevelFilter::Debug,
            flush: LevelFilter::Warn,
            fileline: true,
            output: Output::Stdout,
        })
    );
    assert_eq!(
        Settings::parse("fileline:no", LevelFilter::Error).map(|s| s.level),
        Ok(LevelFilter::Error)
    );
    let output = |text: &str| parse(text).map(|s| s.output);
    assert_eq!(output("output:stderr"), Ok(Output::Stderr));
    assert_eq!(
        output("output:file,/a/b"),
        Ok(Output::File("/a/b".to_owned()))
    );
    assert_eq!(
        output("output:file,\"/a:b\""),
        Ok(Output::File("/a:b".to_owned()))
    );
    #[rustfmt::skip]
    let bad = [
        ("level", "expected `key:value`"),
        ("level:info;", "expected `key:value`"),
        ("level:loud", "unknown level `loud`"),
        ("level:DEBUG", "unknown level"),
        ("flush:", "unknown level"),
        ("fileline:maybe", "neither true nor false"),
        ("output:syslog", "unknown output"),
        ("output:file", "unknown output"),
        ("output:file,", "unknown output"),
        ("colour:red", "unknown key `colour`"),
    ];
    for (text, reason) in bad {
        let fault = parse(text).expect_err(text);
        assert!(fault.to_string().contains(reason), "{text}: {fault}");
    }
}

#[test]
fn lines_have_the_library_and_the_source_location() {
    let mut sink = Sink::from_text("level_zero", "level:info", LevelFilter::Off).expect("valid");
    let line = |sink: &Sink, level| {
        let place = Some(("queue.rs", 7));
        sink.line(level, format_args!("two {{}} {level}"), place)
    };
    assert_eq!(line(&sink, Level::Info), "<LEVEL_ZERO>[INFO]: two {} INFO");
    assert_eq!(
        line(&sink, Level::Warn),
        "<LEVEL_ZERO>[WARNING]: two {} WARN"
    );
    sink.settings.fileline = true;
    assert_eq!(
        line(&sink, Level::Error),
        "<LEVEL_ZERO>[ERROR]: two {} ERROR <queue.rs:7>"
    );
}

#[test]
fn paths_have_the_process_and_the_name() {
    let id = std::process::id();
    assert_eq!(
        expand_path("/tmp/%n-%p.log", "cuda"),
        format!("/tmp/cuda-{id}.log")
    );
    assert_eq!(expand_path("100%%%", "x"), "100%%");
    assert_eq!(expand_path("%q%", "x"), "%q%");
}

/// Runs the ignored test `scenario` of this file in its own process.
fn child(scenario: &str, variable: &str) -> (String, String) {
    let output = Command::new(std::env::current_exe().expect("own path"))
        .args(["--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .arg(format!("object::log::tests::{scenario}"))
        .env("UR_LOG_SCENARIO", variable)
        .stdin(Stdio::null())
        .output()
        .expect("child runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{scenario}: {out}{err}");
    assert!(out.contains("1 passed"), "{scenario} did not run: {out}");
    (out, err)
}

#[test]
fn a_library_is_silent_by_default() {
    let (out, err) = child("scenario_speaks", "");
    assert!(
        !out.contains("SCENARIO") && !err.contains("SCENARIO"),
        "{out}{err}"
    );
}

#[test]
fn output_level_and_errors_of_the_variable() {
    let (_, err) = child("scenario_speaks", "level:warning");
    assert!(
        err.contains("<SCENARIO>[WARNING]: careful\n<SCENARIO>[ERROR]: broken\n"),
        "{err}"
    );
    assert!(!err.contains("chatty"), "{err}");
    let (out, err) = child("scenario_speaks", "level:debug;output:stdout");
    assert!(out.contains("<SCENARIO>[DEBUG]: chatty\n"), "{out}");
    assert!(!err.contains("SCENARIO]"), "{err}");
    let (out, err) = child("scenario_speaks", "level:debug;nonsense:1");
    assert!(
        err.contains("UR_LOG_SCENARIO: unknown key `nonsense`"),
        "{err}"
    );
    assert!(
        !out.contains("<SCENARIO>") && !err.contains("<SCENARIO>"),
        "{out}{err}"
    );
    let (_, err) = child(
        "scenario_speaks",
        "level:debug;output:file,/no/such/directory/file",
    );
    assert!(
        err.contains("cannot open `/no/such/directory/file`"),
        "{err}"
    );
}

#[test]
fn files_are_appended_to() {
    let directory = std::env::temp_dir().join(format!("ur-log-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("directory");
    let file = directory.join("scenario.log");
    let variable = format!("level:error;output:file,{}/%n.log", directory.display());
    child("scenario_speaks", &variable);
    child("scenario_speaks", &variable);
    let text = std::fs::read_to_string(&file).expect("log file");
    assert_eq!(text, "<SCENARIO>[ERROR]: broken\n".repeat(2));
    std::fs::remove_dir_all(&directory).expect("clean");
}

#[test]
fn callbacks_have_their_own_level() {
    let (_, err) = child("scenario_callback", "level:error");
    assert_eq!(err.matches("<SCENARIO>").count(), 2, "{err}");
}

#[test]
fn once_writes_at_any_level() {
    const LINE: &str = "<SCENARIO>[ERROR]: has to be known\n";
    for variable in ["", "level:quiet", "level:error"] {
        let (_, err) = child("scenario_once", variable);
        assert_eq!(err.matches(LINE).count(), 1, "{variable}: {err}");
    }
    let (out, err) = child("scenario_once", "output:stdout");
    assert_eq!(
        (out.matches(LINE).count(), err.matches(LINE).count()),
        (1, 0)
    );
    // A callback that receives errors replaces the default output.
    let (_, err) = child("scenario_once_callback", "");
    assert!(!err.contains("has to be known"), "{err}");
    let (_, err) = child("scenario_once_callback", "level:error");
    assert_eq!(err.matches(LINE).count(), 1, "{err}");
}

#[test]
fn threads_may_log_while_their_locals_are_destroyed() {
    let (_, err) = child("scenario_thread_end", "level:error");
    assert!(
        err.contains("<SCENARIO>[ERROR]: from a destructor\n"),
        "{err}"
    );
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_speaks() {
    init("scenario");
    init("another");
    ::log::debug!("chatty");
    ::log::warn!("careful");
    ::log::error!("broken");
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_callback() {
    init("scenario");
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = Arc::clone(&seen);
    set_callback(Some(Arc::new(move |level, text| {
        record
            .lock()
            .expect("unpoisoned")
            .push(format!("{level} {text}"));
        // A callback may log and change the callback.
        if text.ends_with("last") {
            set_callback(None);
            ::log::error!("after the last");
        }
    })));
    ::log::info!("not asked for");
    set_callback_level(LevelFilter::Info);
    ::log::info!("first");
    ::log::debug!("below");
    ::log::error!("last");
    ::log::info!("gone");
    let seen = seen.lock().expect("unpoisoned");
    assert_eq!(
        *seen,
        [
            "INFO <SCENARIO>[INFO]: first",
            "ERROR <SCENARIO>[ERROR]: last"
        ]
    );
    assert!(!LOGGER.enabled(&::log::Metadata::builder().level(Level::Debug).build()));
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_once() {
    init("scenario");
    // A callback that receives no errors does not replace it.
    set_callback(Some(Arc::new(|_, _| {})));
    once("has to be known");
    once("has to be known");
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_once_callback() {
    init("scenario");
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = Arc::clone(&seen);
    set_callback(Some(Arc::new(move |_, text| {
        record.lock().expect("unpoisoned").push(text.to_owned());
    })));
    set_callback_level(LevelFilter::Error);
    once("has to be known");
    once("has to be known");
    let seen = seen.lock().expect("unpoisoned");
    assert_eq!(*seen, ["<SCENARIO>[ERROR]: has to be known"]);
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_thread_end() {
    struct Speaks;
    impl Drop for Speaks {
        fn drop(&mut self) {
            ::log::error!("from a destructor");
        }
    }
    thread_local!(static SPEAKS: Speaks = const { Speaks });
    init("scenario");
    std::thread::spawn(|| SPEAKS.with(|_| ()))
        .join()
        .expect("no panic");
}

//! `UR_LAYER_TRACING` as a program uses it: the output, its destination and its time.

mod every;
mod files;

use crate::common::{build_library, child, directory, loader, null, table};
use files::spans;
use serde_json::Value;
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ur::abi::*;
use ur::dl::{Binding, Library, function};

/// The adapter of `willing.c`, and the handle that all of its objects share.
struct Willing {
    library: Library,
}

impl Willing {
    fn build(folder: &str) -> String {
        build_library(
            "willing.c",
            &directory(folder).join("libur_adapter_willing.so.0"),
            &[],
        )
    }

    fn open() -> Willing {
        let path = std::env::var("UR_ADAPTERS_FORCE_LOAD").expect("set by the test");
        let path = path.split(',').next().expect("a path").to_owned();
        let library = Library::open(path, Binding::Usual).expect("built by the test");
        Willing { library }
    }

    fn handle(&self) -> *mut c_void {
        type Give = unsafe extern "C" fn() -> *mut c_void;
        // SAFETY: the type is that of the function in `willing.c`.
        unsafe { function::<Give>(self.library.address(c"willing_handle")).expect("exported")() }
    }

    fn queue(&self) -> ur_queue_handle_t {
        self.handle().cast()
    }
}

/// Variables that enable the layer over one willing adapter, with further settings.
fn traced<'a>(adapter: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut variables = vec![
        ("UR_ADAPTERS_FORCE_LOAD", adapter),
        ("UR_ENABLE_LAYERS", "UR_LAYER_TRACING"),
    ];
    variables.extend(more);
    variables
}

/// The path of a test's file, which does not exist yet.
fn fresh(folder: &str, name: &str) -> PathBuf {
    let path = directory(folder).join(name);
    let _ = std::fs::remove_file(&path);
    path
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths here are text")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The calls in a text trace: `(arrow, function, the whole line)`.
fn lines(trace: &str) -> Vec<(&str, &str, &str)> {
    let parse = |line| {
        let at = str::find(line, "--->").or_else(|| str::find(line, "<---"))?;
        let (arrow, rest) = line[at..].split_once(' ')?;
        Some((arrow, rest.split('(').next()?, line))
    };
    trace.lines().filter_map(parse).collect()
}

/// Calls with known outcomes: 10 retains, of which 3 are refused, around a native command that
/// takes 20 ms and calls back twice.
#[test]
#[ignore = "runs in a child process"]
fn scenario_calls() {
    let lives = std::env::var("LIVES").map_or(1, |text| text.parse().expect("a number"));
    for _ in 0..lives {
        assert_eq!(loader().init(), UR_RESULT_SUCCESS);
        let willing = Willing::open();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let queue = willing.queue().addr();
                std::thread::spawn(move || work(std::ptr::with_exposed_provenance_mut(queue)))
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        if std::env::var_os("NO_TEARDOWN").is_none() {
            assert_eq!(loader().tear_down(), UR_RESULT_SUCCESS);
        }
    }
}

fn work(queue: ur_queue_handle_t) {
    let table = table();
    let retain = table.Queue.pfnRetain.expect("traced");
    let native = table.EnqueueExp.pfnNativeCommandExp.expect("traced");
    let mut count = 0;
    let get = table.Adapter.pfnGet.expect("traced");
    // SAFETY: handles are null or live, lists are empty, outputs are null or writable.
    unsafe {
        for at in 0..10 {
            let queue = if at < 3 { null() } else { queue };
            let refused = retain(queue) != UR_RESULT_SUCCESS;
            assert_eq!(refused, at < 3);
        }
        let result = native(
            queue,
            Some(within),
            null(),
            0,
            null(),
            null(),
            0,
            null(),
            null(),
        );
        assert_eq!(result, UR_RESULT_SUCCESS);
        assert_eq!(get(0, null(), &mut count), UR_RESULT_SUCCESS);
    }
}

unsafe extern "C" fn within(queue: ur_queue_handle_t, _: *mut c_void) {
    std::thread::sleep(Duration::from_millis(20));
    let table = table();
    // SAFETY: the queue is live.
    unsafe {
        assert_eq!(
            table.Queue.pfnFlush.expect("traced")(queue),
            UR_RESULT_SUCCESS
        );
        assert_eq!(
            table.Queue.pfnFinish.expect("traced")(queue),
            UR_RESULT_SUCCESS
        );
    }
}

/// The number of calls that `work` makes.
const CALLS_A_THREAD: usize = 14;

#[test]
fn lines_show_inputs_outputs_and_depth() {
    let adapter = Willing::build("tracing-lines");
    let trace = child("tracing::scenario_calls", &traced(&adapter, &[]));
    let calls = lines(&trace);
    assert_eq!(calls.len(), 2 * 2 * CALLS_A_THREAD, "{trace}");
    let holds = |part: &str| trace.lines().any(|line| line.contains(part));
    assert!(holds(" ---> urQueueRetain(.hQueue = nullptr)"), "{trace}");
    assert!(
        holds(" <--- urQueueRetain() -> UR_RESULT_ERROR_INVALID_NULL_HANDLE in "),
        "{trace}"
    );
    assert!(
        holds("   ---> urQueueFlush(.hQueue = 0x"),
        "nested calls are indented: {trace}"
    );
    assert!(
        holds(" ---> urAdapterGet(.NumEntries = 0, .phAdapters = nullptr, .pNumAdapters = 0x"),
        "{trace}"
    );
    let got = trace
        .lines()
        .find(|line| line.contains("<--- urAdapterGet("))
        .expect("there");
    assert!(
        got.contains("urAdapterGet(.pNumAdapters = 0x")
            && got.contains(" (1)) -> UR_RESULT_SUCCESS in "),
        "{got}"
    );
}

#[test]
fn filters_leave_out_functions_adapters_and_short_calls() {
    let adapter = Willing::build("tracing-filters");
    let names = |more: &[(&str, &str)]| {
        let trace = child("tracing::scenario_calls", &traced(&adapter, more));
        let found: Vec<String> = lines(&trace)
            .iter()
            .map(|(_, name, _)| (*name).to_owned())
            .collect();
        (found, trace)
    };
    let count = |found: &[String], name: &str| found.iter().filter(|own| *own == name).count();

    let (found, trace) = names(&[("UR_TRACE_FUNCTIONS", "urQueue*,!urQueueRetain")]);
    assert_eq!(count(&found, "urQueueFlush"), 4, "{trace}");
    assert_eq!(found.len(), 8, "{trace}");

    // Calls without an adapter are not filtered.
    let (found, trace) = names(&[("UR_TRACE_ADAPTERS", "other")]);
    assert_eq!(count(&found, "urAdapterGet"), 4, "{trace}");
    assert_eq!(
        count(&found, "urQueueRetain"),
        2 * 2 * 3,
        "null handles have no adapter: {trace}"
    );
    assert_eq!(found.len(), 16, "{trace}");
    let (found, trace) = names(&[("UR_TRACE_ADAPTERS", "will*")]);
    assert_eq!(found.len(), 2 * 2 * CALLS_A_THREAD, "{trace}");
    assert!(trace.contains(" willing ---> urQueueRetain"), "{trace}");

    let (found, trace) = names(&[("UR_TRACE_MIN_TIME", "15ms")]);
    assert_eq!(found, ["urEnqueueNativeCommandExp"; 2], "{trace}");
    assert!(
        trace.contains("<--- urEnqueueNativeCommandExp(.hQueue = 0x"),
        "inputs come with it: {trace}"
    );

    let (found, _) = names(&[("UR_TRACE_OUTPUT", "none")]);
    assert!(found.is_empty());
}

#[test]
fn invalid_settings_are_reported() {
    let adapter = Willing::build("tracing-faults");
    let variables = [
        ("UR_TRACE_FORMAT", "xml"),
        ("UR_TRACE_MIN_TIME", "soon"),
        ("UR_TRACE_OUTPUT", "/no/such/folder/x"),
    ];
    let trace = child("tracing::scenario_calls", &traced(&adapter, &variables));
    for part in [
        "UR_TRACE_FORMAT: `xml`",
        "UR_TRACE_MIN_TIME: `soon`",
        "/no/such/folder/x",
    ] {
        assert!(trace.contains(part), "{part} is missing in {trace}");
    }
    assert!(lines(&trace).is_empty(), "{trace}");
}

unsafe extern "C" fn locate(_: *mut c_void) -> ur_code_location_t {
    ur_code_location_t {
        functionName: c"compute".as_ptr(),
        sourceFile: c"main.cpp".as_ptr(),
        lineNumber: 12,
        columnNumber: 3,
    }
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_located() {
    let mut config = null();
    // SAFETY: outputs are writable, and the configuration is live until its release.
    unsafe {
        let create = loader().urLoaderConfigCreate;
        assert_eq!(create(&mut config), UR_RESULT_SUCCESS);
        let set = loader().urLoaderConfigSetCodeLocationCallback;
        assert_eq!(set(config, Some(locate), null()), UR_RESULT_SUCCESS);
        let init = loader().urLoaderInit;
        assert_eq!(init(ur_device_init_flags_t(0), config), UR_RESULT_SUCCESS);
        assert_eq!((loader().urLoaderConfigRelease)(config), UR_RESULT_SUCCESS);
    }
    assert_eq!(loader().adapters(0).0, UR_RESULT_SUCCESS);
    assert_eq!(loader().tear_down(), UR_RESULT_SUCCESS);
}

#[test]
fn source_locations_are_shown() {
    let adapter = Willing::build("tracing-located");
    let trace = child("tracing::scenario_located", &traced(&adapter, &[]));
    let enter = trace
        .lines()
        .find(|line| line.contains("---> urAdapterGet("))
        .expect("a line");
    assert!(enter.ends_with(") at compute main.cpp:12:3"), "{enter}");
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_fork() {
    assert_eq!(loader().init(), UR_RESULT_SUCCESS);
    let willing = Willing::open();
    let retain = table().Queue.pfnRetain.expect("traced");
    // SAFETY: the handles are live; the child makes a few calls and exits.
    unsafe {
        retain(willing.queue());
        let child = libc::fork();
        if child == 0 {
            retain(willing.queue());
            libc::exit(0);
        }
        let mut status = 1;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0, "the child neither hung nor crashed");
    }
    assert_eq!(loader().tear_down(), UR_RESULT_SUCCESS);
}

#[test]
fn a_forked_child_leaves_no_trace() {
    let adapter = Willing::build("tracing-fork");
    let path = fresh("tracing-fork", "trace.json");
    let variables = traced(
        &adapter,
        &[
            ("UR_TRACE_FORMAT", "json"),
            ("UR_TRACE_OUTPUT", text(&path)),
        ],
    );
    child("tracing::scenario_fork", &variables);
    let trace: Value = serde_json::from_str(&read(&path)).expect("valid JSON");
    assert_eq!(spans(&trace).len(), 1);
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_off() {
    let address = |table: &ur_dditable_t| table.Queue.pfnRetain.map(|call| call as usize);
    let life = |layer: Option<&std::ffi::CStr>| {
        let mut config = null();
        // SAFETY: outputs are writable and the configuration is live.
        unsafe {
            assert_eq!(
                (loader().urLoaderConfigCreate)(&mut config),
                UR_RESULT_SUCCESS
            );
            if let Some(layer) = layer {
                let enable = loader().urLoaderConfigEnableLayer;
                assert_eq!(enable(config, layer.as_ptr()), UR_RESULT_SUCCESS);
            }
            let init = loader().urLoaderInit;
            assert_eq!(init(ur_device_init_flags_t(0), config), UR_RESULT_SUCCESS);
        }
        let found = address(&table());
        assert_eq!(loader().tear_down(), UR_RESULT_SUCCESS);
        found
    };
    let bare = life(None);
    let traced = life(Some(c"UR_LAYER_TRACING"));
    assert_ne!(bare, traced);
    assert_eq!(life(None), bare, "nothing stays in the way");
}

#[test]
fn without_the_layer_nothing_is_traced() {
    let adapter = Willing::build("tracing-off");
    child(
        "tracing::scenario_off",
        &[("UR_ADAPTERS_FORCE_LOAD", &adapter)],
    );
}

//! Initialisation, teardown, and calls outside of an initialisation.

use ur::abi::*;

use crate::common::{build_adapter, child, directory, loader, null};

const NONE: &[(&str, &str)] = &[("UR_ADAPTERS_FORCE_LOAD", "/no/such/adapter.so")];

#[test]
fn calls_without_initialisation_are_refused() {
    child("life::scenario_outside", NONE);
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_outside() {
    let loader = loader();
    let expect_outside = || {
        let mut count = 77;
        let mut table = ur_adapter_dditable_t::default();
        // SAFETY: handles are null; outputs are writable.
        let results = unsafe {
            [
                (loader.urAdapterGet)(0, null(), &mut count),
                (loader.urAdapterRelease)(null()),
                (loader.urDeviceGetSelected)(null(), UR_DEVICE_TYPE_ALL, 0, null(), &mut count),
                (loader.urKernelSetArgLocal)(null(), 0, 8, null()),
                (loader.urGetAdapterProcAddrTable)(UR_API_VERSION_CURRENT, &mut table),
                (loader.urLoaderTearDown)(),
            ]
        };
        assert_eq!(results, [UR_RESULT_ERROR_UNINITIALIZED; 6]);
        assert_eq!(count, 77, "an error writes nothing");
    };
    expect_outside();
    for bad in [0x20, 0xffff_ffff] {
        // SAFETY: a null configuration is allowed.
        let result =
            unsafe { (loader.urLoaderInit)(ur_device_init_flags_t(bad), std::ptr::null_mut()) };
        assert_eq!(result, UR_RESULT_ERROR_INVALID_ENUMERATION);
    }
    expect_outside();
    // SAFETY: a null configuration is allowed.
    let result =
        unsafe { (loader.urLoaderInit)(ur_device_init_flags_t(0x1f), std::ptr::null_mut()) };
    assert_eq!(result, UR_RESULT_SUCCESS);
    assert_eq!(loader.init(), UR_RESULT_SUCCESS);
    assert_eq!(
        loader.adapters(0),
        (UR_RESULT_SUCCESS, vec![], 0),
        "no adapter is no error"
    );
    assert_eq!(loader.tear_down(), UR_RESULT_SUCCESS);
    assert_eq!(
        loader.adapters(3),
        (UR_RESULT_SUCCESS, vec![], 0),
        "one reference is left"
    );
    assert_eq!(loader.tear_down(), UR_RESULT_SUCCESS);
    expect_outside();
    assert_eq!(loader.init(), UR_RESULT_SUCCESS);
    assert_eq!(loader.adapters(0), (UR_RESULT_SUCCESS, vec![], 0));
    assert_eq!(loader.tear_down(), UR_RESULT_SUCCESS);
    expect_outside();
}

#[test]
fn bad_handles_and_empty_slots() {
    let adapter = build_adapter(&directory("life-bad").join("a.so"), &[]);
    child(
        "life::scenario_bad_handles",
        &[("UR_ADAPTERS_FORCE_LOAD", &adapter)],
    );
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_bad_handles() {
    let loader = loader();
    assert_eq!(loader.init(), UR_RESULT_SUCCESS);
    let (_, adapters, _) = loader.adapters(1);
    let mut table = ur_adapter_dditable_t::default();
    let no_device: ur_device_handle_t = null();
    let no_event: ur_event_handle_t = null();
    let mut context = null();
    let mut count = 0;
    // SAFETY: handles are null or live; outputs are writable or null.
    unsafe {
        assert_eq!(
            (loader.urAdapterRelease)(null()),
            UR_RESULT_ERROR_INVALID_NULL_HANDLE
        );
        assert_eq!(
            (loader.urContextCreate)(1, &no_device, std::ptr::null(), &mut context),
            UR_RESULT_ERROR_INVALID_NULL_HANDLE
        );
        assert_eq!(
            (loader.urContextCreate)(0, &no_device, std::ptr::null(), &mut context),
            UR_RESULT_ERROR_INVALID_SIZE
        );
        assert_eq!(
            (loader.urEventWait)(1, &no_event),
            UR_RESULT_ERROR_INVALID_NULL_HANDLE
        );
        assert_eq!(
            (loader.urEventWait)(0, &no_event),
            UR_RESULT_ERROR_INVALID_VALUE
        );
        assert_eq!(
            (loader.urEventWait)(1, std::ptr::null()),
            UR_RESULT_ERROR_INVALID_NULL_POINTER
        );
        // adapter.c has no urAdapterRetain.
        assert_eq!(
            (loader.urAdapterRetain)(adapters[0]),
            UR_RESULT_ERROR_UNINITIALIZED
        );
        assert_eq!(
            (loader.urAdapterGet)(0, &mut null(), &mut count),
            UR_RESULT_ERROR_INVALID_SIZE
        );
        assert_eq!((loader.urAdapterGet)(0, null(), null()), UR_RESULT_SUCCESS);
        let tables = loader.urGetAdapterProcAddrTable;
        assert_eq!(
            tables(UR_API_VERSION_CURRENT, null()),
            UR_RESULT_ERROR_INVALID_NULL_POINTER
        );
        assert_eq!(
            tables(UR_API_VERSION_0_11, &mut table),
            UR_RESULT_ERROR_UNSUPPORTED_VERSION
        );
        assert!(table.pfnGet.is_none(), "an error writes nothing");
        assert_eq!(
            tables(UR_API_VERSION_CURRENT, &mut table),
            UR_RESULT_SUCCESS
        );
        let get = table.pfnGet.expect("the loader's own");
        assert_eq!(get(0, null(), &mut count), UR_RESULT_SUCCESS);
        assert_eq!(count, 1);
        assert_eq!((loader.urAdapterRelease)(adapters[0]), UR_RESULT_SUCCESS);
        assert_eq!(
            (loader.urAdapterRelease)(adapters[0]),
            UR_RESULT_ERROR_INVALID_ARGUMENT,
            "counting took no reference"
        );
    }
}

#[test]
fn threads_initialise_concurrently() {
    let directory = directory("life-threads");
    let first = build_adapter(&directory.join("a.so"), &["TAG=10"]);
    let second = build_adapter(&directory.join("b.so"), &["TAG=20"]);
    let both = format!("{first},{second}");
    child(
        "life::scenario_threads",
        &[("UR_ADAPTERS_FORCE_LOAD", &both)],
    );
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_threads() {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let loader = loader();
                for _ in 0..100 {
                    assert_eq!(loader.init(), UR_RESULT_SUCCESS);
                    let (result, adapters, total) = loader.adapters(2);
                    assert_eq!((result, adapters.len(), total), (UR_RESULT_SUCCESS, 2, 2));
                    assert_eq!(loader.tear_down(), UR_RESULT_SUCCESS);
                }
            });
        }
    });
    assert_eq!(loader().tear_down(), UR_RESULT_ERROR_UNINITIALIZED);
}

/// The layers that this loader has, as its messages list them.
const ACCEPTED: &str = "accepted, separated by commas: UR_LAYER_ASYNC_ALLOC_VALIDATION, \
    UR_LAYER_FULL_VALIDATION, UR_LAYER_BOUNDS_CHECKING, UR_LAYER_LEAK_CHECKING, \
    UR_LAYER_LIFETIME_VALIDATION, UR_LAYER_PARAMETER_VALIDATION, UR_LAYER_TRACING";

#[test]
fn an_invalid_list_of_layers_is_reported_once() {
    let none = "it enables none";
    for (layers, fault, consequence) in [
        ("UR_LAYER_TRACNG", "unknown: `UR_LAYER_TRACNG`", none),
        ("ur_layer_tracing", "unknown: `ur_layer_tracing`", none),
        (
            "UR_LAYER_TSAN,UR_LAYER_SPEED",
            "unknown: `UR_LAYER_TSAN`, `UR_LAYER_SPEED`",
            none,
        ),
        (
            "UR_LAYER_TRACING UR_LAYER_LEAK_CHECKING",
            "unknown: `UR_LAYER_TRACING UR_LAYER_LEAK_CHECKING`",
            none,
        ),
        (
            "UR_LAYER_PARAMETER_VALIDATION,UR_LAYER_SPEED",
            "unknown: `UR_LAYER_SPEED`",
            "it enables UR_LAYER_PARAMETER_VALIDATION alone",
        ),
        (
            "UR_LAYER_TRACING;UR_LAYER_LEAK_CHECKING",
            "an item with `:` or `;` needs quotes (at byte 16)",
            none,
        ),
        ("UR_LAYER_TRACING,", "empty item (at byte 17)", none),
    ] {
        let variables = [NONE[0], ("UR_ENABLE_LAYERS", layers)];
        let log = child("life::scenario_layers", &variables);
        let line =
            format!("<LOADER>[ERROR]: UR_ENABLE_LAYERS: {fault}; {ACCEPTED}; {consequence}\n");
        assert_eq!(log.matches("UR_ENABLE_LAYERS").count(), 1, "{log}");
        assert!(log.contains(&line), "{line} is not in\n{log}");
    }
}

#[test]
fn an_invalid_flag_or_time_is_reported_once() {
    for (name, value, accepted, instead) in [
        (
            "UR_ADAPTERS_DEEP_BIND",
            "deep",
            "1, true, yes, 0, false, no",
            "0",
        ),
        (
            "UR_LOADER_PRELOAD_FILTER",
            "off",
            "1, true, yes, 0, false, no",
            "1",
        ),
        (
            "UR_TRACE_MIN_TIME",
            "10",
            "a time such as 10us or 1.5ms, in ns, us, ms or s",
            "0ns",
        ),
        ("UR_TRACE_FORMAT", "xml", "text, json", "text"),
    ] {
        let variables = [
            NONE[0],
            ("UR_ENABLE_LAYERS", "UR_LAYER_TRACING"),
            ("UR_TRACE_OUTPUT", "none"),
            (name, value),
        ];
        let log = child("life::scenario_layers", &variables);
        let line = format!(
            "<LOADER>[ERROR]: {name}: `{value}` is not understood; accepted: {accepted}; used \
             instead: {instead}\n"
        );
        assert_eq!(log.matches(name).count(), 1, "{log}");
        assert!(log.contains(&line), "{line} is not in\n{log}");
    }
}

#[test]
fn an_invalid_log_setting_is_reported_once() {
    for (value, accepted) in [
        (
            "level:DEBUG",
            "known are debug, info, warning, error, quiet",
        ),
        ("levl:debug", "known are level, flush, fileline, output"),
        ("fileline:maybe", "known are 1, true, yes, 0, false, no"),
        ("output:syslog", "known are stderr, stdout and file,PATH"),
    ] {
        let variables = [NONE[0], ("UR_LOG_LOADER", value)];
        let log = child("life::scenario_layers", &variables);
        assert_eq!(log.matches("UR_LOG_LOADER").count(), 1, "{log}");
        assert!(log.contains(accepted), "{accepted} is not in\n{log}");
    }
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_layers() {
    let loader = loader();
    let mut config = std::ptr::null_mut();
    // SAFETY: the configuration is live between create and release; names are C strings.
    unsafe {
        assert_eq!(
            (loader.urLoaderConfigCreate)(&mut config),
            UR_RESULT_SUCCESS
        );
        let enable = loader.urLoaderConfigEnableLayer;
        assert_eq!(
            enable(config, c"UR_LAYER".as_ptr()),
            UR_RESULT_ERROR_LAYER_NOT_PRESENT
        );
        assert_eq!(
            enable(config, c"UR_LAYER_FULL_VALIDATION".as_ptr()),
            UR_RESULT_SUCCESS
        );
        // A layer of the reference that this loader lacks.
        assert_eq!(
            enable(config, c"UR_LAYER_ASAN".as_ptr()),
            UR_RESULT_ERROR_LAYER_NOT_PRESENT
        );
        assert_eq!(
            (loader.urLoaderInit)(ur_device_init_flags_t(0), config),
            UR_RESULT_SUCCESS
        );
        assert_eq!((loader.urLoaderConfigRelease)(config), UR_RESULT_SUCCESS);
    }
    assert_eq!(loader.adapters(0).0, UR_RESULT_SUCCESS);
    assert_eq!(loader.tear_down(), UR_RESULT_SUCCESS);
    // A second initialisation does not repeat the message.
    assert_eq!(loader.init(), UR_RESULT_SUCCESS);
    assert_eq!(loader.tear_down(), UR_RESULT_SUCCESS);
}

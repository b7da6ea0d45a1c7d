//! Every function is traced, with valid memory and with nulls.

use super::{Willing, lines, traced};
use crate::common::{child, loader, null, table};
use crate::sweep::arguments::{CALLS, Source};
use std::ffi::c_void;
use ur::abi::*;

/// Passes an object, lists and memory full of zeros to every call.
struct Plenty {
    handle: *mut c_void,
    list: [*mut c_void; 4],
    memory: Vec<u64>,
}

impl Source for Plenty {
    fn number(&mut self) -> u64 {
        1
    }
    fn count(&mut self) -> u32 {
        2
    }
    fn handle(&mut self) -> *mut c_void {
        self.handle
    }
    fn list(&mut self) -> *mut c_void {
        self.list.as_mut_ptr().cast()
    }
    fn memory(&mut self) -> *mut c_void {
        // Clears what an earlier call wrote.
        self.memory.fill(0);
        self.memory.as_mut_ptr().cast()
    }
}

/// Passes nulls and zeros to every call.
struct Nulls;

impl Source for Nulls {
    fn number(&mut self) -> u64 {
        0
    }
    fn count(&mut self) -> u32 {
        0
    }
    fn handle(&mut self) -> *mut c_void {
        null()
    }
    fn list(&mut self) -> *mut c_void {
        null()
    }
    fn memory(&mut self) -> *mut c_void {
        null()
    }
}

/// A function that ends the process in `willing.c`.
const CRASHES: &str = "urDeviceWaitExp";

#[test]
fn every_function_leaves_its_lines() {
    let adapter = Willing::build("tracing-sweep");
    for (scenario, succeeds) in [
        ("tracing::every::scenario_sweep", true),
        ("tracing::every::scenario_nulls", false),
    ] {
        let trace = child(scenario, &traced(&adapter, &[]));
        let calls = lines(&trace);
        let expected: Vec<&str> = CALLS
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| *name != CRASHES)
            .collect();
        assert_eq!(expected.len(), 240);
        assert_eq!(calls.len(), 2 * expected.len(), "{scenario}");
        for (pair, name) in calls.chunks(2).zip(expected) {
            let [(enter, first, begin), (leave, second, end)] = pair else {
                panic!("{name} has one line");
            };
            assert_eq!(
                (*enter, *first, *leave, *second),
                ("--->", name, "<---", name)
            );
            assert!(begin.ends_with(')'), "{begin}");
            assert!(
                end.contains(") -> UR_RESULT_") && end.ends_with('s'),
                "{end}"
            );
            if succeeds {
                assert!(end.contains(") -> UR_RESULT_SUCCESS in "), "{end}");
            } else if !end.contains("UR_RESULT_SUCCESS") {
                assert!(
                    end.contains(&format!("<--- {name}() -> ")),
                    "outputs of a failure are not read: {end}"
                );
            }
        }
    }
}

fn sweep_all(mut source: impl Source) {
    assert_eq!(loader().init(), UR_RESULT_SUCCESS);
    let table = table();
    for (name, call) in CALLS.iter().filter(|(name, _)| *name != CRASHES) {
        assert!(
            call(&table, &mut source).is_some(),
            "{name} has no function"
        );
    }
    assert_eq!(loader().tear_down(), UR_RESULT_SUCCESS);
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_sweep() {
    let handle = Willing::open().handle();
    sweep_all(Plenty {
        handle,
        list: [handle; 4],
        memory: vec![0; 4096],
    });
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_nulls() {
    sweep_all(Nulls);
}

//! Each call of the driver fails once, one after the other, while the workload runs.
//!
//! The first, a middle and the last call of each function fail, each with codes that drivers give. No failure may panic,
//! hang, leak an object of the driver, use a released one or free what a command uses. The step whose call failed
//! reports the code's counterpart; without a report everything is as it has to be.

use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, alone_with, case, devices as devices_of, ur};
use super::workload::{self, Failed, Steps};

/// A code of the driver's, and what a step then reports.
pub const MEMORY: (u32, ur_result_t) = (0x7000_0003, UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
pub const LOST: (u32, ur_result_t) = (0x7000_0001, UR_RESULT_ERROR_DEVICE_LOST);
pub const UNKNOWN: (u32, ur_result_t) = (0x7fff_fffe, UR_RESULT_ERROR_UNKNOWN);

/// Functions whose failure nobody has to report, and why.
#[rustfmt::skip]
const SILENT: &[(&str, &str)] = &[
    ("zeCommandListAppendLaunchKernel", "a recorded launch is then submitted alone"),
    ("zeCommandListAppendMemoryCopy", "a recorded copy is then submitted alone"),
    ("zeCommandListAppendMemoryFill", "a recorded fill is then submitted alone"),
    ("zeCommandListAppendSignalEvent", "the adapter's own waits are tried again"),
    ("zeEventHostReset", "the adapter's own waits are tried again"),
    ("zeCommandListGetNextCommandIdExp", "commands are then recorded anew"),
    ("zeCommandListUpdateMutableCommandsExp", "commands are then recorded anew"),
    ("zeCommandListIsGraphCaptureEnabledExt", "a list is then none that is captured"),
    ("zeKernelSuggestGroupSize", "it is asked again where a launch is checked in full"),
    ("zeCommandListClose", "recorded commands are then submitted one by one"),
    ("zeCommandListReset", "a batch then takes a new list"),
    ("zeCommandListCreate", "recorded commands are then submitted one by one"),
    ("zeKernelSetArgumentValue", "a recorded launch is then submitted alone"),
    ("zeKernelSetGroupSize", "a recorded launch is then submitted alone"),
    ("zeMemGetAllocProperties", "recorded commands are then submitted one by one"),
    ("zeCommandListAppendImageCopyToMemory", "the last release of an image over host memory has no result"),
    ("zeCommandListAppendMemoryPrefetch", "a hint"),
    ("zeCommandListAppendMemAdvise", "a hint"),
    ("zexDriverImportExternalPointer", "an import is a hint"),
    ("zeDeviceCanAccessPeer", "a buffer's copies then go through host memory"),
    ("zeDeviceGetStatus", "any error but the loss says nothing of the device"),
    ("zeEventQueryStatus", "an event is then not used again"),
    ("zeEventHostSignal", "it is tried again"),
    ("zeEventHostSynchronize", "the engine's threads wait for what nobody asks for"),
    ("zeMemAllocDevice", "pools are trimmed, and it is tried again"),
    ("zeContextMakeMemoryResident", "pools are trimmed, and it is tried again"),
    ("zeMemAllocHost", "pools are trimmed, and it is tried again"),
    ("zeMemAllocShared", "pools are trimmed, and it is tried again"),
    ("zeMemGetIpcHandleFromFileDescriptorExp", "a handle is then made by hand"),
];

/// Such functions where pools have their device memory in pages.
const SILENT_WITH_PAGES: &[&str] = &[
    "zePhysicalMemCreate",
    "zeVirtualMemMap",
    "zeVirtualMemQueryPageSize",
    "zeVirtualMemReserve",
];

/// Functions that free: what they could not free stays.
fn frees(name: &str) -> bool {
    [
        "Destroy", "Free", "Unmap", "Release", "Evict", "CloseIpc", "PutIpc",
    ]
    .iter()
    .any(|part| name.contains(part))
}

/// What is wrong with a run in which a call failed, if anything.
fn wrong(
    driver: &FakeDriver,
    name: &str,
    (steps, failed): (&Steps, &[Failed]),
    code: ur_result_t,
) -> Option<String> {
    let reports = |(_, call, own): &(_, &str, ur_result_t)| {
        // A failure after its command's return is an event's.
        let waits = ["Event.pfnWait", "Queue.pfnFinish", "DeviceExp.pfnWaitExp"].contains(call);
        let times = *call == "Event.pfnGetProfilingInfo";
        *own == code
            || (waits && *own == UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS)
            || (times && *own == UR_RESULT_ERROR_PROFILING_INFO_NOT_AVAILABLE)
    };
    let has_pages = std::env::var_os("UR_LEVEL_ZERO_PAGES").is_some();
    let is_of_pages = has_pages && SILENT_WITH_PAGES.contains(&name);
    let silent = SILENT.iter().any(|(silent, _)| *silent == name) || frees(name) || is_of_pages;
    match failed.first() {
        Some(first) if !reports(first) => Some("another error".to_owned()),
        None if !silent && driver.query().met => Some("nobody reported it".to_owned()),
        _ if !steps.wrong.is_empty() => Some(format!("wrong: {:?}", steps.wrong)),
        _ => None,
    }
}

/// Runs the workload without a failure, then for each function with its first, a middle and its last call failing.
fn each_call_fails_with(
    name: &str,
    variables: &[(&str, &str)],
    (native, code): (u32, ur_result_t),
) {
    alone_with(name, variables, || {
        let driver = FakeDriver::open();
        // What is asked once is asked now.
        workload::play();
        driver.reset();
        let known = workload::play().check_whole();
        driver.check_end("a workload");
        let counts = driver.counts();
        assert!(counts.len() > 45, "{counts:?}");
        let (mut stays, mut problems, mut cases, mut met) = (0, Vec::new(), 0, 0);
        for (name, count) in &counts {
            let mut all = vec![1, count.div_ceil(2), *count];
            all.dedup();
            for nth in all {
                let when = format!("call {nth} of {count} of {name} failed");
                case(&when);
                driver.fail_nth(name, nth, native);
                let steps = workload::play();
                let failed = steps.failed_beside(&known);
                let wrong = wrong(&driver, name, (&steps, &failed), code);
                if frees(name) {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                    stays = driver.query().live;
                }
                // What holds an object that could not be freed ends before it.
                let end = driver.end_with(stays).filter(|_| !frees(name));
                stays = driver.query().live;
                for problem in wrong.into_iter().chain(end) {
                    // The process may end before the next one.
                    eprintln!("{when}: {problem}: {failed:?}");
                    problems.push(when.clone());
                }
                // Waits and queries come as often as they have to.
                met += usize::from(driver.query().met);
                cases += 1;
            }
        }
        println!(
            "{met} of {cases} calls of {} functions failed",
            counts.len()
        );
        assert!(met * 10 > cases * 9, "{met} of {cases} calls failed");
        assert!(
            problems.is_empty(),
            "{} problems: {problems:?}",
            problems.len()
        );
    });
}

#[test]
fn the_workload_succeeds() {
    alone("tests::faults::the_workload_succeeds", || {
        let driver = FakeDriver::open();
        for _ in 0..2 {
            driver.reset();
            let whole = workload::play();
            assert!(whole.is_whole());
            assert_eq!((whole.failed(), whole.wrong), (vec![], vec![]));
            driver.check_end("a workload");
        }
        println!("{:?}", driver.counts());
    });
}

/// The calls that look for drivers and devices fail, each in a process of its own. There is then no adapter, no device or
/// one with fewer properties, and what is there works.
#[test]
fn each_call_of_the_search_fails() {
    let name = "tests::faults::each_call_of_the_search_fails";
    let body = || {
        let driver = FakeDriver::open();
        let asked = std::env::var("SCRIPTED_LEVEL_ZERO_FAIL").is_ok();
        let (adapter, devices) = (adapter(), Vec::new());
        let devices = if adapter.is_null() {
            devices
        } else {
            devices_of(adapter)
        };
        if asked {
            assert!(driver.query().met, "the call did not come");
            driver.reset();
        } else {
            driver
                .counts()
                .iter()
                .for_each(|(name, count)| println!("called {name} {count}"));
        }
        if devices.len() == 2 {
            let steps = workload::play();
            assert_eq!(steps.wrong, []);
        } else if !adapter.is_null() {
            assert_eq!(ur!(Adapter.pfnRelease(adapter)), UR_RESULT_SUCCESS);
        }
        driver.check_end("the search");
    };
    let Some(text) = alone_with(name, &[], body) else {
        return;
    };
    let calls: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("called "))
        .collect();
    assert!(calls.len() > 12, "{text}");
    for call in calls {
        let (function, count) = call.split_once(' ').expect("a name and a number");
        let count: u64 = count.parse().expect("a number");
        for nth in if count == 1 { vec![1] } else { vec![1, count] } {
            let fault = format!("{function}:{nth}:{:x}", UNKNOWN.0);
            alone_with(name, &[("SCRIPTED_LEVEL_ZERO_FAIL", &fault)], body);
        }
    }
}

#[test]
fn each_call_runs_out_of_memory_on_an_old_driver() {
    let name = "tests::faults::each_call_runs_out_of_memory_on_an_old_driver";
    let old = [
        ("SCRIPTED_LEVEL_ZERO_VERSION", "1.3"),
        (
            "SCRIPTED_LEVEL_ZERO_WITHOUT",
            "zeEventCounterBasedCreate,zeCommandListHostSynchronize",
        ),
    ];
    each_call_fails_with(name, &old, MEMORY);
}

#[test]
fn each_call_runs_out_of_memory() {
    each_call_fails_with("tests::faults::each_call_runs_out_of_memory", &[], MEMORY);
}

/// Copies between devices go through host memory.
#[test]
fn each_call_runs_out_of_memory_without_peers() {
    let name = "tests::faults::each_call_runs_out_of_memory_without_peers";
    each_call_fails_with(name, &[("SCRIPTED_LEVEL_ZERO_PEERS", "0")], MEMORY);
}

/// Buffers over host memory import it.
#[test]
fn each_call_runs_out_of_memory_with_imports() {
    let name = "tests::faults::each_call_runs_out_of_memory_with_imports";
    each_call_fails_with(name, &[("SYCL_USM_HOSTPTR_IMPORT", "1")], MEMORY);
}

/// Pools have their device memory in pages.
#[test]
fn each_call_runs_out_of_memory_with_pages() {
    let name = "tests::faults::each_call_runs_out_of_memory_with_pages";
    each_call_fails_with(name, &[("UR_LEVEL_ZERO_PAGES", "1")], MEMORY);
}

#[test]
fn each_call_loses_the_device() {
    each_call_fails_with("tests::faults::each_call_loses_the_device", &[], LOST);
}

#[test]
fn each_call_fails_with_an_unknown_code() {
    let name = "tests::faults::each_call_fails_with_an_unknown_code";
    each_call_fails_with(name, &[], UNKNOWN);
}

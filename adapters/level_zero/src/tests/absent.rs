//! Each optional function and each extension absent in turn: the workload succeeds, or the step that needs the function
//! is unsupported. No call goes to a null address, which would end the process.
//!
//! A function may be absent in two ways: the loader lacks it, or the loader has it and the driver does not.

use ur::abi::*;

use super::fake_driver::{FakeDriver, LACKS, alone_with};
use super::workload;
use crate::lz::Api;

const WITHOUT: &str = "SCRIPTED_LEVEL_ZERO_WITHOUT";

/// What is absent, and the parts of the workload that are then unsupported. All others succeed with anything absent.
#[rustfmt::skip]
const NEEDED: &[(&str, &[&str])] = &[
    ("zeKernelSetGlobalOffsetExp", &["kernels"]),
    ("ZE_experimental_global_offset", &["kernels"]),
    ("ZE_experimental_module_program", &["programs"]),
    ("zexDriverImportExternalPointer", &["registration"]),
    ("zexDriverReleaseImportedPointer", &["registration"]),
    // A driver that names the extension and lacks its function.
    ("all by the driver", &["kernels", "registration", "bindless images", "mipmaps", "pitched memory", "external semaphores", "processes"]),
    ("all", &["kernels", "registration"]),
    ("zePhysicalMemGetProperties by the driver", &["processes"]),
    ("zeCommandListImmediateAppendCommandListsExp by the driver", &["batches", "command buffers", "graphs"]),
    ("zeImageViewCreateExt by the driver", &["bindless images", "mipmaps"]),
    ("zeImageGetDeviceOffsetExp by the driver", &["bindless images", "mipmaps", "pitched memory"]),
    ("zeMemGetPitchFor2dImage by the driver", &["pitched memory"]),
    ("zeDeviceImportExternalSemaphoreExt by the driver", &["external semaphores"]),
    ("zeCommandListAppendWaitExternalSemaphoreExt by the driver", &["external semaphores"]),
    ("zeCommandListAppendSignalExternalSemaphoreExt by the driver", &["external semaphores"]),
    ("all", &["kernels", "registration"]),
];

/// Behind the name of a function that the loader has and the driver lacks.
const BY_DRIVER: &str = " by the driver";

/// Functions that are looked up by address.
const BY_ADDRESS: &[&str] = &[
    "zexDriverImportExternalPointer",
    "zexDriverReleaseImportedPointer",
    "zeIntelGetDriverVersionString",
];

/// The extensions that the adapter asks for.
const EXTENSIONS: &[&str] = &[
    "ZE_experimental_bindless_image",
    "ZE_experimental_global_offset",
    "ZE_experimental_immediate_command_list_append",
    "ZE_experimental_module_program",
    "ZE_experimental_relaxed_allocation_limits",
    "ZE_extension_device_cache_line_size",
    "ZE_extension_device_ip_version",
    "ZE_extension_eu_count",
    "ZE_extension_external_semaphores",
    "ZE_extension_image_format_support",
    "ZE_extension_kernel_max_group_size_properties",
    "ZE_intel_get_driver_version_string",
];

/// The optional functions that the library exports.
fn optional() -> impl Iterator<Item = &'static str> {
    let all = Api::SYMBOLS.iter().filter(|(_, required)| !required);
    // The scripted library has no wrapped handles.
    let has = |name: &&str| *name != "zelLoaderTranslateHandle";
    all.map(|(name, _)| *name).filter(has)
}

fn check() {
    let driver = FakeDriver::open();
    let absent = std::env::var("SCRIPTED_TEST_ABSENT").expect("the test names it");
    let (name, by_driver) = match absent.strip_suffix(BY_DRIVER) {
        Some(name) => (name, true),
        None => (absent.as_str(), false),
    };
    let own = |(own, _): &&(&str, &[&str])| *own == absent || *own == name;
    let needed = NEEDED.iter().find(own);
    let unsupported = needed.map_or(&[][..], |(_, parts)| *parts);
    for _ in 0..2 {
        driver.reset();
        let steps = workload::play();
        assert!(steps.is_whole(), "without {absent}");
        let failed = steps.failed();
        let parts: Vec<_> = failed.iter().map(|(part, _, _)| *part).collect();
        let mut found = parts.clone();
        found.dedup();
        // Some functions are called only after others.
        found.extend(unsupported.iter().filter(|_| by_driver));
        found.sort_unstable();
        found.dedup();
        let mut unsupported = unsupported.to_vec();
        unsupported.sort_unstable();
        assert_eq!(found, unsupported, "without {absent}: {failed:?}");
        let strange = failed
            .iter()
            .find(|(_, _, code)| *code != UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
        assert_eq!(strange, None, "without {absent}: {failed:?}");
        assert_eq!(steps.wrong, [], "without {absent}");
        // What cannot be released stays.
        if !(by_driver && name.contains("Release")) {
            driver.check_end(&format!("without {absent}"));
        }
    }
}

fn each(name: &str, cases: impl Iterator<Item = (String, Vec<(&'static str, String)>)>) {
    for (absent, mut variables) in cases {
        variables.push(("SCRIPTED_TEST_ABSENT", absent));
        let variables: Vec<_> = variables
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        // In the process of a case.
        if alone_with(name, &variables, check).is_none() {
            return;
        }
    }
}

#[test]
fn each_function_that_the_loader_lacks() {
    let case = |name: &str| (name.to_owned(), vec![(LACKS, name.to_owned())]);
    let name = "tests::absent::each_function_that_the_loader_lacks";
    each(name, optional().map(case));
}

#[test]
fn each_function_that_the_driver_lacks() {
    let case = |name: &str| {
        let absent = format!("{name}{BY_DRIVER}");
        (absent, vec![(WITHOUT, name.to_owned())])
    };
    let name = "tests::absent::each_function_that_the_driver_lacks";
    // What cannot be released stays, and that is the driver's fault.
    let all = optional().chain(BY_ADDRESS.iter().copied());
    let all = all.filter(|name| *name != "zeDeviceReleaseExternalSemaphoreExt");
    each(name, all.map(case));
}

/// Buffers over host memory import it, where the driver can.
#[test]
fn each_function_of_imports() {
    let case = |name: &&str| {
        let absent = format!("{name}{BY_DRIVER}");
        let variables = vec![
            (WITHOUT, (*name).to_owned()),
            ("SYCL_USM_HOSTPTR_IMPORT", "1".to_owned()),
        ];
        (absent, variables)
    };
    let name = "tests::absent::each_function_of_imports";
    each(name, BY_ADDRESS.iter().map(case));
}

#[test]
fn each_extension() {
    let case = |name: &&str| ((*name).to_owned(), vec![(WITHOUT, (*name).to_owned())]);
    each("tests::absent::each_extension", EXTENSIONS.iter().map(case));
}

/// An old loader with an old driver, and a new loader with an old driver.
#[test]
fn all_functions_and_extensions() {
    let names: Vec<&str> = optional().chain(BY_ADDRESS.iter().copied()).collect();
    let all = names.join(",");
    let symbols = optional().collect::<Vec<_>>().join(",");
    let version = ("SCRIPTED_LEVEL_ZERO_VERSION", "1.3".to_owned());
    let cases = [
        (
            "all",
            vec![(LACKS, symbols), (WITHOUT, all.clone()), version.clone()],
        ),
        ("all by the driver", vec![(WITHOUT, all), version]),
    ];
    let case = |(absent, variables): (&str, _)| (absent.to_owned(), variables);
    let name = "tests::absent::all_functions_and_extensions";
    each(name, cases.into_iter().map(case));
}

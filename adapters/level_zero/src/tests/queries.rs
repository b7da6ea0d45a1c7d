//! Queries that ask the driver: its failure is the query's error, and the next query asks again. What the driver does not
//! have is no failure.

use std::ptr::null_mut;

use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, alone_with, devices, ur};
use super::faults::{LOST, MEMORY, UNKNOWN};
use super::reported::{Own, ok};
use super::spirv;

/// A code of the driver's for what it does not have.
const ABSENT: u32 = 0x7800_0001;

/// A built program of the first device's.
fn program(own: &Own) -> ur_program_handle_t {
    let (il, mut made) = (spirv::iota(), null_mut());
    ok(ur!(Program.pfnCreateWithIL(
        own.context,
        il.as_ptr().cast(),
        il.len(),
        std::ptr::null(),
        &mut made
    )));
    made
}

fn build(own: &Own, program: ur_program_handle_t) -> ur_result_t {
    ur!(Program.pfnBuild(own.context, program, std::ptr::null()))
}

type Query<'a> = &'a dyn Fn() -> ur_result_t;

/// With each call of a function failing, a query has the code's counterpart; afterwards it succeeds.
fn fails_with(driver: &FakeDriver, query: Query<'_>, function: &str, calls: u64) {
    for (native, code) in [MEMORY, UNKNOWN] {
        for nth in 1..=calls {
            driver.fail_nth(function, nth, native);
            let answer = query();
            assert!(driver.query().met, "call {nth} of {function} did not come");
            assert_eq!(answer, code, "call {nth} of {function}");
        }
    }
    driver.reset();
    ok(query());
}

#[test]
fn queries_of_programs_have_the_drivers_errors() {
    let name = "tests::queries::queries_of_programs_have_the_drivers_errors";
    alone(name, || {
        let own = Own::new();
        let program = program(&own);
        ok(build(&own, program));
        let mut bytes = 0;
        let info = |what| {
            let mut bytes = 0;
            ur!(Program.pfnGetInfo(program, what, 0, null_mut(), &mut bytes))
        };
        for what in [UR_PROGRAM_INFO_NUM_KERNELS, UR_PROGRAM_INFO_KERNEL_NAMES] {
            fails_with(&own.driver, &|| info(what), "zeModuleGetKernelNames", 2);
        }
        // An unknown function's name may be a kernel's.
        let device = own.devices[0];
        let function = || {
            let mut at = null_mut();
            ur!(Program.pfnGetFunctionPointer(device, program, c"none".as_ptr(), &mut at))
        };
        for (native, code) in [MEMORY, UNKNOWN] {
            own.driver.fail_nth("zeModuleGetKernelNames", 1, native);
            assert_eq!(function(), code);
        }
        assert_eq!(function(), UR_RESULT_ERROR_INVALID_KERNEL_NAME);
        // The code is read once. Until then, each kind of query asks for it.
        let binaries = || {
            let mut all = [null_mut::<u8>(); 2];
            let (to, size) = (all.as_mut_ptr().cast(), size_of_val(&all));
            ur!(Program.pfnGetInfo(program, UR_PROGRAM_INFO_BINARIES, size, to, null_mut()))
        };
        own.driver.fail_nth("zeModuleGetNativeBinary", 1, LOST.0);
        assert_eq!(binaries(), LOST.1);
        let sizes = || info(UR_PROGRAM_INFO_BINARY_SIZES);
        fails_with(&own.driver, &binaries, "zeModuleGetNativeBinary", 2);
        ok(sizes());
        ok(build(&own, program));
        fails_with(&own.driver, &sizes, "zeModuleGetNativeBinary", 2);
        // A log is read when it is written.
        let log = |bytes: &mut usize| {
            let what = UR_PROGRAM_BUILD_INFO_LOG;
            ur!(Program.pfnGetBuildInfo(program, device, what, 0, null_mut(), bytes))
        };
        for (native, code) in [MEMORY, UNKNOWN] {
            for nth in 1..=2 {
                own.driver
                    .fail_nth("zeModuleBuildLogGetString", nth, native);
                ok(build(&own, program));
                assert!(own.driver.query().met);
                assert_eq!(log(&mut bytes), code);
                assert_eq!(log(&mut bytes), code, "the log stays unknown");
            }
        }
        own.driver.reset();
        ok(build(&own, program));
        ok(log(&mut bytes));
        ok(ur!(Program.pfnRelease(program)));
        own.end(&[]);
    });
}

fn device_info(device: ur_device_handle_t, what: ur_device_info_t) -> ur_result_t {
    let mut bytes = 0;
    ur!(Device.pfnGetInfo(device, what, 0, null_mut(), &mut bytes))
}

/// What is asked once is asked again after a failure.
#[test]
fn queries_of_devices_have_the_drivers_errors() {
    let name = "tests::queries::queries_of_devices_have_the_drivers_errors";
    let all = [
        (UR_DEVICE_INFO_FAN_SPEED, "zesInit", 1),
        (UR_DEVICE_INFO_FAN_SPEED, "zesDriverGet", 2),
        (UR_DEVICE_INFO_FAN_SPEED, "zesDriverGetDeviceByUuidExp", 1),
        (
            UR_DEVICE_INFO_MIN_POWER_LIMIT,
            "zesDeviceEnumPowerDomains",
            2,
        ),
        (UR_DEVICE_INFO_VIRTUAL_MEMORY_SUPPORT, "zeContextCreate", 1),
        (
            UR_DEVICE_INFO_VIRTUAL_MEMORY_SUPPORT,
            "zeVirtualMemQueryPageSize",
            1,
        ),
        (
            UR_DEVICE_INFO_VIRTUAL_MEMORY_SUPPORT,
            "zeVirtualMemReserve",
            1,
        ),
        (
            UR_DEVICE_INFO_IPC_PHYSICAL_MEMORY_SUPPORT_EXP,
            "zeVirtualMemReserve",
            1,
        ),
        (UR_DEVICE_INFO_PCI_ADDRESS, "zeDevicePciGetPropertiesExt", 1),
    ];
    for (at, _) in all.iter().enumerate() {
        let number = at.to_string();
        let ran = alone_with(name, &[("SCRIPTED_TEST_CASE", &number)], || {
            let number = std::env::var("SCRIPTED_TEST_CASE").expect("the test sets it");
            let (what, function, calls) = all[number.parse::<usize>().expect("a number")];
            let driver = FakeDriver::open();
            let adapter = adapter();
            let device = devices(adapter)[0];
            fails_with(&driver, &|| device_info(device, what), function, calls);
            ok(ur!(Adapter.pfnRelease(adapter)));
            driver.check_end("a query");
        });
        if ran.is_none() {
            return;
        }
    }
}

/// A bus or an interface that is not there is no failure.
#[test]
fn what_a_driver_does_not_have_is_unsupported() {
    let name = "tests::queries::what_a_driver_does_not_have_is_unsupported";
    alone(name, || {
        let driver = FakeDriver::open();
        let adapter = adapter();
        let device = devices(adapter)[0];
        driver.fail_nth("zeDevicePciGetPropertiesExt", 1, ABSENT);
        let absent = UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
        assert_eq!(device_info(device, UR_DEVICE_INFO_PCI_ADDRESS), absent);
        ok(device_info(device, UR_DEVICE_INFO_PCI_ADDRESS));
        driver.fail_nth("zesInit", 1, ABSENT);
        assert_eq!(device_info(device, UR_DEVICE_INFO_FAN_SPEED), absent);
        assert!(driver.query().met);
        // The interface is not started again.
        assert_eq!(device_info(device, UR_DEVICE_INFO_FAN_SPEED), absent);
        ok(ur!(Adapter.pfnRelease(adapter)));
        driver.check_end("a query");
    });
}

/// The widths are read with the device, and their queries have the error.
#[test]
fn unread_widths_are_an_error_of_their_queries() {
    let name = "tests::queries::unread_widths_are_an_error_of_their_queries";
    for nth in ["1", "2"] {
        let fault = format!("zeDeviceGetVectorWidthPropertiesExt:{nth}:{:x}", MEMORY.0);
        let ran = alone_with(name, &[("SCRIPTED_LEVEL_ZERO_FAIL", &fault)], || {
            let driver = FakeDriver::open();
            let adapter = adapter();
            let all = devices(adapter);
            assert!(driver.query().met);
            let widths = |device| device_info(device, UR_DEVICE_INFO_NATIVE_VECTOR_WIDTH_INT);
            assert_eq!(widths(all[0]), MEMORY.1);
            ok(widths(all[1]));
            ok(device_info(all[0], UR_DEVICE_INFO_NAME));
            ok(ur!(Adapter.pfnRelease(adapter)));
            driver.reset();
            driver.check_end("a query");
        });
        if ran.is_none() {
            return;
        }
    }
}

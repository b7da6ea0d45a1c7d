//! `urDeviceGetSelected` over `adapter.c`'s tree of devices.

use ur::abi::*;

use crate::common::{Fake, Loader, build_adapter, child, directory, loader, null};

fn run(scenario: &str, backend: &str) {
    let directory = directory(&format!("selection-{backend}"));
    let adapter = build_adapter(&directory.join("a.so"), &[&format!("BACKEND={backend}")]);
    let variables = [
        ("UR_ADAPTERS_FORCE_LOAD", adapter.as_str()),
        ("TEST_ADAPTER", &adapter),
    ];
    child(scenario, &variables);
}

struct Fixture {
    loader: &'static Loader,
    fake: Fake,
}

impl Fixture {
    fn start() -> Fixture {
        let loader = loader();
        assert_eq!(loader.init(), UR_RESULT_SUCCESS);
        let fake = Fake::open(&std::env::var("TEST_ADAPTER").expect("set by the parent"));
        Fixture { loader, fake }
    }

    fn call(
        &self,
        platform: i32,
        which: ur_device_type_t,
        capacity: u32,
    ) -> (ur_result_t, Vec<String>, u32) {
        let mut list = vec![std::ptr::null_mut(); capacity as usize];
        let mut total = 77;
        let start = if capacity == 0 {
            std::ptr::null_mut()
        } else {
            list.as_mut_ptr()
        };
        let platform = self.fake.platform(platform);
        // SAFETY: the list has room for `capacity` handles.
        let result = unsafe {
            (self.loader.urDeviceGetSelected)(platform, which, capacity, start, &mut total)
        };
        list.retain(|device| !device.is_null());
        (
            result,
            list.into_iter().map(|device| self.take(device)).collect(),
            total,
        )
    }

    /// A device's name; releases the device.
    fn take(&self, device: ur_device_handle_t) -> String {
        let mut name = [0u8; 16];
        // SAFETY: the device is live; the buffer is longer than the names of `adapter.c`.
        unsafe {
            let value = name.as_mut_ptr().cast();
            let get = self.loader.urDeviceGetInfo;
            let result = get(device, UR_DEVICE_INFO_NAME, 16, value, std::ptr::null_mut());
            assert_eq!(result, UR_RESULT_SUCCESS);
            assert_eq!((self.loader.urDeviceRelease)(device), UR_RESULT_SUCCESS);
        }
        String::from_utf8_lossy(&name)
            .trim_end_matches('\0')
            .to_owned()
    }

    /// Sets the selector, queries the number and the devices, and checks the references.
    fn select(&self, selector: &str, platform: i32, which: ur_device_type_t) -> String {
        // SAFETY: no other thread reads the environment.
        unsafe { std::env::set_var("ONEAPI_DEVICE_SELECTOR", selector) };
        let (result, _, counted) = self.call(platform, which, 0);
        assert_eq!(result, UR_RESULT_SUCCESS, "{selector}");
        assert_eq!(
            self.fake.live_devices(),
            0,
            "{selector}: counting keeps no reference"
        );
        let (result, names, total) = self.call(platform, which, 16);
        assert_eq!(
            result, UR_RESULT_SUCCESS,
            "{selector}: both outputs at once"
        );
        assert_eq!(total, counted, "{selector}");
        assert_eq!(names.len(), total as usize, "{selector}");
        assert_eq!(
            self.fake.live_devices(),
            0,
            "{selector}: only what was given is referenced"
        );
        names.join(" ")
    }
}

#[test]
fn devices_by_selector() {
    run("selection::scenario_by_selector", "UR_BACKEND_HIP");
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_by_selector() {
    let fixture = Fixture::start();
    // Platform 2 has a GPU of two tiles, a CPU and an FPGA. Its numbers start at 1, after the
    // device of platform 0.
    #[rustfmt::skip]
    let table = [
        ("", "g c f"),
        ("*:*", "g c f"),
        ("hip:*", "g c f"),
        ("HIP:GPU", "g"),
        ("cuda:*", ""),
        ("hip:0", ""),
        ("hip:1", "g"),
        ("hip:2", "c"),
        ("hip:3,1", "g f"),
        ("*:cpu", "c"),
        ("!hip:gpu", "c f"),
        ("!hip:1", "c f"),
        ("!cuda:1", "g c f"),
        ("hip:*.*", "g.0 g.1"),
        ("hip:1.1", "g.1"),
        ("hip:2.0", ""),
        ("hip:*.*.*", "g.0.0 g.0.1 g.1.0 g.1.1"),
        ("hip:1.1.0", "g.1.0"),
        ("hip:1.0.1", "g.0.1"),
        ("hip:gpu.0.*", "g.0.0 g.0.1"),
        ("hip:1.1.0,cpu,1.0,1", "g c g.0 g.1.0"),
        ("hip:*.*;!hip:1.0", "g.1"),
        ("hip:gpu,*.*;!hip:1.1", "g g.0"),
    ];
    for (selector, expected) in table {
        assert_eq!(
            fixture.select(selector, 2, UR_DEVICE_TYPE_ALL),
            expected,
            "{selector}"
        );
    }
    // The type filters root devices and does not change their numbers.
    assert_eq!(fixture.select("hip:2", 2, UR_DEVICE_TYPE_CPU), "c");
    assert_eq!(fixture.select("hip:1", 2, UR_DEVICE_TYPE_CPU), "");
    assert_eq!(fixture.select("hip:*", 2, UR_DEVICE_TYPE_FPGA), "f");
    assert_eq!(fixture.select("hip:*", 2, UR_DEVICE_TYPE_DEFAULT), "g");
    assert_eq!(fixture.select("hip:*", 2, UR_DEVICE_TYPE_MCA), "");
    assert_eq!(fixture.select("hip:*.*", 2, UR_DEVICE_TYPE_CPU), "");
    // Numbers continue from platform to platform.
    assert_eq!(fixture.select("hip:0", 0, UR_DEVICE_TYPE_ALL), "first");
    assert_eq!(fixture.select("hip:1", 0, UR_DEVICE_TYPE_ALL), "");
    assert_eq!(fixture.select("hip:*", 1, UR_DEVICE_TYPE_ALL), "");
    assert_eq!(fixture.select("hip:1", 1, UR_DEVICE_TYPE_ALL), "");
}

#[test]
fn other_backends() {
    run("selection::scenario_other_backend", "UR_BACKEND_NATIVE_CPU");
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_other_backend() {
    let fixture = Fixture::start();
    assert_eq!(fixture.select("native_cpu:gpu", 2, UR_DEVICE_TYPE_ALL), "g");
    assert_eq!(
        fixture.select("hip:gpu;level_zero:*", 2, UR_DEVICE_TYPE_ALL),
        ""
    );
}

#[test]
fn bad_arguments_and_bad_selectors() {
    let directory = directory("selection-bad");
    let adapter = build_adapter(&directory.join("a.so"), &[]);
    let log = child(
        "selection::scenario_bad",
        &[
            ("UR_ADAPTERS_FORCE_LOAD", &adapter),
            ("TEST_ADAPTER", &adapter),
            ("UR_LOG_LOADER", "level:error"),
        ],
    );
    let expected = "<LOADER>[ERROR]: ONEAPI_DEVICE_SELECTOR: unknown device `gqu`; \
                    *, a number, cpu, gpu or fpga\n  hip:0,gqu\n        ^\n";
    assert!(log.contains(expected), "{log}");
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_bad() {
    let fixture = Fixture::start();
    let platform = fixture.fake.platform(2);
    let call = fixture.loader.urDeviceGetSelected;
    let mut device = null();
    let mut count = 77;
    // SAFETY: handles are null or live; outputs are null or have room for the given number.
    unsafe {
        #[rustfmt::skip]
        let results = [
            (call(null(), UR_DEVICE_TYPE_ALL, 1, &mut device, &mut count), UR_RESULT_ERROR_INVALID_NULL_HANDLE),
            (call(platform, UR_DEVICE_TYPE_ALL, 1, null(), &mut count), UR_RESULT_ERROR_INVALID_NULL_POINTER),
            (call(platform, UR_DEVICE_TYPE_ALL, 0, null(), null()), UR_RESULT_ERROR_INVALID_SIZE),
            (call(platform, UR_DEVICE_TYPE_ALL, 0, &mut device, null()), UR_RESULT_ERROR_INVALID_SIZE),
            // The size is checked before the type.
            (call(platform, ur_device_type_t(!0), 0, &mut device, null()), UR_RESULT_ERROR_INVALID_SIZE),
            (call(platform, UR_DEVICE_TYPE_VPU, 1, &mut device, &mut count), UR_RESULT_ERROR_INVALID_ENUMERATION),
            (call(platform, ur_device_type_t(0), 1, &mut device, &mut count), UR_RESULT_ERROR_INVALID_ENUMERATION),
            (call(platform, ur_device_type_t(!0), 1, &mut device, &mut count), UR_RESULT_ERROR_INVALID_ENUMERATION),
        ];
        for (at, (result, expected)) in results.into_iter().enumerate() {
            assert_eq!(result, expected, "call {at}");
        }
        assert!(count == 77 && device.is_null(), "an error writes nothing");
        // With room for fewer devices, the count is that of all.
        std::env::set_var("ONEAPI_DEVICE_SELECTOR", "*:*");
        assert_eq!(
            call(platform, UR_DEVICE_TYPE_ALL, 0, &mut device, &mut count),
            UR_RESULT_SUCCESS
        );
        assert!(count == 3 && device.is_null(), "{count}");
        assert_eq!(
            call(platform, UR_DEVICE_TYPE_ALL, 1, &mut device, &mut count),
            UR_RESULT_SUCCESS
        );
        assert_eq!((fixture.take(device).as_str(), count), ("g", 3));
        assert_eq!(
            call(platform, UR_DEVICE_TYPE_ALL, 1, &mut device, null()),
            UR_RESULT_SUCCESS
        );
        assert_eq!(fixture.take(device), "g");
        assert_eq!(fixture.fake.live_devices(), 0);
        for selector in ["hip:0,gqu", "hip:0;hip:1", "hip", ";", "hip:*.1"] {
            std::env::set_var("ONEAPI_DEVICE_SELECTOR", selector);
            let result = call(platform, UR_DEVICE_TYPE_ALL, 1, &mut device, &mut count);
            assert_eq!(result, UR_RESULT_ERROR_INVALID_VALUE, "{selector}");
        }
    }
}

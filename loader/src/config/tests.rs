//! The seven functions as a C caller uses them.

use std::ffi::{CStr, c_void};

use super::*;

unsafe extern "C" fn locate(user_data: *mut c_void) -> ur_code_location_t {
    ur_code_location_t {
        lineNumber: user_data.addr() as u32,
        ..ur_code_location_t::default()
    }
}

fn create() -> ur_loader_config_handle_t {
    let mut handle = std::ptr::null_mut();
    // SAFETY: the handle is writable.
    let result = unsafe { urLoaderConfigCreate(&mut handle) };
    assert_eq!(result, UR_RESULT_SUCCESS);
    assert!(!handle.is_null());
    handle
}

fn release(handle: ur_loader_config_handle_t) {
    // SAFETY: the test has a reference.
    assert_eq!(unsafe { urLoaderConfigRelease(handle) }, UR_RESULT_SUCCESS);
}

#[test]
fn references_are_counted() {
    let handle = create();
    let count = || {
        let mut count = 0u32;
        let what = UR_LOADER_CONFIG_INFO_REFERENCE_COUNT;
        let mut size = 0;
        // SAFETY: the value has `size_of` its type.
        let result =
            unsafe { urLoaderConfigGetInfo(handle, what, 4, (&raw mut count).cast(), &mut size) };
        assert_eq!((result, size), (UR_RESULT_SUCCESS, 4));
        count
    };
    assert_eq!(count(), 1);
    // SAFETY: the handle is live.
    assert_eq!(unsafe { urLoaderConfigRetain(handle) }, UR_RESULT_SUCCESS);
    assert_eq!(count(), 2);
    release(handle);
    assert_eq!(count(), 1);
    release(handle);
}

#[test]
fn layers_are_listed_and_enabled_by_exact_name() {
    let handle = create();
    let what = UR_LOADER_CONFIG_INFO_AVAILABLE_LAYERS;
    let mut size = 0;
    // SAFETY: a null value with a size of 0 is valid.
    let result = unsafe { urLoaderConfigGetInfo(handle, what, 0, std::ptr::null_mut(), &mut size) };
    assert_eq!(result, UR_RESULT_SUCCESS);
    let mut text = vec![0xffu8; size + 1];
    let value: *mut c_void = text.as_mut_ptr().cast();
    // SAFETY: the value has at least the given size.
    unsafe {
        let short = urLoaderConfigGetInfo(handle, what, size - 1, value, std::ptr::null_mut());
        assert_eq!(short, UR_RESULT_ERROR_INVALID_SIZE);
        assert_eq!(text[0], 0xff, "nothing is written on failure");
        let whole = urLoaderConfigGetInfo(handle, what, size + 1, value, std::ptr::null_mut());
        assert_eq!(whole, UR_RESULT_SUCCESS);
    }
    let text = CStr::from_bytes_until_nul(&text)
        .expect("ends")
        .to_str()
        .expect("ASCII");
    assert_eq!(text.len() + 1, size);
    let enable = |name: &CStr| {
        // SAFETY: the handle is live.
        unsafe { urLoaderConfigEnableLayer(handle, name.as_ptr()) }
    };
    for name in text.split(';') {
        let name = std::ffi::CString::new(name).expect("a name");
        assert_eq!(enable(&name), UR_RESULT_SUCCESS, "{name:?}");
    }
    // SAFETY: the handle is live.
    let listed = unsafe { settings_of(handle) }.layers;
    assert!(listed.iter().any(|name| name == "UR_LAYER_TRACING"));
    assert_eq!(enable(c"UR_LAYER_TRACING"), UR_RESULT_SUCCESS);
    assert_eq!(enable(c"UR_LAYER_FULL_VALIDATION"), UR_RESULT_SUCCESS);
    for name in [
        c"UR_LAYER",
        c"",
        c"UR_LAYER_TRACING;UR_LAYER_LEAK_CHECKING",
        // Layers of the reference that this loader lacks.
        c"UR_LAYER_ASAN",
        c"UR_LAYER_MSAN",
        c"UR_LAYER_TSAN",
        c"ur_layer_tracing",
        c"\xff",
    ] {
        assert_eq!(enable(name), UR_RESULT_ERROR_LAYER_NOT_PRESENT, "{name:?}");
    }
    // SAFETY: the handle is live.
    let settings = unsafe { settings_of(handle) };
    assert_eq!(
        settings.layers[listed.len()..],
        ["UR_LAYER_TRACING", "UR_LAYER_FULL_VALIDATION"]
    );
    release(handle);
}

#[test]
fn the_code_location_callback_is_stored() {
    let handle = create();
    let data = std::ptr::without_provenance_mut(77);
    // SAFETY: the handle is live, the callback takes any argument.
    let location = unsafe {
        let result = urLoaderConfigSetCodeLocationCallback(handle, Some(locate), data);
        assert_eq!(result, UR_RESULT_SUCCESS);
        let location = settings_of(handle).code_location.expect("kept");
        (location.callback)(location.user_data)
    };
    assert_eq!(location.lineNumber, 77);
    release(handle);
}

#[test]
fn mocking_is_off_until_it_is_enabled() {
    let handle = create();
    // SAFETY: the handle is live.
    unsafe {
        assert!(!settings_of(handle).mocking);
        for (enable, expected) in [(1, true), (0, false)] {
            let result = urLoaderConfigSetMockingEnabled(handle, enable);
            assert_eq!(result, UR_RESULT_SUCCESS);
            assert_eq!(settings_of(handle).mocking, expected);
        }
    }
    release(handle);
}

#[test]
fn bad_arguments() {
    let handle = create();
    let null: ur_loader_config_handle_t = std::ptr::null_mut();
    let count = UR_LOADER_CONFIG_INFO_REFERENCE_COUNT;
    let none = std::ptr::null_mut::<c_void>();
    let mut value = 0u32;
    let mut size = 0usize;
    let to: *mut c_void = (&raw mut value).cast();
    // SAFETY: handles are null or live; outputs are null or have the given size.
    unsafe {
        #[rustfmt::skip]
        let results = [
            (urLoaderConfigCreate(std::ptr::null_mut()), UR_RESULT_ERROR_INVALID_NULL_POINTER),
            (urLoaderConfigRetain(null), UR_RESULT_ERROR_INVALID_NULL_HANDLE),
            (urLoaderConfigRelease(null), UR_RESULT_ERROR_INVALID_NULL_HANDLE),
            (urLoaderConfigGetInfo(null, count, 4, to, &mut size), UR_RESULT_ERROR_INVALID_NULL_HANDLE),
            (urLoaderConfigGetInfo(handle, count, 0, none, std::ptr::null_mut()), UR_RESULT_ERROR_INVALID_NULL_POINTER),
            (urLoaderConfigGetInfo(handle, count, 4, none, &mut size), UR_RESULT_ERROR_INVALID_NULL_POINTER),
            (urLoaderConfigGetInfo(handle, count, 0, to, &mut size), UR_RESULT_ERROR_INVALID_SIZE),
            (urLoaderConfigGetInfo(handle, count, 3, to, &mut size), UR_RESULT_ERROR_INVALID_SIZE),
            (urLoaderConfigGetInfo(handle, ur_loader_config_info_t(2), 4, to, &mut size), UR_RESULT_ERROR_INVALID_ENUMERATION),
            (urLoaderConfigEnableLayer(null, c"UR_LAYER_TRACING".as_ptr()), UR_RESULT_ERROR_INVALID_NULL_HANDLE),
            (urLoaderConfigEnableLayer(handle, std::ptr::null()), UR_RESULT_ERROR_INVALID_NULL_POINTER),
            (urLoaderConfigSetCodeLocationCallback(null, Some(locate), none), UR_RESULT_ERROR_INVALID_NULL_HANDLE),
            (urLoaderConfigSetCodeLocationCallback(handle, None, none), UR_RESULT_ERROR_INVALID_NULL_POINTER),
            (urLoaderConfigSetMockingEnabled(null, 0), UR_RESULT_ERROR_INVALID_NULL_HANDLE),
        ];
        for (at, (result, expected)) in results.into_iter().enumerate() {
            assert_eq!(result, expected, "call {at}");
        }
        assert_eq!(
            urLoaderConfigGetInfo(handle, count, 4, to, std::ptr::null_mut()),
            UR_RESULT_SUCCESS
        );
    }
    assert_eq!((value, size), (1, 0), "an error writes nothing");
    // SAFETY: a null handle is valid.
    assert!(unsafe { settings_of(null) }.layers.is_empty());
    release(handle);
}

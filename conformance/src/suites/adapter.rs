//! Adapters and platforms.

use crate::fixture::{Fixture, adapters, platforms};
use crate::objects::info;
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_all, check_eq};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests!["adapter";
        get_counts, get_fills_what_fits, get_is_stable, counts_references, last_error,
        logger_callback,
    ];
    tests.extend(info::tests(
        "adapter",
        "info_",
        ur_adapter_info_t::PROPERTIES,
        |_| Ok(()),
        |f, (), name, size, value, ret| {
            f.ur.urAdapterGetInfo(f.adapter, ur_adapter_info_t(name), size, value, ret)
        },
    ));
    tests.extend(crate::tests!["platform";
        get_lists_platforms, lists_are_stable, api_version, belongs_to_its_adapter, backend_options,
        native_handle,
    ]);
    tests.extend(info::tests(
        "platform",
        "info_",
        ur_platform_info_t::PROPERTIES,
        |_| Ok(()),
        |f, (), name, size, value, ret| {
            f.ur.urPlatformGetInfo(f.platform, ur_platform_info_t(name), size, value, ret)
        },
    ));
    tests
}

fn release_all(fixture: &Fixture, list: &[ur_adapter_handle_t]) -> Done {
    list.iter()
        .try_for_each(|adapter| fixture.ur.urAdapterRelease(*adapter).ok())
}

/// `urAdapterGet` reports at least one adapter and refuses a list with room for none.
fn get_counts(fixture: &Fixture) -> Done {
    let mut count = 0;
    fixture.ur.urAdapterGet(0, null_mut(), &mut count).ok()?;
    check!(count > 0, "urAdapterGet reports no adapter");
    let mut one = null_mut();
    fixture
        .ur
        .urAdapterGet(0, &mut one, null_mut())
        .fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    check!(one.is_null(), "a refused urAdapterGet wrote a handle");
    Ok(())
}

/// `urAdapterGet` fills as many entries as fit, writes no more, and reports the full count.
fn get_fills_what_fits(fixture: &Fixture) -> Done {
    let mut count = 0;
    fixture.ur.urAdapterGet(0, null_mut(), &mut count).ok()?;
    let marker = std::ptr::dangling_mut();
    let mut list = vec![marker; count as usize + 2];
    let mut again = 0;
    fixture
        .ur
        .urAdapterGet(count + 1, list.as_mut_ptr(), &mut again)
        .ok()?;
    check_eq!(again, count, "number of adapters");
    let (filled, rest) = list.split_at(count as usize);
    check!(
        filled
            .iter()
            .all(|adapter| !adapter.is_null() && *adapter != marker),
        "urAdapterGet left an entry null or unwritten"
    );
    check_all!(
        rest,
        marker,
        "urAdapterGet wrote past the number of adapters"
    );
    release_all(fixture, filled)?;
    let mut one = null_mut();
    fixture.ur.urAdapterGet(1, &mut one, &mut again).ok()?;
    check_eq!(again, count, "number of adapters, with room for one");
    check_eq!(one, filled[0], "first adapter");
    release_all(fixture, &[one])
}

/// Two calls of `urAdapterGet` list the same handles.
fn get_is_stable(fixture: &Fixture) -> Done {
    let first = adapters(fixture.ur)?;
    let second = adapters(fixture.ur)?;
    release_all(fixture, &first)?;
    release_all(fixture, &second)?;
    check_eq!(first, second, "adapters, listed twice");
    Ok(())
}

fn references(fixture: &Fixture) -> Result<u32, Stop> {
    let property = UR_ADAPTER_INFO_REFERENCE_COUNT;
    info::value(|size, value, ret| {
        fixture
            .ur
            .urAdapterGetInfo(fixture.adapter, property, size, value, ret)
    })
}

/// A retain and a release of an adapter change its reference count by one.
fn counts_references(fixture: &Fixture) -> Done {
    let before = references(fixture)?;
    check!(before > 0, "an adapter in use has no references");
    fixture.ur.urAdapterRetain(fixture.adapter).ok()?;
    check_eq!(
        references(fixture)?,
        before + 1,
        "references after a retain"
    );
    fixture.ur.urAdapterRelease(fixture.adapter).ok()?;
    check_eq!(references(fixture)?, before, "references after a release");
    Ok(())
}

/// `urAdapterGetLastError` succeeds without an error and gives null or a terminated string.
fn last_error(fixture: &Fixture) -> Done {
    let (mut message, mut code) = (null::<c_char>(), 0);
    let status = fixture
        .ur
        .urAdapterGetLastError(fixture.adapter, &mut message, &mut code);
    status.ok()?;
    if !message.is_null() {
        // SAFETY: the adapter gave a string that is valid until this thread's next failure.
        let text = unsafe { CStr::from_ptr(message) };
        check!(
            text.to_bytes().len() < 1 << 20,
            "the last error has a megabyte or more"
        );
    }
    Ok(())
}

unsafe extern "C" fn count_messages(
    _level: ur_logger_level_t,
    message: *const c_char,
    data: *mut c_void,
) {
    // SAFETY: `logger_callback` registers a counter that outlives the registration.
    let counter = unsafe { &*data.cast::<std::sync::atomic::AtomicU32>() };
    if !message.is_null() {
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

static MESSAGES: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// A logger callback and every logger level can be set.
fn logger_callback(fixture: &Fixture) -> Done {
    let data = (&raw const MESSAGES).cast_mut().cast();
    let ur = fixture.ur;
    ur.urAdapterSetLoggerCallback(
        fixture.adapter,
        Some(count_messages),
        data,
        UR_LOGGER_LEVEL_DEBUG,
    )
    .ok()?;
    for level in [
        UR_LOGGER_LEVEL_INFO,
        UR_LOGGER_LEVEL_ERROR,
        UR_LOGGER_LEVEL_QUIET,
    ] {
        ur.urAdapterSetLoggerCallbackLevel(fixture.adapter, level)
            .ok()?;
    }
    Ok(())
}

/// `urPlatformGet` lists the platform under test, writes no further entry and refuses wrong sizes.
fn get_lists_platforms(fixture: &Fixture) -> Done {
    let ur = fixture.ur;
    let mut count = 0;
    ur.urPlatformGet(fixture.adapter, 0, null_mut(), &mut count)
        .ok()?;
    check!(count > 0, "urPlatformGet reports no platform");
    let marker = std::ptr::dangling_mut();
    let mut list = vec![marker; count as usize + 1];
    ur.urPlatformGet(fixture.adapter, count + 1, list.as_mut_ptr(), null_mut())
        .ok()?;
    check_eq!(
        list[count as usize],
        marker,
        "entry beyond the last platform"
    );
    check!(
        list[..count as usize].contains(&fixture.platform),
        "the platform under test is not listed"
    );
    ur.urPlatformGet(fixture.adapter, 0, list.as_mut_ptr(), null_mut())
        .fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    ur.urPlatformGet(fixture.adapter, 0, null_mut(), null_mut())
        .fails(UR_RESULT_ERROR_INVALID_VALUE)
}

/// Two calls of `urPlatformGet` list the same handles.
fn lists_are_stable(fixture: &Fixture) -> Done {
    let first = platforms(fixture.ur, fixture.adapter)?;
    check_eq!(
        first,
        platforms(fixture.ur, fixture.adapter)?,
        "platforms, listed twice"
    );
    Ok(())
}

/// A platform reports the current API version.
fn api_version(fixture: &Fixture) -> Done {
    let mut version = ur_api_version_t(0);
    fixture
        .ur
        .urPlatformGetApiVersion(fixture.platform, &mut version)
        .ok()?;
    check_eq!(
        version,
        UR_API_VERSION_CURRENT,
        "API version of the platform"
    );
    Ok(())
}

/// A platform reports its adapter and its backend.
fn belongs_to_its_adapter(fixture: &Fixture) -> Done {
    let get = |property| {
        info::value::<ur_adapter_handle_t>(|size, value, ret| {
            fixture
                .ur
                .urPlatformGetInfo(fixture.platform, property, size, value, ret)
        })
    };
    check_eq!(
        get(UR_PLATFORM_INFO_ADAPTER)?,
        fixture.adapter,
        "adapter of the platform"
    );
    let backend: ur_backend_t = info::value(|size, value, ret| {
        fixture
            .ur
            .urPlatformGetInfo(fixture.platform, UR_PLATFORM_INFO_BACKEND, size, value, ret)
    })?;
    check_eq!(backend, fixture.backend, "backend of the platform");
    Ok(())
}

/// The optimisation levels are translated to backend options and an unknown option is refused.
fn backend_options(fixture: &Fixture) -> Done {
    for option in [c"", c"-O0", c"-O1", c"-O2", c"-O3"] {
        let mut translated = null::<c_char>();
        fixture
            .ur
            .urPlatformGetBackendOption(fixture.platform, option.as_ptr(), &mut translated)
            .ok()?;
        check!(!translated.is_null(), "null translation of {option:?}");
    }
    let mut translated = null::<c_char>();
    let unknown = fixture.ur.urPlatformGetBackendOption(
        fixture.platform,
        c"-no-such".as_ptr(),
        &mut translated,
    );
    unknown.fails(UR_RESULT_ERROR_INVALID_VALUE)
}

/// The native handle of a platform leads back to its handle.
fn native_handle(fixture: &Fixture) -> Done {
    let mut native = 0;
    let status = fixture
        .ur
        .urPlatformGetNativeHandle(fixture.platform, &mut native);
    if status.is_unsupported() {
        return Ok(());
    }
    status.ok()?;
    let mut platform = null_mut();
    let made =
        fixture
            .ur
            .urPlatformCreateWithNativeHandle(native, fixture.adapter, null(), &mut platform);
    if made.is_unsupported() {
        return Ok(());
    }
    made.ok()?;
    check_eq!(platform, fixture.platform, "platform of the native handle");
    Ok(())
}

//! The loader: configs, and its initialisation and teardown in a process of its own.

use crate::api::Api;
use crate::fresh::Fresh;
use crate::objects::{Context, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_eq};
use std::ptr::null_mut;
use ur::abi::*;

const NO_FLAGS: ur_device_init_flags_t = ur_device_init_flags_t(0);

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests!["loader"; config_counts_references, config_layers];
    for property in ur_loader_config_info_t::PROPERTIES {
        let name = property
            .name
            .trim_start_matches("UR_LOADER_CONFIG_INFO_")
            .to_lowercase();
        tests.push(Test::new(
            "loader",
            format!("config_info_{name}"),
            |fixture| {
                let config = Config::new(fixture.ur)?;
                info::protocol(property, |size, value, ret| {
                    fixture.ur.urLoaderConfigGetInfo(
                        config.raw,
                        ur_loader_config_info_t(property.value),
                        size,
                        value,
                        ret,
                    )
                })
            },
        ));
    }
    type Check = fn(&Fresh) -> Done;
    let own: [(&'static str, Check); 9] = [
        ("uninitialised_before_init", uninitialised_before_init),
        ("config_before_init", config_before_init),
        ("init_flags", init_flags),
        ("init_twice", init_twice),
        ("tear_down_without_init", tear_down_without_init),
        ("init_again_after_tear_down", init_again_after_tear_down),
        ("init_from_many_threads", init_from_many_threads),
        ("unknown_layer", unknown_layer),
        ("selected_devices", selected_devices),
    ];
    tests.extend(own.map(|(name, test)| Test::process("loader", name, test)));
    tests
}

struct Config<'a> {
    ur: &'a Api,
    raw: ur_loader_config_handle_t,
}

impl<'a> Config<'a> {
    fn new(ur: &'a Api) -> Result<Self, Stop> {
        let mut raw = null_mut();
        ur.urLoaderConfigCreate(&mut raw).ok()?;
        Ok(Self { ur, raw })
    }

    fn references(&self) -> Result<u32, Stop> {
        let property = UR_LOADER_CONFIG_INFO_REFERENCE_COUNT;
        info::value(|size, value, ret| {
            self.ur
                .urLoaderConfigGetInfo(self.raw, property, size, value, ret)
        })
    }
}

impl Drop for Config<'_> {
    fn drop(&mut self) {
        let _ = self.ur.urLoaderConfigRelease(self.raw);
    }
}

/// A retain and a release of a loader config change its reference count by one.
fn config_counts_references(fixture: &crate::fixture::Fixture) -> Done {
    let config = Config::new(fixture.ur)?;
    check_eq!(config.references()?, 1, "references of a new config");
    fixture.ur.urLoaderConfigRetain(config.raw).ok()?;
    check_eq!(config.references()?, 2, "references after a retain");
    fixture.ur.urLoaderConfigRelease(config.raw).ok()?;
    check_eq!(config.references()?, 1, "references after a release");
    Ok(())
}

/// Each available layer can be enabled and an unknown one is refused.
fn config_layers(fixture: &crate::fixture::Fixture) -> Done {
    let config = Config::new(fixture.ur)?;
    let property = UR_LOADER_CONFIG_INFO_AVAILABLE_LAYERS;
    let layers = info::text(|size, value, ret| {
        fixture
            .ur
            .urLoaderConfigGetInfo(config.raw, property, size, value, ret)
    })?;
    for layer in layers.split(';').filter(|layer| !layer.is_empty()) {
        let name =
            std::ffi::CString::new(layer).map_err(|_| Stop::failed("a NUL in the layer list"))?;
        fixture
            .ur
            .urLoaderConfigEnableLayer(config.raw, name.as_ptr())
            .ok()?;
    }
    fixture
        .ur
        .urLoaderConfigEnableLayer(config.raw, c"UR_LAYER_NO_SUCH".as_ptr())
        .fails(UR_RESULT_ERROR_LAYER_NOT_PRESENT)
}

fn count_adapters(ur: &Api) -> Result<u32, Stop> {
    let mut count = 0;
    ur.urAdapterGet(0, null_mut(), &mut count).ok()?;
    Ok(count)
}

/// Calls before `urLoaderInit` and after the teardown fail with `UNINITIALIZED`.
fn uninitialised_before_init(fresh: &Fresh) -> Done {
    let mut count = 7;
    fresh
        .ur
        .urAdapterGet(0, null_mut(), &mut count)
        .fails(UR_RESULT_ERROR_UNINITIALIZED)?;
    check_eq!(count, 7, "count after a refused call");
    fresh.ur.urLoaderInit(NO_FLAGS, null_mut()).ok()?;
    check!(
        count_adapters(fresh.ur)? > 0,
        "no adapter after urLoaderInit"
    );
    fresh.ur.urLoaderTearDown().ok()?;
    fresh
        .ur
        .urAdapterGet(0, null_mut(), &mut count)
        .fails(UR_RESULT_ERROR_UNINITIALIZED)
}

/// A loader config can be made before `urLoaderInit` and released after it.
fn config_before_init(fresh: &Fresh) -> Done {
    let config = Config::new(fresh.ur)?;
    check_eq!(config.references()?, 1, "references");
    fresh.ur.urLoaderInit(NO_FLAGS, config.raw).ok()?;
    drop(config);
    check!(
        count_adapters(fresh.ur)? > 0,
        "no adapter after urLoaderInit with a config"
    );
    fresh.ur.urLoaderTearDown().ok()
}

/// `urLoaderInit` accepts device flags and refuses undefined ones.
fn init_flags(fresh: &Fresh) -> Done {
    let undefined = ur_device_init_flags_t(UR_DEVICE_INIT_FLAGS_MASK);
    fresh
        .ur
        .urLoaderInit(undefined, null_mut())
        .fails(UR_RESULT_ERROR_INVALID_ENUMERATION)?;
    fresh
        .ur
        .urLoaderInit(
            UR_DEVICE_INIT_FLAG_CPU | UR_DEVICE_INIT_FLAG_GPU,
            null_mut(),
        )
        .ok()?;
    check!(
        count_adapters(fresh.ur)? > 0,
        "no adapter with device flags"
    );
    fresh.ur.urLoaderTearDown().ok()
}

/// The loader stays initialised until each `urLoaderInit` has its teardown.
fn init_twice(fresh: &Fresh) -> Done {
    fresh.ur.urLoaderInit(NO_FLAGS, null_mut()).ok()?;
    fresh.ur.urLoaderInit(NO_FLAGS, null_mut()).ok()?;
    fresh.ur.urLoaderTearDown().ok()?;
    check!(
        count_adapters(fresh.ur)? > 0,
        "no adapter after the first of two teardowns"
    );
    fresh.ur.urLoaderTearDown().ok()?;
    fresh
        .ur
        .urLoaderTearDown()
        .fails(UR_RESULT_ERROR_UNINITIALIZED)
}

/// A teardown without an initialisation fails with `UNINITIALIZED`.
fn tear_down_without_init(fresh: &Fresh) -> Done {
    fresh
        .ur
        .urLoaderTearDown()
        .fails(UR_RESULT_ERROR_UNINITIALIZED)
}

/// The loader can be initialised and used again after a teardown.
fn init_again_after_tear_down(fresh: &Fresh) -> Done {
    for _ in 0..3 {
        let fixture = fresh.fixture()?;
        let context = Context::new(&fixture)?;
        context.in_order(&fixture)?.finish()?;
        drop(context);
        fixture.close()?;
    }
    Ok(())
}

/// Threads may initialise and tear down the loader at the same time.
fn init_from_many_threads(fresh: &Fresh) -> Done {
    let work = || -> Done {
        for _ in 0..10 {
            fresh.ur.urLoaderInit(NO_FLAGS, null_mut()).ok()?;
            check!(
                count_adapters(fresh.ur)? > 0,
                "no adapter between init and teardown"
            );
            fresh.ur.urLoaderTearDown().ok()?;
        }
        Ok(())
    };
    // Keeps the loader initialised, since its initialisation and teardown must not race with other calls.
    fresh.ur.urLoaderInit(NO_FLAGS, null_mut()).ok()?;
    let results: Vec<Done> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(Stop::failed("a thread panicked")))
            })
            .collect()
    });
    results.into_iter().collect::<Done>()?;
    fresh.ur.urLoaderTearDown().ok()
}

/// An unknown layer is refused and leaves the config usable.
fn unknown_layer(fresh: &Fresh) -> Done {
    let config = Config::new(fresh.ur)?;
    fresh
        .ur
        .urLoaderConfigEnableLayer(config.raw, c"no such layer".as_ptr())
        .fails(UR_RESULT_ERROR_LAYER_NOT_PRESENT)?;
    fresh.ur.urLoaderInit(NO_FLAGS, config.raw).ok()?;
    fresh.ur.urLoaderTearDown().ok()
}

/// `urDeviceGetSelected` gives the count and the list together and refuses a null platform.
fn selected_devices(fresh: &Fresh) -> Done {
    let fixture = fresh.fixture()?;
    let ur = fresh.ur;
    let ty = UR_DEVICE_TYPE_ALL;
    let mut count = 0;
    ur.urDeviceGetSelected(fixture.platform, ty, 0, null_mut(), &mut count)
        .ok()?;
    check!(count > 0, "no device is selected");
    let mut list = vec![null_mut(); count as usize];
    let mut again = 0;
    ur.urDeviceGetSelected(fixture.platform, ty, count, list.as_mut_ptr(), &mut again)
        .ok()?;
    check_eq!(again, count, "number of devices, queried with the list");
    check!(
        list.iter().all(|device| !device.is_null()),
        "a null device in the list"
    );
    for device in list {
        ur.urDeviceRelease(device).ok()?;
    }
    let one = ur.urDeviceGetSelected(null_mut(), ty, 0, null_mut(), &mut count);
    one.fails(UR_RESULT_ERROR_INVALID_NULL_HANDLE)
}

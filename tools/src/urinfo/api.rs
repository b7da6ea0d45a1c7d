//! Safe wrappers of the loader's functions that list and query objects. All handles come from the
//! loader.
//!
//! Owns every unsafe call of this program. Sizes that a driver returns are limited before they are
//! used.

use std::ffi::c_void;
use std::ptr::null_mut;

use ur::abi::*;
use ur::dl::{Binding, Library, LoadError};

ur::dl::symbols! {
    struct Functions {
        required {
            urLoaderInit: unsafe extern "C" fn(ur_device_init_flags_t, ur_loader_config_handle_t) -> ur_result_t,
            urLoaderTearDown: unsafe extern "C" fn() -> ur_result_t,
            urLoaderConfigCreate: unsafe extern "C" fn(*mut ur_loader_config_handle_t) -> ur_result_t,
            urLoaderConfigRelease: unsafe extern "C" fn(ur_loader_config_handle_t) -> ur_result_t,
            urLoaderConfigGetInfo: Query<ur_loader_config_handle_t, ur_loader_config_info_t>,
            urAdapterGet: unsafe extern "C" fn(u32, *mut ur_adapter_handle_t, *mut u32) -> ur_result_t,
            urAdapterRelease: unsafe extern "C" fn(ur_adapter_handle_t) -> ur_result_t,
            urAdapterGetInfo: Query<ur_adapter_handle_t, ur_adapter_info_t>,
            urPlatformGet: unsafe extern "C" fn(ur_adapter_handle_t, u32, *mut ur_platform_handle_t, *mut u32) -> ur_result_t,
            urPlatformGetInfo: Query<ur_platform_handle_t, ur_platform_info_t>,
            urPlatformGetApiVersion: unsafe extern "C" fn(ur_platform_handle_t, *mut ur_api_version_t) -> ur_result_t,
            urDeviceGet: Devices,
            urDeviceGetSelected: Devices,
            urDeviceGetInfo: Query<ur_device_handle_t, ur_device_info_t>,
            urDeviceRelease: unsafe extern "C" fn(ur_device_handle_t) -> ur_result_t,
        }
        optional {}
    }
}

type Query<H, P> = unsafe extern "C" fn(H, P, usize, *mut c_void, *mut usize) -> ur_result_t;
type Devices = unsafe extern "C" fn(
    ur_platform_handle_t,
    ur_device_type_t,
    u32,
    *mut ur_device_handle_t,
    *mut u32,
) -> ur_result_t;

/// Maximum size of a property. A driver that returns a larger one is faulty.
const MAX_PROPERTY_BYTES: usize = 1 << 24;
/// Maximum number of adapters, platforms or devices.
const MAX_HANDLES: u32 = 1 << 16;

/// The result of a query.
pub type Answer<T> = Result<T, ur_result_t>;

/// An initialised loader; torn down on drop.
pub struct Loader {
    functions: Functions,
}

impl Loader {
    /// Opens and initialises a loader library.
    pub fn open(path: &std::path::Path) -> Result<Loader, String> {
        let library = Library::open(path, Binding::Usual).map_err(|error| error.to_string())?;
        let functions =
            Functions::from_library(library).map_err(|error: LoadError| error.to_string())?;
        // SAFETY: a null configuration is allowed.
        match unsafe { (functions.urLoaderInit)(ur_device_init_flags_t(0), null_mut()) } {
            UR_RESULT_SUCCESS => Ok(Loader { functions }),
            error => Err(format!("urLoaderInit: {error:?}")),
        }
    }

    /// The loader's adapters.
    pub fn adapters(&self) -> Answer<Vec<Adapter<'_>>> {
        // SAFETY: `list` passes an array of `room` handles and a writable count.
        let handles = list(|room, first, count| unsafe {
            (self.functions.urAdapterGet)(room, first, count)
        })?;
        let wrap = |handle| Adapter {
            handle,
            loader: self,
        };
        Ok(handles.into_iter().map(wrap).collect())
    }

    /// A property of a loader configuration, such as the loader's layers.
    pub fn info(&self, property: u32) -> Answer<Vec<u8>> {
        let mut config = null_mut();
        // SAFETY: the output is a local variable.
        check(unsafe { (self.functions.urLoaderConfigCreate)(&mut config) })?;
        let property = ur_loader_config_info_t(property);
        // SAFETY: the configuration is live, and `bytes` passes a buffer of `size` bytes.
        let answer = bytes(|size, value, needed| unsafe {
            (self.functions.urLoaderConfigGetInfo)(config, property, size, value, needed)
        });
        // SAFETY: the configuration is live and not used after.
        unsafe { (self.functions.urLoaderConfigRelease)(config) };
        answer
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // SAFETY: this program has one thread, and all wrappers of handles borrow the loader.
        unsafe { (self.functions.urLoaderTearDown)() };
    }
}

/// An adapter, released on drop.
pub struct Adapter<'a> {
    handle: ur_adapter_handle_t,
    loader: &'a Loader,
}

impl Adapter<'_> {
    /// A property's bytes.
    pub fn info(&self, property: u32) -> Answer<Vec<u8>> {
        let property = ur_adapter_info_t(property);
        // SAFETY: the adapter is live, and `bytes` passes a buffer of `size` bytes.
        bytes(|size, value, needed| unsafe {
            (self.loader.functions.urAdapterGetInfo)(self.handle, property, size, value, needed)
        })
    }

    /// The adapter's platforms.
    pub fn platforms(&self) -> Answer<Vec<Platform<'_>>> {
        // SAFETY: the adapter is live, and `list` passes an array of `room` handles.
        let handles = list(|room, first, count| unsafe {
            (self.loader.functions.urPlatformGet)(self.handle, room, first, count)
        })?;
        let wrap = |handle| Platform {
            handle,
            loader: self.loader,
        };
        Ok(handles.into_iter().map(wrap).collect())
    }
}

impl Drop for Adapter<'_> {
    fn drop(&mut self) {
        // SAFETY: the adapter is live, and its platforms borrow it.
        unsafe { (self.loader.functions.urAdapterRelease)(self.handle) };
    }
}

/// A platform, which lives as long as its adapter.
pub struct Platform<'a> {
    handle: ur_platform_handle_t,
    loader: &'a Loader,
}

impl<'a> Platform<'a> {
    /// A property's bytes.
    pub fn info(&self, property: u32) -> Answer<Vec<u8>> {
        let property = ur_platform_info_t(property);
        // SAFETY: the platform is live, and `bytes` passes a buffer of `size` bytes.
        bytes(|size, value, needed| unsafe {
            (self.loader.functions.urPlatformGetInfo)(self.handle, property, size, value, needed)
        })
    }

    /// The version of the interface that the platform implements.
    pub fn api_version(&self) -> Answer<ur_api_version_t> {
        let mut version = ur_api_version_t::default();
        // SAFETY: the platform is live, and the output is a local variable.
        check(unsafe {
            (self.loader.functions.urPlatformGetApiVersion)(self.handle, &mut version)
        })?;
        Ok(version)
    }

    /// All root devices, in the order of their numbers.
    pub fn devices(&self) -> Answer<Vec<Device<'a>>> {
        self.listed(self.loader.functions.urDeviceGet)
    }

    /// The devices that ONEAPI_DEVICE_SELECTOR selects.
    pub fn selected(&self) -> Answer<Vec<Device<'a>>> {
        self.listed(self.loader.functions.urDeviceGetSelected)
    }

    fn listed(&self, get: Devices) -> Answer<Vec<Device<'a>>> {
        // SAFETY: the platform is live, and `list` passes an array of `room` handles.
        let handles = match list(|room, first, count| unsafe {
            get(self.handle, UR_DEVICE_TYPE_ALL, room, first, count)
        }) {
            // Some adapters return this for a platform without devices.
            Err(UR_RESULT_ERROR_DEVICE_NOT_FOUND) => Vec::new(),
            handles => handles?,
        };
        let wrap = |handle| Device {
            handle,
            loader: self.loader,
        };
        Ok(handles.into_iter().map(wrap).collect())
    }
}

/// A device, released on drop.
pub struct Device<'a> {
    handle: ur_device_handle_t,
    loader: &'a Loader,
}

impl Device<'_> {
    /// A property's bytes.
    pub fn info(&self, property: u32) -> Answer<Vec<u8>> {
        let property = ur_device_info_t(property);
        // SAFETY: the device is live, and `bytes` passes a buffer of `size` bytes.
        bytes(|size, value, needed| unsafe {
            (self.loader.functions.urDeviceGetInfo)(self.handle, property, size, value, needed)
        })
    }

    /// Whether both have one handle.
    pub fn is_same(&self, other: &Device) -> bool {
        self.handle == other.handle
    }
}

impl Drop for Device<'_> {
    fn drop(&mut self) {
        // SAFETY: the device is live and not used after.
        unsafe { (self.loader.functions.urDeviceRelease)(self.handle) };
    }
}

fn check(result: ur_result_t) -> Answer<()> {
    match result {
        UR_RESULT_SUCCESS => Ok(()),
        error => Err(error),
    }
}

/// Queries a count, then that many handles. One call never queries both, since Intel's loader
/// refuses that.
fn list<H>(call: impl Fn(u32, *mut *mut H, *mut u32) -> ur_result_t) -> Answer<Vec<*mut H>> {
    let mut count = 0;
    check(call(0, null_mut(), &mut count))?;
    let count = count.min(MAX_HANDLES);
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut handles = vec![null_mut(); count as usize];
    check(call(count, handles.as_mut_ptr(), null_mut()))?;
    handles.retain(|handle| !handle.is_null());
    Ok(handles)
}

/// Queries a size, then that many bytes. `INVALID_SIZE` above [`MAX_PROPERTY_BYTES`].
fn bytes(call: impl Fn(usize, *mut c_void, *mut usize) -> ur_result_t) -> Answer<Vec<u8>> {
    let mut size = 0;
    check(call(0, null_mut(), &mut size))?;
    if size > MAX_PROPERTY_BYTES {
        return Err(UR_RESULT_ERROR_INVALID_SIZE);
    }
    // An array of words, so that the driver's value is aligned.
    let mut words = vec![0_u64; size.div_ceil(size_of::<u64>())];
    if size > 0 {
        check(call(size, words.as_mut_ptr().cast(), null_mut()))?;
    }
    let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
    Ok(bytes.take(size).collect())
}

/// Removes ONEAPI_DEVICE_SELECTOR from the environment, from which the loader reads it by `getenv`.
pub fn unset_selector() {
    // SAFETY: `main` calls this while the process has one thread, before it opens the loader.
    unsafe { std::env::remove_var(SELECTOR) };
}

pub const SELECTOR: &str = "ONEAPI_DEVICE_SELECTOR";

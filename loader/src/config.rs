//! `ur_loader_config_handle_t`: options that an application sets before `urLoaderInit`.
//!
//! Owns the seven `urLoaderConfig*` functions and their object. It may use `abi` and the layers'
//! names. It must never know the loader's state.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ur::abi::*;
use ur::object::{Error, InfoOut, Result};

use crate::entry::versioned;
use crate::layers::{self, CodeLocation};

/// The object behind a handle. Only the loader's own functions take it, so that it has no table
/// pointer.
struct Config {
    references: AtomicU32,
    settings: Mutex<Settings>,
}

/// The options of a configuration.
#[derive(Clone, Default)]
pub struct Settings {
    /// Names of layers, in the order in which they were enabled.
    pub layers: Vec<String>,
    pub code_location: Option<CodeLocation>,
    /// Whether the mock adapter replaces the real ones.
    pub mocking: bool,
}

impl Config {
    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A copy of the settings of `handle`; the defaults for a null handle.
///
/// # Safety
/// `handle` is null or a live configuration.
pub unsafe fn settings_of(handle: ur_loader_config_handle_t) -> Settings {
    // SAFETY: the caller guarantees a null or live configuration.
    let config = unsafe { borrow(handle) };
    config.map_or_else(|_| Settings::default(), |config| config.settings().clone())
}

/// # Safety
/// `handle` is null or a live configuration, which outlives the borrow.
unsafe fn borrow<'a>(handle: ur_loader_config_handle_t) -> Result<&'a Config> {
    // SAFETY: `urLoaderConfigCreate` made every handle but null, and the caller guarantees that it
    // is live.
    unsafe { handle.cast::<Config>().as_ref() }
        .ok_or(Error::new(UR_RESULT_ERROR_INVALID_NULL_HANDLE))
}

versioned! {
    /// Creates a configuration with one reference. `INVALID_NULL_POINTER` without an output.
    ///
    /// # Safety
    /// The pointer is null or writable.
    fn urLoaderConfigCreate(phLoaderConfig: *mut ur_loader_config_handle_t) {
        if phLoaderConfig.is_null() {
            return Err(Error::new(UR_RESULT_ERROR_INVALID_NULL_POINTER));
        }
        let config = Config { references: AtomicU32::new(1), settings: Mutex::default() };
        // SAFETY: not null, and the caller guarantees that it is writable.
        unsafe { phLoaderConfig.write(Box::into_raw(Box::new(config)).cast()) };
        Ok(())
    }

    /// Adds a reference. `INVALID_NULL_HANDLE` for a null handle.
    ///
    /// # Safety
    /// The handle is null or live.
    fn urLoaderConfigRetain(hLoaderConfig: ur_loader_config_handle_t) {
        // SAFETY: the caller guarantees a null or live configuration.
        let config = unsafe { borrow(hLoaderConfig) }?;
        config.references.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Releases a reference; the last one frees the configuration. `INVALID_NULL_HANDLE` for a null
    /// handle.
    ///
    /// # Safety
    /// The handle is null or live, and dead after its last release.
    fn urLoaderConfigRelease(hLoaderConfig: ur_loader_config_handle_t) {
        // SAFETY: the caller guarantees a null or live configuration.
        let config = unsafe { borrow(hLoaderConfig) }?;
        if config.references.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: this was the last reference, and `urLoaderConfigCreate` boxed it.
            drop(unsafe { Box::from_raw(hLoaderConfig.cast::<Config>()) });
        }
        Ok(())
    }

    /// Writes the names of all layers, separated by semicolons, or the reference count.
    ///
    /// A value buffer may be larger than the value. Errors: `INVALID_NULL_HANDLE`,
    /// `INVALID_NULL_POINTER` without an output, `INVALID_SIZE` for a short buffer,
    /// `INVALID_ENUMERATION`.
    ///
    /// # Safety
    /// The handle is null or live; the value is null or has `propSize` writable bytes; the size is
    /// null or writable.
    fn urLoaderConfigGetInfo(
        hLoaderConfig: ur_loader_config_handle_t,
        propName: ur_loader_config_info_t,
        propSize: usize,
        pPropValue: *mut c_void,
        pPropSizeRet: *mut usize,
    ) {
        // SAFETY: the caller guarantees a null or live configuration.
        let config = unsafe { borrow(hLoaderConfig) }?;
        if pPropValue.is_null() && (propSize != 0 || pPropSizeRet.is_null()) {
            return Err(Error::new(UR_RESULT_ERROR_INVALID_NULL_POINTER));
        }
        // SAFETY: the caller guarantees `propSize` writable bytes or null, and a writable size or
        // null.
        let out = unsafe { InfoOut::new(Some(propSize), pPropValue, pPropSizeRet) };
        match propName {
            UR_LOADER_CONFIG_INFO_AVAILABLE_LAYERS => out.string(&layers::names().join(";")),
            UR_LOADER_CONFIG_INFO_REFERENCE_COUNT => {
                out.value(config.references.load(Ordering::Relaxed))
            }
            _ => Err(Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION)),
        }
    }

    /// Enables a layer by its exact name. `LAYER_NOT_PRESENT` if the loader does not have it.
    ///
    /// # Safety
    /// The handle is null or live; the name is null or a C string.
    fn urLoaderConfigEnableLayer(
        hLoaderConfig: ur_loader_config_handle_t,
        pLayerName: *const c_char,
    ) {
        // SAFETY: the caller guarantees a null or live configuration.
        let config = unsafe { borrow(hLoaderConfig) }?;
        if pLayerName.is_null() {
            return Err(Error::new(UR_RESULT_ERROR_INVALID_NULL_POINTER));
        }
        // SAFETY: not null, and the caller guarantees a C string.
        let name = unsafe { CStr::from_ptr(pLayerName) }.to_str();
        let name = name.ok().filter(|name| layers::is_known(name));
        let name = name.ok_or(UR_RESULT_ERROR_LAYER_NOT_PRESENT)?;
        config.settings().layers.push(name.to_owned());
        Ok(())
    }

    /// Sets the callback that returns the source location of a call, for the tracing layer.
    ///
    /// # Safety
    /// The handle is null or live; the callback may be called from any thread.
    fn urLoaderConfigSetCodeLocationCallback(
        hLoaderConfig: ur_loader_config_handle_t,
        pfnCodeloc: ur_code_location_callback_t,
        pUserData: *mut c_void,
    ) {
        // SAFETY: the caller guarantees a null or live configuration.
        let config = unsafe { borrow(hLoaderConfig) }?;
        let callback = pfnCodeloc.ok_or(UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
        let location = CodeLocation { callback, user_data: pUserData };
        config.settings().code_location = Some(location);
        Ok(())
    }

    /// Enables or disables mocking: the next `urLoaderInit` with this configuration loads the mock
    /// adapter only.
    ///
    /// # Safety
    /// The handle is null or live.
    fn urLoaderConfigSetMockingEnabled(
        hLoaderConfig: ur_loader_config_handle_t,
        enable: ur_bool_t,
    ) {
        // SAFETY: the caller guarantees a null or live configuration.
        let config = unsafe { borrow(hLoaderConfig) }?;
        config.settings().mocking = enable != 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! Answers about the adapter, its platform, its device and the device's pools.

use std::ffi::c_void;
use std::sync::Arc;

use ur::abi::*;
use ur::hal;
use ur::object::{Kind, ListOut, Result, ensure, last_error};

use crate::control;
use crate::make;
use crate::objects::{self, Handle, MockBody, Origin, roots};
use crate::script;

pub fn adapter_get(p: &ur_adapter_get_params_t) -> Result<()> {
    ensure(!script::is_broken(), UR_RESULT_ERROR_INVALID_VALUE)?;
    // SAFETY: the caller's arguments meet the specification's contract.
    let out = unsafe { list(*p.pNumEntries, (*p.pphAdapters).cast(), *p.ppNumAdapters) };
    out.write(std::slice::from_ref(&roots().adapter));
    Ok(())
}

pub fn adapter_get_last_error(p: &ur_adapter_get_last_error_params_t) -> Result<()> {
    let (code, message) = last_error();
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        make::value(*p.pppMessage, message);
        make::value(*p.ppError, code);
    }
    Ok(())
}

pub fn adapter_set_logger_callback(p: &ur_adapter_set_logger_callback_params_t) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    let (callback, user_data, level) = unsafe { (*p.ppfnLoggerCallback, *p.ppUserData, *p.plevel) };
    // SAFETY: the caller guarantees that any thread may call the callback with this pointer.
    unsafe { hal::set_logger(callback, user_data) };
    hal::set_logger_level(level);
    Ok(())
}

pub fn adapter_set_logger_callback_level(
    p: &ur_adapter_set_logger_callback_level_params_t,
) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    hal::set_logger_level(unsafe { *p.plevel });
    Ok(())
}

pub fn platform_get(p: &ur_platform_get_params_t) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract.
    let out = unsafe { list(*p.pNumEntries, (*p.pphPlatforms).cast(), *p.ppNumPlatforms) };
    out.write(std::slice::from_ref(&roots().platform));
    Ok(())
}

pub fn platform_get_api_version(p: &ur_platform_get_api_version_params_t) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe { make::value(*p.ppVersion, UR_API_VERSION_CURRENT) };
    Ok(())
}

/// The native handle is the address of the mock's own interface.
pub fn platform_get_native_handle(p: &ur_platform_get_native_handle_params_t) -> Result<()> {
    let api = (&raw const control::API).expose_provenance();
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe { make::value(*p.pphNativePlatform, api) };
    Ok(())
}

pub fn platform_get_backend_option(p: &ur_platform_get_backend_option_params_t) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe { make::value(*p.pppPlatformOption, c"".as_ptr()) };
    Ok(())
}

/// The device is of every requested type, since a script may set its type.
pub fn device_get(p: &ur_device_get_params_t) -> Result<()> {
    // SAFETY: the caller's arguments meet the specification's contract.
    let out = unsafe { list(*p.pNumEntries, (*p.pphDevices).cast(), *p.ppNumDevices) };
    out.write(std::slice::from_ref(&roots().device));
    Ok(())
}

/// Every partition has two parts.
pub fn device_partition(p: &ur_device_partition_params_t) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    let parent = unsafe { *p.phDevice };
    let origin = Origin::default().with(parent, Kind::Device);
    // SAFETY: the caller's arguments meet the specification's contract.
    let out = unsafe {
        list(
            *p.pNumDevices,
            (*p.pphSubDevices).cast(),
            *p.ppNumDevicesRet,
        )
    };
    let halves = [(); 2].map(|()| objects::create(Kind::Device, origin.clone()));
    out.write(&halves);
    Ok(())
}

pub fn device_get_global_timestamps(p: &ur_device_get_global_timestamps_params_t) -> Result<()> {
    let now = objects::now();
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe {
        make::value(*p.ppDeviceTimestamp, now);
        make::value(*p.ppHostTimestamp, now);
    }
    Ok(())
}

/// A list output.
///
/// # Safety
/// `to` is null or has room for `room` handles; `total` is null or writable.
unsafe fn list<'a>(room: u32, to: *mut *mut c_void, total: *mut u32) -> ListOut<'a, MockBody> {
    // SAFETY: the caller guarantees both outputs.
    unsafe { ListOut::new(room, to, total) }
}

pub fn usm_pool_get_default_device_pool_exp(
    p: &ur_usm_pool_get_default_device_pool_exp_params_t,
) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    let device = objects::known(unsafe { *p.phDevice }, Kind::Device)?;
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe { make::lent(*p.ppPool, Some(&default_pool(&device))) };
    Ok(())
}

pub fn usm_pool_get_device_pool_exp(p: &ur_usm_pool_get_device_pool_exp_params_t) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    let device = objects::known(unsafe { *p.phDevice }, Kind::Device)?;
    let pool = device.link("pool").unwrap_or_else(|| default_pool(&device));
    // SAFETY: the caller's arguments meet the specification's contract.
    unsafe { make::lent(*p.ppPool, Some(&pool)) };
    Ok(())
}

pub fn usm_pool_set_device_pool_exp(p: &ur_usm_pool_set_device_pool_exp_params_t) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    let (device, pool) = unsafe { (*p.phDevice, *p.phPool) };
    let device = objects::known(device, Kind::Device)?;
    let pool = objects::known(pool, Kind::UsmPool)?;
    device.set_link("pool", Some(pool));
    Ok(())
}

/// A device's default pool, which lives as long as the device.
fn default_pool(device: &Handle) -> Arc<Handle> {
    device.link_or("default pool", || {
        objects::create(Kind::UsmPool, Origin::default())
    })
}

pub fn usm_pool_set_info_exp(p: &ur_usm_pool_set_info_exp_params_t) -> Result<()> {
    // SAFETY: `p` points to the call's arguments.
    let (pool, name, value, size) =
        unsafe { (*p.phPool, *p.ppropName, *p.ppPropValue, *p.ppropSize) };
    let property = crate::info::property(ur_usm_pool_info_t::PROPERTIES, name.0)?;
    let pool = objects::known(pool, Kind::UsmPool)?;
    if value.is_null() || size != size_of::<usize>() {
        // A query has no value to return.
        return Ok(());
    }
    // SAFETY: not null, and the caller guarantees a value of that size.
    let value = unsafe { value.cast::<usize>().read_unaligned() };
    pool.store(property.name, &value.to_ne_bytes());
    Ok(())
}

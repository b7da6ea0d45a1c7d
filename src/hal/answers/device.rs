//! Devices and their platform: which of them it lists, which options it has, which binary suits one, clocks, and
//! peer access.

use crate::abi::*;
use crate::hal::PeerInfo;
use crate::object::{Body, Error, InfoOut, ListOut, Object, Out, Result, host_time};
use std::ffi::{CStr, c_char};
use std::sync::Arc;

/// `urDeviceGet` of a platform whose devices `all` have the type `own`: the first is the default.
pub fn list_devices<T: Body>(
    all: &[Arc<Object<T>>],
    own: ur_device_type_t,
    wanted: ur_device_type_t,
    out: ListOut<'_, T>,
) -> Result<()> {
    out.write(match wanted {
        UR_DEVICE_TYPE_ALL => all,
        UR_DEVICE_TYPE_DEFAULT => &all[..all.len().min(1)],
        wanted if wanted == own => all,
        _ => &[],
    });
    Ok(())
}

/// `urPlatformGetBackendOption` of a backend whose code is compiled elsewhere: optimisation levels translate to nothing.
/// `INVALID_VALUE` for any other option.
pub fn no_compiler_option(option: &CStr) -> Result<*const c_char> {
    match option.to_bytes() {
        b"" | b"-O0" | b"-O1" | b"-O2" | b"-O3" => Ok(c"".as_ptr()),
        _ => Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE)),
    }
}

/// `urDeviceSelectBinary`: index of the first binary for this target. `INVALID_BINARY` if there is none.
pub fn binary_for(binaries: &[ur_device_binary_t], target: &CStr) -> Result<u32> {
    let suits = |binary: &ur_device_binary_t| {
        let spec = binary.pDeviceTargetSpec;
        // SAFETY: the caller passes null or a C string.
        !spec.is_null() && unsafe { CStr::from_ptr(spec) } == target
    };
    let found = binaries.iter().position(suits);
    found.map_or_else(no_binary, |at| Ok(at as u32))
}

/// `urDeviceSelectBinary` of a device without programs, which no binary suits.
pub fn no_binary() -> Result<u32> {
    Err(Error::new(UR_RESULT_ERROR_INVALID_BINARY))
}

/// `urDeviceGetGlobalTimestamps` of a backend that reads the two clocks one after the other. `now` is the device's
/// time in nanoseconds.
pub fn global_timestamps(
    device: Out<'_, u64>,
    host: Out<'_, u64>,
    now: impl FnOnce() -> Result<u64>,
) -> Result<()> {
    if device.wanted() {
        device.set(now()?);
    }
    host.set(host_time());
    Ok(())
}

/// `urUsmP2PPeerAccessGetInfoExp` of a device that reaches no other device's memory.
pub fn no_peer_access(what: PeerInfo, out: InfoOut<'_>) -> Result<()> {
    match what {
        PeerInfo::UrPeerAccessSupport | PeerInfo::UrPeerAtomicsSupport => out.value(0i32),
    }
}

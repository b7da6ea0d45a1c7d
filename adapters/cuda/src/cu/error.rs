//! The table that converts the driver's error codes.

use std::ffi::CStr;
use std::hint::cold_path;
use std::ptr::null;

use cudarc::driver::sys::{CUdevice, CUpointer_attribute, CUresult as Known};
use ur::abi::*;
use ur::object::{Error, Result};

use super::{Api, Code};

/// The result code for each native code. Native codes are numbers, since newer drivers have unknown ones.
#[rustfmt::skip]
const TABLE: &[(Known, ur_result_t)] = &[
    (Known::CUDA_ERROR_INVALID_VALUE, UR_RESULT_ERROR_INVALID_VALUE),
    (Known::CUDA_ERROR_OUT_OF_MEMORY, UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY),
    (Known::CUDA_ERROR_NOT_INITIALIZED, UR_RESULT_ERROR_UNINITIALIZED),
    (Known::CUDA_ERROR_DEINITIALIZED, UR_RESULT_ERROR_UNINITIALIZED),
    (Known::CUDA_ERROR_NO_DEVICE, UR_RESULT_ERROR_DEVICE_NOT_FOUND),
    (Known::CUDA_ERROR_INVALID_DEVICE, UR_RESULT_ERROR_INVALID_DEVICE),
    (Known::CUDA_ERROR_DEVICE_UNAVAILABLE, UR_RESULT_ERROR_DEVICE_NOT_AVAILABLE),
    (Known::CUDA_ERROR_INVALID_IMAGE, UR_RESULT_ERROR_INVALID_BINARY),
    (Known::CUDA_ERROR_INVALID_CONTEXT, UR_RESULT_ERROR_INVALID_CONTEXT),
    (Known::CUDA_ERROR_NO_BINARY_FOR_GPU, UR_RESULT_ERROR_INVALID_BINARY),
    (Known::CUDA_ERROR_INVALID_PTX, UR_RESULT_ERROR_INVALID_BINARY),
    (Known::CUDA_ERROR_UNSUPPORTED_PTX_VERSION, UR_RESULT_ERROR_INVALID_BINARY),
    (Known::CUDA_ERROR_INVALID_SOURCE, UR_RESULT_ERROR_INVALID_BINARY),
    (Known::CUDA_ERROR_JIT_COMPILER_NOT_FOUND, UR_RESULT_ERROR_COMPILER_NOT_AVAILABLE),
    (Known::CUDA_ERROR_INVALID_HANDLE, UR_RESULT_ERROR_INVALID_VALUE),
    (Known::CUDA_ERROR_NOT_FOUND, UR_RESULT_ERROR_INVALID_VALUE),
    (Known::CUDA_ERROR_NOT_SUPPORTED, UR_RESULT_ERROR_UNSUPPORTED_FEATURE),
    (Known::CUDA_ERROR_NOT_PERMITTED, UR_RESULT_ERROR_INVALID_OPERATION),
    (Known::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, UR_RESULT_ERROR_OUT_OF_RESOURCES),
    (Known::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, UR_RESULT_ERROR_OUT_OF_RESOURCES),
    (Known::CUDA_ERROR_INVALID_CLUSTER_SIZE, UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE),
    (Known::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, UR_RESULT_ERROR_UNSUPPORTED_FEATURE),
    (Known::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, UR_RESULT_ERROR_INVALID_OPERATION),
    (Known::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, UR_RESULT_ERROR_INVALID_VALUE),
    (Known::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, UR_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED),
    (Known::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, UR_RESULT_ERROR_GRAPH_CAPTURE_INVALIDATED),
    (Known::CUDA_ERROR_STREAM_CAPTURE_MERGE, UR_RESULT_ERROR_GRAPH_CAPTURE_MERGE_ATTEMPT),
    (Known::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, UR_RESULT_ERROR_COMMAND_LIST_NOT_CAPTURING),
    (Known::CUDA_ERROR_STREAM_CAPTURE_UNJOINED, UR_RESULT_ERROR_GRAPH_UNJOINED_FORKS),
    (Known::CUDA_ERROR_STREAM_CAPTURE_ISOLATION, UR_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED),
    (Known::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, UR_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED),
    (Known::CUDA_ERROR_CAPTURED_EVENT, UR_RESULT_ERROR_GRAPH_INTERNAL_EVENT),
    (Known::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, UR_RESULT_ERROR_INVALID_OPERATION),
    // After these, every later call on the device fails.
    (Known::CUDA_ERROR_ECC_UNCORRECTABLE, UR_RESULT_ERROR_DEVICE_LOST),
    (Known::CUDA_ERROR_HARDWARE_STACK_ERROR, UR_RESULT_ERROR_DEVICE_LOST),
    (Known::CUDA_ERROR_NVLINK_UNCORRECTABLE, UR_RESULT_ERROR_DEVICE_LOST),
    (Known::CUDA_ERROR_ILLEGAL_ADDRESS, UR_RESULT_ERROR_DEVICE_LOST),
    (Known::CUDA_ERROR_LAUNCH_TIMEOUT, UR_RESULT_ERROR_DEVICE_LOST),
    (Known::CUDA_ERROR_CONTEXT_IS_DESTROYED, UR_RESULT_ERROR_DEVICE_LOST),
    (Known::CUDA_ERROR_ASSERT, UR_RESULT_ERROR_DEVICE_LOST),
    (Known::CUDA_ERROR_ILLEGAL_INSTRUCTION, UR_RESULT_ERROR_DEVICE_LOST),
    (Known::CUDA_ERROR_MISALIGNED_ADDRESS, UR_RESULT_ERROR_DEVICE_LOST),
    (Known::CUDA_ERROR_INVALID_ADDRESS_SPACE, UR_RESULT_ERROR_DEVICE_LOST),
    (Known::CUDA_ERROR_INVALID_PC, UR_RESULT_ERROR_DEVICE_LOST),
    (Known::CUDA_ERROR_LAUNCH_FAILED, UR_RESULT_ERROR_DEVICE_LOST),
    (Known::CUDA_ERROR_EXTERNAL_DEVICE, UR_RESULT_ERROR_DEVICE_LOST),
    (Known::CUDA_ERROR_SYSTEM_NOT_READY, UR_RESULT_ERROR_DEVICE_NOT_AVAILABLE),
    (Known::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, UR_RESULT_ERROR_DEVICE_NOT_AVAILABLE),
];

fn result(code: Code) -> ur_result_t {
    let known = TABLE.iter().find(|(known, _)| *known as u32 == code.0);
    known.map_or(UR_RESULT_ERROR_UNKNOWN, |(_, result)| *result)
}

impl Api {
    /// The driver's name of a code.
    fn name(&self, code: Code) -> String {
        let mut name = null();
        // SAFETY: `name` is writable.
        let attribute = unsafe { (self.cuGetErrorName)(code, &mut name) };
        match attribute.is_success() && !name.is_null() {
            // SAFETY: the driver returned a static C string.
            true => unsafe { CStr::from_ptr(name) }
                .to_string_lossy()
                .into_owned(),
            false => format!("code {}", code.0),
        }
    }
}

/// The error of a failed call. Its code and name are stored for `urAdapterGetLastError`.
#[cold]
pub fn failure(api: &Api, code: Code, call: &str) -> Error {
    let message = format!("{call}: {}", api.name(code));
    log::debug!("{message}");
    Error::native(result(code), code.0.cast_signed(), &message)
}

/// The error of a failed call on a device with these addresses. Memory of another device, which this one
/// does not reach, is `UNSUPPORTED_FEATURE`. All else is as in [`failure`].
#[cold]
pub fn failure_at(api: &Api, code: Code, call: &str, device: CUdevice, addrs: &[usize]) -> Error {
    let elsewhere = |addr: &usize| home(api, *addr).is_some_and(|home| home != device);
    if code != Code::INVALID_VALUE || !addrs.iter().any(elsewhere) {
        return failure(api, code, call);
    }
    let message = format!("{call}: memory of another device");
    log::debug!("{message}");
    let code = code.0.cast_signed();
    Error::native(UR_RESULT_ERROR_UNSUPPORTED_FEATURE, code, &message)
}

/// The device that owns the memory at an address. None if the driver knows of no device memory there, or of
/// managed memory.
pub fn home(api: &Api, addr: usize) -> Option<CUdevice> {
    use CUpointer_attribute::*;
    /// `CU_MEMORYTYPE_DEVICE`
    const OF_DEVICE: i32 = 2;
    let query = api.cuPointerGetAttribute?;
    let attribute = |what| {
        let mut value = 0_i32;
        // SAFETY: both attributes are numbers of this size, and `value` is writable.
        let code = unsafe { query((&raw mut value).cast(), what, addr as u64) };
        code.is_success().then_some(value)
    };
    let of_device = attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE)? == OF_DEVICE;
    // Managed memory has a device, too, but every device reaches it.
    let is_own = attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED) != Some(1);
    let home = attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)?;
    (of_device && is_own).then_some(home)
}

#[inline(always)]
pub fn check(api: &Api, code: Code, call: &str) -> Result<()> {
    match code.is_success() {
        true => Ok(()),
        false => {
            cold_path();
            Err(failure(api, code, call))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_nobody_knows_are_values() {
        assert_eq!(result(Code(2)), UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
        assert_eq!(result(Code(700)), UR_RESULT_ERROR_DEVICE_LOST);
        assert_eq!(result(Code(123_456)), UR_RESULT_ERROR_UNKNOWN);
    }
}

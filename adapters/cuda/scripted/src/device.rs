//! The driver's initialisation, its devices, which are all alike, and contexts.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::driver::*;

const NAME: &[u8] = b"Scripted device\0";

/// Attributes by number. All others are 0.
const ATTRIBUTES: [(c_int, c_int); 60] = [
    (1, 1024),
    (2, 1024),
    (3, 1024),
    (4, 64),
    (5, i32::MAX),
    (6, 65_535),
    (7, 65_535),
    (8, 48 << 10),
    (9, 64 << 10),
    (10, 32),
    (12, 65_536),
    (14, 512),
    (16, 4),
    // The sizes of textures and surfaces.
    (21, 131_072),
    (22, 131_072),
    (23, 65_536),
    (24, 16_384),
    (25, 16_384),
    (26, 16_384),
    (27, 32_768),
    (28, 32_768),
    (29, 2_048),
    (30, 512),
    (37, 256),
    (38, 4 << 20),
    (42, 32_768),
    (43, 2_048),
    (51, 32),
    (52, 32_768),
    (55, 32_768),
    (56, 131_072),
    (57, 65_536),
    (58, 16_384),
    (59, 16_384),
    (60, 16_384),
    (61, 32_768),
    (62, 2_048),
    (63, 32_768),
    (64, 32_768),
    (65, 2_048),
    (66, 32_768),
    (69, 1 << 28),
    (70, 131_072),
    (71, 65_000),
    (72, 2_097_120),
    (73, 32_768),
    (74, 32_768),
    (75, 9),
    (77, 131_072),
    (83, 1),
    (89, 1),
    (91, 1),
    (92, 1),
    (94, 1),
    (95, 1),
    (97, 96 << 10),
    (102, 1),
    (103, 1),
    (115, 1),
    (125, 1),
];

/// `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`.
const VIRTUAL_MEMORY: c_int = 102;

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_: c_uint) -> u32 {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> u32 {
    // SAFETY: room for a number, as for all outputs here.
    unsafe { version.write(13_000) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: u32, name: *mut *const c_char) -> u32 {
    match code {
        OUT_OF_MEMORY => {
            // SAFETY: room for a pointer.
            unsafe { name.write(c"CUDA_ERROR_OUT_OF_MEMORY".as_ptr()) };
            SUCCESS
        }
        _ => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> u32 {
    // SAFETY: room for a pointer.
    unsafe { count.write(1 + hold().more_devices as c_int) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, number: c_int) -> u32 {
    // SAFETY: room for a pointer.
    unsafe { device.write(number) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, capacity: c_int, _: c_int) -> u32 {
    let bytes = NAME.len().min(capacity.max(0) as usize);
    // SAFETY: the output has room for the given number of bytes.
    unsafe { std::ptr::copy_nonoverlapping(NAME.as_ptr().cast(), name, bytes) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, what: c_int, _: c_int) -> u32 {
    let paged = what != VIRTUAL_MEMORY || !hold().without_pages;
    let mut all = ATTRIBUTES.iter().filter(|_| paged);
    let found = all.find(|(number, _)| *number == what);
    // SAFETY: the driver's interface promises room for each output.
    unsafe { value.write(found.map_or(0, |(_, value)| *value)) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, _: c_int) -> u32 {
    let memory = hold().memory.unwrap_or(MEMORY);
    // SAFETY: the driver's interface promises room for each output.
    unsafe { bytes.write(memory) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, all: *mut usize) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuMemGetInfo") {
        return code;
    }
    let memory = driver.memory.unwrap_or(MEMORY);
    // SAFETY: the driver's interface promises room for each output.
    unsafe {
        free.write(memory / 2);
        all.write(memory);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) -> u32 {
    let (mut driver, device) = (hold(), device as usize);
    if let Some(code) = driver.called("cuDevicePrimaryCtxRetain") {
        return code;
    }
    if device > driver.more_devices {
        return INVALID_VALUE;
    }
    driver.retained[device] += 1;
    // SAFETY: the driver's interface promises room for each output.
    unsafe { context.write(std::ptr::without_provenance_mut(context_of(device))) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> u32 {
    let mut driver = hold();
    let count = driver.retained.get_mut(device as usize);
    match count.filter(|count| **count > 0) {
        Some(count) => {
            *count -= 1;
            SUCCESS
        }
        None => code(driver.broken("a context released too often")),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut *mut c_void) -> u32 {
    if let Some(code) = hold().called("cuCtxGetCurrent") {
        return code;
    }
    // SAFETY: the driver's interface promises room for each output.
    unsafe { context.write(std::ptr::without_provenance_mut(current())) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxPushCurrent_v2(context: *mut c_void) -> u32 {
    if let Some(code) = hold().called("cuCtxPushCurrent") {
        return code;
    }
    CURRENT.with(|all| all.borrow_mut().push(context.addr()));
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> u32 {
    CURRENT.with(|all| {
        let mut all = all.borrow_mut();
        all.pop();
        if !context.is_null() {
            all.push(context.addr());
        }
    });
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut *mut c_void) -> u32 {
    let top = CURRENT.with(|all| all.borrow_mut().pop());
    // SAFETY: the driver's interface promises room for each output.
    unsafe { context.write(std::ptr::without_provenance_mut(top.unwrap_or(0))) };
    match top {
        Some(_) => SUCCESS,
        None => code(hold().broken("a context taken off that was not there")),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetStreamPriorityRange(low: *mut c_int, high: *mut c_int) -> u32 {
    if let Some(code) = hold().acts("cuCtxGetStreamPriorityRange") {
        return code;
    }
    // SAFETY: the driver's interface promises room for each output.
    unsafe {
        low.write(0);
        high.write(-5);
    }
    SUCCESS
}

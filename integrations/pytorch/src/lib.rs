//! PyTorch's memory from Unified Runtime's pools: a library for `torch.cuda.memory.CUDAPluggableAllocator`.
//!
//! Owns the functions that PyTorch calls. Every function may be called by several threads at once, never
//! unwinds, and leaves the caller's CUDA context current. What fails is written to the standard error, and
//! [`ur_pytorch_last_error`] returns its text. A consumer of the C interface: it knows no adapter.

mod api;
mod captures;
mod device;
mod failure;

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use ur::object::boundary;

use device::Devices;
pub use device::Stats;
use failure::{Failure, Result};

/// Runs a body whose failure is reported, and returns `fallback` then.
#[inline]
fn guarded<T>(what: impl Fn() -> String, fallback: T, body: impl FnOnce() -> Result<T>) -> T {
    let mut value = None;
    // Its result only says whether the body panicked, and then there is no value.
    boundary(|| {
        value = Some(body());
        Ok(())
    });
    match value {
        Some(Ok(value)) => value,
        Some(Err(error)) => {
            failure::report(&what(), &error);
            fallback
        }
        None => {
            failure::report(&what(), &Failure::Reason("it panicked".into()));
            fallback
        }
    }
}

/// Allocates memory in the order of a stream. A size of 0 gives null.
///
/// Returns null if the memory is not enough, after the pool was trimmed once, or if the device or the stream is
/// not CUDA's.
#[unsafe(no_mangle)]
pub extern "C" fn ur_pytorch_alloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    let what = || format!("{size} bytes on device {device}");
    guarded(what, null_mut(), || match usize::try_from(size) {
        Ok(0) => Ok(null_mut()),
        Ok(size) => Devices::get()?
            .device(device)?
            .alloc(stream.expose_provenance(), size),
        Err(_) => Err(Failure::Reason("a negative size".into())),
    })
}

/// Frees memory in the order of the stream that it was allocated on. Null is ignored.
///
/// The memory is used again after the work that this stream and all recorded ones have now.
#[unsafe(no_mangle)]
pub extern "C" fn ur_pytorch_free(
    memory: *mut c_void,
    _size: isize,
    device: c_int,
    stream: *mut c_void,
) {
    let what = || format!("a free on device {device}");
    guarded(what, (), || {
        if memory.is_null() {
            return Ok(());
        }
        let (devices, memory) = (Devices::get()?, memory.addr());
        let used_by = devices.take_recorded(memory);
        devices
            .device(device)?
            .free(memory, stream.expose_provenance(), used_by)
    });
}

/// Opens the loader. PyTorch passes the number of devices, which are opened by their first use.
#[unsafe(no_mangle)]
pub extern "C" fn ur_pytorch_init(_device_count: c_int) {
    guarded(|| "the loader".into(), (), || Devices::get().map(drop));
}

/// Returns free memory of all devices to the driver: `torch.cuda.empty_cache`.
#[unsafe(no_mangle)]
pub extern "C" fn ur_pytorch_reset() {
    let body = || Devices::get()?.opened().try_for_each(device::Device::trim);
    guarded(|| "a trim".into(), (), body);
}

/// Limits a device's pool to a part of the device's memory, before the device's first allocation.
#[unsafe(no_mangle)]
pub extern "C" fn ur_pytorch_memory_fraction(fraction: f64, device: c_int) {
    let what = || format!("a memory fraction of device {device}");
    guarded(what, (), || Devices::get()?.set_fraction(device, fraction));
}

/// The start of the allocation that has an address, and its bytes. Other memory is its own start.
///
/// # Safety
/// `size` is null or has room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ur_pytorch_base(memory: *mut c_void, size: *mut usize) -> *mut c_void {
    guarded(
        || "an address".into(),
        memory,
        || {
            let mut devices = Devices::get()?.opened();
            let found = devices.find_map(|device| device.allocation(memory.addr()));
            let (base, bytes) = found.unwrap_or((memory, 0));
            if !size.is_null() {
                // SAFETY: not null, so the caller guarantees room.
                unsafe { size.write(bytes) };
            }
            Ok(base)
        },
    )
}

/// Notes that a stream uses memory: its free comes after the work that the stream has at that time.
#[unsafe(no_mangle)]
pub extern "C" fn ur_pytorch_record_stream(memory: *mut c_void, stream: *mut c_void) {
    guarded(
        || "a recorded stream".into(),
        (),
        || {
            if !memory.is_null() {
                Devices::get()?.record(memory.addr(), stream.expose_provenance());
            }
            Ok(())
        },
    );
}

/// Begins allocations for the pool of a CUDA graph: those of streams under capture belong to the pool.
///
/// PyTorch's filter of streams is not called. It is a C++ object, passed by its address.
#[unsafe(no_mangle)]
pub extern "C" fn ur_pytorch_begin_pool(
    device: c_int,
    first: u64,
    second: u64,
    _filter: *const c_void,
) {
    let what = || format!("a capture on device {device}");
    guarded(what, (), || {
        Devices::get()?.device(device)?.begin_pool((first, second));
        Ok(())
    });
}

/// Ends allocations for a pool.
#[unsafe(no_mangle)]
pub extern "C" fn ur_pytorch_end_pool(device: c_int, first: u64, second: u64) {
    let what = || format!("the end of a capture on device {device}");
    guarded(what, (), || {
        Devices::get()?.device(device)?.end_pool((first, second))
    });
}

/// Ends one use of a pool. After the last one its memory is free for others.
#[unsafe(no_mangle)]
pub extern "C" fn ur_pytorch_release_pool(device: c_int, first: u64, second: u64) {
    let what = || format!("a pool of device {device}");
    guarded(what, (), || {
        Devices::get()?
            .device(device)?
            .release_pool((first, second))
    });
}

/// Writes the figures of a device's memory. Returns 0, or 1 if there are none.
///
/// # Safety
/// `stats` has room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ur_pytorch_stats(device: c_int, stats: *mut Stats) -> c_int {
    let what = || format!("figures of device {device}");
    guarded(what, 1, || {
        let found = Devices::get()?.device(device)?.stats()?;
        // SAFETY: the caller guarantees room.
        unsafe { stats.write(found) };
        Ok(0)
    })
}

/// Sets the highs of a device to the present values.
#[unsafe(no_mangle)]
pub extern "C" fn ur_pytorch_reset_highs(device: c_int) {
    let what = || format!("highs of device {device}");
    guarded(what, (), || Devices::get()?.device(device)?.reset_highs());
}

/// Writes all counters of a device's pool as one line of text, cut to the buffer and terminated with a NUL.
/// Returns the bytes of the whole line without the NUL.
///
/// # Safety
/// `buffer` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ur_pytorch_report(
    device: c_int,
    buffer: *mut c_char,
    size: usize,
) -> usize {
    let what = || format!("counters of device {device}");
    guarded(what, 0, || {
        let text = Devices::get()?.device(device)?.report()?;
        // SAFETY: the caller guarantees room for `size` bytes.
        Ok(unsafe { write_text(&text, buffer, size) })
    })
}

/// Writes the text of the last failure of any thread, cut to the buffer and terminated with a NUL. Returns the
/// bytes of the whole text without the NUL; 0 if nothing has failed.
///
/// # Safety
/// `buffer` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ur_pytorch_last_error(buffer: *mut c_char, size: usize) -> usize {
    // SAFETY: the caller guarantees room for `size` bytes.
    guarded(
        || "an error".into(),
        0,
        || Ok(unsafe { write_text(&failure::last(), buffer, size) }),
    )
}

/// Writes a text, cut to the buffer and terminated with a NUL. Returns the text's bytes.
///
/// # Safety
/// `buffer` has room for `size` bytes.
unsafe fn write_text(text: &str, buffer: *mut c_char, size: usize) -> usize {
    let Some(room) = size.checked_sub(1) else {
        return text.len();
    };
    let bytes = &text.as_bytes()[..text.len().min(room)];
    // SAFETY: at most `room` bytes and a NUL fit into `size` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len());
        buffer.add(bytes.len()).write(0);
    }
    text.len()
}

//! Commands on buffers and kernels.

use std::ffi::c_void;
use std::ptr;

use opencl_sys::*;

use crate::driver::{Answer, FakeDriver, Kind, code, enter};

/// The address of a range of a buffer.
fn range(driver: &mut FakeDriver, mem: cl_mem, offset: usize, bytes: usize) -> Answer<usize> {
    let mem = driver.get(Kind::Mem, mem.addr())?;
    match offset
        .checked_add(bytes)
        .is_some_and(|end| end <= mem.bytes)
    {
        true => Ok(mem.at + offset),
        false => Err(CL_INVALID_VALUE),
    }
}

/// Moves bytes when the command runs.
pub fn mover(dst: usize, src: usize, bytes: usize) -> impl FnOnce() + Send + 'static {
    // SAFETY: the caller of the enqueue function keeps both ranges until the command has run.
    move || unsafe { ptr::copy(src as *const u8, dst as *mut u8, bytes) }
}

/// Repeats a pattern when the command runs.
pub fn filler(dst: usize, pattern: Vec<u8>, bytes: usize) -> impl FnOnce() + Send + 'static {
    move || {
        for (at, byte) in pattern.iter().cycle().take(bytes).enumerate() {
            // SAFETY: the caller of the enqueue function keeps the range until the command has run.
            unsafe { ((dst + at) as *mut u8).write(*byte) };
        }
    }
}

/// The bytes of a pattern.
///
/// # Safety
/// `pattern` has `size` bytes.
pub unsafe fn pattern(pattern: *const c_void, size: usize) -> Vec<u8> {
    // SAFETY: the caller passes `size` readable bytes.
    unsafe { std::slice::from_raw_parts(pattern.cast(), size) }.to_vec()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueReadBuffer(
    queue: cl_command_queue,
    mem: cl_mem,
    _: cl_bool,
    offset: usize,
    bytes: usize,
    to: *mut c_void,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code(enter("clEnqueueReadBuffer", |driver| {
        let run = mover(
            to.expose_provenance(),
            range(driver, mem, offset, bytes)?,
            bytes,
        );
        let kind = CL_COMMAND_READ_BUFFER;
        // SAFETY: the caller promises readable lists of the given lengths.
        unsafe { driver.enqueue(queue, kind, (count, waits, event), run) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueWriteBuffer(
    queue: cl_command_queue,
    mem: cl_mem,
    _: cl_bool,
    offset: usize,
    bytes: usize,
    from: *const c_void,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code(enter("clEnqueueWriteBuffer", |driver| {
        let run = mover(
            range(driver, mem, offset, bytes)?,
            from.expose_provenance(),
            bytes,
        );
        let kind = CL_COMMAND_WRITE_BUFFER;
        // SAFETY: the caller promises readable lists of the given lengths.
        unsafe { driver.enqueue(queue, kind, (count, waits, event), run) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueCopyBuffer(
    queue: cl_command_queue,
    src: cl_mem,
    dst: cl_mem,
    src_offset: usize,
    dst_offset: usize,
    bytes: usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code(enter("clEnqueueCopyBuffer", |driver| {
        let from = range(driver, src, src_offset, bytes)?;
        let run = mover(range(driver, dst, dst_offset, bytes)?, from, bytes);
        let kind = CL_COMMAND_COPY_BUFFER;
        // SAFETY: the caller promises readable lists of the given lengths.
        unsafe { driver.enqueue(queue, kind, (count, waits, event), run) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueFillBuffer(
    queue: cl_command_queue,
    mem: cl_mem,
    from: *const c_void,
    size: usize,
    offset: usize,
    bytes: usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code(enter("clEnqueueFillBuffer", |driver| {
        let at = range(driver, mem, offset, bytes)?;
        // SAFETY: the caller's pattern.
        let run = filler(at, unsafe { pattern(from, size) }, bytes);
        let kind = CL_COMMAND_FILL_BUFFER;
        // SAFETY: the caller promises readable lists of the given lengths.
        unsafe { driver.enqueue(queue, kind, (count, waits, event), run) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueMapBuffer(
    queue: cl_command_queue,
    mem: cl_mem,
    _: cl_bool,
    _: cl_map_flags,
    offset: usize,
    bytes: usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
    ret: *mut cl_int,
) -> *mut c_void {
    let answer = enter("clEnqueueMapBuffer", |driver| {
        let at = range(driver, mem, offset, bytes)?;
        let kind = CL_COMMAND_MAP_BUFFER;
        // SAFETY: the caller promises readable lists of the given lengths.
        unsafe { driver.enqueue(queue, kind, (count, waits, event), || {}) }?;
        Ok(at)
    });
    crate::driver::made(answer, ret)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueUnmapMemObject(
    queue: cl_command_queue,
    mem: cl_mem,
    _: *mut c_void,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code(enter("clEnqueueUnmapMemObject", |driver| {
        driver.get(Kind::Mem, mem.addr())?;
        let kind = CL_COMMAND_UNMAP_MEM_OBJECT;
        // SAFETY: the caller promises readable lists of the given lengths.
        unsafe { driver.enqueue(queue, kind, (count, waits, event), || {}) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueMigrateMemObjects(
    queue: cl_command_queue,
    number: cl_uint,
    mems: *const cl_mem,
    _: cl_mem_migration_flags,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code(enter("clEnqueueMigrateMemObjects", |driver| {
        // SAFETY: the list has the given number of objects.
        let mems = unsafe { std::slice::from_raw_parts(mems, number as usize) };
        for mem in mems {
            driver.get(Kind::Mem, mem.addr())?;
        }
        let kind = CL_COMMAND_MIGRATE_MEM_OBJECTS;
        // SAFETY: the caller promises readable lists of the given lengths.
        unsafe { driver.enqueue(queue, kind, (count, waits, event), || {}) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueNDRangeKernel(
    queue: cl_command_queue,
    kernel: cl_kernel,
    _: cl_uint,
    _: *const usize,
    _: *const usize,
    _: *const usize,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code(enter("clEnqueueNDRangeKernel", |driver| {
        driver.get(Kind::Kernel, kernel.addr())?;
        let kind = CL_COMMAND_NDRANGE_KERNEL;
        // SAFETY: the caller promises readable lists of the given lengths.
        unsafe { driver.enqueue(queue, kind, (count, waits, event), || {}) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueMarkerWithWaitList(
    queue: cl_command_queue,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code(enter("clEnqueueMarkerWithWaitList", |driver| {
        // SAFETY: the caller promises readable lists of the given lengths.
        unsafe { driver.enqueue(queue, CL_COMMAND_MARKER, (count, waits, event), || {}) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueBarrierWithWaitList(
    queue: cl_command_queue,
    count: cl_uint,
    waits: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code(enter("clEnqueueBarrierWithWaitList", |driver| {
        // SAFETY: the caller promises readable lists of the given lengths.
        unsafe { driver.enqueue(queue, CL_COMMAND_BARRIER, (count, waits, event), || {}) }
    }))
}

/// Commands that the device does not support.
macro_rules! absent {
    ($($name:ident($($ty:ty),*);)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($(_: $ty),*) -> cl_int {
            code(enter(stringify!($name), |_| Err(CL_INVALID_OPERATION)))
        }
    )* };
}

type Q = cl_command_queue;
type Waits = *const cl_event;
type Event = *mut cl_event;
type Triple = *const usize;

absent! {
    clEnqueueReadBufferRect(Q, cl_mem, cl_bool, Triple, Triple, Triple, usize, usize, usize, usize, *mut c_void, cl_uint, Waits, Event);
    clEnqueueWriteBufferRect(Q, cl_mem, cl_bool, Triple, Triple, Triple, usize, usize, usize, usize, *const c_void, cl_uint, Waits, Event);
    clEnqueueCopyBufferRect(Q, cl_mem, cl_mem, Triple, Triple, Triple, usize, usize, usize, usize, cl_uint, Waits, Event);
    clEnqueueReadImage(Q, cl_mem, cl_bool, Triple, Triple, usize, usize, *mut c_void, cl_uint, Waits, Event);
    clEnqueueWriteImage(Q, cl_mem, cl_bool, Triple, Triple, usize, usize, *const c_void, cl_uint, Waits, Event);
    clEnqueueCopyImage(Q, cl_mem, cl_mem, Triple, Triple, Triple, cl_uint, Waits, Event);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueMapImage(
    _: Q,
    _: cl_mem,
    _: cl_bool,
    _: cl_map_flags,
    _: Triple,
    _: Triple,
    _: *mut usize,
    _: *mut usize,
    _: cl_uint,
    _: Waits,
    _: Event,
    ret: *mut cl_int,
) -> *mut c_void {
    let answer = enter("clEnqueueMapImage", |_| Err(CL_INVALID_OPERATION));
    crate::driver::made(answer, ret)
}

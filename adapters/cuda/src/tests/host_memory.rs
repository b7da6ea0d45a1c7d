//! Buffers over host memory, which the driver may register or refuse.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, devices, ur};
use super::launching;
use super::test_context::TestContext;
use super::workload::task;

const BYTES: usize = 8192;

fn ok(code: ur_result_t) {
    assert_eq!(code, UR_RESULT_SUCCESS);
}

/// Memory that begins at a page's start, so that registering it affects no neighbour.
#[repr(C, align(4096))]
struct Bytes([u8; BYTES]);

impl Bytes {
    fn new() -> Box<Self> {
        Box::new(Self([0; BYTES]))
    }

    fn at(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }
}

fn over(
    context: ur_context_handle_t,
    memory: *mut c_void,
    access: ur_mem_flags_t,
) -> ur_mem_handle_t {
    let properties = ur_buffer_properties_t {
        pHost: memory,
        ..Default::default()
    };
    let (flags, mut buffer) = (access | UR_MEM_FLAG_USE_HOST_POINTER, null_mut());
    ok(ur!(Mem.pfnBufferCreate(
        context,
        flags,
        BYTES,
        &properties,
        &mut buffer
    )));
    buffer
}

fn part(buffer: ur_mem_handle_t, origin: usize, size: usize) -> ur_mem_handle_t {
    let region = ur_buffer_region_t {
        origin,
        size,
        ..Default::default()
    };
    let (kind, flags, mut part) = (
        UR_BUFFER_CREATE_TYPE_REGION,
        UR_MEM_FLAG_READ_WRITE,
        null_mut(),
    );
    ok(ur!(Mem.pfnBufferPartition(
        buffer, flags, kind, &region, &mut part
    )));
    part
}

fn fill(queue: ur_queue_handle_t, buffer: ur_mem_handle_t, byte: u8, offset: usize, bytes: usize) {
    let (from, none) = ((&raw const byte).cast(), null_mut());
    ok(ur!(Enqueue.pfnMemBufferFill(
        queue,
        buffer,
        from,
        1,
        offset,
        bytes,
        0,
        null(),
        none
    )));
}

fn read(queue: ur_queue_handle_t, buffer: ur_mem_handle_t, offset: usize) -> u8 {
    let mut byte = 0_u8;
    let (to, none) = ((&raw mut byte).cast(), null_mut());
    ok(ur!(Enqueue.pfnMemBufferRead(
        queue,
        buffer,
        1,
        offset,
        1,
        to,
        0,
        null(),
        none
    )));
    byte
}

fn release(buffer: ur_mem_handle_t) {
    ok(ur!(Mem.pfnRelease(buffer)));
}

fn finish(queue: ur_queue_handle_t) {
    ok(ur!(Queue.pfnFinish(queue)));
}

/// The drivers: one that registers memory, and two that refuse it.
const ANSWERS: [u32; 3] = [0, 712, 801];

/// Runs a test with a queue, once for each driver.
fn for_each_answer(name: &str, test: impl Fn(&FakeDriver, &TestContext, ur_queue_handle_t, bool)) {
    alone(name, || {
        let driver = FakeDriver::open();
        for answer in ANSWERS {
            let test_context = TestContext::new(64);
            let queue = test_context.queue(ur_queue_flags_t(0));
            if answer != 0 {
                driver.fail_each("cuMemHostRegister", answer);
            }
            test(&driver, &test_context, queue, answer == 0);
            driver.reset();
            ok(ur!(Queue.pfnRelease(queue)));
            test_context.end(&driver);
        }
    });
}

/// The host's writes before the first command are seen, and the device's writes are there at the end.
///
/// The test covers whole buffers, and sub-buffers released before or after them.
#[test]
fn the_host_owns_the_memory_before_and_after() {
    let name = "tests::host_memory::the_host_owns_the_memory_before_and_after";
    for_each_answer(name, |_, test_context, queue, _| {
        for parent_first in [false, true] {
            let mut memory = Bytes::new();
            let buffer = over(test_context.context, memory.at(), UR_MEM_FLAG_READ_WRITE);
            memory.0.fill(5);
            let part = part(buffer, 4096, 4096);
            memory.0[4096] = 6;
            assert_eq!(read(queue, part, 0), 6);
            assert_eq!(read(queue, buffer, 0), 5);
            fill(queue, part, 7, 1, 2);
            fill(queue, buffer, 8, 10, 1);
            finish(queue);
            if parent_first {
                release(buffer);
                assert_eq!(memory.0[4095..4100], [5, 6, 7, 7, 5]);
                fill(queue, part, 9, 3, 1);
                finish(queue);
                release(part);
            } else {
                fill(queue, part, 9, 3, 1);
                finish(queue);
                release(part);
                release(buffer);
            }
            assert_eq!(memory.0[4095..4101], [5, 6, 7, 7, 9, 5]);
            assert_eq!(memory.0[9..12], [5, 8, 5]);
        }
    });
}

/// A kernel gets the buffer, too, and the first command may be a launch.
#[test]
fn kernels_see_host_memory() {
    let name = "tests::host_memory::kernels_see_host_memory";
    for_each_answer(name, |_, test_context, queue, _| {
        let context = test_context.context;
        let (program, kernel) = test_context.kernel(c"iota");
        let mut memory = Bytes::new();
        let buffer = over(context, memory.at(), UR_MEM_FLAG_READ_WRITE);
        memory.0.fill(5);
        let added = 0x0102_0304_u32;
        let args = [
            launching::memory_object(0, buffer, UR_MEM_FLAG_READ_WRITE),
            launching::number(1, &added),
        ];
        for _ in 0..2 {
            ok(launching::launch(queue, kernel, 1, &args, &[], null_mut()));
        }
        assert_eq!(read(queue, buffer, 4), 5);
        finish(queue);
        release(buffer);
        assert_eq!(memory.0[..5], [4, 3, 2, 1, 5]);
        ok(ur!(Kernel.pfnRelease(kernel)));
        ok(ur!(Program.pfnRelease(program)));
    });
}

/// A map returns the host memory itself.
#[test]
fn maps_return_the_host_memory() {
    let name = "tests::host_memory::maps_return_the_host_memory";
    for_each_answer(name, |driver, test_context, queue, registered| {
        let mut memory = Bytes::new();
        let start = memory.at();
        let buffer = over(test_context.context, start, UR_MEM_FLAG_READ_WRITE);
        memory.0.fill(5);
        fill(queue, buffer, 6, 100, 1);
        let flags = UR_MAP_FLAG_READ | UR_MAP_FLAG_WRITE;
        let (mut mapped, none) = (null_mut(), null_mut());
        ok(ur!(Enqueue.pfnMemBufferMap(
            queue,
            buffer,
            1,
            flags,
            100,
            2,
            0,
            null(),
            none,
            &mut mapped
        )));
        assert_eq!(mapped, start.wrapping_byte_add(100));
        assert_eq!(memory.0[99..102], [5, 6, 5]);
        memory.0[101] = 7;
        ok(ur!(Enqueue.pfnMemUnmap(
            queue,
            buffer,
            mapped,
            0,
            null(),
            none
        )));
        assert_eq!(read(queue, buffer, 101), 7);
        if registered {
            // Only the byte that was read was copied.
            let copies = driver.calls("cuMemcpyAsync", || {
                ok(ur!(Enqueue.pfnMemBufferMap(
                    queue,
                    buffer,
                    1,
                    flags,
                    0,
                    9,
                    0,
                    null(),
                    none,
                    &mut mapped
                )));
                ok(ur!(Enqueue.pfnMemUnmap(
                    queue,
                    buffer,
                    mapped,
                    0,
                    null(),
                    none
                )));
                finish(queue);
            });
            assert_eq!(copies, 0);
        }
        release(buffer);
        assert_eq!(memory.0[99..103], [5, 6, 7, 5]);
    });
}

/// Read-only host memory is not written while no command writes to the buffer.
#[test]
fn memory_that_is_only_read_may_be_read_only() {
    let name = "tests::host_memory::memory_that_is_only_read_may_be_read_only";
    for_each_answer(name, |_, test_context, queue, _| {
        static CONSTANT: Bytes = Bytes([3; BYTES]);
        let memory = CONSTANT.0.as_ptr().cast_mut().cast();
        for access in [UR_MEM_FLAG_READ_ONLY, UR_MEM_FLAG_READ_WRITE] {
            let buffer = over(test_context.context, memory, access);
            assert_eq!(read(queue, buffer, 17), 3);
            release(buffer);
        }
    });
}

/// The last release waits for the uses of the memory, which may be freed then.
///
/// It does not wait for a buffer without uses. Nor does it wait in a function of the user, which could wait
/// for itself.
#[test]
fn the_last_release_waits_for_its_use() {
    unsafe extern "C" fn let_go(buffer: *mut c_void) {
        release(buffer.cast());
    }
    let name = "tests::host_memory::the_last_release_waits_for_its_use";
    for_each_answer(name, |_, test_context, queue, _| {
        // The memory is leaked, since the last write-back may come after the release has returned.
        let (memory, count) = (Box::leak(Bytes::new()), AtomicU32::new(0));
        let data = (&raw const count).cast_mut().cast();
        let buffer = over(test_context.context, memory.at(), UR_MEM_FLAG_READ_WRITE);
        memory.0.fill(5);
        let (run, none) = (Some(task as _), null_mut());
        ok(ur!(EnqueueExp.pfnHostTaskExp(
            queue,
            run,
            data,
            null(),
            0,
            null(),
            none
        )));
        fill(queue, buffer, 6, 0, 2);
        release(buffer);
        assert_eq!(count.load(Ordering::SeqCst), 1);
        assert_eq!(memory.0[..3], [6, 6, 5]);

        let unused = over(test_context.context, memory.at(), UR_MEM_FLAG_READ_WRITE);
        release(unused);
        assert_eq!(memory.0[..3], [6, 6, 5]);

        let buffer = over(test_context.context, memory.at(), UR_MEM_FLAG_READ_WRITE);
        fill(queue, buffer, 7, 0, 1);
        let run = Some(let_go as _);
        ok(ur!(EnqueueExp.pfnHostTaskExp(
            queue,
            run,
            buffer.cast(),
            null(),
            0,
            null(),
            none
        )));
        finish(queue);
        // SAFETY: a byte of the test's memory, which a thread of the adapter writes.
        while unsafe { (&raw const memory.0[0]).read_volatile() } != 7 {
            std::thread::yield_now();
        }
    });
}

/// Devices of one context share the memory. Two buffers over the same memory use it one after the other.
#[test]
fn several_devices_and_buffers_share_host_memory() {
    let name = "tests::host_memory::several_devices_and_buffers_share_host_memory";
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        for answer in ANSWERS {
            let adapter = adapter();
            let all = devices(adapter);
            let mut context = null_mut();
            ok(ur!(Context.pfnCreate(
                2,
                all.as_ptr(),
                null(),
                &mut context
            )));
            if answer != 0 {
                driver.fail_each("cuMemHostRegister", answer);
            }
            let queues = [0, 1].map(|at: usize| {
                let mut queue = null_mut();
                ok(ur!(Queue.pfnCreate(context, all[at], null(), &mut queue)));
                queue
            });
            let mut memory = Bytes::new();
            let buffer = over(context, memory.at(), UR_MEM_FLAG_READ_WRITE);
            memory.0.fill(5);
            for (at, queue) in queues.into_iter().enumerate() {
                assert_eq!(read(queue, buffer, 9), 5);
                fill(queue, buffer, 6, at, 1);
                finish(queue);
            }
            release(buffer);
            assert_eq!(memory.0[..3], [6, 6, 5]);
            let both = [(); 2].map(|()| over(context, memory.at(), UR_MEM_FLAG_READ_WRITE));
            for (at, buffer) in both.into_iter().enumerate() {
                assert_eq!(read(queues[at], buffer, 0), 6);
                release(buffer);
            }
            driver.reset();
            for queue in queues {
                ok(ur!(Queue.pfnRelease(queue)));
            }
            ok(ur!(Context.pfnRelease(context)));
            ok(ur!(Adapter.pfnRelease(adapter)));
            driver.check_end("the end");
        }
    });
}

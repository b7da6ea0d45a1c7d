//! Bounds checking alone.

use std::ffi::c_void;
use std::ptr::null;

use ur::abi::*;

use crate::application::{Application, call, strict};
use crate::common::null as null_mut;

#[test]
fn ranges_end_with_their_object() {
    let log = strict("layers::bounds::scenario", "UR_LAYER_BOUNDS_CHECKING", &[]);
    let log = without_addresses(&log);
    for text in [
        "urEnqueueMemBufferRead: bytes 0 to 64 of hBuffer are used, but it has 0 to 63: buffer 0x, \
         1st of urMemBufferCreate, in context 0x, 1st of urContextCreate",
        "urEnqueueMemBufferRead: bytes 64 to 64 of hBuffer are used, but it has 0 to 63: ",
        "urEnqueueMemBufferRead: bytes 2 to beyond 2^64 of hBuffer are used, but it has 0 to 63: ",
        "urEnqueueMemBufferReadRect: bytes 29 to 64 of hBuffer (a box of 4 x 5 x 1 at 5, 3, 0, with \
         a row pitch of 8) are used, but it has 0 to 63: buffer 0x, 1st of urMemBufferCreate, in \
         context 0x, 1st of urContextCreate",
        "urEnqueueMemImageRead: pixels 1 to 16 of hImage in x are used, but it has 0 to 15: image \
         0x, 2nd of urMemBufferCreate, in context 0x, 1st of urContextCreate, of 16 x 8 x 1 pixels",
        "urEnqueueUSMFill: bytes 0 to 256 of pMem's allocation are used, but it has 0 to 255: 256 \
         bytes of device memory at 0x, 1st of urUSMDeviceAlloc, on device 0x, 1st of urDeviceGet, in context 0x, 1st of \
         urContextCreate",
        "urEnqueueUSMMemcpy: bytes 129 to 256 of pSrc's allocation are used, but it has 0 to 255: ",
        "urEnqueueUSMFill2D: bytes 0 to 319 of pMem's allocation (5 rows of 64 bytes) are used, but \
         it has 0 to 255: ",
        "urCommandBufferAppendUSMFillExp: bytes 0 to 256 of pMemory's allocation are used, but it \
         has 0 to 255: 256 bytes of device memory at 0x, 2nd of urUSMDeviceAlloc, on device 0x, 1st of urDeviceGet, in \
         context 0x, 1st of urContextCreate",
        "urEnqueueUSMFill: bytes 1 to 64 of pMem's allocation are used, but it has 0 to 63: 64 \
         bytes of device memory at 0x, 1st of urEnqueueUSMDeviceAllocExp, on queue 0x, 1st of urQueueCreate, in context \
         0x, 1st of urContextCreate",
    ] {
        let line = format!("<VALIDATION>[ERROR]: {text}");
        assert!(log.contains(&line), "{text}\nis not in\n{log}");
    }
}

/// A log with `0x` in place of each address.
fn without_addresses(log: &str) -> String {
    let mut parts = log.split("0x");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("0x");
        out.push_str(part.trim_start_matches(|digit: char| digit.is_ascii_hexdigit()));
    }
    out
}

const OK: ur_result_t = UR_RESULT_SUCCESS;
const OUTSIDE: ur_result_t = UR_RESULT_ERROR_INVALID_SIZE;

#[test]
#[ignore = "runs in a child process"]
fn scenario() {
    let app = Application::init();
    buffers(&app);
    images(&app);
    usm(&app);
    command_buffers(&app);
    allocated_by_a_command(&app);
    app.end();
}

fn buffers(app: &Application) {
    let all = app.all;
    let buffer = app.buffer(64);
    let mut host = [0u8; 1];
    let to: *mut c_void = host.as_mut_ptr().cast();
    let queue = app.queue;
    let read = |offset, size| {
        let none = null_mut();
        call!(
            all,
            Enqueue.pfnMemBufferRead(queue, buffer, 0, offset, size, to, 0, null(), none)
        )
    };
    assert_eq!([read(0, 64), read(63, 1), read(64, 0)], [OK; 3]);
    assert_eq!(
        [
            read(0, 65),
            read(64, 1),
            read(usize::MAX, 2),
            read(2, usize::MAX)
        ],
        [OUTSIDE; 4]
    );
    let boxed = |[x, y]: [u64; 2], [width, height]: [u64; 2], pitch| {
        let origin = ur_rect_offset_t { x, y, z: 0 };
        let none = ur_rect_offset_t::default();
        let region = ur_rect_region_t {
            width,
            height,
            depth: 1,
        };
        call!(
            all,
            Enqueue.pfnMemBufferReadRect(
                queue,
                buffer,
                0,
                origin,
                none,
                region,
                pitch,
                0,
                0,
                0,
                to,
                0,
                null(),
                null_mut()
            )
        )
    };
    assert_eq!(
        [
            boxed([0, 0], [8, 8], 0),
            boxed([4, 3], [4, 5], 8),
            boxed([15, 3], [1, 1], 16)
        ],
        [OK; 3],
        "the last row need not be whole"
    );
    assert_eq!(
        [
            boxed([0, 1], [8, 8], 0),
            boxed([5, 3], [4, 5], 8),
            boxed([0, 0], [u64::MAX, 2], 0)
        ],
        [OUTSIDE; 3]
    );
    assert_eq!(call!(all, Mem.pfnRelease(buffer)), OK);
}

fn images(app: &Application) {
    let all = app.all;
    // An image of 16 × 8 pixels, and one of 4 layers of 16 pixels.
    let (plane, layers) = (app.buffer(64), app.buffer(65));
    let host = [0u8; 1];
    let read = |image, [x, y]: [u64; 2], [width, height]: [u64; 2]| {
        let origin = ur_rect_offset_t { x, y, z: 0 };
        let region = ur_rect_region_t {
            width,
            height,
            depth: 1,
        };
        let to = host.as_ptr().cast_mut().cast();
        call!(
            all,
            Enqueue.pfnMemImageRead(
                app.queue,
                image,
                0,
                origin,
                region,
                0,
                0,
                to,
                0,
                null(),
                null_mut()
            )
        )
    };
    let inside = [
        read(plane, [0, 0], [16, 8]),
        read(plane, [15, 7], [1, 1]),
        read(layers, [0, 0], [16, 4]),
    ];
    assert_eq!(inside, [OK; 3]);
    let outside = [
        read(plane, [1, 0], [16, 8]),
        read(plane, [0, 8], [1, 1]),
        read(layers, [0, 1], [16, 4]),
    ];
    assert_eq!(outside, [OUTSIDE; 3]);
    for image in [plane, layers] {
        assert_eq!(call!(all, Mem.pfnRelease(image)), OK);
    }
}

fn usm(app: &Application) {
    let all = app.all;
    let block = app.usm(256);
    let mut host = [0u8; 8];
    let at = |offset| block.wrapping_byte_add(offset);
    let pattern: *const c_void = host.as_mut_ptr().cast_const().cast();
    let fill = |pointer, size| {
        call!(
            all,
            Enqueue.pfnUSMFill(app.queue, pointer, 1, pattern, size, 0, null(), null_mut())
        )
    };
    let copy = |to, from: *mut c_void, size| {
        call!(
            all,
            Enqueue.pfnUSMMemcpy(app.queue, 0, to, from, size, 0, null(), null_mut())
        )
    };
    let rows = |pointer, pitch, width, height| {
        call!(
            all,
            Enqueue.pfnUSMFill2D(
                app.queue,
                pointer,
                pitch,
                1,
                pattern,
                width,
                height,
                0,
                null(),
                null_mut()
            )
        )
    };
    let copy_rows = |to, to_pitch, from: *mut c_void, from_pitch, height| {
        call!(
            all,
            Enqueue.pfnUSMMemcpy2D(
                app.queue,
                0,
                to,
                to_pitch,
                from,
                from_pitch,
                32,
                height,
                0,
                null(),
                null_mut()
            )
        )
    };
    let host: *mut c_void = host.as_mut_ptr().cast();
    let inside = [
        fill(at(0), 256),
        fill(at(255), 1),
        copy(at(128), at(0), 128),
        copy(host, at(248), 8),
        // The layer does not know the size of host memory.
        copy(host, at(0), 256),
        fill(host, 1 << 40),
        rows(at(0), 64, 64, 4),
        rows(at(64), 64, 32, 3),
        copy_rows(at(0), 64, at(128), 64, 2),
    ];
    assert_eq!(inside, [OK; 9]);
    let outside = [
        fill(at(0), 257),
        fill(at(255), 2),
        fill(at(1), usize::MAX),
        copy(at(129), at(0), 128),
        copy(at(0), at(129), 128),
        copy(at(200), host, 57),
        rows(at(0), 64, 64, 5),
        // The pitch of the last row counts, in source and destination.
        rows(at(32), 64, 32, 4),
        rows(at(0), usize::MAX, 1, 2),
        copy_rows(at(0), 64, at(129), 64, 2),
        copy_rows(at(129), 64, at(0), 64, 2),
        copy_rows(at(0), 64, at(0), 129, 2),
        copy_rows(at(0), usize::MAX, at(0), 64, 2),
    ];
    assert_eq!(outside, [OUTSIDE; 13]);
    assert_eq!(call!(all, USM.pfnFree(app.context, block)), OK);
    assert_eq!(fill(at(0), 257), OK, "no allocation any more");
}

fn command_buffers(app: &Application) {
    let all = app.all;
    let block = app.usm(256);
    let desc = ur_exp_command_buffer_desc_t::default();
    let mut buffer = null_mut();
    let made = call!(
        all,
        CommandBufferExp.pfnCreateExp(app.context, app.device, &desc, &mut buffer)
    );
    assert_eq!(made, OK);
    let pattern = 0u8;
    let fill = |size| {
        let pattern = (&raw const pattern).cast();
        call!(
            all,
            CommandBufferExp.pfnAppendUSMFillExp(
                buffer,
                block,
                pattern,
                1,
                size,
                0,
                null(),
                0,
                null(),
                null_mut(),
                null_mut(),
                null_mut()
            )
        )
    };
    assert_eq!([fill(256), fill(257)], [OK, OUTSIDE]);
    assert_eq!(call!(all, CommandBufferExp.pfnReleaseExp(buffer)), OK);
    assert_eq!(call!(all, USM.pfnFree(app.context, block)), OK);
}

fn allocated_by_a_command(app: &Application) {
    let all = app.all;
    let (none, no_list) = (null_mut(), null());
    let (mut block, pool) = (null_mut(), null_mut());
    let properties = null();
    let made = call!(
        all,
        EnqueueExp.pfnUSMDeviceAllocExp(
            app.queue, pool, 64, properties, 0, no_list, &mut block, none
        )
    );
    assert_eq!(made, OK);
    let pattern = 0u8;
    let pattern: *const c_void = (&raw const pattern).cast();
    let at = block.wrapping_byte_add(1);
    let fill = call!(
        all,
        Enqueue.pfnUSMFill(app.queue, at, 1, pattern, 64, 0, null(), null_mut())
    );
    assert_eq!(fill, OUTSIDE);
    assert_eq!(call!(all, USM.pfnFree(app.context, block)), OK);
}

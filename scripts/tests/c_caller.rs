//! Calls between C and Rust through the generated headers and types: structs by value, unions, `bool`,
//! callbacks. Sizes and offsets alone do not prove that calling conventions agree.

use std::ffi::{CStr, c_char, c_void};
use std::process::Command;
use std::ptr::null_mut;
use ur::abi::*;

/// The C side, built as a shared object.
fn c_side() -> (tempfile::TempDir, libloading::Library) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let library = dir.path().join("libcaller.so");
    let root = xtask::repository();
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    cc.args([
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "-shared",
        "-fPIC",
        "-I",
    ]);
    cc.arg(root.join("include"))
        .arg("-o")
        .arg(&library)
        .arg(root.join("scripts/tests/c_caller.c"));
    assert!(
        cc.status().expect("a C compiler").success(),
        "{cc:?} failed"
    );
    // SAFETY: the library was just built from c_caller.c, which has no initialisers.
    let loaded = unsafe { libloading::Library::new(&library) }.expect("the library loads");
    (dir, loaded)
}

macro_rules! c_function {
    ($library:expr, $name:literal, $ty:ty) => {{
        // SAFETY: c_caller.c defines the symbol with this type.
        let symbol = unsafe { $library.get::<$ty>($name) };
        *symbol.expect("c_caller.c defines the symbol")
    }};
}

unsafe extern "C" fn read_rect(
    queue: ur_queue_handle_t,
    buffer: ur_mem_handle_t,
    blocking: u8,
    buffer_origin: ur_rect_offset_t,
    host_origin: ur_rect_offset_t,
    region: ur_rect_region_t,
    buffer_row: usize,
    buffer_slice: usize,
    host_row: usize,
    host_slice: usize,
    dst: *mut c_void,
    count: u32,
    waits: *const ur_event_handle_t,
    event: *mut ur_event_handle_t,
) -> ur_result_t {
    assert_eq!((queue.addr(), buffer.addr(), blocking), (0x10, 0x20, 1));
    assert_eq!(
        [buffer_origin.x, buffer_origin.y, buffer_origin.z],
        [1, 2, 3]
    );
    assert_eq!([host_origin.x, host_origin.y, host_origin.z], [4, 5, 6]);
    assert_eq!([region.width, region.height, region.depth], [7, 8, 9]);
    assert_eq!(
        [buffer_row, buffer_slice, host_row, host_slice],
        [10, 11, 12, 13]
    );
    assert_eq!(dst, event.cast());
    assert_eq!(count, 2);
    // SAFETY: the C side passes a list of two.
    let waits = unsafe { std::slice::from_raw_parts(waits, 2) };
    assert_eq!([waits[0].addr(), waits[1].addr()], [0x31, 0x32]);
    // SAFETY: the C side passes the test's own event slot.
    unsafe { event.write(std::ptr::without_provenance_mut(0x99)) };
    UR_RESULT_ERROR_INVALID_SIZE
}

unsafe extern "C" fn launch(
    _queue: ur_queue_handle_t,
    kernel: ur_kernel_handle_t,
    dimensions: u32,
    offset: *const usize,
    global: *const usize,
    local: *const usize,
    count: u32,
    args: *const ur_exp_kernel_arg_properties_t,
    properties: *const ur_kernel_launch_ext_properties_t,
    _waits: u32,
    _list: *const ur_event_handle_t,
    _event: *mut ur_event_handle_t,
) -> ur_result_t {
    assert_eq!((kernel.addr(), dimensions, count), (0x60, 2, 5));
    assert!(properties.is_null());
    // SAFETY: the C side passes two values a list and five arguments.
    let (ranges, args) = unsafe {
        (
            [
                *offset,
                *offset.add(1),
                *global,
                *global.add(1),
                *local,
                *local.add(1),
            ],
            std::slice::from_raw_parts(args, 5),
        )
    };
    assert_eq!(ranges, [1, 2, 64, 32, 8, 4]);
    for (at, arg) in args.iter().enumerate() {
        assert_eq!(arg.stype, UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES);
        assert_eq!((arg.index as usize, arg.size), (at, 8 + at));
        // SAFETY: the tag says which member the C side wrote.
        unsafe {
            match arg.r#type {
                UR_EXP_KERNEL_ARG_TYPE_VALUE => assert_eq!(arg.value.value.addr(), 0x71),
                UR_EXP_KERNEL_ARG_TYPE_POINTER => assert_eq!(arg.value.pointer.addr(), 0x72),
                UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ => {
                    let tuple = arg.value.memObjTuple;
                    assert_eq!(tuple.hMem.addr(), 0x40);
                    assert_eq!(tuple.flags, UR_MEM_FLAG_READ_ONLY | UR_MEM_FLAG_READ_WRITE);
                }
                UR_EXP_KERNEL_ARG_TYPE_LOCAL => assert_eq!(at, 3),
                UR_EXP_KERNEL_ARG_TYPE_SAMPLER => assert_eq!(arg.value.sampler.addr(), 0x50),
                other => panic!("argument {at} is {other:?}"),
            }
        }
    }
    UR_RESULT_SUCCESS
}

unsafe extern "C" fn partition(
    device: ur_device_handle_t,
    options: *const ur_device_partition_properties_t,
    entries: u32,
    devices: *mut ur_device_handle_t,
    count: *mut u32,
) -> ur_result_t {
    assert_eq!((device.addr(), entries), (0x70, 0));
    assert!(devices.is_null());
    // SAFETY: the C side passes options with a list of two, and a count.
    let list = unsafe {
        let options = &*options;
        assert_eq!(options.stype, UR_STRUCTURE_TYPE_DEVICE_PARTITION_PROPERTIES);
        count.write(options.PropCount as u32);
        std::slice::from_raw_parts(options.pProperties, options.PropCount)
    };
    assert_eq!(list.len(), 2);
    assert_eq!(list[0].r#type, UR_DEVICE_PARTITION_BY_COUNTS);
    assert_eq!(list[1].r#type, UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN);
    // SAFETY: the tags say which members the C side wrote.
    unsafe {
        assert_eq!(list[0].value.count, 3);
        assert_eq!(
            list[1].value.affinity_domain,
            UR_DEVICE_AFFINITY_DOMAIN_FLAG_NUMA
        );
    }
    UR_RESULT_SUCCESS
}

#[test]
fn structs_by_value_reach_rust() {
    let (_dir, c) = c_side();
    type Call = unsafe extern "C" fn(
        ur_pfnEnqueueMemBufferReadRect_t,
        *mut ur_event_handle_t,
    ) -> ur_result_t;
    let call = c_function!(c, b"c_read_rect", Call);
    let mut event: ur_event_handle_t = null_mut();
    // SAFETY: c_read_rect calls the function once and passes the event slot on.
    let result = unsafe { call(Some(read_rect), &mut event) };
    assert_eq!(result, UR_RESULT_ERROR_INVALID_SIZE);
    assert_eq!(event.addr(), 0x99);
}

#[test]
fn unions_reach_rust() {
    let (_dir, c) = c_side();
    type Launch = unsafe extern "C" fn(
        ur_pfnEnqueueKernelLaunchWithArgsExp_t,
        *const c_void,
        *const c_void,
    ) -> ur_result_t;
    let call = c_function!(c, b"c_launch", Launch);
    let value = std::ptr::without_provenance(0x71);
    let pointer = std::ptr::without_provenance(0x72);
    // SAFETY: c_launch calls the function once; nobody reads through the two addresses.
    let result = unsafe { call(Some(launch), value, pointer) };
    assert_eq!(result, UR_RESULT_SUCCESS);

    type Partition = unsafe extern "C" fn(ur_pfnDevicePartition_t) -> ur_result_t;
    let call = c_function!(c, b"c_partition", Partition);
    // SAFETY: c_partition calls the function once.
    assert_eq!(unsafe { call(Some(partition)) }, UR_RESULT_SUCCESS);
}

#[test]
fn c_callbacks_are_called_from_rust() {
    let (_dir, c) = c_side();
    let location = c_function!(
        c,
        b"c_location_callback",
        *const ur_code_location_callback_t
    );
    let event = c_function!(c, b"c_event_callback", *const ur_event_callback_t);
    let logger = c_function!(c, b"c_logger_callback", *const ur_logger_callback_t);
    // SAFETY: the symbols are constants of these types, and none is null.
    let (location, event, logger) =
        unsafe { ((*location).unwrap(), (*event).unwrap(), (*logger).unwrap()) };

    let mut lines = 2u32;
    // SAFETY: the callback reads one uint32_t; its strings are literals.
    let found = unsafe { location((&raw mut lines).cast()) };
    // SAFETY: the callback's strings are literals.
    let text = |text: *const c_char| unsafe { CStr::from_ptr(text) }.to_str().expect("ASCII");
    assert_eq!(
        (text(found.functionName), text(found.sourceFile)),
        ("main", "program.c")
    );
    assert_eq!((found.lineNumber, found.columnNumber), (42, 2));

    let mut seen = [0u64; 2];
    // SAFETY: the callback writes two uint64_t.
    unsafe {
        event(
            std::ptr::without_provenance_mut(0x33),
            UR_EXECUTION_INFO_COMPLETE,
            seen.as_mut_ptr().cast(),
        )
    };
    assert_eq!(seen, [0x33, u64::from(UR_EXECUTION_INFO_COMPLETE.0)]);
    // SAFETY: the callback writes two uint64_t, and the message is a C string.
    unsafe {
        logger(
            UR_LOGGER_LEVEL_WARN,
            c"eight by".as_ptr(),
            seen.as_mut_ptr().cast(),
        )
    };
    assert_eq!(seen, [u64::from(UR_LOGGER_LEVEL_WARN.0), 8]);
}

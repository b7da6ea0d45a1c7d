//! Variables that users set for Intel's adapters, each in a process of its own.
//!
//! | variable | test |
//! |---|---|
//! | `SYCL_USM_HOSTPTR_IMPORT` | those of imports; the workload with faults runs with it too |
//! | `SYCL_UR_L0_DRIVER_SKIPLIST`, `SYCL_UR_L0_LOADER_SKIPLIST` | [`drivers_and_loaders_are_left_out_by_their_versions`] |
//! | `UR_L0_VECTOR_WIDTH_SIZE` | [`the_widths_are_those_of_a_size`] |
//! | `UR_L0_USM_ALLOCATOR` | [`default_pools_keep_what_the_variable_says`] |
//!
//! Those of queues and events are in `exec::tests` and `batches`.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone_with, case, devices, ur};
use super::faults::{MEMORY, UNKNOWN};
use super::reported::{Own, copy, fill, ok, release, task};
use super::workload::{SIZE, host, read};

const IMPORT: &str = "zexDriverImportExternalPointer";
const RELEASE: &str = "zexDriverReleaseImportedPointer";

const USUAL: ur_queue_flags_t = ur_queue_flags_t(0);

type Variables<'a> = &'a [(&'a str, &'a str)];

/// Buffers over host memory import it.
const IMPORTS: Variables<'static> = &[("SYCL_USM_HOSTPTR_IMPORT", "1")];

/// Runs a test in a process with each of these sets of variables.
fn each(name: &str, all: &[Variables], test: impl Fn()) {
    for variables in all {
        if alone_with(name, variables, &test).is_none() {
            return;
        }
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn words(slot: usize) -> *mut c_void {
    host(slot).cast()
}

/// Writes all bytes of slots of the host's memory that no command uses.
fn write(slot: usize, count: usize, byte: u8) {
    // SAFETY: memory of the tests'.
    unsafe { host(slot).write_bytes(byte, count * SIZE) };
}

fn count(driver: &FakeDriver, function: &str) -> u64 {
    driver.counts().get(function).copied().unwrap_or(0)
}

/// The driver's imports and releases since the last script.
fn imports(driver: &FakeDriver) -> [u64; 2] {
    [count(driver, IMPORT), count(driver, RELEASE)]
}

/// A buffer over memory of the host's.
fn buffer(context: ur_context_handle_t, at: *mut c_void, bytes: usize) -> ur_mem_handle_t {
    let properties = ur_buffer_properties_t {
        pHost: at,
        ..Default::default()
    };
    let flags = UR_MEM_FLAG_READ_WRITE | UR_MEM_FLAG_USE_HOST_POINTER;
    let mut made = null_mut();
    ok(ur!(Mem.pfnBufferCreate(
        context,
        flags,
        bytes,
        &properties,
        &mut made
    )));
    made
}

fn fill_buffer(queue: ur_queue_handle_t, buffer: ur_mem_handle_t, byte: u8, bytes: usize) {
    let from = (&raw const byte).cast();
    let none = null_mut();
    ok(ur!(Enqueue.pfnMemBufferFill(
        queue,
        buffer,
        from,
        1,
        0,
        bytes,
        0,
        null(),
        none
    )));
}

fn end_buffer(buffer: ur_mem_handle_t) {
    ok(ur!(Mem.pfnRelease(buffer)));
}

fn holds(slot: usize, count: usize, byte: u8) {
    assert_eq!(read(words(slot), count * SIZE), vec![byte; count * SIZE]);
}

#[test]
fn a_buffer_imports_its_memory_while_it_lives() {
    let name = "tests::variables::a_buffer_imports_its_memory_while_it_lives";
    let off: Variables = &[("SYCL_USM_HOSTPTR_IMPORT", "0")];
    let one: Variables = &[IMPORTS[0], ("SCRIPTED_LEVEL_ZERO_DEVICES", "1")];
    let lacks: Variables = &[IMPORTS[0], ("SCRIPTED_LEVEL_ZERO_WITHOUT", IMPORT)];
    each(name, &[IMPORTS, one, off, &[], lacks], || {
        let is_on = variable("SYCL_USM_HOSTPTR_IMPORT").is_some_and(|value| value != "0");
        let imports_it = is_on && variable("SCRIPTED_LEVEL_ZERO_WITHOUT").is_none();
        let own = Own::new();
        let queue = own.queue(0, USUAL);
        write(0, 1, 1);
        let over = buffer(own.context, words(0), SIZE);
        fill_buffer(queue, over, 2, SIZE / 2);
        assert_eq!(imports(&own.driver), [u64::from(imports_it), 0]);
        end_buffer(over);
        assert_eq!(imports(&own.driver), [u64::from(imports_it); 2]);
        assert_eq!(read(words(0), SIZE / 2), [2; SIZE / 2]);
        assert_eq!(read(words(0), SIZE)[SIZE / 2..], [1; SIZE / 2]);
        own.end(&[queue]);
    });
}

/// A refusal is no error, and what was not imported is not released.
#[test]
fn a_refused_import_is_no_error() {
    let name = "tests::variables::a_refused_import_is_no_error";
    each(name, &[IMPORTS], || {
        let own = Own::new();
        let queue = own.queue(0, USUAL);
        for (code, _) in [MEMORY, UNKNOWN] {
            write(0, 1, 1);
            own.driver.fail_nth(IMPORT, 1, code);
            let over = buffer(own.context, words(0), SIZE);
            assert!(own.driver.query().met);
            fill_buffer(queue, over, 2, SIZE);
            end_buffer(over);
            assert_eq!(imports(&own.driver), [1, 0]);
            holds(0, 1, 2);
        }
        own.end(&[queue]);
    });
}

/// The driver counts nothing: the first release of an address in a range would end the import for all.
#[test]
fn buffers_share_the_import_of_a_range() {
    let name = "tests::variables::buffers_share_the_import_of_a_range";
    each(name, &[IMPORTS], || {
        let own = Own::new();
        let queue = own.queue(0, USUAL);
        let mut other = null_mut();
        let first = own.devices[0];
        ok(ur!(Context.pfnCreate(1, &first, null(), &mut other)));
        write(0, 4, 1);
        let whole = buffer(own.context, words(1), 2 * SIZE);
        let twin = buffer(own.context, words(1), 2 * SIZE);
        let part = buffer(own.context, words(2), SIZE / 2);
        let elsewhere = buffer(other, words(2), SIZE);
        // Memory that is in no range as a whole is not imported. The driver would accept the last.
        let beyond = buffer(own.context, words(2), 2 * SIZE);
        let before = buffer(own.context, words(0), 2 * SIZE);
        let around = buffer(own.context, words(0), 4 * SIZE);
        assert_eq!(imports(&own.driver), [1, 0]);
        for over in [whole, part, elsewhere, before, around] {
            end_buffer(over);
        }
        assert_eq!(imports(&own.driver), [1, 0]);
        fill_buffer(queue, beyond, 3, 2 * SIZE);
        end_buffer(beyond);
        holds(2, 2, 3);
        fill_buffer(queue, twin, 4, 2 * SIZE);
        end_buffer(twin);
        assert_eq!(imports(&own.driver), [1, 1]);
        holds(1, 2, 4);
        // A range is free again.
        end_buffer(buffer(own.context, words(0), 2 * SIZE));
        assert_eq!(imports(&own.driver), [2, 2]);
        ok(ur!(Context.pfnRelease(other)));
        own.end(&[queue]);
    });
}

/// A buffer over memory that the user has registered or imported, and such an act on memory of a buffer. Neither ends the
/// other's import.
#[test]
fn buffers_share_the_imports_of_the_user() {
    let name = "tests::variables::buffers_share_the_imports_of_the_user";
    each(name, &[IMPORTS], || {
        let own = Own::new();
        let context = own.context;
        let queue = own.queue(0, USUAL);
        type Act = fn(ur_context_handle_t, *mut c_void);
        let register: Act = |context, at| {
            let none = null();
            ok(ur!(USMExp.pfnHostAllocRegisterExp(
                context,
                at,
                2 * SIZE,
                none
            )));
        };
        let unregister: Act = |context, at| ok(ur!(USMExp.pfnHostAllocUnregisterExp(context, at)));
        let import: Act = |context, at| {
            // A second import does nothing, as one release ends both.
            ok(ur!(USMExp.pfnImportExp(context, at, 2 * SIZE)));
            ok(ur!(USMExp.pfnImportExp(context, at, 2 * SIZE)));
        };
        let end_import: Act = |context, at| ok(ur!(USMExp.pfnReleaseExp(context, at)));
        for (begin, end) in [(register, unregister), (import, end_import)] {
            // The buffer's life within the user's import, around it, and overlapping it on both sides.
            for (buffer_first, buffer_ends_first) in
                [(false, true), (true, false), (false, false), (true, true)]
            {
                case("an import of the user's");
                own.driver.reset();
                write(0, 2, 1);
                let at = words(0);
                if !buffer_first {
                    begin(context, at);
                }
                let over = buffer(context, at, 2 * SIZE);
                if buffer_first {
                    begin(context, at);
                }
                fill_buffer(queue, over, 2, SIZE);
                if buffer_ends_first {
                    end_buffer(over);
                    assert_eq!(imports(&own.driver), [1, 0]);
                    // Still the user's.
                    release(&[fill(queue, at, 5, &[])]);
                    ok(ur!(Queue.pfnFinish(queue)));
                    end(context, at);
                    holds(0, 1, 5);
                } else {
                    end(context, at);
                    assert_eq!(imports(&own.driver), [1, 0]);
                    end_buffer(over);
                    holds(0, 1, 2);
                }
                assert_eq!(imports(&own.driver), [1, 1]);
                // What is not imported is no error, and nothing of the driver's.
                ok(ur!(USMExp.pfnReleaseExp(context, at)));
                assert_eq!(imports(&own.driver), [1, 1]);
            }
        }
        own.end(&[queue]);
    });
}

/// Two contexts register the same memory: the driver's import lasts as long as one of them wants it.
#[test]
fn contexts_share_a_registration() {
    let name = "tests::variables::contexts_share_a_registration";
    each(name, &[&[]], || {
        let own = Own::new();
        let (mut other, first) = (null_mut(), own.devices[0]);
        ok(ur!(Context.pfnCreate(1, &first, null(), &mut other)));
        let both = [own.context, other];
        for context in both {
            let none = null();
            ok(ur!(USMExp.pfnHostAllocRegisterExp(
                context,
                words(0),
                SIZE,
                none
            )));
        }
        assert_eq!(imports(&own.driver), [1, 0]);
        ok(ur!(USMExp.pfnHostAllocUnregisterExp(own.context, words(0))));
        assert_eq!(imports(&own.driver), [1, 0]);
        // The other one's end with its context.
        ok(ur!(Context.pfnRelease(other)));
        assert_eq!(imports(&own.driver), [1, 1]);
        own.end(&[]);
    });
}

/// The driver's own memory is none to import.
#[test]
fn memory_of_the_driver_is_not_imported() {
    let name = "tests::variables::memory_of_the_driver_is_not_imported";
    each(name, &[IMPORTS], || {
        let own = Own::new();
        let queue = own.queue(0, USUAL);
        let (mut at, pool) = (null_mut(), null_mut());
        ok(ur!(USM.pfnHostAlloc(
            own.context,
            null(),
            pool,
            SIZE,
            &mut at
        )));
        ok(ur!(USMExp.pfnImportExp(own.context, at, SIZE)));
        let over = buffer(own.context, at, SIZE);
        fill_buffer(queue, over, 6, SIZE);
        end_buffer(over);
        ok(ur!(USMExp.pfnReleaseExp(own.context, at)));
        assert_eq!(read(at, SIZE), [6; SIZE]);
        assert_eq!(imports(&own.driver), [0, 0]);
        own.free(&[at]);
        own.end(&[queue]);
    });
}

/// The import may serve commands without the buffer, as the driver finds memory by its address. They end before it does.
#[test]
fn an_import_ends_behind_all_commands() {
    let name = "tests::variables::an_import_ends_behind_all_commands";
    each(name, &[IMPORTS], || {
        let own = Own::new();
        let (queue, other) = (own.queue(0, USUAL), own.queue(0, USUAL));
        let from = own.device_memory(0, SIZE);
        write(0, 1, 1);
        let over = buffer(own.context, words(0), SIZE);
        let filled = fill(queue, from, 7, &[]);
        let gate = task(other, 100);
        let copied = copy(queue, words(0), from, &[filled, gate]);
        end_buffer(over);
        assert_eq!(imports(&own.driver), [1, 1]);
        holds(0, 1, 7);
        release(&[filled, gate, copied]);
        own.free(&[from]);
        own.end(&[queue, other]);
    });
}

/// The wait of the release fails while a command of the driver's uses the memory: the import ends with the command.
#[test]
fn an_import_outlives_a_failed_wait() {
    let name = "tests::variables::an_import_outlives_a_failed_wait";
    each(name, &[IMPORTS], || {
        let own = Own::new();
        let (queue, other) = (own.queue(0, USUAL), own.queue(0, USUAL));
        // A list whose handle was given out waits for the host by itself.
        let mut native = 0;
        ok(ur!(Queue.pfnGetNativeHandle(
            queue,
            null_mut(),
            &mut native
        )));
        let from = own.device_memory(0, SIZE);
        let filled = fill(queue, from, 7, &[]);
        ok(ur!(Event.pfnWait(1, &filled)));
        // The release waits for the queues in any order: the failure may come when the command has ended.
        for _ in 0..12 {
            case("a failed wait");
            write(0, 1, 0);
            let over = buffer(own.context, words(0), SIZE);
            let gate = task(other, 40);
            let copied = copy(queue, words(0), from, &[gate]);
            own.driver.fail_nth("zeEventHostSynchronize", 1, MEMORY.0);
            end_buffer(over);
            assert!(own.driver.query().met);
            ok(ur!(Event.pfnWait(1, &copied)));
            holds(0, 1, 7);
            let start = Instant::now();
            while count(&own.driver, RELEASE) == 0 {
                let waits = start.elapsed() < Duration::from_secs(5);
                assert!(waits, "it stays imported");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(own.driver.query().broken, 0, "{}", own.driver.report());
            release(&[gate, copied]);
        }
        release(&[filled]);
        own.free(&[from]);
        own.end(&[queue, other]);
    });
}

/// A part keeps its buffer alive, and with it the import.
#[test]
fn a_part_keeps_the_import() {
    let name = "tests::variables::a_part_keeps_the_import";
    each(name, &[IMPORTS], || {
        let own = Own::new();
        let queue = own.queue(0, USUAL);
        write(0, 1, 1);
        let whole = buffer(own.context, words(0), SIZE);
        let region = ur_buffer_region_t {
            origin: 0,
            size: SIZE / 2,
            ..Default::default()
        };
        let (kind, mut part) = (UR_BUFFER_CREATE_TYPE_REGION, null_mut());
        let flags = UR_MEM_FLAG_READ_WRITE;
        ok(ur!(Mem.pfnBufferPartition(
            whole, flags, kind, &region, &mut part
        )));
        end_buffer(whole);
        assert_eq!(imports(&own.driver), [1, 0]);
        fill_buffer(queue, part, 8, SIZE / 2);
        end_buffer(part);
        assert_eq!(imports(&own.driver), [1, 1]);
        assert_eq!(read(words(0), SIZE / 2), [8; SIZE / 2]);
        own.end(&[queue]);
    });
}

/// A recorded command would keep the import that a buffer ends. It is held by a list only if the user imported its memory.
#[test]
fn recorded_commands_use_no_import_of_a_buffer() {
    let name = "tests::variables::recorded_commands_use_no_import_of_a_buffer";
    each(name, &[IMPORTS], || {
        let own = Own::new();
        let (context, queue) = (own.context, own.queue(0, USUAL));
        let to = own.device_memory(0, SIZE);
        for is_of_user in [false, true] {
            write(0, 1, 3);
            let over = buffer(context, words(0), SIZE);
            if is_of_user {
                ok(ur!(USMExp.pfnImportExp(context, words(0), SIZE)));
            }
            let (mut recorded, desc) = (null_mut(), Default::default());
            let device = own.devices[0];
            ok(ur!(CommandBufferExp.pfnCreateExp(
                context,
                device,
                &desc,
                &mut recorded
            )));
            for _ in 0..4 {
                ok(ur!(CommandBufferExp.pfnAppendUSMMemcpyExp(
                    recorded,
                    to,
                    words(0),
                    SIZE,
                    0,
                    null(),
                    0,
                    null(),
                    null_mut(),
                    null_mut(),
                    null_mut()
                )));
            }
            ok(ur!(CommandBufferExp.pfnFinalizeExp(recorded)));
            let lists = own.calls("zeCommandListImmediateAppendCommandListsExp", || {
                end_buffer(over);
                write(0, 1, 4);
                let none = null_mut();
                ok(ur!(EnqueueExp.pfnCommandBufferExp(
                    queue,
                    recorded,
                    0,
                    null(),
                    none
                )));
                ok(ur!(Queue.pfnFinish(queue)));
            });
            assert_eq!(lists > 0, is_of_user);
            release(&[copy(queue, words(1), to, &[])]);
            ok(ur!(Queue.pfnFinish(queue)));
            holds(1, 1, 4);
            ok(ur!(CommandBufferExp.pfnReleaseExp(recorded)));
            ok(ur!(USMExp.pfnReleaseExp(context, words(0))));
        }
        own.free(&[to]);
        own.end(&[queue]);
    });
}

/// A device's version text and its widths of vectors: chars and shorts, preferred and native.
fn facts(device: ur_device_handle_t) -> (String, [u32; 4]) {
    let mut text = [0_u8; 64];
    let what = UR_DEVICE_INFO_DRIVER_VERSION;
    let (to, mut bytes) = (text.as_mut_ptr().cast(), 0);
    ok(ur!(Device.pfnGetInfo(
        device,
        what,
        text.len(),
        to,
        &mut bytes
    )));
    let widths = [
        UR_DEVICE_INFO_PREFERRED_VECTOR_WIDTH_CHAR,
        UR_DEVICE_INFO_PREFERRED_VECTOR_WIDTH_SHORT,
        UR_DEVICE_INFO_NATIVE_VECTOR_WIDTH_CHAR,
        UR_DEVICE_INFO_NATIVE_VECTOR_WIDTH_SHORT,
    ];
    let widths = widths.map(|what| {
        let mut width = 0_u32;
        let to = (&raw mut width).cast();
        ok(ur!(Device.pfnGetInfo(
            device,
            what,
            size_of::<u32>(),
            to,
            null_mut()
        )));
        width
    });
    let text = String::from_utf8_lossy(&text[..bytes - 1]).into_owned();
    (text, widths)
}

#[test]
fn drivers_and_loaders_are_left_out_by_their_versions() {
    let name = "tests::variables::drivers_and_loaders_are_left_out_by_their_versions";
    let without = (
        "SCRIPTED_LEVEL_ZERO_WITHOUT",
        "ZE_intel_get_driver_version_string",
    );
    let list = "SYCL_UR_L0_DRIVER_SKIPLIST";
    let loaders = "SYCL_UR_L0_LOADER_SKIPLIST";
    let cases: &[(Variables, Option<&str>)] = &[
        (&[], Some("1.15.1+9")),
        (&[(list, "1.15.9,9.9.9")], Some("1.15.1+9")),
        (&[(list, "9.9.9,1.15.1+9")], None),
        (&[(list, "1.15.1")], None),
        (&[(list, "1.15.1+9"), without], Some("1.15.1")),
        (&[(list, "1.15.1"), without], None),
        (&[(loaders, "1.32,1.32.1")], Some("1.15.1+9")),
        (&[(loaders, "1.2.3,1.32.0")], None),
    ];
    for (variables, found) in cases {
        let found_text = found.unwrap_or_default();
        let mut variables = variables.to_vec();
        variables.push(("SCRIPTED_TEST_FOUND", found_text));
        let ran = alone_with(name, &variables, || {
            let expected = variable("SCRIPTED_TEST_FOUND").expect("the test sets it");
            let driver = FakeDriver::open();
            let adapter = adapter();
            if expected.is_empty() {
                assert!(adapter.is_null());
            } else {
                assert_eq!(facts(devices(adapter)[0]).0, expected);
                ok(ur!(Adapter.pfnRelease(adapter)));
            }
            driver.check_end("the search");
        });
        if ran.is_none() {
            return;
        }
    }
}

/// The largest, unless the user names another one.
#[test]
fn the_widths_are_those_of_a_size() {
    let name = "tests::variables::the_widths_are_those_of_a_size";
    for (size, widths) in [("0", "16 8"), ("16", "8 4"), ("32", "16 8"), ("64", "16 8")] {
        let variables = [
            ("UR_L0_VECTOR_WIDTH_SIZE", size),
            ("SCRIPTED_TEST_FOUND", widths),
        ];
        let ran = alone_with(name, &variables, || {
            let expected = variable("SCRIPTED_TEST_FOUND").expect("the test sets it");
            let driver = FakeDriver::open();
            let adapter = adapter();
            let (_, [char, short, own_char, own_short]) = facts(devices(adapter)[0]);
            assert_eq!(format!("{char} {short}"), expected);
            assert_eq!([char, short], [own_char, own_short]);
            ok(ur!(Adapter.pfnRelease(adapter)));
            driver.check_end("a query");
        });
        if ran.is_none() {
            return;
        }
    }
}

/// Bytes of an allocation for which a pool asks the driver.
const LARGE: usize = 3 << 20;

#[test]
fn default_pools_keep_what_the_variable_says() {
    let name = "tests::variables::default_pools_keep_what_the_variable_says";
    // What is given back after a free: device, shared and host memory.
    let cases = [
        ("", "false false false"),
        ("1;8G", "false false false"),
        ("0", "true true true"),
        ("0;8G;host:1M,4,64K", "true true true"),
        ("1;0", "true true true"),
        ("1;1M", "true true true"),
        ("1;32M;device:0", "true false false"),
        (
            "1;32M;host:1M,4,64K;device:1M,4,64K;shared:0,0,2M",
            "false true false",
        ),
        ("shared:4M,0;host:0", "false true true"),
        ("wrong:0", "false false false"),
    ];
    for (value, freed) in cases {
        let variables = [
            ("UR_L0_USM_ALLOCATOR", value),
            ("SCRIPTED_TEST_FOUND", freed),
        ];
        let ran = alone_with(name, &variables, || {
            let expected = variable("SCRIPTED_TEST_FOUND").expect("the test sets it");
            let own = Own::new();
            let (context, device) = (own.context, own.devices[0]);
            let queue = own.queue(0, USUAL);
            let freed = [Some(false), Some(true), None].map(|shared| {
                let calls = own.calls("zeMemFree", || {
                    let (mut at, pool) = (null_mut(), null_mut());
                    ok(match shared {
                        Some(false) => {
                            ur!(USM.pfnDeviceAlloc(context, device, null(), pool, LARGE, &mut at))
                        }
                        Some(true) => {
                            ur!(USM.pfnSharedAlloc(context, device, null(), pool, LARGE, &mut at))
                        }
                        None => ur!(USM.pfnHostAlloc(context, null(), pool, LARGE, &mut at)),
                    });
                    own.free(&[at]);
                    ok(ur!(Queue.pfnFinish(queue)));
                });
                calls > 0
            });
            let [device, shared, host] = freed;
            assert_eq!(format!("{device} {shared} {host}"), expected);
            own.end(&[queue]);
        });
        if ran.is_none() {
            return;
        }
    }
}

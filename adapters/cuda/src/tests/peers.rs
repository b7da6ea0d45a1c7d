//! Devices that use each other's memory: with links between them and without, and with access that changes.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, alone_with, devices, ur};
use super::launching::{launch, number, pointer};
use super::test_context::{PLAIN, built};
use super::two_devices::*;
use super::workload::task;

const INVALID: ur_result_t = UR_RESULT_ERROR_INVALID_OPERATION;

fn copy_2d(queue: ur_queue_handle_t, dst: *mut c_void, src: *const c_void) {
    let none = null_mut();
    ok(ur!(Enqueue.pfnUSMMemcpy2D(
        queue,
        0,
        dst,
        8,
        src,
        16,
        4,
        3,
        0,
        null(),
        none
    )));
}

/// Runs each command of a queue on `near`, memory of its own device, and `far`, memory of the other one.
fn each_command(two: &TwoDevices, at: usize, near: *mut c_void, far: *mut c_void) {
    let (own, other) = (two.queues[at], 1 - at);
    // Patterns for the driver's memset, for kernels, and for a mailbox.
    for pattern in [
        &[1_u8][..],
        &[1, 2],
        &[1, 2, 3, 4],
        &[1, 2, 3],
        &[1, 2, 3, 4, 5, 6, 7, 8],
    ] {
        two.set(other, far, 9);
        let size = 3 * pattern.len();
        for _ in 0..2 {
            fill(own, far, pattern, size);
        }
        two.finish();
        let read: [u8; 32] = bytes(far);
        let wanted: Vec<u8> = pattern.iter().copied().cycle().take(size).collect();
        assert_eq!(read[..size], wanted, "a fill with {pattern:?}");
        assert_eq!(
            read[size..],
            [9; 32][size..],
            "behind a fill with {pattern:?}"
        );
    }
    two.set(other, far, 9);
    let (pattern, none) = ([4_u8], null_mut());
    let from = pattern.as_ptr().cast();
    ok(ur!(Enqueue.pfnUSMFill2D(
        own,
        far,
        4,
        1,
        from,
        2,
        2,
        0,
        null(),
        none
    )));
    two.finish();
    assert_eq!(bytes(far), [4, 4, 9, 9, 4, 4, 9, 9]);

    let mut host = [7_u8; 64];
    let outside: *mut c_void = host.as_mut_ptr().cast();
    let behind = far.wrapping_byte_add(1024);
    two.set(at, near, 3);
    two.set(other, far, 5);
    for (name, dst, src, byte) in [
        ("to the other device", far, near, 3),
        ("from the host", far, outside, 7),
        ("within the other device", behind, far, 7),
        ("from the other device", near, behind, 7),
        ("to the host", outside, far, 7),
    ] {
        copy(own, dst, src, 64);
        two.finish();
        assert_eq!(bytes(dst), [byte; 64], "{name}");
    }
    let numbers: Vec<u8> = (0..64).collect();
    let numbered: *const c_void = numbers.as_ptr().cast();
    let lines = [
        0, 1, 2, 3, 9, 9, 9, 9, 16, 17, 18, 19, 9, 9, 9, 9, 32, 33, 34, 35, 9,
    ];
    two.set(other, far, 9);
    copy_2d(own, far, numbered);
    two.finish();
    assert_eq!(bytes(far), lines, "lines from the host");
    for (queue, name) in [(own, "the device's"), (two.queues[other], "the other's")] {
        two.set(at, near, 9);
        copy(two.queues[other], far, numbered, 64);
        two.finish();
        copy_2d(queue, near, far);
        two.finish();
        assert_eq!(bytes(near), lines, "lines between devices on {name} queue");
    }
    recorded(two, at, near, far);
    variable(two, at, far);
}

/// A command buffer with a fill, a copy and an own command.
fn recorded(two: &TwoDevices, at: usize, near: *mut c_void, far: *mut c_void) {
    let (mut commands, none, list) = (null_mut(), null_mut(), null());
    let what = ur_exp_command_buffer_desc_t {
        isInOrder: 1,
        ..Default::default()
    };
    let (context, device) = (two.context, two.devices[at]);
    let new = &mut commands;
    ok(ur!(
        CommandBufferExp.pfnCreateExp(context, device, &what, new)
    ));
    let pattern = [6_u8];
    let (from, events) = (pattern.as_ptr().cast(), null());
    ok(ur!(CommandBufferExp.pfnAppendUSMFillExp(
        commands,
        far,
        from,
        1,
        64,
        0,
        list,
        0,
        events,
        null_mut(),
        none,
        null_mut()
    )));
    ok(ur!(CommandBufferExp.pfnAppendUSMMemcpyExp(
        commands,
        near,
        far,
        64,
        0,
        list,
        0,
        events,
        null_mut(),
        none,
        null_mut()
    )));
    ok(ur!(CommandBufferExp.pfnAppendUSMFillExp(
        commands,
        near,
        from,
        1,
        64,
        0,
        list,
        0,
        events,
        null_mut(),
        none,
        null_mut()
    )));
    ok(ur!(CommandBufferExp.pfnFinalizeExp(commands)));
    for _ in 0..2 {
        two.set(at, near, 1);
        two.set(1 - at, far, 1);
        let queue = two.queues[at];
        ok(ur!(
            EnqueueExp.pfnCommandBufferExp(queue, commands, 0, events, none)
        ));
        two.finish();
        assert_eq!(
            (bytes(near), bytes(far)),
            ([6; 64], [6; 64]),
            "a command buffer"
        );
    }
    ok(ur!(CommandBufferExp.pfnReleaseExp(commands)));
}

/// Writes a program's variable from memory of the other device, and reads it to there.
fn variable(two: &TwoDevices, at: usize, far: *mut c_void) {
    let text = b".version 8.0\n.visible .global .align 8 .b8 ur_variable[16] = {1, 2};\n\0";
    let program = built(two.context, two.devices[at], text);
    let (queue, name, none) = (two.queues[at], c"ur_variable".as_ptr(), null_mut());
    two.set(1 - at, far, 8);
    ok(ur!(Enqueue.pfnDeviceGlobalVariableWrite(
        queue,
        program,
        name,
        0,
        8,
        0,
        far.cast_const().cast_mut(),
        0,
        null(),
        none
    )));
    let behind = far.wrapping_byte_add(64);
    ok(ur!(Enqueue.pfnDeviceGlobalVariableRead(
        queue,
        program,
        name,
        0,
        16,
        0,
        behind,
        0,
        null(),
        none
    )));
    two.finish();
    assert_eq!(
        bytes(behind),
        [8, 8, 8, 8, 8, 8, 8, 8, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    ok(ur!(Program.pfnRelease(program)));
}

/// Every copy and fill of a queue works on memory of the other device, whatever the host has, and in any order of
/// the devices.
#[test]
fn commands_work_on_memory_of_another_device() {
    let name = "tests::peers::commands_work_on_memory_of_another_device";
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        for anywhere in [false, true] {
            driver.anywhere(anywhere);
            for setting in Setting::all() {
                let two = TwoDevices::new(&driver, setting);
                for ordered in [false, true] {
                    let memory = [0, 1].map(|at| two.memory(at, ordered));
                    each_command(&two, 0, memory[0], memory[1]);
                    each_command(&two, 1, memory[1], memory[0]);
                    let (dst, src) = (memory[0], memory[1]);
                    two.set(1, src, 2);
                    ok(ur!(USMExp.pfnContextMemcpyExp(two.context, dst, src, 64)));
                    assert_eq!(bytes(dst), [2; 64], "{setting:?}");
                    memory.iter().for_each(|memory| two.free(*memory));
                }
                two.end(&driver);
            }
        }
    });
}

/// The driver's pools are accessible to the devices of the context.
#[test]
fn the_drivers_pools_are_shared() {
    let name = "tests::peers::the_drivers_pools_are_shared";
    alone_with(name, &[("UR_CUDA_NATIVE_POOLS", "1")], || {
        let driver = FakeDriver::open();
        driver.devices(2);
        for setting in Setting::all() {
            let two = TwoDevices::new(&driver, setting);
            let what = ur_usm_pool_desc_t {
                flags: UR_USM_POOL_FLAG_USE_NATIVE_MEMORY_POOL_EXP,
                ..Default::default()
            };
            let pools = two.devices.map(|device| {
                let (mut pool, mut what) = (null_mut(), what);
                let (context, what) = (two.context, &raw mut what);
                ok(ur!(
                    USMExp.pfnPoolCreateExp(context, device, what, &mut pool)
                ));
                pool
            });
            let allocate = |at: usize| {
                let (queue, pool, mut memory) = (two.queues[at], pools[at], null_mut());
                let (to, none) = (&mut memory, null_mut());
                ok(ur!(EnqueueExp.pfnUSMDeviceAllocExp(
                    queue,
                    pool,
                    BYTES,
                    null(),
                    0,
                    null(),
                    to,
                    none
                )));
                two.finish();
                memory
            };
            let memory = [0, 1].map(allocate);
            for _ in 0..2 {
                each_command(&two, 0, memory[0], memory[1]);
                each_command(&two, 1, memory[1], memory[0]);
                if !setting.links {
                    break;
                }
                enable(&two);
                each_command(&two, 0, memory[0], memory[1]);
                disable(&two);
            }
            // Each is freed on the queue of the other device.
            for (at, memory) in memory.into_iter().enumerate() {
                let (queue, none) = (two.queues[1 - at], null_mut());
                ok(ur!(EnqueueExp.pfnUSMFreeExp(
                    queue,
                    null_mut(),
                    memory,
                    0,
                    null(),
                    none
                )));
            }
            two.finish();
            for (pool, device) in pools.into_iter().zip(two.devices) {
                ok(ur!(USMExp.pfnPoolDestroyExp(two.context, device, pool)));
            }
            two.end(&driver);
        }
    });
}

fn enable(two: &TwoDevices) {
    let [one, other] = two.devices;
    ok(ur!(UsmP2PExp.pfnEnablePeerAccessExp(one, other)));
}

fn disable(two: &TwoDevices) {
    let [one, other] = two.devices;
    ok(ur!(UsmP2PExp.pfnDisablePeerAccessExp(one, other)));
}

/// A copy between two devices is one call of the driver for the whole range, which it stages where it must.
#[test]
fn a_copy_between_devices_is_one_call() {
    let name = "tests::peers::a_copy_between_devices_is_one_call";
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        driver.anywhere(true);
        for setting in Setting::all() {
            let two = TwoDevices::new(&driver, setting);
            let memory = [0, 1].map(|at| two.memory(at, true));
            for at in [0, 1] {
                let run = || copy(two.queues[0], memory[at], memory[1 - at], BYTES);
                let calls = ["cuMemcpyAsync", "cuMemcpyPeerAsync", "cuEventRecord"];
                let plain = if setting.links { [1, 0, 0] } else { [0, 1, 0] };
                assert_eq!(
                    calls.map(|call| driver.calls(call, run)),
                    plain,
                    "{setting:?}"
                );
            }
            two.finish();
            memory.iter().for_each(|memory| two.free(*memory));
            two.end(&driver);
        }
    });
}

/// Commands on another device's memory keep their queue's order, and wait for other devices' events there.
#[test]
fn order_is_kept_across_devices() {
    let name = "tests::peers::order_is_kept_across_devices";
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        for setting in Setting::all() {
            let two = TwoDevices::new(&driver, setting);
            let loose = UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE;
            let default = UR_QUEUE_FLAG_USE_DEFAULT_STREAM;
            for flags in [ur_queue_flags_t(0), loose, default] {
                let (memory, count) = (two.memory(1, true), AtomicU32::new(0));
                let queue = queue(two.context, two.devices[0], flags);
                two.set(1, memory, 1);
                let (run, data) = (Some(task as _), (&raw const count).cast_mut().cast());
                let (mut asked, mut filled, none) = (null_mut(), null_mut(), null_mut());
                ok(ur!(EnqueueExp.pfnHostTaskExp(
                    two.queues[1],
                    run,
                    data,
                    null(),
                    0,
                    null(),
                    &mut asked
                )));
                let pattern = [2_u8, 3, 4];
                let from = pattern.as_ptr().cast();
                let waits = driver.calls("cuEventSynchronize", || {
                    ok(ur!(Enqueue.pfnUSMFill(
                        queue,
                        memory,
                        3,
                        from,
                        48,
                        1,
                        &asked,
                        &mut filled
                    )));
                    let (own, to) = (two.queues[1], memory.wrapping_byte_add(64));
                    ok(ur!(
                        Enqueue.pfnUSMMemcpy(own, 0, to, memory, 48, 1, &filled, none)
                    ));
                });
                assert_eq!(waits, 0, "the host waits");
                two.finish();
                assert_eq!(count.load(Ordering::SeqCst), 1);
                let behind = memory.wrapping_byte_add(64);
                assert_eq!(bytes(behind), [2, 3, 4, 2, 3, 4], "{setting:?} {flags:?}");
                for event in [asked, filled] {
                    ok(ur!(Event.pfnRelease(event)));
                }
                ok(ur!(Queue.pfnFinish(queue)));
                ok(ur!(Queue.pfnRelease(queue)));
                two.free(memory);
            }
            two.end(&driver);
        }
    });
}

fn info(from: ur_device_handle_t, to: ur_device_handle_t, what: ur_exp_peer_info_t) -> i32 {
    let (mut value, mut size) = (-1_i32, 0);
    let (out, bytes) = ((&raw mut value).cast(), size_of::<i32>());
    ok(ur!(UsmP2PExp.pfnPeerAccessGetInfoExp(
        from, to, what, bytes, out, &mut size
    )));
    assert_eq!(size, bytes);
    value
}

/// Access is queried, enabled and disabled one way. Wrong states and wrong devices are refused.
#[test]
fn access_has_states() {
    let name = "tests::peers::access_has_states";
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        let (access, atomics) = (
            UR_EXP_PEER_INFO_UR_PEER_ACCESS_SUPPORT,
            UR_EXP_PEER_INFO_UR_PEER_ATOMICS_SUPPORT,
        );
        for setting in Setting::all().into_iter().filter(|setting| !setting.turned) {
            let two = TwoDevices::new(&driver, setting);
            let [one, other] = two.devices;
            let enable = |from, to| ur!(UsmP2PExp.pfnEnablePeerAccessExp(from, to));
            let disable = |from, to| ur!(UsmP2PExp.pfnDisablePeerAccessExp(from, to));
            let links = i32::from(setting.links);
            assert_eq!(
                [info(one, other, access), info(other, one, access)],
                [links; 2]
            );
            assert_eq!(
                [info(one, other, atomics), info(other, one, atomics)],
                [links, 0]
            );
            assert_eq!([info(one, one, access), info(one, one, atomics)], [1; 2]);
            assert_eq!(enable(one, one), UR_RESULT_ERROR_INVALID_DEVICE);
            assert_eq!(disable(one, one), UR_RESULT_ERROR_INVALID_DEVICE);
            assert_eq!(disable(one, other), INVALID);
            if !setting.links {
                assert_eq!(enable(one, other), UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
                assert_eq!(disable(one, other), INVALID);
                two.end(&driver);
                continue;
            }
            for _ in 0..2 {
                ok(enable(one, other));
                assert_eq!(enable(one, other), INVALID);
                assert_eq!(disable(other, one), INVALID);
                ok(enable(other, one));
                ok(disable(one, other));
                assert_eq!(disable(one, other), INVALID);
                ok(disable(other, one));
            }
            // The adapter takes back what is enabled at its end.
            ok(enable(one, other));
            two.end(&driver);
        }
    });
}

/// Adds numbers on a device: a kernel, whose accesses nobody checks before.
fn count_up(context: ur_context_handle_t, device: ur_device_handle_t, memory: *mut c_void) {
    let (program, mut kernel) = (built(context, device, PLAIN), null_mut());
    ok(ur!(Kernel.pfnCreate(
        program,
        c"iota".as_ptr(),
        &mut kernel
    )));
    let first = 1_u32;
    let args = [pointer(0, memory), number(1, &first)];
    let queue = queue(context, device, ur_queue_flags_t(0));
    ok(launch(queue, kernel, 4, &args, &[], null_mut()));
    ok(ur!(Queue.pfnFinish(queue)));
    ok(ur!(Queue.pfnRelease(queue)));
    ok(ur!(Kernel.pfnRelease(kernel)));
    ok(ur!(Program.pfnRelease(program)));
}

/// Enabled access covers memory of every context, mapped before or later, until it is disabled.
#[test]
fn access_covers_what_is_mapped() {
    let name = "tests::peers::access_covers_what_is_mapped";
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        for pages in [true, false] {
            driver.pages(pages);
            driver.peers(true);
            let adapter = adapter();
            let all = devices(adapter);
            let contexts = [0, 1].map(|at: usize| {
                let mut context = null_mut();
                ok(ur!(Context.pfnCreate(1, &all[at], null(), &mut context)));
                context
            });
            let (home, pool) = (contexts[1], null_mut());
            let allocate = |bytes| {
                let mut memory = null_mut();
                ok(ur!(USM.pfnDeviceAlloc(
                    home,
                    all[1],
                    null(),
                    pool,
                    bytes,
                    &mut memory
                )));
                memory
            };
            // A kernel of the other device uses the memory, with access or as an error of its own.
            let uses = |memory: *mut c_void| {
                driver.reset();
                count_up(contexts[0], all[0], memory);
                let broken = driver.query().broken;
                driver.reset();
                broken == 0
            };
            let early = allocate(BYTES);
            assert!(!uses(early));
            ok(ur!(UsmP2PExp.pfnEnablePeerAccessExp(all[0], all[1])));
            assert!(uses(early));
            let late = allocate(64 << 20);
            assert!(uses(late));
            ok(ur!(UsmP2PExp.pfnDisablePeerAccessExp(all[0], all[1])));
            assert!(!uses(early) && !uses(late));
            let last = allocate(64 << 20);
            assert!(!uses(last));
            ok(ur!(UsmP2PExp.pfnEnablePeerAccessExp(all[0], all[1])));
            assert!(uses(early) && uses(late) && uses(last));
            for memory in [early, late, last] {
                ok(ur!(USM.pfnFree(home, memory)));
            }
            for context in contexts {
                ok(ur!(Context.pfnRelease(context)));
            }
            ok(ur!(Adapter.pfnRelease(adapter)));
            driver.check_end("the end");
        }
    });
}

/// Kernels of a context's devices reach the memory of each other without a call, unless the user wants otherwise.
#[test]
fn members_of_a_context_have_access() {
    let name = "tests::peers::members_of_a_context_have_access";
    alone(name, || members(true));
}

#[test]
fn a_variable_keeps_members_apart() {
    let name = "tests::peers::a_variable_keeps_members_apart";
    alone_with(name, &[("UR_CUDA_PEER_ACCESS", "0")], || members(false));
}

fn members(have_access: bool) {
    let driver = FakeDriver::open();
    driver.devices(2);
    for pages in [true, false] {
        let setting = Setting {
            links: true,
            pages,
            turned: false,
        };
        let two = TwoDevices::new(&driver, setting);
        let memory = [0, 1].map(|at| two.memory(at, true));
        let uses = |at: usize| {
            driver.reset();
            count_up(two.context, two.devices[at], memory[1 - at]);
            let broken = driver.query().broken;
            driver.reset();
            broken == 0
        };
        assert_eq!([uses(0), uses(1)], [have_access; 2]);
        each_command(&two, 0, memory[0], memory[1]);
        enable(&two);
        assert_eq!([uses(0), uses(1)], [true, have_access]);
        each_command(&two, 0, memory[0], memory[1]);
        each_command(&two, 1, memory[1], memory[0]);
        disable(&two);
        assert_eq!([uses(0), uses(1)], [false, have_access]);
        each_command(&two, 0, memory[0], memory[1]);
        memory.iter().for_each(|memory| two.free(*memory));
        two.end(&driver);
    }
}

/// A change of access that the driver refuses leaves everything as it was.
#[test]
fn a_refused_change_changes_nothing() {
    let name = "tests::peers::a_refused_change_changes_nothing";
    alone_with(name, &[("UR_CUDA_PEER_ACCESS", "0")], || {
        let driver = FakeDriver::open();
        driver.devices(2);
        for pages in [true, false] {
            let two = TwoDevices::new(&driver, Setting::linked(pages));
            let [one, other] = two.devices;
            let memory = [0, 1].map(|at| two.memory(at, true));
            let (mut large, context) = (null_mut(), two.context);
            let (pool, to) = (null_mut(), &mut large);
            ok(ur!(USM.pfnDeviceAlloc(
                context,
                other,
                null(),
                pool,
                64 << 20,
                to
            )));
            let fails = |call: &str, nth: u64, change: &dyn Fn() -> ur_result_t| {
                driver.fail_nth(call, nth, 999);
                let code = change();
                let met = driver.query().met;
                driver.reset();
                assert_eq!(code != UR_RESULT_SUCCESS, met, "{call} {nth}");
                met
            };
            let enable = || ur!(UsmP2PExp.pfnEnablePeerAccessExp(one, other));
            let disable = || ur!(UsmP2PExp.pfnDisablePeerAccessExp(one, other));
            let calls = [
                "cuCtxEnablePeerAccess",
                "cuMemSetAccess",
                "cuCtxDisablePeerAccess",
            ];
            for call in calls {
                for nth in 1.. {
                    if !fails(call, nth, &enable) {
                        break;
                    }
                    assert_eq!(disable(), INVALID);
                    each_command(&two, 0, memory[0], memory[1]);
                }
                for nth in 1.. {
                    if !fails(call, nth, &disable) {
                        break;
                    }
                    assert_eq!(enable(), INVALID);
                    each_command(&two, 0, memory[0], memory[1]);
                }
            }
            two.free(large);
            memory.iter().for_each(|memory| two.free(*memory));
            two.end(&driver);
        }
    });
}

/// Each call of the driver fails once while devices use each other's memory.
#[test]
fn each_call_fails_between_devices() {
    let name = "tests::peers::each_call_fails_between_devices";
    each_call_fails(name, 25, both_ways);
}

/// Copies and fills both ways. False if all calls succeeded and the data is wrong.
fn both_ways() -> bool {
    let adapter = adapter();
    let all = devices(adapter);
    let mut context = null_mut();
    let mut failed = ur!(Context.pfnCreate(2, all.as_ptr(), null(), &mut context)).0;
    let mut right = true;
    if !context.is_null() {
        let (mut queues, mut memory) = ([null_mut(); 2], [null_mut(); 2]);
        for at in [0, 1] {
            let (device, pool) = (all[at], null_mut());
            failed |= ur!(Queue.pfnCreate(context, device, null(), &mut queues[at])).0;
            let to = &mut memory[at];
            failed |= ur!(USM.pfnDeviceAlloc(context, device, null(), pool, BYTES, to)).0;
        }
        if failed == 0 {
            let (none, list, pattern) = (null_mut(), null(), [1_u8, 2, 3]);
            let from = pattern.as_ptr().cast();
            let (queue, near, far) = (queues[0], memory[0], memory[1]);
            failed |= ur!(Enqueue.pfnUSMFill(queue, far, 3, from, 12, 0, list, none)).0;
            failed |= ur!(Enqueue.pfnUSMFill(queue, far, 1, from, 2, 0, list, none)).0;
            failed |= ur!(Enqueue.pfnUSMMemcpy(queue, 0, near, far, 12, 0, list, none)).0;
            let back = near.wrapping_byte_add(64);
            failed |=
                ur!(Enqueue.pfnUSMMemcpy2D(queue, 0, back, 4, near, 4, 4, 3, 0, list, none)).0;
            failed |= ur!(UsmP2PExp.pfnEnablePeerAccessExp(all[1], all[0])).0 & 1;
            failed |= ur!(Queue.pfnFinish(queue)).0;
            let wanted = [1, 1, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3];
            right = failed != 0 || bytes(near) == wanted && bytes(back) == wanted;
        }
        for at in [0, 1] {
            if !memory[at].is_null() {
                let _ = ur!(USM.pfnFree(context, memory[at]));
            }
            if !queues[at].is_null() {
                let _ = ur!(Queue.pfnFinish(queues[at]));
                let _ = ur!(Queue.pfnRelease(queues[at]));
            }
        }
        let _ = ur!(Context.pfnRelease(context));
    }
    ok(ur!(Adapter.pfnRelease(adapter)));
    right
}

/// The caller's current context stays, on every thread, while devices use each other's memory.
#[test]
fn the_current_context_stays() {
    let name = "tests::peers::the_current_context_stays";
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        for setting in Setting::all() {
            let two = TwoDevices::new(&driver, setting);
            let memory = [0, 1].map(|at| two.memory(at, true));
            driver.make_current(0xabc0);
            each_command(&two, 0, memory[0], memory[1]);
            assert_eq!(driver.current(), 0xabc0);
            if setting.links {
                enable(&two);
                assert_eq!(driver.current(), 0xabc0);
                disable(&two);
                each_command(&two, 0, memory[0], memory[1]);
                assert_eq!(driver.current(), 0xabc0);
            }
            driver.set_current(0);
            memory.iter().for_each(|memory| two.free(*memory));
            two.end(&driver);
        }
    });
}

/// Memory of two other devices is copied on the queue of a third one, and all devices wait for each other.
#[test]
fn a_third_device_copies_between_two() {
    let name = "tests::peers::a_third_device_copies_between_two";
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(3);
        for (links, pages) in [(true, true), (false, true), (true, false), (false, false)] {
            driver.peers(links);
            driver.pages(pages);
            let adapter = adapter();
            let all = devices(adapter);
            let order = [all[2], all[0], all[1]];
            let mut context = null_mut();
            ok(ur!(Context.pfnCreate(
                3,
                order.as_ptr(),
                null(),
                &mut context
            )));
            let flags = ur_queue_flags_t(0);
            let queues = order.map(|device| queue(context, device, flags));
            let memory = order.map(|device| {
                let (mut memory, pool) = (null_mut(), null_mut());
                let to = &mut memory;
                ok(ur!(USM.pfnDeviceAlloc(
                    context,
                    device,
                    null(),
                    pool,
                    BYTES,
                    to
                )));
                memory
            });
            for third in 0..3 {
                let [one, two] = [(third + 1) % 3, (third + 2) % 3];
                let (mut filled, mut copied) = (null_mut(), null_mut());
                let (queue, byte, none) = (queues[third], third as u8 + 1, null_mut());
                let from = (&raw const byte).cast();
                ok(ur!(Enqueue.pfnUSMFill(
                    queues[one],
                    memory[one],
                    1,
                    from,
                    64,
                    0,
                    null(),
                    &mut filled
                )));
                ok(ur!(Enqueue.pfnUSMMemcpy(
                    queue,
                    0,
                    memory[two],
                    memory[one],
                    64,
                    1,
                    &filled,
                    &mut copied
                )));
                let behind = memory[two].wrapping_byte_add(64);
                ok(ur!(Enqueue.pfnUSMMemcpy2D(
                    queue,
                    0,
                    behind,
                    8,
                    memory[one],
                    8,
                    8,
                    2,
                    1,
                    &copied,
                    none
                )));
                queues
                    .iter()
                    .for_each(|queue| ok(ur!(Queue.pfnFinish(*queue))));
                assert_eq!(bytes(memory[two]), [byte; 80], "{links} {pages} {third}");
                for event in [filled, copied] {
                    ok(ur!(Event.pfnRelease(event)));
                }
            }
            memory
                .iter()
                .for_each(|memory| ok(ur!(USM.pfnFree(context, *memory))));
            queues
                .iter()
                .for_each(|queue| ok(ur!(Queue.pfnRelease(*queue))));
            ok(ur!(Context.pfnRelease(context)));
            ok(ur!(Adapter.pfnRelease(adapter)));
            driver.check_end("the end");
        }
    });
}

/// Physical memory of one device at the addresses of a context is used by the other device as well.
#[test]
fn mapped_ranges_are_shared() {
    const PAGE: usize = 2 << 20;
    let name = "tests::peers::mapped_ranges_are_shared";
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        for setting in Setting::all().into_iter().filter(|setting| setting.pages) {
            let two = TwoDevices::new(&driver, setting);
            let (context, bytes, access) =
                (two.context, 2 * PAGE, UR_VIRTUAL_MEM_ACCESS_FLAG_READ_WRITE);
            let (mut start, mut piece) = (null_mut(), null_mut());
            ok(ur!(VirtualMem.pfnReserve(
                context,
                null(),
                bytes,
                &mut start
            )));
            let (device, new) = (two.devices[1], &mut piece);
            ok(ur!(PhysicalMem.pfnCreate(
                context,
                device,
                bytes,
                null(),
                new
            )));
            let near = two.memory(0, false);
            for _ in 0..2 {
                ok(ur!(
                    VirtualMem.pfnMap(context, start, bytes, piece, 0, access)
                ));
                // The driver itself says whose memory this is, since no pool owns it.
                each_command(&two, 0, near, start);
                if setting.links {
                    enable(&two);
                    each_command(&two, 0, near, start);
                    disable(&two);
                    each_command(&two, 0, near, start);
                }
                let reads = UR_VIRTUAL_MEM_ACCESS_FLAG_READ_ONLY;
                ok(ur!(VirtualMem.pfnSetAccess(context, start, bytes, reads)));
                ok(ur!(VirtualMem.pfnSetAccess(context, start, bytes, access)));
                ok(ur!(VirtualMem.pfnUnmap(context, start, bytes)));
            }
            two.free(near);
            ok(ur!(PhysicalMem.pfnRelease(piece)));
            ok(ur!(VirtualMem.pfnFree(context, start, bytes)));
            two.end(&driver);
        }
    });
}

/// An event of the driver's on any device of a context is adopted there, and orders commands of each.
#[test]
fn events_of_each_device_are_adopted() {
    let name = "tests::peers::events_of_each_device_are_adopted";
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        for setting in Setting::all() {
            let two = TwoDevices::new(&driver, setting);
            for at in [0, 1] {
                let memory = two.memory(at, false);
                let (mut event, byte, none) = (null_mut(), 3_u8, null_mut());
                let (queue, from) = (two.queues[at], (&raw const byte).cast());
                ok(ur!(Enqueue.pfnUSMFill(
                    queue,
                    memory,
                    1,
                    from,
                    64,
                    0,
                    null(),
                    &mut event
                )));
                let (mut native, mut adopted) = (0, null_mut());
                ok(ur!(Event.pfnGetNativeHandle(event, &mut native)));
                let (context, new) = (two.context, &mut adopted);
                ok(ur!(Event.pfnCreateWithNativeHandle(
                    native,
                    context,
                    null(),
                    new
                )));
                let (other, to) = (two.queues[1 - at], memory.wrapping_byte_add(64));
                ok(ur!(
                    Enqueue.pfnUSMMemcpy(other, 0, to, memory, 64, 1, &adopted, none)
                ));
                two.finish();
                assert_eq!(bytes(memory), [3; 128], "{setting:?}");
                ok(ur!(Event.pfnRelease(adopted)));
                ok(ur!(Event.pfnRelease(event)));
                two.free(memory);
            }
            two.end(&driver);
        }
    });
}

/// Memory that threads map while another thread enables access is accessible afterwards.
#[test]
fn access_is_enabled_while_memory_is_mapped() {
    let name = "tests::peers::access_is_enabled_while_memory_is_mapped";
    alone_with(name, &[("UR_CUDA_PEER_ACCESS", "0")], || {
        let driver = FakeDriver::open();
        driver.devices(2);
        for pages in [true, false] {
            let two = TwoDevices::new(&driver, Setting::linked(pages));
            let (context, [one, other]) = (two.context.expose_provenance(), two.devices);
            let other = other.expose_provenance();
            let map = move || {
                let context = std::ptr::with_exposed_provenance_mut(context);
                let device = std::ptr::with_exposed_provenance_mut(other);
                let allocate = |at: usize| {
                    let (mut memory, pool) = (null_mut(), null_mut());
                    let (bytes, to) = ((at + 1) << 20, &mut memory);
                    ok(ur!(USM.pfnDeviceAlloc(
                        context,
                        device,
                        null(),
                        pool,
                        bytes,
                        to
                    )));
                    memory.expose_provenance()
                };
                (0..24).map(allocate).collect::<Vec<usize>>()
            };
            let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(map)).collect();
            enable(&two);
            let all = threads
                .into_iter()
                .flat_map(|thread| thread.join().expect("a thread"));
            let all: Vec<usize> = all.collect();
            for memory in all.iter().step_by(5) {
                count_up(
                    two.context,
                    one,
                    std::ptr::with_exposed_provenance_mut(*memory),
                );
            }
            for memory in all {
                two.free(std::ptr::with_exposed_provenance_mut(memory));
            }
            disable(&two);
            two.end(&driver);
        }
    });
}

/// Access that the application has enabled between primary contexts stays the application's.
#[test]
fn the_applications_access_stays() {
    let name = "tests::peers::the_applications_access_stays";
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        for pages in [true, false] {
            let two = TwoDevices::new(&driver, Setting::linked(pages));
            assert_eq!(driver.link(true), 0);
            let memory = [0, 1].map(|at| two.memory(at, true));
            enable(&two);
            each_command(&two, 0, memory[0], memory[1]);
            disable(&two);
            each_command(&two, 0, memory[0], memory[1]);
            memory.iter().for_each(|memory| two.free(*memory));
            two.release();
            // `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`
            assert_eq!(driver.link(true), 704);
            assert_eq!(driver.link(false), 0);
            driver.check_end("the end");
        }
    });
}

/// A range that gets another device's memory is used as that.
#[test]
fn a_range_changes_its_device() {
    const PAGE: usize = 2 << 20;
    let name = "tests::peers::a_range_changes_its_device";
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        for links in [true, false] {
            let setting = Setting {
                links,
                pages: true,
                turned: false,
            };
            let two = TwoDevices::new(&driver, setting);
            let (context, access) = (two.context, UR_VIRTUAL_MEM_ACCESS_FLAG_READ_WRITE);
            let mut start = null_mut();
            ok(ur!(VirtualMem.pfnReserve(
                context,
                null(),
                PAGE,
                &mut start
            )));
            let pieces = two.devices.map(|device| {
                let mut piece = null_mut();
                let new = &mut piece;
                ok(ur!(PhysicalMem.pfnCreate(
                    context,
                    device,
                    PAGE,
                    null(),
                    new
                )));
                piece
            });
            for piece in [0, 1, 0, 1].map(|at: usize| pieces[at]) {
                ok(ur!(
                    VirtualMem.pfnMap(context, start, PAGE, piece, 0, access)
                ));
                for queue in two.queues {
                    for _ in 0..3 {
                        fill(queue, start, &[1, 2, 3, 4, 5, 6, 7, 8], 64);
                        fill(queue, start, &[7, 8, 9], 12);
                    }
                    two.finish();
                    assert_eq!(
                        bytes(start),
                        [7, 8, 9, 7, 8, 9, 7, 8, 9, 7, 8, 9, 5, 6, 7, 8]
                    );
                }
                ok(ur!(VirtualMem.pfnUnmap(context, start, PAGE)));
            }
            for piece in pieces {
                ok(ur!(PhysicalMem.pfnRelease(piece)));
            }
            ok(ur!(VirtualMem.pfnFree(context, start, PAGE)));
            two.end(&driver);
        }
    });
}

/// Queues on the default stream share helpers, which end with the last of the queues while others begin.
#[test]
fn helpers_of_the_default_stream_end_once() {
    let name = "tests::peers::helpers_of_the_default_stream_end_once";
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        let setting = Setting {
            links: false,
            ..Setting::linked(true)
        };
        let two = TwoDevices::new(&driver, setting);
        let memory = [(); 4].map(|()| two.memory(1, false).expose_provenance());
        let (context, device) = (two.context.addr(), two.devices[0].addr());
        std::thread::scope(|scope| {
            for (thread, memory) in (1_u8..).zip(memory) {
                scope.spawn(move || {
                    let context = std::ptr::with_exposed_provenance_mut(context);
                    let device = std::ptr::with_exposed_provenance_mut(device);
                    let memory = std::ptr::with_exposed_provenance_mut(memory);
                    for _ in 0..300 {
                        let queue = queue(context, device, UR_QUEUE_FLAG_USE_DEFAULT_STREAM);
                        fill(queue, memory, &[thread], 64);
                        ok(ur!(Queue.pfnFinish(queue)));
                        assert_eq!(bytes(memory), [thread; 64]);
                        ok(ur!(Queue.pfnRelease(queue)));
                    }
                });
            }
        });
        for memory in memory {
            two.free(std::ptr::with_exposed_provenance_mut(memory));
        }
        two.end(&driver);
    });
}

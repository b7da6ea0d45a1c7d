//! Memory and events of several processes, exportable memory, and registered memory of the host.

use std::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::ptr::{null, null_mut};
use std::sync::mpsc::{Receiver, channel};

use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, alone_with, devices, ur};
use super::peer::{Peer, answer, is_second, request};
use super::test_context::TestContext;
use super::two_devices::{Setting, TwoDevices, bytes, fill, queue};

const MIB: usize = 1 << 20;
const PAGE: usize = 2 * MIB;

const INVALID_VALUE: ur_result_t = UR_RESULT_ERROR_INVALID_VALUE;

fn ok(code: ur_result_t) {
    assert_eq!(code, UR_RESULT_SUCCESS);
}

fn alloc(test: &TestContext, bytes: usize) -> *mut c_void {
    let mut memory = null_mut();
    let (context, device) = (test.context, test.device);
    ok(ur!(USM.pfnDeviceAlloc(
        context,
        device,
        null(),
        null_mut(),
        bytes,
        &mut memory
    )));
    memory
}

fn free(test: &TestContext, memory: *mut c_void) -> ur_result_t {
    ur!(USM.pfnFree(test.context, memory))
}

/// A blob at the address where the adapter has it, and its bytes.
struct Blob(*mut c_void, Vec<u8>);

fn blob(data: *mut c_void, size: usize) -> Blob {
    // SAFETY: the adapter returned an address of so many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) };
    Blob(data, bytes.to_vec())
}

fn get(test: &TestContext, memory: *mut c_void) -> Result<Blob, ur_result_t> {
    let (mut data, mut size) = (null_mut(), 0);
    match ur!(IPCExp.pfnGetMemHandleExp(test.context, memory, &mut data, &mut size)) {
        UR_RESULT_SUCCESS => Ok(blob(data, size)),
        code => Err(code),
    }
}

fn put(test: &TestContext, blob: &Blob) -> ur_result_t {
    ur!(IPCExp.pfnPutMemHandleExp(test.context, blob.0))
}

fn open(test: &TestContext, bytes: &[u8]) -> Result<*mut c_void, ur_result_t> {
    let (context, device, mut memory) = (test.context, test.device, null_mut());
    let at = bytes.as_ptr().cast_mut().cast();
    match ur!(IPCExp.pfnOpenMemHandleExp(context, device, at, bytes.len(), &mut memory)) {
        UR_RESULT_SUCCESS => Ok(memory),
        code => Err(code),
    }
}

fn close(test: &TestContext, memory: *mut c_void) -> ur_result_t {
    ur!(IPCExp.pfnCloseMemHandleExp(test.context, memory))
}

/// Bytes of memory, which the fake driver's host can read.
fn bytes_at<'a>(memory: *mut c_void, bytes: usize) -> &'a mut [u8] {
    // SAFETY: the fake driver maps memory with access for the host; the tests stay within it.
    unsafe { std::slice::from_raw_parts_mut(memory.cast(), bytes) }
}

fn info<T: Default>(test: &TestContext, memory: *mut c_void, what: ur_usm_alloc_info_t) -> T {
    let mut value = T::default();
    let (to, none) = ((&raw mut value).cast(), null_mut());
    let size = size_of::<T>();
    ok(ur!(USM.pfnGetMemAllocInfo(
        test.context,
        memory,
        what,
        size,
        to,
        none
    )));
    value
}

fn supports(test: &TestContext, what: ur_device_info_t) -> bool {
    let mut value = 0_u8;
    let to = (&raw mut value).cast();
    ok(ur!(Device.pfnGetInfo(test.device, what, 1, to, null_mut())));
    value != 0
}

#[test]
fn a_thousand_blocks_cross_to_another_process() {
    const NAME: &str = "tests::sharing::a_thousand_blocks_cross_to_another_process";
    const ROUNDS: usize = 1000;
    alone(NAME, || {
        let driver = FakeDriver::open();
        let test = TestContext::new(64);
        // Odd sizes, so that blocks begin within pages and some span several.
        let size = |round: usize| match round % 4 {
            0 => 1000,
            1 => 3 * MIB + 512,
            2 => 70_000,
            _ => 5 * MIB,
        };
        if is_second() {
            let neighbour = alloc(&test, 4096);
            for round in 0..ROUNDS {
                let memory = alloc(&test, size(round));
                bytes_at(memory, size(round)).fill(round as u8);
                let blob = get(&test, memory).expect("a handle");
                answer(&blob.1);
                request().expect("the other process has written");
                let seen = bytes_at(memory, size(round));
                assert_eq!([seen[0], seen[size(round) - 1]], [!(round as u8); 2]);
                ok(put(&test, &blob));
                ok(free(&test, memory));
            }
            ok(free(&test, neighbour));
            return test.end(&driver);
        }
        let mut peer = Peer::start(NAME);
        let mut live = None;
        for round in 0..ROUNDS {
            let bytes = peer.receive();
            let memory = open(&test, &bytes).expect("the memory");
            let again = open(&test, &bytes).expect("the memory, once more");
            assert_ne!(memory, again);
            for memory in [memory, again] {
                let all = bytes_at(memory, size(round));
                let mut some = all.iter().step_by(499).chain(all.last());
                assert!(some.all(|byte| *byte == round as u8), "round {round}");
            }
            assert_eq!(
                info::<usize>(&test, memory, UR_USM_ALLOC_INFO_SIZE),
                size(round)
            );
            bytes_at(memory, size(round)).fill(!(round as u8));
            ok(close(&test, memory));
            ok(close(&test, again));
            assert_eq!(close(&test, memory), INVALID_VALUE, "closed twice");
            peer.send(&[1]);
            let now = driver.query().live;
            assert_eq!(
                *live.get_or_insert(now),
                now,
                "no growth: {}",
                driver.report()
            );
        }
        peer.end();
        test.end(&driver);
    });
}

#[test]
fn exported_memory_is_nobody_else_s() {
    alone("tests::sharing::exported_memory_is_nobody_else_s", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(64);
        let queue = test.queue(ur_queue_flags_t(0));
        let (mut memory, none) = (null_mut(), null_mut());
        let (list, bytes) = (null(), 3 * MIB);
        // A block of the queue's own cache, which a free on the queue would keep.
        ok(ur!(EnqueueExp.pfnUSMDeviceAllocExp(
            queue,
            null_mut(),
            bytes,
            null(),
            0,
            list,
            &mut memory,
            none
        )));
        bytes_at(memory, bytes).fill(7);
        let one = get(&test, memory).expect("a handle");
        let two = get(&test, memory).expect("another handle");
        ok(ur!(EnqueueExp.pfnUSMFreeExp(
            queue,
            null_mut(),
            memory,
            0,
            list,
            none
        )));
        ok(ur!(Queue.pfnFinish(queue)));
        let twice = ur!(EnqueueExp.pfnUSMFreeExp(queue, null_mut(), memory, 0, list, none));
        assert_eq!(twice, UR_RESULT_ERROR_INVALID_MEM_OBJECT);
        assert_eq!(free(&test, memory), UR_RESULT_ERROR_INVALID_MEM_OBJECT);
        let kind: ur_usm_type_t = info(&test, memory, UR_USM_ALLOC_INFO_TYPE);
        assert_eq!(kind, UR_USM_TYPE_UNKNOWN, "freed for its owner");
        assert_eq!(get(&test, memory).err(), Some(INVALID_VALUE));
        let mut pool = null_mut();
        ok(ur!(USMExp.pfnPoolGetDefaultDevicePoolExp(
            test.context,
            test.device,
            &mut pool
        )));
        ok(ur!(USMExp.pfnPoolTrimToExp(
            test.context,
            test.device,
            pool,
            0
        )));
        // Neither by a queue nor by the host is it allocated again.
        let mut others = Vec::new();
        for _ in 0..4 {
            let mut other = null_mut();
            ok(ur!(EnqueueExp.pfnUSMDeviceAllocExp(
                queue,
                null_mut(),
                bytes,
                null(),
                0,
                list,
                &mut other,
                none
            )));
            others.push(other);
            others.push(alloc(&test, bytes));
        }
        let span = memory.addr()..memory.addr() + bytes;
        for other in &others {
            let own = other.addr()..other.addr() + bytes;
            assert!(own.end <= span.start || span.end <= own.start);
            bytes_at(*other, bytes).fill(9);
        }
        let opened = open(&test, &two.1).expect("the memory");
        assert!(bytes_at(opened, bytes).iter().all(|byte| *byte == 7));
        ok(close(&test, opened));
        ok(put(&test, &one));
        assert_eq!(put(&test, &one), INVALID_VALUE, "given back twice");
        assert_eq!(open(&test, &one.1).err(), Some(INVALID_VALUE), "given back");
        let opened = open(&test, &two.1).expect("one handle is left");
        assert!(bytes_at(opened, bytes).iter().all(|byte| *byte == 7));
        ok(close(&test, opened));
        ok(put(&test, &two));
        // The free takes effect.
        let again = alloc(&test, bytes);
        assert_eq!(again, memory, "the memory is free");
        others.push(again);
        for other in others {
            ok(free(&test, other));
        }
        ok(ur!(Queue.pfnRelease(queue)));
        test.end(&driver);
    });
}

#[test]
fn only_blobs_of_memory_open() {
    alone("tests::sharing::only_blobs_of_memory_open", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(64);
        let memory = alloc(&test, 4096);
        let inside = memory.wrapping_byte_add(64);
        assert_eq!(get(&test, inside).err(), Some(INVALID_VALUE));
        assert_eq!(
            get(&test, test.memory).err(),
            Some(INVALID_VALUE),
            "host memory"
        );
        let mut size = 0;
        ok(ur!(IPCExp.pfnGetMemHandleExp(
            test.context,
            memory,
            null_mut(),
            &mut size
        )));
        let blob = get(&test, memory).expect("a handle");
        assert_eq!(size, blob.1.len());
        for cut in [0, 1, 12, blob.1.len() - 1] {
            assert_eq!(open(&test, &blob.1[..cut]).err(), Some(INVALID_VALUE));
        }
        // Another key, another export, another service, another process.
        for at in [blob.1.len() - 1, 24, 16, 12] {
            let mut wrong = blob.1.clone();
            wrong[at] ^= 1;
            assert_eq!(open(&test, &wrong).err(), Some(INVALID_VALUE), "byte {at}");
        }
        let opened = open(&test, &blob.1).expect("the memory");
        let kind: ur_usm_type_t = info(&test, opened, UR_USM_ALLOC_INFO_TYPE);
        assert_eq!(kind, UR_USM_TYPE_DEVICE);
        let base: usize = info(
            &test,
            opened.wrapping_byte_add(8),
            UR_USM_ALLOC_INFO_BASE_PTR,
        );
        assert_eq!(base, opened.addr());
        assert_eq!(
            get(&test, opened).err(),
            Some(INVALID_VALUE),
            "another's memory"
        );
        assert_eq!(free(&test, opened), UR_RESULT_ERROR_INVALID_MEM_OBJECT);
        assert_eq!(close(&test, memory), INVALID_VALUE, "not opened");
        let physical = ur!(IPCExp.pfnPutPhysMemHandleExp(test.context, blob.0));
        assert_eq!(physical, INVALID_VALUE, "another kind of blob");
        // The context ends what is left: the blob and the opened memory.
        ok(free(&test, memory));
        test.end(&driver);
    });
}

#[test]
fn no_failure_loses_shared_memory() {
    /// `CUDA_ERROR_OUT_OF_MEMORY`
    const REFUSED: u32 = 2;
    alone("tests::sharing::no_failure_loses_shared_memory", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(64);
        let memory = alloc(&test, 5 * MIB);
        bytes_at(memory, 5 * MIB).fill(3);
        let mut met = Vec::new();
        for nth in 1.. {
            driver.fail(nth, REFUSED);
            let blob = get(&test, memory).expect("no call of the driver");
            let opened = open(&test, &blob.1);
            let hit = driver.query().met;
            let report = driver.report();
            driver.reset();
            match opened {
                Ok(opened) => {
                    assert!(bytes_at(opened, 5 * MIB).iter().all(|byte| *byte == 3));
                    ok(close(&test, opened));
                }
                Err(code) => assert_eq!(code, UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, "{report}"),
            }
            ok(put(&test, &blob));
            if !hit {
                break;
            }
            met.push(report);
        }
        for call in [
            "cuMemExportToShareableHandle",
            "cuMemImportFromShareableHandle",
            "cuMemAddressReserve",
            "cuMemMap",
            "cuMemSetAccess",
        ] {
            assert!(
                met.iter().any(|report| report.contains(call)),
                "{call}: {met:?}"
            );
        }
        ok(free(&test, memory));
        test.end(&driver);
    });
}

#[test]
fn without_shareable_handles_nothing_is_shared() {
    let test_all = |why: &str| {
        let driver = FakeDriver::open();
        if why == "driver" {
            driver.fail_each("cuMemExportToShareableHandle", 801);
        }
        let test = TestContext::new(64);
        driver.reset();
        for what in [
            UR_DEVICE_INFO_IPC_MEMORY_SUPPORT_EXP,
            UR_DEVICE_INFO_IPC_PHYSICAL_MEMORY_SUPPORT_EXP,
            UR_DEVICE_INFO_MEMORY_EXPORT_EXPORTABLE_DEVICE_MEM_EXP,
        ] {
            assert!(!supports(&test, what));
        }
        let memory = alloc(&test, 4096);
        let unsupported = UR_RESULT_ERROR_UNSUPPORTED_FEATURE;
        assert_eq!(get(&test, memory).err(), Some(unsupported));
        let own = physical(&test, UR_PHYSICAL_MEM_FLAG_ENABLE_IPC);
        let (mut data, mut size) = (null_mut(), 0);
        let code = ur!(IPCExp.pfnGetPhysMemHandleExp(test.context, own, &mut data, &mut size));
        assert_eq!(code, unsupported);
        ok(ur!(PhysicalMem.pfnRelease(own)));
        ok(free(&test, memory));
        test.end(&driver);
    };
    const NAME: &str = "tests::sharing::without_shareable_handles_nothing_is_shared";
    if !scripted::is_alone(NAME) {
        alone_with(NAME, &[("UR_CUDA_IPC", "0"), ("WHY", "user")], || {});
        alone_with(NAME, &[("WHY", "driver")], || {});
        return;
    }
    test_all(&std::env::var("WHY").expect("a reason"));
}

#[test]
fn no_failure_loses_physical_memory() {
    alone("tests::sharing::no_failure_loses_physical_memory", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(64);
        let memory = physical(&test, UR_PHYSICAL_MEM_FLAG_ENABLE_IPC);
        let (mut data, mut size) = (null_mut(), 0);
        ok(ur!(IPCExp.pfnGetPhysMemHandleExp(
            test.context,
            memory,
            &mut data,
            &mut size
        )));
        let live = driver.query().live;
        let mut met = 0;
        for nth in 1.. {
            driver.fail(nth, 2);
            let mut opened = null_mut();
            let (context, device) = (test.context, test.device);
            let code =
                ur!(IPCExp.pfnOpenPhysMemHandleExp(context, device, data, size, &mut opened));
            let hit = driver.query().met;
            driver.reset();
            if hit {
                assert_eq!(code, UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
                assert_eq!(driver.query().live, live, "{}", driver.report());
                met += 1;
                continue;
            }
            ok(code);
            ok(ur!(IPCExp.pfnClosePhysMemHandleExp(context, opened)));
            break;
        }
        assert_eq!(met, 4, "an export and an import of each of two pages");
        // The context ends the blob, which keeps the memory until then.
        ok(ur!(PhysicalMem.pfnRelease(memory)));
        test.end(&driver);
    });
}

fn physical(test: &TestContext, flags: ur_physical_mem_flags_t) -> ur_physical_mem_handle_t {
    let properties = ur_physical_mem_properties_t {
        flags,
        ..Default::default()
    };
    let mut memory = null_mut();
    ok(ur!(PhysicalMem.pfnCreate(
        test.context,
        test.device,
        2 * PAGE,
        &properties,
        &mut memory
    )));
    memory
}

/// Maps all of it and calls `look` with its bytes.
fn mapped(test: &TestContext, memory: ur_physical_mem_handle_t, look: impl FnOnce(&mut [u8])) {
    let (context, bytes, mut start) = (test.context, 2 * PAGE, null_mut());
    ok(ur!(VirtualMem.pfnReserve(
        context,
        null(),
        bytes,
        &mut start
    )));
    let access = UR_VIRTUAL_MEM_ACCESS_FLAG_READ_WRITE;
    ok(ur!(
        VirtualMem.pfnMap(context, start, bytes, memory, 0, access)
    ));
    look(bytes_at(start, bytes));
    ok(ur!(VirtualMem.pfnUnmap(context, start, bytes)));
    ok(ur!(VirtualMem.pfnFree(context, start, bytes)));
}

#[test]
fn physical_memory_crosses_to_another_process() {
    const NAME: &str = "tests::sharing::physical_memory_crosses_to_another_process";
    alone(NAME, || {
        let driver = FakeDriver::open();
        let test = TestContext::new(64);
        if is_second() {
            let private = physical(&test, ur_physical_mem_flags_t(0));
            let memory = physical(&test, UR_PHYSICAL_MEM_FLAG_ENABLE_IPC);
            let (mut data, mut size) = (null_mut(), 0);
            let refused =
                ur!(IPCExp.pfnGetPhysMemHandleExp(test.context, private, &mut data, &mut size));
            assert_eq!(refused, UR_RESULT_ERROR_INVALID_ARGUMENT);
            ok(ur!(IPCExp.pfnGetPhysMemHandleExp(
                test.context,
                memory,
                &mut data,
                &mut size
            )));
            answer(&blob(data, size).1);
            request().expect("the other process has written");
            mapped(&test, memory, |bytes| {
                assert_eq!([bytes[0], bytes[2 * PAGE - 1]], [5, 6])
            });
            // The blob keeps the memory.
            ok(ur!(PhysicalMem.pfnRelease(memory)));
            answer(&[]);
            request().expect("the other process has opened it again");
            ok(ur!(IPCExp.pfnPutPhysMemHandleExp(test.context, data)));
            ok(ur!(PhysicalMem.pfnRelease(private)));
            return test.end(&driver);
        }
        let mut peer = Peer::start(NAME);
        let blob = peer.receive();
        let open = || {
            let (at, mut memory) = (blob.as_ptr().cast(), null_mut());
            let (context, device) = (test.context, test.device);
            let code =
                ur!(IPCExp.pfnOpenPhysMemHandleExp(context, device, at, blob.len(), &mut memory));
            (code, memory)
        };
        let close = |memory| ur!(IPCExp.pfnClosePhysMemHandleExp(test.context, memory));
        let (code, memory) = open();
        ok(code);
        mapped(&test, memory, |bytes| {
            bytes[0] = 5;
            bytes[2 * PAGE - 1] = 6;
        });
        ok(close(memory));
        peer.send(&[1]);
        peer.receive();
        let (code, memory) = open();
        ok(code);
        mapped(&test, memory, |bytes| assert_eq!(bytes[0], 5));
        let (mut data, mut size) = (null_mut(), 0);
        let again = ur!(IPCExp.pfnGetPhysMemHandleExp(test.context, memory, &mut data, &mut size));
        assert_eq!(again, UR_RESULT_ERROR_INVALID_ARGUMENT, "another's memory");
        ok(close(memory));
        let own = physical(&test, UR_PHYSICAL_MEM_FLAG_ENABLE_IPC);
        assert_eq!(close(own), INVALID_VALUE, "not opened");
        ok(ur!(PhysicalMem.pfnRelease(own)));
        peer.send(&[1]);
        peer.end();
        assert_eq!(open().0, INVALID_VALUE, "the process has ended");
        test.end(&driver);
    });
}

/// A host task that ends once its gate is open.
unsafe extern "C" fn until_open(gate: *mut c_void) {
    // SAFETY: the test keeps the gate until the task has ended.
    let gate = unsafe { &*gate.cast::<Receiver<()>>() };
    gate.recv().expect("the gate opens");
}

fn shared_event(test: &TestContext) -> ur_event_handle_t {
    let desc = ur_exp_event_desc_t {
        flags: UR_EXP_EVENT_FLAG_IPC_EXP,
        ..Default::default()
    };
    let mut event = null_mut();
    ok(ur!(EventExp.pfnCreateExp(
        test.context,
        test.device,
        &desc,
        &mut event
    )));
    event
}

fn status(event: ur_event_handle_t) -> ur_event_status_t {
    let mut status = ur_event_status_t(u32::MAX as _);
    let (what, to) = (
        UR_EVENT_INFO_COMMAND_EXECUTION_STATUS,
        (&raw mut status).cast(),
    );
    ok(ur!(Event.pfnGetInfo(
        event,
        what,
        size_of_val(&status),
        to,
        null_mut()
    )));
    status
}

fn signal(queue: ur_queue_handle_t, event: ur_event_handle_t) {
    let (mut own, list) = (event, null());
    ok(ur!(Enqueue.pfnEventsWaitWithBarrierExt(
        queue,
        null(),
        0,
        list,
        &mut own
    )));
    assert_eq!(own, event, "no new event");
}

#[test]
fn an_event_is_waited_for_by_another_process() {
    const NAME: &str = "tests::sharing::an_event_is_waited_for_by_another_process";
    const ROUNDS: usize = 3;
    alone(NAME, || {
        let driver = FakeDriver::open();
        let test = TestContext::new(64);
        let queue = test.queue(ur_queue_flags_t(0));
        if is_second() {
            let event = shared_event(&test);
            let (mut data, mut size) = (null_mut(), 0);
            ok(ur!(IPCExp.pfnGetEventHandleExp(event, &mut data, &mut size)));
            let blob = blob(data, size);
            let own = {
                let (at, mut opened) = (blob.1.as_ptr().cast(), null_mut());
                ur!(IPCExp.pfnOpenEventHandleExp(test.context, at, size, &mut opened))
            };
            assert_eq!(own, UR_RESULT_ERROR_INVALID_CONTEXT, "the process's own");
            answer(&blob.1);
            for _ in 0..ROUNDS {
                request().expect("a round");
                let (open, gate) = channel::<()>();
                let data: *mut c_void = (&raw const gate).cast_mut().cast();
                let (run, none) = (Some(until_open as _), null_mut());
                ok(ur!(EnqueueExp.pfnHostTaskExp(
                    queue,
                    run,
                    data,
                    null(),
                    0,
                    null(),
                    none
                )));
                signal(queue, event);
                assert_ne!(status(event), UR_EVENT_STATUS_COMPLETE);
                answer(&[]);
                request().expect("the other process waits");
                open.send(()).expect("the task");
                ok(ur!(Event.pfnWait(1, &event)));
                // The fake driver's streams go on within its calls alone.
                ok(ur!(Queue.pfnFinish(queue)));
                answer(&[]);
            }
            // The blob keeps the native event, which the other process still has.
            ok(ur!(Event.pfnRelease(event)));
            request().expect("the other process has released its event");
            ok(ur!(IPCExp.pfnPutEventHandleExp(test.context, data)));
            ok(ur!(Queue.pfnRelease(queue)));
            return test.end(&driver);
        }
        let mut peer = Peer::start(NAME);
        let blob = peer.receive();
        let (at, mut event) = (blob.as_ptr().cast(), null_mut());
        ok(ur!(IPCExp.pfnOpenEventHandleExp(
            test.context,
            at,
            blob.len(),
            &mut event
        )));
        assert_eq!(status(event), UR_EVENT_STATUS_COMPLETE, "never signalled");
        for round in 0..ROUNDS {
            peer.send(&[1]);
            peer.receive();
            assert_ne!(status(event), UR_EVENT_STATUS_COMPLETE, "round {round}");
            let byte = round as u8 + 1;
            let (from, none) = ((&raw const byte).cast(), null_mut());
            ok(ur!(Enqueue.pfnUSMFill(
                queue,
                test.memory,
                1,
                from,
                64,
                1,
                &event,
                none
            )));
            assert_eq!(
                bytes_at(test.memory, 64)[63],
                round as u8,
                "waits for the event"
            );
            peer.send(&[1]);
            peer.receive();
            ok(ur!(Event.pfnWait(1, &event)));
            ok(ur!(Queue.pfnFinish(queue)));
            assert_eq!(bytes_at(test.memory, 64)[63], byte);
            assert_eq!(status(event), UR_EVENT_STATUS_COMPLETE);
        }
        let (mut data, mut size) = (null_mut(), 0);
        let again = ur!(IPCExp.pfnGetEventHandleExp(event, &mut data, &mut size));
        assert_eq!(
            again, UR_RESULT_ERROR_INVALID_EVENT,
            "opened from another process"
        );
        ok(ur!(Event.pfnRelease(event)));
        ok(ur!(Queue.pfnRelease(queue)));
        peer.send(&[1]);
        peer.end();
        test.end(&driver);
    });
}

#[test]
fn only_shared_events_have_blobs() {
    alone("tests::sharing::only_shared_events_have_blobs", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(64);
        let mut event = null_mut();
        let desc = ur_exp_event_desc_t::default();
        ok(ur!(EventExp.pfnCreateExp(
            test.context,
            test.device,
            &desc,
            &mut event
        )));
        let (mut data, mut size) = (null_mut(), 0);
        let get =
            |event, data: &mut _, size: &mut _| ur!(IPCExp.pfnGetEventHandleExp(event, data, size));
        assert_eq!(
            get(event, &mut data, &mut size),
            UR_RESULT_ERROR_INVALID_EVENT
        );
        ok(ur!(Event.pfnRelease(event)));
        driver.fail_each("cuEventCreate", 2);
        let shared = ur_exp_event_desc_t {
            flags: UR_EXP_EVENT_FLAG_IPC_EXP,
            ..Default::default()
        };
        let refused = ur!(EventExp.pfnCreateExp(test.context, test.device, &shared, &mut event));
        assert_eq!(refused, UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
        driver.reset();
        let event = shared_event(&test);
        driver.fail_each("cuIpcGetEventHandle", 2);
        assert_eq!(
            get(event, &mut data, &mut size),
            UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY
        );
        driver.reset();
        ok(get(event, &mut data, &mut size));
        let short =
            ur!(IPCExp.pfnOpenEventHandleExp(test.context, data, size - 1, &mut null_mut()));
        assert_eq!(short, INVALID_VALUE);
        ok(ur!(IPCExp.pfnPutEventHandleExp(test.context, data)));
        let twice = ur!(IPCExp.pfnPutEventHandleExp(test.context, data));
        assert_eq!(twice, INVALID_VALUE);
        // A barrier whose record the driver refuses is an error, and the queue goes on.
        let queue = test.queue(ur_queue_flags_t(0));
        driver.fail_nth("cuEventRecord", 1, 719);
        let mut own = event;
        let code = ur!(Enqueue.pfnEventsWaitWithBarrierExt(queue, null(), 0, null(), &mut own));
        assert_eq!(code, UR_RESULT_ERROR_DEVICE_LOST);
        driver.reset();
        signal(queue, event);
        ok(ur!(Event.pfnWait(1, &event)));
        ok(ur!(Event.pfnRelease(event)));
        ok(ur!(Queue.pfnRelease(queue)));
        test.end(&driver);
    });
}

#[test]
fn exportable_memory_has_descriptors() {
    alone("tests::sharing::exportable_memory_has_descriptors", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(64);
        let (context, device) = (test.context, test.device);
        let descriptor = UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD;
        let alloc = |align, size, kind, to: &mut *mut c_void| {
            ur!(MemoryExportExp.pfnAllocExportableMemoryExp(context, device, align, size, kind, to))
        };
        let free =
            |memory| ur!(MemoryExportExp.pfnFreeExportableMemoryExp(context, device, memory));
        let export = |kind, memory, to: &mut c_int| {
            let to = (&raw mut *to).cast();
            ur!(MemoryExportExp.pfnExportMemoryHandleExp(context, device, kind, memory, to))
        };
        let (mut memory, mut number) = (null_mut(), -1);
        let other = UR_EXP_EXTERNAL_MEM_TYPE_WIN32_NT;
        let unsupported = UR_RESULT_ERROR_UNSUPPORTED_FEATURE;
        assert_eq!(alloc(0, 64, other, &mut memory), unsupported);
        assert_eq!(alloc(4 * MIB, 64, descriptor, &mut memory), INVALID_VALUE);
        let large = alloc(0, usize::MAX, descriptor, &mut memory);
        assert_eq!(large, UR_RESULT_ERROR_UNSUPPORTED_SIZE);
        for nth in 1.. {
            driver.fail(nth, 2);
            let code = alloc(0, 3 * MIB, descriptor, &mut memory);
            let met = driver.query().met;
            driver.reset();
            if !met {
                ok(code);
                break;
            }
            assert_eq!(code, UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
        }
        bytes_at(memory, 3 * MIB).fill(4);
        assert_eq!(
            info::<usize>(&test, memory, UR_USM_ALLOC_INFO_SIZE),
            3 * MIB
        );
        assert_eq!(export(other, memory, &mut number), unsupported);
        let inside = memory.wrapping_byte_add(1);
        assert_eq!(export(descriptor, inside, &mut number), INVALID_VALUE);
        driver.fail_each("cuMemExportToShareableHandle", 2);
        let refused = export(descriptor, memory, &mut number);
        assert_eq!(refused, UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
        driver.reset();
        ok(export(descriptor, memory, &mut number));
        // SAFETY: exported just now, for the caller.
        let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(number) });
        let mut byte = [0];
        std::os::unix::fs::FileExt::read_at(&file, &mut byte, 3 * MIB as u64 - 1).expect("a byte");
        assert_eq!(byte, [4]);
        assert_eq!(free(inside), INVALID_VALUE);
        ok(free(memory));
        assert_eq!(free(memory), INVALID_VALUE);
        // The context ends what is left.
        ok(alloc(2 * MIB, 64, descriptor, &mut memory));
        assert!(memory.addr().is_multiple_of(2 * MIB));
        test.end(&driver);
    });
}

/// Memory that begins at a page's start, so that registering it affects no neighbour.
#[repr(C, align(4096))]
struct Bytes([u8; 8192]);

#[test]
fn host_memory_is_registered() {
    alone("tests::sharing::host_memory_is_registered", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(64);
        assert!(supports(
            &test,
            UR_DEVICE_INFO_USM_HOST_ALLOC_REGISTER_SUPPORT_EXP
        ));
        let mut own = Box::new(Bytes([0; 8192]));
        let memory: *mut c_void = own.0.as_mut_ptr().cast();
        let register =
            |at, size| ur!(USMExp.pfnHostAllocRegisterExp(test.context, at, size, null()));
        let unregister = |at| ur!(USMExp.pfnHostAllocUnregisterExp(test.context, at));
        driver.fail_each("cuMemHostRegister", 2);
        assert_eq!(register(memory, 8192), UR_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        driver.reset();
        assert_eq!(unregister(memory), INVALID_VALUE, "not registered");
        let properties = ur_exp_usm_host_alloc_register_properties_t {
            flags: UR_EXP_USM_HOST_ALLOC_REGISTER_FLAG_READ_ONLY,
            ..Default::default()
        };
        ok(ur!(USMExp.pfnHostAllocRegisterExp(
            test.context,
            memory,
            8192,
            &properties
        )));
        let inside = memory.wrapping_byte_add(4096);
        assert_eq!(register(inside, 4096), INVALID_VALUE, "overlaps");
        assert_eq!(unregister(inside), INVALID_VALUE);
        let kind: ur_usm_type_t = info(&test, inside, UR_USM_ALLOC_INFO_TYPE);
        assert_eq!(kind, UR_USM_TYPE_HOST);
        assert_eq!(
            info::<usize>(&test, inside, UR_USM_ALLOC_INFO_BASE_PTR),
            memory.addr()
        );
        ok(unregister(memory));
        let kind: ur_usm_type_t = info(&test, memory, UR_USM_ALLOC_INFO_TYPE);
        assert_eq!(kind, UR_USM_TYPE_UNKNOWN);
        // An import is a hint: what the driver refuses is no error, and needs no end.
        let calls = driver.calls("cuMemHostRegister", || {
            ok(ur!(USMExp.pfnImportExp(test.context, memory, 4096)));
            ok(ur!(USMExp.pfnImportExp(test.context, memory, 4096)));
        });
        assert_eq!(calls, 2);
        let calls = driver.calls("cuMemHostUnregister", || {
            ok(ur!(USMExp.pfnReleaseExp(test.context, memory)));
            ok(ur!(USMExp.pfnReleaseExp(test.context, memory)));
        });
        assert_eq!(calls, 1);
        // The context ends what is left.
        ok(register(memory, 4096));
        ok(ur!(USMExp.pfnImportExp(test.context, inside, 4096)));
        test.end(&driver);
    });
}

#[test]
fn contexts_of_several_devices_share() {
    alone("tests::sharing::contexts_of_several_devices_share", || {
        let driver = FakeDriver::open();
        driver.devices(2);
        let adapter = adapter();
        let devices = devices(adapter);
        let mut context = null_mut();
        ok(ur!(Context.pfnCreate(
            2,
            devices.as_ptr(),
            null(),
            &mut context
        )));
        for device in &devices {
            let (mut memory, mut opened) = (null_mut(), null_mut());
            ok(ur!(USM.pfnDeviceAlloc(
                context,
                *device,
                null(),
                null_mut(),
                64,
                &mut memory
            )));
            let (mut data, mut size) = (null_mut(), 0);
            ok(ur!(
                IPCExp.pfnGetMemHandleExp(context, memory, &mut data, &mut size)
            ));
            ok(ur!(IPCExp.pfnOpenMemHandleExp(
                context,
                *device,
                data,
                size,
                &mut opened
            )));
            ok(ur!(IPCExp.pfnCloseMemHandleExp(context, opened)));
            ok(ur!(IPCExp.pfnPutMemHandleExp(context, data)));
            ok(ur!(USM.pfnFree(context, memory)));
        }
        let (mut memory, kind) = (null_mut(), UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD);
        let second = devices[1];
        ok(ur!(MemoryExportExp.pfnAllocExportableMemoryExp(
            context,
            second,
            0,
            64,
            kind,
            &mut memory
        )));
        let elsewhere =
            ur!(MemoryExportExp.pfnFreeExportableMemoryExp(context, devices[0], memory));
        assert_eq!(elsewhere, UR_RESULT_ERROR_INVALID_DEVICE);
        ok(ur!(
            MemoryExportExp.pfnFreeExportableMemoryExp(context, second, memory)
        ));
        ok(ur!(Context.pfnRelease(context)));
        ok(ur!(Adapter.pfnRelease(adapter)));
        driver.check_end("the end");
    });
}

/// Memory that is opened on another device than its own.
struct Elsewhere<'a> {
    two: &'a TwoDevices,
    blob: (*mut c_void, usize),
}

impl Elsewhere<'_> {
    fn open(&self, context: ur_context_handle_t, at: usize) -> Result<*mut c_void, ur_result_t> {
        let ((data, size), device) = (self.blob, self.two.devices[at]);
        let mut memory = null_mut();
        match ur!(IPCExp.pfnOpenMemHandleExp(context, device, data, size, &mut memory)) {
            UR_RESULT_SUCCESS => Ok(memory),
            code => Err(code),
        }
    }
}

fn device_of(context: ur_context_handle_t, memory: *mut c_void) -> ur_device_handle_t {
    let mut device: ur_device_handle_t = null_mut();
    let (what, to) = (UR_USM_ALLOC_INFO_DEVICE, (&raw mut device).cast());
    let size = size_of::<ur_device_handle_t>();
    ok(ur!(USM.pfnGetMemAllocInfo(
        context,
        memory,
        what,
        size,
        to,
        null_mut()
    )));
    device
}

#[test]
fn other_devices_use_opened_memory() {
    alone("tests::sharing::other_devices_use_opened_memory", || {
        let driver = FakeDriver::open();
        driver.devices(2);
        for setting in Setting::all() {
            if !setting.pages {
                continue;
            }
            let two = TwoDevices::new(&driver, setting);
            let (memory, context) = (two.memory(0, false), two.context);
            two.set(0, memory, 5);
            let (mut data, mut size) = (null_mut(), 0);
            ok(ur!(
                IPCExp.pfnGetMemHandleExp(context, memory, &mut data, &mut size)
            ));
            let blob = (data, size);
            let elsewhere = Elsewhere { two: &two, blob };
            let refused = Err(UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
            // The holder opens it in any setting, and the other device's commands reach it.
            let near = elsewhere
                .open(context, 0)
                .expect("memory of its own device");
            let far = elsewhere.open(context, 1);
            assert_eq!(far.is_ok(), setting.links, "{setting:?}");
            for opened in [Some(near), far.ok()].into_iter().flatten() {
                assert_eq!(device_of(context, opened), two.devices[0]);
                for at in [0, 1] {
                    let byte = 10 + at as u8;
                    two.set(at, opened, byte);
                    assert_eq!(bytes(memory), [byte; 64], "{setting:?}");
                }
            }
            // A context without the holder.
            let (mut alone, device) = (null_mut(), two.devices[1]);
            ok(ur!(Context.pfnCreate(1, &device, null(), &mut alone)));
            match elsewhere.open(alone, 1) {
                Ok(opened) => {
                    assert!(setting.links);
                    assert_eq!(device_of(alone, opened), device);
                    let queue = queue(alone, device, ur_queue_flags_t(0));
                    fill(queue, opened, &[33], 64);
                    ok(ur!(Queue.pfnFinish(queue)));
                    assert_eq!(bytes(memory), [33; 64]);
                    ok(ur!(Queue.pfnRelease(queue)));
                    ok(ur!(IPCExp.pfnCloseMemHandleExp(alone, opened)));
                }
                refusal => assert!(refusal == refused && !setting.links),
            }
            ok(ur!(Context.pfnRelease(alone)));
            if let Ok(far) = far {
                // Access that is taken goes for opened memory, too, and commands find another way.
                let (user, home) = (two.devices[1], two.devices[0]);
                ok(ur!(UsmP2PExp.pfnEnablePeerAccessExp(user, home)));
                ok(ur!(UsmP2PExp.pfnDisablePeerAccessExp(user, home)));
                assert_eq!(elsewhere.open(context, 1), refused);
                for (opened, byte) in [(near, 40), (far, 41)] {
                    two.set(1, opened, byte);
                    assert_eq!(bytes(memory), [byte; 64]);
                }
                ok(ur!(UsmP2PExp.pfnEnablePeerAccessExp(user, home)));
                two.set(1, far, 42);
                assert_eq!(bytes(memory), [42; 64]);
                ok(ur!(UsmP2PExp.pfnDisablePeerAccessExp(user, home)));
                ok(ur!(IPCExp.pfnCloseMemHandleExp(context, far)));
            }
            ok(ur!(IPCExp.pfnCloseMemHandleExp(context, near)));
            ok(ur!(IPCExp.pfnPutMemHandleExp(context, data)));
            two.free(memory);
            two.end(&driver);
        }
    });
}

#[test]
fn other_devices_map_opened_physical_memory() {
    let name = "tests::sharing::other_devices_map_opened_physical_memory";
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        for links in [true, false] {
            #[rustfmt::skip]
            let setting = Setting { links, pages: true, turned: false };
            let two = TwoDevices::new(&driver, setting);
            let context = two.context;
            let what = ur_physical_mem_properties_t {
                flags: UR_PHYSICAL_MEM_FLAG_ENABLE_IPC,
                ..Default::default()
            };
            let (mut own, mut data, mut size) = (null_mut(), null_mut(), 0);
            let home = two.devices[0];
            ok(ur!(
                PhysicalMem.pfnCreate(context, home, PAGE, &what, &mut own)
            ));
            ok(ur!(IPCExp.pfnGetPhysMemHandleExp(
                context, own, &mut data, &mut size
            )));
            let mut opened = null_mut();
            let user = two.devices[1];
            let code = ur!(IPCExp.pfnOpenPhysMemHandleExp(context, user, data, size, &mut opened));
            if links {
                ok(code);
                let (mut start, none) = (null_mut(), null());
                ok(ur!(VirtualMem.pfnReserve(context, none, PAGE, &mut start)));
                let flags = UR_VIRTUAL_MEM_ACCESS_FLAG_READ_WRITE;
                ok(ur!(
                    VirtualMem.pfnMap(context, start, PAGE, opened, 0, flags)
                ));
                for at in [0, 1] {
                    two.set(at, start, 7 + at as u8);
                    assert_eq!(bytes(start), [7 + at as u8; 64]);
                }
                ok(ur!(VirtualMem.pfnUnmap(context, start, PAGE)));
                ok(ur!(VirtualMem.pfnFree(context, start, PAGE)));
                ok(ur!(IPCExp.pfnClosePhysMemHandleExp(context, opened)));
            } else {
                assert_eq!(code, UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
            }
            ok(ur!(IPCExp.pfnPutPhysMemHandleExp(context, data)));
            ok(ur!(PhysicalMem.pfnRelease(own)));
            two.end(&driver);
        }
    });
}

/// Devices that the driver refuses access to opened memory, although it said that they can have it, use the memory
/// through copies.
#[test]
fn opened_memory_without_access_is_copied() {
    let name = "tests::sharing::opened_memory_without_access_is_copied";
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        let two = TwoDevices::new(&driver, Setting::linked(true));
        let (memory, context) = (two.memory(0, false), two.context);
        let (mut data, mut size) = (null_mut(), 0);
        ok(ur!(
            IPCExp.pfnGetMemHandleExp(context, memory, &mut data, &mut size)
        ));
        let blob = (data, size);
        let elsewhere = Elsewhere { two: &two, blob };
        driver.fail_nth("cuMemSetAccess", 1, 801);
        let far = elsewhere.open(context, 1);
        assert_eq!(far, Err(UR_RESULT_ERROR_UNSUPPORTED_FEATURE));
        driver.fail_nth("cuMemSetAccess", 1, 801);
        let near = elsewhere
            .open(context, 0)
            .expect("memory of its own device");
        assert!(driver.query().met);
        driver.reset();
        for at in [0, 1] {
            let byte = 20 + at as u8;
            two.set(at, near, byte);
            assert_eq!(bytes(memory), [byte; 64]);
        }
        assert_eq!(elsewhere.open(context, 1), far);
        ok(ur!(IPCExp.pfnCloseMemHandleExp(context, near)));
        ok(ur!(IPCExp.pfnPutMemHandleExp(context, data)));
        two.free(memory);
        two.end(&driver);
    });
}

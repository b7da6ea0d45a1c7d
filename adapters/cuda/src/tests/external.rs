//! Memory and semaphores of another interface.

use std::ffi::c_void;
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::ptr::{null, null_mut};

use ur::abi::*;

use super::bindless::{INTO, OUT_OF, RGBA8, TO_DEVICE, TO_HOST, address, copy, image, region};
use super::fake_driver::{FakeDriver, adapter, alone, devices, ur};
use super::test_context::TestContext;
use super::workload::Steps;

const NONE: ur_result_t = UR_RESULT_SUCCESS;
const INVALID_VALUE: ur_result_t = UR_RESULT_ERROR_INVALID_VALUE;
pub const OPAQUE: ur_exp_external_mem_type_t = UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD;
const BINARY: ur_exp_external_semaphore_type_t = UR_EXP_EXTERNAL_SEMAPHORE_TYPE_OPAQUE_FD;
pub const TIMELINE: ur_exp_external_semaphore_type_t = UR_EXP_EXTERNAL_SEMAPHORE_TYPE_TIMELINE_FD;

pub type Place = (ur_context_handle_t, ur_device_handle_t);

/// Imports memory. The descriptor is the driver's if that succeeds, else the caller's still.
pub fn import(
    (context, device): Place,
    file: OwnedFd,
    size: usize,
    kind: ur_exp_external_mem_type_t,
) -> Result<ur_exp_external_mem_handle_t, (ur_result_t, OwnedFd)> {
    let mut own = ur_exp_file_descriptor_t {
        fd: file.as_raw_fd(),
        ..Default::default()
    };
    let mut desc = ur_exp_external_mem_desc_t {
        pNext: (&raw mut own).cast(),
        ..Default::default()
    };
    let mut made = null_mut();
    match ur!(BindlessImagesExp
        .pfnImportExternalMemoryExp(context, device, size, kind, &mut desc, &mut made))
    {
        NONE => {
            let _ = file.into_raw_fd();
            Ok(made)
        }
        code => Err((code, file)),
    }
}

pub fn import_semaphore(
    (context, device): Place,
    file: OwnedFd,
    kind: ur_exp_external_semaphore_type_t,
) -> Result<ur_exp_external_semaphore_handle_t, (ur_result_t, OwnedFd)> {
    let mut own = ur_exp_file_descriptor_t {
        fd: file.as_raw_fd(),
        ..Default::default()
    };
    let mut desc = ur_exp_external_semaphore_desc_t {
        pNext: (&raw mut own).cast(),
        ..Default::default()
    };
    let mut made = null_mut();
    match ur!(BindlessImagesExp
        .pfnImportExternalSemaphoreExp(context, device, kind, &mut desc, &mut made))
    {
        NONE => {
            let _ = file.into_raw_fd();
            Ok(made)
        }
        code => Err((code, file)),
    }
}

pub fn map(
    (context, device): Place,
    memory: ur_exp_external_mem_handle_t,
    offset: u64,
    size: u64,
) -> Result<*mut c_void, ur_result_t> {
    let mut at = null_mut();
    match ur!(BindlessImagesExp
        .pfnMapExternalLinearMemoryExp(context, device, offset, size, memory, &mut at))
    {
        NONE => Ok(at),
        code => Err(code),
    }
}

pub fn free((context, device): Place, at: *mut c_void) -> ur_result_t {
    ur!(BindlessImagesExp.pfnFreeMappedLinearMemoryExp(context, device, at))
}

pub fn release((context, device): Place, memory: ur_exp_external_mem_handle_t) -> ur_result_t {
    ur!(BindlessImagesExp.pfnReleaseExternalMemoryExp(context, device, memory))
}

pub fn release_semaphore(
    (context, device): Place,
    semaphore: ur_exp_external_semaphore_handle_t,
) -> ur_result_t {
    ur!(BindlessImagesExp.pfnReleaseExternalSemaphoreExp(context, device, semaphore))
}

pub fn place(test: &TestContext) -> Place {
    (test.context, test.device)
}

#[test]
fn imported_memory_is_mapped_in_parts() {
    alone(
        "tests::external::imported_memory_is_mapped_in_parts",
        || {
            let driver = FakeDriver::open();
            let test = TestContext::new(64);
            let here = place(&test);
            let queue = test.queue(ur_queue_flags_t(0));
            let memory = import(here, driver.external_memory(8192), 8192, OPAQUE).expect("memory");
            let whole = map(here, memory, 0, 8192).expect("a mapping");
            let part = map(here, memory, 4096, 100).expect("a part");
            let fill = |at, value: u8, bytes| {
                let pattern = (&raw const value).cast();
                ur!(Enqueue.pfnUSMFill(queue, at, 1, pattern, bytes, 0, null(), null_mut()))
            };
            assert_eq!(fill(whole, 1, 8192), NONE);
            assert_eq!(fill(part, 2, 100), NONE);
            let mut seen = [0_u8; 8192];
            let to = seen.as_mut_ptr().cast();
            assert_eq!(
                ur!(Enqueue.pfnUSMMemcpy(queue, 1, to, whole, 8192, 0, null(), null_mut())),
                NONE
            );
            assert!(seen[..4096].iter().all(|byte| *byte == 1));
            assert!(seen[4096..4196].iter().all(|byte| *byte == 2));
            assert!(seen[4196..].iter().all(|byte| *byte == 1));
            for (offset, size) in [(0, 0), (8192, 1), (1, 8192), (u64::MAX, 2)] {
                assert_eq!(map(here, memory, offset, size), Err(INVALID_VALUE));
            }
            let mut kind = ur_usm_type_t::default();
            let (to, size) = ((&raw mut kind).cast(), size_of::<ur_usm_type_t>());
            let what = UR_USM_ALLOC_INFO_TYPE;
            assert_eq!(
                ur!(USM.pfnGetMemAllocInfo(test.context, part, what, size, to, null_mut())),
                NONE
            );
            assert_eq!(kind, UR_USM_TYPE_DEVICE);
            // A mapping keeps the memory.
            assert_eq!(release(here, memory), NONE);
            assert_eq!(free(here, part), NONE);
            assert_eq!(free(here, part), INVALID_VALUE, "freed twice");
            assert_eq!(
                ur!(USM.pfnFree(test.context, whole)),
                UR_RESULT_ERROR_INVALID_MEM_OBJECT
            );
            // The context ends the other one.
            assert_eq!(ur!(Queue.pfnRelease(queue)), NONE);
            test.end(&driver);
        },
    );
}

#[test]
fn imported_memory_is_an_image() {
    alone("tests::external::imported_memory_is_an_image", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(64);
        let here @ (context, device) = place(&test);
        let queue = test.queue(ur_queue_flags_t(0));
        for levels in [1, 3] {
            let memory = import(here, driver.external_memory(8192), 8192, OPAQUE).expect("memory");
            let linear = map(here, memory, 0, 8192).expect("a mapping");
            let desc = image(UR_MEM_TYPE_IMAGE2D, [8, 4, 0], levels);
            let mut mapped = 0;
            let code = ur!(BindlessImagesExp.pfnMapExternalArrayExp(
                context,
                device,
                &RGBA8,
                &desc,
                memory,
                &mut mapped
            ));
            assert_eq!(code, NONE);
            let mut first = mapped;
            if levels > 1 {
                let code =
                    ur!(BindlessImagesExp
                        .pfnMipmapGetLevelExp(context, device, mapped, 0, &mut first));
                assert_eq!(code, NONE);
            }
            let flat = image(UR_MEM_TYPE_IMAGE2D, [8, 4, 0], 1);
            let from: Vec<u32> = (1..33).collect();
            let mut to = [0_u32; 32];
            let whole = region([0; 3], [0; 3], [8, 4, 1]);
            let source = (address(&from), &flat);
            assert_eq!(
                copy(queue, source, (first, &flat), &whole, (TO_DEVICE, INTO)),
                NONE
            );
            let back = (to.as_mut_ptr().expose_provenance(), &flat);
            assert_eq!(
                copy(queue, (first, &flat), back, &whole, (TO_HOST, OUT_OF)),
                NONE
            );
            assert_eq!(ur!(Queue.pfnFinish(queue)), NONE);
            assert_eq!(from, to);
            // The fake driver lays texels out in order.
            let there = to.as_mut_ptr().cast();
            to.fill(0);
            assert_eq!(
                ur!(Enqueue.pfnUSMMemcpy(queue, 1, there, linear, 128, 0, null(), null_mut())),
                NONE
            );
            assert_eq!(from, to);
            let large = image(UR_MEM_TYPE_IMAGE2D, [64, 64, 0], 1);
            let code = ur!(BindlessImagesExp
                .pfnMapExternalArrayExp(context, device, &RGBA8, &large, memory, &mut first));
            assert_eq!(code, UR_RESULT_ERROR_INVALID_IMAGE_SIZE);
            assert_eq!(release(here, memory), NONE);
            let ended = match levels {
                1 => ur!(BindlessImagesExp.pfnImageFreeExp(context, device, mapped)),
                _ => ur!(BindlessImagesExp.pfnMipmapFreeExp(context, device, mapped)),
            };
            assert_eq!(ended, NONE);
            assert_eq!(free(here, linear), NONE);
        }
        assert_eq!(ur!(Queue.pfnRelease(queue)), NONE);
        test.end(&driver);
    });
}

#[test]
fn memory_that_one_part_exports_another_imports() {
    let name = "tests::external::memory_that_one_part_exports_another_imports";
    alone(name, || {
        let driver = FakeDriver::open();
        let test = TestContext::new(64);
        let here @ (context, device) = place(&test);
        const BYTES: usize = 1 << 16;
        let (mut exported, mut file) = (null_mut(), -1_i32);
        let code = ur!(MemoryExportExp.pfnAllocExportableMemoryExp(
            context,
            device,
            0,
            BYTES,
            OPAQUE,
            &mut exported
        ));
        assert_eq!(code, NONE);
        let to = (&raw mut file).cast();
        let code =
            ur!(MemoryExportExp.pfnExportMemoryHandleExp(context, device, OPAQUE, exported, to));
        assert_eq!(code, NONE);
        // SAFETY: a descriptor of the caller's.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let memory = import(here, file, BYTES, OPAQUE).expect("memory");
        let mapped = map(here, memory, 0, BYTES as u64).expect("a mapping");
        assert_ne!(mapped, exported);
        let queue = test.queue(ur_queue_flags_t(0));
        let (value, mut seen) = (0x55_u8, 0_u8);
        let (pattern, to) = ((&raw const value).cast(), (&raw mut seen).cast());
        let last = mapped.wrapping_byte_add(BYTES - 1);
        assert_eq!(
            ur!(Enqueue.pfnUSMFill(queue, exported, 1, pattern, BYTES, 0, null(), null_mut())),
            NONE
        );
        assert_eq!(
            ur!(Enqueue.pfnUSMMemcpy(queue, 1, to, last, 1, 0, null(), null_mut())),
            NONE
        );
        assert_eq!(seen, value);
        assert_eq!(ur!(Queue.pfnRelease(queue)), NONE);
        assert_eq!(free(here, mapped), NONE);
        assert_eq!(release(here, memory), NONE);
        let code = ur!(MemoryExportExp.pfnFreeExportableMemoryExp(context, device, exported));
        assert_eq!(code, NONE);
        test.end(&driver);
    });
}

#[test]
fn wrong_imports_are_refused() {
    alone("tests::external::wrong_imports_are_refused", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(64);
        let here @ (context, device) = place(&test);
        let file = driver.external_memory(4096);
        let (code, file) = import(here, file, 0, OPAQUE).expect_err("no size");
        assert_eq!(code, INVALID_VALUE);
        let (code, file) = import(here, file, 8192, OPAQUE).expect_err("too large");
        assert_eq!(code, INVALID_VALUE);
        let windows = UR_EXP_EXTERNAL_MEM_TYPE_WIN32_NT;
        let (code, file) = import(here, file, 4096, windows).expect_err("another system");
        assert_eq!(code, UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
        let (code, file) = import_semaphore(here, file, BINARY).expect_err("memory");
        assert_eq!(code, INVALID_VALUE);
        let mut made = null_mut();
        let mut bare = ur_exp_external_mem_desc_t::default();
        let code = ur!(BindlessImagesExp
            .pfnImportExternalMemoryExp(context, device, 4096, OPAQUE, &mut bare, &mut made));
        assert_eq!(code, INVALID_VALUE, "no descriptor");
        let mut made = null_mut();
        let mut bare = ur_exp_external_semaphore_desc_t::default();
        let code = ur!(BindlessImagesExp
            .pfnImportExternalSemaphoreExp(context, device, BINARY, &mut bare, &mut made));
        assert_eq!(code, INVALID_VALUE, "no descriptor");
        let semaphore = driver.semaphore(true);
        let (code, semaphore) = import_semaphore(here, semaphore, BINARY).expect_err("it counts");
        assert_eq!(code, INVALID_VALUE);
        let fence = UR_EXP_EXTERNAL_SEMAPHORE_TYPE_WIN32_NT_DX12_FENCE;
        let (code, _) = import_semaphore(here, semaphore, fence).expect_err("another system");
        assert_eq!(code, UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
        for (kind, able) in [
            (OPAQUE, 1),
            (UR_EXP_EXTERNAL_MEM_TYPE_DMA_BUF, 0),
            (windows, 0),
        ] {
            let mut found = 7;
            let code =
                ur!(BindlessImagesExp.pfnSupportsImportingHandleTypeExp(device, kind, &mut found));
            assert_eq!((code, found), (NONE, able), "{kind:?}");
        }
        drop(file);
        test.end(&driver);
    });
}

pub fn wait(
    queue: ur_queue_handle_t,
    semaphore: ur_exp_external_semaphore_handle_t,
    value: Option<u64>,
    after: &[ur_event_handle_t],
) -> ur_event_handle_t {
    let mut event = null_mut();
    let (count, first) = (
        after.len() as u32,
        if after.is_empty() {
            null()
        } else {
            after.as_ptr()
        },
    );
    let code = ur!(BindlessImagesExp.pfnWaitExternalSemaphoreExp(
        queue,
        semaphore,
        value.is_some().into(),
        value.unwrap_or(0),
        count,
        first,
        &mut event
    ));
    assert_eq!(code, NONE);
    event
}

pub fn signal(
    queue: ur_queue_handle_t,
    semaphore: ur_exp_external_semaphore_handle_t,
    value: Option<u64>,
    after: &[ur_event_handle_t],
) -> ur_event_handle_t {
    let mut event = null_mut();
    let (count, first) = (
        after.len() as u32,
        if after.is_empty() {
            null()
        } else {
            after.as_ptr()
        },
    );
    let code = ur!(BindlessImagesExp.pfnSignalExternalSemaphoreExp(
        queue,
        semaphore,
        value.is_some().into(),
        value.unwrap_or(0),
        count,
        first,
        &mut event
    ));
    assert_eq!(code, NONE);
    event
}

fn status(event: ur_event_handle_t) -> ur_event_status_t {
    let mut status = ur_event_status_t::default();
    let (to, size) = ((&raw mut status).cast(), size_of::<ur_event_status_t>());
    let what = UR_EVENT_INFO_COMMAND_EXECUTION_STATUS;
    assert_eq!(
        ur!(Event.pfnGetInfo(event, what, size, to, null_mut())),
        NONE
    );
    status
}

fn command(event: ur_event_handle_t) -> ur_command_t {
    let mut command = ur_command_t::default();
    let (to, size) = ((&raw mut command).cast(), size_of::<ur_command_t>());
    let what = UR_EVENT_INFO_COMMAND_TYPE;
    assert_eq!(
        ur!(Event.pfnGetInfo(event, what, size, to, null_mut())),
        NONE
    );
    command
}

pub fn end(events: &[ur_event_handle_t]) {
    for event in events {
        assert_eq!(ur!(Event.pfnRelease(*event)), NONE);
    }
}

#[test]
fn a_wait_holds_back_what_comes_after() {
    alone(
        "tests::external::a_wait_holds_back_what_comes_after",
        || {
            let driver = FakeDriver::open();
            let orders = [
                ur_queue_flags_t(0),
                UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE,
            ];
            for (flags, counts) in orders
                .into_iter()
                .flat_map(|flags| [(flags, false), (flags, true)])
            {
                let test = TestContext::new(64);
                let here = place(&test);
                let queue = test.queue(flags);
                let file = driver.semaphore(counts);
                let other = file.try_clone().expect("a second descriptor");
                let kind = if counts { TIMELINE } else { BINARY };
                let semaphore = import_semaphore(here, file, kind).expect("a semaphore");
                let value = counts.then_some(7);
                let waited = wait(queue, semaphore, value, &[]);
                let signalled = signal(queue, semaphore, counts.then_some(9), &[waited]);
                assert_eq!(command(waited), UR_COMMAND_EXTERNAL_SEMAPHORE_WAIT_EXP);
                assert_eq!(command(signalled), UR_COMMAND_EXTERNAL_SEMAPHORE_SIGNAL_EXP);
                let early = if counts { 6 } else { 0 };
                driver.set_semaphore(&other, early);
                assert_ne!(status(signalled), UR_EVENT_STATUS_COMPLETE);
                assert_ne!(status(waited), UR_EVENT_STATUS_COMPLETE);
                driver.set_semaphore(&other, if counts { 7 } else { 1 });
                assert_eq!(ur!(Event.pfnWait(1, &signalled)), NONE);
                assert_eq!(status(waited), UR_EVENT_STATUS_COMPLETE);
                assert_eq!(driver.semaphore_count(&other), if counts { 9 } else { 1 });
                end(&[waited, signalled]);
                assert_eq!(release_semaphore(here, semaphore), NONE);
                assert_eq!(ur!(Queue.pfnRelease(queue)), NONE);
                test.end(&driver);
            }
        },
    );
}

#[test]
fn a_semaphore_serves_its_device() {
    alone("tests::external::a_semaphore_serves_its_device", || {
        let driver = FakeDriver::open();
        driver.devices(2);
        let adapter = adapter();
        let both = devices(adapter);
        let (mut context, mut queue) = (null_mut(), null_mut());
        assert_eq!(
            ur!(Context.pfnCreate(2, both.as_ptr(), null(), &mut context)),
            NONE
        );
        assert_eq!(
            ur!(Queue.pfnCreate(context, both[1], null(), &mut queue)),
            NONE
        );
        let here = (context, both[0]);
        let semaphore = import_semaphore(here, driver.semaphore(true), TIMELINE);
        let semaphore = semaphore.expect("a semaphore");
        let code = ur!(BindlessImagesExp.pfnSignalExternalSemaphoreExp(
            queue,
            semaphore,
            1,
            1,
            0,
            null(),
            null_mut()
        ));
        assert_eq!(code, INVALID_VALUE);
        let there = (context, both[1]);
        assert_eq!(
            release_semaphore(there, semaphore),
            UR_RESULT_ERROR_INVALID_DEVICE
        );
        assert_eq!(release_semaphore(here, semaphore), NONE);
        let memory = import(here, driver.external_memory(4096), 4096, OPAQUE).expect("memory");
        assert_eq!(
            map(there, memory, 0, 16),
            Err(UR_RESULT_ERROR_INVALID_DEVICE)
        );
        assert_eq!(release(there, memory), UR_RESULT_ERROR_INVALID_DEVICE);
        assert_eq!(release(here, memory), NONE);
        assert_eq!(ur!(Queue.pfnRelease(queue)), NONE);
        assert_eq!(ur!(Context.pfnRelease(context)), NONE);
        assert_eq!(ur!(Adapter.pfnRelease(adapter)), NONE);
        driver.check_end("the end");
    });
}

/// A part of everything, each step recorded.
fn play(driver: &FakeDriver) -> Steps<'static> {
    let mut steps = Steps::new(&|_| {});
    let adapter = adapter();
    let device = devices(adapter)[0];
    let mut context = null_mut();
    let made = ur!(Context.pfnCreate(1, &device, null(), &mut context));
    if steps.record("urContextCreate", made) {
        with_context(driver, &mut steps, (context, device));
        steps.record("urContextRelease", ur!(Context.pfnRelease(context)));
    }
    steps.record("urAdapterRelease", ur!(Adapter.pfnRelease(adapter)));
    steps
}

fn with_context(driver: &FakeDriver, steps: &mut Steps, here @ (context, device): Place) {
    match import(here, driver.external_memory(4096), 4096, OPAQUE) {
        Ok(memory) => {
            match map(here, memory, 64, 128) {
                Ok(at) => drop(steps.record("free", free(here, at))),
                Err(code) => drop(steps.record("map", code)),
            }
            for levels in [1, 2] {
                let desc = image(UR_MEM_TYPE_IMAGE2D, [8, 4, 0], levels);
                let mut mapped = 0;
                let code = ur!(BindlessImagesExp.pfnMapExternalArrayExp(
                    context,
                    device,
                    &RGBA8,
                    &desc,
                    memory,
                    &mut mapped
                ));
                // The context ends the image.
                steps.record("map of an image", code);
            }
            steps.record("release", release(here, memory));
        }
        Err((code, _)) => drop(steps.record("import", code)),
    }
    let mut queue = null_mut();
    let made = ur!(Queue.pfnCreate(context, device, null(), &mut queue));
    if !steps.record("urQueueCreate", made) {
        return;
    }
    let file = driver.semaphore(true);
    let other = file.try_clone().expect("a second descriptor");
    match import_semaphore(here, file, TIMELINE) {
        Ok(semaphore) => {
            let code = ur!(BindlessImagesExp.pfnSignalExternalSemaphoreExp(
                queue,
                semaphore,
                1,
                5,
                0,
                null(),
                null_mut()
            ));
            // A wait for what is not signalled would not end.
            if steps.record("signal", code) {
                let code = ur!(BindlessImagesExp.pfnWaitExternalSemaphoreExp(
                    queue,
                    semaphore,
                    1,
                    5,
                    0,
                    null(),
                    null_mut()
                ));
                steps.record("wait", code);
            }
            steps.record("urQueueFinish", ur!(Queue.pfnFinish(queue)));
            steps.right = driver.semaphore_count(&other) == 5;
            let code = release_semaphore(here, semaphore);
            steps.record("release of a semaphore", code);
        }
        Err((code, _)) => drop(steps.record("import of a semaphore", code)),
    }
    steps.record("urQueueRelease", ur!(Queue.pfnRelease(queue)));
}

#[test]
fn each_call_fails_once() {
    alone("tests::external::each_call_fails_once", || {
        let driver = FakeDriver::open();
        for code in [2, 700, 98_765] {
            driver.reset();
            let whole = play(&driver);
            assert_eq!(whole.failed(), []);
            assert!(whole.right, "the semaphore's count");
            driver.check_end("a workload");
            let calls = driver.query().calls;
            assert!(calls > 10, "{calls} calls that could fail");
            for nth in 1..=calls {
                driver.fail(nth, code);
                let steps = play(&driver);
                let when = format!("call {nth} failed with {code}: {:?}", steps.failed());
                driver.check_end(&when);
                let silent = steps.failed().is_empty();
                assert!(!silent || steps.right, "{when}: {}", driver.report());
            }
        }
    });
}

//! Bindless images, and memory and semaphores of other interfaces. The parts belong to the workload, so that each call
//! of them fails once, and each function that they need is absent once.

use std::ffi::c_void;
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::ptr::{null, null_mut};

use scripted_level_zero::{
    scripted_external_memory, scripted_semaphore, scripted_semaphore_count, scripted_semaphore_set,
};
use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, devices, ur};
use super::workload::{Null, Place, Steps, enqueue, host, make, read, release, step, wait};

pub const RGBA8: ur_image_format_t = ur_image_format_t {
    channelOrder: UR_IMAGE_CHANNEL_ORDER_RGBA,
    channelType: UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8,
};
pub const OPAQUE: ur_exp_external_mem_type_t = UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD;
const BINARY: ur_exp_external_semaphore_type_t = UR_EXP_EXTERNAL_SEMAPHORE_TYPE_OPAQUE_FD;
pub const TIMELINE: ur_exp_external_semaphore_type_t = UR_EXP_EXTERNAL_SEMAPHORE_TYPE_TIMELINE_FD;
pub const NONE: ur_result_t = UR_RESULT_SUCCESS;
pub const INVALID_VALUE: ur_result_t = UR_RESULT_ERROR_INVALID_VALUE;

pub const INTO: ur_exp_image_copy_input_types_t = UR_EXP_IMAGE_COPY_INPUT_TYPES_MEM_TO_IMAGE;
pub const OUT_OF: ur_exp_image_copy_input_types_t = UR_EXP_IMAGE_COPY_INPUT_TYPES_IMAGE_TO_MEM;
pub const BETWEEN: ur_exp_image_copy_input_types_t = UR_EXP_IMAGE_COPY_INPUT_TYPES_IMAGE_TO_IMAGE;
pub const ON_DEVICE: ur_exp_image_copy_flags_t = UR_EXP_IMAGE_COPY_FLAG_DEVICE_TO_DEVICE;

/// 8 times 4 pixels.
const WIDTH: usize = 8;
const HEIGHT: usize = 4;
const BYTES: usize = 4 * WIDTH * HEIGHT;

fn flat() -> ur_image_desc_t {
    ur_image_desc_t {
        r#type: UR_MEM_TYPE_IMAGE2D,
        width: WIDTH,
        height: HEIGHT,
        numMipLevel: 1,
        ..Default::default()
    }
}

pub fn nearest() -> ur_sampler_desc_t {
    ur_sampler_desc_t {
        normalizedCoords: 1,
        addressingMode: UR_SAMPLER_ADDRESSING_MODE_CLAMP_TO_EDGE,
        filterMode: UR_SAMPLER_FILTER_MODE_NEAREST,
        ..Default::default()
    }
}

/// All pixels.
fn whole() -> ur_exp_image_copy_region_t {
    ur_exp_image_copy_region_t {
        copyExtent: ur_rect_region_t {
            width: 4 * WIDTH as u64,
            height: HEIGHT as u64,
            depth: 1,
        },
        ..Default::default()
    }
}

pub fn number(handle: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(handle)
}

/// A copy of all pixels. Its event is null if it failed.
fn copy(
    steps: &mut Steps,
    queue: ur_queue_handle_t,
    (src, dst): (*mut c_void, *mut c_void),
    types: ur_exp_image_copy_input_types_t,
    waits: &[ur_event_handle_t],
) -> ur_event_handle_t {
    let (desc, mut part) = (flat(), whole());
    enqueue!(
        steps,
        waits,
        BindlessImagesExp.pfnImageCopyExp(
            queue, src, dst, &desc, &desc, &RGBA8, &RGBA8, &mut part, ON_DEVICE, types
        )
    )
}

fn pixels() -> Vec<u8> {
    (0..BYTES as u8).map(|byte| byte ^ 0x5a).collect()
}

/// Writes pixels to the test's host memory.
pub fn fill(slot: usize, bytes: &[u8]) -> *mut c_void {
    let to = host(slot);
    // SAFETY: the slot has more bytes, and no command uses them now.
    unsafe { to.copy_from(bytes.as_ptr(), bytes.len()) };
    to.cast()
}

/// Whether the device has a property. One without it refuses the attempt.
pub fn has(
    steps: &mut Steps,
    place: &Place,
    property: ur_device_info_t,
    attempt: impl FnOnce() -> ur_result_t,
) -> bool {
    let mut able: ur_bool_t = 0;
    let (to, size) = ((&raw mut able).cast(), size_of::<ur_bool_t>());
    step!(
        steps,
        Device.pfnGetInfo(place.device, property, size, to, null_mut())
    );
    if able == 0 {
        let code = attempt();
        steps.expect("a refusal", || code == UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
    }
    able != 0
}

/// Destroys an unsampled and a sampled handle, of those that were made.
pub fn destroy(
    steps: &mut Steps,
    (context, device): (ur_context_handle_t, ur_device_handle_t),
    (plain, sampled): (ur_exp_image_native_handle_t, ur_exp_image_native_handle_t),
) {
    if plain != 0 {
        step!(
            steps,
            BindlessImagesExp.pfnUnsampledImageHandleDestroyExp(context, device, plain)
        );
    }
    if sampled != 0 {
        step!(
            steps,
            BindlessImagesExp.pfnSampledImageHandleDestroyExp(context, device, sampled)
        );
    }
}

/// Image memory, its handles, and copies through it.
pub fn with_images(steps: &mut Steps, place: &Place) {
    let &Place {
        device,
        context,
        one,
        two,
        ..
    } = place;
    let (desc, how) = (flat(), nearest());
    let mut none = 0;
    let attempt =
        || ur!(BindlessImagesExp.pfnImageAllocateExp(context, device, &RGBA8, &desc, &mut none));
    if !has(
        steps,
        place,
        UR_DEVICE_INFO_BINDLESS_IMAGES_SUPPORT_EXP,
        attempt,
    ) {
        return;
    }
    let opaque = UR_EXP_IMAGE_MEM_TYPE_OPAQUE_HANDLE;
    let mut able = 0;
    step!(
        steps,
        BindlessImagesExp.pfnGetImageMemoryHandleTypeSupportExp(
            context, device, &desc, &RGBA8, opaque, &mut able
        )
    );
    steps.expect("support of an image", || able == 1);
    let own = make!(
        steps,
        BindlessImagesExp.pfnImageAllocateExp(context, device, &RGBA8, &desc)
    );
    let other = make!(
        steps,
        BindlessImagesExp.pfnImageAllocateExp(context, device, &RGBA8, &desc)
    );
    if own != 0 && other != 0 {
        let (mut width, size) = (0_usize, size_of::<usize>());
        let (what, to) = (UR_IMAGE_INFO_WIDTH, (&raw mut width).cast());
        step!(
            steps,
            BindlessImagesExp.pfnImageGetInfoExp(context, own, what, to, null_mut())
        );
        steps.expect("width of an image", || width == WIDTH && size == 8);
        let plain = make!(
            steps,
            BindlessImagesExp.pfnUnsampledImageCreateExp(context, device, own, &RGBA8, &desc)
        );
        let sampled = make!(
            steps,
            BindlessImagesExp.pfnSampledImageCreateExp(context, device, own, &RGBA8, &desc, &how)
        );
        let (from, to) = (fill(28, &pixels()), fill(29, &[0; BYTES]));
        let written = copy(steps, one, (from, number(own)), INTO, &[]);
        let moved = copy(
            steps,
            two,
            (number(own), number(other)),
            BETWEEN,
            &[written],
        );
        let back = copy(steps, one, (number(other), to), OUT_OF, &[moved]);
        if wait(steps, back) {
            steps.expect("pixels through two images", || read(to, BYTES) == pixels());
        }
        release(steps, &[written, moved, back]);
        destroy(steps, (context, device), (plain, sampled));
    }
    for queue in [one, two] {
        // A failed wait leaves copies behind.
        let _ = ur!(Queue.pfnFinish(queue));
    }
    for memory in [own, other].into_iter().filter(|memory| *memory != 0) {
        step!(
            steps,
            BindlessImagesExp.pfnImageFreeExp(context, device, memory)
        );
    }
}

/// An image over rows of linear memory.
pub fn in_pitched_memory(steps: &mut Steps, place: &Place) {
    let &Place {
        device,
        context,
        one,
        ..
    } = place;
    let mut pitch = 0;
    let mut memory = null_mut();
    let (how, mut none) = (nearest(), 0);
    let attempt = || {
        let desc = flat();
        ur!(BindlessImagesExp
            .pfnSampledImageCreateExp(context, device, 64, &RGBA8, &desc, &how, &mut none))
    };
    if !has(
        steps,
        place,
        UR_DEVICE_INFO_BINDLESS_IMAGES_2D_USM_SUPPORT_EXP,
        attempt,
    ) {
        return;
    }
    step!(
        steps,
        USMExp.pfnPitchedAllocExp(
            context,
            device,
            null(),
            null_mut(),
            4 * WIDTH,
            HEIGHT,
            4,
            &mut memory,
            &mut pitch
        )
    );
    if memory.is_null() {
        return;
    }
    let desc = ur_image_desc_t {
        rowPitch: pitch,
        ..flat()
    };
    let address = memory.expose_provenance();
    let sampled = make!(
        steps,
        BindlessImagesExp.pfnSampledImageCreateExp(context, device, address, &RGBA8, &desc, &how)
    );
    if sampled != 0 {
        step!(
            steps,
            BindlessImagesExp.pfnSampledImageHandleDestroyExp(context, device, sampled)
        );
    }
    let _ = ur!(Queue.pfnFinish(one));
    step!(steps, USM.pfnFree(context, memory));
}

/// A descriptor that its import takes over, chained to a description.
fn chained(file: &OwnedFd) -> ur_exp_file_descriptor_t {
    ur_exp_file_descriptor_t {
        fd: file.as_raw_fd(),
        ..Default::default()
    }
}

pub fn owned(raw: i32) -> OwnedFd {
    assert!(raw >= 0, "no descriptor");
    // SAFETY: made just now, for the caller.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

/// Imports memory. The descriptor stays the caller's if that fails.
pub fn import(
    (context, device): (ur_context_handle_t, ur_device_handle_t),
    file: OwnedFd,
    size: usize,
    kind: ur_exp_external_mem_type_t,
) -> (ur_result_t, ur_exp_external_mem_handle_t) {
    let mut own = chained(&file);
    let mut desc = ur_exp_external_mem_desc_t {
        pNext: (&raw mut own).cast(),
        ..Default::default()
    };
    let mut made = null_mut();
    let code = ur!(BindlessImagesExp
        .pfnImportExternalMemoryExp(context, device, size, kind, &mut desc, &mut made));
    if code == NONE {
        let _ = file.into_raw_fd();
    }
    (code, made)
}

pub fn import_semaphore(
    (context, device): (ur_context_handle_t, ur_device_handle_t),
    file: OwnedFd,
    kind: ur_exp_external_semaphore_type_t,
) -> (ur_result_t, ur_exp_external_semaphore_handle_t) {
    let mut own = chained(&file);
    let mut desc = ur_exp_external_semaphore_desc_t {
        pNext: (&raw mut own).cast(),
        ..Default::default()
    };
    let mut made = null_mut();
    let code = ur!(BindlessImagesExp
        .pfnImportExternalSemaphoreExp(context, device, kind, &mut desc, &mut made));
    if code == NONE {
        let _ = file.into_raw_fd();
    }
    (code, made)
}

/// Memory of another interface, as linear memory and as an image.
pub fn with_memory(steps: &mut Steps, place: &Place) {
    let &Place {
        device,
        context,
        one,
        ..
    } = place;
    const SIZE: usize = 8192;
    let file = owned(scripted_external_memory(SIZE));
    let (code, memory) = import((context, device), file, SIZE, OPAQUE);
    if !steps.record("import of memory", code) {
        return;
    }
    let map = |steps: &mut Steps, offset, size| -> *mut c_void {
        make!(
            steps,
            BindlessImagesExp.pfnMapExternalLinearMemoryExp(context, device, offset, size, memory)
        )
    };
    let whole = map(steps, 0, SIZE as u64);
    let part = map(steps, 4096, 100);
    if !whole.is_null() && !part.is_null() {
        let (byte, to) = (fill(30, &[9]), host(31).cast());
        let first = enqueue!(steps, &[], Enqueue.pfnUSMFill(one, part, 1, byte, 100));
        let last = enqueue!(steps, &[], Enqueue.pfnUSMMemcpy(one, 1, to, whole, 4096));
        let tail = whole.wrapping_byte_add(4096);
        let seen = enqueue!(steps, &[], Enqueue.pfnUSMMemcpy(one, 1, to, tail, 100));
        steps.expect("bytes of a part", || {
            read(to, 100).iter().all(|byte| *byte == 9)
        });
        release(steps, &[first, last, seen]);
    }
    let _ = ur!(Queue.pfnFinish(one));
    for at in [whole, part].into_iter().filter(|at| !at.is_null()) {
        step!(
            steps,
            BindlessImagesExp.pfnFreeMappedLinearMemoryExp(context, device, at)
        );
    }
    step!(
        steps,
        BindlessImagesExp.pfnReleaseExternalMemoryExp(context, device, memory)
    );
}

/// A timeline semaphore of another interface. No wait is enqueued that nobody lets pass.
pub fn with_semaphores(steps: &mut Steps, place: &Place) {
    let &Place {
        device,
        context,
        one,
        ..
    } = place;
    let file = owned(scripted_semaphore(true));
    let other = file.try_clone().expect("a second descriptor");
    let again = file.try_clone().expect("a third descriptor");
    let attempt = || import_semaphore((context, device), again, TIMELINE).0;
    let property = UR_DEVICE_INFO_EXTERNAL_SEMAPHORE_IMPORT_SUPPORT_EXP;
    if !has(steps, place, property, attempt) {
        return;
    }
    let (code, semaphore) = import_semaphore((context, device), file, TIMELINE);
    if !steps.record("import of a semaphore", code) {
        return;
    }
    scripted_semaphore_set(other.as_raw_fd(), 3);
    let waited = enqueue!(
        steps,
        &[],
        BindlessImagesExp.pfnWaitExternalSemaphoreExp(one, semaphore, 1, 3)
    );
    let signalled = enqueue!(
        steps,
        &[waited],
        BindlessImagesExp.pfnSignalExternalSemaphoreExp(one, semaphore, 1, 5)
    );
    if wait(steps, signalled) {
        let count = scripted_semaphore_count(other.as_raw_fd());
        steps.expect("the count of a semaphore", || count == 5);
    }
    release(steps, &[waited, signalled]);
    let _ = ur!(Queue.pfnFinish(one));
    step!(
        steps,
        BindlessImagesExp.pfnReleaseExternalSemaphoreExp(context, device, semaphore)
    );
}

/// A context of two devices.
fn context(devices: &[ur_device_handle_t]) -> ur_context_handle_t {
    let (mut context, count) = (null_mut(), devices.len() as u32);
    assert_eq!(
        ur!(Context.pfnCreate(count, devices.as_ptr(), null(), &mut context)),
        NONE
    );
    context
}

fn queue(context: ur_context_handle_t, device: ur_device_handle_t) -> ur_queue_handle_t {
    let mut queue = null_mut();
    assert_eq!(
        ur!(Queue.pfnCreate(context, device, null(), &mut queue)),
        NONE
    );
    queue
}

#[test]
fn wrong_imports_are_refused() {
    alone("tests::bindless::wrong_imports_are_refused", || {
        let driver = FakeDriver::open();
        let adapter = adapter();
        let both = devices(adapter);
        let context = context(&both);
        let here = (context, both[0]);
        let memory = || owned(scripted_external_memory(4096));
        assert_eq!(
            import(here, memory(), 0, OPAQUE).0,
            INVALID_VALUE,
            "no size"
        );
        let (code, _) = import(here, memory(), 8192, OPAQUE);
        assert_eq!(code, UR_RESULT_ERROR_INVALID_ARGUMENT, "too large");
        let windows = UR_EXP_EXTERNAL_MEM_TYPE_WIN32_NT;
        let (code, _) = import(here, memory(), 4096, windows);
        assert_eq!(code, UR_RESULT_ERROR_UNSUPPORTED_FEATURE, "another system");
        let (code, _) = import_semaphore(here, memory(), BINARY);
        assert_eq!(
            code, UR_RESULT_ERROR_INVALID_ARGUMENT,
            "memory as a semaphore"
        );
        let (code, _) = import_semaphore(here, owned(scripted_semaphore(true)), BINARY);
        assert_eq!(
            code, UR_RESULT_ERROR_INVALID_ARGUMENT,
            "a timeline as a binary one"
        );
        let fence = UR_EXP_EXTERNAL_SEMAPHORE_TYPE_WIN32_NT_DX12_FENCE;
        let (code, _) = import_semaphore(here, owned(scripted_semaphore(true)), fence);
        assert_eq!(code, UR_RESULT_ERROR_UNSUPPORTED_FEATURE, "another system");
        let mut made = null_mut();
        let mut bare = ur_exp_external_mem_desc_t::default();
        let code = ur!(BindlessImagesExp
            .pfnImportExternalMemoryExp(context, both[0], 4096, OPAQUE, &mut bare, &mut made));
        assert_eq!(code, INVALID_VALUE, "no descriptor");
        for (kind, able) in [
            (OPAQUE, 1),
            (UR_EXP_EXTERNAL_MEM_TYPE_DMA_BUF, 1),
            (windows, 0),
        ] {
            let mut found = 7;
            let code =
                ur!(BindlessImagesExp.pfnSupportsImportingHandleTypeExp(both[0], kind, &mut found));
            assert_eq!((code, found), (NONE, able), "{kind:?}");
        }
        assert_eq!(ur!(Context.pfnRelease(context)), NONE);
        assert_eq!(ur!(Adapter.pfnRelease(adapter)), NONE);
        driver.check_end("wrong imports");
    });
}

#[test]
fn imports_serve_their_device() {
    alone("tests::bindless::imports_serve_their_device", || {
        let driver = FakeDriver::open();
        let adapter = adapter();
        let both = devices(adapter);
        let context = context(&both);
        let (here, other) = (both[0], both[1]);
        let queue = queue(context, other);
        let wrong = UR_RESULT_ERROR_INVALID_DEVICE;
        let file = owned(scripted_semaphore(true));
        let (code, semaphore) = import_semaphore((context, here), file, TIMELINE);
        assert_eq!(code, NONE);
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
        let release = |device| {
            ur!(BindlessImagesExp.pfnReleaseExternalSemaphoreExp(context, device, semaphore))
        };
        assert_eq!((release(other), release(here)), (wrong, NONE));
        let dma = UR_EXP_EXTERNAL_MEM_TYPE_DMA_BUF;
        let file = owned(scripted_external_memory(4096));
        let (code, memory) = import((context, here), file, 4096, dma);
        assert_eq!(code, NONE);
        let mut at = null_mut();
        let map =
            ur!(BindlessImagesExp
                .pfnMapExternalLinearMemoryExp(context, other, 0, 16, memory, &mut at));
        let mut image = 0;
        let array = ur!(BindlessImagesExp.pfnMapExternalArrayExp(
            context,
            other,
            &RGBA8,
            &flat(),
            memory,
            &mut image
        ));
        assert_eq!((map, array), (wrong, wrong));
        let array = ur!(BindlessImagesExp.pfnMapExternalArrayExp(
            context,
            here,
            &RGBA8,
            &flat(),
            memory,
            &mut image
        ));
        assert_eq!(array, NONE);
        let release =
            |device| ur!(BindlessImagesExp.pfnReleaseExternalMemoryExp(context, device, memory));
        assert_eq!((release(other), release(here)), (wrong, NONE));
        let free = |device| ur!(BindlessImagesExp.pfnImageFreeExp(context, device, image));
        assert_eq!((free(other), free(here)), (wrong, NONE));
        assert_eq!(ur!(Queue.pfnRelease(queue)), NONE);
        assert_eq!(ur!(Context.pfnRelease(context)), NONE);
        assert_eq!(ur!(Adapter.pfnRelease(adapter)), NONE);
        driver.check_end("imports of one device");
    });
}

#[test]
fn imported_memory_is_an_image() {
    alone("tests::bindless::imported_memory_is_an_image", || {
        let driver = FakeDriver::open();
        let adapter = adapter();
        let device = devices(adapter)[0];
        let context = context(&[device]);
        let queue = queue(context, device);
        let file = owned(scripted_external_memory(BYTES));
        let other = file.try_clone().expect("a second descriptor");
        let (code, memory) = import((context, device), file, BYTES, OPAQUE);
        assert_eq!(code, NONE);
        let mut image = 0;
        let large = ur_image_desc_t {
            height: HEIGHT + 1,
            ..flat()
        };
        let map = |desc: &ur_image_desc_t, image: &mut usize| {
            ur!(BindlessImagesExp
                .pfnMapExternalArrayExp(context, device, &RGBA8, desc, memory, image))
        };
        assert_eq!(map(&large, &mut image), UR_RESULT_ERROR_INVALID_IMAGE_SIZE);
        assert_eq!(map(&flat(), &mut image), NONE);
        let (desc, mut part, from) = (flat(), whole(), fill(0, &pixels()));
        let code = ur!(BindlessImagesExp.pfnImageCopyExp(
            queue,
            from,
            number(image),
            &desc,
            &desc,
            &RGBA8,
            &RGBA8,
            &mut part,
            ON_DEVICE,
            INTO,
            0,
            null(),
            null_mut()
        ));
        assert_eq!(code, NONE);
        assert_eq!(ur!(Queue.pfnFinish(queue)), NONE);
        let mut seen = [0; BYTES];
        let own = std::fs::File::from(other);
        std::os::unix::fs::FileExt::read_exact_at(&own, &mut seen, 0).expect("the file's bytes");
        assert_eq!(seen[..], pixels(), "pixels in the other interface's memory");
        // The image outlives the import's handle, and ends with the context.
        let code = ur!(BindlessImagesExp.pfnReleaseExternalMemoryExp(context, device, memory));
        assert_eq!(code, NONE);
        assert_eq!(ur!(Queue.pfnRelease(queue)), NONE);
        assert_eq!(ur!(Context.pfnRelease(context)), NONE);
        assert_eq!(ur!(Adapter.pfnRelease(adapter)), NONE);
        driver.check_end("an image in imported memory");
    });
}

#[test]
fn a_wait_holds_back_what_comes_after() {
    alone(
        "tests::bindless::a_wait_holds_back_what_comes_after",
        || {
            let driver = FakeDriver::open();
            let adapter = adapter();
            let device = devices(adapter)[0];
            for counts in [false, true] {
                let context = context(&[device]);
                let queue = queue(context, device);
                let file = owned(scripted_semaphore(counts));
                let other = file.try_clone().expect("a second descriptor");
                let kind = if counts { TIMELINE } else { BINARY };
                let (code, semaphore) = import_semaphore((context, device), file, kind);
                assert_eq!(code, NONE);
                let mut steps = Steps::default();
                let value = u8::from(counts);
                let waited = enqueue!(
                    steps,
                    &[],
                    BindlessImagesExp.pfnWaitExternalSemaphoreExp(queue, semaphore, value, 7)
                );
                let signalled = enqueue!(
                    steps,
                    &[waited],
                    BindlessImagesExp.pfnSignalExternalSemaphoreExp(queue, semaphore, value, 9)
                );
                let is_done = |event| {
                    let mut status = ur_event_status_t::default();
                    let (to, size) = ((&raw mut status).cast(), size_of::<ur_event_status_t>());
                    let what = UR_EVENT_INFO_COMMAND_EXECUTION_STATUS;
                    assert_eq!(
                        ur!(Event.pfnGetInfo(event, what, size, to, null_mut())),
                        NONE
                    );
                    status == UR_EVENT_STATUS_COMPLETE
                };
                let (early, late) = if counts { (6, 7) } else { (0, 1) };
                scripted_semaphore_set(other.as_raw_fd(), early);
                std::thread::sleep(std::time::Duration::from_millis(20));
                assert!(
                    !is_done(waited) && !is_done(signalled),
                    "a wait passed early"
                );
                scripted_semaphore_set(other.as_raw_fd(), late);
                assert!(wait(&mut steps, signalled));
                let count = scripted_semaphore_count(other.as_raw_fd());
                assert_eq!(count, if counts { 9 } else { 1 });
                release(&mut steps, &[waited, signalled]);
                assert_eq!(steps.failed(), []);
                let code =
                    ur!(BindlessImagesExp
                        .pfnReleaseExternalSemaphoreExp(context, device, semaphore));
                assert_eq!(code, NONE);
                assert_eq!(ur!(Queue.pfnRelease(queue)), NONE);
                assert_eq!(ur!(Context.pfnRelease(context)), NONE);
            }
            assert_eq!(ur!(Adapter.pfnRelease(adapter)), NONE);
            driver.check_end("waits for another interface");
        },
    );
}

/// Rows at a pitch that the driver does not read them at would be read wrong.
#[test]
fn a_pitch_of_the_caller_s_own_is_refused() {
    alone(
        "tests::bindless::a_pitch_of_the_caller_s_own_is_refused",
        || {
            let driver = FakeDriver::open();
            let adapter = adapter();
            let device = devices(adapter)[0];
            let context = context(&[device]);
            let mut memory = null_mut();
            let pool = null_mut();
            assert_eq!(
                ur!(USM.pfnDeviceAlloc(context, device, null(), pool, 4096, &mut memory)),
                NONE
            );
            let (how, address) = (nearest(), memory.expose_provenance());
            let create = |row: usize| {
                let desc = ur_image_desc_t {
                    rowPitch: row,
                    ..flat()
                };
                let mut made = 0;
                let code = ur!(BindlessImagesExp.pfnSampledImageCreateExp(
                    context, device, address, &RGBA8, &desc, &how, &mut made
                ));
                (code, made)
            };
            // The driver's is 64.
            assert_eq!(create(128).0, UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
            assert_eq!(create(0).0, UR_RESULT_ERROR_UNSUPPORTED_FEATURE, "packed");
            assert_eq!(create(16).0, INVALID_VALUE);
            let (code, made) = create(64);
            assert_eq!(code, NONE);
            let destroy =
                || ur!(BindlessImagesExp.pfnSampledImageHandleDestroyExp(context, device, made));
            assert_eq!((destroy(), destroy()), (NONE, INVALID_VALUE));
            assert_eq!(ur!(USM.pfnFree(context, memory)), NONE);
            assert_eq!(ur!(Context.pfnRelease(context)), NONE);
            assert_eq!(ur!(Adapter.pfnRelease(adapter)), NONE);
            driver.check_end("pitches");
        },
    );
}

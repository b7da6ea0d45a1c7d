//! Images and samplers. The parts belong to the workload, so that each call of them fails once.

use std::ptr::{null, null_mut};

use ur::abi::*;

use super::fake_driver::{FakeDriver, alone, ur};
use super::spirv;
use super::workload::{
    self, Null, Place, SIZE, Steps, enqueue, finish, host, make, queue, read, read_logs, release,
    release_queues, step, wait,
};

/// Pixels along both axes of the images here, four bytes each.
const SIDE: usize = 8;

fn flat_image() -> (ur_image_format_t, ur_image_desc_t) {
    let format = ur_image_format_t {
        channelOrder: UR_IMAGE_CHANNEL_ORDER_RGBA,
        channelType: UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8,
    };
    let desc = ur_image_desc_t {
        r#type: UR_MEM_TYPE_IMAGE2D,
        width: SIDE,
        height: SIDE,
        ..Default::default()
    };
    (format, desc)
}

const ORIGIN: ur_rect_offset_t = ur_rect_offset_t { x: 0, y: 0, z: 0 };
const WHOLE: ur_rect_region_t = ur_rect_region_t {
    width: SIDE as u64,
    height: SIDE as u64,
    depth: 1,
};

/// Copies with pitches, between images, and a kernel's image and sampler.
pub fn with_images(steps: &mut Steps, place: &Place) {
    let (context, queue) = (place.context, place.one);
    let ((format, desc), below) = (flat_image(), host(25));
    let (from, to) = (host(26), host(27));
    // SAFETY: memory of the test's.
    unsafe {
        below.write_bytes(1, SIZE);
        from.write_bytes(5, SIZE);
        to.write_bytes(0, SIZE);
    }
    let over = UR_MEM_FLAG_READ_WRITE | UR_MEM_FLAG_USE_HOST_POINTER;
    let image = make!(
        steps,
        Mem.pfnImageCreate(context, over, &format, &desc, below.cast())
    );
    let own = UR_MEM_FLAG_READ_WRITE;
    let other = make!(
        steps,
        Mem.pfnImageCreate(context, own, &format, &desc, null_mut())
    );
    if !image.is_null() && !other.is_null() {
        let (pitch, blocks) = (8 * SIDE, false as _);
        let written = enqueue!(
            steps,
            &[],
            Enqueue.pfnMemImageWrite(queue, image, blocks, ORIGIN, WHOLE, pitch, 0, from.cast())
        );
        let copied = enqueue!(
            steps,
            &[written],
            Enqueue.pfnMemImageCopy(queue, image, other, ORIGIN, ORIGIN, WHOLE)
        );
        let read = enqueue!(
            steps,
            &[copied],
            Enqueue.pfnMemImageRead(queue, other, blocks, ORIGIN, WHOLE, pitch, 0, to.cast())
        );
        if wait(steps, read) {
            steps.expect("rows with pitches", || {
                let rows = read_rows(to, pitch);
                rows.iter().all(|row| *row == [5; 4 * SIDE])
            });
        }
        release(steps, &[written, copied, read]);
        look(steps, context, queue);
    }
    for mem in [image, other].into_iter().filter(|mem| !mem.is_null()) {
        step!(steps, Mem.pfnRelease(mem));
    }
}

fn read_rows(from: *mut u8, pitch: usize) -> Vec<Vec<u8>> {
    let row = |at: usize| read(from.wrapping_add(at * pitch).cast(), 4 * SIDE);
    (0..SIDE).map(row).collect()
}

/// A launch with an image of one dimension and a sampler, which are released before it ends.
pub fn look(steps: &mut Steps, context: ur_context_handle_t, queue: ur_queue_handle_t) {
    let il = spirv::look();
    let program = make!(
        steps,
        Program.pfnCreateWithIL(context, il.as_ptr().cast(), il.len(), null())
    );
    if program.is_null() {
        return;
    }
    let built = step!(steps, Program.pfnBuild(context, program, null()));
    if built {
        read_logs(steps, program);
    }
    let kernel = match built {
        true => make!(steps, Kernel.pfnCreate(program, c"look".as_ptr())),
        false => null_mut(),
    };
    let (format, mut desc) = flat_image();
    desc.r#type = UR_MEM_TYPE_IMAGE1D;
    let flags = UR_MEM_FLAG_READ_ONLY;
    let image = make!(
        steps,
        Mem.pfnImageCreate(context, flags, &format, &desc, null_mut())
    );
    let modes = ur_sampler_desc_t::default();
    let sampler = make!(steps, Sampler.pfnCreate(context, &modes));
    if !kernel.is_null() && !image.is_null() && !sampler.is_null() {
        let args = [
            ur_exp_kernel_arg_properties_t {
                r#type: UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ,
                index: 0,
                size: size_of::<usize>(),
                value: ur_exp_kernel_arg_value_t {
                    memObjTuple: ur_exp_kernel_arg_mem_obj_tuple_t { hMem: image, flags },
                },
                ..Default::default()
            },
            ur_exp_kernel_arg_properties_t {
                r#type: UR_EXP_KERNEL_ARG_TYPE_SAMPLER,
                index: 1,
                size: size_of::<usize>(),
                value: ur_exp_kernel_arg_value_t { sampler },
                ..Default::default()
            },
        ];
        let global = SIDE;
        let launched = enqueue!(
            steps,
            &[],
            EnqueueExp.pfnKernelLaunchWithArgsExp(
                queue,
                kernel,
                1,
                null(),
                &global,
                null(),
                2,
                args.as_ptr(),
                null()
            )
        );
        release(steps, &[launched]);
    }
    if !sampler.is_null() {
        step!(steps, Sampler.pfnRelease(sampler));
    }
    if !image.is_null() {
        step!(steps, Mem.pfnRelease(image));
    }
    if !kernel.is_null() {
        step!(steps, Kernel.pfnRelease(kernel));
    }
    step!(steps, Program.pfnRelease(program));
}

/// An image of a context that a queue writes and reads.
pub fn move_through(steps: &mut Steps, context: ur_context_handle_t, queue: ur_queue_handle_t) {
    let ((format, desc), flags) = (flat_image(), UR_MEM_FLAG_READ_WRITE);
    let image = make!(
        steps,
        Mem.pfnImageCreate(context, flags, &format, &desc, null_mut())
    );
    let (from, to, blocks) = (host(26), host(27), false as _);
    // SAFETY: memory of the test's.
    unsafe { from.write_bytes(9, SIZE) };
    let written = enqueue!(
        steps,
        &[],
        Enqueue.pfnMemImageWrite(queue, image, blocks, ORIGIN, WHOLE, 0, 0, from.cast())
    );
    let read_back = enqueue!(
        steps,
        &[written],
        Enqueue.pfnMemImageRead(queue, image, blocks, ORIGIN, WHOLE, 0, 0, to.cast())
    );
    if wait(steps, read_back) {
        steps.expect("an image of one device", || {
            read(to.cast(), 4 * SIDE * SIDE) == [9; 4 * SIDE * SIDE]
        });
    }
    release(steps, &[written, read_back]);
    step!(steps, Mem.pfnRelease(image));
}

/// An image of two devices.
pub fn of_two_devices(steps: &mut Steps, place: &Place) {
    if let [first, second] = place.devices[..] {
        between(steps, [first, second]);
    }
}

/// An image of a context of two devices, which goes from one to the other and back.
pub fn between(steps: &mut Steps, devices: [ur_device_handle_t; 2]) {
    let [first, second] = devices;
    let context = make!(steps, Context.pfnCreate(2, devices.as_ptr(), null()));
    if context.is_null() {
        return;
    }
    let one = queue(steps, context, first, ur_queue_flags_t(0));
    let two = queue(steps, context, second, ur_queue_flags_t(0));
    let ((format, desc), flags) = (flat_image(), UR_MEM_FLAG_READ_WRITE);
    let image = make!(
        steps,
        Mem.pfnImageCreate(context, flags, &format, &desc, null_mut())
    );
    if !one.is_null() && !two.is_null() && !image.is_null() {
        let (from, to, blocks) = (host(26), host(27), false as _);
        // SAFETY: memory of the test's.
        unsafe { from.write_bytes(9, SIZE) };
        let written = enqueue!(
            steps,
            &[],
            Enqueue.pfnMemImageWrite(one, image, blocks, ORIGIN, WHOLE, 0, 0, from.cast())
        );
        let pixel = ur_rect_region_t {
            width: 1,
            height: 1,
            depth: 1,
        };
        let changed = enqueue!(
            steps,
            &[written],
            Enqueue.pfnMemImageWrite(two, image, blocks, ORIGIN, pixel, 0, 0, host(28).cast())
        );
        let read_back = enqueue!(
            steps,
            &[changed],
            Enqueue.pfnMemImageRead(one, image, blocks, ORIGIN, WHOLE, 0, 0, to.cast())
        );
        if wait(steps, read_back) {
            steps.expect("an image of two devices", || {
                let bytes = read(to.cast(), 4 * SIDE * SIDE);
                bytes[..4] == read(host(28).cast(), 4) && bytes[4..].iter().all(|own| *own == 9)
            });
        }
        release(steps, &[written, changed, read_back]);
        finish(steps, &[one, two]);
    }
    if !image.is_null() {
        step!(steps, Mem.pfnRelease(image));
    }
    release_queues(steps, &[one, two]);
    step!(steps, Context.pfnRelease(context));
}

/// The last release of an image over the host's memory returns what commands have written.
#[test]
fn an_image_over_host_memory_is_returned() {
    alone(
        "tests::images::an_image_over_host_memory_is_returned",
        || {
            let driver = FakeDriver::open();
            let steps = workload::play();
            assert_eq!((steps.failed(), steps.wrong), (vec![], vec![]));
            assert_eq!(read(host(25).cast(), 4 * SIDE * SIDE), [5; 4 * SIDE * SIDE]);
            driver.check_end("a workload");
        },
    );
}

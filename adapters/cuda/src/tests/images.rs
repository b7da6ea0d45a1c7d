//! Images and samplers.

use std::cell::Cell;
use std::ffi::{CStr, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::AtomicU32;

use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone_with, devices, ur};
use super::launching::{Arg, launch, memory_object, number, pointer};
use super::workload::task;
use crate::adapter::roots;
use crate::image::{Array, Shape, Surface, Texel};

const ON: [(&str, &str); 1] = [("UR_CUDA_ENABLE_IMAGE_SUPPORT", "1")];

/// Functions whose failure nobody reports in [`play`] before the images are released, each with the reason.
const SILENT: &[(&str, &str)] = &[
    (
        "cuDeviceCanAccessPeer",
        "devices then use each other's memory by copies",
    ),
    (
        "cuMemCreate",
        "a device's memory is then not for other processes",
    ),
    (
        "cuMemExportToShareableHandle",
        "a device's memory is then not for other processes",
    ),
    (
        "cuOccupancyMaxPotentialBlockSize",
        "a group size is then chosen without it",
    ),
    (
        "cuStreamQuery",
        "a stream counts as busy then, and is asked again",
    ),
    (
        "cuThreadExchangeStreamCaptureMode",
        "a call that a capture of another thread forbids then fails itself",
    ),
];

/// Calls that may fail unnoticed while images are released. An image over host memory is copied back then, and that
/// this failed is logged.
const SILENT_AT_RELEASE: &[(&str, &str)] = &[
    ("cuMemcpy3DAsync", "copies back"),
    (
        "cuStreamCreateWithPriority",
        "a stream of another device, to copy back",
    ),
    (
        "cuStreamQuery",
        "a stream counts as busy then, and is asked again",
    ),
    ("cuStreamSynchronize", "waits for the copy"),
    ("cuStreamWaitEvent", "orders the copy after the last use"),
    (
        "cuThreadExchangeStreamCaptureMode",
        "a call that a capture of another thread forbids then fails itself",
    ),
];

const OK: ur_result_t = UR_RESULT_SUCCESS;

fn ok(code: ur_result_t) {
    assert_eq!(code, OK);
}

/// Words of four channels of 32 bits.
const WIDE: ur_image_format_t = ur_image_format_t {
    channelOrder: UR_IMAGE_CHANNEL_ORDER_RGBA,
    channelType: UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT32,
};

const NARROW: ur_image_format_t = ur_image_format_t {
    channelOrder: UR_IMAGE_CHANNEL_ORDER_R,
    channelType: UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8,
};

const KINDS: [ur_mem_type_t; 5] = [
    UR_MEM_TYPE_IMAGE1D,
    UR_MEM_TYPE_IMAGE2D,
    UR_MEM_TYPE_IMAGE3D,
    UR_MEM_TYPE_IMAGE1D_ARRAY,
    UR_MEM_TYPE_IMAGE2D_ARRAY,
];

fn desc(kind: ur_mem_type_t) -> ur_image_desc_t {
    ur_image_desc_t {
        r#type: kind,
        width: 6,
        height: 4,
        depth: 3,
        arraySize: 2,
        ..Default::default()
    }
}

/// Pixels along each axis of an image of [`desc`].
fn extent(kind: ur_mem_type_t) -> [u64; 3] {
    match kind {
        UR_MEM_TYPE_IMAGE1D => [6, 1, 1],
        UR_MEM_TYPE_IMAGE2D => [6, 4, 1],
        UR_MEM_TYPE_IMAGE3D => [6, 4, 3],
        UR_MEM_TYPE_IMAGE1D_ARRAY => [6, 2, 1],
        _ => [6, 4, 2],
    }
}

fn offset([x, y, z]: [u64; 3]) -> ur_rect_offset_t {
    ur_rect_offset_t { x, y, z }
}

fn region([width, height, depth]: [u64; 3]) -> ur_rect_region_t {
    ur_rect_region_t {
        width,
        height,
        depth,
    }
}

/// A context over some devices, with a queue on each.
struct Setup {
    adapter: ur_adapter_handle_t,
    context: ur_context_handle_t,
    queues: Vec<ur_queue_handle_t>,
    devices: Vec<ur_device_handle_t>,
}

impl Setup {
    fn new(count: usize) -> Option<Self> {
        let adapter = adapter();
        let all = devices(adapter);
        let own = &all[..count];
        let mut context = null_mut();
        let made = ur!(Context.pfnCreate(count as u32, own.as_ptr(), null(), &mut context));
        let mut setup = Self {
            adapter,
            context,
            queues: Vec::new(),
            devices: own.to_vec(),
        };
        if made != OK {
            setup.release();
            return None;
        }
        for device in own {
            let mut queue = null_mut();
            if ur!(Queue.pfnCreate(context, *device, null(), &mut queue)) != OK {
                setup.release();
                return None;
            }
            setup.queues.push(queue);
        }
        Some(setup)
    }

    fn image(
        &self,
        flags: ur_mem_flags_t,
        format: &ur_image_format_t,
        desc: &ur_image_desc_t,
        host: *mut c_void,
    ) -> Result<ur_mem_handle_t, ur_result_t> {
        let mut image = null_mut();
        match ur!(Mem.pfnImageCreate(self.context, flags, format, desc, host, &mut image)) {
            OK => Ok(image),
            code => Err(code),
        }
    }

    fn plain(&self, format: &ur_image_format_t, kind: ur_mem_type_t) -> ur_mem_handle_t {
        let made = self.image(UR_MEM_FLAG_READ_WRITE, format, &desc(kind), null_mut());
        made.expect("an image")
    }

    fn release(self) {
        for queue in self.queues {
            let _ = ur!(Queue.pfnFinish(queue));
            ok(ur!(Queue.pfnRelease(queue)));
        }
        if !self.context.is_null() {
            ok(ur!(Context.pfnRelease(self.context)));
        }
        ok(ur!(Adapter.pfnRelease(self.adapter)));
    }

    fn end(self, driver: &FakeDriver) {
        self.release();
        driver.check_end("the end");
    }
}

/// An array of the first device's that is no image's.
fn array(what: &ur_image_desc_t, format: &ur_image_format_t, flags: c_uint) -> Array {
    let gpu = roots().expect("an adapter").platform.devices()[0].gpu();
    let gpu = gpu.expect("a device");
    let (shape, texel) = (Shape::of(what), Texel::of(format));
    let (shape, texel) = (shape.expect("a shape"), texel.expect("a format"));
    Array::create(&gpu, &shape, texel, flags).expect("an array")
}

/// Copies a box between an image and bytes in memory, and waits.
fn transfer(
    queue: ur_queue_handle_t,
    image: ur_mem_handle_t,
    (at, size): ([u64; 3], [u64; 3]),
    (row, slice): (usize, usize),
    bytes: &mut [u8],
    writes: bool,
) -> ur_result_t {
    let (at, size, host) = (offset(at), region(size), bytes.as_mut_ptr().cast());
    let none = null_mut();
    match writes {
        true => ur!(Enqueue.pfnMemImageWrite(
            queue,
            image,
            1,
            at,
            size,
            row,
            slice,
            host,
            0,
            null(),
            none
        )),
        false => ur!(Enqueue.pfnMemImageRead(
            queue,
            image,
            1,
            at,
            size,
            row,
            slice,
            host,
            0,
            null(),
            none
        )),
    }
}

fn copy(
    queue: ur_queue_handle_t,
    src: ur_mem_handle_t,
    dst: ur_mem_handle_t,
    (from, to, size): ([u64; 3], [u64; 3], [u64; 3]),
) -> ur_result_t {
    let (from, to, size) = (offset(from), offset(to), region(size));
    ur!(Enqueue.pfnMemImageCopy(queue, src, dst, from, to, size, 0, null(), null_mut()))
}

fn count(extent: [u64; 3]) -> usize {
    extent.iter().product::<u64>() as usize
}

fn release(image: ur_mem_handle_t) {
    ok(ur!(Mem.pfnRelease(image)));
}

/// All bytes of an image.
fn all(
    queue: ur_queue_handle_t,
    image: ur_mem_handle_t,
    kind: ur_mem_type_t,
    pixel: usize,
) -> Vec<u8> {
    let mut bytes = vec![0; count(extent(kind)) * pixel];
    let part = ([0; 3], extent(kind));
    ok(transfer(queue, image, part, (0, 0), &mut bytes, false));
    bytes
}

#[test]
fn boxes_of_each_kind_go_in_and_out() {
    let name = "tests::images::boxes_of_each_kind_go_in_and_out";
    alone_with(name, &ON, || {
        let driver = FakeDriver::open();
        let setup = Setup::new(1).expect("a context");
        let queue = setup.queues[0];
        for (format, pixel) in [(&WIDE, 16), (&NARROW, 1)] {
            for kind in KINDS {
                let image = setup.plain(format, kind);
                let size = extent(kind);
                let mut bytes: Vec<u8> = (0..count(size) * pixel).map(|at| at as u8).collect();
                let part = ([0; 3], size);
                ok(transfer(queue, image, part, (0, 0), &mut bytes, true));
                assert_eq!(all(queue, image, kind, pixel), bytes, "{kind:?}");
                // A box of one pixel less along each axis, out of memory with gaps.
                let at = size.map(|size| u64::from(size > 1));
                let less = [0, 1, 2].map(|axis| size[axis] - at[axis]);
                let row = less[0] as usize * pixel + 7;
                let rows = match kind {
                    UR_MEM_TYPE_IMAGE1D_ARRAY => 1,
                    _ => less[1] as usize,
                };
                let has_slices = !matches!(kind, UR_MEM_TYPE_IMAGE1D | UR_MEM_TYPE_IMAGE2D);
                let slice = if has_slices { row * rows + 5 } else { 0 };
                let layers = match kind {
                    UR_MEM_TYPE_IMAGE1D_ARRAY => less[1] as usize,
                    _ => less[2] as usize,
                };
                let bytes_of_slice = if slice == 0 { row * rows } else { slice };
                let mut gaps = vec![0xee_u8; bytes_of_slice * layers];
                ok(transfer(
                    queue,
                    image,
                    (at, less),
                    (row, slice),
                    &mut gaps,
                    false,
                ));
                for z in 0..layers {
                    for y in 0..rows {
                        let (line, plane) = match kind {
                            UR_MEM_TYPE_IMAGE1D_ARRAY => (z + at[1] as usize, 0),
                            _ => (y + at[1] as usize, z + at[2] as usize),
                        };
                        let start = ((plane * size[1] as usize + line) * size[0] as usize
                            + at[0] as usize)
                            * pixel;
                        let length = less[0] as usize * pixel;
                        let own = z * bytes_of_slice + y * row;
                        assert_eq!(gaps[own..own + length], bytes[start..start + length]);
                        assert!(
                            gaps[own + length..own + row]
                                .iter()
                                .all(|byte| *byte == 0xee)
                        );
                    }
                }
                gaps.fill(9);
                ok(transfer(
                    queue,
                    image,
                    (at, less),
                    (row, slice),
                    &mut gaps,
                    true,
                ));
                let changed = all(queue, image, kind, pixel);
                let nines = changed.iter().filter(|byte| **byte == 9).count();
                let kept = bytes.iter().filter(|byte| **byte == 9).count();
                assert!(nines >= count(less) * pixel && nines <= count(less) * pixel + kept);
                release(image);
            }
        }
        setup.end(&driver);
    });
}

/// Copies between images of each two kinds: one row of the first, all that both have of it.
#[test]
fn boxes_are_copied_between_kinds() {
    let name = "tests::images::boxes_are_copied_between_kinds";
    alone_with(name, &ON, || {
        let driver = FakeDriver::open();
        let setup = Setup::new(1).expect("a context");
        let queue = setup.queues[0];
        for from in KINDS {
            for to in KINDS {
                let (src, dst) = (setup.plain(&NARROW, from), setup.plain(&NARROW, to));
                let (one, two) = (extent(from), extent(to));
                let size = [0, 1, 2].map(|axis| one[axis].min(two[axis]));
                let mut bytes: Vec<u8> = (1..=count(one) as u8).collect();
                ok(transfer(
                    queue,
                    src,
                    ([0; 3], one),
                    (0, 0),
                    &mut bytes,
                    true,
                ));
                let mut zeroes = vec![0; count(two)];
                ok(transfer(
                    queue,
                    dst,
                    ([0; 3], two),
                    (0, 0),
                    &mut zeroes,
                    true,
                ));
                ok(copy(queue, src, dst, ([0; 3], [0; 3], size)));
                let got = all(queue, dst, to, 1);
                for at in 0..count(two) as u64 {
                    let place = [at % two[0], at / two[0] % two[1], at / (two[0] * two[1])];
                    let inside = (0..3).all(|axis| place[axis] < size[axis]);
                    let source = (place[2] * one[1] + place[1]) * one[0] + place[0];
                    let want = if inside { bytes[source as usize] } else { 0 };
                    assert_eq!(got[at as usize], want, "{from:?} to {to:?}, {place:?}");
                }
                release(src);
                release(dst);
            }
        }
        let (one, other) = (
            setup.plain(&NARROW, UR_MEM_TYPE_IMAGE2D),
            setup.plain(&WIDE, UR_MEM_TYPE_IMAGE2D),
        );
        let row = [6, 1, 1];
        assert_eq!(
            copy(queue, one, other, ([0; 3], [0; 3], row)),
            UR_RESULT_ERROR_INVALID_MEM_OBJECT
        );
        assert_eq!(
            copy(queue, one, one, ([0; 3], [0; 3], row)),
            UR_RESULT_ERROR_OVERLAPPING_REGIONS
        );
        ok(copy(queue, one, one, ([0; 3], [0, 1, 0], row)));
        release(one);
        release(other);
        setup.end(&driver);
    });
}

/// An array that is given away is destroyed with its image. One that is not meant for surfaces is for commands alone.
#[test]
fn an_array_may_be_given_away() {
    let name = "tests::images::an_array_may_be_given_away";
    alone_with(name, &ON, || {
        let driver = FakeDriver::open();
        let setup = Setup::new(1).expect("a context");
        let queue = setup.queues[0];
        let kernels = Kernels::new(&setup, &[c"paint"]).expect("a kernel");
        let what = desc(UR_MEM_TYPE_IMAGE2D);
        for (flags, launched) in [
            (Surface::ARRAY_FLAGS, OK),
            (0, UR_RESULT_ERROR_INVALID_OPERATION),
        ] {
            let array = array(&what, &WIDE, flags);
            let (raw, mut image) = (array.into_raw().expose_provenance(), null_mut());
            let owned = ur_mem_native_properties_t {
                isNativeHandleOwned: 1,
                ..Default::default()
            };
            ok(ur!(Mem.pfnImageCreateWithNativeHandle(
                raw,
                setup.context,
                &WIDE,
                &what,
                &owned,
                &mut image
            )));
            let args = [
                memory_object(0, image, UR_MEM_FLAG_WRITE_ONLY),
                number(1, &9),
            ];
            let code = launch(queue, kernels.all[0], 4, &args, &[], null_mut());
            assert_eq!(code, launched);
            let mut pixel = vec![3; 16];
            let part = ([0; 3], [1; 3]);
            ok(transfer(queue, image, part, (0, 0), &mut pixel, true));
            release(image);
        }
        kernels.release();
        setup.end(&driver);
    });
}

/// A program with the scripted driver's kernels.
struct Kernels {
    program: ur_program_handle_t,
    all: Vec<ur_kernel_handle_t>,
}

impl Kernels {
    fn new(setup: &Setup, names: &[&CStr]) -> Option<Self> {
        let text = b".version 8.0\0";
        let count = setup.devices.len();
        let (mut program, mut lengths) = (null_mut(), vec![text.len(); count]);
        let (mut codes, mut list) = (vec![text.as_ptr(); count], setup.devices.clone());
        let made = ur!(Program.pfnCreateWithBinary(
            setup.context,
            count as u32,
            list.as_mut_ptr(),
            lengths.as_mut_ptr(),
            codes.as_mut_ptr(),
            null(),
            &mut program
        ));
        if made != OK {
            return None;
        }
        let mut own = Self {
            program,
            all: Vec::new(),
        };
        let mut built = ur!(Program.pfnBuild(setup.context, program, null())) == OK;
        for name in names {
            let mut kernel = null_mut();
            built = built && ur!(Kernel.pfnCreate(program, name.as_ptr(), &mut kernel)) == OK;
            if built {
                own.all.push(kernel);
            }
        }
        if !built {
            own.release();
            return None;
        }
        Some(own)
    }

    fn release(self) {
        for kernel in self.all {
            ok(ur!(Kernel.pfnRelease(kernel)));
        }
        ok(ur!(Program.pfnRelease(self.program)));
    }
}

fn sampler_argument(index: u32, sampler: ur_sampler_handle_t) -> Arg {
    let mut arg = Arg {
        r#type: UR_EXP_KERNEL_ARG_TYPE_SAMPLER,
        index,
        size: size_of::<usize>(),
        ..Default::default()
    };
    arg.value.sampler = sampler;
    arg
}

#[test]
fn kernels_take_images_and_samplers() {
    let name = "tests::images::kernels_take_images_and_samplers";
    alone_with(name, &ON, || {
        let driver = FakeDriver::open();
        let setup = Setup::new(1).expect("a context");
        let queue = setup.queues[0];
        let kernels = Kernels::new(&setup, &[c"paint", c"texels", c"iota"]).expect("kernels");
        let [paint, texels, iota] = kernels.all[..] else {
            panic!("three kernels");
        };
        let image = setup.plain(&WIDE, UR_MEM_TYPE_IMAGE2D);
        let words = 6 * 4 * 4;
        let writes = memory_object(0, image, UR_MEM_FLAG_WRITE_ONLY);
        for base in [100_u32, 200] {
            // The first time the launch prepares the image, later ones are plain.
            ok(launch(
                queue,
                paint,
                words,
                &[writes, number(1, &base)],
                &[],
                null_mut(),
            ));
            let bytes = all(queue, image, UR_MEM_TYPE_IMAGE2D, 16);
            let (first, last) = (bytes[0], bytes[4 * (words - 1)]);
            assert_eq!(
                (first, last),
                (base as u8, (base as usize + words - 1) as u8)
            );
        }
        let mut memory = null_mut();
        let (context, none) = (setup.context, null_mut());
        ok(ur!(USM.pfnHostAlloc(
            context,
            null(),
            none,
            4 * words,
            &mut memory
        )));
        let reads = memory_object(1, image, UR_MEM_FLAG_READ_ONLY);
        ok(launch(
            queue,
            texels,
            words,
            &[pointer(0, memory), reads],
            &[],
            null_mut(),
        ));
        ok(ur!(Queue.pfnFinish(queue)));
        let word = |at: usize| {
            // SAFETY: host memory of that many words, which no command uses now.
            unsafe { memory.cast::<u32>().add(at).read() }
        };
        assert_eq!((word(0), word(words - 1)), (200, 199 + words as u32));
        // A sampler is a number of 32 bits.
        let what = ur_sampler_desc_t {
            normalizedCoords: 1,
            addressingMode: UR_SAMPLER_ADDRESSING_MODE_REPEAT,
            filterMode: UR_SAMPLER_FILTER_MODE_LINEAR,
            ..Default::default()
        };
        let mut sampler = null_mut();
        ok(ur!(Sampler.pfnCreate(context, &what, &mut sampler)));
        let args = [pointer(0, memory), sampler_argument(1, sampler)];
        ok(launch(queue, iota, 1, &args, &[], null_mut()));
        ok(ur!(Queue.pfnFinish(queue)));
        assert_eq!(word(0), 0b1111);
        let mut native = 0;
        assert_eq!(
            ur!(Sampler.pfnGetNativeHandle(sampler, &mut native)),
            UR_RESULT_ERROR_UNSUPPORTED_FEATURE
        );
        ok(ur!(Sampler.pfnRelease(sampler)));
        // Device code handles no narrow images.
        let narrow = setup.plain(&NARROW, UR_MEM_TYPE_IMAGE2D);
        let wrong = memory_object(0, narrow, UR_MEM_FLAG_WRITE_ONLY);
        let code = launch(queue, paint, 1, &[wrong, number(1, &7)], &[], null_mut());
        assert_eq!(code, UR_RESULT_ERROR_ADAPTER_SPECIFIC);
        ok(ur!(USM.pfnFree(context, memory)));
        release(narrow);
        release(image);
        kernels.release();
        setup.end(&driver);
    });
}

/// Makes, uses and releases images, the latter after `at_release`. Returns whether all that was read is right, none if
/// a call failed.
fn play(count_of_devices: usize, at_release: &dyn Fn()) -> Option<bool> {
    let setup = Setup::new(count_of_devices)?;
    let played = with_setup(&setup, at_release);
    setup.release();
    played
}

fn with_setup(setup: &Setup, at_release: &dyn Fn()) -> Option<bool> {
    let kernels = Kernels::new(setup, &[c"paint"])?;
    let mut bytes: Vec<u8> = (0..24 * 16).map(|at| at as u8).collect();
    let host = bytes.as_mut_ptr().cast();
    let flags = UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER;
    let what = desc(UR_MEM_TYPE_IMAGE2D);
    let one = setup.image(flags, &WIDE, &what, host);
    let two = setup.image(UR_MEM_FLAG_READ_WRITE, &WIDE, &what, null_mut());
    let mut mapped = bytes.clone();
    let over = setup.image(
        UR_MEM_FLAG_USE_HOST_POINTER,
        &WIDE,
        &what,
        mapped.as_mut_ptr().cast(),
    );
    let run = || -> Option<bool> {
        let (one, two, over) = (one.ok()?, two.ok()?, over.ok()?);
        let whole = ([0; 3], [0; 3], extent(UR_MEM_TYPE_IMAGE2D));
        let first = setup.queues[0];
        let last = setup.queues[setup.queues.len() - 1];
        let mut right = true;
        // In turns on the first and the last queue, so that images move between devices.
        for (queue, other) in [(first, last), (last, first)] {
            let mut copied = null_mut();
            let (from, to) = (offset([0; 3]), offset([0; 3]));
            let (size, none) = (region(whole.2), null());
            let code =
                ur!(Enqueue.pfnMemImageCopy(queue, one, two, from, to, size, 0, none, &mut copied));
            (code == OK).then_some(())?;
            let mut got = vec![0_u8; bytes.len()];
            let read = ur!(Enqueue.pfnMemImageRead(
                other,
                two,
                1,
                from,
                size,
                0,
                0,
                got.as_mut_ptr().cast(),
                1,
                &copied,
                null_mut()
            ));
            ok(ur!(Event.pfnRelease(copied)));
            (read == OK).then_some(())?;
            right &= got == bytes;
            let (beside, one_pixel) = (offset([1, 0, 0]), region([1; 3]));
            let none = null_mut();
            let code = ur!(Enqueue.pfnMemImageCopy(
                other,
                two,
                two,
                from,
                beside,
                one_pixel,
                0,
                null(),
                none
            ));
            (code == OK).then_some(())?;
            let image = memory_object(0, over, UR_MEM_FLAG_READ_WRITE);
            let base = 1000;
            let args = [image, number(1, &base)];
            (launch(other, kernels.all[0], 4, &args, &[], null_mut()) == OK).then_some(())?;
            (ur!(Queue.pfnFinish(other)) == OK).then_some(())?;
            let part = ([0; 3], [1, 1, 1]);
            let mut pixel = vec![0_u8; 16];
            let code = transfer(queue, over, part, (0, 0), &mut pixel, false);
            (code == OK).then_some(())?;
            let words: Vec<u32> = (1000..1004).collect();
            let want: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            right &= pixel == want;
        }
        Some(right)
    };
    let done = run();
    at_release();
    for image in [one, two, over].into_iter().flatten() {
        release(image);
    }
    kernels.release();
    done
}

fn each_call_fails(name: &str, devices: usize) {
    alone_with(name, &ON, || {
        let driver = FakeDriver::open();
        driver.devices(devices);
        for links in [true, false] {
            driver.peers(links);
            driver.reset();
            assert_eq!(play(devices, &|| {}), Some(true), "{}", driver.report());
            driver.check_end("without a failure");
            let (mut nth, mut met) = (0, true);
            while met {
                nth += 1;
                driver.fail(nth, if nth % 2 == 0 { 2 } else { 999 });
                let failed_before = Cell::new(false);
                let right = play(devices, &|| failed_before.set(driver.query().met));
                met = driver.query().met;
                driver.check_end(&format!("call {nth}, links {links}"));
                assert_ne!(right, Some(false), "call {nth}, links {links}");
                let silent = match failed_before.get() {
                    true => SILENT,
                    false => SILENT_AT_RELEASE,
                };
                let reported = !met || right.is_none() || driver.failed_one_of(silent);
                assert!(reported, "nobody reported call {nth}: {}", driver.report());
            }
            assert!(nth > 30, "{nth} calls");
        }
    });
}

#[test]
fn each_call_may_fail() {
    each_call_fails("tests::images::each_call_may_fail", 1);
}

#[test]
fn each_call_may_fail_on_several_devices() {
    each_call_fails("tests::images::each_call_may_fail_on_several_devices", 2);
}

/// The last release of an image over host memory writes back what commands have written, with the pitch of that
/// memory. One that was only read is not written back.
#[test]
fn host_memory_has_what_commands_wrote() {
    let name = "tests::images::host_memory_has_what_commands_wrote";
    alone_with(name, &ON, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        for count in [1, 2] {
            let setup = Setup::new(count).expect("a context");
            let queue = *setup.queues.last().expect("a queue");
            let what = ur_image_desc_t {
                rowPitch: 8,
                ..desc(UR_MEM_TYPE_IMAGE2D)
            };
            let flags = UR_MEM_FLAG_USE_HOST_POINTER;
            let mut memory = vec![1_u8; 32];
            let image = setup.image(flags, &NARROW, &what, memory.as_mut_ptr().cast());
            let image = image.expect("an image");
            assert_eq!(all(queue, image, UR_MEM_TYPE_IMAGE2D, 1), [1; 24]);
            release(image);
            assert_eq!(memory, [1; 32]);
            let image = setup.image(flags, &NARROW, &what, memory.as_mut_ptr().cast());
            let image = image.expect("an image");
            let mut five = [5_u8; 2];
            let part = ([5, 2, 0], [1, 2, 1]);
            ok(transfer(queue, image, part, (0, 0), &mut five, true));
            release(image);
            let changed: Vec<_> = (0..32).filter(|at| memory[*at] == 5).collect();
            assert_eq!(changed, [21, 29]);
            setup.end(&driver);
        }
    });
}

/// An image that is released while a command waits to use it stays until then.
#[test]
fn a_pending_command_keeps_its_image() {
    let name = "tests::images::a_pending_command_keeps_its_image";
    alone_with(name, &ON, || {
        let driver = FakeDriver::open();
        let setup = Setup::new(1).expect("a context");
        let queue = setup.queues[0];
        let kernels = Kernels::new(&setup, &[c"paint"]).expect("a kernel");
        for _ in 0..20 {
            let ran = AtomicU32::new(0);
            let image = setup.plain(&WIDE, UR_MEM_TYPE_IMAGE2D);
            let mut event = null_mut();
            let data = (&raw const ran).cast_mut().cast();
            ok(ur!(EnqueueExp.pfnHostTaskExp(
                queue,
                Some(task),
                data,
                null(),
                0,
                null(),
                &mut event
            )));
            let args = [
                memory_object(0, image, UR_MEM_FLAG_WRITE_ONLY),
                number(1, &3),
            ];
            ok(launch(queue, kernels.all[0], 16, &args, &[], null_mut()));
            release(image);
            ok(ur!(Queue.pfnFinish(queue)));
            ok(ur!(Event.pfnRelease(event)));
        }
        kernels.release();
        setup.end(&driver);
    });
}

#[test]
fn arrays_of_the_caller_become_images() {
    let name = "tests::images::arrays_of_the_caller_become_images";
    alone_with(name, &ON, || {
        let driver = FakeDriver::open();
        let setup = Setup::new(1).expect("a context");
        let queue = setup.queues[0];
        let own = setup.plain(&NARROW, UR_MEM_TYPE_IMAGE3D);
        let mut native = 0;
        ok(ur!(Mem.pfnGetNativeHandle(
            own,
            setup.devices[0],
            &mut native
        )));
        let adopt = |native, format: &ur_image_format_t, kind| {
            let (mut image, what) = (null_mut(), desc(kind));
            let code = ur!(Mem.pfnImageCreateWithNativeHandle(
                native,
                setup.context,
                format,
                &what,
                null(),
                &mut image
            ));
            (code, image)
        };
        let (code, other) = adopt(native, &NARROW, UR_MEM_TYPE_IMAGE3D);
        ok(code);
        let size = extent(UR_MEM_TYPE_IMAGE3D);
        let mut bytes: Vec<u8> = (0..count(size) as u8).collect();
        ok(transfer(
            queue,
            other,
            ([0; 3], size),
            (0, 0),
            &mut bytes,
            true,
        ));
        release(other);
        assert_eq!(all(queue, own, UR_MEM_TYPE_IMAGE3D, 1), bytes);
        let wrong = UR_RESULT_ERROR_INVALID_IMAGE_FORMAT_DESCRIPTOR;
        assert_eq!(adopt(native, &WIDE, UR_MEM_TYPE_IMAGE3D).0, wrong);
        assert_eq!(adopt(native, &NARROW, UR_MEM_TYPE_IMAGE2D).0, wrong);
        let none = adopt(0, &NARROW, UR_MEM_TYPE_IMAGE3D);
        assert_eq!(none.0, UR_RESULT_ERROR_INVALID_VALUE);
        release(own);
        setup.end(&driver);
    });
}

/// Nothing that the image made over its caller's array is left once the image is released.
#[test]
fn callers_destroy_arrays_after_their_images() {
    let name = "tests::images::callers_destroy_arrays_after_their_images";
    alone_with(name, &ON, || {
        let driver = FakeDriver::open();
        let setup = Setup::new(1).expect("a context");
        let what = desc(UR_MEM_TYPE_IMAGE3D);
        let size = extent(UR_MEM_TYPE_IMAGE3D);
        let mut bytes: Vec<u8> = (0..count(size) as u8).collect();
        for _ in 0..50 {
            let array = array(&what, &NARROW, Surface::ARRAY_FLAGS);
            let (native, mut image) = (array.raw().expose_provenance(), null_mut());
            ok(ur!(Mem.pfnImageCreateWithNativeHandle(
                native,
                setup.context,
                &NARROW,
                &what,
                null(),
                &mut image
            )));
            let part = ([0; 3], size);
            ok(transfer(
                setup.queues[0],
                image,
                part,
                (0, 0),
                &mut bytes,
                true,
            ));
            release(image);
            drop(array);
        }
        setup.end(&driver);
    });
}

#[test]
fn images_are_no_buffers() {
    let name = "tests::images::images_are_no_buffers";
    alone_with(name, &ON, || {
        let driver = FakeDriver::open();
        let setup = Setup::new(1).expect("a context");
        let (queue, context) = (setup.queues[0], setup.context);
        let image = setup.plain(&NARROW, UR_MEM_TYPE_IMAGE2D);
        let mut buffer = null_mut();
        let flags = UR_MEM_FLAG_READ_WRITE;
        ok(ur!(Mem.pfnBufferCreate(
            context,
            flags,
            64,
            null(),
            &mut buffer
        )));
        let (mut bytes, none) = ([0_u8; 64], null_mut());
        let to = bytes.as_mut_ptr().cast();
        let mut new = null_mut();
        let part = ur_buffer_region_t {
            size: 8,
            ..Default::default()
        };
        let mut size = 0_usize;
        let codes = [
            ur!(Enqueue.pfnMemBufferRead(queue, image, 1, 0, 8, to, 0, null(), none)),
            ur!(Enqueue.pfnMemBufferCopy(queue, image, buffer, 0, 0, 8, 0, null(), none)),
            ur!(Enqueue.pfnMemBufferCopy(queue, buffer, image, 0, 0, 8, 0, null(), none)),
            ur!(Mem.pfnBufferPartition(
                image,
                UR_MEM_FLAG_READ_WRITE,
                UR_BUFFER_CREATE_TYPE_REGION,
                &part,
                &mut new
            )),
            transfer(queue, buffer, ([0; 3], [1; 3]), (0, 0), &mut bytes, false),
            copy(queue, buffer, image, ([0; 3], [0; 3], [1; 3])),
            copy(queue, image, buffer, ([0; 3], [0; 3], [1; 3])),
            ur!(Mem.pfnImageGetInfo(
                buffer,
                UR_IMAGE_INFO_WIDTH,
                8,
                (&raw mut size).cast(),
                null_mut()
            )),
        ];
        assert_eq!(codes, [UR_RESULT_ERROR_INVALID_MEM_OBJECT; 8]);
        ok(ur!(Mem.pfnGetInfo(
            image,
            UR_MEM_INFO_SIZE,
            8,
            (&raw mut size).cast(),
            null_mut()
        )));
        assert_eq!(size, 24);
        release(image);
        release(buffer);
        setup.end(&driver);
    });
}

/// Without the variable a device reports no images and makes none.
#[test]
fn images_are_off_at_first() {
    let name = "tests::images::images_are_off_at_first";
    super::fake_driver::alone(name, || {
        let driver = FakeDriver::open();
        let setup = Setup::new(1).expect("a context");
        let mut has = 7_u8;
        let (out, what) = ((&raw mut has).cast(), UR_DEVICE_INFO_IMAGE_SUPPORT);
        ok(ur!(Device.pfnGetInfo(
            setup.devices[0],
            what,
            1,
            out,
            null_mut()
        )));
        assert_eq!(has, 0);
        let what = desc(UR_MEM_TYPE_IMAGE2D);
        let made = setup.image(UR_MEM_FLAG_READ_WRITE, &WIDE, &what, null_mut());
        assert_eq!(made, Err(UR_RESULT_ERROR_UNSUPPORTED_FEATURE));
        let (what, mut sampler) = (ur_sampler_desc_t::default(), null_mut());
        assert_eq!(
            ur!(Sampler.pfnCreate(setup.context, &what, &mut sampler)),
            UR_RESULT_ERROR_UNSUPPORTED_FEATURE
        );
        setup.end(&driver);
    });
}

//! Image memory, handles of images, copies, and linear memory with padded rows.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use scripted::{open_gate, pass_gate};
use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, devices, ur};
use super::launching::{Arg, launch, number, pointer};
use super::test_context::TestContext;
use super::workload::Steps;

const NONE: ur_result_t = UR_RESULT_SUCCESS;
const INVALID_VALUE: ur_result_t = UR_RESULT_ERROR_INVALID_VALUE;
const INVALID_SIZE: ur_result_t = UR_RESULT_ERROR_INVALID_IMAGE_SIZE;

pub const RGBA8: ur_image_format_t = ur_image_format_t {
    channelOrder: UR_IMAGE_CHANNEL_ORDER_RGBA,
    channelType: UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8,
};

/// Bytes of its pixels.
const PIXEL_BYTES: u64 = 4;

/// A description with only what its kind uses.
pub fn image(kind: ur_mem_type_t, sizes: [usize; 3], levels: u32) -> ur_image_desc_t {
    let [width, height, depth] = sizes;
    let layered = [
        UR_MEM_TYPE_IMAGE1D_ARRAY,
        UR_MEM_TYPE_IMAGE2D_ARRAY,
        UR_MEM_TYPE_IMAGE_CUBEMAP_EXP,
    ];
    let is_layered = layered.contains(&kind);
    ur_image_desc_t {
        r#type: kind,
        width,
        height,
        depth: if is_layered { 0 } else { depth },
        arraySize: if is_layered { depth } else { 0 },
        numMipLevel: levels,
        ..Default::default()
    }
}

pub fn region(src: [u64; 3], dst: [u64; 3], size: [u64; 3]) -> ur_exp_image_copy_region_t {
    // Along x the interface counts bytes.
    let bytes = |pixels: u64| pixels.saturating_mul(PIXEL_BYTES);
    let offset = |[x, y, z]: [u64; 3]| ur_rect_offset_t { x: bytes(x), y, z };
    let [width, height, depth] = size;
    ur_exp_image_copy_region_t {
        srcOffset: offset(src),
        dstOffset: offset(dst),
        copyExtent: ur_rect_region_t {
            width: bytes(width),
            height,
            depth,
        },
        ..Default::default()
    }
}

/// One end of a copy: its address or handle, and its description.
pub type CopyEnd<'a> = (usize, &'a ur_image_desc_t);

pub const TO_DEVICE: ur_exp_image_copy_flags_t = UR_EXP_IMAGE_COPY_FLAG_HOST_TO_DEVICE;
pub const TO_HOST: ur_exp_image_copy_flags_t = UR_EXP_IMAGE_COPY_FLAG_DEVICE_TO_HOST;
pub const ON_DEVICE: ur_exp_image_copy_flags_t = UR_EXP_IMAGE_COPY_FLAG_DEVICE_TO_DEVICE;
pub const INTO: ur_exp_image_copy_input_types_t = UR_EXP_IMAGE_COPY_INPUT_TYPES_MEM_TO_IMAGE;
pub const OUT_OF: ur_exp_image_copy_input_types_t = UR_EXP_IMAGE_COPY_INPUT_TYPES_IMAGE_TO_MEM;
pub const BETWEEN: ur_exp_image_copy_input_types_t = UR_EXP_IMAGE_COPY_INPUT_TYPES_IMAGE_TO_IMAGE;
const PLAIN: ur_exp_image_copy_input_types_t = UR_EXP_IMAGE_COPY_INPUT_TYPES_MEM_TO_MEM;

pub fn copy(
    queue: ur_queue_handle_t,
    (src, src_desc): CopyEnd<'_>,
    (dst, dst_desc): CopyEnd<'_>,
    region: &ur_exp_image_copy_region_t,
    (flags, types): (ur_exp_image_copy_flags_t, ur_exp_image_copy_input_types_t),
) -> ur_result_t {
    let src = std::ptr::with_exposed_provenance(src);
    let dst = std::ptr::with_exposed_provenance_mut(dst);
    let region = std::ptr::from_ref(region).cast_mut();
    ur!(BindlessImagesExp.pfnImageCopyExp(
        queue,
        src,
        dst,
        src_desc,
        dst_desc,
        &RGBA8,
        &RGBA8,
        region,
        flags,
        types,
        0,
        null(),
        null_mut()
    ))
}

pub fn address<T>(memory: &[T]) -> usize {
    memory.as_ptr().expose_provenance()
}

pub fn allocate(
    test: &TestContext,
    format: &ur_image_format_t,
    desc: &ur_image_desc_t,
) -> Result<usize, ur_result_t> {
    let mut made = 0;
    let (context, device) = (test.context, test.device);
    match ur!(BindlessImagesExp.pfnImageAllocateExp(context, device, format, desc, &mut made)) {
        NONE => Ok(made),
        code => Err(code),
    }
}

pub fn free(test: &TestContext, image: usize) -> ur_result_t {
    ur!(BindlessImagesExp.pfnImageFreeExp(test.context, test.device, image))
}

pub fn free_mipmap(test: &TestContext, image: usize) -> ur_result_t {
    ur!(BindlessImagesExp.pfnMipmapFreeExp(test.context, test.device, image))
}

fn level(test: &TestContext, image: usize, level: u32) -> Result<usize, ur_result_t> {
    let mut made = 0;
    let (context, device) = (test.context, test.device);
    match ur!(BindlessImagesExp.pfnMipmapGetLevelExp(context, device, image, level, &mut made)) {
        NONE => Ok(made),
        code => Err(code),
    }
}

pub fn unsampled(
    test: &TestContext,
    image: usize,
    desc: &ur_image_desc_t,
) -> Result<usize, ur_result_t> {
    let mut made = 0;
    let (context, device) = (test.context, test.device);
    match ur!(BindlessImagesExp
        .pfnUnsampledImageCreateExp(context, device, image, &RGBA8, desc, &mut made))
    {
        NONE => Ok(made),
        code => Err(code),
    }
}

fn sampler() -> ur_sampler_desc_t {
    ur_sampler_desc_t {
        normalizedCoords: 1,
        addressingMode: UR_SAMPLER_ADDRESSING_MODE_CLAMP,
        filterMode: UR_SAMPLER_FILTER_MODE_NEAREST,
        ..Default::default()
    }
}

pub fn sampled(
    test: &TestContext,
    image: usize,
    desc: &ur_image_desc_t,
) -> Result<usize, ur_result_t> {
    let mut made = 0;
    let (context, device) = (test.context, test.device);
    match ur!(BindlessImagesExp.pfnSampledImageCreateExp(
        context,
        device,
        image,
        &RGBA8,
        desc,
        &sampler(),
        &mut made
    )) {
        NONE => Ok(made),
        code => Err(code),
    }
}

pub fn end_sampled(test: &TestContext, image: usize) -> ur_result_t {
    ur!(BindlessImagesExp.pfnSampledImageHandleDestroyExp(test.context, test.device, image))
}

pub fn end_unsampled(test: &TestContext, image: usize) -> ur_result_t {
    ur!(BindlessImagesExp.pfnUnsampledImageHandleDestroyExp(test.context, test.device, image))
}

fn info<T: Default>(test: &TestContext, image: usize, what: ur_image_info_t) -> T {
    let (mut value, mut size) = (T::default(), 0);
    let to = (&raw mut value).cast();
    let code = ur!(BindlessImagesExp.pfnImageGetInfoExp(test.context, image, what, to, &mut size));
    assert_eq!((code, size), (NONE, size_of::<T>()), "{what:?}");
    value
}

/// Every kind of image, with the sizes of its copies.
const KINDS: [(ur_mem_type_t, [usize; 3]); 6] = [
    (UR_MEM_TYPE_IMAGE1D, [9, 0, 0]),
    (UR_MEM_TYPE_IMAGE2D, [9, 5, 0]),
    (UR_MEM_TYPE_IMAGE3D, [9, 5, 3]),
    (UR_MEM_TYPE_IMAGE1D_ARRAY, [9, 0, 4]),
    (UR_MEM_TYPE_IMAGE2D_ARRAY, [9, 5, 2]),
    (UR_MEM_TYPE_IMAGE_CUBEMAP_EXP, [4, 4, 6]),
];

pub fn texels(count: usize) -> Vec<u32> {
    (0..count as u32).map(|at| at * 0x0101_0307 + 5).collect()
}

#[test]
fn every_kind_keeps_its_texels() {
    alone("tests::bindless::every_kind_keeps_its_texels", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(64);
        let queue = test.queue(ur_queue_flags_t(0));
        for (kind, sizes) in KINDS {
            let desc = image(kind, sizes, 1);
            let all = sizes.map(|size| size.max(1) as u64);
            let from = texels(all.iter().product::<u64>() as usize);
            let mut to = vec![0_u32; from.len()];
            let [one, two] = [0, 1].map(|_| allocate(&test, &RGBA8, &desc).expect("memory"));
            let whole = region([0; 3], [0; 3], all);
            let ends = [(address(&from), &desc), (one, &desc), (two, &desc)];
            assert_eq!(
                copy(queue, ends[0], ends[1], &whole, (TO_DEVICE, INTO)),
                NONE
            );
            assert_eq!(
                copy(queue, ends[1], ends[2], &whole, (ON_DEVICE, BETWEEN)),
                NONE
            );
            let back = (to.as_mut_ptr().expose_provenance(), &desc);
            assert_eq!(copy(queue, ends[2], back, &whole, (TO_HOST, OUT_OF)), NONE);
            assert_eq!(ur!(Queue.pfnFinish(queue)), NONE);
            assert_eq!(from, to, "{kind:?}");
            let read = sampled(&test, one, &desc).expect("a sampled image");
            let written = unsampled(&test, one, &desc).expect("an unsampled image");
            // The memory outlives its handles, whatever the order of the calls.
            assert_eq!(free(&test, one), NONE);
            assert_eq!(free(&test, one), INVALID_VALUE, "freed twice");
            assert_eq!(end_unsampled(&test, read), INVALID_VALUE, "a sampled image");
            assert_eq!(
                end_sampled(&test, written),
                INVALID_VALUE,
                "an unsampled image"
            );
            assert_eq!(end_sampled(&test, read), NONE);
            assert_eq!(end_unsampled(&test, written), NONE);
            assert_eq!(end_sampled(&test, read), INVALID_VALUE, "destroyed twice");
            assert_eq!(free_mipmap(&test, two), INVALID_VALUE, "no mipmap");
            assert_eq!(free(&test, two), NONE);
        }
        assert_eq!(ur!(Queue.pfnRelease(queue)), NONE);
        test.end(&driver);
    });
}

#[test]
fn a_region_goes_where_it_says() {
    alone("tests::bindless::a_region_goes_where_it_says", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(64);
        let queue = test.queue(UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE);
        let desc = image(UR_MEM_TYPE_IMAGE3D, [6, 5, 4], 1);
        // Rows and slices of linear memory with space between them, the slices no whole number of rows.
        let padded = ur_image_desc_t {
            rowPitch: 32,
            slicePitch: 164,
            ..desc
        };
        let from = texels(41 * 4);
        let one = allocate(&test, &RGBA8, &desc).expect("memory");
        let finish = || assert_eq!(ur!(Queue.pfnFinish(queue)), NONE);
        let part = region([1, 2, 1], [3, 0, 2], [3, 2, 2]);
        let zero = vec![0_u32; 120];
        let whole = region([0; 3], [0; 3], [6, 5, 4]);
        assert_eq!(
            copy(
                queue,
                (address(&zero), &desc),
                (one, &desc),
                &whole,
                (TO_DEVICE, INTO)
            ),
            NONE
        );
        finish();
        assert_eq!(
            copy(
                queue,
                (address(&from), &padded),
                (one, &desc),
                &part,
                (TO_DEVICE, INTO)
            ),
            NONE
        );
        finish();
        let mut to = vec![7_u32; 120];
        let back = (to.as_mut_ptr().expose_provenance(), &desc);
        assert_eq!(
            copy(queue, (one, &desc), back, &whole, (TO_HOST, OUT_OF)),
            NONE
        );
        finish();
        let mut expected = vec![0_u32; 120];
        for (z, y, x) in
            (0..2).flat_map(|z| (0..2).flat_map(move |y| (0..3).map(move |x| (z, y, x))))
        {
            let at = (z + 2) * 30 + y * 6 + x + 3;
            expected[at] = from[(z + 1) * 41 + (y + 2) * 8 + x + 1];
        }
        assert_eq!(to, expected);
        // Two regions are one command, and linear memory may be at both ends.
        let mut second = region([0; 3], [0; 3], [1, 1, 1]);
        second.srcOffset.x = 5 * PIXEL_BYTES;
        let mut first = region([0; 3], [4, 0, 0], [2, 1, 1]);
        first.pNext = (&raw const second).cast();
        let mut line = vec![0_u32; 6];
        let flat = image(UR_MEM_TYPE_IMAGE1D, [6, 0, 0], 1);
        let end = (line.as_mut_ptr().expose_provenance(), &flat);
        let host = (UR_EXP_IMAGE_COPY_FLAG_HOST_TO_HOST, PLAIN);
        assert_eq!(
            copy(queue, (address(&from), &flat), end, &first, host),
            NONE
        );
        finish();
        assert_eq!(line, [from[5], 0, 0, 0, from[0], from[1]]);
        let mut line = vec![0_u32; 6];
        let end = (line.as_mut_ptr().expose_provenance(), &flat);
        assert_eq!(
            copy(queue, (address(&from), &flat), end, &second, host),
            NONE
        );
        finish();
        assert_eq!(line, [from[5], 0, 0, 0, 0, 0]);
        assert_eq!(free(&test, one), NONE);
        assert_eq!(ur!(Queue.pfnRelease(queue)), NONE);
        test.end(&driver);
    });
}

#[test]
fn wrong_copies_are_refused() {
    alone("tests::bindless::wrong_copies_are_refused", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(64);
        let queue = test.queue(ur_queue_flags_t(0));
        let desc = image(UR_MEM_TYPE_IMAGE2D, [8, 4, 0], 1);
        let one = allocate(&test, &RGBA8, &desc).expect("memory");
        let many = image(UR_MEM_TYPE_IMAGE2D, [8, 4, 0], 3);
        let mipmap = allocate(&test, &RGBA8, &many).expect("a mipmap");
        let host = texels(32);
        let memory = (address(&host), &desc);
        let whole = region([0; 3], [0; 3], [8, 4, 1]);
        let refused =
            |src, dst, region: &ur_exp_image_copy_region_t, how| copy(queue, src, dst, region, how);
        let into = (TO_DEVICE, INTO);
        assert_eq!(
            refused(memory, (one, &desc), &whole, (TO_HOST, INTO)),
            INVALID_VALUE
        );
        assert_eq!(
            refused(memory, (address(&host), &desc), &whole, into),
            INVALID_VALUE,
            "no image"
        );
        assert_eq!(
            refused((one, &desc), (one, &desc), &whole, into),
            INVALID_VALUE,
            "no memory"
        );
        assert_eq!(
            refused(memory, (mipmap, &many), &whole, into),
            INVALID_VALUE,
            "a mipmap"
        );
        for (src, dst, size) in [
            ([0; 3], [0; 3], [9, 1, 1]),
            ([1, 0, 0], [0; 3], [8, 1, 1]),
            ([0; 3], [0, 4, 0], [1, 1, 1]),
            ([0; 3], [0, 0, 1], [1, 1, 1]),
            ([0; 3], [0; 3], [0, 1, 1]),
            ([0; 3], [u64::MAX / 8, 0, 0], [2, 1, 1]),
        ] {
            let region = region(src, dst, size);
            assert_eq!(
                refused(memory, (one, &desc), &region, into),
                INVALID_SIZE,
                "{src:?} {dst:?}"
            );
        }
        let narrow = ur_image_desc_t {
            rowPitch: 16,
            ..desc
        };
        assert_eq!(
            refused((address(&host), &narrow), (one, &desc), &whole, into),
            INVALID_VALUE
        );
        let mut looped = region([0; 3], [0; 3], [1, 1, 1]);
        looped.pNext = (&raw const looped).cast();
        assert_eq!(
            refused(memory, (one, &desc), &looped, into),
            INVALID_VALUE,
            "a loop"
        );
        let formats = |dst: &ur_image_format_t| {
            let (src, to) = (
                host.as_ptr().cast(),
                std::ptr::with_exposed_provenance_mut(one),
            );
            let region = (&raw const whole).cast_mut();
            ur!(BindlessImagesExp.pfnImageCopyExp(
                queue,
                src,
                to,
                &desc,
                &desc,
                &RGBA8,
                dst,
                region,
                TO_DEVICE,
                INTO,
                0,
                null(),
                null_mut()
            ))
        };
        let other = ur_image_format_t {
            channelOrder: UR_IMAGE_CHANNEL_ORDER_BGRA,
            ..RGBA8
        };
        assert_eq!(formats(&other), UR_RESULT_ERROR_INVALID_ARGUMENT);
        let wide = ur_image_format_t {
            channelType: UR_IMAGE_CHANNEL_TYPE_FLOAT,
            ..RGBA8
        };
        assert_eq!(formats(&wide), INVALID_VALUE);
        assert_eq!(free(&test, one), NONE);
        assert_eq!(free_mipmap(&test, mipmap), NONE);
        assert_eq!(ur!(Queue.pfnRelease(queue)), NONE);
        test.end(&driver);
    });
}

#[test]
fn levels_belong_to_their_mipmap() {
    alone("tests::bindless::levels_belong_to_their_mipmap", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(64);
        let queue = test.queue(ur_queue_flags_t(0));
        let desc = image(UR_MEM_TYPE_IMAGE2D, [8, 4, 0], 4);
        let mipmap = allocate(&test, &RGBA8, &desc).expect("a mipmap");
        let half = level(&test, mipmap, 1).expect("a level");
        assert_eq!(level(&test, mipmap, 1), Ok(half), "one handle");
        assert_eq!(level(&test, mipmap, 4), Err(INVALID_VALUE));
        assert_eq!(level(&test, half, 0), Err(INVALID_VALUE), "no mipmap");
        assert_eq!(free(&test, mipmap), INVALID_VALUE, "a mipmap");
        assert_eq!(free(&test, half), INVALID_VALUE, "a level");
        assert_eq!(free_mipmap(&test, half), INVALID_VALUE, "a level");
        assert_eq!(info::<usize>(&test, half, UR_IMAGE_INFO_WIDTH), 4);
        assert_eq!(info::<usize>(&test, half, UR_IMAGE_INFO_HEIGHT), 2);
        assert_eq!(info::<u32>(&test, mipmap, UR_IMAGE_INFO_NUM_MIP_LEVELS), 4);
        let small = image(UR_MEM_TYPE_IMAGE2D, [4, 2, 0], 1);
        let (from, mut to) = (texels(8), vec![0_u32; 8]);
        let whole = region([0; 3], [0; 3], [4, 2, 1]);
        let source = (address(&from), &small);
        assert_eq!(
            copy(queue, source, (half, &small), &whole, (TO_DEVICE, INTO)),
            NONE
        );
        let back = (to.as_mut_ptr().expose_provenance(), &small);
        assert_eq!(
            copy(queue, (half, &small), back, &whole, (TO_HOST, OUT_OF)),
            NONE
        );
        assert_eq!(ur!(Queue.pfnFinish(queue)), NONE);
        assert_eq!(from, to);
        assert_eq!(
            unsampled(&test, mipmap, &desc),
            Err(INVALID_VALUE),
            "a mipmap"
        );
        let written = unsampled(&test, half, &small).expect("an unsampled image");
        let read = sampled(&test, mipmap, &desc).expect("a sampled image");
        assert_eq!(free_mipmap(&test, mipmap), NONE);
        assert_eq!(level(&test, mipmap, 0), Err(INVALID_VALUE), "freed");
        assert_eq!(
            copy(queue, source, (half, &small), &whole, (TO_DEVICE, INTO)),
            INVALID_VALUE
        );
        assert_eq!(end_unsampled(&test, written), NONE);
        assert_eq!(end_sampled(&test, read), NONE);
        assert_eq!(ur!(Queue.pfnRelease(queue)), NONE);
        test.end(&driver);
    });
}

#[test]
fn image_memory_tells_what_it_is() {
    alone("tests::bindless::image_memory_tells_what_it_is", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(64);
        let desc = image(UR_MEM_TYPE_IMAGE2D_ARRAY, [9, 5, 3], 1);
        let one = allocate(&test, &RGBA8, &desc).expect("memory");
        let sizes = [
            (UR_IMAGE_INFO_ELEMENT_SIZE, 4),
            (UR_IMAGE_INFO_ROW_PITCH, 36),
            (UR_IMAGE_INFO_SLICE_PITCH, 180),
            (UR_IMAGE_INFO_WIDTH, 9),
            (UR_IMAGE_INFO_HEIGHT, 5),
            (UR_IMAGE_INFO_DEPTH, 0),
            (UR_IMAGE_INFO_ARRAY_SIZE, 3),
        ];
        for (what, size) in sizes {
            assert_eq!(info::<usize>(&test, one, what), size, "{what:?}");
        }
        assert_eq!(info::<u32>(&test, one, UR_IMAGE_INFO_NUM_MIP_LEVELS), 0);
        assert_eq!(info::<u32>(&test, one, UR_IMAGE_INFO_NUM_SAMPLES), 0);
        let found: ur_image_format_t = info(&test, one, UR_IMAGE_INFO_FORMAT);
        assert_eq!(
            (found.channelOrder, found.channelType),
            (RGBA8.channelOrder, RGBA8.channelType)
        );
        let mut size = 0;
        let unknown = ur!(BindlessImagesExp.pfnImageGetInfoExp(
            test.context,
            one + 1,
            UR_IMAGE_INFO_WIDTH,
            null_mut(),
            &mut size
        ));
        assert_eq!(unknown, INVALID_VALUE);
        // The context ends what the caller leaves.
        let _ = sampled(&test, one, &desc).expect("a sampled image");
        test.end(&driver);
    });
}

#[test]
fn wrong_descriptions_are_refused() {
    alone("tests::bindless::wrong_descriptions_are_refused", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(64);
        let flat = |sizes, levels| image(UR_MEM_TYPE_IMAGE2D, sizes, levels);
        let refused = |desc: &ur_image_desc_t| allocate(&test, &RGBA8, desc).err();
        assert_eq!(refused(&flat([0, 4, 0], 1)), Some(INVALID_SIZE));
        assert_eq!(refused(&flat([4, 0, 0], 1)), Some(INVALID_SIZE));
        assert_eq!(
            refused(&flat([1 << 20, 4, 0], 1)),
            Some(INVALID_SIZE),
            "beyond the limit"
        );
        assert_eq!(
            refused(&flat([8, 4, 0], 5)),
            Some(INVALID_VALUE),
            "too many levels"
        );
        let cube = |sizes| image(UR_MEM_TYPE_IMAGE_CUBEMAP_EXP, sizes, 1);
        assert_eq!(refused(&cube([4, 5, 6])), Some(INVALID_SIZE));
        assert_eq!(refused(&cube([4, 4, 7])), Some(INVALID_SIZE));
        let gather = image(UR_MEM_TYPE_IMAGE_GATHER_EXP, [4, 4, 0], 1);
        assert_eq!(
            refused(&gather),
            Some(UR_RESULT_ERROR_INVALID_IMAGE_FORMAT_DESCRIPTOR)
        );
        let format = |order| ur_image_format_t {
            channelOrder: order,
            ..RGBA8
        };
        for order in [UR_IMAGE_CHANNEL_ORDER_RGB, UR_IMAGE_CHANNEL_ORDER_LUMINANCE] {
            let found = allocate(&test, &format(order), &flat([4, 4, 0], 1));
            assert_eq!(found, Err(UR_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT));
        }
        let desc = flat([8, 4, 0], 1);
        let one = allocate(&test, &RGBA8, &desc).expect("memory");
        assert_eq!(sampled(&test, one, &flat([8, 5, 0], 1)), Err(INVALID_SIZE));
        assert_eq!(
            unsampled(&test, one, &flat([4, 4, 0], 1)),
            Err(INVALID_SIZE)
        );
        let sized = image(UR_MEM_TYPE_IMAGE1D, [16, 0, 0], 1);
        let line = test.memory.addr();
        assert!(sampled(&test, line, &sized).is_ok_and(|read| end_sampled(&test, read) == NONE));
        let long = image(UR_MEM_TYPE_IMAGE1D, [17, 0, 0], 1);
        assert_eq!(
            sampled(&test, line, &long),
            Err(INVALID_SIZE),
            "beyond the allocation"
        );
        assert_eq!(
            unsampled(&test, line, &sized),
            Err(INVALID_VALUE),
            "surfaces lie in arrays"
        );
        let deep = image(UR_MEM_TYPE_IMAGE3D, [2, 2, 2], 1);
        assert_eq!(
            sampled(&test, line, &deep),
            Err(INVALID_VALUE),
            "no linear memory"
        );
        assert_eq!(
            sampled(&test, 0x1234, &sized),
            Err(INVALID_VALUE),
            "no memory"
        );
        assert_eq!(free(&test, one), NONE);
        test.end(&driver);
    });
}

#[test]
fn rows_of_pitched_memory_are_a_texture_s() {
    alone(
        "tests::bindless::rows_of_pitched_memory_are_a_texture_s",
        || {
            let driver = FakeDriver::open();
            let test = TestContext::new(64);
            let (context, device) = (test.context, test.device);
            let alloc = |width, height, element| {
                let (mut memory, mut pitch) = (null_mut(), 0);
                let code = ur!(USMExp.pfnPitchedAllocExp(
                    context,
                    device,
                    null(),
                    null_mut(),
                    width,
                    height,
                    element,
                    &mut memory,
                    &mut pitch
                ));
                if code == NONE {
                    Ok((memory, pitch))
                } else {
                    Err(code)
                }
            };
            let (memory, pitch) = alloc(100, 7, 4).expect("memory");
            assert_eq!((memory.addr() % 512, pitch), (0, 512));
            let mut size = 0_usize;
            let to = (&raw mut size).cast::<c_void>();
            let what = UR_USM_ALLOC_INFO_SIZE;
            assert_eq!(
                ur!(USM.pfnGetMemAllocInfo(context, memory, what, 8, to, null_mut())),
                NONE
            );
            assert_eq!(size, 7 * 512);
            let desc = ur_image_desc_t {
                rowPitch: pitch,
                ..image(UR_MEM_TYPE_IMAGE2D, [25, 7, 0], 1)
            };
            let read = sampled(&test, memory.addr(), &desc).expect("a sampled image");
            assert_eq!(end_sampled(&test, read), NONE);
            let odd = ur_image_desc_t {
                rowPitch: pitch - 8,
                ..desc
            };
            assert_eq!(
                sampled(&test, memory.addr(), &odd),
                Err(INVALID_VALUE),
                "the pitch"
            );
            assert_eq!(alloc(0, 7, 4), Err(UR_RESULT_ERROR_INVALID_USM_SIZE));
            assert_eq!(alloc(100, 0, 4), Err(INVALID_VALUE));
            assert_eq!(alloc(100, 7, 0), Err(INVALID_VALUE));
            assert_eq!(alloc(100, 7, 12), Err(INVALID_VALUE));
            assert_eq!(
                alloc(usize::MAX - 3, 7, 4),
                Err(UR_RESULT_ERROR_INVALID_USM_SIZE)
            );
            assert_eq!(
                alloc(1 << 40, 1 << 30, 4),
                Err(UR_RESULT_ERROR_INVALID_USM_SIZE)
            );
            assert_eq!(ur!(USM.pfnFree(context, memory)), NONE);
            test.end(&driver);
        },
    );
}

/// A number of 64 bits, which has to live until the launch.
fn handle(index: u32, number: &u64) -> Arg {
    let mut arg = Arg {
        r#type: UR_EXP_KERNEL_ARG_TYPE_VALUE,
        index,
        size: size_of::<u64>(),
        ..Default::default()
    };
    arg.value.value = std::ptr::from_ref(number).cast();
    arg
}

#[test]
fn kernels_take_images_by_value() {
    alone("tests::bindless::kernels_take_images_by_value", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(4 * 32);
        let (context, mut device) = (test.context, test.device);
        let queue = test.queue(ur_queue_flags_t(0));
        let text = b".version 8.0\0";
        let (mut length, mut code) = (text.len(), text.as_ptr());
        let mut program = null_mut();
        let made = ur!(Program.pfnCreateWithBinary(
            context,
            1,
            &mut device,
            &mut length,
            &mut code,
            null(),
            &mut program
        ));
        assert_eq!(made, NONE);
        assert_eq!(ur!(Program.pfnBuild(context, program, null())), NONE);
        let [paint, texels] = [c"paint", c"texels"].map(|name| {
            let mut kernel = null_mut();
            assert_eq!(
                ur!(Kernel.pfnCreate(program, name.as_ptr(), &mut kernel)),
                NONE
            );
            kernel
        });
        let desc = image(UR_MEM_TYPE_IMAGE2D, [8, 4, 0], 1);
        let one = allocate(&test, &RGBA8, &desc).expect("memory");
        let written = unsampled(&test, one, &desc).expect("an unsampled image");
        let read = sampled(&test, one, &desc).expect("a sampled image");
        let (written_value, read_value, base) = (written as u64, read as u64, 500);
        let args = [handle(0, &written_value), number(1, &base)];
        assert_eq!(launch(queue, paint, 32, &args, &[], null_mut()), NONE);
        let args = [pointer(0, test.memory), handle(1, &read_value)];
        assert_eq!(launch(queue, texels, 32, &args, &[], null_mut()), NONE);
        assert_eq!(ur!(Queue.pfnFinish(queue)), NONE);
        // SAFETY: host memory of that many words, which no command uses now.
        let found = unsafe { std::slice::from_raw_parts(test.memory.cast::<u32>(), 32) };
        assert!(found.iter().copied().eq(500..532), "{found:?}");
        assert_eq!(end_sampled(&test, read), NONE);
        assert_eq!(end_unsampled(&test, written), NONE);
        assert_eq!(free(&test, one), NONE);
        for kernel in [paint, texels] {
            assert_eq!(ur!(Kernel.pfnRelease(kernel)), NONE);
        }
        assert_eq!(ur!(Program.pfnRelease(program)), NONE);
        assert_eq!(ur!(Queue.pfnRelease(queue)), NONE);
        test.end(&driver);
    });
}

#[test]
fn a_copy_waits_for_the_host_with_its_images() {
    alone(
        "tests::bindless::a_copy_waits_for_the_host_with_its_images",
        || {
            let driver = FakeDriver::open();
            let test = TestContext::new(64);
            let queue = test.queue(ur_queue_flags_t(0));
            let desc = image(UR_MEM_TYPE_IMAGE1D, [8, 0, 0], 1);
            let one = allocate(&test, &RGBA8, &desc).expect("memory");
            let (from, mut to) = (texels(8), vec![0_u32; 8]);
            let none = null_mut();
            let gate: Option<unsafe extern "C" fn(*mut c_void)> = Some(pass_gate);
            assert_eq!(
                ur!(EnqueueExp.pfnHostTaskExp(queue, gate, null_mut(), null(), 0, null(), none)),
                NONE
            );
            let whole = region([0; 3], [0; 3], [8, 1, 1]);
            assert_eq!(
                copy(
                    queue,
                    (address(&from), &desc),
                    (one, &desc),
                    &whole,
                    (TO_DEVICE, INTO)
                ),
                NONE
            );
            let back = (to.as_mut_ptr().expose_provenance(), &desc);
            assert_eq!(
                copy(queue, (one, &desc), back, &whole, (TO_HOST, OUT_OF)),
                NONE
            );
            // Pending copies keep the driver's array.
            assert_eq!(free(&test, one), NONE);
            assert!(to.iter().all(|texel| *texel == 0), "nothing ran yet");
            open_gate();
            assert_eq!(ur!(Queue.pfnFinish(queue)), NONE);
            assert_eq!(from, to);
            assert_eq!(ur!(Queue.pfnRelease(queue)), NONE);
            test.end(&driver);
        },
    );
}

#[test]
fn a_captured_copy_runs_with_each_execution() {
    alone(
        "tests::bindless::a_captured_copy_runs_with_each_execution",
        || {
            let driver = FakeDriver::open();
            let test = TestContext::new(64);
            let queue = test.queue(ur_queue_flags_t(0));
            let desc = image(UR_MEM_TYPE_IMAGE1D, [8, 0, 0], 1);
            let one = allocate(&test, &RGBA8, &desc).expect("memory");
            let (mut from, mut to) = (texels(8), vec![0_u32; 8]);
            let whole = region([0; 3], [0; 3], [8, 1, 1]);
            let (mut graph, mut executable) = (null_mut(), null_mut());
            assert_eq!(ur!(QueueExp.pfnBeginGraphCaptureExp(queue)), NONE);
            let source = (from.as_mut_ptr().expose_provenance(), &desc);
            let back = (to.as_mut_ptr().expose_provenance(), &desc);
            assert_eq!(
                copy(queue, source, (one, &desc), &whole, (TO_DEVICE, INTO)),
                NONE
            );
            assert_eq!(
                copy(queue, (one, &desc), back, &whole, (TO_HOST, OUT_OF)),
                NONE
            );
            assert_eq!(ur!(QueueExp.pfnEndGraphCaptureExp(queue, &mut graph)), NONE);
            assert!(to.iter().all(|texel| *texel == 0), "recorded only");
            assert_eq!(
                ur!(GraphExp.pfnInstantiateGraphExp(graph, &mut executable)),
                NONE
            );
            for round in 1..4 {
                from.iter_mut().for_each(|texel| *texel += round);
                let none = null_mut();
                assert_eq!(
                    ur!(EnqueueExp.pfnGraphExp(queue, executable, 0, null(), none)),
                    NONE
                );
                assert_eq!(ur!(Queue.pfnFinish(queue)), NONE);
                assert_eq!(from, to);
            }
            assert_eq!(ur!(GraphExp.pfnExecutableGraphDestroyExp(executable)), NONE);
            assert_eq!(ur!(GraphExp.pfnDestroyExp(graph)), NONE);
            assert_eq!(free(&test, one), NONE);
            assert_eq!(ur!(Queue.pfnRelease(queue)), NONE);
            test.end(&driver);
        },
    );
}

/// A part of everything, each step recorded. Returns whether what came back is right.
fn play() -> Steps<'static> {
    let mut steps = Steps::new(&|_| {});
    let adapter = adapter();
    let device = devices(adapter)[0];
    let mut context = null_mut();
    let made = ur!(Context.pfnCreate(1, &device, null(), &mut context));
    if steps.record("urContextCreate", made) {
        with_context(&mut steps, context, device);
        steps.record("urContextRelease", ur!(Context.pfnRelease(context)));
    }
    steps.record("urAdapterRelease", ur!(Adapter.pfnRelease(adapter)));
    steps
}

fn with_context(steps: &mut Steps, context: ur_context_handle_t, device: ur_device_handle_t) {
    let mut queue = null_mut();
    let made = ur!(Queue.pfnCreate(context, device, null(), &mut queue));
    if !steps.record("urQueueCreate", made) {
        return;
    }
    let desc = image(UR_MEM_TYPE_IMAGE2D, [8, 4, 0], 3);
    let (mut mipmap, mut low) = (0, 0);
    let format = &RGBA8;
    let code =
        ur!(BindlessImagesExp.pfnImageAllocateExp(context, device, format, &desc, &mut mipmap));
    if steps.record("allocate", code) {
        let code =
            ur!(BindlessImagesExp.pfnMipmapGetLevelExp(context, device, mipmap, 2, &mut low));
        steps.record("level", code);
        let mut read = 0;
        let code = ur!(BindlessImagesExp.pfnSampledImageCreateExp(
            context,
            device,
            mipmap,
            format,
            &desc,
            &sampler(),
            &mut read
        ));
        if steps.record("sampled", code) {
            let code =
                ur!(BindlessImagesExp.pfnSampledImageHandleDestroyExp(context, device, read));
            steps.record("end of sampled", code);
        }
        let code = ur!(BindlessImagesExp.pfnMipmapFreeExp(context, device, mipmap));
        steps.record("free of a mipmap", code);
    }
    let desc = image(UR_MEM_TYPE_IMAGE2D_ARRAY, [8, 4, 2], 1);
    let mut one = 0;
    let code = ur!(BindlessImagesExp.pfnImageAllocateExp(context, device, format, &desc, &mut one));
    if steps.record("allocate layers", code) {
        let mut written = 0;
        let code = ur!(BindlessImagesExp.pfnUnsampledImageCreateExp(
            context,
            device,
            one,
            format,
            &desc,
            &mut written
        ));
        if steps.record("unsampled", code) {
            let code =
                ur!(BindlessImagesExp.pfnUnsampledImageHandleDestroyExp(context, device, written));
            steps.record("end of unsampled", code);
        }
        let (from, mut to) = (texels(64), vec![0_u32; 64]);
        let whole = region([0; 3], [0; 3], [8, 4, 2]);
        let code = copy(
            queue,
            (address(&from), &desc),
            (one, &desc),
            &whole,
            (TO_DEVICE, INTO),
        );
        steps.record("copy in", code);
        let back = (to.as_mut_ptr().expose_provenance(), &desc);
        let code = copy(queue, (one, &desc), back, &whole, (TO_HOST, OUT_OF));
        steps.record("copy out", code);
        steps.record("urQueueFinish", ur!(Queue.pfnFinish(queue)));
        steps.right = from == to;
        let code = ur!(BindlessImagesExp.pfnImageFreeExp(context, device, one));
        steps.record("free", code);
    }
    let (mut memory, mut pitch) = (null_mut(), 0);
    let code = ur!(USMExp.pfnPitchedAllocExp(
        context,
        device,
        null(),
        null_mut(),
        32,
        4,
        4,
        &mut memory,
        &mut pitch
    ));
    if steps.record("pitched memory", code) {
        let flat = ur_image_desc_t {
            rowPitch: pitch,
            ..image(UR_MEM_TYPE_IMAGE2D, [8, 4, 0], 1)
        };
        let mut read = 0;
        let code = ur!(BindlessImagesExp.pfnSampledImageCreateExp(
            context,
            device,
            memory.addr(),
            format,
            &flat,
            &sampler(),
            &mut read
        ));
        // The context ends the image.
        steps.record("sampled memory", code);
        steps.record("urUSMFree", ur!(USM.pfnFree(context, memory)));
    }
    steps.record("urQueueRelease", ur!(Queue.pfnRelease(queue)));
}

#[test]
fn each_call_fails_once() {
    alone("tests::bindless::each_call_fails_once", || {
        let driver = FakeDriver::open();
        for code in [2, 700, 98_765] {
            driver.reset();
            let whole = play();
            assert_eq!(whole.failed(), []);
            assert!(whole.right, "what was read back");
            driver.check_end("a workload");
            let calls = driver.query().calls;
            assert!(calls > 15, "{calls} calls that could fail");
            for nth in 1..=calls {
                driver.fail(nth, code);
                let steps = play();
                let when = format!("call {nth} failed with {code}: {:?}", steps.failed());
                driver.check_end(&when);
                let silent = steps.failed().is_empty();
                assert!(!silent || steps.right, "{when}: {}", driver.report());
            }
        }
    });
}

//! Images: creation, info queries, and every command on them with real data.

use crate::fixture::Fixture;
use crate::kernels::{PAINT, TEXELS};
use crate::objects::image::{KINDS, Part, RGBA8, axes, desc};
use crate::objects::{Arg, Context, Gate, Graph, Image, Kind, Program, Queue};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_all, check_eq, check_items};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::time::Duration;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests!["image";
        formats, bytes_of_formats, create_with_flags, create_refused, too_large, counts_references, reports_its_context,
        copies_host_memory, uses_host_memory, read_and_write_refused, copy_refused, handles_of_others_refused,
        copy_between_kinds, commands_in_order, wait_lists, blocking_read_waits, event_types,
        pending_commands_keep_image, captured_commands, native_handle, kernels_use_images,
    ];
    for kind in KINDS {
        let name = kind.name().unwrap_or_default();
        let name = name.trim_start_matches("UR_MEM_TYPE_").to_lowercase();
        type KindTest = fn(&Fixture, ur_mem_type_t) -> Done;
        let each: [(&str, KindTest); 5] = [
            ("reports_what_it_is", reports_what_it_is),
            ("write_and_read", write_and_read),
            ("parts_with_pitches", parts_with_pitches),
            ("copy_parts", copy_parts),
            ("copy_within", copy_within),
        ];
        tests.extend(each.map(|(what, test)| {
            Test::new("image", format!("{name}_{what}"), move |fixture| {
                test(fixture, kind)
            })
        }));
    }
    tests
}

/// Pixels along the axes of most images here: odd numbers, all different.
const SIZES: [usize; 3] = [13, 7, 5];

/// A context of a device that has images; others stop the test.
fn context(fixture: &Fixture) -> Result<Context, Stop> {
    let context = Context::new(fixture)?;
    Image::need(fixture, &context)?;
    Ok(context)
}

/// A context, and an in-order queue.
fn setup(fixture: &Fixture) -> Result<(Context, Queue), Stop> {
    let context = context(fixture)?;
    let queue = context.in_order(fixture)?;
    Ok((context, queue))
}

/// Bytes that differ from their neighbours.
fn noise(count: usize) -> Vec<u8> {
    (0..count)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

const ORDERS: [ur_image_channel_order_t; 15] = [
    UR_IMAGE_CHANNEL_ORDER_A,
    UR_IMAGE_CHANNEL_ORDER_R,
    UR_IMAGE_CHANNEL_ORDER_RG,
    UR_IMAGE_CHANNEL_ORDER_RA,
    UR_IMAGE_CHANNEL_ORDER_RGB,
    UR_IMAGE_CHANNEL_ORDER_RGBA,
    UR_IMAGE_CHANNEL_ORDER_BGRA,
    UR_IMAGE_CHANNEL_ORDER_ARGB,
    UR_IMAGE_CHANNEL_ORDER_ABGR,
    UR_IMAGE_CHANNEL_ORDER_INTENSITY,
    UR_IMAGE_CHANNEL_ORDER_LUMINANCE,
    UR_IMAGE_CHANNEL_ORDER_RX,
    UR_IMAGE_CHANNEL_ORDER_RGX,
    UR_IMAGE_CHANNEL_ORDER_RGBX,
    UR_IMAGE_CHANNEL_ORDER_SRGBA,
];

/// Types of channels, with their bytes; 0 for those that pack a pixel.
const TYPES: [(ur_image_channel_type_t, usize); 15] = [
    (UR_IMAGE_CHANNEL_TYPE_SNORM_INT8, 1),
    (UR_IMAGE_CHANNEL_TYPE_SNORM_INT16, 2),
    (UR_IMAGE_CHANNEL_TYPE_UNORM_INT8, 1),
    (UR_IMAGE_CHANNEL_TYPE_UNORM_INT16, 2),
    (UR_IMAGE_CHANNEL_TYPE_UNORM_SHORT_565, 0),
    (UR_IMAGE_CHANNEL_TYPE_UNORM_SHORT_555, 0),
    (UR_IMAGE_CHANNEL_TYPE_INT_101010, 0),
    (UR_IMAGE_CHANNEL_TYPE_SIGNED_INT8, 1),
    (UR_IMAGE_CHANNEL_TYPE_SIGNED_INT16, 2),
    (UR_IMAGE_CHANNEL_TYPE_SIGNED_INT32, 4),
    (UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8, 1),
    (UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT16, 2),
    (UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT32, 4),
    (UR_IMAGE_CHANNEL_TYPE_HALF_FLOAT, 2),
    (UR_IMAGE_CHANNEL_TYPE_FLOAT, 4),
];

/// Every format makes images that report it, or is refused; all devices with images have four channels.
fn formats(fixture: &Fixture) -> Done {
    let context = context(fixture)?;
    each_format(&context, |_, _, _| Ok(()))
}

/// Images of every format keep their bytes.
fn bytes_of_formats(fixture: &Fixture) -> Done {
    let (context, queue) = setup(fixture)?;
    each_format(&context, |image, pixel, what| {
        let region = axes(UR_MEM_TYPE_IMAGE2D, SIZES);
        let data = noise(region.iter().product::<usize>() * pixel);
        image.write(&queue, Part::packed([0; 3], region), &data)?;
        let got = image.bytes(&queue, region, pixel)?;
        check_items!(got, data, "bytes of {what}");
        Ok(())
    })
}

/// Makes an image of each format, for a test that gets the bytes of a pixel and the format's name.
fn each_format(context: &Context, test: impl Fn(&Image, usize, &str) -> Done) -> Done {
    let ur = context.ur;
    for order in ORDERS {
        for (kind, bytes) in TYPES {
            let format = ur_image_format_t {
                channelOrder: order,
                channelType: kind,
            };
            let mut raw = null_mut();
            let what = desc(UR_MEM_TYPE_IMAGE2D, SIZES);
            let (flags, host) = (UR_MEM_FLAG_READ_WRITE, null_mut());
            let new = &mut raw;
            let status = ur.urMemImageCreate(context.raw, flags, &format, &what, host, new);
            let normalized = [
                UR_IMAGE_CHANNEL_TYPE_SNORM_INT8,
                UR_IMAGE_CHANNEL_TYPE_SNORM_INT16,
            ];
            let is_needed =
                order == UR_IMAGE_CHANNEL_ORDER_RGBA && bytes > 0 && !normalized.contains(&kind);
            if !is_needed && !status.is_ok() {
                status.fails_with(&[
                    UR_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT,
                    UR_RESULT_ERROR_INVALID_IMAGE_FORMAT_DESCRIPTOR,
                ])?;
                continue;
            }
            status.ok()?;
            let image = Image::adopt(ur, raw);
            let own: ur_image_format_t = image.get(UR_IMAGE_INFO_FORMAT)?;
            check_eq!(
                own.channelOrder,
                order,
                "channel order of {order:?} {kind:?}"
            );
            check_eq!(own.channelType, kind, "channel type of {order:?} {kind:?}");
            let pixel: usize = image.get(UR_IMAGE_INFO_ELEMENT_SIZE)?;
            if let Some(channels) = channels(order).filter(|_| bytes > 0) {
                check_eq!(pixel, channels * bytes, "bytes of {order:?} {kind:?}");
            }
            test(&image, pixel, &format!("{order:?} {kind:?}"))?;
        }
    }
    Ok(())
}

/// The channels of an order whose number nobody doubts.
fn channels(order: ur_image_channel_order_t) -> Option<usize> {
    match order {
        UR_IMAGE_CHANNEL_ORDER_A | UR_IMAGE_CHANNEL_ORDER_R => Some(1),
        UR_IMAGE_CHANNEL_ORDER_RG | UR_IMAGE_CHANNEL_ORDER_RA => Some(2),
        UR_IMAGE_CHANNEL_ORDER_RGBA
        | UR_IMAGE_CHANNEL_ORDER_BGRA
        | UR_IMAGE_CHANNEL_ORDER_ARGB
        | UR_IMAGE_CHANNEL_ORDER_ABGR => Some(4),
        _ => None,
    }
}

/// An image can be created with each access flag and with memory at once.
fn create_with_flags(fixture: &Fixture) -> Done {
    let context = context(fixture)?;
    for flags in [
        ur_mem_flags_t(0),
        UR_MEM_FLAG_READ_WRITE,
        UR_MEM_FLAG_READ_ONLY,
        UR_MEM_FLAG_WRITE_ONLY,
        UR_MEM_FLAG_ALLOC_HOST_POINTER,
    ] {
        let what = desc(UR_MEM_TYPE_IMAGE2D, SIZES);
        Image::with(&context, flags, &RGBA8, &what, null_mut())?;
    }
    Ok(())
}

/// An image reports its shape, and 0 for axes, levels and samples that it does not have.
fn reports_what_it_is(fixture: &Fixture, kind: ur_mem_type_t) -> Done {
    let context = context(fixture)?;
    let image = Image::new(&context, &RGBA8, &desc(kind, SIZES))?;
    let size = |what| image.get::<usize>(what);
    let [x, y, z] = SIZES;
    let (height, depth, layers) = match kind {
        UR_MEM_TYPE_IMAGE2D => (y, 0, 0),
        UR_MEM_TYPE_IMAGE3D => (y, z, 0),
        UR_MEM_TYPE_IMAGE1D_ARRAY => (0, 0, y),
        UR_MEM_TYPE_IMAGE2D_ARRAY => (y, 0, z),
        _ => (0, 0, 0),
    };
    check_eq!(size(UR_IMAGE_INFO_WIDTH)?, x, "width");
    check_eq!(size(UR_IMAGE_INFO_HEIGHT)?, height, "height");
    check_eq!(size(UR_IMAGE_INFO_DEPTH)?, depth, "depth");
    check_eq!(size(UR_IMAGE_INFO_ARRAY_SIZE)?, layers, "layers");
    check_eq!(size(UR_IMAGE_INFO_ELEMENT_SIZE)?, 4, "bytes of a pixel");
    let row = size(UR_IMAGE_INFO_ROW_PITCH)?;
    check!(row >= 4 * x, "{row} bytes from row to row of {x} pixels");
    let slice = size(UR_IMAGE_INFO_SLICE_PITCH)?;
    match kind {
        UR_MEM_TYPE_IMAGE1D | UR_MEM_TYPE_IMAGE2D => check_eq!(slice, 0, "slice pitch"),
        UR_MEM_TYPE_IMAGE1D_ARRAY => check!(slice >= row, "{slice} bytes from layer to layer"),
        _ => check!(slice >= y * row, "{slice} bytes from slice to slice"),
    }
    let number = |what| image.get::<u32>(what);
    check_eq!(number(UR_IMAGE_INFO_NUM_MIP_LEVELS)?, 0, "mip levels");
    check_eq!(number(UR_IMAGE_INFO_NUM_SAMPLES)?, 0, "samples of a pixel");
    let all = 4 * axes(kind, SIZES).iter().product::<usize>();
    let bytes: usize = image.mem(UR_MEM_INFO_SIZE)?;
    check!(bytes >= all, "{bytes} bytes of an image with {all}");
    Ok(())
}

/// `urMemImageCreate` refuses wrong descriptors, formats, flags and host pointers, and writes no handle then.
fn create_refused(fixture: &Fixture) -> Done {
    let context = context(fixture)?;
    let (ur, mut raw) = (fixture.ur, null_mut());
    let plain = desc(UR_MEM_TYPE_IMAGE2D, SIZES);
    let none = ur_mem_flags_t(0);
    let mut create = |flags, format: &ur_image_format_t, what: &ur_image_desc_t, host| {
        ur.urMemImageCreate(context.raw, flags, format, what, host, &mut raw)
    };
    let wrong = UR_RESULT_ERROR_INVALID_IMAGE_FORMAT_DESCRIPTOR;
    let descriptors = [
        ur_image_desc_t {
            stype: UR_STRUCTURE_TYPE_SAMPLER_DESC,
            ..plain
        },
        ur_image_desc_t {
            r#type: ur_mem_type_t(UR_MEM_TYPE_IMAGE1D_ARRAY.0 + 1),
            ..plain
        },
        ur_image_desc_t {
            r#type: UR_MEM_TYPE_IMAGE_CUBEMAP_EXP,
            ..plain
        },
        ur_image_desc_t {
            numMipLevel: 1,
            ..plain
        },
        ur_image_desc_t {
            numSamples: 1,
            ..plain
        },
        ur_image_desc_t {
            rowPitch: 64,
            ..plain
        },
        ur_image_desc_t {
            slicePitch: 4096,
            ..plain
        },
    ];
    for what in &descriptors {
        create(none, &RGBA8, what, null_mut()).fails(wrong)?;
    }
    let formats = [
        ur_image_format_t {
            channelOrder: ur_image_channel_order_t(UR_IMAGE_CHANNEL_ORDER_SRGBA.0 + 1),
            ..RGBA8
        },
        ur_image_format_t {
            channelType: ur_image_channel_type_t(UR_IMAGE_CHANNEL_TYPE_FLOAT.0 + 1),
            ..RGBA8
        },
    ];
    for format in &formats {
        create(none, format, &plain, null_mut()).fails(wrong)?;
    }
    let undefined = ur_mem_flags_t(UR_MEM_FLAGS_MASK);
    create(undefined, &RGBA8, &plain, null_mut()).fails(UR_RESULT_ERROR_INVALID_ENUMERATION)?;
    let two = UR_MEM_FLAG_READ_ONLY | UR_MEM_FLAG_WRITE_ONLY;
    create(two, &RGBA8, &plain, null_mut()).fails(UR_RESULT_ERROR_INVALID_VALUE)?;
    let mut bytes = noise(4 * 13 * 7);
    let host: *mut c_void = bytes.as_mut_ptr().cast();
    let uses = [
        UR_MEM_FLAG_USE_HOST_POINTER,
        UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER,
    ];
    for flags in uses {
        create(flags, &RGBA8, &plain, null_mut()).fails(UR_RESULT_ERROR_INVALID_HOST_PTR)?;
        let narrow = ur_image_desc_t {
            rowPitch: 4 * 13 - 1,
            ..plain
        };
        create(flags, &RGBA8, &narrow, host).fails(wrong)?;
    }
    create(none, &RGBA8, &plain, host).fails(UR_RESULT_ERROR_INVALID_HOST_PTR)?;
    for kind in KINDS {
        for axis in 0..3 {
            let mut sizes = SIZES;
            sizes[axis] = 0;
            if axes(kind, sizes)[axis] == 0 {
                create(none, &RGBA8, &desc(kind, sizes), null_mut())
                    .fails(UR_RESULT_ERROR_INVALID_IMAGE_SIZE)?;
            }
        }
    }
    let format = RGBA8;
    let (of, what) = (&raw const format, &raw const plain);
    let null_pointer = UR_RESULT_ERROR_INVALID_NULL_POINTER;
    let at = context.raw;
    let nowhere = null_mut();
    let mut call =
        |context, of, what| ur.urMemImageCreate(context, none, of, what, null_mut(), &mut raw);
    call(at, null(), what).fails(null_pointer)?;
    call(at, of, null()).fails(null_pointer)?;
    call(null_mut(), of, what).fails(UR_RESULT_ERROR_INVALID_NULL_HANDLE)?;
    ur.urMemImageCreate(at, none, of, what, null_mut(), nowhere)
        .fails(null_pointer)?;
    check!(raw.is_null(), "a refused urMemImageCreate wrote a handle");
    Ok(())
}

/// The largest width and height that a device reports make an image, and one pixel more is refused.
fn too_large(fixture: &Fixture) -> Done {
    let context = context(fixture)?;
    let of = |what| fixture.device_info::<usize>(what);
    let width = of(UR_DEVICE_INFO_IMAGE2D_MAX_WIDTH)?;
    let height = of(UR_DEVICE_INFO_IMAGE2D_MAX_HEIGHT)?;
    let [x, y, z] = [
        of(UR_DEVICE_INFO_IMAGE3D_MAX_WIDTH)?,
        of(UR_DEVICE_INFO_IMAGE3D_MAX_HEIGHT)?,
        of(UR_DEVICE_INFO_IMAGE3D_MAX_DEPTH)?,
    ];
    for (kind, sizes) in [
        (UR_MEM_TYPE_IMAGE2D, [width, 1, 1]),
        (UR_MEM_TYPE_IMAGE2D, [1, height, 1]),
        (UR_MEM_TYPE_IMAGE3D, [x, 1, 1]),
        (UR_MEM_TYPE_IMAGE3D, [1, y, 1]),
        (UR_MEM_TYPE_IMAGE3D, [1, 1, z]),
    ] {
        Image::new(&context, &RGBA8, &desc(kind, sizes))?;
        let more = sizes.map(|size| if size > 1 { size + 1 } else { size });
        let (what, mut raw) = (desc(kind, more), null_mut());
        let (flags, host) = (UR_MEM_FLAG_READ_WRITE, null_mut());
        let new = &mut raw;
        let ur = fixture.ur;
        ur.urMemImageCreate(context.raw, flags, &RGBA8, &what, host, new)
            .fails(UR_RESULT_ERROR_INVALID_IMAGE_SIZE)?;
        check!(raw.is_null(), "a refused urMemImageCreate wrote a handle");
    }
    Ok(())
}

/// A retain and a release of an image change its reference count by one.
fn counts_references(fixture: &Fixture) -> Done {
    let context = context(fixture)?;
    let image = Image::new(&context, &RGBA8, &desc(UR_MEM_TYPE_IMAGE2D, SIZES))?;
    let references = || image.mem::<u32>(UR_MEM_INFO_REFERENCE_COUNT);
    check_eq!(references()?, 1, "references of a new image");
    let second = image.share()?;
    check_eq!(references()?, 2, "references after a retain");
    drop(second);
    check_eq!(references()?, 1, "references after a release");
    Ok(())
}

/// An image reports its context, and keeps it alive.
fn reports_its_context(fixture: &Fixture) -> Done {
    let context = context(fixture)?;
    let image = Image::new(&context, &RGBA8, &desc(UR_MEM_TYPE_IMAGE3D, SIZES))?;
    let raw = context.raw;
    drop(context);
    let own = image.mem::<ur_context_handle_t>(UR_MEM_INFO_CONTEXT)?;
    check_eq!(own, raw, "context of the image");
    Ok(())
}

/// An image with `ALLOC_COPY_HOST_POINTER` copies the host's rows, packed or not, before the call returns.
fn copies_host_memory(fixture: &Fixture) -> Done {
    let (context, queue) = setup(fixture)?;
    let flags = UR_MEM_FLAG_READ_WRITE | UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER;
    for kind in KINDS {
        let region = axes(kind, SIZES);
        for gap in [0, 12] {
            let packed = 4 * region[0];
            let row = packed + gap;
            let layered = kind == UR_MEM_TYPE_IMAGE1D_ARRAY;
            let slices = if layered { region[1] } else { region[2] };
            let rows = if layered { 1 } else { region[1] };
            let has_slices = !matches!(kind, UR_MEM_TYPE_IMAGE1D | UR_MEM_TYPE_IMAGE2D);
            let slice = row * rows + if has_slices { row * gap.min(1) } else { 0 };
            let mut what = desc(kind, SIZES);
            if gap > 0 {
                what.rowPitch = row;
                // Where there are no slices the pitch is ignored.
                what.slicePitch = if has_slices { slice } else { row };
            }
            let mut host = noise(slice * slices);
            let want: Vec<u8> = (0..slices * rows)
                .flat_map(|at| {
                    let start = at / rows * slice + at % rows * row;
                    host[start..start + packed].to_vec()
                })
                .collect();
            let image = Image::with(&context, flags, &RGBA8, &what, host.as_mut_ptr().cast())?;
            host.fill(0);
            let got = image.bytes(&queue, region, 4)?;
            check_items!(got, want, "{kind:?} with gaps of {gap} bytes");
        }
    }
    Ok(())
}

/// An image with `USE_HOST_POINTER` begins with what the host has, and commands read and write it.
fn uses_host_memory(fixture: &Fixture) -> Done {
    let (context, queue) = setup(fixture)?;
    let flags = UR_MEM_FLAG_READ_WRITE | UR_MEM_FLAG_USE_HOST_POINTER;
    let what = desc(UR_MEM_TYPE_IMAGE2D, [16, 16, 1]);
    // As aligned as any device may wish.
    let mut memory = context.usm(fixture, Kind::Host, 4 * 16 * 16)?;
    let host = memory.host_mut::<u8>();
    host.copy_from_slice(&noise(4 * 16 * 16));
    let image = Image::with(&context, flags, &RGBA8, &what, host.as_mut_ptr().cast())?;
    let region = [16, 16, 1];
    let got = image.bytes(&queue, region, 4)?;
    check_items!(got, noise(4 * 16 * 16), "bytes of the host's");
    let part = Part::packed([3, 2, 0], [1, 1, 1]);
    image.write(&queue, part, &[1, 2, 3, 4])?;
    let mut pixel = [0; 4];
    image.read(&queue, part, &mut pixel)?;
    check_eq!(pixel, [1, 2, 3, 4], "a pixel that was written");
    queue.finish()?;
    drop(image);
    Ok(())
}

/// What is written to an image is read back unchanged, in each kind and several sizes.
fn write_and_read(fixture: &Fixture, kind: ur_mem_type_t) -> Done {
    let (context, queue) = setup(fixture)?;
    for sizes in [[1, 1, 1], SIZES, [64, 32, 16], [257, 3, 2]] {
        let image = Image::new(&context, &RGBA8, &desc(kind, sizes))?;
        let region = axes(kind, sizes);
        let data = noise(region.iter().product::<usize>() * 4);
        image.write(&queue, Part::packed([0; 3], region), &data)?;
        let got = image.bytes(&queue, region, 4)?;
        check_items!(got, data, "bytes of {kind:?} {sizes:?}");
    }
    Ok(())
}

/// Where a box begins that is smaller than an image of `SIZES`, and its size.
fn inner(kind: ur_mem_type_t) -> ([usize; 3], [usize; 3]) {
    let origin = axes(kind, [2, 1, 3]).map(|at| if at > 1 { at } else { 0 });
    let origin = [origin[0], usize::from(axes(kind, SIZES)[1] > 1), origin[2]];
    (origin, axes(kind, [6, 4, 2]))
}

/// The place of a pixel of an image of `SIZES`, in pixels.
fn place(kind: ur_mem_type_t, [x, y, z]: [usize; 3]) -> usize {
    let all = axes(kind, SIZES);
    (z * all[1] + y) * all[0] + x
}

/// A box of an image is read and written with pitches, and nothing beside it, in the image or in memory.
fn parts_with_pitches(fixture: &Fixture, kind: ur_mem_type_t) -> Done {
    let (context, queue) = setup(fixture)?;
    let (image, mut bytes) = Image::counted(&context, &queue, kind, SIZES)?;
    let (origin, region) = inner(kind);
    let [width, height, depth] = region;
    let layered = kind == UR_MEM_TYPE_IMAGE1D_ARRAY;
    let (rows, slices) = if layered {
        (1, height)
    } else {
        (height, depth)
    };
    let row_pitch = 4 * width + 8;
    let has_slices = !matches!(kind, UR_MEM_TYPE_IMAGE1D | UR_MEM_TYPE_IMAGE2D);
    // A whole number of rows, and one that is none. Without slices the pitch is ignored.
    let pitches = match has_slices {
        true => vec![0, row_pitch * (rows + 2), row_pitch * rows + 4],
        false => vec![0, 1],
    };
    for slice_pitch in pitches {
        let slice = match slice_pitch {
            pitch if pitch > 0 && has_slices => pitch,
            _ => row_pitch * rows,
        };
        let part = Part {
            origin,
            region,
            row_pitch,
            slice_pitch,
        };
        let mut memory = vec![0xee_u8; slice * slices];
        image.read(&queue, part, &mut memory)?;
        let line = |at: usize| {
            let (y, z) = if layered {
                (at, 0)
            } else {
                (at % rows, at / rows)
            };
            let pixel = [origin[0], origin[1] + y, origin[2] + z];
            let from = 4 * place(kind, pixel);
            let to = match layered {
                true => at * slice,
                false => z * slice + y * row_pitch,
            };
            (from, to)
        };
        let mut want = vec![0xee_u8; memory.len()];
        for at in 0..rows * slices {
            let (from, to) = line(at);
            want[to..to + 4 * width].copy_from_slice(&bytes[from..from + 4 * width]);
        }
        check_items!(
            memory,
            want,
            "memory of a read with slice pitch {slice_pitch}"
        );
        let data = noise(slice * slices);
        image.write(&queue, part, &data)?;
        for at in 0..rows * slices {
            let (to, from) = line(at);
            bytes[to..to + 4 * width].copy_from_slice(&data[from..from + 4 * width]);
        }
        let got = image.bytes(&queue, axes(kind, SIZES), 4)?;
        check_items!(
            got,
            bytes.clone(),
            "image after a write with slice pitch {slice_pitch}"
        );
    }
    Ok(())
}

/// A box is copied to another place of another image, and nothing beside it.
fn copy_parts(fixture: &Fixture, kind: ur_mem_type_t) -> Done {
    let (context, queue) = setup(fixture)?;
    let (src, bytes) = Image::counted(&context, &queue, kind, SIZES)?;
    let dst = Image::new(&context, &RGBA8, &desc(kind, SIZES))?;
    let all = axes(kind, SIZES);
    let zeroes = vec![0; bytes.len()];
    dst.write(&queue, Part::packed([0; 3], all), &zeroes)?;
    let (from, region) = inner(kind);
    let to = [0, 1, 2].map(|axis| all[axis] - region[axis]);
    src.try_copy(&queue, &dst, (from, to, region), &[], null_mut())
        .ok()?;
    let mut want = zeroes;
    for z in 0..region[2] {
        for y in 0..region[1] {
            let [source, target] =
                [from, to].map(|at| 4 * place(kind, [at[0], at[1] + y, at[2] + z]));
            let length = 4 * region[0];
            want[target..target + length].copy_from_slice(&bytes[source..source + length]);
        }
    }
    let got = dst.bytes(&queue, all, 4)?;
    check_items!(got, want, "bytes of the target");
    Ok(())
}

/// A pixel is copied to another place of the same image.
fn copy_within(fixture: &Fixture, kind: ur_mem_type_t) -> Done {
    let (context, queue) = setup(fixture)?;
    let (image, mut bytes) = Image::counted(&context, &queue, kind, SIZES)?;
    let all = axes(kind, SIZES);
    let last = all.map(|size| size - 1);
    image
        .try_copy(&queue, &image, ([0; 3], last, [1; 3]), &[], null_mut())
        .ok()?;
    let end = bytes.len() - 4;
    bytes.copy_within(..4, end);
    check_items!(image.bytes(&queue, all, 4)?, bytes, "bytes of the image");
    Ok(())
}

/// A 2D image is copied to a slice of a 3D image and to a layer of an array, and back.
fn copy_between_kinds(fixture: &Fixture) -> Done {
    let (context, queue) = setup(fixture)?;
    let (flat, bytes) = Image::counted(&context, &queue, UR_MEM_TYPE_IMAGE2D, SIZES)?;
    let back = Image::new(&context, &RGBA8, &desc(UR_MEM_TYPE_IMAGE2D, SIZES))?;
    let region = axes(UR_MEM_TYPE_IMAGE2D, SIZES);
    for kind in [UR_MEM_TYPE_IMAGE3D, UR_MEM_TYPE_IMAGE2D_ARRAY] {
        let deep = Image::new(&context, &RGBA8, &desc(kind, SIZES))?;
        let all = axes(kind, SIZES);
        let zeroes = vec![0; all.iter().product::<usize>() * 4];
        deep.write(&queue, Part::packed([0; 3], all), &zeroes)?;
        let slice = [0, 0, 2];
        flat.try_copy(&queue, &deep, ([0; 3], slice, region), &[], null_mut())
            .ok()?;
        let mut want = zeroes;
        let start = 2 * bytes.len();
        want[start..start + bytes.len()].copy_from_slice(&bytes);
        check_items!(deep.bytes(&queue, all, 4)?, want, "bytes of {kind:?}");
        deep.try_copy(&queue, &back, (slice, [0; 3], region), &[], null_mut())
            .ok()?;
        check_items!(
            back.bytes(&queue, region, 4)?,
            bytes.clone(),
            "from {kind:?}"
        );
    }
    Ok(())
}

/// A read or write of an empty box, beyond the image or with overlapping rows is refused, as is a null address.
fn read_and_write_refused(fixture: &Fixture) -> Done {
    let (context, queue) = setup(fixture)?;
    let (image, bytes) = Image::counted(&context, &queue, UR_MEM_TYPE_IMAGE3D, SIZES)?;
    let flat = Image::new(&context, &RGBA8, &desc(UR_MEM_TYPE_IMAGE2D, SIZES))?;
    let mut memory = vec![0_u8; 4 * bytes.len()];
    let host: *mut c_void = memory.as_mut_ptr().cast();
    let none = null_mut();
    let packed = |origin, region| Part::packed(origin, region);
    let pitched = |row_pitch, slice_pitch| Part {
        row_pitch,
        slice_pitch,
        ..packed([0; 3], SIZES)
    };
    let [x, y, z] = SIZES;
    let wrong = [
        (&image, packed([0; 3], [0, 1, 1])),
        (&image, packed([0; 3], [1, 0, 1])),
        (&image, packed([0; 3], [1, 1, 0])),
        (&image, packed([0; 3], [x + 1, 1, 1])),
        (&image, packed([x, 0, 0], [1, 1, 1])),
        (&image, packed([0, 1, 0], [1, y, 1])),
        (&image, packed([0, 0, z - 1], [1, 1, 2])),
        (&image, packed([usize::MAX, 0, 0], [2, 1, 1])),
        (&image, packed([1, 0, 0], [usize::MAX, 1, 1])),
        (&image, pitched(4 * x - 1, 0)),
        (&image, pitched(4 * x, 4 * x * y - 1)),
        (&flat, packed([0; 3], [1, 1, 2])),
        (&flat, packed([0, 0, 1], [1, 1, 1])),
    ];
    for (at, (image, part)) in wrong.into_iter().enumerate() {
        let codes = [
            image.try_read(&queue, part, host, &[], none),
            image.try_write(&queue, part, host, &[], none),
        ];
        for status in codes {
            let refused = status.fails(UR_RESULT_ERROR_INVALID_SIZE);
            refused.map_err(|_| Stop::failed(format!("wrong box {at}: {status}")))?;
        }
    }
    let one = packed([0; 3], [1; 3]);
    let null_pointer = UR_RESULT_ERROR_INVALID_NULL_POINTER;
    image
        .try_read(&queue, one, none.cast(), &[], none)
        .fails(null_pointer)?;
    image
        .try_write(&queue, one, none.cast(), &[], none)
        .fails(null_pointer)?;
    queue.finish()?;
    check_all!(memory, 0, "memory of refused reads");
    let got = image.bytes(&queue, SIZES, 4)?;
    check_items!(got, bytes, "an image after refused writes");
    Ok(())
}

/// A copy beyond either image, to overlapping pixels or between formats is refused.
fn copy_refused(fixture: &Fixture) -> Done {
    let (context, queue) = setup(fixture)?;
    let (image, _) = Image::counted(&context, &queue, UR_MEM_TYPE_IMAGE2D, SIZES)?;
    let small = Image::new(&context, &RGBA8, &desc(UR_MEM_TYPE_IMAGE2D, [4, 4, 1]))?;
    let none = null_mut();
    let size = UR_RESULT_ERROR_INVALID_SIZE;
    for (from, to, region) in [
        ([0; 3], [0; 3], [5, 1, 1]),
        ([0; 3], [0, 3, 0], [1, 2, 1]),
        ([13, 0, 0], [0; 3], [1, 1, 1]),
        ([0; 3], [0, 0, 1], [1, 1, 1]),
        ([0; 3], [0; 3], [0, 1, 1]),
    ] {
        image
            .try_copy(&queue, &small, (from, to, region), &[], none)
            .fails(size)?;
    }
    image
        .try_copy(&queue, &image, ([0; 3], [1, 1, 0], [3, 3, 1]), &[], none)
        .fails(UR_RESULT_ERROR_OVERLAPPING_REGIONS)?;
    let wide = ur_image_format_t {
        channelType: UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT32,
        ..RGBA8
    };
    let other = Image::new(&context, &wide, &desc(UR_MEM_TYPE_IMAGE2D, SIZES))?;
    image
        .try_copy(&queue, &other, ([0; 3], [0; 3], [1; 3]), &[], none)
        .fails_with(&[
            UR_RESULT_ERROR_INVALID_MEM_OBJECT,
            UR_RESULT_ERROR_INVALID_IMAGE_FORMAT_DESCRIPTOR,
        ])
}

/// Commands on images refuse buffers, and commands on buffers refuse images.
fn handles_of_others_refused(fixture: &Fixture) -> Done {
    let (context, queue) = setup(fixture)?;
    let image = Image::new(&context, &RGBA8, &desc(UR_MEM_TYPE_IMAGE2D, SIZES))?;
    let buffer = context.buffer(4096)?;
    let shared = buffer.share()?;
    let as_image = Image::adopt(fixture.ur, shared.raw);
    std::mem::forget(shared);
    let mut memory = vec![0_u8; 64];
    let (host, none) = (memory.as_mut_ptr().cast(), null_mut());
    let one = Part::packed([0; 3], [1; 3]);
    let place = ([0; 3], [0; 3], [1; 3]);
    let ur = fixture.ur;
    let mut width = 0_usize;
    let statuses = [
        as_image.try_read(&queue, one, host, &[], none),
        as_image.try_write(&queue, one, host, &[], none),
        as_image.try_copy(&queue, &image, place, &[], none),
        image.try_copy(&queue, &as_image, place, &[], none),
        ur.urMemImageGetInfo(
            as_image.raw,
            UR_IMAGE_INFO_WIDTH,
            8,
            (&raw mut width).cast(),
            null_mut(),
        ),
        ur.urEnqueueMemBufferRead(queue.raw, image.raw, 1, 0, 4, host, 0, null(), none),
        ur.urEnqueueMemBufferWrite(queue.raw, image.raw, 1, 0, 4, host, 0, null(), none),
        ur.urEnqueueMemBufferCopy(queue.raw, image.raw, buffer.raw, 0, 0, 4, 0, null(), none),
    ];
    for status in statuses {
        status.fails(UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
    }
    Ok(())
}

/// Commands of an in-order queue on images run in their order, without events and blocking calls.
fn commands_in_order(fixture: &Fixture) -> Done {
    let (context, queue) = setup(fixture)?;
    let region = axes(UR_MEM_TYPE_IMAGE2D, [64, 64, 1]);
    let what = desc(UR_MEM_TYPE_IMAGE2D, region);
    let [one, two] = [
        Image::new(&context, &RGBA8, &what)?,
        Image::new(&context, &RGBA8, &what)?,
    ];
    let size = 4 * 64 * 64;
    let rounds = 16;
    let sources: Vec<_> = (0..rounds)
        .map(|round| vec![round as u8 + 1; size])
        .collect();
    let mut targets = vec![vec![0_u8; size]; rounds];
    let all = Part::packed([0; 3], region);
    for (source, target) in sources.iter().zip(&mut targets) {
        one.try_write(&queue, all, source.as_ptr().cast(), &[], null_mut())
            .ok()?;
        one.try_copy(&queue, &two, ([0; 3], [0; 3], region), &[], null_mut())
            .ok()?;
        two.try_read(&queue, all, target.as_mut_ptr().cast(), &[], null_mut())
            .ok()?;
    }
    queue.finish()?;
    for (round, target) in targets.iter().enumerate() {
        check_all!(target, round as u8 + 1, "bytes of round {round}");
    }
    Ok(())
}

/// Commands of an out-of-order queue on images follow their wait lists.
fn wait_lists(fixture: &Fixture) -> Done {
    let context = context(fixture)?;
    let queue = context.out_of_order(fixture)?;
    let region = axes(UR_MEM_TYPE_IMAGE2D, [64, 64, 1]);
    let what = desc(UR_MEM_TYPE_IMAGE2D, region);
    let [one, two] = [
        Image::new(&context, &RGBA8, &what)?,
        Image::new(&context, &RGBA8, &what)?,
    ];
    let all = Part::packed([0; 3], region);
    let size = 4 * 64 * 64;
    for round in 1..=8_u8 {
        let source = vec![round; size];
        let mut target = vec![0_u8; size];
        let gate = Gate::close(fixture, &queue)?;
        let from = source.as_ptr().cast();
        let written =
            queue.event(|event| one.try_write(&queue, all, from, &[&gate.event], event))?;
        let place = ([0; 3], [0; 3], region);
        let copied = queue.event(|event| one.try_copy(&queue, &two, place, &[&written], event))?;
        let to = target.as_mut_ptr().cast();
        let read = queue.event(|event| two.try_read(&queue, all, to, &[&copied], event))?;
        for event in [&written, &copied, &read] {
            check!(!event.is_complete()?, "a command ran before its wait list");
        }
        gate.open();
        read.wait()?;
        check_all!(target, round, "bytes of round {round}");
    }
    queue.finish()
}

/// A blocking read returns once it and all that it waits for have completed.
fn blocking_read_waits(fixture: &Fixture) -> Done {
    let (context, queue) = setup(fixture)?;
    let (image, bytes) = Image::counted(&context, &queue, UR_MEM_TYPE_IMAGE2D, SIZES)?;
    let other = context.in_order(fixture)?;
    let gate = Gate::close(fixture, &other)?;
    let new = noise(bytes.len());
    let region = axes(UR_MEM_TYPE_IMAGE2D, SIZES);
    let all = Part::packed([0; 3], region);
    let from = new.as_ptr().cast();
    let written = queue.event(|event| image.try_write(&other, all, from, &[], event))?;
    gate.open_after(Duration::from_millis(30));
    let mut got = vec![0_u8; bytes.len()];
    let (offset, size) = (Default::default(), crate::objects::image::region(region));
    fixture
        .ur
        .urEnqueueMemImageRead(
            queue.raw,
            image.raw,
            1,
            offset,
            size,
            0,
            0,
            got.as_mut_ptr().cast(),
            1,
            &written.raw,
            null_mut(),
        )
        .ok()?;
    check!(
        gate.is_open(),
        "a blocking read returned before the gate opened"
    );
    check_items!(got, new, "bytes of a blocking read");
    other.finish()
}

/// The events of commands on images tell which command they are of.
fn event_types(fixture: &Fixture) -> Done {
    let (context, queue) = setup(fixture)?;
    let (image, mut bytes) = Image::counted(&context, &queue, UR_MEM_TYPE_IMAGE2D, SIZES)?;
    let other = Image::new(&context, &RGBA8, &desc(UR_MEM_TYPE_IMAGE2D, SIZES))?;
    let region = axes(UR_MEM_TYPE_IMAGE2D, SIZES);
    let all = Part::packed([0; 3], region);
    let host: *mut c_void = bytes.as_mut_ptr().cast();
    let written = queue.event(|event| image.try_write(&queue, all, host, &[], event))?;
    let place = ([0; 3], [0; 3], region);
    let copied = queue.event(|event| image.try_copy(&queue, &other, place, &[], event))?;
    let read = queue.event(|event| other.try_read(&queue, all, host, &[], event))?;
    for (event, want) in [
        (&written, UR_COMMAND_MEM_IMAGE_WRITE),
        (&copied, UR_COMMAND_MEM_IMAGE_COPY),
        (&read, UR_COMMAND_MEM_IMAGE_READ),
    ] {
        let kind: ur_command_t = event.get(UR_EVENT_INFO_COMMAND_TYPE)?;
        check_eq!(kind, want, "type of a command");
        let own: ur_context_handle_t = event.get(UR_EVENT_INFO_CONTEXT)?;
        check_eq!(own, context.raw, "context of a command");
    }
    queue.finish()
}

/// Images that are released while commands on them are pending last until those have ended.
fn pending_commands_keep_image(fixture: &Fixture) -> Done {
    let (context, queue) = setup(fixture)?;
    let region = axes(UR_MEM_TYPE_IMAGE3D, SIZES);
    let all = Part::packed([0; 3], region);
    let data = noise(region.iter().product::<usize>() * 4);
    let mut got = vec![0_u8; data.len()];
    let gate = Gate::close(fixture, &queue)?;
    {
        let what = desc(UR_MEM_TYPE_IMAGE3D, SIZES);
        let [one, two] = [
            Image::new(&context, &RGBA8, &what)?,
            Image::new(&context, &RGBA8, &what)?,
        ];
        one.try_write(&queue, all, data.as_ptr().cast(), &[], null_mut())
            .ok()?;
        one.try_copy(&queue, &two, ([0; 3], [0; 3], region), &[], null_mut())
            .ok()?;
        two.try_read(&queue, all, got.as_mut_ptr().cast(), &[], null_mut())
            .ok()?;
    }
    gate.open();
    queue.finish()?;
    check_items!(got, data, "bytes that went through released images");
    Ok(())
}

/// Commands on images that a queue captures run with each execution of the graph.
fn captured_commands(fixture: &Fixture) -> Done {
    let (context, queue) = setup(fixture)?;
    Graph::need(fixture, &context)?;
    let region = axes(UR_MEM_TYPE_IMAGE2D, SIZES);
    let all = Part::packed([0; 3], region);
    let size = region.iter().product::<usize>() * 4;
    let (mut data, mut got) = (vec![0_u8; size], vec![0_u8; size]);
    let (from, to) = (data.as_mut_ptr(), got.as_mut_ptr());
    let executable = {
        let what = desc(UR_MEM_TYPE_IMAGE2D, SIZES);
        let [one, two] = [
            Image::new(&context, &RGBA8, &what)?,
            Image::new(&context, &RGBA8, &what)?,
        ];
        let graph = Graph::capture(&queue, || {
            one.try_write(&queue, all, from.cast(), &[], null_mut())
                .ok()?;
            one.try_copy(&queue, &two, ([0; 3], [0; 3], region), &[], null_mut())
                .ok()?;
            two.try_read(&queue, all, to.cast(), &[], null_mut()).ok()
        })?;
        graph.instantiate()?
    };
    for round in 1..=4_u8 {
        data.fill(round);
        executable.enqueue(&queue, &[])?.wait()?;
        check_all!(got, round, "bytes of execution {round}");
    }
    queue.finish()
}

/// A backend whose images have native handles makes an image of one that is the same memory.
fn native_handle(fixture: &Fixture) -> Done {
    let (context, queue) = setup(fixture)?;
    let (image, bytes) = Image::counted(&context, &queue, UR_MEM_TYPE_IMAGE2D, SIZES)?;
    let (ur, mut native, mut raw) = (fixture.ur, 0, null_mut());
    ur.urMemGetNativeHandle(image.raw, fixture.device, &mut native)
        .ok()?;
    let what = desc(UR_MEM_TYPE_IMAGE2D, SIZES);
    let none = null();
    ur.urMemImageCreateWithNativeHandle(native, context.raw, &RGBA8, &what, none, &mut raw)
        .ok()?;
    let twin = Image::adopt(ur, raw);
    let region = axes(UR_MEM_TYPE_IMAGE2D, SIZES);
    check_items!(
        twin.bytes(&queue, region, 4)?,
        bytes.clone(),
        "bytes of a twin"
    );
    check_eq!(
        twin.get::<usize>(UR_IMAGE_INFO_WIDTH)?,
        SIZES[0],
        "width of a twin"
    );
    let new = noise(bytes.len());
    twin.write(&queue, Part::packed([0; 3], region), &new)?;
    drop(twin);
    check_items!(
        image.bytes(&queue, region, 4)?,
        new,
        "bytes written to a twin"
    );
    Ok(())
}

/// A kernel writes an image and reads it, in order with other commands.
fn kernels_use_images(fixture: &Fixture) -> Done {
    let (context, queue) = setup(fixture)?;
    let program = Program::of_images(fixture, &context, fixture.device)?;
    let (paint, texels) = (program.kernel(PAINT)?, program.kernel(TEXELS)?);
    let format = ur_image_format_t {
        channelOrder: UR_IMAGE_CHANNEL_ORDER_RGBA,
        channelType: UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT32,
    };
    let width = 40;
    let image = Image::new(&context, &format, &desc(UR_MEM_TYPE_IMAGE1D, [width, 1, 1]))?;
    let memory = context.usm(fixture, Kind::Device, 16 * width)?;
    for base in [7_u32, 1000] {
        let args = [Arg::Image(&image), Arg::of(&base)];
        queue.launch(&paint, 4 * width, &args, &[])?;
        let bytes = image.bytes(&queue, [width, 1, 1], 16)?;
        let words = bytes.as_chunks::<4>().0.iter();
        let words = words.map(|word| u32::from_ne_bytes(*word));
        check_items!(words, base..base + 4 * width as u32, "words of a kernel");
        let args = [Arg::Pointer(memory.ptr), Arg::Image(&image)];
        queue.launch(&texels, 4 * width, &args, &[])?;
        let words: Vec<u32> = queue.read(memory.ptr, 4 * width, &[])?;
        check_items!(
            words,
            base..base + 4 * width as u32,
            "words that a kernel read"
        );
    }
    Ok(())
}

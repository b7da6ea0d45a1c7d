//! Image memory: kinds, levels, properties, and what a device says that it supports.

use super::objects::*;
use crate::fixture::Fixture;
use crate::objects::Context;
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_eq};
use std::ptr::null_mut;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["bindless";
        every_kind_is_allocated, every_format_has_its_size, wrong_descriptions, properties_of_image_memory,
        levels_of_a_mipmap, numbers_that_are_no_memory, what_is_supported_is_made,
    ]
}

/// Image memory of each kind that the device has can be allocated and freed, and two have different handles.
fn every_kind_is_allocated(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    for (kind, sizes) in KINDS {
        if !has_kind(fixture, kind)? {
            continue;
        }
        let desc = image(kind, sizes);
        let one = Memory::new(fixture, &context, RGBA8, desc)?;
        let two = Memory::new(fixture, &context, RGBA8, desc)?;
        check!(one.raw != 0, "a handle of 0");
        check!(one.raw != two.raw, "{kind:?}: two images have one handle");
    }
    Ok(())
}

/// Pixels of each format have their channels' bytes.
fn every_format_has_its_size(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    let types = [
        (UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8, 1),
        (UR_IMAGE_CHANNEL_TYPE_SIGNED_INT8, 1),
        (UR_IMAGE_CHANNEL_TYPE_UNORM_INT8, 1),
        (UR_IMAGE_CHANNEL_TYPE_SNORM_INT8, 1),
        (UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT16, 2),
        (UR_IMAGE_CHANNEL_TYPE_SIGNED_INT16, 2),
        (UR_IMAGE_CHANNEL_TYPE_UNORM_INT16, 2),
        (UR_IMAGE_CHANNEL_TYPE_SNORM_INT16, 2),
        (UR_IMAGE_CHANNEL_TYPE_HALF_FLOAT, 2),
        (UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT32, 4),
        (UR_IMAGE_CHANNEL_TYPE_SIGNED_INT32, 4),
        (UR_IMAGE_CHANNEL_TYPE_FLOAT, 4),
    ];
    let orders = [
        (UR_IMAGE_CHANNEL_ORDER_R, 1),
        (UR_IMAGE_CHANNEL_ORDER_RG, 2),
        (UR_IMAGE_CHANNEL_ORDER_RGBA, 4),
    ];
    let desc = image(UR_MEM_TYPE_IMAGE2D, [5, 3, 0]);
    for (kind, bytes) in types {
        for (order, channels) in orders {
            let format = ur_image_format_t {
                channelOrder: order,
                channelType: kind,
            };
            let memory = Memory::new(fixture, &context, format, desc)?;
            let size: usize = memory.get(UR_IMAGE_INFO_ELEMENT_SIZE)?;
            check_eq!(size, bytes * channels, "bytes of {order:?} {kind:?}");
            let own: ur_image_format_t = memory.get(UR_IMAGE_INFO_FORMAT)?;
            check_eq!(own.channelOrder, order, "the order of {kind:?}");
        }
    }
    Ok(())
}

/// An allocation whose description is wrong is refused.
fn wrong_descriptions(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    let (ur, device) = (fixture.ur, fixture.device);
    let mut made = 0;
    let mut attempt = |format: &ur_image_format_t, desc: &ur_image_desc_t| {
        ur.urBindlessImagesImageAllocateExp(context.raw, device, format, desc, &mut made)
    };
    let flat = |sizes| image(UR_MEM_TYPE_IMAGE2D, sizes);
    for sizes in [[0, 4, 0], [4, 0, 0], [1 << 40, 4, 0]] {
        attempt(&RGBA8, &flat(sizes)).fails(UR_RESULT_ERROR_INVALID_IMAGE_SIZE)?;
    }
    let deep = image(UR_MEM_TYPE_IMAGE3D, [4, 4, 0]);
    attempt(&RGBA8, &deep).fails(UR_RESULT_ERROR_INVALID_IMAGE_SIZE)?;
    let many = ur_image_desc_t {
        numMipLevel: 5,
        ..flat([8, 4, 0])
    };
    attempt(&RGBA8, &many).fails(UR_RESULT_ERROR_INVALID_VALUE)?;
    let unknown = ur_image_desc_t {
        r#type: ur_mem_type_t(0x7000),
        ..flat([4, 4, 0])
    };
    attempt(&RGBA8, &unknown).fails(UR_RESULT_ERROR_INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
    let unknown = ur_image_format_t {
        channelType: ur_image_channel_type_t(0x7000),
        ..RGBA8
    };
    let status = attempt(&unknown, &flat([4, 4, 0]));
    check!(!status.is_ok(), "an unknown format is accepted");
    if fixture.supports(UR_DEVICE_INFO_CUBEMAP_SUPPORT_EXP)? {
        for sizes in [[4, 5, 6], [4, 4, 5]] {
            let cube = image(UR_MEM_TYPE_IMAGE_CUBEMAP_EXP, sizes);
            attempt(&RGBA8, &cube).fails(UR_RESULT_ERROR_INVALID_IMAGE_SIZE)?;
        }
    }
    Ok(())
}

/// Image memory tells the sizes and the format that it was allocated with.
fn properties_of_image_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    for (kind, sizes) in KINDS {
        if !has_kind(fixture, kind)? {
            continue;
        }
        let desc = image(kind, sizes);
        let memory = Memory::new(fixture, &context, RGBA8, desc)?;
        let expected = [
            (UR_IMAGE_INFO_WIDTH, desc.width),
            (UR_IMAGE_INFO_HEIGHT, desc.height),
            (UR_IMAGE_INFO_DEPTH, desc.depth),
            (UR_IMAGE_INFO_ARRAY_SIZE, desc.arraySize),
            (UR_IMAGE_INFO_ELEMENT_SIZE, 4),
        ];
        for (property, size) in expected {
            check_eq!(
                memory.get::<usize>(property)?,
                size,
                "{kind:?}: {property:?}"
            );
        }
        let levels: u32 = memory.get(UR_IMAGE_INFO_NUM_MIP_LEVELS)?;
        check_eq!(levels, 0, "{kind:?}: levels without mipmaps");
    }
    let memory = Memory::new(
        fixture,
        &context,
        RGBA8,
        image(UR_MEM_TYPE_IMAGE1D, [4, 0, 0]),
    )?;
    let (ur, mut size) = (fixture.ur, 0);
    let mut ask = |property| {
        let (value, size) = (null_mut(), &mut size);
        ur.urBindlessImagesImageGetInfoExp(context.raw, memory.raw, property, value, size)
    };
    ask(ur_image_info_t(0x7000)).fails(UR_RESULT_ERROR_INVALID_ENUMERATION)
}

/// A level of a mipmap is an image of half the sizes of the one before, and belongs to the mipmap.
fn levels_of_a_mipmap(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    // A device may have levels and no kernels that sample between them.
    need_property(fixture, UR_DEVICE_INFO_MIPMAP_LEVEL_REFERENCE_SUPPORT_EXP)?;
    let queue = context.in_order(fixture)?;
    let (ur, device, wrong) = (fixture.ur, fixture.device, UR_RESULT_ERROR_INVALID_VALUE);
    for (kind, sizes) in KINDS {
        if !has_kind(fixture, kind)? {
            continue;
        }
        let whole = Memory::new(fixture, &context, RGBA8, mipmap(kind, sizes, 4))?;
        let levels: u32 = whole.get(UR_IMAGE_INFO_NUM_MIP_LEVELS)?;
        check_eq!(levels, 4, "{kind:?}: levels");
        for level in 0..4 {
            let own = whole.image_of_level(fixture, level)?;
            let sizes = level_of(kind, sizes, level);
            let expected = [
                (UR_IMAGE_INFO_WIDTH, own.desc.width),
                (UR_IMAGE_INFO_HEIGHT, own.desc.height),
                (UR_IMAGE_INFO_DEPTH, own.desc.depth),
                (UR_IMAGE_INFO_ARRAY_SIZE, own.desc.arraySize),
            ];
            for (property, size) in expected {
                let found: usize = own.get(property)?;
                check_eq!(found, size, "{kind:?}, level {level}: {property:?}");
            }
            let levels: u32 = own.get(UR_IMAGE_INFO_NUM_MIP_LEVELS)?;
            check_eq!(levels, 0, "{kind:?}: levels of a level");
            write(&queue, &own, sizes, &pixels(sizes, level))?;
            ur.urBindlessImagesImageFreeExp(context.raw, device, own.raw)
                .fails(wrong)?;
            ur.urBindlessImagesMipmapFreeExp(context.raw, device, own.raw)
                .fails(wrong)?;
            let again = whole.image_of_level(fixture, level)?;
            check_eq!(again.raw, own.raw, "{kind:?}: two handles of a level");
        }
        // The levels do not overlap.
        for level in 0..4 {
            let own = whole.image_of_level(fixture, level)?;
            let sizes = level_of(kind, sizes, level);
            let found: Vec<u32> = read(&queue, &own, sizes)?;
            let want = pixels(sizes, level);
            check!(found == want, "{kind:?}: pixels of level {level}");
        }
        whole.level(4).0.fails(wrong)?;
        let one = whole.image_of_level(fixture, 1)?;
        one.level(0).0.fails(wrong)?;
        // Copies between levels, and from a level to an image.
        let sizes = level_of(kind, sizes, 1);
        let other = Memory::new(fixture, &context, RGBA8, one.desc)?;
        let ends = (one.end(), other.end());
        copy(
            &queue,
            ends,
            &region([0; 3], [0; 3], extent(sizes)),
            ON_DEVICE,
            &[],
        )?
        .wait()?;
        let found: Vec<u32> = read(&queue, &other, sizes)?;
        check!(found == pixels(sizes, 1), "{kind:?}: a copy of a level");
        drop(whole);
        let (what, mut size) = (UR_IMAGE_INFO_WIDTH, 0);
        ur.urBindlessImagesImageGetInfoExp(context.raw, one.raw, what, null_mut(), &mut size)
            .fails(wrong)?;
    }
    Ok(())
}

/// A number that the context gave out for something else, or not at all, is refused.
fn numbers_that_are_no_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    let (ur, device) = (fixture.ur, fixture.device);
    let single = Memory::new(
        fixture,
        &context,
        RGBA8,
        image(UR_MEM_TYPE_IMAGE2D, [4, 4, 0]),
    )?;
    let wrong = UR_RESULT_ERROR_INVALID_VALUE;
    for number in [0, 0x1230] {
        let (mut level, mut size) = (0, 0);
        let free = ur.urBindlessImagesImageFreeExp(context.raw, device, number);
        free.fails(wrong)?;
        ur.urBindlessImagesMipmapFreeExp(context.raw, device, number)
            .fails(wrong)?;
        ur.urBindlessImagesMipmapGetLevelExp(context.raw, device, number, 0, &mut level)
            .fails(wrong)?;
        let what = UR_IMAGE_INFO_WIDTH;
        ur.urBindlessImagesImageGetInfoExp(context.raw, number, what, null_mut(), &mut size)
            .fails(wrong)?;
        ur.urBindlessImagesSampledImageHandleDestroyExp(context.raw, device, number)
            .fails(wrong)?;
        ur.urBindlessImagesUnsampledImageHandleDestroyExp(context.raw, device, number)
            .fails(wrong)?;
    }
    ur.urBindlessImagesMipmapFreeExp(context.raw, device, single.raw)
        .fails(wrong)?;
    single.level(0).0.fails(wrong)?;
    if fixture.supports(UR_DEVICE_INFO_MIPMAP_LEVEL_REFERENCE_SUPPORT_EXP)? {
        // A mipmap is no image by itself.
        let sizes = [4, 4, 0];
        let desc = mipmap(UR_MEM_TYPE_IMAGE2D, sizes, 2);
        let several = Memory::new(fixture, &context, RGBA8, desc)?;
        ur.urBindlessImagesImageFreeExp(context.raw, device, several.raw)
            .fails(wrong)?;
        several.try_unsampled().0.fails(wrong)?;
        let queue = context.in_order(fixture)?;
        for ends in [(several.end(), single.end()), (single.end(), several.end())] {
            try_copy(&queue, ends, &whole(sizes), ON_DEVICE, &[], null_mut()).fails(wrong)?;
        }
    }
    let other = Context::new(fixture)?;
    ur.urBindlessImagesImageFreeExp(other.raw, device, single.raw)
        .fails(wrong)
}

/// What a device says that it supports can be made, and what it says that it does not is refused.
fn what_is_supported_is_made(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    let (ur, device) = (fixture.ur, fixture.device);
    let opaque = UR_EXP_IMAGE_MEM_TYPE_OPAQUE_HANDLE;
    let ask = |desc: &ur_image_desc_t, format: &ur_image_format_t, kind| {
        let mut found = [0xff_u8; 3];
        let [memory, read, written] = &mut found;
        let context = context.raw;
        ur.urBindlessImagesGetImageMemoryHandleTypeSupportExp(
            context, device, desc, format, kind, memory,
        )
        .ok()?;
        ur.urBindlessImagesGetImageSampledHandleSupportExp(
            context, device, desc, format, kind, read,
        )
        .ok()?;
        ur.urBindlessImagesGetImageUnsampledHandleSupportExp(
            context, device, desc, format, kind, written,
        )
        .ok()?;
        Ok::<_, Stop>(found.map(|found| found != 0))
    };
    for (kind, sizes) in KINDS {
        let desc = image(kind, sizes);
        let [memory, read, written] = ask(&desc, &RGBA8, opaque)?;
        check_eq!(memory, has_kind(fixture, kind)?, "support of {kind:?}");
        if !memory {
            continue;
        }
        let memory = Memory::new(fixture, &context, RGBA8, desc)?;
        check!(read && written, "{kind:?} has memory, but no handles");
        memory.sampled(&nearest())?;
        memory.unsampled()?;
    }
    let many = mipmap(UR_MEM_TYPE_IMAGE2D, [8, 4, 0], 3);
    let [memory, read, written] = ask(&many, &RGBA8, opaque)?;
    let mut made = 0;
    let status = ur.urBindlessImagesImageAllocateExp(context.raw, device, &RGBA8, &many, &mut made);
    check_eq!(status.is_ok(), memory, "a mipmap");
    if memory {
        let several = Memory::adopt(fixture, &context, RGBA8, many, made);
        let what = (several.raw, &RGBA8, &many);
        let (status, raw) = try_sampled(&context, device, what, &nearest());
        check_eq!(status.is_ok(), read, "a sampled mipmap");
        check!(!written, "an unsampled mipmap");
        if status.is_ok() {
            ur.urBindlessImagesSampledImageHandleDestroyExp(context.raw, device, raw)
                .ok()?;
        }
    }
    let huge = image(UR_MEM_TYPE_IMAGE2D, [1 << 40, 4, 0]);
    check_eq!(
        ask(&huge, &RGBA8, opaque)?,
        [false; 3],
        "support of a huge image"
    );
    let packed = ur_image_format_t {
        channelOrder: UR_IMAGE_CHANNEL_ORDER_RGB,
        ..RGBA8
    };
    let plain = image(UR_MEM_TYPE_IMAGE2D, [4, 4, 0]);
    let [memory, ..] = ask(&plain, &packed, opaque)?;
    let mut made = 0;
    let status =
        ur.urBindlessImagesImageAllocateExp(context.raw, device, &packed, &plain, &mut made);
    check_eq!(status.is_ok(), memory, "an image of three channels");
    if status.is_ok() {
        ur.urBindlessImagesImageFreeExp(context.raw, device, made)
            .ok()?;
    }
    let linear = UR_EXP_IMAGE_MEM_TYPE_USM_POINTER;
    let deep = image(UR_MEM_TYPE_IMAGE3D, [4, 4, 4]);
    let [memory, read, _] = ask(&deep, &RGBA8, linear)?;
    check_eq!(memory, read, "a 3D image in linear memory");
    Ok(())
}

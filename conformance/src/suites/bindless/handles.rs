//! Handles of sampled and unsampled images.

use super::objects::*;
use crate::fixture::Fixture;
use crate::objects::{Context, Kind};
use crate::outcome::Done;
use crate::registry::Test;
use crate::{check, check_eq};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["bindless";
        handles_of_each_kind, handles_of_linear_memory, sampler_options, wrong_handles,
    ]
}

/// Image memory of each kind has handles of sampled and unsampled images, several at once.
fn handles_of_each_kind(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    for (kind, sizes) in KINDS {
        if !has_kind(fixture, kind)? {
            continue;
        }
        let memory = Memory::new(fixture, &context, RGBA8, image(kind, sizes))?;
        let (one, two) = (memory.unsampled()?, memory.unsampled()?);
        check!(
            one.raw != two.raw,
            "{kind:?}: two unsampled images have one handle"
        );
        let bordered = ur_sampler_desc_t {
            addressingMode: UR_SAMPLER_ADDRESSING_MODE_CLAMP,
            ..nearest()
        };
        let (one, two) = (memory.sampled(&nearest())?, memory.sampled(&bordered)?);
        check!(
            one.raw != two.raw,
            "{kind:?}: two sampled images have one handle"
        );
    }
    let is_whole = fixture.supports(UR_DEVICE_INFO_MIPMAP_SUPPORT_EXP)?;
    let has_levels = fixture.supports(UR_DEVICE_INFO_MIPMAP_LEVEL_REFERENCE_SUPPORT_EXP)?;
    if is_whole || has_levels {
        let desc = mipmap(UR_MEM_TYPE_IMAGE2D, [16, 16, 0], 3);
        let whole = Memory::new(fixture, &context, RGBA8, desc)?;
        if is_whole {
            whole.sampled(&nearest())?;
        } else {
            let what = (whole.raw, &whole.format, &whole.desc);
            let (status, _) = try_sampled(&context, fixture.device, what, &nearest());
            status.fails(UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        }
        for level in (0..3).filter(|_| has_levels) {
            let own = whole.image_of_level(fixture, level)?;
            own.sampled(&nearest())?;
            let (one, two) = (own.unsampled()?, own.unsampled()?);
            check!(
                one.raw != two.raw,
                "level {level}: two unsampled images have one handle"
            );
        }
    }
    Ok(())
}

/// Linear memory has handles of sampled images, and must hold them.
fn handles_of_linear_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    Kind::Device.need(fixture)?;
    let device = fixture.device;
    let usm = aligned(fixture, &context, 1 << 16)?;
    let address = usm.ptr.addr();
    if fixture.supports(UR_DEVICE_INFO_BINDLESS_IMAGES_1D_USM_SUPPORT_EXP)? {
        let line = image(UR_MEM_TYPE_IMAGE1D, [1 << 14, 0, 0]);
        sampled(&context, device, (address, &R32, &line), &counting())?;
        let long = image(UR_MEM_TYPE_IMAGE1D, [(1 << 14) + 1, 0, 0]);
        let (status, _) = try_sampled(&context, device, (address, &R32, &long), &counting());
        status.fails(UR_RESULT_ERROR_INVALID_IMAGE_SIZE)?;
    }
    if fixture.supports(UR_DEVICE_INFO_BINDLESS_IMAGES_2D_USM_SUPPORT_EXP)? {
        let align: u32 = fixture.device_info(UR_DEVICE_INFO_IMAGE_PITCH_ALIGN_EXP)?;
        let pitch = 256_usize.next_multiple_of(align.max(1) as usize);
        let rows = ur_image_desc_t {
            rowPitch: pitch,
            ..image(UR_MEM_TYPE_IMAGE2D, [60, 16, 0])
        };
        sampled(&context, device, (address, &R32, &rows), &counting())?;
        let narrow = ur_image_desc_t {
            rowPitch: 128,
            ..rows
        };
        let (status, _) = try_sampled(&context, device, (address, &R32, &narrow), &counting());
        status.fails(UR_RESULT_ERROR_INVALID_VALUE)?;
        let deep = image(UR_MEM_TYPE_IMAGE3D, [4, 4, 4]);
        let (status, _) = try_sampled(&context, device, (address, &R32, &deep), &counting());
        status.fails(UR_RESULT_ERROR_INVALID_VALUE)?;
    }
    let line = image(UR_MEM_TYPE_IMAGE1D, [16, 0, 0]);
    if alignment(fixture)? > 4 {
        let (status, _) = try_sampled(&context, device, (address + 4, &R32, &line), &counting());
        status.fails(UR_RESULT_ERROR_INVALID_VALUE)?;
    }
    let (status, _) = try_sampled(&context, device, (0x1230, &R32, &line), &counting());
    status.fails(UR_RESULT_ERROR_INVALID_VALUE)
}

/// A sampler may have a mode for each dimension where the device says so, and the same one for all everywhere; mipmap
/// options; and a filter for the edges of cubes.
fn sampler_options(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    let memory = Memory::new(
        fixture,
        &context,
        FLOAT,
        image(UR_MEM_TYPE_IMAGE3D, [4, 4, 4]),
    )?;
    let unique = UR_DEVICE_INFO_BINDLESS_UNIQUE_ADDRESSING_PER_DIM_SUPPORT_EXP;
    let is_unique = fixture.supports(unique)?;
    for mode in [
        UR_SAMPLER_ADDRESSING_MODE_CLAMP,
        UR_SAMPLER_ADDRESSING_MODE_CLAMP_TO_EDGE,
        UR_SAMPLER_ADDRESSING_MODE_REPEAT,
        UR_SAMPLER_ADDRESSING_MODE_MIRRORED_REPEAT,
    ] {
        let common = ur_sampler_desc_t {
            addressingMode: mode,
            ..filtering()
        };
        memory.sampled(&common)?;
        let mut modes = ur_exp_sampler_addr_modes_t {
            addrModes: match is_unique {
                true => [
                    UR_SAMPLER_ADDRESSING_MODE_CLAMP,
                    mode,
                    UR_SAMPLER_ADDRESSING_MODE_REPEAT,
                ],
                false => [mode; 3],
            },
            ..Default::default()
        };
        let own = ur_sampler_desc_t {
            pNext: (&raw mut modes).cast(),
            ..filtering()
        };
        memory.sampled(&own)?;
    }
    if fixture.supports(UR_DEVICE_INFO_MIPMAP_SUPPORT_EXP)? {
        let desc = ur_image_desc_t {
            numMipLevel: 3,
            ..image(UR_MEM_TYPE_IMAGE2D, [16, 16, 0])
        };
        let mipmap = Memory::new(fixture, &context, FLOAT, desc)?;
        let mut mips = ur_exp_sampler_mip_properties_t {
            minMipmapLevelClamp: 0.0,
            maxMipmapLevelClamp: 2.0,
            maxAnisotropy: 4.0,
            mipFilterMode: UR_SAMPLER_FILTER_MODE_LINEAR,
            ..Default::default()
        };
        let chained = ur_sampler_desc_t {
            pNext: (&raw mut mips).cast(),
            ..filtering()
        };
        mipmap.sampled(&chained)?;
        let mut wrong = ur_exp_sampler_mip_properties_t {
            minMipmapLevelClamp: f32::NAN,
            ..mips
        };
        let chained = ur_sampler_desc_t {
            pNext: (&raw mut wrong).cast(),
            ..filtering()
        };
        let what = (mipmap.raw, &mipmap.format, &mipmap.desc);
        let (status, _) = try_sampled(&context, fixture.device, what, &chained);
        status.fails(UR_RESULT_ERROR_INVALID_SAMPLER)?;
    }
    if fixture.supports(UR_DEVICE_INFO_CUBEMAP_SEAMLESS_FILTERING_SUPPORT_EXP)? {
        let cube = image(UR_MEM_TYPE_IMAGE_CUBEMAP_EXP, [8, 8, 6]);
        let cube = Memory::new(fixture, &context, FLOAT, cube)?;
        let mut edges = ur_exp_sampler_cubemap_properties_t {
            cubemapFilterMode: UR_EXP_SAMPLER_CUBEMAP_FILTER_MODE_SEAMLESS,
            ..Default::default()
        };
        let chained = ur_sampler_desc_t {
            pNext: (&raw mut edges).cast(),
            ..filtering()
        };
        cube.sampled(&chained)?;
    }
    Ok(())
}

/// A handle is destroyed once, as the kind of image that it is, and its description fits the memory.
fn wrong_handles(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    let (ur, device) = (fixture.ur, fixture.device);
    let memory = Memory::new(
        fixture,
        &context,
        RGBA8,
        image(UR_MEM_TYPE_IMAGE2D, [8, 4, 0]),
    )?;
    let wrong = UR_RESULT_ERROR_INVALID_VALUE;
    let other = image(UR_MEM_TYPE_IMAGE2D, [8, 5, 0]);
    let mut made = 0;
    let what = (memory.raw, &RGBA8, &other);
    let (status, _) = try_sampled(&context, device, what, &nearest());
    status.fails(UR_RESULT_ERROR_INVALID_IMAGE_SIZE)?;
    ur.urBindlessImagesUnsampledImageCreateExp(
        context.raw,
        device,
        memory.raw,
        &RGBA8,
        &other,
        &mut made,
    )
    .fails(UR_RESULT_ERROR_INVALID_IMAGE_SIZE)?;
    for number in [0, 0x1230] {
        ur.urBindlessImagesUnsampledImageCreateExp(
            context.raw,
            device,
            number,
            &RGBA8,
            &memory.desc,
            &mut made,
        )
        .fails(wrong)?;
    }
    let repeated = ur_sampler_desc_t {
        addressingMode: UR_SAMPLER_ADDRESSING_MODE_REPEAT,
        ..counting()
    };
    let what = (memory.raw, &RGBA8, &memory.desc);
    let (status, _) = try_sampled(&context, device, what, &repeated);
    status.fails(UR_RESULT_ERROR_INVALID_SAMPLER)?;
    let read = std::mem::ManuallyDrop::new(memory.sampled(&nearest())?);
    let destroy = || ur.urBindlessImagesSampledImageHandleDestroyExp(context.raw, device, read.raw);
    destroy().ok()?;
    destroy().fails(wrong)?;
    let found: usize = memory.get(UR_IMAGE_INFO_WIDTH)?;
    check_eq!(found, 8, "width of memory whose handle was destroyed");
    Ok(())
}

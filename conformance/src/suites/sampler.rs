//! Samplers: creation, info queries and references.

use crate::fixture::Fixture;
use crate::kernels::{self, IOTA, KernelProvider, SAMPLE};
use crate::objects::image::{Part, desc};
use crate::objects::{Arg, Context, Image, Kind, Program, Sampler};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::status::Status;
use crate::{check, check_eq, check_items};
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["sampler";
        reports_its_properties, create_refused, counts_references, outlives_its_context, native_handle, cuda_kernels_get_a_number,
        kernels_sample_images,
    ]
}

const ADDRESSING: [ur_sampler_addressing_mode_t; 5] = [
    UR_SAMPLER_ADDRESSING_MODE_NONE,
    UR_SAMPLER_ADDRESSING_MODE_CLAMP_TO_EDGE,
    UR_SAMPLER_ADDRESSING_MODE_CLAMP,
    UR_SAMPLER_ADDRESSING_MODE_REPEAT,
    UR_SAMPLER_ADDRESSING_MODE_MIRRORED_REPEAT,
];

const FILTERS: [ur_sampler_filter_mode_t; 2] = [
    UR_SAMPLER_FILTER_MODE_NEAREST,
    UR_SAMPLER_FILTER_MODE_LINEAR,
];

fn plain() -> ur_sampler_desc_t {
    ur_sampler_desc_t {
        normalizedCoords: 1,
        addressingMode: UR_SAMPLER_ADDRESSING_MODE_CLAMP,
        filterMode: UR_SAMPLER_FILTER_MODE_NEAREST,
        ..Default::default()
    }
}

/// A context of a device that makes samplers; others stop the test.
fn context(fixture: &Fixture) -> Result<Context, Stop> {
    let context = Context::new(fixture)?;
    fixture.require(UR_DEVICE_INFO_IMAGE_SUPPORT, || {
        create(&context, &plain(), &mut null_mut())
    })?;
    Ok(context)
}

fn create(context: &Context, what: &ur_sampler_desc_t, new: &mut ur_sampler_handle_t) -> Status {
    context.ur.urSamplerCreate(context.raw, what, new)
}

/// A sampler with each combination of modes reports those, and its context.
fn reports_its_properties(fixture: &Fixture) -> Done {
    let context = context(fixture)?;
    for normalized in [0, 1] {
        for addressing in ADDRESSING {
            for filter in FILTERS {
                let what = ur_sampler_desc_t {
                    normalizedCoords: normalized,
                    addressingMode: addressing,
                    filterMode: filter,
                    ..Default::default()
                };
                let mut raw = null_mut();
                let status = create(&context, &what, &mut raw);
                let repeats = [
                    UR_SAMPLER_ADDRESSING_MODE_REPEAT,
                    UR_SAMPLER_ADDRESSING_MODE_MIRRORED_REPEAT,
                ];
                // Only these modes need normalized coordinates.
                if normalized == 0 && repeats.contains(&addressing) && !status.is_ok() {
                    status.fails(UR_RESULT_ERROR_INVALID_VALUE)?;
                    continue;
                }
                status.ok()?;
                let sampler = Sampler::adopt(fixture.ur, raw);
                let about = format!("of {normalized} {addressing:?} {filter:?}");
                let is_normalized: u8 = sampler.get(UR_SAMPLER_INFO_NORMALIZED_COORDS)?;
                check_eq!(is_normalized, normalized, "normalized coordinates {about}");
                let mode = sampler.get(UR_SAMPLER_INFO_ADDRESSING_MODE)?;
                check_eq!(addressing, mode, "addressing mode {about}");
                let mode = sampler.get(UR_SAMPLER_INFO_FILTER_MODE)?;
                check_eq!(filter, mode, "filter mode {about}");
                let own = sampler.get::<ur_context_handle_t>(UR_SAMPLER_INFO_CONTEXT)?;
                check_eq!(own, context.raw, "context {about}");
            }
        }
    }
    Ok(())
}

/// `urSamplerCreate` refuses unknown modes and null pointers, and writes no handle then.
fn create_refused(fixture: &Fixture) -> Done {
    let context = context(fixture)?;
    let mut raw = null_mut();
    let unknown = [
        ur_sampler_desc_t {
            addressingMode: ur_sampler_addressing_mode_t(77),
            ..plain()
        },
        ur_sampler_desc_t {
            filterMode: ur_sampler_filter_mode_t(77),
            ..plain()
        },
    ];
    for what in &unknown {
        create(&context, what, &mut raw).fails(UR_RESULT_ERROR_INVALID_ENUMERATION)?;
    }
    let ur = fixture.ur;
    ur.urSamplerCreate(context.raw, null(), &mut raw)
        .fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    ur.urSamplerCreate(null_mut(), &plain(), &mut raw)
        .fails(UR_RESULT_ERROR_INVALID_NULL_HANDLE)?;
    ur.urSamplerCreate(context.raw, &plain(), null_mut())
        .fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    check!(raw.is_null(), "a refused urSamplerCreate wrote a handle");
    Ok(())
}

/// A retain and a release of a sampler change its reference count by one.
fn counts_references(fixture: &Fixture) -> Done {
    let sampler = Sampler::new(&context(fixture)?, &plain())?;
    let references = || sampler.get::<u32>(UR_SAMPLER_INFO_REFERENCE_COUNT);
    check_eq!(references()?, 1, "references of a new sampler");
    let second = sampler.share()?;
    check_eq!(references()?, 2, "references after a retain");
    drop(second);
    check_eq!(references()?, 1, "references after a release");
    Ok(())
}

/// A sampler keeps its context alive.
fn outlives_its_context(fixture: &Fixture) -> Done {
    let context = context(fixture)?;
    let sampler = Sampler::new(&context, &plain())?;
    let raw = context.raw;
    drop(context);
    let own = sampler.get::<ur_context_handle_t>(UR_SAMPLER_INFO_CONTEXT)?;
    check_eq!(own, raw, "context of a sampler");
    Ok(())
}

/// A backend that has native samplers makes one from another's handle; others refuse both calls.
fn native_handle(fixture: &Fixture) -> Done {
    let context = context(fixture)?;
    let sampler = Sampler::new(&context, &plain())?;
    let (ur, mut native, mut raw) = (fixture.ur, 0, null_mut());
    let status = ur.urSamplerGetNativeHandle(sampler.raw, &mut native);
    if status.is_unsupported() {
        let status = ur.urSamplerCreateWithNativeHandle(native, context.raw, null(), &mut raw);
        return status.fails(UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
    }
    status.ok()?;
    ur.urSamplerCreateWithNativeHandle(native, context.raw, null(), &mut raw)
        .ok()?;
    let twin = Sampler::adopt(ur, raw);
    drop(sampler);
    let mode = twin.get::<ur_sampler_addressing_mode_t>(UR_SAMPLER_INFO_ADDRESSING_MODE)?;
    check_eq!(
        mode,
        plain().addressingMode,
        "addressing mode of an adopted sampler"
    );
    Ok(())
}

/// A kernel of CUDA gets a sampler as a number: bit 0 for normalized coordinates, 1 for the filter, 2 to 4 for addresses.
fn cuda_kernels_get_a_number(fixture: &Fixture) -> Done {
    let context = context(fixture)?;
    if fixture.backend != UR_BACKEND_CUDA {
        return Err(Stop::skipped("only kernels of CUDA get a number"));
    }
    let queue = context.in_order(fixture)?;
    let kernel = Program::new(fixture, &context)?.kernel(IOTA)?;
    let memory = context.usm(fixture, Kind::Device, 16)?;
    for (addressing, filter, want) in [
        (
            UR_SAMPLER_ADDRESSING_MODE_CLAMP,
            UR_SAMPLER_FILTER_MODE_NEAREST,
            0b01001,
        ),
        (
            UR_SAMPLER_ADDRESSING_MODE_MIRRORED_REPEAT,
            UR_SAMPLER_FILTER_MODE_LINEAR,
            0b10011,
        ),
    ] {
        let what = ur_sampler_desc_t {
            addressingMode: addressing,
            filterMode: filter,
            ..plain()
        };
        let sampler = Sampler::new(&context, &what)?;
        let args = [Arg::Pointer(memory.ptr), Arg::Sampler(&sampler)];
        queue.launch(&kernel, 1, &args, &[])?;
        let number: Vec<u32> = queue.read(memory.ptr, 1, &[])?;
        check_eq!(number, [want], "number of {addressing:?} {filter:?}");
    }
    Ok(())
}

/// A kernel reads an image through samplers, also beyond its edges. Samplers and image are released while the launch is
/// pending.
fn kernels_sample_images(fixture: &Fixture) -> Done {
    let context = context(fixture)?;
    let provider = kernels::provider(fixture.backend);
    if !provider.is_some_and(KernelProvider::samples) {
        return Err(Stop::skipped("no kernels with samplers"));
    }
    let queue = context.in_order(fixture)?;
    let kernel = Program::of_images(fixture, &context, fixture.device)?.kernel(SAMPLE)?;
    let format = ur_image_format_t {
        channelOrder: UR_IMAGE_CHANNEL_ORDER_RGBA,
        channelType: UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT32,
    };
    let (width, shift) = (16_u32, 4_u32);
    let count = width + 2 * shift;
    let memory = context.usm(fixture, Kind::Device, 4 * count as usize)?;
    let words: Vec<u8> = (0..4 * width)
        .flat_map(|word| (word + 100).to_ne_bytes())
        .collect();
    let edge = |pixel: i64| 100 + 4 * pixel.clamp(0, i64::from(width) - 1) as u32;
    let border = |pixel: i64| match (0..i64::from(width)).contains(&pixel) {
        true => edge(pixel),
        false => 0,
    };
    type Expected<'a> = &'a dyn Fn(i64) -> u32;
    let modes: [(_, Expected<'_>); 2] = [
        (UR_SAMPLER_ADDRESSING_MODE_CLAMP_TO_EDGE, &edge),
        (UR_SAMPLER_ADDRESSING_MODE_CLAMP, &border),
    ];
    for (addressing, expected) in modes {
        let sizes = [width as usize, 1, 1];
        {
            let image = Image::new(&context, &format, &desc(UR_MEM_TYPE_IMAGE1D, sizes))?;
            image.write(&queue, Part::packed([0; 3], sizes), &words)?;
            let what = ur_sampler_desc_t {
                normalizedCoords: 0,
                addressingMode: addressing,
                ..plain()
            };
            let sampler = Sampler::new(&context, &what)?;
            let args = [
                Arg::Pointer(memory.ptr),
                Arg::Image(&image),
                Arg::Sampler(&sampler),
                Arg::of(&shift),
            ];
            queue.launch(&kernel, count as usize, &args, &[])?;
        }
        let got: Vec<u32> = queue.read(memory.ptr, count as usize, &[])?;
        let want = (0..i64::from(count)).map(|at| expected(at - i64::from(shift)));
        check_items!(got, want, "words sampled with {addressing:?}");
    }
    Ok(())
}

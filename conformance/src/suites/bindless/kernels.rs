//! Kernels that read and write images, which they take by value.

use super::objects::*;
use super::pitched::Pitched;
use crate::fixture::Fixture;
use crate::objects::{Arg, Context, Kind, Program, Queue, Usm, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_items};
use std::ffi::CStr;
use std::ptr::null_mut;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["bindless";
        a_kernel_samples_an_image, addressing_modes_of_each_dimension, a_kernel_reads_and_writes_pixels,
        a_kernel_samples_levels, a_kernel_samples_layers, a_kernel_samples_a_cube, a_kernel_writes_layers,
        a_kernel_fetches_pixels_of_pitched_memory, a_kernel_fetches_pixels_of_a_line,
    ]
}

/// A context with a queue and a program of kernels on images.
struct Setup {
    program: Program,
    queue: Queue,
    context: Context,
}

impl Setup {
    fn new(fixture: &Fixture) -> Result<Self, Stop> {
        let context = Context::new(fixture)?;
        need(fixture, &context)?;
        Kind::Device.need(fixture)?;
        let name = info::text(|size, value, ret| {
            let (ur, what) = (fixture.ur, UR_DEVICE_INFO_NAME);
            ur.urDeviceGetInfo(fixture.device, what, size, value, ret)
        })?;
        if name.starts_with("Scripted") {
            return Err(Stop::skipped(
                "the scripted driver runs no kernels on images",
            ));
        }
        Ok(Self {
            program: Program::of_bindless(fixture, &context)?,
            queue: context.in_order(fixture)?,
            context,
        })
    }

    /// Runs a kernel with so many items after the other work of the queue.
    fn run(&self, name: &CStr, items: usize, args: &[Arg]) -> Done {
        let kernel = self.program.kernel(name)?;
        self.queue.launch(&kernel, items, args, &[])?.wait()
    }

    /// Device memory with these values.
    fn upload<T: Copy>(&self, fixture: &Fixture, data: &[T]) -> Result<Usm, Stop> {
        let usm = aligned(fixture, &self.context, size_of_val(data).max(4))?;
        self.queue.write(usm.ptr, data)?;
        Ok(usm)
    }

    /// Samples an image of floats at each pair of coordinates, with a further argument.
    fn sample(
        &self,
        fixture: &Fixture,
        name: &CStr,
        coordinates: &[f32],
        per_item: usize,
        image: &Image<'_>,
        more: Option<Arg>,
    ) -> Result<Vec<f32>, Stop> {
        let items = coordinates.len() / per_item;
        let at = self.upload(fixture, coordinates)?;
        let out = self.upload(fixture, &vec![-1.0_f32; items])?;
        let handle = image.raw as u64;
        let mut args = vec![
            Arg::Pointer(out.ptr),
            Arg::Pointer(at.ptr),
            Arg::of(&handle),
        ];
        args.extend(more);
        self.run(name, items, &args)?;
        self.queue.read(out.ptr, items, &[])
    }
}

/// Fails unless numbers are equal but for the precision of filters, which have 8 bits of a fraction.
fn check_near(found: &[f32], want: &[f32], range: f32, what: &str) -> Done {
    for (at, (found, want)) in found.iter().zip(want).enumerate() {
        let near = (found - want).abs() <= range / 128.0;
        check!(near, "{what}: element {at} is {found}, expected {want}");
    }
    Ok(())
}

/// A sampled 2D image is filtered between pixels, by coordinates from 0 to 1.
fn a_kernel_samples_an_image(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let sizes = [4, 2, 0];
    let memory = Memory::new(
        fixture,
        &setup.context,
        FLOAT,
        image(UR_MEM_TYPE_IMAGE2D, sizes),
    )?;
    // The pixel at x, y is 10 x + 100 y.
    let data: Vec<f32> = (0..8)
        .map(|at| (10 * (at % 4) + 100 * (at / 4)) as f32)
        .collect();
    write(&setup.queue, &memory, sizes, &data)?;
    // Pixels' centres, points between two and four of them, and points beyond the edges.
    let at = [
        [0.125, 0.25],
        [0.375, 0.75],
        [0.25, 0.25],
        [0.5, 0.25],
        [0.125, 0.5],
        [0.5, 0.5],
        [-1.0, 0.25],
        [2.0, 0.75],
    ];
    let want = [0.0, 110.0, 5.0, 15.0, 50.0, 65.0, 0.0, 130.0];
    let read = memory.sampled(&filtering())?;
    let found = setup.sample(fixture, c"sample", at.as_flattened(), 2, &read, None)?;
    check_near(&found, &want, 130.0, "a filtered image")?;
    let read = memory.sampled(&nearest())?;
    let at = [[0.1, 0.1], [0.3, 0.9], [0.99, 0.51]];
    let found = setup.sample(fixture, c"sample", at.as_flattened(), 2, &read, None)?;
    check_near(
        &found,
        &[0.0, 110.0, 130.0],
        1.0,
        "an image without a filter",
    )
}

/// Coordinates beyond an image follow the mode of their dimension.
fn addressing_modes_of_each_dimension(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let sizes = [4, 4, 0];
    let memory = Memory::new(
        fixture,
        &setup.context,
        FLOAT,
        image(UR_MEM_TYPE_IMAGE2D, sizes),
    )?;
    let data: Vec<f32> = (0..16)
        .map(|at| (1 + at % 4 + 10 * (at / 4)) as f32)
        .collect();
    write(&setup.queue, &memory, sizes, &data)?;
    // Left of the first pixel, and above it.
    let at = [[-0.125, 0.125], [0.125, -0.125]];
    use {
        UR_SAMPLER_ADDRESSING_MODE_CLAMP as BORDER,
        UR_SAMPLER_ADDRESSING_MODE_CLAMP_TO_EDGE as EDGE,
        UR_SAMPLER_ADDRESSING_MODE_MIRRORED_REPEAT as MIRRORED,
        UR_SAMPLER_ADDRESSING_MODE_REPEAT as REPEATED,
    };
    for (modes, want) in [
        ([EDGE, EDGE], [1.0, 1.0]),
        ([BORDER, BORDER], [0.0, 0.0]),
        ([REPEATED, REPEATED], [4.0, 31.0]),
        ([MIRRORED, MIRRORED], [1.0, 1.0]),
        ([REPEATED, BORDER], [4.0, 0.0]),
        ([BORDER, REPEATED], [0.0, 31.0]),
    ] {
        let mut own = ur_exp_sampler_addr_modes_t {
            addrModes: [modes[0], modes[1], EDGE],
            ..Default::default()
        };
        let sampler = ur_sampler_desc_t {
            pNext: (&raw mut own).cast(),
            ..nearest()
        };
        let read = memory.sampled(&sampler)?;
        let found = setup.sample(fixture, c"sample", at.as_flattened(), 2, &read, None)?;
        check_near(&found, &want, 1.0, &format!("{modes:?}"))?;
    }
    Ok(())
}

/// A kernel reads and writes the pixels of an unsampled image.
fn a_kernel_reads_and_writes_pixels(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let sizes = [24, 10, 0];
    let memory = Memory::new(
        fixture,
        &setup.context,
        R32,
        image(UR_MEM_TYPE_IMAGE2D, sizes),
    )?;
    let data = pixels(sizes, 3);
    write(&setup.queue, &memory, sizes, &data)?;
    let written = memory.unsampled()?;
    let (handle, width, amount) = (written.raw as u64, 24_u32, 77_u32);
    let args = [Arg::of(&handle), Arg::of(&width), Arg::of(&amount)];
    setup.run(c"add_to_pixels", data.len(), &args)?;
    setup.run(c"add_to_pixels", data.len(), &args)?;
    let found: Vec<u32> = read(&setup.queue, &memory, sizes)?;
    let want = data.iter().map(|pixel| pixel.wrapping_add(154));
    check_items!(found, want, "pixels that a kernel changed");
    Ok(())
}

/// A kernel samples the levels of a mipmap, and between them.
fn a_kernel_samples_levels(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    need_property(fixture, UR_DEVICE_INFO_MIPMAP_SUPPORT_EXP)?;
    let desc = mipmap(UR_MEM_TYPE_IMAGE2D, [8, 8, 0], 3);
    let whole = Memory::new(fixture, &setup.context, FLOAT, desc)?;
    for level in 0..3 {
        let own = whole.image_of_level(fixture, level)?;
        let sizes = [8 >> level, 8 >> level, 0];
        let value = 10.0 * (level as f32 + 1.0);
        write(&setup.queue, &own, sizes, &vec![value; sizes[0] * sizes[1]])?;
    }
    let mut mips = ur_exp_sampler_mip_properties_t {
        minMipmapLevelClamp: 0.0,
        maxMipmapLevelClamp: 2.0,
        maxAnisotropy: 1.0,
        mipFilterMode: UR_SAMPLER_FILTER_MODE_LINEAR,
        ..Default::default()
    };
    let chained = ur_sampler_desc_t {
        pNext: (&raw mut mips).cast(),
        ..filtering()
    };
    let read = whole.sampled(&chained)?;
    for (level, want) in [
        (0.0_f32, 10.0_f32),
        (1.0, 20.0),
        (2.0, 30.0),
        (0.5, 15.0),
        (9.0, 30.0),
    ] {
        let more = Some(Arg::of(&level));
        let found = setup.sample(fixture, c"sample_level", &[0.5, 0.5], 2, &read, more)?;
        check_near(&found, &[want], 30.0, &format!("level {level}"))?;
    }
    Ok(())
}

/// A kernel samples the layers of an array.
fn a_kernel_samples_layers(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    need_property(fixture, UR_DEVICE_INFO_IMAGE_ARRAY_SUPPORT_EXP)?;
    let sizes = [4, 4, 3];
    let desc = image(UR_MEM_TYPE_IMAGE2D_ARRAY, sizes);
    let memory = Memory::new(fixture, &setup.context, FLOAT, desc)?;
    let data: Vec<f32> = (0..48).map(|at| (at / 16 * 100 + at % 4) as f32).collect();
    write(&setup.queue, &memory, sizes, &data)?;
    let read = memory.sampled(&filtering())?;
    for layer in 0..3_u32 {
        let more = Some(Arg::of(&layer));
        let found = setup.sample(fixture, c"sample_layer", &[0.5, 0.5], 2, &read, more)?;
        let want = layer as f32 * 100.0 + 1.5;
        check_near(&found, &[want], 100.0, &format!("layer {layer}"))?;
    }
    Ok(())
}

/// A kernel samples the faces of a cube in their directions.
fn a_kernel_samples_a_cube(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    need_property(fixture, UR_DEVICE_INFO_CUBEMAP_SUPPORT_EXP)?;
    let sizes = [8, 8, 6];
    let desc = image(UR_MEM_TYPE_IMAGE_CUBEMAP_EXP, sizes);
    let memory = Memory::new(fixture, &setup.context, FLOAT, desc)?;
    let data: Vec<f32> = (0..384).map(|at| (at / 64 + 1) as f32).collect();
    write(&setup.queue, &memory, sizes, &data)?;
    // The faces: right, left, top, bottom, front, back.
    let towards: [[f32; 3]; 6] = [
        [1.0, 0.0, 0.0],
        [-1.0, 0.0, 0.0],
        [0.0, 1.0, 0.0],
        [0.0, -1.0, 0.0],
        [0.0, 0.0, 1.0],
        [0.0, 0.0, -1.0],
    ];
    let mut edges = ur_exp_sampler_cubemap_properties_t {
        cubemapFilterMode: UR_EXP_SAMPLER_CUBEMAP_FILTER_MODE_SEAMLESS,
        ..Default::default()
    };
    let seamless = ur_sampler_desc_t {
        pNext: (&raw mut edges).cast(),
        ..filtering()
    };
    for sampler in [filtering(), seamless] {
        let read = memory.sampled(&sampler)?;
        let at = towards.as_flattened();
        let found = setup.sample(fixture, c"sample_cube", at, 3, &read, None)?;
        check_near(
            &found,
            &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            6.0,
            "the faces of a cube",
        )?;
        // An edge between the first and the fifth face.
        let found = setup.sample(fixture, c"sample_cube", &[1.0, 0.0, 1.0], 3, &read, None)?;
        let seamless = !sampler.pNext.is_null();
        let able = fixture.supports(UR_DEVICE_INFO_CUBEMAP_SEAMLESS_FILTERING_SUPPORT_EXP)?;
        if seamless && able {
            check_near(&found, &[3.0], 6.0, "the edge of two faces")?;
        }
    }
    Ok(())
}

/// A kernel writes the layers of an unsampled image.
fn a_kernel_writes_layers(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    need_property(fixture, UR_DEVICE_INFO_IMAGE_ARRAY_SUPPORT_EXP)?;
    let sizes = [8, 4, 3];
    let desc = image(UR_MEM_TYPE_IMAGE2D_ARRAY, sizes);
    let memory = Memory::new(fixture, &setup.context, R32, desc)?;
    let written = memory.unsampled()?;
    let (handle, width, height, base) = (written.raw as u64, 8_u32, 4_u32, 1000_u32);
    let args = [
        Arg::of(&handle),
        Arg::of(&width),
        Arg::of(&height),
        Arg::of(&base),
    ];
    setup.run(c"write_layers", 96, &args)?;
    let found: Vec<u32> = read(&setup.queue, &memory, sizes)?;
    check_items!(
        found,
        1000..1096_u32,
        "pixels that a kernel wrote to layers"
    );
    Ok(())
}

/// A kernel fetches the pixels of a 2D image in pitched memory by their numbers.
fn a_kernel_fetches_pixels_of_pitched_memory(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    need_property(
        fixture,
        UR_DEVICE_INFO_BINDLESS_SAMPLED_IMAGE_FETCH_2D_USM_SUPPORT_EXP,
    )?;
    let sizes = [25, 9, 0];
    let memory = Pitched::new(fixture, &setup.context, null_mut(), [100, 9])?;
    let data = pixels(sizes, 6);
    let packed = image(UR_MEM_TYPE_IMAGE2D, sizes);
    let rows = ur_image_desc_t {
        rowPitch: memory.pitch,
        ..packed
    };
    let from = linear(data.as_ptr().cast_mut().cast(), &packed, &R32);
    let to = linear(memory.ptr, &rows, &R32);
    copy(&setup.queue, (from, to), &whole(sizes), TO_DEVICE, &[])?.wait()?;
    let what = (memory.ptr.addr(), &R32, &rows);
    let read = sampled(&setup.context, fixture.device, what, &counting())?;
    let out = setup.upload(fixture, &vec![0_u32; data.len()])?;
    let (handle, width) = (read.raw as u64, 25_u32);
    let args = [Arg::Pointer(out.ptr), Arg::of(&handle), Arg::of(&width)];
    setup.run(c"fetch", data.len(), &args)?;
    let found: Vec<u32> = setup.queue.read(out.ptr, data.len(), &[])?;
    check_items!(found, data, "pixels of pitched memory");
    Ok(())
}

/// A kernel fetches the pixels of a line in linear memory.
fn a_kernel_fetches_pixels_of_a_line(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    need_property(
        fixture,
        UR_DEVICE_INFO_BINDLESS_SAMPLED_IMAGE_FETCH_1D_USM_SUPPORT_EXP,
    )?;
    let sizes = [1000, 0, 0];
    let data = pixels(sizes, 2);
    let memory = setup.upload(fixture, &data)?;
    let line = image(UR_MEM_TYPE_IMAGE1D, sizes);
    let what = (memory.ptr.addr(), &R32, &line);
    let read = sampled(&setup.context, fixture.device, what, &counting())?;
    let out = setup.upload(fixture, &vec![0_u32; data.len()])?;
    let handle = read.raw as u64;
    let args = [Arg::Pointer(out.ptr), Arg::of(&handle)];
    setup.run(c"fetch_line", data.len(), &args)?;
    let found: Vec<u32> = setup.queue.read(out.ptr, data.len(), &[])?;
    check_items!(found, data, "pixels of a line");
    Ok(())
}

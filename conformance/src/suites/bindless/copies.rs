//! Copies between linear memory and image memory.

use super::objects::*;
use crate::fixture::Fixture;
use crate::objects::{Context, Gate, Graph, Kind, Queue};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_eq};
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["bindless";
        pixels_come_back, images_are_copied, regions_of_each_kind, regions_with_pitches, copies_with_usm,
        several_regions, copies_between_linear_memory, copies_follow_their_events, a_copy_waits_for_the_queue,
        captured_image_copies, wrong_image_copies,
    ]
}

fn queues(context: &Context, fixture: &Fixture) -> Result<[Queue; 2], Stop> {
    Ok([context.in_order(fixture)?, context.out_of_order(fixture)?])
}

/// Pixels that the host writes to an image of each kind come back.
fn pixels_come_back(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    for queue in queues(&context, fixture)? {
        for (kind, sizes) in KINDS {
            if !has_kind(fixture, kind)? {
                continue;
            }
            let memory = Memory::new(fixture, &context, RGBA8, image(kind, sizes))?;
            let data = pixels(sizes, 5);
            write(&queue, &memory, sizes, &data)?;
            let found: Vec<u32> = read(&queue, &memory, sizes)?;
            check!(found == data, "pixels of {kind:?}");
        }
    }
    Ok(())
}

/// A copy between two images on the device moves all pixels.
fn images_are_copied(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    for (kind, sizes) in KINDS {
        if !has_kind(fixture, kind)? {
            continue;
        }
        let make = || Memory::new(fixture, &context, RGBA8, image(kind, sizes));
        let (one, two) = (make()?, make()?);
        let data = pixels(sizes, 9);
        write(&queue, &one, sizes, &data)?;
        let event = copy(
            &queue,
            (one.end(), two.end()),
            &whole(sizes),
            ON_DEVICE,
            &[],
        )?;
        let command: ur_command_t = event.get(UR_EVENT_INFO_COMMAND_TYPE)?;
        check_eq!(
            command,
            UR_COMMAND_MEM_IMAGE_COPY,
            "command of an image copy"
        );
        let found: Vec<u32> = read(&queue, &two, sizes)?;
        check!(found == data, "pixels of {kind:?}");
    }
    Ok(())
}

/// Where a pixel of an image lies in packed memory.
fn packed(sizes: [usize; 3], [x, y, z]: [u64; 3]) -> usize {
    let [width, height, _] = extent(sizes);
    ((z * height + y) * width + x) as usize
}

fn places(size: [u64; 3]) -> impl Iterator<Item = [u64; 3]> {
    let [width, height, depth] = size;
    (0..depth).flat_map(move |z| (0..height).flat_map(move |y| (0..width).map(move |x| [x, y, z])))
}

fn add([a, b, c]: [u64; 3], [x, y, z]: [u64; 3]) -> [u64; 3] {
    [a + x, b + y, c + z]
}

/// A copy of a region changes that part of an image alone, in each direction.
fn regions_of_each_kind(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    for (kind, sizes) in KINDS {
        if !has_kind(fixture, kind)? {
            continue;
        }
        let memory = Memory::new(fixture, &context, RGBA8, image(kind, sizes))?;
        let before = pixels(sizes, 1);
        write(&queue, &memory, sizes, &before)?;
        // The parts begin at different places of the ends, on each axis that the kind has.
        let half = extent(sizes).map(|size| (size / 2).max(1));
        let moved = extent(sizes).map(|size| size - (size / 2).max(1));
        let data = pixels(sizes, 2);
        let from = linear(data.as_ptr().cast_mut().cast(), &memory.desc, &RGBA8);
        let part = region([0; 3], moved, half);
        copy(&queue, (from, memory.end()), &part, TO_DEVICE, &[])?;
        let mut want = before;
        for at in places(half) {
            want[packed(sizes, add(at, moved))] = data[packed(sizes, at)];
        }
        let found: Vec<u32> = read(&queue, &memory, sizes)?;
        check!(found == want, "a region written to {kind:?}");
        let mut back = vec![7_u32; want.len()];
        let to = linear(back.as_mut_ptr().cast(), &memory.desc, &RGBA8);
        let part = region(moved, [0; 3], half);
        copy(&queue, (memory.end(), to), &part, TO_HOST, &[])?.wait()?;
        let mut expected = vec![7_u32; want.len()];
        for at in places(half) {
            expected[packed(sizes, at)] = want[packed(sizes, add(at, moved))];
        }
        check!(back == expected, "a region read from {kind:?}");
        let other = Memory::new(fixture, &context, RGBA8, image(kind, sizes))?;
        write(&queue, &other, sizes, &back)?;
        copy(&queue, (memory.end(), other.end()), &part, ON_DEVICE, &[])?;
        let found: Vec<u32> = read(&queue, &other, sizes)?;
        check!(found == expected, "a region between images of {kind:?}");
    }
    Ok(())
}

/// Rows and slices of linear memory lie where the pitches say, whole rows or not, and bytes between them stay.
fn regions_with_pitches(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    let sizes = [6, 5, 4];
    let memory = Memory::new(fixture, &context, RGBA8, image(UR_MEM_TYPE_IMAGE3D, sizes))?;
    // Words from row to row and from slice to slice.
    for (row, slice) in [(8, 40), (8, 48), (9, 47)] {
        let padded = ur_image_desc_t {
            rowPitch: 4 * row,
            slicePitch: 4 * slice,
            ..memory.desc
        };
        let data: Vec<u32> = (0..4 * slice as u32).map(|at| at + 1).collect();
        let from = linear(data.as_ptr().cast_mut().cast(), &padded, &RGBA8);
        copy(&queue, (from, memory.end()), &whole(sizes), TO_DEVICE, &[])?;
        let found: Vec<u32> = read(&queue, &memory, sizes)?;
        let word = |[x, y, z]: [u64; 3]| z as usize * slice + y as usize * row + x as usize;
        for at in places(extent(sizes)) {
            check_eq!(
                found[packed(sizes, at)],
                data[word(at)],
                "pixel {at:?} of an image"
            );
        }
        let mut back = vec![0_u32; data.len()];
        let to = linear(back.as_mut_ptr().cast(), &padded, &RGBA8);
        copy(&queue, (memory.end(), to), &whole(sizes), TO_HOST, &[])?.wait()?;
        let mut want = vec![0_u32; data.len()];
        for at in places(extent(sizes)) {
            want[word(at)] = data[word(at)];
        }
        check!(back == want, "rows of {row} and slices of {slice} words");
    }
    Ok(())
}

/// Linear memory of a copy may be USM of any kind.
fn copies_with_usm(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    let sizes = [64, 16, 0];
    let memory = Memory::new(fixture, &context, RGBA8, image(UR_MEM_TYPE_IMAGE2D, sizes))?;
    for kind in Kind::ALL {
        if !kind.is_there(fixture)? {
            continue;
        }
        let data = pixels(sizes, 3);
        let bytes = 4 * data.len();
        let usm = [
            context.usm(fixture, kind, bytes)?,
            context.usm(fixture, kind, bytes)?,
        ];
        queue.write(usm[0].ptr, &data)?;
        let [from, to] = usm
            .each_ref()
            .map(|usm| linear(usm.ptr, &memory.desc, &RGBA8));
        copy(&queue, (from, memory.end()), &whole(sizes), ON_DEVICE, &[])?;
        copy(&queue, (memory.end(), to), &whole(sizes), ON_DEVICE, &[])?;
        let found: Vec<u32> = queue.read(usm[1].ptr, data.len(), &[])?;
        check!(found == data, "pixels through {kind} memory");
    }
    Ok(())
}

/// Regions chained to a copy's are copied by the same command.
fn several_regions(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    let sizes = [8, 4, 0];
    let memory = Memory::new(fixture, &context, RGBA8, image(UR_MEM_TYPE_IMAGE2D, sizes))?;
    write(&queue, &memory, sizes, &[0_u32; 32])?;
    let data = pixels(sizes, 4);
    let parts = [
        ([0, 0, 0], [7, 0, 0], [1, 4, 1]),
        ([5, 0, 0], [0, 2, 0], [3, 1, 1]),
        ([1, 3, 0], [4, 1, 0], [2, 1, 1]),
    ];
    let [mut first, mut second, last] = parts.map(|(src, dst, size)| region(src, dst, size));
    second.pNext = (&raw const last).cast();
    first.pNext = (&raw const second).cast();
    let from = linear(data.as_ptr().cast_mut().cast(), &memory.desc, &RGBA8);
    copy(&queue, (from, memory.end()), &first, TO_DEVICE, &[])?;
    let mut want = vec![0_u32; 32];
    for (src, dst, size) in parts {
        for at in places(size) {
            want[packed(sizes, add(at, dst))] = data[packed(sizes, add(at, src))];
        }
    }
    let found: Vec<u32> = read(&queue, &memory, sizes)?;
    check!(found == want, "pixels of three regions");
    Ok(())
}

/// Linear memory may be at both ends, with pitches of its own at each.
fn copies_between_linear_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    Kind::Device.need(fixture)?;
    let queue = context.in_order(fixture)?;
    let sizes = [6, 5, 0];
    let narrow = image(UR_MEM_TYPE_IMAGE2D, sizes);
    let wide = ur_image_desc_t {
        rowPitch: 64,
        ..narrow
    };
    let data = pixels(sizes, 6);
    let usm = context.usm(fixture, Kind::Device, 5 * 64)?;
    queue.fill(usm.ptr, 0_u32, 5 * 64, &[])?;
    let from = linear(data.as_ptr().cast_mut().cast(), &narrow, &RGBA8);
    let middle = linear(usm.ptr, &wide, &RGBA8);
    let mut back = vec![0_u32; 30];
    let to = linear(back.as_mut_ptr().cast(), &narrow, &RGBA8);
    let part = region([1, 1, 0], [0, 2, 0], [5, 3, 1]);
    copy(&queue, (from, middle), &part, TO_DEVICE, &[])?;
    copy(&queue, (middle, to), &whole(sizes), TO_HOST, &[])?.wait()?;
    let mut want = vec![0_u32; 30];
    for at in places([5, 3, 1]) {
        want[packed(sizes, add(at, [0, 2, 0]))] = data[packed(sizes, add(at, [1, 1, 0]))];
    }
    check!(back == want, "pixels between linear memory");
    Ok(())
}

/// A copy on an out-of-order queue begins after its wait list, and its event completes after its pixels are there.
fn copies_follow_their_events(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    let queue = context.out_of_order(fixture)?;
    let sizes = [512, 512, 0];
    let make = || Memory::new(fixture, &context, RGBA8, image(UR_MEM_TYPE_IMAGE2D, sizes));
    let images = [make()?, make()?, make()?];
    let data = pixels(sizes, 8);
    let mut back = vec![0_u32; data.len()];
    for _ in 0..8 {
        back.fill(0);
        let from = linear(data.as_ptr().cast_mut().cast(), &images[0].desc, &RGBA8);
        let to = linear(back.as_mut_ptr().cast(), &images[0].desc, &RGBA8);
        let gate = Gate::close(fixture, &queue)?;
        let mut last = copy(
            &queue,
            (from, images[0].end()),
            &whole(sizes),
            TO_DEVICE,
            &[&gate.event],
        )?;
        for pair in images.windows(2) {
            let ends = (pair[0].end(), pair[1].end());
            last = copy(&queue, ends, &whole(sizes), ON_DEVICE, &[&last])?;
        }
        last = copy(
            &queue,
            (images[2].end(), to),
            &whole(sizes),
            TO_HOST,
            &[&last],
        )?;
        check!(
            !last.is_complete()?,
            "a copy completed before its wait list"
        );
        gate.open();
        last.wait()?;
        check!(back == data, "pixels after four copies");
    }
    Ok(())
}

/// A copy on an in-order queue is between the commands before and behind it, also while the queue waits for the
/// host.
fn a_copy_waits_for_the_queue(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    Kind::Device.need(fixture)?;
    let queue = context.in_order(fixture)?;
    let sizes = [256, 0, 0];
    let memory = Memory::new(fixture, &context, R32, image(UR_MEM_TYPE_IMAGE1D, sizes))?;
    let usm = context.usm(fixture, Kind::Device, 1024)?;
    queue.fill(usm.ptr, 1_u32, 1024, &[])?;
    let gate = Gate::close(fixture, &queue)?;
    queue.fill(usm.ptr, 2_u32, 1024, &[])?;
    let place = linear(usm.ptr, &memory.desc, &R32);
    copy(&queue, (place, memory.end()), &whole(sizes), ON_DEVICE, &[])?;
    queue.fill(usm.ptr, 3_u32, 1024, &[])?;
    let copied = copy(&queue, (memory.end(), place), &whole(sizes), ON_DEVICE, &[])?;
    check!(
        !copied.is_complete()?,
        "a copy completed before the queue's order"
    );
    gate.open();
    let found: Vec<u32> = queue.read(usm.ptr, 256, &[])?;
    crate::check_all!(found, 2, "pixels in the order of the queue");
    Ok(())
}

/// A copy in a captured graph runs with each execution.
fn captured_image_copies(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    need_property(fixture, UR_DEVICE_INFO_GRAPH_RECORD_AND_REPLAY_SUPPORT_EXP)?;
    Kind::Device.need(fixture)?;
    let queue = context.in_order(fixture)?;
    let sizes = [16, 8, 0];
    let memory = Memory::new(fixture, &context, R32, image(UR_MEM_TYPE_IMAGE2D, sizes))?;
    let [one, two] = [
        context.usm(fixture, Kind::Device, 512)?,
        context.usm(fixture, Kind::Device, 512)?,
    ];
    let ends = [&one, &two].map(|usm| linear(usm.ptr, &memory.desc, &R32));
    let graph = Graph::capture(&queue, || {
        copy(
            &queue,
            (ends[0], memory.end()),
            &whole(sizes),
            ON_DEVICE,
            &[],
        )?;
        copy(
            &queue,
            (memory.end(), ends[1]),
            &whole(sizes),
            ON_DEVICE,
            &[],
        )
        .map(drop)
    })?;
    let executable = graph.instantiate()?;
    for round in 0..4 {
        let data = pixels(sizes, round);
        queue.write(one.ptr, &data)?;
        let (ur, none) = (fixture.ur, null_mut());
        ur.urEnqueueGraphExp(queue.raw, executable.raw, 0, null(), none)
            .ok()?;
        let found: Vec<u32> = queue.read(two.ptr, data.len(), &[])?;
        check!(found == data, "pixels of round {round}");
    }
    Ok(())
}

/// A copy whose ends, direction or region do not fit is refused.
fn wrong_image_copies(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    let sizes = [8, 4, 0];
    let memory = Memory::new(fixture, &context, RGBA8, image(UR_MEM_TYPE_IMAGE2D, sizes))?;
    let mut data = pixels(sizes, 0);
    let host = linear(data.as_mut_ptr().cast(), &memory.desc, &RGBA8);
    let attempt = |src, dst, region: &ur_exp_image_copy_region_t, flags| {
        try_copy(&queue, (src, dst), region, flags, &[], null_mut())
    };
    let all = whole(sizes);
    let wrong = UR_RESULT_ERROR_INVALID_VALUE;
    attempt(host, memory.end(), &all, TO_HOST).fails(wrong)?;
    attempt(memory.end(), host, &all, TO_DEVICE).fails(wrong)?;
    attempt(
        host,
        memory.end(),
        &all,
        UR_EXP_IMAGE_COPY_FLAG_HOST_TO_HOST,
    )
    .fails(wrong)?;
    let no_image = Place {
        is_image: true,
        ..host
    };
    attempt(host, no_image, &all, TO_DEVICE).fails(wrong)?;
    for (src, dst, size) in [
        ([0; 3], [0; 3], [9, 1, 1]),
        ([1, 0, 0], [0; 3], [8, 1, 1]),
        ([0; 3], [0, 4, 0], [1, 1, 1]),
        ([0; 3], [0, 0, 1], [1, 1, 1]),
        ([0; 3], [0; 3], [0, 1, 1]),
        ([0; 3], [u64::MAX / 8, 0, 0], [2, 1, 1]),
    ] {
        attempt(host, memory.end(), &region(src, dst, size), TO_DEVICE)
            .fails(UR_RESULT_ERROR_INVALID_IMAGE_SIZE)?;
    }
    // Half a pixel.
    let mut cut = all;
    cut.copyExtent.width = 6;
    attempt(host, memory.end(), &cut, TO_DEVICE).fails(wrong)?;
    let wide = Place {
        format: &ur_image_format_t {
            channelType: UR_IMAGE_CHANNEL_TYPE_FLOAT,
            ..RGBA8
        },
        ..host
    };
    attempt(wide, memory.end(), &all, TO_DEVICE).fails(wrong)?;
    let none = Place {
        at: null_mut(),
        ..host
    };
    attempt(none, memory.end(), &all, TO_DEVICE).fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    // Nothing was copied.
    write(&queue, &memory, sizes, &data)?;
    let found: Vec<u32> = read(&queue, &memory, sizes)?;
    check!(found == data, "pixels after refused copies");
    Ok(())
}

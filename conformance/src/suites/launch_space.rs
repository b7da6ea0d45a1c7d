//! Index spaces: the ids and sizes that each work-item sees.

use super::launch::{Setup, launch};
use crate::fixture::Fixture;
use crate::kernels::{IDS, IOTA, Ids, THROUGH_LOCAL, VERIFY};
use crate::objects::{Arg, Kind};
use crate::outcome::Done;
use crate::registry::Test;
use crate::{check, check_eq};

pub fn all() -> Vec<Test> {
    crate::tests!["launch"; three_dimensions, offsets, chosen_local_size, local_memory, large_range]
}

/// Launches `IDS` and checks what every work-item saw.
fn check_ids(
    fixture: &Fixture,
    dimensions: u32,
    offset: [usize; 3],
    global: [usize; 3],
    local: Option<[usize; 3]>,
) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(IDS)?;
    let items: usize = global.iter().product();
    let memory = context.usm(fixture, Kind::Device, items * size_of::<Ids>())?;
    let args = Arg::properties(&[Arg::Pointer(memory.ptr)]);
    launch(
        &queue,
        &kernel,
        dimensions,
        [Some(offset), Some(global), local],
        &args,
    )
    .ok()?;
    let seen = queue.read::<Ids>(memory.ptr, items, &[])?;
    for (at, ids) in seen.iter().enumerate() {
        let position = [
            at % global[0],
            at / global[0] % global[1],
            at / global[0] / global[1],
        ];
        for d in 0..3 {
            let size = local.map_or(ids.size[d] as usize, |local| local[d]);
            check!(
                size > 0 && global[d].is_multiple_of(size),
                "work-groups of {size} do not divide {} in dimension {d}",
                global[d]
            );
            let seen = [
                ids.global, ids.range, ids.offset, ids.size, ids.groups, ids.group, ids.local,
            ];
            let want = [
                position[d] + offset[d],
                global[d],
                offset[d],
                size,
                global[d] / size,
                position[d] / size,
                position[d] % size,
            ];
            check_eq!(
                seen.map(|of| of[d] as usize),
                want,
                "global id, range, offset, group size, groups, group and local id, dimension {d}, item {at}"
            );
        }
    }
    Ok(())
}

/// Work-items see their ids and sizes in 1, 2 and 3 dimensions.
fn three_dimensions(fixture: &Fixture) -> Done {
    check_ids(fixture, 1, [0; 3], [100, 1, 1], None)?;
    check_ids(fixture, 2, [0; 3], [12, 10, 1], None)?;
    check_ids(fixture, 3, [0; 3], [6, 5, 4], None)
}

/// Global ids begin at the launch's offset.
fn offsets(fixture: &Fixture) -> Done {
    check_ids(fixture, 1, [1000, 0, 0], [64, 1, 1], None)?;
    check_ids(fixture, 3, [3, 20, 100], [4, 6, 8], Some([2, 3, 4]))
}

/// Work-groups have the size that the launch asks for.
fn chosen_local_size(fixture: &Fixture) -> Done {
    check_ids(fixture, 1, [0; 3], [96, 1, 1], Some([8, 1, 1]))?;
    check_ids(fixture, 2, [0; 3], [12, 8, 1], Some([3, 4, 1]))?;
    check_ids(fixture, 3, [0; 3], [4, 4, 4], Some([4, 2, 1]))
}

/// A local memory argument is shared within each work-group.
fn local_memory(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let kernel = program.kernel(THROUGH_LOCAL)?;
    let memory = context.usm(fixture, Kind::Device, 1024 * 4)?;
    let args = Arg::properties(&[Arg::Pointer(memory.ptr), Arg::Local(32 * 4)]);
    launch(
        &queue,
        &kernel,
        1,
        [None, Some([1024, 1, 1]), Some([32, 1, 1])],
        &args,
    )
    .ok()?;
    let data = queue.read::<u32>(memory.ptr, 1024, &[])?;
    check!(
        data.iter()
            .enumerate()
            .all(|(at, word)| *word as usize == at % 32),
        "wrong local ids through local memory"
    );
    Ok(())
}

/// A launch of 2^20 work-items runs each of them.
fn large_range(fixture: &Fixture) -> Done {
    let Setup {
        context,
        queue,
        program,
    } = Setup::new(fixture)?;
    let (iota, verify) = (program.kernel(IOTA)?, program.kernel(VERIFY)?);
    let items = 1 << 20;
    let memory = context.usm(fixture, Kind::Device, items * 4)?;
    let wrong = context.usm(fixture, Kind::Host, 4)?;
    queue.fill(wrong.ptr, 0_u32, 4, &[])?;
    queue.launch(
        &iota,
        items,
        &[Arg::Pointer(memory.ptr), Arg::of(&1_u32)],
        &[],
    )?;
    queue.launch(
        &verify,
        items,
        &[
            Arg::Pointer(memory.ptr),
            Arg::of(&1_u32),
            Arg::Pointer(wrong.ptr),
        ],
        &[],
    )?;
    queue.finish()?;
    check_eq!(
        wrong.host::<u32>()[0],
        0,
        "wrong words of {items} work-items"
    );
    Ok(())
}

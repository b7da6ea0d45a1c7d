//! The statistics of a pool: used and reserved bytes, their present values and their peaks.

use super::threads::{THREADS, on_threads};
use super::*;
use crate::check_eq;

const SUITE: &str = "async_statistics";
const USED: ur_usm_pool_info_t = UR_USM_POOL_INFO_USED_CURRENT_EXP;
const USED_PEAK: ur_usm_pool_info_t = UR_USM_POOL_INFO_USED_HIGH_EXP;
const RESERVED: ur_usm_pool_info_t = UR_USM_POOL_INFO_RESERVED_CURRENT_EXP;
const RESERVED_PEAK: ur_usm_pool_info_t = UR_USM_POOL_INFO_RESERVED_HIGH_EXP;

pub fn all() -> Vec<Test> {
    let mut tests = by_kind(
        SUITE,
        &[
            ("used_changes_with_the_calls", used_changes_with_the_calls),
            ("rounding_is_bounded", rounding_is_bounded),
            ("peaks_are_exact", peaks_are_exact),
            ("peaks_are_reset", peaks_are_reset),
            ("reserved_covers_used", reserved_covers_used),
        ],
    );
    tests.extend(plain(
        SUITE,
        &[
            ("new_pool_is_empty", new_pool_is_empty),
            ("kinds_add_up", kinds_add_up),
            ("peaks_with_threads", peaks_with_threads),
            ("pools_are_independent", pools_are_independent),
            ("get_protocol", get_protocol),
            ("set_refused", set_refused),
            ("both_queries_agree", both_queries_agree),
        ],
    ));
    tests
}

fn statistics(pool: &Pool) -> Result<[usize; 4], Stop> {
    Ok([
        pool.statistic(USED)?,
        pool.statistic(USED_PEAK)?,
        pool.statistic(RESERVED)?,
        pool.statistic(RESERVED_PEAK)?,
    ])
}

/// A new pool has no used bytes, and its reserved bytes equal their peak.
fn new_pool_is_empty(setup: &Setup) -> Done {
    let [used, used_peak, reserved, reserved_peak] = statistics(&setup.pool()?)?;
    check_eq!([used, used_peak], [0, 0], "used bytes of a new pool");
    check_eq!(
        reserved,
        reserved_peak,
        "reserved bytes of a new pool, compared with their peak"
    );
    Ok(())
}

/// Used bytes change at the call of an allocation or free, not at its completion.
fn used_changes_with_the_calls(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let gate = setup.gate(&queue)?;
    let block = queue.alloc(kind, &pool, MIB, &[])?;
    let one = pool.used()?;
    check!(
        one >= MIB,
        "{one} bytes are used by a pending allocation of 1 MiB"
    );
    let other = queue.alloc(kind, &pool, MIB, &[])?;
    check_eq!(pool.used()?, 2 * one, "used bytes of two blocks");
    queue.free(block, &[])?;
    check_eq!(pool.used()?, one, "used bytes after a pending free");
    queue.free(other, &[])?;
    check_eq!(pool.used()?, 0, "used bytes after both frees");
    gate.open();
    queue.finish()?;
    check_eq!(pool.used()?, 0, "used bytes at the end");
    Ok(())
}

/// A block counts for less than 1/8 more than its size, above 8 MiB less than 1 MiB more.
fn rounding_is_bounded(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    for size in [
        4096,
        4097,
        5000,
        10_001,
        65_537,
        100_000,
        MIB + 1,
        3 * MIB + 17,
        8 * MIB,
        8 * MIB + 1,
        33 * MIB + 3,
    ] {
        let block = queue.alloc(kind, &pool, size, &[])?;
        let used = pool.used()?;
        let bound = if size > 8 * MIB {
            MIB
        } else {
            size.div_ceil(8)
        };
        check!(
            used >= size && used - size < bound.max(1),
            "a block of {size} bytes counts as {used}, expected less than {bound} more"
        );
        queue.free(block, &[])?;
    }
    queue.finish()
}

/// The peak of used bytes is exact.
fn peaks_are_exact(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let mut peak = 0;
    let mut blocks = Vec::new();
    for step in 0..200_usize {
        if step % 7 < 4 {
            blocks.push(queue.alloc(kind, &pool, 1000 * (1 + step * 31 % 17), &[])?);
        } else if let Some(block) = blocks.pop() {
            queue.free(block, &[])?;
        }
        let [used, used_peak, reserved, reserved_peak] = statistics(&pool)?;
        peak = peak.max(used);
        check_eq!(used_peak, peak, "peak of used bytes at step {step}");
        check!(
            reserved_peak >= reserved && reserved >= used,
            "step {step}: {used} bytes used, {reserved} reserved, {reserved_peak} at their peak"
        );
    }
    blocks
        .into_iter()
        .try_for_each(|block| queue.free(block, &[]))?;
    queue.finish()
}

/// Each peak is reset to the present value by itself.
fn peaks_are_reset(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let saved = queue.alloc(kind, &pool, MIB, &[])?;
    let block = queue.alloc(kind, &pool, 20 * MIB, &[])?;
    queue.free(block, &[])?;
    queue.finish()?;
    pool.trim(0)?;
    let [used, used_peak, reserved, reserved_peak] = statistics(&pool)?;
    check!(
        used_peak > used && reserved_peak > reserved,
        "the peaks are not above the present values"
    );
    pool.set(USED_PEAK, 0).ok()?;
    check_eq!(
        pool.statistic(USED_PEAK)?,
        used,
        "peak of used bytes after a reset"
    );
    check_eq!(
        pool.statistic(RESERVED_PEAK)?,
        reserved_peak,
        "peak of reserved bytes after a reset of the other peak"
    );
    pool.set(RESERVED_PEAK, 0).ok()?;
    check_eq!(
        pool.statistic(RESERVED_PEAK)?,
        reserved,
        "peak of reserved bytes after a reset"
    );
    let block = queue.alloc(kind, &pool, 2 * MIB, &[])?;
    check_eq!(
        pool.statistic(USED_PEAK)?,
        pool.used()?,
        "peak of used bytes since the reset"
    );
    queue.free(block, &[])?;
    queue.free(saved, &[])?;
    queue.finish()
}

/// Requested bytes are at most the used bytes, and those at most the reserved bytes.
fn reserved_covers_used(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let mut blocks = Vec::new();
    for index in 0..60_usize {
        blocks.push(queue.alloc(kind, &pool, (1 + index % 9) * 70_001, &[])?);
        let asked: usize = blocks.iter().map(|block| block.size).sum();
        let [used, _, reserved, _] = statistics(&pool)?;
        check!(
            asked <= used && used <= reserved,
            "{asked} bytes requested, {used} used, {reserved} reserved"
        );
    }
    blocks
        .into_iter()
        .try_for_each(|block| queue.free(block, &[]))?;
    queue.finish()
}

/// The statistics of a pool cover all kinds of USM together.
fn kinds_add_up(setup: &Setup) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let mut sum = 0;
    let mut blocks = Vec::new();
    for kind in Kind::ALL {
        let before = pool.used()?;
        blocks.push(queue.alloc(kind, &pool, 3 * MIB, &[])?);
        sum += pool.used()? - before;
    }
    check_eq!(pool.used()?, sum, "used bytes of all kinds");
    check!(
        sum >= 9 * MIB && pool.reserved()? >= sum,
        "three blocks of 3 MiB use {sum} bytes"
    );
    blocks
        .into_iter()
        .try_for_each(|block| queue.free(block, &[]))?;
    queue.finish()
}

/// The peak of used bytes is exact when threads allocate at the same time.
fn peaks_with_threads(setup: &Setup) -> Done {
    const EACH: usize = 20;
    let pool = setup.pool()?;
    let queues = (0..THREADS)
        .map(|_| setup.in_order())
        .collect::<Result<Vec<Queue>, Stop>>()?;
    let one = {
        let block = queues[0].alloc(Kind::Device, &pool, 10_000, &[])?;
        let used = pool.used()?;
        queues[0].free(block, &[])?;
        used
    };
    for _ in 0..5 {
        pool.set(USED_PEAK, 0).ok()?;
        let meet = std::sync::Barrier::new(THREADS);
        on_threads(|thread| {
            let queue = &queues[thread];
            let blocks: Result<Vec<Block>, Stop> = (0..EACH)
                .map(|_| queue.alloc(Kind::Device, &pool, 10_000, &[]))
                .collect();
            // Every thread must reach the barrier, or the others would wait forever.
            meet.wait();
            blocks?
                .into_iter()
                .try_for_each(|block| queue.free(block, &[]))
        })?;
        check_eq!(
            pool.statistic(USED_PEAK)?,
            THREADS * EACH * one,
            "peak of used bytes of {THREADS} threads"
        );
        check_eq!(pool.used()?, 0, "used bytes when all is freed");
    }
    queues.iter().try_for_each(Queue::finish)
}

/// A block counts in its own pool and in no other.
fn pools_are_independent(setup: &Setup) -> Done {
    let (queue, first, second) = (setup.in_order()?, setup.pool()?, setup.pool()?);
    let default = setup.default_pool()?;
    let before = statistics(&default)?;
    let block = queue.alloc(Kind::Device, &first, MIB, &[])?;
    check_eq!(second.used()?, 0, "used bytes of another pool");
    check_eq!(
        statistics(&default)?,
        before,
        "statistics of the default pool"
    );
    queue.free(block, &[])?;
    let other = queue.alloc(Kind::Device, &second, MIB, &[])?;
    check_eq!(first.used()?, 0, "used bytes of another pool");
    queue.free(other, &[])?;
    queue.finish()
}

const ALL: [ur_usm_pool_info_t; 6] = [
    UR_USM_POOL_INFO_RELEASE_THRESHOLD_EXP,
    UR_USM_POOL_INFO_MAXIMUM_SIZE_EXP,
    USED,
    USED_PEAK,
    RESERVED,
    RESERVED_PEAK,
];

/// `urUSMPoolGetInfoExp` gives sizes and values and refuses wrong arguments.
fn get_protocol(setup: &Setup) -> Done {
    let pool = setup.pool()?;
    let ur = setup.fixture.ur;
    for property in ALL {
        let (mut value, mut size) = (0_usize, 0);
        ur.urUSMPoolGetInfoExp(pool.raw, property, null_mut(), &mut size)
            .ok()?;
        check_eq!(size, size_of::<usize>(), "size of {property:?}");
        size = 0;
        ur.urUSMPoolGetInfoExp(pool.raw, property, (&raw mut value).cast(), &mut size)
            .ok()?;
        check_eq!(
            size,
            size_of::<usize>(),
            "size of {property:?}, queried with its value"
        );
        ur.urUSMPoolGetInfoExp(pool.raw, property, null_mut(), null_mut())
            .fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    }
    let mut value = 0_usize;
    let unknown = ur.urUSMPoolGetInfoExp(
        pool.raw,
        ur_usm_pool_info_t(0x7777),
        (&raw mut value).cast(),
        null_mut(),
    );
    unknown.fails(UR_RESULT_ERROR_INVALID_ENUMERATION)
}

/// `urUSMPoolSetInfoExp` refuses read-only properties, wrong values and wrong sizes.
fn set_refused(setup: &Setup) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let block = queue.alloc(Kind::Device, &pool, MIB, &[])?;
    let before = statistics(&pool)?;
    for property in [USED, RESERVED, UR_USM_POOL_INFO_MAXIMUM_SIZE_EXP] {
        pool.set(property, 0)
            .fails(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION)?;
    }
    for property in [USED_PEAK, RESERVED_PEAK] {
        pool.set(property, 1).fails_with(&[
            UR_RESULT_ERROR_INVALID_VALUE,
            UR_RESULT_ERROR_INVALID_ARGUMENT,
        ])?;
    }
    pool.set(ur_usm_pool_info_t(0x7777), 0)
        .fails(UR_RESULT_ERROR_INVALID_ENUMERATION)?;
    let mut value = 0_u64;
    let ur = setup.fixture.ur;
    for size in [0, 1, 4, 7] {
        let property = UR_USM_POOL_INFO_RELEASE_THRESHOLD_EXP;
        ur.urUSMPoolSetInfoExp(pool.raw, property, (&raw mut value).cast(), size)
            .fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    }
    check_eq!(
        statistics(&pool)?,
        before,
        "statistics after refused changes"
    );
    queue.free(block, &[])?;
    queue.finish()
}

/// Both query functions of a pool give the same values.
fn both_queries_agree(setup: &Setup) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let block = queue.alloc(Kind::Shared, &pool, MIB, &[])?;
    for property in ALL {
        let value: usize = crate::objects::info::value(|size, value, ret| {
            setup
                .fixture
                .ur
                .urUSMPoolGetInfo(pool.raw, property, size, value, ret)
        })?;
        check_eq!(
            value,
            pool.statistic(property)?,
            "{property:?}, compared between both queries"
        );
    }
    queue.free(block, &[])?;
    queue.finish()
}

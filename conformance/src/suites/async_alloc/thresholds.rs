//! Release thresholds and trims: how much memory a pool releases, and when.

use super::fixtures::{A, B, PendingFree};
use super::*;
use crate::check_eq;
use crate::objects::Limits;

const SUITE: &str = "async_thresholds";
const BLOCK: usize = 2 * MIB;

pub fn all() -> Vec<Test> {
    let mut tests = by_kind(
        SUITE,
        &[
            (
                "nothing_is_released_by_default",
                nothing_is_released_by_default,
            ),
            ("finish_releases", finish_releases),
            ("event_wait_releases", event_wait_releases),
            ("device_wait_releases", device_wait_releases),
            ("threshold_is_kept", threshold_is_kept),
            ("live_blocks_are_kept", live_blocks_are_kept),
            ("pending_frees_are_kept", pending_frees_are_kept),
            ("threshold_can_be_changed", threshold_can_be_changed),
            ("trim_releases", trim_releases),
            (
                "trim_keeps_the_requested_bytes",
                trim_keeps_the_requested_bytes,
            ),
            ("trim_keeps_live_blocks", trim_keeps_live_blocks),
            ("trim_keeps_pending_frees", trim_keeps_pending_frees),
            ("reserves_again_after_release", reserves_again_after_release),
        ],
    );
    tests.extend(plain(
        SUITE,
        &[
            ("threshold_is_reported", threshold_is_reported),
            (
                "finish_of_another_queue_releases",
                finish_of_another_queue_releases,
            ),
        ],
    ));
    tests
}

fn with_threshold(setup: &Setup, threshold: usize) -> Result<Pool, Stop> {
    Pool::with_limits(
        setup.fixture,
        &setup.context,
        Limits {
            maximum: 0,
            threshold,
        },
    )
}

/// Allocates and fills `count` blocks.
fn some(queue: &Queue, kind: Kind, pool: &Pool, count: usize) -> Result<Vec<Block>, Stop> {
    let take = |index| {
        let block = queue.alloc(kind, pool, BLOCK, &[])?;
        queue.fill(block.ptr, index as u8, 4096, &[])?;
        Ok(block)
    };
    (0..count).map(take).collect()
}

fn free_all(queue: &Queue, blocks: Vec<Block>) -> Done {
    blocks
        .into_iter()
        .try_for_each(|block| queue.free(block, &[]))
}

/// A pool without a threshold keeps its memory over waits.
fn nothing_is_released_by_default(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let blocks = some(&queue, kind, &pool, 8)?;
    let reserved = pool.reserved()?;
    check!(
        reserved >= 8 * BLOCK,
        "{reserved} bytes are reserved for 8 blocks of {BLOCK} bytes"
    );
    free_all(&queue, blocks)?;
    queue.marker(&[])?.wait()?;
    queue.finish()?;
    check_eq!(
        pool.reserved()?,
        reserved,
        "reserved bytes of a pool without a threshold, after urQueueFinish"
    );
    Ok(())
}

/// `urQueueFinish` releases free memory above the threshold.
fn finish_releases(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, with_threshold(setup, 0)?);
    let blocks = some(&queue, kind, &pool, 8)?;
    free_all(&queue, blocks)?;
    queue.finish()?;
    check_eq!(
        pool.reserved()?,
        0,
        "reserved bytes after urQueueFinish, with a threshold of 0"
    );
    Ok(())
}

/// `urEventWait` releases free memory above the threshold.
fn event_wait_releases(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, with_threshold(setup, 0)?);
    let blocks = some(&queue, kind, &pool, 8)?;
    free_all(&queue, blocks)?;
    queue.marker(&[])?.wait()?;
    check_eq!(
        pool.reserved()?,
        0,
        "reserved bytes after urEventWait, with a threshold of 0"
    );
    let block = queue.alloc(kind, &pool, BLOCK, &[])?;
    queue.free_event(block, &[])?.wait()?;
    check_eq!(
        pool.reserved()?,
        0,
        "reserved bytes after a wait for a free's own event"
    );
    Ok(())
}

/// `urDeviceWaitExp` releases free memory above the threshold.
fn device_wait_releases(setup: &Setup, kind: Kind) -> Done {
    let fixture = setup.fixture;
    fixture.require(UR_DEVICE_INFO_DEVICE_WAIT_SUPPORT_EXP, || {
        fixture.ur.urDeviceWaitExp(fixture.device)
    })?;
    let (queue, pool) = (setup.in_order()?, with_threshold(setup, 0)?);
    let blocks = some(&queue, kind, &pool, 8)?;
    free_all(&queue, blocks)?;
    fixture.ur.urDeviceWaitExp(fixture.device).ok()?;
    check_eq!(
        pool.reserved()?,
        0,
        "reserved bytes after urDeviceWaitExp, with a threshold of 0"
    );
    Ok(())
}

/// A wait leaves at most the threshold and releases nothing below it.
fn threshold_is_kept(setup: &Setup, kind: Kind) -> Done {
    let threshold = 4 * BLOCK;
    let (queue, pool) = (setup.in_order()?, with_threshold(setup, threshold)?);
    let blocks = some(&queue, kind, &pool, 16)?;
    free_all(&queue, blocks)?;
    queue.finish()?;
    let reserved = pool.reserved()?;
    check!(
        reserved <= threshold,
        "{reserved} bytes are reserved after urQueueFinish, with a threshold of {threshold}"
    );
    // A wait releases nothing below the threshold.
    let blocks = some(&queue, kind, &pool, 1)?;
    let before = pool.reserved()?;
    free_all(&queue, blocks)?;
    queue.finish()?;
    check_eq!(
        pool.reserved()?,
        before,
        "reserved bytes below the threshold, after urQueueFinish"
    );
    Ok(())
}

/// A wait releases no live block.
fn live_blocks_are_kept(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, with_threshold(setup, 0)?);
    let mut blocks = some(&queue, kind, &pool, 8)?;
    let saved = blocks.swap_remove(3);
    queue.fill(saved.ptr, A, saved.size, &[])?;
    free_all(&queue, blocks)?;
    queue.finish()?;
    let (reserved, used) = (pool.reserved()?, pool.used()?);
    check!(
        reserved >= used && used >= BLOCK,
        "{used} bytes used, {reserved} reserved"
    );
    check!(
        reserved < 8 * BLOCK,
        "{reserved} bytes are reserved for one block, with a threshold of 0"
    );
    all_bytes(&queue, saved, A)?;
    queue.free(saved, &[])?;
    queue.finish()?;
    check_eq!(pool.reserved()?, 0, "reserved bytes at the end");
    Ok(())
}

/// A wait releases no block whose free is pending.
fn pending_frees_are_kept(setup: &Setup, kind: Kind) -> Done {
    let (first, second, pool) = (
        setup.in_order()?,
        setup.in_order()?,
        with_threshold(setup, 0)?,
    );
    let pending_free = PendingFree::new(setup, &first, first.alloc(kind, &pool, BLOCK, &[])?)?;
    let blocks = some(&second, kind, &pool, 4)?;
    free_all(&second, blocks)?;
    second.finish()?;
    check!(
        pool.reserved()? >= BLOCK,
        "a wait released a block whose free is pending"
    );
    pending_free.open_and_check(&first)?;
    check_eq!(
        pool.reserved()?,
        0,
        "reserved bytes when all frees have completed"
    );
    Ok(())
}

/// A changed threshold takes effect at the next wait.
fn threshold_can_be_changed(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let blocks = some(&queue, kind, &pool, 8)?;
    free_all(&queue, blocks)?;
    queue.finish()?;
    let before = pool.reserved()?;
    pool.set(UR_USM_POOL_INFO_RELEASE_THRESHOLD_EXP, 0).ok()?;
    check_eq!(
        pool.reserved()?,
        before,
        "reserved bytes after the threshold alone was changed"
    );
    queue.finish()?;
    check_eq!(
        pool.reserved()?,
        0,
        "reserved bytes after the next urQueueFinish"
    );
    pool.set(UR_USM_POOL_INFO_RELEASE_THRESHOLD_EXP, usize::MAX)
        .ok()?;
    let blocks = some(&queue, kind, &pool, 2)?;
    let before = pool.reserved()?;
    free_all(&queue, blocks)?;
    queue.finish()?;
    check_eq!(
        pool.reserved()?,
        before,
        "reserved bytes with an unlimited threshold"
    );
    Ok(())
}

/// A trim to 0 bytes releases all free memory.
fn trim_releases(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let blocks = some(&queue, kind, &pool, 8)?;
    free_all(&queue, blocks)?;
    queue.finish()?;
    pool.trim(usize::MAX)?;
    check!(
        pool.reserved()? >= 8 * BLOCK,
        "a trim to more than the reserved bytes released memory"
    );
    pool.trim(0)?;
    check_eq!(pool.reserved()?, 0, "reserved bytes after a trim to 0");
    pool.trim(0)?;
    setup.exercise(&queue, kind, &pool, BLOCK)?;
    queue.finish()
}

/// A trim keeps at least the requested bytes and releases some of the rest.
fn trim_keeps_the_requested_bytes(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let blocks = some(&queue, kind, &pool, 16)?;
    free_all(&queue, blocks)?;
    queue.finish()?;
    let before = pool.reserved()?;
    let keep_bytes = 5 * BLOCK;
    pool.trim(keep_bytes)?;
    let after = pool.reserved()?;
    check!(
        after < before,
        "a trim from {before} to {keep_bytes} bytes released nothing"
    );
    // No less than requested, and no more than the last piece that could not be split.
    check!(
        (keep_bytes..before).contains(&after),
        "{after} bytes are reserved after a trim from {before} to {keep_bytes}"
    );
    Ok(())
}

/// A trim releases no live block.
fn trim_keeps_live_blocks(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let mut blocks = some(&queue, kind, &pool, 8)?;
    let saved = blocks.swap_remove(2);
    queue.fill(saved.ptr, B, saved.size, &[])?;
    free_all(&queue, blocks)?;
    queue.finish()?;
    pool.trim(0)?;
    check!(
        pool.reserved()? >= pool.used()?,
        "more bytes are used than reserved"
    );
    all_bytes(&queue, saved, B)?;
    queue.free(saved, &[])?;
    queue.finish()
}

/// A trim neither releases a block whose free is pending nor waits for it.
fn trim_keeps_pending_frees(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let pending_free = PendingFree::new(setup, &queue, queue.alloc(kind, &pool, BLOCK, &[])?)?;
    pool.trim(0)?;
    check!(!pending_free.gate.is_open(), "a trim waited for a queue");
    check!(
        pool.reserved()? >= BLOCK,
        "a trim released a block whose free is pending"
    );
    pending_free.open_and_check(&queue)?;
    pool.trim(0)?;
    check_eq!(
        pool.reserved()?,
        0,
        "reserved bytes after a trim when all frees have completed"
    );
    Ok(())
}

/// A pool that has released all memory serves new blocks.
fn reserves_again_after_release(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, with_threshold(setup, 0)?);
    for round in 0..20 {
        let block = queue.alloc(kind, &pool, BLOCK + round * 4096, &[])?;
        queue.fill(block.ptr, round as u8, block.size, &[])?;
        all_bytes(&queue, block, round as u8)?;
        queue.free(block, &[])?;
        queue.finish()?;
        check_eq!(pool.reserved()?, 0, "reserved bytes after round {round}");
    }
    Ok(())
}

/// A pool reports its release threshold.
fn threshold_is_reported(setup: &Setup) -> Done {
    for threshold in [0, 1, 12_345, 64 * MIB] {
        let pool = with_threshold(setup, threshold)?;
        check_eq!(
            pool.statistic(UR_USM_POOL_INFO_RELEASE_THRESHOLD_EXP)?,
            threshold,
            "threshold of a new pool"
        );
        pool.set(UR_USM_POOL_INFO_RELEASE_THRESHOLD_EXP, threshold + 7)
            .ok()?;
        check_eq!(
            pool.statistic(UR_USM_POOL_INFO_RELEASE_THRESHOLD_EXP)?,
            threshold + 7,
            "threshold after a change"
        );
    }
    Ok(())
}

/// A wait on any queue releases completed free memory above the threshold.
fn finish_of_another_queue_releases(setup: &Setup) -> Done {
    let (first, second, pool) = (
        setup.in_order()?,
        setup.in_order()?,
        with_threshold(setup, 0)?,
    );
    let blocks = some(&first, Kind::Device, &pool, 4)?;
    free_all(&first, blocks)?;
    let done = first.marker(&[])?;
    completes(&done, "a queue does not complete by itself")?;
    second.finish()?;
    first.finish()?;
    check_eq!(
        pool.reserved()?,
        0,
        "reserved bytes after both queues were waited for"
    );
    Ok(())
}

//! Pools: default, current and created ones, their flags and their destruction.

use super::fixtures::{A, B, PendingFree};
use super::*;
use crate::check_eq;
use crate::objects::{Limits, alloc_info};
use crate::suites::partition;

const SUITE: &str = "async_pools";

pub fn all() -> Vec<Test> {
    let mut tests = by_kind(
        SUITE,
        &[
            ("zero_initialised", zero_initialised),
            ("flags", flags),
            ("destroyed_while_blocks_live", destroyed_while_blocks_live),
            (
                "destroyed_while_work_is_pending",
                destroyed_while_work_is_pending,
            ),
            ("created_by_the_core_function", created_by_the_core_function),
        ],
    );
    tests.extend(plain(
        SUITE,
        &[
            ("default_is_stable", default_is_stable),
            (
                "default_belongs_to_its_context",
                default_belongs_to_its_context,
            ),
            ("default_cannot_be_destroyed", default_cannot_be_destroyed),
            ("current_can_be_set", current_can_be_set),
            ("current_is_kept_alive", current_is_kept_alive),
            ("counts_references", counts_references),
            ("create_refused", create_refused),
            ("many_pools", many_pools),
            (
                "each_device_has_its_own_default",
                each_device_has_its_own_default,
            ),
            ("pool_outlives_its_context", pool_outlives_its_context),
        ],
    ));
    tests
}

/// The default pool of a device is one handle, and the current pool at first.
fn default_is_stable(setup: &Setup) -> Done {
    let first = setup.default_pool()?;
    check_eq!(
        setup.default_pool()?.raw,
        first.raw,
        "default pool, second query"
    );
    check_eq!(
        Pool::current_of(setup.fixture, &setup.context)?.raw,
        first.raw,
        "current pool at first"
    );
    let queue = setup.in_order()?;
    setup.exercise(&queue, Kind::Device, &first, MIB)?;
    queue.finish()?;
    check_eq!(
        setup.default_pool()?.raw,
        first.raw,
        "default pool, query after its use"
    );
    Ok(())
}

/// Each context has a default pool of its own.
fn default_belongs_to_its_context(setup: &Setup) -> Done {
    let other = Setup::new(setup.fixture)?;
    let (mine, theirs) = (setup.default_pool()?, other.default_pool()?);
    check!(mine.raw != theirs.raw, "two contexts share a default pool");
    let of: ur_context_handle_t = crate::objects::info::value(|size, value, ret| {
        setup
            .fixture
            .ur
            .urUSMPoolGetInfo(mine.raw, UR_USM_POOL_INFO_CONTEXT, size, value, ret)
    })?;
    check_eq!(of, setup.context.raw, "context of the default pool");
    Ok(())
}

/// The default pool cannot be destroyed.
fn default_cannot_be_destroyed(setup: &Setup) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.default_pool()?);
    let ur = setup.fixture.ur;
    ur.urUSMPoolDestroyExp(setup.context.raw, setup.fixture.device, pool.raw)
        .refused()?;
    check_eq!(
        setup.default_pool()?.raw,
        pool.raw,
        "default pool after an attempt to destroy it"
    );
    setup.exercise(&queue, Kind::Device, &pool, 4096)?;
    queue.finish()
}

fn make_current(setup: &Setup, pool: &Pool) -> Done {
    setup
        .fixture
        .ur
        .urUSMPoolSetDevicePoolExp(setup.context.raw, setup.fixture.device, pool.raw)
        .ok()
}

/// Allocations with a null pool use the current pool, and frees return to the old one.
fn current_can_be_set(setup: &Setup) -> Done {
    let (queue, pool, default) = (setup.in_order()?, setup.pool()?, setup.default_pool()?);
    let early = queue.alloc_current(Kind::Device, MIB)?;
    make_current(setup, &pool)?;
    check_eq!(
        Pool::current_of(setup.fixture, &setup.context)?.raw,
        pool.raw,
        "current pool after a change"
    );
    check_eq!(
        setup.default_pool()?.raw,
        default.raw,
        "default pool after a change of the current one"
    );
    for kind in Kind::ALL {
        let before = pool.used()?;
        let block = queue.alloc_current(kind, MIB)?;
        check!(
            pool.used()? > before,
            "an allocation with a null pool did not use the current one"
        );
        let of: ur_usm_pool_handle_t =
            alloc_info(&setup.context, block.ptr, UR_USM_ALLOC_INFO_POOL)?;
        check_eq!(of, pool.raw, "pool of an allocation with a null pool");
        queue.free(block, &[])?;
    }
    // A block returns to the pool that it came from.
    let before = default.used()?;
    queue.free(early, &[])?;
    check!(
        default.used()? < before,
        "a block of the default pool did not return to it"
    );
    make_current(setup, &default)?;
    check_eq!(
        Pool::current_of(setup.fixture, &setup.context)?.raw,
        default.raw,
        "current pool after its restoration"
    );
    queue.finish()
}

/// A context keeps its current pool alive when the caller has released it.
fn current_is_kept_alive(setup: &Setup) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    make_current(setup, &pool)?;
    let raw = pool.raw;
    drop(pool);
    let current = Pool::current_of(setup.fixture, &setup.context)?;
    check_eq!(current.raw, raw, "current pool after its release");
    for _ in 0..10 {
        let block = queue.alloc_current(Kind::Device, MIB)?;
        queue.fill(block.ptr, A, MIB, &[])?;
        queue.free(block, &[])?;
    }
    queue.finish()?;
    check_eq!(current.used()?, 0, "used bytes");
    make_current(setup, &setup.default_pool()?)
}

/// A zero-initialised pool gives memory of zeros when it first comes from the system.
fn zero_initialised(setup: &Setup, kind: Kind) -> Done {
    let queue = setup.in_order()?;
    // Leaves memory with other data for the system to hand out.
    let dirty = Pool::with_limits(
        setup.fixture,
        &setup.context,
        Limits {
            maximum: 0,
            threshold: 0,
        },
    )?;
    let block = queue.alloc(kind, &dirty, 8 * MIB, &[])?;
    queue.fill(block.ptr, 0xff_u8, 8 * MIB, &[])?;
    queue.free(block, &[])?;
    queue.finish()?;
    let pool = Pool::with_flags(
        setup.fixture,
        &setup.context,
        UR_USM_POOL_FLAG_ZERO_INITIALIZE_BLOCK,
    )?;
    let mut blocks = Vec::new();
    for size in [1, 1000, 64 * KIB, MIB, 6 * MIB] {
        let block = queue.alloc(kind, &pool, size, &[])?;
        all_bytes(&queue, block, 0)?;
        queue.fill(block.ptr, 0xee_u8, size, &[])?;
        blocks.push(block);
    }
    blocks
        .into_iter()
        .try_for_each(|block| queue.free(block, &[]))?;
    queue.finish()
}

/// A pool can be made with each flag, alone and together.
fn flags(setup: &Setup, kind: Kind) -> Done {
    let queue = setup.in_order()?;
    let (zero, native, read_only) = (
        UR_USM_POOL_FLAG_ZERO_INITIALIZE_BLOCK,
        UR_USM_POOL_FLAG_USE_NATIVE_MEMORY_POOL_EXP,
        UR_USM_POOL_FLAG_READ_ONLY_EXP,
    );
    for flags in [
        native,
        read_only,
        native | read_only,
        native | zero,
        zero | native | read_only,
    ] {
        let pool = Pool::with_flags(setup.fixture, &setup.context, flags)?;
        setup.exercise(&queue, kind, &pool, 100_000)?;
    }
    // DPC++ makes every pool with this flag and with limits.
    let limits = ur_usm_pool_limits_desc_t {
        maxPoolableSize: 16 * MIB,
        minDriverAllocSize: MIB,
        ..Default::default()
    };
    let mut desc = ur_usm_pool_desc_t {
        pNext: (&raw const limits).cast(),
        flags: native,
        ..Default::default()
    };
    let pool = Pool::create(setup.fixture, &setup.context, &mut desc)?;
    setup.exercise(&queue, kind, &pool, 100_000)?;
    queue.finish()
}

/// Live blocks work after their pool was destroyed.
fn destroyed_while_blocks_live(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let block = queue.alloc(kind, &pool, MIB, &[])?;
    queue.fill(block.ptr, A, MIB, &[])?;
    drop(pool);
    all_bytes(&queue, block, A)?;
    let base: *mut std::ffi::c_void =
        alloc_info(&setup.context, block.ptr, UR_USM_ALLOC_INFO_BASE_PTR)?;
    check_eq!(base, block.ptr, "base of a block whose pool was destroyed");
    queue.free(block, &[])?;
    queue.finish()?;
    setup.exercise(&queue, kind, &setup.pool()?, MIB)?;
    queue.finish()
}

/// Destroying a pool neither blocks nor disturbs pending work.
fn destroyed_while_work_is_pending(setup: &Setup, kind: Kind) -> Done {
    let (queue, pool) = (setup.in_order()?, setup.pool()?);
    let pending_free = PendingFree::new(setup, &queue, queue.alloc(kind, &pool, MIB, &[])?)?;
    drop(pool);
    check!(
        !pending_free.gate.is_open(),
        "destroying a pool waited for pending work"
    );
    let other = setup.pool()?;
    let second = setup.in_order()?;
    let block = second.alloc(kind, &other, MIB, &[])?;
    second
        .fill(block.ptr, B, MIB, &[])?
        .completes_within(MOMENT)?;
    pending_free.open_and_check(&queue)?;
    second.free(block, &[])?;
    second.finish()
}

/// A pool of `urUSMPoolCreate` serves asynchronous allocations too.
fn created_by_the_core_function(setup: &Setup, kind: Kind) -> Done {
    let (queue, ur) = (setup.in_order()?, setup.fixture.ur);
    let mut desc = ur_usm_pool_desc_t::default();
    let mut raw = null_mut();
    ur.urUSMPoolCreate(setup.context.raw, &mut desc, &mut raw)
        .ok()?;
    let (status, block) = queue.try_alloc(kind, raw, 100_000, &[], null_mut());
    status.ok()?;
    let block = block?;
    queue.fill(block.ptr, A, block.size, &[])?;
    all_bytes(&queue, block, A)?;
    queue.free(block, &[])?;
    queue.finish()?;
    ur.urUSMPoolRelease(raw).ok()
}

/// A retain and a release of a pool change its reference count by one.
fn counts_references(setup: &Setup) -> Done {
    let pool = setup.pool()?;
    let ur = setup.fixture.ur;
    let references = || {
        crate::objects::info::value::<u32>(|size, value, ret| {
            ur.urUSMPoolGetInfo(pool.raw, UR_USM_POOL_INFO_REFERENCE_COUNT, size, value, ret)
        })
    };
    check_eq!(references()?, 1, "references of a new pool");
    ur.urUSMPoolRetain(pool.raw).ok()?;
    check_eq!(references()?, 2, "references after a retain");
    ur.urUSMPoolRelease(pool.raw).ok()?;
    check_eq!(references()?, 1, "references after a release");
    ur.urUSMPoolRetain(pool.raw).ok()?;
    ur.urUSMPoolDestroyExp(setup.context.raw, setup.fixture.device, pool.raw)
        .ok()?;
    check_eq!(references()?, 1, "references after one of two was given up");
    Ok(())
}

/// Undefined pool flags are refused.
fn create_refused(setup: &Setup) -> Done {
    let ur = setup.fixture.ur;
    let mut raw = null_mut();
    let mut desc = ur_usm_pool_desc_t {
        flags: ur_usm_pool_flags_t(UR_USM_POOL_FLAGS_MASK),
        ..Default::default()
    };
    let status =
        ur.urUSMPoolCreateExp(setup.context.raw, setup.fixture.device, &mut desc, &mut raw);
    status.fails(UR_RESULT_ERROR_INVALID_ENUMERATION)?;
    check!(raw.is_null(), "a refused urUSMPoolCreateExp wrote a handle");
    Ok(())
}

/// Blocks of forty pools keep their data and can be freed in any order.
fn many_pools(setup: &Setup) -> Done {
    let queue = setup.in_order()?;
    let pools = (0..40)
        .map(|_| setup.pool())
        .collect::<Result<Vec<Pool>, Stop>>()?;
    let mut blocks = Vec::new();
    for (index, pool) in pools.iter().enumerate() {
        let block = queue.alloc(Kind::Device, pool, 4096, &[])?;
        queue.fill(block.ptr, index as u8, 4096, &[])?;
        blocks.push(block);
    }
    // Destroys the pools while their blocks are live.
    drop(pools);
    for (index, block) in blocks.into_iter().enumerate().rev() {
        all_bytes(&queue, block, index as u8)?;
        queue.free(block, &[])?;
    }
    queue.finish()
}

/// A pool works and reports its context after the context was released.
fn pool_outlives_its_context(setup: &Setup) -> Done {
    let other = Setup::new(setup.fixture)?;
    let (queue, pool) = (other.in_order()?, other.pool()?);
    drop(other.context);
    let block = queue.alloc(Kind::Device, &pool, MIB, &[])?;
    queue.fill(block.ptr, A, MIB, &[])?;
    queue.free(block, &[])?;
    queue.finish()?;
    // The reported context may be used without a reference: destroying a pool takes its context.
    let reported: ur_context_handle_t = crate::objects::info::value(|size, value, ret| {
        let ur = setup.fixture.ur;
        ur.urUSMPoolGetInfo(pool.raw, UR_USM_POOL_INFO_CONTEXT, size, value, ret)
    })?;
    check!(!reported.is_null(), "the context of a pool is null");
    Ok(())
}

/// Each sub-device of a context has a default pool of its own.
fn each_device_has_its_own_default(setup: &Setup) -> Done {
    let (fixture, ur) = (setup.fixture, setup.fixture.ur);
    let parts = partition::in_single_units(fixture)?;
    if parts.len() < 2 {
        return Err(Stop::skipped("one compute unit cannot be split"));
    }
    let mut raw = null_mut();
    ur.urContextCreate(2, parts.as_ptr(), null(), &mut raw)
        .ok()?;
    let context = Context::adopt(ur, raw);
    let default = |device| {
        let mut pool = null_mut();
        ur.urUSMPoolGetDefaultDevicePoolExp(context.raw, device, &mut pool)
            .ok()?;
        Ok::<_, Stop>(pool)
    };
    let pools = [default(parts[0])?, default(parts[1])?];
    check!(pools[0] != pools[1], "two devices share a default pool");
    for index in 0..2 {
        let queue = Queue::new(&context, parts[index], ur_queue_flags_t(0))?;
        let block = queue.alloc_current(Kind::Device, 4096)?;
        let of: ur_usm_pool_handle_t = alloc_info(&context, block.ptr, UR_USM_ALLOC_INFO_POOL)?;
        check_eq!(
            of,
            pools[index],
            "pool of an allocation on sub-device {index}"
        );
        let device: ur_device_handle_t = alloc_info(&context, block.ptr, UR_USM_ALLOC_INFO_DEVICE)?;
        check_eq!(
            device,
            parts[index],
            "device of an allocation on sub-device {index}"
        );
        queue.free(block, &[])?;
        queue.finish()?;
    }
    parts
        .into_iter()
        .try_for_each(|part| ur.urDeviceRelease(part).ok())
}

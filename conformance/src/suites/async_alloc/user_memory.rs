//! Pools on the caller's own memory.

use super::errors::OUT_OF_MEMORY;
use super::fixtures::A;
use super::*;
use crate::check_eq;

const SUITE: &str = "async_pools";

pub fn all() -> Vec<Test> {
    let mut tests = by_kind(
        SUITE,
        &[
            ("on_user_memory", on_user_memory),
            (
                "on_user_memory_serves_one_kind",
                on_user_memory_serves_one_kind,
            ),
        ],
    );
    tests.extend(plain(
        SUITE,
        &[("on_user_memory_refused", on_user_memory_refused)],
    ));
    tests
}

/// A pool on the caller's own memory.
fn own(setup: &Setup, kind: Kind, base: &Usm) -> Result<Pool, Stop> {
    let device = if kind == Kind::Host {
        null_mut()
    } else {
        setup.fixture.device
    };
    let buffer = ur_usm_pool_buffer_desc_t {
        pMem: base.ptr,
        size: base.size,
        memType: kind.usm_type(),
        device,
        ..Default::default()
    };
    let mut desc = ur_usm_pool_desc_t {
        pNext: (&raw const buffer).cast(),
        ..Default::default()
    };
    Pool::create(setup.fixture, &setup.context, &mut desc)
}

/// A pool on the caller's memory serves blocks inside of it and gives it back.
fn on_user_memory(setup: &Setup, kind: Kind) -> Done {
    let queue = setup.in_order()?;
    let base = setup.context.usm(setup.fixture, kind, 8 * MIB)?;
    let whole = Block {
        ptr: base.ptr,
        size: base.size,
    };
    let pool = own(setup, kind, &base)?;
    check!(
        pool.reserved()? <= 8 * MIB,
        "a pool on 8 MiB has reserved {}",
        pool.reserved()?
    );
    for round in 0..3 {
        let mut blocks: Vec<Block> = Vec::new();
        loop {
            let (status, block) = queue.try_alloc(kind, pool.raw, MIB, &[], null_mut());
            let Ok(block) = block else {
                status.fails_with(&OUT_OF_MEMORY)?;
                break;
            };
            let inside = block.ptr >= whole.ptr
                && block.ptr.addr() + block.size <= whole.ptr.addr() + whole.size;
            check!(inside, "a block lies outside the caller's memory");
            check!(
                blocks.iter().all(|other| !other.overlaps(&block)),
                "two live blocks overlap"
            );
            queue.fill(block.ptr, blocks.len() as u8, MIB, &[])?;
            blocks.push(block);
        }
        check!(
            blocks.len() >= 7,
            "{} blocks of 1 MiB fitted in 8 MiB in round {round}, expected at least 7",
            blocks.len()
        );
        for (index, block) in blocks.into_iter().enumerate() {
            all_bytes(&queue, block, index as u8)?;
            queue.free(block, &[])?;
        }
    }
    queue.finish()?;
    check_eq!(pool.used()?, 0, "used bytes");
    drop(pool);
    // The memory is the caller's again.
    queue.fill(base.ptr, A, base.size, &[])?;
    all_bytes(&queue, whole, A)
}

/// A pool on the caller's memory refuses the other kinds.
fn on_user_memory_serves_one_kind(setup: &Setup, kind: Kind) -> Done {
    let queue = setup.in_order()?;
    let base = setup.context.usm(setup.fixture, kind, MIB)?;
    let pool = own(setup, kind, &base)?;
    for other in Kind::ALL {
        let (status, block) = queue.try_alloc(other, pool.raw, 4096, &[], null_mut());
        match block {
            Ok(block) if other == kind => queue.free(block, &[])?,
            _ if other == kind => status.ok()?,
            _ => status.refused()?,
        }
    }
    queue.finish()
}

/// A pool on memory with a wrong size, kind or pointer is refused.
fn on_user_memory_refused(setup: &Setup) -> Done {
    let base = setup.context.usm(setup.fixture, Kind::Device, MIB)?;
    let good = ur_usm_pool_buffer_desc_t {
        pMem: base.ptr,
        size: base.size,
        memType: UR_USM_TYPE_DEVICE,
        device: setup.fixture.device,
        ..Default::default()
    };
    type Buffer = ur_usm_pool_buffer_desc_t;
    let cases = [
        (
            "no memory",
            Buffer {
                pMem: null_mut(),
                ..good
            },
        ),
        ("no size", Buffer { size: 0, ..good }),
        (
            "more than there is",
            Buffer {
                size: 64 * MIB,
                ..good
            },
        ),
        (
            "an unknown kind",
            Buffer {
                memType: UR_USM_TYPE_UNKNOWN,
                ..good
            },
        ),
        (
            "another kind",
            Buffer {
                memType: UR_USM_TYPE_HOST,
                ..good
            },
        ),
        (
            "a kind that does not exist",
            Buffer {
                memType: ur_usm_type_t(99),
                ..good
            },
        ),
    ];
    for (what, buffer) in cases {
        let mut desc = ur_usm_pool_desc_t {
            pNext: (&raw const buffer).cast(),
            ..Default::default()
        };
        let mut raw = null_mut();
        let ur = setup.fixture.ur;
        let status =
            ur.urUSMPoolCreateExp(setup.context.raw, setup.fixture.device, &mut desc, &mut raw);
        check!(
            !status.is_ok() && raw.is_null(),
            "a pool on {what} was not refused: {status}"
        );
    }
    Ok(())
}

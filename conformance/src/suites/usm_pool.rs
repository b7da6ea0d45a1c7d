//! Pools of synchronous allocations.

use crate::fixture::Fixture;
use crate::objects::{Context, Kind, Usm, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_eq};
use std::ptr::null_mut;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests!["usm_pool"; counts_references, undefined_flags_refused, allocation_outlives_its_pool];
    for kind in Kind::ALL {
        tests.push(Test::new(
            "usm_pool",
            format!("{kind}_allocation"),
            move |fixture| {
                kind.need(fixture)?;
                allocation(fixture, kind)
            },
        ));
    }
    let pool = |fixture: &Fixture| SyncPool::new(fixture, &Context::new(fixture)?);
    tests.extend(info::tests(
        "usm_pool",
        "info_",
        ur_usm_pool_info_t::PROPERTIES,
        pool,
        |f, pool, name, size, value, ret| {
            f.ur.urUSMPoolGetInfo(pool.raw, ur_usm_pool_info_t(name), size, value, ret)
        },
    ));
    tests
}

/// A pool for synchronous allocations.
struct SyncPool {
    ur: &'static crate::api::Api,
    raw: ur_usm_pool_handle_t,
}

impl SyncPool {
    fn new(fixture: &Fixture, context: &Context) -> Result<Self, Stop> {
        let mut desc = ur_usm_pool_desc_t::default();
        let mut raw = null_mut();
        let ur = fixture.ur;
        fixture.require(UR_DEVICE_INFO_USM_POOL_SUPPORT, || {
            ur.urUSMPoolCreate(context.raw, &mut desc, &mut raw)
        })?;
        ur.urUSMPoolCreate(context.raw, &mut desc, &mut raw).ok()?;
        Ok(Self { ur, raw })
    }
}

impl Drop for SyncPool {
    fn drop(&mut self) {
        let _ = self.ur.urUSMPoolRelease(self.raw);
    }
}

/// An allocation from a pool holds data and reports its pool.
fn allocation(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    let pool = SyncPool::new(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    let memory = Usm::new(&context, fixture.device, kind, 10_000, 0, pool.raw)?;
    let of: ur_usm_pool_handle_t =
        crate::objects::alloc_info(&context, memory.ptr, UR_USM_ALLOC_INFO_POOL)?;
    check_eq!(of, pool.raw, "pool of an allocation");
    queue.write(memory.ptr, &[7_u8; 10_000])?;
    check!(
        queue.read::<u8>(memory.ptr, 10_000, &[])? == [7_u8; 10_000],
        "bytes of a pool's memory are wrong"
    );
    Ok(())
}

/// A retain and a release of a pool change its reference count by one.
fn counts_references(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let pool = SyncPool::new(fixture, &context)?;
    let references = || {
        info::value::<u32>(|size, value, ret| {
            fixture.ur.urUSMPoolGetInfo(
                pool.raw,
                UR_USM_POOL_INFO_REFERENCE_COUNT,
                size,
                value,
                ret,
            )
        })
    };
    check_eq!(references()?, 1, "references of a new pool");
    fixture.ur.urUSMPoolRetain(pool.raw).ok()?;
    check_eq!(references()?, 2, "references after a retain");
    fixture.ur.urUSMPoolRelease(pool.raw).ok()?;
    check_eq!(references()?, 1, "references after a release");
    let of: ur_context_handle_t = info::value(|size, value, ret| {
        fixture
            .ur
            .urUSMPoolGetInfo(pool.raw, UR_USM_POOL_INFO_CONTEXT, size, value, ret)
    })?;
    check_eq!(of, context.raw, "context of the pool");
    Ok(())
}

/// Undefined pool flags are refused.
fn undefined_flags_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    drop(SyncPool::new(fixture, &context)?);
    let mut desc = ur_usm_pool_desc_t {
        flags: ur_usm_pool_flags_t(UR_USM_POOL_FLAGS_MASK),
        ..Default::default()
    };
    let mut raw = null_mut();
    fixture
        .ur
        .urUSMPoolCreate(context.raw, &mut desc, &mut raw)
        .fails(UR_RESULT_ERROR_INVALID_ENUMERATION)?;
    check!(raw.is_null(), "a refused urUSMPoolCreate wrote a handle");
    Ok(())
}

/// An allocation works after its pool was released.
fn allocation_outlives_its_pool(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let pool = SyncPool::new(fixture, &context)?;
    let memory = Usm::new(&context, fixture.device, Kind::Device, 4096, 0, pool.raw)?;
    drop(pool);
    queue.write(memory.ptr, &[9_u8; 4096])?;
    check!(
        queue.read::<u8>(memory.ptr, 4096, &[])? == [9_u8; 4096],
        "bytes of a released pool's memory are wrong"
    );
    Ok(())
}

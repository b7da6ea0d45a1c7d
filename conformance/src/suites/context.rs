//! Contexts.

use crate::fixture::Fixture;
use crate::objects::{Context, Kind, info};
use crate::outcome::Done;
use crate::registry::Test;
use crate::{check, check_eq};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests!["context";
        create, create_refused, counts_references, devices, objects_keep_their_context, extended_deleter,
        native_handle,
    ];
    tests.extend(info::tests(
        "context",
        "info_",
        ur_context_info_t::PROPERTIES,
        Context::new,
        |f, context, name, size, value, ret| {
            f.ur.urContextGetInfo(context.raw, ur_context_info_t(name), size, value, ret)
        },
    ));
    tests
}

/// A context can be created with and without properties, each with a handle of its own.
fn create(fixture: &Fixture) -> Done {
    let properties = ur_context_properties_t::default();
    let mut raw = null_mut();
    fixture
        .ur
        .urContextCreate(1, &fixture.device, &properties, &mut raw)
        .ok()?;
    check!(!raw.is_null(), "urContextCreate gave no context");
    drop(Context::adopt(fixture.ur, raw));
    let other = Context::new(fixture)?;
    let third = Context::new(fixture)?;
    check!(other.raw != third.raw, "two contexts with one handle");
    Ok(())
}

/// `urContextCreate` refuses undefined flags, no devices and a null device.
fn create_refused(fixture: &Fixture) -> Done {
    let mut raw = null_mut();
    let undefined = ur_context_properties_t {
        flags: ur_context_flags_t(UR_CONTEXT_FLAGS_MASK),
        ..Default::default()
    };
    fixture
        .ur
        .urContextCreate(1, &fixture.device, &undefined, &mut raw)
        .fails(UR_RESULT_ERROR_INVALID_ENUMERATION)?;
    fixture
        .ur
        .urContextCreate(0, &fixture.device, null(), &mut raw)
        .fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    let holes = [fixture.device, null_mut()];
    fixture
        .ur
        .urContextCreate(2, holes.as_ptr(), null(), &mut raw)
        .fails(UR_RESULT_ERROR_INVALID_NULL_HANDLE)?;
    check!(raw.is_null(), "a refused urContextCreate wrote a handle");
    Ok(())
}

fn references(context: &Context) -> Result<u32, crate::outcome::Stop> {
    let property = UR_CONTEXT_INFO_REFERENCE_COUNT;
    info::value(|size, value, ret| {
        context
            .ur
            .urContextGetInfo(context.raw, property, size, value, ret)
    })
}

/// A retain and a release of a context change its reference count by one.
fn counts_references(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    check_eq!(references(&context)?, 1, "references of a new context");
    let second = context.share()?;
    check_eq!(references(&context)?, 2, "references after a retain");
    drop(second);
    check_eq!(references(&context)?, 1, "references after a release");
    Ok(())
}

/// A context lists its devices.
fn devices(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let list = info::list::<usize>(|size, value, ret| {
        fixture
            .ur
            .urContextGetInfo(context.raw, UR_CONTEXT_INFO_DEVICES, size, value, ret)
    })?;
    check_eq!(list, [fixture.device.addr()], "devices of the context");
    Ok(())
}

/// A queue keeps its released context alive.
fn objects_keep_their_context(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let memory = context.usm(fixture, Kind::Host, 64)?;
    let queue = context.in_order(fixture)?;
    let pointer = memory.into_raw();
    fixture.ur.urUSMFree(context.raw, pointer).ok()?;
    let raw = context.raw;
    drop(context);
    let of_queue: ur_context_handle_t = queue.get(UR_QUEUE_INFO_CONTEXT)?;
    check_eq!(
        of_queue,
        raw,
        "context of a queue whose context was released"
    );
    queue.marker(&[])?.wait()
}

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: `extended_deleter` passes a static counter.
    unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
}

static DELETED: AtomicU32 = AtomicU32::new(0);

/// Every extended deleter runs once, when the last reference to the context is released.
fn extended_deleter(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    DELETED.store(0, Ordering::Relaxed);
    let data: *mut c_void = (&raw const DELETED).cast_mut().cast();
    fixture
        .ur
        .urContextSetExtendedDeleter(context.raw, Some(count), data)
        .ok()?;
    fixture
        .ur
        .urContextSetExtendedDeleter(context.raw, Some(count), data)
        .ok()?;
    let second = context.share()?;
    drop(context);
    check_eq!(
        DELETED.load(Ordering::Relaxed),
        0,
        "deleters run while a reference is left"
    );
    drop(second);
    check_eq!(
        DELETED.load(Ordering::Relaxed),
        2,
        "deleters run at the end of the context"
    );
    Ok(())
}

/// A context can be made from the native handle of another one.
fn native_handle(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let mut native = 0;
    let status = fixture
        .ur
        .urContextGetNativeHandle(context.raw, &mut native);
    if status.is_unsupported() {
        return Ok(());
    }
    status.ok()?;
    let mut raw = null_mut();
    let made = fixture.ur.urContextCreateWithNativeHandle(
        native,
        fixture.adapter,
        1,
        &fixture.device,
        null(),
        &mut raw,
    );
    if made.is_unsupported() {
        return Ok(());
    }
    made.ok()?;
    drop(Context::adopt(fixture.ur, raw));
    Ok(())
}

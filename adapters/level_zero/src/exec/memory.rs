//! Memory from the driver: device, host and shared.

use std::ffi::c_void;
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Object, Result, ensure};
use ur::stream::{Kind, Work};

use super::list::List;
use super::residency;
use crate::LevelZero;
use crate::context::NativeContext;
use crate::device::Device;
use crate::lz::*;
use crate::settings::Settings;

/// The driver's extension for allocations above the device's limit.
const RELAXED: &str = "ZE_experimental_relaxed_allocation_limits";

/// Whether allocations may exceed the device's limit, for which kernels then are built: the user asked for it, and the
/// driver can. Kernels reach large buffers more slowly.
pub fn is_relaxed(device: &Device) -> bool {
    Settings::get().relaxed_limits && device.platform().has_extension(RELAXED)
}

/// The largest allocation of a device.
pub fn max_slab(device: &Device) -> usize {
    let facts = &device.facts;
    match is_relaxed(device) {
        true => facts.memory_bytes().max(facts.base.maxMemAllocSize) as usize,
        false => facts.base.maxMemAllocSize as usize,
    }
}

/// Allocates memory of a kind. `device` is that of device and shared memory.
pub fn alloc(
    context: &NativeContext,
    device: &Object<Device>,
    kind: Kind,
    bytes: usize,
    align: usize,
) -> Result<usize> {
    ensure(bytes > 0, UR_RESULT_ERROR_INVALID_SIZE)?;
    let api = context.api;
    let mut relaxed = ze_relaxed_allocation_limits_exp_desc_t {
        flags: ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE,
        ..Default::default()
    };
    // The driver refuses the structure with a size that needs none.
    let chain: *const c_void = match bytes as u64 > device.facts.base.maxMemAllocSize {
        true if device.platform().has_extension(RELAXED) => std::ptr::from_mut(&mut relaxed).cast(),
        _ => std::ptr::null(),
    };
    let on_device = ze_device_mem_alloc_desc_t::chained(chain.cast_mut());
    let on_host = ze_host_mem_alloc_desc_t::chained(match kind {
        Kind::Host => chain.cast_mut(),
        Kind::Device | Kind::Shared => std::ptr::null_mut(),
    });
    let mut start = std::ptr::null_mut();
    // SAFETY: the descriptions have their tags, their chain lasts for the call, and there is room for the address.
    let (code, name) = unsafe {
        match kind {
            Kind::Host => (
                (api.zeMemAllocHost)(context.raw, &on_host, bytes, align, &mut start),
                "zeMemAllocHost",
            ),
            Kind::Device => (
                (api.zeMemAllocDevice)(
                    context.raw,
                    &on_device,
                    bytes,
                    align,
                    device.raw(),
                    &mut start,
                ),
                "zeMemAllocDevice",
            ),
            Kind::Shared => (
                (api.zeMemAllocShared)(
                    context.raw,
                    &on_device,
                    &on_host,
                    bytes,
                    align,
                    device.raw(),
                    &mut start,
                ),
                "zeMemAllocShared",
            ),
        }
    };
    check(code, name).map_err(|error| exhausted(error, kind))?;
    let start = start.expose_provenance();
    if kind == Kind::Device {
        residency::add(context, device, start, bytes).inspect_err(|_| free(context, start))?;
    }
    Ok(start)
}

/// A size beyond the limit is a lack of memory to the caller.
fn exhausted(error: Error, kind: Kind) -> Error {
    match error.code() {
        UR_RESULT_ERROR_UNSUPPORTED_SIZE if kind == Kind::Host => {
            Error::new(UR_RESULT_ERROR_OUT_OF_HOST_MEMORY)
        }
        UR_RESULT_ERROR_UNSUPPORTED_SIZE => Error::new(UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY),
        _ => error,
    }
}

/// Frees memory. All use of it was seen complete: the driver does not wait.
pub fn free(context: &NativeContext, start: usize) {
    if context.api.is_torn_down() {
        return;
    }
    residency::remove(context, start);
    let start = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: memory of [`alloc`] in this context, freed once.
    let freed = unsafe { call!(context.api, zeMemFree(context.raw, start)) };
    if let Err(error) = freed {
        log::error!("memory is not freed: {:?}", error.code());
    }
}

/// Writes zeros to new memory, and waits for that.
pub fn zero(
    context: &Arc<NativeContext>,
    device: &Object<Device>,
    kind: Kind,
    start: usize,
    bytes: usize,
) -> Result<()> {
    if kind == Kind::Host {
        let start = std::ptr::with_exposed_provenance_mut::<u8>(start);
        // SAFETY: new host memory of this size.
        unsafe { start.write_bytes(0, bytes) };
        return Ok(());
    }
    let pattern = [0][..].into();
    #[rustfmt::skip]
    let fill = Work::Fill { dst: start, pattern, bytes };
    run_now(context, device, fill)
}

/// Copies between two addresses, and waits for that.
pub fn copy_now(
    context: &Arc<NativeContext>,
    device: &Object<Device>,
    dst: usize,
    src: usize,
    bytes: usize,
) -> Result<()> {
    run_now(context, device, Work::Copy { dst, src, bytes })
}

/// Runs work on a device, and waits for that.
pub fn run_now(
    context: &Arc<NativeContext>,
    device: &Object<Device>,
    work: Work<LevelZero>,
) -> Result<()> {
    on_lane(context, device, |lane| lane.submit(work, None))
}

/// Appends commands to a list of their own, and waits for them.
pub fn at_once(
    context: &Arc<NativeContext>,
    device: &Object<Device>,
    append: impl FnOnce(&List) -> Result<()>,
) -> Result<()> {
    on_lane(context, device, |lane| append(&lane.stream().list))
}

fn on_lane(
    context: &Arc<NativeContext>,
    device: &Object<Device>,
    submit: impl FnOnce(&super::Lane) -> Result<()>,
) -> Result<()> {
    let lane = super::Lane::open(context, device, ur_queue_flags_t(0))?;
    let wait = || ur::stream::Stream::record(&**lane.stream())?.block();
    let submitted = submit(&lane);
    // A failed wait is tried again, as what may still run uses memory that is freed next.
    let waited = wait().or_else(|_| wait());
    submitted.and(waited)
}

/// The bytes from an address to the end of its allocation.
pub fn range(context: &NativeContext, start: usize) -> Result<usize> {
    let (base, bytes) = allocation(context, start)?;
    Ok(bytes - (start - base).min(bytes))
}

/// Start and bytes of the allocation that an address lies in.
pub fn allocation(context: &NativeContext, start: usize) -> Result<(usize, usize)> {
    let (mut base, mut bytes) = (std::ptr::null_mut(), 0);
    let at = std::ptr::with_exposed_provenance(start);
    // SAFETY: both answers are writable.
    unsafe {
        call!(
            context.api,
            zeMemGetAddressRange(context.raw, at, &mut base, &mut bytes)
        )
    }?;
    Ok((base.addr(), bytes))
}

/// Imports host memory for a buffer over it. None if the memory is the driver's own, or the driver refuses: the import is
/// a hint.
pub fn import_of_buffer(context: &NativeContext, start: usize, bytes: usize) -> Option<Import> {
    let imports = context.imports?;
    let shared = imports.share(start, bytes, Holder::Buffer);
    if shared.is_some() || is_drivers(context, start) {
        return shared;
    }
    let imported = imports.import(start, bytes, Holder::Buffer);
    if imported.is_ok() {
        log::debug!("{bytes} bytes of host memory are imported for a buffer");
    }
    imported.inspect_err(not_imported).ok()
}

/// Imports host memory until the user releases it, unless it is the driver's own. A hint.
pub fn import_of_user(context: &NativeContext, start: usize, bytes: usize) {
    let Some(imports) = context.imports else {
        return;
    };
    if (imports.knows(start, bytes) || !is_drivers(context, start))
        && let Err(error) = imports.import_of_user(start, bytes)
    {
        not_imported(&error);
    }
}

fn not_imported(error: &Error) {
    log::debug!("host memory is not imported: {:?}", error.code());
}

/// Whether an address is in memory that the driver knows as long as the user does, and not in plain memory of the host's,
/// which a buffer may have imported.
pub fn is_usm(context: &NativeContext, start: usize) -> bool {
    let imports = context.imports;
    is_drivers(context, start) && !imports.is_some_and(|imports| imports.is_of_buffers(start))
}

/// Whether the driver knows an address.
fn is_drivers(context: &NativeContext, start: usize) -> bool {
    let mut found = ze_memory_allocation_properties_t::default();
    let mut device = ze_device_handle_t::NULL;
    let at = std::ptr::with_exposed_provenance(start);
    let query = context.api.zeMemGetAllocProperties;
    // SAFETY: both answers are writable.
    let code = unsafe { query(context.raw, at, &mut found, &mut device) };
    code == ZE_RESULT_SUCCESS && found.r#type != ZE_MEMORY_TYPE_UNKNOWN
}

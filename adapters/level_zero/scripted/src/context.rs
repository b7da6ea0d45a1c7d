//! Contexts, and what has no effect where all memory is resident.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::{Mutex, OnceLock};

use ze::*;

use crate::entry::{Answer, array, given, put};
use crate::object::{Objects, hold};
use crate::{device, driver, memory, script};

pub struct Context;

pub static CONTEXTS: Objects<Context> = Objects::of("context");

/// The handle of the context that nobody creates or destroys. It is not counted.
const DEFAULT: usize = 0x5eed_c000_0000;

pub fn default() -> ze_context_handle_t {
    static HANDLE: OnceLock<ze_context_handle_t> = OnceLock::new();
    *HANDLE.get_or_init(|| ze_context_handle_t(std::ptr::without_provenance_mut(DEFAULT)))
}

/// Checks a context's handle.
pub fn check(context: ze_context_handle_t) -> Answer {
    match context.0.addr() {
        DEFAULT => Ok(()),
        _ => CONTEXTS.get(context.0).map(drop),
    }
}

/// Checks the handles of a context and of a device.
pub fn check_both(context: ze_context_handle_t, device: ze_device_handle_t) -> Answer {
    check(context)?;
    device::index(device).map(drop)
}

/// What callers made resident: contexts, devices and starts.
static RESIDENT: Mutex<BTreeSet<(usize, usize, usize)>> = Mutex::new(BTreeSet::new());

/// Called when memory is freed.
pub fn freed(start: usize) {
    hold(&RESIDENT).retain(|(.., own)| *own != start);
}

entries! {
    fn zeContextCreate(
        driver: ze_driver_handle_t, desc: *const ze_context_desc_t, out: *mut ze_context_handle_t,
    ) {
        driver::check(driver)?;
        given(desc)?;
        given(out)?;
        put(out, ze_context_handle_t(CONTEXTS.add(|_| Context)))
    }

    fn zeContextCreateEx(
        driver: ze_driver_handle_t, desc: *const ze_context_desc_t, count: u32,
        devices: *mut ze_device_handle_t, out: *mut ze_context_handle_t,
    ) {
        driver::check(driver)?;
        given(desc)?;
        given(out)?;
        for one in array(devices, count as usize)? {
            device::index(*one)?;
        }
        put(out, ze_context_handle_t(CONTEXTS.add(|_| Context)))
    }

    fn zeContextDestroy(context: ze_context_handle_t) {
        CONTEXTS.remove(context.0).map(drop)
    }

    fn zeContextGetStatus(context: ze_context_handle_t) {
        check(context)?;
        script::present()
    }

    fn zeContextSystemBarrier(context: ze_context_handle_t, device: ze_device_handle_t) {
        check_both(context, device)
    }

    fn zeContextMakeMemoryResident(
        context: ze_context_handle_t, device: ze_device_handle_t, start: *mut c_void, size: usize,
    ) {
        check_both(context, device)?;
        given(start.cast::<u8>().cast_const()).map(drop)?;
        let start = start.addr();
        let whole = memory::range_of(start).filter(|own| own.start == start && own.bytes >= size);
        if size == 0 || whole.is_none() {
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        hold(&RESIDENT).insert((context.0.addr(), device.0.addr(), start));
        Ok(())
    }

    fn zeContextEvictMemory(
        context: ze_context_handle_t, device: ze_device_handle_t, start: *mut c_void, _size: usize,
    ) {
        check_both(context, device)?;
        if !hold(&RESIDENT).remove(&(context.0.addr(), device.0.addr(), start.addr())) {
            script::broken("memory is evicted that is not resident".into());
        }
        Ok(())
    }
}

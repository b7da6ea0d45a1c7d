//! `urAdapterGet`: the adapters of all libraries as one list.
//!
//! Owns the aggregation. An adapter that fails is logged and counts as none: a program can go on
//! with the others.

use std::ffi::c_void;

use log::{debug, warn};
use ur::abi::*;
use ur::object::{Error, Out, Result, boundary};

use crate::dispatch::table_of;
use crate::library::AdapterLibrary;
use crate::state;

type Get = unsafe extern "C" fn(u32, *mut ur_adapter_handle_t, *mut u32) -> ur_result_t;

/// The table's `urAdapterGet`. No adapter at all is success with a count of 0.
///
/// # Safety
/// `phAdapters` is null or has room for `NumEntries` handles; `pNumAdapters` is null or writable.
#[allow(non_snake_case)]
pub unsafe extern "C" fn adapter_get(
    NumEntries: u32,
    phAdapters: *mut ur_adapter_handle_t,
    pNumAdapters: *mut u32,
) -> ur_result_t {
    boundary(|| {
        if NumEntries == 0 && !phAdapters.is_null() {
            return Err(Error::new(UR_RESULT_ERROR_INVALID_SIZE));
        }
        let libraries = state::adapters().ok_or(Error::new(UR_RESULT_ERROR_UNINITIALIZED))?;
        let room = if phAdapters.is_null() { 0 } else { NumEntries };
        let found = gather(&libraries, room)?;
        for (at, handle) in found.handles.iter().enumerate() {
            // SAFETY: no more handles were gathered than there is room for.
            unsafe { phAdapters.add(at).write(*handle) };
        }
        // SAFETY: the caller's promise.
        unsafe { Out::new(pNumAdapters) }.set(found.total);
        Ok(())
    })
}

#[derive(Default)]
struct Found {
    handles: Vec<ur_adapter_handle_t>,
    total: u32,
}

fn gather(libraries: &[AdapterLibrary], room: u32) -> Result<Found> {
    let mut found = Found::default();
    for library in libraries {
        // A library without the function was refused when it was opened.
        let Some(get) = library.table.Adapter.pfnGet else { continue };
        let left = room.saturating_sub(found.total);
        match adapters_of(get, left) {
            Ok((mut handles, total)) => {
                found.handles.append(&mut handles);
                found.total = found.total.saturating_add(total);
            }
            Err(error) => debug!("{} has no adapter: {error:?}", library.name),
        }
    }
    Ok(found)
}

/// Up to `room` handles of one library, and how many it has.
fn adapters_of(get: Get, room: u32) -> std::result::Result<(Vec<ur_adapter_handle_t>, u32), ur_result_t> {
    let mut total = 0;
    // SAFETY: null handles are not wanted; the count is writable.
    check(unsafe { get(0, std::ptr::null_mut(), &mut total) })?;
    if room == 0 || total == 0 {
        return Ok((Vec::new(), total));
    }
    let wanted = total.min(room);
    let mut handles = vec![std::ptr::null_mut(); wanted as usize];
    // SAFETY: there is room for as many handles as are asked for.
    check(unsafe { get(wanted, handles.as_mut_ptr(), &mut total) })?;
    handles.retain(|&handle| {
        // SAFETY: a handle that an adapter just gave is live.
        let dispatches = unsafe { table_of(handle.cast::<c_void>()) }.is_ok();
        if !dispatches {
            warn!("an adapter handle without a table is left out");
        }
        dispatches
    });
    let lost = wanted.saturating_sub(handles.len() as u32);
    Ok((handles, total.saturating_sub(lost)))
}

fn check(result: ur_result_t) -> std::result::Result<(), ur_result_t> {
    if result == UR_RESULT_SUCCESS { Ok(()) } else { Err(result) }
}

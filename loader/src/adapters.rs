//! `urAdapterGet`: the adapters of all libraries as one list.
//!
//! A library whose `urAdapterGet` fails is logged and skipped, so that programs can use the others.
//! An adapter that is counted but returns no handle leaves a null handle in the caller's list,
//! since the caller may rely on the count.

use std::ffi::c_void;

use log::{debug, warn};
use ur::abi::*;
use ur::object::{Error, Out, boundary};

use crate::dispatch::table_of;
use crate::library::AdapterLibrary;
use crate::state;

type Get = unsafe extern "C" fn(u32, *mut ur_adapter_handle_t, *mut u32) -> ur_result_t;

/// The `urAdapterGet` of the base table. Success with a count of 0 if there is no adapter.
///
/// Errors: `INVALID_SIZE` for a list without entries, `UNINITIALIZED` while the loader is torn
/// down.
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
        let capacity = if phAdapters.is_null() { 0 } else { NumEntries };
        let found = collect(&libraries, capacity);
        let nulls = std::iter::repeat_n(std::ptr::null_mut(), found.lost as usize);
        for (at, handle) in found.handles.into_iter().chain(nulls).enumerate() {
            // SAFETY: `collect` returns at most `capacity` handles, and the caller guarantees room
            // for them.
            unsafe { phAdapters.add(at).write(handle) };
        }
        // SAFETY: the caller guarantees that `pNumAdapters` is null or writable.
        unsafe { Out::new(pNumAdapters) }.set(found.total);
        Ok(())
    })
}

#[derive(Default)]
struct Found {
    handles: Vec<ur_adapter_handle_t>,
    /// Handles that the library counted but did not return.
    lost: u32,
    total: u32,
}

fn collect(libraries: &[AdapterLibrary], capacity: u32) -> Found {
    let mut all = Found::default();
    for library in libraries {
        // `AdapterLibrary::open` rejects a library without the function.
        let Some(get) = library.table.Adapter.pfnGet else {
            continue;
        };
        let counted = all.handles.len() as u32 + all.lost;
        match adapters_of(get, capacity.saturating_sub(counted)) {
            Ok(mut found) => {
                all.handles.append(&mut found.handles);
                all.lost += found.lost;
                all.total = all.total.saturating_add(found.total);
            }
            Err(error) => debug!("{} has no adapter: {error:?}", library.name),
        }
    }
    all
}

/// Up to `capacity` adapter handles of one library.
fn adapters_of(get: Get, capacity: u32) -> Result<Found, ur_result_t> {
    let mut found = Found::default();
    // SAFETY: a null list with no entries is valid; the count is a local variable.
    check(unsafe { get(0, std::ptr::null_mut(), &mut found.total) })?;
    let wanted = found.total.min(capacity);
    if wanted == 0 {
        return Ok(found);
    }
    let mut handles = vec![std::ptr::null_mut(); wanted as usize];
    // SAFETY: `handles` has room for `wanted` entries.
    let result = unsafe { get(wanted, handles.as_mut_ptr(), &mut found.total) };
    if result == UR_RESULT_SUCCESS {
        // SAFETY: the adapter returned the handle just now, so it is live.
        handles.retain(|handle| unsafe { table_of(handle.cast::<c_void>()) }.is_ok());
        found.handles = handles;
    }
    found.lost = wanted - found.handles.len() as u32;
    found.total = found.total.max(wanted) - found.lost;
    if found.lost > 0 {
        warn!(
            "{} of {wanted} adapters have no usable handle: {result:?}",
            found.lost
        );
    }
    Ok(found)
}

fn check(result: ur_result_t) -> Result<(), ur_result_t> {
    if result == UR_RESULT_SUCCESS {
        Ok(())
    } else {
        Err(result)
    }
}

//! Intel's functions that make a user's memory known to the driver, with the rules of Intel's driver 26.27.
//!
//! The driver counts nothing. An import within another one does nothing. A release of any address in a range ends it.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Mutex;

use ze::*;

use crate::driver::check;
use crate::entry::{Answer, boundary};
use crate::object::hold;
use crate::{memory, script, worker};

/// Bytes of the imported ranges, by their starts.
static RANGES: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

pub fn count() -> (&'static str, usize) {
    ("import", hold(&RANGES).len())
}

/// The range that an address lies in, if the last one that begins before it reaches so far.
fn find(ranges: &BTreeMap<usize, usize>, address: usize) -> Option<usize> {
    let (start, bytes) = ranges.range(..=address).next_back()?;
    (address - start < *bytes).then_some(*start)
}

pub fn is_imported(address: usize) -> bool {
    find(&hold(&RANGES), address).is_some()
}

fn add(start: usize, bytes: usize) -> Answer {
    if start == 0 || bytes == 0 {
        return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
    }
    if memory::range_of(start).is_some() {
        script::broken("an import of the driver's own memory".into());
    }
    let mut ranges = hold(&RANGES);
    match (find(&ranges, start), find(&ranges, start + bytes - 1)) {
        (None, None) => drop(ranges.insert(start, bytes)),
        (Some(first), Some(last)) if first == last => {}
        (Some(_), Some(_)) => return Err(ZE_RESULT_ERROR_OVERLAPPING_REGIONS),
        (Some(_), None) => return Err(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE),
        (None, Some(_)) => return Err(ZE_RESULT_ERROR_INVALID_SIZE),
    }
    Ok(())
}

fn remove(address: usize) -> Answer {
    let mut ranges = hold(&RANGES);
    let start = find(&ranges, address).ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
    let bytes = ranges.remove(&start).unwrap_or(0);
    drop(ranges);
    if worker::uses(start, bytes) {
        script::broken("an import ends that a command uses".into());
    }
    Ok(())
}

pub unsafe extern "C" fn import(
    driver: ze_driver_handle_t,
    start: *mut c_void,
    bytes: usize,
) -> ze_result_t {
    boundary("zexDriverImportExternalPointer", || {
        check(driver)?;
        add(start.expose_provenance(), bytes)
    })
}

pub unsafe extern "C" fn release(driver: ze_driver_handle_t, start: *mut c_void) -> ze_result_t {
    boundary("zexDriverReleaseImportedPointer", || {
        check(driver)?;
        remove(start.expose_provenance())
    })
}

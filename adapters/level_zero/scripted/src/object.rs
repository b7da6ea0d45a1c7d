//! Tables of live objects: a handle is a name, and a dead name is detected.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ze::*;

use crate::entry::Answer;
use crate::script;

/// Names are no addresses, so that a caller that looks behind one is stopped.
const FIRST: usize = 0x5eed_0000_0000;
static NEXT: AtomicUsize = AtomicUsize::new(1);

pub fn hold<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The live objects of a kind.
pub struct Objects<T> {
    kind: &'static str,
    live: Mutex<BTreeMap<usize, Arc<T>>>,
}

impl<T> Objects<T> {
    pub const fn of(kind: &'static str) -> Self {
        Self {
            kind,
            live: Mutex::new(BTreeMap::new()),
        }
    }

    /// Adds an object that knows its own name.
    pub fn add(&self, make: impl FnOnce(usize) -> T) -> *mut c_void {
        let name = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) * 16;
        hold(&self.live).insert(name, Arc::new(make(name)));
        ptr::without_provenance_mut(name)
    }

    pub fn get(&self, handle: *mut c_void) -> Answer<Arc<T>> {
        if handle.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
        }
        hold(&self.live)
            .get(&handle.addr())
            .cloned()
            .ok_or_else(|| self.dead())
    }

    pub fn remove(&self, handle: *mut c_void) -> Answer<Arc<T>> {
        if handle.is_null() {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
        }
        hold(&self.live)
            .remove(&handle.addr())
            .ok_or_else(|| self.dead())
    }

    pub fn find(&self, is_wanted: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        let live = hold(&self.live);
        live.values().find(|one| is_wanted(one)).cloned()
    }

    pub fn count(&self) -> usize {
        hold(&self.live).len()
    }

    pub fn kind(&self) -> &'static str {
        self.kind
    }

    fn dead(&self) -> ze_result_t {
        script::broken(format!("a dead {}", self.kind));
        ZE_RESULT_ERROR_INVALID_ARGUMENT
    }
}

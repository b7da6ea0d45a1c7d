//! What happens around every call.
//!
//! 1. the call is counted;
//! 2. the script's delays pass; an error it asks for ends the call;
//! 3. the `before` callback; its error ends the call;
//! 4. the `replace` callback or, without one, the default answer; an error ends the call;
//! 5. the `after` callback, whose result is the call's.
//!
//! Callbacks get the call's `ur_*_params_t`, whose pointers lead to the arguments: what they change
//! there is what the later ones, and the answer, see. No lock is held while one runs, so that it may
//! call the interface, or set callbacks.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use ur::abi::*;
use ur::object::{Error, Result, boundary};

use crate::functions::NAMES;
use crate::script;

/// A callback of a test.
pub type Function = unsafe extern "C" fn(*mut c_void, *mut c_void) -> ur_result_t;

#[derive(Clone, Copy)]
pub struct Callback {
    pub function: Function,
    pub user_data: usize,
}

/// When a callback runs; indexes `Callbacks`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    Before,
    Replace,
    After,
}

type Callbacks = [Option<Callback>; 3];

static COUNTS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];
static CALLBACKS: RwLock<BTreeMap<usize, Callbacks>> = RwLock::new(BTreeMap::new());
/// Whether there is any callback: without, a call takes no lock for them.
static HOOKED: AtomicBool = AtomicBool::new(false);

/// One call of the function at `index` of `NAMES`.
///
/// # Safety
/// `params` points to that function's arguments, each pointer in it to a live variable.
pub unsafe fn call<P>(index: usize, params: *mut P, answer: fn(&P) -> Result<()>) -> ur_result_t {
    boundary(|| {
        COUNTS[index].fetch_add(1, Ordering::Relaxed);
        script::current().apply(index)?;
        let [before, replace, after] = callbacks(index);
        // SAFETY: `params` is what callbacks of this function expect.
        unsafe { run(before, params.cast()) }?;
        match replace {
            // SAFETY: `params` is what callbacks of this function expect.
            Some(_) => unsafe { run(replace, params.cast()) }?,
            // SAFETY: live for the call; what callbacks may change lies behind its pointers.
            None => answer(unsafe { &*params })?,
        }
        // SAFETY: `params` is what callbacks of this function expect.
        unsafe { run(after, params.cast()) }
    })
}

/// # Safety
/// `params` is what the callback expects.
unsafe fn run(callback: Option<Callback>, params: *mut c_void) -> Result<()> {
    let Some(Callback {
        function,
        user_data,
    }) = callback
    else {
        return Ok(());
    };
    // SAFETY: whoever set the callback promised that it takes this function's arguments and may be
    // called from any thread with this pointer.
    let result = unsafe { function(params, std::ptr::with_exposed_provenance_mut(user_data)) };
    if result == UR_RESULT_SUCCESS {
        Ok(())
    } else {
        Err(Error::new(result))
    }
}

fn callbacks(index: usize) -> Callbacks {
    if !HOOKED.load(Ordering::Acquire) {
        return [None; 3];
    }
    let callbacks = CALLBACKS.read().unwrap_or_else(PoisonError::into_inner);
    callbacks.get(&index).copied().unwrap_or_default()
}

/// Sets a callback, or takes it away.
pub fn set(index: usize, when: When, callback: Option<Callback>) {
    let mut callbacks = CALLBACKS.write().unwrap_or_else(PoisonError::into_inner);
    callbacks.entry(index).or_default()[when as usize] = callback;
    callbacks.retain(|_, set| set.iter().any(Option::is_some));
    HOOKED.store(!callbacks.is_empty(), Ordering::Release);
}

/// Takes all callbacks away and counts from 0 again.
pub fn reset() {
    let mut callbacks = CALLBACKS.write().unwrap_or_else(PoisonError::into_inner);
    callbacks.clear();
    HOOKED.store(false, Ordering::Release);
    for count in &COUNTS {
        count.store(0, Ordering::Relaxed);
    }
}

/// How often a function was called.
pub fn count(index: usize) -> u64 {
    COUNTS[index].load(Ordering::Relaxed)
}

/// The function of that name, as its index in `NAMES`.
pub fn index_of(name: &str) -> Option<usize> {
    NAMES.iter().position(|known| *known == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn answer(_: *mut c_void, code: *mut c_void) -> ur_result_t {
        ur_result_t(code.addr() as u32)
    }

    /// Whatever a callback answers, at whichever of its three moments, each function has a result of
    /// the enumeration.
    #[test]
    fn callbacks_answer_results() {
        let codes = [78_u32, 0xfff, 0x1004, 0x7fff_ffff, u32::MAX];
        for (index, name) in NAMES.iter().enumerate() {
            for when in [When::Before, When::Replace, When::After] {
                for code in codes {
                    let callback = Callback {
                        function: answer,
                        user_data: code as usize,
                    };
                    set(index, when, Some(callback));
                    // SAFETY: the callback does not look at the parameters.
                    let result = unsafe { call(index, &mut (), |()| Ok(())) };
                    assert_eq!(result, UR_RESULT_ERROR_UNKNOWN, "{name}: {code:#x}");
                }
                set(index, when, None);
            }
        }
    }
}

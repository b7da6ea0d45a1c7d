//! The steps of every call:
//! 1. Count the call.
//! 2. Apply the script's delays; an error of the script ends the call.
//! 3. Run the `before` callback; its error ends the call.
//! 4. Run the `replace` callback or, without one, the default answer; an error ends the call.
//! 5. Run the `after` callback, whose result is the call's.
//!
//! Callbacks get the call's `ur_*_params_t`, whose pointers lead to the arguments. Later callbacks
//! and the answer see what a callback changes there. No lock is held while a callback runs, so that
//! it may call the interface or set callbacks.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use ur::abi::*;
use ur::object::{Error, Result, boundary};

use crate::functions::NAMES;
use crate::script;

/// A callback that a test sets.
pub type Function = unsafe extern "C" fn(*mut c_void, *mut c_void) -> ur_result_t;

#[derive(Clone, Copy)]
pub struct Callback {
    pub function: Function,
    pub user_data: usize,
}

/// The step at which a callback runs; the index in `Callbacks`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    Before,
    Replace,
    After,
}

type Callbacks = [Option<Callback>; 3];

static COUNTS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];
static CALLBACKS: RwLock<BTreeMap<usize, Callbacks>> = RwLock::new(BTreeMap::new());
/// Whether any callback is set; without one, a call takes no lock.
static HAS_CALLBACKS: AtomicBool = AtomicBool::new(false);

/// Runs one call of the function at `index` of `NAMES`.
///
/// # Safety
/// `params` points to the parameter struct of that function, whose pointers lead to live variables.
pub unsafe fn call<P>(index: usize, params: *mut P, answer: fn(&P) -> Result<()>) -> ur_result_t {
    boundary(|| {
        COUNTS[index].fetch_add(1, Ordering::Relaxed);
        script::current().apply(index)?;
        let [before, replace, after] = callbacks(index);
        // SAFETY: the caller guarantees the parameter struct that callbacks of this function take.
        unsafe { run(before, params.cast()) }?;
        match replace {
            // SAFETY: the caller guarantees the parameter struct that callbacks of this function
            // take.
            Some(_) => unsafe { run(replace, params.cast()) }?,
            // SAFETY: the caller guarantees a live struct. Callbacks only change the variables
            // behind its pointers.
            None => answer(unsafe { &*params })?,
        }
        // SAFETY: the caller guarantees the parameter struct that callbacks of this function take.
        unsafe { run(after, params.cast()) }
    })
}

/// Runs a callback, if it is set.
///
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
    // SAFETY: `set_callback` of `ur_mock.h` has the test guarantee that the callback takes this
    // function's parameters, from any thread, with this user data.
    let result = unsafe { function(params, std::ptr::with_exposed_provenance_mut(user_data)) };
    if result == UR_RESULT_SUCCESS {
        Ok(())
    } else {
        Err(Error::new(result))
    }
}

fn callbacks(index: usize) -> Callbacks {
    if !HAS_CALLBACKS.load(Ordering::Acquire) {
        return [None; 3];
    }
    let callbacks = CALLBACKS.read().unwrap_or_else(PoisonError::into_inner);
    callbacks.get(&index).copied().unwrap_or_default()
}

/// Sets or removes a callback.
pub fn set(index: usize, when: When, callback: Option<Callback>) {
    let mut callbacks = CALLBACKS.write().unwrap_or_else(PoisonError::into_inner);
    callbacks.entry(index).or_default()[when as usize] = callback;
    callbacks.retain(|_, set| set.iter().any(Option::is_some));
    HAS_CALLBACKS.store(!callbacks.is_empty(), Ordering::Release);
}

/// Removes all callbacks and resets all counts.
pub fn reset() {
    let mut callbacks = CALLBACKS.write().unwrap_or_else(PoisonError::into_inner);
    callbacks.clear();
    HAS_CALLBACKS.store(false, Ordering::Release);
    for count in &COUNTS {
        count.store(0, Ordering::Relaxed);
    }
}

/// The number of calls of a function.
pub fn count(index: usize) -> u64 {
    COUNTS[index].load(Ordering::Relaxed)
}

/// The index in `NAMES` of a function.
pub fn index_of(name: &str) -> Option<usize> {
    NAMES.iter().position(|known| *known == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn answer(_: *mut c_void, code: *mut c_void) -> ur_result_t {
        ur_result_t(code.addr() as u32)
    }

    /// For every function, callbacks at all three steps may return any result, and the call returns
    /// a result of the enumeration.
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
                    // SAFETY: the callback does not read the parameters.
                    let result = unsafe { call(index, &mut (), |()| Ok(())) };
                    assert_eq!(result, UR_RESULT_ERROR_UNKNOWN, "{name}: {code:#x}");
                }
                set(index, when, None);
            }
        }
    }
}

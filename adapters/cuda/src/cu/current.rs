//! The calling thread's current context.
//!
//! Most calls of the driver act on it. It is the application's own, which may use CUDA beside us, so
//! a call of ours puts its context on top and takes it off again, and leaves everything alone if the
//! right one is there already: to ask costs a quarter of pushing and popping.

use std::hint::cold_path;
use std::marker::PhantomData;
use std::ptr::{self, null_mut};

use cudarc::driver::sys::CUcontext;
use ur::object::Result;

use super::{Api, check};

/// The calling thread's current context, 0 for none.
pub fn current(api: &Api) -> usize {
    let mut current = null_mut();
    // SAFETY: room for one handle.
    let code = unsafe { (api.cuCtxGetCurrent)(&mut current) };
    if code.is_success() { current.addr() } else { 0 }
}

/// A context is current on this thread as long as this lives.
pub struct Entered<'a> {
    /// What takes it off again, if it was put there.
    pushed: Option<&'a Api>,
    /// The current context is a thread's.
    _thread: PhantomData<*const ()>,
}

impl<'a> Entered<'a> {
    #[inline(always)]
    pub fn new(api: &'a Api, context: CUcontext) -> Result<Self> {
        let mut current = null_mut();
        // SAFETY: room for one handle.
        let code = unsafe { (api.cuCtxGetCurrent)(&mut current) };
        check(api, code, "cuCtxGetCurrent")?;
        let pushed = match ptr::eq(current, context) {
            true => None,
            false => {
                cold_path();
                Some(push(api, context)?)
            }
        };
        Ok(Self {
            pushed,
            _thread: PhantomData,
        })
    }
}

// Both apart from what every command runs through.

#[inline(never)]
fn push(api: &Api, context: CUcontext) -> Result<&Api> {
    // SAFETY: a context that whoever enters it holds.
    let code = unsafe { (api.cuCtxPushCurrent)(context) };
    check(api, code, "cuCtxPushCurrent").map(|()| api)
}

#[inline(never)]
fn pop(api: &Api) {
    let mut own = null_mut();
    // SAFETY: room for one handle; the topmost context is the one that was pushed.
    let code = unsafe { (api.cuCtxPopCurrent)(&mut own) };
    if !code.is_success() {
        log::error!("cuCtxPopCurrent failed with {}", code.0);
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(api) = self.pushed {
            cold_path();
            pop(api);
        }
    }
}

//! The calling thread's current context.
//!
//! Most calls of the driver act on it. It is the application's own, which may use CUDA beside us, so
//! a call of ours puts its context on top and takes it off again, and leaves everything alone if the
//! right one is there already: to ask costs a quarter of pushing and popping.
//!
//! What is given to a stream needs not even that, since a stream is its context's: drivers of today
//! (580) take a launch, a copy, a memset, a record or a wait whatever is current, and tell of events. So
//! those calls are made [`anywhere`], and made again with the context current where the driver refuses.

use std::hint::cold_path;
use std::marker::PhantomData;
use std::ptr::{self, null_mut};

use cudarc::driver::sys::{CUcontext, CUstream};
use ur::object::Result;

use super::{Api, Code, check};

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

    /// On top even of itself: what is made current in its place goes with it.
    pub fn on_top(api: &'a Api, context: CUcontext) -> Result<Self> {
        Ok(Self {
            pushed: Some(push(api, context)?),
            _thread: PhantomData,
        })
    }
}

/// Makes one call of the driver for an object of this context and returns its code. If the driver refuses
/// it, the call is repeated with the context current.
#[inline(always)]
pub fn anywhere(api: &Api, context: CUcontext, call: impl Fn() -> Code) -> Code {
    let code = call();
    if code.is_success() {
        return code;
    }
    cold_path();
    match is_final(api, context, code) {
        true => code,
        false => again(api, context, call),
    }
}

/// Makes a call for a stream of this context.
#[inline(always)]
pub fn on_stream(api: &Api, context: CUcontext, stream: CUstream, call: impl Fn() -> Code) -> Code {
    if is_default(stream) {
        cold_path();
        return again(api, context, call);
    }
    anywhere(api, context, call)
}

/// Whether a call that gave this code would give it again with that context current.
pub fn is_final(api: &Api, context: CUcontext, code: Code) -> bool {
    code == Code::NOT_READY || current(api) == context.addr()
}

/// Null, `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD` are streams of whatever context is current.
pub fn is_default(stream: CUstream) -> bool {
    stream.addr() <= 2
}

// All apart from what every command runs through.

#[inline(never)]
fn again(api: &Api, context: CUcontext, call: impl FnOnce() -> Code) -> Code {
    match Entered::new(api, context) {
        Ok(_current) => call(),
        Err(_) => Code::INVALID_CONTEXT,
    }
}

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

//! The calling thread's current context.
//!
//! Most calls of the driver act on it. The application may use CUDA itself, so its context must stay current.
//! A call of ours pushes its own context and pops it again. If the right context is current, nothing is
//! pushed: a query costs a quarter of a push and a pop.
//!
//! Calls for a stream or an event need no current context, since both belong to one (driver 580: launches,
//! copies, memsets, records, waits, queries). Such calls are made [`anywhere`], and repeated with the context
//! current if the driver refuses them.

use std::hint::cold_path;
use std::marker::PhantomData;
use std::ptr::{self, null_mut};

use cudarc::driver::sys::{CUcontext, CUstream};
use ur::object::Result;

use super::{Api, Code, check};

/// The calling thread's current context, 0 for none.
pub fn current(api: &Api) -> usize {
    let mut current = null_mut();
    // SAFETY: `current` is writable.
    let code = unsafe { (api.cuCtxGetCurrent)(&mut current) };
    if code.is_success() { current.addr() } else { 0 }
}

/// A context that is current on this thread while this lives.
pub struct Entered<'a> {
    /// Pops the context, if it was pushed.
    pushed: Option<&'a Api>,
    /// Not `Send`: each thread has its own current context.
    _thread: PhantomData<*const ()>,
}

impl<'a> Entered<'a> {
    #[inline(always)]
    pub fn new(api: &'a Api, context: CUcontext) -> Result<Self> {
        let mut current = null_mut();
        // SAFETY: `current` is writable.
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

    /// Pushes the context even if it is current, so that a context which replaces it is popped.
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

/// Whether a call that returned this code would return it with that context current, too.
pub fn is_final(api: &Api, context: CUcontext, code: Code) -> bool {
    code == Code::NOT_READY || current(api) == context.addr()
}

/// Whether the stream is null, `CU_STREAM_LEGACY` or `CU_STREAM_PER_THREAD`: one of the current context.
pub fn is_default(stream: CUstream) -> bool {
    stream.addr() <= 2
}

// Out of line, so that frequent calls stay small.

#[inline(never)]
fn again(api: &Api, context: CUcontext, call: impl FnOnce() -> Code) -> Code {
    match Entered::new(api, context) {
        Ok(_current) => call(),
        Err(_) => Code::INVALID_CONTEXT,
    }
}

#[inline(never)]
fn push(api: &Api, context: CUcontext) -> Result<&Api> {
    // SAFETY: the caller keeps the context alive.
    let code = unsafe { (api.cuCtxPushCurrent)(context) };
    check(api, code, "cuCtxPushCurrent").map(|()| api)
}

#[inline(never)]
fn pop(api: &Api) {
    let mut own = null_mut();
    // SAFETY: `own` has room for a handle. `push` pushed the topmost context.
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

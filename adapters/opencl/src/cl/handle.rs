//! References to OpenCL objects. A `Ref` owns one reference and releases it.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;

use opencl_sys::*;
use ur::object::Result;

use super::{Api, check};

type Count = unsafe extern "C" fn(*mut c_void) -> cl_int;

/// A kind of OpenCL object.
pub trait Counted {
    /// OpenCL's error code of an invalid handle.
    const INVALID: cl_int;
    fn retain(api: &Api) -> Count;
    fn release(api: &Api) -> Count;
}

/// One reference to an OpenCL object. Never null.
pub struct Ref<K: Counted> {
    api: &'static Api,
    raw: *mut c_void,
    kind: PhantomData<fn(K)>,
}

// SAFETY: OpenCL's objects may be used from any thread. The exception is setting a kernel's arguments,
// which happens under a lock.
unsafe impl<K: Counted> Send for Ref<K> {}
// SAFETY: OpenCL's objects may be used from any thread. The exception is setting a kernel's arguments,
// which happens under a lock.
unsafe impl<K: Counted> Sync for Ref<K> {}

impl<K: Counted> Ref<K> {
    /// Takes over the reference that a call to create an object returned with `code`.
    ///
    /// # Safety
    /// If `code` is success, `raw` is a live object of this kind, and the caller gives up its reference.
    pub unsafe fn created(
        api: &'static Api,
        raw: *mut c_void,
        code: cl_int,
        call: &str,
    ) -> Result<Self> {
        check(code, call)?;
        Ok(Self {
            api,
            raw,
            kind: PhantomData,
        })
    }

    /// A foreign object. It is retained, unless `owned` transfers the caller's reference.
    ///
    /// # Safety
    /// `raw` is null or a live object of this kind.
    pub unsafe fn adopted(api: &'static Api, raw: *mut c_void, owned: bool) -> Result<Self> {
        check(
            if raw.is_null() {
                K::INVALID
            } else {
                CL_SUCCESS
            },
            "a native handle",
        )?;
        if !owned {
            // SAFETY: the caller promises a live object, and it is not null.
            check(unsafe { K::retain(api)(raw) }, "clRetain")?;
        }
        Ok(Self {
            api,
            raw,
            kind: PhantomData,
        })
    }

    pub fn raw(&self) -> *mut c_void {
        self.raw
    }

    /// Releases the caller's reference if `owned` says that it was transferred. It is called when nothing
    /// can fail any more: after a failure the caller keeps the reference.
    pub fn own(&self, owned: bool) {
        if owned {
            // SAFETY: `self` holds a reference of its own, so that the object stays alive.
            unsafe { K::release(self.api)(self.raw) };
        }
    }

    pub fn api(&self) -> &'static Api {
        self.api
    }
}

impl<K: Counted> Clone for Ref<K> {
    fn clone(&self) -> Self {
        // SAFETY: `self` keeps the object alive. Retaining a live object fails only with the device lost.
        unsafe { K::retain(self.api)(self.raw) };
        Self {
            api: self.api,
            raw: self.raw,
            kind: PhantomData,
        }
    }
}

impl<K: Counted> Drop for Ref<K> {
    fn drop(&mut self) {
        // SAFETY: `self` owns the reference and ends here.
        unsafe { K::release(self.api)(self.raw) };
    }
}

impl<K: Counted> PartialEq for Ref<K> {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.raw, other.raw)
    }
}

macro_rules! counted {
    ($($alias:ident $kind:ident $invalid:ident $retain:ident $release:ident;)*) => { $(
        pub struct $kind;
        impl Counted for $kind {
            const INVALID: cl_int = $invalid;
            fn retain(api: &Api) -> Count {
                api.core.$retain
            }
            fn release(api: &Api) -> Count {
                api.core.$release
            }
        }
        pub type $alias = Ref<$kind>;
    )* };
}

counted! {
    ContextRef Context CL_INVALID_CONTEXT clRetainContext clReleaseContext;
    QueueRef Queue CL_INVALID_COMMAND_QUEUE clRetainCommandQueue clReleaseCommandQueue;
    EventRef Event CL_INVALID_EVENT clRetainEvent clReleaseEvent;
    MemRef Mem CL_INVALID_MEM_OBJECT clRetainMemObject clReleaseMemObject;
    SamplerRef Sampler CL_INVALID_SAMPLER clRetainSampler clReleaseSampler;
    ProgramRef Program CL_INVALID_PROGRAM clRetainProgram clReleaseProgram;
    KernelRef Kernel CL_INVALID_KERNEL clRetainKernel clReleaseKernel;
}

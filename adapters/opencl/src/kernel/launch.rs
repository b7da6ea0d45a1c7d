//! What a launch needs before it can be given to a lane: copies of its arguments, set under the
//! kernel's lock together with the enqueueing, since OpenCL keeps arguments in the kernel.

use std::ffi::c_void;
use std::ptr::{self, null};
use std::sync::{Arc, Mutex, PoisonError};

use opencl_sys::*;
use ur::abi::*;
use ur::hal::{self, Exported};
use ur::object::{Error, Object, Result, ensure};
use ur::stream::LaunchRequest;

use super::Kernel;
use crate::OpenCl;
use crate::cl::{Api, KernelRef, MemRef, SamplerRef, check};
use crate::device::Device;
use crate::exec::Slot;
use crate::mem::Mem;
use crate::sampler::Sampler;

/// The kernel with its lock, as launches keep it.
pub(super) struct Native {
    pub kernel: KernelRef,
    arguments: Mutex<()>,
}

/// An argument as it was given.
pub(super) enum Arg {
    Value { at: usize, bytes: usize },
    Pointer(usize),
    Local(usize),
    Mem(Option<MemRef>),
    Sampler(SamplerRef),
}

/// Arguments with their places.
pub(super) type Indexed = Vec<(u32, Arg)>;

/// A launch with copies of its arguments.
pub struct Launch {
    native: Arc<Native>,
    args: Indexed,
    values: Vec<u8>,
    dims: u32,
    offset: Option<[usize; 3]>,
    global: [usize; 3],
    local: Option<[usize; 3]>,
}

impl Kernel {
    /// Copies a launch's arguments.
    pub fn launch(&self, _: &Object<Device>, request: &LaunchRequest<'_>) -> Result<Launch> {
        if let Some(properties) = request.properties {
            let plain = properties.flags.0 == 0 && properties.pNext.is_null();
            ensure(plain, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        }
        let dims = request.dims as usize;
        let (args, values) = arguments(request.args)?;
        Ok(Launch {
            native: Arc::clone(&self.native),
            args,
            values,
            dims: request.dims,
            offset: request.offset[..dims]
                .iter()
                .any(|offset| *offset > 0)
                .then_some(request.offset),
            global: request.global,
            local: request.local,
        })
    }
}

pub(super) fn arguments(list: &[ur_exp_kernel_arg_properties_t]) -> Result<(Indexed, Vec<u8>)> {
    let mut args = Vec::with_capacity(list.len());
    let mut values = Vec::new();
    for arg in list {
        // SAFETY: the type says which member of the value holds, and what it points to is there for
        // the call.
        let own = unsafe {
            match arg.r#type {
                UR_EXP_KERNEL_ARG_TYPE_VALUE => {
                    let at = values.len();
                    values.extend_from_slice(hal::checks::slice(
                        arg.value.value.cast::<u8>(),
                        arg.size,
                    )?);
                    Arg::Value {
                        at,
                        bytes: arg.size,
                    }
                }
                UR_EXP_KERNEL_ARG_TYPE_POINTER => {
                    Arg::Pointer(arg.value.pointer.expose_provenance())
                }
                UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ => {
                    let handle = arg.value.memObjTuple.hMem;
                    Arg::Mem(match handle.is_null() {
                        true => None,
                        false => Some(
                            Object::<Mem>::borrow(handle.cast(), OpenCl::table())?
                                .native()
                                .clone(),
                        ),
                    })
                }
                UR_EXP_KERNEL_ARG_TYPE_LOCAL => Arg::Local(arg.size),
                UR_EXP_KERNEL_ARG_TYPE_SAMPLER => {
                    let handle = arg.value.sampler;
                    Arg::Sampler(
                        Object::<Sampler>::borrow(handle.cast(), OpenCl::table())?
                            .native()
                            .clone(),
                    )
                }
                _ => return Err(Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION)),
            }
        };
        args.push((arg.index, own));
    }
    Ok((args, values))
}

impl Native {
    pub fn new(kernel: KernelRef) -> Arc<Self> {
        Arc::new(Self {
            kernel,
            arguments: Mutex::new(()),
        })
    }

    /// What `run` does with the kernel once it has these arguments and before it gets others.
    pub fn with<T>(
        &self,
        args: &Indexed,
        values: &[u8],
        run: impl FnOnce(cl_kernel) -> Result<T>,
    ) -> Result<T> {
        let lock = self.arguments.lock();
        let _held = lock.unwrap_or_else(PoisonError::into_inner);
        for (index, arg) in args {
            self.set(*index, arg, values)?;
        }
        run(self.kernel.raw())
    }

    /// Sets one argument. The lock is held.
    fn set(&self, index: u32, arg: &Arg, values: &[u8]) -> Result<()> {
        let (api, kernel) = (self.kernel.api(), self.kernel.raw());
        let set = api.core.clSetKernelArg;
        let handle = |raw: *mut c_void| {
            // SAFETY: a live kernel and a live object's handle.
            unsafe {
                set(
                    kernel,
                    index,
                    size_of::<*mut c_void>(),
                    (&raw const raw).cast(),
                )
            }
        };
        let code = match arg {
            Arg::Value { at, bytes } => {
                // SAFETY: that many bytes were copied there.
                unsafe {
                    set(
                        kernel,
                        index,
                        *bytes,
                        values[*at..*at + *bytes].as_ptr().cast(),
                    )
                }
            }
            Arg::Local(bytes) => {
                // SAFETY: local memory has a size and no value.
                unsafe { set(kernel, index, *bytes, null()) }
            }
            Arg::Pointer(at) => {
                let at: *const c_void = ptr::with_exposed_provenance(*at);
                // SAFETY: a live kernel; what the pointer leads to is the caller's promise.
                unsafe {
                    match (
                        api.ext.clSetKernelArgMemPointerINTEL,
                        api.core.clSetKernelArgSVMPointer,
                    ) {
                        (Some(set), _) => set(kernel, index, at),
                        (None, Some(set)) => set(kernel, index, at),
                        (None, None) => return Err(Error::unsupported()),
                    }
                }
            }
            Arg::Mem(mem) => handle(mem.as_ref().map_or(ptr::null_mut(), MemRef::raw)),
            Arg::Sampler(sampler) => handle(sampler.raw()),
        };
        check(code, "clSetKernelArg")
    }
}

impl Launch {
    /// Sets the arguments and enqueues.
    pub fn enqueue(&self, api: &Api, slot: &Slot) -> Result<()> {
        let Slot {
            queue,
            count,
            waits,
            event,
        } = *slot;
        let sizes =
            |sizes: &Option<[usize; 3]>| sizes.as_ref().map_or(null(), |sizes| sizes.as_ptr());
        let (offset, local) = (sizes(&self.offset), sizes(&self.local));
        let (launch, global) = (api.core.clEnqueueNDRangeKernel, self.global.as_ptr());
        self.native.with(&self.args, &self.values, |kernel| {
            // SAFETY: a live queue and kernel; as many sizes as there are dimensions.
            let code = unsafe {
                launch(
                    queue, kernel, self.dims, offset, global, local, count, waits, event,
                )
            };
            check(code, "clEnqueueNDRangeKernel")
        })
    }
}

//! What a launch needs before it can be given to a lane: copies of its arguments, set under the
//! kernel's lock together with the enqueueing, since OpenCL keeps arguments in the kernel. What it
//! keeps anyway is not set again: to set a pointer costs a tenth of a launch.

use std::ffi::c_void;
use std::ptr::{self, null};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opencl_sys::*;
use ur::abi::*;
use ur::hal::{self, Exported};
use ur::object::{Error, Object, Result};
use ur::stream::LaunchRequest;

use super::Kernel;
use crate::OpenCl;
use crate::cl::{Api, KernelRef, MemRef, SamplerRef, check};
use crate::device::Device;
use crate::exec::{Slabs, Slot};
use crate::mem::Mem;
use crate::record::Recorder;
use crate::sampler::Sampler;

/// The kernel with its lock, as launches keep it.
pub(super) struct Native {
    pub kernel: KernelRef,
    slabs: Arc<Slabs>,
    arguments: Mutex<Arguments>,
}

/// What the kernel's arguments are known to be, by their places.
struct Arguments {
    kept: Vec<Kept>,
    /// Whether others may set them too, so that nothing is known.
    open: bool,
}

/// An argument that need not be set again.
#[derive(Default)]
enum Kept {
    #[default]
    No,
    Value(Bytes),
    /// A pointer that was set once. Set again, it is worth finding out whose memory it leads to.
    Once(usize),
    /// A pointer into memory that was ours when so many slabs had been given back. OpenCL may have
    /// looked up what it leads to.
    Pointer(usize, u64),
}

/// An argument as it was given.
pub(super) enum Arg {
    Value(Bytes),
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
    dims: u32,
    offset: Option<[usize; 3]>,
    global: [usize; 3],
    local: Option<[usize; 3]>,
}

/// What a launch may ask for. No device promises cooperation (Intel's CPU driver claims more groups at
/// once than it runs), so none reports it; but clients ask for it without looking, as the reference's
/// adapter lets them, and their launches run as any other.
const TAKEN: ur_kernel_launch_properties_flags_t = UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE;

impl Kernel {
    /// Copies a launch's arguments.
    pub fn launch(&self, _: &Object<Device>, request: &LaunchRequest<'_>) -> Result<Launch> {
        request.wishes(TAKEN)?;
        let dims = request.dims as usize;
        Ok(Launch {
            native: Arc::clone(&self.native),
            args: arguments(request.args)?,
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

pub(super) fn arguments(list: &[ur_exp_kernel_arg_properties_t]) -> Result<Indexed> {
    let mut args = Vec::with_capacity(list.len());
    for arg in list {
        // SAFETY: the type says which member of the value holds, and what it points to is there for
        // the call.
        let own = unsafe {
            match arg.r#type {
                UR_EXP_KERNEL_ARG_TYPE_VALUE => {
                    let bytes = hal::checks::slice(arg.value.value.cast::<u8>(), arg.size)?;
                    Arg::Value(Bytes::of(bytes))
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
    Ok(args)
}

impl Native {
    /// `open`: whether others know the kernel, too.
    pub fn new(kernel: KernelRef, slabs: &Arc<Slabs>, open: bool) -> Arc<Self> {
        let kept = Vec::new();
        Arc::new(Self {
            kernel,
            slabs: Arc::clone(slabs),
            arguments: Mutex::new(Arguments { kept, open }),
        })
    }

    fn arguments(&self) -> MutexGuard<'_, Arguments> {
        self.arguments
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel itself, whose arguments others may set from now on.
    pub fn expose(&self) -> &KernelRef {
        *self.arguments() = Arguments {
            kept: Vec::new(),
            open: true,
        };
        &self.kernel
    }

    /// What `run` does with the kernel once it has these arguments and before it gets others.
    pub fn with<T>(&self, args: &Indexed, run: impl FnOnce(cl_kernel) -> Result<T>) -> Result<T> {
        let mut arguments = self.arguments();
        let given_back = self.slabs.given_back();
        for (index, arg) in args {
            let place = *index as usize;
            let known = arguments.kept.get(place);
            if known.is_some_and(|kept| kept.is(arg, given_back)) {
                continue;
            }
            // Until it is set, nothing is known of it.
            let known = arguments.kept.get_mut(place).map(std::mem::take);
            self.set(*index, arg)?;
            if !arguments.open {
                let kept = Kept::of(arg, &known.unwrap_or_default(), given_back, &self.slabs);
                arguments.keep(place, kept);
            }
        }
        run(self.kernel.raw())
    }

    /// Sets one argument. The lock is held.
    fn set(&self, index: u32, arg: &Arg) -> Result<()> {
        let (api, kernel) = (self.kernel.api(), self.kernel.raw());
        let set = |bytes: usize, value: *const c_void| {
            // SAFETY: a live kernel; a value of so many bytes, or none for local memory.
            unsafe { (api.core.clSetKernelArg)(kernel, index, bytes, value) }
        };
        let handle = |raw: *mut c_void| set(size_of_val(&raw), (&raw const raw).cast());
        let code = match arg {
            Arg::Value(bytes) => set(bytes.get().len(), bytes.get().as_ptr().cast()),
            Arg::Local(bytes) => set(*bytes, null()),
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

impl Arguments {
    /// The place is one that OpenCL has accepted, hence one of few.
    fn keep(&mut self, place: usize, kept: Kept) {
        if place >= self.kept.len() {
            self.kept.resize_with(place + 1, Kept::default);
        }
        self.kept[place] = kept;
    }
}

impl Kept {
    /// What is known of an argument after it was set; `before`: what was known until then.
    fn of(arg: &Arg, before: &Self, given_back: u64, slabs: &Slabs) -> Self {
        match (arg, before) {
            (Arg::Value(bytes), _) => Self::Value(bytes.clone()),
            (Arg::Pointer(at), Self::Once(own) | Self::Pointer(own, _)) if own == at => {
                match slabs.hold(*at) {
                    true => Self::Pointer(*at, given_back),
                    false => Self::No,
                }
            }
            (Arg::Pointer(at), _) => Self::Once(*at),
            (Arg::Local(_) | Arg::Mem(_) | Arg::Sampler(_), _) => Self::No,
        }
    }

    fn is(&self, arg: &Arg, given_back: u64) -> bool {
        match (self, arg) {
            (Self::Value(own), Arg::Value(bytes)) => own.get() == bytes.get(),
            (Self::Pointer(own, then), Arg::Pointer(at)) => own == at && *then == given_back,
            _ => false,
        }
    }
}

/// Bytes of which few, as nearly all arguments have, lie in place.
#[derive(Clone)]
pub(super) enum Bytes {
    Few { bytes: [u8; 16], count: u8 },
    Many(Box<[u8]>),
}

impl Bytes {
    fn of(all: &[u8]) -> Self {
        let mut bytes = [0; 16];
        match bytes.get_mut(..all.len()) {
            Some(few) => {
                few.copy_from_slice(all);
                let count = all.len() as u8;
                Self::Few { bytes, count }
            }
            None => Self::Many(all.into()),
        }
    }

    fn get(&self) -> &[u8] {
        match self {
            Self::Few { bytes, count } => &bytes[..usize::from(*count)],
            Self::Many(bytes) => bytes,
        }
    }
}

impl Launch {
    /// Sets the arguments and records.
    pub fn record(&self, to: &Recorder) -> Result<()> {
        let record = to.api().ext.clCommandNDRangeKernelKHR;
        let record = record.ok_or(Error::unsupported())?;
        let (none, [offset, global, local]) = (ptr::null_mut(), self.sizes());
        self.native.with(&self.args, |kernel| {
            // SAFETY: a live buffer and kernel; as many sizes as there are dimensions.
            crate::record::recorded(unsafe {
                record(
                    to.raw(),
                    none,
                    null(),
                    kernel,
                    self.dims,
                    offset,
                    global,
                    local,
                    0,
                    null(),
                    none.cast(),
                    none.cast(),
                )
            })
        })
    }

    /// Offset, global and local size, null where there is none.
    fn sizes(&self) -> [*const usize; 3] {
        let sizes =
            |sizes: &Option<[usize; 3]>| sizes.as_ref().map_or(null(), |sizes| sizes.as_ptr());
        [
            sizes(&self.offset),
            self.global.as_ptr(),
            sizes(&self.local),
        ]
    }

    /// Sets the arguments and enqueues.
    pub fn enqueue(&self, api: &Api, slot: &Slot) -> Result<()> {
        let Slot {
            queue,
            count,
            waits,
            event,
        } = *slot;
        let (launch, [offset, global, local]) = (api.core.clEnqueueNDRangeKernel, self.sizes());
        self.native.with(&self.args, |kernel| {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_what_they_were_made_of() {
        for count in [0, 1, 16, 17, 100] {
            let all: Vec<u8> = (0..count).collect();
            assert_eq!(Bytes::of(&all).get(), all);
        }
    }

    #[test]
    fn an_argument_is_kept_while_it_means_the_same() {
        let slabs = Slabs::default();
        slabs.add(0x1000, 0x100);
        let value = |bytes: &[u8]| Arg::Value(Bytes::of(bytes));
        let number = Kept::of(&value(&[1, 2]), &Kept::No, 0, &slabs);
        assert!(number.is(&value(&[1, 2]), 7));
        assert!(!number.is(&value(&[1, 2, 0]), 0) && !number.is(&Arg::Pointer(1), 0));
        let set_twice = |at| {
            let arg = Arg::Pointer(at);
            let once = Kept::of(&arg, &Kept::No, slabs.given_back(), &slabs);
            assert!(!once.is(&arg, slabs.given_back()));
            Kept::of(&arg, &once, slabs.given_back(), &slabs)
        };
        let inside = set_twice(0x10ff);
        assert!(inside.is(&Arg::Pointer(0x10ff), slabs.given_back()));
        assert!(!inside.is(&Arg::Pointer(0x10fe), slabs.given_back()));
        assert!(!set_twice(0x1100).is(&Arg::Pointer(0x1100), slabs.given_back()));
        slabs.remove(0x1000);
        assert!(!inside.is(&Arg::Pointer(0x10ff), slabs.given_back()));
    }
}

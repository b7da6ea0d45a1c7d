//! Launches with copies of their arguments. OpenCL stores arguments in the kernel. So the kernel's lock
//! is held while arguments are set and the launch is enqueued. An unchanged argument is not set again:
//! setting a pointer costs a tenth of a launch.

use std::ffi::c_void;
use std::ptr::{self, null};
use std::sync::Arc;

use opencl_sys::*;
use ur::abi::*;
use ur::hal::{self, Exported};
use ur::object::{Error, Object, Result, ensure};
use ur::stream::LaunchRequest;
use ur::sync::{Mutex, MutexGuard, rank};

use super::Kernel;
use super::check::is_complete;
use crate::OpenCl;
use crate::cl::{Api, KernelRef, MemRef, SamplerRef, check};
use crate::device::Device;
use crate::exec::{Slabs, Slot};
use crate::mem::Mem;
use crate::record::{Mutable, Recorder};
use crate::sampler::Sampler;

/// The native kernel and the lock of its arguments. Launches share it.
pub(super) struct Native {
    pub kernel: KernelRef,
    /// The number of arguments.
    count: usize,
    slabs: Arc<Slabs>,
    /// Whether all devices share the host's address space. Pointers are then set by the call that looks up
    /// no allocation.
    plain: bool,
    arguments: Mutex<Arguments, { rank::KERNEL_ARGUMENTS }>,
}

/// The cached arguments of a kernel, by index.
struct Arguments {
    cached: Vec<CachedArg>,
    /// Whether foreign code may set arguments, so that no cached argument is valid.
    open: bool,
}

/// An argument that borrows the caller's memory.
#[derive(Clone, Copy)]
pub(super) enum Arg<'a> {
    Value(&'a [u8]),
    Pointer(usize),
    Local(usize),
    Mem(Option<&'a MemRef>),
    Sampler(&'a SamplerRef),
}

/// An argument that owns a copy of its value.
enum Owned {
    Value(Box<[u8]>),
    Pointer(usize),
    Local(usize),
    Mem(Option<MemRef>),
    Sampler(SamplerRef),
}

/// A launch with copies of its arguments.
pub struct Launch {
    native: Arc<Native>,
    args: Vec<(u32, Owned)>,
    range: Range,
}

/// The work-items of a launch.
struct Range {
    dims: u32,
    offset: Option<[usize; 3]>,
    global: [usize; 3],
    local: Option<[usize; 3]>,
}

/// The accepted launch attributes. No device reports cooperative launches: Intel's CPU driver claims more
/// concurrent groups than it runs. Clients ask for them all the same, since the reference's adapter
/// accepts that. Such a launch runs as any other.
const SUPPORTED_FLAGS: ur_kernel_launch_properties_flags_t =
    UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE;

impl Kernel {
    /// Checks a launch in full and copies its arguments: it may be enqueued later, and repeatedly.
    pub fn launch(&self, device: &Object<Device>, request: &LaunchRequest<'_>) -> Result<Launch> {
        request.attributes(SUPPORTED_FLAGS)?;
        let complete = self.native.has_all(request.args);
        ensure(complete, UR_RESULT_ERROR_INVALID_KERNEL_ARGS)?;
        let own = |arg| Arg::of(arg).map(|value| (arg.index, value.to_owned()));
        let args = request.args.iter().map(own).collect::<Result<_>>()?;
        self.check_later(device, request)?;
        Ok(Launch {
            native: Arc::clone(&self.native),
            args,
            range: Range::of(request),
        })
    }

    /// Whether a launch without properties has all arguments, each of a known type. The driver
    /// checks the rest when the launch is enqueued.
    pub fn is_plain(&self, args: &[ur_exp_kernel_arg_properties_t]) -> bool {
        self.native.has_all(args) && args.iter().all(|arg| Arg::of(arg).is_ok())
    }

    /// Enqueues a plain launch, with its arguments where the caller has them.
    pub fn launch_plain(&self, request: &LaunchRequest<'_>, api: &Api, slot: &Slot) -> Result<()> {
        let mut arguments = self.native.arguments();
        self.native.set_all(&mut arguments, request.args)?;
        Range::of(request).enqueue(self.raw(), api, slot)
    }
}

impl Launch {
    /// Sets the arguments and enqueues.
    pub fn enqueue(&self, api: &Api, slot: &Slot) -> Result<()> {
        let mut arguments = self.native.arguments();
        self.native.set_owned(&mut arguments, &self.args)?;
        self.range.enqueue(self.native.kernel.raw(), api, slot)
    }

    /// Sets the arguments and records.
    pub fn record(&self, to: &Recorder) -> Result<Mutable> {
        let mut arguments = self.native.arguments();
        self.native.set_owned(&mut arguments, &self.args)?;
        to.launch(
            self.native.kernel.raw(),
            self.range.dims,
            self.range.sizes(),
        )
    }

    /// Replaces `old`, a recorded command of `recorder`. `UNSUPPORTED_FEATURE` if the command has to be
    /// recorded again.
    pub fn replace(&self, old: &Self, recorder: &Recorder, command: Mutable) -> Result<()> {
        let (range, before) = (&self.range, &old.range);
        let same = Arc::ptr_eq(&self.native, &old.native) && range.dims == before.dims;
        // A change cannot remove a local size, and the driver does not choose a new one.
        let sized =
            range.local.is_some() || before.local.is_none() && range.global == before.global;
        ensure(same && sized, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        let args = self.args.iter().map(|(index, arg)| (*index, arg.get()));
        let handles: Vec<*mut c_void> = args.clone().filter_map(|(_, arg)| arg.handle()).collect();
        let mut next = handles.iter();
        let (mut values, mut pointers) = (Vec::new(), Vec::new());
        for (arg_index, arg) in args {
            let (arg_size, arg_value): (usize, *const c_void) = match arg {
                Arg::Value(bytes) => (bytes.len(), bytes.as_ptr().cast()),
                Arg::Local(bytes) => (bytes, null()),
                Arg::Mem(_) | Arg::Sampler(_) => {
                    let handle = next.next().map_or(null(), ptr::from_ref);
                    (size_of::<*mut c_void>(), handle.cast())
                }
                Arg::Pointer(at) => (0, ptr::with_exposed_provenance(at)),
            };
            let is_pointer = matches!(arg, Arg::Pointer(_));
            let list = if is_pointer {
                &mut pointers
            } else {
                &mut values
            };
            list.push(cl_mutable_dispatch_arg_khr {
                arg_index,
                arg_size,
                arg_value,
            });
        }
        let offset = range.offset.unwrap_or_default();
        let [_, global, local] = range.sizes();
        let change = cl_mutable_dispatch_config_khr {
            command: ptr::null_mut(),
            num_args: values.len() as u32,
            num_svm_args: pointers.len() as u32,
            num_exec_infos: 0,
            work_dim: range.dims,
            arg_list: list(&values),
            arg_svm_list: list(&pointers),
            exec_info_list: null(),
            global_work_offset: offset.as_ptr(),
            global_work_size: global,
            local_work_size: local,
        };
        recorder.change(command, change)
    }
}

/// The address of a list, or null for an empty one: OpenCL requires that.
fn list<T>(of: &[T]) -> *const T {
    if of.is_empty() { null() } else { of.as_ptr() }
}

impl Range {
    fn of(request: &LaunchRequest<'_>) -> Self {
        let dims = request.dims as usize;
        let moved = request.offset[..dims].iter().any(|offset| *offset > 0);
        Self {
            dims: request.dims,
            offset: moved.then_some(request.offset),
            global: request.global,
            local: request.local,
        }
    }

    fn enqueue(&self, kernel: cl_kernel, api: &Api, slot: &Slot) -> Result<()> {
        let Slot {
            queue,
            count,
            waits,
            event,
        } = *slot;
        let (launch, [offset, global, local]) = (api.core.clEnqueueNDRangeKernel, self.sizes());
        // SAFETY: queue and kernel are alive, and each list has `dims` sizes.
        let code = unsafe {
            launch(
                queue, kernel, self.dims, offset, global, local, count, waits, event,
            )
        };
        check(code, "clEnqueueNDRangeKernel")
    }

    /// Offset, global size and local size. Null for one that is not given.
    fn sizes(&self) -> [*const usize; 3] {
        let sizes =
            |sizes: &Option<[usize; 3]>| sizes.as_ref().map_or(null(), |sizes| sizes.as_ptr());
        [
            sizes(&self.offset),
            self.global.as_ptr(),
            sizes(&self.local),
        ]
    }
}

impl<'a> Arg<'a> {
    fn of(arg: &'a ur_exp_kernel_arg_properties_t) -> Result<Self> {
        // SAFETY: `type` names the valid member of the value, and the caller keeps memory that it points
        // to for the call.
        unsafe {
            Ok(match arg.r#type {
                UR_EXP_KERNEL_ARG_TYPE_VALUE => {
                    Self::Value(hal::checks::slice(arg.value.value.cast(), arg.size)?)
                }
                UR_EXP_KERNEL_ARG_TYPE_POINTER => {
                    Self::Pointer(arg.value.pointer.expose_provenance())
                }
                UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ => {
                    let handle = arg.value.memObjTuple.hMem;
                    Self::Mem(match handle.is_null() {
                        true => None,
                        false => {
                            let mem = Object::<Mem>::borrow(handle.cast(), OpenCl::table())?;
                            Some(mem.native())
                        }
                    })
                }
                UR_EXP_KERNEL_ARG_TYPE_LOCAL => Self::Local(arg.size),
                UR_EXP_KERNEL_ARG_TYPE_SAMPLER => {
                    let handle = arg.value.sampler;
                    let sampler = Object::<Sampler>::borrow(handle.cast(), OpenCl::table())?;
                    Self::Sampler(sampler.native())
                }
                _ => return Err(Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION)),
            })
        }
    }

    fn to_owned(self) -> Owned {
        match self {
            Self::Value(bytes) => Owned::Value(bytes.into()),
            Self::Pointer(at) => Owned::Pointer(at),
            Self::Local(bytes) => Owned::Local(bytes),
            Self::Mem(mem) => Owned::Mem(mem.cloned()),
            Self::Sampler(sampler) => Owned::Sampler(sampler.clone()),
        }
    }
}

impl Arg<'_> {
    /// The native object, if the argument is one.
    fn handle(self) -> Option<*mut c_void> {
        match self {
            Self::Mem(mem) => Some(mem.map_or(ptr::null_mut(), MemRef::raw)),
            Self::Sampler(sampler) => Some(sampler.raw()),
            Self::Value(_) | Self::Pointer(_) | Self::Local(_) => None,
        }
    }
}

impl Owned {
    fn get(&self) -> Arg<'_> {
        match self {
            Self::Value(bytes) => Arg::Value(bytes),
            Self::Pointer(at) => Arg::Pointer(*at),
            Self::Local(bytes) => Arg::Local(*bytes),
            Self::Mem(mem) => Arg::Mem(mem.as_ref()),
            Self::Sampler(sampler) => Arg::Sampler(sampler),
        }
    }
}

impl Native {
    /// `plain`: whether the devices share the host's address space. `open`: whether foreign code knows the
    /// kernel.
    pub fn new(
        kernel: KernelRef,
        count: usize,
        slabs: &Arc<Slabs>,
        plain: bool,
        open: bool,
    ) -> Arc<Self> {
        let cached = Vec::new();
        Arc::new(Self {
            kernel,
            count,
            slabs: Arc::clone(slabs),
            plain,
            arguments: Mutex::new(Arguments { cached, open }),
        })
    }

    /// Whether all arguments are set, or foreign code may have set the others.
    fn has_all(&self, args: &[ur_exp_kernel_arg_properties_t]) -> bool {
        is_complete(self.count, args) || self.arguments().open
    }

    fn arguments(&self) -> MutexGuard<'_, Arguments> {
        self.arguments.lock()
    }

    /// The native kernel. Foreign code may set its arguments from now on.
    pub fn expose(&self) -> &KernelRef {
        *self.arguments() = Arguments {
            cached: Vec::new(),
            open: true,
        };
        &self.kernel
    }

    /// Sets the arguments and calls `run` before any other launch can set them.
    pub fn with<T>(
        &self,
        args: &[ur_exp_kernel_arg_properties_t],
        run: impl FnOnce(cl_kernel) -> Result<T>,
    ) -> Result<T> {
        let mut arguments = self.arguments();
        self.set_all(&mut arguments, args)?;
        run(self.kernel.raw())
    }

    fn set_all(
        &self,
        arguments: &mut Arguments,
        args: &[ur_exp_kernel_arg_properties_t],
    ) -> Result<()> {
        let freed = self.slabs.freed();
        for arg in args {
            self.set(arguments, arg.index, Arg::of(arg)?, freed)?;
        }
        Ok(())
    }

    fn set_owned(&self, arguments: &mut Arguments, args: &[(u32, Owned)]) -> Result<()> {
        let freed = self.slabs.freed();
        for (index, arg) in args {
            self.set(arguments, *index, arg.get(), freed)?;
        }
        Ok(())
    }

    /// Sets one argument unless the cached one is equal. `freed`: slabs freed so far.
    fn set(&self, arguments: &mut Arguments, index: u32, arg: Arg<'_>, freed: u64) -> Result<()> {
        let slot = index as usize;
        let before = match arguments.cached.get_mut(slot) {
            Some(cached) if cached.is(arg, freed) => return Ok(()),
            // A failed call leaves the argument unknown.
            Some(cached) => std::mem::take(cached),
            None => CachedArg::No,
        };
        self.set_native(index, arg)?;
        if arguments.open {
            return Ok(());
        }
        let now = CachedArg::of(arg, before, freed, &self.slabs);
        match arguments.cached.get_mut(slot) {
            Some(cached) => *cached = now,
            // OpenCL accepted the index, so that it is small.
            None => {
                arguments.cached.resize(slot, CachedArg::No);
                arguments.cached.push(now);
            }
        }
        Ok(())
    }

    fn set_native(&self, index: u32, arg: Arg<'_>) -> Result<()> {
        let (api, kernel) = (self.kernel.api(), self.kernel.raw());
        let set = |bytes: usize, value: *const c_void| {
            // SAFETY: the kernel is alive, and the value has that many bytes or is null for local memory.
            unsafe { (api.core.clSetKernelArg)(kernel, index, bytes, value) }
        };
        let handle = |raw: *mut c_void| set(size_of_val(&raw), (&raw const raw).cast());
        let code = match arg {
            Arg::Value(bytes) => set(bytes.len(), bytes.as_ptr().cast()),
            Arg::Local(bytes) => set(bytes, null()),
            Arg::Pointer(at) => {
                let at: *const c_void = ptr::with_exposed_provenance(at);
                let usm = api.ext().clSetKernelArgMemPointerINTEL;
                // SAFETY: the kernel is alive, and the caller promises a valid pointer.
                unsafe {
                    match (usm, api.core.clSetKernelArgSVMPointer) {
                        (_, Some(set)) if self.plain => set(kernel, index, at),
                        (Some(set), _) => set(kernel, index, at),
                        (None, Some(set)) => set(kernel, index, at),
                        (None, None) => return Err(Error::unsupported()),
                    }
                }
            }
            Arg::Mem(mem) => handle(mem.map_or(ptr::null_mut(), MemRef::raw)),
            Arg::Sampler(sampler) => handle(sampler.raw()),
        };
        check(code, "clSetKernelArg")
    }
}

/// The cached value of an argument, which need not be set again.
#[derive(Clone, Copy, Default)]
enum CachedArg {
    #[default]
    No,
    /// A value of at most 16 bytes, with its size.
    Value(u8, [u64; 2]),
    /// A pointer that was set once. If it is set again, its slab is looked up.
    Once(usize),
    /// A pointer into a slab, with the number of freed slabs at the time. OpenCL may have
    /// resolved it to a buffer.
    Pointer(usize, u64),
}

impl CachedArg {
    /// The cached value of an argument that was just set. `before` is the cached value until then.
    fn of(arg: Arg<'_>, before: Self, freed: u64, slabs: &Slabs) -> Self {
        match (arg, before) {
            (Arg::Value(bytes), _) => match number(bytes) {
                Some(value) => Self::Value(bytes.len() as u8, value),
                None => Self::No,
            },
            (Arg::Pointer(at), Self::Once(own) | Self::Pointer(own, _)) if own == at => {
                match slabs.hold(at) {
                    true => Self::Pointer(at, freed),
                    false => Self::No,
                }
            }
            (Arg::Pointer(at), _) => Self::Once(at),
            (Arg::Local(_) | Arg::Mem(_) | Arg::Sampler(_), _) => Self::No,
        }
    }

    fn is(self, arg: Arg<'_>, freed: u64) -> bool {
        match (self, arg) {
            (Self::Value(count, value), Arg::Value(bytes)) => {
                usize::from(count) == bytes.len() && number(bytes) == Some(value)
            }
            (Self::Pointer(own, then), Arg::Pointer(at)) => own == at && then == freed,
            _ => false,
        }
    }
}

/// At most 16 bytes, as two numbers.
fn number(bytes: &[u8]) -> Option<[u64; 2]> {
    // Nearly all arguments have one of these sizes, which need no loop.
    if let Ok(bytes) = bytes.try_into() {
        return Some([u32::from_ne_bytes(bytes).into(), 0]);
    }
    if let Ok(bytes) = bytes.try_into() {
        return Some([u64::from_ne_bytes(bytes), 0]);
    }
    let mut all = [[0; 8]; 2];
    all.as_flattened_mut()
        .get_mut(..bytes.len())?
        .copy_from_slice(bytes);
    Some(all.map(u64::from_ne_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_cached_while_it_means_the_same() {
        let slabs = Slabs::default();
        slabs.add(0x1000, 0x100);
        let set_once = |arg: Arg<'_>| CachedArg::of(arg, CachedArg::No, slabs.freed(), &slabs);
        for count in 0..16 {
            let all: Vec<u8> = (1..=count).collect();
            let cached = set_once(Arg::Value(&all));
            assert!(cached.is(Arg::Value(&all), 7), "{count}");
            let longer: Vec<u8> = (1..=count).chain([0]).collect();
            assert!(!cached.is(Arg::Value(&longer), 7), "{count}");
        }
        let long = [1; 17];
        assert!(!set_once(Arg::Value(&long)).is(Arg::Value(&long), 0));
        assert!(!set_once(Arg::Value(&[1; 8])).is(Arg::Value(&[2; 8]), 0));

        let set_twice = |at| {
            let (arg, now) = (Arg::Pointer(at), slabs.freed());
            let once = set_once(arg);
            assert!(!once.is(arg, now));
            CachedArg::of(arg, once, now, &slabs)
        };
        let inside = set_twice(0x10ff);
        assert!(inside.is(Arg::Pointer(0x10ff), slabs.freed()));
        assert!(!inside.is(Arg::Pointer(0x10fe), slabs.freed()));
        assert!(!set_twice(0x1100).is(Arg::Pointer(0x1100), slabs.freed()));
        slabs.remove(0x1000);
        assert!(!inside.is(Arg::Pointer(0x10ff), slabs.freed()));
    }
}

//! Kernels, and what a launch of one needs before it can be given to a lane.
//!
//! OpenCL keeps arguments in the kernel: they are set and the launch enqueued under one lock.

use std::ffi::c_void;
use std::ptr::{self, null};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opencl_sys::*;
use ur::abi::*;
use ur::hal::{self, Exported, KernelExecInfo, KernelGroupInfo, KernelInfo, KernelSubGroupInfo};
use ur::object::{Body, Error, InfoIn, InfoOut, Kind, Object, Result, ensure};
use ur::stream::{Context, LaunchRequest, Queue};

use crate::OpenCl;
use crate::cl::{self, Api, KernelRef, MemRef, SamplerRef, SuggestedSize, Version, check};
use crate::device::Device;
use crate::exec::{Lane, Slot};
use crate::mem::Mem;
use crate::program::Program;
use crate::record::Recorder;
use crate::sampler::Sampler;

pub struct Kernel {
    program: Arc<Object<Program>>,
    native: Arc<Native>,
}

/// The kernel with its lock, as launches keep it.
struct Native {
    kernel: KernelRef,
    arguments: Mutex<()>,
}

/// An argument as it was given.
enum Arg {
    Value { at: usize, bytes: usize },
    Pointer(usize),
    Local(usize),
    Mem(Option<MemRef>),
    Sampler(SamplerRef),
}

/// Arguments with their places.
type Indexed = Vec<(u32, Arg)>;

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
    pub fn new(program: &Object<Program>, kernel: KernelRef) -> Arc<Object<Self>> {
        let native = Arc::new(Native {
            kernel,
            arguments: Mutex::new(()),
        });
        hal::new::<OpenCl, _>(Self {
            program: program.arc(),
            native,
        })
    }

    pub fn from_native(
        context: &Object<Context<OpenCl>>,
        native: ur_native_handle_t,
        program: Option<&Object<Program>>,
        properties: Option<&ur_kernel_native_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        let raw = ptr::with_exposed_provenance_mut(native);
        let api = context.domain().state().context.api();
        // SAFETY: the caller says that this is a kernel of OpenCL.
        let kernel = unsafe { KernelRef::adopted(api, raw, owned) }?;
        let program = match program {
            Some(program) => program.arc(),
            None => {
                let ask = |size, value, ret| {
                    // SAFETY: a live kernel.
                    unsafe {
                        (api.core.clGetKernelInfo)(
                            kernel.raw(),
                            CL_KERNEL_PROGRAM,
                            size,
                            value,
                            ret,
                        )
                    }
                };
                let program: usize = cl::value(ask, "clGetKernelInfo")?;
                Program::from_native(context, program, None)?
            }
        };
        program.check_context(context)?;
        Ok(Self::new(&program, kernel))
    }

    fn raw(&self) -> cl_kernel {
        self.native.kernel.raw()
    }

    fn api(&self) -> &'static Api {
        self.native.kernel.api()
    }

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

    fn suggest(
        &self,
        queue: &Object<Queue<OpenCl>>,
        offset: &[usize],
        global: &[usize],
        args: &[ur_exp_kernel_arg_properties_t],
        local: &mut [usize],
    ) -> Result<()> {
        let dims = global.len();
        ensure(
            (1..=3).contains(&dims),
            UR_RESULT_ERROR_INVALID_WORK_DIMENSION,
        )?;
        let sizes = match self.api().ext.clGetKernelSuggestedLocalWorkSizeKHR {
            Some(ask) => self.ask_local(ask, queue, offset, global, args)?,
            None => None,
        };
        let sizes = sizes.map_or_else(|| self.choose_local(queue.device(), global), Ok)?;
        local.copy_from_slice(&sizes[..local.len().min(3)]);
        Ok(())
    }

    /// What the driver suggests. It wants all arguments before; none if it lacks some.
    fn ask_local(
        &self,
        ask: SuggestedSize,
        queue: &Object<Queue<OpenCl>>,
        offset: &[usize],
        global: &[usize],
        args: &[ur_exp_kernel_arg_properties_t],
    ) -> Result<Option<[usize; 3]>> {
        let context = &queue.context().domain().state().context;
        let lane = Lane::open(context, queue.device(), ur_queue_flags_t(0))?;
        let (args, values) = arguments(args)?;
        let offset = if offset.is_empty() {
            null()
        } else {
            offset.as_ptr()
        };
        let (dims, mut sizes) = (global.len() as u32, [1; 3]);
        let _held = self
            .native
            .arguments
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (index, arg) in &args {
            self.native.set(*index, arg, &values)?;
        }
        // SAFETY: a live queue and kernel; as many sizes as there are dimensions.
        let code = unsafe {
            ask(
                lane.queue().raw(),
                self.raw(),
                dims,
                offset,
                global.as_ptr(),
                sizes.as_mut_ptr(),
            )
        };
        if code == CL_INVALID_KERNEL_ARGS {
            return Ok(None);
        }
        check(code, "clGetKernelSuggestedLocalWorkSizeKHR")?;
        Ok(Some(sizes))
    }

    /// A work-group size that divides the global one: what the kernel requires, or as many work-items
    /// in the first dimension as it takes.
    fn choose_local(&self, device: &Object<Device>, global: &[usize]) -> Result<[usize; 3]> {
        let required: [usize; 3] = self.group(device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE)?;
        if required[0] > 0 {
            return Ok(required);
        }
        let most: usize = self.group(device, CL_KERNEL_WORK_GROUP_SIZE)?;
        let first = (1..=most.min(global[0].max(1)))
            .rev()
            .find(|size| global[0].is_multiple_of(*size));
        Ok([first.unwrap_or(1), 1, 1])
    }
}

fn arguments(list: &[ur_exp_kernel_arg_properties_t]) -> Result<(Indexed, Vec<u8>)> {
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
    /// Sets the arguments and records.
    pub fn record(&self, to: &Recorder) -> Result<()> {
        let record = to.api().ext.clCommandNDRangeKernelKHR;
        let record = record.ok_or(Error::unsupported())?;
        let _held = self.set()?;
        let (kernel, none) = (self.native.kernel.raw(), ptr::null_mut());
        let [offset, global, local] = self.sizes();
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
    }

    /// Sets the arguments, which stay as long as the lock is held.
    fn set(&self) -> Result<MutexGuard<'_, ()>> {
        let held = self.native.arguments.lock();
        let held = held.unwrap_or_else(PoisonError::into_inner);
        for (index, arg) in &self.args {
            self.native.set(*index, arg, &self.values)?;
        }
        Ok(held)
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
        let _held = self.set()?;
        let Slot {
            queue,
            count,
            waits,
            event,
        } = *slot;
        let [offset, global, local] = self.sizes();
        let kernel = self.native.kernel.raw();
        let launch = api.core.clEnqueueNDRangeKernel;
        // SAFETY: a live queue and kernel; as many sizes as there are dimensions.
        let code = unsafe {
            launch(
                queue, kernel, self.dims, offset, global, local, count, waits, event,
            )
        };
        check(code, "clEnqueueNDRangeKernel")
    }
}

impl Kernel {
    fn property<T: Copy>(&self, what: cl_kernel_info) -> Result<Vec<T>> {
        // SAFETY: a live kernel.
        let ask = |size, value, ret| unsafe {
            (self.api().core.clGetKernelInfo)(self.raw(), what, size, value, ret)
        };
        cl::list(ask, "clGetKernelInfo")
    }

    fn group<T: Copy>(
        &self,
        device: &Object<Device>,
        what: cl_kernel_work_group_info,
    ) -> Result<T> {
        // SAFETY: a live kernel and device.
        let ask = |size, value, ret| unsafe {
            (self.api().core.clGetKernelWorkGroupInfo)(
                self.raw(),
                device.raw(),
                what,
                size,
                value,
                ret,
            )
        };
        cl::value(ask, "clGetKernelWorkGroupInfo")
    }

    fn sub_group(
        &self,
        device: &Object<Device>,
        what: cl_kernel_sub_group_info,
        input: &[usize],
    ) -> Result<usize> {
        let modern = device.version >= Version::new(2, 1);
        let core = self.api().core.clGetKernelSubGroupInfo.filter(|_| modern);
        let ask = core.or(self.api().ext.clGetKernelSubGroupInfoKHR);
        let ask = ask.ok_or(Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION))?;
        let mut result = 0usize;
        // SAFETY: a live kernel and device; the input's size is told.
        let code = unsafe {
            ask(
                self.raw(),
                device.raw(),
                what,
                size_of_val(input),
                if input.is_empty() {
                    null()
                } else {
                    input.as_ptr().cast()
                },
                size_of::<usize>(),
                (&raw mut result).cast(),
                ptr::null_mut(),
            )
        };
        // From a device without sub-groups.
        ensure(
            code != CL_INVALID_OPERATION,
            UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION,
        )?;
        check(code, "clGetKernelSubGroupInfo")?;
        Ok(result)
    }

    fn exec_info(
        &self,
        what: cl_kernel_exec_info,
        bytes: usize,
        value: *const c_void,
    ) -> Result<()> {
        let set = self
            .api()
            .core
            .clSetKernelExecInfo
            .ok_or(Error::unsupported())?;
        // SAFETY: a live kernel, and a value of that many bytes.
        check(
            unsafe { set(self.raw(), what, bytes, value) },
            "clSetKernelExecInfo",
        )
    }
}

impl Body for Kernel {
    const KIND: Kind = Kind::Kernel;
}

impl hal::Kernel<OpenCl> for Kernel {
    fn get_info(this: &Object<Self>, what: KernelInfo, out: InfoOut<'_>) -> Result<()> {
        match what {
            KernelInfo::FunctionName => out.slice(&this.property::<u8>(CL_KERNEL_FUNCTION_NAME)?),
            KernelInfo::NumArgs => out.slice(&this.property::<u32>(CL_KERNEL_NUM_ARGS)?),
            KernelInfo::ReferenceCount => out.value(this.api_refs()),
            KernelInfo::Context => out.handle(Some(this.program.context())),
            KernelInfo::Program => out.handle(Some(&this.program)),
            KernelInfo::Attributes => out.slice(&this.property::<u8>(CL_KERNEL_ATTRIBUTES)?),
            KernelInfo::NumRegs => Err(Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION)),
            KernelInfo::SpillMemSize => {
                /// `CL_KERNEL_SPILL_MEM_SIZE_INTEL`
                const SPILL: cl_kernel_work_group_info = 0x4109;
                let devices = this.program.context().devices();
                let each = devices
                    .iter()
                    .map(|device| this.group::<cl_ulong>(device, SPILL));
                let each = each
                    .map(|spill| spill.map(|bytes| bytes as u32))
                    .collect::<Result<Vec<_>>>();
                out.slice(&each.map_err(|_| Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION))?)
            }
        }
    }

    fn get_group_info(
        this: &Object<Self>,
        device: &Object<Device>,
        what: KernelGroupInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        let size = |what| this.group::<usize>(device, what);
        match what {
            KernelGroupInfo::GlobalWorkSize => {
                // OpenCL tells this of built-in kernels and custom devices alone; elsewhere any size
                // goes that a `size_t` holds.
                let told = this.group(device, CL_KERNEL_GLOBAL_WORK_SIZE);
                out.value(told.unwrap_or([usize::MAX; 3]))
            }
            KernelGroupInfo::WorkGroupSize => out.value(size(CL_KERNEL_WORK_GROUP_SIZE)?),
            KernelGroupInfo::CompileWorkGroupSize => {
                out.value(this.group::<[usize; 3]>(device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE)?)
            }
            KernelGroupInfo::LocalMemSize => {
                out.value(this.group::<cl_ulong>(device, CL_KERNEL_LOCAL_MEM_SIZE)? as usize)
            }
            KernelGroupInfo::PreferredWorkGroupSizeMultiple => {
                out.value(size(CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE)?)
            }
            KernelGroupInfo::PrivateMemSize => {
                out.value(this.group::<cl_ulong>(device, CL_KERNEL_PRIVATE_MEM_SIZE)? as usize)
            }
            KernelGroupInfo::CompileMaxWorkGroupSize
            | KernelGroupInfo::CompileMaxLinearWorkGroupSize => {
                Err(Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION))
            }
        }
    }

    fn get_sub_group_info(
        this: &Object<Self>,
        device: &Object<Device>,
        what: KernelSubGroupInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        /// `CL_KERNEL_COMPILE_SUB_GROUP_SIZE_INTEL`
        const REQUIRED: cl_kernel_sub_group_info = 0x410A;
        let largest = || device.list::<usize>(CL_DEVICE_MAX_WORK_ITEM_SIZES);
        let number = |what, input: &[usize]| {
            this.sub_group(device, what, input)
                .map(|number| number as u32)
        };
        match what {
            KernelSubGroupInfo::MaxSubGroupSize => out.value(number(
                CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE,
                &largest()?,
            )?),
            KernelSubGroupInfo::MaxNumSubGroups => {
                out.value(number(CL_KERNEL_MAX_NUM_SUB_GROUPS, &[])?)
            }
            KernelSubGroupInfo::CompileNumSubGroups => {
                out.value(number(CL_KERNEL_COMPILE_NUM_SUB_GROUPS, &[])?)
            }
            KernelSubGroupInfo::SubGroupSizeIntel => {
                let required = match device.has("cl_intel_required_subgroup_size") {
                    true => number(REQUIRED, &[])?,
                    false => 0,
                };
                out.value(required)
            }
        }
    }

    fn set_exec_info(
        this: &Object<Self>,
        what: KernelExecInfo,
        _: Option<&ur_kernel_exec_info_properties_t>,
        value: InfoIn<'_>,
    ) -> Result<()> {
        const INDIRECT: [cl_kernel_exec_info; 3] = [
            CL_KERNEL_EXEC_INFO_INDIRECT_HOST_ACCESS_INTEL,
            CL_KERNEL_EXEC_INFO_INDIRECT_DEVICE_ACCESS_INTEL,
            CL_KERNEL_EXEC_INFO_INDIRECT_SHARED_ACCESS_INTEL,
        ];
        match what {
            KernelExecInfo::UsmIndirectAccess => {
                let on = cl_bool::from(value.value::<ur_bool_t>()? != 0);
                if !this.api().has_usm() {
                    // Shared virtual memory of fine grain needs no telling.
                    return Ok(());
                }
                let each =
                    |what| this.exec_info(what, size_of::<cl_bool>(), (&raw const on).cast());
                INDIRECT.into_iter().try_for_each(each)
            }
            KernelExecInfo::UsmPtrs => {
                ensure(
                    value.len().is_multiple_of(size_of::<usize>()),
                    UR_RESULT_ERROR_INVALID_SIZE,
                )?;
                let what = match this.api().has_usm() {
                    true => CL_KERNEL_EXEC_INFO_USM_PTRS_INTEL,
                    false => CL_KERNEL_EXEC_INFO_SVM_PTRS,
                };
                this.exec_info(what, value.len(), value.bytes().as_ptr().cast())
            }
            KernelExecInfo::CacheConfig => {
                // OpenCL has no such setting: a valid wish is no error.
                let config = value.value::<ur_kernel_cache_config_t>()?;
                let known = ur_kernel_cache_config_t::ALL.contains(&config);
                ensure(known, UR_RESULT_ERROR_INVALID_ENUMERATION)
            }
        }
    }

    fn get_native_handle(this: &Object<Self>) -> Result<ur_native_handle_t> {
        Ok(this.raw().expose_provenance())
    }

    fn get_suggested_local_work_size(
        this: &Object<Self>,
        queue: &Object<Queue<OpenCl>>,
        offset: &[usize],
        global: &[usize],
        local: &mut [usize],
    ) -> Result<()> {
        this.suggest(queue, offset, global, &[], local)
    }

    fn get_suggested_local_work_size_with_args(
        this: &Object<Self>,
        queue: &Object<Queue<OpenCl>>,
        offset: &[usize],
        global: &[usize],
        args: &[ur_exp_kernel_arg_properties_t],
        local: &mut [usize],
    ) -> Result<()> {
        this.suggest(queue, offset, global, args, local)
    }
}

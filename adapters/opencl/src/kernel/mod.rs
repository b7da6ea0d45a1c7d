//! Kernels: their creation and properties. `launch` sets arguments and enqueues, `check` checks launches
//! that are enqueued later, and `suggest` chooses work-group sizes.

mod check;
mod launch;
mod suggest;

pub use launch::Launch;
use launch::Native;

use std::ffi::c_void;
use std::ptr::{self, null};
use std::sync::Arc;

use opencl_sys::*;
use ur::abi::*;
use ur::hal::answers::ExecInfo;
use ur::hal::{self, KernelExecInfo, KernelGroupInfo, KernelInfo, KernelSubGroupInfo};
use ur::object::{Body, Error, InfoIn, InfoOut, Kind, Object, Result, ensure};
use ur::stream::{Context, Queue};

use crate::OpenCl;
use crate::cl::{self, Api, KernelRef, Version, check};
use crate::device::Device;
use crate::program::Program;

pub struct Kernel {
    program: Arc<Object<Program>>,
    native: Arc<Native>,
}

/// The number of a kernel's arguments, or 0 if the driver does not report it.
fn count_of(kernel: &KernelRef) -> usize {
    // SAFETY: `KernelRef` holds a reference to the kernel, and `cl` passes a buffer of that size.
    let query = |size, value, ret| unsafe {
        (kernel.api().core.clGetKernelInfo)(kernel.raw(), CL_KERNEL_NUM_ARGS, size, value, ret)
    };
    cl::value::<cl_uint>(query, "clGetKernelInfo").map_or(0, |count| count as usize)
}

impl Kernel {
    pub fn new(program: &Object<Program>, kernel: KernelRef) -> Arc<Object<Self>> {
        Self::over(program, kernel, false)
    }

    fn over(program: &Object<Program>, kernel: KernelRef, open: bool) -> Arc<Object<Self>> {
        let domain = program.context().domain();
        let plain = domain.devices().iter().all(|one| one.shares_addresses());
        let count = count_of(&kernel);
        let native = Native::new(kernel, count, &domain.state().slabs, plain, open);
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
        // SAFETY: `urKernelCreateWithNativeHandle` requires a native kernel.
        let kernel = unsafe { KernelRef::adopted(api, raw, false) }?;
        let program = match program {
            Some(program) => program.arc(),
            None => {
                let query = |size, value, ret| {
                    // SAFETY: `KernelRef` holds a reference to the kernel, and `cl` passes a buffer of that size.
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
                let program: usize = cl::value(query, "clGetKernelInfo")?;
                Program::from_native(context, program, None)?
            }
        };
        program.check_context(context)?;
        kernel.own(owned);
        Ok(Self::over(&program, kernel, true))
    }

    fn raw(&self) -> cl_kernel {
        self.native.kernel.raw()
    }

    fn api(&self) -> &'static Api {
        self.native.kernel.api()
    }

    fn property<T: Copy>(&self, what: cl_kernel_info) -> Result<Vec<T>> {
        // SAFETY: `KernelRef` holds a reference to the kernel, and `cl` passes a buffer of that size.
        let query = |size, value, ret| unsafe {
            (self.api().core.clGetKernelInfo)(self.raw(), what, size, value, ret)
        };
        cl::list(query, "clGetKernelInfo")
    }

    fn group<T: Copy>(
        &self,
        device: &Object<Device>,
        what: cl_kernel_work_group_info,
    ) -> Result<T> {
        // SAFETY: the kernel and the device are alive, and `cl` passes a buffer of that size.
        let query = |size, value, ret| unsafe {
            (self.api().core.clGetKernelWorkGroupInfo)(
                self.raw(),
                device.raw(),
                what,
                size,
                value,
                ret,
            )
        };
        cl::value(query, "clGetKernelWorkGroupInfo")
    }

    fn sub_group(
        &self,
        device: &Object<Device>,
        what: cl_kernel_sub_group_info,
        input: &[usize],
    ) -> Result<usize> {
        let modern = device.version() >= Version::new(2, 1);
        let core = self.api().core.clGetKernelSubGroupInfo.filter(|_| modern);
        let query = core.or(self.api().ext().clGetKernelSubGroupInfoKHR);
        let query = query.ok_or(Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION))?;
        let mut result = 0usize;
        // SAFETY: the kernel and the device are alive, and both sizes are those of their memory.
        let code = unsafe {
            query(
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
        // A device without sub-groups answers this.
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
        // SAFETY: the kernel is alive, and the callers pass a value of that many bytes.
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
                // OpenCL reports it only for built-in kernels and custom devices. Elsewhere a `size_t` is
                // the only limit.
                let size = this.group(device, CL_KERNEL_GLOBAL_WORK_SIZE);
                out.value(size.unwrap_or([usize::MAX; 3]))
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
        match ExecInfo::read(what, value)? {
            ExecInfo::IndirectAccess(on) => {
                let on = cl_bool::from(on);
                if !this.api().has_usm() {
                    // Kernels reach all fine-grained shared virtual memory.
                    return Ok(());
                }
                let each =
                    |what| this.exec_info(what, size_of::<cl_bool>(), (&raw const on).cast());
                INDIRECT.into_iter().try_for_each(each)
            }
            ExecInfo::Pointers(pointers) => {
                let what = match this.api().has_usm() {
                    true => CL_KERNEL_EXEC_INFO_USM_PTRS_INTEL,
                    false => CL_KERNEL_EXEC_INFO_SVM_PTRS,
                };
                this.exec_info(what, pointers.len(), pointers.as_ptr().cast())
            }
            // OpenCL has no such setting. The preference is a hint, so that it is no error.
            ExecInfo::Cache(_) => Ok(()),
        }
    }

    fn get_native_handle(this: &Object<Self>) -> Result<ur_native_handle_t> {
        Ok(this.native.expose().raw().expose_provenance())
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

//! Kernels, and how a launch is checked and made ready for a lane.

use std::ffi::{CStr, CString};
use std::sync::{Arc, OnceLock};

use ur::abi::*;
use ur::hal::answers::ExecInfo;
use ur::hal::{self, Exported, KernelExecInfo, KernelGroupInfo, KernelInfo, KernelSubGroupInfo};
use ur::object::env::Env;
use ur::object::{Body, Error, InfoIn, InfoOut, Kind, Object, Result, ensure};
use ur::stream::{LaunchRequest, Queue};

use crate::Cpu;
use crate::device::{Device, LAUNCH_PROPERTIES, MAX_GROUP_ITEMS, MAX_GROUPS};
use crate::exec::{Args, Form, LOCAL_BYTES, Launch, NdRange};
use crate::mem::Mem;
use crate::program::{Code, Metadata, Program};

pub struct Kernel {
    program: Arc<Object<Program>>,
    name: CString,
    /// The code for each device of the program that has the kernel. Never empty.
    codes: Vec<(Arc<Object<Device>>, Code)>,
    form: Form,
    /// The required work-group size, if the kernel has one.
    group_size: Option<[usize; 3]>,
    /// The number of arguments that the kernel takes, if the metadata or the shared object says it.
    arg_count: Option<u32>,
}

/// Limit on the index of an argument, against a mistaken index that would take all memory.
pub const MAX_ARGS: u32 = 1 << 16;

/// Most work-items of a work-group whose size the adapter chooses.
const MAX_CHOSEN_ITEMS: usize = 256;

impl Kernel {
    pub fn new(
        program: &Object<Program>,
        name: &CStr,
        codes: Vec<(Arc<Object<Device>>, Code)>,
        metadata: &Metadata,
    ) -> Result<Arc<Object<Self>>> {
        let mut arg_count = metadata.arg_count(name);
        for (_, code) in &codes {
            arg_count = match arg_count {
                None => code.image.arg_count(name)?,
                known => known,
            };
        }
        Ok(hal::new::<Cpu, _>(Self {
            program: program.arc(),
            name: name.into(),
            codes,
            form: metadata.form(name).unwrap_or_else(default_form),
            group_size: metadata.group_size(name),
            arg_count,
        }))
    }

    fn code(&self, device: &Object<Device>) -> Result<&Code> {
        let own = self
            .codes
            .iter()
            .find(|(own, _)| Device::is_part_of(device, own));
        let any = own.or(self.codes.first());
        any.map(|(_, code)| code)
            .ok_or(Error::new(UR_RESULT_ERROR_INVALID_KERNEL))
    }

    /// Checks a launch and copies its arguments.
    ///
    /// `INVALID_KERNEL_ARGS` if an argument is missing, as far as their number is known: from the metadata, from the
    /// shared object, or from the last argument given. `OUT_OF_RESOURCES` for more local memory than a thread has.
    pub fn launch(&self, device: &Object<Device>, request: &LaunchRequest<'_>) -> Result<Launch> {
        request.attributes(LAUNCH_PROPERTIES)?;
        let range = self.range(device, request)?;
        let args = args(request.args, self.arg_count)?;
        ensure(
            args.local_bytes() <= LOCAL_BYTES,
            UR_RESULT_ERROR_OUT_OF_RESOURCES,
        )?;
        let code = self.code(device)?;
        let image = Arc::clone(&code.image);
        // SAFETY: a caller of `urEnqueueKernelLaunchWithArgsExp` passes the arguments that the kernel takes.
        Ok(unsafe { Launch::new(code.function, self.form, range, args, Some(image)) })
    }

    fn range(&self, device: &Object<Device>, request: &LaunchRequest<'_>) -> Result<NdRange> {
        ensure(
            (1..=3).contains(&request.dims),
            UR_RESULT_ERROR_INVALID_WORK_DIMENSION,
        )?;
        let dims = request.dims as usize;
        let sizes = |allowed: [usize; 3], rest| {
            std::array::from_fn(|axis| if axis < dims { allowed[axis] } else { rest })
        };
        let global: [usize; 3] = sizes(request.global, 1);
        let local = match request.local {
            Some(local) => sizes(local, 1),
            None => self.suggest(device, global),
        };
        ensure(
            local.iter().all(|&axis| axis > 0),
            UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE,
        )?;
        ensure(
            local.iter().all(|&axis| axis <= MAX_GROUP_ITEMS),
            UR_RESULT_ERROR_INVALID_WORK_ITEM_SIZE,
        )?;
        let fits = local.iter().product::<usize>() <= MAX_GROUP_ITEMS;
        let wanted = self.group_size.is_none_or(|required| required == local);
        let even = (0..3).all(|axis| global[axis].is_multiple_of(local[axis]));
        ensure(
            fits && wanted && even,
            UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE,
        )?;
        let groups: [usize; 3] = std::array::from_fn(|axis| global[axis] / local[axis]);
        let count = groups
            .iter()
            .try_fold(1usize, |all, &axis| all.checked_mul(axis));
        ensure(
            count.is_some_and(|count| count <= MAX_GROUPS),
            UR_RESULT_ERROR_INVALID_VALUE,
        )?;
        Ok(NdRange {
            offset: sizes(request.offset, 0),
            groups,
            local,
        })
    }

    /// A work-group size that divides the global size into enough groups for all workers. The required
    /// size, if the kernel has one.
    fn suggest(&self, device: &Object<Device>, global: [usize; 3]) -> [usize; 3] {
        if let Some(required) = self.group_size {
            return required;
        }
        let items = global
            .iter()
            .fold(1usize, |all, &axis| all.saturating_mul(axis));
        let share = items / (device.workers.count * 8);
        let max_items = share.clamp(1, MAX_CHOSEN_ITEMS).min(global[0].max(1));
        let first = (1..=max_items)
            .rev()
            .find(|&size| global[0].is_multiple_of(size));
        [first.unwrap_or(1), 1, 1]
    }
}

/// `UR_NATIVE_CPU_KERNEL_FORM`: `group` if the program's compiler made kernels that loop over
/// their work-groups, as DPC++ does when it is built with the oneAPI construction kit.
fn default_form() -> Form {
    static FORM: OnceLock<Form> = OnceLock::new();
    *FORM.get_or_init(|| {
        let item = ("item", Form::Item);
        Env::process().word("UR_NATIVE_CPU_KERNEL_FORM", item, &[("group", Form::Group)])
    })
}

/// Copies the arguments of a launch. `known`: the number of arguments that the kernel takes.
fn args(list: &[ur_exp_kernel_arg_properties_t], known: Option<u32>) -> Result<Args> {
    let mut args = Args::with_capacity(list.len());
    for arg in list {
        ensure(
            arg.index < known.unwrap_or(MAX_ARGS),
            UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX,
        )?;
        let index = arg.index as usize;
        // SAFETY: `type` names the valid member of the value, and the caller keeps memory that it points
        // to for the call.
        unsafe {
            match arg.r#type {
                UR_EXP_KERNEL_ARG_TYPE_VALUE => {
                    ensure(arg.size > 0, UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE)?;
                    args.value(index, hal::checks::slice(arg.value.value.cast(), arg.size)?);
                }
                UR_EXP_KERNEL_ARG_TYPE_POINTER => {
                    args.pointer(index, arg.value.pointer.expose_provenance());
                }
                UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ => {
                    let handle = arg.value.memObjTuple.hMem;
                    let address = if handle.is_null() {
                        0
                    } else {
                        Object::<Mem>::borrow(handle.cast(), Cpu::table())?.address()
                    };
                    args.pointer(index, address);
                }
                UR_EXP_KERNEL_ARG_TYPE_LOCAL => args.local(index, arg.size),
                UR_EXP_KERNEL_ARG_TYPE_SAMPLER => return Err(Error::unsupported()),
                _ => return Err(Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION)),
            }
        }
    }
    let count = args.count();
    let complete = count.is_some_and(|count| known.is_none_or(|known| count == known as usize));
    ensure(complete, UR_RESULT_ERROR_INVALID_KERNEL_ARGS)?;
    Ok(args)
}

impl Body for Kernel {
    const KIND: Kind = Kind::Kernel;
}

impl hal::Kernel<Cpu> for Kernel {
    fn get_info(this: &Object<Self>, what: KernelInfo, out: InfoOut<'_>) -> Result<()> {
        match what {
            KernelInfo::FunctionName => out.slice(this.name.to_bytes_with_nul()),
            KernelInfo::ReferenceCount => out.value(this.api_refs()),
            KernelInfo::Context => out.handle(Some(this.program.context())),
            KernelInfo::Program => out.handle(Some(&this.program)),
            KernelInfo::Attributes => out.string(""),
            // Machine code does not tell its arguments, but the metadata or a variable may.
            KernelInfo::NumArgs => {
                let unknown = Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
                out.value(this.arg_count.ok_or(unknown)?)
            }
            KernelInfo::NumRegs | KernelInfo::SpillMemSize => {
                Err(Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION))
            }
        }
    }

    fn get_group_info(
        this: &Object<Self>,
        _: &Object<Device>,
        what: KernelGroupInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        match what {
            KernelGroupInfo::GlobalWorkSize => out.value([MAX_GROUPS; 3]),
            KernelGroupInfo::WorkGroupSize => {
                let required = this.group_size.map(|size| size.iter().product());
                out.value(required.unwrap_or(MAX_GROUP_ITEMS))
            }
            KernelGroupInfo::CompileWorkGroupSize => out.value(this.group_size.unwrap_or([0; 3])),
            KernelGroupInfo::LocalMemSize | KernelGroupInfo::PrivateMemSize => out.value(0usize),
            KernelGroupInfo::PreferredWorkGroupSizeMultiple => out.value(1usize),
            KernelGroupInfo::CompileMaxWorkGroupSize => out.value([0usize; 3]),
            KernelGroupInfo::CompileMaxLinearWorkGroupSize => out.value(0usize),
        }
    }

    fn get_sub_group_info(
        _: &Object<Self>,
        _: &Object<Device>,
        what: KernelSubGroupInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        match what {
            KernelSubGroupInfo::MaxSubGroupSize => out.value(1u32),
            KernelSubGroupInfo::MaxNumSubGroups => out.value(MAX_GROUP_ITEMS as u32),
            KernelSubGroupInfo::CompileNumSubGroups | KernelSubGroupInfo::SubGroupSizeIntel => {
                out.value(0u32)
            }
        }
    }

    fn get_suggested_local_work_size_with_args(
        this: &Object<Self>,
        queue: &Object<Queue<Cpu>>,
        _: &[usize],
        global: &[usize],
        _: &[ur_exp_kernel_arg_properties_t],
        suggested: &mut [usize],
    ) -> Result<()> {
        let mut whole = [1; 3];
        whole[..global.len()].copy_from_slice(global);
        let group = this.suggest(queue.device(), whole);
        suggested.copy_from_slice(&group[..suggested.len()]);
        Ok(())
    }

    fn set_exec_info(
        _: &Object<Self>,
        what: KernelExecInfo,
        _: Option<&ur_kernel_exec_info_properties_t>,
        value: InfoIn<'_>,
    ) -> Result<()> {
        // Kernels reach all memory, and the processor manages its caches itself.
        ExecInfo::read(what, value).map(drop)
    }
}

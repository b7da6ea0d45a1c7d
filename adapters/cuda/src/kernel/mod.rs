//! Kernels: their functions on each device (`code`), packed arguments (`args`), launches (`launch`), and
//! the short path of most launches (`plain`).

mod args;
mod code;
mod launch;
mod plain;

use std::ffi::{CStr, CString};
use std::sync::Arc;

use ur::abi::*;
use ur::hal::answers::ExecInfo;
use ur::hal::{self, KernelExecInfo, KernelGroupInfo, KernelInfo, KernelSubGroupInfo};
use ur::object::{Body, Error, InfoIn, InfoOut, Kind, Object, Result, ensure};
use ur::stream::Queue;

pub use code::Code;
pub use launch::Launch;
pub use plain::Plain;

use crate::Cuda;
use crate::cu::sys::CUfunc_cache;
use crate::device::Device;
use crate::program::{GroupRules, Program};

/// A kernel. Members that every launch reads come first, here and in [`Code`].
#[repr(C)]
pub struct Kernel {
    /// The first of `codes`, which mostly is the only one.
    first: Option<(Arc<Object<Device>>, Arc<Code>)>,
    /// Whether `rules` has no rule.
    is_unruled: bool,
    rules: GroupRules,
    /// The code for each device of the program that has the kernel. Never empty.
    codes: Vec<(Arc<Object<Device>>, Arc<Code>)>,
    program: Arc<Object<Program>>,
    name: CString,
}

impl Kernel {
    pub fn new(
        program: &Object<Program>,
        name: &CStr,
        codes: Vec<(Arc<Object<Device>>, Arc<Code>)>,
        rules: GroupRules,
    ) -> Arc<Object<Self>> {
        hal::new::<Cuda, _>(Self {
            program: program.arc(),
            name: name.into(),
            first: codes.first().cloned(),
            codes,
            is_unruled: rules == GroupRules::default(),
            rules,
        })
    }

    /// The code for a device.
    fn code(&self, device: &Object<Device>) -> Result<&Arc<Code>> {
        let mut codes = self.codes.iter();
        let found = codes.find(|(own, _)| std::ptr::eq(&**own, device));
        let (_, code) = found.ok_or(Error::new(UR_RESULT_ERROR_INVALID_KERNEL))?;
        Ok(code)
    }

    fn first(&self) -> Result<&Arc<Code>> {
        let first = self.first.as_ref().map(|(_, code)| code);
        first.ok_or(Error::new(UR_RESULT_ERROR_INVALID_KERNEL))
    }

    fn suggest(
        &self,
        queue: &Object<Queue<Cuda>>,
        global: &[usize],
        local: &mut [usize],
    ) -> Result<()> {
        ensure(
            (1..=3).contains(&global.len()),
            UR_RESULT_ERROR_INVALID_WORK_DIMENSION,
        )?;
        let device = queue.device();
        let mut whole = [1; 3];
        whole[..global.len()].copy_from_slice(global);
        let chosen = self.choose(self.code(device)?, &device.limits, whole);
        local.copy_from_slice(&chosen[..local.len().min(3)]);
        Ok(())
    }
}

impl Body for Kernel {
    const KIND: Kind = Kind::Kernel;
}

impl hal::Kernel<Cuda> for Kernel {
    fn get_info(this: &Object<Self>, what: KernelInfo, out: InfoOut<'_>) -> Result<()> {
        let absent = Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
        match what {
            KernelInfo::FunctionName => out.slice(this.name.to_bytes_with_nul()),
            KernelInfo::ReferenceCount => out.value(this.api_refs()),
            KernelInfo::Context => out.handle(Some(this.program.context())),
            KernelInfo::Program => out.handle(Some(&this.program)),
            KernelInfo::Attributes => out.string(""),
            KernelInfo::NumRegs => out.value(this.first()?.plain.registers as u32),
            KernelInfo::NumArgs => {
                let layout = this.first()?.plain.layout.as_ref();
                out.value(layout.ok_or(absent)?.len() as u32)
            }
            KernelInfo::SpillMemSize => {
                let bytes = this
                    .codes
                    .iter()
                    .map(|(_, code)| code.plain.private_bytes as u32);
                out.slice(&bytes.collect::<Vec<_>>())
            }
        }
    }

    fn get_group_info(
        this: &Object<Self>,
        device: &Object<Device>,
        what: KernelGroupInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        let function = &this.code(device)?.plain;
        let rules = &this.rules;
        match what {
            KernelGroupInfo::GlobalWorkSize => {
                let limits = &device.limits;
                let max = |axis: usize| limits.grid[axis].saturating_mul(limits.group[axis]);
                out.value([max(0), max(1), max(2)])
            }
            KernelGroupInfo::WorkGroupSize => out.value(function.group_items),
            KernelGroupInfo::CompileWorkGroupSize => out.value(rules.required.unwrap_or([0; 3])),
            KernelGroupInfo::LocalMemSize => out.value(function.local_bytes),
            KernelGroupInfo::PreferredWorkGroupSizeMultiple => out.value(device.limits.warp),
            KernelGroupInfo::PrivateMemSize => out.value(function.private_bytes),
            KernelGroupInfo::CompileMaxWorkGroupSize => out.value(rules.max.unwrap_or([0; 3])),
            KernelGroupInfo::CompileMaxLinearWorkGroupSize => {
                out.value(rules.max_linear.unwrap_or(0))
            }
        }
    }

    fn get_sub_group_info(
        this: &Object<Self>,
        device: &Object<Device>,
        what: KernelSubGroupInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        let function = &this.code(device)?.plain;
        let warp = device.limits.warp;
        match what {
            KernelSubGroupInfo::MaxSubGroupSize => out.value(warp as u32),
            KernelSubGroupInfo::MaxNumSubGroups => {
                out.value(function.group_items.div_ceil(warp) as u32)
            }
            KernelSubGroupInfo::CompileNumSubGroups | KernelSubGroupInfo::SubGroupSizeIntel => {
                out.value(0u32)
            }
        }
    }

    fn get_native_handle(this: &Object<Self>) -> Result<ur_native_handle_t> {
        Ok(this.first()?.plain.raw.expose_provenance())
    }

    fn get_suggested_local_work_size_with_args(
        this: &Object<Self>,
        queue: &Object<Queue<Cuda>>,
        _: &[usize],
        global: &[usize],
        _: &[ur_exp_kernel_arg_properties_t],
        local: &mut [usize],
    ) -> Result<()> {
        this.suggest(queue, global, local)
    }

    fn suggest_max_cooperative_group_count(
        this: &Object<Self>,
        device: &Object<Device>,
        dims: u32,
        local: &[usize],
        local_bytes: usize,
    ) -> Result<u32> {
        ensure(
            (1..=3).contains(&dims),
            UR_RESULT_ERROR_INVALID_WORK_DIMENSION,
        )?;
        let able = device.launch_properties();
        ensure(
            able.contains(UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE),
            UR_RESULT_ERROR_UNSUPPORTED_FEATURE,
        )?;
        let items = local.iter().product::<usize>();
        let within = (1..=device.limits.group_items).contains(&items);
        ensure(within, UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE)?;
        let code = this.code(device)?;
        code.resident_groups(&device.limits, items, local_bytes)
    }

    fn set_exec_info(
        this: &Object<Self>,
        what: KernelExecInfo,
        _: Option<&ur_kernel_exec_info_properties_t>,
        value: InfoIn<'_>,
    ) -> Result<()> {
        match ExecInfo::read(what, value)? {
            // Kernels reach all memory.
            ExecInfo::IndirectAccess(_) | ExecInfo::Pointers(_) => Ok(()),
            ExecInfo::Cache(config) => {
                let cache = match config {
                    UR_KERNEL_CACHE_CONFIG_LARGE_SLM => CUfunc_cache::CU_FUNC_CACHE_PREFER_SHARED,
                    UR_KERNEL_CACHE_CONFIG_LARGE_DATA => CUfunc_cache::CU_FUNC_CACHE_PREFER_L1,
                    _ => CUfunc_cache::CU_FUNC_CACHE_PREFER_NONE,
                };
                let each = |(_, code): &(_, Arc<Code>)| code.prefer(cache);
                this.codes.iter().try_for_each(each)
            }
        }
    }
}

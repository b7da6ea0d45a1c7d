//! Kernels: a native kernel for each device, and their properties. `launch` checks launches and appends them.

mod code;
mod launch;

use std::ffi::{CStr, CString};
use std::sync::Arc;

use ur::abi::*;
use ur::hal::answers::ExecInfo;
use ur::hal::{self, KernelExecInfo, KernelGroupInfo, KernelInfo, KernelSubGroupInfo};
use ur::object::{Body, Error, InfoIn, InfoOut, Kind, Object, Result, ensure};
use ur::stream::{Context, Queue};

pub use code::Code;
pub use launch::{Launch, Range};

use crate::LevelZero;
use crate::device::Device;
use crate::lz::*;
use crate::program::{GroupLimits, Module, Program};

pub struct Kernel {
    program: Arc<Object<Program>>,
    name: CString,
    codes: Vec<(Arc<Object<Device>>, Arc<Code>)>,
    limits: GroupLimits,
}

impl Kernel {
    pub fn new(
        program: &Object<Program>,
        name: &CStr,
        codes: Vec<(Arc<Object<Device>>, Arc<Code>)>,
        limits: GroupLimits,
    ) -> Arc<Object<Self>> {
        hal::new::<LevelZero, _>(Self {
            program: program.arc(),
            name: name.into(),
            codes,
            limits,
        })
    }

    /// `urKernelCreateWithNativeHandle`: a kernel of the program, of the context's first device.
    pub fn from_native(
        context: &Object<Context<LevelZero>>,
        native: ur_native_handle_t,
        program: Option<&Object<Program>>,
        properties: Option<&ur_kernel_native_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        ensure(native != 0, UR_RESULT_ERROR_INVALID_KERNEL)?;
        // The driver does not tell the module of a kernel.
        let program = program.ok_or(Error::unsupported())?;
        program.check_context(context)?;
        let module = Module::adopt(&context.domain().state().native, 0, false);
        let raw = ze_kernel_handle_t(std::ptr::with_exposed_provenance_mut(native));
        let device = &context.devices()[0];
        let code = Code::adopt(&module, device, raw, owned)?;
        let name = code.name()?;
        let codes = vec![(Arc::clone(device), Arc::new(code))];
        Ok(Self::new(program, &name, codes, GroupLimits::default()))
    }

    fn code(&self, device: &Object<Device>) -> Result<&Arc<Code>> {
        let found = Device::position(self.codes.iter().map(|(own, _)| own), device);
        let found = found.and_then(|at| self.codes.get(at));
        let (_, code) = found.ok_or(Error::new(UR_RESULT_ERROR_INVALID_KERNEL))?;
        Ok(code)
    }

    fn first(&self) -> Result<&Arc<Code>> {
        let first = self.codes.first().map(|(_, code)| code);
        first.ok_or(Error::new(UR_RESULT_ERROR_INVALID_KERNEL))
    }

    fn each(&self, run: impl Fn(&Code) -> Result<()>) -> Result<()> {
        self.codes.iter().try_for_each(|(_, code)| run(code))
    }
}

impl Body for Kernel {
    const KIND: Kind = Kind::Kernel;
}

impl Drop for Kernel {
    /// The driver keeps neither the code nor the private memory of a native kernel for launches that run.
    fn drop(&mut self) {
        let codes = std::mem::take(&mut self.codes);
        self.program.context().drop_after_use(codes);
    }
}

impl hal::Kernel<LevelZero> for Kernel {
    fn get_info(this: &Object<Self>, what: KernelInfo, out: InfoOut<'_>) -> Result<()> {
        match what {
            KernelInfo::FunctionName => out.slice(this.name.to_bytes_with_nul()),
            KernelInfo::ReferenceCount => out.value(this.api_refs()),
            KernelInfo::Context => out.handle(Some(this.program.context())),
            KernelInfo::Program => out.handle(Some(&this.program)),
            KernelInfo::Attributes => out.string(&this.first()?.attributes()?),
            KernelInfo::NumArgs => out.value(this.first()?.facts.numKernelArgs),
            KernelInfo::NumRegs => Err(Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION)),
            KernelInfo::SpillMemSize => {
                let each = this.codes.iter().map(|(_, code)| code.facts.spillMemSize);
                out.slice(&each.collect::<Vec<u32>>())
            }
        }
    }

    fn get_group_info(
        this: &Object<Self>,
        device: &Object<Device>,
        what: KernelGroupInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        let code = this.code(device)?;
        match what {
            KernelGroupInfo::GlobalWorkSize => {
                let [group, count] = [code.limits(), count_limits(device)];
                let most =
                    |axis: usize| (group[axis] as usize).saturating_mul(count[axis] as usize);
                out.value([most(0), most(1), most(2)])
            }
            KernelGroupInfo::WorkGroupSize => out.value(code.max_group as usize),
            KernelGroupInfo::CompileWorkGroupSize => out.value(
                code.required()
                    .unwrap_or_default()
                    .map(|axis| axis as usize),
            ),
            KernelGroupInfo::LocalMemSize => out.value(code.facts.localMemSize as usize),
            KernelGroupInfo::PreferredWorkGroupSizeMultiple => {
                out.value(code.preferred_multiple as usize)
            }
            KernelGroupInfo::PrivateMemSize => out.value(code.facts.privateMemSize as usize),
            KernelGroupInfo::CompileMaxWorkGroupSize => out.value(this.limits.each),
            KernelGroupInfo::CompileMaxLinearWorkGroupSize => out.value(this.limits.items),
        }
    }

    fn get_sub_group_info(
        this: &Object<Self>,
        device: &Object<Device>,
        what: KernelSubGroupInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        let facts = &this.code(device)?.facts;
        out.value(match what {
            KernelSubGroupInfo::MaxSubGroupSize => facts.maxSubgroupSize,
            KernelSubGroupInfo::MaxNumSubGroups => facts.maxNumSubgroups,
            KernelSubGroupInfo::CompileNumSubGroups => facts.requiredNumSubGroups,
            KernelSubGroupInfo::SubGroupSizeIntel => facts.requiredSubgroupSize,
        })
    }

    fn set_exec_info(
        this: &Object<Self>,
        what: KernelExecInfo,
        _: Option<&ur_kernel_exec_info_properties_t>,
        value: InfoIn<'_>,
    ) -> Result<()> {
        match ExecInfo::read(what, value)? {
            ExecInfo::IndirectAccess(on) => this.each(|code| code.set_indirect(on)),
            // The driver takes no list: the kernel may reach everything.
            ExecInfo::Pointers(_) => this.each(|code| code.set_indirect(true)),
            ExecInfo::Cache(config) => {
                let flags = match config {
                    UR_KERNEL_CACHE_CONFIG_LARGE_SLM => ZE_CACHE_CONFIG_FLAG_LARGE_SLM,
                    UR_KERNEL_CACHE_CONFIG_LARGE_DATA => ZE_CACHE_CONFIG_FLAG_LARGE_DATA,
                    _ => 0,
                };
                this.each(|code| code.set_cache(flags))
            }
        }
    }

    fn get_native_handle(this: &Object<Self>) -> Result<ur_native_handle_t> {
        Ok(this.first()?.expose())
    }

    fn get_suggested_local_work_size_with_args(
        this: &Object<Self>,
        queue: &Object<Queue<LevelZero>>,
        _: &[usize],
        global: &[usize],
        _: &[ur_exp_kernel_arg_properties_t],
        local: &mut [usize],
    ) -> Result<()> {
        let dims = global.len();
        let known = (1..=3).contains(&dims);
        ensure(known, UR_RESULT_ERROR_INVALID_WORK_DIMENSION)?;
        let mut whole = [1; 3];
        whole[..dims].copy_from_slice(global);
        let chosen = this.code(queue.device())?.choose(whole)?;
        local.copy_from_slice(&chosen.map(|axis| axis as usize)[..local.len().min(3)]);
        Ok(())
    }

    fn suggest_max_cooperative_group_count(
        this: &Object<Self>,
        device: &Object<Device>,
        dims: u32,
        local: &[usize],
        local_bytes: usize,
    ) -> Result<u32> {
        let known = (1..=3).contains(&dims);
        ensure(known, UR_RESULT_ERROR_INVALID_WORK_DIMENSION)?;
        // The driver counts with the local memory of the kernel's own arguments.
        let _ = local_bytes;
        let mut whole = [1; 3];
        let local = local.get(..dims as usize).unwrap_or(local);
        whole[..local.len()].copy_from_slice(local);
        this.code(device)?.resident_groups(whole)
    }
}

/// The most groups of a launch in each dimension.
fn count_limits(device: &Device) -> [u32; 3] {
    let compute = &device.facts.compute;
    [
        compute.maxGroupCountX,
        compute.maxGroupCountY,
        compute.maxGroupCountZ,
    ]
}

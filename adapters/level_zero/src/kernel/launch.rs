//! Launches: checked in full, with copies of their arguments, for any later append.

use std::ptr::null_mut;
use std::sync::Arc;

use ur::abi::*;
use ur::hal::{Exported, checks};
use ur::object::{Error, Object, Result, ensure};
use ur::stream::LaunchRequest;

use super::code::{Code, Handle};
use super::{Kernel, count_limits};
use crate::LevelZero;
use crate::device::Device;
use crate::exec::Stream;
use crate::lz::*;
use crate::mem::Mem;

pub struct Launch {
    code: Arc<Code>,
    args: Vec<(u32, Arg)>,
    group: [u32; 3],
    count: ze_group_count_t,
    offset: [u32; 3],
    is_cooperative: bool,
}

/// An argument that owns a copy of its value.
enum Arg {
    Value(Box<[u8]>),
    Local(usize),
}

impl Arg {
    fn of(arg: &ur_exp_kernel_arg_properties_t) -> Result<Self> {
        let pointer = |address: usize| Self::Value(address.to_ne_bytes().into());
        // SAFETY: `type` names the valid member of the value, and the caller keeps memory that it points to for
        // the call.
        unsafe {
            Ok(match arg.r#type {
                UR_EXP_KERNEL_ARG_TYPE_VALUE => {
                    Self::Value(checks::slice(arg.value.value.cast::<u8>(), arg.size)?.into())
                }
                UR_EXP_KERNEL_ARG_TYPE_POINTER => pointer(arg.value.pointer.expose_provenance()),
                UR_EXP_KERNEL_ARG_TYPE_LOCAL => Self::Local(arg.size),
                UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ => {
                    let given = arg.value.memObjTuple;
                    let handle = given.hMem;
                    if handle.is_null() {
                        return Ok(pointer(0));
                    }
                    let mem = Object::<Mem>::borrow(handle.cast(), LevelZero::table())?;
                    pointer(mem.for_kernel(given.flags)?)
                }
                UR_EXP_KERNEL_ARG_TYPE_SAMPLER => return Err(Error::unsupported()),
                _ => return Err(Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION)),
            })
        }
    }

    fn set(&self, handle: &Handle, api: &Api, index: u32) -> Result<()> {
        match self {
            Self::Value(bytes) => handle.set(api, index, bytes.len(), Some(bytes)),
            Self::Local(bytes) => handle.set(api, index, *bytes, None),
        }
    }
}

/// Whether `args` has each of a kernel's `count` arguments.
fn is_complete(count: u32, args: &[ur_exp_kernel_arg_properties_t]) -> bool {
    (0..count).all(|at| args.iter().any(|arg| arg.index == at))
}

impl Kernel {
    /// Checks a launch in full and copies its arguments.
    pub fn launch(&self, device: &Object<Device>, request: &LaunchRequest<'_>) -> Result<Launch> {
        let attributes = request.attributes(UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE)?;
        let code = self.code(device)?;
        let complete = is_complete(code.facts.numKernelArgs, request.args);
        ensure(complete, UR_RESULT_ERROR_INVALID_KERNEL_ARGS)?;
        let group = match request.local {
            Some(local) => {
                ensure(self.allows(local), UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE)?;
                code.check_group(local, request.dims as usize)?
            }
            None => code.choose(request.global)?,
        };
        let count = count(request.global, group, count_limits(device))?;
        let offset = request.offset.map(|axis| u32::try_from(axis).ok());
        let [Some(x), Some(y), Some(z)] = offset else {
            return Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE));
        };
        let moved = [x, y, z] != [0; 3];
        let able = !moved || code.offset_setter().is_some();
        ensure(able, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        let own = |arg| Arg::of(arg).map(|value| (arg.index, value));
        let args = request.args.iter().map(own).collect::<Result<Vec<_>>>()?;
        let launch = Launch {
            code: Arc::clone(code),
            args,
            group,
            count,
            offset: [x, y, z],
            is_cooperative: attributes.cooperative,
        };
        // The driver checks index and size of an argument when it is set, which for this launch may be later.
        launch.set_args(&code.lock())?;
        Ok(launch)
    }
}

impl Kernel {
    /// Whether the kernel's source allows groups of this size.
    fn allows(&self, local: [usize; 3]) -> bool {
        let within = |(own, most): (&usize, &usize)| *most == 0 || own <= most;
        let items = local
            .iter()
            .try_fold(1_usize, |all, axis| all.checked_mul(*axis));
        let most = self.limits.items;
        local.iter().zip(&self.limits.each).all(within)
            && (most == 0 || items.is_some_and(|items| items <= most))
    }
}

impl Code {
    fn check_group(&self, local: [usize; 3], dims: usize) -> Result<[u32; 3]> {
        let wrong = UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE;
        ensure(local.iter().all(|axis| *axis > 0), wrong)?;
        let limits = self.limits();
        let within = local
            .iter()
            .zip(limits)
            .all(|(own, most)| *own <= most as usize);
        ensure(within, UR_RESULT_ERROR_INVALID_WORK_ITEM_SIZE)?;
        let group = local.map(|axis| axis as u32);
        let required = self.required();
        let suits = required.is_none_or(|required| required[..dims] == group[..dims]);
        ensure(suits, wrong)?;
        let items: u64 = group.iter().map(|axis| u64::from(*axis)).product();
        ensure(items <= u64::from(self.max_group), wrong)?;
        Ok(group)
    }
}

/// The groups of a launch. Each is whole: the driver has no smaller ones at the end.
fn count(global: [usize; 3], group: [u32; 3], most: [u32; 3]) -> Result<ze_group_count_t> {
    let mut counts = [0; 3];
    for axis in 0..3 {
        let size = group[axis] as usize;
        let whole = global[axis].is_multiple_of(size);
        ensure(whole, UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE)?;
        let groups = u32::try_from(global[axis] / size).ok();
        let groups = groups.filter(|groups| *groups <= most[axis]);
        counts[axis] = groups.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
    }
    let [x, y, z] = counts;
    Ok(ze_group_count_t {
        groupCountX: x,
        groupCountY: y,
        groupCountZ: z,
    })
}

impl Launch {
    fn set_args(&self, handle: &Handle) -> Result<()> {
        let api = self.code.device.api();
        let mut all = self.args.iter();
        all.try_for_each(|(index, arg)| arg.set(handle, api, *index))
    }

    /// Appends the launch to a list.
    pub fn append(&self, to: &Stream, signal: ze_event_handle_t) -> Result<()> {
        let ze_group_count_t {
            groupCountX: x,
            groupCountY: y,
            groupCountZ: z,
        } = self.count;
        if x == 0 || y == 0 || z == 0 {
            return Ok(());
        }
        let api = to.api;
        let mut handle = self.code.lock();
        self.set_args(&handle)?;
        handle.set_group(api, self.group)?;
        handle.set_offset(self.code.offset_setter(), self.offset)?;
        let (append, name) = match self.is_cooperative {
            true => (
                api.zeCommandListAppendLaunchCooperativeKernel,
                "zeCommandListAppendLaunchCooperativeKernel",
            ),
            false => (
                api.zeCommandListAppendLaunchKernel,
                "zeCommandListAppendLaunchKernel",
            ),
        };
        // SAFETY: a live list and kernel; the driver copies the arguments, and no events are waited for.
        let code = unsafe { append(to.list, handle.raw(), &self.count, signal, 0, null_mut()) };
        drop(handle);
        check(code, name)?;
        to.keep_order()
    }

    /// Whether the launch has no work-items: then no command is appended.
    pub fn is_empty(&self) -> bool {
        let count = &self.count;
        [count.groupCountX, count.groupCountY, count.groupCountZ].contains(&0)
    }
}

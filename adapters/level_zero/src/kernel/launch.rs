//! Launches: checked in full, with copies of their arguments, for any later append; or plain, straight from the caller's
//! arguments.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::hal::{Exported, checks};
use ur::object::{Error, Object, Result, ensure};
use ur::stream::{LaunchRequest, PlainLaunch};
use ur::sync::MutexGuard;

use super::code::{Code, Handle};
use super::{Kernel, count_limits};
use crate::LevelZero;
use crate::device::Device;
use crate::exec::{self, Kept, Lane, List, Part, Stream};
use crate::image::Places;
use crate::lz::*;
use crate::mem::{ForKernel, Mem};
use crate::sampler::{Natives, Sampler};

pub struct Launch {
    code: Arc<Code>,
    args: Vec<(u32, Arg)>,
    range: Range,
    is_cooperative: bool,
}

/// The work-items of a launch.
#[derive(Clone, Copy, Default)]
pub struct Range {
    group: [u32; 3],
    count: ze_group_count_t,
    offset: [u32; 3],
}

/// An argument that owns a copy of its value, or its object.
enum Arg {
    Value(Box<[u8]>),
    Local(usize),
    Image {
        image: Arc<Places>,
        writes: bool,
    },
    Sampler(Arc<Natives>),
    /// A buffer with copies on several devices, which the kernel writes or not.
    Buffer(Part, bool),
}

impl Arg {
    fn of(device: &Device, arg: &ur_exp_kernel_arg_properties_t) -> Result<Self> {
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
                    if let Some((image, writes)) = mem.image_for_kernel(given.flags) {
                        return Ok(Self::Image { image, writes });
                    }
                    match mem.for_kernel(device, given.flags)? {
                        ForKernel::Address(address) => pointer(address),
                        ForKernel::Part(part, writes) => Self::Buffer(part, writes),
                    }
                }
                UR_EXP_KERNEL_ARG_TYPE_SAMPLER => {
                    let given = arg.value.sampler;
                    let sampler = Object::<Sampler>::borrow(given.cast(), LevelZero::table())?;
                    Self::Sampler(Arc::clone(sampler.for_kernel()))
                }
                _ => return Err(Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION)),
            })
        }
    }

    fn set(&self, handle: &Handle, device: &Object<Device>, index: u32) -> Result<()> {
        let api = device.api();
        let object = |raw: *mut c_void| {
            let name = raw.expose_provenance().to_ne_bytes();
            handle.set(api, index, name.len(), Some(&name))
        };
        match self {
            Self::Value(bytes) => handle.set(api, index, bytes.len(), Some(bytes)),
            Self::Local(bytes) => handle.set(api, index, *bytes, None),
            // Set with the launch.
            Self::Buffer(..) => {
                let none = 0_usize.to_ne_bytes();
                handle.set(api, index, none.len(), Some(&none))
            }
            Self::Image { image, .. } => object(image.native(device)?.raw.0),
            Self::Sampler(natives) => object(natives.on(device)?.0),
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
        let sizes = (request.offset, request.global, request.local);
        let range = self.range(code, sizes, request.dims as usize)?;
        let own = |arg| Arg::of(device, arg).map(|value| (arg.index, value));
        let args = request.args.iter().map(own).collect::<Result<Vec<_>>>()?;
        let launch = Launch {
            code: Arc::clone(code),
            args,
            range,
            is_cooperative: attributes.cooperative,
        };
        // The driver checks index and size of an argument when it is set, which for this launch may be later.
        launch.set_args(&code.lock())?;
        Ok(launch)
    }

    /// Checks offset, global size and group size, and chooses the group size where none is given.
    fn range(
        &self,
        code: &Code,
        (offset, global, local): ([usize; 3], [usize; 3], Option<[usize; 3]>),
        dims: usize,
    ) -> Result<Range> {
        let group = match local {
            Some(local) => {
                ensure(self.allows(local), UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE)?;
                code.check_group(local, dims)?
            }
            None => code.choose(global)?,
        };
        let count = count(global, group, count_limits(&code.device))?;
        let [Some(x), Some(y), Some(z)] = offset.map(|axis| u32::try_from(axis).ok()) else {
            return Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE));
        };
        let offset = [x, y, z];
        let able = offset == [0; 3] || code.offset_setter().is_some();
        ensure(able, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        #[rustfmt::skip]
        let range = Range { group, count, offset };
        Ok(range)
    }

    /// Whether a launch has all arguments, none of which is an object, and right sizes; those are stored in `range`.
    pub fn is_plain(
        &self,
        device: &Object<Device>,
        launch: &PlainLaunch<'_>,
        range: &mut Range,
    ) -> bool {
        let Ok(code) = self.code(device) else {
            return false;
        };
        let dims = launch.global.len();
        if !(1..=3).contains(&dims)
            || !is_complete(code.facts.numKernelArgs, launch.args)
            || !launch.args.iter().all(is_plain)
        {
            return false;
        }
        let three =
            |sizes: &[usize], rest| std::array::from_fn(|at| *sizes.get(at).unwrap_or(&rest));
        let offset = launch.offset.map_or([0; 3], |offset| three(offset, 0));
        let local = launch.local.map(|local| three(local, 1));
        let checked = self.range(code, (offset, three(launch.global, 1), local), dims);
        checked.map(|checked| *range = checked).is_ok()
    }

    /// Submits a plain launch. Nothing of the caller's is used after it.
    #[inline(always)]
    pub fn submit_plain(
        &self,
        lane: &Lane,
        args: &[ur_exp_kernel_arg_properties_t],
        range: &Range,
    ) -> Result<()> {
        let code = self.code(&lane.stream().list.device)?;
        lane.launch(
            || Kept::Code(Arc::clone(code)),
            |to| {
                let handle = code.lock();
                for arg in args {
                    set_plain(&handle, to.api, arg)?;
                }
                range.append(code, handle, to, ze_event_handle_t::NULL, false)
            },
        )
    }
}

/// Whether an argument is no object.
fn is_plain(arg: &ur_exp_kernel_arg_properties_t) -> bool {
    let kinds = [
        UR_EXP_KERNEL_ARG_TYPE_VALUE,
        UR_EXP_KERNEL_ARG_TYPE_POINTER,
        UR_EXP_KERNEL_ARG_TYPE_LOCAL,
    ];
    // SAFETY: `type` names the valid member of the value.
    let has_value = || unsafe { !arg.value.value.is_null() };
    kinds.contains(&arg.r#type) && (arg.r#type != UR_EXP_KERNEL_ARG_TYPE_VALUE || has_value())
}

/// Sets an argument that is no object.
fn set_plain(handle: &Handle, api: &Api, arg: &ur_exp_kernel_arg_properties_t) -> Result<()> {
    // SAFETY: `type` names the valid member of the value, and the caller keeps memory that it points to for the call.
    unsafe {
        match arg.r#type {
            UR_EXP_KERNEL_ARG_TYPE_VALUE => {
                let bytes = checks::slice(arg.value.value.cast::<u8>(), arg.size)?;
                handle.set(api, arg.index, arg.size, Some(bytes))
            }
            UR_EXP_KERNEL_ARG_TYPE_POINTER => {
                let address = arg.value.pointer.expose_provenance().to_ne_bytes();
                handle.set(api, arg.index, address.len(), Some(&address))
            }
            _ => handle.set(api, arg.index, arg.size, None),
        }
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
        let device = &self.code.device;
        let mut all = self.args.iter();
        all.try_for_each(|(index, arg)| arg.set(handle, device, *index))
    }

    /// The images among the arguments that have several native images, with whether the kernel writes them.
    fn moving(&self) -> impl Iterator<Item = (&Arc<Places>, bool)> {
        self.args.iter().filter_map(|(_, arg)| match arg {
            Arg::Image { image, writes } if !image.is_single() => Some((image, *writes)),
            _ => None,
        })
    }

    /// Whether [`Launch::prepare`] does anything.
    pub fn has_preparation(&self) -> bool {
        self.moving().next().is_some()
    }

    /// Makes what a lane's device uses current, for a launch that is appended to the lane next.
    pub fn prepare(&self, lane: &Stream) -> Result<()> {
        self.moving()
            .try_for_each(|(image, writes)| image.bring(lane, writes))
    }

    /// Whether an argument is a buffer with copies on several devices.
    pub fn has_copies(&self) -> bool {
        let mut args = self.args.iter();
        args.any(|(_, arg)| matches!(arg, Arg::Buffer(..)))
    }

    /// The addresses of such arguments for a launch now on a list.
    fn resolve(&self, to: &List) -> Result<Vec<(u32, usize)>> {
        let buffers = || {
            self.args.iter().filter_map(|(index, arg)| match arg {
                Arg::Buffer(part, writes) => Some((*index, part, *writes)),
                _ => None,
            })
        };
        let resolved = buffers().map(|(index, part, _)| {
            // A buffer may be an argument twice, or several parts of it.
            let is_same = |other: &Part| Arc::ptr_eq(&other.copies, &part.copies);
            let writes = buffers().any(|(_, other, writes)| writes && is_same(other));
            Ok((index, exec::for_kernel(to, part, writes)?))
        });
        resolved.collect()
    }

    /// Appends the launch to a list.
    pub fn append(&self, to: &List, signal: ze_event_handle_t) -> Result<()> {
        let addresses = self.resolve(to)?;
        let handle = self.code.lock();
        self.set_args(&handle)?;
        for (index, address) in addresses {
            let bytes = address.to_ne_bytes();
            handle.set(to.api, index, bytes.len(), Some(&bytes))?;
        }
        let range = &self.range;
        range.append(&self.code, handle, to, signal, self.is_cooperative)
    }

    /// Whether a recorded launch can become this one: the kernel and the command are the same.
    pub fn is_alike(&self, other: &Self) -> bool {
        let indices = |of: &Self| of.args.iter().map(|(index, _)| *index).collect::<Vec<_>>();
        Arc::ptr_eq(&self.code, &other.code)
            && self.is_cooperative == other.is_cooperative
            && self.is_empty() == other.is_empty()
            && indices(self) == indices(other)
    }

    /// Calls `run` with the launch as a chain of the driver's structures, which change the command of this name.
    /// `UNSUPPORTED_FEATURE` if an argument is an image or a sampler.
    pub fn describe_change(
        &self,
        name: u64,
        run: impl FnOnce(*const c_void) -> Result<()>,
    ) -> Result<()> {
        let Range {
            group: [x, y, z],
            count,
            offset,
        } = self.range;
        let mut offset = ze_mutable_global_offset_exp_desc_t {
            commandId: name,
            offsetX: offset[0],
            offsetY: offset[1],
            offsetZ: offset[2],
            ..Default::default()
        };
        let mut group = ze_mutable_group_size_exp_desc_t {
            commandId: name,
            groupSizeX: x,
            groupSizeY: y,
            groupSizeZ: z,
            pNext: (&raw mut offset).cast(),
            ..Default::default()
        };
        let groups = ze_mutable_group_count_exp_desc_t {
            commandId: name,
            pGroupCount: &raw const count,
            pNext: (&raw mut group).cast(),
            ..Default::default()
        };
        let mut next: *const c_void = (&raw const groups).cast();
        // Each structure points to the one before, so that none may move.
        let mut args = Vec::with_capacity(self.args.len());
        for (index, arg) in &self.args {
            // A launch with images, samplers or buffers that move is recorded anew.
            let (size, value) = match arg {
                Arg::Value(bytes) => (bytes.len(), bytes.as_ptr().cast()),
                Arg::Local(bytes) => (*bytes, null()),
                Arg::Image { .. } | Arg::Sampler(_) | Arg::Buffer(..) => {
                    return Err(Error::unsupported());
                }
            };
            let arg = ze_mutable_kernel_argument_exp_desc_t {
                commandId: name,
                argIndex: *index,
                argSize: size,
                pArgValue: value,
                pNext: next,
                ..Default::default()
            };
            args.push(Box::new(arg));
            next = args.last().map_or(next, |arg| (&raw const **arg).cast());
        }
        run(next)
    }

    /// Whether the launch has no work-items: then no command is appended.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

impl Range {
    fn is_empty(&self) -> bool {
        let count = &self.count;
        [count.groupCountX, count.groupCountY, count.groupCountZ].contains(&0)
    }

    /// Appends a launch whose arguments are set.
    fn append(
        &self,
        code: &Code,
        mut handle: MutexGuard<'_, Handle>,
        to: &List,
        signal: ze_event_handle_t,
        is_cooperative: bool,
    ) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let api = to.api;
        handle.set_group(api, self.group)?;
        handle.set_offset(code, self.offset)?;
        let (append, name) = match is_cooperative {
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
        let result = unsafe { append(to.raw, handle.raw(), &self.count, signal, 0, null_mut()) };
        drop(handle);
        check(result, name)?;
        to.keep_order()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_whole_and_within_the_limits() {
        let most = [100, 100, 100];
        let counts = count([128, 6, 1], [32, 3, 1], most).expect("it divides");
        let each = [counts.groupCountX, counts.groupCountY, counts.groupCountZ];
        assert_eq!(each, [4, 2, 1]);
        let code = |global, group| count(global, group, most).expect_err("refused").code();
        let uneven = UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE;
        assert_eq!(code([10, 1, 1], [4, 1, 1]), uneven);
        assert_eq!(
            code([1010, 1, 1], [10, 1, 1]),
            UR_RESULT_ERROR_INVALID_VALUE
        );
        assert_eq!(
            code([1 << 40, 1, 1], [1, 1, 1]),
            UR_RESULT_ERROR_INVALID_VALUE
        );
    }

    #[test]
    fn every_argument_has_to_be_there() {
        let args = |indices: &[u32]| -> Vec<_> {
            let arg = |index: &u32| ur_exp_kernel_arg_properties_t {
                index: *index,
                ..Default::default()
            };
            indices.iter().map(arg).collect()
        };
        assert!(is_complete(0, &[]));
        assert!(is_complete(3, &args(&[2, 0, 1, 0])));
        assert!(!is_complete(3, &args(&[0, 1, 1])));
    }
}

//! Plain launches: only sizes and arguments, submitted straight from the caller's memory. The driver reads
//! arguments before its call returns, so nothing is copied.
//!
//! Other launches and wrong ones go through `launch`, which checks in full and says what is wrong. Local
//! memory, offsets, properties and more than [`MAX_PLAIN_ARGS`] arguments are not plain.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{self, null, null_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::hal::Exported;
use ur::object::Object;
use ur::stream::PlainLaunch;

use super::Kernel;
use super::code::{Code, Function};
use crate::Cuda;
use crate::cu::sys::{CUdevice, CUfunction, CUlaunchConfig, CUstream};
use crate::cu::{self, Api};
use crate::device::{Device, Limits};
use crate::mem::Mem;

/// Largest number of arguments of a plain launch.
pub const MAX_PLAIN_ARGS: usize = 32;

/// A checked plain launch. Valid while its kernel and the caller's arguments are.
pub struct Plain {
    function: CUfunction,
    config: CUlaunchConfig,
    /// The address of each parameter; only those of the function are initialised.
    params: [MaybeUninit<*const c_void>; MAX_PLAIN_ARGS],
}

impl Default for Plain {
    #[inline(always)]
    fn default() -> Self {
        Self {
            function: null_mut(),
            config: cu::launch_of([1; 3], [1; 3], null_mut()),
            params: [MaybeUninit::uninit(); MAX_PLAIN_ARGS],
        }
    }
}

impl Kernel {
    /// Whether the launch is plain and right; records it in `plain`.
    #[inline(always)]
    pub fn is_plain(
        &self,
        device: &Object<Device>,
        launch: &PlainLaunch<'_>,
        plain: &mut Plain,
    ) -> bool {
        self.find_plain(device, launch, plain).is_some()
    }

    #[inline(always)]
    fn find_plain(
        &self,
        device: &Object<Device>,
        launch: &PlainLaunch<'_>,
        plain: &mut Plain,
    ) -> Option<()> {
        let code = match self.first.as_ref()? {
            (own, code) if ptr::eq(&**own, device) => code,
            _ => self.code_apart(device)?,
        };
        let (function, limits) = (&code.plain, &device.limits);
        let moved = |offset: &[usize]| offset.iter().any(|axis| *axis != 0);
        if launch.args.len() != function.count
            || function.local_bytes > limits.local_bytes
            || code.with_offset.is_some() && launch.offset.is_some_and(moved)
        {
            return None;
        }
        let chosen;
        let local = match launch.local {
            Some(local) => local,
            None => {
                chosen = self.choose_for(code, limits, launch.global);
                &chosen
            }
        };
        plain.find_sizes(function, limits, launch.global, local)?;
        if !self.is_unruled && !self.is_allowed(function, limits, local) {
            return None;
        }
        plain.find_params(device.raw(), &function.sizes, launch.args)?;
        plain.function = function.raw;
        Some(())
    }

    #[inline(never)]
    fn code_apart(&self, device: &Object<Device>) -> Option<&Arc<Code>> {
        self.code(device).ok()
    }

    #[inline(never)]
    fn choose_for(&self, code: &Code, limits: &Limits, global: &[usize]) -> [usize; 3] {
        self.choose(code, limits, three(global))
    }

    #[inline(never)]
    fn is_allowed(&self, function: &Function, limits: &Limits, local: &[usize]) -> bool {
        let checked = self.check_each_rule(function, limits, three(local));
        checked.is_ok()
    }
}

fn three(sizes: &[usize]) -> [usize; 3] {
    std::array::from_fn(|axis| sizes.get(axis).copied().unwrap_or(1))
}

impl Plain {
    #[inline(always)]
    fn find_sizes(
        &mut self,
        function: &Function,
        limits: &Limits,
        global: &[usize],
        local: &[usize],
    ) -> Option<()> {
        let mut items = 1usize;
        for (axis, (&all, &own)) in global.iter().zip(local).enumerate().take(3) {
            let groups = divide(all, own)?;
            // 0 is more than any size, less 1.
            if own.wrapping_sub(1) >= limits.group[axis] || groups > limits.grid[axis] {
                return None;
            }
            items = items.wrapping_mul(own);
            let (groups, own) = (groups as u32, own as u32);
            let config = &mut self.config;
            match axis {
                0 => (config.gridDimX, config.blockDimX) = (groups, own),
                1 => (config.gridDimY, config.blockDimY) = (groups, own),
                _ => (config.gridDimZ, config.blockDimZ) = (groups, own),
            }
        }
        (items <= limits.group_items.min(function.group_items)).then_some(())
    }

    #[inline(always)]
    fn find_params(
        &mut self,
        device: CUdevice,
        sizes: &[u16; MAX_PLAIN_ARGS],
        args: &[ur_exp_kernel_arg_properties_t],
    ) -> Option<()> {
        let places = sizes.iter().zip(&mut self.params);
        for (index, (arg, (&size, param))) in args.iter().zip(places).enumerate() {
            let size = usize::from(size);
            if arg.index as usize != index {
                return None;
            }
            let at: *const c_void = match arg.r#type {
                UR_EXP_KERNEL_ARG_TYPE_POINTER if size == size_of::<usize>() => {
                    (&raw const arg.value).cast()
                }
                // SAFETY: the type names the valid member.
                UR_EXP_KERNEL_ARG_TYPE_VALUE if size == arg.size => unsafe { arg.value.value },
                UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ if size == size_of::<usize>() => {
                    // SAFETY: the type names the valid member; a handle is null or live, as for every entry
                    // point.
                    let given = unsafe { arg.value.memObjTuple };
                    let mem = buffer(given.hMem)?;
                    if !mem.has_begun(device, mem.use_by(given.flags)) {
                        return None;
                    }
                    mem.address_slot(device)?.cast()
                }
                _ => return None,
            };
            if at.is_null() {
                return None;
            }
            param.write(at);
        }
        Some(())
    }

    #[inline(always)]
    pub fn goes_to(&mut self, stream: CUstream) {
        self.config.hStream = stream;
    }

    /// Submits the launch to its stream.
    #[inline(always)]
    pub fn enqueue(&self, api: &Api) -> cu::Code {
        let params = self.params.as_ptr().cast();
        // SAFETY: the kernel keeps the function, the lane its stream. `find_params` wrote the address of each
        // parameter after it checked its size. The caller promises the memory behind pointers.
        unsafe { api.launch(&self.config, self.function, params, null()) }
    }
}

#[inline(never)]
fn buffer<'a>(handle: ur_mem_handle_t) -> Option<&'a Mem> {
    // SAFETY: null or live, as for every entry point.
    let found = unsafe { Object::<Mem>::borrow(handle.cast(), Cuda::table()) };
    found.ok().map(|mem| &**mem)
}

/// `all / own`, if it is a whole number.
#[inline(always)]
fn divide(all: usize, own: usize) -> Option<usize> {
    // A division takes longer than the rest of a launch's checks.
    if own.is_power_of_two() {
        return (all & (own - 1) == 0).then_some(all >> own.trailing_zeros());
    }
    let times = all.checked_div(own)?;
    (times * own == all).then_some(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Arg = ur_exp_kernel_arg_properties_t;

    /// The parameters of 8 and 4 bytes that a launch has with these arguments, if it is plain.
    fn params(args: &[Arg]) -> Option<Vec<*const c_void>> {
        let mut sizes = [0; MAX_PLAIN_ARGS];
        (sizes[0], sizes[1]) = (8, 4);
        let mut plain = Plain::default();
        plain.find_params(0, &sizes, args)?;
        let written = plain.params.iter().take(args.len());
        // SAFETY: `find_params` wrote one for each argument.
        let param = |param: &MaybeUninit<_>| unsafe { param.assume_init() };
        Some(written.map(param).collect())
    }

    #[test]
    fn parameters_are_where_the_caller_has_them() {
        let number = 7_u32;
        let pointer = Arg {
            r#type: UR_EXP_KERNEL_ARG_TYPE_POINTER,
            index: 0,
            size: 8,
            value: ur_exp_kernel_arg_value_t {
                pointer: null_mut(),
            },
            ..Arg::default()
        };
        let value = Arg {
            r#type: UR_EXP_KERNEL_ARG_TYPE_VALUE,
            index: 1,
            size: 4,
            value: ur_exp_kernel_arg_value_t {
                value: (&raw const number).cast(),
            },
            ..Arg::default()
        };
        let args = [pointer, value];
        let places = [
            (&raw const args[0].value).cast(),
            (&raw const number).cast(),
        ];
        assert_eq!(params(&args), Some(places.to_vec()));
        let nothing = ur_exp_kernel_arg_value_t { value: null() };
        let other = |change: fn(&mut Arg)| {
            let mut args = args;
            change(&mut args[1]);
            params(&args)
        };
        assert_eq!(other(|arg| arg.index = 0), None);
        assert_eq!(other(|arg| arg.size = 8), None);
        assert_eq!(
            other(|arg| arg.r#type = UR_EXP_KERNEL_ARG_TYPE_POINTER),
            None
        );
        assert_eq!(other(|arg| arg.r#type = UR_EXP_KERNEL_ARG_TYPE_LOCAL), None);
        assert_eq!(
            params(&[
                pointer,
                Arg {
                    value: nothing,
                    ..value
                }
            ]),
            None
        );
    }

    #[test]
    fn sizes_divide_or_do_not() {
        for all in 0..=300_usize {
            for own in 0..=40 {
                let want = all.checked_div(own).filter(|times| times * own == all);
                assert_eq!(divide(all, own), want, "{all} by {own}");
            }
        }
        assert_eq!(divide(usize::MAX, usize::MAX), Some(1));
        assert_eq!(divide(1 << 63, 1 << 63), Some(1));
        assert_eq!(divide(1 << 63, 3), None);
    }
}

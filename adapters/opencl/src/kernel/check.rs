//! Checks of a launch that reaches the driver later: recorded, captured or deferred.
//!
//! OpenCL checks a launch when it is enqueued. By then a part of a recording may have run. OpenCL also
//! uses the last launch's argument for one that the launch lacks.

use opencl_sys::*;
use ur::abi::*;
use ur::object::{Object, Result, ensure};
use ur::stream::LaunchRequest;

use super::Kernel;
use crate::cl::Version;
use crate::device::Device;

/// `CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT` of OpenCL 3.0.
const NON_UNIFORM: cl_device_info = 0x1065;

/// Whether `args` has each of a kernel's `count` arguments.
pub fn is_complete(count: usize, args: &[ur_exp_kernel_arg_properties_t]) -> bool {
    // Nearly all clients pass them in order.
    let in_row = || (0..).zip(args).all(|(at, arg)| arg.index == at);
    if args.len() == count && in_row() {
        return true;
    }
    (0..count as u32).all(|at| args.iter().any(|arg| arg.index == at))
}

impl Kernel {
    /// The error with which a driver would refuse the launch when it is enqueued.
    pub fn check_later(&self, device: &Object<Device>, request: &LaunchRequest<'_>) -> Result<()> {
        // The driver checks index, size and type of an argument when it is set.
        self.native.with(request.args, |_| Ok(()))?;
        let dims = request.dims as usize;
        let end = request.offset.iter().zip(&request.global).take(dims);
        let end: Option<Vec<usize>> = end.map(|(from, size)| from.checked_add(*size)).collect();
        ensure(end.is_some(), UR_RESULT_ERROR_INVALID_VALUE)?;
        let required: [usize; 3] = self.group(device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE)?;
        let required = Some(required).filter(|sizes| sizes[0] > 0);
        let Some(local) = request.local else {
            return Ok(());
        };
        let sized = required.is_none_or(|required| required[..dims] == local[..dims]);
        ensure(sized, UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE)?;
        let items = local[..dims]
            .iter()
            .try_fold(1_usize, |all, size| all.checked_mul(*size));
        let max: usize = self.group(device, CL_KERNEL_WORK_GROUP_SIZE)?;
        let fits = items.is_some_and(|items| (1..=max).contains(&items));
        ensure(fits, UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE)?;
        let largest = device.list::<usize>(CL_DEVICE_MAX_WORK_ITEM_SIZES)?;
        let fits = local[..dims]
            .iter()
            .zip(&largest)
            .all(|(own, max)| own <= max);
        ensure(fits, UR_RESULT_ERROR_INVALID_WORK_ITEM_SIZE)?;
        let even = request.global[..dims]
            .iter()
            .zip(&local)
            .all(|(global, local)| global.is_multiple_of(*local));
        ensure(
            even || accepts_remainders(device),
            UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE,
        )
    }
}

/// Whether the last work-group of a dimension may be smaller than the others.
fn accepts_remainders(device: &Device) -> bool {
    match device.version() >= Version::new(3, 0) {
        true => device
            .value::<cl_bool>(NON_UNIFORM)
            .is_ok_and(|yes| yes != 0),
        false => device.version() >= Version::new(2, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(is_complete(3, &args(&[0, 1, 2])));
        assert!(is_complete(3, &args(&[2, 0, 1, 0])));
        assert!(!is_complete(3, &args(&[0, 1])));
        assert!(!is_complete(3, &args(&[0, 1, 1])));
        assert!(!is_complete(1, &[]));
    }
}

//! Suggested work-group sizes.

use std::ptr::null;

use opencl_sys::*;
use ur::abi::*;
use ur::object::{Object, Result, ensure};
use ur::stream::Queue;

use super::Kernel;
use crate::OpenCl;
use crate::cl::{SuggestedSize, check};
use crate::device::Device;
use crate::exec::Lane;

impl Kernel {
    pub(super) fn suggest(
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
        let sizes = match self.api().ext().clGetKernelSuggestedLocalWorkSizeKHR {
            Some(query) => self.query_local(query, queue, offset, global, args)?,
            None => None,
        };
        let sizes = sizes.map_or_else(|| self.choose_local(queue.device(), global), Ok)?;
        local.copy_from_slice(&sizes[..local.len().min(3)]);
        Ok(())
    }

    /// The driver's suggestion. None if an argument is missing: the driver requires all.
    fn query_local(
        &self,
        query: SuggestedSize,
        queue: &Object<Queue<OpenCl>>,
        offset: &[usize],
        global: &[usize],
        args: &[ur_exp_kernel_arg_properties_t],
    ) -> Result<Option<[usize; 3]>> {
        let context = &queue.context().domain().state().context;
        let lane = Lane::open(context, queue.device(), ur_queue_flags_t(0))?;
        let offset = if offset.is_empty() {
            null()
        } else {
            offset.as_ptr()
        };
        let (dims, mut sizes) = (global.len() as u32, [1; 3]);
        self.native.with(args, |kernel| {
            // SAFETY: queue and kernel are alive, and each list has as many sizes as dimensions.
            let code = unsafe {
                query(
                    lane.queue().raw(),
                    kernel,
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
        })
    }

    /// A work-group size that divides the global size. It is the kernel's required one, or has as many
    /// work-items in the first dimension as the kernel allows.
    fn choose_local(&self, device: &Object<Device>, global: &[usize]) -> Result<[usize; 3]> {
        let required: [usize; 3] = self.group(device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE)?;
        if required[0] > 0 {
            return Ok(required);
        }
        let max: usize = self.group(device, CL_KERNEL_WORK_GROUP_SIZE)?;
        let first = (1..=max.min(global[0].max(1)))
            .rev()
            .find(|size| global[0].is_multiple_of(*size));
        Ok([first.unwrap_or(1), 1, 1])
    }
}

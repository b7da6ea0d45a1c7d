//! What a launch needs before it can be given to a stream.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Object, Result, ensure};
use ur::stream::{LaunchRequest, Wishes};

use super::Kernel;
use super::args::{Args, pack};
use super::code::{Code, Function};
use crate::cu::sys::*;
use crate::device::{Device, Limits};
use crate::exec::Gpu;

/// A launch with copies of its arguments.
pub struct Launch {
    code: Arc<Code>,
    with_offset: bool,
    args: Args,
    groups: [u32; 3],
    items: [u32; 3],
    local_bytes: u32,
    wishes: Wishes,
}

/// `CU_LAUNCH_PARAM_END`, `_BUFFER_POINTER` and `_BUFFER_SIZE`: how parameters come side by side.
const END: *mut c_void = std::ptr::null_mut();
const BUFFER: *mut c_void = std::ptr::without_provenance_mut(1);
const BYTES: *mut c_void = std::ptr::without_provenance_mut(2);

impl Kernel {
    /// Checks a launch and copies its arguments.
    pub fn launch(&self, device: &Object<Device>, request: &LaunchRequest<'_>) -> Result<Launch> {
        let wishes = request.wishes(device.launch_properties())?;
        let code = self.code(device)?;
        let limits = &device.limits;
        let dims = request.dims as usize;
        let sizes = |given: [usize; 3], rest| -> [usize; 3] {
            std::array::from_fn(|axis| if axis < dims { given[axis] } else { rest })
        };
        let offset = sizes(request.offset, 0);
        let offset = match &code.with_offset {
            Some(_) if offset != [0; 3] => Some(offset),
            _ => None,
        };
        let function = match (&code.with_offset, offset) {
            (Some(function), Some(_)) => function,
            _ => &code.plain,
        };
        let global = sizes(request.global, 1);
        let local = match request.local {
            Some(local) => sizes(local, 1),
            None => self.choose(code, limits, global),
        };
        self.check_group(function, limits, local)?;
        let even = (0..3).all(|axis| global[axis].is_multiple_of(local[axis]));
        ensure(even, UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE)?;
        let groups: [usize; 3] = std::array::from_fn(|axis| global[axis] / local[axis]);
        let fits = (0..3).all(|axis| groups[axis] <= limits.grid[axis]);
        ensure(fits, UR_RESULT_ERROR_INVALID_VALUE)?;
        let offset = offset.map(|offset| offset.map(|axis| axis as u32));
        let args = pack(function, request.args, offset)?;
        let wanted = wishes.group_memory.unwrap_or(0);
        let local_bytes = args
            .local_bytes
            .checked_add(wanted)
            .ok_or(Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES))?;
        function.allow(code.gpu(), limits, local_bytes)?;
        Ok(Launch {
            with_offset: offset.is_some(),
            code: Arc::clone(code),
            args,
            groups: groups.map(|axis| axis as u32),
            items: local.map(|axis| axis as u32),
            local_bytes: local_bytes as u32,
            wishes,
        })
    }

    fn check_group(&self, function: &Function, limits: &Limits, local: [usize; 3]) -> Result<()> {
        ensure(
            local.iter().all(|&axis| axis > 0),
            UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE,
        )?;
        let within = (0..3).all(|axis| local[axis] <= limits.group[axis]);
        ensure(within, UR_RESULT_ERROR_INVALID_WORK_ITEM_SIZE)?;
        let items = local.iter().product::<usize>();
        let rules = &self.rules;
        let allowed = items <= limits.group_items
            && rules.required.is_none_or(|required| required == local)
            && rules
                .most
                .is_none_or(|most| (0..3).all(|axis| local[axis] <= most[axis]))
            && rules.most_linear.is_none_or(|most| items <= most);
        ensure(allowed, UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE)?;
        // What this function's registers leave room for.
        ensure(
            items <= function.group_items,
            UR_RESULT_ERROR_OUT_OF_RESOURCES,
        )
    }

    /// A work-group size that divides the global one, about as large as keeps the device busiest.
    pub(super) fn choose(&self, code: &Code, limits: &Limits, global: [usize; 3]) -> [usize; 3] {
        if let Some(required) = self.rules.required {
            return required;
        }
        let linear = self.rules.most_linear.unwrap_or(usize::MAX);
        let most = code
            .best_items()
            .min(code.plain.group_items)
            .min(limits.group_items)
            .min(linear)
            .max(1);
        let mut left = most;
        std::array::from_fn(|axis| {
            let own = self.rules.most.map_or(usize::MAX, |most| most[axis]);
            let room = left.min(limits.group[axis]).min(own).min(global[axis]);
            let size = (1..=room.max(1))
                .rev()
                .find(|size| global[axis].is_multiple_of(*size))
                .unwrap_or(1);
            left /= size;
            size
        })
    }
}

impl Launch {
    fn function(&self) -> CUfunction {
        match (&self.code.with_offset, self.with_offset) {
            (Some(function), true) => function.raw,
            _ => self.code.plain.raw,
        }
    }

    /// Whether there is more to it than sizes and arguments.
    fn is_extended(&self) -> bool {
        let plain = Wishes {
            group_memory: self.wishes.group_memory,
            ..Wishes::default()
        };
        self.wishes != plain
    }

    /// The launch as a graph's node, if it can be one.
    pub fn described<R>(
        &self,
        look: impl FnOnce(*const CUDA_KERNEL_NODE_PARAMS_v1) -> R,
    ) -> Option<R> {
        if self.is_extended() || !self.args.complete {
            return None;
        }
        let mut bytes = self.args.packed.len();
        let mut all = [
            BUFFER,
            self.args.packed.start().cast_mut().cast(),
            BYTES,
            (&raw mut bytes).cast(),
            END,
        ];
        let ([gx, gy, gz], [x, y, z]) = (self.groups, self.items);
        let what = CUDA_KERNEL_NODE_PARAMS_v1 {
            func: self.function(),
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: x,
            blockDimY: y,
            blockDimZ: z,
            sharedMemBytes: self.local_bytes,
            kernelParams: null_mut(),
            extra: if bytes == 0 {
                null_mut()
            } else {
                all.as_mut_ptr()
            },
        };
        Some(look(&what))
    }

    /// Gives the launch to a stream. The context is current.
    pub fn enqueue(&self, gpu: &Gpu, stream: CUstream) -> Result<()> {
        let function = self.function();
        ensure(self.args.complete, UR_RESULT_ERROR_INVALID_KERNEL_ARGS)?;
        let mut bytes = self.args.packed.len();
        let all = [
            BUFFER,
            self.args.packed.start().cast_mut().cast(),
            BYTES,
            (&raw mut bytes).cast(),
            END,
        ];
        let extra = if bytes == 0 { null() } else { all.as_ptr() };
        let ([gx, gy, gz], [x, y, z]) = (self.groups, self.items);
        if self.is_extended() {
            return self.enqueue_extended(gpu, stream, function, extra);
        }
        let run = gpu.api.cuLaunchKernel;
        let local = self.local_bytes;
        // SAFETY: a live function and stream, and its parameters as it takes them. What they lead to is
        // the caller's promise.
        let code = unsafe { run(function, gx, gy, gz, x, y, z, local, stream, null(), extra) };
        gpu.check(code, "cuLaunchKernel")
    }

    fn enqueue_extended(
        &self,
        gpu: &Gpu,
        stream: CUstream,
        function: CUfunction,
        extra: *const *mut c_void,
    ) -> Result<()> {
        let run = gpu.api.cuLaunchKernelEx.ok_or(Error::unsupported())?;
        let mut attributes = self.attributes();
        let ([gx, gy, gz], [x, y, z]) = (self.groups, self.items);
        let config = CUlaunchConfig {
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: x,
            blockDimY: y,
            blockDimZ: z,
            sharedMemBytes: self.local_bytes,
            hStream: stream,
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as u32,
        };
        // SAFETY: as for plain launches, with as many attributes as is said.
        let code = unsafe { run(&config, function, null(), extra) };
        gpu.check(code, "cuLaunchKernelEx")
    }

    fn attributes(&self) -> Vec<CUlaunchAttribute> {
        use CUlaunchAttributeID::*;
        let attribute = |id, value| CUlaunchAttribute {
            id,
            pad: [0; 4],
            value,
        };
        let mut all = Vec::new();
        if self.wishes.cooperative {
            let value = CUlaunchAttributeValue { cooperative: 1 };
            all.push(attribute(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value));
        }
        if self.wishes.opportunistic {
            let value = CUlaunchAttributeValue {
                programmaticStreamSerializationAllowed: 1,
            };
            all.push(attribute(
                CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                value,
            ));
        }
        if let Some([z, y, x]) = self.wishes.cluster {
            let dims = CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
            let value = CUlaunchAttributeValue { clusterDim: dims };
            all.push(attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value));
        }
        all
    }
}

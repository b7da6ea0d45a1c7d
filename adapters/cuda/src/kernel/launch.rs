//! Launches in full: every check, and copies of the arguments, for any later submission.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Object, Result, ensure};
use ur::stream::{LaunchAttributes, LaunchRequest};

use super::Kernel;
use super::args::{Args, pack};
use super::code::{Code, Function};
use crate::cu;
use crate::cu::sys::*;
use crate::device::{Device, Limits};
use crate::exec::Gpu;

/// A checked launch with copies of its arguments, which can be submitted at any time.
pub struct Launch {
    code: Arc<Code>,
    with_offset: bool,
    args: Args,
    groups: [u32; 3],
    items: [u32; 3],
    local_bytes: u32,
    attributes: LaunchAttributes,
}

/// `CU_LAUNCH_PARAM_END`, `_BUFFER_POINTER` and `_BUFFER_SIZE`: parameters packed in one buffer.
const END: *mut c_void = std::ptr::null_mut();
const BUFFER: *mut c_void = std::ptr::without_provenance_mut(1);
const BYTES: *mut c_void = std::ptr::without_provenance_mut(2);

impl Kernel {
    /// Checks a launch in full and copies its arguments.
    pub fn launch(&self, device: &Object<Device>, request: &LaunchRequest<'_>) -> Result<Launch> {
        let attributes = request.attributes(device.launch_properties())?;
        let code = self.code(device)?;
        let limits = &device.limits;
        let dims = request.dims as usize;
        let offset = match &code.with_offset {
            Some(_) if request.offset[..dims] != [0; 3][..dims] => Some(request.offset),
            _ => None,
        };
        let function = match (&code.with_offset, offset) {
            (Some(function), Some(_)) => function,
            _ => &code.plain,
        };
        let global = request.global;
        let local = match request.local {
            Some(local) => local,
            None => self.choose(code, limits, global),
        };
        self.check_group(function, limits, local)?;
        let groups = divide(global, local, dims)?;
        let fits = groups.iter().zip(&limits.grid).all(|(own, max)| own <= max);
        ensure(fits, UR_RESULT_ERROR_INVALID_VALUE)?;
        let offset = offset.map(|offset| offset.map(|axis| axis as u32));
        let mut args = Args::default();
        pack(device, function, request.args, offset, &mut args)?;
        let wanted = attributes.group_memory.unwrap_or(0);
        let local_bytes = args
            .local_bytes
            .checked_add(wanted)
            .ok_or(Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES))?;
        function.allow(code.gpu(), limits, local_bytes)?;
        Ok(Launch {
            code: Arc::clone(code),
            with_offset: offset.is_some(),
            args,
            groups: groups.map(|axis| axis as u32),
            items: local.map(|axis| axis as u32),
            local_bytes: local_bytes as u32,
            attributes,
        })
    }

    #[inline(always)]
    fn check_group(&self, function: &Function, limits: &Limits, local: [usize; 3]) -> Result<()> {
        let [x, y, z] = limits.group;
        // 0 is more than any size, less 1.
        let within = (local[0].wrapping_sub(1) < x)
            & (local[1].wrapping_sub(1) < y)
            & (local[2].wrapping_sub(1) < z);
        let items = local[0].wrapping_mul(local[1]).wrapping_mul(local[2]);
        let max = limits.group_items.min(function.group_items);
        match within && items <= max && self.is_unruled {
            true => Ok(()),
            false => self.check_each_rule(function, limits, local),
        }
    }

    /// Checks the work-group size rule by rule. The error names the broken rule.
    #[inline(never)]
    pub(super) fn check_each_rule(
        &self,
        function: &Function,
        limits: &Limits,
        local: [usize; 3],
    ) -> Result<()> {
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
                .max
                .is_none_or(|max| (0..3).all(|axis| local[axis] <= max[axis]))
            && rules.max_linear.is_none_or(|max| items <= max);
        ensure(allowed, UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE)?;
        // The registers of this function limit the size, too.
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
        let linear = self.rules.max_linear.unwrap_or(usize::MAX);
        let max = code
            .best_items()
            .min(code.plain.group_items)
            .min(limits.group_items)
            .min(linear)
            .max(1);
        let mut rest = max;
        std::array::from_fn(|axis| {
            let own = self.rules.max.map_or(usize::MAX, |max| max[axis]);
            let limit = rest.min(limits.group[axis]).min(own).min(global[axis]);
            let size = (1..=limit.max(1))
                .rev()
                .find(|size| global[axis].is_multiple_of(*size))
                .unwrap_or(1);
            rest /= size;
            size
        })
    }
}

/// The work-groups along each axis, of which there are `dims`: the others have one.
#[inline(always)]
fn divide(global: [usize; 3], local: [usize; 3], dims: usize) -> Result<[usize; 3]> {
    // A division takes longer than the rest of an axis.
    let one = |axis: usize| match axis < dims {
        true => global[axis].checked_div(local[axis]).unwrap_or(0),
        false => 1,
    };
    let groups = [one(0), one(1), one(2)];
    let whole = (0..3).all(|axis| axis >= dims || groups[axis] * local[axis] == global[axis]);
    ensure(whole, UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE)?;
    Ok(groups)
}

impl Launch {
    /// The driver's function.
    pub fn function(&self) -> CUfunction {
        match (&self.code.with_offset, self.with_offset) {
            (Some(function), true) => function.raw,
            _ => self.code.plain.raw,
        }
    }

    /// Whether it has attributes besides local memory.
    fn is_extended(&self) -> bool {
        let plain = LaunchAttributes {
            group_memory: self.attributes.group_memory,
            ..LaunchAttributes::default()
        };
        self.attributes != plain
    }

    /// The launch as a graph's node, if it can be one.
    pub fn described<R>(
        &self,
        use_params: impl FnOnce(*const CUDA_KERNEL_NODE_PARAMS_v1) -> R,
    ) -> Option<R> {
        if self.is_extended() || !self.args.moving.is_empty() {
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
        Some(use_params(&what))
    }

    /// Submits the launch to a stream. The context is current.
    pub fn enqueue(&self, gpu: &Arc<Gpu>, stream: CUstream) -> Result<()> {
        let function = self.function();
        let resolved = match self.args.moving.is_empty() {
            true => None,
            false => Some(self.args.resolved(gpu, stream)?),
        };
        let packed = resolved.as_ref().unwrap_or(&self.args.packed);
        let mut bytes = packed.len();
        let all = [
            BUFFER,
            packed.start().cast_mut().cast(),
            BYTES,
            (&raw mut bytes).cast(),
            END,
        ];
        let extra = if bytes == 0 { null() } else { all.as_ptr() };
        let mut config = cu::launch_of(self.groups, self.items, stream);
        config.sharedMemBytes = self.local_bytes;
        if self.is_extended() {
            return self.enqueue_extended(gpu, config, function, extra);
        }
        // SAFETY: the launch keeps its function, the caller the stream. `pack` laid out the parameters as the
        // function declares them. The caller promises the memory behind pointers.
        let code = unsafe { gpu.api.launch(&config, function, null(), extra) };
        gpu.check(code, cu::LAUNCH)
    }

    #[cold]
    fn enqueue_extended(
        &self,
        gpu: &Gpu,
        mut config: CUlaunchConfig,
        function: CUfunction,
        extra: *const *mut c_void,
    ) -> Result<()> {
        let run = gpu.api.cuLaunchKernelEx.ok_or(Error::unsupported())?;
        let mut attributes = self.attributes();
        config.attrs = attributes.as_mut_ptr();
        config.numAttrs = attributes.len() as u32;
        // SAFETY: the launch keeps its function, the caller the stream, and `attributes` outlives the call. `pack` laid out
        // the parameters as the function declares them. The caller promises the memory behind pointers.
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
        if self.attributes.cooperative {
            let value = CUlaunchAttributeValue { cooperative: 1 };
            all.push(attribute(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value));
        }
        if self.attributes.opportunistic {
            let value = CUlaunchAttributeValue {
                programmaticStreamSerializationAllowed: 1,
            };
            all.push(attribute(
                CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                value,
            ));
        }
        if let Some([z, y, x]) = self.attributes.cluster {
            let dims = CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
            let value = CUlaunchAttributeValue { clusterDim: dims };
            all.push(attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value));
        }
        all
    }
}

//! Recorded commands as one command buffer of OpenCL, where the driver has those of version 1.
//!
//! Only commands that follow each other are made one, so that nothing that could run at once is put
//! in a row. What the extension does not know (host memory of buffers, images, prefetches, odd
//! patterns) ends a buffer and is submitted by itself. Changed launches are recorded anew: what was
//! submitted keeps the buffer that it runs.

use std::ptr::{self, null, null_mut};
use std::sync::Arc;

use opencl_sys::*;
use ur::abi::UR_RESULT_ERROR_UNSUPPORTED_FEATURE;
use ur::object::{Error, Object, Result, ensure};
use ur::stream::{Compiled, Context, Stamps, Step, Work};

use crate::OpenCl;
use crate::cl::{Api, QueueRef, Version};
use crate::device::Device;
use crate::exec::{Lane, Slot, plain_pattern};

const EXTENSION: &str = "cl_khr_command_buffer";

/// `CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR`, and the flag that asks for it.
const SIMULTANEOUS_CAPABILITY: cl_device_command_buffer_capabilities_khr = 1 << 2;
const SIMULTANEOUS_FLAG: cl_command_buffer_properties_khr = 1 << 0;

/// Fewer commands are not worth a buffer.
const LEAST: usize = 2;

/// Whether the device has command buffers as this module uses them.
pub fn is_offered(device: &Device) -> bool {
    let version = device.extension_version(EXTENSION);
    let modern =
        version.is_some_and(|version| (Version::new(1, 0)..Version::new(2, 0)).contains(&version));
    let able = device.value::<cl_device_command_buffer_capabilities_khr>(
        CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR,
    );
    let demands = device.value::<cl_command_queue_properties>(
        CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES_KHR,
    );
    modern
        && able.is_ok_and(|able| able & SIMULTANEOUS_CAPABILITY != 0)
        && demands.is_ok_and(|demands| demands == 0)
        && device.api().ext.clReleaseCommandBufferKHR.is_some()
        && device.api().ext.clFinalizeCommandBufferKHR.is_some()
        && device.api().ext.clEnqueueCommandBufferKHR.is_some()
}

/// A command buffer of OpenCL.
pub struct Recorder {
    api: &'static Api,
    raw: cl_command_buffer_khr,
}

// SAFETY: OpenCL's objects may be used from any thread.
unsafe impl Send for Recorder {}
// SAFETY: as above; it is not recorded into once it is shared.
unsafe impl Sync for Recorder {}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(release) = self.api.ext.clReleaseCommandBufferKHR {
            // SAFETY: our one reference.
            unsafe { release(self.raw) };
        }
    }
}

impl Recorder {
    fn open(api: &'static Api, queue: &QueueRef) -> Option<Self> {
        let create = api.ext.clCreateCommandBufferKHR?;
        let properties = [CL_COMMAND_BUFFER_FLAGS_KHR, SIMULTANEOUS_FLAG, 0];
        let (queue, mut code) = (queue.raw(), 0);
        // SAFETY: one live queue, and a property list that ends with zero.
        let raw = unsafe { create(1, &queue, properties.as_ptr(), &mut code) };
        (code == CL_SUCCESS && !raw.is_null()).then_some(Self { api, raw })
    }

    pub fn api(&self) -> &'static Api {
        self.api
    }

    pub fn raw(&self) -> cl_command_buffer_khr {
        self.raw
    }

    fn finalize(&self) -> Option<()> {
        let finalize = self.api.ext.clFinalizeCommandBufferKHR?;
        // SAFETY: a live buffer that is being recorded.
        (unsafe { finalize(self.raw) } == CL_SUCCESS).then_some(())
    }

    /// Records a command behind those before. None if that cannot be.
    fn add(&self, work: &Work<OpenCl>) -> Option<()> {
        let code = match work {
            // All that it could mean is order, which there is already.
            Work::Marker | Work::Advise { .. } => CL_SUCCESS,
            Work::Launch(launch) => return launch.record(self).ok(),
            Work::Native(native) => return (native.record.as_ref()?)(self).ok(),
            Work::Copy { dst, src, bytes } if *bytes > 0 => {
                let (dst, src) = (
                    ptr::with_exposed_provenance_mut(*dst),
                    ptr::with_exposed_provenance(*src),
                );
                let copy = self.api.ext.clCommandSVMMemcpyKHR?;
                let (raw, none) = (self.raw, null_mut());
                // SAFETY: the caller promises both ranges for each execution.
                unsafe {
                    copy(
                        raw,
                        none,
                        null(),
                        dst,
                        src,
                        *bytes,
                        0,
                        null(),
                        none.cast(),
                        none.cast(),
                    )
                }
            }
            Work::Fill {
                dst,
                pattern,
                bytes,
            } if plain_pattern(*dst, pattern) && *bytes > 0 => {
                let fill = self.api.ext.clCommandSVMMemFillKHR?;
                let to = ptr::with_exposed_provenance_mut(*dst);
                let (from, size) = (pattern.as_ptr().cast(), pattern.len());
                let (raw, none) = (self.raw, null_mut());
                // SAFETY: as above; the pattern is copied by the call.
                unsafe {
                    fill(
                        raw,
                        none,
                        null(),
                        to,
                        from,
                        size,
                        *bytes,
                        0,
                        null(),
                        none.cast(),
                        none.cast(),
                    )
                }
            }
            _ => return None,
        };
        (code == CL_SUCCESS).then_some(())
    }
}

/// Commands that were made one.
struct Recorded {
    buffer: Recorder,
    /// The same commands, for a queue that the driver does not take the buffer on; they keep what
    /// the buffer uses.
    works: Vec<Work<OpenCl>>,
    /// Whose properties the buffer was recorded for.
    _lane: Lane,
}

/// Makes one of as many commands from `from` on as follow each other and can be recorded.
pub fn compile(
    context: &Object<Context<OpenCl>>,
    device: &Object<Device>,
    steps: &[Step<'_, OpenCl>],
    from: usize,
) -> Option<(usize, Arc<dyn Compiled<OpenCl>>)> {
    if !device.records() {
        return None;
    }
    let follows = |at: usize| {
        let before = at.checked_sub(1).map(|before| before as u32);
        before.is_some_and(|before| steps[at].after.contains(&before))
    };
    let chain = 1
        + (from + 1..steps.len())
            .take_while(|at| follows(*at))
            .count();
    if chain < LEAST {
        return None;
    }
    let context = &context.domain().state().context;
    let lane = Lane::open(context, device, Default::default()).ok()?;
    let buffer = Recorder::open(context.api(), lane.queue())?;
    let mut works = Vec::with_capacity(chain);
    for step in &steps[from..from + chain] {
        if buffer.add(step.work).is_none() {
            break;
        }
        works.push(step.work.clone());
    }
    if works.len() < LEAST {
        return None;
    }
    buffer.finalize()?;
    let count = works.len();
    let recorded = Recorded {
        buffer,
        works,
        _lane: lane,
    };
    Some((count, Arc::new(recorded)))
}

impl Compiled<OpenCl> for Recorded {
    fn submit(&self, lane: &Lane, _: u64, stamps: Option<Arc<Stamps>>) -> Result<()> {
        lane.submit_recorded(&self.works, stamps, |slot| self.enqueue(slot))
    }
}

impl Recorded {
    fn enqueue(&self, slot: &Slot) -> Result<()> {
        let enqueue = self.buffer.api.ext.clEnqueueCommandBufferKHR;
        let enqueue = enqueue.ok_or(Error::unsupported())?;
        let mut queue = slot.queue;
        // SAFETY: a live queue, wait list and buffer.
        let code = unsafe {
            enqueue(
                1,
                &mut queue,
                self.buffer.raw,
                slot.count,
                slot.waits,
                slot.event,
            )
        };
        recorded(code)
    }
}

/// What a function of the extension answered. Whatever it refuses is submitted command by command,
/// so that a refusal is no error of the caller's and is told nobody.
pub fn recorded(code: cl_int) -> Result<()> {
    ensure(code == CL_SUCCESS, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)
}

//! Recorded commands as one native command buffer, if the driver has version 1 of the extension.
//!
//! A native buffer has only commands that depend on each other in a row, so that independent commands
//! stay concurrent. A command that the extension lacks (buffers in host memory, images, prefetches, odd
//! patterns) ends the buffer and is submitted alone. With mutable dispatch, a launch of the same kernel
//! is changed in place. Any other change records a new buffer; earlier submissions keep the old one.

use std::ptr::{self, null, null_mut};
use std::sync::Arc;

use opencl_sys::*;
use ur::abi::UR_RESULT_ERROR_UNSUPPORTED_FEATURE;
use ur::object::{Error, Object, Result, ensure};
use ur::stream::{Compiled, Devices, Progress, Step, Timestamps, Work};
use ur::sync::{Mutex, rank};

use crate::OpenCl;
use crate::cl::{Api, QueueRef, Version};
use crate::device::Device;
use crate::exec::{Lane, Slot, plain_pattern};

const EXTENSION: &str = "cl_khr_command_buffer";
const MUTABLE: &str = "cl_khr_command_buffer_mutable_dispatch";

/// `CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR`; the flag below requests it.
const SIMULTANEOUS_CAPABILITY: cl_device_command_buffer_capabilities_khr = 1 << 2;
const SIMULTANEOUS_FLAG: cl_command_buffer_properties_khr = 1 << 0;
const MUTABLE_FLAG: cl_command_buffer_properties_khr = 1 << 1;

/// The fields that an update may change. A driver that cannot change all of them is not asked.
const FIELDS: cl_mutable_dispatch_fields_khr = CL_MUTABLE_DISPATCH_GLOBAL_OFFSET_KHR
    | CL_MUTABLE_DISPATCH_GLOBAL_SIZE_KHR
    | CL_MUTABLE_DISPATCH_LOCAL_SIZE_KHR
    | CL_MUTABLE_DISPATCH_ARGUMENTS_KHR;

/// Fewest commands that are worth a buffer.
const MIN_COMMANDS: usize = 2;

/// Whether the device has the command buffers that `compile` needs.
pub fn is_offered(device: &Device) -> bool {
    has_buffers(device, Version::new(1, 0))
}

/// Whether the device has command buffers from version `least` to below 2. They must run on any queue,
/// and several executions must be allowed to be pending.
pub fn has_buffers(device: &Device, least: Version) -> bool {
    let version = device.extension_version(EXTENSION);
    let known = version.is_some_and(|version| (least..Version::new(2, 0)).contains(&version));
    let able = device.value::<cl_device_command_buffer_capabilities_khr>(
        CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR,
    );
    let demands = device.value::<cl_command_queue_properties>(
        CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES_KHR,
    );
    known
        && able.is_ok_and(|able| able & SIMULTANEOUS_CAPABILITY != 0)
        && demands.is_ok_and(|demands| demands == 0)
        && device.api().ext().clCreateCommandBufferKHR.is_some()
        && device.api().ext().clReleaseCommandBufferKHR.is_some()
        && device.api().ext().clFinalizeCommandBufferKHR.is_some()
        && device.api().ext().clEnqueueCommandBufferKHR.is_some()
}

/// The fields of a recorded launch that can be changed: all of [`FIELDS`], or none.
pub fn updatable(device: &Device) -> cl_mutable_dispatch_fields_khr {
    // Drivers with command buffers of version 1 use version 1's array of changes with 0.9, too.
    let version = device.extension_version(MUTABLE);
    let known =
        version.is_some_and(|version| (Version::new(0, 9)..Version::new(2, 0)).contains(&version));
    let able =
        device.value::<cl_mutable_dispatch_fields_khr>(CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR);
    let able = able.is_ok_and(|able| able & FIELDS == FIELDS);
    match known && able && device.api().ext().clUpdateMutableCommandsKHR.is_some() {
        true => FIELDS,
        false => 0,
    }
}

/// A native command buffer.
pub struct Recorder {
    api: &'static Api,
    raw: cl_command_buffer_khr,
    /// The fields of its launches that can be changed.
    fields: cl_mutable_dispatch_fields_khr,
}

/// A native recorded command, valid while its buffer lives. Null if it cannot be changed.
#[derive(Clone, Copy)]
pub struct Mutable(cl_mutable_command_khr);

// SAFETY: OpenCL's objects may be used from any thread.
unsafe impl Send for Mutable {}
// SAFETY: OpenCL's objects may be used from any thread.
unsafe impl Sync for Mutable {}

impl Mutable {
    const NONE: Self = Self(null_mut());
}

// SAFETY: OpenCL's objects may be used from any thread.
unsafe impl Send for Recorder {}
// SAFETY: OpenCL's objects may be used from any thread, and a shared buffer is no longer recorded into.
unsafe impl Sync for Recorder {}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(release) = self.api.ext().clReleaseCommandBufferKHR {
            // SAFETY: `self` owns the reference and ends here.
            unsafe { release(self.raw) };
        }
    }
}

impl Recorder {
    /// Creates a buffer for queues with the properties of this one. The error is the driver's code.
    pub fn open(
        api: &'static Api,
        queue: &QueueRef,
        fields: cl_mutable_dispatch_fields_khr,
    ) -> std::result::Result<Self, cl_int> {
        let create = api.ext().clCreateCommandBufferKHR;
        let create = create.ok_or(CL_INVALID_OPERATION)?;
        let mutable = if fields == 0 { 0 } else { MUTABLE_FLAG };
        let flags = SIMULTANEOUS_FLAG | mutable;
        let properties = [CL_COMMAND_BUFFER_FLAGS_KHR, flags, 0];
        let (queue, mut code) = (queue.raw(), 0);
        // SAFETY: the queue is alive, and the property list ends with 0.
        let raw = unsafe { create(1, &queue, properties.as_ptr(), &mut code) };
        match code {
            CL_SUCCESS if raw.is_null() => Err(CL_INVALID_OPERATION),
            CL_SUCCESS => Ok(Self { api, raw, fields }),
            code => Err(code),
        }
    }

    pub fn api(&self) -> &'static Api {
        self.api
    }

    pub fn raw(&self) -> cl_command_buffer_khr {
        self.raw
    }

    /// Ends the recording. Returns the driver's code.
    pub fn finalize(&self) -> cl_int {
        match self.api.ext().clFinalizeCommandBufferKHR {
            // SAFETY: `self` keeps the buffer alive, and the driver refuses a second call.
            Some(finalize) => unsafe { finalize(self.raw) },
            None => CL_INVALID_OPERATION,
        }
    }

    /// Enqueues the recorded commands. Returns the driver's code.
    pub fn enqueue(&self, slot: &Slot) -> cl_int {
        let Some(enqueue) = self.api.ext().clEnqueueCommandBufferKHR else {
            return CL_INVALID_OPERATION;
        };
        let mut queue = slot.queue;
        // SAFETY: queue, waits and buffer are alive.
        unsafe { enqueue(1, &mut queue, self.raw, slot.count, slot.waits, slot.event) }
    }

    /// Records a launch with its offset, global size and local size.
    pub fn launch(
        &self,
        kernel: cl_kernel,
        dims: u32,
        [offset, global, local]: [*const usize; 3],
    ) -> Result<Mutable> {
        let record = self.api.ext().clCommandNDRangeKernelKHR;
        let record = record.ok_or(Error::unsupported())?;
        let (none, mut made) = (null_mut(), null_mut());
        let properties = [CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR, self.fields, 0];
        let (properties, handle) = match self.fields {
            0 => (null(), null_mut()),
            _ => (properties.as_ptr(), &raw mut made),
        };
        // SAFETY: buffer and kernel are alive, each list has `dims` sizes, and the property list ends with
        // 0 if it is not null.
        recorded(unsafe {
            record(
                self.raw,
                none,
                properties,
                kernel,
                dims,
                offset,
                global,
                local,
                0,
                null(),
                none.cast(),
                handle,
            )
        })?;
        Ok(Mutable(made))
    }

    /// Changes a recorded launch for later enqueues. The command of `change` is ignored.
    pub fn change(&self, command: Mutable, change: cl_mutable_dispatch_config_khr) -> Result<()> {
        let update = self.api.ext().clUpdateMutableCommandsKHR;
        let update = update.filter(|_| !command.0.is_null());
        let update = update.ok_or(Error::unsupported())?;
        let change = cl_mutable_dispatch_config_khr {
            command: command.0,
            ..change
        };
        let kind = CL_STRUCTURE_TYPE_MUTABLE_DISPATCH_CONFIG_KHR;
        let mut changes = [(&raw const change).cast()];
        // SAFETY: the buffer is finalized and has the command, and there is one change of that type.
        recorded(unsafe { update(self.raw, 1, &kind, changes.as_mut_ptr()) })
    }

    /// Records a command behind the others. None if the extension lacks it or the driver refuses it.
    fn add(&self, work: &Work<OpenCl>) -> Option<Mutable> {
        let code = match work {
            // The buffer is in order, and a hint has no effect.
            Work::Marker | Work::Advise { .. } => CL_SUCCESS,
            Work::Launch(launch) => return launch.record(self).ok(),
            Work::Native(native) => {
                return (native.record.as_ref()?)(self).ok().map(|()| Mutable::NONE);
            }
            Work::Copy { dst, src, bytes } if *bytes > 0 => {
                let (dst, src) = (
                    ptr::with_exposed_provenance_mut(*dst),
                    ptr::with_exposed_provenance(*src),
                );
                let copy = self.api.ext().clCommandSVMMemcpyKHR?;
                let (raw, none) = (self.raw, null_mut());
                // SAFETY: the caller keeps both ranges for each execution.
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
                let fill = self.api.ext().clCommandSVMMemFillKHR?;
                let to = ptr::with_exposed_provenance_mut(*dst);
                let (from, size) = (pattern.as_ptr().cast(), pattern.len());
                let (raw, none) = (self.raw, null_mut());
                // SAFETY: the caller keeps the range for each execution, and the call copies the pattern.
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
        (code == CL_SUCCESS).then_some(Mutable::NONE)
    }
}

/// Commands in one native buffer.
struct Recorded {
    buffer: Recorder,
    /// The native command of each command.
    commands: Vec<Mutable>,
    /// The commands for a queue that the driver does not take the buffer on; they keep what the buffer uses.
    works: Mutex<Vec<Work<OpenCl>>, { rank::RECORDED_WORKS }>,
    /// Whose properties the buffer was recorded for.
    _lane: Arc<Lane>,
}

/// Records a native buffer of the steps from `from` on. It ends at the first step that does not depend
/// on the step before or that cannot be recorded. Returns the number of steps. None for fewer than two.
pub fn compile(
    devices: &Devices<OpenCl>,
    device: &Object<Device>,
    steps: &[Step<'_, OpenCl>],
    from: usize,
    updatable: bool,
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
    if chain < MIN_COMMANDS {
        return None;
    }
    let context = &devices.state().context;
    let lane = Lane::open(context, device, Default::default()).ok()?;
    let fields = if updatable { device.updates() } else { 0 };
    let buffer = Recorder::open(context.api(), lane.queue(), fields).ok()?;
    let (mut works, mut commands) = (Vec::with_capacity(chain), Vec::with_capacity(chain));
    for step in &steps[from..from + chain] {
        let Some(command) = buffer.add(step.work) else {
            break;
        };
        works.push(step.work.clone());
        commands.push(command);
    }
    if works.len() < MIN_COMMANDS {
        return None;
    }
    recorded(buffer.finalize()).ok()?;
    let count = works.len();
    let recorded = Recorded {
        buffer,
        commands,
        works: Mutex::new(works),
        _lane: lane,
    };
    Some((count, Arc::new(recorded)))
}

impl Compiled<OpenCl> for Recorded {
    fn submit(
        &self,
        lane: &Arc<Lane>,
        epoch: u64,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<Progress> {
        let works = self.works.lock();
        lane.submit_recorded(epoch, &works, timestamps, |slot| {
            recorded(self.buffer.enqueue(slot))
        })?;
        Ok(Progress::Pending)
    }

    fn update(&self, at: usize, work: &Work<OpenCl>) -> bool {
        let mut works = self.works.lock();
        let (Some(before), Some(command)) = (works.get_mut(at), self.commands.get(at)) else {
            return false;
        };
        let (Work::Launch(old), Work::Launch(new)) = (&*before, work) else {
            return false;
        };
        let replaced = new.replace(old, &self.buffer, *command).is_ok();
        if replaced {
            *before = work.clone();
        }
        replaced
    }
}

/// Converts the code of an extension function. A refused command is submitted by itself, so that the
/// refusal is not stored as the caller's last error.
pub fn recorded(code: cl_int) -> Result<()> {
    ensure(code == CL_SUCCESS, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)
}

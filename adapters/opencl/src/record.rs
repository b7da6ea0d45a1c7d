//! Recorded commands as one command buffer of OpenCL, where the driver has those of version 1.
//!
//! Only commands that follow each other are made one, so that nothing that could run at once is put
//! in a row. What the extension does not know (host memory of buffers, images, prefetches, odd
//! patterns) ends a buffer and is submitted by itself. A launch is changed in place where the driver
//! has mutable dispatch and the kernel stays; otherwise the commands are recorded anew, and what was
//! submitted keeps the buffer that it runs.

use std::ptr::{self, null, null_mut};
use std::sync::Arc;

use opencl_sys::*;
use ur::abi::UR_RESULT_ERROR_UNSUPPORTED_FEATURE;
use ur::object::{Error, Object, Result, ensure};
use ur::stream::{Compiled, Devices, Progress, Step, Timestamps, Work};
use ur::timeline::rank;
use ur::timeline::sync::Mutex;

use crate::OpenCl;
use crate::cl::{Api, QueueRef, Version};
use crate::device::Device;
use crate::exec::{Lane, Slot, plain_pattern};

const EXTENSION: &str = "cl_khr_command_buffer";
const MUTABLE: &str = "cl_khr_command_buffer_mutable_dispatch";

/// `CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR`, and the flag that asks for it.
const SIMULTANEOUS_CAPABILITY: cl_device_command_buffer_capabilities_khr = 1 << 2;
const SIMULTANEOUS_FLAG: cl_command_buffer_properties_khr = 1 << 0;
const MUTABLE_FLAG: cl_command_buffer_properties_khr = 1 << 1;

/// What has to be changeable for an update to be worth trying.
const FIELDS: cl_mutable_dispatch_fields_khr = CL_MUTABLE_DISPATCH_GLOBAL_OFFSET_KHR
    | CL_MUTABLE_DISPATCH_GLOBAL_SIZE_KHR
    | CL_MUTABLE_DISPATCH_LOCAL_SIZE_KHR
    | CL_MUTABLE_DISPATCH_ARGUMENTS_KHR;

/// Fewer commands are not worth a buffer.
const MIN_COMMANDS: usize = 2;

/// Whether the device has command buffers as this module uses them.
pub fn is_offered(device: &Device) -> bool {
    has_buffers(device, Version::new(1, 0))
}

/// Whether the device has command buffers of this version or a later one before 2, for any queue, and of
/// which several executions may be pending.
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

/// Which of [`FIELDS`] recorded launches can have changed: all, or none.
pub fn updatable(device: &Device) -> cl_mutable_dispatch_fields_khr {
    // Version 0.9 of a driver whose buffers have version 1 takes its changes as an array, as 1 does.
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

/// A command buffer of OpenCL.
pub struct Recorder {
    api: &'static Api,
    raw: cl_command_buffer_khr,
    /// What of its launches can be changed.
    fields: cl_mutable_dispatch_fields_khr,
}

/// A recorded command of OpenCL's, as long as its buffer is there; null if it cannot be changed.
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
// SAFETY: OpenCL's objects may be used from any thread; it is not recorded into once it is shared.
unsafe impl Sync for Recorder {}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(release) = self.api.ext().clReleaseCommandBufferKHR {
            // SAFETY: our one reference.
            unsafe { release(self.raw) };
        }
    }
}

impl Recorder {
    /// A new one for queues like this; the driver's code where there is none.
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
        // SAFETY: one live queue, and a property list that ends with zero.
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

    /// Ends the recording: the driver's code.
    pub fn finalize(&self) -> cl_int {
        match self.api.ext().clFinalizeCommandBufferKHR {
            // SAFETY: a live buffer, which the driver refuses to end twice.
            Some(finalize) => unsafe { finalize(self.raw) },
            None => CL_INVALID_OPERATION,
        }
    }

    /// Enqueues what was recorded: the driver's code.
    pub fn enqueue(&self, slot: &Slot) -> cl_int {
        let Some(enqueue) = self.api.ext().clEnqueueCommandBufferKHR else {
            return CL_INVALID_OPERATION;
        };
        let mut queue = slot.queue;
        // SAFETY: a live queue, wait list and buffer.
        unsafe { enqueue(1, &mut queue, self.raw, slot.count, slot.waits, slot.event) }
    }

    /// Records a launch; `sizes` are its offset, global and local size.
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
        // SAFETY: a live buffer and kernel; as many sizes as there are dimensions; properties that end
        // with zero, and room for a handle, where there are any.
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

    /// Gives a recorded launch what `change` holds besides its command, from the next enqueueing on.
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
        // SAFETY: a live buffer that was finalized and a command of it; one change of that type.
        recorded(unsafe { update(self.raw, 1, &kind, changes.as_mut_ptr()) })
    }

    /// Records a command behind those before. None if that cannot be.
    fn add(&self, work: &Work<OpenCl>) -> Option<Mutable> {
        let code = match work {
            // All that it could mean is order, which there is already.
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
                let fill = self.api.ext().clCommandSVMMemFillKHR?;
                let to = ptr::with_exposed_provenance_mut(*dst);
                let (from, size) = (pattern.as_ptr().cast(), pattern.len());
                let (raw, none) = (self.raw, null_mut());
                // SAFETY: the caller promises both ranges for each execution; the pattern is copied by the
                // call.
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

/// Commands that were made one.
struct Recorded {
    buffer: Recorder,
    /// For each command what changes it.
    commands: Vec<Mutable>,
    /// The same commands, for a queue that the driver does not take the buffer on; they keep what
    /// the buffer uses.
    works: Mutex<Vec<Work<OpenCl>>, { rank::RECORDED_WORKS }>,
    /// Whose properties the buffer was recorded for.
    _lane: Arc<Lane>,
}

/// Makes one of as many commands from `from` on as follow each other and can be recorded.
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

/// What a function of the extension answered. Whatever it refuses is submitted command by command,
/// so that a refusal is no error of the caller's and is told nobody.
pub fn recorded(code: cl_int) -> Result<()> {
    ensure(code == CL_SUCCESS, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)
}

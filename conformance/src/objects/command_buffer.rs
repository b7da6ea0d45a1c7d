//! Command buffers, and the commands that most tests append.

use super::event::WaitList;
use super::{Arg, Context, Event, Kernel, Queue, info, owned};
use crate::fixture::Fixture;
use crate::outcome::{Done, Stop};
use crate::status::Status;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use ur::abi::*;

owned!(
    /// A command buffer.
    CommandBuffer, ur_exp_command_buffer_handle_t, urCommandBufferRetainExp, urCommandBufferReleaseExp
);

/// The descriptor's options.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    pub updatable: bool,
    pub in_order: bool,
    pub profiled: bool,
}

/// The options of an append beside its command.
#[derive(Clone, Copy, Default)]
pub struct With<'a> {
    pub after: &'a [u32],
    pub waits: &'a [&'a Event],
    pub event: bool,
    pub handle: bool,
}

impl<'a> With<'a> {
    pub fn after(after: &'a [u32]) -> Self {
        Self {
            after,
            ..Self::default()
        }
    }

    pub fn waits(waits: &'a [&'a Event]) -> Self {
        Self {
            waits,
            ..Self::default()
        }
    }

    pub fn event() -> Self {
        Self {
            event: true,
            ..Self::default()
        }
    }

    pub fn handle() -> Self {
        Self {
            handle: true,
            ..Self::default()
        }
    }
}

/// The results of an append.
pub struct Appended {
    pub point: u32,
    pub event: Option<Event>,
    pub command: ur_exp_command_buffer_command_handle_t,
}

/// The last arguments of every append function.
pub struct Slots {
    pub points: (u32, *const u32),
    pub events: (u32, *const ur_event_handle_t),
    pub point: *mut u32,
    pub event: *mut ur_event_handle_t,
    pub command: *mut ur_exp_command_buffer_command_handle_t,
}

impl Appended {
    /// The event, which the append must have asked for.
    pub fn into_event(self) -> Result<Event, Stop> {
        self.event.ok_or_else(|| Stop::failed("no event"))
    }
}

impl CommandBuffer {
    /// Stops the test unless the device has command buffers.
    pub fn need(fixture: &Fixture, context: &Context) -> Done {
        fixture.require(UR_DEVICE_INFO_COMMAND_BUFFER_SUPPORT_EXP, || {
            let desc = ur_exp_command_buffer_desc_t::default();
            let (context, device) = (context.raw, fixture.device);
            fixture
                .ur
                .urCommandBufferCreateExp(context, device, &desc, &mut null_mut())
        })
    }

    #[track_caller]
    pub fn new(fixture: &Fixture, context: &Context, shape: Shape) -> Result<Self, Stop> {
        Self::need(fixture, context)?;
        let desc = ur_exp_command_buffer_desc_t {
            isUpdatable: shape.updatable.into(),
            isInOrder: shape.in_order.into(),
            enableProfiling: shape.profiled.into(),
            ..Default::default()
        };
        let mut raw = null_mut();
        context
            .ur
            .urCommandBufferCreateExp(context.raw, fixture.device, &desc, &mut raw)
            .ok()?;
        Ok(Self::adopt(context.ur, raw))
    }

    #[track_caller]
    pub fn get<T: Copy>(&self, property: ur_exp_command_buffer_info_t) -> Result<T, Stop> {
        info::value(|size, value, ret| {
            self.ur
                .urCommandBufferGetInfoExp(self.raw, property, size, value, ret)
        })
    }

    /// Calls an append function with the arguments that all of them end with.
    #[track_caller]
    pub fn append(
        &self,
        with: With<'_>,
        append: impl FnOnce(&Slots) -> Status,
    ) -> Result<Appended, Stop> {
        let waits = WaitList::new(with.waits);
        let (mut point, mut event, mut command) = (u32::MAX, null_mut(), null_mut());
        let points = match with.after {
            [] => (0, null()),
            after => (after.len() as u32, after.as_ptr()),
        };
        let slots = Slots {
            points,
            events: (waits.count(), waits.pointer()),
            point: &mut point,
            event: if with.event { &mut event } else { null_mut() },
            command: if with.handle {
                &mut command
            } else {
                null_mut()
            },
        };
        append(&slots).ok()?;
        Ok(Appended {
            point,
            event: with.event.then(|| Event::adopt(self.ur, event)),
            command,
        })
    }

    #[track_caller]
    pub fn copy(
        &self,
        dst: *mut c_void,
        src: *const c_void,
        size: usize,
        with: With<'_>,
    ) -> Result<Appended, Stop> {
        self.append(with, |s| {
            self.ur.urCommandBufferAppendUSMMemcpyExp(
                self.raw, dst, src, size, s.points.0, s.points.1, s.events.0, s.events.1, s.point,
                s.event, s.command,
            )
        })
    }

    #[track_caller]
    pub fn fill<T: Copy>(
        &self,
        dst: *mut c_void,
        pattern: T,
        size: usize,
        with: With<'_>,
    ) -> Result<Appended, Stop> {
        let (from, bytes) = ((&raw const pattern).cast(), size_of::<T>());
        self.append(with, |s| {
            self.ur.urCommandBufferAppendUSMFillExp(
                self.raw, dst, from, bytes, size, s.points.0, s.points.1, s.events.0, s.events.1,
                s.point, s.event, s.command,
            )
        })
    }

    /// Appends a launch over one dimension. The adapter chooses the work-group size.
    #[track_caller]
    pub fn launch(
        &self,
        kernel: &Kernel,
        items: usize,
        args: &[Arg],
        with: With<'_>,
    ) -> Result<Appended, Stop> {
        self.launch_or(kernel, items, args, &[], with)
    }

    /// Appends a launch with the kernels that an update may switch it to.
    #[track_caller]
    pub fn launch_or(
        &self,
        kernel: &Kernel,
        items: usize,
        args: &[Arg],
        alternatives: &[&Kernel],
        with: With<'_>,
    ) -> Result<Appended, Stop> {
        let args = Arg::properties(args);
        let mut alternatives: Vec<_> = alternatives.iter().map(|kernel| kernel.raw).collect();
        let alternatives = match &mut alternatives[..] {
            [] => (0, null_mut()),
            list => (list.len() as u32, list.as_mut_ptr()),
        };
        self.append(with, |s| {
            self.ur.urCommandBufferAppendKernelLaunchWithArgsExp(
                self.raw,
                kernel.raw,
                1,
                null(),
                &items,
                null(),
                args.len() as u32,
                args.as_ptr(),
                alternatives.0,
                alternatives.1,
                s.points.0,
                s.points.1,
                s.events.0,
                s.events.1,
                s.point,
                s.event,
                s.command,
            )
        })
    }

    #[track_caller]
    pub fn finalize(&self) -> Done {
        self.ur.urCommandBufferFinalizeExp(self.raw).ok()
    }

    #[track_caller]
    pub fn enqueue(&self, queue: &Queue, waits: &[&Event]) -> Result<Event, Stop> {
        let waits = WaitList::new(waits);
        queue.event(|event| {
            let (count, list) = (waits.count(), waits.pointer());
            self.ur
                .urEnqueueCommandBufferExp(queue.raw, self.raw, count, list, event)
        })
    }

    /// Submits the buffer without an event.
    #[track_caller]
    pub fn enqueue_only(&self, queue: &Queue) -> Done {
        self.ur
            .urEnqueueCommandBufferExp(queue.raw, self.raw, 0, null(), null_mut())
            .ok()
    }
}

/// Changes to one recorded launch, and the values that they point to.
#[derive(Default)]
pub struct Update {
    pub kernel: ur_kernel_handle_t,
    pub dims: u32,
    pub offset: Option<[usize; 3]>,
    pub global: Option<[usize; 3]>,
    pub local: Option<[usize; 3]>,
    pub mems: Vec<(u32, ur_mem_handle_t)>,
    pub pointers: Vec<(u32, *const c_void)>,
    pub values: Vec<(u32, Vec<u8>)>,
}

impl Update {
    pub fn of_kernel(mut self, kernel: &Kernel) -> Self {
        self.kernel = kernel.raw;
        self
    }

    pub fn pointer(mut self, at: u32, pointer: *const c_void) -> Self {
        self.pointers.push((at, pointer));
        self
    }

    pub fn value(self, at: u32, value: u32) -> Self {
        self.bytes(at, &value.to_ne_bytes())
    }

    pub fn bytes(mut self, at: u32, value: &[u8]) -> Self {
        self.values.push((at, value.to_vec()));
        self
    }

    pub fn mem(mut self, at: u32, mem: ur_mem_handle_t) -> Self {
        self.mems.push((at, mem));
        self
    }

    pub fn items(mut self, items: usize) -> Self {
        (self.dims, self.global) = (1, Some([items, 1, 1]));
        self
    }

    /// Updates one command of a buffer.
    pub fn apply(
        &self,
        buffer: &CommandBuffer,
        command: ur_exp_command_buffer_command_handle_t,
    ) -> Status {
        Self::apply_all(buffer, &[(command, self)])
    }

    /// Updates several commands in one call.
    pub fn apply_all(
        buffer: &CommandBuffer,
        updates: &[(ur_exp_command_buffer_command_handle_t, &Self)],
    ) -> Status {
        let lists: Vec<_> = updates.iter().map(|(_, update)| update.lists()).collect();
        let descs: Vec<_> = updates
            .iter()
            .zip(&lists)
            .map(|((command, update), lists)| update.desc(*command, lists))
            .collect();
        let (count, list) = (descs.len() as u32, descs.as_ptr());
        buffer
            .ur
            .urCommandBufferUpdateKernelLaunchExp(buffer.raw, count, list)
    }

    fn lists(&self) -> Lists {
        let mem =
            |&(at, mem): &(u32, ur_mem_handle_t)| ur_exp_command_buffer_update_memobj_arg_desc_t {
                argIndex: at,
                hNewMemObjArg: mem,
                ..Default::default()
            };
        let pointer = |(at, pointer): &(u32, *const c_void)| {
            ur_exp_command_buffer_update_pointer_arg_desc_t {
                argIndex: *at,
                pNewPointerArg: std::ptr::from_ref(pointer).cast(),
                ..Default::default()
            }
        };
        let value = |(at, value): &(u32, Vec<u8>)| ur_exp_command_buffer_update_value_arg_desc_t {
            argIndex: *at,
            argSize: value.len(),
            pNewValueArg: value.as_ptr().cast(),
            ..Default::default()
        };
        Lists {
            mems: self.mems.iter().map(mem).collect(),
            pointers: self.pointers.iter().map(pointer).collect(),
            values: self.values.iter().map(value).collect(),
        }
    }

    fn desc(
        &self,
        command: ur_exp_command_buffer_command_handle_t,
        lists: &Lists,
    ) -> ur_exp_command_buffer_update_kernel_launch_desc_t {
        let sizes = |sizes: &Option<[usize; 3]>| {
            sizes
                .as_ref()
                .map_or(null_mut(), |sizes| sizes.as_ptr().cast_mut())
        };
        ur_exp_command_buffer_update_kernel_launch_desc_t {
            hCommand: command,
            hNewKernel: self.kernel,
            numNewMemObjArgs: lists.mems.len() as u32,
            numNewPointerArgs: lists.pointers.len() as u32,
            numNewValueArgs: lists.values.len() as u32,
            newWorkDim: self.dims,
            pNewMemObjArgList: list(&lists.mems),
            pNewPointerArgList: list(&lists.pointers),
            pNewValueArgList: list(&lists.values),
            pNewGlobalWorkOffset: sizes(&self.offset),
            pNewGlobalWorkSize: sizes(&self.global),
            pNewLocalWorkSize: sizes(&self.local),
            ..Default::default()
        }
    }
}

struct Lists {
    mems: Vec<ur_exp_command_buffer_update_memobj_arg_desc_t>,
    pointers: Vec<ur_exp_command_buffer_update_pointer_arg_desc_t>,
    values: Vec<ur_exp_command_buffer_update_value_arg_desc_t>,
}

/// The address of a list; null when empty, as the interface requires.
fn list<T>(list: &[T]) -> *const T {
    if list.is_empty() {
        null()
    } else {
        list.as_ptr()
    }
}

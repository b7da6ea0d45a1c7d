//! Command buffers: commands recorded once, updated if they may be, and submitted many times.
//!
//! | from | to | by |
//! |---|---|---|
//! | open | finalized | `urCommandBufferFinalizeExp`: no command is appended any more, submissions begin |

use crate::abi::*;
use crate::hal::{self, CommandBufferInfo};
use crate::object::{Body, Error, Handles, InfoOut, Object, Out, OutHandle, Result, ensure};
use crate::stream::event::Event;
use crate::stream::recording::command::{Command, Target};
use crate::stream::recording::native_record::Records;
use crate::stream::recording::replay::Replay;
use crate::stream::recording::{Node, Recording};
use crate::stream::{Context, Driver, LaunchRequest, PlainLaunch};
use crate::sync::{Mutex, MutexGuard, rank};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// The properties of a launch that an update can change: all of them, on every backend.
pub const UPDATES: ur_device_command_buffer_update_capability_flags_t =
    ur_device_command_buffer_update_capability_flags_t(
        !UR_DEVICE_COMMAND_BUFFER_UPDATE_CAPABILITY_FLAGS_MASK,
    );

/// A command buffer's handle.
pub struct CommandBuffer<D: Driver> {
    context: Arc<Object<Context<D>>>,
    device: Arc<Object<D::Device>>,
    updatable: bool,
    in_order: bool,
    profiles: bool,
    /// First number of its sync points: sync points of another buffer are then most likely invalid.
    first_sync_point: u32,
    state: Mutex<BufferState<D>, { rank::COMMAND_BUFFER }>,
    /// Handles of its commands, which the buffer owns.
    handles: Mutex<Vec<Arc<Object<RecordedCommand<D>>>>>,
    pub(crate) records: Records<D>,
}

pub(crate) enum BufferState<D: Driver> {
    Open(Recording<D>),
    Finalized(Replay<D>),
}

/// A command's handle. The buffer owns it: it ends with the buffer's last reference.
pub struct RecordedCommand<D: Driver> {
    buffer: Weak<Object<CommandBuffer<D>>>,
    node: usize,
}

/// The outputs of an append.
pub(crate) struct Outputs<'a, D: Driver> {
    pub sync_point: Out<'a, ur_exp_command_buffer_sync_point_t>,
    pub event: OutHandle<'a, Event<D>>,
    pub command: OutHandle<'a, RecordedCommand<D>>,
}

impl<D: Driver> Body for CommandBuffer<D> {
    const KIND: crate::object::Kind = crate::object::Kind::CommandBuffer;

    fn released(this: &Object<Self>) {
        let handles = std::mem::take(&mut *this.handles.lock());
        for handle in handles {
            if let Err(error) = handle.release() {
                log::error!("a command's handle was released before: {:?}", error.code());
            }
        }
    }
}

impl<D: Driver> Body for RecordedCommand<D> {
    const KIND: crate::object::Kind = crate::object::Kind::CommandBufferCommand;
}

impl<D: Driver> BufferState<D> {
    /// The recording, while commands can be appended.
    pub(crate) fn open(&mut self) -> Result<&mut Recording<D>> {
        match self {
            Self::Open(recording) => Ok(recording),
            Self::Finalized(_) => Err(Error::new(UR_RESULT_ERROR_INVALID_OPERATION)),
        }
    }
}

const NO_COMMAND: Error = Error::new(UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP);

impl<D: Driver> RecordedCommand<D> {
    pub(crate) fn buffer(&self) -> Result<Arc<Object<CommandBuffer<D>>>> {
        self.buffer.upgrade().ok_or(NO_COMMAND)
    }

    /// Index of the command in that buffer.
    pub(crate) fn node_in(&self, buffer: &Object<CommandBuffer<D>>) -> Result<usize> {
        let own = std::ptr::eq(self.buffer.as_ptr(), buffer);
        own.then_some(self.node).ok_or(NO_COMMAND)
    }
}

impl<D: Driver> CommandBuffer<D> {
    pub(crate) fn create(
        context: &Object<Context<D>>,
        device: &Object<D::Device>,
        desc: &ur_exp_command_buffer_desc_t,
    ) -> Result<Arc<Object<Self>>> {
        context.domain().engine().check()?;
        context.index(device)?;
        static BUFFERS: AtomicU32 = AtomicU32::new(1);
        let number = BUFFERS.fetch_add(1, Ordering::Relaxed);
        Ok(hal::new::<D, _>(Self {
            context: context.arc(),
            device: device.arc(),
            updatable: desc.isUpdatable != 0,
            in_order: desc.isInOrder != 0,
            profiles: desc.enableProfiling != 0,
            // Multiples of the golden ratio stay far apart.
            first_sync_point: number.wrapping_mul(0x9e37_79b1),
            state: Mutex::new(BufferState::Open(Recording::default())),
            handles: Mutex::default(),
            records: Records::default(),
        }))
    }

    pub(crate) fn target(&self) -> Target<'_, D> {
        Target {
            context: &self.context,
            device: &self.device,
        }
    }

    pub(crate) fn device(&self) -> &Object<D::Device> {
        &self.device
    }

    pub(crate) fn profiles(&self) -> bool {
        self.profiles
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, BufferState<D>> {
        self.state.lock()
    }

    /// The replay that an update changes.
    pub(crate) fn updated<'a>(&self, state: &'a mut BufferState<D>) -> Result<&'a mut Replay<D>> {
        match state {
            BufferState::Finalized(replay) if self.updatable => Ok(replay),
            _ => Err(Error::new(UR_RESULT_ERROR_INVALID_OPERATION)),
        }
    }

    /// Records a command after the sync points. `choice`: kernels that an update may switch its
    /// launch to.
    pub(crate) fn append(
        this: &Object<Self>,
        made: Command<'_, D>,
        choice: Handles<'_, D::Kernel>,
        sync_points: &[ur_exp_command_buffer_sync_point_t],
        waits: Handles<'_, Event<D>>,
        out: Outputs<'_, D>,
    ) -> Result<()> {
        this.context.domain().engine().check()?;
        ensure(
            this.updatable || !out.command.wanted(),
            UR_RESULT_ERROR_INVALID_OPERATION,
        )?;
        let mut state = this.state();
        let recording = state.open()?;
        let at = recording.nodes.len() as u32;
        let kind = made.kind;
        let choice: Vec<_> = choice.iter().map(Object::arc).collect();
        let mut node = Node::new(made, out.command.wanted().then_some(&choice[..]))?;
        node.after = this.nodes_before(recording, sync_points)?;
        node.waits = waits.iter().map(Object::arc).collect();
        if out.event.wanted() {
            let event = Event::recorded(&this.context, kind, recording.id, at);
            out.event.set(&event);
            node.signal = Some(event);
        }
        if out.command.wanted() {
            let handle = hal::new::<D, _>(RecordedCommand {
                buffer: Arc::downgrade(&this.arc()),
                node: at as usize,
            });
            out.command.set(&handle);
            this.handles.lock().push(handle);
        }
        out.sync_point.set(this.push(recording, node));
        Ok(())
    }

    /// As [`CommandBuffer::append`], of a launch whose sizes have `dims` dimensions.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn append_launch(
        this: &Object<Self>,
        kernel: &Object<D::Kernel>,
        dims: u32,
        launch: PlainLaunch<'_>,
        choice: Handles<'_, D::Kernel>,
        sync_points: &[ur_exp_command_buffer_sync_point_t],
        waits: Handles<'_, Event<D>>,
        out: Outputs<'_, D>,
    ) -> Result<()> {
        let itself = choice.iter().any(|other| std::ptr::eq(other, kernel));
        ensure(!itself, UR_RESULT_ERROR_INVALID_VALUE)?;
        let request = LaunchRequest::new(dims, launch, None)?;
        let made = this.target().launch(kernel, request)?;
        Self::append(this, made, choice, sync_points, waits, out)
    }

    /// Records a command. Returns its sync point.
    pub(crate) fn push(
        &self,
        recording: &mut Recording<D>,
        node: Node<D>,
    ) -> ur_exp_command_buffer_sync_point_t {
        let at = recording.nodes.len() as u32;
        recording.nodes.push(node);
        self.first_sync_point.wrapping_add(at)
    }

    /// Predecessors of a next command with these sync points, ascending.
    pub(crate) fn nodes_before(
        &self,
        recording: &Recording<D>,
        sync_points: &[ur_exp_command_buffer_sync_point_t],
    ) -> Result<Vec<u32>> {
        let count = recording.nodes.len() as u32;
        if self.in_order {
            return Ok(count.checked_sub(1).into_iter().collect());
        }
        let node = |point: &u32| {
            let node = point.wrapping_sub(self.first_sync_point);
            let unknown = Error::new(UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_SYNC_POINT_EXP);
            (node < count).then_some(node).ok_or(unknown)
        };
        sync_points.iter().map(node).collect()
    }

    pub(crate) fn finalize(&self) -> Result<()> {
        let mut state = self.state();
        let recording = state.open()?;
        recording.nodes.extend(self.recorded_natively()?);
        let recording = std::mem::take(recording);
        *state = BufferState::Finalized(Replay::new(recording, self.target(), self.updatable));
        Ok(())
    }

    pub(crate) fn info(
        this: &Object<Self>,
        what: CommandBufferInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        match what {
            CommandBufferInfo::ReferenceCount => out.value(this.api_refs()),
            CommandBufferInfo::Descriptor => out.value(ur_exp_command_buffer_desc_t {
                isUpdatable: this.updatable.into(),
                isInOrder: this.in_order.into(),
                enableProfiling: this.profiles.into(),
                ..Default::default()
            }),
        }
    }
}

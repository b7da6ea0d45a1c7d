//! Native commands of command buffers: what others record by the backend's own means, as one command.
//!
//! A command buffer has no native object: what it holds is ours. So whoever asks for it gets one for
//! native commands alone, and what was added to that becomes a command of the buffer.
//!
//! | asked for | the object is | and becomes |
//! |---|---|---|
//! | in the function of a native command without a child | that command's | that command |
//! | of a buffer without commands | the buffer's, for good | where the backend can have that, a command of whoever names the buffer as its child, as the object is then; and, as it is when the buffer is finalized, one of the buffer, ordered with no other |
//! | of another buffer | none | |

use crate::abi::*;
use crate::hal::Unwrapped;
use crate::object::{Object, Out, Result, ensure};
use crate::stream::engine::leases::Leases;
use crate::stream::recording::command::Command;
use crate::stream::recording::command_buffer::{BufferState, CommandBuffer};
use crate::stream::recording::{Node, Recording};
use crate::stream::{Driver, NativeRecord, Work};
use crate::timeline::rank;
use crate::timeline::sync::Mutex;
use std::ffi::c_void;
use std::sync::Arc;

type Record<D> = Arc<dyn NativeRecord<D>>;

/// A command buffer's native objects.
pub(crate) struct Records<D: Driver> {
    own: Mutex<Option<Record<D>>, { rank::NATIVE_RECORDS }>,
    /// Those of native commands whose functions run now.
    leased: Leases<dyn NativeRecord<D>>,
}

impl<D: Driver> Default for Records<D> {
    fn default() -> Self {
        Self {
            own: Mutex::default(),
            leased: Leases::default(),
        }
    }
}

/// The user's function of a native command, and what it is to be called with.
pub(crate) struct RecordCall {
    pub run: <ur_exp_command_buffer_native_command_function_t as Unwrapped>::Fn,
    pub data: *mut c_void,
}

impl<D: Driver> CommandBuffer<D> {
    /// `urCommandBufferAppendNativeCommandExp`. The function is called if everything else is right, and
    /// with no lock held.
    pub(crate) fn append_native(
        this: &Object<Self>,
        call: RecordCall,
        child: Option<&Object<Self>>,
        sync_points: &[ur_exp_command_buffer_sync_point_t],
        sync_point: Out<'_, ur_exp_command_buffer_sync_point_t>,
    ) -> Result<()> {
        let after = |recording: &Recording<D>| this.nodes_before(recording, sync_points);
        after(this.state().open()?)?;
        let (record, lease) = match child {
            Some(child) => (this.record_of(child)?, None),
            None => {
                let record = this.new_record()?;
                let lease = this.records.leased.lease(&record);
                (record, Some(lease))
            }
        };
        // SAFETY: the user's function with the user's data, called once.
        D::call_user(this.target().device, || unsafe { (call.run)(call.data) })?;
        drop(lease);
        if let Some(child) = child {
            child.holds_native_alone()?;
        }
        let mut node = node(record.work()?)?;
        let mut state = this.state();
        let recording = state.open()?;
        node.after = after(recording)?;
        sync_point.set(this.push(recording, node));
        Ok(())
    }

    /// What a child's native commands are added to. It must be as if they were added here.
    fn record_of(&self, child: &Object<Self>) -> Result<Record<D>> {
        ensure(D::RECORDS_NEST, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        let (own, other) = (self.target(), child.target());
        let same = std::ptr::eq(own.context, other.context)
            && std::ptr::eq(own.device, other.device)
            && !std::ptr::eq(self, &**child);
        ensure(same, UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_EXP)?;
        child.holds_native_alone()?;
        child.own_record()
    }

    /// Whether its native object is all that there is of it: what was appended besides would be lost.
    fn holds_native_alone(&self) -> Result<()> {
        let empty = self.state().open()?.nodes.is_empty();
        ensure(empty, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)
    }

    /// `urCommandBufferGetNativeHandleExp`
    pub(crate) fn native_handle(&self) -> Result<ur_native_handle_t> {
        if let Some(record) = self.records.leased.innermost() {
            return Ok(record.handle());
        }
        self.own_record().map(|record| record.handle())
    }

    fn own_record(&self) -> Result<Record<D>> {
        // A buffer's lock comes before its records'.
        let state = self.state();
        let mut own = self.records.own.lock();
        if let Some(record) = &*own {
            return Ok(Arc::clone(record));
        }
        let empty = matches!(&*state, BufferState::Open(recording) if recording.nodes.is_empty());
        ensure(empty, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        let record = self.new_record()?;
        *own = Some(Arc::clone(&record));
        Ok(record)
    }

    fn new_record(&self) -> Result<Record<D>> {
        let target = self.target();
        D::native_record(target.context.domain(), target.device)
    }

    /// What was added to the buffer's own object, if anybody ever asked for that.
    pub(crate) fn recorded_natively(&self) -> Result<Option<Node<D>>> {
        let own = self.records.own.lock().clone();
        own.map(|record| node(record.work()?)).transpose()
    }
}

fn node<D: Driver>(work: Work<D>) -> Result<Node<D>> {
    Node::new(Command::new(UR_COMMAND_ENQUEUE_NATIVE_EXP, work), None)
}

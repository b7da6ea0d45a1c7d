//! Native commands of command buffers: users record them through the backend's own interface.
//!
//! A command buffer has no native object of its own. A request for one gets an object for native
//! commands alone, whose contents become a command of the buffer.
//!
//! | requested | object | becomes |
//! |---|---|---|
//! | in the function of a native command without a child | the object of that command | that command |
//! | of a buffer without commands | the object of the buffer, for good | one command of the finalized buffer, ordered with no other; where the backend allows it, a command of a buffer that names this one as its child |
//! | of another buffer | none | |

use crate::abi::*;
use crate::hal::Unwrapped;
use crate::object::{Object, Out, Result, ensure};
use crate::stream::driver::call_user;
use crate::stream::engine::leases::Leases;
use crate::stream::recording::command::Command;
use crate::stream::recording::command_buffer::{BufferState, CommandBuffer};
use crate::stream::recording::{Node, Recording};
use crate::stream::{Driver, NativeRecord, Work};
use crate::sync::{Mutex, rank};
use std::ffi::c_void;
use std::sync::Arc;

type Record<D> = Arc<dyn NativeRecord<D>>;

/// A command buffer's native objects.
pub(crate) struct Records<D: Driver> {
    own: Mutex<Option<Record<D>>, { rank::NATIVE_RECORDS }>,
    /// Objects of native commands whose functions run now.
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

/// The user function of a native command, and its data.
pub(crate) struct RecordCall {
    pub run: <ur_exp_command_buffer_native_command_function_t as Unwrapped>::Fn,
    pub data: *mut c_void,
}

impl<D: Driver> CommandBuffer<D> {
    /// `urCommandBufferAppendNativeCommandExp`. Calls the function after all checks, without a
    /// lock.
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
        call_user::<D>(this.target().device, || unsafe { (call.run)(call.data) })?;
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

    /// The object of a child, whose commands must behave as if they were added to this buffer.
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

    /// An error if the buffer has other commands than native ones: those would be lost.
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

    /// The commands in the buffer's own object, if it was ever requested.
    pub(crate) fn recorded_natively(&self) -> Result<Option<Node<D>>> {
        let own = self.records.own.lock().clone();
        own.map(|record| node(record.work()?)).transpose()
    }
}

fn node<D: Driver>(work: Work<D>) -> Result<Node<D>> {
    Node::new(Command::new(UR_COMMAND_ENQUEUE_NATIVE_EXP, work), None)
}

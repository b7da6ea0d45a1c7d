//! The execution that the event of a recorded command stands for.
//!
//! | state | when |
//! |---|---|
//! | idle | the recording was not submitted since the event was made: it counts as complete |
//! | submitted | the current execution; each submission replaces it |
//! | failed | the current submission failed before this command |

use crate::abi::UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS;
use crate::object::{Error, Result};
use crate::stream::engine::dependencies::EventDependencies;
use crate::stream::event::Times;
use crate::sync::Mutex;

pub(crate) struct RecordedExecution {
    /// The recording, and the index of the command in it.
    pub recording: u64,
    pub node: u32,
    state: Mutex<ExecutionState>,
}

enum ExecutionState {
    Idle,
    Submitted(EventDependencies, Option<Times>),
    Failed,
}

impl RecordedExecution {
    pub fn new(recording: u64, node: u32) -> Self {
        Self {
            recording,
            node,
            state: Mutex::new(ExecutionState::Idle),
        }
    }

    /// Dependencies of the current execution.
    pub fn dependencies(&self) -> Result<EventDependencies> {
        match &*self.state.lock() {
            ExecutionState::Idle => Ok(EventDependencies::default()),
            ExecutionState::Submitted(deps, _) => Ok(deps.clone()),
            ExecutionState::Failed => Err(Error::new(UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS)),
        }
    }

    pub fn times(&self) -> Option<Times> {
        match &*self.state.lock() {
            ExecutionState::Submitted(_, times) => times.clone(),
            ExecutionState::Idle | ExecutionState::Failed => None,
        }
    }

    /// Binds the event to this execution; none if its submission failed.
    pub fn set_execution(&self, execution: Option<(EventDependencies, Option<Times>)>) {
        let next = match execution {
            Some((deps, times)) => ExecutionState::Submitted(deps, times),
            None => ExecutionState::Failed,
        };
        let before = std::mem::replace(&mut *self.state.lock(), next);
        drop(before);
    }
}

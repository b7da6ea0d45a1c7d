//! What a queue is created with.

use crate::abi::*;
use crate::object::chain;

/// The properties of a new queue, as far as a driver sees them.
#[derive(Clone, Copy, Default)]
pub struct QueueOptions {
    pub flags: ur_queue_flags_t,
    /// The index of the compute queue that the caller asks for, below the device's `MAX_COMPUTE_QUEUE_INDICES`.
    pub compute_index: Option<u32>,
}

impl QueueOptions {
    pub(crate) fn of(properties: Option<&ur_queue_properties_t>) -> Self {
        let Some(asked) = properties else {
            return Self::default();
        };
        let tag = UR_STRUCTURE_TYPE_QUEUE_INDEX_PROPERTIES;
        // SAFETY: the caller of the entry point passes a chain of live structures with their tags.
        let index = unsafe { chain::find::<ur_queue_index_properties_t>(asked.pNext, tag) };
        Self {
            flags: asked.flags,
            compute_index: index.map(|index| index.computeIndex),
        }
    }
}

impl From<ur_queue_flags_t> for QueueOptions {
    fn from(flags: ur_queue_flags_t) -> Self {
        Self {
            flags,
            ..Self::default()
        }
    }
}

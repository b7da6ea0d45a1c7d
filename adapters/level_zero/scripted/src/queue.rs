//! Command queues and fences.

use std::sync::{Arc, Mutex};

use ze::*;

use crate::entry::{Answer, array, given, put};
use crate::event::SignalState;
use crate::object::{Objects, hold};
use crate::worker::Worker;
use crate::{context, device, list, script};

pub struct Queue {
    worker: Worker,
    desc: ze_command_queue_desc_t,
}

// SAFETY: the description's only pointer is its chain's, which nobody follows later.
unsafe impl Send for Queue {}
// SAFETY: the description's only pointer is its chain's, which nobody follows later.
unsafe impl Sync for Queue {}

pub struct Fence {
    state: Mutex<Arc<SignalState>>,
}

pub static QUEUES: Objects<Queue> = Objects::of("command queue");
pub static FENCES: Objects<Fence> = Objects::of("fence");

fn get(queue: ze_command_queue_handle_t) -> Answer<Arc<Queue>> {
    QUEUES.get(queue.0)
}

entries! {
    fn zeCommandQueueCreate(
        context: ze_context_handle_t, device: ze_device_handle_t, desc: *const ze_command_queue_desc_t,
        out: *mut ze_command_queue_handle_t,
    ) {
        context::check_both(context, device)?;
        let desc = given(desc)?;
        given(out)?;
        let index = device::index(device)?;
        script::device_present(index)?;
        list::check_group(desc.ordinal, desc.index)?;
        let queue = Queue { worker: Worker::open(index), desc: *desc };
        put(out, ze_command_queue_handle_t(QUEUES.add(|_| queue)))
    }

    fn zeCommandQueueDestroy(queue: ze_command_queue_handle_t) {
        QUEUES.remove(queue.0).map(drop)
    }

    fn zeCommandQueueExecuteCommandLists(
        queue: ze_command_queue_handle_t, count: u32, lists: *mut ze_command_list_handle_t,
        fence: ze_fence_handle_t,
    ) {
        let queue = get(queue)?;
        let mut steps = Vec::new();
        for one in array(lists, count as usize)? {
            steps.append(&mut list::get(*one)?.closed()?);
        }
        let fence = match fence.is_null() {
            true => None,
            false => Some(hold(&FENCES.get(fence.0)?.state).clone()),
        };
        queue.worker.submit(&steps)?;
        if let Some(state) = fence {
            queue.worker.submit_fence(state)?;
        }
        match queue.desc.mode {
            ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS => queue.worker.wait(u64::MAX),
            _ => Ok(()),
        }
    }

    fn zeCommandQueueSynchronize(queue: ze_command_queue_handle_t, timeout: u64) {
        get(queue)?.worker.wait(timeout)
    }

    fn zeCommandQueueGetOrdinal(queue: ze_command_queue_handle_t, out: *mut u32) {
        put(out, get(queue)?.desc.ordinal)
    }

    fn zeCommandQueueGetIndex(queue: ze_command_queue_handle_t, out: *mut u32) {
        put(out, get(queue)?.desc.index)
    }

    fn zeCommandQueueGetFlags(queue: ze_command_queue_handle_t, out: *mut ze_command_queue_flags_t) {
        put(out, get(queue)?.desc.flags)
    }

    fn zeCommandQueueGetMode(queue: ze_command_queue_handle_t, out: *mut ze_command_queue_mode_t) {
        put(out, get(queue)?.desc.mode)
    }

    fn zeCommandQueueGetPriority(queue: ze_command_queue_handle_t, out: *mut ze_command_queue_priority_t) {
        put(out, get(queue)?.desc.priority)
    }

    fn zeFenceCreate(
        queue: ze_command_queue_handle_t, desc: *const ze_fence_desc_t, out: *mut ze_fence_handle_t,
    ) {
        get(queue)?;
        let desc = given(desc)?;
        given(out)?;
        let state = Arc::<SignalState>::default();
        if desc.flags & ZE_FENCE_FLAG_SIGNALED != 0 {
            state.set(0, 0);
        }
        put(out, ze_fence_handle_t(FENCES.add(|_| Fence { state: state.into() })))
    }

    fn zeFenceDestroy(fence: ze_fence_handle_t) {
        FENCES.remove(fence.0).map(drop)
    }

    fn zeFenceHostSynchronize(fence: ze_fence_handle_t, timeout: u64) {
        let state = hold(&FENCES.get(fence.0)?.state).clone();
        state.wait(timeout)
    }

    fn zeFenceQueryStatus(fence: ze_fence_handle_t) {
        match hold(&FENCES.get(fence.0)?.state).is_set() {
            true => Ok(()),
            false => Err(ZE_RESULT_NOT_READY),
        }
    }

    fn zeFenceReset(fence: ze_fence_handle_t) {
        *hold(&FENCES.get(fence.0)?.state) = Arc::default();
        Ok(())
    }
}

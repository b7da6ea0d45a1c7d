//! Command lists. An immediate list has a worker; a regular one is a vector of commands until it is executed.

use std::sync::{Arc, Mutex, Weak};

use ze::*;

use crate::entry::{Answer, chained, given, put};
use crate::graph::Capture;
use crate::object::{Objects, hold};
use crate::worker::{Step, Worker};
use crate::{context, device, script, worker};

/// The commands of a regular list.
#[derive(Default)]
pub struct Recorded {
    pub steps: Vec<Step>,
    pub is_closed: bool,
    /// Positions of the commands that may be changed; a command's id is one more than its place here.
    pub named: Vec<usize>,
}

pub enum Kind {
    Regular(Mutex<Recorded>),
    Immediate {
        worker: Worker,
        /// The capture that began with this list.
        primary: Mutex<Option<Arc<Capture>>>,
        /// The capture that the list joined by a wait.
        joined: Mutex<Weak<Capture>>,
        flags: ze_command_queue_flags_t,
        index: u32,
        mode: ze_command_queue_mode_t,
        priority: ze_command_queue_priority_t,
    },
}

pub struct List {
    pub kind: Kind,
    context: ze_context_handle_t,
    pub device: ze_device_handle_t,
    ordinal: u32,
    flags: ze_command_list_flags_t,
    is_mutable: bool,
}

pub static LISTS: Objects<List> = Objects::of("command list");

pub fn get(list: ze_command_list_handle_t) -> Answer<Arc<List>> {
    LISTS.get(list.0)
}

impl List {
    pub fn is_mutable(&self) -> bool {
        self.is_mutable
    }

    /// Whether a command of the list was submitted and is not done.
    fn is_busy(&self) -> bool {
        match &self.kind {
            Kind::Regular(recorded) => worker::runs(&hold(recorded).steps),
            Kind::Immediate { worker, .. } => worker.is_busy(),
        }
    }

    pub fn group(&self) -> &'static device::Group {
        &device::GROUPS[self.ordinal as usize]
    }

    /// The capture under way that records the list's commands.
    pub fn capture(&self) -> Option<Arc<Capture>> {
        match &self.kind {
            Kind::Immediate {
                primary, joined, ..
            } => hold(primary).clone().or_else(|| hold(joined).upgrade()),
            Kind::Regular(_) => None,
        }
    }

    /// The capture that records commands, which the list joins if one of them waits for it.
    fn capture_of(&self, steps: &[Step]) -> Option<Arc<Capture>> {
        let Kind::Immediate { joined, .. } = &self.kind else {
            return None;
        };
        self.capture().or_else(|| {
            let mut waits = steps.iter().flat_map(|step| &step.waits);
            let capture = waits.find_map(|event| event.capture())?;
            *hold(joined) = Arc::downgrade(&capture);
            Some(capture)
        })
    }

    /// Appends a command. An immediate list submits it.
    pub fn append(&self, step: Step) -> Answer {
        self.append_all(std::slice::from_ref(&step))
    }

    pub fn append_all(&self, steps: &[Step]) -> Answer {
        if let Some(capture) = self.capture_of(steps) {
            capture.record(steps);
            return Ok(());
        }
        match &self.kind {
            Kind::Regular(recorded) => {
                let mut recorded = hold(recorded);
                if recorded.is_closed {
                    script::broken("an append to a closed list".into());
                    return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
                }
                recorded.steps.extend_from_slice(steps);
                Ok(())
            }
            Kind::Immediate { worker, mode, .. } => {
                worker.submit(steps)?;
                match *mode {
                    ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS => worker.wait(u64::MAX),
                    _ => Ok(()),
                }
            }
        }
    }

    /// The commands of a closed regular list.
    pub fn closed(&self) -> Answer<Vec<Step>> {
        match &self.kind {
            Kind::Immediate { .. } => Err(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE),
            Kind::Regular(recorded) => {
                let recorded = hold(recorded);
                if !recorded.is_closed {
                    script::broken("an open list is executed".into());
                    return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
                }
                Ok(recorded.steps.clone())
            }
        }
    }

    pub fn recorded(&self) -> Answer<&Mutex<Recorded>> {
        match &self.kind {
            Kind::Regular(recorded) => Ok(recorded),
            Kind::Immediate { .. } => Err(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE),
        }
    }
}

pub fn check_group(ordinal: u32, index: u32) -> Answer {
    let group = device::GROUPS.get(ordinal as usize);
    match group.is_some_and(|group| index < group.queues()) {
        true => Ok(()),
        false => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
    }
}

entries! {
    fn zeCommandListCreate(
        context: ze_context_handle_t, device: ze_device_handle_t, desc: *const ze_command_list_desc_t,
        out: *mut ze_command_list_handle_t,
    ) {
        context::check_both(context, device)?;
        let desc = given(desc)?;
        given(out)?;
        script::device_present(device::index(device)?)?;
        check_group(desc.commandQueueGroupOrdinal, 0)?;
        let list = List {
            kind: Kind::Regular(Mutex::default()),
            context,
            device,
            ordinal: desc.commandQueueGroupOrdinal,
            flags: desc.flags,
            is_mutable: chained::<ze_mutable_command_list_exp_desc_t>(desc.pNext).is_some(),
        };
        put(out, ze_command_list_handle_t(LISTS.add(|_| list)))
    }

    fn zeCommandListCreateImmediate(
        context: ze_context_handle_t, device: ze_device_handle_t, desc: *const ze_command_queue_desc_t,
        out: *mut ze_command_list_handle_t,
    ) {
        context::check_both(context, device)?;
        let desc = given(desc)?;
        given(out)?;
        let own = device::index(device)?;
        script::device_present(own)?;
        check_group(desc.ordinal, desc.index)?;
        let in_order = desc.flags & ZE_COMMAND_QUEUE_FLAG_IN_ORDER != 0;
        let list = List {
            kind: Kind::Immediate {
                worker: Worker::open(own),
                primary: Mutex::default(),
                joined: Mutex::default(),
                flags: desc.flags,
                index: desc.index,
                mode: desc.mode,
                priority: desc.priority,
            },
            context,
            device,
            ordinal: desc.ordinal,
            flags: if in_order { ZE_COMMAND_LIST_FLAG_IN_ORDER } else { 0 },
            is_mutable: false,
        };
        put(out, ze_command_list_handle_t(LISTS.add(|_| list)))
    }

    fn zeCommandListDestroy(list: ze_command_list_handle_t) {
        let own = LISTS.remove(list.0)?;
        if own.is_busy() {
            script::broken("a list is destroyed whose commands are not done".into());
        }
        Ok(())
    }

    fn zeCommandListClose(list: ze_command_list_handle_t) {
        hold(get(list)?.recorded()?).is_closed = true;
        Ok(())
    }

    fn zeCommandListReset(list: ze_command_list_handle_t) {
        let own = get(list)?;
        if own.is_busy() {
            script::broken("a list is reset whose commands are not done".into());
        }
        *hold(own.recorded()?) = Recorded::default();
        Ok(())
    }

    fn zeCommandListHostSynchronize(list: ze_command_list_handle_t, timeout: u64) {
        let own = get(list)?;
        if own.capture().is_some() {
            return Err(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
        }
        match &own.kind {
            Kind::Immediate { worker, .. } => worker.wait(timeout),
            Kind::Regular(_) => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
        }
    }

    fn zeCommandListGetDeviceHandle(list: ze_command_list_handle_t, out: *mut ze_device_handle_t) {
        put(out, get(list)?.device)
    }

    fn zeCommandListGetContextHandle(list: ze_command_list_handle_t, out: *mut ze_context_handle_t) {
        put(out, get(list)?.context)
    }

    fn zeCommandListGetOrdinal(list: ze_command_list_handle_t, out: *mut u32) {
        put(out, get(list)?.ordinal)
    }

    fn zeCommandListIsImmediate(list: ze_command_list_handle_t, out: *mut ze_bool_t) {
        put(out, u8::from(matches!(get(list)?.kind, Kind::Immediate { .. })))
    }

    fn zeCommandListGetFlags(list: ze_command_list_handle_t, out: *mut ze_command_list_flags_t) {
        put(out, get(list)?.flags)
    }

    fn zeCommandListImmediateGetFlags(list: ze_command_list_handle_t, out: *mut ze_command_queue_flags_t) {
        match get(list)?.kind {
            Kind::Immediate { flags, .. } => put(out, flags),
            Kind::Regular(_) => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
        }
    }

    fn zeCommandListImmediateGetIndex(list: ze_command_list_handle_t, out: *mut u32) {
        match get(list)?.kind {
            Kind::Immediate { index, .. } => put(out, index),
            Kind::Regular(_) => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
        }
    }

    fn zeCommandListImmediateGetMode(list: ze_command_list_handle_t, out: *mut ze_command_queue_mode_t) {
        match get(list)?.kind {
            Kind::Immediate { mode, .. } => put(out, mode),
            Kind::Regular(_) => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
        }
    }

    fn zeCommandListImmediateGetPriority(
        list: ze_command_list_handle_t, out: *mut ze_command_queue_priority_t,
    ) {
        match get(list)?.kind {
            Kind::Immediate { priority, .. } => put(out, priority),
            Kind::Regular(_) => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
        }
    }

    fn zeCommandListIsMutableExp(list: ze_command_list_handle_t, out: *mut ze_bool_t) {
        put(out, u8::from(get(list)?.is_mutable))
    }
}

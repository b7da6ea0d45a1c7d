//! `UR_LAYER_ASYNC_ALLOC_VALIDATION`: reports memory that is used or freed in no defined order with
//! its allocation and its free, on any adapter.
//!
//! Owns the state of one initialisation: queues, events and command buffers with their orders
//! (`order`), and USM blocks (`blocks`). `watched` lists the functions that the layer wraps. The
//! layer reports findings and forwards the call. Only a second free is refused, with
//! `INVALID_MEM_OBJECT`.
//!
//! The program's order is the order of in-order queues, wait lists, barriers, and what the host has
//! observed complete by waits, blocking calls, queries, callbacks and host tasks. The layer reports
//! nothing where the program may have ordered more than is visible. Memory that a kernel reaches
//! through pointers other than its arguments is not checked.
//!
//! The state has one lock. Nothing outside is called while it is held.

mod blocks;
mod command;
mod hooks;
mod order;
pub mod watched;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use ur::abi::*;
use ur::object::log::Level;
use ur::timeline::Pruned;

use self::blocks::{Blocks, Finding};
use self::order::{Order, Queue};
use self::watched::BELOW;
use super::maker::Handle;
use super::{Layer, LayerContext, parents, report};

pub use self::blocks::Access;
pub use self::command::Command;
pub use self::hooks::*;
pub use self::order::Kind;

static ON: AtomicBool = AtomicBool::new(false);
static STATE: LazyLock<Mutex<KnownObjects>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct KnownObjects {
    queues: HashMap<usize, KnownQueue>,
    events: HashMap<usize, Event>,
    kernels: HashMap<usize, Arc<str>>,
    command_buffers: HashMap<usize, CommandBuffer>,
    blocks: Blocks,
    /// All commands of queues whose handle was reused, by device.
    retired: HashMap<usize, Pruned<Order>>,
}

/// A queue that the application uses.
struct KnownQueue {
    queue: Queue,
    handle: Handle,
    /// The number of commands so far.
    commands: u64,
    device: usize,
    /// Whether commands may use memory that is not USM.
    system: bool,
}

struct Event {
    order: Order,
    references: u32,
}

/// A command buffer: the memory that its commands use, and the order of its last submission.
#[derive(Default)]
struct CommandBuffer {
    /// By address.
    uses: BTreeMap<usize, RecordedUse>,
    last: Order,
}

/// Memory that a command of a command buffer uses.
#[derive(Clone, Copy)]
struct RecordedUse {
    /// The size in bytes, if it is known.
    size: Option<usize>,
    /// Whether only kernels' arguments use it, which may be updated.
    argument: bool,
}

struct Races;

pub fn make() -> Box<dyn Layer> {
    Box::new(Races)
}

impl Layer for Races {
    fn wrap(
        &mut self,
        table: &mut ur_dditable_t,
        _: &[&'static str],
        context: &LayerContext,
    ) -> Result<(), ur_result_t> {
        report::begin(context);
        *state() = KnownObjects::default();
        ON.store(true, Ordering::Release);
        watched::wrap(table);
        Ok(())
    }

    fn teardown(&mut self) {
        ON.store(false, Ordering::Release);
        *state() = KnownObjects::default();
        report::end();
    }
}

fn state() -> MutexGuard<'static, KnownObjects> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state, if the call succeeded and the layer is on.
fn state_on_success(result: ur_result_t) -> Option<MutexGuard<'static, KnownObjects>> {
    (result == UR_RESULT_SUCCESS && ON.load(Ordering::Acquire)).then(state)
}

fn report_findings(findings: Vec<Finding>) {
    for finding in findings {
        report::finding(Level::Error, format_args!("{finding}"));
    }
}

impl KnownObjects {
    /// The order that an event stands for; unknown for an event that was not seen.
    fn order_of(&self, event: usize) -> Order {
        let known = self.events.get(&event);
        known.map_or_else(Order::unknown, |event| event.order.clone())
    }

    /// Records that an event was observed complete.
    fn complete(&self, event: usize) {
        if let Some(event) = self.events.get(&event) {
            event.order.complete();
        }
    }

    /// Records a new event, or with `again` one that is signalled anew.
    fn signalled(&mut self, event: usize, order: Order, again: bool) {
        match self.events.get_mut(&event).filter(|_| again) {
            Some(known) => known.order = order,
            None => {
                let references = 1;
                self.events.insert(event, Event { order, references });
            }
        }
    }

    /// Records a queue, which may replace an earlier one at its address.
    fn add_queue(&mut self, queue: usize, properties: QueueProperties) {
        let mut new = Queue::new(properties.in_order);
        if properties.open {
            new.open();
        }
        let known = KnownQueue {
            queue: new,
            handle: parents::of(queue),
            commands: 0,
            device: properties.device,
            system: properties.system,
        };
        if let Some(old) = self.queues.insert(queue, known) {
            let retired = self.retired.entry(old.device).or_default();
            retired.grow().join(&old.queue.all());
        }
    }
}

/// The properties of a queue that the layer needs.
struct QueueProperties {
    device: usize,
    in_order: bool,
    open: bool,
    system: bool,
}

impl QueueProperties {
    fn new(device: ur_device_handle_t, flags: ur_queue_flags_t) -> QueueProperties {
        let has = |flag: ur_queue_flags_t| flags.0 & flag.0 != 0;
        QueueProperties {
            device: device.addr(),
            in_order: !has(UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE),
            // Default streams have commands that the layer does not see.
            open: has(UR_QUEUE_FLAG_USE_DEFAULT_STREAM)
                || has(UR_QUEUE_FLAG_SYNC_WITH_DEFAULT_STREAM),
            system: system_memory(device),
        }
    }

    /// The properties of a queue whose creation the layer did not see.
    fn query(queue: ur_queue_handle_t) -> QueueProperties {
        let get = BELOW.table().and_then(|table| table.Queue.pfnGetInfo);
        let mut device: ur_device_handle_t = std::ptr::null_mut();
        let mut flags = ur_queue_flags_t(0);
        let answered = get.is_some_and(|get| {
            let value = (&raw mut device).cast();
            let none = std::ptr::null_mut();
            // SAFETY: the values have the sizes of their properties, and the application passed a
            // live queue.
            let results = unsafe {
                [
                    get(
                        queue,
                        UR_QUEUE_INFO_DEVICE,
                        size_of_val(&device),
                        value,
                        none,
                    ),
                    get(
                        queue,
                        UR_QUEUE_INFO_FLAGS,
                        size_of_val(&flags),
                        (&raw mut flags).cast(),
                        none,
                    ),
                ]
            };
            results == [UR_RESULT_SUCCESS; 2]
        });
        let mut properties = QueueProperties::new(device, flags);
        properties.open |= !answered;
        properties
    }
}

/// Whether commands of a device may use any memory of the process. Yes if the device does not
/// report it.
fn system_memory(device: ur_device_handle_t) -> bool {
    let get = BELOW.table().and_then(|table| table.Device.pfnGetInfo);
    let Some(get) = get.filter(|_| !device.is_null()) else {
        return true;
    };
    let mut access = ur_device_usm_access_capability_flags_t(0);
    let what = UR_DEVICE_INFO_USM_SYSTEM_SHARED_SUPPORT;
    let value = (&raw mut access).cast();
    // SAFETY: the value has the size of its property, and the application passed a live device.
    let result = unsafe {
        get(
            device,
            what,
            size_of_val(&access),
            value,
            std::ptr::null_mut(),
        )
    };
    result != UR_RESULT_SUCCESS || access.0 != 0
}

#[cfg(test)]
mod tests;

//! `UR_LAYER_ASYNC_ALLOC_VALIDATION`: memory that is used or freed without being ordered after its
//! allocation and before its free, on any adapter.
//!
//! Owns what the layer knows of one initialisation: queues, events and command buffers as orders
//! (`order`), blocks (`blocks`). The functions that it watches stand in
//! `watched`. It tells what it finds and
//! lets the call go on, except for a second free, which is `INVALID_MEM_OBJECT`.
//!
//! What the program ordered is program order on in-order queues, wait lists, barriers and what the
//! host saw complete: waits, blocking calls, queries, callbacks, host tasks. Where it may have ordered
//! more than is seen, nothing is said. Memory that a kernel reaches through other pointers than its
//! arguments is neither reported nor cleared.
//!
//! One lock, the state's own; nothing outside is called while it is held.

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
use ur::timeline::Gathered;

use self::blocks::{Blocks, Finding};
use self::order::{Order, Queue};
use self::watched::BELOW;
use super::{Layer, LayerContext, report};

pub use self::blocks::Access;
pub use self::command::Command;
pub use self::hooks::*;
pub use self::order::Kind;

static ON: AtomicBool = AtomicBool::new(false);
static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct State {
    queues: HashMap<usize, Known>,
    /// How many queues were seen.
    numbers: u64,
    events: HashMap<usize, Event>,
    kernels: HashMap<usize, Arc<str>>,
    command_buffers: HashMap<usize, Recorded>,
    blocks: Blocks,
    /// What queues that are gone had taken, by device.
    retired: HashMap<usize, Gathered<Order>>,
}

/// A queue by its handle.
struct Known {
    queue: Queue,
    number: u64,
    device: usize,
    /// Commands may use memory that is no USM.
    system: bool,
}

struct Event {
    order: Order,
    references: u32,
}

/// A command buffer: what its commands use, and what its last submission stands for.
#[derive(Default)]
struct Recorded {
    /// By address; `true` if a kernel's argument, which may be updated.
    uses: BTreeMap<usize, bool>,
    last: Order,
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
        *state() = State::default();
        ON.store(true, Ordering::Release);
        watched::wrap(table);
        Ok(())
    }

    fn teardown(&mut self) {
        ON.store(false, Ordering::Release);
        *state() = State::default();
        report::end();
    }
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state, if the layer is on and the call succeeded.
fn after(result: ur_result_t) -> Option<MutexGuard<'static, State>> {
    (result == UR_RESULT_SUCCESS && ON.load(Ordering::Acquire)).then(state)
}

fn report_findings(findings: Vec<Finding>) {
    for finding in findings {
        report::finding(Level::Error, format_args!("{finding}"));
    }
}

impl State {
    /// What an event stands for.
    fn order_of(&self, event: usize) -> Order {
        let known = self.events.get(&event);
        known.map_or_else(Order::unknown, |event| event.order.clone())
    }

    fn complete(&self, event: usize) {
        if let Some(event) = self.events.get(&event) {
            event.order.complete();
        }
    }

    /// A new event, or one that is signalled again.
    fn signalled(&mut self, event: usize, order: Order, again: bool) {
        match self.events.get_mut(&event).filter(|_| again) {
            Some(known) => known.order = order,
            None => {
                let references = 1;
                self.events.insert(event, Event { order, references });
            }
        }
    }

    fn add_queue(&mut self, queue: usize, facts: QueueFacts) {
        self.numbers += 1;
        let mut new = Queue::new(facts.in_order);
        if facts.open {
            new.open();
        }
        let known = Known {
            queue: new,
            number: self.numbers,
            device: facts.device,
            system: facts.system,
        };
        if let Some(old) = self.queues.insert(queue, known) {
            let retired = self.retired.entry(old.device).or_default();
            retired.grow().join(&old.queue.all());
        }
    }
}

/// What the layer has to know of a queue.
struct QueueFacts {
    device: usize,
    in_order: bool,
    open: bool,
    system: bool,
}

impl QueueFacts {
    fn new(device: ur_device_handle_t, flags: ur_queue_flags_t) -> QueueFacts {
        let has = |flag: ur_queue_flags_t| flags.0 & flag.0 != 0;
        QueueFacts {
            device: device.addr(),
            in_order: !has(UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE),
            // Ordered with streams that are not seen.
            open: has(UR_QUEUE_FLAG_USE_DEFAULT_STREAM)
                || has(UR_QUEUE_FLAG_SYNC_WITH_DEFAULT_STREAM),
            system: system_memory(device),
        }
    }

    /// Of a queue whose making was not seen.
    fn query(queue: ur_queue_handle_t) -> QueueFacts {
        let get = BELOW.table().and_then(|table| table.Queue.pfnGetInfo);
        let mut device: ur_device_handle_t = std::ptr::null_mut();
        let mut flags = ur_queue_flags_t(0);
        let answered = get.is_some_and(|get| {
            let value = (&raw mut device).cast();
            let none = std::ptr::null_mut();
            // SAFETY: the values have the sizes of their properties; the application uses the queue.
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
        let mut facts = QueueFacts::new(device, flags);
        facts.open |= !answered;
        facts
    }
}

/// Whether commands of a device may use any memory of the process; so too when it does not say.
fn system_memory(device: ur_device_handle_t) -> bool {
    let get = BELOW.table().and_then(|table| table.Device.pfnGetInfo);
    let Some(get) = get.filter(|_| !device.is_null()) else {
        return true;
    };
    let mut access = ur_device_usm_access_capability_flags_t(0);
    let what = UR_DEVICE_INFO_USM_SYSTEM_SHARED_SUPPORT;
    let value = (&raw mut access).cast();
    // SAFETY: the value has the property's size; the application uses the device.
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

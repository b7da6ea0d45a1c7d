//! The fixture of tests: an engine over the fake driver, and calls of the interface with their
//! lists.

use super::{AnyFake, FakeDevice, FakeDriver};
use crate::abi::*;
use crate::hal;
use crate::object::{Body, Error, Handles, InfoOut, Object, OutHandle, Result};
use crate::pool::{Compaction, Options};
use crate::stream::queue::alloc;
use crate::stream::{Context, Engine, Event, Kind, Queue, Runtime, UsmPool, Work};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

pub type EventArc<D> = Arc<Object<Event<D>>>;
pub type QueueArc<D> = Arc<Object<Queue<D>>>;
pub type PoolArc<D> = Arc<Object<UsmPool<D>>>;

/// An engine, a context over one device, and their fake driver.
pub struct Fixture<D: AnyFake> {
    pub driver: Arc<FakeDriver>,
    pub engine: Arc<Engine<D>>,
    pub device: Arc<Object<FakeDevice>>,
    pub context: Arc<Object<Context<D>>>,
}

impl<D: AnyFake> Fixture<D> {
    pub fn new() -> Self {
        // Tests count pages one by one, and many are about pages that move.
        let options = Options {
            compaction: Compaction::Always,
            growth_share: 0,
            ..Options::default()
        };
        Self::over(&Engine::with_options(options, options.tight()))
    }

    fn over(engine: &Arc<Engine<D>>) -> Self {
        let driver = Arc::<FakeDriver>::default();
        let device = Object::new(D::table(), FakeDevice);
        let handles = [device.handle()];
        let context = Context::new(engine, list::<D, _>(&handles), Arc::clone(&driver));
        Self {
            driver,
            engine: Arc::clone(engine),
            device,
            context,
        }
    }

    /// Another context of the same adapter, with a fake driver of its own.
    pub fn another(&self) -> Self {
        Self::over(&self.engine)
    }

    pub fn queue(&self, flags: ur_queue_flags_t) -> QueueArc<D> {
        Queue::create(&self.context, &self.device, flags.into()).unwrap()
    }

    pub fn in_order(&self) -> QueueArc<D> {
        self.queue(ur_queue_flags_t(0))
    }

    pub fn out_of_order(&self) -> QueueArc<D> {
        self.queue(UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE)
    }

    /// A pool with a maximum size and a release threshold.
    pub fn pool(&self, max: usize, threshold: usize) -> PoolArc<D> {
        let limits = ur_usm_pool_limits_desc_t {
            maxPoolableSize: max,
            minDriverAllocSize: threshold,
            ..Default::default()
        };
        let desc = ur_usm_pool_desc_t {
            pNext: (&raw const limits).cast(),
            ..Default::default()
        };
        UsmPool::create(&self.context, vec![self.device.clone()], &desc).unwrap()
    }
}

/// Handles of live objects as a checked list.
pub fn list<D: Runtime, T: Body>(handles: &[*mut c_void]) -> Handles<'_, T> {
    let first = handles.as_ptr().cast();
    // SAFETY: the tests keep the objects alive.
    unsafe {
        Handles::borrow(
            first,
            handles.len(),
            D::table(),
            UR_RESULT_ERROR_INVALID_EVENT,
        )
    }
    .unwrap()
}

/// Calls with a wait list and takes the event.
pub fn with_event<D: Runtime, R>(
    waits: &[&EventArc<D>],
    call: impl FnOnce(Handles<'_, Event<D>>, OutHandle<'_, Event<D>>) -> Result<R>,
) -> Result<(R, EventArc<D>)> {
    let handles: Vec<_> = waits.iter().map(|event| event.handle()).collect();
    let mut out = std::ptr::null_mut();
    // SAFETY: `out` outlives the call.
    let result = call(list::<D, _>(&handles), unsafe {
        OutHandle::new(&raw mut out)
    })?;
    // SAFETY: a successful call has set it.
    let event = unsafe { Object::<Event<D>>::borrow(out, D::table()) }?.arc();
    // The `Arc` keeps it from here on.
    event.release()?;
    Ok((result, event))
}

/// Calls with a wait list and wants no event.
pub fn without<D: Runtime, R>(
    waits: &[&EventArc<D>],
    call: impl FnOnce(Handles<'_, Event<D>>, OutHandle<'_, Event<D>>) -> Result<R>,
) -> Result<R> {
    let handles: Vec<_> = waits.iter().map(|event| event.handle()).collect();
    // SAFETY: null means not wanted.
    call(list::<D, _>(&handles), unsafe {
        OutHandle::new(std::ptr::null_mut())
    })
}

/// Enqueues a command that does nothing but leave its label; with its event.
pub fn launch<D: AnyFake>(queue: &QueueArc<D>, label: u32, waits: &[&EventArc<D>]) -> EventArc<D> {
    with_event(waits, |waits, event| {
        Queue::enqueue(
            queue,
            UR_COMMAND_KERNEL_LAUNCH,
            waits,
            Work::Launch(label),
            event,
            false,
        )
    })
    .unwrap()
    .1
}

/// Launches a kernel, without an event.
pub fn launch_only<D: AnyFake>(queue: &QueueArc<D>, label: u32, waits: &[&EventArc<D>]) {
    without(waits, |waits, event| {
        Queue::enqueue(
            queue,
            UR_COMMAND_KERNEL_LAUNCH,
            waits,
            Work::Launch(label),
            event,
            false,
        )
    })
    .unwrap();
}

/// A marker on a queue, with its event.
pub fn marker<D: AnyFake>(queue: &QueueArc<D>, waits: &[&EventArc<D>]) -> EventArc<D> {
    let command = UR_COMMAND_EVENTS_WAIT;
    with_event(waits, |waits, event| {
        Queue::join_events(queue, command, waits, event, false)
    })
    .unwrap()
    .1
}

/// Asynchronous device memory, with an event.
pub fn alloc<D: AnyFake>(
    queue: &QueueArc<D>,
    pool: Option<&PoolArc<D>>,
    bytes: usize,
    waits: &[&EventArc<D>],
) -> Result<(usize, EventArc<D>)> {
    let pool = pool.map(|pool| &**pool);
    let result = with_event(waits, |waits, event| {
        alloc::alloc(queue, Kind::Device, pool, bytes, waits, event)
    });
    result.map(|(ptr, event)| (ptr.addr(), event))
}

/// Allocates, without an event.
pub fn alloc_only<D: AnyFake>(
    queue: &QueueArc<D>,
    pool: Option<&PoolArc<D>>,
    bytes: usize,
    waits: &[&EventArc<D>],
) -> Result<usize> {
    let pool = pool.map(|pool| &**pool);
    let result = without(waits, |waits, event| {
        alloc::alloc(queue, Kind::Device, pool, bytes, waits, event)
    });
    result.map(|ptr| ptr.addr())
}

pub fn free<D: AnyFake>(
    queue: &QueueArc<D>,
    addr: usize,
    waits: &[&EventArc<D>],
) -> Result<EventArc<D>> {
    with_event(waits, |waits, event| alloc::free(queue, addr, waits, event))
        .map(|((), event)| event)
}

pub fn free_only<D: AnyFake>(
    queue: &QueueArc<D>,
    addr: usize,
    waits: &[&EventArc<D>],
) -> Result<()> {
    without(waits, |waits, event| alloc::free(queue, addr, waits, event))
}

pub fn status<D: AnyFake>(event: &EventArc<D>) -> ur_event_status_t {
    info(|out| {
        <Event<D> as hal::Event<D>>::get_info(event, hal::EventInfo::CommandExecutionStatus, out)
    })
    .unwrap()
}

/// One plain value of an info query.
pub fn info<T: Copy + Default>(ask: impl FnOnce(InfoOut<'_>) -> Result<()>) -> Result<T> {
    let mut value = T::default();
    let to = (&raw mut value).cast();
    // SAFETY: as much room as the value has.
    ask(unsafe { InfoOut::new(Some(size_of::<T>()), to, std::ptr::null_mut()) })?;
    Ok(value)
}

pub fn code<T>(result: Result<T>) -> Option<ur_result_t> {
    result.err().map(Error::code)
}

pub fn until(mut what: impl FnMut() -> bool) {
    for _ in 0..5000 {
        if what() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it did not come to pass");
}

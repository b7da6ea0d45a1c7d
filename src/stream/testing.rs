//! A driver that runs nothing by itself: tests complete its commands step by step.
//!
//! Two of them, one that tells how far its lanes are and one that has to be asked.

use super::{
    CommandBuffer, Compiled, ExecutableGraph, Graph, RecordedCommand, Stamps, Step, UsmPool, Work,
};
use super::{Context, Domain, Driver, Engine, Event, Hooks, Kind, LaunchRequest, Notice, Queue};
use crate::abi::*;
use crate::hal::{self, Backend};
use crate::object::{Body, Error, Handles, InfoOut, Object, OutHandle, Result};
use crate::timeline::Clock;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub mod vm;

pub struct Fake<const TRACKS: bool>;
pub type Tracked = Fake<true>;
pub type Polled = Fake<false>;

crate::export!(@table Tracked);
crate::export!(@table Polled);

/// Fake backends: what the helpers below need of one.
pub trait AnyFake:
    Driver<State = Arc<World>, Device = FakeDevice, Mem = FakeMem, Launch = u32, Lane = FakeLane>
{
}
impl AnyFake for Tracked {}
impl AnyFake for Polled {}

/// What the driver was asked to do, and what it has done.
#[derive(Default)]
pub struct World {
    pub lanes: Mutex<Vec<Arc<Line>>>,
    pub submits: AtomicUsize,
    pub waits: AtomicUsize,
    pub marks: AtomicUsize,
    pub acquires: AtomicUsize,
    pub zeroed: AtomicUsize,
    /// Slabs out, by address.
    pub slabs: Mutex<BTreeMap<usize, (Kind, usize)>>,
    /// The driver's shared memory has pages.
    pub vm: Mutex<vm::Vm>,
    /// Labels of launches, in the order in which they ran.
    pub ran: Mutex<Vec<u32>>,
    pub broken: AtomicBool,
    /// Most launches in a row that are made one object; fewer than two are none.
    pub compiles: AtomicUsize,
    /// Submissions until one fails, none for never.
    pub fails_after: Mutex<Option<usize>>,
    /// Bytes that the system has, none for no end.
    pub room: Mutex<Option<usize>>,
    next: AtomicUsize,
    /// One step at a time, whichever thread makes it: a device completes in order.
    stepping: Mutex<()>,
}

/// The commands of a lane.
pub struct Line {
    pub number: usize,
    clock: Arc<Clock>,
    items: Mutex<VecDeque<Item>>,
    done: AtomicU64,
    notices: Mutex<Vec<(u64, Notice)>>,
}

enum Item {
    Work {
        epoch: u64,
        labels: Vec<u32>,
        stamps: Option<Arc<Stamps>>,
    },
    Wait(Marker),
    Record(Arc<Flag>),
    /// Work that somebody else gave, by its label.
    Foreign(u32),
}

#[derive(Default)]
pub struct Flag {
    set: AtomicBool,
    notices: Mutex<Vec<Notice>>,
}

#[derive(Clone)]
pub enum Marker {
    Epoch(Arc<World>, Arc<Line>, u64),
    Flag(Arc<World>, Arc<Flag>),
}

pub struct FakeLane {
    world: Arc<World>,
    line: Arc<Line>,
    open: AtomicBool,
}

impl FakeLane {
    pub fn number(&self) -> usize {
        self.line.number
    }

    /// Puts work on the lane behind the engine's back.
    pub fn foreign(&self, label: u32) {
        assert!(self.open.load(Ordering::Relaxed), "nobody opened the lane");
        let mut items = self.line.items.lock().unwrap();
        items.push_back(Item::Foreign(label));
    }
}

impl FakeLane {
    fn give(
        &self,
        epoch: u64,
        labels: Vec<u32>,
        stamps: Option<Arc<Stamps>>,
        tracks: bool,
    ) -> Result<()> {
        if self.world.broken.load(Ordering::Relaxed) {
            return Err(Error::new(UR_RESULT_ERROR_DEVICE_LOST));
        }
        let mut left = self.world.fails_after.lock().unwrap();
        match &mut *left {
            Some(0) => return Err(Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES)),
            Some(left) => *left -= 1,
            None => {}
        }
        drop(left);
        self.world.submits.fetch_add(1, Ordering::Relaxed);
        self.line.items.lock().unwrap().push_back(Item::Work {
            epoch,
            labels,
            stamps,
        });
        if tracks {
            let clock = Arc::clone(&self.line.clock);
            let raise: Notice = Box::new(move || clock.raise(epoch));
            self.line.notices.lock().unwrap().push((epoch, raise));
        }
        Ok(())
    }
}

/// Launches made one object. It takes over labels below 50 and has to be made anew for others.
struct Several(Mutex<Vec<u32>>);

impl<const TRACKS: bool> Compiled<Fake<TRACKS>> for Several
where
    Fake<TRACKS>: AnyFake,
{
    fn submit(&self, lane: &FakeLane, epoch: u64, stamps: Option<Arc<Stamps>>) -> Result<()> {
        lane.give(epoch, self.0.lock().unwrap().clone(), stamps, TRACKS)
    }

    fn update(&self, at: usize, work: &Work<Fake<TRACKS>>) -> bool {
        match work {
            Work::Launch(label) if *label < 50 => self.0.lock().unwrap()[at] = *label,
            _ => return false,
        }
        true
    }
}

impl Drop for FakeLane {
    fn drop(&mut self) {
        let items = self.line.items.lock().unwrap();
        let idle = items.iter().all(|item| match item {
            Item::Work { .. } => false,
            Item::Wait(marker) => marker.is_done(),
            Item::Record(_) | Item::Foreign(_) => true,
        });
        assert!(
            idle || self.world.broken.load(Ordering::Relaxed),
            "a lane was dropped with work on it"
        );
        self.world
            .lanes
            .lock()
            .unwrap()
            .retain(|line| !Arc::ptr_eq(line, &self.line));
    }
}

impl World {
    /// Completes the next command of a lane, if what it waits for is complete.
    pub fn step(&self, number: usize) -> bool {
        let line = self
            .lanes
            .lock()
            .unwrap()
            .iter()
            .find(|line| line.number == number)
            .cloned();
        line.is_some_and(|line| self.step_line(&line))
    }

    fn step_line(&self, line: &Line) -> bool {
        let _one = self.stepping.lock().unwrap();
        let item = {
            let mut items = line.items.lock().unwrap();
            match items.front() {
                None => return false,
                Some(Item::Wait(marker)) if !marker.is_done() => return false,
                Some(_) => items.pop_front().unwrap(),
            }
        };
        match item {
            Item::Wait(_) => {}
            Item::Record(flag) => flag.raise(),
            Item::Foreign(label) => self.ran.lock().unwrap().push(label),
            Item::Work {
                epoch,
                labels,
                stamps,
            } => {
                if let Some(stamps) = stamps {
                    stamps.start.store(self.tick(), Ordering::Release);
                    stamps.end.store(self.tick(), Ordering::Release);
                }
                self.ran.lock().unwrap().extend(labels);
                line.done.store(epoch, Ordering::Release);
                let mut notices = line.notices.lock().unwrap();
                let (due, rest) = std::mem::take(&mut *notices)
                    .into_iter()
                    .partition(|(at, _)| *at <= epoch);
                *notices = rest;
                drop(notices);
                let _: &Vec<(u64, Notice)> = &due;
                due.into_iter().for_each(|(_, notice)| notice());
            }
        }
        true
    }

    /// Completes all that can be.
    pub fn run(&self) {
        let lines = || self.lanes.lock().unwrap().clone();
        while lines().iter().filter(|line| self.step_line(line)).count() > 0 {}
    }

    /// What is queued on each lane, waits and records included.
    pub fn loads(&self) -> Vec<usize> {
        self.lanes
            .lock()
            .unwrap()
            .iter()
            .map(|line| line.items.lock().unwrap().len())
            .collect()
    }

    /// Lanes, submissions, waits and records so far.
    pub fn calls(&self) -> [usize; 4] {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        [
            count(&self.submits),
            count(&self.waits),
            count(&self.marks),
            count(&self.acquires),
        ]
    }

    pub fn waits(&self) -> usize {
        self.waits.load(Ordering::Relaxed)
    }

    pub fn ran(&self) -> Vec<u32> {
        self.ran.lock().unwrap().clone()
    }

    fn tick(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) as u64 + 1
    }
}

impl Flag {
    fn raise(&self) {
        self.set.store(true, Ordering::Release);
        std::mem::take(&mut *self.notices.lock().unwrap())
            .into_iter()
            .for_each(|notice| notice());
    }
}

impl Marker {
    fn is_done(&self) -> bool {
        match self {
            Self::Epoch(_, line, epoch) => line.done.load(Ordering::Acquire) >= *epoch,
            Self::Flag(_, flag) => flag.set.load(Ordering::Acquire),
        }
    }

    fn world(&self) -> &World {
        match self {
            Self::Epoch(world, ..) | Self::Flag(world, _) => world,
        }
    }
}

pub struct FakeDevice;
impl Body for FakeDevice {
    const KIND: crate::object::Kind = crate::object::Kind::Device;
}
impl<const T: bool> hal::Device<Fake<T>> for FakeDevice where Fake<T>: Driver {}

/// A buffer: its address and its bytes.
pub struct FakeMem(pub usize, pub usize);
impl Body for FakeMem {
    const KIND: crate::object::Kind = crate::object::Kind::Mem;
}
impl<const T: bool> hal::Mem<Fake<T>> for FakeMem where Fake<T>: Driver {}

macro_rules! fake {
    ($fake:ty, $tracks:literal) => {
        impl Backend for $fake {
            type Adapter = hal::NoAdapter;
            type Platform = hal::NoPlatform;
            type Device = FakeDevice;
            type Context = Context<Self>;
            type Event = Event<Self>;
            type Program = hal::NoProgram;
            type Kernel = hal::NoKernel;
            type Queue = Queue<Self>;
            type Sampler = hal::NoSampler;
            type Mem = FakeMem;
            type PhysicalMem = hal::NoPhysicalMem;
            type UsmPool = UsmPool<Self>;
            type ExternalMem = hal::NoExternalMem;
            type ExternalSemaphore = hal::NoExternalSemaphore;
            type CommandBuffer = CommandBuffer<Self>;
            type CommandBufferCommand = RecordedCommand<Self>;
            type Graph = Graph<Self>;
            type ExecutableGraph = ExecutableGraph<Self>;

            fn adapter() -> Result<Option<Arc<Object<Self::Adapter>>>> {
                Ok(None)
            }
        }

        impl Hooks<Self> for $fake {}

        impl Driver for $fake {
            type State = Arc<World>;
            type Lane = FakeLane;
            type Marker = Marker;
            type Signal = (Arc<World>, Arc<Flag>);
            type Launch = u32;
            type Checked = ();
            type Plain = ();
            type Native = std::convert::Infallible;
            const TRACKS: bool = $tracks;
            const SPANS: bool = $tracks;

            fn lane(
                domain: &Domain<Self>,
                _device: &Object<FakeDevice>,
                _flags: ur_queue_flags_t,
                clock: &Arc<Clock>,
            ) -> Result<FakeLane> {
                let world = Arc::clone(domain.state());
                let line = Arc::new(Line {
                    number: world.next.fetch_add(1, Ordering::Relaxed),
                    clock: Arc::clone(clock),
                    items: Mutex::default(),
                    done: AtomicU64::new(0),
                    notices: Mutex::default(),
                });
                if $tracks {
                    // It raises the clock by noticing each epoch; see `submit`.
                    assert_eq!(clock.completed(), 0);
                }
                world.lanes.lock().unwrap().push(Arc::clone(&line));
                let open = AtomicBool::new(false);
                Ok(FakeLane { world, line, open })
            }

            fn open(lane: &FakeLane, open: bool) -> Result<()> {
                lane.open.store(open, Ordering::Relaxed);
                Ok(())
            }

            fn submit(
                lane: &FakeLane,
                epoch: u64,
                work: Work<Self>,
                stamps: Option<Arc<Stamps>>,
            ) -> Result<()> {
                let label = match work {
                    Work::Launch(label) => Some(label),
                    _ => None,
                };
                lane.give(epoch, label.into_iter().collect(), stamps, $tracks)
            }

            fn compile(
                context: &Object<Context<Self>>,
                _device: &Object<FakeDevice>,
                steps: &[Step<'_, Self>],
                from: usize,
                _updatable: bool,
            ) -> Option<(usize, Arc<dyn Compiled<Self>>)> {
                let most = context.domain().state().compiles.load(Ordering::Relaxed);
                let launches = steps[from..].iter().map_while(|step| match step.work {
                    Work::Launch(label) => Some(*label),
                    _ => None,
                });
                let labels: Vec<u32> = launches.take(most).collect();
                let count = labels.len();
                (count > 1).then(|| (count, Arc::new(Several(Mutex::new(labels))) as Arc<_>))
            }

            fn is_idle(lane: &FakeLane) -> Result<bool> {
                Ok(lane.line.items.lock().unwrap().is_empty())
            }

            fn mark(lane: &FakeLane, epoch: u64) -> Result<Marker> {
                lane.world.marks.fetch_add(1, Ordering::Relaxed);
                if $tracks {
                    return Ok(Marker::Epoch(
                        Arc::clone(&lane.world),
                        Arc::clone(&lane.line),
                        epoch,
                    ));
                }
                let flag = Arc::new(Flag::default());
                lane.line
                    .items
                    .lock()
                    .unwrap()
                    .push_back(Item::Record(Arc::clone(&flag)));
                Ok(Marker::Flag(Arc::clone(&lane.world), flag))
            }

            fn wait(lane: &FakeLane, marker: &Marker) -> Result<()> {
                let own = std::ptr::eq(marker.world(), &*lane.world);
                assert!(own || Self::SPANS, "a lane waits for another context");
                lane.world.waits.fetch_add(1, Ordering::Relaxed);
                lane.line
                    .items
                    .lock()
                    .unwrap()
                    .push_back(Item::Wait(marker.clone()));
                Ok(())
            }

            fn is_done(marker: &Marker) -> Result<bool> {
                match marker.world().broken.load(Ordering::Relaxed) {
                    true => Err(Error::new(UR_RESULT_ERROR_DEVICE_LOST)),
                    false => Ok(marker.is_done()),
                }
            }

            fn block(marker: &Marker) -> Result<()> {
                for _ in 0..5000 {
                    if marker.world().broken.load(Ordering::Relaxed) {
                        return Err(Error::new(UR_RESULT_ERROR_DEVICE_LOST));
                    }
                    if marker.is_done() {
                        return Ok(());
                    }
                    // Only a host wait of the test's own makes progress; see `Bench::drive`.
                    if std::thread::current().name() != Some("ur-host") {
                        marker.world().run();
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                // It hangs; whatever the test does next fails.
                marker.world().broken.store(true, Ordering::Relaxed);
                Err(Error::new(UR_RESULT_ERROR_UNKNOWN))
            }

            fn notify(marker: &Marker, then: Notice) -> Option<Notice> {
                let Marker::Epoch(_, line, epoch) = marker else {
                    let Marker::Flag(_, flag) = marker else {
                        return Some(then);
                    };
                    let mut notices = flag.notices.lock().unwrap();
                    if !$tracks {
                        return Some(then);
                    }
                    if !marker.is_done() {
                        notices.push(then);
                        return None;
                    }
                    drop(notices);
                    then();
                    return None;
                };
                let mut notices = line.notices.lock().unwrap();
                if !marker.is_done() {
                    notices.push((*epoch, then));
                    return None;
                }
                drop(notices);
                then();
                None
            }

            fn host_point(
                domain: &Domain<Self>,
                _clock: &Arc<Clock>,
            ) -> Result<(Marker, Self::Signal)> {
                let flag = Arc::new(Flag::default());
                let world = Arc::clone(domain.state());
                Ok((
                    Marker::Flag(Arc::clone(&world), Arc::clone(&flag)),
                    (world, flag),
                ))
            }

            fn signal((_, flag): Self::Signal) {
                flag.raise();
            }

            fn launch(
                _device: &Object<FakeDevice>,
                _kernel: &Object<Self::Kernel>,
                _request: &LaunchRequest<'_>,
            ) -> Result<u32> {
                Err(Error::unsupported())
            }

            fn acquire(
                domain: &Domain<Self>,
                _device: Option<&Object<FakeDevice>>,
                kind: Kind,
                bytes: usize,
                zeroed: bool,
            ) -> Result<usize> {
                let world = domain.state();
                world.acquires.fetch_add(1, Ordering::Relaxed);
                let mut slabs = world.slabs.lock().unwrap();
                let out: usize = slabs.values().map(|(_, bytes)| bytes).sum();
                if world
                    .room
                    .lock()
                    .unwrap()
                    .is_some_and(|room| out + bytes > room)
                {
                    return Err(Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES));
                }
                world
                    .zeroed
                    .fetch_add(usize::from(zeroed), Ordering::Relaxed);
                let base = (world.next.fetch_add(1, Ordering::Relaxed) + 1) << 32;
                slabs.insert(base, (kind, bytes));
                Ok(base)
            }

            fn release(domain: &Domain<Self>, kind: Kind, addr: usize, bytes: usize) {
                let slab = domain.state().slabs.lock().unwrap().remove(&addr);
                assert_eq!(slab, Some((kind, bytes)));
            }

            fn granularity(_device: Option<&Object<FakeDevice>>, _kind: Kind) -> usize {
                vm::PAGE
            }

            fn page(_device: Option<&Object<FakeDevice>>, kind: Kind) -> Option<usize> {
                (kind == Kind::Shared).then_some(vm::PAGE)
            }

            fn reserve(domain: &Domain<Self>, _page: usize, bytes: usize) -> Result<usize> {
                Ok(domain.state().vm.lock().unwrap().reserve(bytes))
            }

            fn unreserve(domain: &Domain<Self>, addr: usize, bytes: usize) {
                domain.state().vm.lock().unwrap().unreserve(addr, bytes);
            }

            fn create_pages(
                domain: &Domain<Self>,
                _device: Option<&Object<FakeDevice>>,
                _kind: Kind,
                _page: usize,
                count: usize,
                zeroed: bool,
            ) -> Result<Vec<u64>> {
                let world = domain.state();
                world.acquires.fetch_add(1, Ordering::Relaxed);
                world
                    .zeroed
                    .fetch_add(usize::from(zeroed), Ordering::Relaxed);
                Ok(world.vm.lock().unwrap().create(count))
            }

            fn destroy_pages(domain: &Domain<Self>, pages: &[u64]) {
                domain.state().vm.lock().unwrap().destroy(pages);
            }

            fn map_pages(
                domain: &Domain<Self>,
                _device: Option<&Object<FakeDevice>>,
                _kind: Kind,
                _page: usize,
                addr: usize,
                pages: &[u64],
            ) -> Result<()> {
                match domain.state().vm.lock().unwrap().map(addr, pages) {
                    true => Ok(()),
                    false => Err(Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES)),
                }
            }

            fn unmap_pages(domain: &Domain<Self>, addr: usize, bytes: usize) {
                let count = bytes / vm::PAGE;
                domain.state().vm.lock().unwrap().unmap(addr, count);
            }

            fn buffer(
                mem: &Object<FakeMem>,
                _device: &Object<FakeDevice>,
            ) -> Result<(usize, usize)> {
                Ok((mem.0, mem.1))
            }

            fn now(_device: &Object<FakeDevice>) -> Result<u64> {
                Ok(1)
            }
        }
    };
}
fake!(Tracked, true);
fake!(Polled, false);

pub type EventArc<D> = Arc<Object<Event<D>>>;
pub type QueueArc<D> = Arc<Object<Queue<D>>>;
pub type PoolArc<D> = Arc<Object<UsmPool<D>>>;

/// An engine, a context over one device, and their world.
pub struct Bench<D: AnyFake> {
    pub world: Arc<World>,
    pub engine: Arc<Engine<D>>,
    pub device: Arc<Object<FakeDevice>>,
    pub context: Arc<Object<Context<D>>>,
}

impl<D: AnyFake> Bench<D> {
    pub fn new() -> Self {
        Self::over(&Engine::new())
    }

    fn over(engine: &Arc<Engine<D>>) -> Self {
        let world = Arc::<World>::default();
        let device = Object::new(D::table(), FakeDevice);
        let handles = [device.handle()];
        let context = Context::new(engine, list::<D, _>(&handles), Arc::clone(&world));
        Self {
            world,
            engine: Arc::clone(engine),
            device,
            context,
        }
    }

    /// Another context of the same adapter, a world of its own.
    pub fn another(&self) -> Self {
        Self::over(&self.engine)
    }

    pub fn queue(&self, flags: ur_queue_flags_t) -> QueueArc<D> {
        Queue::create(&self.context, &self.device, flags).unwrap()
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
pub fn list<D: Driver, T: Body>(handles: &[*mut c_void]) -> Handles<'_, T> {
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
pub fn with_event<D: Driver, R>(
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
pub fn without<D: Driver, R>(
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

/// The same without an event.
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
        Queue::alloc(queue, Kind::Device, pool, bytes, waits, event)
    });
    result.map(|(ptr, event)| (ptr.addr(), event))
}

/// The same without an event.
pub fn alloc_only<D: AnyFake>(
    queue: &QueueArc<D>,
    pool: Option<&PoolArc<D>>,
    bytes: usize,
    waits: &[&EventArc<D>],
) -> Result<usize> {
    let pool = pool.map(|pool| &**pool);
    let result = without(waits, |waits, event| {
        Queue::alloc(queue, Kind::Device, pool, bytes, waits, event)
    });
    result.map(|ptr| ptr.addr())
}

pub fn free<D: AnyFake>(
    queue: &QueueArc<D>,
    addr: usize,
    waits: &[&EventArc<D>],
) -> Result<EventArc<D>> {
    with_event(waits, |waits, event| Queue::free(queue, addr, waits, event))
        .map(|((), event)| event)
}

pub fn free_only<D: AnyFake>(
    queue: &QueueArc<D>,
    addr: usize,
    waits: &[&EventArc<D>],
) -> Result<()> {
    without(waits, |waits, event| Queue::free(queue, addr, waits, event))
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

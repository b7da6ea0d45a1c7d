//! The state of a context that outlives its handle: devices, the driver's data for them, lanes and
//! memory.

use crate::object::{Body, Object, Result};
use crate::stream::engine::{Pending, Scope};
use crate::stream::lane::LaneCore;
use crate::stream::lane::lanes::Lanes;
use crate::stream::usm::memory::Memory;
use crate::stream::{Driver, Engine, Progress, QueueOptions};
use crate::sync::Mutex;
use crate::timeline::{Clock, Frontier};
use rustc_hash::FxHashMap;
use std::any::Any;
use std::ffi::c_void;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// The queues of a context, and their number after the last removal of ended ones.
#[derive(Default)]
struct Queues {
    all: Vec<Weak<AnyObject>>,
    live: usize,
}

/// A queue or an event of unknown type.
type AnyObject = dyn Any + Send + Sync;

/// Number of ended queues up to which they are not removed.
const MAX_ENDED_QUEUES: usize = 32;

/// The reusable events of a context, by handle.
#[derive(Default)]
struct Reusables {
    /// Number of entries. With none, no output is looked at.
    count: AtomicUsize,
    all: Mutex<FxHashMap<usize, Weak<AnyObject>>>,
}

/// The devices of a context, with everything made for them.
pub struct Domain<D: Driver> {
    scope: Scope<D>,
    lanes: Lanes<LaneCore<D>>,
    queues: Mutex<Queues>,
    reusable: Reusables,
    pub(crate) memory: Memory<D>,
    /// What commands may use whose end cannot be awaited now. Looked at after each wait.
    retained: Mutex<Vec<Retained>>,
    has_retained: AtomicBool,
}

/// What commands may use, with what proves that they have ended.
type Retained = (Frontier, Arc<dyn Send + Sync>);

impl<D: Driver> Deref for Domain<D> {
    type Target = Scope<D>;

    fn deref(&self) -> &Scope<D> {
        &self.scope
    }
}

impl<D: Driver> Domain<D> {
    pub(crate) fn new(
        engine: &Arc<Engine<D>>,
        devices: Box<[Arc<Object<D::Device>>]>,
        state: D::ContextData,
    ) -> Arc<Self> {
        let domain = Arc::new(Self {
            scope: Scope::new(engine, devices, state),
            lanes: Lanes::default(),
            queues: Mutex::default(),
            reusable: Reusables::default(),
            memory: Memory::default(),
            retained: Mutex::default(),
            has_retained: AtomicBool::new(false),
        });
        engine.add_context(Arc::downgrade(&domain) as Weak<dyn Pending<D>>);
        domain
    }

    pub(crate) fn scope(&self) -> &Scope<D> {
        &self.scope
    }

    pub(crate) fn lanes(&self) -> &Lanes<LaneCore<D>> {
        &self.lanes
    }

    pub(crate) fn add_queue<Q: Body>(&self, queue: &Arc<Object<Q>>) {
        let mut queues = self.queues.lock();
        if queues.all.len() >= 2 * queues.live + MAX_ENDED_QUEUES {
            queues.all.retain(|old| old.strong_count() > 0);
            queues.live = queues.all.len();
        }
        queues.all.push(Arc::downgrade(queue) as Weak<AnyObject>);
    }

    /// Adds a reusable event. Ended ones are removed whenever the number doubles.
    pub(crate) fn add_reusable<E: Body>(&self, event: &Arc<Object<E>>) {
        let mut all = self.reusable.all.lock();
        if all.len() == all.capacity() {
            all.retain(|_, old| old.strong_count() > 0);
        }
        let weak = Arc::downgrade(event) as Weak<AnyObject>;
        all.insert(event.handle().addr(), weak);
        self.reusable.count.store(all.len(), Ordering::Release);
    }

    /// The reusable event with a handle. `handle` is asked for only if there are such events.
    pub(crate) fn find_reusable<E: Body>(
        &self,
        handle: impl FnOnce() -> *mut c_void,
    ) -> Option<Arc<Object<E>>> {
        if self.reusable.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let found = self.reusable.all.lock().get(&handle().addr())?.upgrade();
        found?.downcast().ok()
    }

    /// The queues of this type, which all queues of a backend have.
    pub(crate) fn queues<Q: Body>(&self) -> Vec<Arc<Object<Q>>> {
        let queues = self.queues.lock();
        let all = queues.all.iter().filter_map(Weak::upgrade);
        all.filter_map(|queue| queue.downcast().ok()).collect()
    }

    /// Everything enqueued in the context so far.
    pub(crate) fn everything(&self) -> Frontier {
        self.join_lanes(|_| {})
    }

    /// As [`Domain::poll`], and then [`Domain::everything`]: one visit of the lanes.
    pub(crate) fn poll_everything(&self) -> Frontier {
        self.join_lanes(poll)
    }

    fn join_lanes(&self, visit: impl Fn(&LaneCore<D>)) -> Frontier {
        let mut all = self.host_points();
        all.join(&self.orphans());
        let lanes = self.lanes.busy();
        for lane in &lanes {
            visit(lane);
            all.join(&lane.tip());
        }
        self.lanes.park(&lanes);
        all.prune();
        all
    }

    /// Queries completion of all lanes, for drivers that do not track.
    pub(crate) fn poll(&self) {
        if D::TRACKS {
            return;
        }
        let lanes = self.lanes.busy();
        lanes.iter().for_each(|lane| poll(lane));
        self.lanes.park(&lanes);
    }

    /// Drops what commands may use once everything enqueued so far has ended.
    pub(crate) fn drop_after_use(&self, what: impl Send + Sync + 'static) {
        // A forked child has no commands to wait for.
        if self.engine().check().is_err() {
            return;
        }
        let used = self.poll_everything();
        self.drop_ended();
        if used.is_done() {
            return;
        }
        if let Err(left) = self.engine().drop_after(&used, Arc::new(what)) {
            let mut retained = self.retained.lock();
            retained.push((used, left));
            self.has_retained.store(true, Ordering::Relaxed);
        }
    }

    fn drop_ended(&self) {
        if self.has_retained.load(Ordering::Relaxed) {
            self.drop_some();
        }
    }

    #[cold]
    fn drop_some(&self) {
        let mut retained = self.retained.lock();
        let is_over = |(used, _): &mut Retained| used.is_done();
        let ended: Vec<_> = retained.extract_if(.., is_over).collect();
        self.has_retained
            .store(!retained.is_empty(), Ordering::Relaxed);
        // Dropped without the lock.
        drop(retained);
        drop(ended);
    }

    /// Queries completion without blocking on a lane's lock, for drivers that do not track.
    pub(crate) fn observe(&self) {
        let lanes = self.lanes.busy();
        for lane in &lanes {
            if let Err(error) = lane.observe() {
                log::error!("asking whether a lane is idle failed: {:?}", error.code());
            }
        }
        self.lanes.park(&lanes);
    }

    /// Releases completed memory beyond the pools' thresholds, and what completed commands used.
    pub(crate) fn settle(&self) {
        self.drop_ended();
        if self.memory.wants_settling() {
            self.poll();
            self.memory.settle();
        }
    }

    /// Runs work on a lane of its own and waits for it.
    pub(crate) fn run_now(
        &self,
        device: &Object<D::Device>,
        work: crate::stream::Work<D>,
    ) -> Result<()> {
        self.engine().check()?;
        let clock = Clock::new();
        let lane = D::lane(self, device, &QueueOptions::default(), &clock)?;
        match D::submit(&lane, 1, work, None)? {
            Progress::Done => Ok(()),
            Progress::Pending => D::block(&D::mark(&lane, 1)?),
        }
    }
}

impl<D: Driver> Pending<D> for Domain<D> {
    fn wait_device(&self, device: &Object<D::Device>) -> Result<()> {
        let mut lanes = self.lanes.all();
        lanes.retain(|lane| is_part::<D>(&lane.device, device));
        let mut all = Frontier::new();
        lanes.iter().for_each(|lane| all.join(&lane.tip()));
        all.join(&self.engine().unsignalled_of(self));
        all.join(&self.orphans());
        let waited = self.engine().wait(&all);
        let failed = lanes.iter().map(|lane| lane.report());
        failed.fold(waited, Result::and).and(self.report())
    }

    fn settle(&self) {
        Domain::settle(self);
    }

    fn access_changed(&self) {
        self.memory.extent_version.change();
    }
}

/// Whether `part` is `whole` or a part of it.
fn is_part<D: Driver>(part: &Object<D::Device>, whole: &Object<D::Device>) -> bool {
    std::ptr::eq(part, whole) || D::parent(part).is_some_and(|parent| is_part::<D>(&parent, whole))
}

/// Queries completion of a lane, for drivers that do not track.
fn poll<D: Driver>(lane: &LaneCore<D>) {
    if !D::TRACKS
        && let Err(error) = lane.poll()
    {
        log::error!("asking a lane how far it is failed: {:?}", error.code());
    }
}

//! The fake driver: all objects, behind one lock. A handle is a number that is never reused.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::graph::Graph;
use crate::pool::{Block, Pool};
use crate::script::Script;
use crate::stream::{Event, Stream};

/// The driver's codes that are used here.
pub const SUCCESS: u32 = 0;
pub const INVALID_VALUE: u32 = 1;
pub const OUT_OF_MEMORY: u32 = 2;
pub const INVALID_CONTEXT: u32 = 201;
pub const INVALID_HANDLE: u32 = 400;
pub const NOT_FOUND: u32 = 500;
pub const NOT_READY: u32 = 600;
pub const CAPTURE_UNSUPPORTED: u32 = 900;

/// What all names come behind. Default streams have their contexts' names.
const FIRST: usize = 0x7000_0000;

pub const PAGE: usize = 2 << 20;

/// The first device's primary context. The others' come behind it.
const CONTEXT: usize = 0x1000;

/// Most devices there are.
pub const MAX_DEVICES: usize = 4;

/// Bytes of a device's memory. Half of it is always free.
pub const MEMORY: usize = 1 << 30;

/// The primary context of a device.
pub fn context_of(device: usize) -> usize {
    CONTEXT + device * 0x10
}

/// A map with a fixed hash, so that instruction counts are equal in every process.
type Map<V> = HashMap<usize, V, BuildHasherDefault<DefaultHasher>>;

#[derive(Default)]
pub struct FakeDriver {
    pub script: Script,
    next: usize,
    /// Devices beyond the first.
    pub more_devices: usize,
    /// What each of them says that it has, if not [`MEMORY`].
    pub memory: Option<usize>,
    /// How often each primary context is retained.
    pub retained: [usize; MAX_DEVICES],
    pub streams: BTreeMap<usize, Stream>,
    pub events: Map<Event>,
    pub modules: Map<()>,
    /// Names of functions, and how many local bytes each was told.
    pub functions: Map<String>,
    /// Allocations: their bytes.
    pub blocks: BTreeMap<usize, usize>,
    /// Memory of the host's that devices reach: its bytes.
    pub registered: BTreeMap<usize, usize>,
    /// Reserved addresses: their bytes.
    pub ranges: BTreeMap<usize, usize>,
    /// Pieces of memory, and where they are mapped.
    pub pieces: Map<Piece>,
    pub maps: BTreeMap<usize, (usize, usize)>,
    /// Graphs, and what was made ready of them.
    pub graphs: Map<Graph>,
    pub launchable: Map<Graph>,
    /// Whether streams and events are taken whatever context is current, as newer drivers do.
    pub anywhere: bool,
    pub pools: BTreeMap<usize, Pool>,
    /// Blocks of pools, free ones too.
    pub pooled: BTreeMap<usize, Block>,
    /// Whether a thread captures a stream in the global mode: its handle, 1 for one that we never see.
    pub captured: Option<usize>,
    /// Where memory is the second device's, which streams of others do not reach.
    pub elsewhere: std::ops::Range<usize>,
    /// What programs may look for in modules, by name: bytes.
    pub variables: BTreeMap<(usize, String), Box<[u8]>>,
}

pub struct Piece {
    pub bytes: usize,
    pub released: bool,
    pub mapped: usize,
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`
const RELAXED: i32 = 2;

thread_local! {
    /// The thread's contexts, the current one last.
    pub static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// Its capture mode: 0 global, 2 relaxed.
    pub static MODE: Cell<i32> = const { Cell::new(0) };
}

pub fn current() -> usize {
    CURRENT.with(|all| all.borrow().last().copied().unwrap_or(0))
}

static DRIVER: Mutex<Option<FakeDriver>> = Mutex::new(None);

pub struct DriverGuard(MutexGuard<'static, Option<FakeDriver>>);

impl std::ops::Deref for DriverGuard {
    type Target = FakeDriver;

    fn deref(&self) -> &FakeDriver {
        self.0.as_ref().expect("made by `hold`")
    }
}

impl std::ops::DerefMut for DriverGuard {
    fn deref_mut(&mut self) -> &mut FakeDriver {
        self.0.as_mut().expect("made by `hold`")
    }
}

pub fn hold() -> DriverGuard {
    let mut driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    driver.get_or_insert_default();
    DriverGuard(driver)
}

impl FakeDriver {
    pub fn name(&mut self) -> usize {
        self.next += 1;
        FIRST + self.next * 16
    }

    /// Begins an entry point: the code that it is to fail with.
    pub fn called(&mut self, name: &'static str) -> Option<u32> {
        self.script.called(name)
    }

    /// The context that a call for `own`'s stream or event is refused without, as older drivers do; or
    /// none, where [`FakeDriver::anywhere`] has been asked for.
    pub fn refuses(&self, own: Option<usize>) -> Option<u32> {
        let other = own.is_some_and(|context| context != current());
        (other && !self.anywhere).then_some(INVALID_CONTEXT)
    }

    /// Begins an entry point for something of a context. Without that, it acts on the current one.
    pub fn belongs(&mut self, name: &'static str, own: Option<usize>) -> Option<u32> {
        match own {
            Some(_) => self.refuses(own).or_else(|| self.called(name)),
            None => self.acts(name),
        }
    }

    pub fn context_of_stream(&self, stream: *mut c_void) -> Option<usize> {
        self.streams.get(&stream.addr()).map(|own| own.context)
    }

    pub fn context_of_event(&self, event: *mut c_void) -> Option<usize> {
        self.events.get(&event.addr()).map(|own| own.context)
    }

    /// Begins an entry point that acts on the current context.
    pub fn acts(&mut self, name: &'static str) -> Option<u32> {
        let retained = |device| self.retained[device] > 0 && current() == context_of(device);
        if !(0..MAX_DEVICES).any(retained) {
            self.script
                .broken
                .push(format!("{name} without its context"));
            return Some(INVALID_CONTEXT);
        }
        self.called(name)
    }

    /// Begins a question about a stream, or an event that was recorded there: while a capture forbids it,
    /// it would end that.
    pub fn begin_query(&mut self, stream: Option<usize>) -> Option<u32> {
        let captured = self.captured?;
        let own = stream == Some(captured);
        if !own && MODE.get() == RELAXED {
            return None;
        }
        self.script
            .broken
            .push("a question that ends a capture".into());
        Some(CAPTURE_UNSUPPORTED)
    }

    pub fn broken<T>(&mut self, what: &str) -> Result<T, u32> {
        self.script.broken.push(what.to_owned());
        Err(INVALID_HANDLE)
    }

    pub fn live(&self) -> usize {
        self.report().iter().map(|(_, count)| count).sum()
    }

    pub fn report(&self) -> Vec<(&'static str, usize)> {
        let all = [
            ("context", self.retained.iter().sum()),
            (
                "stream",
                self.streams.keys().filter(|name| **name > FIRST).count(),
            ),
            ("event", self.events.len()),
            ("module", self.modules.len()),
            ("allocation", self.blocks.len()),
            ("registration", self.registered.len()),
            ("range", self.ranges.len()),
            ("piece", self.pieces.len()),
            ("mapping", self.maps.len()),
            ("graph", self.graphs.len() + self.launchable.len()),
            ("pool", self.pools.len()),
            ("block of a pool", self.pooled.len()),
        ];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

/// What an entry point returns.
pub fn code(result: Result<(), u32>) -> u32 {
    result.err().unwrap_or(SUCCESS)
}

//! The fake driver: all objects, behind one lock. A handle is a number that is never reused.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::capture::Capture;
use crate::external::{ExternalMap, Memory, Semaphore};
use crate::graph::Graph;
use crate::image::{Array, Mipmap, View};
use crate::peers::Access;
use crate::pool::{Block, Pool};
use crate::script::Script;
use crate::stream::{Event, Stream};
use crate::strict::{Loaded, Strictness};

/// The driver's error codes in use.
pub const SUCCESS: u32 = 0;
pub const INVALID_VALUE: u32 = 1;
pub const OUT_OF_MEMORY: u32 = 2;
pub const INVALID_CONTEXT: u32 = 201;
pub const INVALID_HANDLE: u32 = 400;
pub const NOT_FOUND: u32 = 500;
pub const NOT_READY: u32 = 600;
pub const ILLEGAL_STATE: u32 = 401;
pub const CAPTURE_UNSUPPORTED: u32 = 900;
pub const CAPTURE_INVALIDATED: u32 = 901;
pub const CAPTURE_MERGE: u32 = 902;
pub const CAPTURE_UNMATCHED: u32 = 903;
pub const CAPTURE_UNJOINED: u32 = 904;
pub const CAPTURE_ISOLATION: u32 = 905;
pub const CAPTURED_EVENT: u32 = 907;
pub const CAPTURE_WRONG_THREAD: u32 = 908;

/// Handles are numbered from here. A context's default streams have the context's number.
const FIRST: usize = 0x7000_0000;

pub const PAGE: usize = 2 << 20;

/// The first device's primary context. Those of further devices follow it.
const CONTEXT: usize = 0x1000;

/// Largest number of devices.
pub const MAX_DEVICES: usize = 4;

/// Bytes of a device's memory. Half of it is always free.
pub const MEMORY: usize = 1 << 30;

/// The primary context of a device.
pub fn context_of(device: usize) -> usize {
    CONTEXT + device * 0x10
}

/// A map with a fixed hash, so that instruction counts are equal in every process.
type Table<V> = HashMap<usize, V, BuildHasherDefault<DefaultHasher>>;

#[derive(Default)]
pub struct FakeDriver {
    pub script: Script,
    next: usize,
    /// Number of devices beyond the first.
    pub more_devices: usize,
    /// Bytes of memory that each of them reports, if not [`MEMORY`].
    pub memory: Option<usize>,
    /// Number of retains of each primary context.
    pub retained: [usize; MAX_DEVICES],
    pub streams: BTreeMap<usize, Stream>,
    pub events: Table<Event>,
    pub modules: Table<()>,
    /// Names of functions, and the local bytes that each was allowed.
    pub functions: Table<String>,
    /// The module of each function.
    pub modules_of: Table<usize>,
    /// Allocations, by address.
    pub blocks: BTreeMap<usize, Allocation>,
    /// Sizes of host memory that devices access, by address.
    pub registered: BTreeMap<usize, usize>,
    /// Sizes of reserved address ranges, by address.
    pub ranges: BTreeMap<usize, usize>,
    /// Physical memory, and the addresses at which it is mapped.
    pub pieces: Table<Piece>,
    pub maps: BTreeMap<usize, Map>,
    /// Graphs, and the executable graphs made from them.
    pub graphs: Table<Graph>,
    pub launchable: Table<Graph>,
    /// Arrays, the levels of mipmapped ones among them, and the name of each by the address of its texels.
    pub arrays: Table<Array>,
    pub array_memory: BTreeMap<usize, usize>,
    pub mipmaps: Table<Mipmap>,
    /// Textures and surfaces.
    pub views: Table<View>,
    /// Memory and semaphores of another interface, and the mappings of such memory: of buffers by their addresses,
    /// of mipmapped arrays by their names.
    pub external_memories: Table<Memory>,
    pub external_semaphores: Table<Semaphore>,
    pub external_maps: Table<ExternalMap>,
    /// Whether streams and events are accepted under any current context, as newer drivers do.
    pub anywhere: bool,
    pub pools: BTreeMap<usize, Pool>,
    /// Blocks of pools, including free ones.
    pub pooled: BTreeMap<usize, Block>,
    /// The stream that a thread captures in the global mode, or 1 for a stream of foreign code.
    pub captured: Option<usize>,
    /// The open captures, by number.
    pub captures: Table<Capture>,
    /// Memory of the second device, which other devices' streams cannot access.
    pub elsewhere: std::ops::Range<usize>,
    /// Whether devices have no pages that can be mapped.
    pub without_pages: bool,
    /// Whether devices have links between them, and which contexts have access to which: from, to.
    pub can_peer: bool,
    pub links: [[bool; MAX_DEVICES]; MAX_DEVICES],
    /// Whether calls wait for work that the real driver may wait for.
    pub strictness: Strictness,
    pub loaded: Loaded,
    /// Contents of the variables that programs may look up, by name.
    pub variables: BTreeMap<(usize, String), Box<[u8]>>,
}

/// Memory of one allocation, and the device that owns it.
pub struct Allocation {
    pub bytes: usize,
    pub home: Option<usize>,
}

/// A mapping of a piece of physical memory.
pub struct Map {
    pub bytes: usize,
    pub piece: usize,
    pub access: Access,
}

pub struct Piece {
    pub bytes: usize,
    /// The device that owns it.
    pub home: Option<usize>,
    pub released: bool,
    pub mapped: usize,
    /// The address where it was mapped last.
    pub last: usize,
    /// Whether it was made to be exported.
    pub shareable: bool,
    /// Holds the contents, once it was exported.
    pub file: Option<OwnedFd>,
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub const RELAXED: i32 = 2;

thread_local! {
    /// The thread's context stack, the current one last.
    pub static CURRENT: RefCell<Contexts> = const { RefCell::new(Contexts { all: [0; 32], count: 0 }) };
    /// The thread's capture mode: 0 global, 2 relaxed.
    pub static MODE: Cell<i32> = const { Cell::new(0) };
}

/// A stack of contexts. It has nothing to drop, so that libraries that end with the process can use it.
pub struct Contexts {
    all: [usize; 32],
    count: usize,
}

impl Contexts {
    pub fn push(&mut self, context: usize) {
        self.all[self.count] = context;
        self.count += 1;
    }

    pub fn pop(&mut self) -> Option<usize> {
        self.count = self.count.checked_sub(1)?;
        Some(self.all[self.count])
    }

    fn last(&self) -> Option<usize> {
        Some(self.all[self.count.checked_sub(1)?])
    }
}

pub fn current() -> usize {
    CURRENT.with(|all| all.borrow().last().unwrap_or(0))
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
    driver.get_or_insert_with(FakeDriver::of_environment);
    DriverGuard(driver)
}

impl FakeDriver {
    /// A driver as a program that cannot call `script` describes it: `SCRIPTED_CUDA_DEVICES` is the number of
    /// devices, `SCRIPTED_CUDA_LINKS=0` takes the links between them, `SCRIPTED_CUDA_PAGES=0` their pages.
    /// `SCRIPTED_CUDA_STRICT=1` makes calls wait where the real driver may, `2` under its lock.
    fn of_environment() -> Self {
        let number = |name| std::env::var(name).ok()?.parse::<usize>().ok();
        let devices = number("SCRIPTED_CUDA_DEVICES").unwrap_or(1);
        Self {
            more_devices: devices.clamp(1, MAX_DEVICES) - 1,
            can_peer: number("SCRIPTED_CUDA_LINKS") != Some(0),
            without_pages: number("SCRIPTED_CUDA_PAGES") == Some(0),
            strictness: Strictness::of(number("SCRIPTED_CUDA_STRICT").unwrap_or(0)),
            ..Self::default()
        }
    }

    pub fn name(&mut self) -> usize {
        self.next += 1;
        FIRST + self.next * 16
    }

    /// Begins an entry point. Returns the code that the script gives it.
    pub fn called(&mut self, name: &'static str) -> Option<u32> {
        self.script.called(name)
    }

    /// The context that a call for a stream or event of `own` needs, as older drivers do.
    ///
    /// `None` if the test has set [`FakeDriver::anywhere`].
    pub fn refuses(&self, own: Option<usize>) -> Option<u32> {
        let other = own.is_some_and(|context| context != current());
        (other && !self.anywhere).then_some(INVALID_CONTEXT)
    }

    /// Begins an entry point for an object of the context, or of the current one if that is `None`.
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

    /// Begins an entry point for the current context.
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

    /// Begins a query of a stream, or of an event recorded there.
    ///
    /// While a capture forbids the query, the real one would end the capture.
    pub fn begin_query(&mut self, stream: Option<usize>) -> Option<u32> {
        if let Some(code) = self.begin_unsafe() {
            return Some(code);
        }
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
            ("capture", self.captures.len()),
            (
                "peer access",
                self.links.iter().flatten().filter(|link| **link).count(),
            ),
            ("pool", self.pools.len()),
            ("block of a pool", self.pooled.len()),
            ("array", self.arrays.len() + self.mipmaps.len()),
            ("texture or surface", self.views.len()),
            ("external memory", self.external_memories.len()),
            ("external semaphore", self.external_semaphores.len()),
            ("external mapping", self.external_maps.len()),
        ];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

/// The return value of an entry point.
pub fn code(result: Result<(), u32>) -> u32 {
    result.err().unwrap_or(SUCCESS)
}

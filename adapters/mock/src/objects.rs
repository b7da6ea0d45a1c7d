//! The handles of the mock: what they are, where they came from, and which of them live.
//!
//! A handle is an `Object` like every adapter's, with its reference count. Nothing here follows a
//! caller's handle: it is looked up in the registry by its address, so that a handle that a test made
//! up, or released, is only unknown.
//!
//! | from | to | by |
//! |---|---|---|
//! | - | live, 1 reference | a function that hands it out |
//! | live | dead | its last reference goes, and no live object came from it |

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use ur::hal::Exported;
use ur::object::{Body, Error, Kind, Object, Result};

use crate::Mock;

/// A handle's target.
pub type Handle = Object<Thing>;

/// What stands behind every handle, whatever its kind.
pub struct Thing {
    pub kind: Kind,
    /// The objects that it was made from, which it keeps alive.
    pub origin: Origin,
    /// When it was made, on the mock's clock.
    pub made_at: u64,
    /// A number of its own.
    pub id: u64,
    /// Values of properties that were given when it was made, or set since.
    facts: Mutex<BTreeMap<&'static str, Vec<u8>>>,
    /// Objects that it currently refers to, by their part in it.
    links: Mutex<BTreeMap<&'static str, Arc<Handle>>>,
    /// What is called when it ends.
    farewells: Mutex<Vec<Farewell>>,
    address: OnceLock<usize>,
}

type Farewell = Box<dyn FnOnce() + Send>;

/// One body serves all kinds, so that the header's kind is the same for all; the thing knows better.
impl Body for Thing {
    const KIND: Kind = Kind::Adapter;
}

static REGISTRY: Mutex<BTreeMap<usize, (Kind, Weak<Handle>)>> = Mutex::new(BTreeMap::new());
static IDS: AtomicU64 = AtomicU64::new(1);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that was not given out before.
pub fn next_id() -> u64 {
    IDS.fetch_add(1, Ordering::Relaxed)
}

/// Nanoseconds since the mock was first used.
pub fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// A new object, without references yet.
pub fn create(kind: Kind, origin: Origin) -> Arc<Handle> {
    let object = Object::new(
        Mock::table(),
        Thing {
            kind,
            origin,
            made_at: now(),
            id: next_id(),
            facts: Mutex::default(),
            links: Mutex::default(),
            farewells: Mutex::default(),
            address: OnceLock::new(),
        },
    );
    let address = object.handle().addr();
    object.address.get_or_init(|| address);
    lock(&REGISTRY).insert(address, (kind, Arc::downgrade(&object)));
    object
}

/// The live object of this kind behind a handle, if there is one.
pub fn find<T>(handle: *const T, kind: Kind) -> Option<Arc<Handle>> {
    let (found, object) = lock(&REGISTRY).get(&handle.addr()).cloned()?;
    // After the lock: to drop the last reference takes it again.
    object.upgrade().filter(|_| found == kind)
}

/// The live object of this kind; the kind's error for any other handle.
pub fn known<T>(handle: *const T, kind: Kind) -> Result<Arc<Handle>> {
    find(handle, kind).ok_or(Error::new(kind.invalid()))
}

/// How many objects of a kind have references of callers.
pub fn live(kind: Kind) -> usize {
    let all: Vec<_> = lock(&REGISTRY).values().cloned().collect();
    let of_kind = all.into_iter().filter(|(found, _)| *found == kind);
    of_kind
        .filter_map(|(_, object)| object.upgrade())
        .filter(|object| object.api_refs() > 0)
        .count()
}

/// Releases a reference; the kind's error for what has none.
pub fn release<T>(handle: *const T, kind: Kind) -> Result<()> {
    let object = known(handle, kind)?;
    object.release().map_err(|_| Error::new(kind.invalid()))
}

impl Thing {
    pub fn fact(&self, property: &str) -> Option<Vec<u8>> {
        lock(&self.facts).get(property).cloned()
    }

    pub fn set_fact(&self, property: &'static str, value: &[u8]) {
        lock(&self.facts).insert(property, value.to_vec());
    }

    pub fn link(&self, part: &str) -> Option<Arc<Handle>> {
        lock(&self.links).get(part).cloned()
    }

    /// The object of that part, made if there is none.
    pub fn link_or(&self, part: &'static str, make: impl FnOnce() -> Arc<Handle>) -> Arc<Handle> {
        Arc::clone(lock(&self.links).entry(part).or_insert_with(make))
    }

    pub fn set_link(&self, part: &'static str, to: Option<Arc<Handle>>) -> Option<Arc<Handle>> {
        let mut links = lock(&self.links);
        match to {
            Some(object) => links.insert(part, object),
            None => links.remove(part),
        }
    }

    /// Calls `farewell` when the object ends.
    pub fn on_end(&self, farewell: impl FnOnce() + Send + 'static) {
        lock(&self.farewells).push(Box::new(farewell));
    }

    /// The objects of a kind that this one, or what it came from, was made from.
    pub fn related(&self, kind: Kind) -> Vec<Arc<Handle>> {
        let own: Vec<_> = self.origin.of(kind).cloned().collect();
        if !own.is_empty() {
            return own;
        }
        let further = self.origin.0.iter().map(|object| object.related(kind));
        further
            .into_iter()
            .find(|found| !found.is_empty())
            .unwrap_or_default()
    }
}

impl Drop for Thing {
    fn drop(&mut self) {
        if let Some(address) = self.address.get() {
            lock(&REGISTRY).remove(address);
        }
        for farewell in std::mem::take(&mut *lock(&self.farewells)) {
            farewell();
        }
    }
}

/// The objects that a new one is made from.
#[derive(Clone, Default)]
pub struct Origin(Vec<Arc<Handle>>);

impl Origin {
    /// With the object behind a handle, if it is known.
    pub fn with<T>(mut self, handle: *const T, kind: Kind) -> Self {
        self.0.extend(find(handle, kind));
        self
    }

    /// With those of a list.
    ///
    /// # Safety
    /// A list that is not null holds that many handles.
    pub unsafe fn list<T>(mut self, list: *const *mut T, count: u32, kind: Kind) -> Self {
        if !list.is_null() {
            for at in 0..count as usize {
                // SAFETY: the caller's promise.
                self.0.extend(find(unsafe { *list.add(at) }, kind));
            }
        }
        self
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &Arc<Handle>> {
        self.0.iter().filter(move |object| object.kind == kind)
    }
}

/// The adapter, its platform and the platform's device, which are there from the beginning.
pub struct Roots {
    pub adapter: Arc<Handle>,
    pub platform: Arc<Handle>,
    pub device: Arc<Handle>,
}

pub fn roots() -> &'static Roots {
    static ROOTS: LazyLock<Roots> = LazyLock::new(|| {
        let adapter = create(Kind::Adapter, Origin::default());
        let platform = create(Kind::Platform, Origin(vec![Arc::clone(&adapter)]));
        let device = create(Kind::Device, Origin(vec![Arc::clone(&platform)]));
        Roots {
            adapter,
            platform,
            device,
        }
    });
    &ROOTS
}

/// The one of a kind that is there from the beginning.
pub fn root(kind: Kind) -> Option<Arc<Handle>> {
    let roots = roots();
    match kind {
        Kind::Adapter => Some(Arc::clone(&roots.adapter)),
        Kind::Platform => Some(Arc::clone(&roots.platform)),
        Kind::Device => Some(Arc::clone(&roots.device)),
        _ => None,
    }
}

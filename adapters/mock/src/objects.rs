//! The mock's objects: their kind, their origin, and which of them are live.
//!
//! A handle is an `Object` with a reference count, as in every adapter. A caller's handle is never
//! dereferenced but looked up by its address, so that a made-up or released handle is merely
//! unknown.
//!
//! | from | to | by |
//! |---|---|---|
//! | - | live, 1 reference | a function that returns it |
//! | live | dead | the release of its last reference, if no live object came from it |

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use ur::hal::Exported;
use ur::object::{Body, Error, Kind, Object, Result};

use crate::Mock;

/// The object behind a handle.
pub type Handle = Object<MockBody>;

/// The body of every object, whatever its kind.
pub struct MockBody {
    pub kind: Kind,
    /// The objects that it was created from, which it keeps alive.
    pub origin: Origin,
    /// The time of its creation on the mock's clock, in nanoseconds.
    pub created_ns: u64,
    /// A number that no other object has.
    pub id: u64,
    /// Values of properties, set at creation or later.
    stored: Mutex<BTreeMap<&'static str, Vec<u8>>>,
    /// Objects that it refers to, by role.
    links: Mutex<BTreeMap<&'static str, Arc<Handle>>>,
    /// Callbacks to run when the object ends.
    end_callbacks: Mutex<Vec<EndCallback>>,
    address: OnceLock<usize>,
}

type EndCallback = Box<dyn FnOnce() + Send>;

/// All kinds share one body type, so that the header's kind is of no use; [`MockBody::kind`] tells them
/// apart.
impl Body for MockBody {
    const KIND: Kind = Kind::Adapter;
}

static REGISTRY: Mutex<BTreeMap<usize, (Kind, Weak<Handle>)>> = Mutex::new(BTreeMap::new());
static IDS: AtomicU64 = AtomicU64::new(1);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that was not returned before.
pub fn next_id() -> u64 {
    IDS.fetch_add(1, Ordering::Relaxed)
}

/// Nanoseconds since the mock was first used.
pub fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Creates an object without references.
pub fn create(kind: Kind, origin: Origin) -> Arc<Handle> {
    let object = Object::new(
        Mock::table(),
        MockBody {
            kind,
            origin,
            created_ns: now(),
            id: next_id(),
            stored: Mutex::default(),
            links: Mutex::default(),
            end_callbacks: Mutex::default(),
            address: OnceLock::new(),
        },
    );
    let address = object.handle().addr();
    object.address.get_or_init(|| address);
    lock(&REGISTRY).insert(address, (kind, Arc::downgrade(&object)));
    object
}

/// The live object of this kind behind a handle.
pub fn find<T>(handle: *const T, kind: Kind) -> Option<Arc<Handle>> {
    let (found, object) = lock(&REGISTRY).get(&handle.addr()).cloned()?;
    // Upgrade after unlocking: dropping the last reference locks the registry.
    object.upgrade().filter(|_| found == kind)
}

/// The live object of this kind behind a handle, or the kind's error for an unknown handle.
pub fn known<T>(handle: *const T, kind: Kind) -> Result<Arc<Handle>> {
    find(handle, kind).ok_or(Error::new(kind.invalid()))
}

/// The number of a kind's objects to which callers have references.
pub fn live(kind: Kind) -> usize {
    let all: Vec<_> = lock(&REGISTRY).values().cloned().collect();
    let of_kind = all.into_iter().filter(|(found, _)| *found == kind);
    of_kind
        .filter_map(|(_, object)| object.upgrade())
        .filter(|object| object.api_refs() > 0)
        .count()
}

/// Releases a reference. The kind's error for a handle without references.
pub fn release<T>(handle: *const T, kind: Kind) -> Result<()> {
    let object = known(handle, kind)?;
    object.release().map_err(|_| Error::new(kind.invalid()))
}

impl MockBody {
    /// The stored value of a property.
    pub fn stored(&self, property: &str) -> Option<Vec<u8>> {
        lock(&self.stored).get(property).cloned()
    }

    /// Stores the value of a property.
    pub fn store(&self, property: &'static str, value: &[u8]) {
        lock(&self.stored).insert(property, value.to_vec());
    }

    /// The object that this one refers to in a role.
    pub fn link(&self, part: &str) -> Option<Arc<Handle>> {
        lock(&self.links).get(part).cloned()
    }

    /// The object in a role; `make` creates it if there is none.
    pub fn link_or(&self, part: &'static str, make: impl FnOnce() -> Arc<Handle>) -> Arc<Handle> {
        Arc::clone(lock(&self.links).entry(part).or_insert_with(make))
    }

    /// Sets or removes the object in a role, and returns the one before.
    pub fn set_link(&self, part: &'static str, to: Option<Arc<Handle>>) -> Option<Arc<Handle>> {
        let mut links = lock(&self.links);
        match to {
            Some(object) => links.insert(part, object),
            None => links.remove(part),
        }
    }

    /// Runs `callback` when the object ends.
    pub fn on_end(&self, callback: impl FnOnce() + Send + 'static) {
        lock(&self.end_callbacks).push(Box::new(callback));
    }

    /// The objects of a kind from which this one or its ancestors were created.
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

impl Drop for MockBody {
    fn drop(&mut self) {
        if let Some(address) = self.address.get() {
            lock(&REGISTRY).remove(address);
        }
        for callback in std::mem::take(&mut *lock(&self.end_callbacks)) {
            callback();
        }
    }
}

/// The objects that a new one is created from.
#[derive(Clone, Default)]
pub struct Origin(Vec<Arc<Handle>>);

impl Origin {
    /// Adds the object behind a handle, if it is known.
    pub fn with<T>(mut self, handle: *const T, kind: Kind) -> Self {
        self.0.extend(find(handle, kind));
        self
    }

    /// Adds the objects of a list that are known.
    ///
    /// # Safety
    /// The list is null or has `count` handles.
    pub unsafe fn list<T>(mut self, list: *const *mut T, count: u32, kind: Kind) -> Self {
        if !list.is_null() {
            for at in 0..count as usize {
                // SAFETY: not null, and the caller guarantees `count` handles.
                self.0.extend(find(unsafe { *list.add(at) }, kind));
            }
        }
        self
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &Arc<Handle>> {
        self.0.iter().filter(move |object| object.kind == kind)
    }
}

/// The adapter, its platform and the platform's device, which always exist.
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

/// The object of a kind that always exists.
pub fn root(kind: Kind) -> Option<Arc<Handle>> {
    let roots = roots();
    match kind {
        Kind::Adapter => Some(Arc::clone(&roots.adapter)),
        Kind::Platform => Some(Arc::clone(&roots.platform)),
        Kind::Device => Some(Arc::clone(&roots.device)),
        _ => None,
    }
}

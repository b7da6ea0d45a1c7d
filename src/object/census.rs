//! Counts of live objects of each kind, to report leaks of a program or of this library.
//!
//! Each thread counts in its own slot, since a shared counter would double the cost of an event.
//! Another thread takes the slot when its thread ends. Sums are exact while no other thread creates
//! or drops an object.

use super::Kind;
use super::spare::SpareMemory;
use std::cell::Cell;
use std::fmt;
use std::iter;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

/// The counters of one thread and its spare memory. The alignment avoids false sharing.
#[repr(align(128))]
pub(super) struct ThreadSlot {
    counts: [AtomicIsize; Kind::ALL.len()],
    pub spares: SpareMemory,
    taken: AtomicBool,
    next: OnceLock<&'static ThreadSlot>,
}

impl ThreadSlot {
    const fn taken(spares: SpareMemory) -> Self {
        Self {
            counts: [const { AtomicIsize::new(0) }; Kind::ALL.len()],
            spares,
            taken: AtomicBool::new(true),
            next: OnceLock::new(),
        }
    }

    /// Adds `by` to the count of a kind, given by its number.
    #[inline]
    pub fn count(&self, kind: u32, by: isize) {
        let count = &self.counts[kind as usize - 1];
        match std::ptr::eq(self, &SHARED) {
            true => {
                count.fetch_add(by, Ordering::Relaxed);
            }
            // No other thread writes the counter.
            false => count.store(count.load(Ordering::Relaxed) + by, Ordering::Relaxed),
        }
    }

    /// All slots: the shared one, then one for each thread that ever ran at once.
    fn all() -> impl Iterator<Item = &'static ThreadSlot> {
        iter::successors(Some(&SHARED), |slot| slot.next.get().copied())
    }
}

/// The slot of threads that have released theirs, as they end.
static SHARED: ThreadSlot = ThreadSlot::taken(SpareMemory::none());

/// The slot of a thread. Its drop, at the thread's end, releases the slot.
struct OwnSlot(&'static ThreadSlot);

impl OwnSlot {
    fn take() -> Self {
        let vacant = |slot: &&ThreadSlot| !slot.taken.swap(true, Ordering::Acquire);
        Self(ThreadSlot::all().find(vacant).unwrap_or_else(|| {
            let new: &'static ThreadSlot =
                Box::leak(Box::new(ThreadSlot::taken(SpareMemory::new())));
            let mut last = &SHARED;
            while !std::ptr::eq(last, new) {
                last = last.next.get_or_init(|| new);
            }
            new
        }))
    }
}

impl Drop for OwnSlot {
    fn drop(&mut self) {
        SLOT.set(Some(&SHARED));
        self.0.taken.store(false, Ordering::Release);
    }
}

thread_local! {
    static OWN: OwnSlot = OwnSlot::take();
    /// Cached slot of the calling thread. Separate from its owner: a thread-local without a
    /// destructor is read without a check.
    static SLOT: Cell<Option<&'static ThreadSlot>> = const { Cell::new(None) };
}

/// The slot of the calling thread. The lookup is a call, so callers keep the result.
#[inline]
pub(super) fn slot() -> &'static ThreadSlot {
    SLOT.get().unwrap_or_else(first_slot)
}

#[cold]
#[inline(never)]
fn first_slot() -> &'static ThreadSlot {
    let slot = OWN.try_with(|own| own.0).unwrap_or(&SHARED);
    SLOT.set(Some(slot));
    slot
}

/// Whether a program has had the adapter since the last report.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// Runs at the process's end behind the functions of `atexit`, in which runtimes release what they have.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;

extern "C" fn at_end() {
    if IN_USE.load(Ordering::Relaxed) {
        // What a callback uses may be gone.
        super::log::set_callback_level(log::LevelFilter::Off);
        let alive = Census::count().without(Kind::Adapter);
        log::info!("objects alive at the end, where the adapter was not released: {alive}");
    }
}

/// Numbers of live objects by kind, without immortal ones. Displays as `2 Event, 1 Queue`, or as
/// `none`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Census([isize; Kind::ALL.len()]);

impl Census {
    /// Sums the counters of all threads.
    pub fn count() -> Self {
        Self(std::array::from_fn(|kind| {
            let counts = ThreadSlot::all().map(|slot| &slot.counts[kind]);
            counts.map(|count| count.load(Ordering::Relaxed)).sum()
        }))
    }

    /// The number of live objects of a kind.
    pub fn of(&self, kind: Kind) -> isize {
        self.0[kind as usize - 1]
    }

    /// These counts with those of a kind set to 0.
    pub fn without(mut self, kind: Kind) -> Self {
        self.0[kind as usize - 1] = 0;
        self
    }

    /// Says that a program has the adapter. Without a [`Census::report`] the live objects are logged at the end of
    /// the process.
    pub fn expect_report() {
        IN_USE.store(true, Ordering::Relaxed);
    }

    /// Logs the live objects, for an adapter whose last reference was released. All of them but the
    /// adapter have leaked.
    pub fn report() {
        IN_USE.store(false, Ordering::Relaxed);
        let alive = Self::count().without(Kind::Adapter);
        match alive.0.iter().all(|count| *count == 0) {
            true => log::debug!("objects alive after the last release: none"),
            // Objects that a runtime leaves at exit are harmless, and libsycl shows adapters'
            // warnings to every user.
            false => log::info!("objects alive after the last release: {alive}"),
        }
    }
}

impl fmt::Display for Census {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for kind in Kind::ALL {
            if self.of(kind) != 0 {
                write!(out, "{between}{} {kind:?}", self.of(kind))?;
                between = ", ";
            }
        }
        if between.is_empty() {
            out.write_str("none")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::ur_dditable_t;
    use crate::object::{Body, Object};

    struct Probe;

    impl Body for Probe {
        // No other test of this crate creates objects of these kinds.
        const KIND: Kind = Kind::ExternalSemaphore;
    }

    #[test]
    fn kinds_are_indexed_by_their_numbers() {
        let numbers = Kind::ALL.map(|kind| kind as usize - 1);
        assert_eq!(numbers, std::array::from_fn(|index| index));
    }

    #[test]
    fn objects_are_counted_on_any_thread() {
        let table: &'static ur_dditable_t = Box::leak(Box::default());
        let alive = || Census::count().of(Probe::KIND);
        let made = std::thread::spawn(move || [(); 20].map(|()| Object::new(table, Probe)));
        let made = made.join().expect("the thread ends");
        let immortal = Object::immortal(table, Probe);
        assert_eq!(alive(), 20);
        let mut only = Census([0; Kind::ALL.len()]);
        assert_eq!(only.to_string(), "none");
        (only.0[4], only.0[7]) = (2, 1);
        assert_eq!(only.to_string(), "2 Event, 1 Queue");
        drop((made, immortal));
        assert_eq!(alive(), 0);
    }

    #[test]
    fn a_slot_serves_successive_threads() {
        let count = || ThreadSlot::all().count();
        let one = || drop(std::thread::spawn(|| slot().next.get()).join());
        (0..200).for_each(|_| one());
        // Other tests' threads take slots as well.
        assert!(count() < 100, "{}", count());
    }
}

//! How many objects of each kind are alive, so that what a program, or this library, leaves behind
//! shows.
//!
//! Each thread counts in one of a few places, since a count that all threads share would cost more
//! than the rest of making an event. Sums are exact once nobody makes or drops an object meanwhile.

use super::Kind;
use std::fmt;
use std::sync::atomic::{AtomicIsize, Ordering};

const PLACES: usize = 16;

/// The counts of some threads, on cache lines of their own.
#[repr(align(128))]
struct Place([AtomicIsize; Kind::ALL.len()]);

static PLACE: [Place; PLACES] =
    [const { Place([const { AtomicIsize::new(0) }; Kind::ALL.len()]) }; PLACES];

/// One more object of a kind, given by its number.
pub(super) fn born(kind: u32) {
    count(kind, 1);
}

/// One less.
pub(super) fn died(kind: u32) {
    count(kind, -1);
}

fn count(kind: u32, by: isize) {
    thread_local! {
        static MARK: u8 = const { 0 };
    }
    // Threads lie pages apart, so their thread-locals do.
    let page = MARK.try_with(|mark| std::ptr::from_ref(mark).addr() >> 12);
    let place = page.unwrap_or(0) % PLACES;
    PLACE[place].0[kind as usize - 1].fetch_add(by, Ordering::Relaxed);
}

/// The objects alive, immortal ones left out. Displays as `2 Event, 1 Queue`, or as `none`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Census([isize; Kind::ALL.len()]);

impl Census {
    pub fn take() -> Self {
        Self(std::array::from_fn(|kind| {
            let counts = PLACE.iter().map(|place| &place.0[kind]);
            counts.map(|count| count.load(Ordering::Relaxed)).sum()
        }))
    }

    pub fn of(&self, kind: Kind) -> isize {
        self.0[kind as usize - 1]
    }

    /// Tells the log what is still alive; for an adapter whose last reference has gone. Nothing then
    /// belongs to anybody, the adapter itself excepted, so what there is has leaked.
    pub fn tell() {
        let mut alive = Self::take();
        alive.0[Kind::Adapter as usize - 1] = 0;
        match alive.0.iter().all(|count| *count == 0) {
            true => log::debug!("objects alive after the last release: none"),
            false => log::warn!("objects alive after the last release: {alive}"),
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
        // No other test of this crate makes any of these.
        const KIND: Kind = Kind::ExternalSemaphore;
    }

    #[test]
    fn kinds_stand_at_their_numbers() {
        let numbers = Kind::ALL.map(|kind| kind as usize - 1);
        assert_eq!(numbers, std::array::from_fn(|index| index));
    }

    #[test]
    fn objects_count_from_their_making_to_their_end_on_any_thread() {
        let table: &'static ur_dditable_t = Box::leak(Box::default());
        let alive = || Census::take().of(Probe::KIND);
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
}

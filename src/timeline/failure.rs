//! Which commands of a lane failed.
//!
//! Failure and completion are two things: a failed command has ended as any other, so its clock is
//! raised past it and its memory may be used again. A clock keeps its failures for good, as events may
//! be asked about them at any time; there are none on nearly every clock.
//!
//! | a failure is | when |
//! |---|---|
//! | unreported | no wait has returned it yet |
//! | reported | a wait that covers it has returned an error |

use super::sync::{AtomicBool, Mutex, Ordering};
use std::sync::Arc;

/// One failure, shared by the failed command and by those that failed since they depend on it.
#[derive(Debug, Default)]
pub struct Failure(AtomicBool);

impl Failure {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn is_reported(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Whether this is the first report.
    pub fn report(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Whether any command of this process ever failed.
    #[inline]
    pub fn any() -> bool {
        ANY.load(Ordering::Acquire)
    }
}

/// Whether any command of this process ever failed: while none did, no other word is looked at.
#[cfg(not(loom))]
static ANY: AtomicBool = AtomicBool::new(false);

#[cfg(loom)]
loom::lazy_static! {
    static ref ANY: AtomicBool = AtomicBool::new(false);
}

/// The failed commands of one lane.
#[derive(Debug)]
pub(super) struct Failures(Mutex<Vec<Range>>);

/// The commands after one epoch up to another.
#[derive(Debug)]
struct Range {
    after: u64,
    upto: u64,
    why: Arc<Failure>,
}

impl Failures {
    pub fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Records that all commands in `after..=upto` but the first failed.
    pub fn add(&self, after: u64, upto: u64, why: &Arc<Failure>) {
        debug_assert!(after < upto, "an empty range of failures");
        let mut ranges = self.0.lock();
        match ranges.last_mut() {
            Some(last) if last.upto == after && Arc::ptr_eq(&last.why, why) => last.upto = upto,
            _ => ranges.push(Range {
                after,
                upto,
                why: Arc::clone(why),
            }),
        }
        ANY.store(true, Ordering::Release);
    }

    /// Why this command failed, if it did.
    #[inline]
    pub fn of(&self, epoch: u64) -> Option<Arc<Failure>> {
        self.find(|range| range.after < epoch && epoch <= range.upto)
    }

    /// The first unreported failure among the commands up to this one.
    pub fn unreported(&self, epoch: u64) -> Option<Arc<Failure>> {
        self.find(|range| range.after < epoch && !range.why.is_reported())
    }

    /// Reports all failures of commands up to this one. Whether any had not been.
    pub fn report(&self, epoch: u64) -> bool {
        let mut first = false;
        while let Some(failure) = self.unreported(epoch) {
            first |= failure.report();
        }
        first
    }

    #[inline]
    fn find(&self, wanted: impl Fn(&Range) -> bool) -> Option<Arc<Failure>> {
        if !Failure::any() {
            return None;
        }
        let ranges = self.0.lock();
        let mut found = ranges.iter().filter(|range| wanted(range));
        found.next().map(|range| Arc::clone(&range.why))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_of_its_commands_alone_and_reported_once() {
        let failures = Failures::new();
        let (one, other) = (Failure::new(), Failure::new());
        failures.add(3, 4, &one);
        failures.add(4, 7, &one);
        failures.add(9, 10, &other);
        let failed: Vec<u64> = (0..12).filter(|at| failures.of(*at).is_some()).collect();
        assert_eq!(failed, [4, 5, 6, 7, 10]);
        assert_eq!(failures.0.lock().len(), 2);
        assert!(failures.unreported(3).is_none());
        assert!(Arc::ptr_eq(&failures.unreported(12).unwrap(), &one));
        assert!(one.report() && !one.report());
        assert!(failures.unreported(9).is_none());
        assert!(Arc::ptr_eq(&failures.unreported(10).unwrap(), &other));
        assert!(failures.of(5).is_some(), "a reported failure stays one");
    }
}

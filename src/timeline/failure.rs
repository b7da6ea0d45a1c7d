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

use super::Clock;
use crate::sync::{AtomicBool, Ordering};
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

/// Failed commands of one lane: those after one epoch up to another.
#[derive(Debug)]
pub(super) struct Range {
    after: u64,
    upto: u64,
    why: Arc<Failure>,
}

impl Clock {
    /// Records that the commands after one epoch up to another failed: before the clock is raised past
    /// them, so that nobody takes them for complete and right.
    pub fn fail(&self, after: u64, upto: u64, why: &Arc<Failure>) {
        debug_assert!(after < upto, "an empty range of failures");
        let mut ranges = self.failures.lock();
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

    /// Why the command with this epoch failed, if it is known to have.
    #[inline]
    pub fn failure(&self, epoch: u64) -> Option<Arc<Failure>> {
        self.find_failure(|range| range.after < epoch && epoch <= range.upto)
    }

    /// The first failure of a command up to this epoch that no wait has reported.
    pub fn unreported(&self, epoch: u64) -> Option<Arc<Failure>> {
        self.find_failure(|range| range.after < epoch && !range.why.is_reported())
    }

    /// Reports all failures of commands up to this epoch. Whether any had not been.
    pub fn report(&self, epoch: u64) -> bool {
        let mut first = false;
        while let Some(failure) = self.unreported(epoch) {
            first |= failure.report();
        }
        first
    }

    #[inline]
    fn find_failure(&self, wanted: impl Fn(&Range) -> bool) -> Option<Arc<Failure>> {
        if !Failure::any() {
            return None;
        }
        let ranges = self.failures.lock();
        let mut found = ranges.iter().filter(|range| wanted(range));
        found.next().map(|range| Arc::clone(&range.why))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_of_its_commands_alone_and_reported_once() {
        let clock = Clock::new();
        let (one, other) = (Failure::new(), Failure::new());
        clock.fail(3, 4, &one);
        clock.fail(4, 7, &one);
        clock.fail(9, 10, &other);
        let failed: Vec<u64> = (0..12).filter(|at| clock.failure(*at).is_some()).collect();
        assert_eq!(failed, [4, 5, 6, 7, 10]);
        assert_eq!(clock.failures.lock().len(), 2);
        assert!(clock.unreported(3).is_none());
        assert!(Arc::ptr_eq(&clock.unreported(12).unwrap(), &one));
        assert!(one.report() && !one.report());
        assert!(clock.unreported(9).is_none());
        assert!(Arc::ptr_eq(&clock.unreported(10).unwrap(), &other));
        assert!(clock.failure(5).is_some(), "a reported failure stays one");
    }
}

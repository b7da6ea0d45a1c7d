//! The words of a lane that threads read without its lock.
//!
//! All are written under the lane's lock, so writers never race. `loom_tests` models the readers.
//!
//! | word | a reader without the lock | why that is right |
//! |---|---|---|
//! | tip | a free: stamps the block with it | the caller orders the free after the commands that use the block, so it reads their tip or a later one |
//! | last | an observer: queries the stream, and then takes so many commands for complete | `Acquire` pairs with the `Release` after the submission |
//! | open, foreign submitters | a free or an observer takes the long way | as for the tip |
//! | stopped | a native command: is not called | a hint; the submission checks it again under the lock |
//! | retired | a query of an adopted stream: is left out | its last marker is recorded before |
//! | parked | [`Lanes`](super::lanes::Lanes): moves the lane | a change is followed by a turn of the sets' lock |
//! | markers | the end of an event: releases them | a hint; the lock is taken for the release itself |

use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::timeline::Clock;

/// No epoch: the lane has waited for another lane since its last command.
const JOINED: u64 = u64::MAX;

/// Fields that every command reads come first.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct LaneStatus {
    /// Whether the native handle was given out: foreign code may submit from then on.
    native_shared: AtomicBool,
    /// Whether an in-order lane has a failure that no wait has reported.
    stopped: AtomicBool,
    /// Whether any marker is kept: releasing events need no lock otherwise.
    has_markers: AtomicBool,
    /// Whether the lane is parked: see [`Lanes`](super::lanes::Lanes).
    parked: AtomicBool,
    /// The epoch of the last command while it alone proves the lane's end, else [`JOINED`].
    tip: AtomicU64,
    /// Epoch of the last command.
    last: AtomicU64,
    /// Whether the program has released the queue. An adopted stream may end with it.
    retired: AtomicBool,
    /// Number of native commands that may submit to the stream now.
    foreign_submitters: AtomicUsize,
}

impl LaneStatus {
    pub fn new() -> Self {
        Self {
            native_shared: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            has_markers: AtomicBool::new(false),
            parked: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            tip: AtomicU64::new(0),
            last: AtomicU64::new(0),
            foreign_submitters: AtomicUsize::new(0),
        }
    }

    /// Publishes the last command. `alone`: it proves the lane's end by itself.
    #[inline(always)]
    pub fn publish(&self, last: u64, alone: bool) {
        debug_assert!(last < JOINED, "an epoch that stands for none");
        debug_assert!(
            last >= self.last.load(Ordering::Relaxed),
            "epochs only rise"
        );
        let tip = if alone { last } else { JOINED };
        self.tip.store(tip, Ordering::Relaxed);
        // Released after the submission that it counts.
        self.last.store(last, Ordering::Release);
    }

    /// The epoch after which a block is free that only commands known to the caller use. None if
    /// that takes more than an epoch.
    #[inline(always)]
    pub fn tip(&self) -> Option<u64> {
        let epoch = self.tip.load(Ordering::Relaxed);
        (epoch != JOINED && !self.is_open()).then_some(epoch)
    }

    /// Epoch of the last command. Exact while the caller prevents submissions.
    #[inline]
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// An epoch up to which the driver has received all commands before this call.
    pub fn submitted(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Stops the lane: a command is recorded as failed on its clock.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether the lane has a failure that no wait has reported.
    #[inline]
    pub fn is_stopped(&self, clock: &Clock) -> bool {
        self.stopped.load(Ordering::Relaxed) && has_unreported(clock)
    }

    /// As [`LaneStatus::is_stopped`]; once all is reported, later calls are short again. Called
    /// under the lane's lock: a failure recorded meanwhile would be forgotten.
    #[cold]
    pub fn update_stopped(&self, clock: &Clock) -> bool {
        let stopped = self.is_stopped(clock);
        self.stopped.store(stopped, Ordering::Relaxed);
        stopped
    }

    #[inline]
    pub fn has_markers(&self) -> bool {
        self.has_markers.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn set_has_markers(&self, any: bool) {
        self.has_markers.store(any, Ordering::Relaxed);
    }

    #[inline]
    pub fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Relaxed)
    }

    pub fn set_parked(&self, parked: bool) {
        self.parked.store(parked, Ordering::Relaxed);
    }

    /// Records that the native handle was given out, for good.
    pub fn share_native(&self) {
        self.native_shared.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub fn is_native_shared(&self) -> bool {
        self.native_shared.load(Ordering::Relaxed)
    }

    /// Records that the program has released the queue.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    pub fn lease(&self) {
        self.foreign_submitters.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a lease. Whether the lane is open no longer.
    pub fn end_lease(&self) -> bool {
        // Released after a handle that was given out meanwhile: see `is_open`.
        let leases = self.foreign_submitters.fetch_sub(1, Ordering::Release);
        debug_assert!(leases > 0, "a lease ends that did not begin");
        !self.is_open()
    }

    #[inline]
    pub fn is_leased(&self) -> bool {
        self.foreign_submitters.load(Ordering::Acquire) > 0
    }

    /// Whether foreign code may submit to the stream.
    #[inline]
    pub fn is_open(&self) -> bool {
        // In this order: a thread that sees a lease end sees the handle given out under it.
        self.is_leased() || self.is_native_shared()
    }
}

#[cold]
fn has_unreported(clock: &Clock) -> bool {
    clock.unreported(u64::MAX).is_some()
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::stream::lane::lanes::{Lanes, Parkable};
    use crate::sync::Mutex;
    use crate::timeline::{LaneId, Point};
    use loom::thread;
    use std::sync::Arc;

    /// A free that is ordered after a command never stamps a block with an earlier one.
    #[test]
    fn loom_a_free_reads_the_tip_of_the_commands_before_it() {
        loom::model(|| {
            let status = Arc::new(LaneStatus::new());
            let published = Arc::new(AtomicU64::new(0));
            let submitter = {
                let (status, published) = (Arc::clone(&status), Arc::clone(&published));
                thread::spawn(move || {
                    status.publish(1, true);
                    published.store(1, Ordering::Release);
                    // A wait for another lane, then a command that proves it.
                    status.publish(1, false);
                    status.publish(2, true);
                    published.store(2, Ordering::Release);
                })
            };
            let known = published.load(Ordering::Acquire);
            assert!(status.tip().is_none_or(|tip| tip >= known && tip <= 2));
            assert!(status.last() >= known);
            submitter.join().unwrap();
            assert_eq!(status.tip(), Some(2));
        });
    }

    /// A lane whose native handle is given out during a lease is open from then on, at any time.
    #[test]
    fn loom_a_lane_shared_during_a_lease_stays_open() {
        loom::model(|| {
            let status = Arc::new(LaneStatus::new());
            let published = Arc::new(AtomicBool::new(false));
            let native = {
                let (status, published) = (Arc::clone(&status), Arc::clone(&published));
                thread::spawn(move || {
                    status.lease();
                    published.store(true, Ordering::Release);
                    status.share_native();
                    assert!(!status.end_lease(), "the handle is out");
                })
            };
            if published.load(Ordering::Acquire) {
                assert!(status.is_open() && status.tip().is_none());
            }
            native.join().unwrap();
            assert!(status.is_open() && !status.is_leased());
        });
    }

    /// An observer that finds the stream idle takes no command for complete that the driver had not
    /// received.
    #[test]
    fn loom_an_observer_sees_the_submission_of_what_it_counts() {
        loom::model(|| {
            let status = Arc::new(LaneStatus::new());
            let (clock, received) = (Clock::new(), Arc::new(AtomicU64::new(0)));
            let observer = {
                let (status, clock) = (Arc::clone(&status), Arc::clone(&clock));
                let received = Arc::clone(&received);
                thread::spawn(move || {
                    let last = status.submitted();
                    // The stream is idle: whatever it has received is done.
                    assert!(received.load(Ordering::Relaxed) >= last);
                    clock.raise(last);
                })
            };
            for epoch in 1..=2 {
                received.store(epoch, Ordering::Relaxed);
                status.publish(epoch, true);
            }
            observer.join().unwrap();
            assert!(clock.completed() <= 2);
        });
    }

    /// A failure that is recorded while another thread asks about an earlier one, which was just
    /// reported, still stops the lane.
    #[test]
    fn loom_a_new_failure_stops_the_lane_again() {
        loom::model(|| {
            let lane = Arc::new((LaneStatus::new(), Clock::new(), Mutex::<_>::new(())));
            lane.1.fail(0, 1, &crate::timeline::Failure::new());
            lane.0.stop();
            let failing = {
                let lane = Arc::clone(&lane);
                thread::spawn(move || {
                    let (status, clock, lock) = &*lane;
                    let _locked = lock.lock();
                    clock.fail(1, 2, &crate::timeline::Failure::new());
                    status.stop();
                    clock.raise(2);
                })
            };
            let (status, clock, lock) = &*lane;
            clock.report(1);
            // As a native command asks, without the lock, and as the next command does.
            status.is_stopped(clock);
            {
                let _locked = lock.lock();
                status.update_stopped(clock);
            }
            failing.join().unwrap();
            assert!(status.is_stopped(clock), "the second failure is forgotten");
        });
    }

    /// A lane with a pending command is among the busy ones, whoever parked it meanwhile.
    #[test]
    fn loom_a_command_wakes_a_lane_that_is_being_parked() {
        struct Model {
            clock: Arc<Clock>,
            status: LaneStatus,
            lock: Mutex<()>,
        }

        impl Parkable for Model {
            fn id(&self) -> LaneId {
                self.clock.id()
            }

            fn park(&self) -> bool {
                let _locked = self.lock.lock();
                let idle = self.status.last() <= self.clock.completed();
                if idle {
                    self.status.set_parked(true);
                }
                idle
            }

            fn is_parked(&self) -> bool {
                self.status.is_parked()
            }
        }

        loom::model(|| {
            let (clock, lanes) = (Clock::new(), Arc::new(Lanes::<Model>::default()));
            let lane = Arc::new(Model {
                clock: Arc::clone(&clock),
                status: LaneStatus::new(),
                lock: Mutex::new(()),
            });
            lanes.add(&lane);
            let parking = {
                let (lanes, lane) = (Arc::clone(&lanes), Arc::clone(&lane));
                thread::spawn(move || lanes.park(&[lane]))
            };
            {
                let _locked = lane.lock.lock();
                if lane.status.is_parked() {
                    lane.status.set_parked(false);
                    lanes.wake(lane.id());
                }
                lane.status.publish(1, true);
            }
            parking.join().unwrap();
            assert!(!Point::new(&clock, 1).is_done());
            assert_eq!(lanes.busy().len(), 1, "a pending command on a parked lane");
        });
    }
}

//! Which of several places for a request to leave to others.
//!
//! Best fit alone holds more memory than it must in programs of several queues: it spends what other
//! queues could have used too, and they grow while what only this one could use lies idle. Reads what
//! `lending` knows of the lanes; decides nothing of what is legal.

use super::lending::{Borrower, Borrowers};
use super::offsets::Place;
use super::store::Store;
use crate::timeline::{Frontier, LaneId};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The other lanes, and how far each reached when it last asked. What few can use is used first, so
/// that others need not grow for want of what this request could have left to them.
#[derive(Default)]
pub(crate) struct Others<'a> {
    all: Option<&'a Borrowers>,
    but: Option<LaneId>,
    /// How far they reach on each lane that was looked at, ascending.
    epochs: RefCell<BTreeMap<LaneId, Vec<u64>>>,
}

impl<'a> Others<'a> {
    pub fn new(all: &'a Borrowers, but: LaneId) -> Self {
        Self {
            all: Some(all),
            but: Some(but),
            ..Self::default()
        }
    }

    /// Whether there is anybody.
    fn any(&self) -> bool {
        self.all.is_some_and(|all| all.len() > 1)
    }

    fn each(&self) -> impl Iterator<Item = &Borrower> {
        let others = self.all.into_iter().flat_map(Borrowers::iter);
        others.filter(|other| Some(other.stash.lane()) != self.but)
    }

    /// How many of them come after a death.
    pub fn after(&self, death: &Frontier) -> u64 {
        if !self.any() {
            return 0;
        }
        let Some(point) = death.single() else {
            return self.each().filter(|other| other.is_after(death)).count() as u64;
        };
        let mut lanes = self.epochs.borrow_mut();
        let epochs = lanes.entry(point.lane()).or_insert_with(|| {
            let reach = |other: &Borrower| other.reaches(point.lane());
            let mut epochs: Vec<u64> = self.each().filter_map(reach).collect();
            epochs.sort_unstable();
            epochs
        });
        (epochs.len() - epochs.partition_point(|epoch| *epoch < point.epoch)) as u64
    }

    /// What they lose with `bytes` at `place`: bytes, once for each that could have used them.
    pub fn loss(&self, store: &Store, place: Place, bytes: u64) -> u64 {
        if !self.any() {
            return 0;
        }
        let end = place.start + bytes;
        let segs = store.offsets.segs_from(place.first).map(|(_, seg)| seg);
        let taken = segs.take_while(|seg| seg.addr < end);
        taken.fold(0, |loss, seg| {
            let bytes = seg.end().min(end) - seg.addr.max(place.start);
            let after = seg.death().map_or(0, |death| self.after(death));
            loss.saturating_add(bytes.saturating_mul(after))
        })
    }
}

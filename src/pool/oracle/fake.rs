//! A source of addresses that stand for nothing, with a ledger and faults on demand.

use crate::pool::{Slab, Source, SourceError};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct Ledger {
    next: u64,
    out: BTreeMap<u64, u64>,
    calls: u64,
    fault: Option<(u64, SourceError)>,
    /// Bytes it has in all.
    capacity: Option<u64>,
    wrong: Vec<String>,
}

/// Gives each address range once and never again, so that a stale address stays recognisable.
#[derive(Debug)]
pub struct FakeSource {
    granularity: u64,
    /// Added to every base: a source that breaks its promise of alignment.
    skew: u64,
    ledger: Mutex<Ledger>,
}

impl FakeSource {
    pub fn new(granularity: u64) -> Self {
        Self::skewed(granularity, 0)
    }

    pub fn skewed(granularity: u64, skew: u64) -> Self {
        Self {
            granularity,
            skew,
            ledger: Mutex::new(Ledger {
                next: 1 << 32,
                ..Ledger::default()
            }),
        }
    }

    /// The `nth` acquisition from now, counted from 0, fails.
    pub fn fail_at(&self, nth: u64, error: SourceError) {
        let mut ledger = self.ledger();
        ledger.fault = Some((ledger.calls + nth, error));
    }

    /// All memory there is, in bytes.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.ledger().capacity = bytes;
    }

    /// Acquisitions asked for, failed ones included.
    pub fn calls(&self) -> u64 {
        self.ledger().calls
    }

    /// Slabs that are out, ascending by address.
    pub fn slabs(&self) -> Vec<Slab> {
        let ledger = self.ledger();
        ledger
            .out
            .iter()
            .map(|(base, bytes)| Slab {
                base: *base,
                bytes: *bytes,
            })
            .collect()
    }

    pub fn bytes_out(&self) -> u64 {
        self.ledger().out.values().sum()
    }

    /// What the pool did that no source allows.
    pub fn wrong(&self) -> Vec<String> {
        self.ledger().wrong.clone()
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for FakeSource {
    fn acquire(&self, bytes: u64) -> Result<Slab, SourceError> {
        let mut ledger = self.ledger();
        let call = ledger.calls;
        ledger.calls += 1;
        if let Some((_, error)) = ledger.fault.filter(|(nth, _)| *nth == call) {
            return Err(error);
        }
        let out: u64 = ledger.out.values().sum();
        let room = ledger.capacity.unwrap_or(1 << 60).saturating_sub(out);
        if bytes > room {
            return Err(SourceError::OutOfMemory);
        }
        let unit = self.granularity.max(4096);
        let start = ledger
            .next
            .checked_next_multiple_of(unit)
            .ok_or(SourceError::OutOfMemory)?;
        let base = start
            .checked_add(self.skew)
            .ok_or(SourceError::OutOfMemory)?;
        // A gap, so that slabs never touch.
        ledger.next = base
            .checked_add(bytes + unit)
            .ok_or(SourceError::OutOfMemory)?;
        ledger.out.insert(base, bytes);
        Ok(Slab { base, bytes })
    }

    fn release(&self, slab: Slab) {
        let mut ledger = self.ledger();
        if ledger.out.remove(&slab.base) != Some(slab.bytes) {
            ledger
                .wrong
                .push(format!("{slab:?} given back, but it is not out"));
        }
    }

    fn granularity(&self) -> u64 {
        self.granularity
    }
}

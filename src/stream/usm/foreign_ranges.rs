//! Memory that a context knows although no pool of it has it: memory opened from another process,
//! exportable memory, and registered memory of the host.

use crate::abi::UR_RESULT_ERROR_INVALID_VALUE;
use crate::object::{Error, Object, Result};
use crate::stream::{Driver, Kind};
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Why a context knows a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeOwner {
    /// Memory of the host's, registered by the caller.
    Registered,
    /// Memory that the backend allocated or opened.
    Backend,
}

/// A range of memory: its bytes, and what queries of an address in it answer.
pub(crate) struct ForeignRange<D: Driver> {
    pub bytes: usize,
    pub kind: Kind,
    pub device: Option<Arc<Object<D::Device>>>,
    pub owner: RangeOwner,
}

pub(crate) struct ForeignRanges<D: Driver> {
    count: AtomicUsize,
    ranges: Mutex<BTreeMap<usize, ForeignRange<D>>>,
}

impl<D: Driver> Default for ForeignRanges<D> {
    fn default() -> Self {
        Self {
            count: AtomicUsize::new(0),
            ranges: Mutex::default(),
        }
    }
}

impl<D: Driver> ForeignRanges<D> {
    /// `INVALID_VALUE` if a known range overlaps, or the range ends beyond the last address.
    pub fn add(&self, start: usize, range: ForeignRange<D>) -> Result<()> {
        let invalid = Error::new(UR_RESULT_ERROR_INVALID_VALUE);
        let end = start.checked_add(range.bytes).ok_or(invalid)?;
        let mut ranges = self.ranges.lock();
        let before = ranges.range(..end).next_back();
        if before.is_some_and(|(other, range)| other + range.bytes > start) {
            return Err(invalid);
        }
        ranges.insert(start, range);
        self.count.store(ranges.len(), Ordering::Release);
        Ok(())
    }

    /// `INVALID_VALUE` if no range of this owner starts there.
    pub fn remove(&self, start: usize, owner: RangeOwner) -> Result<()> {
        let mut ranges = self.ranges.lock();
        match ranges.get(&start) {
            Some(range) if range.owner == owner => ranges.remove(&start),
            _ => return Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE)),
        };
        self.count.store(ranges.len(), Ordering::Release);
        Ok(())
    }

    /// Calls `look` with the range around an address, and with its start.
    pub fn find<R>(
        &self,
        addr: usize,
        look: impl FnOnce(usize, &ForeignRange<D>) -> R,
    ) -> Option<R> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let ranges = self.ranges.lock();
        let (start, range) = ranges.range(..=addr).next_back()?;
        (addr - start < range.bytes).then(|| look(*start, range))
    }

    /// Forgets the ranges of one owner. Returns where they start.
    pub fn take(&self, owner: RangeOwner) -> Vec<usize> {
        let mut ranges = self.ranges.lock();
        let taken = ranges.extract_if(.., |_, range| range.owner == owner);
        let taken = taken.map(|(start, _)| start).collect();
        self.count.store(ranges.len(), Ordering::Release);
        taken
    }
}

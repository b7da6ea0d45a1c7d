//! Address ranges of `urVirtualMem*`: their bounds, their mappings and the access to each. Adapters
//! implement reserving, mapping and protecting.

use crate::abi::*;
use crate::object::{Error, Result, ensure};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The reserved ranges of a context.
///
/// Adapters change a range under the lock, so that the record matches the range.
pub struct Ranges<R, M> {
    ranges: Mutex<BTreeMap<usize, Range<R, M>>>,
}

struct Range<R, M> {
    bytes: usize,
    of: R,
    /// Mappings by their start.
    maps: BTreeMap<usize, Map<M>>,
}

struct Map<M> {
    bytes: usize,
    access: ur_virtual_mem_access_flags_t,
    what: M,
}

const INVALID: ur_result_t = UR_RESULT_ERROR_INVALID_VALUE;

impl<R, M> Default for Ranges<R, M> {
    fn default() -> Self {
        Self {
            ranges: Mutex::default(),
        }
    }
}

impl<R, M> Ranges<R, M> {
    /// Records a reserved range.
    pub fn reserved(&self, start: usize, bytes: usize, of: R) {
        let maps = BTreeMap::new();
        self.lock().insert(start, Range { bytes, of, maps });
    }

    /// Removes a range that has exactly these bounds and no mappings. The caller then frees the
    /// addresses.
    ///
    /// `INVALID_VALUE` for other bounds, or if something is mapped.
    pub fn freed(&self, start: usize, bytes: usize) -> Result<R> {
        let mut ranges = self.lock();
        let whole = ranges
            .get(&start)
            .is_some_and(|range| range.bytes == bytes && range.maps.is_empty());
        ensure(whole, INVALID)?;
        let range = ranges.remove(&start).ok_or(Error::new(INVALID))?;
        Ok(range.of)
    }

    /// Maps addresses of a reserved range by `make`. `INVALID_VALUE` if some are mapped or not
    /// reserved.
    pub fn map(
        &self,
        start: usize,
        bytes: usize,
        access: ur_virtual_mem_access_flags_t,
        make: impl FnOnce() -> Result<M>,
    ) -> Result<()> {
        let mut ranges = self.lock();
        let range = Self::find(&mut ranges, start, bytes)?;
        let below = range.maps.range(..start + bytes).next_back();
        let free = below.is_none_or(|(&at, map)| at + map.bytes <= start);
        ensure(free, INVALID)?;
        let what = make()?;
        range.maps.insert(
            start,
            Map {
                bytes,
                access,
                what,
            },
        );
        Ok(())
    }

    /// Unmaps by `undo` the mappings that together have exactly these addresses, up to the first
    /// that fails.
    ///
    /// `INVALID_VALUE` if the addresses cut a mapping or are not mapped.
    pub fn unmap(
        &self,
        start: usize,
        bytes: usize,
        mut undo: impl FnMut(&R, usize, usize, &M) -> Result<()>,
    ) -> Result<()> {
        let mut ranges = self.lock();
        let range = Self::find(&mut ranges, start, bytes)?;
        for at in range.pieces(start, bytes)? {
            if let Some(map) = range.maps.get(&at) {
                undo(&range.of, at, map.bytes, &map.what)?;
                range.maps.remove(&at);
            }
        }
        Ok(())
    }

    /// Changes the access by `protect` of the mappings that together have exactly these addresses,
    /// up to the first that fails.
    ///
    /// `INVALID_VALUE` if the addresses cut a mapping or are not mapped.
    pub fn set_access(
        &self,
        start: usize,
        bytes: usize,
        access: ur_virtual_mem_access_flags_t,
        mut protect: impl FnMut(usize, usize, &M) -> Result<()>,
    ) -> Result<()> {
        let mut ranges = self.lock();
        let range = Self::find(&mut ranges, start, bytes)?;
        for at in range.pieces(start, bytes)? {
            if let Some(map) = range.maps.get_mut(&at) {
                protect(at, map.bytes, &map.what)?;
                map.access = access;
            }
        }
        Ok(())
    }

    /// The access to the start of a range; none if it is not mapped. `INVALID_VALUE` if it is not
    /// reserved.
    pub fn access(&self, start: usize, bytes: usize) -> Result<ur_virtual_mem_access_flags_t> {
        let mut ranges = self.lock();
        let range = Self::find(&mut ranges, start, bytes)?;
        let below = range.maps.range(..=start).next_back();
        let map = below.filter(|&(&at, map)| start < at + map.bytes);
        Ok(map.map_or(UR_VIRTUAL_MEM_ACCESS_FLAG_NONE, |(_, map)| map.access))
    }

    /// Removes all ranges: calls `unmap` for each mapping, then `free` for its range.
    pub fn clear(&mut self, unmap: impl Fn(&R, usize, usize, &M), free: impl Fn(&R, usize, usize)) {
        for (start, range) in std::mem::take(&mut *self.lock()) {
            for (&at, map) in &range.maps {
                unmap(&range.of, at, map.bytes, &map.what);
            }
            free(&range.of, start, range.bytes);
        }
    }

    /// The range that contains all of these addresses.
    fn find(
        ranges: &mut BTreeMap<usize, Range<R, M>>,
        start: usize,
        bytes: usize,
    ) -> Result<&mut Range<R, M>> {
        let invalid = Error::new(INVALID);
        let (&at, range) = ranges.range_mut(..=start).next_back().ok_or(invalid)?;
        let end = start.checked_add(bytes).ok_or(invalid)?;
        let inside = bytes > 0 && end <= at + range.bytes;
        if inside { Ok(range) } else { Err(invalid) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Range<R, M>>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R, M> Range<R, M> {
    /// The starts of the mappings that together have exactly these addresses.
    fn pieces(&self, start: usize, bytes: usize) -> Result<Vec<usize>> {
        let (mut pieces, mut next) = (Vec::new(), start);
        while next < start + bytes {
            let map = self.maps.get(&next).ok_or(Error::new(INVALID))?;
            pieces.push(next);
            next += map.bytes;
        }
        ensure(next == start + bytes, INVALID)?;
        Ok(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const READ: ur_virtual_mem_access_flags_t = UR_VIRTUAL_MEM_ACCESS_FLAG_READ_ONLY;
    const NONE: ur_virtual_mem_access_flags_t = UR_VIRTUAL_MEM_ACCESS_FLAG_NONE;

    fn two_maps() -> Result<Ranges<&'static str, u8>> {
        let ranges = Ranges::default();
        ranges.reserved(0x1000, 0x4000, "range");
        ranges.map(0x1000, 0x1000, READ, || Ok(1))?;
        ranges.map(0x2000, 0x2000, READ, || Ok(2))?;
        Ok(ranges)
    }

    #[test]
    fn nothing_is_mapped_twice_or_outside() -> Result<()> {
        let ranges = two_maps()?;
        let never = || unreachable!("mapped where it may not be");
        for (start, bytes) in [
            (0x1000, 0x1000),
            (0x3000, 0x1000),
            (0x3000, 0x2000),
            (0x4000, 0x2000),
            (0x0, 0x1000),
            (0x4000, 0),
            (0x4000, usize::MAX),
        ] {
            assert!(
                ranges.map(start, bytes, READ, never).is_err(),
                "{start:#x} {bytes:#x}"
            );
        }
        let failed = ranges.map(0x4000, 0x1000, READ, || Err(Error::unsupported()));
        assert_eq!(failed, Err(Error::unsupported()));
        assert_eq!(ranges.access(0x4000, 0x1000), Ok(NONE));
        Ok(())
    }

    #[test]
    fn whole_mappings_change_up_to_the_first_failure() -> Result<()> {
        let ranges = two_maps()?;
        let seen = RefCell::new(Vec::new());
        let note = |at, bytes, what: &u8| {
            seen.borrow_mut().push((at, bytes, *what));
            ensure(*what == 1, UR_RESULT_ERROR_DEVICE_LOST)
        };
        assert!(ranges.set_access(0x1000, 0x2000, NONE, note).is_err());
        assert!(seen.borrow().is_empty(), "half a map was changed");
        assert!(ranges.set_access(0x1000, 0x3000, NONE, note).is_err());
        assert_eq!(*seen.borrow(), [(0x1000, 0x1000, 1), (0x2000, 0x2000, 2)]);
        assert_eq!(ranges.access(0x1000, 1), Ok(NONE));
        assert_eq!(ranges.access(0x2000, 1), Ok(READ));
        Ok(())
    }

    #[test]
    fn a_range_without_mappings_can_be_freed() -> Result<()> {
        let ranges = two_maps()?;
        assert!(ranges.freed(0x1000, 0x4000).is_err());
        let undo = |of: &&str, _, _, _: &u8| ensure(*of == "range", INVALID);
        ranges.unmap(0x1000, 0x3000, undo)?;
        assert!(ranges.unmap(0x1000, 0x1000, undo).is_err());
        assert!(ranges.freed(0x1000, 0x1000).is_err());
        assert_eq!(ranges.freed(0x1000, 0x4000), Ok("range"));
        assert!(ranges.freed(0x1000, 0x4000).is_err());
        Ok(())
    }

    #[test]
    fn clear_unmaps_and_frees_once() -> Result<()> {
        let mut ranges = two_maps()?;
        let left = RefCell::new(Vec::new());
        for _ in 0..2 {
            ranges.clear(
                |_, at, _, what| left.borrow_mut().push((at, *what)),
                |_, start, _| left.borrow_mut().push((start, 0)),
            );
        }
        assert_eq!(left.into_inner(), [(0x1000, 1), (0x2000, 2), (0x1000, 0)]);
        Ok(())
    }
}

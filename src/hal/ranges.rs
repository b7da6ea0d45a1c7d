//! Address ranges as a caller arranges them with `urVirtualMem*`: which there are, what is mapped
//! where and with what access. What reserving, mapping and protecting are is the adapter's affair.

use crate::abi::*;
use crate::object::{Error, Result, ensure};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Adapters change a range under the lock, so the record matches the range.
pub struct Ranges<R, M> {
    ranges: Mutex<BTreeMap<usize, Range<R, M>>>,
}

struct Range<R, M> {
    bytes: usize,
    of: R,
    /// By its start.
    maps: BTreeMap<usize, Map<M>>,
}

struct Map<M> {
    bytes: usize,
    access: ur_virtual_mem_access_flags_t,
    what: M,
}

const WRONG: ur_result_t = UR_RESULT_ERROR_INVALID_VALUE;

impl<R, M> Default for Ranges<R, M> {
    fn default() -> Self {
        Self {
            ranges: Mutex::default(),
        }
    }
}

impl<R, M> Ranges<R, M> {
    /// Addresses that have just been reserved.
    pub fn reserved(&self, start: usize, bytes: usize, of: R) {
        let maps = BTreeMap::new();
        self.lock().insert(start, Range { bytes, of, maps });
    }

    /// Gives a range up if it is exactly that and nothing is mapped in it; the caller gives the
    /// addresses back.
    pub fn freed(&self, start: usize, bytes: usize) -> Result<R> {
        let mut ranges = self.lock();
        let whole = ranges
            .get(&start)
            .is_some_and(|range| range.bytes == bytes && range.maps.is_empty());
        ensure(whole, WRONG)?;
        let range = ranges.remove(&start).ok_or(Error::new(WRONG))?;
        Ok(range.of)
    }

    /// Maps by `make` where nothing is mapped yet.
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
        ensure(free, WRONG)?;
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

    /// Unmaps by `undo` each map of those that together are exactly these addresses; the first that
    /// fails is the last tried.
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

    /// Changes access by `protect`, as [`Ranges::unmap`] unmaps.
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

    /// The access to a range, by its start: none where nothing is mapped.
    pub fn access(&self, start: usize, bytes: usize) -> Result<ur_virtual_mem_access_flags_t> {
        let mut ranges = self.lock();
        let range = Self::find(&mut ranges, start, bytes)?;
        let below = range.maps.range(..=start).next_back();
        let map = below.filter(|&(&at, map)| start < at + map.bytes);
        Ok(map.map_or(UR_VIRTUAL_MEM_ACCESS_FLAG_NONE, |(_, map)| map.access))
    }

    /// Takes everything apart: what is mapped by `unmap`, then its range by `free`.
    pub fn clear(&mut self, unmap: impl Fn(&R, usize, usize, &M), free: impl Fn(&R, usize, usize)) {
        for (start, range) in std::mem::take(&mut *self.lock()) {
            for (&at, map) in &range.maps {
                unmap(&range.of, at, map.bytes, &map.what);
            }
            free(&range.of, start, range.bytes);
        }
    }

    /// The range that all of these addresses lie in.
    fn find(
        ranges: &mut BTreeMap<usize, Range<R, M>>,
        start: usize,
        bytes: usize,
    ) -> Result<&mut Range<R, M>> {
        let wrong = Error::new(WRONG);
        let (&at, range) = ranges.range_mut(..=start).next_back().ok_or(wrong)?;
        let end = start.checked_add(bytes).ok_or(wrong)?;
        let inside = bytes > 0 && end <= at + range.bytes;
        if inside { Ok(range) } else { Err(wrong) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Range<R, M>>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R, M> Range<R, M> {
    /// The maps that together are exactly these addresses.
    fn pieces(&self, start: usize, bytes: usize) -> Result<Vec<usize>> {
        let (mut pieces, mut next) = (Vec::new(), start);
        while next < start + bytes {
            let map = self.maps.get(&next).ok_or(Error::new(WRONG))?;
            pieces.push(next);
            next += map.bytes;
        }
        ensure(next == start + bytes, WRONG)?;
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
    fn maps_change_as_wholes_up_to_the_first_that_fails() -> Result<()> {
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
    fn a_range_goes_when_nothing_is_mapped_in_it() -> Result<()> {
        let ranges = two_maps()?;
        assert!(ranges.freed(0x1000, 0x4000).is_err());
        let undo = |of: &&str, _, _, _: &u8| ensure(*of == "range", WRONG);
        ranges.unmap(0x1000, 0x3000, undo)?;
        assert!(ranges.unmap(0x1000, 0x1000, undo).is_err());
        assert!(ranges.freed(0x1000, 0x1000).is_err());
        assert_eq!(ranges.freed(0x1000, 0x4000), Ok("range"));
        assert!(ranges.freed(0x1000, 0x4000).is_err());
        Ok(())
    }

    #[test]
    fn what_is_left_is_taken_apart_once() -> Result<()> {
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

//! How sizes are rounded up, so that blocks of like sizes serve each other's requests, and the classes of sizes.

use crate::pool::options::Options;

/// More than there are classes of sizes.
pub(crate) const SIZE_CLASSES: usize = 512;

/// The class of a size: eight for each power of two, by the three bits behind the highest.
pub(crate) fn size_class(bytes: u64) -> usize {
    let below = (bytes | 8).ilog2() - 3;
    8 * below as usize + (bytes >> below) as usize
}

/// The steps in which sizes are rounded up: multiples of `min_align`, and for larger sizes 1/128 of the power of two
/// below them, at most `max_step`. That is under 1/8 from 8 `min_align` on (below, `min_align` is the unit of all
/// sizes), and keeps slivers too small to serve anything from forming behind large blocks. Both are in bytes, and
/// powers of two; a `max_step` of 0 leaves `min_align` as the step of all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounding {
    pub min_align: u64,
    pub max_step: u64,
}

impl Rounding {
    /// The rounding of a pool whose blocks have this alignment. A largest step that is no power of two counts as the
    /// one below it.
    pub fn new(min_align: u64, options: &Options) -> Self {
        let step = options.rounding_kib << 10;
        Self {
            min_align,
            max_step: step.checked_ilog2().map_or(0, |log| 1 << log),
        }
    }

    /// A size as rounded; none for 0 and for sizes that no multiple holds.
    #[inline(always)]
    pub fn apply(self, bytes: u64) -> Option<u64> {
        let below = bytes.checked_ilog2()?;
        let step = ((1 << below) / 128).min(self.max_step).max(self.min_align);
        // A power of two: no division on the way of every allocation.
        Some(bytes.checked_add(step - 1)? & !(step - 1))
    }
}

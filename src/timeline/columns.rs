//! Columns of epochs, and the larger of each pair of two: what a wait for another lane's frontier is.
//!
//! An epoch stands in 16 bits, as how far it lies from a middle that those who join columns share, and
//! signed: of such every x86-64 takes the larger of eight pairs in one instruction. So as many lanes as
//! mostly know of each other lie in place, and cost the same however many of them there are.

/// What a column says of a lane of which it says nothing: less than anything else.
pub const NOTHING: i16 = i16::MIN;

/// The lanes that lie in place, and those of each block beyond.
const LANES: usize = 64;

/// How far an epoch may lie from its middle.
const REACH: u64 = i16::MAX as u64;

/// How far below an epoch the least lies that is told over a middle set for it: some that wait know
/// less than the newest.
const BEFORE: u64 = REACH / 2;

/// Middles lie apart by multiples of this, so that those of columns made apart are often the same.
const STEP: u64 = 1 << 13;

/// An epoch as a column has it, if it can.
#[inline]
pub fn stored(epoch: u64, middle: u64) -> Option<i16> {
    let told = epoch.wrapping_sub(middle);
    match told.wrapping_add(REACH) <= 2 * REACH {
        true => Some(told as i16),
        false => far(epoch),
    }
}

/// As [`stored`], where it lies too far from its middle.
#[cold]
#[inline(never)]
fn far(epoch: u64) -> Option<i16> {
    (epoch == 0).then_some(NOTHING)
}

/// The epoch that is stored; 0 for nothing.
#[inline]
pub fn epoch(stored: i16, middle: u64) -> u64 {
    match stored {
        NOTHING => 0,
        _ => middle.wrapping_add_signed(stored.into()),
    }
}

/// Whether what is stored says that much, and anything.
#[inline]
pub fn reaches(stored: i16, epoch: u64, middle: u64) -> bool {
    let wanted = epoch.wrapping_sub(middle).cast_signed();
    i64::from(stored) >= wanted && stored != NOTHING
}

/// A middle for a lane whose epoch is this now.
pub fn middle_for(epoch: u64) -> u64 {
    let least = epoch.saturating_sub(BEFORE) / STEP * STEP;
    least.saturating_add(REACH + 1)
}

/// From which epoch on a lane does not wait for others to bring it a later middle. It is some way beyond
/// what is told over this one: who meets those that need a later one has it by then.
pub fn end_of(middle: u64) -> u64 {
    middle.saturating_add(REACH + BEFORE)
}

#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
struct Block([i16; LANES]);

/// Calls of their own: there the compiler knows that blocks are aligned, and takes half the steps.
impl Block {
    const EMPTY: Self = Self([NOTHING; LANES]);

    #[inline(never)]
    fn join(&mut self, one: &Self, other: &Self) {
        for (into, (one, other)) in self.0.iter_mut().zip(one.0.iter().zip(&other.0)) {
            *into = (*one).max(*other);
        }
    }

    #[inline(never)]
    fn raise(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(*other);
        }
    }
}

/// A number for each of some lanes.
#[derive(Clone, Debug)]
pub struct Column {
    first: Block,
    rest: Vec<Block>,
}

impl Column {
    /// Of nothing.
    pub fn new(lanes: usize) -> Self {
        let more = lanes.div_ceil(LANES).saturating_sub(1);
        Self {
            first: Block::EMPTY,
            rest: vec![Block::EMPTY; more],
        }
    }

    #[inline]
    pub fn get(&self, at: usize) -> i16 {
        match self.first.0.get(at) {
            Some(found) => *found,
            None => self.rest[at / LANES - 1].0[at % LANES],
        }
    }

    #[inline]
    pub fn put(&mut self, at: usize, stored: i16) {
        match self.first.0.get_mut(at) {
            Some(found) => *found = stored,
            None => self.rest[at / LANES - 1].0[at % LANES] = stored,
        }
    }

    /// Becomes another that is as long.
    #[inline]
    pub fn copy(&mut self, other: &Self) {
        self.first = other.first;
        if !self.rest.is_empty() {
            self.rest.copy_from_slice(&other.rest);
        }
    }

    /// Puts one more at a place among the first `lanes`.
    pub fn insert(&mut self, at: usize, lanes: usize, stored: i16) {
        if lanes >= LANES && lanes.is_multiple_of(LANES) {
            self.rest.push(Block::EMPTY);
        }
        for place in (at..lanes).rev() {
            self.put(place + 1, self.get(place));
        }
        self.put(at, stored);
    }

    /// Becomes the larger of each pair of two others that are as long, but for the second's number
    /// `at` a place, which is told beside it.
    #[inline]
    pub fn join(&mut self, one: &Self, other: &Self, at: usize, told: i16) {
        if self.rest.is_empty() {
            // It is less anyway.
            let at = at % LANES;
            let told = told.max(one.first.0[at]);
            self.first.join(&one.first, &other.first);
            self.first.0[at] = told;
        } else {
            self.join_long(one, other, at, told);
        }
    }

    #[inline(never)]
    fn join_long(&mut self, one: &Self, other: &Self, at: usize, told: i16) {
        let told = told.max(one.get(at));
        self.first.join(&one.first, &other.first);
        let pairs = one.rest.iter().zip(&other.rest);
        for (into, (one, other)) in self.rest.iter_mut().zip(pairs) {
            into.join(one, other);
        }
        self.put(at, told);
    }

    /// As [`Column::join`], in place of the first.
    #[inline]
    pub fn raise(&mut self, other: &Self, at: usize, told: i16) {
        if self.rest.is_empty() {
            let at = at % LANES;
            let told = told.max(self.first.0[at]);
            self.first.raise(&other.first);
            self.first.0[at] = told;
        } else {
            self.raise_long(other, at, told);
        }
    }

    #[inline(never)]
    fn raise_long(&mut self, other: &Self, at: usize, told: i16) {
        let told = told.max(self.get(at));
        self.first.raise(&other.first);
        for (own, other) in self.rest.iter_mut().zip(&other.rest) {
            own.raise(other);
        }
        self.put(at, told);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_any_length_join_as_their_numbers_do() {
        for lanes in 1..200_usize {
            let numbers = |factor: usize| -> Vec<i16> {
                let number = |at: usize| (at * factor % 60_001) as i32 - 30_000;
                (0..lanes).map(|at| number(at) as i16).collect()
            };
            let column = |numbers: &[i16]| {
                let mut out = Column::new(lanes);
                let each = numbers.iter().enumerate();
                each.for_each(|(at, number)| out.put(at, *number));
                out
            };
            let read =
                |column: &Column| -> Vec<i16> { (0..lanes).map(|at| column.get(at)).collect() };
            let (one, other) = (numbers(31_013), numbers(57_037));
            let (at, told) = (lanes / 3, numbers(7_919)[lanes - 1]);
            let mut want: Vec<i16> = one.iter().zip(&other).map(|(a, b)| *a.max(b)).collect();
            want[at] = one[at].max(told);
            let (mut own, other) = (column(&one), column(&other));
            let mut into = Column::new(lanes);
            into.join(&own, &other, at, told);
            assert_eq!(read(&into), want);
            own.raise(&other, at, told);
            assert_eq!(read(&own), want);
        }
    }

    #[test]
    fn a_number_goes_among_others() {
        for lanes in 0..200_usize {
            for at in [0, lanes / 2, lanes] {
                let mut column = Column::new(lanes);
                (0..lanes).for_each(|place| column.put(place, place as i16));
                column.insert(at, lanes, -5);
                let found: Vec<i16> = (0..=lanes).map(|place| column.get(place)).collect();
                let mut want: Vec<i16> = (0..lanes).map(|place| place as i16).collect();
                want.insert(at, -5);
                assert_eq!(found, want);
            }
        }
    }

    #[test]
    fn what_is_stored_is_exact_or_refused() {
        let middles = [0, STEP, 1 << 40].map(|epoch| middle_for(epoch + BEFORE));
        for middle in middles {
            for from_middle in [-32_767, -1, 0, 1, 5_000, 32_767] {
                let whole = middle.wrapping_add_signed(from_middle);
                let told = stored(whole, middle).expect("it is within reach");
                assert_eq!(epoch(told, middle), whole);
                assert!(told > NOTHING && reaches(told, whole, middle));
                assert!(reaches(told, 0, middle) && !reaches(told, whole + 1, middle));
                assert!(!reaches(told, whole + (1 << 50), middle));
            }
            assert_eq!(stored(middle + REACH + 1, middle), None);
            assert_eq!(stored(0, middle), Some(NOTHING));
            assert_eq!(epoch(NOTHING, middle), 0);
            for least in [0, 1, middle] {
                assert!(!reaches(NOTHING, least, middle));
            }
            let below = middle - REACH - 1;
            assert_eq!(stored(below, middle), (below == 0).then_some(NOTHING));
        }
        for at in [1, 5, BEFORE, BEFORE + 1, BEFORE + STEP, 1 << 50, u64::MAX] {
            let middle = middle_for(at);
            assert!(stored(at, middle).is_some(), "{at}");
            let ahead = at.saturating_add(REACH);
            assert!(stored(ahead, middle).is_some(), "{at}");
            assert!(end_of(middle) > at || at == u64::MAX);
        }
    }
}

//! A set of worker numbers that threads change without a lock, and a contiguous span of them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Workers `first .. first + count`: those that a device may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub first: usize,
    pub count: usize,
}

impl Span {
    pub fn contains(self, worker: usize) -> bool {
        worker >= self.first && worker - self.first < self.count
    }

    /// The part of word `index` that belongs to the span.
    fn bits(self, index: usize) -> u64 {
        let base = index * 64;
        let from = self.first.max(base) - base;
        let to = (self.first + self.count)
            .min(base + 64)
            .saturating_sub(base);
        if from >= to {
            return 0;
        }
        let width = to - from;
        let ones = if width == 64 {
            u64::MAX
        } else {
            (1 << width) - 1
        };
        ones << from
    }

    fn words(self) -> std::ops::Range<usize> {
        self.first / 64..(self.first + self.count).div_ceil(64)
    }
}

/// The set. Every operation is sequentially consistent: a worker that leaves and a thread that
/// brings work must not miss each other.
#[derive(Debug)]
pub struct Mask {
    words: Box<[AtomicU64]>,
}

impl Mask {
    pub fn new(size: usize) -> Self {
        let words = (0..size.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { words }
    }

    pub fn insert(&self, worker: usize) {
        self.words[worker / 64].fetch_or(1 << (worker % 64), Ordering::SeqCst);
    }

    pub fn remove(&self, worker: usize) {
        self.words[worker / 64].fetch_and(!(1 << (worker % 64)), Ordering::SeqCst);
    }

    pub fn intersects(&self, span: Span) -> bool {
        span.words()
            .any(|index| self.words[index].load(Ordering::SeqCst) & span.bits(index) != 0)
    }

    /// Takes one worker of the span out of the set.
    pub fn take_one(&self, span: Span) -> Option<usize> {
        for index in span.words() {
            let word = &self.words[index];
            loop {
                let found = word.load(Ordering::SeqCst) & span.bits(index);
                if found == 0 {
                    break;
                }
                let bit = found & found.wrapping_neg();
                if word.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
                    return Some(index * 64 + bit.trailing_zeros() as usize);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_takes_its_own_and_no_other() {
        let mask = Mask::new(200);
        for worker in [0, 63, 64, 130, 199] {
            mask.insert(worker);
        }
        let middle = Span {
            first: 1,
            count: 129,
        };
        assert_eq!(mask.take_one(middle), Some(63));
        assert_eq!(mask.take_one(middle), Some(64));
        assert_eq!(mask.take_one(middle), None);
        assert!(!mask.intersects(middle));
        let all = Span {
            first: 0,
            count: 200,
        };
        mask.remove(0);
        assert_eq!(mask.take_one(all), Some(130));
        assert_eq!(mask.take_one(all), Some(199));
        assert_eq!(mask.take_one(all), None);
    }

    #[test]
    fn a_whole_word_is_a_span_too() {
        let mask = Mask::new(64);
        mask.insert(63);
        assert_eq!(
            mask.take_one(Span {
                first: 0,
                count: 64
            }),
            Some(63)
        );
    }
}

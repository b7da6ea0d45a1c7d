//! A set of worker numbers that threads change without a lock, and a contiguous range of them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Workers `first .. first + count`: those that a device may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerRange {
    pub first: usize,
    pub count: usize,
}

impl WorkerRange {
    pub fn contains(self, worker: usize) -> bool {
        worker >= self.first && worker - self.first < self.count
    }

    /// The part of word `index` that belongs to the range.
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

/// A set of workers. Every operation is sequentially consistent: a worker that goes to sleep and a
/// thread that adds work must not miss each other.
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

    pub fn intersects(&self, workers: WorkerRange) -> bool {
        workers
            .words()
            .any(|index| self.words[index].load(Ordering::SeqCst) & workers.bits(index) != 0)
    }

    /// Removes the range's first worker in the set and returns it.
    pub fn remove_first(&self, workers: WorkerRange) -> Option<usize> {
        for index in workers.words() {
            let word = &self.words[index];
            loop {
                let found = word.load(Ordering::SeqCst) & workers.bits(index);
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
    fn a_range_removes_its_own_workers_only() {
        let mask = Mask::new(200);
        for worker in [0, 63, 64, 130, 199] {
            mask.insert(worker);
        }
        let part = WorkerRange {
            first: 1,
            count: 129,
        };
        assert_eq!(mask.remove_first(part), Some(63));
        assert_eq!(mask.remove_first(part), Some(64));
        assert_eq!(mask.remove_first(part), None);
        assert!(!mask.intersects(part));
        let all = WorkerRange {
            first: 0,
            count: 200,
        };
        mask.remove(0);
        assert_eq!(mask.remove_first(all), Some(130));
        assert_eq!(mask.remove_first(all), Some(199));
        assert_eq!(mask.remove_first(all), None);
    }

    #[test]
    fn a_whole_word_is_a_range_too() {
        let mask = Mask::new(64);
        mask.insert(63);
        assert_eq!(
            mask.remove_first(WorkerRange {
                first: 0,
                count: 64
            }),
            Some(63)
        );
    }
}

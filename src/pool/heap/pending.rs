//! The free segments of one lane that wait for completion, by the epoch at which they die.
//!
//! A priority queue whose entries outlive what they stand for. A segment that is allocated again is no longer counted,
//! and its entry goes when it comes to the top, or when most entries are such. With an ordered set in this place, a
//! request that no cache served took 6,050 instructions rather than 5,230 (a program drawn from gpt2_train).

use crate::pool::heap::segments::SegmentId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Entries without a segment up to which they are left alone.
const MAX_STALE_ENTRIES: usize = 64;

/// Which insertion of a segment an entry stands for.
pub(super) type Stamp = u32;

#[derive(Debug, Default)]
pub(in crate::pool) struct Pending {
    queue: BinaryHeap<Reverse<(u64, SegmentId, Stamp)>>,
    /// Segments in the queue.
    count: usize,
    /// No segment in the queue dies later.
    newest: u64,
}

impl Pending {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// An epoch at or after which all of the lane's segments are dead.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    pub(super) fn insert(&mut self, epoch: u64, id: SegmentId, stamp: Stamp) {
        self.queue.push(Reverse((epoch, id, stamp)));
        self.count += 1;
        self.newest = self.newest.max(epoch);
    }

    /// Counts a segment no longer. `is_current` says whether an entry's segment is still there.
    pub(super) fn remove(&mut self, is_current: impl Fn(SegmentId, Stamp) -> bool) {
        debug_assert!(self.count > 0, "not in the queue of epochs");
        self.count -= 1;
        if self.count == 0 {
            self.queue.clear();
            self.newest = 0;
        } else if self.queue.len() > 2 * self.count + MAX_STALE_ENTRIES {
            self.queue
                .retain(|Reverse((_, id, stamp))| is_current(*id, *stamp));
        }
    }

    /// Takes the segments that died up to `epoch` out of the queue, ascending. Each still counts until it is removed.
    pub(super) fn take_until(
        &mut self,
        epoch: u64,
        is_current: impl Fn(SegmentId, Stamp) -> bool,
        out: &mut Vec<SegmentId>,
    ) {
        while let Some(top) = self.queue.peek_mut()
            && top.0.0 <= epoch
        {
            let Reverse((_, id, stamp)) = std::collections::binary_heap::PeekMut::pop(top);
            if is_current(id, stamp) {
                out.push(id);
            }
        }
    }

    /// The segments, each with its epoch.
    #[cfg(any(test, feature = "oracle"))]
    pub(super) fn entries(
        &self,
        is_current: impl Fn(SegmentId, Stamp) -> bool,
    ) -> impl Iterator<Item = (u64, SegmentId)> {
        let entries = self.queue.iter().map(|Reverse(entry)| *entry);
        let current = entries.filter(move |(_, id, stamp)| is_current(*id, *stamp));
        current.map(|(epoch, id, _)| (epoch, id))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A queue, and which insertion of each segment is current.
    #[derive(Default)]
    struct Model {
        pending: Pending,
        current: BTreeMap<SegmentId, Stamp>,
    }

    impl Model {
        fn insert(&mut self, epoch: u64, id: SegmentId) {
            let stamp = *self.current.entry(id).or_default();
            self.pending.insert(epoch, id, stamp);
        }

        fn remove(&mut self, id: SegmentId) {
            *self.current.entry(id).or_default() += 1;
            let current = &self.current;
            self.pending.remove(|id, stamp| current[&id] == stamp);
        }

        fn take_until(&mut self, epoch: u64) -> Vec<SegmentId> {
            let (current, mut out) = (&self.current, Vec::new());
            let is_current = |id, stamp| current[&id] == stamp;
            self.pending.take_until(epoch, is_current, &mut out);
            out
        }
    }

    #[test]
    fn segments_that_were_removed_are_not_taken() {
        let mut model = Model::default();
        for (epoch, id) in [(3, 0), (1, 1), (2, 2), (4, 3)] {
            model.insert(epoch, id);
        }
        model.remove(2);
        // Segment 1 again, at a later epoch.
        model.remove(1);
        model.insert(5, 1);
        assert_eq!(model.take_until(3), [0]);
        assert_eq!((model.take_until(4), model.pending.newest()), (vec![3], 5));
        for id in [0, 3] {
            model.remove(id);
        }
        assert_eq!(model.take_until(5), [1]);
        assert!(!model.pending.is_empty(), "it counts until it is removed");
        model.remove(1);
        assert!(model.pending.is_empty());
        assert_eq!(model.pending.newest(), 0);
    }

    #[test]
    fn the_queue_keeps_few_entries_of_removed_segments() {
        let mut model = Model::default();
        model.insert(1, 0);
        for round in 0..10_000 {
            model.insert(2 + round, 1);
            model.remove(1);
            assert!(model.pending.queue.len() <= 2 + MAX_STALE_ENTRIES + 1);
        }
        assert_eq!(model.take_until(u64::MAX), [0]);
    }
}

//! Blocks that other processes may open. A free of such a block takes effect with the end of its last
//! export: until then its memory is nobody else's, and its pages stay where they are.

use crate::sync::Mutex;
use crate::timeline::Frontier;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Default)]
pub(crate) struct Exports {
    /// Number of exports. With none, no free looks at the map.
    count: AtomicUsize,
    /// By the address where the block starts.
    blocks: Mutex<BTreeMap<u64, Exported>>,
}

#[derive(Default)]
struct Exported {
    exports: usize,
    /// The last use of the block, once it was freed.
    freed: Option<Frontier>,
}

impl Exports {
    /// Adds an export of the block at `addr`.
    pub fn add(&self, addr: u64) {
        self.blocks.lock().entry(addr).or_default().exports += 1;
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// Ends an export. Returns the last use of a freed block with the last of its exports.
    pub fn remove(&self, addr: u64) -> Option<Frontier> {
        let mut blocks = self.blocks.lock();
        let block = blocks.get_mut(&addr)?;
        block.exports -= 1;
        self.count.fetch_sub(1, Ordering::AcqRel);
        match block.exports {
            0 => blocks.remove(&addr)?.freed,
            _ => None,
        }
    }

    /// Frees an exported block. False if it was freed before, none if the block is not exported.
    pub fn free(&self, addr: u64, last_use: &Frontier) -> Option<bool> {
        if self.is_empty() {
            return None;
        }
        let mut blocks = self.blocks.lock();
        let block = blocks.get_mut(&addr)?;
        let first = block.freed.is_none();
        block.freed.get_or_insert_with(|| last_use.clone());
        Some(first)
    }

    pub fn has(&self, addr: u64) -> bool {
        !self.is_empty() && self.blocks.lock().contains_key(&addr)
    }

    /// Whether a block was freed that is exported still.
    pub fn is_freed(&self, addr: u64) -> bool {
        let freed = |block: &Exported| block.freed.is_some();
        !self.is_empty() && self.blocks.lock().get(&addr).is_some_and(freed)
    }

    /// Forgets the freed blocks. Returns each with its last use.
    pub fn take_freed(&self) -> Vec<(u64, Frontier)> {
        let mut blocks = self.blocks.lock();
        let freed = blocks
            .iter_mut()
            .filter_map(|(addr, block)| Some((*addr, block.freed.take()?)));
        freed.collect()
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_waits_for_the_last_export() {
        let (exports, never) = (Exports::default(), Frontier::new());
        assert_eq!(exports.free(64, &never), None, "not exported");
        exports.add(64);
        exports.add(64);
        assert_eq!((exports.has(64), exports.is_freed(64)), (true, false));
        assert_eq!(exports.free(64, &never), Some(true));
        assert_eq!(exports.free(64, &never), Some(false), "freed twice");
        assert_eq!(exports.remove(64), None, "one export is left");
        assert_eq!(exports.remove(64), Some(Frontier::new()));
        assert_eq!((exports.has(64), exports.remove(64)), (false, None));
    }
}

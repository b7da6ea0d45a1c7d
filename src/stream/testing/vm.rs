//! Virtual memory that only keeps its books and asserts that they are consistent.

use std::collections::{BTreeMap, BTreeSet};

pub const PAGE_BYTES: usize = 1 << 16;

#[derive(Default)]
pub struct Vm {
    /// Reserved addresses, and how many bytes.
    pub reserved: BTreeMap<usize, usize>,
    /// Which page an address leads to.
    pub mapped: BTreeMap<usize, u64>,
    pub pages: BTreeSet<u64>,
    named: u64,
    /// The next this many mappings fail.
    pub broken: usize,
    /// All addresses that there are.
    pub narrow: Option<usize>,
}

impl Vm {
    /// None if there are not so many addresses.
    pub fn reserve(&mut self, bytes: usize) -> Option<usize> {
        assert!(bytes.is_multiple_of(PAGE_BYTES));
        let taken: usize = self.reserved.values().sum();
        if self.narrow.is_some_and(|all| taken + bytes > all) {
            return None;
        }
        let last = self.reserved.iter().next_back();
        let base = last.map_or(1 << 40, |(base, bytes)| base + bytes + PAGE_BYTES);
        self.reserved.insert(base, bytes);
        Some(base)
    }

    pub fn unreserve(&mut self, addr: usize, bytes: usize) {
        assert_eq!(self.mapped.range(addr..addr + bytes).next(), None);
        assert_eq!(self.reserved.remove(&addr), Some(bytes));
    }

    pub fn create(&mut self, count: usize) -> Vec<u64> {
        let names: Vec<u64> = (self.named..self.named + count as u64).collect();
        self.named += count as u64;
        self.pages.extend(&names);
        names
    }

    pub fn destroy(&mut self, pages: &[u64]) {
        for page in pages {
            assert!(self.pages.remove(page), "a page that is not there");
            let held = self.mapped.values().any(|other| other == page);
            assert!(!held, "a page that is mapped");
        }
    }

    /// False if it failed.
    pub fn map(&mut self, addr: usize, pages: &[u64]) -> bool {
        if self.broken > 0 {
            self.broken -= 1;
            return false;
        }
        let (base, bytes) = self.reserved.range(..=addr).next_back().expect("reserved");
        assert!(addr + pages.len() * PAGE_BYTES <= base + bytes);
        for (addr, page) in (addr..).step_by(PAGE_BYTES).zip(pages) {
            assert!(self.pages.contains(page));
            assert_eq!(self.mapped.insert(addr, *page), None, "mapped over");
        }
        true
    }

    pub fn unmap(&mut self, addr: usize, count: usize) {
        for addr in (addr..).step_by(PAGE_BYTES).take(count) {
            assert!(self.mapped.remove(&addr).is_some(), "nothing is mapped");
        }
    }
}

//! When a pool makes room by growth rather than by moving pages once more.
//!
//! Where each page has its price, a pool that keeps on gathering is short of room for its sizes, and pays
//! for that again and again. So what it has moved is counted, and once that is much beside what it holds
//! it grows instead, as long as it holds little more than was ever in use. What was before memory went
//! back to the source counts no more: who was large once would have room for anything.

use crate::pool::store::Store;

/// How many times what a pool holds is moved before it has room made instead. What a program gathers
/// until it repeats itself is less, for those that were recorded: they shall hold no more for it.
const MUCH_MOVED: u64 = 2;
/// The part of what was ever in use that may be held beyond it for that; and the part from when on what
/// was moved in all is so many times what the pool holds.
const ROOM: u64 = 4;
const MORE_ROOM: u64 = 2;
const GOES_ON: u64 = 16;

#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Bytes that were gathered since the pool last grew instead.
    moved: u64,
    /// The same, since memory last went back to the source.
    in_all: u64,
    /// Most bytes that were in use whenever nothing served a request, its own among them.
    most: u64,
}

impl Moves {
    /// Nothing that the pool holds serves a request of so many bytes, and no stash caches any of it.
    pub fn miss(&mut self, store: &Store, reserved: u64, bytes: u64) {
        let used = reserved.saturating_sub(store.free_bytes());
        self.most = self.most.max(used.saturating_add(bytes));
    }

    /// Whether to move so many bytes more would be much, for a pool that holds `reserved`.
    pub fn is_much(&self, bytes: u64, reserved: u64) -> bool {
        self.moved + bytes > reserved.saturating_mul(MUCH_MOVED)
    }

    /// Whether the pool may come to hold so many bytes instead.
    pub fn may_hold(&self, bytes: u64) -> bool {
        let part = match self.in_all > bytes.saturating_mul(GOES_ON) {
            true => MORE_ROOM,
            false => ROOM,
        };
        bytes <= self.most.saturating_add(self.most / part)
    }

    pub fn moved(&mut self, bytes: u64) {
        self.moved += bytes;
        self.in_all += bytes;
    }

    pub fn grew_instead(&mut self) {
        self.moved = 0;
    }

    /// Memory went back to the source.
    pub fn shrank(&mut self) {
        *self = Self::default();
    }
}

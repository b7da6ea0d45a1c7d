//! Memory of dropped objects, reused for new ones. A heap allocation and free would double the cost
//! of an event.
//!
//! Owns a few pieces of memory for each thread, in the thread's slot of `census`. The slot's next
//! thread inherits them. A piece records its layout, since objects differ in size.

use std::alloc::Layout;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Maximum number of a thread's spare pieces.
const MAX_PIECES: u32 = 16;

/// The spare memory of one thread. Atomic, since successive threads use the slot.
pub(super) struct SpareMemory {
    first: AtomicPtr<Piece>,
    room: AtomicU32,
}

/// The header of a spare piece.
struct Piece {
    next: *mut Piece,
    layout: Layout,
}

impl SpareMemory {
    pub const fn new() -> Self {
        Self {
            first: AtomicPtr::new(null_mut()),
            room: AtomicU32::new(MAX_PIECES),
        }
    }

    /// Spare memory that stays empty, for a slot that threads share.
    pub const fn none() -> Self {
        Self {
            first: AtomicPtr::new(null_mut()),
            room: AtomicU32::new(0),
        }
    }

    /// Whether memory of this layout can hold a piece's header.
    pub const fn fits(layout: Layout) -> bool {
        layout.size() >= size_of::<Piece>() && layout.align() >= align_of::<Piece>()
    }

    /// Allocates the piece that was freed last, if it has this layout.
    #[inline]
    pub fn allocate(&self, layout: Layout) -> Option<*mut u8> {
        let piece = self.first.load(Ordering::Relaxed);
        if piece.is_null() {
            return None;
        }
        // SAFETY: `free` wrote the header, and the piece has not been allocated since.
        let found = unsafe { &*piece };
        if found.layout != layout {
            return None;
        }
        self.first.store(found.next, Ordering::Relaxed);
        let room = self.room.load(Ordering::Relaxed);
        self.room.store(room + 1, Ordering::Relaxed);
        Some(piece.cast())
    }

    /// Adds a piece. False if the thread has the maximum number; the caller then frees the memory.
    ///
    /// # Safety
    ///
    /// The memory is unused and has this layout, for which [`SpareMemory::fits`] holds.
    #[inline]
    pub unsafe fn free(&self, memory: *mut u8, layout: Layout) -> bool {
        let room = self.room.load(Ordering::Relaxed);
        if room == 0 {
            return false;
        }
        let piece = memory.cast::<Piece>();
        let next = self.first.load(Ordering::Relaxed);
        // SAFETY: the caller guarantees unused memory of a layout that fits a header.
        unsafe { piece.write(Piece { next, layout }) };
        self.first.store(piece, Ordering::Relaxed);
        self.room.store(room - 1, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_piece_serves_an_equal_layout() {
        let spares = SpareMemory::new();
        let mut all = [[0_u64; 8]; MAX_PIECES as usize + 1];
        let layout = Layout::new::<[u64; 8]>();
        assert!(SpareMemory::fits(layout) && !SpareMemory::fits(Layout::new::<u64>()));
        assert_eq!(spares.allocate(layout), None);
        let places = all
            .each_mut()
            .map(|own| std::ptr::from_mut(own).cast::<u8>());
        // SAFETY: the test allocated the memory and does not use it meanwhile.
        let kept = places.map(|place| unsafe { spares.free(place, layout) });
        assert!(kept[..MAX_PIECES as usize].iter().all(|kept| *kept) && !kept[MAX_PIECES as usize]);
        assert_eq!(spares.allocate(Layout::new::<[u64; 9]>()), None);
        for place in places[..MAX_PIECES as usize].iter().rev() {
            assert_eq!(spares.allocate(layout), Some(*place));
        }
        assert_eq!(spares.allocate(layout), None);
        // SAFETY: the test allocated the memory and does not use it meanwhile.
        let again = unsafe { spares.free(places[0], layout) };
        assert!(again, "there is room again");
    }

    #[test]
    fn a_shared_slot_keeps_no_memory() {
        let mut own = [0_u64; 8];
        let layout = Layout::new::<[u64; 8]>();
        let place = std::ptr::from_mut(&mut own).cast();
        // SAFETY: the test allocated the memory.
        assert!(!unsafe { SpareMemory::none().free(place, layout) });
    }
}

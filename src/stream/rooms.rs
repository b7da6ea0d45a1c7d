//! How far it is from an address to the end of its allocation, as a thread was last told.
//!
//! Each copy and fill asks for its addresses, and mostly for those that it asked for before. An answer
//! serves as long as no allocation can end earlier: see [`Ends`](crate::pool::Ends).

use std::cell::Cell;

const PLACES: usize = 64;

#[derive(Clone, Copy)]
struct Room {
    /// What `Ends` said before one looked; 0 for no answer.
    since: u64,
    addr: usize,
    bytes: usize,
}

/// Without a destructor: nothing is registered, and nothing is ever gone.
struct Rooms([Cell<Room>; PLACES]);

const NONE: Room = Room {
    since: 0,
    addr: 0,
    bytes: 0,
};

thread_local! {
    static ROOMS: Rooms = const { Rooms([const { Cell::new(NONE) }; PLACES]) };
}

impl Rooms {
    /// Neighbours at any power of two lie apart: Fibonacci hashing (Knuth, vol. 3, 6.4).
    #[inline(always)]
    fn place(&self, addr: usize) -> &Cell<Room> {
        let hash = (addr as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.0[(hash >> (64 - PLACES.ilog2())) as usize]
    }
}

/// Whether it is known that so many bytes from each address on are inside what they begin in.
#[inline(always)]
pub fn have<const N: usize>(since: u64, addrs: [usize; N], bytes: usize) -> bool {
    let rooms = ROOMS.with(std::ptr::from_ref);
    // SAFETY: the thread's own, and without a destructor there until it ends.
    let rooms = unsafe { &*rooms };
    let mut all = true;
    for addr in addrs {
        let room = rooms.place(addr).get();
        all &= room.since == since && room.addr == addr && bytes <= room.bytes;
    }
    all
}

/// Keeps an answer for which one looked after `since`.
pub fn keep(since: u64, addr: usize, bytes: usize) {
    ROOMS.with(|rooms| rooms.place(addr).set(Room { since, addr, bytes }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_serves_its_address_until_something_changes() {
        keep(7, 4096, 100);
        assert!(have(7, [4096], 100));
        assert!(!have(7, [4096], 101));
        assert!(!have(7, [4097], 1));
        assert!(!have(8, [4096], 100));
        keep(7, 8192, usize::MAX);
        assert!(have(7, [4096, 8192], 100));
        assert!(
            std::thread::spawn(|| !have(7, [4096], 1))
                .join()
                .is_ok_and(|none| none)
        );
    }

    #[test]
    fn addresses_that_share_a_place_do_not_answer_for_each_other() {
        (1..=1000).for_each(|addr| keep(9, addr, addr));
        let kept = (1..=1000).filter(|addr| have(9, [*addr], *addr)).count();
        assert!((1..=PLACES).contains(&kept), "{kept}");
        assert!((1..1000).all(|addr| !have(9, [addr], addr + 1)));
    }
}

//! How far it is from an address to the end of its allocation, as one was last told.
//!
//! Each copy and fill asks for its addresses, and mostly for those that it asked for before. An answer
//! serves as long as no allocation can end earlier: see [`Ends`](crate::pool::Ends). A lane keeps those
//! of its commands, where the next finds them; each thread keeps those of all others.

use std::cell::Cell;

const PLACES: usize = 64;

/// One answer.
#[derive(Clone, Copy)]
pub struct Room {
    /// What `Ends` said before one looked; 0 for no answer.
    since: u64,
    addr: usize,
    bytes: usize,
}

const NONE: Room = Room {
    since: 0,
    addr: 0,
    bytes: 0,
};

/// Answers, each at the place of its address. Without a destructor: in a thread nothing is registered,
/// and nothing is ever gone.
pub struct Rooms([Cell<Room>; PLACES]);

thread_local! {
    static ROOMS: Rooms = const { Rooms::new() };
}

impl Rooms {
    pub const fn new() -> Self {
        Self([const { Cell::new(NONE) }; PLACES])
    }

    /// Neighbours at any power of two lie apart: Fibonacci hashing (Knuth, vol. 3, 6.4).
    #[inline(always)]
    fn place(&self, addr: usize) -> &Cell<Room> {
        let hash = (addr as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.0[(hash >> (64 - PLACES.ilog2())) as usize]
    }

    /// Whether it is known that so many bytes from each address on are inside what they begin in.
    #[inline(always)]
    pub fn have<const N: usize>(&self, since: u64, addrs: [usize; N], bytes: usize) -> bool {
        let mut all = true;
        for addr in addrs {
            let room = self.place(addr).get();
            all &= room.since == since && room.addr == addr && bytes <= room.bytes;
        }
        all
    }

    pub fn keep(&self, room: Room) {
        self.place(room.addr).set(room);
    }
}

/// As [`Rooms::have`], of this thread.
pub fn have<const N: usize>(since: u64, addrs: [usize; N], bytes: usize) -> bool {
    ROOMS.with(|rooms| rooms.have(since, addrs, bytes))
}

/// Keeps an answer for which one looked after `since`, for this thread.
pub fn keep(since: u64, addr: usize, bytes: usize) {
    ROOMS.with(|rooms| rooms.keep(Room { since, addr, bytes }));
}

/// What this thread was last told of an address.
pub fn known(addr: usize) -> Option<Room> {
    let room = ROOMS.with(|rooms| rooms.place(addr).get());
    (room.addr == addr && room.since != 0).then_some(room)
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
    fn what_a_thread_knows_serves_where_it_is_kept() {
        let rooms = Rooms::new();
        assert!(!rooms.have(0, [0], 0) || known(0).is_none());
        keep(7, 4096, 100);
        assert!(known(4097).is_none());
        known(4096).into_iter().for_each(|room| rooms.keep(room));
        assert!(rooms.have(7, [4096], 100));
        assert!(!rooms.have(7, [4096], 101));
        assert!(!rooms.have(8, [4096], 100));
    }

    #[test]
    fn addresses_that_share_a_place_do_not_answer_for_each_other() {
        (1..=1000).for_each(|addr| keep(9, addr, addr));
        let kept = (1..=1000).filter(|addr| have(9, [*addr], *addr)).count();
        assert!((1..=PLACES).contains(&kept), "{kept}");
        assert!((1..1000).all(|addr| !have(9, [addr], addr + 1)));
    }
}

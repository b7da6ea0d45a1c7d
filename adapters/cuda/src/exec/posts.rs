//! Small fills with patterns that the driver's memset does not know: those that follow each other on a
//! stream are one launch.
//!
//! A launch costs the host four times as much as such a memset, and the device is no sooner done with it.
//! So who fills again, with nothing else in between, posts what to do in memory that host and device share,
//! and launches a kernel that does whatever it finds posted. Until that kernel runs, whoever fills once more
//! has only to post: what comes later on the stream comes after it all the same. The kernel first says that
//! it takes nothing more, then looks; the host posts, then looks whether it had said so. One of the two sees
//! the other (Dekker's algorithm), so no post is lost. Each names the launch that may do it at the latest,
//! since an earlier one, still waiting on the stream, sees what is posted for the next.
//!
//! | the stream was given last | a small fill is | and the stream has been given |
//! |---|---|---|
//! | anything else | launched by itself | a fill |
//! | a fill | posted, and a launch does it | a launch that takes more |
//! | a launch that takes more | posted; if that came too late, another launch does it | a launch that takes more |
//!
//! Commands are numbered, so whether any came in between is seen by that; what has no number says so.
//!
//! Only on streams that none but us give work to, and nobody's wait for the default stream.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use ur::object::Result;
use ur::timeline::rank;
use ur::timeline::sync::Mutex;

use super::fill::{self, GROUP};
use super::gpu::Gpu;
use crate::cu::sys::CUstream;
use crate::cu::{Api, LAUNCH, check, launch_of};

/// The most bytes that are a small fill: as many as the driver's memset writes without a launch.
const MOST: usize = 4096;

/// How many can be posted that are not done.
const POSTS: u64 = 128;

/// What host and device tell each other, as `Box` in `fill.cu`.
#[repr(C, align(64))]
struct Shelf {
    posted: AtomicU64,
    done: AtomicU64,
    unused: [u64; 6],
    /// The last launch that takes nothing more.
    closed: AtomicU64,
    more_unused: [u64; 7],
    posts: UnsafeCell<[Post; POSTS as usize]>,
}

/// A small fill.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Post {
    to: u64,
    pattern: [u64; 2],
    launch: u32,
    /// Times eight bytes.
    count: u32,
}

impl Post {
    /// A fill, if it is such a one.
    pub fn of(dst: usize, pattern: &[u8], bytes: usize) -> Option<Self> {
        let even = (dst | bytes).is_multiple_of(8);
        if !even || bytes == 0 || bytes > MOST {
            return None;
        }
        let pattern = fill::shortest(pattern);
        let (first, second) = match pattern.len() {
            8 => (pattern, pattern),
            16 => pattern.split_at(8),
            _ => return None,
        };
        let word = |half: &[u8]| half.try_into().map(u64::from_ne_bytes).ok();
        Some(Self {
            to: dst as u64,
            pattern: [word(first)?, word(second)?],
            launch: 0,
            count: (bytes / 8) as u32,
        })
    }
}

/// What a stream was given last.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum Last {
    Other = 0,
    Fill = 1,
    Launch = 2,
}

impl Last {
    /// As one word, with the number of the command that it was.
    fn at(self, epoch: u64) -> u64 {
        epoch << 2 | self as u64
    }

    /// What came right before the command of this number.
    fn before(epoch: u64, word: u64) -> Self {
        let is = |last: &Self| word == last.at(epoch.wrapping_sub(1));
        let found = [Self::Fill, Self::Launch].into_iter().find(is);
        found.unwrap_or(Self::Other)
    }
}

/// What a stream has of it. Who gives to the stream does so one at a time.
#[derive(Default)]
pub struct Posts {
    last: AtomicU64,
    board: Mutex<Option<Board>, { rank::DRIVER }>,
}

impl Posts {
    /// The stream is given something else.
    pub fn pass(&self) {
        self.last.store(0, Ordering::Relaxed);
    }

    /// Posts a fill if others come before it, else has `alone` launch it by itself.
    pub fn fill(
        &self,
        gpu: &Arc<Gpu>,
        (stream, epoch): (CUstream, u64),
        post: Post,
        alone: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let last = Last::before(epoch, self.last.swap(0, Ordering::Relaxed));
        let mut board = self.board.lock();
        if last != Last::Other && board.is_none() {
            // Without memory for it each goes by itself.
            *board = Boards::take(gpu).ok();
        }
        let given = match &mut *board {
            Some(own) if last != Last::Other && own.has_room() => {
                let posted = own.post(gpu, stream, post, last == Last::Launch);
                if posted.is_err() {
                    // What stands there must never be done.
                    *board = None;
                }
                posted.map(|()| Last::Launch)
            }
            _ => alone().map(|()| Last::Fill),
        }?;
        self.last.store(given.at(epoch), Ordering::Relaxed);
        Ok(())
    }

    /// The stream has ended.
    pub fn end(&mut self, gpu: &Gpu) {
        let board = self.board.get_mut();
        if let Some(board) = board.take() {
            gpu.boards.give(board);
        }
    }
}

/// A shelf, and how far the host has come with it.
struct Board {
    shelf: *mut Shelf,
    posted: u64,
    launch: u32,
}

// SAFETY: the shelf is reached through atomics, and its posts by whoever has the board.
unsafe impl Send for Board {}

impl Board {
    fn shelf(&self) -> &Shelf {
        // SAFETY: memory of ours that stays as long as the context. The device writes to its atomics alone.
        unsafe { &*self.shelf }
    }

    /// One of the places for posts.
    fn place(&self, at: usize) -> *mut Post {
        let first = self.shelf().posts.get().cast::<Post>();
        first.wrapping_add(at)
    }

    fn has_room(&self) -> bool {
        self.posted - self.shelf().done.load(Ordering::Acquire) < POSTS
    }

    /// Posts a fill, for the last launch if that may still take it.
    fn post(&mut self, gpu: &Gpu, stream: CUstream, post: Post, open: bool) -> Result<()> {
        let launch = self.launch.wrapping_add(u32::from(!open));
        let place = (self.posted % POSTS) as usize;
        // SAFETY: a place of the shelf that the device is done with, as there is room.
        unsafe { self.place(place).write(Post { launch, ..post }) };
        self.posted += 1;
        let shelf = self.shelf();
        shelf.posted.store(self.posted, Ordering::Release);
        // Between a store and a load of another place: the device does the same the other way round.
        fence(Ordering::SeqCst);
        let closed = shelf.closed.load(Ordering::Acquire);
        if open && closed != u64::from(self.launch) {
            return Ok(());
        }
        self.launch = self.launch.wrapping_add(1);
        self.launch_last(gpu, stream).inspect_err(|_| {
            // The launch before may still find it.
            // SAFETY: as above; whatever the device makes of it then.
            unsafe { (&raw mut (*self.place(place)).count).write_volatile(0) };
        })
    }

    fn launch_last(&self, gpu: &Gpu, stream: CUstream) -> Result<()> {
        let _current = gpu.enter()?;
        let function = gpu.fills()?.posted();
        let params: [*mut c_void; 2] = [
            (&raw const self.shelf).cast_mut().cast(),
            (&raw const self.launch).cast_mut().cast(),
        ];
        let config = launch_of([1; 3], [GROUP, 1, 1], stream);
        // SAFETY: a live function and stream, and the function's two parameters. The callers of all the
        // fills promise their ranges.
        let code = unsafe { gpu.api.launch(&config, function, params.as_ptr(), null()) };
        check(gpu.api, code, LAUNCH)
    }
}

/// The boards of one context.
#[derive(Default)]
pub struct Boards(Mutex<Stock>);

#[derive(Default)]
struct Stock {
    free: Vec<Board>,
    blocks: Vec<usize>,
}

/// How many are made at once.
const AT_ONCE: usize = 8;

impl Boards {
    fn take(gpu: &Arc<Gpu>) -> Result<Board> {
        let mut stock = gpu.boards.0.lock();
        if let Some(board) = stock.free.pop() {
            return Ok(board);
        }
        let _current = gpu.enter()?;
        let bytes = AT_ONCE * size_of::<Shelf>();
        // `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`
        let (mut start, flags): (*mut c_void, _) = (null_mut(), 3);
        // SAFETY: room for a pointer.
        let code = unsafe { (gpu.api.cuMemHostAlloc)(&mut start, bytes, flags) };
        check(gpu.api, code, "cuMemHostAlloc")?;
        // SAFETY: new memory of that size, of pages. All bytes zero are a shelf where nothing was posted.
        unsafe { start.cast::<u8>().write_bytes(0, bytes) };
        stock.blocks.push(start.expose_provenance());
        let shelves = start.cast::<Shelf>();
        let board = |at| Board {
            // SAFETY: within that memory.
            shelf: unsafe { shelves.add(at) },
            posted: 0,
            launch: 0,
        };
        stock.free.extend((1..AT_ONCE).map(board));
        Ok(board(0))
    }

    fn give(&self, board: Board) {
        let mut stock = self.0.lock();
        stock.free.push(board);
    }

    /// Gives the memory back. Nothing is pending any more. The context is current.
    pub fn close(&mut self, api: &Api) {
        let stock = self.0.get_mut();
        stock.free.clear();
        for block in stock.blocks.drain(..) {
            // SAFETY: memory of ours that nothing uses any more.
            unsafe { (api.cuMemFreeHost)(std::ptr::with_exposed_provenance_mut(block)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_fills_are_those_that_the_kernel_does() {
        let wide: [u8; 16] = std::array::from_fn(|at| at as u8);
        let small = |dst, pattern: &[u8], bytes| Post::of(dst, pattern, bytes).is_some();
        assert!(small(64, &wide, 4096) && small(8, &wide[..8], 8) && small(8, &wide, 48));
        assert!(!small(64, &wide, 4112), "too many bytes");
        assert!(
            !small(4, &wide, 64) && !small(8, &wide, 12),
            "not at eights"
        );
        assert!(!small(64, &wide, 0));
        assert!(!small(64, &[1; 16], 64), "the driver's own memset");
        assert!(!small(64, &wide[..12], 48), "another kernel's");
    }

    #[test]
    fn shorter_patterns_are_repeated() {
        let twice = [1_u8, 2, 3, 4, 5, 6, 7, 8].repeat(2);
        let post = Post::of(8, &twice, 16).unwrap();
        assert_eq!(post.pattern[0], post.pattern[1]);
        assert_eq!((post.to, post.count), (8, 2));
    }

    #[test]
    fn the_kernel_has_it_the_same_way() {
        assert_eq!((size_of::<Post>(), size_of::<Shelf>()), (32, 128 + 4096));
        assert_eq!(std::mem::offset_of!(Shelf, closed), 64);
        assert_eq!(std::mem::offset_of!(Post, launch), 24);
    }
}

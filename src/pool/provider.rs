//! The slab provider: where a pool's memory comes from. A backend implements [`SlabProvider`]; the pool calls it
//! while it holds no lock.

use std::fmt;

/// A range of addresses that a [`SlabProvider`] gave. The pool never accesses its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slab {
    pub base: u64,
    pub bytes: u64,
}

impl Slab {
    pub const fn new(base: u64, bytes: u64) -> Self {
        Self { base, bytes }
    }

    pub fn end(&self) -> u64 {
        self.base + self.bytes
    }
}

/// Why a provider gave nothing. Only for want of its memory does a pool look further; every other error is the
/// request's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderError {
    /// No memory of this kind is left. The pool falls back to waits and to giving back idle slabs.
    OutOfMemory,
    OutOfHostMemory,
    /// A backend's own code, passed on as it is.
    Other(i32),
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory => f.write_str("out of memory"),
            Self::OutOfHostMemory => f.write_str("out of host memory"),
            Self::Other(code) => write!(f, "backend error {code}"),
        }
    }
}

impl std::error::Error for ProviderError {}

/// A backend's memory of one kind on one device.
pub trait SlabProvider: Send + Sync {
    /// Gives exactly `bytes`: a multiple of [`SlabProvider::granularity`], except where a maximum size leaves less
    /// than that. A slab that is smaller, or that exceeds the maximum, goes back at once and counts as
    /// [`ProviderError::OutOfMemory`].
    fn acquire(&self, bytes: u64) -> Result<Slab, ProviderError>;

    /// Takes back a slab whose every use was observed complete. With pages, it may be any whole pages of what the
    /// provider gave. Then nothing uses older addresses of theirs either, retired or not.
    fn release(&self, slab: Slab);

    /// The least page in bytes, a power of two, where pages can be given another address; none where they cannot.
    /// All slabs of such a provider start at multiples of it and have whole pages.
    fn page(&self) -> Option<u64> {
        None
    }

    /// The largest page to use in bytes, a multiple of the least, where each page costs time; else none.
    fn largest_page(&self) -> Option<u64> {
        None
    }

    /// Gives one slab with the memory of `pieces`, in their order, and behind it `fresh` bytes of new memory. Those come
    /// in pages of `page` bytes, a multiple of the least page; the last one is smaller where `fresh` requires that. New
    /// memory begins at the address `after` if that can be had; pieces begin there, or the call fails. There are pieces
    /// only where there are pages.
    ///
    /// The pieces' addresses stay mapped until [`SlabProvider::retire`]: work that was submitted may use them. Where
    /// pages are [mapped once](SlabProvider::maps_once) they lead nowhere from now on, and are not retired. On failure
    /// nothing has changed.
    fn map(
        &self,
        pieces: &[Slab],
        fresh: u64,
        page: u64,
        after: Option<u64>,
    ) -> Result<Slab, ProviderError> {
        debug_assert!(pieces.is_empty(), "pages of a provider without any");
        let _ = (page, after);
        self.acquire(fresh)
    }

    /// Whether the addresses of remapped memory stay mapped at next to no cost. Then they are retired late, for
    /// replay may use them again.
    fn leaves_mapped(&self) -> bool {
        false
    }

    /// Whether a page has one address at a time. Then only memory is remapped of which every use was observed complete.
    fn maps_once(&self) -> bool {
        false
    }

    /// Whether completion is observed only by [`SlabProvider::observe`].
    fn observes(&self) -> bool {
        false
    }

    /// Looks for completion. Called before the pool asks for more memory.
    fn observe(&self) {}

    /// Takes back the former addresses of a remapped piece, whose every use was observed complete.
    fn retire(&self, piece: Slab) {
        let _ = piece;
    }

    /// The unit of slab sizes in bytes.
    fn granularity(&self) -> u64;

    /// What every slab's base is a multiple of, in bytes. A wrong promise costs memory, not correctness.
    fn alignment(&self) -> u64 {
        self.granularity()
    }
}

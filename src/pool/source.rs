//! Where slabs come from. A backend implements [`Source`]; the pool calls it, never under a lock.

use std::fmt;
use std::sync::Arc;

/// A range of addresses that a [`Source`] gave. The addresses are never dereferenced here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slab {
    pub base: u64,
    pub bytes: u64,
}

impl Slab {
    pub fn end(&self) -> u64 {
        self.base + self.bytes
    }
}

/// Why a source gave nothing. Only a lack of its memory makes a pool look further; the others are
/// the request's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// No memory of this kind is left; the pool falls back to waits and to releasing what is cold.
    OutOfMemory,
    OutOfHostMemory,
    /// A backend's own code, handed through untouched.
    Other(i32),
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory => f.write_str("out of memory"),
            Self::OutOfHostMemory => f.write_str("out of host memory"),
            Self::Other(code) => write!(f, "backend error {code}"),
        }
    }
}

impl std::error::Error for SourceError {}

/// A backend's memory of one kind on one device.
pub trait Source: Send + Sync {
    /// Gives exactly `bytes`: a multiple of [`Source::granularity`], except where a maximum size
    /// leaves less than that. A slab that is smaller, or that breaks the maximum, is handed back at
    /// once and counts as [`SourceError::OutOfMemory`].
    fn acquire(&self, bytes: u64) -> Result<Slab, SourceError>;

    /// Takes back a slab whose every use was observed complete. Of a source with pages it may be any
    /// whole pages of what it gave; then nothing uses older addresses of theirs either, retired or
    /// not yet.
    fn release(&self, slab: Slab);

    /// The least page, a power of two in bytes: memory comes in such pages, which can be given another
    /// address; none if it cannot. All slabs of such a source start at multiples of it and have whole pages.
    fn page(&self) -> Option<u64> {
        None
    }

    /// The largest page worth having where each page has its price, a multiple of the least.
    fn largest_page(&self) -> Option<u64> {
        None
    }

    /// Gives new memory in pages of `page` bytes, a multiple of the least page, the last one smaller where
    /// `bytes` want it; from the address `after` on, if that is to be had.
    fn grow(&self, bytes: u64, page: u64, after: Option<u64>) -> Result<Slab, SourceError> {
        let _ = (page, after);
        self.acquire(bytes)
    }

    /// Gives one slab made of the memory of `pieces`, in their order, and `fresh` bytes of new memory
    /// after it in pages as [`Source::grow`] makes them. The pieces' own addresses keep leading to that
    /// memory, since work already enqueued may use them, until [`Source::retire`]. On failure everything
    /// is as it was.
    fn compact(&self, pieces: &[Slab], fresh: u64, page: u64) -> Result<Slab, SourceError> {
        let _ = (pieces, fresh, page);
        Err(SourceError::OutOfMemory)
    }

    /// Whether an address that memory has left costs next to nothing while it leads there still: then
    /// it is retired late, for it may serve again.
    fn leaves_mapped(&self) -> bool {
        false
    }

    /// Whether completion is seen only by looking for it.
    fn observes(&self) -> bool {
        false
    }

    /// Looks for completion: before more memory is asked for.
    fn observe(&self) {}

    /// The old addresses of a remapped piece, all use of which was observed complete.
    fn retire(&self, piece: Slab) {
        let _ = piece;
    }

    /// The unit in which slabs are best sized, in bytes.
    fn granularity(&self) -> u64;

    /// What every slab's base is a multiple of. A wrong promise costs memory, not correctness.
    fn alignment(&self) -> u64 {
        self.granularity()
    }
}

/// A shared source is the source.
impl<S: Source + ?Sized> Source for Arc<S> {
    fn acquire(&self, bytes: u64) -> Result<Slab, SourceError> {
        (**self).acquire(bytes)
    }

    fn release(&self, slab: Slab) {
        (**self).release(slab);
    }

    fn page(&self) -> Option<u64> {
        (**self).page()
    }

    fn largest_page(&self) -> Option<u64> {
        (**self).largest_page()
    }

    fn grow(&self, bytes: u64, page: u64, after: Option<u64>) -> Result<Slab, SourceError> {
        (**self).grow(bytes, page, after)
    }

    fn compact(&self, pieces: &[Slab], fresh: u64, page: u64) -> Result<Slab, SourceError> {
        (**self).compact(pieces, fresh, page)
    }

    fn leaves_mapped(&self) -> bool {
        (**self).leaves_mapped()
    }

    fn observes(&self) -> bool {
        (**self).observes()
    }

    fn observe(&self) {
        (**self).observe();
    }

    fn retire(&self, piece: Slab) {
        (**self).retire(piece);
    }

    fn granularity(&self) -> u64 {
        (**self).granularity()
    }

    fn alignment(&self) -> u64 {
        (**self).alignment()
    }
}

//! Semaphore words: host memory that streams wait on, so that the host can signal a point to a device.
//!
//! A word only rises, and a stream waits until it is at least a value. So a signalled word can serve
//! another point at once, even if a stream still waits for the older value.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use ur::object::Result;
use ur::sync::Mutex;

use crate::vendor::{Api, RelaxedCapture, check};

/// Bytes of one allocation from the driver.
const BLOCK_BYTES: usize = 4096;

/// The semaphore words of one context.
#[derive(Default)]
pub struct SemaphoreWords {
    state: Mutex<WordBlocks>,
}

#[derive(Default)]
struct WordBlocks {
    blocks: Vec<usize>,
    free: Vec<SemaphoreWord>,
}

/// A word, and its value once the point is signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SemaphoreWord {
    pub addr: usize,
    pub value: u32,
}

impl SemaphoreWord {
    /// The word itself.
    ///
    /// # Safety
    /// The [`SemaphoreWords`] of this word are not closed.
    unsafe fn cell<'a>(self) -> &'a AtomicU32 {
        let cell: *mut u32 = std::ptr::with_exposed_provenance_mut(self.addr);
        // SAFETY: the word is aligned, the caller keeps its block alive, and the host uses atomics only.
        unsafe { AtomicU32::from_ptr(cell) }
    }

    /// # Safety
    /// The [`SemaphoreWords`] of this word are not closed.
    pub unsafe fn signal(self) {
        // SAFETY: the caller promises that the words are not closed.
        unsafe { self.cell() }.store(self.value, Ordering::Release);
    }
}

impl SemaphoreWords {
    /// A word that was not signalled to its value yet. The context is current.
    pub fn acquire(&self, api: &Api) -> Result<SemaphoreWord> {
        let mut state = self.state.lock();
        if let Some(word) = state.free.pop() {
            return Ok(word);
        }
        let _relaxed = RelaxedCapture::new(api);
        // `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`
        let (mut start, flags): (*mut c_void, _) = (null_mut(), 3);
        // SAFETY: `start` has room for a pointer.
        let code = unsafe { (api.cuMemHostAlloc)(&mut start, BLOCK_BYTES, flags) };
        check(api, code, "cuMemHostAlloc")?;
        // SAFETY: the allocation has that size.
        unsafe { start.cast::<u8>().write_bytes(0, BLOCK_BYTES) };
        let start = start.expose_provenance();
        state.blocks.push(start);
        let words = (0..BLOCK_BYTES / size_of::<u32>()).map(|at| SemaphoreWord {
            addr: start + at * size_of::<u32>(),
            value: 1,
        });
        state.free.extend(words.skip(1));
        Ok(SemaphoreWord {
            addr: start,
            value: 1,
        })
    }

    /// Returns a signalled word for reuse.
    pub fn release(&self, word: SemaphoreWord) {
        let next = SemaphoreWord {
            value: word.value.wrapping_add(1),
            ..word
        };
        let mut state = self.state.lock();
        state.free.push(next);
    }

    /// Frees the memory. No stream waits on a word. The context is current.
    pub fn close(&mut self, api: &Api) {
        let state = self.state.get_mut();
        state.free.clear();
        for block in state.blocks.drain(..) {
            // SAFETY: allocated by `acquire`; the caller promises that no stream waits on it.
            unsafe { (api.cuMemFreeHost)(std::ptr::with_exposed_provenance_mut(block)) };
        }
    }
}

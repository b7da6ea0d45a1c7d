//! Words of host memory that streams wait for: how the host signals a point to a device.
//!
//! A word only ever rises, and a stream waits until it is at least so much. So a word that was
//! signalled may serve another point at once, whoever still waits for the older one.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use ur::object::Result;
use ur::timeline::sync::Mutex;

use crate::cu::{Api, check};

/// Bytes that are got from the driver at once.
const BLOCK_BYTES: usize = 4096;

/// The words of one context.
#[derive(Default)]
pub struct Words {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    blocks: Vec<usize>,
    free: Vec<Word>,
}

/// A word, and what it will be when the point is signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    pub addr: usize,
    pub value: u32,
}

impl Word {
    /// The word itself.
    ///
    /// # Safety
    /// The words that it is one of have not been closed.
    unsafe fn cell<'a>(self) -> &'a AtomicU32 {
        let cell: *mut u32 = std::ptr::with_exposed_provenance_mut(self.addr);
        // SAFETY: aligned memory of ours, which the host reaches through atomics alone.
        unsafe { AtomicU32::from_ptr(cell) }
    }

    /// # Safety
    /// As for `cell`.
    pub unsafe fn signal(self) {
        // SAFETY: promised by the caller.
        unsafe { self.cell() }.store(self.value, Ordering::Release);
    }
}

impl Words {
    /// A word that nobody has signalled to this value yet. The context is current.
    pub fn take(&self, api: &Api) -> Result<Word> {
        let mut state = self.state.lock();
        if let Some(word) = state.free.pop() {
            return Ok(word);
        }
        // `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`
        let (mut start, flags): (*mut c_void, _) = (null_mut(), 3);
        // SAFETY: room for a pointer.
        let code = unsafe { (api.cuMemHostAlloc)(&mut start, BLOCK_BYTES, flags) };
        check(api, code, "cuMemHostAlloc")?;
        // SAFETY: new memory of that size.
        unsafe { start.cast::<u8>().write_bytes(0, BLOCK_BYTES) };
        let start = start.expose_provenance();
        state.blocks.push(start);
        let words = (0..BLOCK_BYTES / size_of::<u32>()).map(|at| Word {
            addr: start + at * size_of::<u32>(),
            value: 1,
        });
        state.free.extend(words.skip(1));
        Ok(Word {
            addr: start,
            value: 1,
        })
    }

    /// Takes a word back that was signalled.
    pub fn give(&self, word: Word) {
        let next = Word {
            value: word.value.wrapping_add(1),
            ..word
        };
        let mut state = self.state.lock();
        state.free.push(next);
    }

    /// Gives the memory back. Nothing waits any more. The context is current.
    pub fn close(&mut self, api: &Api) {
        let state = self.state.get_mut();
        state.free.clear();
        for block in state.blocks.drain(..) {
            // SAFETY: memory of ours that nothing uses any more.
            unsafe { (api.cuMemFreeHost)(std::ptr::with_exposed_provenance_mut(block)) };
        }
    }
}

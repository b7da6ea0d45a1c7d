//! Random arguments for every table function.
//!
//! Numbers lie at the edges of the fields' ranges. Handles come from a given collection. Memory is zero, so
//! that embedded pointers are null and strings are empty.

#[allow(non_snake_case)]
#[path = "../sweep/mod.rs"]
mod sweep;

use std::ffi::c_void;
use ur::abi::*;

pub use sweep::{CALLS, Call};

/// The source of a call's arguments.
pub trait Source {
    /// A number for an enum or a flag set.
    fn number(&mut self) -> u64;
    /// A number for a size, an offset, an index or a native handle.
    fn size(&mut self) -> u64 {
        self.number()
    }
    /// The number of elements in a list.
    fn count(&mut self) -> u32;
    /// A handle: null, of any kind, or of another adapter.
    fn handle(&mut self) -> *mut c_void;
    /// A list of at least `count` handles, or null.
    fn list(&mut self) -> *mut c_void;
    /// Null, or the address of readable and writable memory.
    fn memory(&mut self) -> *mut c_void;
}

/// Arguments chosen by a list of random numbers, which is repeated.
struct Choices<'a> {
    choices: &'a [u32],
    at: usize,
    source: &'a mut ArgumentSource,
}

/// The memory that arguments can point to.
pub struct ArgumentSource {
    handles: Vec<*mut c_void>,
    lists: Vec<[*mut c_void; 4]>,
    memory: Box<[u64]>,
    /// The first so many numbers may be sizes.
    sizes: usize,
}

/// Numbers at the edges of the fields' ranges.
const NUMBERS: [u64; 12] = [
    0,
    1,
    2,
    3,
    4,
    7,
    64,
    4096,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 60,
    u64::MAX,
];
const MAX_HANDLES: u32 = 4;
/// Words of memory, zero before each call.
const CLEAR: usize = 1 << 13;
/// The sizes among the numbers that fit in the memory: all up to 4096.
const SMALL: usize = 8;

impl ArgumentSource {
    /// A collection of these handles, null and two that belong to no adapter: one with a table of null
    /// functions, one without a table.
    pub fn new(handles: Vec<*mut c_void>) -> Self {
        let mut source = Self {
            handles: Vec::new(),
            lists: Vec::new(),
            memory: vec![0; CLEAR].into_boxed_slice(),
            sizes: NUMBERS.len(),
        };
        source.replace(handles);
        source
    }

    /// A collection like that of `new`, with memory for callees that use the sizes.
    ///
    /// There is room for as many rows as a row may be wide, and some more.
    pub fn with_memory(handles: Vec<*mut c_void>) -> Self {
        let mut source = Self::new(handles);
        let most = NUMBERS[SMALL - 1] as usize;
        source.memory = vec![0; most * (most + 4) / size_of::<u64>()].into_boxed_slice();
        source.sizes = SMALL;
        source
    }

    /// Replaces the handles and keeps the memory.
    pub fn replace(&mut self, mut handles: Vec<*mut c_void>) {
        let strange: &'static ur_dditable_t = Box::leak(Box::default());
        let strange: &'static [*const c_void; 8] =
            Box::leak(Box::new([std::ptr::from_ref(strange).cast(); 8]));
        handles.push(std::ptr::null_mut());
        handles.push(strange.as_ptr().cast_mut().cast());
        let mut lists: Vec<_> = handles
            .iter()
            .map(|&handle| [handle; MAX_HANDLES as usize])
            .collect();
        lists.push([
            handles[0],
            handles[1],
            std::ptr::null_mut(),
            handles[handles.len() / 2],
        ]);
        (self.handles, self.lists) = (handles, lists);
    }

    /// The choice that makes every handle null.
    pub fn null(&self) -> u32 {
        self.handles.len() as u32 - 2
    }

    /// Calls a function of a table with arguments made from these choices.
    pub fn call(
        &mut self,
        table: &ur_dditable_t,
        call: Call,
        choices: &[u32],
    ) -> Option<ur_result_t> {
        self.memory[..CLEAR].fill(0);
        let mut source = Choices {
            choices,
            at: 0,
            source: self,
        };
        call(table, &mut source)
    }
}

impl Choices<'_> {
    fn pick(&mut self, of: usize) -> usize {
        let choice = self.choices[self.at % self.choices.len()];
        self.at += 1;
        choice as usize % of
    }
}

impl Source for Choices<'_> {
    fn number(&mut self) -> u64 {
        NUMBERS[self.pick(NUMBERS.len())]
    }

    fn size(&mut self) -> u64 {
        NUMBERS[self.pick(self.source.sizes)]
    }

    fn count(&mut self) -> u32 {
        self.pick(MAX_HANDLES as usize + 1) as u32
    }

    fn handle(&mut self) -> *mut c_void {
        let at = self.pick(self.source.handles.len());
        self.source.handles[at]
    }

    fn list(&mut self) -> *mut c_void {
        let at = self.pick(self.source.lists.len() + 1);
        self.source
            .lists
            .get_mut(at)
            .map_or(std::ptr::null_mut(), |list| list.as_mut_ptr().cast())
    }

    fn memory(&mut self) -> *mut c_void {
        if self.pick(4) == 0 {
            std::ptr::null_mut()
        } else {
            self.source.memory.as_mut_ptr().cast()
        }
    }
}

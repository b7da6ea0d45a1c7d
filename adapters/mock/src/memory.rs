//! Memory that the mock allocates: real, zeroed, and registered by its first address until it is
//! freed. Unregistered pointers are never dereferenced.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ur::abi::*;
use ur::object::{Error, Result};

use crate::objects::Handle;

/// One allocation.
pub struct Block {
    pub base: usize,
    pub size: usize,
    pub ty: ur_usm_type_t,
    pub device: Option<Arc<Handle>>,
    pub pool: Option<Arc<Handle>>,
    layout: Layout,
}

static BLOCKS: Mutex<BTreeMap<usize, Arc<Block>>> = Mutex::new(BTreeMap::new());

fn blocks() -> MutexGuard<'static, BTreeMap<usize, Arc<Block>>> {
    BLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The parameters of an allocation.
pub struct Request {
    pub size: usize,
    /// The alignment in bytes; 0 for the default.
    pub align: usize,
    pub ty: ur_usm_type_t,
    pub device: Option<Arc<Handle>>,
    pub pool: Option<Arc<Handle>>,
}

const DEFAULT_ALIGN_BYTES: usize = 64;

/// Allocates zeroed memory. Errors: `INVALID_VALUE` for an invalid alignment or size,
/// `OUT_OF_HOST_MEMORY`.
pub fn alloc(request: Request) -> Result<*mut c_void> {
    let align = request.align.max(DEFAULT_ALIGN_BYTES);
    // An empty allocation has its own address as well.
    let layout = Layout::from_size_align(request.size.max(1), align)
        .map_err(|_| Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
    // SAFETY: the layout's size is at least 1.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) };
    if memory.is_null() {
        return Err(Error::new(UR_RESULT_ERROR_OUT_OF_HOST_MEMORY));
    }
    let base = memory.expose_provenance();
    let block = Block {
        base,
        size: request.size,
        ty: request.ty,
        device: request.device,
        pool: request.pool,
        layout,
    };
    blocks().insert(base, Arc::new(block));
    Ok(memory.cast())
}

/// Frees the allocation that starts at `memory`. `INVALID_VALUE` for any other pointer.
pub fn free(memory: *const c_void) -> Result<()> {
    let block = blocks().remove(&memory.addr());
    block
        .map(drop)
        .ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))
}

/// The allocation that contains an address.
pub fn block_at(memory: *const c_void) -> Option<Arc<Block>> {
    let address = memory.addr();
    let blocks = blocks();
    let (_, block) = blocks.range(..=address).next_back()?;
    let inside = address - block.base < block.size.max(1);
    inside.then(|| Arc::clone(block))
}

impl Drop for Block {
    fn drop(&mut self) {
        let memory = std::ptr::with_exposed_provenance_mut::<u8>(self.base);
        // SAFETY: `alloc` allocated `base` with this layout, and this is the last reference.
        unsafe { std::alloc::dealloc(memory, self.layout) }
    }
}

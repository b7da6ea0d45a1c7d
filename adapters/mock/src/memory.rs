//! Memory that the mock hands out: real, zeroed, and known by its first byte's address until it is
//! freed. A pointer that is not known is never touched.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ur::abi::*;
use ur::object::{Error, Result};

use crate::objects::Handle;

/// One piece of memory.
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

/// What is asked of a piece of memory.
pub struct Request {
    pub size: usize,
    /// 0 for the usual.
    pub align: usize,
    pub ty: ur_usm_type_t,
    pub device: Option<Arc<Handle>>,
    pub pool: Option<Arc<Handle>>,
}

const USUAL_ALIGN: usize = 64;

pub fn alloc(request: Request) -> Result<*mut c_void> {
    let align = request.align.max(USUAL_ALIGN);
    // Each piece has an address of its own, also an empty one.
    let layout = Layout::from_size_align(request.size.max(1), align)
        .map_err(|_| Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
    // SAFETY: the size is not 0.
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

/// Frees a piece by its first byte; whatever else is an invalid value.
pub fn free(memory: *const c_void) -> Result<()> {
    let block = blocks().remove(&memory.addr());
    block
        .map(drop)
        .ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))
}

/// The piece that an address lies in.
pub fn around(memory: *const c_void) -> Option<Arc<Block>> {
    let address = memory.addr();
    let blocks = blocks();
    let (_, block) = blocks.range(..=address).next_back()?;
    let inside = address - block.base < block.size.max(1);
    inside.then(|| Arc::clone(block))
}

impl Drop for Block {
    fn drop(&mut self) {
        let memory = std::ptr::with_exposed_provenance_mut::<u8>(self.base);
        // SAFETY: allocated with this layout, and the last to know of it is gone.
        unsafe { std::alloc::dealloc(memory, self.layout) }
    }
}

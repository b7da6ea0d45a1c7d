//! Pools, which allocate and free in stream order.
//!
//! A block may be used after its stream has reached its allocation and before it reaches its free. Any other
//! use is recorded as an error.

use std::ffi::{c_int, c_void};

use crate::driver::*;
use crate::memory::{allocate, deallocate};
use crate::peers::{Access, Description, READ_WRITE, descriptions, device_of, grant};
use crate::stream::Command;
use crate::strict::hold_idle;

pub struct Pool {
    /// The device that owns its memory, and the access of others to it.
    home: Option<usize>,
    access: Access,
    max: usize,
    threshold: u64,
    /// Whether the pool is destroyed. It exists until its last block is free.
    dead: bool,
}

/// A block of a pool.
pub struct Block {
    pool: usize,
    bytes: usize,
    state: BlockState,
    /// Whether its free was submitted to a stream.
    freed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockState {
    /// Allocated, but not reached by its stream yet.
    Coming,
    Live,
    Free,
}

/// The fields of `CUmemPoolProps` in use: kind, location and maximum size.
#[repr(C)]
pub struct Properties {
    kind: c_int,
    handles: c_int,
    place: [c_int; 2],
    security: *mut c_void,
    max: usize,
}

const THRESHOLD: c_int = 4;
const RESERVED: c_int = 5;

impl FakeDriver {
    fn reserved(&self, pool: usize) -> usize {
        let own = self.pooled.values().filter(|block| block.pool == pool);
        own.map(|block| block.bytes).sum()
    }

    /// Releases free blocks until at most this many bytes are left.
    fn trim(&mut self, pool: usize, keep: usize) {
        while self.reserved(pool) > keep {
            let free = self
                .pooled
                .iter()
                .find(|(_, block)| block.pool == pool && block.state == BlockState::Free);
            let Some(at) = free.map(|(at, _)| *at) else {
                return;
            };
            if let Some(block) = self.pooled.remove(&at) {
                deallocate(at, block.bytes);
            }
        }
    }

    /// Releases memory as the driver does after a host wait.
    pub fn trim_pools(&mut self) {
        let all: Vec<_> = self
            .pools
            .iter()
            .map(|(name, pool)| (*name, pool.threshold))
            .collect();
        for (name, threshold) in all {
            self.trim(name, usize::try_from(threshold).unwrap_or(usize::MAX));
        }
    }

    /// Called when a stream has reached the allocation or the free of a block.
    pub fn change_block(&mut self, at: usize, free: bool) {
        let Some(block) = self.pooled.get_mut(&at) else {
            return;
        };
        let (pool, bytes) = (block.pool, block.bytes);
        block.state = if free {
            BlockState::Free
        } else {
            BlockState::Live
        };
        if free {
            let start: *mut u8 = std::ptr::with_exposed_provenance_mut(at);
            // SAFETY: a block of the pool without another user.
            unsafe { start.write_bytes(0xdb, bytes) };
            self.bury(pool);
        }
    }

    /// Allocates from a pool.
    ///
    /// # Safety
    /// `start` has room.
    unsafe fn serve(
        &mut self,
        start: *mut u64,
        bytes: usize,
        name: usize,
        stream: *mut c_void,
    ) -> u32 {
        self.pump();
        let Some(max) = self.pools.get(&name).map(|pool| pool.max) else {
            return code(self.broken("memory of a dead pool"));
        };
        let Some(bytes) = bytes
            .checked_next_multiple_of(PAGE)
            .filter(|bytes| *bytes > 0)
        else {
            return OUT_OF_MEMORY;
        };
        let again = self.pooled.iter().find(|(_, block)| {
            (block.pool, block.bytes, block.state) == (name, bytes, BlockState::Free)
        });
        let at = match again.map(|(at, _)| *at) {
            Some(at) => at,
            None => {
                self.trim(name, max.saturating_sub(bytes));
                let fits = self
                    .reserved(name)
                    .checked_add(bytes)
                    .is_some_and(|sum| sum <= max);
                let Some(at) = fits.then(|| allocate(bytes)).flatten() else {
                    return OUT_OF_MEMORY;
                };
                at
            }
        };
        let new = Block {
            pool: name,
            bytes,
            state: BlockState::Coming,
            freed: false,
        };
        self.pooled.insert(at, new);
        // SAFETY: the driver's interface promises room for each output.
        unsafe { start.write(at as u64) };
        code(self.submit(stream.addr(), Command::ChangeBlock { at, free: false }))
    }

    /// Removes a destroyed pool when its last block is free.
    fn bury(&mut self, name: usize) {
        let used = |block: &Block| block.pool == name && block.state != BlockState::Free;
        let dead = self.pools.get(&name).is_some_and(|pool| pool.dead);
        if dead && !self.pooled.values().any(used) {
            self.trim(name, 0);
            self.pools.remove(&name);
        }
    }

    /// The home of a pool's block at an address, and the access of devices to it.
    pub fn pooled_access(&self, at: usize) -> Option<(usize, Access)> {
        let (start, block) = self.pooled.range(..=at).next_back()?;
        let pool = self.pools.get(&block.pool)?;
        let home = pool.home.filter(|_| at - start < block.bytes)?;
        Some((home, pool.access))
    }

    /// Records an error if a command uses a block outside its life.
    pub fn touch(&mut self, at: usize) {
        let found = self.pooled.range(..=at).next_back();
        if let Some((start, block)) = found
            && at - start < block.bytes
            && block.state != BlockState::Live
        {
            let _ = self.broken::<()>("use of memory that is not allocated then");
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolCreate(pool: *mut *mut c_void, what: *const Properties) -> u32 {
    let mut driver = hold_idle(None);
    if let Some(code) = driver.called("cuMemPoolCreate") {
        return code;
    }
    // SAFETY: the caller passes readable properties.
    let what = unsafe { &*what };
    // Pinned memory of a device or the host, and managed memory without a location.
    if ![(1, 1), (1, 2), (2, 0)].contains(&(what.kind, what.place[0])) || what.handles != 0 {
        return INVALID_VALUE;
    }
    let name = driver.name();
    let home = (what.place[0] == 1).then_some(what.place[1] as usize);
    let mut access = [0; MAX_DEVICES];
    if let Some(home) = home {
        access[home] = READ_WRITE;
    }
    let new = Pool {
        home,
        access,
        max: if what.max == 0 { 1 << 30 } else { what.max },
        threshold: 0,
        dead: false,
    };
    driver.pools.insert(name, new);
    // SAFETY: room for a handle, as for all outputs here.
    unsafe { pool.write(std::ptr::without_provenance_mut(name)) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolDestroy(pool: *mut c_void) -> u32 {
    let (mut driver, name) = (hold(), pool.addr());
    driver.pump();
    match driver.pools.get_mut(&name) {
        Some(pool) if !pool.dead => {
            pool.dead = true;
            driver.bury(name);
            SUCCESS
        }
        _ => code(driver.broken("a pool destroyed twice")),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolSetAttribute(
    pool: *mut c_void,
    what: c_int,
    value: *mut c_void,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.called("cuMemPoolSetAttribute") {
        return code;
    }
    match driver.pools.get_mut(&pool.addr()) {
        Some(pool) if what == THRESHOLD => {
            // SAFETY: the attribute is a number of this size.
            pool.threshold = unsafe { value.cast::<u64>().read() };
            SUCCESS
        }
        Some(_) => INVALID_VALUE,
        None => code(driver.broken("an attribute of a dead pool")),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolGetAttribute(
    pool: *mut c_void,
    what: c_int,
    value: *mut c_void,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.called("cuMemPoolGetAttribute") {
        return code;
    }
    driver.pump();
    let bytes = match (driver.pools.get(&pool.addr()), what) {
        (Some(pool), THRESHOLD) => pool.threshold,
        (Some(_), RESERVED) => driver.reserved(pool.addr()) as u64,
        (Some(_), _) => return INVALID_VALUE,
        (None, _) => return code(driver.broken("an attribute of a dead pool")),
    };
    // SAFETY: the driver's interface promises room for each output.
    unsafe { value.cast::<u64>().write(bytes) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolSetAccess(
    pool: *mut c_void,
    who: *const Description,
    count: usize,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.called("cuMemPoolSetAccess") {
        return code;
    }
    driver.pump();
    // SAFETY: the caller passes as many descriptions as it says.
    let who = unsafe { descriptions(who, count) };
    let Some(home) = driver.pools.get(&pool.addr()).map(|pool| pool.home) else {
        return code(driver.broken("access to a dead pool"));
    };
    if !driver.can_have(home, who) {
        return INVALID_VALUE;
    }
    if let Some(pool) = driver.pools.get_mut(&pool.addr()) {
        grant(&mut pool.access, who);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolTrimTo(pool: *mut c_void, keep: usize) -> u32 {
    let mut driver = hold_idle(None);
    if let Some(code) = driver.called("cuMemPoolTrimTo") {
        return code;
    }
    driver.pump();
    driver.trim(pool.addr(), keep);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocFromPoolAsync(
    start: *mut u64,
    bytes: usize,
    pool: *mut c_void,
    stream: *mut c_void,
) -> u32 {
    let (mut driver, name) = (hold(), pool.addr());
    if let Some(code) = driver.acts("cuMemAllocFromPoolAsync") {
        return code;
    }
    // SAFETY: the driver's interface promises room for each output.
    unsafe { driver.serve(start, bytes, name, stream) }
}

/// From a pool that is the block's alone, and ends with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(
    start: *mut u64,
    bytes: usize,
    stream: *mut c_void,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuMemAllocAsync") {
        return code;
    }
    let context = driver.context_of_stream(stream).unwrap_or_else(current);
    let (home, name) = (device_of(context), driver.name());
    let mut access = [0; MAX_DEVICES];
    access[home] = READ_WRITE;
    let pool = Pool {
        home: Some(home),
        access,
        max: usize::MAX,
        threshold: 0,
        dead: true,
    };
    driver.pools.insert(name, pool);
    // SAFETY: the driver's interface promises room for each output.
    let code = unsafe { driver.serve(start, bytes, name, stream) };
    if code != SUCCESS {
        driver.pools.remove(&name);
    }
    code
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeAsync(start: u64, stream: *mut c_void) -> u32 {
    let (mut driver, at) = (hold(), start as usize);
    if let Some(code) = driver.acts("cuMemFreeAsync") {
        return code;
    }
    let context = driver.context_of_stream(stream).unwrap_or_else(current);
    let home = driver.pooled_access(at).map(|(home, _)| home);
    if home.is_some_and(|home| home != device_of(context)) {
        return code(driver.broken("a block of a pool freed on another device"));
    }
    match driver.pooled.get_mut(&at) {
        Some(block) if !block.freed => {
            block.freed = true;
            code(driver.submit(stream.addr(), Command::ChangeBlock { at, free: true }))
        }
        _ => code(driver.broken("a block of a pool freed twice")),
    }
}

//! Memory of CUDA graphs: blocks that a capture allocates stay with the graph's pool.
//!
//! A graph uses its addresses in each replay, and a stream under capture accepts no query. So such a block is a
//! live allocation of the device's pool until the graph's pool is released. Between two uses it waits in a
//! list of its pool, stream and size: the order of the captured stream is the order of its uses.
//!
//! | block | moves to | when |
//! |---|---|---|
//! | live | idle | it is freed, and only its own stream has used it |
//! | live | parked | it is freed, and other streams have used it |
//! | idle | live | the same stream allocates that size in a capture for the same pool |
//! | idle, parked | retired | the last user of the pool releases it |
//! | retired | free memory of the device's pool | no capture is open; the device is waited for |

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::api::{Place, Ur};
use crate::failure::Result;

/// PyTorch's name of a pool.
pub type PoolId = (u64, u64);

/// The least number of bytes by which sizes of blocks differ.
const GRANULARITY_BYTES: usize = 512;

/// A size is rounded to this part of the power of two above it.
const STEPS_PER_POWER_OF_TWO: usize = 8;

/// Memory to be freed.
#[derive(Debug)]
pub struct Freed {
    pub memory: usize,
    /// The stream that it was allocated on.
    pub stream: usize,
    /// Streams that were recorded for it.
    pub used_by: Vec<usize>,
}

/// Blocks that can serve each other's requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Class {
    pool: PoolId,
    stream: usize,
    bytes: usize,
}

#[derive(Default)]
struct CapturePools {
    /// The pools of open captures, the last one last.
    open: Vec<PoolId>,
    /// Number of users of each pool.
    users: HashMap<PoolId, usize>,
    live: HashMap<usize, Class>,
    idle: HashMap<Class, Vec<usize>>,
    parked: HashMap<PoolId, Vec<usize>>,
    retired: Vec<usize>,
    /// Frees on captured streams of memory from before the capture.
    deferred: Vec<Freed>,
}

pub struct Captures {
    ur: &'static Ur,
    at: Place,
    /// Number of open captures.
    open: AtomicUsize,
    /// Number of live blocks.
    live: AtomicUsize,
    state: Mutex<CapturePools>,
}

impl Captures {
    pub fn new(ur: &'static Ur, at: Place) -> Self {
        Self {
            ur,
            at,
            open: AtomicUsize::new(0),
            live: AtomicUsize::new(0),
            state: Mutex::default(),
        }
    }

    #[inline]
    pub fn are_open(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// Whether no capture is open, and no block of a graph is live.
    #[inline]
    pub fn are_unused(&self) -> bool {
        self.live.load(Ordering::Acquire) == 0 && !self.are_open()
    }

    /// Begins allocations for a pool, by one more user of it.
    pub fn begin(&self, pool: PoolId) {
        let mut state = self.state();
        state.open.push(pool);
        *state.users.entry(pool).or_default() += 1;
        self.open.store(state.open.len(), Ordering::Release);
    }

    /// Ends allocations for a pool. Returns the frees that can be made now.
    pub fn end(&self, pool: PoolId) -> Vec<Freed> {
        let mut state = self.state();
        if let Some(at) = state.open.iter().rposition(|open| *open == pool) {
            state.open.remove(at);
        }
        self.open.store(state.open.len(), Ordering::Release);
        match state.open.is_empty() {
            true => std::mem::take(&mut state.deferred),
            false => Vec::new(),
        }
    }

    /// Ends one use of a pool. After the last one its idle blocks are returned to the device's pool.
    pub fn release(&self, pool: PoolId) -> Result<()> {
        {
            let mut state = self.state();
            let Some(users) = state.users.get_mut(&pool) else {
                return Ok(());
            };
            *users -= 1;
            if *users > 0 {
                return Ok(());
            }
            state.users.remove(&pool);
            let parked = state.parked.remove(&pool).unwrap_or_default();
            state.retired.extend(parked);
            let CapturePools { idle, retired, .. } = &mut *state;
            idle.retain(|class, blocks| {
                if class.pool == pool {
                    retired.append(blocks);
                }
                class.pool != pool
            });
        }
        self.reclaim()
    }

    /// Returns the blocks of released pools to the device's pool, unless a capture forbids to wait.
    pub fn reclaim(&self) -> Result<()> {
        let retired = {
            let mut state = self.state();
            if state.retired.is_empty() || !state.open.is_empty() {
                return Ok(());
            }
            std::mem::take(&mut state.retired)
        };
        // A replay of the graph may be pending, on any stream.
        self.ur.wait(self.at)?;
        retired
            .into_iter()
            .try_for_each(|memory| self.ur.free_now(self.at, memory))
    }

    /// A block for a stream under capture.
    pub fn alloc(&self, stream: usize, bytes: usize) -> Result<*mut c_void> {
        let mut state = self.state();
        let class = Class {
            pool: state.open.last().copied().unwrap_or_default(),
            stream,
            bytes: rounded(bytes),
        };
        let idle = state.idle.get_mut(&class).and_then(Vec::pop);
        let memory = match idle {
            Some(memory) => std::ptr::with_exposed_provenance_mut(memory),
            None => self.ur.alloc_now(self.at, class.bytes)?,
        };
        state.live.insert(memory.expose_provenance(), class);
        self.live.store(state.live.len(), Ordering::Release);
        Ok(memory)
    }

    /// Takes the free of a block of a graph, or one that the end of the captures must come before. Returns any
    /// other one.
    pub fn free(&self, freed: Freed) -> Option<Freed> {
        if self.are_unused() {
            return Some(freed);
        }
        let mut state = self.state();
        let class = state.live.remove(&freed.memory);
        self.live.store(state.live.len(), Ordering::Release);
        match class {
            Some(class) if state.users.contains_key(&class.pool) => {
                let alone = freed.used_by.iter().all(|stream| *stream == class.stream);
                let list = match alone {
                    true => state.idle.entry(class).or_default(),
                    false => state.parked.entry(class.pool).or_default(),
                };
                list.push(freed.memory);
                None
            }
            // A graph's output that lives longer than the graph.
            Some(_) if state.open.is_empty() => {
                state.retired.push(freed.memory);
                None
            }
            _ => {
                let is_captured = |stream: &usize| self.ur.is_captured(*stream);
                let captured = !state.open.is_empty()
                    && (is_captured(&freed.stream) || freed.used_by.iter().any(is_captured));
                if captured {
                    state.deferred.push(freed);
                    return None;
                }
                Some(freed)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, CapturePools> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of a block that serves a request.
fn rounded(bytes: usize) -> usize {
    let step = bytes.checked_next_power_of_two().unwrap_or(bytes) / STEPS_PER_POWER_OF_TWO;
    let step = step.max(GRANULARITY_BYTES);
    bytes.checked_next_multiple_of(step).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn a_size_is_rounded_by_less_than_an_eighth_of_its_power_of_two() {
        let expected = [
            (1, 512),
            (512, 512),
            (513, 1024),
            (4097, 5120),
            (1 << 20, 1 << 20),
            ((1 << 20) + 1, (1 << 20) + (1 << 18)),
            (usize::MAX, usize::MAX),
        ];
        for (bytes, block) in expected {
            assert_eq!(rounded(bytes), block, "{bytes}");
        }
    }
}

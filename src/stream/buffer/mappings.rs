//! The host's mappings of a buffer. A mapping is the buffer's own host memory, or a copy in host memory of the context's
//! pools.

use crate::abi::*;
use crate::object::{Error, Object, Result};
use crate::stream::{Context, Driver, Kind};
use crate::sync::Mutex;
use std::sync::Arc;

#[derive(Default)]
pub struct Mappings {
    current: Mutex<Vec<Mapping>>,
    /// Memory of the pools whose mappings have ended.
    ended: Mutex<Vec<Arc<EndedMapping>>>,
}

struct Mapping {
    at: usize,
    offset: usize,
    bytes: usize,
    writes: bool,
    /// Whether it is memory of the pools.
    is_copy: bool,
}

/// A mapping that has ended. The command that copies it back holds it until its submission, and with it the memory.
pub struct EndedMapping {
    pub at: usize,
    /// The range of the buffer.
    pub offset: usize,
    pub bytes: usize,
    /// Whether the host may have written there.
    pub writes: bool,
}

impl Mappings {
    /// Begins a mapping of a range. `host` is the address of host memory that has the range, 0 for none. Returns the
    /// mapping's address, and whether the host sees the buffer's contents there.
    pub fn map<D: Driver>(
        &self,
        context: &Object<Context<D>>,
        flags: ur_map_flags_t,
        (offset, bytes): (usize, usize),
        host: usize,
    ) -> Result<(usize, bool)> {
        self.free_ended(context);
        let is_copy = host == 0;
        let at = match is_copy {
            true => Context::alloc_now(context, Kind::Host, None, None, None, bytes)?
                .expose_provenance(),
            false => host,
        };
        let invalidates = flags.contains(UR_MAP_FLAG_WRITE_INVALIDATE_REGION);
        self.current.lock().push(Mapping {
            at,
            offset,
            bytes,
            writes: flags.contains(UR_MAP_FLAG_WRITE) || invalidates,
            is_copy,
        });
        Ok((at, !invalidates))
    }

    /// Ends the last mapping at an address. `INVALID_VALUE` if there is none.
    pub fn unmap<D: Driver>(
        &self,
        context: &Object<Context<D>>,
        at: usize,
    ) -> Result<Arc<EndedMapping>> {
        self.free_ended(context);
        let mut current = self.current.lock();
        let found = current.iter().rposition(|mapping| mapping.at == at);
        let found = found.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
        let mapping = current.swap_remove(found);
        drop(current);
        let ended = Arc::new(EndedMapping {
            at,
            offset: mapping.offset,
            bytes: mapping.bytes,
            writes: mapping.writes,
        });
        if mapping.is_copy {
            self.ended.lock().push(Arc::clone(&ended));
        }
        Ok(ended)
    }

    /// Frees the memory of mappings whose last command was submitted. A free is ordered behind all submitted work. The
    /// command itself runs under its lane's lock, where no memory may be freed.
    fn free_ended<D: Driver>(&self, context: &Object<Context<D>>) {
        let unused = |ended: &mut Arc<EndedMapping>| Arc::strong_count(ended) == 1;
        let all: Vec<_> = self.ended.lock().extract_if(.., unused).collect();
        for ended in all {
            context.free_buffer(ended.at);
        }
    }

    /// Frees the memory of all mappings, with the buffer.
    pub fn clear<D: Driver>(&mut self, context: &Object<Context<D>>) {
        let current = std::mem::take(self.current.get_mut()).into_iter();
        let copies = current.filter(|mapping| mapping.is_copy);
        let ended = std::mem::take(self.ended.get_mut()).into_iter();
        let all = copies.map(|mapping| mapping.at);
        for at in all.chain(ended.map(|ended| ended.at)) {
            context.free_buffer(at);
        }
    }
}

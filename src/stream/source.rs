//! Where the pools' slabs come from: the driver, or one block that the user gave.

use super::pool_core::{Gauge, PoolCore};
use super::{Domain, Driver, Kind};
use crate::abi::*;
use crate::object::Object;
use crate::pool::{Slab, Source, SourceError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Memory of one kind on one device, for one pool.
pub(crate) struct SlabSource<D: Driver> {
    pub domain: Arc<Domain<D>>,
    pub core: Weak<PoolCore<D>>,
    pub part: usize,
    pub device: Option<Arc<Object<D::Device>>>,
    pub kind: Kind,
    pub zeroed: bool,
    /// What the whole pool may reserve, over all its kinds.
    pub budget: Arc<Gauge>,
    pub user: Option<UserBlock>,
}

/// The block behind a pool over user memory.
pub(crate) struct UserBlock {
    pub base: usize,
    pub bytes: usize,
    pub taken: AtomicBool,
}

impl<D: Driver> Source for SlabSource<D> {
    fn acquire(&self, bytes: u64) -> Result<Slab, SourceError> {
        let slab = match &self.user {
            Some(block) => block.take(bytes, &self.budget)?,
            None => self.ask_driver(bytes)?,
        };
        let core = Weak::clone(&self.core);
        self.domain
            .memory
            .add_slab(slab.base, slab.bytes, self.user.is_some(), core, self.part);
        Ok(slab)
    }

    fn release(&self, slab: Slab) {
        self.domain
            .memory
            .remove_slab(slab.base, self.user.is_some(), &self.core);
        match &self.user {
            Some(block) => block.taken.store(false, Ordering::Release),
            None => {
                D::release(
                    &self.domain,
                    self.kind,
                    slab.base as usize,
                    slab.bytes as usize,
                );
            }
        }
        self.budget.sub(slab.bytes);
    }

    fn granularity(&self) -> u64 {
        match &self.user {
            Some(_) => 1,
            None => D::granularity(self.device.as_deref(), self.kind).max(1) as u64,
        }
    }

    fn alignment(&self) -> u64 {
        match &self.user {
            Some(block) => 1 << block.base.trailing_zeros().min(20),
            None => self.granularity(),
        }
    }
}

impl<D: Driver> SlabSource<D> {
    fn ask_driver(&self, bytes: u64) -> Result<Slab, SourceError> {
        let size = usize::try_from(bytes).map_err(|_| SourceError::OutOfMemory)?;
        if !self.budget.add(bytes) {
            return Err(SourceError::OutOfMemory);
        }
        let device = self.device.as_deref();
        match D::acquire(&self.domain, device, self.kind, size, self.zeroed) {
            Ok(addr) => Ok(Slab {
                base: addr as u64,
                bytes,
            }),
            Err(error) => {
                self.budget.sub(bytes);
                Err(match error.code() {
                    UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY
                    | UR_RESULT_ERROR_OUT_OF_HOST_MEMORY
                    | UR_RESULT_ERROR_OUT_OF_RESOURCES => SourceError::OutOfMemory,
                    code => SourceError::Other(code.0 as i32),
                })
            }
        }
    }
}

impl UserBlock {
    fn take(&self, bytes: u64, budget: &Gauge) -> Result<Slab, SourceError> {
        let whole = self.bytes as u64;
        if bytes > whole || self.taken.swap(true, Ordering::AcqRel) {
            return Err(SourceError::OutOfMemory);
        }
        budget.add(whole);
        Ok(Slab {
            base: self.base as u64,
            bytes: whole,
        })
    }
}

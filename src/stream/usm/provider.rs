//! Where the pools' slabs come from: the driver, or one block that the user gave.

use crate::abi::*;
use crate::object::{Error, Object};
use crate::pool::{ProviderError, Slab, SlabProvider};
use crate::stream::usm::paged::Paged;
use crate::stream::usm::pool_core::{Gauge, PoolCore};
use crate::stream::{Domain, Driver, Kind};
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
    /// Reserved bytes of the whole pool, over all kinds, with their maximum.
    pub budget: Arc<Gauge>,
    pub user: Option<UserBlock>,
    /// Where the driver's memory can be mapped anywhere.
    pub paged: Option<Paged<D>>,
}

/// The block behind a pool over user memory.
pub(crate) struct UserBlock {
    pub base: usize,
    pub bytes: usize,
    pub taken: AtomicBool,
}

impl<D: Driver> SlabProvider for SlabSource<D> {
    fn acquire(&self, bytes: u64) -> Result<Slab, ProviderError> {
        if let Some(paged) = &self.paged {
            return self.pages(paged, &[], (bytes, paged.page() as u64), None);
        }
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
        if let Some(paged) = &self.paged {
            paged.release(slab);
            self.budget.sub(slab.bytes);
            return;
        }
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

    fn leaves_mapped(&self) -> bool {
        D::LEAVES_MAPPED
    }

    fn maps_once(&self) -> bool {
        D::MAPS_ONCE
    }

    fn observes(&self) -> bool {
        !D::TRACKS && !self.domain.engine().is_deterministic()
    }

    fn observe(&self) {
        self.domain.observe();
    }

    fn granularity(&self) -> u64 {
        match &self.user {
            Some(_) => 1,
            None => D::granularity(self.device.as_deref(), self.kind).max(1) as u64,
        }
    }

    fn page(&self) -> Option<u64> {
        self.paged.as_ref().map(|paged| paged.page() as u64)
    }

    fn largest_page(&self) -> Option<u64> {
        Some(self.paged.as_ref()?.largest_page()? as u64)
    }

    fn map(
        &self,
        pieces: &[Slab],
        fresh: u64,
        page: u64,
        after: Option<u64>,
    ) -> Result<Slab, ProviderError> {
        match &self.paged {
            Some(paged) => self.pages(paged, pieces, (fresh, page), after),
            None => self.acquire(fresh),
        }
    }

    fn retire(&self, piece: Slab) {
        if let Some(paged) = &self.paged {
            paged.retire(piece);
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
    /// Memory of these pieces and so many new bytes, in pages of such a size.
    fn pages(
        &self,
        paged: &Paged<D>,
        pieces: &[Slab],
        (fresh, page): (u64, u64),
        after: Option<u64>,
    ) -> Result<Slab, ProviderError> {
        if !self.budget.add(fresh) {
            return Err(ProviderError::OutOfMemory);
        }
        let window = |slab: Slab| {
            let core = Weak::clone(&self.core);
            let memory = &self.domain.memory;
            memory.add_slab(slab.base, slab.bytes, false, core, self.part);
        };
        let made = paged.map(pieces, (fresh, page), after, &window);
        made.map_err(|error| {
            self.budget.sub(fresh);
            source_error(&error)
        })
    }

    fn ask_driver(&self, bytes: u64) -> Result<Slab, ProviderError> {
        let size = usize::try_from(bytes).map_err(|_| ProviderError::OutOfMemory)?;
        if !self.budget.add(bytes) {
            return Err(ProviderError::OutOfMemory);
        }
        let device = self.device.as_deref();
        match D::acquire(&self.domain, device, self.kind, size, self.zeroed) {
            Ok(addr) => Ok(Slab::new(addr as u64, bytes)),
            Err(error) => {
                self.budget.sub(bytes);
                Err(source_error(&error))
            }
        }
    }
}

impl<D: Driver> Drop for SlabSource<D> {
    fn drop(&mut self) {
        if let Some(paged) = &self.paged {
            let memory = &self.domain.memory;
            paged.close(&|slab| memory.remove_slab(slab.base, false, &self.core));
        }
    }
}

fn source_error(error: &Error) -> ProviderError {
    match error.code() {
        UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY
        | UR_RESULT_ERROR_OUT_OF_HOST_MEMORY
        | UR_RESULT_ERROR_OUT_OF_RESOURCES => ProviderError::OutOfMemory,
        code => ProviderError::Other(code.0 as i32),
    }
}

impl UserBlock {
    fn take(&self, bytes: u64, budget: &Gauge) -> Result<Slab, ProviderError> {
        let whole = self.bytes as u64;
        if bytes > whole || self.taken.swap(true, Ordering::AcqRel) {
            return Err(ProviderError::OutOfMemory);
        }
        budget.add(whole);
        Ok(Slab::new(self.base as u64, whole))
    }
}

//! Memory beyond the pools: blocks that other processes open, and memory of the host's that devices reach.

use crate::abi::*;
use crate::object::{Error, Object, Result, ensure};
use crate::stream::usm::domain::Domain;
use crate::stream::usm::foreign_ranges::{ForeignRange, RangeOwner};
use crate::stream::usm::memory::AddressExtent;
use crate::stream::{Context, Driver, Kind};
use std::sync::{Arc, Weak};

/// A block of device memory that other processes may open. Until it is dropped, a free of the block has no
/// effect on its memory, and its pages stay where they are.
pub struct ExportedBlock<D: Driver> {
    domain: Weak<Domain<D>>,
    start: u64,
    pub device: Arc<Object<D::Device>>,
    /// Bytes from the first page's start to the block's.
    pub offset: usize,
    /// Bytes of the allocation as requested.
    pub bytes: usize,
    /// The driver's name of each page and its bytes, in order. Empty if the memory has no pages.
    pub pages: Vec<(u64, usize)>,
}

impl<D: Driver> Drop for ExportedBlock<D> {
    fn drop(&mut self) {
        // A context that has ended has no blocks.
        if let Some(domain) = self.domain.upgrade() {
            domain.memory.unpin(self.start);
        }
    }
}

impl<D: Driver> Context<D> {
    /// Lets other processes open the allocation of device memory that starts at `addr`. `INVALID_VALUE` if
    /// none does.
    pub fn export_block(&self, addr: usize) -> Result<ExportedBlock<D>> {
        let domain = self.domain();
        domain.engine().check()?;
        let found = domain.memory.find(addr);
        let found = found.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
        let (part, block) = (found.part(), found.block);
        let starts = part.kind == Kind::Device && block.addr == addr as u64;
        ensure(starts, UR_RESULT_ERROR_INVALID_VALUE)?;
        let device = part.device.clone();
        let device = device.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
        // Pages stay where they are from here on, so that they are read after.
        domain.memory.pin(block.addr);
        let mut exported = ExportedBlock {
            domain: Arc::downgrade(domain),
            start: block.addr,
            device,
            offset: 0,
            bytes: block.requested as usize,
            pages: Vec::new(),
        };
        let pages = domain.memory.pages_at(&block).unwrap_or_default();
        if let Some((first, _)) = pages.first() {
            exported.offset = (block.addr - first) as usize;
        }
        let named = pages.iter();
        exported.pages = named
            .map(|(_, page)| (page.name, page.bytes as usize))
            .collect();
        Ok(exported)
    }

    /// Bytes from an address to the end of its allocation. None if it is no memory of the context's,
    /// `INVALID_VALUE` if it is no allocation's.
    pub fn room_at(&self, addr: usize) -> Result<Option<usize>> {
        let memory = &self.domain().memory;
        if let Some(found) = memory.find(addr) {
            let block = &found.block;
            let room = (block.addr + block.requested).checked_sub(addr as u64);
            let room = room.filter(|room| *room > 0);
            let none = Error::new(UR_RESULT_ERROR_INVALID_VALUE);
            return room.map(|room| Some(room as usize)).ok_or(none);
        }
        let foreign = memory
            .foreign
            .find(addr, |start, range| start + range.bytes - addr);
        match foreign {
            Some(room) => Ok(Some(room)),
            None => {
                let free = matches!(memory.extent(addr), AddressExtent::Free);
                ensure(!free, UR_RESULT_ERROR_INVALID_VALUE)?;
                Ok(None)
            }
        }
    }

    /// Tells the context of device memory that the backend allocated or opened beside the pools.
    pub fn add_foreign(&self, addr: usize, bytes: usize, device: &Object<D::Device>) -> Result<()> {
        let range = ForeignRange {
            bytes,
            kind: Kind::Device,
            device: Some(device.arc()),
            owner: RangeOwner::Backend,
        };
        self.domain().memory.foreign.add(addr, range)
    }

    /// `INVALID_VALUE` if the context was told of no such memory.
    pub fn remove_foreign(&self, addr: usize) -> Result<()> {
        let foreign = &self.domain().memory.foreign;
        foreign.remove(addr, RangeOwner::Backend)
    }

    /// `urUSMHostAllocRegisterExp`. `INVALID_VALUE` if a registered range overlaps.
    pub fn register_host(
        &self,
        addr: usize,
        bytes: usize,
        properties: Option<&ur_exp_usm_host_alloc_register_properties_t>,
    ) -> Result<()> {
        ensure(D::REGISTERS, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        let domain = self.domain();
        domain.engine().check()?;
        let flags = properties.map_or_else(Default::default, |properties| properties.flags);
        let read_only = flags.contains(UR_EXP_USM_HOST_ALLOC_REGISTER_FLAG_READ_ONLY);
        let range = ForeignRange {
            bytes,
            kind: Kind::Host,
            device: None,
            owner: RangeOwner::Registered,
        };
        let foreign = &domain.memory.foreign;
        foreign.add(addr, range)?;
        D::register_host(domain, addr, bytes, read_only).inspect_err(|_| {
            // Added just now.
            let _ = foreign.remove(addr, RangeOwner::Registered);
        })
    }

    /// `urUSMHostAllocUnregisterExp`. `INVALID_VALUE` if no registered range starts at `addr`.
    pub fn unregister_host(&self, addr: usize) -> Result<()> {
        ensure(D::REGISTERS, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        let domain = self.domain();
        domain.engine().check()?;
        let foreign = &domain.memory.foreign;
        foreign.remove(addr, RangeOwner::Registered)?;
        D::unregister_host(domain, addr);
        Ok(())
    }

    /// Ends the registrations that the caller has left.
    pub(crate) fn unregister_all(&self) {
        let domain = self.domain();
        for addr in domain.memory.foreign.take(RangeOwner::Registered) {
            D::unregister_host(domain, addr);
        }
    }
}

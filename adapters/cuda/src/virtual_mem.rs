//! Address ranges and the memory behind them, as the caller arranges them.
//!
//! The driver maps a piece of memory as a whole only, so physical memory is one piece a page. Where
//! nothing is mapped nothing can be accessed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ur::abi::*;
use ur::hal::{self, PhysicalMemInfo};
use ur::object::{Body, Error, InfoOut, Kind, Object, Result, ensure};
use ur::stream::Context;

use crate::Cuda;
use crate::cu::sys::CUmemAccess_flags;
use crate::device::Device;
use crate::exec::{Gpu, Pages};

/// The ranges of one context.
#[derive(Default)]
pub struct AddressSpace {
    ranges: Mutex<BTreeMap<usize, Range>>,
}

struct Range {
    bytes: usize,
    gpu: Arc<Gpu>,
    /// What is mapped, by its start.
    maps: BTreeMap<usize, Map>,
}

struct Map {
    bytes: usize,
    access: ur_virtual_mem_access_flags_t,
    /// The pages, which live on while they are mapped, and the device that they are of.
    pages: Vec<Arc<Page>>,
}

/// One page of physical memory.
struct Page {
    gpu: Arc<Gpu>,
    handle: u64,
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(pages) = self.gpu.pages {
            pages.destroy(self.handle);
        }
    }
}

pub fn pages(gpu: &Gpu) -> Result<Pages> {
    gpu.pages.ok_or(Error::unsupported())
}

fn native(access: ur_virtual_mem_access_flags_t) -> Result<CUmemAccess_flags> {
    use CUmemAccess_flags::*;
    match access {
        UR_VIRTUAL_MEM_ACCESS_FLAG_NONE => Ok(CU_MEM_ACCESS_FLAGS_PROT_NONE),
        UR_VIRTUAL_MEM_ACCESS_FLAG_READ_WRITE => Ok(CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
        UR_VIRTUAL_MEM_ACCESS_FLAG_READ_ONLY => Ok(CU_MEM_ACCESS_FLAGS_PROT_READ),
        _ => Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE)),
    }
}

fn check_size(pages: &Pages, bytes: usize) -> Result<()> {
    let whole = bytes > 0 && bytes.is_multiple_of(pages.bytes);
    ensure(whole, UR_RESULT_ERROR_INVALID_SIZE)
}

impl AddressSpace {
    pub fn reserve(&self, gpu: &Arc<Gpu>, hint: usize, bytes: usize) -> Result<usize> {
        let pages = pages(gpu)?;
        check_size(&pages, bytes)?;
        let start = pages.reserve(gpu.api, hint, bytes)?;
        let range = Range {
            bytes,
            gpu: Arc::clone(gpu),
            maps: BTreeMap::new(),
        };
        self.lock().insert(start, range);
        Ok(start)
    }

    pub fn free(&self, start: usize, bytes: usize) -> Result<()> {
        let mut ranges = self.lock();
        let whole = ranges
            .get(&start)
            .is_some_and(|range| range.bytes == bytes && range.maps.is_empty());
        ensure(whole, UR_RESULT_ERROR_INVALID_VALUE)?;
        if let Some(range) = ranges.remove(&start) {
            pages(&range.gpu)?.unreserve(start, bytes);
        }
        Ok(())
    }

    pub fn map(
        &self,
        start: usize,
        bytes: usize,
        memory: &PhysicalMem,
        offset: usize,
        access: ur_virtual_mem_access_flags_t,
    ) -> Result<()> {
        let (gpu, wanted) = (&memory.gpu, native(access)?);
        let pages = pages(gpu)?;
        check_size(&pages, bytes)?;
        let aligned = start.is_multiple_of(pages.bytes) && offset.is_multiple_of(pages.bytes);
        ensure(aligned, UR_RESULT_ERROR_INVALID_VALUE)?;
        let (first, count) = (offset / pages.bytes, bytes / pages.bytes);
        let own = memory.pages.get(first..).and_then(|rest| rest.get(..count));
        let own = own.ok_or(Error::new(UR_RESULT_ERROR_INVALID_SIZE))?;
        let mut ranges = self.lock();
        let range = find(&mut ranges, start, bytes)?;
        let below = range.maps.range(..start + bytes).next_back();
        let free = below.is_none_or(|(&at, map)| at + map.bytes <= start);
        ensure(free, UR_RESULT_ERROR_INVALID_VALUE)?;
        let handles: Vec<u64> = own.iter().map(|page| page.handle).collect();
        pages.map_pages(gpu.api, start, &handles, &[gpu.place()])?;
        if access != UR_VIRTUAL_MEM_ACCESS_FLAG_READ_WRITE
            && let Err(error) = pages.set_access(gpu.api, start, bytes, &[gpu.place()], wanted)
        {
            pages.unmap_pages(start, count);
            return Err(error);
        }
        let pages = own.to_vec();
        range.maps.insert(
            start,
            Map {
                bytes,
                access,
                pages,
            },
        );
        Ok(())
    }

    pub fn unmap(&self, start: usize, bytes: usize) -> Result<()> {
        let mut ranges = self.lock();
        let range = find(&mut ranges, start, bytes)?;
        for piece in whole_maps(range, start, bytes)? {
            if let Some(map) = range.maps.remove(&piece) {
                pages(&range.gpu)?.unmap_pages(piece, map.pages.len());
            }
        }
        Ok(())
    }

    pub fn set_access(
        &self,
        start: usize,
        bytes: usize,
        access: ur_virtual_mem_access_flags_t,
    ) -> Result<()> {
        let wanted = native(access)?;
        let mut ranges = self.lock();
        let range = find(&mut ranges, start, bytes)?;
        for piece in whole_maps(range, start, bytes)? {
            if let Some(map) = range.maps.get_mut(&piece)
                && let Some(page) = map.pages.first()
            {
                let (gpu, who) = (&page.gpu, [page.gpu.place()]);
                pages(gpu)?.set_access(gpu.api, piece, map.bytes, &who, wanted)?;
                map.access = access;
            }
        }
        Ok(())
    }

    /// The access to a range: none where nothing is mapped.
    pub fn access(&self, start: usize, bytes: usize) -> Result<ur_virtual_mem_access_flags_t> {
        let mut ranges = self.lock();
        let range = find(&mut ranges, start, bytes)?;
        let below = range.maps.range(..=start).next_back();
        let map = below.filter(|&(&at, map)| start < at + map.bytes);
        Ok(map.map_or(UR_VIRTUAL_MEM_ACCESS_FLAG_NONE, |(_, map)| map.access))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Range>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        for (&start, range) in &*self.lock() {
            if let Ok(pages) = pages(&range.gpu) {
                for (&at, map) in &range.maps {
                    pages.unmap_pages(at, map.pages.len());
                }
                pages.unreserve(start, range.bytes);
            }
        }
    }
}

/// The range that all of these addresses lie in.
fn find(ranges: &mut BTreeMap<usize, Range>, start: usize, bytes: usize) -> Result<&mut Range> {
    let wrong = Error::new(UR_RESULT_ERROR_INVALID_VALUE);
    let (&at, range) = ranges.range_mut(..=start).next_back().ok_or(wrong)?;
    let end = start.checked_add(bytes).ok_or(wrong)?;
    let inside = bytes > 0 && end <= at + range.bytes;
    if inside { Ok(range) } else { Err(wrong) }
}

/// The maps that together are exactly these addresses.
fn whole_maps(range: &Range, start: usize, bytes: usize) -> Result<Vec<usize>> {
    let wrong = Error::new(UR_RESULT_ERROR_INVALID_VALUE);
    let (mut pieces, mut next) = (Vec::new(), start);
    while next < start + bytes {
        pieces.push(next);
        next += range.maps.get(&next).ok_or(wrong)?.bytes;
    }
    ensure(next == start + bytes, wrong.code())?;
    Ok(pieces)
}

/// Memory without an address.
pub struct PhysicalMem {
    context: Arc<Object<Context<Cuda>>>,
    device: Arc<Object<Device>>,
    gpu: Arc<Gpu>,
    bytes: usize,
    pages: Vec<Arc<Page>>,
}

impl PhysicalMem {
    pub fn create(
        context: &Object<Context<Cuda>>,
        device: &Object<Device>,
        bytes: usize,
        properties: Option<&ur_physical_mem_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        let known = context.domain().index_of(device).is_some();
        ensure(known, UR_RESULT_ERROR_INVALID_DEVICE)?;
        let plain = properties.is_none_or(|properties| properties.flags.0 == 0);
        ensure(plain, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        let gpu = device.gpu()?;
        let how = pages(&gpu)?;
        check_size(&how, bytes)?;
        let handles = how.create_pages(gpu.api, bytes / how.bytes)?;
        let page = |handle| {
            Arc::new(Page {
                gpu: Arc::clone(&gpu),
                handle,
            })
        };
        Ok(hal::new::<Cuda, _>(Self {
            context: context.arc(),
            device: device.arc(),
            bytes,
            pages: handles.into_iter().map(page).collect(),
            gpu,
        }))
    }
}

impl Body for PhysicalMem {
    const KIND: Kind = Kind::PhysicalMem;
}

impl hal::PhysicalMem<Cuda> for PhysicalMem {
    fn get_info(this: &Object<Self>, what: PhysicalMemInfo, out: InfoOut<'_>) -> Result<()> {
        match what {
            PhysicalMemInfo::Context => out.handle(Some(&this.context)),
            PhysicalMemInfo::Device => out.handle(Some(&this.device)),
            PhysicalMemInfo::Size => out.value(this.bytes),
            PhysicalMemInfo::Properties => out.value(ur_physical_mem_properties_t::default()),
            PhysicalMemInfo::ReferenceCount => out.value(this.api_refs()),
        }
    }
}

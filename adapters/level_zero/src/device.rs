//! Devices: cards, the tiles of a card as its parts, and the compute slices of a tile as its parts.

mod facts;
mod info;
mod system;

use std::collections::HashSet;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use ur::abi::*;
use ur::hal::{self, DeviceInfo, Exported, PeerInfo};
use ur::object::{
    Answers, Body, Error, Handles, InfoOut, Kind, ListOut, Object, Out, Result, ensure,
};
use ur::stream::Context;
use ur::sync::{Mutex, rank};

use crate::LevelZero;
use crate::adapter::engine;
use crate::bindless;
use crate::context::{ContextData, NativeContext};
use crate::exec;
use crate::lz::{self, *};
use crate::platform::Platform;
use crate::program::Program;
use crate::settings::Settings;
use crate::virtual_mem::{AddressSpace, page_bytes};
pub use facts::ComputeQueue;
use facts::Facts;
use system::System;

pub struct Device {
    api: &'static Api,
    platform: Arc<Object<Platform>>,
    raw: ze_device_handle_t,
    /// The card that this is a tile of, or the tile that this is a slice of.
    parent: Option<Arc<Object<Device>>>,
    /// The only queue of a compute slice, which has its tile's native handle.
    slice: Option<ComputeQueue>,
    /// The tiles or slices. They live as long as the platform.
    parts: OnceLock<Vec<Arc<Object<Device>>>>,
    /// The card that the device is a tile of, and the tiles of such a card, where the driver lists tiles as devices.
    composite: OnceLock<Arc<Object<Device>>>,
    components: OnceLock<Vec<Arc<Object<Device>>>>,
    pub facts: Facts,
    answers: Answers,
    virtual_memory: OnceLock<bool>,
    system: OnceLock<Option<System>>,
    /// When [`Device::check_status_sometimes`] asked last.
    status_asked: AtomicU64,
    /// The devices that the user opened this one's memory to.
    accessors: Mutex<HashSet<ze_device_handle_t>, { rank::LEAF }>,
}

impl Device {
    pub fn open(
        api: &'static Api,
        platform: &Arc<Object<Platform>>,
        raw: ze_device_handle_t,
    ) -> Result<Arc<Object<Self>>> {
        Self::open_part(api, platform, raw, None, None)
    }

    fn open_part(
        api: &'static Api,
        platform: &Arc<Object<Platform>>,
        raw: ze_device_handle_t,
        parent: Option<&Arc<Object<Self>>>,
        slice: Option<ComputeQueue>,
    ) -> Result<Arc<Object<Self>>> {
        let facts = Facts::read(platform, raw)
            .inspect_err(|error| log::warn!("a device is left out: {:?}", error.code()))?;
        let device = Self {
            api,
            platform: Arc::clone(platform),
            raw,
            parent: parent.cloned(),
            slice,
            parts: OnceLock::new(),
            composite: OnceLock::new(),
            components: OnceLock::new(),
            facts,
            answers: Answers::new(ur_device_info_t::ALL.len()),
            virtual_memory: OnceLock::new(),
            system: OnceLock::new(),
            status_asked: AtomicU64::new(0),
            accessors: Mutex::default(),
        };
        Ok(Object::immortal(LevelZero::table(), device))
    }

    pub fn api(&self) -> &'static Api {
        self.api
    }

    pub fn raw(&self) -> ze_device_handle_t {
        self.raw
    }

    pub fn platform(&self) -> &Arc<Object<Platform>> {
        &self.platform
    }

    pub fn parent(&self) -> Option<&Arc<Object<Self>>> {
        self.parent.as_ref()
    }

    /// The place in a list of a device, or of the device that it is a part of.
    #[inline]
    pub fn position<'a>(
        all: impl Iterator<Item = &'a Arc<Object<Self>>> + Clone,
        device: &Object<Self>,
    ) -> Option<usize> {
        let own = all.clone().position(|own| std::ptr::eq(&**own, device));
        own.or_else(|| {
            let whole = std::iter::successors(device.parent(), |device| device.parent());
            let mut whole = whole.map(|device| &**device);
            whole.find_map(|device| all.clone().position(|own| std::ptr::eq(&**own, device)))
        })
    }

    /// The tiles of a card, or the slices of a tile.
    pub fn parts(&self) -> &[Arc<Object<Self>>] {
        self.parts.get().map_or(&[], Vec::as_slice)
    }

    /// The card that the device is a tile of, where the driver lists tiles as devices.
    pub fn composite(&self) -> Option<&Arc<Object<Self>>> {
        self.composite.get()
    }

    /// The tiles of such a card.
    pub fn components(&self) -> &[Arc<Object<Self>>] {
        self.components.get().map_or(&[], Vec::as_slice)
    }

    /// Finds the cards of a driver's devices that are tiles. Called once.
    pub fn find_composites(devices: &[Arc<Object<Self>>]) -> Vec<Arc<Object<Self>>> {
        let mut tiles: Vec<(ze_device_handle_t, Vec<Arc<Object<Self>>>)> = Vec::new();
        for device in devices {
            let Some(root) = device.root() else { continue };
            match tiles.iter_mut().find(|(card, _)| *card == root) {
                Some((_, own)) => own.push(Arc::clone(device)),
                None => tiles.push((root, vec![Arc::clone(device)])),
            }
        }
        let open = |(root, own): (ze_device_handle_t, Vec<Arc<Object<Self>>>)| {
            let first = own.first()?;
            let card = Self::open(first.api, &first.platform, root).ok()?;
            for tile in &own {
                let _ = tile.composite.set(Arc::clone(&card));
            }
            let _ = card.components.set(own);
            Some(card)
        };
        tiles.into_iter().filter_map(open).collect()
    }

    /// The driver's card of a device that is a tile.
    fn root(&self) -> Option<ze_device_handle_t> {
        let mut root = ze_device_handle_t::NULL;
        let ask = self.api.zeDeviceGetRootDevice?;
        // SAFETY: a device of the driver's, and room for the handle.
        check(unsafe { ask(self.raw, &mut root) }, "zeDeviceGetRootDevice").ok()?;
        (!root.is_null() && root != self.raw).then_some(root)
    }

    /// Finds the tiles of a card, and their slices. Called once.
    pub fn find_parts(this: &Arc<Object<Self>>) {
        let (found, what) = match &this.parent {
            None => (Self::read_tiles(this), "a card's tiles"),
            Some(_) => (Self::open_slices(this), "a tile's slices"),
        };
        match found {
            Ok(parts) => {
                let tiles = parts.iter().filter(|part| part.slice.is_none());
                tiles.for_each(Self::find_parts);
                drop(this.parts.set(parts));
            }
            Err(error) => log::warn!("{what} are left out: {:?}", error.code()),
        }
    }

    /// A part for each compute queue of a tile whose queues have execution units of their own. As in Intel's adapters, a
    /// card without tiles has no slices, nor has a tile that the driver lists as a device.
    fn open_slices(this: &Arc<Object<Self>>) -> Result<Vec<Arc<Object<Self>>>> {
        let has_slices = this.facts.is_ponte_vecchio() || Settings::get().slices_by_domain;
        let queues = this.facts.compute_queues().into_iter();
        let open =
            |queue| Self::open_part(this.api, &this.platform, this.raw, Some(this), Some(queue));
        queues.filter(|_| has_slices).map(open).collect()
    }

    fn read_tiles(this: &Arc<Object<Self>>) -> Result<Vec<Arc<Object<Self>>>> {
        let natives = lz::list(ze_device_handle_t::NULL, |count, all| {
            // SAFETY: `all` is null or has room for `count` handles.
            unsafe { call!(this.api, zeDeviceGetSubDevices(this.raw, count, all)) }
        })?;
        let open =
            |native: &_| Self::open_part(this.api, &this.platform, *native, Some(this), None);
        natives.iter().map(open).collect()
    }

    /// The ways in which the device splits.
    fn partitions(&self) -> &'static [ur_device_partition_t] {
        let is_sliced = self.parts().first().map(|part| part.slice.is_some());
        match is_sliced {
            None => &[],
            Some(true) if Settings::get().slices_by_domain => &[
                UR_DEVICE_PARTITION_BY_CSLICE,
                UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN,
            ],
            Some(true) => &[UR_DEVICE_PARTITION_BY_CSLICE],
            Some(false) => &[UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN],
        }
    }

    /// The group of queues that runs kernels. `INVALID_DEVICE` if there is none.
    pub fn compute_ordinal(&self) -> Result<u32> {
        let none = Error::new(UR_RESULT_ERROR_INVALID_DEVICE);
        let ordinal = self.facts.compute_group().map(|(ordinal, _)| ordinal);
        let own = self.slice.map(|queue| queue.ordinal);
        own.or(ordinal).ok_or(none)
    }

    /// The number of queues that run kernels, of that group.
    fn compute_queue_count(&self) -> u32 {
        match self.slice {
            Some(_) => 1,
            None => self
                .facts
                .compute_group()
                .map_or(0, |(_, group)| group.numQueues),
        }
    }

    /// The queue of a new lane: the one that is asked for, a slice's own, else as the variable says. `INVALID_ARGUMENT` if
    /// there is none of this index, `INVALID_DEVICE` if there is none at all.
    pub fn compute_queue(&self, asked: Option<u32>) -> Result<ComputeQueue> {
        let count = self.compute_queue_count();
        let is_there = asked.is_none_or(|index| index < count);
        ensure(is_there, UR_RESULT_ERROR_INVALID_ARGUMENT)?;
        if let Some(own) = self.slice {
            return Ok(own);
        }
        let ordinal = self.compute_ordinal()?;
        let index = asked.unwrap_or_else(|| Settings::get().compute_engine.of(count));
        Ok(ComputeQueue { ordinal, index })
    }

    /// Whether the device still answers, asked every tenth of a second at most. The driver notices a lost device inside
    /// waits alone, so that a program which polls would do so for ever.
    pub fn check_status_sometimes(&self) -> Result<()> {
        let now = host_time();
        let last = self.status_asked.load(Ordering::Relaxed);
        if now.saturating_sub(last) < STATUS_PERIOD.as_nanos() as u64 {
            return Ok(());
        }
        self.status_asked.store(now, Ordering::Relaxed);
        self.check_status()
    }

    /// Whether the device still answers. Any other error says nothing of the device, whose commands go on.
    pub fn check_status(&self) -> Result<()> {
        // SAFETY: a device of the driver's.
        match unsafe { (self.api.zeDeviceGetStatus)(self.raw) } {
            code @ (ZE_RESULT_ERROR_DEVICE_LOST | ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET) => {
                check(code, "zeDeviceGetStatus")
            }
            _ => Ok(()),
        }
    }

    /// Whether address ranges can be reserved: only trying tells, as an old driver has pages and refuses ranges.
    pub fn has_virtual_memory(&self) -> Result<bool> {
        if let Some(known) = self.virtual_memory.get() {
            return Ok(*known);
        }
        let try_it = || -> Result<()> {
            let context = Arc::new(NativeContext::create(&self.platform)?);
            let page = page_bytes(&context, self, 1)?;
            let space = AddressSpace::default();
            let start = space.reserve(&context, page, 0, page)?;
            space.free(start, page)
        };
        let found = match try_it() {
            Ok(()) => true,
            Err(error) if error.code() == UR_RESULT_ERROR_UNSUPPORTED_FEATURE => false,
            // The next query tries again.
            Err(error) => return Err(error),
        };
        Ok(*self.virtual_memory.get_or_init(|| found))
    }

    /// The functions of handles of images. None where the driver has none.
    pub fn bindless(&self) -> Option<BindlessImages> {
        let able = self.has_images() && self.platform.has_extension(BINDLESS);
        self.api.bindless_images().filter(|_| able)
    }

    /// The functions of semaphores of other interfaces. None where the driver has none.
    pub fn external_semaphores(&self) -> Option<ExternalSemaphores> {
        let able = self.platform.has_extension(SEMAPHORES);
        self.api.external_semaphores().filter(|_| able)
    }

    /// Whether the device has no memory beside the host's.
    pub fn is_integrated(&self) -> bool {
        self.facts.base.flags & ZE_DEVICE_PROPERTY_FLAG_INTEGRATED != 0
    }

    /// Whether other processes can open objects of this kind. The driver has no handle for memory in pages.
    pub fn shares(&self, what: ze_ipc_property_flag_t) -> bool {
        let is_paged = what == ZE_IPC_PROPERTY_FLAG_MEMORY && Settings::get().pages;
        self.platform.ipc & what != 0 && !is_paged
    }

    /// The kind of descriptor that physical memory crosses to other processes as. None if it cannot.
    pub fn physical_descriptor(&self) -> Result<Option<ze_external_memory_type_flag_t>> {
        if self.api.zePhysicalMemGetProperties.is_none() {
            return Ok(None);
        }
        let external = &self.facts.external;
        let both = external.memoryAllocationImportTypes & external.memoryAllocationExportTypes;
        let kinds = [
            ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD,
            ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF,
        ];
        let found = kinds.into_iter().find(|kind| both & kind != 0);
        match found {
            Some(_) if !self.has_virtual_memory()? => Ok(None),
            found => Ok(found),
        }
    }

    /// Whether images and samplers can be made.
    pub fn has_images(&self) -> bool {
        self.facts.image.maxImageDims2D > 0
    }

    /// The largest image of a kind, in pixels along each axis; 1 for axes that it lacks.
    pub fn max_extent(&self, kind: ur_mem_type_t) -> [usize; 3] {
        let of = &self.facts.image;
        let layers = of.maxImageArraySlices;
        let (line, flat, deep) = (of.maxImageDims1D, of.maxImageDims2D, of.maxImageDims3D);
        let extent = match kind {
            UR_MEM_TYPE_IMAGE1D => [line, 1, 1],
            UR_MEM_TYPE_IMAGE1D_ARRAY => [line, layers, 1],
            UR_MEM_TYPE_IMAGE2D => [flat, flat, 1],
            UR_MEM_TYPE_IMAGE2D_ARRAY => [flat, flat, layers],
            UR_MEM_TYPE_IMAGE3D => [deep; 3],
            _ => [1; 3],
        };
        extent.map(|axis| axis as usize)
    }

    /// The device in the system interface. `UNSUPPORTED_ENUMERATION` if that does not know it.
    fn system(&self) -> Result<&System> {
        let found = match self.system.get() {
            Some(known) => known,
            None => {
                let found = System::find(self)?;
                self.system.get_or_init(|| found)
            }
        };
        (found.as_ref()).ok_or(Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION))
    }

    /// Bytes of memory that can be allocated now, at most all of the device's.
    fn free_memory(&self) -> Result<u64> {
        let free = match self.facts.usable_memory(&self.platform, self.raw)? {
            Some(usable) => usable,
            None => self.system()?.free_bytes()?,
        };
        Ok(free.min(self.facts.memory_bytes()))
    }

    /// The device, and those that it is a part of.
    fn wholes(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |device| {
            device.parent.as_deref().map(|one| &**one)
        })
    }

    /// The devices that the user opened this one's memory to, or that of a device that it is a part of.
    pub fn accessors(&self) -> Vec<ze_device_handle_t> {
        let mut all = HashSet::new();
        for whole in self.wholes() {
            all.extend(&*whole.accessors.lock());
        }
        all.into_iter().collect()
    }

    /// Takes back that this device reaches a peer's memory. Returns whether it did.
    fn close_peer(&self, peer: &Self) -> bool {
        let was_open = peer.accessors.lock().remove(&self.raw);
        if was_open {
            for context in peer.platform.contexts() {
                exec::close_memory(&context, peer, self.raw);
            }
        }
        was_open
    }

    /// Whether this is the other device, or a part of it.
    pub fn is_part_of(&self, other: &Self) -> bool {
        self.wholes().any(|whole| whole.raw == other.raw)
    }

    /// Whether the device can access a peer's memory.
    pub fn reaches(&self, peer: &Self) -> Result<bool> {
        let mut access = 0;
        // SAFETY: the answer is writable.
        unsafe {
            call!(
                self.api,
                zeDeviceCanAccessPeer(self.raw, peer.raw, &mut access)
            )
        }?;
        Ok(access != 0)
    }

    /// The host's and the device's clock at one time: nanoseconds, and ticks.
    pub fn clocks(&self) -> Result<(u64, u64)> {
        let (mut host, mut ticks) = (0, 0);
        // SAFETY: both numbers are writable.
        unsafe {
            call!(
                self.api,
                zeDeviceGetGlobalTimestamps(self.raw, &mut host, &mut ticks)
            )
        }?;
        Ok((host, ticks & mask(self.facts.base.timestampValidBits)))
    }

    /// Nanoseconds on the device's clock.
    pub fn now(&self) -> Result<u64> {
        // 0 means that a command has not ended.
        Ok(self.facts.nanoseconds(self.clocks()?.1).max(1))
    }
}

/// The driver's extension of bindless images.
const BINDLESS: &str = "ZE_experimental_bindless_image";
/// The driver's extension of semaphores of other interfaces.
const SEMAPHORES: &str = "ZE_extension_external_semaphores";

/// The least time between two questions whether a device is lost.
const STATUS_PERIOD: Duration = Duration::from_millis(100);

/// Nanoseconds of the host's monotonic clock.
fn host_time() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

/// The low bits of a number.
pub fn mask(bits: u32) -> u64 {
    match bits {
        0 | 64.. => u64::MAX,
        bits => (1 << bits) - 1,
    }
}

impl Body for Device {
    const KIND: Kind = Kind::Device;
}

impl hal::Device<LevelZero> for Device {
    fn get_info(this: &Object<Self>, what: DeviceInfo, out: InfoOut<'_>) -> Result<()> {
        match what {
            // All other properties are constant.
            DeviceInfo::ReferenceCount
            | DeviceInfo::GlobalMemFree
            | DeviceInfo::CurrentClockThrottleReasons
            | DeviceInfo::FanSpeed => info::get(this, what, out),
            _ => {
                let query = |out: InfoOut<'_>| info::get(this, what, out);
                this.answers.write(what as usize, out, query)
            }
        }
    }

    /// A card splits into its tiles, which the interface calls a NUMA domain, and a tile into its slices.
    fn partition(
        this: &Object<Self>,
        properties: &ur_device_partition_properties_t,
        sub_devices: ListOut<'_, Device>,
    ) -> Result<()> {
        // SAFETY: `urDevicePartition` requires `PropCount` elements.
        let by = unsafe { hal::checks::slice(properties.pProperties, properties.PropCount) }?;
        let [by] = by else {
            return Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE));
        };
        match by.r#type {
            UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN => {
                // SAFETY: the type says which member of the union is set.
                let domain = unsafe { by.value.affinity_domain };
                let known = [
                    UR_DEVICE_AFFINITY_DOMAIN_FLAG_NUMA,
                    UR_DEVICE_AFFINITY_DOMAIN_FLAG_NEXT_PARTITIONABLE,
                ];
                ensure(known.contains(&domain), UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
            }
            // Takes no value: some clients leave it uninitialised.
            UR_DEVICE_PARTITION_BY_CSLICE => {}
            UR_DEVICE_PARTITION_EQUALLY | UR_DEVICE_PARTITION_BY_COUNTS => {
                return Err(Error::unsupported());
            }
            _ => return Err(Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION)),
        }
        let is_able = this.partitions().contains(&by.r#type);
        ensure(is_able, UR_RESULT_ERROR_DEVICE_PARTITION_FAILED)?;
        sub_devices.write(this.parts());
        Ok(())
    }

    /// Native code for Intel's GPUs, else SPIR-V.
    fn select_binary(_: &Object<Self>, binaries: &[ur_device_binary_t]) -> Result<u32> {
        hal::answers::binary_for(binaries, UR_DEVICE_BINARY_TARGET_SPIRV64_GEN)
            .or_else(|_| hal::answers::binary_for(binaries, UR_DEVICE_BINARY_TARGET_SPIRV64))
    }

    fn get_native_handle(this: &Object<Self>) -> Result<ur_native_handle_t> {
        Ok(this.raw.0.addr())
    }

    fn get_global_timestamps(
        this: &Object<Self>,
        device: Out<'_, u64>,
        host: Out<'_, u64>,
    ) -> Result<()> {
        let (nanoseconds, ticks) = this.clocks()?;
        device.set(this.facts.nanoseconds(ticks));
        host.set(nanoseconds);
        Ok(())
    }

    fn context_create(
        devices: Handles<'_, Device>,
        _: Option<&ur_context_properties_t>,
    ) -> Result<Arc<Object<Context<LevelZero>>>> {
        ensure(!devices.is_empty(), UR_RESULT_ERROR_INVALID_SIZE)?;
        Ok(Context::new(&engine()?, devices, ContextData::of(devices)?))
    }

    fn program_get_function_pointer(
        this: &Object<Self>,
        program: &Object<Program>,
        name: &CStr,
    ) -> Result<*mut c_void> {
        program.function(this, name)
    }

    fn program_get_global_variable_pointer(
        this: &Object<Self>,
        program: &Object<Program>,
        name: &CStr,
        size: Out<'_, usize>,
    ) -> Result<*mut c_void> {
        let (address, bytes) = program.global(this, name)?;
        size.set(bytes);
        Ok(std::ptr::with_exposed_provenance_mut(address))
    }

    fn usm_p2p_enable_peer_access_exp(this: &Object<Self>, peer: &Object<Self>) -> Result<()> {
        ensure(this.raw != peer.raw, UR_RESULT_ERROR_INVALID_DEVICE)?;
        ensure(this.reaches(peer)?, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        let is_new = peer.accessors.lock().insert(this.raw);
        ensure(is_new, UR_RESULT_ERROR_INVALID_OPERATION)?;
        let mut contexts = peer.platform.contexts().into_iter();
        let opened = contexts.try_for_each(|context| exec::open_memory(&context, peer, this.raw));
        if opened.is_err() {
            this.close_peer(peer);
        }
        opened
    }

    fn usm_p2p_disable_peer_access_exp(this: &Object<Self>, peer: &Object<Self>) -> Result<()> {
        ensure(this.raw != peer.raw, UR_RESULT_ERROR_INVALID_DEVICE)?;
        let was_open = this.close_peer(peer);
        ensure(was_open, UR_RESULT_ERROR_INVALID_OPERATION)
    }

    fn usm_p2p_peer_access_get_info_exp(
        this: &Object<Self>,
        peer: &Object<Self>,
        what: PeerInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        let mut properties = ze_device_p2p_properties_t::default();
        // SAFETY: the structure is writable and has its tag.
        unsafe {
            call!(
                this.api,
                zeDeviceGetP2PProperties(this.raw, peer.raw, &mut properties)
            )?;
        }
        let mut access = 0;
        // SAFETY: the answer is writable.
        unsafe {
            call!(
                this.api,
                zeDeviceCanAccessPeer(this.raw, peer.raw, &mut access)
            )
        }?;
        let atomics = properties.flags & ZE_DEVICE_P2P_PROPERTY_FLAG_ATOMICS != 0;
        match what {
            PeerInfo::UrPeerAccessSupport => out.value(i32::from(access)),
            PeerInfo::UrPeerAtomicsSupport => out.value(i32::from(atomics)),
        }
    }

    fn bindless_images_supports_importing_handle_type_exp(
        this: &Object<Self>,
        kind: ur_exp_external_mem_type_t,
    ) -> Result<ur_bool_t> {
        bindless::can_import_kind(this, kind)
    }

    fn wait_exp(this: &Object<Self>) -> Result<()> {
        engine()?.wait_device(this)
    }
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn a_mask_has_the_valid_bits() {
        assert_eq!(mask(32), 0xffff_ffff);
        assert_eq!(mask(1), 1);
        // A driver that reports no number has whole counters.
        assert_eq!([mask(0), mask(64), mask(99)], [u64::MAX; 3]);
    }
}

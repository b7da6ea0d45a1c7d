//! Devices and their properties: those of a small GPU, with the host's memory and clock.

use std::ptr;
use std::sync::OnceLock;

use ze::*;

use crate::entry::{Answer, chained, fill, given, put, text_into};
use crate::{driver, image, mutate, script, worker};

/// The first device's handle. Others follow at a distance.
const FIRST: usize = 0x5eed_de00_0000;
const DISTANCE: usize = 0x100;
pub const MAX_DEVICES: usize = 4;
const MAX_TILES: usize = 4;

pub const MAX_GROUP_SIZE: u32 = 1024;
const LOCAL_BYTES: u32 = 64 << 10;
/// The generation whose devices Intel's newer adapter takes.
const IP_VERSION: u32 = 0x0500_4000;
const TIMESTAMP_BITS: u32 = 56;

/// The most pixels along the axes of images.
pub const IMAGE_EXTENT: u32 = 16384;
pub const IMAGE_3D_EXTENT: u32 = 2048;
pub const IMAGE_LAYERS: u32 = 2048;

/// What a group of queues can do.
pub struct Group {
    pub flags: ze_command_queue_group_property_flags_t,
    pub fill_bytes: usize,
    /// How many there are where no variable says otherwise.
    queues: u32,
}

impl Group {
    pub fn queues(&self) -> u32 {
        match self.flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE {
            0 => self.queues,
            _ => compute_queues().unwrap_or(self.queues),
        }
    }
}

/// The number of compute queues that a variable gives devices.
fn compute_queues() -> Option<u32> {
    script::variable("COMPUTE_QUEUES").and_then(|text| text.parse().ok())
}

/// Device ids: of a Battlemage, and of a Ponte Vecchio.
const USUAL_ID: u32 = 0xe20b;
const SLICED_ID: u32 = 0x0bd5;

pub const GROUPS: &[Group] = &[
    Group {
        flags: ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE
            | ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY
            | ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COOPERATIVE_KERNELS,
        fill_bytes: usize::MAX,
        queues: 1,
    },
    Group {
        flags: ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY,
        fill_bytes: 16,
        queues: 1,
    },
];

pub fn handle(index: usize) -> ze_device_handle_t {
    ze_device_handle_t(ptr::without_provenance_mut(FIRST + index * DISTANCE))
}

pub fn all() -> &'static [ze_device_handle_t] {
    static ALL: OnceLock<Vec<ze_device_handle_t>> = OnceLock::new();
    ALL.get_or_init(|| {
        let count = script::variable("DEVICES").and_then(|text| text.parse::<usize>().ok());
        (0..count.unwrap_or(1).clamp(1, MAX_DEVICES))
            .map(handle)
            .collect()
    })
}

/// Parts of a card; none of one that has no tiles.
pub fn tiles(card: usize) -> &'static [ze_device_handle_t] {
    static ALL: OnceLock<Vec<Vec<ze_device_handle_t>>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let count = script::variable("TILES").and_then(|text| text.parse::<usize>().ok());
        let count = count.unwrap_or(0).min(MAX_TILES);
        let tile = |card, at| {
            let start = handle(card).0.addr() + at + 1;
            ze_device_handle_t(ptr::without_provenance_mut(start))
        };
        let tiles = |card| (0..count).map(|at| tile(card, at)).collect();
        (0..MAX_DEVICES).map(tiles).collect()
    });
    all.get(card).map_or(&[], Vec::as_slice)
}

/// The index of a card, and of one of its tiles if the device is one.
pub fn place(device: ze_device_handle_t) -> Answer<(usize, Option<usize>)> {
    if device.is_null() {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    }
    let mut cards = all().iter().enumerate();
    let found = cards.find_map(|(card, own)| {
        let tile = tiles(card).iter().position(|tile| *tile == device);
        (*own == device || tile.is_some()).then_some((card, tile))
    });
    found.ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)
}

fn are_peers() -> bool {
    script::variable("PEERS").is_none_or(|value| value != "0")
}

/// The index of a device's card.
pub fn index(device: ze_device_handle_t) -> Answer<usize> {
    place(device).map(|(card, _)| card)
}

/// Bytes of a device's memory: a tile has its part of the card's.
pub fn own_memory_bytes(device: ze_device_handle_t) -> Answer<u64> {
    let (card, tile) = place(device)?;
    let parts = tile.map_or(1, |_| tiles(card).len());
    Ok(memory_bytes() / parts as u64)
}

/// The devices that the driver lists: cards, or their tiles.
fn listed() -> Vec<ze_device_handle_t> {
    let cards = 0..all().len();
    match script::variable("COMBINED").is_some_and(|value| value == "1") {
        true => cards.flat_map(tiles).copied().collect(),
        false => all().to_vec(),
    }
}

/// The UUID of a card, or of a tile.
pub fn uuid((card, tile): (usize, Option<usize>)) -> [u8; 16] {
    let mut id = *b"scripted device\0";
    id[15] = u8::try_from(card).unwrap_or(0);
    id[14] = tile.map_or(id[14], |tile| u8::try_from(tile).unwrap_or(0));
    id
}

fn is_integrated() -> bool {
    script::variable("INTEGRATED").is_some_and(|value| value == "1")
}

/// The host's memory.
pub fn memory_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        // SAFETY: the function takes a constant.
        let [pages, page] =
            [libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE].map(|what| unsafe { libc::sysconf(what) });
        u64::try_from(pages).unwrap_or(1 << 20) * u64::try_from(page).unwrap_or(4096)
    })
}

/// Larger allocations need relaxed limits.
pub fn max_alloc_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let given = script::variable("MAX_ALLOC").and_then(|text| text.parse().ok());
        given.map_or(memory_bytes(), |mebibytes: u64| {
            mebibytes.saturating_mul(1 << 20)
        })
    })
}

/// The clock of the host and of the devices, in nanoseconds.
pub fn now() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

const FLOATS: ze_device_fp_flags_t = ZE_DEVICE_FP_FLAG_DENORM
    | ZE_DEVICE_FP_FLAG_INF_NAN
    | ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST
    | ZE_DEVICE_FP_FLAG_ROUND_TO_ZERO
    | ZE_DEVICE_FP_FLAG_ROUND_TO_INF
    | ZE_DEVICE_FP_FLAG_FMA;

const ANY_ACCESS: ze_memory_access_cap_flags_t = ZE_MEMORY_ACCESS_CAP_FLAG_RW
    | ZE_MEMORY_ACCESS_CAP_FLAG_ATOMIC
    | ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT
    | ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT_ATOMIC;

entries! {
    fn zeDeviceGet(driver: ze_driver_handle_t, count: *mut u32, devices: *mut ze_device_handle_t) {
        driver::check(driver)?;
        fill(count, devices, &listed(), |to, from| *to = *from)
    }

    fn zeDeviceGetSubDevices(device: ze_device_handle_t, count: *mut u32, parts: *mut ze_device_handle_t) {
        let own = match place(device)? {
            (card, None) => tiles(card),
            (_, Some(_)) => &[],
        };
        fill(count, parts, own, |to, from| *to = *from)
    }

    fn zeDeviceGetRootDevice(device: ze_device_handle_t, out: *mut ze_device_handle_t) {
        let root = match place(device)? {
            (_, None) => ze_device_handle_t::NULL,
            (card, Some(_)) => handle(card),
        };
        put(out, root)
    }

    fn zeDeviceGetProperties(device: ze_device_handle_t, out: *mut ze_device_properties_t) {
        let own = place(device)?;
        let (index, tile) = own;
        given(out)?;
        let resolution = match (*out).stype {
            ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2 => 1_000_000_000,
            _ => 1,
        };
        if let Some(version) = chained::<ze_device_ip_version_ext_t>((*out).pNext) {
            version.ipVersion = IP_VERSION;
        }
        if let Some(lists) = chained::<ze_mutable_command_list_exp_properties_t>((*out).pNext) {
            lists.mutableCommandListFlags = 0;
            lists.mutableCommandFlags = mutate::FLAGS;
        }
        if let Some(units) = chained::<ze_eu_count_ext_t>((*out).pNext) {
            units.numTotalEUs = 32;
        }
        let id = uuid(own);
        let mut flags = 0;
        if is_integrated() {
            flags |= ZE_DEVICE_PROPERTY_FLAG_INTEGRATED;
        }
        if tile.is_some() {
            flags |= ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE;
        }
        let slices = tile.map_or(tiles(index).len().max(1), |_| 1);
        let mut own = ze_device_properties_t {
            stype: (*out).stype,
            pNext: (*out).pNext,
            r#type: ZE_DEVICE_TYPE_GPU,
            vendorId: 0x8086,
            deviceId: compute_queues().map_or(USUAL_ID, |_| SLICED_ID),
            flags,
            subdeviceId: tile.and_then(|tile| u32::try_from(tile).ok()).unwrap_or(0),
            coreClockRate: 2000,
            maxMemAllocSize: max_alloc_bytes().min(own_memory_bytes(device)?),
            maxHardwareContexts: 64,
            numThreadsPerEU: 8,
            physicalEUSimdWidth: 16,
            numEUsPerSubslice: 8,
            numSubslicesPerSlice: 4,
            numSlices: u32::try_from(slices).unwrap_or(1),
            timerResolution: resolution,
            timestampValidBits: TIMESTAMP_BITS,
            kernelTimestampValidBits: TIMESTAMP_BITS,
            uuid: ze_device_uuid_t { id },
            ..Default::default()
        };
        text_into(&mut own.name, &format!("Scripted Level Zero device {index}"));
        put(out, own)
    }

    fn zeDeviceGetComputeProperties(device: ze_device_handle_t, out: *mut ze_device_compute_properties_t) {
        index(device)?;
        given(out)?;
        let out = &mut *out;
        out.maxTotalGroupSize = MAX_GROUP_SIZE;
        (out.maxGroupSizeX, out.maxGroupSizeY, out.maxGroupSizeZ) = (MAX_GROUP_SIZE, MAX_GROUP_SIZE, MAX_GROUP_SIZE);
        (out.maxGroupCountX, out.maxGroupCountY, out.maxGroupCountZ) = (u32::MAX, u32::MAX, u32::MAX);
        out.maxSharedLocalMemory = LOCAL_BYTES;
        out.numSubGroupSizes = 3;
        out.subGroupSizes[..3].copy_from_slice(&[8, 16, 32]);
        Ok(())
    }

    fn zeDeviceGetModuleProperties(device: ze_device_handle_t, out: *mut ze_device_module_properties_t) {
        index(device)?;
        given(out)?;
        let out = &mut *out;
        if let Some(atomics) = chained::<ze_float_atomic_ext_properties_t>(out.pNext) {
            let global = ZE_DEVICE_FP_ATOMIC_EXT_FLAG_GLOBAL_LOAD_STORE | ZE_DEVICE_FP_ATOMIC_EXT_FLAG_GLOBAL_ADD
                | ZE_DEVICE_FP_ATOMIC_EXT_FLAG_GLOBAL_MIN_MAX;
            let local = ZE_DEVICE_FP_ATOMIC_EXT_FLAG_LOCAL_LOAD_STORE | ZE_DEVICE_FP_ATOMIC_EXT_FLAG_LOCAL_ADD
                | ZE_DEVICE_FP_ATOMIC_EXT_FLAG_LOCAL_MIN_MAX;
            (atomics.fp16Flags, atomics.fp32Flags, atomics.fp64Flags) = (0, global | local, global | local);
        }
        out.spirvVersionSupported = 0x1_0004;
        out.flags = ZE_DEVICE_MODULE_FLAG_FP16 | ZE_DEVICE_MODULE_FLAG_FP64 | ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS;
        (out.fp16flags, out.fp32flags, out.fp64flags) = (FLOATS, FLOATS, FLOATS);
        out.maxArgumentsSize = 2048;
        out.printfBufferSize = 4 << 20;
        Ok(())
    }

    fn zeDeviceGetCommandQueueGroupProperties(
        device: ze_device_handle_t, count: *mut u32, out: *mut ze_command_queue_group_properties_t,
    ) {
        index(device)?;
        fill(count, out, GROUPS, |to, from| {
            to.flags = from.flags;
            to.maxMemoryFillPatternSize = from.fill_bytes;
            to.numQueues = from.queues();
        })
    }

    fn zeDeviceGetMemoryProperties(
        device: ze_device_handle_t, count: *mut u32, out: *mut ze_device_memory_properties_t,
    ) {
        let bytes = own_memory_bytes(device)?;
        fill(count, out, &[()], |to, ()| {
            to.flags = 0;
            to.maxClockRate = 2400;
            to.maxBusWidth = 64;
            to.totalSize = bytes;
            text_into(&mut to.name, "host");
        })
    }

    fn zeDeviceGetMemoryAccessProperties(
        device: ze_device_handle_t, out: *mut ze_device_memory_access_properties_t,
    ) {
        index(device)?;
        given(out)?;
        let out = &mut *out;
        out.hostAllocCapabilities = ANY_ACCESS;
        out.deviceAllocCapabilities = ANY_ACCESS;
        out.sharedSingleDeviceAllocCapabilities = ANY_ACCESS;
        out.sharedCrossDeviceAllocCapabilities = ANY_ACCESS;
        out.sharedSystemAllocCapabilities = 0;
        Ok(())
    }

    fn zeDeviceGetCacheProperties(
        device: ze_device_handle_t, count: *mut u32, out: *mut ze_device_cache_properties_t,
    ) {
        index(device)?;
        fill(count, out, &[()], |to, ()| {
            to.flags = 0;
            to.cacheSize = 8 << 20;
            // SAFETY: the caller's chain.
            if let Some(line) = unsafe { chained::<ze_device_cache_line_size_ext_t>(to.pNext) } {
                line.cacheLineSize = 64;
            }
        })
    }

    fn zeDeviceGetImageProperties(device: ze_device_handle_t, out: *mut ze_device_image_properties_t) {
        index(device)?;
        given(out)?;
        if let Some(linear) = chained::<ze_device_pitched_alloc_exp_properties_t>((*out).pNext) {
            linear.maxImageLinearWidth = IMAGE_EXTENT as usize;
            linear.maxImageLinearHeight = IMAGE_EXTENT as usize;
        }
        if let Some(pitch) = chained::<ze_pitched_alloc_2dimage_linear_pitch_exp_info_t>((*out).pNext) {
            pitch.pitchAlign = image::PITCH_BYTES;
            pitch.maxSupportedPitch = (IMAGE_EXTENT as usize) * 16;
        }
        *out = ze_device_image_properties_t {
            stype: (*out).stype,
            pNext: (*out).pNext,
            maxImageDims1D: IMAGE_EXTENT,
            maxImageDims2D: IMAGE_EXTENT,
            maxImageDims3D: IMAGE_3D_EXTENT,
            maxImageBufferSize: 128 << 20,
            maxImageArraySlices: IMAGE_LAYERS,
            maxSamplers: 16,
            maxReadImageArgs: 128,
            maxWriteImageArgs: 128,
        };
        Ok(())
    }

    fn zeDeviceGetExternalMemoryProperties(
        device: ze_device_handle_t, out: *mut ze_device_external_memory_properties_t,
    ) {
        index(device)?;
        given(out)?;
        let (allocations, images) = (crate::memory::FILES, crate::memory::FILES);
        *out = ze_device_external_memory_properties_t {
            stype: (*out).stype, pNext: (*out).pNext,
            memoryAllocationImportTypes: allocations, memoryAllocationExportTypes: allocations,
            imageImportTypes: images, imageExportTypes: 0,
        };
        Ok(())
    }

    fn zeDeviceGetP2PProperties(
        device: ze_device_handle_t, peer: ze_device_handle_t, out: *mut ze_device_p2p_properties_t,
    ) {
        index(device)?;
        index(peer)?;
        given(out)?;
        (*out).flags = match are_peers() {
            true => ZE_DEVICE_P2P_PROPERTY_FLAG_ACCESS | ZE_DEVICE_P2P_PROPERTY_FLAG_ATOMICS,
            false => 0,
        };
        Ok(())
    }

    fn zeDeviceCanAccessPeer(device: ze_device_handle_t, peer: ze_device_handle_t, out: *mut ze_bool_t) {
        let own = index(device)? == index(peer)?;
        put(out, (own || are_peers()).into())
    }

    fn zeDeviceGetStatus(device: ze_device_handle_t) {
        script::device_present(index(device)?)
    }

    fn zeDeviceGetGlobalTimestamps(device: ze_device_handle_t, host: *mut u64, own: *mut u64) {
        index(device)?;
        given(own)?;
        put(host, now())?;
        put(own, now())
    }

    fn zeDeviceGetVectorWidthPropertiesExt(
        device: ze_device_handle_t, count: *mut u32, out: *mut ze_device_vector_width_properties_ext_t,
    ) {
        index(device)?;
        // For each size of vectors, of which the largest is not the first.
        fill(count, out, &[1, 2], |to, of| {
            *to = ze_device_vector_width_properties_ext_t {
                stype: to.stype, pNext: to.pNext, vector_width_size: 16 * of,
                preferred_vector_width_char: 8 * of, preferred_vector_width_short: 4 * of,
                preferred_vector_width_int: 2 * of, preferred_vector_width_long: 1,
                preferred_vector_width_float: 1, preferred_vector_width_double: 1,
                preferred_vector_width_half: 4 * of,
                native_vector_width_char: 8 * of, native_vector_width_short: 4 * of,
                native_vector_width_int: 2 * of, native_vector_width_long: 1,
                native_vector_width_float: 1, native_vector_width_double: 1,
                native_vector_width_half: 4 * of,
            };
        })
    }

    fn zeDevicePciGetPropertiesExt(device: ze_device_handle_t, out: *mut ze_pci_ext_properties_t) {
        let index = index(device)?;
        given(out)?;
        let bus = 3 + u32::try_from(index).unwrap_or(0);
        (*out).address = ze_pci_address_ext_t { domain: 0, bus, device: 0, function: 0 };
        (*out).maxSpeed = ze_pci_speed_ext_t { genVersion: -1, width: -1, maxBandwidth: -1 };
        Ok(())
    }

    fn zeDeviceSynchronize(device: ze_device_handle_t) {
        index(device)?;
        worker::drain_all();
        script::present()
    }
}

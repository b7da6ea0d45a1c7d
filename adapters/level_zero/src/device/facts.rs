//! What the driver says of a device, read once.

use std::ffi::c_void;

use ur::abi::UR_RESULT_ERROR_UNSUPPORTED_FEATURE;
use ur::object::Result;

use crate::lz::{self, *};
use crate::platform::Platform;
use crate::settings::Settings;

pub struct Facts {
    pub base: ze_device_properties_t,
    pub compute: ze_device_compute_properties_t,
    pub module: ze_device_module_properties_t,
    pub access: ze_device_memory_access_properties_t,
    pub image: ze_device_image_properties_t,
    /// The sizes of images in linear memory; 0 where the driver does not tell.
    pub linear: ze_device_pitched_alloc_exp_properties_t,
    pub pitch: ze_pitched_alloc_2dimage_linear_pitch_exp_info_t,
    pub external: ze_device_external_memory_properties_t,
    pub memory: Vec<ze_device_memory_properties_t>,
    pub caches: Vec<ze_device_cache_properties_t>,
    pub groups: Vec<ze_command_queue_group_properties_t>,
    /// The architecture, as major (10 bits), minor (8), reserved (8), revision (6); 0 for unknown.
    pub ip_version: u32,
    /// Bytes of a cache line; 0 for unknown.
    pub cache_line: usize,
    /// Loads and stores of two-dimensional blocks.
    pub blocks: BlockFlags,
    /// What may change of a recorded command.
    pub mutable: ze_mutable_command_exp_flags_t,
    /// None where the driver does not tell.
    pub vectors: Result<Option<ze_device_vector_width_properties_ext_t>>,
}

// SAFETY: the only pointers are those of chains, which `read` leaves null.
unsafe impl Send for Facts {}
// SAFETY: the only pointers are those of chains, which `read` leaves null.
unsafe impl Sync for Facts {}

/// The extension of `ze_device_ip_version_ext_t`.
const IP_VERSION: &str = "ZE_extension_device_ip_version";
/// The extension of `ze_mutable_command_list_exp_properties_t`.
const MUTABLE: &str = "ZE_experimental_mutable_command_list";
/// The extension of `ze_device_cache_line_size_ext_t`.
const CACHE_LINE: &str = "ZE_extension_device_cache_line_size";

/// The extension of `ze_device_usablemem_size_ext_properties_t`.
const USABLE_MEMORY: &str = "ZE_extension_device_usablemem_size_properties";

/// Intel's structure about two-dimensional blocks, which no header of the loader has.
#[repr(C)]
struct Blocks {
    tag: u32,
    next: *mut c_void,
    flags: u32,
}

const BLOCKS: &str = "ZE_intel_experimental_device_block_array_properties";
const BLOCKS_TAG: u32 = 0x0003_0007;

/// Whether the device has stores and loads of two-dimensional blocks.
#[derive(Clone, Copy, Default)]
pub struct BlockFlags {
    pub store: bool,
    pub load: bool,
}

/// A queue of a group of queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ComputeQueue {
    /// The group.
    pub ordinal: u32,
    pub index: u32,
}

impl Facts {
    pub fn read(platform: &Platform, device: ze_device_handle_t) -> Result<Self> {
        let api = platform.api();
        // The later form of the structure gives the timer as cycles in a second.
        let mut base = ze_device_properties_t {
            stype: ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2,
            ..Default::default()
        };
        let mut ip = ze_device_ip_version_ext_t::default();
        let mut mutable = ze_mutable_command_list_exp_properties_t::default();
        let mut blocks = Blocks {
            tag: BLOCKS_TAG,
            next: std::ptr::null_mut(),
            flags: 0,
        };
        if platform.has_extension(IP_VERSION) {
            base.pNext = std::ptr::from_mut(&mut ip).cast();
        }
        if platform.has_extension(MUTABLE) {
            mutable.pNext = base.pNext;
            base.pNext = std::ptr::from_mut(&mut mutable).cast();
        }
        if platform.has_extension(BLOCKS) {
            blocks.next = base.pNext;
            base.pNext = std::ptr::from_mut(&mut blocks).cast();
        }
        let mut compute = ze_device_compute_properties_t::default();
        let mut module = ze_device_module_properties_t::default();
        let mut access = ze_device_memory_access_properties_t::default();
        let mut pitch = ze_pitched_alloc_2dimage_linear_pitch_exp_info_t::default();
        let mut linear = ze_device_pitched_alloc_exp_properties_t {
            pNext: std::ptr::from_mut(&mut pitch).cast(),
            ..Default::default()
        };
        let mut image = ze_device_image_properties_t {
            pNext: std::ptr::from_mut(&mut linear).cast(),
            ..Default::default()
        };
        let mut external = ze_device_external_memory_properties_t::default();
        // SAFETY: each structure is writable and has its tag; the chain lasts for the call.
        unsafe {
            call!(api, zeDeviceGetProperties(device, &mut base))?;
            call!(api, zeDeviceGetComputeProperties(device, &mut compute))?;
            call!(api, zeDeviceGetModuleProperties(device, &mut module))?;
            call!(api, zeDeviceGetMemoryAccessProperties(device, &mut access))?;
            call!(api, zeDeviceGetImageProperties(device, &mut image))?;
            call!(
                api,
                zeDeviceGetExternalMemoryProperties(device, &mut external)
            )?;
        }
        for chain in [&mut base.pNext, &mut image.pNext, &mut linear.pNext] {
            *chain = std::ptr::null_mut();
        }
        let memory = lz::list(Default::default(), |count, all| {
            // SAFETY: `all` is null or has room for `count` descriptions.
            unsafe { call!(api, zeDeviceGetMemoryProperties(device, count, all)) }
        })?;
        let groups = lz::list(Default::default(), |count, all| {
            // SAFETY: `all` is null or has room for `count` descriptions.
            unsafe {
                call!(
                    api,
                    zeDeviceGetCommandQueueGroupProperties(device, count, all)
                )
            }
        })?;
        let vectors = match api.zeDeviceGetVectorWidthPropertiesExt {
            Some(query) => vectors(query, device),
            None => Ok(None),
        };
        let (caches, cache_line) = caches(platform, device)?;
        Ok(Self {
            base,
            compute,
            module,
            access,
            image,
            linear,
            pitch,
            external,
            memory,
            caches,
            groups,
            ip_version: ip.ipVersion,
            cache_line,
            blocks: BlockFlags {
                store: blocks.flags & 1 != 0,
                load: blocks.flags & 2 != 0,
            },
            mutable: mutable.mutableCommandFlags,
            vectors,
        })
    }

    /// Bytes of memory that are usable now. None if only the system interface tells.
    pub fn usable_memory(
        &self,
        platform: &Platform,
        device: ze_device_handle_t,
    ) -> Result<Option<u64>> {
        if !platform.has_extension(USABLE_MEMORY) {
            return Ok(None);
        }
        let mut usable = ze_device_usablemem_size_ext_properties_t::default();
        let mut base = ze_device_properties_t::chained((&raw mut usable).cast());
        // SAFETY: both structures are writable and have their tags.
        unsafe { call!(platform.api(), zeDeviceGetProperties(device, &mut base)) }?;
        Ok(Some(usable.currUsableMemSize))
    }

    pub fn is(&self, flag: ze_device_property_flag_t) -> bool {
        self.base.flags & flag != 0
    }

    pub fn has(&self, flag: ze_device_module_flag_t) -> bool {
        self.module.flags & flag != 0
    }

    /// Bytes of the device's memory.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.iter().map(|memory| memory.totalSize).sum()
    }

    /// The first group of queues that runs kernels: its ordinal and description.
    pub fn compute_group(&self) -> Option<(u32, &ze_command_queue_group_properties_t)> {
        let mut all = (0..).zip(&self.groups);
        all.find(|(_, group)| group.flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE != 0)
    }

    /// The queues that run kernels, of each group with several.
    pub fn compute_queues(&self) -> Vec<ComputeQueue> {
        let compute = |group: &&ze_command_queue_group_properties_t| {
            group.flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE != 0 && group.numQueues > 1
        };
        let all = (0..).zip(&self.groups).filter(|(_, group)| compute(group));
        all.flat_map(|(ordinal, group)| {
            (0..group.numQueues).map(move |index| ComputeQueue { ordinal, index })
        })
        .collect()
    }

    /// Whether this is a Ponte Vecchio, whose compute queues have execution units of their own. Those of other products
    /// share theirs.
    pub fn is_ponte_vecchio(&self) -> bool {
        matches!(self.base.deviceId & 0xff0, 0xbd0 | 0xb60)
    }

    /// The sizes of sub-groups, the smallest first.
    pub fn sub_groups(&self) -> &[u32] {
        let count = self.compute.numSubGroupSizes as usize;
        let all = &self.compute.subGroupSizes;
        &all[..count.min(all.len())]
    }

    /// Nanoseconds of a number of the device's ticks.
    pub fn nanoseconds(&self, ticks: u64) -> u64 {
        let rate = u128::from(self.base.timerResolution.max(1));
        (u128::from(ticks) * 1_000_000_000 / rate) as u64
    }
}

/// The widths of vectors; none where the driver does not tell.
fn vectors(
    query: pfn::zeDeviceGetVectorWidthPropertiesExt,
    device: ze_device_handle_t,
) -> Result<Option<ze_device_vector_width_properties_ext_t>> {
    let all = lz::list(Default::default(), |count, all| {
        // SAFETY: `all` is null or has room for `count` descriptions.
        let code = unsafe { query(device, count, all) };
        check(code, "zeDeviceGetVectorWidthPropertiesExt")
    });
    match all {
        // The loader may have a function that its driver lacks.
        Err(error) if error.code() == UR_RESULT_ERROR_UNSUPPORTED_FEATURE => Ok(None),
        all => all.map(widths),
    }
}

/// The widths of the largest vectors, or those of the size that the user wants, if the device has them.
fn widths(
    all: Vec<ze_device_vector_width_properties_ext_t>,
) -> Option<ze_device_vector_width_properties_ext_t> {
    let size = |one: &&ze_device_vector_width_properties_ext_t| one.vector_width_size;
    if let Some(wanted) = Settings::get().vector_size {
        match all.iter().find(|one| size(one) == wanted) {
            Some(found) => return Some(*found),
            None => log::warn!("no vectors of size {wanted}, as UR_L0_VECTOR_WIDTH_SIZE wants"),
        }
    }
    // Of several of one size the first.
    all.iter().rev().max_by_key(size).copied()
}

/// The caches, and the bytes of a cache line.
fn caches(
    platform: &Platform,
    device: ze_device_handle_t,
) -> Result<(Vec<ze_device_cache_properties_t>, usize)> {
    let api = platform.api();
    let mut line = ze_device_cache_line_size_ext_t::default();
    let mut count = 0;
    // SAFETY: a null list asks for the count alone.
    unsafe {
        call!(
            api,
            zeDeviceGetCacheProperties(device, &mut count, std::ptr::null_mut())
        )
    }?;
    let mut all = vec![ze_device_cache_properties_t::default(); count as usize];
    if let Some(first) = all.first_mut() {
        if platform.has_extension(CACHE_LINE) {
            first.pNext = std::ptr::from_mut(&mut line).cast();
        }
        // SAFETY: `all` has room for `count` descriptions, and the chain lasts for the call.
        unsafe {
            call!(
                api,
                zeDeviceGetCacheProperties(device, &mut count, all.as_mut_ptr())
            )
        }?;
        all.truncate(count as usize);
    }
    all.iter_mut()
        .for_each(|cache| cache.pNext = std::ptr::null_mut());
    Ok((all, line.cacheLineSize))
}

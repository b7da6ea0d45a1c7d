//! Native kernels. A handle holds arguments, group size and settings, so that a lock is held from the first of them to
//! the append of the launch.

use std::ffi::{CStr, CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Object, Result, ensure};
use ur::sync::{Mutex, MutexGuard, rank};

use crate::device::Device;
use crate::lz::*;
use crate::program::Module;

pub struct Code {
    /// Keeps the code, and the functions.
    module: Arc<Module>,
    pub device: Arc<Object<Device>>,
    state: Mutex<Handle, { rank::KERNEL_ARGUMENTS }>,
    own: bool,
    pub facts: ze_kernel_properties_t,
    /// The most work-items of a group.
    pub max_group: u32,
    pub preferred_multiple: u32,
}

// SAFETY: the only pointers are the null ends of chains in `facts`.
unsafe impl Send for Code {}
// SAFETY: the only pointers are the null ends of chains in `facts`.
unsafe impl Sync for Code {}

/// The handle, with the settings that it holds as far as they are known.
pub struct Handle {
    raw: ze_kernel_handle_t,
    group: [u32; 3],
    offset: [u32; 3],
    /// Whether foreign code may change the settings.
    is_open: bool,
}

/// The driver's extension of `ze_kernel_max_group_size_properties_ext_t`.
const MAX_GROUP: &str = "ZE_extension_kernel_max_group_size_properties";
/// The driver's extension of `zeKernelSetGlobalOffsetExp`.
const OFFSET: &str = "ZE_experimental_global_offset";

const ALL_MEMORY: ze_kernel_indirect_access_flags_t = ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST
    | ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE
    | ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED;

impl Code {
    /// The kernel of a module. None if there is none of this name.
    pub fn find(
        module: &Arc<Module>,
        device: &Arc<Object<Device>>,
        name: &CStr,
    ) -> Result<Option<Self>> {
        let desc = ze_kernel_desc_t {
            pKernelName: name.as_ptr(),
            ..Default::default()
        };
        let mut raw = ze_kernel_handle_t::NULL;
        let create = module.context.api.zeKernelCreate;
        // SAFETY: a live module, a description that lasts for the call, and room for the handle.
        match unsafe { create(module.raw, &desc, &mut raw) } {
            ZE_RESULT_ERROR_INVALID_KERNEL_NAME => Ok(None),
            code => {
                check(code, "zeKernelCreate")?;
                Self::adopt(module, device, raw, true).map(Some)
            }
        }
    }

    /// A native kernel; `own` if this destroys it.
    pub fn adopt(
        module: &Arc<Module>,
        device: &Arc<Object<Device>>,
        raw: ze_kernel_handle_t,
        own: bool,
    ) -> Result<Self> {
        let mut code = Self {
            module: Arc::clone(module),
            device: Arc::clone(device),
            state: Mutex::new(Handle {
                raw,
                group: [0; 3],
                offset: [0; 3],
                is_open: !own,
            }),
            own,
            facts: ze_kernel_properties_t::default(),
            max_group: device.facts.compute.maxTotalGroupSize,
            preferred_multiple: 1,
        };
        let mut multiple = ze_kernel_preferred_group_size_properties_t::default();
        let mut group = ze_kernel_max_group_size_properties_ext_t::default();
        if device.platform().has_extension(MAX_GROUP) {
            multiple.pNext = (&raw mut group).cast();
        }
        code.facts.pNext = (&raw mut multiple).cast();
        let query = module.context.api.zeKernelGetProperties;
        // SAFETY: the structures are writable and have their tags.
        let read = unsafe { query(raw, &mut code.facts) };
        code.facts.pNext = null_mut();
        check(read, "zeKernelGetProperties")?;
        code.preferred_multiple = multiple.preferredMultiple.max(1);
        if group.maxGroupSize > 0 {
            code.max_group = group.maxGroupSize;
        }
        Ok(code)
    }

    fn api(&self) -> &'static Api {
        self.module.context.api
    }

    /// The handle, for one launch at a time.
    pub fn lock(&self) -> MutexGuard<'_, Handle> {
        self.state.lock()
    }

    /// The native handle. Foreign code may change its settings from now on.
    pub fn expose(&self) -> usize {
        let mut handle = self.lock();
        handle.is_open = true;
        handle.raw.0.expose_provenance()
    }

    pub fn name(&self) -> Result<CString> {
        let handle = self.lock();
        let raw = handle.raw;
        let query = self.api().zeKernelGetName;
        let mut bytes = 0;
        // SAFETY: a null buffer asks for the size.
        let code = unsafe { query(raw, &mut bytes, null_mut()) };
        check(code, "zeKernelGetName")?;
        let mut text = vec![0u8; bytes];
        // SAFETY: the buffer has the size that the driver reported.
        let code = unsafe { query(raw, &mut bytes, text.as_mut_ptr().cast()) };
        check(code, "zeKernelGetName")?;
        text.retain(|byte| *byte != 0);
        Ok(CString::new(text).unwrap_or_default())
    }

    /// The attributes of the kernel's source.
    pub fn attributes(&self) -> Result<String> {
        let mut bytes = 0;
        let handle = self.lock();
        let raw = handle.raw;
        let query = self.api().zeKernelGetSourceAttributes;
        // SAFETY: a null buffer asks for the size.
        let code = unsafe { query(raw, &mut bytes, null_mut()) };
        check(code, "zeKernelGetSourceAttributes")?;
        let mut room = vec![0u8; bytes as usize];
        if room.is_empty() {
            return Ok(String::new());
        }
        let mut text = room.as_mut_ptr().cast();
        // SAFETY: the buffer has the size that the driver reported.
        let code = unsafe { query(raw, &mut bytes, &mut text) };
        check(code, "zeKernelGetSourceAttributes")?;
        let end = room.iter().position(|byte| *byte == 0);
        Ok(String::from_utf8_lossy(&room[..end.unwrap_or(room.len())]).into_owned())
    }

    /// The group size that the source requires.
    pub fn required(&self) -> Option<[u32; 3]> {
        let facts = &self.facts;
        let sizes = [
            facts.requiredGroupSizeX,
            facts.requiredGroupSizeY,
            facts.requiredGroupSizeZ,
        ];
        (sizes[0] > 0).then_some(sizes.map(|axis| axis.max(1)))
    }

    /// The most work-items of a group in each dimension.
    pub fn limits(&self) -> [u32; 3] {
        let compute = &self.device.facts.compute;
        [
            compute.maxGroupSizeX,
            compute.maxGroupSizeY,
            compute.maxGroupSizeZ,
        ]
    }

    /// A group size that divides the global size: the required one, or the driver's choice.
    pub fn choose(&self, global: [usize; 3]) -> Result<[u32; 3]> {
        if let Some(required) = self.required() {
            return Ok(required);
        }
        let [x, y, z] = global.map(|axis| u32::try_from(axis).unwrap_or(u32::MAX).max(1));
        let mut group = [1; 3];
        let [a, b, c] = &mut group;
        let suggest = self.api().zeKernelSuggestGroupSize;
        // The driver caches its answers in the kernel.
        let handle = self.lock();
        // SAFETY: a live kernel, and room for the answers.
        let code = unsafe { suggest(handle.raw, x, y, z, a, b, c) };
        drop(handle);
        check(code, "zeKernelSuggestGroupSize")?;
        // Groups are whole here, and sizes beyond 32 bits are unknown to the driver.
        Ok(std::array::from_fn(|axis| {
            divisor(global[axis], group[axis])
        }))
    }

    /// How many groups of this size the device holds at once.
    pub fn resident_groups(&self, group: [usize; 3]) -> Result<u32> {
        let items = group
            .iter()
            .try_fold(1_usize, |all, axis| all.checked_mul(*axis));
        let fits = items.is_some_and(|items| (1..=self.max_group as usize).contains(&items));
        ensure(fits, UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE)?;
        let mut handle = self.lock();
        handle.set_group(self.api(), group.map(|axis| axis as u32))?;
        let mut count = 0;
        // SAFETY: a live kernel, and room for the answer.
        unsafe {
            call!(
                self.api(),
                zeKernelSuggestMaxCooperativeGroupCount(handle.raw, &mut count)
            )
        }?;
        Ok(count)
    }

    /// Whether the kernel reaches memory that is not among its arguments.
    pub fn set_indirect(&self, on: bool) -> Result<()> {
        let flags = if on { ALL_MEMORY } else { 0 };
        let handle = self.lock();
        // SAFETY: a live kernel.
        unsafe { call!(self.api(), zeKernelSetIndirectAccess(handle.raw, flags)) }
    }

    pub fn set_cache(&self, flags: ze_cache_config_flags_t) -> Result<()> {
        let handle = self.lock();
        // SAFETY: a live kernel.
        unsafe { call!(self.api(), zeKernelSetCacheConfig(handle.raw, flags)) }
    }

    /// The function that sets offsets, where the driver has it.
    pub fn offset_setter(&self) -> Option<pfn::zeKernelSetGlobalOffsetExp> {
        let has = self.device.platform().has_extension(OFFSET);
        self.api().zeKernelSetGlobalOffsetExp.filter(|_| has)
    }
}

impl Handle {
    pub fn raw(&self) -> ze_kernel_handle_t {
        self.raw
    }

    pub fn set_group(&mut self, api: &Api, group: [u32; 3]) -> Result<()> {
        if self.group == group && !self.is_open {
            return Ok(());
        }
        let [x, y, z] = group;
        // SAFETY: a live kernel.
        unsafe { call!(api, zeKernelSetGroupSize(self.raw, x, y, z)) }?;
        self.group = group;
        Ok(())
    }

    pub fn set_offset(&mut self, of: &Code, offset: [u32; 3]) -> Result<()> {
        if self.offset == offset && !self.is_open {
            return Ok(());
        }
        let Some(set) = of.offset_setter() else {
            return ensure(offset == [0; 3], UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
        };
        let [x, y, z] = offset;
        // SAFETY: a live kernel.
        let code = unsafe { set(self.raw, x, y, z) };
        check(code, "zeKernelSetGlobalOffsetExp")?;
        self.offset = offset;
        Ok(())
    }

    /// Sets an argument: a value, or null for local memory of this size.
    pub fn set(&self, api: &Api, index: u32, bytes: usize, value: Option<&[u8]>) -> Result<()> {
        let value: *const c_void = value.map_or(null(), |value| value.as_ptr().cast());
        // SAFETY: a live kernel; the value has that many bytes, which the driver copies.
        unsafe { call!(api, zeKernelSetArgumentValue(self.raw, index, bytes, value)) }
    }
}

/// The largest divisor of a size that is not above `most`.
fn divisor(size: usize, most: u32) -> u32 {
    let most = most.max(1);
    let divides = |part: &u32| size.is_multiple_of(*part as usize);
    (1..=most).rev().find(divides).unwrap_or(1)
}

impl Drop for Code {
    fn drop(&mut self) {
        if self.own && !self.api().is_torn_down() {
            let raw = self.state.get_mut().raw;
            // SAFETY: the kernel is this one's, and no launch of it is pending: `Kernel` and launches keep this.
            unsafe { (self.api().zeKernelDestroy)(raw) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::divisor;

    #[test]
    fn groups_divide_the_global_size() {
        assert_eq!(divisor(1000, 200), 200);
        assert_eq!(divisor(1000, 256), 250);
        assert_eq!(divisor(7, 4), 1);
        assert_eq!(divisor(1 << 33, 1024), 1024);
        assert_eq!(divisor(0, 0), 1);
    }
}

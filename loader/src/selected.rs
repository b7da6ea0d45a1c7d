//! `urDeviceGetSelected`: the devices of a platform that `ONEAPI_DEVICE_SELECTOR` selects.
//!
//! Owns the walk over root devices, sub-devices and sub-sub-devices; the selector decides what is
//! selected. Calls go through the application's table, as an application's do. Root devices come
//! first, then sub-devices, then sub-sub-devices, each by number.
//!
//! Root numbers count all devices of a platform, whatever type is requested. They continue those of
//! the same adapter's earlier platforms. Sub-devices are the parts by `NEXT_PARTITIONABLE` affinity
//! domain. A device that cannot be partitioned so has none.

use std::ffi::c_void;

use log::debug;
use ur::abi::*;
use ur::object::{Error, Out, Result, ensure};

use crate::entry::versioned;
use crate::selector::{Backend, Duplicates, Kind, Selection, Selector};
use crate::state::app_table;
use ur::object::env::Env;

versioned! {
    /// Writes up to `NumEntries` selected devices, each with a reference, and their total number.
    ///
    /// Errors: `INVALID_VALUE` for a malformed selector, whose fault is logged;
    /// `INVALID_ENUMERATION` for an unknown type; `INVALID_NULL_HANDLE`; `INVALID_NULL_POINTER` or
    /// `INVALID_SIZE` without an output; `UNINITIALIZED`.
    ///
    /// # Safety
    /// The platform is null or live; `phDevices` is null or has room for `NumEntries` handles;
    /// `pNumDevices` is null or writable.
    fn urDeviceGetSelected(
        hPlatform: ur_platform_handle_t,
        DeviceType: ur_device_type_t,
        NumEntries: u32,
        phDevices: *mut ur_device_handle_t,
        pNumDevices: *mut u32,
    ) {
        let table = app_table().ok_or(UR_RESULT_ERROR_UNINITIALIZED)?;
        ensure(!hPlatform.is_null(), UR_RESULT_ERROR_INVALID_NULL_HANDLE)?;
        ensure(NumEntries == 0 || !phDevices.is_null(), UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
        ensure(NumEntries != 0 || !pNumDevices.is_null(), UR_RESULT_ERROR_INVALID_SIZE)?;
        ensure(
            ur_device_type_t::ALL.contains(&DeviceType) && DeviceType != UR_DEVICE_TYPE_VPU,
            UR_RESULT_ERROR_INVALID_ENUMERATION,
        )?;
        let selector = selector(&Env::process())?;
        let devices = Walk { table, platform: hPlatform }.select(&selector, DeviceType)?;
        let total = u32::try_from(devices.len());
        let total = total.map_err(|_| Error::new(UR_RESULT_ERROR_OUT_OF_HOST_MEMORY))?;
        for (at, device) in devices.into_iter().take(NumEntries as usize).enumerate() {
            // SAFETY: `at` is below `NumEntries`, for which the caller guarantees room.
            unsafe { phDevices.add(at).write(device.into_handle()) };
        }
        // SAFETY: the caller guarantees that `pNumDevices` is null or writable.
        unsafe { Out::new(pNumDevices) }.set(total);
        Ok(())
    }
}

fn selector(env: &Env<'_>) -> Result<Selector> {
    let text = env.text("ONEAPI_DEVICE_SELECTOR").unwrap_or_default();
    Selector::parse(&text, Duplicates::Reject).map_err(|reason| {
        env.complain(&format!("ONEAPI_DEVICE_SELECTOR: {reason}"));
        Error::new(UR_RESULT_ERROR_INVALID_VALUE)
    })
}

/// A device handle that owns a reference.
struct Device {
    handle: ur_device_handle_t,
    table: &'static ur_dditable_t,
}

impl Device {
    /// Passes the reference to the caller.
    fn into_handle(self) -> ur_device_handle_t {
        let handle = self.handle;
        std::mem::forget(self);
        handle
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Some(release) = self.table.Device.pfnRelease {
            // SAFETY: the handle is live by the reference that is released here.
            unsafe { release(self.handle) };
        }
    }
}

/// A device with its numbers and its root's kind.
struct Numbered {
    device: Device,
    path: Vec<u32>,
    kind: Kind,
}

struct Walk {
    table: &'static ur_dditable_t,
    platform: ur_platform_handle_t,
}

impl Walk {
    fn select(&self, selector: &Selector, which: ur_device_type_t) -> Result<Vec<Device>> {
        let selection =
            selector.for_backend(backend(self.platform_info(UR_PLATFORM_INFO_BACKEND)?));
        if selection.is_empty() {
            return Ok(Vec::new());
        }
        let mut level = self.roots(&selection, which)?;
        let mut chosen = Vec::new();
        while !level.is_empty() {
            let below = level
                .iter()
                .filter(|at| selection.descends(&at.path, at.kind));
            let below = below.map(|at| self.parts(at)).collect::<Result<Vec<_>>>()?;
            let selected = level
                .into_iter()
                .filter(|at| selection.selects(&at.path, at.kind));
            chosen.extend(selected.map(|at| at.device));
            level = below.into_iter().flatten().collect();
        }
        Ok(chosen)
    }

    /// The root devices of type `which`, each with its number among all types.
    fn roots(&self, selection: &Selection, which: ur_device_type_t) -> Result<Vec<Numbered>> {
        let all = self.devices(self.platform, UR_DEVICE_TYPE_ALL)?;
        let numbers: Vec<ur_device_handle_t> = all.iter().map(|device| device.handle).collect();
        let of_type = if which == UR_DEVICE_TYPE_ALL {
            all
        } else {
            self.devices(self.platform, which)?
        };
        let start = if selection.uses_root_numbers() {
            self.first_number()?
        } else {
            0
        };
        let numbered = of_type.into_iter().filter_map(|device| {
            // Adapters return the same handles in every device list.
            let at = numbers.iter().position(|&handle| handle == device.handle)?;
            let number = start.checked_add(u32::try_from(at).ok()?)?;
            Some((device, number))
        });
        let root = |(device, number): (Device, u32)| {
            let kind = self.kind(&device)?;
            Ok(Numbered {
                device,
                path: vec![number],
                kind,
            })
        };
        numbered.map(root).collect()
    }

    /// The number of devices of the same adapter's earlier platforms.
    fn first_number(&self) -> Result<u32> {
        let adapter: ur_adapter_handle_t = self.platform_info(UR_PLATFORM_INFO_ADAPTER)?;
        let get = slot(self.table.Platform.pfnGet)?;
        let platforms: Vec<ur_platform_handle_t> = enumerate(|capacity, list, total| {
            // SAFETY: `enumerate` passes a list of `capacity` entries; a live platform keeps its
            // adapter live.
            unsafe { get(adapter, capacity, list, total) }
        })?;
        let get = slot(self.table.Device.pfnGet)?;
        let mut before = 0u32;
        for platform in platforms
            .into_iter()
            .take_while(|&other| other != self.platform)
        {
            let mut count = 0;
            // SAFETY: a null list with no entries is valid; the count is a local variable.
            let result = unsafe {
                get(
                    platform,
                    UR_DEVICE_TYPE_ALL,
                    0,
                    std::ptr::null_mut(),
                    &mut count,
                )
            };
            match result {
                UR_RESULT_SUCCESS => before = before.saturating_add(count),
                // This platform has no devices.
                UR_RESULT_ERROR_DEVICE_NOT_FOUND => {}
                other => return Err(Error::new(other)),
            }
        }
        Ok(before)
    }

    /// The sub-devices of a device; none if it cannot be partitioned.
    fn parts(&self, whole: &Numbered) -> Result<Vec<Numbered>> {
        let partition = slot(self.table.Device.pfnPartition)?;
        let property = ur_device_partition_property_t {
            r#type: UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN,
            value: ur_device_partition_value_t {
                affinity_domain: UR_DEVICE_AFFINITY_DOMAIN_FLAG_NEXT_PARTITIONABLE,
            },
        };
        let properties = ur_device_partition_properties_t {
            pProperties: &raw const property,
            PropCount: 1,
            ..ur_device_partition_properties_t::default()
        };
        let handles = enumerate(|capacity, list, total| {
            // SAFETY: `enumerate` passes a list of `capacity` entries; the properties outlive the
            // call.
            unsafe { partition(whole.device.handle, &properties, capacity, list, total) }
        });
        let handles = handles.unwrap_or_else(|reason| {
            debug!("device {:?} has no sub-devices: {reason:?}", whole.path);
            Vec::new()
        });
        let part = |(number, handle)| Numbered {
            device: Device {
                handle,
                table: self.table,
            },
            path: whole.path.iter().copied().chain([number]).collect(),
            kind: whole.kind,
        };
        Ok((0u32..).zip(handles).map(part).collect())
    }

    fn devices(
        &self,
        platform: ur_platform_handle_t,
        which: ur_device_type_t,
    ) -> Result<Vec<Device>> {
        let get = slot(self.table.Device.pfnGet)?;
        let handles = enumerate(|capacity, list, total| {
            // SAFETY: `enumerate` passes a list of `capacity` entries; the caller guarantees a live
            // platform.
            unsafe { get(platform, which, capacity, list, total) }
        });
        match handles {
            Err(error) if error.code() == UR_RESULT_ERROR_DEVICE_NOT_FOUND => Ok(Vec::new()),
            handles => {
                let device = |handle| Device {
                    handle,
                    table: self.table,
                };
                Ok(handles?.into_iter().map(device).collect())
            }
        }
    }

    fn kind(&self, device: &Device) -> Result<Kind> {
        let get = slot(self.table.Device.pfnGetInfo)?;
        let kind: ur_device_type_t = info(|size, value| {
            // SAFETY: `info` passes a buffer of `size` bytes; `device` holds a reference.
            unsafe {
                get(
                    device.handle,
                    UR_DEVICE_INFO_TYPE,
                    size,
                    value,
                    std::ptr::null_mut(),
                )
            }
        })?;
        Ok(match kind {
            UR_DEVICE_TYPE_CPU => Kind::Cpu,
            UR_DEVICE_TYPE_GPU => Kind::Gpu,
            UR_DEVICE_TYPE_FPGA => Kind::Fpga,
            _ => Kind::Other,
        })
    }

    fn platform_info<T: Plain>(&self, what: ur_platform_info_t) -> Result<T> {
        let get = slot(self.table.Platform.pfnGetInfo)?;
        info(|size, value| {
            // SAFETY: `info` passes a buffer of `size` bytes; the caller guarantees a live
            // platform.
            unsafe { get(self.platform, what, size, value, std::ptr::null_mut()) }
        })
    }
}

fn backend(backend: ur_backend_t) -> Option<Backend> {
    match backend {
        UR_BACKEND_LEVEL_ZERO => Some(Backend::LevelZero),
        UR_BACKEND_OPENCL => Some(Backend::OpenCl),
        UR_BACKEND_CUDA => Some(Backend::Cuda),
        UR_BACKEND_HIP => Some(Backend::Hip),
        UR_BACKEND_NATIVE_CPU => Some(Backend::NativeCpu),
        UR_BACKEND_OFFLOAD => Some(Backend::Offload),
        _ => None,
    }
}

fn slot<F>(function: Option<F>) -> Result<F> {
    function.ok_or(Error::new(UR_RESULT_ERROR_UNINITIALIZED))
}

fn check(result: ur_result_t) -> Result<()> {
    if result == UR_RESULT_SUCCESS {
        Ok(())
    } else {
        Err(Error::new(result))
    }
}

/// Types for which every bit pattern is valid, so that an info query may fill them.
trait Plain: Copy {
    const ZERO: Self;
}

impl Plain for ur_backend_t {
    const ZERO: Self = ur_backend_t(0);
}

impl Plain for ur_device_type_t {
    const ZERO: Self = ur_device_type_t(0);
}

impl Plain for ur_adapter_handle_t {
    const ZERO: Self = std::ptr::null_mut();
}

fn info<T: Plain>(get: impl FnOnce(usize, *mut c_void) -> ur_result_t) -> Result<T> {
    let mut value = T::ZERO;
    check(get(size_of::<T>(), (&raw mut value).cast()))?;
    Ok(value)
}

/// Calls `get` for the number of handles, then for the handles. Null handles are dropped.
fn enumerate<T>(get: impl Fn(u32, *mut *mut T, *mut u32) -> ur_result_t) -> Result<Vec<*mut T>> {
    let mut total = 0;
    check(get(0, std::ptr::null_mut(), &mut total))?;
    if total == 0 {
        return Ok(Vec::new());
    }
    let mut handles = vec![std::ptr::null_mut(); total as usize];
    let capacity = total;
    check(get(capacity, handles.as_mut_ptr(), &mut total))?;
    handles.truncate(total as usize);
    handles.retain(|handle| !handle.is_null());
    Ok(handles)
}

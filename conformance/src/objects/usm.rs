//! Synchronous USM allocations, and the kinds of USM.

use super::{Context, info, released};
use crate::api::Api;
use crate::fixture::Fixture;
use crate::outcome::Stop;
use crate::status::Status;
use std::ffi::c_void;
use std::fmt;
use std::ptr::null_mut;
use ur::abi::*;

/// A kind of USM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Device,
    Shared,
    Host,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Device => "device",
            Kind::Shared => "shared",
            Kind::Host => "host",
        })
    }
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Device, Kind::Shared, Kind::Host];

    pub fn usm_type(self) -> ur_usm_type_t {
        match self {
            Kind::Device => UR_USM_TYPE_DEVICE,
            Kind::Shared => UR_USM_TYPE_SHARED,
            Kind::Host => UR_USM_TYPE_HOST,
        }
    }

    /// The device property with the capabilities for this kind.
    pub fn capability(self) -> ur_device_info_t {
        match self {
            Kind::Device => UR_DEVICE_INFO_USM_DEVICE_SUPPORT,
            Kind::Shared => UR_DEVICE_INFO_USM_SINGLE_SHARED_SUPPORT,
            Kind::Host => UR_DEVICE_INFO_USM_HOST_SUPPORT,
        }
    }

    /// Whether the host may access the memory through its pointer.
    pub fn host_accessible(self) -> bool {
        self != Kind::Device
    }

    /// Whether the device has this kind of USM.
    pub fn is_there(self, fixture: &Fixture) -> Result<bool, Stop> {
        let access: ur_device_usm_access_capability_flags_t =
            fixture.device_info(self.capability())?;
        Ok(access.contains(UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ACCESS))
    }

    /// Stops the test unless the device has this kind of USM.
    pub fn need(self, fixture: &Fixture) -> Result<(), Stop> {
        match self.is_there(fixture)? {
            true => Ok(()),
            false => Err(Stop::Unsupported {
                what: format!("{:?} is 0", self.capability()),
                documented: true,
            }),
        }
    }

    /// The synchronous allocation function of the kind.
    pub fn allocate(
        self,
        context: &Context,
        device: ur_device_handle_t,
        desc: *const ur_usm_desc_t,
        pool: ur_usm_pool_handle_t,
        size: usize,
        out: *mut *mut c_void,
    ) -> Status {
        let ur = context.ur;
        match self {
            Kind::Device => ur.urUSMDeviceAlloc(context.raw, device, desc, pool, size, out),
            Kind::Shared => ur.urUSMSharedAlloc(context.raw, device, desc, pool, size, out),
            Kind::Host => ur.urUSMHostAlloc(context.raw, desc, pool, size, out),
        }
    }
}

/// A synchronous allocation, freed on drop.
pub struct Usm {
    ur: &'static Api,
    context: ur_context_handle_t,
    pub ptr: *mut c_void,
    pub size: usize,
}

// SAFETY: the interface lets any thread use its memory; the tests order the accesses.
unsafe impl Send for Usm {}
// SAFETY: the interface lets any thread use its memory; the tests order the accesses.
unsafe impl Sync for Usm {}

impl Usm {
    #[track_caller]
    pub fn new(
        context: &Context,
        device: ur_device_handle_t,
        kind: Kind,
        size: usize,
        align: u32,
        pool: ur_usm_pool_handle_t,
    ) -> Result<Self, Stop> {
        let desc = ur_usm_desc_t {
            align,
            ..Default::default()
        };
        let mut ptr = null_mut();
        let status = kind.allocate(context, device, &desc, pool, size, &mut ptr);
        status.ok()?;
        if ptr.is_null() {
            return Err(Stop::failed(format!(
                "{}: success, but no pointer",
                status.function
            )));
        }
        Ok(Self {
            ur: context.ur,
            context: context.raw,
            ptr,
            size,
        })
    }

    /// Gives the allocation up to the caller, who must free it.
    pub fn into_raw(mut self) -> *mut c_void {
        std::mem::replace(&mut self.ptr, null_mut())
    }

    /// The memory as the host sees it, for kinds that it can access. No other use may run at the time.
    pub fn host<T: Copy>(&self) -> &[T] {
        // SAFETY: the allocation has `size` bytes at an address aligned for any `T` used, and the test has
        // chosen a kind that the host may access.
        unsafe { std::slice::from_raw_parts(self.ptr.cast(), self.size / size_of::<T>()) }
    }

    /// The memory as the host writes it, under the conditions of `host`.
    pub fn host_mut<T: Copy>(&mut self) -> &mut [T] {
        // SAFETY: the allocation has `size` bytes, aligned for any `T` used, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.cast(), self.size / size_of::<T>()) }
    }
}

impl Drop for Usm {
    fn drop(&mut self) {
        if !self.ptr.is_null() {
            released(self.ur.urUSMFree(self.context, self.ptr));
        }
    }
}

/// A property of the allocation at a pointer.
#[track_caller]
pub fn alloc_info<T: Copy>(
    context: &Context,
    ptr: *const c_void,
    property: ur_usm_alloc_info_t,
) -> Result<T, Stop> {
    info::value(|size, value, ret| {
        context
            .ur
            .urUSMGetMemAllocInfo(context.raw, ptr, property, size, value, ret)
    })
}

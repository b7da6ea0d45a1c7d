//! Devices: the root devices of a platform, and sub-devices.

mod info;

use std::collections::HashSet;
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Instant;

use opencl_sys::*;
use ur::abi::*;
use ur::hal::{self, DeviceInfo, Exported};
use ur::object::{
    Answers, Body, Error, Handles, InfoOut, Kind, ListOut, Object, Out, Result, ensure,
};
use ur::stream::Context;

use crate::OpenCl;
use crate::adapter::{engine, roots};
use crate::cl::{self, Api, ContextRef, Version, check};
use crate::exec::{Ahead, ContextData};
use crate::platform::Platform;
use crate::program::Program;

pub struct Device {
    platform: Arc<Object<Platform>>,
    raw: usize,
    pub kind: cl_device_type,
    version: OnceLock<Version>,
    extensions: OnceLock<HashSet<String>>,
    parent: Option<Arc<Object<Device>>>,
    answers: Answers,
    records: OnceLock<bool>,
    updates: OnceLock<cl_mutable_dispatch_fields_khr>,
    timed: OnceLock<bool>,
    /// The offset of the host's clock, for a driver that does not report the device's clock.
    pub ahead: Ahead,
    shares: OnceLock<bool>,
}

impl Device {
    /// The root devices of a platform. Accelerators are left out.
    pub fn roots(platform: &Arc<Object<Platform>>) -> Vec<Arc<Object<Self>>> {
        let core = platform.api().core;
        let mut count = 0;
        // SAFETY: the call writes only the number of devices.
        let code = unsafe {
            (core.clGetDeviceIDs)(
                platform.raw(),
                CL_DEVICE_TYPE_ALL,
                0,
                null_mut(),
                &mut count,
            )
        };
        if code != CL_SUCCESS || count == 0 {
            return Vec::new();
        }
        let mut ids = vec![null_mut(); count as usize];
        // SAFETY: `ids` has room for `count` devices.
        let code = unsafe {
            (core.clGetDeviceIDs)(
                platform.raw(),
                CL_DEVICE_TYPE_ALL,
                count,
                ids.as_mut_ptr(),
                null_mut(),
            )
        };
        if code != CL_SUCCESS {
            return Vec::new();
        }
        let devices = ids.into_iter().map(|id| Self::open(platform, id, None));
        let devices = devices.filter(|device| device.kind & CL_DEVICE_TYPE_ACCELERATOR == 0);
        devices
            .map(|device| Object::immortal(OpenCl::table(), device))
            .collect()
    }

    fn open(
        platform: &Arc<Object<Platform>>,
        id: cl_device_id,
        parent: Option<Arc<Object<Self>>>,
    ) -> Self {
        let mut device = Self {
            platform: Arc::clone(platform),
            raw: id.expose_provenance(),
            kind: 0,
            version: OnceLock::new(),
            extensions: OnceLock::new(),
            parent,
            answers: Answers::new(ur_device_info_t::ALL.len()),
            records: OnceLock::new(),
            updates: OnceLock::new(),
            timed: OnceLock::new(),
            ahead: Ahead::default(),
            shares: OnceLock::new(),
        };
        device.kind = device
            .value(CL_DEVICE_TYPE)
            .unwrap_or(CL_DEVICE_TYPE_CUSTOM);
        device
    }

    /// The device of a native handle: the root device's object, or a new object for a sub-device.
    pub fn from_native(native: ur_native_handle_t) -> Result<Arc<Object<Self>>> {
        let invalid = Error::new(UR_RESULT_ERROR_INVALID_DEVICE);
        ensure(native != 0, UR_RESULT_ERROR_INVALID_DEVICE)?;
        let platforms = roots().map_or(&[][..], |roots| &roots.platforms);
        let mut devices = platforms.iter().flat_map(|platform| platform.devices());
        if let Some(root) = devices.find(|device| device.raw == native) {
            return Ok(Arc::clone(root));
        }
        let id: cl_device_id = std::ptr::with_exposed_provenance_mut(native);
        let core = platforms.first().ok_or(invalid)?.api().core;
        let query = |what| {
            cl::value::<usize>(
                // SAFETY: `urDeviceCreateWithNativeHandle` requires a native device.
                |size, value, ret| unsafe { (core.clGetDeviceInfo)(id, what, size, value, ret) },
                "clGetDeviceInfo",
            )
        };
        let (owner, parent) = (query(CL_DEVICE_PLATFORM)?, query(CL_DEVICE_PARENT_DEVICE)?);
        let platform = platforms
            .iter()
            .find(|platform| platform.raw().addr() == owner)
            .ok_or(invalid)?;
        let parent = (parent != 0)
            .then(|| Self::from_native(parent))
            .transpose()?;
        if parent.is_some() {
            // SAFETY: the device answered a query, so that it is alive. Its drop releases the reference.
            check(unsafe { (core.clRetainDevice)(id) }, "clRetainDevice")?;
        }
        Ok(hal::new::<OpenCl, _>(Self::open(platform, id, parent)))
    }

    pub fn api(&self) -> &'static Api {
        self.platform.api()
    }

    pub fn platform(&self) -> &Arc<Object<Platform>> {
        &self.platform
    }

    pub fn raw(&self) -> cl_device_id {
        std::ptr::with_exposed_provenance_mut(self.raw)
    }

    pub fn parent(&self) -> Option<&Arc<Object<Device>>> {
        self.parent.as_ref()
    }

    /// The device's version, queried at the first use. Listing devices does not need it.
    pub fn version(&self) -> Version {
        let query = || Version::parse(&self.text(CL_DEVICE_VERSION).unwrap_or_default());
        *self.version.get_or_init(query)
    }

    pub fn has(&self, extension: &str) -> bool {
        let query = || {
            let all = self.text(CL_DEVICE_EXTENSIONS).unwrap_or_default();
            all.split_whitespace().map(str::to_owned).collect()
        };
        self.extensions.get_or_init(query).contains(extension)
    }

    /// The version of an extension, if the device reports it.
    pub fn extension_version(&self, extension: &str) -> Option<Version> {
        let known = self.has(extension) && self.version() >= Version::new(3, 0);
        let all = known.then(|| self.list::<cl_name_version>(CL_DEVICE_EXTENSIONS_WITH_VERSION));
        let is_it = |one: &&cl_name_version| {
            let name = one.name.iter().take_while(|byte| **byte != 0);
            name.copied().eq(extension.bytes())
        };
        let packed = all?.ok()?.iter().find(is_it)?.version;
        Some(Version::new(packed >> 22, packed >> 12 & 0x3ff))
    }

    /// Whether recorded commands can become one native command buffer.
    pub fn records(&self) -> bool {
        *self.records.get_or_init(|| crate::record::is_offered(self))
    }

    /// The fields of a recorded launch that can be changed in place. Empty if the driver cannot.
    pub fn updates(&self) -> cl_mutable_dispatch_fields_khr {
        *self.updates.get_or_init(|| crate::record::updatable(self))
    }

    pub fn value<T: Copy>(&self, what: cl_device_info) -> Result<T> {
        // SAFETY: `self` keeps the device alive, and `cl` passes a buffer of that size.
        let query = |size, value, ret| unsafe {
            (self.api().core.clGetDeviceInfo)(self.raw(), what, size, value, ret)
        };
        cl::value(query, "clGetDeviceInfo")
    }

    pub fn list<T: Copy>(&self, what: cl_device_info) -> Result<Vec<T>> {
        // SAFETY: `self` keeps the device alive, and `cl` passes a buffer of that size.
        let query = |size, value, ret| unsafe {
            (self.api().core.clGetDeviceInfo)(self.raw(), what, size, value, ret)
        };
        cl::list(query, "clGetDeviceInfo")
    }

    pub fn text(&self, what: cl_device_info) -> Result<String> {
        // SAFETY: `self` keeps the device alive, and `cl` passes a buffer of that size.
        let query = |size, value, ret| unsafe {
            (self.api().core.clGetDeviceInfo)(self.raw(), what, size, value, ret)
        };
        cl::text(query, "clGetDeviceInfo")
    }

    /// Whether the device accepts programs in an intermediate language.
    pub fn accepts_il(&self) -> bool {
        let knows = self.version() >= Version::new(2, 1) || self.has("cl_khr_il_program");
        knows
            && self
                .text(CL_DEVICE_IL_VERSION)
                .is_ok_and(|versions| !versions.is_empty())
    }

    /// Whether programs have specialisation constants. Only an intermediate language has them.
    pub fn specializes(&self) -> bool {
        self.version() >= Version::new(2, 2) && self.accepts_il()
    }

    /// The kinds of shared virtual memory. None before OpenCL 2.0.
    pub fn svm(&self) -> cl_device_svm_capabilities {
        match self.version() >= Version::new(2, 0) {
            true => self.value(CL_DEVICE_SVM_CAPABILITIES).unwrap_or(0),
            false => 0,
        }
    }

    /// Whether the device and the host share one address space, as on a CPU.
    pub fn shares_addresses(&self) -> bool {
        *self.shares.get_or_init(|| {
            let system = self.svm() & CL_DEVICE_SVM_FINE_GRAIN_SYSTEM != 0;
            self.kind & CL_DEVICE_TYPE_CPU != 0 && system
        })
    }

    /// The device's clock and the host's, in nanoseconds. Both are the host's if the driver reports none.
    pub fn clocks(&self) -> Result<(u64, u64)> {
        if !self.has_timers() {
            let now = host_clock();
            return Ok((now, now));
        }
        self.timers()
    }

    /// Whether the driver reports the device's clock, which timestamps of events use.
    pub fn has_timers(&self) -> bool {
        *self.timed.get_or_init(|| self.timers().is_ok())
    }

    fn timers(&self) -> Result<(u64, u64)> {
        let has =
            self.version() >= Version::new(2, 1) && self.platform.version() >= Version::new(2, 1);
        let read = self
            .api()
            .core
            .clGetDeviceAndHostTimer
            .filter(|_| has)
            .ok_or(Error::unsupported())?;
        let (mut device, mut host) = (0, 0);
        // SAFETY: `self` keeps the device alive, and both times are writable.
        let code = unsafe { read(self.raw(), &mut device, &mut host) };
        // A platform without timers answers this.
        ensure(
            code != CL_INVALID_OPERATION,
            UR_RESULT_ERROR_UNSUPPORTED_FEATURE,
        )?;
        check(code, "clGetDeviceAndHostTimer")?;
        Ok((device, host))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.parent.is_some() {
            // SAFETY: a sub-device owns a reference since its creation or adoption.
            unsafe { (self.api().core.clReleaseDevice)(self.raw()) };
        }
    }
}

impl Body for Device {
    const KIND: Kind = Kind::Device;
}

/// The host's monotonic clock, in nanoseconds. Never 0, which stands for no time.
fn host_clock() -> u64 {
    static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);
    BASE.elapsed().as_nanos() as u64 + 1
}

/// OpenCL's property list for these parts, ended by 0.
fn partition(by: &[ur_device_partition_property_t]) -> Result<Vec<cl_device_partition_property>> {
    let first = by
        .first()
        .ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
    ensure(
        by.iter().all(|one| one.r#type == first.r#type),
        UR_RESULT_ERROR_INVALID_VALUE,
    )?;
    // SAFETY: every member of the union is a `u32`, so that any of them reads it.
    let count = |one: &ur_device_partition_property_t| unsafe { one.value.count }
        as cl_device_partition_property;
    match first.r#type {
        UR_DEVICE_PARTITION_EQUALLY => {
            ensure(by.len() == 1, UR_RESULT_ERROR_INVALID_VALUE)?;
            ensure(
                count(first) > 0,
                UR_RESULT_ERROR_INVALID_DEVICE_PARTITION_COUNT,
            )?;
            Ok(vec![CL_DEVICE_PARTITION_EQUALLY, count(first), 0])
        }
        UR_DEVICE_PARTITION_BY_COUNTS => {
            ensure(
                by.iter().all(|one| count(one) > 0),
                UR_RESULT_ERROR_INVALID_DEVICE_PARTITION_COUNT,
            )?;
            let counts = by.iter().map(count);
            let list_end = [CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0];
            Ok(std::iter::once(CL_DEVICE_PARTITION_BY_COUNTS)
                .chain(counts)
                .chain(list_end)
                .collect())
        }
        UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN => {
            ensure(by.len() == 1, UR_RESULT_ERROR_INVALID_VALUE)?;
            // SAFETY: the type names the valid member.
            let wanted = unsafe { first.value.affinity_domain };
            let domain = info::AFFINITY.iter().find(|(_, ur)| ur.0 == wanted.0);
            let (domain, _) = domain.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
            Ok(vec![
                CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN,
                *domain as cl_device_partition_property,
                0,
            ])
        }
        UR_DEVICE_PARTITION_BY_CSLICE => Err(Error::unsupported()),
        _ => Err(Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION)),
    }
}

impl hal::Device<OpenCl> for Device {
    fn get_info(this: &Object<Self>, what: DeviceInfo, out: InfoOut<'_>) -> Result<()> {
        match what {
            // All properties but the count of references are constant.
            DeviceInfo::ReferenceCount => info::get(this, what, out),
            _ => {
                let query = |out: InfoOut<'_>| info::get(this, what, out);
                this.answers.write(what as usize, out, query)
            }
        }
    }

    fn partition(
        this: &Object<Self>,
        properties: &ur_device_partition_properties_t,
        sub_devices: ListOut<'_, Device>,
    ) -> Result<()> {
        // SAFETY: `urDevicePartition` requires `PropCount` elements.
        let by = unsafe { hal::checks::slice(properties.pProperties, properties.PropCount) }?;
        let by = partition(by)?;
        let create = this.api().core.clCreateSubDevices;
        let mut count = 0;
        check(
            // SAFETY: `partition` ends the property list with 0.
            unsafe { create(this.raw(), by.as_ptr(), 0, null_mut(), &mut count) },
            "clCreateSubDevices",
        )?;
        let mut ids = vec![null_mut(); count as usize];
        check(
            // SAFETY: `partition` ends the property list with 0, and `ids` has room for `count` devices.
            unsafe { create(this.raw(), by.as_ptr(), count, ids.as_mut_ptr(), null_mut()) },
            "clCreateSubDevices",
        )?;
        let part = |id| hal::new::<OpenCl, _>(Self::open(&this.platform, id, Some(this.arc())));
        let parts: Vec<_> = ids.into_iter().map(part).collect();
        sub_devices.write(&parts);
        Ok(())
    }

    fn select_binary(this: &Object<Self>, binaries: &[ur_device_binary_t]) -> Result<u32> {
        let own = match this.kind {
            kind if kind & CL_DEVICE_TYPE_CPU != 0 => UR_DEVICE_BINARY_TARGET_SPIRV64_X86_64,
            kind if kind & CL_DEVICE_TYPE_GPU != 0 => UR_DEVICE_BINARY_TARGET_SPIRV64_GEN,
            kind if kind & CL_DEVICE_TYPE_ACCELERATOR != 0 => UR_DEVICE_BINARY_TARGET_SPIRV64_FPGA,
            _ => UR_DEVICE_BINARY_TARGET_SPIRV64,
        };
        let is = |binary: &ur_device_binary_t, target: &CStr| {
            let spec = binary.pDeviceTargetSpec;
            // SAFETY: the caller passes null or a C string.
            !spec.is_null() && unsafe { CStr::from_ptr(spec) } == target
        };
        let exact = binaries.iter().position(|binary| is(binary, own));
        let portable = || {
            binaries
                .iter()
                .rposition(|binary| is(binary, UR_DEVICE_BINARY_TARGET_SPIRV64))
        };
        let found = exact
            .or_else(portable)
            .ok_or(Error::new(UR_RESULT_ERROR_INVALID_BINARY))?;
        Ok(found as u32)
    }

    fn get_native_handle(this: &Object<Self>) -> Result<ur_native_handle_t> {
        Ok(this.raw)
    }

    fn get_global_timestamps(
        this: &Object<Self>,
        device: Out<'_, u64>,
        host: Out<'_, u64>,
    ) -> Result<()> {
        if !device.wanted() && !host.wanted() {
            return Ok(());
        }
        let (on_device, on_host) = this.clocks()?;
        device.set(on_device);
        host.set(on_host);
        Ok(())
    }

    fn context_create(
        devices: Handles<'_, Device>,
        _: Option<&ur_context_properties_t>,
    ) -> Result<Arc<Object<Context<OpenCl>>>> {
        let first = devices
            .first()
            .ok_or(Error::new(UR_RESULT_ERROR_INVALID_SIZE))?;
        let same = devices
            .iter()
            .all(|device| Arc::ptr_eq(&device.platform, &first.platform));
        ensure(same, UR_RESULT_ERROR_INVALID_DEVICE)?;
        let ids: Vec<cl_device_id> = devices.iter().map(|device| device.raw()).collect();
        let platform = first.platform.raw().expose_provenance() as cl_context_properties;
        let properties = [CL_CONTEXT_PLATFORM, platform, 0];
        let mut code = 0;
        // SAFETY: `devices` keeps the devices alive, and the property list ends with 0.
        let context = unsafe {
            let create = first.api().core.clCreateContext;
            let raw = create(
                properties.as_ptr(),
                ids.len() as u32,
                ids.as_ptr(),
                None,
                null_mut(),
                &mut code,
            );
            ContextRef::created(first.api(), raw, code, "clCreateContext")
        }?;
        Ok(Context::new(&engine()?, devices, ContextData::new(context)))
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

    fn wait_exp(this: &Object<Self>) -> Result<()> {
        engine()?.wait_device(this)
    }
}

//! Devices, and the primary context of each while it is needed.

mod images;
mod info;

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use ur::abi::*;
use ur::hal::{self, DeviceInfo, Exported, PeerInfo};
use ur::object::{Answers, Body, Handles, InfoOut, Kind, Object, Out, Result, ensure};
use ur::stream::Context;
use ur::sync::{Mutex, MutexGuard};

use crate::Cuda;
use crate::adapter::engine;
use crate::cu::sys::{CUdevice, CUdevice_P2PAttribute, CUdevice_attribute};
use crate::cu::{Api, check};
use crate::driver::ContextData;
use crate::exec::Gpu;
use crate::platform::Platform;
use crate::program::Program;

pub struct Device {
    api: &'static Api,
    platform: Arc<Object<Platform>>,
    raw: CUdevice,
    gpu: Mutex<Option<Arc<Gpu>>>,
    answers: Answers,
    pub limits: Limits,
}

/// Limits that launches are checked against.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    pub group_items: usize,
    pub group: [usize; 3],
    pub grid: [usize; 3],
    /// Bytes of shared memory of a work-group: by default, and after a kernel has opted in.
    pub local_bytes: usize,
    pub max_local_bytes: usize,
    pub processors: usize,
    pub warp: usize,
    pub cooperative: bool,
    /// Compute capability.
    pub capability: (i32, i32),
}

impl Device {
    pub fn open(
        api: &'static Api,
        platform: &Arc<Object<Platform>>,
        number: i32,
    ) -> Option<Arc<Object<Self>>> {
        let mut raw = 0;
        // SAFETY: `raw` is writable.
        let code = unsafe { (api.cuDeviceGet)(&mut raw, number) };
        if !code.is_success() {
            log::warn!(
                "device {number} is left out: cuDeviceGet failed with {}",
                code.0
            );
            return None;
        }
        let mut device = Self {
            api,
            platform: Arc::clone(platform),
            raw,
            gpu: Mutex::default(),
            answers: Answers::new(ur_device_info_t::ALL.len()),
            limits: Limits::default(),
        };
        device.limits = device.read_limits();
        Some(Object::immortal(Cuda::table(), device))
    }

    fn read_limits(&self) -> Limits {
        use CUdevice_attribute::*;
        let number = |what| self.attribute(what).unwrap_or(0);
        let size = |what| number(what).max(0) as usize;
        let local_bytes = size(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
        Limits {
            group_items: size(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            group: [
                size(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                size(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                size(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
            ],
            grid: [
                size(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                size(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                size(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
            ],
            local_bytes,
            max_local_bytes: size(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
                .max(local_bytes),
            processors: size(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
            warp: size(CU_DEVICE_ATTRIBUTE_WARP_SIZE).max(1),
            cooperative: number(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) != 0,
            capability: (
                number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
            ),
        }
    }

    pub fn api(&self) -> &'static Api {
        self.api
    }

    pub fn raw(&self) -> CUdevice {
        self.raw
    }

    pub fn attribute(&self, what: CUdevice_attribute) -> Result<i32> {
        let mut value = 0;
        // SAFETY: `value` is writable.
        let code = unsafe { (self.api.cuDeviceGetAttribute)(&mut value, what, self.raw) };
        check(self.api, code, "cuDeviceGetAttribute")?;
        Ok(value)
    }

    pub fn total_memory(&self) -> Result<usize> {
        let mut bytes = 0;
        // SAFETY: `bytes` is writable.
        let code = unsafe { (self.api.cuDeviceTotalMem)(&mut bytes, self.raw) };
        check(self.api, code, "cuDeviceTotalMem")?;
        Ok(bytes)
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Gpu>>> {
        self.gpu.lock()
    }

    /// The primary context, retained if it was not yet.
    pub fn gpu(&self) -> Result<Arc<Gpu>> {
        let mut slot = self.slot();
        if let Some(gpu) = &*slot {
            return Ok(Arc::clone(gpu));
        }
        let gpu = Gpu::retain(self.api, self.raw)?;
        Ok(Arc::clone(slot.insert(gpu)))
    }

    /// The primary context, if it is retained.
    pub fn retained_gpu(&self) -> Option<Arc<Gpu>> {
        self.slot().clone()
    }

    /// Releases the primary context. Its users keep it until they end.
    pub fn let_go(&self) {
        let gpu = self.slot().take();
        drop(gpu);
    }

    /// The launch attributes that the device supports.
    pub fn launch_properties(&self) -> ur_kernel_launch_properties_flags_t {
        let extended = self.api.cuLaunchKernelEx.is_some();
        let modern = extended && self.limits.capability.0 >= 9;
        let each = [
            (
                extended && self.limits.cooperative,
                UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE,
            ),
            (modern, UR_KERNEL_LAUNCH_PROPERTIES_FLAG_CLUSTER_DIMENSION),
            (
                modern,
                UR_KERNEL_LAUNCH_PROPERTIES_FLAG_OPPORTUNISTIC_QUEUE_SERIALIZE,
            ),
            (true, UR_KERNEL_LAUNCH_PROPERTIES_FLAG_WORK_GROUP_MEMORY),
        ];
        let able = each.iter().filter(|(able, _)| *able);
        ur_kernel_launch_properties_flags_t(able.fold(0, |all, (_, flag)| all | flag.0))
    }

    /// Whether other processes can open the device's events. Drivers before CUDA 12 do not tell.
    pub fn shares_events(&self) -> bool {
        let able = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED;
        self.api.shared_events().is_some() && self.attribute(able).is_ok_and(|able| able != 0)
    }

    /// Whether streams can wait for the host.
    pub fn waits_for_host(&self) -> bool {
        self.api.cuStreamWaitValue32.is_some()
    }
}

impl Body for Device {
    const KIND: Kind = Kind::Device;
}

impl hal::Device<Cuda> for Device {
    fn get_info(this: &Object<Self>, what: DeviceInfo, out: InfoOut<'_>) -> Result<()> {
        match what {
            // All other properties are constant.
            DeviceInfo::ReferenceCount | DeviceInfo::GlobalMemFree => info::get(this, what, out),
            _ => {
                let query = |out: InfoOut<'_>| info::get(this, what, out);
                this.answers.write(what as usize, out, query)
            }
        }
    }

    fn select_binary(_: &Object<Self>, binaries: &[ur_device_binary_t]) -> Result<u32> {
        hal::answers::binary_for(binaries, UR_DEVICE_BINARY_TARGET_NVPTX64)
    }

    fn get_native_handle(this: &Object<Self>) -> Result<ur_native_handle_t> {
        Ok(this.raw as ur_native_handle_t)
    }

    fn get_global_timestamps(
        this: &Object<Self>,
        device: Out<'_, u64>,
        host: Out<'_, u64>,
    ) -> Result<()> {
        hal::answers::global_timestamps(device, host, || this.gpu()?.now())
    }

    fn context_create(
        devices: Handles<'_, Device>,
        _: Option<&ur_context_properties_t>,
    ) -> Result<Arc<Object<Context<Cuda>>>> {
        ensure(!devices.is_empty(), UR_RESULT_ERROR_INVALID_SIZE)?;
        Ok(Context::new(&engine()?, devices, ContextData::of(devices)?))
    }

    fn program_get_function_pointer(
        this: &Object<Self>,
        program: &Object<Program>,
        name: &CStr,
    ) -> Result<*mut c_void> {
        Ok(program.function(this, name)?.cast())
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
        peer.gpu()?.enable(&*this.gpu()?)?;
        engine()?.access_changed();
        Ok(())
    }

    fn usm_p2p_disable_peer_access_exp(this: &Object<Self>, peer: &Object<Self>) -> Result<()> {
        ensure(this.raw != peer.raw, UR_RESULT_ERROR_INVALID_DEVICE)?;
        peer.gpu()?.disable(&*this.gpu()?)?;
        engine()?.access_changed();
        Ok(())
    }

    fn usm_p2p_peer_access_get_info_exp(
        this: &Object<Self>,
        peer: &Object<Self>,
        what: PeerInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        use CUdevice_P2PAttribute::*;
        let what = match what {
            PeerInfo::UrPeerAccessSupport => CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED,
            PeerInfo::UrPeerAtomicsSupport => CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
        };
        // The driver knows no attributes of a device and itself.
        let mut value = 1;
        if this.raw != peer.raw {
            let query = this.api.cuDeviceGetP2PAttribute;
            // SAFETY: `value` is writable.
            let code = unsafe { query(&mut value, what, this.raw, peer.raw) };
            check(this.api, code, "cuDeviceGetP2PAttribute")?;
        }
        out.value(value)
    }

    fn bindless_images_supports_importing_handle_type_exp(
        this: &Object<Self>,
        kind: ur_exp_external_mem_type_t,
    ) -> Result<ur_bool_t> {
        let able = this.api.external_memories().is_some();
        let known = kind == UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD;
        Ok((able && known).into())
    }

    fn wait_exp(this: &Object<Self>) -> Result<()> {
        engine()?.wait_device(this)
    }
}

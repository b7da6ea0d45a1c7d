//! The root device, which has all workers, and sub-devices, which have a range of them each.

mod info;

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use ur::abi::*;
use ur::hal::{self, DeviceInfo, PeerInfo};
use ur::object::{Body, Error, Handles, InfoOut, Kind, ListOut, Object, Out, Result, ensure};
use ur::stream::Context;

use crate::Cpu;
use crate::adapter::Machine;
use crate::exec::{self, WorkerRange};
use crate::program::Program;
use crate::virtual_mem::AddressSpace;

/// Most work-items of a work-group, over all dimensions and in each.
pub const MAX_GROUP_ITEMS: usize = 2048;

/// Launch attributes: none, since work-groups run one after the other on each thread.
pub const LAUNCH_PROPERTIES: ur_kernel_launch_properties_flags_t =
    ur_kernel_launch_properties_flags_t(0);

/// Most work-groups of a launch.
pub const MAX_GROUPS: usize = isize::MAX.cast_unsigned();

pub struct Device {
    pub machine: Arc<Machine>,
    /// The workers that run the device's commands.
    pub workers: WorkerRange,
    parent: Option<Arc<Object<Device>>>,
    /// The property that a sub-device was made by.
    split: Option<ur_device_partition_property_t>,
}

// SAFETY: each member of the union in `split` is a number.
unsafe impl Sync for Device {}
// SAFETY: each member of the union in `split` is a number.
unsafe impl Send for Device {}

impl Device {
    pub fn root(machine: Arc<Machine>) -> Self {
        let workers = WorkerRange {
            first: 0,
            count: machine.width,
        };
        Self {
            machine,
            workers,
            parent: None,
            split: None,
        }
    }

    pub fn parent(&self) -> Option<&Arc<Object<Device>>> {
        self.parent.as_ref()
    }

    /// Whether this is `other` or a part of it.
    pub fn is_part_of(this: &Object<Self>, other: &Object<Self>) -> bool {
        std::ptr::eq(this, other)
            || this
                .parent
                .as_ref()
                .is_some_and(|parent| Self::is_part_of(parent, other))
    }

    fn partitions(&self) -> &'static [ur_device_partition_t] {
        match self.workers.count {
            0 | 1 => &[],
            _ => &[UR_DEVICE_PARTITION_EQUALLY, UR_DEVICE_PARTITION_BY_COUNTS],
        }
    }

    /// Number of workers of each part that the properties ask for, with the part's property.
    fn split(
        &self,
        by: &[ur_device_partition_property_t],
    ) -> Result<Vec<(usize, ur_device_partition_property_t)>> {
        let first = by
            .first()
            .ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
        ensure(
            by.iter().all(|one| one.r#type == first.r#type),
            UR_RESULT_ERROR_INVALID_VALUE,
        )?;
        let count = |one: &ur_device_partition_property_t| {
            // SAFETY: every member of the union is a `u32`, so that any of them reads it.
            unsafe { one.value.count as usize }
        };
        let wrong = UR_RESULT_ERROR_INVALID_DEVICE_PARTITION_COUNT;
        match first.r#type {
            UR_DEVICE_PARTITION_EQUALLY => {
                ensure(by.len() == 1, UR_RESULT_ERROR_INVALID_VALUE)?;
                let each = count(first);
                ensure(0 < each && each <= self.workers.count, wrong)?;
                Ok(vec![(each, *first); self.workers.count / each])
            }
            UR_DEVICE_PARTITION_BY_COUNTS => {
                ensure(by.iter().all(|one| count(one) > 0), wrong)?;
                ensure(
                    by.iter().map(count).sum::<usize>() <= self.workers.count,
                    wrong,
                )?;
                Ok(by.iter().map(|one| (count(one), *one)).collect())
            }
            UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN | UR_DEVICE_PARTITION_BY_CSLICE => {
                Err(Error::unsupported())
            }
            _ => Err(Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION)),
        }
    }
}

impl Body for Device {
    const KIND: Kind = Kind::Device;
}

impl hal::Device<Cpu> for Device {
    fn get_info(this: &Object<Self>, what: DeviceInfo, out: InfoOut<'_>) -> Result<()> {
        info::get(this, what, out)
    }

    fn partition(
        this: &Object<Self>,
        properties: &ur_device_partition_properties_t,
        sub_devices: ListOut<'_, Device>,
    ) -> Result<()> {
        // SAFETY: `urDevicePartition` requires `PropCount` elements.
        let by = unsafe { hal::checks::slice(properties.pProperties, properties.PropCount) }?;
        let parts = this.split(by)?;
        ensure(
            !this.partitions().is_empty(),
            UR_RESULT_ERROR_DEVICE_PARTITION_FAILED,
        )?;
        let mut first = this.workers.first;
        let parts: Vec<_> = parts
            .into_iter()
            .map(|(count, split)| {
                let workers = WorkerRange { first, count };
                first += count;
                hal::new::<Cpu, _>(Self {
                    machine: Arc::clone(&this.machine),
                    workers,
                    parent: Some(this.arc()),
                    split: Some(split),
                })
            })
            .collect();
        sub_devices.write(&parts);
        Ok(())
    }

    fn select_binary(_: &Object<Self>, binaries: &[ur_device_binary_t]) -> Result<u32> {
        hal::answers::binary_for(binaries, UR_DEVICE_BINARY_TARGET_NATIVE_CPU)
    }

    fn get_global_timestamps(
        _: &Object<Self>,
        device: Out<'_, u64>,
        host: Out<'_, u64>,
    ) -> Result<()> {
        hal::answers::global_timestamps(device, host, || Ok(exec::now()))
    }

    fn context_create(
        devices: Handles<'_, Device>,
        _: Option<&ur_context_properties_t>,
    ) -> Result<Arc<Object<Context<Cpu>>>> {
        let first = devices
            .first()
            .ok_or(Error::new(UR_RESULT_ERROR_INVALID_SIZE))?;
        Ok(Context::new(
            &first.machine.engine()?,
            devices,
            AddressSpace::default(),
        ))
    }

    fn program_get_function_pointer(
        this: &Object<Self>,
        program: &Object<Program>,
        name: &CStr,
    ) -> Result<*mut c_void> {
        Ok(program.function(this, name)?.function as *mut c_void)
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
        this.machine.engine()?.wait_device(this)
    }

    // All devices are parts of one machine and always reach each other's memory.
    /// Devices reach all memory anyway.
    fn usm_p2p_enable_peer_access_exp(this: &Object<Self>, peer: &Object<Device>) -> Result<()> {
        ensure(!std::ptr::eq(this, peer), UR_RESULT_ERROR_INVALID_DEVICE)
    }

    fn usm_p2p_disable_peer_access_exp(this: &Object<Self>, peer: &Object<Device>) -> Result<()> {
        ensure(!std::ptr::eq(this, peer), UR_RESULT_ERROR_INVALID_DEVICE)
    }

    fn usm_p2p_peer_access_get_info_exp(
        _: &Object<Self>,
        _: &Object<Device>,
        what: PeerInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        match what {
            PeerInfo::UrPeerAccessSupport | PeerInfo::UrPeerAtomicsSupport => out.value(1i32),
        }
    }
}

//! Device memory on the devices that the user opened it to.
//!
//! The driver makes resident what the arguments of a kernel point to. What a kernel finds by itself, as by a pointer in a
//! structure, it finds on its own device alone: a peer's memory must be resident there before.
//!
//! `urUsmP2PEnablePeerAccessExp` makes a device's memory resident on the one device that it names, until access is
//! disabled. No other device gets it: residency on all that could reach it costs host memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use ur::object::{Object, Result};
use ur::sync::{Mutex, rank};

use crate::context::NativeContext;
use crate::device::Device;
use crate::lz::*;

/// The device memory of a native context, by its start.
///
/// An allocation is added before its device is asked for accessors, and an accessor is added before the allocations are
/// visited: each of them meets the other.
#[derive(Default)]
pub struct Residency(Mutex<BTreeMap<usize, Allocation>, { rank::RESIDENCY }>);

struct Allocation {
    device: Arc<Object<Device>>,
    start: usize,
    bytes: usize,
    /// The devices that it was made resident on.
    resident: Vec<ze_device_handle_t>,
}

impl Allocation {
    fn make_resident(
        &mut self,
        context: &NativeContext,
        accessor: ze_device_handle_t,
    ) -> Result<()> {
        if self.resident.contains(&accessor) {
            return Ok(());
        }
        let at = std::ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: live memory of the context.
        unsafe {
            call!(
                context.api,
                zeContextMakeMemoryResident(context.raw, accessor, at, self.bytes)
            )
        }?;
        self.resident.push(accessor);
        Ok(())
    }

    /// Ends the residency on the devices that `ends` names. Memory that the driver keeps there is no error of the
    /// caller's.
    fn evict(&mut self, context: &NativeContext, ends: impl Fn(ze_device_handle_t) -> bool) {
        for accessor in self.resident.extract_if(.., |one| ends(*one)) {
            let at = std::ptr::with_exposed_provenance_mut(self.start);
            // SAFETY: live memory of the context.
            let evicted = unsafe {
                call!(
                    context.api,
                    zeContextEvictMemory(context.raw, accessor, at, self.bytes)
                )
            };
            if let Err(error) = evicted {
                log::warn!("memory stays resident on a peer: {:?}", error.code());
            }
        }
    }
}

/// Adds an allocation, which becomes resident on the devices that reach it.
pub fn add(
    context: &NativeContext,
    device: &Object<Device>,
    start: usize,
    bytes: usize,
) -> Result<()> {
    let own = Allocation {
        device: device.arc(),
        start,
        bytes,
        resident: Vec::new(),
    };
    let mut live = context.residency.0.lock();
    let own = live.entry(start).insert_entry(own).into_mut();
    let mut accessors = device.accessors().into_iter();
    accessors.try_for_each(|accessor| own.make_resident(context, accessor))
}

/// Removes an allocation, if it is one, before it is freed.
pub fn remove(context: &NativeContext, start: usize) {
    let own = context.residency.0.lock().remove(&start);
    if let Some(mut own) = own {
        own.evict(context, |_| true);
    }
}

/// Makes a device's memory in a context resident on a device that it was opened to.
pub fn open(context: &NativeContext, of: &Device, accessor: ze_device_handle_t) -> Result<()> {
    let mut live = context.residency.0.lock();
    let mut of_device = live.values_mut().filter(|own| own.device.is_part_of(of));
    of_device.try_for_each(|own| own.make_resident(context, accessor))
}

/// Ends that, but for tiles of the device that stay open to the other one.
pub fn close(context: &NativeContext, of: &Device, accessor: ze_device_handle_t) {
    let mut live = context.residency.0.lock();
    for own in live.values_mut().filter(|own| own.device.is_part_of(of)) {
        let stays = own.device.accessors().contains(&accessor);
        own.evict(context, |one| one == accessor && !stays);
    }
}

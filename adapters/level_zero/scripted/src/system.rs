//! The system interface: devices under names of their own, found by UUID, with memory, clocks, fans and power.
//!
//! Half of a device's memory is free. The first fan is slower than the second. Each tile has a module of memory and a
//! clock; the card has the power's limits.

use std::ptr;

use ze::*;

use crate::device;
use crate::entry::{Answer, fill, given, put};

/// The only driver of the interface.
const DRIVER: usize = 0x5eed_5d00_0000;
/// A part's handle is its device's, this high, with the kind and the index above.
const PART: usize = 1 << 48;

const FREE_PART: u64 = 2;
const FAN_SPEEDS: [i32; 2] = [30, 55];
const POWER_LIMITS: [i32; 2] = [25_000, 150_000];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Memory = 1,
    Clock,
    Fan,
    Power,
}

fn check(driver: zes_driver_handle_t) -> Answer {
    match driver.0.addr() {
        DRIVER => Ok(()),
        _ => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
    }
}

/// Handles of a device's parts.
fn parts(device: zes_device_handle_t, kind: Kind, count: usize) -> Answer<Vec<usize>> {
    let card = device::handle(device::index(device)?).0.addr();
    Ok((0..count)
        .map(|at| card + PART * (at * 8 + kind as usize))
        .collect())
}

/// The index of a part of this kind.
fn part(handle: usize, kind: Kind) -> Answer<usize> {
    let (above, card) = (handle / PART, handle % PART);
    device::index(ze_device_handle_t(ptr::without_provenance_mut(card)))?;
    match above % 8 == kind as usize {
        true => Ok(above / 8),
        false => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
    }
}

fn named(handle: &usize) -> *mut std::ffi::c_void {
    ptr::without_provenance_mut(*handle)
}

/// Modules and clocks: one of each tile, or one of the card.
fn per_tile(device: zes_device_handle_t) -> Answer<usize> {
    Ok(device::tiles(device::index(device)?).len().max(1))
}

fn card_of(handle: usize) -> zes_device_handle_t {
    ze_device_handle_t(ptr::without_provenance_mut(handle % PART))
}

entries! {
    fn zesInit(_flags: zes_init_flags_t) {
        Ok(())
    }

    fn zesDriverGet(count: *mut u32, drivers: *mut zes_driver_handle_t) {
        let own = ze_driver_handle_t(ptr::without_provenance_mut(DRIVER));
        fill(count, drivers, &[own], |to, from| *to = *from)
    }

    fn zesDriverGetDeviceByUuidExp(
        driver: zes_driver_handle_t, uuid: zes_uuid_t, out: *mut zes_device_handle_t,
        is_tile: *mut ze_bool_t, tile_id: *mut u32,
    ) {
        check(driver)?;
        let cards = device::all().iter().enumerate();
        let mut all = cards.flat_map(|(card, handle)| {
            let tiles = (0..device::tiles(card).len()).map(Some);
            std::iter::once(None).chain(tiles).map(move |tile| (*handle, (card, tile)))
        });
        let found = all.find(|(_, place)| device::uuid(*place) == uuid.id);
        let (card, (_, tile)) = found.ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
        put(is_tile, u8::from(tile.is_some()))?;
        put(tile_id, tile.and_then(|tile| u32::try_from(tile).ok()).unwrap_or(0))?;
        put(out, card)
    }

    fn zesDeviceEnumMemoryModules(device: zes_device_handle_t, count: *mut u32, out: *mut zes_mem_handle_t) {
        let all = parts(device, Kind::Memory, per_tile(device)?)?;
        fill(count, out, &all, |to, from| *to = zes_mem_handle_t(named(from)))
    }

    fn zesMemoryGetProperties(memory: zes_mem_handle_t, out: *mut zes_mem_properties_t) {
        let at = part(memory.0.addr(), Kind::Memory)?;
        given(out)?;
        (*out).onSubdevice = u8::from(per_tile(card_of(memory.0.addr()))? > 1);
        (*out).subdeviceId = u32::try_from(at).unwrap_or(0);
        Ok(())
    }

    fn zesMemoryGetState(memory: zes_mem_handle_t, out: *mut zes_mem_state_t) {
        part(memory.0.addr(), Kind::Memory)?;
        given(out)?;
        let parts = per_tile(card_of(memory.0.addr()))? as u64;
        (*out).size = device::memory_bytes() / parts;
        (*out).free = (*out).size / FREE_PART;
        Ok(())
    }

    fn zesDeviceEnumFrequencyDomains(device: zes_device_handle_t, count: *mut u32, out: *mut zes_freq_handle_t) {
        // The last is the memory's.
        let all = parts(device, Kind::Clock, per_tile(device)? + 1)?;
        fill(count, out, &all, |to, from| *to = zes_freq_handle_t(named(from)))
    }

    fn zesFrequencyGetProperties(clock: zes_freq_handle_t, out: *mut zes_freq_properties_t) {
        let at = part(clock.0.addr(), Kind::Clock)?;
        given(out)?;
        (*out).r#type = match at < per_tile(card_of(clock.0.addr()))? {
            true => ZES_FREQ_DOMAIN_GPU,
            false => ZES_FREQ_DOMAIN_MEMORY,
        };
        Ok(())
    }

    fn zesFrequencyGetState(clock: zes_freq_handle_t, out: *mut zes_freq_state_t) {
        part(clock.0.addr(), Kind::Clock)?;
        given(out)?;
        (*out).throttleReasons = ZES_FREQ_THROTTLE_REASON_FLAG_THERMAL_LIMIT;
        Ok(())
    }

    fn zesDeviceEnumFans(device: zes_device_handle_t, count: *mut u32, out: *mut zes_fan_handle_t) {
        let all = parts(device, Kind::Fan, FAN_SPEEDS.len())?;
        fill(count, out, &all, |to, from| *to = zes_fan_handle_t(named(from)))
    }

    fn zesFanGetState(fan: zes_fan_handle_t, units: zes_fan_speed_units_t, out: *mut i32) {
        let at = part(fan.0.addr(), Kind::Fan)?;
        match units {
            ZES_FAN_SPEED_UNITS_PERCENT => put(out, FAN_SPEEDS[at % FAN_SPEEDS.len()]),
            _ => Err(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE),
        }
    }

    fn zesDeviceEnumPowerDomains(device: zes_device_handle_t, count: *mut u32, out: *mut zes_pwr_handle_t) {
        // The first is a tile's, the second the card's.
        let all = parts(device, Kind::Power, 2)?;
        fill(count, out, &all, |to, from| *to = zes_pwr_handle_t(named(from)))
    }

    fn zesPowerGetProperties(power: zes_pwr_handle_t, out: *mut zes_power_properties_t) {
        let at = part(power.0.addr(), Kind::Power)?;
        given(out)?;
        (*out).onSubdevice = u8::from(at == 0);
        let scale = if at == 0 { 2 } else { 1 };
        (*out).minLimit = POWER_LIMITS[0] / scale;
        (*out).maxLimit = POWER_LIMITS[1] / scale;
        Ok(())
    }
}

//! What the system interface (sysman) tells of a device: free memory, throttling, fans, limits of power.
//!
//! The interface has devices of its own. A device is found by its UUID, which also tells the tile of a card. A driver
//! or loader without the interface, and a device that it does not know, leave these properties unsupported.

use std::cell::Cell;
use std::sync::OnceLock;

use ur::abi::*;
use ur::object::{Error, Result};

use super::Device;
use crate::lz::{self, *};

const ABSENT: Error = Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION);

/// A device of the system interface.
#[derive(Clone, Copy)]
pub struct System {
    calls: Calls,
    raw: zes_device_handle_t,
    /// The tile that the device is, none of a whole card.
    tile: Option<u32>,
}

/// The functions. A loader has all of them or none.
#[derive(Clone, Copy)]
struct Calls {
    modules: pfn::zesDeviceEnumMemoryModules,
    module: pfn::zesMemoryGetProperties,
    module_state: pfn::zesMemoryGetState,
    clocks: pfn::zesDeviceEnumFrequencyDomains,
    clock: pfn::zesFrequencyGetProperties,
    clock_state: pfn::zesFrequencyGetState,
    fans: pfn::zesDeviceEnumFans,
    fan_state: pfn::zesFanGetState,
    powers: pfn::zesDeviceEnumPowerDomains,
    power: pfn::zesPowerGetProperties,
}

impl Calls {
    fn of(api: &Api) -> Option<Self> {
        Some(Self {
            modules: api.zesDeviceEnumMemoryModules?,
            module: api.zesMemoryGetProperties?,
            module_state: api.zesMemoryGetState?,
            clocks: api.zesDeviceEnumFrequencyDomains?,
            clock: api.zesFrequencyGetProperties?,
            clock_state: api.zesFrequencyGetState?,
            fans: api.zesDeviceEnumFans?,
            fan_state: api.zesFanGetState?,
            powers: api.zesDeviceEnumPowerDomains?,
            power: api.zesPowerGetProperties?,
        })
    }
}

/// The drivers of the system interface, which is started once in a process.
fn drivers(api: &'static Api) -> Result<&'static [zes_driver_handle_t]> {
    static DRIVERS: OnceLock<Vec<zes_driver_handle_t>> = OnceLock::new();
    let find = || -> Result<Vec<zes_driver_handle_t>> {
        let (Some(init), Some(get)) = (api.zesInit, api.zesDriverGet) else {
            return Ok(Vec::new());
        };
        // SAFETY: no flags are defined.
        let code = unsafe { init(0) };
        if is_absent(code) {
            log::debug!("no system interface: {code:?}");
            return Ok(Vec::new());
        }
        check(code, "zesInit")?;
        let has_none = Cell::new(false);
        let found = lz::list(zes_driver_handle_t::NULL, |count, all| {
            // SAFETY: `all` is null or has room for `count` handles.
            let code = unsafe { get(count, all) };
            has_none.set(has_none.get() || is_absent(code));
            check(code, "zesDriverGet")
        });
        if has_none.get() {
            Ok(Vec::new())
        } else {
            found
        }
    };
    if let Some(found) = DRIVERS.get() {
        return Ok(found);
    }
    // The next query asks again after a failure.
    let found = find()?;
    Ok(DRIVERS.get_or_init(|| found))
}

/// Whether the interface says that it, or a value of it, is not there. Any other error is a failure.
pub fn is_absent(code: ze_result_t) -> bool {
    let absent = [
        ZE_RESULT_ERROR_UNINITIALIZED,
        ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
        ZE_RESULT_ERROR_UNSUPPORTED_VERSION,
        ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE,
        ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS,
        ZE_RESULT_ERROR_NOT_AVAILABLE,
    ];
    absent.contains(&code)
}

/// Why a clock is held down, with Unified Runtime's flag. Others are `OTHER`.
const THROTTLES: [(
    zes_freq_throttle_reason_flag_t,
    ur_device_throttle_reasons_flags_t,
); 7] = [
    (
        ZES_FREQ_THROTTLE_REASON_FLAG_AVE_PWR_CAP,
        UR_DEVICE_THROTTLE_REASONS_FLAG_POWER_CAP,
    ),
    (
        ZES_FREQ_THROTTLE_REASON_FLAG_BURST_PWR_CAP,
        UR_DEVICE_THROTTLE_REASONS_FLAG_POWER_CAP,
    ),
    (
        ZES_FREQ_THROTTLE_REASON_FLAG_CURRENT_LIMIT,
        UR_DEVICE_THROTTLE_REASONS_FLAG_CURRENT_LIMIT,
    ),
    (
        ZES_FREQ_THROTTLE_REASON_FLAG_THERMAL_LIMIT,
        UR_DEVICE_THROTTLE_REASONS_FLAG_THERMAL_LIMIT,
    ),
    (
        ZES_FREQ_THROTTLE_REASON_FLAG_PSU_ALERT,
        UR_DEVICE_THROTTLE_REASONS_FLAG_PSU_ALERT,
    ),
    (
        ZES_FREQ_THROTTLE_REASON_FLAG_SW_RANGE,
        UR_DEVICE_THROTTLE_REASONS_FLAG_SW_RANGE,
    ),
    (
        ZES_FREQ_THROTTLE_REASON_FLAG_HW_RANGE,
        UR_DEVICE_THROTTLE_REASONS_FLAG_HW_RANGE,
    ),
];

fn throttles(native: zes_freq_throttle_reason_flags_t) -> u32 {
    let (mut found, mut rest) = (0, native);
    for (flag, own) in THROTTLES {
        if native & flag != 0 {
            found |= own.0;
            rest &= !flag;
        }
    }
    match rest {
        0 => found,
        _ => found | UR_DEVICE_THROTTLE_REASONS_FLAG_OTHER.0,
    }
}

/// A property that the driver has no value of is unsupported; other failures stay.
fn known(code: ze_result_t, function: &str) -> Result<()> {
    match code {
        ZE_RESULT_ERROR_UNSUPPORTED_FEATURE | ZE_RESULT_ERROR_NOT_AVAILABLE => Err(ABSENT),
        code => check(code, function),
    }
}

impl System {
    /// None if the interface does not know the device.
    pub fn find(device: &Device) -> Result<Option<Self>> {
        let api = device.api();
        let (Some(calls), Some(by_uuid)) = (Calls::of(api), api.zesDriverGetDeviceByUuidExp) else {
            return Ok(None);
        };
        let uuid = zes_uuid_t {
            id: device.facts.base.uuid.id,
        };
        for driver in drivers(api)? {
            let (mut raw, mut is_tile, mut tile) = (zes_device_handle_t::NULL, 0, 0);
            // SAFETY: a driver of the interface, and room for the answers.
            let code = unsafe { by_uuid(*driver, uuid, &mut raw, &mut is_tile, &mut tile) };
            // Another driver's device is an invalid argument.
            if code == ZE_RESULT_ERROR_INVALID_ARGUMENT || is_absent(code) {
                continue;
            }
            check(code, "zesDriverGetDeviceByUuidExp")?;
            let tile = (is_tile != 0).then_some(tile);
            #[rustfmt::skip]
            let found = Self { calls, raw, tile };
            if !raw.is_null() {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Bytes of memory that are free: of all modules, or of a tile's own.
    pub fn free_bytes(&self) -> Result<u64> {
        let modules = lz::list(zes_mem_handle_t::NULL, |count, all| {
            // SAFETY: `all` is null or has room for `count` handles.
            let code = unsafe { (self.calls.modules)(self.raw, count, all) };
            known(code, "zesDeviceEnumMemoryModules")
        })?;
        let mut free = None;
        for module in modules {
            let mut properties = zes_mem_properties_t::default();
            // SAFETY: the structure is writable and has its tag.
            let code = unsafe { (self.calls.module)(module, &mut properties) };
            known(code, "zesMemoryGetProperties")?;
            if self.tile.is_some_and(|tile| tile != properties.subdeviceId) {
                continue;
            }
            let mut state = zes_mem_state_t::default();
            // SAFETY: the structure is writable and has its tag.
            let code = unsafe { (self.calls.module_state)(module, &mut state) };
            known(code, "zesMemoryGetState")?;
            free = Some(free.unwrap_or(0_u64).saturating_add(state.free));
        }
        free.ok_or(ABSENT)
    }

    /// What holds the clocks of the GPU down now.
    pub fn throttle_reasons(&self) -> Result<ur_device_throttle_reasons_flags_t> {
        let clocks = lz::list(zes_freq_handle_t::NULL, |count, all| {
            // SAFETY: `all` is null or has room for `count` handles.
            let code = unsafe { (self.calls.clocks)(self.raw, count, all) };
            known(code, "zesDeviceEnumFrequencyDomains")
        })?;
        let mut found = None;
        for clock in clocks {
            let mut properties = zes_freq_properties_t::default();
            // SAFETY: the structure is writable and has its tag.
            let code = unsafe { (self.calls.clock)(clock, &mut properties) };
            known(code, "zesFrequencyGetProperties")?;
            if properties.r#type != ZES_FREQ_DOMAIN_GPU {
                continue;
            }
            let mut state = zes_freq_state_t::default();
            // SAFETY: the structure is writable and has its tag.
            let code = unsafe { (self.calls.clock_state)(clock, &mut state) };
            known(code, "zesFrequencyGetState")?;
            found = Some(found.unwrap_or(0) | throttles(state.throttleReasons));
        }
        found.map(ur_device_throttle_reasons_flags_t).ok_or(ABSENT)
    }

    /// The speed of the fastest fan in percent.
    pub fn fan_speed(&self) -> Result<i32> {
        let fans = lz::list(zes_fan_handle_t::NULL, |count, all| {
            // SAFETY: `all` is null or has room for `count` handles.
            let code = unsafe { (self.calls.fans)(self.raw, count, all) };
            known(code, "zesDeviceEnumFans")
        })?;
        let mut fastest = None;
        for fan in fans {
            let mut speed = -1;
            // SAFETY: the answer is writable.
            let code =
                unsafe { (self.calls.fan_state)(fan, ZES_FAN_SPEED_UNITS_PERCENT, &mut speed) };
            known(code, "zesFanGetState")?;
            fastest = fastest.max(Some(speed));
        }
        fastest.ok_or(ABSENT)
    }

    /// The lowest and the highest limit of the card's power in milliwatts.
    pub fn power_limits(&self) -> Result<[i32; 2]> {
        let powers = lz::list(zes_pwr_handle_t::NULL, |count, all| {
            // SAFETY: `all` is null or has room for `count` handles.
            let code = unsafe { (self.calls.powers)(self.raw, count, all) };
            known(code, "zesDeviceEnumPowerDomains")
        })?;
        for power in powers {
            let mut properties = zes_power_properties_t::default();
            // SAFETY: the structure is writable and has its tag.
            let code = unsafe { (self.calls.power)(power, &mut properties) };
            known(code, "zesPowerGetProperties")?;
            if properties.onSubdevice == 0 {
                return Ok([properties.minLimit, properties.maxLimit]);
            }
        }
        Err(ABSENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_their_flags_and_unknown_ones_are_others() {
        let both =
            ZES_FREQ_THROTTLE_REASON_FLAG_AVE_PWR_CAP | ZES_FREQ_THROTTLE_REASON_FLAG_BURST_PWR_CAP;
        let power = UR_DEVICE_THROTTLE_REASONS_FLAG_POWER_CAP.0;
        let other = UR_DEVICE_THROTTLE_REASONS_FLAG_OTHER.0;
        assert_eq!(throttles(0), 0);
        assert_eq!(throttles(both), power);
        assert_eq!(throttles(both | 1 << 20), power | other);
        let heat = UR_DEVICE_THROTTLE_REASONS_FLAG_THERMAL_LIMIT.0;
        let limit = ZES_FREQ_THROTTLE_REASON_FLAG_THERMAL_LIMIT;
        assert_eq!(throttles(limit), heat);
    }
}

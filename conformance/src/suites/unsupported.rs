//! Calls that a device must refuse because it lacks a feature.
//!
//! The device lacks it as it is or, where its properties can be scripted, for each feature that the
//! specification names.

use super::arguments::Objects;
use crate::calls::{FUNCTIONS, Function, Kind, Lack, UNCHANGED};
use crate::fixture::Fixture;
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::scripted::Scripted;
use crate::status::{Status, provoked};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["unsupported"; features_are_refused, properties_are_refused]
}

/// A call that needs a feature which the device lacks is refused with the declared error.
fn features_are_refused(fixture: &Fixture) -> Done {
    let scripted = Scripted::of(fixture);
    let mut possible = Vec::new();
    for function in FUNCTIONS {
        for lack in function.lacks {
            if scripted.is_some() || lacks(fixture, lack)? {
                possible.push((function, lack));
            }
        }
    }
    let kinds: Vec<Kind> = possible
        .iter()
        .flat_map(|(function, lack)| function.needs(lack.changes))
        .collect();
    let objects = Objects::new(fixture, &kinds)?;
    let mut scratch = vec![0_u64; 8192];
    let valid = objects.valid(fixture, scratch.as_mut_ptr().cast());
    possible.retain(|(function, lack)| valid.has_all(&function.needs(lack.changes)));
    if possible.is_empty() {
        return Err(Stop::skipped(
            "the device lacks no feature that a call can ask for",
        ));
    }
    let mut wrong = Vec::new();
    for (function, lack) in possible {
        let mut get_info = || {
            let status = function.call(fixture.ur, &valid, lack.changes);
            record(status, lack.code, lack.what, &mut wrong);
            Ok(())
        };
        match &scripted {
            Some(scripted) => scripted.with(&script(fixture, lack)?, get_info)?,
            None => get_info()?,
        }
    }
    objects.settle()?;
    all_right(&wrong)
}

/// A query for a property that the device does not know fails with `UNSUPPORTED_ENUMERATION`.
fn properties_are_refused(fixture: &Fixture) -> Done {
    let Some(scripted) = Scripted::of(fixture) else {
        return Err(Stop::skipped("the device's properties cannot be scripted"));
    };
    let unknown = |function: &'static Function| {
        let said = function.said.iter();
        let said = said.filter(|said| said.code == UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
        said.map(move |said| (function, said.what))
    };
    let queries: Vec<(&Function, &str)> = FUNCTIONS
        .iter()
        .filter(|function| function.in_tables)
        .filter(|function| function.name.contains("Get") && function.name != "urDeviceGetInfo")
        .flat_map(unknown)
        .collect();
    let kinds: Vec<Kind> = queries
        .iter()
        .flat_map(|(function, _)| function.needs(UNCHANGED))
        .collect();
    let objects = Objects::new(fixture, &kinds)?;
    let mut scratch = vec![0_u64; 8192];
    let valid = objects.valid(fixture, scratch.as_mut_ptr().cast());
    let mut wrong = Vec::new();
    scripted.with(&nothing_known(), || {
        for (function, what) in queries {
            if !valid.has_all(&function.needs(UNCHANGED)) {
                continue;
            }
            let status = function.call(fixture.ur, &valid, UNCHANGED);
            record(
                status,
                UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION,
                what,
                &mut wrong,
            );
        }
        Ok(())
    })?;
    all_right(&wrong)
}

fn record(status: Status, code: ur_result_t, what: &'static str, wrong: &mut Vec<String>) {
    if status.code == code {
        return provoked(status.function, what);
    }
    wrong.push(format!("{status} instead of {code:?}: {what}"));
}

fn all_right(wrong: &[String]) -> Done {
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Stop::failed(wrong.join("; "))),
    }
}

/// Whether the device reports that it lacks this.
fn lacks(fixture: &Fixture, lack: &Lack) -> Result<bool, Stop> {
    for (_, property, bits) in lack.terms {
        if number(fixture, *property)? & bits != 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A property as a number; 0 if the device does not have it.
fn number(fixture: &Fixture, property: ur_device_info_t) -> Result<u64, Stop> {
    let bytes = crate::objects::info::list::<u8>(|size, value, ret| {
        fixture
            .ur
            .urDeviceGetInfo(fixture.device, property, size, value, ret)
    });
    match bytes {
        Ok(bytes) => {
            let low = bytes.iter().take(size_of::<u64>()).rev();
            Ok(low.fold(0, |number, byte| number << 8 | u64::from(*byte)))
        }
        Err(Stop::Unsupported { .. }) => Ok(0),
        Err(stop) => Err(stop),
    }
}

/// A script of the device's properties without the feature.
fn script(fixture: &Fixture, lack: &Lack) -> Result<String, Stop> {
    let mut script = String::new();
    for (name, property, bits) in lack.terms {
        let rest = number(fixture, *property)? & !bits;
        script.push_str(&format!("{name} = {rest}\n"));
    }
    Ok(script)
}

/// A script that removes every property but the device's.
fn nothing_known() -> String {
    let lists = [
        ur_adapter_info_t::PROPERTIES,
        ur_platform_info_t::PROPERTIES,
        ur_context_info_t::PROPERTIES,
        ur_mem_info_t::PROPERTIES,
        ur_image_info_t::PROPERTIES,
        ur_sampler_info_t::PROPERTIES,
        ur_usm_alloc_info_t::PROPERTIES,
        ur_usm_pool_info_t::PROPERTIES,
        ur_virtual_mem_granularity_info_t::PROPERTIES,
        ur_virtual_mem_info_t::PROPERTIES,
        ur_physical_mem_info_t::PROPERTIES,
        ur_program_info_t::PROPERTIES,
        ur_program_build_info_t::PROPERTIES,
        ur_kernel_info_t::PROPERTIES,
        ur_kernel_group_info_t::PROPERTIES,
        ur_kernel_sub_group_info_t::PROPERTIES,
        ur_queue_info_t::PROPERTIES,
        ur_event_info_t::PROPERTIES,
        ur_profiling_info_t::PROPERTIES,
        ur_exp_peer_info_t::PROPERTIES,
        ur_exp_command_buffer_info_t::PROPERTIES,
    ];
    let all = lists.iter().copied().flatten();
    all.map(|property| format!("{} = none\n", property.name))
        .collect()
}

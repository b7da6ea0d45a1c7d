//! The values of properties.
//!
//! A query returns the first of these that exists:
//! 1. the script's value;
//! 2. the value that was set when the object was created, or later;
//! 3. a value derived from the objects that it was created from;
//! 4. the value in `device.script`, which describes the mock's device;
//! 5. the default of the property's type (`type_of`).

use std::ffi::c_void;
use std::sync::{Arc, LazyLock};

use ur::abi::property::{self, Form, Property};
use ur::abi::*;
use ur::object::{Error, InfoOut, Kind, Result};

use crate::functions::KINDS;
use crate::memory;
use crate::objects::{self, Handle};
use crate::script::{self, Script};

/// The type of a property's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A number, an enumerator, flags or a truth value: its size in bytes and its default.
    Number(usize, u64),
    Text,
    /// An array: the size of an element in bytes and the number of elements.
    Numbers(usize, usize),
    /// A list of any length: the size of an element in bytes.
    List(usize),
    Handle(Kind),
    Handles(Kind),
    /// Buffers of the caller that receive the value.
    Buffers,
    /// A value of another type, all zeros: its size in bytes.
    Bytes(usize),
}

/// Answers a query of an object's property.
pub fn answer<T>(
    handle: *const T,
    kind: Kind,
    properties: &'static [Property],
    number: u32,
    out: InfoOut<'_>,
) -> Result<()> {
    let property = property(properties, number)?;
    if let Some(scripted) = script::current().property(property.name) {
        return scripted_value(scripted, out);
    }
    let Some(object) = objects::find(handle, kind) else {
        return default_value(property, out);
    };
    if let Some(value) = object.stored(property.name) {
        return out.slice(&value);
    }
    match property.name {
        "UR_PROFILING_INFO_COMMAND_QUEUED" => return out.value(object.created_ns),
        "UR_PROFILING_INFO_COMMAND_SUBMIT" => return out.value(object.created_ns + 1),
        "UR_PROFILING_INFO_COMMAND_START" => return out.value(object.created_ns + 2),
        "UR_PROFILING_INFO_COMMAND_END" => return out.value(object.created_ns + 3),
        "UR_PROFILING_INFO_COMMAND_COMPLETE" => return out.value(object.created_ns + 4),
        "UR_PROGRAM_INFO_BINARY_SIZES" => {
            return out.slice(&vec![0usize; devices_of(&object).len()]);
        }
        // One empty buffer for each device.
        "UR_PROGRAM_INFO_BINARIES" => {
            let none = vec![[0u8; 0]; devices_of(&object).len()];
            // SAFETY: each value is empty, so that nothing is written to the buffers.
            return unsafe { out.buffers(&none) };
        }
        name if name.ends_with("_REFERENCE_COUNT") => return out.value(object.api_refs()),
        name if name.ends_with("_INFO_NUM_DEVICES") => {
            return out.value(u32::try_from(devices_of(&object).len()).unwrap_or(u32::MAX));
        }
        _ => {}
    }
    match type_of(property) {
        Type::Handle(wanted) => {
            let found = object.related(wanted).into_iter().next();
            let found = found.or_else(|| objects::root(wanted).filter(|_| wanted != object.kind));
            out.value(address(found.as_ref()))
        }
        Type::Handles(Kind::Device) => {
            let devices: Vec<usize> = devices_of(&object)
                .iter()
                .map(|device| address(Some(device)))
                .collect();
            out.slice(&devices)
        }
        _ => default_value(property, out),
    }
}

/// Answers a query of an allocation's property.
pub fn of_memory(
    memory: *const c_void,
    properties: &'static [Property],
    number: u32,
    out: InfoOut<'_>,
) -> Result<()> {
    let property = property(properties, number)?;
    if let Some(scripted) = script::current().property(property.name) {
        return scripted_value(scripted, out);
    }
    let block = memory::block_at(memory);
    let block = block.as_deref();
    match property.name {
        "UR_USM_ALLOC_INFO_TYPE" => out.value(block.map_or(UR_USM_TYPE_UNKNOWN, |block| block.ty)),
        "UR_USM_ALLOC_INFO_BASE_PTR" => out.value(block.map_or(0, |block| block.base)),
        "UR_USM_ALLOC_INFO_SIZE" => out.value(block.map_or(0, |block| block.size)),
        "UR_USM_ALLOC_INFO_DEVICE" => {
            out.value(address(block.and_then(|block| block.device.as_ref())))
        }
        "UR_USM_ALLOC_INFO_POOL" => out.value(address(block.and_then(|block| block.pool.as_ref()))),
        _ => default_value(property, out),
    }
}

/// Whether the device lacks all of these bits of its properties. An unsupported property has no
/// bits.
pub fn lacks(terms: &[(&str, u64)]) -> bool {
    terms.iter().all(|(name, bits)| number(name) & bits == 0)
}

/// A property of the device as a number.
fn number(name: &str) -> u64 {
    let current = script::current();
    let scripted = current
        .property(name)
        .or_else(|| device_script().property(name));
    if let Some(value) = scripted {
        let mut number = [0; 8];
        let bytes = value.as_deref().unwrap_or_default();
        let length = bytes.len().min(number.len());
        number[..length].copy_from_slice(&bytes[..length]);
        return u64::from_ne_bytes(number);
    }
    match find(name) {
        Some((_, Type::Number(_, value))) => value,
        _ => 0,
    }
}

/// The property with that number. `INVALID_ENUMERATION` for an unknown one, whose size is unknown
/// as well.
pub fn property(properties: &'static [Property], value: u32) -> Result<&'static Property> {
    let found = properties.iter().find(|property| property.value == value);
    found.ok_or(Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION))
}

/// The property of that name, with the type of its value.
pub fn find(name: &str) -> Option<(&'static str, Type)> {
    let property = all().find(|property| property.name == name)?;
    Some((property.name, type_of(property)))
}

/// The properties that adapters answer: all but the loader's own.
pub fn all() -> impl Iterator<Item = &'static Property> {
    let all = property::ALL.iter().copied().flatten();
    all.filter(|property| !property.name.starts_with("UR_LOADER_CONFIG_"))
}

/// The type of a property's value.
pub fn type_of(property: &Property) -> Type {
    match property.form {
        Form::Text => Type::Text,
        Form::One(of) => match (of.kind, handle(of)) {
            (_, Some(kind)) => Type::Handle(kind),
            (property::Kind::Struct(_) | property::Kind::Opaque, _) => Type::Bytes(of.size),
            _ => Type::Number(of.size, default(property.name, of)),
        },
        Form::List(of) => match (of.kind, handle(of)) {
            (_, Some(kind)) => Type::Handles(kind),
            (property::Kind::Address, None) => Type::Buffers,
            _ => Type::List(of.size),
        },
        Form::Array(count, of) => Type::Numbers(of.size, count),
    }
}

/// The kind of a handle type; none for other types.
fn handle(of: property::Type) -> Option<Kind> {
    let found = KINDS.iter().find(|(name, _)| *name == of.name);
    found.map(|(_, kind)| *kind)
}

/// The default number: 1 for whether a feature is supported, all bits of capabilities, the first
/// enumerator, and 0 for the rest.
fn default(name: &str, of: property::Type) -> u64 {
    match of.kind {
        property::Kind::Truth => {
            let positive = ["SUPPORT", "SUPPORT_EXP", "AVAILABLE"];
            u64::from(positive.iter().any(|end| name.ends_with(end)))
        }
        property::Kind::Flags { bits, .. } if of.name.contains("capability") => {
            bits.iter().fold(0, |all, (bit, _)| all | u64::from(*bit))
        }
        property::Kind::Enum(known) => {
            let first = (0..=u32::from(u16::MAX)).find(|value| known(*value).is_some());
            first.map_or(0, u64::from)
        }
        _ => 0,
    }
}

/// Answers with a script's value, or `UNSUPPORTED_ENUMERATION` for `none`.
fn scripted_value(value: &Option<Vec<u8>>, out: InfoOut<'_>) -> Result<()> {
    match value {
        Some(bytes) => out.slice(bytes),
        None => Err(Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION)),
    }
}

/// Answers with the value of the mock's device, or the default of the type.
fn default_value(property: &Property, out: InfoOut<'_>) -> Result<()> {
    if let Some(value) = device_script().property(property.name) {
        return scripted_value(value, out);
    }
    match type_of(property) {
        Type::Number(size, value) => out.slice(&value.to_ne_bytes()[..size]),
        Type::Text => out.string(""),
        Type::Numbers(size, count) => out.slice(&vec![0u8; size * count]),
        Type::List(_) | Type::Handles(_) | Type::Buffers => out.slice::<u8>(&[]),
        Type::Handle(_) => out.value(0usize),
        Type::Bytes(size) => out.slice(&vec![0u8; size]),
    }
}

/// The properties of the mock's device, as a script.
fn device_script() -> &'static Script {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::parse(include_str!("device.script")).unwrap_or_default());
    &SCRIPT
}

fn devices_of(object: &Handle) -> Vec<Arc<Handle>> {
    let devices = object.related(Kind::Device);
    if devices.is_empty() {
        return objects::root(Kind::Device).into_iter().collect();
    }
    devices
}

fn address(object: Option<&Arc<Handle>>) -> usize {
    object.map_or(0, |object| object.handle().expose_provenance())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_script_can_be_read() {
        let script = Script::parse(include_str!("device.script"));
        assert!(script.is_ok(), "{}", script.unwrap_err());
        assert!(device_script().property("UR_DEVICE_INFO_NAME").is_some());
    }
}

//! Converts a property's bytes to a readable value, for text and JSON.
//!
//! Owns the form of each kind of C type. `ur::abi` knows the type of each property.

use std::fmt;
use std::mem::size_of;

use schemars::JsonSchema;
use serde::Serialize;
use ur::abi::property::{Form, Kind, Type};
use ur::abi::ur_result_t;

/// A readable value. In JSON an enumerator is its name, a set of flags a list of names, an address a
/// string, and a null address null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Value {
    Nothing,
    Truth(bool),
    Unsigned(u64),
    Signed(i64),
    Text(String),
    Set(Vec<String>),
    List(Vec<Value>),
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Nothing => out.write_str("none"),
            Value::Truth(value) => value.fmt(out),
            Value::Unsigned(value) => value.fmt(out),
            Value::Signed(value) => value.fmt(out),
            Value::Text(text) => out.write_str(text),
            Value::Set(names) if names.is_empty() => out.write_str("none"),
            Value::Set(names) => out.write_str(&names.join(" | ")),
            Value::List(values) => {
                let texts: Vec<String> = values.iter().map(Value::to_string).collect();
                write!(out, "{{{}}}", texts.join(", "))
            }
        }
    }
}

/// The value in a property's bytes; none if their number does not fit the form.
pub fn read(form: Form, bytes: &[u8]) -> Option<Value> {
    match form {
        Form::Text => Some(text(bytes)),
        Form::One(of) => one(of, bytes),
        // A list of bytes is an identifier, such as a UUID.
        Form::List(of) | Form::Array(_, of) if of.size == 1 => Some(digits(bytes)),
        Form::List(of) | Form::Array(_, of) => {
            let chunks = bytes.chunks_exact(of.size);
            let whole = chunks.remainder().is_empty();
            let values = || chunks.map(|chunk| one(of, chunk)).collect::<Option<_>>();
            whole.then(values)?.map(Value::List)
        }
    }
}

/// A single value; none if the size is another.
fn one(of: Type, bytes: &[u8]) -> Option<Value> {
    if bytes.len() != of.size {
        return None;
    }
    let number = || integer(bytes, false);
    let word = || u32::try_from(number()?).ok();
    Some(match of.kind {
        Kind::Truth => Value::Truth(bytes.iter().any(|byte| *byte != 0)),
        Kind::Unsigned => Value::Unsigned(number()?),
        Kind::Signed => Value::Signed(integer(bytes, true)?.cast_signed()),
        Kind::Address => match number()? {
            0 => Value::Nothing,
            address => Value::Text(format!("{address:#x}")),
        },
        Kind::Enum(name) => {
            let value = word()?;
            Value::Text(name(value).map_or_else(|| format!("unknown ({value})"), str::to_owned))
        }
        Kind::Flags { bits, .. } => set(bits, word()?),
        Kind::Struct(text) => Value::Text(text(bytes)?),
        Kind::Opaque => digits(bytes),
    })
}

/// Up to eight bytes as an integer, sign-extended if it is signed.
fn integer(bytes: &[u8], signed: bool) -> Option<u64> {
    let last = *bytes.last()?;
    let fill = if signed && last >= 0x80 { 0xff } else { 0 };
    let mut word = [fill; size_of::<u64>()];
    word.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(word))
}

fn set(bits: &[(u32, &str)], set: u32) -> Value {
    let mut rest = set;
    let mut names = Vec::new();
    for &(bit, name) in bits.iter().filter(|(bit, _)| set & bit == *bit) {
        names.push(name.to_owned());
        rest &= !bit;
    }
    if rest != 0 {
        names.push(format!("unknown ({rest:#x})"));
    }
    Value::Set(names)
}

/// Text up to the first zero byte.
fn text(bytes: &[u8]) -> Value {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    Value::Text(String::from_utf8_lossy(text).into_owned())
}

fn digits(bytes: &[u8]) -> Value {
    Value::Text(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Why a property has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The adapter does not support it.
    Unsupported(ur_result_t),
    Failed(ur_result_t),
    /// The size in bytes does not fit the property's type.
    Malformed(usize),
}

impl fmt::Display for Missing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Unsupported(_) => out.write_str("unsupported"),
            Missing::Failed(result) => write!(out, "failed: {result:?}"),
            Missing::Malformed(size) => write!(out, "malformed: {size} bytes"),
        }
    }
}

impl Serialize for Missing {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Missing::Unsupported(result) | Missing::Failed(result) => {
                out.serialize_str(&format!("{result:?}"))
            }
            Missing::Malformed(_) => out.collect_str(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ur::abi::property::{Truth, list, one, text};
    use ur::abi::*;

    #[test]
    fn values_follow_their_types() {
        let check = |value: Option<Value>, text: &str, json: &str| {
            let value = value.expect("well-formed");
            assert_eq!(value.to_string(), text);
            assert_eq!(serde_json::to_string(&value).expect("JSON"), json);
        };
        let word = |value: u32| value.to_ne_bytes();
        check(read(one::<u32>(), &word(7)), "7", "7");
        check(read(one::<i32>(), &word(u32::MAX)), "-1", "-1");
        check(read(one::<Truth>(), &[2]), "true", "true");
        check(read(one::<ur_device_handle_t>(), &[0; 8]), "none", "null");
        check(read(text(), b"a b\0rest"), "a b", "\"a b\"");
        check(read(list::<u8>(), &[0, 255, 16]), "00ff10", "\"00ff10\"");
        check(
            read(list::<u32>(), &[word(1), word(2)].concat()),
            "{1, 2}",
            "[1,2]",
        );
        check(read(list::<u32>(), &[]), "{}", "[]");
        check(
            read(one::<ur_device_type_t>(), &word(UR_DEVICE_TYPE_GPU.0)),
            "UR_DEVICE_TYPE_GPU",
            "\"UR_DEVICE_TYPE_GPU\"",
        );
        check(
            read(one::<ur_device_type_t>(), &word(9999)),
            "unknown (9999)",
            "\"unknown (9999)\"",
        );
        check(
            read(one::<ur_queue_flags_t>(), &word(0x8000_0003)),
            "UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE | UR_QUEUE_FLAG_PROFILING_ENABLE | unknown (0x80000000)",
            "[\"UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE\",\"UR_QUEUE_FLAG_PROFILING_ENABLE\",\"unknown (0x80000000)\"]",
        );
        check(read(one::<ur_queue_flags_t>(), &word(0)), "none", "[]");
    }

    #[test]
    fn other_sizes_have_no_value() {
        assert_eq!(read(one::<u32>(), &[0; 3]), None);
        assert_eq!(read(one::<u64>(), &[]), None);
        assert_eq!(read(list::<u32>(), &[0; 6]), None);
    }
}

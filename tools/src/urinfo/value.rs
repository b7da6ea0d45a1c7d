//! From a property's bytes to a value that reads, as text and as JSON.
//!
//! Owns how each kind of C type shows; which type a property has is the generated table's to say.

use std::fmt;
use std::mem::size_of;

use serde::Serialize;
use ur::abi::print::{Bits, Print, text as printed};
use ur::abi::ur_result_t;

/// A value as it reads. In JSON a set is a list of names, an address a string and a null one null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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

/// A property: its number, its name, and how its bytes read. Bytes that are no such value give none.
pub struct Property {
    pub value: u32,
    pub name: &'static str,
    pub read: fn(&[u8]) -> Option<Value>,
}

/// Plain C values that show.
///
/// # Safety
/// Any bytes are a valid value.
pub unsafe trait Shown: Copy {
    fn shown(self) -> Value;
}

/// A byte that is false or true.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Truth(u8);

/// An address of something that only the loader can read.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Handle(usize);

// SAFETY: any byte is one.
unsafe impl Shown for Truth {
    fn shown(self) -> Value {
        Value::Truth(self.0 != 0)
    }
}

// SAFETY: any bytes are an integer.
unsafe impl Shown for Handle {
    fn shown(self) -> Value {
        match self.0 {
            0 => Value::Nothing,
            address => Value::Text(format!("{address:#x}")),
        }
    }
}

macro_rules! numbers {
    ($($Number:ty => $Variant:ident),*) => {$(
        // SAFETY: any bytes are an integer.
        unsafe impl Shown for $Number {
            fn shown(self) -> Value {
                Value::$Variant(self.into())
            }
        }
    )*};
}

numbers!(u8 => Unsigned, u32 => Unsigned, u64 => Unsigned, i32 => Signed);

// SAFETY: any bytes are an integer.
unsafe impl Shown for usize {
    fn shown(self) -> Value {
        Value::Unsigned(self as u64)
    }
}

/// Implements [`Shown`] for enums, flag sets and structures of the C interface.
macro_rules! show {
    (enums: $($Enum:ty),*; sets: $($Set:ty),*; structs: $($Struct:ty),*;) => {
        $(
            // SAFETY: a transparent integer.
            unsafe impl $crate::value::Shown for $Enum {
                fn shown(self) -> $crate::value::Value {
                    $crate::value::Value::Text(self.name().map_or_else(|| format!("unknown ({})", self.0), ToString::to_string))
                }
            }
        )*
        $(
            // SAFETY: a transparent integer.
            unsafe impl $crate::value::Shown for $Set {
                fn shown(self) -> $crate::value::Value {
                    $crate::value::set(self)
                }
            }
        )*
        $(
            // SAFETY: C structures of integers without pointers, as the generator sees to.
            unsafe impl $crate::value::Shown for $Struct {
                fn shown(self) -> $crate::value::Value {
                    $crate::value::structure(&self)
                }
            }
        )*
    };
}
pub(crate) use show;

pub fn set<T: Bits>(set: T) -> Value {
    let mut rest = set.bits();
    let mut names = Vec::new();
    for &(bit, name) in T::NAMES.iter().filter(|(bit, _)| set.bits() & bit == *bit) {
        names.push(name.to_owned());
        rest &= !bit;
    }
    if rest != 0 {
        names.push(format!("unknown ({rest:#x})"));
    }
    Value::Set(names)
}

pub fn structure(value: &dyn Print) -> Value {
    // SAFETY: the structures that are shown hold no pointer.
    Value::Text(unsafe { printed(value) })
}

/// Exactly one value.
pub fn one<T: Shown>(bytes: &[u8]) -> Option<Value> {
    (bytes.len() == size_of::<T>()).then(|| load::<T>(bytes).shown())
}

/// Any number of values.
pub fn many<T: Shown>(bytes: &[u8]) -> Option<Value> {
    let chunks = bytes.chunks_exact(size_of::<T>());
    let whole = chunks.remainder().is_empty();
    whole.then(|| Value::List(chunks.map(|chunk| load::<T>(chunk).shown()).collect()))
}

/// Text up to a zero byte.
pub fn text(bytes: &[u8]) -> Option<Value> {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(Value::Text(String::from_utf8_lossy(text).into_owned()))
}

/// Bytes that mean nothing singly, such as an identity.
pub fn digits(bytes: &[u8]) -> Option<Value> {
    Some(Value::Text(
        bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    ))
}

/// `bytes` are as many as `T` takes.
fn load<T: Shown>(bytes: &[u8]) -> T {
    assert_eq!(bytes.len(), size_of::<T>());
    // SAFETY: the size was checked, and any bytes are a valid `T`.
    unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
}

/// Why a property has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The adapter does not have it.
    Unsupported(ur_result_t),
    Failed(ur_result_t),
    /// Bytes that are no value of the property's type: their number.
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
    use ur::abi::*;

    #[test]
    fn values_read_as_their_types_say() {
        let check = |value: Option<Value>, text: &str, json: &str| {
            let value = value.expect("well-formed");
            assert_eq!(value.to_string(), text);
            assert_eq!(serde_json::to_string(&value).expect("JSON"), json);
        };
        let word = |value: u32| value.to_ne_bytes();
        check(one::<u32>(&word(7)), "7", "7");
        check(one::<i32>(&word(u32::MAX)), "-1", "-1");
        check(one::<Truth>(&[2]), "true", "true");
        check(one::<Handle>(&[0; 8]), "none", "null");
        check(text(b"a b\0rest"), "a b", "\"a b\"");
        check(digits(&[0, 255, 16]), "00ff10", "\"00ff10\"");
        check(many::<u32>(&[word(1), word(2)].concat()), "{1, 2}", "[1,2]");
        check(many::<u32>(&[]), "{}", "[]");
        check(
            one::<ur_device_type_t>(&word(UR_DEVICE_TYPE_GPU.0)),
            "UR_DEVICE_TYPE_GPU",
            "\"UR_DEVICE_TYPE_GPU\"",
        );
        check(
            one::<ur_device_type_t>(&word(9999)),
            "unknown (9999)",
            "\"unknown (9999)\"",
        );
        check(
            one::<ur_queue_flags_t>(&word(0x8000_0003)),
            "UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE | UR_QUEUE_FLAG_PROFILING_ENABLE | unknown (0x80000000)",
            "[\"UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE\",\"UR_QUEUE_FLAG_PROFILING_ENABLE\",\"unknown (0x80000000)\"]",
        );
        check(one::<ur_queue_flags_t>(&word(0)), "none", "[]");
    }

    #[test]
    fn bytes_of_another_size_are_no_value() {
        assert_eq!(one::<u32>(&[0; 3]), None);
        assert_eq!(one::<u64>(&[]), None);
        assert_eq!(many::<u32>(&[0; 6]), None);
    }
}

//! Converts values of a script to the bytes of a property.

use crate::info::Type;

/// A value in a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    Text(String),
    List(Vec<u64>),
    None,
}

/// The bytes of the value for a property of this type, or why it does not fit.
pub(super) fn bytes(value: &Value, ty: Type) -> Result<Vec<u8>, String> {
    match (ty, value) {
        (Type::Number(size, _), Value::Number(number)) => cut(*number, size),
        (Type::Text, Value::Text(text)) => {
            let mut bytes = text.as_bytes().to_vec();
            bytes.push(0);
            Ok(bytes)
        }
        (Type::Numbers(size, count), Value::List(list)) if list.len() == count => all(list, size),
        (Type::Numbers(_, count), _) => Err(format!("a list of {count} numbers expected")),
        (Type::List(size), Value::List(list)) => all(list, size),
        (Type::List(_), _) => Err("a list of numbers expected".to_owned()),
        (Type::Number(..), _) => Err("a number expected".to_owned()),
        (Type::Text, _) => Err("a text in quotes expected".to_owned()),
        (Type::Handle(_) | Type::Handles(_) | Type::Buffers | Type::Bytes(_), _) => {
            Err("this property can be `none` only".to_owned())
        }
    }
}

fn all(list: &[u64], size: usize) -> Result<Vec<u8>, String> {
    let parts: Result<Vec<_>, _> = list.iter().map(|number| cut(*number, size)).collect();
    Ok(parts?.concat())
}

/// The low bytes of a number. An error if a high byte is not 0.
fn cut(number: u64, size: usize) -> Result<Vec<u8>, String> {
    let mut bytes = number.to_le_bytes().to_vec();
    let high = bytes.split_off(size.min(bytes.len()));
    if high.iter().any(|byte| *byte != 0) {
        return Err(format!("{number} does not fit into {size} bytes"));
    }
    Ok(bytes)
}

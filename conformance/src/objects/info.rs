//! Info queries: values, lists and texts, and the check of the size protocol that all queries share.

use crate::calls;
use crate::fixture::Fixture;
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::status::{Status, provoked};
use crate::{check, check_eq};
use std::ffi::c_void;
use std::mem::{MaybeUninit, size_of};
use std::ptr::null_mut;
use ur::abi::property::{Form, Kind, Property};
use ur::abi::*;

/// A value of fixed size.
#[track_caller]
pub fn value<T: Copy>(query: impl Fn(usize, *mut c_void, *mut usize) -> Status) -> Result<T, Stop> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut size = 0;
    let status = query(size_of::<T>(), value.as_mut_ptr().cast(), &mut size);
    status.ok()?;
    if size != size_of::<T>() {
        return Err(Stop::failed(format!(
            "{}: {size} bytes, expected {}",
            status.function,
            size_of::<T>()
        )));
    }
    // SAFETY: the callee has written all of it, as the size says; the types used here have no invalid values.
    Ok(unsafe { value.assume_init() })
}

/// A list of any length.
#[track_caller]
pub fn list<T: Copy + Default>(
    query: impl Fn(usize, *mut c_void, *mut usize) -> Status,
) -> Result<Vec<T>, Stop> {
    let mut size = 0;
    query(0, null_mut(), &mut size).ok()?;
    let mut list = vec![T::default(); size.div_ceil(size_of::<T>())];
    if size > 0 {
        query(size, list.as_mut_ptr().cast(), null_mut()).ok()?;
    }
    Ok(list)
}

/// A text, without its NUL.
#[track_caller]
pub fn text(query: impl Fn(usize, *mut c_void, *mut usize) -> Status) -> Result<String, Stop> {
    let mut bytes = list::<u8>(query)?;
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The query of one property of an object: the property's number, then the arguments of every query.
pub type GetInfo<T> = fn(&Fixture, &T, u32, usize, *mut c_void, *mut usize) -> Status;

/// Tests of the size protocol, one for each property of a type of object, named after the property.
pub fn tests<T: 'static>(
    suite: &'static str,
    prefix: &str,
    properties: &'static [Property],
    make: fn(&Fixture) -> Result<T, Stop>,
    get_info: GetInfo<T>,
) -> Vec<Test> {
    let test = |property: &'static Property| {
        let name = property
            .name
            .split_once("_INFO_")
            .map_or(property.name, |(_, name)| name);
        Test::new(
            suite,
            format!("{prefix}{}", name.to_lowercase()),
            move |fixture| {
                let object = make(fixture)?;
                protocol(property, |size, value, ret| {
                    get_info(fixture, &object, property.value, size, value, ret)
                })
            },
        )
    };
    properties.iter().map(test).collect()
}

/// The condition of queries that refuse a call without any output.
const NO_OUTPUT: &str = "pPropValue == null and pPropSizeRet == null";
/// The condition of queries that refuse a size without a buffer.
const SIZE_WITHOUT_BUFFER: &str = "propSize != 0 and pPropValue == null";
/// The condition of queries to which a buffer of no bytes is an invalid value, not an invalid size.
const ZERO_SIZE: &str = "pPropValue and propSize == 0";

/// Whether a function declares an error under that condition.
fn declares(function: &str, condition: &str) -> bool {
    let cases = calls::function(function).map_or(&[][..], |function| function.cases);
    cases.iter().any(|case| case.what == condition)
}

const CANARY: u8 = 0xa5;
const MARGIN: usize = 16;

/// A query follows the size protocol: it accepts and refuses each combination of size and buffer.
///
/// This is the rule of every test that `tests` makes. The value is checked against its property's type.
pub fn protocol(
    property: &Property,
    query: impl Fn(usize, *mut c_void, *mut usize) -> Status,
) -> Done {
    let mut size = usize::MAX;
    let status = query(0, null_mut(), &mut size);
    if property.optional && status.code == UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION {
        return Ok(());
    }
    status.ok()?;
    sized(property, size)?;
    let bytes = exact(property, size, &query)?;
    meaning(property, &bytes)?;
    longer(property, size, &query)?;
    shorter(property, size, &query)?;
    let nothing = query(0, null_mut(), null_mut());
    if declares(nothing.function, NO_OUTPUT) {
        nothing.fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    }
    let mut ret = 0;
    let no_buffer = query(size.max(1), null_mut(), &mut ret);
    if declares(no_buffer.function, SIZE_WITHOUT_BUFFER) {
        no_buffer.fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    }
    let mut byte = CANARY;
    let zero_size = query(0, (&raw mut byte).cast(), null_mut());
    zero_size.fails(match declares(zero_size.function, ZERO_SIZE) {
        true => UR_RESULT_ERROR_INVALID_VALUE,
        false => UR_RESULT_ERROR_INVALID_SIZE,
    })?;
    check_eq!(
        byte,
        CANARY,
        "{}: byte written by a refused query",
        property.name
    );
    Ok(())
}

fn sized(property: &Property, size: usize) -> Done {
    let name = property.name;
    match property.form {
        Form::One(of) => check_eq!(size, of.size, "size of {name}"),
        Form::Array(extent, of) => check_eq!(size, extent * of.size, "size of {name}"),
        Form::List(of) => check!(
            size.is_multiple_of(of.size),
            "{name}: {size} bytes, no multiple of {}",
            of.size
        ),
        Form::Text => check!(size > 0, "{name}: a text of no bytes, not even a NUL"),
    }
    Ok(())
}

fn exact(
    property: &Property,
    size: usize,
    query: &dyn Fn(usize, *mut c_void, *mut usize) -> Status,
) -> Result<Vec<u8>, Stop> {
    // Aligned for any type of value.
    let mut words = vec![u64::from_ne_bytes([CANARY; 8]); size / 8 + 1 + MARGIN / 8];
    if size > 0 {
        let mut ret = 0;
        query(size, words.as_mut_ptr().cast(), &mut ret).ok()?;
        check_eq!(
            ret,
            size,
            "size of {}, asked for with a buffer",
            property.name
        );
        query(size, words.as_mut_ptr().cast(), null_mut()).ok()?;
    }
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let beyond = bytes.split_off(size);
    check!(
        beyond.iter().all(|byte| *byte == CANARY),
        "{}: bytes written beyond its {size}",
        property.name
    );
    Ok(bytes)
}

fn longer(
    property: &Property,
    size: usize,
    query: &dyn Fn(usize, *mut c_void, *mut usize) -> Status,
) -> Done {
    let mut words = vec![u64::from_ne_bytes([CANARY; 8]); size / 8 + 1 + MARGIN / 8];
    let mut ret = 0;
    query(size + MARGIN / 2, words.as_mut_ptr().cast(), &mut ret).ok()?;
    check_eq!(
        ret,
        size,
        "size of {}, asked for with a longer buffer",
        property.name
    );
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    // The callee may write between the value's end and the buffer's.
    let beyond = &bytes[size + MARGIN / 2..];
    check!(
        beyond.iter().all(|byte| *byte == CANARY),
        "{}: bytes written beyond the buffer",
        property.name
    );
    Ok(())
}

fn shorter(
    property: &Property,
    size: usize,
    query: &dyn Fn(usize, *mut c_void, *mut usize) -> Status,
) -> Done {
    if size < 2 {
        return Ok(());
    }
    let mut words = vec![u64::from_ne_bytes([CANARY; 8]); size / 8 + 1];
    let status = query(size - 1, words.as_mut_ptr().cast(), null_mut());
    status.fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    // The specification gives this code, in words, for info queries.
    let mut said = calls::said(status.function).iter();
    if let Some(said) = said.find(|said| said.code == UR_RESULT_ERROR_INVALID_SIZE) {
        provoked(status.function, said.what);
    }
    let untouched = words
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .all(|byte| byte == CANARY);
    check!(
        untouched,
        "{}: a refused query wrote into its buffer",
        property.name
    );
    Ok(())
}

/// Checks that the value is valid for the property's type.
fn meaning(property: &Property, bytes: &[u8]) -> Done {
    let name = property.name;
    let Some(of) = property.form.element() else {
        check_eq!(bytes.last(), Some(&0), "last byte of {name}");
        let inner = bytes.iter().take(bytes.len() - 1).any(|byte| *byte == 0);
        check!(!inner, "{name}: a NUL within the text");
        return Ok(());
    };
    let words = bytes.as_chunks::<4>().0.iter();
    let words = words.map(|word| u32::from_ne_bytes(*word));
    match of.kind {
        Kind::Truth => check!(
            bytes.first().is_some_and(|byte| *byte <= 1),
            "{name}: {bytes:?} is neither 0 nor 1"
        ),
        Kind::Flags { undefined, .. } => {
            for word in words {
                check_eq!(word & undefined, 0, "undefined bits of {name}");
            }
        }
        Kind::Enum(enumerator) => {
            for word in words {
                check!(
                    enumerator(word).is_some(),
                    "{name}: {word:#x} is no value of its enumeration"
                );
            }
        }
        Kind::Unsigned | Kind::Signed | Kind::Address | Kind::Struct(_) | Kind::Opaque => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::FUNCTIONS;

    #[test]
    fn some_query_declares_each_condition() {
        for condition in [NO_OUTPUT, SIZE_WITHOUT_BUFFER, ZERO_SIZE] {
            let mut functions = FUNCTIONS.iter();
            let declared = functions.any(|function| declares(function.name, condition));
            assert!(declared, "{condition}");
        }
    }
}

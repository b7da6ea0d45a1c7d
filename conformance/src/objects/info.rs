//! Info queries: values, lists and texts, and the check of the size protocol that all queries share.

use crate::fixture::Fixture;
use crate::generated::arguments::SAID;
use crate::generated::info::{
    NO_ROOM_IS_INVALID_VALUE, Property, REFUSE_NO_OUTPUT, REFUSE_SIZE_WITHOUT_BUFFER, Size,
};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::status::{Status, provoked};
use crate::{check, check_eq};
use std::ffi::c_void;
use std::mem::{MaybeUninit, size_of};
use std::ptr::null_mut;
use ur::abi::*;

/// A value of one size.
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
    // SAFETY: the callee has written all of it, as its size says; the types used here have no
    // invalid values.
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

/// The query of one property of an object: its number, then what every query takes.
pub type Ask<T> = fn(&Fixture, &T, u32, usize, *mut c_void, *mut usize) -> Status;

/// One test of the size protocol for each property of a kind of object, named after the property.
pub fn tests<T: 'static>(
    suite: &'static str,
    prefix: &str,
    properties: &'static [Property],
    make: fn(&Fixture) -> Result<T, Stop>,
    ask: Ask<T>,
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
                    ask(fixture, &object, property.value, size, value, ret)
                })
            },
        )
    };
    properties.iter().map(test).collect()
}

const CANARY: u8 = 0xa5;
const MARGIN: usize = 16;

/// Asks for a property in every way that the size protocol allows and forbids.
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
    if REFUSE_NO_OUTPUT.contains(&nothing.function) {
        nothing.fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    }
    let mut ret = 0;
    let no_buffer = query(size.max(1), null_mut(), &mut ret);
    if REFUSE_SIZE_WITHOUT_BUFFER.contains(&no_buffer.function) {
        no_buffer.fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    }
    let mut byte = CANARY;
    let no_room = query(0, (&raw mut byte).cast(), null_mut());
    no_room.fails(match NO_ROOM_IS_INVALID_VALUE.contains(&no_room.function) {
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
    match property.size {
        Size::Exact(want) => check_eq!(size, want, "size of {name}"),
        Size::Many(element) => check!(
            size.is_multiple_of(element),
            "{name}: {size} bytes, no multiple of {element}"
        ),
        Size::Text => check!(size > 0, "{name}: a text of no bytes, not even a NUL"),
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
    // What lies between the value's end and the buffer's is the callee's to write.
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
    // Of an info query, that is what the specification says of this code in words.
    let mut said = SAID.iter().filter(|said| said.function == status.function);
    if let Some(said) = said.find(|said| said.code == UR_RESULT_ERROR_INVALID_SIZE) {
        provoked(said.function, said.what);
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

/// The value is one that the property's type can have.
fn meaning(property: &Property, bytes: &[u8]) -> Done {
    let name = property.name;
    if let Size::Text = property.size {
        check_eq!(bytes.last(), Some(&0), "last byte of {name}");
        let inner = bytes.iter().take(bytes.len() - 1).any(|byte| *byte == 0);
        check!(!inner, "{name}: a NUL within the text");
    }
    if property.boolean {
        check!(
            bytes.first().is_some_and(|byte| *byte <= 1),
            "{name}: {bytes:?} is neither 0 nor 1"
        );
    }
    for word in bytes.as_chunks::<4>().0 {
        let word = u32::from_ne_bytes(*word);
        if property.undefined != 0 {
            check_eq!(word & property.undefined, 0, "undefined bits of {name}");
        }
        if !property.allowed.is_empty() {
            check!(
                property.allowed.contains(&word),
                "{name}: {word:#x} is no value of its enumeration"
            );
        }
    }
    Ok(())
}

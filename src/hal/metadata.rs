//! What a compiler says about a program beside its code, as `urProgramCreateWithBinary` is given it:
//! entries named `subject@tag`. Owns how they are written; what a tag means is the adapter's.

use super::checks;
use crate::abi::*;
use crate::object::{Error, Result};
use std::ffi::CStr;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is about: a kernel's name, or a variable's id.
    pub subject: Vec<u8>,
    pub tag: Vec<u8>,
    pub bytes: Vec<u8>,
}

/// All entries that have a tag.
///
/// # Safety
/// The entries, their names and what they point to are as they say, for the call.
pub unsafe fn entries(properties: Option<&ur_program_properties_t>) -> Result<Vec<Entry>> {
    let Some(properties) = properties else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    // SAFETY: the caller's promise.
    for entry in unsafe { checks::slice(properties.pMetadatas, properties.count as usize) }? {
        checks::pointer(entry.pName)?;
        // SAFETY: the caller's promise.
        let (name, bytes) = unsafe { (CStr::from_ptr(entry.pName).to_bytes(), value(entry)?) };
        if let Some(at) = name.iter().rposition(|&byte| byte == b'@') {
            all.push(Entry {
                subject: name[..at].to_vec(),
                tag: name[at + 1..].to_vec(),
                bytes,
            });
        }
    }
    Ok(all)
}

/// The bytes of an entry's value.
///
/// # Safety
/// The entry's type says which member of its value holds, and pointers are good for its size.
unsafe fn value(entry: &ur_program_metadata_t) -> Result<Vec<u8>> {
    // SAFETY: the caller's promise.
    unsafe {
        Ok(match entry.r#type {
            UR_PROGRAM_METADATA_TYPE_UINT32 => entry.value.data32.to_ne_bytes().to_vec(),
            UR_PROGRAM_METADATA_TYPE_UINT64 => entry.value.data64.to_ne_bytes().to_vec(),
            UR_PROGRAM_METADATA_TYPE_STRING => {
                checks::pointer(entry.value.pString)?;
                CStr::from_ptr(entry.value.pString).to_bytes().to_vec()
            }
            UR_PROGRAM_METADATA_TYPE_BYTE_ARRAY => {
                without_size(checks::slice(entry.value.pData.cast::<u8>(), entry.size)?).to_vec()
            }
            _ => return Err(Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION)),
        })
    }
}

/// DPC++ puts the size before a byte array's bytes, in bits; others may count in bytes.
fn without_size(bytes: &[u8]) -> &[u8] {
    match bytes.split_first_chunk() {
        Some((&size, rest)) => {
            let (size, there) = (u64::from_ne_bytes(size), rest.len() as u64);
            if size == there * 8 || size == there {
                rest
            } else {
                bytes
            }
        }
        None => bytes,
    }
}

/// One to three 32-bit numbers above 0, the rest 1.
pub fn sizes(bytes: &[u8]) -> Option<[usize; 3]> {
    let (numbers, []) = bytes.as_chunks::<4>() else {
        return None;
    };
    if !(1..=3).contains(&numbers.len()) {
        return None;
    }
    let mut size = [1; 3];
    for (axis, &number) in numbers.iter().enumerate() {
        size[axis] = u32::from_ne_bytes(number) as usize;
    }
    size.iter().all(|&axis| axis > 0).then_some(size)
}

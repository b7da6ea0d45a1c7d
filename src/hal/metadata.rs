//! Program metadata of a compiler, as `urProgramCreateWithBinary` receives it: entries named
//! `subject@tag`.
//!
//! Owns their encoding; adapters interpret the tags.

use super::checks;
use crate::abi::*;
use crate::object::{Error, Result};
use std::ffi::{CStr, CString};

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The subject: the name of a kernel, or the id of a variable.
    pub subject: Vec<u8>,
    pub tag: Vec<u8>,
    pub bytes: Vec<u8>,
}

/// The entries whose name has a tag.
///
/// Errors: `INVALID_NULL_POINTER` for a missing name or value, `INVALID_ENUMERATION` for an unknown
/// type.
///
/// # Safety
/// The entries, their names and their values are readable, with the sizes and types that they
/// state.
pub unsafe fn entries(properties: Option<&ur_program_properties_t>) -> Result<Vec<Entry>> {
    let Some(properties) = properties else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    // SAFETY: the caller guarantees `count` readable entries.
    for entry in unsafe { checks::slice(properties.pMetadatas, properties.count as usize) }? {
        checks::pointer(entry.pName)?;
        // SAFETY: not null, and the caller guarantees a C string and a value of the stated type.
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
///
/// The entry's type names the valid member of its value, and pointers are valid for its size.
unsafe fn value(entry: &ur_program_metadata_t) -> Result<Vec<u8>> {
    // SAFETY: the caller guarantees the member and its size.
    unsafe {
        Ok(match entry.r#type {
            UR_PROGRAM_METADATA_TYPE_UINT32 => entry.value.data32.to_ne_bytes().to_vec(),
            UR_PROGRAM_METADATA_TYPE_UINT64 => entry.value.data64.to_ne_bytes().to_vec(),
            UR_PROGRAM_METADATA_TYPE_STRING => {
                checks::pointer(entry.value.pString)?;
                CStr::from_ptr(entry.value.pString).to_bytes().to_vec()
            }
            UR_PROGRAM_METADATA_TYPE_BYTE_ARRAY => {
                data(checks::slice(entry.value.pData.cast::<u8>(), entry.size)?).to_vec()
            }
            _ => return Err(Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION)),
        })
    }
}

/// Number of bytes before the data of a byte array. They are ignored: DPC++ stores the data's size
/// in bits there.
const PREFIX_BYTES: usize = 8;

/// The data of a byte array; none if the array is shorter than its prefix.
fn data(bytes: &[u8]) -> &[u8] {
    bytes.get(PREFIX_BYTES..).unwrap_or_default()
}

/// A name up to its first zero; none if it is empty.
pub fn name(bytes: &[u8]) -> Option<CString> {
    let name = bytes.split(|byte| *byte == 0).next()?;
    let name = CString::new(name).ok()?;
    (!name.is_empty()).then_some(name)
}

/// One to three 32-bit numbers above 0; missing ones are 1. None for other lengths or a 0.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(value: &[u8]) -> Result<Vec<u8>> {
        let entry = ur_program_metadata_t {
            pName: c"subject@tag".as_ptr(),
            r#type: UR_PROGRAM_METADATA_TYPE_BYTE_ARRAY,
            size: value.len(),
            value: ur_program_metadata_value_t {
                pData: value.as_ptr().cast_mut().cast(),
            },
        };
        let properties = ur_program_properties_t {
            count: 1,
            pMetadatas: &raw const entry,
            ..Default::default()
        };
        // SAFETY: the entry and its value live in this function.
        let all = unsafe { entries(Some(&properties)) }?;
        Ok(all.into_iter().flat_map(|entry| entry.bytes).collect())
    }

    #[test]
    fn the_first_eight_bytes_of_an_array_are_no_data() -> Result<()> {
        for before in [0_u64, 24, 3, 16, u64::MAX, u64::from_ne_bytes(*b"a name!!")] {
            let before = before.to_ne_bytes();
            assert_eq!(bytes_of(&[&before[..], b"xyz"].concat())?, b"xyz");
            for short in 0..=8 {
                assert_eq!(bytes_of(&before[..short])?, b"");
            }
        }
        Ok(())
    }

    #[test]
    fn names_end_with_a_zero_or_the_data() {
        let of = |bytes: &[u8]| name(bytes).map(CString::into_bytes);
        assert_eq!(of(b"one"), Some(b"one".to_vec()));
        assert_eq!(of(b"one\0two\0"), Some(b"one".to_vec()));
        assert_eq!((of(b""), of(b"\0one")), (None, None));
    }
}

//! Queries of properties: the size protocol of `clGet*Info`.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use opencl_sys::cl_int;
use ur::object::Result;

use super::check;

/// A property that is an array of values for which all bytes are valid. `query` is a `clGet*Info` call
/// that takes size, value and returned size.
pub fn list<T: Copy>(
    query: impl Fn(usize, *mut c_void, *mut usize) -> cl_int,
    call: &str,
) -> Result<Vec<T>> {
    let mut size = 0;
    check(query(0, null_mut(), &mut size), call)?;
    let count = size / size_of::<T>();
    let mut values = Vec::<T>::with_capacity(count);
    if count > 0 {
        check(
            query(
                count * size_of::<T>(),
                values.as_mut_ptr().cast(),
                null_mut(),
            ),
            call,
        )?;
        // SAFETY: the call succeeded, so that it filled as many bytes as it was asked for.
        unsafe { values.set_len(count) };
    }
    Ok(values)
}

/// A property of a type for which all bytes are valid.
pub fn value<T: Copy>(
    query: impl Fn(usize, *mut c_void, *mut usize) -> cl_int,
    call: &str,
) -> Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    check(
        query(size_of::<T>(), value.as_mut_ptr().cast(), null_mut()),
        call,
    )?;
    // SAFETY: the bytes are zero or filled by the call, and the callers' types have no invalid values.
    Ok(unsafe { value.assume_init() })
}

/// A property that is text.
pub fn text(
    query: impl Fn(usize, *mut c_void, *mut usize) -> cl_int,
    call: &str,
) -> Result<String> {
    let mut bytes = list::<u8>(query, call)?;
    if let Some(end) = bytes.iter().position(|&byte| byte == 0) {
        bytes.truncate(end);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The numbers of a version such as `OpenCL 3.1 ...`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

impl Version {
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    pub fn parse(text: &str) -> Self {
        let number = text.strip_prefix("OpenCL ").unwrap_or(text);
        let number = number.split(' ').next().unwrap_or_default();
        let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
        Self {
            major: parts.next().unwrap_or(0),
            minor: parts.next().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_drivers_say() {
        assert_eq!(Version::parse("OpenCL 3.1 LINUX"), Version::new(3, 1));
        assert_eq!(Version::parse("OpenCL 1.2 "), Version::new(1, 2));
        assert_eq!(Version::parse("OpenCL 2.0"), Version::new(2, 0));
        assert_eq!(Version::parse("nonsense"), Version::new(0, 0));
        assert!(Version::new(2, 1) < Version::new(3, 0));
    }
}

//! Property buffers: the size protocol of every `ur*GetInfo`.

use super::checks::slice;
use super::{Body, Error, Object, Result};
use crate::abi::*;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::OnceLock;

/// Types for which every bit pattern is a value.
///
/// # Safety
/// Every bit pattern is a value, and there is no padding.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($ty:ty)*) => { $(
        // SAFETY: an integer or a transparent wrapper of one.
        unsafe impl Plain for $ty {}
    )* };
}
plain!(u8 u16 u32 u64 usize i32 ur_kernel_cache_config_t);

/// The output of a property.
pub struct InfoOut<'a> {
    /// The size of the value's buffer in bytes; none where the function has no size argument.
    room: Option<usize>,
    value: *mut u8,
    size: *mut usize,
    call: PhantomData<&'a mut u8>,
}

impl InfoOut<'_> {
    /// An output of a property.
    ///
    /// # Safety
    /// The value is null or has `room` writable bytes, or enough for the property if `room` is
    /// none. The size is null or writable.
    pub unsafe fn new(room: Option<usize>, value: *mut c_void, size: *mut usize) -> Self {
        Self {
            room,
            value: value.cast(),
            size,
            call: PhantomData,
        }
    }

    /// Writes a value of a fixed size.
    pub fn value<T: Copy>(self, value: T) -> Result<()> {
        self.slice(&[value])
    }

    /// Writes a `ur_bool_t`.
    pub fn boolean(self, value: bool) -> Result<()> {
        self.value(u8::from(value))
    }

    /// Writes a handle, or null for none. Adds no reference.
    pub fn handle<T: Body>(self, object: Option<&Object<T>>) -> Result<()> {
        self.value(object.map_or(std::ptr::null_mut(), Object::handle))
    }

    /// Writes text with its terminating zero.
    pub fn string(self, text: &str) -> Result<()> {
        let mut bytes: Vec<u8> = text.bytes().filter(|&byte| byte != 0).collect();
        bytes.push(0);
        self.slice(&bytes)
    }

    /// Writes several buffers of bytes. The value is an array of pointers; each that is not null
    /// receives its buffer.
    ///
    /// `INVALID_SIZE` if the array is too small.
    ///
    /// # Safety
    /// Each pointer is null or has room for its buffer.
    pub unsafe fn buffers<T: AsRef<[u8]>>(self, buffers: &[T]) -> Result<()> {
        let bytes = size_of::<*mut u8>() * buffers.len();
        if !self.value.is_null() {
            if self.room.is_some_and(|room| room < bytes) {
                return Err(Error::new(UR_RESULT_ERROR_INVALID_SIZE));
            }
            for (at, buffer) in buffers.iter().map(AsRef::as_ref).enumerate() {
                // SAFETY: the value was checked to hold a pointer for each buffer.
                let to = unsafe { self.value.cast::<*mut u8>().add(at).read_unaligned() };
                if !to.is_null() {
                    // SAFETY: the caller guarantees that `to` has room for its buffer.
                    unsafe { std::ptr::copy_nonoverlapping(buffer.as_ptr(), to, buffer.len()) }
                }
            }
        }
        if !self.size.is_null() {
            // SAFETY: not null, and the caller of `new` guaranteed that it is writable.
            unsafe { self.size.write(bytes) }
        }
        Ok(())
    }

    /// Writes an array. `INVALID_SIZE` if the buffer is too small.
    pub fn slice<T: Copy>(self, values: &[T]) -> Result<()> {
        let bytes = size_of_val(values);
        if !self.value.is_null() {
            if self.room.is_some_and(|room| room < bytes) {
                return Err(Error::new(UR_RESULT_ERROR_INVALID_SIZE));
            }
            // SAFETY: the caller of `new` guaranteed a buffer of `room` bytes, which does not
            // overlap `values`.
            unsafe {
                std::ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), self.value, bytes)
            }
        }
        if !self.size.is_null() {
            // SAFETY: not null, and the caller of `new` guaranteed that it is writable.
            unsafe { self.size.write(bytes) }
        }
        Ok(())
    }
}

/// A cache of constant properties, since queries of a backend can be slow.
pub struct Answers {
    cached: Box<[OnceLock<Box<[u8]>>]>,
}

impl Answers {
    /// A cache of properties numbered below `count`.
    pub fn new(count: usize) -> Self {
        Self {
            cached: (0..count).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Writes a property. `ask` queries it the first time; errors are not cached.
    pub fn write(
        &self,
        property: usize,
        out: InfoOut<'_>,
        ask: impl Fn(InfoOut<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(cached) = self.cached.get(property) else {
            return ask(out);
        };
        if let Some(answer) = cached.get() {
            return out.slice(answer);
        }
        let mut size = 0;
        // SAFETY: the value is null, and the size is a local variable.
        ask(unsafe { InfoOut::new(Some(0), std::ptr::null_mut(), &mut size) })?;
        let mut answer = vec![0u8; size];
        // SAFETY: `answer` has `size` bytes, and the size is a local variable.
        ask(unsafe { InfoOut::new(Some(size), answer.as_mut_ptr().cast(), &mut size) })?;
        answer.truncate(size);
        out.slice(cached.get_or_init(|| answer.into_boxed_slice()))
    }
}

/// The new value of a property.
#[derive(Clone, Copy)]
pub struct InfoIn<'a> {
    bytes: &'a [u8],
}

impl<'a> InfoIn<'a> {
    /// An input of a property. Empty for a null value or a size of 0.
    ///
    /// # Safety
    /// The value is null or has `size` readable bytes.
    pub unsafe fn new(size: usize, value: *const c_void) -> Result<Self> {
        if value.is_null() || size == 0 {
            return Ok(Self { bytes: &[] });
        }
        // SAFETY: not null, and the caller guarantees `size` readable bytes.
        let bytes = unsafe { slice(value.cast(), size) }?;
        Ok(Self { bytes })
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The value. `INVALID_SIZE` unless the size is that of its type.
    pub fn value<T: Plain>(&self) -> Result<T> {
        if self.bytes.len() != size_of::<T>() {
            return Err(Error::new(UR_RESULT_ERROR_INVALID_SIZE));
        }
        // SAFETY: the size is that of the type, for which every bit pattern is a value.
        Ok(unsafe { self.bytes.as_ptr().cast::<T>().read_unaligned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_larger_than_memory_is_refused() {
        let number = 7_u32;
        let value = |size: usize| {
            // SAFETY: the array has four bytes, and the test reads no more.
            let value = unsafe { InfoIn::new(size, (&raw const number).cast()) };
            value.and_then(|value| value.value::<u32>())
        };
        assert_eq!(value(4), Ok(7));
        assert_eq!(value(0), Err(Error::new(UR_RESULT_ERROR_INVALID_SIZE)));
        for size in [isize::MAX as usize + 1, usize::MAX] {
            assert_eq!(value(size), Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE)));
        }
    }

    fn ask(
        room: usize,
        buffer: Option<&mut [u8]>,
        what: impl FnOnce(InfoOut<'_>) -> Result<()>,
    ) -> (Result<()>, usize) {
        let mut size = usize::MAX;
        let value = buffer.map_or(std::ptr::null_mut(), |bytes| bytes.as_mut_ptr().cast());
        // SAFETY: both point to live variables of this test.
        let result = what(unsafe { InfoOut::new(Some(room), value, &mut size) });
        (result, size)
    }

    #[test]
    fn the_size_protocol() {
        let mut buffer = [9u8; 8];
        assert_eq!(ask(0, None, |out| out.value(7u32)), (Ok(()), 4));
        assert_eq!(
            ask(4, Some(&mut buffer), |out| out.value(7u32)),
            (Ok(()), 4)
        );
        assert_eq!(buffer, [7, 0, 0, 0, 9, 9, 9, 9]);
        let short = Err(Error::new(UR_RESULT_ERROR_INVALID_SIZE));
        assert_eq!(
            ask(3, Some(&mut buffer), |out| out.value(1u32)),
            (short, usize::MAX)
        );
        assert_eq!(buffer[0], 7, "nothing is written on failure");
        assert_eq!(
            ask(8, Some(&mut buffer), |out| out.string("ab\0c")),
            (Ok(()), 4)
        );
        assert_eq!(&buffer[..4], b"abc\0");
    }

    #[test]
    fn values_are_cached_and_errors_are_not() {
        let asked = std::cell::Cell::new(0);
        let answers = Answers::new(2);
        let text = |out: InfoOut<'_>| {
            asked.set(asked.get() + 1);
            out.string("ab")
        };
        let mut buffer = [9u8; 4];
        for _ in 0..3 {
            let given = ask(4, Some(&mut buffer), |out| answers.write(1, out, text));
            assert_eq!((given, buffer), ((Ok(()), 3), *b"ab\0\x09"));
        }
        assert_eq!(asked.get(), 2, "once for the size, once for the text");
        let short = Err(Error::new(UR_RESULT_ERROR_INVALID_SIZE));
        let given = ask(2, Some(&mut buffer), |out| answers.write(1, out, text));
        assert_eq!(given.0, short);
        let fails = |_: InfoOut<'_>| Err(Error::unsupported());
        let failed = ask(4, Some(&mut buffer), |out| answers.write(0, out, fails));
        assert_eq!(failed.0, Err(Error::unsupported()));
        let given = ask(4, Some(&mut buffer), |out| answers.write(0, out, text));
        assert_eq!(given, (Ok(()), 3));
    }

    #[test]
    fn buffers_go_where_the_pointers_say() {
        let mut first = [0u8; 3];
        let mut pointers = [first.as_mut_ptr(), std::ptr::null_mut()];
        let room = size_of_val(&pointers);
        let mut size = 0;
        // SAFETY: the array holds a pointer for each buffer, with room for it or null.
        let result = unsafe {
            let out = InfoOut::new(Some(room), pointers.as_mut_ptr().cast(), &mut size);
            out.buffers(&[b"abc".as_slice(), b"none"])
        };
        assert_eq!((result, size, &first), (Ok(()), room, b"abc"));
    }

    #[test]
    fn values_in_have_their_exact_size() {
        let value = 5u32;
        // SAFETY: four readable bytes.
        let input = unsafe { InfoIn::new(4, (&raw const value).cast()) }.unwrap();
        assert_eq!(input.value::<u32>(), Ok(5));
        assert_eq!(
            input.value::<u64>(),
            Err(Error::new(UR_RESULT_ERROR_INVALID_SIZE))
        );
    }
}

//! The values of arguments, and the words in which they lie when a function is called.

use super::valid::{Kind, Valid};
use std::ffi::c_void;

/// An argument, or a member of a structure.
#[derive(Clone, Copy)]
pub enum Value {
    /// A null pointer, handle or function.
    Null,
    /// A number, an enumerator or a set of flags.
    Number(u64),
    /// The argument's part of the memory in `Valid`.
    Memory,
    /// An empty text.
    Text,
    /// The valid handle of a kind.
    Handle(Kind),
    /// A list of that handle alone.
    List(Kind),
    /// A list of a null handle alone.
    NullList,
    /// A list of sizes, one for each dimension.
    Sizes([u64; 3]),
    /// The address of a function that does nothing.
    Callback(fn() -> *const c_void),
    /// A structure by value.
    Structure(&'static Structure),
    /// A pointer to a structure.
    Pointer(&'static Structure),
}

/// A structure: its type's default with other values of some members.
pub struct Structure {
    pub default: fn() -> Vec<u64>,
    pub members: &'static [Member],
}

/// A member's offset in bytes, and its value.
pub struct Member {
    pub offset: usize,
    pub size: usize,
    pub value: Value,
}

impl Value {
    /// Adds the kinds of handle that the value mentions.
    pub fn kinds(self, found: &mut Vec<Kind>) {
        match self {
            Self::Handle(kind) | Self::List(kind) => found.push(kind),
            Self::Structure(of) | Self::Pointer(of) => {
                for member in of.members {
                    member.value.kinds(found);
                }
            }
            _ => {}
        }
    }
}

/// The memory that the pointers of one call lead to.
pub struct Memory<'a> {
    valid: &'a Valid,
    pointed: Vec<Vec<u64>>,
}

impl<'a> Memory<'a> {
    pub fn of(valid: &'a Valid) -> Self {
        let pointed = Vec::new();
        Self { valid, pointed }
    }

    /// The words of an argument's value, or of a member of that argument.
    pub fn words(&mut self, value: Value, position: usize) -> Vec<u64> {
        let word = match value {
            Value::Null => 0,
            Value::Number(number) => number,
            Value::Memory => address(self.valid.at(position)),
            Value::Text => address(c"".as_ptr()),
            Value::Handle(kind) => address(self.valid.get(kind)),
            Value::List(kind) => self.pointer_to(vec![address(self.valid.get(kind))]),
            Value::NullList => self.pointer_to(vec![0]),
            Value::Sizes(sizes) => self.pointer_to(sizes.to_vec()),
            Value::Callback(function) => address(function()),
            Value::Structure(of) => return self.structure(of, position),
            Value::Pointer(of) => {
                let words = self.structure(of, position);
                self.pointer_to(words)
            }
        };
        vec![word]
    }

    fn structure(&mut self, of: &Structure, position: usize) -> Vec<u64> {
        let mut words = (of.default)();
        for member in of.members {
            let value = self.words(member.value, position).into_iter();
            let bytes = value.flat_map(u64::to_le_bytes).take(member.size);
            for (at, byte) in (member.offset..).zip(bytes) {
                let (word, shift) = (at / size_of::<u64>(), 8 * (at % size_of::<u64>()));
                words[word] = words[word] & !(0xff << shift) | u64::from(byte) << shift;
            }
        }
        words
    }

    fn pointer_to(&mut self, words: Vec<u64>) -> u64 {
        let address = address(words.as_ptr());
        self.pointed.push(words);
        address
    }
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

/// The words of a structure with default values.
pub fn default<T: Default>() -> Vec<u64> {
    let mut words = vec![0; size_of::<T>().div_ceil(size_of::<u64>())];
    // SAFETY: the buffer has room for the structure, aligned for C types.
    unsafe { words.as_mut_ptr().cast::<T>().write(T::default()) };
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::*;
    use ur::abi::*;

    #[test]
    fn arguments_are_the_words_that_c_expects() {
        let mut scratch = vec![0_u64; 8192];
        let mut valid = Valid::new(scratch.as_mut_ptr().cast());
        valid.event = std::ptr::without_provenance_mut(0x40);
        let mut memory = Memory::of(&valid);
        let mut word = |value| memory.words(value, 2)[0];
        assert_eq!(word(value!(null)), 0);
        assert_eq!(
            word(value!((UR_DEVICE_TYPE_CPU))),
            u64::from(UR_DEVICE_TYPE_CPU.0)
        );
        assert_eq!(
            word(value!((undefined UR_MEM_FLAGS_MASK))),
            u64::from(UR_MEM_FLAGS_MASK)
        );
        assert_eq!(word(value!(memory)), address(valid.at(2)));
        assert_eq!(word(value!(Event)), 0x40);
        let list = std::ptr::with_exposed_provenance::<usize>(word(value!([Event])) as usize);
        // SAFETY: `memory` owns the list.
        assert_eq!(unsafe { list.read() }, 0x40);
        let sizes = std::ptr::with_exposed_provenance::<[u64; 3]>(word(value!([1, 0, 2])) as usize);
        // SAFETY: `memory` owns the list.
        assert_eq!(unsafe { sizes.read() }, [1, 0, 2]);
        let region = memory.words(value!({ur_rect_region_t width = 3, depth = 1}), 2);
        assert_eq!(region, [3, 0, 1]);
        let pointer = value!({&ur_image_desc_t r#type = (UR_MEM_TYPE_IMAGE3D), numSamples = 7});
        let pointer = memory.words(pointer, 2)[0];
        let desc = std::ptr::with_exposed_provenance::<ur_image_desc_t>(pointer as usize);
        // SAFETY: `memory` owns the structure.
        let desc = unsafe { desc.read() };
        assert_eq!(desc.stype, UR_STRUCTURE_TYPE_IMAGE_DESC);
        assert_eq!((desc.r#type, desc.numSamples), (UR_MEM_TYPE_IMAGE3D, 7));
        assert_eq!((desc.width, desc.numMipLevel), (0, 0));
    }
}

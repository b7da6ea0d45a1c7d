//! The compiler's metadata of a program's kernels and global variables.

use std::collections::HashMap;
use std::ffi::{CStr, CString};

use ur::abi::*;
use ur::hal::metadata::{self, Entry};
use ur::object::{Error, Result};

use crate::exec::Form;
use crate::kernel::MAX_ARGS;

/// Facts by kernel name, and the names of global variables by SYCL's ids.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    group_sizes: HashMap<Vec<u8>, [usize; 3]>,
    forms: HashMap<Vec<u8>, Form>,
    arg_counts: HashMap<Vec<u8>, u32>,
    globals: HashMap<Vec<u8>, CString>,
}

/// `kernel@reqd_work_group_size`: one to three 32-bit numbers.
const GROUP_SIZE: &[u8] = b"reqd_work_group_size";

/// `id@global_id_mapping`: the name of a global variable.
const GLOBAL_ID: &[u8] = b"global_id_mapping";

/// `kernel@whole_work_group`: not 0 if the kernel's function loops over its work-group. This project's own.
const WHOLE_GROUP: &[u8] = b"whole_work_group";

/// `kernel@num_args`: the number of arguments that the kernel takes, as 32 or 64 bits. This project's own.
const ARG_COUNT: &[u8] = b"num_args";

impl Metadata {
    /// # Safety
    /// The entries, their names and the memory that they point to are readable for the call.
    pub unsafe fn read(properties: Option<&ur_program_properties_t>) -> Result<Self> {
        let wrong = Error::new(UR_RESULT_ERROR_INVALID_VALUE);
        let mut all = Self::default();
        // SAFETY: the caller promises readable entries.
        let all_entries = unsafe { metadata::entries(properties) }?;
        for Entry {
            subject,
            tag,
            bytes,
        } in all_entries
        {
            match tag.as_slice() {
                GROUP_SIZE => {
                    let size = metadata::sizes(&bytes).ok_or(wrong)?;
                    all.group_sizes.insert(subject, size);
                }
                GLOBAL_ID => {
                    let own = metadata::name(&bytes).ok_or(wrong)?;
                    all.globals.insert(subject, own);
                }
                WHOLE_GROUP => {
                    let whole = bytes.iter().any(|&byte| byte != 0);
                    all.forms
                        .insert(subject, if whole { Form::Group } else { Form::Item });
                }
                ARG_COUNT => {
                    all.arg_counts.insert(subject, count(&bytes).ok_or(wrong)?);
                }
                // Metadata for other backends.
                _ => {}
            }
        }
        Ok(all)
    }

    /// A kernel's required work-group size, if it has one.
    pub fn group_size(&self, kernel: &CStr) -> Option<[usize; 3]> {
        self.group_sizes.get(kernel.to_bytes()).copied()
    }

    /// How often a kernel's function is called, if the metadata says it.
    pub fn form(&self, kernel: &CStr) -> Option<Form> {
        self.forms.get(kernel.to_bytes()).copied()
    }

    /// The number of arguments that a kernel takes, if the metadata says it.
    pub fn arg_count(&self, kernel: &CStr) -> Option<u32> {
        self.arg_counts.get(kernel.to_bytes()).copied()
    }

    /// The name in the code of the global variable with this id.
    pub fn global(&self, id: &CStr) -> Option<&CStr> {
        self.globals.get(id.to_bytes()).map(CString::as_c_str)
    }

    /// Adds the facts of another program. A fact that is already known stays.
    pub fn join(&mut self, other: &Self) {
        fn join<T: Clone>(all: &mut HashMap<Vec<u8>, T>, more: &HashMap<Vec<u8>, T>) {
            for (key, value) in more {
                all.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        join(&mut self.group_sizes, &other.group_sizes);
        join(&mut self.forms, &other.forms);
        join(&mut self.arg_counts, &other.arg_counts);
        join(&mut self.globals, &other.globals);
    }
}

/// A number of arguments, of 32 or 64 bits.
pub fn count(bytes: &[u8]) -> Option<u32> {
    let count: Option<u32> = match bytes.len() {
        4 => bytes.try_into().ok().map(u32::from_ne_bytes),
        8 => bytes
            .try_into()
            .ok()
            .and_then(|bytes| u64::from_ne_bytes(bytes).try_into().ok()),
        _ => None,
    };
    count.filter(|count| *count <= MAX_ARGS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &CStr, bytes: &[u8]) -> Result<Metadata> {
        let entry = ur_program_metadata_t {
            pName: name.as_ptr(),
            r#type: UR_PROGRAM_METADATA_TYPE_BYTE_ARRAY,
            size: bytes.len(),
            value: ur_program_metadata_value_t {
                pData: bytes.as_ptr().cast_mut().cast(),
            },
        };
        let properties = ur_program_properties_t {
            count: 1,
            pMetadatas: &raw const entry,
            ..Default::default()
        };
        // SAFETY: the entry and its bytes live until the call returns.
        unsafe { Metadata::read(Some(&properties)) }
    }

    /// A byte array as DPC++ writes it.
    fn array(data: &[u8]) -> Vec<u8> {
        let bits = data.len() as u64 * 8;
        [&bits.to_ne_bytes(), data].concat()
    }

    fn numbers(numbers: &[u32]) -> Vec<u8> {
        let bytes = numbers.iter().flat_map(|number| number.to_ne_bytes());
        array(&bytes.collect::<Vec<_>>())
    }

    #[test]
    fn group_sizes_are_padded() -> Result<()> {
        let name = c"my@kernel@reqd_work_group_size";
        assert_eq!(
            read(name, &numbers(&[8, 4]))?.group_size(c"my@kernel"),
            Some([8, 4, 1])
        );
        assert_eq!(read(name, &numbers(&[2]))?.group_size(c"kernel"), None);
        let mut unmeasured = numbers(&[2, 3, 5]);
        unmeasured[..8].fill(0);
        assert_eq!(
            read(name, &unmeasured)?.group_size(c"my@kernel"),
            Some([2, 3, 5])
        );
        for wrong in [
            numbers(&[]),
            numbers(&[1, 2, 3, 4]),
            numbers(&[0]),
            vec![1, 2, 3],
        ] {
            assert!(read(name, &wrong).is_err(), "{wrong:?}");
        }
        Ok(())
    }

    #[test]
    fn names_and_forms() -> Result<()> {
        let (name, form) = (c"id7@global_id_mapping", c"k@whole_work_group");
        for counter in [&b"counter"[..], b"counter\0"] {
            let read = read(name, &array(counter))?;
            assert_eq!(read.global(c"id7"), Some(c"counter"));
        }
        assert!(read(name, &array(b"")).is_err());
        let mut one = read(form, &array(&[1]))?;
        assert_eq!(one.form(c"k"), Some(Form::Group));
        one.join(&read(form, &array(&[0]))?);
        one.join(&read(c"l@whole_work_group", &array(&[0]))?);
        assert_eq!(
            (one.form(c"k"), one.form(c"l")),
            (Some(Form::Group), Some(Form::Item))
        );
        assert!(read(c"nothing for us", &[]).is_ok());
        Ok(())
    }

    #[test]
    fn argument_counts() -> Result<()> {
        let name = c"k@num_args";
        let count = |read: Result<Metadata>| -> Result<Option<u32>> { Ok(read?.arg_count(c"k")) };
        assert_eq!(count(read(name, &array(&3u32.to_ne_bytes())))?, Some(3));
        assert_eq!(count(read(name, &array(&3u64.to_ne_bytes())))?, Some(3));
        assert_eq!(count(read(name, &array(&0u32.to_ne_bytes())))?, Some(0));
        assert_eq!(
            count(read(c"other@num_args", &array(&3u32.to_ne_bytes())))?,
            None
        );
        for wrong in [
            array(b"12"),
            array(&(MAX_ARGS + 1).to_ne_bytes()),
            array(&u64::MAX.to_ne_bytes()),
        ] {
            assert!(read(name, &wrong).is_err(), "{wrong:?}");
        }
        Ok(())
    }
}

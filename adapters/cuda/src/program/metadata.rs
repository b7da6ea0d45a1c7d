//! DPC++'s metadata of kernels and global variables.

use std::collections::HashMap;
use std::ffi::{CStr, CString};

use ur::abi::*;
use ur::hal::metadata::{Entry, entries, name, sizes};
use ur::object::{Error, Result};

/// The work-group sizes that a kernel's source requires or allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupRules {
    /// The required size.
    pub required: Option<[usize; 3]>,
    /// The maximum in each dimension.
    pub max: Option<[usize; 3]>,
    /// The maximum number of work-items.
    pub max_linear: Option<usize>,
}

/// Rules by kernel name, and the names of global variables by SYCL's ids.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    groups: HashMap<Vec<u8>, GroupRules>,
    globals: HashMap<Vec<u8>, CString>,
}

impl Metadata {
    /// # Safety
    /// The entries, their names and the memory that they point to are readable for the call.
    pub unsafe fn read(properties: Option<&ur_program_properties_t>) -> Result<Self> {
        let wrong = Error::new(UR_RESULT_ERROR_INVALID_VALUE);
        let mut all = Self::default();
        // SAFETY: the caller promises readable entries.
        let all_entries = unsafe { entries(properties) }?;
        for Entry {
            subject,
            tag,
            bytes,
        } in all_entries
        {
            let groups = &mut all.groups;
            match tag.as_slice() {
                b"reqd_work_group_size" => {
                    groups.entry(subject).or_default().required = Some(sizes(&bytes).ok_or(wrong)?);
                }
                b"max_work_group_size" => {
                    groups.entry(subject).or_default().max = Some(sizes(&bytes).ok_or(wrong)?);
                }
                b"max_linear_work_group_size" => {
                    groups.entry(subject).or_default().max_linear =
                        Some(number(&bytes).ok_or(wrong)?);
                }
                b"global_id_mapping" => {
                    all.globals.insert(subject, name(&bytes).ok_or(wrong)?);
                }
                // Metadata for other backends.
                _ => {}
            }
        }
        Ok(all)
    }

    pub fn rules(&self, kernel: &CStr) -> GroupRules {
        let rules = self.groups.get(kernel.to_bytes()).copied();
        rules.unwrap_or_default()
    }

    /// The name in the code of the global variable with this id.
    pub fn global(&self, id: &CStr) -> Option<&CStr> {
        self.globals.get(id.to_bytes()).map(CString::as_c_str)
    }

    /// Adds the facts of another program. A fact that is already known stays.
    pub fn join(&mut self, other: &Self) {
        for (key, rules) in &other.groups {
            self.groups.entry(key.clone()).or_insert(*rules);
        }
        for (key, name) in &other.globals {
            let own = self.globals.entry(key.clone());
            own.or_insert_with(|| name.clone());
        }
    }
}

/// A number of four or eight bytes.
fn number(bytes: &[u8]) -> Option<usize> {
    let short = |bytes: &[u8]| Some(u32::from_ne_bytes(bytes.try_into().ok()?) as usize);
    let long = |bytes: &[u8]| usize::try_from(u64::from_ne_bytes(bytes.try_into().ok()?)).ok();
    short(bytes).or_else(|| long(bytes))
}

//! What a caller sets of a kernel, decoded.

use crate::abi::*;
use crate::hal::KernelExecInfo;
use crate::object::{Error, InfoIn, Result, ensure};

/// The value of `urKernelSetExecInfo`.
pub enum ExecInfo<'a> {
    /// Whether the kernel reaches USM that is not among its arguments.
    IndirectAccess(bool),
    /// Addresses of such USM, as bytes; their number is a multiple of a pointer's size.
    Pointers(&'a [u8]),
    /// The preferred split of the cache, an enumerator that is known.
    Cache(ur_kernel_cache_config_t),
}

impl<'a> ExecInfo<'a> {
    /// `INVALID_SIZE` if the value has the wrong size, `INVALID_ENUMERATION` if it is an unknown split.
    pub fn read(what: KernelExecInfo, value: InfoIn<'a>) -> Result<Self> {
        match what {
            KernelExecInfo::UsmIndirectAccess => {
                Ok(Self::IndirectAccess(value.value::<ur_bool_t>()? != 0))
            }
            KernelExecInfo::UsmPtrs => {
                let whole = value.len().is_multiple_of(size_of::<usize>());
                ensure(whole, UR_RESULT_ERROR_INVALID_SIZE)?;
                Ok(Self::Pointers(value.bytes()))
            }
            KernelExecInfo::CacheConfig => {
                let config = value.value::<ur_kernel_cache_config_t>()?;
                let known = ur_kernel_cache_config_t::ALL.contains(&config);
                let unknown = Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION);
                known.then_some(Self::Cache(config)).ok_or(unknown)
            }
        }
    }
}

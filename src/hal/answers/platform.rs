//! Platforms: properties that most of them answer alike.

use crate::abi::*;
use crate::hal::{Backend, PlatformInfo};
use crate::object::{Error, InfoOut, Result};

/// The pattern of the platform properties that name neither a driver nor its version.
#[macro_export]
macro_rules! plain_platform_info {
    () => {
        $crate::hal::PlatformInfo::Extensions
            | $crate::hal::PlatformInfo::Profile
            | $crate::hal::PlatformInfo::Backend
            | $crate::hal::PlatformInfo::Adapter
    };
}

/// One of the properties of [`plain_platform_info!`](crate::plain_platform_info), for a platform without extensions;
/// `UNSUPPORTED_ENUMERATION` for any other.
pub fn plain_platform_info<B: Backend>(what: PlatformInfo, out: InfoOut<'_>) -> Result<()> {
    match what {
        PlatformInfo::Extensions => out.string(""),
        PlatformInfo::Profile => out.string("FULL_PROFILE"),
        PlatformInfo::Backend => out.value(B::BACKEND),
        PlatformInfo::Adapter => out.handle(B::adapter()?.as_deref()),
        _ => Err(Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION)),
    }
}

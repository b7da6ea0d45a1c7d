//! Native images.

use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Result, ensure};

use crate::context::NativeContext;
use crate::device::Device;
use crate::lz::*;
use crate::platform::Version;

/// Layouts that an old driver takes for others: it reads beyond its table of formats.
const THREE_CHANNELS: [ze_image_format_layout_t; 3] = [
    ZE_IMAGE_FORMAT_LAYOUT_8_8_8,
    ZE_IMAGE_FORMAT_LAYOUT_16_16_16,
    ZE_IMAGE_FORMAT_LAYOUT_32_32_32,
];
/// A version of the interface that has them.
const SINCE: Version = Version::new(1, 12, 0);

/// A native image of a device.
pub struct NativeImage {
    pub raw: ze_image_handle_t,
    context: Arc<NativeContext>,
    /// Whether the drop destroys it: a foreign one may be its maker's.
    own: bool,
}

impl NativeImage {
    /// `UNSUPPORTED_IMAGE_FORMAT` if the device does not have the format.
    pub fn create(
        context: &Arc<NativeContext>,
        device: &Device,
        desc: &ze_image_desc_t,
    ) -> Result<Self> {
        let mut raw = ze_image_handle_t::NULL;
        let is_new = THREE_CHANNELS.contains(&desc.format.layout);
        let known = !is_new || device.platform().version() >= SINCE;
        ensure(known, UR_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT)?;
        // SAFETY: the description has its tag and outlives the call, as its chain does; there is room for the handle.
        let created = unsafe {
            call!(
                context.api,
                zeImageCreate(context.raw, device.raw(), desc, &mut raw)
            )
        };
        created.map_err(|error| refused(error, desc))?;
        Ok(Self::adopt(context, raw, true))
    }

    /// Keeps the image where kernels reach it that have no argument of it.
    pub fn make_resident(&self, device: &Device) -> Result<()> {
        // SAFETY: a live image of the device.
        unsafe {
            call!(
                self.context.api,
                zeContextMakeImageResident(self.context.raw, device.raw(), self.raw)
            )
        }
    }

    /// A foreign image; `own` if this destroys it.
    pub fn adopt(context: &Arc<NativeContext>, raw: ze_image_handle_t, own: bool) -> Self {
        Self {
            raw,
            context: Arc::clone(context),
            own,
        }
    }
}

/// The driver has several codes for a format that a device lacks.
fn refused(error: Error, desc: &ze_image_desc_t) -> Error {
    match error.code() {
        UR_RESULT_ERROR_UNSUPPORTED_FEATURE | UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION => {
            log::debug!("the device has no images of {:?}", desc.format);
            Error::new(UR_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT)
        }
        _ => error,
    }
}

impl Drop for NativeImage {
    fn drop(&mut self) {
        if !self.own || self.context.api.is_torn_down() {
            return;
        }
        // SAFETY: the image is this one's, and its use is over.
        let destroyed = unsafe { call!(self.context.api, zeImageDestroy(self.raw)) };
        if let Err(error) = destroyed {
            log::error!("an image is not destroyed: {:?}", error.code());
        }
    }
}

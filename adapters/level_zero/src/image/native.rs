//! Native images.

use std::sync::Arc;

use ur::object::Result;

use crate::context::NativeContext;
use crate::device::Device;
use crate::lz::*;

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
        // SAFETY: the description has its tag and outlives the call, as its chain does; there is room for the handle.
        unsafe {
            call!(
                context.api,
                zeImageCreate(context.raw, device.raw(), desc, &mut raw)
            )
        }?;
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

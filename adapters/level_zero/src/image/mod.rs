//! Images of the driver.
//!
//! | module | owns |
//! |---|---|
//! | `format` | formats and descriptions as the driver has them |
//! | `native` | native images |
//! | `copy` | the driver's calls for copies of boxes |
//! | `places` | an image's native images on the devices of a context |
//!
//! Uses `lz`, contexts and devices. Must never know a handle of Unified Runtime.

mod copy;
mod format;
mod native;
mod places;

pub use copy::{ImageCopy, ImagePart, between, transfer};
pub use format::described;
pub use native::NativeImage;
pub use places::Places;

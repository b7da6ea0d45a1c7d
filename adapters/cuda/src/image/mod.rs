//! Images of the driver: arrays, mipmapped arrays, and the textures and surfaces over them.
//!
//! | module | owns |
//! |---|---|
//! | `format` | formats and shapes as the driver describes them |
//! | `array` | arrays and mipmapped arrays |
//! | `object` | textures and surfaces |
//! | `arrays` | an image's arrays on the devices of a context |
//!
//! Uses `cu` and a device's primary context. Must never know a handle of Unified Runtime.

mod array;
mod arrays;
mod format;
mod object;

pub use array::{Array, Mipmap};
pub use arrays::{Arrays, Placed};
pub use format::{Shape, Texel};
pub use object::{Resource, Surface, Texture};

//! Answers that backends give alike, each written once.
//!
//! Some are default bodies of the traits (scripts/src/generate/hal/traits.rs names those). An adapter calls the others
//! from its own `get_info`, and states there only its differences. Uses `object` and `abi`; knows no backend.

mod adapter;
mod bindless;
mod device;
mod image;
mod kernel;
mod mem;
mod platform;
mod program;

pub use adapter::{adapter_info, last_driver_error, set_logger_and_level};
pub use bindless::{
    ImageRole, LinearRows, check_samples, coordinates, file_descriptor, mip_levels,
};
pub use device::{
    binary_for, global_timestamps, list_devices, no_binary, no_compiler_option, no_peer_access,
};
pub use image::{
    ImageBox, ImageEnd, ImagePitch, ImageShape, channel_bytes, channels, image_boxes, image_info,
    pixel_bytes,
};
pub use kernel::ExecInfo;
pub use mem::{BufferPart, WholeBuffer, access_of, buffer_flags, mem_info, physical_mem_info};
pub use platform::plain_platform_info;
pub use program::{Build, ProgramPart, program_info};

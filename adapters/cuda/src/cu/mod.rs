//! The CUDA driver: its functions as found at run time, its errors, and the current context.
//! Knows the driver's interface and no object of Unified Runtime.

mod api;
mod capture;
mod current;
mod error;
mod launch;

pub use api::{
    Api, Code, ExternalMemories, ExternalSemaphores, Graphing, Imaging, Paging, Pooling, Sharing,
};
pub use capture::{RELAXED, RelaxedCapture, is_capturable, is_captured};
pub use cudarc::driver::sys;
pub use current::{Entered, anywhere, current, is_default, is_final, on_stream};
pub use error::{check, failure, failure_at, home};
pub use launch::{LAUNCH, launch_of};

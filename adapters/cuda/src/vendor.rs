//! The seam between the modules that HIP will share and the driver: neutral names of its types, its
//! functions, its errors and the current context.
//!
//! Shared modules name the driver through this module alone (`cargo xtask tidy` checks it). `src/gpu`
//! will hold them over a vendor trait in this module's place. HIP has the same handles, and the calls
//! made with them have the same signatures. The files' heads in `cu` own the rules of each item.

pub use crate::cu::sys::{
    CUcontext as RawContext, CUdevice as Ordinal, CUevent as RawEvent, CUmemAccess_flags as Access,
    CUstream as RawStream,
};
pub use crate::cu::{
    Api, Code, Entered, LAUNCH, RELAXED, RelaxedCapture, anywhere, check, failure_at,
    is_capturable, is_captured, is_default, is_final, on_stream,
};

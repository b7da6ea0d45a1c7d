//! OpenCL itself: its functions as found at run time, its objects with their reference counts, and
//! its errors. Knows the driver's interface and no Unified Runtime object.

mod api;
mod error;
mod handle;
mod query;

pub use api::{Api, Core, SuggestedSize};
pub use error::{check, failure};
pub use handle::{ContextRef, EventRef, KernelRef, MemRef, ProgramRef, QueueRef, SamplerRef};
pub use query::{Version, list, text, value};

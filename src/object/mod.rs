//! Handles and the C boundary.

pub mod log;

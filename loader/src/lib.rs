//! `libur_loader.so.0`: finds adapter libraries and dispatches every call to the one that a handle
//! belongs to.
//!
//! May use `ur::abi`, `ur::object` and `ur::dl` only; knows no adapter beyond its library's name.
//!
//! ```text
//! exports ──> the application's table ──> layers ──> dispatch, adapters, compat ──> adapter
//!                     state
//! ```
//!
//! `state` loads what `discovery` plans through `library`; `config` is asked first. `selected` puts
//! `selector` to work over the same table that applications call.

pub mod adapters;
pub mod compat;
pub mod config;
pub mod discovery;
pub mod dispatch;
mod entry;
pub mod exports;
#[rustfmt::skip]
mod generated;
pub mod layers;
pub mod library;
mod printers;
pub mod selected;
pub mod selector;
pub mod state;

//! `libur_loader.so.0`: finds adapter libraries and dispatches each call to the adapter that owns
//! the handle.
//!
//! May use `ur::abi`, `ur::object`, `ur::dl` and, in the layer that finds races, `ur::timeline`. It
//! knows an adapter only by its library's name.
//!
//! ```text
//! exports ──> the application's table ──> layers ──> dispatch, adapters, compat ──> adapter
//!                     state
//! ```
//!
//! `state` reads `config`, loads the libraries that `discovery` plans through `library`, and
//! publishes the application's table. `selected` applies the device selector of `selector` through
//! that table.

pub mod adapters;
pub mod compat;
pub mod config;
pub mod discovery;
pub mod dispatch;
mod entry;
pub mod exports;
pub mod layers;
pub mod library;
mod printers;
pub mod selected;
pub mod selector;
pub mod state;

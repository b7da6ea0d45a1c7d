//! Unified Runtime: the layers that the loader and every adapter share.
//!
//! Imports only go down this list (a tidy check enforces it): `stream`, `hal`, `pool`, `ipc`, `timeline`, `sync`,
//! `dl`, `object`, `abi`. See ARCHITECTURE.md for the map.

#[macro_use]
pub mod abi;
pub mod dl;
pub mod hal;
pub mod ipc;
pub mod object;
pub mod pool;
pub mod stream;
pub mod sync;
pub mod timeline;

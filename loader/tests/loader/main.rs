//! The loader as an application uses it: `libur_loader.so`, opened by path, over small C adapters.
//!
//! The environment is read at initialisation, so that each scenario runs in its own process: an
//! ignored test that [`common::child`] runs.

mod application;
mod common;
mod compat;
mod discovery;
mod exports;
mod layers;
mod life;
mod selection;
mod sweep;
mod tracing;

//! The loader as applications meet it: `libur_loader.so`, opened by path, with small C adapters.
//!
//! The environment is read when the loader is initialised, so that each scenario runs in a process
//! of its own: a test that is otherwise ignored, run by [`common::child`].

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

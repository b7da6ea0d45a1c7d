//! The C ABI of Level Zero: types, function pointers, and the tables between loader and driver.
//!
//! Generated from scripts/abi/level_zero.json, which holds facts of Debian's headers: `types`, `functions`,
//! `tables`. By hand: `define`, the macros that their rows are given to. Holds no library and calls nothing. The
//! adapter calls the functions; the scripted driver is called by them.
//!
//! Enums are transparent integers, handles are pointers with a type, and `bool` is a byte, so that no value that a
//! driver returns is undefined behaviour. Versions 1.4 to 1.17 differ in additions only, so one set of definitions
//! serves every loader.
//!
//! The core interface (`ze*`, `zer*`) is here without ray tracing and fabric; of the system interface (`zes*`) and
//! the loader's own (`zel*`), only what the adapter calls.

#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]

mod define;
#[macro_use]
#[rustfmt::skip]
#[path = "generated/functions.rs"]
mod functions;
#[macro_use]
#[rustfmt::skip]
#[path = "generated/tables.rs"]
mod tables;
#[rustfmt::skip]
#[path = "generated/types.rs"]
mod types;

pub mod ddi;
pub mod pfn;

pub use define::Tagged;
pub use types::*;

#[cfg(test)]
mod tests;

//! Tests of the adapter through its own table, over the scripted OpenCL of `scripted/`. They need no
//! driver, and any call of OpenCL may fail.
//!
//! `fake_driver` opens the library and runs each test in its own process, since an adapter looks for
//! OpenCL once. `workload` calls a part of each function group.

mod at_once;
mod discovery;
mod errors;
mod failures;
mod fake_driver;
mod faults;
mod handles;
mod pipes;
mod workload;

//! Tests of the adapter through its own table, over the fake OpenCL library of `scripted/`.
//!
//! No driver is needed, and any call of OpenCL may fail. `fake_driver` opens the library and runs tests in
//! processes of their own, since an adapter looks for OpenCL once. `workload` uses a part of everything that
//! a client uses.

mod at_once;
mod discovery;
mod errors;
mod failures;
mod fake_driver;
mod faults;
mod handles;
mod pipes;
mod workload;

//! The adapter through its own table, over the scripted OpenCL of `scripted/`: no driver is needed,
//! and any call of OpenCL's may fail.
//!
//! `fake_driver` opens the library and runs tests in processes of their own, since an adapter looks for
//! OpenCL once; `workload` is a piece of everything that a client does.

mod at_once;
mod discovery;
mod errors;
mod failures;
mod fake_driver;
mod faults;
mod handles;
mod pipes;
mod workload;

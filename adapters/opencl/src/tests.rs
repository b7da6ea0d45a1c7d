//! The adapter through its own table, over the scripted OpenCL of `scripted/`: no driver is needed,
//! and any call of OpenCL's may fail.
//!
//! `stage` opens the library and runs tests in processes of their own, since an adapter looks for
//! OpenCL once; `scene` is a piece of everything that a client does.

mod at_once;
mod discovery;
mod errors;
mod failures;
mod faults;
mod handles;
mod pipes;
mod scene;
mod stage;

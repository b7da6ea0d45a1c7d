//! Tests of the adapter through its own table, over the driver of `scripted/`, whose calls fail by a script.
//!
//! No GPU is needed, and no OpenCL driver: without one a launch does nothing. `fake_driver` opens the library and runs
//! tests in processes of their own, since an adapter looks for its driver once. `workload` uses a part of everything
//! that a client uses.
//!
//! | module | tests |
//! |---|---|
//! | `faults` | each call of the driver failing once, by its name |
//! | `absent` | each optional function and extension absent |
//! | `lost` | the device lost at any call, and one device of several |
//! | `batches` | when a batch of commands is submitted, and what becomes of one whose submission fails |
//! | `images` | images and samplers |
//! | `bindless` | bindless images, memory and semaphores of other interfaces |
//! | `mipmaps` | mipmaps and their levels |
//! | `pages` | pools with device memory in pages |
//! | `queries` | queries of which the driver fails a call |
//! | `random` | random programs, with and without failures |
//! | `released` | what programs release while commands use it |
//! | `reported` | faults that users of Intel's adapter reported |
//! | `slices` | the compute slices of tiles |
//! | `variables` | variables that users set for Intel's adapters |

mod absent;
mod batches;
mod bindless;
mod fake_driver;
mod faults;
mod images;
mod lost;
mod mipmaps;
mod pages;
mod queries;
mod random;
mod released;
mod reported;
mod slices;
mod spirv;
mod variables;
mod workload;

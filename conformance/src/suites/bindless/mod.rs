//! Bindless images: image memory, handles of images, copies, and memory and semaphores of other interfaces.
//!
//! | module | tests |
//! |---|---|
//! | `memory` | allocation, levels of mipmaps, properties, and what a device says that it supports |
//! | `copies` | copies between linear memory and image memory, their regions and their order |
//! | `handles` | handles of sampled and unsampled images |
//! | `pitched` | linear memory with padded rows |
//! | `kernels` | kernels that read and write images |
//! | `external` | imported memory |
//! | `semaphores` | imported semaphores |
//!
//! `makers` has the interfaces that make semaphores, `objects` has image memory and handles that end by themselves.

mod copies;
mod external;
mod handles;
mod kernels;
mod makers;
mod memory;
mod objects;
mod pitched;
mod semaphores;

use crate::registry::Test;

pub use external::export;

pub fn all() -> Vec<Test> {
    let modules = [
        memory::all,
        copies::all,
        handles::all,
        pitched::all,
        kernels::all,
        external::all,
        semaphores::all,
    ];
    modules.into_iter().flat_map(|module| module()).collect()
}

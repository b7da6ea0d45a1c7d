//! Objects of the interface that release themselves, and the calls that most tests make on them.
//!
//! A release that fails is recorded here, and the test in which it happened fails.

mod async_alloc;
mod command_buffer;
mod context;
mod event;
mod graph;
pub mod image;
pub mod info;
mod memory;
mod program;
mod queue;
mod usm;

pub use async_alloc::{Block, Limits, Pool};
pub use command_buffer::{Appended, CommandBuffer, Shape, Update, With};
pub use context::Context;
pub use event::{Event, WaitList};
pub use graph::{Executable, Graph, captures};
pub use image::{Image, Sampler};
pub use memory::Buffer;
pub use program::{Arg, Kernel, Program};
pub use queue::{Gate, Queue};
pub use usm::{Kind, Usm, alloc_info};

use crate::status::Status;
use std::sync::{Mutex, PoisonError};

static FAILED_ELSEWHERE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records a failure that the function of the test does not return.
pub fn failed_elsewhere(message: String) {
    let mut failed = FAILED_ELSEWHERE
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    failed.push(message);
}

/// Records a release that was refused.
pub fn released(status: Status) {
    if !status.is_ok() {
        failed_elsewhere(format!("on release: {status}"));
    }
}

/// Takes the failures recorded since the last call.
pub fn take_failed_elsewhere() -> Vec<String> {
    std::mem::take(
        &mut FAILED_ELSEWHERE
            .lock()
            .unwrap_or_else(PoisonError::into_inner),
    )
}

/// A struct of one handle and its loader, released on drop.
macro_rules! owned {
    ($(#[$doc:meta])* $name:ident, $raw:ty, $retain:ident, $release:ident) => {
        $(#[$doc])*
        pub struct $name {
            pub ur: &'static crate::api::Api,
            pub raw: $raw,
        }

        // SAFETY: the interface lets any thread use its objects. Only the last release must not race with
        // other uses, which Rust's ownership ensures.
        unsafe impl Send for $name {}
        // SAFETY: the interface lets any thread use its objects. Only the last release must not race with
        // other uses, which Rust's ownership ensures.
        unsafe impl Sync for $name {}

        impl $name {
            /// Takes over one reference to a handle.
            pub fn adopt(ur: &'static crate::api::Api, raw: $raw) -> Self {
                Self { ur, raw }
            }

            /// A second owner, with a reference of its own.
            #[allow(dead_code)]
            pub fn share(&self) -> Result<Self, crate::outcome::Stop> {
                self.ur.$retain(self.raw).ok()?;
                Ok(Self { ur: self.ur, raw: self.raw })
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                if !self.raw.is_null() {
                    crate::objects::released(self.ur.$release(self.raw));
                }
            }
        }
    };
}
use owned;

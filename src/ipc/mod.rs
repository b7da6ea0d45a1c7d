//! Objects of one process that another one opens.
//!
//! A process gets a blob of bytes for an object and sends it to another process, which opens the object. `blob` is its
//! format. What crosses as file descriptors is named by the blob and sent by a service of the process that made it
//! (`broker`). [`Given`] has the blobs that a context has given out.
//!
//! Uses `sync`, `object` and `abi`. Must never know a backend: it makes the descriptors, and objects of them.

pub mod blob;
pub mod broker;
mod page;

pub use page::{SharedPage, duplicate};

use crate::abi::UR_RESULT_ERROR_INVALID_VALUE;
use crate::object::{Result, ensure};
use crate::sync::Mutex;
use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::c_void;

/// The blobs of a context, by their addresses. They end with it.
#[derive(Default)]
pub struct Given(Mutex<BTreeMap<usize, Blob>>);

struct Blob {
    kind: blob::Kind,
    #[expect(dead_code, reason = "kept for the caller, who has its address")]
    bytes: Box<[u8]>,
    #[expect(dead_code, reason = "kept until the blob is given back")]
    keeps: Box<dyn Any + Send + Sync>,
}

impl Given {
    /// Keeps a blob, and what it needs until it is given back. Returns its address and its size in bytes.
    pub fn give(
        &self,
        kind: blob::Kind,
        bytes: Box<[u8]>,
        keeps: impl Any + Send + Sync,
    ) -> (*mut c_void, usize) {
        let (at, size) = (bytes.as_ptr().cast_mut(), bytes.len());
        let keeps = Box::new(keeps);
        #[rustfmt::skip]
        self.0.lock().insert(at.addr(), Blob { kind, bytes, keeps });
        (at.cast(), size)
    }

    /// Lets other processes open an object, by a blob.
    pub fn publish(
        &self,
        kind: blob::Kind,
        export: broker::Export,
    ) -> Result<(*mut c_void, usize)> {
        let (published, name) = broker::publish(export)?;
        Ok(self.give(kind, name.write(kind), published))
    }

    /// Ends a blob. `INVALID_VALUE` if there is no such blob.
    pub fn put(&self, data: *const c_void, kind: blob::Kind) -> Result<()> {
        let mut all = self.0.lock();
        let own = all.get(&data.addr()).is_some_and(|own| own.kind == kind);
        ensure(own, UR_RESULT_ERROR_INVALID_VALUE)?;
        let ended = all.remove(&data.addr());
        drop(all);
        // An export ends without the lock: it may wait for the service to end.
        drop(ended);
        Ok(())
    }
}

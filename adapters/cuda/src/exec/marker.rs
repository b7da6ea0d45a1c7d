//! What can be waited for, and the points of it that the host signals.

use std::sync::Arc;

use ur::object::{Error, Result};
use ur::stream;

use super::gpu::Gpu;
use super::lane::Stream;
use super::words::Word;

pub type Marker = stream::Marker<Stream>;

pub type Signal = stream::Signal<Stream>;

/// What a stream watches that waits for the host by itself.
pub struct Point {
    gpu: Arc<Gpu>,
    pub word: Word,
}

impl Drop for Point {
    fn drop(&mut self) {
        self.gpu.words.give(self.word);
    }
}

/// A new point, and the means to signal it.
pub fn host_point(gpu: &Arc<Gpu>) -> Result<(Marker, Signal)> {
    gpu.api.cuStreamWaitValue32.ok_or(Error::unsupported())?;
    let _current = gpu.enter()?;
    let gpu = Arc::clone(gpu);
    let word = gpu.words.take(gpu.api)?;
    Ok(Marker::host(Point { gpu, word }))
}

//! What can be waited for, and the points of it that the host signals.

use std::sync::{Arc, OnceLock};

use ur::object::{Error, Result};
use ur::stream;

use super::gpu::{Event, Gpu};
use super::lane::Stream;
use super::semaphore_words::SemaphoreWord;

pub type Marker = stream::Marker<Stream>;

pub type Signal = stream::Signal<Stream>;

/// What a stream watches that waits for the host by itself.
pub struct Point {
    gpu: Arc<Gpu>,
    pub word: SemaphoreWord,
    /// What the driver knows it by, once that was asked for.
    event: OnceLock<Event>,
}

impl Point {
    /// An event of the driver's that is complete, for a point that is.
    pub fn complete_event(&self) -> Result<&Event> {
        if let Some(event) = self.event.get() {
            return Ok(event);
        }
        let event = self.gpu.complete_event()?;
        Ok(self.event.get_or_init(|| event))
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        self.gpu.semaphore_words.release(self.word);
    }
}

/// A new point, and the means to signal it.
pub fn host_point(gpu: &Arc<Gpu>) -> Result<(Marker, Signal)> {
    gpu.api.cuStreamWaitValue32.ok_or(Error::unsupported())?;
    let _current = gpu.enter()?;
    let gpu = Arc::clone(gpu);
    let word = gpu.semaphore_words.acquire(gpu.api)?;
    let event = OnceLock::new();
    Ok(Marker::host(Point { gpu, word, event }))
}

//! A device's primary context while it is retained, and what is pooled in it.

use std::ffi::c_uint;
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

use ur::object::Result;
use ur::timeline::sync::Mutex;

use super::fill::Fills;
use super::memory::Pages;
use super::posts::Boards;
use super::times::Clock;
use super::words::Words;
use crate::cu::sys::{CUcontext, CUdevice, CUevent, CUstream};
use crate::cu::{Api, Code, Entered, anywhere, check, failure_at, on_stream};

/// The primary context, which all contexts of ours over the device share, as does the application's
/// own use of CUDA. Retained when first needed, released with the last that uses it.
pub struct Gpu {
    pub api: &'static Api,
    pub device: CUdevice,
    context: CUcontext,
    events: Spare,
    pub(super) timed: Spare,
    pub(super) words: Words,
    pub(super) clock: Clock,
    pub(super) fills: OnceLock<Fills>,
    pub(super) boards: Boards,
    /// For what must be done at once. Held while it is.
    errands: Mutex<Option<Errands>>,
    /// The device's pages, and the host's.
    pub pages: Option<Pages>,
    pub host_pages: Option<Pages>,
    /// Bytes of the largest pages of the device's.
    pub largest_page: usize,
}

// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

struct Errands(CUstream);

// SAFETY: as above.
unsafe impl Send for Errands {}

/// Events that nobody uses.
#[derive(Default)]
pub(super) struct Spare(Mutex<Vec<usize>>);

impl Spare {
    fn take(&self) -> Option<CUevent> {
        let mut all = self.0.lock();
        all.pop().map(std::ptr::with_exposed_provenance_mut)
    }

    pub(super) fn give(&self, event: CUevent) {
        let mut all = self.0.lock();
        all.push(event.expose_provenance());
    }
}

impl Gpu {
    pub fn retain(api: &'static Api, device: CUdevice) -> Result<Arc<Self>> {
        let mut context = null_mut();
        // SAFETY: room for one handle.
        let code = unsafe { (api.cuDevicePrimaryCtxRetain)(&mut context, device) };
        check(api, code, "cuDevicePrimaryCtxRetain")?;
        let pages = Pages::of_device(api, device);
        let host_pages = pages.and_then(|like| Pages::of_host(api, device, &like));
        Ok(Arc::new(Self {
            api,
            device,
            context,
            events: Spare::default(),
            timed: Spare::default(),
            words: Words::default(),
            clock: Clock::default(),
            fills: OnceLock::new(),
            boards: Boards::default(),
            errands: Mutex::default(),
            pages,
            host_pages,
            largest_page: pages.map_or(0, |pages| pages.largest(api, device)),
        }))
    }

    pub fn context(&self) -> CUcontext {
        self.context
    }

    /// Makes the context current on this thread.
    #[inline]
    pub fn enter(&self) -> Result<Entered<'static>> {
        Entered::new(self.api, self.context)
    }

    /// As [`Gpu::enter`], for a function that may make another context current.
    pub fn enter_for_user(&self) -> Result<Entered<'static>> {
        Entered::on_top(self.api, self.context)
    }

    pub fn check(&self, code: crate::cu::Code, call: &str) -> Result<()> {
        check(self.api, code, call)
    }

    /// As [`Gpu::check`], of a call that was given these addresses.
    #[inline]
    pub fn check_at(&self, code: Code, call: &str, addrs: &[usize]) -> Result<()> {
        match code.is_success() {
            true => Ok(()),
            false => Err(failure_at(self.api, code, call, self.device, addrs)),
        }
    }

    /// An event that nobody uses.
    pub fn event(self: &Arc<Self>, timed: bool) -> Result<Event> {
        let spare = if timed { &self.timed } else { &self.events };
        if let Some(raw) = spare.take() {
            return Ok(Event::new(self, raw, Owner::Pool { timed }));
        }
        self.new_event(timed)
    }

    /// An event that is complete: one that was never recorded.
    pub fn complete_event(self: &Arc<Self>) -> Result<Event> {
        self.new_event(false)
    }

    fn new_event(self: &Arc<Self>, timed: bool) -> Result<Event> {
        let _current = self.enter()?;
        // `CU_EVENT_DISABLE_TIMING`
        let flags: c_uint = if timed { 0 } else { 2 };
        let mut raw = null_mut();
        // SAFETY: room for one handle.
        let code = unsafe { (self.api.cuEventCreate)(&mut raw, flags) };
        self.check(code, "cuEventCreate")?;
        Ok(Event::new(self, raw, Owner::Pool { timed }))
    }

    /// Does something on a stream of ours and waits for it. The context is current for it.
    pub fn at_once(&self, give: impl FnOnce(CUstream) -> Result<()>) -> Result<()> {
        let _current = self.enter()?;
        let mut errands = self.errands.lock();
        let stream = match &*errands {
            Some(Errands(stream)) => *stream,
            None => {
                let mut stream = null_mut();
                // SAFETY: room for one handle; 1 is `CU_STREAM_NON_BLOCKING`.
                let code = unsafe { (self.api.cuStreamCreateWithPriority)(&mut stream, 1, 0) };
                self.check(code, "cuStreamCreateWithPriority")?;
                *errands = Some(Errands(stream));
                stream
            }
        };
        give(stream)?;
        // SAFETY: a live stream.
        let code = unsafe { (self.api.cuStreamSynchronize)(stream) };
        self.check(code, "cuStreamSynchronize")
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if let Ok(_current) = self.enter() {
            self.clock.close(self.api);
            for spare in [&self.events, &self.timed] {
                while let Some(event) = spare.take() {
                    // SAFETY: an event of ours that nobody uses.
                    unsafe { (self.api.cuEventDestroy)(event) };
                }
            }
            let errands = self.errands.get_mut();
            if let Some(Errands(stream)) = errands.take() {
                // SAFETY: a stream of ours that is idle.
                unsafe { (self.api.cuStreamDestroy)(stream) };
            }
            self.words.close(self.api);
            self.boards.close(self.api);
            if let Some(fills) = self.fills.take() {
                fills.unload(self.api);
            }
        }
        // SAFETY: retained once.
        let code = unsafe { (self.api.cuDevicePrimaryCtxRelease)(self.device) };
        if !code.is_success() {
            log::debug!("cuDevicePrimaryCtxRelease failed with {}", code.0);
        }
    }
}

/// One of the driver's events.
pub struct Event {
    gpu: Arc<Gpu>,
    raw: CUevent,
    owner: Owner,
}

#[derive(Clone, Copy)]
enum Owner {
    /// Goes back there. Recorded anew, it means something else only to those who ask later.
    Pool {
        timed: bool,
    },
    /// Handed to us, to be destroyed.
    Us,
    User,
}

// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    fn new(gpu: &Arc<Gpu>, raw: CUevent, owner: Owner) -> Self {
        Self {
            gpu: Arc::clone(gpu),
            raw,
            owner,
        }
    }

    /// An event that others made; `owned` if it is ours now.
    pub fn adopt(gpu: &Arc<Gpu>, raw: CUevent, owned: bool) -> Self {
        Self::new(gpu, raw, if owned { Owner::Us } else { Owner::User })
    }

    /// The event without its place in the pool.
    pub(super) fn into_raw(self) -> CUevent {
        let own = std::mem::ManuallyDrop::new(self);
        // SAFETY: read once, in place of being dropped.
        drop(unsafe { std::ptr::read(&own.gpu) });
        own.raw
    }

    pub fn raw(&self) -> CUevent {
        self.raw
    }

    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Records what the stream was given so far, which is of the same context.
    pub fn record(&self, stream: CUstream) -> Result<()> {
        let gpu = &self.gpu;
        let code = on_stream(gpu.api, gpu.context, stream, || {
            // SAFETY: a live event and stream.
            unsafe { (gpu.api.cuEventRecord)(self.raw, stream) }
        });
        gpu.check(code, "cuEventRecord")
    }

    pub fn is_done(&self) -> Result<bool> {
        let gpu = &self.gpu;
        let code = anywhere(gpu.api, gpu.context, || {
            // SAFETY: a live event.
            unsafe { (gpu.api.cuEventQuery)(self.raw) }
        });
        match code {
            Code::NOT_READY => Ok(false),
            code => gpu.check(code, "cuEventQuery").map(|()| true),
        }
    }

    pub fn block(&self) -> Result<()> {
        let gpu = &self.gpu;
        let code = anywhere(gpu.api, gpu.context, || {
            // SAFETY: a live event.
            unsafe { (gpu.api.cuEventSynchronize)(self.raw) }
        });
        gpu.check(code, "cuEventSynchronize")
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        match self.owner {
            Owner::Pool { timed: true } => self.gpu.timed.give(self.raw),
            Owner::Pool { timed: false } => self.gpu.events.give(self.raw),
            Owner::Us => {
                if let Ok(_current) = self.gpu.enter() {
                    // SAFETY: handed to us, and used by nobody any more.
                    unsafe { (self.gpu.api.cuEventDestroy)(self.raw) };
                }
            }
            Owner::User => {}
        }
    }
}

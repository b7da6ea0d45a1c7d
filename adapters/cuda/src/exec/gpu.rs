//! A device's primary context while it is retained, with its caches: events, semaphore words, mailboxes,
//! the kernels of fills, and a utility stream.

use std::ffi::c_uint;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use ur::object::Result;
use ur::sync::Mutex;

use super::fill::Fills;
use super::mailbox::Mailboxes;
use super::memory::Pages;
use super::peers::Peers;
use super::remote::Helpers;
use super::semaphore_words::SemaphoreWords;
use super::times::Clock;
use crate::vendor::{
    Api, Code, Entered, Ordinal, RawContext, RawEvent, RawStream, RelaxedCapture, anywhere, check,
    failure_at, on_stream,
};

/// A device's primary context. All contexts of the adapter on the device share it with the application's
/// own use of CUDA. It is retained at first use and released with its last user.
pub struct Gpu {
    pub api: &'static Api,
    pub device: Ordinal,
    context: RawContext,
    events: Spare,
    pub(super) timed: Spare,
    pub(super) semaphore_words: SemaphoreWords,
    pub(super) clock: Clock,
    pub(super) fills: OnceLock<Fills>,
    pub(super) mailboxes: Mailboxes,
    /// The stream of calls that the host waits for. Locked during a call.
    utility_stream: Mutex<Option<UtilityStream>>,
    /// The device's pages, and the host's.
    pub pages: Option<Pages>,
    pub host_pages: Option<Pages>,
    /// Bytes of the largest page of the device.
    pub largest_page: usize,
    /// The access of other devices to this one's memory.
    pub(super) peers: Peers,
    /// Streams of other devices, for commands of this one's streams.
    pub(super) helpers: Helpers,
}

// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for Gpu {}
// SAFETY: the driver's objects may be used from any thread.
unsafe impl Sync for Gpu {}

/// The retained contexts. Locked within the lock of a device, under which no ranked lock is taken.
static LIVE: std::sync::Mutex<Vec<Weak<Gpu>>> = std::sync::Mutex::new(Vec::new());

fn live() -> std::sync::MutexGuard<'static, Vec<Weak<Gpu>>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there were several at the last retain.
static SEVERAL: AtomicBool = AtomicBool::new(false);

struct UtilityStream(RawStream);

// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for UtilityStream {}

/// Unused events.
#[derive(Default)]
pub(super) struct Spare(Mutex<Vec<usize>>);

impl Spare {
    fn acquire(&self) -> Option<RawEvent> {
        let mut all = self.0.lock();
        all.pop().map(std::ptr::with_exposed_provenance_mut)
    }

    pub(super) fn release(&self, event: RawEvent) {
        let mut all = self.0.lock();
        all.push(event.expose_provenance());
    }
}

impl Gpu {
    pub fn retain(api: &'static Api, device: Ordinal) -> Result<Arc<Self>> {
        let mut context = null_mut();
        // SAFETY: `raw` is writable.
        let code = unsafe { (api.cuDevicePrimaryCtxRetain)(&mut context, device) };
        check(api, code, "cuDevicePrimaryCtxRetain")?;
        let pages = Pages::of_device(api, device);
        let host_pages = pages.and_then(|like| Pages::of_host(api, device, &like));
        let pages = match crate::sharing::is_wanted() {
            true => pages.map(|pages| pages.to_share(api, device)),
            false => pages,
        };
        let gpu = Arc::new(Self {
            api,
            device,
            context,
            events: Spare::default(),
            timed: Spare::default(),
            semaphore_words: SemaphoreWords::default(),
            clock: Clock::default(),
            fills: OnceLock::new(),
            mailboxes: Mailboxes::default(),
            utility_stream: Mutex::default(),
            pages,
            host_pages,
            largest_page: pages.map_or(0, |pages| pages.largest(api, device)),
            peers: Peers::of(api, device),
            helpers: Helpers::default(),
        });
        let mut live = live();
        live.retain(|gpu| gpu.strong_count() > 0);
        live.push(Arc::downgrade(&gpu));
        SEVERAL.store(live.len() > 1, Ordering::Relaxed);
        drop(live);
        Ok(gpu)
    }

    /// The retained context of a device.
    pub fn of(device: Ordinal) -> Option<Arc<Self>> {
        // A reference may be the last one, and its drop takes locks.
        let live: Vec<_> = live().iter().filter_map(Weak::upgrade).collect();
        live.into_iter().rev().find(|gpu| gpu.device == device)
    }

    /// Whether the process has contexts of several devices.
    pub fn is_one_of_several() -> bool {
        SEVERAL.load(Ordering::Relaxed)
    }

    pub fn context(&self) -> RawContext {
        self.context
    }

    /// Makes the context current on this thread.
    #[inline]
    pub fn enter(&self) -> Result<Entered<'static>> {
        Entered::new(self.api, self.context)
    }

    /// [`Gpu::enter`] for a function that may make another context current.
    pub fn enter_for_user(&self) -> Result<Entered<'static>> {
        Entered::on_top(self.api, self.context)
    }

    pub fn check(&self, code: Code, call: &str) -> Result<()> {
        check(self.api, code, call)
    }

    /// [`Gpu::check`] of a call with these addresses.
    #[inline]
    pub fn check_at(&self, code: Code, call: &str, addrs: &[usize]) -> Result<()> {
        match code.is_success() {
            true => Ok(()),
            false => Err(failure_at(self.api, code, call, self.device, addrs)),
        }
    }

    /// An unused event, with a time if `timed`.
    pub fn event(self: &Arc<Self>, timed: bool) -> Result<Event> {
        let spare = if timed { &self.timed } else { &self.events };
        if let Some(raw) = spare.acquire() {
            return Ok(Event::new(self, raw, Owner::Pool { timed }));
        }
        self.new_event(timed)
    }

    /// An event that is complete: one that was never recorded.
    pub fn complete_event(self: &Arc<Self>) -> Result<Event> {
        self.new_event(false)
    }

    fn new_event(self: &Arc<Self>, timed: bool) -> Result<Event> {
        // `CU_EVENT_DISABLE_TIMING`
        let flags: c_uint = if timed { 0 } else { 2 };
        self.create_event(flags, Owner::Pool { timed })
    }

    fn create_event(self: &Arc<Self>, flags: c_uint, owner: Owner) -> Result<Event> {
        let _current = self.enter()?;
        let mut raw = null_mut();
        // SAFETY: room for one handle.
        let code = unsafe { (self.api.cuEventCreate)(&mut raw, flags) };
        self.check(code, "cuEventCreate")?;
        Ok(Event::new(self, raw, owner))
    }

    /// Whether other processes can open the device's memory.
    pub fn shares_memory(&self) -> bool {
        self.pages.is_some_and(|pages| pages.sharing.is_some())
    }

    /// An event that other processes can open. It is destroyed with its last user.
    pub fn shared_event(self: &Arc<Self>) -> Result<Event> {
        // `CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING`: the driver shares no events with times.
        self.create_event(6, Owner::Us)
    }

    /// Calls `run` with the utility stream and the context current, then waits for the stream.
    pub fn at_once(&self, run: impl FnOnce(RawStream) -> Result<()>) -> Result<()> {
        let _current = self.enter()?;
        let _relaxed = RelaxedCapture::new(self.api);
        let mut utility_stream = self.utility_stream.lock();
        let stream = match &*utility_stream {
            Some(UtilityStream(stream)) => *stream,
            None => {
                let mut stream = null_mut();
                // SAFETY: `stream` is writable; 1 is `CU_STREAM_NON_BLOCKING`.
                let code = unsafe { (self.api.cuStreamCreateWithPriority)(&mut stream, 1, 0) };
                self.check(code, "cuStreamCreateWithPriority")?;
                *utility_stream = Some(UtilityStream(stream));
                stream
            }
        };
        run(stream)?;
        // SAFETY: `utility_stream` keeps the stream alive.
        let code = unsafe { (self.api.cuStreamSynchronize)(stream) };
        self.check(code, "cuStreamSynchronize")
    }
}

impl Gpu {
    /// Calls `run` with a new stream and the context current, then waits for the stream. `run` may take locks.
    pub fn on_new_stream(&self, run: impl FnOnce(RawStream) -> Result<()>) -> Result<()> {
        let _current = self.enter()?;
        let _relaxed = RelaxedCapture::new(self.api);
        let mut stream = null_mut();
        // SAFETY: `stream` is writable; 1 is `CU_STREAM_NON_BLOCKING`.
        let code = unsafe { (self.api.cuStreamCreateWithPriority)(&mut stream, 1, 0) };
        self.check(code, "cuStreamCreateWithPriority")?;
        let done = run(stream).and_then(|()| {
            // SAFETY: the stream was made here.
            let code = unsafe { (self.api.cuStreamSynchronize)(stream) };
            self.check(code, "cuStreamSynchronize")
        });
        // SAFETY: the stream was made here. The driver still runs its pending work.
        unsafe { (self.api.cuStreamDestroy)(stream) };
        done
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if let Ok(_current) = self.enter() {
            self.clock.close(self.api);
            for spare in [&self.events, &self.timed] {
                while let Some(event) = spare.acquire() {
                    // SAFETY: a spare event has no user.
                    unsafe { (self.api.cuEventDestroy)(event) };
                }
            }
            let utility_stream = self.utility_stream.get_mut();
            if let Some(UtilityStream(stream)) = utility_stream.take() {
                // SAFETY: `self` owns the stream, and each call waited for it.
                unsafe { (self.api.cuStreamDestroy)(stream) };
            }
            self.semaphore_words.close(self.api);
            self.mailboxes.close(self.api);
            if let Some(fills) = self.fills.take() {
                fills.unload(self.api);
            }
        }
        // SAFETY: `Gpu::retain` retained the context once.
        let code = unsafe { (self.api.cuDevicePrimaryCtxRelease)(self.device) };
        if !code.is_success() {
            log::debug!("cuDevicePrimaryCtxRelease failed with {}", code.0);
        }
    }
}

/// An event of the driver.
pub struct Event {
    gpu: Arc<Gpu>,
    raw: RawEvent,
    owner: Owner,
}

#[derive(Clone, Copy)]
enum Owner {
    /// Returned to the spare events. Recorded anew, it changes only for later queries.
    Pool {
        timed: bool,
    },
    /// Shared with other processes, or adopted with its ownership: destroyed on drop.
    Us,
    User,
}

// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: the driver's objects may be used from any thread.
unsafe impl Sync for Event {}

impl Event {
    fn new(gpu: &Arc<Gpu>, raw: RawEvent, owner: Owner) -> Self {
        Self {
            gpu: Arc::clone(gpu),
            raw,
            owner,
        }
    }

    /// A foreign event; `owned` if the adapter destroys it.
    pub fn adopt(gpu: &Arc<Gpu>, raw: RawEvent, owned: bool) -> Self {
        Self::new(gpu, raw, if owned { Owner::Us } else { Owner::User })
    }

    /// The raw event, which is not returned to the spare events.
    pub(super) fn into_raw(self) -> RawEvent {
        let own = std::mem::ManuallyDrop::new(self);
        // SAFETY: `own` is not dropped, so that this is the only owner of the reference.
        drop(unsafe { std::ptr::read(&own.gpu) });
        own.raw
    }

    pub fn raw(&self) -> RawEvent {
        self.raw
    }

    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Records everything submitted so far to a stream of the same context.
    pub fn record(&self, stream: RawStream) -> Result<()> {
        let gpu = &self.gpu;
        let code = on_stream(gpu.api, gpu.context, stream, || {
            // SAFETY: `self` owns the event, and the caller passes a live stream.
            unsafe { (gpu.api.cuEventRecord)(self.raw, stream) }
        });
        gpu.check(code, "cuEventRecord")
    }

    /// Whether it is reached. The query leaves captures of foreign code alone.
    pub fn is_done(&self) -> Result<bool> {
        let gpu = &self.gpu;
        let _relaxed = RelaxedCapture::new(gpu.api);
        let code = anywhere(gpu.api, gpu.context, || {
            // SAFETY: `self` keeps the event alive.
            unsafe { (gpu.api.cuEventQuery)(self.raw) }
        });
        match code {
            Code::NOT_READY => Ok(false),
            code => gpu.check(code, "cuEventQuery").map(|()| true),
        }
    }

    /// Waits until it is reached. The wait leaves captures of foreign code alone.
    pub fn block(&self) -> Result<()> {
        let gpu = &self.gpu;
        let _relaxed = RelaxedCapture::new(gpu.api);
        let code = anywhere(gpu.api, gpu.context, || {
            // SAFETY: `self` keeps the event alive.
            unsafe { (gpu.api.cuEventSynchronize)(self.raw) }
        });
        gpu.check(code, "cuEventSynchronize")
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        match self.owner {
            Owner::Pool { timed: true } => self.gpu.timed.release(self.raw),
            Owner::Pool { timed: false } => self.gpu.events.release(self.raw),
            Owner::Us => {
                if let Ok(_current) = self.gpu.enter() {
                    // SAFETY: the adapter owns the event, and its last user ends here.
                    unsafe { (self.gpu.api.cuEventDestroy)(self.raw) };
                }
            }
            Owner::User => {}
        }
    }
}

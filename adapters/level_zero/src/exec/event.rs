//! Events, and the caches that they return to.
//!
//! | kind | native | signalled | used again |
//! |---|---|---|---|
//! | marker | counter-based; of a pool where the driver has none | by a list | counter-based ones at once, mostly by the same lane ([`Markers`]): waits appended earlier keep their value |
//! | timed | of a pool with timestamps | by a list | once seen complete |
//! | host | of a pool | by the host | once seen complete |
//! | foreign | any | by foreign code | never |
//!
//! A pool's event is reset before it is used again. No list waits for it then: a list that has to wait keeps the
//! event until a later marker of that list is complete ([`Waits`]).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ur::abi::*;
use ur::object::{Error, Object, Result, ensure};
use ur::sync::{Mutex, rank};

use crate::context::NativeContext;
use crate::device::Device;
use crate::lz::*;
use crate::settings::Settings;

use super::lane::Stream;
use super::ring::Ring;

/// What an event is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Marker,
    Timed,
    Host,
    /// Foreign, and destroyed with the last use.
    Owned,
    /// Foreign, and its maker's.
    Borrowed,
}

/// A native event.
pub struct Event {
    pub raw: ze_event_handle_t,
    kind: Kind,
    pub is_counter_based: bool,
    /// Whether a list or the host signals it, or has.
    is_used: AtomicBool,
    pub context: Arc<NativeContext>,
    pub device: Arc<Object<Device>>,
    source: Source,
}

/// What has the native event.
enum Source {
    Own,
    /// Processes share it.
    Ring(Arc<Ring>),
    /// It is signalled behind a batch of the lane, whoever submits that.
    Batch(Weak<Stream>),
}

/// The events of a context that are not in use.
pub struct Events {
    /// Whether markers are events of pools.
    without_counters: AtomicBool,
    /// Whether a list waits for the host for ever.
    is_stuck: AtomicBool,
    state: Mutex<SpareEvents, { rank::LEAF }>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            without_counters: AtomicBool::new(!Settings::get().counter_based_events),
            is_stuck: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }
}

#[derive(Default)]
struct SpareEvents {
    /// Counter-based events, each with its device.
    markers: Vec<(usize, ze_event_handle_t)>,
    /// Events of pools that may be reset, by kind.
    complete: [Vec<ze_event_handle_t>; 3],
    /// Events of pools that were not complete when their users left them, by kind.
    pending: [VecDeque<ze_event_handle_t>; 3],
    pools: Vec<Pool>,
}

/// A native pool, whose events are made one after the other.
struct Pool {
    raw: ze_event_pool_handle_t,
    flags: ze_event_pool_flags_t,
    made: u32,
}

/// Events of a native pool.
const POOL_EVENTS: u32 = 64;

/// How long a wait leaves the polling to the driver.
const DRIVER_POLL_TIME: Duration = Duration::from_micros(200);
/// The part of its time so far that a wait sleeps before it queries again.
const SLEEP_SHARE: u32 = 32;
/// The longest sleep between two queries of a wait.
const MAX_SLEEP: Duration = Duration::from_micros(500);

/// Pending events that a request for an event queries at most.
const MAX_PENDING_QUERIES: usize = 4;

impl Event {
    /// An event that no list signals yet.
    pub fn new(context: &Arc<NativeContext>, device: &Object<Device>, kind: Kind) -> Result<Self> {
        let counter_based = match kind {
            Kind::Marker => counter_based(context, device)?,
            _ => None,
        };
        let raw = match counter_based {
            Some(raw) => raw,
            None => pooled(context, kind)?,
        };
        Ok(Self {
            raw,
            kind,
            is_counter_based: counter_based.is_some(),
            is_used: AtomicBool::new(false),
            context: Arc::clone(context),
            device: device.arc(),
            source: Source::Own,
        })
    }

    /// An event that processes share.
    pub fn of_ring(device: &Object<Device>, ring: Arc<Ring>) -> Self {
        let none = ze_event_handle_t::NULL;
        let mut own = Self::adopt(ring.context(), device, none, false);
        own.source = Source::Ring(ring);
        own
    }

    /// The marker of the lane's commands that are not submitted.
    pub fn behind(mut self, stream: &Arc<Stream>) -> Self {
        self.source = Source::Batch(Arc::downgrade(stream));
        self
    }

    pub fn ring(&self) -> Option<&Arc<Ring>> {
        match &self.source {
            Source::Ring(ring) => Some(ring),
            Source::Own | Source::Batch(_) => None,
        }
    }

    /// Whether its commands are in a batch that is not submitted.
    pub fn is_batched(&self) -> bool {
        matches!(self.source, Source::Batch(_)) && !self.is_used.load(Ordering::Acquire)
    }

    /// The native event, of which all commands are submitted; of a ring, that of its last signal.
    pub fn raw(&self) -> Result<ze_event_handle_t> {
        match &self.source {
            Source::Own => Ok(self.raw),
            Source::Ring(ring) => ring.current(),
            Source::Batch(stream) => {
                if !self.is_used.load(Ordering::Acquire) {
                    // A lane ends behind its last batch.
                    let lost = Error::new(UR_RESULT_ERROR_DEVICE_LOST);
                    stream.upgrade().ok_or(lost)?.flush()?;
                }
                Ok(self.raw)
            }
        }
    }

    /// A foreign event; `own` if this destroys it.
    pub fn adopt(
        context: &Arc<NativeContext>,
        device: &Object<Device>,
        raw: ze_event_handle_t,
        own: bool,
    ) -> Self {
        Self {
            raw,
            kind: if own { Kind::Owned } else { Kind::Borrowed },
            is_counter_based: false,
            is_used: AtomicBool::new(true),
            context: Arc::clone(context),
            device: device.arc(),
            source: Source::Own,
        }
    }

    pub fn is_done(&self) -> Result<bool> {
        // SAFETY: a live event.
        match unsafe { (self.context.api.zeEventQueryStatus)(self.raw()?) } {
            ZE_RESULT_NOT_READY => self.check_pending().map(|()| false),
            code => {
                check(code, "zeEventQueryStatus")?;
                Ok(true)
            }
        }
    }

    /// An error if the event may never be complete: the device is lost, or a list waits for the host for ever.
    fn check_pending(&self) -> Result<()> {
        let is_stuck = self.context.events.is_stuck.load(Ordering::Relaxed);
        ensure(!is_stuck, UR_RESULT_ERROR_DEVICE_LOST)?;
        self.device.check_status_sometimes()
    }

    /// Whether the driver says that the event is complete.
    pub fn is_complete(&self) -> bool {
        is_complete(self.context.api, self.raw)
    }

    /// Called once a list was given a signal of the event.
    pub fn is_appended(&self) {
        self.is_used.store(true, Ordering::Release);
    }

    /// Blocks until the event is complete. A lost device is an error and no wait for ever.
    ///
    /// The driver's own wait polls on a whole core, so that it gets the first moment alone. Then the thread sleeps
    /// between queries, each time for a small part of what it has waited.
    pub fn block(&self) -> Result<()> {
        let synchronize = self.context.api.zeEventHostSynchronize;
        let mut slice = DRIVER_POLL_TIME.as_nanos() as u64;
        let start = Instant::now();
        let raw = self.raw()?;
        loop {
            // SAFETY: a live event.
            match unsafe { synchronize(raw, slice) } {
                ZE_RESULT_NOT_READY => self.check_pending()?,
                code => return check(code, "zeEventHostSynchronize"),
            }
            slice = 0;
            std::thread::sleep((start.elapsed() / SLEEP_SHARE).min(MAX_SLEEP));
        }
    }

    pub fn signal(&self) -> Result<()> {
        self.is_used.store(true, Ordering::Relaxed);
        // SAFETY: a live event of a pool.
        unsafe { call!(self.context.api, zeEventHostSignal(self.raw)) }
    }

    /// Signals what a list waits for. If the driver refuses it twice, the list waits for ever, and waits of the context
    /// end as if the device were lost.
    pub fn release_list(&self) {
        if let Err(error) = self.signal().or_else(|_| self.signal()) {
            log::error!("a list waits for the host for ever: {:?}", error.code());
            self.context.events.is_stuck.store(true, Ordering::Relaxed);
        }
    }

    /// Start and end in ticks of the device.
    pub fn ticks(&self) -> Result<(u64, u64)> {
        let mut found = ze_kernel_timestamp_result_t::default();
        // SAFETY: a live event of a pool with timestamps, and room for the answer.
        unsafe {
            call!(
                self.context.api,
                zeEventQueryKernelTimestamp(self.raw, &mut found)
            )
        }?;
        Ok((found.global.kernelStart, found.global.kernelEnd))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.api.is_torn_down() {
            return;
        }
        let (raw, kind) = (self.raw, self.kind);
        if self.is_counter_based {
            let device = self.device.raw().0.expose_provenance();
            self.context.events.state.lock().markers.push((device, raw));
            return;
        }
        match kind {
            Kind::Borrowed => return,
            Kind::Owned => {
                // SAFETY: the caller gave the event away, and lists that wait for it hold this.
                unsafe { (self.context.api.zeEventDestroy)(raw) };
                return;
            }
            Kind::Marker | Kind::Timed | Kind::Host => {}
        }
        // What nobody signals may be reset at once, and would stay pending for ever.
        let is_free = !*self.is_used.get_mut() || self.is_complete();
        let mut state = self.context.events.state.lock();
        match is_free {
            true => state.complete[kind as usize].push(raw),
            false => state.pending[kind as usize].push_back(raw),
        }
    }
}

fn is_complete(api: &Api, raw: ze_event_handle_t) -> bool {
    // SAFETY: a live event.
    unsafe { (api.zeEventQueryStatus)(raw) == ZE_RESULT_SUCCESS }
}

/// A lane's own markers, which it gives out again once nobody else holds them: that costs no allocation and not the
/// context's lock.
#[derive(Default)]
pub struct Markers(VecDeque<Arc<Event>>);

/// Markers that a lane keeps at most.
const MAX_KEPT_MARKERS: usize = 128;

impl Markers {
    /// A marker that nobody else holds. None if the one asked about is in use: the next call asks about another one.
    pub fn unused(&mut self) -> Option<Arc<Event>> {
        self.0.rotate_left(usize::from(self.0.len() > 1));
        let oldest = self.0.back_mut()?;
        Arc::get_mut(oldest)?;
        Some(Arc::clone(oldest))
    }

    /// Keeps a new marker, unless the user's settings forbid it. One of a pool must be reset before it is used again.
    pub fn keep(&mut self, marker: &Arc<Event>) {
        if marker.is_counter_based
            && self.0.len() < MAX_KEPT_MARKERS
            && Settings::get().caches_events
        {
            self.0.push_back(Arc::clone(marker));
        }
    }
}

/// The events of pools that a list waits for: none may be reset before the list has come to its wait, although it is
/// complete.
#[derive(Default)]
pub struct Waits {
    /// The events since the list's last marker.
    last: Vec<Arc<Event>>,
    /// The list's markers that are not seen complete, the oldest first, each with the events before it.
    marked: VecDeque<(Arc<Event>, Vec<Arc<Event>>)>,
}

/// Events that a list waits for before it needs a marker, which nobody else may ask for.
const MAX_UNMARKED_EVENTS: usize = 32;

impl Waits {
    /// Keeps an event that the list waits for. Returns whether the list needs a marker.
    pub fn keep(&mut self, event: &Arc<Event>) -> bool {
        self.last.push(Arc::clone(event));
        self.last.len() >= MAX_UNMARKED_EVENTS
    }

    /// Adds the list's next marker. Returns what the list waits for no more: its drop returns events to the cache, whose
    /// lock comes alone.
    #[must_use]
    pub fn mark(&mut self, marker: &Arc<Event>) -> Vec<(Arc<Event>, Vec<Arc<Event>>)> {
        let is_passed = |(marker, _): &(Arc<Event>, _)| marker.is_complete();
        let passed = self.marked.iter().take_while(|one| is_passed(one)).count();
        let passed = self.marked.drain(..passed).collect();
        if !self.last.is_empty() {
            let last = std::mem::take(&mut self.last);
            self.marked.push_back((Arc::clone(marker), last));
        }
        passed
    }
}

/// A counter-based event. None if the driver has none, whatever functions the loader has.
fn counter_based(
    context: &NativeContext,
    device: &Object<Device>,
) -> Result<Option<ze_event_handle_t>> {
    let events = &context.events;
    let create = match context.api.zeEventCounterBasedCreate {
        Some(create) if !events.without_counters.load(Ordering::Relaxed) => create,
        _ => return Ok(None),
    };
    let of = device.raw().0.expose_provenance();
    let mut state = events.state.lock();
    let cached = state.markers.iter().rposition(|(device, _)| *device == of);
    if let Some(at) = cached {
        return Ok(Some(state.markers.swap_remove(at).1));
    }
    drop(state);
    let desc = ze_event_counter_based_desc_t {
        flags: ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE | ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE,
        signal: ZE_EVENT_SCOPE_FLAG_HOST,
        wait: ZE_EVENT_SCOPE_FLAG_DEVICE,
        ..Default::default()
    };
    let mut raw = ze_event_handle_t::NULL;
    // SAFETY: the description has its tag, and there is room for the handle.
    let code = unsafe { create(context.raw, device.raw(), &desc, &mut raw) };
    if code == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE {
        events.without_counters.store(true, Ordering::Relaxed);
        return Ok(None);
    }
    check(code, "zeEventCounterBasedCreate")?;
    Ok(Some(raw))
}

fn pooled(context: &NativeContext, kind: Kind) -> Result<ze_event_handle_t> {
    let api = context.api;
    let flags = match kind {
        Kind::Timed => ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP,
        _ => ZE_EVENT_POOL_FLAG_HOST_VISIBLE,
    };
    let found = context.events.state.lock().unused(api, kind);
    if let Some(raw) = found {
        // SAFETY: a live event that no list signals or waits for.
        let reset = unsafe { call!(api, zeEventHostReset(raw)) };
        if reset.is_err() {
            context.events.state.lock().complete[kind as usize].push(raw);
        }
        return reset.map(|()| raw);
    }
    let mut state = context.events.state.lock();
    let room = |pool: &&mut Pool| pool.flags == flags && pool.made < POOL_EVENTS;
    let index = match state.pools.iter_mut().find(room) {
        Some(pool) => (pool.raw, &mut pool.made),
        None => {
            let raw = pool(context, flags)?;
            let made = 0;
            #[rustfmt::skip]
            state.pools.push(Pool { raw, flags, made });
            let pool = state.pools.last_mut();
            let pool = pool.ok_or(Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES))?;
            (pool.raw, &mut pool.made)
        }
    };
    let (pool, made) = index;
    let desc = ze_event_desc_t {
        index: *made,
        signal: ZE_EVENT_SCOPE_FLAG_HOST,
        wait: ZE_EVENT_SCOPE_FLAG_HOST,
        ..Default::default()
    };
    let mut raw = ze_event_handle_t::NULL;
    // SAFETY: the description has its tag, its index is free, and there is room for the handle.
    unsafe { call!(api, zeEventCreate(pool, &desc, &mut raw)) }?;
    *made += 1;
    Ok(raw)
}

fn pool(context: &NativeContext, flags: ze_event_pool_flags_t) -> Result<ze_event_pool_handle_t> {
    let desc = ze_event_pool_desc_t {
        flags,
        count: POOL_EVENTS,
        ..Default::default()
    };
    let mut raw = ze_event_pool_handle_t::NULL;
    let create = context.api.zeEventPoolCreate;
    // SAFETY: no devices means all of the context; there is room for the handle.
    let code = unsafe { create(context.raw, &desc, 0, std::ptr::null_mut(), &mut raw) };
    check(code, "zeEventPoolCreate")?;
    Ok(raw)
}

impl SpareEvents {
    /// An event of this kind that may be reset. The pending ones are queried in turn, so that one which is never
    /// signalled does not hide others.
    fn unused(&mut self, api: &Api, kind: Kind) -> Option<ze_event_handle_t> {
        let pending = &mut self.pending[kind as usize];
        let complete = || {
            for _ in 0..pending.len().min(MAX_PENDING_QUERIES) {
                let raw = pending.pop_front()?;
                if is_complete(api, raw) {
                    return Some(raw);
                }
                pending.push_back(raw);
            }
            None
        };
        self.complete[kind as usize].pop().or_else(complete)
    }
}

impl Events {
    /// Destroys every event. The context ends: no list is left that could wait for one.
    pub fn close(&mut self, api: &Api) {
        let state = std::mem::take(self.state.get_mut());
        let markers = state.markers.into_iter().map(|(_, raw)| raw);
        let complete = state.complete.into_iter().flatten();
        let pending = state.pending.into_iter().flatten();
        for raw in markers.chain(complete).chain(pending) {
            // SAFETY: the cache owns its events.
            unsafe { (api.zeEventDestroy)(raw) };
        }
        for pool in state.pools {
            // SAFETY: all events of the pool are destroyed.
            unsafe { (api.zeEventPoolDestroy)(pool.raw) };
        }
    }
}

//! Events, and the caches that they return to.
//!
//! | kind | native | signalled | used again |
//! |---|---|---|---|
//! | marker | counter-based; of a pool where the driver has none | by a list | counter-based ones at once: waits appended earlier keep their value |
//! | timed | of a pool with timestamps | by a list | once seen complete |
//! | host | of a pool | by the host | once seen complete |
//! | foreign | any | by foreign code | never |
//!
//! A pool's event is reset before it is used again. No list waits for it then: a list that has to wait holds the
//! event until a later marker of that list is complete.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ur::abi::*;
use ur::object::{Error, Object, Result};
use ur::timeline::rank;
use ur::timeline::sync::Mutex;

use crate::context::NativeContext;
use crate::device::Device;
use crate::lz::*;

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
    /// The events that its list waited for before, where they are a pool's, until this is seen complete.
    holds: Mutex<Vec<Arc<Event>>, { rank::LEAF }>,
    pub context: Arc<NativeContext>,
    pub device: Arc<Object<Device>>,
}

/// The events of a context that are not in use.
#[derive(Default)]
pub struct Events {
    state: Mutex<State, { rank::LEAF }>,
}

#[derive(Default)]
struct State {
    /// Counter-based events, each with its device.
    markers: Vec<(usize, ze_event_handle_t)>,
    /// Events of pools that are complete, by kind.
    complete: [Vec<ze_event_handle_t>; 3],
    /// Those that were not when their users left them, the oldest first.
    pending: VecDeque<Pending>,
    pools: Vec<Pool>,
}

struct Pending {
    raw: ze_event_handle_t,
    kind: Kind,
    /// Their drop returns events to the cache, so that it comes after the cache's lock.
    holds: Vec<Arc<Event>>,
}

/// A native pool, whose events are made one after the other.
struct Pool {
    raw: ze_event_pool_handle_t,
    flags: ze_event_pool_flags_t,
    made: u32,
}

/// Events of a native pool.
const POOL_EVENTS: u32 = 64;

/// The time after which a wait asks whether the device is lost.
const SLICE: Duration = Duration::from_millis(100);

impl Event {
    /// An event that no list signals yet. It keeps `holds` until it is seen complete.
    pub fn new(
        context: &Arc<NativeContext>,
        device: &Object<Device>,
        kind: Kind,
        holds: Vec<Arc<Event>>,
    ) -> Result<Self> {
        let (raw, is_counter_based) = match (kind, context.api.zeEventCounterBasedCreate) {
            (Kind::Marker, Some(create)) => (marker(context, device, create)?, true),
            _ => (pooled(context, kind)?, false),
        };
        Ok(Self {
            raw,
            kind,
            is_counter_based,
            holds: Mutex::new(holds),
            context: Arc::clone(context),
            device: device.arc(),
        })
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
            holds: Mutex::default(),
            context: Arc::clone(context),
            device: device.arc(),
        }
    }

    pub fn is_done(&self) -> Result<bool> {
        // SAFETY: a live event.
        match unsafe { (self.context.api.zeEventQueryStatus)(self.raw) } {
            ZE_RESULT_NOT_READY => self.device.check_status_sometimes().map(|()| false),
            code => {
                check(code, "zeEventQueryStatus")?;
                self.release();
                Ok(true)
            }
        }
    }

    /// Lets go of the events that the list waited for. Each may be the last to hold others, which end one by one and not
    /// within each other.
    fn release(&self) {
        if self.is_counter_based {
            return;
        }
        let mut rest = std::mem::take(&mut *self.holds.lock());
        while let Some(event) = rest.pop() {
            if let Some(mut last) = Arc::into_inner(event) {
                rest.append(last.holds.get_mut());
            }
        }
    }

    /// Blocks until the event is complete. A lost device is an error and no wait for ever.
    pub fn block(&self) -> Result<()> {
        loop {
            let slice = SLICE.as_nanos() as u64;
            // SAFETY: a live event.
            match unsafe { (self.context.api.zeEventHostSynchronize)(self.raw, slice) } {
                ZE_RESULT_NOT_READY => self.device.check_status()?,
                code => return check(code, "zeEventHostSynchronize"),
            }
        }
    }

    pub fn signal(&self) -> Result<()> {
        // SAFETY: a live event of a pool.
        unsafe { call!(self.context.api, zeEventHostSignal(self.raw)) }
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
        let is_done = self.is_done().unwrap_or(false);
        let mut state = self.context.events.state.lock();
        match is_done {
            true => state.complete[kind as usize].push(raw),
            false => {
                let holds = std::mem::take(self.holds.get_mut());
                #[rustfmt::skip]
                state.pending.push_back(Pending { raw, kind, holds });
            }
        }
    }
}

fn marker(
    context: &NativeContext,
    device: &Object<Device>,
    create: pfn::zeEventCounterBasedCreate,
) -> Result<ze_event_handle_t> {
    let of = device.raw().0.expose_provenance();
    let mut state = context.events.state.lock();
    let cached = state.markers.iter().rposition(|(device, _)| *device == of);
    if let Some(at) = cached {
        return Ok(state.markers.swap_remove(at).1);
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
    check(code, "zeEventCounterBasedCreate")?;
    Ok(raw)
}

fn pooled(context: &NativeContext, kind: Kind) -> Result<ze_event_handle_t> {
    let api = context.api;
    let flags = match kind {
        Kind::Timed => ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP,
        _ => ZE_EVENT_POOL_FLAG_HOST_VISIBLE,
    };
    let mut released = Vec::new();
    let found = context
        .events
        .state
        .lock()
        .complete(api, kind, &mut released);
    drop(released);
    if let Some(raw) = found {
        // SAFETY: a live event that is complete and that no list waits for.
        unsafe { call!(api, zeEventHostReset(raw)) }?;
        return Ok(raw);
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

impl State {
    /// A complete event of this kind. `released` gets what is dropped after the lock.
    fn complete(
        &mut self,
        api: &Api,
        kind: Kind,
        released: &mut Vec<Arc<Event>>,
    ) -> Option<ze_event_handle_t> {
        if let Some(raw) = self.complete[kind as usize].pop() {
            return Some(raw);
        }
        while let Some(first) = self.pending.front() {
            // SAFETY: a live event.
            if unsafe { (api.zeEventQueryStatus)(first.raw) } != ZE_RESULT_SUCCESS {
                break;
            }
            if let Some(first) = self.pending.pop_front() {
                self.complete[first.kind as usize].push(first.raw);
                released.extend(first.holds);
            }
        }
        self.complete[kind as usize].pop()
    }
}

impl Events {
    /// Destroys every event. The context ends: no list is left that could wait for one.
    pub fn close(&mut self, api: &Api) {
        let state = std::mem::take(self.state.get_mut());
        let markers = state.markers.into_iter().map(|(_, raw)| raw);
        let complete = state.complete.into_iter().flatten();
        let pending = state.pending.into_iter().map(|pending| pending.raw);
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

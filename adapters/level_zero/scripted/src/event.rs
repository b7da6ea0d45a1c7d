//! Events and their pools.
//!
//! An event names a state. A pool's event keeps one state, which is set and reset. A counter-based event gets a new
//! state with each signal at the time when the signal is appended; a wait takes the state of the time when the wait
//! is appended. So a later signal changes nothing for an earlier wait. Before its first signal such an event is
//! complete to the host, and no list may wait for it.
//!
//! The states of a pool for other processes are in a file, which such a process maps. Its waits look again and again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use ze::*;

use crate::entry::{Answer, array, chained, given, put};
use crate::graph::Capture;
use crate::memory::{self, Mapped};
use crate::object::{Objects, hold};
use crate::{context, device, pages, script, worker};

/// How long a wait sleeps before it looks at a state that another process may change.
const PAUSE: Duration = Duration::from_micros(200);

/// How long a wait sleeps before it looks whether the devices are lost.
pub const SLICE: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Default)]
struct Value {
    is_set: bool,
    start: u64,
    end: u64,
}

/// Whether something happened, and when.
#[derive(Default)]
pub struct SignalState {
    value: Mutex<Value>,
    changed: Condvar,
    /// Where the value is instead, for other processes.
    shared: Option<Words>,
}

/// The words of a state in a file: whether it is set, and the times.
struct Words {
    file: Arc<Mapped>,
    index: usize,
}

const WORDS: usize = 3;
const STATE_BYTES: usize = WORDS * size_of::<u64>();

impl Words {
    fn at(&self, word: usize) -> &AtomicU64 {
        let at = self.file.start + self.index * STATE_BYTES + word * size_of::<u64>();
        // SAFETY: the file has a state of this index, and stays mapped while this lives.
        unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at)) }
    }

    fn read(&self) -> Value {
        let is_set = self.at(0).load(Ordering::Acquire) != 0;
        let [start, end] = [1, 2].map(|word| self.at(word).load(Ordering::Relaxed));
        Value { is_set, start, end }
    }

    fn write(&self, value: Value) {
        self.at(1).store(value.start, Ordering::Relaxed);
        self.at(2).store(value.end, Ordering::Relaxed);
        self.at(0).store(value.is_set.into(), Ordering::Release);
    }
}

impl SignalState {
    fn shared(file: &Arc<Mapped>, index: usize) -> Self {
        let file = Arc::clone(file);
        let shared = Some(Words { file, index });
        Self {
            shared,
            ..Self::default()
        }
    }

    fn read(&self) -> Value {
        match &self.shared {
            Some(words) => words.read(),
            None => *hold(&self.value),
        }
    }

    fn write(&self, value: Value) {
        let mut own = hold(&self.value);
        match &self.shared {
            Some(words) => words.write(value),
            None => *own = value,
        }
        drop(own);
        self.changed.notify_all();
    }

    pub fn set(&self, start: u64, end: u64) {
        self.write(Value {
            is_set: true,
            start,
            end,
        });
    }

    pub fn reset(&self) {
        self.write(Value::default());
    }

    pub fn is_set(&self) -> bool {
        self.read().is_set
    }

    /// The times, if it is set.
    pub fn times(&self) -> Option<(u64, u64)> {
        let value = self.read();
        value.is_set.then_some((value.start, value.end))
    }

    /// Waits up to a number of nanoseconds.
    pub fn wait(&self, timeout: u64) -> Answer {
        let until = Instant::now().checked_add(Duration::from_nanos(timeout));
        let slice = match self.shared {
            Some(_) => PAUSE,
            None => SLICE,
        };
        let is_set = |value: &Value| match &self.shared {
            Some(words) => words.read().is_set,
            None => value.is_set,
        };
        let mut value = hold(&self.value);
        while !is_set(&value) {
            script::present()?;
            let left = until.map_or(slice, |until| {
                until.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return Err(ZE_RESULT_NOT_READY);
            }
            let waited = self.changed.wait_timeout(value, left.min(slice));
            value = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        Ok(())
    }
}

pub struct Pool {
    context: ze_context_handle_t,
    flags: ze_event_pool_flags_t,
    /// Whether each index is in use.
    taken: Mutex<Vec<bool>>,
    counter: Option<ze_event_counter_based_flags_t>,
    /// The states, of a pool for other processes or of another process.
    file: Option<Arc<Mapped>>,
}

pub struct Event {
    pool: Option<(Arc<Pool>, ze_event_pool_handle_t, usize)>,
    is_timed: bool,
    counter: Option<ze_event_counter_based_flags_t>,
    /// None for a counter-based event that was never signalled.
    state: Mutex<Option<Arc<SignalState>>>,
    signal: ze_event_scope_flags_t,
    wait: ze_event_scope_flags_t,
    /// The capture that signals the event, and the copy that stands for it there.
    inside: Mutex<Option<(Weak<Capture>, Arc<Event>)>>,
}

pub static POOLS: Objects<Pool> = Objects::of("event pool");
pub static EVENTS: Objects<Event> = Objects::of("event");

impl Event {
    pub fn is_counter_based(&self) -> bool {
        self.counter.is_some()
    }

    /// The state that a wait of now is for.
    pub fn waited(&self) -> Answer<Arc<SignalState>> {
        hold(&self.state)
            .clone()
            .ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)
    }

    /// The capture under way that signals the event.
    pub fn capture(&self) -> Option<Arc<Capture>> {
        let inside = hold(&self.inside);
        inside.as_ref().and_then(|(capture, _)| capture.upgrade())
    }

    /// What stands for the event within a capture, if that signals it.
    pub fn inside(&self, capture: &Arc<Capture>) -> Option<Arc<Event>> {
        let inside = hold(&self.inside);
        let (own, copy) = inside.as_ref()?;
        std::ptr::eq(own.as_ptr(), Arc::as_ptr(capture)).then(|| copy.clone())
    }

    /// A capture signals the event. Returns what stands for it there.
    pub fn enter(&self, capture: &Arc<Capture>) -> Arc<Event> {
        let copy = Arc::new(Event {
            pool: None,
            is_timed: self.is_timed,
            counter: Some(self.counter.unwrap_or_default()),
            state: Mutex::new(None),
            signal: self.signal,
            wait: self.wait,
            inside: Mutex::default(),
        });
        *hold(&self.inside) = Some((Arc::downgrade(capture), copy.clone()));
        copy
    }

    /// The state that a signal of now sets.
    pub fn signalled(&self) -> Arc<SignalState> {
        *hold(&self.inside) = None;
        let mut state = hold(&self.state);
        match &*state {
            Some(state) if self.counter.is_none() => state.clone(),
            _ => state.insert(Arc::default()).clone(),
        }
    }

    /// The state, if the event is a pool's: only that is the host's to change.
    fn changeable(&self) -> Answer<Arc<SignalState>> {
        match self.counter {
            Some(_) => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
            None => self.waited(),
        }
    }

    pub fn reset(&self) -> Answer {
        self.changeable().map(|state| state.reset())
    }

    /// The result of a timed command.
    fn result(&self) -> Answer<ze_kernel_timestamp_result_t> {
        if !self.is_timed {
            return Err(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT);
        }
        let state = hold(&self.state).clone().ok_or(ZE_RESULT_NOT_READY)?;
        state.times().map(result_of).ok_or(ZE_RESULT_NOT_READY)
    }
}

pub fn result_of((start, end): (u64, u64)) -> ze_kernel_timestamp_result_t {
    let data = ze_kernel_timestamp_data_t {
        kernelStart: start,
        kernelEnd: end,
    };
    ze_kernel_timestamp_result_t {
        global: data,
        context: data,
    }
}

pub fn get(event: ze_event_handle_t) -> Answer<Arc<Event>> {
    EVENTS.get(event.0)
}

/// The event, or none for a null handle.
pub fn maybe(event: ze_event_handle_t) -> Answer<Option<Arc<Event>>> {
    match event.is_null() {
        true => Ok(None),
        false => get(event).map(Some),
    }
}

/// The events of a caller's list.
///
/// # Safety
/// The list has `count` elements.
pub unsafe fn list(events: *mut ze_event_handle_t, count: u32) -> Answer<Vec<Arc<Event>>> {
    // SAFETY: as the caller promises.
    let all = unsafe { array(events, count as usize) }?;
    all.iter().map(|one| get(*one)).collect()
}

const TIMED: ze_event_pool_flags_t =
    ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP | ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP;
const COUNTER_TIMED: ze_event_counter_based_flags_t =
    ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP | ZE_EVENT_COUNTER_BASED_FLAG_HOST_TIMESTAMP;

/// The file of a pool's states.
fn states(count: usize) -> Answer<Mapped> {
    let bytes = count * STATE_BYTES;
    let mapped = Mapped::of(pages::file_of(bytes)?, bytes);
    mapped.ok_or(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)
}

/// Places in a handle of a pool for other processes: flags, and the process that made it.
const NAMED: usize = 26;
const PROCESS: usize = 28;

entries! {
    fn zeEventPoolCreate(
        context: ze_context_handle_t, desc: *const ze_event_pool_desc_t, count: u32,
        devices: *mut ze_device_handle_t, out: *mut ze_event_pool_handle_t,
    ) {
        context::check(context)?;
        let desc = given(desc)?;
        given(out)?;
        for one in array(devices, count as usize)? {
            device::index(*one)?;
        }
        if desc.count == 0 {
            return Err(ZE_RESULT_ERROR_INVALID_SIZE);
        }
        let counter = chained::<ze_event_pool_counter_based_exp_desc_t>(desc.pNext);
        let pool = Pool {
            context,
            flags: desc.flags,
            taken: Mutex::new(vec![false; desc.count as usize]),
            counter: counter.map(|own| own.flags),
            file: match desc.flags & ZE_EVENT_POOL_FLAG_IPC {
                0 => None,
                _ => Some(Arc::new(states(desc.count as usize)?)),
            },
        };
        put(out, ze_event_pool_handle_t(POOLS.add(|_| pool)))
    }

    fn zeEventPoolDestroy(pool: ze_event_pool_handle_t) {
        let own = POOLS.remove(pool.0)?;
        if hold(&own.taken).contains(&true) {
            script::broken("an event pool destroyed before its events".into());
        }
        Ok(())
    }

    fn zeEventPoolGetIpcHandle(pool: ze_event_pool_handle_t, out: *mut ze_ipc_event_pool_handle_t) {
        let own = POOLS.get(pool.0)?;
        let file = own.file.as_ref().ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
        let mut data = memory::handle_of(file.descriptor());
        // As Intel's newer drivers.
        data[NAMED] = 3;
        for (to, from) in data[PROCESS..].iter_mut().zip(std::process::id().to_ne_bytes()) {
            *to = from.cast_signed();
        }
        put(out, ze_ipc_event_pool_handle_t { data })
    }

    fn zeEventPoolPutIpcHandle(context: ze_context_handle_t, handle: ze_ipc_event_pool_handle_t) {
        context::check(context)?;
        memory::file_bytes(memory::descriptor_of(&handle.data)).map(drop)
    }

    fn zeEventPoolOpenIpcHandle(
        context: ze_context_handle_t, handle: ze_ipc_event_pool_handle_t, out: *mut ze_event_pool_handle_t,
    ) {
        context::check(context)?;
        given(out)?;
        // Intel's driver takes the descriptor of the process that is named. Nobody here means that.
        if memory::descriptor_of(&handle.data[PROCESS..]) != 0 {
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        let number = memory::descriptor_of(&handle.data);
        let count = memory::file_bytes(number)? / STATE_BYTES;
        let file = memory::duplicate(number, STATE_BYTES)?;
        let file = Mapped::of(file, count * STATE_BYTES).ok_or(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)?;
        let pool = Pool {
            context,
            flags: ZE_EVENT_POOL_FLAG_IPC,
            taken: Mutex::new(vec![false; count]),
            counter: None,
            file: Some(Arc::new(file)),
        };
        put(out, ze_event_pool_handle_t(POOLS.add(|_| pool)))
    }

    fn zeEventPoolCloseIpcHandle(pool: ze_event_pool_handle_t) {
        let own = POOLS.remove(pool.0)?;
        if hold(&own.taken).contains(&true) {
            script::broken("an event pool closed before its events".into());
        }
        Ok(())
    }

    fn zeEventPoolGetContextHandle(pool: ze_event_pool_handle_t, out: *mut ze_context_handle_t) {
        put(out, POOLS.get(pool.0)?.context)
    }

    fn zeEventPoolGetFlags(pool: ze_event_pool_handle_t, out: *mut ze_event_pool_flags_t) {
        put(out, POOLS.get(pool.0)?.flags)
    }

    fn zeEventCreate(
        pool: ze_event_pool_handle_t, desc: *const ze_event_desc_t, out: *mut ze_event_handle_t,
    ) {
        let own = POOLS.get(pool.0)?;
        let desc = given(desc)?;
        given(out)?;
        let index = desc.index as usize;
        match hold(&own.taken).get_mut(index) {
            None => return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
            Some(taken) if *taken => {
                script::broken("an event's index is in use".into());
                return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
            }
            Some(taken) => *taken = true,
        }
        let counter = own.counter;
        let event = Event {
            is_timed: own.flags & TIMED != 0,
            counter,
            state: Mutex::new(counter.is_none().then(|| match &own.file {
                Some(file) => Arc::new(SignalState::shared(file, index)),
                None => Arc::default(),
            })),
            pool: Some((own, pool, index)),
            signal: desc.signal,
            wait: desc.wait,
            inside: Mutex::default(),
        };
        put(out, ze_event_handle_t(EVENTS.add(|_| event)))
    }

    fn zeEventCounterBasedCreate(
        context: ze_context_handle_t, device: ze_device_handle_t, desc: *const ze_event_counter_based_desc_t,
        out: *mut ze_event_handle_t,
    ) {
        context::check_both(context, device)?;
        given(out)?;
        // Without a description the defaults hold.
        let default = ze_event_counter_based_desc_t::default();
        let desc = given(desc).unwrap_or(&default);
        let event = Event {
            pool: None,
            is_timed: desc.flags & COUNTER_TIMED != 0,
            counter: Some(desc.flags),
            state: Mutex::new(None),
            signal: desc.signal,
            wait: desc.wait,
            inside: Mutex::default(),
        };
        put(out, ze_event_handle_t(EVENTS.add(|_| event)))
    }

    fn zeEventDestroy(event: ze_event_handle_t) {
        let own = EVENTS.remove(event.0)?;
        if hold(&own.state).as_ref().is_some_and(worker::signals) {
            script::broken("an event is destroyed that a command signals".into());
        }
        if let Some((pool, _, index)) = &own.pool {
            hold(&pool.taken)[*index] = false;
        }
        Ok(())
    }

    fn zeEventHostSignal(event: ze_event_handle_t) {
        let state = get(event)?.changeable()?;
        let now = device::now();
        state.set(now, now);
        Ok(())
    }

    fn zeEventHostReset(event: ze_event_handle_t) {
        get(event)?.reset()
    }

    fn zeEventHostSynchronize(event: ze_event_handle_t, timeout: u64) {
        let own = get(event)?;
        let state = hold(&own.state).clone();
        state.map_or(Ok(()), |state| state.wait(timeout))
    }

    fn zeEventQueryStatus(event: ze_event_handle_t) {
        let own = get(event)?;
        if own.capture().is_some() {
            return Err(ZE_RESULT_ERROR_GRAPH_INTERNAL_EVENT);
        }
        let state = hold(&own.state).clone();
        match state.is_none_or(|state| state.is_set()) {
            true => Ok(()),
            false => Err(ZE_RESULT_NOT_READY),
        }
    }

    fn zeEventQueryKernelTimestamp(event: ze_event_handle_t, out: *mut ze_kernel_timestamp_result_t) {
        let own = get(event)?;
        given(out)?;
        put(out, own.result()?)
    }

    fn zeEventQueryTimestampsExp(
        event: ze_event_handle_t, device: ze_device_handle_t, count: *mut u32,
        out: *mut ze_kernel_timestamp_result_t,
    ) {
        device::index(device)?;
        let result = get(event)?.result()?;
        crate::entry::fill(count, out, &[result], |to, from| *to = *from)
    }

    fn zeEventQueryKernelTimestampsExt(
        event: ze_event_handle_t, device: ze_device_handle_t, count: *mut u32,
        out: *mut ze_event_query_kernel_timestamps_results_ext_properties_t,
    ) {
        device::index(device)?;
        let result = get(event)?.result()?;
        crate::entry::fill(count, out, &[result], |to, from| {
            // SAFETY: the caller's buffers have room for the count.
            unsafe {
                crate::entry::offer(to.pKernelTimestampsBuffer, *from);
                let same = ze_synchronized_timestamp_data_ext_t {
                    kernelStart: from.global.kernelStart,
                    kernelEnd: from.global.kernelEnd,
                };
                crate::entry::offer(
                    to.pSynchronizedTimestampsBuffer,
                    ze_synchronized_timestamp_result_ext_t { global: same, context: same },
                );
            }
        })
    }

    fn zeEventGetEventPool(event: ze_event_handle_t, out: *mut ze_event_pool_handle_t) {
        let own = get(event)?;
        let pool = own.pool.as_ref().map(|(_, handle, _)| *handle);
        put(out, pool.ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?)
    }

    fn zeEventGetSignalScope(event: ze_event_handle_t, out: *mut ze_event_scope_flags_t) {
        put(out, get(event)?.signal)
    }

    fn zeEventGetWaitScope(event: ze_event_handle_t, out: *mut ze_event_scope_flags_t) {
        put(out, get(event)?.wait)
    }

    fn zeEventGetCounterBasedFlags(event: ze_event_handle_t, out: *mut ze_event_counter_based_flags_t) {
        let flags = get(event)?.counter;
        put(out, flags.ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?)
    }

    fn zeDeviceGetCounterBasedEventMaxValue(device: ze_device_handle_t, out: *mut u64) {
        device::index(device)?;
        put(out, u64::MAX)
    }
}

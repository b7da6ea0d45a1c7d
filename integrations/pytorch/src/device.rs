//! One GPU: its context, its pool, and a queue for each stream that PyTorch names.
//!
//! An allocation and its free are in the order of the allocating stream. Memory that other streams use too is
//! freed on a queue of its own, after an event of each of its streams: no stream waits for another one.
//!
//! PyTorch enables access between two GPUs by itself, but access of that kind does not reach the memory of
//! pools, and it tells no allocator. So GPUs get access to each other's pools once a process uses several.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use ur::abi::*;
use ur::object::env::Env;

use crate::api::{DeviceHandle, Event, Place, Queue, Ur};
use crate::captures::{Captures, Freed, PoolId};
use crate::failure::{Failure, Result};

/// The queue of a stream that the thread used last.
#[derive(Clone, Copy)]
struct LastQueue {
    ordinal: i32,
    stream: usize,
    queue: Queue,
}

thread_local! {
    static LAST_QUEUE: Cell<Option<LastQueue>> = const { Cell::new(None) };
}

pub struct Device {
    ur: &'static Ur,
    ordinal: i32,
    at: Place,
    /// The queue of frees that come after events of several streams.
    unordered: Queue,
    queues: RwLock<HashMap<usize, Queue>>,
    captures: Captures,
    /// Events that frees come after. The pool does not query streams of others, so allocations query these.
    pending: Mutex<VecDeque<Event>>,
    /// Number of entries of `pending`.
    pending_count: AtomicUsize,
}

/// The figures of a device's memory, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Stats {
    /// In live tensors, as rounded.
    pub used: u64,
    /// The highest `used` since the beginning or the last reset.
    pub used_high: u64,
    /// Held from the driver, in use or free.
    pub reserved: u64,
    /// The highest `reserved` since the beginning or the last reset.
    pub reserved_high: u64,
}

impl Device {
    fn new(ur: &'static Ur, ordinal: i32, handle: DeviceHandle, fraction: f64) -> Result<Self> {
        let at = ur.place(handle, fraction)?;
        Ok(Self {
            ur,
            ordinal,
            at,
            unordered: ur.unordered_queue(at)?,
            queues: RwLock::default(),
            captures: Captures::new(ur, at),
            pending: Mutex::default(),
            pending_count: AtomicUsize::new(0),
        })
    }

    /// The queue of a stream, adopted the first time. It is kept until the process ends.
    #[inline]
    fn queue(&self, stream: usize) -> Result<Queue> {
        let last = LAST_QUEUE.try_with(Cell::get).ok().flatten();
        match last {
            Some(last) if last.stream == stream && last.ordinal == self.ordinal => Ok(last.queue),
            _ => self.find_queue(stream),
        }
    }

    #[cold]
    fn find_queue(&self, stream: usize) -> Result<Queue> {
        let known = {
            let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
            queues.get(&stream).copied()
        };
        let queue = match known {
            Some(queue) => queue,
            None => {
                let mut queues = self.queues.write().unwrap_or_else(PoisonError::into_inner);
                match queues.get(&stream) {
                    Some(queue) => *queue,
                    None => *queues
                        .entry(stream)
                        .insert_entry(self.ur.adopt(self.at, stream)?)
                        .get(),
                }
            }
        };
        let last = LastQueue {
            ordinal: self.ordinal,
            stream,
            queue,
        };
        // A thread that ends has no cache.
        let _ = LAST_QUEUE.try_with(|cell| cell.set(Some(last)));
        Ok(queue)
    }

    /// Queries the oldest events that frees come after, so that the pool sees what has completed.
    #[inline]
    fn poll(&self) {
        if self.pending_count.load(Ordering::Acquire) > 0 && !self.captures.are_open() {
            self.poll_pending();
        }
    }

    #[cold]
    fn poll_pending(&self) {
        // Another thread that holds the lock queries them.
        let Ok(mut pending) = self.pending.try_lock() else {
            return;
        };
        // An event that cannot be queried is released: waits of the pool's own remain.
        while let Some(event) = pending.front()
            && event.is_complete().unwrap_or(true)
        {
            pending.pop_front();
        }
        self.pending_count.store(pending.len(), Ordering::Release);
    }

    /// Memory in the order of a stream. The pool is trimmed once before the call fails.
    #[inline]
    pub fn alloc(&self, stream: usize, bytes: usize) -> Result<*mut c_void> {
        if self.captures.are_open() {
            return self
                .ur
                .relaxed(|| self.alloc_beside_captures(stream, bytes));
        }
        self.poll();
        self.alloc_in_order(stream, bytes)
    }

    #[inline(always)]
    fn alloc_in_order(&self, stream: usize, bytes: usize) -> Result<*mut c_void> {
        let queue = self.queue(stream)?;
        let alloc = || self.ur.alloc(self.at, queue, bytes);
        alloc().or_else(|failure| self.again(failure, alloc))
    }

    #[cold]
    fn alloc_beside_captures(&self, stream: usize, bytes: usize) -> Result<*mut c_void> {
        if !self.ur.is_captured(stream) {
            return self.alloc_in_order(stream, bytes);
        }
        let alloc = || self.captures.alloc(stream, bytes);
        alloc().or_else(|failure| self.again(failure, alloc))
    }

    #[cold]
    fn again(
        &self,
        failure: Failure,
        alloc: impl Fn() -> Result<*mut c_void>,
    ) -> Result<*mut c_void> {
        if !failure.is_out_of_memory() {
            return Err(failure);
        }
        self.trim()?;
        alloc()
    }

    /// Frees memory in the order of the stream that it was allocated on, and after what the streams `used_by`
    /// have now.
    #[inline]
    pub fn free(&self, memory: usize, stream: usize, used_by: Vec<usize>) -> Result<()> {
        match used_by.is_empty() && self.captures.are_unused() {
            true => self.ur.free(self.at, self.queue(stream)?, memory, &[]),
            false => self.free_used(memory, stream, used_by),
        }
    }

    #[cold]
    fn free_used(&self, memory: usize, stream: usize, used_by: Vec<usize>) -> Result<()> {
        let freed = Freed {
            memory,
            stream,
            used_by,
        };
        if let Some(freed) = self.captures.free(freed) {
            self.free_in_order(&freed)?;
        }
        Ok(())
    }

    fn free_in_order(&self, freed: &Freed) -> Result<()> {
        let queue = self.queue(freed.stream)?;
        let mut others = freed
            .used_by
            .iter()
            .filter(|used| **used != freed.stream)
            .peekable();
        if others.peek().is_none() {
            return self.ur.free(self.at, queue, freed.memory, &[]);
        }
        let mut after = vec![self.ur.marker(queue)?];
        for stream in others {
            after.extend(self.event(*stream)?);
        }
        self.ur
            .free(self.at, self.unordered, freed.memory, &after)?;
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.extend(after);
        self.pending_count.store(pending.len(), Ordering::Release);
        Ok(())
    }

    /// An event of a stream's work so far. A stream of another device is waited for, since an event belongs to
    /// one context.
    fn event(&self, stream: usize) -> Result<Option<Event>> {
        match self.queue(stream) {
            Ok(queue) => self.ur.marker(queue).map(Some),
            Err(failure) if failure.is_other_device() => {
                let other = Devices::get()?.queue_of_any(stream).ok_or(failure)?;
                self.ur.marker(other)?.wait()?;
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Returns free memory to the driver. Waits for the device, as the driver's own frees do, unless a capture
    /// forbids it.
    pub fn trim(&self) -> Result<()> {
        self.captures.reclaim()?;
        if !self.captures.are_open() {
            self.ur.wait(self.at)?;
        }
        self.ur.trim(self.at)
    }

    pub fn stats(&self) -> Result<Stats> {
        let figure = |what| self.ur.figure(self.at, what).map(|bytes| bytes as u64);
        Ok(Stats {
            used: figure(UR_USM_POOL_INFO_USED_CURRENT_EXP)?,
            used_high: figure(UR_USM_POOL_INFO_USED_HIGH_EXP)?,
            reserved: figure(UR_USM_POOL_INFO_RESERVED_CURRENT_EXP)?,
            reserved_high: figure(UR_USM_POOL_INFO_RESERVED_HIGH_EXP)?,
        })
    }

    pub fn reset_highs(&self) -> Result<()> {
        self.ur
            .reset_high(self.at, UR_USM_POOL_INFO_USED_HIGH_EXP)?;
        self.ur
            .reset_high(self.at, UR_USM_POOL_INFO_RESERVED_HIGH_EXP)
    }

    pub fn report(&self) -> Result<String> {
        self.ur.report(self.at)
    }

    /// The start and the bytes of the allocation that has an address; none if it is no memory of this device's
    /// pool.
    pub fn allocation(&self, memory: usize) -> Option<(*mut c_void, usize)> {
        let found = self.ur.allocation(self.at, memory).ok();
        found.filter(|(base, _)| !base.is_null())
    }

    pub fn begin_pool(&self, id: PoolId) {
        self.captures.begin(id);
    }

    /// Ends allocations for a pool, and frees what waited for the end of the captures.
    pub fn end_pool(&self, id: PoolId) -> Result<()> {
        for freed in self.captures.end(id) {
            self.free_in_order(&freed)?;
        }
        Ok(())
    }

    pub fn release_pool(&self, id: PoolId) -> Result<()> {
        self.captures.release(id)
    }
}

/// One GPU, opened by its first use.
struct Slot {
    ordinal: i32,
    handle: DeviceHandle,
    /// The part of the device's memory that its pool may have.
    fraction: Mutex<f64>,
    device: OnceLock<Result<Device>>,
}

/// All GPUs of the process, and the memory that streams beside the allocating one use.
pub struct Devices {
    ur: &'static Ur,
    slots: Vec<Slot>,
    recorded: Mutex<HashMap<usize, Vec<usize>>>,
    /// The GPUs that have access to each other's pools. Those without a link have none.
    linked: Mutex<Vec<DeviceHandle>>,
    /// Number of entries of `recorded`.
    recorded_count: AtomicUsize,
}

impl Devices {
    /// The process's GPUs. The first call opens the loader.
    pub fn get() -> Result<&'static Self> {
        static DEVICES: OnceLock<Result<Devices>> = OnceLock::new();
        DEVICES
            .get_or_init(Self::open)
            .as_ref()
            .map_err(Clone::clone)
    }

    fn open() -> Result<Self> {
        static UR: OnceLock<Ur> = OnceLock::new();
        let opened = Ur::open()?;
        let ur = UR.get_or_init(|| opened);
        let found = ur.devices()?;
        if found.is_empty() {
            return Err(Failure::Reason("no CUDA adapter has a device".into()));
        }
        let slot = |(ordinal, handle)| Slot {
            ordinal,
            handle,
            fraction: Mutex::new(1.0),
            device: OnceLock::new(),
        };
        Ok(Self {
            ur,
            slots: found.into_iter().map(slot).collect(),
            recorded: Mutex::default(),
            linked: Mutex::default(),
            recorded_count: AtomicUsize::new(0),
        })
    }

    fn slot(&self, ordinal: i32) -> Result<&Slot> {
        let found = self.slots.iter().find(|slot| slot.ordinal == ordinal);
        found.ok_or_else(|| Failure::Reason(format!("no CUDA adapter has device {ordinal}")))
    }

    /// A GPU by the driver's number.
    #[inline]
    pub fn device(&self, ordinal: i32) -> Result<&Device> {
        let mut opened = self.opened();
        match opened.find(|device| device.ordinal == ordinal) {
            Some(device) => Ok(device),
            None => self.open_device(ordinal),
        }
    }

    #[cold]
    fn open_device(&self, ordinal: i32) -> Result<&Device> {
        let slot = self.slot(ordinal)?;
        let fraction = || *slot.fraction.lock().unwrap_or_else(PoisonError::into_inner);
        let open = || {
            let device = Device::new(self.ur, ordinal, slot.handle, fraction())?;
            self.link(slot.handle)?;
            Ok(device)
        };
        slot.device.get_or_init(open).as_ref().map_err(Clone::clone)
    }

    /// Gives a GPU and all GPUs in use access to each other's pools, unless the user does not want it.
    fn link(&self, device: DeviceHandle) -> Result<()> {
        let mut linked = self.linked.lock().unwrap_or_else(PoisonError::into_inner);
        if Env::process().flag("UR_PYTORCH_PEER_ACCESS", true) {
            for other in linked.iter() {
                self.ur.give_access(device, *other)?;
                self.ur.give_access(*other, device)?;
            }
        }
        linked.push(device);
        Ok(())
    }

    /// The GPUs in use.
    #[inline]
    pub fn opened(&self) -> impl Iterator<Item = &Device> {
        let opened = self.slots.iter().filter_map(|slot| slot.device.get());
        opened.filter_map(|device| device.as_ref().ok())
    }

    /// Limits a device's pool to a part of the device's memory. The pool must not exist yet.
    pub fn set_fraction(&self, ordinal: i32, fraction: f64) -> Result<()> {
        let slot = self.slot(ordinal)?;
        if slot.device.get().is_some() {
            let text = "a pool that has served allocations keeps its maximum size";
            return Err(Failure::Reason(text.into()));
        }
        *slot.fraction.lock().unwrap_or_else(PoisonError::into_inner) = fraction;
        Ok(())
    }

    /// The queue of a stream, on whichever device has it.
    fn queue_of_any(&self, stream: usize) -> Option<Queue> {
        let mut devices = self
            .slots
            .iter()
            .filter_map(|slot| self.device(slot.ordinal).ok());
        devices.find_map(|device| device.queue(stream).ok())
    }

    /// Notes that a stream uses memory, so that its free comes after what the stream has then.
    pub fn record(&self, memory: usize, stream: usize) {
        let mut recorded = self.recorded();
        let streams = recorded.entry(memory).or_default();
        if !streams.contains(&stream) {
            streams.push(stream);
        }
        self.recorded_count.store(recorded.len(), Ordering::Release);
    }

    /// The streams that were recorded for memory, which is freed now.
    #[inline]
    pub fn take_recorded(&self, memory: usize) -> Vec<usize> {
        if self.recorded_count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut recorded = self.recorded();
        let streams = recorded.remove(&memory).unwrap_or_default();
        self.recorded_count.store(recorded.len(), Ordering::Release);
        streams
    }

    fn recorded(&self) -> MutexGuard<'_, HashMap<usize, Vec<usize>>> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

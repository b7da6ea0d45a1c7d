//! An event that other processes wait for, and which is signalled again and again.
//!
//! It is a native pool of events, which are signalled in turn, and a page of shared memory that says which one is
//! current. So a signal never resets an event that an earlier signal is still pending for. A wait of another process for
//! a signal that many others followed may last until the event's next turn.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ur::abi::*;
use ur::ipc::{SharedPage, duplicate};
use ur::object::{Error, Result, ensure};
use ur::sync::{Mutex, rank};

use crate::context::NativeContext;
use crate::lz::*;

/// Events of a ring.
const RING_EVENTS: u32 = 64;

/// The word of the page with the number of signals so far, and the first of the pool's handle.
const CURRENT_WORD: usize = 0;
const HANDLE_START_WORD: usize = 8;
const HANDLE_WORDS: usize = size_of::<ze_ipc_event_pool_handle_t>() / size_of::<u64>();

pub struct Ring {
    context: Arc<NativeContext>,
    pool: ze_event_pool_handle_t,
    /// The pool's handle for other processes, and its descriptor. None of an opened ring.
    export: Option<(ze_ipc_event_pool_handle_t, OwnedFd)>,
    page: SharedPage,
    /// Made when first needed.
    events: Mutex<[Option<ze_event_handle_t>; RING_EVENTS as usize], { rank::LEAF }>,
}

/// The descriptor in a driver's handle: it stands first.
pub fn descriptor_of(data: &[std::ffi::c_char]) -> i32 {
    let mut number = [0; size_of::<i32>()];
    for (to, from) in number.iter_mut().zip(data) {
        *to = from.cast_unsigned();
    }
    i32::from_ne_bytes(number)
}

/// Sets the descriptor in a driver's handle.
pub fn set_descriptor(data: &mut [std::ffi::c_char], number: i32) {
    for (to, from) in data.iter_mut().zip(number.to_ne_bytes()) {
        *to = from.cast_signed();
    }
}

/// The place of the process in a handle of a pool of Intel's newer drivers, and of a byte that is not 0 in such a
/// handle of events that the host sees. It is 0 in older drivers' handles.
const PROCESS_BYTE: usize = 28;
const IS_NAMED_BYTE: usize = 26;

/// The bytes of a driver's handle of a pool for another process, without this process in them. The opener's driver would
/// look in this process for the descriptor that the opener puts in. A driver uses the descriptor as it is where no process
/// is named.
fn unnamed(handle: &ze_ipc_event_pool_handle_t) -> [u8; size_of::<ze_ipc_event_pool_handle_t>()] {
    let mut bytes = handle.data.map(std::ffi::c_char::cast_unsigned);
    let own = std::process::id().to_ne_bytes();
    let is_named = bytes[IS_NAMED_BYTE] != 0 && bytes[PROCESS_BYTE..].starts_with(&own);
    if is_named {
        bytes[PROCESS_BYTE..PROCESS_BYTE + own.len()].fill(0);
    }
    bytes
}

impl Ring {
    /// What crosses to another process: the bytes of the page, and of the pool, which has none of its own.
    pub const PARTS: [usize; 2] = [SharedPage::WORDS * size_of::<u64>(), 0];

    pub fn new(context: &Arc<NativeContext>) -> Result<Self> {
        let api = context.api;
        let desc = ze_event_pool_desc_t {
            flags: ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_IPC,
            count: RING_EVENTS,
            ..Default::default()
        };
        let page = SharedPage::new()?;
        let mut pool = ze_event_pool_handle_t::NULL;
        let create = api.zeEventPoolCreate;
        // SAFETY: no devices means all of the context; there is room for the handle.
        let code = unsafe { create(context.raw, &desc, 0, null_mut(), &mut pool) };
        check(code, "zeEventPoolCreate")?;
        let mut own = Self {
            context: Arc::clone(context),
            pool,
            export: None,
            page,
            events: Mutex::new([None; RING_EVENTS as usize]),
        };
        let mut handle = ze_ipc_event_pool_handle_t::default();
        // SAFETY: a live pool, and room for the handle.
        unsafe { call!(api, zeEventPoolGetIpcHandle(pool, &mut handle)) }?;
        let file = duplicate(descriptor_of(&handle.data)).map_err(|_| Error::unsupported())?;
        let bytes = unnamed(&handle);
        let words = bytes.as_chunks::<{ size_of::<u64>() }>().0;
        for (to, from) in own.page.words()[HANDLE_START_WORD..].iter().zip(words) {
            to.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
        }
        own.export = Some((handle, file));
        // An event that nobody has signalled is complete.
        let first = own.current()?;
        // SAFETY: a live event of a pool.
        unsafe { call!(api, zeEventHostSignal(first)) }?;
        Ok(own)
    }

    /// The ring of another process. `INVALID_VALUE` if the descriptors are not of one.
    pub fn open(context: &Arc<NativeContext>, files: &[OwnedFd]) -> Result<Self> {
        let [page, pool] = files else {
            return Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE));
        };
        let page = SharedPage::open(page)?;
        let mut handle = ze_ipc_event_pool_handle_t::default();
        let words = page.words()[HANDLE_START_WORD..].iter().take(HANDLE_WORDS);
        let bytes = words.flat_map(|word| word.load(Ordering::Acquire).to_ne_bytes());
        for (to, from) in handle.data.iter_mut().zip(bytes) {
            *to = from.cast_signed();
        }
        set_descriptor(&mut handle.data, pool.as_raw_fd());
        let mut pool = ze_event_pool_handle_t::NULL;
        // SAFETY: a handle with a descriptor of this process, and room for the pool.
        unsafe {
            call!(
                context.api,
                zeEventPoolOpenIpcHandle(context.raw, handle, &mut pool)
            )
        }?;
        Ok(Self {
            context: Arc::clone(context),
            pool,
            export: None,
            page,
            events: Mutex::new([None; RING_EVENTS as usize]),
        })
    }

    pub fn context(&self) -> &Arc<NativeContext> {
        &self.context
    }

    /// A new descriptor of a part, for another process.
    pub fn descriptor(&self, part: usize) -> Result<OwnedFd> {
        let none = Error::new(UR_RESULT_ERROR_INVALID_EVENT);
        match part {
            0 => self.page.descriptor(),
            _ => duplicate(self.export.as_ref().ok_or(none)?.1.as_raw_fd()),
        }
    }

    /// The event of the last signal.
    pub fn current(&self) -> Result<ze_event_handle_t> {
        self.event(self.page.words()[CURRENT_WORD].load(Ordering::Acquire))
    }

    /// The event of the next signal, which is current from now on. `OUT_OF_RESOURCES` while its last signal is pending:
    /// as many others are.
    pub fn advance(&self) -> Result<ze_event_handle_t> {
        let current = &self.page.words()[CURRENT_WORD];
        // Signals of one event come one at a time.
        let next = current.load(Ordering::Relaxed).wrapping_add(1);
        let event = self.event(next)?;
        let api = self.context.api;
        if next >= u64::from(RING_EVENTS) {
            // SAFETY: a live event.
            let code = unsafe { (api.zeEventQueryStatus)(event) };
            ensure(
                code != ZE_RESULT_NOT_READY,
                UR_RESULT_ERROR_OUT_OF_RESOURCES,
            )?;
            check(code, "zeEventQueryStatus")?;
            // SAFETY: a live event of a pool.
            unsafe { call!(api, zeEventHostReset(event)) }?;
        }
        current.store(next, Ordering::Release);
        Ok(event)
    }

    fn event(&self, number: u64) -> Result<ze_event_handle_t> {
        let index = (number % u64::from(RING_EVENTS)) as u32;
        let mut events = self.events.lock();
        let slot = &mut events[index as usize];
        if let Some(event) = slot {
            return Ok(*event);
        }
        let desc = ze_event_desc_t {
            index,
            signal: ZE_EVENT_SCOPE_FLAG_HOST,
            wait: ZE_EVENT_SCOPE_FLAG_HOST,
            ..Default::default()
        };
        let mut raw = ze_event_handle_t::NULL;
        // SAFETY: the description has its tag, its index is free, and there is room for the handle.
        unsafe { call!(self.context.api, zeEventCreate(self.pool, &desc, &mut raw)) }?;
        *slot = Some(raw);
        Ok(raw)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let api = self.context.api;
        if api.is_torn_down() {
            return;
        }
        for event in self.events.get_mut().iter().flatten() {
            // SAFETY: the ring's own event, which nobody waits for any more.
            unsafe { (api.zeEventDestroy)(*event) };
        }
        let Some((handle, _)) = &self.export else {
            // SAFETY: opened by this, and no event of it is left.
            unsafe { (api.zeEventPoolCloseIpcHandle)(self.pool) };
            return;
        };
        if let Some(put) = api.zeEventPoolPutIpcHandle {
            // SAFETY: a live handle of this context.
            unsafe { put(self.context.raw, *handle) };
        }
        // SAFETY: made by this, and no event of it is left.
        unsafe { (api.zeEventPoolDestroy)(self.pool) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(bytes: &[(usize, u8)]) -> ze_ipc_event_pool_handle_t {
        let mut handle = ze_ipc_event_pool_handle_t::default();
        for (at, byte) in bytes {
            handle.data[*at] = byte.cast_signed();
        }
        handle
    }

    #[test]
    fn a_newer_drivers_handle_loses_its_process() {
        let mut bytes = vec![(0, 7), (IS_NAMED_BYTE, 3)];
        let without = unnamed(&handle(&bytes));
        let own = std::process::id().to_ne_bytes();
        bytes.extend((PROCESS_BYTE..).zip(own));
        assert_eq!(unnamed(&handle(&bytes)), without);
        // Flags of an older driver that happen to be this number.
        let old: Vec<_> = (PROCESS_BYTE..).zip(own).collect();
        assert_eq!(unnamed(&handle(&old))[PROCESS_BYTE..PROCESS_BYTE + 4], own);
    }
}

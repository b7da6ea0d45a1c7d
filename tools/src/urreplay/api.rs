//! Safe wrappers of the functions that a replay calls: one device, one context, one pool, and
//! queues.
//!
//! Owns every unsafe call of this program. [`Block`] ensures that memory is freed once and that
//! work stays inside of it.

use std::ffi::c_void;
use std::path::Path;
use std::ptr::{null, null_mut};

use ur::abi::*;
use ur::dl::{Binding, Library, LoadError};

use crate::Answer;

type Get<O, P> = unsafe extern "C" fn(P, u32, *mut O, *mut u32) -> ur_result_t;
type Waits = *const ur_event_handle_t;

ur::dl::symbols! {
    struct Functions {
        required {
            urLoaderInit: unsafe extern "C" fn(ur_device_init_flags_t, ur_loader_config_handle_t) -> ur_result_t,
            urLoaderTearDown: unsafe extern "C" fn() -> ur_result_t,
            urAdapterGet: unsafe extern "C" fn(u32, *mut ur_adapter_handle_t, *mut u32) -> ur_result_t,
            urAdapterRelease: unsafe extern "C" fn(ur_adapter_handle_t) -> ur_result_t,
            urPlatformGet: Get<ur_platform_handle_t, ur_adapter_handle_t>,
            urDeviceGetSelected: unsafe extern "C" fn(ur_platform_handle_t, ur_device_type_t, u32, *mut ur_device_handle_t, *mut u32) -> ur_result_t,
            urDeviceGetInfo: unsafe extern "C" fn(ur_device_handle_t, ur_device_info_t, usize, *mut c_void, *mut usize) -> ur_result_t,
            urDeviceRelease: unsafe extern "C" fn(ur_device_handle_t) -> ur_result_t,
            urContextCreate: unsafe extern "C" fn(u32, *const ur_device_handle_t, *const ur_context_properties_t, *mut ur_context_handle_t) -> ur_result_t,
            urContextRelease: unsafe extern "C" fn(ur_context_handle_t) -> ur_result_t,
            urQueueCreate: unsafe extern "C" fn(ur_context_handle_t, ur_device_handle_t, *const ur_queue_properties_t, *mut ur_queue_handle_t) -> ur_result_t,
            urQueueFinish: unsafe extern "C" fn(ur_queue_handle_t) -> ur_result_t,
            urQueueRelease: unsafe extern "C" fn(ur_queue_handle_t) -> ur_result_t,
            urEventWait: unsafe extern "C" fn(u32, Waits) -> ur_result_t,
            urEventRelease: unsafe extern "C" fn(ur_event_handle_t) -> ur_result_t,
            urUSMDeviceAlloc: unsafe extern "C" fn(ur_context_handle_t, ur_device_handle_t, *const ur_usm_desc_t, ur_usm_pool_handle_t, usize, *mut *mut c_void) -> ur_result_t,
            urUSMFree: unsafe extern "C" fn(ur_context_handle_t, *mut c_void) -> ur_result_t,
            urUSMPoolCreate: unsafe extern "C" fn(ur_context_handle_t, *mut ur_usm_pool_desc_t, *mut ur_usm_pool_handle_t) -> ur_result_t,
            urUSMPoolRelease: unsafe extern "C" fn(ur_usm_pool_handle_t) -> ur_result_t,
            urUSMPoolGetInfoExp: unsafe extern "C" fn(ur_usm_pool_handle_t, ur_usm_pool_info_t, *mut c_void, *mut usize) -> ur_result_t,
            urUSMPoolGetInfo: unsafe extern "C" fn(ur_usm_pool_handle_t, ur_usm_pool_info_t, usize, *mut c_void, *mut usize) -> ur_result_t,
            urEnqueueUSMFill: unsafe extern "C" fn(ur_queue_handle_t, *mut c_void, usize, *const c_void, usize, u32, Waits, *mut ur_event_handle_t) -> ur_result_t,
            urEnqueueUSMDeviceAllocExp: unsafe extern "C" fn(ur_queue_handle_t, ur_usm_pool_handle_t, usize, *const ur_exp_async_usm_alloc_properties_t, u32, Waits, *mut *mut c_void, *mut ur_event_handle_t) -> ur_result_t,
            urEnqueueUSMFreeExp: unsafe extern "C" fn(ur_queue_handle_t, ur_usm_pool_handle_t, *mut c_void, u32, Waits, *mut ur_event_handle_t) -> ur_result_t,
        }
        optional {}
    }
}

/// An initialised loader; torn down on drop.
pub struct Loader {
    functions: Functions,
}

impl Loader {
    pub fn open(path: &Path) -> Answer<Self> {
        let library = Library::open(path, Binding::Usual).map_err(|error| error.to_string())?;
        let functions =
            Functions::from_library(library).map_err(|error: LoadError| error.to_string())?;
        // SAFETY: a null configuration is allowed.
        let result = unsafe { (functions.urLoaderInit)(ur_device_init_flags_t(0), null_mut()) };
        check("urLoaderInit", result)?;
        Ok(Self { functions })
    }

    /// Creates a context on the first selected device, with its own pool. An error if no device is
    /// selected.
    pub fn session(&self) -> Answer<Session<'_>> {
        let ur = &self.functions;
        let (mut count, mut adapters) = (0, vec![null_mut(); 16]);
        // SAFETY: `adapters` has room for 16 handles, and the count is a local variable.
        let result = unsafe { (ur.urAdapterGet)(16, adapters.as_mut_ptr(), &raw mut count) };
        check("urAdapterGet", result)?;
        adapters.truncate(count as usize);
        let mut found = None;
        for adapter in &adapters {
            found = found.or_else(|| self.first_device(*adapter));
        }
        let mut session = Session {
            ur,
            adapters,
            device: found.ok_or("no device is selected")?,
            context: null_mut(),
            pool: null_mut(),
        };
        // SAFETY: the device is live, and the output is a field of `session`.
        let result = unsafe {
            (ur.urContextCreate)(
                1,
                &raw const session.device,
                null(),
                &raw mut session.context,
            )
        };
        check("urContextCreate", result)?;
        let mut desc = ur_usm_pool_desc_t {
            stype: UR_STRUCTURE_TYPE_USM_POOL_DESC,
            ..Default::default()
        };
        // SAFETY: the context is live, and the descriptor is a local variable.
        let result =
            unsafe { (ur.urUSMPoolCreate)(session.context, &raw mut desc, &raw mut session.pool) };
        check("urUSMPoolCreate", result)?;
        Ok(session)
    }

    fn first_device(&self, adapter: ur_adapter_handle_t) -> Option<ur_device_handle_t> {
        let ur = &self.functions;
        let (mut count, mut platforms) = (0, vec![null_mut(); 16]);
        // SAFETY: the adapter is live, `platforms` has room for 16 handles, and the count is a
        // local variable.
        unsafe { (ur.urPlatformGet)(adapter, 16, platforms.as_mut_ptr(), &raw mut count) };
        platforms.truncate(count as usize);
        platforms.into_iter().find_map(|platform| {
            let mut device = null_mut();
            // SAFETY: the platform is live, and the output is one local handle.
            let result = unsafe {
                let out = &raw mut device;
                (ur.urDeviceGetSelected)(platform, UR_DEVICE_TYPE_ALL, 1, out, null_mut())
            };
            (result == UR_RESULT_SUCCESS && !device.is_null()).then_some(device)
        })
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // SAFETY: this program has one thread, and all wrappers of handles borrow the loader.
        unsafe { (self.functions.urLoaderTearDown)() };
    }
}

/// The objects of a replay: one device, its context and pool.
pub struct Session<'a> {
    ur: &'a Functions,
    adapters: Vec<ur_adapter_handle_t>,
    device: ur_device_handle_t,
    context: ur_context_handle_t,
    pool: ur_usm_pool_handle_t,
}

/// An in-order queue. Its drop waits for its work.
pub struct Queue<'a> {
    session: &'a Session<'a>,
    handle: ur_queue_handle_t,
}

/// Device memory, to be freed by [`Session::free`] or [`Queue::free`].
pub struct Block {
    at: *mut c_void,
    bytes: usize,
}

pub struct Event<'a> {
    session: &'a Session<'a>,
    handle: ur_event_handle_t,
}

impl<'a> Session<'a> {
    pub fn queue(&'a self) -> Answer<Queue<'a>> {
        let mut handle = null_mut();
        // SAFETY: context and device are live, and the output is a local variable.
        let result =
            unsafe { (self.ur.urQueueCreate)(self.context, self.device, null(), &raw mut handle) };
        check("urQueueCreate", result)?;
        let session = self;
        Ok(Queue { session, handle })
    }

    /// Allocates device memory in order with the host, from the replay's pool if `counted`.
    pub fn alloc(&self, bytes: usize, counted: bool) -> Answer<Block> {
        let pool = if counted { self.pool } else { null_mut() };
        let mut at = null_mut();
        // SAFETY: all handles are live or null, and the output is a local variable.
        let result = unsafe {
            let out = &raw mut at;
            (self.ur.urUSMDeviceAlloc)(self.context, self.device, null(), pool, bytes, out)
        };
        check("urUSMDeviceAlloc", result).map(|()| Block { at, bytes })
    }

    #[inline]
    /// Frees memory on the host.
    pub fn free(&self, block: Block) -> Answer<()> {
        // SAFETY: the block is live, and this call consumes it.
        check("urUSMFree", unsafe {
            (self.ur.urUSMFree)(self.context, block.at)
        })
    }

    /// Waits for events on the host.
    pub fn wait(&self, events: &[&Event<'_>]) -> Answer<()> {
        let list: Vec<_> = events.iter().map(|event| event.handle).collect();
        if list.is_empty() {
            return Ok(());
        }
        // SAFETY: the borrowed events are live.
        let result = unsafe { (self.ur.urEventWait)(list.len() as u32, list.as_ptr()) };
        check("urEventWait", result)
    }

    /// A property of the pool as an integer; none if the adapter cannot report it.
    pub fn pool_property(&self, what: ur_usm_pool_info_t) -> Option<u64> {
        let mut value = 0_u64;
        let at = (&raw mut value).cast();
        // SAFETY: the pool is live, and callers query properties of 8 bytes.
        let result = unsafe { (self.ur.urUSMPoolGetInfo)(self.pool, what, 8, at, null_mut()) };
        if result == UR_RESULT_SUCCESS {
            return Some(value);
        }
        // Some adapters implement only one of the two queries.
        // SAFETY: the pool is live, and callers query properties of 8 bytes.
        let result = unsafe { (self.ur.urUSMPoolGetInfoExp)(self.pool, what, at, null_mut()) };
        (result == UR_RESULT_SUCCESS).then_some(value)
    }

    pub fn device_name(&self) -> String {
        let mut text = vec![0_u8; 1024];
        let at = text.as_mut_ptr().cast();
        let mut size = 0;
        // SAFETY: `text` has `text.len()` bytes, and the size is a local variable.
        let result = unsafe {
            let out = &raw mut size;
            (self.ur.urDeviceGetInfo)(self.device, UR_DEVICE_INFO_NAME, text.len(), at, out)
        };
        if result != UR_RESULT_SUCCESS {
            return "unknown".to_owned();
        }
        text.truncate(size.saturating_sub(1));
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // SAFETY: each handle is live or null, and is released once.
        unsafe {
            if !self.pool.is_null() {
                (self.ur.urUSMPoolRelease)(self.pool);
            }
            if !self.context.is_null() {
                (self.ur.urContextRelease)(self.context);
            }
            (self.ur.urDeviceRelease)(self.device);
            for adapter in &self.adapters {
                (self.ur.urAdapterRelease)(*adapter);
            }
        }
    }
}

impl<'a> Queue<'a> {
    /// Allocates memory in the queue's order.
    #[inline]
    pub fn alloc(&self, bytes: usize, waits: &[ur_event_handle_t]) -> Answer<Block> {
        let mut at = null_mut();
        let (count, list) = list(waits);
        // SAFETY: all handles are live, and the output is a local variable.
        let result = unsafe {
            (self.session.ur.urEnqueueUSMDeviceAllocExp)(
                self.handle,
                self.session.pool,
                bytes,
                null(),
                count,
                list,
                &raw mut at,
                null_mut(),
            )
        };
        check("urEnqueueUSMDeviceAllocExp", result).map(|()| Block { at, bytes })
    }

    /// Frees memory in the queue's order.
    #[inline]
    pub fn free(&self, block: Block, waits: &[ur_event_handle_t]) -> Answer<()> {
        let (count, list) = list(waits);
        // SAFETY: all handles are live, and this call consumes the block.
        let result = unsafe {
            let (queue, pool) = (self.handle, self.session.pool);
            (self.session.ur.urEnqueueUSMFreeExp)(queue, pool, block.at, count, list, null_mut())
        };
        check("urEnqueueUSMFreeExp", result)
    }

    /// Submits a fill of at most `max_bytes` of a block. Returns its event if `wanted`.
    pub fn fill(&self, block: &Block, max_bytes: usize, wanted: bool) -> Answer<Option<Event<'a>>> {
        let pattern = 0x5a_u8;
        let mut handle = null_mut();
        let event = if wanted { &raw mut handle } else { null_mut() };
        let bytes = block.bytes.min(max_bytes);
        // SAFETY: the block is live and has at least `bytes`; the call copies the pattern.
        let result = unsafe {
            let from = (&raw const pattern).cast();
            let fill = self.session.ur.urEnqueueUSMFill;
            fill(self.handle, block.at, 1, from, bytes, 0, null(), event)
        };
        check("urEnqueueUSMFill", result)?;
        let session = self.session;
        Ok(wanted.then_some(Event { session, handle }))
    }

    /// Waits for all work of the queue.
    pub fn finish(&self) -> Answer<()> {
        // SAFETY: the queue is live.
        check("urQueueFinish", unsafe {
            (self.session.ur.urQueueFinish)(self.handle)
        })
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        // SAFETY: the queue is live and not used after.
        unsafe {
            (self.session.ur.urQueueFinish)(self.handle);
            (self.session.ur.urQueueRelease)(self.handle);
        }
    }
}

impl Event<'_> {
    pub fn handle(&self) -> ur_event_handle_t {
        self.handle
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        // SAFETY: the event is live and not used after.
        unsafe { (self.session.ur.urEventRelease)(self.handle) };
    }
}

fn list(events: &[ur_event_handle_t]) -> (u32, Waits) {
    match events {
        [] => (0, null()),
        events => (events.len() as u32, events.as_ptr()),
    }
}

fn check(name: &str, result: ur_result_t) -> Answer<()> {
    match result {
        UR_RESULT_SUCCESS => Ok(()),
        error => Err(format!("{name}: {error:?}")),
    }
}

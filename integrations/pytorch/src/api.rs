//! Safe wrappers of the loader's functions that the allocator calls, and of two functions of the driver.
//!
//! Owns all handles of the process: they live until it ends. Knows no PyTorch.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};

use ur::abi::*;
use ur::dl::{Binding, Library};
use ur::object::chain::{NEVER_CAPTURED, TIGHT_POOL};

use crate::failure::{Failure, Result};

type Waits = *const ur_event_handle_t;

ur::dl::symbols! {
    struct Functions {
        required {
            urLoaderInit: unsafe extern "C" fn(ur_device_init_flags_t, ur_loader_config_handle_t) -> ur_result_t,
            urAdapterGet: unsafe extern "C" fn(u32, *mut ur_adapter_handle_t, *mut u32) -> ur_result_t,
            urAdapterGetInfo: unsafe extern "C" fn(ur_adapter_handle_t, ur_adapter_info_t, usize, *mut c_void, *mut usize) -> ur_result_t,
            urPlatformGet: unsafe extern "C" fn(ur_adapter_handle_t, u32, *mut ur_platform_handle_t, *mut u32) -> ur_result_t,
            urDeviceGet: unsafe extern "C" fn(ur_platform_handle_t, ur_device_type_t, u32, *mut ur_device_handle_t, *mut u32) -> ur_result_t,
            urDeviceGetInfo: unsafe extern "C" fn(ur_device_handle_t, ur_device_info_t, usize, *mut c_void, *mut usize) -> ur_result_t,
            urDeviceGetNativeHandle: unsafe extern "C" fn(ur_device_handle_t, *mut ur_native_handle_t) -> ur_result_t,
            urUsmP2PEnablePeerAccessExp: unsafe extern "C" fn(ur_device_handle_t, ur_device_handle_t) -> ur_result_t,
            urDeviceWaitExp: unsafe extern "C" fn(ur_device_handle_t) -> ur_result_t,
            urContextCreate: unsafe extern "C" fn(u32, *const ur_device_handle_t, *const ur_context_properties_t, *mut ur_context_handle_t) -> ur_result_t,
            urQueueCreate: unsafe extern "C" fn(ur_context_handle_t, ur_device_handle_t, *const ur_queue_properties_t, *mut ur_queue_handle_t) -> ur_result_t,
            urQueueCreateWithNativeHandle: unsafe extern "C" fn(ur_native_handle_t, ur_context_handle_t, ur_device_handle_t, *const ur_queue_native_properties_t, *mut ur_queue_handle_t) -> ur_result_t,
            urEnqueueEventsWait: unsafe extern "C" fn(ur_queue_handle_t, u32, Waits, *mut ur_event_handle_t) -> ur_result_t,
            urEventWait: unsafe extern "C" fn(u32, Waits) -> ur_result_t,
            urEventGetInfo: unsafe extern "C" fn(ur_event_handle_t, ur_event_info_t, usize, *mut c_void, *mut usize) -> ur_result_t,
            urEventRelease: unsafe extern "C" fn(ur_event_handle_t) -> ur_result_t,
            urUSMDeviceAlloc: unsafe extern "C" fn(ur_context_handle_t, ur_device_handle_t, *const ur_usm_desc_t, ur_usm_pool_handle_t, usize, *mut *mut c_void) -> ur_result_t,
            urUSMFree: unsafe extern "C" fn(ur_context_handle_t, *mut c_void) -> ur_result_t,
            urUSMGetMemAllocInfo: unsafe extern "C" fn(ur_context_handle_t, *const c_void, ur_usm_alloc_info_t, usize, *mut c_void, *mut usize) -> ur_result_t,
            urUSMPoolCreateExp: unsafe extern "C" fn(ur_context_handle_t, ur_device_handle_t, *mut ur_usm_pool_desc_t, *mut ur_usm_pool_handle_t) -> ur_result_t,
            urUSMPoolTrimToExp: unsafe extern "C" fn(ur_context_handle_t, ur_device_handle_t, ur_usm_pool_handle_t, usize) -> ur_result_t,
            urUSMPoolGetInfo: unsafe extern "C" fn(ur_usm_pool_handle_t, ur_usm_pool_info_t, usize, *mut c_void, *mut usize) -> ur_result_t,
            urUSMPoolGetInfoExp: unsafe extern "C" fn(ur_usm_pool_handle_t, ur_usm_pool_info_t, *mut c_void, *mut usize) -> ur_result_t,
            urUSMPoolSetInfoExp: unsafe extern "C" fn(ur_usm_pool_handle_t, ur_usm_pool_info_t, *mut c_void, usize) -> ur_result_t,
            urEnqueueUSMDeviceAllocExp: unsafe extern "C" fn(ur_queue_handle_t, ur_usm_pool_handle_t, usize, *const ur_exp_async_usm_alloc_properties_t, u32, Waits, *mut *mut c_void, *mut ur_event_handle_t) -> ur_result_t,
            urEnqueueUSMFreeExp: unsafe extern "C" fn(ur_queue_handle_t, ur_usm_pool_handle_t, *mut c_void, u32, Waits, *mut ur_event_handle_t) -> ur_result_t,
        }
        optional {}
    }
}

ur::dl::symbols! {
    struct Driver {
        required {
            cuStreamIsCapturing: unsafe extern "C" fn(*mut c_void, *mut c_int) -> u32,
            cuThreadExchangeStreamCaptureMode: unsafe extern "C" fn(*mut c_int) -> u32,
        }
        optional {}
    }
}

/// The legacy default stream, under its two names. No capture can take it.
const DEFAULT_STREAMS: [usize; 2] = [0, 1];

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: the thread's calls that a capture forbids by default are allowed.
const RELAXED: c_int = 2;

/// The open libraries.
pub struct Ur {
    functions: Functions,
    driver: Option<Driver>,
}

/// A handle of the loader's. Every thread may use it.
#[derive(Clone, Copy)]
pub struct Shared<T>(T);

// SAFETY: the interface's objects may be used by several threads at once, and this library destroys none.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: the interface's objects may be used by several threads at once, and this library destroys none.
unsafe impl<T> Sync for Shared<T> {}

pub type DeviceHandle = Shared<ur_device_handle_t>;
pub type Queue = Shared<ur_queue_handle_t>;

/// A device with its context and pool.
#[derive(Clone, Copy)]
pub struct Place {
    device: DeviceHandle,
    context: Shared<ur_context_handle_t>,
    pool: Shared<ur_usm_pool_handle_t>,
}

/// An event, released when dropped.
pub struct Event {
    ur: &'static Ur,
    handle: ur_event_handle_t,
}

impl Ur {
    /// Opens the loader beside this library, or else by the system's search.
    pub fn open() -> Result<Self> {
        let name = "libur_loader.so.0";
        let beside = own_folder().map(|folder| {
            let built = folder.join("libur_loader.so");
            let installed = folder.join(name);
            [installed, built]
        });
        let mut paths = beside.into_iter().flatten();
        let path = paths.find(|path| path.exists());
        let path = path.unwrap_or_else(|| PathBuf::from(name));
        let library = Library::open(&path, Binding::Usual).map_err(Failure::load)?;
        let functions = Functions::from_library(library).map_err(Failure::load)?;
        // SAFETY: a null configuration is allowed.
        let result = unsafe { (functions.urLoaderInit)(ur_device_init_flags_t(0), null_mut()) };
        check("urLoaderInit", result)?;
        let driver = Driver::load(&["libcuda.so.1"]).ok();
        Ok(Self { functions, driver })
    }

    /// NVIDIA's GPUs, each with the driver's ordinal.
    pub fn devices(&self) -> Result<Vec<(i32, DeviceHandle)>> {
        let ur = &self.functions;
        let mut found = Vec::new();
        // SAFETY: this and the next two calls get room for the handles that they count.
        let adapters = list("urAdapterGet", |room, out, count| unsafe {
            (ur.urAdapterGet)(room, out, count)
        })?;
        for adapter in adapters {
            let mut backend = ur_backend_t(0);
            let out = (&raw mut backend).cast();
            let size = size_of::<ur_backend_t>();
            // SAFETY: the adapter is live, and the output has room for the property.
            let result = unsafe {
                (ur.urAdapterGetInfo)(adapter, UR_ADAPTER_INFO_BACKEND, size, out, null_mut())
            };
            check("urAdapterGetInfo", result)?;
            if backend != UR_BACKEND_CUDA {
                continue;
            }
            // SAFETY: the adapter is live.
            let platforms = list("urPlatformGet", |room, out, count| unsafe {
                (ur.urPlatformGet)(adapter, room, out, count)
            })?;
            for platform in platforms {
                // SAFETY: the platform is live.
                let devices = list("urDeviceGet", |room, out, count| unsafe {
                    (ur.urDeviceGet)(platform, UR_DEVICE_TYPE_ALL, room, out, count)
                })?;
                for device in devices {
                    let mut ordinal = 0;
                    // SAFETY: the device is live, and the output is a local variable.
                    let result = unsafe { (ur.urDeviceGetNativeHandle)(device, &mut ordinal) };
                    check("urDeviceGetNativeHandle", result)?;
                    found.push((ordinal as i32, Shared(device)));
                }
            }
        }
        Ok(found)
    }

    /// A context of a device, with a pool of at most this part of the device's memory.
    pub fn place(&self, device: DeviceHandle, fraction: f64) -> Result<Place> {
        let ur = &self.functions;
        let (mut context, mut pool) = (null_mut(), null_mut());
        // SAFETY: the device is live, and the output is a local variable.
        let result = unsafe { (ur.urContextCreate)(1, &device.0, null(), &mut context) };
        check("urContextCreate", result)?;
        let tight = ur_base_desc_t {
            stype: TIGHT_POOL,
            ..Default::default()
        };
        let mut limits = ur_usm_pool_limits_desc_t {
            pNext: (&raw const tight).cast(),
            minDriverAllocSize: usize::MAX,
            ..Default::default()
        };
        let mut desc = ur_usm_pool_desc_t {
            pNext: (&raw const tight).cast(),
            ..Default::default()
        };
        if fraction < 1.0 {
            limits.maxPoolableSize = (self.memory(device)? as f64 * fraction) as usize;
            desc.pNext = (&raw const limits).cast();
        }
        // SAFETY: both handles are live, and the descriptors are local variables.
        let result = unsafe { (ur.urUSMPoolCreateExp)(context, device.0, &mut desc, &mut pool) };
        check("urUSMPoolCreateExp", result)?;
        Ok(Place {
            device,
            context: Shared(context),
            pool: Shared(pool),
        })
    }

    /// Lets a device access all memory of another one. False if there is no link between the two.
    pub fn give_access(&self, device: DeviceHandle, home: DeviceHandle) -> Result<bool> {
        // SAFETY: both handles are live.
        let result = unsafe { (self.functions.urUsmP2PEnablePeerAccessExp)(device.0, home.0) };
        match result {
            UR_RESULT_ERROR_UNSUPPORTED_FEATURE => Ok(false),
            // Somebody else has enabled it.
            UR_RESULT_ERROR_INVALID_OPERATION => Ok(true),
            result => check("urUsmP2PEnablePeerAccessExp", result).map(|()| true),
        }
    }

    /// The bytes of a device's memory.
    fn memory(&self, device: DeviceHandle) -> Result<u64> {
        let mut bytes = 0_u64;
        let (what, out) = (UR_DEVICE_INFO_GLOBAL_MEM_SIZE, (&raw mut bytes).cast());
        // SAFETY: the device is live, and the property has 8 bytes.
        let result = unsafe {
            (self.functions.urDeviceGetInfo)(device.0, what, size_of::<u64>(), out, null_mut())
        };
        check("urDeviceGetInfo", result)?;
        Ok(bytes)
    }

    /// A queue over a stream of the caller's. It fails with `INVALID_CONTEXT` for another device's stream.
    pub fn adopt(&self, at: Place, stream: usize) -> Result<Queue> {
        // While a stream is captured, `captures` serves it without its queue.
        let promise = ur_base_properties_t {
            stype: NEVER_CAPTURED,
            ..Default::default()
        };
        let properties = ur_queue_native_properties_t {
            pNext: (&raw const promise).cast_mut().cast(),
            ..Default::default()
        };
        let mut queue = null_mut();
        // SAFETY: the handles are live, PyTorch passes a live stream, and the output is a local variable.
        let result = unsafe {
            let adopt = self.functions.urQueueCreateWithNativeHandle;
            adopt(stream, at.context.0, at.device.0, &properties, &mut queue)
        };
        check("urQueueCreateWithNativeHandle", result)?;
        Ok(Shared(queue))
    }

    /// A queue whose commands are ordered by events alone.
    pub fn unordered_queue(&self, at: Place) -> Result<Queue> {
        let properties = ur_queue_properties_t {
            flags: UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE,
            ..Default::default()
        };
        let mut queue = null_mut();
        // SAFETY: the handles are live, and the output is a local variable.
        let result = unsafe {
            (self.functions.urQueueCreate)(at.context.0, at.device.0, &properties, &mut queue)
        };
        check("urQueueCreate", result)?;
        Ok(Shared(queue))
    }

    /// Memory in the order of a queue.
    #[inline]
    pub fn alloc(&self, at: Place, queue: Queue, bytes: usize) -> Result<*mut c_void> {
        let mut memory = null_mut();
        // SAFETY: the handles are live, and the output is a local variable.
        let result = unsafe {
            let alloc = self.functions.urEnqueueUSMDeviceAllocExp;
            alloc(
                queue.0,
                at.pool.0,
                bytes,
                null(),
                0,
                null(),
                &mut memory,
                null_mut(),
            )
        };
        check("urEnqueueUSMDeviceAllocExp", result)?;
        Ok(memory)
    }

    /// Frees memory in the order of a queue, and after events.
    #[inline]
    pub fn free(&self, at: Place, queue: Queue, memory: usize, after: &[Event]) -> Result<()> {
        let events: Vec<_> = after.iter().map(|event| event.handle).collect();
        let list = if events.is_empty() {
            null()
        } else {
            events.as_ptr()
        };
        // SAFETY: the handles are live, and an address that is no allocation is an error.
        let result = unsafe {
            let free = self.functions.urEnqueueUSMFreeExp;
            free(
                queue.0,
                at.pool.0,
                pointer(memory),
                events.len() as u32,
                list,
                null_mut(),
            )
        };
        check("urEnqueueUSMFreeExp", result)
    }

    /// Memory that no pending work uses. No stream is touched.
    pub fn alloc_now(&self, at: Place, bytes: usize) -> Result<*mut c_void> {
        let mut memory = null_mut();
        // SAFETY: the handles are live, and the output is a local variable.
        let result = unsafe {
            let alloc = self.functions.urUSMDeviceAlloc;
            alloc(
                at.context.0,
                at.device.0,
                null(),
                at.pool.0,
                bytes,
                &mut memory,
            )
        };
        check("urUSMDeviceAlloc", result)?;
        Ok(memory)
    }

    /// Frees memory that no pending work uses.
    pub fn free_now(&self, at: Place, memory: usize) -> Result<()> {
        // SAFETY: the context is live, and an address that is no allocation is an error.
        let result = unsafe { (self.functions.urUSMFree)(at.context.0, pointer(memory)) };
        check("urUSMFree", result)
    }

    /// An event of the work submitted to a queue so far.
    pub fn marker(&'static self, queue: Queue) -> Result<Event> {
        let mut handle = null_mut();
        // SAFETY: the queue is live, and the output is a local variable.
        let result =
            unsafe { (self.functions.urEnqueueEventsWait)(queue.0, 0, null(), &mut handle) };
        check("urEnqueueEventsWait", result)?;
        Ok(Event { ur: self, handle })
    }

    /// Blocks until all work of a device has completed.
    pub fn wait(&self, at: Place) -> Result<()> {
        // SAFETY: the device is live.
        let result = unsafe { (self.functions.urDeviceWaitExp)(at.device.0) };
        check("urDeviceWaitExp", result)
    }

    /// Returns free memory to the driver.
    pub fn trim(&self, at: Place) -> Result<()> {
        // SAFETY: the handles are live.
        let result =
            unsafe { (self.functions.urUSMPoolTrimToExp)(at.context.0, at.device.0, at.pool.0, 0) };
        check("urUSMPoolTrimToExp", result)
    }

    /// A figure of the pool, in bytes.
    pub fn figure(&self, at: Place, what: ur_usm_pool_info_t) -> Result<usize> {
        let mut value = 0_usize;
        let out = (&raw mut value).cast();
        // SAFETY: the pool is live, and its figures are of this type.
        let result =
            unsafe { (self.functions.urUSMPoolGetInfoExp)(at.pool.0, what, out, null_mut()) };
        check("urUSMPoolGetInfoExp", result)?;
        Ok(value)
    }

    /// Sets a high of the pool to the present value.
    pub fn reset_high(&self, at: Place, what: ur_usm_pool_info_t) -> Result<()> {
        let mut zero = 0_usize;
        let from = (&raw mut zero).cast();
        // SAFETY: the pool is live, and a high is of this type.
        let result = unsafe {
            (self.functions.urUSMPoolSetInfoExp)(at.pool.0, what, from, size_of::<usize>())
        };
        check("urUSMPoolSetInfoExp", result)
    }

    /// All figures and counters of the pool, as one line of text.
    pub fn report(&self, at: Place) -> Result<String> {
        let mut size = 0;
        let query = self.functions.urUSMPoolGetInfo;
        let what = UR_USM_POOL_INFO_REPORT_EXT;
        // SAFETY: the pool is live, and the output is a local variable.
        let result = unsafe { query(at.pool.0, what, 0, null_mut(), &mut size) };
        check("urUSMPoolGetInfo", result)?;
        // Figures may become longer before the second query.
        let mut text = vec![0_u8; size + 256];
        let (room, out) = (text.len(), text.as_mut_ptr().cast());
        // SAFETY: the pool is live, and the output has `room` bytes.
        let result = unsafe { query(at.pool.0, what, room, out, &mut size) };
        check("urUSMPoolGetInfo", result)?;
        text.truncate(size.saturating_sub(1));
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The start and the bytes of the allocation that has an address.
    pub fn allocation(&self, at: Place, memory: usize) -> Result<(*mut c_void, usize)> {
        let (mut base, mut bytes): (*mut c_void, usize) = (null_mut(), 0);
        for (what, out) in [
            (UR_USM_ALLOC_INFO_BASE_PTR, (&raw mut base).cast()),
            (UR_USM_ALLOC_INFO_SIZE, (&raw mut bytes).cast()),
        ] {
            // SAFETY: the context is live, and both properties have the size of an address.
            let result = unsafe {
                let query = self.functions.urUSMGetMemAllocInfo;
                query(
                    at.context.0,
                    pointer(memory),
                    what,
                    size_of::<usize>(),
                    out,
                    null_mut(),
                )
            };
            check("urUSMGetMemAllocInfo", result)?;
        }
        Ok((base, bytes))
    }

    /// Runs a body whose calls for memory leave open captures alone.
    pub fn relaxed<R>(&self, body: impl FnOnce() -> R) -> R {
        let mut mode = RELAXED;
        // SAFETY: the mode is valid, and the variable receives the one before.
        let exchange = |mode: &mut c_int| unsafe {
            let driver = self.driver.as_ref();
            driver.is_some_and(|driver| (driver.cuThreadExchangeStreamCaptureMode)(mode) == 0)
        };
        let changed = exchange(&mut mode);
        let value = body();
        if changed {
            exchange(&mut mode);
        }
        value
    }

    /// Whether a CUDA graph is being captured from a stream.
    pub fn is_captured(&self, stream: usize) -> bool {
        if DEFAULT_STREAMS.contains(&stream) {
            return false;
        }
        let mut status = 0;
        self.driver.as_ref().is_some_and(|driver| {
            // SAFETY: PyTorch passes a live stream, and the output is a local variable.
            let code = unsafe { (driver.cuStreamIsCapturing)(pointer(stream), &mut status) };
            code == 0 && status != 0
        })
    }
}

// SAFETY: the interface's objects may be used by several threads at once, and only the drop releases this one.
unsafe impl Send for Event {}

impl Event {
    /// Whether the event has completed.
    pub fn is_complete(&self) -> Result<bool> {
        let mut status = ur_event_status_t(0);
        let (what, out) = (
            UR_EVENT_INFO_COMMAND_EXECUTION_STATUS,
            (&raw mut status).cast(),
        );
        // SAFETY: the event is live, and the output has room for the property.
        let result = unsafe {
            let query = self.ur.functions.urEventGetInfo;
            query(
                self.handle,
                what,
                size_of::<ur_event_status_t>(),
                out,
                null_mut(),
            )
        };
        check("urEventGetInfo", result)?;
        Ok(status == UR_EVENT_STATUS_COMPLETE)
    }

    /// Blocks until the event has completed.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the event is live.
        let result = unsafe { (self.ur.functions.urEventWait)(1, &self.handle) };
        check("urEventWait", result)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event is live and not used after.
        unsafe { (self.ur.functions.urEventRelease)(self.handle) };
    }
}

fn pointer(address: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address)
}

/// All handles that a call can write. It is called for their number first.
fn list<T>(
    name: &'static str,
    call: impl Fn(u32, *mut *mut T, *mut u32) -> ur_result_t,
) -> Result<Vec<*mut T>> {
    let mut count = 0;
    check(name, call(0, null_mut(), &mut count))?;
    let mut handles = vec![null_mut(); count as usize];
    if count > 0 {
        check(name, call(count, handles.as_mut_ptr(), null_mut()))?;
    }
    Ok(handles)
}

#[inline]
fn check(call: &'static str, result: ur_result_t) -> Result<()> {
    match result {
        UR_RESULT_SUCCESS => Ok(()),
        code => Err(Failure::call(call, code)),
    }
}

/// The folder of the file that this code was loaded from.
fn own_folder() -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: null(),
        dli_fbase: null_mut(),
        dli_sname: null(),
        dli_saddr: null_mut(),
    };
    let here = own_folder as fn() -> Option<PathBuf> as *const c_void;
    // SAFETY: `dladdr` accepts any address, and the output is a local variable.
    let found = unsafe { libc::dladdr(here, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: `dladdr` found the file, whose name is a C string while it is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    Some(path.canonicalize().ok()?.parent()?.to_owned())
}

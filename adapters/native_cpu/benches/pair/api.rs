//! The C interface of the built loader, with the native CPU's adapter behind it.

use std::ffi::{CStr, c_void};
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use ur::abi::*;
use ur::dl::{Binding, Library, function};

/// Calls an exported function of the loader and expects success.
macro_rules! ok {
    ($library:expr, $name:literal: $type:ty, $($argument:expr),*) => {{
        // SAFETY: the loader's function of this name has this type; the arguments are live objects
        // and memory of the benchmark.
        let result = unsafe { get::<$type>($library, $name)($($argument),*) };
        assert_eq!(result, UR_RESULT_SUCCESS, "{:?}", $name)
    }};
}

/// # Safety
/// `F` is the type of the function with this name.
unsafe fn get<F: Copy>(library: &Library, name: &CStr) -> F {
    // SAFETY: the caller gives the type of the function with this name.
    unsafe { function(library.address(name)) }.expect("the loader exports it")
}

type Init = unsafe extern "C" fn(ur_device_init_flags_t, ur_loader_config_handle_t) -> ur_result_t;
type AdapterGet = unsafe extern "C" fn(u32, *mut ur_adapter_handle_t, *mut u32) -> ur_result_t;
type PlatformGet = unsafe extern "C" fn(
    ur_adapter_handle_t,
    u32,
    *mut ur_platform_handle_t,
    *mut u32,
) -> ur_result_t;
type DeviceGet = unsafe extern "C" fn(
    ur_platform_handle_t,
    ur_device_type_t,
    u32,
    *mut ur_device_handle_t,
    *mut u32,
) -> ur_result_t;
type ContextCreate = unsafe extern "C" fn(
    u32,
    *const ur_device_handle_t,
    *const ur_context_properties_t,
    *mut ur_context_handle_t,
) -> ur_result_t;
type QueueCreate = unsafe extern "C" fn(
    ur_context_handle_t,
    ur_device_handle_t,
    *const ur_queue_properties_t,
    *mut ur_queue_handle_t,
) -> ur_result_t;
type QueueRelease = unsafe extern "C" fn(ur_queue_handle_t) -> ur_result_t;
type Alloc = unsafe extern "C" fn(
    ur_queue_handle_t,
    ur_usm_pool_handle_t,
    usize,
    *const ur_exp_async_usm_alloc_properties_t,
    u32,
    *const ur_event_handle_t,
    *mut *mut c_void,
    *mut ur_event_handle_t,
) -> ur_result_t;
type EventRelease = unsafe extern "C" fn(ur_event_handle_t) -> ur_result_t;
type Free = unsafe extern "C" fn(
    ur_queue_handle_t,
    ur_usm_pool_handle_t,
    *mut c_void,
    u32,
    *const ur_event_handle_t,
    *mut ur_event_handle_t,
) -> ur_result_t;

/// The loader, with a context of the native CPU.
pub struct Fixture {
    library: Library,
    context: ur_context_handle_t,
    device: ur_device_handle_t,
    alloc: Alloc,
    free: Free,
    event_release: EventRelease,
}

// SAFETY: handles may be used from any thread.
unsafe impl Sync for Fixture {}

impl Fixture {
    pub fn new() -> Self {
        let built = std::env::current_exe().expect("this benchmark has a file");
        let built: PathBuf = built.ancestors().nth(2).expect("in deps/").into();
        let adapter = built.join("libur_adapter_native_cpu.so");
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var("UR_ADAPTERS_FORCE_LOAD", adapter) };
        let library = Library::open(built.join("libur_loader.so"), Binding::Usual)
            .expect("the loader is built: cargo build --release --workspace");
        let (mut adapter, mut platform, mut device, mut context) =
            (null_mut(), null_mut(), null_mut(), null_mut());
        ok!(&library, c"urLoaderInit": Init, Default::default(), null_mut());
        ok!(&library, c"urAdapterGet": AdapterGet, 1, &raw mut adapter, null_mut());
        ok!(&library, c"urPlatformGet": PlatformGet, adapter, 1, &raw mut platform, null_mut());
        ok!(
            &library, c"urDeviceGet": DeviceGet,
            platform, UR_DEVICE_TYPE_ALL, 1, &raw mut device, null_mut()
        );
        ok!(
            &library, c"urContextCreate": ContextCreate,
            1, &raw const device, null(), &raw mut context
        );
        // SAFETY: these are their types.
        let (alloc, free, event_release) = unsafe {
            (
                get(&library, c"urEnqueueUSMDeviceAllocExp"),
                get(&library, c"urEnqueueUSMFreeExp"),
                get(&library, c"urEventRelease"),
            )
        };
        Self {
            library,
            context,
            device,
            alloc,
            free,
            event_release,
        }
    }

    pub fn queue(&self) -> ur_queue_handle_t {
        let mut queue = null_mut();
        ok!(
            &self.library, c"urQueueCreate": QueueCreate,
            self.context, self.device, null(), &raw mut queue
        );
        queue
    }

    pub fn release(&self, queue: ur_queue_handle_t) {
        ok!(&self.library, c"urQueueRelease": QueueRelease, queue);
    }

    #[inline]
    pub fn pair(&self, queue: ur_queue_handle_t, bytes: usize) {
        self.free(queue, self.alloc(queue, bytes));
    }

    #[inline]
    pub fn alloc(&self, queue: ur_queue_handle_t, bytes: usize) -> *mut c_void {
        self.alloc_with(queue, bytes, null_mut())
    }

    /// Frees what `alloc` gave on that queue, which the caller does once.
    #[inline]
    pub fn free(&self, queue: ur_queue_handle_t, memory: *mut c_void) {
        self.free_with(queue, memory, null_mut());
    }

    /// Allocates, with an event if `event` is not null.
    #[inline]
    fn alloc_with(
        &self,
        queue: ur_queue_handle_t,
        bytes: usize,
        event: *mut ur_event_handle_t,
    ) -> *mut c_void {
        let (pool, properties, mut memory) = (null_mut(), null(), null_mut());
        let to = &raw mut memory;
        // SAFETY: the queue is alive, and `event` is null or the caller's variable.
        let result = unsafe { (self.alloc)(queue, pool, bytes, properties, 0, null(), to, event) };
        assert_eq!(result, UR_RESULT_SUCCESS);
        memory
    }

    /// Frees, with an event if `event` is not null.
    #[inline]
    fn free_with(
        &self,
        queue: ur_queue_handle_t,
        memory: *mut c_void,
        event: *mut ur_event_handle_t,
    ) {
        // SAFETY: the queue is alive, the memory is freed once, and `event` is null or the caller's variable.
        let result = unsafe { (self.free)(queue, null_mut(), memory, 0, null(), event) };
        assert_eq!(result, UR_RESULT_SUCCESS);
    }

    /// A pair of which each call gives an event, and their releases.
    #[inline]
    pub fn pair_with_events(&self, queue: ur_queue_handle_t, bytes: usize) {
        let (mut born, mut died) = (null_mut(), null_mut());
        let memory = self.alloc_with(queue, bytes, &raw mut born);
        self.free_with(queue, memory, &raw mut died);
        // SAFETY: each event is released once.
        let results = unsafe { [(self.event_release)(born), (self.event_release)(died)] };
        assert_eq!(results, [UR_RESULT_SUCCESS; 2]);
    }
}

//! What an asynchronous allocation and its free cost together, through the C API: the built loader
//! and adapter, an in-order queue, no wait list, no event. In the same run: malloc and free of
//! mimalloc, and one uncontended atomic read-modify-write.
//!
//! ```text
//! cargo build --release --workspace && cargo bench -p ur-adapter-native-cpu
//! ```

use criterion::{BenchmarkId, Criterion};
use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{CStr, c_void};
use std::hint::black_box;
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
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
    // SAFETY: the caller's promise.
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
type Free = unsafe extern "C" fn(
    ur_queue_handle_t,
    ur_usm_pool_handle_t,
    *mut c_void,
    u32,
    *const ur_event_handle_t,
    *mut ur_event_handle_t,
) -> ur_result_t;

struct Bench {
    library: Library,
    context: ur_context_handle_t,
    device: ur_device_handle_t,
    alloc: Alloc,
    free: Free,
}

// SAFETY: handles may be used from any thread.
unsafe impl Sync for Bench {}

impl Bench {
    fn new() -> Self {
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
        let (alloc, free) = unsafe {
            (
                get(&library, c"urEnqueueUSMDeviceAllocExp"),
                get(&library, c"urEnqueueUSMFreeExp"),
            )
        };
        Self {
            library,
            context,
            device,
            alloc,
            free,
        }
    }

    fn queue(&self) -> ur_queue_handle_t {
        let mut queue = null_mut();
        ok!(
            &self.library, c"urQueueCreate": QueueCreate,
            self.context, self.device, null(), &raw mut queue
        );
        queue
    }

    fn release(&self, queue: ur_queue_handle_t) {
        ok!(&self.library, c"urQueueRelease": QueueRelease, queue);
    }

    #[inline]
    fn pair(&self, queue: ur_queue_handle_t, bytes: usize) {
        let mut memory = null_mut();
        // SAFETY: the queue is alive, the memory is freed once.
        let results = unsafe {
            (
                (self.alloc)(
                    queue,
                    null_mut(),
                    bytes,
                    null(),
                    0,
                    null(),
                    &raw mut memory,
                    null_mut(),
                ),
                (self.free)(queue, null_mut(), memory, 0, null(), null_mut()),
            )
        };
        assert_eq!(results, (UR_RESULT_SUCCESS, UR_RESULT_SUCCESS));
    }

    /// The time that `threads` threads take for so many pairs each, each on a queue of its own.
    fn threads(&self, threads: usize, pairs: u64, bytes: usize) -> Duration {
        let start = Barrier::new(threads);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|_| {
                    let start = &start;
                    scope.spawn(move || {
                        let queue = self.queue();
                        self.pair(queue, bytes);
                        start.wait();
                        let began = Instant::now();
                        (0..pairs).for_each(|_| self.pair(queue, bytes));
                        let took = began.elapsed();
                        self.release(queue);
                        took
                    })
                })
                .collect();
            let took = workers.into_iter().map(|worker| worker.join());
            took.map(|took| took.expect("no thread fails"))
                .max()
                .unwrap_or_default()
        })
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let bench = Bench::new();
    let mut group = criterion.benchmark_group("pair");
    let queue = bench.queue();
    for shift in (8..=28).step_by(4) {
        let bytes = 1usize << shift;
        group.bench_function(BenchmarkId::new("async", bytes), |b| {
            b.iter(|| bench.pair(queue, black_box(bytes)));
        });
    }
    bench.release(queue);
    for threads in [1, 2] {
        group.bench_function(BenchmarkId::new("async 4096, threads", threads), |b| {
            b.iter_custom(|pairs| bench.threads(threads, pairs, 4096));
        });
    }
    group.bench_function("mimalloc/4096", |b| {
        let layout = Layout::from_size_align(4096, 16).expect("a layout");
        b.iter(|| {
            // SAFETY: freed once, as it was allocated.
            unsafe { MiMalloc.dealloc(black_box(MiMalloc.alloc(black_box(layout))), layout) };
        });
    });
    group.bench_function("atomic add", |b| {
        let counter = AtomicU64::new(0);
        b.iter(|| black_box(&counter).fetch_add(1, Ordering::AcqRel));
    });
    group.finish();
    criterion.final_summary();
}

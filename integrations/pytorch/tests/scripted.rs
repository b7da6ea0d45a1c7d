//! The allocator over the CUDA adapter and a fake driver, whose streams wait and whose calls fail as a test says.
//!
//! Each test runs in a process of its own, since the allocator opens its loader once.

#[allow(dead_code)]
#[path = "../../../conformance/tests/support/mod.rs"]
mod support;

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use scripted_cuda::{Answer, EACH, Fault};
use support::{clean, success};
use ur::dl::{Binding, Library};
use ur_pytorch::*;

ur::dl::symbols! {
    struct Control {
        required {
            scripted_fail: unsafe extern "C" fn(Fault, *const c_char),
            scripted_capture: extern "C" fn(usize),
            scripted_memory: extern "C" fn(usize),
            scripted_query: extern "C" fn() -> Answer,
            scripted_report: unsafe extern "C" fn(*mut c_char, usize),
            cuMemcpyAsync: unsafe extern "C" fn(u64, u64, usize, *mut c_void) -> u32,
            cuCtxGetCurrent: unsafe extern "C" fn(*mut *mut c_void) -> u32,
            cuCtxSetCurrent: unsafe extern "C" fn(*mut c_void) -> u32,
            cuDevicePrimaryCtxRetain: unsafe extern "C" fn(*mut *mut c_void, i32) -> u32,
            cuStreamCreateWithPriority: unsafe extern "C" fn(*mut *mut c_void, c_uint, c_int) -> u32,
            cuStreamWaitValue32_v2: unsafe extern "C" fn(*mut c_void, u64, u32, c_uint) -> u32,
            cuStreamSynchronize: unsafe extern "C" fn(*mut c_void) -> u32,
        }
        optional {}
    }
}

const BYTES: isize = 4 << 20;

/// `CUDA_ERROR_OUT_OF_MEMORY`
const OUT_OF_MEMORY: u32 = 2;

/// The fake driver with the first device's primary context current.
struct Driver(Control);

impl Driver {
    fn open() -> Self {
        let own = std::env::current_exe().expect("this program");
        let path = own.with_file_name("libscripted_cuda.so");
        let library = Library::open(path, Binding::Usual).expect("the scripted library");
        let driver = Self(Control::from_library(library).expect("its functions"));
        driver.fail("", 0, 0);
        let mut context = null_mut();
        // SAFETY: the output is a local variable, and the context is live.
        unsafe {
            (driver.0.cuDevicePrimaryCtxRetain)(&mut context, 0);
            (driver.0.cuCtxSetCurrent)(context);
        }
        driver
    }

    /// Makes the nth call from now fail, of a function or of any.
    fn fail(&self, name: &str, nth: u64, code: u32) {
        let text = CString::new(name).expect("a name");
        let only = if name.is_empty() {
            null()
        } else {
            text.as_ptr()
        };
        // SAFETY: null or a C string.
        unsafe { (self.0.scripted_fail)(Fault { nth, code }, only) };
    }

    /// The number of calls of a function, or of any, while `run` runs.
    fn calls(&self, name: &str, run: impl FnOnce()) -> u64 {
        self.fail(name, 0, 0);
        run();
        let calls = self.query().calls;
        self.fail("", 0, 0);
        calls
    }

    /// The state of the driver. No call may have been a forbidden one.
    fn query(&self) -> Answer {
        let seen = (self.0.scripted_query)();
        let mut text = vec![0_u8; 4096];
        // SAFETY: the output has room for this many bytes.
        unsafe { (self.0.scripted_report)(text.as_mut_ptr().cast(), text.len()) };
        assert_eq!(seen.broken, 0, "{}", String::from_utf8_lossy(&text));
        seen
    }

    fn stream(&self) -> *mut c_void {
        let mut stream = null_mut();
        // SAFETY: the output is a local variable.
        let code = unsafe { (self.0.cuStreamCreateWithPriority)(&mut stream, 1, 0) };
        assert_eq!(code, 0);
        stream
    }

    /// Makes a stream wait until the word is 1.
    fn block(&self, stream: *mut c_void, word: &'static AtomicU32) {
        let at = word.as_ptr().expose_provenance() as u64;
        // SAFETY: the word lives until the process ends.
        let code = unsafe { (self.0.cuStreamWaitValue32_v2)(stream, at, 1, 0) };
        assert_eq!(code, 0);
    }

    fn wait(&self, stream: *mut c_void) {
        // SAFETY: the stream is live.
        assert_eq!(unsafe { (self.0.cuStreamSynchronize)(stream) }, 0);
    }

    fn set_current(&self, context: *mut c_void) {
        // SAFETY: the scripted library does not access contexts.
        unsafe { (self.0.cuCtxSetCurrent)(context) };
    }

    fn current(&self) -> *mut c_void {
        let mut context = null_mut();
        // SAFETY: the output is a local variable.
        unsafe { (self.0.cuCtxGetCurrent)(&mut context) };
        context
    }
}

const ALONE: &str = "UR_PYTORCH_TEST_ALONE";

/// Runs a test of this file in a process of its own, with the built loader and CUDA adapter.
fn alone(name: &str, test: impl FnOnce(&Driver)) {
    alone_with("cuda", name, || test(&Driver::open()));
}

/// Runs a test of this file in a process of its own, with the built loader and one adapter.
fn alone_with(adapter: &str, name: &str, test: impl FnOnce()) {
    alone_in(adapter, name, &[], test);
}

/// As [`alone_with`], with these environment variables.
fn alone_in(adapter: &str, name: &str, variables: &[(&str, &str)], test: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some_and(|own| own == name) {
        return test();
    }
    let package = format!("ur-adapter-{}", adapter.replace('_', "-"));
    let built = support::build(&["ur-loader", &package]);
    let library = built.join(format!("libur_adapter_{adapter}.so"));
    let mut command = clean(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, name)
        .envs(variables.iter().copied())
        .env("UR_ADAPTERS_FORCE_LOAD", library);
    let reported = success(&mut command);
    assert!(
        reported.contains("1 passed"),
        "no test is called {name}: {reported}"
    );
}

fn alloc(stream: *mut c_void) -> *mut c_void {
    let memory = ur_pytorch_alloc(BYTES, 0, stream);
    assert!(!memory.is_null(), "{}", last_error());
    memory
}

fn free(memory: *mut c_void, stream: *mut c_void) {
    ur_pytorch_free(memory, BYTES, 0, stream);
    assert_eq!(last_error(), "");
}

fn last_error() -> String {
    // SAFETY: the buffer has the size that `text` gives.
    text(|buffer, size| unsafe { ur_pytorch_last_error(buffer, size) })
}

/// A text that a function writes into a buffer.
fn text(write: impl FnOnce(*mut c_char, usize) -> usize) -> String {
    let mut buffer = vec![0_u8; 4096];
    let bytes = write(buffer.as_mut_ptr().cast(), buffer.len());
    buffer.truncate(bytes);
    String::from_utf8(buffer).expect("UTF-8")
}

fn stats() -> Stats {
    let mut stats = Stats::default();
    // SAFETY: the output is a local variable.
    assert_eq!(unsafe { ur_pytorch_stats(0, &mut stats) }, 0);
    stats
}

#[test]
fn a_stream_reuses_its_memory_without_the_driver() {
    alone("a_stream_reuses_its_memory_without_the_driver", |driver| {
        let stream = driver.stream();
        let memory = alloc(stream);
        free(memory, stream);
        let calls = driver.calls("", || {
            for _ in 0..100 {
                assert_eq!(alloc(stream), memory);
                free(memory, stream);
            }
        });
        assert_eq!(calls, 0);
        assert!(ur_pytorch_alloc(0, 0, stream).is_null());
        free(null_mut(), stream);
        let default = alloc(null_mut());
        free(default, null_mut());
        driver.query();
    });
}

#[test]
fn another_stream_gets_memory_after_its_use() {
    static WORD: AtomicU32 = AtomicU32::new(0);
    alone("another_stream_gets_memory_after_its_use", |driver| {
        let (one, two) = (driver.stream(), driver.stream());
        let memory = alloc(one);
        driver.block(one, &WORD);
        free(memory, one);
        let other = alloc(two);
        assert_ne!(other, memory, "the first stream may still use it");
        WORD.store(1, Ordering::Release);
        driver.wait(one);
        free(other, two);
        driver.query();
    });
}

/// The free waits for the recorded stream, and no stream does.
#[test]
fn recorded_streams_delay_reuse_and_no_stream() {
    static WORD: AtomicU32 = AtomicU32::new(0);
    alone("recorded_streams_delay_reuse_and_no_stream", |driver| {
        let (one, two) = (driver.stream(), driver.stream());
        let memory = alloc(one);
        driver.block(two, &WORD);
        ur_pytorch_record_stream(memory, two);
        ur_pytorch_record_stream(memory, two);
        let mut next = null_mut();
        let waits = driver.calls("cuStreamWaitEvent", || {
            free(memory, one);
            next = alloc(one);
        });
        assert_ne!(next, memory, "the recorded stream may still use it");
        assert_eq!(waits, 0, "no stream waits for the recorded one");
        // The first stream has no work, so this waits for nothing.
        driver.wait(one);
        WORD.store(1, Ordering::Release);
        driver.wait(two);
        let reserved = stats().reserved;
        let more: Vec<_> = (0..reserved / BYTES as u64 - 1)
            .map(|_| alloc(one))
            .collect();
        assert!(more.contains(&memory), "the recorded stream is done");
        assert_eq!(stats().reserved, reserved);
        more.into_iter().for_each(|memory| free(memory, one));
        free(next, one);
        assert_eq!(stats().used, 0);
        driver.query();
    });
}

#[test]
fn a_lack_of_memory_is_null_and_a_message() {
    alone("a_lack_of_memory_is_null_and_a_message", |driver| {
        let stream = driver.stream();
        let memory = alloc(stream);
        driver.fail("cuMemCreate", EACH, OUT_OF_MEMORY);
        assert!(ur_pytorch_alloc(256 << 20, 0, stream).is_null());
        assert!(last_error().contains("OUT_OF"), "{}", last_error());
        assert!(
            last_error().contains("268435456 bytes on device 0"),
            "{}",
            last_error()
        );
        driver.fail("", 0, 0);
        let large = ur_pytorch_alloc(256 << 20, 0, stream);
        assert!(!large.is_null(), "{}", last_error());
        ur_pytorch_free(large, 256 << 20, 0, stream);
        ur_pytorch_free(memory, BYTES, 0, stream);
        assert_eq!(stats().used, 0);
        assert!(ur_pytorch_alloc(-1, 0, stream).is_null());
        assert!(ur_pytorch_alloc(BYTES, 7, stream).is_null());
        assert!(last_error().contains("device 7"), "{}", last_error());
        driver.query();
    });
}

/// A device's first allocation makes its pool, with the maximum size that was set until then.
#[test]
fn a_fraction_limits_the_pool() {
    alone("a_fraction_limits_the_pool", |driver| {
        let stream = driver.stream();
        // The fake device has 1 GiB.
        ur_pytorch_memory_fraction(0.25, 0);
        assert_eq!(last_error(), "");
        assert!(ur_pytorch_alloc(257 << 20, 0, stream).is_null());
        let memory = ur_pytorch_alloc(255 << 20, 0, stream);
        assert!(!memory.is_null(), "{}", last_error());
        ur_pytorch_free(memory, 255 << 20, 0, stream);
        ur_pytorch_memory_fraction(0.5, 0);
        assert!(
            last_error().contains("keeps its maximum"),
            "{}",
            last_error()
        );
        driver.query();
    });
}

/// The driver refuses memory until some is returned, as a full device does.
#[test]
fn a_reset_and_a_lack_return_free_memory() {
    static WORD: AtomicU32 = AtomicU32::new(0);
    alone("a_reset_and_a_lack_return_free_memory", |driver| {
        let stream = driver.stream();
        free(alloc(stream), stream);
        assert!(stats().reserved > 0);
        ur_pytorch_reset();
        assert_eq!(stats().reserved, 0);

        free(alloc(stream), stream);
        driver.fail("cuMemCreate", EACH, OUT_OF_MEMORY);
        assert!(ur_pytorch_alloc(256 << 20, 0, stream).is_null());
        assert_eq!(stats().reserved, 0, "the free memory was returned");
        driver.fail("", 0, 0);
        // Memory of pending work is not returned.
        let other = driver.stream();
        let memory = alloc(stream);
        driver.block(other, &WORD);
        ur_pytorch_begin_pool(0, 0, 1, null());
        ur_pytorch_record_stream(memory, other);
        ur_pytorch_free(memory, BYTES, 0, stream);
        ur_pytorch_reset();
        assert!(stats().reserved >= BYTES as u64);
        ur_pytorch_end_pool(0, 0, 1);
        WORD.store(1, Ordering::Release);
        ur_pytorch_reset();
        assert_eq!(stats().reserved, 0);
        driver.query();
    });
}

#[test]
fn figures_and_addresses() {
    alone("figures_and_addresses", |driver| {
        let stream = driver.stream();
        let (one, two) = (alloc(stream), alloc(stream));
        let bytes = BYTES as u64;
        let full = stats();
        assert_eq!((full.used, full.used_high), (2 * bytes, 2 * bytes));
        assert!(full.reserved >= 2 * bytes && full.reserved_high == full.reserved);
        let mut size = 0;
        // SAFETY: the output is a local variable.
        let base = unsafe { ur_pytorch_base(one.wrapping_byte_add(4097), &mut size) };
        assert_eq!((base, size as u64), (one, bytes));
        let foreign = (&raw const full).cast_mut().cast();
        // SAFETY: the output is a local variable.
        assert_eq!(unsafe { ur_pytorch_base(foreign, &mut size) }, foreign);
        free(one, stream);
        free(two, stream);
        assert_eq!((stats().used, stats().used_high), (0, 2 * bytes));
        ur_pytorch_reset_highs(0);
        assert_eq!(stats().used_high, 0);
        // SAFETY: the buffer has the size that `text` gives.
        let report = text(|buffer, size| unsafe { ur_pytorch_report(0, buffer, size) });
        assert!(report.contains("reserved"), "{report}");
        driver.query();
    });
}

#[test]
fn a_machine_without_a_device_has_a_reason() {
    let name = "a_machine_without_a_device_has_a_reason";
    alone_with("native_cpu", name, || {
        ur_pytorch_init(0);
        assert!(
            last_error().contains("no CUDA adapter has a device"),
            "{}",
            last_error()
        );
        assert!(ur_pytorch_alloc(BYTES, 0, null_mut()).is_null());
    });
}

/// PyTorch's threads may have another context current.
#[test]
fn the_callers_context_stays_current() {
    static WORD: AtomicU32 = AtomicU32::new(0);
    alone("the_callers_context_stays_current", |driver| {
        let (one, two, primary) = (driver.stream(), driver.stream(), driver.current());
        for context in [0, 0xabc0, 0x1000] {
            WORD.store(0, Ordering::Release);
            driver.set_current(primary);
            driver.block(two, &WORD);
            let context = std::ptr::without_provenance_mut(context);
            driver.set_current(context);
            let memory = alloc(one);
            assert_eq!(driver.current(), context);
            ur_pytorch_record_stream(memory, two);
            free(memory, one);
            assert_eq!(driver.current(), context);
            WORD.store(1, Ordering::Release);
            ur_pytorch_reset();
            assert_eq!(driver.current(), context);
            stats();
            assert_eq!(driver.current(), context);
        }
        driver.query();
    });
}

/// Each thread writes to its blocks, which no other thread may have.
#[test]
fn threads_share_streams_and_memory() {
    alone("threads_share_streams_and_memory", |driver| {
        let streams = [driver.stream(), driver.stream()].map(|stream| stream.expose_provenance());
        std::thread::scope(|scope| {
            for thread in 0..8_usize {
                scope.spawn(move || {
                    let stream = std::ptr::with_exposed_provenance_mut(streams[thread % 2]);
                    let other = std::ptr::with_exposed_provenance_mut(streams[(thread + 1) % 2]);
                    let mut live: Vec<*mut usize> = Vec::new();
                    for round in 0..500 {
                        let memory: *mut usize = ur_pytorch_alloc(4096, 0, stream).cast();
                        assert!(!memory.is_null(), "{}", last_error());
                        // SAFETY: the fake device's memory is the host's, and the block is this thread's.
                        unsafe { memory.write_volatile(thread) };
                        live.push(memory);
                        if round % 3 > 0 {
                            let memory = live.swap_remove(round % live.len());
                            // SAFETY: the block is this thread's.
                            assert_eq!(unsafe { memory.read_volatile() }, thread);
                            if round % 7 == 0 {
                                ur_pytorch_record_stream(memory.cast(), other);
                            }
                            ur_pytorch_free(memory.cast(), 4096, 0, stream);
                        }
                    }
                    for memory in live {
                        // SAFETY: the block is this thread's.
                        assert_eq!(unsafe { memory.read_volatile() }, thread);
                        ur_pytorch_free(memory.cast(), 4096, 0, stream);
                    }
                });
            }
        });
        assert_eq!(last_error(), "");
        assert_eq!(stats().used, 0);
        driver.query();
    });
}

/// What a capture allocates belongs to its graph until the graph's pool is released.
#[test]
fn memory_of_a_graph_stays_the_graphs() {
    alone("memory_of_a_graph_stays_the_graphs", |driver| {
        let (captured, other) = (driver.stream(), driver.stream());
        let before = alloc(captured);
        ur_pytorch_begin_pool(0, 0, 1, null());
        (driver.0.scripted_capture)(captured.expose_provenance());
        let inside = alloc(captured);
        free(inside, captured);
        assert_eq!(alloc(captured), inside, "the capture's order allows it");
        let used = alloc(captured);
        ur_pytorch_record_stream(used, other);
        free(used, captured);
        assert_ne!(
            alloc(captured),
            used,
            "another stream of the graph may use it"
        );
        free(before, captured);
        let beside = alloc(other);
        assert!(
            ![before, inside, used].contains(&beside),
            "the free waits for the capture's end"
        );
        free(inside, captured);
        (driver.0.scripted_capture)(0);
        ur_pytorch_end_pool(0, 0, 1);
        let after: Vec<_> = (0..4).map(|_| alloc(captured)).collect();
        assert!(
            !after.contains(&inside) && !after.contains(&used),
            "a replay uses them"
        );
        assert!(after.contains(&before));

        let live = stats().used;
        ur_pytorch_release_pool(0, 0, 1);
        assert_eq!(
            live - stats().used,
            2 * BYTES as u64,
            "both idle blocks are free"
        );
        assert_eq!(last_error(), "");
        driver.query();
    });
}

const TWO: (&str, &str) = ("SCRIPTED_CUDA_DEVICES", "2");

/// Memory of each of two GPUs, and whether the driver copies between it on a stream of each of them.
fn copies(driver: &Driver) -> [bool; 2] {
    let stream = null_mut();
    // The first GPU has memory before the second one is used.
    let memory = [0, 1].map(|device| {
        let memory = ur_pytorch_alloc(BYTES, device, stream);
        assert!(!memory.is_null(), "{}", last_error());
        memory
    });
    let [one, two] = memory.map(|memory| memory.expose_provenance() as u64);
    let copied = [0, 1].map(|device| {
        let mut context = null_mut();
        // SAFETY: room for a handle; a live context, and memory of that size.
        unsafe {
            assert_eq!((driver.0.cuDevicePrimaryCtxRetain)(&mut context, device), 0);
            driver.set_current(context);
            (driver.0.cuMemcpyAsync)(one, two, BYTES as usize, stream) == 0
        }
    });
    for (device, memory) in (0..).zip(memory) {
        ur_pytorch_free(memory, BYTES, device, stream);
    }
    assert_eq!(last_error(), "");
    driver.query();
    copied
}

/// A copy between GPUs is a copy of PyTorch's own on one of its streams.
#[test]
fn gpus_reach_each_other_s_memory() {
    alone_in("cuda", "gpus_reach_each_other_s_memory", &[TWO], || {
        let driver = Driver::open();
        assert_eq!(copies(&driver), [true; 2]);
        // Memory that the pool gets later.
        assert_eq!(copies(&driver), [true; 2]);
    });
}

/// One GPU alone gives nobody access, which would cost time with each growth.
#[test]
fn a_gpu_alone_gives_no_access() {
    alone_in("cuda", "a_gpu_alone_gives_no_access", &[TWO], || {
        let driver = Driver::open();
        let calls = driver.calls("cuCtxEnablePeerAccess", || {
            let memory = alloc(null_mut());
            free(memory, null_mut());
        });
        assert_eq!(calls, 0);
    });
}

#[test]
fn access_can_be_switched_off() {
    let variables = [TWO, ("UR_PYTORCH_PEER_ACCESS", "0")];
    alone_in("cuda", "access_can_be_switched_off", &variables, || {
        assert_eq!(copies(&Driver::open()), [false; 2]);
    });
}

/// Without links there is nothing to enable.
#[test]
fn gpus_without_links_work_alone() {
    let variables = [TWO, ("SCRIPTED_CUDA_LINKS", "0")];
    alone_in("cuda", "gpus_without_links_work_alone", &variables, || {
        assert_eq!(copies(&Driver::open()), [false; 2]);
    });
}

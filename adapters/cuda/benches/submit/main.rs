//! Submissions over a scripted driver, to count their instructions: the built loader and adapter, an
//! in-order queue, no wait list, the context current on the thread.
//!
//! `--repeat CASE TIMES` does one thing so often and prints nothing, so that the difference of two runs
//! is what that costs. `driver` before a case does only what it asks of the driver.
//! `cargo xtask bench submit` counts them all.

use std::ffi::c_void;
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use ur::abi::*;
use ur::dl::{Binding, Library};

type Handle = *mut c_void;

ur::dl::symbols! {
    struct Loader {
        required {
            urLoaderInit: unsafe extern "C" fn(ur_device_init_flags_t, ur_loader_config_handle_t) -> ur_result_t,
            urAdapterGet: unsafe extern "C" fn(u32, *mut ur_adapter_handle_t, *mut u32) -> ur_result_t,
            urPlatformGet: unsafe extern "C" fn(ur_adapter_handle_t, u32, *mut ur_platform_handle_t, *mut u32) -> ur_result_t,
            urDeviceGet: unsafe extern "C" fn(ur_platform_handle_t, ur_device_type_t, u32, *mut ur_device_handle_t, *mut u32) -> ur_result_t,
            urContextCreate: unsafe extern "C" fn(u32, *const ur_device_handle_t, *const ur_context_properties_t, *mut ur_context_handle_t) -> ur_result_t,
            urQueueCreate: unsafe extern "C" fn(ur_context_handle_t, ur_device_handle_t, *const ur_queue_properties_t, *mut ur_queue_handle_t) -> ur_result_t,
            urQueueGetNativeHandle: unsafe extern "C" fn(ur_queue_handle_t, *mut ur_queue_native_desc_t, *mut ur_native_handle_t) -> ur_result_t,
            urQueueRelease: unsafe extern "C" fn(ur_queue_handle_t) -> ur_result_t,
            urProgramCreateWithBinary: unsafe extern "C" fn(ur_context_handle_t, u32, *mut ur_device_handle_t, *mut usize, *mut *const u8, *const ur_program_properties_t, *mut ur_program_handle_t) -> ur_result_t,
            urProgramBuild: unsafe extern "C" fn(ur_context_handle_t, ur_program_handle_t, *const i8) -> ur_result_t,
            urKernelCreate: unsafe extern "C" fn(ur_program_handle_t, *const i8, *mut ur_kernel_handle_t) -> ur_result_t,
            urUSMDeviceAlloc: unsafe extern "C" fn(ur_context_handle_t, ur_device_handle_t, *const ur_usm_desc_t, ur_usm_pool_handle_t, usize, *mut Handle) -> ur_result_t,
            urEnqueueUSMMemcpy: unsafe extern "C" fn(ur_queue_handle_t, bool, Handle, *const c_void, usize, u32, *const ur_event_handle_t, *mut ur_event_handle_t) -> ur_result_t,
            urEnqueueUSMFill: unsafe extern "C" fn(ur_queue_handle_t, Handle, usize, *const c_void, usize, u32, *const ur_event_handle_t, *mut ur_event_handle_t) -> ur_result_t,
            urEnqueueKernelLaunchWithArgsExp: unsafe extern "C" fn(ur_queue_handle_t, ur_kernel_handle_t, u32, *const usize, *const usize, *const usize, u32, *const ur_exp_kernel_arg_properties_t, *const ur_kernel_launch_ext_properties_t, u32, *const ur_event_handle_t, *mut ur_event_handle_t) -> ur_result_t,
            urEventRelease: unsafe extern "C" fn(ur_event_handle_t) -> ur_result_t,
            urEnqueueUSMDeviceAllocExp: unsafe extern "C" fn(ur_queue_handle_t, ur_usm_pool_handle_t, usize, *const ur_exp_async_usm_alloc_properties_t, u32, *const ur_event_handle_t, *mut Handle, *mut ur_event_handle_t) -> ur_result_t,
            urEnqueueUSMFreeExp: unsafe extern "C" fn(ur_queue_handle_t, ur_usm_pool_handle_t, Handle, u32, *const ur_event_handle_t, *mut ur_event_handle_t) -> ur_result_t,
        }
        optional {}
    }
}

ur::dl::symbols! {
    struct Driver {
        required {
            cuDevicePrimaryCtxRetain: unsafe extern "C" fn(*mut Handle, i32) -> u32,
            cuDevicePrimaryCtxRelease = "cuDevicePrimaryCtxRelease_v2": unsafe extern "C" fn(i32) -> u32,
            cuCtxPushCurrent = "cuCtxPushCurrent_v2": unsafe extern "C" fn(Handle) -> u32,
            cuStreamCreateWithPriority: unsafe extern "C" fn(*mut Handle, u32, i32) -> u32,
            cuModuleLoadDataEx: unsafe extern "C" fn(*mut Handle, *const c_void, u32, *const i32, *const Handle) -> u32,
            cuModuleGetFunction: unsafe extern "C" fn(*mut Handle, Handle, *const i8) -> u32,
            cuMemcpyAsync: unsafe extern "C" fn(u64, u64, usize, Handle) -> u32,
            cuMemsetD32Async: unsafe extern "C" fn(u64, u32, usize, Handle) -> u32,
            cuLaunchKernel: unsafe extern "C" fn(Handle, u32, u32, u32, u32, u32, u32, u32, Handle, *const Handle, *const Handle) -> u32,
            cuMemAddressReserve: unsafe extern "C" fn(*mut u64, usize, usize, u64, u64) -> u32,
            cuMemCreate: unsafe extern "C" fn(*mut u64, usize, *const c_void, u64) -> u32,
            cuMemMap: unsafe extern "C" fn(u64, usize, usize, u64, u64) -> u32,
            cuMemSetAccess: unsafe extern "C" fn(u64, usize, *const c_void, usize) -> u32,
            scripted_memory: unsafe extern "C" fn(usize) -> (),
        }
        optional {}
    }
}

/// Calls a function and expects success.
macro_rules! ok {
    ($library:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: live handles, and memory of the benchmark.
        let result = unsafe { ($library.$name)($($argument),*) };
        assert_eq!(result, Default::default(), stringify!($name));
    }};
}

/// The first members of the driver's description of memory: pinned, not to be shared, of device 0.
static PAGE: [i32; 4] = [1, 0, 1, 0];
/// Device 0 reads and writes.
static ACCESS: [i32; 3] = [1, 0, 3];
const TEXT: &std::ffi::CStr = c".version 8.0";
/// Adds two lists of words.
const KERNEL: &std::ffi::CStr = c"sum";
const BYTES: usize = 4096;
const QUEUES: usize = 4;
/// A step of growth: a page of the largest that a device with so much memory has.
const STEP_BYTES: usize = 64 << 20;
const MEMORY_BYTES: usize = 128 << 30;
/// Addresses for as many steps as are made here, which valgrind has room for.
const RESERVED_BYTES: usize = 48 << 30;

/// What is repeated.
#[derive(Clone, Copy)]
enum Case {
    Launch,
    Copy,
    Fill,
    /// An allocation that is kept, of memory that nobody had before.
    Grow,
    /// An allocation and its free.
    Pair,
}

impl Case {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "launch" => Self::Launch,
            "copy" => Self::Copy,
            "fill" => Self::Fill,
            "grow" => Self::Grow,
            "pair" => Self::Pair,
            _ => return None,
        })
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [flag, case, times] = &arguments[1..] else {
        return println!("nothing is measured here: see `cargo xtask bench submit`");
    };
    assert_eq!(flag, "--repeat");
    let times: u64 = times.parse().expect("a number");
    let (how, name) = case.split_once(' ').unwrap_or(("", case));
    let case = Case::parse(name).expect("a case");
    let driver = driver();
    let fixture = Fixture::new(driver);
    // The first ones make room.
    let all = |times: u64| match how {
        "driver" => (0..times).for_each(|_| fixture.native(case)),
        "joined" => (0..times).for_each(|round| fixture.enqueue_after_two(case, round)),
        "event" => (0..times).for_each(|_| fixture.enqueue_with_event(fixture.queue, case)),
        "loose" => (0..times).for_each(|_| fixture.enqueue_with_event(fixture.loose, case)),
        "open" => (0..times).for_each(|_| fixture.enqueue_on(fixture.open, case, &[], null_mut())),
        "chained" => (0..times).for_each(|_| fixture.enqueue_on_new_memory(case)),
        _ => (0..times).for_each(|_| fixture.enqueue(case, null_mut())),
    };
    all(16);
    all(times);
    fixture.end();
}

fn built() -> PathBuf {
    let own = std::env::current_exe().expect("this benchmark has a file");
    own.parent().expect("in deps/").into()
}

/// Opened first: who then asks for the driver's library gets this one.
fn driver() -> Driver {
    let library = Library::open(built().join("libscripted_cuda.so"), Binding::Usual);
    Driver::from_library(library.expect("Cargo has built it")).expect("its functions")
}

struct Fixture {
    driver: Driver,
    loader: Loader,
    queue: ur_queue_handle_t,
    /// An out-of-order one.
    loose: ur_queue_handle_t,
    /// One whose native stream the program has.
    open: ur_queue_handle_t,
    /// Queues whose commands wait for each other, and the last event of each.
    more_queues: [ur_queue_handle_t; QUEUES],
    last: std::cell::Cell<[ur_event_handle_t; QUEUES]>,
    kernel: ur_kernel_handle_t,
    stream: Handle,
    function: Handle,
    /// Two pieces of memory.
    memory: [Handle; 2],
    /// Where the driver's own next step is mapped; 0 before the first.
    next: std::cell::Cell<u64>,
}

impl Fixture {
    fn new(driver: Driver) -> Self {
        let (mut primary, mut stream, mut module, mut function) =
            (null_mut(), null_mut(), null_mut(), null_mut());
        ok!(driver, cuDevicePrimaryCtxRetain(&mut primary, 0));
        ok!(driver, cuCtxPushCurrent(primary));
        ok!(driver, cuStreamCreateWithPriority(&mut stream, 1, 0));
        let text = TEXT.as_ptr().cast();
        ok!(
            driver,
            cuModuleLoadDataEx(&mut module, text, 0, null(), null())
        );
        ok!(
            driver,
            cuModuleGetFunction(&mut function, module, KERNEL.as_ptr())
        );

        // SAFETY: nobody has asked for the device's memory yet.
        unsafe { (driver.scripted_memory)(MEMORY_BYTES) };

        let folder = built().parent().expect("above deps/").to_owned();
        // SAFETY: no other thread runs yet.
        unsafe {
            std::env::set_var(
                "UR_ADAPTERS_FORCE_LOAD",
                folder.join("libur_adapter_cuda.so"),
            )
        };
        let library = Library::open(folder.join("libur_loader.so"), Binding::Usual);
        let library = library.expect("the loader is built: cargo build --release --workspace");
        let loader = Loader::from_library(library).expect("its functions");
        let (mut adapter, mut platform, mut device, mut context) =
            (null_mut(), null_mut(), null_mut(), null_mut());
        ok!(loader, urLoaderInit(Default::default(), null_mut()));
        ok!(loader, urAdapterGet(1, &mut adapter, null_mut()));
        ok!(loader, urPlatformGet(adapter, 1, &mut platform, null_mut()));
        ok!(
            loader,
            urDeviceGet(platform, UR_DEVICE_TYPE_ALL, 1, &mut device, null_mut())
        );
        ok!(loader, urContextCreate(1, &device, null(), &mut context));
        let (mut queue, mut program, mut kernel) = (null_mut(), null_mut(), null_mut());
        ok!(loader, urQueueCreate(context, device, null(), &mut queue));
        let mut loose = null_mut();
        let out_of_order = ur_queue_properties_t {
            flags: UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE,
            ..Default::default()
        };
        ok!(
            loader,
            urQueueCreate(context, device, &out_of_order, &mut loose)
        );
        let (mut open, mut shared) = (null_mut(), 0);
        ok!(loader, urQueueCreate(context, device, null(), &mut open));
        ok!(
            loader,
            urQueueGetNativeHandle(open, null_mut(), &mut shared)
        );
        let mut more_queues = [null_mut(); QUEUES];
        for other in &mut more_queues {
            ok!(loader, urQueueCreate(context, device, null(), other));
        }
        let (mut bytes, mut code) = (TEXT.count_bytes(), TEXT.as_ptr().cast());
        ok!(
            loader,
            urProgramCreateWithBinary(
                context,
                1,
                &mut device,
                &mut bytes,
                &mut code,
                null(),
                &mut program
            )
        );
        ok!(loader, urProgramBuild(context, program, null()));
        ok!(
            loader,
            urKernelCreate(program, KERNEL.as_ptr(), &mut kernel)
        );
        let mut memory = [null_mut(); 2];
        for piece in &mut memory {
            ok!(
                loader,
                urUSMDeviceAlloc(context, device, null(), null_mut(), BYTES, piece)
            );
        }
        Self {
            driver,
            loader,
            queue,
            loose,
            open,
            more_queues,
            last: Default::default(),
            kernel,
            stream,
            function,
            memory,
            next: Default::default(),
        }
    }

    #[inline(always)]
    fn enqueue(&self, case: Case, event: *mut ur_event_handle_t) {
        self.enqueue_on(self.queue, case, &[], event);
    }

    /// Equal for every case, so that no case pays for another.
    #[inline(always)]
    fn enqueue_on(
        &self,
        queue: ur_queue_handle_t,
        case: Case,
        waits: &[ur_event_handle_t],
        event: *mut ur_event_handle_t,
    ) {
        let [to, from] = self.memory;
        let (count, waits) = match waits {
            [] => (0, null()),
            waits => (waits.len() as u32, waits.as_ptr()),
        };
        match case {
            Case::Launch => {
                let args = [to, from, from];
                let mut index = 0;
                let args = args.map(|pointer| {
                    index += 1;
                    ur_exp_kernel_arg_properties_t {
                        r#type: UR_EXP_KERNEL_ARG_TYPE_POINTER,
                        index: index - 1,
                        size: size_of::<Handle>(),
                        value: ur_exp_kernel_arg_value_t { pointer },
                        ..Default::default()
                    }
                });
                let (global, local) = (1_usize, 1_usize);
                ok!(
                    self.loader,
                    urEnqueueKernelLaunchWithArgsExp(
                        queue,
                        self.kernel,
                        1,
                        null(),
                        &global,
                        &local,
                        3,
                        args.as_ptr(),
                        null(),
                        count,
                        waits,
                        event
                    )
                );
            }
            Case::Copy => {
                ok!(
                    self.loader,
                    urEnqueueUSMMemcpy(queue, false, to, from, 64, count, waits, event)
                );
            }
            Case::Fill => {
                let pattern = 0x1234_5678_u32;
                let pattern = (&raw const pattern).cast();
                ok!(
                    self.loader,
                    urEnqueueUSMFill(queue, to, 4, pattern, 64, count, waits, event)
                );
            }
            Case::Grow => {
                let mut block = null_mut();
                ok!(
                    self.loader,
                    urEnqueueUSMDeviceAllocExp(
                        queue,
                        null_mut(),
                        STEP_BYTES,
                        null(),
                        count,
                        waits,
                        &mut block,
                        event
                    )
                );
            }
            Case::Pair => {
                let (pool, mut block) = (null_mut(), null_mut());
                ok!(
                    self.loader,
                    urEnqueueUSMDeviceAllocExp(
                        queue,
                        pool,
                        BYTES,
                        null(),
                        count,
                        waits,
                        &mut block,
                        event
                    )
                );
                ok!(
                    self.loader,
                    urEnqueueUSMFreeExp(queue, pool, block, count, waits, event)
                );
            }
        }
    }

    #[inline(always)]
    fn enqueue_with_event(&self, queue: ur_queue_handle_t, case: Case) {
        let mut event = null_mut();
        self.enqueue_on(queue, case, &[], &mut event);
        ok!(self.loader, urEventRelease(event));
    }

    /// Between an allocation and its free, each after the other by an event.
    #[inline]
    fn enqueue_on_new_memory(&self, case: Case) {
        let (mut block, mut made, mut ran, mut freed) =
            (null_mut(), null_mut(), null_mut(), null_mut());
        ok!(
            self.loader,
            urEnqueueUSMDeviceAllocExp(
                self.loose,
                null_mut(),
                BYTES,
                null(),
                0,
                null(),
                &mut block,
                &mut made
            )
        );
        self.enqueue_on(self.loose, case, &[made], &mut ran);
        ok!(
            self.loader,
            urEnqueueUSMFreeExp(self.loose, null_mut(), block, 1, &ran, &mut freed)
        );
        for event in [made, freed, ran] {
            ok!(self.loader, urEventRelease(event));
        }
    }

    /// Waits for the last commands of two other queues, and replaces the event of its own queue's.
    #[inline]
    fn enqueue_after_two(&self, case: Case, round: u64) {
        let own = round as usize % QUEUES;
        let mut last = self.last.get();
        let waits = [last[(own + 1) % QUEUES], last[(own + 2) % QUEUES]];
        let waits = if waits.contains(&null_mut()) {
            &[][..]
        } else {
            &waits
        };
        let before = std::mem::replace(&mut last[own], null_mut());
        self.enqueue_on(self.more_queues[own], case, waits, &mut last[own]);
        self.last.set(last);
        if !before.is_null() {
            ok!(self.loader, urEventRelease(before));
        }
    }

    /// What a command asks of the driver.
    #[inline]
    fn native(&self, case: Case) {
        let [to, from] = self.memory;
        match case {
            Case::Launch => {
                let args = [to, from, from];
                let params: [Handle; 3] =
                    std::array::from_fn(|index| (&raw const args[index]).cast_mut().cast());
                ok!(
                    self.driver,
                    cuLaunchKernel(
                        self.function,
                        1,
                        1,
                        1,
                        1,
                        1,
                        1,
                        0,
                        self.stream,
                        params.as_ptr(),
                        null()
                    )
                );
            }
            Case::Copy => {
                let (to, from) = (to.expose_provenance(), from.expose_provenance());
                ok!(
                    self.driver,
                    cuMemcpyAsync(to as u64, from as u64, 64, self.stream)
                );
            }
            Case::Fill => {
                let to = to.expose_provenance() as u64;
                ok!(
                    self.driver,
                    cuMemsetD32Async(to, 0x1234_5678, 16, self.stream)
                );
            }
            // No pair calls the driver.
            Case::Pair => {}
            Case::Grow => {
                let mut at = self.next.get();
                if at == 0 {
                    ok!(
                        self.driver,
                        cuMemAddressReserve(&mut at, RESERVED_BYTES, STEP_BYTES, 0, 0)
                    );
                }
                self.next.set(at + STEP_BYTES as u64);
                let mut piece = 0;
                let (what, who) = (&raw const PAGE, &raw const ACCESS);
                ok!(
                    self.driver,
                    cuMemCreate(&mut piece, STEP_BYTES, what.cast(), 0)
                );
                ok!(self.driver, cuMemMap(at, STEP_BYTES, 0, piece, 0));
                ok!(self.driver, cuMemSetAccess(at, STEP_BYTES, who.cast(), 1));
            }
        }
    }

    fn end(self) {
        for event in self.last.get() {
            if !event.is_null() {
                ok!(self.loader, urEventRelease(event));
            }
        }
        for other in self.more_queues {
            ok!(self.loader, urQueueRelease(other));
        }
        for queue in [self.queue, self.loose, self.open] {
            ok!(self.loader, urQueueRelease(queue));
        }
        ok!(self.driver, cuDevicePrimaryCtxRelease(0));
    }
}

//! A part of everything that a client uses, on two devices.
//!
//! A step that fails does not stop the workload. In the end it releases everything, including the adapter. Commands
//! use host memory that lives as long as the process, as a command whose wait failed may still run.

use std::ffi::c_void;
use std::os::fd::FromRawFd as _;
use std::ptr::{null, null_mut};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use ur::abi::*;

use super::bindless;
use super::fake_driver::{adapter, devices, ur};
use super::images;
use super::mipmaps;
use super::spirv;

/// The part and the call of a step, and its result.
pub type Failed = (&'static str, &'static str, ur_result_t);

/// The result of each step.
#[derive(Default)]
pub struct Steps {
    part: &'static str,
    /// Where the part's results begin.
    first: usize,
    answers: Vec<Failed>,
    /// What was not as it has to be, though all steps of its part before it succeeded.
    pub wrong: Vec<(&'static str, &'static str)>,
}

impl Steps {
    /// Records a step; true if it succeeded.
    pub fn record(&mut self, name: &'static str, code: ur_result_t) -> bool {
        self.answers.push((self.part, name, code));
        code == UR_RESULT_SUCCESS
    }

    /// The steps that failed: part, call and result.
    pub fn failed(&self) -> Vec<Failed> {
        let failed = |(_, _, code): &&(_, _, ur_result_t)| *code != UR_RESULT_SUCCESS;
        self.answers.iter().filter(failed).copied().collect()
    }

    /// The steps that failed beside those of an earlier run without a fault, which the driver does not support.
    pub fn failed_beside(&self, known: &[Failed]) -> Vec<Failed> {
        let mut failed = self.failed();
        failed.retain(|one| !known.contains(one));
        failed
    }

    /// Checks that this run without a fault did everything that the driver supports. Returns the rest.
    pub fn check_whole(self) -> Vec<Failed> {
        let failed = self.failed();
        let is_known = |(_, _, code): &(_, _, _)| *code == UR_RESULT_ERROR_UNSUPPORTED_FEATURE;
        assert!(self.is_whole() && failed.iter().all(is_known), "{failed:?}");
        assert_eq!(self.wrong, []);
        failed
    }

    /// Whether the workload found a device, and went to its end.
    pub fn is_whole(&self) -> bool {
        self.answers.len() > 200
    }

    /// Records what must hold if all steps of the part have succeeded.
    pub fn expect(&mut self, what: &'static str, holds: impl FnOnce() -> bool) {
        let own = &self.answers[self.first..];
        let clean = own.iter().all(|(_, _, code)| *code == UR_RESULT_SUCCESS);
        if clean && !holds() {
            self.wrong.push((self.part, what));
        }
    }
}

/// A step; true if it succeeded.
macro_rules! step {
    ($steps:expr, $table:ident.$slot:ident($($arg:expr),* $(,)?)) => {{
        let code = ur!($table.$slot($($arg),*));
        $steps.record(concat!(stringify!($table), ".", stringify!($slot)), code)
    }};
}

pub(super) use step;

/// A step that makes an object: the output is added as its last argument. The handle is null if the step fails.
macro_rules! make {
    ($steps:expr, $table:ident.$slot:ident($($arg:expr),* $(,)?)) => {{
        let mut made = Null::NULL;
        match step!($steps, $table.$slot($($arg,)* &mut made)) {
            true => made,
            false => Null::NULL,
        }
    }};
}

pub(super) use make;

/// A command that waits for the events that exist. Its event is null if it failed.
macro_rules! enqueue {
    ($steps:expr, $waits:expr, $table:ident.$slot:ident($($arg:expr),* $(,)?)) => {{
        let waits: &[ur_event_handle_t] = $waits;
        let waits: Vec<_> = waits.iter().copied().filter(|event| !event.is_null()).collect();
        let first = if waits.is_empty() { null() } else { waits.as_ptr() };
        let mut event: ur_event_handle_t = null_mut();
        step!($steps, $table.$slot($($arg,)* waits.len() as u32, first, &mut event));
        event
    }};
}

pub(super) use enqueue;

/// What an output is before its step.
pub trait Null {
    const NULL: Self;
}

impl<T> Null for *mut T {
    const NULL: Self = null_mut();
}

impl Null for usize {
    const NULL: Self = 0;
}

/// Bytes of an allocation.
pub const SIZE: usize = 4096;
/// Bytes of a large allocation, for which a pool asks the driver.
const LARGE: usize = 3 << 20;

/// Host memory that commands use, `SIZE` bytes for each slot.
pub fn host(slot: usize) -> *mut u8 {
    static ALL: LazyLock<usize> = LazyLock::new(|| {
        let all = Box::leak(vec![0_u8; 32 * SIZE].into_boxed_slice());
        all.as_mut_ptr().expose_provenance()
    });
    std::ptr::with_exposed_provenance_mut(*ALL + slot * SIZE)
}

/// The bytes of memory that no command writes now.
pub fn read(from: *mut c_void, bytes: usize) -> Vec<u8> {
    // SAFETY: the callers pass memory of that size.
    unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) }.to_vec()
}

fn all_are(from: *mut c_void, bytes: usize, byte: u8) -> bool {
    // SAFETY: the callers pass memory of that size.
    let all = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) };
    // A comparison of slices is fast without optimization too.
    all.chunks(SIZE)
        .all(|part| *part == [byte; SIZE][..part.len()])
}

/// Where a part runs.
pub struct Place {
    pub adapter: ur_adapter_handle_t,
    pub devices: Vec<ur_device_handle_t>,
    pub device: ur_device_handle_t,
    pub context: ur_context_handle_t,
    /// In-order and profiled.
    pub one: ur_queue_handle_t,
    /// Out-of-order.
    pub two: ur_queue_handle_t,
}

type Part = fn(&mut Steps, &Place);

const PARTS: &[(&str, Part)] = &[
    ("devices", on_devices),
    ("usm", on_usm),
    ("pools", with_pools),
    ("asynchronous", asynchronous),
    ("buffers", on_buffers),
    ("host memory", over_host_memory),
    ("programs", with_programs),
    ("kernels", with_kernels),
    ("command buffers", in_command_buffers),
    ("graphs", in_graphs),
    ("virtual memory", in_virtual_memory),
    ("host tasks", with_host_tasks),
    ("native handles", with_native_handles),
    ("registration", with_registration),
    ("processes", between_processes),
    ("batches", in_batches),
    ("two devices", on_two_devices),
    ("bindless images", bindless::with_images),
    ("mipmaps", mipmaps::with_mipmaps),
    ("pitched memory", bindless::in_pitched_memory),
    ("external memory", bindless::with_memory),
    ("external semaphores", bindless::with_semaphores),
    ("images", images::with_images),
    ("images of two devices", images::of_two_devices),
];

/// Runs the workload.
pub fn play() -> Steps {
    let mut steps = Steps::default();
    let adapter = adapter();
    if adapter.is_null() {
        return steps;
    }
    let all = devices(adapter);
    let device = all[0];
    let context = make!(steps, Context.pfnCreate(1, &device, null()));
    if !context.is_null() {
        let profiled = UR_QUEUE_FLAG_PROFILING_ENABLE;
        let loose = UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE;
        let one = queue(&mut steps, context, device, profiled);
        let two = queue(&mut steps, context, device, loose);
        let place = Place {
            adapter,
            devices: all,
            device,
            context,
            one,
            two,
        };
        for (name, part) in PARTS {
            if one.is_null() || two.is_null() {
                break;
            }
            steps.part = name;
            steps.first = steps.answers.len();
            part(&mut steps, &place);
            finish(&mut steps, &[one, two]);
        }
        steps.part = "end";
        release_queues(&mut steps, &[one, two]);
        step!(steps, Context.pfnRelease(context));
    }
    step!(steps, Adapter.pfnRelease(adapter));
    steps
}

pub fn queue(
    steps: &mut Steps,
    context: ur_context_handle_t,
    device: ur_device_handle_t,
    flags: ur_queue_flags_t,
) -> ur_queue_handle_t {
    let properties = ur_queue_properties_t {
        flags,
        ..Default::default()
    };
    make!(steps, Queue.pfnCreate(context, device, &properties))
}

pub fn finish(steps: &mut Steps, queues: &[ur_queue_handle_t]) {
    for queue in queues.iter().filter(|queue| !queue.is_null()) {
        step!(steps, Queue.pfnFinish(*queue));
    }
}

pub fn release_queues(steps: &mut Steps, queues: &[ur_queue_handle_t]) {
    for queue in queues.iter().filter(|queue| !queue.is_null()) {
        step!(steps, Queue.pfnRelease(*queue));
    }
}

pub fn release(steps: &mut Steps, events: &[ur_event_handle_t]) {
    for event in events.iter().filter(|event| !event.is_null()) {
        step!(steps, Event.pfnRelease(*event));
    }
}

fn free(steps: &mut Steps, context: ur_context_handle_t, all: &[*mut c_void]) {
    for memory in all.iter().filter(|memory| !memory.is_null()) {
        step!(steps, USM.pfnFree(context, *memory));
    }
}

pub fn wait(steps: &mut Steps, event: ur_event_handle_t) -> bool {
    !event.is_null() && step!(steps, Event.pfnWait(1, &event))
}

fn on_devices(steps: &mut Steps, place: &Place) {
    for what in ur_device_info_t::ALL {
        let mut bytes = 0;
        let code = ur!(Device.pfnGetInfo(place.device, *what, 0, null_mut(), &mut bytes));
        let expected = [
            UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION,
            UR_RESULT_ERROR_UNSUPPORTED_FEATURE,
            UR_RESULT_ERROR_INVALID_ENUMERATION,
        ];
        if !expected.contains(&code) {
            steps.record("Device.pfnGetInfo", code);
        }
    }
    let (mut device, mut host) = (0, 0);
    step!(
        steps,
        Device.pfnGetGlobalTimestamps(place.device, &mut device, &mut host)
    );
    let [one, two] = place.devices[..] else {
        return;
    };
    let (mut access, bytes) = (0_i32, size_of::<i32>());
    step!(
        steps,
        UsmP2PExp.pfnPeerAccessGetInfoExp(
            one,
            two,
            UR_EXP_PEER_INFO_UR_PEER_ACCESS_SUPPORT,
            bytes,
            (&raw mut access).cast(),
            null_mut()
        )
    );
    let peers = i32::from(std::env::var_os("SCRIPTED_LEVEL_ZERO_PEERS").is_none());
    steps.expect("access to the other device", || access == peers);
    if step!(steps, UsmP2PExp.pfnEnablePeerAccessExp(one, two)) {
        step!(steps, UsmP2PExp.pfnDisablePeerAccessExp(one, two));
    }
}

fn on_usm(steps: &mut Steps, place: &Place) {
    let &Place {
        device,
        context,
        one,
        two,
        ..
    } = place;
    let pool = null_mut();
    let own = make!(
        steps,
        USM.pfnDeviceAlloc(context, device, null(), pool, SIZE)
    );
    let shared = make!(
        steps,
        USM.pfnSharedAlloc(context, device, null(), pool, SIZE)
    );
    let large = make!(
        steps,
        USM.pfnDeviceAlloc(context, device, null(), pool, LARGE)
    );
    let on_host = make!(steps, USM.pfnHostAlloc(context, null(), pool, SIZE));
    if !own.is_null() && !on_host.is_null() && !shared.is_null() && !large.is_null() {
        let kind = UR_USM_ALLOC_INFO_TYPE;
        let (mut found, bytes) = (ur_usm_type_t::default(), size_of::<ur_usm_type_t>());
        let to = (&raw mut found).cast();
        step!(
            steps,
            USM.pfnGetMemAllocInfo(context, own, kind, bytes, to, null_mut())
        );
        let (byte, odd) = (host(0), host(1));
        // SAFETY: memory of the test's.
        unsafe {
            byte.write(7);
            odd.cast::<[u8; 3]>().write([1, 2, 3]);
        }
        let filled = enqueue!(
            steps,
            &[],
            Enqueue.pfnUSMFill(one, own, 1, byte.cast(), SIZE)
        );
        let again = enqueue!(steps, &[], Enqueue.pfnUSMFill(one, own, 3, odd.cast(), 99));
        let copied = enqueue!(
            steps,
            &[filled, again],
            Enqueue.pfnUSMMemcpy(two, false as _, on_host, own, SIZE)
        );
        if wait(steps, copied) {
            let read = read(on_host, SIZE);
            let pattern = read[..99].chunks(3).all(|three| three == [1, 2, 3]);
            let rest = read[99..].iter().all(|byte| *byte == 7);
            steps.expect("fills and a copy", || pattern && rest);
        }
        for what in [
            UR_PROFILING_INFO_COMMAND_START,
            UR_PROFILING_INFO_COMMAND_END,
        ] {
            let (mut time, bytes) = (0_u64, size_of::<u64>());
            let to = (&raw mut time).cast();
            if !filled.is_null() {
                step!(
                    steps,
                    Event.pfnGetProfilingInfo(filled, what, bytes, to, null_mut())
                );
            }
        }
        // Rows of 16 bytes, from a pitch of 64 to one of 32.
        let (none, count) = (0, 4);
        let rows = enqueue!(
            steps,
            &[],
            Enqueue.pfnUSMMemcpy2D(one, false as _, shared, 32, own, 64, 16, count)
        );
        let block = enqueue!(
            steps,
            &[rows],
            Enqueue.pfnUSMFill2D(
                two,
                shared.wrapping_byte_add(1024),
                64,
                1,
                byte.cast(),
                16,
                4
            )
        );
        let flags = ur_usm_migration_flags_t(none);
        let hint = enqueue!(steps, &[], Enqueue.pfnUSMPrefetch(one, shared, SIZE, flags));
        let advice = UR_USM_ADVICE_FLAG_SET_READ_MOSTLY;
        let advised = make!(steps, Enqueue.pfnUSMAdvise(one, shared, SIZE, advice));
        let large_copy = enqueue!(
            steps,
            &[block],
            Enqueue.pfnUSMMemcpy(two, false as _, large, on_host, SIZE)
        );
        let timed = enqueue!(
            steps,
            &[],
            EnqueueExp.pfnTimestampRecordingExp(one, false as _)
        );
        let wall = enqueue!(
            steps,
            &[large_copy, timed],
            Enqueue.pfnEventsWaitWithBarrier(two)
        );
        let joined = enqueue!(steps, &[rows, wall], Enqueue.pfnEventsWait(one));
        wait(steps, joined);
        let all = [
            filled, again, copied, rows, block, hint, advised, large_copy, timed, wall, joined,
        ];
        release(steps, &all);
        step!(steps, DeviceExp.pfnWaitExp(device));
    }
    free(steps, context, &[own, shared, large, on_host]);
}

fn with_pools(steps: &mut Steps, place: &Place) {
    let (context, device) = (place.context, place.device);
    let mut desc = ur_usm_pool_desc_t {
        flags: UR_USM_POOL_FLAG_ZERO_INITIALIZE_BLOCK,
        ..Default::default()
    };
    let pool = make!(steps, USM.pfnPoolCreate(context, &mut desc));
    if pool.is_null() {
        return;
    }
    let small = make!(
        steps,
        USM.pfnDeviceAlloc(context, device, null(), pool, SIZE)
    );
    let large = make!(
        steps,
        USM.pfnSharedAlloc(context, device, null(), pool, LARGE)
    );
    let on_host = make!(steps, USM.pfnHostAlloc(context, null(), pool, SIZE));
    for (memory, bytes) in [(small, SIZE), (large, LARGE), (on_host, SIZE)] {
        if !memory.is_null() {
            steps.expect("zeros", || all_are(memory, bytes, 0));
        }
    }
    free(steps, context, &[small, large, on_host]);
    step!(steps, USMExp.pfnPoolTrimToExp(context, device, pool, 0));
    step!(steps, USM.pfnPoolRelease(pool));
}

fn asynchronous(steps: &mut Steps, place: &Place) {
    let (one, two, pool) = (place.one, place.two, null_mut());
    for round in 0..3_u8 {
        let (mut memory, mut made) = (null_mut(), null_mut());
        let (to, ready) = (&mut memory, &mut made);
        let (none, bytes) = (null(), SIZE);
        let done = match round {
            0 => step!(
                steps,
                EnqueueExp.pfnUSMDeviceAllocExp(one, pool, bytes, none, 0, null(), to, ready)
            ),
            1 => step!(
                steps,
                EnqueueExp.pfnUSMHostAllocExp(one, pool, bytes, none, 0, null(), to, ready)
            ),
            _ => step!(
                steps,
                EnqueueExp.pfnUSMSharedAllocExp(one, pool, bytes, none, 0, null(), to, ready)
            ),
        };
        if !done {
            continue;
        }
        let from = host(2);
        // SAFETY: memory of the test's.
        unsafe { from.write(9) };
        let filled = enqueue!(
            steps,
            &[made],
            Enqueue.pfnUSMFill(two, memory, 1, from.cast(), SIZE)
        );
        let copied = enqueue!(
            steps,
            &[filled],
            Enqueue.pfnUSMMemcpy(two, false as _, host(3).cast(), memory, SIZE)
        );
        let freed = enqueue!(
            steps,
            &[copied, filled, made],
            EnqueueExp.pfnUSMFreeExp(one, pool, memory)
        );
        if freed.is_null() {
            free(steps, place.context, &[memory]);
        }
        if wait(steps, copied) {
            steps.expect("asynchronous memory", || all_are(host(3).cast(), SIZE, 9));
        }
        release(steps, &[made, filled, copied, freed]);
    }
}

fn on_buffers(steps: &mut Steps, place: &Place) {
    let (context, queue) = (place.context, place.one);
    let data = host(4);
    // SAFETY: memory of the test's.
    unsafe { data.write_bytes(5, SIZE) };
    let properties = ur_buffer_properties_t {
        pHost: data.cast(),
        ..Default::default()
    };
    let flags = UR_MEM_FLAG_READ_WRITE | UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER;
    let first = make!(
        steps,
        Mem.pfnBufferCreate(context, flags, SIZE, &properties)
    );
    let plain = UR_MEM_FLAG_READ_WRITE;
    let second = make!(steps, Mem.pfnBufferCreate(context, plain, SIZE, null()));
    if !first.is_null() && !second.is_null() {
        let copied = enqueue!(
            steps,
            &[],
            Enqueue.pfnMemBufferCopy(queue, first, second, 0, 0, SIZE)
        );
        let within = enqueue!(
            steps,
            &[copied],
            Enqueue.pfnMemBufferCopy(queue, second, second, 0, SIZE / 2, SIZE / 2)
        );
        let (zero, region) = (
            ur_rect_offset_t::default(),
            ur_rect_region_t {
                width: 16,
                height: 4,
                depth: 2,
            },
        );
        let rect = enqueue!(
            steps,
            &[within],
            Enqueue
                .pfnMemBufferCopyRect(queue, first, second, zero, zero, region, 64, 512, 32, 256)
        );
        let (mut mapped, flags) = (null_mut(), UR_MAP_FLAG_READ | UR_MAP_FLAG_WRITE);
        let (none, out) = (null_mut(), &mut mapped);
        if step!(
            steps,
            Enqueue.pfnMemBufferMap(
                queue,
                second,
                true as _,
                flags,
                0,
                SIZE,
                0,
                null(),
                none,
                out
            )
        ) {
            steps.expect("what is mapped", || all_are(mapped, SIZE, 5));
            // SAFETY: the mapping is the test's until it ends.
            unsafe { mapped.cast::<u8>().write_bytes(6, SIZE) };
            let unmapped = enqueue!(steps, &[], Enqueue.pfnMemUnmap(queue, second, mapped));
            release(steps, &[unmapped]);
        }
        let to = host(5).cast();
        let read_back = enqueue!(
            steps,
            &[],
            Enqueue.pfnMemBufferRead(queue, second, true as _, 0, SIZE, to)
        );
        steps.expect("what was written", || all_are(to, SIZE, 6));
        let region = ur_buffer_region_t {
            origin: 1024,
            size: 1024,
            ..Default::default()
        };
        let kind = UR_BUFFER_CREATE_TYPE_REGION;
        let part = make!(steps, Mem.pfnBufferPartition(first, plain, kind, &region));
        if !part.is_null() {
            let filled = enqueue!(
                steps,
                &[],
                Enqueue.pfnMemBufferFill(queue, part, data.cast(), 1, 0, 1024)
            );
            release(steps, &[filled]);
            step!(steps, Mem.pfnRelease(part));
        }
        let native: usize = make!(steps, Mem.pfnGetNativeHandle(second, place.device));
        let foreign = match native {
            0 => null_mut(),
            native => make!(
                steps,
                Mem.pfnBufferCreateWithNativeHandle(native, context, null())
            ),
        };
        finish(steps, &[queue]);
        if !foreign.is_null() {
            step!(steps, Mem.pfnRelease(foreign));
        }
        release(steps, &[copied, within, rect, read_back]);
    }
    for buffer in [first, second] {
        if !buffer.is_null() {
            step!(steps, Mem.pfnRelease(buffer));
        }
    }
}

fn over_host_memory(steps: &mut Steps, place: &Place) {
    let (context, queue, memory) = (place.context, place.one, host(6));
    // SAFETY: memory of the test's.
    unsafe { memory.write_bytes(3, SIZE) };
    let properties = ur_buffer_properties_t {
        pHost: memory.cast(),
        ..Default::default()
    };
    let flags = UR_MEM_FLAG_READ_WRITE | UR_MEM_FLAG_USE_HOST_POINTER;
    let buffer = make!(
        steps,
        Mem.pfnBufferCreate(context, flags, SIZE, &properties)
    );
    if buffer.is_null() {
        return;
    }
    // Of a part of the same memory: an import of it is shared.
    let second = make!(
        steps,
        Mem.pfnBufferCreate(context, flags, SIZE / 4, &properties)
    );
    let from = host(7);
    // SAFETY: memory of the test's.
    unsafe { from.write(4) };
    let filled = enqueue!(
        steps,
        &[],
        Enqueue.pfnMemBufferFill(queue, buffer, from.cast(), 1, 0, SIZE / 2)
    );
    release(steps, &[filled]);
    if !second.is_null() {
        step!(steps, Mem.pfnRelease(second));
    }
    let (maps, mut at) = (UR_MAP_FLAG_READ | UR_MAP_FLAG_WRITE, null_mut());
    let blocks = true as ur_bool_t;
    if step!(
        steps,
        Enqueue.pfnMemBufferMap(
            queue,
            buffer,
            blocks,
            maps,
            0,
            SIZE,
            0,
            null(),
            null_mut(),
            &mut at
        )
    ) {
        let whole = read(at, SIZE);
        steps.expect("a mapping of the host's memory", || {
            whole[..SIZE / 2] == [4; SIZE / 2] && whole[SIZE / 2..] == [3; SIZE / 2]
        });
        let unmapped = enqueue!(steps, &[], Enqueue.pfnMemUnmap(queue, buffer, at));
        release(steps, &[unmapped]);
    }
    step!(steps, Mem.pfnRelease(buffer));
    steps.expect("a buffer's memory after its end", || {
        all_are(memory.cast(), SIZE / 2, 4)
    });
}

/// Programs of SPIR-V and of the driver's own code, compiled, linked and built.
fn with_programs(steps: &mut Steps, place: &Place) {
    let context = place.context;
    let il = spirv::iota();
    let of_il = make!(
        steps,
        Program.pfnCreateWithIL(context, il.as_ptr().cast(), il.len(), null())
    );
    if of_il.is_null() {
        return;
    }
    let value = 1_u32;
    let constant = ur_specialization_constant_info_t {
        id: spirv::CONSTANT,
        size: size_of::<u32>(),
        pValue: (&raw const value).cast(),
    };
    step!(
        steps,
        Program.pfnSetSpecializationConstants(of_il, 1, &constant)
    );
    if step!(steps, Program.pfnCompile(context, of_il, null())) {
        let linked = make!(steps, Program.pfnLink(context, 1, &of_il, null()));
        let both = [of_il, of_il];
        let twice = make!(steps, Program.pfnLink(context, 2, both.as_ptr(), null()));
        for program in [linked, twice] {
            if !program.is_null() {
                read_logs(steps, program);
                step!(steps, Program.pfnRelease(program));
            }
        }
    }
    if step!(
        steps,
        Program.pfnBuild(context, of_il, c"-cl-fast-relaxed-math".as_ptr())
    ) {
        read_logs(steps, of_il);
        let what = UR_PROGRAM_INFO_KERNEL_NAMES;
        let mut bytes = 0;
        step!(
            steps,
            Program.pfnGetInfo(of_il, what, 0, null_mut(), &mut bytes)
        );
        from_binary(steps, place, of_il);
        let native: usize = make!(steps, Program.pfnGetNativeHandle(of_il));
        if native != 0 {
            let foreign = make!(
                steps,
                Program.pfnCreateWithNativeHandle(native, context, null())
            );
            if !foreign.is_null() {
                step!(steps, Program.pfnRelease(foreign));
            }
        }
    }
    step!(steps, Program.pfnRelease(of_il));
}

/// Reads the log of a program's last build on each of its devices.
pub fn read_logs(steps: &mut Steps, program: ur_program_handle_t) {
    let (mut bytes, none) = (0, null_mut());
    let what = UR_PROGRAM_INFO_DEVICES;
    if !step!(
        steps,
        Program.pfnGetInfo(program, what, 0, none, &mut bytes)
    ) {
        return;
    }
    let mut devices: Vec<ur_device_handle_t> = vec![null_mut(); bytes / size_of::<usize>()];
    let to = devices.as_mut_ptr().cast();
    if !step!(
        steps,
        Program.pfnGetInfo(program, what, bytes, to, null_mut())
    ) {
        return;
    }
    for device in devices {
        let what = UR_PROGRAM_BUILD_INFO_LOG;
        step!(
            steps,
            Program.pfnGetBuildInfo(program, device, what, 0, none, &mut bytes)
        );
    }
}

fn from_binary(steps: &mut Steps, place: &Place, program: ur_program_handle_t) {
    let (mut bytes, size) = (0_usize, size_of::<usize>());
    let (what, to) = (UR_PROGRAM_INFO_BINARY_SIZES, (&raw mut bytes).cast());
    if !step!(
        steps,
        Program.pfnGetInfo(program, what, size, to, null_mut())
    ) {
        return;
    }
    if bytes == 0 {
        return;
    }
    let mut code = vec![0_u8; bytes];
    let mut all = [code.as_mut_ptr()];
    let (what, size) = (UR_PROGRAM_INFO_BINARIES, size_of_val(&all));
    let to = all.as_mut_ptr().cast();
    if !step!(
        steps,
        Program.pfnGetInfo(program, what, size, to, null_mut())
    ) {
        return;
    }
    steps.expect("the driver's code", || code.starts_with(b"scripted binary"));
    let (mut device, mut first) = (place.device, code.as_ptr());
    let own = make!(
        steps,
        Program.pfnCreateWithBinary(
            place.context,
            1,
            &mut device,
            &mut bytes,
            &mut first,
            null()
        )
    );
    if !own.is_null() {
        step!(steps, Program.pfnBuild(place.context, own, null()));
        read_logs(steps, own);
        step!(steps, Program.pfnRelease(own));
    }
}

/// A built program with its kernel. Both are null if a step failed.
pub fn iota(
    steps: &mut Steps,
    context: ur_context_handle_t,
) -> (ur_program_handle_t, ur_kernel_handle_t) {
    let il = spirv::iota();
    let program = make!(
        steps,
        Program.pfnCreateWithIL(context, il.as_ptr().cast(), il.len(), null())
    );
    if program.is_null() {
        return (null_mut(), null_mut());
    }
    if step!(steps, Program.pfnBuild(context, program, null())) {
        read_logs(steps, program);
        let kernel = make!(steps, Kernel.pfnCreate(program, c"iota".as_ptr()));
        if !kernel.is_null() {
            return (program, kernel);
        }
    }
    step!(steps, Program.pfnRelease(program));
    (null_mut(), null_mut())
}

/// The arguments of the kernel: memory, and the first number.
pub fn arguments(to: *mut c_void, first: &u32) -> [ur_exp_kernel_arg_properties_t; 2] {
    [
        ur_exp_kernel_arg_properties_t {
            r#type: UR_EXP_KERNEL_ARG_TYPE_POINTER,
            index: 0,
            size: size_of::<usize>(),
            value: ur_exp_kernel_arg_value_t { pointer: to },
            ..Default::default()
        },
        ur_exp_kernel_arg_properties_t {
            r#type: UR_EXP_KERNEL_ARG_TYPE_VALUE,
            index: 1,
            size: size_of::<u32>(),
            value: ur_exp_kernel_arg_value_t {
                value: std::ptr::from_ref(first).cast(),
            },
            ..Default::default()
        },
    ]
}

fn with_kernels(steps: &mut Steps, place: &Place) {
    let &Place {
        device,
        context,
        one,
        two,
        ..
    } = place;
    let (program, kernel) = iota(steps, context);
    let memory = make!(
        steps,
        USM.pfnSharedAlloc(context, device, null(), null_mut(), SIZE)
    );
    if !kernel.is_null() && !memory.is_null() {
        let (mut group, bytes) = (0_usize, size_of::<usize>());
        let (what, to) = (
            UR_KERNEL_GROUP_INFO_WORK_GROUP_SIZE,
            (&raw mut group).cast(),
        );
        step!(
            steps,
            Kernel.pfnGetGroupInfo(kernel, device, what, bytes, to, null_mut())
        );
        let what = UR_KERNEL_INFO_ATTRIBUTES;
        step!(
            steps,
            Kernel.pfnGetInfo(kernel, what, 0, null_mut(), &mut group)
        );
        let (on, what) = (1_u8, UR_KERNEL_EXEC_INFO_USM_INDIRECT_ACCESS);
        let from = (&raw const on).cast();
        step!(steps, Kernel.pfnSetExecInfo(kernel, what, 1, null(), from));
        let config = UR_KERNEL_CACHE_CONFIG_LARGE_SLM;
        let (what, from) = (UR_KERNEL_EXEC_INFO_CACHE_CONFIG, (&raw const config).cast());
        step!(
            steps,
            Kernel.pfnSetExecInfo(kernel, what, size_of_val(&config), null(), from)
        );
        let (zero, global, local) = (0_usize, 1000_usize, 10_usize);
        let (mut chosen, mut groups) = (0, 0);
        step!(
            steps,
            Kernel.pfnGetSuggestedLocalWorkSize(kernel, one, 1, &zero, &global, &mut chosen)
        );
        step!(
            steps,
            Kernel.pfnSuggestMaxCooperativeGroupCount(kernel, device, 1, &local, 0, &mut groups)
        );
        let first = 3_u32;
        let args = arguments(memory, &first);
        let launch = |steps: &mut Steps, queue, local, offset, properties, waits: &[_]| {
            enqueue!(
                steps,
                waits,
                EnqueueExp.pfnKernelLaunchWithArgsExp(
                    queue,
                    kernel,
                    1,
                    offset,
                    &global,
                    local,
                    2,
                    args.as_ptr(),
                    properties
                )
            )
        };
        let cooperative = ur_kernel_launch_ext_properties_t {
            flags: UR_KERNEL_LAUNCH_FLAG_COOPERATIVE,
            ..Default::default()
        };
        let offset = 8_usize;
        let a = launch(steps, one, null(), null(), null(), &[]);
        let b = launch(steps, two, &raw const local, null(), null(), &[a]);
        let c = launch(
            steps,
            two,
            &raw const global,
            null(),
            &raw const cooperative,
            &[b],
        );
        let d = launch(
            steps,
            one,
            &raw const global,
            &raw const offset,
            null(),
            &[c],
        );
        wait(steps, d);
        if super::random::has_kernels() {
            steps.expect("numbers", || read(memory, 8) == [3, 0, 0, 0, 4, 0, 0, 0]);
        }
        release(steps, &[a, b, c, d]);
        let native: usize = make!(steps, Kernel.pfnGetNativeHandle(kernel));
        if native != 0 {
            let foreign = make!(
                steps,
                Kernel.pfnCreateWithNativeHandle(native, context, program, null())
            );
            if !foreign.is_null() {
                step!(steps, Kernel.pfnRelease(foreign));
            }
        }
        let last = launch(steps, two, null(), null(), null(), &[]);
        release(steps, &[last]);
        finish(steps, &[two]);
    }
    free(steps, context, &[memory]);
    if !kernel.is_null() {
        step!(steps, Kernel.pfnRelease(kernel));
        step!(steps, Program.pfnRelease(program));
    }
}

fn in_command_buffers(steps: &mut Steps, place: &Place) {
    let (context, device) = (place.context, place.device);
    let (program, kernel) = iota(steps, context);
    let memory = make!(
        steps,
        USM.pfnSharedAlloc(context, device, null(), null_mut(), SIZE)
    );
    let desc = ur_exp_command_buffer_desc_t {
        isUpdatable: 1,
        ..Default::default()
    };
    let buffer = make!(steps, CommandBufferExp.pfnCreateExp(context, device, &desc));
    if !kernel.is_null() && !memory.is_null() && !buffer.is_null() {
        recorded(steps, place, buffer, kernel, memory);
    }
    if !buffer.is_null() {
        step!(steps, CommandBufferExp.pfnReleaseExp(buffer));
    }
    free(steps, context, &[memory]);
    if !kernel.is_null() {
        step!(steps, Kernel.pfnRelease(kernel));
        step!(steps, Program.pfnRelease(program));
    }
}

fn recorded(
    steps: &mut Steps,
    place: &Place,
    buffer: ur_exp_command_buffer_handle_t,
    kernel: ur_kernel_handle_t,
    memory: *mut c_void,
) {
    let (from, global, first) = (host(8), 16_usize, 1_u32);
    // SAFETY: memory of the test's.
    unsafe { from.write(8) };
    let half = memory.wrapping_byte_add(SIZE / 2);
    let (mut filled, mut copied, mut command) = (0, 0, null_mut());
    step!(
        steps,
        CommandBufferExp.pfnAppendUSMFillExp(
            buffer,
            memory,
            from.cast(),
            1,
            SIZE / 2,
            0,
            null(),
            0,
            null(),
            &mut filled,
            null_mut(),
            null_mut()
        )
    );
    step!(
        steps,
        CommandBufferExp.pfnAppendUSMMemcpyExp(
            buffer,
            half,
            memory,
            SIZE / 4,
            1,
            &filled,
            0,
            null(),
            &mut copied,
            null_mut(),
            null_mut()
        )
    );
    let args = arguments(half.wrapping_byte_add(SIZE / 4), &first);
    step!(
        steps,
        CommandBufferExp.pfnAppendKernelLaunchWithArgsExp(
            buffer,
            kernel,
            1,
            null(),
            &global,
            null(),
            2,
            args.as_ptr(),
            0,
            null_mut(),
            1,
            &copied,
            0,
            null(),
            null_mut(),
            null_mut(),
            &mut command
        )
    );
    if step!(steps, CommandBufferExp.pfnFinalizeExp(buffer)) {
        let one = enqueue!(
            steps,
            &[],
            EnqueueExp.pfnCommandBufferExp(place.one, buffer)
        );
        let two = enqueue!(
            steps,
            &[one],
            EnqueueExp.pfnCommandBufferExp(place.two, buffer)
        );
        if wait(steps, two) {
            steps.expect("recorded commands", || all_are(memory, SIZE / 4 * 3, 8));
        }
        let next = 2_u32;
        let value = ur_exp_command_buffer_update_value_arg_desc_t {
            argIndex: 1,
            argSize: size_of::<u32>(),
            pNewValueArg: (&raw const next).cast(),
            ..Default::default()
        };
        let update = ur_exp_command_buffer_update_kernel_launch_desc_t {
            hCommand: command,
            hNewKernel: kernel,
            numNewValueArgs: 1,
            pNewValueArgList: &value,
            ..Default::default()
        };
        if !command.is_null() {
            step!(
                steps,
                CommandBufferExp.pfnUpdateKernelLaunchExp(buffer, 1, &update)
            );
        }
        let last = enqueue!(
            steps,
            &[],
            EnqueueExp.pfnCommandBufferExp(place.one, buffer)
        );
        wait(steps, last);
        release(steps, &[one, two, last]);
    }
}

fn in_graphs(steps: &mut Steps, place: &Place) {
    let (context, queue) = (place.context, place.one);
    let memory = make!(steps, USM.pfnHostAlloc(context, null(), null_mut(), SIZE));
    if memory.is_null() {
        return;
    }
    let from = host(9);
    // SAFETY: memory of the test's.
    unsafe { from.write(2) };
    if step!(steps, QueueExp.pfnBeginGraphCaptureExp(queue)) {
        let (half, none) = (memory.wrapping_byte_add(SIZE / 2), null_mut());
        step!(
            steps,
            Enqueue.pfnUSMFill(queue, memory, 1, from.cast(), SIZE / 2, 0, null(), none)
        );
        step!(
            steps,
            Enqueue.pfnUSMMemcpy(queue, false as _, half, memory, SIZE / 2, 0, null(), none)
        );
        let graph = make!(steps, QueueExp.pfnEndGraphCaptureExp(queue));
        if !graph.is_null() {
            let ready = make!(steps, GraphExp.pfnInstantiateGraphExp(graph));
            if !ready.is_null() {
                let done = enqueue!(steps, &[], EnqueueExp.pfnGraphExp(queue, ready));
                if wait(steps, done) {
                    steps.expect("captured commands", || all_are(memory, SIZE, 2));
                }
                release(steps, &[done]);
                finish(steps, &[queue]);
                step!(steps, GraphExp.pfnExecutableGraphDestroyExp(ready));
            }
            step!(steps, GraphExp.pfnDestroyExp(graph));
        }
    }
    free(steps, context, &[memory]);
}

fn in_virtual_memory(steps: &mut Steps, place: &Place) {
    let (context, device, queue) = (place.context, place.device, place.one);
    let (mut page, bytes) = (0_usize, size_of::<usize>());
    let (what, to) = (
        UR_VIRTUAL_MEM_GRANULARITY_INFO_MINIMUM,
        (&raw mut page).cast(),
    );
    let known = step!(
        steps,
        VirtualMem.pfnGranularityGetInfo(context, device, 1, what, bytes, to, null_mut())
    );
    if !known {
        return;
    }
    let start = make!(steps, VirtualMem.pfnReserve(context, null(), page));
    let memory = make!(steps, PhysicalMem.pfnCreate(context, device, page, null()));
    if !start.is_null() && !memory.is_null() {
        let both = UR_VIRTUAL_MEM_ACCESS_FLAG_READ_WRITE;
        if step!(
            steps,
            VirtualMem.pfnMap(context, start, page, memory, 0, both)
        ) {
            step!(steps, VirtualMem.pfnSetAccess(context, start, page, both));
            let from = host(10);
            // SAFETY: memory of the test's.
            unsafe { from.write(1) };
            let filled = enqueue!(
                steps,
                &[],
                Enqueue.pfnUSMFill(queue, start, 1, from.cast(), SIZE)
            );
            let copied = enqueue!(
                steps,
                &[filled],
                Enqueue.pfnUSMMemcpy(queue, true as _, host(11).cast(), start, SIZE)
            );
            steps.expect("mapped memory", || all_are(host(11).cast(), SIZE, 1));
            release(steps, &[filled, copied]);
            finish(steps, &[queue]);
            step!(steps, VirtualMem.pfnUnmap(context, start, page));
        }
    }
    if !start.is_null() {
        step!(steps, VirtualMem.pfnFree(context, start, page));
    }
    if !memory.is_null() {
        step!(steps, PhysicalMem.pfnRelease(memory));
    }
}

/// Host tasks that ran.
static TASKS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn task(_: *mut c_void) {
    std::thread::sleep(std::time::Duration::from_millis(1));
    TASKS.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn called_back(_: ur_event_handle_t, _: ur_execution_info_t, _: *mut c_void) {
    TASKS.fetch_add(1, Ordering::SeqCst);
}

/// Work behind a host task waits for the host.
fn with_host_tasks(steps: &mut Steps, place: &Place) {
    let &Place { one, two, .. } = place;
    let (from, to) = (host(12), host(13));
    // SAFETY: memory of the test's.
    unsafe {
        from.write(4);
        to.write_bytes(0, SIZE);
    }
    let done = enqueue!(
        steps,
        &[],
        EnqueueExp.pfnHostTaskExp(one, Some(task), null_mut(), null())
    );
    let mut behind = Vec::new();
    for queue in [one, two] {
        let half = to.wrapping_byte_add(if queue == one { 0 } else { SIZE / 2 });
        let filled = enqueue!(
            steps,
            &[done],
            Enqueue.pfnUSMFill(queue, half.cast(), 1, from.cast(), SIZE / 2)
        );
        behind.push(filled);
    }
    let wall = enqueue!(steps, &behind, Enqueue.pfnEventsWaitWithBarrier(two));
    if !wall.is_null() {
        let complete = UR_EXECUTION_INFO_COMPLETE;
        step!(
            steps,
            Event.pfnSetCallback(wall, complete, Some(called_back), null_mut())
        );
    }
    if wait(steps, wall) {
        steps.expect("work behind a host task", || all_are(to.cast(), SIZE, 4));
    }
    finish(steps, &[one, two]);
    release(steps, &behind);
    release(steps, &[done, wall]);
}

unsafe extern "C" fn native_command(queue: ur_queue_handle_t, _: *mut c_void) {
    let mut handle = 0;
    // A failure by script is expected.
    let _ = ur!(Queue.pfnGetNativeHandle(queue, null_mut(), &mut handle));
}

/// Queues and events whose native handles are given out and adopted. A list waits for the host by itself then.
fn with_native_handles(steps: &mut Steps, place: &Place) {
    let (context, device) = (place.context, place.device);
    let native: usize = make!(steps, Context.pfnGetNativeHandle(context));
    if native != 0 {
        let foreign = make!(
            steps,
            Context.pfnCreateWithNativeHandle(native, place.adapter, 1, &device, null())
        );
        if !foreign.is_null() {
            step!(steps, Context.pfnRelease(foreign));
        }
    }
    let open = queue(steps, context, device, ur_queue_flags_t(0));
    if open.is_null() {
        return;
    }
    let list: usize = make!(steps, Queue.pfnGetNativeHandle(open, null_mut()));
    let properties = ur_queue_native_properties_t::default();
    let adopted = match list {
        0 => null_mut(),
        list => make!(
            steps,
            Queue.pfnCreateWithNativeHandle(list, context, device, &properties)
        ),
    };
    if !adopted.is_null() {
        let (from, to) = (host(14), host(15));
        // SAFETY: memory of the test's.
        unsafe {
            from.write(6);
            to.write_bytes(0, SIZE);
        }
        let done = enqueue!(
            steps,
            &[],
            EnqueueExp.pfnHostTaskExp(place.one, Some(task), null_mut(), null())
        );
        let filled = enqueue!(
            steps,
            &[done],
            Enqueue.pfnUSMFill(adopted, to.cast(), 1, from.cast(), SIZE)
        );
        let mut native_work = null_mut();
        let code = ur!(EnqueueExp.pfnNativeCommandExp(
            open,
            Some(native_command),
            null_mut(),
            0,
            null(),
            null(),
            0,
            null(),
            &mut native_work
        ));
        if code != UR_RESULT_ERROR_UNSUPPORTED_FEATURE {
            steps.record("EnqueueExp.pfnNativeCommandExp", code);
        }
        let event: usize = match filled.is_null() {
            true => 0,
            false => make!(steps, Event.pfnGetNativeHandle(filled)),
        };
        let foreign = match event {
            0 => null_mut(),
            event => make!(
                steps,
                Event.pfnCreateWithNativeHandle(event, context, null())
            ),
        };
        let wall = enqueue!(
            steps,
            &[foreign, native_work],
            Enqueue.pfnEventsWaitWithBarrier(open)
        );
        if wait(steps, wall) {
            steps.expect("work of an adopted queue", || all_are(to.cast(), SIZE, 6));
        }
        // A host task whose event was not made may still run.
        finish(steps, &[place.one, adopted, open]);
        release(steps, &[done, native_work, foreign, wall, filled]);
        release_queues(steps, &[adopted]);
    }
    release_queues(steps, &[open]);
}

fn with_registration(steps: &mut Steps, place: &Place) {
    let (context, queue, memory) = (place.context, place.one, host(16));
    let start = memory.cast::<c_void>();
    if step!(
        steps,
        USMExp.pfnHostAllocRegisterExp(context, start, SIZE, null())
    ) {
        let from = host(17);
        // SAFETY: memory of the test's.
        unsafe { from.write(11) };
        let filled = enqueue!(
            steps,
            &[],
            Enqueue.pfnUSMFill(queue, start, 1, from.cast(), SIZE)
        );
        if wait(steps, filled) {
            steps.expect("registered memory", || all_are(start, SIZE, 11));
        }
        release(steps, &[filled]);
        finish(steps, &[queue]);
        let properties = ur_buffer_properties_t {
            pHost: start,
            ..Default::default()
        };
        let flags = UR_MEM_FLAG_READ_WRITE | UR_MEM_FLAG_USE_HOST_POINTER;
        let over = make!(
            steps,
            Mem.pfnBufferCreate(context, flags, SIZE, &properties)
        );
        if !over.is_null() {
            step!(steps, Mem.pfnRelease(over));
        }
        step!(steps, USMExp.pfnHostAllocUnregisterExp(context, start));
    }
    if step!(steps, USMExp.pfnImportExp(context, start, SIZE)) {
        step!(steps, USMExp.pfnReleaseExp(context, start));
    }
}

fn in_batches(steps: &mut Steps, place: &Place) {
    let batched = queue(
        steps,
        place.context,
        place.device,
        UR_QUEUE_FLAG_SUBMISSION_BATCHED,
    );
    if batched.is_null() {
        return;
    }
    let (device, from) = (place.device, host(18));
    let to = make!(
        steps,
        USM.pfnSharedAlloc(place.context, device, null(), null_mut(), SIZE)
    );
    // SAFETY: memory of the test's.
    unsafe { from.write(12) };
    for part in 0..4 {
        let to = to.wrapping_byte_add(part * SIZE / 4);
        let (bytes, none) = (SIZE / 4, null_mut());
        if !to.is_null() {
            step!(
                steps,
                Enqueue.pfnUSMFill(batched, to, 1, from.cast(), bytes, 0, null(), none)
            );
        }
        match part {
            1 => {
                step!(steps, Queue.pfnFlush(batched));
            }
            // The next batch takes the list of a complete one.
            2 => finish(steps, &[batched]),
            _ => {}
        }
    }
    finish(steps, &[batched]);
    steps.expect("batched commands", || all_are(to, SIZE, 12));
    free(steps, place.context, &[to]);
    release_queues(steps, &[batched]);
}

/// A context of both devices, with a queue on each.
fn on_two_devices(steps: &mut Steps, place: &Place) {
    let [first, second] = place.devices[..] else {
        return;
    };
    let context = make!(steps, Context.pfnCreate(2, place.devices.as_ptr(), null()));
    if context.is_null() {
        return;
    }
    with_open_memory(steps, context, [first, second]);
    let one = queue(steps, context, first, ur_queue_flags_t(0));
    let two = queue(steps, context, second, ur_queue_flags_t(0));
    let flags = UR_MEM_FLAG_READ_WRITE;
    let buffer = make!(steps, Mem.pfnBufferCreate(context, flags, SIZE, null()));
    if !one.is_null() && !two.is_null() && !buffer.is_null() {
        let (from, to) = (host(20), host(21).cast());
        // SAFETY: memory of the test's.
        unsafe { from.write(13) };
        let filled = enqueue!(
            steps,
            &[],
            Enqueue.pfnMemBufferFill(one, buffer, from.cast(), 1, 0, SIZE)
        );
        let copied = enqueue!(
            steps,
            &[filled],
            Enqueue.pfnMemBufferRead(two, buffer, false as _, 0, SIZE, to)
        );
        if wait(steps, copied) {
            steps.expect("a buffer of two devices", || all_are(to, SIZE, 13));
        }
        release(steps, &[filled, copied]);
        // Foreign code may write on a device, whose copy is then the only current one.
        for (device, queue) in [(second, one), (first, two)] {
            let native = make!(steps, Mem.pfnGetNativeHandle(buffer, device));
            let at: *mut c_void = std::ptr::with_exposed_provenance_mut(native);
            if !at.is_null() {
                steps.expect("the copy of a device", || all_are(at, SIZE, 13));
            }
            let copied = enqueue!(
                steps,
                &[],
                Enqueue.pfnMemBufferRead(queue, buffer, false as _, 0, SIZE, to)
            );
            if wait(steps, copied) {
                steps.expect("a buffer that moved", || all_are(to, SIZE, 13));
            }
            release(steps, &[copied]);
        }
        finish(steps, &[one, two]);
    }
    if !buffer.is_null() {
        step!(steps, Mem.pfnRelease(buffer));
    }
    release_queues(steps, &[one, two]);
    step!(steps, Context.pfnRelease(context));
}

/// Memory of the second device that is opened to the first: what is there before, and what comes behind.
fn with_open_memory(
    steps: &mut Steps,
    context: ur_context_handle_t,
    [first, second]: [ur_device_handle_t; 2],
) {
    let memory = |steps: &mut Steps| {
        let pool = null_mut();
        make!(
            steps,
            USM.pfnDeviceAlloc(context, second, null(), pool, LARGE)
        )
    };
    let before = memory(steps);
    let is_open = step!(steps, UsmP2PExp.pfnEnablePeerAccessExp(first, second));
    let behind = memory(steps);
    free(steps, context, &[behind]);
    if is_open {
        step!(steps, UsmP2PExp.pfnDisablePeerAccessExp(first, second));
    }
    free(steps, context, &[before]);
}

/// Whether the device says that it can.
fn has(steps: &mut Steps, place: &Place, what: ur_device_info_t) -> bool {
    let (mut answer, bytes) = (0_u8, size_of::<u8>());
    let to = (&raw mut answer).cast();
    let none = null_mut();
    step!(
        steps,
        Device.pfnGetInfo(place.device, what, bytes, to, none)
    ) && answer != 0
}

/// What other processes open, opened by this one, and exportable memory.
fn between_processes(steps: &mut Steps, place: &Place) {
    if has(steps, place, UR_DEVICE_INFO_IPC_MEMORY_SUPPORT_EXP) {
        shared_memory(steps, place);
    }
    if has(steps, place, UR_DEVICE_INFO_IPC_PHYSICAL_MEMORY_SUPPORT_EXP) {
        shared_physical_memory(steps, place);
    }
    if has(steps, place, UR_DEVICE_INFO_IPC_EVENT_SUPPORT_EXP) {
        shared_event(steps, place);
    }
    let exports = UR_DEVICE_INFO_MEMORY_EXPORT_EXPORTABLE_DEVICE_MEM_EXP;
    if has(steps, place, exports) {
        exportable_memory(steps, place);
    }
}

/// Fills memory with a byte and waits. False if that failed.
fn fill(steps: &mut Steps, place: &Place, memory: *mut c_void, byte: u8) -> bool {
    let from = host(22);
    // SAFETY: memory of the test's.
    unsafe { from.write(byte) };
    let filled = enqueue!(
        steps,
        &[],
        Enqueue.pfnUSMFill(place.one, memory, 1, from.cast(), SIZE)
    );
    let is_filled = wait(steps, filled);
    release(steps, &[filled]);
    is_filled
}

fn shared_memory(steps: &mut Steps, place: &Place) {
    let (context, device) = (place.context, place.device);
    let none = null_mut();
    let memory = make!(
        steps,
        USM.pfnDeviceAlloc(context, device, null(), none, SIZE)
    );
    if memory.is_null() {
        return;
    }
    let (mut data, mut size) = (null_mut(), 0);
    if fill(steps, place, memory, 3)
        && step!(
            steps,
            IPCExp.pfnGetMemHandleExp(context, memory, &mut data, &mut size)
        )
    {
        let opened = make!(
            steps,
            IPCExp.pfnOpenMemHandleExp(context, device, data, size)
        );
        if !opened.is_null() {
            // The driver's memory is the host's.
            steps.expect("opened memory", || all_are(opened, SIZE, 3));
            if fill(steps, place, opened, 4) {
                steps.expect("memory behind it", || all_are(memory, SIZE, 4));
            }
            finish(steps, &[place.one]);
            step!(steps, IPCExp.pfnCloseMemHandleExp(context, opened));
        }
        step!(steps, IPCExp.pfnPutMemHandleExp(context, data));
    }
    finish(steps, &[place.one]);
    free(steps, context, &[memory]);
}

fn shared_physical_memory(steps: &mut Steps, place: &Place) {
    let (context, device) = (place.context, place.device);
    let (mut page, bytes) = (0_usize, size_of::<usize>());
    let what = UR_VIRTUAL_MEM_GRANULARITY_INFO_MINIMUM;
    let to = (&raw mut page).cast();
    let none = null_mut();
    let known = step!(
        steps,
        VirtualMem.pfnGranularityGetInfo(context, device, 1, what, bytes, to, none)
    );
    if !known {
        return;
    }
    let properties = ur_physical_mem_properties_t {
        flags: UR_PHYSICAL_MEM_FLAG_ENABLE_IPC,
        ..Default::default()
    };
    let memory = make!(
        steps,
        PhysicalMem.pfnCreate(context, device, page, &properties)
    );
    if memory.is_null() {
        return;
    }
    let (mut data, mut size) = (null_mut(), 0);
    if step!(
        steps,
        IPCExp.pfnGetPhysMemHandleExp(context, memory, &mut data, &mut size)
    ) {
        let opened = make!(
            steps,
            IPCExp.pfnOpenPhysMemHandleExp(context, device, data, size)
        );
        if !opened.is_null() {
            step!(steps, IPCExp.pfnClosePhysMemHandleExp(context, opened));
        }
        step!(steps, IPCExp.pfnPutPhysMemHandleExp(context, data));
    }
    step!(steps, PhysicalMem.pfnRelease(memory));
}

fn shared_event(steps: &mut Steps, place: &Place) {
    let (context, device, queue) = (place.context, place.device, place.one);
    let desc = ur_exp_event_desc_t {
        flags: UR_EXP_EVENT_FLAG_IPC_EXP,
        ..Default::default()
    };
    let own = make!(steps, EventExp.pfnCreateExp(context, device, &desc));
    if own.is_null() {
        return;
    }
    let (mut data, mut size) = (null_mut(), 0);
    if step!(
        steps,
        IPCExp.pfnGetEventHandleExp(own, &mut data, &mut size)
    ) {
        let opened = make!(steps, IPCExp.pfnOpenEventHandleExp(context, data, size));
        let mut signalled = own;
        let barrier = step!(
            steps,
            Enqueue.pfnEventsWaitWithBarrierExt(queue, null(), 0, null(), &mut signalled)
        );
        if barrier && wait(steps, opened) {
            let (byte, to) = (host(23), host(24).cast());
            // SAFETY: memory of the test's.
            unsafe { byte.write(9) };
            let copied = enqueue!(
                steps,
                &[opened],
                Enqueue.pfnUSMMemcpy(place.two, false as _, to, byte.cast(), 1)
            );
            if wait(steps, copied) {
                steps.expect("a copy behind the event", || all_are(to, 1, 9));
            }
            release(steps, &[copied]);
        }
        finish(steps, &[queue, place.two]);
        release(steps, &[opened]);
        step!(steps, IPCExp.pfnPutEventHandleExp(context, data));
    }
    release(steps, &[own]);
}

fn exportable_memory(steps: &mut Steps, place: &Place) {
    let (context, device) = (place.context, place.device);
    let kind = UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD;
    let memory = make!(
        steps,
        MemoryExportExp.pfnAllocExportableMemoryExp(context, device, 0, SIZE, kind)
    );
    if memory.is_null() {
        return;
    }
    let mut number = -1_i32;
    let to = (&raw mut number).cast();
    if step!(
        steps,
        MemoryExportExp.pfnExportMemoryHandleExp(context, device, kind, memory, to)
    ) {
        // SAFETY: exported just now, for the caller.
        drop(unsafe { std::os::fd::OwnedFd::from_raw_fd(number) });
    }
    step!(
        steps,
        MemoryExportExp.pfnFreeExportableMemoryExp(context, device, memory)
    );
}

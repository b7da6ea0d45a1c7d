//! A part of everything that a client uses, on one device or several.
//!
//! A step that fails does not stop the workload. In the end it releases everything, including the adapter.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use ur::abi::*;

use super::fake_driver::{adapter, devices, ur};

/// The result of each step, and a check after each.
pub struct Steps<'a> {
    answers: Vec<(&'static str, ur_result_t)>,
    after: &'a dyn Fn(&'static str),
    /// Whether the data that was read back is right.
    pub right: bool,
}

impl<'a> Steps<'a> {
    pub fn new(after: &'a dyn Fn(&'static str)) -> Self {
        Self {
            answers: Vec::new(),
            after,
            right: false,
        }
    }

    /// Records a step; true if it succeeded.
    pub fn record(&mut self, name: &'static str, code: ur_result_t) -> bool {
        self.answers.push((name, code));
        (self.after)(name);
        code == UR_RESULT_SUCCESS
    }

    pub fn failed(&self) -> Vec<(&'static str, ur_result_t)> {
        let failed = |(_, code): &&(_, ur_result_t)| *code != UR_RESULT_SUCCESS;
        self.answers.iter().filter(failed).copied().collect()
    }
}

/// Bytes of each allocation.
pub const SIZE: usize = 4096;

/// A step that makes an object: the output is added as its last argument. The handle is null if the step
/// fails.
macro_rules! make {
    ($steps:ident, $name:literal, $table:ident.$slot:ident($($arg:expr),*)) => {{
        let mut made = null_mut();
        let code = ur!($table.$slot($($arg,)* &mut made));
        $steps.record($name, code);
        made
    }};
}

/// A command that waits for the events that exist. Its event is null if it failed.
macro_rules! enqueue {
    ($steps:ident, $name:literal, $waits:expr, $table:ident.$slot:ident($($arg:expr),*)) => {{
        let waits: Vec<ur_event_handle_t> = $waits;
        let waits: Vec<_> = waits.into_iter().filter(|event| !event.is_null()).collect();
        let first = if waits.is_empty() { null() } else { waits.as_ptr() };
        let mut event: ur_event_handle_t = null_mut();
        let code = ur!($table.$slot($($arg,)* waits.len() as u32, first, &mut event));
        $steps.record($name, code);
        event
    }};
}

pub(super) use {enqueue, make};

pub unsafe extern "C" fn task(data: *mut c_void) {
    // SAFETY: the workload's own counter, which lives until the workload has waited for the task.
    let count = unsafe { &*data.cast::<AtomicU32>() };
    std::thread::sleep(std::time::Duration::from_millis(1));
    count.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn native(queue: ur_queue_handle_t, _: *mut c_void) {
    let mut handle = 0;
    // A failure by script is expected.
    let _ = ur!(Queue.pfnGetNativeHandle(queue, null_mut(), &mut handle));
}

/// Runs the workload, with a check after each step.
pub fn play(after: &dyn Fn(&'static str)) -> Steps<'_> {
    play_on(after, &[0])
}

/// Runs the workload in a context over some of the devices. Its queues are on the first and the last of them.
pub fn play_on<'a>(after: &'a dyn Fn(&'static str), places: &[usize]) -> Steps<'a> {
    let mut steps = Steps::new(after);
    let adapter = adapter();
    let all = devices(adapter);
    let own: Vec<_> = places.iter().map(|at| all[*at]).collect();
    let context = make!(
        steps,
        "urContextCreate",
        Context.pfnCreate(own.len() as u32, own.as_ptr(), null())
    );
    if !context.is_null() {
        with_queues(&mut steps, context, &own);
        steps.record("urContextRelease", ur!(Context.pfnRelease(context)));
    }
    steps.record("urAdapterRelease", ur!(Adapter.pfnRelease(adapter)));
    steps
}

fn with_queues(steps: &mut Steps, context: ur_context_handle_t, devices: &[ur_device_handle_t]) {
    let (device, last) = (devices[0], devices[devices.len() - 1]);
    let queue = |flags| ur_queue_properties_t {
        flags,
        ..Default::default()
    };
    let profiled = queue(UR_QUEUE_FLAG_PROFILING_ENABLE);
    let loose = queue(UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    let one = make!(
        steps,
        "urQueueCreate",
        Queue.pfnCreate(context, device, &profiled)
    );
    let two = make!(
        steps,
        "urQueueCreate",
        Queue.pfnCreate(context, last, &loose)
    );
    if !one.is_null() && !two.is_null() {
        on_usm(steps, (context, device), one, two);
        on_buffers(steps, context, one);
        over_host_memory(steps, context, one);
        with_program(steps, context, devices, one);
        asynchronous(steps, one, two);
        on_the_host(steps, one, two);
    }
    for queue in [one, two] {
        if !queue.is_null() {
            steps.record("urQueueFinish", ur!(Queue.pfnFinish(queue)));
            steps.record("urQueueRelease", ur!(Queue.pfnRelease(queue)));
        }
    }
}

pub fn release(steps: &mut Steps, events: &[ur_event_handle_t]) {
    for event in events.iter().filter(|event| !event.is_null()) {
        steps.record("urEventRelease", ur!(Event.pfnRelease(*event)));
    }
}

fn on_usm(
    steps: &mut Steps,
    (context, device): (ur_context_handle_t, ur_device_handle_t),
    one: ur_queue_handle_t,
    two: ur_queue_handle_t,
) {
    let pool = null_mut();
    let own = make!(
        steps,
        "urUSMDeviceAlloc",
        USM.pfnDeviceAlloc(context, device, null(), pool, SIZE)
    );
    let shared = make!(
        steps,
        "urUSMSharedAlloc",
        USM.pfnSharedAlloc(context, device, null(), pool, SIZE)
    );
    let host = make!(
        steps,
        "urUSMHostAlloc",
        USM.pfnHostAlloc(context, null(), pool, SIZE)
    );
    if !own.is_null() && !host.is_null() {
        let (byte, odd) = (7_u8, [1_u8, 2, 3]);
        let from = (&raw const byte).cast();
        let filled = enqueue!(
            steps,
            "urEnqueueUSMFill",
            vec![],
            Enqueue.pfnUSMFill(one, own, 1, from, SIZE)
        );
        let again = enqueue!(
            steps,
            "urEnqueueUSMFill",
            vec![],
            Enqueue.pfnUSMFill(one, own, 3, odd.as_ptr().cast(), 99)
        );
        let copied = enqueue!(
            steps,
            "urEnqueueUSMMemcpy",
            vec![filled, again],
            Enqueue.pfnUSMMemcpy(two, false as _, host, own, SIZE)
        );
        if !copied.is_null() {
            let waited = steps.record("urEventWait", ur!(Event.pfnWait(1, &copied)));
            // SAFETY: host memory of that size, which no command writes any more.
            let read = unsafe { std::slice::from_raw_parts(host.cast::<u8>(), SIZE) };
            let odd = read[..99].chunks(3).all(|three| three == odd);
            let rest = read[99..].iter().all(|byte| *byte == 7);
            steps.right = waited && !filled.is_null() && !again.is_null() && odd && rest;
        }
        let (mut start, bytes) = (0_u64, size_of::<u64>());
        if !filled.is_null() {
            let name = UR_PROFILING_INFO_COMMAND_START;
            let pool_info = (&raw mut start).cast();
            let code = ur!(Event.pfnGetProfilingInfo(filled, name, bytes, pool_info, null_mut()));
            steps.record("urEventGetProfilingInfo", code);
        }
        let hint = enqueue!(
            steps,
            "urEnqueueUSMPrefetch",
            vec![],
            Enqueue.pfnUSMPrefetch(one, shared, SIZE, ur_usm_migration_flags_t(0))
        );
        release(steps, &[filled, again, copied, hint]);
    }
    for memory in [own, shared, host] {
        if !memory.is_null() {
            steps.record("urUSMFree", ur!(USM.pfnFree(context, memory)));
        }
    }
}

fn on_buffers(steps: &mut Steps, context: ur_context_handle_t, queue: ur_queue_handle_t) {
    let plain = UR_MEM_FLAG_READ_WRITE;
    let buffer = make!(
        steps,
        "urMemBufferCreate",
        Mem.pfnBufferCreate(context, plain, SIZE, null())
    );
    if buffer.is_null() {
        return;
    }
    let data = [5_u8; SIZE];
    let written = enqueue!(
        steps,
        "urEnqueueMemBufferWrite",
        vec![],
        Enqueue.pfnMemBufferWrite(queue, buffer, true as _, 0, SIZE, data.as_ptr().cast())
    );
    let mut mapped = null_mut();
    let flags = UR_MAP_FLAG_READ | UR_MAP_FLAG_WRITE;
    let code = ur!(Enqueue.pfnMemBufferMap(
        queue,
        buffer,
        true as _,
        flags,
        0,
        SIZE,
        0,
        null(),
        null_mut(),
        &mut mapped
    ));
    if steps.record("urEnqueueMemBufferMap", code) {
        let unmapped = enqueue!(
            steps,
            "urEnqueueMemUnmap",
            vec![],
            Enqueue.pfnMemUnmap(queue, buffer, mapped)
        );
        release(steps, &[unmapped]);
    }
    release(steps, &[written]);
    steps.record("urQueueFinish", ur!(Queue.pfnFinish(queue)));
    steps.record("urMemRelease", ur!(Mem.pfnRelease(buffer)));
}

fn over_host_memory(steps: &mut Steps, context: ur_context_handle_t, queue: ur_queue_handle_t) {
    let mut memory = vec![3_u8; SIZE];
    let properties = ur_buffer_properties_t {
        pHost: memory.as_mut_ptr().cast(),
        ..Default::default()
    };
    let flags = UR_MEM_FLAG_READ_WRITE | UR_MEM_FLAG_USE_HOST_POINTER;
    let buffer = make!(
        steps,
        "urMemBufferCreate",
        Mem.pfnBufferCreate(context, flags, SIZE, &properties)
    );
    if buffer.is_null() {
        return;
    }
    let byte = 4_u8;
    let filled = enqueue!(
        steps,
        "urEnqueueMemBufferFill",
        vec![],
        Enqueue.pfnMemBufferFill(queue, buffer, (&raw const byte).cast(), 1, 0, SIZE)
    );
    release(steps, &[filled]);
    steps.record("urMemRelease", ur!(Mem.pfnRelease(buffer)));
    // A failed command may still run and use the memory.
    steps.record("urQueueFinish", ur!(Queue.pfnFinish(queue)));
}

fn with_program(
    steps: &mut Steps,
    context: ur_context_handle_t,
    devices: &[ur_device_handle_t],
    queue: ur_queue_handle_t,
) {
    let text = b".version 8.0";
    let (mut devices, count) = (devices.to_vec(), devices.len());
    let (mut bytes, mut codes) = (vec![text.len(); count], vec![text.as_ptr(); count]);
    let (all, sizes, codes) = (devices.as_mut_ptr(), bytes.as_mut_ptr(), codes.as_mut_ptr());
    let program = make!(
        steps,
        "urProgramCreateWithBinary",
        Program.pfnCreateWithBinary(context, count as u32, all, sizes, codes, null())
    );
    if program.is_null() {
        return;
    }
    steps.record(
        "urProgramBuild",
        ur!(Program.pfnBuild(context, program, null())),
    );
    let kernel = make!(
        steps,
        "urKernelCreate",
        Kernel.pfnCreate(program, c"nothing".as_ptr())
    );
    if !kernel.is_null() {
        let global = 1000_usize;
        let launched = enqueue!(
            steps,
            "urEnqueueKernelLaunchWithArgsExp",
            vec![],
            EnqueueExp.pfnKernelLaunchWithArgsExp(
                queue,
                kernel,
                1,
                null(),
                &global,
                null(),
                0,
                null(),
                null()
            )
        );
        release(steps, &[launched]);
        steps.record("urKernelRelease", ur!(Kernel.pfnRelease(kernel)));
    }
    steps.record("urProgramRelease", ur!(Program.pfnRelease(program)));
}

/// `own` uses the memory of a device.
fn asynchronous(steps: &mut Steps, one: ur_queue_handle_t, two: ur_queue_handle_t) {
    let pool = null_mut();
    for round in 0..3_u8 {
        let (mut memory, mut made) = (null_mut(), null_mut());
        let (to, ready) = (&mut memory, &mut made);
        let (name, code) = match round {
            0 => (
                "urEnqueueUSMDeviceAllocExp",
                ur!(EnqueueExp.pfnUSMDeviceAllocExp(one, pool, SIZE, null(), 0, null(), to, ready)),
            ),
            1 => (
                "urEnqueueUSMHostAllocExp",
                ur!(EnqueueExp.pfnUSMHostAllocExp(one, pool, SIZE, null(), 0, null(), to, ready)),
            ),
            _ => (
                "urEnqueueUSMSharedAllocExp",
                ur!(EnqueueExp.pfnUSMSharedAllocExp(one, pool, SIZE, null(), 0, null(), to, ready)),
            ),
        };
        if !steps.record(name, code) {
            continue;
        }
        let from = (&raw const round).cast();
        let filled = enqueue!(
            steps,
            "urEnqueueUSMFill",
            vec![made],
            Enqueue.pfnUSMFill(two, memory, 1, from, SIZE)
        );
        let freed = enqueue!(
            steps,
            "urEnqueueUSMFreeExp",
            vec![filled, made],
            EnqueueExp.pfnUSMFreeExp(two, pool, memory)
        );
        release(steps, &[made, filled, freed]);
    }
}

fn on_the_host(steps: &mut Steps, one: ur_queue_handle_t, two: ur_queue_handle_t) {
    let count = AtomicU32::new(0);
    let data = (&raw const count).cast_mut().cast();
    let done = enqueue!(
        steps,
        "urEnqueueHostTaskExp",
        vec![],
        EnqueueExp.pfnHostTaskExp(one, Some(task), data, null())
    );
    let wall = enqueue!(
        steps,
        "urEnqueueEventsWaitWithBarrier",
        vec![done],
        Enqueue.pfnEventsWaitWithBarrier(two)
    );
    let own = enqueue!(
        steps,
        "urEnqueueNativeCommandExp",
        vec![],
        EnqueueExp.pfnNativeCommandExp(two, Some(native), null_mut(), 0, null(), null())
    );
    for event in [done, wall, own] {
        if !event.is_null() {
            steps.record("urEventWait", ur!(Event.pfnWait(1, &event)));
        }
    }
    // A task whose event was not made may still run.
    for queue in [one, two] {
        steps.record("urQueueFinish", ur!(Queue.pfnFinish(queue)));
    }
    if done.is_null() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    release(steps, &[done, wall, own]);
}

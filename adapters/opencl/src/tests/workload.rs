//! A part of everything that a client uses, on one device.
//!
//! A step that fails does not stop the workload, which releases everything in the end.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use ur::abi::*;

use super::fake_driver::ur;

/// The result of each step.
#[derive(Default)]
pub struct Steps {
    answers: Vec<(&'static str, ur_result_t)>,
    /// Whether the data that was read back is right.
    pub right: bool,
}

impl Steps {
    /// Records a step; true if it succeeded.
    fn record(&mut self, name: &'static str, code: ur_result_t) -> bool {
        self.answers.push((name, code));
        code == UR_RESULT_SUCCESS
    }

    pub fn failed(&self) -> Vec<(&'static str, ur_result_t)> {
        let failed = |(_, code): &&(_, ur_result_t)| *code != UR_RESULT_SUCCESS;
        self.answers.iter().filter(failed).copied().collect()
    }
}

/// Bytes of each allocation.
const SIZE: usize = 4096;

/// A step that makes an object: `make!(steps, Queue.pfnCreate "urQueueCreate", (context, ...))`.
///
/// The output is added as the last argument. The handle is null if the step fails.
macro_rules! make {
    ($steps:ident, $name:literal, $table:ident.$slot:ident($($arg:expr),*)) => {{
        let mut made = null_mut();
        let code = ur!($table.$slot($($arg,)* &mut made));
        $steps.record($name, code);
        made
    }};
}

/// A command. Its event is null if it failed.
macro_rules! enqueue {
    ($steps:ident, $name:literal, $table:ident.$slot:ident($($arg:expr),*), $waits:expr) => {{
        let waits: Vec<ur_event_handle_t> = $waits.iter().copied().filter(|e: &ur_event_handle_t| !e.is_null()).collect();
        let first = if waits.is_empty() { null() } else { waits.as_ptr() };
        let mut event: ur_event_handle_t = null_mut();
        let code = ur!($table.$slot($($arg,)* waits.len() as u32, first, &mut event));
        $steps.record($name, code);
        event
    }};
}

unsafe extern "C" fn task(data: *mut c_void) {
    // SAFETY: the workload's own counter, which lives until the workload has waited for the task.
    let count = unsafe { &*data.cast::<std::sync::atomic::AtomicU32>() };
    count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
}

unsafe extern "C" fn native(queue: ur_queue_handle_t, _: *mut c_void) {
    let mut handle = 0;
    // A failure by script is expected.
    let _ = ur!(Queue.pfnGetNativeHandle(queue, null_mut(), &mut handle));
}

/// Runs the workload.
pub fn play(device: ur_device_handle_t) -> Steps {
    let mut steps = Steps::default();
    let context = make!(
        steps,
        "urContextCreate",
        Context.pfnCreate(1, &device, null())
    );
    if context.is_null() {
        return steps;
    }
    with_queues(&mut steps, context, device);
    steps.record("urContextRelease", ur!(Context.pfnRelease(context)));
    steps
}

fn queue(
    steps: &mut Steps,
    context: ur_context_handle_t,
    device: ur_device_handle_t,
    flags: ur_queue_flags_t,
) -> ur_queue_handle_t {
    let properties = ur_queue_properties_t {
        flags,
        ..Default::default()
    };
    make!(
        steps,
        "urQueueCreate",
        Queue.pfnCreate(context, device, &properties)
    )
}

fn with_queues(steps: &mut Steps, context: ur_context_handle_t, device: ur_device_handle_t) {
    let one = queue(steps, context, device, UR_QUEUE_FLAG_PROFILING_ENABLE);
    let two = queue(
        steps,
        context,
        device,
        UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE,
    );
    if !one.is_null() && !two.is_null() {
        on_usm(steps, (context, device), one, two);
        on_buffers(steps, context, one);
        with_program(steps, context, device, one);
        on_the_host(steps, one, two);
        asynchronous(steps, context, device, one, two);
    }
    for queue in [one, two] {
        if !queue.is_null() {
            steps.record("urQueueFinish", ur!(Queue.pfnFinish(queue)));
            steps.record("urQueueRelease", ur!(Queue.pfnRelease(queue)));
        }
    }
}

fn release(steps: &mut Steps, events: &[ur_event_handle_t]) {
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
    if !shared.is_null() && !host.is_null() {
        let pattern = 7_u8;
        let from = (&raw const pattern).cast();
        let none: [ur_event_handle_t; 0] = [];
        let filled = enqueue!(
            steps,
            "urEnqueueUSMFill",
            Enqueue.pfnUSMFill(one, shared, 1, from, SIZE),
            none
        );
        let odd = [1_u8, 2, 3];
        let odd_filled = enqueue!(
            steps,
            "urEnqueueUSMFill",
            Enqueue.pfnUSMFill(one, shared, 3, odd.as_ptr().cast(), 99),
            none
        );
        let copied = enqueue!(
            steps,
            "urEnqueueUSMMemcpy",
            Enqueue.pfnUSMMemcpy(two, 0, host, shared, SIZE),
            [filled, odd_filled]
        );
        let wall = enqueue!(
            steps,
            "urEnqueueEventsWaitWithBarrier",
            Enqueue.pfnEventsWaitWithBarrier(two),
            [copied]
        );
        if !wall.is_null() {
            steps.record("urEventWait", ur!(Event.pfnWait(1, &wall)));
            // SAFETY: memory of that many bytes, which no command writes any more.
            let bytes = unsafe { std::slice::from_raw_parts(host.cast::<u8>(), SIZE) };
            steps.right = bytes[..3] == odd && bytes[SIZE - 1] == pattern;
        }
        if !filled.is_null() {
            let (mut time, mut ret) = (0_u64, 0);
            let to = (&raw mut time).cast();
            let end = UR_PROFILING_INFO_COMMAND_END;
            let code = ur!(Event.pfnGetProfilingInfo(filled, end, 8, to, &mut ret));
            steps.record("urEventGetProfilingInfo", code);
            let mut handle = 0;
            let code = ur!(Event.pfnGetNativeHandle(filled, &mut handle));
            steps.record("urEventGetNativeHandle", code);
        }
        release(steps, &[filled, odd_filled, copied, wall]);
    }
    // The commands that use the memory are complete before its free, even if the wait for them failed.
    for queue in [one, two] {
        steps.record("urQueueFinish", ur!(Queue.pfnFinish(queue)));
    }
    for memory in [shared, host] {
        if !memory.is_null() {
            steps.record("urUSMFree", ur!(USM.pfnFree(context, memory)));
        }
    }
}

fn on_buffers(steps: &mut Steps, context: ur_context_handle_t, queue: ur_queue_handle_t) {
    let flags = UR_MEM_FLAG_READ_WRITE;
    let [a, b] = [(); 2].map(|()| {
        make!(
            steps,
            "urMemBufferCreate",
            Mem.pfnBufferCreate(context, flags, SIZE, null())
        )
    });
    if !a.is_null() && !b.is_null() {
        let mut data = vec![3_u8; SIZE];
        let none: [ur_event_handle_t; 0] = [];
        let written = enqueue!(
            steps,
            "urEnqueueMemBufferWrite",
            Enqueue.pfnMemBufferWrite(queue, a, 1, 0, SIZE, data.as_ptr().cast()),
            none
        );
        let copied = enqueue!(
            steps,
            "urEnqueueMemBufferCopy",
            Enqueue.pfnMemBufferCopy(queue, a, b, 0, 0, SIZE),
            [written]
        );
        let pattern = [9_u8; 256];
        let filled = enqueue!(
            steps,
            "urEnqueueMemBufferFill",
            Enqueue.pfnMemBufferFill(queue, b, pattern.as_ptr().cast(), 256, 0, 512),
            [copied]
        );
        let read = enqueue!(
            steps,
            "urEnqueueMemBufferRead",
            Enqueue.pfnMemBufferRead(queue, b, 1, 0, SIZE, data.as_mut_ptr().cast()),
            [filled]
        );
        if !read.is_null() {
            steps.right &= data[0] == 9 && data[511] == 9 && data[512] == 3;
        }
        // The data is kept until no command can write it.
        steps.record("urQueueFinish", ur!(Queue.pfnFinish(queue)));
        let region = ur_buffer_region_t {
            origin: 0,
            size: 64,
            ..Default::default()
        };
        let kind = UR_BUFFER_CREATE_TYPE_REGION;
        let part = make!(
            steps,
            "urMemBufferPartition",
            Mem.pfnBufferPartition(a, flags, kind, (&raw const region))
        );
        let mut at = null_mut();
        let mut mapped = null_mut();
        let code = ur!(Enqueue.pfnMemBufferMap(
            queue,
            a,
            1,
            UR_MAP_FLAG_READ,
            0,
            64,
            0,
            null(),
            &mut mapped,
            &mut at
        ));
        if steps.record("urEnqueueMemBufferMap", code) {
            let done = enqueue!(
                steps,
                "urEnqueueMemUnmap",
                Enqueue.pfnMemUnmap(queue, a, at),
                none
            );
            release(steps, &[done]);
        }
        let mut command: ur_event_handle_t = null_mut();
        let code = ur!(EnqueueExp.pfnNativeCommandExp(
            queue,
            Some(native),
            null_mut(),
            1,
            &a,
            null(),
            0,
            null(),
            &mut command
        ));
        steps.record("urEnqueueNativeCommandExp", code);
        release(steps, &[written, copied, filled, read, mapped, command]);
        if !part.is_null() {
            steps.record("urMemRelease", ur!(Mem.pfnRelease(part)));
        }
    }
    for buffer in [a, b] {
        if !buffer.is_null() {
            steps.record("urMemRelease", ur!(Mem.pfnRelease(buffer)));
        }
    }
}

fn with_program(
    steps: &mut Steps,
    context: ur_context_handle_t,
    device: ur_device_handle_t,
    queue: ur_queue_handle_t,
) {
    let code = [3_u8, 2, 35, 7];
    let program = make!(
        steps,
        "urProgramCreateWithIL",
        Program.pfnCreateWithIL(context, code.as_ptr().cast(), code.len(), null())
    );
    if program.is_null() {
        return;
    }
    let built = ur!(Program.pfnBuild(context, program, null()));
    steps.record("urProgramBuild", built);
    let name = c"work".as_ptr();
    let kernel = make!(steps, "urKernelCreate", Kernel.pfnCreate(program, name));
    if !kernel.is_null() {
        let value = 5_u32;
        let arg = ur_exp_kernel_arg_properties_t {
            r#type: UR_EXP_KERNEL_ARG_TYPE_VALUE,
            size: 4,
            value: ur_exp_kernel_arg_value_t {
                value: (&raw const value).cast(),
            },
            ..Default::default()
        };
        let (global, offset, mut local) = (64_usize, 0_usize, 0_usize);
        let code = ur!(
            Kernel.pfnGetSuggestedLocalWorkSize(kernel, queue, 1, &offset, &global, &mut local)
        );
        steps.record("urKernelGetSuggestedLocalWorkSize", code);
        let none: [ur_event_handle_t; 0] = [];
        let launched = enqueue!(
            steps,
            "urEnqueueKernelLaunchWithArgsExp",
            EnqueueExp.pfnKernelLaunchWithArgsExp(
                queue,
                kernel,
                1,
                null(),
                &global,
                null(),
                1,
                &arg,
                null()
            ),
            none
        );
        release(steps, &[launched]);
        steps.record("urKernelRelease", ur!(Kernel.pfnRelease(kernel)));
    }
    let _ = device;
    steps.record("urProgramRelease", ur!(Program.pfnRelease(program)));
}

fn on_the_host(steps: &mut Steps, one: ur_queue_handle_t, two: ur_queue_handle_t) {
    // The data outlives the task, whatever fails.
    let count: &'static std::sync::atomic::AtomicU32 = Box::leak(Box::default());
    let data = (&raw const *count).cast_mut().cast();
    let none: [ur_event_handle_t; 0] = [];
    let ran = enqueue!(
        steps,
        "urEnqueueHostTaskExp",
        EnqueueExp.pfnHostTaskExp(one, Some(task), data, null()),
        none
    );
    let after = enqueue!(
        steps,
        "urEnqueueEventsWait",
        Enqueue.pfnEventsWait(two),
        [ran]
    );
    if !after.is_null() && steps.record("urEventWait", ur!(Event.pfnWait(1, &after))) {
        let times = count.load(std::sync::atomic::Ordering::SeqCst);
        steps.right &= ran.is_null() || times == 1;
    }
    release(steps, &[ran, after]);
}

fn asynchronous(
    steps: &mut Steps,
    context: ur_context_handle_t,
    device: ur_device_handle_t,
    one: ur_queue_handle_t,
    two: ur_queue_handle_t,
) {
    let desc = ur_usm_pool_desc_t::default();
    let pool = make!(
        steps,
        "urUSMPoolCreateExp",
        USMExp.pfnPoolCreateExp(context, device, (&raw const desc).cast_mut())
    );
    if pool.is_null() {
        return;
    }
    let mut waits: [ur_event_handle_t; 1] = [null_mut()];
    for queue in [one, two, one] {
        let (mut memory, mut ready) = (null_mut(), null_mut());
        let list = if waits[0].is_null() {
            null()
        } else {
            waits.as_ptr()
        };
        let code = ur!(EnqueueExp.pfnUSMDeviceAllocExp(
            queue,
            pool,
            SIZE,
            null(),
            u32::from(!list.is_null()),
            list,
            &mut memory,
            &mut ready
        ));
        release(steps, &waits);
        waits = [null_mut()];
        if !steps.record("urEnqueueUSMDeviceAllocExp", code) {
            continue;
        }
        let pattern = 1_u8;
        let from = (&raw const pattern).cast();
        let filled = enqueue!(
            steps,
            "urEnqueueUSMFill",
            Enqueue.pfnUSMFill(queue, memory, 1, from, SIZE),
            [ready]
        );
        waits = [enqueue!(
            steps,
            "urEnqueueUSMFreeExp",
            EnqueueExp.pfnUSMFreeExp(queue, pool, memory),
            [ready, filled]
        )];
        if waits[0].is_null() {
            // A refused free leaves it alive.
            let code = ur!(USM.pfnFree(context, memory));
            steps.record("urUSMFree", code);
        }
        release(steps, &[ready, filled]);
    }
    release(steps, &waits);
    let code = ur!(USMExp.pfnPoolDestroyExp(context, device, pool));
    steps.record("urUSMPoolDestroyExp", code);
}

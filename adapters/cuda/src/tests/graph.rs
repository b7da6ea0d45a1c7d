//! Command buffers as the driver's graphs, with updates in place.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, device, ur};
use super::workload::{SIZE, Steps, make};

/// The objects of a test, in the order of their release. They are null if the creation failed.
struct Objects {
    context: ur_context_handle_t,
    queues: [ur_queue_handle_t; 2],
    program: ur_program_handle_t,
    kernel: ur_kernel_handle_t,
    memory: *mut c_void,
    read: [*mut c_void; 3],
}

impl Objects {
    fn new(steps: &mut Steps<'_>, adapter: ur_adapter_handle_t) -> (Self, ur_device_handle_t) {
        let device = device(adapter);
        let mut own = Self {
            context: make!(
                steps,
                "urContextCreate",
                Context.pfnCreate(1, &device, null())
            ),
            queues: [null_mut(); 2],
            program: null_mut(),
            kernel: null_mut(),
            memory: null_mut(),
            read: [null_mut(); 3],
        };
        if !own.context.is_null() {
            own.fill(steps, device);
        }
        (own, device)
    }

    fn fill(&mut self, steps: &mut Steps<'_>, device: ur_device_handle_t) {
        let context = self.context;
        let flags = [
            ur_queue_flags_t(0),
            UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE,
        ];
        self.queues = flags.map(|flags| {
            let what = ur_queue_properties_t {
                flags,
                ..Default::default()
            };
            make!(
                steps,
                "urQueueCreate",
                Queue.pfnCreate(context, device, &what)
            )
        });
        let text = b".version 8.0";
        let (mut device, mut bytes, mut code) = (device, text.len(), text.as_ptr());
        self.program = make!(
            steps,
            "urProgramCreateWithBinary",
            Program.pfnCreateWithBinary(context, 1, &mut device, &mut bytes, &mut code, null())
        );
        if !self.program.is_null() {
            let program = self.program;
            let code = ur!(Program.pfnBuild(context, program, null()));
            steps.record("urProgramBuild", code);
            self.kernel = make!(
                steps,
                "urKernelCreate",
                Kernel.pfnCreate(program, c"iota".as_ptr())
            );
        }
        let pool = null_mut();
        self.memory = make!(
            steps,
            "urUSMDeviceAlloc",
            USM.pfnDeviceAlloc(context, device, null(), pool, SIZE)
        );
        self.read = [(); 3].map(|()| {
            make!(
                steps,
                "urUSMHostAlloc",
                USM.pfnHostAlloc(context, null(), pool, SIZE)
            )
        });
    }

    fn is_whole(&self) -> bool {
        let made = [self.kernel.is_null(), self.memory.is_null()];
        let read = self.read.iter().any(|memory| memory.is_null());
        let queues = self.queues.iter().any(|queue| queue.is_null());
        !made.contains(&true) && !read && !queues
    }

    fn end(self, steps: &mut Steps<'_>) {
        for queue in self.queues.into_iter().filter(|queue| !queue.is_null()) {
            steps.record("urQueueFinish", ur!(Queue.pfnFinish(queue)));
            steps.record("urQueueRelease", ur!(Queue.pfnRelease(queue)));
        }
        let all = self.read.into_iter().chain([self.memory]);
        for memory in all.filter(|memory| !memory.is_null()) {
            steps.record("urUSMFree", ur!(USM.pfnFree(self.context, memory)));
        }
        if !self.kernel.is_null() {
            steps.record("urKernelRelease", ur!(Kernel.pfnRelease(self.kernel)));
        }
        if !self.program.is_null() {
            steps.record("urProgramRelease", ur!(Program.pfnRelease(self.program)));
        }
        if !self.context.is_null() {
            steps.record("urContextRelease", ur!(Context.pfnRelease(self.context)));
        }
    }

    /// The data that was read back begins with this number and increases by seven.
    fn has_read(&self, at: usize, number: u32) -> bool {
        // SAFETY: host memory of that size, which no command writes any more.
        let read = unsafe { std::slice::from_raw_parts(self.read[at].cast::<u8>(), SIZE) };
        read[..4] == number.to_ne_bytes() && read[4..].iter().all(|byte| *byte == 7)
    }
}

type Buffer = ur_exp_command_buffer_handle_t;
type SyncPoint = ur_exp_command_buffer_sync_point_t;

/// A buffer being recorded. Each command follows the one before.
struct Recorder {
    buffer: Buffer,
    last: Vec<SyncPoint>,
}

impl Recorder {
    fn new(steps: &mut Steps<'_>, objects: &Objects, device: ur_device_handle_t) -> Option<Self> {
        let what = ur_exp_command_buffer_desc_t {
            isUpdatable: true.into(),
            ..Default::default()
        };
        let context = objects.context;
        let buffer = make!(
            steps,
            "urCommandBufferCreateExp",
            CommandBufferExp.pfnCreateExp(context, device, &what)
        );
        let last = Vec::new();
        (!buffer.is_null()).then_some(Self { buffer, last })
    }

    fn record(&mut self, steps: &mut Steps<'_>, code: ur_result_t, point: SyncPoint) {
        if steps.record("urCommandBufferAppend", code) {
            self.last = vec![point];
        }
    }

    fn waits(&self) -> (u32, *const SyncPoint) {
        match self.last.len() as u32 {
            0 => (0, null()),
            count => (count, self.last.as_ptr()),
        }
    }

    fn set(&mut self, steps: &mut Steps<'_>, memory: *mut c_void, pattern: &[u8]) {
        let ((count, waits), mut point) = (self.waits(), 0);
        let (from, size) = (pattern.as_ptr().cast(), pattern.len());
        let code = ur!(CommandBufferExp.pfnAppendUSMFillExp(
            self.buffer,
            memory,
            from,
            size,
            SIZE,
            count,
            waits,
            0,
            null(),
            &mut point,
            null_mut(),
            null_mut()
        ));
        self.record(steps, code, point);
    }

    fn copy(&mut self, steps: &mut Steps<'_>, dst: *mut c_void, src: *const c_void) {
        let ((count, waits), mut point) = (self.waits(), 0);
        let code = ur!(CommandBufferExp.pfnAppendUSMMemcpyExp(
            self.buffer,
            dst,
            src,
            SIZE,
            count,
            waits,
            0,
            null(),
            &mut point,
            null_mut(),
            null_mut()
        ));
        self.record(steps, code, point);
    }

    /// A launch that writes a number, and the handle by which it can be updated.
    fn store(
        &mut self,
        steps: &mut Steps<'_>,
        objects: &Objects,
        number: u32,
    ) -> ur_exp_command_buffer_command_handle_t {
        let ((count, waits), mut point, mut command) = (self.waits(), 0, null_mut());
        let mut args = [ur_exp_kernel_arg_properties_t::default(); 2];
        args[0].r#type = UR_EXP_KERNEL_ARG_TYPE_POINTER;
        args[0].size = size_of::<usize>();
        args[0].value.pointer = objects.memory;
        args[1].r#type = UR_EXP_KERNEL_ARG_TYPE_VALUE;
        args[1].index = 1;
        args[1].size = 4;
        args[1].value.value = (&raw const number).cast();
        let global = 1_usize;
        let code = ur!(CommandBufferExp.pfnAppendKernelLaunchWithArgsExp(
            self.buffer,
            objects.kernel,
            1,
            null(),
            &global,
            null(),
            2,
            args.as_ptr(),
            0,
            null_mut(),
            count,
            waits,
            0,
            null(),
            &mut point,
            null_mut(),
            &mut command
        ));
        self.record(steps, code, point);
        command
    }

    fn finalize(&self, steps: &mut Steps<'_>) -> bool {
        let code = ur!(CommandBufferExp.pfnFinalizeExp(self.buffer));
        steps.record("urCommandBufferFinalizeExp", code)
    }
}

fn run(steps: &mut Steps<'_>, queue: ur_queue_handle_t, buffer: Buffer) -> bool {
    let code = ur!(EnqueueExp.pfnCommandBufferExp(queue, buffer, 0, null(), null_mut()));
    steps.record("urEnqueueCommandBufferExp", code)
}

/// Updates a launch to write another number.
fn change(
    steps: &mut Steps<'_>,
    buffer: Buffer,
    command: ur_exp_command_buffer_command_handle_t,
    number: u32,
) -> bool {
    let value = ur_exp_command_buffer_update_value_arg_desc_t {
        argIndex: 1,
        argSize: 4,
        pNewValueArg: (&raw const number).cast(),
        ..Default::default()
    };
    let update = ur_exp_command_buffer_update_kernel_launch_desc_t {
        hCommand: command,
        numNewValueArgs: 1,
        pNewValueArgList: &value,
        ..Default::default()
    };
    let code = ur!(CommandBufferExp.pfnUpdateKernelLaunchExp(buffer, 1, &update));
    steps.record("urCommandBufferUpdateKernelLaunchExp", code)
}

fn finish(steps: &mut Steps<'_>, queue: ur_queue_handle_t) -> bool {
    steps.record("urQueueFinish", ur!(Queue.pfnFinish(queue)))
}

/// Patterns that the driver's own memset supports, and one that it does not.
const PLAIN: &[u8] = &[7];
const ODD: &[u8] = &[7, 7, 7, 7, 7, 7, 7, 8];

/// A fill, a launch and a copy.
///
/// The launch is updated between submissions, once while a submission is deferred.
fn play<'a>(after: &'a dyn Fn(&'static str), middle: Option<&[u8]>) -> Steps<'a> {
    let mut steps = Steps::new(after);
    let adapter = adapter();
    let (objects, device) = Objects::new(&mut steps, adapter);
    if objects.is_whole()
        && let Some(mut recorder) = Recorder::new(&mut steps, &objects, device)
    {
        if let Some(pattern) = middle {
            recorder.set(&mut steps, objects.memory, pattern);
        }
        recorder.set(&mut steps, objects.memory, PLAIN);
        let command = recorder.store(&mut steps, &objects, 41);
        recorder.copy(&mut steps, objects.read[0], objects.memory);
        if recorder.finalize(&mut steps) && !command.is_null() {
            steps.right = true;
            for queue in objects.queues {
                execute(&mut steps, &objects, queue, recorder.buffer, command);
            }
        }
        let code = ur!(CommandBufferExp.pfnReleaseExp(recorder.buffer));
        steps.record("urCommandBufferReleaseExp", code);
    }
    objects.end(&mut steps);
    steps.record("urAdapterRelease", ur!(Adapter.pfnRelease(adapter)));
    steps
}

/// A host task that runs until its gate is open.
unsafe extern "C" fn wait_for_gate(gate: *mut c_void) {
    // SAFETY: the gate is never freed.
    let gate = unsafe { &*gate.cast::<AtomicBool>() };
    while !gate.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
}

fn execute(
    steps: &mut Steps<'_>,
    objects: &Objects,
    queue: ur_queue_handle_t,
    buffer: Buffer,
    command: ur_exp_command_buffer_command_handle_t,
) {
    for number in [50, 51] {
        let changed = change(steps, buffer, command, number);
        let ran = run(steps, queue, buffer) & finish(steps, queue);
        steps.right &= !(changed && ran) || objects.has_read(0, number);
    }
    // A deferred submission runs the graph as it was when it was enqueued. The task may outlive this call if a
    // later one fails, so that its gate is never freed.
    let gate: &'static AtomicBool = Box::leak(Box::default());
    let data = std::ptr::from_ref(gate).cast_mut().cast();
    let mut wait = null_mut();
    let (none, to) = (null(), &raw mut wait);
    let code =
        ur!(EnqueueExp.pfnHostTaskExp(queue, Some(wait_for_gate), data, null(), 0, none, to));
    let mut all = steps.record("urEnqueueHostTaskExp", code);
    for (at, number) in [(1, 60), (2, 61)] {
        all &= change(steps, buffer, command, number);
        let (mut ran, count) = (null_mut(), u32::from(!wait.is_null()));
        let waits = if count > 0 { &raw const wait } else { null() };
        let code = ur!(EnqueueExp.pfnCommandBufferExp(queue, buffer, count, waits, &mut ran));
        all &= steps.record("urEnqueueCommandBufferExp", code);
        let (count, waits) = match ran.is_null() {
            true => (0, null()),
            false => (1, &raw const ran),
        };
        let (to, from, mut copied) = (objects.read[at], objects.memory, null_mut());
        let code = ur!(Enqueue.pfnUSMMemcpy(queue, 0, to, from, SIZE, count, waits, &mut copied));
        all &= steps.record("urEnqueueUSMMemcpy", code);
        for event in [wait, ran].into_iter().filter(|event| !event.is_null()) {
            steps.record("urEventRelease", ur!(Event.pfnRelease(event)));
        }
        wait = copied;
    }
    if !wait.is_null() {
        steps.record("urEventRelease", ur!(Event.pfnRelease(wait)));
    }
    gate.store(true, Ordering::Release);
    all &= finish(steps, queue);
    steps.right &= !all || (objects.has_read(1, 60) && objects.has_read(2, 61));
}

#[test]
fn commands_are_one_graph() {
    alone("tests::graph::commands_are_one_graph", || {
        let driver = FakeDriver::open();
        driver.make_current(0xabc0);
        let query = |name| assert_eq!(driver.current(), 0xabc0, "after {name}");
        // On each of two queues, one update finds a graph whose launch is deferred, and the graph is made
        // anew.
        for (call, count) in [
            ("cuGraphLaunch", 8),
            ("cuLaunchKernelEx", 0),
            ("cuGraphInstantiateWithFlags", 3),
        ] {
            driver.count(call);
            let steps = play(&query, None);
            assert_eq!(steps.failed(), []);
            assert!(steps.right, "what was read back");
            assert_eq!(driver.query().calls, count, "{call}");
            driver.check_end("a workload");
        }
    });
}

/// A fill that the driver's memset does not support is submitted by itself, before the graph of the rest.
#[test]
fn commands_that_no_graph_can_hold_end_it() {
    alone(
        "tests::graph::commands_that_no_graph_can_hold_end_it",
        || {
            let driver = FakeDriver::open();
            for (call, count) in [("cuGraphLaunch", 8), ("cuLaunchKernelEx", 8)] {
                driver.count(call);
                let steps = play(&|_| {}, Some(ODD));
                assert_eq!(steps.failed(), []);
                assert!(steps.right, "what was read back");
                assert_eq!(driver.query().calls, count, "{call}");
                driver.check_end("a workload");
            }
        },
    );
}

/// Without graphs, or without updates in place, the commands have the same effect.
#[test]
fn a_driver_without_graphs_does_the_same() {
    alone(
        "tests::graph::a_driver_without_graphs_does_the_same",
        || {
            let driver = FakeDriver::open();
            for call in [
                "cuGraphCreate",
                "cuGraphAddKernelNode",
                "cuGraphAddMemcpyNode",
                "cuGraphInstantiateWithFlags",
                "cuGraphExecKernelNodeSetParams",
            ] {
                driver.fail_each(call, 801);
                let steps = play(&|_| {}, None);
                assert!(driver.query().met, "{call}");
                assert_eq!(steps.failed(), [], "{call}");
                assert!(steps.right, "what was read back without {call}");
                driver.check_end(call);
            }
        },
    );
}

fn each_call_fails_with(name: &str, code: u32) {
    alone(name, || {
        let driver = FakeDriver::open();
        driver.reset();
        let whole = play(&|_| {}, None);
        assert_eq!(whole.failed(), []);
        driver.check_end("a workload");
        let calls = driver.query().calls;
        for nth in 1..=calls {
            driver.fail(nth, code);
            let steps = play(&|_| {}, None);
            let when = format!("call {nth} failed with {code}: {:?}", steps.failed());
            driver.check_end(&when);
            assert!(
                steps.right || !steps.failed().is_empty(),
                "{when}: {}",
                driver.report()
            );
        }
    });
}

#[test]
fn each_call_runs_out_of_memory() {
    each_call_fails_with("tests::graph::each_call_runs_out_of_memory", 2);
}

#[test]
fn each_call_loses_the_device() {
    each_call_fails_with("tests::graph::each_call_loses_the_device", 700);
}

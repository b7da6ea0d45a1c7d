//! The measures, and how a sample is taken.
//!
//! A sample is the mean of several successive calls, so that reading the clock does not matter. Setup and
//! clean-up are outside the time.

use crate::calls::{Calls, ok};
use crate::kernel;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Barrier;
use std::time::Instant;
use ur::abi::*;

/// The target of a measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// At most this share of the other side's time.
    AtMost(f64),
    /// At most this share of the other side's time for another measure.
    AtMostOf(f64, &'static str),
    /// At most this many nanoseconds.
    Within(f64),
    /// No target. The measure shows that no cost was moved elsewhere.
    Shown,
}

pub struct Measure {
    pub name: &'static str,
    pub target: Target,
    /// Nanoseconds of a call; `None` where the call is not offered.
    pub sample: fn(&Setup) -> Result<Option<f64>, String>,
}

/// Measures that take a new process for each sample, and the control row that compares the other side with
/// itself.
///
/// For the first measure all compared loaders have been loaded before, so that their dependencies cost
/// nothing.
pub const STARTS: [(&str, &str); 2] = [
    (START, "urLoaderInit …, theirs beside theirs"),
    (LOAD, "… loading the loader, theirs beside theirs"),
];
pub const START: &str = "urLoaderInit to the first device";
pub const LOAD: &str = "the same, and loading the loader";
const SYNCHRONOUS: &str = "urUSMDeviceAlloc and urUSMFree, 1 MiB";
const ASYNCHRONOUS: &str = "urEnqueueUSMDeviceAllocExp and urEnqueueUSMFreeExp, 1 MiB";
const LAUNCHES: &str = "64 kernel launches and urQueueFinish, in-order";
const COMMAND_BUFFER: &str = "a command buffer of 64 kernel launches and urQueueFinish, in-order";

/// The measures of conformance/sycl/bench, each with the other side's time as its target.
///
/// The first takes a new process for each sample.
pub const SYCL_START: (&str, &str) = (
    "SYCL: start to the first device",
    "SYCL: start …, theirs beside theirs",
);
pub const SYCL: [&str; 5] = [
    "SYCL: queue.memcpy, in-order",
    "SYCL: queue.memcpy, out-of-order",
    "SYCL: event.wait, finished",
    "SYCL: launch with four arguments, in-order",
    "SYCL: launch with four arguments, out-of-order",
];

/// Bytes of one copy.
const COPY: usize = 64;
/// Commands in one sample of an enqueuing call.
const COMMANDS: usize = 64;
/// Calls in one sample of a call that enqueues nothing.
const QUERIES: usize = 1024;
/// Bytes of the allocations that are compared.
const ALLOCATION: usize = 1 << 20;

macro_rules! measures {
    ($($name:expr, $target:expr, $sample:expr;)*) => {
        pub const MEASURES: &[Measure] = &[$(Measure { name: $name, target: $target, sample: $sample }),*];
    };
}

measures! {
    "urDeviceGetInfo, a number", Target::AtMost(1.0), |setup| setup.info(UR_DEVICE_INFO_MAX_COMPUTE_UNITS, 4);
    "urDeviceGetInfo, a text", Target::AtMost(1.0), |setup| setup.info(UR_DEVICE_INFO_NAME, 256);
    "urEnqueueUSMMemcpy, in-order, no event", Target::AtMost(1.0), |setup| setup.submit(setup.in_order, Setup::copy, false);
    "urEnqueueUSMMemcpy, in-order, with event", Target::AtMost(1.0), |setup| setup.submit(setup.in_order, Setup::copy, true);
    "urEnqueueUSMMemcpy, out-of-order, no event", Target::AtMost(1.0), |setup| setup.submit(setup.out_of_order, Setup::copy, false);
    "urEnqueueUSMMemcpy, out-of-order, with event", Target::AtMost(1.0), |setup| setup.submit(setup.out_of_order, Setup::copy, true);
    "kernel launch with four arguments, in-order, no event", Target::AtMost(1.0), |setup| setup.submit(setup.in_order, Setup::launch_other, false);
    "kernel launch with four arguments, in-order, with event", Target::AtMost(1.0), |setup| setup.submit(setup.in_order, Setup::launch_other, true);
    "kernel launch with four arguments, out-of-order, with event", Target::AtMost(1.0), |setup| setup.submit(setup.out_of_order, Setup::launch_other, true);
    "kernel launch with the same four arguments, in-order, with event", Target::AtMost(1.0), |setup| setup.submit(setup.in_order, Setup::launch_same, true);
    "urEventWait, finished, first time", Target::AtMost(1.0), |setup| setup.wait_finished(1);
    "urEventWait, finished, again", Target::AtMost(1.0), |setup| setup.wait_finished(16);
    SYNCHRONOUS, Target::Shown, Setup::synchronous_pair;
    ASYNCHRONOUS, Target::AtMostOf(0.05, SYNCHRONOUS), Setup::asynchronous_pair;
    "the same, on each of two threads", Target::Shown, Setup::asynchronous_pairs;
    "urEventRelease, finished", Target::Shown, Setup::release_finished;
    "urEventGetInfo, status, finished", Target::Shown, Setup::status_finished;
    "urEnqueueUSMMemcpy and urQueueFinish, in-order", Target::Shown, |setup| setup.round_trip(setup.in_order, false);
    "urEnqueueUSMMemcpy and urEventWait, in-order", Target::Shown, |setup| setup.round_trip(setup.in_order, true);
    "urEnqueueUSMMemcpy and urEventWait, out-of-order", Target::Shown, |setup| setup.round_trip(setup.out_of_order, true);
    "64 urEnqueueUSMMemcpy and urQueueFinish, in-order", Target::Shown, |setup| setup.burst(setup.in_order);
    "64 urEnqueueUSMMemcpy and urQueueFinish, out-of-order", Target::Shown, |setup| setup.burst(setup.out_of_order);
    "64 urEnqueueUSMMemcpy and urQueueFinish, batched", Target::Shown, |setup| setup.burst(setup.batched);
    "urQueueFinish, nothing to do", Target::Shown, Setup::finish_nothing;
    LAUNCHES, Target::Shown, |setup| setup.launches(setup.in_order);
    "64 kernel launches and urQueueFinish, batched", Target::Shown, |setup| setup.launches(setup.batched);
    COMMAND_BUFFER, Target::Shown, Setup::command_buffer;
}

/// Which targets apply: they differ by backend.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Targets {
    Opencl,
    LevelZero,
}

/// The targets of Level Zero that differ.
const LEVEL_ZERO: [(&str, Target); 3] = [
    (SYNCHRONOUS, Target::AtMost(1.0)),
    (ASYNCHRONOUS, Target::Within(40.0)),
    (COMMAND_BUFFER, Target::AtMostOf(0.25, LAUNCHES)),
];

pub fn target(targets: Targets, name: &str) -> Target {
    let mut starts = STARTS.iter().chain([&SYCL_START]);
    let other = LEVEL_ZERO.iter().find(|(own, _)| *own == name);
    if let (Targets::LevelZero, Some((_, target))) = (targets, other) {
        return *target;
    }
    match MEASURES.iter().find(|one| one.name == name) {
        Some(measure) => match (targets, measure.target) {
            (Targets::LevelZero, Target::AtMost(_)) => Target::AtMost(0.9),
            (_, target) => target,
        },
        None if starts.any(|(_, again)| *again == name) => Target::Shown,
        None => Target::AtMost(1.0),
    }
}

/// A loader's calls and the objects for them.
pub struct Setup {
    ur: &'static Calls,
    device: ur_device_handle_t,
    context: ur_context_handle_t,
    in_order: ur_queue_handle_t,
    /// A second in-order queue, for a second thread.
    second: ur_queue_handle_t,
    out_of_order: ur_queue_handle_t,
    /// In-order, and asks for batches.
    batched: ur_queue_handle_t,
    kernel: ur_kernel_handle_t,
    /// The launches of [`COMMAND_BUFFER`]; none if they are not offered.
    recorded: Option<ur_exp_command_buffer_handle_t>,
    /// Memory with room for `COMMANDS` copies of `COPY` bytes each.
    target: *mut c_void,
    source: *mut c_void,
}

/// Initialises the loader and finds its first device.
pub fn first_device(ur: &Calls) -> Result<ur_device_handle_t, String> {
    let (mut adapter, mut platform, mut device) = (null_mut(), null_mut(), null_mut());
    let (mut adapters, mut platforms, mut devices) = (0, 0, 0);
    // SAFETY: no configuration, and room for one handle in each list.
    unsafe {
        ok((ur.urLoaderInit)(Default::default(), null_mut()))?;
        ok((ur.urAdapterGet)(1, &mut adapter, &mut adapters))?;
        if adapters == 0 {
            return Err("the loader finds no adapter".to_owned());
        }
        ok((ur.urPlatformGet)(
            adapter,
            1,
            &mut platform,
            &mut platforms,
        ))?;
        let all = UR_DEVICE_TYPE_ALL;
        ok((ur.urDeviceGet)(
            platform,
            all,
            1,
            &mut device,
            &mut devices,
        ))?;
    }
    Ok(device)
}

impl Setup {
    pub fn new(ur: &'static Calls) -> Result<Self, String> {
        let device = first_device(ur)?;
        let (mut context, mut target, mut source) = (null_mut(), null_mut(), null_mut());
        let bytes = COMMANDS * COPY;
        // SAFETY: a live device, and outputs for handles and addresses.
        unsafe {
            ok((ur.urContextCreate)(1, &device, null(), &mut context))?;
            for to in [&mut target, &mut source] {
                ok((ur.urUSMDeviceAlloc)(
                    context,
                    device,
                    null(),
                    null_mut(),
                    bytes,
                    to,
                ))?;
            }
        }
        let mut setup = Self {
            ur,
            device,
            context,
            in_order: null_mut(),
            second: null_mut(),
            out_of_order: null_mut(),
            batched: null_mut(),
            kernel: null_mut(),
            recorded: None,
            target,
            source,
        };
        setup.in_order = setup.queue(0)?;
        setup.second = setup.queue(0)?;
        setup.out_of_order = setup.queue(UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE.0)?;
        setup.batched = setup.queue(UR_QUEUE_FLAG_SUBMISSION_BATCHED.0)?;
        setup.kernel = setup.make_kernel()?;
        setup.recorded = setup.record().ok();
        Ok(setup)
    }

    fn queue(&self, flags: u32) -> Result<ur_queue_handle_t, String> {
        let properties = ur_queue_properties_t {
            flags: ur_queue_flags_t(flags),
            ..Default::default()
        };
        let mut queue = null_mut();
        // SAFETY: a live context and device.
        ok(unsafe { (self.ur.urQueueCreate)(self.context, self.device, &properties, &mut queue) })?;
        Ok(queue)
    }

    fn make_kernel(&self) -> Result<ur_kernel_handle_t, String> {
        let words = kernel::words().map_err(|error| error.to_string())?;
        let (code, bytes) = (words.as_ptr().cast(), size_of_val(words.as_slice()));
        let (mut program, mut made) = (null_mut(), null_mut());
        // SAFETY: a live context, and code of the given number of bytes.
        unsafe {
            ok((self.ur.urProgramCreateWithIL)(
                self.context,
                code,
                bytes,
                null(),
                &mut program,
            ))?;
            ok((self.ur.urProgramBuild)(self.context, program, null()))?;
            ok((self.ur.urKernelCreate)(
                program,
                kernel::NAME.as_ptr(),
                &mut made,
            ))?;
        }
        Ok(made)
    }

    /// A command buffer of the launches of a sample.
    fn record(&self) -> Result<ur_exp_command_buffer_handle_t, String> {
        let desc = ur_exp_command_buffer_desc_t {
            isInOrder: 1,
            ..Default::default()
        };
        let mut buffer = null_mut();
        let append = self.ur.urCommandBufferAppendKernelLaunchWithArgsExp;
        // SAFETY: live objects.
        unsafe {
            ok((self.ur.urCommandBufferCreateExp)(
                self.context,
                self.device,
                &desc,
                &mut buffer,
            ))
        }?;
        for place in 0..COMMANDS {
            self.with_args(place, |args, offset, size| {
                // SAFETY: live objects, the kernel's four arguments, one dimension, no dependencies.
                ok(unsafe {
                    append(
                        buffer,
                        self.kernel,
                        1,
                        offset,
                        size,
                        size,
                        4,
                        args,
                        0,
                        null_mut(),
                        0,
                        null(),
                        0,
                        null(),
                        null_mut(),
                        null_mut(),
                        null_mut(),
                    )
                })
            })?;
        }
        // SAFETY: a live command buffer.
        ok(unsafe { (self.ur.urCommandBufferFinalizeExp)(buffer) })?;
        Ok(buffer)
    }

    fn at(&self, memory: *mut c_void, place: usize) -> *mut c_void {
        memory.wrapping_byte_add(place % COMMANDS * COPY)
    }

    fn copy(
        &self,
        queue: ur_queue_handle_t,
        place: usize,
        event: *mut ur_event_handle_t,
    ) -> ur_result_t {
        let (to, from) = (self.at(self.target, place), self.at(self.source, place));
        // SAFETY: a live queue, both ranges inside their allocations, and no wait list.
        unsafe { (self.ur.urEnqueueUSMMemcpy)(queue, 0, to, from, COPY, 0, null(), event) }
    }

    /// A launch with four arguments that differ from the previous launch's.
    fn launch_other(
        &self,
        queue: ur_queue_handle_t,
        place: usize,
        event: *mut ur_event_handle_t,
    ) -> ur_result_t {
        self.launch(queue, place, event)
    }

    fn launch_same(
        &self,
        queue: ur_queue_handle_t,
        _: usize,
        event: *mut ur_event_handle_t,
    ) -> ur_result_t {
        self.launch(queue, 0, event)
    }

    fn launch(
        &self,
        queue: ur_queue_handle_t,
        place: usize,
        event: *mut ur_event_handle_t,
    ) -> ur_result_t {
        let launch = self.ur.urEnqueueKernelLaunchWithArgsExp;
        self.with_args(place, |args, offset, size| {
            let (kernel, none) = (self.kernel, null());
            // SAFETY: a live queue and kernel, the kernel's four arguments, one dimension, no wait list.
            unsafe {
                launch(
                    queue,
                    kernel,
                    1,
                    offset,
                    size,
                    size,
                    4,
                    args,
                    none,
                    0,
                    null(),
                    event,
                )
            }
        })
    }

    /// The four arguments of a launch, its offset and its size.
    fn with_args<T>(
        &self,
        place: usize,
        launch: impl FnOnce(*const ur_exp_kernel_arg_properties_t, *const usize, *const usize) -> T,
    ) -> T {
        let pointer = |index, at| ur_exp_kernel_arg_properties_t {
            r#type: UR_EXP_KERNEL_ARG_TYPE_POINTER,
            index,
            size: size_of::<usize>(),
            value: ur_exp_kernel_arg_value_t { pointer: at },
            ..Default::default()
        };
        let number = |index, value: &u32| ur_exp_kernel_arg_properties_t {
            r#type: UR_EXP_KERNEL_ARG_TYPE_VALUE,
            index,
            size: size_of::<u32>(),
            value: ur_exp_kernel_arg_value_t {
                value: std::ptr::from_ref(value).cast(),
            },
            ..Default::default()
        };
        let (scale, shift) = (place as u32, !place as u32);
        let args = [
            pointer(0, self.at(self.target, place)),
            pointer(1, self.at(self.source, place)),
            number(2, &scale),
            number(3, &shift),
        ];
        let (offset, size) = (0, COPY / size_of::<u32>());
        launch(args.as_ptr(), &offset, &size)
    }

    fn finish(&self, queue: ur_queue_handle_t) -> Result<(), String> {
        // SAFETY: a live queue.
        ok(unsafe { (self.ur.urQueueFinish)(queue) })
    }

    fn release(&self, event: ur_event_handle_t) -> Result<(), String> {
        // SAFETY: the one reference to a live event.
        ok(unsafe { (self.ur.urEventRelease)(event) })
    }

    fn wait(&self, event: ur_event_handle_t) -> Result<(), String> {
        // SAFETY: one live event.
        ok(unsafe { (self.ur.urEventWait)(1, &event) })
    }

    fn info(&self, what: ur_device_info_t, bytes: usize) -> Result<Option<f64>, String> {
        let mut value = [0u64; 32];
        timed(QUERIES, |_| {
            let to = value.as_mut_ptr().cast();
            // SAFETY: a live device and room for 256 bytes.
            ok(unsafe { (self.ur.urDeviceGetInfo)(self.device, what, bytes, to, null_mut()) })
        })
    }

    /// Measures the enqueue calls alone.
    ///
    /// Waits and releases are outside the time. A launch before wakes the device's threads, so that the
    /// previous measure has no influence.
    fn submit(
        &self,
        queue: ur_queue_handle_t,
        command: fn(&Self, ur_queue_handle_t, usize, *mut ur_event_handle_t) -> ur_result_t,
        with_event: bool,
    ) -> Result<Option<f64>, String> {
        ok(self.launch(queue, 0, null_mut()))?;
        self.finish(queue)?;
        let mut events = [null_mut(); COMMANDS];
        let sample = timed(COMMANDS, |at| {
            let event = if with_event {
                &raw mut events[at]
            } else {
                null_mut()
            };
            ok(command(self, queue, at, event))
        })?;
        self.finish(queue)?;
        for event in events.into_iter().filter(|event| !event.is_null()) {
            self.release(event)?;
        }
        Ok(sample)
    }

    /// Events of completed commands.
    fn finished(&self) -> Result<[ur_event_handle_t; COMMANDS], String> {
        let mut events = [null_mut(); COMMANDS];
        for (at, event) in events.iter_mut().enumerate() {
            ok(self.copy(self.in_order, at, event))?;
        }
        self.finish(self.in_order)?;
        Ok(events)
    }

    fn wait_finished(&self, times: usize) -> Result<Option<f64>, String> {
        let events = self.finished()?;
        if times > 1 {
            events.iter().try_for_each(|event| self.wait(*event))?;
        }
        let sample = timed(COMMANDS * times, |at| self.wait(events[at % COMMANDS]))?;
        events
            .into_iter()
            .try_for_each(|event| self.release(event))?;
        Ok(sample)
    }

    fn release_finished(&self) -> Result<Option<f64>, String> {
        let events = self.finished()?;
        timed(COMMANDS, |at| self.release(events[at]))
    }

    fn status_finished(&self) -> Result<Option<f64>, String> {
        let events = self.finished()?;
        let mut status = 0u32;
        let what = UR_EVENT_INFO_COMMAND_EXECUTION_STATUS;
        let sample = timed(COMMANDS, |at| {
            let to = (&raw mut status).cast();
            // SAFETY: a live event and room for its status.
            ok(unsafe { (self.ur.urEventGetInfo)(events[at], what, 4, to, null_mut()) })
        })?;
        events
            .into_iter()
            .try_for_each(|event| self.release(event))?;
        Ok(sample)
    }

    fn round_trip(
        &self,
        queue: ur_queue_handle_t,
        with_event: bool,
    ) -> Result<Option<f64>, String> {
        timed(8, |at| {
            let mut event = null_mut();
            let to = if with_event {
                &raw mut event
            } else {
                null_mut()
            };
            ok(self.copy(queue, at, to))?;
            if !with_event {
                return self.finish(queue);
            }
            self.wait(event)?;
            self.release(event)
        })
    }

    fn burst(&self, queue: ur_queue_handle_t) -> Result<Option<f64>, String> {
        timed(1, |_| {
            (0..COMMANDS).try_for_each(|at| ok(self.copy(queue, at, null_mut())))?;
            self.finish(queue)
        })
    }

    fn launches(&self, queue: ur_queue_handle_t) -> Result<Option<f64>, String> {
        timed(1, |_| {
            (0..COMMANDS).try_for_each(|at| ok(self.launch(queue, at, null_mut())))?;
            self.finish(queue)
        })
    }

    fn command_buffer(&self) -> Result<Option<f64>, String> {
        let Some(buffer) = self.recorded else {
            return Ok(None);
        };
        timed(1, |_| {
            // SAFETY: a live queue and a finalised command buffer, and no wait list.
            ok(unsafe {
                (self.ur.urEnqueueCommandBufferExp)(self.in_order, buffer, 0, null(), null_mut())
            })?;
            self.finish(self.in_order)
        })
    }

    fn finish_nothing(&self) -> Result<Option<f64>, String> {
        self.finish(self.in_order)?;
        timed(COMMANDS, |_| self.finish(self.in_order))
    }

    fn synchronous_pair(&self) -> Result<Option<f64>, String> {
        timed(16, |_| {
            let mut memory = null_mut();
            // SAFETY: a live context and device; the memory is freed unused.
            unsafe {
                ok((self.ur.urUSMDeviceAlloc)(
                    self.context,
                    self.device,
                    null(),
                    null_mut(),
                    ALLOCATION,
                    &mut memory,
                ))?;
                ok((self.ur.urUSMFree)(self.context, memory))
            }
        })
    }

    fn asynchronous_pair(&self) -> Result<Option<f64>, String> {
        Pairs::of(self.ur, self.in_order).sample()
    }

    /// The mean of two threads, each on its own queue, that begin together.
    fn asynchronous_pairs(&self) -> Result<Option<f64>, String> {
        let begin = Barrier::new(2);
        let queues = [self.in_order, self.second];
        let pairs = queues.map(|queue| Pairs::of(self.ur, queue));
        let samples = std::thread::scope(|scope| {
            let start = |pairs: Pairs| {
                let begin = &begin;
                scope.spawn(move || {
                    // Warms the caches of the thread.
                    pairs.sample()?;
                    begin.wait();
                    pairs.sample()
                })
            };
            let threads = pairs.map(start);
            threads.map(|thread| thread.join().unwrap_or(Err("a thread panicked".to_owned())))
        });
        let [first, second] = samples;
        Ok(first?
            .zip(second?)
            .map(|(first, second)| (first + second) / 2.0))
    }
}

/// Asynchronous allocations, each with its free, on a queue.
struct Pairs {
    ur: &'static Calls,
    queue: ur_queue_handle_t,
}

// SAFETY: the calls of a queue may come from any thread.
unsafe impl Send for Pairs {}

impl Pairs {
    fn of(ur: &'static Calls, queue: ur_queue_handle_t) -> Self {
        Self { ur, queue }
    }

    fn sample(&self) -> Result<Option<f64>, String> {
        let pair = || {
            let mut memory = null_mut();
            // SAFETY: a live queue, its device's own pool; the memory is freed unused.
            unsafe {
                let code = (self.ur.urEnqueueUSMDeviceAllocExp)(
                    self.queue,
                    null_mut(),
                    ALLOCATION,
                    null(),
                    0,
                    null(),
                    &mut memory,
                    null_mut(),
                );
                if code != UR_RESULT_SUCCESS {
                    return code;
                }
                (self.ur.urEnqueueUSMFreeExp)(self.queue, null_mut(), memory, 0, null(), null_mut())
            }
        };
        match pair() {
            UR_RESULT_ERROR_UNSUPPORTED_FEATURE | UR_RESULT_ERROR_UNINITIALIZED => Ok(None),
            first => {
                ok(first)?;
                timed(QUERIES, |_| ok(pair()))
            }
        }
    }
}

/// The mean time of `count` calls in nanoseconds.
fn timed(
    calls: usize,
    mut call: impl FnMut(usize) -> Result<(), String>,
) -> Result<Option<f64>, String> {
    let begun = Instant::now();
    for at in 0..calls {
        call(at)?;
    }
    Ok(Some(begun.elapsed().as_nanos() as f64 / calls as f64))
}

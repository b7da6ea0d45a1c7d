//! Commands of each kind that fail when they run, at any position, on either type of queue.
//!
//! Every failure is reported once by a wait that covers it, and by the events that depend on it.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use opencl_sys::{
    CL_COMMAND_MEMCPY_INTEL, CL_COMMAND_MEMFILL_INTEL, CL_COMMAND_NDRANGE_KERNEL,
    CL_OUT_OF_RESOURCES, cl_command_type,
};
use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, device, ur};

const BYTES: usize = 64 << 10;
const FAILED: ur_result_t = UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS;

#[derive(Clone, Copy, PartialEq, Debug)]
enum What {
    Copy,
    Fill,
    Launch,
    Recorded,
    HostTask,
    Native,
}

/// Each kind once. The list is rotated so that each kind stands at each position.
const CHAIN: [What; 6] = [
    What::Copy,
    What::HostTask,
    What::Fill,
    What::Native,
    What::Launch,
    What::Recorded,
];

impl What {
    /// The driver's command: its type, and its number among the type. Only these can fail.
    fn commands(self) -> Option<(cl_command_type, u64)> {
        match self {
            Self::Copy => Some((CL_COMMAND_MEMCPY_INTEL, 1)),
            Self::Fill => Some((CL_COMMAND_MEMFILL_INTEL, 1)),
            Self::Launch => Some((CL_COMMAND_NDRANGE_KERNEL, 1)),
            Self::Recorded => Some((CL_COMMAND_MEMCPY_INTEL, 2)),
            Self::HostTask | Self::Native => None,
        }
    }
}

struct Fixture {
    driver: FakeDriver,
    device: ur_device_handle_t,
    context: ur_context_handle_t,
    queue: ur_queue_handle_t,
    program: ur_program_handle_t,
    kernel: ur_kernel_handle_t,
    buffer: ur_exp_command_buffer_handle_t,
    from: Vec<u8>,
    to: Vec<u8>,
    /// The number of calls of the function at each position.
    calls: Vec<AtomicUsize>,
}

fn ok(code: ur_result_t) {
    assert_eq!(code, UR_RESULT_SUCCESS);
}

unsafe extern "C" fn count(calls: *mut c_void) {
    // SAFETY: the fixture's counter outlives its commands.
    unsafe { &*calls.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn count_native(_: ur_queue_handle_t, calls: *mut c_void) {
    // SAFETY: the caller's promises are passed on.
    unsafe { count(calls) }
}

impl Fixture {
    fn new(flags: ur_queue_flags_t) -> Self {
        let driver = FakeDriver::open();
        driver.reset();
        let device = device(adapter().expect("an adapter"));
        let (mut context, mut queue) = (null_mut(), null_mut());
        ok(ur!(Context.pfnCreate(1, &device, null(), &mut context)));
        let properties = ur_queue_properties_t {
            flags,
            ..Default::default()
        };
        ok(ur!(Queue.pfnCreate(
            context,
            device,
            &properties,
            &mut queue
        )));
        let (code, mut program, mut kernel) = ([3_u8, 2, 35, 7], null_mut(), null_mut());
        ok(ur!(Program.pfnCreateWithIL(
            context,
            code.as_ptr().cast(),
            code.len(),
            null(),
            &mut program
        )));
        ok(ur!(Program.pfnBuild(context, program, null())));
        ok(ur!(Kernel.pfnCreate(
            program,
            c"work".as_ptr(),
            &mut kernel
        )));
        let mut fixture = Self {
            driver,
            device,
            context,
            queue,
            program,
            kernel,
            buffer: null_mut(),
            from: vec![7; BYTES],
            to: vec![0; (CHAIN.len() + 1) * BYTES],
            calls: CHAIN.iter().map(|_| AtomicUsize::new(0)).collect(),
        };
        fixture.record();
        fixture
    }

    /// A command buffer of two copies, to the position of that kind.
    fn record(&mut self) {
        let desc = ur_exp_command_buffer_desc_t::default();
        let mut buffer = null_mut();
        let (context, device) = (self.context, self.device);
        ok(ur!(CommandBufferExp.pfnCreateExp(
            context,
            device,
            &desc,
            &mut buffer
        )));
        for half in [0, BYTES / 2] {
            ok(ur!(CommandBufferExp.pfnAppendUSMMemcpyExp(
                buffer,
                self.position(CHAIN.len()).wrapping_byte_add(half),
                self.from.as_ptr().cast(),
                BYTES / 2,
                0,
                null(),
                0,
                null(),
                null_mut(),
                null_mut(),
                null_mut()
            )));
        }
        ok(ur!(CommandBufferExp.pfnFinalizeExp(buffer)));
        self.buffer = buffer;
    }

    fn position(&mut self, at: usize) -> *mut c_void {
        self.to[at * BYTES..].as_mut_ptr().cast()
    }

    /// Enqueues a command that waits for the events. Returns its event, if it is wanted, or the error.
    fn enqueue(
        &mut self,
        what: What,
        at: usize,
        waits: &[ur_event_handle_t],
        wanted: bool,
    ) -> Result<Option<ur_event_handle_t>, ur_result_t> {
        let (queue, to, from) = (self.queue, self.position(at), self.from.as_ptr().cast());
        let calls = (&raw const self.calls[at]).cast_mut().cast::<c_void>();
        let (count_of, list) = (
            waits.len() as u32,
            match waits {
                [] => null(),
                _ => waits.as_ptr(),
            },
        );
        let mut made = null_mut();
        let event: *mut _ = if wanted { &mut made } else { null_mut() };
        let code = match what {
            What::Copy => {
                ur!(Enqueue.pfnUSMMemcpy(queue, 0, to, from, BYTES, count_of, list, event))
            }
            What::Fill => {
                let pattern = [7_u8; 4];
                let pattern = pattern.as_ptr().cast();
                ur!(Enqueue.pfnUSMFill(queue, to, 4, pattern, BYTES, count_of, list, event))
            }
            What::Launch => {
                let (value, global) = (5_u32, 64_usize);
                let arg = ur_exp_kernel_arg_properties_t {
                    r#type: UR_EXP_KERNEL_ARG_TYPE_VALUE,
                    size: 4,
                    value: ur_exp_kernel_arg_value_t {
                        value: (&raw const value).cast(),
                    },
                    ..Default::default()
                };
                ur!(EnqueueExp.pfnKernelLaunchWithArgsExp(
                    queue,
                    self.kernel,
                    1,
                    null(),
                    &global,
                    null(),
                    1,
                    &arg,
                    null(),
                    count_of,
                    list,
                    event
                ))
            }
            What::Recorded => {
                ur!(EnqueueExp.pfnCommandBufferExp(queue, self.buffer, count_of, list, event))
            }
            What::HostTask => ur!(EnqueueExp.pfnHostTaskExp(
                queue,
                Some(count),
                calls,
                null(),
                count_of,
                list,
                event
            )),
            What::Native => ur!(EnqueueExp.pfnNativeCommandExp(
                queue,
                Some(count_native),
                calls,
                0,
                null(),
                null(),
                count_of,
                list,
                event
            )),
        };
        match code {
            UR_RESULT_SUCCESS => Ok(wanted.then_some(made)),
            code => Err(code),
        }
    }

    /// Whether a command left its data. A launch of the fake driver leaves none.
    fn ran(&self, what: What, at: usize) -> Option<bool> {
        match what {
            What::Copy | What::Fill => Some(self.to[at * BYTES] == 7),
            // The first of its commands failed. The second does not depend on it.
            What::Recorded => Some(self.to[CHAIN.len() * BYTES] == 7),
            What::HostTask | What::Native => match self.calls[at].load(Ordering::SeqCst) {
                0 => Some(false),
                1 => Some(true),
                more => panic!("{what:?} was called {more} times"),
            },
            What::Launch => None,
        }
    }

    fn end(self) {
        ok(ur!(CommandBufferExp.pfnReleaseExp(self.buffer)));
        ok(ur!(Kernel.pfnRelease(self.kernel)));
        ok(ur!(Program.pfnRelease(self.program)));
        ok(ur!(Queue.pfnRelease(self.queue)));
        ok(ur!(Context.pfnRelease(self.context)));
        self.driver.check_end("at the end");
    }
}

/// A case. The commands wait for each other in a chain, or not at all.
#[derive(Clone, Copy, Debug)]
struct Case {
    in_order: bool,
    wanted: bool,
    chained: bool,
    position: usize,
    by_device: bool,
}

/// The driver completes each command before the next one is submitted.
#[test]
fn a_failed_command_is_reported_at_any_place() {
    alone(
        "tests::failures::a_failed_command_is_reported_at_any_place",
        &[],
        || {
            let order = [true, false];
            let kinds = order.into_iter().flat_map(|in_order| {
                [(true, true), (true, false), (false, false)]
                    .map(|(wanted, chained)| (in_order, wanted, chained))
            });
            for (in_order, wanted, chained) in kinds {
                for position in 0..CHAIN.len() {
                    for first in 0..CHAIN.len() {
                        for by_device in [false, true] {
                            let case = Case {
                                in_order,
                                wanted,
                                chained,
                                position,
                                by_device,
                            };
                            let mut chain = CHAIN;
                            chain.rotate_left(first);
                            if chain[position].commands().is_some() {
                                one(case, &chain);
                            }
                        }
                    }
                }
            }
        },
    );
}

fn one(case: Case, chain: &[What]) {
    let text = format!("{case:?} of {chain:?}");
    let mut fixture = Fixture::new(match case.in_order {
        true => ur_queue_flags_t(0),
        false => UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE,
    });
    let (kind, _) = chain[case.position]
        .commands()
        .expect("a command that can fail");
    let before = chain[..case.position]
        .iter()
        .filter_map(|what| what.commands());
    let before: u64 = before
        .filter(|(other, _)| *other == kind)
        .map(|(_, count)| count)
        .sum();
    fixture
        .driver
        .fail_command(kind, before + 1, CL_OUT_OF_RESOURCES);
    let mut events: Vec<Option<ur_event_handle_t>> = Vec::new();
    for (at, what) in chain.iter().enumerate() {
        let last = events.iter().flatten().last().filter(|_| case.chained);
        let last = last.copied();
        let enqueued = fixture.enqueue(*what, at, last.as_slice(), case.wanted);
        if enqueued.is_err() {
            // An event that is known to have failed is refused in a wait list.
            let known = case.chained && at > case.position;
            assert_eq!(
                (enqueued, known),
                (Err(FAILED), true),
                "{what:?} at {at}: {text}"
            );
        }
        events.push(enqueued.unwrap_or_default());
    }
    let (queue, device) = (fixture.queue, fixture.device);
    let wait = || match case.by_device {
        true => ur!(DeviceExp.pfnWaitExp(device)),
        false => ur!(Queue.pfnFinish(queue)),
    };
    assert_eq!(wait(), FAILED, "{text}");
    assert_eq!(wait(), UR_RESULT_SUCCESS, "{text}");
    for (at, what) in chain.iter().enumerate() {
        let right = match case.in_order || case.chained {
            true => at < case.position,
            false => at != case.position,
        };
        // A native command's function is called as it is enqueued, unless the failure is known by then.
        //
        // The driver itself waits for the host tasks before it. A command behind such a task may fail between
        // the query of the task's status and the next command.
        let late = chain[..case.position].contains(&What::HostTask);
        let forced = chain[at..].contains(&What::Native);
        let shows = right || !(late || forced);
        let ran = fixture.ran(*what, at).filter(|_| shows);
        assert_eq!(ran.unwrap_or(right), right, "{what:?} at {at}: {text}");
        if let Some(event) = &events[at] {
            let code = ur!(Event.pfnWait(1, event));
            assert_eq!(code == UR_RESULT_SUCCESS, right, "{what:?} at {at}: {text}");
        }
    }
    fixture.to.fill(0);
    assert_eq!(
        fixture.enqueue(What::Copy, 0, &[], false),
        Ok(None),
        "{text}"
    );
    assert_eq!(wait(), UR_RESULT_SUCCESS, "{text}");
    assert_eq!(fixture.ran(What::Copy, 0), Some(true), "{text}");
    for event in events.into_iter().flatten() {
        ok(ur!(Event.pfnRelease(event)));
    }
    fixture.end();
}

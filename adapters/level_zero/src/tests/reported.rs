//! Faults that users of Intel's adapter reported, each with a test that shows this adapter right, as far as a driver
//! without a GPU can. The numbers are those of the issues.
//!
//! | reported | test | not shown |
//! |---|---|---|
//! | a call to a null address at the first submission (intel/llvm 22958, 22834; pytorch 179891) | `absent`, all of it | |
//! | a program hangs for ever once its GPU was reset (llama.cpp 24810) | `lost`, all of it | that a real reset is noticed |
//! | the host's memory grows with the memory of several GPUs (llama.cpp 21597, 22116) | [`memory_is_made_resident_nowhere`], [`opened_memory_is_resident`] | what the kernel's driver does |
//! | copies between GPUs lose the device (llama.cpp 25286, 27198) | [`copies_between_devices_are_ordered`] | the loss is the hardware's |
//! | allocations above 4 GiB fail (llama.cpp 17566; intel/llvm 10946; compute-runtime 627, 984) | [`large_allocations_work_where_they_are_asked_for`], [`many_allocations_exceed_the_limit_of_one`] | kernels on such memory |
//! | out-of-order queues are slower than in-order ones (intel/llvm 19617) | [`orders_cost_the_same_calls`], [`a_command_waits_for_no_other`] | times |
//! | events pile up with finalized graphs and need a second release (intel/llvm 23073; unified-runtime 2347) | [`nothing_grows_with_replays`] | |
//! | a wait for the device crashes after a graph's replay; queues with barriers crash (pytorch 187277; intel/llvm 21704) | [`the_device_is_waited_for_after_replays`], [`barriers_join_several_queues`] | |
//! | a second run or a submission after idle minutes fails (pytorch 190972; intel/llvm 23209) | [`a_second_run_works`] | power states |
//! | waits burn a core (compute-runtime 343, 363; intel/llvm 15716) | [`waits_do_not_spin`] | what the driver does within its wait |
//! | asynchronous memory is not reused by other queues, and pools are not trimmed (intel/llvm 21320) | [`asynchronous_memory_is_reused_and_trimmed`] | |
//! | a copy within a buffer hangs, a wait without a list misses commands, a late release of a pool hangs, and asynchronous host memory is unknown | [`small_things_work`] | |

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, alone_with, case, devices, ur};
use super::faults::LOST;
use super::workload::{self, SIZE, host, read};

pub fn ok(code: ur_result_t) {
    assert_eq!(code, UR_RESULT_SUCCESS);
}

/// A context of all devices.
pub struct Own {
    pub driver: FakeDriver,
    adapter: ur_adapter_handle_t,
    pub devices: Vec<ur_device_handle_t>,
    pub context: ur_context_handle_t,
}

const IN_ORDER: ur_queue_flags_t = ur_queue_flags_t(0);
const LOOSE: ur_queue_flags_t = UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE;

impl Own {
    pub fn new() -> Self {
        let driver = FakeDriver::open();
        driver.reset();
        case("the test");
        let adapter = adapter();
        let devices = devices(adapter);
        let (mut context, count) = (null_mut(), devices.len() as u32);
        ok(ur!(Context.pfnCreate(
            count,
            devices.as_ptr(),
            null(),
            &mut context
        )));
        Self {
            driver,
            adapter,
            devices,
            context,
        }
    }

    pub fn queue(&self, device: usize, flags: ur_queue_flags_t) -> ur_queue_handle_t {
        let properties = ur_queue_properties_t {
            flags,
            ..Default::default()
        };
        let mut queue = null_mut();
        let device = self.devices[device];
        ok(ur!(Queue.pfnCreate(
            self.context,
            device,
            &properties,
            &mut queue
        )));
        queue
    }

    pub fn device_memory(&self, device: usize, bytes: usize) -> *mut c_void {
        let (mut at, pool, device) = (null_mut(), null_mut(), self.devices[device]);
        ok(ur!(USM.pfnDeviceAlloc(
            self.context,
            device,
            null(),
            pool,
            bytes,
            &mut at
        )));
        at
    }

    pub fn free(&self, all: &[*mut c_void]) {
        all.iter()
            .for_each(|at| ok(ur!(USM.pfnFree(self.context, *at))));
    }

    pub fn end(self, queues: &[ur_queue_handle_t]) {
        queues
            .iter()
            .for_each(|queue| ok(ur!(Queue.pfnRelease(*queue))));
        ok(ur!(Context.pfnRelease(self.context)));
        ok(ur!(Adapter.pfnRelease(self.adapter)));
        self.driver.check_end("the test");
    }

    /// The calls of the driver while something runs, by function, with at most these first letters.
    pub fn calls(&self, named: &str, run: impl FnOnce()) -> u64 {
        self.driver.reset();
        run();
        let counts = self.driver.counts();
        let of = counts.iter().filter(|(name, _)| name.starts_with(named));
        of.map(|(_, count)| count).sum()
    }
}

fn list(waits: &[ur_event_handle_t]) -> (u32, *const ur_event_handle_t) {
    match waits {
        [] => (0, null()),
        some => (some.len() as u32, some.as_ptr()),
    }
}

pub fn fill(
    queue: ur_queue_handle_t,
    to: *mut c_void,
    byte: u8,
    waits: &[ur_event_handle_t],
) -> ur_event_handle_t {
    let ((count, first), mut event) = (list(waits), null_mut());
    let from = (&raw const byte).cast();
    ok(ur!(Enqueue.pfnUSMFill(
        queue, to, 1, from, SIZE, count, first, &mut event
    )));
    event
}

pub fn copy(
    queue: ur_queue_handle_t,
    to: *mut c_void,
    from: *const c_void,
    waits: &[ur_event_handle_t],
) -> ur_event_handle_t {
    let ((count, first), mut event) = (list(waits), null_mut());
    ok(ur!(Enqueue.pfnUSMMemcpy(
        queue, false as _, to, from, SIZE, count, first, &mut event
    )));
    event
}

fn barrier(queue: ur_queue_handle_t, waits: &[ur_event_handle_t]) -> ur_event_handle_t {
    let ((count, first), mut event) = (list(waits), null_mut());
    ok(ur!(
        Enqueue.pfnEventsWaitWithBarrier(queue, count, first, &mut event)
    ));
    event
}

pub fn release(events: &[ur_event_handle_t]) {
    events
        .iter()
        .for_each(|event| ok(ur!(Event.pfnRelease(*event))));
}

unsafe extern "C" fn pause(milliseconds: *mut c_void) {
    std::thread::sleep(Duration::from_millis(milliseconds.addr() as u64));
}

/// A host task of some length.
pub fn task(queue: ur_queue_handle_t, milliseconds: usize) -> ur_event_handle_t {
    let (data, mut event) = (std::ptr::without_provenance_mut(milliseconds), null_mut());
    ok(ur!(EnqueueExp.pfnHostTaskExp(
        queue,
        Some(pause),
        data,
        null(),
        0,
        null(),
        &mut event
    )));
    event
}

/// The driver makes memory resident where it is used. Nothing makes it resident on other devices that it was not opened
/// to.
#[test]
fn memory_is_made_resident_nowhere() {
    alone("tests::reported::memory_is_made_resident_nowhere", || {
        let own = Own::new();
        let queues = [0, 1].map(|device| own.queue(device, IN_ORDER));
        let calls = own.calls("zeContextMakeMemoryResident", || {
            let memory = [0, 1].map(|device| own.device_memory(device, 64 << 20));
            for (queue, at) in queues.iter().zip(memory) {
                release(&[fill(*queue, at, 1, &[])]);
                ok(ur!(Queue.pfnFinish(*queue)));
            }
            own.free(&memory);
        });
        assert_eq!(calls, 0);
        own.end(&queues);
    });
}

/// Memory of a device is resident on another one exactly while it is opened to that: what was there before, and what is
/// allocated meanwhile.
#[test]
fn opened_memory_is_resident() {
    let name = "tests::reported::opened_memory_is_resident";
    // Pools keep no memory.
    alone_with(name, &[("UR_L0_DISABLE_USM_ALLOCATOR", "1")], || {
        let own = Own::new();
        let [one, two] = own.devices[..] else {
            panic!("two devices")
        };
        let (bytes, queue) = (64 << 20, own.queue(1, IN_ORDER));
        // A pool gives free memory back when its context waits.
        let free = |all: &[*mut c_void]| {
            own.free(all);
            ok(ur!(Queue.pfnFinish(queue)));
        };
        let before = [0, 1].map(|device| own.device_memory(device, bytes));
        let made = |run: &dyn Fn()| own.calls("zeContextMakeMemoryResident", run);
        let evicted = |run: &dyn Fn()| own.calls("zeContextEvictMemory", run);
        let open = || ok(ur!(UsmP2PExp.pfnEnablePeerAccessExp(one, two)));
        let close = || ok(ur!(UsmP2PExp.pfnDisablePeerAccessExp(one, two)));
        let behind = std::cell::Cell::new([null_mut(); 2]);
        assert_eq!(made(&open), 1, "the second device's memory");
        let alloc = || behind.set([0, 1].map(|device| own.device_memory(device, bytes)));
        assert_eq!(made(&alloc), 1, "the second device's new memory");
        assert_eq!(evicted(&|| free(&behind.get())), 1);
        assert_eq!(evicted(&close), 1);
        assert_eq!(made(&alloc), 0, "closed again");
        assert_eq!(evicted(&|| free(&behind.get())), 0);
        // An access that the driver refuses is none, and leaves nothing behind.
        let more = [0; 2].map(|_| own.device_memory(1, bytes));
        own.driver
            .fail_nth("zeContextMakeMemoryResident", 2, LOST.0);
        let refused = ur!(UsmP2PExp.pfnEnablePeerAccessExp(one, two));
        assert_eq!(refused, LOST.1);
        assert_eq!(evicted(&|| free(&more)), 0);
        assert_eq!(made(&open), 1);
        close();
        own.free(&before);
        own.end(&[queue]);
    });
}

/// A chain of copies from device to device and back arrives in order.
#[test]
fn copies_between_devices_are_ordered() {
    alone(
        "tests::reported::copies_between_devices_are_ordered",
        || {
            for flags in [IN_ORDER, LOOSE] {
                let own = Own::new();
                let queues = [0, 1].map(|device| own.queue(device, flags));
                let memory = [0, 1].map(|device| own.device_memory(device, SIZE));
                let mut last = fill(queues[0], memory[0], 0, &[]);
                for round in 1..=100_u8 {
                    let filled = fill(queues[0], memory[0], round, &[last]);
                    let there = copy(queues[1], memory[1], memory[0], &[filled]);
                    let back = copy(
                        queues[0],
                        host(usize::from(round % 4)).cast(),
                        memory[1],
                        &[there],
                    );
                    release(&[last, filled, there]);
                    last = back;
                }
                ok(ur!(Event.pfnWait(1, &last)));
                let slots = (97..=100_u8).map(|round| (usize::from(round % 4), round));
                for (slot, round) in slots {
                    assert_eq!(read(host(slot).cast(), SIZE), [round; SIZE]);
                }
                release(&[last]);
                own.free(&memory);
                own.end(&queues);
            }
        },
    );
}

/// With the variable an allocation may exceed the driver's limit for one.
#[test]
fn large_allocations_work_where_they_are_asked_for() {
    let name = "tests::reported::large_allocations_work_where_they_are_asked_for";
    for asked in ["0", "1"] {
        let variables = [
            ("SCRIPTED_LEVEL_ZERO_MAX_ALLOC", "32"),
            ("UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS", asked),
            ("SCRIPTED_TEST_ASKED", asked),
        ];
        let ran = alone_with(name, &variables, || {
            let asked = std::env::var("SCRIPTED_TEST_ASKED").is_ok_and(|asked| asked == "1");
            let own = Own::new();
            let (mut at, pool, device) = (null_mut(), null_mut(), own.devices[0]);
            let bytes = 100 << 20;
            let code = ur!(USM.pfnDeviceAlloc(own.context, device, null(), pool, bytes, &mut at));
            if !asked {
                assert_ne!(code, UR_RESULT_SUCCESS);
                return own.end(&[]);
            }
            ok(code);
            let queue = own.queue(0, IN_ORDER);
            let end = at.wrapping_byte_add(bytes - SIZE);
            let filled = fill(queue, end, 3, &[]);
            ok(ur!(Event.pfnWait(1, &filled)));
            assert_eq!(read(end, SIZE), [3; SIZE]);
            release(&[filled]);
            own.free(&[at]);
            own.end(&[queue]);
        });
        if ran.is_none() {
            return;
        }
    }
}

/// The limit is for one allocation, and not for all of them.
#[test]
fn many_allocations_exceed_the_limit_of_one() {
    let name = "tests::reported::many_allocations_exceed_the_limit_of_one";
    alone_with(name, &[("SCRIPTED_LEVEL_ZERO_MAX_ALLOC", "32")], || {
        let own = Own::new();
        let memory: Vec<_> = (0..8).map(|_| own.device_memory(0, 32 << 20)).collect();
        own.free(&memory);
        own.end(&[]);
    });
}

/// A chain of commands costs the same calls on queues of both orders.
#[test]
fn orders_cost_the_same_calls() {
    alone("tests::reported::orders_cost_the_same_calls", || {
        let own = Own::new();
        let to = own.device_memory(0, SIZE);
        let queues = [IN_ORDER, LOOSE].map(|flags| own.queue(0, flags));
        let calls = queues.map(|queue| {
            let run = || {
                let mut last = fill(queue, to, 1, &[]);
                for byte in 0..100 {
                    let next = fill(queue, to, byte, &[last]);
                    release(&[last]);
                    last = next;
                }
                ok(ur!(Event.pfnWait(1, &last)));
                release(&[last]);
            };
            run();
            own.calls("zeCommandList", run)
        });
        let [in_order, loose] = calls;
        assert!(loose <= in_order + in_order / 10, "{in_order} and {loose}");
        own.free(&[to]);
        own.end(&queues);
    });
}

/// On an out-of-order queue a command that waits delays no other.
#[test]
fn a_command_waits_for_no_other() {
    alone("tests::reported::a_command_waits_for_no_other", || {
        let own = Own::new();
        let (queue, other) = (own.queue(0, LOOSE), own.queue(0, IN_ORDER));
        let start = Instant::now();
        let gate = task(other, 300);
        let memory = [0, 1].map(|_| own.device_memory(0, SIZE));
        let late = fill(queue, memory[0], 1, &[gate]);
        for byte in 0..20 {
            let early = fill(queue, memory[1], byte, &[]);
            ok(ur!(Event.pfnWait(1, &early)));
            release(&[early]);
        }
        assert!(
            start.elapsed() < Duration::from_millis(250),
            "{:?}",
            start.elapsed()
        );
        ok(ur!(Event.pfnWait(1, &late)));
        assert!(start.elapsed() >= Duration::from_millis(300));
        release(&[gate, late]);
        own.free(&memory);
        own.end(&[queue, other]);
    });
}

/// A captured graph of two commands, ready to run.
struct Graph(ur_exp_graph_handle_t, ur_exp_executable_graph_handle_t);

impl Graph {
    fn new(queue: ur_queue_handle_t, to: *mut c_void) -> Self {
        let (mut graph, mut ready, byte) = (null_mut(), null_mut(), host(30));
        ok(ur!(QueueExp.pfnBeginGraphCaptureExp(queue)));
        for half in [0, SIZE / 2] {
            let (to, from, none) = (to.wrapping_byte_add(half), byte.cast(), null_mut());
            ok(ur!(Enqueue.pfnUSMFill(
                queue,
                to,
                1,
                from,
                SIZE / 2,
                0,
                null(),
                none
            )));
        }
        ok(ur!(QueueExp.pfnEndGraphCaptureExp(queue, &mut graph)));
        ok(ur!(GraphExp.pfnInstantiateGraphExp(graph, &mut ready)));
        Self(graph, ready)
    }

    fn run(&self, queue: ur_queue_handle_t) -> ur_event_handle_t {
        let mut event = null_mut();
        ok(ur!(EnqueueExp.pfnGraphExp(
            queue,
            self.1,
            0,
            null(),
            &mut event
        )));
        event
    }

    fn destroy(self) {
        ok(ur!(GraphExp.pfnExecutableGraphDestroyExp(self.1)));
        ok(ur!(GraphExp.pfnDestroyExp(self.0)));
    }
}

/// A thousand replays with events leave as many objects of the driver as ten.
#[test]
fn nothing_grows_with_replays() {
    alone("tests::reported::nothing_grows_with_replays", || {
        let own = Own::new();
        for flags in [IN_ORDER, LOOSE, UR_QUEUE_FLAG_PROFILING_ENABLE] {
            let (queue, to) = (own.queue(0, flags), own.device_memory(0, SIZE));
            let graph = Graph::new(queue, to);
            let replay = |count| {
                for _ in 0..count {
                    let done = graph.run(queue);
                    let read = copy(queue, host(0).cast(), to, &[done]);
                    ok(ur!(Event.pfnWait(1, &read)));
                    // One release is enough.
                    release(&[done, read]);
                }
                ok(ur!(Queue.pfnFinish(queue)));
                own.driver.query().live
            };
            let few = replay(10);
            let many = replay(1000);
            assert!(many <= few, "{few} objects, then {many}");
            graph.destroy();
            own.free(&[to]);
            ok(ur!(Queue.pfnRelease(queue)));
        }
        own.end(&[]);
    });
}

/// A wait for the device works after replays, and after the graph is gone.
#[test]
fn the_device_is_waited_for_after_replays() {
    alone(
        "tests::reported::the_device_is_waited_for_after_replays",
        || {
            let own = Own::new();
            let (queue, to) = (own.queue(0, IN_ORDER), own.device_memory(0, SIZE));
            // SAFETY: memory of the test's.
            unsafe { host(30).write(5) };
            for _ in 0..20 {
                let graph = Graph::new(queue, to);
                release(&[graph.run(queue), graph.run(queue)]);
                ok(ur!(DeviceExp.pfnWaitExp(own.devices[0])));
                assert_eq!(read(to, SIZE), [5; SIZE]);
                release(&[graph.run(queue)]);
                graph.destroy();
                ok(ur!(DeviceExp.pfnWaitExp(own.devices[0])));
            }
            own.free(&[to]);
            own.end(&[queue]);
        },
    );
}

/// In-order queues that wait for each other by barriers see each other's work.
#[test]
fn barriers_join_several_queues() {
    alone("tests::reported::barriers_join_several_queues", || {
        let own = Own::new();
        let queues = [0, 1, 0, 1].map(|device| own.queue(device, IN_ORDER));
        let mut round = Vec::new();
        for byte in 1..=50_u8 {
            let before = std::mem::take(&mut round);
            for (slot, queue) in queues.iter().enumerate() {
                let wall = barrier(*queue, &before);
                // Each reads what its neighbour wrote before.
                let from = host((slot + 1) % 4 + 4 * usize::from(byte % 2));
                let to = host(slot + 4 * usize::from((byte + 1) % 2));
                let own = match byte {
                    1 => fill(*queue, to.cast(), slot as u8 + 1, &[]),
                    _ => copy(*queue, to.cast(), from.cast(), &[]),
                };
                round.push(barrier(*queue, &[]));
                release(&[wall, own]);
            }
            release(&before);
        }
        queues
            .iter()
            .for_each(|queue| ok(ur!(Queue.pfnFinish(*queue))));
        for slot in 0..4 {
            let byte = (slot + 49) % 4 + 1;
            let found = read(host(slot + 4).cast(), SIZE);
            assert_eq!(found, [byte as u8; SIZE], "slot {slot}");
        }
        release(&round);
        own.end(&queues);
    });
}

/// The workload runs as well a second time, with the adapter started anew.
#[test]
fn a_second_run_works() {
    alone("tests::reported::a_second_run_works", || {
        let driver = FakeDriver::open();
        driver.reset();
        for _ in 0..3 {
            let steps = workload::play();
            assert_eq!((steps.failed(), steps.wrong), (vec![], vec![]));
            driver.check_end("a run");
        }
    });
}

/// The processor time that the process has used, in hundredths of a second.
fn processor_time() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").expect("the kernel's statistics");
    let (_, fields) = text.rsplit_once(')').expect("the program's name");
    let times = fields.split_whitespace().skip(11).take(2);
    times.filter_map(|time| time.parse::<u64>().ok()).sum()
}

/// A wait of the host for half a second uses little of the processor's time.
#[test]
fn waits_do_not_spin() {
    alone("tests::reported::waits_do_not_spin", || {
        let own = Own::new();
        let (queue, other) = (own.queue(0, IN_ORDER), own.queue(1, IN_ORDER));
        let mut native = 0;
        // The list itself waits for the host task then, and the wait is for the list.
        ok(ur!(Queue.pfnGetNativeHandle(
            queue,
            null_mut(),
            &mut native
        )));
        let gate = task(other, 500);
        let late = fill(queue, host(0).cast(), 1, &[gate]);
        let before = processor_time();
        ok(ur!(Event.pfnWait(1, &late)));
        let used = processor_time() - before;
        assert!(used < 15, "{used}");
        release(&[gate, late]);
        own.end(&[queue, other]);
    });
}

/// Memory that a queue freed is another's, ordered by the device, and a trim gives it back.
#[test]
fn asynchronous_memory_is_reused_and_trimmed() {
    let name = "tests::reported::asynchronous_memory_is_reused_and_trimmed";
    alone(name, || {
        let own = Own::new();
        let queues = [0, 0].map(|device| own.queue(device, IN_ORDER));
        let mut desc = ur_usm_pool_desc_t::default();
        let (mut pool, bytes) = (null_mut(), 64 << 20);
        ok(ur!(USM.pfnPoolCreate(own.context, &mut desc, &mut pool)));
        let mut places = Vec::new();
        let mut after = null_mut();
        let before = own.driver.query().live;
        for round in 0..10 {
            let (queue, mut at, mut made) = (queues[round % 2], null_mut(), null_mut());
            let waits = if round == 0 { vec![] } else { vec![after] };
            let (count, first) = list(&waits);
            ok(ur!(EnqueueExp.pfnUSMDeviceAllocExp(
                queue,
                pool,
                bytes,
                null(),
                count,
                first,
                &mut at,
                &mut made
            )));
            let filled = fill(queue, at, round as u8, &[made]);
            let mut freed = null_mut();
            ok(ur!(
                EnqueueExp.pfnUSMFreeExp(queue, pool, at, 1, &filled, &mut freed)
            ));
            release(&waits);
            release(&[made, filled]);
            after = freed;
            places.push(at);
        }
        places.dedup();
        assert_eq!(places.len(), 1, "{places:?}");
        queues
            .iter()
            .for_each(|queue| ok(ur!(Queue.pfnFinish(*queue))));
        release(&[after]);
        let held = own.calls("zeMemFree", || {
            ok(ur!(USMExp.pfnPoolTrimToExp(
                own.context,
                own.devices[0],
                pool,
                0
            )));
        });
        assert!(
            held > 0,
            "{before} objects, then {}",
            own.driver.query().live
        );
        ok(ur!(USM.pfnPoolRelease(pool)));
        own.end(&queues);
    });
}

#[test]
fn small_things_work() {
    alone("tests::reported::small_things_work", || {
        let own = Own::new();
        let (queue, flags, mut buffer) = (own.queue(0, LOOSE), UR_MEM_FLAG_READ_WRITE, null_mut());
        // A copy within one buffer.
        ok(ur!(Mem.pfnBufferCreate(
            own.context,
            flags,
            SIZE,
            null(),
            &mut buffer
        )));
        let (half, none) = (SIZE / 2, null_mut());
        ok(ur!(Enqueue.pfnMemBufferCopy(
            queue,
            buffer,
            buffer,
            0,
            half,
            half,
            0,
            null(),
            none
        )));
        ok(ur!(Queue.pfnFinish(queue)));
        ok(ur!(Mem.pfnRelease(buffer)));
        // A wait without a list covers all commands of an out-of-order queue.
        let gates = [40, 10, 30, 20, 35, 15].map(|length| task(queue, length));
        let mut all = null_mut();
        ok(ur!(Enqueue.pfnEventsWait(queue, 0, null(), &mut all)));
        ok(ur!(Event.pfnWait(1, &all)));
        for gate in gates {
            let (what, mut status) = (
                UR_EVENT_INFO_COMMAND_EXECUTION_STATUS,
                ur_event_status_t::default(),
            );
            let (bytes, to) = (size_of_val(&status), (&raw mut status).cast());
            ok(ur!(Event.pfnGetInfo(gate, what, bytes, to, null_mut())));
            assert_eq!(status, UR_EVENT_STATUS_COMPLETE);
        }
        release(&gates);
        release(&[all]);
        // Asynchronous memory of the host.
        let (pool, mut at) = (null_mut(), null_mut());
        ok(ur!(EnqueueExp.pfnUSMHostAllocExp(
            queue,
            pool,
            SIZE,
            null(),
            0,
            null(),
            &mut at,
            none
        )));
        ok(ur!(EnqueueExp.pfnUSMFreeExp(
            queue,
            pool,
            at,
            0,
            null(),
            none
        )));
        // A pool may be released after its context's handle.
        let (mut desc, mut pool) = (ur_usm_pool_desc_t::default(), null_mut());
        ok(ur!(USM.pfnPoolCreate(own.context, &mut desc, &mut pool)));
        ok(ur!(Queue.pfnRelease(queue)));
        ok(ur!(Context.pfnRelease(own.context)));
        ok(ur!(USM.pfnPoolRelease(pool)));
        ok(ur!(Adapter.pfnRelease(own.adapter)));
        own.driver.check_end("the test");
    });
}

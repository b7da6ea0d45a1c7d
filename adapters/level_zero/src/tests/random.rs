//! Random programs: commands on queues of every kind, on two devices, with dependencies by events and by in-order
//! queues. A model that runs them one after the other says what memory holds in the end.
//!
//! With a call of the driver failing, a program still ends, releases everything and leaks nothing.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, alone_with, case, devices, opencl, ur};
use super::faults::{LOST, MEMORY, UNKNOWN};
use super::workload::{Steps, arguments, host, iota, read};

/// Whether launches run in this process.
pub fn has_kernels() -> bool {
    std::env::var_os("OCL_ICD_FILENAMES").is_some()
}

/// A multiplicative generator: repeatable and random enough.
struct Random(u64);

impl Random {
    fn below(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

/// Bytes of a block.
const BYTES: usize = 256;
const BLOCKS: usize = 10;
const STEPS: usize = 150;

/// Memory, what it holds once its commands have ended, and the events that a command with it has to follow.
struct Block {
    at: *mut c_void,
    holds: Vec<u8>,
    /// Of the last command that writes.
    written: ur_event_handle_t,
    /// Of the commands that read since.
    read: Vec<ur_event_handle_t>,
    /// Memory of a queue's own, freed by a command.
    is_own: bool,
}

struct Program {
    random: Random,
    queues: Vec<ur_queue_handle_t>,
    blocks: Vec<Block>,
    events: Vec<ur_event_handle_t>,
    kernel: ur_kernel_handle_t,
    /// The first step's error: then nothing is known of the memory.
    failed: Option<ur_result_t>,
}

unsafe extern "C" fn pause(_: *mut c_void) {
    std::thread::sleep(std::time::Duration::from_micros(300));
}

impl Program {
    fn check(&mut self, code: ur_result_t) -> bool {
        let is_good = code == UR_RESULT_SUCCESS;
        self.failed = self.failed.or((!is_good).then_some(code));
        is_good
    }

    /// Enqueues a command that reads a block and writes another. In the model it has run.
    fn command(
        &mut self,
        reads: Option<usize>,
        writes: usize,
        run: impl FnOnce(
            &Self,
            ur_queue_handle_t,
            &[ur_event_handle_t],
            &mut ur_event_handle_t,
        ) -> ur_result_t,
    ) -> bool {
        let mut waits = self.blocks[writes].read.clone();
        waits.push(self.blocks[writes].written);
        if let Some(from) = reads {
            waits.push(self.blocks[from].written);
        }
        waits.retain(|event| !event.is_null());
        let at = self.random.below(self.queues.len());
        let (queue, mut event) = (self.queues[at], null_mut());
        if self.random.below(6) == 0 && !waits.is_empty() {
            // A host task takes the place of the events.
            let (count, first) = (waits.len() as u32, waits.as_ptr());
            let mut task = null_mut();
            let code = ur!(EnqueueExp.pfnHostTaskExp(
                queue,
                Some(pause),
                null_mut(),
                null(),
                count,
                first,
                &mut task
            ));
            if !self.check(code) {
                return false;
            }
            self.events.push(task);
            waits = vec![task];
        }
        let code = run(self, queue, &waits, &mut event);
        if !self.check(code) {
            return false;
        }
        self.events.push(event);
        if let Some(from) = reads {
            self.blocks[from].read.push(event);
        }
        self.blocks[writes].written = event;
        self.blocks[writes].read.clear();
        true
    }

    fn fill(&mut self) {
        let (to, byte) = (
            self.random.below(self.blocks.len()),
            self.random.below(255) as u8 + 1,
        );
        let at = self.blocks[to].at;
        let done = self.command(None, to, |_, queue, waits, event| {
            let (count, first) = list(waits);
            let from = (&raw const byte).cast();
            ur!(Enqueue.pfnUSMFill(queue, at, 1, from, BYTES, count, first, event))
        });
        if done {
            self.blocks[to].holds.fill(byte);
        }
    }

    fn copy(&mut self) {
        let from = self.random.below(self.blocks.len());
        let to = self.random.below(self.blocks.len());
        if from == to {
            return;
        }
        let (at, src) = (self.blocks[to].at, self.blocks[from].at);
        let done = self.command(Some(from), to, |_, queue, waits, event| {
            let (count, first) = list(waits);
            ur!(Enqueue.pfnUSMMemcpy(queue, false as _, at, src, BYTES, count, first, event))
        });
        if done {
            self.blocks[to].holds = self.blocks[from].holds.clone();
        }
    }

    fn launch(&mut self) {
        if self.kernel.is_null() {
            return;
        }
        let (to, number) = (
            self.random.below(self.blocks.len()),
            self.random.below(1000) as u32,
        );
        let args = arguments(self.blocks[to].at, &number);
        let done = self.command(None, to, |own, queue, waits, event| {
            let ((count, first), global) = (list(waits), BYTES / 4);
            ur!(EnqueueExp.pfnKernelLaunchWithArgsExp(
                queue,
                own.kernel,
                1,
                null(),
                &global,
                null(),
                2,
                args.as_ptr(),
                null(),
                count,
                first,
                event
            ))
        });
        if done {
            let numbers = (0..BYTES as u32 / 4).map(|at| number + at);
            self.blocks[to].holds = numbers.flat_map(u32::to_le_bytes).collect();
        }
    }

    /// Memory of a queue's own takes the place of a block, or ends.
    fn allocate(&mut self) {
        let place = self.random.below(self.blocks.len());
        if self.blocks[place].is_own {
            let block = &self.blocks[place];
            let (at, mut waits) = (block.at, block.read.clone());
            waits.push(block.written);
            waits.retain(|event| !event.is_null());
            let own = self.random.below(self.queues.len());
            let ((count, first), queue) = (list(&waits), self.queues[own]);
            let (pool, event) = (null_mut(), null_mut());
            let code = ur!(EnqueueExp.pfnUSMFreeExp(queue, pool, at, count, first, event));
            if self.check(code) {
                self.blocks.swap_remove(place);
            }
            return;
        }
        let own = self.random.below(self.queues.len());
        let (queue, mut at, mut event) = (self.queues[own], null_mut(), null_mut());
        let code = match self.random.below(3) {
            0 => ur!(EnqueueExp.pfnUSMDeviceAllocExp(
                queue,
                null_mut(),
                BYTES,
                null(),
                0,
                null(),
                &mut at,
                &mut event
            )),
            1 => ur!(EnqueueExp.pfnUSMHostAllocExp(
                queue,
                null_mut(),
                BYTES,
                null(),
                0,
                null(),
                &mut at,
                &mut event
            )),
            _ => ur!(EnqueueExp.pfnUSMSharedAllocExp(
                queue,
                null_mut(),
                BYTES,
                null(),
                0,
                null(),
                &mut at,
                &mut event
            )),
        };
        if self.check(code) {
            self.events.push(event);
            self.blocks.push(Block {
                at,
                holds: Vec::new(),
                written: event,
                read: Vec::new(),
                is_own: true,
            });
            // What it holds is not known before a fill.
            let to = self.blocks.len() - 1;
            let done = self.command(None, to, |_, queue, waits, event| {
                let ((count, first), from) = (list(waits), host(31).cast());
                ur!(Enqueue.pfnUSMFill(queue, at, 1, from, BYTES, count, first, event))
            });
            if done {
                self.blocks[to].holds = vec![0; BYTES];
            }
        }
    }

    fn wait(&mut self) {
        let at = self.random.below(self.queues.len());
        let code = match (self.random.below(4), self.events.last()) {
            (0, _) => ur!(Queue.pfnFinish(self.queues[at])),
            (1, _) => ur!(Queue.pfnFlush(self.queues[at])),
            (2, Some(last)) => ur!(Event.pfnWait(1, last)),
            _ => {
                let (queue, mut event) = (self.queues[at], null_mut());
                let code = ur!(Enqueue.pfnEventsWaitWithBarrier(queue, 0, null(), &mut event));
                if code == UR_RESULT_SUCCESS {
                    self.events.push(event);
                }
                code
            }
        };
        self.check(code);
    }
}

fn list(waits: &[ur_event_handle_t]) -> (u32, *const ur_event_handle_t) {
    match waits {
        [] => (0, null()),
        some => (some.len() as u32, some.as_ptr()),
    }
}

/// Runs a program, and compares the memory with the model's if nothing failed. Returns the first error.
fn run(seed: u64) -> Option<ur_result_t> {
    let mut random = Random(seed);
    let adapter = adapter();
    let all = devices(adapter);
    let mut context = null_mut();
    let count = all.len() as u32;
    let code = ur!(Context.pfnCreate(count, all.as_ptr(), null(), &mut context));
    if code != UR_RESULT_SUCCESS {
        assert_eq!(ur!(Adapter.pfnRelease(adapter)), UR_RESULT_SUCCESS);
        return Some(code);
    }
    let flags = [
        ur_queue_flags_t(0),
        UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE,
        UR_QUEUE_FLAG_PROFILING_ENABLE,
        UR_QUEUE_FLAG_SUBMISSION_BATCHED,
        UR_QUEUE_FLAG_SUBMISSION_BATCHED | UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE,
    ];
    let mut failed = None;
    let mut queues = Vec::new();
    for (at, flags) in flags.into_iter().enumerate() {
        let properties = ur_queue_properties_t {
            flags,
            ..Default::default()
        };
        let (device, mut queue) = (all[at % all.len()], null_mut());
        match ur!(Queue.pfnCreate(context, device, &properties, &mut queue)) {
            UR_RESULT_SUCCESS => queues.push(queue),
            code => failed = Some(code),
        }
    }
    let mut native = 0;
    if let Some(queue) = queues.first().filter(|_| random.below(2) == 0) {
        let code = ur!(Queue.pfnGetNativeHandle(*queue, null_mut(), &mut native));
        failed = failed.or((code != UR_RESULT_SUCCESS).then_some(code));
    }
    let mut blocks = Vec::new();
    for kind in 0..BLOCKS {
        let (mut at, pool, device) = (null_mut(), null_mut(), all[kind % all.len()]);
        let code = match kind % 3 {
            0 => ur!(USM.pfnDeviceAlloc(context, device, null(), pool, BYTES, &mut at)),
            1 => ur!(USM.pfnSharedAlloc(context, device, null(), pool, BYTES, &mut at)),
            _ => ur!(USM.pfnHostAlloc(context, null(), pool, BYTES, &mut at)),
        };
        match code {
            UR_RESULT_SUCCESS => blocks.push(Block {
                at,
                holds: vec![0; BYTES],
                written: null_mut(),
                read: Vec::new(),
                is_own: false,
            }),
            code => failed = Some(code),
        }
    }
    for block in &blocks {
        // SAFETY: new memory of this size, which the host reaches here.
        unsafe { block.at.cast::<u8>().write_bytes(0, BYTES) };
    }
    let (program, kernel) = match has_kernels() {
        true => iota(&mut Steps::default(), context),
        false => (null_mut(), null_mut()),
    };
    let mut own = Program {
        random,
        queues,
        blocks,
        events: Vec::new(),
        kernel,
        failed,
    };
    if !own.queues.is_empty() && own.blocks.len() > 1 {
        for _ in 0..STEPS {
            match own.random.below(10) {
                0..3 => own.fill(),
                3..6 => own.copy(),
                6 | 7 => own.launch(),
                8 => own.allocate(),
                _ => own.wait(),
            }
            if own.blocks.len() < 2 {
                break;
            }
        }
    }
    for queue in own.queues.clone() {
        let code = ur!(Queue.pfnFinish(queue));
        own.check(code);
    }
    if own.failed.is_none() {
        for (at, block) in own.blocks.iter().enumerate() {
            assert_eq!(
                read(block.at, BYTES),
                block.holds,
                "block {at}, seed {seed}"
            );
        }
    }
    let done = |code| assert_eq!(code, UR_RESULT_SUCCESS, "seed {seed}");
    own.events
        .iter()
        .for_each(|event| done(ur!(Event.pfnRelease(*event))));
    own.blocks
        .iter()
        .for_each(|block| done(ur!(USM.pfnFree(context, block.at))));
    own.queues
        .iter()
        .for_each(|queue| done(ur!(Queue.pfnRelease(*queue))));
    if !kernel.is_null() {
        done(ur!(Kernel.pfnRelease(kernel)));
        done(ur!(Program.pfnRelease(program)));
    }
    done(ur!(Context.pfnRelease(context)));
    done(ur!(Adapter.pfnRelease(adapter)));
    own.failed
}

/// Programs without a failure.
fn right(name: &str, variables: &[(&str, &str)], programs: u64) {
    alone_with(name, variables, || {
        let driver = FakeDriver::open();
        driver.reset();
        for seed in 1..=programs {
            case(&format!("seed {seed}"));
            assert_eq!(run(seed), None, "seed {seed}");
            driver.check_end(&format!("seed {seed}"));
        }
    });
}

#[test]
fn programs_are_right() {
    right("tests::random::programs_are_right", &[], 60);
}

#[test]
fn programs_are_right_on_an_old_driver() {
    let name = "tests::random::programs_are_right_on_an_old_driver";
    let without = "zeEventCounterBasedCreate,zeCommandListHostSynchronize";
    let old = [
        ("SCRIPTED_LEVEL_ZERO_VERSION", "1.3"),
        ("SCRIPTED_LEVEL_ZERO_WITHOUT", without),
    ];
    right(name, &old, 60);
}

/// With pools whose device memory comes in pages.
#[test]
fn programs_are_right_with_pages() {
    let name = "tests::random::programs_are_right_with_pages";
    right(name, &[("UR_LEVEL_ZERO_PAGES", "1")], 60);
}

/// With kernels, where Intel's OpenCL driver is.
#[test]
fn programs_with_kernels_are_right() {
    let name = "tests::random::programs_with_kernels_are_right";
    let Some(lib) = opencl() else { return };
    let path = std::env::join_paths([&lib]).expect("no colon");
    let driver = lib.join("libintelocl.so");
    let texts = [path.to_string_lossy(), driver.to_string_lossy()];
    let variables = [
        ("LD_LIBRARY_PATH", &*texts[0]),
        ("OCL_ICD_FILENAMES", &*texts[1]),
    ];
    right(name, &variables, 20);
}

/// A random call of a random program fails: the program ends all the same, and leaves nothing behind.
#[test]
fn programs_with_a_failing_call_end() {
    alone("tests::random::programs_with_a_failing_call_end", || {
        let driver = FakeDriver::open();
        driver.reset();
        run(1);
        let mut random = Random(7);
        for seed in 1..=120 {
            driver.reset();
            assert_eq!(run(seed), None, "seed {seed}");
            let calls = driver.query().calls as usize;
            let (code, _) = [MEMORY, LOST, UNKNOWN][random.below(3)];
            let nth = 1 + random.below(calls);
            let when = format!("seed {seed}, call {nth} of {calls} fails with {code:#x}");
            case(&when);
            driver.fail(nth as u64, code);
            run(seed);
            driver.check_end(&when);
        }
    });
}

//! The loader's validation layer for asynchronous allocation.
//!
//! Programs with planted races must be reported with both commands. The same programs with the right order
//! must not be reported. Each test has its own process, which enables the layer before it initialises the
//! loader.

use crate::check;
use crate::fixture::Fixture;
use crate::fresh::Fresh;
use crate::kernels::{self, IOTA};
use crate::objects::{Arg, Block, Context, Event, Kind, Pool, Program, Queue, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use ur::abi::*;

const SUITE: &str = "async_validation";
const LAYER: &str = "UR_LAYER_ASYNC_ALLOC_VALIDATION";

/// A program and its expected findings: for each line of the log, the texts that it must contain.
type Planted = (
    &'static str,
    fn(&Setup) -> Done,
    &'static [&'static [&'static str]],
);

const RACES: &[Planted] = &[
    (
        "use_on_another_queue",
        use_on_another_queue,
        &[&[
            "race: urEnqueueUSMFill (command 1 of queue 0x",
            ", 2nd of urQueueCreate) uses 4096 bytes at 0x",
            "; urEnqueueUSMDeviceAllocExp (command 1 of queue 0x",
            ", 1st of urQueueCreate) allocates 4096 bytes at 0x",
            "; they overlap in 4096 bytes at 0x",
            "; no event orders the use after the allocation",
        ]],
    ),
    (
        "use_on_another_queue_after_event",
        use_on_another_queue_after_event,
        &[],
    ),
    (
        "kernel_after_free",
        kernel_after_free,
        &[&[
            "race: kernel iota (command 2 of queue 0x",
            ", 2nd of urQueueCreate) uses memory from 0x",
            "; urEnqueueUSMFreeExp (command 2 of queue 0x",
            ", 1st of urQueueCreate) frees 4096 bytes at 0x",
            "; they may overlap in 4096 bytes at 0x",
            "; no event orders them",
        ]],
    ),
    ("kernel_before_free", kernel_before_free, &[]),
    (
        "free_without_event_of_use",
        free_without_event_of_use,
        &[&[
            "race: urEnqueueUSMFreeExp (command 2 of queue 0x",
            ", 1st of urQueueCreate) frees 4096 bytes at 0x",
            "; urEnqueueUSMFill (command 1 of queue 0x",
            ", 2nd of urQueueCreate) uses 4096 bytes at 0x",
            "; no event orders the free after the use",
        ]],
    ),
    (
        "free_without_event_of_allocation",
        free_without_event_of_allocation,
        &[&[
            "race: urEnqueueUSMFreeExp (command 1 of queue 0x",
            ", 2nd of urQueueCreate) frees 4096 bytes at 0x",
            "; urEnqueueUSMDeviceAllocExp (command 1 of queue 0x",
            ", 1st of urQueueCreate) allocates 4096 bytes at 0x",
        ]],
    ),
    (
        "use_after_free",
        use_after_free,
        &[&[
            "use after free: urEnqueueUSMFill (command 3 of queue 0x",
            ", 1st of urQueueCreate) uses 4096 bytes at 0x",
            "; urEnqueueUSMFreeExp (command 2 of queue 0x",
            ", 1st of urQueueCreate) had freed 4096 bytes at 0x",
        ]],
    ),
    (
        "double_free",
        double_free,
        &[&[
            "double free: urEnqueueUSMFreeExp (command 3 of queue 0x",
            "; urEnqueueUSMFreeExp (command 2 of queue 0x",
            ", 1st of urQueueCreate) freed it before",
        ]],
    ),
    (
        "double_free_on_another_queue",
        double_free_on_another_queue,
        &[&[
            "double free: urEnqueueUSMFreeExp (command 1 of queue 0x",
            ", 2nd of urQueueCreate) frees 4096 bytes at 0x",
            ", 1st of urQueueCreate) frees it too; no event orders them",
        ]],
    ),
    (
        "out_of_order",
        out_of_order,
        &[&[
            "race: urEnqueueUSMFill (command 2 of queue 0x",
            ", 3rd of urQueueCreate) uses 4096 bytes at 0x",
            "; urEnqueueUSMDeviceAllocExp (command 1 of queue 0x",
            ", 3rd of urQueueCreate) allocates 4096 bytes at 0x",
        ]],
    ),
    (
        "out_of_order_with_barriers",
        out_of_order_with_barriers,
        &[],
    ),
    ("out_of_order_with_events", out_of_order_with_events, &[]),
    ("host_waits", host_waits, &[]),
    (
        "host_waits_for_the_wrong_queue",
        host_waits_for_the_wrong_queue,
        &[&[
            "race: urEnqueueUSMFill (command 1 of queue 0x",
            ", 2nd of urQueueCreate) uses 4096 bytes at 0x",
        ]],
    ),
    (
        "host_task_after_the_allocation",
        host_task_after_the_allocation,
        &[],
    ),
    (
        "synchronous_block_freed_on_another_queue",
        synchronous_block_freed_on_another_queue,
        &[&[
            "race: urEnqueueUSMFreeExp (command 1 of queue 0x",
            ", 2nd of urQueueCreate) frees 4096 bytes at 0x",
            "; urEnqueueUSMFill (command 1 of queue 0x",
            ", 1st of urQueueCreate) uses 4096 bytes at 0x",
        ]],
    ),
    ("reused_in_order", reused_in_order, &[]),
];

pub fn all() -> Vec<Test> {
    let test = |&(name, program, expected): &Planted| {
        Test::process(SUITE, name, move |fresh| run(fresh, program, expected))
    };
    RACES.iter().map(test).collect()
}

const SIZE: usize = 4096;

/// A device with the layer enabled. Its two in-order queues are the first ones of urQueueCreate.
struct Setup {
    fixture: Fixture,
    context: Context,
    p: Queue,
    q: Queue,
    pool: Pool,
}

fn run(fresh: &Fresh, program: fn(&Setup) -> Done, expected: &[&[&str]]) -> Done {
    needs_layer(fresh)?;
    let log = log_file();
    // SAFETY: the process has no other thread that reads the environment.
    unsafe {
        std::env::set_var("UR_ENABLE_LAYERS", LAYER);
        std::env::set_var(
            "UR_LOG_VALIDATION",
            format!("output:file,{}", log.display()),
        );
    }
    let setup = Setup::new(fresh)?;
    let done = program(&setup);
    setup.close()?;
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    drop(std::fs::remove_file(&log));
    done?;
    let lines: Vec<&str> = text.lines().collect();
    check!(
        lines.len() == expected.len(),
        "{} findings, expected {}: {text}",
        lines.len(),
        expected.len()
    );
    for (line, parts) in lines.iter().zip(expected) {
        check!(
            parts.iter().all(|part| line.contains(part)),
            "{line} does not contain {parts:?}"
        );
    }
    Ok(())
}

/// Skips the test if the loader does not have the layer.
fn needs_layer(fresh: &Fresh) -> Done {
    let ur = fresh.ur;
    let mut config = null_mut();
    ur.urLoaderConfigCreate(&mut config).ok()?;
    let property = UR_LOADER_CONFIG_INFO_AVAILABLE_LAYERS;
    let layers =
        info::text(|size, value, ret| ur.urLoaderConfigGetInfo(config, property, size, value, ret));
    ur.urLoaderConfigRelease(config).ok()?;
    match layers?.split(';').any(|layer| layer == LAYER) {
        true => Ok(()),
        false => Err(Stop::skipped(format!("the loader has no {LAYER}"))),
    }
}

fn log_file() -> PathBuf {
    std::env::temp_dir().join(format!("ur-conformance-races-{}.log", std::process::id()))
}

impl Setup {
    fn new(fresh: &Fresh) -> Result<Self, Stop> {
        let fixture = fresh.fixture()?;
        let context = Context::new(&fixture)?;
        let p = context.in_order(&fixture)?;
        fixture.require(UR_DEVICE_INFO_ASYNC_USM_ALLOCATIONS_SUPPORT_EXP, || {
            let (none, mut out) = ((0, null()), null_mut());
            Kind::Device.enqueue(&p, null_mut(), 64, null(), none, &mut out, null_mut())
        })?;
        let q = context.in_order(&fixture)?;
        let pool = Pool::new(&fixture, &context)?;
        Ok(Self {
            fixture,
            context,
            p,
            q,
            pool,
        })
    }

    fn close(self) -> Done {
        self.p.finish()?;
        self.q.finish()?;
        let Self {
            fixture,
            context,
            p,
            q,
            pool,
        } = self;
        drop((pool, p, q));
        drop(context);
        fixture.close()
    }

    fn out_of_order(&self) -> Result<Queue, Stop> {
        self.context.out_of_order(&self.fixture)
    }

    fn alloc(&self) -> Result<Block, Stop> {
        self.p.alloc(Kind::Device, &self.pool, SIZE, &[])
    }

    fn alloc_event(&self, queue: &Queue) -> Result<(Block, Event), Stop> {
        queue.alloc_event(Kind::Device, &self.pool, SIZE, &[])
    }

    fn kernel(&self, queue: &Queue, block: Block) -> Done {
        if kernels::provider(self.fixture.backend).is_none() {
            return Err(Stop::skipped("no provider has kernels for this backend"));
        }
        let kernel = Program::new(&self.fixture, &self.context)?.kernel(IOTA)?;
        let base = 7_u32;
        let args = [Arg::Pointer(block.ptr), Arg::of(&base)];
        queue.launch(&kernel, 16, &args, &[])?;
        queue.finish()
    }

    /// Makes a free that the layer must refuse.
    fn refused_free(&self, queue: &Queue, block: Block) -> Done {
        let (none, list) = (null_mut(), null());
        self.fixture
            .ur
            .urEnqueueUSMFreeExp(queue.raw, none, block.ptr, 0, list, null_mut())
            .fails(UR_RESULT_ERROR_INVALID_MEM_OBJECT)
    }
}

/// A use on another queue without an event of the allocation is reported as a race.
fn use_on_another_queue(setup: &Setup) -> Done {
    setup.q.fill(setup.alloc()?.ptr, 1_u8, SIZE, &[]).map(drop)
}

/// A use on another queue after the event of the allocation is not reported.
fn use_on_another_queue_after_event(setup: &Setup) -> Done {
    let (block, allocated) = setup.alloc_event(&setup.p)?;
    let filled = setup.q.fill(block.ptr, 1_u8, SIZE, &[&allocated])?;
    setup.p.free(block, &[&filled])
}

/// A kernel on another queue after a free without an event between them is reported as a race.
fn kernel_after_free(setup: &Setup) -> Done {
    let (block, allocated) = setup.alloc_event(&setup.p)?;
    setup.q.marker(&[&allocated])?;
    setup.p.free(block, &[])?;
    setup.kernel(&setup.q, block)
}

/// A kernel on another queue before a free that waits for it is not reported.
fn kernel_before_free(setup: &Setup) -> Done {
    let (block, allocated) = setup.alloc_event(&setup.p)?;
    setup.q.marker(&[&allocated])?;
    setup.kernel(&setup.q, block)?;
    let used = setup.q.marker(&[])?;
    setup.p.free(block, &[&used])
}

/// A free without an event of a use on another queue is reported as a race.
fn free_without_event_of_use(setup: &Setup) -> Done {
    let (block, allocated) = setup.alloc_event(&setup.p)?;
    setup.q.fill(block.ptr, 1_u8, SIZE, &[&allocated])?;
    setup.p.free(block, &[])
}

/// A free on another queue without an event of the allocation is reported as a race.
fn free_without_event_of_allocation(setup: &Setup) -> Done {
    setup.q.free(setup.alloc()?, &[])
}

/// A use after the free on the same queue is reported.
fn use_after_free(setup: &Setup) -> Done {
    let block = setup.alloc()?;
    setup.p.free(block, &[])?;
    setup.p.fill(block.ptr, 1_u8, SIZE, &[]).map(drop)
}

/// A second free on the same queue is refused and reported.
fn double_free(setup: &Setup) -> Done {
    let block = setup.alloc()?;
    setup.p.free(block, &[])?;
    setup.refused_free(&setup.p, block)
}

/// A second free on another queue is refused and reported.
fn double_free_on_another_queue(setup: &Setup) -> Done {
    let block = setup.alloc()?;
    setup.p.free(block, &[])?;
    setup.refused_free(&setup.q, block)
}

/// A use on an out-of-order queue without an event of the allocation is reported as a race.
fn out_of_order(setup: &Setup) -> Done {
    let queue = setup.out_of_order()?;
    let (block, _allocated) = setup.alloc_event(&queue)?;
    queue.fill(block.ptr, 1_u8, SIZE, &[])?;
    queue.finish()?;
    queue.free(block, &[])
}

/// Commands of an out-of-order queue with barriers between them are not reported.
fn out_of_order_with_barriers(setup: &Setup) -> Done {
    let queue = setup.out_of_order()?;
    let (block, _allocated) = setup.alloc_event(&queue)?;
    queue.barrier(&[])?;
    queue.fill(block.ptr, 1_u8, SIZE, &[])?;
    queue.barrier(&[])?;
    queue.free(block, &[])
}

/// Commands of an out-of-order queue that events order are not reported.
fn out_of_order_with_events(setup: &Setup) -> Done {
    let queue = setup.out_of_order()?;
    let (block, allocated) = setup.alloc_event(&queue)?;
    let filled = queue.fill(block.ptr, 1_u8, SIZE, &[&allocated])?;
    queue.free(block, &[&filled])
}

/// Commands of two queues with host waits between them are not reported.
fn host_waits(setup: &Setup) -> Done {
    let (block, allocated) = setup.alloc_event(&setup.p)?;
    allocated.wait()?;
    setup.q.fill(block.ptr, 1_u8, SIZE, &[])?;
    setup.q.finish()?;
    setup.p.free(block, &[])
}

/// A host wait for an unrelated queue does not hide a race.
fn host_waits_for_the_wrong_queue(setup: &Setup) -> Done {
    let block = setup.alloc()?;
    setup.q.finish()?;
    setup.q.fill(block.ptr, 1_u8, SIZE, &[]).map(drop)
}

/// A use after a host task that followed the allocation and was waited for is not reported.
fn host_task_after_the_allocation(setup: &Setup) -> Done {
    let block = setup.alloc()?;
    let (sender, receiver) = std::sync::mpsc::channel();
    let report = move || {
        // The send fails only after the test has given up.
        let _ = sender.send(());
    };
    setup.p.host_task(report, &[])?;
    let ran = receiver.recv_timeout(std::time::Duration::from_secs(10));
    check!(ran.is_ok(), "the host task did not run");
    setup.q.fill(block.ptr, 1_u8, SIZE, &[])?;
    setup.q.finish()?;
    setup.q.free(block, &[])
}

/// A free of a synchronous block without an event of its use on another queue is a race.
fn synchronous_block_freed_on_another_queue(setup: &Setup) -> Done {
    let memory = setup.context.usm(&setup.fixture, Kind::Device, SIZE)?;
    setup.p.fill(memory.ptr, 1_u8, SIZE, &[])?;
    let (ptr, size) = (memory.into_raw(), SIZE);
    setup.q.free(Block { ptr, size }, &[])
}

/// Repeated allocation, use and free on one in-order queue is not reported.
fn reused_in_order(setup: &Setup) -> Done {
    for _ in 0..10 {
        let block = setup.alloc()?;
        setup.p.fill(block.ptr, 1_u8, SIZE, &[])?;
        setup.p.free(block, &[])?;
    }
    Ok(())
}

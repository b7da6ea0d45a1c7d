//! The executor against kernels written here, over many lanes and threads.

mod end;
mod items;
mod order;
mod times;

use super::*;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use ur::timeline::Clock;

fn executor(width: usize) -> Executor {
    Executor::start(width).expect("threads can be started")
}

struct TestLane {
    lane: Lane,
    clock: Arc<Clock>,
    epoch: u64,
}

impl TestLane {
    fn new(executor: &Executor) -> Self {
        let all = WorkerRange {
            first: 0,
            count: executor.thread_pool().width(),
        };
        Self::on(executor, all)
    }

    fn on(executor: &Executor, workers: WorkerRange) -> Self {
        let clock = Clock::new();
        let lane = Lane::open(executor.thread_pool(), workers, &clock).expect("the executor runs");
        Self {
            lane,
            clock,
            epoch: 0,
        }
    }

    fn submit(&mut self, command: Command) -> Marker {
        self.epoch += 1;
        self.lane
            .submit(self.epoch, command, None)
            .expect("the executor runs");
        self.lane.mark(self.epoch)
    }

    fn wait(&self, marker: &Marker) {
        self.lane.wait(marker).expect("the executor runs");
    }
}

fn line(items: usize, local: usize) -> NdRange {
    NdRange {
        offset: [0; 3],
        groups: [items / local, 1, 1],
        local: [local, 1, 1],
    }
}

fn launch(function: Function, range: NdRange, args: Args) -> Command {
    // SAFETY: the kernels of this module only touch what their tests give them.
    Command::Launch(Arc::new(unsafe {
        Launch::new(function, Form::Item, range, args, None)
    }))
}

/// The argument at `index` as a reference.
///
/// # Safety
/// The argument points to a `T`.
unsafe fn arg<'a, T>(args: *const *const c_void, index: usize) -> &'a T {
    // SAFETY: the caller passes an index of a `T`.
    unsafe { &*(*args.add(index)).cast::<T>() }
}

fn pointer<T>(args: &mut Args, index: usize, value: &T) {
    args.pointer(index, (&raw const *value).expose_provenance());
}

/// args: AtomicU64[items], u64 by value.
unsafe extern "C" fn add_value(args: *const *const c_void, state: *mut WorkItemState) {
    // SAFETY: the tests pass these arguments.
    unsafe {
        let item = (*state).global_id[0];
        let value = arg::<u64>(args, 1);
        arg::<AtomicU64>(args, 0)
            .as_ptr()
            .add(item)
            .write(item as u64 + value);
    }
}

/// args: AtomicU64.
unsafe extern "C" fn count_up(args: *const *const c_void, _: *mut WorkItemState) {
    // SAFETY: the tests pass this argument.
    unsafe { arg::<AtomicU64>(args, 0) }.fetch_add(1, Ordering::Relaxed);
}

/// args: Mutex<Vec<ThreadId>>.
unsafe extern "C" fn record_thread(args: *const *const c_void, _: *mut WorkItemState) {
    // SAFETY: the tests pass this argument.
    let list = unsafe { arg::<Mutex<Vec<std::thread::ThreadId>>>(args, 0) };
    list.lock()
        .expect("no panic")
        .push(std::thread::current().id());
    std::thread::sleep(Duration::from_micros(200));
}

//! Commands, and the threads that run them in the order given.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use ze::*;

use crate::entry::Answer;
use crate::event::{self, Event, SLICE, SignalState};
use crate::image::{Image, Part, Using};
use crate::kernel::Launch;
use crate::object::hold;
use crate::{device, external, script};

/// A rectangle's place in memory.
#[derive(Clone, Copy)]
pub struct Place {
    pub start: usize,
    pub pitch: usize,
    pub slice: usize,
}

/// What a command does. Addresses are the caller's.
pub enum Work {
    /// Only waits and signals.
    Nothing,
    Copy {
        to: usize,
        from: usize,
        bytes: usize,
    },
    Fill {
        to: usize,
        pattern: Box<[u8]>,
        bytes: usize,
    },
    Region {
        to: Place,
        from: Place,
        /// Bytes of a row, rows, slices.
        extent: [usize; 3],
    },
    Launch(Launch),
    Semaphores(Vec<external::Command>),
    /// Copies between an image and memory.
    Transfer {
        image: Arc<Image>,
        part: Part,
        memory: Place,
        writes: bool,
    },
    /// Copies between two images.
    Image {
        to: Arc<Image>,
        part: Part,
        from: Arc<Image>,
        from_part: Part,
    },
    Host {
        function: unsafe extern "C" fn(*mut c_void),
        data: usize,
    },
    Timestamp {
        to: usize,
    },
    /// Writes the results of [`Step::asked`].
    Timestamps {
        to: usize,
        offsets: Option<Box<[usize]>>,
    },
    Reset(Arc<Event>),
}

/// A command as it was appended.
#[derive(Clone)]
pub struct Step {
    pub waits: Vec<Arc<Event>>,
    pub work: Arc<Work>,
    /// Events whose times the command writes.
    pub asked: Vec<Arc<Event>>,
    pub signal: Option<Arc<Event>>,
}

/// A command as it is executed once.
struct Bound {
    waits: Vec<Arc<SignalState>>,
    work: Arc<Work>,
    asked: Vec<Arc<SignalState>>,
    signal: Option<Arc<SignalState>>,
    /// The uses of objects.
    uses: Vec<Using>,
}

impl Step {
    fn bind(&self) -> Answer<Bound> {
        let waited = |all: &[Arc<Event>]| all.iter().map(|one| one.waited()).collect::<Answer<_>>();
        Ok(Bound {
            waits: waited(&self.waits)?,
            work: self.work.clone(),
            asked: waited(&self.asked)?,
            signal: self.signal.as_ref().map(|own| own.signalled()),
            uses: self.work.begin(),
        })
    }
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Bound>,
    /// The command that runs now.
    current: Option<Arc<Work>>,
    submitted: u64,
    done: u64,
    is_started: bool,
    is_closed: bool,
}

#[derive(Default)]
struct Shared {
    /// The index of the device that the commands are for, and how often it was lost before.
    device: usize,
    losses: u64,
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// A thread that runs commands one after another. It starts with the first, and ends once its owner is gone and all
/// are done.
pub struct Worker {
    shared: Arc<Shared>,
}

static ALL: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Waits until the commands submitted so far, to any worker, are done.
pub fn drain_all() {
    let all: Vec<_> = hold(&ALL).iter().filter_map(Weak::upgrade).collect();
    for one in all {
        let _ = one.wait(u64::MAX);
    }
}

/// Whether a command that was submitted and is not done uses memory of this range. A lost device's commands use
/// nothing, once the one that ran is done, for which this waits.
pub fn uses(start: usize, bytes: usize) -> bool {
    let all: Vec<_> = hold(&ALL).iter().filter_map(Weak::upgrade).collect();
    all.iter().any(|one| {
        let mut queue = hold(&one.queue);
        loop {
            let mut running = queue.current.iter();
            let runs = running.any(|work| work.uses(start, bytes));
            if one.present().is_ok() {
                let mut waiting = queue.waiting.iter().map(|command| &command.work);
                return runs || waiting.any(|work| work.uses(start, bytes));
            }
            if !runs {
                return false;
            }
            let waited = one.changed.wait_timeout(queue, SLICE);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    })
}

/// Whether a command that was submitted, and has not begun, signals an event of this state.
pub fn signals(state: &Arc<SignalState>) -> bool {
    let all: Vec<_> = hold(&ALL).iter().filter_map(Weak::upgrade).collect();
    let is_it = |command: &Bound| {
        let signal = command.signal.as_ref();
        signal.is_some_and(|own| Arc::ptr_eq(own, state))
    };
    all.iter()
        .any(|one| one.present().is_ok() && hold(&one.queue).waiting.iter().any(is_it))
}

/// Whether one of these commands was submitted and is not done, on a device that is there.
pub fn runs(steps: &[Step]) -> bool {
    let all: Vec<_> = hold(&ALL).iter().filter_map(Weak::upgrade).collect();
    all.iter().any(|one| {
        let queue = hold(&one.queue);
        let waiting = queue.waiting.iter().map(|command| &command.work);
        let mut pending = queue.current.iter().chain(waiting);
        let is_one = |work: &Arc<Work>| steps.iter().any(|step| Arc::ptr_eq(&step.work, work));
        pending.any(is_one) && one.present().is_ok()
    })
}

impl Drop for Worker {
    fn drop(&mut self) {
        hold(&self.shared.queue).is_closed = true;
        self.shared.changed.notify_all();
    }
}

impl Worker {
    pub fn open(device: usize) -> Self {
        let shared = Arc::new(Shared {
            device,
            losses: script::losses(device),
            ..Shared::default()
        });
        let mut all = hold(&ALL);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&shared));
        Self { shared }
    }

    /// Submits commands, all or none.
    pub fn submit<'a>(&self, steps: impl IntoIterator<Item = &'a Step>) -> Answer {
        self.shared.present()?;
        let queue = hold(&self.shared.queue);
        // A step may wait for one before it, whose signal is bound by then.
        let mut bound = VecDeque::new();
        for step in steps {
            bound.push_back(step.bind()?);
        }
        self.add(queue, bound);
        Ok(())
    }

    /// Submits a command that sets a fence.
    pub fn submit_fence(&self, fence: Arc<SignalState>) -> Answer {
        self.shared.present()?;
        let command = Bound {
            waits: Vec::new(),
            work: Arc::new(Work::Nothing),
            asked: Vec::new(),
            signal: Some(fence),
            uses: Vec::new(),
        };
        self.add(hold(&self.shared.queue), VecDeque::from([command]));
        Ok(())
    }

    fn add(&self, mut queue: MutexGuard<'_, Queue>, mut commands: VecDeque<Bound>) {
        queue.submitted += commands.len() as u64;
        queue.waiting.append(&mut commands);
        if !queue.is_started {
            queue.is_started = true;
            let shared = self.shared.clone();
            std::thread::spawn(move || shared.run());
        }
        self.shared.changed.notify_all();
    }

    /// Whether a command is not done, of a device that is there.
    pub fn is_busy(&self) -> bool {
        let queue = hold(&self.shared.queue);
        queue.done < queue.submitted && self.shared.present().is_ok()
    }

    /// Waits up to a number of nanoseconds for what was submitted so far.
    pub fn wait(&self, timeout: u64) -> Answer {
        self.shared.wait(timeout)
    }
}

impl Shared {
    /// An error if the device is lost, or was lost since the worker began.
    fn present(&self) -> Answer {
        match script::losses(self.device) == self.losses {
            true => script::device_present(self.device),
            false => Err(ZE_RESULT_ERROR_DEVICE_LOST),
        }
    }

    fn wait(&self, timeout: u64) -> Answer {
        let until = Instant::now().checked_add(Duration::from_nanos(timeout));
        let mut queue = hold(&self.queue);
        let target = queue.submitted;
        loop {
            self.present()?;
            if queue.done >= target {
                return Ok(());
            }
            let left = until.map_or(SLICE, |until| {
                until.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return Err(ZE_RESULT_NOT_READY);
            }
            let waited = self.changed.wait_timeout(queue, left.min(SLICE));
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn run(&self) {
        let mut queue = hold(&self.queue);
        loop {
            if let Some(mut command) = queue.waiting.pop_front() {
                queue.current = Some(Arc::clone(&command.work));
                drop(queue);
                let ran = command.run(self);
                command.uses.clear();
                if let Err(code) = ran
                    && self.present().is_ok()
                {
                    script::broken(format!("a command failed: {code:?}"));
                    script::lose(true);
                }
                // Who sees the signal finds the command done.
                queue = hold(&self.queue);
                queue.current = None;
                queue.done += 1;
                if let (Ok((start, end)), Some(signal)) = (ran, &command.signal) {
                    signal.set(start, end);
                }
                self.changed.notify_all();
            } else if queue.is_closed {
                return;
            } else {
                queue = self
                    .changed
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Bound {
    /// Returns when the command started and ended.
    fn run(&self, on: &Shared) -> Answer<(u64, u64)> {
        for one in &self.waits {
            one.wait(u64::MAX)?;
        }
        on.present()?;
        let start = device::now();
        // SAFETY: the caller keeps the command's memory until it is done.
        unsafe { self.work.run(&self.asked) }?;
        Ok((start, device::now()))
    }
}

fn at<T>(address: usize) -> *mut T {
    ptr::with_exposed_provenance_mut(address)
}

impl Work {
    /// Begins the command's uses of objects.
    fn begin(&self) -> Vec<Using> {
        match self {
            Work::Launch(launch) => launch.uses(),
            Work::Transfer { image, .. } => vec![image.uses.begin()],
            Work::Image { to, from, .. } => vec![to.uses.begin(), from.uses.begin()],
            Work::Semaphores(all) => all.iter().map(external::Command::begin).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether the command uses memory of a range, as far as its addresses tell.
    fn uses(&self, start: usize, bytes: usize) -> bool {
        let within = |at: usize, size: usize| at < start + bytes && start < at + size;
        match self {
            Work::Copy { to, from, bytes } => within(*to, *bytes) || within(*from, *bytes),
            Work::Fill { to, bytes, .. } => within(*to, *bytes),
            Work::Region { to, from, .. } => within(to.start, 1) || within(from.start, 1),
            Work::Launch(launch) => launch.pointers().any(|at| within(at, 1)),
            Work::Transfer { memory, .. } => within(memory.start, 1),
            Work::Timestamp { to } | Work::Timestamps { to, .. } => within(*to, 1),
            Work::Nothing | Work::Host { .. } | Work::Reset(_) => false,
            Work::Image { .. } | Work::Semaphores(_) => false,
        }
    }

    /// # Safety
    /// The addresses are of memory that the command may use.
    unsafe fn run(&self, asked: &[Arc<SignalState>]) -> Answer {
        match self {
            Work::Nothing => Ok(()),
            Work::Copy { to, from, bytes } => {
                // SAFETY: as the caller promises.
                unsafe { ptr::copy(at::<u8>(*from), at::<u8>(*to), *bytes) };
                Ok(())
            }
            Work::Fill { to, pattern, bytes } => {
                let first = pattern.len().min(*bytes);
                // SAFETY: as the caller promises; the pattern has its bytes.
                unsafe { ptr::copy_nonoverlapping(pattern.as_ptr(), at::<u8>(*to), first) };
                // What is filled doubles, so that a pattern of one byte is as fast as a large one.
                let mut done = first;
                while done < *bytes {
                    let part = done.min(bytes - done);
                    // SAFETY: as the caller promises; the part is filled and ends before its copy.
                    unsafe { ptr::copy_nonoverlapping(at::<u8>(*to), at::<u8>(to + done), part) };
                    done += part;
                }
                Ok(())
            }
            Work::Region {
                to,
                from,
                extent: [row, rows, slices],
            } => {
                for slice in 0..*slices {
                    for line in 0..*rows {
                        let place = |own: &Place| {
                            at::<u8>(own.start + slice * own.slice + line * own.pitch)
                        };
                        // SAFETY: as the caller promises.
                        unsafe { ptr::copy(place(from), place(to), *row) };
                    }
                }
                Ok(())
            }
            Work::Launch(launch) => launch.run(),
            Work::Semaphores(all) => all.iter().try_for_each(external::Command::run),
            Work::Transfer {
                image,
                part,
                memory,
                writes,
            } => {
                // SAFETY: as the caller promises.
                unsafe { image.transfer(part, *memory, *writes) }
            }
            Work::Image {
                to,
                part,
                from,
                from_part,
            } => to.copy(part, from, from_part),
            Work::Host { function, data } => {
                // SAFETY: the caller gave the function and its argument.
                unsafe { function(at(*data)) };
                Ok(())
            }
            Work::Timestamp { to } => {
                // SAFETY: as the caller promises.
                unsafe { at::<u64>(*to).write_unaligned(device::now()) };
                Ok(())
            }
            Work::Timestamps { to, offsets } => {
                for (index, state) in asked.iter().enumerate() {
                    let size = size_of::<ze_kernel_timestamp_result_t>();
                    let offset = offsets.as_ref().map_or(index * size, |all| all[index]);
                    let result = event::result_of(state.times().unwrap_or_default());
                    // SAFETY: as the caller promises.
                    unsafe {
                        at::<ze_kernel_timestamp_result_t>(to + offset).write_unaligned(result)
                    };
                }
                Ok(())
            }
            Work::Reset(event) => event.reset(),
        }
    }
}

//! Streams and their commands. Each entry point runs all commands that can run.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::code::Kernel;
use crate::driver::{DriverGuard, FakeDriver, current, hold};
use crate::peers::device_of;
use crate::share::{SharedCounts, happened};

/// A command of a stream.
#[derive(Clone)]
pub enum Command {
    Copy {
        dst: usize,
        src: usize,
        bytes: usize,
    },
    /// A copy between the memory of two devices.
    CopyBetween {
        dst: (usize, usize),
        src: (usize, usize),
        bytes: usize,
    },
    /// A fill with a pattern of up to sixteen bytes.
    Fill {
        dst: usize,
        pattern: Vec<u8>,
        bytes: usize,
    },
    Run {
        kernel: Kernel,
        args: [usize; 3],
        items: usize,
    },
    /// The fills of a mailbox, up to those of a launch.
    Posted { mailbox: usize, launch: u32 },
    /// Records the event for the given time, counted from 1.
    Record { event: usize, count: u64 },
    /// Waits for that record of the event.
    Await { event: usize, count: u64 },
    /// Begins or ends the life of a pool's block.
    ChangeBlock { at: usize, free: bool },
    /// Waits until the word is at least this value.
    AwaitWord { word: usize, value: u32 },
    /// Waits for a semaphore of another interface: until it counts this far, or until it is signalled.
    AwaitSemaphore { semaphore: usize, value: u64 },
    /// Signals a semaphore of another interface.
    Signal { semaphore: usize, value: u64 },
    /// Calls a function of the host.
    Call { run: usize, data: usize },
}

#[derive(Default)]
pub struct Stream {
    /// The context of the stream.
    pub context: usize,
    pub commands: std::collections::VecDeque<Command>,
    /// The capture that the stream belongs to.
    pub capture: Option<usize>,
    /// Number of its captured commands.
    pub captured: u64,
    /// Whether the stream that the capture began on has waited for all of them.
    pub joined: bool,
}

#[derive(Default)]
pub struct Event {
    pub timed: bool,
    pub context: usize,
    pub recorded: u64,
    /// The stream of the last record.
    pub on: Option<usize>,
    pub happened: u64,
    pub at: Option<Instant>,
    /// The capture of the last record, and the number of captured commands of the stream before it.
    pub capture: Option<(usize, u64)>,
    /// The counts of an event that several processes share.
    pub shared: Option<SharedCounts>,
}

impl FakeDriver {
    /// Runs all commands that can run.
    pub fn pump(&mut self) {
        loop {
            let ready = self.streams.iter().find_map(|(name, stream)| {
                let first = stream.commands.front()?;
                self.can_run(first).then_some(*name)
            });
            let Some(stream) = ready else { return };
            let stream = self.streams.get_mut(&stream);
            let next = stream.and_then(|stream| {
                let command = stream.commands.pop_front()?;
                Some((device_of(stream.context), command))
            });
            if let Some((device, command)) = next {
                self.run(device, command);
            }
        }
    }

    fn can_run(&self, command: &Command) -> bool {
        match command {
            Command::Await { event, count } => {
                let event = self.events.get(event);
                event.is_none_or(|event| happened(event) >= *count)
            }
            Command::AwaitWord { word, value } => {
                // SAFETY: pinned memory, which the caller keeps while streams wait for it.
                let word =
                    unsafe { AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(*word)) };
                let there = word.load(Ordering::Acquire);
                there.wrapping_sub(*value).cast_signed() >= 0
            }
            Command::AwaitSemaphore { semaphore, value } => self.is_signalled(*semaphore, *value),
            _ => true,
        }
    }

    /// Runs a command of a stream of this device.
    fn run(&mut self, device: usize, command: Command) {
        match command {
            Command::CopyBetween { dst, src, bytes } => {
                self.check_reach(dst.0, dst.1, bytes, false);
                self.check_reach(src.0, src.1, bytes, false);
                let (dst, src) = (dst.1, src.1);
                self.touch(dst);
                self.touch(src);
                let to: *mut u8 = std::ptr::with_exposed_provenance_mut(dst);
                let from: *const u8 = std::ptr::with_exposed_provenance(src);
                // SAFETY: the caller promises both ranges.
                unsafe { std::ptr::copy(from, to, bytes) };
            }
            Command::Copy { dst, src, bytes } => {
                self.check_reach(device, dst, bytes, true);
                self.check_reach(device, src, bytes, true);
                self.touch(dst);
                self.touch(src);
                let to: *mut u8 = std::ptr::with_exposed_provenance_mut(dst);
                let from: *const u8 = std::ptr::with_exposed_provenance(src);
                // SAFETY: the caller promises both ranges.
                unsafe { std::ptr::copy(from, to, bytes) };
            }
            Command::Fill {
                dst,
                pattern,
                bytes,
            } => {
                self.check_reach(device, dst, bytes, false);
                self.touch(dst);
                let to: *mut u8 = std::ptr::with_exposed_provenance_mut(dst);
                // SAFETY: the caller promises the range.
                let range = unsafe { std::slice::from_raw_parts_mut(to, bytes) };
                repeat(&pattern, range);
            }
            Command::Run {
                kernel,
                args,
                items,
            } => {
                for start in kernel.touches(args) {
                    self.check_reach(device, start, 4 * items, false);
                    self.touch(start);
                }
                // SAFETY: the caller keeps the memory of the launch.
                unsafe { kernel.run(args, items) };
            }
            Command::Posted { mailbox, launch } => {
                // SAFETY: the caller keeps the mailbox while a launch is pending.
                for (dst, pattern, bytes) in unsafe { mailbox_fills(mailbox, launch) } {
                    let pattern = pattern.to_vec();
                    #[rustfmt::skip]
                    self.run(device, Command::Fill { dst, pattern, bytes });
                }
            }
            Command::Record { event, count } => {
                if let Some(event) = self.events.get_mut(&event) {
                    event.happened = event.happened.max(count);
                    if let Some(shared) = &event.shared {
                        shared.happened().fetch_max(count, Ordering::SeqCst);
                    }
                    event.at = Some(Instant::now());
                }
            }
            Command::ChangeBlock { at, free } => self.change_block(at, free),
            Command::AwaitSemaphore { semaphore, .. } => self.consume(semaphore),
            Command::Signal { semaphore, value } => self.signal(semaphore, value),
            Command::Call { run, data } => {
                let run: *const () = std::ptr::with_exposed_provenance(run);
                // SAFETY: `cuLaunchHostFunc` got a function of this type.
                let run: extern "C" fn(*mut c_void) = unsafe { std::mem::transmute(run) };
                run(std::ptr::with_exposed_provenance_mut(data));
            }
            Command::Await { .. } | Command::AwaitWord { .. } => {}
        }
    }

    pub fn submit(&mut self, stream: usize, command: Command) -> Result<(), u32> {
        if self.is_captured(stream) {
            return self.capture(stream, command);
        }
        match self.streams.get_mut(&stream) {
            Some(stream) if stream.context != current() && !self.anywhere => {
                return self.broken("work for a stream of another context");
            }
            Some(stream) => stream.commands.push_back(command),
            None if stream == 0 => {
                let context = current();
                let new = || Stream {
                    context,
                    ..Stream::default()
                };
                let own = self.streams.entry(context).or_insert_with(new);
                own.commands.push_back(command);
            }
            None => return self.broken("work for a dead stream"),
        }
        self.pump();
        Ok(())
    }
}

/// Fills memory with a pattern, by copies of what is filled already: a loop over patterns takes seconds.
fn repeat(pattern: &[u8], range: &mut [u8]) {
    let mut filled = pattern.len().min(range.len());
    range[..filled].copy_from_slice(&pattern[..filled]);
    while filled != 0 && filled < range.len() {
        let more = filled.min(range.len() - filled);
        range.copy_within(..more, filled);
        filled += more;
    }
}

/// Removes the fills from a mailbox that the adapter's kernel would run: address, pattern and bytes of each.
/// `fill.cu` has the layout.
///
/// # Safety
/// `mailbox` is the address of a live mailbox.
unsafe fn mailbox_fills(mailbox: usize, launch: u32) -> Vec<(usize, [u8; 16], usize)> {
    const MAX_PENDING_FILLS: u64 = 128;
    let word = |at: usize| -> &AtomicU64 {
        let word = std::ptr::with_exposed_provenance_mut(mailbox + 8 * at);
        // SAFETY: the caller passes a live mailbox, whose words are aligned.
        unsafe { AtomicU64::from_ptr(word) }
    };
    let (all, done, closed) = (word(0), word(1), word(8));
    closed.store(u64::from(launch), Ordering::SeqCst);
    let (mut next, all) = (done.load(Ordering::SeqCst), all.load(Ordering::SeqCst));
    let mut found = Vec::new();
    while next != all {
        let at = 16 + 4 * (next % MAX_PENDING_FILLS) as usize;
        let [to, low, high, rest] =
            std::array::from_fn(|part| word(at + part).load(Ordering::Relaxed));
        let (latest, count) = (rest as u32, (rest >> 32) as usize);
        if latest.wrapping_sub(launch).cast_signed() > 0 {
            break;
        }
        let mut pattern = [0; 16];
        pattern[..8].copy_from_slice(&low.to_ne_bytes());
        pattern[8..].copy_from_slice(&high.to_ne_bytes());
        found.push((to as usize, pattern, 8 * count));
        next += 1;
    }
    done.store(next, Ordering::SeqCst);
    found
}

/// Waits until a condition holds. The driver is unlocked in between.
pub fn wait_until(mut done: impl FnMut(&mut FakeDriver) -> bool) -> DriverGuard {
    loop {
        let mut driver = hold();
        driver.pump();
        if done(&mut driver) {
            return driver;
        }
        drop(driver);
        std::thread::sleep(Duration::from_micros(200));
    }
}

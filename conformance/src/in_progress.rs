//! The calls that this process's threads are in, for the report of a test that does not end.

use std::cell::OnceCell;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Instant;

/// The call of one thread.
#[derive(Default)]
struct Slot {
    /// The kernel's number of the thread.
    thread: i32,
    /// Number of the function, counted from 1. 0 outside of calls.
    function: AtomicUsize,
    /// When the call began, in milliseconds of [`now`].
    since: AtomicU64,
}

static SLOTS: Mutex<Vec<Weak<Slot>>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: OnceCell<Arc<Slot>> = const { OnceCell::new() };
}

/// Milliseconds since the first call.
fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_millis() as u64
}

fn register() -> Arc<Slot> {
    // SAFETY: gettid only returns a number.
    let thread = unsafe { libc::gettid() };
    let slot = Arc::new(Slot {
        thread,
        ..Slot::default()
    });
    let mut slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
    slots.retain(|slot| slot.strong_count() > 0);
    slots.push(Arc::downgrade(&slot));
    slot
}

/// A call, until dropped. A callback may make calls within it.
pub struct InCall {
    before: usize,
}

impl InCall {
    /// Begins a call of the function with this index.
    pub fn begin(function: usize) -> Self {
        let begin = |own: &OnceCell<Arc<Slot>>| {
            let slot = own.get_or_init(register);
            slot.since.store(now(), Ordering::Relaxed);
            slot.function.swap(function + 1, Ordering::Relaxed)
        };
        // A thread that ends has no slot.
        let before = OWN.try_with(begin).unwrap_or(0);
        Self { before }
    }
}

impl Drop for InCall {
    fn drop(&mut self) {
        let end = |own: &OnceCell<Arc<Slot>>| {
            if let Some(slot) = own.get() {
                slot.function.store(self.before, Ordering::Relaxed);
            }
        };
        let _ = OWN.try_with(end);
    }
}

/// A line for each thread of the process: its name, its state and where it waits in the kernel, as far as the kernel
/// tells, and its call of a function of the interface.
pub fn report(names: &[&str]) -> String {
    let slots: Vec<_> = {
        let slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
        slots.iter().filter_map(Weak::upgrade).collect()
    };
    let mut text = String::new();
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    for task in tasks.flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let (name, stat) = (read("comm"), read("stat"));
        // After the name in brackets.
        let state = stat.rsplit(") ").next().and_then(|rest| rest.get(..1));
        let (name, state, wait) = (name.trim_end(), state.unwrap_or("?"), read("wchan"));
        let number = task.file_name();
        let own = slots
            .iter()
            .find(|slot| number.to_str() == Some(slot.thread.to_string().as_str()));
        let call = own.and_then(|slot| {
            let function = slot.function.load(Ordering::Relaxed).checked_sub(1)?;
            let seconds = now().saturating_sub(slot.since.load(Ordering::Relaxed)) / 1000;
            Some(format!("in {} for {seconds} s", names.get(function)?))
        });
        let call = call.unwrap_or_else(|| "in no call of the interface".to_owned());
        // A text in memory takes every line.
        let _ = writeln!(text, "thread {name}, state {state} {wait}: {call}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_call_is_reported_until_it_ends() {
        std::thread::scope(|scope| {
            let test = std::thread::Builder::new().name("calls".to_owned());
            let calls = || {
                let line = || {
                    let text = report(&["outer", "inner"]);
                    let own = text.lines().find(|line| line.starts_with("thread calls,"));
                    own.expect("this thread").to_owned()
                };
                let outer = InCall::begin(0);
                assert!(line().ends_with(": in outer for 0 s"), "{}", line());
                let inner = InCall::begin(1);
                assert!(line().ends_with(": in inner for 0 s"), "{}", line());
                drop(inner);
                assert!(line().contains(": in outer"), "{}", line());
                drop(outer);
                assert!(
                    line().ends_with(": in no call of the interface"),
                    "{}",
                    line()
                );
            };
            let thread = test.spawn_scoped(scope, calls).expect("a thread");
            thread.join().expect("a test that passes");
        });
    }
}

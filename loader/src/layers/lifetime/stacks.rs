//! Call stacks of the application. A stack is symbolised at most once, when it is shown.
//!
//! Owns the distinct stacks of the process. A capture costs an unwind of [`MAX_FRAMES`] frames and
//! a lookup. Only new stacks cost memory.

use std::backtrace::Backtrace;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Number of innermost frames that identify a stack.
const MAX_FRAMES: usize = 26;

/// Maximum number of frames shown.
const MAX_SHOWN_FRAMES: usize = 12;

/// A call stack of the application.
pub struct Stack(Backtrace);

type Frames = [usize; MAX_FRAMES];

static STACKS: LazyLock<Mutex<HashMap<Frames, Arc<Stack>>>> = LazyLock::new(Mutex::default);

/// The calling thread's stack.
pub fn capture() -> Arc<Stack> {
    let mut stacks = STACKS.lock().unwrap_or_else(PoisonError::into_inner);
    let stack = stacks
        .entry(frames())
        .or_insert_with(|| Arc::new(Stack(Backtrace::force_capture())));
    Arc::clone(stack)
}

fn frames() -> Frames {
    let mut frames = [std::ptr::null_mut::<c_void>(); MAX_FRAMES];
    // SAFETY: `frames` has room for `MAX_FRAMES` addresses.
    unsafe { libc::backtrace(frames.as_mut_ptr(), MAX_FRAMES as libc::c_int) };
    frames.map(|frame| frame.addr())
}

impl Stack {
    /// One line per frame, from the caller of `function` outwards.
    pub fn lines(&self, function: &str) -> Vec<String> {
        trimmed(&self.0.to_string(), function)
    }
}

/// The frames outside of the loader, up to `main`: those after the exported function of that name,
/// or after the loader's outermost frame. A layer's function may have the exported one's name.
fn trimmed(text: &str, function: &str) -> Vec<String> {
    let mut frames = split(text);
    if let Some(main) = frames.iter().position(|(name, _)| name == "main") {
        frames.truncate(main + 1);
    }
    let exported = frames.iter().rposition(|(name, _)| name == function);
    let own = || {
        let of_loader = |name: &str| name.starts_with("ur_loader::");
        frames.iter().rposition(|(name, _)| of_loader(name))
    };
    let skipped = exported.or_else(own).map_or(0, |at| at + 1);
    let shown = frames.into_iter().skip(skipped).take(MAX_SHOWN_FRAMES);
    shown
        .map(|(name, place)| match place {
            Some(place) => format!("{name} at {place}"),
            None => name,
        })
        .collect()
}

/// The frames of a backtrace's text: names, with source locations where known.
fn split(text: &str) -> Vec<(String, Option<String>)> {
    let mut frames: Vec<(String, Option<String>)> = Vec::new();
    for line in text.lines() {
        let line = line.trim_start();
        if let Some(place) = line.strip_prefix("at ") {
            if let Some((_, known)) = frames.last_mut() {
                *known = Some(place.to_owned());
            }
        } else if let Some((number, name)) = line.split_once(": ")
            && number.bytes().all(|digit| digit.is_ascii_digit())
        {
            frames.push((name.to_owned(), None));
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "   0: std::backtrace::capture
             at /rustc/lib.rs:1:2
   1: ur_loader::layers::lifetime::stacks::here
   2: urQueueCreate
             at loader/x.rs:9:1
   3: ur_loader::layers::parameters::functions::urQueueCreate
             at loader/y.rs:3:1
   4: urQueueCreate
   5: make_queue
             at ./main.c:12:5
   6: main
   7: __libc_start_main
";

    #[test]
    fn frames_start_outside_of_the_loader() {
        let outside = ["make_queue at ./main.c:12:5", "main"];
        assert_eq!(trimmed(TEXT, "urQueueCreate"), outside);
        let by_table = ["urQueueCreate", outside[0], outside[1]];
        assert_eq!(trimmed(TEXT, "urQueueRetain"), by_table);
        assert_eq!(trimmed("   0: a\n   1: b\n", "urX"), ["a", "b"]);
        assert!(trimmed("disabled backtrace", "urX").is_empty());
    }

    #[inline(never)]
    fn take() -> Arc<Stack> {
        capture()
    }

    #[test]
    fn equal_stacks_are_stored_once() {
        let taken: Vec<_> = (0..3).map(|_| take()).collect();
        assert!(Arc::ptr_eq(&taken[0], &taken[1]) && Arc::ptr_eq(&taken[1], &taken[2]));
        assert!(
            !Arc::ptr_eq(&taken[0], &take()),
            "another line, another stack"
        );
        let lines = taken[0].lines("urX").join("\n");
        assert!(
            lines.contains("equal_stacks_are_stored_once") || lines.contains("FnOnce"),
            "{lines}"
        );
    }
}

//! One call under way: what is noted before it, and shown after it.
//!
//! Owns the order of things around a call. Generated wrappers call this; it may print arguments, and
//! must never read an output of a call that has not succeeded.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

use ur::abi::print::Call;
use ur::abi::*;

use super::{CodeLocation, Tracer, Writer, members, summary, tracer};

thread_local! {
    /// Calls that this thread is inside.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// The first handle of a list; null if there is none.
///
/// # Safety
/// The list is null or holds `count` handles.
#[inline]
pub unsafe fn first(count: u32, list: *const *const c_void) -> *const c_void {
    if count == 0 || list.is_null() {
        return std::ptr::null();
    }
    // SAFETY: the list has a first handle, as the caller promises.
    unsafe { list.read_unaligned() }
}

/// How much of an output's room a call has filled.
///
/// # Safety
/// If the call succeeded, `filled` is null or was written.
#[inline]
pub unsafe fn written<T: Ord + Copy>(result: ur_result_t, room: T, filled: *const T) -> T {
    if result != UR_RESULT_SUCCESS || filled.is_null() {
        return room;
    }
    // SAFETY: not null, and written by the call.
    room.min(unsafe { filled.read_unaligned() })
}

/// A call under way.
pub struct Span(Option<Open>);

struct Open {
    tracer: Arc<Tracer>,
    place: Place,
    start: Stamp,
}

/// What is known of a call before it is made.
pub(super) struct Place {
    pub function: usize,
    pub adapter: Option<&'static str>,
    /// Where in the application's source it stands, if that tells.
    pub source: Option<String>,
    pub depth: usize,
}

/// A moment by the monotonic clock, in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct Stamp(pub u64);

impl Stamp {
    pub fn now() -> Stamp {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the output is writable. The clock always exists.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
        Stamp(seconds.saturating_mul(1_000_000_000).saturating_add(rest))
    }

    fn elapsed(self) -> Duration {
        Stamp::now().since(self)
    }

    pub fn since(self, earlier: Stamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// Shows a call's inputs, if they come first.
    ///
    /// # Safety
    /// `handle` is null or begins with a pointer to a table; `call` holds the call's arguments, as
    /// the specification asks of its caller.
    pub unsafe fn begin(function: usize, handle: *const c_void, call: &dyn Call) -> Span {
        let Some(tracer) = tracer() else {
            return Span(None);
        };
        // SAFETY: the caller's promise.
        let adapter = unsafe { tracer.adapters.of(handle, &tracer.settings.adapters) };
        if adapter.is_some_and(|name| !tracer.settings.adapters.admits(name)) {
            return Span(None);
        }
        let source = tracer.code_location.and_then(|location| source(&location));
        let depth = DEPTH
            .try_with(|depth| depth.replace(depth.get() + 1))
            .unwrap_or(0);
        let place = Place {
            function,
            adapter,
            source,
            depth,
        };
        if let (Writer::Lines(lines), true) = (&tracer.writer, tracer.settings.min_time.is_zero()) {
            // SAFETY: the caller's promise.
            let shown = unsafe { members::all(call, None) };
            lines.enter(&place, &members::joined(&shown));
        }
        let start = Stamp::now();
        Span(Some(Open {
            tracer,
            place,
            start,
        }))
    }

    /// Shows a call's result, and its outputs if it succeeded.
    ///
    /// # Safety
    /// As for [`Span::begin`]; in `outputs`, room is no larger than what the call has filled.
    pub unsafe fn end(self, result: ur_result_t, call: &dyn Call, outputs: &dyn Call) {
        let Some(Open {
            tracer,
            place,
            start,
        }) = self.0
        else {
            return;
        };
        let time = start.elapsed();
        let _ = DEPTH.try_with(|depth| depth.set(place.depth));
        if tracer.settings.summary.is_some() {
            summary::count(place.function, time, result);
        }
        if time < tracer.settings.min_time {
            return;
        }
        let written = (result == UR_RESULT_SUCCESS).then_some(outputs);
        let shown = match (&tracer.writer, written) {
            (Writer::Nothing, _) => Vec::new(),
            // The inputs stand in a line of their own.
            (Writer::Lines(_), None) if tracer.settings.min_time.is_zero() => Vec::new(),
            (Writer::Lines(_), Some(written)) if tracer.settings.min_time.is_zero() => {
                // SAFETY: the caller's promise, and the call succeeded.
                unsafe { members::outputs(written) }
            }
            // SAFETY: the caller's promise. A failed call has no output to read.
            _ => unsafe { members::all(call, written) },
        };
        match &tracer.writer {
            Writer::Nothing => {}
            Writer::Lines(lines) => lines.leave(&place, &members::joined(&shown), result, time),
            Writer::Events(events) => events.add(&place, &shown, result, start, time),
        }
        if let (Some(path), true) = (&tracer.settings.summary, summary::is_unheld()) {
            summary::write(path);
        }
    }
}

/// What the application says of the call's place.
fn source(location: &CodeLocation) -> Option<String> {
    // SAFETY: `urLoaderConfigSetCodeLocationCallback` asks for a callback that any thread may call.
    let place = unsafe { (location.callback)(location.user_data) };
    let text = |text: *const c_char| {
        // SAFETY: not null, so a C string of the application's.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
    };
    let file = text(place.sourceFile)?;
    let function = text(place.functionName).unwrap_or_default();
    Some(format!(
        "{function} {file}:{}:{}",
        place.lineNumber, place.columnNumber
    ))
}

//! One call in progress: recorded before it, shown after it.
//!
//! Owns the sequence of steps around a call. The wrappers call it. It may print arguments. It must
//! never read an output of a call that has not succeeded.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

use ur::abi::print::Call;
use ur::abi::*;

use super::{CodeLocation, Tracer, Writer, members, summary, tracer};

thread_local! {
    /// The number of traced calls that this thread is in.
    static NESTING: Cell<usize> = const { Cell::new(0) };
}

/// The first handle of a list; null for an empty list.
///
/// # Safety
/// The list is null or holds `count` handles.
#[inline]
pub unsafe fn first(count: u32, list: *const *const c_void) -> *const c_void {
    if count == 0 || list.is_null() {
        return std::ptr::null();
    }
    // SAFETY: not null and not empty, and the caller guarantees `count` handles.
    unsafe { list.read_unaligned() }
}

/// The part of an output's capacity that a call has written.
///
/// # Safety
/// If the call succeeded, `filled` is null or was written.
#[inline]
pub unsafe fn written<T: Ord + Copy>(result: ur_result_t, room: T, filled: *const T) -> T {
    if result != UR_RESULT_SUCCESS || filled.is_null() {
        return room;
    }
    // SAFETY: not null, and the caller guarantees that the call has written it.
    room.min(unsafe { filled.read_unaligned() })
}

/// A call in progress; none if it is not traced.
pub struct Span(Option<Open>);

struct Open {
    tracer: Arc<Tracer>,
    info: CallInfo,
    start: Timestamp,
}

/// Properties of a call that are known before it is made.
pub(super) struct CallInfo {
    pub function: usize,
    pub adapter: Option<&'static str>,
    /// The source location that the application reports.
    pub source: Option<String>,
    pub depth: usize,
}

/// A time of the monotonic clock in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct Timestamp(pub u64);

impl Timestamp {
    pub fn now() -> Timestamp {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `time` is a local variable, and the kernel always has this clock.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
        Timestamp(seconds.saturating_mul(1_000_000_000).saturating_add(rest))
    }

    fn elapsed(self) -> Duration {
        Timestamp::now().since(self)
    }

    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// Starts a call's span, and writes its inputs if they have a line of their own.
    ///
    /// # Safety
    /// `handle` is null or starts with a pointer to a table; `call` holds the call's arguments,
    /// which meet the specification's contract.
    pub unsafe fn begin(function: usize, handle: *const c_void, call: &dyn Call) -> Span {
        let Some(tracer) = tracer() else {
            return Span(None);
        };
        // SAFETY: the caller guarantees the handle.
        let adapter = unsafe { tracer.adapters.of(handle, &tracer.settings.adapters) };
        if adapter.is_some_and(|name| !tracer.settings.adapters.matches(name)) {
            return Span(None);
        }
        let source = tracer.code_location.and_then(|location| source(&location));
        let depth = NESTING
            .try_with(|depth| depth.replace(depth.get() + 1))
            .unwrap_or(0);
        let info = CallInfo {
            function,
            adapter,
            source,
            depth,
        };
        if let (Writer::Lines(lines), true) = (&tracer.writer, tracer.settings.min_time.is_zero()) {
            // SAFETY: the caller guarantees valid arguments.
            let shown = unsafe { members::all(call, None) };
            lines.enter(&info, &members::joined(&shown));
        }
        let start = Timestamp::now();
        Span(Some(Open {
            tracer,
            info,
            start,
        }))
    }

    /// Ends a call's span: writes its result, and its outputs if it succeeded.
    ///
    /// # Safety
    /// `call` holds the arguments of [`Span::begin`]. `outputs` holds them with sizes of outputs
    /// that the call has written.
    pub unsafe fn end(self, result: ur_result_t, call: &dyn Call, outputs: &dyn Call) {
        let Some(Open {
            tracer,
            info,
            start,
        }) = self.0
        else {
            return;
        };
        let time = start.elapsed();
        let _ = NESTING.try_with(|depth| depth.set(info.depth));
        if tracer.settings.summary.is_some() {
            summary::count(info.function, time, result);
        }
        if time < tracer.settings.min_time {
            return;
        }
        let written = (result == UR_RESULT_SUCCESS).then_some(outputs);
        let shown = match (&tracer.writer, written) {
            (Writer::Nothing, _) => Vec::new(),
            // The inputs have a line of their own.
            (Writer::Lines(_), None) if tracer.settings.min_time.is_zero() => Vec::new(),
            (Writer::Lines(_), Some(written)) if tracer.settings.min_time.is_zero() => {
                // SAFETY: the caller guarantees valid arguments, and the call succeeded.
                unsafe { members::outputs(written) }
            }
            // SAFETY: the caller guarantees valid arguments; `written` is none after a failure.
            _ => unsafe { members::all(call, written) },
        };
        match &tracer.writer {
            Writer::Nothing => {}
            Writer::Lines(lines) => lines.leave(&info, &members::joined(&shown), result, time),
            Writer::Events(events) => events.add(&info, &shown, result, start, time),
        }
        if let (Some(path), true) = (&tracer.settings.summary, summary::is_unbuffered()) {
            summary::write(path);
        }
    }
}

/// The source location that the application reports for the call.
fn source(callback: &CodeLocation) -> Option<String> {
    // SAFETY: `urLoaderConfigSetCodeLocationCallback` has the application allow calls from any
    // thread.
    let location = unsafe { (callback.callback)(callback.user_data) };
    let text = |text: *const c_char| {
        // SAFETY: not null, and `ur_code_location_callback_t` has the application return C strings.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
    };
    let file = text(location.sourceFile)?;
    let function = text(location.functionName).unwrap_or_default();
    Some(format!(
        "{function} {file}:{}:{}",
        location.lineNumber, location.columnNumber
    ))
}

//! `UR_LAYER_TRACING`: calls with their arguments, results and times, as text or for Perfetto.
//!
//! Owns what a call leaves behind: lines or events, and the figures of each function. Its wrappers
//! are generated, values print themselves. It must never change a call: what goes wrong here is said
//! once and costs the trace, not the program.
//!
//! ```text
//! UR_TRACE_OUTPUT     stderr (also if unset), stdout, none, or a file's path: %p is the process id
//! UR_TRACE_FORMAT     text: two lines a call, each written at once, so that a crash loses none
//!                     json: one event a call, for Perfetto; a crash loses what is in the buffer
//! UR_TRACE_FUNCTIONS  names with * and ?, comma-separated; those after `!` are left out
//! UR_TRACE_ADAPTERS   the same of adapters, such as native_cpu
//! UR_TRACE_MIN_TIME   10us, 1.5ms: shorter calls leave no line; text has one line a call then
//! UR_TRACE_SUMMARY    a file for the figures of each function, as JSON; counts short calls too
//! ```
//!
//! Arguments are shown before the call, outputs after it, and only if it succeeded: what a call that
//! failed has left there is nobody's promise. A forked child leaves no trace.

mod adapter;
mod events;
mod lines;
mod pattern;
mod settings;
mod summary;

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use ur::abi::print::{Call, Out};
use ur::abi::*;
use ur::object::Origin;

use super::{CodeLocation, Layer, LayerContext};
use crate::env::Env;
use crate::generated::layers::tracing::{FUNCTIONS, wrap};
use adapter::Adapters;
use settings::{Format, Settings};

/// What is in force between `wrap` and `teardown`.
static TRACER: RwLock<Option<Arc<Tracer>>> = RwLock::new(None);

/// Functions that leave a trace; none outside of the layer's life.
static WANTED: [AtomicBool; FUNCTIONS.len()] = [const { AtomicBool::new(false) }; FUNCTIONS.len()];

/// The process in which the layer first began.
static ORIGIN: OnceLock<Origin> = OnceLock::new();

thread_local! {
    /// Calls that this thread is inside.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

struct Tracer {
    settings: Settings,
    writer: Writer,
    adapters: Adapters,
    code_location: Option<CodeLocation>,
}

enum Writer {
    Nothing,
    Lines(lines::Lines),
    Events(Arc<events::Events>),
}

struct Tracing;

pub fn make() -> Box<dyn Layer> {
    Box::new(Tracing)
}

impl Layer for Tracing {
    fn wrap(
        &mut self,
        table: &mut ur_dditable_t,
        _: &[&'static str],
        context: &LayerContext,
    ) -> Result<(), ur_result_t> {
        let (settings, faults) = Settings::read(&Env::process());
        for fault in faults {
            ur::object::log::always(&fault);
        }
        ORIGIN.get_or_init(Origin::here);
        for (function, wanted) in FUNCTIONS.iter().zip(&WANTED) {
            wanted.store(settings.functions.admits(function), Ordering::Relaxed);
        }
        let tracer = Tracer {
            writer: Writer::open(&settings),
            adapters: Adapters::loaded(),
            code_location: context.code_location,
            settings,
        };
        finish_at_exit();
        replace(Some(Arc::new(tracer)));
        wrap(table);
        Ok(())
    }

    fn teardown(&mut self) {
        for wanted in &WANTED {
            wanted.store(false, Ordering::Relaxed);
        }
        if let Some(tracer) = replace(None) {
            tracer.finish();
        }
    }
}

fn replace(tracer: Option<Arc<Tracer>>) -> Option<Arc<Tracer>> {
    let mut slot = TRACER.write().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut *slot, tracer)
}

fn tracer() -> Option<Arc<Tracer>> {
    TRACER
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// A program that never tears the loader down ends its trace all the same.
fn finish_at_exit() {
    static ASKED: Once = Once::new();
    // SAFETY: the handler touches nothing of a library that may be gone: the C library runs it when
    // this one is unloaded, or when the process ends.
    ASKED.call_once(|| unsafe {
        libc::atexit(at_exit);
    });
}

extern "C" fn at_exit() {
    if ORIGIN.get().is_some_and(|origin| origin.is_left()) {
        return;
    }
    events::hold_nothing_back();
    summary::hold_nothing_back();
    // A thread that holds the lock for writing is inside `wrap` or `teardown`, which finishes.
    let tracer = TRACER.try_read().ok().and_then(|slot| slot.clone());
    if let Some(tracer) = tracer {
        tracer.finish();
    }
}

impl Writer {
    fn open(settings: &Settings) -> Writer {
        match settings.format {
            Format::Text => {
                lines::Lines::open(&settings.output).map_or(Writer::Nothing, Writer::Lines)
            }
            Format::Json => {
                events::Events::open(&settings.output).map_or(Writer::Nothing, Writer::Events)
            }
        }
    }
}

impl Tracer {
    fn finish(&self) {
        if let Writer::Events(events) = &self.writer {
            events.finish();
        }
        if let Some(path) = &self.settings.summary {
            summary::write(path);
        }
    }
}

/// Whether calls of a function leave a trace.
#[inline]
pub fn wanted(function: usize) -> bool {
    WANTED
        .get(function)
        .is_some_and(|wanted| wanted.load(Ordering::Relaxed))
        && !ORIGIN.get().is_some_and(|origin| origin.is_left())
}

/// The address of an argument, as parameter structs take it.
#[inline]
pub fn argument<T>(argument: &T) -> *mut T {
    std::ptr::from_ref(argument).cast_mut()
}

/// The first handle of a list; null if there is none.
#[inline]
pub fn first(count: u32, list: *const *const c_void) -> *const c_void {
    if count == 0 || list.is_null() {
        return std::ptr::null();
    }
    // SAFETY: the caller of the traced function promises that the list holds `count` handles.
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
struct Place {
    function: usize,
    adapter: Option<&'static str>,
    /// Where in the application's source it stands, if that tells.
    source: Option<String>,
    depth: usize,
}

/// A moment by the monotonic clock, in nanoseconds.
#[derive(Clone, Copy)]
struct Stamp(u64);

impl Stamp {
    fn now() -> Stamp {
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

    fn since(self, earlier: Stamp) -> Duration {
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
            lines.enter(&place, &unsafe { inputs(call) });
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
        let succeeded = result == UR_RESULT_SUCCESS;
        match &tracer.writer {
            Writer::Nothing => {}
            Writer::Lines(lines) => {
                // SAFETY: the caller's promise; outputs are read only after success.
                let shown = match (tracer.settings.min_time.is_zero(), succeeded) {
                    (true, false) => String::new(),
                    (true, true) => unsafe { written_outputs(outputs) },
                    (false, _) => unsafe { everything(call, outputs, succeeded) },
                };
                lines.leave(&place, &shown, result, time);
            }
            Writer::Events(events) => {
                // SAFETY: as above.
                let shown = unsafe { members(call, outputs, succeeded) };
                events.add(&place, &shown, result, start, time);
            }
        }
        if let (Some(path), true) = (&tracer.settings.summary, summary::is_unheld()) {
            summary::write(path);
        }
    }
}

/// An argument's name and text.
type Member = (&'static str, String);

/// All arguments: inputs, and outputs as they were written, or by their addresses if they were not.
///
/// # Safety
/// As for [`Span::end`]; `succeeded` says whether outputs may be read.
unsafe fn members(call: &dyn Call, outputs: &dyn Call, succeeded: bool) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    // SAFETY: the caller's promise.
    unsafe {
        call.each(&mut |passed| {
            let text = match passed.output {
                Some(address) => pointer(address),
                None => print(passed.value),
            };
            members.push((passed.name, text));
        });
        if succeeded {
            let mut at = members.iter_mut();
            outputs.each(&mut |passed| {
                if let (Some((_, text)), Some(_)) = (at.next(), passed.output) {
                    *text = print(passed.value);
                }
            });
        }
    }
    members
}

/// # Safety
/// As for [`Span::begin`].
unsafe fn inputs(call: &dyn Call) -> String {
    // SAFETY: the caller's promise; outputs are shown by their addresses.
    joined(unsafe { members(call, call, false) })
}

/// # Safety
/// As for [`members`].
unsafe fn everything(call: &dyn Call, outputs: &dyn Call, succeeded: bool) -> String {
    // SAFETY: the caller's promise.
    joined(unsafe { members(call, outputs, succeeded) })
}

/// # Safety
/// As for [`Span::end`], of a call that succeeded. What was not asked for is not shown.
unsafe fn written_outputs(call: &dyn Call) -> String {
    let mut members: Vec<Member> = Vec::new();
    // SAFETY: the caller's promise.
    unsafe {
        call.each(&mut |passed| {
            if passed.output.is_some_and(|address| address != 0) {
                members.push((passed.name, print(passed.value)));
            }
        });
    }
    joined(members)
}

fn joined(members: Vec<Member>) -> String {
    let texts = members
        .iter()
        .map(|(name, text)| format!(".{name} = {text}"));
    texts.collect::<Vec<_>>().join(", ")
}

/// # Safety
/// Pointers in the value that are to be read are null or readable.
unsafe fn print(value: &dyn print::Print) -> String {
    let mut out = Out::brief();
    // SAFETY: the caller's promise.
    unsafe { value.print(&mut out) };
    out.into_text()
}

fn pointer(address: usize) -> String {
    match address {
        0 => "nullptr".to_owned(),
        address => format!("{address:#x}"),
    }
}

/// What the application says of the call's place.
fn source(location: &CodeLocation) -> Option<String> {
    // SAFETY: `urLoaderConfigSetCodeLocationCallback` asks for a callback that any thread may call.
    let place = unsafe { (location.callback)(location.user_data) };
    let text = |text: *const std::ffi::c_char| {
        // SAFETY: not null, so a C string of the application's.
        (!text.is_null()).then(|| unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy())
    };
    let file = text(place.sourceFile)?;
    let function = text(place.functionName).unwrap_or_default();
    Some(format!(
        "{function} {file}:{}:{}",
        place.lineNumber, place.columnNumber
    ))
}

/// Results by their names, unknown ones by their numbers.
fn result_name(result: ur_result_t) -> String {
    format!("{result:?}")
}

/// The kernel's number of this thread, which debuggers show too.
fn thread() -> i32 {
    thread_local! {
        static ID: i32 = own_thread();
    }
    ID.try_with(|id| *id).unwrap_or_else(|_| own_thread())
}

fn own_thread() -> i32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

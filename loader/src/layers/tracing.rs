//! `UR_LAYER_TRACING`: traces calls with their arguments, results and times, as text or for
//! Perfetto.
//!
//! Owns the output of a call, as lines or events, and the statistics of each function. Its
//! functions are macros over the list of functions, and values print themselves. It must never
//! change a call. An error of the trace is logged once and costs the trace only.
//!
//! ```text
//! UR_TRACE_OUTPUT     stderr (also if unset), stdout, none, or a file's path: %p is the process id
//! UR_TRACE_FORMAT     text: two lines per call, each written at once, so that a crash loses none
//!                     json: one event per call, for Perfetto; a crash loses the buffered events
//! UR_TRACE_FUNCTIONS  names with * and ?, comma-separated; those after `!` are excluded
//! UR_TRACE_ADAPTERS   names of adapters such as native_cpu; same syntax
//! UR_TRACE_MIN_TIME   10us, 1.5ms: shorter calls are not shown; text then has one line per call
//! UR_TRACE_SUMMARY    a file for the statistics of each function, as JSON; includes short calls
//! ```
//!
//! Arguments are shown before the call, outputs after a successful one. The outputs of a failed
//! call are undefined. A forked child writes no trace.

mod adapter;
mod events;
mod lines;
mod members;
mod pattern;
mod settings;
mod span;
mod summary;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock, PoisonError, RwLock};

use ur::abi::*;
use ur::object::Origin;

use super::wrappers::{NAMES, argument, number, wrappers};
use super::{CodeLocation, Layer, LayerContext};
use adapter::Adapters;
use settings::{Format, Settings};
use ur::object::env::Env;

use span::{Span, first, written};

/// The tracer between `wrap` and `teardown`.
static TRACER: RwLock<Option<Arc<Tracer>>> = RwLock::new(None);

/// Whether each function is traced; no function is while the layer is off.
static TRACED: [AtomicBool; NAMES.len()] = [const { AtomicBool::new(false) }; NAMES.len()];

/// The process in which the layer was first enabled.
static ORIGIN: OnceLock<Origin> = OnceLock::new();

/// Reports invalid values of the layer's variables.
pub fn check(env: &Env<'_>) {
    Settings::read(env);
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
        let settings = Settings::read(&Env::process());
        ORIGIN.get_or_init(Origin::here);
        for (function, traced) in NAMES.iter().zip(&TRACED) {
            traced.store(settings.functions.matches(function), Ordering::Relaxed);
        }
        let tracer = Tracer {
            writer: Writer::open(&settings),
            adapters: Adapters::loaded(),
            code_location: context.code_location,
            settings,
        };
        // An empty summary shows from the start that the process is traced.
        tracer.finish_summary();
        finish_at_exit();
        replace(Some(Arc::new(tracer)));
        wrap(table);
        Ok(())
    }

    fn teardown(&mut self) {
        for traced in &TRACED {
            traced.store(false, Ordering::Relaxed);
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

/// Ends the trace of a program that does not tear the loader down.
fn finish_at_exit() {
    static REGISTERED: Once = Once::new();
    // SAFETY: the C library runs the handler before this library is unloaded, or when the process
    // ends.
    REGISTERED.call_once(|| unsafe {
        libc::atexit(at_exit);
    });
}

extern "C" fn at_exit() {
    if ORIGIN.get().is_some_and(|origin| origin.is_forked()) {
        return;
    }
    events::disable_buffering();
    summary::disable_buffering();
    // A thread that holds the write lock is in `wrap` or `teardown`, which end the trace
    // themselves.
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
        self.finish_summary();
    }

    fn finish_summary(&self) {
        if let Some(path) = &self.settings.summary {
            summary::write(path);
        }
    }
}

/// Whether calls of a function are traced in this process.
#[inline]
pub fn is_traced(function: usize) -> bool {
    TRACED
        .get(function)
        .is_some_and(|traced| traced.load(Ordering::Relaxed))
        && !ORIGIN.get().is_some_and(|origin| origin.is_forked())
}

/// The handle that the call is dispatched by; null if there is none.
macro_rules! leading_handle {
    () => {
        std::ptr::null()
    };
    ($handle:ident) => {
        $handle.cast()
    };
    ($list:ident of $count:ident or $error:ident) => {
        first($count, $list.cast())
    };
}

/// Shadows an output's capacity with the size that the call has written.
macro_rules! filled {
    ($result:ident $params:ident [$need:ident info $property:ident -]) => {};
    ($result:ident $params:ident [$need:ident info $property:ident $size:ident]) => {
        // SAFETY: `$params` points to the arguments; the adapter has written the output after a
        // success.
        let $size = unsafe { written($result, $size, *$params.ppPropSizeRet) };
    };
    ($result:ident $params:ident [$need:ident outputs $kind:ident $count:ident $own:ident -]) => {};
    ($result:ident $params:ident [$need:ident outputs $kind:ident $count:ident $own:ident $total:ident]) => {
        // SAFETY: the adapter has written the output after a success.
        let $count = unsafe { written($result, $count, $total) };
    };
    ($result:ident $params:ident $form:tt) => {};
}

/// The body of a function of this layer: the call inside of a span.
macro_rules! traced {
    ($name:ident $params:ident [$($leader:tt)*] $below:ident (
        $( $arg:ident : $ty:ty = $field:ident $form:tt ),*
    )) => {{
        if !is_traced(number::$name) {
            // SAFETY: the caller's arguments are forwarded unchanged, under the specification's
            // contract.
            return unsafe { $below($( $arg ),*) };
        }
        let params = $params { $( $field: argument(&$arg) ),* };
        // SAFETY: `params` points to the arguments, which meet the specification's contract.
        let span = unsafe { Span::begin(number::$name, leading_handle!($($leader)*), &params) };
        // SAFETY: the caller's arguments are forwarded unchanged, under the specification's
        // contract.
        let result = unsafe { $below($( $arg ),*) };
        // Shadowing does not change the argument: `params` still points to the caller's value.
        $( filled!(result params $form); )*
        let outputs = $params { $( $field: argument(&$arg) ),* };
        // SAFETY: both structs point to arguments; sizes in `outputs` are those that the call has
        // written.
        unsafe { span.end(result, &params, &outputs) };
        result
    }};
}
ur::for_each_function! { wrappers traced }

/// Every function may be traced.
const fn wants(_: usize) -> bool {
    true
}

/// A result's name, or its number if it is unknown.
fn result_name(result: ur_result_t) -> String {
    format!("{result:?}")
}

/// The kernel's id of this thread, as debuggers show it.
fn thread() -> i32 {
    thread_local! {
        static ID: i32 = own_thread();
    }
    ID.try_with(|id| *id).unwrap_or_else(|_| own_thread())
}

fn own_thread() -> i32 {
    // SAFETY: `gettid` has no arguments and cannot fail.
    unsafe { libc::gettid() }
}

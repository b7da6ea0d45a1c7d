//! `UR_LAYER_TRACING`: calls with their arguments, results and times, as text or for Perfetto.
//!
//! Owns what a call leaves behind: lines or events, and the figures of each function. Its functions
//! are macros over the list, values print themselves. It must never change a call: what goes wrong here is said
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
mod members;
mod pattern;
mod settings;
mod span;
mod summary;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock, PoisonError, RwLock};

use ur::abi::*;
use ur::object::Origin;

use super::wrappers::{NAMES, argument, wrappers};
use super::{CodeLocation, Layer, LayerContext};
use adapter::Adapters;
use settings::{Format, Settings};
use ur::object::env::Env;

use span::{Span, first, written};

/// What is in force between `wrap` and `teardown`.
static TRACER: RwLock<Option<Arc<Tracer>>> = RwLock::new(None);

/// Functions that leave a trace; none outside of the layer's life.
static WANTED: [AtomicBool; NAMES.len()] = [const { AtomicBool::new(false) }; NAMES.len()];

/// The process in which the layer first began.
static ORIGIN: OnceLock<Origin> = OnceLock::new();

/// Complains of what is wrong with the variables that this layer reads.
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
        for (function, wanted) in NAMES.iter().zip(&WANTED) {
            wanted.store(settings.functions.admits(function), Ordering::Relaxed);
        }
        let tracer = Tracer {
            writer: Writer::open(&settings),
            adapters: Adapters::loaded(),
            code_location: context.code_location,
            settings,
        };
        // The file says from the beginning that the process is traced.
        tracer.finish_summary();
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
    static REGISTERED: Once = Once::new();
    // SAFETY: the handler touches nothing of a library that may be gone: the C library runs it when
    // this one is unloaded, or when the process ends.
    REGISTERED.call_once(|| unsafe {
        libc::atexit(at_exit);
    });
}

extern "C" fn at_exit() {
    if ORIGIN.get().is_some_and(|origin| origin.is_forked()) {
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
        self.finish_summary();
    }

    fn finish_summary(&self) {
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
        && !ORIGIN.get().is_some_and(|origin| origin.is_forked())
}

/// The handle that leads to the call's adapter.
macro_rules! leads {
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

/// Limits an output's room to what the call has filled.
macro_rules! filled {
    ($result:ident $params:ident [$need:ident info $property:ident -]) => {};
    ($result:ident $params:ident [$need:ident info $property:ident $size:ident]) => {
        // SAFETY: the parameter struct leads to the arguments; an output is written after success.
        let $size = unsafe { written($result, $size, *$params.ppPropSizeRet) };
    };
    ($result:ident $params:ident [$need:ident outputs $kind:ident $count:ident $own:ident -]) => {};
    ($result:ident $params:ident [$need:ident outputs $kind:ident $count:ident $own:ident $total:ident]) => {
        // SAFETY: an output is written after success.
        let $count = unsafe { written($result, $count, $total) };
    };
    ($result:ident $params:ident $form:tt) => {};
}

/// The body of a function of this layer.
macro_rules! traced {
    ($number:literal $name:ident $params:ident [$($leader:tt)*] $below:ident (
        $( $arg:ident : $ty:ty = $field:ident $form:tt ),*
    )) => {{
        if !wanted($number) {
            // SAFETY: the caller's arguments.
            return unsafe { $below($( $arg ),*) };
        }
        let params = $params { $( $field: argument(&$arg) ),* };
        // SAFETY: the parameter struct leads to the arguments; the caller promises the handle.
        let span = unsafe { Span::begin($number, leads!($($leader)*), &params) };
        // SAFETY: the caller's arguments.
        let result = unsafe { $below($( $arg ),*) };
        // A shadowed argument stays where it is: `params` still points to the caller's.
        $( filled!(result params $form); )*
        let outputs = $params { $( $field: argument(&$arg) ),* };
        // SAFETY: both structs lead to arguments; rooms in `outputs` are what was filled.
        unsafe { span.end(result, &params, &outputs) };
        result
    }};
}
ur::for_each_function! { wrappers traced }

/// Every function may be traced.
const fn wants(_: usize) -> bool {
    true
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

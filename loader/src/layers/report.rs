//! Log lines of the validation layers, with the source location of the call if the application
//! reports it.
//!
//! Owns the sink `UR_LOG_VALIDATION` and the code-location callback; may use `abi` and `object`. A
//! user who enables a layer wants its findings, so that errors and warnings are logged by default.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::sync::{OnceLock, PoisonError, RwLock};

use ur::abi::ur_code_location_t;
use ur::object::log::{Level, LevelFilter, Sink};

use super::{CodeLocation, LayerContext, failure};

static SINK: OnceLock<Sink> = OnceLock::new();
static LOCATION: RwLock<Option<CodeLocation>> = RwLock::new(None);

/// Opens the sink and sets the callback. Each layer calls this when it starts.
pub fn begin(context: &LayerContext) {
    sink();
    failure::begin();
    *LOCATION.write().unwrap_or_else(PoisonError::into_inner) = context.code_location;
}

/// Drops the callback, which the application may free after the teardown.
pub fn end() {
    *LOCATION.write().unwrap_or_else(PoisonError::into_inner) = None;
}

fn sink() -> &'static Sink {
    SINK.get_or_init(|| Sink::open("validation", LevelFilter::Warn))
}

/// Logs a finding about this thread's current call. An error has the effect that the user chose.
pub fn finding(level: Level, text: fmt::Arguments<'_>) {
    let sink = sink();
    if sink.enabled(level) {
        match location() {
            Some(place) => sink.log(level, format_args!("{text} (called at {place})")),
            None => sink.log(level, text),
        }
    }
    if level == Level::Error {
        failure::found();
    }
}

/// Logs a line that belongs to no call. It has no further effect.
pub fn line(level: Level, text: fmt::Arguments<'_>) {
    sink().log(level, text);
}

/// The source location of the current call, from the application: `file:line:column in function`.
pub fn location() -> Option<String> {
    let callback = *LOCATION.read().unwrap_or_else(PoisonError::into_inner);
    let CodeLocation {
        callback,
        user_data,
    } = callback?;
    // SAFETY: `urLoaderConfigSetCodeLocationCallback` has the application allow calls from any
    // thread.
    describe(unsafe { callback(user_data) })
}

fn describe(place: ur_code_location_t) -> Option<String> {
    let file = text(place.sourceFile);
    let function = text(place.functionName);
    let mut out = file.unwrap_or_default();
    for number in [place.lineNumber, place.columnNumber] {
        if out.is_empty() || number == 0 {
            break;
        }
        out.push_str(&format!(":{number}"));
    }
    match function {
        Some(function) if out.is_empty() => Some(function),
        Some(function) => Some(format!("{out} in {function}")),
        None => (!out.is_empty()).then_some(out),
    }
}

fn text(from: *const c_char) -> Option<String> {
    if from.is_null() {
        return None;
    }
    // SAFETY: not null, and `ur_code_location_callback_t` has the application return C strings.
    let text = unsafe { CStr::from_ptr(from) }.to_string_lossy();
    (!text.is_empty()).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_parts_of_a_location_are_described() {
        let place = |file: Option<&'static CStr>, function: Option<&'static CStr>, line, column| {
            describe(ur_code_location_t {
                functionName: function.map_or(std::ptr::null(), CStr::as_ptr),
                sourceFile: file.map_or(std::ptr::null(), CStr::as_ptr),
                lineNumber: line,
                columnNumber: column,
            })
        };
        let all = place(Some(c"a.cpp"), Some(c"f"), 3, 7);
        assert_eq!(all.as_deref(), Some("a.cpp:3:7 in f"));
        assert_eq!(
            place(Some(c"a.cpp"), None, 3, 0).as_deref(),
            Some("a.cpp:3")
        );
        assert_eq!(
            place(None, Some(c"f"), 3, 7).as_deref(),
            Some("f"),
            "a line of no file says nothing"
        );
        assert_eq!(place(Some(c""), None, 1, 1), None);
        assert_eq!(place(None, None, 0, 0), None);
    }
}

//! Failures, and the text that a caller can read of the last one.

use std::fmt;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use ur::abi::*;
use ur::dl::LoadError;

pub type Result<T> = std::result::Result<T, Failure>;

/// A call that failed, or a reason for which none was made.
#[derive(Clone, Debug)]
pub enum Failure {
    Call(&'static str, ur_result_t),
    Reason(String),
}

impl Failure {
    #[cold]
    pub fn call(name: &'static str, code: ur_result_t) -> Self {
        Self::Call(name, code)
    }

    pub fn load(error: LoadError) -> Self {
        Self::Reason(error.to_string())
    }

    /// Whether memory that is given back may help.
    pub fn is_out_of_memory(&self) -> bool {
        let codes = [
            UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
            UR_RESULT_ERROR_OUT_OF_HOST_MEMORY,
            UR_RESULT_ERROR_OUT_OF_RESOURCES,
        ];
        matches!(self, Self::Call(_, code) if codes.contains(code))
    }

    /// Whether a stream belongs to another device.
    pub fn is_other_device(&self) -> bool {
        matches!(self, Self::Call(_, UR_RESULT_ERROR_INVALID_CONTEXT))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(name, code) => match code.name() {
                Some(text) => write!(out, "{name} returned {text}"),
                None => write!(out, "{name} returned {:#x}", code.0),
            },
            Self::Reason(text) => out.write_str(text),
        }
    }
}

static LAST: Mutex<String> = Mutex::new(String::new());

/// Keeps a failure for the caller and writes it to the standard error.
pub fn report(what: &str, failure: &Failure) {
    let text = format!("ur_pytorch: {what}: {failure}");
    // A closed standard error must not end the process.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = text;
}

/// The text of the last failure of any thread; empty without one.
pub fn last() -> String {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

//! How a test ends. A test stops early with a `Stop`; what that means for the run is decided by the
//! expectations, not here.

use crate::status::here;
use serde::{Deserialize, Serialize};

/// What a test function returns.
pub type Done = Result<(), Stop>;

/// Why a test ended before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    Failed(String),
    /// The device cannot do it. `documented`: its info query says so, and it refused as it should.
    Unsupported {
        what: String,
        documented: bool,
    },
    /// The test could not be made here.
    Skipped(String),
}

impl Stop {
    #[track_caller]
    pub fn failed(message: impl Into<String>) -> Self {
        Stop::Failed(format!("{} ({})", message.into(), here()))
    }

    pub fn skipped(reason: impl Into<String>) -> Self {
        Stop::Skipped(reason.into())
    }
}

/// What a test did, before expectations are applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Raw {
    Passed,
    Failed(String),
    Unsupported { what: String, documented: bool },
    Skipped(String),
}

impl From<Done> for Raw {
    fn from(done: Done) -> Self {
        match done {
            Ok(()) => Raw::Passed,
            Err(Stop::Failed(message)) => Raw::Failed(message),
            Err(Stop::Unsupported { what, documented }) => Raw::Unsupported { what, documented },
            Err(Stop::Skipped(reason)) => Raw::Skipped(reason),
        }
    }
}

/// Fails the test, with a message, unless the condition holds.
#[macro_export]
macro_rules! check {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::outcome::Stop::failed(format!($($message)+)));
        }
    };
}

/// Fails the test unless both are equal; says what was compared.
#[macro_export]
macro_rules! check_eq {
    ($got:expr, $want:expr, $($what:tt)+) => {{
        let (got, want) = (&$got, &$want);
        if got != want {
            let what = format!($($what)+);
            return Err($crate::outcome::Stop::failed(format!("{what}: got {got:?}, expected {want:?}")));
        }
    }};
}

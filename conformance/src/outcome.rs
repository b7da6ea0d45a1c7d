//! The outcome of a test.
//!
//! A test stops early with a `Stop`. The expectations, not this module, decide its meaning for the run.

use crate::status::here;
use serde::{Deserialize, Serialize};

/// The result of a test function.
pub type Done = Result<(), Stop>;

/// The reason why a test stopped early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    Failed(String),
    /// The device does not support it. `documented`: its info query says so, and it refused with the declared
    /// error.
    Unsupported {
        what: String,
        documented: bool,
    },
    /// The test cannot run on this device.
    Skipped(String),
}

impl Stop {
    #[track_caller]
    pub fn failed(message: impl Into<String>) -> Self {
        Stop::Failed(format!("{} ({})", message.into(), here()))
    }

    /// The reason without a place in the tests' source, for readers who ask for no test.
    pub fn into_reason(self) -> String {
        match self {
            Stop::Failed(message) => match message.rsplit_once(" (") {
                Some((reason, place)) if place.contains(".rs:") => reason.to_owned(),
                _ => message,
            },
            Stop::Unsupported { what, .. } => what,
            Stop::Skipped(reason) => reason,
        }
    }

    pub fn skipped(reason: impl Into<String>) -> Self {
        Stop::Skipped(reason.into())
    }
}

/// The outcome of a test before expectations are applied.
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

/// Fails the test with a message unless the condition holds.
#[macro_export]
macro_rules! check {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::outcome::Stop::failed(format!($($message)+)));
        }
    };
}

/// Fails the test unless every element of a slice has the value. The message names the first other one.
#[macro_export]
macro_rules! check_all {
    ($data:expr, $want:expr, $($what:tt)+) => {{
        let (data, want) = (&$data, $want);
        if let Some((at, got)) = data.iter().enumerate().find(|(_, got)| **got != want) {
            let what = format!($($what)+);
            let message = format!("{what}: element {at} is {got:?}, expected {want:?}");
            return Err($crate::outcome::Stop::failed(message));
        }
    }};
}

/// Fails the test unless two sequences are equal. The message names the first difference.
#[macro_export]
macro_rules! check_items {
    ($got:expr, $want:expr, $($what:tt)+) => {{
        let (mut got, mut want) = ($got.into_iter(), $want.into_iter());
        let mut pairs = (0_usize..).map(|at| (at, got.next(), want.next()));
        let end = |(_, got, want): &(usize, Option<_>, Option<_>)| got.is_none() && want.is_none();
        let differs = |(_, got, want): &(usize, Option<_>, Option<_>)| got != want;
        if let Some((at, got, want)) = pairs.find(|pair| end(pair) || differs(pair))
            && got != want
        {
            let what = format!($($what)+);
            let message = format!("{what}: element {at} is {got:?}, expected {want:?}");
            return Err($crate::outcome::Stop::failed(message));
        }
    }};
}

/// Fails the test unless both are equal. The message says what was compared.
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

#[cfg(test)]
mod tests {
    use super::Stop;

    #[test]
    fn a_reason_has_no_place_in_the_source() {
        let failed = Stop::failed("there is no device 5 (of 1)");
        assert!(matches!(&failed, Stop::Failed(message) if message.contains("outcome.rs:")));
        assert_eq!(failed.into_reason(), "there is no device 5 (of 1)");
        let plain = Stop::Failed("none (at all)".to_owned());
        assert_eq!(plain.into_reason(), "none (at all)");
    }
}

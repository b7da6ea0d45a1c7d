//! Scripts: text that changes what calls do. A program can be tested without code against errors,
//! delays and other devices.
//!
//! ```text
//! # the third copy fails; every launch takes a while
//! urEnqueueUSMMemcpy@3: error OUT_OF_RESOURCES
//! urEnqueueKernelLaunch*: delay 2ms
//! urEventWait@2..: delay 10ms, error DEVICE_LOST
//! UR_DEVICE_INFO_NAME = "Narrow GPU"; UR_DEVICE_INFO_MAX_WORK_GROUP_SIZE = 16
//! UR_DEVICE_INFO_MAX_WORK_ITEM_SIZES = [16, 16, 16]
//! UR_DEVICE_INFO_USM_SYSTEM_SHARED_SUPPORT = none
//! ```
//!
//! Statements end with `;` or the line, comments begin with `#`.
//!
//! | statement | meaning |
//! |---|---|
//! | `FUNCTION CALLS: ACTION, ACTION` | what these calls do first, in order |
//! | `PROPERTY = VALUE` | what every query of an info property answers |
//!
//! | part | forms |
//! |---|---|
//! | function | a name, or a pattern in which `*` stands for any text |
//! | calls | nothing: all; `@3`: the third; `@2..`: from the second; `@2..5`: the second to the fifth; `@/4`: every fourth. Counted for each statement, over all functions of its pattern |
//! | action | `delay 10ms` (`ns`, `us`, `ms`, `s`); `error CODE`, a name with or without `UR_RESULT_ERROR_`, which ends the call |
//! | value | a number, `0x` too; an enumerator; flags joined by `\|`; `true`, `false`; `"text"` with `\"` and `\\`; `[a, b]`; `none`: the property is unsupported |
//!
//! The current script is that of `UR_MOCK_SCRIPT`, until one is set through `include/ur_mock.h`.
//! This module owns the language: `parse` reads it, `value` converts values to a property's bytes.

mod parse;
mod show;
mod value;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use std::time::Duration;

use ur::abi::*;
use ur::object::{Error, Result};

use crate::functions::NAMES;

pub use parse::ParseError;

/// A parsed script.
#[derive(Debug, Default)]
pub struct Script {
    rules: Vec<Rule>,
    /// The bytes of each property; none for an unsupported one.
    values: BTreeMap<&'static str, Option<Vec<u8>>>,
}

/// The actions of some calls of some functions.
#[derive(Debug)]
struct Rule {
    pattern: String,
    /// Indices in `NAMES` of the functions that match the pattern.
    functions: Vec<usize>,
    calls: Calls,
    actions: Vec<Action>,
    call_count: AtomicU64,
}

/// The calls that a rule applies to, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    All,
    From(u64),
    FromTo(u64, u64),
    Every(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Delay(Duration),
    Error(ur_result_t),
}

impl Calls {
    fn includes(self, call: u64) -> bool {
        match self {
            Self::All => true,
            Self::From(first) => call >= first,
            Self::FromTo(first, last) => (first..=last).contains(&call),
            Self::Every(count) => call.is_multiple_of(count),
        }
    }
}

impl Script {
    /// Parses a script. The error has the position and the reason.
    pub fn parse(text: &str) -> std::result::Result<Self, ParseError> {
        parse::script(text)
    }

    /// Delays a call of the function at `index`, or ends it with an error.
    pub fn apply(&self, index: usize) -> Result<()> {
        for rule in self
            .rules
            .iter()
            .filter(|rule| rule.functions.contains(&index))
        {
            let call = rule.call_count.fetch_add(1, Ordering::Relaxed) + 1;
            if !rule.calls.includes(call) {
                continue;
            }
            for action in &rule.actions {
                match action {
                    Action::Delay(time) => std::thread::sleep(*time),
                    Action::Error(code) => {
                        log::info!("{}: {code:?}, as scripted", NAMES[index]);
                        let message = format!("call {call} of {} failed by script", rule.pattern);
                        return Err(Error::native(*code, 0, &message));
                    }
                }
            }
        }
        Ok(())
    }

    /// The script's value of a property. The inner `None` means that the property is unsupported.
    pub fn property(&self, name: &str) -> Option<&Option<Vec<u8>>> {
        self.values.get(name)
    }
}

struct Current {
    script: Arc<Script>,
    /// Whether the environment's script has an error.
    broken: bool,
}

static CURRENT: LazyLock<RwLock<Current>> = LazyLock::new(|| RwLock::new(from_environment()));

/// The current script.
pub fn current() -> Arc<Script> {
    let current = CURRENT.read().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(&current.script)
}

/// Whether the environment's script has an error, and none was set since. The adapter then does not
/// open, since a test must not pass because its script was ignored.
pub fn is_broken() -> bool {
    let current = CURRENT.read().unwrap_or_else(PoisonError::into_inner);
    current.broken
}

/// Sets the current script, whose counts start at 0.
pub fn set(script: Script) {
    let mut current = CURRENT.write().unwrap_or_else(PoisonError::into_inner);
    *current = Current {
        script: Arc::new(script),
        broken: false,
    };
}

/// Restores the environment's script.
pub fn reset() {
    let anew = from_environment();
    *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = anew;
}

fn from_environment() -> Current {
    ur::object::log::init("mock");
    let text = std::env::var("UR_MOCK_SCRIPT").unwrap_or_default();
    match read(&text) {
        Ok(script) => Current {
            script: Arc::new(script),
            broken: false,
        },
        Err(reason) => {
            ur::object::log::once(&format!("UR_MOCK_SCRIPT: {reason}"));
            Current {
                script: Arc::default(),
                broken: true,
            }
        }
    }
}

fn read(variable: &str) -> std::result::Result<Script, String> {
    let text = match variable.strip_prefix('@') {
        None => variable.to_owned(),
        Some(path) => std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?,
    };
    Script::parse(&text).map_err(|error| error.to_string())
}

//! Scripts: what calls shall do instead of succeeding, said in text, so that a program can be tested
//! against errors, slowness and other devices without any code.
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
//! The script in force is that of `UR_MOCK_SCRIPT`, until one is set through `include/ur_mock.h`.
//! This module owns the language; `parse` reads it, `value` turns values into a property's bytes.

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

/// A script, read.
#[derive(Debug, Default)]
pub struct Script {
    rules: Vec<Rule>,
    /// By property: its bytes, or none for one that is unsupported.
    values: BTreeMap<&'static str, Option<Vec<u8>>>,
}

/// What some calls of some functions do.
#[derive(Debug)]
struct Rule {
    pattern: String,
    /// Indices in `NAMES` of the functions that the pattern fits.
    functions: Vec<usize>,
    which: Which,
    actions: Vec<Action>,
    seen: AtomicU64,
}

/// Which calls, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
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

impl Which {
    fn holds(self, call: u64) -> bool {
        match self {
            Self::All => true,
            Self::From(first) => call >= first,
            Self::FromTo(first, last) => (first..=last).contains(&call),
            Self::Every(count) => call.is_multiple_of(count),
        }
    }
}

impl Script {
    /// Reads a script, or says what is wrong with it and where.
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
            let call = rule.seen.fetch_add(1, Ordering::Relaxed) + 1;
            if !rule.which.holds(call) {
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

    /// The value of a property, if the script gives one; the inner none says that it is unsupported.
    pub fn property(&self, name: &str) -> Option<&Option<Vec<u8>>> {
        self.values.get(name)
    }
}

struct Current {
    script: Arc<Script>,
    /// The environment's script could not be read.
    broken: bool,
}

static CURRENT: LazyLock<RwLock<Current>> = LazyLock::new(|| RwLock::new(from_environment()));

/// The script in force.
pub fn current() -> Arc<Script> {
    let current = CURRENT.read().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(&current.script)
}

/// Whether the environment's script could not be read and none was set since. The adapter then does
/// not open: a test must not pass because its script was overlooked.
pub fn is_broken() -> bool {
    let current = CURRENT.read().unwrap_or_else(PoisonError::into_inner);
    current.broken
}

/// Puts a script in force; its counts begin anew.
pub fn set(script: Script) {
    let mut current = CURRENT.write().unwrap_or_else(PoisonError::into_inner);
    *current = Current {
        script: Arc::new(script),
        broken: false,
    };
}

/// Puts the environment's script in force again.
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

//! The answer of one call, tied to the name of the function that gave it, and the count of calls.
//! A test says what it expects of a `Status`; the message of a failure is made here.

use crate::outcome::Stop;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use ur::abi::*;

/// What a function answered; a library that lacks the function answers `UNINITIALIZED`.
#[derive(Clone, Copy)]
#[must_use]
pub struct Status {
    pub function: &'static str,
    pub code: ur_result_t,
    missing: bool,
}

impl Status {
    /// Success, or the reason to stop: an unsupported feature is not the same as a failure.
    #[track_caller]
    pub fn ok(self) -> Result<(), Stop> {
        match self.code {
            UR_RESULT_SUCCESS => Ok(()),
            UR_RESULT_ERROR_UNSUPPORTED_FEATURE | UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION => {
                Err(Stop::Unsupported {
                    what: self.to_string(),
                    documented: false,
                })
            }
            _ => Err(Stop::failed(format!("{self}, expected UR_RESULT_SUCCESS"))),
        }
    }

    /// Exactly this error.
    #[track_caller]
    pub fn fails(self, code: ur_result_t) -> Result<(), Stop> {
        self.fails_with(&[code])
    }

    /// One of these errors.
    #[track_caller]
    pub fn fails_with(self, codes: &[ur_result_t]) -> Result<(), Stop> {
        if codes.contains(&self.code) {
            return Ok(());
        }
        let wanted: Vec<String> = codes.iter().map(|code| format!("{code:?}")).collect();
        Err(Stop::failed(format!(
            "{self}, expected {}",
            wanted.join(" or ")
        )))
    }

    /// Any error at all.
    #[track_caller]
    pub fn refused(self) -> Result<(), Stop> {
        if self.code != UR_RESULT_SUCCESS {
            return Ok(());
        }
        Err(Stop::failed(format!("{self}, expected an error")))
    }

    pub fn is_ok(self) -> bool {
        self.code == UR_RESULT_SUCCESS
    }

    /// The adapter says that it cannot do this.
    pub fn is_unsupported(self) -> bool {
        self.code == UR_RESULT_ERROR_UNSUPPORTED_FEATURE
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.missing {
            true => write!(f, "{} is not exported by the loader", self.function),
            false => write!(f, "{} returned {:?}", self.function, self.code),
        }
    }
}

/// How often each function was called, and which errors it returned.
pub struct Calls {
    names: &'static [&'static str],
    counts: Vec<AtomicU64>,
    errors: Mutex<BTreeMap<&'static str, BTreeSet<u32>>>,
}

impl Calls {
    pub fn new(names: &'static [&'static str]) -> Self {
        let counts = names.iter().map(|_| AtomicU64::new(0)).collect();
        Self {
            names,
            counts,
            errors: Mutex::default(),
        }
    }

    /// Notes one call of the function at `index`; no result means that there is no such function.
    pub fn record(&self, index: usize, result: Option<ur_result_t>) -> Status {
        let function = self.names[index];
        self.counts[index].fetch_add(1, Ordering::Relaxed);
        let code = result.unwrap_or(UR_RESULT_ERROR_UNINITIALIZED);
        if code != UR_RESULT_SUCCESS {
            let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
            errors.entry(function).or_default().insert(code.0);
        }
        Status {
            function,
            code,
            missing: result.is_none(),
        }
    }

    /// Functions called so far, each with its number of calls and the names of its errors.
    pub fn snapshot(&self) -> Vec<Called> {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = self
            .names
            .iter()
            .zip(&self.counts)
            .map(|(name, count)| Called {
                function: (*name).to_owned(),
                calls: count.load(Ordering::Relaxed),
                errors: errors
                    .get(name)
                    .into_iter()
                    .flatten()
                    .map(|code| name_of(*code))
                    .collect(),
            });
        rows.filter(|row| row.calls > 0).collect()
    }
}

/// The calls made to one function.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Called {
    pub function: String,
    pub calls: u64,
    pub errors: BTreeSet<String>,
}

fn name_of(code: u32) -> String {
    format!("{:?}", ur_result_t(code))
}

/// `file:line` of the caller, for messages.
#[track_caller]
pub fn here() -> String {
    let place = Location::caller();
    let file = place.file().rsplit("src/").next().unwrap_or(place.file());
    format!("{file}:{}", place.line())
}

//! The status of one call with the name of its function, and the count of calls.
//!
//! A test says which status it expects, and this module makes the message of a failure.

use crate::calls;
use crate::outcome::Stop;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use ur::abi::*;

/// The status of a call. A library that lacks the function gives `UNINITIALIZED`.
#[derive(Clone, Copy)]
#[must_use]
pub struct Status {
    pub function: &'static str,
    pub code: ur_result_t,
    missing: bool,
}

impl Status {
    /// Requires success. An unsupported feature stops the test as unsupported, not as failed.
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

    /// Requires exactly this error.
    #[track_caller]
    pub fn fails(self, code: ur_result_t) -> Result<(), Stop> {
        self.fails_with(&[code])
    }

    /// Requires one of these errors.
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

    /// Requires exactly this error, for the condition that the specification states in these words.
    ///
    /// A condition named in this way counts as covered. A bare code may have another cause.
    #[track_caller]
    pub fn fails_because(self, code: ur_result_t, words: &str) -> Result<(), Stop> {
        self.fails(code)?;
        let mut said = calls::said(self.function).iter();
        match said.find(|said| said.code == code && said.what.contains(words)) {
            Some(said) => provoked(self.function, said.what),
            None => {
                let function = self.function;
                return Err(Stop::failed(format!(
                    "{function} declares no {code:?} because of `{words}`"
                )));
            }
        }
        Ok(())
    }

    /// Requires any error.
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

    /// Whether the adapter reports the call as unsupported.
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

/// The conditions of the specification that this process has provoked, by function.
static PROVOKED: Mutex<BTreeSet<(&'static str, &'static str)>> = Mutex::new(BTreeSet::new());

/// The condition of a call whose arguments were all valid.
pub const VALID: &str = "valid arguments";

/// Records that a condition of the specification was met and answered as expected.
pub fn provoked(function: &'static str, what: &'static str) {
    let mut all = PROVOKED.lock().unwrap_or_else(PoisonError::into_inner);
    all.insert((function, what));
}

/// The number of calls of each function, and the errors they returned.
pub struct Calls {
    names: &'static [&'static str],
    counts: Vec<AtomicU64>,
    successes: Vec<AtomicU64>,
    errors: Mutex<BTreeMap<&'static str, BTreeSet<u32>>>,
}

impl Calls {
    pub fn new(names: &'static [&'static str]) -> Self {
        let zeros = || names.iter().map(|_| AtomicU64::new(0)).collect();
        Self {
            names,
            counts: zeros(),
            successes: zeros(),
            errors: Mutex::default(),
        }
    }

    /// Records one call of the function at `index`. `None` stands for a missing function.
    pub fn record(&self, index: usize, result: Option<ur_result_t>) -> Status {
        let function = self.names[index];
        self.counts[index].fetch_add(1, Ordering::Relaxed);
        let code = result.unwrap_or(UR_RESULT_ERROR_UNINITIALIZED);
        if code == UR_RESULT_SUCCESS {
            self.successes[index].fetch_add(1, Ordering::Relaxed);
        } else {
            let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
            errors.entry(function).or_default().insert(code.0);
        }
        Status {
            function,
            code,
            missing: result.is_none(),
        }
    }

    /// The functions called so far, each with its number of calls, its errors and its provoked conditions.
    pub fn snapshot(&self) -> Vec<Called> {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let provoked = PROVOKED.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |name: &str| {
            let of_function = provoked
                .iter()
                .filter(move |(function, _)| *function == name);
            of_function.map(|(_, what)| (*what).to_owned()).collect()
        };
        let row = |at: usize, name: &&'static str| Called {
            function: (*name).to_owned(),
            calls: self.counts[at].load(Ordering::Relaxed),
            successes: self.successes[at].load(Ordering::Relaxed),
            errors: errors
                .get(name)
                .into_iter()
                .flatten()
                .map(|code| name_of(*code))
                .collect(),
            provoked: of(name),
        };
        let rows = self.names.iter().enumerate();
        rows.map(|(at, name)| row(at, name))
            .filter(|row| row.calls > 0)
            .collect()
    }
}

/// The calls made to one function.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Called {
    pub function: String,
    /// The number of calls.
    pub calls: u64,
    /// The number of calls that succeeded.
    pub successes: u64,
    /// The error codes that were returned.
    pub errors: BTreeSet<String>,
    /// Provoked conditions of the specification.
    pub provoked: BTreeSet<String>,
}

impl Called {
    /// Adds the calls that another process made to the same function.
    pub fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.successes += other.successes;
        self.errors.extend(other.errors);
        self.provoked.extend(other.provoked);
    }
}

fn name_of(code: u32) -> String {
    format!("{:?}", ur_result_t(code))
}

/// `file:line` of the caller, for messages.
#[track_caller]
pub fn here() -> String {
    let location = Location::caller();
    let file = location
        .file()
        .rsplit("src/")
        .next()
        .unwrap_or(location.file());
    format!("{file}:{}", location.line())
}

//! The answer of one call, tied to the name of the function that gave it, and the count of calls.
//! A test says what it expects of a `Status`; the message of a failure is made here.

use crate::calls;
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

    /// Exactly this error, for the reason that the specification gives in these words. What is shown
    /// by a test in this way counts as covered; a bare code might have had another reason.
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

/// What of the specification the tests of this process have provoked, by function.
static PROVOKED: Mutex<BTreeSet<(&'static str, &'static str)>> = Mutex::new(BTreeSet::new());

/// A call whose arguments were all valid, as a condition among others.
pub const VALID: &str = "valid arguments";

/// Notes that a condition of the specification was met, and answered as it should.
pub fn provoked(function: &'static str, what: &'static str) {
    let mut all = PROVOKED.lock().unwrap_or_else(PoisonError::into_inner);
    all.insert((function, what));
}

/// How often each function was called, and which errors it returned.
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

    /// Notes one call of the function at `index`; no result means that there is no such function.
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

    /// Functions called so far, each with its number of calls, the names of its errors and what was
    /// provoked of its conditions.
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
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Called {
    pub function: String,
    pub calls: u64,
    pub successes: u64,
    pub errors: BTreeSet<String>,
    /// Conditions of the specification.
    pub provoked: BTreeSet<String>,
}

impl Called {
    /// With the calls that another process made to the same function.
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

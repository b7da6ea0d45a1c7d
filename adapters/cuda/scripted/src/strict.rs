//! Calls in which the real driver may wait for work of devices, and keep its lock meanwhile.
//!
//! The manual says "may" of most of them, and a program meets it rarely. In this mode they always wait. A caller
//! that makes such a call while a device waits for that same caller never gets an answer.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::time::Duration;

use crate::driver::{DriverGuard, FakeDriver, current, hold};
use crate::stream::wait_until;

/// What the calls of [`hold_idle`] do while a device has work.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Strictness {
    /// The calls return at once.
    #[default]
    Lenient,
    /// The calls wait for the work.
    Waits,
    /// The calls wait for the work, and no other call of any thread returns meanwhile.
    Locks,
}

impl Strictness {
    pub fn of(number: usize) -> Self {
        match number {
            0 => Self::Lenient,
            1 => Self::Waits,
            _ => Self::Locks,
        }
    }
}

/// Between two looks at the work that a call waits for.
const PAUSE: Duration = Duration::from_micros(200);

/// Begins a call that may wait for all work of a context, or of all contexts if there is none.
pub fn hold_idle(context: Option<usize>) -> DriverGuard {
    let mut driver = hold();
    match driver.strictness {
        Strictness::Lenient => driver,
        Strictness::Waits => {
            drop(driver);
            wait_until(|driver| driver.is_idle(context))
        }
        Strictness::Locks => loop {
            driver.pump();
            if driver.is_idle(context) {
                return driver;
            }
            std::thread::sleep(PAUSE);
        },
    }
}

/// Code that the driver loads at its first use in a context.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// A function of a module.
    Function(usize),
    /// The driver's own, for a call of this name.
    Own(&'static str),
}

/// What was loaded in each context.
pub type Loaded = BTreeSet<(usize, Code)>;

/// Begins a call that uses code on a stream, and loads it at the first use.
pub fn hold_loaded(stream: *mut c_void, code: Code) -> DriverGuard {
    let mut driver = hold();
    if driver.strictness == Strictness::Lenient {
        return driver;
    }
    let context = driver.context_of_stream(stream).unwrap_or_else(current);
    match driver.loaded.insert((context, code)) {
        true => {
            drop(driver);
            hold_idle(Some(context))
        }
        false => driver,
    }
}

impl FakeDriver {
    fn is_idle(&self, context: Option<usize>) -> bool {
        let concerns = |own: usize| context.is_none_or(|context| context == own);
        let mut streams = self.streams.values();
        streams.all(|stream| stream.commands.is_empty() || !concerns(stream.context))
    }
}

//! A test: a suite, a name and a function. This module knows no test and no adapter.

use crate::fixture::Fixture;
use crate::fresh::Fresh;
use crate::outcome::Done;
use std::borrow::Cow;

type DeviceTest = Box<dyn Fn(&Fixture) -> Done + Send + Sync>;
type ProcessTest = Box<dyn Fn(&Fresh) -> Done + Send + Sync>;

/// The function of a test and its surroundings.
pub enum Body {
    /// A device of an initialised loader, shared with other tests.
    Device(DeviceTest),
    /// A process of its own, in which the loader is not initialised.
    Process(ProcessTest),
}

pub struct Test {
    pub suite: &'static str,
    pub name: Cow<'static, str>,
    pub body: Body,
    /// Whether nothing of other tests may be left in its process, where that is possible.
    pub apart: bool,
}

impl Test {
    pub fn new(
        suite: &'static str,
        name: impl Into<Cow<'static, str>>,
        test: impl Fn(&Fixture) -> Done + Send + Sync + 'static,
    ) -> Self {
        Self {
            suite,
            name: name.into(),
            body: Body::Device(Box::new(test)),
            apart: false,
        }
    }

    pub fn process(
        suite: &'static str,
        name: impl Into<Cow<'static, str>>,
        test: impl Fn(&Fresh) -> Done + Send + Sync + 'static,
    ) -> Self {
        Self {
            suite,
            name: name.into(),
            body: Body::Process(Box::new(test)),
            apart: true,
        }
    }

    /// The test in a process in which no other test ran.
    pub fn apart(self) -> Self {
        Self {
            apart: true,
            ..self
        }
    }

    /// `suite::name`.
    pub fn full_name(&self) -> String {
        format!("{}::{}", self.suite, self.name)
    }

    /// The sentence that says what the test checks.
    pub fn rule(&self) -> Cow<'static, str> {
        crate::rules::of(self.suite, &self.name).unwrap_or_default()
    }

    pub fn needs_own_process(&self) -> bool {
        matches!(self.body, Body::Process(_))
    }
}

/// `tests!["suite"; one, two]` makes device tests of the named functions.
///
/// The doc comment of each function begins with one sentence that says the rule it checks.
#[macro_export]
macro_rules! tests {
    ($suite:expr; $($test:ident),+ $(,)?) => {
        vec![$($crate::registry::Test::new($suite, stringify!($test), $test)),+]
    };
}

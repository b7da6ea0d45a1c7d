//! What a test is: a suite, a name and a function. Knows no test and no adapter.

use crate::fixture::Fixture;
use crate::fresh::Fresh;
use crate::outcome::Done;
use std::borrow::Cow;

type DeviceTest = Box<dyn Fn(&Fixture) -> Done + Send + Sync>;
type ProcessTest = Box<dyn Fn(&Fresh) -> Done + Send + Sync>;

/// What a test runs on.
pub enum Body {
    /// A device of an initialised loader, which it shares with other tests.
    Device(DeviceTest),
    /// A process of its own, in which the loader has not been initialised.
    Process(ProcessTest),
}

pub struct Test {
    pub suite: &'static str,
    pub name: Cow<'static, str>,
    pub body: Body,
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
        }
    }

    /// `suite::name`.
    pub fn full_name(&self) -> String {
        format!("{}::{}", self.suite, self.name)
    }

    pub fn needs_own_process(&self) -> bool {
        matches!(self.body, Body::Process(_))
    }
}

/// `tests!["suite"; one, two]`: the named functions as device tests.
#[macro_export]
macro_rules! tests {
    ($suite:expr; $($test:ident),+ $(,)?) => {
        vec![$($crate::registry::Test::new($suite, stringify!($test), $test)),+]
    };
}

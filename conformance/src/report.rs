//! The report of a run: lines on the terminal, JUnit XML and JSON.

use crate::coverage::Coverage;
use crate::expectations::Verdict;
use crate::fixture::Identity;
use crate::status::Called;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// One judged test.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Row {
    pub suite: String,
    pub test: String,
    /// The rule that the test checks.
    pub rule: String,
    #[serde(flatten)]
    pub verdict: Verdict,
    pub seconds: f64,
    /// What the test wrote to its standard streams.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub output: String,
}

impl Row {
    /// The line about the test. A failure has the rule that was violated and the output in further lines.
    pub fn line(&self) -> String {
        let (word, message) = match &self.verdict {
            Verdict::Passed => ("ok", ""),
            Verdict::Failed(message) => ("FAILED", message.as_str()),
            Verdict::Unsupported(message) => ("not supported", message.as_str()),
            Verdict::ExpectedFailure(message) => ("known failure", message.as_str()),
            Verdict::OutdatedExpectation(message) => ("OUTDATED", message.as_str()),
            Verdict::Skipped(message) => ("skipped", message.as_str()),
        };
        let mut line = format!("{word:<13} {}::{}", self.suite, self.test);
        if !message.is_empty() {
            line.push_str(": ");
            line.push_str(message);
        }
        if matches!(self.verdict, Verdict::Failed(_)) {
            line.push_str("\n    rule: ");
            line.push_str(&self.rule);
            for text in self.output.lines() {
                line.push_str("\n    | ");
                line.push_str(text);
            }
        }
        line
    }
}

/// The number of tests by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Totals {
    pub passed: usize,
    pub failed: usize,
    pub unsupported: usize,
    pub expected_failures: usize,
    pub outdated_expectations: usize,
    pub skipped: usize,
}

impl Totals {
    pub fn of(rows: &[Row]) -> Self {
        let mut totals = Self::default();
        for row in rows {
            *match row.verdict {
                Verdict::Passed => &mut totals.passed,
                Verdict::Failed(_) => &mut totals.failed,
                Verdict::Unsupported(_) => &mut totals.unsupported,
                Verdict::ExpectedFailure(_) => &mut totals.expected_failures,
                Verdict::OutdatedExpectation(_) => &mut totals.outdated_expectations,
                Verdict::Skipped(_) => &mut totals.skipped,
            } += 1;
        }
        totals
    }
}

impl Totals {
    /// Whether every test ended as expected.
    pub fn as_expected(&self) -> bool {
        self.failed == 0 && self.outdated_expectations == 0
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} not supported by the adapter, {} skipped",
            self.passed, self.failed, self.unsupported, self.skipped
        )
    }
}

/// A whole run.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "ur-conformance --json")]
pub struct Run {
    /// The path of the loader's library.
    pub loader: String,
    /// The label in the coverage.
    pub label: String,
    #[serde(flatten)]
    pub identity: Identity,
    pub totals: Totals,
    pub seconds: f64,
    pub tests: Vec<Row>,
    pub calls: Vec<Called>,
    pub coverage: Coverage,
}

impl Run {
    /// The closing lines. The last one has the totals.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let known = self.totals.expected_failures;
        if known > 0 {
            let tests = if known == 1 { "test" } else { "tests" };
            text += &format!(
                "{known} {tests} failed as the expectations say, which is no fault of this run\n"
            );
        }
        let outdated: Vec<&Row> = self
            .tests
            .iter()
            .filter(|row| matches!(row.verdict, Verdict::OutdatedExpectation(_)))
            .collect();
        if !outdated.is_empty() {
            text +=
                "The expectations no longer hold, which fails the run; correct or remove them:\n";
        }
        for row in outdated {
            text += &format!("  {}\n", row.line());
        }
        text + &self.totals.to_string()
    }

    pub fn write_json(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        std::fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
    }

    pub fn write_junit(&self, path: &Path) -> Result<(), String> {
        let mut suites: BTreeMap<&str, TestSuite> = BTreeMap::new();
        for row in &self.tests {
            let suite = suites.entry(&row.suite).or_insert_with(|| {
                TestSuite::new(format!("{}::{}", self.identity.adapter, row.suite))
            });
            suite.add_test_case(case(row));
        }
        let mut report = Report::new("ur-conformance");
        report.set_time(Duration::from_secs_f64(self.seconds));
        report.add_test_suites(suites.into_values());
        let text = report.to_string().map_err(|error| error.to_string())?;
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    }
}

fn case(row: &Row) -> TestCase {
    let skipped = |kind: &str, message: &str| {
        let mut status = TestCaseStatus::skipped();
        status.set_type(kind).set_message(message);
        status
    };
    let failure = |kind: &str, message: &str| {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status.set_type(kind).set_message(message);
        status
    };
    let status = match &row.verdict {
        Verdict::Passed => TestCaseStatus::success(),
        Verdict::Failed(message) => {
            let mut status = failure("failure", message);
            status.set_description(format!("rule: {}", row.rule));
            status
        }
        Verdict::OutdatedExpectation(message) => failure("outdated expectation", message),
        Verdict::Unsupported(message) => skipped("unsupported", message),
        Verdict::ExpectedFailure(message) => skipped("expected failure", message),
        Verdict::Skipped(message) => skipped("skipped", message),
    };
    let mut case = TestCase::new(row.test.as_str(), status);
    case.set_classname(row.suite.as_str())
        .set_time(Duration::from_secs_f64(row.seconds));
    if !row.output.is_empty() {
        case.set_system_err(row.output.as_str());
    }
    case
}

//! Known gaps and faults of an adapter, read from a file, and the judgement of a test's outcome by them.
//!
//! An entry that no longer holds fails the run, so that the files stay correct.

use crate::outcome::Raw;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One line of an expectations file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// `suite::test`, in which `*` stands for any text.
    pub test: String,
    pub kind: Kind,
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The adapter reports the feature as unsupported.
    Unsupported,
    /// The adapter does it wrong.
    Fails,
}

/// The final result of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "outcome", content = "message")]
pub enum Verdict {
    /// The rule holds.
    Passed,
    /// The rule is violated, or an expectation does not hold.
    Failed(String),
    /// The device refuses, as it or the expectations say.
    Unsupported(String),
    /// The rule is violated, as the expectations say.
    ExpectedFailure(String),
    /// The expectation for the test no longer holds.
    OutdatedExpectation(String),
    /// The test cannot run on the device.
    Skipped(String),
}

#[derive(Clone, Debug, Default)]
pub struct Expectations {
    entries: Vec<Expectation>,
}

/// The files compiled into the program, by adapter.
const EMBEDDED: &[(&str, &str)] = &[
    ("cuda", include_str!("../expectations/cuda.yml")),
    ("level_zero", include_str!("../expectations/level_zero.yml")),
    ("native_cpu", include_str!("../expectations/native_cpu.yml")),
    ("opencl", include_str!("../expectations/opencl.yml")),
];

impl Expectations {
    pub fn parse(text: &str) -> Result<Self, String> {
        let entries: Option<Vec<Expectation>> =
            yaml_serde::from_str(text).map_err(|error| error.to_string())?;
        Ok(Self {
            entries: entries.unwrap_or_default(),
        })
    }

    /// The compiled-in expectations for an adapter; empty if there is no file.
    pub fn embedded(adapter: &str) -> Result<Self, String> {
        match EMBEDDED.iter().find(|(name, _)| *name == adapter) {
            Some((name, text)) => {
                Self::parse(text).map_err(|error| format!("expectations/{name}.yml: {error}"))
            }
            None => Ok(Self::default()),
        }
    }

    /// Adds another file's entries. If two match a test, the earlier file's applies.
    pub fn append(&mut self, mut other: Self) {
        self.entries.append(&mut other.entries);
    }

    /// Judges the outcome of a test.
    pub fn judge(&self, test: &str, raw: Raw) -> Verdict {
        let entry = self.entries.iter().find(|entry| matches(&entry.test, test));
        match (raw, entry) {
            (Raw::Skipped(reason), _) => Verdict::Skipped(reason),
            (
                Raw::Unsupported {
                    what,
                    documented: true,
                },
                None,
            ) => Verdict::Unsupported(what),
            (
                Raw::Unsupported { what, .. },
                Some(Expectation {
                    kind: Kind::Unsupported,
                    reason,
                    ..
                }),
            ) => Verdict::Unsupported(format!("{reason}: {what}")),
            (
                Raw::Unsupported {
                    what,
                    documented: false,
                },
                None,
            ) => Verdict::Failed(format!(
                "{what}, though no info query and no expectation says so"
            )),
            (
                Raw::Failed(message),
                Some(Expectation {
                    kind: Kind::Fails,
                    reason,
                    ..
                }),
            ) => Verdict::ExpectedFailure(format!("{reason}: {message}")),
            (Raw::Failed(message), _) => Verdict::Failed(message),
            (Raw::Passed, None) => Verdict::Passed,
            (Raw::Passed, Some(entry)) => {
                let kind = if entry.kind == Kind::Fails {
                    "to fail"
                } else {
                    "to be unsupported"
                };
                Verdict::OutdatedExpectation(format!(
                    "passed, though expected {kind} (`{}`: {})",
                    entry.test, entry.reason
                ))
            }
            (Raw::Unsupported { what, .. }, Some(entry)) => Verdict::OutdatedExpectation(format!(
                "not supported, though expected to fail (`{}`: {}): {what}",
                entry.test, entry.reason
            )),
        }
    }

    /// Entries that match none of the tests.
    pub fn unused<'a>(&'a self, tests: &[String]) -> Vec<&'a str> {
        let unused = self
            .entries
            .iter()
            .filter(|entry| !tests.iter().any(|test| matches(&entry.test, test)));
        unused.map(|entry| entry.test.as_str()).collect()
    }
}

/// Whether a text matches a pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let cases = [
            ("usm::fill", "usm::fill", true),
            ("usm::fill", "usm::fill_2d", false),
            ("usm::*", "usm::fill_2d", true),
            ("*", "usm::fill", true),
            ("*fill*", "usm::fill_2d", true),
            ("usm::*_2d", "usm::fill_2d", true),
            ("usm::*_2d", "usm::fill", false),
            ("a*b*a", "aba", true),
            ("a*a", "a", false),
        ];
        for (pattern, text, want) in cases {
            assert_eq!(matches(pattern, text), want, "{pattern} {text}");
        }
    }

    fn file() -> Expectations {
        let text = "
- {test: 'a::lacks', kind: unsupported, reason: never had it}
- {test: 'a::wrong*', kind: fails, reason: known}
";
        Expectations::parse(text).expect("a valid file")
    }

    #[test]
    fn judgement() {
        let failed = || Raw::Failed("f".into());
        let lacks = |documented| Raw::Unsupported {
            what: "w".into(),
            documented,
        };
        let is = |test: &str, raw| match file().judge(test, raw) {
            Verdict::Passed => "passed",
            Verdict::Failed(_) => "failed",
            Verdict::Unsupported(_) => "unsupported",
            Verdict::ExpectedFailure(_) => "expected",
            Verdict::OutdatedExpectation(_) => "outdated",
            Verdict::Skipped(_) => "skipped",
        };
        assert_eq!(is("a::other", Raw::Passed), "passed");
        assert_eq!(is("a::other", failed()), "failed");
        assert_eq!(is("a::other", lacks(true)), "unsupported");
        assert_eq!(is("a::other", lacks(false)), "failed");
        assert_eq!(is("a::lacks", lacks(false)), "unsupported");
        assert_eq!(is("a::lacks", Raw::Passed), "outdated");
        assert_eq!(is("a::lacks", failed()), "failed");
        assert_eq!(is("a::wrong_1", failed()), "expected");
        assert_eq!(is("a::wrong_1", Raw::Passed), "outdated");
        assert_eq!(is("a::wrong_1", lacks(true)), "outdated");
        assert_eq!(is("a::wrong_1", Raw::Skipped("s".into())), "skipped");
    }

    #[test]
    fn embedded_files_are_valid() {
        for (adapter, _) in EMBEDDED {
            Expectations::embedded(adapter).expect(adapter);
        }
    }

    #[test]
    fn an_entry_without_a_test_is_found() {
        assert_eq!(file().unused(&["a::lacks".to_owned()]), ["a::wrong*"]);
    }
}

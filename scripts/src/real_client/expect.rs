//! Known failures of clients: conformance/sycl/expectations.yml.
//!
//! An expected failure that does not occur is a failure, as with ur-conformance.

use super::environment::Runtime;
use super::setup::Target;
use anyhow::{Context as _, Result};
use serde::Deserialize;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Skipped,
    Fails,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    program: String,
    /// The client, or `*`.
    part: String,
    /// A target, or an adapter with any driver.
    on: Vec<String>,
    /// The release of libsycl; any without it.
    runtime: Option<String>,
    kind: Kind,
    /// The reason, for readers of the file.
    #[serde(rename = "reason")]
    _reason: String,
}

#[derive(Debug, Default)]
pub struct Expectations(Vec<Entry>);

impl Expectations {
    pub fn load(root: &Path) -> Result<Self> {
        let path = root.join("conformance/sycl/expectations.yml");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    pub fn parse(text: &str) -> Result<Self> {
        Ok(Self(yaml_serde::from_str(text)?))
    }

    /// The expected result of a part; none if it should pass.
    pub fn find(
        &self,
        program: &str,
        part: &str,
        target: Target,
        runtime: Runtime,
    ) -> Option<Kind> {
        let matches = |entry: &&Entry| {
            entry.program == program
                && (entry.part == "*" || entry.part == part)
                && entry
                    .on
                    .iter()
                    .any(|on| on == target.name() || on == target.adapter())
                && entry
                    .runtime
                    .as_deref()
                    .is_none_or(|version| version == runtime.version())
        };
        self.0.iter().find(matches).map(|entry| entry.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_is_expected_to_work() {
        let text = "
- {program: usm, part: fills, on: [opencl], kind: fails, reason: r}
- {program: usm, part: '*', on: [native_cpu, opencl/pocl], runtime: 2026.1.2, kind: skipped, reason: r}
";
        let expected = Expectations::parse(text).unwrap();
        let find = |part, target, runtime| expected.find("usm", part, target, runtime);
        let (old, new) = (Runtime::V2026_1_2, Runtime::V2026_2_0);
        assert_eq!(find("fills", Target::Intel, old), Some(Kind::Fails));
        assert_eq!(find("copies", Target::Intel, old), None);
        assert_eq!(find("copies", Target::Pocl, old), Some(Kind::Skipped));
        assert_eq!(find("copies", Target::Pocl, new), None);
        assert_eq!(find("copies", Target::NativeCpu, old), Some(Kind::Skipped));
        assert_eq!(expected.find("events", "fills", Target::Intel, old), None);
        assert!(Expectations::parse("- {program: usm}").is_err());
    }

    #[test]
    fn the_file_is_well_formed() {
        Expectations::load(&crate::repository()).unwrap();
    }
}

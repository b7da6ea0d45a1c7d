//! dpctl's test suite from its package, on Intel's libsycl over our adapter.

use super::environment::Environment;
use super::output::Output;
use super::process;
use super::report::Outcome;
use super::setup::{Setup, Target};
use anyhow::Result;
use std::time::Duration;

/// Least number of passed tests. The suite silently skips nearly everything without a device, so only the
/// count tells. Intel's adapter passes one less, and hangs in that one.
const MIN_PASSED: u32 = 1425;
const LIMIT: Duration = Duration::from_secs(1800);

/// The tests' folder, the device, and the libraries that were loaded to find it.
const QUERY: &str = r#"
import dpctl, os
print(os.path.join(os.path.dirname(dpctl.__file__), "tests"))
print([device.name for device in dpctl.get_devices()])
maps = [line.split()[-1] for line in open("/proc/self/maps")]
print("\n".join(sorted({"library " + path for path in maps if "/libur_" in path})))
"#;

/// Runs the whole suite.
pub(super) fn run(setup: &Setup<'_>, environment: &Environment, target: Target) -> Result<Outcome> {
    let file = |name: &str| environment.programs().join(format!("dpctl.{name}"));
    let (out, err) = (file("look.out"), file("look.err"));
    let mut query = setup.command(environment, target, &environment.python());
    let ended = process::run(query.args(["-c", QUERY]), &out, &err, LIMIT)?;
    if ended.code() != Some(0) {
        return Ok(Outcome::Failed(format!(
            "{ended}\n{}",
            process::tail(&err, 5)
        )));
    }
    let found = std::fs::read_to_string(&out)?;
    if let Err(fault) = setup.check_libraries(environment, target, &Output::parse(&found).libraries)
    {
        return Ok(Outcome::Failed(fault));
    }
    let (out, err) = (file("out"), file("err"));
    let mut tests = setup.command(environment, target, &environment.python());
    tests
        .args([
            "-m",
            "pytest",
            "-q",
            "--timeout=300",
            "-p",
            "no:cacheprovider",
        ])
        .arg(found.lines().next().unwrap_or_default())
        .current_dir(environment.programs());
    let ended = process::run(&mut tests, &out, &err, LIMIT)?;
    let last = process::tail(&out, 1);
    Ok(match Counts::parse(&last) {
        Some(counts) if ended.code() == Some(0) => match counts.judge() {
            Ok(()) => Outcome::Passed(last),
            Err(fault) => Outcome::Failed(fault),
        },
        _ => Outcome::Failed(format!(
            "{ended}\n{}\n{}",
            process::tail(&out, 20),
            process::tail(&err, 5)
        )),
    })
}

/// Totals in pytest's summary.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u32,
    failed: u32,
    errors: u32,
    skipped: u32,
    deselected: u32,
}

impl Counts {
    /// pytest's last line, such as `2 failed, 10 passed, 1 skipped in 0.12s`.
    fn parse(line: &str) -> Option<Counts> {
        let (list, _) = line.trim_matches(['=', ' ']).rsplit_once(" in ")?;
        let mut counts = Counts::default();
        for item in list.split(", ") {
            let (count, what) = item.split_once(' ')?;
            let count = count.parse().ok()?;
            match what {
                "passed" => counts.passed = count,
                "failed" => counts.failed = count,
                "error" | "errors" => counts.errors = count,
                "skipped" => counts.skipped = count,
                "deselected" => counts.deselected = count,
                "xfailed" | "xpassed" | "warning" | "warnings" | "rerun" => {}
                _ => return None,
            }
        }
        Some(counts)
    }

    fn judge(&self) -> Result<(), String> {
        if self.failed + self.errors > 0 {
            return Err(format!("{} failed, {} errors", self.failed, self.errors));
        }
        if self.deselected > 0 {
            return Err(format!("{} deselected", self.deselected));
        }
        if self.passed < MIN_PASSED {
            return Err(format!(
                "only {} passed, {MIN_PASSED} are expected",
                self.passed
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines() {
        let counts = |passed, failed, errors, skipped, deselected| {
            Some(Counts {
                passed,
                failed,
                errors,
                skipped,
                deselected,
            })
        };
        for (line, wanted) in [
            (
                "1425 passed, 1906 skipped in 53.33s",
                counts(1425, 0, 0, 1906, 0),
            ),
            (
                "1425 passed, 1906 skipped in 98.53s (0:01:38)",
                counts(1425, 0, 0, 1906, 0),
            ),
            (
                "==== 1 failed, 3 passed, 2 warnings, 1 error in 0.1s ====",
                counts(3, 1, 1, 0, 0),
            ),
            (
                "1424 passed, 1906 skipped, 1 deselected in 50s",
                counts(1424, 0, 0, 1906, 1),
            ),
            ("2 xfailed, 1 xpassed in 1s", counts(0, 0, 0, 0, 0)),
            ("no tests ran in 0.01s", None),
            ("+++++ Timeout +++++", None),
            ("", None),
        ] {
            assert_eq!(Counts::parse(line), wanted, "{line}");
        }
    }

    #[test]
    fn few_are_too_few() {
        let judge = |line| Counts::parse(line).unwrap().judge();
        assert_eq!(judge("1425 passed, 1906 skipped in 1s"), Ok(()));
        assert!(judge("115 passed, 3216 skipped in 1s").is_err());
        assert!(judge("1 failed, 1425 passed in 1s").is_err());
        assert!(judge("1425 passed, 1 error in 1s").is_err());
        assert!(judge("1425 passed, 1 deselected in 1s").is_err());
    }
}

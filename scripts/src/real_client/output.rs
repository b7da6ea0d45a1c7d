//! The output of SYCL programs about their parts (conformance/sycl/client.hpp), and its evaluation.

use super::expect::Kind;
use super::process::Ended;
use super::report::Outcome;

/// The exit code of a program that skipped every part.
const ALL_SKIPPED: i32 = 77;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Ok,
    Skipped(String),
    Failed(String),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Output {
    pub parts: Vec<(String, End)>,
    /// Loaded libraries of Unified Runtime, in order.
    pub libraries: Vec<String>,
}

impl Output {
    pub fn parse(text: &str) -> Self {
        let mut output = Output::default();
        for line in text.lines() {
            if let Some(path) = line.strip_prefix("library ") {
                output.libraries.push(path.to_owned());
            } else if let Some((part, end)) = line
                .strip_prefix("part ")
                .and_then(|rest| rest.split_once(' '))
            {
                let end = match end.split_once(": ") {
                    Some(("skipped", why)) => End::Skipped(why.to_owned()),
                    Some(("failed", why)) => End::Failed(why.to_owned()),
                    _ if end == "ok" => End::Ok,
                    _ => continue,
                };
                output.parts.push((part.to_owned(), end));
            }
        }
        output
    }

    /// The result of a run. `expected` knows the parts' known failures. With `strict` a skipped part must be
    /// a known one.
    pub fn judge(
        &self,
        ended: &Ended,
        expected: impl Fn(&str) -> Option<Kind>,
        strict: bool,
    ) -> Outcome {
        let (mut passed, mut known) = (0, 0);
        let (mut skipped, mut faults) = (Vec::new(), Vec::new());
        for (part, end) in &self.parts {
            match (end, expected(part)) {
                (End::Ok, None) => passed += 1,
                (End::Ok, Some(_)) => faults.push(format!(
                    "{part} passes, though expectations.yml says otherwise"
                )),
                (End::Skipped(why), Some(Kind::Skipped)) => skipped.push((part, why)),
                (End::Skipped(why), None) if !strict => skipped.push((part, why)),
                (End::Skipped(why), _) => faults.push(format!("{part} is skipped: {why}")),
                (End::Failed(_), Some(Kind::Fails)) => known += 1,
                (End::Failed(why), _) => faults.push(format!("{part}: {why}")),
            }
        }
        if ended.code() != Some(self.code()) {
            let after = self
                .parts
                .last()
                .map_or(String::new(), |(part, _)| format!(" after part {part}"));
            faults.push(format!("{ended}{after}"));
        }
        if !faults.is_empty() {
            return Outcome::Failed(faults.join("; "));
        }
        let mut summary = match self.parts.len() {
            0 => "one part".to_owned(),
            _ => format!("{passed} parts"),
        };
        if known > 0 {
            summary += &format!(", {known} failed as expected");
        }
        match skipped.as_slice() {
            [] => Outcome::Passed(summary),
            [(_, why), ..] if passed + known == 0 => Outcome::Skipped((*why).clone()),
            some => {
                let some: Vec<String> = some
                    .iter()
                    .map(|(part, why)| format!("{part} ({why})"))
                    .collect();
                Outcome::Passed(format!("{summary}, skipped: {}", some.join(", ")))
            }
        }
    }

    /// The exit code that the program's parts imply.
    fn code(&self) -> i32 {
        let any = |end: fn(&End) -> bool| self.parts.iter().any(|(_, found)| end(found));
        match () {
            () if any(|end| matches!(end, End::Failed(_))) => 1,
            () if self.parts.is_empty() || any(|end| *end == End::Ok) => 0,
            () => ALL_SKIPPED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    fn exit(code: i32) -> Ended {
        Ended::By(ExitStatus::from_raw(code << 8))
    }

    fn judge(text: &str, ended: Ended, expected: &[(&str, Kind)], strict: bool) -> Outcome {
        let find = |part: &str| {
            expected
                .iter()
                .find(|(name, _)| *name == part)
                .map(|(_, kind)| *kind)
        };
        Output::parse(text).judge(&ended, find, strict)
    }

    #[test]
    fn parsed() {
        let text = "device A part\npart a ok\npart b skipped: no: none\npart c failed: 1 part d\n\
                    part of something\nlibrary /l/libur_x.so.0\n";
        let wanted = Output {
            parts: vec![
                ("a".to_owned(), End::Ok),
                ("b".to_owned(), End::Skipped("no: none".to_owned())),
                ("c".to_owned(), End::Failed("1 part d".to_owned())),
            ],
            libraries: vec!["/l/libur_x.so.0".to_owned()],
        };
        assert_eq!(Output::parse(text), wanted);
    }

    #[test]
    fn programs_without_parts_are_their_exit_status() {
        assert_eq!(
            judge("ok\n", exit(0), &[], true),
            Outcome::Passed("one part".to_owned())
        );
        assert_eq!(
            judge("", exit(1), &[], true),
            Outcome::Failed("exit status 1".to_owned())
        );
        let killed = Ended::By(ExitStatus::from_raw(11));
        assert_eq!(
            judge("", killed, &[], true),
            Outcome::Failed("killed by signal 11".to_owned())
        );
    }

    #[test]
    fn crashes_say_where() {
        let killed = Ended::By(ExitStatus::from_raw(6));
        let wanted = Outcome::Failed("killed by signal 6 after part a".to_owned());
        assert_eq!(judge("part a ok\n", killed, &[], false), wanted);
    }

    #[test]
    fn skips_are_notes_unless_strict() {
        let text = "part a ok\npart b skipped: why\n";
        let passed = Outcome::Passed("1 parts, skipped: b (why)".to_owned());
        assert_eq!(judge(text, exit(0), &[], false), passed);
        assert_eq!(judge(text, exit(0), &[("b", Kind::Skipped)], true), passed);
        let failed = Outcome::Failed("b is skipped: why".to_owned());
        assert_eq!(judge(text, exit(0), &[], true), failed);
        assert_eq!(judge(text, exit(0), &[("b", Kind::Fails)], false), failed);
        let all = "part a skipped: one\npart b skipped: two\n";
        assert_eq!(
            judge(all, exit(77), &[], false),
            Outcome::Skipped("one".to_owned())
        );
    }

    #[test]
    fn expectations_must_hold() {
        let text = "part a ok\npart b failed: why\n";
        assert_eq!(
            judge(text, exit(1), &[], false),
            Outcome::Failed("b: why".to_owned())
        );
        let wanted = Outcome::Passed("1 parts, 1 failed as expected".to_owned());
        assert_eq!(judge(text, exit(1), &[("b", Kind::Fails)], true), wanted);
        for kind in [Kind::Fails, Kind::Skipped] {
            let wanted = "a passes, though expectations.yml says otherwise".to_owned();
            assert_eq!(
                judge("part a ok\n", exit(0), &[("a", kind)], false),
                Outcome::Failed(wanted)
            );
        }
        assert_eq!(
            judge(text, exit(0), &[("b", Kind::Fails)], true),
            Outcome::Failed("exit status 0 after part b".to_owned())
        );
    }
}

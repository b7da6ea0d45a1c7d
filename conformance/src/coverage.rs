//! The coverage of the specification by a run: functions called with valid arguments, error conditions
//! provoked, and the reasons for the rest.
//!
//! A condition counts when a test met it and got the expected answer. The test is a generated case
//! (`suites::arguments`) or one that names the condition (`Status::fails_because`). A condition declared in
//! words counts when its code was returned, if the function declares this code nowhere else.

use crate::api;
use crate::calls::{FUNCTIONS, Function, Kind, Said, UNCHANGED};
use crate::report::Run;
use crate::status::{Called, VALID};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use ur::abi::*;

/// How a function was called, best first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// With success.
    Succeeded,
    /// With valid arguments, and refused as the specification allows.
    Refused,
    /// With wrong arguments only.
    Wrongly,
    Never,
}

/// A function of the tables, and how the run called it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FunctionRow {
    pub function: String,
    pub how: How,
    /// The reason why it was not called with valid arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A declared error condition, and whether the run provoked it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ConditionRow {
    pub function: String,
    pub code: String,
    pub what: String,
    pub provoked: bool,
    /// The reason why it was not provoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The coverage of the specification by a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Coverage {
    pub functions: Vec<FunctionRow>,
    pub conditions: Vec<ConditionRow>,
}

impl Coverage {
    pub fn of(calls: &[Called]) -> Self {
        let facts = Facts::of(calls);
        Self {
            functions: in_tables().map(|found| facts.function(found)).collect(),
            conditions: facts.conditions(),
        }
    }

    /// Functions called with valid arguments: `(with success, refused)`.
    pub fn called(&self) -> (usize, usize) {
        let count = |how: How| self.functions.iter().filter(|row| row.how == how).count();
        (count(How::Succeeded), count(How::Refused))
    }

    /// `(provoked, all)`.
    pub fn provoked(&self) -> (usize, usize) {
        let provoked = self.conditions.iter().filter(|row| row.provoked).count();
        (provoked, self.conditions.len())
    }

    /// The printed report: functions by adapter, conditions by adapter, and everything missing in all of them
    /// with the reasons.
    fn print(columns: &[(String, Self)]) {
        let width = api::FUNCTIONS
            .iter()
            .map(|name| name.len())
            .max()
            .unwrap_or(0);
        let names: String = columns
            .iter()
            .map(|(name, _)| format!(" {name:>12}"))
            .collect();
        console::outln!("{:width$}{names}", "function");
        let Some((_, coverage)) = columns.first() else {
            return;
        };
        for row in &coverage.functions {
            let cells: String = columns
                .iter()
                .map(|(_, of)| format!(" {:>12}", of.cell(&row.function)))
                .collect();
            console::outln!("{:width$}{cells}", row.function);
        }
        console::outln!("\nerror conditions provoked, of those declared");
        for row in &coverage.functions {
            let cells: String = columns
                .iter()
                .map(|(_, of)| format!(" {:>12}", of.conditions_cell(&row.function)))
                .collect();
            console::outln!("{:width$}{cells}", row.function);
        }
        let together = Self::union(columns);
        console::outln!("\nnot covered");
        for (reason, rows) in together.missing(columns) {
            console::outln!("{reason}:");
            for row in rows {
                console::outln!("  {row}");
            }
        }
        console::outln!("");
        for (name, of) in columns {
            of.sum_up(name);
        }
        if columns.len() > 1 {
            together.sum_up("together");
        }
    }

    fn sum_up(&self, name: &str) {
        let (succeeded, refused) = self.called();
        let (provoked, conditions) = self.provoked();
        console::outln!(
            "{name}: {} of {} functions called with valid arguments ({succeeded} with success, {refused} refused as documented), {provoked} of {conditions} error conditions provoked ({:.1} %)",
            succeeded + refused,
            self.functions.len(),
            self.percent()
        );
    }

    /// The number of declared error conditions that were provoked.
    fn percent(&self) -> f64 {
        let (provoked, conditions) = self.provoked();
        100.0 * provoked as f64 / conditions.max(1) as f64
    }

    /// Whether all functions were called with valid arguments, and at least this share of the conditions
    /// provoked.
    fn reaches(&self, percent: f64) -> bool {
        let (succeeded, refused) = self.called();
        succeeded + refused == self.functions.len() && self.percent() >= percent
    }

    /// The coverage of all columns together.
    fn union(columns: &[(String, Self)]) -> Self {
        let mut all = columns
            .first()
            .map(|(_, of)| of.clone())
            .unwrap_or_default();
        for (_, of) in columns {
            for row in &mut all.functions {
                let there = of
                    .functions
                    .iter()
                    .find(|other| other.function == row.function);
                if let Some(other) = there.filter(|other| other.how < row.how) {
                    *row = other.clone();
                }
            }
            for row in &mut all.conditions {
                let mut same = of.conditions.iter().filter(|other| other.is_same(row));
                if same.any(|other| other.provoked) {
                    row.provoked = true;
                    row.reason = None;
                }
            }
        }
        all
    }

    fn cell(&self, function: &str) -> &'static str {
        let row = self.functions.iter().find(|row| row.function == function);
        match row.map(|row| row.how) {
            Some(How::Succeeded) => "yes",
            Some(How::Refused) => "refused",
            Some(How::Wrongly) => "wrongly",
            Some(How::Never) | None => "-",
        }
    }

    fn conditions_cell(&self, function: &str) -> String {
        let of_function = || {
            self.conditions
                .iter()
                .filter(|row| row.function == function)
        };
        let provoked = of_function().filter(|row| row.provoked).count();
        format!("{provoked}/{}", of_function().count())
    }

    /// Missing entries by reason. The reasons of all columns count, since columns may differ in their
    /// support.
    fn missing(&self, columns: &[(String, Self)]) -> BTreeMap<String, Vec<String>> {
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in self.functions.iter().filter(|row| row.reason.is_some()) {
            let reason = reasons(columns, |of| {
                let mut rows = of.functions.iter();
                let same = rows.find(|other| other.function == row.function)?;
                same.reason.as_deref()
            });
            let line = format!("{}: a valid call", row.function);
            all.entry(reason).or_default().push(line);
        }
        for row in self.conditions.iter().filter(|row| row.reason.is_some()) {
            let reason = reasons(columns, |of| {
                let mut rows = of.conditions.iter();
                rows.find(|other| other.is_same(row))?.reason.as_deref()
            });
            let code = row.code.trim_start_matches("UR_RESULT_ERROR_");
            let line = format!("{}: {code}: {}", row.function, row.what);
            all.entry(reason).or_default().push(line);
        }
        all
    }

    /// An earlier run's coverage, with its label.
    pub fn read(path: &Path) -> Result<(String, Self), String> {
        #[derive(Deserialize)]
        struct Saved {
            label: String,
            coverage: Coverage,
        }
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let saved: Saved =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok((saved.label, saved.coverage))
    }

    /// Prints a run's coverage beside that of earlier ones. Returns whether they reach the goal together.
    pub fn report(run: &Run, other_runs: Vec<(String, Self)>, goal: Option<f64>) -> bool {
        let mut columns = vec![(run.label.clone(), run.coverage.clone())];
        columns.extend(other_runs);
        Self::print(&columns);
        let together = Self::union(&columns);
        let reached = goal.is_none_or(|goal| together.reaches(goal));
        if let (false, Some(goal)) = (reached, goal) {
            console::outln!("the goal is all functions, and {goal} % of the error conditions");
        }
        reached
    }
}

impl ConditionRow {
    fn is_same(&self, other: &Self) -> bool {
        (&self.function, &self.what, &self.code) == (&other.function, &other.what, &other.code)
    }
}

/// The columns' reasons, each with the labels of its columns where they differ.
fn reasons<'a>(
    columns: &'a [(String, Coverage)],
    reason: impl Fn(&'a Coverage) -> Option<&'a str>,
) -> String {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, of) in columns {
        let Some(reason) = reason(of) else { continue };
        match found.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(name),
            None => found.push((reason, vec![name])),
        }
    }
    match &found[..] {
        [(reason, _)] => (*reason).to_owned(),
        _ => {
            let reported = found.iter();
            let reported =
                reported.map(|(reason, names)| format!("{}: {reason}", names.join(", ")));
            reported.collect::<Vec<_>>().join("; ")
        }
    }
}

/// The recorded calls of a run.
struct Facts<'a> {
    calls: BTreeMap<&'a str, &'a Called>,
    /// Kinds of handle of which the device had one.
    kinds: BTreeSet<String>,
}

impl<'a> Facts<'a> {
    fn of(calls: &'a [Called]) -> Self {
        let calls: BTreeMap<&str, &Called> = calls
            .iter()
            .map(|call| (call.function.as_str(), call))
            .collect();
        let mut facts = Self {
            calls,
            kinds: BTreeSet::new(),
        };
        for function in FUNCTIONS {
            for case in function.cases {
                if facts.has(function.name, case.what) {
                    let kinds = function.needs(case.changes);
                    facts
                        .kinds
                        .extend(kinds.iter().map(|kind| format!("{kind:?}")));
                }
            }
        }
        facts
    }

    fn has(&self, function: &str, what: &str) -> bool {
        let call = self.calls.get(function);
        call.is_some_and(|call| call.provoked.contains(what))
    }

    fn how(&self, function: &str) -> How {
        match self.calls.get(function) {
            Some(call) if call.successes > 0 => How::Succeeded,
            Some(call) if call.provoked.contains(VALID) => How::Refused,
            Some(_) => How::Wrongly,
            None => How::Never,
        }
    }

    fn function(&self, function: &Function) -> FunctionRow {
        let how = self.how(function.name);
        let reason = match how {
            How::Succeeded | How::Refused => None,
            How::Wrongly | How::Never => Some(
                self.without(&function.needs(UNCHANGED))
                    .unwrap_or_else(|| NO_TEST.to_owned()),
            ),
        };
        FunctionRow {
            function: function.name.to_owned(),
            how,
            reason,
        }
    }

    /// The handles that the device did not have.
    fn without(&self, needs: &[Kind]) -> Option<String> {
        let names = needs.iter().map(|kind| format!("{kind:?}"));
        let missing: Vec<String> = names.filter(|kind| !self.kinds.contains(kind)).collect();
        (!missing.is_empty()).then(|| format!("the device makes no {}", missing.join(" and ")))
    }

    fn conditions(&self) -> Vec<ConditionRow> {
        let mut rows = Vec::new();
        for function in in_tables() {
            for case in function.cases {
                let provoked = self.has(function.name, case.what);
                let needs = function.needs(case.changes);
                let reason = (!provoked).then(|| self.why_not(function.name, &needs));
                rows.push(row(function.name, case.codes[0], case.what, reason));
            }
        }
        for function in in_tables() {
            for said in function.said {
                let returned = self
                    .calls
                    .get(function.name)
                    .is_some_and(|call| call.errors.contains(&format!("{:?}", said.code)));
                let provoked = self.has(function.name, said.what)
                    || (returned && is_only_one(function, said.code));
                let reason = (!provoked).then(|| self.why_not_said(function, said));
                rows.push(row(function.name, said.code, said.what, reason));
            }
        }
        rows
    }

    fn why_not(&self, function: &str, needs: &[Kind]) -> String {
        self.without(needs)
            .unwrap_or_else(|| match self.how(function) {
                How::Refused => "the function is not supported here".to_owned(),
                _ => NO_TEST.to_owned(),
            })
    }

    fn why_not_said(&self, function: &Function, said: &Said) -> String {
        let (name, what) = (function.name, said.what);
        let needs = function.needs(UNCHANGED);
        match (said.code, self.how(name)) {
            (UR_RESULT_ERROR_UNSUPPORTED_FEATURE, How::Succeeded) => SUPPORTED.to_owned(),
            (UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION, How::Succeeded) => {
                "all properties are supported here".to_owned()
            }
            (UR_RESULT_ERROR_INVALID_OPERATION, How::Succeeded) if what.contains("no access") => {
                SUPPORTED.to_owned()
            }
            _ => match WHY_NOT.iter().find(|(words, _)| what.contains(words)) {
                Some((_, why)) if self.without(&needs).is_none() => (*why).to_owned(),
                _ => self.why_not(name, &needs),
            },
        }
    }
}

const BOUNDS: &str = "only UR_LAYER_BOUNDS_CHECKING looks at where an allocation ends";
const SUPPORTED: &str = "the feature is supported here";

/// Reasons why some conditions are not provoked on any device, by words in them.
const WHY_NOT: [(&str, &str); 10] = [
    (
        "`launchPropList` holds a property",
        "refused as unsupported",
    ),
    (
        "the buffer of `hCommand` was not created updatable",
        "no command of such a buffer has a handle",
    ),
    ("beyond the end of its allocation", BOUNDS),
    ("beyond the end of the allocation", BOUNDS),
    ("exceeds the allocation", BOUNDS),
    ("valid program", "it would take a handle that is none"),
    (
        "failed to",
        "it would take a program that the device's compiler refuses",
    ),
    (
        "and the backend has a handle for each device",
        "the backend has no such handles",
    ),
    (
        "is null and the backend needs a valid program",
        "the backend needs none",
    ),
    (
        "but its address cannot be had",
        "every kernel's address can be had",
    ),
];

const NO_TEST: &str = "no test provokes it here";

fn row(function: &str, code: ur_result_t, what: &str, reason: Option<String>) -> ConditionRow {
    ConditionRow {
        function: function.to_owned(),
        code: format!("{code:?}"),
        what: what.to_owned(),
        provoked: reason.is_none(),
        reason,
    }
}

/// Whether a function declares a code for one condition alone.
fn is_only_one(function: &Function, code: ur_result_t) -> bool {
    let in_cases = function.cases.iter();
    let in_cases = in_cases.filter(|case| case.codes.contains(&code)).count();
    let in_words = function.said.iter().filter(|said| said.code == code);
    in_cases + in_words.count() == 1
}

/// The functions that adapters have.
fn in_tables() -> impl Iterator<Item = &'static Function> {
    FUNCTIONS.iter().filter(|function| function.in_tables)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The guide's table is compared with the runs in CI. What it counts against needs no run.
    #[test]
    fn the_guide_states_what_is_declared() {
        let page = include_str!("../../docs/src/conformance/running.md");
        let declared = Coverage::of(&[]);
        let conditions = declared.provoked().1;
        let head = format!(
            "| run | functions called with valid arguments, of {} | declared error conditions provoked, of {},{:03} |",
            declared.functions.len(),
            conditions / 1000,
            conditions % 1000
        );
        assert!(page.contains(&head), "running.md does not say {head}");
    }

    fn column(name: &str, how: How, conditions: &[(&str, Option<&str>)]) -> (String, Coverage) {
        let function = FunctionRow {
            function: "urF".into(),
            how,
            reason: None,
        };
        let condition = |(what, reason): &(&str, Option<&str>)| {
            let reason = reason.map(str::to_owned);
            row("urF", UR_RESULT_ERROR_INVALID_VALUE, what, reason)
        };
        let coverage = Coverage {
            functions: vec![function],
            conditions: conditions.iter().map(condition).collect(),
        };
        (name.to_owned(), coverage)
    }

    #[test]
    fn what_nobody_covers_has_everybodys_reason() {
        let (lacks, untried) = (Some("unsupported"), Some("no test"));
        let columns = [
            column(
                "one",
                How::Refused,
                &[("a", lacks), ("b", None), ("c", lacks)],
            ),
            column(
                "two",
                How::Succeeded,
                &[("a", untried), ("b", lacks), ("c", lacks)],
            ),
            column(
                "three",
                How::Refused,
                &[("a", lacks), ("b", lacks), ("c", lacks)],
            ),
        ];
        let together = Coverage::union(&columns);
        assert_eq!((together.provoked(), together.called()), ((1, 3), (1, 0)));
        let missing = together.missing(&columns);
        let reported: Vec<&str> = missing.keys().map(String::as_str).collect();
        assert_eq!(
            reported,
            ["one, three: unsupported; two: no test", "unsupported"]
        );
    }
}

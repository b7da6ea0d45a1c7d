//! The table of what the conformance runs exercise, in docs/src/conformance/running.md, against the reports
//! of those runs.

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The page that holds the table.
pub const PAGE: &str = "docs/src/conformance/running.md";

/// The label of a run in `scripts/coverage.sh`, and the first cell of its row.
const ROWS: [(&str, &str); 6] = [
    ("native_cpu", "native_cpu"),
    ("checked", "the same with bounds checking"),
    ("intel", "OpenCL, Intel's CPU driver"),
    ("pocl", "OpenCL, PoCL"),
    ("level_zero", "Level Zero, the driver that executes"),
    (
        "mock",
        "mock with full validation, tests of the interface only",
    ),
];

/// The fields of a report that matter here.
#[derive(Deserialize)]
struct Report {
    label: String,
    coverage: Coverage,
}

#[derive(Deserialize)]
struct Coverage {
    functions: Vec<Function>,
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Function {
    function: String,
    how: How,
}

/// How a run called a function, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum How {
    Succeeded,
    Refused,
    Wrongly,
    Never,
}

#[derive(Deserialize)]
struct Condition {
    function: String,
    code: String,
    what: String,
    provoked: bool,
}

/// What one run, or all together, exercised.
#[derive(Default)]
struct Exercised {
    functions: BTreeMap<String, How>,
    conditions: BTreeMap<[String; 3], bool>,
}

impl Exercised {
    fn add(&mut self, coverage: &Coverage) {
        for row in &coverage.functions {
            let how = self.functions.entry(row.function.clone());
            let how = how.or_insert(row.how);
            *how = row.how.min(*how);
        }
        for row in &coverage.conditions {
            let key = [&row.function, &row.code, &row.what].map(Clone::clone);
            *self.conditions.entry(key).or_default() |= row.provoked;
        }
    }

    fn called(&self, how: How) -> usize {
        self.functions.values().filter(|own| **own == how).count()
    }

    fn provoked(&self) -> usize {
        self.conditions.values().filter(|own| **own).count()
    }

    /// The row of one run.
    fn row(&self, name: &str, is_first: bool) -> String {
        let (succeeded, refused) = (self.called(How::Succeeded), self.called(How::Refused));
        let provoked = thousands(self.provoked());
        match is_first {
            true => format!(
                "| {name} | {succeeded} with success, {refused} refused as documented | {provoked} |"
            ),
            false => format!("| {name} | {succeeded}, {refused} | {provoked} |"),
        }
    }

    /// The row of all runs together.
    fn last_row(&self) -> String {
        let (succeeded, refused) = (self.called(How::Succeeded), self.called(How::Refused));
        let is_all = succeeded + refused == self.functions.len();
        let all = if is_all { ": all" } else { "" };
        let provoked = self.provoked();
        let percent = 100.0 * provoked as f64 / self.conditions.len().max(1) as f64;
        let provoked = thousands(provoked);
        format!(
            "| **together** | **{succeeded}, {refused}{all}** | **{provoked}: {percent:.1} %** |"
        )
    }

    fn head(&self) -> String {
        format!(
            "| run | functions called with valid arguments, of {} | declared error conditions provoked, of {} |",
            self.functions.len(),
            thousands(self.conditions.len())
        )
    }
}

fn thousands(number: usize) -> String {
    match number / 1000 {
        0 => number.to_string(),
        thousands => format!("{thousands},{:03}", number % 1000),
    }
}

/// The table as the reports have it: head, a row for each run, and a row for all together.
fn table(reports: &[Report]) -> Result<Vec<String>> {
    let mut together = Exercised::default();
    let mut rows = Vec::new();
    for (at, (label, name)) in ROWS.iter().enumerate() {
        let found = reports.iter().find(|report| report.label == *label);
        let report = found.with_context(|| format!("no report is labelled `{label}`"))?;
        let mut own = Exercised::default();
        own.add(&report.coverage);
        together.add(&report.coverage);
        rows.push(own.row(name, at == 0));
    }
    rows.push(together.last_row());
    let mut table = vec![together.head(), "|---|---|---|".to_owned()];
    table.append(&mut rows);
    Ok(table)
}

/// A number of the page may be so far from a report's: other releases of a driver and other processors answer a
/// few functions otherwise.
fn is_near(stated: f64, measured: f64) -> bool {
    (stated - measured).abs() <= f64::max(3.0, measured / 100.0)
}

/// The numbers of a table, line by line.
fn numbers(table: &str) -> Vec<Vec<f64>> {
    let of = |line: &str| {
        let line = line.replace(',', "");
        let words = line.split(|letter: char| !letter.is_ascii_digit() && letter != '.');
        words.filter_map(|word| word.parse().ok()).collect()
    };
    // A separator is part of a number, unless a space follows it.
    table.replace(", ", " ").lines().map(of).collect()
}

fn agree(stated: &str, measured: &str) -> bool {
    let (stated, measured) = (numbers(stated), numbers(measured));
    let near = |(stated, measured): (&Vec<f64>, &Vec<f64>)| {
        let mut pairs = stated.iter().zip(measured);
        stated.len() == measured.len() && pairs.all(|(a, b)| is_near(*a, *b))
    };
    stated.len() == measured.len() && stated.iter().zip(&measured).all(near)
}

/// Compares the page's table with the reports that `scripts/coverage.sh` wrote. With `write`, replaces the
/// table instead.
///
/// # Errors
/// Fails with the table of the reports if a number of the page's is not near, or if a report is missing.
pub fn check(root: &Path, reports: &[PathBuf], write: bool) -> Result<()> {
    let read = |path: &PathBuf| -> Result<Report> {
        let text = fs::read_to_string(path)?;
        Ok(serde_json::from_str(&text)?)
    };
    let reports: Result<Vec<Report>> = reports
        .iter()
        .map(|path| read(path).with_context(|| path.display().to_string()))
        .collect();
    let measured = table(&reports?)?.join("\n");
    let page = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let start = page
        .find("| run | functions called")
        .context("running.md has no table")?;
    let length = page[start..].find("\n\n").context("the table has no end")?;
    let stated = &page[start..start + length];
    if write {
        let replaced = page.replacen(stated, &measured, 1);
        return Ok(fs::write(root.join(PAGE), replaced)?);
    }
    ensure!(
        agree(stated, &measured),
        "{PAGE} differs from the reports; `cargo xtask coverage --write` with them replaces its table by\n{measured}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(label: &str, how: &str, provoked: bool) -> Report {
        let text = format!(
            r#"{{"label": "{label}", "coverage": {{
                "functions": [{{"function": "urA", "how": "{how}"}}],
                "conditions": [
                    {{"function": "urA", "code": "C", "what": "one", "provoked": {provoked}}},
                    {{"function": "urA", "code": "C", "what": "other", "provoked": false}}
                ]
            }}}}"#
        );
        serde_json::from_str(&text).expect("a report")
    }

    #[test]
    fn tables_agree_that_are_near() {
        let one = "| run | of 1,231 |\n| a | 163, 68 | **1,204: 97.8 %** |";
        assert_eq!(
            numbers(one),
            [vec![1231.0], vec![163.0, 68.0, 1204.0, 97.8]]
        );
        assert!(agree(one, one));
        assert!(agree(
            one,
            &one.replace("163", "165").replace("1,204", "1,195")
        ));
        for (right, wrong) in [("163", "167"), ("1,204", "1,180"), ("163, 68", "163")] {
            assert!(!agree(one, &one.replace(right, wrong)), "{wrong}");
        }
    }

    #[test]
    fn runs_count_together() {
        let reports = [
            report("native_cpu", "refused", false),
            report("checked", "never", true),
            report("intel", "wrongly", false),
            report("pocl", "succeeded", false),
            report("level_zero", "refused", false),
            report("mock", "never", false),
        ];
        let table = table(&reports).expect("all runs");
        assert!(table[0].ends_with(", of 1 | declared error conditions provoked, of 2 |"));
        assert_eq!(
            table[2..4],
            [
                "| native_cpu | 0 with success, 1 refused as documented | 0 |",
                "| the same with bounds checking | 0, 0 | 1 |"
            ]
        );
        assert_eq!(table[8], "| **together** | **1, 0: all** | **1: 50.0 %** |");
        assert!(super::table(&reports[1..]).is_err(), "a run is missing");
        assert_eq!([thousands(999), thousands(1203)], ["999", "1,203"]);
    }
}

//! Samples, and the table made from them.

use crate::measures::{self, Target, Targets};
use std::collections::HashMap;
use std::fmt::Write as _;

/// Samples by measure and side, in nanoseconds for each call; `None` where a side does not offer the call.
pub struct Table {
    sides: usize,
    targets: Targets,
    rows: Vec<&'static str>,
    samples: HashMap<&'static str, Vec<Vec<Option<f64>>>>,
}

impl Table {
    pub fn new(sides: usize, targets: Targets) -> Self {
        Self {
            sides,
            targets,
            rows: Vec::new(),
            samples: HashMap::new(),
        }
    }

    pub fn sides(&self) -> usize {
        self.sides
    }

    pub fn add(&mut self, row: &'static str, side: usize, sample: Option<f64>) {
        let samples = self.samples.entry(row).or_insert_with(|| {
            self.rows.push(row);
            vec![Vec::new(); self.sides]
        });
        samples[side].push(sample);
    }

    /// A side's median, if it offers the call.
    fn median(&self, row: &str, side: usize) -> Option<f64> {
        let samples = self.samples.get(row)?.get(side)?;
        median(samples.iter().copied().collect::<Option<Vec<_>>>()?)
    }

    fn least(&self, row: &str, side: usize) -> Option<f64> {
        let samples = self.samples.get(row)?.get(side)?;
        samples.iter().copied().flatten().reduce(f64::min)
    }

    /// The ratio of our time to theirs: the median over all turns.
    ///
    /// Each turn took one sample of either side in quick succession, so that other load affects both.
    fn ratio(&self, row: &str) -> Option<f64> {
        let of = match measures::target(self.targets, row) {
            Target::AtMostOf(_, other) => other,
            Target::AtMost(_) | Target::Within(_) | Target::Shown => row,
        };
        let (ours, theirs) = (
            self.samples.get(row)?.first()?,
            self.samples.get(of)?.get(1)?,
        );
        let turns = ours.iter().zip(theirs);
        median(
            turns
                .map(|(ours, theirs)| Some((*ours)? / (*theirs)?))
                .collect::<Option<Vec<_>>>()?,
        )
    }

    fn misses(&self, row: &str) -> bool {
        let (found, most) = match measures::target(self.targets, row) {
            Target::AtMost(most) | Target::AtMostOf(most, _) => (self.ratio(row), most),
            Target::Within(most) => (self.median(row, 0), most),
            Target::Shown => return false,
        };
        found.is_some_and(|found| found > most)
    }

    pub fn met(&self) -> bool {
        !self.rows.iter().any(|row| self.misses(row))
    }

    /// The table as Markdown. `sides` are their names.
    pub fn text(&self, sides: &[String]) -> String {
        let mut text = String::new();
        let mut line = |cells: Vec<String>| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        };
        let mut head = vec!["call".to_owned()];
        for side in sides.iter().take(self.sides) {
            head.extend([format!("{side}, median"), "least".to_owned()]);
        }
        head.extend(["ratio".to_owned(), "target".to_owned()]);
        let columns = head.len();
        line(head);
        line(vec!["---".to_owned(); columns]);
        for row in &self.rows {
            let mut cells = vec![(*row).to_owned()];
            for side in 0..self.sides {
                cells.push(time(self.median(row, side)));
                cells.push(time(self.least(row, side)));
            }
            cells.push(
                self.ratio(row)
                    .map_or("".to_owned(), |ratio| format!("{ratio:.3}")),
            );
            let met = if self.misses(row) { ", missed" } else { "" };
            cells.push(match measures::target(self.targets, row) {
                Target::AtMost(most) => format!("≤ {most}{met}"),
                Target::AtMostOf(most, of) => format!("≤ {most} of theirs of “{of}”{met}"),
                Target::Within(most) => format!("≤ {}{met}", time(Some(most))),
                Target::Shown => String::new(),
            });
            line(cells);
        }
        text
    }
}

fn median(mut samples: Vec<f64>) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    let (low, high) = (
        samples.get(samples.len().saturating_sub(1) / 2)?,
        samples.get(samples.len() / 2)?,
    );
    Some((low + high) / 2.0)
}

/// Nanoseconds with three significant digits and a suitable unit.
fn time(nanoseconds: Option<f64>) -> String {
    let Some(ns) = nanoseconds else {
        return "not offered".to_owned();
    };
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns => (ns / 1e6, "ms"),
    };
    let digits = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!(time(Some(7.256)), "7.26 ns");
        assert_eq!(time(Some(1_234.5)), "1.23 µs");
        assert_eq!(time(Some(123_456_789.0)), "123 ms");
        assert_eq!(time(None), "not offered");
    }

    #[test]
    fn a_target_missed_is_said() {
        let row = measures::START;
        let mut table = Table::new(2, Targets::Opencl);
        for (ours, theirs) in [(11.0, 10.0), (12.0, 10.0), (13.0, 10.0)] {
            table.add(row, 0, Some(ours));
            table.add(row, 1, Some(theirs));
        }
        assert!(!table.met());
        let text = table.text(&["a".to_owned(), "b".to_owned()]);
        assert!(text.contains("| 1.200 | ≤ 1, missed |"), "{text}");
    }
}

//! The report: a line at the end of each run, and a table of all runs.

use std::collections::BTreeMap;

/// The result of a run, with its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed(String),
    Failed(String),
    Skipped(String),
}

impl Outcome {
    fn word(&self) -> &'static str {
        match self {
            Outcome::Passed(_) => "ok",
            Outcome::Failed(_) => "FAILED",
            Outcome::Skipped(_) => "skipped",
        }
    }

    fn summary(&self) -> &str {
        match self {
            Outcome::Passed(summary) | Outcome::Failed(summary) | Outcome::Skipped(summary) => {
                summary
            }
        }
    }
}

/// A run of a client on a runtime and a target.
pub struct Row {
    pub client: String,
    /// The runtime and the target.
    pub column: String,
    pub outcome: Outcome,
}

#[derive(Default)]
pub struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// Adds a run and prints its line.
    pub fn add(&mut self, row: Row) {
        console::outln!(
            "{:8}{} on {}: {}",
            row.outcome.word(),
            row.client,
            row.column,
            row.outcome.summary()
        );
        self.rows.push(row);
    }

    pub fn failed(&self) -> bool {
        self.count("FAILED") > 0
    }

    /// Prints the table and the totals.
    pub fn print(&self) {
        console::out!("\n{}", self.table());
        console::outln!(
            "real-client: {} passed, {} failed, {} skipped",
            self.count("ok"),
            self.count("FAILED"),
            self.count("skipped")
        );
    }

    fn count(&self, word: &str) -> usize {
        self.rows
            .iter()
            .filter(|row| row.outcome.word() == word)
            .count()
    }

    /// A table of clients by runtimes and targets.
    fn table(&self) -> String {
        let mut columns: Vec<&str> = Vec::new();
        let mut clients: Vec<&str> = Vec::new();
        let mut cells = BTreeMap::new();
        for row in &self.rows {
            if !columns.contains(&row.column.as_str()) {
                columns.push(&row.column);
            }
            if !clients.contains(&row.client.as_str()) {
                clients.push(&row.client);
            }
            cells.insert(
                (row.client.as_str(), row.column.as_str()),
                row.outcome.word(),
            );
        }
        let first = clients.iter().map(|name| name.len()).max().unwrap_or(0);
        let mut text = format!("{:first$}", "");
        for column in &columns {
            text += &format!("  {column}");
        }
        text.push('\n');
        for client in clients {
            let mut line = format!("{client:first$}");
            for &column in &columns {
                let cell = cells.get(&(client, column)).copied().unwrap_or("-");
                line += &format!("  {cell:width$}", width = column.len());
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_clients_and_columns() {
        let mut report = Report::default();
        for (client, column, outcome) in [
            ("usm", "1 cpu", Outcome::Passed(String::new())),
            ("usm", "2 cpu", Outcome::Failed(String::new())),
            ("dpctl", "2 cpu", Outcome::Skipped(String::new())),
        ] {
            let (client, column) = (client.to_owned(), column.to_owned());
            report.rows.push(Row {
                client,
                column,
                outcome,
            });
        }
        let wanted = "       1 cpu  2 cpu\nusm    ok     FAILED\ndpctl  -      skipped\n";
        assert_eq!(report.table(), wanted);
        assert!(report.failed());
    }
}

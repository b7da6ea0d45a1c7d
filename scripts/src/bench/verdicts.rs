//! Measured values beside their targets, in one table.

#[derive(Default)]
pub(super) struct Verdicts(Vec<Verdict>);

struct Verdict {
    what: String,
    found: f64,
    wanted: String,
    met: bool,
}

impl Verdicts {
    /// Target: at most `most`.
    pub fn at_most(&mut self, what: &str, found: f64, most: f64) {
        self.add(what, found, format!("at most {most}"), found <= most);
    }

    /// Target: at least `least`.
    pub fn least(&mut self, what: &str, found: f64, least: f64) {
        self.add(what, found, format!("at least {least}"), found >= least);
    }

    fn add(&mut self, what: &str, found: f64, wanted: String, met: bool) {
        let what = what.to_owned();
        self.0.push(Verdict {
            what,
            found,
            wanted,
            met,
        });
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub fn print(&self) {
        console::outln!(
            "## Against the targets\n| what | found | target | met |\n|---|---|---|---|"
        );
        for verdict in &self.0 {
            let met = if verdict.met { "yes" } else { "**no**" };
            let (what, wanted) = (&verdict.what, &verdict.wanted);
            console::outln!("| {what} | {:.3} | {wanted} | {met} |", verdict.found);
        }
    }
}

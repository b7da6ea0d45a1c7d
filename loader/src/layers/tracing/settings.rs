//! The layer's settings.
//!
//! Owns the meaning of the environment variables.

use std::time::Duration;

use ur::object::env::Env;

use super::pattern::Patterns;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub output: Output,
    pub format: Format,
    pub functions: Patterns,
    pub adapters: Patterns,
    pub min_time: Duration,
    /// A path, with the process id inserted.
    pub summary: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Nothing,
    Stderr,
    Stdout,
    /// A path, with the process id inserted.
    File(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

impl Settings {
    pub fn read(env: &Env<'_>) -> Settings {
        let patterns = |name: &str| match env.list(name) {
            None => Patterns::default(),
            Some(Ok(list)) => Patterns::new(list),
            Some(Err(reason)) => {
                env.complain(&format!(
                    "{name}: {reason}; accepted: names with * and ?, separated by commas; all are traced"
                ));
                Patterns::default()
            }
        };
        let output = match env.text("UR_TRACE_OUTPUT").as_deref() {
            None | Some("stderr") => Output::Stderr,
            Some("stdout") => Output::Stdout,
            Some("none") => Output::Nothing,
            Some(path) => Output::File(expanded(path)),
        };
        let text = ("text", Format::Text);
        let times = "a time such as 10us or 1.5ms, in ns, us, ms or s";
        Settings {
            output,
            format: env.word("UR_TRACE_FORMAT", text, &[("json", Format::Json)]),
            functions: patterns("UR_TRACE_FUNCTIONS"),
            adapters: patterns("UR_TRACE_ADAPTERS"),
            min_time: env
                .read("UR_TRACE_MIN_TIME", times, "0ns", duration)
                .unwrap_or_default(),
            summary: env.text("UR_TRACE_SUMMARY").map(|path| expanded(&path)),
        }
    }
}

fn expanded(path: &str) -> String {
    path.replace("%p", &std::process::id().to_string())
}

/// Parses a number with its unit: ns, us, ms or s.
fn duration(text: &str) -> Option<Duration> {
    let (number, scale) = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)]
        .iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
    let number: f64 = number.trim().parse().ok()?;
    Duration::try_from_secs_f64(number * scale).ok()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Settings, Vec<String>) {
        let get = |name: &str| {
            let found = variables.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let faults = RefCell::<Vec<String>>::default();
        let complain = |text: &str| faults.borrow_mut().push(text.to_owned());
        let settings = Settings::read(&Env::new(&get, &complain));
        (settings, faults.into_inner())
    }

    #[test]
    fn defaults_trace_everything_to_stderr() {
        let (settings, faults) = read(&[]);
        assert_eq!(settings.output, Output::Stderr);
        assert_eq!(settings.format, Format::Text);
        assert!(settings.functions.is_empty() && settings.adapters.is_empty());
        assert!(settings.min_time.is_zero() && settings.summary.is_none());
        assert!(faults.is_empty());
    }

    #[test]
    fn everything_can_be_set() {
        let (settings, faults) = read(&[
            ("UR_TRACE_OUTPUT", "/tmp/x-%p.json"),
            ("UR_TRACE_FORMAT", "json"),
            ("UR_TRACE_FUNCTIONS", "urQueue*,!urQueueRelease"),
            ("UR_TRACE_ADAPTERS", "cuda"),
            ("UR_TRACE_MIN_TIME", "1.5ms"),
            ("UR_TRACE_SUMMARY", "s-%p"),
        ]);
        let own = std::process::id();
        assert_eq!(faults, Vec::<String>::new());
        assert_eq!(settings.output, Output::File(format!("/tmp/x-{own}.json")));
        assert_eq!(settings.format, Format::Json);
        assert!(
            settings.functions.matches("urQueueCreate")
                && !settings.functions.matches("urQueueRelease")
        );
        assert!(settings.adapters.matches("cuda") && !settings.adapters.matches("hip"));
        assert_eq!(settings.min_time, Duration::from_micros(1500));
        assert_eq!(settings.summary, Some(format!("s-{own}")));
        assert_eq!(
            read(&[("UR_TRACE_OUTPUT", "none")]).0.output,
            Output::Nothing
        );
        assert_eq!(
            read(&[("UR_TRACE_OUTPUT", "stdout")]).0.output,
            Output::Stdout
        );
    }

    #[test]
    fn invalid_values_are_reported_and_ignored() {
        let (settings, faults) = read(&[
            ("UR_TRACE_FORMAT", "xml"),
            ("UR_TRACE_FUNCTIONS", "a,,b"),
            ("UR_TRACE_MIN_TIME", "10"),
        ]);
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert_eq!(settings, read(&[]).0);
    }

    #[test]
    fn times_have_units() {
        let micros = |text| duration(text).map(|time| time.as_nanos());
        assert_eq!(micros("10us"), Some(10_000));
        assert_eq!(micros("7ns"), Some(7));
        assert_eq!(micros("2 ms"), Some(2_000_000));
        assert_eq!(micros("0.5s"), Some(500_000_000));
        for bad in ["", "us", "10", "-1us", "nans", "1e400s", "10 minutes"] {
            assert_eq!(micros(bad), None, "{bad}");
        }
    }
}

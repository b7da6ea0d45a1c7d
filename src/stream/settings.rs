//! What the environment says about the pools of this library, read once.
//!
//! | variable | words |
//! |---|---|
//! | `UR_POOL_WAITS` | `never`, `bounded` (the default), `always` |
//! | `UR_POOL_DETERMINISTIC` | `1`, `0` (the default) |
//! | `UR_POOL_TRACE` | a file; `%p` is the process, `%n` the adapter |

use crate::object::log;
use crate::pool::WaitPolicy;
use std::sync::OnceLock;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// When a wait may be inserted for an allocation.
    pub waits: WaitPolicy,
    /// Whether choices look at nothing that depends on time.
    pub deterministic: bool,
    /// Where every allocation and free is written.
    pub trace: Option<String>,
}

impl Settings {
    pub fn get() -> &'static Self {
        static SETTINGS: OnceLock<Settings> = OnceLock::new();
        SETTINGS.get_or_init(|| {
            let read = |name: &str| {
                let value = std::env::var_os(name)?;
                Some(value.to_string_lossy().into_owned())
            };
            Self::parse(read, log::always)
        })
    }

    /// From variables; what is not understood stays at its default, and is complained of.
    fn parse(read: impl Fn(&str) -> Option<String>, complain: impl Fn(&str)) -> Self {
        let mut out = Self::default();
        let wrong = |name: &str, value: &str, words: &str| {
            complain(&format!("{name}: `{value}` is none of {words}"));
        };
        let value = |name: &str| read(name).filter(|value| !value.is_empty());
        if let Some(text) = value("UR_POOL_WAITS") {
            match text.as_str() {
                "never" => out.waits = WaitPolicy::Never,
                "bounded" => out.waits = WaitPolicy::Bounded,
                "always" => out.waits = WaitPolicy::Always,
                _ => wrong("UR_POOL_WAITS", &text, "never, bounded, always"),
            }
        }
        if let Some(text) = value("UR_POOL_DETERMINISTIC") {
            match text.as_str() {
                "1" => out.deterministic = true,
                "0" => {}
                _ => wrong("UR_POOL_DETERMINISTIC", &text, "0, 1"),
            }
        }
        out.trace = value("UR_POOL_TRACE");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn parse(pairs: &[(&str, &str)]) -> (Settings, Vec<String>) {
        let complaints = RefCell::<Vec<String>>::default();
        let read = |name: &str| {
            let found = pairs.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let settings = Settings::parse(read, |text| {
            complaints.borrow_mut().push(text.to_owned());
        });
        (settings, complaints.into_inner())
    }

    #[test]
    fn words_are_understood_or_complained_of() {
        assert_eq!(parse(&[]), (Settings::default(), vec![]));
        let (all, none) = parse(&[
            ("UR_POOL_WAITS", "always"),
            ("UR_POOL_DETERMINISTIC", "1"),
            ("UR_POOL_TRACE", "/tmp/%p"),
        ]);
        let wanted = Settings {
            waits: WaitPolicy::Always,
            deterministic: true,
            trace: Some("/tmp/%p".into()),
        };
        assert_eq!((all, none), (wanted, vec![]));
        let (kept, complaints) = parse(&[
            ("UR_POOL_WAITS", "sometimes"),
            ("UR_POOL_DETERMINISTIC", "yes"),
            ("UR_POOL_TRACE", ""),
        ]);
        assert_eq!(kept, Settings::default());
        assert_eq!(complaints.len(), 2);
        assert!(complaints[0].contains("never, bounded, always"));
    }
}

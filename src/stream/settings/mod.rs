//! Settings of this library's pools from the environment, read once.
//!
//! | variable | values |
//! |---|---|
//! | `UR_POOL_WAITS` | `never`, `bounded` (the default), `always` |
//! | `UR_POOL_DETERMINISTIC` | a flag: `1`, `0` (the default) |
//! | `UR_POOL_COMPACTION` | `pressure` (the default), `always`, `never` |
//! | `UR_POOL_SLACK_SHARE`, `UR_POOL_REMAP_REQUESTS`, `UR_POOL_GROWTH_SHARE`, `UR_POOL_PAGE_SHARE`, `UR_POOL_GROWTH_MIB`, `UR_POOL_PAGE_MIB`, `UR_POOL_PAGE_REQUESTS`, `UR_POOL_EXACT_PAGES`, `UR_POOL_LOOKS`, `UR_POOL_SMALL_KIB`, `UR_POOL_ROUNDING_KIB` | numbers up to 4096; `src/pool/options.rs` says which |
//! | `UR_POOL_COALESCING` | a flag: `1` (the default of tight pools), `0` (of others) |
//! | `UR_POOL_REPLAY`, `UR_POOL_SHARED_REPLAY` | flags: `1` (the default), `0` (that of tight pools) |
//! | `UR_POOL_EXTENT_CACHE` | a flag: `1` (the default), `0` |
//! | `UR_POOL_TRACE` | a file; `%p` is the process, `%n` the adapter |
//!
//! A choice may rest on the program's own calls and on completion, and completion passes through one
//! place, `Clock::reliable`. In a deterministic run a clock keeps what the program awaited apart from
//! what was observed. `is_complete` means the former and `is_done` the latter; only markers, an event's
//! status and the release of native objects ask `is_done`.
//!
//! Owns these, and the trace and the log that they turn on. Uses `driver` for the kinds of memory.
//! Must never know a lane or a pool's handle.

pub(crate) mod pool_log;
pub(crate) mod pool_trace;

use crate::object::env::Env;
use crate::pool::{Compaction, Options, WaitPolicy};
use std::sync::OnceLock;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// When a wait may be inserted for an allocation.
    pub waits: WaitPolicy,
    /// Whether no decision depends on time.
    pub deterministic: bool,
    /// The file of the trace of allocations and frees.
    pub trace: Option<String>,
    /// Whether threads cache the extents of allocations.
    pub extent_cache: bool,
    /// Which mechanisms of the pools are on.
    pub options: Options,
    /// Which mechanisms of pools that are asked to be tight are on.
    pub tight_options: Options,
}

impl Settings {
    pub fn get() -> &'static Self {
        static SETTINGS: OnceLock<Settings> = OnceLock::new();
        SETTINGS.get_or_init(|| Self::read(&Env::process()))
    }

    fn read(env: &Env<'_>) -> Self {
        let bounded = ("bounded", WaitPolicy::Bounded);
        let others = [("never", WaitPolicy::Never), ("always", WaitPolicy::Always)];
        Self {
            waits: env.word("UR_POOL_WAITS", bounded, &others),
            deterministic: env.flag("UR_POOL_DETERMINISTIC", false),
            trace: env.text("UR_POOL_TRACE"),
            extent_cache: env.flag("UR_POOL_EXTENT_CACHE", true),
            options: options(env, Options::default()),
            tight_options: options(env, Options::default().tight()),
        }
    }
}

fn options(env: &Env<'_>, usual: Options) -> Options {
    let pressure = ("pressure", Compaction::Pressure);
    let others = [("always", Compaction::Always), ("never", Compaction::Never)];
    let share = |name, usual: u64| {
        let share = env.number(name, 0..=4096, &usual.to_string());
        share.map_or(usual, |share| share as u64)
    };
    Options {
        compaction: env.word("UR_POOL_COMPACTION", pressure, &others),
        slack_share: share("UR_POOL_SLACK_SHARE", usual.slack_share),
        remap_requests: share("UR_POOL_REMAP_REQUESTS", usual.remap_requests),
        growth_share: share("UR_POOL_GROWTH_SHARE", usual.growth_share),
        page_share: share("UR_POOL_PAGE_SHARE", usual.page_share),
        growth_mib: share("UR_POOL_GROWTH_MIB", usual.growth_mib),
        page_mib: share("UR_POOL_PAGE_MIB", usual.page_mib),
        page_requests: share("UR_POOL_PAGE_REQUESTS", usual.page_requests),
        exact_pages: share("UR_POOL_EXACT_PAGES", usual.exact_pages),
        looks: share("UR_POOL_LOOKS", usual.looks),
        small_kib: share("UR_POOL_SMALL_KIB", usual.small_kib),
        rounding_kib: share("UR_POOL_ROUNDING_KIB", usual.rounding_kib),
        coalescing: env.flag("UR_POOL_COALESCING", usual.coalescing),
        replay: env.flag("UR_POOL_REPLAY", usual.replay),
        shared_replay: env.flag("UR_POOL_SHARED_REPLAY", usual.shared_replay),
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
        let complain = |text: &str| complaints.borrow_mut().push(text.to_owned());
        let settings = Settings::read(&Env::new(&read, &complain));
        (settings, complaints.into_inner())
    }

    #[test]
    fn words_are_understood_or_complained_of() {
        let usual = Settings {
            waits: WaitPolicy::Bounded,
            deterministic: false,
            trace: None,
            extent_cache: true,
            options: Options::default(),
            tight_options: Options::default().tight(),
        };
        assert_eq!(parse(&[]), (usual.clone(), vec![]));
        let (all, none) = parse(&[
            ("UR_POOL_WAITS", "always"),
            ("UR_POOL_DETERMINISTIC", "1"),
            ("UR_POOL_TRACE", "/tmp/%p"),
            ("UR_POOL_EXTENT_CACHE", "0"),
            ("UR_POOL_GROWTH_SHARE", "0"),
            ("UR_POOL_SMALL_KIB", "0"),
            ("UR_POOL_ROUNDING_KIB", "1024"),
        ]);
        let wanted = Settings {
            waits: WaitPolicy::Always,
            deterministic: true,
            trace: Some("/tmp/%p".into()),
            extent_cache: false,
            options: Options {
                growth_share: 0,
                small_kib: 0,
                rounding_kib: 1024,
                ..Options::default()
            },
            tight_options: Options {
                growth_share: 0,
                small_kib: 0,
                rounding_kib: 1024,
                ..Options::default().tight()
            },
        };
        assert_eq!((all, none), (wanted, vec![]));
        let (kept, complaints) = parse(&[
            ("UR_POOL_WAITS", "sometimes"),
            ("UR_POOL_DETERMINISTIC", "2"),
            ("UR_POOL_TRACE", ""),
        ]);
        assert_eq!(kept, usual);
        assert_eq!(complaints.len(), 2);
        assert_eq!(
            complaints[0],
            "UR_POOL_WAITS: `sometimes` is not understood; accepted: bounded, never, always; used \
             instead: bounded"
        );
    }
}
